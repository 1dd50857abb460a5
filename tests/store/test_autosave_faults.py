"""What goes wrong while a run is saved: it costs neither the run, nor its neighbours, nor what comes after."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.ir import InvalidRequest, ToolCall, ToolResult
from rein_nb.store import Session, Store, StoreError
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import tool

L = ScriptedProvider.llm


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Store(tmp_path / "s.sqlite3", timeout_s=20).create()


class Writer:
    """Another process's transaction, as far as SQLite can tell."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)

    def begin(self) -> None:
        self.connection.execute("BEGIN IMMEDIATE")

    def end(self) -> None:
        self.connection.execute("ROLLBACK")
        self.connection.close()


def wait_until(done: Callable[[], bool]) -> None:
    end = time.monotonic() + 10
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


async def test_another_process_that_writes_holds_up_no_run(session: Session) -> None:
    other = Writer(session.store.path)
    other.begin()
    saved = Agent(L(["x"] * 100, delay_s=0.005), session=session)
    neighbour = Agent(L(["y"] * 5, delay_s=0.005))
    started = time.monotonic()
    with pytest.warns(RuntimeWarning, match="not being saved for now"):
        results = await asyncio.gather(saved.arun("go"), neighbour.arun("hi"))
    assert time.monotonic() - started < 10, "every event waited for the lock"
    assert all(result.ok for result in results)
    assert session.entries() == []
    other.end()
    wait_until(lambda: len(session.results) == 1)
    assert session.store.open(session.id).messages == saved.messages


async def test_a_cancel_is_heard_while_another_process_writes(session: Session) -> None:
    other = Writer(session.store.path)
    other.begin()
    agent = Agent(L(["x"] * 2000, delay_s=0.01), session=session)

    async def cancel_soon() -> float:
        task = asyncio.create_task(agent.arun("go"))
        await asyncio.sleep(0.1)
        started = time.monotonic()
        task.cancel()
        await asyncio.wait((task,))
        return time.monotonic() - started

    with pytest.warns(RuntimeWarning, match="not being saved for now"):
        assert await cancel_soon() < 5
    other.end()
    wait_until(lambda: len(session.results) == 1)
    assert session.results[0].stop_reason == "cancelled"


class Mute:
    def __str__(self) -> str:
        raise ValueError("no text")


def itself() -> dict[str, Any]:
    value: dict[str, Any] = {"a": 1}
    value["me"] = value
    return value


def nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = {"in": value}
    return value


@pytest.mark.parametrize("details", [itself(), {"x": Mute()}, nested(400), {1: {Mute()}}, [float("nan")]])
def test_any_value_in_a_tools_result_can_be_saved(session: Session, details: Any) -> None:
    @tool
    def look() -> object:
        """Look."""
        return ToolResult(tool_call_id="x", content="ok", details=details)

    agent = Agent(L([ToolCall(id="c", name="look", arguments={})], "end", "second"), tools=[look], session=session)
    agent.run("go")
    agent.run("more")
    assert [result.stop_reason for result in session.results] == ["completed", "completed"]
    assert [message.text for message in session.messages] == [message.text for message in agent.messages]
    assert session.messages[2].tool_results[0].text == "ok"


@pytest.mark.parametrize("depth", [254, 256, 600])
def test_arguments_of_any_depth_can_be_saved(session: Session, depth: int) -> None:
    @tool
    def look(at: Any) -> str:
        """Look."""
        return "ok"

    call = ToolCall(id="c", name="look", arguments={"at": nested(depth)})
    agent = Agent(L([call], "end"), tools=[look], session=session)
    agent.run("go")
    assert [result.stop_reason for result in session.results] == ["completed"]
    assert session.messages[1].tool_calls[0].name == "look"


def now_in(session: Session) -> list[str]:
    """What a resume would have, were the process killed now."""
    return [message.text for message in Session.resume(session.id, store=session.store.path).messages]


@pytest.mark.parametrize("how", ["reset", "messages", "rewound"])
def test_a_run_with_another_past_is_saved_behind_that_past(session: Session, how: str) -> None:
    seen: list[list[str]] = []

    @tool
    def look() -> str:
        """Look."""
        seen.append(now_in(session))
        return "x"

    model = L("old answer", "older still", [ToolCall(id="z", name="look", arguments={})], "end")
    agent = Agent(model, tools=[look], session=session)
    agent.run("old question")
    agent.run("older question")
    if how == "reset":
        agent.reset()
        past: list[str] = []
    elif how == "messages":
        agent.messages = [*agent.messages[:2], "something else"]  # type: ignore[list-item]
        past = ["old question", "old answer", "something else"]
    else:
        agent.messages = agent.messages[:2]
        past = ["old question", "old answer"]
    agent.run("new question")
    assert seen == [[*past, "new question", "", seen[0][-1]]]
    assert seen[0][-1].startswith("Interrupted while running")
    assert now_in(session) == [*past, "new question", "", "x", "end"]
    assert [len(result.messages) for result in session.results] == [2, 4, len(past) + 4]


def test_two_agents_on_one_session_each_go_on_from_their_own_past(session: Session) -> None:
    one = Agent(L("a1", "a2"), session=session)
    one.run("q1")
    two = one.fork(llm=L("b2"))
    two.run("other")
    one.run("q2")
    assert [r.messages for r in session.results] == [one.messages[:2], two.messages, one.messages]
    assert now_in(session) == ["q1", "a1", "q2", "a2"]
    assert len(session.entries(None, kind="message")) == 6, "what they share is stored once"


def test_an_agent_that_is_attached_twice_is_saved_once(session: Session) -> None:
    agent = Agent(L("a", "b"), session=session)
    detach = session.attach(agent, keep_events=True)
    agent.run("go")
    assert len(session.entries(None, kind="message")) == 2
    assert session.results[0].turns == agent.results[0].turns
    assert session.entries(None, kind="event"), "the second wish counts too"
    detach()
    agent.run("more")
    assert len(session.results) == 1


def test_a_session_that_is_deleted_while_a_run_goes_on_costs_one_warning(session: Session) -> None:
    agent = Agent(L("a", "b"), session=session)
    agent.run("go")
    session.store.delete(session.id)
    with pytest.warns(RuntimeWarning, match=r"not being saved any more: the session .* was deleted") as told:
        assert agent.run("more").ok
    assert len(told) == 1


def test_a_fork_has_what_hangs_on_the_root(session: Session) -> None:
    session.note("experiment", {"temperature": float("nan")})
    agent = Agent(L("a", "b"), system="be brief", session=session)
    agent.run("go")
    session.rewind(None)
    Agent(L("c"), session=session).run("elsewhere")
    session.rewind(agent_head(session, "a"))
    fork = session.fork()
    result = fork.results[0]
    assert (result.model, result.provider, result.system) == (agent.llm.model, agent.llm.provider, "be brief")
    assert len(fork.results) == 1, "runs of other branches are not there"
    assert [entry.kind for entry in fork.entries(None)].count("experiment") == 1


def agent_head(session: Session, text: str) -> str:
    """The entry of the message with this text."""
    return next(e.id for e in session.entries(None, kind="message") if e.message is not None and e.message.text == text)


def test_a_run_that_a_fork_cuts_off_was_not_killed(session: Session) -> None:
    agent = Agent(L([ToolCall(id="c", name="nap", arguments={})], "fin"), tools=[nap], session=session)
    agent.run("go")
    cut = session.fork(-2).results[0]
    assert (cut.stop_reason, cut.error, cut.model) == ("cancelled", None, agent.llm.model)
    assert len(cut.messages) == 2
    whole = session.fork().results[0]
    assert whole == session.results[0]


@tool
def nap() -> str:
    """Rest."""
    return "x"


def test_a_session_that_is_gone_cannot_be_forked(session: Session) -> None:
    session.append("x")
    Store(session.store.path).delete(session.id)
    with pytest.raises(StoreError, match="was deleted from the store"):
        session.fork(title="kept")
    assert session.store.sessions() == []


def test_a_fork_is_saved_where_it_says(session: Session) -> None:
    other = session.store.create("other")
    agent = Agent(L("a"), session=session)
    agent.run("go")
    for changes, grows in (({}, (1, 0)), ({"session": other}, (0, 1)), ({"session": None}, (0, 0))):
        before = len(session.results), len(other.results)
        agent.fork(llm=L("b"), **changes).run("more")  # type: ignore[arg-type]
        assert (len(session.results) - before[0], len(other.results) - before[1]) == grows
    assert now_in(other) == ["go", "a", "more", "b"]


@pytest.mark.parametrize("name", ["session", "messages"])
def test_what_is_an_agents_cannot_be_given_for_a_run(session: Session, name: str) -> None:
    with pytest.raises(InvalidRequest, match=rf"{name} cannot be given for one run: agent\.fork\({name}=\.\.\.\)"):
        Agent(L("a")).run("go", **{name: session})


def test_a_class_in_a_sessions_place_is_named() -> None:
    with pytest.raises(InvalidRequest, match=r"not the class Session: make one with Session\.new\(\)"):
        Agent(L("a"), session=Session)
