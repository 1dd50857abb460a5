"""The events of one model call, in strict order.

One `StreamStart`, then any number of `StreamRetry` (before the first visible delta only), deltas and `PartDone`, then exactly one
`StreamDone` or `StreamError`. Every event has `.partial`: the whole message as of that event, computed only when asked for.
An event holds its source and a position; a kept event's `.partial` never changes afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, TypeAlias

from rein_nb.ir.base import Data
from rein_nb.ir.errors import ErrorInfo
from rein_nb.ir.finish import TurnOutcome, normalize_finish_reason
from rein_nb.ir.messages import Message
from rein_nb.ir.parts import ToolCall
from rein_nb.ir.usage import Usage

if TYPE_CHECKING:
    from rein_nb.ir.completion import Completion
    from rein_nb.ir.parts import (
        MediaPart,
        RefusalPart,
        ServerToolPart,
        TextPart,
        ThinkingPart,
        ToolResult,
    )

    AnyPart: TypeAlias = TextPart | ThinkingPart | ToolCall | ToolResult | MediaPart | RefusalPart | ServerToolPart


class Source(Protocol):
    """What an event's `.partial` is computed from (the accumulator)."""

    def message_at(self, segment: int, count: int) -> Message:
        """The message as of a position."""

    @property
    def recorded(self) -> bool:
        """Whether the answer is played back."""

    def elapsed(self) -> float:
        """Seconds since the request was started."""


class _Event:
    """Base of stream events: a source and a position in it. Slots keep a kept event small."""

    __slots__ = ("_count", "_segment", "_source")
    type: ClassVar[str] = ""
    _source: Source
    _segment: int
    _count: int

    def __init__(self, source: Source, segment: int, count: int) -> None:
        self._source = source
        self._segment = segment
        self._count = count

    @property
    def partial(self) -> Message:
        """The whole message as of this event."""
        return self._source.message_at(self._segment, self._count)

    def _fields(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in type(self).__slots__ if not name.startswith("_")}

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON data: its type and its own fields, without `.partial`."""
        return {"type": self.type} | {
            name: value.model_dump(mode="json") if isinstance(value, Data) else value
            for name, value in self._fields().items()
        }

    def __repr__(self) -> str:
        inner = ", ".join(f"{name}={value!r}" for name, value in self._fields().items())
        return f"{type(self).__name__}({inner})"


class StreamStart(_Event):
    """The call began. Always the first event."""

    __slots__ = ()
    type = "start"


class StreamRetry(_Event):
    """The request will be sent again.

    Attributes
    ----------
    attempt
        Number of the coming attempt; the first retry is 1.
    wait_s
        Seconds until it is sent.
    error
        Why the last attempt failed.
    """

    __slots__ = ("attempt", "error", "wait_s")
    type = "retry"

    def __init__(self, source: Source, segment: int, count: int, attempt: int, wait_s: float, error: ErrorInfo) -> None:
        super().__init__(source, segment, count)
        self.attempt = attempt
        self.wait_s = wait_s
        self.error = error


class _Delta(_Event):
    __slots__ = ("delta", "index")
    index: int
    delta: str

    def __init__(self, source: Source, segment: int, count: int, index: int, delta: str) -> None:
        self._source = source
        self._segment = segment
        self._count = count
        self.index = index
        self.delta = delta

    def _fields(self) -> dict[str, Any]:
        return {"index": self.index, "delta": self.delta}


class TextDelta(_Delta):
    """Visible text was appended to part `index`."""

    __slots__ = ()
    type = "text_delta"


class ThinkingDelta(_Delta):
    """Reasoning text was appended to part `index`."""

    __slots__ = ()
    type = "thinking_delta"


class RefusalDelta(_Delta):
    """Refusal text was appended to part `index`."""

    __slots__ = ()
    type = "refusal_delta"


class ToolCallStart(_Event):
    """A tool call began at part `index`; its arguments follow."""

    __slots__ = ("id", "index", "name")
    type = "tool_call_start"

    def __init__(self, source: Source, segment: int, count: int, index: int, id: str, name: str) -> None:
        super().__init__(source, segment, count)
        self.index = index
        self.id = id
        self.name = name


class ToolCallDelta(_Delta):
    """Argument text was appended to the tool call at part `index`."""

    __slots__ = ()
    type = "tool_call_delta"


class ToolCallDone(_Event):
    """The tool call at part `index` is whole: its arguments were parsed (or found malformed)."""

    __slots__ = ("index", "tool_call")
    type = "tool_call_done"

    def __init__(self, source: Source, segment: int, count: int, index: int, tool_call: ToolCall) -> None:
        super().__init__(source, segment, count)
        self.index = index
        self.tool_call = tool_call


class PartDone(_Event):
    """The part at `index` is whole."""

    __slots__ = ("index", "part")
    type = "part_done"

    def __init__(self, source: Source, segment: int, count: int, index: int, part: AnyPart) -> None:
        super().__init__(source, segment, count)
        self.index = index
        self.part = part


class _Terminal(_Event):
    __slots__ = ("completion",)
    completion: Completion

    def __init__(self, source: Source, segment: int, count: int, completion: Completion) -> None:
        super().__init__(source, segment, count)
        self.completion = completion

    @property
    def partial(self) -> Message:
        """The whole message."""
        return self.completion.message

    @property
    def message(self) -> Message:
        """The whole message."""
        return self.completion.message

    @property
    def usage(self) -> Usage:
        """The usage that was reported."""
        return self.completion.usage

    def _fields(self) -> dict[str, Any]:
        return {"completion": self.completion}


class StreamDone(_Terminal):
    """The call succeeded: the wire's own terminal marker was seen."""

    __slots__ = ()
    type = "done"


class StreamError(_Terminal):
    """The call failed or was cancelled; `completion` keeps all that was received and `error` says why."""

    __slots__ = ()
    type = "error"

    @property
    def error(self) -> ErrorInfo:
        """Why the call ended."""
        error = self.completion.error
        assert error is not None
        return error

    @property
    def stop_reason(self) -> str:
        """``"cancelled"`` or ``"error"``."""
        return self.completion.finish_reason


StreamEvent: TypeAlias = (
    StreamStart | StreamRetry | TextDelta | ThinkingDelta | RefusalDelta | ToolCallStart | ToolCallDelta | ToolCallDone
    | PartDone | StreamDone | StreamError
)  # fmt: skip
"""Any of the events above; their order is this module's first paragraph."""


@dataclass(slots=True)
class StreamChunk:
    """The flat view of a stream, for people who only want to print.

    Attributes
    ----------
    type
        ``text`` and ``thinking`` carry `text`; ``tool_calls`` the turn's complete calls; ``done`` ends the stream, with usage,
        finish reason and the whole completion, also when the call failed.
    text, tool_calls, usage, finish_reason, completion
        As `type` says; None, or empty, in other chunks.
    """

    type: Literal["text", "thinking", "tool_calls", "done"]
    text: str = ""
    tool_calls: list[ToolCall] | None = None
    usage: Usage | None = None
    finish_reason: str | None = None
    completion: Completion | None = None

    @property
    def content(self) -> str:
        """Alias of `text`, for visible text only."""
        return self.text if self.type == "text" else ""

    @property
    def response(self) -> Completion | None:
        """Alias of `completion`."""
        return self.completion

    @property
    def outcome(self) -> TurnOutcome | None:
        """The turn's outcome on the last chunk; None before."""
        if self.finish_reason is None:
            return None
        return normalize_finish_reason(self.finish_reason, bool(self.tool_calls))
