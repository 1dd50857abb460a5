"""One model call, driven: retries, timeouts, cancellation, accumulation, for every provider alike.

A provider only yields deltas and raises `ProviderError`. Everything else that can happen to a call is handled here, once. `drive` never
raises for what a provider or the network did: its last event says so.

Interrupting a silent wait
--------------------------
The driver awaits the source in its caller's own task, which costs nothing a chunk. A `_Guard` knows that task while it waits; a
cancellation or a timeout cancels the wait, and the resulting CancelledError is taken back (`Task.uncancel`), as ``asyncio.timeout`` does.
A cancellation of the caller's task from outside is never swallowed.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

from rein_nb.ir import Completion, ErrorInfo, Origin, ProviderError, Request, StreamEvent
from rein_nb.ir.deltas import Delta
from rein_nb.stream import Accumulator, CancellationToken

T = TypeVar("T")


class Provider(Protocol):
    """Whoever answers requests. One async generator method is all that a new kind of provider needs.

    `stream` yields deltas, or lists of deltas (one list per network read; an empty list is a sign of life), and raises
    `ProviderError` for faults.
    """

    name: str

    def stream(self, request: Request) -> AsyncIterator[Delta | Sequence[Delta]]:
        """Answer a request."""


class RetryPolicy:
    """When and how long to wait before a request is sent again.

    Parameters
    ----------
    max_retries
        Requests beyond the first; 0 for none.
    base_s, cap_s
        Full jitter: attempt n waits a random time in [0, min(cap_s, base_s * 2**(n-1))].
    max_wait_s
        The longest ``Retry-After`` that is obeyed; a longer one ends the call with the error, which carries it.
    rand
        Gives the random part of a wait, in [0, 1).
    """

    def __init__(
        self,
        max_retries: int = 2,
        base_s: float = 0.5,
        cap_s: float = 8.0,
        max_wait_s: float = 60.0,
        rand: Callable[[], float] = random.random,
    ) -> None:
        self.max_retries = max_retries
        self.base_s = base_s
        self.cap_s = cap_s
        self.max_wait_s = max_wait_s
        self._rand = rand

    def wait(self, attempt: int, error: ErrorInfo, *, steady: bool = False) -> float | None:
        """Seconds to wait before retry number `attempt`; None when it must not be retried.

        Parameters
        ----------
        steady
            Half the longest jitter in place of a random part of it: for what is played back.
        """
        if attempt > self.max_retries or not error.retryable:
            return None
        if error.retry_after_s is not None and error.retry_after_s > 0:
            return error.retry_after_s if error.retry_after_s <= self.max_wait_s else None
        return (0.5 if steady else self._rand()) * float(min(self.cap_s, self.base_s * 2 ** (attempt - 1)))


if sys.version_info >= (3, 12):
    _task_on = asyncio.current_task
else:
    # Asked at every read of every stream. `asyncio.current_task` became a C function in 3.12; before, it is this look-up with detours.
    _task_on = asyncio.tasks._current_tasks.get  # type: ignore[attr-defined]


class _Interrupted(Exception):
    """The guard ended a wait; `why` says for what."""

    def __init__(self, why: str) -> None:
        self.why = why


_TIMEOUTS: dict[str, tuple[Literal["connect", "first_byte", "idle", "total"], str]] = {
    "first_byte": ("first_byte", "no answer began within {0:g} s"),
    "idle": ("idle", "nothing arrived for {0:g} s"),
    "total": ("total", "the call took longer than {0:g} s"),
}


class _Guard:
    """Ends the driver's wait on cancellation or timeout."""

    def __init__(
        self,
        signal: CancellationToken | None,
        first_byte_s: float | None,
        idle_s: float | None,
        total_s: float | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[Any] | None = None
        self._cancelled_task: asyncio.Task[Any] | None = None
        self._why: str | None = None
        self._since = 0.0
        self._phase = "first_byte"
        self._limits = {"first_byte": first_byte_s, "idle": idle_s, "total": total_s}
        self._timer: asyncio.TimerHandle | None = None
        self._total: asyncio.TimerHandle | None = None
        if total_s is not None:
            self._total = self._loop.call_later(total_s, self._fire, "total")
        self._detach: Callable[[], None] = lambda: None
        if signal is not None and signal.is_cancelled:
            self._why = "cancelled"
        elif signal is not None:
            self._detach = signal.on_cancel(self._cancelled_from_any_thread)

    def _cancelled_from_any_thread(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._fire, "cancelled")
        except RuntimeError:
            self._why = "cancelled"  # the loop is closed: nobody waits any more

    def _fire(self, why: str) -> None:
        if self._why is not None:
            return
        self._why = why
        if self._task is not None:
            self._cancelled_task = self._task
            self._task.cancel()

    def _tick(self) -> None:
        self._timer = None
        limit = self._limits[self._phase]
        if limit is None:
            return
        # A consumer that takes its time between two reads is not the server's silence.
        waited = self._loop.time() - self._since if self._task is not None else 0.0
        if waited >= limit:
            self._fire(self._phase)
        else:
            self._timer = self._loop.call_later(max(limit - waited, 0.001), self._tick)

    def phase(self, phase: str) -> None:
        """Enter a phase: ``first_byte`` or ``idle``; its clock starts now."""
        self._phase = phase
        now = self._since = self._loop.time()
        limit = self._limits[phase]
        timer = self._timer
        if timer is not None:
            if limit is not None and timer.when() <= now + limit:
                return  # it looks what the time is, and goes on
            timer.cancel()
            self._timer = None
        if limit is not None:
            self._timer = self._loop.call_later(limit, self._tick)

    async def wait(self, awaitable: Awaitable[T]) -> T:
        """Await, unless or until the guard strikes; then raise `_Interrupted`."""
        try:
            self.begin()
        except _Interrupted:
            close = getattr(awaitable, "close", None)
            if close is not None:
                close()
            raise
        try:
            return await awaitable
        except asyncio.CancelledError:
            self.own()
            raise
        finally:
            self.finish()

    # `wait` in three calls, for the read of a chunk, where one more coroutine to pass through would be felt:

    def begin(self) -> None:
        """A wait begins. Raises `_Interrupted` when something struck before."""
        if self._why is not None:
            raise _Interrupted(self._why)
        self._task = _task_on(self._loop)
        self._since = self._loop.time()

    def own(self) -> None:
        """The wait was cancelled: by this guard, then `_Interrupted` is raised; from outside, then nothing is."""
        task = self._task
        if self._cancelled_task is not None and self._cancelled_task is task:
            self._cancelled_task = None
            if task is not None and task.uncancel() == 0:
                raise _Interrupted(self._why or "cancelled") from None

    def finish(self) -> None:
        """The wait is over, in whichever way."""
        task, self._task = self._task, None
        if self._cancelled_task is not None and self._cancelled_task is task and task is not None:
            # The wait ended by itself in the same moment: take the pending cancellation back.
            self._cancelled_task = None
            task.uncancel()

    def why(self) -> str | None:
        """What struck, if anything did."""
        return self._why

    def error(self, why: str, origin: Origin) -> ErrorInfo:
        """The timeout as data."""
        phase, text = _TIMEOUTS[why]
        return ErrorInfo.make(
            "timed_out", text.format(self._limits[why]), phase=phase, provider=origin.provider, model=origin.model
        )

    def close(self) -> None:
        """Stop timers and let go of the token."""
        self._detach()
        for handle in (self._timer, self._total):
            if handle is not None:
                handle.cancel()


class Timeouts(Protocol):
    """Seconds by phase; None for no limit."""

    @property
    def first_byte_s(self) -> float | None: ...
    @property
    def idle_s(self) -> float | None: ...
    @property
    def total_s(self) -> float | None: ...


async def drive(
    open_source: Callable[[], AsyncIterator[Delta | Sequence[Delta]]],
    *,
    origin: Origin,
    signal: CancellationToken | None = None,
    retry: RetryPolicy | None = None,
    timeouts: Timeouts | None = None,
    finalize: Callable[[Completion], Completion] | None = None,
    prepare: Callable[[], Awaitable[object]] | None = None,
) -> AsyncIterator[StreamEvent]:
    """Drive one model call to its terminal event.

    Parameters
    ----------
    open_source
        Starts an attempt: a fresh iterator of deltas or lists of deltas.
    origin
        Who is asked.
    signal
        Cancels the call at once, also while the socket is silent.
    retry, timeouts
        Policies; no retries and no timeouts by default.
    finalize
        Applied to the completion before the terminal event.
    prepare
        What must be there before the first request (an SDK to import, a local server to start). The call's clock starts after it.

    Yields
    ------
    StreamEvent
        In the order that `rein_nb.ir.events` fixes; the last one is `StreamDone` or `StreamError`.

    Raises
    ------
    InvalidRequest
        For what the programmer did wrong, before any I/O.
    """
    acc = Accumulator(origin, started_at=time.time(), finalize=finalize)
    policy = retry or RetryPolicy(0)
    guard = _Guard(
        signal,
        timeouts.first_byte_s if timeouts else None,
        timeouts.idle_s if timeouts else None,
        timeouts.total_s if timeouts else None,
    )
    attempt = 0
    try:
        for event in acc.start():
            yield event
        if prepare is not None:
            try:
                await guard.wait(prepare())
            except _Interrupted as stop:
                for event in acc.cancel() if stop.why == "cancelled" else acc.fail(guard.error(stop.why, origin)):
                    yield event
                return
            except ProviderError as exc:
                for event in acc.fail(exc.info):
                    yield event
                return
            acc.restart_clock()
        while not acc.finished:
            error: ErrorInfo | None = None
            source = open_source()
            following = source.__anext__
            try:
                guard.phase("first_byte")
                first = True
                while True:
                    guard.begin()
                    try:
                        batch = await following()
                    except StopAsyncIteration:
                        break
                    except asyncio.CancelledError:
                        guard.own()
                        raise
                    finally:
                        guard.finish()
                    if first:
                        first = False
                        acc.first_byte()
                        guard.phase("idle")
                    for delta in batch if type(batch) is list else _as_batch(batch):
                        for event in acc.feed(delta):
                            yield event
                    if acc.finished:
                        break
                    if acc.fault is not None:
                        break
                error = acc.fault if not acc.finished else None
            except _Interrupted as stop:
                if stop.why == "cancelled":
                    for event in acc.cancel(signal.reason if signal is not None else None):
                        yield event
                    return
                error = guard.error(stop.why, origin)
                if stop.why == "total":
                    error = error.model_copy(update={"retryable": False})
            except ProviderError as exc:
                error = exc.info
            finally:
                await _close(source)
            if acc.finished:
                return
            if error is None:
                if not acc.visible and not acc.closing:
                    error = ErrorInfo.make(
                        "stream_cut", "the answer ended before it began",
                        provider=origin.provider, model=origin.model,
                    )  # fmt: skip
                else:
                    for event in acc.end():
                        yield event
                    return
            attempt += 1
            wait_s = None if acc.visible else policy.wait(attempt, error, steady=acc.recorded)
            if wait_s is None:
                for event in acc.fail(error):
                    yield event
                return
            for event in acc.retry(attempt, wait_s, error):
                yield event
            try:
                await guard.wait(asyncio.sleep(wait_s * acc.pace))
            except _Interrupted as stop:
                for event in acc.cancel() if stop.why == "cancelled" else acc.fail(guard.error(stop.why, origin)):
                    yield event
                return
    finally:
        guard.close()


def _as_batch(batch: Any) -> Sequence[Delta]:
    return batch if isinstance(batch, Sequence) else (batch,)


async def _close(source: Any) -> None:
    """Close a source that may not have been exhausted; its own clean-up faults must not hide the outcome."""
    closer = getattr(source, "aclose", None)
    if closer is not None:
        try:
            await closer()
        except ProviderError:
            pass  # the outcome is already known; a fault while closing adds nothing to it
