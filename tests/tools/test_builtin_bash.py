"""The bash tool: its sandbox, what it says when there is none, and that nothing of a command outlives it."""

from __future__ import annotations

import asyncio
import gc
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.stream import CancellationToken
from rein_nb.tools import Tool, ToolContext, ToolDefinitionError
from rein_nb.tools.builtin import NotConfinedWarning, processes, sandbox, toolset

SECRET = "the secret outside"
WHY_NOT = sandbox.unavailable_because()
needs_sandbox = pytest.mark.skipif(WHY_NOT is not None, reason=f"NO SANDBOX TESTED HERE: {WHY_NOT}")
needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
pytestmark = needs_bash


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    (folder / "in.txt").write_text("inside\n")
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "s.txt").write_text(SECRET)
    (folder / "s.txt").chmod(0o666)
    folder.chmod(0o777)
    return folder


def bash(root: Path, **options: Any) -> Tool:
    return toolset(root, include=("bash",), approve=False, **options)["bash"]


async def run(tool: Tool, command: str, token: CancellationToken | None = None, **arguments: Any) -> ToolResult:
    call = ToolCall(id="1", name="bash", arguments={"command": command, **arguments})
    return await tool.call(call, ToolContext(call=call, token=token or CancellationToken()))


@pytest.fixture
def free(root: Path) -> Tool:
    return bash(root, confine="off")


# -- results ---------------------------------------------------------------------------------------


async def test_output_and_exit_status(free: Tool) -> None:
    good = await run(free, "cat in.txt; echo err >&2")
    assert (good.text, good.status) == ("inside\nerr", "ok")
    bad = await run(free, "echo before; exit 3")
    assert (bad.text, bad.status) == ("before\n[exit status 3]", "error")
    assert bad.details["exit_status"] == 3
    assert (await run(free, "true")).text == "(no output)"
    assert (await run(free, "read -r x; echo got:$x")).text == "got:"
    assert (await run(free, "echo a\0b")).is_error


async def test_much_output_is_cut_in_the_middle(free: Tool) -> None:
    result = await run(free, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last")
    output = result.details["output"]
    assert output.startswith("first\n")
    assert output.endswith("last\n")
    assert "bytes of output were dropped here" in output
    assert len(output) < 1_300_000


@pytest.mark.parametrize("confine", ["off", pytest.param("require", marks=needs_sandbox)])
async def test_a_command_longer_than_an_argument_may_be_runs_like_any_other(root: Path, confine: Any) -> None:
    tool = bash(root, confine=confine)
    long = "é" * 150_000
    look = "read -r x; echo got:$x $#; ls /proc/self/fd 2>/dev/null | wc -l"
    ran = await run(tool, f"cat > long.txt <<'EOF'\n  {long}\nEOF\n{look}")
    assert (root / "long.txt").read_text() == f"  {long}\n"
    short = await run(tool, look)
    assert short.text.startswith("got: 0\n")
    assert (ran.text, ran.status) == (short.text, "ok")
    failed = await run(tool, f": {long}\nfalse\n(exit 7)")
    assert failed.details["exit_status"] == 7
    wrong = await run(tool, f": {long}\n(")
    assert wrong.is_error
    assert "syntax error" in wrong.text


async def test_half_a_character_in_a_command_is_refused_in_words(free: Tool) -> None:
    refused = await run(free, "echo \ud800")
    assert refused.is_error
    assert "the command has half of a character, the unpaired surrogate U+D800, at position 5" in refused.text
    assert (await run(free, "echo \ud83d\ude00")).text == "😀"


async def test_progress_is_the_newest_line(root: Path) -> None:
    seen: list[str] = []
    call = ToolCall(id="1", name="bash", arguments={"command": "echo one; sleep 0.4; echo two"})
    ctx = ToolContext(call=call, on_progress=lambda progress: seen.append(progress.message))
    await bash(root, confine="off").call(call, ctx)
    assert seen == ["one", "two"]


def test_it_says_when_it_is_not_confined(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "unavailable_because", lambda: "bubblewrap (bwrap) is not installed")
    with pytest.warns(NotConfinedWarning, match="is not installed"):
        tool = bash(root)
    assert "NOT CONFINED (bubblewrap (bwrap) is not installed)" in tool.description
    assert "NOT CONFINED" in tool.spec().description
    with pytest.raises(ToolDefinitionError, match="cannot be confined"):
        bash(root, confine="require")


async def test_secrets_in_the_environment_are_kept_back(free: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "value-one")
    monkeypatch.setenv("HARMLESS", "sk-abcdefghijklmnopqrstuvwx")
    monkeypatch.setenv("PLAIN", "plain-value")
    result = await run(free, "env")
    assert "value-one" not in result.text
    assert "sk-abc" not in result.text
    assert "PLAIN=plain-value" in result.text


# -- ending ----------------------------------------------------------------------------------------


def alive(mark: str) -> list[str]:
    listed = subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout
    return [line for line in listed.splitlines() if mark in line and "ps -ewwo" not in line]


@pytest.fixture(params=["free", pytest.param("confined", marks=needs_sandbox)])
def either(request: pytest.FixtureRequest, root: Path) -> Tool:
    return bash(root, confine="off" if request.param == "free" else "require")


@pytest.fixture
def mark() -> Iterator[str]:
    """A number of seconds that only this test's processes sleep."""
    number = f"61.{os.getpid()}{time.monotonic_ns() % 10**6}"
    yield number
    assert alive(number) == []


STUBBORN = "echo started; trap '' TERM; sleep {0} & setsid sleep {0} & nohup sleep {0} > /dev/null 2>&1 & (trap '' TERM; sleep {0}); sleep {0}"


async def test_C100_a_timeout_ends_every_process_and_keeps_the_output(either: Tool, mark: str) -> None:
    started = time.monotonic()
    result = await run(either, STUBBORN.format(mark), timeout_s=0.7)
    assert time.monotonic() - started < 5
    assert result.status == "timed_out"
    assert result.text.startswith("started\n[ended after 0.7 s")
    assert alive(mark) == []


async def test_C100_a_cancelled_run_ends_every_process_and_keeps_the_output(either: Tool, mark: str) -> None:
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.7, token.cancel, "stop button")
    started = time.monotonic()
    result = await run(either, STUBBORN.format(mark), token)
    assert time.monotonic() - started < 5
    assert result.status == "interrupted"
    assert result.text.startswith("started\n[interrupted")
    assert result.details["started"] is True
    assert alive(mark) == []


async def test_C100_cancelling_the_task_does_not_cut_the_wait_for_the_child_short(either: Tool, mark: str) -> None:
    task = asyncio.ensure_future(run(either, STUBBORN.format(mark)))
    await asyncio.sleep(0.7)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(mark) == []


@pytest.mark.skipif(sys.platform != "linux", reason="marked processes are found under /proc")
def test_what_left_its_process_group_is_gone_when_the_wait_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    env = {**os.environ, processes.MARK: f"test-{os.getpid()}"}
    stray = subprocess.Popen(["sleep", "60"], env=env, start_new_session=True)
    kill, asked = os.kill, set[int]()

    def slow_to_die(pid: int, number: int) -> None:
        if pid in asked:
            kill(pid, number)
        asked.add(pid)

    monkeypatch.setattr(os, "kill", slow_to_die)
    try:
        processes._end_strays(env)
        assert stray.wait(timeout=5) == -9
    finally:
        monkeypatch.undo()
        stray.kill()


async def test_what_a_command_leaves_in_the_background_ends_with_it(either: Tool, mark: str) -> None:
    started = time.monotonic()
    result = await run(either, f"sleep {mark} & echo done")
    assert time.monotonic() - started < 5
    assert result.text.startswith("done")
    assert alive(mark) == []
    silent = await run(either, f"nohup sleep {mark} >/dev/null 2>&1 & echo done")
    assert silent.text == "done"
    assert alive(mark) == []


async def test_many_commands_leave_no_descriptor_thread_or_zombie(free: Tool) -> None:
    async def one() -> None:
        token = CancellationToken()
        asyncio.get_running_loop().call_later(0.02, token.cancel)
        await run(free, "sleep 5", token)

    await one()
    gc.collect()  # what other tests left open to be collected is not this one's
    before = len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else None
    await asyncio.gather(*(one() for _ in range(10)))
    if before is None:
        pytest.skip("no /proc: open descriptors cannot be counted here")
    assert len(os.listdir("/proc/self/fd")) == before
    zombies = subprocess.run(["ps", "-o", "stat", "--ppid", str(os.getpid())], capture_output=True, text=True).stdout
    assert "Z" not in zombies


# -- the sandbox -----------------------------------------------------------------------------------

ESCAPES = [
    "cat {out}/s.txt",
    "cat {root}/../outside/s.txt",
    "cat ../outside/s.txt",
    "cd .. && cat outside/s.txt",
    "ls {out}",
    "find /tmp /root /home /mnt /var /run -name s.txt -exec cat {{}} + 2>/dev/null; false",
    "ln -s {out}/s.txt l && cat l",
    "ln {out}/s.txt l && cat l",
    "mkdir d && cd d && cat ../../outside/s.txt",
    "cat /proc/1/root{out}/s.txt",
    "cat /proc/self/root{out}/s.txt",
    "cat /proc/self/cwd/../outside/s.txt",
    "cat /proc/$PPID/root{out}/s.txt",
    "for p in /proc/[0-9]*; do cat $p/root{out}/s.txt && exit 0; done; false",
    "for f in /proc/*/fd/*; do [ -f $f ] && grep 'the secret' $f && exit 0; done; false",
    "cat /etc/shadow",
    "cat /etc/passwd",
    "cat ~root/.bashrc",
    "cat ~root/.bashrc ~root/.profile ~root/.gitconfig",
    "ls -d /home /var /mnt /opt /boot /srv | grep .; false",
    "echo x > {out}/new.txt",
    "echo x > {out}/s.txt",
    "rm -rf {out} && false",
    "mv {out}/s.txt . && cat s.txt",
    "chmod 777 {out}/s.txt",
    "echo x > /usr/escaped",
    "echo x > /etc/escaped",
    "echo x > /escaped",
    "echo x > /bin/escaped",
    "touch {python}/escaped",
    "mount --bind / /mnt && cat /mnt{out}/s.txt",
    "mount -o remount,rw / && echo x > /escaped",
    "mount -t proc proc /proc && cat /proc/1/environ | grep -a OUTER",
    "unshare -r -m sh -c 'mount --bind / /tmp && cat /tmp{out}/s.txt'",
    "nsenter -t 1 -m cat {out}/s.txt",
    "chroot / cat {out}/s.txt",
    "mknod dev b 8 0 && cat dev",
    "mknod mem c 1 1 && head -c 16 mem",
    "cat /dev/mem",
    "cat /dev/sda",
    "ls /sys/kernel | grep .",
    "n=$(cat /proc/sys/kernel/panic) && echo $n > /proc/sys/kernel/panic",
    "mount -o remount,rw /proc && n=$(cat /proc/sys/kernel/panic) && echo $n > /proc/sys/kernel/panic",
    "unshare -Urpf --mount-proc sh -c 'n=$(cat /proc/sys/kernel/panic) && echo $n > /proc/sys/kernel/panic'",
    "kill -0 {pid}",
    "kill -9 {pid}",
    "ls /proc/{pid}",
    "cat /proc/1/environ | tr '\\0' '\\n' | grep OUTER_SECRET",
    "env | grep OUTER_SECRET",
    "cat /proc/$PPID/environ | tr '\\0' '\\n' | grep OUTER_SECRET",
    "exec 3<>/dev/tcp/127.0.0.1/{port} && cat <&3",
    "{exe} -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}), 2)'",
    "{exe} -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"\\0rein-nb-test-{pid}\")'",
    "{exe} -c 'import socket; s = socket.socket(socket.AF_UNIX); s.connect(\"{out}/sock\")'",
    "ls /run/user /var/run /run | grep -v : | grep .",
    "ls {shared_tmp}",
    "{exe} -c 'import os; os.open(\"{out}/s.txt\", 0)'",
    "{exe} -c 'import os; os.setuid(0); print(open(\"{out}/s.txt\").read())'",
    "{exe} -c 'import ctypes; raise SystemExit(ctypes.CDLL(None).ptrace(16, {pid}, 0, 0) != 0)'",
    "hostname -F /dev/null; test $(hostname) != sandbox",
    "grep -a 'CapEff.*[1-9a-f]' /proc/self/status",
    "tty",
    "{exe} -c 'import fcntl, termios; fcntl.ioctl(0, termios.TIOCSTI, b\"x\")'",
]


@needs_sandbox
@pytest.mark.parametrize("attempt", ESCAPES)
async def test_no_command_gets_out_of_the_sandbox(
    root: Path, outside: Path, attempt: str, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    monkeypatch.setenv("OUTER_SECRET", "outer-value")
    shared = tmp_path_factory.mktemp("shared")
    listeners = [socket.create_server(("127.0.0.1", 0))]
    for address in (f"\0rein-nb-test-{os.getpid()}", str(outside / "sock")):
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(address)
        unix.listen()
        unix.setblocking(False)
        listeners.append(unix)
    listeners[0].setblocking(False)
    before = sorted(path.name for path in outside.iterdir())
    held_open = open(outside / "s.txt")  # noqa: SIM115 - a descriptor that must not be inherited
    try:
        command = attempt.format(
            out=outside, root=root, pid=os.getpid(), port=listeners[0].getsockname()[1], exe=sys.executable,
            python=sys.prefix, shared_tmp=shared,
        )  # fmt: skip
        result = await run(bash(root, confine="require", timeout_s=20.0), command)
        for listener in listeners:
            with pytest.raises(BlockingIOError):
                listener.accept()
    finally:
        held_open.close()
        for listener in listeners:
            listener.close()
    assert result.status == "error", result.text
    assert SECRET not in result.text
    assert "outer-value" not in result.text
    assert "root:x:" not in result.text
    assert "root:*:" not in result.text
    assert sorted(path.name for path in outside.iterdir()) == before
    assert (outside / "s.txt").read_text() == SECRET
    assert not any(Path(place, "escaped").exists() for place in ("/", "/usr", "/etc", "/bin", sys.prefix))


@needs_sandbox
async def test_inside_the_sandbox_work_can_be_done(root: Path) -> None:
    tool = bash(root, confine="require")
    assert tool.description.startswith("Run a bash command in a sandbox.")
    result = await run(
        tool, "pwd; cat in.txt; mkdir -p a/b && echo made > a/b/f && cat a/b/f; echo t > /tmp/t && cat /tmp/t; cd; pwd"
    )
    assert result.text == f"{root}\ninside\nmade\nt\n/tmp/home"
    assert result.details["confined"] is True
    assert (root / "a/b/f").read_text() == "made\n"
    python = await run(
        tool,
        f"{sys.executable} -c 'import pydantic, ssl; print(pydantic.__name__)'; echo x | sort | uniq -c | awk '{{print $1}}'",
    )
    assert python.text == "pydantic\n1"
    processes = await run(tool, "ls -d /proc/[0-9]* | wc -l")
    assert int(processes.text) < 8


@needs_sandbox
async def test_hard_links_do_not_reach_into_the_sandbox_from_there(root: Path, outside: Path) -> None:
    """The sandbox cannot make a name for an outside file in its folder, which the file tools could then open."""
    result = await run(bash(root, confine="require"), f"ln {outside}/s.txt hard; ln /usr/bin/env hard2; ls")
    assert "hard" not in result.text.splitlines()[-1]
    assert sorted(path.name for path in root.iterdir()) == ["in.txt"]
