"""Servers that break the protocol, answer too much, hang or die: real processes, over stdio."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rein_nb import aio
from rein_nb.agent import Agent
from rein_nb.ir import InvalidRequest, MediaPart, ToolCall
from rein_nb.ir.redaction import redact
from rein_nb.testing import ScriptedProvider
from rein_nb.tools import Toolset
from rein_nb.tools.mcp import MCPError, MCPServer
from rein_nb.tools.mcp.credentials import secrets_in
from rein_nb.tools.mcp.errlog import ErrorLog
from tests.tools.mcp_rude_http import CALLS, RudeHttp
from tests.tools.support import use

pytest.importorskip("mcp")

SCRIPT = Path(__file__).with_name("mcp_rude_server.py")


def rude(way: str = "", *more: str) -> list[str]:
    return [sys.executable, str(SCRIPT), way, *more]


async def eventually(condition: Any, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        await asyncio.sleep(0.02)
    return False


async def test_what_breaks_the_protocol_is_shown_and_nothing_of_it_is_lost() -> None:
    async with MCPServer(rude(), timeout_s=10.0) as server:
        tools = server.toolset()
        unknown = await use(tools, "unknown_block")
        assert unknown.status == "ok"
        assert "hologram" in unknown.text
        assert unknown.text.endswith("after")
        assert unknown.details["blocks"] == [{"index": 0, "type": "hologram", "data": "xyz"}]
        assert '"text": 5' in (await use(tools, "text_is_number")).text
        assert (await use(tools, "not_a_list")).text == "just text"
        assert (await use(tools, "bad_base64")).details["blocks"][0]["data"] == "***"
        noted = await use(tools, "noted")
        assert [block["index"] for block in noted.details["blocks"]] == [0, 1, 2]
        text, link, resource = noted.details["blocks"]
        assert text == {"index": 0, "annotations": {"audience": ["user"], "priority": 0.5}, "_meta": {"k": 1}}
        assert (link["title"], link["size"]) == ("The first", 12)
        assert resource["resource"] == {"blob": "UEsxMg=="}
        failed = await use(tools, "is_error")
        assert (failed.status, failed.text) == ("error", "it failed")
        assert (failed.details["structured"], failed.details["meta"]) == ({"code": 7}, {"trace": "t1"})


async def test_media_that_a_provider_would_refuse_stay_out_of_the_request() -> None:
    async with MCPServer(rude(), timeout_s=10.0) as server:
        result = await use(server.toolset(), "odd_media")
        assert not [part for part in result.content if isinstance(part, MediaPart)]
        assert result.details["blocks"][0]["data"] == "aGk="
        # Said to be a PNG: the model is told what it is.
        (part,) = (await use(server.toolset(), "jpeg_as_png")).content
        assert isinstance(part, MediaPart)
        assert part.mime_type == "image/jpeg"


async def test_structured_content_against_its_own_schema_is_kept() -> None:
    async with MCPServer(rude("structured"), timeout_s=10.0) as server:
        tools = server.toolset()
        wrong = await use(tools, "wrong")
        assert (wrong.status, wrong.text, wrong.details["structured"]) == ("ok", "said", {"n": "five"})
        assert (await use(tools, "missing")).text == "said"
        assert (await use(tools, "unresolved")).details["structured"] == {"n": 5}


async def test_the_whole_of_a_huge_answer_is_in_the_details() -> None:
    async with MCPServer(rude(), timeout_s=60.0) as server:
        result = await use(server.toolset(), "huge")
        assert "20,000,000 characters" in result.text
        assert len(result.text) < 50_000
        assert len(result.details["whole_text"]) == 20_000_000
        assert result.details["tool"] == "huge"


@pytest.mark.parametrize("name", ["result_is_text", "result_is_null", "deeper"])
async def test_an_unreadable_answer_ends_its_call_at_once(name: str) -> None:
    async with MCPServer(rude(), timeout_s=60.0) as server:
        started = time.monotonic()
        result = await use(server.toolset(), name)
        assert result.status == "error"
        assert "breaks the protocol" in result.text
        assert "sent" in result.details["error"]["data"]
        assert time.monotonic() - started < 30
        assert (await use(server.toolset(), "echo", a=1)).text == '{"a": 1}'


async def test_junk_between_messages_and_bytes_that_are_no_text_are_skipped(capfd: pytest.CaptureFixture[str]) -> None:
    async with MCPServer(rude(), timeout_s=20.0) as server:
        tools = server.toolset()
        assert (await use(tools, "junk")).text == "after junk"
        assert (await use(tools, "not_utf8")).text == "after bytes"
        assert (await use(tools, "surrogate")).text == "a\ufffdb"
        assert (await use(tools, "flood")).text == "flooded"
        assert (await use(tools, "noise")).text == "after noise"
        assert (await use(tools, "echo", a="\ud800")).status == "ok"
    assert "Traceback" not in capfd.readouterr().err


async def test_a_servers_own_error_does_not_end_the_connection() -> None:
    async with MCPServer(rude(), timeout_s=20.0) as server:
        tools = server.toolset()
        failed = await use(tools, "rpc_error")
        assert "The call failed" in failed.text
        assert failed.details["error"] == {
            "code": -32000,
            "message": "no: api_key=[redacted]",
            "data": {"why": "because"},
        }
        assert (await use(tools, "session_error")).status == "error"
        assert (await use(tools, "count")).text == "1"  # still the first process


async def test_requests_of_the_server_are_refused_and_the_call_goes_on() -> None:
    async with MCPServer(rude(), timeout_s=20.0) as server:
        for name in ("elicit", "sample", "roots"):
            assert "not supported" in (await use(server.toolset(), name)).text


async def test_one_impossible_tool_does_not_take_the_others_away(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "rein_nb.tools.mcp"):
        async with MCPServer(rude("lists")) as server:
            tools = server.toolset()
            assert len([name for name in tools.names if name.startswith("many_")]) == 500
            assert "array_schema" not in tools
            assert [record for record in caplog.records if "array_schema" in record.getMessage()]
            assert server.left_out == {"array_schema": "its schema describes no object, but 'array'"}
            assert tools["no_type"].spec().parameters["type"] == "object"
            assert tools["two_types"].spec().parameters["type"] == "object"
            assert len(set(tools.names)) == len(tools)
            assert (await use(tools, "many_499")).text == "many_499"


@pytest.mark.parametrize("way", ["silent_relist", "error_relist"])
async def test_a_list_that_cannot_be_read_again_hinders_nothing(way: str) -> None:
    async with MCPServer(rude(way), timeout_s=20.0, connect_timeout_s=3.0) as server:
        tools = server.toolset()
        assert (await use(tools, "changes")).text == "changed"
        await asyncio.sleep(0.3)
        assert (await use(tools, "echo", a=1)).text == '{"a": 1}'
        with pytest.raises(MCPError, match="cannot be reached"):
            await server.refresh()
        started = time.monotonic()
    assert time.monotonic() - started < 5


async def test_a_server_that_always_says_that_it_changed_is_not_asked_all_the_time() -> None:
    async with MCPServer(rude("always_changing"), timeout_s=20.0) as server:
        await asyncio.sleep(1.0)
        assert int((await use(server.toolset(), "count")).text) < 12


async def test_a_list_without_end_and_a_long_name() -> None:
    async with MCPServer(rude("endless")) as server:
        assert "echo" in server.toolset()
    async with MCPServer(rude("long_name")) as server:
        assert len(server.name) == 100


async def test_closing_ends_calls_that_wait(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    server = MCPServer(rude("", mark), timeout_s=60.0)
    await server.__aenter__()
    waiting = asyncio.create_task(use(server.toolset(), "never"))
    await asyncio.sleep(0.2)
    await server.__aexit__(None, None, None)
    result = await asyncio.wait_for(waiting, 10)
    assert result.status == "error"
    assert result.details["started"] is True
    await server.__aexit__(None, None, None)  # twice does no harm
    assert not running(mark)


async def test_closing_while_it_connects_anew_leaves_no_process(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    server = MCPServer(rude("second_silent", str(tmp_path / "started"), mark), timeout_s=60.0, connect_timeout_s=30.0)
    await server.__aenter__()
    tools = server.toolset()
    assert "was lost" in (await use(tools, "die")).text
    calls = [asyncio.create_task(use(tools, "echo")) for _ in range(3)]
    assert await eventually(lambda: running(mark))
    await server.__aexit__(None, None, None)
    results = await asyncio.wait_for(asyncio.gather(*calls), 10)
    assert [result.details["started"] for result in results] == [False] * 3
    assert await eventually(lambda: not running(mark))


async def test_calls_that_wait_for_a_new_connection_fail_together(tmp_path: Path) -> None:
    async with MCPServer(rude("second_silent", str(tmp_path / "started")), connect_timeout_s=2.0) as server:
        tools = server.toolset()
        await use(tools, "die")
        started = time.monotonic()
        results = await asyncio.gather(*(use(tools, "echo") for _ in range(8)))
        assert all("cannot be reached" in result.text for result in results)
        assert time.monotonic() - started < 10


async def test_an_approval_judges_the_arguments_as_the_server_gets_them() -> None:
    seen: list[dict[str, Any]] = []

    def judge(arguments: dict[str, Any]) -> bool:
        seen.append(arguments)
        return False

    async with MCPServer(rude()) as server:
        tools = server.toolset(approve=judge)
        agent = Agent(
            ScriptedProvider.llm(ToolCall(id="1", name="echo", arguments={"arguments": "mine", "x": 1}), "done"),
            tools=tools,
        )
        result = await agent.arun("go")
        assert result.tool_runs[0].result.text == '{"arguments": "mine", "x": 1}'
    assert seen == [{"arguments": "mine", "x": 1}]


async def test_a_tool_that_was_added_to_a_servers_toolset_stays() -> None:
    def mine() -> str:
        """My own."""
        return "mine"

    async with MCPServer(rude()) as server:
        tools = server.toolset()
        tools.add(mine)
        await server.refresh()
        assert "mine" in tools


async def test_toolsets_that_nobody_has_are_not_kept() -> None:
    async with MCPServer(rude()) as server:
        for _ in range(20):
            server.toolset()
        kept = server.toolset()
        gc.collect()
        assert list(server._views) == [kept]


def test_what_is_secret_in_an_address_is_masked_and_ordinary_words_are_not() -> None:
    found = list(
        secrets_in(
            ["serve", "--api-key", "k-value-1", "--token=t-value-2", "--port", "8000", "--keys", "x"],
            {"GITHUB_TOKEN": "t-value-3", "HOME": "/root", "MONKEY": "banana"},
            {"Authorization": "Basic dXNlcjpwYXNz", "Accept": "application/json", "X-Mine": "h-value-4"},
        )
    )
    assert found == ["dXNlcjpwYXNz", "h-value-4", "t-value-3", "k-value-1", "t-value-2"]
    made = MCPServer(["serve", "--password", "pass-value-5"], env={"MY_SECRET": "env-value-6"})
    assert "value-5" not in repr(made)
    assert "value-6" not in repr(made._address) + redact("it said env-value-6")
    MCPServer(url="http://127.0.0.1/", headers={"Accept": "text/event-stream"})
    assert redact("text/event-stream") == "text/event-stream"


def test_a_time_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="timeout_s"):
        MCPServer(["x"], timeout_s=0)
    with pytest.raises(InvalidRequest, match="connect_timeout_s"):
        MCPServer(["x"], connect_timeout_s=-1)


@pytest.mark.skipif(sys.platform == "win32", reason="files are cut under a writer on POSIX only")
def test_the_log_of_a_servers_errors_does_not_grow_without_end() -> None:
    with ErrorLog() as errors:
        writer = subprocess.Popen(
            [sys.executable, "-c", "import sys\nfor line in sys.stdin: print(line * 300_000, file=sys.stderr, flush=True); print('ok', flush=True)"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors.fileno(), text=True,
        )  # fmt: skip
        assert writer.stdin is not None
        assert writer.stdout is not None
        for _ in range(4):
            writer.stdin.write("noise\n")
            writer.stdin.flush()
            writer.stdout.readline()
            errors.trim()
            assert os.fstat(errors.fileno()).st_size < 1_000_000
        writer.stdin.close()
        writer.wait()
        assert errors.tail().endswith("noise")


@pytest.mark.parametrize("way", ["", "stubborn"])
def test_a_server_that_was_never_closed_ends_with_the_process(way: str, tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    code = f"from rein_nb.tools.mcp import MCPServer\nMCPServer({rude(way, mark)!r}).__enter__()\nprint('entered')"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("entered\n", "", 0)
    assert not running(mark)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_has_a_connection_of_its_own() -> None:
    code = f"""
import os
from rein_nb import aio
from rein_nb.ir import ToolCall
from rein_nb.tools.mcp import MCPServer
with MCPServer({rude()!r}, timeout_s=20.0) as server:
    call = ToolCall(id="1", name="echo", arguments={{"a": 1}})
    child = os.fork()
    print(aio.run_sync(server.toolset()["echo"].call(call)).text, flush=True)
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
"""
    ended = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=60)
    assert ended.stdout == '{"a": 1}\n' * 2, ended.stderr


@pytest.mark.parametrize(("status", "words"), [(401, "HTTP 401 Unauthorized"), (500, "HTTP 500"), (404, "HTTP 404")])
async def test_what_an_http_server_refuses_with_is_told(status: int, words: str) -> None:
    with RudeHttp(status) as http, pytest.raises(MCPError, match=words):
        async with MCPServer(url=http.url, connect_timeout_s=10.0):
            pass


async def test_faults_of_http_are_results_and_the_server_stays_usable() -> None:
    with RudeHttp() as http:
        async with MCPServer(url=http.url, timeout_s=20.0, headers={"X-Mine": "header-value-9"}) as server:
            tools = server.toolset()
            broken = await use(tools, "html_500")
            assert "HTTP 500" in broken.text
            body = broken.details["error"]["data"]["http"]["body"]
            assert body == "<html>Internal error: api_key=[redacted]</html>"
            inside = await use(tools, "json_500")
            assert "broken inside" in inside.text
            assert inside.details["error"]["data"]["data"] == 7
            for name in CALLS:
                if name not in ("silent_sse", "fine"):
                    result = await use(tools, name)
                    assert (name, result.status, result.details["started"]) == (name, "error", True)
                    assert "header-value-9" not in result.model_dump_json()
            assert (await use(tools, "fine")).text == "fine"
            silent = await tools["silent_sse"].with_options(timeout_s=0.3).call(ToolCall(id="1", name="silent_sse"))
            assert silent.status == "timed_out"
            assert (await use(tools, "fine")).text == "fine"
        assert http.headers[-1]["X-Mine"] == "header-value-9"


async def test_many_servers_threads_and_forks_at_once_leave_nothing_behind(tmp_path: Path) -> None:
    mark = f"mark-{tmp_path}"
    servers = [MCPServer(rude("", mark), timeout_s=30.0) for _ in range(4)]
    await asyncio.gather(*(server.__aenter__() for server in servers))
    tools = Toolset([server.toolset(f"s{n}_") for n, server in enumerate(servers)])

    def agent() -> Agent:
        calls = [ToolCall(id=str(n), name=f"s{n}_echo", arguments={"n": n}) for n in range(4)]
        return Agent(ScriptedProvider.llm(calls, "done", repeat=True), tools=tools)

    # One agent's forks on this loop, one on the loop of another thread, one from a thread without a loop.
    first = agent()
    ends = await asyncio.gather(
        *(fork.arun("go") for fork in (first.fork(), agent().fork())),
        asyncio.to_thread(lambda: asyncio.run(agent().arun("go"))),
        asyncio.to_thread(agent().run, "go"),
    )
    for end in ends:
        assert [run.result.text for run in end.tool_runs] == [f'{{"n": {n}}}' for n in range(4)]
    await asyncio.gather(*(use(tools, f"s{n}_die") for n in range(4)))
    assert [(await use(tools, f"s{n}_echo", n=n)).status for n in range(4)] == ["ok"] * 4
    await asyncio.gather(*(server.__aexit__(None, None, None) for server in servers))
    assert not running(mark)
    left = await asyncio.wrap_future(aio.submit(_left()))
    assert left == []


async def _left() -> list[str]:
    """Tasks of servers on the library's loop."""
    await asyncio.sleep(0.05)
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    return [repr(task) for task in tasks if "mcp" in repr(task)]


def running(mark: str) -> bool:
    return mark in subprocess.run(["ps", "-ewwo", "args"], capture_output=True, text=True, check=True).stdout


async def test_a_server_that_sends_ids_back_as_text_is_understood() -> None:
    async with MCPServer(rude("text_ids"), timeout_s=10.0) as server:
        noted = await use(server.toolset(), "noted")
        assert (noted.status, noted.details["blocks"][0]["_meta"]) == ("ok", {"k": 1})
        assert (await use(server.toolset(), "not_a_list")).text == "just text"
