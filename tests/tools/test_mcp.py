"""Tools of a real MCP server process, over stdio and streamable HTTP."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rein_nb import aio
from rein_nb.agent import Agent
from rein_nb.ir import InvalidRequest, MediaPart, ToolCall, ToolResult
from rein_nb.stream import CancellationToken
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import ToolContext, Toolset
from rein_nb.tools.mcp import MCPError, MCPServer
from rein_nb.tools.mcp.naming import tool_names

pytest.importorskip("mcp")

SCRIPT = Path(__file__).with_name("mcp_server.py")
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(SCRIPT), *(arguments or ("stdio",))]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


class HttpServer:
    """A server process on loopback."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            command("http", str(self.port)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        end = time.monotonic() + 30
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", self.port), 0.2).close()
                return
            except OSError:
                time.sleep(0.05)
        raise TimeoutError("the test server did not start")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def http() -> Iterator[HttpServer]:
    server = HttpServer()
    yield server
    server.stop()


@pytest.fixture(scope="module", params=["stdio", "http"])
def server(request: pytest.FixtureRequest) -> Iterator[MCPServer]:
    """One server for the tests of this module, entered by synchronous code and used from every test's own loop."""
    made = MCPServer(command()) if request.param == "stdio" else MCPServer(url=request.getfixturevalue("http").url)
    with made:
        yield made


async def use(tools: Toolset, name: str, ctx: ToolContext[Any] | None = None, **arguments: Any) -> ToolResult:
    call = ToolCall(id="1", name=name, arguments=arguments)
    ctx = ctx or ToolContext(call=call)
    ctx.call = call
    return await tools[name].call(call, ctx)


async def eventually(condition: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def test_schemas_pass_through_and_results_have_text_and_data(server: MCPServer) -> None:
    tools = server.toolset(prefix="t_")
    assert server.name == "test-server"
    assert server.instructions == "Be kind."
    spec = tools["t_add"].spec()
    assert spec.description == "Add two numbers."
    assert spec.parameters["properties"]["a"] == {"title": "A", "type": "integer"}
    assert spec.parameters["required"] == ["a", "b"]
    result = await use(tools, "t_add", a=2, b=3)
    assert '"total": 5' in result.text
    assert result.details == {"server": "test-server", "tool": "add", "structured": {"total": 5, "terms": [2, 3]}}
    assert not result.is_error


async def test_pictures_sounds_and_resources(server: MCPServer) -> None:
    tools = server.toolset()
    picture = await use(tools, "picture")
    assert [part.data for part in picture.content if isinstance(part, MediaPart)] == [PNG]
    media = await use(tools, "media")
    kinds = [part.kind for part in media.content if isinstance(part, MediaPart)]
    assert kinds == ["audio", "document"]
    assert "[resource memo://one]\na memo" in media.text
    assert "[resource two at memo://two]" in media.text
    assert "about 6 bytes of application/zip" in media.text or "bytes of application/zip" in media.text
    assert [found["uri"] for found in media.details["resources"]] == [
        "memo://one",
        "memo://pdf",
        "memo://zip",
        "memo://two",
    ]


async def test_errors_are_results(server: MCPServer) -> None:
    tools = server.toolset()
    failed = await use(tools, "fails")
    assert failed.status == "error"
    assert "it went wrong" in failed.text
    wrong = await use(tools, "add", a="no number")
    assert wrong.status == "error"
    assert "valid integer" in wrong.text


async def test_progress_reaches_the_context(server: MCPServer) -> None:
    seen: list[tuple[str, float | None]] = []
    ctx = ToolContext(on_progress=lambda progress: seen.append((progress.message, progress.fraction)))
    assert (await use(server.toolset(), "works", ctx, steps=4)).text == "worked"
    assert seen == [("step 1", 0.25), ("step 2", 0.5), ("step 3", 0.75), ("step 4", 1.0)]


async def test_stopping_a_call_stops_it_at_the_server(server: MCPServer, tmp_path: Path) -> None:
    tools = server.toolset()
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.3, token.cancel, "stop button")
    note = tmp_path / "note"
    started = time.monotonic()
    result = await use(tools, "sleeps", ToolContext(token=token), seconds=60, path=str(note))
    assert time.monotonic() - started < 5
    assert result.status == "interrupted"
    assert await eventually(note.exists)
    assert not (await use(tools, "add", a=1, b=1)).is_error


async def test_a_timeout_is_told(server: MCPServer, tmp_path: Path) -> None:
    tool = server.toolset()["sleeps"].with_options(timeout_s=0.3)
    call = ToolCall(id="1", name="sleeps", arguments={"seconds": 60, "path": str(tmp_path / "note")})
    assert (await tool.call(call)).status == "timed_out"
    assert await eventually((tmp_path / "note").exists)


async def test_the_toolset_follows_the_server(server: MCPServer) -> None:
    tools = server.toolset()
    view = Toolset([tools]).prefixed("x_")
    assert "shrinks" in tools
    await use(tools, "grow")
    assert await eventually(lambda: "grown" in tools and "shrinks" not in tools)
    assert "x_grown" in view
    assert (await use(tools, "grown", x=1)).text == "2"


async def test_calls_run_at_the_same_time(server: MCPServer, tmp_path: Path) -> None:
    tools = server.toolset()
    started = time.monotonic()
    results = await asyncio.gather(*(use(tools, "sleeps", seconds=0.5, path=str(tmp_path / "n")) for _ in range(5)))
    assert [result.text for result in results] == ["slept"] * 5
    assert time.monotonic() - started < 2.0


async def test_a_server_that_dies_is_an_error_and_is_started_again() -> None:
    async with MCPServer(command()) as server:
        tools = server.toolset()
        died = await use(tools, "die")
        assert died.status == "error"
        assert "was lost during the call" in died.text
        assert died.details["started"] is True
        again = await use(tools, "add", a=1, b=2)
        assert again.details["structured"]["total"] == 3


async def test_an_http_server_that_is_gone_is_an_error_until_it_is_back() -> None:
    process = HttpServer()
    async with MCPServer(url=process.url, connect_timeout_s=5.0) as server:
        tools = server.toolset()
        assert not (await use(tools, "add", a=1, b=2)).is_error
        process.stop()
        first = await use(tools, "add", a=1, b=2)
        assert first.status == "error"
        second = await use(tools, "add", a=1, b=2)
        assert second.status == "error"
        assert "cannot be reached" in second.text
        assert second.details["started"] is False
        process.start()
        assert (await use(tools, "add", a=1, b=2)).details["structured"]["total"] == 3
    process.stop()


async def test_an_agent_uses_a_server_from_any_loop(http: HttpServer) -> None:
    def scripted() -> Any:
        return ScriptedProvider.llm(ToolCall(id="1", name="m_add", arguments={"a": 20, "b": 22}), "It is 42.")

    async with MCPServer(url=http.url) as server:
        agent = Agent(scripted(), tools=server.toolset(prefix="m_"))
        result = await agent.arun("add")
        assert result.tool_runs[0].result.details["structured"]["total"] == 42
        # On the library's own loop, from a thread without one.
        second = await asyncio.to_thread(Agent(scripted(), tools=server.toolset(prefix="m_")).run, "add")
        assert second.tool_runs[0].result.details["structured"]["total"] == 42
        # On a loop of another thread.
        third = await asyncio.to_thread(
            lambda: asyncio.run(Agent(scripted(), tools=server.toolset(prefix="m_")).arun("add"))
        )
        assert third.text == "It is 42."


def test_a_server_serves_synchronous_code() -> None:
    with MCPServer(command()) as server:
        tools = server.toolset()
        agent = Agent(ScriptedProvider.llm(ToolCall(id="1", name="add", arguments={"a": 1, "b": 2}), "3"), tools=tools)
        assert agent.run("add").tool_runs[0].result.details["structured"]["total"] == 3
    closed = aio.run_sync(use(tools, "add", a=1, b=2))
    assert closed.status == "error"
    assert "it was closed" in closed.text


async def test_the_server_process_ends_with_its_block_and_leaves_nothing(tmp_path: Path) -> None:
    before = await asyncio.wrap_future(aio.submit(_tasks_at_home()))
    mark = f"mark-{tmp_path.name}"
    async with MCPServer([*command(), mark]) as server:
        assert not (await use(server.toolset(), "add", a=1, b=2)).is_error
        assert running(mark)
        assert await asyncio.wrap_future(aio.submit(_tasks_at_home())) != before
    assert not running(mark)
    assert await asyncio.wrap_future(aio.submit(_tasks_at_home())) == before


def running(mark: str) -> bool:
    return mark in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout


async def _tasks_at_home() -> list[str]:
    """What other servers of this module keep running counts too, so it is compared, not wished away."""
    return sorted(task.get_name() for task in asyncio.all_tasks() if task.get_name() == "rein_nb-mcp")


async def test_the_environment_is_not_handed_to_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTER_SECRET", "outer-value")
    async with MCPServer(command(), env={"GIVEN": "yes"}) as server:
        seen = (await use(server.toolset(), "environment")).details["structured"]
    assert seen["GIVEN"] == "yes"
    assert "OUTER_SECRET" not in seen


async def test_servers_that_cannot_be_reached_say_why() -> None:
    with pytest.raises(MCPError, match="cannot be reached") as broken:
        async with MCPServer(command("broken")):
            pass
    assert "cannot start" in str(broken.value)
    assert "sk-abc" not in str(broken.value)
    with pytest.raises(MCPError, match="did not answer within 1 s"):
        async with MCPServer(command("silent"), connect_timeout_s=1.0):
            pass
    with pytest.raises(MCPError, match="cannot be reached"):
        async with MCPServer("no-such-program-anywhere --flag"):
            pass
    with pytest.raises(MCPError, match="cannot be reached"):
        async with MCPServer(
            url=f"http://127.0.0.1:{free_port()}/mcp", headers={"Authorization": "Bearer top-secret-value"}
        ):
            pass


def test_wrong_uses_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="exactly one"):
        MCPServer()
    with pytest.raises(InvalidRequest, match="exactly one"):
        MCPServer(["x"], url="http://127.0.0.1/")
    with pytest.raises(InvalidRequest, match="headers="):
        MCPServer(["x"], headers={})
    with pytest.raises(InvalidRequest, match="empty"):
        MCPServer("")
    with pytest.raises(MCPError, match="inside its block"):
        MCPServer(["x"]).toolset()
    made = MCPServer(url="http://127.0.0.1/", headers={"Authorization": "Bearer top-secret-value"})
    assert "top-secret-value" not in repr(made) + repr(made._address)


def test_the_package_is_only_needed_when_a_server_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    with pytest.raises(MCPError, match=r"pip install 'rein-nb\[mcp\]'"), MCPServer(["x"]):
        pass


def test_names_are_kept_apart() -> None:
    originals = [
        "add",
        "a.dd",
        "a/dd",
        "a dd",
        "a_dd",
        "ADD",
        "ädd",
        "ödd",
        "",
        "…",
        "x" * 80,
        "x" * 81,
        "1st",
        "a_dd_39f7cac0",
        "deadbeef",
    ]
    for prefix in ("", "srv_", "p" * 60):
        names = tool_names(originals, prefix)
        assert len(set(names.values())) == len(originals)
        assert all(0 < len(name) <= 64 for name in names.values())
        assert names == {**tool_names(originals[::-1], prefix)}
    assert tool_names(["add"], "x_") == {"add": "x_add"}


async def test_odd_names_work(http: HttpServer) -> None:
    async with MCPServer(url=http.url) as server:
        tools = server.toolset()
        name = next(name for name in tools.names if name.startswith("with_dots"))
        result = await use(tools, name, text="kept")
        assert "kept" in result.text
        assert result.details["tool"] == "with.dots/and slashes"


def test_no_thread_is_left_but_the_loops_own() -> None:
    before = threading.active_count()
    with MCPServer(command()) as server:
        assert server.tools
    assert threading.active_count() <= before + 2
