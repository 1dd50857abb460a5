"""Values of other people's libraries as results: nothing of them is lost, nothing is made up."""

from __future__ import annotations

import array
import collections
import csv
import dataclasses
import datetime as dt
import enum
import io
import ipaddress
import itertools
import json
import os
import sqlite3
import types
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, MagicMock, Mock

import numpy as np
import pandas as pd
import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, RootModel, computed_field, field_serializer
from pydantic.dataclasses import dataclass as pydantic_dataclass

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.tools import Tool, outcomes
from rein_nb.tools.render import to_result

CALL = ToolCall(id="c1", name="t")


def shown(value: Any, max_chars: int = 40_000) -> ToolResult:
    result = to_result(CALL, value, max_chars)
    assert ToolResult.model_validate_json(result.model_dump_json()) == result
    return result


def data(value: Any) -> Any:
    """The details, in a list so that single texts have some too."""
    return shown([value]).details[0]


# -- pydantic --------------------------------------------------------------------------------------


class Inner(BaseModel):
    when: dt.timedelta = dt.timedelta(seconds=1)
    hidden: int = Field(default=0, exclude=True)


class Account(BaseModel):
    owner: str = Field(serialization_alias="Owner", validation_alias=AliasChoices("owner", "Owner"))
    password: str = Field(exclude=True)
    amount: float
    inner: Inner = Inner()

    @field_serializer("amount")
    def _amount(self, value: float) -> str:
        return f"{value:.2f}"

    @computed_field  # type: ignore[prop-decorator]
    @property
    def twice(self) -> float:
        return 2 * self.amount


class ByAlias(BaseModel):
    model_config = ConfigDict(serialize_by_alias=True)
    a: int = Field(default=1, alias="A")


class Tags(RootModel[list[str]]):
    pass


@pydantic_dataclass
class Point:
    x: int
    secret: str = Field(default="s", exclude=True)


class Anything(BaseModel):
    model_config = ConfigDict(arbitrary_types_allowed=True, extra="allow")
    value: Any = None


@pytest.mark.parametrize("model", [Account(owner="o", password="p", amount=1.5), ByAlias(), Tags(["a"]), Inner()])
def test_a_pydantic_model_is_what_its_own_dump_says(model: BaseModel) -> None:
    wanted = model.model_dump(mode="json")
    assert shown(model).details == wanted
    assert json.loads(shown(model).text) == wanted
    assert shown({"models": [model]}).details == {"models": [wanted]}
    assert model.model_dump_json() == json.dumps(shown(model).details, separators=(",", ":"))


def test_a_pydantic_dataclass_keeps_what_is_excluded_to_itself() -> None:
    assert shown(Point(1)).details == {"x": 1}


def test_a_plain_dataclass_made_of_a_pydantic_one_has_its_own_fields() -> None:
    @pydantic_dataclass
    class Base:
        x: int

    @dataclasses.dataclass
    class Further(Base):
        y: int = 2

    assert shown(Further(1)).details == {"x": 1, "y": 2}


def test_what_pydantic_cannot_write_is_written_as_elsewhere() -> None:
    model = Anything(
        value=np.arange(2), more=np.datetime64("2024-01-01T00:00:00", "ns"), binary=b"\xff\xfe", bad=float("nan")
    )
    assert shown(model).details == {
        "value": [0, 1], "more": "2024-01-01T00:00:00.000000000", "binary": "//4=", "bad": "NaN",
    }  # fmt: skip
    odd = shown(Anything(value=object()))
    assert "object has no JSON form" in odd.text
    itself = Anything()
    itself.value = itself
    assert "contains itself" in shown(itself).text


def test_a_model_with_a_dump_of_its_own_is_dumped_by_it() -> None:
    class Plain(BaseModel):
        a: int = 1

        def model_dump(self) -> dict[str, Any]:  # type: ignore[override]
            return {"mine": self.a}

    class Failing(BaseModel):
        a: int = 1

        @field_serializer("a")
        def _a(self, value: int) -> int:
            raise ValueError("no")

    assert shown(Plain()).details == {"mine": 1}
    assert "its own serialization failed" in shown(Failing()).text


# -- frames ----------------------------------------------------------------------------------------


class Odd:
    def __str__(self) -> str:
        return "an odd one"


@pytest.mark.parametrize(
    ("frame", "cells"),
    [
        (pd.DataFrame({"a": [Odd(), 1]}), [["an odd one"], [1]]),
        (pd.DataFrame({"a": [pd.Interval(0, 1)]}), [["(0, 1]"]]),
        (pd.DataFrame({"a": pd.array([1, None], dtype="Int64")}), [[1], [None]]),
        (pd.DataFrame({"a": pd.period_range("2024-01", periods=1, freq="M")}), [["2024-01"]]),
        (pd.DataFrame({"a": [pd.Timestamp(1)]}), [["1970-01-01T00:00:00.000000001"]]),
        (pd.DataFrame({"a": [{1: "x", "1": "y"}]}), [[[[1, "x"], ["1", "y"]]]]),
        (pd.DataFrame({"a": [MagicMock(name="m")]}), None),
    ],
)
def test_no_cell_costs_a_frame_the_others(frame: pd.DataFrame, cells: Any) -> None:
    details = shown(frame).details
    assert details["columns"] == ["a"]
    assert len(details["data"]) == len(frame)
    if cells is not None:
        assert details["data"] == cells


def test_odd_labels_cost_a_frame_no_cells() -> None:
    counts = pd.cut(pd.Series([1, 5]), [0, 3, 6]).value_counts(sort=False)
    assert shown(counts).details["data"] == [1, 1]
    assert shown(counts).details["index"] == ["(0, 3]", "(3, 6]"]
    frame = pd.DataFrame([[1]], index=[Odd()], columns=pd.MultiIndex.from_tuples([("a", pd.Period("2024", "Y"))]))
    details = shown(frame).details
    assert (details["index"], details["columns"], details["data"]) == (["an odd one"], [["a", "2024"]], [[1]])
    named = pd.Series([1], name=("a", 1))
    assert shown(named).details["name"] == ["a", 1]
    labels = pd.Series([1, 2, 3], index=["columns", "savefig", "index"])
    assert shown(labels).details["data"] == [1, 2, 3]


@pytest.mark.filterwarnings("error")
def test_frames_of_odd_shapes_keep_their_cells() -> None:
    assert shown(pd.DataFrame([[1, 2]], columns=["a", "a"])).details["data"] == [[1, 2]]
    assert shown(pd.DataFrame(index=[1, 2])).details["data"] == [[], []]
    assert shown(pd.DataFrame({"a": []})).details["data"] == []
    assert shown(pd.DataFrame(np.arange(300).reshape(1, 300))).details["data"] == [list(range(300))]


def test_a_large_array_is_shown_in_short_and_kept_in_part() -> None:
    result = shown(np.arange(600_000).reshape(300_000, 2))
    assert len(result.text) < 1_000
    assert result.text.endswith("[300000 x 2 values]")
    assert (result.details["complete"], result.details["shape"]) == (False, [300_000, 2])
    assert result.details["data"][99_999] == [199_998, 199_999]
    assert len(result.details["data"]) == 100_000


def test_what_only_looks_like_a_frame_is_shown_as_text() -> None:
    class Lazy:
        shape = (None, 2)
        columns = ("a", "b")

        def head(self, n: int) -> Any: ...
        def to_dict(self) -> Any: ...
        def __repr__(self) -> str:
            return "Lazy()"

    assert shown(Lazy()).text.startswith("Lazy()\n[shown as text: its cells cannot be read")


# -- arrays and scalars ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (np.datetime64("2024-01-01T00:00:00.000000001", "ns"), "2024-01-01T00:00:00.000000001"),
        (np.datetime64("2024-01-01"), "2024-01-01"),
        (np.datetime64("NaT"), "NaT"),
        (np.timedelta64(5, "ns"), "5 nanoseconds"),
        (np.array(["2024-01-01"], "M8[ns]"), ["2024-01-01T00:00:00.000000000"]),
        (np.array([["2024-01-01"]], "M8[ns]"), [["2024-01-01T00:00:00.000000000"]]),
        (np.array("2024-01-01", "M8[ns]"), "2024-01-01T00:00:00.000000000"),
        (np.array([(1, "2024-01-01")], dtype=[("n", "i4"), ("t", "M8[ns]")]), [{"n": 1, "t": "2024-01-01T00:00:00.000000000"}]),
        (np.longdouble("1.5"), 1.5),
        (np.longdouble("nan"), "NaN"),
        (np.array([1, 2], np.longdouble), [1.0, 2.0]),
        (np.clongdouble(1 + 2j), "(1+2j)"),
        (np.float16(0.5), 0.5),
        (np.str_("s"), "s"),
        (np.bytes_(b"s"), "s"),
        (np.array([None, Odd], dtype=object)[:1], [None]),
        (pd.NaT, "NaT"),
        (pd.NA, None),
        (pd.Interval(0, 1), "(0, 1]"),
        (pd.Period("2024-01", "M"), "2024-01"),
        (pd.offsets.Day(2), "<2 * Days>"),
        (pd.Index([pd.Interval(0, 1)]), ["(0, 1]"]),
        (pd.Categorical(["a", None]), ["a", "NaN"]),
    ],
)  # fmt: skip
def test_numbers_and_times_of_libraries(value: Any, wanted: Any) -> None:
    assert data(value) == wanted


def test_a_longdouble_beyond_a_float_is_kept_as_text() -> None:
    if np.finfo(np.longdouble).max > np.finfo(float).max:
        assert data(np.longdouble("1e400")) == "1e+400"


# -- the standard library --------------------------------------------------------------------------


@dataclasses.dataclass
class Partly:
    a: int
    b: int = dataclasses.field(init=False)


class Number(enum.IntEnum):
    ONE = 1


def row(sql: str) -> sqlite3.Row:
    connection = sqlite3.connect(":memory:")
    connection.row_factory = sqlite3.Row
    return connection.execute(sql).fetchone()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ({1: "a", "1": "b"}, [[1, "a"], ["1", "b"]]),
        ({True: 1, "true": 2, None: 3}, [[True, 1], ["true", 2], [None, 3]]),
        ({float("nan"): 1, "nan": 2}, [["NaN", 1], ["nan", 2]]),
        ({1: "a", "2": "b", b"k": "c", Number.ONE.name: 1}, {"1": "a", "2": "b", "k": "c", "ONE": 1}),
        (collections.ChainMap({"a": 1}), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (types.SimpleNamespace(a=1), {"a": 1}),
        (collections.UserList([1]), [1]),
        (array.array("i", [1, 2]), [1, 2]),
        ({"a": 1}.keys(), ["a"]),
        (Partly(1), {"a": 1}),
        (ipaddress.ip_address("::1"), "::1"),
        (ipaddress.ip_network("10.0.0.0/8"), "10.0.0.0/8"),
        (Number.ONE, 1),
    ],
)
def test_values_of_the_standard_library(value: Any, wanted: Any) -> None:
    assert data(value) == wanted


def test_attrs_classes_are_shown_by_their_fields() -> None:
    attrs = pytest.importorskip("attrs")
    made = attrs.make_class("Made", ["a", "b"])
    assert data(made(1, Path("x"))) == {"a": 1, "b": "x"}


def test_rows_of_a_database_have_names() -> None:
    assert data(row("select 1 as a, 'x' as b")) == {"a": 1, "b": "x"}
    assert data(row("select 1 as a, 2 as a")) == [["a", 1], ["a", 2]]


def test_entries_of_a_folder_are_paths(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    assert data(next(os.scandir(tmp_path))) == str(tmp_path / "f")


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: itertools.islice(itertools.count(), 2), "[0, 1]"),
        (lambda: itertools.chain([1], [2]), "[1, 2]"),
        (lambda: itertools.repeat("x", 2), '["x", "x"]'),
        (lambda: itertools.groupby("aab"), '[["a", ["a", "a"]], ["b", ["b"]]]'),
        (lambda: itertools.tee([1])[0], "[1]"),
        (lambda: iter(collections.deque([1])), "[1]"),
        (lambda: csv.DictReader(io.StringIO("a,b\n1,2\n")), '[{"a": "1", "b": "2"}]'),
        (lambda: {"rows": map(str, [1]), "n": 1}, '{"rows": ["1"], "n": 1}'),
        (lambda: (iter([1]), itertools.chain([2])), "[[1], [2]]"),
        (lambda: csv.reader(io.StringIO("1,2\n")), '[["1", "2"]]'),
        (lambda: sqlite3.connect(":memory:").execute("select 1, 2"), "[[1, 2]]"),
    ],
)
async def test_lazy_values_of_the_standard_library_are_read(made: Any, text: str) -> None:
    def in_thread() -> Any:
        return made()

    async def in_loop() -> Any:
        return made()

    for fn in (in_thread, in_loop):
        assert (await Tool(fn).call(ToolCall(id="1", name=fn.__name__))).text == text


@pytest.mark.parametrize("made", [itertools.count, lambda: itertools.cycle([1]), lambda: itertools.repeat(1)])
async def test_endless_iterators_are_left_alone(made: Any) -> None:
    def endless() -> Any:
        return made()

    assert "shown as text" in (await Tool(endless).call(ToolCall(id="1", name="endless"))).text


@pytest.mark.parametrize(
    "mock",
    [MagicMock(), Mock(), AsyncMock(), MagicMock(spec=dict), MagicMock(spec=str), MagicMock(spec=int), MagicMock(spec=Account), MagicMock(spec=pd.DataFrame), MagicMock(spec=dt.datetime)],
    ids=lambda mock: type(mock).__name__,
)  # fmt: skip
async def test_a_mock_is_shown_as_a_mock(mock: Any) -> None:
    async def in_loop() -> Any:
        return mock

    def in_thread() -> Any:
        return mock

    for fn in (in_loop, in_thread):
        result = await Tool(fn).call(ToolCall(id="1", name=fn.__name__))
        assert (result.status, result.text) == ("ok", f"{mock!r}\n[shown as text: a mock has no JSON form]")
    assert "Mock" in shown({"a": mock}).text


def test_a_part_that_cannot_be_written_does_not_cost_the_rest() -> None:
    long = 10**5_000
    assert shown({"n": long, "a": 1}).details == {"n": hex(long), "a": 1}
    assert shown(long).text == "[a number that cannot be written: it has about 5,000 digits]"
    assert shown(long).details == {"hex": hex(long)}

    class Closed(dict[str, int]):
        def items(self) -> Any:
            raise RuntimeError("it is closed")

    assert shown(Closed(a=1)).text == "{'a': 1}\n[shown as text: its parts cannot be read: RuntimeError: it is closed]"
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deep" in shown(deep).text


def test_a_class_whose_metaclass_answers_to_every_name_is_nothing_special() -> None:
    class Meta(type):
        def __getattr__(cls, name: str) -> Any:
            return lambda *args: None

    class Plain(metaclass=Meta):
        def __repr__(self) -> str:
            return "Plain()"

    assert shown(Plain()).text == "Plain()\n[shown as text: Plain has no JSON form]"


def test_an_object_that_answers_to_every_name_is_shown_as_text() -> None:
    class Proxy:
        def __getattr__(self, name: str) -> Any:
            return lambda *args: None

        def __repr__(self) -> str:
            return "Proxy()"

    assert shown(Proxy()).text.startswith("Proxy()\n[shown as text")
    assert shown([Proxy()]).text.startswith("[Proxy()]\n[shown as text")


def test_a_picture_that_cannot_be_drawn_is_told_and_shown_as_text() -> None:
    class Figure:
        def savefig(self, target: Any, **options: Any) -> None:
            raise RuntimeError("no backend")

        def __repr__(self) -> str:
            return "Figure()"

    class Nothing:
        def _repr_png_(self) -> None:
            return None

    assert shown(Figure()).text == "Figure()\n[shown as text: drawing it failed: RuntimeError: no backend]"
    assert "gave NoneType" in shown(Nothing()).text
    assert "no backend" in shown(["a", Figure()]).text


# -- cut and kept ----------------------------------------------------------------------------------


def test_a_cut_text_is_kept_whole_beside_other_details() -> None:
    text = "x" * 500
    mine = ToolResult(tool_call_id="", content=[TextPart(text=text)], details={"server": "s"})
    first = shown(mine, 100)
    assert first.details == {"server": "s", "whole_text": text}
    assert shown(first, 100).details == first.details, "cut again, the whole text is still the whole text"
    assert shown(mine.model_copy(update={"details": [1]}), 100).details == {"details": [1], "whole_text": text}
    assert shown(mine.model_copy(update={"details": None}), 100).details == text
    mixed = shown([text, {"n": 1}, MediaPart(kind="image", data=b"x")], 100)
    assert mixed.details["whole_text"] == text + '{"n": 1}'
    assert shown(ValueError(text), 100).details == {"error": "ValueError", "whole_text": f"ValueError: {text}"}
    for whole in ({"a": text}, [text]):
        assert shown(whole, 100).details == whole, "data that says all the text says is not kept twice"


def test_the_words_of_every_outcome_are_kept_whole() -> None:
    partial = "y" * 50_000
    assert partial in outcomes.timed_out(CALL, 1.0, partial).details["whole_text"]


def test_the_details_of_a_result_are_json() -> None:
    mine = ToolResult(tool_call_id="", content="x", details={"frame": pd.DataFrame({"a": [Odd()]}), 1: {2}})
    assert shown(mine).details["1"] == [2]
    assert shown(mine).details["frame"]["data"] == [["an odd one"]]
