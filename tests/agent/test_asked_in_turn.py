"""What is asked of people and of the user's functions: one at a time, each with its own time, and whatever they raise."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import warnings
from typing import Annotated, Any

import pytest
from pydantic import BeforeValidator

from rein_nb.agent import Agent
from rein_nb.agent.events import ApprovalRequested
from rein_nb.ir import TextPart, ToolCall
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool, Toolset
from tests.agent.support import call

scripted = ScriptedProvider.llm


def look(path: str) -> str:
    return f"saw {path}"


CALLS = [call(str(n), "look", path=str(n)) for n in range(3)]


async def test_plain_functions_of_parallel_calls_are_asked_one_after_the_other() -> None:
    now = most = 0
    lock = threading.Lock()

    def approve(made: ToolCall) -> bool:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.02)
        with lock:
            now -= 1
        return True

    result = await Agent(scripted(CALLS, "ok"), [look], approval=approve).arun("x")
    assert [run.result.status for run in result.tool_runs] == ["ok"] * 3
    assert most == 1


async def test_a_validator_that_ends_the_process_ends_no_loop_where_it_judges_a_call() -> None:
    def work(n: Annotated[int, BeforeValidator(lambda value: sys.exit(3))]) -> str:
        return "x"

    agent = Agent(scripted([call("1", "work", n=1)], "ok"), [Tool(work, requires_approval=lambda arguments: False)])
    result = await asyncio.wait_for(agent.arun("x"), 10)
    assert result.text == "ok"
    assert result.tool_runs[0].result.status in ("denied", "error")


async def test_a_result_that_a_hook_changes_in_place_is_changed() -> None:
    def change(made: ToolCall, result: Any, ctx: Any) -> None:
        result.content[0] = TextPart(text="changed")

    result = await Agent(scripted(CALLS[:1], "ok"), [look], after_tool_call=change).arun("x")
    assert result.tool_runs[0].result.text == "changed"


async def test_each_of_a_sub_agents_questions_has_its_whole_time() -> None:
    inner = Agent(scripted(CALLS, "done"), [Tool(look, requires_approval=True)], approval_timeout_s=0.5, label="inner")
    agent = Agent(scripted([call("q", "inner", prompt="go")], "ok"), [inner])
    async for event in agent.events("x"):
        if isinstance(event, ApprovalRequested):
            assert event.decide is not None
            asyncio.get_running_loop().call_later(0.25, event.decide, "allow", None)
    sent = inner.llm.backend.requests[-1].messages  # type: ignore[union-attr]
    assert [r.status for message in sent for r in message.tool_results] == ["ok"] * 3


async def test_a_question_that_nobody_answers_is_denied_in_time() -> None:
    agent = Agent(scripted(CALLS[:1], "ok"), [Tool(look, requires_approval=True)], approval_timeout_s=0.05)
    result = await asyncio.wait_for(agent.arun("x", interactive=True), 5)
    assert "nobody decided within 0.05 s" in result.tool_runs[0].result.text


async def test_a_call_that_the_limit_lets_run_whatever_is_decided_waits_for_nobody() -> None:
    started: list[str] = []
    go_on = asyncio.Event()

    async def approve(made: ToolCall) -> bool:
        if made.id == "0":
            await asyncio.wait_for(go_on.wait(), 5)
        return True

    async def work(path: str) -> str:
        started.append(path)
        go_on.set()
        return path

    agent = Agent(scripted(CALLS[:2], "ok"), [Tool(work, name="look")], approval=approve, limits={"tool_calls": 2})
    await agent.arun("x")
    assert started == ["1", "0"]


def test_a_warning_that_is_an_error_costs_a_toolset_nothing() -> None:
    inner = Toolset([look])
    outer = Toolset([inner, Tool(look, name="late")])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inner.add(Tool(look, name="late"))
        assert outer.names == ["look", "late"]


@pytest.mark.parametrize("turns", [3])
async def test_a_summary_that_nobody_can_make_is_not_asked_for_at_every_turn(turns: int) -> None:
    from rein_nb.agent import Context
    from rein_nb.ir import ErrorInfo, Message

    asked = 0

    def answer(request: Any) -> Any:
        nonlocal asked
        if "Summarise" in request.messages[-1].text:
            asked += 1
            raise ErrorInfo.make("overloaded", "no").to_exception()
        done = sum(message.role == "tool" for message in request.messages)
        return "ok" if done >= turns else [call(f"c{done}", "look", path="a")]

    long = [m for n in range(4) for m in (f"{n} " + "word " * 400, Message(role="assistant", content="word " * 400))]
    agent = Agent(scripted(answer, repeat=True), [look], messages=long, context=Context("summary", max_tokens=4_700))
    assert (await agent.arun("x")).text == "ok"
    assert asked == 1


async def test_a_question_that_is_over_leaves_no_timer_behind() -> None:
    def open_timers() -> list[Any]:
        scheduled: list[asyncio.TimerHandle] = asyncio.get_running_loop()._scheduled  # type: ignore[attr-defined]
        return [timer for timer in scheduled if not timer.cancelled() and "_expired" in repr(timer)]

    made = Agent(scripted(CALLS, "ok", repeat=True), [Tool(look, requires_approval=True)])
    result = await made.arun("x")
    assert [run.result.status for run in result.tool_runs] == ["denied"] * 3
    assert open_timers() == []
    async for event in made.events("y"):
        if isinstance(event, ApprovalRequested) and event.decide is not None:
            event.decide("allow", None)
    assert open_timers() == []
