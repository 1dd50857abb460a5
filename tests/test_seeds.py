"""The plain examples of the documents that the design unites, against our names."""

from __future__ import annotations

import json

import pytest

import rein_nb
from rein_nb import (
    LLM,
    Accumulator,
    Completion,
    Config,
    InvalidRequest,
    Message,
    Options,
    OutputFormat,
    Request,
    StreamDone,
    StreamError,
    StreamStart,
    TextDelta,
    TextPart,
    ThinkingDelta,
    ThinkingPart,
    ToolCall,
    ToolCallDone,
    ToolChoice,
    ToolResult,
    ToolSpec,
    TurnOutcome,
    Usage,
    deltas,
    normalize_finish_reason,
    sanitize_tool_name,
)
from rein_nb.middleware import wrap
from rein_nb.testing import ScriptedProvider

# -- rein: the internal representation ----------------------------------------------------------------


def test_rein_tool_call() -> None:
    call = ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})
    assert (call.id, call.name, call.arguments) == ("1", "add", {"a": 1, "b": 2})


def test_rein_messages() -> None:
    assert Message(role="user", content="你好").content == "你好"
    tool = Message(role="tool", tool_call_id="1", content="结果")
    assert (tool.tool_call_id, tool.content, tool.tool_results[0].is_error) == ("1", "结果", False)
    both = Message(role="assistant", content="x", tool_calls=[ToolCall(id="1", name="add", arguments={})])
    assert (both.content, [c.name for c in both.tool_calls]) == ("x", ["add"])
    assert Message(role="system", content="be brief").role == "system"


def test_rein_tool_result() -> None:
    result = ToolResult(tool_call_id="1", content="boom", is_error=True)
    assert (result.text, result.is_error, result.status) == ("boom", True, "error")


def test_rein_usage_adds_up() -> None:
    total = Usage(input_tokens=10) + Usage(input_tokens=5)
    assert total.input_tokens == 15


def test_rein_completion_and_tool_spec() -> None:
    done = Completion(
        message=Message(role="assistant", content="hi"), usage=Usage(input_tokens=1), finish_reason="stop"
    )
    assert (done.text, done.finish_reason) == ("hi", "stop")
    assert ToolSpec(name="add", description="Add.", parameters={"type": "object"}).name == "add"


async def test_rein_stream_chunks(capsys: pytest.CaptureFixture[str]) -> None:
    agent = rein_nb.Agent(ScriptedProvider.llm(["Hel", "lo"]))
    last = None
    async for chunk in agent.astream("hi"):
        if chunk.type == "text":
            print(chunk.text, end="")
        last = chunk
    assert capsys.readouterr().out == "Hello"
    assert last.type == "done"
    assert last.finish_reason == "stop"
    assert last.usage.output_tokens == 2


# -- my-agent-llm: the model layer -----------------------------------------------------------------------


def test_my_agent_llm_takes_a_config_and_nothing_else() -> None:
    with pytest.raises(TypeError, match="LLM expects a Config instance, got dict"):
        LLM({"provider": "openai"})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"(?i)unknown provider.*openai"):
        LLM(Config(provider="openia", model="m", api_key="k" * 12))


def test_my_agent_llm_missing_key_names_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENAI_API_KEY", "REIN_NB_API_KEY", "REIN_NB_OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match=r"(?i)no API key.*OPENAI_API_KEY"):
        LLM(Config(provider="openai", model="gpt-5"))


def test_my_agent_llm_accepts_provider_model_key() -> None:
    llm = LLM(Config(provider="openai", model="gpt-5", api_key="sk-test-0123456789abcdef"))
    assert (llm.provider, llm.model) == ("openai", "gpt-5")
    assert "0123456789" not in repr(llm.config)


def test_my_agent_llm_config_is_frozen() -> None:
    config = Config(provider="openai", model="gpt-5", api_key="k" * 12)
    with pytest.raises(ValueError, match="frozen"):
        config.model = "other"


def test_my_agent_llm_nested_tool_call() -> None:
    wire = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
    call = ToolCall.model_validate(wire)
    assert (call.id, call.name, call.args, call.error) == ("1", "add", {"a": 1}, None)
    assert call.to_wire_dict() == wire


def test_my_agent_llm_malformed_arguments_are_kept_as_error() -> None:
    call = ToolCall.model_validate({"id": "1", "function": {"name": "add", "arguments": '{"a": '}})
    assert call.args == {}
    assert call.error
    assert call.raw_arguments == '{"a": '
    assert call.to_wire_dict()["function"]["arguments"] == '{"a": '


def test_my_agent_llm_message_metadata() -> None:
    message = Message(
        role="assistant",
        content="x",
        metadata={
            "tool_calls": [{"id": "1", "name": "f", "args": {}}],
            "reasoning_content": "hm",
            "stop_reason": "stop",
        },
    )
    assert message.tool_calls[0].name == "f"
    assert message.thinking == "hm"
    assert message.metadata["stop_reason"] == "stop"
    result = Message(role="tool", content="no", metadata={"tool_call_id": "1", "is_error": True})
    assert result.metadata == {"tool_call_id": "1", "is_error": True}


@pytest.mark.parametrize(
    ("word", "calls", "outcome"),
    [
        ("stop", False, TurnOutcome.COMPLETED),
        ("end_turn", False, TurnOutcome.COMPLETED),
        ("natural", False, TurnOutcome.COMPLETED),
        ("tool_use", False, TurnOutcome.TOOL_CALLS),
        ("function_call", False, TurnOutcome.TOOL_CALLS),
        ("max_tokens", False, TurnOutcome.LENGTH),
        ("safety", False, TurnOutcome.CONTENT_FILTER),
        ("recitation", False, TurnOutcome.CONTENT_FILTER),
        ("cancelled", False, TurnOutcome.ABORTED),
        ("failed", False, TurnOutcome.PROVIDER_ERROR),
        (None, True, TurnOutcome.TOOL_CALLS),
        (None, False, TurnOutcome.UNKNOWN),
        ("never heard of", False, TurnOutcome.UNKNOWN),
    ],
)
def test_my_agent_llm_finish_reasons(word: str | None, calls: bool, outcome: TurnOutcome) -> None:
    assert normalize_finish_reason(word, has_tool_calls=calls) is outcome


def test_my_agent_llm_completion_outcome_and_to_message() -> None:
    message = Message(role="assistant", content="x", tool_calls=[ToolCall(id="1", name="f")])
    done = Completion(message=message, finish_reason="tool_calls")
    assert done.outcome == TurnOutcome.TOOL_CALLS
    assert done.to_message() == message
    assert done.to_message(stop_reason="cancelled").metadata["stop_reason"] == "cancelled"


async def test_my_agent_llm_events_carry_delta_and_partial() -> None:
    call = ToolCall(id="1", name="get_weather", arguments={"city": "Paris"})
    llm = ScriptedProvider.llm([ThinkingPart(text="hm"), "It ", "is", call])
    seen = []
    async for event in llm.astream_events([Message(role="user", content="weather?")]):
        if isinstance(event, StreamStart):
            seen.append("start")
        elif isinstance(event, TextDelta):
            seen.append((event.delta, event.partial.text))
        elif isinstance(event, ThinkingDelta):
            seen.append(("thinking", event.delta))
        elif isinstance(event, ToolCallDone):
            seen.append(event.tool_call.name)
        elif isinstance(event, StreamDone):
            seen.append(event.completion.outcome)
    assert seen == ["start", ("thinking", "hm"), ("It ", "It "), ("is", "It is"), "get_weather", TurnOutcome.TOOL_CALLS]


async def test_my_agent_llm_never_throws_out_of_a_stream() -> None:
    events = [e async for e in ScriptedProvider.llm("hi", fault="server_error").astream_events("x")]
    assert isinstance(events[-1], StreamError)
    assert (events[-1].stop_reason, events[-1].error.kind) == ("error", "server_error")


def test_my_agent_llm_arguments_of_the_call_win_over_the_config() -> None:
    llm = ScriptedProvider.llm("a", "b", temperature=0.2, max_tokens=5)
    llm.chat("x", temperature=0.9)
    llm.chat("x")
    first, second = (request.options for request in llm.backend.requests)
    assert (first.temperature, first.max_output_tokens) == (0.9, 5)
    assert second.temperature == 0.2


def test_my_agent_llm_five_ways_agree() -> None:
    llm = ScriptedProvider.llm(["a", "b"], repeat=True)
    assert llm.chat("x").text == "ab"
    assert "".join(chunk.content for chunk in llm.stream("x")) == "ab"


# -- scope: the chat protocol ---------------------------------------------------------------------------------


def test_scope_request() -> None:
    request = Request.make(
        [
            Message(role="system", content="Answer concisely."),
            Message(role="user", content=[TextPart(text="What is a scope?")]),
        ],
        options=Options(model="provider-model"),
    )
    assert request.messages[1].text == "What is a scope?"
    assert request.options.model == "provider-model"


def test_scope_request_validation() -> None:
    user = [Message(role="user", content="x")]
    with pytest.raises(InvalidRequest, match="at least one message"):
        Request.make([])
    with pytest.raises(InvalidRequest, match="unique"):
        Request.make(user, tools=[ToolSpec(name="f"), ToolSpec(name="f")])
    with pytest.raises(InvalidRequest, match="'g', which is not among"):
        Request.make(user, tools=[ToolSpec(name="f")], tool_choice=ToolChoice.of("g"))
    with pytest.raises(ValueError, match="needs a name"):
        ToolChoice(mode="named")


def test_scope_sanitize_tool_name() -> None:
    assert sanitize_tool_name("Get weather/now") == "Get_weather_now"
    assert sanitize_tool_name("3d") == "_3d"
    assert sanitize_tool_name("///") == ""
    assert len(sanitize_tool_name("x" * 100)) == 64
    with pytest.raises(ValueError, match="not a valid tool name"):
        ToolSpec(name="get weather")


def test_scope_options_resolve_overlays_only_what_is_set() -> None:
    base = Options(temperature=0.1, stop=["a"], extensions={"openai": {"user": "u"}})
    over = Options(temperature=0.0, extensions={"openai": {"store": True}})
    merged = base.resolve(over)
    assert (merged.temperature, merged.stop) == (0.0, ["a"])
    assert merged.extensions == {"openai": {"user": "u", "store": True}}
    assert base.extensions == {"openai": {"user": "u"}}


@pytest.mark.parametrize(
    "bad",
    [
        {"temperature": -1},
        {"top_p": 0},
        {"top_k": 0},
        {"max_output_tokens": 0},
        {"reasoning_effort": " low"},
        {"stop": [""]},
    ],
)
def test_scope_options_out_of_range(bad: dict) -> None:
    with pytest.raises(ValueError):
        Options(**bad)


def test_scope_output_format() -> None:
    assert OutputFormat.of({"type": "object", "title": "Answer"}).name == "Answer"
    with pytest.raises(ValueError, match="needs a json_schema"):
        OutputFormat(type="json_schema")


def test_scope_accumulator_needs_a_finish_reason_to_promote() -> None:
    acc = Accumulator()
    acc.feed(deltas.Text("half"))
    assert isinstance(acc.end()[-1], StreamError)


def test_scope_unpromoted_arguments_stay_serialisable() -> None:
    call = ToolCall(id="1", name="f", arguments="{oops")  # type: ignore[arg-type]
    assert ToolCall.model_validate_json(call.model_dump_json()) == call
    assert json.loads(call.model_dump_json())["raw_arguments"] == "{oops"


async def test_scope_wrap_first_is_outermost_and_none_is_left_out() -> None:
    order = []

    def mark(name):
        def middleware(inner):
            async def run(call):
                order.append(name)
                async for event in inner(call):
                    yield event

            return run

        return middleware

    async def answer(call):
        yield call

    events = [e async for e in wrap(answer, mark("outer"), None, mark("inner"))("call")]
    assert events == ["call"]
    assert order == ["outer", "inner"]
