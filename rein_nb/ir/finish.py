"""Why a turn ended: one neutral word, always beside the provider's own."""

from __future__ import annotations

from enum import Enum
from typing import Literal, TypeAlias

FinishReason: TypeAlias = Literal[
    "stop", "tool_calls", "length", "content_filter", "refusal", "cancelled", "error", "other"
]
"""Why a turn ended, in the same words for every provider. The provider's own word stands beside it, as ``native_finish_reason``."""


class TurnOutcome(str, Enum):
    """Provider-neutral outcome of one turn."""

    COMPLETED = "completed"
    TOOL_CALLS = "tool_calls"
    LENGTH = "length"
    CONTENT_FILTER = "content_filter"
    REFUSAL = "refusal"
    ABORTED = "aborted"
    PROVIDER_ERROR = "provider_error"
    UNKNOWN = "unknown"


_WORDS: dict[TurnOutcome, tuple[str, ...]] = {
    TurnOutcome.COMPLETED: (
        "stop", "end_turn", "natural", "stop_sequence", "completed", "complete", "eos", "eos_token", "done",
    ),
    TurnOutcome.TOOL_CALLS: ("tool_calls", "tool_use", "function_call", "tool_call"),
    TurnOutcome.LENGTH: (
        "length", "max_tokens", "max_output_tokens", "max_completion_tokens", "model_length",
        "model_context_window_exceeded", "pause_turn", "incomplete",
    ),
    TurnOutcome.CONTENT_FILTER: (
        "content_filter", "content_filtered", "safety", "blocked", "recitation", "blocklist", "prohibited_content",
        "spii", "image_safety", "language", "image_prohibited_content", "image_recitation",
    ),
    TurnOutcome.REFUSAL: ("refusal",),
    TurnOutcome.ABORTED: ("aborted", "cancelled", "canceled", "abort"),
    TurnOutcome.PROVIDER_ERROR: ("error", "failed", "network_error", "insufficient_system_resource"),
}  # fmt: skip
_OUTCOME = {word: outcome for outcome, words in _WORDS.items() for word in words}


def normalize_finish_reason(reason: str | None, has_tool_calls: bool = False) -> TurnOutcome:
    """The neutral outcome of a turn from any provider's word for it.

    Parameters
    ----------
    reason
        The provider's word (``"end_turn"``, ``"MAX_TOKENS"``...), a `FinishReason`, or None.
    has_tool_calls
        Whether the turn holds tool calls. They decide when the word is missing, or says that the turn
        ended naturally although calls were made.

    Examples
    --------
    >>> normalize_finish_reason("end_turn")
    <TurnOutcome.COMPLETED: 'completed'>
    >>> normalize_finish_reason(None, has_tool_calls=True)
    <TurnOutcome.TOOL_CALLS: 'tool_calls'>
    """
    outcome = _OUTCOME.get((reason or "").strip().lower(), TurnOutcome.UNKNOWN)
    if has_tool_calls and (outcome is TurnOutcome.COMPLETED or not reason):
        return TurnOutcome.TOOL_CALLS
    return outcome
