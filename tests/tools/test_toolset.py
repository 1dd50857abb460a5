"""Toolsets: combine, rename, filter, prefix, and grow while somebody looks."""

from __future__ import annotations

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
