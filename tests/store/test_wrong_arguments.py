"""What a store and a session say to arguments that cannot be meant, to a session that is gone, and to data that was damaged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.ir import InvalidRequest, Message
from rein_nb.store import JsonLines, Session, Store, StoreError, record, replay
from rein_nb.testing import ScriptedProvider


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.sqlite3")


@pytest.fixture
def session(store: Store) -> Session:
    made = store.create("t", id="abc-1")
    made.append("one")
    return made


WRONG: list[tuple[Callable[[Any], Any], type[Exception], str]] = [
    (lambda s: s.append(None), InvalidRequest, "must be a Message, a dict or a string, not NoneType"),
    (lambda s: s.append({"role": "robot"}), InvalidRequest, "is not a message: role"),
    (lambda s: s.extend("hi"), InvalidRequest, "takes a list of messages, not a str; append adds one"),
    (lambda s: s.extend(Message(role="user", content="x")), InvalidRequest, "a list of messages, not a Message"),
    (lambda s: s.extend({"role": "user", "content": "x"}), InvalidRequest, "a list of messages, not a dict"),
    (lambda s: s.extend(5), InvalidRequest, "a list of these, not int"),
    (lambda s: s.label(None), TypeError, "a label is a text, not None"),
    (lambda s: s.label(5), TypeError, "a label is a text, not 5"),
    (lambda s: s.rewind(s), TypeError, "an entry or its id, a label, a negative number, or None, not a Session"),
    (lambda s: s.rewind(1.5), TypeError, "a negative number, or None, not 1.5"),
    (lambda s: s.rewind("\ud800"), KeyError, "no message and no label"),
    (lambda s: setattr(s, "title", None), TypeError, "a title is a text, not None"),
    (lambda s: s.note(None, {}), TypeError, "a note's kind is a text, not None"),
    (lambda s: s.note("", {}), ValueError, "it is empty"),
    (lambda s: s.note("w", None), TypeError, "a note's data is a dict, .* not a NoneType"),
    (lambda s: s.note("w", "text"), TypeError, "a note's data is a dict, .* not a str"),
    (lambda s: s.path(limit="x"), TypeError, "a whole number from 0 on, or None for all, not 'x'"),
    (lambda s: s.entries(1.5), TypeError, "a whole number from 0 on, or None for all, not 1.5"),
    (lambda s: s.search(None), TypeError, "what is searched for is a text, not None"),
    (lambda s: s.store.search(b"x"), TypeError, "what is searched for is a text, not a bytes"),
    (lambda s: s.store.search("x", limit="y"), TypeError, "a whole number from 0 on"),
    (lambda s: s.store.sessions(limit="y"), TypeError, "a whole number from 0 on"),
    (lambda s: s.store.sessions(limit=-1), ValueError, "a limit is a whole number from 0 on, or None for all, not -1"),
    (lambda s: s.store.sessions(offset=-1), ValueError, "an offset is a whole number from 0 on, not -1"),
    (lambda s: s.store.sessions(offset=None), TypeError, "an offset is a whole number from 0 on, not None"),
    (lambda s: s.store.search("x", limit=True), TypeError, "not True"),
    (lambda s: s.path(-1), ValueError, "or None for all, not -1"),
    (lambda s: s.entries(float("nan")), TypeError, "or None for all, not nan"),
    (lambda s: s.entries(-(10**5000)), ValueError, "not so large a number"),
    (lambda s: s.entries(kind=["w"]), TypeError, "a kind of entries is a text, not a list"),
    (lambda s: s.fork(title=5), TypeError, "a title is a text, not 5"),
    (lambda s: s.fork(True), TypeError, "a place in a session is .* not True"),
    (lambda s: s.rewind(-(10**30)), KeyError, "the branch has only 1 messages"),
    (lambda s: s.label("x", []), TypeError, "a place in a session is .* not a list"),
    (lambda s: s.note("\ud800", {}), ValueError, "a note's kind cannot hold an unpaired surrogate"),
    (lambda s: s.attach(5), TypeError, "the runs of an Agent, not 5"),
    (lambda s: s.attach(Agent), TypeError, "the runs of an Agent, not the class Agent"),
    (lambda s: s.attach(Agent(ScriptedProvider.llm("x")), keep_events="no"), TypeError, "keep_events is True or False"),
    (lambda s: s.listener(keep_events=None), TypeError, "keep_events is True or False, not None"),
    (lambda s: s.export_jsonl(5), TypeError, "a file to export to is a path, .* not 5"),
    (lambda s: s.export_jsonl("a\0b"), ValueError, "names no file"),
    (lambda s: s.store.import_jsonl(None), TypeError, "a file to import is a path, .* not None"),
    (lambda s: s.store.import_jsonl("x.jsonl", new_id="mine"), TypeError, "new_id is True or False, not 'mine'"),
    (lambda s: s.store.open(""), ValueError, "a session's id is empty"),
    (lambda s: Session(s.store.path, s.id), TypeError, "a session is one of a Store, not of a PosixPath|WindowsPath"),
    (lambda s: Session(s.store, None), TypeError, "a session's id is a text, not None"),
    (lambda s: Session.resume(5, store=s.store), TypeError, "a session's id, a text, or the session itself, not 5"),
    (lambda s: Session.resume(store=5), TypeError, "a store's place is a path, .* not 5"),
    (lambda s: Session.new(5, store=s.store), TypeError, "a title is a text, not 5"),
    (lambda s: Store(b"x"), TypeError, "a store's place is a path, .* not a bytes"),
    (lambda s: Store(""), ValueError, "'' names no file"),
    (lambda s: JsonLines(None), TypeError, "is a path, .* not None"),
    (lambda s: record(5), TypeError, "a recording is a path, .* not 5"),
    (lambda s: record("x", mode="replay"), ValueError, "takes mode='record' or 'auto', not 'replay'"),
    (lambda s: replay("x", mode="record"), ValueError, "takes mode='replay' or 'auto', not 'record'"),
    (lambda s: replay("x", speed=float("inf")), ValueError, "speed must be a positive number"),
    (lambda s: record("x", only=[]), ValueError, "only= names nobody"),
    (lambda s: s.store.create(None), TypeError, "a title is a text, not None"),
    (lambda s: s.store.create(id=7), TypeError, "a session's id is a text, not 7"),
    (lambda s: s.store.create(id="\ud800"), ValueError, "cannot hold an unpaired surrogate"),
    (lambda s: s.store.open(None), TypeError, "a session's id, a text, or the session itself, not None"),
    (lambda s: s.store.open("\ud800"), KeyError, "has no session"),
    (lambda s: s.store.delete(5), TypeError, "a session's id, a text, or the session itself, not 5"),
    (lambda s: s.store.delete("\ud800"), KeyError, "has no session"),
    (lambda s: s.store.delete("abc"), KeyError, "one begins so, 'abc-1', and delete takes the whole id"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_a_wrong_argument_is_named_and_changes_nothing(session: Session, number: int) -> None:
    call, error, text = WRONG[number]
    before = session.entries(None), session.store.sessions()
    with pytest.raises(error, match=text):
        call(session)
    assert (session.entries(None), session.store.sessions()) == before


@pytest.mark.parametrize("timeout", [None, "x", float("inf"), float("nan"), -1, 1e9, True])
def test_a_time_limit_is_a_number_of_seconds(tmp_path: Path, timeout: Any) -> None:
    with pytest.raises(ValueError, match="timeout_s is a number of seconds, 0 to 1,000,000, not"):
        Store(tmp_path / "s.sqlite3", timeout_s=timeout)
    assert list(tmp_path.iterdir()) == []


def test_a_dict_is_a_message_as_it_is_for_a_model(session: Session) -> None:
    session.append({"role": "assistant", "content": "two"})
    session.extend([{"role": "user", "content": "three"}, "four"])
    assert [m.text for m in session.messages] == ["one", "two", "three", "four"]


@pytest.mark.parametrize("name", ["odd \udcff", "secret: hunter2hunter2", "sk-" + "a" * 30, ""])
def test_a_label_is_found_by_the_name_it_was_given(session: Session, name: str) -> None:
    session.label(name)
    first = session.head
    session.append("two")
    session.rewind(name)
    assert session.head == first
    assert [m.text for m in session.fork(name).messages] == ["one"]


def test_a_session_may_stand_for_its_id(store: Store, session: Session) -> None:
    assert store.open(session).id == session.id
    assert [hit.kind for hit in store.search("one", session_id=session)] == ["message"]
    store.delete(session)
    assert store.sessions() == []


def test_no_limit_is_all_and_none_is_none(store: Store, session: Session) -> None:
    session.extend([f"one {n}" for n in range(60)])
    for n in range(60):
        store.create(f"s{n}")
    assert len(store.sessions(limit=None)) == 61
    assert len(session.search("one", limit=None)) == len(store.search("one", limit=None)) == 61
    assert len(session.path(limit=None)) == len(session.entries(None)) == 61
    assert [len(session.path(limit=n)) for n in (0, 1, 2, 100)] == [0, 1, 2, 61]
    assert store.sessions(limit=0) == session.entries(0) == session.search("one", limit=0) == []


def test_a_session_that_was_deleted_says_so(store: Store, session: Session, tmp_path: Path) -> None:
    Store(store.path).delete(session.id)
    assert repr(session) == "Session(abc-1, deleted)"
    uses: list[Callable[[], Any]] = [
        lambda: session.title,
        lambda: setattr(session, "title", "n"),
        lambda: session.entry_count,
        lambda: session.append("x"),
        lambda: session.export_jsonl(tmp_path / "a.jsonl"),
    ]
    for use in uses:
        with pytest.raises(StoreError, match="the session abc-1 was deleted from the store"):
            use()
    assert not list(tmp_path.glob("a.jsonl*"))
    with pytest.raises(KeyError, match="has no session 'abc-1'"):
        Session(store, "abc-1")


def test_a_session_shows_itself_when_its_store_cannot_be_read(store: Store, session: Session) -> None:
    assert repr(session) == "Session(abc-1 't', 1 entries)"
    store.database.connection().execute("ALTER TABLE sessions RENAME TO gone")
    assert repr(session) == "Session(abc-1, its store cannot be read)"


def test_search_looks_behind_a_nul_takes_long_texts_and_shows_the_place(session: Session) -> None:
    session.append("before\0After")
    assert [hit.excerpt for hit in session.search("after")] == ["before\0After"]
    assert [hit.excerpt for hit in session.search("e\0a")] == ["before\0After"]
    long = "Long % _ \\ " * 6000
    assert session.search(long) == []
    session.append("x" + long)
    assert len(session.search(long.upper())) == 1
    session.append("\u0130" * 300 + " Haystack " + "y" * 300)
    assert "Haystack" in session.search("haystack")[0].excerpt
    session.append("lost \udc80 half")
    assert len(session.search("lost \udc80")) == 1


@pytest.mark.parametrize("kind", ["message", "label", "w"])
def test_damaged_data_is_named_by_session_and_entry(store: Store, session: Session, tmp_path: Path, kind: str) -> None:
    session.label("l")
    session.note("w", {})
    entry = session.entries(1, kind=kind)[0]
    with store.database.write() as db:
        db.execute("UPDATE entries SET data = '{half' WHERE id = ?", (entry.id,))
    uses: list[Callable[[], Any]] = [
        lambda: session.entries(None),
        lambda: session.export_jsonl(tmp_path / "a.jsonl"),
        *([lambda: session.messages] if kind == "message" else [lambda: session.labels] if kind == "label" else []),
    ]
    for use in uses:
        with pytest.raises(
            StoreError, match=f"the entry {entry.id} of the session abc-1 in the store .* should be JSON"
        ):
            use()
    assert not list(tmp_path.glob("a.jsonl*"))
