"""Asked in a provider's place while a recording is open: plays what is recorded, or passes on and records.

A provider on a wire is recorded at the level of decoded wire events, which go through the real decoder when they are played. A provider
without one is recorded as the deltas it gave.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Callable, Sequence
from types import TracebackType
from typing import Any, Protocol

from rein_nb.dialects.base import Target, WireCall
from rein_nb.ir import ProviderError, Request, clock
from rein_nb.ir.deltas import Delta, Elapsed, End, Fault, Warn
from rein_nb.providers.codecs import codec_for
from rein_nb.providers.driver import Provider
from rein_nb.providers.reading import DOCUMENT
from rein_nb.store.recording_deltas import DeltaWriter, read_delta
from rein_nb.store.recording_exchange import NO_WIRE, Exchange, as_asked, encoded


class Keeper(Protocol):
    """What a stand-in needs of its recording."""

    speed: float | None

    def find(self, request: dict[str, Any], lane: str | None) -> Exchange | None:
        """The answer to play; None when the provider is to be asked."""

    def keep(self, exchange: Exchange) -> None:
        """Add an exchange to the file."""

    def time_of_calls(self) -> float:
        """When a call that is played back shall have started, seconds."""


def stand_in(keeper: Keeper, provider: Provider) -> Provider:
    """What is asked in `provider`'s place."""
    on_a_wire = "tap" in inspect.signature(provider.stream).parameters
    return _Wire(keeper, provider) if on_a_wire else _Plain(keeper, provider)


def innermost(provider: Any) -> Any:
    """The provider itself, behind the stand-ins of open recordings."""
    while isinstance(provider, _StandIn):
        provider = provider._provider
    return provider


class _StandIn:
    """What both kinds do."""

    def __init__(self, keeper: Keeper, provider: Any) -> None:
        self.name = provider.name
        self._keeper = keeper
        self._provider = provider

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def _begin(self, identity: dict[str, Any], *, stream: bool) -> _Take:
        return _Take(self._keeper, Exchange(identity, stream, lane=_lane()))


class _Take:
    """One exchange while it is recorded, as a context manager. What the caller broke off is no answer, and is not kept."""

    def __init__(self, keeper: Keeper, exchange: Exchange) -> None:
        self.exchange = exchange
        self.whole = False
        self._keeper = keeper
        self._begun = time.perf_counter()
        self._told: float | None = None

    def at(self, at: float | None = None) -> float:
        """Seconds since the request; `at`, where an inner recording tells them."""
        return time.perf_counter() - self._begun if at is None else at

    def saw(self, batch: Any) -> None:
        """Note what of a batch says how far the answer is."""
        for delta in batch if isinstance(batch, Sequence) else (batch,):
            if type(delta) is Elapsed:
                self._told = delta.seconds
            elif type(delta) in (End, Fault):
                self.whole = True
                self._told = self.at(self._told)

    def __enter__(self) -> _Take:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, ProviderError):
            self.exchange.error = exc.info
        if self.whole or exc is None or isinstance(exc, ProviderError):
            self.exchange.seconds = self.at(self._told)
            self._keeper.keep(self.exchange)


class _Wire(_StandIn):
    """In the place of a provider that speaks a dialect."""

    async def stream(
        self, request: Request, *, on_response: Any = None, tap: Callable[..., None] | None = None
    ) -> AsyncIterator[Sequence[Delta]]:
        """Answer a request, streamed."""
        target, call, identity = self._identity(request, stream=True)
        found = self._keeper.find(identity, _lane())
        if found is not None:
            async for batch in self._play(found, target, call, tap):
                yield batch
            return
        with self._begin(identity, stream=True) as take:
            async for batch in self._provider.stream(request, on_response=on_response, tap=_tap(take, tap)):
                take.saw(batch)
                yield batch

    async def complete(
        self, request: Request, *, on_response: Any = None, tap: Callable[..., None] | None = None
    ) -> Sequence[Delta]:
        """Answer a request in one piece."""
        target, call, identity = self._identity(request, stream=False)
        found = self._keeper.find(identity, _lane())
        if found is not None:
            return await _in_one(self._play(found, target, call, tap))
        with self._begin(identity, stream=False) as take:
            deltas: Sequence[Delta] = await self._provider.complete(
                request, on_response=on_response, tap=_tap(take, tap)
            )
            take.saw(deltas)
        return deltas

    def _identity(self, request: Request, *, stream: bool) -> tuple[Target, WireCall, dict[str, Any]]:
        target: Target = self._provider.target(request.options.model)
        call = codec_for(target.dialect).encode(request, target, stream=stream)
        return target, call, encoded(self.name, target, call)

    def _play(
        self, found: Exchange, target: Target, call: WireCall, tap: Callable[..., None] | None
    ) -> AsyncIterator[list[Delta]]:
        """A recorded answer, through the real decoder."""
        codec = codec_for(target.dialect)
        decoder = codec.decoder(target, call)
        put_right: Callable[..., list[Delta]] = getattr(self._provider, "put_right", lambda batch, *_: batch)
        document = False

        def read(at: float, name: str | None, data: Any) -> list[Delta]:
            nonlocal document
            if tap is not None:
                tap(data, name, at)
            document = name == DOCUMENT
            return put_right(
                list(codec.deltas(data, target, call) if document else decoder.feed(data, name)), call, target
            )

        def close() -> list[Delta]:
            return [] if document else put_right(list(decoder.close()), call, target)

        return _play(found, self._keeper, [Warn(text) for text in call.warnings], read, close)


class _Plain(_StandIn):
    """In the place of a provider that gives deltas and speaks no dialect."""

    def __init__(self, keeper: Keeper, provider: Any) -> None:
        super().__init__(keeper, provider)
        if getattr(provider, "complete", None) is not None:
            self.complete = self._complete

    async def stream(self, request: Request) -> AsyncIterator[Delta | Sequence[Delta]]:
        """Answer a request, streamed."""
        identity = as_asked(self.name, request)
        found = self._keeper.find(identity, _lane())
        if found is not None:
            async for batch in self._play(found):
                yield batch
            return
        writer = DeltaWriter()
        with self._begin(identity, stream=True) as take:
            async for batch in self._provider.stream(request):
                self._note(take, writer, batch)
                yield batch

    async def _complete(self, request: Request) -> Sequence[Delta]:
        identity = as_asked(self.name, request)
        found = self._keeper.find(identity, _lane())
        if found is not None:
            return await _in_one(self._play(found))
        with self._begin(identity, stream=False) as take:
            deltas: Sequence[Delta] = await self._provider.complete(request)
            self._note(take, DeltaWriter(), deltas)
        return deltas

    @staticmethod
    def _note(take: _Take, writer: DeltaWriter, batch: Delta | Sequence[Delta]) -> None:
        deltas = batch if isinstance(batch, Sequence) else (batch,)
        told = next((delta.seconds for delta in deltas if type(delta) is Elapsed), None)
        written = [writer.write(delta) for delta in deltas if type(delta) is not Elapsed]
        if written:
            take.exchange.events.append((take.at(told), NO_WIRE, written))
        take.saw(deltas)

    def _play(self, found: Exchange) -> AsyncIterator[list[Delta]]:
        def read(at: float, name: str | None, data: Any) -> list[Delta]:
            return [read_delta(item) for item in data]

        return _play(found, self._keeper, [], read, list)


def _lane() -> str | None:
    running = clock.current()
    return running.lane if running is not None else None


def _tap(take: _Take, outer: Callable[..., None] | None) -> Callable[..., None]:
    def tap(value: Any, name: str | None, at: float | None = None) -> None:
        take.exchange.events.append((take.at(at), name, value))
        if outer is not None:
            outer(value, name, at)

    return tap


async def _in_one(batches: AsyncIterator[list[Delta]]) -> list[Delta]:
    return [delta async for batch in batches for delta in batch]


async def _play(
    exchange: Exchange,
    keeper: Keeper,
    opening: list[Delta],
    read: Callable[[float, str | None, Any], list[Delta]],
    close: Callable[[], list[Delta]],
) -> AsyncIterator[list[Delta]]:
    """A recorded answer's deltas, each batch behind the recorded time at which it came."""
    speed = keeper.speed
    pace = 0.0 if speed is None else 1.0 / speed
    started_at = keeper.time_of_calls()
    begun = time.perf_counter()

    async def wait_until(at: float) -> None:
        if speed is not None:
            await asyncio.sleep(max(0.0, at * pace - (time.perf_counter() - begun)))

    for at, name, data in exchange.events:
        await wait_until(at)
        yield [Elapsed(at, started_at, pace), *opening, *read(at, name, data)]
        opening = []
    await wait_until(exchange.seconds)
    last: Delta = Elapsed(exchange.seconds, started_at, pace, received=bool(exchange.events))
    if exchange.error is not None:
        yield [last, *opening]
        raise exchange.error.to_exception()
    yield [last, *opening, *close()]
