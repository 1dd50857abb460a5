"""The reducer: what each event does to the view, and that live and saved come to the same."""

from __future__ import annotations

import pytest

from rein_nb.agent import Agent
from rein_nb.agent import events as ev
from rein_nb.ir import Citation, Completion, ErrorInfo, Message, ToolCall, ToolResult, Usage, deltas
from rein_nb.notebook.live import Live
from rein_nb.notebook.plain import markdown_transcript, plain_transcript, transcript_data
from rein_nb.notebook.render import Renderer, static_html
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.running import DisplayedRun
from rein_nb.notebook.view_model import Op, ViewState, apply
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import tool
from tests.notebook.script import Script, call_deltas, text_deltas, weather


def kinds(state: ViewState) -> list[str]:
    return [block.kind for block in state.blocks]


def test_a_run_becomes_blocks_in_order() -> None:
    state = state_of(weather().events)
    assert kinds(state) == ["system", "user", "thinking", "tool", "text"]
    assert state.status == "done"
    tool = state.blocks[3].tool
    assert tool is not None
    assert (tool.name, tool.state, tool.duration_s) == ("get_weather", "ok", 0.25)
    assert state.footer.usage.input_tokens == 710


def test_operations_tell_exactly_what_changed() -> None:
    script = Script("hi")
    script.turn(deltas.Text("a"), deltas.Text("b"))
    script.end_turn()
    script.end()
    state = ViewState(show_prompt=False)
    ops = [op.to_dict() for event in script.events for op in apply(state, event)]
    assert ops == [
        {"op": "status"},
        {"op": "footer"},
        {"op": "add", "block": "b0"},
        {"op": "text", "block": "b0", "text": "a"},
        {"op": "text", "block": "b0", "text": "b"},
        {"op": "done", "block": "b0"},
        {"op": "footer"},
        {"op": "status"},
        {"op": "footer"},
    ]
    assert state.blocks[0].text == "ab"


def test_live_and_replayed_runs_are_drawn_alike() -> None:
    script = weather()
    live, saved = state_of(script.events), state_of(script.events[-1].result)
    assert static_html(live) == static_html(saved)
    assert markdown_transcript(live) == markdown_transcript(saved)
    assert plain_transcript(live) == plain_transcript(saved)
    assert transcript_data(live) == transcript_data(saved)


def test_arguments_stream_and_are_then_whole() -> None:
    script = Script()
    done = script.turn(*call_deltas("add", '{"a": 1, "b": 2}'), finish="tool_calls")
    state, texts = ViewState(), []
    for event in script.events:
        texts += [op.text for op in apply(state, event) if op.kind == "text"]
    assert "".join(texts) == '{"a": 1, "b": 2}'
    tool = state.blocks[0].tool
    assert tool is not None
    assert (tool.state, tool.call) == ("ready", done.tool_calls[0])


def test_C011_a_truncated_call_is_shown_as_never_run() -> None:
    script = Script()
    script.turn(*call_deltas("add", '{"a": 1, "b"'), finish="length")
    script.end("length")
    state = state_of(script.events)
    tool = state.blocks[0].tool
    assert tool is not None
    assert tool.state == "incomplete"
    assert "arguments incomplete, not run" in plain_transcript(state)
    assert "raise max_tokens" in plain_transcript(state)


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("error", "error"),
        ("denied", "denied"),
        ("interrupted", "interrupted, may have run"),
        ("timed_out", "timed out, may have run"),
    ],
)
def test_how_a_call_ended_is_told(status: str, words: str) -> None:
    script = Script()
    done = script.turn(*call_deltas("add", "{}"), finish="tool_calls")
    script.result(done.tool_calls[0], "what happened", status=status)
    state = state_of(script.events)
    for text in (plain_transcript(state), markdown_transcript(state), static_html(state)):
        assert words in text
        assert "what happened" in text


def test_progress_and_approval() -> None:
    script = Script()
    call = script.turn(*call_deltas("add", "{}"), finish="tool_calls").tool_calls[0]
    state = state_of(script.events)
    tool = state.blocks[0].tool
    assert tool is not None
    apply(state, ev.ApprovalRequested(call=call, reason="it deletes"))
    assert (tool.state, tool.reason) == ("approval", "it deletes")
    apply(state, ev.ToolExecutionStart(call=call))
    assert apply(state, ev.ToolExecutionUpdate(call_id="c1", message="half", fraction=0.5)) == [Op("change", "b0")]
    assert (tool.state, tool.progress, tool.fraction) == ("running", "half", 0.5)
    apply(state, ev.ToolExecutionEnd(call=call, result=ToolResult(tool_call_id="c1", content="3"), duration_s=1.0))
    assert apply(state, ev.ToolExecutionUpdate(call_id="c1", message="late")) == []


def test_a_sub_agents_questions_are_drawn_on_the_card_of_its_call() -> None:
    script = Script()
    call = script.turn(*call_deltas("janitor", "{}"), finish="tool_calls").tool_calls[0]
    state = state_of(script.events)
    tool = state.blocks[0].tool
    assert tool is not None
    apply(state, ev.ToolExecutionStart(call=call))
    hostile = ToolCall(id="i1", name="delete", arguments={"path": "<script>x</script>" + "y" * 50_000})
    assert apply(state, ev.ApprovalRequested(call=hostile, reason="it <b>deletes</b>", asked_by="c1")) == [
        Op("change", "b0")
    ]
    ask = Renderer(static=False).approval(tool)
    assert "janitor asks to run delete" in ask
    assert "Always allow delete" in ask
    assert "it &lt;b&gt;deletes" in ask
    assert "<script" not in ask
    assert 'data-call="c1#1"' in ask
    # Long arguments are in a box that scrolls, so that the buttons stay in sight.
    assert '<pre class="rein-pre" tabindex="0">' in ask
    apply(state, ev.ToolExecutionUpdate(call_id="c1", message="delete: denied", data={"status": "denied"}))
    assert (tool.state, tool.reason, Renderer(static=False).approval(tool)) == ("running", None, "")
    apply(state, ev.ApprovalRequested(call=ToolCall(id="i2", name="look", arguments={"n": 1}), asked_by="c1"))
    apply(state, ev.ToolExecutionUpdate(call_id="c1", message="calls look", data={"status": "running"}))
    apply(state, ev.ToolExecutionEnd(call=call, result=ToolResult(tool_call_id="c1", content="3"), duration_s=1.0))
    for text in (plain_transcript(state), markdown_transcript(state), static_html(state)):
        assert "Asked to run delete(path=" in text
        assert "): denied" in text
        assert "Asked to run look(n=1): allowed" in text
        assert len(text) < 5_000
    assert [asked["answer"] for asked in transcript_data(state)["blocks"][0]["asked"]] == ["denied", "allowed"]


def test_a_late_second_click_does_not_decide_the_next_question() -> None:
    said: list[tuple[str, str]] = []
    live = Live(where="terminal")
    script = Script()
    call = script.turn(*call_deltas("janitor", "{}"), finish="tool_calls").tool_calls[0]
    for event in script.events:
        live.feed(event)
    live.feed(ev.ToolExecutionStart(call=call))

    def ask(name: str) -> None:
        inner = ToolCall(id="i1", name=name)
        live.feed(ev.ApprovalRequested(call=inner, asked_by="c1", decide=lambda how, why: said.append((name, how))))

    ask("first")
    live.decide(0, "c1#1", "allow")
    ask("second")
    live.decide(0, "c1#1", "allow")
    assert said == [("first", "allow")]
    assert list(live.waiting) == [(0, "c1#2")]
    live.decide(0, "c1#2", "deny")
    assert said == [("first", "allow"), ("second", "deny")]
    live.feed(ev.ToolExecutionEnd(call=call, result=ToolResult(tool_call_id="c1", content="3"), duration_s=1.0))
    assert "Asked to run first(): allowed\n  Asked to run second(): denied" in plain_transcript(live.states[0])


@pytest.mark.parametrize(("answer", "words"), [("y", "allowed"), ("n", "denied")])
def test_a_sub_agents_question_is_asked_by_text_in_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], answer: str, words: str
) -> None:
    asked: list[str] = []
    deleted: list[str] = []
    monkeypatch.setattr("builtins.input", lambda prompt="": (asked.append(prompt), answer)[1])

    @tool(requires_approval=True)
    def delete(path: str) -> str:
        deleted.append(path)
        return "done"

    inner = Agent(
        ScriptedProvider.llm(ToolCall(id="i1", name="delete", arguments={"path": "a.txt"}), "inner end"),
        tools=[delete],
    )
    outer = Agent(
        ScriptedProvider.llm(ToolCall(id="o1", name="janitor", arguments={"prompt": "go"}), "end"),
        tools=[inner.as_tool("janitor")],
    )
    assert DisplayedRun(Live(where="terminal"), outer.start("go")).block().text == "end"
    assert asked == ['Run delete({"path": "a.txt"}) for janitor? [y]es, [n]o, [a]lways: ']
    assert deleted == (["a.txt"] if answer == "y" else [])
    assert f'Asked to run delete(path="a.txt"): {words}' in capsys.readouterr().out


def test_an_error_is_told_once_with_what_to_do() -> None:
    error = ErrorInfo.make("rate_limited", "slow down", status=429, retry_after_s=7)
    script = Script()
    script.turn(*text_deltas("half an ans"), error=error)
    script.end_turn()
    script.end("error", error)
    state = state_of(script.events)
    assert kinds(state) == ["text", "error"]
    assert "The server asks to wait 7 s." in state.blocks[1].hint
    assert state.blocks[1].title == "rate limited, HTTP 429"
    assert state.status == "failed"


def test_a_retry_is_told_once_though_two_events_say_so() -> None:
    script = Script()
    error = ErrorInfo.make("overloaded", "busy")
    script.emit(ev.Retry(attempt=1, wait_s=0.5, error=error))
    script.emit(ev.Retry(attempt=1, wait_s=0.5, error=error))
    state = state_of(script.events)
    assert kinds(state) == ["retry"]
    assert "Attempt 2 in 0.5 s: busy" in plain_transcript(state)


def test_cancelling_keeps_the_text_and_says_so() -> None:
    error = ErrorInfo.make("cancelled", "stopped")
    script = Script()
    script.turn(*text_deltas("half an ans"), error=error)
    script.end("cancelled")
    state = state_of(script.events)
    assert state.status == "stopped"
    assert plain_transcript(state).startswith("half an ans\n\n(Stopped. What was received is kept.)")


def test_citations_become_footnotes() -> None:
    script = Script()
    script.turn(
        deltas.Text("It rains."), deltas.Cite(Citation(source="https://w.example/a", title="Weather", quote="rain"))
    )
    state = state_of(script.events)
    assert '<a href="https://w.example/a"' in static_html(state)
    assert "1. Weather (<https://w.example/a>): “rain”" in markdown_transcript(state)


def test_a_steering_message_is_shown_and_a_prompt_only_once() -> None:
    script = Script("first")
    script.emit(ev.MessageStart(message=Message(role="user", content="first")))
    script.turn(deltas.Text("a"))
    script.emit(ev.MessageStart(message=Message(role="user", content="more")))
    state = state_of(script.events)
    assert [(b.kind, b.text) for b in state.blocks] == [("user", "first"), ("text", "a"), ("user", "more")]


def test_completions_and_histories_can_be_drawn() -> None:
    completion = Completion(
        message=Message(role="assistant", content="**hi**"), usage=Usage(input_tokens=1, output_tokens=2), model="m"
    )
    assert "<strong>hi</strong>" in static_html(state_of(completion))
    history = [
        Message(role="user", content="add"),
        Message(role="assistant", tool_calls=[ToolCall(id="1", name="add", arguments={"a": 1})]),
        Message(role="tool", tool_call_id="1", content="3"),
        Message(role="assistant", content="three"),
    ]
    assert kinds(state_of(history)) == ["user", "tool", "text"]
    assert state_of(history).blocks[1].tool.result.text == "3"  # type: ignore[union-attr]
    with pytest.raises(TypeError, match="cannot draw a int"):
        state_of(3)


def test_unreported_usage_is_not_drawn_as_zero() -> None:
    script = Script()
    script.turn(deltas.Text("x"), usage=Usage(output_tokens=3))
    script.end_turn()
    assert "? → 3 tokens" in plain_transcript(state_of(script.events))
