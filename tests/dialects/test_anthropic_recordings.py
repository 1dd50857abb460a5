"""Every recorded Messages exchange: decoded in full, streamed and whole alike, cut anywhere, and replayed value by value.

`reference` builds the message from the raw events on its own, straight after the streaming reference, and shares nothing with the decoder.
"""

from __future__ import annotations

import itertools
import json
import re
from typing import Any

import pytest

from rein_nb.dialects.anthropic import AnthropicCodec
from rein_nb.dialects.base import Quirks, Target, decode
from rein_nb.ir import (
    Completion,
    Message,
    Request,
    ServerToolPart,
    StreamError,
    TextPart,
    ThinkingPart,
)
from tests.dialects.wire_replay import (
    Exchange,
    comparable,
    exchanges,
    outcome,
    parsed,
    replay,
    stored,
    without_nulls,
)

CODEC = AnthropicCodec()
FOLDERS = ("anthropic", "openai-compatible", "deepseek")
_PATH = re.compile(r"/messages$|:(?:stream)?[rR]awPredict$")
ALL = [x for x in exchanges(FOLDERS, "") if _PATH.search(x.path.partition("?")[0])]

BROKEN = ("truncated-stream", "error-mid-stream")


def target(model: str = "claude-x") -> Target:
    return Target(
        provider="anthropic", dialect="anthropic", model=model, quirks=Quirks(mid_system=True, strict_tools=True)
    )


def streams(exchange: Exchange) -> list[list[tuple[str | None, Any]]]:
    """The answers in a body: one recording holds a whole conversation's answers after each other."""
    out: list[list[tuple[str | None, Any]]] = [[]]
    for name, data in parsed(exchange.body):
        if name == "message_start" and out[-1] and out[-1][-1][0] == "message_stop":
            out.append([])
        out[-1].append((name, data))
    return out


STREAMED = [
    pytest.param(events, x, id=f"{x.name}-{x.n}-{k}") for x in ALL if x.is_sse for k, events in enumerate(streams(x))
]
WHOLE = [pytest.param(json.loads(x.body), x, id=f"{x.name}-{x.n}") for x in ALL if x.status == 200 and not x.is_sse]
ERRORS = [pytest.param(x, id=f"{x.name}-{x.n}") for x in ALL if x.status >= 400]


def reference(events: list[tuple[str | None, Any]]) -> dict[str, Any]:
    """The message that raw events describe, as far as they go."""
    message: dict[str, Any] = {}
    inputs: dict[int, str] = {}
    for _, data in events:
        if not isinstance(data, dict):
            continue
        kind = data.get("type")
        if kind == "message_start":
            message, inputs = {**data["message"], "content": list(data["message"]["content"])}, {}
        elif kind == "content_block_start":
            message["content"].append(dict(data["content_block"]))
        elif kind == "content_block_delta":
            block, delta = message["content"][data["index"]], data["delta"]
            if delta["type"] == "text_delta":
                block["text"] += delta["text"]
            elif delta["type"] == "thinking_delta":
                block["thinking"] += delta["thinking"]
            elif delta["type"] == "signature_delta":
                block["signature"] = delta["signature"]
            elif delta["type"] == "citations_delta":
                block["citations"] = [*(block.get("citations") or []), delta["citation"]]
            elif delta["type"] == "input_json_delta":
                inputs[data["index"]] = inputs.get(data["index"], "") + delta["partial_json"]
            elif delta["type"] == "compaction_delta":
                block |= {k: v for k, v in delta.items() if k != "type"}
        elif kind == "message_delta":
            message |= {k: v for k, v in data["delta"].items() if v is not None}
            message["usage"] |= {k: v for k, v in data["usage"].items() if v is not None}
            message |= {k: v for k, v in data.items() if k not in ("type", "delta", "usage")}
    for index, text in inputs.items():
        if text:
            try:
                message["content"][index]["input"] = json.loads(text, strict=False)
            except ValueError:
                message["content"][index]["broken_input"] = text
    return message


def texts_of(message: dict[str, Any]) -> str:
    return "".join(block["text"] for block in message.get("content", ()) if block["type"] == "text")


def thinking_of(message: dict[str, Any]) -> str:
    return "".join(block["thinking"] for block in message.get("content", ()) if block["type"] == "thinking")


def check_against(completion: Completion, message: dict[str, Any]) -> None:
    """Everything that the raw message holds is in the completion."""
    blocks = message["content"]
    assert completion.text == texts_of(message)
    assert completion.thinking == thinking_of(message)
    parts = completion.message.parts
    thinking = [part for part in parts if isinstance(part, ThinkingPart)]
    assert [part.signature for part in thinking if part.signature] == [
        block["signature"] for block in blocks if block["type"] == "thinking" and block.get("signature")
    ]
    assert [part.opaque for part in thinking if part.redacted] == [
        b["data"] for b in blocks if b["type"] == "redacted_thinking"
    ]
    calls = [block for block in blocks if block["type"] == "tool_use"]
    assert [(call.id, call.name) for call in completion.tool_calls] == [(block["id"], block["name"]) for block in calls]
    for call, block in zip(completion.tool_calls, calls, strict=True):
        if "broken_input" in block:
            assert call.raw_arguments == block["broken_input"]
            assert call.error
        else:
            assert call.arguments == block["input"]
            assert call.error is None
    cited = [citation.extra["anthropic"] for part in parts if isinstance(part, TextPart) for citation in part.citations]
    assert cited == [raw for block in blocks if block["type"] == "text" for raw in block.get("citations") or []]
    known = ("text", "thinking", "redacted_thinking", "tool_use")
    assert [part.payload for part in parts if isinstance(part, ServerToolPart)] == [
        b for b in blocks if b["type"] not in known
    ]
    assert completion.response_id == message["id"]
    assert completion.model == message["model"]
    check_usage(completion, message["usage"])
    for name in ("container", "context_management", "stop_details", "stop_sequence"):
        if message.get(name) is not None:
            assert completion.extra["anthropic"][name] == message[name]


def check_usage(completion: Completion, raw: dict[str, Any]) -> None:
    usage = completion.usage
    inputs = [raw.get(name) for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")]
    assert usage.input_tokens == sum(tokens or 0 for tokens in inputs)
    assert usage.output_tokens == raw["output_tokens"]
    assert usage.cache_read_tokens == raw.get("cache_read_input_tokens")
    assert usage.cache_write_tokens == raw.get("cache_creation_input_tokens")
    assert usage.reasoning_tokens == (raw.get("output_tokens_details") or {}).get("thinking_tokens")
    assert usage.raw == {k: v for k, v in raw.items() if v is not None}
    for name, calls in (raw.get("server_tool_use") or {}).items():
        assert usage.details[name] == calls
    for lifetime in ("5m", "1h"):
        tokens = (raw.get("cache_creation") or {}).get(f"ephemeral_{lifetime}_input_tokens")
        assert usage.details.get(f"cache_write_{lifetime}_tokens") == tokens


def sent_back(message: Message, model: str) -> list[dict[str, Any]]:
    """The assistant content that the next request would carry."""
    history = [Message(role="user", content="go"), stored(message)]
    body = CODEC.encode(Request(messages=history), target(model), stream=False).body
    return next((turn["content"] for turn in body["messages"] if turn["role"] == "assistant"), [])


def expected_back(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The received blocks, less what the API refuses in a request: blank text, empty citations, nulls."""
    out = []
    for block in message["content"]:
        block = (
            without_nulls(block)
            if block["type"] in ("text", "thinking", "redacted_thinking", "tool_use")
            else dict(block)
        )
        if block["type"] == "text":
            if not block["text"].strip():
                continue
            if not block.get("citations"):
                block.pop("citations", None)
        if block["type"] == "thinking" and not block.get("signature"):
            continue
        if block.pop("broken_input", None) is not None:
            block["input"] = {}
        out.append(block)
    return out


@pytest.mark.parametrize(("events", "exchange"), STREAMED)
def test_a_recorded_stream_is_decoded_in_full(events: list[Any], exchange: Exchange) -> None:
    completion = outcome(replay(CODEC, events, target()))
    message = reference(events)
    if exchange.scenario in BROKEN:
        assert completion.error is not None
        assert completion.text == texts_of(message)
        assert completion.thinking == thinking_of(message)
        return
    assert completion.error is None
    assert completion.native_finish_reason == message["stop_reason"]
    check_against(completion, message)


@pytest.mark.parametrize(("response", "exchange"), WHOLE)
def test_a_recorded_whole_answer_is_decoded_in_full(response: dict[str, Any], exchange: Exchange) -> None:
    completion = decode(CODEC, response, target())
    assert completion.error is None
    assert completion.native_finish_reason == response["stop_reason"]
    check_against(completion, response)


@pytest.mark.parametrize(("events", "exchange"), STREAMED)
def test_stream_and_whole_answer_agree(events: list[Any], exchange: Exchange) -> None:
    message = reference(events)
    if exchange.scenario in BROKEN or any("broken_input" in block for block in message["content"]):
        pytest.skip("an answer that was cut has no whole form")
    streamed = outcome(replay(CODEC, events, target()))
    whole = decode(CODEC, message, target())
    different = {"warnings"} if streamed.warnings else set()  # a spliced stream says so
    assert {k: v for k, v in comparable(streamed).items() if k not in different} == {
        k: v for k, v in comparable(whole).items() if k not in different
    }


@pytest.mark.parametrize(("events", "exchange"), STREAMED)
def test_a_stream_cut_between_any_two_events_is_one_error_with_all_text_so_far(
    events: list[Any], exchange: Exchange
) -> None:
    end = next(
        (
            n
            for n, (_, data) in enumerate(events)
            if isinstance(data, dict) and data.get("type") in ("message_stop", "error")
        ),
        len(events),
    )
    for n in range(end + 1):
        seen = replay(CODEC, events[:n], target())
        completion = outcome(seen)
        assert isinstance(seen[-1], StreamError)
        assert completion.error is not None
        assert completion.error.kind == "stream_cut"
        message = reference(events[:n])
        assert completion.text == texts_of(message)
        assert completion.thinking == thinking_of(message)
        assert completion.runnable_tool_calls == []


@pytest.mark.parametrize(("events", "exchange"), STREAMED)
def test_a_recorded_stream_goes_back_value_by_value(events: list[Any], exchange: Exchange) -> None:
    if exchange.scenario in BROKEN:
        pytest.skip("an answer that was cut")
    message = reference(events)
    completion = outcome(replay(CODEC, events, target(message["model"])))
    assert sent_back(completion.message, message["model"]) == expected_back(message)


@pytest.mark.parametrize(("response", "exchange"), WHOLE)
def test_a_recorded_whole_answer_goes_back_value_by_value(response: dict[str, Any], exchange: Exchange) -> None:
    completion = decode(CODEC, response, target(response["model"]))
    assert sent_back(completion.message, response["model"]) == expected_back(response)


def _key(block: dict[str, Any]) -> Any:
    return (block["type"], *(block.get(name) for name in ("id", "tool_use_id", "signature", "data")))


def _pairs() -> list[Any]:
    by_file: dict[str, list[Exchange]] = {}
    for exchange in ALL:
        by_file.setdefault(exchange.name, []).append(exchange)
    return [
        pytest.param(first, second, id=f"{first.name}-{first.n}")
        for chain in by_file.values()
        for first, second in itertools.pairwise(chain)
        if first.status == 200 == second.status and isinstance(second.request, dict)
    ]


def _plain(value: Any) -> str:
    """JSON text without nulls, typographic characters made plain: one recorder did both to the requests it kept."""
    text = json.dumps(without_nulls(value), sort_keys=True, ensure_ascii=False)
    return text.translate(str.maketrans("\u2013\u2019\xa0", "-' "))


@pytest.mark.parametrize(("first", "second"), _pairs())
def test_what_a_recorded_client_sent_back_is_what_we_send_back(first: Exchange, second: Exchange) -> None:
    if first.is_sse:
        events = streams(first)[0]
        model = reference(events)["model"]
        completion = outcome(replay(CODEC, events, target(model)))
    else:
        model = json.loads(first.body)["model"]
        completion = decode(CODEC, json.loads(first.body), target(model))
    ours = {_key(block): block for block in sent_back(completion.message, model) if block["type"] != "text"}
    theirs = [
        block
        for turn in second.request["messages"]
        if turn["role"] == "assistant" and isinstance(turn["content"], list)
        for block in turn["content"]
        if block["type"] != "text" and _key(block) in ours
    ]
    for block in theirs:
        mine = ours[_key(block)]
        sent = {k: v for k, v in block.items() if k != "cache_control"}
        assert _plain({k: mine.get(k) for k in sent}) == _plain(sent)


@pytest.mark.parametrize("exchange", ERRORS)
def test_a_recorded_error_answer_is_an_error_of_the_right_kind(exchange: Exchange) -> None:
    try:
        body: Any = json.loads(exchange.body)
    except ValueError:
        body = exchange.body
    info = CODEC.error(exchange.status, {}, body, target())
    kinds = {
        400: "bad_request",
        401: "authentication",
        403: "permission_denied",
        404: "not_found",
        413: "bad_request",
        429: "rate_limited",
    }
    kinds |= {500: "server_error", 502: "server_error", 529: "overloaded"}
    assert info.kind == kinds[exchange.status]
    assert info.status == exchange.status


def test_the_corpus_was_there(shared: Any) -> None:
    assert len(STREAMED) > 50
    assert len(WHOLE) > 15
    assert len(ERRORS) >= 8
