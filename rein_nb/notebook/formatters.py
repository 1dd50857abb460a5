"""How results show themselves as a cell's last value: registered with IPython by the types' names, so that no room but this knows of it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import Any

from rein_nb import _SHOWN
from rein_nb.notebook.saved import bundle_of


def mimebundle(obj: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
    """The MIME bundle of a result, completion, message, agent, session or comparison: usable as a ``_repr_mimebundle_``.

    Parameters
    ----------
    obj
        What is to be shown.
    include, exclude
        IPython's; everything is given in any case.
    """
    from rein_nb.agent import Agent
    from rein_nb.compare.comparison import Comparison

    if isinstance(obj, Comparison):
        from rein_nb.notebook.grid import comparison_bundle, was_shown

        if not was_shown(obj):
            return comparison_bundle(obj)
        # HTML too, or IPython would add the whole grid once more from the object's own representation.
        return {"text/plain": repr(obj), "text/html": f"<pre>{escape(repr(obj))}</pre>"}
    if isinstance(obj, Agent) or type(obj).__name__ == "Session":
        messages = list(obj.messages() if callable(obj.messages) else obj.messages)
        return bundle_of(messages) if messages else {"text/plain": repr(obj)}
    return bundle_of(obj)


_RUN = ("rein_nb.agent.handle", "AgentRun")


def display_run(run: Any) -> None:
    """A run in the background as a cell's last value: seen while it lasts, a transcript afterwards."""
    from rein_nb.notebook.frontend import place
    from rein_nb.notebook.show import show

    if place() in ("notebook", "headless"):
        show(run)
    else:
        import sys

        sys.stdout.write(f"{run!r}\n")


def add_formatters(ip: Any) -> None:
    """Register `mimebundle` for our types."""
    ip.display_formatter.ipython_display_formatter.for_type_by_name(*_RUN, display_run)
    for module, name in _SHOWN:
        ip.display_formatter.mimebundle_formatter.for_type_by_name(module, name, mimebundle)


def remove_formatters(ip: Any) -> None:
    """Take them off again."""
    _forget(ip.display_formatter.ipython_display_formatter, (_RUN,))
    _forget(ip.display_formatter.mimebundle_formatter, _SHOWN)


def _forget(formatter: Any, types: Iterable[tuple[str, str]]) -> None:
    for module, name in types:
        formatter.deferred_printers.pop((module, name), None)
        for kind in [kind for kind in formatter.type_printers if (kind.__module__, kind.__name__) == (module, name)]:
            del formatter.type_printers[kind]
