"""Names for a server's tools that every provider accepts, different for different tools and the same whenever the list is read again."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from rein_nb.ir import sanitize_tool_name

MAX_NAME = 64
_MARK = 8


def tool_names(originals: Iterable[str], prefix: str = "") -> dict[str, str]:
    """Name for the model by the server's own name.

    A name that is valid as it stands is kept. Any other is made valid and gets a mark made from the original, so that two tools never
    share a name, whatever else is on the list.

    Examples
    --------
    >>> tool_names(["add", "a.dd"], "x_")
    {'add': 'x_add', 'a.dd': 'x_a_dd_39f7cac0'}
    """
    return {original: _name(original, prefix) for original in originals}


def _name(original: str, prefix: str) -> str:
    wanted = prefix + original
    made = sanitize_tool_name(wanted)
    if made and made == wanted and not _looks_marked(made):
        return made
    mark = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:_MARK]
    return f"{(made or 'tool')[: MAX_NAME - _MARK - 1]}_{mark}"


def _looks_marked(name: str) -> bool:
    """Whether a server's own name ends like a mark: it gets one too, so that it cannot be taken for another tool's."""
    tail = name.rpartition("_")[2]
    return len(tail) == _MARK and all(letter in "0123456789abcdef" for letter in tail)
