"""How fast a provider may be asked: limits of the caller's own, and what the provider tells about its limits."""

from __future__ import annotations

import asyncio
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rein_nb.dialects.retry_after import amount, duration

_WINDOW_S = 60.0

_LONGEST_S = 900.0
"""No header is believed that asks for a longer pause than this: most providers' windows are a minute."""


@dataclass(frozen=True, slots=True)
class RateLimit:
    """Requests and tokens a minute; None for no limit of one's own. What a provider says about its limits counts in any case."""

    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None

    def __post_init__(self) -> None:
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ValueError(f"{name} must be above 0, not {value}; leave it out for no limit")

    @classmethod
    def of(cls, value: RateLimit | Mapping[str, float] | None) -> RateLimit:
        """From itself, a dict of its fields, or None."""
        if value is None:
            return cls()
        return value if isinstance(value, RateLimit) else cls(**value)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a provider said is left: of requests or tokens, until `reset_at` (unix seconds)."""

    what: str
    remaining: float
    reset_at: float


def allowances(headers: Mapping[str, Any], now: float) -> list[Allowance]:
    """What rate limit headers say. Vendors spell them alike: words for the resource (requests, tokens) and the fact (remaining, reset).

    Parameters
    ----------
    headers
        Names in lower case.
    now
        Unix time, seconds.

    Examples
    --------
    >>> allowances({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "1.5s"}, 100.0)
    [Allowance(what='requests', remaining=0.0, reset_at=101.5)]
    """
    facts: dict[str, dict[str, str]] = {}
    for name, value in headers.items():
        words = re.split(r"[-_]", name.lower().replace("rate-limit", "ratelimit"))
        if "ratelimit" not in words:
            continue
        fact = next((word for word in ("remaining", "reset") if word in words), None)
        if fact is not None:
            what = "-".join(word for word in words if word in ("requests", "tokens", "input", "output"))
            facts.setdefault(what or "requests", {})[fact] = str(value)
    found = []
    for what, given in facts.items():
        remaining = amount(given.get("remaining"))
        reset_at = _moment(given.get("reset"), now)
        if remaining is not None and reset_at is not None:
            found.append(Allowance(what, remaining, min(reset_at, now + _LONGEST_S)))
    return found


def _moment(text: str | None, now: float) -> float | None:
    """Unix seconds of a reset: a duration ("1s", "6m0s", "12"), an RFC 3339 time, or unix seconds."""
    if not text:
        return None
    seconds = amount(text)
    if seconds is not None:
        return seconds if seconds > 1e9 else now + seconds
    if re.match(r"\d{4}-\d\d-\d\dT", text):
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError:
            return None
    length = duration(text)
    return None if length is None else now + length


class Limiter:
    """Lets requests to one provider pass as fast as its limits allow: never more than the limit in any 60 seconds.

    Tokens are counted where they are known, after the answer; before it, as the mean of the answers so far.
    """

    def __init__(
        self,
        limit: RateLimit,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.limit = limit
        self._clock = clock
        self._sleep = sleep
        self._starts: deque[float] = deque()
        self._tokens: deque[list[float]] = deque()  # [when, tokens], the second corrected when it is known
        self._mean = 0.0
        self._known = 0
        self._blocked_until = 0.0
        self._in_flight = 0
        self._gate = asyncio.Lock()

    async def acquire(self) -> list[float]:
        """Wait for one request's turn. Returns the ticket to give back to `release`."""
        async with self._gate:
            while (wait_s := self._wait(self._clock())) > 0:
                await self._sleep(wait_s)
            now = self._clock()
            self._starts.append(now)
            ticket = [now, self._mean]
            self._tokens.append(ticket)
            self._in_flight += 1
            return ticket

    def release(
        self,
        ticket: list[float],
        *,
        tokens: int | None,
        headers: Mapping[str, Any] | None,
        pause_s: float | None = None,
    ) -> None:
        """The answer came: what it counted, and what the provider told about its limits.

        `pause_s` is how long a provider that refused asked to be left alone.
        """
        self._in_flight -= 1
        now = self._clock()
        if tokens is not None:
            ticket[1] = float(tokens)
            self._known += 1
            self._mean += (tokens - self._mean) / self._known
        if pause_s is not None:
            self._blocked_until = max(self._blocked_until, now + min(pause_s, _LONGEST_S))
        for allowance in allowances(headers or {}, now):
            # Others are on their way, and were not counted yet when this answer was written.
            need = 1.0 if allowance.what == "requests" else self._mean
            if allowance.remaining < need * (self._in_flight + 1):
                self._blocked_until = max(self._blocked_until, allowance.reset_at)

    def _wait(self, now: float) -> float:
        while self._starts and self._starts[0] <= now - _WINDOW_S:
            self._starts.popleft()
        while self._tokens and self._tokens[0][0] <= now - _WINDOW_S:
            self._tokens.popleft()
        wait_s = self._blocked_until - now
        requests, tokens = self.limit.requests_per_minute, self.limit.tokens_per_minute
        if requests is not None and len(self._starts) >= max(1, int(requests)):
            wait_s = max(wait_s, self._starts[-max(1, int(requests))] + _WINDOW_S - now)
        if tokens is not None and self._tokens:
            over = sum(ticket[1] for ticket in self._tokens) + self._mean - tokens
            for when, count in self._tokens:
                if over <= 0:
                    break
                over -= count
                wait_s = max(wait_s, when + _WINDOW_S - now)
        return wait_s
