"""What every piece of foreign text passes before it is drawn: secrets masked, invisible characters made visible, HTML cleaned.

Foreign is all that a model, a tool, a provider or a document wrote: answers, thinking, tool names, arguments, results, errors, citations,
model names. `shown` is for text, `clean_html` for HTML that was made from foreign text by the Markdown renderer.
"""

from __future__ import annotations

import html
import re
from typing import Any

import nh3

from rein_nb.ir import redact

MARK_OPEN, MARK_CLOSE = "\uf8f0", "\uf8f1"
"""Private-use characters that fence off our own insertions during rendering; `visible` never lets them through."""

_ESCAPED = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f\x80-\x9f"  # C0 and C1 controls, ESC and CR among them; not tab and newline
    "\u00ad\u061c\u180e\u200b\u200e\u200f"  # soft hyphen, bidi marks, zero-width space
    "\u2028-\u202e\u2060-\u206f"  # separators, bidi embeddings and isolates, invisible operators
    "\ufe00-\ufe0d\ufeff\ufff9-\ufffb"  # variation selectors (not 15 and 16: text and emoji style), BOM, annotations
    "\uf8f0\uf8f1"
    "\ud800-\udfff"
    "\U000e0000-\U000e01ef"  # tag characters and supplementary variation selectors
    "]"
)


def _show(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    if 0xD800 <= code <= 0xDFFF:
        return "\ufffd"
    return f"\u27e8U+{code:04X}\u27e9"


def visible(text: str) -> str:
    """Terminal escapes, bidirectional controls and invisible characters as visible symbols, so that they cannot act or hide.

    Examples
    --------
    >>> visible("a\\x1b[31mb\\u202ec")
    'a␛[31mb⟨U+202E⟩c'
    """
    if "\r" in text:
        text = text.replace("\r\n", "\n")
    return _ESCAPED.sub(_show, text)


def shown(text: str) -> str:
    """Foreign text as it may be displayed and saved: secrets masked, then `visible`."""
    return visible(redact(text))


def masked(value: Any) -> Any:
    """JSON data with secrets masked, in the keys too: a model chooses those as well."""
    value = redact(value)
    return _mask_keys(value) if isinstance(value, dict | list) else value


def _mask_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {redact(key) if isinstance(key, str) else key: _mask_keys(item) for key, item in value.items()}
    return [_mask_keys(item) for item in value] if isinstance(value, list) else value


def escape(text: str) -> str:
    """Foreign text as HTML text or attribute value, shown and escaped.

    A dollar sign or a backslash before a bracket would start mathematics where the page typesets it (JupyterLab, nbconvert), and
    typesetting can make links: both are broken up by entities' only safe form, an element of their own.
    """
    return guard_math(html.escape(shown(text)))


def escape_attribute(text: str) -> str:
    """Foreign text as an attribute value."""
    return html.escape(shown(text).replace("\n", " "))


_MATH = re.compile(r"\$|\\(?=[()\[\]]|begin\b|end\b|ref\b|eqref\b)")


def guard_math(markup: str) -> str:
    """Escaped text in which no page-wide mathematics typesetter finds a delimiter."""
    return _MATH.sub(lambda match: f"<span>{match[0]}</span>", markup)


SCHEMES = frozenset({"http", "https", "mailto"})

_CLEANER = nh3.Cleaner(
    tags={
        "p", "h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "blockquote", "pre", "code", "em", "strong", "s", "br", "hr",
        "table", "thead", "tbody", "tr", "th", "td", "a", "span", "sup",
    },
    clean_content_tags={"script", "style"},
    attributes={"a": {"href"}, "ol": {"start"}, "th": {"align"}, "td": {"align"}},
    allowed_classes={"span": {"rein-url"}},
    url_schemes=set(SCHEMES),
    url_relative="deny",
    link_rel="noopener nofollow noreferrer",
    set_tag_attribute_values={"a": {"target": "_blank"}},
    generic_attribute_prefixes=set(),
    strip_comments=True,
)  # fmt: skip


def clean_html(markup: str) -> str:
    """HTML reduced to plain tags: no image, style, form, SVG, ``data-`` attribute, id or class but our own; links absolute and inert."""
    return _CLEANER.clean(markup)
