"""The accumulator: strict order, one terminal event, lazy partials that never change."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rein_nb.ir import (
    Citation,
    Completion,
    ErrorInfo,
    MediaPart,
    PartDone,
    RefusalPart,
    ServerToolPart,
    StreamDone,
    StreamError,
    StreamRetry,
    StreamStart,
    TextDelta,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolCallDelta,
    ToolCallDone,
    ToolCallStart,
    Usage,
)
from rein_nb.ir import (
    deltas as d,
)
from rein_nb.stream import Accumulator

TURN = [
    d.Meta(response_id="r1", model="m1"),
    d.Thinking("let me "),
    d.Thinking("see"),
    d.Signature("sig"),
    d.Text("It is "),
    d.Text("fine.", "text"),
    d.Cite(Citation(source="https://example.org", quote="fine")),
    d.ToolOpen(0, "c1", "add"),
    d.ToolArgs('{"a": ', 0),
    d.ToolArgs("1}", 0),
    d.PartEnd(0),
    d.UsageReport(Usage(input_tokens=3)),
    d.UsageReport(Usage(output_tokens=9)),
    d.Finish("tool_calls", "tool_use"),
    d.End(),
]


def play(deltas: list[d.Delta]) -> tuple[Accumulator, list]:
    acc = Accumulator()
    events = [event for delta in deltas for event in acc.feed(delta)]
    events.extend(acc.end())
    return acc, events


def test_order_is_start_deltas_one_terminal() -> None:
    acc, events = play(TURN)
    assert [type(e).__name__ for e in events] == [
        "StreamStart", "ThinkingDelta", "ThinkingDelta", "TextDelta", "TextDelta", "ToolCallStart", "ToolCallDelta", "ToolCallDelta",
        "ToolCallDone", "PartDone", "PartDone", "PartDone", "StreamDone",
    ]  # fmt: skip
    done = events[-1].completion
    assert done is acc.completion
    assert done.message.parts == [
        ThinkingPart(text="let me see", signature="sig"),
        TextPart(text="It is fine.", citations=[Citation(source="https://example.org", quote="fine")]),
        ToolCall(id="c1", name="add", arguments={"a": 1}),
    ]
    assert (done.usage.input_tokens, done.usage.output_tokens) == (3, 9)
    assert (done.finish_reason, done.native_finish_reason) == ("tool_calls", "tool_use")
    assert (done.response_id, done.model) == ("r1", "m1")
    assert Completion.model_validate_json(done.model_dump_json()) == done


def test_a_kept_events_partial_is_the_message_as_of_that_event() -> None:
    _, events = play(TURN)
    texts = [(e.partial.thinking, e.partial.text, len(e.partial.tool_calls)) for e in events]
    assert texts[:8] == [
        ("", "", 0),
        ("let me ", "", 0),
        ("let me see", "", 0),
        ("let me see", "It is ", 0),
        ("let me see", "It is fine.", 0),
        ("let me see", "It is fine.", 1),
        ("let me see", "It is fine.", 1),
        ("let me see", "It is fine.", 1),
    ]
    assert events[3].partial.parts[1].citations == []


@given(st.lists(st.tuples(st.integers(0, 3), st.text(min_size=1, max_size=3)), max_size=40))
@settings(max_examples=150)
def test_partials_of_interleaved_parts_are_prefixes(pieces: list[tuple[int, str]]) -> None:
    acc = Accumulator()
    kept = []
    want: dict[int, str] = {}
    for part, text in pieces:
        events = acc.feed(d.Text(text, part))
        want[part] = want.get(part, "") + text
        kept.append((events[-1], list(want.values())))
    for event, texts in reversed(kept):
        assert [p.text for p in event.partial.parts] == texts


def test_nothing_after_the_terminal_event() -> None:
    acc, _ = play(TURN)
    assert acc.feed(d.Text("late")) == ()
    assert list(acc.end()) == []
    assert list(acc.cancel()) == []
    assert list(acc.fail(ErrorInfo.make("server_error", "x"))) == []


def test_end_without_finish_is_a_cut_and_keeps_the_text() -> None:
    acc = Accumulator()
    acc.feed(d.Text("half"))
    (event,) = acc.end()
    assert isinstance(event, StreamError)
    assert event.error.kind == "stream_cut"
    assert event.completion.text == "half"
    assert event.completion.finish_reason == "error"


def test_cancel_keeps_text_thinking_and_usage_and_marks_it_incomplete() -> None:
    acc = Accumulator()
    for delta in TURN[:6]:
        acc.feed(delta)
    acc.feed(d.UsageReport(Usage(input_tokens=900)))
    (event,) = acc.cancel()
    done = event.completion
    assert (done.finish_reason, done.text, done.thinking) == ("cancelled", "It is fine.", "let me see")
    assert done.usage.input_tokens == 900
    assert not done.usage.complete


def test_fault_before_content_can_be_retried_and_after_it_is_final() -> None:
    acc = Accumulator()
    error = ErrorInfo.make("overloaded", "busy")
    assert [type(e) for e in acc.feed(d.Fault(error))] == [StreamStart]
    assert acc.fault == error
    assert [type(e) for e in acc.retry(1, 0.1, error)] == [StreamRetry]
    acc.feed(d.Text("now"))
    (last,) = acc.feed(d.Fault(error))
    assert isinstance(last, StreamError)
    assert last.completion.text == "now"
    assert last.completion.timing.retries == 1


def test_C011_a_call_cut_by_the_token_limit_is_never_runnable() -> None:
    acc = Accumulator()
    acc.feed(d.ToolOpen(0, "c", "rm"))
    acc.feed(d.ToolArgs('{"path": "/ho', 0))
    acc.feed(d.Finish("tool_calls", "tool_calls"))
    done = acc.end()[-1].completion
    assert done.tool_calls[0].raw_arguments == '{"path": "/ho'
    assert done.tool_calls[0].error
    assert done.runnable_tool_calls == []


def test_empty_arguments_under_a_length_stop_are_not_runnable() -> None:
    acc = Accumulator()
    acc.feed(d.ToolOpen(0, "c", "rm"))
    acc.feed(d.Finish("length", "max_tokens"))
    done = acc.end()[-1].completion
    assert done.tool_calls[0].arguments == {}
    assert done.runnable_tool_calls == []


def test_C012_a_stop_with_complete_calls_is_tool_calls() -> None:
    acc = Accumulator()
    acc.feed(d.ToolOpen(0, "c", "get_tide"))
    acc.feed(d.ToolArgs("{}", 0))
    acc.feed(d.Finish("stop", "stop"))
    done = acc.end()[-1].completion
    assert (done.finish_reason, done.native_finish_reason) == ("tool_calls", "stop")
    assert [c.name for c in done.runnable_tool_calls] == ["get_tide"]


def test_argument_text_before_the_name_is_kept_and_told_once_it_is_known() -> None:
    acc = Accumulator()
    assert [type(e) for e in acc.feed(d.ToolArgs('{"a"', 7))] == [StreamStart]
    events = acc.feed(d.ToolOpen(7, "id", "f"))
    assert [type(e) for e in events] == [ToolCallStart, ToolCallDelta]
    assert events[1].delta == '{"a"'
    acc.feed(d.ToolArgs(": 1}", 7))
    acc.feed(d.Finish("tool_calls"))
    events = acc.end()
    assert [type(e) for e in events] == [ToolCallDone, PartDone, StreamDone]
    assert events[0].tool_call.arguments == {"a": 1}


@pytest.mark.parametrize(
    ("streamed", "whole", "events", "final"),
    [
        (["Hel", "lo"], "Hello", 0, "Hello"),
        (["Hel"], "Hello", 1, "Hello"),
        ([], "Hello", 1, "Hello"),
        (["Hullo"], "Hello", 0, "Hello"),
    ],
)
def test_settle_completes_what_was_streamed(streamed: list[str], whole: str, events: int, final: str) -> None:
    acc = Accumulator()
    acc.start()
    for text in streamed:
        acc.feed(d.Text(text, 1))
    assert len([e for e in acc.feed(d.Settle(whole, 1)) if isinstance(e, TextDelta)]) == events
    assert acc.message.text == final


def test_arguments_as_an_object_are_never_replaced_by_empty_ones() -> None:
    acc = Accumulator()
    acc.feed(d.ToolOpen(0, "c", "write"))
    (event,) = acc.feed(d.ToolArgsObject({"path": "a.txt"}, 0))
    assert json.loads(event.delta) == {"path": "a.txt"}
    acc.feed(d.Finish("stop"))
    assert acc.end()[-1].completion.tool_calls[0].arguments == {"path": "a.txt"}


def test_further_choices_are_alternatives_without_events() -> None:
    acc = Accumulator()
    acc.feed(d.Text("first"))
    assert acc.feed(d.Text("second", (1, "text"))) == ()
    acc.feed(d.Finish("stop"))
    done = acc.end()[-1].completion
    assert done.text == "first"
    assert [m.text for m in done.alternatives] == ["second"]


def test_one_key_used_for_two_kinds_loses_nothing() -> None:
    acc = Accumulator()
    acc.feed(d.Thinking("a", 0))
    acc.feed(d.Text("b", 0))
    acc.feed(d.Text("c", 0))
    acc.feed(d.Thinking("d", 0))
    acc.feed(d.Finish("stop"))
    done = acc.end()[-1].completion
    assert (done.thinking, done.text) == ("ad", "bc")


def test_server_tools_media_and_refusals_become_parts() -> None:
    acc = Accumulator()
    acc.feed(d.ServerTool("s", id="w1", name="web_search"))
    acc.feed(d.ToolArgs('{"query": "tides"}', "s"))
    acc.feed(d.Media(MediaPart(kind="image", mime_type="image/png", data=b"png"), "m"))
    acc.feed(d.Refusal("no"))
    acc.feed(d.Finish("refusal"))
    done = acc.end()[-1].completion
    assert done.message.parts == [
        ServerToolPart(id="w1", name="web_search", input={"query": "tides"}),
        MediaPart(kind="image", mime_type="image/png", data=b"png"),
        RefusalPart(text="no"),
    ]


def test_surrogates_split_over_deltas_become_one_character() -> None:
    acc = Accumulator()
    acc.feed(d.Text("\ud83c"))
    acc.feed(d.Text("\udf0a \ud800"))
    acc.feed(d.Finish("stop"))
    assert acc.end()[-1].completion.text == "\U0001f30a \ufffd"


def test_the_usage_of_one_report_is_kept_as_it_was_sent() -> None:
    acc = Accumulator()
    acc.feed(d.UsageReport(Usage(input_tokens=3, raw={"prompt_tokens": 3, "prompt_tokens_details": None})))
    assert acc.completion.usage.raw == {"prompt_tokens": 3, "prompt_tokens_details": None}
    acc.feed(d.UsageReport(Usage(output_tokens=9, raw={"prompt_tokens": None, "completion_tokens": 9})))
    usage = acc.completion.usage
    assert (usage.input_tokens, usage.output_tokens) == (3, 9)
    assert usage.raw["prompt_tokens"] == 3, "null in a later report means: as before"


def test_without_a_report_nothing_is_known_of_the_usage() -> None:
    acc = Accumulator()
    acc.feed(d.Text("hi"))
    assert acc.completion.usage == Usage()
    assert acc.completion.usage.total_tokens is None
