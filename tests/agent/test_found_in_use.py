"""Faults that were found by using agents in odd but real ways, each as a case."""

from __future__ import annotations

import argparse
import functools
import subprocess
import sys
import threading
from typing import Any

import pytest
from pydantic import BaseModel, field_validator

from rein_nb.agent import Agent, Context
from rein_nb.ir import ContextOverflow, ErrorInfo, ToolCall, Usage
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Toolset, tool
from tests.support import REPO

L = ScriptedProvider.llm


def call(id: str, name: str, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def plain(x: str = "") -> str:
    """Do."""
    return "r"


def guarded() -> tuple[Any, list[str]]:
    """A tool that needs an approval, and what it was called with."""
    ran: list[str] = []

    @tool(requires_approval=True)
    def danger(x: str = "") -> str:
        """Do."""
        ran.append(x)
        return "x"

    return danger, ran


def statuses(result: Any) -> list[str]:
    return [run.result.status for run in result.tool_runs]


def test_a_hook_that_renames_a_call_does_not_get_round_the_other_tools_approval() -> None:
    danger, ran = guarded()
    agent = Agent(
        L([call("1", "plain")], "ok"),
        tools=[plain, danger],
        before_tool_call=lambda c, ctx: c.model_copy(update={"name": "danger"}),
    )
    assert statuses(agent.run("x")) == ["denied"]
    assert not ran


async def test_allowed_for_good_answers_the_question_and_no_other_policy() -> None:
    danger, ran = guarded()
    agent = Agent(L(*[[call("1", "danger")], "ok"] * 7), tools=[danger])
    async for event in agent.events("x"):
        if event.type == "approval_requested":
            event.decide("always")
    assert statuses(await agent.arun("y")) == ["ok"]
    for policy in ("deny", {"danger": "deny"}, lambda c: False):
        assert statuses(await agent.arun("y", approval=policy)) == ["denied"]
    assert statuses(await agent.fork(approval="deny").arun("y")) == ["denied"]
    agent.reset()
    assert statuses(await agent.arun("y")) == ["denied"]
    assert len(ran) == 2


def test_an_approval_that_exits_ends_no_loop() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["ls"])

    @tool(requires_approval=lambda a: parser.parse_args(a["command"].split()).command != "ls")
    def shell(command: str) -> str:
        """Run."""
        return ""

    assert statuses(Agent(L([call("1", "shell", command="rm x")], "ok"), tools=[shell]).run("x")) == ["denied"]
    assert Agent(L("fine")).run("y").text == "fine"


def test_a_loop_whose_thread_died_is_replaced() -> None:
    """In a process of its own: what else runs on that loop would die with it."""
    code = """
import threading
from rein_nb import aio
from rein_nb.agent import Agent
from rein_nb.testing import ScriptedProvider

def die():
    raise SystemExit

aio.background_loop().call_soon_threadsafe(die)
for thread in threading.enumerate():
    if thread.name == "rein_nb-loop":
        thread.join(5)
        assert not thread.is_alive()
print(Agent(ScriptedProvider.llm("fine")).run("y").text)
"""
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=REPO)
    assert made.stdout == "fine\n", made.stderr


@pytest.mark.parametrize("exception", [BaseException("own"), BaseExceptionGroup("g", [BaseException("x")])])
@pytest.mark.parametrize("where", ["before_tool_call", "after_tool_call", "before_request", "approval"])
def test_no_exception_of_a_users_function_passes_as_success(where: str, exception: BaseException) -> None:
    def fail(*_: Any) -> Any:
        raise exception

    agent = Agent(L([call("1", "plain")], "ok"), tools=[plain], **{where: fail})
    kinds: list[str] = []
    agent.add_listener(lambda event: kinds.append(event.type))
    if where == "before_request":
        with pytest.raises(RuntimeError, match="it raised"):
            agent.run("x")
        assert agent.results[-1].stop_reason == "error"
    else:
        result = agent.run("x")
        assert statuses(result) == (["ok"] if where == "after_tool_call" else ["denied"])
    assert kinds.count("turn_start") == kinds.count("turn_end")


def test_a_hook_changes_the_tools_of_one_call_only() -> None:
    tools = Toolset([plain, guarded()[0]])

    def hook(request: Any) -> None:
        if request.turn == 1:
            request.tools[:] = [spec for spec in request.tools if spec.name != "danger"]

    agent = Agent(L([call("1", "plain")], "ok"), tools=tools, before_request=hook)
    agent.run("x")
    offered = [[spec.name for spec in request.tools] for request in agent.llm.backend.requests]
    assert offered == [["plain"], ["plain", "danger"]]
    assert [spec.name for spec in tools.specs()] == ["plain", "danger"]


async def test_a_stop_while_a_summary_is_written_leaves_the_conversation_as_it_is() -> None:
    token = CancellationToken()
    llm = L(["first", Usage(input_tokens=90, output_tokens=1)], ["s"] * 50, "ok")
    agent = Agent(llm, context=Context(strategy="summary", max_tokens=100, fill=0.5, keep=0.2))
    await agent.arun("SECRET 42 " + "x" * 150)
    llm.backend.delay_s = 0.02
    threading.Timer(0.2, token.cancel).start()
    await agent.arun("what now?", signal=token)
    assert agent._compaction.upto == 0
    assert agent.messages[0].text.startswith("SECRET")


def test_each_overflow_of_a_run_is_healed() -> None:
    def overflow(request: Any) -> Any:
        raise ContextOverflow(ErrorInfo.make("context_overflow", "too long"))

    script = L([call("1", "plain")], overflow, [call("2", "plain")], [call("3", "plain")], overflow, "done")
    assert Agent(script, tools=[plain]).run("x").text == "done"


class Policy:
    def __call__(self, call: ToolCall) -> bool:
        return True


def _with_option(call: ToolCall, verbose: bool = False) -> bool:
    assert verbose is False
    return True


@pytest.mark.parametrize(
    "policy",
    [Policy(), functools.partial(lambda extra, c: True, None), _with_option, lambda c, ctx: ctx is not None],
)
def test_a_policy_of_any_kind_is_given_what_it_takes(policy: Any) -> None:
    danger, _ = guarded()
    assert statuses(Agent(L([call("1", "danger")], "ok"), tools=[danger], approval=policy).run("x")) == ["ok"]


def test_the_usage_of_sub_agents_counts_on_every_level_and_when_they_fail() -> None:
    def used(n: int) -> Usage:
        return Usage(input_tokens=n, output_tokens=1)

    inner = Agent(L(["in", used(1000)]), label="inner")
    mid = Agent(L([call("1", "inner", prompt="p"), used(10)], ["m", used(10)]), tools=[inner], label="mid")
    script = L([call("1", "mid", prompt="p"), used(1)], [call("2", "nope"), used(1)], ["o", used(1)])
    assert Agent(script, tools=[mid], limits={"tokens": 500}).run("x").stop_reason == "max_tokens"


class Checked(BaseModel):
    x: int

    @field_validator("x")
    @classmethod
    def divides(cls, x: int) -> int:
        return max(x, 1 // x)


def test_a_validator_that_fails_in_its_own_way_is_told_and_costs_no_other_result() -> None:
    script = L([call("1", "plain"), call("2", "answer", x=0)], [call("3", "answer", x=1)])
    result = Agent(script, tools=[plain], output_type=Checked).run("x")
    assert result.output == Checked(x=1)
    told = [run.result.text for run in result.tool_runs]
    assert told[0] == "r"
    assert "could not be checked (ZeroDivisionError" in told[1]


def test_a_subscriber_that_subscribes_again_freezes_nothing() -> None:
    handle = Agent(L(["a"] * 5, delay_s=0.02)).start("x")
    seen: list[int] = []
    again: list[int] = []

    def callback(event: Any) -> None:
        if not seen:
            handle.subscribe(lambda e: again.append(e.seq))
        seen.append(event.seq)

    handle.subscribe(callback)
    handle.result(5)
    assert Agent(L("fine")).start("y").result(5).text == "fine"
    assert seen == again == sorted(seen)
    assert seen[0] == 0


def test_a_subscriber_that_fails_in_the_past_is_told_no_more() -> None:
    handle = Agent(L(["a"] * 5)).start("x")
    handle.result(5)
    seen: list[int] = []

    def callback(event: Any) -> None:
        seen.append(event.seq)
        raise ValueError("broken subscriber")

    handle.subscribe(callback)
    assert seen == [0]


@pytest.mark.parametrize("force", ["true", "yes", 1, True])
def test_an_approval_judges_what_the_function_will_be_given(force: Any) -> None:
    ran: list[bool] = []

    @tool(requires_approval=lambda a: a.get("force") is True)
    def remove(path: str, force: bool = False) -> str:
        """Remove."""
        ran.append(force)
        return "removed"

    result = Agent(L([call("1", "remove", path="x", force=force)], "done"), tools=[remove]).run("go")
    assert statuses(result) == ["denied"]
    assert not ran
