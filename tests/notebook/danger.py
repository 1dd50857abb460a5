"""An independent judge of HTML: what in it could run, fetch, pretend or hide. Built on html.parser, not on our sanitiser."""

from __future__ import annotations

import re
from html.parser import HTMLParser

TAGS = frozenset(
    [
        "a",
        "b",
        "blockquote",
        "br",
        "code",
        "dd",
        "del",
        "details",
        "div",
        "dl",
        "dt",
        "em",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "hr",
        "i",
        "img",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "s",
        "small",
        "span",
        "strong",
        "sub",
        "summary",
        "sup",
        "table",
        "tbody",
        "td",
        "th",
        "thead",
        "tr",
        "ul",
        "math",
        "mrow",
        "mi",
        "mn",
        "mo",
        "ms",
        "mtext",
        "mspace",
        "msup",
        "msub",
        "msubsup",
        "mfrac",
        "msqrt",
        "mroot",
        "mover",
        "munder",
        "munderover",
        "mtable",
        "mtr",
        "mtd",
        "mstyle",
        "mpadded",
    ]
)
ATTRIBUTES = frozenset(
    [
        "class",
        "style",
        "href",
        "target",
        "rel",
        "start",
        "align",
        "open",
        "role",
        "colspan",
        "scope",
        "src",
        "alt",
        "aria-label",
        "aria-valuenow",
        "display",
        "displaystyle",
        "stretchy",
        "fence",
        "form",
        "separator",
        "lspace",
        "rspace",
        "width",
        "height",
        "columnalign",
        "accent",
        "accentunder",
        "mathvariant",
        "minsize",
        "maxsize",
        "linethickness",
        "scriptlevel",
        "movablelimits",
        "tabindex",
        "data-id",
        "data-kind",
        "data-slot",
    ]
)
STYLE_VALUE = re.compile(r"[\w\s.%#(),:;+/-]*")
BAD_STYLE = re.compile(r"url\(|expression|position\s*:\s*(?:fixed|absolute)|@import|behavior|javascript", re.I)
HIDDEN = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]"
)


class _Judge(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.text: list[str] = []
        self.prose: list[str] = []
        self.code = 0

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag in ("pre", "code")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.code += tag in ("pre", "code")
        if tag not in TAGS:
            self.found.append(f"<{tag}>")
        values = {name: value or "" for name, value in attrs}
        for name, value in values.items():
            self._attribute(tag, name, value, values)

    def _attribute(self, tag: str, name: str, value: str, values: dict[str, str]) -> None:
        if name not in ATTRIBUTES:
            self.found.append(f"{tag} {name}=")
        elif name == "href":
            if not re.match(r"(?i)(https?://|mailto:)", value):
                self.found.append(f"href={value[:40]}")
            if set(values.get("rel", "").split()) < {"noopener", "nofollow", "noreferrer"}:
                self.found.append(f"rel={values.get('rel')}")
        elif name == "src":
            if not re.fullmatch(r"data:image/(?:png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*", value):
                self.found.append(f"src={value[:40]}")
        elif name == "style" and (BAD_STYLE.search(value) or not STYLE_VALUE.fullmatch(value)):
            self.found.append(f"style={value[:60]}")
        elif name == "class" and not all(
            c.startswith("rein-") or c in ("mathjax_ignore", "tex2jax_ignore") for c in value.split()
        ):
            self.found.append(f"class={value}")

    def handle_comment(self, data: str) -> None:
        self.found.append("comment")

    def handle_decl(self, decl: str) -> None:
        self.found.append("declaration")

    def unknown_decl(self, data: str) -> None:
        self.found.append("declaration")

    def handle_pi(self, data: str) -> None:
        self.found.append("instruction")

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if not self.code:
            self.prose.append(data)


def dangers(markup: str) -> list[str]:
    """What is dangerous in HTML; empty when nothing is."""
    judge = _Judge()
    judge.feed(markup)
    judge.close()
    found = list(judge.found)
    text = "".join(judge.text)
    if HIDDEN.search(text):
        found.append("hidden characters")
    # A page-wide typesetter skips code, and elsewhere sees one string between two tags: two dollar signs or an escaped bracket in it begin
    # mathematics.
    for piece in judge.prose:
        if len(re.findall(r"\$", piece)) > 1 or re.search(r"\\[(\[]|\\begin\{", piece):
            found.append(f"mathematics: {piece[:40]}")
    return found


def visible_text(markup: str) -> str:
    """The text of HTML."""
    judge = _Judge()
    judge.feed(markup)
    judge.close()
    return "".join(judge.text)


_FENCE = re.compile(r"^(`{3,})[^\n`]*\n.*?^\1[ ]*$", re.M | re.S)
_CODE = re.compile(r"`[^`<>&\n]*`")


def markdown_dangers(text: str) -> list[str]:
    """What is dangerous in Markdown that a trusted notebook renders: raw HTML but <code> and <br>, images, links of other schemes, hidden
    characters, mathematics that makes links. Fenced blocks and code spans are text in every dialect."""
    found: list[str] = []
    if HIDDEN.search(text):
        found.append("hidden characters")
    lines = []
    for line in text.split("\n"):
        lines.append(re.sub(r"^(?:> ?| {2,}|- |\d+\. )+", "", line))
    bare = _CODE.sub("", _FENCE.sub("", "\n".join(lines)))
    bare = re.sub(r"<(?:https?://|mailto:)[^\s<>]*>", "", bare)
    for tag in re.findall(r"<[^>\s]*", bare):
        if tag not in ("<code", "</code", "<br"):
            found.append(tag)
    if re.search(r"!\[|(?<!\\)\]\(|(?<!\\)\]\[", bare):
        found.append("link or image")
    if re.search(r"^\s*\[[^\]]*\]:", bare, re.M):
        found.append("reference")
    for tex in re.findall(r"\$([^$]*)\$", bare):
        if re.search(r"\\(?:href|url|html|class|style|unicode|require)", tex):
            found.append(f"mathematics: {tex[:40]}")
    return found
