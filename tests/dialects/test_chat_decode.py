"""Answers in the Chat dialect, in all the shapes that servers give them."""

from __future__ import annotations

from typing import Any

import pytest

from rein_nb.dialects.base import decode
from rein_nb.dialects.chat_decode import ChatDecoder, finish_reason
from rein_nb.dialects.chat_usage import chat_usage
from rein_nb.dialects.think_tags import ThinkTags
from rein_nb.ir import MediaPart, Message, ServerToolPart, StreamDone, StreamError, TextPart, ThinkingPart
from rein_nb.ir import deltas as d
from tests.dialects.chat_wire import CODEC, DONE, body, chunk, events, fragment, stream, target, user


def whole(message: dict[str, Any], finish: str | None = "stop", **more: Any) -> dict[str, Any]:
    """A whole response with one choice."""
    return {
        "id": "r1",
        "model": "m1-snapshot",
        "choices": [{"index": 0, "message": message, "finish_reason": finish}],
        **more,
    }


# -- shapes of chunks -----------------------------------------------------------------------------------


def test_a_message_in_place_of_a_delta_and_a_missing_delta() -> None:
    completion = stream(
        {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hel"}}]},
        {"choices": [{"index": 0}]},
        {"choices": [{"text": "lo", "finish_reason": "stop"}]},
        {"choices": [{"index": 0, "delta": None}]},
        DONE,
    )
    assert (completion.text, completion.error) == ("Hello", None)


def test_a_message_beside_a_delta_is_not_taken_twice() -> None:
    both = {"index": 0, "delta": {"content": "lo"}, "message": {"role": "assistant", "content": "Hello"}}
    assert stream(chunk({"content": "Hel"}), {"choices": [both]}, chunk(finish="stop")).text == "Hello"


def test_keep_alive_lines_and_pings_are_nothing() -> None:
    completion = stream(
        "", " ", ("ping", {"type": "ping"}), ("ping", ""), chunk({"content": "x"}), None, chunk(finish="stop"), DONE
    )
    assert (completion.text, completion.warnings, completion.extra) == ("x", [], {"acme": {"created": 1}})


def test_what_cannot_be_read_is_skipped_with_a_warning() -> None:
    completion = stream(chunk({"content": "a"}), "{not json", 7, chunk({"content": "b"}), chunk(finish="stop"))
    assert completion.text == "ab"
    assert len(completion.warnings) == 2


def test_an_error_event_that_is_text() -> None:
    error = stream(chunk({"content": "a"}), ("error", "upstream is overloaded")).error
    assert error is not None
    assert (error.kind, error.message) == ("overloaded", "upstream is overloaded")


def test_nothing_after_the_end_counts() -> None:
    out = events(
        [
            chunk({"content": "a"}),
            chunk(finish="stop"),
            DONE,
            chunk({"content": "b"}),
            DONE,
            {"error": {"message": "x"}},
        ]
    )
    assert isinstance(out[-1], StreamDone)
    assert out[-1].completion.text == "a"


def test_an_empty_stream_that_says_done_is_no_answer() -> None:
    error = stream(DONE).error
    assert error is not None
    assert error.kind == "malformed_response"


def test_the_finish_reason_stays_when_later_chunks_have_none() -> None:
    completion = stream(
        chunk({"content": "a"}), chunk(finish="length"), chunk(usage={"prompt_tokens": 1, "completion_tokens": 2}), DONE
    )
    assert (completion.finish_reason, completion.usage.output_tokens) == ("length", 2)


@pytest.mark.parametrize(
    ("native", "reason"),
    [
        ("stop", "stop"), ("eos", "stop"), ("length", "length"), ("max_tokens", "length"), ("model_length", "length"),
        ("tool_calls", "tool_calls"), ("function_call", "tool_calls"), ("content_filter", "content_filter"),
        ("something_new", "other"), ("error", "error"), ("insufficient_system_resource", "error"), ("abort", "error"),
    ],
)  # fmt: skip
def test_finish_reasons(native: str, reason: str) -> None:
    assert finish_reason(native) == reason


@pytest.mark.parametrize("native", ["error", "insufficient_system_resource", "abort"])
def test_a_finish_reason_that_reports_a_failure_is_a_fault(native: str) -> None:
    out = events([chunk({"content": "a"}), chunk(finish=native), DONE])
    assert isinstance(out[-1], StreamError)
    error = out[-1].completion.error
    assert error is not None
    assert (error.kind, out[-1].completion.text) == ("server_error", "a")


def test_an_unknown_finish_reason_is_kept_and_runs_no_tool() -> None:
    completion = stream(chunk(fragment(index=0, id="c", name="f", arguments="{}")), chunk(finish="odd"), DONE)
    assert (completion.finish_reason, completion.native_finish_reason) == ("other", "odd")
    assert completion.runnable_tool_calls == []


# -- nothing is lost --------------------------------------------------------------------------------------


def test_unknown_fields_of_every_level_are_kept() -> None:
    completion = stream(
        chunk({"content": "a", "channel": "analysis"}, system_fingerprint="fp", service_tier=None, x_new={"k": 1}),
        {
            **chunk({"content": "b", "channel": "final"}, system_fingerprint="fp", service_tier="flex", x_new={"k": 2}),
            "choices": [{"index": 0, "delta": {"content": "b", "channel": "final"}, "odd": [1]}],
        },
        chunk({"content": "c"}, system_fingerprint="fp", service_tier="flex", x_new={"k": 2}),
        chunk(finish="stop"),
        DONE,
    )
    assert completion.text == "abc"
    facts = completion.extra["acme"]
    assert (facts["system_fingerprint"], facts["service_tier"], facts["x_new"], facts["odd"]) == (
        "fp",
        "flex",
        {"k": 2},
        [1],
    )
    assert completion.message.extra["acme"]["channel"] == ["analysis", "final"]


def test_the_quick_way_lets_no_new_field_slip_by() -> None:
    plain = [chunk({"content": str(n)}) for n in range(3)]

    def one(**choice: Any) -> dict[str, Any]:
        return {**chunk(), "choices": [{"index": 0, "delta": {"content": "n"}, "finish_reason": None, **choice}]}

    news: list[tuple[dict[str, Any], str]] = [
        (chunk({"content": "n"}, late="at the top"), "at the top"),
        (chunk({"content": "n"}, provider="upstream"), "upstream"),
        (chunk({"content": "n", "odd": "in the delta"}), "in the delta"),
        (chunk({"content": "n", "refusal": "I will not"}), "I will not"),
        (chunk({"content": "n"}, usage={"prompt_tokens": 4321}), "4321"),
        (one(logprobs={"content": [{"token": "logged"}]}), "logged"),
        (one(index=1), '"alternatives":[{'),
        (one(finish_reason="length"), '"finish_reason":"length"'),
        (one(odd="in the choice"), "in the choice"),
    ]
    for new, mark in news:
        kept = stream(*plain, new, *plain, *([] if "length" in mark else [chunk(finish="stop")]), DONE)
        assert mark in kept.model_dump_json(), mark


def test_a_new_field_in_the_place_of_the_padding_is_seen() -> None:
    padded = [chunk({"content": "a"}, obfuscation="x") for _ in range(3)]
    completion = stream(*padded, chunk({"content": "a"}, late="news"), *padded, chunk(finish="stop"))
    assert (completion.text, completion.extra["acme"]["late"]) == ("a" * 7, "news")


def test_usage_and_finish_reasons_that_repeat_are_read_each_time() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 1}
    decoder = ChatDecoder(target())
    for _ in range(4):
        kinds = [type(delta) for delta in decoder.feed(chunk({"content": "a"}, finish="length", usage=usage))]
        assert {d.Text, d.UsageReport, d.Finish} <= set(kinds)


def test_padding_is_dropped_and_does_not_slow_the_stream() -> None:
    decoder = ChatDecoder(target())
    out = [delta for n in range(20) for delta in decoder.feed(chunk({"content": "a"}, obfuscation="x" * n))]
    assert [type(delta) for delta in out].count(d.Text) == 20
    assert [type(delta) for delta in out].count(d.Meta) == 1


@pytest.mark.parametrize("kind", ["content", "reasoning_content", "arguments"])
@pytest.mark.parametrize("beside", [{}, {"obfuscation": "xyz"}, {"system_fingerprint": "fp", "usage": None}])
def test_plain_pieces_go_the_quick_way(monkeypatch: pytest.MonkeyPatch, kind: str, beside: dict[str, Any]) -> None:
    first = (
        fragment(index=0, id="c", name="f", arguments="{") if kind == "arguments" else {"role": "assistant", kind: "a"}
    )
    piece = fragment(index=0, arguments="a") if kind == "arguments" else {kind: "a"}
    decoder = ChatDecoder(target())
    for given in (first, piece):
        decoder.feed(chunk(given, **beside))
    read = decoder._read
    monkeypatch.setattr(decoder, "_read", lambda *_: pytest.fail("a plain piece was read in full"))
    for _ in range(3):
        (delta,) = decoder.feed(
            chunk({**piece, "content": None, "role": None} if kind != "content" else piece, **beside)
        )
        assert isinstance(delta, d.Text | d.Thinking | d.ToolArgs)
        assert delta.text == "a"
    monkeypatch.setattr(decoder, "_read", read)
    assert any(isinstance(delta, d.Finish) for delta in decoder.feed(chunk(finish="stop", **beside)))


# -- content --------------------------------------------------------------------------------------------


def test_content_as_a_list_keeps_its_order_and_kinds() -> None:
    parts = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm "}, {"type": "text", "text": "so"}]},
        {"type": "text", "text": "It is "},
        {"type": "reference", "reference_ids": [1]},
        {"type": "text", "text": "4."},
        {"type": "thinking", "thinking": "more"},
        {"type": "text", "text": " Yes."},
        {"type": "odd", "x": 1},
    ]
    at_once = decode(CODEC, whole({"content": parts}), target())
    streamed = stream(*(chunk({"content": [part]}) for part in parts), chunk(finish="stop"), DONE)
    for completion in (at_once, streamed):
        shape = [
            (part.type, part.text) for part in completion.message.parts if isinstance(part, TextPart | ThinkingPart)
        ]
        assert shape == [("thinking", "hm so"), ("text", "It is 4."), ("thinking", "more"), ("text", " Yes.")]
        assert completion.message.extra["acme"]["content_parts"] == [{"type": "odd", "x": 1}]
        first = completion.message.parts[1]
        assert isinstance(first, TextPart)
        assert first.citations[0].extra["acme"]["reference_ids"] == [1]


def test_a_summary_with_a_signature_inside_the_content() -> None:
    part = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm", "signature": "S"}]}
    completion = decode(CODEC, whole({"content": [part, {"type": "text", "text": "4"}]}), target())
    thinking = completion.message.parts[0]
    assert isinstance(thinking, ThinkingPart)
    assert (thinking.text, thinking.signature, completion.text) == ("hm", "S", "4")


def test_annotations_become_citations_with_their_native_form() -> None:
    note = {
        "type": "url_citation",
        "url_citation": {"url": "https://x.test", "title": "X", "start_index": 0, "end_index": 3},
    }
    for completion in (
        decode(CODEC, whole({"content": "abc", "annotations": [note]}), target()),
        stream(
            chunk({"content": "abc"}),
            chunk({"annotations": [note]}),
            chunk({"annotations": [note]}),
            chunk(finish="stop"),
        ),
    ):
        (part,) = completion.message.parts
        assert isinstance(part, TextPart)
        (cite,) = part.citations
        assert (cite.source, cite.title, cite.start, cite.end) == ("https://x.test", "X", 0, 3)
        assert cite.extra == {"acme": note}


def test_sources_beside_the_choices_become_citations_once() -> None:
    found = [{"url": "https://x.test", "title": "X", "snippet": "words"}]
    completion = stream(
        chunk({"content": "a"}, citations=["https://x.test"], search_results=found),
        chunk({"content": "b"}, citations=["https://x.test"], search_results=found),
        chunk(finish="stop"),
        DONE,
    )
    (part,) = completion.message.parts
    assert isinstance(part, TextPart)
    assert [(c.source, c.title, c.quote) for c in part.citations] == [("https://x.test", "X", "words")]
    assert completion.extra["acme"]["search_results"] == found


def test_tools_that_the_provider_ran() -> None:
    asked = {"index": 0, "type": "search", "arguments": '{"query":"q"}', "search_results": {"results": []}}
    done = {**asked, "output": "found", "search_results": {"results": [{"url": "u"}]}}
    completion = stream(
        chunk({"executed_tools": [asked]}),
        chunk({"executed_tools": [done]}),
        chunk({"content": "a"}),
        chunk(finish="stop"),
    )
    tool = completion.message.parts[0]
    assert isinstance(tool, ServerToolPart)
    assert (tool.name, tool.input, tool.output, tool.payload) == ("search", {"query": "q"}, "found", done)
    assert completion.tool_calls == []


def test_generated_sound_and_its_transcript() -> None:
    to = target()
    call = CODEC.encode(_audio_request(), to, stream=False)
    sound = {"id": "audio_1", "expires_at": 5}
    for completion in (
        decode(
            CODEC, whole({"content": None, "audio": {**sound, "data": "QUJDRA==", "transcript": "Hello"}}), to, call
        ),
        stream(
            chunk({"audio": {"id": "audio_1", "transcript": "Hel"}}),
            chunk({"audio": {"data": "QUI=", "transcript": "lo"}}),
            chunk({"audio": {"data": "Q0Q="}}),
            chunk({"audio": {"expires_at": 5}}),
            chunk(finish="stop"),
            to=to,
            call=call,
        ),
    ):
        media = next(part for part in completion.message.parts if isinstance(part, MediaPart))
        assert (media.kind, media.data, media.mime_type, media.extra) == (
            "audio",
            b"ABCD",
            "audio/wav",
            {"acme": sound},
        )
        assert completion.text == "Hello"


def _audio_request() -> Any:
    from rein_nb.ir import Request

    return Request(messages=[user()], options={"extensions": {"acme": {"audio": {"voice": "v", "format": "wav"}}}})


def test_broken_sound_is_kept_and_raises_nothing() -> None:
    completion = stream(chunk({"audio": {"data": "not base64!", "transcript": "Hi"}}), chunk(finish="stop"))
    assert completion.error is None
    assert "not base64!" in completion.message.model_dump_json()


def test_generated_images() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}}
    completion = stream(chunk({"content": "Here", "images": [image]}), chunk(finish="stop"))
    media = completion.message.parts[1]
    assert isinstance(media, MediaPart)
    assert (media.kind, media.mime_type, media.data) == ("image", "image/png", b"\x89PNG")


def test_logprobs_of_all_chunks_are_kept() -> None:
    tokens = [{"token": t, "logprob": -0.1, "top_logprobs": []} for t in "abaaa"]
    wire = [
        {"choices": [{"index": 0, "delta": {"content": t["token"]}, "logprobs": {"content": [t], "refusal": None}}]}
        for t in tokens
    ]
    assert stream(*wire, chunk(finish="stop")).extra["acme"]["logprobs"] == {"content": tokens}


def test_several_choices_are_kept_apart() -> None:
    def piece(n: int, text: str, finish: str | None = None) -> dict[str, Any]:
        return {"choices": [{"index": n, "delta": {"content": text} if text else {}, "finish_reason": finish}]}

    streamed = stream(
        piece(1, "B"),
        piece(0, "A"),
        piece(2, "C"),
        piece(1, "b", "length"),
        piece(0, "a", "stop"),
        piece(2, "", "stop"),
        DONE,
    )
    choices = [
        {"index": n, "message": {"content": text}, "finish_reason": finish}
        for n, text, finish in ((0, "Aa", "stop"), (1, "Bb", "length"), (2, "C", "stop"))
    ]
    at_once = decode(CODEC, {"choices": choices}, target())
    for completion in (streamed, at_once):
        assert completion.text == "Aa"
        assert completion.finish_reason == "stop"
        assert sorted(message.text for message in completion.alternatives) == ["Bb", "C"]
        assert completion.extra["acme"]["choices"]["1"]["finish_reason"] == "length"


# -- tool calls -----------------------------------------------------------------------------------------


def test_a_custom_tools_text_streams_and_goes_back_as_it_was() -> None:
    def custom(**fields: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [{"index": 0, **fields}]})

    streamed = stream(
        custom(id="c1", type="custom", custom={"name": "expr", "input": ""}),
        custom(custom={"input": 'say "'}),
        custom(custom={"input": 'hi"\n'}),
        chunk(finish="tool_calls"),
        DONE,
    )
    call = {"id": "c1", "type": "custom", "custom": {"name": "expr", "input": 'say "hi"\n'}}
    at_once = decode(CODEC, whole({"tool_calls": [call]}, "tool_calls"), target())
    for completion in (streamed, at_once):
        assert completion.runnable_tool_calls[0].arguments == {"input": 'say "hi"\n'}
        loaded = Message.model_validate_json(completion.message.model_dump_json())
        assert body([user(), loaded])["messages"][1]["tool_calls"] == [call]
    cut = stream(custom(id="c1", type="custom", custom={"name": "expr", "input": "sa"}))
    assert cut.tool_calls[0].error is not None


def test_the_older_function_call() -> None:
    streamed = stream(
        chunk({"function_call": {"name": "f", "arguments": ""}}),
        chunk({"function_call": {"arguments": '{"a":'}}),
        chunk({"function_call": {"arguments": "1}"}}),
        chunk(finish="function_call"),
        DONE,
    )
    at_once = decode(
        CODEC,
        whole({"content": None, "function_call": {"name": "f", "arguments": '{"a":1}'}}, "function_call"),
        target(),
    )
    for completion in (streamed, at_once):
        (call,) = completion.runnable_tool_calls
        assert (call.name, call.arguments) == ("f", {"a": 1})
        assert call.id.startswith("call_")
        assert (completion.finish_reason, completion.native_finish_reason) == ("tool_calls", "function_call")


def test_fields_filled_with_zero_values_are_nothing() -> None:
    message = {
        "content": "a",
        "refusal": "",
        "annotations": None,
        "audio": {"id": "", "data": "", "transcript": "", "expires_at": 0},
        "function_call": {"name": "", "arguments": ""},
        "tool_calls": [
            {
                "id": "c",
                "type": "function",
                "custom": {"name": "", "input": ""},
                "function": {"name": "f", "arguments": "{}"},
            }
        ],
    }
    completion = decode(CODEC, whole(message, finish=""), target())
    assert [part.type for part in completion.message.parts] == ["text", "tool_call"]
    assert completion.finish_reason == "tool_calls"
    assert completion.runnable_tool_calls[0].name == "f"


def test_interleaved_calls_are_kept_apart_by_index() -> None:
    completion = stream(
        chunk(fragment(index=0, id="a", name="f", arguments='{"x"')),
        chunk(fragment(index=1, id="b", name="g", arguments='{"y"')),
        chunk(fragment(index=0, arguments=":1}")),
        chunk(fragment(index=1, arguments=":2}")),
        chunk(finish="tool_calls"),
    )
    assert [(c.id, c.name, c.arguments) for c in completion.runnable_tool_calls] == [
        ("a", "f", {"x": 1}),
        ("b", "g", {"y": 2}),
    ]


def test_an_id_or_a_name_that_comes_late_is_taken() -> None:
    completion = stream(
        chunk(fragment(index=0, arguments="{")),
        chunk(fragment(index=0, name="f", arguments="")),
        chunk(fragment(index=0, id="late", arguments="}")),
        chunk(finish="tool_calls"),
    )
    (call,) = completion.runnable_tool_calls
    assert (call.id, call.name) == ("late", "f")


def test_a_second_object_right_behind_a_complete_one_is_another_call() -> None:
    completion = stream(
        chunk(fragment(index=0, name="f", arguments='{"x":1}')),
        chunk(fragment(index=0, name="f", arguments='{"x":2}')),
        chunk(fragment(index=0, name="g", arguments='{"x":3}')),
        chunk(finish="tool_calls"),
    )
    assert [(c.name, c.arguments["x"]) for c in completion.runnable_tool_calls] == [("f", 1), ("f", 2), ("g", 3)]


def test_a_tool_that_had_to_be_renamed_comes_back_under_its_own_name() -> None:
    from rein_nb.dialects.base import WireCall

    call = WireCall(path="/", body={}, tool_names={"files_read_1": "files/read"})
    completion = stream(
        chunk(fragment(index=0, id="c", name="files_read_1", arguments="{}")), chunk(finish="tool_calls"), call=call
    )
    assert completion.tool_calls[0].name == "files/read"


# -- whole answers --------------------------------------------------------------------------------------


def test_a_whole_answer_without_a_finish_reason_is_a_stop() -> None:
    completion = decode(CODEC, whole({"content": "a"}, finish=None), target())
    assert (completion.finish_reason, completion.error) == ("stop", None)
    assert completion.warnings


@pytest.mark.parametrize(
    "answer", ["<html>no</html>", "", None, 5, [], {}, {"choices": None}, {"choices": []}, {"base_resp": {"status": 1}}]
)
def test_what_is_no_chat_answer_is_malformed(answer: Any) -> None:
    completion = decode(CODEC, answer, target())
    assert completion.error is not None
    assert completion.error.kind == "malformed_response"


def test_an_error_inside_a_whole_200() -> None:
    error = {"message": "filtered", "code": "content_filter", "status": 400}
    completion = decode(CODEC, {"error": error}, target())
    assert completion.error is not None
    assert (completion.error.kind, completion.error.status) == ("content_filtered", 400)


# -- usage ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15, "prompt_tokens_details": {"cached_tokens": 4, "audio_tokens": 2},
          "completion_tokens_details": {"reasoning_tokens": 3, "audio_tokens": 1}},
         {"input": 10, "output": 5, "reasoning": 3, "read": 4, "write": None, "details": {"input_audio_tokens": 2, "output_audio_tokens": 1}}),
        ({"prompt_tokens": 10, "completion_tokens": 5, "prompt_cache_hit_tokens": 6, "prompt_cache_miss_tokens": 4},
         {"input": 10, "output": 5, "reasoning": None, "read": 6, "write": None, "details": {}}),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 3},
         {"input": 10, "output": 5, "reasoning": None, "read": 2, "write": 3, "details": {}}),
        ({"prompt_tokens": 10, "completion_tokens": 5, "cache_read_input_tokens": 200},
         {"input": 210, "output": 5, "reasoning": None, "read": 200, "write": None, "details": {}}),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 22, "completion_tokens_details": {"reasoning_tokens": 7}},
         {"input": 10, "output": 12, "reasoning": 7, "read": None, "write": None, "details": {}}),
        ({"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 22},
         {"input": 10, "output": 12, "reasoning": None, "read": None, "write": None, "details": {"unattributed_output_tokens": 7}}),
        ({"prompt_tokens": -1, "completion_tokens": 2.0, "total_tokens": "x"},
         {"input": None, "output": 2, "reasoning": None, "read": None, "write": None, "details": {}}),
    ],
)  # fmt: skip
def test_usage_of_every_vendor(raw: dict[str, Any], expected: dict[str, Any]) -> None:
    usage = chat_usage(raw)
    assert usage is not None
    assert {
        "input": usage.input_tokens, "output": usage.output_tokens, "reasoning": usage.reasoning_tokens,
        "read": usage.cache_read_tokens, "write": usage.cache_write_tokens, "details": usage.details,
    } == expected  # fmt: skip
    assert usage.raw == raw


@pytest.mark.parametrize(
    ("raw", "beside", "cost"),
    [
        ({"cost": 0.5}, None, 0.5),
        ({"cost": {"total_cost": 0.25, "request_cost": 0.1}}, None, 0.25),
        ({"cost_in_usd_ticks": 5_000_000_000}, None, 0.5),
        ({"prompt_tokens": 1}, {"usd": 0.125}, 0.125),
        ({"cost": "free"}, None, None),
    ],
)
def test_a_cost_that_the_provider_states(raw: dict[str, Any], beside: Any, cost: float | None) -> None:
    usage = chat_usage(raw, beside)
    assert usage is not None
    assert usage.cost_usd == cost


@pytest.mark.parametrize("raw", [None, {}, [], "x", 3])
def test_no_usage_is_no_usage(raw: Any) -> None:
    assert chat_usage(raw) is None


def test_usage_in_every_chunk_replaces_and_never_adds() -> None:
    completion = stream(
        *(chunk({"content": "a"}, usage={"prompt_tokens": 5, "completion_tokens": n}) for n in (1, 2, 3)),
        chunk(finish="stop"),
        DONE,
    )
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (5, 3)


# -- think tags -------------------------------------------------------------------------------------------


def test_think_tags_character_by_character() -> None:
    for text, thinking, said in (
        ("<think>a < b</think>\n\n  code", "a < b", "  code"),
        ("\n<think>a</think><think>b</think>c", "ab", "c"),
        ("  x <think>y</think>", "", "  x <think>y</think>"),
        ("<thinking>a</think></thinking>b", "a</think>", "b"),
        ("<thin", "", "<thin"),
        ("<think>", "", ""),
        ("<think></think>", "", ""),
        ("<table>", "", "<table>"),
    ):
        tags = ThinkTags()
        pieces = [piece for character in text for piece in tags.feed(character)] + tags.flush()
        assert "".join(t for kind, t in pieces if kind == "thinking") == thinking, text
        assert "".join(t for kind, t in pieces if kind == "text") == said, text
