"""A run is saved while it goes on, whatever ends it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rein_nb.agent import Agent, AgentResult
from rein_nb.agent.events import AgentStart, MessageEnd, ToolExecutionEnd, ToolExecutionStart
from rein_nb.compare import compare
from rein_nb.frames import KINDS, frame
from rein_nb.ir import Message, TextPart, ThinkingPart, ToolCall, ToolResult, Usage
from rein_nb.store import Session, Store
from rein_nb.stream import CancellationToken
from rein_nb.testing.scripted import ScriptedProvider


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Store(tmp_path / "s.sqlite3").create("t")


def add(a: int, b: int) -> dict[str, int]:
    """Add two numbers."""
    return {"sum": a + b}


def fail() -> None:
    """Fail."""
    raise RuntimeError("no")


TOOL_TURN = [
    ThinkingPart(text="hm", signature="s"),
    ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2}),
    ToolCall(id="c2", name="fail"),
    Usage(input_tokens=10, output_tokens=3, cost_usd=0.5),
]


def comparable(result: AgentResult) -> dict[str, Any]:
    return result.model_dump(mode="json")


def run(session: Session, *prompts: str, **kwargs: Any) -> tuple[Agent, list[AgentResult]]:
    agent = Agent(
        ScriptedProvider.llm(TOOL_TURN, ["the ", "end"], repeat=True, **kwargs),
        tools=[add, fail],
        system="sys",
        label="mine",
    )
    session.attach(agent)
    return agent, [agent.run(prompt) for prompt in prompts]


def test_a_saved_run_comes_back_equal(session: Session) -> None:
    agent, results = run(session, "go", "again")
    again = session.store.open(session.id)
    assert again.messages == agent.messages
    assert [comparable(r) for r in again.results] == [comparable(r) for r in results]


def test_frames_of_a_session_equal_frames_of_its_runs(session: Session) -> None:
    _, results = run(session, "go")
    again = session.store.open(session.id)
    for kind in KINDS[:-1]:
        pd.testing.assert_frame_equal(again.to_frame(kind), frame(kind, results))
    pd.testing.assert_frame_equal(frame("runs", session.store), frame("runs", results))


def test_a_resumed_session_goes_on_where_it_ended(session: Session) -> None:
    run(session, "go")
    again = Session.resume(store=session.store)
    llm = ScriptedProvider.llm(["more"])
    agent = Agent(llm)
    again.attach(agent)
    agent.run("and then?")
    assert [m.role for m in llm.backend.requests[0].messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]
    assert again.stored_messages == agent.messages
    assert len(again.results) == 2


def test_an_agents_earlier_conversation_is_stored_when_it_is_attached(session: Session) -> None:
    past = [Message(role="user", content="a"), Message(role="assistant", content="b")]
    agent = Agent(ScriptedProvider.llm(["c"]), messages=past)
    session.attach(agent)
    assert session.stored_messages == past
    agent.run("go")
    assert session.stored_messages == agent.messages
    assert session.results[0].new_messages_from == 2
    other = Agent(ScriptedProvider.llm(["x"]), messages=[past[0], Message(role="assistant", content="other")])
    session.attach(other)
    assert session.stored_messages == other.messages
    assert len(session.leaves()) == 2


def test_a_masked_secret_in_the_past_does_not_make_branches(session: Session) -> None:
    secret = "sk-" + "y7" * 20
    agent = Agent(ScriptedProvider.llm([f"you said {secret}"], ["b"], ["c"]))
    detach = session.attach(agent)
    agent.run(f"key {secret}")
    agent.run("two")
    detach()
    session.attach(agent)
    agent.run("three")
    assert len(session.leaves()) == 1
    assert [m.text for m in session.stored_messages] == [
        "key [redacted]",
        "you said [redacted]",
        "two",
        "b",
        "three",
        "c",
    ]
    assert secret in agent.messages[0].text


def test_detaching_stops_saving(session: Session) -> None:
    agent = Agent(ScriptedProvider.llm(["a"], ["b"]))
    detach = session.attach(agent)
    agent.run("one")
    detach()
    agent.run("two")
    assert [m.text for m in session.messages] == ["one", "a"]


@pytest.mark.parametrize("fault", ["authentication", "stream_cut", "mid_stream", "length", "malformed_call"])
def test_failed_runs_are_saved_with_their_error(session: Session, fault: Any) -> None:
    agent = Agent(ScriptedProvider.llm(["some ", "text"], fault=fault, repeat=True))
    session.attach(agent)
    result = _events(agent, "go")[-1].result
    saved = session.store.open(session.id)
    assert [comparable(r) for r in saved.results] == [comparable(result)]
    assert saved.messages == agent.messages


def _events(agent: Agent, prompt: str, **kwargs: Any) -> list[Any]:
    from rein_nb import aio

    return list(aio.iterate_sync(agent.events(prompt, **kwargs)))


def test_C088_cancelled_runs_are_saved_with_their_usage(session: Session) -> None:
    agent = Agent(ScriptedProvider.llm([Usage(input_tokens=900), "begun ", "never"], delay_s=0.05))
    session.attach(agent)
    token = CancellationToken()
    agent.add_listener(lambda event: token.cancel("enough") if event.type == "message_update" else None)
    _events(agent, "go", signal=token)
    saved = session.store.open(session.id)
    assert saved.results[0].stop_reason == "cancelled"
    assert len(saved.to_frame("usage")) == 1
    assert not saved.to_frame("usage")["usage_complete"][0]


def _call_events(run_id: str = "r") -> list[Any]:
    calls = [ToolCall(id=f"t{n}", name="work") for n in range(3)]
    done = ToolResult(tool_call_id="t0", name="work", content="done", details={"n": 1})
    return [
        AgentStart(run_id=run_id, time=1.0, model="m", provider="p", messages=[Message(role="user", content="go")]),
        MessageEnd(
            run_id=run_id, time=2.0, turn=1, message=Message(role="assistant", parts=[TextPart(text="ok"), *calls])
        ),
        ToolExecutionStart(run_id=run_id, time=3.0, turn=1, call=calls[0]),
        ToolExecutionStart(run_id=run_id, time=3.0, turn=1, call=calls[1]),
        ToolExecutionEnd(run_id=run_id, time=4.0, turn=1, call=calls[0], result=done, duration_s=1.0),
    ]


def test_C107_a_run_that_was_killed_between_tools_tells_which_ended_which_began_and_which_did_not(
    session: Session,
) -> None:
    listener = session.listener()
    for event in _call_events():
        listener(event)
    saved = session.store.open(session.id)
    results = {r.tool_call_id: r for m in saved.messages for r in m.tool_results}
    assert (results["t0"].status, results["t0"].text, results["t0"].details) == ("ok", "done", {"n": 1})
    assert (results["t1"].status, results["t1"].details["started"]) == ("interrupted", True)
    assert (results["t2"].status, results["t2"].details["started"]) == ("interrupted", False)
    assert [m.role for m in saved.messages] == ["user", "assistant", "tool", "tool", "tool"]
    killed = saved.results[0]
    assert (killed.stop_reason, killed.error and killed.error.message) == (
        "error",
        "the process ended before the run did",
    )
    agent = Agent(ScriptedProvider.llm(["fine"]))
    saved.attach(agent)
    agent.run("continue")
    later = saved.store.open(saved.id)
    assert later.stored_messages == later.messages == agent.messages
    assert {r.tool_call_id: r.status for m in later.messages for r in m.tool_results} == {
        "t0": "ok",
        "t1": "interrupted",
        "t2": "interrupted",
    }


def test_a_store_that_cannot_be_written_costs_a_warning_and_no_record(session: Session) -> None:
    agent = Agent(ScriptedProvider.llm(["a " * 50_000], ["b"]))
    session.attach(agent)
    connection = session.store.database.connection()
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + 8}")
    with pytest.warns(RuntimeWarning, match=r"not being saved for now; it will be tried again.*full"):
        first = agent.run("one")
    assert first.ok
    connection.execute("PRAGMA max_page_count = 1000000")
    agent.run("two")
    saved = session.store.open(session.id)
    assert saved.messages == agent.messages
    assert len(saved.results) == 2


def test_runs_at_the_same_time_are_stored_on_branches_of_their_own(session: Session) -> None:
    agent = Agent(
        ScriptedProvider.llm(lambda request: [request.messages[-1].text.upper()] * 4, repeat=True, delay_s=0.01)
    )
    session.attach(agent)
    agent.run("first")
    made = compare(["a", "b", "c"], [agent])
    saved = session.store.open(session.id)
    assert len(saved.leaves()) == 3
    texts = {result.run_id: [m.text for m in result.messages] for result in saved.results}
    assert [texts[result.run_id] for result in made.results] == [
        ["first", "FIRST" * 4, p, p.upper() * 4] for p in "abc"
    ]
    assert [result.new_messages_from for result in saved.results] == [0, 2, 2, 2]


def test_every_event_can_be_kept(session: Session) -> None:
    agent = Agent(ScriptedProvider.llm(["a", "b", "c"]))
    session.attach(agent, keep_events=True)
    agent.run("go")
    kept = [entry.data["type"] for entry in reversed(session.entries(None, kind="event"))]
    assert kept.count("message_update") >= 3
    assert kept[0] == "agent_start"


def test_two_writers_of_one_session_keep_both_branches_and_are_told_once(session: Session) -> None:
    other = Store(session.store.path).open(session.id)
    session.append("mine")
    with pytest.warns(RuntimeWarning, match="also written to by somebody else"):
        other.append("theirs")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        other.append("more of theirs")
    with pytest.warns(RuntimeWarning, match="also written to"):
        session.append("more of mine")
    assert [m.text for m in session.messages] == ["mine", "more of mine"]
    assert [m.text for m in other.messages] == ["theirs", "more of theirs"]
    assert len(session.leaves()) == 2
