"""OpenAI Responses: usage objects as `Usage`. Both totals already hold their breakdowns on this wire."""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.counts import count, dollars
from rein_nb.dialects.values import as_dict
from rein_nb.ir import Usage
from rein_nb.ir.base import JSON

_TICKS_PER_DOLLAR = 10**10


def usage_of(raw: JSON) -> Usage | None:
    """The neutral usage; None when the response reports none."""
    if not isinstance(raw, dict) or not raw:
        return None
    given, made = as_dict(raw.get("input_tokens_details")), as_dict(raw.get("output_tokens_details"))
    details = {
        f"input_{name}": tokens
        for name, value in given.items()
        if name not in ("cached_tokens", "cache_write_tokens") and (tokens := count(value)) is not None
    }
    details |= {
        f"output_{name}": tokens
        for name, value in made.items()
        if name != "reasoning_tokens" and (tokens := count(value)) is not None
    }
    for name, value in as_dict(given.get("cache_write_tokens_details")).items():
        lifetime = name.removeprefix("ttl_").removesuffix("_tokens")
        if (tokens := count(value)) is not None:
            details[f"cache_write_{lifetime}_tokens"] = tokens
    # xAI and others count what their own tools did.
    for name in ("num_sources_used", "num_server_side_tools_used"):
        if (calls := count(raw.get(name))) is not None:
            details[name] = calls
    return Usage(
        input_tokens=count(raw.get("input_tokens")),
        output_tokens=count(raw.get("output_tokens")),
        reasoning_tokens=count(made.get("reasoning_tokens")),
        cache_read_tokens=count(given.get("cached_tokens")),
        cache_write_tokens=count(given.get("cache_write_tokens")),
        details=details,
        cost_usd=_cost(raw),
        raw=raw,
    )


def _cost(raw: dict[str, Any]) -> float | None:
    """The cost that a gateway states: OpenRouter in dollars, xAI in ticks (https://docs.x.ai/docs/guides/cost-tracking)."""
    ticks = dollars(raw.get("cost_in_usd_ticks"))
    return ticks / _TICKS_PER_DOLLAR if ticks is not None else dollars(raw.get("cost"))
