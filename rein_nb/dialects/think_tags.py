"""Reasoning that comes inline, as ``<think>...</think>`` at the head of the visible text, told apart while it streams.

Three rules, all for the sake of the answer's text (field case C022):

- A tag counts only at the head of the message, before any visible text. A later ``<think>`` is something the model writes *about*, and
  reading it as reasoning would swallow the rest of the answer.
- Only a suffix that can still become the awaited tag is held back, so ``a < b`` streams through.
- Blank lines between the closing tag and the answer are dropped; what is held when the stream ends is given as what it is.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

Piece: TypeAlias = tuple[Literal["text", "thinking"], str]

TAGS: dict[str, str] = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
}
"""Opening tag to closing tag, as the open-weight models write them."""


class ThinkTags:
    """Splits one message's text, given in any pieces, into reasoning and visible text.

    Examples
    --------
    >>> tags = ThinkTags()
    >>> [piece for text in ("<th", "ink>hm</thi", "nk>\\n\\n4") for piece in tags.feed(text)]
    [('thinking', 'hm'), ('text', '4')]
    """

    __slots__ = ("_close", "_held", "_state")

    def __init__(self) -> None:
        self._state: Literal["head", "thinking", "after", "text"] = "head"
        self._held = ""
        self._close = ""

    @property
    def settled(self) -> bool:
        """Whether all that follows is visible text."""
        return self._state == "text"

    def feed(self, text: str) -> list[Piece]:
        """The pieces that `text` settles, in order."""
        out: list[Piece] = []
        while text:
            if self._state == "text":
                out.append(("text", text))
                break
            text = self._held + text
            self._held = ""
            text = self._thinking(text, out) if self._state == "thinking" else self._head(text, out)
        return out

    def flush(self) -> list[Piece]:
        """What is still held, at the end of the stream."""
        held, self._held = self._held, ""
        if not held or (self._state == "after" and not held.strip()):
            return []
        return [("thinking" if self._state == "thinking" else "text", held)]

    def _head(self, text: str, out: list[Piece]) -> str:
        """At the head of the message, or between a closing tag and the answer: a tag, text, or not yet known."""
        start = len(text) - len(text.lstrip())
        word = text[start:]
        for tag, close in TAGS.items():
            if word.startswith(tag):
                self._state, self._close = "thinking", close
                return word[len(tag) :]
        if not word or any(tag.startswith(word) for tag in TAGS):
            self._held = text
            return ""
        if self._state == "after":
            # Blank lines go; the indentation of the first line of the answer stays.
            text = text[text.rfind("\n", 0, start) + 1 :]
        self._state = "text"
        out.append(("text", text))
        return ""

    def _thinking(self, text: str, out: list[Piece]) -> str:
        close = self._close
        at = text.find(close)
        if at >= 0:
            if at:
                out.append(("thinking", text[:at]))
            self._state = "after"
            return text[at + len(close) :]
        keep = _overlap(text, close)
        if len(text) > keep:
            out.append(("thinking", text[: len(text) - keep]))
        self._held = text[len(text) - keep :] if keep else ""
        return ""


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of `text` that begins `tag`."""
    for size in range(min(len(text), len(tag) - 1), 0, -1):
        if text.endswith(tag[:size]):
            return size
    return 0
