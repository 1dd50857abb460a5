"""Some sixty signatures: the schema is pydantic's own, and each call validates what the schema allows and refuses what it does not."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import pathlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Generic, Literal, NamedTuple, NotRequired, Optional, TypeVar, Union

import pytest
from pydantic import BaseModel, Field, TypeAdapter, create_model
from typing_extensions import TypedDict, Unpack

from rein_nb.ir import ToolCall
from rein_nb.tools import Tool, ToolContext

T = TypeVar("T")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Box(BaseModel):
    """A box."""

    w: int
    h: int = 1


class Crate(BaseModel):
    boxes: list[Box]
    label: str | None = None


class Tree(BaseModel):
    name: str
    children: list[Tree] = []


class Wrapped(BaseModel, Generic[T]):
    value: T


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


class Options(TypedDict):
    verbose: bool
    depth: NotRequired[int]


class Pair(NamedTuple):
    left: int
    right: str


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str]


def f_none() -> str: ...
def f_int(a: int) -> str: ...
def f_float(a: float) -> str: ...
def f_str(a: str) -> str: ...
def f_bool(a: bool) -> str: ...
def f_bytes(a: bytes) -> str: ...
def f_any(a: Any) -> str: ...
def f_int_default(a: int = 3) -> str: ...
def f_str_default(a: str = "x") -> str: ...
def f_none_default(a: str | None = None) -> str: ...
def f_optional(a: Optional[int]) -> str: ...  # noqa: UP045 - the old spelling must work too
def f_optional_default(a: Optional[int] = None) -> str: ...  # noqa: UP045
def f_union(a: Union[int, str]) -> str: ...  # noqa: UP007
def f_union_pipe(a: int | str | None = None) -> str: ...
def f_literal(a: Literal["a", "b"]) -> str: ...
def f_literal_mixed(a: Literal["a", 1, None] = "a") -> str: ...
def f_enum(a: Color) -> str: ...
def f_enum_default(a: Color = Color.RED) -> str: ...
def f_int_enum(a: Level) -> str: ...
def f_list(a: list[int]) -> str: ...
def f_list_bare(a: list) -> str: ...  # type: ignore[type-arg]
def f_list_default(a: list[str] = ["x"]) -> str: ...  # noqa: B006 - the default must reach the schema
def f_list_of_lists(a: list[list[float]]) -> str: ...
def f_set(a: set[int]) -> str: ...
def f_frozenset(a: frozenset[str]) -> str: ...
def f_tuple(a: tuple[int, str]) -> str: ...
def f_tuple_open(a: tuple[int, ...]) -> str: ...
def f_sequence(a: Sequence[int]) -> str: ...
def f_dict(a: dict[str, int]) -> str: ...
def f_dict_bare(a: dict) -> str: ...  # type: ignore[type-arg]
def f_mapping(a: Mapping[str, float]) -> str: ...
def f_model(a: Box) -> str: ...
def f_model_optional(a: Box | None = None) -> str: ...
def f_model_default(a: Box = Box(w=1)) -> str: ...  # noqa: B008
def f_model_nested(a: Crate) -> str: ...
def f_model_recursive(a: Tree) -> str: ...
def f_model_generic(a: Wrapped[int]) -> str: ...
def f_models(a: list[Box]) -> str: ...
def f_model_twice(a: Box, b: Box) -> str: ...
def f_dict_of_models(a: dict[str, Box]) -> str: ...
def f_model_union(a: Box | Crate) -> str: ...
def f_discriminated(a: Annotated[Cat | Dog, Field(discriminator="kind")]) -> str: ...
def f_dataclass(a: Point) -> str: ...
def f_typed_dict(a: Options) -> str: ...
def f_named_tuple(a: Pair) -> str: ...
def f_datetime(a: dt.datetime) -> str: ...
def f_date(a: dt.date) -> str: ...
def f_time(a: dt.time) -> str: ...
def f_timedelta(a: dt.timedelta) -> str: ...
def f_decimal(a: decimal.Decimal) -> str: ...
def f_uuid(a: uuid.UUID) -> str: ...
def f_path(a: pathlib.Path) -> str: ...
def f_constrained(a: Annotated[int, Field(ge=1, le=7)]) -> str: ...
def f_pattern(a: Annotated[str, Field(pattern="^a+$", max_length=3)]) -> str: ...
def f_described(a: Annotated[int, Field(description="How many")] = 1) -> str: ...
def f_field_default(a: int = Field(3, ge=1, description="N")) -> str: ...
def f_field_factory(a: list[int] = Field(default_factory=list)) -> str: ...  # noqa: B008
def f_alias(a: Annotated[int, Field(alias="from")]) -> str: ...
def f_list_of_constrained(a: list[Annotated[int, Field(gt=0)]]) -> str: ...
def f_two(a: int, b: str = "x") -> str: ...
def f_keyword_only(a: int, *, b: str = "x", c: float) -> str: ...
def f_shadowing(schema: str, copy: int, model_config: bool = False, self_: int = 1) -> str: ...
def f_underscore(_private: int, __dunder: str = "x") -> str: ...
def f_unannotated(a, b=1) -> str: ...  # type: ignore[no-untyped-def]


# (signature, argument sets that the schema allows, argument sets that it refuses)
MATRIX: list[tuple[Callable[..., Any], list[dict[str, Any]], list[dict[str, Any]]]] = [
    (f_none, [{}], [{"a": 1}]),
    (f_int, [{"a": 1}], [{}, {"a": "one"}, {"a": 1.5}, {"a": 1, "b": 2}, {"a": None}]),
    (f_float, [{"a": 1}, {"a": 1.5}], [{"a": "x"}]),
    (f_str, [{"a": ""}, {"a": "[1]"}], [{"a": 1}, {"a": None}, {"a": ["x"]}]),
    (f_bool, [{"a": True}], [{"a": "maybe"}, {"a": 7}]),
    (f_bytes, [{"a": "abc"}], [{"a": 5}]),
    (f_any, [{"a": 1}, {"a": None}, {"a": {"b": []}}], [{}]),
    (f_int_default, [{}, {"a": 1}], [{"a": None}]),
    (f_str_default, [{}, {"a": "y"}], [{"a": 1}]),
    (f_none_default, [{}, {"a": None}, {"a": "y"}], [{"a": 1}]),
    (f_optional, [{"a": None}, {"a": 1}], [{}, {"a": "x"}]),
    (f_optional_default, [{}, {"a": None}], [{"a": "x"}]),
    (f_union, [{"a": 1}, {"a": "x"}], [{"a": []}]),
    (f_union_pipe, [{}, {"a": None}, {"a": "x"}], [{"a": {}}]),
    (f_literal, [{"a": "b"}], [{"a": "c"}, {"a": 1}]),
    (f_literal_mixed, [{}, {"a": 1}, {"a": None}], [{"a": 2}]),
    (f_enum, [{"a": "red"}], [{"a": "green"}, {"a": "RED"}]),
    (f_enum_default, [{}, {"a": "blue"}], [{"a": "green"}]),
    (f_int_enum, [{"a": 1}], [{"a": 3}]),
    (f_list, [{"a": []}, {"a": [1, 2]}], [{"a": ["x"]}, {"a": 1}]),
    (f_list_bare, [{"a": [1, "x", None]}], [{"a": 1}]),
    (f_list_default, [{}, {"a": ["y"]}], [{"a": [1]}]),
    (f_list_of_lists, [{"a": [[1, 2.5], []]}], [{"a": [1]}]),
    (f_set, [{"a": [1, 2]}], [{"a": ["x"]}]),
    (f_frozenset, [{"a": ["x"]}], [{"a": [1]}]),
    (f_tuple, [{"a": [1, "x"]}], [{"a": [1]}, {"a": [1, "x", 2]}, {"a": ["x", 1]}]),
    (f_tuple_open, [{"a": []}, {"a": [1, 2, 3]}], [{"a": ["x"]}]),
    (f_sequence, [{"a": [1]}], [{"a": ["x"]}]),
    (f_dict, [{"a": {}}, {"a": {"k": 1}}], [{"a": {"k": "x"}}, {"a": []}]),
    (f_dict_bare, [{"a": {"k": [1]}}], [{"a": 1}]),
    (f_mapping, [{"a": {"k": 1.5}}], [{"a": {"k": "x"}}]),
    (f_model, [{"a": {"w": 1}}], [{"a": {}}, {"a": {"w": "x"}}, {"a": 1}]),
    (f_model_optional, [{}, {"a": None}, {"a": {"w": 1, "h": 2}}], [{"a": {"h": 1}}]),
    (f_model_default, [{}, {"a": {"w": 2}}], [{"a": {}}]),
    (f_model_nested, [{"a": {"boxes": [{"w": 1}]}}], [{"a": {"boxes": [{}]}}, {"a": {}}]),
    (f_model_recursive, [{"a": {"name": "r", "children": [{"name": "c"}]}}], [{"a": {"name": "r", "children": [{}]}}]),
    (f_model_generic, [{"a": {"value": 1}}], [{"a": {"value": "x"}}]),
    (f_models, [{"a": []}, {"a": [{"w": 1}]}], [{"a": [{"h": 1}]}]),
    (f_model_twice, [{"a": {"w": 1}, "b": {"w": 2}}], [{"a": {"w": 1}}]),
    (f_dict_of_models, [{"a": {"k": {"w": 1}}}], [{"a": {"k": {}}}]),
    (f_model_union, [{"a": {"w": 1}}, {"a": {"boxes": []}}], [{"a": {"z": 1}}]),
    (
        f_discriminated,
        [{"a": {"kind": "cat", "lives": 9}}, {"a": {"kind": "dog", "tricks": []}}],
        [{"a": {"kind": "cow"}}, {"a": {"kind": "cat"}}],
    ),
    (f_dataclass, [{"a": {"x": 1}}], [{"a": {"y": 1}}]),
    (f_typed_dict, [{"a": {"verbose": True}}, {"a": {"verbose": False, "depth": 2}}], [{"a": {"depth": 2}}]),
    (f_named_tuple, [{"a": [1, "x"]}], [{"a": [1]}]),
    (f_datetime, [{"a": "2024-05-01T10:00:00Z"}], [{"a": "yesterday"}]),
    (f_date, [{"a": "2024-05-01"}], [{"a": "2024-15-01"}]),
    (f_time, [{"a": "10:00:00"}], [{"a": "noon"}]),
    (f_timedelta, [{"a": "PT1H"}], [{"a": "soon"}]),
    (f_decimal, [{"a": 1.5}, {"a": "1.50"}], [{"a": "x"}]),
    (f_uuid, [{"a": "12345678-1234-5678-1234-567812345678"}], [{"a": "123"}]),
    (f_path, [{"a": "/x/y"}], [{"a": 1}]),
    (f_constrained, [{"a": 1}, {"a": 7}], [{"a": 0}, {"a": 8}]),
    (f_pattern, [{"a": "aa"}], [{"a": "b"}, {"a": "aaaa"}]),
    (f_described, [{}, {"a": 2}], [{"a": "x"}]),
    (f_field_default, [{}, {"a": 1}], [{"a": 0}]),
    (f_field_factory, [{}, {"a": [1]}], [{"a": ["x"]}]),
    (f_alias, [{"from": 1}], [{"a": 1}, {}]),
    (f_list_of_constrained, [{"a": [1]}], [{"a": [0]}]),
    (f_two, [{"a": 1}, {"a": 1, "b": "y"}], [{"b": "y"}]),
    (f_keyword_only, [{"a": 1, "c": 2}], [{"a": 1}]),
    (f_shadowing, [{"schema": "x", "copy": 1}], [{"schema": "x"}]),
    (f_unannotated, [{"a": 1}, {"a": None, "b": []}], [{}]),
]
IDS = [fn.__name__ for fn, _, _ in MATRIX]


def pydantics_own(fn: Callable[..., Any]) -> dict[str, Any]:
    """The schema that pydantic makes of the same callable, called with keywords only."""
    schema = TypeAdapter(fn).json_schema()
    schema.setdefault("properties", {})
    return schema


def test_the_matrix_has_the_signatures_it_promises() -> None:
    assert len(MATRIX) >= 60
    assert len(set(IDS)) == len(IDS)


@pytest.mark.parametrize(("fn", "allowed", "refused"), MATRIX, ids=IDS)
def test_the_schema_is_pydantics_own(fn: Callable[..., Any], allowed: Any, refused: Any) -> None:
    assert Tool(fn).spec().parameters == pydantics_own(fn)


@pytest.mark.parametrize(("fn", "allowed", "refused"), MATRIX, ids=IDS)
async def test_calls_validate_what_the_schema_allows_and_nothing_else(
    fn: Callable[..., Any], allowed: list[dict[str, Any]], refused: list[dict[str, Any]]
) -> None:
    made = Tool(fn)
    for arguments in allowed:
        result = await made.call(ToolCall(id="1", name=made.name, arguments=arguments))
        assert result.status == "ok", (arguments, result.text)
    for arguments in refused:
        result = await made.call(ToolCall(id="1", name=made.name, arguments=arguments))
        assert result.status == "error", arguments
        assert result.details["invalid_arguments"], arguments


def test_underscored_parameters_get_their_own_names() -> None:
    assert set(Tool(f_underscore).spec().parameters["properties"]) == {"_private", "__dunder"}


# -- where pydantic has no schema of its own for the callable ---------------------------------------


def model_schema(**fields: Any) -> dict[str, Any]:
    schema = create_model("m", __config__={"extra": "forbid"}, **fields).model_json_schema()
    schema.pop("title")
    return schema


async def test_star_args_are_an_array_and_reach_the_function_in_order() -> None:
    def join(first: str, *rest: int, sep: str = "-") -> str:
        return sep.join([first, *map(str, rest)])

    made = Tool(join)
    assert made.spec().parameters["properties"]["rest"] == {
        "items": {"type": "integer"},
        "title": "Rest",
        "type": "array",
    }
    assert made.spec().parameters["required"] == ["first"]
    call = ToolCall(id="1", name="join", arguments={"first": "a", "rest": [1, 2], "sep": "+"})
    assert (await made.call(call)).text == "a+1+2"
    assert (await made.call(ToolCall(id="1", name="join", arguments={"first": "a", "rest": ["x"]}))).status == "error"


async def test_star_kwargs_are_additional_properties_of_their_type() -> None:
    def tally(**counts: int) -> int:
        return sum(counts.values())

    made = Tool(tally)
    assert made.spec().parameters["additionalProperties"] == {"type": "integer"}
    assert (await made.call(ToolCall(id="1", name="tally", arguments={"a": 1, "b": 2}))).text == "3"
    assert (await made.call(ToolCall(id="1", name="tally", arguments={"a": "x"}))).status == "error"


async def test_unpacked_typed_dict_keywords_are_parameters() -> None:
    def go(**options: Unpack[Options]) -> str:
        return str(sorted(options.items()))

    made = Tool(go)
    schema = made.spec().parameters
    assert schema["required"] == ["verbose"]
    assert set(schema["properties"]) == {"verbose", "depth"}
    assert schema["additionalProperties"] is False
    assert (await made.call(ToolCall(id="1", name="go", arguments={"verbose": True}))).text == "[('verbose', True)]"


async def test_positional_only_parameters_are_called_by_position() -> None:
    def power(base: int, exponent: int = 2, /) -> int:
        return int(base**exponent)

    made = Tool(power)
    assert made.spec().parameters == model_schema(base=(int, ...), exponent=(int, 2))
    assert (await made.call(ToolCall(id="1", name="power", arguments={"base": 3}))).text == "9"
    assert (await made.call(ToolCall(id="1", name="power", arguments={"base": 3, "exponent": 3}))).text == "27"


async def test_what_a_partial_binds_is_not_in_the_schema() -> None:
    def fetch(url: str, token: str, retries: int = 1) -> str:
        return f"{url}:{token}:{retries}"

    made = Tool(functools.partial(fetch, token="hush"))
    assert made.name == "fetch"
    assert made.spec().parameters == model_schema(url=(str, ...), retries=(int, 1))
    assert (await made.call(ToolCall(id="1", name="fetch", arguments={"url": "u"}))).text == "u:hush:1"
    assert (await made.call(ToolCall(id="1", name="fetch", arguments={"url": "u", "token": "t"}))).status == "error"


async def test_a_callable_object_is_described_by_its_call() -> None:
    class Adder:
        """Keeps a number."""

        def __init__(self, n: int) -> None:
            self.n = n

        def __call__(self, x: int) -> int:
            """Add the number to x."""
            return self.n + x

    made = Tool(Adder(2), name="adder")
    assert made.description == "Add the number to x."
    assert made.spec().parameters == model_schema(x=(int, ...))
    assert (await made.call(ToolCall(id="1", name="adder", arguments={"x": 1}))).text == "3"


async def test_the_context_parameter_is_injected_and_hidden_in_every_spelling() -> None:
    def plain(a: int, ctx: ToolContext) -> str:
        return str(ctx.deps)

    def optional(a: int, ctx: ToolContext | None = None) -> str:
        return str(ctx.deps if ctx else None)

    def typed(a: int, *, context: ToolContext[dict[str, int]]) -> str:
        return str(context.deps)

    for fn in (plain, optional, typed):
        made = Tool(fn)
        assert made.spec().parameters == model_schema(a=(int, ...))
        call = ToolCall(id="1", name=made.name, arguments={"a": 1})
        assert (await made.call(call, ToolContext(call=call, deps={"k": 1}))).text == "{'k': 1}"


async def test_a_default_that_json_cannot_hold_stays_in_the_function() -> None:
    missing = object()

    def look(key: str, default: Any = missing) -> str:
        return str(default is missing)

    made = Tool(look)
    assert "default" not in made.spec().parameters["properties"]["default"]
    assert (await made.call(ToolCall(id="1", name="look", arguments={"key": "k"}))).text == "True"


def test_a_type_that_json_cannot_carry_is_refused_with_the_parameters_name() -> None:
    class Opaque: ...

    def use(a: int, thing: Opaque) -> None: ...

    with pytest.raises(TypeError, match=r"'use'.*'thing'.*JSON"):
        Tool(use)

    def hook(a: int, callback: Callable[[int], int]) -> None: ...

    with pytest.raises(TypeError, match="'callback'"):
        Tool(hook)


async def test_an_alias_is_what_the_model_sees_and_the_parameter_what_the_function_gets() -> None:
    def move(origin: Annotated[str, Field(alias="from")], to: str) -> str:
        return f"{origin}->{to}"

    assert (await Tool(move).call(ToolCall(id="1", name="move", arguments={"from": "a", "to": "b"}))).text == "a->b"
