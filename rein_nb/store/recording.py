"""Recordings: what providers answered, at the level of decoded wire events, to be played back with no key and no network.

A recording is a file of JSON Lines: a header, then one exchange a line, with the encoded request and the answer's events and their times.
Playing back, a request is encoded as ever, found by the hash of what would have been sent, and its events go through the real decoder. A file
may be added to, read by people, and kept in version control; secrets are masked before anything is written, and headers never are.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from rein_nb.dialects.base import Target, WireCall
from rein_nb.ir import ErrorInfo, ProviderError, ReinError, Request
from rein_nb.ir.deltas import Delta, End, Fault, Warn
from rein_nb.providers.codecs import codec_for
from rein_nb.providers.driver import Provider
from rein_nb.providers.interception import install
from rein_nb.providers.reading import DOCUMENT
from rein_nb.store.jsonl import JsonLines
from rein_nb.store.records import scrub

FORMAT = "rein_nb.recording"
VERSION = 1

_SHOWN = 5
"""Differences to the nearest recorded request that a miss tells."""

_CUT = 60
"""Characters of a differing value that a miss shows."""


class RecordingMiss(ReinError):
    """A request was made that the recording does not hold; the message says how the nearest one differs.

    Attributes
    ----------
    path
        The recording.
    request
        What would have been sent: provider, dialect, path and body.
    nearest
        The recorded request that has most in common with it; None when there is none for this dialect.
    differences
        Where the two differ, in words.
    """

    def __init__(self, path: Path, request: dict[str, Any], recorded: Sequence[dict[str, Any]]) -> None:
        self.path = path
        self.request = request
        self.nearest, self.differences = _nearest(request, recorded)
        model = request["body"].get("model", "")
        text = f"{path} holds no answer to this request to {request['provider']}/{model} ({len(recorded)} recorded)"
        if self.nearest is not None:
            more = len(self.differences) - _SHOWN
            shown = "; ".join(self.differences[:_SHOWN]) + (f"; and {more} more" if more > 0 else "")
            text += f". The nearest recorded request differs in: {shown}"
        super().__init__(f'{text}. Record it with record({str(path)!r}), or play back with mode="auto"')


@dataclass(slots=True)
class Exchange:
    """One recorded request and its answer.

    Attributes
    ----------
    request
        Provider, dialect, path and body, secrets masked.
    stream
        Whether a streamed answer was asked for.
    events
        (seconds since the request, event name, data) each.
    error
        The fault that ended the exchange.
    seconds
        How long the exchange took.
    """

    request: dict[str, Any]
    stream: bool
    events: list[tuple[float, str | None, Any]] = field(default_factory=list)
    error: ErrorInfo | None = None
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """The exchange as a record."""
        return {
            "key": request_key(self.request),
            "request": self.request,
            "stream": self.stream,
            "events": [list(event) for event in self.events],
            "error": None if self.error is None else self.error.model_dump(mode="json"),
            "seconds": self.seconds,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Exchange:
        """An exchange from its record."""
        error = data.get("error")
        return cls(
            request=data["request"],
            stream=data["stream"],
            events=[(at, name, value) for at, name, value in data["events"]],
            error=None if error is None else ErrorInfo.model_validate(error),
            seconds=data.get("seconds", 0.0),
        )


def request_key(request: dict[str, Any]) -> str:
    """The key of an encoded request: the sha256 of its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def encoded(provider: str, target: Target, call: WireCall) -> dict[str, Any]:
    """What identifies a request, secrets masked."""
    made: dict[str, Any] = scrub(
        {
            "provider": provider,
            "dialect": target.dialect,
            "path": call.path,
            "query": dict(call.query),
            "body": call.body,
        }
    )
    return made


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
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: Literal["record", "replay", "auto"],
        *,
        speed: float | None = None,
        only: Any = None,
    ) -> None:
        if mode not in ("record", "replay", "auto"):
            raise ValueError(f"mode must be 'record', 'replay' or 'auto', not {mode!r}")
        if speed is not None and not speed > 0:
            raise ValueError(
                f"speed must be a positive number (1.0 is as recorded), or None for at once, not {speed!r}"
            )
        self.path = Path(path)
        self.mode = mode
        self.speed = speed
        self._only = only
        self._lines = JsonLines(self.path)
        self._lock = threading.Lock()
        self._remove: Callable[[], None] | None = None
        self._played: dict[str, int] = {}
        self.exchanges: list[Exchange] = []
        if mode == "replay" and not self.path.exists():
            raise FileNotFoundError(f"there is no recording {self.path}; make it with record({str(self.path)!r})")
        if self.path.exists():
            self.exchanges = _read(self.path, self._lines.read())

    def __enter__(self) -> Recording:
        self._remove = install(self._stand_in, offline=self.mode == "replay")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._remove is not None:
            self._remove()
            self._remove = None
        self._lines.close()

    def __repr__(self) -> str:
        return f"Recording({str(self.path)!r}, {self.mode}, {len(self.exchanges)} exchanges)"

    # -- for the stand-in -------------------------------------------------------------------------

    def find(self, request: dict[str, Any]) -> Exchange | None:
        """The answer to play: equal requests get theirs in the recorded order, and the last one again after that."""
        key = request_key(request)
        with self._lock:
            found = [exchange for exchange in self.exchanges if request_key(exchange.request) == key]
            if not found:
                return None
            n = self._played.get(key, 0)
            self._played[key] = n + 1
            return found[min(n, len(found) - 1)]

    def keep(self, exchange: Exchange) -> None:
        """Add an exchange to the file, in one write."""
        exchange.events = [(round(at, 4), name, scrub(data)) for at, name, data in exchange.events]
        exchange.seconds = round(exchange.seconds, 4)
        with self._lock:
            fresh = not self.path.exists() or self.path.stat().st_size == 0
            header = [{"format": FORMAT, "version": VERSION}] if fresh else []
            self._lines.extend([*header, exchange.to_json()])
            self.exchanges.append(exchange)
            # What was recorded just now was played to the caller already.
            key = request_key(exchange.request)
            self._played[key] = self._played.get(key, 0) + 1

    def _stand_in(self, provider: Provider) -> Provider:
        if self._only is not None and provider is not _backend(self._only):
            return provider
        if "tap" not in inspect.signature(provider.stream).parameters:
            raise ReinError(
                f"the provider {provider.name!r} speaks no wire dialect, so its answers cannot be recorded or played back; "
                "name the model that is meant with only="
            )
        return _StandIn(self, provider)


def _backend(model: Any) -> Any:
    """The provider object of an `Agent` or an `LLM`."""
    return getattr(model, "llm", model).backend


class _StandIn:
    """Asked in a provider's place: plays, or passes on and records."""

    def __init__(self, recording: Recording, provider: Any) -> None:
        self.name = provider.name
        self._recording = recording
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    async def stream(self, request: Request) -> AsyncIterator[Sequence[Delta]]:
        """Answer a request, streamed."""
        target, call, identity = self._identity(request, stream=True)
        found = self._find(identity)
        if found is not None:
            async for batch in self._play(found, target, call):
                yield batch
            return
        exchange = Exchange(identity, stream=True)
        begun = time.perf_counter()
        whole = False
        try:
            async for batch in self._provider.stream(request, tap=_tap(exchange, begun)):
                whole = whole or any(type(delta) in (End, Fault) for delta in batch)
                yield batch
            whole = True
        except ProviderError as exc:
            exchange.error, whole = exc.info, True
            raise
        finally:
            # What the caller broke off is no answer, and is not kept.
            if whole:
                exchange.seconds = time.perf_counter() - begun
                self._recording.keep(exchange)

    async def complete(self, request: Request) -> Sequence[Delta]:
        """Answer a request in one piece."""
        target, call, identity = self._identity(request, stream=False)
        found = self._find(identity)
        if found is not None:
            return [delta async for batch in self._play(found, target, call) for delta in batch]
        exchange = Exchange(identity, stream=False)
        begun = time.perf_counter()
        try:
            deltas: Sequence[Delta] = await self._provider.complete(request, tap=_tap(exchange, begun))
        except ProviderError as exc:
            exchange.error = exc.info
            raise
        finally:
            if exchange.events or exchange.error is not None:
                exchange.seconds = time.perf_counter() - begun
                self._recording.keep(exchange)
        return deltas

    async def _play(self, found: Exchange, target: Target, call: WireCall) -> AsyncIterator[Sequence[Delta]]:
        put_right = getattr(self._provider, "put_right", None)
        async for batch in _play(found, target, call, self._recording.speed):
            yield batch if put_right is None else put_right(batch, call, target)

    def _identity(self, request: Request, *, stream: bool) -> tuple[Target, WireCall, dict[str, Any]]:
        target: Target = self._provider.target(request.options.model)
        call = codec_for(target.dialect).encode(request, target, stream=stream)
        return target, call, encoded(self.name, target, call)

    def _find(self, identity: dict[str, Any]) -> Exchange | None:
        recording = self._recording
        if recording.mode == "record":
            return None
        found = recording.find(identity)
        if found is None and recording.mode == "replay":
            raise RecordingMiss(recording.path, identity, [exchange.request for exchange in recording.exchanges])
        return found


def _tap(exchange: Exchange, begun: float) -> Callable[[Any, str | None], None]:
    return lambda value, name: exchange.events.append((time.perf_counter() - begun, name, value))


async def _play(exchange: Exchange, target: Target, call: WireCall, speed: float | None) -> AsyncIterator[list[Delta]]:
    """The deltas of a recorded answer, through the real decoder."""
    codec = codec_for(target.dialect)
    begun = time.perf_counter()

    async def wait_until(at: float) -> None:
        if speed is not None:
            await asyncio.sleep(max(0.0, at / speed - (time.perf_counter() - begun)))

    yield [Warn(text) for text in call.warnings]
    decoder = codec.decoder(target, call)
    document = False
    for at, name, data in exchange.events:
        await wait_until(at)
        document = name == DOCUMENT
        yield list(codec.deltas(data, target, call) if document else decoder.feed(data, name))
    if not document and exchange.error is None:
        yield list(decoder.close())
    if exchange.error is not None:
        await wait_until(exchange.seconds)
        raise exchange.error.to_exception()


def record(path: str | os.PathLike[str], *, mode: Literal["record", "auto"] = "record", only: Any = None) -> Recording:
    """Record every model call of this process while the ``with`` block is open. An existing file is added to.

    Parameters
    ----------
    path
        The file.
    mode
        ``"auto"`` plays back what the file holds and records only what it does not.
    only
        An `LLM` or `Agent`: its calls alone.

    Examples
    --------
    >>> with record("calls.jsonl"):            # doctest: +SKIP
    ...     agent.run("hello")
    """
    return Recording(path, mode, only=only)


def replay(
    path: str | os.PathLike[str],
    *,
    mode: Literal["replay", "auto"] = "replay",
    speed: float | None = None,
    only: Any = None,
) -> Recording:
    """Answer every model call of this process from a recording while the ``with`` block is open: no key, no network.

    Parameters
    ----------
    path
        The file.
    mode
        ``"auto"`` asks the provider for what the file does not hold, and records it.
    speed
        1.0 is the recorded speed, 2.0 twice that; None answers at once.
    only
        An `LLM` or `Agent`: its calls alone.

    Raises
    ------
    FileNotFoundError
        When there is no such file (and `mode` is not ``"auto"``).
    ValueError
        When the file is no recording.
    RecordingMiss
        From the call that is not in the recording.
    """
    return Recording(path, mode, speed=speed, only=only)


def _read(path: Path, records: list[Any]) -> list[Exchange]:
    if not records:
        return []
    header = records[0]
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise ValueError(f'{path} is no recording: its first line should be a JSON object with "format": "{FORMAT}"')
    if header.get("version", 0) > VERSION:
        raise ValueError(
            f"{path} has version {header['version']}, and this rein_nb reads versions up to {VERSION}: upgrade rein_nb"
        )
    exchanges = []
    for line, data in enumerate(records[1:], 2):
        try:
            exchanges.append(Exchange.from_json(data))
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"{path}, line {line}: no recorded exchange: {type(exc).__name__}: {exc}") from exc
    return exchanges


# -- what a miss tells ----------------------------------------------------------------------------


def _flat(value: Any, at: str = "") -> dict[str, str]:
    """Leaves of a JSON value by their path."""
    if isinstance(value, dict) and value:
        return {
            path: leaf
            for key, item in value.items()
            for path, leaf in _flat(item, f"{at}.{key}" if at else str(key)).items()
        }
    if isinstance(value, list) and value:
        return {path: leaf for n, item in enumerate(value) for path, leaf in _flat(item, f"{at}[{n}]").items()}
    return {at: json.dumps(value, ensure_ascii=False)}


def _nearest(request: dict[str, Any], recorded: Sequence[dict[str, Any]]) -> tuple[dict[str, Any] | None, list[str]]:
    """The recorded request that shares most leaves with `request`, and where the two differ."""
    asked = _flat(request)
    best: tuple[int, dict[str, Any] | None, list[str]] = (-1, None, [])
    for other in recorded:
        if other["dialect"] != request["dialect"]:
            continue
        have = _flat(other)
        common = len(asked.items() & have.items())
        if common > best[0]:
            best = (common, other, _differences(asked, have))
    return best[1], best[2]


def _differences(asked: dict[str, str], have: dict[str, str]) -> list[str]:
    out = []
    for path in [*asked, *(path for path in have if path not in asked)]:
        if asked.get(path) == have.get(path):
            continue
        if path not in have:
            out.append(f"{path}: asked {_cut(asked[path])}, not recorded")
        elif path not in asked:
            out.append(f"{path}: recorded {_cut(have[path])}, not asked")
        else:
            out.append(f"{path}: recorded {_cut(have[path])}, asked {_cut(asked[path])}")
    return out


def _cut(text: str) -> str:
    return text if len(text) <= _CUT else text[:_CUT] + "…"
