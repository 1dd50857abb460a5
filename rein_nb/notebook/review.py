"""The review widget: two answers side by side, blind, with keys for every vote.

Python draws and cleans both answers (`render`, `sanitize`), the browser only puts them in their place. What the browser is sent names no
column: neither label nor model, no time and no cost. A click or key comes back with the number of the pair that it was meant for, so that a
key that is pressed twice judges nothing unseen.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from importlib import resources
from typing import TYPE_CHECKING, Any

from rein_nb.notebook.frontend import Output, place
from rein_nb.notebook.render import Renderer, wrap
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.sanitize import shown
from rein_nb.notebook.style import style_sheet

if TYPE_CHECKING:
    from rein_nb.agent.result import AgentResult
    from rein_nb.compare.review import Review

log = logging.getLogger("rein_nb.notebook")

_HIDDEN = frozenset({"user", "system"})
"""Blocks that are not the model's answer."""


@lru_cache(maxsize=1)
def _widget_class() -> Any:
    import anywidget
    import traitlets

    folder = resources.files("rein_nb.notebook") / "static"

    class ReviewWidget(anywidget.AnyWidget):
        """Two answers and buttons."""

        _esm = (folder / "review.js").read_text(encoding="utf-8")
        _css = f"{style_sheet()}\n{(folder / 'review.css').read_text(encoding='utf-8')}"
        rein_review = traitlets.Bool(True).tag(sync=True)

    return ReviewWidget


def blind_html(result: AgentResult) -> str:
    """A run's answer as HTML that tells nothing about who gave it: no label, model, time or cost. Sanitised like every other output."""
    state = state_of(result)
    draw = Renderer(static=True)
    inner = []
    for block in state.blocks:
        if block.kind in _HIDDEN:
            continue
        if block.tool is not None:
            block.tool.duration_s = None
        inner.append(draw.block(block))
    return wrap("".join(inner))


class ReviewView:
    """A review on display.

    Parameters
    ----------
    review
        What is judged.
    """

    def __init__(self, review: Review) -> None:
        self.review = review
        self._output = Output()
        self._widget: Any = None
        if place() == "notebook" and not review.done:
            self._open()
        if self._widget is None:
            self._output.put(self.static())

    def _open(self) -> None:
        try:
            self._widget = _widget_class()()
        except ImportError as exc:
            log.warning("no review widget: %s", exc)
            return
        self._widget.on_msg(self._receive)
        view = {"version_major": 2, "version_minor": 0, "model_id": self._widget.model_id}
        # What cannot draw widgets (a viewer of the saved file) draws the standing beside it.
        self._output.put({**self.static(), "application/vnd.jupyter.widget-view+json": view})

    def static(self) -> dict[str, Any]:
        """The standing, as MIME bundle."""
        return {"text/html": self.review.to_html(), "text/plain": shown(self.review.to_text())}

    def refresh(self) -> None:
        """Show the pair that is to be judged now; the standing, when all are judged."""
        if self._widget is None:
            self._output.put(self.static())
        elif self.review.done:
            self.review.finish()
        else:
            self._send()

    def close(self) -> None:
        """Put the standing in the widget's place."""
        widget, self._widget = self._widget, None
        if widget is not None:
            self._output.put(self.static())
            widget.close()

    def _send(self) -> None:
        pair = self.review.current
        if pair is None or self._widget is None:
            return
        left, right = self.review.answers(pair)
        judged, total = self.review.progress
        self._widget.send(
            {
                "k": "pair",
                "number": self.review.pairs.index(pair),
                "judged": judged,
                "total": total,
                "prompt": shown(self.review.comparison.prompts[pair.prompt_index]),
                "left": blind_html(left),
                "right": blind_html(right),
            }
        )
        self.review.show()

    def _receive(self, _: Any, content: Any, buffers: Any) -> None:
        try:
            self._handle(content if isinstance(content, dict) else {})
        except Exception:
            log.exception("a message from the review in the notebook could not be handled")

    def _handle(self, content: dict[str, Any]) -> None:
        kind, review = content.get("k"), self.review
        if kind == "hello":
            self._send()
        elif kind == "finish":
            review.finish()
        elif kind == "undo":
            if review.undo() is None:
                self._send()
        elif kind == "vote":
            pair = review.current
            if pair is None or content.get("number") != review.pairs.index(pair):
                self._send()  # it was meant for a pair that is judged already
                return
            seconds = content.get("seconds")
            review.vote(
                str(content.get("vote")),  # type: ignore[arg-type]  # checked there
                seconds=float(seconds) if isinstance(seconds, int | float) and seconds >= 0 else None,
            )


def open_review(review: Review) -> ReviewView | None:
    """Show a review where there is a notebook; elsewhere print where it stands."""
    if place() in ("none", "terminal"):
        import sys

        sys.stdout.write(f"{shown(review.to_text())}\n")
        return None
    return ReviewView(review)
