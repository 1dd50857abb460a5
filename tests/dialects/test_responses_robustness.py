"""No stream, however damaged, makes the Responses decoder raise."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings

from rein_nb.dialects.base import Quirks, Target, decode
from rein_nb.dialects.responses import ResponsesCodec
from tests.dialects.wire_mutation import Events, damaged, survives
from tests.support import examples

CODEC = ResponsesCodec()
TARGET = Target(provider="openai", dialect="openai-responses", model="o9", quirks=Quirks(store=True))

NOTE = {"type": "url_citation", "url": "u", "title": "t", "start_index": 0, "end_index": 1}
REASONING = {
    "type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "hm"}], "content": [], "encrypted_content": "E",
}  # fmt: skip
TEXT = {"type": "output_text", "text": "Hi", "annotations": [NOTE], "logprobs": [{"token": "Hi", "logprob": -1}]}
MESSAGE = {"type": "message", "id": "msg", "role": "assistant", "content": [TEXT, {"type": "refusal", "refusal": "no"}]}
CALL = {"type": "function_call", "id": "fc", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'}
CUSTOM = {"type": "custom_tool_call", "id": "ct", "call_id": "c2", "name": "sql", "input": "SELECT"}
SEARCH = {"type": "web_search_call", "id": "ws", "action": {"query": "q"}}
IMAGE = {"type": "image_generation_call", "id": "ig", "result": "AAAA", "output_format": "png"}
USAGE = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 1},
    "output_tokens": 4,
    "output_tokens_details": {"reasoning_tokens": 1},
}
ITEMS: list[dict[str, Any]] = [REASONING, MESSAGE, CALL, CUSTOM, SEARCH, IMAGE]
RESPONSE = {"id": "r", "model": "o9", "status": "completed", "output": ITEMS, "usage": USAGE, "service_tier": "default"}


def _events(*data: dict[str, Any]) -> Events:
    return [(item["type"], item) for item in data]


def _item(index: int, *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "response.output_item.added", "output_index": index, "item": ITEMS[index]},
        *({"output_index": index, "item_id": ITEMS[index]["id"], **delta} for delta in deltas),
        {"type": "response.output_item.done", "output_index": index, "item": ITEMS[index]},
    ]


FULL = _events(
    {"type": "response.created", "response": {"id": "r", "model": "o9"}},
    *_item(0, {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": "hm"}),
    *_item(
        1,
        {"type": "response.output_text.delta", "content_index": 0, "delta": "H"},
        {"type": "response.output_text.delta", "content_index": 0, "delta": "i"},
        {"type": "response.output_text.annotation.added", "content_index": 0, "annotation": NOTE},
        {"type": "response.output_text.done", "content_index": 0, "text": "Hi"},
        {"type": "response.refusal.delta", "content_index": 1, "delta": "no"},
        {"type": "response.refusal.done", "content_index": 1, "refusal": "no"},
    ),
    *_item(
        2,
        {"type": "response.function_call_arguments.delta", "delta": '{"a": '},
        {"type": "response.function_call_arguments.done", "arguments": '{"a": 1}'},
    ),
    *_item(3, {"type": "response.custom_tool_call_input.delta", "delta": "SELECT"}),
    *_item(4, {"type": "response.web_search_call.searching"}),
    *_item(5),
    {"type": "response.completed", "response": RESPONSE},
)
SHORT = [FULL[0], FULL[-1]]
FAILED = [
    *FULL[:7],
    *_events(
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "no"}},
        }
    ),
]


def test_the_streams_are_sound_before_they_are_damaged() -> None:
    for stream in (FULL, SHORT, FAILED):
        survives(CODEC, stream, TARGET)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(damaged([FULL, SHORT, FAILED]))
def test_no_damaged_stream_raises(events: Events) -> None:
    survives(CODEC, events, TARGET)


@settings(max_examples=examples(100), deadline=None)
@given(damaged([SHORT]))
def test_no_damaged_whole_answer_raises(events: Events) -> None:
    decode(CODEC, events[-1][1].get("response") if events and isinstance(events[-1][1], dict) else None, TARGET)
