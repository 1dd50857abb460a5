"""How results show themselves as a cell's last value: registered with IPython by the types' names, so that no room but this knows of it."""

from __future__ import annotations

from html import escape
from typing import Any

from rein_nb import _SHOWN
from rein_nb.notebook.saved import bundle_of


def mimebundle(obj: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
    """The MIME bundle of a result, completion, message, agent, session or comparison: usable as a ``_repr_mimebundle_``."""
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


def add_formatters(ip: Any) -> None:
    """Register `mimebundle` for our types."""
    for module, name in _SHOWN:
        ip.display_formatter.mimebundle_formatter.for_type_by_name(module, name, mimebundle)


def remove_formatters(ip: Any) -> None:
    """Take them off again."""
    formatter = ip.display_formatter.mimebundle_formatter
    for module, name in _SHOWN:
        formatter.deferred_printers.pop((module, name), None)
        for kind in [kind for kind in formatter.type_printers if (kind.__module__, kind.__name__) == (module, name)]:
            del formatter.type_printers[kind]
