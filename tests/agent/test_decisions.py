"""Approvals and hooks: who may allow, change or refuse, and what happens when they fail."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest

from rein_nb.agent import AbortRun, Agent, Deny, ModelRequest
from rein_nb.agent.events import ApprovalRequested, Notice
from rein_nb.ir import InvalidRequest, Message, ToolCall, ToolResult
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool, ToolContext
from tests.agent.support import assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm


def remove(path: str) -> str:
    return f"removed {path}"


def look(path: str) -> str:
    return f"saw {path}"


TOOLS = [Tool(remove, requires_approval=True), Tool(look)]
CALLS = [call("1", "remove", path="a"), call("2", "look", path="b")]


async def outcomes(**options: Any) -> list[tuple[str, str]]:
    agent = Agent(scripted(CALLS, "ok"), TOOLS, **options)
    result = await agent.arun("x")
    assert_valid(result.messages)
    return [(t.result.status, t.result.text) for t in result.tool_runs]


async def test_headless_a_tool_that_needs_approval_is_denied_at_once() -> None:
    (first, text), (second, _) = await outcomes()
    assert (first, second) == ("denied", "ok")
    assert "nobody is there" in text


async def test_a_listener_alone_is_nobody_to_wait_for_but_may_answer_while_it_hears() -> None:
    heard: list[str] = []
    started = time.perf_counter()
    (first, text), _ = await outcomes(on_event=lambda e: heard.append(e.type))
    assert time.perf_counter() - started < 1
    assert (first, "approval_requested" in heard) == ("denied", True)
    assert "nobody is there" in text

    def answer(event: Any) -> None:
        if isinstance(event, ApprovalRequested) and event.decide is not None:
            event.decide("allow", None)

    assert (await outcomes(on_event=answer))[0][0] == "ok"


async def test_whoever_can_answer_may_say_so() -> None:
    decisions: list[Any] = []

    def later(event: Any) -> None:
        if isinstance(event, ApprovalRequested):
            asyncio.get_running_loop().call_later(0.05, event.decide, "allow", None)  # type: ignore[arg-type]
            decisions.append(event)

    assert (await outcomes(on_event=later, interactive=True))[0][0] == "ok"
    assert len(decisions) == 1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("auto", ["denied", "ok"]),
        ("never", ["ok", "ok"]),
        ("always", ["denied", "denied"]),
        (lambda c: c.name == "remove", ["ok", "denied"]),
        (lambda c, ctx: "allow", ["ok", "ok"]),
        (lambda c: Deny("not today"), ["denied", "denied"]),
        (lambda c: "because I say so", ["denied", "denied"]),
        (lambda c: None, ["denied", "denied"]),
        (lambda c: 1 / 0, ["denied", "denied"]),
        ({"remove": "never", "*": "always"}, ["ok", "denied"]),
        ({"look": lambda c: True}, ["denied", "ok"]),
    ],
)
async def test_policies(policy: Any, expected: list[str]) -> None:
    assert [status for status, _ in await outcomes(approval=policy)] == expected


async def test_an_async_approval_function_and_its_reason() -> None:
    async def ask(call: ToolCall, ctx: ToolContext) -> Any:
        await asyncio.sleep(0.01)
        return Deny(f"{call.arguments['path']} is precious")

    assert all("is precious" in text for _, text in await outcomes(approval=ask))


def test_a_policy_that_is_none_is_refused_at_once() -> None:
    for wrong in ("sometimes", {"remove": "perhaps"}, 3):
        with pytest.raises(InvalidRequest, match="approval"):
            Agent(scripted("x"), approval=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("answer", "status"), [("allow", "ok"), ("deny", "denied"), ("always", "ok")])
async def test_a_question_is_answered_from_another_thread_once(answer: Any, status: str) -> None:
    agent = Agent(scripted(CALLS, "ok", CALLS, "ok"), TOOLS)
    events = []
    async for event in agent.events("x"):
        events.append(event)
        if isinstance(event, ApprovalRequested):
            decide = event.decide
            assert decide is not None

            def answer_twice(decide: Any = decide) -> None:
                decide(answer, "said the user")
                decide("deny" if answer != "deny" else "allow", "too late")

            threading.Thread(target=answer_twice).start()
    assert_event_grammar(events)
    result = events[-1].result  # type: ignore[union-attr]
    assert result.tool_runs[0].result.status == status
    if status == "denied":
        assert "said the user" in result.tool_runs[0].result.text
    again = await agent.arun("y")
    assert again.tool_runs[0].result.status == ("ok" if answer == "always" else "denied")


async def test_a_question_nobody_answers_is_denied_after_its_time() -> None:
    agent = Agent(scripted(CALLS, "ok"), TOOLS, approval_timeout_s=0.05)
    async for event in agent.events("x"):
        last = event
    assert "nobody decided" in last.result.tool_runs[0].result.text  # type: ignore[union-attr]


async def test_stopping_while_a_question_is_open() -> None:
    agent = Agent(scripted(CALLS, "ok"), TOOLS)
    stream = agent.events("x")
    started = time.perf_counter()
    async for event in stream:
        if isinstance(event, ApprovalRequested):
            decide = event.decide
            stream.cancel()
    assert time.perf_counter() - started < 1
    assert stream.result is not None
    first = stream.result.tool_runs[0].result
    assert (first.status, first.details["started"]) == ("interrupted", False)
    assert decide is not None
    decide("allow", None)  # too late, and harmless
    assert_valid(agent.messages)


# -- hooks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "status", "text"),
    [
        (None, "ok", "saw b"),
        (True, "ok", "saw b"),
        (False, "denied", "refused by hook"),
        (Deny("no looking"), "denied", "no looking"),
        ({"path": "c"}, "ok", "saw c"),
        (ToolCall(id="other", name="look", arguments={"path": "d"}), "ok", "saw d"),
        (ToolCall(name="remove_quietly", arguments={"path": "d"}), "error", "no tool named 'remove_quietly'"),
        (3, "denied", "no decision"),
    ],
)
async def test_before_tool_call(answer: Any, status: str, text: str) -> None:
    async def hook(call: ToolCall, ctx: ToolContext) -> Any:
        return answer

    result = await Agent(scripted([call("2", "look", path="b")], "ok"), TOOLS, before_tool_call=hook).arun("x")
    (run,) = result.tool_runs
    assert run.result.status == status
    assert text in run.result.text
    assert run.result.tool_call_id == "2"
    assert_valid(result.messages)


async def test_hooks_run_in_order_and_the_first_refusal_counts() -> None:
    seen: list[str] = []

    def first(call: ToolCall, ctx: ToolContext) -> Any:
        seen.append(f"first {call.arguments['path']}")
        return {"path": "rewritten"}

    def second(call: ToolCall, ctx: ToolContext) -> Any:
        seen.append(f"second {call.arguments['path']}")
        return Deny("second says no")

    def third(call: ToolCall, ctx: ToolContext) -> Any:
        seen.append("third")

    agent = Agent(scripted([call("2", "look", path="b")], "ok"), TOOLS, before_tool_call=[first, second, third])
    result = await agent.arun("x")
    assert seen == ["first b", "second rewritten"]
    assert "second says no" in result.tool_runs[0].result.text


async def test_a_hook_that_fails_refuses_the_call() -> None:
    def broken(call: ToolCall, ctx: ToolContext) -> Any:
        raise RuntimeError("hook broke")

    result = await Agent(scripted(CALLS, "ok"), TOOLS, before_tool_call=broken).arun("x")
    assert [t.result.status for t in result.tool_runs] == ["denied", "denied"]
    assert "hook broke" in result.tool_runs[0].result.text
    assert result.text == "ok"


async def test_after_tool_call_rewrites_and_a_failure_leaves_the_result() -> None:
    def shout(call: ToolCall, result: ToolResult, ctx: ToolContext) -> Any:
        return result.text.upper()

    def broken(call: ToolCall, result: ToolResult, ctx: ToolContext) -> Any:
        raise RuntimeError("hook broke")

    notices: list[str] = []
    agent = Agent(
        scripted([call("2", "look", path="b")], "ok"), TOOLS, after_tool_call=[shout, broken],
        on_event=lambda e: notices.append(e.message) if isinstance(e, Notice) else None,
    )  # fmt: skip
    result = await agent.arun("x")
    assert result.tool_runs[0].result.text == "SAW B"
    assert "hook broke" in notices[0]


@pytest.mark.parametrize("where", ["before_tool_call", "after_tool_call", "approval"])
async def test_abort_ends_the_run_raises_once_and_answers_every_call(where: str) -> None:
    def abort(*_: Any) -> Any:
        raise AbortRun("that is enough")

    async def nap() -> None:
        await asyncio.sleep(30)

    agent = Agent(scripted([call("1", "nap"), *CALLS], "never"), [*TOOLS, nap], **{where: abort})
    started = time.perf_counter()
    with pytest.raises(AbortRun, match="enough"):
        await agent.arun("x")
    assert time.perf_counter() - started < 2
    assert_valid(agent.messages)
    assert len([m for m in agent.messages if m.role == "tool"]) == 3
    assert len(asyncio.all_tasks()) == 1


async def test_before_request_changes_one_request_and_not_the_record() -> None:
    def cut(request: ModelRequest) -> Any:
        return request.messages[-1:]

    def cool(request: ModelRequest) -> None:
        request.options["temperature"] = 0.0

    llm = scripted("a", "b")
    agent = Agent(llm, before_request=[cut, cool], temperature=1.0)
    await agent.arun("x")
    await agent.arun("y")
    request = llm.backend.requests[1]  # type: ignore[attr-defined]
    assert [m.text for m in request.messages] == ["y"]
    assert request.options.temperature == 0.0
    assert len(agent.messages) == 4
    assert agent._setup.options == {"temperature": 1.0}


async def test_a_before_request_hook_that_fails_ends_the_run_with_its_own_exception() -> None:
    def broken(request: ModelRequest) -> None:
        raise LookupError("no such prompt")

    agent = Agent(scripted("x"), before_request=broken)
    with pytest.raises(LookupError, match="no such prompt"):
        await agent.arun("x")
    events = [e async for e in agent.events("x")]
    assert_event_grammar(events)
    assert events[-1].result.stop_reason == "error"  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="before_request hook"):
        await Agent(scripted("x"), before_request=lambda request: 3).arun("x")


async def test_C099_a_hook_that_swallows_everything_cannot_turn_a_stopped_run_on() -> None:
    token = CancellationToken()

    async def swallow(call: ToolCall, ctx: ToolContext) -> Any:
        token.cancel()
        try:
            await asyncio.sleep(30)
        except BaseException:
            return True

    llm = scripted([call("2", "look", path="b")], "never")
    result = await Agent(llm, TOOLS, before_tool_call=swallow).arun("x", signal=token)
    assert result.stop_reason == "cancelled"
    assert len(llm.backend.requests) == 1  # type: ignore[attr-defined]
    assert Message(role="user", content="x") == result.messages[0]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"rm": "allow"}, "ok"),
        ({"rm": "deny"}, "denied"),
        ({"rm": "ask"}, "denied"),
        ({"*": "deny"}, "denied"),
        ({"*": "deny", "rm": "never"}, "ok"),
        ({"other": "deny"}, "denied"),
        ("allow", "ok"),
        ("deny", "denied"),
    ],
)
async def test_a_policy_says_in_words_what_becomes_of_a_call(policy: Any, expected: str) -> None:
    ran: list[str] = []

    def rm(path: str) -> str:
        ran.append(path)
        return "gone"

    guarded = Tool(rm, requires_approval=True)
    result = await Agent(scripted([call("1", "rm", path="x")], "ok"), [guarded], approval=policy).arun("go")
    assert result.tool_runs[0].result.status == expected
    assert ran == (["x"] if expected == "ok" else [])


# -- limits and exclusive tools --------------------------------------------------------------------


async def test_refused_calls_use_up_no_limit() -> None:
    calls = [call(str(n), "look", path=path) for n, path in enumerate(["no", "a", "no", "b", "c"])]
    agent = Agent(
        scripted(calls, "x"), [look], limits={"tool_calls": 2}, approval=lambda made: made.arguments["path"] != "no"
    )
    result = await agent.arun("x")
    assert [run.result.status for run in result.tool_runs] == ["denied", "ok", "denied", "ok", "interrupted"]
    assert result.stop_reason == "max_tool_calls"
    assert_valid(result.messages)


async def test_the_last_calls_that_a_limit_lets_run_are_the_first_ones_whoever_is_allowed_first() -> None:
    async def approve(made: ToolCall) -> bool:
        await asyncio.sleep({"0": 0.05, "1": 0.02, "2": 0.0, "3": 0.01}[made.id])
        return made.id != "1"

    calls = [call(str(n), "look", path=str(n)) for n in range(4)]
    agent = Agent(scripted(calls, "x"), [look], limits={"tool_calls": 2}, approval=approve)
    result = await agent.arun("x")
    assert [run.result.status for run in result.tool_runs] == ["ok", "denied", "ok", "interrupted"]
    assert result.tool_runs[3].result.details["started"] is False


async def test_nobody_is_asked_about_a_call_that_the_limit_forbids() -> None:
    asked: list[str] = []
    agent = Agent(
        scripted([call("1", "look", path="a")], [call("2", "look", path="b")], "x"),
        [Tool(look, parallel_safe=False)],
        limits={"tool_calls": 1},
        approval=lambda made: asked.append(made.id) or True,
    )
    result = await agent.arun("x")
    assert asked == ["1"]
    assert [run.result.status for run in result.tool_runs] == ["ok", "interrupted"]
    assert result.stop_reason == "max_tool_calls"


async def test_a_call_that_a_hook_turns_into_one_of_an_exclusive_tool_runs_alone() -> None:
    running: set[str] = set()
    together: list[set[str]] = []

    async def work(n: int) -> str:
        running.add(f"work {n}")
        together.append(set(running))
        await asyncio.sleep(0.02)
        running.discard(f"work {n}")
        return "done"

    async def alone(n: int) -> str:
        running.add(f"alone {n}")
        together.append(set(running))
        await asyncio.sleep(0.02)
        together.append(set(running))
        running.discard(f"alone {n}")
        return "done"

    def rename(made: ToolCall, ctx: Any) -> Any:
        return made.model_copy(update={"name": "alone"}) if made.arguments["n"] % 2 else None

    agent = Agent(
        scripted([call(str(n), "work", n=n) for n in range(6)], "x"),
        [Tool(work), Tool(alone, parallel_safe=False)],
        before_tool_call=rename,
    )
    result = await agent.arun("x")
    assert [run.result.status for run in result.tool_runs] == ["ok"] * 6
    assert [run.call.name for run in result.tool_runs] == ["work", "alone"] * 3
    assert all(len(now) == 1 for now in together if any(name.startswith("alone") for name in now))
    assert any(len(now) > 1 for now in together), "the others do run at the same time"
