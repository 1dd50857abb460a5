"""Where shared corpora lie, and helpers for several test modules."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
SHARED = REPO.parent / "shared"


def recordings(*folders: str) -> list[Path]:
    """All recorded exchanges in the named dialect folders, sorted; empty where the corpus is absent."""
    root = SHARED / "wire"
    return sorted(path for folder in folders for path in (root / folder).glob("*.json"))


def load_recording(path: Path) -> dict[str, Any]:
    """One recording file."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return data


def field_cases() -> dict[str, dict[str, Any]]:
    """Field cases by id; empty where the corpus is absent."""
    path = SHARED / "cases" / "field-cases.jsonl"
    if not path.exists():
        return {}
    cases = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip())
    return {case["id"]: case for case in cases}


def examples(count: int) -> int:
    """How many examples a property is tried with: `count`, times ``REIN_NB_EXAMPLES_TIMES`` for runs at length."""
    return count * int(os.environ.get("REIN_NB_EXAMPLES_TIMES", "1"))
