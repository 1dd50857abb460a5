"""Replacing a piece of text that occurs exactly once, with errors from which a model can tell what to send instead."""

from __future__ import annotations

import difflib


class EditRefused(ValueError):
    """The text to replace is not there, is there more than once, or the replacement changes nothing."""


def replaced(text: str, old: str, new: str, *, everywhere: bool = False) -> tuple[str, int]:
    """(the text with `old` replaced by `new`, how often).

    A file with Windows line ends is matched and changed in its own line ends.

    Raises
    ------
    EditRefused
        Saying where `old` is, or what comes nearest to it.
    """
    if not old:
        raise EditRefused("old is empty; give the text to replace, or use write for a whole file")
    if "\r\n" in text and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    if old == new:
        raise EditRefused("old and new are the same")
    count = text.count(old)
    if count == 0:
        raise EditRefused(f"old does not occur in the file. {_nearest(text, old)}".strip())
    if count > 1 and not everywhere:
        lines = _lines_of(text, old)
        shown = ", ".join(map(str, lines[:10])) + (", ..." if len(lines) > 10 else "")
        raise EditRefused(
            f"old occurs {count} times (lines {shown}); add text around it until it is unique, or set everywhere to change all"
        )
    return text.replace(old, new), count


def _lines_of(text: str, piece: str) -> list[int]:
    lines: list[int] = []
    at = text.find(piece)
    while at >= 0:
        lines.append(text.count("\n", 0, at) + 1)
        at = text.find(piece, at + len(piece))
    return lines


def _nearest(text: str, old: str) -> str:
    squeezed = " ".join(old.split())
    lines = text.splitlines()
    wanted = old.strip("\n").splitlines()
    for start in range(len(lines) - len(wanted) + 1):
        if " ".join(" ".join(lines[start : start + len(wanted)]).split()) == squeezed:
            return f"It differs only in white space from the text at line {start + 1}; copy that exactly."
    if len(lines) > 20_000 or not wanted:
        return ""
    close = difflib.get_close_matches(
        wanted[0].strip(), [line.strip() for line in lines if line.strip()], n=1, cutoff=0.6
    )
    if close:
        number = next(n for n, line in enumerate(lines, 1) if line.strip() == close[0])
        return f"The line nearest to its first one is line {number}: {close[0][:200]!r}."
    return "Read the file again: it may have changed."
