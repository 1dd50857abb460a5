"""Which model call of a turn each span tells of.

The loop tells when a call is answered, and of those that were asked again (a fallback, an overflow) and of a summary only that they were
made, when the turn ends. A span is open meanwhile, so that what the HTTP client records falls below it; which call it was is found out then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rein_nb.ir import Completion, Message

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.context import Context
    from opentelemetry.trace import Span


@dataclass(slots=True)
class Open:
    """A span that is open and current."""

    span: Span
    token: Token[Context]


@dataclass(slots=True)
class OpenCall(Open):
    """The span of a model call.

    Attributes
    ----------
    begun, ended
        Unix times, seconds. `ended` is None while it is current.
    model
        Who is asked.
    messages
        What is sent.
    answering
        Whether its answer has begun.
    compaction
        Whether the transcript was shortened at its end: it was the summary's, or overflowed.
    told
        Whether it has its completion, and is over.
    """

    begun: float
    model: str
    messages: list[Message] = field(default_factory=list)
    answering: bool = False
    compaction: bool = False
    ended: float | None = None
    told: bool = False


def told_apart(
    calls: Sequence[OpenCall], completions: Sequence[Completion]
) -> Iterator[tuple[OpenCall, bool, Completion]]:
    """(the span during which it was made, whether it is the span's own, the completion) for each.

    Parameters
    ----------
    calls
        A turn's spans, in order.
    completions
        What no span has told of yet.
    """
    rest = sorted(completions, key=lambda c: (c.timing.started_at or 0.0, not overflowed(c)))
    for n, call in enumerate(calls):
        until = calls[n + 1].begun if n + 1 < len(calls) else float("inf")
        own = call.ended is not None and not call.told
        while rest:
            started = rest[0].timing.started_at
            if started is not None and (started > until or (not own and started >= until)):
                break
            if started is None and not own and n + 1 < len(calls):
                break
            yield call, own, rest.pop(0)
            own = False


def overflowed(completion: Completion) -> bool:
    """Whether the request was longer than the context window."""
    return completion.error is not None and completion.error.kind == "context_overflow"


def ended_at(completion: Completion, otherwise: float) -> float:
    """When a call was over: Unix time, seconds."""
    timing = completion.timing
    if timing.started_at is None or timing.total_s is None:
        return otherwise
    return timing.started_at + timing.total_s
