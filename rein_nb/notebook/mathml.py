"""TeX to MathML, offline. The converter does not escape what it is given, so its output is parsed and rebuilt from an allow-list."""

from __future__ import annotations

import html
import re
from functools import lru_cache
from xml.etree import ElementTree

_TAGS = frozenset(
    {
        "math", "mrow", "mi", "mn", "mo", "ms", "mtext", "mspace", "msup", "msub", "msubsup", "mfrac", "msqrt", "mroot", "mover",
        "munder", "munderover", "mtable", "mtr", "mtd", "mstyle", "mpadded", "mphantom", "menclose", "mmultiscripts", "mprescripts",
        "none",
    }
)  # fmt: skip
_ATTRIBUTES = frozenset(
    {
        "display", "displaystyle", "scriptlevel", "mathvariant", "stretchy", "fence", "form", "separator", "symmetric", "lspace",
        "rspace", "minsize", "maxsize", "accent", "accentunder", "linethickness", "columnalign", "rowspacing", "columnspacing",
        "columnlines", "rowlines", "notation", "width", "height", "depth", "movablelimits", "largeop",
    }
)  # fmt: skip
_VALUE = re.compile(r"[\w .%+-]*")
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"

_FORBIDDEN = re.compile(
    r"\\(?:href|url|html\w*|class|cssId|style|require|unicode|input|include|def|let|newcommand|renewcommand)\b"
)
"""Commands that make links, attributes or new commands in one typesetter or another."""

MAX_TEX = 5_000
"""Characters; longer input is shown as code."""


def harmless_tex(tex: str) -> bool:
    """Whether no typesetter makes more than a formula of it."""
    return _FORBIDDEN.search(tex) is None


@lru_cache(maxsize=512)
def mathml(tex: str, *, block: bool) -> str | None:
    """The formula as MathML; None when it cannot be converted, so that the caller shows the TeX as code."""
    if len(tex) > MAX_TEX or not harmless_tex(tex):
        return None
    from latex2mathml import converter

    source = tex.replace("<", r"\lt ").replace(">", r"\gt ")
    try:
        root = ElementTree.fromstring(converter.convert(source, display="block" if block else "inline"))
        return _rebuild(root)
    except Exception:
        # The converter raises whatever a malformed formula leads it into (IndexError, KeyError, its own classes): the TeX is shown.
        return None


def _rebuild(node: ElementTree.Element) -> str:
    name = node.tag.removeprefix(_NAMESPACE)
    inner = html.escape(node.text or "") + "".join(_rebuild(child) + html.escape(child.tail or "") for child in node)
    if name not in _TAGS:
        return inner
    attributes = "".join(
        f' {key}="{value}"' for key, value in node.attrib.items() if key in _ATTRIBUTES and _VALUE.fullmatch(value)
    )
    return f"<{name}{attributes}>{inner}</{name}>"
