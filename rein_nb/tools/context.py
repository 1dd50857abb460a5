"""What a running tool may know and say: its call, the run's dependencies, progress, cancellation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic

from typing_extensions import TypeVar

from rein_nb.ir import ToolCall, Usage
from rein_nb.ir.base import clean_text
from rein_nb.stream import CancellationToken
from rein_nb.tools.jsonable import to_jsonable

D = TypeVar("D", default=Any)


@dataclass(slots=True)
class Progress:
    """One progress report: words, the done fraction in 0..1 where it is known, and data for programs.

    Attributes
    ----------
    message
        In words.
    fraction
        Done, in 0..1.
    data
        For programs.
    """

    message: str = ""
    fraction: float | None = None
    data: Any = None


@dataclass(slots=True)
class ToolContext(Generic[D]):
    """Handed to a tool that has a parameter annotated ``ToolContext``; the model never sees that parameter.

    Attributes
    ----------
    call
        The tool call as the model made it (after hooks).
    deps
        Whatever the agent was given as ``deps=``.
    token
        Cancelled when the run is stopped or the tool's time is over.
    run_id, turn
        The run and the number of the turn, from 1.
    interactive
        Whether somebody follows the run who can answer a sub-agent's questions.
    on_progress, on_usage, on_question
        Who is told of progress, of what a sub-agent used, and of the approval that it asks for (its `ApprovalRequested`); the loop sets them.

    Examples
    --------
    >>> def count(n: int, ctx: ToolContext) -> int:
    ...     for i in range(n):
    ...         if ctx.cancelled:
    ...             break
    ...         ctx.progress(f"{i} of {n}", i / n)
    ...     return n
    """

    call: ToolCall = field(default_factory=ToolCall)
    deps: D = None  # type: ignore[assignment]
    token: CancellationToken = field(default_factory=CancellationToken)
    run_id: str = ""
    turn: int = 0
    on_progress: Callable[[Progress], None] | None = field(default=None, repr=False)
    on_usage: Callable[[Usage], None] | None = field(default=None, repr=False)
    on_question: Callable[[Any], None] | None = field(default=None, repr=False)
    interactive: bool = False

    @property
    def cancelled(self) -> bool:
        """Whether the result is no longer wanted; a long-running tool should look now and then."""
        return self.token.is_cancelled

    def raise_if_cancelled(self) -> None:
        """Raise `rein_nb.Cancelled` when the result is no longer wanted."""
        self.token.raise_if_cancelled()

    def progress(self, message: str = "", fraction: float | None = None, data: Any = None) -> None:
        """Tell listeners how far the tool is. May be called from any thread.

        Parameters
        ----------
        message
            Words for the reader.
        fraction
            Done part, 0 to 1: what is beyond is taken as the nearest of them, and not-a-number as None. None when it is not known.
        data
            Anything for programs, kept as JSON as it is now; what has no JSON form is kept as text.

        Raises
        ------
        TypeError
            When the fraction is no number.
        """
        if self.on_progress is not None and not self.token.is_cancelled:
            kept = to_jsonable(data, others_as_text=True)
            self.on_progress(Progress(clean_text(str(message)), _part(fraction), kept))

    def add_usage(self, usage: Usage) -> None:
        """Count tokens and money that the tool itself spent on models towards the run's limits. From any thread."""
        if self.on_usage is not None:
            self.on_usage(usage)


def _part(fraction: Any) -> float | None:
    if fraction is None:
        return None
    try:
        if isinstance(fraction, str):
            raise TypeError
        number = float(fraction)
    except (TypeError, ValueError) as exc:
        raise TypeError(f"fraction must be a number from 0 to 1, or None, got {fraction!r}") from exc
    return None if math.isnan(number) else min(1.0, max(0.0, number))
