"""Each dialect through real HTTP on loopback and, where it has one, its SDK's real client."""

from __future__ import annotations

import asyncio
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein_nb.ir import InvalidRequest, MalformedResponse, Request, StreamDone, StreamError, TextDelta, UnsupportedOption
from rein_nb.ir.deltas import Meta
from rein_nb.llm import LLM, Config
from rein_nb.providers.reading import DOCUMENT
from rein_nb.providers.transport import _as_json
from rein_nb.testing.server import serve_recording
from tests.providers.wires import CHAT, GOOGLE, KEY, MESSAGES, OLLAMA, RESPONSES, SDK_WIRES, TEXT, WIRES


def ids(wire):
    return wire.provider


def ok(body, **response):
    return {"status": 200, "headers": {}, "body": body, **response}


async def events_of(llm, *args, **kwargs):
    return [event async for event in llm.astream_events(*args, **kwargs)]


def check(completion, wire):
    assert completion.error is None
    assert completion.text == TEXT
    assert completion.finish_reason == "stop"
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (12, 3)
    assert completion.message.origin.provider == wire.provider


@pytest.mark.parametrize("wire", WIRES, ids=ids)
@pytest.mark.parametrize("cuts", [None, 1, 7, "events"])
async def test_streams_however_they_are_cut(wire, cuts, http):
    async with serve_recording(ok(wire.stream), cuts=cuts) as server:
        llm = wire.llm(server)
        events = await events_of(llm, "hi")
        await llm.aclose()
    assert [event.delta for event in events if isinstance(event, TextDelta)] == ["Hello ", "\u6d77"]
    assert isinstance(events[-1], StreamDone)
    check(events[-1].completion, wire)
    assert server.requests[0].path == wire.path


@pytest.mark.parametrize("wire", WIRES, ids=ids)
async def test_whole_answers(wire, http):
    async with serve_recording(ok(wire.whole)) as server:
        llm = wire.llm(server)
        check(await llm.achat("hi"), wire)
        await llm.aclose()
    assert not (server.requests[0].json or {}).get("stream")
    server.assert_all_served()


@pytest.mark.parametrize("wire", WIRES, ids=ids)
async def test_the_key_is_sent_as_the_provider_wants_it(wire):
    async with serve_recording(ok(wire.stream)) as server:
        llm = wire.llm(server, headers={"X-Team": "blue"})
        await events_of(llm, "hi")
        await llm.aclose()
    headers = server.requests[0].headers
    sent = {
        headers.get("authorization", "").removeprefix("Bearer "),
        headers.get("x-api-key"),
        headers.get("x-goog-api-key"),
    }
    assert KEY in sent
    assert headers["x-team"] == "blue"


@pytest.mark.parametrize("wire", WIRES, ids=ids)
@pytest.mark.parametrize("streamed", [True, False])
async def test_compressed_answers(wire, streamed, http):
    async with serve_recording(ok(wire.stream if streamed else wire.whole), gzip=True, cuts=11) as server:
        llm = wire.llm(server)
        completion = (await events_of(llm, "hi"))[-1].completion if streamed else await llm.achat("hi")
        await llm.aclose()
    check(completion, wire)


@pytest.mark.parametrize("wire", WIRES, ids=ids)
async def test_a_whole_answer_to_a_stream_request(wire):
    async with serve_recording(ok(wire.whole, headers={"content-type": "application/json"}), cuts=9) as server:
        llm = wire.llm(server)
        events = await events_of(llm, "hi")
        await llm.aclose()
    check(events[-1].completion, wire)


@pytest.mark.parametrize("wire", WIRES, ids=ids)
async def test_a_stream_in_answer_to_a_whole_request(wire):
    async with serve_recording(ok(wire.stream)) as server:
        llm = wire.llm(server)
        check(await llm.achat("hi"), wire)
        await llm.aclose()


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE], ids=ids)
@pytest.mark.parametrize("content_type", ["text/plain", "application/json", "application/octet-stream", "nonsense"])
async def test_content_types_decide_nothing(wire, content_type):
    async with serve_recording(ok(wire.stream, headers={"content-type": content_type})) as server:
        llm = wire.llm(server)
        events = await events_of(llm, "hi")
        await llm.aclose()
    check(events[-1].completion, wire)


@pytest.mark.parametrize("wire", WIRES, ids=ids)
async def test_white_space_that_keeps_the_line_alive(wire):
    async with serve_recording([ok("\n\n \n" + wire.whole), ok("\n\n\n" + wire.stream)], cuts=1) as server:
        llm = wire.llm(server)
        check(await llm.achat("hi"), wire)
        check((await events_of(llm, "hi"))[-1].completion, wire)
        await llm.aclose()


async def test_google_streams_as_a_json_array():
    body = "[" + ",\r\n".join(line[6:] for line in GOOGLE.stream.split("\r\n\r\n") if line) + "\r\n]"
    async with serve_recording(ok(body, headers={"content-type": "application/json"}), cuts=5) as server:
        llm = GOOGLE.llm(server)
        check((await events_of(llm, "hi"))[-1].completion, GOOGLE)
        await llm.aclose()


@pytest.mark.parametrize("wire", [w for w in WIRES if w is not OLLAMA], ids=ids)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_html_page_is_a_malformed_response(wire, streamed):
    page = "<!DOCTYPE html><html><title>Just a moment...</title></html>"
    async with serve_recording(ok(page, headers={"content-type": "text/html"})) as server:
        llm = wire.llm(server)
        if streamed:
            event = (await events_of(llm, "hi"))[-1]
            assert isinstance(event, StreamError)
            error = event.completion.error
        else:
            with pytest.raises(MalformedResponse) as caught:
                await llm.achat("hi")
            error = caught.value.info
        await llm.aclose()
    assert error.kind == "malformed_response"
    assert "Just a moment" in error.message
    assert error.body == page


@pytest.mark.parametrize("body", ["", "\n\n", ": ping\n\n", "upstream connect error", "event: x\n\n"])
async def test_a_body_without_an_answer_is_a_typed_error(body):
    async with serve_recording(ok(body), repeat=True) as server:
        llm = CHAT.llm(server)
        error = (await events_of(llm, "hi"))[-1].completion.error
        assert error.kind in ("stream_cut", "malformed_response")
        with pytest.raises(Exception, match=r"empty|instead of|no answer|before it began|end marker"):
            await llm.achat("hi")
        await llm.aclose()


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
async def test_an_error_object_inside_a_200(wire):
    body = json.dumps(
        {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded", "code": "overloaded"}}
    )
    async with serve_recording(ok(body), repeat=True) as server:
        llm = wire.llm(server)
        assert (await events_of(llm, "hi"))[-1].completion.error.kind == "overloaded"
        with pytest.raises(Exception) as caught:
            await llm.achat("hi")
        assert caught.value.info.kind == "overloaded"
        await llm.aclose()


async def test_C016_keep_alive_comments_with_ids_between_events(http):
    body = (
        'id: 1\ndata: {"id":"k1","choices":[{"index":0,"delta":{"content":"slow"},"finish_reason":null}]}\n\n'
        ": ping\n\n: ROUTER WORKING\n\n"
        'id: 2\ndata: {"id":"k1","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    )
    async with serve_recording(ok(body), cuts="events") as server:
        llm = CHAT.llm(server)
        completion = (await events_of(llm, "hi"))[-1].completion
        await llm.aclose()
    assert (completion.text, completion.finish_reason) == ("slow", "stop")


async def test_C019_characters_cut_between_network_chunks(http):
    text = 'data: {"id":"k1","choices":[{"index":0,"delta":{"content":"\u6d77\U0001f30a"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    raw = text.encode()
    at = raw.index("\u6d77".encode())
    async with serve_recording(ok(raw), cuts=[at + 2, at + 5], delay_s=0.01) as server:
        llm = CHAT.llm(server)
        completion = (await events_of(llm, "hi"))[-1].completion
        await llm.aclose()
    assert completion.text == "\u6d77\U0001f30a"


async def test_C019_a_character_cut_at_the_end_is_a_cut_stream():
    raw = 'data: {"id":"k1","choices":[{"index":0,"delta":{"content":"\u6d77"}}]}\n\ndata: {"choices":[{"delta":{"content":"\u6d77'.encode()
    async with serve_recording(ok(raw[:-1])) as server:
        llm = CHAT.llm(server)
        completion = (await events_of(llm, "hi"))[-1].completion
        await llm.aclose()
    assert completion.text == "\u6d77"
    assert completion.error.kind == "stream_cut"


@pytest.mark.parametrize("wire", [CHAT, MESSAGES, GOOGLE, OLLAMA], ids=ids)
async def test_the_last_event_needs_no_blank_line(wire):
    async with serve_recording(ok(wire.stream.rstrip())) as server:
        llm = wire.llm(server)
        check((await events_of(llm, "hi"))[-1].completion, wire)
        await llm.aclose()


@pytest.mark.parametrize("prefix", ["/v1", "/v1/", "", "/gateway/anthropic", "/gateway/v1"])
async def test_base_urls_with_and_without_their_version(prefix):
    async with serve_recording(ok(MESSAGES.stream)) as server:
        llm = LLM(
            Config(provider="anthropic", model="claude-sonnet-4-5", api_key=KEY, base_url=server.base_url + prefix)
        )
        await events_of(llm, "hi")
        await llm.aclose()
    assert server.requests[0].path == prefix.rstrip("/").removesuffix("/v1") + "/v1/messages"


async def test_connections_are_used_again_after_a_stream(http):
    async with serve_recording(ok(CHAT.stream), repeat=True) as server:
        llm = CHAT.llm(server)
        for _ in range(3):
            await events_of(llm, "hi")
        await llm.aclose()
        assert server.connections == 1


async def test_a_server_that_keeps_the_line_open_after_its_end_marker(http):
    async with serve_recording(ok(CHAT.stream), cuts="events", hang_after=99) as server:
        llm = CHAT.llm(server)
        async with asyncio.timeout(2):
            events = await events_of(llm, "hi")
        check(events[-1].completion, CHAT)
        assert await server.wait_for_disconnects(1)
        await llm.aclose()


async def test_headers_worth_keeping_come_with_the_completion():
    headers = {
        "x-request-id": "req_1",
        "x-ratelimit-remaining-tokens": "17",
        "x-secret": "nothing",
        "content-type": "text/event-stream",
    }
    async with serve_recording(ok(CHAT.stream, headers=headers)) as server:
        llm = CHAT.llm(server)
        completion = (await events_of(llm, "hi"))[-1].completion
        await llm.aclose()
    assert completion.extra["http"] == {"x-request-id": "req_1", "x-ratelimit-remaining-tokens": "17"}


async def test_hooks_see_the_response_and_every_wire_event():
    async with serve_recording([ok(MESSAGES.stream), ok(MESSAGES.whole)]) as server:
        llm = MESSAGES.llm(server)
        seen, tapped = [], []
        request = Request.make([{"role": "user", "content": "hi"}])
        batches = [
            batch
            async for batch in llm.backend.stream(
                request, on_response=lambda status, headers: seen.append((status, headers["content-type"])),
                tap=lambda value, event: tapped.append((event, value["type"])),
            )
        ]  # fmt: skip
        assert seen == [(200, "text/event-stream")]
        assert tapped[0] == ("message_start", "message_start")
        assert tapped[-1] == ("message_stop", "message_stop")
        assert len(tapped) == 8
        assert all(isinstance(batch, list) for batch in batches)
        tapped.clear()
        await llm.backend.complete(request, tap=lambda value, event: tapped.append((event, value["type"])))
        assert tapped == [(DOCUMENT, "message")]
        await llm.aclose()


async def test_what_was_left_out_on_the_way_is_said(monkeypatch):
    async with serve_recording(ok(MESSAGES.stream)) as server:
        llm = MESSAGES.llm(server)
        message = {
            "role": "user",
            "parts": [
                {"type": "text", "text": "hi"},
                {"type": "media", "kind": "video", "url": "https://example.org/v.mp4"},
            ],
        }
        completion = (await events_of(llm, [message]))[-1].completion
        await llm.aclose()
    assert any("video" in warning for warning in completion.warnings)


async def test_what_cannot_be_expressed_raises_before_anything_is_sent():
    async with serve_recording(ok(MESSAGES.stream)) as server:
        llm = MESSAGES.llm(server)
        with pytest.raises(UnsupportedOption, match="seed"):
            llm.astream_events("hi", seed=3)
        with pytest.raises(UnsupportedOption, match="seed"):
            await llm.achat("hi", seed=3)
        await llm.aclose()
    assert server.requests == []


@pytest.mark.parametrize(
    ("wire", "answers", "names"),
    [
        (CHAT, [{"object": "list", "data": [{"id": "gpt-a"}, {"id": "gpt-b"}]}], ["gpt-a", "gpt-b"]),
        (
            MESSAGES,
            [{"data": [{"id": "claude-a"}], "has_more": True, "last_id": "claude-a"}, {"data": [{"id": "claude-b"}], "has_more": False}],
            ["claude-a", "claude-b"],
        ),
        (GOOGLE, [{"models": [{"name": "models/gem"}], "nextPageToken": "t"}, {"models": [{"name": "models/gem2"}]}], ["gem", "gem2"]),
        (OLLAMA, [{"models": [{"name": "qwen3:4b", "size": 1}]}], ["qwen3:4b"]),
    ],
)  # fmt: skip
async def test_models(wire, answers, names):
    async with serve_recording([ok(json.dumps(answer)) for answer in answers]) as server:
        llm = wire.llm(server)
        assert [model["id"] for model in await llm.amodels()] == names
        await llm.aclose()
    assert {request.method for request in server.requests} == {"GET"}
    server.assert_all_served()


@pytest.mark.parametrize(
    ("wire", "path", "answer", "absent"),
    [
        (MESSAGES, "/v1/messages/count_tokens", {"input_tokens": 21}, "max_tokens"),
        (RESPONSES, "/v1/responses/input_tokens", {"object": "response.input_tokens", "input_tokens": 21}, "store"),
        (GOOGLE, "/v1beta/models/gemini-2.5-flash:countTokens", {"totalTokens": 21}, "contents"),
    ],
)
async def test_count_tokens(wire, path, answer, absent):
    async with serve_recording(ok(json.dumps(answer))) as server:
        llm = wire.llm(server)
        assert await llm.acount_tokens("hi") == 21
        await llm.aclose()
    assert server.requests[0].path == path
    assert absent not in server.requests[0].json


async def test_what_an_api_does_not_have_is_said():
    async with serve_recording([]) as server:
        llm = CHAT.llm(server)
        with pytest.raises(InvalidRequest, match="no token counting"):
            await llm.acount_tokens("hi")
        await llm.aclose()


async def test_headers_come_before_content():
    async with serve_recording(ok(CHAT.stream, headers={"x-request-id": "r"}), cuts="events", delay_s=0.01) as server:
        llm = CHAT.llm(server)
        batches = [batch async for batch in llm.backend.stream(Request.make([{"role": "user", "content": "hi"}]))]
        await llm.aclose()
    assert isinstance(batches[0][0], Meta)
    assert sum(bool(batch) for batch in batches) > 4


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
async def test_later_requests_are_built_as_the_sdk_builds_them(wire, http):
    """The second request comes from a template; the first from the SDK itself: but for the body they are the same."""
    async with serve_recording(ok(wire.whole), repeat=True) as server:
        llm = wire.llm(server, headers={"X-Team": "blue"})
        await llm.achat("hi")
        await llm.achat("hello \u4e16", temperature=None if wire is RESPONSES else 0.5)
        await llm.achat("hi")
        client = next(iter(llm.backend._transport._held.values())).client
        assert len(client._made) == 1
        await llm.aclose()
    first, second, third = server.requests
    assert (first.headers, first.path, first.body) == (third.headers, third.path, third.body)
    assert {**first.headers, "content-length": ""} == {**second.headers, "content-length": ""}
    assert "hello \u4e16" in json.dumps(second.json, ensure_ascii=False)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(["NaN", "-Infinity", "\u2028", "\x00"]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(_JSON)
def test_a_body_is_the_json_that_the_standard_library_writes(value):
    assert json.loads(_as_json(value)) == json.loads(json.dumps(value))
    assert b"\n" not in _as_json(value)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_json_does_not_have_is_refused(number):
    with pytest.raises(ValueError, match="not JSON compliant"):
        _as_json({"temperature": [number]})


async def test_a_requests_own_headers_reach_the_wire_every_time():
    async with serve_recording(ok(MESSAGES.whole), repeat=True) as server:
        llm = MESSAGES.llm(server)
        await llm.achat("hi")
        await llm.achat("hi", extensions={"anthropic": {"betas": ["some-beta-2026"]}})
        await llm.achat("hi")
        await llm.aclose()
    assert [request.headers.get("anthropic-beta") for request in server.requests] == [None, "some-beta-2026", None]


@pytest.mark.parametrize("wire", SDK_WIRES, ids=ids)
async def test_of_many_calls_that_begin_at_once_one_has_its_request_built(wire, http, monkeypatch):
    async with serve_recording(ok(wire.whole), repeat=True) as server:
        llm = wire.llm(server)
        client = (await llm.backend._transport.ready()).client
        built = []
        build = type(client)._build_request
        monkeypatch.setattr(
            type(client), "_build_request", lambda *a, **k: (built.append(1), build(*a, **k))[1]
        )  # fmt: skip
        answers = await asyncio.gather(*(llm.achat(f"hi {n}") for n in range(20)))
        await llm.aclose()
    assert len(built) == 1
    assert [answer.text for answer in answers] == [TEXT] * 20
    assert len({request.body for request in server.requests}) == 20
    assert len({tuple(sorted((request.headers | {"content-length": ""}).items())) for request in server.requests}) == 1


@pytest.mark.parametrize("how", ["cancelled", "failed", "not kept"])
async def test_a_first_call_that_comes_to_nothing_keeps_no_other_waiting(how, monkeypatch):
    async with serve_recording(ok(CHAT.whole), repeat=True) as server:
        llm = CHAT.llm(server, max_retries=0)
        client = (await llm.backend._transport.ready()).client
        begun = asyncio.Event()
        prepare, first = client._prepare_options, [True]

        async def slow(options):
            if first:
                first.clear()
                begun.set()
                await asyncio.sleep(0.05)
                if how == "failed":
                    raise RuntimeError("no")
            return await prepare(options)

        monkeypatch.setattr(client, "_prepare_options", slow)
        if how == "not kept":
            monkeypatch.setattr(client, "_idempotency_header", "Idempotency-Key")
        one = asyncio.create_task(llm.achat("one"))
        await begun.wait()
        others = [asyncio.create_task(llm.achat(f"other {n}")) for n in range(5)]
        await asyncio.sleep(0.01)
        if how == "cancelled":
            one.cancel()
        _, pending = await asyncio.wait([one, *others], timeout=10)
        assert not pending
        assert [task.result().text for task in others] == [TEXT] * 5
        assert (one.cancelled(), one.cancelled() or one.exception() is not None) == {
            "cancelled": (True, True), "failed": (False, True), "not kept": (False, False),
        }[how]  # fmt: skip
        await llm.aclose()
    assert not client._making
