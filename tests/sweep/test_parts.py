"""The parts of a sweep on their own: templates, intervals, rates, scorers."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from rein_nb.agent.result import AgentResult
from rein_nb.compare.sweep import scorers, stats
from rein_nb.compare.sweep.dataset import fill
from rein_nb.compare.sweep.journal import Score
from rein_nb.compare.sweep.rates import Limiter, RateLimit, allowances
from rein_nb.ir import Message
from rein_nb.testing import ScriptedProvider


def test_templates_fill_plain_names_and_leave_other_braces() -> None:
    assert fill('{a} {{a}} {"k": 1} {a.b} {}', {"a": "x{b}"}) == 'x{b} {a} {"k": 1} {a.b} {}'
    assert fill("{n}|{l}|{none}", {"n": 3, "l": [1, "é"], "none": None}) == '3|[1, "é"]|'


# -- intervals -----------------------------------------------------------------------------------


def test_wilson_against_published_values() -> None:
    # Newcombe (1998), Statistics in Medicine 17, table I, method 3.
    for hits, n, low, high in [
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ]:
        assert stats.wilson(hits, n) == pytest.approx((low, high), abs=5e-5)


def test_repeats_of_a_row_are_not_independent_trials() -> None:
    clusters = [n for n in range(10) for _ in range(5)]
    alike = [float(n % 2) for n in clusters]
    assert stats.effective_n(alike, clusters) == pytest.approx(10, abs=1.01)
    rng = random.Random(1)
    free = [float(rng.random() < 0.5) for _ in range(2000)]
    assert stats.effective_n(free, [n // 2 for n in range(2000)]) == pytest.approx(2000, rel=0.15)
    assert stats.effective_n([1.0] * 6, [0, 0, 1, 1, 2, 2]) == 3


def test_bootstrap_covers_and_is_the_same_for_the_same_seed() -> None:
    rng = random.Random(3)
    hits = 0
    for trial in range(60):
        values = [rng.gauss(5, 2) for _ in range(40)]
        low, high = stats.bootstrap(values, range(40), samples=400, seed=(trial,))
        assert (low, high) == stats.bootstrap(values, range(40), samples=400, seed=(trial,))
        hits += low <= 5 <= high
    assert hits >= 50
    assert all(math.isnan(end) for end in stats.bootstrap([1.0, 2.0], [0, 0]))


# -- rates ---------------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


async def test_requests_and_tokens_a_minute_hold_in_every_window() -> None:
    for limit in (RateLimit(requests_per_minute=10), RateLimit(tokens_per_minute=1000)):
        clock = Clock()
        limiter = Limiter(limit, clock=clock, sleep=clock.sleep)
        starts = []
        for _ in range(35):
            ticket = await limiter.acquire()
            starts.append(clock.now)
            clock.now += 0.5
            limiter.release(ticket, tokens=100, headers=None)
        assert max(sum(start <= at < start + 60 for at in starts) for start in starts) <= 10
        assert starts[-1] - starts[0] == pytest.approx(180, abs=6)


@pytest.mark.parametrize(
    ("headers", "until"),
    [
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "7s"}, 7),
        ({"x-ratelimit-remaining-tokens": "20", "x-ratelimit-reset-tokens": "1m2s"}, 62),
        ({"anthropic-ratelimit-requests-remaining": "0", "anthropic-ratelimit-requests-reset": "1970-01-01T00:16:49Z"}, 9),
        ({"anthropic-ratelimit-output-tokens-remaining": "0", "anthropic-ratelimit-output-tokens-reset": "1970-01-01T00:16:50+00:00"}, 10),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "12"}, 12),
        ({"x-ratelimit-remaining-requests": "0"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "soon"}, 0),
        ({"x-ratelimit-remaining-requests": "50", "x-ratelimit-reset-requests": "7s"}, 0),
        ({"x-ratelimit-remaining-requests": "0", "x-ratelimit-reset-requests": "999h"}, 900),
    ],
)  # fmt: skip
async def test_what_a_provider_says_is_left_is_waited_for(headers: dict[str, str], until: float) -> None:
    clock = Clock()
    limiter = Limiter(RateLimit(), clock=clock, sleep=clock.sleep)
    limiter.release(await limiter.acquire(), tokens=30, headers=headers)
    await limiter.acquire()
    assert clock.now == pytest.approx(1_000 + until)


def test_headers_that_say_nothing_of_limits_give_none() -> None:
    assert allowances({"x-request-id": "1", "retry-after": "3"}, 0.0) == []


# -- scorers -------------------------------------------------------------------------------------


def answer(text: str) -> AgentResult:
    return AgentResult(
        run_id="1", messages=[Message(role="user", content="q"), Message(role="assistant", content=text)]
    )


@pytest.mark.parametrize(
    ("scorer", "text", "row", "value"),
    [
        (scorers.exact(), " Paris\n", {"expected": "Paris"}, 1),
        (scorers.exact(), "paris", {"expected": "Paris"}, 0),
        (scorers.exact("n"), "7", {"n": 7}, 1),
        (scorers.contains(), "It is PARIS.", {"expected": "paris"}, 1),
        (scorers.contains(), "a and b", {"expected": ["a", "c"]}, 0),
        (scorers.regex(r"^\d+$"), "12", {}, 1),
        (scorers.regex(r"^\d+$"), "x12", {}, 0),
        (scorers.json_match(), 'Here:\n```json\n{"a": 1.0, "b": [true]}\n```', {"expected": {"b": [True], "a": 1}}, 1),
        (scorers.json_match(), '{"a": true}', {"expected": '{"a": 1}'}, 0),
        (scorers.json_match(keys=["a"]), '{"a": 1, "b": 2}', {"expected": {"a": 1, "b": 3}}, 1),
        (scorers.json_match(), "none", {"expected": {}}, 0),
        (scorers.numeric(), "So 3 + 4 = 1,234.50.", {"expected": 1234.5}, 1),
        (scorers.numeric(rel=0.01), "about -99.5", {"expected": "-100"}, 1),
        (scorers.numeric(), "no idea", {"expected": 1}, 0),
    ],
)
async def test_built_in_scorers(scorer: Any, text: str, row: dict[str, Any], value: float) -> None:
    score = await scorers.apply(scorer, answer(text), row)
    assert (score.value, score.error) == (value, None)


async def test_a_scorer_of_ones_own_may_fail_and_may_be_asynchronous() -> None:
    async def later(got: AgentResult, row: Any) -> dict[str, Any]:
        return {"value": True, "why": got.text}

    def broken(got: AgentResult, row: Any) -> float:
        return 1 / 0

    def wordy(got: AgentResult, row: Any) -> Any:
        return "good"

    made = scorers.as_scorers(
        {"later": later, "broken": broken, "wordy": wordy, "nan": lambda a, r: math.nan, "none": lambda a, r: None}
    )
    found = {scorer.name: await scorers.apply(scorer, answer("x"), {}) for scorer in made}
    assert found["later"] == Score(1.0, details={"why": "x"})
    assert "ZeroDivisionError" in str(found["broken"].error)
    assert "not str" in str(found["wordy"].error)
    assert "finite" in str(found["nan"].error)
    assert found["none"] == Score(None)
    missing = await scorers.apply(scorers.exact("gold"), answer("x"), {"expected": "x"})
    assert "no field 'gold'" in str(missing.error)


@pytest.mark.parametrize(
    ("said", "value", "error"),
    [
        ('{"score": 4, "reason": "r"}', 4.0, None),
        ('{"score": 11}', None, "not within"),
        ('{"score": "4"}', None, "gave no score"),
        ("no", None, "gave no score"),
        ("[" * 5000, None, "gave no score"),
    ],
)
async def test_a_judge_scores_within_its_scale_or_not_at_all(said: str, value: float | None, error: str | None) -> None:
    scorer = scorers.judge(ScriptedProvider.llm(said), "Good?", scale=(0, 10))
    score = await scorers.apply(scorer, answer("x"), {})
    assert score.value == value
    assert (error is None and score.error is None) or (error is not None and error in str(score.error))
    assert score.tokens
