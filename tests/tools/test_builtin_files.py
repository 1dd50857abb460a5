"""The file tools: what they do inside their folder, and that nothing gets them out of it."""

from __future__ import annotations

import os
import random
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rein_nb.agent import Agent
from rein_nb.ir import MediaPart, ToolCall, ToolResult
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import ToolDefinitionError, Toolset
from rein_nb.tools.builtin import READING, Root, toolset
from rein_nb.tools.builtin.listing import matches
from tests.tools.support import use

SECRET = "the secret outside"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 40


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the root whose name begins like the root's, with something worth reading."""
    folder = tmp_path / "ws-private"
    folder.mkdir()
    (folder / "s.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "in.txt").write_text("inside\n")
    (folder / "sub").mkdir()
    (folder / "sub" / "deep.py").write_text("x = 1\ny = 2\n")
    return folder


@pytest.fixture
def tools(root: Path) -> Toolset:
    return toolset(root, include=("read", "write", "edit", "ls", "glob", "grep"), approve=False)


@pytest.fixture(autouse=True)
def nothing_outside_changes(outside: Path, root: Path) -> Iterator[None]:
    yield
    assert sorted(path.name for path in outside.iterdir()) == ["s.txt"]
    assert (outside / "s.txt").read_text() == SECRET
    assert sorted(path.name for path in outside.parent.iterdir()) == ["ws", "ws-private"]


# -- what they do ----------------------------------------------------------------------------------


async def test_read_gives_text_and_says_where_to_go_on(tools: Toolset, root: Path) -> None:
    assert (await use(tools, "read", path="in.txt")).text == "inside\n"
    (root / "long.txt").write_text("".join(f"line {n}\n" for n in range(1, 5001)))
    first = await use(tools, "read", path="long.txt")
    assert first.text.startswith("line 1\nline 2\n")
    assert "[lines 1 to 2000; there is more: read on with start=2001]" in first.text
    middle = await use(tools, "read", path="long.txt", start=2001, lines=2)
    assert middle.text == "line 2001\nline 2002\n\n[lines 2001 to 2002; there is more: read on with start=2003]"
    last = await use(tools, "read", path="long.txt", start=5000)
    assert last.text == "line 5000\n\n[lines 5000 to 5000, the end of the file]"
    beyond = await use(tools, "read", path="long.txt", start=9999)
    assert beyond.text == "[long.txt has 5000 lines; there is no line 9999]"


async def test_read_stays_within_its_size_without_a_hole_in_the_middle(tools: Toolset, root: Path) -> None:
    (root / "wide.txt").write_text("".join(f"{n:06d} {'x' * 993}\n" for n in range(1000)))
    result = await use(tools, "read", path="wide.txt")
    assert len(result.text) < 40_000
    assert "cut here" not in result.text
    assert "there is more: read on with start=36" in result.text
    (root / "one.txt").write_text("y" * 100_000 + "\nsecond\n")
    assert "[a line longer than 36,000 characters was cut]" in (await use(tools, "read", path="one.txt")).text
    assert (await use(tools, "read", path="one.txt", start=2)).text.startswith("second\n")


async def test_read_tells_media_and_binary_from_text(tools: Toolset, root: Path) -> None:
    (root / "p.dat").write_bytes(PNG)
    picture = await use(tools, "read", path="p.dat")
    assert [part.mime_type for part in picture.content if isinstance(part, MediaPart)] == ["image/png"]
    (root / "b.bin").write_bytes(b"\x7fELF\0\0\0")
    binary = await use(tools, "read", path="b.bin")
    assert binary.text == "<b.bin is binary: 7 bytes, beginning 7f 45 4c 46 00 00 00>"
    (root / "u16.txt").write_text("héllo\n", encoding="utf-16")
    assert (await use(tools, "read", path="u16.txt")).text == "héllo\n"
    (root / "bom.txt").write_text("bom\n", encoding="utf-8-sig")
    assert (await use(tools, "read", path="bom.txt")).text == "bom\n"
    (root / "latin.txt").write_bytes("caf\xe9\n".encode("latin-1"))
    assert (await use(tools, "read", path="latin.txt")).text == "caf\ufffd\n"
    (root / "empty").touch()
    assert (await use(tools, "read", path="empty")).text == "[empty is empty]"


async def test_write_makes_folders_and_keeps_the_mode(tools: Toolset, root: Path) -> None:
    made = await use(tools, "write", path="a/b/new.sh", content="echo é\n")
    assert made.text == "Created a/b/new.sh (8 bytes)."
    (root / "a/b/new.sh").chmod(0o750)
    assert (await use(tools, "write", path="a/b/new.sh", content="x")).text.startswith("Replaced")
    assert (root / "a/b/new.sh").stat().st_mode & 0o777 == 0o750
    assert (root / "a/b/new.sh").read_text() == "x"
    assert [path.name for path in (root / "a/b").iterdir()] == ["new.sh"]
    assert (await use(tools, "write", path="sub", content="x")).is_error
    assert (await use(tools, "write", path="in.txt/x", content="x")).is_error


async def test_edit_replaces_what_is_unique_and_says_why_it_does_not(tools: Toolset, root: Path) -> None:
    (root / "f.py").write_text("def f():\n    return 1\n\ndef g():\n    return 1\n")
    twice = await use(tools, "edit", path="f.py", old="return 1", new="return 2")
    assert "old occurs 2 times (lines 2, 5)" in twice.text
    spaces = await use(tools, "edit", path="f.py", old="def g():\n  return 1", new="")
    assert "differs only in white space from the text at line 4" in spaces.text
    near = await use(tools, "edit", path="f.py", old="def ff():", new="")
    assert "line 1: 'def f():'" in near.text
    assert "old is empty" in (await use(tools, "edit", path="f.py", old="", new="x")).text
    assert "are the same" in (await use(tools, "edit", path="f.py", old="def", new="def")).text
    done = await use(tools, "edit", path="f.py", old="def g():\n    return 1", new="def g():\n    return 2")
    assert done.text == "Edited f.py: replaced once."
    both = await use(tools, "edit", path="f.py", old="def", new="async def", everywhere=True)
    assert both.details == {"path": "f.py", "replaced": 2}
    assert (root / "f.py").read_text() == "async def f():\n    return 1\n\nasync def g():\n    return 2\n"


async def test_edit_keeps_windows_line_ends_and_refuses_what_is_no_text(tools: Toolset, root: Path) -> None:
    (root / "w.txt").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    assert not (await use(tools, "edit", path="w.txt", old="one\ntwo", new="1\n2")).is_error
    assert (root / "w.txt").read_bytes() == b"1\r\n2\r\nthree\r\n"
    (root / "b").write_bytes(b"\xff\xfe\xfd")
    assert "not UTF-8 text" in (await use(tools, "edit", path="b", old="x", new="y")).text


async def test_edit_does_not_overwrite_what_somebody_else_wrote_meanwhile(root: Path) -> None:
    folder = Root(root)
    with folder.open_file("in.txt") as file:
        state = os.fstat(file.fileno())
    (root / "in.txt").write_text("changed by somebody\n")
    with pytest.raises(OSError, match="changed by somebody else"):
        folder.write("in.txt", b"mine", expect=state)
    assert (root / "in.txt").read_text() == "changed by somebody\n"
    assert sorted(path.name for path in root.iterdir()) == ["in.txt", "sub"]


async def test_ls_glob_and_grep(tools: Toolset, root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "config.py").write_text("x = 1\n")
    listed = (await use(tools, "ls")).text
    assert listed == ".git/\nin.txt  7\nsub/"
    assert (await use(tools, "ls", path="sub")).text == "deep.py  12"
    assert (await use(tools, "glob", pattern="*.py")).text == "sub/deep.py"
    assert (await use(tools, "glob", pattern="**/*.txt")).text == "in.txt"
    assert (await use(tools, "glob", pattern=".git/*.py")).text == ".git/config.py"
    assert (await use(tools, "glob", pattern="*.nothing")).text == "[no file fits]"
    found = await use(tools, "grep", pattern=r"^y\s*=")
    assert found.text == "sub/deep.py:2:y = 2"
    assert (await use(tools, "grep", pattern="INSIDE", ignore_case=True)).text == "in.txt:1:inside"
    assert (await use(tools, "grep", pattern="x", path="sub/deep.py")).text == "sub/deep.py:1:x = 1"
    assert "no match in 2 text files" in (await use(tools, "grep", pattern="zzz")).text
    assert "not a regular expression" in (await use(tools, "grep", pattern="(")).text


async def test_names_that_are_no_text_are_shown_and_can_be_stored(tools: Toolset, root: Path) -> None:
    try:
        Path(os.fsdecode(os.fsencode(root) + b"/\xffname.txt")).write_text("hello\n")
    except OSError:
        pytest.skip("this file system takes only text as names")
    for name, arguments in (("ls", {}), ("glob", {"pattern": "*name*"}), ("grep", {"pattern": "hello"})):
        result = await use(tools, name, **arguments)
        assert "\ufffdname.txt" in result.text
        assert ToolResult.model_validate_json(result.model_dump_json()) == result


async def test_a_regular_expression_that_never_ends_does_not_hold_up_the_process(
    tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rein_nb.tools.builtin.matcher.TIMEOUT_S", 0.5)
    (root / "evil.txt").write_text("a" * 60 + "!\n")
    result = await use(tools, "grep", pattern="(a+)+$")
    assert "took longer than" in result.text


def test_patterns() -> None:
    assert matches("a/b/c.py", "**/c.py")
    assert matches("c.py", "**/c.py")
    assert matches("a/b/c.py", "a/**")
    assert not matches("b/c.py", "a/**")
    assert not matches("a/b/c.py", "a/*.py")
    assert matches("a/" * 30 + "z", "**/a/" * 12 + "z")
    assert not matches("a/" * 30 + "z", "**/a/" * 12 + "y")


def test_the_toolset_asks_for_approval_unless_it_is_told_otherwise(root: Path) -> None:
    assert all(tool.requires_approval for tool in toolset(root, include=READING))
    some = toolset(root, include=("read", "write"), approve=["write"])
    assert [bool(tool.requires_approval) for tool in some] == [False, True]
    with pytest.raises(ToolDefinitionError, match="no built-in tool 'rm'"):
        toolset(root, include=("rm",))
    with pytest.raises(ToolDefinitionError, match="no built-in tool 'reed'"):
        toolset(root, include=("read",), approve=("reed",))
    with pytest.raises(ValueError, match="confine nothing"):
        toolset("/", include=READING)
    with pytest.raises(FileNotFoundError):
        toolset(root / "nope", include=READING)


async def test_an_agent_cannot_use_them_without_an_approval(root: Path) -> None:
    def agent(**options: Any) -> Agent:
        call = ToolCall(id="1", name="write", arguments={"path": "new.txt", "content": "x"})
        return Agent(ScriptedProvider.llm(call, "done"), tools=toolset(root, include=("write",)), **options)

    nobody = await agent().arun("go")
    assert nobody.tool_runs[0].result.status == "denied"
    assert not (root / "new.txt").exists()
    asked: list[str] = []
    allowed = await agent(approval=lambda call: not asked.append(call.name)).arun("go")
    assert allowed.tool_runs[0].result.status == "ok"
    assert asked == ["write"]
    assert (root / "new.txt").read_text() == "x"


async def test_a_relative_root_stays_where_it_was(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    tools = toolset(".", include=READING, approve=False)
    monkeypatch.chdir(root.parent / "ws-private")
    assert (await use(tools, "read", path="in.txt")).text == "inside\n"
    assert (await use(tools, "read", path="s.txt")).is_error


# -- getting out -----------------------------------------------------------------------------------

INSIDE = ["in.txt", "./sub/../in.txt", "nothing/../in.txt", "sub//../in.txt", "in_link", "sub/up_link", "abs_in_link"]

OUT = [
    "../ws-private/s.txt",
    "sub/../../ws-private/s.txt",
    "sub/../../../../../../../../etc/passwd",
    "./../ws-private/s.txt",
    "..",
    "../",
    "sub/../..",
    "{out}/s.txt",
    "{root}/../ws-private/s.txt",
    "{root}-private/s.txt",
    "/etc/passwd",
    "//etc/passwd",
    "///etc/passwd",
    "//server/share/x",
    "/proc/self/environ",
    "/proc/self/root/etc/passwd",
    "/dev/stdin",
    "/dev/fd/0",
    "~/x",
    "~",
    "~root/.bashrc",
    "C:\\Windows\\win.ini",
    "C:/Windows/win.ini",
    "..\\ws-private\\s.txt",
    "file:///etc/passwd",
    "in.txt\0.png",
    "\0",
    "\ud800",
    "",
    "  ",
    "a/" * 3000 + "x",
    "n" * 256,
    "link/s.txt",
    "link",
    "link/../link/s.txt",
    "file_link",
    "rel_link/s.txt",
    "sub/climb/ws-private/s.txt",
    "dangling",
    "chain_a",
    "loop_a",
    "sub_escape/s.txt",
    "proc_link",
    "hard",
    "fifo",
    "socket",
    "device",
    "dev_link",
]


@pytest.fixture
def traps(root: Path, outside: Path) -> dict[str, str]:
    """Links, pipes, devices and other names in the root that lead outside, or hang whoever opens them."""
    (root / "in_link").symlink_to("in.txt")
    (root / "sub" / "up_link").symlink_to("../in.txt")
    (root / "abs_in_link").symlink_to(root / "in.txt")
    (root / "link").symlink_to(outside)
    (root / "file_link").symlink_to(outside / "s.txt")
    (root / "rel_link").symlink_to("../ws-private")
    (root / "sub" / "climb").symlink_to("../..")
    (root / "dangling").symlink_to(outside / "new.txt")
    (root / "chain_a").symlink_to("chain_b")
    (root / "chain_b").symlink_to("file_link")
    (root / "loop_a").symlink_to("loop_b")
    (root / "loop_b").symlink_to("loop_a")
    (root / "sub_escape").symlink_to("sub/../../ws-private")
    (root / "proc_link").symlink_to("/proc/self/environ")
    (root / "dev_link").symlink_to("/dev/zero")
    os.link(outside / "s.txt", root / "hard")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
    try:
        os.mknod(root / "device", 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:  # needs rights that a user rarely has; a link to a device is tried above all the same
        (root / "device").symlink_to("/dev/zero")
    return {"out": str(outside), "root": str(root)}


def filled(path: str, traps: dict[str, str]) -> str:
    return path.replace("{out}", traps["out"]).replace("{root}", traps["root"])


@pytest.mark.parametrize("path", INSIDE)
async def test_paths_that_stay_inside_work(tools: Toolset, root: Path, traps: dict[str, str], path: str) -> None:
    assert (await use(tools, "read", path=path)).text == "inside\n"
    assert not (await use(tools, "edit", path=path, old="inside", new="edited")).is_error
    assert not (await use(tools, "write", path=path, content="written")).is_error
    assert (root / "in.txt").read_text() == "written"
    assert (await use(tools, "read", path=f"{root}/{path}")).text == "written"


@pytest.mark.parametrize("path", OUT)
async def test_C130_nothing_leads_out(tools: Toolset, traps: dict[str, str], path: str) -> None:
    path = filled(path, traps)
    results = [
        await use(tools, "read", path=path),
        await use(tools, "edit", path=path, old="secret", new="leaked"),
        await use(tools, "ls", path=path),
        await use(tools, "glob", pattern="*", path=path),
        await use(tools, "grep", pattern="secret|root", path=path),
    ]
    if not path.startswith(("file:", " ")):  # names like any others, for a new file
        results.append(await use(tools, "write", path=path, content="leaked"))
        results.append(await use(tools, "write", path=f"{path}/new.txt", content="leaked"))
    for result in results:
        assert result.is_error, result.text
        assert SECRET not in result.text
        assert "root:" not in result.text


PAIRS = [
    ("../ws-private/s.txt", "../ws-private/n.txt"),
    ("{out}/s.txt", "{out}/n.txt"),
    ("link/s.txt", "link/n.txt"),
    ("file_link", "dangling"),
    ("rel_link/s.txt", "rel_link/n.txt"),
    ("/etc/passwd", "/etc/nassw."),
]


@pytest.mark.parametrize(("there", "not_there"), PAIRS)
async def test_C130_errors_do_not_tell_what_exists_outside(
    tools: Toolset, traps: dict[str, str], there: str, not_there: str
) -> None:
    for name, more in (("read", {}), ("write", {"content": "x"}), ("ls", {}), ("edit", {"old": "a", "new": "b"})):
        texts = []
        for path in (there, not_there):
            path = filled(path, traps)
            text = (await use(tools, name, path=path, **more)).text
            texts.append(text.replace(path, "PATH").replace("n.txt", "s.txt"))
        assert texts[0] == texts[1]


async def test_searches_follow_no_link_and_read_no_other_name(tools: Toolset, traps: dict[str, str]) -> None:
    assert SECRET not in (await use(tools, "grep", pattern="secret")).text
    found = (await use(tools, "glob", pattern="**")).text.splitlines()
    assert "link/s.txt" not in found
    assert "sub/deep.py" in found


async def test_hard_links_are_read_only_where_that_was_allowed(
    root: Path, outside: Path, traps: dict[str, str]
) -> None:
    tools = toolset(root, include=("read", "write", "edit"), approve=False, hard_links=True)
    assert (await use(tools, "read", path="hard")).text == SECRET
    refused = await use(tools, "write", path="hard", content="x")
    assert "further names (hard links)" in refused.text
    assert (await use(tools, "edit", path="hard", old="secret", new="x")).is_error


def test_race_a_folder_that_becomes_a_link_between_check_and_use(root: Path, outside: Path) -> None:
    """One thread swaps a folder and a file for links to the outside as fast as it can; another reads and writes through them."""
    folder = Root(root)
    (root / "real").mkdir()
    (root / "real" / "s.txt").write_text("inside")
    (root / "door").symlink_to(outside)
    (root / "spot").mkdir()
    (root / "spot" / "s.txt").write_text("inside")
    (root / "spot.txt").write_text("inside")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for name, link in (("spot", outside), ("spot.txt", outside / "s.txt")):
                kept = root / f"{name}.kept"
                os.rename(root / name, kept)
                while True:
                    try:
                        os.symlink(link, root / name)
                        os.unlink(root / name)
                        os.rename(kept, root / name)
                        break
                    except OSError:  # the writer makes folders that are missing
                        if (root / name).is_symlink():
                            (root / name).unlink()
                        else:
                            shutil.rmtree(root / name, ignore_errors=True)

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[str] = set()
    written = 0
    try:
        for _ in range(500):
            for path in ("spot/s.txt", "spot.txt"):
                try:
                    with folder.open_file(path) as file:
                        seen.add(file.read().decode())
                except (OSError, ValueError):
                    pass
            try:
                folder.write("spot/w.txt", b"written")
                written += 1
            except (OSError, ValueError):
                pass
    finally:
        stop.set()
        swapper.join()
    assert seen == {"inside"}
    assert written > 0


def test_race_the_last_component_becomes_a_link_before_the_name_is_taken(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Root(root)
    rename = os.rename

    def swapped_just_before(*args: Any, **kwargs: Any) -> None:
        (root / "in.txt").unlink()
        (root / "in.txt").symlink_to(outside / "s.txt")
        rename(*args, **kwargs)

    monkeypatch.setattr(os, "rename", swapped_just_before)
    folder.write("in.txt", b"mine")
    assert not (root / "in.txt").is_symlink()
    assert (root / "in.txt").read_bytes() == b"mine"


def test_race_a_file_becomes_a_link_or_pipe_between_look_and_open(
    root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Root(root)
    real_open = os.open

    def swap_to(make: Any) -> None:
        def opened(path: Any, flags: int, *args: Any, **kwargs: Any) -> int:
            if path == "in.txt":
                (root / "in.txt").unlink()
                make()
            return real_open(path, flags, *args, **kwargs)

        monkeypatch.setattr(os, "open", opened)

    swap_to(lambda: (root / "in.txt").symlink_to(outside / "s.txt"))
    with pytest.raises(OSError, match="symbolic link"), folder.open_file("in.txt"):
        pass
    monkeypatch.undo()
    (root / "in.txt").unlink()
    (root / "in.txt").write_text("again")
    swap_to(lambda: os.mkfifo(root / "in.txt"))
    with pytest.raises(OSError, match="not a regular file"), folder.open_file("in.txt"):
        pass


def test_no_descriptor_is_left_open(root: Path, traps: dict[str, str]) -> None:
    folder = Root(root)
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    if before is None:
        pytest.skip("no /proc: open descriptors cannot be counted here")
    for path in [*INSIDE, *OUT, "sub/deep.py", "sub/climb/ws/in.txt"]:
        try:
            with folder.open_file(filled(path, traps)):
                pass
        except (OSError, ValueError):
            pass
    assert len(os.listdir("/proc/self/fd")) == before
    folder.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_2000_made_up_paths_reach_nothing_outside(root: Path, outside: Path, traps: dict[str, str]) -> None:
    """Whatever opens is a file below the root by the system's own resolution, and nothing outside is ever opened."""
    folder = Root(root)
    letters = random.Random(7)
    names = [
        "..", "..", ".", "", "sub", "in.txt", "deep.py", "link", "file_link", "rel_link", "climb", "chain_a", "up_link", "abs_in_link",
        "s.txt", "ws", "ws-private", "in_link", "loop_a", "~", "etc", "passwd",
    ]  # fmt: skip
    opened = 0
    for _ in range(2000):
        path = "/".join(letters.choice(names) for _ in range(letters.randint(1, 6)))
        path = letters.choice(["", "", "", "/", f"{root}/", f"{outside}/"]) + path
        try:
            with folder.open_file(path) as file:
                content = file.read().decode()
        except (OSError, ValueError):
            continue
        opened += 1
        assert content in ("inside\n", "x = 1\ny = 2\n")
    assert opened > 20
