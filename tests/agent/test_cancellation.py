"""Stopping: at any event, in any way; what is left is valid, and nothing is left running."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from rein_nb.agent import Agent, Deny
from rein_nb.agent.healing import MARK
from rein_nb.ir import Message, ProviderError
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool, ToolContext
from tests.agent.support import assert_valid, call, eventually, keyboard_interrupts
from tests.support import REPO

scripted = ScriptedProvider.llm


# -- C095: leaving a stream early --------------------------------------------------------------------


async def test_C095_leaving_in_any_way_closes_the_stream_and_keeps_the_text(recwarn: pytest.WarningsRecorder) -> None:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    llm = scripted([f"piece{n} " for n in range(100)], repeat=True, delay_s=0.01)

    async def by_break(agent: Agent) -> None:
        async for event in agent.events("hi"):
            if event.type == "message_update":
                break

    async def by_context(agent: Agent) -> None:
        async with agent.events("hi") as stream:
            async for event in stream:
                if event.type == "message_update":
                    break

    async def by_garbage(agent: Agent) -> None:
        stream = agent.events("hi")
        while (await anext(stream)).type != "message_update":
            pass
        del stream
        gc.collect()

    async def by_chunks(agent: Agent) -> None:
        async for _ in agent.astream("hi"):
            break

    for leave in (by_break, by_context, by_garbage, by_chunks):
        agent = Agent(llm)
        await leave(agent)
        assert await eventually(lambda agent=agent: len(agent.messages) == 2), leave
        partial = agent.messages[-1]
        assert partial.text.startswith("piece0")
        assert partial.text.count("piece") < 50
        assert partial.extra[MARK]["interrupted"] is True
        assert await eventually(lambda: len(asyncio.all_tasks()) == 1)
        assert (await agent.arun("again", llm=scripted("fine"))).text == "fine"
    gc.collect()
    assert problems == []
    assert len(recwarn) == 0


async def test_asking_again_right_after_leaving_finds_the_interrupted_turn() -> None:
    agent = Agent(scripted(["half ", "an ", "answer"], ["whole"], delay_s=0.01))
    async for chunk in agent.astream("one"):
        if chunk.type == "text":
            break
    result = await agent.arun("two")
    assert [m.role for m in result.messages] == ["user", "assistant", "user", "assistant"]
    assert result.messages[1].text.startswith("half")
    assert_valid(agent.messages)


async def test_a_stream_that_is_never_started_costs_nothing() -> None:
    agent = Agent(scripted("x"))
    stream = agent.events("hi")
    await stream.aclose()
    with pytest.raises(StopAsyncIteration):
        await anext(stream)
    assert agent.messages == []


# -- C099, C082 --------------------------------------------------------------------------------------


async def test_C099_a_tool_that_swallows_the_stop_does_not_turn_the_run_on_again() -> None:
    started = asyncio.Event()

    async def stubborn() -> str:
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "stopped, partial output kept"
        return "never"

    llm = scripted([call("1", "stubborn")], "another paid answer")
    agent = Agent(llm, [stubborn])
    task = asyncio.create_task(agent.arun("x"))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(llm.backend.requests) == 1  # type: ignore[attr-defined]
    assert agent.messages[-1].tool_results[0].text == "stopped, partial output kept"
    assert_valid(agent.messages)


async def test_C082_running_waiting_and_denied_calls_are_told_apart() -> None:
    side_effects: list[str] = []

    async def charge(card: str) -> None:
        side_effects.append(card)
        await asyncio.sleep(60)

    serial = Tool(charge, parallel_safe=False)
    agent = Agent(
        scripted([call("1", "charge", card="A"), call("2", "charge", card="B"), call("3", "refund", card="C")]),
        [serial, Tool(charge, name="refund")],
        before_tool_call=lambda c, ctx: Deny("not on Sundays") if c.name == "refund" else None,
    )
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.05, token.cancel, "user pressed stop")
    result = await agent.arun("x", signal=token)
    assert result.stop_reason == "cancelled"
    assert side_effects == ["A"]
    running, waiting, third = (t.result for t in result.tool_runs)
    assert (running.status, running.details["started"]) == ("interrupted", True)
    assert "may have taken effect" in running.text
    assert (waiting.status, waiting.details["started"]) == ("interrupted", False)
    assert "Not started" in waiting.text
    assert third.status in ("denied", "interrupted")
    assert len({running.text, waiting.text, third.text}) == 3

    # The same three at once, so that the hook has spoken before the stop.
    agent = Agent(
        scripted([call("1", "charge", card="A"), call("3", "refund", card="C"), call("2", "late", card="B")]),
        [Tool(charge), Tool(charge, name="refund"), Tool(charge, name="late", parallel_safe=False)],
        before_tool_call=lambda c, ctx: Deny("not on Sundays") if c.name == "refund" else None,
    )
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.05, token.cancel)
    statuses = [(t.result.status, t.result.text) for t in (await agent.arun("x", signal=token)).tool_runs]
    assert [s for s, _ in statuses] == ["interrupted", "denied", "interrupted"]
    assert "not on Sundays" in statuses[1][1]
    saved = [Message.model_validate_json(m.model_dump_json()) for m in agent.messages]
    assert saved == agent.messages, "the state survives saving"


# -- tokens, threads, interrupts ---------------------------------------------------------------------


async def test_a_cancelled_token_gives_a_result_and_a_cancelled_task_raises() -> None:
    agent = Agent(scripted(["a", "b"], fault="hang", repeat=True))
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.05, token.cancel)
    result = await agent.arun("x", signal=token)
    assert (result.stop_reason, result.error) == ("cancelled", None)
    task = asyncio.create_task(agent.arun("y"))
    await asyncio.sleep(0.05)
    task.cancel()
    started = time.perf_counter()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.perf_counter() - started < 0.5, "a silent stream is interrupted at once"
    assert_valid(agent.messages)


async def test_a_call_that_was_still_being_written_was_not_started() -> None:
    ran: list[int] = []

    def add(a: int, b: int) -> int:
        ran.append(a)
        return a + b

    agent = Agent(scripted([call("1", "add", a=1, b=2), "and "], delay_s=0.02), [add])
    stream = agent.events("x")
    async for event in stream:
        if event.type == "message_update" and event.event.type == "tool_call_done":
            stream.cancel()
    assert ran == []
    (result,) = agent.messages[-1].tool_results
    assert (result.status, result.details["started"]) == ("interrupted", False)


async def test_a_token_that_is_cancelled_before_the_run_makes_no_request() -> None:
    token = CancellationToken()
    token.cancel()
    llm = scripted("x")
    result = await Agent(llm).arun("hi", signal=token)
    assert result.stop_reason == "cancelled"
    assert llm.backend.requests == []  # type: ignore[attr-defined]


async def test_a_token_is_left_alone_when_the_run_ends_by_itself() -> None:
    token = CancellationToken()
    await Agent(scripted("x")).arun("hi", signal=token)
    assert not token.is_cancelled
    assert token._callbacks == []


async def test_a_tool_sees_the_stop() -> None:
    seen: list[str | None] = []

    def watch(ctx: ToolContext) -> str:
        ctx.token.wait(30)
        seen.append(ctx.token.reason)
        return "saw it"

    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.05, token.cancel, "enough")
    result = await Agent(scripted([call("1", "watch")]), [watch]).arun("x", signal=token)
    assert seen == ["enough"]
    assert result.tool_runs[0].result.text == "saw it"


@pytest.mark.parametrize("kind", ["async", "sync"])
async def test_a_keyboard_interrupt_in_a_tool_ends_the_run_and_every_call_is_answered(kind: str) -> None:
    async def nap() -> None:
        await asyncio.sleep(30)

    def stop() -> None:
        raise KeyboardInterrupt

    async def stop_async() -> None:
        raise KeyboardInterrupt

    name = "stop" if kind == "sync" else "stop_async"
    agent = Agent(scripted([call("1", "nap"), call("2", name), call("3", "nap")], "never"), [nap, stop, stop_async])
    # A KeyboardInterrupt set on a task would leave the test's own loop, so it is looked at from a thread's.
    caught: list[BaseException] = []

    def in_thread() -> None:
        try:
            agent.run("x")
        except KeyboardInterrupt as exc:
            caught.append(exc)

    await asyncio.to_thread(in_thread)
    assert len(caught) == 1
    assert_valid(agent.messages)
    assert [m.tool_results[0].status for m in agent.messages if m.role == "tool"] == ["interrupted"] * 3
    assert (await agent.arun("go on", llm=scripted("fine"))).text == "fine"


@pytest.mark.parametrize("kind", ["async", "sync"])
def test_C112_interrupting_a_synchronous_run_stops_it_and_the_agent_goes_on(kind: str) -> None:
    async def slow() -> None:
        await asyncio.sleep(60)

    def slow_sync() -> None:
        time.sleep(3)

    fn = slow if kind == "async" else slow_sync
    agent = Agent(scripted([call("1", fn.__name__)], "never"), [fn])
    timer = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))
    timer.start()
    started = time.perf_counter()
    with keyboard_interrupts(), pytest.raises(KeyboardInterrupt):
        agent.run("use the slow tool")
    assert time.perf_counter() - started < 2.0
    assert_valid(agent.messages)
    assert agent.messages[-1].tool_results[0].status == "interrupted"
    assert agent.run("hello", llm=scripted("hi")).text == "hi"


async def test_a_provider_fault_while_others_wait_is_not_lost() -> None:
    agent = Agent(scripted("x", fault="server_error", repeat=True))
    results = await asyncio.gather(*(agent.arun("x") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(r, ProviderError) for r in results)
    assert_valid(agent.messages)


def test_cancelled_runs_leave_no_task_thread_connection_or_handle() -> None:
    """Over real streams and tools, in four ways; ``python -m tests.benchmarks.cancels`` does it a thousand times."""
    command = [
        sys.executable,
        "-m",
        "tests.benchmarks.cancels",
        "24",
    ]  # a process of its own, where nobody else's threads end
    told = subprocess.run(
        command, capture_output=True, text=True, timeout=120, check=True, cwd=REPO
    ).stdout.splitlines()
    assert int(told[0].removeprefix("cancelled: ")) >= 24
    assert told[1:] == ["tasks left: 0", "threads left: 0", "connections left: 0", "handles left: 0"]


async def test_a_callback_on_a_token_that_fails_keeps_nobody_from_being_told() -> None:
    token = CancellationToken()
    token.on_cancel(lambda: 1 / 0)
    told: list[int] = []
    token.on_cancel(lambda: told.append(1))

    async def nap() -> None:
        await asyncio.sleep(60)

    task = asyncio.ensure_future(Agent(scripted([call("1", "nap")]), [nap]).arun("x", signal=token))
    await asyncio.sleep(0.05)
    with pytest.raises(ZeroDivisionError):
        token.cancel("stop")
    result = await asyncio.wait_for(task, 10)
    assert (result.stop_reason, told, token.reason) == ("cancelled", [1], "stop")
