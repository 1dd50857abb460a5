"""Structured output: any type, through the provider's schema or through a tool, with bounded corrections."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from rein_nb.agent import Agent
from rein_nb.agent.output import OutputInvalid, OutputSpec
from rein_nb.dialects.base import Capabilities, Target
from rein_nb.ir import InvalidRequest
from rein_nb.testing import ScriptedProvider
from tests.agent.support import assert_valid, call

scripted = ScriptedProvider.llm


class City(BaseModel):
    """A city."""

    name: str
    people: int = Field(gt=0)


@dataclasses.dataclass
class Point:
    x: float
    y: float


class Weather(TypedDict):
    temperature: float
    sky: str


class Event(BaseModel):
    when: dt.date
    where: City | None = None


def native(*turns: Any, **kw: Any) -> Any:
    llm = scripted(*turns, **kw)
    llm.backend.target = lambda model: Target(  # type: ignore[attr-defined]
        provider="scripted", dialect="none", model=model, capabilities=Capabilities(structured_output=True)
    )
    return llm


@pytest.mark.parametrize(
    ("kind", "arguments", "expected"),
    [
        (City, {"name": "Oslo", "people": 700_000}, City(name="Oslo", people=700_000)),
        (Point, {"x": 1, "y": 2}, Point(1, 2)),
        (Weather, {"temperature": 1.5, "sky": "grey"}, {"temperature": 1.5, "sky": "grey"}),
        (list[City], {"result": [{"name": "Oslo", "people": 1}]}, [City(name="Oslo", people=1)]),
        (City | Point, {"result": {"x": 1, "y": 2}}, Point(1, 2)),
        (int, {"result": 3}, 3),
        (dict[str, int], {"a": 1}, {"a": 1}),
        (Event, {"when": "2024-05-01", "where": None}, Event(when=dt.date(2024, 5, 1))),
        (tuple[int, str], {"result": [1, "a"]}, (1, "a")),
    ],
)
async def test_every_type_through_the_answer_tool(kind: Any, arguments: dict[str, Any], expected: Any) -> None:
    llm = scripted([call("1", "answer", **arguments)])
    result = await Agent(llm, output_type=kind).arun("x")
    assert result.output == expected
    assert type(result.output) is type(expected)
    assert result.stop_reason == "completed"
    spec = llm.backend.requests[0].tools[-1]  # type: ignore[attr-defined]
    assert spec.name == "answer"
    assert spec.parameters["type"] == "object"
    assert_valid(result.messages)


async def test_the_providers_own_schema_is_used_where_there_is_one() -> None:
    llm = native('{"name": "Oslo", "people": 1}')
    result = await Agent(llm, output_type=City).arun("x")
    assert result.output == City(name="Oslo", people=1)
    request = llm.backend.requests[0]
    assert request.output_format.json_schema["properties"].keys() == {"name", "people"}
    assert request.tools == []


async def test_lists_are_wrapped_for_providers_that_want_an_object() -> None:
    llm = native('{"result": [1, 2]}')
    assert (await Agent(llm, output_type=list[int]).arun("x")).output == [1, 2]
    assert llm.backend.requests[0].output_format.json_schema["type"] == "object"


async def test_what_does_not_validate_goes_back_with_the_reason() -> None:
    llm = scripted([call("1", "answer", name="Oslo", people=-1)], [call("2", "answer", name="Oslo", people=5)])
    result = await Agent(llm, output_type=City).arun("x")
    assert result.output == City(name="Oslo", people=5)
    first = result.messages[2].tool_results[0]
    assert first.status == "error"
    assert "people: Input should be greater than 0" in first.text
    assert_valid(result.messages)


async def test_native_answers_are_corrected_too() -> None:
    llm = native("no JSON at all", '```json\n{"name": "Oslo", "people": 5}\n```')
    result = await Agent(llm, output_type=City).arun("x")
    assert result.output == City(name="Oslo", people=5)
    assert "not JSON" in result.messages[2].text


async def test_prose_instead_of_the_tool_is_asked_for_the_tool() -> None:
    llm = scripted("It is Oslo.", [call("1", "answer", name="Oslo", people=5)])
    result = await Agent(llm, output_type=City).arun("x")
    assert result.output == City(name="Oslo", people=5)
    first, second = llm.backend.requests  # type: ignore[attr-defined]
    assert first.tool_choice is None
    assert second.tool_choice.mode == "required"
    assert "calling the tool answer" in second.messages[-1].text


async def test_C036_a_thinking_model_is_never_forced_to_a_tool() -> None:
    llm = scripted("It is Oslo.", [call("1", "answer", name="Oslo", people=5)])
    await Agent(llm, output_type=City, reasoning_effort="high").arun("x")
    assert [r.tool_choice for r in llm.backend.requests] == [None, None]  # type: ignore[attr-defined]


async def test_json_in_prose_is_taken_as_the_answer() -> None:
    assert (await Agent(scripted('{"name": "Oslo", "people": 5}'), output_type=City).arun("x")).output.people == 5


@pytest.mark.parametrize("retries", [0, 2])
async def test_corrections_are_bounded_and_end_with_their_own_reason(retries: int) -> None:
    llm = scripted([call("1", "answer", name="Oslo", people=-1)], repeat=True)
    result = await Agent(llm, output_type=City, max_output_retries=retries).arun("x")
    assert result.stop_reason == "output_invalid"
    assert result.output is None
    assert len(result.turns) == retries + 1
    assert_valid(result.messages)


async def test_other_tools_run_before_the_answer_is_taken() -> None:
    ran: list[int] = []

    def note(n: int) -> str:
        ran.append(n)
        return "noted"

    calls = [
        call("1", "note", n=1),
        call("2", "answer", name="Oslo", people=5),
        call("3", "answer", name="Rome", people=6),
    ]
    result = await Agent(scripted(calls), [note], output_type=City).arun("x")
    assert ran == [1]
    assert result.output.name == "Oslo"
    assert [t.result.status for t in result.tool_runs] == ["ok", "ok", "error"]
    assert_valid(result.messages)


async def test_the_answer_tool_gets_another_name_when_the_user_has_one() -> None:
    def answer(text: str) -> str:
        return text

    llm = scripted([call("1", "final_answer", name="Oslo", people=5)])
    assert (await Agent(llm, [answer], output_type=City).arun("x")).output.name == "Oslo"


async def test_the_type_may_be_given_for_one_run() -> None:
    agent = Agent(scripted("plain", [call("1", "answer", result=3)]))
    assert (await agent.arun("x")).output == "plain"
    assert (await agent.arun("x", output_type=int)).output == 3


def test_a_type_without_a_schema_is_refused_at_once() -> None:
    with pytest.raises(InvalidRequest, match="output_type"):
        Agent(scripted("x"), output_type=object()).run("x")


def test_a_recursive_type_keeps_its_definitions() -> None:
    class Tree(BaseModel):
        name: str
        children: list[Tree] = []

    spec = OutputSpec(Tree, native=True, taken=[])
    assert spec.schema["type"] == "object"
    assert spec.from_text('{"name": "r", "children": [{"name": "c"}]}').children[0].name == "c"
    with pytest.raises(OutputInvalid):
        spec.from_text('{"children": []}')
