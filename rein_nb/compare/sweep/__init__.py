"""A study: a dataset x models x variants x repeats, journaled so that it resumes after any crash without paying twice.

Lives here: `sweep` and `asweep`, `Sweep` (frames and intervals), `scorers`, `Budget`, `RateLimit`; cells here or on a Dask cluster.

May import: everything above `compare`, and `compare`'s columns; pandas, numpy, tqdm and distributed inside functions. May not know: any widget.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

from rein_nb.compare.sweep import scorers
from rein_nb.compare.sweep.budget import Budget
from rein_nb.compare.sweep.rates import RateLimit
from rein_nb.compare.sweep.result import CellResult, Sweep
from rein_nb.compare.sweep.run import asweep, sweep

__all__ = ["Budget", "CellResult", "RateLimit", "Sweep", "asweep", "scorers", "sweep"]


class _CallableRoom(ModuleType):
    """Lets ``compare.sweep(...)`` work although the room has the function's name."""

    def __call__(self, *args: Any, **kwargs: Any) -> Sweep:
        return sweep(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableRoom
