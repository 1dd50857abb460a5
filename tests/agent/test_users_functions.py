"""The user's own functions (hooks, approvals, compaction): they may hang, block, change what they are given, and answer anything."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rein_nb.agent import Agent, Context, Deny, ModelRequest, asking
from rein_nb.agent.events import AgentEvent, Notice
from rein_nb.ir import ErrorInfo, Message, TextPart, ToolCall, ToolResult
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool
from tests.agent.support import assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm
LONG = "word " * 400


def look(path: str) -> str:
    return f"saw {path}"


class Hangs:
    """A function that does not end by itself, plain or async; says how often it was begun and whether it is still going."""

    def __init__(self, plain: bool) -> None:
        self.begun = threading.Event()
        self.let_go = threading.Event()
        self.function: Callable[..., Any] = self.block if plain else self.wait

    def block(self, *_: Any) -> None:
        self.begun.set()
        while not self.let_go.wait(0.01):
            pass

    async def wait(self, *_: Any) -> None:
        self.begun.set()
        await asyncio.sleep(3600)


WHERE: dict[str, Callable[[Any], dict[str, Any]]] = {
    "before_tool_call": lambda hangs: {"before_tool_call": hangs},
    "after_tool_call": lambda hangs: {"after_tool_call": hangs},
    "before_request": lambda hangs: {"before_request": hangs},
    "approval": lambda hangs: {"approval": hangs},
    "requires_approval": lambda hangs: {"tools": [Tool(look, requires_approval=hangs)]},
    "compaction": lambda hangs: {"context": Context(strategy=hangs, max_tokens=600)},
}


@pytest.mark.parametrize("plain", [True, False], ids=["plain", "async"])
@pytest.mark.parametrize("how", ["cancel", "seconds"])
@pytest.mark.parametrize("where", WHERE)
async def test_a_function_that_hangs_is_stopped_with_the_run_and_holds_up_nobody(
    where: str, how: str, plain: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "GRACE_S", 0.2)
    hangs = Hangs(plain)
    token = CancellationToken()
    settings: dict[str, Any] = {"tools": [look], "messages": [LONG, Message(role="assistant", content=LONG)]}
    settings |= WHERE[where](hangs.function)
    if where == "compaction":
        settings["messages"] = [
            LONG,
            Message(role="assistant", content=LONG),
            "go on",
            Message(role="assistant", content="ok"),
        ]
    if how == "seconds":
        settings["limits"] = {"seconds": 0.3}
    agent = Agent(scripted([call("1", "look", path="a")], "done"), **settings)
    events: list[AgentEvent] = []
    run = asyncio.ensure_future(agent.arun("x", on_event=events.append, signal=token))
    try:
        beats = 0
        while not hangs.begun.is_set():
            await asyncio.sleep(0.01)
            beats += 1
            assert beats < 500
        await asyncio.sleep(0.05)  # the loop is free: this returns
        if how == "cancel":
            token.cancel("enough")
        result = await asyncio.wait_for(run, 10)
    finally:
        hangs.let_go.set()
    assert result.stop_reason == ("cancelled" if how == "cancel" else "max_time")
    assert_event_grammar(events)
    assert_valid(result.messages)


async def test_functions_that_see_a_stopped_runs_results_share_one_moment() -> None:
    seen: list[str] = []

    async def after(made: ToolCall, result: ToolResult, ctx: Any) -> None:
        seen.append(made.id)
        await asyncio.sleep(3600)

    def work(n: int) -> str:
        token.cancel("enough")
        time.sleep(0.05)
        return "x"

    token = CancellationToken()
    calls = [call(str(n), "work", n=n) for n in range(12)]
    agent = Agent(scripted(calls), [Tool(work, parallel_safe=False)], after_tool_call=after)
    began = time.monotonic()
    result = await agent.arun("x", signal=token)
    assert len(seen) == 12, "each was asked"
    assert time.monotonic() - began < 12, "and not each for its own two seconds, which would be 24"
    assert [run.result.status for run in result.tool_runs] == ["interrupted"] * 12


async def test_a_plain_hook_of_a_stopped_run_still_sees_every_result() -> None:
    seen: list[tuple[str, str]] = []
    token = CancellationToken()

    def stop(n: int) -> str:
        token.cancel("enough")
        return "x"

    agent = Agent(
        scripted([call("1", "stop", n=1), call("2", "stop", n=2)]),
        [Tool(stop, parallel_safe=False)],
        after_tool_call=lambda made, result, ctx: seen.append((made.id, result.status)),
    )
    await agent.arun("x", signal=token)
    assert seen == [("1", "interrupted"), ("2", "interrupted")]


async def test_plain_functions_run_outside_the_loops_thread() -> None:
    here = threading.get_ident()
    threads: dict[str, int] = {}

    def note(name: str, answer: Any = None) -> Callable[..., Any]:
        def function(*_: Any) -> Any:
            threads[name] = threading.get_ident()
            return answer

        return function

    agent = Agent(
        scripted([call("1", "look", path="a")], "done"),
        [look],
        before_tool_call=note("before"),
        after_tool_call=note("after"),
        before_request=note("request"),
        approval=note("approval", True),
    )
    assert (await agent.arun("x")).text == "done"
    assert set(threads) == {"before", "after", "request", "approval"}
    assert here not in threads.values()


async def test_what_a_request_hook_changes_in_place_is_sent_and_not_recorded() -> None:
    sizes: list[int] = []

    def hook(request: ModelRequest) -> None:
        sizes.append(len(request.messages))
        request.messages[0].parts.append(TextPart(text="and briefly"))
        for message in request.messages:
            for made in message.tool_calls:
                made.arguments["path"] = "hidden"

    agent = Agent(scripted([call("1", "look", path="a")], "done"), [look], before_request=hook)
    result = await agent.arun("x")
    requests = agent.llm.backend.requests  # type: ignore[union-attr]
    assert [message.text for message in requests[-1].messages if message.role == "user"] == ["xand briefly"]
    assert [made.arguments for message in requests[-1].messages for made in message.tool_calls] == [{"path": "hidden"}]
    assert result.messages[0].text == "x"
    assert result.tool_runs[0].call.arguments == {"path": "a"}
    assert sizes == [1, 3]


async def test_messages_that_a_request_hook_leaves_alone_are_sent_as_the_transcripts_own() -> None:
    agent = Agent(scripted("one", "two"), before_request=lambda request: None)
    await agent.arun("x")
    await agent.arun("y")
    sent = agent.llm.backend.requests[-1].messages  # type: ignore[union-attr]
    assert all(mine is own for mine, own in zip(sent, agent.messages, strict=False))


@pytest.mark.parametrize("name", ["signal", "tools", "messages", "tool_choice", "output_format"])
async def test_a_request_hook_is_told_what_is_no_option(name: str) -> None:
    def hook(request: ModelRequest) -> None:
        request.options[name] = None

    with pytest.raises(TypeError, match=f"{name} into request.options"):
        await Agent(scripted("a"), before_request=hook).arun("x")


async def test_a_call_hook_may_change_the_arguments_in_place() -> None:
    def hook(made: ToolCall, ctx: Any) -> None:
        made.arguments["path"] = "b"

    agent = Agent(scripted([call("1", "look", path="a")], "done"), [look], before_tool_call=hook)
    result = await agent.arun("x")
    assert result.tool_runs[0].result.text == "saw b"
    assert result.tool_runs[0].call.arguments == {"path": "b"}, "as it ran"
    assert result.messages[1].tool_calls[0].arguments == {"path": "a"}, "as the model made it"


async def test_a_tool_that_changes_its_arguments_leaves_the_transcript_alone() -> None:
    def work(items: list[Any], config: dict[str, Any]) -> str:
        config["inner"]["added"] = items.pop()
        items[0]["deep"] = True
        return "done"

    given = {"items": [{"a": 1}, 2], "config": {"inner": {}}}
    agent = Agent(scripted([call("1", "work", **given)], "ok"), [work])
    result = await agent.arun("x")
    assert result.messages[1].tool_calls[0].arguments == {"items": [{"a": 1}, 2], "config": {"inner": {}}}
    assert result.tool_runs[0].call.arguments == {"items": [{"a": 1}, 2], "config": {"inner": {}}}


async def test_an_approval_function_changes_nothing() -> None:
    def approve(made: ToolCall) -> bool:
        made.arguments["path"] = "elsewhere"
        return True

    def check(arguments: dict[str, Any]) -> bool:
        arguments["path"] = "elsewhere"
        return False

    for settings in ({"tools": [look], "approval": approve}, {"tools": [Tool(look, requires_approval=check)]}):
        result = await Agent(scripted([call("1", "look", path="a")], "done"), **settings).arun("x")  # type: ignore[arg-type]
        assert result.tool_runs[0].result.text == "saw a"


async def test_a_check_may_be_async() -> None:
    async def check(arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0)
        return bool(arguments["path"] == "secret")

    calls = [call("1", "look", path="a"), call("2", "look", path="secret")]
    result = await Agent(scripted(calls, "ok"), [Tool(look, requires_approval=check)]).arun("x")
    assert [run.result.status for run in result.tool_runs] == ["ok", "denied"]
    with pytest.raises(TypeError, match="async"):
        Tool(look, requires_approval=check).needs_approval({"path": "a"})


class Odd:
    """Whose comparison fails, like that of an array."""

    def __eq__(self, other: object) -> bool:
        raise ValueError("the truth value is ambiguous")

    __hash__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (np.bool_(True), "ok"),
        (np.bool_(False), "denied"),
        (Odd(), "denied"),
        (np.array([True, False]), "denied"),
        (Deny("no"), "denied"),
    ],
    ids=["numpy-true", "numpy-false", "odd", "array", "deny"],
)
@pytest.mark.parametrize("where", ["approval", "before_tool_call"])
async def test_any_answer_is_a_decision_or_a_refusal(where: str, answer: Any, status: str) -> None:
    settings: dict[str, Any] = {where: lambda *_: answer}
    result = await Agent(scripted([call("1", "look", path="a")], "done"), [look], **settings).arun("x")
    assert result.tool_runs[0].result.status == status


# -- summaries -------------------------------------------------------------------------------------


def talk() -> list[Any]:
    return [
        m for n in range(4) for m in (f"question {n} {LONG}", Message(role="assistant", content=f"answer {n} {LONG}"))
    ]


async def test_a_summary_that_fails_early_leaves_the_whole_conversation_to_be_sent() -> None:
    def answer(request: Any) -> Any:
        if "Summarise" in request.messages[-1].text:
            raise ErrorInfo.make("overloaded", "no summaries today").to_exception()
        return "fine"

    agent = Agent(scripted(answer, repeat=True), messages=talk(), context=Context("summary", max_tokens=4_700))
    events: list[AgentEvent] = []
    result = await agent.arun("and now?", on_event=events.append)
    assert result.text == "fine"
    notices = [event.message for event in events if isinstance(event, Notice)]
    assert len(notices) == 1
    assert "no summaries today" in notices[0]
    assert "still sent" in notices[0]
    sent = agent.llm.backend.requests[-1].messages  # type: ignore[union-attr]
    assert len(sent) == 9
    assert_event_grammar(events)


async def test_fallback_models_are_asked_for_a_summary_too() -> None:
    def answer(request: Any) -> Any:
        if "Summarise" in request.messages[-1].text:
            raise ErrorInfo.make("overloaded", "no summaries today").to_exception()
        return "fine"

    other = scripted("they talked", model="other")
    agent = Agent(
        scripted(answer, repeat=True),
        messages=talk(),
        fallback=[other],
        context=Context("summary", max_tokens=4_700),
    )
    result = await agent.arun("and now?")
    sent = agent.llm.backend.requests[-1].messages  # type: ignore[union-attr]
    assert "they talked" in sent[0].text
    assert len(sent) < 9
    assert result.model == "scripted", "the run itself stays with its model"
    assert len(result.turns[0].other_calls) == 2


async def test_arguments_that_hold_themselves_end_no_run() -> None:
    def tangled(made: ToolCall, ctx: Any) -> dict[str, Any]:
        arguments: dict[str, Any] = {"path": "a"}
        arguments["again"] = arguments
        return arguments

    agent = Agent(scripted([call("1", "look", path="a")], "done"), [look], before_tool_call=[tangled, lambda *_: None])
    result = await asyncio.wait_for(agent.arun("x"), 10)
    assert result.text == "done"
    assert result.tool_runs[0].result.status == "denied"
    assert "contains itself" in result.tool_runs[0].result.text
