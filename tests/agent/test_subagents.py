"""Agents as tools: what they ask is asked of whoever follows the outer run, and they do not go on without end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.agent.events import AgentEvent, ApprovalRequested, ToolExecutionUpdate
from rein_nb.agent.subagent import MAX_DEPTH
from rein_nb.notebook.live import Live
from rein_nb.notebook.view_model import ViewState, apply
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool
from tests.agent.support import assert_event_grammar, assert_valid, call

scripted = ScriptedProvider.llm


def remove(path: str) -> str:
    return f"removed {path}"


def outer_and_inner(*paths: str, **settings: Any) -> tuple[Agent, Agent]:
    calls = [call(str(n), "remove", path=path) for n, path in enumerate(paths)]
    inner = Agent(scripted(calls, "cleaned", repeat=True), [Tool(remove, requires_approval=True)], label="cleaner")
    ask = [call("q1", "cleaner", prompt="clean up")]
    return Agent(scripted(ask, "all done", ask, "again"), [inner], **settings), inner


async def answered(agent: Agent, *verdicts: str) -> tuple[list[AgentEvent], list[ApprovalRequested]]:
    left = list(verdicts)
    events: list[AgentEvent] = []
    questions: list[ApprovalRequested] = []
    async for event in agent.events("go"):
        events.append(event)
        if isinstance(event, ApprovalRequested):
            questions.append(event)
            assert event.decide is not None
            event.decide(left.pop(0), "because")  # type: ignore[arg-type]
    assert not left
    assert_event_grammar(events)
    assert_valid(agent.messages)
    return events, questions


async def test_a_sub_agents_question_is_asked_of_who_follows_the_outer_run() -> None:
    agent, inner = outer_and_inner("a", "b")
    _, questions = await answered(agent, "allow", "deny")
    assert [(q.call.name, q.call.arguments, q.asked_by) for q in questions] == [
        ("remove", {"path": "a"}, "q1"),
        ("remove", {"path": "b"}, "q1"),
    ]
    sent = inner.llm.backend.requests[-1].messages  # type: ignore[union-attr]
    results = [(r.status, r.text) for message in sent for r in message.tool_results]
    assert results[0] == ("ok", "removed a")
    assert results[1][0] == "denied"
    assert "because" in results[1][1]


async def test_parallel_questions_of_one_sub_agent_are_asked_one_by_one() -> None:
    agent, _ = outer_and_inner("a", "b", "c")
    open_now: list[str] = []
    most = 0
    async for event in agent.events("go"):
        if isinstance(event, ApprovalRequested):
            open_now.append(event.call.id)
            most = max(most, len(open_now))

            def decide(event: ApprovalRequested = event) -> None:
                open_now.remove(event.call.id)
                assert event.decide is not None
                event.decide("allow", None)

            asyncio.get_running_loop().call_later(0.02, decide)
        elif isinstance(event, ToolExecutionUpdate):
            assert not open_now, "progress would hide the question"
    assert most == 1


async def test_allowed_always_is_remembered_for_the_sub_agents_next_call() -> None:
    agent, _ = outer_and_inner("a")
    _, questions = await answered(agent, "always")
    assert len(questions) == 1
    _, questions = await answered(agent)
    assert questions == []


async def test_where_nobody_follows_a_sub_agents_call_is_denied_at_once() -> None:
    agent, inner = outer_and_inner("a")
    result = await asyncio.wait_for(agent.arun("go"), 5)
    assert result.ok
    (message,) = [m for m in inner.llm.backend.requests[-1].messages if m.tool_results]  # type: ignore[union-attr]
    assert message.tool_results[0].status == "denied"


async def test_a_question_goes_up_through_all_agents() -> None:
    middle, _ = outer_and_inner("a", label="middle")
    top = Agent(scripted([call("t1", "middle", prompt="clean")], "done"), [middle])
    _, questions = await answered(top, "allow")
    assert [(q.call.name, q.asked_by) for q in questions] == [("remove", "t1")]


async def test_the_card_of_the_sub_agents_call_shows_the_question_and_goes_on() -> None:
    agent, _ = outer_and_inner("a")
    state = ViewState()
    live = Live(where="terminal", stream=False)
    shown: list[tuple[str, Any]] = []
    async for event in agent.events("go"):
        apply(state, event)
        live.feed(event)
        card = state.calls.get("q1")
        if card is not None and card.tool is not None:
            shown.append((card.tool.state, card.tool.question and card.tool.question.call.arguments))
        if isinstance(event, ApprovalRequested):
            ((pane, asking),) = live.waiting
            assert asking.startswith("q1")
            live.decide(pane, asking, "allow")
    at = shown.index(("approval", {"path": "a"}))
    assert ("running", None) in shown[at:]
    card = state.calls["q1"].tool
    assert card is not None
    assert [(question.call.name, question.answer) for question in card.questions] == [("remove", "allowed")]
    assert live.waiting == {}
    assert list(state.calls) == ["q1"], "no card but the run's own"


async def test_an_agent_that_is_its_own_tool_stops_at_a_depth() -> None:
    runs = 0

    def answer(request: Any) -> Any:
        nonlocal runs
        if request.messages[-1].role == "tool":
            return "enough: " + request.messages[-1].tool_results[0].text[-80:]
        runs += 1
        return [call(f"c{runs}", "ask_agent", prompt="do it")]

    agent = Agent(scripted(answer, repeat=True))
    agent.tools.add(agent)
    result = await asyncio.wait_for(agent.arun("go"), 20)
    assert runs == MAX_DEPTH + 1
    assert result.ok
    assert f"{MAX_DEPTH} deep" in result.text


# -- forks -----------------------------------------------------------------------------------------


def one() -> str:
    return "1"


def two() -> str:
    return "2"


def test_a_forks_tools_are_its_own() -> None:
    agent = Agent(scripted("a"), [one])
    fork = agent.fork()
    fork.tools.add(two)
    assert (agent.tools.names, fork.tools.names) == (["one"], ["one", "two"])
    fork.tools.remove("one")
    agent.tools.add(Tool(two, name="three"))
    assert (agent.tools.names, fork.tools.names) == (["one", "three"], ["two"])


def test_a_toolset_that_is_given_stays_live_and_unchanged() -> None:
    from rein_nb import Toolset

    shared = Toolset([one])
    agent = Agent(scripted("a"), shared)
    fork = agent.fork()
    agent.tools.add(two)
    assert (shared.names, agent.tools.names, fork.tools.names) == (["one"], ["one", "two"], ["one"])
    shared.add(Tool(two, name="late"))
    assert (agent.tools.names, fork.tools.names) == (["one", "late", "two"], ["one", "late"])
    agent.tools.remove("one")
    assert (shared.names, agent.tools.names) == (["one", "late"], ["late", "two"])
    with pytest.raises(KeyError, match="no tool 'one'"):
        agent.tools.remove("one")
    agent.tools.add(one)
    assert agent.tools.names == ["late", "two", "one"]


async def test_a_tool_with_the_answers_name_may_come_while_the_run_goes_on() -> None:
    agent = Agent(scripted([call("1", "grow")], [call("2", "final_answer", result=[1])]), output_type=list[int])

    def answer() -> str:
        return "a tool like any other"

    def grow() -> str:
        agent.tools.add(Tool(answer))
        return "grown"

    agent.tools.add(Tool(grow))
    result = await agent.arun("x")
    assert result.output == [1]


async def test_an_answer_tool_finds_a_name_whatever_is_taken() -> None:
    taken = [Tool(one, name=name) for name in ("answer", "final_answer", "give_final_answer", "final_answer_2")]
    agent = Agent(scripted([call("1", "final_answer_3", result=[1])]), taken, output_type=list[int])
    assert (await agent.arun("x")).output == [1]


async def test_each_parallel_question_has_its_answer_on_the_card_also_from_recorded_events() -> None:
    agent, _ = outer_and_inner("a", "b", "c")
    events, _ = await answered(agent, "allow", "deny", "allow")
    state = ViewState()
    for event in events:
        apply(state, event)
    card = state.calls["q1"].tool
    assert card is not None
    assert [question.answer for question in card.questions] == ["allowed", "denied", "allowed"]


@pytest.mark.parametrize("nested", [False, True])
async def test_allowing_always_answers_the_other_open_questions_of_that_tool(nested: bool) -> None:
    agent, inner = outer_and_inner("a", "b", "c")
    asked: list[ApprovalRequested] = []
    async for event in (agent if nested else inner).events("go"):
        if isinstance(event, ApprovalRequested):
            asked.append(event)
            if len(asked) == (1 if nested else 3):
                assert asked[0].decide is not None
                asked[0].decide("always", None)
    assert len(asked) == (1 if nested else 3)
    results = [r.text for m in inner.llm.backend.requests[-1].messages for r in m.tool_results]  # type: ignore[union-attr]
    assert results == ["removed a", "removed b", "removed c"]
