"""No stream, however damaged, makes the Messages decoder raise."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from rein_nb.dialects.anthropic import AnthropicCodec
from rein_nb.dialects.base import Target, decode
from tests.dialects.wire_mutation import Events, damaged, survives
from tests.support import examples

CODEC = AnthropicCodec()
TARGET = Target(provider="anthropic", dialect="anthropic", model="claude-x")


def _events(*data: dict[str, Any]) -> Events:
    return [(item["type"], item) for item in data]


def _block(index: int, block: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": block},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


MESSAGE = {
    "id": "m1",
    "model": "claude-x",
    "content": [],
    "usage": {"input_tokens": 3, "cache_creation": {"ephemeral_5m_input_tokens": 1}},
}
CITE = {"type": "char_location", "document_index": 0, "cited_text": "q"}
FULL = _events(
    {"type": "message_start", "message": MESSAGE},
    {"type": "ping"},
    *_block(
        0,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "S"},
    ),
    *_block(1, {"type": "redacted_thinking", "data": "R"}),
    *_block(
        2,
        {"type": "text", "text": ""},
        {"type": "text_delta", "text": "Hi"},
        {"type": "citations_delta", "citation": CITE},
    ),
    *_block(
        3,
        {"type": "tool_use", "id": "t", "name": "add", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"a":1}'},
    ),
    *_block(
        4,
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query":"q"}'},
    ),
    *_block(5, {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"type": "web_search_result"}]}),
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "container": {"id": "c"}},
        "usage": {"output_tokens": 9, "iterations": [{"type": "compaction"}]},
    },
    {"type": "message_stop"},
)
FAILED = [*FULL[:9], *_events({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}})]
SPLICED = [*FULL[:9], ("message_start", {"type": "message_start", "message": {**MESSAGE, "id": "m2"}}), *FULL[1:]]


def test_the_streams_are_sound_before_they_are_damaged() -> None:
    for stream in (FULL, FAILED, SPLICED):
        survives(CODEC, stream, TARGET)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged([FULL, FAILED, SPLICED]))
def test_no_damaged_stream_raises(events: Events) -> None:
    survives(CODEC, events, TARGET)


@settings(max_examples=examples(100), deadline=None)
@given(damaged([FULL]))
def test_no_damaged_whole_answer_raises(events: Events) -> None:
    blocks = [data.get("content_block") for _, data in events if isinstance(data, dict) and "content_block" in data]
    head = events[0][1] if events and isinstance(events[0][1], dict) else {}
    decode(CODEC, {**MESSAGE, **head, "content": blocks}, TARGET)
