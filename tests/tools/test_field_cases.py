"""Field cases about tools, as far as one call shows them."""

from __future__ import annotations

import asyncio
import contextvars
import datetime as dt
import decimal
import json
import pathlib
import time
from typing import Annotated, Any, Literal, Optional

import pytest
from pydantic import BaseModel, Field

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.tools import Tool, ToolContext, tool
from rein_nb.tools.names import ToolDefinitionError


async def run(made: Tool, **arguments: Any) -> ToolResult:
    return await made.call(ToolCall(id="c1", name=made.name, arguments=arguments))


# -- C066 ------------------------------------------------------------------------------------------


async def test_C066_sync_tools_leave_the_loop_free_and_see_the_callers_context() -> None:
    user: contextvars.ContextVar[str] = contextvars.ContextVar("user", default="nobody")

    def slow(i: int) -> str:
        time.sleep(0.3)
        return f"{i}:{user.get()}"

    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    user.set("ada")
    ticker = asyncio.create_task(tick())
    started = time.perf_counter()
    results = await asyncio.gather(*(run(Tool(slow), i=i) for i in (1, 2, 3)))
    took = time.perf_counter() - started
    ticker.cancel()
    assert [r.text for r in results] == ["1:ada", "2:ada", "3:ada"]
    assert took < 0.6
    assert ticks > 10


async def test_C066_a_tool_can_opt_out_and_run_on_the_loop() -> None:
    def where() -> bool:
        return asyncio.get_running_loop().is_running()

    assert (await run(Tool(where, in_thread=False))).text == "true"
    assert "no running event loop" in (await run(Tool(where))).text


# -- C067 ------------------------------------------------------------------------------------------


def make_decorated() -> Tool:
    class Box(BaseModel):
        w: int

    @tool
    def pack(box: Box, mode: Literal["a", "b"] = "a", tag: Optional[str] = None) -> str:  # noqa: UP045
        return f"{type(box).__name__}:{box.w}:{mode}:{tag}"

    return pack


def make_plain() -> tuple[Any, type]:
    class Box(BaseModel):
        w: int

    def pack(box: Box, mode: Literal["a", "b"] = "a", tag: Optional[str] = None) -> str:  # noqa: UP045
        return f"{type(box).__name__}:{box.w}:{mode}:{tag}"

    return pack, Box


async def test_C067_postponed_annotations_of_local_classes_resolve() -> None:
    assert (await run(make_decorated(), box={"w": 3})).text == "Box:3:a:None"
    fn, _kept_alive = make_plain()
    assert (await run(Tool(fn), box={"w": 3})).text == "Box:3:a:None"


async def test_C067_it_works_in_a_notebook_cell() -> None:
    cell = """
from __future__ import annotations
from pydantic import BaseModel
class Box(BaseModel):
    w: int
def pack(box: Box | None, boxes: list[Box]) -> str:
    return f"{box.w}:{len(boxes)}"
"""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(cell, "<cell>", "exec"), namespace)
    assert (await run(Tool(namespace["pack"]), box={"w": 3}, boxes=[{"w": 1}])).text == "3:1"


def test_C067_a_name_that_cannot_be_resolved_is_refused_with_the_parameters_name() -> None:
    namespace: dict[str, Any] = {"__name__": "somewhere"}
    exec("from __future__ import annotations\ndef f(a: int, box: Nowhere) -> str: ...", namespace)
    with pytest.raises(ToolDefinitionError, match=r"parameter 'box' names 'Nowhere'"):
        Tool(namespace["f"])


# -- C069 ------------------------------------------------------------------------------------------


class Store:
    def __init__(self) -> None:
        self.n = 0

    def bump(self, by: int = 1) -> int:
        """Add to the counter."""
        self.n += by
        return self.n

    @tool
    def decorated(self, by: int = 1) -> int:
        """Add to the counter, as a tool."""
        self.n += by
        return self.n

    @tool
    @classmethod
    def kind_tool(cls) -> str:
        return cls.__name__

    @staticmethod
    @tool
    def static_tool(a: int) -> int:
        return a

    @staticmethod
    def ping() -> str:
        return "pong"

    @classmethod
    def kind(cls) -> str:
        return cls.__name__


async def test_C069_methods_keep_their_instance_and_hide_self() -> None:
    s, other = Store(), Store()
    for fn in (s.bump, Store.ping, s.kind):
        assert not {"self", "cls"} & set(Tool(fn).spec().parameters["properties"])
    bump = Tool(s.bump)
    assert [(await run(bump, by=2)).text for _ in range(2)] == ["2", "4"]
    assert (await run(Tool(other.bump, name="bump_other"))).text == "1"
    assert (s.n, other.n) == (4, 1)
    assert (await run(Tool(Store.ping))).text == "pong"
    assert (await run(Tool(s.kind))).text == "Store"


def test_C069_an_unbound_method_is_refused() -> None:
    with pytest.raises(ToolDefinitionError, match=r"Store\.bump is a method without its instance"):
        Tool(Store.bump)


async def test_C069_the_decorator_on_a_method_works_through_an_instance() -> None:
    s, other = Store(), Store()
    assert s.decorated.spec().parameters["properties"].keys() == {"by"}
    assert s.decorated.description == "Add to the counter, as a tool."
    await run(s.decorated, by=5)
    await run(other.decorated, by=1)
    assert (s.n, other.n) == (5, 1)
    assert s.decorated(by=1) == 6
    assert (await run(s.kind_tool)).text == "Store"
    assert (await run(Store.static_tool, a=3)).text == "3"


# -- C071 ------------------------------------------------------------------------------------------


async def test_C071_values_without_a_json_type_become_valid_json() -> None:
    def t() -> Any:
        return {
            "at": dt.datetime(2024, 5, 1, tzinfo=dt.UTC), "d": decimal.Decimal("1.10"),
            "p": pathlib.PurePosixPath("/x"), "s": {1}, "n": float("nan"), "b": b"\xff", 3: "int key",
        }  # fmt: skip

    result = await run(Tool(t))
    data = json.loads(result.text, parse_constant=lambda word: pytest.fail(f"bare {word}"))
    assert data["at"] == "2024-05-01T00:00:00+00:00"
    assert data["d"] == "1.10"
    assert data["p"] == "/x"
    assert data["s"] == [1]
    assert data["n"] == "NaN"
    assert data["3"] == "int key"
    assert result.details == data
    assert ToolResult.model_validate_json(result.model_dump_json()) == result


async def test_C071_cycles_and_plain_objects_become_text_with_a_note() -> None:
    def u() -> Any:
        x: list[Any] = []
        x.append(x)
        return x

    class Loop: ...

    def v() -> Any:
        return Loop()

    for fn, why in ((u, "contains itself"), (v, "no JSON form")):
        result = await run(Tool(fn))
        assert result.status == "ok"
        assert why in result.text
        result.model_dump_json()


async def test_C071_the_python_object_stays_available() -> None:
    made = object()

    def f() -> Any:
        return made

    outcome = await Tool(f).execute(ToolCall(id="1", name="f"))
    assert outcome.value is made


async def test_C071_a_repr_that_raises_is_a_tool_error() -> None:
    class Bad:
        def __repr__(self) -> str:
            raise RuntimeError("no repr today")

    def f() -> Any:
        return Bad()

    result = await run(Tool(f))
    assert result.status == "error"
    assert "no repr today" in result.text


# -- C073, C074 ------------------------------------------------------------------------------------


class P(BaseModel):
    a: int


async def test_C073_json_in_a_string_is_decoded_only_where_a_string_cannot_be_meant() -> None:
    got: list[Any] = []

    def f(items: list[int], p: P, raw: str, maybe: list[int] | str) -> None:
        got.extend((items, p, raw, maybe))

    await run(Tool(f), items="[1, 2]", p='{"a": 1}', raw='{"a": 1}', maybe="[1]")
    assert got == [[1, 2], P(a=1), '{"a": 1}', "[1]"]


async def test_C073_a_string_that_does_not_become_valid_is_refused_in_its_own_words() -> None:
    def f(items: list[int]) -> None: ...

    result = await run(Tool(f), items='["x"]')
    assert result.status == "error"
    assert "items: Input should be a valid list" in result.text


@pytest.mark.parametrize("content", ['{"k": [1, 2]}', "123", "null", "true", ""])
async def test_C074_str_arguments_reach_the_function_unchanged(content: str) -> None:
    def write(path: str, content: str) -> str:
        return f"{type(content).__name__}:{len(content)}"

    assert (await run(Tool(write), path="a.json", content=content)).text == f"str:{len(content)}"


# -- C076 ------------------------------------------------------------------------------------------


def test_C076_parameter_docs_and_limits_reach_the_schema() -> None:
    def f(
        city: Annotated[str, "City name"],
        days: Annotated[int, Field(ge=1, le=7, description="Length")] = 3,
        unit: str = "C",
        *,
        lang: str = "en",
    ) -> str:
        """Forecast.

        Args:
            city: overridden by Annotated
            unit (str): C or F

        Keyword Args:
            lang: answer language
        """
        return ""

    made = Tool(f)
    properties = made.spec().parameters["properties"]
    assert {name: p["description"] for name, p in properties.items()} == {
        "city": "City name", "days": "Length", "unit": "C or F", "lang": "answer language",
    }  # fmt: skip
    assert (properties["days"]["minimum"], properties["days"]["maximum"]) == (1, 7)
    assert made.description == "Forecast."
    assert made.spec().parameters["required"] == ["city"]


# -- C080 ------------------------------------------------------------------------------------------


async def test_C080_a_huge_result_is_cut_for_the_model_and_kept_whole() -> None:
    whole = "match é\n" * 500_000

    def grep() -> str:
        return whole

    result = await run(Tool(grep, max_result_chars=1000))
    assert len(result.text) < 1500
    assert f"{len(whole):,} characters" in result.text
    assert result.text.startswith("match é\n")
    assert result.text.endswith("match é\n")
    assert result.details == whole


async def test_C080_the_cap_holds_for_errors_too() -> None:
    def bad() -> None:
        raise RuntimeError("x" * 1_000_000)

    result = await run(Tool(bad, max_result_chars=1000))
    assert result.status == "error"
    assert len(result.text) < 1500
    assert "characters" in result.text


async def test_C080_images_are_not_cut() -> None:
    png = b"\x89PNG\r\n\x1a\n" + bytes(100_000)

    def draw() -> bytes:
        return png

    result = await run(Tool(draw, max_result_chars=10))
    assert result.content[0].data == png  # type: ignore[union-attr]


# -- C078, unknown to one tool: malformed calls never run --------------------------------------------


async def test_C078_malformed_arguments_never_reach_the_function() -> None:
    ran: list[Any] = []

    def delete_rows(where: str | None = None) -> None:
        ran.append(where)

    made = Tool(delete_rows)
    for raw in ('{"where": "id = 7', "[1]"):
        result = await made.call(ToolCall(id="1", name="delete_rows", arguments=raw))  # type: ignore[arg-type]
        assert result.status == "error"
        assert "complete JSON object" in result.text
        assert result.details["raw_arguments"] == raw
    assert ran == []


# -- C099, C082: stopped while running -------------------------------------------------------------


async def test_C099_a_tool_that_swallows_the_cancellation_keeps_its_own_words() -> None:
    async def stubborn() -> str:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            return "stopped, partial output kept"
        return "never"

    ctx = ToolContext(call=ToolCall(id="1", name="stubborn"))
    task = asyncio.create_task(Tool(stubborn).call(ctx.call, ctx))
    await asyncio.sleep(0.02)
    ctx.token.cancel()
    result = await task
    assert result.text == "stopped, partial output kept"
    assert result.status == "interrupted"


async def test_C082_a_cancelled_call_says_that_it_may_have_run() -> None:
    async def charge(card: str) -> None:
        await asyncio.sleep(60)

    made = Tool(charge)
    ctx = ToolContext(call=ToolCall(id="1", name="charge", arguments={"card": "A"}))
    task = asyncio.create_task(made.call(ctx.call, ctx))
    await asyncio.sleep(0.02)
    ctx.token.cancel("stop button")
    running = await task
    never = await made.call(ctx.call, ctx)
    assert (running.status, running.details["started"]) == ("interrupted", True)
    assert "may have taken effect" in running.text
    assert (never.status, never.details["started"]) == ("interrupted", False)
    assert "Not started" in never.text
