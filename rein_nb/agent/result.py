"""What a run leaves behind: data, complete enough to draw it, tabulate it and go on from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field

from rein_nb.ir import Completion, ErrorInfo, FinishReason, Message, ToolCall, ToolResult, Usage
from rein_nb.ir.base import Data
from rein_nb.ir.transcript import HasTranscript

if TYPE_CHECKING:
    import pandas as pd

StopReason: TypeAlias = Literal[
    "completed", "length", "content_filter", "refusal", "cancelled", "error",
    "max_turns", "max_tool_calls", "max_tokens", "max_cost", "max_time", "output_invalid",
]  # fmt: skip
"""Why a run ended: the model was done, or which limit, fault or wish ended it."""


class ToolRun(Data):
    """One executed (or refused) tool call.

    Attributes
    ----------
    started_at
        Unix time, seconds; None when the tool never started.
    duration_s
        Seconds; None when the tool never started, and in a run that was played back, whose tools' times nobody recorded.
    """

    call: ToolCall
    result: ToolResult
    started_at: float | None = None
    duration_s: float | None = None


class Turn(Data):
    """One model call and the tool calls that followed from it.

    Attributes
    ----------
    other_calls
        What the turn cost besides: attempts that were asked again (an overflow, a call that the provider could not read, a fault before a
        fallback), and the summary of an older part. With these the usage of all turns adds up to the run's.
    """

    number: int
    completion: Completion
    tools: list[ToolRun] = Field(default_factory=list)
    other_calls: list[Completion] = Field(default_factory=list)
    started_at: float | None = None
    duration_s: float | None = None


class AgentResult(Data, HasTranscript):
    """The outcome of a run. Also complete when the run failed, was cancelled or hit a limit.

    Attributes
    ----------
    run_id
        Unique id of the run.
    model, provider, label
        Who was asked; `label` is the column's name in a comparison.
    system
        The system prompt of the run.
    messages
        The whole transcript, the history before the run included; valid for a next request.
    new_messages_from
        Index in `messages` of the first message of this run.
    turns
        Every model call with its tool calls.
    usage
        Sum over all turns.
    stop_reason
        Why the run ended.
    output
        The validated value, where an ``output_type`` was asked for; else the text.
    error
        The fault that ended the run; None otherwise.
    started_at, duration_s
        Unix time and seconds.
    """

    run_id: str
    model: str = ""
    provider: str = ""
    label: str = ""
    system: str | None = None
    messages: list[Message] = Field(default_factory=list)
    new_messages_from: int = 0
    turns: list[Turn] = Field(default_factory=list)
    usage: Usage = Field(default_factory=Usage)
    stop_reason: StopReason = "completed"
    output: Any = None
    error: ErrorInfo | None = None
    started_at: float | None = None
    duration_s: float | None = None

    def __repr__(self) -> str:
        # The whole would be the whole transcript, in every traceback, log line and cell that shows a result.
        text = self.text if len(self.text) <= 80 else self.text[:77] + "..."
        return f"AgentResult({self.stop_reason}, {len(self.turns)} turns, {text!r})"

    __str__ = __repr__

    @property
    def text(self) -> str:
        """The last assistant message's visible text."""
        for message in reversed(self.messages[self.new_messages_from :]):
            if message.role == "assistant":
                return message.text
        return ""

    @property
    def new_messages(self) -> list[Message]:
        """The messages of this run alone."""
        return self.messages[self.new_messages_from :]

    @property
    def finish_reason(self) -> FinishReason | None:
        """The last model call's neutral finish reason; None when no call was made."""
        return self.turns[-1].completion.finish_reason if self.turns else None

    @property
    def completion(self) -> Completion | None:
        """The last model call's completion."""
        return self.turns[-1].completion if self.turns else None

    @property
    def tool_runs(self) -> list[ToolRun]:
        """All tool calls of the run, in order."""
        return [tool for turn in self.turns for tool in turn.tools]

    @property
    def ok(self) -> bool:
        """Whether the model finished by itself."""
        return self.stop_reason == "completed"

    def to_frame(self, kind: str = "turns") -> pd.DataFrame:
        """One of the tidy frames: ``runs``, ``turns``, ``messages``, ``parts``, ``tool_calls`` or ``usage``."""
        from importlib import import_module

        frame: pd.DataFrame = import_module("rein_nb.frames").frame(kind, [self])
        return frame
