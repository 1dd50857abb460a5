"""Whatever goes wrong on the way is a typed error, the same in and out of a stream, on both HTTP backends."""

from __future__ import annotations

import asyncio
import json
import socket
import time

import pytest

from rein_nb.dialects.base import Target
from rein_nb.ir import (
    AuthenticationError,
    BadRequest,
    ConnectionFailed,
    InvalidRequest,
    NotFound,
    Overloaded,
    PermissionDenied,
    RateLimited,
    ServerError,
    StreamCut,
    StreamError,
    TextDelta,
    TimedOut,
)
from rein_nb.llm import LLM, Config
from rein_nb.providers import Timeouts
from rein_nb.providers.faults import network_fault
from rein_nb.testing.server import serve_recording
from tests.providers.wires import CHAT, GOOGLE, KEY, MESSAGES, OLLAMA, SDK_WIRES, WIRES
from tests.support import load_recording, recordings


def ids(wire):
    return wire.provider


def answer(status, body, **headers):
    body = body if isinstance(body, str) else json.dumps(body)
    return {"status": status, "headers": {"content-type": "application/json", **headers}, "body": body}


async def last_event(llm):
    return [event async for event in llm.astream_events("hi")][-1]


@pytest.mark.parametrize("wire", WIRES, ids=ids)
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequest), (401, AuthenticationError), (403, PermissionDenied), (404, NotFound), (413, BadRequest),
        (422, BadRequest), (429, RateLimited), (500, ServerError), (502, ServerError), (503, Overloaded), (529, Overloaded),
    ],
)  # fmt: skip
async def test_statuses(wire, status, kind):
    reply = answer(
        status, {"error": {"message": "so it is", "code": status}}, **{"x-request-id": "req_9", "retry-after": "7"}
    )
    async with serve_recording([reply, reply]) as server:
        llm = wire.llm(server)
        event = await last_event(llm)
        assert isinstance(event, StreamError)
        streamed = event.completion.error
        with pytest.raises(kind) as caught:
            await llm.achat("hi")
        await llm.aclose()
        server.assert_all_served()
    assert caught.value.info == streamed
    assert streamed.status == status
    assert "so it is" in streamed.message
    assert streamed.body == {"error": {"message": "so it is", "code": status}}
    assert streamed.request_id == "req_9"
    if status == 429:
        assert streamed.retry_after_s == 7


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
async def test_the_sdks_own_retries_are_off(wire):
    reply = answer(500, {"error": {"message": "no"}})
    async with serve_recording([reply] * 4) as server:
        llm = wire.llm(server, max_retries=0)
        assert (await last_event(llm)).completion.error.kind == "server_error"
        await llm.aclose()
        assert len(server.requests) == 1


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
@pytest.mark.parametrize(
    "body", ["<html><h1>502 Bad Gateway</h1></html>", "", "upstream timed out", "\x00\xff", "[1, 2]", "null"]
)
async def test_error_bodies_of_any_form(wire, body):
    async with serve_recording(answer(502, body)) as server:
        llm = wire.llm(server)
        error = (await last_event(llm)).completion.error
        await llm.aclose()
    assert (error.kind, error.status, error.retryable) == ("server_error", 502, True)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "1500"}, 1.5), ({"retry-after": "2"}, 2.0), ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "-5"}, None), ({"retry-after": "nan"}, None), ({"retry-after": "soon"}, None),
        ({"retry-after": "Wed, 31 Dec 2025 23:00:00 GMT"}, None), ({"retry-after": "Thu, 01 Jan 99999 00:00:00 GMT"}, None),
    ],
)  # fmt: skip
async def test_C090_retry_after_in_all_its_forms(headers, wait):
    async with serve_recording(answer(429, {"error": {"message": "slow down"}}, **headers)) as server:
        llm = MESSAGES.llm(server)
        error = (await last_event(llm)).completion.error
        await llm.aclose()
    assert (error.kind, error.retry_after_s or None) == ("rate_limited", wait)


async def test_C090_a_wait_that_is_too_long_ends_the_call_without_sleeping():
    replies = [answer(429, {"error": {"message": "slow down"}}, **{"retry-after": "86400"})] * 3
    async with serve_recording(replies) as server:
        llm = CHAT.llm(server, max_retries=2)
        begin = time.perf_counter()
        error = (await last_event(llm)).completion.error
        await llm.aclose()
    assert time.perf_counter() - begin < 5
    assert error.retry_after_s == 86400
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("body", "kind", "requests", "text"),
    [
        ("", "overloaded", 3, ""),
        (MESSAGES.stream[: MESSAGES.stream.index("event: content_block_stop")], "overloaded", 1, "Hello \u6d77"),
        (MESSAGES.stream[: MESSAGES.stream.index("event: content_block_start")], "bad_request", 1, ""),
    ],
)
async def test_C091_an_error_event_inside_a_200_stream(body, kind, requests, text, monkeypatch):
    monkeypatch.setattr("rein_nb.providers.driver.RetryPolicy.wait", _at_once)
    word = {"overloaded": "overloaded_error", "bad_request": "invalid_request_error"}[kind]
    event = json.dumps({"type": "error", "error": {"type": word, "message": "so it is"}})
    async with serve_recording(answer(200, f"{body}event: error\ndata: {event}\n\n"), repeat=True) as server:
        llm = MESSAGES.llm(server, max_retries=2)
        completion = (await last_event(llm)).completion
        await llm.aclose()
    assert completion.error.kind == kind
    assert completion.text == text
    assert len(server.requests) == requests


def _at_once(self, attempt, error, **_):
    return 0.0 if attempt <= self.max_retries and error.retryable else None


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE, OLLAMA], ids=ids)
async def test_a_stream_that_breaks_off(wire, http):
    cuts = "lines" if wire is OLLAMA else "events"
    whole_events = wire.stream.count("\r\n\r\n") or (
        wire.stream.count("\n") if wire is OLLAMA else wire.stream.count("\n\n")
    )
    async with serve_recording(
        answer(200, wire.stream), cuts=cuts, drop_after=whole_events - 2 if wire is not GOOGLE else 1, delay_s=0.01
    ) as server:
        llm = wire.llm(server)
        completion = (await last_event(llm)).completion
        await llm.aclose()
    assert completion.error.kind in ("stream_cut",), completion.error
    assert completion.error.retryable
    assert completion.text.startswith("Hello ")


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_a_stream_that_ends_early_in_good_order(wire):
    body = wire.stream[: wire.stream.index("\u6d77") + 1]
    async with serve_recording(answer(200, body)) as server:
        llm = wire.llm(server)
        completion = (await last_event(llm)).completion
        await llm.aclose()
    assert completion.error.kind == "stream_cut"
    assert completion.text == "Hello "


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_a_whole_answer_that_breaks_off(wire, http):
    async with serve_recording(
        [answer(200, wire.whole)] * 1, cuts=40, drop_after=2, framing="length", delay_s=0.01
    ) as server:
        llm = wire.llm(server)
        with pytest.raises(StreamCut):
            await llm.achat("hi")
        await llm.aclose()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_no_answer_because_the_server_hangs_up(wire, http):
    async with serve_recording([answer(200, wire.whole)] * 2, drop_after="request") as server:
        llm = wire.llm(server)
        error = (await last_event(llm)).completion.error
        assert (error.kind, error.retryable) == ("connection_failed", True)
        with pytest.raises(ConnectionFailed):
            await llm.achat("hi")
        await llm.aclose()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_nobody_listens(wire, http):
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound, and not listening: nobody else gets the port
        llm = LLM(Config(provider=wire.provider, model=wire.model, api_key=KEY, max_retries=0,
                         base_url=f"http://127.0.0.1:{held.getsockname()[1]}"))  # fmt: skip
        error = (await last_event(llm)).completion.error
        await llm.aclose()
    assert (error.kind, error.retryable) == ("connection_failed", True)
    assert "no connection" in error.message


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_a_server_that_speaks_no_tls(wire, http):
    async def plain(reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        llm = LLM(
            Config(
                provider=wire.provider,
                model=wire.model,
                api_key=KEY,
                max_retries=0,
                base_url=f"https://127.0.0.1:{port}",
            )
        )
        error = (await last_event(llm)).completion.error
        await llm.aclose()
    assert error.kind == "connection_failed"


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_connect_timeout(wire, http):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:  # the queue of a socket that accepts nobody fills up, and further callers wait
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        llm = LLM(Config(provider=wire.provider, model=wire.model, api_key=KEY, max_retries=0, base_url=f"http://127.0.0.1:{port}",
                         timeouts=Timeouts(connect_s=0.2)))  # fmt: skip
        error = (await last_event(llm)).completion.error
        await llm.aclose()
        for one in waiting:
            one.close()
    assert (error.kind, error.phase) == ("timed_out", "connect")


@pytest.mark.parametrize("wire", [CHAT, MESSAGES], ids=ids)
async def test_timeouts_by_phase(wire, http):
    limits = Timeouts(first_byte_s=0.15, idle_s=0.15)
    async with serve_recording(answer(200, wire.stream), hang_after="request") as server:
        llm = wire.llm(server, timeouts=limits)
        error = (await last_event(llm)).completion.error
        assert (error.kind, error.phase) == ("timed_out", "first_byte")
        assert await server.wait_for_disconnects(1)
        await llm.aclose()
    async with serve_recording(answer(200, wire.stream), cuts="events", hang_after=4) as server:
        llm = wire.llm(server, timeouts=limits)
        completion = (await last_event(llm)).completion
        assert (completion.error.kind, completion.error.phase) == ("timed_out", "idle")
        assert completion.text.startswith("Hello ")
        assert await server.wait_for_disconnects(1)
        await llm.aclose()
    async with serve_recording(answer(200, wire.whole), first_byte_delay_s=1) as server:
        llm = wire.llm(server, timeouts=limits)
        with pytest.raises(TimedOut):
            await llm.achat("hi")
        await llm.aclose()


@pytest.mark.parametrize("hang", ["request", 10])
@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
async def test_a_list_of_models_that_does_not_come_ends_in_time(wire, hang, http):
    async with serve_recording(answer(200, '{"data": []}' * 100), cuts=[5, 10], hang_after=hang) as server:
        llm = wire.llm(server, timeouts=Timeouts(first_byte_s=0.2))
        with pytest.raises(TimedOut, match=r"within 0\.2 s"):
            await llm.amodels()
        assert await server.wait_for_disconnects(1)
        await llm.aclose()


async def test_a_slow_start_is_not_the_servers_silence(monkeypatch):
    from rein_nb.providers.transport import Transport

    make = Transport._make_once

    async def slowly(self, endpoint):
        await asyncio.sleep(0.4)
        return await make(self, endpoint)

    monkeypatch.setattr(Transport, "_make_once", slowly)
    async with serve_recording(answer(200, '{"data": [{"id": "m"}]}')) as server:
        llm = CHAT.llm(server, timeouts=Timeouts(first_byte_s=0.3))
        assert [model["id"] for model in await llm.amodels()] == ["m"]
        await llm.aclose()


async def test_keep_alive_comments_reset_the_idle_clock():
    body = ": ping\n\n" * 6 + CHAT.stream
    async with serve_recording(answer(200, body), cuts="events", delay_s=0.06) as server:
        llm = CHAT.llm(server, timeouts=Timeouts(idle_s=0.25, first_byte_s=0.25))
        events = [event async for event in llm.astream_events("hi")]
        await llm.aclose()
    assert events[-1].completion.error is None
    assert any(isinstance(event, TextDelta) for event in events)


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE, OLLAMA], ids=ids)
async def test_a_redirect_does_not_carry_the_key_away(wire):
    async with serve_recording([]) as other, serve_recording(answer(307, "{}", location=other.base_url)) as server:
        llm = wire.llm(server)
        error = (await last_event(llm)).completion.error
        await llm.aclose()
        assert other.requests == []
    assert "redirects" in error.message


async def test_broken_compression_is_a_fault_of_the_answer(http):
    reply = {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": CHAT.stream}
    async with serve_recording(reply, gzip=True) as server:
        server._head_was = server._head
        server._gzip = False
        server._head = lambda reply, length: server._head_was(reply, length).replace(
            b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n"
        )
        llm = CHAT.llm(server)
        error = (await last_event(llm)).completion.error
        await llm.aclose()
    assert error.kind == "stream_cut"


async def test_sdk_refusals_are_the_programmers_errors():
    import openai

    class Refusing(openai.AsyncOpenAI):
        async def _prepare_options(self, options):
            raise openai.OpenAIError("give the deployment")

    llm = LLM(
        Config(provider="openai-chat", model="gpt-4o"), client=Refusing(api_key=KEY, base_url="http://127.0.0.1:9/v1")
    )
    with pytest.raises(InvalidRequest, match="give the deployment"):
        await llm.achat("hi")


def test_faults_that_are_not_the_networks_are_left_alone():
    assert network_fault(KeyError("x"), stage="open", target=Target(provider="p", dialect="d", model="m")) is None
    assert (
        network_fault(OSError("x"), stage="body", target=Target(provider="p", dialect="d", model="m")).kind
        == "stream_cut"
    )


async def test_recorded_errors_keep_their_kind_through_the_sdks(shared):
    """Every recorded error answer, through HTTP and the SDK, is what its codec says of the bare body."""
    from rein_nb.providers.codecs import codec_for

    wires = {
        "openai-chat": CHAT,
        "openai-responses": SDK_WIRES[1],
        "anthropic": MESSAGES,
        "google": GOOGLE,
        "deepseek": CHAT,
    }
    seen = 0
    for folder, wire in wires.items():
        for path in recordings(folder):
            for exchange in load_recording(path)["exchanges"]:
                reply = exchange["response"]
                if reply["status"] < 400:
                    continue
                async with serve_recording(exchange) as server:
                    llm = wire.llm(server)
                    error = (await last_event(llm)).completion.error
                    await llm.aclose()
                try:
                    body = json.loads(reply["body"])
                except ValueError:
                    body = reply["body"]
                want = codec_for(llm.target().dialect).error(reply["status"], reply["headers"], body, llm.target())
                assert (error.kind, error.status, error.code, error.message) == (
                    want.kind,
                    want.status,
                    want.code,
                    want.message,
                ), path
                seen += 1
    assert seen > 15


async def test_cancelling_while_the_sdk_is_loading_leaves_it_usable():
    async with serve_recording(answer(200, CHAT.whole)) as server:
        llm = CHAT.llm(server)
        task = asyncio.create_task(llm.achat("hi"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await llm.achat("hi")).error is None
        await llm.aclose()
