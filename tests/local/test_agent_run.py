"""A real model, small as it is, in the loop: it calls tools for two turns and answers in the third."""

from __future__ import annotations

import pytest

from rein_nb.agent import Agent
from rein_nb.agent.hooks import ModelRequest
from rein_nb.llm import LLM
from rein_nb.providers import local
from tests.agent.support import assert_accepted, assert_event_grammar, assert_valid

pytestmark = pytest.mark.local_model


@pytest.mark.parametrize("provider", ["local", "local-messages"])
async def test_three_turns_of_tools_and_an_answer(provider: str, endpoint: local.LocalEndpoint) -> None:
    asked: list[str] = []

    async def get_weather(city: str) -> str:
        """Get the current weather for a city."""
        asked.append(city)
        return f"It is 18 degrees Celsius and cloudy in {city}."

    def forced_twice(request: ModelRequest) -> None:
        # A model of this size stops calling neither too early nor too late only when it is made to.
        if request.turn < 3:
            request.tool_choice = "required"
        else:
            request.tools, request.tool_choice = [], None

    llm = LLM.named(f"{provider}/smollm2-135m", temperature=0, max_tokens=40)
    agent = Agent(llm, [get_weather], before_request=forced_twice, limits={"turns": 5})
    events = [event async for event in agent.events("What is the weather in Paris?")]
    assert_event_grammar(events)
    (result,) = agent.results
    assert result.stop_reason == "completed"
    assert [len(turn.tools) for turn in result.turns] == [1, 1, 0]
    assert [turn.completion.finish_reason for turn in result.turns] == ["tool_calls", "tool_calls", "stop"]
    assert asked[0] == "Paris"
    assert [tool.result.status for tool in result.tool_runs] == ["ok", "ok"]
    assert result.text, "what it says is its own doing; it is small"
    assert result.usage.input_tokens == sum(turn.completion.usage.input_tokens or 0 for turn in result.turns)
    assert_valid(agent.messages)
    assert_accepted(agent.messages)
