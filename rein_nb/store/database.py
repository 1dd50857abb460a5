"""The SQLite file: opening it, its schema and migrations, and transactions that fail in words.

One connection a `Database`, guarded by a lock. Write-ahead logging lets readers of other processes go on while one writes; a writer waits for
another up to a time limit.

No connection is open while the process forks. SQLite keeps what it knows of a file's locks in the process: a child that inherited an open
connection would take them for its own, and its records would be lost when the parent closes the file.

A file that cannot be written is read all the same (`rein_nb.store.frozen`).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rein_nb.ir import ReinError
from rein_nb.store.forking import forks
from rein_nb.store.frozen import State, in_memory, is_frozen, log_left, open_frozen, state

Migration = str | Callable[[sqlite3.Connection], None]

_V1 = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    title TEXT NOT NULL DEFAULT '',
    head TEXT,
    entries INTEGER NOT NULL DEFAULT 0,
    forked_from TEXT,
    forked_at TEXT
) WITHOUT ROWID;
CREATE INDEX sessions_by_time ON sessions (updated_at);
CREATE TABLE entries (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL REFERENCES sessions (id) ON DELETE CASCADE,
    id TEXT NOT NULL,
    parent TEXT,
    kind TEXT NOT NULL,
    time REAL NOT NULL,
    text TEXT,
    data TEXT NOT NULL
);
CREATE UNIQUE INDEX entries_by_id ON entries (session, id);
CREATE INDEX entries_by_session ON entries (session, seq);
CREATE INDEX entries_by_kind ON entries (session, kind, seq);
"""

# The order in which sessions were written to, whatever the clock said: for those without entries, that of their neighbours in time.
_V2 = """
ALTER TABLE sessions ADD COLUMN written INTEGER NOT NULL DEFAULT 0;
UPDATE sessions SET written = (SELECT coalesce(max(seq), 0) FROM entries WHERE session = sessions.id);
UPDATE sessions SET written = (SELECT max(o.written) FROM sessions o WHERE o.updated_at <= sessions.updated_at) WHERE written = 0;
CREATE INDEX sessions_by_writing ON sessions (written DESC, updated_at DESC, id);
DROP INDEX sessions_by_time;
"""

NEXT_WRITTEN = "(SELECT coalesce(max(written), 0) + 1 FROM sessions)"
"""For `written` of the session that is written to: more than any other's."""

_left_to_the_parent: list[sqlite3.Connection] = []
"""Connections that a forked child must not close."""

MIGRATIONS: tuple[Migration, ...] = (_V1, _V2)
"""Step n brings a file from version n to n + 1. Steps are only ever added: a file of any earlier version opens."""


class StoreError(ReinError):
    """The store cannot be opened, read or written; the message says why and what would help."""


class StoreBusy(StoreError):
    """Another process, or another thread, was writing for as long as was waited."""


class RecordRefused(StoreError):
    """The store can be written, but not with this: it is too long, or breaks a rule of the file's."""


class SessionDeleted(StoreError):
    """The session is not in the store any more."""


class Database:
    """One SQLite file.

    Parameters
    ----------
    path
        The file; its folder is made.
    timeout_s
        How long a writer waits for another, seconds.
    migrations
        The schema's steps.

    Raises
    ------
    StoreError
        When the file cannot be opened, is no store, or was made by a newer version.
    """

    fork_order = 2

    def __init__(self, path: Path, *, timeout_s: float = 30.0, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self._migrations = migrations
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._unusable = False
        self._frozen: State | None = None
        self._why_frozen = ""
        self._file: tuple[int, int] | None = None
        self.connection()
        forks(self)

    def connection(self) -> sqlite3.Connection:
        """The open connection."""
        with self._lock:
            if self._frozen is not None and self._frozen != state(self.path):
                self.close()
            if self._connection is None:
                if self._unusable:
                    raise StoreError(
                        f"the store {self.path} cannot be used in this process: it was forked in the middle of a transaction; fork before or after it"
                    )
                self._connection = self._open()
                self._file = _which(self.path)
            return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = self._frozen = None

    def before_fork(self) -> None:
        """Close the connection; the next use opens it again."""
        if self._connection is not None and not self._connection.in_transaction:
            with contextlib.suppress(sqlite3.Error):  # still open, it counts as in use
                self.close()

    def after_fork_in_child(self) -> None:
        """A connection that is still open was in the middle of this thread's own transaction, which is the parent's to end."""
        if self._connection is not None:
            _left_to_the_parent.append(self._connection)
            self._connection = None
            self._unusable = True

    @contextmanager
    def write(self, wait_s: float | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it, or nothing.

        Parameters
        ----------
        wait_s
            How long to wait for another writer, seconds; the database's own limit by default.

        Raises
        ------
        StoreBusy
            When another writes for longer than is waited.
        StoreError
            When the disk is full, or the file cannot be written.
        """
        limit = self.timeout_s if wait_s is None else wait_s
        if not self._lock.acquire(timeout=limit):
            raise StoreBusy(f"cannot write to the store {self.path}: another thread has been writing for too long")
        try:
            with self._faults("write to"):
                connection = self._writable()
                if wait_s is not None:
                    connection.execute(f"PRAGMA busy_timeout = {int(wait_s * 1000)}")
                try:
                    with self._transaction(connection):
                        yield connection
                finally:
                    if wait_s is not None:
                        connection.execute(f"PRAGMA busy_timeout = {int(self.timeout_s * 1000)}")
        finally:
            self._lock.release()

    def _writable(self) -> sqlite3.Connection:
        if self._frozen is not None:
            self.close()  # it may be writable by now
        connection = self.connection()
        if self._file != _which(self.path):
            raise StoreError(
                f"cannot write to the store {self.path}: its file was removed, or another one put in its place, while it was open; "
                "store.close(), and the next use opens what is there now"
            )
        if self._frozen is not None:
            raise StoreError(f"cannot write to the store {self.path}: it can only be read: {self._why_frozen}")
        return connection

    @contextmanager
    def _transaction(self, connection: sqlite3.Connection) -> Iterator[None]:
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def read(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """All rows of a query, as of one moment."""
        with self._lock, self._faults("read"):
            return self.connection().execute(sql, parameters).fetchall()

    @contextmanager
    def _faults(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as exc:
            refused = isinstance(exc, sqlite3.DataError | sqlite3.IntegrityError)
            kind = RecordRefused if refused else StoreBusy if "locked" in str(exc) else StoreError
            raise kind(f"cannot {what} the store {self.path}: {exc}{_hint(exc)}") from exc

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"cannot make the folder of the store {self.path}: {exc}") from exc
        with self._faults("open"):
            connection = sqlite3.connect(
                self.path, timeout=self.timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                self._set_up(connection)
            except BaseException as exc:
                connection.close()
                if not isinstance(exc, sqlite3.OperationalError) or "locked" in str(exc):
                    raise
                if is_frozen(self.path):
                    return self._open_frozen(exc)
                if (log := log_left(self.path)) is not None:
                    raise StoreError(
                        f"cannot open the store {self.path}: its folder cannot be written to, and what was written last is in {log.name} beside it "
                        f"({exc}); copy both to a folder that can be written to, and open the store there"
                    ) from exc
                raise
            return connection

    def _open_frozen(self, why: sqlite3.Error) -> sqlite3.Connection:
        before = state(self.path)
        connection = open_frozen(self.path)
        try:
            self._check(connection)
            if self._version(connection) < len(self._migrations):
                connection = in_memory(connection)
                self._migrate(connection)
        except BaseException:
            connection.close()
            raise
        self._frozen, self._why_frozen = before, f"{why}{_hint(why)}"
        return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(self.timeout_s * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        self._check(connection)
        self._use_wal(connection)
        # With a write-ahead log, NORMAL survives any death of the process; only a power cut can take the newest records.
        connection.execute("PRAGMA synchronous = NORMAL")
        self._migrate(connection)

    def _check(self, connection: sqlite3.Connection) -> None:
        """Refuse what is no store, or a newer one's, before anything in it is changed."""
        connection.execute("BEGIN")  # both as of one moment: another process may be making the store right now
        try:
            version = self._version(connection)
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        finally:
            if connection.in_transaction:  # a fault of the disk has ended it
                connection.execute("COMMIT")
        self._check_version(version)
        if bool(version) != ({"sessions", "entries"} <= tables) or (not version and tables):
            raise StoreError(
                f"{self.path} is a database of something else, with the tables {', '.join(sorted(tables)) or '(none)'}: "
                "nothing in it was changed; name another file, in REIN_NB_STORE or as the store"
            )

    def _check_version(self, version: int) -> None:
        if version > len(self._migrations):
            raise StoreError(
                f"the store {self.path} has schema version {version}, and this rein_nb knows versions up to {len(self._migrations)}: "
                "upgrade rein_nb, or name another file in REIN_NB_STORE"
            )

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Two processes that create one file at once collide here without the busy timeout being asked.
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as exc:
                if "locked" not in str(exc) or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _migrate(self, connection: sqlite3.Connection) -> None:
        newest = len(self._migrations)
        if self._version(connection) == newest:
            return
        with self._transaction(connection):
            version = self._version(connection)
            self._check_version(version)
            for step in self._migrations[version:]:
                if callable(step):
                    step(connection)
                else:
                    for statement in filter(str.strip, step.split(";")):
                        connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {newest}")

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _which(path: Path) -> tuple[int, int] | None:
    """Which file is there: what is written to one that was removed is lost without a word."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _hint(exc: sqlite3.Error) -> str:
    text = str(exc)
    if "full" in text:
        return " (free some space; what was recorded before is safe)"
    if "locked" in text:
        return " (another process has been writing for too long)"
    if "not a database" in text or "malformed" in text:
        return " (this file is no rein_nb store, or was damaged by something else; name another in REIN_NB_STORE)"
    if "readonly" in text or "unable to open" in text:
        return " (check the file's and the folder's permissions, or name another file in REIN_NB_STORE)"
    return ""
