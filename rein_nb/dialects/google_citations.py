"""Google's evidence (grounding, recitation, fetched pages) as citations of text parts.

Google counts in bytes of UTF-8 over the answer's text; a `Citation` counts in characters of its part. `Offsets` keeps what the
translation needs: where each text part starts, and where the characters are that take more than one byte. It keeps no text.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator
from typing import Any

from rein_nb.dialects.values import as_dict, as_list, as_text
from rein_nb.ir import Citation
from rein_nb.ir.deltas import Cite

_NAMESPACE = "google"


class Offsets:
    """Byte and character positions of the visible text of one candidate."""

    def __init__(self) -> None:
        self._bytes = 0
        self._chars = 0
        self._wide: list[int] = []
        self._surplus: list[int] = [0]
        self._starts: list[int] = []
        self._parts: list[tuple[Hashable, int]] = []
        self.wire_parts: dict[int, int] = {}

    def add(self, part: Hashable, text: str, wire_index: int) -> None:
        """Note that `text` was appended to `part`, from the wire part with that index."""
        if not self._parts or self._parts[-1][0] != part:
            self._starts.append(self._bytes)
            self._parts.append((part, self._chars))
        self.wire_parts.setdefault(wire_index, self._bytes)
        if text.isascii():
            self._bytes += len(text)
        else:
            for char in text:
                width = 1 if char < "\x80" else 2 if char < "\u0800" else 3 if char < "\U00010000" else 4
                if width > 1:
                    self._wide.append(self._bytes)
                    self._surplus.append(self._surplus[-1] + width - 1)
                self._bytes += width
        self._chars += len(text)

    def locate(self, start: int, end: int) -> tuple[Hashable | None, int | None, int | None]:
        """(part, start, end in its characters) of a span of bytes; the last part and no span where it lies in no part."""
        if not self._parts:
            return None, None, None
        if not 0 <= start < end <= self._bytes:
            return self._parts[-1][0], None, None
        part, first = self._parts[bisect_right(self._starts, start) - 1]
        return part, self._char(start) - first, self._char(end) - first

    def _char(self, byte: int) -> int:
        return byte - self._surplus[bisect_left(self._wide, byte)]


def citations(
    grounding: dict[str, Any], recited: list[Any], fetched: list[Any], offsets: Offsets, *, whole: bool
) -> Iterator[Cite]:
    """One `Cite` for each supported span and source.

    Parameters
    ----------
    grounding, recited, fetched
        ``groundingMetadata``, the entries of ``citationMetadata`` and of ``urlContextMetadata``.
    whole
        Whether wire parts are those of one whole response, so that a span's ``partIndex`` means something.
    """
    chunks = [chunk if isinstance(chunk, dict) else {} for chunk in as_list(grounding.get("groundingChunks"))]
    used = False
    for support in as_list(grounding.get("groundingSupports")):
        if not isinstance(support, dict):
            continue
        segment = support.get("segment")
        segment = segment if isinstance(segment, dict) else {}
        base = offsets.wire_parts.get(_int(segment.get("partIndex")), 0) if whole else 0
        part, start, end = offsets.locate(base + _int(segment.get("startIndex")), base + _int(segment.get("endIndex")))
        for index in as_list(support.get("groundingChunkIndices")):
            if part is None or not isinstance(index, int) or not 0 <= index < len(chunks):
                continue
            used = True
            native = {"support": support, "chunk": chunks[index]}
            yield Cite(_of_chunk(chunks[index], start, end, native), part)
    last = offsets.locate(0, 0)[0]
    if last is None:
        return
    for chunk in chunks if not used else ():
        yield Cite(_of_chunk(chunk, None, None, {"chunk": chunk}), last)
    for entry in recited:
        if isinstance(entry, dict):
            part, start, end = offsets.locate(_int(entry.get("startIndex")), _int(entry.get("endIndex")))
            source = str(entry.get("uri") or entry.get("title") or "")
            title = entry["title"] if isinstance(entry.get("title"), str) else None
            cited = Citation(source=source, title=title, start=start, end=end, extra={_NAMESPACE: entry})
            yield Cite(cited, part)
    for entry in fetched:
        page = as_text(as_dict(entry).get("retrievedUrl"))
        if page and "SUCCESS" in str(entry.get("urlRetrievalStatus", "")):
            yield Cite(Citation(source=page, extra={_NAMESPACE: entry}), last)


def _of_chunk(chunk: dict[str, Any], start: int | None, end: int | None, native: dict[str, Any]) -> Citation:
    where = next((value for value in chunk.values() if isinstance(value, dict)), {})
    source = where.get("uri") or where.get("fileSearchStore") or where.get("documentName") or where.get("title") or ""
    quote = where.get("text")
    return Citation(
        source=str(source),
        title=where.get("title") if isinstance(where.get("title"), str) else None,
        quote=quote if isinstance(quote, str) else None,
        start=start,
        end=end,
        extra={_NAMESPACE: native},
    )


def _int(value: Any) -> int:
    return value if isinstance(value, int) else 0
