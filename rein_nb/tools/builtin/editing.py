"""Replacing a piece of text that occurs exactly once, with errors from which a model can tell what to send instead."""

from __future__ import annotations

import difflib
import itertools
import re
from bisect import bisect_left
from collections.abc import Iterator

_COMPARED = 80
"""Letters of a line that are looked at to find the nearest one."""


class EditRefused(ValueError):
    """The text to replace is not there, is there more than once, or the replacement changes nothing."""


def encoded(text: str, what: str) -> bytes:
    """A text as UTF-8, with surrogate pairs joined.

    Raises
    ------
    ValueError
        For an unpaired surrogate, which UTF-8 does not have.
    """
    joined = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    try:
        return joined.encode()
    except UnicodeEncodeError as exc:
        half = f"U+{ord(joined[exc.start]):04X}"
        raise ValueError(
            f"{what} has half of a character, the unpaired surrogate {half}, at position {exc.start}; send the whole character, or none"
        ) from None


def replaced(text: str, old: str, new: str, *, everywhere: bool = False) -> tuple[str, int]:
    """(the text with `old` replaced by `new`, how often).

    Line ends of whatever style match each other, unless `old` holds carriage returns that are in the text as they stand. What is put in
    has the line ends of what it replaces, or else of the lines around it.

    Raises
    ------
    EditRefused
        Saying where `old` is, or what comes nearest to it.
    """
    if not old:
        raise EditRefused("old is empty; give the text to replace, or use write for a whole file")
    if old == new:
        raise EditRefused("old and new are the same")
    literal = "\r" in old and old in text
    if "\r" in old and not literal:
        new = _plain(new)
    spans = list(_occurrences(text, old) if literal else _occurrences_in_any_style(text, _plain(old)))
    if not spans:
        raise EditRefused(f"old does not occur in the file. {_nearest(text, old)}".strip())
    if len(spans) > 1 and not everywhere:
        lines = [text.count("\n", 0, start) + 1 for start, _ in spans[:10]]
        shown = ", ".join(map(str, lines)) + (", ..." if len(spans) > 10 else "")
        raise EditRefused(
            f"old occurs {len(spans)} times (lines {shown}); add text around it until it is unique, or set everywhere to change all"
        )
    ends = list(_LINE_END.finditer(text)) if "\r" in text and "\n" in new and not literal else []
    at = [end.start() for end in ends]
    pieces: list[str] = []
    done = 0
    for start, end in spans:
        first, last = bisect_left(at, start), bisect_left(at, end)
        near = ends[first:last] or ends[first : first + 1] or ends[-1:]
        pieces += [text[done:start], _with_ends(new, [found[0] for found in near])]
        done = end
    changed = "".join([*pieces, text[done:]])
    if changed == text:
        raise EditRefused("old and new are the same but for line ends, which stay as the file has them")
    return changed, len(spans)


_LINE_END = re.compile(r"\r\n|\n|\r")


def _with_ends(text: str, ends: list[str]) -> str:
    """A text whose plain line ends are replaced by these, one after the other, the last of them again and again."""
    if not ends:
        return text
    lines = re.split(r"(?<!\r)\n", text)
    filled = itertools.chain(ends, itertools.repeat(ends[-1]))
    return lines[0] + "".join(end + line for end, line in zip(filled, lines[1:], strict=False))


def _plain(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _occurrences(text: str, piece: str) -> Iterator[tuple[int, int]]:
    """(start, end) of each occurrence; none overlap."""
    at = text.find(piece)
    while at >= 0:
        yield at, at + len(piece)
        at = text.find(piece, at + len(piece))


def _occurrences_in_any_style(text: str, piece: str) -> Iterator[tuple[int, int]]:
    """As `_occurrences`, where a line end of `piece`, which has plain ones, stands for any."""
    # Each Windows line end is one letter shorter in the plain text: positions there are shifted by those before them.
    windows = [found.start() - before for before, found in enumerate(re.finditer("\r\n", text))]
    for start, end in _occurrences(_plain(text), piece):
        yield start + bisect_left(windows, start), end + bisect_left(windows, end)


def _nearest(text: str, old: str) -> str:
    lines = text.split("\n")
    wanted = _plain(old).strip("\n").split("\n")
    words = " ".join(old.split())
    for start in range(len(lines) - len(wanted) + 1):
        # Most lines are ruled out by themselves.
        if words.startswith(" ".join(lines[start].split())) and (
            " ".join(" ".join(lines[start : start + len(wanted)]).split()) == words
        ):
            return f"It differs only in white space from the text at line {start + 1}; copy that exactly."
    if len(lines) > 10_000:
        return ""
    shown = {line.strip()[:_COMPARED]: number for number, line in reversed(list(enumerate(lines, 1))) if line.strip()}
    close = difflib.get_close_matches(wanted[0].strip()[:_COMPARED], shown, n=1, cutoff=0.6)
    if close:
        return f"The line nearest to its first one is line {shown[close[0]]}: {close[0]!r}."
    return "Read the file again: it may have changed."
