"""Recordings: what providers answered, at the level of decoded wire events, to be played back with no key and no network.

A recording is a file of JSON Lines: a header, then one exchange a line, with the encoded request and the answer's events and their times.
Playing back, a request is encoded as ever, found by the hash of what would have been sent, and its events go through the real decoder. A file
may be added to, read by people, and kept in version control; secrets are masked before anything is written, and headers never are.

While it is played back, times and ids are the recording's own (`rein_nb.ir.clock`): what is played twice is equal to the byte.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rein_nb.agent import Agent
from rein_nb.ir import clock
from rein_nb.llm import LLM
from rein_nb.providers.driver import Provider
from rein_nb.providers.interception import install
from rein_nb.store.arguments import as_path
from rein_nb.store.jsonl import JsonLines
from rein_nb.store.recording_exchange import Exchange, Header, Played, read_records, request_key
from rein_nb.store.recording_miss import RecordingMiss
from rein_nb.store.recording_standin import innermost, stand_in

__all__ = ["Exchange", "Recording", "RecordingMiss", "record", "replay"]

Mode = Literal["record", "replay", "auto"]


class Recording:
    """An open recording, as a context manager; made by `record` and `replay`.

    Attributes
    ----------
    path
        The file.
    mode
        ``record``, ``replay``, or ``auto`` (play back what is there, record what is not).
    exchanges
        What the file holds, and what was recorded since it was opened.
    created_at
        When the file was begun: Unix time, seconds.
    speed
        1.0 plays as recorded; None at once.

    Parameters
    ----------
    path, mode, speed, only
        As for `record` and `replay`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Mode,
        *,
        speed: float | None = None,
        only: Any = None,
    ) -> None:
        if mode not in ("record", "replay", "auto"):
            raise ValueError(f"mode must be 'record', 'replay' or 'auto', not {mode!r}")
        if speed is not None and (
            isinstance(speed, bool) or not isinstance(speed, int | float) or not 0 < speed < math.inf
        ):
            raise ValueError(
                f"speed must be a positive number (1.0 is as recorded), or None for at once, not {speed!r}"
            )
        self.path = Path(as_path(path, "a recording"))
        self.mode = mode
        self.speed = speed
        self._covers = None if only is None else _only(only)
        # Absolute: a notebook may change its folder while the recording is open.
        self._lines = JsonLines(self.path.expanduser().absolute())
        self._told = False
        self._lock = threading.Lock()
        self._remove: list[Callable[[], None]] = []
        exists = self._lines.path.exists()
        if mode == "replay" and not exists:
            raise FileNotFoundError(f"there is no recording {self.path}; make it with record({str(self.path)!r})")
        records = self._lines.numbered() if exists else []
        tail = self._lines.tail
        header, self.exchanges = read_records(self.path, records, tail.data if tail is not None else b"")
        self.created_at = header.created_at if records else round(time.time(), 3)
        self._start_over()

    def _start_over(self) -> None:
        """Play from the first exchange on."""
        self._played = Played(self.exchanges)
        plays = self.mode == "replay" or (self.mode == "auto" and bool(self.exchanges))
        name = hashlib.sha256("".join(request_key(exchange.request) for exchange in self.exchanges).encode())
        self._source = clock.Source(name.hexdigest(), self.created_at if plays else None, self._covers)

    def start(self) -> Recording:
        """Open it until `stop`: for a notebook that is recorded or played back as a whole."""
        return self.__enter__()

    def stop(self) -> None:
        """Close what `start` opened; does nothing when it is closed."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Recording:
        if self._remove:
            raise RuntimeError(f"the recording {self.path} is open already")
        # What holds everything may be read-only.
        if self.mode == "record" or (self.mode == "auto" and not self.exchanges):
            self._try_place()
        self._start_over()
        self._remove = [clock.install(self._source), install(self._stand_in, offline=self.mode == "replay")]
        return self

    def _try_place(self) -> None:
        """Raise `OSError` before anything is asked, when nothing could be kept."""
        file = self._lines.path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(file if file.exists() else file.parent, os.W_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as exc:
            raise OSError(
                exc.errno,
                f"cannot record into it, name a file in a folder that can be written to ({exc.strerror})",
                str(file),
            ) from exc

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._remove:
            return
        while self._remove:
            self._remove.pop()()
        self._lines.close()

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, {self.mode}, {len(self.exchanges)} exchanges)"

    # -- for the stand-in -------------------------------------------------------------------------

    def find(self, request: dict[str, Any], lane: str | None = None) -> Exchange | None:
        """The answer to play; None when the provider is to be asked.

        Raises
        ------
        RecordingMiss
            When the provider must not be asked.
        """
        if self.mode == "record":
            return None
        with self._lock:
            found = self._played.next(request, lane)
        if found is None and self.mode == "replay":
            raise RecordingMiss(self.path, request, [exchange.request for exchange in self.exchanges])
        return found

    def keep(self, exchange: Exchange) -> None:
        """Add an exchange to the file, in one write. Where that fails, its answer was given all the same: a warning tells, once.

        What is missing stays so where no server could be asked for it (mode ``auto``): it is asked again the next time.
        """
        if self.mode == "auto" and exchange.error is not None and exchange.error.kind == "connection_failed":
            return
        with self._lock:
            try:
                exchange.mask()
                record = exchange.to_json()
                header = [Header(self.created_at).to_json()] if self._lines.open() else []
                self._lines.extend([*header, record])
            except Exception as exc:
                if not self._told:
                    self._told = True
                    warnings.warn(
                        f"an answer could not be added to the recording {self._lines.path}, which goes on without it: {_said(exc)}",
                        RuntimeWarning,
                        stacklevel=2,
                    )
                return
            self.exchanges.append(exchange)
            # What was recorded just now was played to the caller already.
            self._played.add(exchange)
            # Some of it is no playback any more: what comes from here on has the machine's time.
            self._source.started_at = None

    def time_of_calls(self) -> float:
        """When a call that is played back shall have started: Unix time, seconds."""
        running = clock.current()
        if isinstance(running, clock.ReplayedClock):
            return running.call_started_at()
        started_at = self._source.started_at
        return time.time() if started_at is None else started_at

    def _stand_in(self, provider: Provider) -> Provider:
        running = clock.current()
        owner = running.owner if running is not None else None
        if self._covers is not None and not self._covers(innermost(provider), owner):
            return provider
        return stand_in(self, provider)


def _said(exc: Exception) -> str:
    return str(exc) if isinstance(exc, OSError) else f"{type(exc).__name__}: {exc}"


def _only(given: Any) -> Callable[[object, object], bool]:
    """Whether a call is one of `given`, by who is asked and whose run it is."""
    models: list[object] = []
    agents: list[tuple[object, list[object]]] = []
    named = given if isinstance(given, list | tuple | set) else [given]
    if not named:
        raise ValueError("only= names nobody; leave it out for every call")
    for one in named:
        if isinstance(one, LLM):
            models.extend(_backends([one]))
        elif isinstance(one, Agent):
            agents.append((one._identity, _backends([one.llm, *one._setup.fallback])))
        else:
            raise TypeError(f"only= takes an LLM or an Agent, or a list of these, not {type(one).__name__}")

    def covers(provider: object, owner: object) -> bool:
        return _among(provider, models) or any(owner is one and _among(provider, asked) for one, asked in agents)

    return covers


def _backends(llms: Sequence[LLM]) -> list[object]:
    return [found for llm in llms for found in (llm.backend, *_backends(llm._fallback))]


def _among(provider: object, found: Sequence[object]) -> bool:
    return any(provider is one for one in found)


def record(path: str | os.PathLike[str], *, mode: Literal["record", "auto"] = "record", only: Any = None) -> Recording:
    """Record every model call of this process while the ``with`` block is open. An existing file is added to.

    Parameters
    ----------
    path
        The file.
    mode
        ``"auto"`` plays back what the file holds and records only what it does not.
    only
        An `LLM` or `Agent`, or a list of these: their calls alone.

    Raises
    ------
    TypeError, ValueError
        When `path` is no path, `mode` another one, or `only` names nobody.
    OSError
        When the block is entered and nothing could be kept.

    Examples
    --------
    >>> with record("calls.jsonl"):            # doctest: +SKIP
    ...     agent.run("hello")
    """
    if mode not in ("record", "auto"):
        raise ValueError(f"record() takes mode='record' or 'auto', not {mode!r}")
    return Recording(path, mode, only=only)


def replay(
    path: str | os.PathLike[str],
    *,
    mode: Literal["replay", "auto"] = "replay",
    speed: float | None = None,
    only: Any = None,
) -> Recording:
    """Answer every model call of this process from a recording while the ``with`` block is open: no key, no network.

    Times and ids are then the recording's: a run begins when the recording was made and takes as long as its calls took then, so that what
    is played back twice is equal to the byte.

    Parameters
    ----------
    path
        The file.
    mode
        ``"auto"`` asks the provider for what the file does not hold, and records it; from the first such call on, new runs have real times.
    speed
        1.0 is the recorded speed, 2.0 twice that; None answers at once.
    only
        An `LLM` or `Agent`, or a list of these: their calls alone.

    Raises
    ------
    FileNotFoundError
        When there is no such file (and `mode` is not ``"auto"``).
    ValueError
        When the file is no recording.
    RecordingMiss
        From the call that is not in the recording.
    """
    if mode not in ("replay", "auto"):
        raise ValueError(f"replay() takes mode='replay' or 'auto', not {mode!r}")
    return Recording(path, mode, speed=speed, only=only)
