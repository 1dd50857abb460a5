"""Streamed function arguments: Google's ``partialArgs`` (a JSON path and a value, or a piece of one) as JSON text that grows.

As long as the paths come in document order, every piece is appended text, so a reader sees the arguments appear. A path that goes back
into something already closed ends that; the whole object is given at the end instead.
"""

from __future__ import annotations

import json
import re
from itertools import pairwise
from typing import Any, TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_TOKEN = re.compile(r"""\.([^.\[\]]+)|\[(\d+)\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")


def parse_path(path: str) -> Path | None:
    """The steps of a JSON path (RFC 9535, single steps only); None where it is anything else.

    Examples
    --------
    >>> parse_path("$.foo[0]['a b']")
    ('foo', 0, 'a b')
    """
    if not path.startswith("$"):
        return None
    steps: list[str | int] = []
    at = 1
    while at < len(path):
        found = _TOKEN.match(path, at)
        if found is None:
            return None
        plain, index, single, double = found.groups()
        if index is not None:
            steps.append(int(index))
        else:
            quoted = single if single is not None else double
            steps.append(plain if plain is not None else re.sub(r"\\(.)", r"\1", quoted))
        at = found.end()
    return tuple(steps) if steps and isinstance(steps[0], str) else None


class PartialArgs:
    """One call's arguments as they come."""

    def __init__(self) -> None:
        self.root: dict[str, Any] = {}
        self.in_order = True
        self._last: Path | None = None
        self._open_text = False
        self._seen: set[Path] = set()
        self._counts: dict[Path, int] = {}

    def feed(self, piece: dict[str, Any]) -> str:
        """The JSON text that one ``partialArgs`` entry appends."""
        path = parse_path(str(piece.get("jsonPath", "")))
        if path is None:
            self.in_order = False
            return ""
        text = piece.get("stringValue")
        if isinstance(text, str):
            goes_on = bool(piece.get("willContinue"))
            again = path == self._last and self._open_text
            self._store(path, text, again)
            out = "" if again else self._move_to(path) + '"'
            out += json.dumps(text, ensure_ascii=False)[1:-1]
            self._open_text = goes_on
            return self._said(out if goes_on else out + '"')
        value = piece.get("numberValue", piece.get("boolValue"))
        self._store(path, value, False)
        out = self._move_to(path) + json.dumps(value)
        return self._said(out)

    def close(self) -> str:
        """The text that completes the object."""
        out = self._end_text()
        if self._last is None:
            return self._said("{}")
        return self._said(out + self._close_to(self._last, 0) + "}")

    def cut_off(self) -> str:
        """The text that shows arguments to be incomplete, where none of them came."""
        return "{" if self._last is None else ""

    def value(self) -> dict[str, Any]:
        """The whole arguments so far."""
        return _plain(self.root)  # type: ignore[no-any-return]

    def _said(self, text: str) -> str:
        return text if self.in_order else ""

    def _end_text(self) -> str:
        open_text, self._open_text = self._open_text, False
        return '"' if open_text else ""

    @staticmethod
    def _close_to(path: Path, depth: int) -> str:
        return "".join("]" if isinstance(step, int) else "}" for step in reversed(path[depth + 1 :]))

    def _move_to(self, path: Path) -> str:
        """Close what `path` is not in, and open what it is in, up to the place of its value."""
        out = self._end_text()
        last = self._last
        self._last = path
        if last is None:
            out += "{"
            common = 0
        else:
            common = next((n for n, (a, b) in enumerate(zip(last, path, strict=False)) if a != b), -1)
            if common < 0 or isinstance(last[common], int) != isinstance(path[common], int):
                self.in_order = False
                return ""
            out += self._close_to(last, common) + ","
        for n in range(common, len(path)):
            step = path[n]
            prefix = path[: n + 1]
            if prefix in self._seen or (isinstance(step, int) and step != self._counts.get(path[:n], 0)):
                self.in_order = False
                return ""
            self._seen.add(prefix)
            if n > common:
                out += "[" if isinstance(step, int) else "{"
            if isinstance(step, int):
                self._counts[path[:n]] = step + 1
            else:
                out += json.dumps(step, ensure_ascii=False) + ":"
        return out

    def _store(self, path: Path, value: Any, again: bool) -> None:
        node: Any = self.root
        for step, following in pairwise(path):
            fresh: Any = {} if isinstance(following, str) else []
            known = _get(node, step)
            if not isinstance(known, type(fresh)) or (isinstance(known, _Pieces) and fresh == []):
                _put(node, step, fresh)
                known = fresh
            node = known
        known = _get(node, path[-1])
        if isinstance(value, str):
            if again and isinstance(known, _Pieces):
                known.append(value)
                return
            value = _Pieces([value])
        _put(node, path[-1], value)


class _Pieces(list[str]):
    """A string that is still growing."""


def _get(node: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return node[step] if isinstance(node, list) and step < len(node) else None
    return node.get(step) if isinstance(node, dict) else None


def _put(node: Any, step: str | int, value: Any) -> None:
    if isinstance(node, list) and isinstance(step, int):
        # An index far beyond the end is a slip of the sender's, not an order for memory.
        while len(node) <= step and len(node) < 10_000:
            node.append(None)
        if step < len(node):
            node[step] = value
    elif isinstance(node, dict):
        node[str(step)] = value


def _plain(value: Any) -> Any:
    if isinstance(value, _Pieces):
        return "".join(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
