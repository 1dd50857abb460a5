"""A provider that says what you told it to, well or badly: for tests without a network."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Literal, TypeAlias, get_args

from rein_nb.ir import Completion, ErrorInfo, ProviderError, Request, ToolCall, Usage
from rein_nb.ir import deltas as d
from rein_nb.ir.errors import ErrorKind
from rein_nb.llm import LLM
from rein_nb.middleware import completion_deltas, part_deltas
from rein_nb.providers import Config

Fault: TypeAlias = Literal[
    "authentication", "permission_denied", "not_found", "rate_limited", "context_overflow", "content_filtered", "bad_request",
    "overloaded", "server_error", "connection_failed", "timed_out", "malformed_response",
    "stream_cut", "mid_stream", "length", "malformed_call", "hang",
]  # fmt: skip
"""How a scripted provider misbehaves.

An error kind is raised before anything is shown. ``stream_cut`` ends the stream half-way without an end marker, ``mid_stream`` reports a server
error half-way, ``length`` cuts the answer as a token limit does, ``malformed_call`` breaks off the arguments of each tool call,
``hang`` falls silent half-way until cancelled.
"""

_STATUS: dict[str, int] = {
    "authentication": 401, "permission_denied": 403, "not_found": 404, "rate_limited": 429, "context_overflow": 400,
    "content_filtered": 400, "bad_request": 400, "overloaded": 529, "server_error": 500,
}  # fmt: skip


class ScriptedProvider:
    """Answers each request with the next scripted turn, and keeps the requests it was sent.

    Parameters
    ----------
    turns
        Each a string, a list of text pieces, parts (`ToolCall`, `ThinkingPart`...) and `Usage`, a `Completion`, an exception to raise, or a
        function of the request that returns one of these.
    fault
        How to misbehave; see `Fault`.
    fault_times
        How many requests misbehave before the script is followed; None for all.
    delay_s
        Seconds between two pieces.
    repeat
        Start the script again when it is used up.

    Attributes
    ----------
    requests
        What was asked, in order.

    Examples
    --------
    >>> ScriptedProvider.llm(["Hel", "lo"]).chat("hi").text
    'Hello'
    """

    name = "scripted"

    def __init__(
        self,
        *turns: Any,
        fault: Fault | None = None,
        fault_times: int | None = None,
        delay_s: float = 0.0,
        repeat: bool = False,
    ) -> None:
        known = get_args(Fault)
        if fault is not None and fault not in known:
            raise ValueError(f"unknown fault {fault!r}; known: {', '.join(known)}")
        self.turns = list(turns)
        self.fault = fault
        self.fault_times = fault_times
        self.delay_s = delay_s
        self.repeat = repeat
        self.requests: list[Request] = []
        self._next = 0
        self._faulted = 0

    @classmethod
    def llm(
        cls,
        *turns: Any,
        fault: Fault | None = None,
        fault_times: int | None = None,
        delay_s: float = 0.0,
        repeat: bool = False,
        model: str = "scripted",
        max_retries: int = 0,
        **config: Any,
    ) -> LLM:
        """An `LLM` on a scripted provider. ``llm.backend.requests`` holds what was asked.

        `repeat` starts the script again when it is used up. Further keywords go to `Config`.
        """
        provider = cls(*turns, fault=fault, fault_times=fault_times, delay_s=delay_s, repeat=repeat)
        return LLM(Config(provider="scripted", model=model, max_retries=max_retries, **config), provider=provider)

    async def stream(self, request: Request) -> AsyncIterator[d.Delta]:
        """Answer with the next turn."""
        self.requests.append(request)
        fault = self._take_fault()
        if fault is not None and fault in get_args(ErrorKind) and fault != "stream_cut":
            raise self._error(fault)
        script = self._deltas(self._turn(request), request)
        cut = len(script) // 2 if fault in ("stream_cut", "mid_stream", "hang", "length") else len(script)
        for n, delta in enumerate(script):
            if n == cut:
                break
            if fault == "malformed_call" and isinstance(delta, d.ToolArgs):
                delta = d.ToolArgs(delta.text[: len(delta.text) // 2] or "{", delta.part)
            if isinstance(delta, _Raise):
                raise delta.error
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            yield delta
        if fault == "mid_stream":
            yield d.Fault(self._error("server_error").info)
        elif fault == "length":
            yield d.Finish("length", "length")
        elif fault == "hang":
            await asyncio.Event().wait()

    def _take_fault(self) -> str | None:
        if self.fault is None or (self.fault_times is not None and self._faulted >= self.fault_times):
            return None
        self._faulted += 1
        return self.fault

    def _turn(self, request: Request) -> Any:
        if self._next >= len(self.turns):
            if not self.repeat or not self.turns:
                raise ProviderError(
                    ErrorInfo.make("other", f"the script has {len(self.turns)} turns and was asked for one more")
                )
            self._next = 0
        turn = self.turns[self._next]
        self._next += 1
        return turn(request) if callable(turn) and not isinstance(turn, type) else turn

    def _error(self, kind: str) -> ProviderError:
        info = ErrorInfo.make(
            kind,  # type: ignore[arg-type]
            f"scripted fault: {kind}",
            status=_STATUS.get(kind),
            retry_after_s=0.01 if kind == "rate_limited" else None,
            provider=self.name,
        )
        return info.to_exception()

    def _deltas(self, turn: Any, request: Request) -> list[Any]:
        if isinstance(turn, Completion):
            return [*completion_deltas(turn)]
        items = [turn] if not isinstance(turn, list | tuple) else list(turn)
        out: list[Any] = [d.Meta(response_id=f"scripted-{len(self.requests)}", model=request.options.model)]
        usage = Usage()
        pieces = 0
        calls = False
        key = 0
        last_was_text = False
        for item in items:
            if isinstance(item, str):
                if not last_was_text:
                    key += 1
                out.append(d.Text(item, key))
                pieces += 1
                last_was_text = True
                continue
            last_was_text = False
            if isinstance(item, Usage):
                usage = usage.merged(item)
            elif isinstance(item, BaseException):
                out.append(_Raise(item))
            elif isinstance(item, ToolCall):
                key += 1
                calls = True
                pieces += 1
                out.extend(_call_deltas(item, key))
            else:
                key += 1
                pieces += 1
                out.extend(part_deltas(item, key))
        counted = Usage(input_tokens=sum(len(m.text.split()) for m in request.messages), output_tokens=pieces)
        out.append(d.UsageReport(counted.merged(usage)))
        out.append(d.Finish("tool_calls" if calls else "stop", "tool_calls" if calls else "stop"))
        out.append(d.End())
        return out


class _Raise:
    """A scripted exception at its place in a turn."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


def _call_deltas(call: ToolCall, key: int) -> Sequence[d.Delta]:
    text = call.raw_arguments if call.raw_arguments is not None else json.dumps(call.arguments, ensure_ascii=False)
    half = len(text) // 2
    out: list[d.Delta] = [
        d.ToolOpen(key, call.id, call.name),
        d.ToolArgs(text[:half], key),
        d.ToolArgs(text[half:], key),
    ]
    if call.extra:
        out.append(d.PartExtra(call.extra, key, "tool_call"))
    if call.error is None:
        out.append(d.PartEnd(key))
    return out


Turn: TypeAlias = str | list[Any] | Completion | BaseException | Callable[[Request], Any]
