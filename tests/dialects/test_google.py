"""Google's dialect: encoding, and what recordings do not show."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from rein_nb.dialects.base import Capabilities, Quirks, Target, decode
from rein_nb.dialects.framing import SSEParser, parse_event
from rein_nb.dialects.google import GoogleCodec
from rein_nb.dialects.google_args import PartialArgs, parse_path
from rein_nb.dialects.google_code_assist import CodeAssistCodec
from rein_nb.dialects.google_usage import usage_of
from rein_nb.ir import (
    Completion,
    InvalidRequest,
    MediaPart,
    Message,
    Request,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
    ToolSpec,
    UnsupportedOption,
)
from rein_nb.stream import Accumulator
from tests.support import examples, field_cases

EXAMPLES = examples(300)

CODEC = GoogleCodec()
GEMINI = Target(provider="google", dialect="google", model="gemini-3-flash-preview")
OLD = Target(provider="google", dialect="google", model="gemini-2.5-flash")


def stream(chunks: list[Any], target: Target = GEMINI, codec: Any = CODEC) -> Completion:
    accumulator = Accumulator(target.origin)
    decoder = codec.decoder(target)
    for chunk in chunks:
        for delta in decoder.feed(chunk):
            accumulator.feed(delta)
    for delta in decoder.close():
        accumulator.feed(delta)
    accumulator.end()
    return accumulator.completion


def sse(text: str) -> list[Any]:
    parser = SSEParser()
    return [parse_event(data) for _, data in [*parser.feed(text.encode()), *parser.close()]]


def chunk(*parts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}, **fields}]}


def encode(messages: list[Message], target: Target = GEMINI, *, is_stream: bool = True, **fields: Any) -> Any:
    return CODEC.encode(Request.make(messages, **fields), target, stream=is_stream)


def user(text: str = "go") -> Message:
    return Message(role="user", content=text)


def result(id: str, text: str, **fields: Any) -> Message:
    return Message(role="tool", parts=[ToolResult(tool_call_id=id, content=text, **fields)])


# -- answers ------------------------------------------------------------------------------------------

C050 = [
    chunk({"text": "thinking about tides", "thought": True}),
    chunk({"functionCall": {"name": "get_tide", "args": {"port": "Brest"}}, "thoughtSignature": "c2lnMQ=="}),
    {
        **chunk({"text": "", "thoughtSignature": "c2lnMg=="}, finishReason="STOP"),
        "usageMetadata": {"promptTokenCount": 8, "candidatesTokenCount": 5, "totalTokenCount": 13},
    },
]


def test_C050_signatures_go_back_on_the_very_parts_they_came_on() -> None:
    completion = stream(C050)
    assert completion.finish_reason == "tool_calls"
    assert completion.thinking == "thinking about tides"
    stored = Message.model_validate_json(completion.message.model_dump_json())
    body = encode([user(), stored, result(stored.tool_calls[0].id, "4.2 m")]).body
    assert body["contents"][1] == {
        "role": "model",
        "parts": [
            {"text": "thinking about tides", "thought": True},
            {"functionCall": {"name": "get_tide", "args": {"port": "Brest"}}, "thoughtSignature": "c2lnMQ=="},
            {"text": "", "thoughtSignature": "c2lnMg=="},
        ],
    }
    assert body["contents"][2]["parts"] == [{"functionResponse": {"name": "get_tide", "response": {"output": "4.2 m"}}}]


def test_C055_a_malformed_function_call_is_a_typed_error_that_may_be_tried_again() -> None:
    completion = stream(
        sse(
            'data: {"candidates":[{"finishReason":"MALFORMED_FUNCTION_CALL","index":0}],'
            '"usageMetadata":{"promptTokenCount":2595,"totalTokenCount":2595}}\n\n'
        )
    )
    assert completion.error is not None
    assert (completion.error.kind, completion.error.retryable) == ("malformed_response", True)
    assert completion.native_finish_reason == "MALFORMED_FUNCTION_CALL"
    assert (completion.usage.input_tokens, completion.usage.output_tokens) == (2595, 0)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        ("STOP", "stop"), (1, "stop"), ("MAX_TOKENS", "length"), (2, "length"), ("SAFETY", "content_filter"), (3, "content_filter"),
        ("PROHIBITED_CONTENT", "content_filter"), ("A_WORD_OF_TOMORROW", "other"), (99, "other"),
    ],
)  # fmt: skip
def test_C055_finish_reasons_are_mapped_and_unknown_ones_kept(word: Any, reason: str) -> None:
    completion = stream([chunk({"text": "hi"}, finishReason=word)])
    assert completion.error is None
    assert (completion.finish_reason, completion.native_finish_reason) == (reason, str(word))


def test_C057_calls_without_ids_get_distinct_lasting_ids_that_never_leave() -> None:
    completion = stream(
        [
            chunk({"functionCall": {"name": "set_light", "args": {"room": "hall", "on": True}}}),
            chunk({"functionCall": {"name": "set_light", "args": {"room": "attic", "on": False}}}),
            chunk(finishReason="STOP"),
        ]
    )
    stored = Message.model_validate_json(completion.message.model_dump_json())
    first, second = stored.tool_calls
    assert first.id != second.id
    assert [call.arguments["room"] for call in stored.tool_calls] == ["hall", "attic"]
    body = encode([user(), stored, result(second.id, "attic off"), result(first.id, "hall on")], OLD).body
    assert [p["functionCall"] for p in body["contents"][1]["parts"]] == [
        {"name": "set_light", "args": {"room": "hall", "on": True}},
        {"name": "set_light", "args": {"room": "attic", "on": False}},
    ]
    assert [p["functionResponse"]["response"]["output"] for p in body["contents"][2]["parts"]] == [
        "hall on",
        "attic off",
    ]
    assert "call_" not in json.dumps(body)


def test_C057_ids_that_the_api_issued_go_back_on_call_and_response_also_to_another_model() -> None:
    completion = stream([chunk({"functionCall": {"id": "abc", "name": "ls", "args": {}}}, finishReason="STOP")])
    for target in (GEMINI, OLD):
        parts = [
            c["parts"][0] for c in encode([user(), completion.message, result("abc", "L")], target).body["contents"][1:]
        ]
        assert parts[0]["functionCall"]["id"] == parts[1]["functionResponse"]["id"] == "abc"


def test_C058_each_call_has_its_response_in_the_content_right_after_and_a_user_begins() -> None:
    history = [
        Message(role="assistant", content=[ToolCall(id="c1", name="a"), ToolCall(id="c2", name="b")]),
        result("c2", "B"),
        user("and?"),
    ]
    call = encode(history)
    roles = [content["role"] for content in call.body["contents"]]
    assert roles == ["user", "model", "user", "user"]
    responses = call.body["contents"][2]["parts"]
    assert [p["functionResponse"]["name"] for p in responses] == ["a", "b"]
    assert "interrupted" in responses[0]["functionResponse"]["response"]["error"]
    assert responses[1]["functionResponse"]["response"] == {"output": "B"}
    assert any("begins with the model" in warning for warning in call.warnings)


def test_C084_counts_are_read_as_google_means_them() -> None:
    usage = usage_of(
        {
            "promptTokenCount": 1000,
            "cachedContentTokenCount": 900,
            "candidatesTokenCount": 20,
            "thoughtsTokenCount": 30,
            "totalTokenCount": 1050,
        }
    )
    assert (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens, usage.cache_read_tokens) == (
        1000,
        50,
        30,
        900,
    )
    assert (usage.uncached_input_tokens, usage.total_tokens) == (100, 1050)
    tools = usage_of(
        {"promptTokenCount": 10, "toolUsePromptTokenCount": 5, "candidatesTokenCount": 1, "totalTokenCount": 16}
    )
    assert (tools.input_tokens, tools.total_tokens, tools.details["tool_use_prompt_tokens"]) == (15, 16, 5)
    unknown = usage_of({"trafficType": "ON_DEMAND"})
    assert (unknown.input_tokens, unknown.output_tokens) == (None, None)
    assert usage_of({"promptTokenCount": None, "totalTokenCount": "x"}).input_tokens is None


@pytest.mark.parametrize("case", ["C050", "C055", "C057"])
def test_field_case_bodies_read_as_written(shared: Any, case: str) -> None:
    completion = stream(sse(field_cases()[case]["minimal_input"]["text"]))
    assert completion.native_finish_reason in ("STOP", "MALFORMED_FUNCTION_CALL")
    assert (completion.error is None) == (case != "C055")


def test_a_blocked_prompt_is_content_filter_and_not_a_cut_stream() -> None:
    for feedback in ({"blockReason": "SAFETY", "blockReasonMessage": "Reasons"}, {"blockReason": 1}):
        completion = stream([{"promptFeedback": feedback}])
        assert (completion.error, completion.finish_reason) == (None, "content_filter")
        assert completion.native_finish_reason == str(feedback["blockReason"])
        assert decode(CODEC, {"promptFeedback": feedback}, GEMINI).finish_reason == "content_filter"


def test_a_stream_without_a_finish_reason_was_cut_and_a_whole_answer_was_not() -> None:
    part = chunk({"functionCall": {"name": "ls", "args": {}}})
    cut = stream([part])
    assert cut.error is not None
    assert cut.error.kind == "stream_cut"
    assert cut.runnable_tool_calls == []
    whole = decode(CODEC, part, GEMINI)
    assert (whole.error, whole.finish_reason) == (None, "tool_calls")


def test_half_an_event_at_the_end_is_a_cut_and_in_the_middle_is_malformed() -> None:
    half = '{"candidates": [{"content": {"parts": [{"functionCall": {"name": "rm","args'
    cut = stream([chunk({"text": "so far"}), half])
    assert cut.error is not None
    assert (cut.error.kind, cut.text) == ("stream_cut", "so far")
    broken = stream([chunk({"text": "so far"}), half, chunk({"text": "on"}, finishReason="STOP")])
    assert broken.error is not None
    assert (broken.error.kind, broken.text) == ("malformed_response", "so far")
    page = stream(["<html>"])
    assert page.error is not None
    assert page.error.kind == "malformed_response"


@pytest.mark.parametrize("body", [{}, {"candidates": []}, [], "<html>", None, 3])
def test_an_answer_that_is_none_is_malformed(body: Any) -> None:
    completion = decode(CODEC, body, GEMINI)
    assert completion.error is not None
    assert completion.error.kind == "malformed_response"


def test_an_error_inside_a_stream_keeps_the_text_before_it() -> None:
    error = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
    for last in (error, [error]):
        completion = stream([chunk({"text": "so far"}), last, chunk({"text": "never"}, finishReason="STOP")])
        assert completion.text == "so far"
        assert completion.error is not None
        assert (completion.error.kind, completion.error.status) == ("overloaded", 503)


def test_a_retry_delay_is_read_from_the_error_body() -> None:
    detail = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.4s"}
    body = {"error": {"code": 429, "message": "quota", "status": "RESOURCE_EXHAUSTED", "details": [detail]}}
    info = CODEC.error(429, {}, body, GEMINI)
    assert (info.kind, info.retry_after_s, info.code) == ("rate_limited", 34.4, "RESOURCE_EXHAUSTED")


def test_further_candidates_are_alternatives() -> None:
    both = {
        "candidates": [
            {"index": 0, "content": {"parts": [{"text": "one"}]}, "finishReason": "STOP"},
            {"index": 1, "content": {"parts": [{"text": "two"}]}, "finishReason": "MAX_TOKENS"},
        ]
    }
    for completion in (stream([both]), decode(CODEC, both, GEMINI)):
        assert completion.text == "one"
        assert [message.text for message in completion.alternatives] == ["two"]
        assert completion.finish_reason == "stop"


def test_an_undeclared_tool_is_a_call_that_the_loop_can_answer() -> None:
    completion = stream(
        [chunk({"functionCall": {"name": "invented", "args": {}}}, finishReason="UNEXPECTED_TOOL_CALL")]
    )
    assert (completion.error, completion.finish_reason) == (None, "tool_calls")
    empty = stream([chunk(finishReason="UNEXPECTED_TOOL_CALL", finishMessage="no such tool")])
    assert empty.error is not None
    assert "no such tool" in empty.error.message


def test_stream_and_whole_answer_agree() -> None:
    parts = [
        {"text": "let me think", "thought": True, "thoughtSignature": "UzE="},
        {"text": "Hello "},
        {"text": "there", "thoughtSignature": "UzI="},
        {"executableCode": {"language": "PYTHON", "code": "1+1", "id": "x"}},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "2\n", "id": "x"}},
        {"functionCall": {"name": "f", "args": {"a": 1}}},
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}},
    ]
    meta = {"responseId": "r1", "modelVersion": "gemini-3-flash-preview"}
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 4, "totalTokenCount": 7}
    whole = decode(CODEC, {**chunk(*parts, finishReason="STOP"), **meta, "usageMetadata": usage}, GEMINI)
    pieces = [{**chunk(part), **meta} for part in parts]
    streamed = stream([*pieces, {**chunk(finishReason="STOP"), **meta, "usageMetadata": usage}])
    assert streamed.message == whole.message
    assert streamed.usage == whole.usage
    assert [type(part) for part in whole.message.parts] == [
        ThinkingPart, TextPart, TextPart, ServerToolPart, ServerToolPart, ToolCall, MediaPart,
    ]  # fmt: skip
    thought = whole.message.parts[0]
    assert isinstance(thought, ThinkingPart)
    assert (thought.text, thought.signature) == ("let me think", "UzE=")
    assert whole.message.parts[2].extra["google"]["thought_signature"] == "UzI="
    assert (whole.response_id, whole.message.parts[3].input) == ("r1", {"language": "PYTHON", "code": "1+1"})


def test_parts_of_tomorrow_are_kept_whole_and_go_back() -> None:
    part = {"holoData": {"shape": "cube"}, "thoughtSignature": "Uw=="}
    beside = {"inlineData": {"mimeType": "video/mp4", "data": "AAAA"}, "videoMetadata": {"fps": 2}}
    completion = stream([chunk(part, beside, finishReason="STOP")])
    assert encode([user(), completion.message]).body["contents"][1]["parts"] == [part, beside]


def test_media_that_cannot_be_read_is_kept_and_warned_of() -> None:
    bad = {"inlineData": {"mimeType": "image/png", "data": "A"}}
    completion = stream([chunk(bad, {"text": "ok"}, finishReason="STOP")])
    assert completion.text == "ok"
    assert completion.warnings
    assert encode([user(), completion.message]).body["contents"][1]["parts"][0] == bad


# -- citations ----------------------------------------------------------------------------------------


def test_spans_are_translated_from_bytes_to_characters() -> None:
    text = "Größe: 3 m. Ende."
    start, end = len("Größe: ".encode()), len("Größe: 3 m.".encode())
    grounding = {
        "webSearchQueries": ["q"],
        "groundingChunks": [
            {"web": {"uri": "https://a.example", "title": "A"}},
            {"retrievedContext": {"title": "B", "text": "cited"}},
        ],
        "groundingSupports": [
            {"segment": {"startIndex": start, "endIndex": end, "text": "3 m."}, "groundingChunkIndices": [0, 1, 9]}
        ],
    }
    for pieces in ([text], [text[:2], text[2:4], text[4:]]):
        chunks = [chunk({"text": piece}) for piece in pieces]
        completion = stream([*chunks, chunk(finishReason="STOP", groundingMetadata=grounding)])
        (part,) = completion.message.parts
        assert isinstance(part, TextPart)
        assert [(c.source, c.title, c.quote) for c in part.citations] == [
            ("https://a.example", "A", None),
            ("B", "B", "cited"),
        ]
        assert {part.text[c.start : c.end] for c in part.citations} == {"3 m."}
        assert completion.extra["google"]["groundingMetadata"] == grounding


def test_spans_count_in_their_own_part_of_a_whole_answer() -> None:
    grounding = {
        "groundingChunks": [{"web": {"uri": "https://a.example"}}],
        "groundingSupports": [
            {"segment": {"partIndex": 1, "startIndex": 0, "endIndex": 6}, "groundingChunkIndices": [0]}
        ],
    }
    parts = ({"text": "first", "thoughtSignature": "Uw=="}, {"text": "second"})
    completion = decode(CODEC, chunk(*parts, finishReason="STOP", groundingMetadata=grounding), GEMINI)
    first, second = completion.message.parts
    assert isinstance(first, TextPart)
    assert isinstance(second, TextPart)
    assert first.citations == []
    (cited,) = second.citations
    assert second.text[cited.start : cited.end] == "second"


def test_broken_evidence_never_raises() -> None:
    for grounding in (
        {
            "groundingSupports": [
                {"segment": {"startIndex": 5, "endIndex": 900}, "groundingChunkIndices": [0, -1, "x"]},
                3,
            ]
        },
        {"groundingChunks": ["x", {"web": None}], "groundingSupports": None},
        {"groundingChunks": {}},
    ):
        completion = stream(
            [chunk({"text": "hi"}, finishReason="STOP", groundingMetadata=grounding, citationMetadata={"citations": 3})]
        )
        assert completion.text == "hi"


# -- streamed arguments -------------------------------------------------------------------------------


def partial(path: str, text: str, more: bool = False) -> dict[str, Any]:
    return {"jsonPath": path, "stringValue": text, **({"willContinue": True} if more else {})}


def test_arguments_that_come_in_pieces_are_seen_as_they_come() -> None:
    def piece(**call: Any) -> dict[str, Any]:
        return chunk({"functionCall": call})

    chunks = [
        piece(name="getWeather", willContinue=True),
        piece(partialArgs=[partial("$.location", "Bos", True)], willContinue=True),
        piece(partialArgs=[partial("$.location", "ton")], willContinue=True),
        piece(partialArgs=[{"jsonPath": "$.days", "numberValue": 3}, {"jsonPath": "$.metric", "boolValue": True}]),
        piece(name="getWeather", willContinue=True),
        piece(),
        chunk(finishReason="STOP"),
    ]
    accumulator = Accumulator(GEMINI.origin)
    decoder = CODEC.decoder(GEMINI)
    seen = []
    for item in chunks:
        for delta in decoder.feed(item):
            seen += [e.delta for e in accumulator.feed(delta) if type(e).__name__ == "ToolCallDelta"]
    accumulator.end()
    assert "".join(seen) == '{"location":"Boston","days":3,"metric":true}{}'
    assert seen[0] == '{"location":"Bos'
    calls = accumulator.completion.runnable_tool_calls
    assert [call.arguments for call in calls] == [{"location": "Boston", "days": 3, "metric": True}, {}]


@pytest.mark.parametrize("reason", [None, "MAX_TOKENS", "STOP"])
@pytest.mark.parametrize(
    "pieces",
    [[], [partial("$.path", "/data", True)], [partial("$.path", "/data")], [partial("$.a", "x"), partial("$.a", "y")]],
)
def test_arguments_that_were_cut_off_are_never_runnable(reason: str | None, pieces: list[Any]) -> None:
    call = {"name": "rm", "partialArgs": pieces, "willContinue": True}
    ends = [chunk(finishReason=reason)] if reason else []
    completion = stream([chunk({"functionCall": call}), *ends])
    assert completion.runnable_tool_calls == []
    assert completion.tool_calls[0].error is not None or completion.error is not None


def test_paths_are_read_and_others_refused() -> None:
    assert parse_path("$.foo.bar[0].data") == ("foo", "bar", 0, "data")
    assert parse_path("$[\"a.b\"]['it\\'s']") == ("a.b", "it's")
    for odd in ("", "$", "foo", "$[0]", "$.a[*]", "$..a"):
        assert parse_path(odd) is None


_leaves = st.one_of(st.text(max_size=6), st.integers(-5, 5), st.booleans(), st.none())
_objects = st.dictionaries(
    st.text("abc .'\"[]é", min_size=1, max_size=3),
    st.recursive(_leaves, lambda i: st.one_of(st.lists(i, min_size=1, max_size=3), st.dictionaries(st.text("xyz", min_size=1), i, min_size=1, max_size=3)), max_leaves=6),
    max_size=4,
)  # fmt: skip


def pieces_of(value: Any, path: str) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [p for k, v in value.items() for p in pieces_of(v, f"{path}[{quoted(k)}]")]
    if isinstance(value, list):
        return [p for n, v in enumerate(value) for p in pieces_of(v, f"{path}[{n}]")]
    if isinstance(value, str):
        middle = len(value) // 2
        return [partial(path, value[:middle], True), partial(path, value[middle:])]
    if value is None:
        return [{"jsonPath": path, "nullValue": "NULL_VALUE"}]
    return [{"jsonPath": path, "boolValue" if isinstance(value, bool) else "numberValue": value}]


def quoted(key: str) -> str:
    return "'" + key.replace("\\", "\\\\").replace("'", "\\'") + "'"


@settings(max_examples=EXAMPLES // 2, deadline=None)
@given(_objects, st.randoms(use_true_random=False))
def test_any_object_in_pieces_is_put_together_again_in_and_out_of_order(value: dict[str, Any], random: Any) -> None:
    pieces = pieces_of(value, "$")
    args = PartialArgs()
    text = "".join(args.feed(piece) for piece in pieces) + args.close()
    assert args.in_order
    assert json.loads(text) == value == args.value()

    groups = [
        pieces[n : n + 2] if "willContinue" in pieces[n] else [pieces[n]]
        for n in range(len(pieces))
        if n == 0 or "willContinue" not in pieces[n - 1]
    ]
    random.shuffle(groups)
    mixed = PartialArgs()
    text = "".join(mixed.feed(piece) for group in groups for piece in group) + mixed.close()
    if mixed.in_order:
        assert json.loads(text) == value
    else:
        assert mixed.value() == value


# -- requests -----------------------------------------------------------------------------------------


class Person(BaseModel):
    """Someone."""

    name: str
    age: int | None = None


TOOL = ToolSpec(
    name="get_tide", description="Tides.", parameters={"type": "object", "properties": {"port": {"type": "string"}}}
)


def test_a_whole_request() -> None:
    call = encode(
        [
            Message(role="system", content="Be brief."),
            user("hi"),
            Message(role="assistant", content="Salut"),
            Message(role="system", content="Be formal."),
            user("again"),
        ],
        tools=[TOOL, ToolSpec(name="now")],
        tool_choice={"mode": "named", "name": "get_tide"},
        options={
            "temperature": 0.5, "top_p": 0.9, "top_k": 4, "max_output_tokens": 7, "stop": ["X"], "seed": 3, "frequency_penalty": 0.1,
            "presence_penalty": 0.2, "reasoning_effort": "low", "logprobs": 2,
            "extensions": {"google": {"safetySettings": [{"category": "C", "threshold": "OFF"}], "tools": [{"googleSearch": {}}],
                                      "generationConfig": {"candidateCount": 2}}},
        },
        output_format={"type": "json_schema", "json_schema": Person.model_json_schema()},
    )  # fmt: skip
    assert call.path == "/v1beta/models/gemini-3-flash-preview:streamGenerateContent"
    assert call.query == {"alt": "sse"}
    assert call.body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [{"text": "Salut"}]},
            {"role": "user", "parts": [{"text": "<system>\nBe formal.\n</system>"}, {"text": "again"}]},
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "get_tide",
                        "description": "Tides.",
                        "parameters": {"type": "object", "properties": {"port": {"type": "string"}}},
                    },
                    {"name": "now", "description": ""},
                ]
            },
            {"googleSearch": {}},
        ],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["get_tide"]}},
        "safetySettings": [{"category": "C", "threshold": "OFF"}],
        "generationConfig": {
            "temperature": 0.5, "topP": 0.9, "topK": 4, "maxOutputTokens": 7, "stopSequences": ["X"], "seed": 3,
            "frequencyPenalty": 0.1, "presencePenalty": 0.2, "thinkingConfig": {"thinkingLevel": "low", "includeThoughts": True},
            "responseLogprobs": True, "logprobs": 2, "candidateCount": 2, "responseMimeType": "application/json",
            "responseSchema": {
                "type": "object", "title": "Person", "description": "Someone.", "required": ["name"],
                "properties": {"name": {"type": "string", "title": "Name"}, "age": {"type": "integer", "nullable": True, "title": "Age"}},
            },
        },
    }  # fmt: skip
    assert encode([user()], is_stream=False).path.endswith(":generateContent")
    assert encode([user()], is_stream=False).query == {}


@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        ("gemini-3-pro-preview", "high", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-2.5-flash", "low", {"thinkingBudget": 1024, "includeThoughts": True}),
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "-1", {"thinkingBudget": -1, "includeThoughts": True}),
        ("gemini-3-pro-preview", "512", {"thinkingBudget": 512, "includeThoughts": True}),
    ],
)
def test_reasoning_effort_is_a_level_or_a_budget(model: str, effort: str, config: dict[str, Any]) -> None:
    target = Target(provider="google", dialect="google", model=model)
    sent = encode([user()], target, options={"reasoning_effort": effort}).body["generationConfig"]["thinkingConfig"]
    assert sent == config


def test_what_cannot_be_expressed_raises_before_anything_is_sent() -> None:
    limited = Target(
        provider="google", dialect="google", model="m",
        capabilities=Capabilities(unsupported_options=frozenset({"seed"}), reasoning_efforts=("low",), tools=False, structured_output=False),
    )  # fmt: skip
    for fields in (
        {"options": {"seed": 1}},
        {"options": {"reasoning_effort": "huge"}},
        {"tools": [TOOL]},
        {"output_format": {"type": "json_schema", "json_schema": {}}},
    ):
        with pytest.raises(UnsupportedOption):
            encode([user()], limited, **fields)
    with pytest.raises(UnsupportedOption, match="huge"):
        encode([user()], OLD, options={"reasoning_effort": "huge"})
    with pytest.raises(InvalidRequest, match="at least one message"):
        encode([Message(role="system", content="only")])


def test_schemas_that_googles_form_would_lose_go_into_the_json_schema_field() -> None:
    mapped = ToolSpec(
        name="m",
        parameters={
            "type": "object",
            "properties": {"d": {"type": "object", "additionalProperties": {"type": "integer"}}},
        },
    )
    (declaration,) = encode([user()], tools=[mapped]).body["tools"][0]["functionDeclarations"]
    assert declaration["parametersJsonSchema"]["properties"]["d"]["additionalProperties"] == {"type": "integer"}
    assert "parameters" not in declaration
    wanted = {"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "string"}}}
    assert encode([user()], output_format=wanted).body["generationConfig"]["responseSchema"] == wanted["json_schema"]


def test_calls_of_other_models_carry_the_mark_that_gemini_3_asks_for() -> None:
    foreign = Message(role="assistant", content=["ok", ToolCall(id="t1", name="a"), ToolCall(id="t2", name="b")])
    history = [user(), foreign, result("t1", "A"), result("t2", "B")]
    parts = encode(history).body["contents"][1]["parts"]
    assert [p.get("thoughtSignature") for p in parts] == [None, "skip_thought_signature_validator", None]
    assert "thoughtSignature" not in json.dumps(encode(history, OLD).body)


def test_media_goes_inline_or_by_address() -> None:
    png = MediaPart(kind="image", data=b"\x89PNG\r\n", name="x")
    body = encode(
        [
            Message(
                role="user",
                content=[
                    png,
                    MediaPart(kind="document", url="gs://b/a.pdf"),
                    MediaPart(kind="video", file_id="files/abc-1", mime_type="video/mp4"),
                    MediaPart(kind="image", url="data:image/gif;base64,R0lG"),
                ],
            )
        ]
    ).body
    assert body["contents"][0]["parts"] == [
        {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}},
        {"fileData": {"fileUri": "gs://b/a.pdf", "mimeType": "application/pdf"}},
        {
            "fileData": {
                "fileUri": "https://generativelanguage.googleapis.com/v1beta/files/abc-1",
                "mimeType": "video/mp4",
            }
        },
        {"inlineData": {"mimeType": "image/gif", "data": "R0lG"}},
    ]
    with pytest.raises(InvalidRequest, match="mime_type"):
        encode([Message(role="user", content=[MediaPart(kind="audio", data=b"??")])])


def test_where_a_model_lives() -> None:
    for model, path in {
        "gemini-x": "/v1beta/models/gemini-x",
        "models/gemini-x": "/v1beta/models/gemini-x",
        "tunedModels/mine": "/v1beta/tunedModels/mine",
    }.items():
        call = encode([user()], Target(provider="google", dialect="google", model=model), is_stream=False)
        assert call.path == f"{path}:generateContent"
    vertex = Quirks(
        path="/v1/projects/p/locations/l/publishers/google/models/{model}", default_body={"labels": {"a": "b"}}
    )
    call = encode([user()], Target(provider="vertex", dialect="google", model="gemini-x", quirks=vertex))
    assert call.path == "/v1/projects/p/locations/l/publishers/google/models/gemini-x:streamGenerateContent"
    assert call.body["labels"] == {"a": "b"}


# -- Code Assist --------------------------------------------------------------------------------------


def test_code_assist_puts_the_request_into_its_envelope_and_takes_the_answer_out() -> None:
    codec = CodeAssistCodec()
    target = Target(
        provider="antigravity",
        dialect="google-code-assist",
        model="gemini-2.5-pro",
        quirks=Quirks(default_body={"project": "p0"}),
    )
    options = {
        "temperature": 0,
        "extensions": {
            "antigravity": {"user_prompt_id": "u1"},
            "google-code-assist": {"project": "p1", "request": {"session_id": "s"}},
            "google": {"safetySettings": []},
        },
    }
    call = codec.encode(Request.make([user()], options=options), target, stream=True)
    assert (call.path, call.query) == ("/v1internal:streamGenerateContent", {"alt": "sse"})
    assert call.body == {
        "model": "gemini-2.5-pro",
        "project": "p1",
        "user_prompt_id": "u1",
        "request": {
            "contents": [{"role": "user", "parts": [{"text": "go"}]}],
            "generationConfig": {"temperature": 0},
            "safetySettings": [],
            "session_id": "s",
        },
    }
    completion = stream([{"response": chunk({"text": "hi"}, finishReason="STOP"), "traceId": "t"}], target, codec)
    assert completion.text == "hi"
    assert completion.extra["google-code-assist"] == {"traceId": "t"}
    bare = stream([chunk({"text": "hi"}, finishReason="STOP")], target, codec)
    assert bare.text == "hi"
    failed = stream(
        [[{"error": {"code": 401, "message": "token expired", "status": "UNAUTHENTICATED"}}]], target, codec
    )
    assert failed.error is not None
    assert failed.error.kind == "authentication"


# -- anything at all ----------------------------------------------------------------------------------

_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=5), st.sampled_from(["STOP", "name", "$.a", "data"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(
                ["candidates", "content", "parts", "text", "thought", "thoughtSignature", "functionCall", "name", "args", "partialArgs", "jsonPath",
                 "stringValue", "willContinue", "inlineData", "mimeType", "data", "finishReason", "index", "usageMetadata", "promptTokenCount",
                 "promptTokensDetails", "modality", "tokenCount", "promptFeedback", "blockReason", "error", "groundingMetadata",
                 "groundingSupports", "groundingChunks", "segment", "response", "executableCode", "id", "modelVersion", "responseId"]
            ),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)  # fmt: skip
_chunks = st.one_of(_json, st.builds(lambda parts, rest: {"candidates": [{"content": {"parts": parts}, **rest}]}, st.lists(_json, max_size=3), st.dictionaries(st.sampled_from(["finishReason", "index", "groundingMetadata", "citationMetadata"]), _json, max_size=2)))  # fmt: skip


@settings(max_examples=EXAMPLES // 2, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_chunks, max_size=4))
def test_nothing_that_a_server_sends_raises(chunks: list[Any]) -> None:
    for codec in (CODEC, CodeAssistCodec()):
        completion = stream(chunks, GEMINI, codec)
        assert Completion.model_validate_json(completion.model_dump_json()).message == completion.message
        for item in chunks:
            decode(codec, item, GEMINI)


def test_C047_a_wish_for_one_call_at_a_time_is_left_out_with_one_warning() -> None:
    call = encode([user()], tools=[TOOL], tool_choice={"mode": "auto", "parallel": "single"})
    (warning,) = call.warnings
    assert "one tool at a time" in warning
    assert call.body["toolConfig"] == {"functionCallingConfig": {"mode": "AUTO"}}
    assert encode([user()], tool_choice={"mode": "auto", "parallel": "single"}).warnings == []
