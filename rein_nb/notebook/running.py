"""One run of a magic on display: awaited in the cell, in slices, so that stop, approval and kernel interrupt reach it at once."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from rein_nb.agent import AgentResult
from rein_nb.agent import events as ev
from rein_nb.agent.handle import AgentRun
from rein_nb.ir import ErrorInfo, ProviderError
from rein_nb.notebook.frontend import place
from rein_nb.notebook.live import Live
from rein_nb.notebook.sanitize import shown

GRACE_S = 5.0
"""How long an interrupted run may take to close."""

ASK_AFTER_S = 2.0
"""How long a blocking cell waits for a click before it asks for approval by text."""


class RunFailed(Exception):
    """The run of a cell ended with a provider's fault. The transcript above it shows all; the cell counts as failed."""

    def __init__(self, error: ErrorInfo) -> None:
        super().__init__(shown(f"{error.kind}: {error.message}"))

    def _render_traceback_(self) -> list[str]:
        return [f"RunFailed: {self}"]


class Interrupted(KeyboardInterrupt):
    """The cell was interrupted. What was received is kept in the transcript and the result."""

    def _render_traceback_(self) -> list[str]:
        return ["Interrupted. What was received is kept."]


class DisplayedRun:
    """A run and its display.

    Parameters
    ----------
    live
        The display.
    handle
        The run.
    """

    def __init__(self, live: Live, handle: AgentRun) -> None:
        self.live, self.handle = live, handle
        self.result: AgentResult | None = None
        live.on_stop = lambda: handle.cancel("stopped by the reader")
        handle.subscribe(self._hear)

    def _hear(self, event: Any) -> None:
        self.live.feed(event)
        if isinstance(event, ev.AgentEnd):
            self.result = event.result

    async def wait(self) -> AgentResult:
        """Await the end from the cell.

        Raises
        ------
        RunFailed
            When a provider's fault ended the run.
        Interrupted
            After the run was stopped by a kernel interrupt.
        """
        try:
            try:
                await self.handle
            except ProviderError:
                pass  # shown in the transcript; told below
            except (asyncio.CancelledError, KeyboardInterrupt):
                self.handle.cancel("interrupted")
                await asyncio.wait([asyncio.ensure_future(_over(self.handle))], timeout=GRACE_S)
                raise Interrupted from None
        finally:
            self.live.finish()
        return self._outcome()

    def block(self) -> AgentResult:
        """As `wait`, from code that cannot await. Where no click arrives, approval is asked for by text."""
        try:
            try:
                self._poll()
            except ProviderError:
                pass
            except KeyboardInterrupt:
                self.handle.cancel("interrupted")
                deadline = time.monotonic() + GRACE_S
                while not self.handle.done and time.monotonic() < deadline:
                    time.sleep(0.005)
                raise Interrupted from None
        finally:
            self.live.finish()
        return self._outcome()

    def _poll(self) -> None:
        asked_since: float | None = None
        while not self.handle.done:
            try:
                self.handle.result(0.1)
            except TimeoutError:
                waiting = next(iter(self.live.waiting.items()), None)
                if waiting is None or self.live.attached:
                    asked_since = None
                    continue
                asked_since = asked_since or time.monotonic()
                if self.live.where == "terminal" or time.monotonic() - asked_since >= ASK_AFTER_S:
                    self._ask_by_text(*waiting)
                    asked_since = None
        self.handle.result(0)

    def _ask_by_text(self, key: tuple[int, str], event: ev.ApprovalRequested) -> None:
        call = shown(f"{event.call.name}({event.call.arguments_text})")[:2000]
        if event.asked_by is not None:  # a sub-agent asks, in a call of this run
            card = self.live.states[key[0]].calls.get(event.asked_by)
            call += f" for {shown(card.tool.name)}" if card is not None and card.tool is not None else ""
        try:
            answer = input(f"Run {call}? [y]es, [n]o, [a]lways: ").strip().lower()
        except (EOFError, RuntimeError):  # nobody can answer: StdinNotImplementedError is a RuntimeError
            answer = "n"
        self.live.decide(*key, {"y": "allow", "yes": "allow", "a": "always", "always": "always"}.get(answer, "deny"))

    def finish_in_background(self) -> None:
        """Let the run go on; its display becomes static when it ends."""
        self.live.finish_when_ended()

    def _outcome(self) -> AgentResult:
        if self.result is None:
            return self.handle.result(0)
        if self.result.stop_reason == "error" and self.result.error is not None:
            raise RunFailed(self.result.error)
        return self.result


async def _over(handle: AgentRun) -> None:
    try:
        await handle
    except (ProviderError, asyncio.CancelledError):
        return  # how it ended is in its result


def open_live(*, show_prompt: bool, stream: bool) -> Live:
    """The display for one run in the current cell."""
    return Live(show_prompt=show_prompt, stream=stream, where=place())
