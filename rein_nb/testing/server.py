"""A loopback HTTP server that answers with recorded bytes, cut and delayed as a test wants them.

It speaks just enough HTTP/1.1 to be in front of any client, on 127.0.0.1 only, and keeps what it was sent. Answers are given in order, one
a request, so a tool loop's recording serves the whole loop::

    async with serve_recording("tool-loop.json", cuts=1) as server:
        llm = LLM(Config(provider="openai-chat", model="gpt-4o", api_key="not-a-key", base_url=server.base_url))
        ...
    assert server.requests[0].json["stream"] is True

A recording is a JSON file or a dict of the form ``{"exchanges": [{"request": {...}, "response": {"status": 200, "headers": {...},
"body": "..."}}, ...]}``; one exchange, one response, or a list of these will do as well. `body` is text (sent as UTF-8) or bytes.
"""

from __future__ import annotations

import asyncio
import gzip as gzip_module
import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

Cuts: TypeAlias = int | Literal["events", "lines"] | Sequence[int] | Callable[[bytes], Iterable[bytes]] | None
"""Where a body is cut: every n bytes, after each event or line, at byte offsets, by a function; None for not at all."""

_DROPPED_HEADERS = {"content-length", "transfer-encoding", "content-encoding", "connection", "keep-alive"}


@dataclass(slots=True)
class Received:
    """A request that arrived.

    Attributes
    ----------
    method, path, query, headers, body
        As sent; header names in lower case.
    at
        When its last byte had arrived, by `time.perf_counter`, seconds.
    disconnected
        Whether the client was gone before the whole answer had been sent.
    pieces_sent
        How many pieces of the body were sent.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes
    at: float
    disconnected: bool = False
    pieces_sent: int = 0

    @property
    def json(self) -> Any:
        """The body as JSON; None when it is empty."""
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes


def cut(body: bytes, cuts: Cuts) -> list[bytes]:
    """`body` in pieces, none of them empty.

    Examples
    --------
    >>> cut(b"data: 1\\n\\ndata: 2\\n\\n", "events")
    [b'data: 1\\n\\n', b'data: 2\\n\\n']
    >>> cut(b"abcde", 2), cut(b"abcde", [1, 4])
    ([b'ab', b'cd', b'e'], [b'a', b'bcd', b'e'])
    """
    if cuts is None:
        pieces: Iterable[bytes] = [body]
    elif isinstance(cuts, int):
        if cuts < 1:
            raise ValueError("pieces must have at least one byte")
        pieces = [body[i : i + cuts] for i in range(0, len(body), cuts)]
    elif cuts == "events":
        pieces = re.findall(rb".*?(?:\r\n\r\n|\n\n|\r\r|\Z)", body, re.DOTALL)
    elif cuts == "lines":
        pieces = body.splitlines(keepends=True)
    elif callable(cuts):
        pieces = cuts(body)
    elif isinstance(cuts, str):
        raise ValueError(f"cuts must be a number, 'events', 'lines', offsets or a function, not {cuts!r}")
    else:
        marks = sorted({0, len(body), *(at for at in cuts if 0 < at < len(body))})
        pieces = [body[a:b] for a, b in itertools.pairwise(marks)]
    return [piece for piece in pieces if piece]


def _answers(source: Any) -> list[_Answer]:
    if isinstance(source, str | Path):
        source = json.loads(Path(source).read_text(encoding="utf-8"))
    if isinstance(source, Mapping):
        if "exchanges" in source:
            return [_answer(exchange) for exchange in source["exchanges"]]
        return [_answer(source)]
    if isinstance(source, Iterable):
        return [answer for item in source for answer in _answers(item)]
    raise TypeError(f"a recording is a path, a dict or a list of these, not {type(source).__name__}")


def _answer(item: Mapping[str, Any]) -> _Answer:
    response = item.get("response", item)
    if "body" not in response and "json" not in response:
        raise ValueError("a recorded response needs a 'body' (text or bytes) or 'json'")
    body = response["body"] if "body" in response else json.dumps(response["json"])
    raw = body if isinstance(body, bytes) else str(body).encode()
    headers = {str(name): str(value) for name, value in dict(response.get("headers") or {}).items()}
    if not any(name.lower() == "content-type" for name in headers):
        stream = response.get("stream", raw.lstrip()[:5] in (b"data:", b"event"))
        headers["content-type"] = "text/event-stream" if stream else "application/json"
    return _Answer(
        status=int(response.get("status", 200)),
        headers=tuple((name, value) for name, value in headers.items() if name.lower() not in _DROPPED_HEADERS),
        body=raw,
    )


class _Protocol(asyncio.StreamReaderProtocol):
    """Tells when the client has gone, without reading what it may send next."""

    def __init__(self, handle: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Any]) -> None:
        super().__init__(asyncio.StreamReader(), handle)
        self.gone = asyncio.Event()

    def eof_received(self) -> bool | None:
        self.gone.set()
        return super().eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self.gone.set()
        super().connection_lost(exc)


class RecordingServer:
    """See `serve_recording`, which makes it.

    Attributes
    ----------
    base_url
        ``http://127.0.0.1:<port>``, while it runs.
    requests
        What arrived, in order.
    unexpected
        Requests that came when all answers had been given; they got a 500.
    connections
        How many connections were opened.

    Parameters
    ----------
    cuts, delay_s, hang_after, drop_after, framing, gzip, repeat, first_byte_delay_s, keep_alive
        As for `serve_recording`.
    """

    def __init__(
        self,
        answers: Sequence[_Answer],
        *,
        cuts: Cuts,
        delay_s: float | Sequence[float],
        hang_after: int | Literal["request"] | None,
        drop_after: int | Literal["request"] | None,
        framing: Literal["chunked", "length", "close"],
        gzip: bool,
        repeat: bool,
        first_byte_delay_s: float,
        keep_alive: bool,
    ) -> None:
        self._all = list(answers)
        self._cuts = cuts
        self._delay_s = delay_s
        self._hang_after = hang_after
        self._drop_after = drop_after
        self._framing = framing
        self._gzip = gzip
        self._repeat = repeat
        self._first_byte_delay_s = first_byte_delay_s
        self._keep_alive = keep_alive
        self._next = 0
        self._port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._lock = threading.Lock()
        self.requests: list[Received] = []
        self.unexpected: list[Received] = []
        self.connections = 0

    @property
    def base_url(self) -> str:
        """Where it listens, without a path."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def disconnects(self) -> int:
        """How many clients were gone before they had their whole answer."""
        return sum(request.disconnected for request in self.requests)

    @property
    def remaining(self) -> int:
        """How many recorded answers have not been given."""
        return max(0, len(self._all) - self._next)

    def assert_all_served(self) -> None:
        """Raise AssertionError unless each recorded answer was asked for, and nothing more."""
        if self.remaining or self.unexpected:
            raise AssertionError(
                f"{self._next} of {len(self._all)} recorded answers were asked for, and {len(self.unexpected)} more"
            )

    async def wait_for_disconnects(self, count: int, timeout_s: float = 2.0) -> bool:
        """Wait until `count` clients have gone early; whether that came to pass."""
        end = time.perf_counter() + timeout_s
        while self.disconnects < count and time.perf_counter() < end:  # noqa: ASYNC110  connections are many, the count one
            await asyncio.sleep(0.005)
        return self.disconnects >= count

    # -- running ----------------------------------------------------------------------------------

    async def start(self) -> RecordingServer:
        """Listen on a free port of 127.0.0.1."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: _Protocol(self._connection), "127.0.0.1", 0
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        """Stop listening and drop every connection."""
        if self._server is None:
            return
        self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._server.wait_closed()
        self._server = None

    async def __aenter__(self) -> RecordingServer:
        return await self.start()

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    def __enter__(self) -> RecordingServer:
        from rein_nb import aio

        aio.run_sync(self.start())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        from rein_nb import aio

        aio.run_sync(self.stop())

    # -- one connection ---------------------------------------------------------------------------

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while True:
                request = await _read_request(reader)
                if request is None or not await self._respond(request, writer):
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # the client went away in the middle of a request: nothing was promised to it
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._tasks.discard(task)
            writer.close()

    def _take(self, request: Received) -> _Answer:
        with self._lock:
            self.requests.append(request)
            if self._next < len(self._all) or (self._repeat and self._all):
                answer = self._all[min(self._next, len(self._all) - 1)]
                self._next += 1
                return answer
            self.unexpected.append(request)
        message = f"request {len(self.requests)}: only {len(self._all)} answers were recorded"
        body = json.dumps({"error": {"message": message, "type": "no_more_recordings"}}).encode()
        return _Answer(500, (("content-type", "application/json"), ("x-should-retry", "false")), body)

    async def _respond(self, request: Received, writer: asyncio.StreamWriter) -> bool:
        """Send one answer; whether the connection can be used again."""
        answer = self._take(request)
        protocol = writer.transport.get_protocol()
        assert isinstance(protocol, _Protocol)
        gone = protocol.gone
        try:
            if self._hang_after == "request":
                return await self._hang(request, gone)
            if self._drop_after == "request":
                writer.transport.abort()
                return False
            if self._first_byte_delay_s and await _wait(gone, self._first_byte_delay_s):
                request.disconnected = True
                return False
            body = gzip_module.compress(answer.body) if self._gzip else answer.body
            writer.write(self._head(answer, len(body)))
            pieces = cut(body, self._cuts)
            for n, piece in enumerate(pieces):
                if n == self._hang_after:
                    return await self._hang(request, gone)
                if n == self._drop_after:
                    await writer.drain()
                    writer.transport.abort()
                    return False
                writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._framing == "chunked" else piece)
                await writer.drain()
                request.pieces_sent = n + 1
                if await _wait(gone, self._delay(n)):
                    request.disconnected = n + 1 < len(pieces)
                    return False
            if self._hang_after is not None and self._hang_after >= len(pieces):
                return await self._hang(request, gone)
            if self._drop_after is not None and self._drop_after >= len(pieces):
                writer.transport.abort()
                return False
            if self._framing == "chunked":
                writer.write(b"0\r\n\r\n")
            await writer.drain()
        except ConnectionError:
            request.disconnected = True
            return False
        return self._framing != "close" and self._keep_alive

    def _delay(self, n: int) -> float:
        if isinstance(self._delay_s, Sequence):
            return self._delay_s[n] if n < len(self._delay_s) else 0.0
        return self._delay_s

    @staticmethod
    async def _hang(request: Received, gone: asyncio.Event) -> bool:
        await gone.wait()
        request.disconnected = True
        return False

    def _head(self, answer: _Answer, length: int) -> bytes:
        lines = [f"HTTP/1.1 {answer.status} Recorded", *(f"{name}: {value}" for name, value in answer.headers)]
        if self._gzip:
            lines.append("content-encoding: gzip")
        if self._framing == "chunked":
            lines.append("transfer-encoding: chunked")
        elif self._framing == "length":
            lines.append(f"content-length: {length}")
        if self._framing == "close" or not self._keep_alive:
            lines.append("connection: close")
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")


async def _wait(gone: asyncio.Event, seconds: float) -> bool:
    """Let `seconds` pass, or less when the client goes; whether it went."""
    if seconds <= 0:
        await asyncio.sleep(0)
    else:
        try:
            async with asyncio.timeout(seconds):
                await gone.wait()
        except TimeoutError:
            pass
    return gone.is_set()


async def _read_request(reader: asyncio.StreamReader) -> Received | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {
        name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)
    }
    body = b""
    if "chunked" in headers.get("transfer-encoding", ""):
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readuntil(b"\r\n")
    elif length := int(headers.get("content-length", "0")):
        body = await reader.readexactly(length)
    url = urlsplit(target)
    return Received(method, url.path, dict(parse_qsl(url.query)), headers, body, time.perf_counter())


def serve_recording(
    source: Any,
    *,
    cuts: Cuts = None,
    delay_s: float | Sequence[float] = 0.0,
    hang_after: int | Literal["request"] | None = None,
    drop_after: int | Literal["request"] | None = None,
    framing: Literal["chunked", "length", "close"] = "chunked",
    gzip: bool = False,
    repeat: bool = False,
    first_byte_delay_s: float = 0.0,
    keep_alive: bool = True,
) -> RecordingServer:
    """A loopback server for recorded answers: ``async with serve_recording(...) as server``, or ``with`` in synchronous code.

    Parameters
    ----------
    source
        A recording (see this module's docstring): a path, a dict, or a list of these.
    cuts
        Where bodies are cut into pieces, each sent by itself. A client may still get several in one read; a small `delay_s` keeps them apart.
    delay_s
        Seconds after each piece, or one number a piece.
    hang_after
        Send no more after so many pieces, and keep the connection open; ``"request"`` for no answer at all.
    drop_after
        Break the connection off after so many pieces; ``"request"`` for at once.
    framing
        How the body's end is told: chunked encoding, its length, or the connection's end.
    gzip
        Send bodies compressed.
    repeat
        Give the last answer again and again when all were given.
    first_byte_delay_s
        Seconds before the answer's head.
    keep_alive
        Whether connections may be used again.

    Examples
    --------
    >>> with serve_recording({"status": 200, "body": "{}"}) as server:
    ...     server.base_url.startswith("http://127.0.0.1:")
    True
    """
    return RecordingServer(
        _answers(source),
        cuts=cuts,
        delay_s=delay_s,
        hang_after=hang_after,
        drop_after=drop_after,
        framing=framing,
        gzip=gzip,
        repeat=repeat,
        first_byte_delay_s=first_byte_delay_s,
        keep_alive=keep_alive,
    )


__all__ = ["Cuts", "Received", "RecordingServer", "cut", "serve_recording"]
