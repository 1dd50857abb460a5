"""Intervals: Wilson's for proportions, the bootstrap for means. Rows are the units: repeats of one row are not independent."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from statistics import NormalDist

_AT_ONCE = 1_000_000
"""Random numbers drawn at once."""


def wilson(successes: float, n: float, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a proportion (E. B. Wilson, 1927, JASA 22, 209-212).

    Examples
    --------
    >>> low, high = wilson(8, 10)
    >>> round(low, 4), round(high, 4)
    (0.4902, 0.9433)
    """
    if n <= 0:
        return math.nan, math.nan
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    p = successes / n
    middle = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def effective_n(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """How many independent trials 0/1 `values` are worth when those of one cluster may resemble each other.

    The number of values, divided by the design effect of the ratio estimator (Kish, *Survey Sampling*, 1965), and never below the number of
    clusters nor above that of values. Where all values are equal nothing can be said about resemblance, and each cluster counts once.
    """
    sums: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        found = sums.setdefault(cluster, [0.0, 0.0])
        found[0] += value
        found[1] += 1
    n, groups = len(values), len(sums)
    if groups == n or groups <= 1:
        return float(groups)
    p = sum(values) / n
    if p in (0.0, 1.0):
        return float(groups)
    variance = sum((hits - p * size) ** 2 for hits, size in sums.values()) * groups / (groups - 1) / n**2
    if variance == 0:
        return float(n)
    return min(float(n), max(float(groups), p * (1 - p) / variance))


def bootstrap(
    values: Sequence[float],
    clusters: Sequence[Hashable],
    *,
    confidence: float = 0.95,
    samples: int = 2000,
    seed: Sequence[int] = (0,),
) -> tuple[float, float]:
    """Percentile interval of the mean, drawing whole clusters with replacement. The same seed gives the same interval."""
    import numpy as np

    sums: dict[Hashable, list[float]] = {}
    for value, cluster in zip(values, clusters, strict=True):
        found = sums.setdefault(cluster, [0.0, 0.0])
        found[0] += value
        found[1] += 1
    if len(sums) < 2:
        return math.nan, math.nan  # one row tells nothing about others
    totals = np.array([total for total, _ in sums.values()])
    sizes = np.array([size for _, size in sums.values()])
    rng = np.random.default_rng(list(seed))
    means: list[float] = []
    while len(means) < samples:
        count = min(samples - len(means), max(1, _AT_ONCE // len(totals)))
        drawn = rng.integers(0, len(totals), size=(count, len(totals)))
        means.extend((totals[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)).tolist())
    low, high = np.quantile(means, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
