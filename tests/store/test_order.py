"""Which session was written to last: the order of the writes decides, not what the clock said."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from rein_nb.store import Session, Store
from rein_nb.store.database import MIGRATIONS, Database

YEAR = 365 * 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.sqlite3")


def titles(store: Store) -> list[str]:
    return [info.title for info in store.sessions()]


def test_a_clock_that_was_ahead_once_does_not_win_for_ever(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + YEAR)
    ahead = store.create("ahead")
    ahead.append("from next year")
    monkeypatch.setattr(time, "time", lambda: now)
    store.create("today").append("hi")
    assert titles(store) == ["today", "ahead"]
    assert Session.resume(store=store).title == "today"
    ahead.append("the clock was put right")
    assert titles(store) == ["ahead", "today"]
    assert store.sessions()[0].updated_at == now, "what is shown is when it was written"
    store.create("empty")
    assert Session.resume(store=store).title == "empty"
    ahead.fork(title="fork")
    assert titles(store) == ["fork", "empty", "ahead", "today"]


def test_a_clock_that_stands_still_or_goes_back_keeps_the_order(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter(range(10**6, 0, -1))
    monkeypatch.setattr(time, "time", lambda: float(next(times)))
    made = [store.create(str(n)) for n in range(5)]
    for n in (3, 1, 4):
        made[n].append("x")
        assert store.last() is not None
        assert titles(store)[0] == str(n)
    assert titles(store) == ["4", "1", "3", "2", "0"]


def test_an_imported_session_was_written_last(store: Store, tmp_path: Path) -> None:
    old = store.create("old")
    old.append("x")
    exported = old.export_jsonl(tmp_path / "old.jsonl")
    store.create("newer").append("y")
    store.import_jsonl(exported, new_id=True)
    assert titles(store) == ["old", "newer", "old"]


def test_a_store_of_the_first_version_is_ordered_by_its_entries(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite3"
    Database(path, migrations=MIGRATIONS[:1]).close()
    old = sqlite3.connect(path)
    for id, at in (("first", 10.0), ("ahead", YEAR), ("empty", 25.0), ("last", 30.0), ("early", 1.0)):
        old.execute("INSERT INTO sessions (id, created_at, updated_at, title) VALUES (?, ?, ?, ?)", (id, at, at, id))
    for session in ("first", "ahead", "first", "last"):
        old.execute(
            "INSERT INTO entries (session, id, kind, time, data) VALUES (?, ?, 'w', 0, '{}')",
            (session, str(time.time_ns())),
        )
    old.commit()
    old.close()
    store = Store(path)
    assert titles(store) == ["last", "empty", "first", "ahead", "early"]
    store.open("early").note("w", {})
    assert titles(store)[0] == "early"


def test_the_newest_of_many_sessions_is_found_by_an_index(store: Store) -> None:
    queries: list[str] = []
    store.create()
    store.database.connection().set_trace_callback(queries.append)
    store.last()
    (asked,) = [query for query in queries if "ORDER BY written" in query]
    plan = store.database.read("EXPLAIN QUERY PLAN " + asked)
    assert "USING INDEX sessions_by_writing" in str(plan)
    assert "TEMP B-TREE" not in str(plan)
