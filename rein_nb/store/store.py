"""A store of sessions: one SQLite file, any number of processes."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rein_nb.ir.base import clean_text
from rein_nb.store.arguments import as_count, as_flag, as_limit, as_path, as_text, as_word, named
from rein_nb.store.database import NEXT_WRITTEN, Database
from rein_nb.store.paths import as_file, default_path
from rein_nb.store.records import new_id, scrub

if TYPE_CHECKING:
    from rein_nb.store.session import Session

_LONGEST_WAIT_S = 1e6
"""Seconds. SQLite counts milliseconds in 32 bits."""

_ASCII_LOWER = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


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
    ValueError
        When `timeout_s` is no number of seconds, or `path` names no file.
    TypeError
        When `path` is no path.

    Examples
    --------
    >>> store = Store()                       # doctest: +SKIP
    >>> session = store.create("first try")   # doctest: +SKIP
    >>> session.append("hello")               # doctest: +SKIP
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, timeout_s: float = 30.0) -> None:
        if (
            isinstance(timeout_s, bool)
            or not isinstance(timeout_s, int | float)
            or not math.isfinite(timeout_s)
            or not 0 <= timeout_s <= _LONGEST_WAIT_S
        ):
            raise ValueError(f"timeout_s is a number of seconds, 0 to {_LONGEST_WAIT_S:,.0f}, not {timeout_s!r}")
        self.path: Path = default_path() if path is None else as_file(as_path(path, "a store's place"))
        self.database = Database(self.path, timeout_s=timeout_s)

    @classmethod
    def of(cls, store: Store | str | os.PathLike[str] | None) -> Store:
        """A store from itself, a path, or None for the default place.

        Raises
        ------
        StoreError
            When the file cannot be opened, is no store, or was made by a newer version.
        TypeError, ValueError
            When it is no path.
        """
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
            When there is a session of that id, or the id holds an unpaired surrogate.
        TypeError
            When the title or the id is no text.
        """
        from rein_nb.store.session import Session

        title = as_text(title, "a title")
        session_id = as_word("" if id is None else id, "a session's id") or new_id()
        now = time.time()
        with self.database.write() as db:
            if db.execute("SELECT 1 FROM sessions WHERE id = ?", (session_id,)).fetchone():
                raise ValueError(
                    f"the store has a session {session_id!r} already; open it with store.open({session_id!r})"
                )
            db.execute(
                f"INSERT INTO sessions (id, created_at, updated_at, title, written) VALUES (?, ?, ?, ?, {NEXT_WRITTEN})",
                (session_id, now, now, scrub(title)),
            )
        return Session(self, session_id)

    def open(self, session_id: str | Session) -> Session:
        """An existing session, at the end of its current branch. A unique beginning of the id is enough.

        Raises
        ------
        KeyError
            When there is none, or several begin so.
        TypeError
            When `session_id` is neither a text nor a session.
        ValueError
            When it is empty.
        """
        from rein_nb.store.session import Session

        session_id = _as_id(session_id)
        if not session_id:
            raise ValueError("a session's id is empty; store.last() is the session that was written to last")
        found = self._beginning_with(session_id)
        if not found:
            raise KeyError(f"the store {self.path} has no session {session_id!r}")
        if found[0] != session_id and len(found) > 1:
            raise KeyError(f"several sessions begin with {session_id!r}; give more of the id")
        return Session(self, found[0])

    def _beginning_with(self, start: str) -> list[str]:
        """Ids that begin so; the first two."""
        if clean_text(start) != start:
            return []  # no id holds an unpaired surrogate
        rows = self.database.read(
            "SELECT id FROM sessions WHERE id >= ? AND id < ? ORDER BY id LIMIT 2", (start, start + "\U0010ffff")
        )
        return [row[0] for row in rows]

    def last(self) -> Session | None:
        """The session that was written to last; None in an empty store."""
        newest = self.sessions(limit=1)
        return self.open(newest[0].id) if newest else None

    def sessions(self, limit: int | None = 50, offset: int = 0) -> list[SessionInfo]:
        """The sessions, those written to last first (an import writes, too); with None, all. The clock plays no part in the order.

        Raises
        ------
        TypeError, ValueError
            When `limit` or `offset` is no whole number from 0 on.
        """
        rows = self.database.read(
            "SELECT id, title, created_at, updated_at, entries, forked_from FROM sessions "
            "ORDER BY written DESC, updated_at DESC, id LIMIT ? OFFSET ?",
            (as_limit(limit), as_count(offset, "an offset")),
        )
        return [SessionInfo(*row) for row in rows]

    def delete(self, session_id: str | Session) -> None:
        """Remove a session and all its entries for good. It takes the whole id, or the session.

        Raises
        ------
        KeyError
            When there is none.
        TypeError
            When `session_id` is neither a text nor a session.
        """
        session_id = _as_id(session_id)
        if session_id not in (similar := self._beginning_with(session_id)):
            hint = f"; one begins so, {similar[0]!r}, and delete takes the whole id" if similar and session_id else ""
            raise KeyError(f"the store {self.path} has no session {session_id!r}{hint}")
        with self.database.write() as db:
            if not db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount:
                raise KeyError(f"the store {self.path} has no session {session_id!r}")

    def search(self, text: str, *, limit: int | None = 50, session_id: str | Session | None = None) -> list[SearchHit]:
        """Entries that hold `text` (upper and lower case of ASCII letters are one), newest first; with `limit` None, all.

        Raises
        ------
        TypeError
            When `text` is no text, or `limit` no whole number.
        ValueError
            When `limit` is negative.
        """
        text = clean_text(as_text(text, "what is searched for"))
        # Not LIKE: it ends at a NUL, and takes no long pattern.
        where, parameters = "instr(lower(e.text), lower(?)) > 0", list[Any]((text,))
        if session_id is not None:
            where += " AND e.session = ?"
            parameters.append(clean_text(_as_id(session_id)))
        rows = self.database.read(
            "SELECT e.session, s.title, e.id, e.kind, e.time, e.text FROM entries e JOIN sessions s ON s.id = e.session "
            f"WHERE {where} ORDER BY e.seq DESC LIMIT ?",
            [*parameters, as_limit(limit)],
        )
        return [
            SearchHit(session, title, id, kind, at, _excerpt(words, text))
            for session, title, id, kind, at, words in rows
        ]

    def import_jsonl(self, path: str | os.PathLike[str], *, new_id: bool = False) -> Session:
        """A session from a file that `Session.export_jsonl` wrote; see `rein_nb.store.transfer.import_session`."""
        from rein_nb.store.transfer import import_session

        return import_session(
            self, Path(as_path(path, "a file to import")).expanduser(), as_new=as_flag(new_id, "new_id")
        ).session

    def frame_sources(self) -> Iterator[Any]:
        """What frames are made of: every session."""
        for info in self.sessions(limit=None):
            yield self.open(info.id)


def _as_id(session: Any) -> str:
    from rein_nb.store.session import Session

    if isinstance(session, Session):
        return session.id
    if not isinstance(session, str):
        raise TypeError(f"give a session's id, a text, or the session itself, not {named(session)}")
    return session


def _excerpt(text: str, wanted: str, around: int = 60) -> str:
    # ASCII only, as in the query; and `lower` can lengthen a text.
    at = max(0, text.translate(_ASCII_LOWER).find(wanted.translate(_ASCII_LOWER)))
    start, end = max(0, at - around), min(len(text), at + len(wanted) + around)
    return ("…" if start else "") + text[start:end] + ("…" if end < len(text) else "")
