"""One daemon thread owns rein_nb's event loop for the whole process.

Synchronous calls (`llm.chat`, `agent.run`) hand their coroutine to it, so they work in a script, in a notebook cell whose own loop is
running, and in any thread; nobody's loop is ever patched. HTTP clients are kept per loop, so mixing sync and async calls is safe.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import queue
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")

_SLICE_S = 0.1
"""How often a waiting caller wakes, so that a kernel interrupt lands within this many seconds."""

_GRACE_S = 5.0
"""How long an interrupted caller waits for its work to wind down."""

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None
_pid: int | None = None


def background_loop() -> asyncio.AbstractEventLoop:
    """The process's own event loop, running in its daemon thread; started at the first call, and again after a fork or when its thread has died."""
    global _loop, _thread, _pid
    with _lock:
        if _loop is None or _loop.is_closed() or _pid != os.getpid() or _thread is None or not _thread.is_alive():
            if _loop is not None and _pid == os.getpid() and not _loop.is_running():
                _loop.close()  # its thread died; what it held open is let go of
            loop = asyncio.new_event_loop()
            started = threading.Event()

            def run() -> None:
                asyncio.set_event_loop(loop)
                loop.call_soon(started.set)
                loop.run_forever()

            _thread = threading.Thread(target=run, name="rein_nb-loop", daemon=True)
            _thread.start()
            started.wait()
            _loop, _pid = loop, os.getpid()
        return _loop


def in_background_loop() -> bool:
    """Whether the calling code runs on the process's own loop, where a synchronous call would wait for itself."""
    try:
        return asyncio.get_running_loop() is _loop
    except RuntimeError:
        return False


def submit(coro: Coroutine[Any, Any, T], box: list[Future[T]] | None = None) -> Future[T]:
    """Start a coroutine on the process's own loop, in a copy of the caller's context. Returns a concurrent future.

    The future is in `box` before the work can begin: a caller who is interrupted inside this function finds there what to stop.
    """
    context = contextvars.copy_context()
    loop = background_loop()
    future: Future[T] = Future()
    task_box: list[asyncio.Task[T]] = []

    def start() -> None:
        if not future.set_running_or_notify_cancel():
            coro.close()
            return
        task = loop.create_task(coro, context=context)
        task_box.append(task)
        task.add_done_callback(finish)

    def finish(task: asyncio.Task[T]) -> None:
        if task.cancelled():
            future.set_exception(FutureCancelled())
        elif (exc := task.exception()) is not None:
            future.set_exception(exc)
        else:
            future.set_result(task.result())

    def cancel_task() -> None:
        if task_box:
            task_box[0].cancel()

    future.rein_cancel = lambda: loop.call_soon_threadsafe(cancel_task)  # type: ignore[attr-defined]
    if box is not None:
        box.append(future)
    loop.call_soon_threadsafe(start)
    return future


def cancel(future: Future[Any]) -> None:
    """Cancel work started by `submit`."""
    if not future.cancel():
        future.rein_cancel()  # type: ignore[attr-defined]


def run_sync(coro: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end from synchronous code, whether or not the caller's thread has a running loop.

    A KeyboardInterrupt, or whatever else is raised in this thread from outside, cancels the work, waits for it to wind down, and is raised
    again.

    Raises
    ------
    RuntimeError
        When called on rein_nb's own loop (a synchronous call inside an async tool): use the async form there.
    """
    if in_background_loop():
        coro.close()
        raise RuntimeError(
            "a synchronous rein_nb call inside async code on its own loop would wait for itself; await the async form"
        )
    box: list[Future[T]] = []
    try:
        future = submit(coro, box)
        while True:
            try:
                return future.result(_SLICE_S)
            except TimeoutError:
                if future.done():
                    raise
    except BaseException:
        # A KeyboardInterrupt, or what is raised inside a tool's thread when the tool is stopped.
        if not (box and box[0].done()):
            _wind_down(box, coro)
        raise


def _wind_down(box: list[Future[T]], coro: Coroutine[Any, Any, Any]) -> None:
    """Stop work that `submit` was given, however far it got with it."""
    for future in box:
        cancel(future)
    if not box or box[0].cancelled():
        coro.close()  # it will never be started
        return
    future = box[0]
    try:
        future.exception(_GRACE_S)
    except (TimeoutError, FutureCancelled):
        pass  # it ended as asked, or did not within its grace: the caller raises the interrupt in either case


async def wait_in_slices(future: Future[T]) -> T:
    """Await work on the process's own loop from another loop, waking often enough for a kernel interrupt to land.

    Cancelling the waiter cancels the work and waits for it to wind down.
    """
    waiter = asyncio.wrap_future(future)
    try:
        while not waiter.done():
            await asyncio.wait([waiter], timeout=_SLICE_S)
        return waiter.result()
    except (asyncio.CancelledError, KeyboardInterrupt):
        if not future.done():
            cancel(future)
            await asyncio.wait([waiter], timeout=_GRACE_S)
        if waiter.done() and not waiter.cancelled():
            waiter.exception()
        raise


_END = object()


def iterate_sync(source: AsyncIterator[T]) -> Iterator[T]:
    """Iterate an async iterator from synchronous code. Leaving early closes the source and waits for that."""
    if in_background_loop():
        raise RuntimeError(
            "a synchronous rein_nb call inside async code on its own loop would wait for itself; await the async form"
        )
    items: queue.Queue[Any] = queue.Queue()

    async def pump() -> None:
        try:
            async for item in source:
                items.put(item)
        finally:
            closer = getattr(source, "aclose", None)
            if closer is not None:
                await closer()
            items.put(_END)

    box: list[Future[None]] = []
    work = pump()
    try:
        future = submit(work, box)
        while True:
            try:
                item = items.get(timeout=_SLICE_S)
            except queue.Empty:
                continue
            if item is _END:
                break
            yield item
        future.result(_GRACE_S)
    finally:
        if not box or not box[0].done():
            _wind_down(box, work)
