"""How much a sweep may spend."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

StopReason: TypeAlias = Literal["completed", "budget_usd", "budget_tokens", "cancelled"]


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits over all calls of a sweep's name, judges included. None is no limit.

    No request starts when what is paid, with what those under way will cost at the mean so far, has reached a limit. Before the first answers
    that mean is unknown, so the first requests at once may cost more than is left.

    Attributes
    ----------
    usd
        US dollars. Answers of unknown price count as nothing, and a warning says so.
    tokens
        Input plus output.
    """

    usd: float | None = None
    tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("usd", "tokens"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"the budget's {name} must be above 0, not {value}; leave it out for no limit")

    @classmethod
    def of(cls, value: Budget | Mapping[str, float] | float | None) -> Budget:
        """From itself, a dict of its fields, a number of US dollars, or None."""
        if value is None:
            return cls()
        if isinstance(value, int | float) and not isinstance(value, bool):
            return cls(usd=float(value))
        return value if isinstance(value, Budget) else cls(**value)  # type: ignore[arg-type]


class Purse:
    """Keeps count while a sweep runs. For one event loop."""

    def __init__(self, budget: Budget, usd: float, tokens: int) -> None:
        self.budget = budget
        self.usd = usd
        self.tokens = tokens
        self.unpriced = 0
        self._answers = 0
        self._new_usd = 0.0
        self._new_tokens = 0
        self._in_flight = 0
        self._changed = asyncio.Event()

    async def admit(self) -> StopReason | None:
        """Wait until another request is within the budget, and count it as under way; or tell which limit forbids it."""
        while True:
            if self.budget.usd is not None and self.usd >= self.budget.usd:
                return "budget_usd"
            if self.budget.tokens is not None and self.tokens >= self.budget.tokens:
                return "budget_tokens"
            if not self._in_flight or not self._reserved():
                self._in_flight += 1
                return None
            self._changed.clear()
            await self._changed.wait()

    def _reserved(self) -> bool:
        """Whether those under way are expected to use up what is left."""
        if not self._answers:
            return False
        coming = self._in_flight / self._answers
        usd, tokens = self.budget.usd, self.budget.tokens
        return (usd is not None and self.usd + coming * self._new_usd >= usd) or (
            tokens is not None and self.tokens + coming * self._new_tokens >= tokens
        )

    def settle(self, usd: float | None, tokens: int | None) -> None:
        """A request ended, and cost this."""
        self._in_flight -= 1
        self._answers += tokens is not None  # one that never answered says nothing about the next
        self.unpriced += usd is None and tokens is not None
        self.usd += usd or 0.0
        self._new_usd += usd or 0.0
        self.tokens += tokens or 0
        self._new_tokens += tokens or 0
        self._changed.set()
