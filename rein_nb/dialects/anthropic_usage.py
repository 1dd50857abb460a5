"""Anthropic Messages: usage objects as `Usage`.

``input_tokens`` on this wire counts only what was neither read from nor written to the cache (C084); ours counts all input. Within one
response later reports are running totals that replace earlier ones, field by field, and null means "as before" (C086).
"""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.counts import count, dollars
from rein_nb.ir import Usage
from rein_nb.ir.base import JSON


def merge_usage(known: dict[str, Any], report: JSON) -> dict[str, Any]:
    """The wire usage of one response after a further report of it. Neither argument is changed."""
    if not isinstance(report, dict):
        return known
    return {**known, **{key: value for key, value in report.items() if value is not None}}


def usage_of(raw: dict[str, Any]) -> Usage:
    """The neutral usage for a (merged) usage object."""
    plain = count(raw.get("input_tokens"))
    read = count(raw.get("cache_read_input_tokens"))
    written = count(raw.get("cache_creation_input_tokens"))
    output_details = raw.get("output_tokens_details")
    return Usage(
        input_tokens=None if plain is None else plain + (read or 0) + (written or 0),
        output_tokens=count(raw.get("output_tokens")),
        reasoning_tokens=count(output_details.get("thinking_tokens")) if isinstance(output_details, dict) else None,
        cache_read_tokens=read,
        cache_write_tokens=written,
        details=_details(raw),
        cost_usd=dollars(raw.get("cost")),
        raw=raw or None,
    )


def _details(raw: dict[str, Any]) -> dict[str, int]:
    """Cache writes by lifetime (``ephemeral_5m_input_tokens``), server tool calls, and the tokens of inner iterations.

    The totals leave out what a compaction or an advisor model consumed inside the call
    (https://platform.claude.com/docs/en/build-with-claude/compaction), so those iterations are told apart here.
    """
    details: dict[str, int] = {}
    written = raw.get("cache_creation")
    if isinstance(written, dict):
        for key, value in written.items():
            lifetime = key.removeprefix("ephemeral_").removesuffix("_input_tokens")
            if (tokens := count(value)) is not None:
                details[f"cache_write_{lifetime}_tokens"] = tokens
    calls = raw.get("server_tool_use")
    if isinstance(calls, dict):
        details |= {key: number for key, value in calls.items() if (number := count(value)) is not None}
    iterations = raw.get("iterations")
    for step in iterations if isinstance(iterations, list) else ():
        kind = step.get("type") if isinstance(step, dict) else None
        if not isinstance(kind, str) or kind == "message":
            continue
        for field in ("input_tokens", "output_tokens"):
            tokens = count(step.get(field))
            if tokens is not None:
                details[f"{kind}_{field}"] = details.get(f"{kind}_{field}", 0) + tokens
    return details
