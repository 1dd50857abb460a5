"""The accumulator: an explicit state machine from deltas to events and one completion.

States
------
::

    new --(anything)--> open --(end, after Finish)--> done
                         |---(end, without Finish)--> failed (stream_cut)
                         |---(Fault, fail)---------> failed
                         '---(cancel)--------------> failed (cancelled)

`done` and `failed` are final: whatever is fed afterwards is ignored, so there is exactly one terminal event.

How `.partial` costs nothing until asked for
--------------------------------------------
Each part is a slot whose `items` list only grows: text pieces, and the deltas that set something else. A run of
consecutive items of one slot is a *segment*: ``(slot, first item)`` is logged once a run, not once a delta. A position
is (number of segments, items in the last slot), so an event is two integers and a reference. The message as
of a position is rebuilt from the slots' prefixes, which nothing can change later.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any

from rein_nb.ir import deltas as d
from rein_nb.ir.base import Extra, clean_text, merge_extra
from rein_nb.ir.clock import steady
from rein_nb.ir.completion import Completion, Timing
from rein_nb.ir.errors import ErrorInfo
from rein_nb.ir.events import (
    PartDone,
    RefusalDelta,
    StreamDone,
    StreamError,
    StreamEvent,
    StreamRetry,
    StreamStart,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
)
from rein_nb.ir.finish import FinishReason
from rein_nb.ir.messages import Message, Origin
from rein_nb.ir.parts import ToolCall
from rein_nb.ir.usage import Usage
from rein_nb.stream.parts import BUILDERS

Events = Sequence[StreamEvent]
_NONE: Events = ()


class _Slot:
    """One part while it grows."""

    __slots__ = ("built", "closed", "hidden", "index", "items", "key", "kind", "opened")

    def __init__(self, kind: str, key: Hashable, index: int, hidden: bool) -> None:
        self.kind = kind
        self.key = key
        self.index = index
        self.hidden = hidden
        self.items: list[Any] = []
        self.opened = False
        self.closed = False
        self.built: tuple[int, Any] = (-1, None)


class _Recorded:
    """The time of an answer that is played back: `reading` is set by the answer itself."""

    __slots__ = ("answered", "base", "live", "pace", "reading", "retried")

    def __init__(self, live: Callable[[], float]) -> None:
        self.live = live
        self.base = 0.0
        self.reading = 0.0
        self.pace = 0.0
        self.answered = False
        self.retried: float | None = None

    def read(self) -> float:
        """The clock."""
        return self.reading


class Accumulator:
    """Turns the deltas of one model call into events and a `Completion`.

    Parameters
    ----------
    origin
        Who is answering; goes onto the message. `Meta` deltas fill in model and response id.
    clock
        Seconds, monotonic; for timing.
    started
        The clock's reading when the request was started; now by default.
    started_at
        Unix time of the start, seconds; kept in the timing.
    finalize
        Applied to the completion before the terminal event carries it (to add the cost, say).

    Examples
    --------
    >>> acc = Accumulator()
    >>> [type(e).__name__ for e in acc.feed(d.Text("hi"))]
    ['StreamStart', 'TextDelta']
    >>> acc.feed(d.Finish("stop", "end_turn"))
    ()
    >>> acc.end()[-1].completion.text
    'hi'
    """

    def __init__(
        self,
        origin: Origin | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        started: float | None = None,
        started_at: float | None = None,
        finalize: Callable[[Completion], Completion] | None = None,
    ) -> None:
        self._finalize = finalize
        self._origin = origin or Origin()
        self._clock = clock
        self._started = clock() if started is None else started
        self._started_at = started_at
        self._state = "new"
        self._slots: dict[Hashable, _Slot] = {}
        self._order: list[_Slot] = []
        self._segments: list[tuple[_Slot, int]] = []
        self._current: _Slot | None = None
        self._shown = 0
        self._usage: Usage | None = None
        self._finish: d.Finish | None = None
        self._fault: ErrorInfo | None = None
        self._extra: Extra = {}
        self._message_extra: Extra = {}
        self._warnings: list[str] = []
        self._retries = 0
        self._first_byte: float | None = None
        self._first_text: float | None = None
        self._times = array("d")
        self._recorded: _Recorded | None = None
        self._cache: tuple[tuple[int, int], Message] | None = None
        self._completion: Completion | None = None

    # -- what the outside sees --------------------------------------------------------------------

    @property
    def finished(self) -> bool:
        """Whether the terminal event was emitted."""
        return self._completion is not None

    @property
    def completion(self) -> Completion:
        """The final completion after the terminal event; before it, a snapshot of what there is."""
        if self._completion is not None:
            return self._completion
        return self._build("other", None, None)

    @property
    def visible(self) -> bool:
        """Whether any content was received; after that, a retry would repeat what was shown."""
        return bool(self._order)

    @property
    def message(self) -> Message:
        """The message so far."""
        return self.message_at(*self._position())

    @property
    def fault(self) -> ErrorInfo | None:
        """A fault that the provider reported inside the answer."""
        return self._fault

    @property
    def closing(self) -> bool:
        """Whether the answer said why it ended, so that the end of the source is a success."""
        return self._finish is not None

    @property
    def pace(self) -> float:
        """Real seconds in which a second of this call passes: 1, or what an answer that is played back says."""
        return 1.0 if self._recorded is None else self._recorded.pace

    @property
    def recorded(self) -> bool:
        """Whether the answer is played back, so that nothing about the call may depend on the machine."""
        return self._recorded is not None

    def elapsed(self) -> float:
        """Seconds since the request was started."""
        return self._clock() - self._started

    def restart_clock(self) -> None:
        """Measure times from now on: what came before was preparation, not the provider's work."""
        self._started = self._clock()
        self._started_at = time.time() if self._started_at is not None else None

    def first_byte(self) -> None:
        """Note that the answer's first byte arrived."""
        recorded = self._recorded
        if recorded is not None and recorded.retried is not None:
            # This attempt may be a real one: the machine's clock goes on from the recorded time. A recorded one sets it itself.
            self._clock, self._started = recorded.live, recorded.retried - recorded.base
            recorded.retried = None
        if self._first_byte is None:
            self._first_byte = self._clock() - self._started

    def start(self) -> Events:
        """Emit `StreamStart`, once."""
        if self._state != "new":
            return _NONE
        self._state = "open"
        return (StreamStart(self, 0, 0),)

    def retry(self, attempt: int, wait_s: float, error: ErrorInfo) -> Events:
        """Emit `StreamRetry`: the request failed before any content and will be sent again."""
        if self._completion is not None:
            return _NONE
        head = self.start()
        self._retries = max(self._retries, attempt)
        if self._usage is not None and (self._usage.raw or self._usage.total_tokens is not None):
            # What a failed attempt reported is not this response's usage, and is not lost either.
            spent = self._extra.get("rein_nb", {}).get("failed_attempts", [])
            failed = [*spent, self._usage.model_dump(mode="json", exclude_defaults=True)]
            self._extra = merge_extra(self._extra, {"rein_nb": {"failed_attempts": failed}})
            self._usage = None
        self._finish = None
        self._fault = None
        if self._recorded is not None:
            self._recorded.base = self._recorded.reading = self._recorded.reading + wait_s
            self._recorded.retried = self._recorded.live()
        return (*head, StreamRetry(self, 0, 0, attempt, wait_s, error))

    def feed(self, delta: d.Delta) -> Events:
        """Apply one delta; returns the events it gives, in order. Ignored after the terminal event."""
        if self._state != "open":
            if self._state != "new":
                return _NONE
            head: Events = self.start()
            return (*head, *self.feed(delta))
        kind = type(delta)
        if kind is d.Text:
            # The commonest delta by far, spelled out: this is `_append` without its generality.
            text = delta.text  # type: ignore[union-attr]
            slot = self._current
            if text and slot is not None and slot.kind == "text" and slot.key == delta.part and not slot.hidden:  # type: ignore[union-attr]
                items = slot.items
                items.append(text)
                self._times.append(self._clock())
                return (TextDelta(self, len(self._segments), len(items), slot.index, text),)
            return self._append("text", TextDelta, delta.part, text)  # type: ignore[union-attr]
        if kind is d.Thinking:
            return self._append("thinking", ThinkingDelta, delta.part, delta.text)  # type: ignore[union-attr]
        if kind is d.ToolArgs:
            return self._tool_args(delta)  # type: ignore[arg-type]
        handler = _HANDLERS.get(kind)
        if handler is None:
            raise TypeError(f"not a delta: {kind.__name__}")
        return handler(self, delta)

    def end(self) -> Events:
        """The source ended. Success when a `Finish` was seen, else the stream was cut. Returns the last events."""
        if self._completion is not None:
            return _NONE
        head = self.start()
        if self._fault is not None:
            return (*head, self._terminal("error", self._finish.native if self._finish else None, self._fault))
        if self._finish is None:
            cut = ErrorInfo.make(
                "stream_cut", "the stream ended without its end marker",
                provider=self._origin.provider, model=self._origin.model,
            )  # fmt: skip
            return (*head, self._terminal("error", None, cut))
        closing: list[StreamEvent] = [*head]
        for slot in list(self._order):
            if not slot.closed:
                closing.extend(self._close(slot))
        closing.append(self._terminal(self._success_reason(), self._finish.native, None))
        return closing

    def fail(self, error: ErrorInfo) -> Events:
        """The call failed. Everything received so far is kept."""
        if self._completion is not None:
            return _NONE
        return (*self.start(), self._terminal("error", self._finish.native if self._finish else None, error))

    def cancel(self, reason: str | None = None) -> Events:
        """The caller cancelled. Everything received so far is kept; usage is marked incomplete."""
        if self._completion is not None:
            return _NONE
        error = ErrorInfo.make("cancelled", reason or "cancelled by the caller", provider=self._origin.provider)
        return (*self.start(), self._terminal("cancelled", self._finish.native if self._finish else None, error))

    # -- deltas -----------------------------------------------------------------------------------

    def _elapsed(self, delta: d.Elapsed) -> Events:
        recorded = self._recorded
        if recorded is None:
            recorded = self._recorded = _Recorded(self._clock)
            self._started_at = delta.started_at
        if not recorded.answered:
            recorded.answered = delta.received
            self._first_byte = recorded.base + delta.seconds if delta.received else None
        recorded.reading = recorded.base + delta.seconds
        recorded.pace = delta.pace
        self._clock, self._started = recorded.read, 0.0
        return _NONE

    def _slot(self, key: Hashable, kind: str) -> _Slot:
        slot = self._slots.get(key)
        if slot is None:
            hidden = type(key) is tuple and type(key[0]) is int and key[0] > 0
            slot = _Slot(kind, key, -1 if hidden else self._shown, hidden)
            if not hidden:
                self._shown += 1
            self._slots[key] = slot
            self._order.append(slot)
        elif slot.kind != kind:
            # One key, two kinds: the emitter's slip must not lose content, so the second kind gets its own part.
            return self._slot((key, kind) if type(key) is not tuple else (*key, kind), kind)
        return slot

    def _put(self, slot: _Slot, item: Any) -> None:
        items = slot.items
        if self._current is not slot:
            self._current = slot
            self._segments.append((slot, len(items)))
        items.append(item)

    def _append(self, kind: str, event: type[Any], key: Hashable, text: str) -> Events:
        if not text:
            return _NONE
        slot = self._slots.get(key)
        if slot is None or slot.kind != kind:
            slot = self._slot(key, kind)
        items = slot.items
        if self._current is not slot:
            self._current = slot
            self._segments.append((slot, len(items)))
        items.append(text)
        if slot.hidden:
            return _NONE
        now = self._clock()
        self._times.append(now)
        if kind == "text" and self._first_text is None:
            self._first_text = now
        return (event(self, len(self._segments), len(items), slot.index, text),)

    def _tool_open(self, delta: d.ToolOpen) -> Events:
        slot = self._slot(delta.part, "tool_call")
        self._put(slot, delta)
        if slot.hidden:
            return _NONE
        if slot.opened:
            return _NONE
        name = delta.name or self._known(slot, "name")
        if not name:
            return _NONE
        slot.opened = True
        self._times.append(self._clock())
        head = ToolCallStart(self, *self._position(), slot.index, delta.id or self._known(slot, "id"), name)
        waiting = "".join(item for item in slot.items if type(item) is str)
        if not waiting:
            return (head,)
        return head, ToolCallDelta(self, *self._position(), slot.index, waiting)

    @staticmethod
    def _known(slot: _Slot, field: str) -> str:
        for item in slot.items:
            if type(item) is d.ToolOpen and getattr(item, field):
                return str(getattr(item, field))
        return ""

    def _tool_args(self, delta: d.ToolArgs) -> Events:
        slot = self._slots.get(delta.part)
        if slot is not None and slot.kind == "server_tool":
            if delta.text:
                self._put(slot, delta.text)
            return _NONE
        if slot is None:
            slot = self._slot(delta.part, "tool_call")
        if not slot.opened:
            if delta.text:
                self._put(slot, delta.text)
            return _NONE
        return self._append("tool_call", ToolCallDelta, delta.part, delta.text)

    def _tool_args_object(self, delta: d.ToolArgsObject) -> Events:
        slot = self._slot(delta.part, "tool_call")
        self._put(slot, delta)
        if slot.hidden or not slot.opened or not delta.arguments:
            return _NONE
        self._times.append(self._clock())
        call = self._part(slot, len(slot.items))
        text = call.arguments_text if isinstance(call, ToolCall) else ""
        return (ToolCallDelta(self, *self._position(), slot.index, text),)

    def _refusal(self, delta: d.Refusal) -> Events:
        return self._append("refusal", RefusalDelta, delta.part, delta.text)

    def _signature(self, delta: d.Signature) -> Events:
        self._put(self._slot(delta.part, "thinking"), delta)
        return _NONE

    def _cite(self, delta: d.Cite) -> Events:
        self._put(self._slot(delta.part, "text"), delta)
        return _NONE

    def _media(self, delta: d.Media) -> Events:
        slot = self._slot(delta.part, "media")
        self._put(slot, delta)
        self._times.append(self._clock())
        return self._close(slot)

    def _server_tool(self, delta: d.ServerTool) -> Events:
        self._put(self._slot(delta.part, "server_tool"), delta)
        return _NONE

    def _part_extra(self, delta: d.PartExtra) -> Events:
        slot = self._slots.get(delta.part)
        self._put(slot if slot is not None else self._slot(delta.part, delta.kind), delta)
        return _NONE

    def _settle(self, delta: d.Settle) -> Events:
        slot = self._slots.get(delta.part)
        if slot is None:
            return self._append("text", TextDelta, delta.part, delta.text)
        if any(type(item) is d.ToolArgsObject for item in slot.items):
            return _NONE
        have = self._text(slot, len(slot.items))
        whole = clean_text(delta.text)
        if have == whole:
            return _NONE
        if whole.startswith(have):
            event = {
                "text": TextDelta, "thinking": ThinkingDelta, "refusal": RefusalDelta, "tool_call": ToolCallDelta,
            }.get(slot.kind)  # fmt: skip
            if event is not None and (slot.kind != "tool_call" or slot.opened):
                return self._append(slot.kind, event, slot.key, whole[len(have) :])
        self._put(slot, delta)
        return _NONE

    def _part_end(self, delta: d.PartEnd) -> Events:
        slot = self._slots.get(delta.part)
        return self._close(slot) if slot is not None and not slot.closed else _NONE

    def _void(self, delta: d.Void) -> Events:
        slot = self._slots.get(delta.part)
        if slot is not None:
            self._put(slot, delta)
            slot.closed = True
        return _NONE

    def _close(self, slot: _Slot) -> Events:
        slot.closed = True
        if slot.hidden:
            return _NONE
        part = self._part(slot, len(slot.items))
        if part is None:
            return _NONE
        position = self._position()
        done = PartDone(self, *position, slot.index, part)
        if isinstance(part, ToolCall):
            head: list[StreamEvent] = []
            if not slot.opened:
                slot.opened = True
                head.append(ToolCallStart(self, *position, slot.index, part.id, part.name))
            return (*head, ToolCallDone(self, *position, slot.index, part), done)
        return (done,)

    def _usage_report(self, delta: d.UsageReport) -> Events:
        self._usage = delta.usage if self._usage is None else self._usage.merged(delta.usage)
        return _NONE

    def _finished(self, delta: d.Finish) -> Events:
        self._finish = delta
        return _NONE

    def _end(self, _: d.End) -> Events:
        return self.end()

    def _faulted(self, delta: d.Fault) -> Events:
        self._fault = self._fault or delta.error
        # Before any content the fault is only noted: whoever drives the call may still retry it, and `end` makes it final.
        return self.end() if self._order else _NONE

    def _meta(self, delta: d.Meta) -> Events:
        update = {
            name: value
            for name, value in (("model", delta.model), ("response_id", delta.response_id))
            if value is not None
        }
        if update:
            self._origin = self._origin.model_copy(update=update)
            self._cache = None
        if delta.extra:
            self._extra = merge_extra(self._extra, delta.extra)
        if delta.message_extra:
            self._message_extra = merge_extra(self._message_extra, delta.message_extra)
            self._cache = None
        return _NONE

    def _warn(self, delta: d.Warn) -> Events:
        if delta.message not in self._warnings:
            self._warnings.append(delta.message)
        return _NONE

    # -- building ---------------------------------------------------------------------------------

    def _position(self) -> tuple[int, int]:
        return len(self._segments), len(self._current.items) if self._current is not None else 0

    def message_at(self, segment: int, count: int) -> Message:
        """The message as of a position: `segment` segments, `count` items in the last one's slot."""
        cache = self._cache
        if cache is not None and cache[0] == (segment, count):
            return cache[1]
        counts: dict[_Slot, int] = {}
        for slot, _ in self._segments[:segment]:
            counts[slot] = len(slot.items)
        for slot, start in reversed(self._segments[segment:]):
            if slot in counts:
                counts[slot] = start
        if segment:
            counts[self._segments[segment - 1][0]] = count
        message = self._message([(slot, counts[slot]) for slot in self._order if slot in counts and not slot.hidden])
        self._cache = ((segment, count), message)
        return message

    def _message(self, prefixes: list[tuple[_Slot, int]]) -> Message:
        parts = [part for slot, n in prefixes if (part := self._part(slot, n)) is not None]
        return Message.model_construct(
            role="assistant", parts=parts, origin=self._origin, extra=dict(self._message_extra)
        )

    @staticmethod
    def _text(slot: _Slot, n: int) -> str:
        pieces: list[str] = []
        for item in slot.items[:n]:
            if type(item) is str:
                pieces.append(item)
            elif type(item) is d.Settle:
                pieces = [item.text]
        return clean_text("".join(pieces))

    def _part(self, slot: _Slot, n: int) -> Any:
        if slot.built[0] == n:
            return slot.built[1]
        part = self._new_part(slot, n)
        if slot.closed:
            slot.built = (n, part)  # said when the part is done, and in the message
        return part

    def _new_part(self, slot: _Slot, n: int) -> Any:
        text = self._text(slot, n)
        others = [item for item in slot.items[:n] if type(item) is not str and type(item) is not d.Settle]
        extra: Extra = {}
        for item in others:
            if type(item) is d.PartExtra:
                extra = merge_extra(extra, item.extra)
            elif type(item) is d.Void:
                return None
        return BUILDERS[slot.kind](text, others, extra)

    def _success_reason(self) -> FinishReason:
        assert self._finish is not None
        reason = self._finish.reason
        calls = any(
            slot.kind == "tool_call" and not slot.hidden and not any(type(item) is d.Void for item in slot.items)
            for slot in self._order
        )
        if reason in ("stop", "other") and calls:
            return "tool_calls" if reason == "stop" else reason
        if reason == "tool_calls" and not calls:
            return "stop"
        return reason

    def _terminal(self, reason: FinishReason, native: str | None, error: ErrorInfo | None) -> StreamEvent:
        completion = self._build(reason, native, error)
        self._completion = self._finalize(completion) if self._finalize is not None else completion
        self._finalize = None  # a kept event must not keep alive what the callback is bound to
        self._state = "failed" if error is not None else "done"
        event = StreamDone if error is None else StreamError
        return event(self, *self._position(), self._completion)

    def _build(self, reason: FinishReason, native: str | None, error: ErrorInfo | None) -> Completion:
        slots = [(slot, len(slot.items)) for slot in self._order]
        message = self._message([pair for pair in slots if not pair[0].hidden])
        further: dict[int, list[tuple[_Slot, int]]] = {}
        for key, slot in self._slots.items():
            if slot.hidden:
                further.setdefault(key[0], []).append((slot, len(slot.items)))  # type: ignore[index]
        usage = self._usage or Usage()
        if error is not None and usage.complete:
            usage = usage.model_copy(update={"complete": False})
        return Completion.model_construct(
            message=message,
            usage=usage,
            finish_reason=reason,
            native_finish_reason=native,
            error=error,
            timing=self._timing(),
            model=self._origin.model,
            provider=self._origin.provider,
            response_id=self._origin.response_id,
            alternatives=[self._message(further[n]) for n in sorted(further)],
            warnings=list(self._warnings),
            extra=dict(self._extra),
        )

    def _timing(self) -> Timing:
        if self._recorded is None and steady():
            return Timing(retries=self._retries)
        times = self._times
        gaps = sorted(b - a for a, b in pairwise(times))
        return Timing(
            started_at=self._started_at,
            first_byte_s=self._first_byte,
            first_token_s=times[0] - self._started if times else None,
            first_text_s=None if self._first_text is None else self._first_text - self._started,
            total_s=self._clock() - self._started,
            inter_token_p50_s=gaps[len(gaps) // 2] if gaps else None,
            inter_token_p95_s=gaps[min(len(gaps) - 1, int(len(gaps) * 0.95))] if gaps else None,
            retries=self._retries,
        )


_HANDLERS: dict[type[Any], Callable[[Accumulator, Any], Events]] = {
    d.ToolOpen: Accumulator._tool_open,
    d.ToolArgsObject: Accumulator._tool_args_object,
    d.Refusal: Accumulator._refusal,
    d.Signature: Accumulator._signature,
    d.Cite: Accumulator._cite,
    d.Media: Accumulator._media,
    d.ServerTool: Accumulator._server_tool,
    d.PartExtra: Accumulator._part_extra,
    d.Settle: Accumulator._settle,
    d.PartEnd: Accumulator._part_end,
    d.Void: Accumulator._void,
    d.UsageReport: Accumulator._usage_report,
    d.Finish: Accumulator._finished,
    d.End: Accumulator._end,
    d.Fault: Accumulator._faulted,
    d.Meta: Accumulator._meta,
    d.Warn: Accumulator._warn,
    d.Elapsed: Accumulator._elapsed,
}
