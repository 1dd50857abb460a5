"""The outcome of one model call."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from rein_nb.ir.base import Data, Extra
from rein_nb.ir.errors import ErrorInfo
from rein_nb.ir.finish import FinishReason, TurnOutcome, normalize_finish_reason
from rein_nb.ir.messages import Message
from rein_nb.ir.parts import ToolCall
from rein_nb.ir.transcript import HasTranscript
from rein_nb.ir.usage import Usage


class Timing(Data):
    """Durations in seconds from the moment the request was started, retries included.

    Attributes
    ----------
    started_at
        Unix time of the start, seconds.
    first_byte_s, first_token_s, first_text_s
        To the first byte of the answer, the first content of any kind (thinking and tool calls too), the first visible text.
    total_s
        To the terminal event.
    inter_token_p50_s, inter_token_p95_s
        Median and 95th percentile of the gaps between content deltas; None below two deltas.
    retries
        Requests sent beyond the first.
    """

    started_at: float | None = None
    first_byte_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    total_s: float | None = None
    inter_token_p50_s: float | None = None
    inter_token_p95_s: float | None = None
    retries: int = 0


class Completion(Data, HasTranscript):
    """Everything one model call gave, also when it failed half-way.

    Attributes
    ----------
    message
        The assistant message, with its origin.
    usage
        What was reported; None fields were not.
    finish_reason, native_finish_reason
        The neutral reason and the provider's own word.
    error
        The fault that ended the call; None for a success.
    timing
        `Timing` in seconds.
    model, provider, response_id
        The model that answered, the provider's name and its id of the response.
    alternatives
        The other choices, where the request asked for several.
    warnings
        What was left out or changed on the way to the provider, in words.
    extra
        Response-level data of exactly this provider.
    """

    message: Message
    usage: Usage = Field(default_factory=Usage)
    finish_reason: FinishReason = "other"
    native_finish_reason: str | None = None
    error: ErrorInfo | None = None
    timing: Timing = Field(default_factory=Timing)
    model: str | None = None
    provider: str | None = None
    response_id: str | None = None
    alternatives: list[Message] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)
    extra: Extra = Field(default_factory=dict)

    @property
    def text(self) -> str:
        """The visible text."""
        return self.message.text

    @property
    def content(self) -> str:
        """Alias of `text`."""
        return self.message.text

    @property
    def thinking(self) -> str:
        """The visible reasoning."""
        return self.message.thinking

    @property
    def reasoning_content(self) -> str | None:
        """The visible reasoning; None when there is none."""
        return self.message.thinking or None

    @property
    def tool_calls(self) -> list[ToolCall]:
        """All tool calls, malformed ones included."""
        return self.message.tool_calls

    @property
    def runnable_tool_calls(self) -> list[ToolCall]:
        """The calls that may be executed: complete arguments, in a turn that ended in success."""
        if self.error is not None or self.finish_reason not in ("stop", "tool_calls"):
            return []
        return [call for call in self.message.tool_calls if call.error is None and call.name]

    @property
    def outcome(self) -> TurnOutcome:
        """The turn's outcome as one enum member."""
        return normalize_finish_reason(self.finish_reason, bool(self.tool_calls))

    def to_message(
        self, role: Literal["assistant", "user", "system", "developer"] = "assistant", stop_reason: str | None = None
    ) -> Message:
        """The message for a history; another `role` or a `stop_reason` makes a changed copy."""
        if role == "assistant" and stop_reason is None:
            return self.message
        update: dict[str, Any] = {"role": role}
        if stop_reason is not None:
            extra = dict(self.message.extra)
            extra["metadata"] = {**extra.get("metadata", {}), "stop_reason": stop_reason}
            update["extra"] = extra
        return Message.model_validate({**dict(self.message), **update})
