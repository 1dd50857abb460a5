"""Several runs side by side: the live grid of a comparison, and `show_grid` for finished runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rein_nb.agent.events import AgentEvent
from rein_nb.compare.display import Stops
from rein_nb.notebook.frontend import Output, place
from rein_nb.notebook.live import Live
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.saved import grid_bundle

if TYPE_CHECKING:
    from rein_nb.compare.comparison import Comparison

log = logging.getLogger("rein_nb.notebook")

MAX_LIVE_PANES = 60
"""Runs that are drawn live; a larger comparison is shown when it is done."""


class GridView:
    """A grid of runs: labels across, prompts down. Live it shows the first run of each prompt, saved all repeats.

    Parameters
    ----------
    labels
        The columns.
    prompts
        The rows' prompts as text. A single one needs no heading.
    stops
        What the stop buttons call; None draws no working ones.
    """

    def __init__(self, labels: Sequence[str], prompts: Sequence[str] = (), stops: Stops | None = None) -> None:
        self.labels, self.prompts = list(labels), list(prompts)
        self.live = Live(
            self.labels,
            self.prompts if len(self.prompts) > 1 else (),
            show_prompt=False,
            on_stop=stops.all if stops is not None else None,
            on_stop_column=(lambda label: stops.columns[label]()) if stops is not None else None,
        )

    def feed(self, label: str, prompt_index: int, repeat: int, event: AgentEvent) -> None:
        """One event of one run."""
        if repeat == 0:
            self.live.feed(event, prompt_index * len(self.labels) + self.labels.index(label))

    def static(self) -> dict[str, Any]:
        """The static MIME bundle of what was fed so far."""
        return self.live.bundle()

    def finish(self, comparison: Comparison | None = None) -> None:
        """All is done: replace the live grid by the static one."""
        self.live.finish(comparison_bundle(comparison) if comparison is not None and comparison.repeats > 1 else None)
        if comparison is not None:
            _shown.append(id(comparison))
            del _shown[:-8]


def comparison_bundle(comparison: Comparison) -> dict[str, Any]:
    """A comparison as static grid: every prompt, every repeat."""
    rows = [
        prompt if repeat == 0 else f"{prompt} (run {repeat + 1} of {comparison.repeats})"
        for prompt in comparison.prompts
        for repeat in range(comparison.repeats)
    ]
    states = []
    for cell in comparison.cells:
        state = state_of(cell.result if cell.result is not None else cell.events)
        state.blocks = [block for block in state.blocks if block.kind not in ("user", "system")]
        states.append(state)
    return grid_bundle(comparison.labels, states, rows if len(rows) > 1 else ())


_shown: list[int] = []


def was_shown(comparison: Any) -> bool:
    """Whether this comparison's grid was just displayed by the cell that made it; asking makes it forget."""
    if id(comparison) not in _shown:
        return False
    _shown.remove(id(comparison))
    return True


def live_grid(labels: Sequence[str], prompts: Sequence[str], stops: Stops | None = None) -> GridView | None:
    """The display factory of comparisons: a live grid where a kernel is, nothing elsewhere.

    Parameters
    ----------
    labels, prompts, stops
        As `rein_nb.compare.Factory` is given them.
    """
    if place() not in ("notebook", "headless") or len(labels) * max(1, len(prompts)) > MAX_LIVE_PANES:
        return None
    return GridView(labels, prompts, stops)


def show_grid(columns: Mapping[str, Any]) -> None:
    """Display finished runs side by side.

    Parameters
    ----------
    columns
        Labels to `AgentResult`, `Completion`, `Message`, list of messages or events.
    """
    labels = [str(label) for label in columns]
    bundle = grid_bundle(labels, [state_of(value) for value in columns.values()])
    if place() in ("none", "terminal"):
        import sys

        sys.stdout.write(bundle["text/plain"] + "\n")
    else:
        Output().put(bundle)
