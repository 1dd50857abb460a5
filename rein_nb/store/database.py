"""The SQLite file: opening it, its schema and migrations, and transactions that fail in words.

One connection a `Database`, guarded by a lock, opened again in a forked child. Write-ahead logging lets readers of other processes go on
while one writes; a writer waits for another up to a time limit.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rein_nb.ir import ReinError

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

MIGRATIONS: tuple[Migration, ...] = (_V1,)
"""Step n brings a file from version n to n + 1. Steps are only ever added: a file of any earlier version opens."""


class StoreError(ReinError):
    """The store cannot be opened, read or written; the message says why and what would help."""


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

    def __init__(self, path: Path, *, timeout_s: float = 30.0, migrations: Sequence[Migration] = MIGRATIONS) -> None:
        self.path = path
        self._timeout_s = timeout_s
        self._migrations = migrations
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        self._pid = 0
        self.connection()

    def connection(self) -> sqlite3.Connection:
        """The open connection of this process."""
        with self._lock:
            if self._connection is None or self._pid != os.getpid():
                # A connection must not cross a fork; the parent's is left to the parent.
                self._connection = self._open()
                self._pid = os.getpid()
            return self._connection

    def close(self) -> None:
        """Close the connection; the next use opens it again."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """A transaction: all of it, or nothing.

        Raises
        ------
        StoreError
            When the disk is full, the file is locked for too long, or cannot be written.
        """
        with self._lock, self._faults("write to"):
            connection = self.connection()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
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
            raise StoreError(f"cannot {what} the store {self.path}: {exc}{_hint(exc)}") from exc

    def _open(self) -> sqlite3.Connection:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"cannot make the folder of the store {self.path}: {exc}") from exc
        with self._faults("open"):
            connection = sqlite3.connect(
                self.path, timeout=self._timeout_s, isolation_level=None, check_same_thread=False
            )
            try:
                self._set_up(connection)
            except BaseException:
                connection.close()
                raise
            return connection

    def _set_up(self, connection: sqlite3.Connection) -> None:
        connection.execute(f"PRAGMA busy_timeout = {int(self._timeout_s * 1000)}")
        connection.execute("PRAGMA foreign_keys = ON")
        self._use_wal(connection)
        # With a write-ahead log, NORMAL survives any death of the process; only a power cut can take the newest records.
        connection.execute("PRAGMA synchronous = NORMAL")
        self._migrate(connection)

    def _use_wal(self, connection: sqlite3.Connection) -> None:
        # Two processes that create one file at once collide here without the busy timeout being asked.
        deadline = time.monotonic() + self._timeout_s
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
        connection.execute("BEGIN IMMEDIATE")
        try:
            version = self._version(connection)
            if version > newest:
                raise StoreError(
                    f"the store {self.path} has schema version {version}, and this rein_nb knows versions up to {newest}: "
                    "upgrade rein_nb, or name another file in REIN_NB_STORE"
                )
            for step in self._migrations[version:]:
                if callable(step):
                    step(connection)
                else:
                    for statement in filter(str.strip, step.split(";")):
                        connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {newest}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    @staticmethod
    def _version(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


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
