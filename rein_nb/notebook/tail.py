"""The growing end of a block, on its way to the browser: sent as plain text deltas, replaced by HTML when a block is whole.

Two rules meet here. Bytes stay O(text): a finished block is sent as markup with references into the text that the browser already has. And
a secret that arrives in pieces is never shown in part: the last run of characters that could become one is held back until it ends.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from rein_nb.ir import redact
from rein_nb.notebook.blocks import BlockSplitter
from rein_nb.notebook.markdown import render_block
from rein_nb.notebook.sanitize import visible

WireOp: TypeAlias = str | list[Any]

_RUN = re.compile(r"(?:[a-zA-Z][a-zA-Z0-9+.-]*://[^\s]*|[!#$%(*+\-./0-9:=?@A-Z\[\\^_`a-z{|~]+)\Z")
_PLAIN_WORD = re.compile(r"[(*`]{0,3}[A-Z]?[a-z]{1,11}[*`]{0,3}[.:!?]{0,2}\Z")
_KEYISH = re.compile(
    r"(?i)(?:key|secret|token|passw\w*|credential\w*|bearer|basic|authorization)[\"'`*]*\s*[:=]?\s*[\"'`*]*\Z"
)
_MAX_HELD = 2_000
_WINDOW = 2_500
_AROUND = 300


def held_back(text: str) -> int:
    """How many characters at the end of `text` are not shown yet, since they may be the beginning of a secret."""
    match = _RUN.search(text, max(0, len(text) - _MAX_HELD - 1))
    if match is None or len(match[0]) > _MAX_HELD:
        return 0
    run = match[0]
    if _PLAIN_WORD.match(run) and not _KEYISH.search(text, max(0, match.start() - 40), match.start()):
        return 0
    return len(run)


def masked(text: str) -> str:
    """Text as it is displayed."""
    return visible(redact(text))


class _Shown:
    """What of a growing text may be shown, computed without going over all of it each time."""

    def __init__(self) -> None:
        self._fixed = 0
        self._shown = ""

    def of(self, raw: str, *, whole: bool) -> str:
        end = len(raw) if whole else len(raw) - held_back(raw)
        if end - self._fixed > 2 * _WINDOW:
            self._advance(raw[:end])
        return self._shown + masked(raw[self._fixed : end])

    def _advance(self, raw: str) -> None:
        """Fix what lies well before the end, up to a line end, or else a space, over which no secret goes on."""
        end = len(raw) - _WINDOW
        cut = (raw.rfind("\n", self._fixed, end) + 1) or (raw.rfind(" ", self._fixed, end) + 1)
        if cut <= self._fixed:
            return
        part = raw[self._fixed : cut]
        if "PRIVATE KEY" in part or part.rstrip()[-1:] in (":", "="):
            return
        before, after = raw[max(self._fixed, cut - _AROUND) : cut], raw[cut : cut + _AROUND]
        if masked(before + after) != masked(before) + masked(after):
            return
        self._shown += masked(part)
        self._fixed = cut


def _u16(text: str) -> int:
    """Length in UTF-16 units, as the browser counts."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2


TAGS = (
    '<span class="rein-hk">', '<span class="rein-hs">', '<span class="rein-hc">', '<span class="rein-hn">', '<span class="rein-hf">',
    '<span class="rein-hb">', '<span class="rein-hd">', "</span>", '<pre class="rein-code">', "</pre>", "<p>", "</p>", "<li>", "</li>",
    "<tr>", "</tr>", "<td>", '<td align="right">', "</td>", "<strong>", "</strong>", "<em>", "</em>", "<code>", "</code>", "<mrow>",
    "</mrow>", "<mi>", "</mi>", "<mn>", "</mn>", "<mo>",
)  # fmt: skip
"""What the control characters U+0080 to U+009F stand for in a finished block on its way to the browser; `static/widget.js` has the same list.
Foreign text holds none of them: `visible` shows them as symbols."""
_CODES = {tag: chr(0x80 + number) for number, tag in enumerate(TAGS)}

_PIECES = re.compile(r"<[^>]*>|&[^;\s]{1,10};|[^<&]+")
_MIN_COPY = 12


def references(markup: str, text: str) -> list[str | int]:
    """`markup` as literals and references into `text`, which the browser has: literal, skip, length, literal, skip, length...

    A reference skips so many UTF-16 units from the end of the one before, and copies so many. References are only to characters that need no
    escaping, so that the browser puts together exactly `markup`. In literals, frequent tags are one character each (`TAGS`).
    """
    out: list[str | int] = []
    literal = ""
    position = 0
    for piece in _PIECES.findall(markup):
        if piece[0] == "<":
            literal += _CODES.get(piece, piece)
        elif piece[0] == "&" or len(piece) < _MIN_COPY:
            literal += piece
        else:
            for line in re.split(r"(\n)", piece):
                found = text.find(line, position) if len(line) >= _MIN_COPY else -1
                if found >= 0:
                    out += [literal, _u16(text[position:found]), _u16(line)]
                    literal, position = "", found + len(line)
                else:
                    literal += line
    if literal:
        out.append(literal)
    return out


def resolve(pieces: list[str | int], text: str) -> str:
    """The inverse of `references`, as the browser does it."""
    units = text.encode("utf-16-le")
    out, start = "", 0
    for position in range(0, len(pieces), 3):
        out += re.sub("[\x80-\x9f]", lambda match: TAGS[ord(match[0]) - 0x80], str(pieces[position]))
        if position + 2 < len(pieces):
            start += int(pieces[position + 1])
            end = start + int(pieces[position + 2])
            out += units[2 * start : 2 * end].decode("utf-16-le")
            start = end
    return out


class MarkdownTail:
    """Markdown that grows. `take` text; `flush` gives the operations since the last flush."""

    def __init__(self) -> None:
        self.html: list[str] = []
        self.sent = ""
        self.mode = "text"
        self._splitter = BlockSplitter()
        self._references: dict[str, Any] = {}
        self._blocks: list[str] = []
        self._shown = _Shown()
        self._ended = False

    def take(self, text: str) -> None:
        """More text."""
        self._blocks += self._splitter.feed(text)

    def end(self) -> None:
        """The text is over."""
        if not self._ended:
            self._ended = True
            self._blocks += self._splitter.end()

    def flush(self) -> list[WireOp]:
        """Operations: ``["b", ...]`` a finished block, ``["m", mode]``, ``["s", text]`` the tail anew, a string appended to the tail."""
        out: list[WireOp] = []
        for block in self._blocks:
            markup = render_block(block, static=False, references=self._references)
            self.html.append(markup)
            out.append(["b", *references(markup, self.sent)])
            self.sent, self._shown = "", _Shown()
        self._blocks.clear()
        if self._ended:
            if self.sent:
                out.append(["s", ""])
            self.sent = ""
            return out
        if self._splitter.mode != self.mode:
            self.mode = self._splitter.mode
            out.append(["m", self.mode])
        tail = self._shown.of(self._splitter.visible_tail, whole=False)
        out += _grow(self.sent, tail)
        self.sent = tail
        return out


class PlainTail:
    """Text that grows and is shown as it is: a tool call's arguments."""

    def __init__(self) -> None:
        self.html: list[str] = []
        self.sent = ""
        self.mode = "text"
        self._raw: list[str] = []
        self._shown = _Shown()
        self._ended = False

    def take(self, text: str) -> None:
        """More text."""
        self._raw.append(text)

    def end(self) -> None:
        """The text is over: nothing is held back any more."""
        self._ended = True

    def flush(self) -> list[WireOp]:
        """As `MarkdownTail.flush`."""
        raw = "".join(self._raw)
        self._raw = [raw]
        tail = self._shown.of(raw, whole=self._ended)
        out = _grow(self.sent, tail)
        self.sent = tail
        return out


def _grow(before: str, after: str) -> list[WireOp]:
    if before == after:
        return []
    if after.startswith(before):
        return [after[len(before) :]]
    return [["s", after]]
