"""Secrets that came in pieces: what follows each other in an answer's events is masked as the one text that it is."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rein_nb.ir.base import clean_json
from rein_nb.ir.redaction import MASK
from rein_nb.store.records import _DATA, scrub

_APPENDED = frozenset({"Text", "Thinking", "Refusal", "ToolArgs"})
"""Deltas whose text is appended to their part's."""

_PLACES = ("index", "output_index", "content_index", "summary_index", "thought")
"""Fields of an event that say which of several texts a piece belongs to."""

_WHOLE = re.compile(
    r"(?:.*_)?id|.*Id|type|object|role|model|name|status|obfuscation|data|opaque|signature|thought_?[sS]ignature|encrypted_content"
)
"""Fields of events that are no pieces of a text: ids and words of the format, bytes, sealed text."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """A string within an event."""

    holder: dict[str, Any] | list[Any]
    at: Any

    @property
    def text(self) -> str:
        return str(self.holder[self.at])


def mask_events(events: list[Any], *, deltas: bool) -> list[Any]:
    """The data of an answer's events with every secret masked, also one that came in several pieces.

    The mask is then in the piece in which the secret began, and the others lack what was theirs of it. Where there is no such secret, each
    is what `scrub` makes of it.

    Parameters
    ----------
    events
        Data of each event, in their order.
    deltas
        Whether they are lists of deltas, and no events of a wire.
    """
    events = [clean_json(data) for data in events]
    texts: dict[Any, list[_Piece]] = defaultdict(list)
    for data in events:
        for which, piece in _of_deltas(data) if deltas else _of_wire(data, ()):
            texts[which].append(piece)
    for pieces in texts.values():
        _mask(pieces)
    return [scrub(data) for data in events]


def _of_deltas(data: Any) -> Iterator[tuple[Any, _Piece]]:
    for delta in data:
        if delta["type"] in _APPENDED and isinstance(delta["text"], str):
            yield (delta["type"], json.dumps(delta["part"])), _Piece(delta, "text")


def _of_wire(value: Any, where: tuple[Any, ...]) -> Iterator[tuple[Any, _Piece]]:
    """Every string of an event, and which text it may be a piece of: the same field at the same place."""
    if isinstance(value, dict):
        # Only an event's own type: a tool call's is told with its first piece alone.
        names = _PLACES if where else ("type", *_PLACES)
        where = (*where, *((name, json.dumps(value[name])) for name in names if name in value))
        for key, item in value.items():
            if isinstance(item, str):
                if not _WHOLE.fullmatch(key):
                    yield (*where, key), _Piece(value, key)
            elif isinstance(item, dict | list):
                yield from _of_wire(item, (*where, key))
    elif isinstance(value, list):
        for n, item in enumerate(value):
            # An item that says which one it is may come at any position.
            place = () if isinstance(item, dict) and "index" in item else (n,)
            if isinstance(item, str):
                yield (*where, *place), _Piece(value, n)
            elif isinstance(item, dict | list):
                yield from _of_wire(item, (*where, *place, "item"))


def _mask(pieces: list[_Piece]) -> None:
    pieces = [piece for piece in pieces if not _DATA.fullmatch(piece.text)]
    texts = [piece.text for piece in pieces]
    if len(texts) < 2:
        return
    whole = "".join(texts)
    masked = scrub(whole)
    if masked == whole or masked == "".join(scrub(text) for text in texts):
        return
    blocks = _kept(whole, masked)
    begin = end = 0
    for piece, text in zip(pieces, texts, strict=True):
        end += len(text)
        upto = _moved(end, blocks)
        piece.holder[piece.at] = masked[begin:upto]
        begin = upto


def _kept(whole: str, masked: str) -> list[tuple[int, int, int]]:
    """What of a text was not masked: (where it is in the text, where in the masked one, its length) each, the last up to the end."""
    parts = masked.split(MASK)
    blocks = [(0, 0, len(parts[0]))]
    at, there = len(parts[0]), len(parts[0]) + len(MASK)
    for part in parts[1:-1]:
        found = whole.find(part, at)
        if found >= 0:
            blocks.append((found, there, len(part)))
            at = found + len(part)
        there += len(part) + len(MASK)
    blocks.append((len(whole) - len(parts[-1]), there, len(parts[-1])))
    return blocks


def _moved(end: int, blocks: list[tuple[int, int, int]]) -> int:
    """Where in the masked text a piece ends that ended at `end`. What ends within a secret has the whole mask."""
    for start, there, length in blocks:
        if end <= start:
            return there
        if end <= start + length:
            return there + end - start
    last = blocks[-1]
    return last[1] + last[2]
