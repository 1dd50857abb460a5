"""Daemon threads for synchronous tools: as many as there is work at the same time, used again while work keeps coming.

A pool of fixed size would make the ninth tool wait for the first; a thread a call costs more than most tools. So there is one for each
piece of work that finds no idle one, and an idle one waits a moment for the next before it ends. A thread in which an exception was
raised from outside is not used again.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable

IDLE_S = 1.0
"""How long a thread without work waits for more before it ends, seconds."""

IDLE_NAME = "rein_nb-tool-idle"


class ToolStopped(BaseException):
    """Raised inside the thread of a synchronous tool whose result is no longer wanted."""


_lock = threading.Lock()
_idle: list[_Thread] = []


def run_in_thread(work: Callable[[], bool], name: str) -> None:
    """Start `work` in a daemon thread that has nothing else to do.

    Parameters
    ----------
    work
        Returns whether its thread may be used again. It must not raise anything but `ToolStopped`.
    name
        The thread's name while it works.
    """
    with _lock:
        thread = _idle.pop() if _idle else None
    if thread is None:
        _Thread(work, name)
    else:
        thread.take(work, name)


class _Thread:
    """One thread, and the box through which work comes to it."""

    def __init__(self, work: Callable[[], bool], name: str) -> None:
        self._box: queue.SimpleQueue[tuple[Callable[[], bool], str]] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True, name=name)
        self.take(work, name)
        self._thread.start()

    def take(self, work: Callable[[], bool], name: str) -> None:
        """Hand over the next piece of work."""
        self._box.put((work, name))

    def _run(self) -> None:
        try:
            while True:
                work, self._thread.name = self._next()
                if not work():
                    return
                del work  # what it holds must not live on while nothing is done
                self._thread.name = IDLE_NAME
                with _lock:
                    _idle.append(self)
        except (ToolStopped, queue.Empty):
            return

    def _next(self) -> tuple[Callable[[], bool], str]:
        """The next piece of work.

        Raises
        ------
        queue.Empty
            When none came in time.
        """
        try:
            return self._box.get(timeout=IDLE_S)
        except queue.Empty:
            with _lock:
                if self in _idle:
                    _idle.remove(self)
                    raise
            return self._box.get()  # somebody took this thread at the last moment: the work is on its way


def _after_fork() -> None:
    """The threads of a parent are not in a forked child, and nobody there will let go of its lock."""
    global _lock
    _lock = threading.Lock()
    _idle.clear()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_after_fork)
