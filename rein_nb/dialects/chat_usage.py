"""Usage objects of the Chat Completions family, as `Usage`.

Sources: OpenAI ``CompletionUsage``; DeepSeek ``prompt_cache_hit_tokens``; Anthropic's names behind Databricks and others; xAI's
``cost_in_usd_ticks`` (10^10 ticks to a dollar, https://docs.x.ai/docs/guides/cost-tracking); OpenRouter and Vercel ``cost``.
"""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.counts import count, dollars
from rein_nb.dialects.values import as_dict
from rein_nb.ir import Usage
from rein_nb.ir.base import JSON

_TICKS_PER_DOLLAR = 10**10

CACHE_READ = ("prompt_cache_hit_tokens", "cache_read_input_tokens", "cached_tokens")
CACHE_WRITE = ("cache_creation_input_tokens", "cache_write_tokens")
_MAPPED_INPUT = frozenset({"cached_tokens", "cache_write_tokens"})
_MAPPED_OUTPUT = frozenset({"reasoning_tokens"})


def chat_usage(raw: JSON, cost: JSON = None) -> Usage | None:
    """Usage from a response's ``usage`` object; None where there is none. A missing or null count stays unknown (C085).

    Parameters
    ----------
    raw
        The object as sent.
    cost
        A cost that the response states beside it (Venice).
    """
    if not isinstance(raw, dict) or not raw:
        return None
    into, out = as_dict(raw.get("prompt_tokens_details")), as_dict(raw.get("completion_tokens_details"))
    prompt, completion = count(raw.get("prompt_tokens")), count(raw.get("completion_tokens"))
    reasoning = _first(count(out.get("reasoning_tokens")), count(raw.get("reasoning_tokens")))
    read = _first(count(into.get("cached_tokens")), *(count(raw.get(name)) for name in CACHE_READ))
    write = _first(count(into.get("cache_write_tokens")), *(count(raw.get(name)) for name in CACHE_WRITE))
    details = _details(into, "input", _MAPPED_INPUT) | _details(out, "output", _MAPPED_OUTPUT)
    total = count(raw.get("total_tokens"))
    if prompt is not None and (read or 0) + (write or 0) > prompt:
        # Anthropic's counting behind a Chat interface: the cached tokens stand beside the prompt's, not within.
        prompt += (read or 0) + (write or 0)
    elif prompt is not None and completion is not None and total is not None and total > prompt + completion:
        # xAI and Google leave reasoning out of completion_tokens, and only the total shows it.
        if total != prompt + completion + (reasoning or 0):
            details["unattributed_output_tokens"] = total - prompt - completion
        completion = total - prompt
    return Usage(
        input_tokens=prompt,
        output_tokens=completion,
        reasoning_tokens=reasoning,
        cache_read_tokens=read,
        cache_write_tokens=write,
        details=details,
        cost_usd=_cost(raw, cost),
        raw=raw,
    )


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _details(counts: dict[str, Any], side: str, mapped: frozenset[str]) -> dict[str, int]:
    return {
        f"{side}_{name}": number
        for name, value in counts.items()
        if name not in mapped and (number := count(value)) is not None
    }


def _cost(raw: dict[str, Any], beside: JSON) -> float | None:
    cost = raw.get("cost")
    if isinstance(cost, dict):  # Perplexity
        cost = cost.get("total_cost")
    if dollars(cost) is not None:
        return dollars(cost)
    ticks = count(raw.get("cost_in_usd_ticks"))
    if ticks is not None:
        return ticks / _TICKS_PER_DOLLAR
    return dollars(as_dict(beside).get("usd"))
