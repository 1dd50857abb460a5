"""run, arun, events, astream, start: the same run in five forms, from scripts, cells and threads."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import Any

import pytest

from rein_nb.agent import Agent, AgentRun
from rein_nb.ir import ProviderError, ServerError, Usage
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import ToolContext, tool
from tests.agent.support import assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm


@tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def script() -> list[Any]:
    return [["a", call("1", "add", a=1, b=2)], "done"]


def test_run_works_in_a_script() -> None:
    result = Agent(scripted(*script()), [add]).run("x")
    assert (result.text, result.stop_reason) == ("done", "completed")


async def test_C109_sync_and_async_forms_mix_on_a_running_loop() -> None:
    agent = Agent(scripted("ok", repeat=True, delay_s=0.01))
    assert agent.run("hi").text == "ok"
    assert (await agent.arun("hi")).text == "ok"

    def helper() -> str:
        return agent.run("hi").text

    assert helper() == "ok"
    task = asyncio.create_task(agent.arun("hi"))
    await asyncio.sleep(0)
    again = agent.run("again")
    assert (again.text, (await task).text) == ("ok", "ok")
    assert len(agent.messages) == 10
    assert_valid(agent.messages)


async def test_a_sync_run_inside_an_async_tool_of_a_background_run_is_refused_in_words() -> None:
    inner = Agent(scripted("inner"))

    async def ask() -> str:
        return inner.run("x").text

    handle = Agent(scripted([call("1", "ask")], "done"), [ask]).start("x")
    result = await handle
    assert result.tool_runs[0].result.status == "error"
    assert "await the async form" in result.tool_runs[0].result.text


async def test_runs_at_the_same_time_do_not_mix_their_messages() -> None:
    agent = Agent(
        scripted(*[turn for _ in range(4) for turn in ([call("1", "add", a=1, b=2)],)], *["done"] * 4, delay_s=0.002),
        [add],
    )
    await asyncio.gather(*(agent.arun(f"q{n}") for n in range(4)))
    assert_valid(agent.messages)
    assert len(agent.messages) == 16
    starts = [n for n, m in enumerate(agent.messages) if m.role == "user"]
    assert starts == [0, 4, 8, 12]


async def test_a_handle_can_be_awaited_watched_and_asked_again() -> None:
    handle = Agent(scripted(*script(), delay_s=0.005), [add]).start("x")
    assert isinstance(handle, AgentRun)
    heard: list[str] = []
    handle.subscribe(lambda event: heard.append(event.type))
    events = [event async for event in handle.events()]
    assert_event_grammar(events)
    result = await handle
    assert (await handle) is result
    assert handle.result() is result
    assert handle.done
    assert heard[-1] == "agent_end"
    assert [e.type for e in handle] == [e.type for e in events], "late listeners hear everything"
    assert result.run_id == handle.run_id


def test_a_handle_works_without_any_loop() -> None:
    handle = Agent(scripted(*script(), delay_s=0.005), [add]).start("x")
    with pytest.raises(TimeoutError):
        Agent(scripted(["x"], fault="hang")).start("x").result(timeout=0.05)
    assert_event_grammar(list(handle))
    assert handle.result(timeout=5).text == "done"


async def test_cancelling_a_handle_gives_the_result() -> None:
    handle = Agent(scripted(["a", "b"], fault="hang")).start("x")
    await asyncio.sleep(0.1)
    assert not handle.done
    handle.cancel("enough")
    result = await handle
    assert result.stop_reason == "cancelled"
    assert result.text.startswith("a")


async def test_cancelling_a_handles_waiter_stops_the_run_and_waits_for_it() -> None:
    agent = Agent(scripted(["a", "b"], fault="hang"))
    handle = agent.start("x")
    waiter = asyncio.ensure_future(_wait(handle))
    await asyncio.sleep(0.1)
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert handle.done
    assert (await handle).stop_reason == "cancelled"
    assert_valid(agent.messages)


async def _wait(handle: AgentRun) -> Any:
    return await handle


async def test_a_handle_raises_the_providers_fault() -> None:
    handle = Agent(scripted("x", fault="server_error")).start("x")
    with pytest.raises(ServerError) as caught:
        await handle
    assert caught.value.result.stop_reason == "error"
    with pytest.raises(ProviderError):
        handle.result()


async def test_a_subscriber_that_fails_is_taken_off() -> None:
    handle = Agent(scripted(*script(), delay_s=0.01), [add]).start("x")

    def bad(event: Any) -> None:
        if event.type == "turn_end":
            raise RuntimeError("broken subscriber")

    handle.subscribe(bad, replay=False)
    assert (await handle).text == "done"


async def test_steering_from_another_thread() -> None:
    go = threading.Event()

    def work() -> str:
        go.wait(5)
        return "worked"

    llm = scripted([call("1", "work")], "ok")
    handle = Agent(llm, [work]).start("x")

    def steer() -> None:
        handle.steer("faster")
        go.set()

    threading.Timer(0.05, steer).start()
    result = await handle
    assert [m.text for m in result.messages if m.role == "user"] == ["x", "faster"]


async def test_context_variables_reach_tools_in_every_form() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("who", default="nobody")

    def who() -> str:
        return user.get()

    user.set("ada")
    agent = Agent(scripted([call("1", "who")], "ok", repeat=True), [who])
    for result in (await agent.arun("x"), agent.run("x"), await agent.start("x")):
        assert result.tool_runs[0].result.text == "ada"


async def test_async_tools_of_arun_run_on_the_callers_loop() -> None:
    here = asyncio.get_running_loop()

    async def where() -> bool:
        return asyncio.get_running_loop() is here

    result = await Agent(scripted([call("1", "where")], "ok"), [where]).arun("x")
    assert result.tool_runs[0].result.text == "true"


async def test_forks_share_the_past_and_nothing_else() -> None:
    agent = Agent(scripted("one", "two"), [add], "S", label="first")
    await agent.arun("a")
    fork = agent.fork(llm=scripted("other"), label="second", temperature=0.3)
    await fork.arun("b")
    await agent.arun("c")
    assert [m.text for m in fork.messages] == ["a", "one", "b", "other"]
    assert [m.text for m in agent.messages] == ["a", "one", "c", "two"]
    assert (fork.label, fork.system, fork.tools.names) == ("second", "S", ["add"])
    assert fork.llm.backend.requests[0].options.temperature == 0.3  # type: ignore[attr-defined]
    assert agent.fork(messages=[]).messages == []


async def test_an_agent_can_be_a_tool() -> None:
    inner_llm = scripted([call("1", "add", a=2, b=2)], "It is 4.", repeat=True)
    expert = Agent(inner_llm, [add], "You calculate.\nWell.", label="calculator")
    outer = Agent(
        scripted([call("1", "calculator", prompt="2+2?"), call("2", "calculator", prompt="again?")], "Four."), [expert]
    )
    spec = outer.tools["calculator"].spec()
    assert "You calculate." in spec.description
    assert spec.parameters["required"] == ["prompt"]
    events = [e async for e in outer.events("x")]
    assert_event_grammar(events)
    result = events[-1].result  # type: ignore[union-attr]
    first = result.tool_runs[0].result
    assert first.text == "It is 4."
    assert first.details["stop_reason"] == "completed"
    assert first.details["usage"]["output_tokens"] > 0
    assert any(e.type == "tool_execution_update" and "add" in e.message for e in events)
    assert expert.messages == [], "each call is a conversation of its own"


async def test_what_a_sub_agent_spends_counts_for_the_callers_limits() -> None:
    inner = Agent(scripted(["x", Usage(input_tokens=900, output_tokens=100)], repeat=True), label="inner")
    outer = Agent(scripted([call("1", "inner", prompt="x")], repeat=True), [inner], limits={"tokens": 1500})
    result = await outer.arun("x")
    assert result.stop_reason == "max_tokens"
    assert len(result.turns) == 2
    assert (result.usage.total_tokens or 0) < 500, "the run's own usage is that of its turns"


async def test_stopping_the_outer_agent_stops_the_inner_one() -> None:
    inner = Agent(scripted(["a", "b"], fault="hang"), label="inner")
    from rein_nb.stream import CancellationToken

    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.1, token.cancel)
    started = time.perf_counter()
    result = await Agent(scripted([call("1", "inner", prompt="x")]), [inner]).arun("x", signal=token)
    assert time.perf_counter() - started < 1.5
    assert result.tool_runs[0].result.status == "interrupted"


async def test_a_failing_sub_agent_is_an_error_result() -> None:
    inner = Agent(scripted("x", fault="server_error"), label="inner")
    result = await Agent(scripted([call("1", "inner", prompt="x")], "I see."), [inner]).arun("x")
    assert result.tool_runs[0].result.status == "error"
    assert "server_error" in result.tool_runs[0].result.text
    assert result.text == "I see."


async def test_dependencies_reach_tools_and_stay_out_of_the_schema() -> None:
    def lookup(key: str, ctx: ToolContext[dict[str, str]]) -> str:
        return f"{ctx.deps[key]}:{ctx.turn}:{ctx.call.id}"

    llm = scripted([call("7", "lookup", key="k")], "ok")
    result = await Agent(llm, [lookup], deps={"k": "v"}).arun("x")
    assert result.tool_runs[0].result.text == "v:1:7"
    assert set(llm.backend.requests[0].tools[0].parameters["properties"]) == {"key"}  # type: ignore[attr-defined]
