"""A session: an append-only tree that gives back exactly what it was given."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from rein_nb.ir import MediaPart, Message, TextPart, ThinkingPart, ToolCall, ToolResult
from rein_nb.store import Session, Store, StoreError, default_path
from rein_nb.store.database import MIGRATIONS, Database
from rein_nb.store.paths import as_file


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.sqlite3")


def user(text: str) -> Message:
    return Message(role="user", content=text)


def assistant(*parts: Any) -> Message:
    return Message(role="assistant", parts=[TextPart(text=p) if isinstance(p, str) else p for p in parts])


EVERY_PART = [
    Message(role="user", content=["look", MediaPart(kind="image", mime_type="image/png", data=bytes(range(256)) * 8)]),
    assistant(
        ThinkingPart(text="hm", signature="EqRk" * 200, extra={"anthropic": {"n": None}}),
        "text",
        ToolCall(id="c1", name="f", arguments={"x": [1, {"y": None}]}),
    ),
    Message(role="tool", parts=[ToolResult(tool_call_id="c1", content=["r"], details={"k": None}, status="error")]),
    assistant("end"),
]


def test_messages_come_back_exactly_also_in_another_process_object(store: Store) -> None:
    session = store.create("t")
    session.extend(EVERY_PART)
    again = Store(store.path).open(session.id)
    assert again.messages == EVERY_PART
    assert again.stored_messages == EVERY_PART
    assert again.title == "t"
    assert Session.resume(store=store.path).id == session.id


def test_rewind_starts_a_branch_and_removes_nothing(store: Store) -> None:
    session = store.create()
    for text in ("a", "b", "c"):
        session.append(text)
    session.rewind(-2).append("B")
    assert [m.text for m in session.messages] == ["a", "B"]
    assert [e.message.text for e in session.leaves() if e.message] == ["B", "c"]
    assert session.entry_count == 5
    old = session.leaves()[1]
    session.rewind(old)
    assert [m.text for m in store.open(session.id).messages] == ["a", "b", "c"]
    session.rewind(None).append("new root")
    assert [m.text for m in session.messages] == ["new root"]


def test_labels_name_places_to_rewind_and_fork_to(store: Store) -> None:
    session = store.create("base")
    session.append("a")
    session.label("start")
    session.append("b")
    session.label("end")
    session.rewind("start").append("c")
    fork = session.fork("end")
    assert [m.text for m in fork.messages] == ["a", "b"]
    assert [m.text for m in session.messages] == ["a", "c"]
    assert set(session.labels) == {"start", "end"}
    assert set(fork.labels) == {"start", "end"}
    assert (fork.forked_from, fork.title) == (session.id, "base (fork)")
    fork.append("only in the fork")
    assert [m.text for m in session.rewind("end").messages] == ["a", "b"]


def test_places_that_are_not_there_are_named(store: Store) -> None:
    session = store.create()
    session.append("a")
    session.label("here")
    with pytest.raises(KeyError, match="no message and no label 'there'; labels: here"):
        session.rewind("there")
    with pytest.raises(KeyError, match="only 1 messages"):
        session.rewind(-2)
    with pytest.raises(KeyError, match="is negative"):
        session.rewind(1)
    with pytest.raises(KeyError, match="has no session"):
        store.open("nothing")
    with pytest.raises(KeyError, match="has no session yet"):
        Session.resume(store=store.path.with_name("other.sqlite3"))


def test_notes_hang_beside_messages_and_own_kinds_are_refused(store: Store) -> None:
    session = store.create()
    entry = session.append("a")
    note = session.note("score", {"value": 0.5, "by": None})
    assert (note.parent, session.head) == (entry.id, entry.id)
    assert session.entries(kind="score")[0].data == {"value": 0.5, "by": None}
    with pytest.raises(ValueError, match="a kind of rein_nb's own"):
        session.note("message", {})


def test_search_finds_words_calls_and_notes_also_with_wildcard_characters(store: Store) -> None:
    first, second = store.create("one"), store.create("two")
    first.append("the 100% Quick_fox and so on " + "x " * 100)
    first.append(assistant(ToolCall(id="c", name="get_weather", arguments={"city": "Zürich"})))
    second.append("quick")
    second.note("remark", {"words": "unusual"})
    assert [hit.session_title for hit in store.search("quick")] == ["two", "one"]
    assert [len(store.search(text)) for text in ("100%", "k_f", "zürich", "ck%fox", "100_")] == [1, 1, 1, 0, 0]
    assert store.search("unusual")[0].kind == "remark"
    assert second.search("get_weather") == []
    hit = store.search("Quick_fox")[0]
    assert "Quick_fox" in hit.excerpt
    assert len(hit.excerpt) < 140


def test_list_is_by_last_write_and_open_takes_a_beginning(store: Store) -> None:
    ids = [store.create(f"s{n}", id=f"id-{n}x").id for n in range(3)]
    time.sleep(0.01)
    store.open("id-0").append("x")
    assert [info.title for info in store.sessions()] == ["s0", "s2", "s1"]
    assert store.sessions(limit=1, offset=1)[0].id == ids[2]
    assert store.sessions(limit=1)[0].entries == 1
    with pytest.raises(KeyError, match="several sessions begin with 'id'"):
        store.open("id")
    with pytest.raises(ValueError, match="has a session 'id-1x' already"):
        store.create(id="id-1x")
    assert store.last() is not None
    store.delete("id-0x")
    assert len(store.sessions()) == 2
    assert store.search("x") == []


def test_secrets_never_reach_the_file(store: Store) -> None:
    secret = "sk-" + "q7" * 20
    session = store.create(f"title {secret}")
    session.append(f"my key: {secret}")
    session.append(
        assistant(
            ToolCall(id="c", name="f", arguments={"api_key": "plainvalue1", "deep": [secret], "password": "hunter22"})
        )
    )
    session.append(
        Message(
            role="tool",
            parts=[ToolResult(tool_call_id="c", content=f"Authorization: Bearer {secret}", details={"t": secret})],
        )
    )
    session.note("n", {"x": secret})
    session.label(f"l {secret}")
    store.close()
    for path in store.path.parent.iterdir():
        data = path.read_bytes()
        for word in (secret, "plainvalue1", "hunter22"):
            assert word.encode() not in data
    assert "[redacted]" in session.messages[0].text


def test_media_and_sealed_reasoning_are_stored_untouched_even_when_they_look_like_keys(store: Store) -> None:
    lookalike = "AKIA" + "A1B2C3D4E5F6G7H8"
    parts = [ThinkingPart(text="t", signature=f"sk-{'a' * 30}", opaque=f"x {lookalike} y")]
    message = Message(role="assistant", parts=parts, extra={"p": {"sealed": "sk-" + "Ab9_" * 200}})
    picture = MediaPart(kind="image", data=b"sk-" + b"a" * 900)
    session = store.create()
    session.extend([Message(role="user", parts=[picture]), message])
    assert session.stored_messages == [Message(role="user", parts=[picture]), message]


def test_C104_unpaired_surrogates_are_stored_as_replacement_characters(store: Store) -> None:
    session = store.create("t \udcff")
    session.append("temp \udcb0C \ud83d end")
    session.append(assistant(ToolCall(id="c1", name="w", arguments={"s": "\ud83d\ude00 ok \udc00"})))
    session.append(Message(role="tool", parts=[ToolResult(tool_call_id="c1", content="r\udcff")]))
    texts = [m.text for m in session.messages]
    assert texts == ["temp \ufffdC \ufffd end", "", "r\ufffd"]
    assert session.messages[1].tool_calls[0].arguments == {"s": "\U0001f600 ok \ufffd"}
    assert session.search("\U0001f600") != []


def test_C107_a_killed_runs_last_call_gets_a_result_at_load_and_looking_changes_nothing(store: Store) -> None:
    session = store.create()
    session.append("go")
    session.append(assistant("ok", ToolCall(id="t1", name="ls"), ToolCall(id="t2", name="pwd")))
    session.append(Message(role="tool", parts=[ToolResult(tool_call_id="t1", content="L")]))
    before = [dict(e.data) for e in session.entries(None)]
    messages = store.open(session.id).messages
    results = {r.tool_call_id: r for m in messages for r in m.tool_results}
    assert results["t1"].text == "L"
    assert results["t2"].status == "interrupted"
    assert [dict(e.data) for e in session.entries(None)] == before
    assert len(session.stored_messages) == 3


def test_a_write_that_fails_changes_nothing(store: Store) -> None:
    session = store.create()
    session.append("a")
    store.database.connection().execute("PRAGMA max_page_count = 30")
    with pytest.raises(StoreError, match=r"full.*what was recorded before is safe"):
        session.extend(["small", "x" * 1_000_000])
    assert [m.text for m in session.messages] == ["a"]
    store.database.connection().execute("PRAGMA max_page_count = 1000000")
    session.append("b")
    assert [m.text for m in store.open(session.id).messages] == ["a", "b"]


def test_the_default_place_can_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REIN_NB_STORE", str(tmp_path / "folder"))
    assert default_path() == tmp_path / "folder" / "store.sqlite3"
    monkeypatch.setenv("REIN_NB_STORE", str(tmp_path / "file.db"))
    assert Session.new("here").store.path == tmp_path / "file.db"
    monkeypatch.delenv("REIN_NB_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path in default_path().parents
    assert default_path().name == "store.sqlite3"


def test_a_slash_at_the_end_names_a_folder_and_spaces_name_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert as_file("proj-1.0/") == tmp_path / "proj-1.0" / "store.sqlite3"
    assert as_file("proj-1.0") == tmp_path / "proj-1.0"
    monkeypatch.setenv("REIN_NB_STORE", f"{tmp_path}/my.data/")
    assert default_path() == tmp_path / "my.data" / "store.sqlite3"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("REIN_NB_STORE")
    unset = default_path()
    monkeypatch.setenv("REIN_NB_STORE", "  ")
    assert default_path() == unset


def test_a_relative_store_stays_the_same_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").mkdir()
    monkeypatch.chdir(tmp_path)
    with Store("s.db") as store:
        monkeypatch.chdir("other")
        store.create()
    assert (tmp_path / "s.db").is_file()
    assert not list((tmp_path / "other").iterdir())


def test_a_file_that_is_no_store_or_cannot_be_opened_is_named(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.sqlite3"
    wrong.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"wrong\.sqlite3.*no rein_nb store"):
        Store(wrong)
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="cannot make the folder"):
        Store(tmp_path / "file" / "deep.db")


def test_migrations_run_once_in_order_and_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.sqlite3"
    Store(path).create("old").append("kept")

    def add_default(connection: sqlite3.Connection) -> None:
        connection.execute("UPDATE sessions SET colour = 'blue'")

    newer = (*MIGRATIONS, "ALTER TABLE sessions ADD COLUMN colour TEXT", add_default)
    for _ in range(2):
        database = Database(path, migrations=newer)
        assert database.read("SELECT title, colour FROM sessions") == [("old", "blue")]
        database.close()
    with pytest.raises(
        StoreError, match=rf"schema version {len(newer)}.*knows versions up to {len(MIGRATIONS)}.*upgrade"
    ):
        Store(path)

    def broken(connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM sessions")
        raise sqlite3.OperationalError("broken step")

    with pytest.raises(StoreError, match="broken step"):
        Database(path, migrations=(*newer, broken))
    assert len(Database(path, migrations=newer).read("SELECT 1 FROM sessions")) == 1


def test_a_deleted_session_says_so_when_it_is_written_to(store: Store) -> None:
    session = store.create()
    store.delete(session.id)
    with pytest.raises(StoreError, match="was deleted"):
        session.append("x")


def _fill(session: Session, count: int) -> None:
    """Put `count` messages behind the head, as `extend` would, but quickly."""
    (data, text), *_ = session.store.database.read("SELECT data, text FROM entries LIMIT 1")
    parents = [session.head, *(f"e{n}" for n in range(count - 1))]
    with session.store.database.write() as db:
        db.executemany(
            "INSERT INTO entries (session, id, parent, kind, time, text, data) VALUES (?, ?, ?, 'message', ?, ?, ?)",
            [(session.id, f"e{n}", parent, time.time(), text, data) for n, parent in enumerate(parents)],
        )
        db.execute("UPDATE sessions SET entries = entries + ? WHERE id = ?", (count, session.id))
    session.rewind(f"e{count - 1}")


def test_newest_fifty_of_a_hundred_thousand_in_a_tenth_of_a_second_and_appends_stay_flat(tmp_path: Path) -> None:
    session = Store(tmp_path / "big.sqlite3").create("big")
    start = time.process_time()
    for _ in range(1000):
        session.append("hello " * 10)
    early = time.process_time() - start
    _fill(session, 98_000)
    start = time.process_time()
    for _ in range(1000):
        session.append("hello " * 10)
    late = time.process_time() - start
    assert late <= 2 * early + 0.1
    session.store.close()
    clock = time.perf_counter()
    again = Store(tmp_path / "big.sqlite3").open(session.id)
    newest = again.entries(50)
    took = time.perf_counter() - clock
    assert len(newest) == 50
    assert again.entry_count == 100_001
    assert took <= 0.1
    assert len(again.path(limit=50)) == 50


def test_data_is_plain_json_text_in_the_file(store: Store) -> None:
    store.create().append("héllo")
    rows = store.database.read("SELECT data FROM entries")
    assert json.loads(rows[0][0])["message"]["parts"][0]["text"] == "héllo"
    assert "héllo" in rows[0][0]


def test_a_fork_counts_the_entries_it_took_over(tmp_path: Path) -> None:
    session = Session.new(store=tmp_path / "store.db")
    session.extend([Message(role="user", content="a"), Message(role="assistant", content="b")])
    assert session.fork().entry_count == 2


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
@pytest.mark.parametrize("how", ["removed", "replaced"])
def test_a_file_that_is_gone_takes_no_records_without_a_word(tmp_path: Path, how: str) -> None:
    path = tmp_path / "s.sqlite3"
    store = Store(path)
    session = store.create(id="k")
    session.append("kept")
    for file in tmp_path.iterdir():
        file.unlink()
    if how == "replaced":
        path.write_bytes(b"")
    with pytest.raises(StoreError, match="its file was removed, or another one put in its place, while it was open"):
        session.append("lost")
    store.close()
    with pytest.raises(StoreError, match="was deleted from the store"):
        session.append("lost")
    store.create("new")
    assert [info.title for info in Store(path).sessions()] == ["new"]
