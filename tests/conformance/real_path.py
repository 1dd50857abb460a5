"""Recorded answers through the whole real path: loopback HTTP, SDK client, framing, decoder, accumulator.

What a completion must hold is checked against the raw JSON by the tests of each dialect, at the codec. Here the whole path must give the very
completion that the codec gives, so what holds there holds for a user.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from rein_nb import CancellationToken, ProviderError
from rein_nb.testing.server import serve_recording
from tests.conformance.corpus import Case, comparable, events_while_open, terminal_count, through_codec


async def stream_case(case: Case, **server: Any) -> str | None:
    """What is wrong with the streamed form of a case; None when nothing is."""
    async with serve_recording(case.response, **server) as wire:
        llm = case.llm(wire.base_url)
        try:
            events = [event async for event in llm.astream_events("hi")]
        except Exception as exc:
            return f"raised {type(exc).__name__}: {exc}"
        finally:
            await llm.aclose()
    if terminal_count(events) != 1 or events[-1].type not in ("done", "error"):
        return f"{terminal_count(events)} terminal events"
    got = events[-1].completion
    if not case.ok:
        return None if got.error is not None and got.error.status else f"an error answer gave {got.error!r}"
    want = through_codec(case, llm.target())
    return None if comparable(got) == comparable(want) else _difference(comparable(got), comparable(want))


async def whole_case(case: Case) -> str | None:
    """What is wrong with the non-streamed form of a case."""
    async with serve_recording(case.response) as wire:
        llm = case.llm(wire.base_url)
        try:
            got = await llm.achat("hi")
        except ProviderError as exc:
            if exc.completion is None:
                return "an error without a completion"
            got = exc.completion
        except Exception as exc:
            return f"raised {type(exc).__name__}: {exc}"
        finally:
            await llm.aclose()
    if not case.ok:
        return None if got.error is not None else "an error answer gave a success"
    want = through_codec(case, llm.target())
    return None if comparable(got) == comparable(want) else _difference(comparable(got), comparable(want))


async def cut_case(case: Case, prefixes: Sequence[str]) -> list[str]:
    """What is wrong when the stream ends after each of these prefixes, and when it is cancelled there."""
    wrong: list[str] = []
    for prefix in prefixes:
        cut = Case(
            case.name,
            case.provider,
            case.dialect,
            case.scenario,
            case.model,
            case.asked,
            {**case.response, "body": prefix},
        )
        want = through_codec(cut, case.llm("http://127.0.0.1:9").target()) if prefix.strip() else None
        problem = await _ended(cut, want) or await _cancelled(cut, want)
        if problem:
            wrong.append(f"{case.name} after {len(prefix)} characters: {problem}")
    return wrong


async def _ended(case: Case, want: Any) -> str | None:
    async with serve_recording(case.response) as wire:
        llm = case.llm(wire.base_url)
        events = [event async for event in llm.astream_events("hi")]
        await llm.aclose()
    if terminal_count(events) != 1:
        return f"cut: {terminal_count(events)} terminal events"
    got = events[-1].completion
    if want is None:
        return None if got.error is not None else "cut: success without an answer"
    if (got.text, got.thinking, got.error is None) != (want.text, want.thinking, want.error is None):
        return f"cut: text, thinking or outcome differ ({got.error})"
    if got.usage.model_dump(exclude={"cost_usd"}) != want.usage.model_dump(exclude={"cost_usd"}):
        return "cut: usage differs"
    return None


async def _cancelled(case: Case, want: Any) -> str | None:
    token = CancellationToken()
    # The whole prefix in one piece and then silence: cancelled once everything that was sent has been seen.
    async with serve_recording(case.response, cuts=[len(case.response["body"].encode())], hang_after=1) as wire:
        llm = case.llm(wire.base_url)
        expected = events_while_open(case, llm.target())
        events = []

        async def cancel_when_sent() -> None:
            while not any(request.pieces_sent for request in wire.requests):
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05 if expected == 1 else 5)
            token.cancel()

        watcher = asyncio.create_task(cancel_when_sent())
        async for event in llm.astream_events("hi", signal=token):
            events.append(event)
            if expected == len(events) > 1:
                asyncio.get_running_loop().call_later(0.002, token.cancel)
        watcher.cancel()
        await llm.aclose()
    if terminal_count(events) != 1:
        return f"cancelled: {terminal_count(events)} terminal events"
    got = events[-1].completion
    finished = want is not None and want.error is None
    if not finished and got.finish_reason != "cancelled" and (want is None or want.error.kind == "stream_cut"):
        return f"cancelled: finish reason {got.finish_reason}"
    if want is not None and (got.text, got.thinking) != (want.text, want.thinking):
        return f"cancelled: text or thinking differ: {got.text[-40:]!r} / {want.text[-40:]!r}"
    return None


def _difference(got: Any, want: Any, where: str = "") -> str:
    if isinstance(got, dict) and isinstance(want, dict):
        for key in sorted({*got, *want}):
            if got.get(key) != want.get(key):
                return _difference(got.get(key), want.get(key), f"{where}.{key}")
    if isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        for n, (a, b) in enumerate(zip(got, want, strict=True)):
            if a != b:
                return _difference(a, b, f"{where}[{n}]")
    return f"{where}: {str(got)[:120]!r} instead of {str(want)[:120]!r}"
