"""``rein-nb replay``: a recording, played in the terminal through the real decoders, with no key and no network."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rein_nb.cli.output import FAILED, CommandFailed
from rein_nb.ir import Completion, StreamError, StreamRetry, TextDelta, ThinkingDelta, ToolCallDone

if TYPE_CHECKING:
    from rich.console import Console

    from rein_nb.llm import LLM
    from rein_nb.store.recording_exchange import Exchange


def replay(path: Path, *, speed: float | None, as_json: bool) -> int:
    """Play a recording; returns the exit status, which is not 0 when a call in it failed.

    Parameters
    ----------
    path
        The recording.
    speed
        1.0 is as recorded, None is at once.
    as_json
        Print what each call gave, as JSON lines, and nothing else.

    Raises
    ------
    CommandFailed
        When the file is no recording.
    """
    from rich.console import Console

    header_time, exchanges = _read(path)
    console = Console(soft_wrap=True, highlight=False)
    failed = False
    for number, exchange in enumerate(exchanges, 1):
        if not as_json:
            _heading(console, number, len(exchanges), exchange)
        completion = asyncio.run(_play(exchange, header_time, speed, None if as_json else console))
        failed = failed or completion.error is not None
        if as_json:
            sys.stdout.write(completion.model_dump_json() + "\n")
    return FAILED if failed else 0


def _read(path: Path) -> tuple[float, list[Exchange]]:
    from rein_nb.store import replay as open_recording

    try:
        recording = open_recording(path)
    except (OSError, ValueError) as exc:
        what = f"there is no file {path}" if isinstance(exc, FileNotFoundError) else str(exc)
        raise CommandFailed(what) from exc
    if not recording.exchanges:
        raise CommandFailed(f"{path} holds no call")
    return recording.created_at, recording.exchanges


class _Tape:
    """A recording of one exchange, which answers whatever is asked."""

    def __init__(self, exchange: Exchange, started_at: float, speed: float | None) -> None:
        self._exchange = exchange
        self._started_at = started_at
        self.speed = speed

    def find(self, request: dict[str, Any], lane: str | None) -> Exchange | None:
        """The exchange."""
        return self._exchange

    def keep(self, exchange: Exchange) -> None:
        """Never called: nothing is recorded here."""
        raise AssertionError("a tape that is played is not written to")

    def time_of_calls(self) -> float:
        """When the recording was made: Unix time, seconds."""
        return self._started_at


class _Gone:
    """A provider that gave deltas and is not asked again."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def stream(self, request: Any) -> AsyncIterator[Any]:
        """Never called: the tape answers."""
        raise AssertionError("a tape answers without its provider")
        yield


def _llm(exchange: Exchange, started_at: float, speed: float | None) -> LLM:
    """A model in whose place the tape answers."""
    from rein_nb.llm import LLM
    from rein_nb.providers import Config
    from rein_nb.providers.wire import WireProvider
    from rein_nb.store.recording_exchange import NO_WIRE
    from rein_nb.store.recording_standin import stand_in

    model = str(exchange.request["body"].get("model") or "model")
    config = Config(
        provider=_provider(exchange), model=model, api_key="not-needed-offline", base_url="http://127.0.0.1:9",
        max_retries=0, extra={"opt_in": True},
    )  # fmt: skip
    plain = exchange.request["dialect"] == NO_WIRE
    behind: Any = _Gone(exchange.request["provider"]) if plain else WireProvider(config)
    return LLM(config, provider=stand_in(_Tape(exchange, started_at, speed), behind))


def _provider(exchange: Exchange) -> str:
    """The recorded provider; where this process does not know it, one that speaks its dialect."""
    from rein_nb.providers.spec import find_spec, provider_names
    from rein_nb.store.recording_exchange import NO_WIRE

    name, dialect = exchange.request["provider"], exchange.request["dialect"]
    known = find_spec(name)
    if known is not None and known.dialect == dialect:
        return str(name)
    wanted = "openai-chat" if dialect == NO_WIRE else dialect
    for other in provider_names():
        spec = find_spec(other)
        if spec is not None and spec.dialect == wanted and spec.endpoint != "local":
            return other
    raise CommandFailed(f"the recording has the dialect {dialect!r}, which this rein_nb does not know: upgrade rein_nb")


async def _play(exchange: Exchange, started_at: float, speed: float | None, console: Console | None) -> Completion:
    from rein_nb.cli.live import safe

    last: Any = None
    column = ""
    async for event in _llm(exchange, started_at, speed).astream_events("(what was asked is in the file)"):
        last = event
        if console is None:
            continue
        style = "dim" if isinstance(event, ThinkingDelta) else ""
        if isinstance(event, TextDelta | ThinkingDelta):
            if column and column != event.type:
                console.print()
            column = event.type
            console.print(safe(event.delta, style), end="")
        elif isinstance(event, ToolCallDone | StreamRetry):
            if column:
                console.print()
            column = ""
            console.print(_line(event, safe))
    completion: Completion = last.completion
    if console is not None:
        if column:
            console.print()
        for text in _ending(completion, isinstance(last, StreamError)):
            console.print(safe(text, "red" if isinstance(last, StreamError) else "dim"))
    return completion


def _line(event: ToolCallDone | StreamRetry, safe: Any) -> Any:
    if isinstance(event, StreamRetry):
        return safe(f"retry {event.attempt} after {event.wait_s:g} s: {event.error.message}", "yellow")
    call = event.tool_call
    arguments = json.dumps(call.arguments, ensure_ascii=False) if call.raw_arguments is None else call.raw_arguments
    return safe(f"calls {call.name} {arguments}", "cyan")


def _ending(completion: Completion, failed: bool) -> Iterable[str]:
    if failed:
        yield f"failed: {completion.error.message if completion.error is not None else completion.finish_reason}"
    usage, timing = completion.usage, completion.timing
    facts = [f"ended: {completion.native_finish_reason or completion.finish_reason}"]
    if usage.input_tokens is not None or usage.output_tokens is not None:
        facts.append(f"{_known(usage.input_tokens)} tokens in, {_known(usage.output_tokens)} out")
    if timing.total_s is not None:
        facts.append(f"took {timing.total_s:.2f} s")
    yield ", ".join(facts)


def _known(tokens: int | None) -> str:
    return "?" if tokens is None else str(tokens)


def _heading(console: Console, number: int, total: int, exchange: Exchange) -> None:
    from rein_nb.cli.live import safe

    request = exchange.request
    model = request["body"].get("model")
    name = f"{request['provider']}/{model}" if model else request["provider"]
    console.rule(safe(f"{number} of {total}  {name}"), align="left", characters="-")
