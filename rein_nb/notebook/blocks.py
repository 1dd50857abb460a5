"""Markdown text to top-level blocks, as it streams: a finished block never changes again, so it is rendered once.

The same splitter serves live display and saved output, so both show the same. Where a block could go on (a list, after a blank line)
it stays open until the next line decides.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})([^`]*)$")
_MAYBE_FENCE = re.compile(r"^ {0,3}[`~]{2,}|^ {0,3}[`~]$")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:[ \t]|$)")
_LIST = re.compile(r"^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:[ \t]|$)")
_MATH_EDGE = re.compile(r"^\s*(?:\$\$|\\\[)\s*$")
_MATH_END = re.compile(r"(?:\$\$|\\\])\s*$")


class BlockSplitter:
    """Cuts growing text into blocks.

    `feed` returns the blocks that are now whole; `tail` is the text of the open one, `mode` says how to show it (``"code"`` within a fence).
    """

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._partial = ""
        self._fence: tuple[str, int, int] | None = None
        self._math = False
        self._list = False
        self._blank = False

    @property
    def tail(self) -> str:
        """The open block's text."""
        return "".join(self._lines) + self._partial

    @property
    def visible_tail(self) -> str:
        """The open block's text as it is worth showing: without the line that opens a fence, and without a line that may become one."""
        text = self.tail
        if _MAYBE_FENCE.match(self._partial):
            text = text[: len(text) - len(self._partial)]
        if self._fence is not None and self._lines and _FENCE.match(self._lines[0].rstrip("\n")):
            text = text[len(self._lines[0]) :]
        return text

    @property
    def mode(self) -> str:
        """``"code"`` inside a fence, else ``"text"``."""
        return "code" if self._fence is not None else "text"

    def feed(self, text: str) -> list[str]:
        """Take in text; the blocks that it completed."""
        if "\n" not in text:
            self._partial += text
            return []
        first, *rest = text.split("\n")
        done: list[str] = []
        for line in [self._partial + first, *rest[:-1]]:
            self._line(line, done)
        self._partial = rest[-1]
        return done

    def end(self) -> list[str]:
        """The text is over: the last block, if any."""
        done: list[str] = []
        if self._partial:
            self._line(self._partial, done)
            self._partial = ""
        self._close(done)
        return done

    def _line(self, line: str, done: list[str]) -> None:
        if self._fence is not None:
            self._lines.append(line + "\n")
            mark, length, indent = self._fence
            body = line.strip()
            if body and set(body) == {mark} and len(body) >= length:
                self._fence = None
                if not self._list and indent <= 3:
                    self._close(done)
            return
        if self._math:
            self._lines.append(line + "\n")
            if _MATH_END.search(line) or not line.strip():
                self._math = False
                self._close(done)
            return
        if not line.strip():
            self._empty(done)
            return
        self._text_line(line, done)

    def _empty(self, done: list[str]) -> None:
        if not self._lines:
            return
        self._lines.append("\n")
        self._blank = True
        if not self._list and not self._lines[0].startswith(("    ", "\t")):
            self._close(done)

    def _text_line(self, line: str, done: list[str]) -> None:
        indented = line.startswith(("  ", "\t"))
        fence = _FENCE.match(line)
        starts = not indented and (fence is not None or _HEADING.match(line) is not None)
        if self._lines and ((self._blank and not indented) or (starts and not self._lines[0].lstrip().startswith(">"))):
            self._close(done)
        if not self._lines:
            self._list = _LIST.match(line) is not None
        self._blank = False
        self._lines.append(line + "\n")
        if fence is not None:
            self._fence = (fence[2][0], len(fence[2]), len(fence[1]))
        elif len(self._lines) == 1 and _MATH_EDGE.match(line):
            self._math = True
        elif len(self._lines) == 1 and _HEADING.match(line):
            self._close(done)

    def _close(self, done: list[str]) -> None:
        text = "".join(self._lines).strip("\n")
        if text:
            done.append(text)
        self._lines.clear()
        self._list = self._blank = False


def split_blocks(text: str) -> list[str]:
    """The blocks of a whole text.

    Examples
    --------
    >>> split_blocks("# A\\ntext\\n\\n- x\\n- y\\n")
    ['# A', 'text', '- x\\n- y']
    """
    splitter = BlockSplitter()
    return splitter.feed(text) + splitter.end()
