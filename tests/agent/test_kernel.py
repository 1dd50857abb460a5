"""In a real kernel: every form works in a cell, and an interrupt stops the run within seconds and leaves the agent usable."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support import REPO

SETUP = """
import asyncio, sys, time
from rein_nb.agent import Agent
from rein_nb.ir import ToolCall
from rein_nb.testing import ScriptedProvider
async def slow(): await asyncio.sleep(60)
def slow_sync(): time.sleep(5)
def make(name): return Agent(ScriptedProvider.llm([ToolCall(id="1", name=name)], "fine", repeat=True), [slow, slow_sync])
agents = {name: make(name) for name in ("slow", "slow_sync")}
plain = Agent(ScriptedProvider.llm("ok", repeat=True, delay_s=0.01))
"""


class Kernel:
    def __init__(self, manager: Any, client: Any) -> None:
        self.manager = manager
        self.client = client

    def run(
        self, code: str, interrupt_after: float | None = None, limit: float = 30.0
    ) -> tuple[list[str], list[str], float]:
        """(printed lines, error names, seconds from the interrupt to the end of the cell)."""
        message = self.client.execute(code)
        started = time.monotonic()
        interrupted: float | None = None
        printed: list[str] = []
        errors: list[str] = []
        while time.monotonic() - started < limit:
            if interrupt_after is not None and interrupted is None and time.monotonic() - started > interrupt_after:
                self.manager.interrupt_kernel()
                interrupted = time.monotonic()
            try:
                reply = self.client.get_iopub_msg(timeout=0.05)
            except Exception:  # the queue's own Empty, which the client does not name
                continue
            if reply["parent_header"].get("msg_id") != message:
                continue
            content = reply["content"]
            if reply["msg_type"] == "stream":
                printed.extend(content["text"].splitlines())
            elif reply["msg_type"] == "error":
                errors.append(content["ename"])
            elif reply["msg_type"] == "status" and content["execution_state"] == "idle":
                return printed, errors, time.monotonic() - interrupted if interrupted else 0.0
        raise AssertionError(f"the cell did not end within {limit} s: {code}")


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    manager_module = pytest.importorskip("jupyter_client.manager")
    pytest.importorskip("ipykernel")
    manager, client = manager_module.start_new_kernel(kernel_name="python3", cwd=str(REPO))
    try:
        made = Kernel(manager, client)
        assert made.run(SETUP)[1] == []
        yield made
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_C109_every_form_works_in_a_cell(kernel: Kernel) -> None:
    for code, expected in (
        ("print(plain.run('hi').text)", ["ok"]),
        ("print((await plain.arun('hi')).text)", ["ok"]),
        ("def helper():\n    return plain.run('hi').text\nprint(helper())", ["ok"]),
        ("task = asyncio.create_task(plain.arun('hi'))", []),
        ("print(plain.run('again').text, (await task).text)", ["ok ok"]),
        ("print((await plain.start('hi')).text, plain.start('hi').result().text)", ["ok ok"]),
        ("print(len(plain.messages))", ["14"]),
    ):
        printed, errors, _ = kernel.run(code)
        assert errors == [], code
        assert printed == expected, code


@pytest.mark.parametrize("tool", ["slow", "slow_sync"])
@pytest.mark.parametrize("form", ["await agents[{0!r}].arun('x')", "agents[{0!r}].run('x')"])
def test_C112_an_interrupt_ends_the_cell_and_the_next_cell_works(kernel: Kernel, tool: str, form: str) -> None:
    kernel.run(f"agents[{tool!r}] = make({tool!r})")
    _, errors, latency = kernel.run(form.format(tool), interrupt_after=1.0)
    assert errors
    assert set(errors) <= {"CancelledError", "KeyboardInterrupt"}
    assert latency < 4.0, "2 s on a quiet machine"
    state = (
        f"agent = agents[{tool!r}]\n"
        "print(agent.messages[-1].tool_results[0].status)\n"
        "print([t for t in asyncio.all_tasks() if 'rein_nb' in repr(t.get_coro())])\n"
        "print((await agent.arun('hello')).text)\n"
    )
    printed, errors, _ = kernel.run(state)
    assert errors == []
    assert printed == ["interrupted", "[]", "fine"]
