"""What a call costs, by the `genai-prices` price list that is installed. No network; an unknown price is None, never 0.

The list is one Python literal of 1.6 MB, which takes about half a second to build: more than some SDKs take to load. It is
a sequence of providers with their models, so only the one provider and those of its models that the name can mean are built here, from the
same file; where the file does not look as expected, or the user keeps prices up to date with ``genai_prices.UpdatePrices``, the package's
own list is used.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from rein_nb.ir.usage import Usage

_log = logging.getLogger("rein_nb.prices")

_DETAILS = {"web_search_requests": "web_searches"}
"""Names of `Usage.details` counts that the price list calls otherwise."""

_MAIN = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
_ZERO = Decimal(0)

_Money: TypeAlias = tuple[Any, Any, Any]
"""(total, input, output): US dollars as Decimals."""

_TERMS = ("service_tier", "speed", "processing")
"""What the price list calls terms of a call, and providers in requests and answers too."""

_TERM_OF_VALUE = {"batch": "processing"}
"""Values that the price list files under another term: Anthropic answers with ``service_tier: batch``."""

_NO_TERM = frozenset({"", "auto", "standard", "standard_only"})
"""Values that say nothing about the price: usual terms, or terms that only the answer will tell."""

_PROVIDER = "\n    Provider(\n"
"""How a provider begins in the list's file."""

_MODELS = "\n        models=["
"""How a provider's models begin there."""

_MODEL = "\n            ModelInfo(\n"
"""How a model begins there."""

_MATCH = re.compile(r"\n                match=(.*?)\n                [a-z_]+=", re.DOTALL)
"""What a model's names look like there, up to its next field."""

_CLAUSES = re.compile(r"Clause\w+")
_COMPARED = re.compile(r"(\w+)='((?:[^'\\]|\\.)*)'")
"""What a clause compares with, and how."""

_KNOWN_CLAUSES = frozenset(
    {"ClauseStartsWith", "ClauseEndsWith", "ClauseContains", "ClauseEquals", "ClauseRegex", "ClauseOr", "ClauseAnd"}
)

_COMPACT_DATE = re.compile(r"(\d{4})(\d{2})(\d{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """The cost of one response.

    Attributes
    ----------
    cost_usd, input_usd, output_usd
        US dollars: all of it, and its input and output tokens' share.
    model, provider
        The price list's names of what was matched.
    as_of
        The date whose price was taken, ISO 8601.
    source
        The list and its version; with the time of its last update, when it was updated.
    """

    cost_usd: float
    input_usd: float
    output_usd: float
    model: str
    provider: str
    as_of: str
    source: str


def cost_usd(
    usage: Usage,
    *,
    provider: str | None,
    model: str | None,
    at: datetime | None = None,
    terms: Mapping[str, str] | None = None,
) -> float | None:
    """A response's cost in US dollars; None when the price, or a token count that it needs, is unknown. Never raises.

    Parameters
    ----------
    usage
        Of one response.
    provider, model
        As in ``provider/model``.
    at
        When the request was made; now by default. Prices change.
    terms
        What the provider prices otherwise: ``{"processing": "batch"}``, ``{"service_tier": "priority"}``...

    Examples
    --------
    >>> cost_usd(Usage(input_tokens=1_000_000, output_tokens=0), provider="openai", model="gpt-4o")
    2.5
    >>> cost_usd(Usage(input_tokens=10, output_tokens=1), provider="openai", model="no-such-model") is None
    True
    """
    found = _looked_up(usage, provider, model, at, terms)
    if found is None or isinstance(found, Price):
        return found.cost_usd if found is not None else None
    return float(found[1][0])  # a call's way: without the names and the date that go with a `Price`


def price(
    usage: Usage,
    *,
    provider: str | None,
    model: str | None,
    at: datetime | None = None,
    terms: Mapping[str, str] | None = None,
) -> Price | None:
    """As `cost_usd`, with what the cost is made of and where the price comes from."""
    at = at or datetime.now(tz=UTC)
    found = _looked_up(usage, provider, model, at, terms)
    if found is None or isinstance(found, Price):
        return found
    rates, money = found
    return _as_price(*money, rates.model, rates.provider, at, rates.updated)


def _looked_up(
    usage: Usage, provider: str | None, model: str | None, at: datetime | None, terms: Mapping[str, str] | None
) -> Price | tuple[_Rates, _Money] | None:
    if not model or usage.input_tokens is None or usage.output_tokens is None:
        return None
    try:
        return _found(usage, provider, model, at or datetime.now(tz=UTC), terms or {})
    except Exception:
        # The price list is other people's data and code: whatever is wrong with it, an answer must not be lost over it.
        _log.debug("no price for %s/%s", provider, model, exc_info=True)
        return None


def terms_of(
    usage: Usage, answer: Mapping[str, Any] | None = None, asked: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """On which terms a call was answered: by what the answer says, else by what was asked for.

    Parameters
    ----------
    usage
        Of the response; its `raw` may say it.
    answer
        A completion's ``extra``.
    asked
        The request's ``extensions``.

    Examples
    --------
    >>> terms_of(Usage(raw={"service_tier": "batch"}))
    {'processing': 'batch'}
    >>> terms_of(Usage(), {"openai": {"service_tier": "default"}}, {"openai": {"service_tier": "flex"}})
    {'service_tier': 'default'}
    """
    places = [usage.raw, *(answer or {}).values(), *(asked or {}).values()]
    terms: dict[str, str] = {}
    for place in places:
        for name in _TERMS if isinstance(place, Mapping) else ():
            value = place.get(name)
            if isinstance(value, str) and value not in _NO_TERM:
                terms.setdefault(_TERM_OF_VALUE.get(value, name), value)
    return terms


def warm(provider: str | None, model: str) -> None:
    """Load a model's prices now, so that the first answer does not wait for them. For a worker thread. Never raises."""
    try:
        price_id = _price_id(provider)
        if price_id is not None:
            _snapshot(price_id, model)
    except Exception:
        _log.debug("the price list cannot be loaded", exc_info=True)


def find_model(model: str, *, provider: str | None = None) -> Any:
    """The price list's entry for a model (``context_window``, ``deprecated``, ``prices``...); None when it has none."""
    try:
        price_id = _price_id(provider)
        if provider is not None and price_id is None:
            return None
        snapshot = _snapshot(price_id, model)
        return snapshot.find_provider_model(model, None, price_id, None)[1]
    except LookupError:
        return None
    except Exception:
        _log.debug("no price list entry for %s/%s", provider, model, exc_info=True)
        return None


def _found(
    usage: Usage, provider: str | None, model: str, at: datetime, terms: Mapping[str, str]
) -> Price | tuple[_Rates, _Money] | None:
    price_id = _price_id(provider)
    if price_id is None:
        return None
    counts = _counts(usage)
    rates = _rates(price_id, model, at, terms)
    money = rates.money(counts) if rates is not None else None
    if rates is None or money is None:
        return _calculated(_snapshot(price_id, model), price_id, model, counts, at, terms)
    return rates, money


def _calculated(
    snapshot: Any, price_id: str, model: str, counts: dict[str, int], at: datetime, terms: Mapping[str, str]
) -> Price | None:
    """By the package's own calculation, which knows every unit, tier and term."""
    from genai_prices import Usage as GenaiUsage

    for some in (counts, {name: counts[name] for name in _MAIN if name in counts}):
        try:
            found = snapshot.calc(GenaiUsage(**some), model, price_id, None, at, terms)
        except ValueError:
            continue  # counts that contradict each other: fall back to the main ones
        return _as_price(
            found.total_price, found.input_price, found.output_price,
            found.model.id, found.provider.id, at, found.auto_update_timestamp,
        )  # fmt: skip
    return None


def _as_price(
    total: Any, input_: Any, output: Any, model: str, provider: str, at: datetime, updated: datetime | None
) -> Price:
    return Price(
        cost_usd=float(total),
        input_usd=float(input_),
        output_usd=float(output),
        model=model,
        provider=provider,
        as_of=f"{at:%Y-%m-%d}",
        source=_source() + (f", updated {updated:%Y-%m-%d}" if updated else ""),
    )


@functools.cache
def _source() -> str:
    import genai_prices

    return f"genai-prices {genai_prices.__version__}"


@dataclass(frozen=True, slots=True)
class _Rates:
    """A model's prices on one day, where a response with nothing but the main counts can be priced by four products."""

    model: str
    provider: str
    updated: datetime | None
    prices: Mapping[str, Any]
    elsewhere: frozenset[str]
    """Counts that are priced by themselves too: a response that has any needs the package's own calculation."""

    def money(self, counts: Mapping[str, int]) -> _Money | None:
        """(total, input, output) in US dollars as Decimals; None where four products do not do."""
        if any(counts.get(name) for name in counts.keys() & self.elsewhere):
            return None
        read, write = counts.get("cache_read_tokens", 0), counts.get("cache_write_tokens", 0)
        total_input = counts["input_tokens"]
        plain = total_input - read - write
        if plain < 0:
            return None
        # What a cache costs where it has no price of its own, input costs.
        amounts = {"input_mtok": plain, "output_mtok": counts["output_tokens"]}
        for name, tokens in (("cache_read_mtok", read), ("cache_write_mtok", write)):
            if name in self.prices:
                amounts[name] = tokens
            else:
                amounts["input_mtok"] += tokens
        money = {
            name: _unit_price(self.prices[name], total_input) * tokens / 1_000_000
            for name, tokens in amounts.items()
            if name in self.prices
        }
        output = money.pop("output_mtok", _ZERO)
        spent = sum(money.values(), _ZERO)
        return spent + output, spent, output


def _unit_price(price: Any, total_input: int) -> Any:
    for tier in reversed(getattr(price, "tiers", ())):
        if total_input > tier.start:
            return tier.price
    return getattr(price, "base", price)


_rates_of: dict[tuple[str, str, date, tuple[tuple[str, str], ...]], tuple[Any, _Rates | None]] = {}
"""By price list name, model, day and terms: the user's own list that was in use, and what was found."""


def _rates(price_id: str, model: str, at: datetime, terms: Mapping[str, str]) -> _Rates | None:
    key = (price_id, model, at.date(), tuple(terms.items()))
    own = _own_list()
    found = _rates_of.get(key)
    if found is None or found[0] is not own:
        if len(_rates_of) > _KEPT:
            _rates_of.clear()
        found = _rates_of[key] = own, _make_rates(_snapshot(price_id, model), price_id, model, at, terms)
    return found[1]


def _make_rates(snapshot: Any, price_id: str, model: str, at: datetime, terms: Mapping[str, str]) -> _Rates | None:
    from genai_prices.types import TimeOfDateConstraint
    from genai_prices.units import _get_registry

    provider, found = snapshot.find_provider_model(model, None, price_id, None)
    if isinstance(found.prices, list) and any(isinstance(row.constraint, TimeOfDateConstraint) for row in found.prices):
        return None
    # Terms are the provider's own; a model that is another's, offered here, has none.
    own = any(found is model for model in provider.models)
    day = found.get_prices(at, dict(terms)) if terms and own else found.get_prices(at)
    prices = {name: value for name, value in vars(day).items() if value is not None}
    registry = _get_registry()
    units = {name: registry.unit_for_price_key(name) for name in prices}
    if any(unit.usage_key == "requests" for unit in units.values()):
        return None
    elsewhere = frozenset(unit.usage_key for unit in units.values() if unit.usage_key not in _MAIN)
    updated = snapshot.timestamp if snapshot.from_auto_update else None
    return _Rates(
        found.id,
        provider.id,
        updated,
        {name: prices[name] for name in prices if units[name].usage_key in _MAIN},
        elsewhere,
    )


def _price_id(provider: str | None) -> str | None:
    if provider is None:
        return None
    from rein_nb.providers.spec import find_spec

    spec = find_spec(provider)
    return spec.price_id if spec is not None else None


def _counts(usage: Usage) -> dict[str, int]:
    """What a response used, under the price list's names."""
    counts = {name: count for name in _MAIN if (count := getattr(usage, name)) is not None}
    if usage.reasoning_tokens is not None:
        counts["output_reasoning_tokens"] = usage.reasoning_tokens
    if usage.details:
        from genai_prices.units import _get_registry

        known = _get_registry().units
        for name, count in usage.details.items():
            unit = _DETAILS.get(name, name)
            if unit in known:
                counts.setdefault(unit, count)
    return counts


_KEPT = 1000
"""Models whose prices are kept at hand."""

_lock = threading.RLock()
_snapshots: dict[tuple[str, str], Any] = {}


def _own_list() -> Any:
    """The price list that the user keeps up to date; None while there is none."""
    module = sys.modules.get("genai_prices.data_snapshot")
    return getattr(module, "_custom_snapshot", None)


def _snapshot(price_id: str | None, model: str) -> Any:
    """A price list that has at least what this provider's name of a model can mean."""
    from genai_prices import data_snapshot

    whole = _own_list() is not None or "genai_prices.data" in sys.modules
    if whole or price_id is None:
        return data_snapshot.get_snapshot()
    key = (price_id, model)
    with _lock:
        if key not in _snapshots:
            providers = _some_providers(price_id, model)
            if providers is None:
                return data_snapshot.get_snapshot()
            if len(_snapshots) > _KEPT:
                _snapshots.clear()
            _snapshots[key] = data_snapshot.DataSnapshot(providers=providers, from_auto_update=False)
        return _snapshots[key]


def _some_providers(price_id: str, model: str) -> list[Any] | None:
    """One provider of the installed list (none, where it has no such) and those whose prices it falls back to.

    Of their models, those that `model` can mean, in their order. None when the file is not as expected.
    """
    import datetime as datetime_module

    from genai_prices import types

    names = {name: getattr(types, name) for name in types.__all__}
    names.update(datetime=datetime_module, Decimal=Decimal)

    def build(section: str) -> Any:
        # The installed package's own literal, evaluated as importing it would.
        source = _with_models_named(section, model.lower()).strip().rstrip(",")
        return eval(compile(f"({source})", "genai_prices/data.py", "eval"), names)  # noqa: S307

    found = _section(price_id)
    if found is None:
        return None
    if not found:
        return []
    try:
        provider = build(found)
        others = map(_section, provider.fallback_model_providers or ())
        return [provider, *(build(other) for other in others if other)]
    except (SyntaxError, NameError, TypeError, ValueError):
        return None


@functools.lru_cache(maxsize=32)
def _section(price_id: str) -> str | None:
    """A provider's text in the installed list; empty where it has no such, None when the file is not as expected."""
    from pathlib import Path

    from genai_prices import types

    data = Path(str(types.__file__)).with_name("data.py").read_bytes()
    begins = _PROVIDER.encode()
    if begins not in data:
        return None
    start = data.find(begins + f"        id={price_id!r}".encode())
    if start < 0:
        return ""
    end = data.find(begins, start + 1)
    return data[start : end if end >= 0 else data.rindex(b"\n]")].decode()


def _with_models_named(section: str, name: str) -> str:
    """A provider's text without the models that `name` cannot mean."""
    head, models, rest = section.partition(_MODELS)
    items, end, tail = rest.rpartition("\n        ],")
    first, *texts = items.split(_MODEL)
    if not models or not end or first:
        return section
    # The list's own search writes a date with dashes too.
    forms = {name, _COMPACT_DATE.sub(r"\1-\2-\3", name)}
    return "".join([head, models, *(_MODEL + text for text in texts if _can_mean(text, forms)), end, tail])


def _can_mean(text: str, forms: set[str]) -> bool:
    """Whether a model's text has a clause that can hold for one of these names; yes, where it has clauses of unknown kinds."""
    match = _MATCH.search(text)
    if match is None:
        return True
    if not _KNOWN_CLAUSES.issuperset(_CLAUSES.findall(match[1])) or '"' in match[1]:
        return True
    for field, value in _COMPARED.findall(match[1]):
        if field == "regex":
            pattern = value.replace("\\\\", "\\")  # as written in a literal
            if any(re.search(pattern, form, re.IGNORECASE) for form in forms):
                return True
        elif any(value.lower() in form for form in forms):
            return True
    return False
