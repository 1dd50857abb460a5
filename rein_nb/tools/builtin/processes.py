"""Running a command so that nothing of it is left: its own process group, terminated and then killed, whatever ends the wait.

The wait happens in a thread of its own: cancelling the caller tells it to end the command, and is itself held back until that is done.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

TERMINATE_S = 0.5
"""Seconds between asking a process group to end and killing it."""

DRAIN_S = 0.2
"""Seconds to read on after the command itself has ended: what it left behind may hold its output open for ever."""

MAX_OUTPUT = 2**20
"""Bytes kept of a command's output: the first half and the last half."""

_SLICE_S = 0.05


@dataclass(slots=True)
class Finished:
    """How a command ended.

    Attributes
    ----------
    how
        ``exited``, ``timed_out`` or ``stopped``.
    code
        Exit status; negative for a signal.
    output
        stdout and stderr together, in the order in which they came.
    left_behind
        Whether processes were still running when the command itself had ended; they were ended too.
    """

    how: Literal["exited", "timed_out", "stopped"]
    code: int | None
    output: str
    duration_s: float
    left_behind: bool = False


class _Output:
    def __init__(self) -> None:
        self._head: list[bytes] = []
        self._tail: deque[bytes] = deque()
        self._head_size = self._tail_size = self._dropped = 0

    def add(self, data: bytes) -> None:
        if self._head_size < MAX_OUTPUT // 2:
            self._head.append(data)
            self._head_size += len(data)
            return
        self._tail.append(data)
        self._tail_size += len(data)
        while self._tail_size - len(self._tail[0]) >= MAX_OUTPUT // 2:
            gone = len(self._tail.popleft())
            self._tail_size -= gone
            self._dropped += gone

    def text(self) -> str:
        marker = f"\n[... {self._dropped:,} bytes of output were dropped here ...]\n".encode() if self._dropped else b""
        return (b"".join(self._head) + marker + b"".join(self._tail)).decode("utf-8", "replace")


def run(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float | None,
    stop: threading.Event,
    on_output: Callable[[str], None] | None = None,
    descriptors: Collection[int] = (),
) -> Finished:
    """Run a command to its end, its timeout (seconds) or the moment `stop` is set. Blocks the calling thread.

    `descriptors` are open in the command too.

    Raises
    ------
    OSError
        When the command cannot be started.
    """
    started = time.monotonic()
    output = _Output()
    how: Literal["exited", "timed_out", "stopped"] = "exited"
    child = subprocess.Popen(
        list(command), cwd=cwd, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, pass_fds=tuple(descriptors),
    )  # fmt: skip
    assert child.stdout is not None
    descriptor = child.stdout.fileno()
    os.set_blocking(descriptor, False)
    ended_at: float | None = None
    left_behind = False
    try:
        while True:
            if stop.is_set():
                how = "stopped"
                break
            now = time.monotonic()
            if timeout_s is not None and now - started > timeout_s:
                how = "timed_out"
                break
            open_still = _read(descriptor, output, _SLICE_S, on_output)
            if _has_exited(child):
                ended_at = ended_at or now
                left_behind = open_still
                if not open_still or now - ended_at > DRAIN_S:
                    break
            elif not open_still:
                time.sleep(_SLICE_S)
    finally:
        _end_group(child)
        _end_strays(env)
        _read(descriptor, output, 0.0, on_output)
        child.stdout.close()
    return Finished(how, child.returncode, output.text(), time.monotonic() - started, left_behind)


def _read(descriptor: int, output: _Output, wait_s: float, on_output: Callable[[str], None] | None) -> bool:
    """Take what there is; False at the end of the stream."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    ready = poll.poll(wait_s * 1000)
    while ready:
        try:
            data = os.read(descriptor, 65536)
        except BlockingIOError:
            return True
        if not data:
            return False
        output.add(data)
        if on_output is not None:
            on_output(data.decode("utf-8", "replace"))
        ready = poll.poll(0)
    return True


def _has_exited(child: subprocess.Popen[bytes]) -> bool:
    """Whether the command is over. It is not reaped where that can be helped, so that its number stays its group's alone."""
    if not hasattr(os, "waitid"):
        return child.poll() is not None
    try:
        return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:  # somebody else reaped it
        return True


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End whatever is left of the command's process group, and reap the command."""
    _signal(child, signal.SIGTERM)
    end = time.monotonic() + TERMINATE_S
    while time.monotonic() < end:
        child.poll()
        if not _group_lives(child):
            break
        time.sleep(0.01)
    else:
        _signal(child, signal.SIGKILL)
    child.wait()


def _group_lives(child: subprocess.Popen[bytes]) -> bool:
    """Whether a process of the group still runs. One that only waits to be reaped by somebody else (a zombie) does not."""
    if not _signal(child, 0):
        return False
    if not os.path.exists("/proc/self/stat"):
        return True
    group = str(child.pid)
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
                # pid (name) state parent group ...; the name may hold anything, also parentheses.
                state, _, its_group = file.read().rpartition(")")[2].split()[:3]
        except OSError:  # gone meanwhile
            continue
        if its_group == group and state not in "ZX":
            return True
    return False


def _signal(child: subprocess.Popen[bytes], number: int) -> bool:
    try:
        os.killpg(child.pid, number)
    except (ProcessLookupError, PermissionError):
        # macOS answers PermissionError for a group of which only zombies are left.
        return False
    return True


MARK = "REIN_NB_COMMAND"
"""Environment variable that marks a command's processes, so that those which left its process group are found too (Linux)."""


def _end_strays(env: Mapping[str, str]) -> None:
    """Kill what carries the command's mark, and look again until nothing does: it may just have started more, and dies a moment later."""
    mark = env.get(MARK)
    if not mark or not os.path.isdir("/proc/self"):
        return
    end = time.monotonic() + TERMINATE_S
    while _kill_marked(f"{MARK}={mark}".encode()) and time.monotonic() < end:
        time.sleep(0.01)


def _kill_marked(mark: bytes) -> bool:
    """Whether there was a process with this in its environment."""
    found = False
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark in file.read().split(b"\0"):
                    found = True
                    os.kill(int(name), signal.SIGKILL)
        except OSError:  # gone meanwhile, or another user's
            continue
    return found


async def run_async(
    command: Sequence[str],
    *,
    cwd: str,
    env: Mapping[str, str],
    timeout_s: float | None,
    on_output: Callable[[str], None] | None = None,
    descriptors: Collection[int] = (),
) -> Finished:
    """`run` for a coroutine. Cancelling it ends the command and returns what there was, instead of raising."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Finished] = loop.create_future()
    stop = threading.Event()

    def settle(result: Finished | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif result is not None:
            done.set_result(result)

    def work() -> None:
        result, error = None, None
        try:
            result = run(
                command, cwd=cwd, env=env, timeout_s=timeout_s, stop=stop, on_output=on_output, descriptors=descriptors
            )
        except Exception as exc:
            error = exc
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:  # the loop is closed: nobody waits any more, and the command is over
            return

    # bubblewrap's --die-with-parent looks at the thread that started it: this one lives until the command is over.
    threading.Thread(target=work, name="rein_nb-command", daemon=True).start()
    while not done.done():
        try:
            await asyncio.wait((done,))
        except asyncio.CancelledError:
            stop.set()
    return done.result()
