"""A run in the background: the handle that `Agent.start` returns."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_futures
from dataclasses import replace
from typing import Any

from rein_nb import aio
from rein_nb.agent.events import AgentEvent, ModelCallStart
from rein_nb.agent.result import AgentResult
from rein_nb.agent.speaking import SpeaksToRun
from rein_nb.agent.state import RunState, raise_for
from rein_nb.tools.threads import ToolStopped

_SLICE_S = 0.1
"""How often a waiting caller wakes, so that a kernel interrupt lands within this many seconds."""

_GRACE_S = 5.0
"""How long an interrupted caller waits for the run to wind down, seconds."""


class AgentRun(SpeaksToRun):
    """A run on rein_nb's own event loop, in its own thread. Usable from any thread and any event loop.

    Await it for the result (as from `Agent.arun`); iterate `events` or `subscribe` to follow it; `cancel`, `steer` and `follow_up` speak to
    it. Cancelling the waiter, or interrupting the cell that waits, stops the run: `subscribe` or poll `done` to watch without owning it.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._lock = threading.Lock()
        self._events: list[AgentEvent] = []
        self._listeners: list[Callable[[AgentEvent], None]] = []
        self._future: Future[AgentResult] | None = None
        run.add_listener(self._hear)

    def _begin(self, future: Future[AgentResult]) -> AgentRun:
        self._future = future
        return self

    @property
    def _work(self) -> Future[AgentResult]:
        assert self._future is not None
        return self._future

    def __repr__(self) -> str:
        state = self._run.result.stop_reason if self._run.result is not None else "running"
        return f"AgentRun({self.run_id[:8]}, {state})"

    @property
    def run_id(self) -> str:
        """Unique id of the run."""
        return self._run.run_id

    @property
    def done(self) -> bool:
        """Whether the run is over."""
        return self._work.done()

    # -- the result -------------------------------------------------------------------------------

    def result(self, timeout: float | None = None) -> AgentResult:
        """Block until the run is over and return its result; a keyboard interrupt lands within a tenth of a second.

        Parameters
        ----------
        timeout
            Seconds to wait; None for as long as it takes.

        Raises
        ------
        TimeoutError
            When the run is not over in time; it goes on.
        KeyboardInterrupt
            After the run was stopped.
        ProviderError
            When a provider's fault ended the run; `.result` and `.completion` hold what there is.
        RuntimeError
            On rein_nb's own loop, where waiting would wait for itself: ``await`` the handle there.
        """
        if aio.in_background_loop():
            raise RuntimeError("inside async code on rein_nb's own loop, await the handle instead of calling result()")
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while not self._work.done():
                if end is not None and time.monotonic() >= end:
                    raise TimeoutError(f"the run is not over after {timeout:g} s")
                left = _SLICE_S if end is None else min(_SLICE_S, max(0.0, end - time.monotonic()))
                wait_for_futures((self._work,), timeout=left)
        except (KeyboardInterrupt, ToolStopped):
            self.cancel("interrupted")
            wait_for_futures((self._work,), timeout=_GRACE_S)
            raise
        return raise_for(self._run, self._work.result())

    def __await__(self) -> Generator[Any, None, AgentResult]:
        return self._wait().__await__()

    async def _wait(self) -> AgentResult:
        ended: asyncio.Future[None] = asyncio.wrap_future(self._shadow())
        try:
            while not self._work.done():
                await asyncio.wait((ended,), timeout=_SLICE_S)
        except (asyncio.CancelledError, KeyboardInterrupt):
            self.cancel("the waiter was cancelled")
            await asyncio.wait((ended,), timeout=_GRACE_S)
            raise
        finally:
            ended.cancel()
        return raise_for(self._run, self._work.result())

    def _shadow(self) -> Future[None]:
        """A future that ends with the run, and whose cancellation does not touch it."""
        shadow: Future[None] = Future()

        def finish(_: Future[AgentResult]) -> None:
            if shadow.set_running_or_notify_cancel():
                shadow.set_result(None)

        self._work.add_done_callback(finish)
        return shadow

    # -- following it -----------------------------------------------------------------------------

    def _hear(self, event: AgentEvent) -> None:
        # What is sent grows with the run; kept for every turn it would grow with its square.
        kept = replace(event, messages=[], options={}) if isinstance(event, ModelCallStart) else event
        with self._lock:
            self._events.append(kept)
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(event)

    def subscribe(self, callback: Callable[[AgentEvent], None], *, replay: bool = True) -> Callable[[], None]:
        """Have `callback` called with every event, in the run's thread; past events come first, in this one.

        Returns a function that ends the subscription. A callback that raises is taken off.
        """

        def unsubscribe() -> None:
            subscriber.gone = True
            with self._lock:
                if subscriber in self._listeners:
                    self._listeners.remove(subscriber)

        def failed(exc: BaseException) -> None:
            unsubscribe()
            if isinstance(exc, KeyboardInterrupt):  # a kernel's, which was meant for the run
                self._run.call_soon(lambda: self._run.end_with(exc))
                return
            self._run.loop.call_exception_handler({"message": "a subscriber of an agent run failed", "exception": exc})

        subscriber = _Subscriber(callback, failed)
        with self._lock:
            subscriber.waiting.extend(self._events if replay else ())
            self._listeners.append(subscriber)
        subscriber.tell()
        return unsubscribe

    async def events(self) -> AsyncIterator[AgentEvent]:
        """All events from the first, `AgentEnd` last. Leaving early does not stop the run."""
        loop = asyncio.get_running_loop()
        items: asyncio.Queue[AgentEvent] = asyncio.Queue()

        def put(event: AgentEvent) -> None:
            try:
                loop.call_soon_threadsafe(items.put_nowait, event)
            except RuntimeError:  # the consumer's loop is closed
                return

        unsubscribe = self.subscribe(put)
        over = False
        try:
            while True:
                try:
                    event = await asyncio.wait_for(items.get(), 0.1)
                except TimeoutError:
                    if over:  # since the last time already, so nothing is on its way any more
                        return
                    over = self.done
                    continue
                yield event
                if event.type == "agent_end":
                    return
        finally:
            unsubscribe()

    def __iter__(self) -> Iterator[AgentEvent]:
        """All events from the first, blocking; a keyboard interrupt lands within a tenth of a second."""
        items: queue.Queue[AgentEvent] = queue.Queue()
        unsubscribe = self.subscribe(items.put)
        try:
            while True:
                try:
                    event = items.get(timeout=0.1)
                except queue.Empty:
                    if self.done and items.empty():
                        return
                    continue
                yield event
                if event.type == "agent_end":
                    return
        finally:
            unsubscribe()


class _Subscriber:
    """One who is told past events and then the new ones, in order. Nobody's lock is held while he is told: he may take his time, and ask for more."""

    def __init__(self, callback: Callable[[AgentEvent], None], failed: Callable[[BaseException], None]) -> None:
        self.waiting: deque[AgentEvent] = deque()
        self.gone = False
        self._callback = callback
        self._failed = failed
        self._telling = True  # until `tell` was through the past
        self._lock = threading.Lock()

    def __call__(self, event: AgentEvent) -> None:
        with self._lock:
            self.waiting.append(event)
            if self._telling:
                return  # whoever is telling comes to it
            self._telling = True
        self.tell()

    def tell(self) -> None:
        """Tell what waits, and what comes meanwhile."""
        while True:
            with self._lock:
                if not self.waiting or self.gone:
                    self._telling = False
                    return
                event = self.waiting.popleft()
            try:
                self._callback(event)
            except BaseException as exc:
                self._failed(exc)
