"""Field cases of the Chat dialect, at the level of its codec."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rein_nb.dialects.base import decode
from rein_nb.ir import Message, StreamDone, StreamError, TextDelta, ToolCall, ToolResult, ToolSpec, Usage
from tests.dialects.chat_wire import CODEC, DONE, body, chunk, events, fragment, limited, stream, target, user


def test_C001_calls_without_an_index_are_kept_apart_by_their_ids() -> None:
    completion = stream(
        chunk(fragment(id="call_a", type="function", name="get_tide", arguments='{"port":"Brest"}')),
        chunk(fragment(id="call_b", type="function", name="get_moon", arguments='{"day":3}')),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert [(c.id, c.name, c.arguments) for c in completion.runnable_tool_calls] == [
        ("call_a", "get_tide", {"port": "Brest"}),
        ("call_b", "get_moon", {"day": 3}),
    ]


def test_C001_fragments_without_an_index_continue_the_call_of_their_id_or_the_last_one() -> None:
    completion = stream(
        chunk(fragment(id="a", name="f", arguments='{"x":')),
        chunk(fragment(arguments="1")),
        chunk(fragment(id="b", name="g", arguments='{"y":')),
        chunk(fragment(id="a", arguments="}")),
        chunk(fragment(id="b", arguments="2}")),
        chunk(finish="tool_calls"),
    )
    assert [(c.id, c.arguments) for c in completion.runnable_tool_calls] == [("a", {"x": 1}), ("b", {"y": 2})]


def test_C001_several_whole_calls_with_the_same_index_are_several_calls() -> None:
    completion = stream(
        chunk(fragment(index=0, id="a", name="f", arguments='{"x":1}')),
        chunk(fragment(index=0, id="b", name="f", arguments='{"x":2}')),
        chunk(finish="tool_calls"),
    )
    assert [(c.id, c.arguments) for c in completion.runnable_tool_calls] == [("a", {"x": 1}), ("b", {"x": 2})]


def test_C001_calls_with_neither_index_nor_id_get_ids_that_a_replay_repeats() -> None:
    wire = [
        chunk(fragment(name="f", arguments='{"x":1}')),
        chunk(fragment(name="f", arguments='{"x":2}')),
        chunk(finish="tool_calls"),
    ]
    first, again = stream(*wire), stream(*wire)
    assert [c.arguments for c in first.runnable_tool_calls] == [{"x": 1}, {"x": 2}]
    ids = [c.id for c in first.tool_calls]
    assert len(set(ids)) == 2
    assert all(id.startswith("call_") for id in ids)
    assert ids == [c.id for c in again.tool_calls]


def test_C003_a_name_repeated_in_every_fragment_is_taken_once() -> None:
    completion = stream(
        chunk(fragment(index=0, id="c1", name="get_tide", arguments='{"po')),
        chunk(fragment(index=0, name="get_tide", arguments='rt":"')),
        chunk(fragment(index=0, name="get_tide", arguments='Brest"}')),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert [(c.name, c.arguments) for c in completion.runnable_tool_calls] == [("get_tide", {"port": "Brest"})]


def test_C004_another_id_on_a_known_index_without_a_name_continues_the_call() -> None:
    completion = stream(
        chunk(fragment(index=0, id="tool-111", name="count_words", arguments="")),
        chunk(fragment(index=0, id="tool-222", arguments='{"text":')),
        chunk(fragment(index=0, id="tool-333", arguments='"hi"}')),
        chunk(finish="tool_calls"),
        DONE,
    )
    (call,) = completion.runnable_tool_calls
    assert (call.id, call.name, call.arguments) == ("tool-111", "count_words", {"text": "hi"})


def test_C006_arguments_sent_as_an_object_are_taken_as_they_are() -> None:
    given = {"path": "a.txt", "body": "hi"}
    completion = stream(
        chunk({"role": "assistant", "content": None, **fragment(index=0, id="c1", name="save_note", arguments=given)}),
        chunk(finish="tool_calls"),
        DONE,
    )
    assert completion.runnable_tool_calls[0].arguments == given
    whole = {
        "choices": [{"message": fragment(id="c1", name="save_note", arguments=given), "finish_reason": "tool_calls"}]
    }
    assert decode(CODEC, whole, target()).runnable_tool_calls[0].arguments == given


def test_C007_null_arguments_add_nothing() -> None:
    opening = chunk(fragment(index=0, id="c1", name="add", arguments=None))
    finish = chunk(finish="tool_calls")
    full = stream(
        opening,
        chunk(fragment(index=0, arguments='{"a":1,')),
        chunk(fragment(index=0, arguments='"b":2}')),
        finish,
    )
    assert full.runnable_tool_calls[0].arguments == {"a": 1, "b": 2}
    empty = stream(opening, finish)
    assert empty.runnable_tool_calls[0].arguments == {}


def test_C008_chunks_without_choices_are_legal_anywhere_and_their_usage_is_read() -> None:
    completion = stream(
        {"id": "", "model": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]},
        chunk({"role": "assistant", "content": ""}),
        chunk({"content": "Bon"}),
        {"id": "r1", "choices": []},
        chunk({"content": "jour"}),
        chunk(finish="stop"),
        {"id": "r1", "choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 2, "total_tokens": 11}},
        DONE,
    )
    assert (completion.text, completion.finish_reason, completion.error) == ("Bonjour", "stop", None)
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (9, 2)
    assert completion.extra["acme"]["prompt_filter_results"] == [{"prompt_index": 0}]
    assert (completion.response_id, completion.model) == ("r1", "m1-snapshot")


@pytest.mark.parametrize("finish", ["tool_calls", "stop", "length"])
def test_C011_a_truncated_call_is_never_run_whatever_the_finish_reason_says(finish: str) -> None:
    completion = stream(
        chunk(fragment(index=0, id="c1", name="write_file", arguments='{"path":"plan.txt","body":"line one')),
        chunk(finish=finish),
        DONE,
    )
    assert completion.runnable_tool_calls == []
    (call,) = completion.tool_calls
    assert call.error is not None
    assert call.raw_arguments == '{"path":"plan.txt","body":"line one'


def test_C012_complete_calls_with_finish_reason_stop_are_tool_calls() -> None:
    completion = stream(
        chunk({"role": "assistant", "content": None}),
        chunk(fragment(index=0, id="c1", name="get_tide", arguments='{"port":"Lima"}')),
        chunk(finish="stop"),
        DONE,
    )
    assert (completion.finish_reason, completion.native_finish_reason) == ("tool_calls", "stop")
    assert len(completion.runnable_tool_calls) == 1


def test_C014_the_end_of_the_bytes_without_any_end_marker_is_a_cut() -> None:
    out = events(
        [
            chunk({"content": "I will delete "}),
            chunk(fragment(index=0, id="c1", name="delete_rows", arguments='{"where":"id > 1"}')),
        ]
    )
    assert isinstance(out[-1], StreamError)
    completion = out[-1].completion
    assert completion.error is not None
    assert completion.error.kind == "stream_cut"
    assert completion.text == "I will delete "
    assert completion.runnable_tool_calls == []


def test_C015_done_alone_is_a_normal_stop_and_says_that_it_is_inferred() -> None:
    out = events([chunk({"role": "assistant", "content": "All"}), chunk({"content": " good."}), DONE])
    assert isinstance(out[-1], StreamDone)
    completion = out[-1].completion
    assert (completion.text, completion.finish_reason, completion.native_finish_reason) == ("All good.", "stop", None)
    assert any("no finish reason" in warning for warning in completion.warnings)


def test_C015_a_finish_reason_without_done_is_an_end_too() -> None:
    completion = stream(chunk({"content": "All good."}), chunk(finish="stop"))
    assert completion.error is None
    assert completion.warnings == []


_FAULT = {"code": "server_error", "message": "upstream went away", "metadata": {"provider_name": "acme-cloud"}}


@pytest.mark.parametrize("where", ["after text", "first", "without choices", "in the choice"])
def test_C020_an_error_object_in_a_stream_is_a_provider_error_with_its_fields(where: str) -> None:
    fault: dict[str, Any] = chunk({"content": ""}, finish="error", error=_FAULT)
    if where == "without choices":
        del fault["choices"]
    if where == "in the choice":
        fault["choices"][0]["error"] = fault.pop("error")
    wire = [chunk({"content": "The answer is "}), fault, DONE]
    out = events(wire[1:] if where == "first" else wire)
    assert isinstance(out[-1], StreamError)
    completion = out[-1].completion
    assert completion.text == ("" if where == "first" else "The answer is ")
    error = completion.error
    assert error is not None
    assert (error.kind, error.code, error.retryable) == ("server_error", "server_error", True)
    assert error.message == "upstream went away"
    assert error.body["error"]["metadata"] == {"provider_name": "acme-cloud"}
    assert sum(isinstance(event, StreamError | StreamDone) for event in out) == 1


def test_C021_both_names_of_reasoning_feed_one_part_and_equal_text_is_taken_once() -> None:
    completion = stream(
        chunk({"reasoning": "Two "}),
        chunk({"reasoning": "plus", "reasoning_content": "plus"}),
        chunk({"reasoning_content": " two."}),
        chunk({"content": "4"}),
        chunk(finish="stop"),
        DONE,
    )
    assert [(part.type, part.text) for part in completion.message.parts] == [  # type: ignore[union-attr]
        ("thinking", "Two plus two."),
        ("text", "4"),
    ]


def test_C021_the_name_that_the_server_used_is_remembered_for_replay() -> None:
    to = target(reasoning_replay="always")
    for field in ("reasoning", "reasoning_content"):
        message = stream(chunk({field: "hm"}), chunk({"content": "4"}), chunk(finish="stop"), to=to).message
        assert body([user(), message], to)["messages"][1] == {"role": "assistant", "content": "4", field: "hm"}


@pytest.mark.parametrize("cut", range(1, 37))
def test_C022_think_tags_cut_anywhere_are_told_from_the_text(cut: int) -> None:
    text = "<think>secret</think>\n\nif a < b: ok"
    to = target(think_tags=True)
    completion = stream(
        *(chunk({"content": piece}) for piece in (text[:cut], text[cut:]) if piece), chunk(finish="stop"), DONE, to=to
    )
    assert (completion.thinking, completion.text) == ("secret", "if a < b: ok")


def test_C022_only_what_could_begin_a_tag_is_held_back() -> None:
    to = target(think_tags=True)
    shown = [
        e.delta
        for e in events([chunk({"content": p}) for p in ("if a ", "< b", ": <th")], to)
        if isinstance(e, TextDelta)
    ]
    assert shown == ["if a ", "< b", ": <th"]
    held = stream(chunk({"content": "<thi"}), chunk(finish="stop"), to=to)
    assert held.text == "<thi"
    unclosed = stream(chunk({"content": "<think>so </thi"}), chunk(finish="length"), to=to)
    assert (unclosed.thinking, unclosed.text) == ("so </thi", "")


def test_C022_without_the_quirk_tags_are_text() -> None:
    assert stream(chunk({"content": "<think>a</think>b"}), chunk(finish="stop")).text == "<think>a</think>b"


def test_C022_a_tag_later_in_the_text_is_what_the_model_writes_about() -> None:
    to = target(think_tags=True)
    said = "Use <think>\n tags."
    assert stream(chunk({"content": said}), chunk(finish="stop"), to=to).text == said


def test_C045_an_unknown_server_gets_the_smallest_common_set() -> None:
    messages = [Message(role="developer", content="Be brief."), user()]
    plain = body(messages, target(), options={"max_output_tokens": 9})
    assert plain["messages"][0] == {"role": "system", "content": "Be brief."}
    assert plain["max_tokens"] == 9
    assert plain.keys() == {"model", "messages", "max_tokens"}
    known = body(
        messages,
        target(developer_role=True, max_tokens_field="max_completion_tokens"),
        options={"max_output_tokens": 9},
    )
    assert known["messages"][0]["role"] == "developer"
    assert known["max_completion_tokens"] == 9
    assert "stream_options" not in body(user(), target(stream_usage=False), streamed=True)
    assert body(user(), target(), streamed=True)["stream_options"] == {"include_usage": True}


_TOOL = [ToolSpec(name="a")]


def test_C047_parallel_tool_calls_is_sent_only_when_set_and_with_tools() -> None:
    assert "parallel_tool_calls" not in body(user(), tools=[])
    assert "parallel_tool_calls" not in body(user(), tools=_TOOL)
    assert "parallel_tool_calls" not in body(user(), tools=_TOOL, tool_choice={"mode": "required"})
    assert "parallel_tool_calls" not in body(user(), tools=[], tool_choice={"parallel": "single"})
    assert body(user(), tools=_TOOL, tool_choice={"parallel": "single"})["parallel_tool_calls"] is False
    assert body(user(), tools=_TOOL, tool_choice={"parallel": "allow"})["parallel_tool_calls"] is True


@pytest.mark.parametrize(
    "to", [target(parallel_tool_calls=False), limited(unsupported_options=frozenset({"parallel_tool_calls"}))]
)
def test_C047_where_it_is_not_taken_one_warning_says_so(to: Any) -> None:
    from rein_nb.ir import Request

    call = CODEC.encode(Request(messages=[user()], tools=_TOOL, tool_choice={"parallel": "single"}), to, stream=False)
    assert "parallel_tool_calls" not in call.body
    assert len([w for w in call.warnings if "parallel=" in w]) == 1


def test_C048_a_refusal_is_a_visible_part_and_replays_as_assistant_text() -> None:
    completion = stream(
        chunk({"role": "assistant", "content": None, "refusal": ""}),
        chunk({"refusal": "I can't "}),
        chunk({"refusal": "help with that."}),
        chunk(finish="stop"),
        DONE,
    )
    assert completion.message.refusal == "I can't help with that."
    assert (completion.finish_reason, completion.native_finish_reason) == ("refusal", "stop")
    assert body([user(), completion.message])["messages"][1] == {
        "role": "assistant",
        "content": "I can't help with that.",
    }


@pytest.mark.parametrize("raw", ['{"where": "id = 7', "[1]", "nul"])
def test_C078_malformed_arguments_go_out_as_an_object_and_stay_in_the_record(raw: str) -> None:
    message = Message(role="assistant", tool_calls=[ToolCall(id="c1", name="delete_rows", arguments=raw)])
    result = Message(role="tool", parts=[ToolResult(tool_call_id="c1", content="bad arguments", status="error")])
    wire = body([user(), message, result])["messages"]
    assert wire[1]["tool_calls"][0]["function"] == {"name": "delete_rows", "arguments": "{}"}
    assert wire[2] == {"role": "tool", "tool_call_id": "c1", "content": "bad arguments"}
    assert message.tool_calls[0].raw_arguments == raw


def test_C085_null_counts_stay_unknown_and_sums_say_that_they_are_lower_bounds() -> None:
    raw = [
        {
            "prompt_tokens": 12,
            "completion_tokens": 3,
            "total_tokens": 15,
            "prompt_tokens_details": None,
            "completion_tokens_details": {"reasoning_tokens": None},
        },
        {"prompt_tokens": None, "completion_tokens": 3, "total_tokens": None},
        None,
    ]
    seen: list[Usage] = [stream(chunk({"content": "x"}), chunk(finish="stop", usage=usage)).usage for usage in raw]
    assert [(u.input_tokens, u.output_tokens, u.reasoning_tokens) for u in seen] == [
        (12, 3, None),
        (None, 3, None),
        (None, None, None),
    ]
    total = sum(seen, Usage())
    assert total.output_tokens == 6
    assert total.complete is False
    assert "input_tokens" in total.lower_bounds


_OVERLOADED = {"type": "overloaded_error", "message": "Overloaded"}


def test_C091_an_overload_inside_a_200_has_the_kind_that_its_status_would_give() -> None:
    plain = CODEC.error(529, {}, {"error": _OVERLOADED}, target())
    for wire in ([chunk({"content": "Once"}), {"error": _OVERLOADED}], [("error", {"error": _OVERLOADED})]):
        error = stream(*wire).error
        assert error is not None
        assert (error.kind, error.retryable) == (plain.kind, plain.retryable) == ("overloaded", True)
    bad = stream({"error": {"type": "invalid_request_error", "message": "bad"}}).error
    assert bad is not None
    assert (bad.kind, bad.retryable) == ("bad_request", False)
    named = stream({"error": {"code": 429, "message": "slow down"}}).error
    assert named is not None
    assert (named.kind, named.status) == ("rate_limited", 429)


def test_C064_reasoning_details_are_shown_once_merged_and_sent_back_whole() -> None:
    to = target("openrouter", reasoning_replay="always")
    first = {"type": "reasoning.text", "index": 0, "text": "Use the ", "format": "f1"}
    completion = stream(
        chunk({"reasoning": "Use the ", "reasoning_details": [first]}),
        chunk({"reasoning": "tool.", "reasoning_details": [{**first, "text": "tool."}]}),
        chunk({"reasoning_details": [{"type": "reasoning.text", "index": 0, "signature": "SIG1", "format": "f1"}]}),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "index": 1, "data": "SECRET"}]}),
        chunk(fragment(index=0, id="c1", name="now", arguments="{}")),
        chunk(finish="tool_calls"),
        DONE,
        to=to,
    )
    assert completion.thinking == "Use the tool."
    loaded = Message.model_validate_json(completion.message.model_dump_json())
    wire = body([user(), loaded], to)["messages"][1]
    assert wire["reasoning_details"] == [
        {"type": "reasoning.text", "index": 0, "text": "Use the tool.", "format": "f1", "signature": "SIG1"},
        {"type": "reasoning.encrypted", "index": 1, "data": "SECRET"},
    ]
    assert "reasoning" not in wire
    assert "reasoning_details" not in body([user(), loaded], target("other", reasoning_replay="always"))["messages"][1]


def test_C104_unpaired_surrogates_never_reach_the_wire() -> None:
    messages = [
        user("temp \udcb0C \ud83d end"),
        Message(role="assistant", tool_calls=[ToolCall(id="c1", name="w", arguments={"s": "\ud83d\ude00 ok \udc00"})]),
        Message(role="tool", parts=[ToolResult(tool_call_id="c1", content="r\udcff")]),
    ]
    wire = body(messages, tools=[ToolSpec(name="w", description="d\ud800")], options={"stop": ["x\ud800"]})
    json.dumps(wire, ensure_ascii=False).encode("utf-8")
    assert json.loads(wire["messages"][1]["tool_calls"][0]["function"]["arguments"]) == {"s": "\U0001f600 ok \ufffd"}
    assert wire["messages"][0]["content"] == "temp \ufffdC \ufffd end"
