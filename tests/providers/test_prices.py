"""Costs: golden sums, unknown prices, and that the list read in part is the whole list."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from genai_prices import Usage as GenaiUsage
from genai_prices import data_snapshot
from hypothesis import given, settings
from hypothesis import strategies as st

from rein_nb.ir import Usage
from rein_nb.llm import LLM
from rein_nb.providers import prices
from rein_nb.providers.presets import PRESETS
from rein_nb.providers.prices import cost_usd, find_model, price, terms_of
from rein_nb.testing import serve_recording
from tests.support import REPO

AT = datetime(2026, 6, 1, tzinfo=UTC)
M = 1_000_000


@pytest.mark.parametrize(
    ("provider", "model", "usage", "usd"),
    [
        # gpt-4o: 2.50 in, 1.25 cached, 10 out, per million tokens
        ("openai", "gpt-4o", {"input_tokens": 1000, "output_tokens": 100}, (1000 * 2.5 + 100 * 10) / M),
        ("openai-chat", "gpt-4o-2024-08-06", {"input_tokens": 1000, "output_tokens": 0, "cache_read_tokens": 600}, (400 * 2.5 + 600 * 1.25) / M),
        # reasoning is part of the output and not counted twice
        ("openai", "o3-mini", {"input_tokens": 0, "output_tokens": 500, "reasoning_tokens": 400}, 500 * 4.4 / M),
        # claude-sonnet-4-5: 3 in, 0.30 cached, 3.75 written for 5 minutes, 6 for an hour, 15 out
        ("anthropic", "claude-sonnet-4-5-20250929", {"input_tokens": 1000, "output_tokens": 10, "cache_read_tokens": 300},
         (700 * 3 + 300 * 0.3 + 10 * 15) / M),
        ("anthropic", "claude-sonnet-4-5", {"input_tokens": 1000, "output_tokens": 10, "cache_write_tokens": 400},
         (600 * 3 + 400 * 3.75 + 10 * 15) / M),
        ("anthropic", "claude-sonnet-4-5",
         {"input_tokens": 1000, "output_tokens": 10, "cache_write_tokens": 400, "details": {"cache_write_1h_tokens": 400, "cache_write_5m_tokens": 0}},
         (600 * 3 + 400 * 6 + 10 * 15) / M),
        ("anthropic", "claude-sonnet-4-5",
         {"input_tokens": 1000, "output_tokens": 10, "cache_write_tokens": 400, "cache_read_tokens": 100,
          "details": {"cache_write_1h_tokens": 150, "cache_write_5m_tokens": 250}},
         (500 * 3 + 100 * 0.3 + 250 * 3.75 + 150 * 6 + 10 * 15) / M),
        ("openai", "gpt-4o", {"input_tokens": 0, "output_tokens": 0}, 0.0),
    ],
)  # fmt: skip
def test_golden_costs(provider, model, usage, usd):
    assert cost_usd(Usage(**usage), provider=provider, model=model, at=AT) == pytest.approx(usd, abs=1e-12)


def test_batch_costs_half_where_the_list_says_so():
    usage = Usage(input_tokens=1000, output_tokens=100)
    late = datetime(2026, 11, 1, tzinfo=UTC)
    whole = cost_usd(usage, provider="anthropic", model="claude-sonnet-4-5", at=late)
    batch = cost_usd(usage, provider="anthropic", model="claude-sonnet-4-5", at=late, terms={"processing": "batch"})
    assert batch == pytest.approx(whole / 2)
    priority = cost_usd(usage, provider="openai", model="gpt-4o", at=late, terms={"service_tier": "priority"})
    assert priority == pytest.approx((1000 * 4.25 + 100 * 17) / M)


LATE = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.mark.parametrize("lifetime", ["cache_write_1h_tokens", "cache_write_5m_tokens", None])
def test_a_batchs_cache_is_half_price_too(lifetime):
    """Sonnet 4.5 in a batch: 1.50 in, 0.15 cached, 1.875 or 3 written, 7.50 out, per million tokens."""
    details = {lifetime: 400} if lifetime else {}
    usage = Usage(input_tokens=1000, output_tokens=10, cache_read_tokens=100, cache_write_tokens=400, details=details)
    cost = cost_usd(usage, provider="anthropic", model="claude-sonnet-4-5", at=LATE, terms={"processing": "batch"})
    written = 3.0 if lifetime == "cache_write_1h_tokens" else 1.875
    assert cost == pytest.approx((500 * 1.5 + 100 * 0.15 + 400 * written + 10 * 7.5) / M, abs=1e-9)


@pytest.mark.parametrize(
    ("raw", "answer", "asked", "terms"),
    [
        ({"service_tier": "batch"}, {}, {}, {"processing": "batch"}),
        ({"service_tier": "standard"}, {}, {}, {}),
        ({"service_tier": "priority"}, {}, {}, {"service_tier": "priority"}),
        (None, {"openai": {"service_tier": "flex"}}, {}, {"service_tier": "flex"}),
        (None, {"openai": {"service_tier": "default"}}, {"openai": {"service_tier": "priority"}}, {"service_tier": "default"}),
        (None, {}, {"openai": {"service_tier": "auto"}}, {}),
        (None, {}, {"openai": {"service_tier": "flex"}}, {"service_tier": "flex"}),
        ({"speed": "fast"}, {}, {}, {"speed": "fast"}),
        ({"service_tier": None}, {"openai": {"service_tier": 5}}, {"openai": None}, {}),
    ],
)  # fmt: skip
def test_terms_are_what_the_answer_says_else_what_was_asked(raw, answer, asked, terms):
    assert terms_of(Usage(raw=raw), answer, asked) == terms


@pytest.mark.parametrize(
    "terms",
    [{"processing": "batch"}, {"service_tier": "priority"}, {"service_tier": "flex"}, {"service_tier": "no-such"}],
)
@pytest.mark.parametrize("price_id", ["openai", "anthropic", "google"])
def test_terms_cost_what_the_package_calculates(price_id, terms):
    """Every model of these providers: the short way and the package's own."""
    snapshot = data_snapshot.get_snapshot()
    provider = next(provider for provider in snapshot.providers if provider.id == price_id)
    counts = {"input_tokens": 1000, "output_tokens": 100, "cache_read_tokens": 300}
    for model in provider.models:
        if provider.find_model(model.id) is None:
            continue  # a family's entry, matched by longer names only
        rates = prices._make_rates(snapshot, price_id, model.id, LATE, terms)
        money = rates.money(counts) if rates is not None else None
        if money is not None:
            told = snapshot.calc(GenaiUsage(**counts), model.id, price_id, None, LATE, terms)
            assert money[0] == told.total_price


def priced(provider, model, body, **options):
    """The cost of a whole answer by a loopback server."""
    with serve_recording(
        [{"status": 200, "headers": {"content-type": "application/json"}, "body": json.dumps(body)}]
    ) as server:
        url = server.base_url + ("" if provider == "anthropic" else "/v1")
        return (
            LLM.named(f"{provider}/{model}", base_url=url, api_key="not-a-key-000000")
            .chat("hi", **options)
            .usage.cost_usd
        )


def test_a_call_that_was_answered_on_other_terms_costs_what_they_cost(monkeypatch):
    class Late(datetime):
        @classmethod
        def now(cls, tz=None):
            return LATE.astimezone(tz)

    monkeypatch.setattr(prices, "datetime", Late)
    message = {"id": "m", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "stop_reason": "end_turn",
               "content": [{"type": "text", "text": "x"}]}  # fmt: skip
    counts = {"input_tokens": 1000, "output_tokens": 100}
    plain = priced("anthropic", "claude-sonnet-4-5", {**message, "usage": {**counts, "service_tier": "standard"}})
    batch = priced("anthropic", "claude-sonnet-4-5", {**message, "usage": {**counts, "service_tier": "batch"}})
    assert plain == pytest.approx((1000 * 3 + 100 * 15) / M, abs=1e-9)
    assert batch == pytest.approx(plain / 2, abs=1e-9)
    answer = {"id": "c", "object": "chat.completion", "model": "gpt-4o",
              "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"}}],
              "usage": {"prompt_tokens": 1000, "completion_tokens": 100, "total_tokens": 1100}}  # fmt: skip
    fast = (1000 * 4.25 + 100 * 17) / M
    assert priced("openai-chat", "gpt-4o", {**answer, "service_tier": "priority"}) == pytest.approx(fast, abs=1e-9)
    wanted = {"extensions": {"openai": {"service_tier": "priority"}}}
    assert priced("openai-chat", "gpt-4o", answer, **wanted) == pytest.approx(fast, abs=1e-9)
    refused = priced("openai-chat", "gpt-4o", {**answer, "service_tier": "default"}, **wanted)
    assert refused == pytest.approx((1000 * 2.5 + 100 * 10) / M, abs=1e-9), "the answer says on which terms it was"


@pytest.mark.parametrize(
    ("provider", "model", "usage"),
    [
        ("openai", "no-such-model-9", {"input_tokens": 1, "output_tokens": 1}),
        ("nobody", "gpt-4o", {"input_tokens": 1, "output_tokens": 1}),
        ("local", "smollm2-135m", {"input_tokens": 1, "output_tokens": 1}),
        ("ollama", "gpt-4o", {"input_tokens": 1, "output_tokens": 1}),
        ("openai", None, {"input_tokens": 1, "output_tokens": 1}),
        (None, "gpt-4o", {"input_tokens": 1, "output_tokens": 1}),
        ("openai", "gpt-4o", {"input_tokens": 5}),
        ("openai", "gpt-4o", {"output_tokens": 5}),
        ("openai", "gpt-4o", {}),
    ],
)
def test_what_is_not_known_costs_none(provider, model, usage):
    assert cost_usd(Usage(**usage), provider=provider, model=model) is None


def test_counts_that_contradict_each_other_still_have_a_cost():
    usage = Usage(input_tokens=10, output_tokens=5, reasoning_tokens=500, cache_read_tokens=4)
    assert cost_usd(usage, provider="openai", model="gpt-4o", at=AT) == pytest.approx((6 * 2.5 + 4 * 1.25 + 5 * 10) / M)


_COUNT = st.none() | st.integers(0, 10**9)


@given(
    counts=st.tuples(_COUNT, _COUNT, _COUNT, _COUNT, _COUNT),
    details=st.dictionaries(
        st.sampled_from(["cache_write_1h_tokens", "input_audio_tokens", "web_search_requests", "nonsense"]),
        st.integers(0, 10**6),
    ),
    model=st.sampled_from(["gpt-4o", "claude-sonnet-4-5", "gpt-5-mini", "x", ""]),
    provider=st.sampled_from(["openai", "anthropic", "openrouter", "deepseek"]),
)
@settings(deadline=None, max_examples=100)
def test_it_never_raises_and_is_never_negative(counts, details, model, provider):
    names = ("input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens")
    cost = cost_usd(Usage(**dict(zip(names, counts, strict=True)), details=details), provider=provider, model=model)
    assert cost is None or cost >= 0


@pytest.mark.parametrize("price_id", ["openai", "anthropic", "google", "deepseek", "perplexity", "azure"])
@pytest.mark.parametrize("at", [AT, datetime(2026, 11, 1, 17, tzinfo=UTC)])
def test_the_short_way_gives_what_the_package_calculates(price_id, at):
    """Every model of these providers, below and above the tiers' thresholds."""
    snapshot = data_snapshot.get_snapshot()
    provider = next(provider for provider in snapshot.providers if provider.id == price_id)
    short = 0
    for model in provider.models:
        if provider.find_model(model.id) is None:
            continue  # a family's entry, matched by longer names only
        for total in (1_000, 300_000):
            counts = {"input_tokens": total, "output_tokens": 77, "cache_read_tokens": 300, "cache_write_tokens": 200}
            rates = prices._make_rates(snapshot, price_id, model.id, at, {})
            money = rates.money(counts) if rates else None
            whole = prices._calculated(snapshot, price_id, model.id, counts, at, None)
            if money is not None and whole is not None:
                short += 1
                assert float(money[0]) == pytest.approx(whole.cost_usd, abs=1e-12), model.id
                assert float(money[2]) == pytest.approx(whole.output_usd, abs=1e-12), model.id
    assert short > len(provider.models) / 2


def test_where_a_price_comes_from_is_kept():
    found = price(Usage(input_tokens=1, output_tokens=1), provider="azure", model="gpt-4o", at=AT)
    assert found.as_of == "2026-06-01"
    assert found.source.startswith("genai-prices 0.")
    assert (found.model, found.provider) == ("gpt-4o", "azure")
    assert found.cost_usd == pytest.approx(found.input_usd + found.output_usd)


def test_the_price_list_knows_every_provider_that_claims_to_have_prices():
    known = {provider.id for provider in data_snapshot.get_snapshot().providers}
    assert {preset.price_id for preset in PRESETS if preset.price_id} <= known


@pytest.mark.parametrize("price_id", sorted({preset.price_id for preset in PRESETS if preset.price_id}))
def test_one_provider_read_alone_is_as_in_the_whole_list(price_id):
    snapshot = data_snapshot.get_snapshot()
    whole = {provider.id: provider for provider in snapshot.providers}
    fallbacks = list(whole[price_id].fallback_model_providers or ())
    offered = [model for name in (price_id, *fallbacks) for model in whole[name].models]
    for model in offered[:: len(offered) // 12 + 1]:
        for name in (model.id, model.id.upper(), f"{model.id}-20261130", f"{model.id}-2026-11-30", f"{model.id}-x"):
            part = prices._some_providers(price_id, name)
            assert [provider.id for provider in part] == [price_id, *fallbacks]
            for got in part:
                assert got == replace(whole[got.id], models=got.models)
                # No more models than needed would make reading them alone pointless.
                assert len(got.models) <= max(20, len(whole[got.id].models) // 3)
            found = part[0].find_model(name, all_providers=part)
            assert found == whole[price_id].find_model(name, all_providers=snapshot.providers), name


@pytest.mark.parametrize(
    "clauses",
    ["ClauseNot(equals='gpt-4o')", "ClauseOr(or_=[ClauseEquals(equals='x'), ClauseNew(new=1)])"],
)
def test_a_model_whose_clauses_are_of_a_kind_not_known_is_kept(clauses):
    text = f"                id='a',\n                match={clauses},\n                name='A',"
    assert prices._can_mean(text, {"gpt-4.1"})


def test_prices_load_without_the_whole_list():
    code = (
        "import sys\nfrom rein_nb.ir import Usage\nfrom rein_nb.providers.prices import cost_usd\n"
        "assert cost_usd(Usage(input_tokens=10, output_tokens=1), provider='openai', model='gpt-4o')\n"
        "assert 'genai_prices.data' not in sys.modules\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=REPO).returncode == 0


def test_an_unreadable_price_list_is_an_unknown_price(monkeypatch):
    monkeypatch.setattr(prices, "_rates_of", {})
    monkeypatch.setattr(prices, "_snapshot", lambda price_id, model: 1 / 0)
    assert cost_usd(Usage(input_tokens=1, output_tokens=1), provider="openai", model="gpt-4o") is None
    prices.warm("openai", "gpt-4o")


def test_a_list_the_user_keeps_up_to_date_is_used(monkeypatch):
    usage = Usage(input_tokens=1, output_tokens=1)
    before = cost_usd(usage, provider="openai", model="gpt-4o")
    assert before
    snapshot = data_snapshot.DataSnapshot(providers=[], from_auto_update=True)
    monkeypatch.setattr(data_snapshot, "_custom_snapshot", snapshot)
    assert cost_usd(usage, provider="openai", model="gpt-4o") is None
    monkeypatch.setattr(data_snapshot, "_custom_snapshot", None)
    assert cost_usd(usage, provider="openai", model="gpt-4o") == before


def test_find_model():
    assert find_model("gpt-4o", provider="openai").context_window == 128_000
    assert find_model("no-such-model-9", provider="openai") is None
    assert find_model("gpt-4o", provider="ollama") is None
