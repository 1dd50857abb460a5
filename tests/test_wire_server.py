"""The loopback server that answers with recorded bytes."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from rein_nb.testing.server import cut, serve_recording

SSE = 'data: {"n": 1}\n\ndata: {"n": 2}\n\ndata: [DONE]\n\n'


def exchange(body, **response):
    return {
        "request": {"method": "POST", "path": "/x"},
        "response": {"status": 200, "headers": {}, "body": body, **response},
    }


@pytest.mark.parametrize(
    ("cuts", "pieces"),
    [
        (None, [b"a\n\nb\r\n\r\nc"]),
        (4, [b"a\n\nb", b"\r\n\r\n", b"c"]),
        ("events", [b"a\n\n", b"b\r\n\r\n", b"c"]),
        ("lines", [b"a\n", b"\n", b"b\r\n", b"\r\n", b"c"]),
        ([1, 3, 99], [b"a", b"\n\n", b"b\r\n\r\nc"]),
        (lambda body: [body[:2], b"", body[2:]], [b"a\n", b"\nb\r\n\r\nc"]),
    ],
)
def test_cuts(cuts, pieces):
    assert cut(b"a\n\nb\r\n\r\nc", cuts) == pieces


def test_cuts_that_make_no_sense_are_refused():
    with pytest.raises(ValueError, match="at least one byte"):
        cut(b"x", 0)
    with pytest.raises(ValueError, match="'events', 'lines'"):
        cut(b"x", "words")


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("gzip", [False, True])
async def test_answers_arrive_in_order_whatever_the_framing(framing, gzip):
    recording = {"exchanges": [exchange(SSE), exchange('{"b": "\u6d77"}', status=429, headers={"retry-after": "3"})]}
    async with serve_recording(recording, cuts=5, framing=framing, gzip=gzip) as server, httpx2.AsyncClient() as client:
        first = await client.post(server.base_url + "/v1/x?q=1", json={"hello": "\u4e16"}, headers={"X-Test": "y"})
        second = await client.get(server.base_url + "/v1/y")
    assert first.text == SSE
    assert first.headers["content-type"] == "text/event-stream"
    assert (second.status_code, second.json(), second.headers["retry-after"]) == (429, {"b": "\u6d77"}, "3")
    assert second.headers["content-type"] == "application/json"
    request = server.requests[0]
    assert (request.method, request.path, request.query, request.json) == (
        "POST",
        "/v1/x",
        {"q": "1"},
        {"hello": "\u4e16"},
    )
    assert request.headers["x-test"] == "y"
    assert server.disconnects == 0
    server.assert_all_served()


async def test_pieces_come_one_by_one_with_their_delay():
    async with (
        serve_recording(exchange(SSE), cuts="events", delay_s=0.02) as server,
        httpx2.AsyncClient() as client,
        client.stream("POST", server.base_url) as response,
    ):
        got = [piece async for piece in response.aiter_bytes()]
    assert got == [piece.encode() + b"\n\n" for piece in SSE.split("\n\n")[:-1]]


async def test_connections_are_used_again_unless_told_otherwise():
    for keep_alive, connections in ((True, 1), (False, 3)):
        async with (
            serve_recording(exchange("{}"), repeat=True, keep_alive=keep_alive) as server,
            httpx2.AsyncClient() as client,
        ):
            for _ in range(3):
                await client.post(server.base_url)
            assert server.connections == connections


async def test_a_client_that_goes_early_is_seen():
    async with serve_recording(exchange(SSE), cuts="events", hang_after=1) as server, httpx2.AsyncClient() as client:
        async with client.stream("POST", server.base_url) as response:
            async for piece in response.aiter_bytes():
                assert piece == b'data: {"n": 1}\n\n'
                break
        assert await server.wait_for_disconnects(1)
    assert server.requests[0].pieces_sent == 1


async def test_dropped_connections_break_off():
    async with (
        serve_recording(exchange(SSE), cuts="events", drop_after=2, repeat=True) as server,
        httpx2.AsyncClient() as client,
    ):
        with pytest.raises(httpx2.HTTPError):
            await client.post(server.base_url)
        assert server.requests[0].pieces_sent == 2
    async with serve_recording(exchange(SSE), drop_after="request") as server, httpx2.AsyncClient() as client:
        with pytest.raises(httpx2.HTTPError):
            await client.post(server.base_url)


async def test_no_answer_at_all():
    async with (
        serve_recording(exchange(SSE), hang_after="request") as server,
        httpx2.AsyncClient(timeout=0.1) as client,
    ):
        with pytest.raises(httpx2.ReadTimeout):
            await client.post(server.base_url)
        assert await server.wait_for_disconnects(1)


async def test_more_requests_than_answers_are_told_apart():
    async with serve_recording([exchange("{}"), exchange("[]")]) as server, httpx2.AsyncClient() as client:
        with pytest.raises(AssertionError, match="0 of 2"):
            server.assert_all_served()
        answers = [await client.post(server.base_url) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200, 200, 500]
        assert "only 2 answers" in answers[2].json()["error"]["message"]
        with pytest.raises(AssertionError, match="and 1 more"):
            server.assert_all_served()


async def test_stopping_does_not_wait_for_a_hanging_client():
    async with serve_recording(exchange(SSE), hang_after="request") as server:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(server.base_url.rpartition(":")[2]))
        writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
        await asyncio.sleep(0.02)
    assert await asyncio.wait_for(reader.read(), 1) == b""
    writer.close()


def test_synchronous_form_and_files(tmp_path):
    path = tmp_path / "one.json"
    path.write_text(json.dumps({"exchanges": [exchange("{}")]}), encoding="utf-8")
    with serve_recording(path) as server:
        assert httpx2.post(server.base_url).json() == {}
    server.assert_all_served()


def test_what_is_no_recording_is_refused():
    with pytest.raises(ValueError, match="'body'"):
        serve_recording({"status": 200})
    with pytest.raises(TypeError, match="int"):
        serve_recording(3)
