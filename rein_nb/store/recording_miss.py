"""What a miss tells: the nearest recorded request, and what differs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rein_nb.ir import ReinError

_SHOWN = 5
"""Differences to the nearest recorded request that a miss tells."""

_CUT = 60
"""Characters of a differing value that a miss shows."""


class RecordingMiss(ReinError):
    """A request was made that the recording does not hold; the message says how the nearest one differs.

    Attributes
    ----------
    path
        The recording.
    request
        What would have been sent: provider, dialect, path and body.
    nearest
        The recorded request that has most in common with it; None when there is none for this dialect.
    differences
        Where the two differ, in words.
    """

    def __init__(self, path: Path, request: dict[str, Any], recorded: Sequence[dict[str, Any]]) -> None:
        self.path = path
        self.request = request
        self.nearest, self.differences = _nearest(request, recorded)
        model = request["body"].get("model", "")
        text = f"{path} holds no answer to this request to {request['provider']}/{model} ({len(recorded)} recorded)"
        if self.nearest is not None:
            more = len(self.differences) - _SHOWN
            shown = "; ".join(self.differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            text += f". The nearest recorded request differs in: {shown}"
        super().__init__(f'{text}. Record it with record({str(path)!r}), or play back with mode="auto"')


def _flat(value: Any, at: str = "") -> dict[str, str]:
    """Leaves of a JSON value by their path."""
    if isinstance(value, dict) and value:
        return {
            path: leaf
            for key, item in value.items()
            for path, leaf in _flat(item, f"{at}.{key}" if at else str(key)).items()
        }
    if isinstance(value, list) and value:
        return {path: leaf for n, item in enumerate(value) for path, leaf in _flat(item, f"{at}[{n}]").items()}
    return {at: json.dumps(value, ensure_ascii=False)}


def _nearest(request: dict[str, Any], recorded: Sequence[dict[str, Any]]) -> tuple[dict[str, Any] | None, list[str]]:
    """The recorded request that shares most leaves with `request`, and where the two differ."""
    asked = _flat(request)
    best: tuple[int, dict[str, Any] | None, list[str]] = (-1, None, [])
    for other in recorded:
        if other["dialect"] != request["dialect"]:
            continue
        have = _flat(other)
        common = len(asked.items() & have.items())
        if common > best[0]:
            best = (common, other, _differences(asked, have))
    return best[1], best[2]


def _differences(asked: dict[str, str], have: dict[str, str]) -> list[str]:
    out = []
    for path in [*asked, *(path for path in have if path not in asked)]:
        if asked.get(path) == have.get(path):
            continue
        if path not in have:
            out.append(f"{path}: asked {_cut(asked[path])}, not recorded")
        elif path not in asked:
            out.append(f"{path}: recorded {_cut(have[path])}, not asked")
        else:
            out.append(f"{path}: recorded {_cut(have[path])}, asked {_cut(asked[path])}")
    return out


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else text[:_CUT] + "…"
