"""Stopping: at any event, in any way; what is left is valid, and nothing is left running."""

from __future__ import annotations

import asyncio
import gc
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from rein_nb.agent import AbortRun, Agent, Deny
from rein_nb.agent.events import AgentEvent
from rein_nb.agent.healing import MARK
from rein_nb.ir import Message, ProviderError, ThinkingPart
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool, ToolContext
from tests.agent.support import assert_accepted, assert_event_grammar, assert_valid, call, eventually

scripted = ScriptedProvider.llm


async def quick(i: int) -> str:
    await asyncio.sleep(0.001)
    return f"quick {i}"


def threaded(i: int) -> str:
    time.sleep(0.001)
    return f"threaded {i}"


async def broken(i: int) -> str:
    raise RuntimeError(f"broken {i}")


TOOLS = [Tool(quick), Tool(threaded), Tool(broken)]

# Multi-turn runs with parallel tools, thinking, unknown names and malformed calls.
SCRIPTS: list[list[Any]] = [
    ["just ", "text"],
    [["look ", call("a", "quick", i=1), call("b", "quick", i=2)], ["done"]],
    [
        [ThinkingPart(text="hm", signature="s"), call("a", "threaded", i=1), call("b", "broken", i=2)],
        [call("c", "quick", i=3)],
        ["end"],
    ],
    [[call("a", "nope"), call("b", "quick", i="x"), call("c", "threaded", i=1)], ["so ", "be it"]],
    [[call(str(n), ("quick", "threaded", "broken")[n % 3], i=n) for n in range(6)], [call("z", "quick", i=9)], ["fin"]],
]


def flat(script: list[Any]) -> list[Any]:
    return [
        list(turn) if isinstance(turn, list) else turn for turn in (script if isinstance(script[0], list) else [script])
    ]


def new_agent(script: list[Any], **options: Any) -> Agent:
    return Agent(
        scripted(*flat(script), **{k: options.pop(k) for k in ("fault", "fault_times") if k in options}),
        TOOLS,
        **options,
    )


async def event_count(script: list[Any]) -> int:
    return len([e async for e in new_agent(script).events("go")])


async def stop_by_token(agent: Agent, at: int) -> list[AgentEvent]:
    token = CancellationToken()

    def hear(event: AgentEvent) -> None:
        if event.seq == at:
            token.cancel()

    return [event async for event in agent.events("go", signal=token, on_event=hear)]


async def stop_by_stream(agent: Agent, at: int) -> list[AgentEvent]:
    def hear(event: AgentEvent) -> None:
        if event.seq == at:
            stream.cancel("stop button")

    stream = agent.events("go", on_event=hear)
    return [event async for event in stream]


async def stop_by_break(agent: Agent, at: int) -> list[AgentEvent]:
    heard: list[AgentEvent] = []
    async with agent.events("go", on_event=heard.append) as stream:
        async for event in stream:
            if event.seq >= at:
                break
    return heard


async def stop_by_task(agent: Agent, at: int) -> list[AgentEvent]:
    heard: list[AgentEvent] = []
    task: asyncio.Task[Any] | None = None

    def hear(event: AgentEvent) -> None:
        heard.append(event)
        if event.seq == at and task is not None:
            task.cancel()

    task = asyncio.ensure_future(agent.arun("go", on_event=hear))
    try:
        await task
    except asyncio.CancelledError:
        pass
    return heard


@pytest.mark.parametrize("stop", [stop_by_token, stop_by_stream, stop_by_break, stop_by_task])
@pytest.mark.parametrize("script", range(len(SCRIPTS)))
async def test_interrupted_at_every_event_the_next_request_is_valid(
    script: int, stop: Callable[[Agent, int], Any], recwarn: pytest.WarningsRecorder
) -> None:
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    for at in range(await event_count(SCRIPTS[script])):
        agent = new_agent(SCRIPTS[script])
        events = await stop(agent, at)
        assert_event_grammar(events)
        again = await agent.arun("and now?", llm=scripted("next"))
        assert again.text == "next"
        assert_valid(again.messages)
        if at % 3 == script % 3:  # every event is interrupted; the wire rules are slow, so a third of the outcomes
            assert_accepted(again.messages)
    gc.collect()
    assert problems == []
    assert not [w for w in recwarn if "never" in str(w.message)]
    assert len(asyncio.all_tasks()) == 1


@pytest.mark.parametrize("script", range(len(SCRIPTS)))
async def test_hooks_that_raise_at_any_call_leave_a_valid_transcript(script: int) -> None:
    for kind in ("before_tool_call", "after_tool_call"):
        for error in (RuntimeError("hook broke"), AbortRun("enough")):
            for nth in range(3):
                count = iter(range(100))

                def hook(*_: Any, error: Exception = error, count: Any = count, nth: int = nth) -> None:
                    if next(count) == nth:
                        raise error

                agent = new_agent(SCRIPTS[script], **{kind: hook})
                events = [e async for e in agent.events("go")]
                assert_event_grammar(events)
                assert_valid(agent.messages)
                assert (await agent.arun("and?", llm=scripted("next"))).text == "next"


@pytest.mark.parametrize("fault", ["stream_cut", "mid_stream", "length", "malformed_call", "overloaded"])
@pytest.mark.parametrize("script", range(len(SCRIPTS)))
async def test_provider_faults_at_any_turn_leave_a_valid_transcript(script: int, fault: Any) -> None:
    agent = new_agent(SCRIPTS[script], fault=fault, fault_times=1)
    events = [e async for e in agent.events("go")]
    assert_event_grammar(events)
    assert_valid(agent.messages)
    again = await agent.arun("and?", llm=scripted("next"))
    assert again.text == "next"
    assert_valid(again.messages)


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
    with pytest.raises(KeyboardInterrupt):
        agent.run("use the slow tool")
    assert time.perf_counter() - started < 2.0
    assert_valid(agent.messages)
    assert agent.messages[-1].tool_results[0].status == "interrupted"
    assert agent.run("hello", llm=scripted("hi")).text == "hi"


async def test_many_cancels_leave_nothing_behind() -> None:
    def tool_threads() -> int:
        return sum(t.name.startswith("rein_nb-tool") for t in threading.enumerate())

    for n in range(60):
        agent = new_agent(SCRIPTS[4])
        task = asyncio.create_task(agent.arun("go"))
        await asyncio.sleep(0.0005 * (n % 12))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert_valid(agent.messages)
    assert len(asyncio.all_tasks()) == 1
    assert await eventually(lambda: tool_threads() == 0)


async def test_a_provider_fault_while_others_wait_is_not_lost() -> None:
    agent = Agent(scripted("x", fault="server_error", repeat=True))
    results = await asyncio.gather(*(agent.arun("x") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(r, ProviderError) for r in results)
    assert_valid(agent.messages)
