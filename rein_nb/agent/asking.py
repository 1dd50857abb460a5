"""Asking the user's own functions: hooks, approvals, checks, compaction. They may be plain or async, take their time, and raise anything.

A plain one runs in a thread, for it may block and the event loop is shared by all runs; an async one runs on the loop. A run's plain ones
are asked one after the other, as they would be on the loop: two that ask a person would speak at the same time.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import time
from collections.abc import Callable, Collection, Coroutine
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, cast

from rein_nb.ir.errors import said
from rein_nb.stream import CancellationToken
from rein_nb.tools.callables import callable_name, is_async
from rein_nb.tools.execute import Ended, EndsRun, call_in_thread, run_guarded

if TYPE_CHECKING:
    from rein_nb.agent.state import RunState

T = TypeVar("T")

GRACE_S = 2.0
"""How long the functions that look at a stopped run's last results may take, all together, seconds."""


_one_by_one: ContextVar[asyncio.Lock | None] = ContextVar("rein_nb_one_by_one", default=None)


class Stopped(Exception):
    """The run was stopped while a function was asked."""


async def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """What a user's function answers, awaited where it can be. What it raises is always an `Exception`.

    Anything else would be taken by the task, or by the event loop itself, for an order to go down.

    Raises
    ------
    AbortRun, EndsRun
        To end the run; the second carries a KeyboardInterrupt.
    Exception
        Whatever else it raised.
    """
    task = asyncio.current_task()
    try:
        if is_async(function):
            return await function(*arguments)
        async with _one_by_one.get() or contextlib.nullcontext():
            answer = await call_in_thread(lambda: function(*arguments), callable_name(function))
        return await answer if inspect.isawaitable(answer) else answer
    except KeyboardInterrupt as exc:
        raise EndsRun(exc) from exc
    except SystemExit as exc:
        raise RuntimeError(f"it called exit({exc.code!r})") from exc
    except asyncio.CancelledError as exc:
        if task is None or task.cancelling():
            raise
        raise RuntimeError("it was cancelled from inside") from exc
    except Exception:
        raise
    except BaseException as exc:  # a test framework's own, a group
        if is_closed(exc, task):
            raise
        raise RuntimeError(f"it raised {type(exc).__name__}: {said(exc)}") from exc


def is_closed(exc: BaseException, task: asyncio.Task[Any] | None) -> bool:
    """Whether an exception says that the coroutine of this task is closed, its loop being gone: then nothing may be awaited any more.

    It comes from outside, while the task is not running; a GeneratorExit that is raised inside is a fault like another.
    """
    if not isinstance(exc, GeneratorExit):
        return False
    try:
        return asyncio.current_task() is not task
    except RuntimeError:  # no loop is running
        return True


async def outlast(tasks: Collection[asyncio.Future[Any]], cancelled: Callable[[], None]) -> bool:
    """Wait until all tasks are done, however often the waiter is cancelled meanwhile; whether it was.

    Parameters
    ----------
    tasks
        Wait for these.
    cancelled
        Called at each cancellation; it has the tasks come to an end.
    """
    was = False
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError:
            was = True
            cancelled()
    return was


def as_flag(answer: Any) -> bool | None:
    """A yes or no, also NumPy's (a comparison of an array's items); None for anything else. Nothing is compared with it, which could fail."""
    if isinstance(answer, bool) or (type(answer).__module__ == "numpy" and type(answer).__name__ in ("bool", "bool_")):
        return bool(answer)
    return None


def _asking(run: RunState, asked: Callable[[], Coroutine[Any, Any, T]]) -> Callable[[], asyncio.Future[T]]:
    async def in_turn() -> T:
        _one_by_one.set(run.one_by_one)
        return await asked()

    return lambda: asyncio.ensure_future(in_turn())


async def stoppable(run: RunState, asked: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """What the functions asked say, as long as the run goes on.

    Raises
    ------
    Stopped
        When the run was stopped first; they are cancelled.
    """
    ended = await run_guarded(_asking(run, asked), run.token, None)
    return cast(T, _answer(ended))


async def within_grace(run: RunState, asked: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """As `stoppable`, for those who shall see a stopped run's results too: from the stop on they have a moment.

    Raises
    ------
    Stopped
        When they did not answer in time.
    """
    if not run.token.is_cancelled:
        ended = await run_guarded(_asking(run, asked), run.token, None, notice_s=GRACE_S)
        return cast(T, _answer(ended))
    now = time.monotonic()
    if run.grace_ends is None:
        run.grace_ends = now + GRACE_S
    left = max(0.0, run.grace_ends - now)
    ended = await run_guarded(_asking(run, asked), CancellationToken(), left)
    return cast(T, _answer(ended))


def _answer(ended: Ended) -> Any:
    if ended.how == "raised" and ended.error is not None:
        raise ended.error
    if not ended.has_value:
        raise Stopped
    return ended.value
