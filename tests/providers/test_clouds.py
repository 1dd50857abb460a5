"""Anthropic's models in other people's clouds, by clients of the user's own: the SDK signs and finds the path, the rest is ours."""

from __future__ import annotations

import base64
import binascii
import json
import struct

import pytest

from rein_nb.ir import StreamDone, StreamError
from rein_nb.llm import LLM, Config
from rein_nb.testing.server import serve_recording
from tests.providers.wires import MESSAGES

MODEL = "anthropic.claude-sonnet-4-5-20250929-v1:0"


def frame(kind: str, payload: bytes, message_type: str = "event") -> bytes:
    """One message of AWS's event stream encoding (application/vnd.amazon.eventstream)."""
    names = {":event-type" if message_type == "event" else ":exception-type": kind}
    names |= {":content-type": "application/json", ":message-type": message_type}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in names.items()
    )
    prelude = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    message = prelude + struct.pack(">I", binascii.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", binascii.crc32(message))


def event_stream(sse: str) -> bytes:
    """The same events as `sse` has, as Bedrock sends them."""
    lines = [line[6:] for line in sse.replace("\r\n", "\n").split("\n") if line.startswith("data: ")]
    return b"".join(
        frame("chunk", json.dumps({"bytes": base64.b64encode(x.encode()).decode()}).encode()) for x in lines
    )


def answer(body, content_type="application/vnd.amazon.eventstream", status=200):
    return {"status": status, "headers": {"content-type": content_type}, "body": body}


def bedrock(server, **arguments):
    pytest.importorskip("botocore", reason="Bedrock needs boto3 (anthropic[bedrock])")
    import anthropic

    keys = arguments or {"aws_access_key": "access-0000", "aws_secret_key": "secret-0000"}
    return anthropic.AsyncAnthropicBedrock(aws_region="us-east-1", base_url=server.base_url, max_retries=0, **keys)


async def plain_events():
    async with serve_recording(answer(MESSAGES.stream, "text/event-stream")) as server:
        llm = MESSAGES.llm(server)
        events = [event async for event in llm.astream_events("hi")]
        await llm.aclose()
    return events


@pytest.mark.parametrize("cuts", ["events", 7, None])
async def test_bedrock_streams_in_its_own_framing(cuts):
    body = event_stream(MESSAGES.stream)
    cuts = range(cuts, len(body), cuts) if isinstance(cuts, int) else None
    async with serve_recording(answer(body), cuts=cuts) as server:
        client = bedrock(server)
        llm = LLM(Config(provider="anthropic", model=MODEL, api_key="unused-0000"), client=client)
        events = [event async for event in llm.astream_events("hi", max_tokens=50)]
        await client.close()
    assert isinstance(events[-1], StreamDone), events[-1].error
    there, here = (await plain_events())[-1].completion, events[-1].completion
    assert (here.text, here.usage.output_tokens) == (there.text, there.usage.output_tokens)
    request = server.requests[0]
    assert request.path.replace("%3A", ":") == f"/model/{MODEL}/invoke-with-response-stream"
    assert request.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=access-0000/")
    assert "unused-0000" not in str(request.headers)
    assert request.json["anthropic_version"]
    assert not {"model", "stream"} & request.json.keys()


async def test_bedrock_answers_in_one_piece_and_is_asked_again():
    async with serve_recording(
        [answer('{"message": "slow down"}', "application/json", 429), answer(MESSAGES.whole, "application/json")]
    ) as server:
        client = bedrock(server, api_key="bedrock-key-0000")
        llm = LLM(Config(provider="anthropic", model=MODEL, api_key="unused-0000", max_retries=1), client=client)
        completion = await llm.achat("hi", max_tokens=50)
        await client.close()
    assert completion.text
    assert completion.timing.retries == 1
    first, second = server.requests
    assert (first.path, first.json) == (second.path, second.json)
    assert second.headers["authorization"] == "Bearer bedrock-key-0000"


async def test_bedrock_says_that_it_is_throttled_in_mid_stream():
    whole = event_stream(MESSAGES.stream)
    some = event_stream("\n".join(MESSAGES.stream.replace("\r\n", "\n").split("\n")[:12]))
    assert whole.startswith(some)
    fault = frame("throttlingException", b'{"message": "Too many tokens, please wait"}', "exception")
    async with serve_recording(answer(some + fault)) as server:
        client = bedrock(server)
        llm = LLM(Config(provider="anthropic", model=MODEL, api_key="unused-0000"), client=client)
        events = [event async for event in llm.astream_events("hi", max_tokens=50)]
        await client.close()
    assert isinstance(events[-1], StreamError)
    assert "Too many tokens" in events[-1].error.message
    assert events[-1].error.kind in ("rate_limited", "overloaded", "server_error"), events[-1].error


async def test_vertex_finds_the_path_and_signs():
    pytest.importorskip("google.auth", reason="Vertex needs google-auth (anthropic[vertex])")
    import anthropic

    async with serve_recording(
        [answer(MESSAGES.stream, "text/event-stream"), answer(MESSAGES.whole, "application/json")]
    ) as server:
        client = anthropic.AsyncAnthropicVertex(
            region="us-east5", project_id="p-1", access_token="token-0000", base_url=server.base_url, max_retries=0
        )
        llm = LLM(
            Config(provider="anthropic", model="claude-sonnet-4-5@20250929", api_key="unused-0000"), client=client
        )
        events = [event async for event in llm.astream_events("hi", max_tokens=50)]
        whole = await llm.achat("hi", max_tokens=50)
        await client.close()
    assert isinstance(events[-1], StreamDone), events[-1].error
    assert events[-1].completion.text == (await plain_events())[-1].completion.text
    assert whole.text
    first, second = server.requests
    model = "/projects/p-1/locations/us-east5/publishers/anthropic/models/claude-sonnet-4-5@20250929"
    assert first.path.replace("%40", "@") == f"{model}:streamRawPredict"
    assert second.path.replace("%40", "@") == f"{model}:rawPredict"
    assert first.headers["authorization"] == "Bearer token-0000"
    assert "unused-0000" not in str(first.headers)
