"""A run on display: events in, live widget while it lasts, static output when it is over.

`Live` may be fed from any thread. It never raises into the run: a fault of the display is logged, and the run goes on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from rein_nb import aio
from rein_nb.agent import events as ev
from rein_nb.notebook.frontend import VIEW_MIME, Output, Place, place
from rein_nb.notebook.plain import markdown_transcript
from rein_nb.notebook.saved import bundle_of, grid_bundle
from rein_nb.notebook.view_model import ViewState, apply
from rein_nb.notebook.wire import Encoder

log = logging.getLogger("rein_nb.notebook")

FLUSH_S = 0.1
"""Seconds between two messages to the browser: at most 10 a second, since each costs about 540 bytes beside its content."""

CHECKPOINT_S = 10.0
"""At least so many seconds between two checkpoints: what is so far of a run of several turns, put into the cell's output beside the widget, so
that a notebook saved in the midst of it, or whose kernel dies, holds it."""

CHECKPOINT_BYTES_S = 5_000
"""At most so many bytes of checkpoints a second, on average."""

UNSOLICITED_S = (0.4, 1.0, 2.5)
"""When a snapshot is sent to a front end that has not said that it is there: its word may wait behind a blocking cell."""

Stop = Callable[[], None]


class Live:
    """The display of one run, or of several side by side.

    Parameters
    ----------
    labels
        One per column; a single empty label for one run.
    rows
        Headings of the rows of a grid (prompts); panes are numbered row by row. Empty for one row without a heading.
    show_prompt
        Whether the prompt is part of the transcript.
    on_stop, on_stop_column
        Called when the reader presses stop, or stops one column.
    stream
        Whether to show the run while it lasts. Without, the widget is opened only when a question must be asked.
    where
        Who looks; found out by default.
    """

    def __init__(
        self,
        labels: Sequence[str] = ("",),
        rows: Sequence[str] = (),
        *,
        show_prompt: bool = True,
        on_stop: Stop | None = None,
        on_stop_column: Callable[[str], None] | None = None,
        stream: bool = True,
        where: Place | None = None,
    ) -> None:
        self.labels, self.rows = list(labels) or [""], list(rows)
        self.states = [
            ViewState(show_prompt=show_prompt, label=label)
            for _ in range(max(1, len(self.rows)))
            for label in self.labels
        ]
        self.where: Place = where or place()
        self.on_stop, self.on_stop_column = on_stop, on_stop_column
        self.attached = False
        self.finished = False
        self.waiting: dict[tuple[int, str], ev.ApprovalRequested] = {}
        self._lock = threading.RLock()
        self._encoders = [Encoder(state, number) for number, state in enumerate(self.states)]
        self._output = Output()
        self._channel: Any = None
        self._chosen: list[str] = []
        self._scheduled = False
        self._next = 0.0
        self._checkpoint_after = time.monotonic() + CHECKPOINT_S
        self._finish_when_ended = False
        self._ended = 0
        if self.where == "notebook" and stream:
            self._open()

    # -- while it runs ----------------------------------------------------------------------------

    def _open(self) -> None:
        from rein_nb.notebook.widget import WidgetChannel

        try:
            self._channel = WidgetChannel(self.labels, self.rows, self._message)
        except ImportError as exc:
            log.warning("no live display: %s", exc)
            return
        self._output.put(self._channel.bundle)
        loop = aio.background_loop()
        for delay in UNSOLICITED_S:
            loop.call_soon_threadsafe(loop.call_later, delay, self._unsolicited)

    def feed(self, event: ev.AgentEvent, pane: int = 0) -> None:
        """Take in one event of the run in column `pane`."""
        try:
            with self._lock:
                ops = apply(self.states[pane], event)
                if isinstance(event, ev.ApprovalRequested):
                    self._ask(event, pane)
                elif isinstance(event, ev.ToolExecutionStart | ev.ToolExecutionEnd):
                    self._settle(pane, event.call.id)
                elif isinstance(event, ev.ToolExecutionUpdate):
                    self._settle(pane, event.call_id)
                if self._channel is not None:
                    self._encoders[pane].take(ops)
                    if self._encoders[pane].dirty:
                        self._wake()
                if isinstance(event, ev.TurnEnd) and self._channel is not None:
                    # The last turn's end is followed by the run's end at once, which makes the output static anyway.
                    loop = aio.background_loop()
                    loop.call_soon_threadsafe(loop.call_later, 1.0, self._checkpoint)
                if isinstance(event, ev.AgentEnd):
                    self._ended += 1
                    self._finish_if_ended()
        except Exception:
            log.exception("the display could not follow the run; the run goes on")

    def _ask(self, event: ev.ApprovalRequested, pane: int) -> None:
        if self.where == "headless" or (self.where == "none" and event.decide is not None):
            log.warning("tool call %s needs approval and nobody is there to ask: denied", event.call.name)
            if event.decide is not None:
                event.decide("deny", "nobody is there to approve it")
            return
        own = event.asked_by or event.call.id
        self._settle(pane, own)
        card = self.states[pane].calls.get(own)
        self.waiting[pane, card.tool.asking_id if card is not None and card.tool is not None else own] = event
        if self._channel is None and self.where == "notebook" and not self.finished:
            self._open()

    def _settle(self, pane: int, own: str) -> None:
        """Nothing waits for a decision in the run's own call of this id."""
        for key, event in list(self.waiting.items()):
            if key[0] == pane and own == (event.asked_by or event.call.id):
                self.waiting.pop(key, None)

    def decide(self, pane: int, call_id: str, decision: str) -> None:
        """The reader's answer to an approval request; only the first counts."""
        event = self.waiting.pop((pane, call_id), None)
        if event is not None and event.decide is not None and decision in ("allow", "deny", "always"):
            with self._lock:
                card = self.states[pane].calls.get(event.asked_by) if event.asked_by is not None else None
                if card is not None and card.tool is not None and (question := card.tool.question) is not None:
                    question.answer = "denied" if decision == "deny" else "allowed"
            event.decide(decision, "denied by the reader" if decision == "deny" else None)  # type: ignore[arg-type]

    def _wake(self) -> None:
        if self._scheduled:
            return
        self._scheduled = True
        loop = aio.background_loop()
        delay = max(0.0, self._next - time.monotonic())
        if aio.in_background_loop():
            loop.call_later(delay, self._flush)
        else:
            loop.call_soon_threadsafe(loop.call_later, delay, self._flush)

    def _flush(self) -> None:
        try:
            with self._lock:
                self._scheduled = False
                self._next = time.monotonic() + FLUSH_S
                self._send_pending()
        except Exception:
            log.exception("the live display failed; the run goes on and its transcript is shown when it ends")

    def _send_pending(self) -> None:
        if self._channel is None or self.finished:
            return
        ops = [op for encoder in self._encoders if encoder.dirty for op in encoder.flush(self._chosen)]
        if ops:
            self._channel.send(ops)

    def _snapshot(self) -> None:
        self._send_pending()
        if self._channel is not None and not self.finished:
            self._chosen.clear()
            self._channel.send([["S", *(encoder.snapshot() for encoder in self._encoders)]])

    def _checkpoint(self) -> None:
        try:
            with self._lock:
                now = time.monotonic()
                if self._channel is None or self.finished or now < self._checkpoint_after:
                    return
                bundle = self.bundle()
                size = sum(len(form) for form in bundle.values() if isinstance(form, str))
                self._checkpoint_after = now + max(CHECKPOINT_S, size / CHECKPOINT_BYTES_S)
                self._output.put(bundle | {VIEW_MIME: self._channel.bundle[VIEW_MIME]})
        except Exception:
            log.exception("the transcript so far could not be put into the notebook; the run goes on")

    def _unsolicited(self) -> None:
        with self._lock:
            if not self.attached and not self.finished:
                self._snapshot()

    def _message(self, content: dict[str, Any]) -> None:
        kind = content.get("k")
        if kind == "hello":
            with self._lock:
                self.attached = True
                self._snapshot()
        elif kind == "stop":
            if self.on_stop is not None:
                self.on_stop()
        elif kind == "stop_column":
            if self.on_stop_column is not None:
                self.on_stop_column(self.labels[int(content.get("column") or 0)])
        elif kind == "decide":
            self.decide(int(content.get("pane") or 0), str(content.get("call")), str(content.get("decision")))
        elif kind == "markdown" and self._channel is not None:
            with self._lock:
                text = "\n\n".join(markdown_transcript(state) for state in self.states)
            self._channel.answer({"k": "markdown", "text": text})

    def finish_when_ended(self) -> None:
        """Have the display become static by itself when every run has ended."""
        with self._lock:
            self._finish_when_ended = True
            self._finish_if_ended()

    def _finish_if_ended(self) -> None:
        if self._finish_when_ended and self._ended >= len(self.states):
            aio.background_loop().call_soon_threadsafe(self.finish)

    # -- at rest ----------------------------------------------------------------------------------

    def finish(self, bundle: dict[str, Any] | None = None) -> None:
        """The run is over: replace the widget by static output (or by `bundle`). Further calls do nothing."""
        with self._lock:
            if self.finished:
                return
            try:
                self._send_pending()
            except Exception:
                log.exception("the live display failed")
            self.finished = True
            self.waiting.clear()
            channel, self._channel = self._channel, None
        if self.where == "terminal":
            self._print()
        else:
            self._output.put(bundle or self.bundle())
        if channel is not None:
            channel.close()

    def bundle(self) -> dict[str, Any]:
        """The static output."""
        if len(self.states) == 1 and not self.labels[0]:
            return bundle_of(self.states[0])
        return grid_bundle(self.labels, self.states, self.rows)

    def _print(self) -> None:
        import sys

        sys.stdout.write(f"{self.bundle()['text/plain']}\n")
