"""Text that models and tools wrote, as HTML that can do nothing: no tag, no secret, no control or direction character is obeyed."""

from __future__ import annotations

import html
import re

from rein_nb.ir import redact
from rein_nb.ir.base import clean_text

_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")

_MATH = re.compile(r"\$|\\(?=[()\[\]]|begin\b|end\b|ref\b|eqref\b)")


def escape(text: str) -> str:
    """`text` for an HTML element: escaped, secrets masked, invisible controls shown as their code point, no mathematics begun.

    A dollar sign, or a backslash before a bracket, would start mathematics where the page typesets it, and typesetting can make links.
    """
    shown = _OBEYED.sub(
        lambda match: f"\u27e8U+{ord(match[0]):04X}\u27e9", clean_text(redact(text).replace("\r\n", "\n"))
    )
    return _MATH.sub(lambda match: f"<span>{match[0]}</span>", html.escape(shown, quote=True))
