"""Field cases of the Responses dialect, by id, and what else the wire demands of a request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rein_nb.dialects.base import Capabilities, Quirks, Target, decode
from rein_nb.dialects.responses import ResponsesCodec
from rein_nb.ir import (
    Completion,
    InvalidRequest,
    MediaPart,
    Message,
    Options,
    Origin,
    OutputFormat,
    RefusalPart,
    Request,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    ToolSpec,
    UnsupportedOption,
)
from tests.dialects.wire_replay import comparable, outcome, replay, stored

CODEC = ResponsesCodec()
QUIRKS = Quirks(store=True, strict_tools=True, developer_role=True)
TARGET = Target(provider="openai", dialect="openai-responses", model="o9", quirks=QUIRKS)
FOREIGN = Target(provider="somewhere", dialect="openai-responses", model="o9")
ORIGIN = TARGET.origin

USAGE = {
    "input_tokens": 10,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 2},
}


def response(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "model": "o9",
        "status": "completed",
        "output": list(output),
        "usage": USAGE,
    } | fields


def text_item(text: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content} | fields


def call_item(**fields: Any) -> dict[str, Any]:
    base = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "call_1",
        "name": "get_tide",
        "arguments": '{"port":"Brest"}',
    }
    return base | {"status": "completed"} | fields


def reasoning_item(**fields: Any) -> dict[str, Any]:
    return {"type": "reasoning", "id": "rs_1", "summary": []} | fields


def stream(*events: dict[str, Any], target: Target = TARGET) -> Completion:
    return outcome(replay(CODEC, [(event.get("type"), event) for event in events], target))


def completed(*output: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"type": "response.completed", "response": response(*output, **fields)}


def encode(messages: list[Message], target: Target = TARGET, **fields: Any) -> dict[str, Any]:
    return CODEC.encode(Request.make(messages, **fields), target, stream=False).body


def user(*parts: Any) -> Message:
    return Message(role="user", content=list(parts))


def result(text: str = "4.2 m", call_id: str = "call_1") -> Message:
    return Message(role="tool", tool_call_id=call_id, content=text)


HI = [user("hi")]
ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"a": {"type": "integer"}}})


# -- field cases --------------------------------------------------------------------------------------


def test_C040_reasoning_travels_right_before_its_call() -> None:
    answer = decode(CODEC, response(reasoning_item(encrypted_content="E1"), call_item()), TARGET)
    items = encode([*HI, stored(answer.message), result()])["input"]
    assert [item.get("type") for item in items] == [None, "reasoning", "function_call", "function_call_output"]
    assert items[1] == reasoning_item(encrypted_content="E1")
    assert items[2] == call_item()


def test_C040_reasoning_that_nothing_follows_is_not_sent() -> None:
    trailing = reasoning_item(id="rs_2", encrypted_content="E2")
    answer = decode(CODEC, response(reasoning_item(encrypted_content="E1"), call_item(), trailing), TARGET)
    items = encode([*HI, answer.message, result()])["input"]
    assert [item.get("id") for item in items] == [None, "rs_1", "fc_1", None]
    trimmed = answer.message.model_copy(
        update={"parts": [part for part in answer.message.parts if not isinstance(part, ToolCall)]}
    )
    assert encode([*HI, trimmed, user("go on")])["input"] == [
        {"role": "user", "content": text} for text in ("hi", "go on")
    ]


def test_C040_a_part_that_has_no_item_does_not_count_as_following() -> None:
    answer = decode(CODEC, response(reasoning_item(encrypted_content="E1")), TARGET)
    message = answer.message.model_copy(update={"parts": [*answer.message.parts, ServerToolPart(name="web_search")]})
    assert encode([*HI, message, user("go on")])["input"] == [
        {"role": "user", "content": text} for text in ("hi", "go on")
    ]


def test_C040_a_call_whose_reasoning_was_cut_does_not_point_at_it() -> None:
    answer = decode(CODEC, response(reasoning_item(encrypted_content="E1"), call_item()), TARGET)
    trimmed = answer.message.model_copy(update={"parts": answer.message.tool_calls})
    items = encode([*HI, trimmed, result()])["input"]
    assert items[1] == {k: v for k, v in call_item().items() if k != "id"}


def test_C041_nothing_is_stored_so_the_reasoning_is_asked_for_and_goes_back() -> None:
    first = encode(HI)
    assert first["store"] is False
    assert first["include"] == ["reasoning.encrypted_content"]
    answer = decode(CODEC, response(reasoning_item(encrypted_content="E1"), call_item()), TARGET)
    second = encode([*HI, answer.message, result()])
    assert second["input"][1]["encrypted_content"] == "E1"
    assert "previous_response_id" not in second


def test_C041_reasoning_without_its_content_is_dropped_with_the_ids_that_need_it() -> None:
    answer = decode(CODEC, response(reasoning_item(), call_item()), TARGET)
    call = CODEC.encode(Request.make([*HI, answer.message, result()]), TARGET, stream=False)
    assert [item.get("type") for item in call.body["input"]] == [None, "function_call", "function_call_output"]
    assert "id" not in call.body["input"][1]
    assert any("encrypted" in warning for warning in call.warnings)


def test_C041_a_server_that_stores_may_be_pointed_at_by_id() -> None:
    answer = decode(CODEC, response(reasoning_item(), call_item()), TARGET)
    options = Options(extensions={"openai": {"store": True}})
    body = encode([*HI, answer.message, result()], options=options)
    assert [item.get("id") for item in body["input"]] == [None, "rs_1", "fc_1", None]
    assert body["store"] is True
    assert "include" not in body


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini-2025-04-14", "gpt-5-chat-latest"])
def test_C041_models_that_do_not_reason_are_not_asked_for_reasoning(model: str) -> None:
    body = encode(HI, Target(provider="openai", dialect="openai-responses", model=model, quirks=QUIRKS))
    assert "include" not in body
    assert body["store"] is False


def test_C041_a_server_that_does_not_know_store_is_not_told() -> None:
    body = encode(HI, FOREIGN)
    assert body.keys() == {"model", "input"}


def test_C047_parallel_tool_calls_only_when_set_and_possible() -> None:
    assert "parallel_tool_calls" not in encode(HI, tools=[ADD])
    assert "parallel_tool_calls" not in encode(HI, tool_choice=ToolChoice(parallel="single"))
    assert encode(HI, tools=[ADD], tool_choice=ToolChoice(parallel="single"))["parallel_tool_calls"] is False
    refusing = Target(provider="x", dialect="openai-responses", model="m", quirks=Quirks(parallel_tool_calls=False))
    call = CODEC.encode(
        Request.make(HI, tools=[ADD], tool_choice=ToolChoice(parallel="single")), refusing, stream=False
    )
    assert "parallel_tool_calls" not in call.body
    assert len(call.warnings) == 1


def test_C048_a_refusal_is_visible_and_replays_as_the_assistants_words() -> None:
    answer = stream(
        {"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "I can't "},
        {"type": "response.refusal.delta", "output_index": 0, "content_index": 0, "delta": "help with that."},
        {"type": "response.refusal.done", "output_index": 0, "content_index": 0, "refusal": "I can't help with that."},
        completed(),
    )
    assert answer.message.parts == [RefusalPart(text="I can't help with that.")]
    assert answer.finish_reason == "refusal"
    assert encode([*HI, answer.message], FOREIGN)["input"][1] == {
        "role": "assistant",
        "content": "I can't help with that.",
    }


def test_C085_unknown_counts_stay_unknown() -> None:
    answer = decode(
        CODEC, response(usage={"input_tokens": None, "output_tokens": 3, "input_tokens_details": None}), TARGET
    )
    assert (answer.usage.input_tokens, answer.usage.output_tokens, answer.usage.cache_read_tokens) == (None, 3, None)
    assert decode(CODEC, response(usage=None), TARGET).usage.output_tokens is None


# -- the answer ---------------------------------------------------------------------------------------


def test_summaries_are_shown_and_their_structure_is_kept() -> None:
    item = reasoning_item(
        summary=[{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}],
        encrypted_content="E",
    )
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning_item()},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 0, "delta": "One."},
        {"type": "response.reasoning_summary_part.added", "output_index": 0, "summary_index": 1, "part": {}},
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": 1, "delta": "Two."},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 1, "item": text_item("ok")},
        completed(item, text_item("ok")),
    ]
    answer = stream(*events)
    thought = answer.message.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert (thought.text, thought.opaque) == ("One.\n\nTwo.", "E")
    assert encode([*HI, stored(answer.message)])["input"][1] == item
    assert comparable(answer) == comparable(decode(CODEC, response(item, text_item("ok")), TARGET))


def test_a_stream_cut_inside_a_second_summary_shows_both_apart() -> None:
    deltas = [
        {"type": "response.reasoning_summary_text.delta", "output_index": 0, "summary_index": n, "delta": text}
        for n, text in ((0, "On"), (0, "e."), (1, "Tw"))
    ]
    assert stream(*deltas).thinking == "One.\n\nTw"


def test_a_terminal_event_that_counts_items_otherwise_repeats_nothing() -> None:
    answer = stream(
        {"type": "response.output_item.added", "output_index": 0, "item": reasoning_item()},
        {"type": "response.output_item.added", "output_index": 1, "item": text_item("")},
        {"type": "response.output_text.delta", "output_index": 1, "content_index": 0, "delta": "Hello"},
        {"type": "response.output_item.done", "output_index": 1, "item": text_item("Hello")},
        completed(text_item("Hello", id="rotated")),
    )
    assert answer.text == "Hello"


def test_a_custom_tools_text_is_streamed_as_arguments_and_goes_back_as_text() -> None:
    item = {
        "type": "custom_tool_call",
        "id": "ct_1",
        "call_id": "call_1",
        "name": "sql",
        "input": 'SELECT "a"\n',
        "status": "completed",
    }
    answer = stream(
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "input": ""}},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": 'SELECT "'},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": 'a"\n'},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        completed(item),
    )
    assert [call.arguments for call in answer.runnable_tool_calls] == [{"input": 'SELECT "a"\n'}]
    items = encode([*HI, stored(answer.message), result("[]")])["input"]
    assert items[1] == item
    assert items[2] == {"type": "custom_tool_call_output", "call_id": "call_1", "output": "[]"}
    half = stream(
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "input": ""}},
        {"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "DROP TABLE"},
        {
            "type": "response.incomplete",
            "response": response(status="incomplete", incomplete_details={"reason": "max_output_tokens"}),
        },
    )
    assert half.runnable_tool_calls == []
    assert half.finish_reason == "length"


def test_annotations_are_cited_once_with_their_native_form() -> None:
    note = {"type": "url_citation", "url": "https://example.org", "title": "E", "start_index": 0, "end_index": 2}
    item = text_item("ok", content=[{"type": "output_text", "text": "ok", "annotations": [note]}])
    answer = stream(
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "ok"},
        {"type": "response.output_text.annotation.added", "output_index": 0, "content_index": 0, "annotation": note},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        completed(item),
    )
    part = answer.message.parts[0]
    assert isinstance(part, TextPart)
    assert len(part.citations) == 1
    cited = part.citations[0]
    assert (cited.source, cited.title, cited.start, cited.end, cited.extra) == (
        "https://example.org",
        "E",
        0,
        2,
        {"openai": note},
    )
    assert encode([*HI, stored(answer.message)])["input"][1] == item


def test_the_parts_of_one_message_go_back_as_one_message() -> None:
    content = [
        {"type": "output_text", "text": "a", "annotations": []},
        {"type": "output_text", "text": "b", "annotations": []},
        {"type": "refusal", "refusal": "no"},
    ]
    items = [text_item("", content=content, phase="commentary"), text_item("c", id="msg_2", phase="final_answer")]
    answer = decode(CODEC, response(*items), TARGET)
    assert [part.type for part in answer.message.parts] == ["text", "text", "refusal", "text"]
    assert encode([*HI, stored(answer.message)])["input"][1:] == items


def test_done_has_the_last_word() -> None:
    answer = stream(
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Hel"},
        {"type": "response.output_item.done", "output_index": 0, "item": text_item("Hello")},
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "late"},
        {"type": "response.output_item.added", "output_index": 1, "item": call_item(arguments="")},
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": '{"port":"Br'},
        {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": '{"port":"Brest"}'},
        {"type": "response.output_item.done", "output_index": 1, "item": call_item()},
        completed(text_item("Hello"), call_item()),
    )
    assert answer.text == "Hello"
    assert [call.arguments for call in answer.runnable_tool_calls] == [{"port": "Brest"}]
    assert answer.finish_reason == "tool_calls"


def test_the_terminal_event_alone_is_enough() -> None:
    answer = stream(completed(reasoning_item(encrypted_content="E"), text_item("Hello"), call_item()))
    assert [part.type for part in answer.message.parts] == ["thinking", "text", "tool_call"]
    assert answer.usage.total_tokens == 15
    assert (answer.usage.cache_read_tokens, answer.usage.reasoning_tokens) == (4, 2)


def test_a_foreign_done_marker_neither_ends_nor_fails_a_stream() -> None:
    events: list[Any] = [
        ("x", {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "hi"}),
        (None, "[DONE]"),
    ]
    cut = outcome(replay(CODEC, events, TARGET))
    assert cut.error is not None
    assert cut.error.kind == "stream_cut"
    assert outcome(replay(CODEC, [*events, ("x", completed(text_item("hi")))], TARGET)).error is None


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ({"type": "error", "code": "server_error", "message": "no", "param": None}, "server_error"),
        ({"type": "error", "error": {"code": "rate_limit_exceeded", "message": "no"}}, "rate_limited"),
        ({"error": {"code": "context_length_exceeded", "message": "too long"}}, "context_overflow"),
        (
            {
                "type": "response.failed",
                "response": response(status="failed", error={"code": "server_error", "message": "no"}),
            },
            "server_error",
        ),
        ({"type": "response.failed", "response": {}}, "server_error"),
        ({"type": "response.cancelled", "response": response(status="cancelled")}, "cancelled"),
    ],
)
def test_faults_inside_a_200_stream(event: dict[str, Any], kind: str) -> None:
    answer = stream(
        {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": "Once"}, event
    )
    assert answer.error is not None
    assert answer.text == "Once"
    assert answer.error.kind == kind


@pytest.mark.parametrize(
    ("fields", "reason", "native"),
    [
        ({}, "stop", "completed"),
        ({"status": None}, "stop", "completed"),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            "length",
            "max_output_tokens",
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            "content_filter",
            "content_filter",
        ),
        ({"status": "incomplete", "incomplete_details": {"reason": "steered"}}, "other", "steered"),
        ({"status": "incomplete", "incomplete_details": None}, "other", "incomplete"),
        ({"status": "queued"}, "other", "queued"),
        ({"status": "in_progress"}, "other", "in_progress"),
    ],
)
def test_status(fields: dict[str, Any], reason: str, native: str) -> None:
    answer = decode(CODEC, response(text_item("hi"), **fields), TARGET)
    assert (answer.error, answer.finish_reason, answer.native_finish_reason) == (None, reason, native)


def test_a_failed_whole_answer_keeps_what_it_had_said() -> None:
    answer = decode(
        CODEC, response(text_item("Once"), status="failed", error={"code": "server_error", "message": "no"}), TARGET
    )
    assert answer.error is not None
    assert (answer.error.kind, answer.text, answer.usage.input_tokens) == ("server_error", "Once", 10)


def test_whole_answers_that_are_none_are_errors() -> None:
    assert decode(CODEC, "<html>", TARGET).error.kind == "malformed_response"  # type: ignore[union-attr]
    assert (
        decode(CODEC, {"error": {"code": "rate_limit_exceeded", "message": "no"}}, TARGET).error.kind == "rate_limited"
    )  # type: ignore[union-attr]


def test_a_broken_event_in_the_middle_is_no_success() -> None:
    answer = outcome(replay(CODEC, [(None, '{"type": "resp'), (None, completed(text_item("hi")))], TARGET))
    assert answer.error is not None
    assert answer.error.kind == "malformed_response"


def test_items_that_nothing_is_known_of_go_back_verbatim_to_their_origin_only() -> None:
    items = [
        {"type": "hologram_call", "id": "h_1", "beam": None, "results": [1]},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "C"},
        {
            "type": "mcp_call",
            "id": "mcp_1",
            "name": "find",
            "arguments": '{"q":1}',
            "output": "x",
            "server_label": "s",
            "error": None,
        },
        {
            "type": "web_search_call",
            "id": "ws_1",
            "status": "completed",
            "action": {"type": "search", "query": "tides"},
        },
    ]
    answer = decode(CODEC, response(*items, text_item("ok")), TARGET)
    parts = [part for part in answer.message.parts if isinstance(part, ServerToolPart)]
    assert [(part.name, part.input, part.output) for part in parts] == [
        ("hologram", None, [1]),
        ("compaction", None, None),
        ("find", {"q": 1}, "x"),
        ("web_search", {"type": "search", "query": "tides"}, None),
    ]
    assert encode([*HI, stored(answer.message)])["input"][1:-1] == items
    elsewhere = CODEC.encode(Request.make([*HI, answer.message]), FOREIGN, stream=False)
    assert elsewhere.body["input"][1:] == [{"role": "assistant", "content": "ok"}]
    assert elsewhere.warnings


def test_a_made_image_is_a_media_part_and_goes_back_inside_its_call() -> None:
    item = {
        "type": "image_generation_call",
        "id": "ig_1",
        "status": "completed",
        "result": "iVBORw0KGgo=",
        "output_format": "webp",
    }
    answer = decode(CODEC, response(item, text_item("ok")), TARGET)
    image = answer.message.parts[1]
    assert isinstance(image, MediaPart)
    assert (image.mime_type, image.data) == ("image/webp", b"\x89PNG\r\n\x1a\n")
    assert encode([*HI, stored(answer.message)])["input"][1] == item


def test_argument_text_goes_back_as_the_model_wrote_it_until_somebody_changes_it() -> None:
    odd = '{"port": "Brest",  "n": 1.0}'
    answer = decode(CODEC, response(call_item(arguments=odd)), TARGET)
    assert encode([*HI, stored(answer.message), result()])["input"][1]["arguments"] == odd
    changed = answer.message.tool_calls[0].model_copy(update={"arguments": {"port": "Bari"}})
    message = answer.message.model_copy(update={"parts": [changed]})
    assert encode([*HI, message, result()])["input"][1]["arguments"] == '{"port":"Bari"}'


def test_a_malformed_call_goes_back_as_an_empty_object() -> None:
    answer = decode(CODEC, response(call_item(arguments='{"a":')), TARGET)
    assert answer.runnable_tool_calls == []
    assert encode([*HI, answer.message])["input"][1]["arguments"] == "{}"


# -- the request --------------------------------------------------------------------------------------

OPTIONS: dict[str, Any] = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 5, "max_output_tokens": 99, "stop": ["END"], "seed": 1, "frequency_penalty": 0.1,
    "presence_penalty": 0.1, "reasoning_effort": "high", "logprobs": 2,
}  # fmt: skip
ON_THE_WIRE: dict[str, Any] = {
    "temperature": {"temperature": 0.5}, "top_p": {"top_p": 0.9}, "max_output_tokens": {"max_output_tokens": 99},
    "reasoning_effort": {"reasoning": {"effort": "high"}},
    "logprobs": {"top_logprobs": 2, "include": ["message.output_text.logprobs", "reasoning.encrypted_content"]},
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
    target = Target(
        provider="x",
        dialect="openai-responses",
        model="m",
        capabilities=Capabilities(unsupported_options=frozenset({name})),
    )
    with pytest.raises(UnsupportedOption, match=name):
        encode(HI, target, options=Options.model_validate({name: OPTIONS[name]}))


def test_an_effort_that_the_model_does_not_know_is_refused() -> None:
    target = Target(
        provider="x",
        dialect="openai-responses",
        model="m",
        capabilities=Capabilities(reasoning_efforts=("low", "none")),
    )
    assert encode(HI, target, options=Options(reasoning_effort="none"))["reasoning"] == {"effort": "none"}
    with pytest.raises(UnsupportedOption, match="low, none"):
        encode(HI, target, options=Options(reasoning_effort="max"))


def test_a_summary_is_asked_for_where_the_provider_gives_one() -> None:
    quirks = Quirks(reasoning_summary="auto")
    target = Target(provider="openai", dialect="openai-responses", model="o9", quirks=quirks)
    assert encode(HI, target)["reasoning"] == {"summary": "auto"}
    assert encode(HI, target, options=Options(reasoning_effort="low"))["reasoning"] == {
        "effort": "low",
        "summary": "auto",
    }
    assert encode(HI, target, options=Options(reasoning_effort="none"))["reasoning"] == {"effort": "none"}
    own = Options(extensions={"openai": {"reasoning": {"summary": "detailed"}}})
    assert encode(HI, target, options=own)["reasoning"] == {"summary": "detailed"}
    plain = Target(provider="openai", dialect="openai-responses", model="gpt-4o", quirks=quirks)
    assert "reasoning" not in encode(HI, plain)


def test_system_and_developer_messages() -> None:
    history = [
        Message(role="system", content="one"), Message(role="system", content="two"), user("hi"),
        Message(role="system", content="late"), Message(role="developer", content="dev"), user("again"),
    ]  # fmt: skip
    body = encode(history)
    assert body["instructions"] == "one\n\ntwo"
    assert [(item["role"], item["content"]) for item in body["input"]] == [
        ("user", "hi"), ("system", "late"), ("developer", "dev"), ("user", "again"),
    ]  # fmt: skip
    assert [item["role"] for item in encode(history, FOREIGN)["input"]] == ["user", "system", "system", "user"]


@pytest.mark.parametrize(
    ("part", "wire"),
    [
        (MediaPart(kind="image", data=b"abc", mime_type="image/png"), {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,YWJj"}),
        (
            MediaPart(kind="image", url="https://example.org/a.png", extra={"openai": {"detail": "low"}}),
            {"type": "input_image", "detail": "low", "image_url": "https://example.org/a.png"},
        ),
        (MediaPart(kind="image", file_id="file_1"), {"type": "input_image", "detail": "auto", "file_id": "file_1"}),
        (
            MediaPart(kind="document", data=b"abc", mime_type="application/pdf", name="a.pdf"),
            {"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,YWJj"},
        ),
        (MediaPart(kind="document", url="https://example.org/a.pdf"), {"type": "input_file", "file_url": "https://example.org/a.pdf"}),
        (MediaPart(kind="document", file_id="file_2"), {"type": "input_file", "file_id": "file_2"}),
    ],
)  # fmt: skip
def test_media(part: MediaPart, wire: dict[str, Any]) -> None:
    assert encode([user("see", part)])["input"][0]["content"] == [{"type": "input_text", "text": "see"}, wire]
    shown = Message(role="tool", parts=[ToolResult(tool_call_id="t", content=[TextPart(text="see"), part])])
    call = Message(role="assistant", parts=[ToolCall(id="t", name="look")])
    assert encode([*HI, call, shown])["input"][2]["output"] == [{"type": "input_text", "text": "see"}, wire]


def test_an_item_that_a_caller_wrote_for_this_provider_is_sent() -> None:
    approval = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    history = [user(ServerToolPart(name="approval", payload=approval, extra={"openai": {}}), "go on")]
    assert encode(history)["input"] == [approval, {"role": "user", "content": "go on"}]


def test_a_plain_history_of_somebody_else_takes_the_short_forms() -> None:
    other = Origin(provider="anthropic", dialect="anthropic", model="claude-x")
    parts = [
        ThinkingPart(text="hm", signature="S"),
        TextPart(text="a"),
        ToolCall(id="toolu_1", name="add", arguments={"a": 1}),
    ]
    body = encode([*HI, Message(role="assistant", parts=parts, origin=other), result("2", "toolu_1")])
    assert body["input"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "toolu_1", "name": "add", "arguments": '{"a":1}'},
        {"type": "function_call_output", "call_id": "toolu_1", "output": "2"},
    ]


@pytest.mark.parametrize(
    ("choice", "wire"),
    [
        (ToolChoice(), "auto"), (ToolChoice(mode="none"), "none"), (ToolChoice(mode="required"), "required"),
        (ToolChoice(mode="named", name="add"), {"type": "function", "name": "add"}),
    ],
)  # fmt: skip
def test_tool_choice(choice: ToolChoice, wire: Any) -> None:
    body = encode(HI, tools=[ADD], tool_choice=choice)
    assert body["tool_choice"] == wire
    assert body["tools"] == [{"type": "function", "name": "add", "description": "Adds.", "parameters": ADD.parameters}]


def test_strict_and_custom_tools() -> None:
    strict = encode(HI, tools=[ADD.model_copy(update={"strict": True})])["tools"][0]
    assert strict["strict"] is True
    assert strict["parameters"]["required"] == ["a"]
    loose = CODEC.encode(Request.make(HI, tools=[ADD.model_copy(update={"strict": True})]), FOREIGN, stream=False)
    assert "strict" not in loose.body["tools"][0]
    assert loose.warnings
    custom = ToolSpec(name="sql", description="Runs SQL.", extra={"openai": {"type": "custom"}})
    body = encode(HI, tools=[custom], tool_choice=ToolChoice.of("sql"))
    assert body["tools"] == [{"type": "custom", "name": "sql", "description": "Runs SQL."}]
    assert body["tool_choice"] == {"type": "custom", "name": "sql"}


def test_structured_output() -> None:
    schema = {"title": "City", "type": "object", "properties": {"name": {"type": "string"}}}
    form = encode(HI, output_format=OutputFormat.of(schema))["text"]["format"]
    assert form == {"type": "json_schema", "name": "City", "schema": schema}
    strict = OutputFormat(type="json_schema", name="City", json_schema=schema, strict=True, description="A city.")
    form = encode(HI, output_format=strict)["text"]["format"]
    assert (form["strict"], form["description"], form["schema"]["additionalProperties"]) == (True, "A city.", False)
    assert encode(HI, output_format=OutputFormat(type="json"))["text"] == {"format": {"type": "json_object"}}
    assert "text" not in encode(HI, output_format=OutputFormat())
    none = Target(
        provider="x", dialect="openai-responses", model="old", capabilities=Capabilities(structured_output=False)
    )
    with pytest.raises(UnsupportedOption, match="old"):
        encode(HI, none, output_format=strict)


def test_extensions_are_merged_by_namespace() -> None:
    extensions = {
        "openai": {
            "tools": [{"type": "web_search"}],
            "include": ["web_search_call.action.sources"],
            "text": {"verbosity": "low"},
        },
        "openai-responses": {"service_tier": "flex"},
        "anthropic": {"betas": ["b"]},
    }
    request = Request.make(
        HI, tools=[ADD], options=Options(extensions=extensions), output_format=OutputFormat(type="json")
    )
    call = CODEC.encode(request, TARGET, stream=True)
    assert [tool["type"] for tool in call.body["tools"]] == ["function", "web_search"]
    assert call.body["include"] == ["reasoning.encrypted_content", "web_search_call.action.sources"]
    assert call.body["text"] == {"format": {"type": "json_object"}, "verbosity": "low"}
    assert (call.body["service_tier"], call.body["stream"], call.path) == ("flex", True, "/responses")
    assert "betas" not in call.body


def test_only_system_messages_make_no_request_unless_the_server_holds_the_rest() -> None:
    alone = [Message(role="system", content="s")]
    with pytest.raises(InvalidRequest, match="at least one message"):
        encode(alone)
    assert encode(alone, options=Options(extensions={"openai": {"previous_response_id": "resp_1"}}))["input"] == []


def test_the_same_history_gives_the_same_bytes() -> None:
    answer = decode(CODEC, response(reasoning_item(encrypted_content="E"), text_item("a"), call_item()), TARGET)
    history = [*HI, answer.message, result()]
    assert json.dumps(encode(history)) == json.dumps(encode([stored(message) for message in history]))
