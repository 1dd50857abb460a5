"""What a recording is made of: a header, and exchanges, each a request and the answer's events with their times."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rein_nb.dialects.base import Target, WireCall
from rein_nb.ir import ErrorInfo, Request, ToolResult
from rein_nb.store.recording_deltas import read_delta
from rein_nb.store.recording_secrets import mask_events
from rein_nb.store.records import as_json, plain, scrub

FORMAT = "rein_nb.recording"
VERSION = 1

UNKNOWN_TIME = 946684800.0
"""2000-01-01, UTC: when a recording was made whose header does not say so."""

_NEVER = 1e11
"""A Unix time of no recording: the year 5138."""

NO_WIRE = "deltas"
"""In place of a dialect's name, for providers that speak none: their deltas are what is recorded."""


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
    lane
        Which run asked (`rein_nb.ir.clock.RunClock`); None outside of runs. Equal runs that go on at the same time each get their own
        answers back by it.
    """

    request: dict[str, Any]
    stream: bool
    events: list[tuple[float, str | None, Any]] = field(default_factory=list)
    error: ErrorInfo | None = None
    seconds: float = 0.0
    lane: str | None = None

    def mask(self) -> None:
        """Make it what may be written: secrets masked, surrogates replaced, times rounded."""
        masked = mask_events([data for _, _, data in self.events], deltas=self.request["dialect"] == NO_WIRE)
        self.events = [
            (round(at, 4), scrub(name), data) for (at, name, _), data in zip(self.events, masked, strict=True)
        ]
        self.seconds = round(self.seconds, 4)
        if self.error is not None:
            self.error = ErrorInfo.model_validate(scrub(plain(self.error)))

    def to_json(self) -> dict[str, Any]:
        """The exchange as a record."""
        made = {
            "key": request_key(self.request),
            "request": self.request,
            "stream": self.stream,
            "events": [list(event) for event in self.events],
            "error": None if self.error is None else self.error.model_dump(mode="json"),
            "seconds": self.seconds,
        }
        return made if self.lane is None else {**made, "lane": self.lane}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Exchange:
        """An exchange from its record.

        Raises
        ------
        KeyError, TypeError, ValueError
            When it is none.
        """
        if not isinstance(data, dict) or not isinstance(data["request"], dict):
            raise TypeError("an exchange is a JSON object, and so is its request")
        request, error, lane = data["request"], data.get("error"), data.get("lane")
        if isinstance(lane, int):  # a count, of which an early recording tells nothing more
            lane = None
        if not all(isinstance(request[name], str) for name in ("provider", "dialect")):
            raise TypeError("a request's provider and dialect are texts")
        if not isinstance(request["body"], dict) or not isinstance(lane, str | None):
            raise TypeError("a request's body is a JSON object, and its lane a text")
        return cls(
            request=request,
            stream=bool(data["stream"]),
            events=[_event(event, deltas=request["dialect"] == NO_WIRE) for event in data["events"]],
            error=None if error is None else ErrorInfo.model_validate(error),
            seconds=_seconds(data.get("seconds", 0.0)),
            lane=lane,
        )


def _event(event: Any, *, deltas: bool) -> tuple[float, str | None, Any]:
    at, name, data = event
    if not isinstance(name, str | None):
        raise TypeError(f"an event's name is a text, not {name!r:.40}")
    if deltas:
        for delta in data:
            read_delta(delta)
    return _seconds(at), name, data


def _seconds(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _NEVER:
        raise ValueError(f"a time is a number of seconds from 0 on, not {value!r:.40}")
    return value


def request_key(request: dict[str, Any]) -> str:
    """The key of an encoded request: the sha256 of its JSON with sorted keys."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, ensure_ascii=True).encode("ascii")).hexdigest()


def encoded(provider: str, target: Target, call: WireCall) -> dict[str, Any]:
    """What identifies a request on a wire, secrets masked."""
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


def as_asked(provider: str, request: Request) -> dict[str, Any]:
    """What identifies a request to a provider without a wire, secrets masked.

    A tool result's `details` are for programs, are sent to nobody, and may hold what differs from run to run.
    """
    messages = [
        message.model_copy(update={"parts": [_sent(part) for part in message.parts]}) for message in request.messages
    ]
    request = request.model_copy(update={"messages": messages})
    try:
        asked = request.model_dump(mode="json", exclude_defaults=True, fallback=str)
        for message, told in zip(request.messages, asked["messages"], strict=True):
            for part, item in zip(message.parts, told.get("parts", []), strict=True):
                item["type"] = part.type
    except Exception:  # arguments of any depth
        asked = as_json(request)
    made: dict[str, Any] = scrub(
        {
            "provider": provider,
            "dialect": NO_WIRE,
            "path": "",
            "query": {},
            "body": {"model": request.options.model, "request": asked},
        }
    )
    return made


def _sent(part: Any) -> Any:
    return part.model_copy(update={"details": None}) if isinstance(part, ToolResult) else part


class Played:
    """Exchanges by request, and how often each was played."""

    def __init__(self, exchanges: Sequence[Exchange]) -> None:
        self._by_key: dict[str, list[Exchange]] = defaultdict(list)
        self._adopted: dict[str, str] = {}
        self._times: dict[tuple[str, str | None], int] = defaultdict(int)
        for exchange in exchanges:
            self._by_key[request_key(exchange.request)].append(exchange)

    def next(self, request: dict[str, Any], lane: str | None) -> Exchange | None:
        """The answer to play: equal requests get theirs in the recorded order, and the last one again after that.

        A run gets what the same run was answered. One that was not recorded goes on with the run whose answer it got first.
        """
        key = request_key(request)
        found = self._by_key.get(key)
        if not found:
            return None
        n = self._times[key, None]
        self._times[key, None] = n + 1
        if lane is not None:
            whose = self._adopted.get(lane, lane)
            own = [exchange for exchange in found if exchange.lane == whose]
            if own:
                k = self._times[key, lane]
                self._times[key, lane] = k + 1
                return own[min(k, len(own) - 1)]
        chosen = found[min(n, len(found) - 1)]
        if lane is not None and chosen.lane is not None and lane not in self._adopted:
            self._adopted[lane] = chosen.lane
            self._times[key, lane] = 1 + [exchange for exchange in found if exchange.lane == chosen.lane].index(chosen)
        return chosen

    def add(self, exchange: Exchange) -> None:
        """Take in an exchange that its caller has seen already."""
        key = request_key(exchange.request)
        self._by_key[key].append(exchange)
        self._times[key, None] += 1
        if exchange.lane is not None:
            self._times[key, exchange.lane] += 1


@dataclass(frozen=True, slots=True)
class Header:
    """A recording's first line.

    Attributes
    ----------
    created_at
        When the file was begun: Unix time, seconds.
    """

    created_at: float = UNKNOWN_TIME

    def to_json(self) -> dict[str, Any]:
        """The header as a record."""
        return {"format": FORMAT, "version": VERSION, "created_at": self.created_at}


HEAD = f'{{"format":"{FORMAT}"'.encode()
"""How a recording begins."""


def _no_recording(path: Path) -> ValueError:
    return ValueError(f'{path} is no recording: its first line should be a JSON object with "format": "{FORMAT}"')


def read_records(path: Path, records: list[tuple[int, Any]], begun: bytes = b"") -> tuple[Header, list[Exchange]]:
    """The header and the exchanges of a file, from its records with the numbers of their lines. `begun` is the half record at its end.

    Raises
    ------
    ValueError
        When the file is no recording, or a newer one; the text names the line.
    """
    if not records:
        if not HEAD.startswith(begun[: len(HEAD)]):
            raise _no_recording(path)
        return Header(), []
    first, header = records[0]
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise _no_recording(path)
    version = header.get("version", 0)
    if not isinstance(version, int):
        raise ValueError(f"{path}, line {first}: the version should be a number, not {version!r}")
    if version > VERSION:
        raise ValueError(
            f"{path} has version {version}, and this rein_nb reads versions up to {VERSION}: upgrade rein_nb"
        )
    exchanges = []
    for line, data in records[1:]:
        if isinstance(data, dict) and data.get("format") == FORMAT:
            continue  # of another process that began the file at the same time
        try:
            exchanges.append(Exchange.from_json(data))
        except (KeyError, TypeError, ValueError) as exc:
            raise ValueError(f"{path}, line {line}: no recorded exchange: {type(exc).__name__}: {exc}") from exc
    created_at = header.get("created_at")
    if not isinstance(created_at, int | float) or not 0 <= created_at < _NEVER:
        return Header(), exchanges
    return Header(float(created_at)), exchanges
