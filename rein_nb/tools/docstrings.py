"""Parameter descriptions out of docstrings: Google, NumPy and Sphinx style, also mixed. Pure text in, data out."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field

_SECTIONS = frozenset(
    {
        "args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters", "attributes",
        "returns", "return", "yields", "yield", "raises", "raise", "except", "exceptions", "warns", "warnings", "receives",
        "example", "examples", "note", "notes", "see also", "references", "todo", "methods",
    }
)  # fmt: skip
_PARAMETERS = frozenset(
    {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments", "other parameters"}
)
# Sections that say how a function is written, not what it does for the one who calls it.
_KEPT = frozenset({"note", "notes", "warnings", "example", "examples"})

_SPHINX_PARAMETERS = ("param", "parameter", "arg", "argument", "key", "keyword")
_SPHINX_FIELDS = (
    *_SPHINX_PARAMETERS, "type", "kwtype", "return", "returns", "rtype", "yield", "yields", "ytype", "raise", "raises", "except",
    "exception", "var", "ivar", "cvar", "vartype", "meta",
)  # fmt: skip
# Other words between colons are a sentence's own: a role (:class:`X`), an icon (:warning:).
_SPHINX = re.compile(
    rf"^:(?P<tag>{'|'.join(_SPHINX_FIELDS)})(?:\s+(?P<body>[^:]*))?:(?!`)\s*(?P<text>.*)$", re.IGNORECASE
)
_GOOGLE_ITEM = re.compile(r"^(?P<name>\*{0,2}\w+)\s*(?:\((?P<type>[^)]*(?:\([^)]*\)[^)]*)*)\))?\s*:\s*(?P<text>.*)$")
_NUMPY_ITEM = re.compile(r"^(?P<names>\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")


@dataclass(slots=True)
class Docs:
    """What a docstring says: the description without its sections, and a text for each parameter."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def parse_docstring(text: str | None) -> Docs:
    """Read a docstring.

    Examples
    --------
    >>> parse_docstring("Forecast.\\n\\nArgs:\\n    city (str): Where.\\n        In full.")
    Docs(description='Forecast.', parameters={'city': 'Where. In full.'})
    """
    if not text:
        return Docs()
    lines = inspect.cleandoc(text).splitlines()
    docs = Docs()
    description: list[str] = []
    at = 0
    while at < len(lines):
        heading, style = _heading(lines, at)
        if heading:
            body, after = _section_body(lines, at, style)
            if heading in _PARAMETERS:
                _read_items(body, style, docs.parameters)
            elif heading in _KEPT:
                description.extend(lines[at:after])
            at = after
            continue
        field_match = _SPHINX.match(lines[at])
        if field_match:
            at = _read_sphinx(lines, at, field_match, docs.parameters)
            continue
        description.append(lines[at])
        at += 1
    docs.description = re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip() for line in description)).strip()
    return docs


def _heading(lines: list[str], at: int) -> tuple[str, str]:
    """(section name, style) when a section starts at this line, else two empty strings."""
    line = lines[at]
    word = line.strip().lower()
    if line.startswith((" ", "\t")) or not word:
        return "", ""
    if word.endswith(":") and word[:-1] in _SECTIONS:
        return word[:-1], "google"
    following = lines[at + 1].strip() if at + 1 < len(lines) else ""
    if word in _SECTIONS and len(following) >= 3 and set(following) == {"-"}:
        return word, "numpy"
    return "", ""


def _section_body(lines: list[str], at: int, style: str) -> tuple[list[str], int]:
    """(the section's lines, index of the line after it)."""
    start = at + (2 if style == "numpy" else 1)
    end = start
    while end < len(lines):
        if _heading(lines, end)[0] or _SPHINX.match(lines[end]):
            break
        line = lines[end]
        if style == "google" and line.strip() and not line.startswith((" ", "\t")):
            break
        end += 1
    return lines[start:end], end


def _read_items(body: list[str], style: str, into: dict[str, str]) -> None:
    filled = [line for line in body if line.strip()]
    if not filled:
        return
    base = min(len(line) - len(line.lstrip()) for line in filled)
    names: list[str] = []
    texts: dict[str, list[str]] = {}
    for line in body:
        indent = len(line) - len(line.lstrip())
        stripped = line.strip()
        pattern = _NUMPY_ITEM if style == "numpy" else _GOOGLE_ITEM
        match = pattern.match(stripped) if stripped and indent == base else None
        if match:
            if style == "numpy":
                names = [name.strip().lstrip("*") for name in match["names"].split(",")]
                first = ""
            else:
                names = [match["name"].lstrip("*")]
                first = match["text"]
            for name in names:
                texts[name] = [first] if first else []
        elif names and stripped:
            for name in names:
                texts[name].append(stripped)
    for name, pieces in texts.items():
        if pieces:
            into.setdefault(name, " ".join(pieces))


def _read_sphinx(lines: list[str], at: int, match: re.Match[str], into: dict[str, str]) -> int:
    pieces = [match["text"].strip()]
    at += 1
    while at < len(lines) and lines[at].startswith((" ", "\t")) and lines[at].strip():
        pieces.append(lines[at].strip())
        at += 1
    body = (match["body"] or "").split()
    if match["tag"].lower() in _SPHINX_PARAMETERS and body:
        text = " ".join(piece for piece in pieces if piece)
        if text:
            into.setdefault(body[-1].lstrip("*"), text)
    return at
