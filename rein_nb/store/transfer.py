"""Sessions as JSON Lines: a header, then one entry a line, in the order in which they were written. What goes out comes back exactly."""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rein_nb.ir import Completion, ToolCall, ToolResult
from rein_nb.store.database import NEXT_WRITTEN, StoreError
from rein_nb.store.events import event_of
from rein_nb.store.history import runs_of
from rein_nb.store.jsonl import BrokenTail, JsonLines
from rein_nb.store.records import (
    EVENT,
    HEAD,
    LABEL,
    MESSAGE,
    OWN_KINDS,
    RUN,
    TOOL_RESULT,
    TOOL_START,
    TURN,
    Entry,
    new_id,
    scrub,
    searchable,
    to_text,
)
from rein_nb.store.session import Session, data_of
from rein_nb.store.store import Store

FORMAT = "rein_nb.session"
VERSION = 1

_HEADER = ("id", "created_at", "updated_at", "title", "head", "forked_from", "forked_at")
_ENTRY = ("id", "parent", "kind", "time", "data")

# One query, so that the head and the entries are those of one moment, whoever writes meanwhile.
_EVERYTHING = f"""
SELECT 0 AS seq, {", ".join(_HEADER)} FROM sessions WHERE id = ?
UNION ALL
SELECT seq, {", ".join(_ENTRY)}, NULL, NULL FROM entries WHERE session = ?
ORDER BY 1
"""


class NoExport(StoreError, ValueError):
    """A file that is no exported session, or was damaged. The message names the file, the line, and what would be right."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import gave: the session, and the half record at the file's end, where there was one."""

    session: Session
    tail: BrokenTail | None


def export_session(session: Session, path: Path) -> Path:
    """Write a session to a new file, whole or not at all.

    Raises
    ------
    FileExistsError
        When the file is there already.
    StoreError
        When the session was deleted, or cannot be read.
    """
    if path.exists():
        raise FileExistsError(f"{path} is there already; name another file, or remove it first")
    rows = session.store.database.read(_EVERYTHING, (session.id, session.id))
    if not rows or rows[0][0] != 0:
        raise StoreError(f"the session {session.id} was deleted from the store {session.store.path}")
    half = path.with_name(f"{path.name}.{os.getpid()}-{new_id()[:8]}.part")
    try:
        with JsonLines(half) as lines:
            lines.append({"format": FORMAT, "version": VERSION, **dict(zip(_HEADER, rows[0][1:], strict=True))})
            for _, *facts, data, _, _ in rows[1:]:
                lines.append(dict(zip(_ENTRY, (*facts, data_of(session, facts[0], data)), strict=True)))
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return path


def import_session(store: Store, path: Path, *, as_new: bool = False) -> Imported:
    """Read a session that `export_session` wrote, in one transaction.

    A half record at the end of the file is left out, with a warning. The file is not changed.

    Parameters
    ----------
    as_new
        Give the session a new id, so that it can stand beside the one it was exported from.

    Raises
    ------
    StoreError
        When the file is no such export or is damaged before its end (it is a `ValueError` too), or the store cannot be written. Nothing was
        imported then.
    ValueError
        When the store has the session already.
    FileNotFoundError
        When there is no such file.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    lines = JsonLines(path)
    try:
        records = lines.numbered()
    except ValueError as exc:
        raise NoExport(str(exc)) from exc
    tail = lines.tail
    header, entries = _header(path, records), _entries(path, records[1:])
    if tail is not None:
        warnings.warn(
            f"{path} ends with half a record of {len(tail.data)} bytes, which was left out",
            RuntimeWarning,
            stacklevel=3,
        )
    session_id = new_id() if as_new else str(header["id"])
    known = {entry.id for entry in entries if entry.kind == MESSAGE}
    # The newest messages may be what the file lost; the head is then the last that is there.
    head = (
        header.get("head")
        if header.get("head") in known
        else next((e.id for e in reversed(entries) if e.kind == MESSAGE), None)
    )
    if header.get("head") is None and tail is None:
        head = None
    with store.database.write() as db:
        if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone():
            raise ValueError(f"the store has session {session_id} already; import it beside that one with new_id=True")
        created = header.get("created_at", time.time())
        db.execute(
            "INSERT INTO sessions (id, created_at, updated_at, title, head, entries, forked_from, forked_at, written) "
            f"VALUES (?, ?, ?, ?, ?, ?, ?, ?, {NEXT_WRITTEN})",
            (
                session_id, created, header.get("updated_at", created), scrub(header.get("title", "")), head, len(entries),
                header.get("forked_from"), header.get("forked_at"),
            ),
        )  # fmt: skip
        db.executemany(
            "INSERT INTO entries (session, id, parent, kind, time, text, data) VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (session_id, e.id, e.parent, e.kind, e.time, searchable(e.kind, e.data), to_text(e.data))
                for e in entries
            ],
        )
    return Imported(Session(store, session_id), tail)


def _header(path: Path, records: Sequence[tuple[int, Any]]) -> dict[str, Any]:
    line, header = records[0] if records else (1, None)
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise NoExport(
            f'{path} is no exported session: its first line should be a JSON object with "format": "{FORMAT}"'
        )
    version = header.get("version")
    if type(version) is not int:
        raise NoExport(
            f'{path}, line {line}: "version" should be a whole number, 1 to {VERSION}; it is {_shown(header, "version")}'
        )
    if version > VERSION:
        raise NoExport(
            f"{path} has version {version}, and this rein_nb reads versions up to {VERSION}: upgrade rein_nb"
        )
    wrong = (
        _wrong_text(header, "id")
        or _wrong_text({"title": "", **header}, "title", may_be_empty=True)
        or next(filter(None, (_wrong_time({name: 0, **header}, name) for name in ("created_at", "updated_at"))), "")
        or next(filter(None, (_wrong_id(header, name) for name in ("head", "forked_from", "forked_at"))), "")
    )
    if wrong:
        raise NoExport(f"{path}, line {line}: no header of a session: {wrong}")
    return header


def _entries(path: Path, records: Sequence[tuple[int, Any]]) -> list[Entry]:
    kinds: dict[str, str] = {}
    entries = []
    for line, record in records:
        wrong = _wrong_record(record, kinds)
        if wrong:
            raise NoExport(f"{path}, line {line}: no entry of a session: {wrong}")
        entry = Entry(record["id"], record["parent"], record["kind"], float(record["time"]), scrub(record["data"]))
        try:
            wrong = _wrong_data(entry, kinds)
        except (KeyError, TypeError, ValueError, AttributeError) as exc:
            what = f"it has no {exc}" if isinstance(exc, KeyError) else str(exc)
            raise NoExport(
                f'{path}, line {line}: no entry of a session: "data" is not that of the kind {entry.kind!r}: {what}'
            ) from exc
        if wrong:
            raise NoExport(f"{path}, line {line}: no entry of a session: {wrong}")
        kinds[entry.id] = entry.kind
        entries.append(entry)
    return entries


def _wrong_record(record: Any, kinds: dict[str, str]) -> str:
    """What is wrong with the fields that every entry has; empty where nothing is. `kinds` are those of the entries before, by id."""
    if not isinstance(record, dict):
        return f"it should be a JSON object; it is {record!r:.80}"
    wrong = (
        _wrong_text(record, "id")
        or _wrong_text(record, "kind")
        or (_wrong_id(record, "parent") if "parent" in record else '"parent" is missing; it should be an id or null')
        or _wrong_time(record, "time")
    )
    if wrong:
        return wrong
    if record["id"] in kinds:
        return f"an entry before it has the id {record['id']!r} already; each needs an id of its own"
    if record["parent"] is not None and record["parent"] not in kinds:
        return f'"parent" should be null or the id of an entry before it; it is {record["parent"]!r}'
    if record["kind"] == MESSAGE and record["parent"] is not None and kinds[record["parent"]] != MESSAGE:
        return f'"parent" of a message should be a message; {record["parent"]!r} is of the kind {kinds[record["parent"]]!r}'
    if not isinstance(record.get("data"), dict):
        return f'"data" should be a JSON object; it is {_shown(record, "data")}'
    return ""


def _wrong_data(entry: Entry, kinds: dict[str, str]) -> str:
    """What is wrong with an entry's data; empty, or an error, too, as reading it would give."""
    kind, data = entry.kind, entry.data
    searchable(kind, data)
    if kind in OWN_KINDS and not isinstance(data.get("run_id"), str | None):
        return f'"run_id" should be a text; it is {_shown(data, "run_id")}'
    if kind == LABEL:
        return _wrong_text(data, "label", may_be_empty=True) or _wrong_place(data, "entry", kinds)
    if kind == HEAD:
        return _wrong_place(data, "to", kinds)
    if kind in (TOOL_START, TOOL_RESULT):
        ToolCall.model_validate(data["call"])
    if kind == TOOL_RESULT:
        ToolResult.model_validate(data["result"])
    number = {TURN: "number", TOOL_RESULT: "turn"}.get(kind)
    if number is not None and (type(data[number]) is not int or abs(data[number]) >= 2**31):
        return f'"{number}" should be a whole number below 2**31; it is {_shown(data, number)}'
    if kind in (TURN, RUN):
        for other in data.get("other_calls", ()):
            Completion.model_validate(other)
        runs_of([Entry(entry.id, None, kind, entry.time, {**data, "run_id": data.get("run_id") or entry.id})])
    if kind == RUN:
        for timing in data.get("turns", ()):
            dict(timing)["number"]
    if kind == EVENT:
        event_of(data)
    return ""


def _wrong_place(data: dict[str, Any], name: str, kinds: dict[str, str]) -> str:
    place = data[name]
    if place is None or (isinstance(place, str) and kinds.get(place) == MESSAGE):
        return ""
    return f'"{name}" should be null or the id of a message before it; it is {_shown(data, name)}'


def _wrong_text(record: dict[str, Any], name: str, *, may_be_empty: bool = False) -> str:
    value = record.get(name)
    if isinstance(value, str) and (value or may_be_empty):
        return ""
    return f'"{name}" should be a text; it is {_shown(record, name)}'


def _wrong_id(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    return "" if value is None or isinstance(value, str) else f'"{name}" should be an id or null; it is {value!r:.80}'


def _wrong_time(record: dict[str, Any], name: str) -> str:
    value = record.get(name)
    try:
        fine = type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
    except OverflowError:
        fine = False
    return "" if fine else f'"{name}" should be a time in seconds since 1970; it is {_shown(record, name)}'


def _shown(record: dict[str, Any], name: str) -> str:
    return f"{record[name]!r:.80}" if name in record else "missing"
