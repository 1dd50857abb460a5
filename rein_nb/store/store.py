"""A store of sessions: one SQLite file, any number of processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rein_nb.store.database import Database
from rein_nb.store.paths import as_file, default_path
from rein_nb.store.records import new_id, scrub

if TYPE_CHECKING:
    from rein_nb.store.session import Session


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session at a glance. Times are unix times in seconds; `entries` counts records of every kind.

    Attributes
    ----------
    id, title
        Of the session.
    created_at, updated_at
        Unix times, seconds.
    entries
        Records of every kind.
    forked_from
        Id of the session that it was forked from.
    """

    id: str
    title: str
    created_at: float
    updated_at: float
    entries: int
    forked_from: str | None


@dataclass(frozen=True, slots=True)
class SearchHit:
    """An entry whose words hold what was searched for; `excerpt` is the place, with some words around it.

    Attributes
    ----------
    session_id, session_title
        Where it is.
    entry_id, kind
        Which entry, and of which kind.
    time
        When it was written: Unix time, seconds.
    excerpt
        The place, with some words around it.
    """

    session_id: str
    session_title: str
    entry_id: str
    kind: str
    time: float
    excerpt: str


class Store:
    """Sessions on disk.

    Parameters
    ----------
    path
        A file, or a folder for it. By default ``REIN_NB_STORE``, else the platform's folder for user data.
    timeout_s
        How long a write waits for another process's, seconds.

    Raises
    ------
    StoreError
        When the file cannot be opened, is no store, or was made by a newer version.

    Examples
    --------
    >>> store = Store()                       # doctest: +SKIP
    >>> session = store.create("first try")   # doctest: +SKIP
    >>> session.append("hello")               # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, timeout_s: float = 30.0) -> None:
        self.path: Path = default_path() if path is None else as_file(path)
        self.database = Database(self.path, timeout_s=timeout_s)

    @classmethod
    def of(cls, store: Store | str | os.PathLike[str] | None) -> Store:
        """A store from itself, a path, or None for the default place."""
        return store if isinstance(store, Store) else cls(store)

    def __repr__(self) -> str:
        return f"Store({str(self.path)!r})"

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. The store can be used again; it then opens it again."""
        self.database.close()

    # -- sessions ---------------------------------------------------------------------------------

    def create(self, title: str = "", *, id: str | None = None) -> Session:
        """A new, empty session.

        Raises
        ------
        StoreError
            When it cannot be written.
        ValueError
            When there is a session of that id.
        """
        from rein_nb.store.session import Session

        session_id = id or new_id()
        now = time.time()
        with self.database.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone():
                raise ValueError(
                    f"the store has a session {session_id!r} already; open it with store.open({session_id!r})"
                )
            db.execute(
                "INSERT INTO sessions (id, created_at, updated_at, title) VALUES (?, ?, ?, ?)",
                (session_id, now, now, scrub(title)),
            )
        return Session(self, session_id)

    def open(self, session_id: str) -> Session:
        """An existing session, at the end of its current branch. A unique beginning of the id is enough.

        Raises
        ------
        KeyError
            When there is none, or several begin so.
        """
        from rein_nb.store.session import Session

        found = self.database.read(
            "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT 2",
            (session_id, session_id + "\U0010ffff"),
        )
        if not found:
            raise KeyError(f"the store {self.path} has no session {session_id!r}")
        if found[0][0] != session_id and len(found) > 1:
            raise KeyError(f"several sessions begin with {session_id!r}; give more of the id")
        return Session(self, found[0][0])

    def last(self) -> Session | None:
        """The session that was written to last; None in an empty store."""
        newest = self.sessions(limit=1)
        return self.open(newest[0].id) if newest else None

    def sessions(self, limit: int = 50, offset: int = 0) -> list[SessionInfo]:
        """The sessions, those written to last first."""
        rows = self.database.read(
            "SELECT id, title, created_at, updated_at, entries, forked_from FROM sessions ORDER BY updated_at DESC, id LIMIT ? OFFSET ?",
            (limit, offset),
        )
        return [SessionInfo(*row) for row in rows]

    def delete(self, session_id: str) -> None:
        """Remove a session and all its entries for good.

        Raises
        ------
        KeyError
            When there is none.
        """
        with self.database.write() as db:
            if not db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount:
                raise KeyError(f"the store {self.path} has no session {session_id!r}")

    def search(self, text: str, *, limit: int = 50, session_id: str | None = None) -> list[SearchHit]:
        """Entries that hold `text` (upper and lower case of ASCII letters are one), newest first."""
        where, parameters = "e.text LIKE ? ESCAPE '\\'", [f"%{_like(text)}%"]
        if session_id is not None:
            where += " AND e.session = ?"
            parameters.append(session_id)
        rows = self.database.read(
            "SELECT e.session, s.title, e.id, e.kind, e.time, e.text FROM entries e JOIN sessions s ON s.id = e.session "
            f"WHERE {where} ORDER BY e.seq DESC LIMIT {int(limit)}",
            parameters,
        )
        return [
            SearchHit(session, title, id, kind, at, _excerpt(words, text))
            for session, title, id, kind, at, words in rows
        ]

    def import_jsonl(self, path: str | os.PathLike[str], *, new_id: bool = False) -> Session:
        """A session from a file that `Session.export_jsonl` wrote; see `rein_nb.store.transfer.import_session`."""
        from rein_nb.store.transfer import import_session

        return import_session(self, Path(path).expanduser(), as_new=new_id).session

    def frame_sources(self) -> Iterator[Any]:
        """What frames are made of: every session."""
        for info in self.sessions(limit=-1):
            yield self.open(info.id)


def _like(text: str) -> str:
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")


def _excerpt(text: str, wanted: str, around: int = 60) -> str:
    at = max(0, text.lower().find(wanted.lower()))
    start, end = max(0, at - around), min(len(text), at + len(wanted) + around)
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
