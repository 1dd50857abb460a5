"""Middleware: what wraps a model call. `wrap` composes; retry and timeouts live in the driver, below all of these.

A *handler* takes a `Call` and gives its events. A *middleware* takes a handler and gives another. The first middleware is the
outermost; None entries are left out, so an optional one needs no branch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Callable, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from rein_nb.ir import Completion, Request, StreamDone, StreamError, StreamEvent, StreamRetry, StreamStart
from rein_nb.ir import deltas as d
from rein_nb.ir.parts import (
    MediaPart,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
)
from rein_nb.stream import Accumulator, CancellationToken


@dataclass(slots=True)
class Call:
    """One model call on its way to the provider.

    Attributes
    ----------
    request
        What is asked.
    model
        The model that is asked.
    stream
        Whether the provider is asked to stream.
    signal
        Cancels the call.
    state
        Free space for middleware to talk to each other.
    """

    request: Request
    model: str
    stream: bool = True
    signal: CancellationToken | None = None
    state: dict[str, Any] = field(default_factory=dict)


Handler: TypeAlias = Callable[[Call], AsyncIterator[StreamEvent]]
Middleware: TypeAlias = Callable[[Handler], Handler]


def wrap(handler: Handler, *middlewares: Middleware | None) -> Handler:
    """`handler` inside `middlewares`; the first is the outermost, None is left out.

    Examples
    --------
    >>> async def answer(call):
    ...     yield "event"
    >>> wrap(answer, None) is answer
    True
    """
    for middleware in reversed(middlewares):
        if middleware is not None:
            handler = middleware(handler)
    return handler


def completion_deltas(completion: Completion) -> list[d.Delta]:
    """Deltas that rebuild a completion: for caches and scripted answers."""
    out: list[d.Delta] = [
        d.Meta(
            response_id=completion.response_id,
            model=completion.model,
            extra=completion.extra,
            message_extra=completion.message.extra,
        )
    ]
    for n, part in enumerate(completion.message.parts):
        out.extend(part_deltas(part, n))
    for n, message in enumerate(completion.alternatives, 1):
        for k, part in enumerate(message.parts):
            out.extend(part_deltas(part, (n, k)))
    out.extend(d.Warn(text) for text in completion.warnings)
    out.append(d.UsageReport(completion.usage))
    if completion.error is not None:
        out.append(d.Fault(completion.error))
    else:
        out.append(d.Finish(completion.finish_reason, completion.native_finish_reason))
    out.append(d.End())
    return out


def part_deltas(part: Any, key: d.PartKey) -> list[d.Delta]:
    """Deltas that rebuild one part under `key`."""
    out: list[d.Delta] = []
    kind = "text"
    if isinstance(part, TextPart):
        out.append(d.Text(part.text, key))
        out.extend(d.Cite(citation, key) for citation in part.citations)
    elif isinstance(part, ThinkingPart):
        kind = "thinking"
        out.append(d.Signature(part.signature, part.opaque, part.redacted, key))
        out.append(d.Thinking(part.text, key))
    elif isinstance(part, ToolCall):
        kind = "tool_call"
        out.append(d.ToolOpen(key, part.id, part.name))
        if part.raw_arguments is not None:
            out.append(d.ToolArgs(part.raw_arguments, key))
        else:
            out.append(d.ToolArgs(json.dumps(part.arguments, ensure_ascii=False), key))
    elif isinstance(part, RefusalPart):
        kind = "refusal"
        out.append(d.Refusal(part.text, key))
    elif isinstance(part, ServerToolPart):
        kind = "server_tool"
        out.append(d.ServerTool(key, part.id, part.name, part.input, part.output, part.payload))
    elif isinstance(part, MediaPart):
        return [d.Media(part, key)]
    else:
        raise TypeError(f"an assistant message cannot hold {type(part).__name__}")
    if part.extra:
        out.append(d.PartExtra(part.extra, key, kind))
    out.append(d.PartEnd(key))
    return out


def fallback(handlers: Sequence[tuple[str, Handler]]) -> Middleware:
    """Ask further models when a call fails before it showed anything.

    Parameters
    ----------
    handlers
        (model name, handler) pairs, tried in order after the wrapped one. A switch shows as a `StreamRetry` event.
    """

    def middleware(first: Handler) -> Handler:
        async def run(call: Call) -> AsyncIterator[StreamEvent]:
            started = False
            chain = [(call.model, first), *handlers]
            for n, (model, handler) in enumerate(chain):
                visible = False
                switch = False
                call.model = model
                async for event in handler(call):
                    if isinstance(event, StreamStart):
                        if started:
                            continue
                        started = True
                    elif isinstance(event, StreamError):
                        wanted = event.stop_reason != "cancelled" and event.error.kind not in ("bad_request",)
                        if wanted and not visible and n + 1 < len(chain):
                            source = event._source
                            yield StreamRetry(source, 0, 0, n + 1, 0.0, event.error)
                            switch = True
                            continue
                    elif not isinstance(event, StreamRetry):
                        visible = True
                    yield event
                if not switch:
                    return

        return run

    return middleware


def request_key(call: Call) -> str:
    """A stable key of what is asked: sha256 of the model and the request's JSON."""
    text = json.dumps([call.model, call.request.model_dump(mode="json")], sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def cache(store: MutableMapping[str, str]) -> Middleware:
    """Answer a request that was answered before from `store` (key to the completion's JSON); keeps successes only.

    A cached answer is streamed like any other; its usage is that of the original call, and ``extra["rein_nb"]["cached"]`` is True.
    """

    def middleware(inner: Handler) -> Handler:
        async def run(call: Call) -> AsyncIterator[StreamEvent]:
            key = request_key(call)
            kept = store.get(key)
            if kept is not None:
                completion = Completion.model_validate_json(kept)
                mark = {**completion.extra, "rein_nb": {**completion.extra.get("rein_nb", {}), "cached": True}}
                completion = completion.model_copy(update={"extra": mark})
                acc = Accumulator(
                    completion.message.origin, finalize=lambda c: c.model_copy(update={"timing": completion.timing})
                )
                for delta in completion_deltas(completion):
                    for event in acc.feed(delta):
                        yield event
                return
            async for event in inner(call):
                if isinstance(event, StreamDone):
                    store[key] = event.completion.model_dump_json()
                yield event

        return run

    return middleware
