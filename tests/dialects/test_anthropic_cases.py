"""Field cases of the Messages dialect, by id, and what else the wire demands of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rein_nb.dialects.anthropic import AnthropicCodec
from rein_nb.dialects.base import Capabilities, Quirks, Target, decode
from rein_nb.ir import (
    Completion,
    InvalidRequest,
    MediaPart,
    Message,
    Options,
    Origin,
    OutputFormat,
    Request,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    UnsupportedOption,
    Usage,
)
from tests.dialects.wire_replay import outcome, parsed, replay, stored

CODEC = AnthropicCodec()
TARGET = Target(
    provider="anthropic",
    dialect="anthropic",
    model="claude-x",
    quirks=Quirks(strict_tools=True, adaptive_thinking=True),
)
ORIGIN = TARGET.origin


def sse(*events: dict[str, Any]) -> str:
    return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)


def start(**message: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "output_tokens": 1}
    base = {
        "id": "m1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "usage": usage,
    }
    return {"type": "message_start", "message": base | message}


def block(index: int, content: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def finish(reason: str, **delta: Any) -> list[dict[str, Any]]:
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None, **delta},
            "usage": {"output_tokens": 20},
        },
        {"type": "message_stop"},
    ]


def answer(*events: dict[str, Any]) -> Completion:
    return outcome(replay(CODEC, parsed(sse(*events)), TARGET))


def encode(messages: list[Message], target: Target = TARGET, **fields: Any) -> dict[str, Any]:
    return CODEC.encode(Request.make(messages, **fields), target, stream=False).body


def user(*parts: Any) -> Message:
    return Message(role="user", content=list(parts))


def assistant(*parts: Any, origin: Origin | None = ORIGIN) -> Message:
    return Message(role="assistant", parts=list(parts), origin=origin)


HI = [user("hi")]
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


# -- field cases --------------------------------------------------------------------------------------


def test_C024_thinking_and_its_signature_go_back_byte_for_byte() -> None:
    completion = answer(
        start(),
        *block(
            0,
            {"type": "thinking", "thinking": "", "signature": ""},
            {"type": "thinking_delta", "thinking": "need the tide"},
            {"type": "signature_delta", "signature": "SIG-abc=="},
        ),
        *block(
            1,
            {"type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"port":"Brest"}'},
        ),
        *finish("tool_use"),
    )
    history = [*HI, stored(completion.message), Message(role="tool", tool_call_id="toolu_1", content="4.2 m")]
    turns = encode(history)["messages"]
    assert turns[1:] == [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "need the tide", "signature": "SIG-abc=="},
                {"type": "tool_use", "id": "toolu_1", "name": "get_tide", "input": {"port": "Brest"}},
            ],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "4.2 m"}]},
    ]


def test_C026_no_blank_text_block_leaves() -> None:
    history = [
        user("go"),
        assistant(TextPart(text=""), ToolCall(id="toolu_1", name="now")),
        Message(role="tool", tool_call_id="toolu_1", content=""),
        assistant(TextPart(text="  \n")),
        user("and?"),
    ]
    assert encode(history)["messages"] == [
        {"role": "user", "content": [{"type": "text", "text": "go"}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "toolu_1"}, {"type": "text", "text": "and?"}],
        },
    ]


def test_C028_results_stand_first_in_call_order_and_user_messages_are_one() -> None:
    history = [
        user("compare"),
        assistant(ToolCall(id="toolu_1", name="a"), ToolCall(id="toolu_2", name="b")),
        user("hurry up"),
        Message(role="tool", tool_call_id="toolu_2", content="B"),
        Message(role="tool", tool_call_id="toolu_1", content="A"),
        user("and be brief"),
    ]
    turns = encode(history)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "user"]
    assert turns[2]["content"] == [
        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "A"},
        {"type": "tool_result", "tool_use_id": "toolu_2", "content": "B"},
        {"type": "text", "text": "hurry up"},
        {"type": "text", "text": "and be brief"},
    ]


LATE_SYSTEM = [
    Message(role="system", content="Answer in French."),
    user("hi"),
    assistant(TextPart(text="Salut")),
    Message(role="system", content="From now on be formal."),
    user("again"),
]


def test_C030_a_late_system_message_stays_at_its_place_as_a_marked_block() -> None:
    body = encode(LATE_SYSTEM)
    assert body["system"] == "Answer in French."
    assert body["messages"][2]["content"] == [
        {"type": "text", "text": "<system>\nFrom now on be formal.\n</system>"},
        {"type": "text", "text": "again"},
    ]


def test_C030_a_late_system_message_keeps_its_role_where_the_model_takes_it() -> None:
    target = Target(provider="anthropic", dialect="anthropic", model="claude-x", quirks=Quirks(mid_system=True))
    turns = encode(LATE_SYSTEM, target)["messages"]
    assert [turn["role"] for turn in turns] == ["user", "assistant", "system", "user"]
    assert turns[2]["content"] == [{"type": "text", "text": "From now on be formal."}]


def test_C030_a_late_system_message_never_parts_a_call_from_its_result() -> None:
    history = [
        user("hi"),
        assistant(ToolCall(id="toolu_1", name="a")),
        Message(role="system", content="Be formal."),
        Message(role="tool", tool_call_id="toolu_1", content="A"),
    ]
    for quirks in (Quirks(), Quirks(mid_system=True)):
        turns = encode(history, Target(provider="anthropic", dialect="anthropic", model="claude-x", quirks=quirks))[
            "messages"
        ]
        assert turns[2]["content"][0]["type"] == "tool_result"
        assert "Be formal." in json.dumps(turns)


def test_C031_a_paused_turn_is_unfinished_and_goes_back_unchanged() -> None:
    completion = answer(
        start(),
        *block(
            0,
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"query":"tides"}'},
        ),
        *finish("pause_turn"),
    )
    assert (completion.finish_reason, completion.native_finish_reason) == ("length", "pause_turn")
    assert completion.tool_calls == []
    turns = encode([*HI, stored(completion.message)])["messages"]
    assert turns[1]["content"] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}}
    ]


def test_C031_a_paused_turn_and_its_continuation_are_one_turn() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tides"}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    history = [
        *HI,
        assistant(ServerToolPart(payload=use)),
        assistant(ServerToolPart(payload=result), TextPart(text="At 9.")),
    ]
    turns = encode([*history, user("thanks")])["messages"]
    assert turns[1]["content"] == [use, result, {"type": "text", "text": "At 9."}]


def _marked(text: str) -> TextPart:
    return TextPart(text=text, extra={"anthropic": {"cache_control": {"type": "ephemeral"}}})


def _marks(body: dict[str, Any]) -> list[str]:
    found = [f"tool {tool['name']}" for tool in body.get("tools", []) if "cache_control" in tool]
    system = body.get("system")
    found += [
        f"system {item['text']}" for item in (system if isinstance(system, list) else []) if "cache_control" in item
    ]
    return found + [item["text"] for turn in body["messages"] for item in turn["content"] if "cache_control" in item]


def test_C032_at_most_four_cache_marks_leave_and_the_oldest_in_messages_go_first() -> None:
    tool = ToolSpec(name="add", extra={"anthropic": {"cache_control": {"type": "ephemeral"}}})
    history = [
        Message(role="system", parts=[_marked("s1"), _marked("s2")]),
        user(_marked("u1")), assistant(TextPart(text="a1")),
        user(_marked("u2")), assistant(TextPart(text="a2")),
        user(_marked("u3")),
    ]  # fmt: skip
    call = CODEC.encode(Request.make(history, tools=[tool]), TARGET, stream=False)
    assert _marks(call.body) == ["tool add", "system s1", "system s2", "u3"]
    assert len(call.warnings) == 1
    assert "6 cache marks" in call.warnings[0]


def test_C032_automatic_marks_give_way_to_marks_set_by_hand() -> None:
    history = [
        Message(role="system", content="s"),
        user(_marked("u1"), _marked("u2"), _marked("u3")), assistant(TextPart(text="a1")),
        user("u4"),
    ]  # fmt: skip
    options = Options(extensions={"anthropic": {"cache_control": "auto"}})
    call = CODEC.encode(Request.make(history, tools=[ADD], options=options), TARGET, stream=False)
    assert _marks(call.body) == ["u1", "u2", "u3", "u4"]
    assert call.warnings == []
    assert "cache_control" not in call.body


def test_automatic_cache_marks_stand_on_what_the_next_request_shares() -> None:
    options = Options(extensions={"anthropic": {"cache_control": "auto"}})
    history = [Message(role="system", content="s"), user("u1"), assistant(TextPart(text="a1")), user("u2")]
    assert _marks(encode(history, tools=[ADD], options=options)) == ["tool add", "system s", "u1", "u2"]
    whole = Options(extensions={"anthropic": {"cache_control": {"type": "ephemeral", "ttl": "1h"}}})
    assert encode(history, options=whole)["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


def test_C033_a_call_without_arguments_runs_and_goes_back_as_an_object() -> None:
    completion = answer(
        start(),
        *block(
            0,
            {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}},
            {"type": "input_json_delta", "partial_json": ""},
        ),
        *finish("tool_use"),
    )
    assert [call.arguments for call in completion.runnable_tool_calls] == [{}]
    history = [*HI, completion.message, Message(role="tool", tool_call_id="toolu_1", content="9:00")]
    assert encode(history)["messages"][1]["content"] == [
        {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}}
    ]


def test_C033_half_arguments_never_become_an_empty_object_that_runs() -> None:
    completion = answer(
        start(),
        *block(
            0,
            {"type": "tool_use", "id": "toolu_1", "name": "now", "input": {}},
            {"type": "input_json_delta", "partial_json": '{"a":'},
        ),
        *finish("tool_use"),
    )
    assert completion.runnable_tool_calls == []
    assert completion.tool_calls[0].raw_arguments == '{"a":'
    turns = encode([*HI, completion.message])["messages"]
    assert turns[1]["content"][0]["input"] == {}
    assert turns[2]["content"][0]["is_error"] is True


@pytest.mark.parametrize("choice", ["required", "add"])
@pytest.mark.parametrize(
    ("options", "named"),
    [
        (Options(reasoning_effort="medium"), "reasoning_effort"),
        (Options(extensions={"anthropic": {"thinking": {"type": "enabled", "budget_tokens": 2048}}}), "thinking"),
    ],
)
def test_C036_a_forced_tool_and_thinking_are_refused_here_naming_both(
    choice: str, options: Options, named: str
) -> None:
    with pytest.raises(InvalidRequest, match=rf"tool_choice.*{named}"):
        encode(HI, tools=[ADD], tool_choice=ToolChoice.of(choice), options=options)


def test_C036_a_forced_tool_without_thinking_is_fine() -> None:
    body = encode(HI, tools=[ADD], tool_choice=ToolChoice.of("add"), options=Options(reasoning_effort="none"))
    assert body["tool_choice"] == {"type": "tool", "name": "add"}
    assert body["thinking"] == {"type": "disabled"}


SEARCH = [
    start(),
    *block(
        0,
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"query":"ferry"}'},
    ),
    *block(
        1,
        {
            "type": "web_search_tool_result",
            "tool_use_id": "srvtoolu_1",
            "content": [
                {
                    "type": "web_search_result",
                    "url": "https://example.org/f",
                    "encrypted_content": "E1",
                    "page_age": None,
                }
            ],
        },
    ),
    *block(2, {"type": "text", "text": ""}, {"type": "text_delta", "text": "At 9."}),
    *block(
        3,
        {"type": "tool_use", "id": "toolu_9", "name": "book", "input": {}},
        {"type": "input_json_delta", "partial_json": '{"t":9}'},
    ),
    *finish("tool_use"),
]


def test_C039_server_tool_blocks_go_back_whole_to_their_origin() -> None:
    completion = answer(*SEARCH)
    assert [part.type for part in completion.message.parts] == ["server_tool", "server_tool", "text", "tool_call"]
    use, result = completion.message.parts[:2]
    assert isinstance(use, ServerToolPart)
    assert isinstance(result, ServerToolPart)
    assert (use.name, use.input, result.id, result.output[0]["encrypted_content"]) == (
        "web_search",
        {"query": "ferry"},
        "srvtoolu_1",
        "E1",
    )
    turns = encode([*HI, stored(completion.message)])["messages"]
    assert turns[1]["content"] == [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "ferry"}},
        SEARCH[4]["content_block"],
        {"type": "text", "text": "At 9."},
        {"type": "tool_use", "id": "toolu_9", "name": "book", "input": {"t": 9}},
    ]


def test_C039_server_tool_blocks_are_left_out_elsewhere_with_a_warning() -> None:
    elsewhere = Target(provider="vertex", dialect="anthropic", model="claude-x")
    call = CODEC.encode(Request.make([*HI, answer(*SEARCH).message]), elsewhere, stream=False)
    assert [item["type"] for item in call.body["messages"][1]["content"]] == ["text", "tool_use"]
    assert any("web_search" in warning for warning in call.warnings)


def test_C084_input_tokens_are_all_input() -> None:
    raw = {
        "input_tokens": 5,
        "cache_read_input_tokens": 128955,
        "cache_creation_input_tokens": 1253,
        "output_tokens": 10,
    }
    usage = answer(start(usage=raw), *finish("end_turn")[1:]).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens, usage.output_tokens) == (
        130213,
        128955,
        1253,
        10,
    )
    assert usage.uncached_input_tokens == 5


def test_C085_unknown_counts_stay_unknown() -> None:
    raw = {"input_tokens": None, "output_tokens": 98, "cache_read_input_tokens": None}
    usage = answer(start(usage=raw), *finish("end_turn")[1:]).usage
    assert (usage.input_tokens, usage.cache_read_tokens, usage.output_tokens) == (None, None, 98)


def test_C086_running_totals_replace_each_other() -> None:
    reports = [
        {"output_tokens": 8},
        {"input_tokens": None, "cache_read_input_tokens": None, "output_tokens": 12},
        {"input_tokens": 40, "cache_read_input_tokens": 100, "output_tokens": 15},
    ]
    usage = answer(
        start(usage={"input_tokens": 25, "cache_read_input_tokens": 100, "output_tokens": 1}),
        *({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": report} for report in reports),
        {"type": "message_stop"},
    ).usage
    assert (usage.uncached_input_tokens, usage.cache_read_tokens, usage.output_tokens) == (40, 100, 15)
    assert usage.input_tokens == 140


def test_C086_a_report_of_one_count_leaves_the_others_in_the_total() -> None:
    usage = answer(
        start(usage={"input_tokens": 25, "cache_read_input_tokens": 100, "output_tokens": 1}),
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 40, "output_tokens": 15},
        },
        {"type": "message_stop"},
    ).usage
    assert (usage.input_tokens, usage.uncached_input_tokens, usage.cache_read_tokens) == (140, 40, 100)


@pytest.mark.parametrize(
    ("type_", "kind", "retryable"),
    [
        ("overloaded_error", "overloaded", True),
        ("invalid_request_error", "bad_request", False),
        ("api_error", "server_error", True),
    ],
)
@pytest.mark.parametrize("text", ["", "Once"])
def test_C091_an_error_event_has_the_kind_of_its_status(type_: str, kind: str, retryable: bool, text: str) -> None:
    said = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})[:2] if text else []
    completion = answer(start(), *said, {"type": "error", "error": {"type": type_, "message": "no"}})
    assert completion.error is not None
    assert (completion.error.kind, completion.error.retryable, completion.text) == (kind, retryable, text)


# -- the stream ---------------------------------------------------------------------------------------


def test_a_stop_reason_without_message_stop_is_a_cut_stream() -> None:
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello."})
    completion = answer(start(), *text, finish("end_turn")[0])
    assert completion.error is not None
    assert completion.error.kind == "stream_cut"
    assert completion.text == "Hello."
    assert "message_stop" in completion.warnings[0]


def test_message_stop_without_a_stop_reason_ends_the_turn_for_an_unknown_reason() -> None:
    call = block(0, {"type": "tool_use", "id": "t", "name": "now", "input": {}})
    completion = answer(start(), *call, {"type": "message_stop"})
    assert (completion.error, completion.finish_reason, completion.native_finish_reason) == (None, "other", None)
    assert completion.runnable_tool_calls == []


def test_a_spliced_answer_voids_what_came_before_it() -> None:
    completion = answer(
        start(id="m1"),
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hel"}),
        *block(1, {"type": "tool_use", "id": "t1", "name": "pay", "input": {"eur": 5}}),
        start(id="m2"),
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"}),
        *block(1, {"type": "tool_use", "id": "t2", "name": "pay", "input": {"eur": 5}}),
        *finish("tool_use"),
    )
    assert completion.text == "Hello"
    assert [call.id for call in completion.runnable_tool_calls] == ["t2"]
    assert completion.response_id == "m2"
    assert "void" in completion.warnings[0]


def test_a_message_start_sent_twice_changes_nothing() -> None:
    text = block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "Hello"})
    completion = answer(start(), text[0], start(), *text[1:], *finish("end_turn"))
    assert (completion.text, completion.warnings) == ("Hello", [])


def test_blocks_that_all_have_index_0_are_told_apart() -> None:
    completion = answer(
        start(),
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "one"}),
        *block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "two"}),
        *finish("end_turn"),
    )
    assert [part.text for part in completion.message.parts if isinstance(part, TextPart)] == ["one", "two"]


def test_deltas_without_a_start_are_not_lost() -> None:
    deltas = [
        block(0, {}, {"type": "text_delta", "text": "hi"})[1],
        block(1, {}, {"type": "thinking_delta", "thinking": "hm"})[1],
    ]
    completion = answer(start(), *deltas, *finish("end_turn"))
    assert (completion.text, completion.thinking) == ("hi", "hm")


def test_a_broken_event_in_the_middle_is_no_success() -> None:
    events = parsed(sse(start(), *block(0, {"type": "text", "text": "a"})))
    events += [("content_block_delta", '{"type": "content_bl'), *parsed(sse(*finish("end_turn")))]
    completion = outcome(replay(CODEC, events, TARGET))
    assert completion.error is not None
    assert completion.error.kind == "malformed_response"
    assert completion.text == "a"


def test_a_signature_alone_and_redacted_thinking_are_parts() -> None:
    completion = answer(
        start(),
        *block(0, {"type": "thinking", "thinking": "", "signature": ""}, {"type": "signature_delta", "signature": "S"}),
        *block(1, {"type": "redacted_thinking", "data": "R"}),
        *finish("end_turn"),
    )
    assert completion.message.parts == [ThinkingPart(signature="S"), ThinkingPart(opaque="R", redacted=True)]


def test_an_unknown_block_keeps_its_payload_and_unknown_deltas() -> None:
    completion = answer(
        start(),
        *block(0, {"type": "hologram", "beam": 1}, {"type": "hologram_delta", "colour": "red"}),
        *finish("end_turn"),
    )
    part = completion.message.parts[0]
    assert isinstance(part, ServerToolPart)
    assert part.payload == {"type": "hologram", "beam": 1, "colour": "red"}


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("end_turn", "stop"), ("stop_sequence", "stop"), ("max_tokens", "length"), ("pause_turn", "length"), ("refusal", "refusal"),
        ("model_context_window_exceeded", "length"), ("something_new", "other"),
    ],
)  # fmt: skip
def test_stop_reasons(native: str, reason: str) -> None:
    completion = answer(start(), *finish(native))
    assert (completion.finish_reason, completion.native_finish_reason) == (reason, native)


def test_stop_details_and_container_are_kept() -> None:
    details = {"type": "refusal", "category": "cyber", "explanation": "No."}
    completion = answer(start(container={"id": "c1"}), *finish("refusal", stop_details=details))
    assert completion.extra == {"anthropic": {"container": {"id": "c1"}, "stop_details": details}}


def test_usage_details_have_lifetimes_and_server_tool_calls() -> None:
    usage = {
        "input_tokens": 1, "output_tokens": 2, "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        "server_tool_use": {"web_search_requests": 5}, "output_tokens_details": {"thinking_tokens": 1},
    }  # fmt: skip
    got = answer(start(usage=usage), *finish("end_turn")[1:]).usage
    assert got.details == {"cache_write_5m_tokens": 3, "cache_write_1h_tokens": 4, "web_search_requests": 5}
    assert got.reasoning_tokens == 1
    assert got.raw == usage


@pytest.mark.parametrize(
    "usage",
    [{"input_tokens": -1, "output_tokens": "7"}, {"input_tokens": 1.5}, [], "x", {"iterations": [1, {"type": 2}]}],
)
def test_senseless_usage_is_no_fault(usage: Any) -> None:
    assert answer(start(usage=usage), *finish("end_turn")[1:]).error is None


def test_whole_answers_that_are_none_are_errors() -> None:
    assert decode(CODEC, "<html>", TARGET).error.kind == "malformed_response"  # type: ignore[union-attr]
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    assert decode(CODEC, overloaded, TARGET).error.kind == "overloaded"  # type: ignore[union-attr]


# -- the request --------------------------------------------------------------------------------------


OPTIONS: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 5, "max_output_tokens": 99, "stop": ["END"], "seed": 1, "frequency_penalty": 0.1,
    "presence_penalty": 0.1, "reasoning_effort": "high", "logprobs": 2,
}  # fmt: skip
ON_THE_WIRE: dict[str, Any] = {
    "temperature": {"temperature": 0.5}, "top_p": {"top_p": 0.9}, "top_k": {"top_k": 5}, "max_output_tokens": {"max_tokens": 99},
    "stop": {"stop_sequences": ["END"]}, "reasoning_effort": {"output_config": {"effort": "high"}},
}  # fmt: skip


def test_the_options_here_are_all_options() -> None:
    assert OPTIONS.keys() == Options.model_fields.keys() - {"model", "extensions"}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_on_the_wire_or_refused(name: str) -> None:
    options = Options.model_validate({name: OPTIONS[name]})
    if name not in ON_THE_WIRE:
        with pytest.raises(UnsupportedOption, match=name):
            encode(HI, options=options)
        return
    body = encode(HI, options=options)
    assert {key: body.get(key) for key in ON_THE_WIRE[name]} == ON_THE_WIRE[name]


@pytest.mark.parametrize("name", OPTIONS)
def test_an_option_that_the_model_refuses_is_refused_before_any_io(name: str) -> None:
    capabilities = Capabilities(unsupported_options=frozenset({name}))
    target = Target(provider="anthropic", dialect="anthropic", model="claude-x", capabilities=capabilities)
    with pytest.raises(UnsupportedOption, match=name):
        encode(HI, target, options=Options.model_validate({name: OPTIONS[name]}))


def test_a_temperature_above_one_is_refused_not_clamped() -> None:
    with pytest.raises(UnsupportedOption, match="0 to 1"):
        encode(HI, options=Options(temperature=1.5))


def test_an_effort_that_the_model_does_not_know_is_refused() -> None:
    target = Target(
        provider="anthropic",
        dialect="anthropic",
        model="claude-x",
        capabilities=Capabilities(reasoning_efforts=("low", "high")),
    )
    assert encode(HI, target, options=Options(reasoning_effort="low"))["output_config"] == {"effort": "low"}
    with pytest.raises(UnsupportedOption, match="low, high"):
        encode(HI, target, options=Options(reasoning_effort="max"))


def test_effort_turns_adaptive_thinking_on_where_the_model_has_it() -> None:
    assert encode(HI, options=Options(reasoning_effort="low"))["thinking"] == {
        "type": "adaptive",
        "display": "summarized",
    }
    plain = Target(provider="anthropic", dialect="anthropic", model="claude-x")
    assert "thinking" not in encode(HI, plain, options=Options(reasoning_effort="low"))


def test_max_tokens_is_always_there() -> None:
    assert encode(HI)["max_tokens"] == 4096
    assert encode(HI, options=Options(reasoning_effort="high"))["max_tokens"] == 16384
    known = Target(
        provider="anthropic", dialect="anthropic", model="claude-x", capabilities=Capabilities(max_output_tokens=64000)
    )
    assert encode(HI, known)["max_tokens"] == 64000
    assert encode(HI, known, options=Options(max_output_tokens=10))["max_tokens"] == 10


def test_a_thinking_budget_fits_into_max_tokens() -> None:
    thinking = {"anthropic": {"thinking": {"type": "enabled", "budget_tokens": 10000}}}
    assert encode(HI, options=Options(extensions=thinking))["max_tokens"] == 14096
    with pytest.raises(InvalidRequest, match=r"max_output_tokens \(500\).*budget_tokens \(10000\)"):
        encode(HI, options=Options(extensions=thinking, max_output_tokens=500))


@pytest.mark.parametrize("options", [{"temperature": 0.2}, {"top_k": 4}])
def test_sampling_and_thinking_are_refused_together(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="thinking"):
        encode(HI, options=Options(reasoning_effort="high", **options))


def test_extensions_are_merged_by_namespace() -> None:
    extensions = {
        "anthropic": {
            "metadata": {"user_id": "u"}, "betas": ["b-1", "b-2"], "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            "output_config": {"extra": 1},
        },
        "openai": {"service_tier": "flex"},
    }  # fmt: skip
    request = Request.make(HI, tools=[ADD], options=Options(extensions=extensions, reasoning_effort="low"))
    call = CODEC.encode(request, TARGET, stream=True)
    assert call.headers == {"anthropic-beta": "b-1,b-2"}
    assert call.body["metadata"] == {"user_id": "u"}
    assert [tool["name"] for tool in call.body["tools"]] == ["add", "web_search"]
    assert call.body["output_config"] == {"effort": "low", "extra": 1}
    assert call.body["stream"] is True
    assert "service_tier" not in call.body
    assert "betas" not in call.body
    assert call.path == "/v1/messages"


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        (ToolChoice(), {"type": "auto"}),
        (ToolChoice(mode="none"), {"type": "none"}),
        (ToolChoice(mode="required"), {"type": "any"}),
        (ToolChoice(mode="named", name="add"), {"type": "tool", "name": "add"}),
        (ToolChoice(parallel="single"), {"type": "auto", "disable_parallel_tool_use": True}),
        (ToolChoice(mode="required", parallel="allow"), {"type": "any", "disable_parallel_tool_use": False}),
    ],
)
def test_tool_choice(choice: ToolChoice, wire: dict[str, Any]) -> None:
    body = encode(HI, tools=[ADD], tool_choice=choice)
    assert body["tool_choice"] == wire
    assert body["tools"][0] | {"input_schema": None} == {"name": "add", "description": "Adds.", "input_schema": None}


def test_strict_tools_are_closed_and_strict() -> None:
    tool = encode(HI, tools=[ADD.model_copy(update={"strict": True})])["tools"][0]
    assert tool["strict"] is True
    assert tool["input_schema"]["additionalProperties"] is False
    assert "additionalProperties" not in ADD.parameters


def test_structured_output() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    body = encode(HI, output_format=OutputFormat.of(schema), options=Options(reasoning_effort="low"))
    assert body["output_config"]["format"]["type"] == "json_schema"
    assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert body["output_config"]["effort"] == "low"
    with pytest.raises(UnsupportedOption, match="JSON Schema"):
        encode(HI, output_format=OutputFormat(type="json"))
    none = Target(
        provider="anthropic", dialect="anthropic", model="old", capabilities=Capabilities(structured_output=False)
    )
    with pytest.raises(UnsupportedOption, match="old"):
        encode(HI, none, output_format=OutputFormat.of(schema))


PNG = b"\x89PNG\r\n\x1a\n0000"


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (MediaPart(kind="image", data=PNG), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgowMDAw"}}),
        (MediaPart(kind="image", url="https://example.org/a.png"), {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}),
        (MediaPart(kind="image", url="data:image/png;base64,AAAA"), {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}),
        (MediaPart(kind="image", file_id="file_1"), {"type": "image", "source": {"type": "file", "file_id": "file_1"}}),
        (
            MediaPart(kind="document", data=b"%PDF-1", name="a.pdf"),
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0x"}, "title": "a.pdf"},
        ),
        (
            MediaPart(kind="document", data=b"plain", mime_type="text/markdown", extra={"anthropic": {"citations": {"enabled": True}}}),
            {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "plain"}, "citations": {"enabled": True}},
        ),
    ],
)  # fmt: skip
def test_media(part: MediaPart, wire: dict[str, Any]) -> None:
    assert encode([user(part)])["messages"][0]["content"] == [wire]
    result = ToolResult(tool_call_id="t", content=[TextPart(text="see"), part])
    history = [*HI, assistant(ToolCall(id="t", name="look")), Message(role="tool", parts=[result])]
    assert encode(history)["messages"][2]["content"][0]["content"] == [{"type": "text", "text": "see"}, wire]


def test_a_block_that_a_caller_wrote_for_this_provider_is_sent_to_it_alone() -> None:
    upload = {"type": "container_upload", "file_id": "file_1"}
    history = [user("sum it up", ServerToolPart(name="container_upload", payload=upload, extra={"anthropic": {}}))]
    assert encode(history)["messages"][0]["content"] == [{"type": "text", "text": "sum it up"}, upload]
    foreign = [user("sum it up", ServerToolPart(name="container_upload", payload=upload, extra={"openai": {}}))]
    call = CODEC.encode(Request.make(foreign), TARGET, stream=False)
    assert len(call.body["messages"][0]["content"]) == 1
    assert call.warnings


def test_bytes_of_unknown_type_are_refused_with_advice() -> None:
    with pytest.raises(InvalidRequest, match="mime_type"):
        encode([user(MediaPart(kind="image", data=b"????"))])


def test_only_system_messages_make_no_request() -> None:
    with pytest.raises(InvalidRequest, match="at least one message"):
        encode([Message(role="system", content="s")])


def test_renamed_tools_come_back_under_their_own_name() -> None:
    call = CODEC.encode(Request.make(HI, tools=[ADD]), TARGET, stream=True)
    call.tool_names["sum"] = "add"
    events = parsed(
        sse(start(), *block(0, {"type": "tool_use", "id": "t", "name": "sum", "input": {}}), *finish("tool_use"))
    )
    decoder = CODEC.decoder(TARGET, call)
    names = [getattr(delta, "name", None) for name, data in events for delta in decoder.feed(data, name)]
    assert "add" in names
    assert "sum" not in names


def test_thinking_of_another_model_is_left_out_with_a_warning() -> None:
    other = Origin(provider="anthropic", dialect="anthropic", model="claude-y")
    call = CODEC.encode(
        Request.make([*HI, assistant(ThinkingPart(text="hm", signature="S"), TextPart(text="yes"), origin=other)]),
        TARGET,
        stream=False,
    )
    assert call.body["messages"][1]["content"] == [{"type": "text", "text": "yes"}]
    assert call.warnings


def test_the_same_history_gives_the_same_bytes() -> None:
    history = [*LATE_SYSTEM, answer(*SEARCH).message]
    assert json.dumps(encode(history)) == json.dumps(encode([stored(message) for message in history]))


def test_summing_starts_from_nothing() -> None:
    assert sum([answer(start(), *finish("end_turn")).usage] * 2, Usage()).output_tokens == 40
