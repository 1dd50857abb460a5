"""The vocabulary: plain constructors, exact JSON round trips, honest sums."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from rein_nb.ir import (
    Citation,
    Completion,
    ErrorInfo,
    MediaPart,
    Message,
    Origin,
    ProviderError,
    RateLimited,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolChoice,
    ToolResult,
    Usage,
)
from rein_nb.ir.base import clean_json, clean_text, loads
from rein_nb.ir.errors import ERROR_CLASSES

words = st.text(st.characters(codec="utf-8"), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
extras = st.dictionaries(words, st.dictionaries(words, json_values, max_size=2), max_size=2)
arguments = st.dictionaries(words, json_values, max_size=3)
media = st.builds(
    MediaPart, kind=st.just("image"), mime_type=st.just("image/png"), data=st.binary(max_size=20), extra=extras
)
texts = st.builds(
    TextPart, text=words, citations=st.lists(st.builds(Citation, source=words, quote=words), max_size=2), extra=extras
)
assistant_parts = st.one_of(
    texts,
    st.builds(ThinkingPart, text=words, signature=st.none() | words, opaque=st.none() | words, redacted=st.booleans()),
    st.builds(ToolCall, id=words, name=words, arguments=arguments, extra=extras),
    st.builds(RefusalPart, text=words),
    st.builds(
        ServerToolPart, id=words, name=words, input=json_values, output=json_values, payload=st.none() | arguments
    ),
    media,
)
results = st.builds(
    ToolResult,
    tool_call_id=words,
    content=st.lists(texts | media, max_size=2),
    details=json_values,
    status=st.sampled_from(["ok", "error", "denied", "interrupted", "timed_out"]),
)
messages = st.one_of(
    st.builds(
        Message,
        role=st.just("assistant"),
        parts=st.lists(assistant_parts, max_size=4),
        origin=st.none() | st.builds(Origin, provider=words),
    ),
    st.builds(Message, role=st.just("tool"), parts=st.lists(results, max_size=3)),
    st.builds(
        Message, role=st.sampled_from(["user", "system", "developer"]), parts=st.lists(texts | media, max_size=3)
    ),
)


@given(messages)
@settings(max_examples=200)
def test_json_round_trip_is_exact(message: Message) -> None:
    assert Message.model_validate_json(message.model_dump_json()) == message
    assert Message.model_validate(message.model_dump(mode="json")) == message


def test_unknown_fields_are_refused_and_attributes_are_fixed() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        TextPart(text="x", colour="red")  # type: ignore[call-arg]
    with pytest.raises(ValidationError, match="frozen"):
        Message(role="user", content="x").role = "system"


def test_parts_stay_in_order_and_views_read_them() -> None:
    message = Message(
        role="assistant",
        content=[ThinkingPart(text="a"), "b", ToolCall(id="1", name="f"), TextPart(text="c"), RefusalPart(text="no")],
    )
    assert [part.type for part in message.parts] == ["thinking", "text", "tool_call", "text", "refusal"]
    assert (message.thinking, message.text, message.content, message.refusal) == ("a", "bc", "bc", "no")


@pytest.mark.parametrize("role", ["user", "system", "tool"])
def test_a_tool_call_belongs_to_the_assistant(role: str) -> None:
    with pytest.raises(ValidationError, match="belongs to an assistant message"):
        Message(role=role, parts=[ToolCall(id="1", name="f")])


@pytest.mark.parametrize(
    ("sent", "arguments", "broken"),
    [
        ('{"a": 1}', {"a": 1}, False),
        ("", {}, False),
        ("  ", {}, False),
        (None, {}, False),
        ({"a": 1}, {"a": 1}, False),
        ('{"a": 1', {}, True),
        ("[1]", {}, True),
        ("null", {}, True),
        ('{"a": 1}{}', {}, True),
        ([1], {}, True),
        ("[" * 100_000, {}, True),
    ],
)
def test_arguments_in_every_form(sent: object, arguments: dict, broken: bool) -> None:
    call = ToolCall(id="1", name="f", arguments=sent)
    assert call.arguments == arguments
    assert (call.error is not None) == broken
    assert (call.raw_arguments is not None) == broken


def test_media_needs_exactly_one_place() -> None:
    with pytest.raises(ValidationError, match="exactly one of data, url and file_id"):
        MediaPart(kind="image")
    with pytest.raises(ValidationError, match="exactly one"):
        MediaPart(kind="image", data=b"x", url="https://example.org")
    assert MediaPart(kind="image", data="aGk").data == b"hi"
    assert MediaPart(kind="image", data=b"hi").base64 == "aGk="


def test_status_and_is_error_agree() -> None:
    assert ToolResult(tool_call_id="1", status="denied").is_error
    assert ToolResult(tool_call_id="1", is_error=True).status == "error"
    assert ToolResult(tool_call_id="1").status == "ok"


def test_C085_unknown_stays_unknown_and_a_sum_says_that_it_is_a_lower_bound() -> None:
    total = sum([Usage(output_tokens=3), Usage(input_tokens=4, output_tokens=3), Usage(output_tokens=98)])
    assert total.output_tokens == 104
    assert total.input_tokens == 4
    assert not total.complete
    assert total.lower_bounds == ["input_tokens"]
    assert (Usage() + Usage()).input_tokens is None
    assert (Usage(input_tokens=0) + Usage(input_tokens=2)).complete


def test_C086_within_one_response_a_later_report_replaces() -> None:
    first = Usage(input_tokens=140, cache_read_tokens=100, output_tokens=1, raw={"input_tokens": 40})
    last = first.merged(Usage(output_tokens=15, raw={"output_tokens": 15, "input_tokens": None}))
    assert (last.input_tokens, last.cache_read_tokens, last.output_tokens) == (140, 100, 15)
    assert last.raw == {"input_tokens": 40, "output_tokens": 15}


def test_usage_parts_add_up_and_are_never_negative() -> None:
    usage = Usage(input_tokens=130213, cache_read_tokens=128955, cache_write_tokens=1253)
    assert usage.uncached_input_tokens == 5
    assert Usage(input_tokens=1, cache_read_tokens=3).uncached_input_tokens == 0
    with pytest.raises(ValidationError):
        Usage(input_tokens=-1)


def test_C104_surrogates() -> None:
    assert clean_text("a\ud83c\udf0ab\ud800") == "a\U0001f30ab\ufffd"
    assert clean_json({"k\ud800": ["\udfff"]}) == {"k\ufffd": ["\ufffd"]}
    assert loads('"\\ud83d"') == "\ufffd"
    assert loads('"\\ud83c\\udf0a"') == "\U0001f30a"


def test_C104_saving_never_fails_on_half_a_character() -> None:
    half = "a\ud800"
    message = Message(
        role="assistant", parts=[TextPart(text=half), ToolCall(id="1", name="f", arguments={"k": [half]})]
    )
    again = Message.model_validate_json(message.model_dump_json())
    assert again.text == "a\ufffd"
    assert again.tool_calls[0].arguments == {"k": ["a\ufffd"]}
    result = ToolResult(tool_call_id="1", content=half, details={"x": half})
    assert ToolResult.model_validate_json(result.model_dump_json(indent=1)).details == {"x": "a\ufffd"}


def test_every_error_kind_has_its_class_and_carries_the_completion() -> None:
    partial = Completion(message=Message(role="assistant", content="half"))
    for kind, cls in ERROR_CLASSES.items():
        error = ErrorInfo.make(kind, "x", status=500).to_exception(partial)  # type: ignore[arg-type]
        assert type(error) is cls
        assert error.completion is partial
        assert error.status == 500
    assert ErrorInfo.make("rate_limited", "x", retry_after_s=3).to_exception().retry_after == 3
    assert isinstance(ErrorInfo.make("rate_limited", "x").to_exception(), RateLimited)


def test_errors_survive_pickling() -> None:
    import pickle

    error = ErrorInfo.make("overloaded", "busy", status=529).to_exception()
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert again.info == error.info


def test_errors_mask_secrets() -> None:
    key = "sk-live-" + "ABCDEF123456"
    error = ErrorInfo.make("authentication", f"wrong key {key}", body={"error": {"message": key}})
    assert key not in repr(error) + error.model_dump_json() + str(error.to_exception())
    assert isinstance(error.to_exception(), ProviderError)


def test_tool_choice_from_words() -> None:
    assert ToolChoice.of("any") == ToolChoice(mode="required")
    assert ToolChoice.of("none") == ToolChoice(mode="none")
    assert ToolChoice.of(None) is None
    assert ToolChoice.of({"mode": "auto", "parallel": "single"}).parallel == "single"
