"""What tools return: rendered off the loop and within the tool's time, by the value's own rules, with nothing lost."""

from __future__ import annotations

import asyncio
import csv
import io
import itertools
import threading
import time
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Self

import numpy as np
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, SecretStr, computed_field, field_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.tools import Tool, ToolContext, tool
from rein_nb.tools.context import Progress
from rein_nb.tools.docstrings import parse_docstring
from rein_nb.tools.jsonable import to_jsonable

CALL = ToolCall(id="1", name="work", arguments={})


async def result_of(value: Any, **options: Any) -> ToolResult:
    def work() -> Any:
        return value

    return await Tool(work, **options).call(CALL)


# -- where and how long ------------------------------------------------------------------------------


class Slow:
    """Whose text takes its time."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.thread: int | None = None

    def __repr__(self) -> str:
        self.thread = threading.get_ident()
        self.let_go.wait(5)
        return "slow"


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_text_that_takes_its_time_holds_up_nobody_and_counts_for_the_tools_time(is_async: bool) -> None:
    slow = Slow()

    def plain() -> Any:
        return slow

    async def coroutine() -> Any:
        return slow

    task = asyncio.ensure_future(Tool(coroutine if is_async else plain, timeout_s=0.2).call(CALL))
    try:
        while slow.thread is None:
            await asyncio.sleep(0.01)
        result = await asyncio.wait_for(task, 4)
    finally:
        slow.let_go.set()
    assert slow.thread != threading.get_ident()
    assert result.status == "timed_out"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("exc", [SystemExit(3), ValueError("no")], ids=repr)
async def test_a_text_that_fails_is_an_error_result_with_the_value_kept(is_async: bool, exc: BaseException) -> None:
    class Odd:
        def __repr__(self) -> str:
            raise exc

    odd = Odd()

    def plain() -> Any:
        return odd

    async def coroutine() -> Any:
        return odd

    outcome = await Tool(coroutine if is_async else plain).execute(CALL)
    assert outcome.result.status == "error"
    assert "returned a Odd that cannot be shown" in outcome.result.text
    assert outcome.value is odd


async def test_what_a_stopped_tool_gave_back_keeps_its_details() -> None:
    def work(ctx: ToolContext) -> Any:
        while not ctx.cancelled:
            time.sleep(0.005)
        return {"done": 3}

    result = await Tool(work, timeout_s=0.05).call(CALL)
    assert result.status == "timed_out"
    assert result.details == {"started": True, "timeout_s": 0.05, "returned": {"done": 3}}


# -- pydantic -------------------------------------------------------------------------------------------


class Inner(BaseModel):
    n: int = 1


class Model(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, serialize_by_alias=True)
    hidden: str = Field(default="h", exclude=True)
    secret: SecretStr = SecretStr("s3cret")
    named: int = Field(default=1, serialization_alias="shown as")
    price: Decimal = Decimal("1.50")
    inner: Inner = Inner()
    array: Any = None
    nan: float = float("nan")

    @computed_field
    def double(self) -> int:
        return self.named * 2

    @field_serializer("price")
    def _price(self, value: Decimal) -> str:
        return f"EUR {value}"


async def test_a_model_is_rendered_as_it_serialises() -> None:
    result = await result_of(Model(array=np.array([1, 2])))
    assert result.details == {
        "secret": "**********", "shown as": 1, "price": "EUR 1.50", "inner": {"n": 1}, "array": [1, 2], "nan": "NaN", "double": 2,
    }  # fmt: skip


async def test_root_models_and_pydantic_dataclasses_serialise_too() -> None:
    @pydantic_dataclass
    class Point:
        x: int
        y: int = Field(default=0, exclude=True)

    assert to_jsonable({"ids": RootModel[list[int]]([1, 2]), "at": Point(1)}) == {"ids": [1, 2], "at": {"x": 1}}


def test_a_model_that_cannot_serialise_is_told_by_its_fields() -> None:
    class Binary(BaseModel):
        data: bytes = b"\xff\x00"
        hidden: str = Field(default="h", exclude=True)

    assert to_jsonable(Binary()) == {"data": "/wA="}


# -- odd values -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lazy", "data"),
    [
        (lambda: itertools.islice(itertools.count(), 3), [0, 1, 2]),
        (lambda: itertools.chain([1], [2]), [1, 2]),
        (lambda: csv.DictReader(io.StringIO("a,b\n1,2\n")), [{"a": "1", "b": "2"}]),
        (lambda: csv.reader(io.StringIO("a,b\n")), [["a", "b"]]),
    ],
    ids=["islice", "chain", "DictReader", "reader"],
)
@pytest.mark.parametrize("is_async", [False, True])
async def test_what_is_lazy_is_read(lazy: Any, data: Any, is_async: bool) -> None:
    async def coroutine() -> Any:
        return lazy()

    assert (await Tool(coroutine if is_async else lazy, name="work").call(CALL)).details == data


async def test_an_endless_iterator_can_be_stopped() -> None:
    def endless() -> Iterator[int]:
        while True:
            time.sleep(0.001)
            yield 1

    def work() -> Any:
        return itertools.chain(endless())

    result = await asyncio.wait_for(Tool(work, timeout_s=0.1).call(CALL), 5)
    assert result.status == "timed_out"
    assert (await result_of(itertools.count())).status == "ok", "left as it is"


@pytest.mark.parametrize(
    ("given", "told"), [(7, 1.0), (-1, 0.0), (float("nan"), None), (float("inf"), 1.0), (0.5, 0.5)]
)
def test_a_share_done_lies_between_nothing_and_all(given: float, told: float | None) -> None:
    seen: list[Progress] = []
    ToolContext(on_progress=seen.append).progress("x", given)
    assert seen[0].fraction == told


# -- signatures ----------------------------------------------------------------------------------------------


async def called(fn: Any, **arguments: Any) -> ToolResult:
    return await Tool(fn, name="work").call(ToolCall(id="1", name="work", arguments=arguments))


async def test_a_default_in_the_annotation_is_one() -> None:
    def work(
        n: Annotated[int, Field(default=5, ge=0)], names: Annotated[list[str], Field(default_factory=list)]
    ) -> str:
        return f"{n} {names}"

    schema = Tool(work).spec().parameters
    assert "required" not in schema
    assert schema["properties"]["n"]["default"] == 5
    assert (await called(work)).text == "5 []"
    assert (await called(work, n=2, names=["a"])).text == "2 ['a']"
    assert (await called(work, n=-1)).status == "error"


async def test_a_choice_of_aliases_is_the_first_for_the_model() -> None:
    def work(n: Annotated[int, Field(validation_alias=AliasChoices("count", "number"))]) -> str:
        return str(n)

    assert list(Tool(work).spec().parameters["properties"]) == ["count"]
    assert (await called(work, count=3)).text == "3"


class Shop:
    stock = 2

    @tool
    def left(self: Self, more: int) -> int:
        """How many are left."""
        return self.stock + more


async def test_an_annotated_self_is_the_instance() -> None:
    assert list(Shop().left.spec().parameters["properties"]) == ["more"]
    assert (await Shop().left.call(ToolCall(id="1", name="left", arguments={"more": 1}))).text == "3"


async def test_items_are_checked_before_the_call() -> None:
    runs: list[Any] = []

    def total(items: Iterable[int], more: Iterable[str] | None = None) -> int:
        runs.append(items)
        return sum(items)

    def first(items: Iterator[int]) -> int:
        return next(items)

    bad = await called(total, items=[1, "x"])
    assert bad.details["invalid_arguments"] is True
    assert runs == []
    assert (await called(total, items=[1, 2], more=None)).text == "3"
    assert Tool(total).spec().parameters["properties"]["items"]["items"] == {"type": "integer"}
    assert (await called(first, items=[4, 5])).text == "4"
    assert (await called(first, items=["x"])).details["invalid_arguments"] is True


def test_a_role_at_a_lines_begin_is_text() -> None:
    docs = parse_docstring(
        ":class:`Order` is looked up.\n\n:py:func:`f` does it. Note:\n:param n: how many\n:returns: it"
    )
    assert docs.description == ":class:`Order` is looked up.\n\n:py:func:`f` does it. Note:"
    assert docs.parameters == {"n": "how many"}
