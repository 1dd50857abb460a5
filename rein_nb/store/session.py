"""A session: an append-only tree of messages, with what belongs to them.

Messages form the tree: each names the one before it. The *head* is the message that the next one will follow. Rewinding moves the head
back, so that the next message starts a branch; nothing is removed. Runs, results of tools, labels and notes hang on the message they
belong to.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rein_nb.agent.events import Event
from rein_nb.agent.result import AgentResult
from rein_nb.ir import InvalidRequest, Message
from rein_nb.ir.base import clean_text
from rein_nb.ir.transcript import HasTranscript
from rein_nb.llm import as_messages
from rein_nb.store.arguments import as_flag, as_limit, as_path, as_text, as_word, named
from rein_nb.store.database import NEXT_WRITTEN, SessionDeleted, StoreBusy, StoreError
from rein_nb.store.forking import forks
from rein_nb.store.history import healed, runs_of
from rein_nb.store.records import (
    AT_HEAD,
    HEAD,
    LABEL,
    MESSAGE,
    OWN_KINDS,
    RUN,
    TOOL_RESULT,
    TOOL_START,
    Entry,
    Record,
    from_text,
    new_id,
    plain,
    same_message,
    scrub,
    searchable,
    to_text,
)
from rein_nb.store.store import SearchHit, Store

if TYPE_CHECKING:
    import pandas as pd

    from rein_nb.agent import Agent

_ALL = 2**62
"""More entries than a file can hold."""

_NEAR = 500
"""Messages behind the last assistant message that records of its tools are looked for at."""

_FIELDS = "id, parent, kind, time, data"

_PATH = f"""
WITH RECURSIVE path (id, parent, kind, time, data, depth) AS (
    SELECT {_FIELDS}, 0 FROM entries WHERE session = :session AND id = :head
    UNION ALL
    SELECT e.id, e.parent, e.kind, e.time, e.data, path.depth + 1 FROM path JOIN entries e ON e.session = :session AND e.id = path.parent
    WHERE path.depth + 1 < :limit
)
SELECT {_FIELDS} FROM path ORDER BY depth DESC
"""


_RUN_ID = "CASE WHEN json_valid(e.data) THEN json_extract(e.data, '$.run_id') END"
"""The run that an entry tells of; NULL for none (a note may hold NaN, which SQLite does not read)."""

_COPY = f"""
WITH RECURSIVE path (id) AS (
    SELECT :head UNION ALL
    SELECT e.parent FROM path JOIN entries e ON e.session = :session AND e.id = path.id WHERE e.parent IS NOT NULL
), runs (id) AS (
    SELECT DISTINCT {_RUN_ID} FROM entries e JOIN path ON e.id = path.id WHERE e.session = :session
)
INSERT INTO entries (session, id, parent, kind, time, text, data)
SELECT :child, e.id, e.parent, e.kind, e.time, e.text, e.data FROM entries e
WHERE e.session = :session AND e.kind != 'head' AND (
    (e.kind = 'message' AND e.id IN (SELECT id FROM path))
    OR (e.kind != 'message' AND e.parent IN (SELECT id FROM path))
    OR (e.kind != 'message' AND e.parent IS NULL AND (
        {_RUN_ID} IS NULL OR {_RUN_ID} IN (SELECT id FROM runs)
    ))
) ORDER BY e.seq
"""
"""A branch with all that hangs on it: also at the root, where the runs that began there do, and notes."""


class Session(HasTranscript):
    """One session of a store. Make one with `Session.new`, `Session.resume`, `Store.create` or `Store.open`.

    Several objects and processes may write to one session: each goes on from where it was opened, on a branch of its own, and says so in a
    warning when it notices.
    """

    fork_order = 1

    def __init__(self, store: Store, id: str) -> None:
        if not isinstance(store, Store):
            raise TypeError(
                f"a session is one of a Store, not of {named(store)}; Session.new() makes one in the default store"
            )
        self.store = store
        self.id = as_word(id, "a session's id")
        rows = self._rows()
        if not rows:
            raise KeyError(f"the store {store.path} has no session {id!r}")
        row = rows[0]
        self.created_at: float = row[0]
        self.forked_from: str | None = row[3]
        self._head: str | None = row[2]
        self._shared_told = False
        self._lock = threading.RLock()
        forks(self)

    def before_fork(self) -> None:
        """Nothing of it stays behind."""

    def after_fork_in_child(self) -> None:
        """It is as it was."""

    @classmethod
    def new(cls, title: str = "", *, store: Store | str | os.PathLike[str] | None = None) -> Session:
        """A new session, in the default store or the one given.

        Raises
        ------
        StoreError
            When it cannot be written.
        TypeError, ValueError
            When the title is no text, or the store no path.
        """
        return Store.of(store).create(title)

    @classmethod
    def resume(cls, id: str | None = None, *, store: Store | str | os.PathLike[str] | None = None) -> Session:
        """An existing session, to go on with; the one written to last by default.

        Raises
        ------
        KeyError
            When there is no such session.
        TypeError, ValueError
            When the id is no text or empty, or the store no path.
        """
        opened = Store.of(store)
        found = opened.last() if id is None else opened.open(id)
        if found is None:
            raise KeyError(f"the store {opened.path} has no session yet; start one with Session.new()")
        return found

    def __repr__(self) -> str:
        try:
            rows = self._rows()
        except StoreError:
            return f"Session({self.id[:12]}, its store cannot be read)"
        if not rows:
            return f"Session({self.id[:12]}, deleted)"
        title = f" {rows[0][1]!r}" if rows[0][1] else ""
        return f"Session({self.id[:12]}{title}, {rows[0][4]} entries)"

    # -- facts ------------------------------------------------------------------------------------

    def _rows(self) -> list[tuple[Any, ...]]:
        return self.store.database.read(
            "SELECT created_at, title, head, forked_from, entries FROM sessions WHERE id = ?", (self.id,)
        )

    def _row(self) -> tuple[Any, ...]:
        rows = self._rows()
        if not rows:
            raise self._deleted()
        return rows[0]

    @property
    def title(self) -> str:
        """The session's title; may be set."""
        return str(self._row()[1])

    @title.setter
    def title(self, title: str) -> None:
        clean = scrub(as_text(title, "a title"))
        with self.store.database.write() as db:
            if not db.execute("UPDATE sessions SET title = ? WHERE id = ?", (clean, self.id)).rowcount:
                raise self._deleted()

    @property
    def entry_count(self) -> int:
        """Records of every kind."""
        return int(self._row()[4])

    @property
    def head(self) -> str | None:
        """Id of the message that the next one follows; None at the very start."""
        return self._head

    # -- writing ----------------------------------------------------------------------------------

    def append(self, message: Message | Mapping[str, Any] | str) -> Entry:
        """Add a message behind the head, and move the head to it. A string is a user message, a dict a message's fields. Secrets are masked.

        Raises
        ------
        StoreError
            When it cannot be written; nothing has changed then.
        InvalidRequest
            When it is no message.
        """
        return self.extend([message])[0]

    def extend(self, messages: Iterable[Message | Mapping[str, Any] | str]) -> list[Entry]:
        """Add messages, all or none.

        Raises
        ------
        StoreError
            When they cannot be written; nothing has changed then.
        InvalidRequest
            When it is no list of messages.
        """
        if isinstance(messages, str | Message | Mapping):
            raise InvalidRequest(f"extend takes a list of messages, not a {type(messages).__name__}; append adds one")
        made = as_messages(messages)
        if not made:
            return []
        return self.write([Record(MESSAGE, {"message": plain(m)}) for m in made])

    def note(self, kind: str, data: dict[str, Any]) -> Entry:
        """Add a record of your own beside the head.

        Raises
        ------
        ValueError
            When `kind` is one of rein_nb's own, is empty, or holds an unpaired surrogate.
        TypeError
            When `kind` is no text, or `data` no dict.
        """
        if not as_word(kind, "a note's kind"):
            raise ValueError("a note's kind is a word of your own; it is empty")
        if not isinstance(data, dict):
            raise TypeError(f'a note\'s data is a dict, for example {{"text": "..."}}, not a {type(data).__name__}')
        if kind in OWN_KINDS:
            raise ValueError(f"{kind!r} is a kind of rein_nb's own; choose another word")
        return self.write([Record(kind, data)])[0]

    def write(self, records: Sequence[Record], *, wait_s: float | None = None) -> list[Entry]:
        """Add records in one transaction, each behind the head or where it says. Messages move the head.

        A record that is there already, as after an interrupt, is not written twice. Data is stored as `scrub` makes it.

        Parameters
        ----------
        records
            What to add.
        wait_s
            How long to wait for another writer, seconds; the store's own limit by default.

        Raises
        ------
        StoreBusy
            When another writes for longer than is waited.
        SessionDeleted
            When the session is not in the store any more.
        StoreError
            When they cannot be written. Whatever is raised, nothing has changed then.
        """
        if not self._lock.acquire(timeout=-1 if wait_s is None else wait_s):
            raise StoreBusy(f"cannot write to the session {self.id}: another thread has been writing for too long")
        try:
            head = self._head
            entries = []
            for record in records:
                data = scrub(record.data)
                parent = head if record.parent == AT_HEAD else record.parent
                entries.append(Entry(record.id, parent, record.kind, record.time, data))
                head = record.id if record.kind == MESSAGE else data["to"] if record.kind == HEAD else head
            moved = any(record.kind in (MESSAGE, HEAD) for record in records)
            stored = self._insert(entries, head, moved, wait_s)
            shared = moved and stored not in (self._head, head) and not self._shared_told
            self._head = head
        finally:
            self._lock.release()
        if shared:
            self._shared_told = True
            warnings.warn(
                f"session {self.id[:12]} is also written to by somebody else; both are kept, each on its own branch (see session.leaves())",
                RuntimeWarning,
                stacklevel=3,
            )
        return entries

    def _insert(self, entries: Sequence[Entry], head: str | None, moved: bool, wait_s: float | None) -> str | None:
        """Write entries and, where it moved, the head. Returns the head that stood in the file."""
        rows = [(self.id, e.id, e.parent, e.kind, e.time, searchable(e.kind, e.data), to_text(e.data)) for e in entries]
        with self.store.database.write(wait_s) as db:
            stored = db.execute("SELECT head FROM sessions WHERE id = ?", (self.id,)).fetchone()
            if stored is None:
                raise self._deleted()
            added = db.executemany(
                "INSERT INTO entries (session, id, parent, kind, time, text, data) VALUES (?, ?, ?, ?, ?, ?, ?) "
                "ON CONFLICT (session, id) DO NOTHING",
                rows,
            ).rowcount
            db.execute(
                f"UPDATE sessions SET head = ?, updated_at = ?, entries = entries + ?, written = {NEXT_WRITTEN} WHERE id = ?",
                (head if moved else stored[0], time.time(), added, self.id),
            )
        return str(stored[0]) if stored[0] is not None else None

    def _deleted(self) -> SessionDeleted:
        return SessionDeleted(f"the session {self.id} was deleted from the store {self.store.path}")

    # -- the tree ---------------------------------------------------------------------------------

    def rewind(self, to: str | Entry | int | None) -> Session:
        """Move the head, so that the next message starts a branch there. Nothing is removed; returns the session itself.

        Parameters
        ----------
        to
            An entry or its id, a label, a negative number (messages back), or None (before the first message).

        Raises
        ------
        KeyError
            When there is no such message or label.
        TypeError
            When `to` is none of these.
        """
        self.write([Record(HEAD, {"to": self._target(to)})])
        return self

    def fork(self, at: str | Entry | int | None = None, *, title: str | None = None) -> Session:
        """A new session that begins with this one's messages up to `at` (the head by default), with all that hangs on them.

        Raises
        ------
        KeyError
            When there is no such message or label.
        TypeError
            When `at` is no place in a session, or `title` no text.
        """
        target = self._head if at is None else self._target(at)
        if title is not None:
            as_text(title, "a title")
        child, now = new_id(), time.time()
        with self.store.database.write() as db:
            row = db.execute("SELECT title FROM sessions WHERE id = ?", (self.id,)).fetchone()
            if row is None:
                raise self._deleted()
            name = f"{row[0]} (fork)".lstrip() if title is None else title
            db.execute(
                "INSERT INTO sessions (id, created_at, updated_at, title, head, forked_from, forked_at, written) "
                f"VALUES (?, ?, ?, ?, ?, ?, ?, {NEXT_WRITTEN})",
                (child, now, now, scrub(name), target, self.id, target),
            )
            db.execute(_COPY, {"head": target, "session": self.id, "child": child})
            # `rowcount` is -1 for an INSERT that begins with WITH.
            db.execute("UPDATE sessions SET entries = changes() WHERE id = ?", (child,))
        made = Session(self.store, child)
        made._end_runs_of(self)
        return made

    def _end_runs_of(self, origin: Session) -> None:
        """Note which runs go on in the session that this one was forked from: here they are over."""
        ended = {
            entry.data.get("run_id") for entry in self.entries(None, kind=RUN) if entry.data.get("state") == "ended"
        }
        there = {
            entry.data.get("run_id") for entry in origin.entries(None, kind=RUN) if entry.data.get("state") == "ended"
        }
        ours = dict.fromkeys(entry.data.get("run_id") for entry in self.path())
        cut = [Record(RUN, {"state": "forked", "run_id": run}) for run in ours if run in there - ended]
        if cut:
            self.write(cut)

    def label(self, name: str, at: str | Entry | int | None = None) -> Entry:
        """Give a message a name (the head by default), to rewind or fork to. A later label of the same name wins.

        Raises
        ------
        KeyError
            When there is no such message or label.
        TypeError
            When `name` is no text, or `at` no place in a session.
        """
        as_text(name, "a label")
        target = self._head if at is None else self._target(at)
        return self.write([Record(LABEL, {"label": name, "entry": target}, parent=target)])[0]

    @property
    def labels(self) -> dict[str, str | None]:
        """Entry id by label."""
        rows = self.store.database.read(
            "SELECT id, data FROM entries WHERE session = ? AND kind = ? ORDER BY seq", (self.id, LABEL)
        )
        found = [data_of(self, id, text) for id, text in rows]
        return {data["label"]: data["entry"] for data in found}

    def leaves(self) -> list[Entry]:
        """The last message of every branch, newest first."""
        return self._entries(
            f"SELECT {_FIELDS} FROM entries e WHERE session = ? AND kind = 'message' AND NOT EXISTS "
            "(SELECT 1 FROM entries c WHERE c.session = e.session AND c.kind = 'message' AND c.parent = e.id) ORDER BY seq DESC",
            (self.id,),
        )

    def _target(self, to: str | Entry | int | None) -> str | None:
        if to is None:
            return None
        if isinstance(to, Entry):
            to = to.id
        if isinstance(to, int) and not isinstance(to, bool):
            if to >= 0:
                raise KeyError(f"a number of messages to go back is negative, for example -2; got {to}")
            path = self.path(limit=min(1 - to, _ALL))
            if len(path) < -to:
                raise KeyError(f"the branch has only {len(path)} messages")
            return path[0].id if len(path) > -to else None
        if not isinstance(to, str):
            raise TypeError(
                f"a place in a session is an entry or its id, a label, a negative number, or None, not {named(to)}"
            )
        to = clean_text(to)
        if self.store.database.read(
            "SELECT 1 FROM entries WHERE session = ? AND id = ? AND kind = 'message'", (self.id, to)
        ):
            return to
        labels = self.labels
        name = scrub({"label": to})["label"]  # as it is stored
        if name in labels:
            return labels[name]
        names = ", ".join(map(str, labels)) or "none"
        raise KeyError(f"the session has no message and no label {name!r}; labels: {names}")

    # -- reading ----------------------------------------------------------------------------------

    def _entries(self, sql: str, parameters: Any) -> list[Entry]:
        rows = self.store.database.read(sql, parameters)
        return [Entry(id, parent, kind, at, data_of(self, id, data)) for id, parent, kind, at, data in rows]

    def entries(self, limit: int | None = 50, *, kind: str | None = None) -> list[Entry]:
        """The newest entries of all branches, newest first; None for all.

        Raises
        ------
        TypeError, ValueError
            When `limit` is no whole number from 0 on, or `kind` no text.
        """
        where, parameters = "session = ?", list[Any]((self.id,))
        if kind is not None:
            where += " AND kind = ?"
            parameters.append(clean_text(as_text(kind, "a kind of entries")))
        parameters.append(as_limit(limit))
        return self._entries(f"SELECT {_FIELDS} FROM entries WHERE {where} ORDER BY seq DESC LIMIT ?", parameters)

    def path(self, limit: int | None = None) -> list[Entry]:
        """The messages of the current branch, oldest first; with `limit`, only the newest of them.

        Raises
        ------
        TypeError, ValueError
            When `limit` is no whole number from 0 on.
        """
        most = as_limit(limit)
        if self._head is None or most == 0:
            return []
        return self._entries(_PATH, {"session": self.id, "head": self._head, "limit": most if most > 0 else _ALL})

    @property
    def stored_messages(self) -> list[Message]:
        """The messages of the current branch, exactly as they were stored."""
        return [Message.model_validate(entry.data["message"]) for entry in self.path()]

    @property
    def messages(self) -> list[Message]:
        """The messages of the current branch, valid for a next request: a call whose result was never stored gets one that tells what is
        known about it. Reading changes nothing on disk."""
        path = self.path()
        return healed(path, self._tool_records(path))

    def _tool_records(self, path: Sequence[Entry]) -> list[Entry]:
        """What is known about the calls of the last assistant message, and hangs on it or on what follows it."""
        last = next(
            (n for n in reversed(range(len(path))) if path[n].data["message"]["role"] == "assistant"), len(path)
        )
        ids = [entry.id for entry in path[last : last + _NEAR]]
        if not ids:
            return []
        return self._entries(
            f"SELECT {_FIELDS} FROM entries WHERE session = ? AND kind IN (?, ?) AND parent IN ({', '.join('?' * len(ids))}) ORDER BY seq",
            (self.id, TOOL_START, TOOL_RESULT, *ids),
        )

    @property
    def results(self) -> list[AgentResult]:
        """The runs that were saved in this session, oldest first; a run that was killed is there with what it had done."""
        rows = self._entries(
            f"SELECT {_FIELDS} FROM entries WHERE session = ? AND kind IN ('message', 'turn', 'run', 'tool_result') ORDER BY seq",
            (self.id,),
        )
        return runs_of(rows)

    def search(self, text: str, limit: int | None = 50) -> list[SearchHit]:
        """Entries of this session that hold `text`, newest first; with `limit` None, all."""
        return self.store.search(text, limit=limit, session_id=self.id)

    @property
    def events(self) -> list[Event]:
        """Every event that was kept (`attach` with ``keep_events=True``), in order. An event's `.partial` is not kept."""
        return self._events(self.results)

    def _events(self, results: list[AgentResult]) -> list[Event]:
        from rein_nb.store.events import events_of

        rows = self._entries(
            f"SELECT {_FIELDS} FROM entries WHERE session = ? AND kind = 'event' ORDER BY seq", (self.id,)
        )
        return list(events_of(rows, results))

    def frame_sources(self) -> Iterator[Any]:
        """What frames are made of: the runs, and the events that were kept; the branch's messages where there are no runs."""
        results = self.results
        yield from results if results else self.stored_messages
        yield from self._events(results)

    def to_frame(self, kind: str = "turns") -> pd.DataFrame:
        """One of the tidy frames of what the session holds."""
        from importlib import import_module

        made: pd.DataFrame = import_module("rein_nb.frames").frame(kind, self)
        return made

    # -- saving and carrying ----------------------------------------------------------------------

    def listener(self, *, keep_events: bool = False) -> Callable[[Event], None]:
        """A listener for an agent's events that saves each message, tool result and run as soon as it is there.

        Parameters
        ----------
        keep_events
            Also keep every single event, deltas included.

        Raises
        ------
        TypeError
            When `keep_events` is neither True nor False.
        """
        from rein_nb.store.autosave import Autosave

        return Autosave(self, keep_events=as_flag(keep_events, "keep_events"))

    def attach(self, agent: Agent, *, keep_events: bool = False) -> Callable[[], None]:
        """Save every later run of `agent` in this session, as it goes on. Returns a function that stops saving.

        The two conversations become one. An agent without messages takes over the session's, healed; what was healed is stored on a branch of
        its own, beside the original. Of an agent with messages, what the session has not is stored: where its past is another, on a branch.
        An agent that is saved here already is not saved twice.

        Raises
        ------
        StoreError
            When the agent's past cannot be stored.
        TypeError
            When `agent` is none, or `keep_events` neither True nor False.
        """
        from rein_nb.agent import Agent
        from rein_nb.store.autosave import Autosave

        if not isinstance(agent, Agent):
            raise TypeError(f"what is saved is the runs of an Agent, not {named(agent)}")
        as_flag(keep_events, "keep_events")
        for listener in agent.listeners:
            if isinstance(listener, Autosave) and listener.saves_into(self):
                listener.keep_events = listener.keep_events or keep_events
                return lambda: agent.remove_listener(listener)
        theirs = agent.messages or self.messages
        stored = self.stored_messages
        differ = (n for n, (a, b) in enumerate(zip(theirs, stored, strict=False)) if not same_message(a, b))
        same = next(differ, min(len(theirs), len(stored)))
        if same < len(stored):
            path = self.path()
            self.rewind(path[same - 1] if same else None)
        self.extend(theirs[same:])
        if not agent.messages:
            agent.messages = theirs
        made = Autosave(self, keep_events=keep_events)
        agent.add_listener(made)
        return lambda: agent.remove_listener(made)

    def export_jsonl(self, path: str | os.PathLike[str]) -> Path:
        """Write the whole session, all branches, as JSON Lines; `Store.import_jsonl` reads it back exactly. Returns the path."""
        from rein_nb.store.transfer import export_session

        return export_session(self, Path(as_path(path, "a file to export to")).expanduser())


def data_of(session: Session, entry_id: str, text: str) -> Any:
    """The data of an entry, from the text that is stored.

    Raises
    ------
    StoreError
        When the text is no JSON: something else changed the file.
    """
    try:
        return from_text(text)
    except ValueError as exc:
        raise StoreError(
            f"the entry {entry_id} of the session {session.id} in the store {session.store.path} was damaged by something else: "
            f"its data should be JSON: {exc}"
        ) from exc
