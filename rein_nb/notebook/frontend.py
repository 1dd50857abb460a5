"""Where output goes: a notebook with a reader, a notebook without one, a terminal, or no IPython at all."""

from __future__ import annotations

import contextvars
import secrets
from typing import Any, Literal, TypeAlias

VIEW_MIME = "application/vnd.jupyter.widget-view+json"
"""The MIME type under which an output shows a widget."""

Place: TypeAlias = Literal["notebook", "headless", "terminal", "none"]


def shell() -> Any:
    """The running IPython shell; None outside IPython."""
    import sys

    if "IPython" not in sys.modules:
        return None
    from IPython import get_ipython

    return get_ipython()


def place() -> Place:
    """Who looks at the output.

    A kernel that was told not to ask for input (nbclient, nbconvert, nbmake, papermill) has no reader: no widget is opened there.
    """
    ip = shell()
    if ip is None:
        return "none"
    kernel = getattr(ip, "kernel", None)
    if kernel is None:
        return "terminal"
    return "notebook" if getattr(kernel, "_allow_stdin", True) else "headless"


class Output:
    """One output of one cell, that can be replaced. Publishes in the context of the cell that made it, from any thread."""

    def __init__(self) -> None:
        self._context = contextvars.copy_context()
        self._id = secrets.token_hex(8)
        self._published = False

    def put(self, bundle: dict[str, Any]) -> None:
        """Show `bundle`, in place of what was shown before."""
        ip = shell()
        if ip is None:
            return
        update, self._published = self._published, True
        self._context.copy().run(
            ip.display_pub.publish, data=bundle, metadata={}, transient={"display_id": self._id}, update=update
        )
