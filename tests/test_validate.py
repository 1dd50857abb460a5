"""Validators: what they find, and that everything we send is sound for every target."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rein_nb.dialects.base import Target
from rein_nb.dialects.handoff import handoff
from rein_nb.ir import InvalidRequest, Message, Request, ServerToolPart, ThinkingPart, ToolCall
from rein_nb.providers.codecs import codec_for
from rein_nb.testing.validate import TARGETS, Violation, target_of, validate_transcript
from tests.dialects.test_handoff import transcripts as generated
from tests.support import examples
from tests.wire_loader import load, transcripts

EXAMPLES = examples(300)
NAMES = list(TARGETS)


def rules(body: dict[str, Any], target: str) -> list[str]:
    return [violation.rule for violation in validate_transcript(body, target)]


# -- sound and unsound bodies, dialect by dialect -------------------------------------------------------


def chat_body() -> dict[str, Any]:
    return {
        "model": "m",
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "hi"},
                    {"type": "image_url", "image_url": {"url": "https://e.org/a.png"}},
                ],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                    {"id": "c2", "type": "function", "function": {"name": "pwd", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "L"},
            {"role": "tool", "tool_call_id": "c2", "content": "P"},
            {"role": "user", "content": "and?"},
        ],
        "tools": [{"type": "function", "function": {"name": "ls", "parameters": {}}}],
        "tool_choice": {"type": "function", "function": {"name": "ls"}},
    }


def responses_body() -> dict[str, Any]:
    return {
        "model": "m",
        "store": False,
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "E"},
            {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "L"},
            {
                "type": "message",
                "id": "msg_1",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "done", "annotations": []}],
            },
            {"role": "user", "content": [{"type": "input_text", "text": "and?"}]},
        ],
        "tools": [{"type": "function", "name": "ls", "parameters": {}}],
        "tool_choice": {"type": "function", "name": "ls"},
    }


def anthropic_body() -> dict[str, Any]:
    return {
        "model": "m",
        "max_tokens": 4096,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t", "signature": "S"},
                    {"type": "tool_use", "id": "t1", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "t2", "name": "pwd", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "L"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": [{"type": "text", "text": "P"}]},
                ],
            },
        ],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
    }


def google_body() -> dict[str, Any]:
    return {
        "systemInstruction": {"parts": [{"text": "s"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {
                "role": "model",
                "parts": [
                    {"text": "t", "thought": True},
                    {"functionCall": {"name": "ls", "args": {}, "id": "i1"}, "thoughtSignature": "Uw=="},
                    {"functionCall": {"name": "pwd", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"name": "ls", "response": {"output": "L"}, "id": "i1"}},
                    {"functionResponse": {"name": "pwd", "response": {"output": "P"}}},
                ],
            },
        ],
        "tools": [
            {
                "functionDeclarations": [
                    {"name": "ls", "parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}
                ]
            }
        ],
    }


def code_assist_body() -> dict[str, Any]:
    return {"model": "m", "project": "p", "request": google_body()}


BODIES = {
    "openai-chat": chat_body,
    "deepseek": lambda: {**chat_body(), "messages": [deepseek(m) for m in chat_body()["messages"]]},
    "openai-responses": responses_body,
    "anthropic": anthropic_body,
    "google": google_body,
    "google-code-assist": code_assist_body,
}


def deepseek(message: dict[str, Any]) -> dict[str, Any]:
    if message["role"] == "assistant":
        return {**message, "reasoning_content": "r"}
    return {**message, "content": message["content"] if isinstance(message["content"], str) else "hi"}


@pytest.mark.parametrize("target", NAMES)
def test_a_sound_body_has_no_violations(target: str) -> None:
    assert validate_transcript(BODIES[target](), target) == []


def at(body: Any, path: str) -> tuple[Any, Any]:
    """The container of a place such as ``messages.2.content.0`` and the last step."""
    *steps, last = [int(step) if step.lstrip("-").isdigit() else step for step in path.split(".")]
    for step in steps:
        body = body[step]
    return body, last


class _Gone:
    """Stands for a field that is taken away; its repr is in test ids, which must not differ between runs."""

    def __repr__(self) -> str:
        return "gone"


GONE = _Gone()
BROKEN: list[tuple[str, str, Any, str]] = [
    ("openai-chat", "messages", [], "no-messages"),
    ("openai-chat", "messages.0.role", "robot", "bad-role"),
    ("openai-chat", "messages.1", "hi", "not-an-object"),
    ("openai-chat", "messages.1.content", "", "empty-text"),
    ("openai-chat", "messages.1.content", [], "bad-content"),
    ("openai-chat", "messages.1.content.0.text", "", "empty-text"),
    ("openai-chat", "messages.1.content.1.image_url.url", "ftp://x", "bad-media"),
    ("openai-chat", "messages.1.content.1", {"type": "video_url", "video_url": {}}, "bad-part"),
    ("openai-chat", "messages.1.content.0.text", "\ud800", "surrogate"),
    ("openai-chat", "messages.2.tool_calls", [], "empty-calls"),
    ("openai-chat", "messages.2.tool_calls", GONE, "empty-message"),
    ("openai-chat", "messages.2.tool_calls", GONE, "orphan-result"),
    ("openai-chat", "messages.2.reasoning_content", "x", "unknown-field"),
    ("openai-chat", "messages.2.tool_calls.0.id", "x" * 41, "bad-id"),
    ("openai-chat", "messages.2.tool_calls.1.id", "c1", "repeated-id"),
    ("openai-chat", "messages.2.tool_calls.0.function.name", "a b", "bad-name"),
    ("openai-chat", "messages.2.tool_calls.0.function.arguments", "{", "bad-arguments"),
    ("openai-chat", "messages.2.tool_calls.0.function.arguments", "[]", "bad-arguments"),
    ("openai-chat", "messages.3", {"role": "user", "content": "x"}, "unanswered-call"),
    ("openai-chat", "messages.4.tool_call_id", "c1", "repeated-result"),
    ("openai-chat", "messages.4.tool_call_id", "c9", "orphan-result"),
    ("openai-chat", "messages.4.content", [{"type": "image_url"}], "bad-media"),
    ("openai-chat", "tools", [], "empty-tools"),
    ("openai-chat", "tools", GONE, "bad-tool-choice"),
    ("openai-chat", "tool_choice.function.name", "rm", "bad-tool-choice"),
    ("deepseek", "messages.0.role", "developer", "bad-role"),
    ("deepseek", "messages.2.reasoning_content", GONE, "missing-reasoning"),
    ("deepseek", "messages.1.content", [{"type": "image_url", "image_url": {}}], "bad-media"),
    ("openai-responses", "input", [], "no-messages"),
    ("openai-responses", "input.0.content", "", "empty-text"),
    ("openai-responses", "input.1.encrypted_content", GONE, "lost-reasoning"),
    ("openai-responses", "input.2", {"role": "user", "content": "x"}, "stray-reasoning"),
    ("openai-responses", "input.2.id", "call_1", "bad-id"),
    ("openai-responses", "input.2.call_id", "x" * 65, "bad-id"),
    ("openai-responses", "input.2.arguments", "{", "bad-arguments"),
    ("openai-responses", "input.2.name", "é", "bad-name"),
    ("openai-responses", "input.3", {"role": "user", "content": "x"}, "unanswered-call"),
    ("openai-responses", "input.3.call_id", "c2", "orphan-result"),
    ("openai-responses", "input.4", {"type": "function_call_output", "call_id": "c1", "output": "L"}, "repeated-result"),
    ("openai-responses", "input.4.content.0.type", "input_text", "bad-part"),
    ("openai-responses", "input.5.content.0.type", "output_text", "bad-part"),
    ("openai-responses", "input.4.id", "fc_1", "repeated-id"),
    ("openai-responses", "tool_choice.name", "rm", "bad-tool-choice"),
    ("anthropic", "max_tokens", GONE, "bad-option"),
    ("anthropic", "messages.0.role", "assistant", "bad-role"),
    ("anthropic", "messages.0.role", "system", "bad-role"),
    ("anthropic", "messages.0.content", " \n", "empty-text"),
    ("anthropic", "messages.0.content", [], "empty-message"),
    ("anthropic", "messages.1.role", "user", "alternation"),
    ("anthropic", "messages.1.content.0.signature", GONE, "unsigned-thinking"),
    ("anthropic", "messages.1.content.0", {"type": "text", "text": "x"}, "missing-thinking"),
    ("anthropic", "messages.1.content.0.cache_control", {"type": "ephemeral"}, "cache-mark"),
    ("anthropic", "messages.1.content.0", {"type": "redacted_thinking"}, "unsigned-thinking"),
    ("anthropic", "messages.1.content.2", {"type": "redacted_thinking", "data": "D"}, "trailing-thinking"),
    ("anthropic", "messages.1.content.1.id", "a|b", "bad-id"),
    ("anthropic", "messages.1.content.1.id", "t2", "repeated-id"),
    ("anthropic", "messages.1.content.1.input", "{}", "bad-arguments"),
    ("anthropic", "messages.1.content.1.name", "a/b", "bad-name"),
    ("anthropic", "messages.2.content.0", {"type": "text", "text": "x"}, "unanswered-call"),
    ("anthropic", "messages.2.content.0", {"type": "text", "text": "x"}, "results-first"),
    ("anthropic", "messages.2.content.1.tool_use_id", "t1", "repeated-result"),
    ("anthropic", "messages.2.content.1.tool_use_id", "zz", "orphan-result"),
    ("anthropic", "messages.2.content.1.content.0.text", "", "empty-text"),
    ("anthropic", "messages.2.content.1.content.0", {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "A"}}, "bad-media"),
    ("anthropic", "tool_choice", {"type": "any"}, "bad-tool-choice"),
    ("anthropic", "tool_choice", {"type": "tool", "name": "rm"}, "bad-tool-choice"),
    ("anthropic", "tools.0.input_schema", {}, "bad-schema"),
    ("google", "contents", [], "no-messages"),
    ("google", "contents.0.role", "model", "bad-role"),
    ("google", "contents.0.role", "model", "call-place"),
    ("google", "contents.0.parts", [], "empty-message"),
    ("google", "contents.0.parts.0.text", "", "empty-text"),
    ("google", "contents.0.parts.0.thoughtSignature", "x", "bad-part"),
    ("google", "contents.0.parts.0", {"text": "a", "inlineData": {}}, "bad-part"),
    ("google", "contents.0.parts.0", {"inlineData": {"mimeType": "image/png"}}, "bad-media"),
    ("google", "contents.1.parts.1.thoughtSignature", GONE, "missing-signature"),
    ("google", "contents.1.parts.1.functionCall.args", [], "bad-arguments"),
    ("google", "contents.1.parts.1.functionCall.name", "1 x", "bad-name"),
    ("google", "contents.1.parts.2.functionCall.id", "i1", "repeated-id"),
    ("google", "contents.2.parts.0", {"text": "x"}, "unanswered-call"),
    ("google", "contents.2.parts.0.functionResponse.id", GONE, "bad-id"),
    ("google", "contents.2.parts.0.functionResponse.name", "pwd", "result-order"),
    ("google", "contents.2.parts.0.functionResponse.response", "L", "bad-arguments"),
    ("google", "contents.1.parts.2", {"text": "x"}, "orphan-result"),
    ("google", "tools.0.functionDeclarations.0.parameters.$defs", {}, "bad-schema"),
    ("google", "toolConfig", {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["rm"]}}, "bad-tool-choice"),
    ("google-code-assist", "model", GONE, "bad-envelope"),
    ("google-code-assist", "request", GONE, "bad-envelope"),
    ("google-code-assist", "request.contents.2.parts.0", {"text": "x"}, "unanswered-call"),
]  # fmt: skip


@pytest.mark.parametrize(("target", "path", "value", "rule"), BROKEN, ids=lambda value: str(value)[:40])
def test_each_rule_is_found_when_it_is_broken(target: str, path: str, value: Any, rule: str) -> None:
    body = copy.deepcopy(BODIES[target]())
    place, step = at(body, path)
    if value is GONE:
        del place[step]
    else:
        place[step] = value
    assert rule in rules(body, target)


def test_results_out_of_their_calls_order_are_found() -> None:
    body = chat_body()
    body["messages"][3:5] = reversed(body["messages"][3:5])
    assert rules(body, "openai-chat") == ["result-order"]
    spoken = anthropic_body()
    spoken["messages"][2]["content"].reverse()
    assert rules(spoken, "anthropic") == ["result-order"]


def test_a_violation_says_where_and_what() -> None:
    body = chat_body()
    del body["messages"][4]
    (violation,) = validate_transcript(body, "openai-chat")
    assert violation == Violation("unanswered-call", "messages[2]", "the call 'c2' has 0 results here, and needs one")
    assert str(violation) == "messages[2]: the call 'c2' has 0 results here, and needs one [unanswered-call]"


def test_neutral_messages_are_handed_off_first() -> None:
    cut = [Message(role="user", content="go"), Message(role="assistant", content=[ToolCall(id="a|b", name="ls")])]
    for name in NAMES:
        assert validate_transcript(cut, name) == []
    assert validate_transcript(cut, "mistral/mistral-large-latest") == []
    with pytest.raises(ValueError, match="unknown target"):
        validate_transcript(cut, "nobody")
    with pytest.raises(ValueError, match="no rules"):
        validate_transcript(cut, Target(provider="p", dialect="d", model="m"))


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.text(max_size=3), st.integers()),
        lambda i: st.one_of(st.lists(i, max_size=3), st.dictionaries(st.sampled_from(["role", "content", "type", "text", "tool_calls", "id"]), i, max_size=3)),
        max_leaves=10,
    )
)  # fmt: skip
def test_no_body_makes_a_validator_fail(value: Any) -> None:
    for name, key in (
        ("openai-chat", "messages"),
        ("anthropic", "messages"),
        ("openai-responses", "input"),
        ("google", "contents"),
    ):
        if not (name == "openai-responses" and isinstance(value, str) and value):
            assert validate_transcript({key: value}, name) or (isinstance(value, list) and value)


# -- everything we send ---------------------------------------------------------------------------------


def encoded(history: list[Message], target: Target) -> dict[str, Any]:
    return codec_for(target.dialect).encode(Request.make(history), target, stream=True).body


def said(violations: list[Violation]) -> str:
    return "\n".join(map(str, violations[:5]))


def has_content(history: list[Message]) -> bool:
    return any(message.role not in ("system", "developer") for message in history)


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_transcript_goes_to_every_target(shared: Any, name: str) -> None:
    target = target_of(name)
    assert len(transcripts()) > 100
    for label, _, history in transcripts():
        violations = validate_transcript(encoded(history, target), target)
        assert not violations, f"{label}\n{said(violations)}"


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_transcript_cut_after_any_message_goes_to_every_target(shared: Any, name: str) -> None:
    target = target_of(name)
    for label, _, history in transcripts():
        for end in range(1, len(history)):
            for part in (history[:end], history[end:]):
                if not has_content(part):
                    continue
                violations = validate_transcript(encoded(part, target), target)
                assert not violations, f"{label} cut at {end}\n{said(violations)}"


@pytest.mark.parametrize("first", NAMES)
@pytest.mark.parametrize("second", NAMES)
def test_every_ordered_pair_of_targets(shared: Any, first: str, second: str) -> None:
    """Each recorded transcript lives at the first target, as if made there, and then moves on to the second."""
    one, two = target_of(first), target_of(second)
    for label, _, history in transcripts():
        moved = load(encoded(history, one), one)
        violations = validate_transcript(encoded(moved, two), two)
        assert not violations, f"{label}\n{said(violations)}"


@pytest.mark.parametrize("name", NAMES)
def test_recorded_requests_that_were_answered_are_sound(shared: Any, name: str) -> None:
    """The rules refuse nothing that the provider itself accepted; see `STRICTER` for where they mean to."""
    from tests.support import load_recording, recordings

    folder = name
    target = target_of(name)
    checked = 0
    for path in recordings(folder):
        data = load_recording(path)
        if data["provenance"] not in ("recorded", "altered") or path.stem.endswith(MISMATCHED):
            continue
        if data["provider"] not in (folder, "openai", "anthropic", "google"):
            continue
        for exchange in data["exchanges"]:
            body, response = exchange["request"]["json"], exchange["response"]
            field = {"openai-responses": "input", "google": "contents", "google-code-assist": "request"}.get(
                name, "messages"
            )
            if (
                response["status"] != 200
                or not isinstance(body, dict)
                or field not in body
                or "count" in exchange["request"]["path"]
            ):
                continue
            checked += 1
            model = body.get("model") or data["model"]
            told = Target(
                provider=target.provider, dialect=target.dialect, model=model or target.model, quirks=target.quirks
            )
            found = [v for v in validate_transcript(body, told) if v.rule not in STRICTER]
            assert not found, f"{path.name}\n{said(found)}"
    assert checked > (3 if name == "google-code-assist" else 10)


MISMATCHED = "ad3b"
"""A recorded request whose only result carries another id than its call: the recorder matched it to an earlier answer."""

STRICTER = ("alternation", "empty-text", "result-order", "unknown-field", "missing-reasoning")
"""Rules that are stricter than the providers' own servers, for servers that speak their dialects."""


def test_C062_every_tool_turn_to_deepseek_has_its_reasoning_field() -> None:
    deepseek_target = target_of("deepseek")
    own = Message(
        role="assistant",
        content=[ThinkingPart(text="Need the tool."), ToolCall(id="c1", name="wx", arguments={"c": "Oslo"})],
        origin=deepseek_target.origin,
    )
    foreign = Message(role="assistant", content=[ToolCall(id="t2", name="wx", arguments={"c": "Rome"})])
    history = [
        Message(role="user", content="weather?"),
        own,
        Message(role="tool", tool_call_id="c1", content="rain"),
        Message(role="assistant", content="Rain."),
        Message(role="user", content="and Rome?"),
        foreign,
        Message(role="tool", tool_call_id="t2", content="sun"),
    ]
    sent = [m for m in encoded(history, deepseek_target)["messages"] if m.get("tool_calls")]
    assert [message["reasoning_content"] for message in sent] == ["Need the tool.", ""]
    assert validate_transcript(history, deepseek_target) == []
    for name in ("openai-chat", "anthropic"):
        assert "Need the tool." not in str(encoded(history, target_of(name)))


@pytest.mark.parametrize("text", [" ", "Let me look."])
def test_reasoning_alone_is_no_message_when_what_it_led_to_has_no_place(text: str) -> None:
    target = target_of("deepseek")
    parts = [ServerToolPart(id="s1", name="web_search", payload={"type": "web_search"}), ThinkingPart(text=text)]
    history = [
        Message(role="user", content="go"),
        Message(role="assistant", tool_calls=[ToolCall(id="c1", name="ls", arguments={})]),
        Message(role="tool", tool_call_id="c1", content="ok"),
        Message(role="assistant", content=parts, origin=target.origin),
    ]
    body = encoded(history, target)
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert not validate_transcript(body, target)


@settings(max_examples=EXAMPLES // 3, deadline=None, suppress_health_check=list(HealthCheck))
@given(generated, st.sampled_from(NAMES))
def test_any_history_is_sound_for_any_target(history: list[Message], name: str) -> None:
    target = target_of(name)
    handed = handoff(history, target).messages
    if not has_content(handed):
        return
    try:
        body = encoded(history, target)
    except InvalidRequest:
        # Refused before anything is sent, and only where nothing but the provider's own blocks is left.
        assert {part.type for message in handed for part in message.parts} <= {"server_tool", "thinking"}
        return
    violations = validate_transcript(body, target)
    assert not violations, said(violations)
