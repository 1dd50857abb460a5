"""What an agent and a run are given: said at once what is wrong with it, and what would be right."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import pytest

from rein_nb.agent import Agent, Context, Limits
from rein_nb.agent.events import AgentEvent, Notice
from rein_nb.ir import InvalidRequest, Message, ToolChoice
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Tool
from tests.agent.support import call

scripted = ScriptedProvider.llm
NAN = float("nan")

WRONG = [
    ("limits", 5, "Limits"),
    ("limits", "x", "Limits"),
    ("limits", {"turn": 3}, "turns, tool_calls"),
    ("limits", {"turns": "many"}, "turns"),
    ("limits", {"turns": 0}, "turns"),
    ("limits", {"seconds": NAN}, "seconds"),
    ("max_output_retries", "2", "whole number"),
    ("max_output_retries", None, "whole number"),
    ("max_output_retries", NAN, "whole number"),
    ("max_output_retries", True, "whole number"),
    ("max_output_retries", -1, "0 or more"),
    ("approval_timeout_s", "5", "seconds"),
    ("approval_timeout_s", NAN, "seconds"),
    ("approval_timeout_s", -1, "seconds"),
    ("approval_timeout_s", True, "seconds"),
    ("system", 5, "text"),
    ("system", ["be brief"], "text"),
    ("label", None, "text"),
    ("interactive", "yes", "True, False or None"),
    ("tool_choice", 5, "auto"),
    ("tool_choice", {"mode": "sometimes"}, "auto"),
    ("output_type", 5, "output_type"),
    ("output_type", object(), "output_type"),
    ("context", 5, "strategy"),
    ("approval", 5, "approval"),
    ("approval", {"x": 5}, "approval"),
    ("llm", 5, "provider/model"),
    ("fallback", [5], "provider/model"),
    ("before_tool_call", "f", "before_tool_call"),
    ("on_event", 5, "on_event"),
]


@pytest.mark.parametrize(("name", "value", "says"), WRONG, ids=[f"{name}={value!r:.12}" for name, value, _ in WRONG])
def test_a_wrong_argument_is_named_where_it_is_given(name: str, value: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Agent(**{"llm": scripted("a"), name: value})
    agent = Agent(scripted("a"))
    for use in (agent.fork, lambda **given: agent.run("x", **given)):
        with pytest.raises(InvalidRequest, match=says):
            use(**{name: value})
    assert agent.messages == []


@pytest.mark.parametrize(
    "given",
    [
        {"max_tokens": NAN},
        {"max_tokens": 10.5},
        {"max_tokens": True},
        {"max_tokens": "9"},
        {"keep": "x"},
        {"fill": NAN},
    ],
    ids=str,
)
def test_a_context_is_checked(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        Context(**given)


def test_right_ones_are_taken() -> None:
    agent = Agent(
        scripted("a"),
        limits={"turns": 3},
        approval_timeout_s=None,
        max_output_retries=0,
        tool_choice=ToolChoice(mode="auto"),
        output_type=None,
        context="drop",
        before_request=None,
        fallback=scripted("b"),
    )
    assert agent.fork(limits=Limits(turns=2), approval_timeout_s=0.0).run("x").text == "a"


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("", "empty"),
        ([], "empty list"),
        ([Message(role="user", content="a"), "b"], "not both"),
        (5, "a prompt is text"),
        ([5], "not both"),
    ],
)
def test_a_prompt_that_is_none(prompt: Any, says: str) -> None:
    with pytest.raises(InvalidRequest, match=says):
        Agent(scripted("a")).run(prompt)


def test_a_listener_can_be_called() -> None:
    with pytest.raises(InvalidRequest, match="listener"):
        Agent(scripted("a")).add_listener(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("said", [None, "", [], 5, Message(role="assistant", content="no"), ["a", 5]], ids=repr)
def test_what_is_said_to_a_run_is_something_of_the_users(said: Any) -> None:
    run = Agent(scripted("a", delay_s=0.01)).start("x")
    for speak in (run.steer, run.follow_up):
        with pytest.raises(InvalidRequest):
            speak(said)
    assert run.result(10).text == "a"


def test_a_run_that_is_over_says_so_when_it_is_spoken_to() -> None:
    run = Agent(scripted("a")).start("x")
    run.result(10)
    for speak in (run.steer, run.follow_up):
        with pytest.raises(InvalidRequest, match="over"):
            speak("one more thing")


async def test_what_was_said_too_late_is_told() -> None:
    agent = Agent(scripted([call("1", "stop")]), limits={"turns": 1})
    events: list[AgentEvent] = []

    def stop() -> str:
        stream.steer("be quick")
        stream.follow_up(["and ", "then this"])
        return "x"

    agent.tools.add(Tool(stop))
    stream = agent.events("x")
    events = [event async for event in stream]
    told = [event.message for event in events if isinstance(event, Notice) and event.kind == "warning"]
    assert "be quick" in [message.text for message in agent.messages], "before the next model call, which then was none"
    assert any("then this" in text for text in told)
    assert events[-1].type == "agent_end"


def test_an_agent_is_not_copied_but_forked() -> None:
    agent = Agent(scripted("a"))
    for use in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match=r"agent.fork\(\)"):
            use(agent)


async def test_a_stream_that_nobody_iterates_leaves_nothing_on_its_signal() -> None:
    token = CancellationToken()
    agent = Agent(scripted("a", "b"))
    for _ in range(3):
        agent.events("x", signal=token)
    gc.collect()
    assert token._callbacks == []
    assert (await agent.arun("x", signal=token)).text == "a"
    assert token._callbacks == []
    token.cancel()
    assert (await agent.arun("x", signal=token)).stop_reason == "cancelled"
