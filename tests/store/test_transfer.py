"""JSON Lines: exact round trip, and files that a crash left half-written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.ir import Message
from rein_nb.store import JsonLines, Session, Store, StoreError, transfer
from rein_nb.testing.scripted import ScriptedProvider
from tests.store.test_session import EVERY_PART


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "s.sqlite3")


def full_session(store: Store) -> Session:
    """Branches, labels, notes, a run, odd texts."""
    session = store.create("tïtle")
    session.extend(EVERY_PART)
    session.label("end")
    session.note("score", {"value": 0.1, "words": 'line\u2028sep\n\t"q"'})
    agent = Agent(ScriptedProvider.llm(["fine"]))
    session.attach(agent)
    agent.run("go")
    session.rewind("end").append("branch")
    return session


def test_export_and_import_round_trip_to_the_byte(store: Store, tmp_path: Path) -> None:
    session = full_session(store)
    first = session.export_jsonl(tmp_path / "a.jsonl")
    other = Store(tmp_path / "other.sqlite3")
    back = other.import_jsonl(first)
    assert back.export_jsonl(tmp_path / "b.jsonl").read_bytes() == first.read_bytes()
    assert back.messages == session.messages
    assert back.labels == session.labels
    assert back.results == session.results
    assert back.entries(None) == session.entries(None)
    assert other.search("branch")[0].session_id == session.id
    assert other.sessions()[0] == store.sessions()[0]


def test_what_was_masked_comes_back_as_it_was_stored(store: Store, tmp_path: Path) -> None:
    session = store.create("password=\\hunter22\\")
    session.append("secret: \\password\\")
    session.append("http://u?key=aaa/bbbbbb&x:yyy@host")
    first = session.export_jsonl(tmp_path / "a.jsonl")
    back = Store(tmp_path / "other.sqlite3").import_jsonl(first)
    assert back.stored_messages == session.stored_messages
    assert back.export_jsonl(tmp_path / "b.jsonl").read_bytes() == first.read_bytes()


def test_an_import_beside_the_original_gets_a_new_id(store: Store, tmp_path: Path) -> None:
    session = full_session(store)
    path = session.export_jsonl(tmp_path / "a.jsonl")
    with pytest.raises(ValueError, match=r"has session .* already; import it beside that one with new_id=True"):
        store.import_jsonl(path)
    copy = store.import_jsonl(path, new_id=True)
    assert copy.id != session.id
    assert copy.messages == session.messages


def test_a_session_rewound_to_its_start_comes_back_so(store: Store, tmp_path: Path) -> None:
    session = store.create()
    session.append("a")
    session.rewind(None)
    back = Store(tmp_path / "o.db").import_jsonl(session.export_jsonl(tmp_path / "a.jsonl"))
    assert back.head is None
    assert back.messages == []


@pytest.mark.parametrize("cut", [1, 5, 60, "multibyte"])
def test_C101_an_export_with_a_broken_tail_imports_up_to_it(store: Store, tmp_path: Path, cut: Any) -> None:
    session = store.create()
    for text in ("one", "two", "thrée" * 40):
        session.append(text)
    path = session.export_jsonl(tmp_path / "a.jsonl")
    data = path.read_bytes()
    broken = data[: data.rindex("é".encode()) + 1] if cut == "multibyte" else data[: -cut - 1]
    path.write_bytes(broken)
    with pytest.warns(RuntimeWarning, match="ends with half a record"):
        back = Store(tmp_path / "o.db").import_jsonl(path)
    assert [m.text for m in back.messages] == ["one", "two"]
    assert path.read_bytes() == broken


def test_C101_a_whole_last_line_without_newline_is_kept(store: Store, tmp_path: Path) -> None:
    session = store.create()
    session.append("one")
    path = session.export_jsonl(tmp_path / "a.jsonl")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert [m.text for m in Store(tmp_path / "o.db").import_jsonl(path).messages] == ["one"]


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", "is no exported session"),
        (b'{"form', "is no exported session"),
        (b'{"some":"json"}\n', "is no exported session"),
        (b'{"format":"rein_nb.session","version":99,"id":"x"}\n', "versions up to 1: upgrade"),
        (b'{"format":"rein_nb.session","version":1,"id":"x"}\nnot json\n{"a":1}\n', "line 2: not a JSON record"),
        (b'{"format":"rein_nb.session","version":1,"id":"x"}\n{"id":"1"}\n', "line 2: no entry of a session"),
        (
            b'{"format":"rein_nb.session","version":1,"id":"x"}\n'
            b'{"id":"1","parent":null,"kind":"message","time":1,"data":{"message":{"role":"robot"}}}\n',
            "line 2: no entry of a session",
        ),
    ],
)
def test_files_that_are_no_export_are_named_and_leave_the_store_alone(
    store: Store, tmp_path: Path, content: bytes, error: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=error):
        store.import_jsonl(path)
    assert store.sessions() == []
    with pytest.raises(FileNotFoundError, match="no such file"):
        store.import_jsonl(tmp_path / "none.jsonl")


HEADER = {"format": "rein_nb.session", "version": 1, "id": "x", "created_at": 1.0, "updated_at": 1.0, "title": ""}


def message(id: str, parent: str | None, **more: Any) -> dict[str, Any]:
    data = {"message": {"role": "user", "parts": [{"type": "text", "text": id}]}}
    return {"id": id, "parent": parent, "kind": "message", "time": 1, "data": data} | more


def own(kind: str, data: Any, **more: Any) -> dict[str, Any]:
    return {"id": "o", "parent": "1", "kind": kind, "time": 1, "data": data} | more


@pytest.mark.parametrize(
    ("records", "error"),
    [
        ([{**HEADER, "id": None}], 'line 1: .*"id" should be a text; it is None'),
        ([{"format": "rein_nb.session", "version": 1}], 'line 1: .*"id" should be a text; it is missing'),
        ([{**HEADER, "version": "1"}], "line 1: \"version\" should be a whole number, 1 to 1; it is '1'"),
        ([{**HEADER, "version": None}], 'line 1: "version" should be a whole number'),
        ([{**HEADER, "title": None}], 'line 1: .*"title" should be a text; it is None'),
        ([{**HEADER, "updated_at": None}], 'line 1: .*"updated_at" should be a time in seconds since 1970; it is None'),
        ([{**HEADER, "created_at": "now"}], 'line 1: .*"created_at" should be a time'),
        ([{**HEADER, "head": ["1"]}], 'line 1: .*"head" should be an id or null'),
        ([HEADER, message("1", "2"), message("2", "1")], 'line 2: .*"parent" should be .*an entry before it; it is \'2\''),
        ([HEADER, message("1", "1")], 'line 2: .*"parent" should be null or the id of an entry before it'),
        ([HEADER, message("1", ["a"])], 'line 2: .*"parent" should be an id or null'),
        ([HEADER, message("1", None), message("1", "1")], "line 3: .*has the id '1' already"),
        ([HEADER, message("1", None), own("n", {}), message("2", "o")], "line 4: .*should be a message; 'o' is of the kind 'n'"),
        ([HEADER, message(7, None)], 'line 2: .*"id" should be a text; it is 7'),  # type: ignore[arg-type]
        ([HEADER, message("1", None, time="x")], 'line 2: .*"time" should be a time'),
        ([HEADER, message("1", None, kind=None)], 'line 2: .*"kind" should be a text'),
        ([HEADER, message("1", None, data=[])], 'line 2: .*"data" should be a JSON object'),
        ([HEADER, [1]], "line 2: .*should be a JSON object"),
        ([HEADER, message("1", None), own("turn", {"run_id": "r", "completion": {}})], "line 3: .*kind 'turn': it has no 'number'"),
        ([HEADER, message("1", None), own("turn", {"run_id": "r", "number": 1})], "line 3: .*kind 'turn': it has no 'completion'"),
        ([HEADER, message("1", None), own("turn", {"number": "1", "completion": {}})], 'line 3: .*"number" should be a whole number'),
        ([HEADER, message("1", None), own("turn", {"number": 10**40, "completion": {}})], 'line 3: .*"number" should be a whole number below'),
        ([HEADER, message("1", None), own("run", {"run_id": ["r"]})], 'line 3: .*"run_id" should be a text'),
        ([HEADER, message("1", None), own("run", {"run_id": "r", "turns": [{}]})], "line 3: .*it has no 'number'"),
        ([HEADER, message("1", None), own("label", {"label": 5, "entry": "1"})], 'line 3: .*"label" should be a text; it is 5'),
        ([HEADER, message("1", None), own("label", {"label": "l", "entry": "9"})], 'line 3: .*"entry" should be null or the id of a message'),
        ([HEADER, message("1", None), own("head", {})], "line 3: .*kind 'head': it has no 'to'"),
        ([HEADER, message("1", None), own("tool_start", {})], "line 3: .*it has no 'call'"),
        ([HEADER, message("1", None), own("tool_result", {"call": {"id": "c", "name": "f"}})], "line 3: .*it has no 'result'"),
        ([HEADER, message("1", None), own("event", {"type": "message_end", "message": 5})], "line 3: .*kind 'event'"),
    ],
)  # fmt: skip
def test_a_wrong_export_is_refused_by_file_and_line_and_nothing_is_imported(
    store: Store, tmp_path: Path, records: list[Any], error: str
) -> None:
    path = tmp_path / "wrong.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(StoreError, match=rf"(?s)wrong\.jsonl, {error}"):
        store.import_jsonl(path)
    assert store.sessions() == []
    assert store.database.read("SELECT 1 FROM entries") == []


def test_a_byte_order_mark_and_blank_lines_are_passed_over_and_lines_keep_their_numbers(
    store: Store, tmp_path: Path
) -> None:
    path = tmp_path / "a.jsonl"
    lines = [json.dumps(HEADER), "", json.dumps(message("1", None)), "  ", json.dumps(message("2", "1"))]
    path.write_text("\n".join(lines), encoding="utf-8-sig")
    assert [m.text for m in store.import_jsonl(path, new_id=True).stored_messages] == []
    lines[0] = json.dumps(HEADER | {"head": "2"})
    path.write_text("\n\n" + "\r\n".join(lines), encoding="utf-8-sig")
    assert [m.text for m in store.import_jsonl(path).stored_messages] == ["1", "2"]
    path.write_text("\n".join([*lines, json.dumps(message("2", "1"))]))
    with pytest.raises(StoreError, match=r"a\.jsonl, line 6: .*id '2' already"):
        store.import_jsonl(path, new_id=True)


def test_an_export_is_of_one_moment_while_somebody_appends(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.create()
    session.append("first")
    read = store.database.read

    def read_and_append(*args: Any) -> Any:
        rows = read(*args)
        session.append("later")
        return rows

    monkeypatch.setattr(store.database, "read", read_and_append)
    path = session.export_jsonl(tmp_path / "a.jsonl")
    monkeypatch.undo()
    back = Store(tmp_path / "o.db").import_jsonl(path)
    assert len(back.messages) == len(back.entries(None)) == back.entry_count
    assert back.head == back.entries(1)[0].id


def test_a_path_may_begin_with_the_home_folder(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    session = store.create()
    assert session.export_jsonl("~/out/a.jsonl") == tmp_path / "out" / "a.jsonl"
    assert not (tmp_path / "~").exists()
    assert store.import_jsonl("~/out/a.jsonl", new_id=True).messages == []


def test_C108_an_export_that_fails_leaves_no_file_behind(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = store.create()
    session.append("one")
    folder = tmp_path / "out"
    folder.mkdir()

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(transfer.Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        session.export_jsonl(folder / "a.jsonl")
    assert list(folder.iterdir()) == []
    monkeypatch.undo()
    session.export_jsonl(folder / "a.jsonl")
    with pytest.raises(FileExistsError, match="is there already"):
        session.export_jsonl(folder / "a.jsonl")
    assert [path.name for path in folder.iterdir()] == ["a.jsonl"]


ONE = b'{"v":1,"id":"e1","text":"one"}\n'


@pytest.mark.parametrize(
    ("content", "kept", "tail"),
    [
        (ONE + b'{"v":1,"id":"e2","text":"tw', ["e1"], b'{"v":1,"id":"e2","text":"tw'),
        (ONE + '{"v":1,"id":"e2","text":"é'.encode()[:-1], ["e1"], '{"v":1,"id":"e2","text":"é'.encode()[:-1]),
        (ONE + b'{"v":1,"id":"e2"}', ["e1", "e2"], None),
        (b"", [], None),
        (b'{"v":1,"i', [], b'{"v":1,"i'),
        (ONE + b"\n\n", ["e1"], None),
        (ONE + b"{half\n", ["e1"], b"{half\n"),
    ],
)
def test_C101_half_a_record_is_set_aside_and_the_next_append_starts_a_line(
    tmp_path: Path, content: bytes, kept: list[str], tail: bytes | None
) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(content)
    log = JsonLines(path)
    assert [record["id"] for record in log.read()] == kept
    assert path.read_bytes() == content
    assert (log.tail.data if log.tail else None) == tail
    with log:
        log.append({"id": "e3"})
    again = JsonLines(path)
    assert [record["id"] for record in again.read()] == [*kept, "e3"]
    assert again.tail is None
    if tail is None:
        assert [p.name for p in tmp_path.iterdir()] == ["log.jsonl"]
    else:
        assert log.tail is not None
        assert log.tail.aside is not None
        assert log.tail.aside.read_bytes() == tail
    for line in path.read_bytes().splitlines():
        if line:
            json.loads(line)


def test_C101_two_broken_tails_are_both_kept(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    for n in range(2):
        path.write_bytes(ONE + b"{half %d" % n)
        with JsonLines(path) as log:
            log.append({"id": "x"})
    assert sorted(p.read_bytes() for p in tmp_path.glob("*.broken-*")) == [b"{half 0", b"{half 1"]


def test_a_damaged_line_in_the_middle_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_bytes(ONE + b"garbage\n" + ONE)
    with pytest.raises(ValueError, match=r"log\.jsonl, line 2: not a JSON record"):
        JsonLines(path).read()
    with pytest.raises(ValueError, match="line 2"):
        JsonLines(path).append({})
    assert path.read_bytes() == ONE + b"garbage\n" + ONE


def test_a_new_file_and_its_folder_are_made(tmp_path: Path) -> None:
    log = JsonLines(tmp_path / "deep" / "log.jsonl")
    assert log.read() == []
    log.append({"text": "é\n"})
    assert log.path.read_bytes() == '{"text":"é\\n"}\n'.encode()
    log.close()
    assert Message.model_validate({"role": "user", "content": log.read()[0]["text"]}).text == "é\n"
