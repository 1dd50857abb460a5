"""One server, three dialects, two SDKs: the same prompt gives the same text, and a forced call is a call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rein_nb.ir import (
    Completion,
    ContextOverflow,
    Message,
    StreamDone,
    StreamEvent,
    ToolCallDone,
    ToolSpec,
    UnsupportedOption,
)
from rein_nb.llm import LLM
from rein_nb.providers import local

pytestmark = pytest.mark.local_model

PROVIDERS = ("local", "local-responses", "local-messages")
every_dialect = pytest.mark.parametrize("provider", PROVIDERS)
QUESTION = "What is the capital of France?"


def llm(provider: str, **config: Any) -> LLM:
    return LLM.named(f"{provider}/smollm2-135m", **config)


async def events_of(model: LLM, prompt: Any, **options: Any) -> list[StreamEvent]:
    messages = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
    return [event async for event in model.astream_events(messages, **options)]


async def streamed(model: LLM, prompt: Any, **options: Any) -> Completion:
    last = (await events_of(model, prompt, **options))[-1]
    assert isinstance(last, StreamDone), last
    return last.completion


async def test_the_same_greedy_prompt_gives_the_same_text_and_the_same_input_tokens(
    endpoint: local.LocalEndpoint,
) -> None:
    for prompt in (QUESTION, "Name three primary colors.", "Write one sentence about the sea."):
        answers = await asyncio.gather(*(streamed(llm(p), prompt, temperature=0, max_tokens=30) for p in PROVIDERS))
        assert len({answer.text for answer in answers}) == 1, [answer.text for answer in answers]
        assert len({answer.usage.input_tokens for answer in answers}) == 1, [answer.usage for answer in answers]
        assert len({answer.usage.output_tokens for answer in answers}) == 1


@every_dialect
async def test_the_known_prompt_has_28_input_tokens(provider: str, endpoint: local.LocalEndpoint) -> None:
    answer = await streamed(llm(provider), QUESTION, temperature=0)
    assert answer.text == "The capital of France is Paris."
    assert answer.usage.input_tokens == 28
    assert answer.finish_reason == "stop"
    assert answer.usage.cost_usd in (None, 0)


@every_dialect
async def test_streamed_and_whole_answers_agree(provider: str, endpoint: local.LocalEndpoint) -> None:
    model = llm(provider)
    whole = await model.achat(QUESTION, temperature=0)
    parts = await streamed(model, QUESTION, temperature=0)
    assert whole.text == parts.text
    assert whole.usage.input_tokens == parts.usage.input_tokens
    assert whole.usage.output_tokens == parts.usage.output_tokens
    assert whole.finish_reason == parts.finish_reason


@every_dialect
async def test_a_system_prompt_reaches_the_model(provider: str, endpoint: local.LocalEndpoint) -> None:
    history = [Message(role="system", content="You are a pirate."), Message(role="user", content="Say hi")]
    answer = await streamed(llm(provider), history, temperature=0, max_tokens=12)
    assert answer.usage.input_tokens == 21


def schema(**properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


TOOLS = [
    ToolSpec(
        name="get_weather", description="Get the current weather for a city", parameters=schema(city={"type": "string"})
    ),
    ToolSpec(name="add", description="Add two numbers", parameters=schema(a={"type": "number"}, b={"type": "number"})),
    ToolSpec(name="search_web", description="Search the web for a query", parameters=schema(query={"type": "string"})),
]
ASKED = [
    ("What is the weather in Paris?", "get_weather"),
    ("What is 21 plus 21?", "add"),
    ("Search the web for the history of jazz.", "search_web"),
    ("Is it raining in London?", "get_weather"),
    ("Add 7 and 5.", "add"),
    ("Find pages about solar panels.", "search_web"),
    ("How warm is it in Tokyo right now?", "get_weather"),
    ("What is the sum of 100 and 250?", "add"),
    ("Look up the newest Python release on the web.", "search_web"),
    ("Tell me the weather in New York.", "get_weather"),
    ("Compute 3.5 + 4.5.", "add"),
    ("Search for cheap flights to Rome.", "search_web"),
    ("What is the temperature in Oslo?", "get_weather"),
    ("Please add 12 and 30.", "add"),
    ("Find information about black holes.", "search_web"),
    ("Will I need an umbrella in Berlin?", "get_weather"),
    ("What do you get when you add 8 to 9?", "add"),
    ("Search the web for bread recipes.", "search_web"),
    ("Current weather for Madrid, please.", "get_weather"),
    ("Add the numbers 1 and 2.", "add"),
]
KINDS = {"get_weather": {"city": str}, "add": {"a": (int, float), "b": (int, float)}, "search_web": {"query": str}}


@pytest.mark.slow
async def test_twenty_forced_calls_are_twenty_valid_calls(endpoint: local.LocalEndpoint) -> None:
    right = 0
    for number, (question, tool) in enumerate(ASKED):
        model = llm(PROVIDERS[number % 3])
        answer = await streamed(model, question, tools=TOOLS, tool_choice="required")
        (call,) = answer.runnable_tool_calls
        assert call.error is None
        assert call.arguments.keys() == KINDS[call.name].keys()
        for name, kind in KINDS[call.name].items():
            assert isinstance(call.arguments[name], kind)  # type: ignore[arg-type]
        assert answer.finish_reason == "tool_calls"
        assert answer.text.strip() == ""
        right += call.name == tool
    # Choosing the right tool is the model's own doing; it is small.
    assert right >= 16


async def test_a_forced_call_is_the_same_in_all_three_dialects_streamed_and_whole(
    endpoint: local.LocalEndpoint,
) -> None:
    found = []
    for provider in PROVIDERS:
        model = llm(provider)
        for answer in (
            await streamed(model, "What is the weather in Paris?", tools=TOOLS, tool_choice="required"),
            await model.achat("What is the weather in Paris?", tools=TOOLS, tool_choice="required"),
        ):
            found.append(
                (
                    answer.tool_calls[0].name,
                    answer.tool_calls[0].arguments,
                    answer.usage.input_tokens,
                    answer.finish_reason,
                )
            )
    assert len({str(one) for one in found}) == 1, found
    assert found[0][:2] == ("get_weather", {"city": "Paris"})


@every_dialect
async def test_a_named_choice_calls_that_tool(provider: str, endpoint: local.LocalEndpoint) -> None:
    answer = await streamed(llm(provider), "What is the weather in Paris?", tools=TOOLS, tool_choice="search_web")
    assert [call.name for call in answer.tool_calls] == ["search_web"]


@every_dialect
async def test_arguments_keep_to_the_schema_s_enumeration(provider: str, endpoint: local.LocalEndpoint) -> None:
    tool = ToolSpec(
        name="get_weather",
        description="Get the current weather for a city",
        parameters=schema(city={"type": "string", "enum": ["Oslo", "Rome"]}),
    )
    answer = await streamed(llm(provider), "What is the weather in Paris?", tools=[tool], tool_choice="required")
    assert answer.tool_calls[0].arguments["city"] in ("Oslo", "Rome")


@every_dialect
async def test_a_tool_call_streams_as_start_deltas_and_done(provider: str, endpoint: local.LocalEndpoint) -> None:
    events = await events_of(llm(provider), "What is 21 plus 21?", tools=TOOLS, tool_choice="add")
    types = [event.type for event in events]
    assert types.index("tool_call_start") < types.index("tool_call_delta") < types.index("tool_call_done")
    assert types.count("tool_call_delta") > 1
    (done,) = [event for event in events if isinstance(event, ToolCallDone)]
    assert done.tool_call.arguments == {"a": 21, "b": 21}


@every_dialect
async def test_the_result_of_a_call_is_put_into_words(provider: str, endpoint: local.LocalEndpoint) -> None:
    model = llm(provider)
    question = Message(role="user", content="What is the weather in Paris?")
    asked = await streamed(model, [question], tools=TOOLS, tool_choice="required")
    result = Message(
        role="tool", tool_call_id=asked.tool_calls[0].id, content="It is 18 degrees Celsius and cloudy in Paris."
    )
    answer = await streamed(model, [question, asked.to_message(), result], tools=TOOLS, temperature=0, max_tokens=40)
    assert answer.finish_reason == "stop"
    assert answer.tool_calls == []
    assert "18" in answer.text
    assert "cloudy" in answer.text


CITY = schema(city={"type": "string"}, size={"type": "string", "enum": ["small", "big"]})


@pytest.mark.parametrize("provider", ["local", "local-responses"])
async def test_structured_output_keeps_to_its_schema(provider: str, endpoint: local.LocalEndpoint) -> None:
    answer = await streamed(
        llm(provider), "Describe Paris as JSON.", output_format={"title": "city", **CITY}, temperature=0
    )
    value = json.loads(answer.text)
    assert value.keys() == {"city", "size"}
    assert value["size"] in ("small", "big")


async def test_the_messages_dialect_refuses_structured_output_before_it_is_sent(endpoint: local.LocalEndpoint) -> None:
    with pytest.raises(UnsupportedOption):
        await events_of(llm("local-messages"), "Describe Paris as JSON.", output_format={"title": "city", **CITY})


@every_dialect
async def test_a_cut_answer_says_length(provider: str, endpoint: local.LocalEndpoint) -> None:
    answer = await streamed(llm(provider), "Tell me a long story.", temperature=0, max_tokens=5)
    assert answer.finish_reason == "length"


@every_dialect
async def test_too_long_a_prompt_is_a_context_overflow(provider: str, endpoint: local.LocalEndpoint) -> None:
    with pytest.raises(ContextOverflow):
        await llm(provider).achat("word " * 6000, max_tokens=5)


@every_dialect
async def test_many_streams_in_a_row_lose_no_connection(provider: str, endpoint: local.LocalEndpoint) -> None:
    model = llm(provider, max_retries=0)
    for _ in range(6):
        answer = await streamed(model, "Hi", temperature=0, max_tokens=2)
        assert answer.timing.retries == 0
