"""A store that cannot be written is read all the same, and says why it takes nothing."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rein_nb.store import Session, Store, StoreError
from rein_nb.store.database import MIGRATIONS, Database

pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="needs permissions that bind"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]

NOBODY = 65534
READS_ONLY = r"cannot write to the store .*it can only be read: attempt to write a readonly .*\(check the file's and the folder's"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach, unlike pytest's own."""
    made = Path(tempfile.mkdtemp())
    made.chmod(0o755)
    yield made
    made.chmod(0o755)
    shutil.rmtree(made)


def _run(pipe: object, work: Callable[[], None]) -> None:
    told = ""
    try:
        if os.getuid() == 0:  # nothing stops root
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
        work()
    except BaseException:
        told = traceback.format_exc()
    pipe.send(told)  # type: ignore[attr-defined]


def as_reader(folder: Path, work: Callable[[], None], meanwhile: Callable[[], None] = lambda: None) -> None:
    """Do `work` in a process that may not write to the folder, and `meanwhile` in this one."""
    folder.chmod(0o555)
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_run, args=(theirs, work))
    process.start()
    meanwhile()
    assert ours.poll(60), "the other process did not answer"
    told = ours.recv()
    process.join()
    folder.chmod(0o755)
    assert told == ""


def filled(path: Path) -> None:
    with Store(path) as store:
        store.create("kept", id="k").extend(["one", "two"])


def test_a_closed_store_in_a_read_only_folder_is_read(folder: Path) -> None:
    path = folder / "odd ?#% name.db"
    filled(path)

    def work() -> None:
        store = Store(path)
        session = Session.resume(store=store)
        assert [m.text for m in session.messages] == ["one", "two"]
        assert [hit.excerpt for hit in store.search("two")] == ["two"]
        for write in (lambda: session.append("three"), lambda: store.create("x"), lambda: store.delete("k")):
            with pytest.raises(StoreError, match=READS_ONLY):
                write()
        assert [m.text for m in store.open("k").messages] == ["one", "two"]

    as_reader(folder, work)
    assert os.listdir(folder) == [path.name]


def test_a_store_of_an_earlier_version_in_a_read_only_folder_is_read(folder: Path) -> None:
    path = folder / "s.db"
    Database(path, migrations=MIGRATIONS[:1]).close()
    old = sqlite3.connect(path)
    old.execute("INSERT INTO sessions (id, created_at, updated_at, title) VALUES ('a', 1, 1, 'old')")
    old.commit()
    old.close()
    before = path.read_bytes()

    def work() -> None:
        store = Store(path)
        assert [info.title for info in store.sessions()] == ["old"]
        with pytest.raises(StoreError, match=READS_ONLY):
            store.create()

    as_reader(folder, work)
    assert path.read_bytes() == before


def test_a_read_only_file_is_read(folder: Path) -> None:
    path = folder / "s.db"
    filled(path)
    path.chmod(0o444)
    as_reader(folder, lambda: _reads(path))


def _reads(path: Path) -> None:
    assert [m.text for m in Store(path).open("k").messages] == ["one", "two"]


def test_what_a_killed_process_left_is_read(folder: Path) -> None:
    path = folder / "s.db"
    filled(path)
    script = f"import os; from rein_nb import Store; Store({str(path)!r}).open('k').append('three'); os._exit(9)"
    subprocess.run([sys.executable, "-c", script], check=False)
    assert len(os.listdir(folder)) == 3, "the log and its index are there"

    def work() -> None:
        session = Store(path).open("k")
        assert [m.text for m in session.messages] == ["one", "two", "three"]
        with pytest.raises(
            StoreError, match=r"cannot write to the store .*check the file's and the folder's permissions"
        ):
            session.append("four")

    as_reader(folder, work)


def test_a_log_that_cannot_be_read_is_named(folder: Path) -> None:
    test_what_a_killed_process_left_is_read(folder)
    (folder / "s.db-shm").unlink()

    def work() -> None:
        with pytest.raises(StoreError, match=r"cannot open the store .*s\.db-wal.* copy both"):
            Store(folder / "s.db")

    as_reader(folder, work)


def test_what_its_owner_writes_meanwhile_is_seen(folder: Path) -> None:
    path = folder / "s.db"
    filled(path)
    ours, theirs = multiprocessing.Pipe()

    def work() -> None:
        store = Store(path)
        session = store.open("k")
        theirs.send("open")
        assert theirs.poll(60)
        theirs.recv()
        assert len(session.entries(None)) == 203
        assert [info.title for info in store.sessions()] == ["new", "kept"]

    def write() -> None:
        assert ours.poll(60)
        ours.recv()
        with Store(path) as store:
            store.open("k").extend(str(n) for n in range(200))
            store.open("k").note("w", {})
            store.create("new")
        ours.send("written")

    as_reader(folder, work, write)


@pytest.mark.parametrize("why", ["attempt to write a readonly database", "database or disk is full"])
def test_what_can_be_written_again_takes_records(folder: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    path = folder / "s.db"
    filled(path)

    def refuse(self: Database, connection: sqlite3.Connection) -> None:
        raise sqlite3.OperationalError(why)

    with monkeypatch.context() as patched:
        patched.setattr(Database, "_set_up", refuse)
        store = Store(path)
        assert [m.text for m in store.open("k").messages] == ["one", "two"]
        with pytest.raises(StoreError, match=f"cannot write to the store .*it can only be read: {why}"):
            store.create()
        (folder / "new.db").touch()
        for other in ("new.db", "none.db"):
            with pytest.raises(StoreError, match=f"cannot open the store .*{why}"):
                Store(folder / other)
    store.open("k").append("three")
    assert [m.text for m in store.open("k").messages] == ["one", "two", "three"]


def test_another_writer_is_no_reason_to_read_only(folder: Path) -> None:
    path = folder / "s.db"
    filled(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="another process has been writing for too long"):
        Store(path, timeout_s=0.1)
    other.close()


def test_no_store_in_a_read_only_folder_says_so(folder: Path) -> None:
    def work() -> None:
        with pytest.raises(StoreError, match=r"cannot open the store .*check the file's and the folder's permissions"):
            Store(folder / "s.db")
        with pytest.raises(StoreError, match="cannot make the folder"):
            Store(folder / "new" / "s.db")

    as_reader(folder, work)
