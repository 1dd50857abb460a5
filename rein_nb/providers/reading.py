"""From the body of an answer to deltas, whatever the body turns out to be.

Asked for a stream, servers send: a stream; one JSON document (an answer from a server that does not stream, or an error with status
200); a JSON array of events; newline-delimited JSON; an HTML page from a gateway in between; nothing. Which of these it is, the first byte
tells, since content types are often wrong. Asked for one document, some servers send a stream.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeAlias

from rein_nb.dialects.base import Codec, Target, WireCall
from rein_nb.dialects.framing import (
    EventReader,
    Frame,
    FrameParser,
    JSONArrayParser,
    NDJSONParser,
    SSEParser,
    parse_event,
    sniff,
)
from rein_nb.ir import ErrorInfo, ProviderError
from rein_nb.ir.base import JSON, loads
from rein_nb.ir.deltas import Delta, End

Tap: TypeAlias = Callable[[JSON, str | None], None]
"""Told every decoded wire event: its JSON (or text) and its name; `DOCUMENT` for a whole answer."""

DOCUMENT = "(document)"
"""In place of an event's name: this is no event of a stream, but a whole answer."""

DRAIN_S = 0.05
"""How long the end of the bytes is waited for after the wire's own end marker, so that the connection can be used again."""

_EVENT_FIELD = re.compile(rb"\s*(?:\xef\xbb\xbf)?(?:data|event|id|retry)?\s*:")
"""How an event stream begins, be its first event cut short or not."""

_EXCERPT = 500
"""Characters of an unreadable body that an error carries."""


async def stream_deltas(
    chunks: AsyncIterator[bytes],
    codec: Codec,
    target: Target,
    call: WireCall,
    *,
    status: int = 200,
    tap: Tap | None = None,
) -> AsyncIterator[list[Delta]]:
    """The deltas of a streamed answer, one list a network read; an empty list is a sign of life.

    Raises
    ------
    ProviderError
        `MalformedResponse` for a body that is no answer in any form.
    """
    head = b""
    kind = ""
    async for chunk in chunks:
        head += chunk
        kind = sniff(head)
        if kind:
            break
        yield []
    if kind == "html":
        raise malformed("an HTML page came instead of an answer", await _rest(chunks, head), target, status)
    if kind == "json" and target.quirks.framing != "ndjson":
        async for deltas in _documents(chunks, head, codec, target, call, status, tap):
            yield deltas
        return
    parser: FrameParser = NDJSONParser() if kind == "json" else SSEParser()
    decoder = codec.decoder(target, call)
    reader = _Frames(decoder.feed, tap)
    feed, read = parser.feed, reader.read
    try:
        out = read(feed(head))
        if not _ends(out):
            yield out
            async for chunk in chunks:
                out = read(feed(chunk))
                if out and type(out[-1]) is End:
                    break
                yield out
        while _ends(out):
            if len(out) > 1:
                yield out[:-1]
            # Read to the end before saying that it is the end: who hears that stops reading, and a connection whose answer
            # was not read to its end cannot be used again.
            more = await _next(chunks, DRAIN_S)
            yield out[-1:]
            if not more:
                return
            out = read(feed(more))
            while more and not _ends(out):
                yield out
                more = await _next(chunks, None)
                out = read(feed(more)) if more else []
        out = read([frame for frame in parser.close() if not _cut_short(frame[1])])
        if not reader.any and head.strip() and not _EVENT_FIELD.match(head):
            raise malformed("something that is no event stream came instead of an answer", head, target, status)
        out += decoder.close()
        yield out
    except ProviderError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as exc:
        raise _undecodable(exc, target, status) from exc


class _Frames:
    """Parses frames and has them decoded."""

    __slots__ = ("_decode", "_parse", "_tap", "any")

    def __init__(self, decode: Callable[[JSON, str | None], Sequence[Delta]], tap: Tap | None) -> None:
        self._decode = decode
        self._tap = tap
        self._parse = EventReader().read
        self.any = False

    def read(self, frames: Sequence[Frame]) -> list[Delta]:
        """The deltas of some frames."""
        out: list[Delta] = []
        decode, tap, parse = self._decode, self._tap, self._parse
        for event, data in frames:
            if not data:
                continue  # "data:" and nothing else: a sign of life
            value = parse(data)
            if tap is not None:
                tap(value, event)
            out += decode(value, event)
        if frames:
            self.any = True
        return out


def _ends(deltas: Sequence[Delta]) -> bool:
    return bool(deltas) and type(deltas[-1]) is End


def _cut_short(data: str) -> bool:
    """Whether the last frame, which no blank line closed, is the beginning of a JSON document that never came."""
    return type(parse_event(data)) is str and data.lstrip()[:1] == "{"


async def _next(chunks: AsyncIterator[bytes], within_s: float | None) -> bytes:
    """The next piece; empty at the end, or when it does not come within `within_s` seconds."""
    try:
        if within_s is None:
            return await chunks.__anext__()
        async with asyncio.timeout(within_s):
            return await chunks.__anext__()
    except (StopAsyncIteration, TimeoutError):
        return b""


async def _documents(
    chunks: AsyncIterator[bytes],
    head: bytes,
    codec: Codec,
    target: Target,
    call: WireCall,
    status: int,
    tap: Tap | None,
) -> AsyncIterator[list[Delta]]:
    """A body of JSON documents: one is a whole answer, several (or an array's elements) are events."""
    parser = JSONArrayParser()
    decoder = codec.decoder(target, call)
    in_array = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"[")
    first: list[JSON] = []
    streaming = in_array
    chunk = head
    closed = False
    while True:
        frames = parser.feed(chunk) if chunk else parser.close()
        closed = not chunk
        out: list[Delta] = []
        for _, data in frames:
            value = parse_event(data)
            if type(value) is str:
                continue  # cut short: the missing end marker will tell
            if not streaming:
                first.append(value)
                if len(first) < 2:
                    continue
                streaming = True
                values, first = first, []
            else:
                values = [value]
            for item in values:
                if tap is not None:
                    tap(item, None)
                out += decoder.feed(item, None)
        if closed:
            if first:
                if tap is not None:
                    tap(first[0], DOCUMENT)
                out += codec.deltas(first[0], target, call)
            elif streaming:
                out += decoder.close()
            yield out
            return
        yield out
        chunk = await _next(chunks, None)


async def whole_deltas(
    body: bytes,
    codec: Codec,
    target: Target,
    call: WireCall,
    *,
    status: int = 200,
    tap: Tap | None = None,
) -> list[Delta]:
    """The deltas of an answer that was asked for as one document.

    Raises
    ------
    ProviderError
        `MalformedResponse` for a body that is no answer in any form; `StreamCut` for an empty one.
    """
    kind = sniff(body)
    if not kind:
        raise _fault("stream_cut", "the answer is empty", target, status)
    if kind == "json":
        try:
            value = loads(body)
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            if tap is not None:
                tap(value, DOCUMENT)
            try:
                return list(codec.deltas(value, target, call))
            except (KeyError, TypeError, AttributeError, ValueError, IndexError) as exc:
                raise _undecodable(exc, target, status) from exc

    async def once() -> AsyncIterator[bytes]:
        yield body

    out: list[Delta] = []
    async for deltas in stream_deltas(once(), codec, target, call, status=status, tap=tap):
        out += deltas
    if not out:
        raise malformed("what came is no answer", body, target, status)
    return out


async def _rest(chunks: AsyncIterator[bytes], head: bytes) -> bytes:
    while len(head) < 65_536 and (chunk := await _next(chunks, 1.0)):
        head += chunk
    return head


def _fault(kind: Any, message: str, target: Target, status: int, **fields: Any) -> ProviderError:
    """The exception for a fault found while reading."""
    info = ErrorInfo.make(kind, message, status=status, provider=target.provider, model=target.model, **fields)
    return info.to_exception()


def malformed(message: str, body: bytes, target: Target, status: int) -> ProviderError:
    """`MalformedResponse`, with the beginning of what came."""
    text = body.decode("utf-8", "replace")
    return _fault("malformed_response", f"{message}: {_excerpt(text)}", target, status, body=text[:65_536])


def _excerpt(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _EXCERPT else text[:_EXCERPT] + " ..."


def _undecodable(exc: Exception, target: Target, status: int) -> ProviderError:
    return _fault(
        "malformed_response", f"the answer has an unexpected form ({type(exc).__name__}: {exc})", target, status
    )
