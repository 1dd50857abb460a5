"""No value stops the saving of a run: what cannot be stored is replaced by a note, and the rest is stored."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.ir import ToolCall, ToolResult
from rein_nb.store import Session, Store, StoreError
from rein_nb.store.autosave import Autosave
from rein_nb.store.records import scrub, to_text
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import tool

L = ScriptedProvider.llm
HUGE = 10**5000
KEY = "sk-" + "k3" * 20


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Store(tmp_path / "s.sqlite3").create()


class Odd(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, key: str) -> Any:
        raise OSError(key)

    def __iter__(self) -> Iterator[str]:
        raise OSError("gone")

    def __len__(self) -> int:
        return 1


ODD = [HUGE, -HUGE, {HUGE: HUGE}, [{"n": [HUGE]}], Odd(), {(1, HUGE): HUGE}, b"\xff", 1j]


@pytest.mark.parametrize("which", range(len(ODD)))
@pytest.mark.parametrize("keep_events", [False, True])
def test_any_value_in_details_is_saved_and_what_follows_too(session: Session, which: int, keep_events: bool) -> None:
    value = ODD[which]

    @tool
    def look() -> object:
        """Look."""
        return ToolResult(tool_call_id="x", content="ok", details={"value": value, "beside": 7})

    agent = Agent(L([ToolCall(id="c", name="look", arguments={})], "end", "second"), tools=[look])
    session.attach(agent, keep_events=keep_events)
    assert agent.run("go").ok
    assert agent.run("more").ok
    assert any(isinstance(listener, Autosave) for listener in agent.listeners)
    assert [result.stop_reason for result in session.results] == ["completed", "completed"]
    assert [m.text for m in session.messages] == [m.text for m in agent.messages]
    details = session.stored_messages[2].tool_results[0].details
    assert details["beside"] == 7
    if value == HUGE:
        assert details["value"] == hex(HUGE), "the whole of it"
    assert len(session.events) > 0 or not keep_events


def test_a_call_with_a_huge_number_is_saved(session: Session) -> None:
    @tool
    def count(n: Any, m: int = 0) -> str:
        """Count."""
        return "counted"

    agent = Agent(
        L([ToolCall(id="c", name="count", arguments={"n": 1})], "end"),
        tools=[count],
        session=session,
        before_tool_call=lambda call, ctx: {"n": HUGE, "m": 1},
    )
    agent.run("go")
    (result,) = session.results
    assert result.stop_reason == "completed"
    assert result.tool_runs[0].call.arguments == {"n": hex(HUGE), "m": 1}


@pytest.mark.skipif(not hasattr(sys, "set_int_max_str_digits"), reason="this Python has no limit")
def test_what_one_process_stores_another_reads(session: Session) -> None:
    before = sys.get_int_max_str_digits()
    try:
        for limit in (0, 640):
            sys.set_int_max_str_digits(limit)
            session.note("n", {"big": 10**4500, "fine": 10**600})
            assert session.entries(1)[0].data == {"big": "(a whole number of about 4500 digits)", "fine": 10**600}
    finally:
        sys.set_int_max_str_digits(before)
    assert len(session.entries(None)) == 2


def test_what_json_does_not_have_is_masked_too(session: Session) -> None:
    class Holder:
        def __str__(self) -> str:
            return f"holds {KEY}"

    entry = session.note("n", {"set": {KEY}, "object": Holder(), ("a", KEY): 1, "deep": [[(Holder(),)]]})
    assert KEY not in session.store.path.read_bytes().decode("latin-1")
    assert session.entries(1)[0].data == entry.data, "what is returned is what is stored"
    session.store.close()
    assert KEY.encode() not in session.store.path.read_bytes()


def test_sealed_data_of_any_kind_becomes_text() -> None:
    assert to_text(scrub({"type": "thinking", "opaque": {"a": {1}, "n": HUGE}})).startswith('{"type":"thinking"')


def refuse_long(session: Session, most: int) -> None:
    """Have the file refuse long records, as SQLite refuses those of a gigabyte."""
    session.store.database.connection().execute(
        f"CREATE TRIGGER refuse BEFORE INSERT ON entries WHEN length(NEW.data) > {most} "
        "BEGIN SELECT RAISE(ABORT, 'string or blob too big'); END"
    )


@tool
def much() -> str:
    """Say much."""
    return "word " * 10_000


def test_a_record_that_is_too_long_is_shortened_and_what_follows_is_saved(session: Session) -> None:
    refuse_long(session, 20_000)
    agent = Agent(L([ToolCall(id="c", name="much", arguments={})], "end", "second"), tools=[much], session=session)
    with pytest.warns(RuntimeWarning, match=r"could not be stored as it is, and was shortened"):
        agent.run("go")
    agent.run("more")
    assert [m.role for m in session.messages] == ["user", "assistant", "tool", "assistant", "user", "assistant"]
    assert session.messages[2].tool_results[0].text.endswith("more characters could not be stored)")
    assert [result.stop_reason for result in session.results] == ["completed", "completed"]


def test_a_record_that_is_refused_in_any_form_is_left_out(session: Session) -> None:
    session.store.database.connection().execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON entries WHEN NEW.kind = 'tool_result' BEGIN SELECT RAISE(ABORT, 'never'); END"
    )
    agent = Agent(L([ToolCall(id="c", name="much", arguments={})], "end"), tools=[much], session=session)
    with pytest.warns(RuntimeWarning, match=r"could not be stored and is not saved \(tool_result\)"):
        agent.run("go")
    assert [m.text for m in session.messages] == [m.text for m in agent.messages]


def test_an_interrupt_behind_a_commit_writes_nothing_twice(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = Agent(L("a", "b"), session=session)
    real = Session.write
    interrupted: list[int] = []

    def write(self: Session, records: Any, **given: Any) -> Any:
        made = real(self, records, **given)
        if len(interrupted) < 3:
            interrupted.append(1)
            raise StoreError("whatever comes behind the commit")
        return made

    monkeypatch.setattr(Session, "write", write)
    with pytest.warns(RuntimeWarning, match="not being saved for now"):
        agent.run("go")
    agent.run("more")
    assert [m.text for m in session.messages] == ["go", "a", "more", "b"]
    assert len(session.entries(None)) == session.entry_count
    assert [result.stop_reason for result in session.results] == ["completed", "completed"]


@pytest.mark.filterwarnings("error")
def test_where_warnings_are_errors_a_run_is_saved_all_the_same(
    session: Session, caplog: pytest.LogCaptureFixture
) -> None:
    refuse_long(session, 20_000)
    agent = Agent(L([ToolCall(id="c", name="much", arguments={})], "end"), tools=[much], session=session)
    agent.run("go")
    assert [m.role for m in session.messages] == ["user", "assistant", "tool", "assistant"]
    assert "could not be stored as it is, and was shortened" in caplog.text
