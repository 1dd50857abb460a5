"""How long a server asked to wait: in headers, and in words (field case C090).

A wait that cannot be honoured (negative, infinite, broken, a date in the past) is no wait. A very long one is given as it is: how
long is too long is for the caller to say.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any

_MILLISECONDS = ("retry-after-ms", "x-ms-retry-after-ms")
_AMOUNT = r"\d+(?:\.\d+)?"
_UNITS = (("ms", 0.001), ("mil", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0))
"""Beginning of a unit's word to its seconds, tried in this order."""
_UNIT = r"(?:milliseconds?|ms|hours?|h|minutes?|min|m|seconds?|secs?|s)\b"
_DURATION = re.compile(rf"(?i)({_AMOUNT})\s*({_UNIT}|h|ms|m|s)")
_IN_WORDS = re.compile(
    rf"(?i)\b(?:try again|retry|reset)\w*\s+(?:in|after)\s+((?:{_AMOUNT}(?:h|ms|m|s))+(?![a-z])|{_AMOUNT}\s*{_UNIT})"
)


def wait_in_headers(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Seconds from ``retry-after-ms``, ``x-ms-retry-after-ms`` or ``retry-after``; None where they ask for none.

    Parameters
    ----------
    headers
        Names in lower case.
    now
        Unix time in seconds that a date is compared with; the ``Date`` header, else the clock, by default.
    """
    for name in _MILLISECONDS:
        milliseconds = amount(headers.get(name))
        if milliseconds is not None:
            return milliseconds / 1000
    value = headers.get("retry-after")
    seconds = amount(value)
    if seconds is not None:
        return seconds
    date = _http_date(value)
    if date is None:
        return None
    if now is None:
        now = _http_date(headers.get("date"))
    wait = date - (time.time() if now is None else now)
    return wait if wait >= 0 else None


def wait_in_words(text: str) -> float | None:
    """Seconds from a message such as ``Please try again in 9m48.384s``; None where it names none."""
    found = _IN_WORDS.search(text)
    return duration(found[1]) if found else None


def duration(text: str) -> float | None:
    """Seconds of a duration such as ``34.4s``, ``1h2m`` or ``20 seconds``; None where it is none.

    Examples
    --------
    >>> duration("1h2m3.5s"), duration("120ms"), duration("2 minutes"), duration("soon")
    (3723.5, 0.12, 120.0, None)
    """
    parts = _DURATION.findall(text)
    if not parts:
        return None
    total = sum(float(n) * next(s for unit, s in _UNITS if word.lower().startswith(unit)) for n, word in parts)
    return total if math.isfinite(total) else None


def amount(value: Any) -> float | None:
    """A finite number of at least 0, from a number or its text; None for anything else."""
    if isinstance(value, bool):
        return None
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 else None


def _http_date(value: str | None) -> float | None:
    if not value:
        return None
    try:
        date = parsedate_to_datetime(value)
        return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
