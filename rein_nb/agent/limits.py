"""Limits of a run: each ends it with its own stop reason and a transcript that can be gone on from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import Field

from rein_nb.agent.result import StopReason
from rein_nb.ir import Usage
from rein_nb.ir.base import Data

if TYPE_CHECKING:
    from collections.abc import Mapping


class Limits(Data):
    """How much a run may use. None is no limit.

    Attributes
    ----------
    turns
        Model calls, resumptions and corrections included.
    tool_calls
        Executed tool calls; further calls of the same turn are answered as not started.
    tokens
        Input plus output tokens over all turns, those of sub-agents included, as reported by the provider; looked at before each model call.
    usd
        US dollars over all turns, those of sub-agents included; looked at before each model call. A model without a known price cannot be held to it, and a
        notice says so.
    seconds
        Wall time; the running model call and tools are stopped.

    Examples
    --------
    >>> Limits(turns=3).reached(turns=3, usage=Usage())
    'max_turns'
    """

    turns: int | None = Field(default=100, ge=1)
    tool_calls: int | None = Field(default=None, ge=0)
    tokens: int | None = Field(default=None, ge=1)
    usd: float | None = Field(default=None, gt=0)
    seconds: float | None = Field(default=None, gt=0)

    @classmethod
    def of(cls, value: Limits | Mapping[str, float] | None) -> Limits:
        """Limits from themselves, a mapping of their fields, or None for the defaults."""
        if value is None:
            return cls()
        return value if isinstance(value, Limits) else cls.model_validate(dict(value))

    def reached(self, *, turns: int, usage: Usage) -> StopReason | None:
        """Which limit forbids another model call; None when none does."""
        if self.turns is not None and turns >= self.turns:
            return "max_turns"
        if self.tokens is not None and (usage.total_tokens or 0) >= self.tokens:
            return "max_tokens"
        if self.usd is not None and (usage.cost_usd or 0.0) >= self.usd:
            return "max_cost"
        return None
