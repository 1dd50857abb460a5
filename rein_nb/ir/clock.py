"""Where the times and ids in results come from.

Usually from the machine's clock, and ids are random. While a recording is played back a `Source` stands in for both: an id is a hash of what
it is for, time begins when the recording was made and passes only by what the recording says. What is played back twice is then equal to the
byte, however fast it is played and whatever runs at the same time: no clock is shared by runs, and no counter by what differs.

A model call tells its own time by `rein_nb.ir.deltas.Elapsed`; what is here is for what is made of calls.

With ``REIN_NB_STEADY=1`` in the environment a real run measures nothing: its times are unknown and its ids hashes too, so that a model that
answers the same each time gives the same result each time, and the outputs saved in a notebook change when something else did.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import time
import uuid
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

STEADY_VARIABLE = "REIN_NB_STEADY"
"""Environment variable: ``1`` for results without the machine's times."""


def steady() -> bool:
    """Whether results are to have no times of the machine."""
    return os.environ.get(STEADY_VARIABLE, "0") not in ("", "0")


def measured(value: T) -> T | None:
    """A time that was measured, for a result; None where results have none."""
    return None if steady() else value


class Call(Protocol):
    """A model call that is going on."""

    @property
    def recorded(self) -> bool:
        """Whether it is played back."""

    def elapsed(self) -> float:
        """Seconds since it began."""


class RunClock:
    """The time of one run: the machine's.

    Parameters
    ----------
    run_id
        The run's id.
    lane
        What the run is and how many equal ones were made before it, as a short text, where somebody counts; tells repetitions apart.
    owner
        What stands for the agent whose run it is.

    Attributes
    ----------
    started_at
        Unix time at which the run began, seconds; 0.0 before.
    steady
        Whether results have no times of the machine, as it was when the run was made.
    now
        Gives the Unix time, seconds. An attribute, so that a real run's events ask the machine without a call between.
    """

    replayed = False

    def __init__(self, run_id: str, lane: str | None = None, owner: object = None) -> None:
        self.run_id = run_id
        self.lane = lane
        self.owner = owner
        self.started_at = 0.0
        self.now: Callable[[], float] = time.time
        self.steady = steady()
        self._begun = 0.0

    def begin(self) -> Token[RunClock | None]:
        """Start the clock, and have what runs in this context go by it until `end`."""
        self.started_at = time.time()
        self._begun = time.perf_counter()
        return _running.set(self)

    def end(self, token: Token[RunClock | None]) -> None:
        """Give the context back the clock that it had before."""
        # What is closed because its loop is gone is closed in whatever context finds it.
        with contextlib.suppress(ValueError):
            _running.reset(token)

    def elapsed(self) -> float:
        """Seconds since the run began; 0.0 before."""
        return time.perf_counter() - self._begun if self._begun else 0.0

    def told(self, value: T) -> T | None:
        """A time by this clock, for a result; None where results have none."""
        return None if self.steady else value

    def follow(self, call: Call) -> None:
        """A model call began."""

    def settle(self, seconds: float | None) -> None:
        """The model call is over, after so many seconds."""


class ReplayedClock(RunClock):
    """The time of a run that is played back: the sum of its model calls' recorded times."""

    replayed = True

    def __init__(self, run_id: str, lane: str, owner: object, source: Source, started_at: float) -> None:
        super().__init__(run_id, lane, owner)
        self.source = source
        self.started_at = started_at
        self.now = self._now
        self._spent = 0.0
        self._call: Call | None = None

    def begin(self) -> Token[RunClock | None]:
        """Have what runs in this context go by this clock until `end`."""
        return _running.set(self)

    def _now(self) -> float:
        return self.started_at + self.elapsed()

    def told(self, value: T) -> T | None:
        """A recorded time is the same each time."""
        return value

    def elapsed(self) -> float:
        """Recorded seconds since the run began."""
        call = self._call
        # Before its first recorded event a call's clock is still the machine's.
        return self._spent + (call.elapsed() if call is not None and call.recorded else 0.0)

    def follow(self, call: Call) -> None:
        """A model call began."""
        self._call = call

    def call_started_at(self) -> float:
        """When the model call that is going on began: Unix time, seconds."""
        return self.started_at + self._spent

    def settle(self, seconds: float | None) -> None:
        """The model call is over, after so many recorded seconds."""
        self._call = None
        self._spent += seconds or 0.0


class Source:
    """Times and ids for what a recording answers.

    Parameters
    ----------
    name
        Goes into every id.
    started_at
        The Unix time at which everything begins, seconds. None counts equal runs only (their `lane`): times and ids stay the machine's.
    covers
        Whose runs it is for, given the provider object and the run's `owner`; None for all.
    """

    def __init__(
        self, name: str, started_at: float | None, covers: Callable[[object, object], bool] | None = None
    ) -> None:
        self.started_at = started_at
        self._name = name
        self._covers = covers
        self._made: dict[str, int] = {}
        self._lock = threading.Lock()

    def covers(self, provider: object = None, owner: object = None) -> bool:
        """Whether runs of `owner` on `provider` go by this source; None stands for what belongs to nobody."""
        return self._covers is None or self._covers(provider, owner)

    def new_id(self, *what: Any) -> str:
        """An id for `what`, another one each time."""
        running = _running.get()
        inside = running.run_id if running is not None and running.replayed else ""
        return self._counted(self._name, inside, *what)[0]

    def lane(self, what: tuple[Any, ...]) -> str:
        """The lane of a new run that is `what`: the same in every process that makes the same runs in the same order."""
        _, key, count = self._counted("lane", *what)
        return f"{key[:12]}.{count}"

    def _counted(self, *what: Any) -> tuple[str, str, int]:
        text = json.dumps(what, sort_keys=True, default=str)
        key = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        with self._lock:
            count = self._made.get(key, 0)
            self._made[key] = count + 1
        return hashlib.sha256(f"{key}:{count}".encode()).hexdigest()[:32], key, count


_running: ContextVar[RunClock | None] = ContextVar("rein_nb_run_clock", default=None)
_calls: ContextVar[tuple[str, ...]] = ContextVar("rein_nb_calls", default=())
_sources: list[Source] = []
_steady_ids = Source("steady", None)
_lock = threading.Lock()


def install(source: Source) -> Callable[[], None]:
    """Have `source` give times and ids. Returns a function that takes it away; the one installed last counts."""
    with _lock:
        _sources.append(source)

    def remove() -> None:
        with _lock:
            if source in _sources:
                _sources.remove(source)

    return remove


def _source(provider: object = None, owner: object = None) -> Source | None:
    return next((source for source in reversed(_sources) if source.covers(provider, owner)), None) if _sources else None


def for_run(
    provider: object, what: Callable[[], tuple[Any, ...]], *, owner: object = None, after: RunClock | None = None
) -> RunClock:
    """The clock of a new run, with its id.

    Parameters
    ----------
    provider
        Who answers it first.
    what
        JSON values that tell this run from others; called only when they are needed.
    owner
        What stands for the agent whose run it is.
    after
        The clock of the run that this one follows.
    """
    source = _source(provider, owner)
    if source is None:
        return RunClock(_steady_ids.new_id("run", *what()) if steady() else uuid.uuid4().hex, None, owner)
    # In which call it is made, so that those of parallel calls are told apart whichever comes first.
    told = (*what(), *_calls.get())
    lane = source.lane(told)
    if source.started_at is None:
        return RunClock(uuid.uuid4().hex, lane, owner)
    made = source.new_id("run", *told)
    follows = isinstance(after, ReplayedClock) and after.source is source
    return ReplayedClock(made, lane, owner, source, after.now() if follows and after is not None else source.started_at)


def enter_call(call_id: str) -> Token[tuple[str, ...]]:
    """Have what runs in this context belong to a tool call, until `leave_call`; runs that are made meanwhile are told apart by it."""
    return _calls.set((*_calls.get(), call_id))


def leave_call(token: Token[tuple[str, ...]]) -> None:
    """The call is over."""
    try:
        _calls.reset(token)
    except ValueError:  # as in `RunClock.end`
        return


def current() -> RunClock | None:
    """The clock of the run that this context belongs to."""
    return _running.get()


def now() -> float:
    """Unix time for a result, seconds."""
    running = _running.get()
    if running is not None:
        return running.now()
    source = _source()
    return time.time() if source is None or source.started_at is None else source.started_at


class Stopwatch:
    """Measures what is no model call: a tool. In a run that is played back such time was not recorded, and is not known.

    Attributes
    ----------
    started_at
        Unix time of the start, seconds; None when results have no times.
    """

    def __init__(self) -> None:
        running = _running.get()
        replayed = running is not None and running.replayed
        unknown = running.steady if running is not None else steady()
        self.started_at = now() if replayed or not unknown else None
        self._begun = None if replayed or unknown else time.perf_counter()

    def seconds(self) -> float | None:
        """Since the start; None when not known."""
        return None if self._begun is None else time.perf_counter() - self._begun


def new_id(*what: Any) -> str:
    """An id of 32 hexadecimal digits for a result.

    Parameters
    ----------
    what
        JSON values that tell what it is for from other things.
    """
    source = _source()
    if source is None or source.started_at is None:
        return _steady_ids.new_id(*what) if steady() else uuid.uuid4().hex
    return source.new_id(*what)
