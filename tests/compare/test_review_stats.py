"""Statistics of votes, against published examples and against what the likelihood equations say."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from rein_nb.compare.review_stats import (
    BASE,
    SCALE,
    Match,
    agreement,
    bradley_terry,
    cohen_kappa,
    connected,
    elo,
    expected_score,
    intervals,
    krippendorff_alpha,
)

# -- agreement ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("both_yes", "yes_no", "no_yes", "both_no", "kappa"),
    [(20, 5, 10, 15, 0.4), (45, 15, 25, 15, 0.1304), (25, 35, 5, 35, 0.2593)],
    ids=["textbook", "same-observed", "same-observed-other-margins"],
)
def test_cohens_kappa_of_known_tables(both_yes: int, yes_no: int, no_yes: int, both_no: int, kappa: float) -> None:
    pairs = [("y", "y")] * both_yes + [("y", "n")] * yes_no + [("n", "y")] * no_yes + [("n", "n")] * both_no
    assert cohen_kappa(pairs) == pytest.approx(kappa, abs=5e-5)


def test_cohens_kappa_is_not_defined_where_chance_agrees_fully() -> None:
    assert cohen_kappa([("a", "a")] * 5) is None
    assert cohen_kappa([]) is None


OBSERVERS = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)
"""Four observers, twelve units, missing values: Krippendorff's own example, with alpha = 0.743 for nominal data."""


def test_krippendorffs_alpha_of_his_example_with_missing_judgements() -> None:
    items = [
        [value for value in unit if value != "."] for unit in zip(*(row.split() for row in OBSERVERS), strict=True)
    ]
    assert krippendorff_alpha(items) == pytest.approx(0.743, abs=5e-4)


def test_krippendorffs_alpha_at_its_ends() -> None:
    assert krippendorff_alpha([["a", "a", "a"], ["b", "b"]]) == 1.0
    assert krippendorff_alpha([["a", "a"], ["a", "a"]]) is None, "nothing varies"
    assert krippendorff_alpha([["a"], []]) is None
    worst = krippendorff_alpha([["a", "b"], ["b", "a"]])
    assert worst is not None
    assert worst < 0


def test_two_voters_give_kappa_and_more_give_alpha() -> None:
    items = {n: {"x": n % 2, "y": n % 2 if n < 8 else 0, "z": n % 3} for n in range(12)}
    two = agreement({n: {v: j for v, j in found.items() if v != "z"} for n, found in items.items()}, ["x", "y"])
    assert (two.method, two.items) == ("cohen_kappa", 12)
    assert two.observed == 10 / 12
    assert two.low is not None
    assert two.high is not None
    assert two.value is not None
    assert two.low <= two.value <= two.high
    three = agreement(items, ["x", "y", "z"])
    assert three.method == "krippendorff_alpha"
    assert three.voters == ("x", "y", "z")
    assert agreement(items, ["x", "y", "z"]) == three, "the same seed, the same interval"
    assert agreement(items, ["x", "y", "z"], seed=1) != three
    with pytest.raises(ValueError, match="needs two voters or more, and there is 1"):
        agreement(items, ["x"])


# -- Bradley and Terry ----------------------------------------------------------------------------

BASEBALL = {
    "Milwaukee": (0, 7, 9, 7, 7, 9, 11),
    "Detroit": (6, 0, 7, 5, 11, 9, 9),
    "Toronto": (4, 6, 0, 7, 7, 8, 12),
    "New York": (6, 8, 6, 0, 6, 7, 10),
    "Boston": (6, 2, 6, 7, 0, 7, 12),
    "Cleveland": (4, 4, 5, 6, 6, 0, 6),
    "Baltimore": (2, 4, 1, 3, 1, 7, 0),
}
"""Wins of the American League's eastern division in 1987, row over column: A. Agresti, *Categorical Data Analysis*, ch. 10."""

ABILITIES = (1.5814, 1.4364, 1.2945, 1.2476, 1.1077, 0.6839, 0.0)
"""The published estimates, Baltimore being 0."""


def baseball() -> list[Match]:
    wins = list(BASEBALL.values())
    return [
        Match(min(i, j), max(i, j), float(i < j), (i, j, n))
        for i in range(7)
        for j in range(7)
        for n in range(wins[i][j])
    ]


def test_bradley_terry_gives_the_published_abilities_of_1987() -> None:
    theta, nu = bradley_terry(baseball(), 7)
    assert [value - theta[6] for value in theta] == pytest.approx(ABILITIES, abs=5e-5)
    assert nu == 0.0
    assert sum(theta) == pytest.approx(0.0, abs=1e-9)


def test_ties_after_davidson_have_the_closed_form_of_two_labels() -> None:
    matches = [Match(0, 1, 1, 0)] * 5 + [Match(0, 1, 0, 0)] * 2 + [Match(0, 1, 0.5, 0)] * 3
    theta, nu = bradley_terry(matches, 2)
    assert theta[0] - theta[1] == pytest.approx(math.log(5 / 2))
    assert nu == pytest.approx(3 / math.sqrt(5 * 2))


@pytest.mark.parametrize("seed", range(5))
def test_davidsons_likelihood_equations_hold(seed: int) -> None:
    """At the maximum each label's expected score is its observed one, and as many ties are expected as there were."""
    rng = random.Random(seed)
    n = 5
    matches = [
        Match(a, b, rng.choice((1.0, 0.0, 0.5, float(a < 2))), 0)
        for a in range(n)
        for b in range(a + 1, n)
        for _ in range(12)
    ]
    theta, nu = bradley_terry(matches, n)
    scores, expected, ties = [0.0] * n, [0.0] * n, 0.0
    for match in matches:
        a, b = math.exp(theta[match.a]), math.exp(theta[match.b])
        tie = nu * math.sqrt(a * b)
        whole = a + b + tie
        expected[match.a] += (a + tie / 2) / whole
        expected[match.b] += (b + tie / 2) / whole
        ties += tie / whole
        scores[match.a] += match.score
        scores[match.b] += 1 - match.score
    assert expected == pytest.approx(scores, abs=1e-6)
    assert ties == pytest.approx(sum(match.score == 0.5 for match in matches), abs=1e-6)


def test_a_label_that_never_lost_needs_a_prior() -> None:
    matches = [Match(0, 1, 1, 0), Match(0, 1, 1, 1), Match(1, 2, 1, 2), Match(1, 2, 0, 3)]
    with pytest.raises(ValueError, match="never lost"):
        bradley_terry(matches, 3)
    theta, _ = bradley_terry(matches, 3, prior=0.1)
    assert theta[0] > theta[1]
    assert max(map(abs, theta)) < 5
    weaker, _ = bradley_terry(matches, 3, prior=1.0)
    assert weaker[0] - weaker[1] < theta[0] - theta[1]


def test_groups_that_never_met_are_found() -> None:
    assert connected([Match(0, 1, 1, 0), Match(2, 3, 1, 0)]) == [{0, 1}, {2, 3}]
    assert connected([Match(0, 1, 1, 0), Match(2, 3, 1, 0), Match(1, 2, 1, 0)]) == [{0, 1, 2, 3}]


def test_intervals_hold_the_estimate_repeat_by_seed_and_narrow_with_more_units() -> None:
    matches = baseball()
    theta, _ = bradley_terry(matches, 7)
    options = {"prior": 0.0, "k": 32.0, "confidence": 0.95, "samples": 300}
    found = intervals(matches, 7, "bradley_terry", seed=1, **options)  # type: ignore[arg-type]
    for value, edges in zip(theta, found, strict=True):
        assert edges is not None
        assert edges[0] < BASE + SCALE * value < edges[1]
    assert intervals(matches, 7, "bradley_terry", seed=1, **options) == found  # type: ignore[arg-type]
    assert intervals(matches, 7, "bradley_terry", seed=2, **options) != found  # type: ignore[arg-type]
    four = [Match(m.a, m.b, m.score, (m.unit, n)) for m in matches for n in range(4)]
    narrow = intervals(four, 7, "bradley_terry", seed=1, **options)  # type: ignore[arg-type]
    width = np.mean([b - a for a, b in filter(None, narrow)]) / np.mean([b - a for a, b in filter(None, found)])
    assert 0.4 < width < 0.6, "half the width of four times the games"
    assert intervals(matches[:1], 7, "bradley_terry", seed=1, **options) == [None] * 7  # type: ignore[arg-type]


# -- Elo ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("other", "score"), [(1609, 0.506), (1477, 0.686), (1388, 0.785), (1586, 0.539), (1720, 0.351)]
)
def test_elos_expected_scores_of_a_player_of_1613(other: int, score: float) -> None:
    assert expected_score(1613, other) == pytest.approx(score, abs=5e-4)


def test_elo_by_hand() -> None:
    assert elo([Match(0, 1, 1.0, 0)], 2) == [1016.0, 984.0]
    assert elo([Match(0, 1, 0.5, 0)], 2) == [1000.0, 1000.0]
    second = 32 * (1 - 1 / (1 + 10 ** (-32 / 400)))
    assert elo([Match(0, 1, 1.0, 0), Match(0, 1, 1.0, 1)], 2) == pytest.approx([1016 + second, 984 - second])


def test_elo_over_shuffled_orders_repeats_by_seed_and_keeps_the_mean() -> None:
    matches = baseball()
    one, two = elo(matches, 7, orders=20, seed=3), elo(list(matches), 7, orders=20, seed=3)
    assert one == two
    assert sum(one) / 7 == pytest.approx(BASE)
    assert elo(matches, 7, orders=20, seed=4) != one
    assert one[0] > one[5] > one[6]
