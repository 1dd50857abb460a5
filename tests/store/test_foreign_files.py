"""Files that are no store, or a newer one's: refused in words, and left as they are."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from rein_nb.store import Store, StoreError


def made(path: Path, *statements: str) -> bytes:
    """A database in which these were executed; its bytes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in statements:
            connection.execute(statement)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (["CREATE TABLE customers (id)"], "a database of something else, with the tables customers"),
        (["CREATE TABLE customers (id)", "PRAGMA user_version = 1"], "with the tables customers"),
        (["CREATE TABLE sessions (id)"], "with the tables sessions"),
        (["PRAGMA user_version = 1"], r"with the tables \(none\)"),
        (["PRAGMA user_version = 999"], "schema version 999.*upgrade rein_nb"),
    ],
)
def test_a_database_of_something_else_is_refused_and_not_changed(
    tmp_path: Path, statements: list[str], said: str
) -> None:
    path = tmp_path / "other.sqlite3"
    before = made(path, *statements)
    with pytest.raises(StoreError, match=said):
        Store(path)
    assert path.read_bytes() == before
    assert sorted(tmp_path.iterdir()) == [path]


def test_an_empty_database_becomes_a_store(tmp_path: Path) -> None:
    path = tmp_path / "new.sqlite3"
    made(path, "VACUUM")
    Store(path).create("first")
    assert [info.title for info in Store(path).sessions()] == ["first"]
