"""Every recorded Responses exchange: decoded in full, streamed and whole alike, cut anywhere, and replayed value by value.

What an answer holds is read here from its raw items, which the decoder never sees as a whole when it is streamed.
"""

from __future__ import annotations

import base64
import itertools
import json
from typing import Any

import pytest

from rein_nb.dialects.base import Quirks, Target, decode
from rein_nb.dialects.responses import ResponsesCodec
from rein_nb.ir import (
    Completion,
    MediaPart,
    Message,
    Options,
    RefusalPart,
    Request,
    ServerToolPart,
    StreamDone,
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

CODEC = ResponsesCodec()
FOLDERS = ("openai-responses", "openai-compatible", "deepseek")
ALL = [x for x in exchanges(FOLDERS, "") if "/responses" in x.path and not x.path.endswith("/input_tokens")]
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")


def target(model: str = "gpt-x") -> Target:
    quirks = Quirks(store=True, strict_tools=True, developer_role=True)
    return Target(provider="openai", dialect="openai-responses", model=model, quirks=quirks)


Events = list[tuple[str | None, Any]]


def _events(exchange: Exchange) -> Events:
    return parsed(exchange.body)


STREAMED = [pytest.param(_events(x), x, id=f"{x.name}-{x.n}") for x in ALL if x.is_sse]
COMPLETE = [p for p in STREAMED if p.values[1].scenario not in ("truncated-stream", "error-mid-stream")]
WHOLE = [pytest.param(json.loads(x.body), x, id=f"{x.name}-{x.n}") for x in ALL if x.status == 200 and not x.is_sse]
ERRORS = [pytest.param(x, id=f"{x.name}-{x.n}") for x in ALL if x.status >= 400]


def raw_response(events: Events) -> dict[str, Any]:
    """The response that the events add up to: the terminal one, with the items as their own last events gave them."""
    items: dict[int, Any] = {}
    response: dict[str, Any] = {}
    for _, data in events:
        if not isinstance(data, dict):
            continue
        if data.get("type") == "response.output_item.done":
            items[data["output_index"]] = data["item"]
        elif data.get("type") in TERMINAL and "response" in data:
            response = data["response"]
    return {**response, "output": [items[n] for n in sorted(items)] or response.get("output", [])}


def text_deltas(events: Events, kind: str) -> str:
    return "".join(
        data["delta"] for _, data in events if isinstance(data, dict) and data.get("type") == f"response.{kind}.delta"
    )


def visible_reasoning(item: dict[str, Any]) -> str:
    summary = [part["text"] for part in item.get("summary") or [] if part["text"]]
    return "\n\n".join(summary or [part["text"] for part in item.get("content") or []])


def content_parts(items: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [
        part
        for item in items
        if item["type"] == "message" and item.get("role", "assistant") == "assistant"
        for part in item["content"]
        if part["type"] == kind
    ]


def check_against(completion: Completion, response: dict[str, Any]) -> None:
    """Everything that the raw response holds is in the completion."""
    items = response["output"]
    parts = completion.message.parts
    texts = content_parts(items, "output_text")
    assert completion.text == "".join(part["text"] for part in texts)
    assert completion.message.refusal == "".join(part["refusal"] for part in content_parts(items, "refusal"))
    cited = [citation for part in parts if isinstance(part, TextPart) for citation in part.citations]
    assert [citation.extra["openai"] for citation in cited] == [
        note for part in texts for note in part.get("annotations") or []
    ]

    reasoning = [item for item in items if item["type"] == "reasoning"]
    thinking = [part for part in parts if isinstance(part, ThinkingPart)]
    assert [part.text for part in thinking] == [visible_reasoning(item) for item in reasoning]
    assert [part.opaque for part in thinking] == [item.get("encrypted_content") or None for item in reasoning]

    calls = [item for item in items if item["type"] in ("function_call", "custom_tool_call")]
    assert [(call.id, call.name) for call in completion.tool_calls] == [
        (item["call_id"], item["name"]) for item in calls
    ]
    for call, item in zip(completion.tool_calls, calls, strict=True):
        wanted = json.loads(item["arguments"] or "{}") if item["type"] == "function_call" else {"input": item["input"]}
        assert call.arguments == wanted
        assert call.error is None

    known = ("message", "reasoning", "function_call", "custom_tool_call")
    others = [item for item in items if item["type"] not in known or item.get("role", "assistant") != "assistant"]
    server = [part for part in parts if isinstance(part, ServerToolPart)]
    images = {part.extra["openai"]["result_of"]: part for part in parts if isinstance(part, MediaPart)}
    restored = [
        {**(part.payload or {}), "result": base64.b64encode(images[part.id].data or b"").decode()}
        if part.id in images
        else part.payload
        for part in server
    ]
    assert restored == others

    assert completion.response_id == response["id"]
    assert completion.model == (response.get("model") or target().model)
    check_usage(completion, response["usage"])


def check_usage(completion: Completion, raw: dict[str, Any]) -> None:
    usage = completion.usage
    assert (usage.input_tokens, usage.output_tokens) == (raw["input_tokens"], raw["output_tokens"])
    given, made = raw.get("input_tokens_details") or {}, raw.get("output_tokens_details") or {}
    assert usage.cache_read_tokens == given.get("cached_tokens")
    assert usage.cache_write_tokens == given.get("cache_write_tokens")
    assert usage.reasoning_tokens == made.get("reasoning_tokens")
    assert usage.raw == raw
    if "cost" in raw:
        assert usage.cost_usd == raw["cost"]


def check_finish(completion: Completion, response: dict[str, Any]) -> None:
    reason = (response.get("incomplete_details") or {}).get("reason")
    assert completion.native_finish_reason == (reason or response.get("status") or "completed")
    if reason == "max_output_tokens":
        assert completion.finish_reason == "length"
    elif completion.tool_calls:
        assert completion.finish_reason == "tool_calls"
    else:
        assert completion.finish_reason == ("refusal" if completion.message.refusal else "stop")


def sent_back(message: Message, model: str, **extension: Any) -> list[dict[str, Any]]:
    """The items that the next request would carry for the answer."""
    history = [Message(role="user", content="go"), stored(message)]
    options = Options(extensions={"openai": extension})
    body = CODEC.encode(Request(messages=history, options=options), target(model), stream=False).body
    return [item for item in body["input"][1:] if not item.get("type", "").endswith("_output") or "id" in item]


def expected_back(response: dict[str, Any]) -> list[dict[str, Any]]:
    """The received items, less nulls, empty texts, and reasoning that nothing follows."""
    out: list[dict[str, Any]] = []
    for item in response["output"]:
        if item["type"] == "message" and item.get("role", "assistant") == "assistant":
            content = [
                {k: v for k, v in part.items() if v not in (None, []) or k == "annotations"} for part in item["content"]
            ]
            content = [part for part in content if part.get("text") or part.get("refusal") or part.get("annotations")]
            if content:
                out.append({**without_nulls(item), "content": content})
        elif item["type"] in ("reasoning", "function_call", "custom_tool_call"):
            out.append(without_nulls(item))
        else:
            out.append(item)
    while out and out[-1]["type"] == "reasoning":
        out.pop()
    return out


@pytest.mark.parametrize(("events", "exchange"), COMPLETE)
def test_a_recorded_stream_is_decoded_in_full(events: Events, exchange: Exchange) -> None:
    completion = outcome(replay(CODEC, events, target()))
    assert completion.error is None
    response = raw_response(events)
    check_against(completion, response)
    check_finish(completion, response)
    assert completion.text == text_deltas(events, "output_text")


@pytest.mark.parametrize(("response", "exchange"), WHOLE)
def test_a_recorded_whole_answer_is_decoded_in_full(response: dict[str, Any], exchange: Exchange) -> None:
    completion = decode(CODEC, response, target())
    assert completion.error is None
    check_against(completion, response)
    check_finish(completion, response)


@pytest.mark.parametrize(("events", "exchange"), COMPLETE)
def test_stream_and_whole_answer_agree(events: Events, exchange: Exchange) -> None:
    streamed = outcome(replay(CODEC, events, target()))
    assert comparable(streamed) == comparable(decode(CODEC, raw_response(events), target()))


@pytest.mark.parametrize(("events", "exchange"), COMPLETE)
def test_a_server_that_sends_only_item_ends_gives_the_same_completion(events: Events, exchange: Exchange) -> None:
    ends = [
        (name, data)
        for name, data in events
        if isinstance(data, dict) and data["type"] in (*TERMINAL, "response.created", "response.output_item.done")
    ]
    ends.sort(key=lambda event: event[1].get("output_index", -1 if event[1]["type"] == "response.created" else 10**6))
    assert comparable(outcome(replay(CODEC, ends, target()))) == comparable(outcome(replay(CODEC, events, target())))


@pytest.mark.parametrize(("events", "exchange"), STREAMED)
def test_a_stream_cut_between_any_two_events_is_one_error_with_all_text_so_far(
    events: Events, exchange: Exchange
) -> None:
    end = next(
        (n for n, (_, data) in enumerate(events) if isinstance(data, dict) and data["type"] in TERMINAL), len(events)
    )
    for n in range(end + 1):
        seen = replay(CODEC, events[:n], target())
        completion = outcome(seen)
        assert isinstance(seen[-1], StreamError)
        assert completion.error is not None
        assert completion.error.kind == "stream_cut"
        assert completion.text == text_deltas(events[:n], "output_text")
        assert completion.runnable_tool_calls == []


@pytest.mark.parametrize(("events", "exchange"), [p for p in STREAMED if p not in COMPLETE])
def test_a_recorded_stream_that_failed_is_an_error_with_its_text(events: Events, exchange: Exchange) -> None:
    seen = replay(CODEC, events, target())
    completion = outcome(seen)
    assert isinstance(seen[-1], StreamError)
    assert completion.error is not None
    expected = {"truncated-stream": ("stream_cut",), "error-mid-stream": ("rate_limited", "server_error")}
    assert completion.error.kind in expected[exchange.scenario]
    assert completion.text == text_deltas(events, "output_text")


@pytest.mark.parametrize(("events", "exchange"), COMPLETE)
def test_a_recorded_stream_goes_back_value_by_value(events: Events, exchange: Exchange) -> None:
    response = raw_response(events)
    completion = outcome(replay(CODEC, events, target(response["model"])))
    assert sent_back(completion.message, response["model"], store=True) == expected_back(response)


@pytest.mark.parametrize(("response", "exchange"), WHOLE)
def test_a_recorded_whole_answer_goes_back_value_by_value(response: dict[str, Any], exchange: Exchange) -> None:
    model = response.get("model") or "gpt-x"
    completion = decode(CODEC, response, target(model))
    assert sent_back(completion.message, model, store=True) == expected_back(response)


def _pairs() -> list[Any]:
    by_file: dict[str, list[Exchange]] = {}
    for exchange in ALL:
        by_file.setdefault(exchange.name, []).append(exchange)
    return [
        pytest.param(first, second, id=f"{first.name}-{first.n}")
        for chain in by_file.values()
        for first, second in itertools.pairwise(chain)
        if first.status == 200 == second.status and isinstance((second.request or {}).get("input"), list)
    ]


def _key(item: dict[str, Any]) -> Any:
    return (item.get("type"), item.get("call_id") or item.get("encrypted_content") or item.get("id"))


def _shared(first: Exchange, second: Exchange) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(what we send back, what the recorded client sent back) for each item of the first answer that it sent."""
    response = raw_response(parsed(first.body)) if first.is_sse else json.loads(first.body)
    model = response.get("model") or "gpt-x"
    message = decode(CODEC, response, target(model)).message
    ours = {
        _key(item): item for item in sent_back(message, model, store=True) if item.get("type", "message") != "message"
    }
    # The client of the tool-search recordings writes its own search calls instead of what it received.
    mine_only = ("function_call_output", "custom_tool_call_output", "tool_search_call", "tool_search_output")
    theirs = [item for item in second.request["input"] if item.get("type") not in mine_only]
    return [(ours[_key(item)], item) for item in theirs if _key(item) in ours]


@pytest.mark.parametrize(("first", "second"), _pairs())
def test_what_a_recorded_client_sent_back_is_what_we_send_back(first: Exchange, second: Exchange) -> None:
    for mine, sent in _shared(first, second):
        wanted = {k: v for k, v in without_nulls(sent).items() if k != "status"}
        if wanted.get("content") == []:
            del wanted["content"]
        assert _parsed_arguments({k: mine.get(k) for k in wanted}) == _parsed_arguments(wanted)


def _parsed_arguments(item: dict[str, Any]) -> dict[str, Any]:
    arguments = item.get("arguments")
    return {**item, "arguments": json.loads(arguments)} if isinstance(arguments, str) else item


@pytest.mark.parametrize("exchange", ERRORS)
def test_a_recorded_error_answer_is_an_error_of_the_right_kind(exchange: Exchange) -> None:
    try:
        body: Any = json.loads(exchange.body)
    except ValueError:
        body = exchange.body
    info = CODEC.error(exchange.status, {}, body, target())
    kinds = {
        400: ("bad_request", "not_found"),
        401: ("authentication",),
        429: ("rate_limited",),
        500: ("server_error",),
    }
    assert info.kind in kinds[exchange.status]


def test_the_corpus_was_there(shared: Any) -> None:
    assert len(STREAMED) > 45
    assert len(WHOLE) > 30
    assert len(ERRORS) >= 5
    sent = [mine["type"] for pair in _pairs() for mine, _ in _shared(*pair.values)]
    assert sent.count("function_call") >= 10
    assert sent.count("reasoning") >= 4


def test_a_gateway_that_rotates_item_ids_gives_one_part_an_item(shared: Any) -> None:
    events = next(p.values[0] for p in STREAMED if "copilot" in p.values[1].name)
    seen = replay(CODEC, events, target())
    assert isinstance(seen[-1], StreamDone)
    assert [part.type for part in seen[-1].completion.message.parts] == ["thinking", "text"]


def test_a_refusal_is_kept_as_one(shared: Any) -> None:
    response = next(p.values[0] for p in WHOLE if "/refusal" in p.values[1].name)
    completion = decode(CODEC, response, target())
    assert [type(part) for part in completion.message.parts] == [RefusalPart]
    assert completion.finish_reason == "refusal"
