"""A process that forks while stores are open: neither side loses a record, and neither waits for a thread that is not there."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rein_nb.store import Session, Store, StoreError

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*also written to by somebody else:RuntimeWarning"),
]


def in_child(work: Callable[..., Any], *given: Any) -> Any:
    """What `work` returns in a forked child; fails when it takes longer than 20 s."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def run() -> None:
        theirs.send(work(*given))

    child = context.Process(target=run)
    child.start()
    try:
        assert ours.poll(20), "the child hangs"
        return ours.recv()
    finally:
        child.join(5)
        if child.is_alive():
            child.kill()


@pytest.mark.parametrize("whose", ["a store of its own", "the parent's session"])
def test_a_childs_records_are_kept_when_the_parent_closes_the_file(tmp_path: Path, whose: str) -> None:
    path = tmp_path / "s.sqlite3"
    context = multiprocessing.get_context("fork")
    closed, written = context.Event(), context.Event()
    store = Store(path)
    shared = store.create("shared")

    def work() -> None:
        session = shared if whose == "the parent's session" else Store(path).create("of the child")
        for n in range(3):
            session.append(str(n))
        written.set()
        closed.wait(10)
        for n in range(3, 6):
            session.append(str(n))

    child = context.Process(target=work)
    child.start()
    assert written.wait(10)
    store.close()
    closed.set()
    child.join(10)
    assert child.exitcode == 0
    assert sum(info.entries for info in Store(path).sessions()) == 6


def test_a_fork_while_a_thread_writes_leaves_no_lock_behind(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite3")
    session = store.create()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            session.append("x")

    threads = [threading.Thread(target=write) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(5):
            assert in_child(lambda: len(store.sessions()) + len(session.extend(["from the child"]))) == 2
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    kept = [entry.data["message"]["parts"][0]["text"] for entry in session.entries(None)]
    assert kept.count("from the child") == 5


def test_a_fork_within_a_transaction_is_told_apart(tmp_path: Path) -> None:
    store = Store(tmp_path / "s.sqlite3")

    def use() -> str:
        try:
            store.sessions()
        except StoreError as exc:
            return str(exc)
        return "worked"

    with store.database.write():
        told = in_child(use)
    assert "forked in the middle of a transaction" in told
    assert store.sessions() == []


def test_the_parent_goes_on_after_a_fork(tmp_path: Path) -> None:
    session = Session.new(store=tmp_path / "s.sqlite3")
    session.append("before")
    assert in_child(lambda: session.messages[0].text) == "before"
    session.append("after")
    assert [message.text for message in session.messages] == ["before", "after"]
