"""Where results are rendered: not on the event loop, and within the tool's time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rein_nb.ir import ToolCall
from rein_nb.tools import Outcome, Tool, ToolContext
from rein_nb.tools.jsonable import is_plain


class Placed:
    """Shows the thread in which it was shown."""

    def __repr__(self) -> str:
        return f"in {threading.get_ident()}"


class PlacedError(Exception):
    def __str__(self) -> str:
        return f"in {threading.get_ident()}"


class Slow:
    """Its repr takes until the gate opens, and far too long without that."""

    def __init__(self, gate: threading.Event, begun: threading.Event | None = None) -> None:
        self.gate = gate
        self.begun = begun or threading.Event()

    def __repr__(self) -> str:
        self.begun.set()
        return f"slow {self.gate.wait(30)}"


class SlowError(Exception):
    def __init__(self, gate: threading.Event) -> None:
        self.gate = gate

    def __str__(self) -> str:
        return f"slow {self.gate.wait(30)}"


def tools_for(make: Any, **options: Any) -> list[Tool]:
    """A synchronous and an asynchronous tool that return what `make` makes."""

    def plain() -> Any:
        return make()

    async def coroutine() -> Any:
        return make()

    def hands_back() -> Any:
        return coroutine()

    return [Tool(fn, **options) for fn in (plain, coroutine, hands_back)]


async def run(made: Tool, ctx: ToolContext | None = None) -> Outcome:
    return await made.execute(ToolCall(id="c", name=made.name), ctx)


def fails(error: BaseException) -> Any:
    raise error


async def test_a_result_is_rendered_in_the_thread_that_made_it() -> None:
    seen: list[int] = []

    def plain() -> Placed:
        seen.append(threading.get_ident())
        return Placed()

    text = (await run(Tool(plain))).result.text
    assert text.startswith(f"in {seen[0]}\n")


async def test_no_code_of_a_users_value_runs_on_the_loop() -> None:
    here = str(threading.get_ident())
    for made in [*tools_for(Placed), *tools_for(lambda: [Placed()]), *tools_for(lambda: fails(PlacedError()))]:
        text = (await run(made)).result.text
        assert "in " in text
        assert here not in text, made


async def test_a_tool_that_runs_on_the_loop_is_rendered_there() -> None:
    made = Tool(lambda: Placed(), name="here", in_thread=False)
    assert str(threading.get_ident()) in (await run(made)).result.text


@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_rendering_counts_towards_the_timeout_and_leaves_the_loop_free(kind: int) -> None:
    gate = threading.Event()
    try:
        outcome = await run(tools_for(lambda: Slow(gate), timeout_s=0.1)[kind])
        assert outcome.result.status == "timed_out"
        assert (
            "It returned when it was stopped: a Slow, which could not be rendered in that time" in outcome.result.text
        )
        assert isinstance(outcome.value, Slow)
        failed = await run(tools_for(lambda: fails(SlowError(gate)), timeout_s=0.1)[kind])
        assert failed.result.status == "timed_out"
    finally:
        gate.set()


@pytest.mark.parametrize("kind", [0, 1, 2])
async def test_rendering_can_be_cancelled(kind: int) -> None:
    gate, begun = threading.Event(), threading.Event()
    made = tools_for(lambda: Slow(gate, begun))[kind]
    ctx: ToolContext[Any] = ToolContext(call=ToolCall(id="c", name=made.name))
    try:
        task = asyncio.create_task(run(made, ctx))
        while not begun.is_set():
            await asyncio.sleep(0.01)
        ctx.token.cancel("enough")
        outcome = await task
        assert outcome.result.status == "interrupted"
        assert outcome.result.details["started"] is True
    finally:
        gate.set()


async def test_the_time_of_a_coroutine_that_a_function_hands_back_is_not_counted_anew() -> None:
    async def wait() -> None:
        await asyncio.sleep(60)

    def hands_back() -> Any:
        return wait()

    outcome = await run(Tool(hands_back, timeout_s=0.1))
    assert outcome.result.status == "timed_out"


async def test_what_a_cancelled_coroutine_returned_is_rendered_all_the_same() -> None:
    async def wait(ctx: ToolContext) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return Placed()

    made = Tool(wait)
    ctx: ToolContext[Any] = ToolContext(call=ToolCall(id="c", name="wait"))
    task = asyncio.create_task(run(made, ctx))
    await asyncio.sleep(0.02)
    ctx.token.cancel()
    outcome = await task
    assert outcome.result.status == "interrupted"
    assert outcome.result.text.startswith("in ")


async def test_a_repr_that_fails_in_any_way_is_told() -> None:
    class Odd:
        def __init__(self, error: BaseException) -> None:
            self.error = error

        def __repr__(self) -> str:
            raise self.error

    for error in (ValueError("no"), SystemExit(3)):
        for made in tools_for(lambda error=error: Odd(error)):
            outcome = await run(made)
            assert outcome.result.status == "error"
            assert "returned a Odd that cannot be shown" in outcome.result.text
            assert isinstance(outcome.value, Odd)
    for made in tools_for(lambda: Odd(KeyboardInterrupt())):
        assert isinstance((await run(made)).ends_run, KeyboardInterrupt)


async def test_an_asynchronous_generator_that_a_function_hands_back_is_read() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    def hands_back() -> Any:
        return numbers()

    assert (await run(Tool(hands_back))).result.text == "[1, 2]"


def test_what_is_plain() -> None:
    for value in ("a", 1, 1.5, True, None, [1, {"a": [None, ("x",)]}]):
        assert is_plain(value)
    itself: list[Any] = []
    itself.append(itself)
    for value in (
        Placed(),
        [Placed()],
        {"a": {1}},
        b"x",
        "x" * 2_000_000,
        [0] * 10_000,
        dict.fromkeys(range(5_000)),
        itself,
    ):
        assert not is_plain(value)


async def test_what_a_tool_returned_after_its_time_is_kept_whole() -> None:
    async def wait() -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return {"rows": ["x" * 500]}

    result = (await run(Tool(wait, timeout_s=0.05, max_result_chars=100))).result
    assert result.status == "timed_out"
    assert len(result.text) < 600
    assert result.details["returned"] == {"rows": ["x" * 500]}
