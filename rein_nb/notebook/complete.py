"""Tab completion for the magics: a pure function from the line so far to candidates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rein_nb.agent import Agent
from rein_nb.notebook.options import _BY_NAME, APPROVE, OPTIONS, TOOL_CHOICE

SETTINGS = ("model", "tools", "system", "session", "reset", "models", "usage", "help")


def candidates(line: str, names: Mapping[str, Any], models: list[str], sessions: list[str]) -> list[str]:
    """What may stand where the cursor is.

    Parameters
    ----------
    line
        The line up to the cursor, from ``%agent`` or ``%%agent`` on.
    names
        The user's variables.
    models, sessions
        Known models and conversations.
    """
    magic, *words = line.split(" ")
    if not words:
        return []
    last = words[-1]
    option = _open_option(words[:-1])
    if option is not None:
        found = {
            "models": models,
            "session": sessions,
            "approve": list(APPROVE),
            "tool_choice": [*TOOL_CHOICE, *_callables(names)],
            "tools": _callables(names),
            "vars": [name for name in names if not name.startswith("_")],
            "schema": [name for name, value in names.items() if isinstance(value, type)],
            "images": [name for name in names if not name.startswith("_")],
        }.get(option, [])
        if option in ("tools", "vars") and last.startswith("-"):
            found = [name for known in OPTIONS for name in known.names]
        return [item for item in found if item.startswith(last)]
    if last.startswith("-"):
        return [name for known in OPTIONS for name in known.names if name.startswith(last) and len(name) > 2]
    if magic == "%agent" and len(words) == 1:
        return [word for word in SETTINGS if word.startswith(last)]
    if magic == "%agent" and len(words) == 2:
        kind = {"model": models, "session": sessions, "tools": _callables(names)}.get(words[0], [])
        return [item for item in kind if item.startswith(last)]
    return []


def _open_option(words: list[str]) -> str | None:
    """The option whose value is being typed."""
    for distance, word in enumerate(reversed(words)):
        option = _BY_NAME.get(word)
        if option is not None:
            if option.takes == "names" or (option.takes in ("one", "many") and distance == 0):
                return option.field
            return None
    return None


def _callables(names: Mapping[str, Any]) -> list[str]:
    return [
        name
        for name, value in names.items()
        if not name.startswith("_") and (callable(value) or isinstance(value, Agent)) and not isinstance(value, type)
    ]
