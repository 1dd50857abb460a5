"""The same work on many models, side by side.

Lives here: `compare` and `acompare` (one grid of runs, every column at once), `Comparison` (frames, table, diff, plots, static page), and
the hook by which a notebook shows the columns while they stream.

May import: everything above it in the house; pandas and Altair inside functions. May not know: any widget, IPython, or `notebook`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rein_nb.compare.columns import PromptLike
from rein_nb.compare.comparison import Cell, Comparison
from rein_nb.compare.diff import Diff
from rein_nb.compare.display import Display, Factory, Stops, set_factory
from rein_nb.compare.review import Review
from rein_nb.compare.review_votes import join_votes
from rein_nb.compare.run import acompare, compare, last

__all__ = [
    "Cell",
    "Comparison",
    "Diff",
    "Display",
    "Factory",
    "PromptLike",
    "Review",
    "Stops",
    "acompare",
    "compare",
    "join_votes",
    "last",
    "set_factory",
]


class _CallableRoom(ModuleType):
    """Lets ``rein_nb.compare(...)`` work also after somebody imported the room ``rein_nb.compare``, which has the same name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Comparison:
        return compare(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
