"""Sessions as JSON Lines: a header, then one entry a line, in the order in which they were written. What goes out comes back exactly."""

from __future__ import annotations

import os
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rein_nb.store.jsonl import BrokenTail, JsonLines
from rein_nb.store.records import Entry, from_text, new_id, scrub, searchable, to_text
from rein_nb.store.session import Session
from rein_nb.store.store import Store

FORMAT = "rein_nb.session"
VERSION = 1


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
    """
    if path.exists():
        raise FileExistsError(f"{path} is there already; name another file, or remove it first")
    database = session.store.database
    head = database.read(
        "SELECT id, created_at, updated_at, title, head, forked_from, forked_at FROM sessions WHERE id = ?",
        (session.id,),
    )[0]
    names = ("id", "created_at", "updated_at", "title", "head", "forked_from", "forked_at")
    half = path.with_name(f"{path.name}.{os.getpid()}-{new_id()[:8]}.part")
    try:
        with JsonLines(half) as lines:
            lines.append({"format": FORMAT, "version": VERSION, **dict(zip(names, head, strict=True))})
            for row in database.read(
                "SELECT id, parent, kind, time, data FROM entries WHERE session = ? ORDER BY seq", (session.id,)
            ):
                lines.append(
                    dict(zip(("id", "parent", "kind", "time"), row[:4], strict=True)) | {"data": from_text(row[4])}
                )
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
    ValueError
        When the file is no such export or is damaged before its end, or the store has the session already.
    FileNotFoundError
        When there is no such file.
    """
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    lines = JsonLines(path)
    records = lines.read()
    header, entries = _header(path, records), [_entry(path, n, record) for n, record in enumerate(records[1:], 2)]
    if lines.tail is not None:
        warnings.warn(
            f"{path} ends with half a record of {len(lines.tail.data)} bytes, which was left out",
            RuntimeWarning,
            stacklevel=3,
        )
    session_id = new_id() if as_new else str(header["id"])
    known = {entry.id for entry in entries if entry.kind == "message"}
    # The newest messages may be what the file lost; the head is then the last that is there.
    head = (
        header.get("head")
        if header.get("head") in known
        else next((e.id for e in reversed(entries) if e.kind == "message"), None)
    )
    if header.get("head") is None and lines.tail is None:
        head = None
    with store.database.write() as db:
        if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone():
            raise ValueError(f"the store has session {session_id} already; import it beside that one with new_id=True")
        created = header.get("created_at", time.time())
        db.execute(
            "INSERT INTO sessions (id, created_at, updated_at, title, head, entries, forked_from, forked_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
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
    return Imported(Session(store, session_id), lines.tail)


def _header(path: Path, records: list[Any]) -> dict[str, Any]:
    header = records[0] if records else None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(
            f'{path} is no exported session: its first line should be a JSON object with "format": "{FORMAT}"'
        )
    if header.get("version", 0) > VERSION:
        raise ValueError(
            f"{path} has version {header['version']}, and this rein_nb reads versions up to {VERSION}: upgrade rein_nb"
        )
    return header


def _entry(path: Path, line: int, record: Any) -> Entry:
    try:
        entry = Entry(record["id"], record["parent"], record["kind"], float(record["time"]), scrub(record["data"]))
        searchable(entry.kind, entry.data)
        return entry
    except (KeyError, TypeError, ValueError) as exc:
        raise ValueError(f"{path}, line {line}: no entry of a session: {type(exc).__name__}: {exc}") from exc
