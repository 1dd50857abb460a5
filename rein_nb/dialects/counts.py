"""Numbers as servers report them: gateways send null, text, floats and negative fillers where the interface promises counts."""

from __future__ import annotations

import math

from rein_nb.ir.base import JSON


def count(value: JSON) -> int | None:
    """A count of tokens or calls; None for what is none (null, negative, not a whole number).

    Examples
    --------
    >>> count(3), count(3.0), count(None), count(-1), count(True)
    (3, 3, None, None, None)
    """
    if type(value) is int:
        return value if value >= 0 else None
    if type(value) is float and math.isfinite(value) and value >= 0 and value == int(value):
        return int(value)
    return None


def dollars(value: JSON) -> float | None:
    """A price in US dollars; None for what is none."""
    if type(value) in (int, float) and math.isfinite(value) and value >= 0:
        return float(value)
    return None
