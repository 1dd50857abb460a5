"""What was played of each provider, as data for the documentation.

``python -m tests.conformance wire --save`` writes it to ``docs/reference/conformance.json``, what came out wrong included, and
``python docs/make.py`` makes a table of it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from rein_nb.ir import Completion, MediaPart, RefusalPart, ServerToolPart, TextPart, ThinkingPart
from tests.conformance.corpus import Case, through_codec

FILE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "conformance.json"


def holds(completion: Completion) -> set[str]:
    """What an answer has, in the words of the documentation."""
    found = set()
    for part in completion.message.parts:
        if isinstance(part, TextPart):
            found |= {"text"} if part.text else set()
            found |= {"citations"} if part.citations else set()
        elif isinstance(part, ThinkingPart):
            found |= {"thinking"} if part.text else set()
            found |= {"signed thinking"} if part.signature or part.opaque or part.redacted else set()
        elif isinstance(part, MediaPart | ServerToolPart | RefusalPart):
            found.add({MediaPart: "media", ServerToolPart: "server tools", RefusalPart: "refusals"}[type(part)])
    if completion.tool_calls:
        found.add("tool calls")
    if completion.usage.input_tokens is not None:
        found.add("usage")
    if completion.usage.cache_read_tokens:
        found.add("cached tokens")
    if completion.usage.reasoning_tokens:
        found.add("reasoning tokens")
    return found


def matrix(cases: Iterable[Case], wrong: Collection[str] = ()) -> list[dict[str, Any]]:
    """One dict a vendor: dialects, numbers of answers of each form, those that came out right, and what they held.

    Parameters
    ----------
    cases
        Recorded answers.
    wrong
        Names of those that did not come out right.
    """
    rows: dict[str, dict[str, Any]] = {}
    for case in cases:
        row = rows.setdefault(
            case.vendor,
            {"vendor": case.vendor, "dialects": set(), "streamed": 0, "whole": 0, "errors": 0, "right": 0, "holds": set()},
        )  # fmt: skip
        row["dialects"].add(case.dialect)
        row["errors" if not case.ok else "streamed" if case.streamed else "whole"] += 1
        row["right"] += case.name not in wrong
        if case.ok:
            row["holds"] |= holds(through_codec(case, case.llm("http://127.0.0.1:9").target()))
    ordered = [rows[vendor] for vendor in sorted(rows)]
    return [
        {name: sorted(value) if isinstance(value, set) else value for name, value in row.items()} for row in ordered
    ]


def save(rows: list[dict[str, Any]]) -> None:
    """Keep it for the documentation."""
    lines = ",\n".join(json.dumps(row) for row in rows)
    FILE.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
