"""Threads of synchronous tools: one for each piece of work at a time, used again, and gone when there is no more work."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Any

from rein_nb.ir import ToolCall
from rein_nb.stream import CancellationToken
from rein_nb.tools import Tool, ToolContext
from tests.support import REPO
from tests.tools.test_execution import eventually, tool_threads


async def run(tool: Tool, token: CancellationToken | None = None) -> Any:
    call = ToolCall(id="1", name=tool.name)
    return await tool.call(call, ToolContext(call=call, token=token or CancellationToken()))


def me() -> str:
    return str(threading.get_ident())


async def test_one_call_after_another_is_done_by_one_thread_and_it_ends() -> None:
    assert await eventually(lambda: tool_threads() == 0)
    # The thread is free a moment after its result is there.
    seen = set()
    for _ in range(10):
        seen.add((await run(Tool(me))).text)
        await asyncio.sleep(0.02)
    assert len(seen) <= 2
    assert await eventually(lambda: tool_threads() == 0)


async def test_calls_at_the_same_time_have_threads_of_their_own() -> None:
    meeting = threading.Barrier(12, timeout=20)

    def meet() -> str:
        meeting.wait()
        return me()

    results = await asyncio.gather(*(run(Tool(meet)) for _ in range(12)))
    assert len({result.text for result in results}) == 12


async def test_a_thread_that_was_stopped_from_outside_does_no_other_work() -> None:
    stopped: list[str] = []

    def spin() -> None:
        stopped.append(me())
        while True:
            time.sleep(0.001)

    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.05, token.cancel)
    assert (await run(Tool(spin), token)).status == "interrupted"
    assert await eventually(lambda: not any(str(t.ident) in stopped for t in threading.enumerate()))
    assert (await run(Tool(me))).status == "ok"


async def test_a_tool_that_failed_leaves_its_thread_as_good_as_new() -> None:
    def broken() -> None:
        raise SystemExit(3)

    for _ in range(3):
        assert (await run(Tool(broken))).status == "error"
        assert (await run(Tool(me))).status == "ok"


def test_a_forked_child_starts_threads_of_its_own() -> None:
    program = """
import asyncio, os, sys
from rein_nb.ir import ToolCall
from rein_nb.tools import Tool
def add() -> int: return 3
async def once(): return (await Tool(add).call(ToolCall(id="1", name="add"))).text
async def main():
    assert await once() == "3"
asyncio.run(main())
pid = os.fork()
if pid == 0:
    ok = asyncio.run(asyncio.wait_for(once(), 20)) == "3"
    os._exit(0 if ok else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=60, cwd=REPO, check=False).returncode == 0


def test_a_thread_is_stopped_though_the_loop_that_waited_for_it_is_closed() -> None:
    going = threading.Event()

    def spin() -> None:
        while True:
            time.sleep(0.001)
            going.set()

    result = asyncio.run(run(Tool(spin, timeout_s=0.1)))
    assert result.status == "timed_out"
    for _ in range(500):
        if not any(thread.name == "rein_nb-tool-spin" for thread in threading.enumerate()):
            break
        time.sleep(0.01)
    else:
        raise AssertionError("it goes on")
    assert going.is_set()
