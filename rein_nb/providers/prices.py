"""What a call costs, by the `genai-prices` price list that is installed. No network; an unknown price is None, never 0.

The list is one Python literal of 1.6 MB, which takes about half a second to build: more than some SDKs take to load. It is
a sequence of providers, so only the one that is asked for is built here, from the same file; where the file does not look as expected, or
the user keeps prices up to date with ``genai_prices.UpdatePrices``, the package's own list is used.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from rein_nb.ir.usage import Usage

_log = logging.getLogger("rein_nb.prices")

_DETAILS = {"web_search_requests": "web_searches"}
"""Names of `Usage.details` counts that the price list calls otherwise."""

_PROVIDER = re.compile(r"^    Provider\(\n        id='([^']+)'", re.MULTILINE)


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
    found = price(usage, provider=provider, model=model, at=at, terms=terms)
    return found.cost_usd if found is not None else None


def price(
    usage: Usage,
    *,
    provider: str | None,
    model: str | None,
    at: datetime | None = None,
    terms: Mapping[str, str] | None = None,
) -> Price | None:
    """As `cost_usd`, with what the cost is made of and where the price comes from."""
    if not model or usage.input_tokens is None or usage.output_tokens is None:
        return None
    try:
        return _price(usage, provider, model, at or datetime.now(tz=UTC), terms)
    except Exception:
        # The price list is other people's data and code: whatever is wrong with it, an answer must not be lost over it.
        _log.debug("no price for %s/%s", provider, model, exc_info=True)
        return None


def warm(provider: str | None) -> None:
    """Load a provider's prices now, so that the first answer does not wait for them. For a worker thread. Never raises."""
    try:
        price_id = _price_id(provider)
        if price_id is not None:
            _snapshot(price_id)
    except Exception:
        _log.debug("the price list cannot be loaded", exc_info=True)


def find_model(model: str, *, provider: str | None = None) -> Any:
    """The price list's entry for a model (``context_window``, ``deprecated``, ``prices``...); None when it has none."""
    try:
        price_id = _price_id(provider)
        if provider is not None and price_id is None:
            return None
        snapshot = _snapshot(price_id)
        return snapshot.find_provider_model(model, None, price_id, None)[1]
    except LookupError:
        return None
    except Exception:
        _log.debug("no price list entry for %s/%s", provider, model, exc_info=True)
        return None


def _price(usage: Usage, provider: str | None, model: str, at: datetime, terms: Mapping[str, str] | None) -> Price | None:
    price_id = _price_id(provider)
    if price_id is None:
        return None
    snapshot = _snapshot(price_id)
    calculated: Any = None
    for counts in (_counts(usage), _main_counts(usage)):
        try:
            calculated = snapshot.calc(_genai_usage(counts), model, price_id, None, at, terms)
            break
        except ValueError:
            continue  # counts that contradict each other: fall back to the main ones
    if calculated is None:
        return None
    import genai_prices

    updated = f", updated {calculated.auto_update_timestamp:%Y-%m-%d}" if calculated.auto_update_timestamp else ""
    return Price(
        cost_usd=float(calculated.total_price),
        input_usd=float(calculated.input_price),
        output_usd=float(calculated.output_price),
        model=calculated.model.id,
        provider=calculated.provider.id,
        as_of=f"{at:%Y-%m-%d}",
        source=f"genai-prices {genai_prices.__version__}{updated}",
    )


def _price_id(provider: str | None) -> str | None:
    if provider is None:
        return None
    from rein_nb.providers.spec import find_spec

    spec = find_spec(provider)
    return spec.price_id if spec is not None else None


def _main_counts(usage: Usage) -> dict[str, int]:
    counts = {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cache_read_tokens": usage.cache_read_tokens,
        "cache_write_tokens": usage.cache_write_tokens,
    }
    return {name: count for name, count in counts.items() if count is not None}


def _counts(usage: Usage) -> dict[str, int]:
    from genai_prices.units import _get_registry

    counts = _main_counts(usage)
    if usage.reasoning_tokens is not None:
        counts["output_reasoning_tokens"] = usage.reasoning_tokens
    known = _get_registry().units
    for name, count in usage.details.items():
        unit = _DETAILS.get(name, name)
        if unit in known:
            counts.setdefault(unit, count)
    return counts


def _genai_usage(counts: dict[str, int]) -> Any:
    from genai_prices import Usage as GenaiUsage

    return GenaiUsage(**counts)


_lock = threading.RLock()
_snapshots: dict[str, Any] = {}


def _snapshot(price_id: str | None) -> Any:
    """A price list that has at least this provider."""
    import sys

    from genai_prices import data_snapshot

    whole = getattr(data_snapshot, "_custom_snapshot", None) is not None or "genai_prices.data" in sys.modules
    if whole or price_id is None:
        return data_snapshot.get_snapshot()
    with _lock:
        if price_id not in _snapshots:
            providers = _some_providers(price_id)
            if providers is None:
                return data_snapshot.get_snapshot()
            _snapshots[price_id] = data_snapshot.DataSnapshot(providers=providers, from_auto_update=False)
        return _snapshots[price_id]


def _some_providers(price_id: str) -> list[Any] | None:
    """One provider of the installed list (none, where it has no such) and those whose prices it falls back to.

    None when the file is not as expected.
    """
    import datetime as datetime_module
    from decimal import Decimal
    from pathlib import Path

    from genai_prices import types

    path = Path(str(types.__file__)).with_name("data.py")
    text = path.read_text(encoding="utf-8")
    starts = [(match.start(), match[1]) for match in _PROVIDER.finditer(text)]
    ends = [start for start, _ in starts[1:]] + [text.rindex("\n]")]
    sections = {name: text[start:end] for (start, name), end in zip(starts, ends, strict=True)}
    names = {name: getattr(types, name) for name in types.__all__}
    names.update(datetime=datetime_module, Decimal=Decimal)

    def build(name: str) -> Any:
        # The installed package's own literal, evaluated as importing it would.
        return eval(compile(f"({sections[name].strip().rstrip(',')})", str(path), "eval"), names)  # noqa: S307

    if not sections:
        return None
    if price_id not in sections:
        return []
    try:
        provider = build(price_id)
        return [provider, *(build(name) for name in provider.fallback_model_providers or () if name in sections)]
    except (SyntaxError, NameError, TypeError):
        return None
