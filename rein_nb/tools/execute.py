"""Running one call: on the loop or in a thread of its own, with a time limit, and stoppable at any moment.

A synchronous tool gets a daemon thread for itself (see `rein_nb.tools.threads`; a stuck one must not hold up the end of the process).
Python cannot kill a thread: on cancellation the caller goes on at once, the tool's
token is cancelled, and an exception is raised inside the thread at its next Python instruction. A thread that sits in one long
C call (``time.sleep(60)``) ends only when that call returns; its result is thrown away.
"""

from __future__ import annotations

import asyncio
import contextvars
import ctypes
import inspect
import itertools
import operator
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from rein_nb.stream import CancellationToken
from rein_nb.tools.frames import is_mock
from rein_nb.tools.threads import ToolStopped, run_in_thread

STOP_GRACE_S = 2.0
"""How long a cancelled coroutine may take to wind down before it is left to itself, seconds."""

AGAIN_S = 10.0
"""How long a stopped thread then has for its own cleaning up before the exception is raised again, seconds: it may have caught it by
mistake, as an ``except:`` in a loop does. Each further time it has twice as long."""

THREAD_GRACE_S = 0.5
"""How long a cancelled thread may take to notice its token before an exception is raised inside it, seconds."""


class EndsRun(Exception):
    """Carries a KeyboardInterrupt out of a tool: raised inside a task it would tear down the event loop itself."""

    def __init__(self, cause: BaseException) -> None:
        super().__init__(type(cause).__name__)
        self.cause = cause


@dataclass(slots=True)
class Ended:
    """How a piece of work ended.

    Attributes
    ----------
    how
        ``returned``, ``raised``, ``cancelled`` or ``timed_out``.
    value, error
        What it returned or raised. A cancelled coroutine that returned something keeps it in `value`.
    has_value
        Whether `value` is a returned value.
    """

    how: Literal["returned", "raised", "cancelled", "timed_out"]
    value: Any = None
    error: BaseException | None = None
    has_value: bool = False


async def run_guarded(
    start: Callable[[], asyncio.Future[Any]], token: CancellationToken, timeout_s: float | None, notice_s: float = 0.0
) -> Ended:
    """Run work until it ends, the token is cancelled or the time is over. Raises only `asyncio.CancelledError`.

    Parameters
    ----------
    start
        Starts the work and returns its task or future.
    token
        Cancelling it stops the work; it is cancelled here when the time is over, so that the work can see it.
    timeout_s
        Seconds; None for no limit.
    notice_s
        Seconds that work which looks at the token gets to return by itself before it is cancelled.
    """
    if token.is_cancelled:
        return Ended("cancelled")
    loop = asyncio.get_running_loop()
    work = start()
    # Done when the work is, when the token is cancelled, or when the time is up.
    over: asyncio.Future[None] = loop.create_future()

    def end(_: object = None) -> None:
        if not over.done():
            over.set_result(None)

    work.add_done_callback(end)
    detach = token.on_cancel(lambda: _soon(loop, end))
    timer = loop.call_later(timeout_s, end) if timeout_s is not None else None
    try:
        if not work.done():
            await over
    except asyncio.CancelledError:
        token.cancel("the task was cancelled")
        await _wind_down(work)
        raise
    finally:
        detach()
        if timer is not None:
            timer.cancel()
    if work.done() and not work.cancelled():
        error = work.exception()
        if error is not None:
            return Ended("raised", error=error)
        # What returns after the token was cancelled may have returned because of it.
        return Ended("cancelled" if token.is_cancelled else "returned", value=work.result(), has_value=True)
    if work.done():  # the work cancelled itself
        return Ended("raised", error=asyncio.CancelledError("the tool cancelled itself"))
    how: Literal["cancelled", "timed_out"] = "cancelled" if token.is_cancelled else "timed_out"
    if how == "timed_out":
        token.cancel("timed out")
    await _wind_down(work, notice_s)
    if work.done() and not work.cancelled() and work.exception() is None:
        return Ended(how, value=work.result(), has_value=True)
    return Ended(how)


def _soon(loop: asyncio.AbstractEventLoop, work: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(work)
    except RuntimeError:  # the loop is closed: nobody waits any more
        return


async def _wind_down(work: asyncio.Future[Any], notice_s: float = 0.0) -> None:
    """Cancel work and give it a moment; further cancellations of the waiter do not cut the moment short."""
    if notice_s and not work.done():
        try:
            await asyncio.wait((work,), timeout=notice_s)
        except asyncio.CancelledError:
            pass
    work.cancel()
    loop = asyncio.get_running_loop()
    end = loop.time() + STOP_GRACE_S
    while not work.done() and (left := end - loop.time()) > 0:
        try:
            await asyncio.wait((work,), timeout=left)
        except asyncio.CancelledError:
            continue
    if not work.done():
        work.add_done_callback(_swallow)
    elif not work.cancelled():
        work.exception()


def _swallow(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()


_AWAITED = 8
"""How often a value is awaited that is awaitable again: some objects give themselves."""


def _is(value: Any, test: Callable[[Any], bool]) -> bool:
    try:
        return test(value)
    except Exception:  # its class cannot be asked
        return False


def _is_async_iterator(value: Any) -> bool:
    return isinstance(value, AsyncIterator) and not is_mock(value)


def is_for_loop(value: Any) -> bool:
    """Whether what a plain function gave back is only begun, and has to be finished on the event loop."""
    return _is(value, inspect.isawaitable) or _is(value, _is_async_iterator)


async def call_async(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call on the loop; awaits what it returns and collects async generators."""
    try:
        value = fn(*args, **kwargs)
        for _ in range(_AWAITED):
            if not _is(value, inspect.isawaitable):
                break
            value = await value
        if _is(value, _is_async_iterator):
            return [item async for item in value]
        return _read(value)
    except KeyboardInterrupt as exc:
        raise EndsRun(exc) from exc
    except SystemExit as exc:
        raise RuntimeError(f"the tool called exit({exc.code!r})") from exc


def call_in_thread(work: Callable[[], Any], name: str) -> asyncio.Future[Any]:
    """Call in a daemon thread for itself, in a copy of the caller's context. Cancelling the future lets go of the thread."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()
    worker = _Worker(loop, future, lambda: context.run(work))
    future.add_done_callback(worker.settled)
    run_in_thread(worker.run, f"rein_nb-tool-{name}")
    return future


def call_sync(fn: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call in the thread that this runs in, and read what is lazy."""
    try:
        return _read(fn(*args, **kwargs))
    except SystemExit as exc:
        raise RuntimeError(f"the tool called exit({exc.code!r})") from exc


_LAZY = frozenset({"builtins", "itertools", "_collections", "csv", "_csv", "sqlite3"})


def _read(value: Any) -> Any:
    """The items of a generator or of Python's own lazy iterators (map, islice, a csv reader...): their work is done here, and only once.

    Also of those that stand in a dict or a tuple. Other iterators (an open file, an endless counter) are left as they are.
    """
    if type(value) is dict and any(_is_lazy(item) for item in value.values()):
        return {key: _items(item) for key, item in value.items()}
    if type(value) is tuple and any(_is_lazy(item) for item in value):
        return tuple(_items(item) for item in value)
    return _items(value)


def _items(value: Any) -> Any:
    if not _is_lazy(value):
        return value
    if isinstance(value, itertools.groupby):  # a group is empty once the next one is read
        return [(key, list(group)) for key, group in value]
    items = []
    for item in value:  # not list(value): one call in C could not be stopped
        items.append(item)
        if len(items) > _MOST_READ and type(value).__module__ != "builtins":
            raise ValueError(
                f"the tool returned a {type(value).__name__} of more than {_MOST_READ:,} items; return a list of those that are wanted"
            )
    return items


_MOST_READ = 1_000_000
"""Items of a lazy iterator that are read, but for a generator, which does its own work: one over an endless source would fill the memory."""


def _is_lazy(value: Any) -> bool:
    return type(value).__module__ in _LAZY and isinstance(value, Iterator) and not _is_endless(value)


def _is_endless(value: Iterator[Any]) -> bool:
    if isinstance(value, itertools.repeat):
        return operator.length_hint(value, -1) < 0
    return isinstance(value, itertools.count | itertools.cycle)


class _Worker:
    """One thread's work, and the one moment at which it is either finished or abandoned."""

    def __init__(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any], work: Callable[[], Any]) -> None:
        self._loop = loop
        self._future = future
        self._work = work
        self._lock = threading.Lock()
        self._ident: int | None = None
        self._over = False
        self._raised = False
        self._stopper: threading.Timer | None = None

    def run(self) -> bool:
        """Do the work; whether its thread is as good as new afterwards."""
        with self._lock:
            self._ident = threading.get_ident()
        value: Any = None
        error: BaseException | None = None
        try:
            try:
                value = self._work()
            except BaseException as exc:
                if self._raised:  # whatever became of it on its way: nobody waits any more
                    return False
                error = exc
            finally:
                with self._lock:
                    self._ident, self._over = None, True
                    if self._stopper is not None:
                        self._stopper.cancel()
            self._loop.call_soon_threadsafe(self._settle, value, error)
        except ToolStopped:  # on the last step: nobody waits any more
            return False
        except RuntimeError:  # the loop is closed, which says nothing against the thread
            pass
        return not self._raised

    def _settle(self, value: Any, error: BaseException | None) -> None:
        if self._future.done():
            return
        if error is None:
            self._future.set_result(value)
        elif issubclass(type(error), KeyboardInterrupt):
            self._future.set_exception(EndsRun(error))
        else:
            try:
                self._future.set_exception(error)
            except Exception:  # a future refuses a StopIteration, and what cannot be asked for its class
                self._future.set_exception(RuntimeError(f"the tool raised {type(error).__name__}"))

    def settled(self, future: asyncio.Future[Any]) -> None:
        if not future.cancelled():
            return
        with self._lock:
            if not self._over:
                self._stop_after(THREAD_GRACE_S, AGAIN_S)

    def _stop_after(self, wait_s: float, again_s: float) -> None:
        # Not by the loop, which may be closed before the time is over.
        self._stopper = threading.Timer(wait_s, self._raise_inside, (again_s,))
        self._stopper.daemon = True
        self._stopper.start()

    def _raise_inside(self, again_s: float) -> None:
        with self._lock:
            if self._ident is not None:
                self._raised = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._ident), ctypes.py_object(ToolStopped))
                self._stop_after(again_s, 2 * again_s)
