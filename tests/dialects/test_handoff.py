"""The hand-off: any history becomes valid for any target, and the stored one is never touched."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rein_nb.dialects.base import Capabilities, Quirks, Target
from rein_nb.dialects.handoff import CONTINUED, INTERRUPTED, Handoff, handoff
from rein_nb.dialects.handoff_rules import id_rule, model_family, same_origin, wire_names
from rein_nb.ir import (
    Citation,
    MediaPart,
    Message,
    Origin,
    RefusalPart,
    ServerToolPart,
    TextPart,
    ThinkingPart,
    ToolCall,
    ToolResult,
)
from tests.support import examples

EXAMPLES = examples(300)

CLAUDE = Target(provider="anthropic", dialect="anthropic", model="claude-y")
CHAT = Target(provider="openai-chat", dialect="openai-chat", model="gpt-x")
RESPONSES = Target(provider="openai", dialect="openai-responses", model="gpt-x")
DEEPSEEK = Target(provider="deepseek", dialect="openai-chat", model="deepseek-reasoner")
GEMINI = Target(provider="google", dialect="google", model="gemini-z")
ASSIST = Target(provider="antigravity", dialect="google-code-assist", model="gemini-z")
MISTRAL = Target(provider="mistral", dialect="openai-chat", model="mistral-large")
TARGETS = [CLAUDE, CHAT, RESPONSES, DEEPSEEK, GEMINI, ASSIST]
every_target = pytest.mark.parametrize("target", [*TARGETS, MISTRAL], ids=lambda t: t.provider)


def user(*parts: Any) -> Message:
    return Message(role="user", content=list(parts))


def assistant(*parts: Any, origin: Origin | None = None) -> Message:
    return Message(role="assistant", content=list(parts), origin=origin)


def call(id: str, name: str = "ls", **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def result(id: str, text: str = "", **fields: Any) -> Message:
    return Message(role="tool", parts=[ToolResult(tool_call_id=id, content=text, **fields)])


def shape(messages: list[Message]) -> list[tuple[str, ...]]:
    """Roles and what the parts say, for reading a whole history at a glance."""

    def word(part: Any) -> str:
        if isinstance(part, ToolCall):
            return f"call {part.id}"
        if isinstance(part, ToolResult):
            return f"result {part.tool_call_id}: {part.text}"
        return str(getattr(part, "text", part.type))

    return [(message.role, *map(word, message.parts)) for message in messages]


def after_go(history: list[Message], target: Target) -> Handoff:
    """The hand-off of a history that begins with the user, without that first message."""
    healed = handoff([user("go"), *history], target)
    assert healed.messages[0] == user("go")
    return replace(healed, messages=healed.messages[1:])


# -- every call has exactly one result ---------------------------------------------------------------


@every_target
def test_C027_an_interrupt_leaves_calls_that_get_results_before_the_later_text(target: Target) -> None:
    history = [
        user("list files"),
        assistant("Looking", call("toolu1aaa", p="."), call("toolu2aaa", "pwd")),
        assistant("Sorry, I was interrupted."),
    ]
    healed = handoff(history, target)
    assert shape(healed.messages) == [
        ("user", "list files"),
        ("assistant", "Looking", "call toolu1aaa", "call toolu2aaa"),
        ("tool", f"result toolu1aaa: {INTERRUPTED}", f"result toolu2aaa: {INTERRUPTED}"),
        ("assistant", "Sorry, I was interrupted."),
    ]
    assert "unknown" in INTERRUPTED
    assert all(r.is_error and r.status == "interrupted" for r in healed.messages[2].tool_results)
    assert healed.repairs == 2
    again = handoff(healed.messages, target)
    assert again.messages == healed.messages
    assert again.repairs == 0
    assert again.warnings == []


def test_C027_a_real_result_wins_over_an_interrupted_one_wherever_it_arrives() -> None:
    history = [
        assistant(call("toolu_1"), call("toolu_2", "pwd")),
        result("toolu_1", INTERRUPTED, status="interrupted"),
        assistant("Sorry."),
        result("toolu_1", "late but real"),
        result("toolu_2", "/home"),
    ]
    healed = after_go(history, CLAUDE)
    assert shape(healed.messages) == [
        ("assistant", "call toolu_1", "call toolu_2"),
        ("tool", "result toolu_1: late but real", "result toolu_2: /home"),
        ("assistant", "Sorry."),
    ]
    assert [r.name for r in healed.messages[1].tool_results] == ["ls", "pwd"]


def test_C028_results_come_first_in_call_order_and_no_text_is_lost() -> None:
    history = [
        user("compare"),
        assistant(call("toolu_1", "a"), call("toolu_2", "b")),
        user("hurry up"),
        Message(role="user", parts=[ToolResult(tool_call_id="toolu_2", content="B")]),
        Message(role="user", parts=[ToolResult(tool_call_id="toolu_1", content="A")]),
        user("and be brief"),
    ]
    assert shape(handoff(history, CLAUDE).messages)[2:] == [
        ("tool", "result toolu_1: A", "result toolu_2: B"),
        ("user", "hurry up"),
        ("user", "and be brief"),
    ]


@every_target
@pytest.mark.parametrize("keep", [3, 4])
def test_C058_a_cut_history_still_has_one_result_for_each_call(target: Target, keep: int) -> None:
    history = [
        user("old question"),
        assistant(call("c00000000", "a")),
        result("c00000000", "A"),
        user("go on"),
        assistant(call("c11111111", "a"), call("c22222222", "b")),
        result("c22222222", "B"),
    ][-keep:]
    healed = handoff(history, target)
    assert healed.messages[0].role == "user"
    assert shape(healed.messages)[-2:] == [
        ("assistant", "call c11111111", "call c22222222"),
        ("tool", f"result c11111111: {INTERRUPTED}", "result c22222222: B"),
    ]
    if keep == 4:
        assert healed.messages[0].text.endswith("no longer in this conversation:]\nA")
        assert healed.warnings
        assert healed.repairs == 2


@every_target
def test_C107_a_killed_run_goes_on_with_any_provider(target: Target) -> None:
    history = [
        user("go"),
        assistant("ok", call("t11111111"), call("t22222222", "pwd")),
        result("t11111111", "L"),
        user("continue"),
    ]
    before = [message.model_dump_json() for message in history]
    healed = handoff(history, target)
    assert shape(healed.messages)[2:] == [
        ("tool", "result t11111111: L", f"result t22222222: {INTERRUPTED}"),
        ("user", "continue"),
    ]
    assert [message.model_dump_json() for message in history] == before


def test_a_sound_history_is_passed_on_as_it_is() -> None:
    history = [
        Message(role="system", content="Be brief."),
        user("go"),
        assistant("ok", call("toolu_1", "ls"), origin=CLAUDE.origin),
        result("toolu_1", "L", name="ls"),
        assistant("done", origin=CLAUDE.origin),
    ]
    healed = handoff(history, CLAUDE)
    assert all(a is b for a, b in zip(healed.messages, history, strict=True))
    assert (healed.repairs, healed.warnings, healed.tool_names) == (0, [], {})


def test_of_two_real_results_the_later_is_sent_and_a_warning_says_so() -> None:
    healed = after_go([assistant(call("toolu_1")), result("toolu_1", "old"), result("toolu_1", "new")], CLAUDE)
    assert shape(healed.messages)[1:] == [("tool", "result toolu_1: new")]
    assert "repeated" in healed.warnings[0]


def test_a_result_before_its_call_does_not_answer_it() -> None:
    healed = handoff([result("toolu_1", "early"), assistant(call("toolu_1"))], CLAUDE)
    assert healed.messages[0].role == "user"
    assert "early" in healed.messages[0].text
    assert healed.messages[2].tool_results[0].status == "interrupted"


def test_a_tool_message_without_a_call_id_becomes_user_text() -> None:
    healed = handoff([user("go"), Message(role="tool", content="3")], CHAT)
    assert shape(healed.messages) == [("user", "go"), ("user", "3")]


@every_target
def test_C058_a_history_that_begins_with_the_model_gets_a_user_turn_where_the_target_needs_one(target: Target) -> None:
    history = [Message(role="system", content="s"), assistant("and so on"), user("go on")]
    sent = handoff(history, target).messages
    needed = target.dialect in ("anthropic", "google", "google-code-assist")
    assert shape(sent)[1:-2] == ([("user", CONTINUED)] if needed else [])
    assert sent[0] is history[0]
    assert handoff(sent, target).messages == sent


# -- ids ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [CLAUDE, MISTRAL, CHAT, RESPONSES, GEMINI], ids=lambda t: t.provider)
def test_C060_ids_are_mapped_one_to_one_to_what_the_target_accepts(target: Target) -> None:
    first, second = "call_Q1|fc_0f0d91e0a3|x", "call_Q1:fc_0f0d91e0a3:x"
    history = [
        user("go"),
        assistant(call(first), call(second, "pwd"), origin=Origin(provider="other", dialect="openai-responses")),
        Message(
            role="user",
            parts=[ToolResult(tool_call_id=first, content="L"), ToolResult(tool_call_id=second, content="P")],
        ),
    ]
    healed = handoff(history, target)
    a, b = (part.id for part in healed.messages[1].tool_calls)
    assert a != b
    assert all(id_rule(target).accepts(id) for id in (a, b))
    assert [(r.tool_call_id, r.text) for r in healed.messages[2].tool_results] == [(a, "L"), (b, "P")]
    assert history[1].tool_calls[0].id == first
    longer = handoff([*history, user("more"), assistant(call("another"))], target)
    assert [part.id for part in longer.messages[1].tool_calls] == [a, b]


def test_C060_mistral_ids_have_nine_characters_and_a_quirk_asks_for_them_too() -> None:
    quirky = Target(provider="mine", dialect="openai-chat", model="m", quirks=Quirks(call_ids="alnum9"))
    for target in (MISTRAL, quirky):
        (made,) = after_go([assistant(call("call_1"))], target).messages[0].tool_calls
        assert re.fullmatch(r"[A-Za-z0-9]{9}", made.id)


def test_ids_that_a_server_issued_go_back_to_it_as_they_are() -> None:
    kimi = Target(provider="moonshot", dialect="openai-chat", model="kimi")
    history = [assistant(call("functions.ls:0"), origin=kimi.origin), result("functions.ls:0", "L")]
    assert after_go(history, kimi).messages[0].tool_calls[0].id == "functions.ls:0"
    assert after_go(history, CLAUDE).messages[0].tool_calls[0].id != "functions.ls:0"


@every_target
def test_ids_used_again_in_later_turns_are_told_apart(target: Target) -> None:
    history = [
        assistant(call("call00000", n=1)), result("call00000", "one"),
        assistant(call("call00000", n=2)), result("call00000", "two"),
        assistant(call("call00000", n=3)), result("call00000", "three"),
    ]  # fmt: skip
    healed = after_go(history, target).messages
    ids = [part.id for message in healed for part in message.tool_calls]
    assert len(set(ids)) == 3
    assert ids[0] == "call00000"
    assert [(r.tool_call_id, r.text) for m in healed for r in m.tool_results] == list(
        zip(ids, ["one", "two", "three"], strict=True)
    )


@every_target
def test_C057_calls_without_ids_are_paired_by_name_then_by_order(target: Target) -> None:
    history = [
        assistant(call("", "a"), call("", "b"), call("", "b")),
        Message(
            role="tool",
            parts=[
                ToolResult(tool_call_id="", name="b", content="B1"),
                ToolResult(tool_call_id="", name="b", content="B2"),
                ToolResult(tool_call_id="", name="a", content="A"),
            ],
        ),
    ]
    calls, results = after_go(history, target).messages
    ids = [part.id for part in calls.tool_calls]
    assert len(set(ids)) == 3
    assert all(ids)
    assert [(r.tool_call_id, r.text) for r in results.tool_results] == list(zip(ids, ["A", "B1", "B2"], strict=True))


# -- names -------------------------------------------------------------------------------------------

ODD_NAMES = ["2d_plot", "files/read", "read file", "r\u00e9cup\u00e9rer", "x" * 80, "x" * 79 + "y"]


def test_C054_names_are_mapped_one_to_one_and_the_same_way_each_time() -> None:
    mapped = wire_names(ODD_NAMES, GEMINI)
    assert len(set(mapped.values())) == len(ODD_NAMES)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}", name) for name in mapped.values())
    assert all(wire_names([name], GEMINI)[name] == wire for name, wire in mapped.items())


def test_C054_calls_in_a_history_go_out_under_the_wire_name_and_come_back_under_ours() -> None:
    history = [assistant(call("c1", "files/read"), call("c2", "ls")), result("c1", "F"), result("c2", "L")]
    healed = after_go(history, GEMINI)
    wire = healed.messages[0].tool_calls[0].name
    assert healed.tool_names == {wire: "files/read"}
    assert [r.name for r in healed.messages[1].tool_results] == [wire, "ls"]


# -- opaque state ------------------------------------------------------------------------------------


def test_C024_signed_thinking_goes_back_to_its_origin_before_the_call() -> None:
    origin = Origin(provider="anthropic", dialect="anthropic", model="claude-x")
    turn = assistant(
        ThinkingPart(text="need the tide", signature="SIG-abc=="),
        call("toolu_1", "get_tide", port="Brest"),
        origin=origin,
    )
    loaded = Message.model_validate_json(turn.model_dump_json())
    target = Target(provider="anthropic", dialect="anthropic", model="claude-x")
    assert after_go([loaded, result("toolu_1", "4.2 m")], target).messages[0] == turn


@pytest.mark.parametrize(
    "origin",
    [
        Origin(provider="openai", dialect="openai-responses", model="gpt-x"),
        Origin(provider="anthropic", dialect="anthropic", model="claude-z"),
        None,
    ],
)
def test_C061_foreign_reasoning_stays_here_and_is_found_again(origin: Origin | None) -> None:
    history = [
        user("go"),
        assistant(
            ThinkingPart(text="I should list.", signature='{"encrypted_content":"E1"}'),
            ServerToolPart(name="web_search", payload={"type": "web_search_call"}),
            TextPart(text="Listing", extra={"openai": {"id": "msg_1"}}),
            ToolCall(id="c1", name="ls", extra={"openai": {"id": "fc_1"}}),
            origin=origin,
        ),
        result("c1", "L", name="ls"),
    ]
    healed = handoff(history, CLAUDE)
    assert shape(healed.messages) == [("user", "go"), ("assistant", "Listing", "call c1"), ("tool", "result c1: L")]
    sent = "".join(message.model_dump_json() for message in healed.messages)
    assert "I should list" not in sent
    assert "E1" not in sent
    assert "msg_1" not in sent
    assert "fc_1" not in sent
    assert len(healed.warnings) == 2
    if origin is not None:
        back = Target(provider=origin.provider or "", dialect=origin.dialect or "", model=origin.model or "")
        assert handoff(history, back).messages == history


def test_thinking_without_a_signature_never_goes_to_anthropic() -> None:
    healed = after_go([assistant(ThinkingPart(text="cut off"), "Hi", origin=CLAUDE.origin)], CLAUDE)
    assert shape(healed.messages) == [("assistant", "Hi")]


def test_C062_plain_reasoning_stays_within_its_provider() -> None:
    own = Origin(provider="deepseek", dialect="openai-chat", model="deepseek-chat")
    history = [
        assistant(ThinkingPart(text="Need the tool."), call("c1", "wx", c="Oslo"), origin=own),
        result("c1", "rain", name="wx"),
        assistant(ThinkingPart(text="Foreign."), call("t2", "wx", c="Rome"), origin=CLAUDE.origin),
        result("t2", "sun", name="wx"),
    ]
    healed = after_go(history, DEEPSEEK).messages
    assert [message.thinking for message in healed if message.role == "assistant"] == ["Need the tool.", ""]
    assert [message.thinking for message in after_go(history, CHAT).messages if message.role == "assistant"] == ["", ""]


@pytest.mark.parametrize(
    ("asked", "answered", "now"),
    [
        ("claude-sonnet-4-5", "claude-sonnet-4-5-20250929", "claude-sonnet-4-5"),
        ("claude-sonnet-4-5-20250929", "claude-sonnet-4-5-20250929", "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
        ("gemini-flash-latest", "gemini-2.5-flash-preview-09-2025", "gemini-flash-latest"),
        ("my-deployment", "gpt-5-2025-08-07", "my-deployment"),
        ("models/gemini-2.0-flash", "gemini-2.0-flash-001", "gemini-2.0-flash"),
    ],
)
def test_snapshots_aliases_and_routes_are_one_family(asked: str, answered: str, now: str) -> None:
    target = Target(provider="p", dialect="d", model=now)
    assert same_origin(Origin(provider="p", dialect="d", model=answered, requested_model=asked), target)


@pytest.mark.parametrize(
    ("a", "b"),
    [("claude-y", "claude-z"), ("gpt-5", "gpt-5-mini"), ("gemini-2.5-pro", "gemini-3-pro-preview"), ("o3", "o4-mini")],
)
def test_different_models_are_different_families(a: str, b: str) -> None:
    assert model_family(a) != model_family(b)


def test_citations_keep_what_all_providers_understand() -> None:
    cited = Citation(source="https://example.org", title="T", quote="q", extra={"anthropic": {"encrypted_index": "E"}})
    healed = after_go([assistant(TextPart(text="as said", citations=[cited]), origin=CLAUDE.origin)], CHAT)
    (part,) = healed.messages[0].parts
    assert isinstance(part, TextPart)
    assert part.citations == [Citation(source="https://example.org", title="T", quote="q")]


def test_C050_an_empty_text_part_with_a_thought_signature_is_kept_for_google_only() -> None:
    signed = TextPart(text="", extra={"google": {"thought_signature": "c2lnMg=="}})
    history = [assistant(call("c1"), signed, origin=GEMINI.origin), result("c1", "L", name="ls")]
    assert after_go(history, GEMINI).messages[0].parts[-1] == signed
    assert shape(after_go(history, CLAUDE).messages)[0] == ("assistant", "call c1")


def test_C040_a_reasoning_item_that_nothing_follows_is_not_sent() -> None:
    history = [
        user("tide?"),
        assistant(ThinkingPart(opaque="E1"), call("call_1"), ThinkingPart(opaque="E2"), origin=RESPONSES.origin),
        result("call_1", "4 m", name="ls"),
    ]
    parts = handoff(history, RESPONSES).messages[1].parts
    assert [part.type for part in parts] == ["thinking", "tool_call"]


@every_target
def test_an_answer_that_was_cut_off_while_thinking_is_not_sent_where_thinking_cannot_stand_alone(
    target: Target,
) -> None:
    history = [user("tide?"), assistant(ThinkingPart(text="hm", signature="S"), origin=target.origin), user("well?")]
    roles = [message.role for message in handoff(history, target).messages]
    assert roles == (["user", "assistant", "user"] if target.dialect.startswith("google") else ["user", "user"])
    nothing = [user("tide?"), assistant(ThinkingPart(), origin=target.origin)]
    assert handoff(nothing, target).messages == nothing[:1]


# -- refusals, media, malformed calls, text -----------------------------------------------------------


def test_C048_a_refusal_becomes_assistant_text() -> None:
    history = [user("x"), assistant(RefusalPart(text="I can't."), origin=CHAT.origin)]
    for target in TARGETS:
        assert shape(handoff(history, target).messages)[1] == ("assistant", "I can't.")


PNG = MediaPart(kind="image", mime_type="image/png", data=b"\x89PNG", name="plot.png")


def test_media_that_a_target_does_not_read_become_a_visible_placeholder_and_a_warning() -> None:
    video = MediaPart(kind="video", mime_type="video/mp4", url="https://example.org/v.mp4")
    healed = handoff([user("look", video, PNG)], CLAUDE)
    assert shape(healed.messages) == [
        ("user", "look", "[video (video/mp4) left out: this model does not read it here]", "media")
    ]
    assert "video" in healed.warnings[0]
    assert handoff([user(PNG)], DEEPSEEK).messages[0].text
    blind = Target(
        provider="anthropic", dialect="anthropic", model="m", capabilities=Capabilities(media_in=frozenset())
    )
    assert "plot.png" in handoff([user(PNG)], blind).messages[0].text


def test_media_of_a_result_follow_it_where_results_hold_only_text() -> None:
    history = [
        assistant(call("call_1", "plot")),
        Message(role="tool", parts=[ToolResult(tool_call_id="call_1", name="plot", content=["done", PNG])]),
    ]
    assert shape(after_go(history, CHAT).messages)[1:] == [
        ("tool", "result call_1: done[The image 'plot.png' is in the next message.]"),
        ("user", "[The image 'plot.png' that plot returned:]", "media"),
    ]
    assert after_go(history, CLAUDE).messages[1] is history[1]
    assert "left out" in after_go(history, MISTRAL).messages[1].tool_results[0].text


def test_an_image_that_the_model_made_goes_back_to_it_and_is_named_elsewhere() -> None:
    history = [user("draw"), assistant(PNG, origin=GEMINI.origin)]
    assert handoff(history, GEMINI).messages[1] is history[1]
    assert "plot.png" in handoff(history, CLAUDE).messages[1].text


@every_target
def test_C078_a_malformed_call_goes_out_with_empty_arguments_and_says_what_was_wrong(target: Target) -> None:
    broken = ToolCall.model_validate({"id": "c11111111", "name": "delete_rows", "arguments": '{"where": "id = 7'})
    healed = after_go([assistant(broken)], target)
    (sent,) = healed.messages[0].tool_calls
    assert (sent.arguments, sent.raw_arguments, sent.error, sent.arguments_text) == ({}, None, None, "{}")
    (told,) = healed.messages[1].tool_results
    assert told.status == "error"
    assert "Not run" in told.text
    assert "id = 7" in told.text
    assert broken.raw_arguments == '{"where": "id = 7'
    kept = after_go([assistant(broken), result("c11111111", "bad JSON", status="error")], target)
    assert kept.messages[1].tool_results[0].text == "bad JSON"


@every_target
def test_C026_empty_blocks_and_empty_messages_are_left_out(target: Target) -> None:
    history = [
        user("go"),
        assistant("", TextPart(text=""), call("toolu1aaa", "now")),
        result("toolu1aaa", "", name="now"),
        assistant(TextPart(text="")),
        user("and?", TextPart(text="")),
    ]
    assert shape(handoff(history, target).messages) == [
        ("user", "go"),
        ("assistant", "call toolu1aaa"),
        ("tool", "result toolu1aaa: "),
        ("user", "and?"),
    ]


def test_C026_anthropic_gets_no_blank_text_block() -> None:
    assert shape(handoff([user("go"), assistant("  \n"), user("and?")], CLAUDE).messages) == [
        ("user", "go"),
        ("user", "and?"),
    ]


@every_target
def test_C030_system_messages_stay_where_they_are(target: Target) -> None:
    history = [
        Message(role="system", content="Answer in French."),
        user("hi"),
        assistant("Salut"),
        Message(role="system", content="From now on be formal."),
        user("again"),
    ]
    assert handoff(history, target).messages == history


@every_target
def test_C104_unpaired_surrogates_are_replaced_the_same_way_each_time(target: Target) -> None:
    history = [
        user("temp \udcb0C \ud83d end"),
        assistant(call("c11111111", "w", s="\ud83d\ude00 ok \udc00")),
        result("c11111111", "r\udcff"),
    ]
    healed = handoff(history, target).messages
    assert healed[0].text == "temp \ufffdC \ufffd end"
    assert healed[1].tool_calls[0].arguments == {"s": "\U0001f600 ok \ufffd"}
    assert healed[2].text == "r\ufffd"
    for message in healed:
        message.model_dump_json().encode("utf-8")
    assert history[0].text == "temp \udcb0C \ud83d end"


# -- all of it at once --------------------------------------------------------------------------------

_ids = st.sampled_from(["", "a", "b", "call_1", "call_2", "toolu_1", "abcdefghi", "x|y", "x:y", "é", "z" * 70])
_names = st.sampled_from(["ls", "pwd", "files/read", "", "2d plot", "n" * 70])
_texts = st.sampled_from(["", " ", "hello", "ünï", "\udcb0"])
_extras = st.sampled_from([{}, {"google": {"thought_signature": "S"}}, {"anthropic": {"cache_control": {"type": "x"}}}])
_origins = st.sampled_from(
    [None, *(t.origin for t in TARGETS), Origin(provider="anthropic", dialect="anthropic", model="claude-z")]
)
_text_parts = st.builds(lambda t, e: TextPart(text=t, extra=e), _texts, _extras)
_media = st.sampled_from(
    [
        PNG,
        MediaPart(kind="video", url="https://example.org/v"),
        MediaPart(kind="audio", data=b"RIFF", mime_type="audio/wav"),
        MediaPart(kind="document", file_id="f1"),
    ]
)
_calls = st.one_of(
    st.builds(lambda i, n, e: ToolCall(id=i, name=n, arguments={"q": 1}, extra=e), _ids, _names, _extras),
    st.builds(lambda i, n: ToolCall.model_validate({"id": i, "name": n, "arguments": '{"a": '}), _ids, _names),
)
_results = st.builds(
    lambda i, n, content, status: ToolResult(tool_call_id=i, name=n, content=content, status=status),
    _ids,
    st.one_of(st.none(), _names),
    st.lists(st.one_of(_text_parts, _media), max_size=2),
    st.sampled_from(["ok", "error", "denied", "interrupted"]),
)
_thinking = st.builds(
    lambda t, s, o: ThinkingPart(text=t, signature=s, opaque=o),
    _texts,
    st.sampled_from([None, "SIG"]),
    st.sampled_from([None, "OPAQUE"]),
)
_refusals = st.builds(lambda t: RefusalPart(text=t), _texts)
_server = st.just(ServerToolPart(id="s1", name="web_search", payload={"type": "web_search"}))
_messages = st.one_of(
    st.builds(
        lambda parts, origin: Message(role="assistant", parts=parts, origin=origin),
        st.lists(st.one_of(_text_parts, _calls, _calls, _thinking, _refusals, _server, _media), max_size=4),
        _origins,
    ),
    st.builds(lambda parts: Message(role="tool", parts=parts), st.lists(_results, max_size=3)),
    st.builds(
        lambda parts: Message(role="user", parts=parts), st.lists(st.one_of(_text_parts, _results, _media), max_size=3)
    ),
    st.builds(lambda text: Message(role="system", content=text), _texts),
)
transcripts = st.lists(_messages, max_size=10)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(transcripts, st.sampled_from([*TARGETS, MISTRAL]))
def test_any_history_becomes_sound_once_and_for_all(history: list[Message], target: Target) -> None:
    before = [message.model_dump() for message in history]
    healed = handoff(history, target)
    assert [message.model_dump() for message in history] == before, "the stored history was changed"

    again = handoff(healed.messages, target)
    assert again.messages == healed.messages, "not idempotent"
    assert again.repairs == 0
    twin = handoff([Message.model_validate(dict(message)) for message in history], target)
    assert (twin.messages, twin.warnings, twin.repairs) == (healed.messages, healed.warnings, healed.repairs)

    sent = healed.messages
    seen: set[str] = set()
    for at, message in enumerate(sent):
        assert message.parts, "an empty message"
        assert not any(isinstance(part, TextPart) and not part.text and not part.extra for part in message.parts)
        ids = [part.id for part in message.tool_calls]
        assert all(ids)
        assert not seen & set(ids)
        assert len(set(ids)) == len(ids)
        seen |= set(ids)
        if ids:
            assert [part.tool_call_id for part in sent[at + 1].parts] == ids  # type: ignore[union-attr]
        if message.role == "tool":
            assert sent[at - 1].tool_calls
        elif message.role == "user":
            assert not message.tool_results
    given_texts = [
        p.text for m in history if m.role == "user" for p in m.parts if isinstance(p, TextPart) and p.text.strip()
    ]
    sent_text = "\n".join(m.text for m in sent)
    assert all(text.replace("\udcb0", "\ufffd") in sent_text for text in given_texts)
    sent_media = [p for m in sent if m.role == "assistant" for p in m.parts if isinstance(p, ThinkingPart)]
    if target.dialect == "anthropic":
        assert all(part.signature or part.opaque for part in sent_media)


def test_reasoning_that_goes_back_to_its_origin_has_no_half_characters() -> None:
    target = Target(provider="deepseek", dialect="openai-chat", model="deepseek-reasoner")
    thought = ThinkingPart(text="so \udcb0", opaque="OPAQUE")
    call = ToolCall(id="c1", name="ls")
    history = [
        Message(role="user", content="hi"),
        Message(role="assistant", parts=[thought, call], origin=target.origin),
    ]
    parts = handoff(history, target).messages[1].parts
    assert [part.text for part in parts if isinstance(part, ThinkingPart)] == ["so \ufffd"]
