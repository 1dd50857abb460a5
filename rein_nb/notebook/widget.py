"""The transcript widget: an anywidget whose every message is made by `wire`, and the clicks that come back.

Only this module imports a widget library. The class is made on first use, so that importing the room costs nothing.
"""

from __future__ import annotations

import logging
import re
import secrets
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib import resources
from typing import Any

from rein_nb.notebook.frontend import VIEW_MIME
from rein_nb.notebook.sanitize import shown
from rein_nb.notebook.style import style_sheet

log = logging.getLogger("rein_nb.notebook")

Handler = Callable[[dict[str, Any]], None]


@lru_cache(maxsize=1)
def _assets() -> tuple[str, str]:
    folder = resources.files("rein_nb.notebook") / "static"
    script = (folder / "widget.js").read_text(encoding="utf-8")
    sheet = (folder / "widget.css").read_text(encoding="utf-8")
    return _slim(script), re.sub(r"\s*([{};:,>])\s+", r"\1", f"{style_sheet()}\n{sheet}").strip()


def _slim(script: str) -> str:
    """The script without its comments and indentation: a front end is sent it once a run."""
    code = re.sub(r"(?s:/\*\*.*?\*/ ?)|^\s*//.*$", "", script, flags=re.MULTILINE)
    return re.sub(r"\n\s*", "\n", code).strip()


@lru_cache(maxsize=1)
def widget_class() -> Any:
    """The widget class.

    Raises
    ------
    ImportError
        Where anywidget or ipywidgets is not installed.
    """
    import anywidget
    import traitlets

    script, sheet = _assets()

    class Transcript(anywidget.AnyWidget):
        """A live transcript of one or more runs."""

        _esm = script
        _css = sheet
        labels = traitlets.List(traitlets.Unicode()).tag(sync=True)
        rows = traitlets.List(traitlets.Unicode()).tag(sync=True)

    return Transcript


class WidgetChannel:
    """One live widget: sends numbered messages, hands clicks to `on_message`.

    Parameters
    ----------
    labels, rows
        Headings of columns and rows; a single empty label and no rows for a run that needs no heading.
    on_message
        Gets every message of the front end, in whatever thread the kernel handles it.
    """

    def __init__(self, labels: Sequence[str], rows: Sequence[str], on_message: Handler) -> None:
        # A short id: it is repeated in every message.
        self._widget = widget_class()(
            model_id=secrets.token_hex(5), labels=[shown(label) for label in labels], rows=[shown(row) for row in rows]
        )
        self._number = 0
        self._on_message = on_message
        self._widget.on_msg(self._receive)
        _let_clicks_through(self._widget)

    @property
    def bundle(self) -> dict[str, Any]:
        """The MIME bundle that shows the widget."""
        view = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        return {"text/plain": "Agent run…", VIEW_MIME: view}

    def send(self, ops: Sequence[Any]) -> None:
        """Send operations as the next message."""
        self._number += 1
        self._widget.send([self._number, *ops])

    def answer(self, content: dict[str, Any]) -> None:
        """Send a message outside the numbering."""
        self._widget.send(content)

    def close(self) -> None:
        """Take the widget away, in the kernel and in the front end."""
        self._widget.close()

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        if isinstance(content, dict):
            try:
                self._on_message(content)
            except Exception:
                log.exception("a message from the notebook's front end could not be handled")


def _let_clicks_through(widget: Any) -> None:
    """Have clicks handled while a cell runs.

    ipykernel 7.4 sends a widget's message to the shell that last *sent* on that comm, so a widget that streams from a blocking cell
    gets its clicks only after the cell. Its routing hook is private: without it, messages go where the front end sent them.
    """
    comm: Any = getattr(widget, "comm", None)
    if hasattr(comm, "_reply_subshell_for"):
        comm._reply_subshell_for = lambda data, default: default
