"""How a comparison is shown while it runs: a factory that the notebook room registers. Nothing is shown by default."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, TypeAlias

from rein_nb.agent.events import AgentEvent

if TYPE_CHECKING:
    from rein_nb.compare.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Stops:
    """What stop buttons call, from any thread, any number of times.

    Attributes
    ----------
    all
        Stops every column.
    columns
        By label: stops this column alone.
    """

    all: Callable[[], None]
    columns: Mapping[str, Callable[[], None]]


class Display(Protocol):
    """What a factory makes."""

    def feed(self, label: str, prompt_index: int, repeat: int, event: AgentEvent) -> None:
        """One event of one cell, in order. Called on rein_nb's loop thread: must be quick."""

    def finish(self, comparison: Comparison) -> None:
        """All is done, stopped or interrupted. Called in the thread that started the comparison."""


Factory: TypeAlias = Callable[[Sequence[str], Sequence[str], Stops], Display | None]
"""``factory(labels, prompts, stops)``, called in the starting thread; None shows nothing. `prompts` are texts, one a row of the grid."""

_factory: Factory | None = None


def set_factory(factory: Factory | None) -> Factory | None:
    """Register what shows comparisons from now on; returns what did before."""
    global _factory
    before, _factory = _factory, factory
    return before


def open_display(labels: Sequence[str], prompts: Sequence[str], stops: Stops) -> Display | None:
    """A display by the registered factory; in a cell, the notebook's own when none is registered; else None."""
    factory = _factory
    if factory is None and _in_a_cell():
        # By name, since this room stands above the notebook's.
        factory = import_module("rein_nb.notebook").live_grid
    return None if factory is None else factory(labels, prompts, stops)


def _in_a_cell() -> bool:
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and getattr(shell, "kernel", None) is not None
