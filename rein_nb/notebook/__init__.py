"""The notebook: what a run does, seen as it happens, and still there tomorrow.

Lives here: the view model (`view_model`, a pure reducer from agent events) and its rendering (`render`, `markdown`, `plain`: pure), what goes
to the browser (`wire`, `tail`), the widget, static output and exports (`saved`), the magics.

May import: every room, IPython and anywidget (inside functions). May not know: wire dialects, SDKs, pandas but through an object's own
methods.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

_WHERE = {
    "GridView": "grid",
    "Live": "live",
    "allow_nested_loops": "nested",
    "live_grid": "grid",
    "from_jsonl": "jsonl",
    "load_ipython_extension": "extension",
    "mimebundle": "formatters",
    "run_cell": "magics",
    "show": "show",
    "show_grid": "grid",
    "state_of": "replay",
    "transcript_html": "saved",
    "transcript_jsonl": "jsonl",
    "transcript_markdown": "saved",
    "unload_ipython_extension": "extension",
}

__all__ = [
    "GridView",
    "Live",
    "allow_nested_loops",
    "from_jsonl",
    "live_grid",
    "load_ipython_extension",
    "mimebundle",
    "run_cell",
    "show",
    "show_grid",
    "state_of",
    "transcript_html",
    "transcript_jsonl",
    "transcript_markdown",
    "unload_ipython_extension",
]

if TYPE_CHECKING:
    from rein_nb.notebook.extension import load_ipython_extension, unload_ipython_extension
    from rein_nb.notebook.formatters import mimebundle
    from rein_nb.notebook.grid import GridView, live_grid, show_grid
    from rein_nb.notebook.jsonl import from_jsonl, transcript_jsonl
    from rein_nb.notebook.live import Live
    from rein_nb.notebook.magics import run_cell
    from rein_nb.notebook.nested import allow_nested_loops
    from rein_nb.notebook.replay import state_of
    from rein_nb.notebook.saved import transcript_html, transcript_markdown
    from rein_nb.notebook.show import show


def __getattr__(name: str) -> Any:
    home = _WHERE.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # A function named like its module: the name stands for the function.
    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
