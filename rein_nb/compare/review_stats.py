"""What votes on pairs say: how far voters agree, and how strong each label is.

Agreement: Cohen's kappa for two voters, Krippendorff's alpha (nominal) for more. Strength: the Bradley-Terry model with Davidson's ties, by
maximum likelihood, or Elo, a tie being half a win. Everything is deterministic for a seed.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SCALE = 400 / math.log(10)
"""Points of a rating for one unit of log strength: 400 points are odds of ten to one, as in chess."""

BASE = 1000.0
"""The mean rating."""

FEWEST = 5
"""Units below which no interval is given: drawing from fewer says next to nothing, and may look sure of it."""


# -- agreement ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far voters agree beyond chance.

    Attributes
    ----------
    method
        ``"cohen_kappa"`` or ``"krippendorff_alpha"``.
    value
        1 is full agreement, 0 what chance gives, below 0 less. None where it is not defined: nothing was judged by two voters, or all of it
        alike, so that chance would give full agreement too.
    low, high
        Bootstrap interval over items, at `confidence`; None with fewer than `FEWEST` items.
    items
        Items that at least two voters judged.
    voters
        Who voted, in order of appearance.
    observed
        Share of judgements of one item that are equal; None without any.
    """

    method: str
    value: float | None
    low: float | None
    high: float | None
    items: int
    voters: tuple[str, ...]
    observed: float | None
    confidence: float = 0.95


def cohen_kappa(pairs: Sequence[tuple[Hashable, Hashable]]) -> float | None:
    """Cohen's kappa of two voters' judgements of the same items (J. Cohen, 1960, Educ. Psychol. Meas. 20, 37-46).

    Examples
    --------
    >>> cohen_kappa([("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15)
    0.4
    """
    n = len(pairs)
    if n == 0:
        return None
    observed = sum(a == b for a, b in pairs) / n
    first, second = Counter(a for a, _ in pairs), Counter(b for _, b in pairs)
    expected = sum(first[value] * second[value] for value in first) / n**2
    return None if expected == 1 else round((observed - expected) / (1 - expected), 12)


def krippendorff_alpha(items: Sequence[Sequence[Hashable]]) -> float | None:
    """Krippendorff's alpha for nominal judgements; items may lack some voters (K. Krippendorff, *Content Analysis*, 2004, ch. 11).

    Parameters
    ----------
    items
        For each item, the judgements there are. Those with fewer than two say nothing and are left out.
    """
    together: dict[tuple[Hashable, Hashable], float] = defaultdict(float)
    for judgements in items:
        m = len(judgements)
        if m < 2:
            continue
        counts = Counter(judgements)
        for a, k in counts.items():
            for b, j in counts.items():
                together[a, b] += (k * (j - (a == b))) / (m - 1)
    totals: dict[Hashable, float] = defaultdict(float)
    for (a, _), weight in together.items():
        totals[a] += weight
    n = sum(totals.values())
    if n <= 1:
        return None
    expected = sum(totals[a] * totals[b] for a in totals for b in totals if a != b) / (n - 1)
    if expected == 0:
        return None
    return 1 - sum(weight for (a, b), weight in together.items() if a != b) / expected


def agreement(
    items: Mapping[Hashable, Mapping[str, Hashable]],
    voters: Sequence[str],
    *,
    confidence: float = 0.95,
    samples: int = 1000,
    seed: int = 0,
) -> Agreement:
    """How far `voters` agree on `items` (item, then voter, to judgement).

    Raises
    ------
    ValueError
        For fewer than two voters.
    """
    import numpy as np

    if len(voters) < 2:
        raise ValueError(
            f"agreement needs two voters or more, and there is {len(voters)}: join the votes of others with join()"
        )
    two = len(voters) == 2
    shared = [tuple(given[voter] for voter in voters if voter in given) for given in items.values()]
    shared = [judgements for judgements in shared if len(judgements) >= 2]

    def value_of(found: Sequence[tuple[Hashable, ...]]) -> float | None:
        return cohen_kappa([(a, b) for a, b in found]) if two else krippendorff_alpha(found)

    low = high = None
    if len(shared) >= FEWEST and samples:
        rng = np.random.default_rng([seed, len(shared)])
        draws = rng.integers(0, len(shared), size=(samples, len(shared)))
        drawn = [value for draw in draws if (value := value_of([shared[n] for n in draw])) is not None]
        if drawn:
            low, high = (float(edge) for edge in np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2]))
    pairs = [(a, b) for found in shared for n, a in enumerate(found) for b in found[n + 1 :]]
    return Agreement(
        method="cohen_kappa" if two else "krippendorff_alpha",
        value=value_of(shared),
        low=low,
        high=high,
        items=len(shared),
        voters=tuple(voters),
        observed=sum(a == b for a, b in pairs) / len(pairs) if pairs else None,
        confidence=confidence,
    )


# -- strength -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Match:
    """One judged pair, by the labels' numbers.

    Attributes
    ----------
    a, b
        The two labels, a < b.
    score
        1 when a won, 0 when b did, 0.5 for a tie.
    unit
        What it shares with the matches that depend on it (the prompt): drawn together by the bootstrap.
    """

    a: int
    b: int
    score: float
    unit: Hashable


def connected(matches: Sequence[Match]) -> list[set[int]]:
    """The groups of labels that were compared with each other, directly or through others."""
    groups: list[set[int]] = []
    for match in matches:
        touching = [group for group in groups if match.a in group or match.b in group]
        groups = [group for group in groups if group not in touching]
        groups.append({match.a, match.b}.union(*touching))
    return groups


def bradley_terry(matches: Sequence[Match], n: int, *, prior: float = 0.0) -> tuple[list[float], float]:
    """Log strengths (mean 0) and the tie parameter nu, by maximum likelihood.

    P(a beats b) is proportional to s_a, P(b beats a) to s_b, P(tie) to nu * sqrt(s_a * s_b) (R. R. Davidson, 1970, JASA 65, 317-328); without
    ties it is the model of Bradley and Terry (1952, Biometrika 39, 324-345).

    Parameters
    ----------
    matches
        At least one for every label, and no label apart from the others.
    n
        How many labels there are.
    prior
        Wins added to each side of every pair that was compared (and ties, where there are any): keeps the strength of a label that never
        lost finite.

    Raises
    ------
    ValueError
        When the maximum is not finite, because some labels never lost (or never won) against the others and `prior` is 0.
    """
    counts, pairs = _counts(matches)
    theta, log_nu = _fit(counts[None], pairs, n, prior, ties=bool(counts[:, 2].sum()))
    if prior == 0 and _separated(matches, n):
        raise ValueError(
            "some labels never lost against the others, so no finite strength is the most likely: give a prior above 0"
        )
    return [float(value) for value in theta[0]], math.exp(log_nu[0]) if counts[:, 2].sum() else 0.0


def _separated(matches: Sequence[Match], n: int) -> bool:
    """Whether some labels cannot be reached from some others along wins (ties count both ways): Ford's condition, 1957."""
    beats: list[set[int]] = [set() for _ in range(n)]
    for match in matches:
        if match.score > 0:
            beats[match.a].add(match.b)
        if match.score < 1:
            beats[match.b].add(match.a)

    def reach(start: int) -> set[int]:
        seen, todo = {start}, [start]
        while todo:
            for other in beats[todo.pop()] - seen:
                seen.add(other)
                todo.append(other)
        return seen

    return any(len(reach(start)) < n for start in range(n))


def _counts(matches: Sequence[Match]) -> tuple[np.ndarray, np.ndarray]:
    """(wins of a, wins of b, ties) by pair, and the pairs."""
    import numpy as np

    table: dict[tuple[int, int], list[float]] = {}
    for match in matches:
        row = table.setdefault((match.a, match.b), [0.0, 0.0, 0.0])
        row[0 if match.score == 1 else 1 if match.score == 0 else 2] += 1
    return np.array(list(table.values())), np.array(list(table))


def _fit(counts: Any, pairs: Any, n: int, prior: float, *, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    """Newton's method for many samples at once: `counts` is (samples, pairs, 3).

    The log likelihood is concave in the log strengths and log nu, each outcome's weight being the exponential of a linear form.
    """
    import numpy as np

    samples, m, _ = counts.shape
    counts = counts + np.array([prior, prior, prior if ties else 0.0])
    size = n + (1 if ties else 0)
    forms = np.zeros((m, 3, size))  # the linear form of each outcome
    for row, (a, b) in enumerate(pairs):
        forms[row, 0, a] = forms[row, 1, b] = 1.0
        forms[row, 2, [a, b]] = 0.5
        if ties:
            forms[row, 2, n] = 1.0
    if not ties:
        forms, counts = forms[:, :2], counts[:, :, :2]
    games = counts.sum(axis=2)

    def likelihood(at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = np.einsum("mop,sp->smo", forms, at)
        top = values.max(axis=2, keepdims=True)
        log_sum = top + np.log(np.exp(values - top).sum(axis=2, keepdims=True))
        log_p = values - log_sum
        return (counts * log_p).sum(axis=(1, 2)), np.exp(log_p)

    at = np.zeros((samples, size))
    level, p = likelihood(at)
    # The strengths' sum is free: held at 0. The rest keeps a sample without ties, or with a winner of everything, finite.
    hold = np.zeros((size, size))
    hold[:n, :n] = 1.0
    hold += 1e-9 * np.eye(size)
    for _ in range(100):
        gradient = np.einsum("smo,mop->sp", counts - games[:, :, None] * p, forms)
        mean = np.einsum("smo,mop->smp", p, forms)
        curve = np.einsum("sm,smo,mop,moq->spq", games, p, forms, forms, optimize=True)
        curve -= np.einsum("sm,smp,smq->spq", games, mean, mean)
        step = np.linalg.solve(curve + hold, gradient[:, :, None])[:, :, 0]
        longest = np.abs(step).max(axis=1, keepdims=True)
        step *= np.minimum(1.0, 3.0 / np.maximum(longest, 1e-300))
        for _ in range(30):
            new_level, new_p = likelihood(at + step)
            worse = new_level < level - 1e-12 * np.abs(level)
            if not worse.any():
                break
            step[worse] /= 2
        at, level, p = at + step, new_level, new_p
        if np.abs(step).max() < 1e-10 or np.abs(at).max() > 40:
            break
    theta = at[:, :n] - at[:, :n].mean(axis=1, keepdims=True)
    return theta, at[:, n] if ties else np.full(samples, -np.inf)


def expected_score(a: float, b: float) -> float:
    """The score that Elo's formula expects of a rating `a` against `b`, between 0 and 1."""
    return float(1 / (1 + 10 ** ((b - a) / 400)))


def elo(matches: Sequence[Match], n: int, *, k: float = 32.0, orders: int = 0, seed: int = 0) -> list[float]:
    """Elo ratings, all starting at `BASE`; a tie is half a win (A. E. Elo, *The Rating of Chessplayers*, 1978).

    Parameters
    ----------
    k
        The most points that one match moves.
    orders
        Elo depends on the order of the matches: the mean over so many shuffled orders; 0 takes the order given.
    """
    import random

    order = list(matches)
    rng = random.Random(seed)
    sums = [0.0] * n
    for _ in range(max(1, orders)):
        if orders:
            rng.shuffle(order)
        at = [BASE] * n
        for match in order:
            change = k * (match.score - expected_score(at[match.a], at[match.b]))
            at[match.a] += change
            at[match.b] -= change
        sums = [total + value for total, value in zip(sums, at, strict=True)]
    return [total / max(1, orders) for total in sums]


def intervals(
    matches: Sequence[Match], n: int, method: str, *, prior: float, k: float, confidence: float, samples: int, seed: int
) -> list[tuple[float, float] | None]:
    """Percentile intervals of the ratings: whole units are drawn with replacement. None with fewer than `FEWEST` units."""
    import numpy as np

    units: dict[Hashable, list[Match]] = defaultdict(list)
    for match in matches:
        units[match.unit].append(match)
    groups = list(units.values())
    if len(groups) < FEWEST or samples < 1:
        return [None] * n
    rng = np.random.default_rng([seed, len(groups)])
    draws = rng.integers(0, len(groups), size=(samples, len(groups)))
    if method == "elo":
        ratings = np.array(
            [elo([m for g in draw for m in groups[g]], n, k=k, orders=1, seed=seed + s) for s, draw in enumerate(draws)]
        )
    else:
        counts, pairs = _counts(matches)
        place = {tuple(pair): row for row, pair in enumerate(pairs.tolist())}
        by_unit = np.zeros((len(groups), *counts.shape))
        for g, group in enumerate(groups):
            for m in group:
                by_unit[g, place[m.a, m.b], 0 if m.score == 1 else 1 if m.score == 0 else 2] += 1
        weights = np.stack([np.bincount(draw, minlength=len(groups)) for draw in draws])
        theta, _ = _fit(np.einsum("sg,gmo->smo", weights, by_unit), pairs, n, prior, ties=bool(counts[:, 2].sum()))
        ratings = BASE + SCALE * theta
    edges = np.quantile(ratings, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    return [(float(low), float(high)) for low, high in edges.T]
