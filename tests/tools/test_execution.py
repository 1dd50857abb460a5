"""Timeouts, cancellation, threads, progress, and what a tool may raise."""

from __future__ import annotations

import asyncio
import functools
import gc
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.tools import Progress, Tool, ToolContext


def call_of(made: Tool, **arguments: Any) -> ToolCall:
    return ToolCall(id="c1", name=made.name, arguments=arguments)


async def run(made: Tool, **arguments: Any) -> ToolResult:
    return await made.call(call_of(made, **arguments))


async def eventually(condition: Any, seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


def tool_threads() -> int:
    return sum(thread.name.startswith("rein_nb-tool") for thread in threading.enumerate())


async def test_a_timeout_is_told_apart_from_an_error() -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    def slow_sync(ctx: ToolContext) -> None:
        while not ctx.cancelled:
            time.sleep(0.01)

    for fn in (slow, slow_sync):
        result = await run(Tool(fn, timeout_s=0.05))
        assert result.status == "timed_out"
        assert "0.05 s" in result.text
        assert result.details["timeout_s"] == 0.05
    assert await eventually(lambda: tool_threads() == 0)


async def test_a_sync_tool_that_never_looks_is_stopped_at_its_next_python_step() -> None:
    reached: list[str] = []

    def spin() -> None:
        try:
            while True:
                time.sleep(0.005)
        finally:
            reached.append("cleaned up")

    started = time.perf_counter()
    result = await run(Tool(spin, timeout_s=0.05))
    assert time.perf_counter() - started < 0.5, "the caller must not wait for the thread"
    assert result.status == "timed_out"
    assert await eventually(lambda: reached == ["cleaned up"])
    assert await eventually(lambda: tool_threads() == 0)


async def test_a_cooperative_sync_tool_can_return_what_it_has() -> None:
    def count(ctx: ToolContext) -> str:
        n = 0
        while not ctx.cancelled:
            n += 1
            time.sleep(0.005)
        return f"counted to {n}"

    made = Tool(count)
    ctx = ToolContext(call=call_of(made))
    task = asyncio.create_task(made.call(ctx.call, ctx))
    await asyncio.sleep(0.05)
    ctx.token.cancel()
    result = await task
    assert result.status == "interrupted"
    assert result.text.startswith("counted to ")


async def test_cancelling_the_callers_task_cancels_the_tool_and_is_not_swallowed() -> None:
    ended: list[str] = []

    async def slow() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("yes")

    task = asyncio.create_task(run(Tool(slow)))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["yes"]


async def test_progress_arrives_in_order_from_a_thread() -> None:
    def work(ctx: ToolContext) -> str:
        for i in range(3):
            ctx.progress(f"step {i}", i / 3, {"i": i})
        return "done"

    seen: list[Progress] = []
    made = Tool(work)
    await made.call(call_of(made), ToolContext(call=call_of(made), on_progress=seen.append))
    assert [(p.message, p.fraction, p.data) for p in seen] == [(f"step {i}", i / 3, {"i": i}) for i in range(3)]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_whatever_a_tool_raises_becomes_a_result(kind: str) -> None:
    class Odd(BaseException):
        pass

    for error in (RuntimeError("disk full"), StopIteration("odd"), SystemExit(3), Odd("base"), AssertionError()):

        def bad(error: BaseException = error) -> None:
            raise error

        async def bad_async(error: BaseException = error) -> None:
            raise error

        fn = functools.partial(bad if kind == "sync" else bad_async, error=error)
        result = await run(Tool(fn))
        assert result.status == "error", error
        assert result.details["traceback"]


async def test_an_error_carries_type_and_message_and_keeps_the_traceback_for_programs() -> None:
    def bad() -> None:
        raise ValueError("disk full")

    result = await run(Tool(bad))
    assert result.text == "Error: ValueError: disk full"
    assert "in bad" in result.details["traceback"]


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_keyboard_interrupt_in_a_tool_is_handed_on_without_tearing_down_the_loop(kind: str) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    async def stop_async() -> None:
        raise KeyboardInterrupt

    made = Tool(stop if kind == "sync" else stop_async)
    outcome = await made.execute(call_of(made))
    assert isinstance(outcome.ends_run, KeyboardInterrupt)
    assert outcome.result.status == "interrupted"


async def test_every_kind_of_callable_can_be_called() -> None:
    async def coro(x: int) -> int:
        return x + 1

    def gives_coroutine(x: int) -> Any:
        return coro(x)

    def generates(x: int) -> Iterator[int]:
        yield from range(x)

    async def generates_async(x: int) -> AsyncIterator[int]:
        for i in range(x):
            yield i

    class Callable_:
        async def __call__(self, x: int) -> int:
            return x * 10

    assert (await run(Tool(coro), x=1)).text == "2"
    assert (await run(Tool(functools.partial(coro)), x=1)).text == "2"
    assert (await run(Tool(gives_coroutine), x=1)).text == "2"
    assert (await run(Tool(generates), x=3)).text == "[0, 1, 2]"
    assert (await run(Tool(generates_async), x=3)).text == "[0, 1, 2]"
    assert (await run(Tool(Callable_()), x=3)).text == "30"
    assert (await run(Tool(max, name="biggest") if False else Tool(lambda x: x, name="same"), x=3)).text == "3"


async def test_a_hundred_cancels_leave_no_task_and_no_thread() -> None:
    def nap(ctx: ToolContext) -> None:
        ctx.token.wait(30)

    async def doze() -> None:
        await asyncio.sleep(30)

    before = len(asyncio.all_tasks())
    for made in (Tool(nap), Tool(doze)):
        for _ in range(50):
            ctx = ToolContext(call=call_of(made))
            task = asyncio.create_task(made.call(ctx.call, ctx))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            ctx.token.cancel()
            assert (await task).status == "interrupted"
    gc.collect()
    assert len(asyncio.all_tasks()) == before
    assert await eventually(lambda: tool_threads() == 0)


def test_bad_options_are_refused_at_once() -> None:
    def f() -> None: ...

    with pytest.raises(ValueError, match="timeout_s"):
        Tool(f, timeout_s=0)
    with pytest.raises(ValueError, match="tool name"):
        Tool(f, name="not a name!")
    with pytest.raises(TypeError, match="callable"):
        Tool(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="pass name="):
        Tool(lambda x: x)
    with pytest.raises(TypeError, match="no option colour"):
        Tool(f).with_options(colour=1)
