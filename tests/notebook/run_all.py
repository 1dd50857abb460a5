"""Run All: fifty cells are queued at once, agents in every form among them; every output must come, and in its own cell.

python -m tests.notebook.run_all            # 20 times
python -m tests.notebook.run_all 3
"""

from __future__ import annotations

import json
import re
import sys
import time

from tests.notebook.kernel import Kernel

SETUP = """
%load_ext rein_nb
import asyncio, threading, time
from rein_nb import Agent, ToolCall
from rein_nb.testing import ScriptedProvider
def look(mark: str) -> str:
    "Looks something up."
    time.sleep(0.01)
    return f"found-{mark}"
def answer(request):
    text = request.messages[-1].text
    if request.messages[-1].role == "user" and "tool" in text:
        return [ToolCall(id=text, name="look", arguments={"mark": text.split()[-1]})]
    return f"heard {text.split()[-1] if request.messages[-1].role == 'user' else 'the tool'}"
echo = ScriptedProvider.llm(answer, repeat=True)
agent = Agent(echo, tools=[look])
"""

FORMS = (
    "print('plain {m}')",
    "%%agent -m echo --session {m}\n{m}",
    "agent.fork(messages=None).run('{m}')",
    "await agent.fork(messages=None).arun('{m}')",
    "%%agent -m echo --tools look --session {m}\ntool {m}",
    "%agent -m echo --session {m} {m}",
    "%%agent -m echo --session {m} --background\n{m}",
    "x = agent.fork(messages=None).run('{m}')\nprint(x.text)",
    "print('before {m}')\nagent.fork(messages=None).run('tool {m}')",
    "'{m}'",
)
"""Forms of a cell; each shows its own mark and no other."""


def run_all(kernel: Kernel, cells: int = 50, timeout_s: float = 120) -> list[str]:
    """Queue that many cells and wait for them; what was dropped or misplaced."""
    marks = [f"mark{time.time_ns() % 10**9}x{number}" for number in range(cells)]
    sent = [kernel.send(FORMS[number % len(FORMS)].format(m=mark)) for number, mark in enumerate(marks)]

    def shown(number: int) -> str:
        cell = sent[number]
        return cell.text + "".join(str(data) for output in cell.outputs for data in output["data"].values())

    def whole() -> bool:
        # A background run may end after its cell.
        return all(cell.done and marks[n] in shown(n) and "Agent run…" not in shown(n) for n, cell in enumerate(sent))

    try:
        kernel.until(whole, timeout_s)
    except TimeoutError:
        pass  # what is missing is told below
    faults = []
    for number, mark in enumerate(marks):
        found = set(re.findall(r"mark\d+x\d+", shown(number)))
        form = FORMS[number % len(FORMS)].split("\n")[0]
        if not sent[number].done or mark not in found:
            faults.append(f"cell {number} ({form}): dropped; {sent[number].error}")
        if found - {mark}:
            faults.append(f"cell {number} ({form}): shows {sorted(found - {mark})}")
        if "Agent run…" in shown(number):
            faults.append(f"cell {number} ({form}): never became static")
    return faults + [f"stray output: {stray}" for stray in kernel.strays]


def main() -> None:
    """Run all, as often as the command line says."""
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    faults: list[str] = []
    started = time.monotonic()
    with Kernel() as kernel:
        kernel.run(SETUP)
        for _ in range(times):
            faults += run_all(kernel)
    print(
        json.dumps(
            {
                "figure": "run_all",
                "times": times,
                "cells": 50,
                "faults": faults,
                "wall_s": round(time.monotonic() - started),
            }
        )
    )
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
