"""Foreign Markdown rewritten as Markdown that is safe wherever it is rendered.

A trusted notebook runs the HTML inside text/markdown, and Markdown dialects disagree about what is HTML, code, a link or mathematics. So the
text is parsed once, by our rules, and written anew in a form on which all dialects agree: escaped text, fences at fixed places, absolute
links with their target shown, no images, no raw HTML but ``<code>`` with escaped content.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from urllib.parse import quote

from rein_nb.notebook.blocks import split_blocks
from rein_nb.notebook.markdown import link_allowed, parser
from rein_nb.notebook.mathml import harmless_tex
from rein_nb.notebook.sanitize import shown

_SPECIAL = re.compile(r"[`*\[\]]|~~|(?<![^\W_])_|_(?![^\W_])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "\\": "&#92;", "$": "&#36;"}
_ENTITY = re.compile(r"[<\\$]|^\s*>|&(?=#?\w+;)", re.MULTILINE)
_LINE_START = re.compile(r"^(\s*)([#+=-]|\d+[.)]|:)(?=\s|$|[-=:])")
_PLAIN_CODE = re.compile(r"[^`<>&\\$|\[\]!\n]+")
_PLAIN_TEX = re.compile(r"[^<>`$\n]+")


def escape_text(text: str) -> str:
    """Shown text as Markdown that renders as exactly that text, in any dialect."""
    text = _ENTITY.sub(lambda match: match[0][:-1] + _ENTITIES[match[0][-1]], text)
    text = _SPECIAL.sub(lambda match: "".join("\\" + char for char in match[0]), text)
    return "\n".join(
        _LINE_START.sub(lambda match: f"{match[1]}{_bare_start(match[2])}", line) for line in text.split("\n")
    )


def _bare_start(marker: str) -> str:
    return marker[:-1] + "\\" + marker[-1]


def code_span(text: str) -> str:
    """Shown text as inline code: in backticks where no dialect can misread it, else as an element with escaped content."""
    text = text.replace("\n", " ")
    if _PLAIN_CODE.fullmatch(text):
        return f"`{text}`"
    return f"<code>{escape_code(text)}</code>"


def escape_code(text: str) -> str:
    """Text inside a ``<code>`` element within Markdown."""
    escaped = html.escape(text, quote=False)
    return re.sub(r"[\\`*_\[\]$!~|]", lambda match: f"&#{ord(match[0])};", escaped)


def fence(text: str, language: str = "") -> str:
    """Shown text as a fenced block that its own content cannot close."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    marks = "`" * max(3, longest + 1)
    language = re.sub(r"[^\w+#-]", "", language)[:30]
    return f"{marks}{language}\n{text}\n{marks}"


def link(text: str, url: str) -> str:
    """A link whose whole target is readable; `text` is already Markdown."""
    target = quote(url, safe="/:?#@!&=+,;%~-._")
    label = escape_text(url)
    return f"{text} (<{target}>)" if text and text != label else f"<{target}>"


def _tex(token: Any) -> str:
    tex, block = token.content, token.meta["block"]
    if harmless_tex(tex) and _PLAIN_TEX.fullmatch(tex.replace("\n", " ")):
        return f"$${tex}$$" if block else f"${' '.join(tex.split())}$"
    return code_span(tex)


def _inline(tokens: Sequence[Any]) -> str:
    out: list[str] = []
    starts: list[tuple[int, str]] = []
    for token in tokens:
        kind = token.type
        if kind in ("text", "text_special", "html_inline"):
            out.append(escape_text(token.content))
        elif kind == "code_inline":
            out.append(code_span(token.content))
        elif kind == "math":
            out.append(_tex(token))
        elif kind == "softbreak":
            out.append("\n")
        elif kind == "hardbreak":
            out.append("<br>\n")
        elif kind in ("strong_open", "strong_close"):
            out.append("**")
        elif kind in ("em_open", "em_close"):
            out.append("*")
        elif kind in ("s_open", "s_close"):
            out.append("~~")
        elif kind == "link_open":
            starts.append((len(out), str(token.attrs.get("href", ""))))
        elif kind == "link_close":
            position, url = starts.pop()
            out[position:] = [link("".join(out[position:]), url)]
        elif kind == "image":
            url, alt = str(token.attrs.get("src", "")), escape_text(f"image: {token.content or 'image'}")
            out.append(link(alt, url) if link_allowed(url) else escape_text("[") + alt + escape_text("]"))
    text = "".join(out)
    return "\n".join(line.lstrip() for line in text.split("\n"))


class _Writer:
    """Writes block tokens; `indent` is what every line of the current container begins with."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.prefixes: list[str] = []
        self.pending: str | None = None

    def put(self, text: str, *, gap: bool = True) -> None:
        prefix = "".join(self.prefixes)
        for number, line in enumerate(text.split("\n")):
            lead = prefix
            if number == 0 and self.pending is not None:
                lead, self.pending = self.pending, None
            self.lines.append((lead + line).rstrip())
        if gap:
            self.lines.append(prefix.rstrip())

    def write(self, tokens: Sequence[Any]) -> str:
        ordered: list[int | None] = []
        row: list[str] = []
        aligns: list[str] = []
        for token in tokens:
            kind = token.type
            if kind == "inline" and row is not None and token.meta.get("cell"):
                row.append(_inline(token.children or []).replace("\n", " ").replace("|", "&#124;"))
            elif kind == "inline":
                text = _inline(token.children or [])
                level = token.meta.get("heading")
                if level:
                    text = "#" * level + " " + text.replace("\n", " ")
                self.put(text, gap=not token.meta.get("tight"))
            elif kind in ("fence", "code_block"):
                self.put(fence(token.content.removesuffix("\n"), (token.info or "").split(" ")[0]))
            elif kind == "hr":
                self.put("---")
            elif kind == "bullet_list_open":
                ordered.append(None)
            elif kind == "ordered_list_open":
                ordered.append(int(token.attrs.get("start", 1)))
            elif kind in ("bullet_list_close", "ordered_list_close"):
                ordered.pop()
                if not ordered and self.lines and self.lines[-1].strip("> "):
                    self.put("", gap=False)
            elif kind == "list_item_open":
                number = ordered[-1]
                marker = "- " if number is None else f"{number}. "
                self.pending = (self.pending or "".join(self.prefixes)) + marker
                if number is not None:
                    ordered[-1] = number + 1
                self.prefixes.append(" " * len(marker))
            elif kind in ("list_item_close", "blockquote_close"):
                if self.pending is not None:
                    self.put("")
                self.prefixes.pop()
            elif kind == "blockquote_open":
                if self.pending is not None:
                    self.pending += "> "
                self.prefixes.append("> ")
            elif kind == "thead_open":
                aligns = []
            elif kind in ("th_open", "td_open"):
                if kind == "th_open":
                    style = str(token.attrs.get("style", "")).removeprefix("text-align:")
                    aligns.append({"right": "--:", "center": ":-:"}.get(style, "---"))
            elif kind == "tr_close":
                self.put(f"| {' | '.join(row)} |", gap=False)
                row.clear()
            elif kind == "thead_close":
                self.put(f"| {' | '.join(aligns)} |", gap=False)
            elif kind == "table_close":
                self.put("")
        while self.lines and not self.lines[-1].strip("> "):
            self.lines.pop()
        return "\n".join(self.lines).lstrip("\n")


def _mark(tokens: Sequence[Any]) -> None:
    """Tell each inline token what it stands in."""
    for before, token in pairwise(tokens):
        if token.type == "inline":
            token.meta["cell"] = before.type in ("th_open", "td_open")
            token.meta["tight"] = before.hidden
            token.meta["heading"] = int(before.tag[1]) if before.type == "heading_open" else 0


def safe_markdown(source: str) -> str:
    """Foreign Markdown as safe Markdown; secrets masked, invisible characters shown.

    Examples
    --------
    >>> safe_markdown("**hi** <img src=x> ![p](https://a.example/p.png)")
    '**hi** &lt;img src=x> image: p (<https://a.example/p.png>)'
    """
    references: dict[str, Any] = {}
    out: list[str] = []
    for block in split_blocks(source):
        tokens = parser().parse(shown(block), {"references": references})
        _mark(tokens)
        out.append(_Writer().write(tokens))
    return "\n\n".join(filter(None, out))
