"""Toolsets: combine, rename, filter, prefix, and grow while somebody looks."""

from __future__ import annotations

import copy
import gc
import math
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from rein_nb.ir import ToolCall
from rein_nb.tools import Tool, ToolDefinitionError, Toolset, tool


def ls(path: str = ".") -> str:
    """List."""
    return f"ls {path}"


def pwd() -> str:
    """Where."""
    return "/"


@tool(timeout_s=3)
async def ping() -> str:
    return "pong"


def test_tools_keep_their_order_and_names_are_unique() -> None:
    tools = Toolset([ls, ping, pwd])
    assert tools.names == ["ls", "ping", "pwd"]
    assert [spec.name for spec in tools.specs()] == ["ls", "ping", "pwd"]
    assert tools.get("nope") is None
    assert "ls" in tools
    assert len(tools) == 3
    with pytest.raises(ToolDefinitionError, match="already a tool named 'ls'"):
        tools.add(ls)
    with pytest.raises(KeyError, match="there are: ls, ping, pwd"):
        tools["nope"]


def test_specs_are_made_once() -> None:
    tools = Toolset([ls])
    assert tools.specs() is tools.specs()


async def test_views_rename_prefix_and_filter_without_touching_the_original() -> None:
    tools = Toolset([ls, pwd, ping])
    view = tools.filtered(["ls", "ping"]).renamed({"ls": "list_files"}).prefixed("fs_")
    assert view.names == ["fs_list_files", "fs_ping"]
    assert tools.names == ["ls", "pwd", "ping"]
    assert view["fs_ping"].timeout_s == 3
    call = ToolCall(id="1", name="fs_list_files", arguments={"path": "x"})
    assert (await view["fs_list_files"].call(call)).text == "ls x"
    refused = await view["fs_list_files"].call(ToolCall(id="1", name="fs_list_files", arguments={"nope": 1}))
    assert "Invalid arguments for fs_list_files" in refused.text
    assert tools.filtered(lambda made: made.timeout_s is not None).names == ["ping"]
    with pytest.raises(KeyError):
        tools.renamed({"nope": "x"})
    with pytest.raises(KeyError):
        tools.filtered(["nope"])


def test_a_toolset_grows_while_others_hold_views_of_it() -> None:
    tools = Toolset([ls])
    combined = Toolset([tools, ping])
    view = combined.prefixed("x_")
    assert combined.names == ["ls", "ping"]
    tools.add(pwd)
    assert combined.names == ["ls", "pwd", "ping"]
    assert view.names == ["x_ls", "x_pwd", "x_ping"]
    tools.remove("ls")
    assert view.names == ["x_pwd", "x_ping"]
    with pytest.raises(KeyError):
        tools.remove("ls")


def test_toolsets_add_up() -> None:
    assert (Toolset([ls]) + Toolset([pwd])).names == ["ls", "pwd"]
    assert Toolset([ls]).__add__([ping]).names == ["ls", "ping"]


def test_things_that_are_no_tools_are_refused() -> None:
    with pytest.raises(ToolDefinitionError, match="not a tool: int"):
        Toolset([3])


def test_one_tool_is_no_list_of_tools() -> None:
    for wrong in (ls, Tool(ls), None):
        for make in (lambda wrong=wrong: Toolset(wrong), lambda wrong=wrong: Toolset([pwd]) + wrong):
            with pytest.raises(ToolDefinitionError, match="made from a list of tools, not from one"):
                make()
    with pytest.raises(TypeError, match="prefix must be a string"):
        Toolset([ls]).prefixed(None)  # type: ignore[arg-type]


def test_a_tool_is_not_made_from_a_tool() -> None:
    with pytest.raises(ToolDefinitionError, match="'ping' is a tool already; with_options"):
        Tool(ping, name="other")


def test_a_view_lets_go_of_what_was_taken_out() -> None:
    tools = Toolset([Tool(ls)])
    view = tools.prefixed("x_")
    kept = weakref.ref(view["x_ls"])
    tools.remove("ls")
    assert view.names == []
    gc.collect()
    assert kept() is None


def test_the_decorator_keeps_the_function_usable() -> None:
    @tool(name="sum", description="Add up.", requires_approval=True, parallel_safe=False, strict=True)
    def add(a: int, b: int) -> int:
        return a + b

    assert isinstance(add, Tool)
    assert add(1, 2) == 3
    spec = add.spec()
    assert (spec.name, spec.description, spec.strict) == ("sum", "Add up.", True)
    assert add.requires_approval is True
    assert add.parallel_safe is False
    assert add.__name__ == "add"


def test_approval_may_depend_on_the_arguments() -> None:
    @tool(requires_approval=lambda arguments: arguments.get("force", False))
    def remove(path: str, force: bool = False) -> None: ...

    assert remove.needs_approval({"path": "x", "force": True})
    assert not remove.needs_approval({"path": "x"})


# -- names that collide, and names that nobody takes -----------------------------------------------


def test_a_view_never_drops_a_tool_in_silence() -> None:
    tools = Toolset([ls, pwd])
    with pytest.raises(ToolDefinitionError, match="already a tool named 'pwd'"):
        tools.renamed({"ls": "pwd"})
    assert tools.renamed({"ls": "pwd", "pwd": "ls"}).names == ["pwd", "ls"]
    with pytest.raises(ToolDefinitionError, match="already a tool named 'x'"):
        tools.renamed({"ls": "x", "pwd": "x"})
    for make in (
        lambda: tools.prefixed("no good "),
        lambda: tools.prefixed("x" * 64),
        lambda: tools.prefixed("1"),
        lambda: tools.renamed({"ls": ""}),
    ):
        with pytest.raises(ToolDefinitionError, match="not a valid tool name"):
            make()
    with pytest.raises(ToolDefinitionError, match="name must be a string, got int"):
        tools.renamed({"ls": 3})  # type: ignore[dict-item]


def test_what_grows_into_a_name_that_is_taken_is_left_out_and_told() -> None:
    tools = Toolset([ls])
    both = Toolset([tools, pwd])
    short = tools.prefixed("x" * 60)
    renamed = tools.renamed({"ls": "list"})
    tools.add(pwd)
    with pytest.warns(UserWarning, match="left out: there is already a tool named 'pwd'"):
        assert both.names == ["ls", "pwd"]
    assert short.names == ["x" * 60 + "ls", "x" * 60 + "pwd"]
    tools.add(Tool(ls, name="list"))
    with pytest.warns(UserWarning, match="left out: there is already a tool named 'list'"):
        assert renamed.names == ["list", "pwd"]
    tools.add(Tool(ls, name="longer"))
    with pytest.warns(UserWarning, match="'longer' cannot be renamed"):
        assert short.names == ["x" * 60 + name for name in ("ls", "pwd", "list")]
    with warnings.catch_warnings():  # told once, not at every turn
        warnings.simplefilter("error")
        short.specs()


def test_a_toolset_cannot_contain_itself() -> None:
    first, second = Toolset(), Toolset([ls])
    first.add(second)
    for make in (lambda: first.add(first), lambda: second.add(first), lambda: second.add(first.prefixed("x_"))):
        with pytest.raises(ToolDefinitionError, match="cannot contain itself"):
            make()
    with pytest.raises(ToolDefinitionError, match="added already"):
        first.add(second)
    assert first.names == ["ls"]


class Store:
    def __init__(self) -> None:
        self.lock = threading.Lock()

    def get(self) -> str:
        return "got"


@pytest.mark.parametrize("make", [copy.copy, copy.deepcopy])
def test_copies_grow_by_themselves(make: Callable[[Any], Any]) -> None:
    tools = Toolset([ls, Store().get])
    other = make(tools)
    assert type(other) is Toolset
    other.add(pwd)
    tools.remove("get")
    assert (tools.names, other.names) == (["ls"], ["ls", "get", "pwd"])


def test_a_deep_copy_copies_the_toolsets_within_and_calls_the_same_functions() -> None:
    inner = Toolset([ls])
    outer = Toolset([inner, inner.prefixed("x_")])
    deep = copy.deepcopy(outer)
    inner.add(pwd)
    assert outer.names == ["ls", "pwd", "x_ls", "x_pwd"]
    assert deep.names == ["ls", "x_ls"]
    shallow = copy.copy(outer)
    inner.remove("ls")
    assert shallow.names == ["pwd", "x_pwd"]
    store = Store()
    made = Tool(store.get, timeout_s=1)
    again = copy.deepcopy({"tool": made})["tool"]
    again.timeout_s = 2
    assert (made.timeout_s, again.fn.__self__) == (1, store)


# -- options ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        *(("timeout_s", value, "timeout_s must be more than 0") for value in (0, -1, math.nan, math.inf)),
        *(("timeout_s", value, "timeout_s must be a number of seconds, or None") for value in ("5", True, [1])),
        ("max_result_chars", 0, "at least 1"),
        ("max_result_chars", 10.5, "whole number"),
        ("requires_approval", "yes", "requires_approval must be True, False or a function"),
        ("parallel_safe", None, "parallel_safe must be True or False"),
        ("in_thread", 1, "in_thread must be True or False"),
        ("strict", "no", "strict must be True or False"),
        ("description", 3, "description must be a string"),
        ("name", "not a name!", "not a valid tool name"),
        ("name", 3, "name must be a string"),
        ("colour", 3, "colour"),
    ],
)
def test_options_are_checked_wherever_they_are_given(option: str, value: Any, words: str) -> None:
    def decorated() -> None:
        class Owner:
            @tool(**{option: value})
            def method(self) -> None: ...

    for make in (lambda: Tool(ls, **{option: value}), lambda: Tool(ls).with_options(**{option: value}), decorated):
        with pytest.raises((TypeError, ValueError), match=words) as told:
            make()
        assert "\n" not in str(told.value)


def test_changed_options_are_what_the_constructor_makes_of_them() -> None:
    made = Tool(ls, name="other", description="Mine.", timeout_s=1)
    plain = made.with_options(name=None, description=None, timeout_s=None)
    assert (plain.name, plain.description, plain.timeout_s) == ("ls", "List.", None)
    assert (made.name, made.description, made.timeout_s) == ("other", "Mine.", 1)
    assert plain.spec().name == "ls"
