"""What an agent run tells its listeners, in order: view, store and frames only listen.

``AgentStart (TurnStart (ModelCallStart [Retry] MessageStart MessageUpdate* ModelCallEnd MessageEnd)* (ApprovalRequested | ToolExecutionStart ToolExecutionUpdate*
ToolExecutionEnd)* TurnEnd)* AgentEnd``. Every run ends with exactly one `AgentEnd`, whatever happens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from rein_nb.ir import Completion, ErrorInfo, Message, StreamEvent, ToolCall, ToolResult
from rein_nb.ir.base import Data

if TYPE_CHECKING:
    from rein_nb.agent.result import AgentResult


def _plain(value: Any) -> Any:
    if isinstance(value, Data):
        return value.model_dump(mode="json")
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


@dataclass(slots=True, kw_only=True)
class Event:
    """Base of agent events.

    Attributes
    ----------
    run_id
        The run this belongs to.
    seq
        Position in the run, from 0, without gaps.
    time
        Unix time, seconds.
    turn
        Number of the turn, from 1; 0 outside a turn.
    """

    type: ClassVar[str] = ""
    run_id: str = ""
    seq: int = 0
    time: float = 0.0
    turn: int = 0

    def to_dict(self) -> dict[str, Any]:
        """The event as JSON data."""
        out: dict[str, Any] = {"type": self.type}
        for f in fields(self):
            if not f.metadata.get("private"):
                out[f.name] = _plain(getattr(self, f.name))
        return out


@dataclass(slots=True, kw_only=True)
class AgentStart(Event):
    """The run began. `messages` are the new messages that started it.

    Attributes
    ----------
    model, provider
        Who is asked.
    system
        The system prompt.
    tools
        Names of the tools.
    history
        The transcript before `messages`; not part of the event's data.
    """

    type: ClassVar[str] = "agent_start"
    model: str = ""
    provider: str = ""
    system: str | None = None
    messages: list[Message] = field(default_factory=list)
    tools: list[str] = field(default_factory=list)
    history: Sequence[Message] = field(default=(), repr=False, compare=False, metadata={"private": True})


@dataclass(slots=True, kw_only=True)
class TurnStart(Event):
    """A model call is about to be made. `model` may differ from the run's after a fallback."""

    type: ClassVar[str] = "turn_start"
    model: str = ""


@dataclass(slots=True, kw_only=True)
class ModelCallStart(Event):
    """A model is asked: for the turn's answer, or for a summary of older messages. What it is sent is not in `to_dict`.

    Attributes
    ----------
    model, provider
        Who is asked.
    purpose
        ``answer`` or ``summary``.
    messages, options
        What is sent, as hooks left it.
    """

    type: ClassVar[str] = "model_call_start"
    model: str
    provider: str = ""
    purpose: Literal["answer", "summary"] = "answer"
    messages: list[Message] = field(default_factory=list, repr=False, metadata={"private": True})
    options: dict[str, Any] = field(default_factory=dict, repr=False, metadata={"private": True})


@dataclass(slots=True, kw_only=True)
class ModelCallEnd(Event):
    """The model answered, or failed. Calls of a turn are never open at the same time. The completion is in `MessageEnd` and `TurnEnd`, and not in `to_dict`.

    Attributes
    ----------
    purpose
        As of its start.
    completion
        What came of it; None when it ended in an exception.
    """

    type: ClassVar[str] = "model_call_end"
    purpose: Literal["answer", "summary"] = "answer"
    completion: Completion | None = field(default=None, repr=False, metadata={"private": True})


@dataclass(slots=True, kw_only=True)
class MessageStart(Event):
    """A message begins. For user and tool messages it is already whole."""

    type: ClassVar[str] = "message_start"
    message: Message


@dataclass(slots=True, kw_only=True)
class MessageUpdate(Event):
    """The assistant message grew: `event` says how; ``event.partial`` is the whole of it."""

    type: ClassVar[str] = "message_update"
    event: StreamEvent


@dataclass(slots=True, kw_only=True)
class MessageEnd(Event):
    """A message is whole. `completion` is set for assistant messages."""

    type: ClassVar[str] = "message_end"
    message: Message
    completion: Completion | None = None


@dataclass(slots=True, kw_only=True)
class Retry(Event):
    """The model call failed before it showed anything, and will be sent again.

    Attributes
    ----------
    attempt
        Number of the next request, from 1 for the first retry.
    wait_s
        Seconds until then.
    error
        What went wrong.
    """

    type: ClassVar[str] = "retry"
    attempt: int = 0
    wait_s: float = 0.0
    error: ErrorInfo | None = None


@dataclass(slots=True, kw_only=True)
class ApprovalRequested(Event):
    """A tool call waits for a decision. `decide` may be called from any thread; only the first decision counts.

    Attributes
    ----------
    call
        What would be run.
    reason
        Why it is asked about.
    decide
        Called with ``"allow"``, ``"deny"`` or ``"always"``, and a reason that the model reads.
    begin
        The loop's own: has the time run after which it is denied. A sub-agent's question waits until it is put.
    asked_by
        Where a sub-agent asks: the id of this run's own call that is the sub-agent. None where `call` is this run's.
    """

    type: ClassVar[str] = "approval_requested"
    call: ToolCall
    reason: str | None = None
    asked_by: str | None = None
    decide: Callable[[Literal["allow", "deny", "always"], str | None], None] | None = field(
        default=None, repr=False, metadata={"private": True}
    )
    begin: Callable[[], None] | None = field(default=None, repr=False, metadata={"private": True})


@dataclass(slots=True, kw_only=True)
class ToolExecutionStart(Event):
    """A tool begins to run, with the arguments as they will be used.

    Attributes
    ----------
    call
        What is run, after hooks.
    """

    type: ClassVar[str] = "tool_execution_start"
    call: ToolCall


@dataclass(slots=True, kw_only=True)
class ToolExecutionUpdate(Event):
    """A running tool reported progress: `fraction` in 0..1 when it is known.

    Attributes
    ----------
    call_id
        Of which call.
    message
        In words.
    data
        For programs.
    """

    type: ClassVar[str] = "tool_execution_update"
    call_id: str
    message: str = ""
    fraction: float | None = None
    data: Any = None


@dataclass(slots=True, kw_only=True)
class ToolExecutionEnd(Event):
    """A tool call has its result. `duration_s` is None when the tool never started.

    `value` is the Python object that the tool returned, untouched; it stays in this process and is no part of `to_dict`.
    """

    type: ClassVar[str] = "tool_execution_end"
    call: ToolCall
    result: ToolResult
    duration_s: float | None = None
    value: Any = field(default=None, repr=False, compare=False, metadata={"private": True})


@dataclass(slots=True, kw_only=True)
class Notice(Event):
    """Something the reader should know: a warning, a compaction, a limit, a steering message taken in.

    Attributes
    ----------
    kind
        A word for programs.
    message
        In words.
    """

    type: ClassVar[str] = "notice"
    kind: str = "warning"
    message: str = ""


@dataclass(slots=True, kw_only=True)
class TurnEnd(Event):
    """A model call and its tool calls are done. `other_calls` are as in `rein_nb.agent.Turn`.

    Attributes
    ----------
    completion
        What the model answered.
    results
        Of its tool calls, in their order.
    """

    type: ClassVar[str] = "turn_end"
    completion: Completion
    results: list[ToolResult] = field(default_factory=list)
    other_calls: list[Completion] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class AgentEnd(Event):
    """The run is over. `result` is what `Agent.run` returns."""

    type: ClassVar[str] = "agent_end"
    result: AgentResult


AgentEvent: TypeAlias = (
    AgentStart | TurnStart | ModelCallStart | ModelCallEnd | MessageStart | MessageUpdate | MessageEnd | Retry | ApprovalRequested | ToolExecutionStart
    | ToolExecutionUpdate | ToolExecutionEnd | Notice | TurnEnd | AgentEnd
)  # fmt: skip
"""Any of the events above."""

__all__ = [
    "AgentEnd",
    "AgentEvent",
    "AgentStart",
    "ApprovalRequested",
    "Event",
    "MessageEnd",
    "MessageStart",
    "MessageUpdate",
    "ModelCallEnd",
    "ModelCallStart",
    "Notice",
    "Retry",
    "ToolExecutionEnd",
    "ToolExecutionStart",
    "ToolExecutionUpdate",
    "TurnEnd",
    "TurnStart",
]
