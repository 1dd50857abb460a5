"""The process's own loop: sync calls from anywhere, interrupts that land, nothing left behind."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import threading
import time
from concurrent.futures import CancelledError as FutureCancelled

import pytest

from rein_nb import aio


async def double(n: int) -> int:
    await asyncio.sleep(0)
    return 2 * n


def test_C109_a_sync_call_works_without_and_inside_a_running_loop() -> None:
    assert aio.run_sync(double(2)) == 4

    async def cell() -> int:
        return aio.run_sync(double(3))

    assert asyncio.run(cell()) == 6


def test_exceptions_come_through_and_the_callers_context_goes_along() -> None:
    var: contextvars.ContextVar[str] = contextvars.ContextVar("var", default="unset")
    var.set("mine")

    async def read() -> str:
        return var.get()

    async def fail() -> None:
        raise KeyError("x")

    assert aio.run_sync(read()) == "mine"
    with pytest.raises(KeyError):
        aio.run_sync(fail())


def test_a_sync_call_on_our_own_loop_is_refused_instead_of_hanging() -> None:
    async def inner() -> int:
        return aio.run_sync(double(1))

    with pytest.raises(RuntimeError, match="await the async form"):
        aio.run_sync(inner())


def test_keyboard_interrupt_cancels_the_work_and_waits_for_it() -> None:
    seen = []

    async def work() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            await asyncio.sleep(0.05)
            seen.append("wound down")

    threading.Timer(0.2, _interrupt_main).start()
    started = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        aio.run_sync(work())
    assert seen == ["wound down"]
    assert time.perf_counter() - started < 5


def _interrupt_main() -> None:
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_iterate_sync_gives_items_and_closes_the_source_when_left() -> None:
    closed = []

    async def numbers():
        try:
            for n in range(100):
                yield n
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    assert list(aio.iterate_sync(numbers())) == list(range(100))
    for n in (it := aio.iterate_sync(numbers())):
        if n == 3:
            break
    it.close()
    assert closed == [True, True]


async def test_waiting_in_slices_returns_raises_and_cancels() -> None:
    assert await aio.wait_in_slices(aio.submit(double(4))) == 8
    stopped = threading.Event()

    async def quiet() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            stopped.set()

    task = asyncio.create_task(aio.wait_in_slices(aio.submit(quiet())))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stopped.is_set()


def test_cancel_before_the_start_never_runs() -> None:
    future = aio.submit(asyncio.sleep(30))
    aio.cancel(future)
    with pytest.raises(FutureCancelled):
        future.result(5)
