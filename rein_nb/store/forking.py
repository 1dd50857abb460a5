"""What a lock, and what stands behind it, needs when the process forks.

A forked child has one thread. A lock that another thread held at that moment is never released in it, and what was being changed stays half
changed. So whoever forks takes all these locks first, the outer ones before the inner ones, and the child gets new ones.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Locked(Protocol):
    """Who has a lock. `fork_order` says which are taken first: a lock within which another is taken has the smaller number."""

    fork_order: int
    _lock: threading.RLock

    def before_fork(self) -> None:
        """With the lock held: put away what must not cross a fork."""

    def after_fork_in_child(self) -> None:
        """With a new lock: what is left to do in the child."""


_all: weakref.WeakSet[Locked] = weakref.WeakSet()
_held: list[Locked] = []
_list_lock = threading.Lock()
"""Held while `_all` changes, and during a fork."""


def forks(owner: Locked) -> None:
    """Have `owner` be asked at every fork while it lives."""
    with _list_lock:
        _all.add(owner)


def _before() -> None:
    _list_lock.acquire()
    for owner in sorted(_all, key=lambda owner: owner.fork_order):
        owner._lock.acquire()
        _held.append(owner)
        owner.before_fork()


def _after_in_parent() -> None:
    for owner in _held:
        owner._lock.release()
    _held.clear()
    _list_lock.release()


def _after_in_child() -> None:
    global _list_lock
    for owner in _held:
        owner._lock = threading.RLock()
        owner.after_fork_in_child()
    _held.clear()
    _list_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child)
