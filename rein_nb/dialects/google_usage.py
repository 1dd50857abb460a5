"""Google's token counts."""

from __future__ import annotations

from typing import Any

from rein_nb.ir import Usage


def usage_of(raw: dict[str, Any]) -> Usage:
    """Google's counts: the prompt holds cached tokens, tool results are further input, and thoughts are beside the candidates' tokens.

    A count of 0 is left out on the wire; the total tells it from one that was not reported (C055, C084).

    Examples
    --------
    >>> usage_of({"promptTokenCount": 10, "thoughtsTokenCount": 2, "candidatesTokenCount": 3, "totalTokenCount": 15}).output_tokens
    5
    """

    def count(name: str) -> int | None:
        value = raw.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None

    prompt, tool_prompt = count("promptTokenCount"), count("toolUsePromptTokenCount")
    candidates, thoughts, total = count("candidatesTokenCount"), count("thoughtsTokenCount"), count("totalTokenCount")
    given = prompt if tool_prompt is None else (prompt or 0) + tool_prompt
    made = None if candidates is None and thoughts is None else (candidates or 0) + (thoughts or 0)
    if made is None and total is not None and given is not None:
        made = max(0, total - given)
    details = {"tool_use_prompt_tokens": tool_prompt} if tool_prompt is not None else {}
    for field, prefix in (
        ("promptTokensDetails", "input"),
        ("candidatesTokensDetails", "output"),
        ("cacheTokensDetails", "cache_read"),
    ):
        entries = raw.get(field)
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("tokenCount"), int) and entry.get("modality"):
                name = f"{prefix}_{str(entry['modality']).lower()}_tokens"
                details[name] = details.get(name, 0) + max(0, entry["tokenCount"])
    return Usage(
        input_tokens=given,
        output_tokens=made,
        reasoning_tokens=thoughts,
        cache_read_tokens=count("cachedContentTokenCount"),
        details=details,
        raw=raw,
    )
