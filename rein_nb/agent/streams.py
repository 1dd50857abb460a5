"""A run as an async iterator of its events, in the caller's own event loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from types import TracebackType
from typing import Any, Generic, TypeVar

from rein_nb.agent.asking import outlast
from rein_nb.agent.events import AgentEnd, AgentEvent, MessageEnd, MessageUpdate
from rein_nb.agent.result import AgentResult
from rein_nb.agent.speaking import SpeaksToRun
from rein_nb.agent.state import RunState
from rein_nb.ir import InvalidRequest, StreamChunk, TextDelta, ThinkingDelta, clock

T = TypeVar("T")


class EventStream(SpeaksToRun, AsyncIterator[T], Generic[T]):
    """What `Agent.events` and `Agent.astream` return.

    The run starts when the first item is asked for. Leaving early (``break``, ``async with``, `aclose`, or dropping the last
    reference) stops the run; what was received is in the agent's history, marked as interrupted. Iterating never raises for what a
    provider or tool did.

    Attributes
    ----------
    run
        The run's state; `steer`, `follow_up` and `cancel` here speak to it. `drive` and `view` are the agent's: how it goes on, and what of an event
        is given out; None for the event itself.
    """

    def __init__(
        self,
        run: RunState,
        drive: Callable[[], Coroutine[Any, Any, AgentResult]],
        view: Callable[[AgentEvent], Iterable[T]] | None = None,
    ) -> None:
        self.run = self._run = run
        self._drive = drive
        self._view = view
        self._items: deque[T] = deque()
        self._wake = _Waker()
        self._task: asyncio.Task[AgentResult] | None = None
        self._closed = False

    def __aiter__(self) -> EventStream[T]:
        return self

    async def __anext__(self) -> T:
        if self._task is None:
            if self._closed:
                raise StopAsyncIteration
            self._start()
        while not self._items:
            task = self._task
            assert task is not None
            if self._closed or task.done():
                self._raise_programmers_error(task)
                raise StopAsyncIteration
            loop = asyncio.get_running_loop()
            if self._wake.waiter is not None or task.get_loop() is not loop:
                raise RuntimeError(
                    "a run's events are for one consumer, in the event loop in which the first was asked for"
                )
            waiter = self._wake.waiter = loop.create_future()
            try:
                await waiter
            except asyncio.CancelledError:
                await self.aclose()
                raise
            finally:
                self._wake.waiter = None
        return self._items.popleft()

    def _start(self) -> None:
        # The listener and the task must not hold the stream: dropping it is how a consumer leaves.
        items, view, wake = self._items, self._view, self._wake
        put: Callable[[Any], None] = items.append if view is None else lambda event: items.extend(view(event))

        def listen(event: AgentEvent) -> None:
            put(event)
            if wake.waiter is not None:
                wake()

        self.run.add_listener(listen)
        self._task = asyncio.ensure_future(self._drive())
        self._task.add_done_callback(lambda _: wake())

    def _raise_programmers_error(self, task: asyncio.Task[AgentResult]) -> None:
        if task.done() and not task.cancelled():
            failure = task.exception() or self.run.exception
            if isinstance(failure, InvalidRequest):
                raise failure

    async def aclose(self) -> None:
        """Leave: stop the run and wait until it has wound down; in a tool or hook of the run itself, which it waits for, only stop it."""
        self._closed = True
        self._items.clear()
        task = self._task
        if task is None or task.done():
            return
        self.cancel("the consumer left")
        if clock.current() is self.run.clock:
            return
        if await outlast((task,), lambda: None):
            raise asyncio.CancelledError

    async def __aenter__(self) -> EventStream[T]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        task = getattr(self, "_task", None)
        if task is not None and not task.done():
            self.run.stop("cancelled", "the consumer left")

    @property
    def result(self) -> AgentResult | None:
        """The run's result once it is over; None before."""
        return self.run.result


class _Waker:
    """Wakes the stream's consumer, without keeping the stream alive."""

    __slots__ = ("waiter",)

    def __init__(self) -> None:
        self.waiter: asyncio.Future[None] | None = None

    def __call__(self) -> None:
        waiter = self.waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)


def as_chunks(event: AgentEvent) -> Iterable[StreamChunk]:
    """The flat view: text, thinking, each turn's tool calls, and one ``done`` at the end of the run."""
    if isinstance(event, MessageUpdate):
        inner = event.event
        if isinstance(inner, TextDelta):
            return (StreamChunk("text", inner.delta),)
        if isinstance(inner, ThinkingDelta):
            return (StreamChunk("thinking", inner.delta),)
    elif isinstance(event, MessageEnd) and event.completion is not None:
        calls = event.completion.runnable_tool_calls
        if calls:
            return (StreamChunk("tool_calls", tool_calls=calls),)
    elif isinstance(event, AgentEnd):
        result = event.result
        completion = result.completion
        return (
            StreamChunk(
                "done",
                usage=result.usage,
                finish_reason=completion.finish_reason if completion is not None else result.stop_reason,
                completion=completion,
            ),
        )
    return ()
