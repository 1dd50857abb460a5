"""Reading a ``.env`` file, without ever changing the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_.]*)\s*=\s*(.*)", re.DOTALL)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", '"': '"', "\\": "\\", "$": "$"}

_read: dict[Path, tuple[tuple[int, int], dict[str, str]]] = {}


def parse_dotenv(text: str) -> dict[str, str]:
    """The assignments of a ``.env`` file: ``NAME=value``, ``export NAME=value``, quotes, comments. Lines that are neither are skipped.

    Examples
    --------
    >>> parse_dotenv("A=1 # one\\nexport B='x # y'\\n# C=2\\n")
    {'A': '1', 'B': 'x # y'}
    """
    values: dict[str, str] = {}
    for line in text.removeprefix("\ufeff").splitlines():
        if line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match:
            values[match[1]] = _value(match[2].strip())
    return values


def _value(raw: str) -> str:
    quote = raw[:1]
    if quote == "'" and (end := raw.find("'", 1)) > 0:
        return raw[1:end]
    if quote == '"':
        match = re.match(r'"((?:[^"\\]|\\.)*)"', raw)
        if match:
            return re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), match[1])
    return re.split(r"\s+#", raw, maxsplit=1)[0].strip() if not raw.startswith("#") else ""


def dotenv_values(folder: Path | None = None) -> Mapping[str, str]:
    """The assignments in ``.env`` of `folder` (the current one by default); empty when there is no such file."""
    path = (folder or Path.cwd()) / ".env"
    try:
        stat = path.stat()
        stamp = (stat.st_mtime_ns, stat.st_size)
        known = _read.get(path)
        if known is None or known[0] != stamp:
            known = _read[path] = (stamp, parse_dotenv(path.read_text(encoding="utf-8", errors="replace")))
        return known[1]
    except OSError:
        return {}


def getenv(*names: str) -> tuple[str, str] | None:
    """The first of `names` that is set to something, as (name, value): in the environment, else in ``.env``."""
    for name in names:
        if value := os.environ.get(name, "").strip():
            return name, value
    file = dotenv_values()
    for name in names:
        if value := file.get(name, "").strip():
            return name, value
    return None
