"""Signatures that people write with pydantic's and typing's finer means: what the schema says is what the function gets."""

from __future__ import annotations

import collections.abc
import dataclasses
import typing
from collections.abc import Generator, Iterable, Iterator
from decimal import Decimal
from typing import Annotated, Any, Literal, Self

import numpy as np
import pytest
import typing_extensions
from pydantic import AliasChoices, AliasPath, BaseModel, ConfigDict, Field

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.tools import Progress, Tool, ToolContext, ToolDefinitionError, tool
from rein_nb.tools.docstrings import parse_docstring
from rein_nb.tools.errors import describe_error


async def called(fn: Any, **arguments: Any) -> ToolResult:
    made = fn if isinstance(fn, Tool) else Tool(fn)
    return await made.call(ToolCall(id="c", name=made.name, arguments=arguments))


# -- a default within Annotated --------------------------------------------------------------------


async def test_a_default_may_stand_in_field() -> None:
    def f(
        a: Annotated[int, Field(default=3)],
        b: Annotated[list[int], Field(default_factory=lambda: [1])],
        c: Annotated[int | None, Field(default=None, ge=0)],
        d: Annotated[int, Field(default=1)] = 9,
    ) -> Any:
        return [a, b, c, d]

    schema = Tool(f).spec().parameters
    assert "required" not in schema
    assert schema["properties"]["a"]["default"] == 3
    assert schema["properties"]["d"]["default"] == 9
    assert (await called(f)).details == [3, [1], None, 9]
    assert (await called(f, a=4, c=5)).details == [4, [1], 5, 9]
    assert (await called(f, c=-1)).is_error


async def test_a_default_in_field_reaches_a_positional_parameter() -> None:
    def f(a: Annotated[int, Field(default=3)], /, *rest: int) -> Any:
        return [a, *rest]

    assert (await called(f)).details == [3]
    assert (await called(f, rest=[4])).details == [3, 4]


# -- aliases ---------------------------------------------------------------------------------------


async def test_a_parameter_with_several_names_takes_any_of_them() -> None:
    def f(city: Annotated[str, Field(validation_alias=AliasChoices("place", "town", AliasPath("where", 0)))]) -> str:
        return city

    assert list(Tool(f).spec().parameters["properties"]) == ["place"]
    assert (await called(f, place="x")).text == "x"
    assert (await called(f, town="x")).text == "x"
    refused = await called(f, city="x")
    assert "city: no such parameter; the parameters are: place" in refused.text
    assert "town: another name of place, which is given as well" in (await called(f, place="x", town="y")).text


async def test_texts_for_lists_are_read_under_every_name() -> None:
    def f(ids: Annotated[list[int], Field(validation_alias=AliasChoices("ids", "id"))]) -> Any:
        return ids

    assert (await called(f, id="[1, 2]")).details == [1, 2]


def test_aliases_that_nobody_could_use_are_refused() -> None:
    def path(a: Annotated[int, Field(validation_alias=AliasPath("x", 1))]) -> None: ...
    def twice(a: Annotated[int, Field(alias="b")], b: int) -> None: ...

    with pytest.raises(ToolDefinitionError, match="parameter 'a' is a path into another argument"):
        Tool(path)
    with pytest.raises(ToolDefinitionError, match="'a' and 'b' would both be called 'b'"):
        Tool(twice)


# -- methods ---------------------------------------------------------------------------------------


class Node(BaseModel):
    n: int = 0

    def plus(self: Self, other: Self, k: int = 1) -> int:
        return self.n + other.n + k

    @classmethod
    def make(cls: type[Self], n: int) -> Any:
        return cls(n=n)


class Owner:
    @tool
    def annotated(self: Self, x: int) -> int:
        return x

    @tool
    def named(self: Owner, x: int) -> int:
        return x

    def free(x: Self) -> None: ...  # type: ignore[misc]


async def test_an_annotated_self_is_no_parameter() -> None:
    for made in (Owner().annotated, Owner().named):
        assert list(made.spec().parameters["properties"]) == ["x"]
        assert (await called(made, x=2)).text == "2"
    with pytest.raises(ToolDefinitionError, match="method without its instance"):
        Tool(Node.plus)


async def test_self_is_the_class_of_the_instance() -> None:
    assert (await called(Node(n=1).plus, other={"n": 2})).text == "4"
    assert (await called(Node.make, n=2)).details == {"n": 2}
    with pytest.raises(ToolDefinitionError, match="'x' is not a type: Self means nothing"):
        Tool(Owner.free)


# -- the context -----------------------------------------------------------------------------------


async def test_the_context_is_passed_wherever_it_stands() -> None:
    def first(ctx: ToolContext, /, a: int = 1) -> Any:
        return [ctx.call.name, a]

    def before_more(a: int, ctx: ToolContext, b: int = 2, *rest: int) -> Any:
        return [ctx.call.name, a, b, *rest]

    def twice(ctx: ToolContext, a: int, /, b: int = 2, *, again: ToolContext | None = None) -> Any:
        return [ctx.call.name, a, b, again is ctx]

    assert (await called(first, a=2)).details == ["first", 2]
    assert (await called(before_more, a=1)).details == ["before_more", 1, 2]
    assert (await called(before_more, a=1, rest=[3])).details == ["before_more", 1, 2, 3]
    assert (await called(twice, a=1)).details == ["twice", 1, 2, True]
    made = Tool(before_more, requires_approval=lambda arguments: arguments.get("b") == 2)
    assert made.needs_approval({"a": 1, "rest": [3]})
    assert not made.needs_approval({"a": 1, "b": 3, "rest": [3]})


# -- iterables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "annotation",
    [
        Iterable[int],
        typing.Iterable[int],
        collections.abc.Collection[int],
        Iterable[int] | None,
        typing_extensions.TypeAliasType("Numbers", Iterable[int]),  # type: ignore[misc]
        Annotated[Iterable[int], Field(min_length=1)],
        typing.Union[Iterable[int], Literal[3]],  # noqa: UP007
    ],
)
async def test_an_iterable_is_checked_before_the_call(annotation: Any) -> None:
    seen: list[Any] = []

    def f(items: Any) -> None:
        seen.append(items)

    f.__annotations__["items"] = annotation
    refused = await called(f, items=[1, "x"])
    assert "Invalid arguments for f" in refused.text
    assert seen == []
    assert not (await called(f, items=[1, 2])).is_error
    assert not (await called(f, items="[1, 2]")).is_error
    assert seen == [[1, 2], [1, 2]]


async def test_iterables_within_others_and_bare_ones() -> None:
    def f(
        a: dict[str, Iterable[int]], b: list[Iterable[int]], c: Iterable, d: collections.abc.Iterable[Any] = ()
    ) -> Any:  # type: ignore[type-arg]
        return [a, b, c, d]

    assert (await called(f, a={"x": [1]}, b=[[2]], c=[3])).details == [{"x": [1]}, [[2]], [3], []]
    for wrong in ({"a": {"x": ["y"]}}, {"b": [["y"]]}):
        assert "Invalid arguments" in (await called(f, **{"a": {}, "b": [], "c": [], **wrong})).text


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)
    xs: Iterable[int] = ()


@dataclasses.dataclass(frozen=True)
class Held:
    xs: Iterable[int]
    within: list[Frozen] = dataclasses.field(default_factory=list)


class Keyed(typing_extensions.TypedDict):
    xs: Iterable[Iterable[int]]


async def test_iterables_within_models_are_checked_before_the_call() -> None:
    seen: list[Any] = []

    def f(
        model: Frozen, held: Held | None = None, keyed: Keyed | None = None, pair: tuple[Frozen, int] | None = None
    ) -> None:
        seen.append([model.xs, held and [held.xs, *(one.xs for one in held.within)], keyed, pair and pair[0].xs])

    refused = await called(f, model={"xs": [1, "x"]})
    assert (
        "- model.xs.1: Input should be a valid integer, unable to parse string as an integer, got 'x'" in refused.text
    )
    for wrong, where in (
        ({"held": {"xs": [], "within": [{"xs": ["x"]}]}}, "held.within.0.xs.0"),
        ({"keyed": {"xs": [[1], ["x"]]}}, "keyed.xs.1.0"),
        ({"pair": [{"xs": ["x"]}, 1]}, "pair.0.xs.0"),
    ):
        assert f"- {where}: " in (await called(f, **{"model": {}, **wrong})).text
    assert seen == []

    def more(**more: Frozen) -> Any:
        return {key: model.xs for key, model in more.items()}

    assert "- a.xs.0: " in (await called(more, a={"xs": ["x"]})).text
    assert (await called(more, a={"xs": [1]})).details == {"a": [1]}
    right = {"held": {"xs": [1], "within": [{"xs": [2]}]}, "keyed": {"xs": [[3]]}, "pair": [{"xs": [4]}, 1]}
    assert not (await called(f, model={"xs": [0]}, **right)).is_error
    assert seen == [[[0], [[1], [2]], {"xs": [[3]]}, [4]]]


async def test_an_iterator_is_one() -> None:
    def f(a: Iterator[int], b: Generator[int, None, None]) -> Any:
        return [next(a), list(a), next(b)]

    assert (await called(f, a=[1, 2], b=[3])).details == [1, [2], 3]
    assert "Invalid arguments" in (await called(f, a=[1, "x"], b=[])).text


# -- docstrings ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [":class:`X` is made.", ":py:class:`X` is made.", ":func:`f` calls.", ":warning: It deletes.", ":meth:`~a.b` too"],
)
def test_a_line_that_begins_with_a_role_belongs_to_the_description(line: str) -> None:
    assert parse_docstring(line).description == line
    text = f"First.\n\n{line}\n\nArgs:\n    a: One.\n\n{line}\n\n:param b: Two.\n:rtype: int\n:raises ValueError: never"
    docs = parse_docstring(text)
    assert docs.description == f"First.\n\n{line}\n\n{line}"
    assert docs.parameters == {"a": "One.", "b": "Two."}


# -- errors ----------------------------------------------------------------------------------------


def test_a_group_of_exceptions_is_told_with_its_parts() -> None:
    noted = ValueError("bad")
    noted.add_note("at line 3")
    group = ExceptionGroup("all failed", [noted, ExceptionGroup("inner", [KeyError("k")])])
    assert describe_error(group) == (
        "ExceptionGroup: all failed (2 sub-exceptions)\n- ValueError: bad\n  at line 3\n"
        "- ExceptionGroup: inner (1 sub-exception)\n  - KeyError: 'k'"
    )
    many = describe_error(ExceptionGroup("many", [ValueError(str(n)) for n in range(100)]))
    assert many.endswith("- ValueError: 19\n- and 80 more")
    deep: Exception = ValueError("bottom")
    for _ in range(200):
        deep = ExceptionGroup("g", [deep])
    assert "- 1 more" in describe_error(deep)


# -- progress --------------------------------------------------------------------------------------


def test_progress_is_json_and_in_range() -> None:
    seen: list[Progress] = []
    ctx: ToolContext[Any] = ToolContext(on_progress=seen.append)
    odd = object()
    itself: list[Any] = []
    itself.append(itself)
    for data in ({1, 2}, {"a": odd}, np.float32(0.5), float("nan"), itself):
        ctx.progress("m", data=data)
    assert [one.data for one in seen] == [[1, 2], {"a": str(odd)}, 0.5, "NaN", ["[[...]]"]]
    seen.clear()
    for fraction in (0, 1.5, -1, float("nan"), float("inf"), np.float64(0.5), Decimal("0.25"), True, None):
        ctx.progress("\ud83d", fraction)
    assert [one.fraction for one in seen] == [0.0, 1.0, 0.0, None, 1.0, 0.5, 0.25, 1.0, None]
    assert seen[0].message == "�"
    for wrong in ("50%", "0.5", [1], object()):
        with pytest.raises(TypeError, match="fraction must be a number from 0 to 1, or None"):
            ctx.progress("m", wrong)  # type: ignore[arg-type]


def test_what_is_reported_does_not_change_afterwards() -> None:
    seen: list[Progress] = []
    state = {"done": 1}
    ToolContext(on_progress=seen.append).progress(data=state)
    state["done"] = 2
    assert seen[0].data == {"done": 1}
