"""The root folder: write-protected files in it, and what happens when it goes away and comes back."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

from rein_nb.ir import ToolResult
from rein_nb.tools import Toolset
from rein_nb.tools.builtin import READING, Root, toolset
from tests.tools.support import use

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "in.txt").write_text("inside\n")
    return folder


@pytest.fixture
def tools(root: Path) -> Toolset:
    return toolset(root, include=(*READING, "write", "edit"), approve=False)


async def test_write_protected_files_stay_as_they_are(tools: Toolset, root: Path) -> None:
    (root / "in.txt").chmod(0o444)
    (root / "link").symlink_to("in.txt")
    for path in ("in.txt", "link"):
        for name, arguments in (("write", {"content": "x"}), ("edit", {"old": "inside", "new": "x"})):
            refused = await use(tools, name, path=path, **arguments)
            assert refused.is_error
            assert "is write-protected (mode 0444), so it is not changed" in refused.text
    assert (root / "in.txt").read_text() == "inside\n"
    assert (root / "in.txt").stat().st_mode & 0o777 == 0o444
    assert sorted(path.name for path in root.iterdir()) == ["in.txt", "link"]
    (root / "in.txt").chmod(0o644)
    assert not (await use(tools, "edit", path="in.txt", old="inside", new="x")).is_error


async def test_a_write_protected_folder_is_named_as_the_reason(
    tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "sub").mkdir()
    real_open = os.open

    def refused(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
        if flags & os.O_CREAT:
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return real_open(path, flags, *args, **kwargs)

    def mkdir(path: Any, *args: Any, **kwargs: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    # As it is for a user who is not the administrator.
    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(os, "mkdir", mkdir)
    for path in ("in.txt", "sub/new.txt", "sub/deeper/new.txt"):
        result = await use(tools, "write", path=path, content="x")
        assert f"cannot be written: its folder is write-protected: '{path}'" in result.text


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only the administrator gives files away")
async def test_a_file_keeps_its_owner(tools: Toolset, root: Path) -> None:
    os.chown(root / "in.txt", 12345, 12346)
    (root / "in.txt").chmod(0o640)
    assert not (await use(tools, "write", path="in.txt", content="x")).is_error
    state = (root / "in.txt").stat()
    assert (state.st_uid, state.st_gid, state.st_mode & 0o777) == (12345, 12346, 0o640)


async def every_tool(tools: Toolset) -> list[ToolResult]:
    return [
        await use(tools, "read", path="in.txt"),
        await use(tools, "ls"),
        await use(tools, "glob", pattern="*"),
        await use(tools, "grep", pattern="inside"),
        await use(tools, "write", path="a/b.txt", content="x"),
        await use(tools, "edit", path="in.txt", old="inside", new="inside"),
    ]


@pytest.mark.parametrize("how", ["deleted", "moved away", "a file", "a link"])
async def test_a_root_that_is_gone_is_said_to_be_gone(tools: Toolset, root: Path, how: str) -> None:
    aside = root.with_name("aside")
    root.rename(aside)
    if how == "deleted":
        shutil.rmtree(aside)
    elif how == "a file":
        root.write_text("x")
    elif how == "a link":
        root.symlink_to(aside)
    for result in await every_tool(tools):
        assert result.is_error
        assert f"the root folder is gone, or something else stands in its place; make it again: '{root}'" in result.text
    assert how != "moved away" or not root.exists()


async def test_a_root_that_was_made_again_is_used(tools: Toolset, root: Path) -> None:
    for _ in range(2):
        shutil.rmtree(root)
        root.mkdir()
        assert (await use(tools, "ls")).text == "[the folder is empty]"
        assert not (await use(tools, "write", path="in.txt", content="again\n")).is_error
        assert (await use(tools, "read", path=f"{root}/in.txt")).text == "again\n"
    root.rename(root.with_name("aside"))
    root.mkdir()
    assert (await use(tools, "ls")).text == "[the folder is empty]"


async def test_escape_no_link_on_the_way_to_a_new_root_is_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "ws").mkdir(parents=True)
    (outside / "ws" / "in.txt").write_text("the secret outside")
    (tmp_path / "above" / "ws").mkdir(parents=True)
    tools = toolset(tmp_path / "above" / "ws", include=(*READING, "write", "edit"), approve=False)
    shutil.rmtree(tmp_path / "above")
    (tmp_path / "above").symlink_to(outside)
    for result in await every_tool(tools):
        assert result.is_error
        assert "secret" not in result.text
    assert [path.name for path in (outside / "ws").iterdir()] == ["in.txt"]


@needs_bash
async def test_bash_says_that_the_root_is_gone_and_goes_on_in_a_new_one(root: Path) -> None:
    tools = toolset(root, include=("bash",), approve=False, confine="off")
    shutil.rmtree(root)
    gone = await use(tools, "bash", command="pwd")
    assert gone.is_error
    assert "the root folder is gone" in gone.text
    root.mkdir()
    assert (await use(tools, "bash", command="pwd")).text == str(root)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open descriptors cannot be counted here")
def test_a_new_root_leaves_no_descriptor_open(root: Path) -> None:
    folder = Root(root)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        shutil.rmtree(root)
        with pytest.raises(FileNotFoundError), folder.open_dir():
            pass
        root.mkdir()
        with folder.open_dir() as here:
            assert os.path.samestat(os.fstat(here), root.stat())
    assert len(os.listdir("/proc/self/fd")) == before
    folder.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    with pytest.raises(ValueError, match="was closed"), folder.open_dir():
        pass


def test_escape_race_a_root_that_becomes_a_link_and_a_folder_again(root: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "in.txt").write_text("the secret outside")
    folder = Root(root)
    stop = threading.Event()

    def swap() -> None:
        for number in itertools.count():
            root.rename(root.with_name(f"aside{number}"))
            root.symlink_to(outside)
            root.unlink()
            root.mkdir()
            (root / "in.txt").write_text("inside\n")
            if stop.is_set():
                return

    def read() -> None:
        for _ in range(500):
            try:
                with folder.open_file("in.txt") as file:
                    seen.add(file.read())
                folder.write("new.txt", b"x")
            except OSError:
                continue

    seen: set[bytes] = set()
    swapper = threading.Thread(target=swap)
    readers = [threading.Thread(target=read) for _ in range(2)]
    swapper.start()
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    finally:
        stop.set()
        swapper.join()
    assert seen <= {b"inside\n", b""}  # empty: while it is made
    assert sorted(path.name for path in outside.iterdir()) == ["in.txt"]
