"""The facade: five ways, one behaviour."""

from __future__ import annotations

import asyncio

import pytest
from pydantic import BaseModel

from rein_nb import (
    LLM,
    CancellationToken,
    Completion,
    InvalidRequest,
    Message,
    ServerError,
    StreamDone,
    StreamError,
    StreamRetry,
    ToolCall,
    ToolSpec,
    Usage,
    deltas,
)
from rein_nb.llm import cache
from rein_nb.providers import Config
from rein_nb.testing import ScriptedProvider


def scripted(*turns, **kw) -> LLM:
    return ScriptedProvider.llm(*turns, **kw)


async def test_chat_raises_a_typed_error_that_carries_the_partial_completion() -> None:
    llm = scripted(["one ", "two ", "three ", "four "], fault="mid_stream")
    with pytest.raises(ServerError) as caught:
        await llm.achat("x")
    assert caught.value.completion.text.startswith("one")
    assert caught.value.completion.error.kind == "server_error"


def test_the_sync_forms_work_inside_a_running_loop() -> None:
    async def cell() -> tuple[str, str]:
        llm = scripted("a", "b")
        return llm.chat("x").text, "".join(c.content for c in llm.stream("x"))

    assert asyncio.run(cell()) == ("a", "b")


async def test_the_stream_ends_with_done_also_after_a_failure() -> None:
    chunks = [c async for c in scripted("hi", fault="overloaded").achat_stream("x")]
    assert [c.type for c in chunks] == ["done"]
    assert chunks[0].finish_reason == "error"
    assert chunks[0].completion.error.kind == "overloaded"


async def test_runnable_calls_come_as_one_chunk() -> None:
    call = ToolCall(id="1", name="f", arguments={"a": [1, "é"]})
    chunks = [c async for c in scripted(["text", call]).achat_stream("x", tools=[ToolSpec(name="f")])]
    assert [c.type for c in chunks] == ["text", "tool_calls", "done"]
    assert chunks[1].tool_calls == [call]


async def test_a_transient_fault_is_retried() -> None:
    llm = scripted("fine", fault="rate_limited", fault_times=1, max_retries=2)
    events = [e async for e in llm.astream_events("x")]
    assert [e.attempt for e in events if isinstance(e, StreamRetry)] == [1]
    assert events[-1].completion.text == "fine"


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"temperature": -1}, "temperature"),
        ({"tools": [print]}, "decorate it with @tool"),
        ({"tool_choice": "required"}, "needs tools"),
        ({"tools": [{"name": "bad name"}]}, "not a valid tool name"),
    ],
)
def test_the_programmers_mistake_raises_at_once_from_every_form(kwargs: dict, message: str) -> None:
    llm = scripted("x")
    for call in (llm.chat, llm.astream_events, llm.achat_stream, llm.stream):
        with pytest.raises(InvalidRequest, match=message):
            call("hi", **kwargs)
    assert llm.backend.requests == []


@pytest.mark.parametrize("bad", [3, None, [3], [{"role": "nobody", "content": "x"}]])
def test_messages_of_the_wrong_kind_say_what_would_be_right(bad: object) -> None:
    with pytest.raises(InvalidRequest, match="message"):
        scripted("x").chat(bad)


def test_messages_tools_and_formats_in_every_plain_form() -> None:
    class Answer(BaseModel):
        value: int

    nested = {"type": "function", "function": {"name": "g", "description": "G.", "parameters": {"type": "object"}}}
    llm = scripted("x")
    llm.chat(
        ["be brief", {"role": "assistant", "content": "ok"}, Message(role="user", content="go")],
        tools=[ToolSpec(name="f"), nested, {"name": "h", "input_schema": {"type": "object"}}],
        tool_choice="g",
        output_format=Answer,
    )
    request = llm.backend.requests[0]
    assert [m.role for m in request.messages] == ["user", "assistant", "user"]
    assert [t.name for t in request.tools] == ["f", "g", "h"]
    assert (request.tool_choice.mode, request.tool_choice.name) == ("named", "g")
    assert request.output_format.json_schema["properties"]["value"]["type"] == "integer"


async def test_cancelling_a_silent_call() -> None:
    token = CancellationToken()
    llm = scripted(["a", "b", "c", "d"], fault="hang")
    events = []
    async for event in llm.astream_events("x", signal=token):
        events.append(event)
        if event.type == "text_delta":
            asyncio.get_running_loop().call_later(0.05, token.cancel)
    assert isinstance(events[-1], StreamError)
    assert events[-1].completion.finish_reason == "cancelled"
    assert events[-1].completion.text


async def test_a_provider_is_one_method() -> None:
    class Echo:
        name = "echo"

        async def stream(self, request):
            for word in request.messages[-1].text.split():
                yield deltas.Text(word)
            yield deltas.UsageReport(Usage(input_tokens=1, output_tokens=2))
            yield deltas.Finish("stop")

    llm = LLM(Config(provider="echo", model="m"), provider=Echo())
    done = await llm.achat("a b")
    assert (done.text, done.usage.output_tokens, done.provider) == ("ab", 2, "echo")


async def test_fallback_models_are_asked_in_order_and_the_switch_is_seen() -> None:
    broken = scripted("x", fault="server_error", model="one")
    second = scripted("y", fault="overloaded", model="two")
    good = scripted("fine", model="three")
    llm = LLM(broken.config, provider=broken.backend, fallback=[second, good])
    events = [e async for e in llm.astream_events("hi")]
    assert [e.error.kind for e in events if isinstance(e, StreamRetry)] == ["server_error", "overloaded"]
    assert [e.type for e in events].count("start") == 1
    assert isinstance(events[-1], StreamDone)
    assert (events[-1].completion.text, events[-1].completion.model) == ("fine", "three")


async def test_no_fallback_once_something_was_shown() -> None:
    broken = scripted(["a", "b", "c", "d", "e", "f"], fault="mid_stream")
    good = scripted("fine")
    llm = LLM(broken.config, provider=broken.backend, fallback=[good])
    events = [e async for e in llm.astream_events("hi")]
    assert isinstance(events[-1], StreamError)
    assert good.backend.requests == []


async def test_the_cache_answers_what_was_answered_before() -> None:
    store: dict[str, str] = {}
    plain = scripted(["Hel", "lo", ToolCall(id="1", name="f", arguments={"a": 1})], "other")
    llm = plain.with_middleware(cache(store))
    first = await llm.achat("x", tools=[ToolSpec(name="f")])
    again = await llm.achat("x", tools=[ToolSpec(name="f")])
    assert len(plain.backend.requests) == 1
    assert again.message == first.message
    assert again.usage == first.usage
    assert again.extra["rein_nb"]["cached"] is True
    assert (await llm.achat("x", temperature=0.5)).text == "other"


async def test_a_completion_replays_exactly() -> None:
    plain = scripted([ToolCall(id="1", name="f", arguments={"a": 1}), "text", Usage(input_tokens=7)])
    done = await plain.achat("x")
    again = await scripted(done).achat("x")
    assert again.message.parts == done.message.parts
    assert again.usage.input_tokens == 7
    assert Completion.model_validate_json(again.model_dump_json()) == again


async def test_errors_name_provider_and_model() -> None:
    with pytest.raises(ServerError, match="scripted"):
        await scripted("x", fault="server_error").achat("x")
