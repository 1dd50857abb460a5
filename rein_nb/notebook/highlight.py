"""Code to HTML: Pygments tokens in eight groups, coloured by the front end's own editor colours."""

from __future__ import annotations

import html
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

from rein_nb.notebook.style import attributes

MAX_CODE = 100_000
"""Characters beyond which code is shown without colours."""


@lru_cache(maxsize=1)
def _groups() -> list[tuple[Any, str]]:
    from pygments.token import Comment, Generic, Keyword, Name, Number, Operator, String

    return [
        (Comment, "hc"),
        (Keyword.Constant, "hn"),
        (Operator.Word, "hk"),
        (Keyword, "hk"),
        (String, "hs"),
        (Number, "hn"),
        (Name.Function, "hf"),
        (Name.Class, "hf"),
        (Name.Tag, "hk"),
        (Name.Attribute, "hf"),
        (Name.Decorator, "hd"),
        (Name.Builtin, "hb"),
        (Name.Exception, "hb"),
        (Generic.Inserted, "hs"),
        (Generic.Deleted, "hd"),
    ]


@lru_cache(maxsize=256)
def _group(kind: Any) -> str:
    return next((name for parent, name in _groups() if kind in parent), "")


@lru_cache(maxsize=64)
def _lexer(language: str) -> Any:
    from pygments import lexers
    from pygments.util import ClassNotFound

    find: Any = lexers.get_lexer_by_name
    try:
        return find(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


def _runs(code: str, language: str) -> Iterator[tuple[str, str]]:
    """(group, text) with neighbours of one group joined; spaces join either side."""
    lexer = _lexer(language) if language and len(code) <= MAX_CODE else None
    if lexer is None:
        yield "", code
        return
    group, text = "", ""
    for kind, piece in lexer.get_tokens(code):
        new = _group(kind)
        if new != group and not piece.isspace():
            if text:
                yield group, text
            group, text = new, piece
        else:
            text += piece
    yield group, text


def highlight(code: str, language: str, *, static: bool) -> str:
    """Escaped code with coloured spans. `static` writes the colours into the elements, for output that has no style sheet."""
    return "".join(
        f"<span{attributes(group, static=static)}>{html.escape(text)}</span>" if group else html.escape(text)
        for group, text in _runs(code, language.lower())
    )
