"""OpenTelemetry spans of runs, read back from the in-memory exporter."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import pytest

from rein_nb.agent import Agent, Context, Limits
from rein_nb.agent.telemetry import instrument
from rein_nb.ir import Completion, ErrorInfo, Message, ProviderError, ToolCall, Usage
from rein_nb.store import record, replay
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import ToolContext, tool

sdk = pytest.importorskip("opentelemetry.sdk.trace")
from opentelemetry import trace  # noqa: E402
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402
from opentelemetry.trace import SpanKind, StatusCode  # noqa: E402

KEY = "sk-abcdefghijklmnopqrstuvwx"


class Spans:
    """A tracer provider and what it exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    @property
    def all(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        (found,) = [span for span in self.all if span.name == name]
        return found

    def text(self) -> str:
        return "\n".join(span.to_json() for span in self.all)


@pytest.fixture
def spans() -> Spans:
    return Spans()


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def call(id: str, name: str, /, **arguments: Any) -> ToolCall:
    return ToolCall(id=id, name=name, arguments=arguments)


def parent(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent is not None else None


def own(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


async def test_a_run_its_model_calls_and_its_tool_calls(spans: Spans) -> None:
    usage = Usage(input_tokens=10, output_tokens=5, cache_read_tokens=4, reasoning_tokens=2)
    llm = ScriptedProvider.llm(
        [call("c1", "add", a=1, b=2), usage], ["It is 3.", Usage(input_tokens=20, output_tokens=6)]
    )
    agent = Agent(llm, tools=[add], label="adder", temperature=0.5, max_output_tokens=99)
    instrument(agent, spans.provider)
    await agent.arun("1 + 2?")

    run = spans.named("invoke_agent adder")
    first, second = [span for span in spans.all if span.name == "chat scripted"]
    execute = spans.named("execute_tool add")
    assert len(spans.all) == 4
    assert [parent(span) for span in (run, first, second, execute)] == [None, own(run), own(run), own(run)]
    assert (run.kind, first.kind, execute.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert all(span.status.status_code is StatusCode.UNSET for span in spans.all)
    assert all(span.start_time <= span.end_time for span in spans.all)

    attributes = dict(run.attributes or {})
    assert attributes["gen_ai.operation.name"] == "invoke_agent"
    assert attributes["gen_ai.agent.name"] == "adder"
    assert attributes["gen_ai.provider.name"] == "scripted"
    assert attributes["gen_ai.request.model"] == "scripted"
    assert attributes["gen_ai.usage.input_tokens"] == 30
    assert attributes["gen_ai.usage.output_tokens"] == 11
    assert attributes["gen_ai.response.finish_reasons"] == ("stop",)
    assert attributes["rein_nb.stop_reason"] == "completed"

    attributes = dict(first.attributes or {})
    assert attributes["gen_ai.operation.name"] == "chat"
    assert attributes["gen_ai.request.temperature"] == 0.5
    assert attributes["gen_ai.request.max_tokens"] == 99
    assert attributes["gen_ai.response.finish_reasons"] == ("tool_calls",)
    assert attributes["gen_ai.usage.input_tokens"] == 10
    assert attributes["gen_ai.usage.cache_read.input_tokens"] == 4
    assert attributes["gen_ai.usage.reasoning.output_tokens"] == 2
    assert "gen_ai.usage.cache_creation.input_tokens" not in attributes
    assert "gen_ai.response.time_to_first_chunk" in attributes

    attributes = dict(execute.attributes or {})
    assert attributes["gen_ai.operation.name"] == "execute_tool"
    assert attributes["gen_ai.tool.name"] == "add"
    assert attributes["gen_ai.tool.call.id"] == "c1"
    assert attributes["gen_ai.tool.type"] == "function"
    assert attributes["gen_ai.tool.description"] == "Add two numbers."


async def test_no_content_unless_asked_for(spans: Spans) -> None:
    @tool
    def fails(word: str) -> str:
        raise ValueError(f"private {word}")

    llm = ScriptedProvider.llm(call("c1", "fails", word="private-argument"), "private-answer")
    agent = Agent(llm, tools=[fails], system="private-system")
    instrument(agent, spans.provider)
    await agent.arun("private-question")
    assert "private" not in spans.text()


async def test_content_is_recorded_when_asked_for_and_has_no_secrets(spans: Spans) -> None:
    @tool
    def look(word: str) -> str:
        return f"found {word} {KEY}"

    llm = ScriptedProvider.llm(call("c1", "look", word=f"w {KEY}"), "the answer")
    agent = Agent(llm, tools=[look], system=f"Be kind. {KEY}")
    instrument(agent, spans.provider, content=True)
    await agent.arun(f"question {KEY}")
    assert KEY not in spans.text()
    execute = dict(spans.named("execute_tool look").attributes or {})
    assert json.loads(execute["gen_ai.tool.call.arguments"]) == {"word": "w [redacted]"}
    assert execute["gen_ai.tool.call.result"] == "found w [redacted] [redacted]"
    second = dict([span for span in spans.all if span.name == "chat scripted"][1].attributes or {})
    messages = json.loads(second["gen_ai.input.messages"])
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert messages[0]["parts"] == [{"type": "text", "content": "question [redacted]"}]
    assert messages[1]["parts"][0]["type"] == "tool_call"
    assert messages[2]["parts"][0]["id"] == "c1"
    assert json.loads(second["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "the answer"}], "finish_reason": "stop"}
    ]
    assert json.loads(second["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be kind. [redacted]"}]
    run = dict(spans.named("invoke_agent").attributes or {})
    assert json.loads(run["gen_ai.output.messages"])[0]["parts"][0]["content"] == "the answer"


async def test_faults_are_errors_of_the_call_and_of_the_run(spans: Spans) -> None:
    agent = Agent(ScriptedProvider.llm("x", fault="rate_limited"))
    instrument(agent, spans.provider)
    with pytest.raises(ProviderError):
        await agent.arun("hi")
    for name in ("chat scripted", "invoke_agent"):
        span = spans.named(name)
        assert span.status.status_code is StatusCode.ERROR
        assert dict(span.attributes or {})["error.type"] == "rate_limited"


async def test_a_failing_and_a_refused_tool_are_told_apart(spans: Spans) -> None:
    @tool
    def fails() -> str:
        raise ValueError("no")

    @tool(requires_approval=True)
    def guarded() -> str:
        return "never"

    llm = ScriptedProvider.llm([call("c1", "fails"), call("c2", "guarded"), call("c3", "unknown")], "done")
    agent = Agent(llm, tools=[fails, guarded], approval=lambda call: call.name != "guarded")
    instrument(agent, spans.provider)
    await agent.arun("go")
    failed = spans.named("execute_tool fails")
    assert failed.status.status_code is StatusCode.ERROR
    assert dict(failed.attributes or {})["error.type"] == "ValueError"
    run = spans.named("invoke_agent")
    refused = {
        dict(e.attributes or {})["gen_ai.tool.name"]: dict(e.attributes or {})["rein_nb.status"] for e in run.events
    }
    assert refused == {"guarded": "denied", "unknown": "error"}
    assert [span.name for span in spans.all if span.name.startswith("execute_tool")] == ["execute_tool fails"]


async def test_what_a_tool_records_and_a_sub_agents_run_fall_below_the_tools_span(spans: Spans) -> None:
    tracer = spans.provider.get_tracer("test")

    @tool
    def inner() -> str:
        with tracer.start_as_current_span("own work"):
            return "done"

    helper = Agent(ScriptedProvider.llm("helped"), label="helper")
    instrument(helper, spans.provider)
    llm = ScriptedProvider.llm([call("c1", "inner"), call("c2", "helper", prompt="help")], "end")
    agent = Agent(llm, tools=[inner, helper], label="boss")
    instrument(agent, spans.provider)
    with tracer.start_as_current_span("outside") as outside:
        await agent.arun("go")
        assert trace.get_current_span() is outside
    assert parent(spans.named("invoke_agent boss")) == own(spans.named("outside"))
    assert parent(spans.named("own work")) == own(spans.named("execute_tool inner"))
    assert parent(spans.named("invoke_agent helper")) == own(spans.named("execute_tool helper"))


async def test_every_span_ends_when_a_run_is_stopped(spans: Spans) -> None:
    @tool
    async def hangs() -> str:
        await asyncio.sleep(60)
        return "never"

    agent = Agent(ScriptedProvider.llm([call("c1", "hangs"), call("c2", "hangs")], "x"), tools=[hangs])
    instrument(agent, spans.provider)
    stream = agent.events("go")
    async for event in stream:
        if event.type == "tool_execution_start":
            stream.cancel("stop button")
    names = sorted(span.name for span in spans.all)
    assert names[0] == "chat scripted"
    assert names[-1] == "invoke_agent"
    assert dict(spans.named("invoke_agent").attributes or {})["error.type"] == "cancelled"
    assert all(
        dict(span.attributes or {})["error.type"] == "interrupted"
        for span in spans.all
        if span.name == "execute_tool hangs"
    )


async def test_limits_retries_and_runs_at_the_same_time(spans: Spans) -> None:
    agent = Agent(
        ScriptedProvider.llm(call("c1", "add", a=1, b=1), repeat=True, fault="overloaded", fault_times=1, max_retries=1),
        tools=[add], limits=Limits(turns=2),
    )  # fmt: skip
    instrument(agent, spans.provider)
    await agent.arun("go")
    run = spans.named("invoke_agent")
    assert dict(run.attributes or {})["error.type"] == "max_turns"
    first = next(span for span in spans.all if span.name == "chat scripted")
    assert [event.name for event in first.events] == ["rein_nb.retry"]
    spans.exporter.clear()
    many = Agent(ScriptedProvider.llm("answer", repeat=True))
    instrument(many, spans.provider)
    await asyncio.gather(*(many.arun(f"q{n}") for n in range(5)))
    chats = [span for span in spans.all if span.name == "chat scripted"]
    runs = {own(span) for span in spans.all if span.name == "invoke_agent"}
    assert len(runs) == 5
    assert {parent(span) for span in chats} == runs


def test_recording_ends_when_it_is_taken_off(spans: Spans) -> None:
    agent = Agent(ScriptedProvider.llm("a", "b", repeat=True))
    stop = instrument(agent, spans.provider)
    agent.run("one")
    stop()
    agent.run("two")
    assert len(spans.all) == 2


async def test_dependencies_and_context_still_reach_a_tool(spans: Spans) -> None:
    def uses(ctx: ToolContext[Any]) -> str:
        return str(ctx.deps)

    agent = Agent(ScriptedProvider.llm(call("c1", "uses"), "x"), tools=[uses], deps=5)
    instrument(agent, spans.provider)
    result = await agent.arun("go")
    assert result.tool_runs[0].result.text == "5"


def test_without_opentelemetry_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "opentelemetry"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install 'rein-nb\[otel\]'"):
        instrument(Agent(ScriptedProvider.llm("x")))


def facts(span: ReadableSpan) -> tuple[str, Any, Any, Any, Any]:
    """(name, model asked, model that answered, kind of fault, purpose)."""
    told = dict(span.attributes or {})
    names = ("gen_ai.request.model", "gen_ai.response.model", "error.type", "rein_nb.purpose")
    return (span.name, *(told.get(name) for name in names))  # type: ignore[return-value]


def chats(spans: Spans) -> list[ReadableSpan]:
    found = [span for span in spans.all if span.name.startswith("chat")]
    return sorted(found, key=lambda span: (span.start_time or 0, span.end_time or 0))


def failing(kind: Any, times: int = 1) -> list[Any]:
    return [ErrorInfo.make(kind, f"it is {kind}; going on with nothing/x").to_exception()] * times


@pytest.mark.parametrize("how", ["the agent's", "the run's", "a fork's"])
async def test_a_fallback_is_asked_by_its_own_name_and_the_fault_keeps_its_kind(spans: Spans, how: str) -> None:
    first = ScriptedProvider.llm(*failing("overloaded"), model="first")
    second = ScriptedProvider.llm(*failing("authentication"), model="second")
    third = ScriptedProvider.llm([call("c1", "add", a=1, b=2)], "done", model="third/large")
    agent = Agent(first, tools=[add], fallback=[second, third] if how == "the agent's" else [])
    instrument(agent, spans.provider)
    if how == "a fork's":
        agent = agent.fork(fallback=[second, third])
    await agent.arun("go", **({"fallback": [second, third]} if how == "the run's" else {}))
    assert [facts(span) for span in chats(spans)] == [
        ("chat first", "first", "first", "overloaded", None),
        ("chat second", "second", "second", "authentication", None),
        ("chat third/large", "third/large", "third/large", None, None),
        ("chat third/large", "third/large", "third/large", None, None),
    ]
    run = spans.named("invoke_agent")
    assert [event.name for event in run.events] == ["rein_nb.fallback", "rein_nb.fallback"]
    assert {parent(span) for span in chats(spans)} == {own(run)}
    assert [span.status.status_code for span in chats(spans)] == [StatusCode.ERROR] * 2 + [StatusCode.UNSET] * 2
    assert run.status.status_code is StatusCode.UNSET


LONG = [Message(role=role, content=f"{role} {n} " + "word " * 400) for n in range(6) for role in ("user", "assistant")]


@pytest.mark.parametrize("shown", [False, True])
async def test_a_request_that_overflowed_and_the_summary_have_spans(spans: Spans, shown: bool) -> None:
    overflow = failing("context_overflow")[0]
    summary = ["They spoke.", Usage(input_tokens=500, output_tokens=20)]
    llm = ScriptedProvider.llm(["ha", overflow] if shown else overflow, summary, "fits")
    agent = Agent(llm, messages=LONG, context="summary")
    instrument(agent, spans.provider, content=True)
    result = await agent.arun("and?")
    assert result.text == "fits"
    told = chats(spans)
    assert len(told) == 3
    assert {facts(span)[3:] for span in told} == {("context_overflow", None), (None, "summary"), (None, None)}
    (made,) = [span for span in told if facts(span)[4] == "summary"]
    assert dict(made.attributes or {})["gen_ai.usage.input_tokens"] == 500
    assert "Summarise the conversation" in str(dict(made.attributes or {})["gen_ai.input.messages"])
    assert {parent(span) for span in told} == {own(spans.named("invoke_agent"))}
    assert all((span.start_time or 0) <= (span.end_time or 0) for span in told)


async def test_a_summary_before_the_request_has_a_span(spans: Spans) -> None:
    llm = ScriptedProvider.llm(["They spoke.", Usage(input_tokens=500, output_tokens=20)], "fits")
    agent = Agent(llm, messages=LONG, context=Context("summary", max_tokens=3000))
    instrument(agent, spans.provider)
    await agent.arun("and?")
    assert [facts(span)[3:] for span in chats(spans)] == [(None, "summary"), (None, None)]
    assert dict(chats(spans)[0].attributes or {})["gen_ai.usage.input_tokens"] == 500


async def test_older_messages_that_are_left_out_make_no_call(spans: Spans) -> None:
    agent = Agent(ScriptedProvider.llm("fits"), messages=LONG, context=Context("drop", max_tokens=3000))
    instrument(agent, spans.provider)
    await agent.arun("and?")
    assert [facts(span)[3:] for span in chats(spans)] == [(None, None)]
    assert [event.name for event in spans.named("invoke_agent").events] == ["rein_nb.compaction"]


async def test_a_call_that_could_not_be_read_is_asked_again_in_a_span_of_its_own(spans: Spans) -> None:
    unreadable = Completion(
        message=Message(role="assistant", parts=[]),
        native_finish_reason="MALFORMED_FUNCTION_CALL",
        finish_reason="other",
    )
    agent = Agent(ScriptedProvider.llm(unreadable, "read"), tools=[add])
    instrument(agent, spans.provider)
    assert (await agent.arun("go")).text == "read"
    first, second = chats(spans)
    assert (first.end_time or 0) <= (second.start_time or 0)


async def test_a_request_that_a_hook_broke_is_no_call(spans: Spans) -> None:
    def breaks(request: Any) -> None:
        raise LookupError("no")

    agent = Agent(ScriptedProvider.llm("x"), before_request=breaks)
    instrument(agent, spans.provider)
    with pytest.raises(Exception, match="no"):
        await agent.arun("go")
    assert chats(spans) == []
    assert dict(spans.named("invoke_agent").attributes or {})["error.type"] == "other"


async def test_a_span_tells_what_was_sent_as_hooks_left_it(spans: Spans) -> None:
    def change(request: Any) -> None:
        request.messages = [*request.messages, Message(role="user", content="and briefly")]
        request.options["temperature"] = 0.5

    agent = Agent(ScriptedProvider.llm("x"), system="be kind", before_request=change)
    instrument(agent, spans.provider, content=True)
    await agent.arun("go")
    (span,) = chats(spans)
    told = dict(span.attributes or {})
    assert "and briefly" in str(told["gen_ai.input.messages"])
    assert "be kind" not in str(told["gen_ai.input.messages"])
    assert told["gen_ai.request.temperature"] == 0.5


async def test_spans_of_a_fallback_that_is_played_back(spans: Spans, tmp_path: Any) -> None:
    def made() -> Agent:
        spare = ScriptedProvider.llm("spare answers", model="spare")
        return Agent(ScriptedProvider.llm(*failing("server_error"), model="first"), fallback=[spare])

    with record(tmp_path / "r.jsonl"):
        await made().arun("go")
    agent = made()
    instrument(agent, spans.provider)
    with replay(tmp_path / "r.jsonl"):
        await agent.arun("go")
    assert sorted(facts(span)[:4] for span in chats(spans)) == [
        ("chat first", "first", "first", "server_error"),
        ("chat spare", "spare", "spare", None),
    ]


async def test_values_that_are_no_json_end_no_recording(spans: Spans) -> None:
    def odd(n: Any) -> str:
        return "half \ud800"

    llm = ScriptedProvider.llm([call("c1", "odd", n=1)], "end")
    agent = Agent(llm, tools=[odd], before_tool_call=lambda call, ctx: {"n": 10**5000})
    instrument(agent, spans.provider, content=True)
    await agent.arun("go \ud800")
    told = dict(spans.named("execute_tool odd").attributes or {})
    assert str(told["gen_ai.tool.call.arguments"]).startswith('{"n": "0x'), "as text: JSON readers take no such number"
    assert told["gen_ai.tool.call.result"] == "half \ufffd"
    assert spans.named("invoke_agent")
    spans.text().encode()
