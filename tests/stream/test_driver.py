"""The driver: retries, timeouts and cancellation, for any source of deltas."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from types import SimpleNamespace

import pytest

from rein_nb.ir import ErrorInfo, InvalidRequest, Origin, StreamDone, StreamError, StreamRetry, StreamStart, Usage
from rein_nb.ir import deltas as d
from rein_nb.providers.driver import RetryPolicy, drive
from rein_nb.stream import CancellationToken

ORIGIN = Origin(provider="p", model="m")
NO_WAIT = RetryPolicy(2, base_s=0.0)


def source(*items):
    """A function that opens a source: deltas, seconds to wait, or exceptions."""

    async def run():
        for item in items:
            if isinstance(item, float):
                await asyncio.sleep(item)
            elif isinstance(item, BaseException):
                raise item
            else:
                yield item

    return run


def attempts(*scripts):
    """A function that opens the scripts one after another."""
    left = list(scripts)
    return lambda: source(*left.pop(0))()


async def collect(open_source, **kw):
    return [event async for event in drive(open_source, origin=ORIGIN, **kw)]


def server_error(**kw):
    return ErrorInfo.make("server_error", "boom", status=500, **kw).to_exception()


async def test_success_has_one_start_and_one_done() -> None:
    events = await collect(source(d.Text("a"), [d.Text("b"), d.Finish("stop")]))
    assert isinstance(events[0], StreamStart)
    assert isinstance(events[-1], StreamDone)
    assert events[-1].completion.text == "ab"
    assert events[-1].completion.timing.first_byte_s is not None


async def test_a_fault_before_content_is_retried_and_each_retry_is_an_event() -> None:
    ok = (d.Text("a"), d.Finish("stop"))
    events = await collect(attempts((server_error(),), (d.Fault(server_error().info),), ok), retry=NO_WAIT)
    assert [e.attempt for e in events if isinstance(e, StreamRetry)] == [1, 2]
    assert events[-1].completion.text == "a"
    assert events[-1].completion.timing.retries == 2


async def test_C092_no_retry_after_the_first_visible_delta() -> None:
    events = await collect(attempts((d.Text("Once"), server_error()), (d.Text("again"),)), retry=NO_WAIT)
    assert not any(isinstance(e, StreamRetry) for e in events)
    assert isinstance(events[-1], StreamError)
    assert events[-1].completion.text == "Once"
    assert events[-1].error.kind == "server_error"


async def test_what_cannot_succeed_is_not_retried() -> None:
    error = ErrorInfo.make("bad_request", "no", status=400).to_exception()
    events = await collect(attempts((error,), (d.Text("x"),)), retry=NO_WAIT)
    assert [type(e) for e in events] == [StreamStart, StreamError]


async def test_C090_a_retry_after_beyond_the_maximum_ends_the_call_with_the_wait_time() -> None:
    error = ErrorInfo.make("rate_limited", "slow down", retry_after_s=86400.0).to_exception()
    started = time.perf_counter()
    events = await collect(attempts((error,), (d.Text("x"),)), retry=NO_WAIT)
    assert events[-1].error.retry_after_s == 86400.0
    assert time.perf_counter() - started < 1


def test_backoff_is_full_jitter_and_obeys_retry_after() -> None:
    policy = RetryPolicy(5, base_s=1.0, cap_s=4.0, rand=lambda: 1.0)
    info = ErrorInfo.make("overloaded", "x")
    assert [policy.wait(n, info) for n in range(1, 7)] == [1.0, 2.0, 4.0, 4.0, 4.0, None]
    assert policy.wait(1, ErrorInfo.make("rate_limited", "x", retry_after_s=1.5)) == 1.5
    assert policy.wait(1, ErrorInfo.make("rate_limited", "x", retry_after_s=0.0)) == 1.0


async def test_end_of_source_without_a_finish_is_a_cut() -> None:
    events = await collect(source(d.Text("half")))
    assert events[-1].error.kind == "stream_cut"
    assert events[-1].completion.text == "half"


@pytest.mark.parametrize(
    ("script", "limits", "phase"),
    [
        ((5.0, d.Text("x")), {"first_byte_s": 0.05}, "first_byte"),
        ((d.Text("x"), 5.0), {"idle_s": 0.05}, "idle"),
        ((d.Text("x"), 0.03, d.Text("x"), 0.03, d.Text("x"), 5.0), {"total_s": 0.1}, "total"),
    ],
)
async def test_timeouts_by_phase(script, limits, phase) -> None:
    timeouts = SimpleNamespace(**{"first_byte_s": None, "idle_s": None, "total_s": None, **limits})
    started = time.perf_counter()
    events = await collect(source(*script), timeouts=timeouts)
    assert events[-1].error.kind == "timed_out"
    assert events[-1].error.phase == phase
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    ("first_byte_s", "idle_s", "silence_s", "ends"),
    [(0.1, 1.0, 0.3, "stop"), (1.0, 0.1, 5.0, "idle"), (0.1, None, 0.3, "stop"), (0.3, 0.3, 0.2, "stop")],
)
async def test_a_phase_has_its_own_limit_whatever_the_one_before_had(first_byte_s, idle_s, silence_s, ends) -> None:
    timeouts = SimpleNamespace(first_byte_s=first_byte_s, idle_s=idle_s, total_s=None)
    script = [0.05, d.Text("a"), silence_s, d.Text("b"), d.Finish("stop")]
    started = time.perf_counter()
    events = await collect(source(*script), timeouts=timeouts)
    last = events[-1].completion
    assert (last.error.phase if last.error else last.finish_reason) == ends
    assert time.perf_counter() - started < 2


async def test_a_sign_of_life_resets_the_idle_clock() -> None:
    timeouts = SimpleNamespace(first_byte_s=None, idle_s=0.15, total_s=None)
    script = [d.Text("a"), *([0.08, []] * 4), d.Text("b"), d.Finish("stop")]
    events = await collect(source(*script), timeouts=timeouts)
    assert events[-1].completion.text == "ab"


async def test_a_slow_consumer_is_not_the_servers_silence() -> None:
    timeouts = SimpleNamespace(first_byte_s=None, idle_s=0.05, total_s=None)
    events = []
    async for event in drive(source(d.Text("a"), d.Text("b"), d.Finish("stop")), origin=ORIGIN, timeouts=timeouts):
        events.append(event)
        await asyncio.sleep(0.08)
    assert isinstance(events[-1], StreamDone)


async def test_cancel_ends_a_silent_wait_at_once_and_keeps_what_came() -> None:
    closed = []

    async def run():
        try:
            yield d.Text("some")
            yield d.UsageReport(Usage(input_tokens=5))
            await asyncio.sleep(30)
        finally:
            closed.append(True)

    token = CancellationToken()
    times = {}

    def press() -> None:
        times["pressed"] = time.perf_counter()
        token.cancel("stop button")

    threading.Timer(0.1, press).start()
    events = await collect(run, signal=token)
    times["ended"] = time.perf_counter()
    last = events[-1]
    assert isinstance(last, StreamError)
    assert (last.stop_reason, last.completion.text, last.usage.input_tokens) == ("cancelled", "some", 5)
    assert last.error.message == "stop button"
    assert times["ended"] - times["pressed"] < 1.0
    assert closed == [True]
    await asyncio.sleep(0)  # the taken-back cancellation must not strike later
    assert asyncio.current_task().cancelling() == 0


async def test_cancel_before_the_start_and_during_a_retry_wait() -> None:
    token = CancellationToken()
    token.cancel()
    events = await collect(source(d.Text("x")), signal=token)
    assert events[-1].stop_reason == "cancelled"
    token = CancellationToken()
    policy = RetryPolicy(3, base_s=60, cap_s=60, rand=lambda: 1.0)
    threading.Timer(0.05, token.cancel).start()
    events = await collect(source(server_error()), signal=token, retry=policy)
    assert [type(e) for e in events] == [StreamStart, StreamRetry, StreamError]
    assert events[-1].stop_reason == "cancelled"


async def test_cancelling_the_callers_task_from_outside_is_not_swallowed() -> None:
    token = CancellationToken()
    task = asyncio.create_task(collect(source(d.Text("x"), 30.0), signal=token))
    await asyncio.sleep(0.02)
    task.cancel()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_C095_leaving_early_closes_the_source_and_leaves_no_task() -> None:
    closed = []

    async def run():
        try:
            while True:
                yield d.Text("x")
                await asyncio.sleep(0)
        finally:
            closed.append(True)

    async with contextlib.aclosing(drive(run, origin=ORIGIN)) as events:
        async for event in events:
            if not isinstance(event, StreamStart):
                break
    assert closed == [True]
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_the_programmers_mistake_raises() -> None:
    with pytest.raises(InvalidRequest, match="wrong"):
        await collect(source(InvalidRequest("wrong")))
