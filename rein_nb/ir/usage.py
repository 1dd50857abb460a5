"""Token counts and cost, honest about what was not reported."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rein_nb.ir.base import Data

_COUNTS = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")


class Usage(Data):
    """What one response, or a sum of responses, consumed.

    ``None`` means *not reported* and is never taken for 0. Adding a reported and an unreported count gives the
    reported one as a lower bound: `complete` turns False and `lower_bounds` names the field.

    Attributes
    ----------
    input_tokens
        All input tokens, those read from and written to a cache included.
    output_tokens
        All output tokens, reasoning included.
    reasoning_tokens, cache_read_tokens, cache_write_tokens
        Breakdowns of the two totals.
    details
        Further reported breakdowns in tokens (or calls), for example ``cache_write_1h_tokens``, ``input_audio_tokens``.
    cost_usd
        US dollars. None when the price is unknown.
    complete
        False when a count is only a lower bound (a cancelled turn, a sum with gaps).
    raw
        The provider's own usage object, for one response.
    """

    input_tokens: int | None = Field(default=None, ge=0)
    output_tokens: int | None = Field(default=None, ge=0)
    reasoning_tokens: int | None = Field(default=None, ge=0)
    cache_read_tokens: int | None = Field(default=None, ge=0)
    cache_write_tokens: int | None = Field(default=None, ge=0)
    details: dict[str, int] = Field(default_factory=dict)
    cost_usd: float | None = None
    complete: bool = True
    lower_bounds: list[str] = Field(default_factory=list)
    raw: dict[str, Any] | None = None

    @property
    def total_tokens(self) -> int | None:
        """Input plus output tokens; None when neither was reported."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)

    @property
    def uncached_input_tokens(self) -> int | None:
        """Input tokens neither read from nor written to a cache; never negative."""
        if self.input_tokens is None:
            return None
        return max(0, self.input_tokens - (self.cache_read_tokens or 0) - (self.cache_write_tokens or 0))

    def __add__(self, other: Usage) -> Usage:
        if not isinstance(other, Usage):
            return NotImplemented
        bounds = set(self.lower_bounds) | set(other.lower_bounds)
        values: dict[str, Any] = {}
        for name in (*_COUNTS, "cost_usd"):
            a, b = getattr(self, name), getattr(other, name)
            if a is None or b is None:
                values[name] = b if a is None else a
                if (a is None) != (b is None):
                    bounds.add(name)
            else:
                values[name] = a + b
        details = dict(self.details)
        for key, count in other.details.items():
            details[key] = details.get(key, 0) + count
        return Usage(
            **values,
            details=details,
            complete=self.complete and other.complete and not bounds,
            lower_bounds=sorted(bounds),
        )

    def __radd__(self, other: object) -> Usage:
        # sum() starts from 0, which reports nothing and so changes nothing.
        return self if other == 0 else NotImplemented

    def merged(self, later: Usage) -> Usage:
        """This report with a later one *of the same response* laid over it: each field's latest reported value wins."""
        values = {
            name: getattr(self, name) if getattr(later, name) is None else getattr(later, name)
            for name in (*_COUNTS, "cost_usd")
        }
        raw = {**(self.raw or {}), **{k: v for k, v in (later.raw or {}).items() if v is not None}}
        return Usage(
            **values,
            details={**self.details, **later.details},
            complete=self.complete and later.complete,
            raw=raw or None,
        )
