"""Values, exceptions, signatures and toolsets that were made to break things."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Annotated, Any, ClassVar, NewType, TypeVar

import pandas as pd
import pytest
from pydantic import AfterValidator, BaseModel, computed_field
from typing_extensions import TypeAliasType, TypedDict, Unpack

from rein_nb.ir import ToolCall
from rein_nb.tools import Tool, Toolset, execute
from rein_nb.tools.callables import callable_name
from rein_nb.tools.names import ToolDefinitionError
from rein_nb.tools.threads import ToolStopped
from rein_nb.tools.tool import Outcome

CALL = ToolCall(id="1", name="work", arguments={})


async def outcome_of(make: Callable[[], Any], is_async: bool = False, **options: Any) -> Outcome:
    """The outcome of a tool that returns what `make` makes, or raises what it raises."""

    async def later() -> Any:
        return make()

    return await asyncio.wait_for(Tool(later if is_async else make, name="work", **options).execute(CALL), 10)


# -- exceptions --------------------------------------------------------------------------------------


class Slow(Exception):
    """Whose text is made in a thread that it remembers."""

    threads: ClassVar[list[int]] = []

    def __str__(self) -> str:
        self.threads.append(threading.get_ident())
        return "slow"


@pytest.mark.parametrize("is_async", [False, True])
async def test_an_exceptions_text_is_not_made_on_the_loop(is_async: bool) -> None:
    def work() -> None:
        raise Slow

    Slow.threads.clear()
    outcome = await outcome_of(work, is_async)
    assert outcome.result.text == "Error: Slow: slow"
    assert outcome.result.details["error"] == "Slow"
    assert Slow.threads
    assert threading.get_ident() not in Slow.threads


class NoNotes(Exception):
    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise KeyError("notes")


class NoParts(ExceptionGroup[Exception]):
    @property
    def exceptions(self) -> Any:
        raise ZeroDivisionError


class NoText(Exception):
    def __str__(self) -> str:
        raise asyncio.CancelledError


class NoExit(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class Odd(BaseException):
    """Neither an error nor an order."""


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    "make",
    [
        NoNotes, lambda: NoParts("c", [ValueError()]), NoText, NoExit, Odd, ToolStopped, lambda: SystemExit(2), StopIteration,
    ],
)  # fmt: skip
async def test_no_exception_of_a_tool_gets_past_its_result(make: Callable[[], BaseException], is_async: bool) -> None:
    def work() -> None:
        raise make()

    outcome = await outcome_of(work, is_async)
    assert outcome.result.status == "error"
    assert outcome.ends_run is None
    assert outcome.result.text.startswith("Error: ")


@pytest.mark.parametrize("is_async", [False, True])
async def test_a_repr_that_raises_something_odd_keeps_the_value(is_async: bool) -> None:
    class Thing:
        def __repr__(self) -> str:
            raise Odd("no")

    thing = Thing()
    outcome = await outcome_of(lambda: thing, is_async)
    assert outcome.value is thing
    assert "returned a Thing that cannot be shown: Odd: no" in outcome.result.text


# -- awaitables --------------------------------------------------------------------------------------


async def three() -> int:
    return 3


async def gives(value: Any) -> Any:
    return value


class Itself:
    """As some connection pools: awaiting it gives it again."""

    def __await__(self) -> Generator[Any, None, Itself]:
        yield from asyncio.sleep(0).__await__()
        return self

    def __repr__(self) -> str:
        return "itself"


async def items() -> AsyncIterator[int]:
    yield 1
    yield 2


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: gives(three()), "3"),
        (lambda: gives(gives(three())), "3"),
        (items, "[1, 2]"),
        (lambda: gives(items()), "[1, 2]"),
        (Itself, "itself\n[shown as text: Itself has no JSON form]"),
    ],
)
async def test_what_is_only_begun_is_finished(make: Callable[[], Awaitable[Any]], text: str, is_async: bool) -> None:
    def work() -> Any:
        return make()

    assert (await outcome_of(work, is_async)).result.text == text


async def test_the_time_of_a_thread_counts_for_the_coroutine_that_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float | None] = []
    guarded = execute.run_guarded

    async def watched(start: Any, token: Any, timeout_s: float | None, notice_s: float = 0.0) -> Any:
        given.append(timeout_s)
        return await guarded(start, token, timeout_s, notice_s)

    monkeypatch.setattr(sys.modules["rein_nb.tools.tool"], "run_guarded", watched)
    let_go = threading.Event()

    def work() -> Any:
        let_go.wait(0.05)
        return three()

    outcome = await outcome_of(work, timeout_s=5)
    assert outcome.result.text == "3"
    first, second = given
    assert first == 5
    assert second is not None
    assert second <= 4.96


# -- what is quick -----------------------------------------------------------------------------------


# -- values ------------------------------------------------------------------------------------------

PNG = b"\x89PNG\r\n\x1a\n" + b"0" * 20


class Names(dict[str, Any]):
    """A dict whose keys are its attributes, as many write it."""

    __getattr__ = dict.__getitem__


class Shy:
    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        return "shy"


class Color(str, enum.Enum):
    RED = "red"


class Loud(str):
    __slots__ = ()

    def __str__(self) -> str:
        raise ValueError


class LiesAboutLength(dict[str, int]):
    def __len__(self) -> int:
        raise ZeroDivisionError


class WrongTime(dt.tzinfo):
    def utcoffset(self, when: dt.datetime | None) -> dt.timedelta:
        raise ValueError("no time")

    dst = utcoffset

    def tzname(self, when: dt.datetime | None) -> str:
        return "wrong"


class FailsToCompute(BaseModel):
    a: int = 1

    @computed_field  # type: ignore[prop-decorator]
    @property
    def b(self) -> int:
        raise KeyError("b")


@dataclasses.dataclass
class HalfMade:
    a: int = 1
    b: int = dataclasses.field(init=False)


@pytest.mark.parametrize(
    ("value", "data"),
    [
        (Names(a=1), {"a": 1}),
        ([Names(a=1)], [{"a": 1}]),
        ([Color.RED, {Color.RED: 1}], ["red", {"red": 1}]),
        ([Loud("abc"), {Loud("k"): 1}], ["abc", {"k": 1}]),
        (FailsToCompute(), {"a": 1}),
        (HalfMade(), {"a": 1}),
    ],
    ids=["names", "names-in-a-list", "enum", "string", "model", "dataclass"],
)
async def test_odd_values_are_what_they_hold(value: Any, data: Any) -> None:
    result = (await outcome_of(lambda: value)).result
    assert (result.status, result.details) == ("ok", data)


async def test_a_string_of_an_enum_and_of_another_class_is_its_characters() -> None:
    assert (await outcome_of(lambda: Color.RED)).result.text == "red"
    assert (await outcome_of(lambda: Loud("abc"))).result.text == "abc"


class NoClassThing:
    @property
    def __class__(self) -> Any:
        raise KeyError("class")

    @__class__.setter
    def __class__(self, value: Any) -> None: ...

    def __repr__(self) -> str:
        return "classless"


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Shy, "shy"),
        (lambda: [Shy(), 1], "[shy, 1]"),
        (NoClassThing, "classless"),
        (lambda: dt.datetime(2020, 1, 1, tzinfo=WrongTime()), "datetime.datetime(2020, 1, 1, 0, 0, tzinfo="),
        (lambda: range(10**12), "range(0, 1000000000000)"),
    ],
)
async def test_what_fails_to_be_data_is_text(make: Callable[[], Any], text: str, is_async: bool) -> None:
    result = (await outcome_of(lambda: make(), is_async)).result
    assert result.status == "ok"
    assert result.text.startswith(text)
    assert "[shown as text: " in result.text


class Figure:
    def savefig(self, target: Any, **options: Any) -> None:
        target.write(PNG)

    def __repr__(self) -> str:
        return "figure"


@dataclasses.dataclass
class Report:
    figure: Figure
    words: str


async def test_what_has_a_figure_and_more_is_not_only_the_figure() -> None:
    assert "precious" in (await outcome_of(lambda: Report(Figure(), "precious"))).result.text


async def test_pictures_in_a_list_may_be_any_bytes_and_the_list_in_itself() -> None:
    result = (await outcome_of(lambda: [bytearray(PNG), memoryview(PNG)])).result
    assert [part.type for part in result.content] == ["media", "media"]
    around: list[Any] = [PNG]
    around.append(around)
    assert (await outcome_of(lambda: around)).result.status == "ok"


async def test_labels_and_columns_may_have_any_name() -> None:
    series = (await outcome_of(lambda: pd.Series({"columns": 1, "figure": 2}))).result
    assert series.details["index"] == ["columns", "figure"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        frame = (await outcome_of(lambda: pd.DataFrame([[1, 2.5], [3, None]], columns=["a", "a"]))).result
    assert (frame.details["columns"], frame.details["data"]) == (["a", "a"], [[1, 2.5], [3, "NaN"]])


# -- signatures --------------------------------------------------------------------------------------


class Answers:
    """An object that answers to every name, as a proxy of a remote server does."""

    def __getattr__(self, name: str) -> Answers:
        return Answers()

    def __call__(self, x: int = 1) -> int:
        return x


def test_what_answers_to_every_name_or_wraps_itself_is_refused_and_not_followed_for_ever() -> None:
    def around(a: int) -> int:
        return a

    around.__wrapped__ = around  # type: ignore[attr-defined]
    assert callable_name(Answers()) == "Answers"
    for thing in (Answers(), Answers().add, around):
        with pytest.raises(ToolDefinitionError):
            Tool(thing)


@pytest.mark.parametrize("annotation", [5, [int], "a b", "1/0", "int.no", "5"])
def test_what_is_no_type_is_refused_with_the_parameters_name(annotation: Any) -> None:
    def work(x: Any) -> None: ...

    work.__annotations__["x"] = annotation
    with pytest.raises(ToolDefinitionError, match="'x'"):
        Tool(work)


T = TypeVar("T")
Numbers = TypeAliasType("Numbers", Iterable[int])
Several = TypeAliasType("Several", Iterable[T], type_params=(T,))
Tree = TypeAliasType("Tree", "list[Tree | int]")
New = NewType("New", Iterable[int])  # type: ignore[misc]


class Keywords(TypedDict):
    x: Iterable[int]


def by_alias(x: Numbers) -> None: ...
def by_generic(x: Several[int] | None) -> None: ...
def by_new_type(x: New) -> None: ...
def by_keywords(**more: Iterable[int]) -> None: ...
def by_typed_dict(**more: Unpack[Keywords]) -> None: ...
def by_tree(x: Tree) -> None: ...


@pytest.mark.parametrize("work", [by_alias, by_generic, by_new_type, by_keywords, by_typed_dict, by_tree])
async def test_items_are_checked_before_the_call_under_any_name(work: Callable[..., None]) -> None:
    made = Tool(work)
    good = await made.call(ToolCall(id="1", name=made.name, arguments={"x": [1, 2]}))
    bad = await made.call(ToolCall(id="1", name=made.name, arguments={"x": [1, "two"]}))
    assert (good.status, bad.details) == ("ok", {"invalid_arguments": True, "started": False})


# -- toolsets ----------------------------------------------------------------------------------------


def named(*names: str) -> list[Tool]:
    def work() -> None: ...

    return [Tool(work, name=name) for name in names]


def test_a_toolset_that_is_reached_by_many_ways_is_looked_at_once() -> None:
    base = toolset = Toolset(named("a", "b"))
    for _ in range(40):  # 2 ** 40 ways
        toolset = Toolset([toolset.filtered(["a"]), toolset.filtered(lambda made: made.name != "a")])
    assert toolset.names == ["a", "b"]
    base.add(named("c")[0])
    assert toolset.names == ["a", "b", "c"]
    with pytest.raises(ToolDefinitionError, match="contain itself"):
        base.add(toolset)


def test_two_toolsets_cannot_be_put_into_each_other_at_once() -> None:
    first, second = Toolset(named("a")), Toolset(named("b"))
    inside, go_on = threading.Event(), threading.Event()

    def hold(made: Tool) -> bool:
        if made.name == "d":
            inside.set()
            go_on.wait(5)
        return True

    more = Toolset(named("c"))
    slow = Toolset([more.filtered(hold), second])
    more.add(named("d")[0])

    def put() -> None:
        first.add(slow)

    def put_back() -> None:
        with pytest.raises(ToolDefinitionError):
            second.add(first)

    threads = [threading.Thread(target=put, daemon=True), threading.Thread(target=put_back, daemon=True)]
    threads[0].start()
    assert inside.wait(5)
    threads[1].start()
    threads[1].join(0.1)  # it waits for the first
    go_on.set()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert first.names == ["a", "c", "d", "b"]


# -- threads -----------------------------------------------------------------------------------------


async def test_a_thread_that_catches_its_end_is_stopped_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "THREAD_GRACE_S", 0.01)
    monkeypatch.setattr(execute, "AGAIN_S", 0.01)
    caught: list[BaseException] = []
    gone = threading.Event()

    def work() -> None:
        try:
            while len(caught) < 3:
                try:
                    while True:
                        time.sleep(0.001)
                except BaseException as exc:  # as a bare except in a loop of retries does
                    caught.append(exc)
        finally:
            gone.set()

    outcome = await outcome_of(work, timeout_s=0.05)
    assert outcome.result.status == "timed_out"
    assert await asyncio.to_thread(gone.wait, 10)
    assert [type(exc) for exc in caught] == [ToolStopped] * 3


@pytest.mark.parametrize("kind", [KeyError, SystemExit, asyncio.CancelledError, GeneratorExit, Odd, RecursionError])
async def test_whatever_a_validator_raises_is_the_calls_error(kind: type[BaseException]) -> None:
    def refuse(x: int) -> int:
        raise kind

    def work(x: int) -> None: ...

    work.__annotations__["x"] = Annotated[int, AfterValidator(refuse)]
    result = await Tool(work).call(ToolCall(id="1", name="work", arguments={"x": 1}))
    assert (result.status, result.details["error"]) == ("error", kind.__name__)
