"""The kernel matrix: what must hold in every ipykernel, checked over the kernel's own sockets. One JSON line a kernel.

python -m tests.notebook.kernels                    # 6.31.0, 7.0.1, 7.3.0 in environments made with uv, and the installed one
python -m tests.notebook.kernels 6.31.0 installed
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.notebook.kernel import PYTHON, Kernel, environment

VERSIONS = ("6.31.0", "7.0.1", "7.3.0", "installed")

SETUP = """
%load_ext rein_nb
import time, threading, asyncio
from rein_nb import Agent, ToolCall, tool
from rein_nb.agent.events import AgentEnd
from rein_nb.testing import ScriptedProvider
ended = []
def note(event):
    if isinstance(event, AgentEnd):
        ended.append((time.time(), event.result))
def say(n: int) -> str:
    "Says something, from a thread."
    time.sleep(0.5)
    print("said by the tool")
    return "result of the tool"
@tool(requires_approval=True)
def delete(path: str) -> str:
    "Delete a file."
    return f"deleted {path}"
def make(llm, **more):
    return Agent(llm, on_event=note, **more)
quick = make(ScriptedProvider.llm("The answer is *forty-two*.", repeat=True))
slow = make(ScriptedProvider.llm([f"word{n} " for n in range(1000)], delay_s=0.02, repeat=True))
job = make(ScriptedProvider.llm([ToolCall(id="1", name="say", arguments={"n": 1})], ["The job ", "is done."], delay_s=0.2, repeat=True), tools=[say])
careful = make(ScriptedProvider.llm([ToolCall(id="1", name="delete", arguments={"path": "notes.txt"})], "As you said.", repeat=True), tools=[delete])
"""
CANCELLED = "print(ended[-1][0], ended[-1][1].stop_reason, len(ended[-1][1].text))"


def outputs(kernel: Kernel) -> dict[str, bool]:
    """Whether what a cell made is in that cell, sync, awaiting, by magic and in the background."""
    found: dict[str, bool] = {}
    for name, code in (
        ("sync", "quick.run('hi')"),
        ("await", "await quick.arun('hi')"),
        ("magic", "%%agent -m quick\nhi"),
        ("sync in a function", "def f():\n    return quick.run('hi')\nf()"),
    ):
        cell = kernel.run(code)
        found[name] = cell.html().count("forty-two") == 1 and not cell.error and len(cell.outputs) == 1
    first = kernel.run("%%agent -m job --background\ngo")
    second = kernel.run("print('second cell')\ntime.sleep(1.5)")
    try:
        kernel.until(lambda: "is done" in first.html(), 15)
    except TimeoutError:
        found["background ended"] = False
    found["background"] = "is done" in first.html() and "result of the tool" in first.html() and not second.outputs
    found["the tool's print"] = "said by the tool" not in second.text
    found["no stray output"] = not kernel.strays
    return found


def latencies(kernel: Kernel, cell: str, act: Any, times: int) -> list[float]:
    """Milliseconds from an act (an interrupt, a click) to the end of the run of a cell; what had come is kept."""
    out = []
    for _ in range(times):
        opened = len(kernel.comms)
        running = kernel.send(cell)
        kernel.until(lambda: len(kernel.comms) > opened)  # noqa: B023 - called at once
        kernel.settle(0.4)
        at = act()
        kernel.until(lambda: running.done, 30)  # noqa: B023 - called at once
        end, reason, kept = kernel.run("time.sleep(0.1)\n" + CANCELLED).text.split()[-3:]
        if reason != "cancelled" or int(kept) < 5 or "Stopped" not in running.html():
            raise AssertionError(f"the run ended {reason} with {kept} characters: {running.html()[-300:]}")
        out.append(1000 * (float(end) - at))
    return out


SYNC, AWAIT, BACKGROUND = "pass\n%agent -m slow go\npass", "%%agent -m slow\ngo", "%%agent -m slow --background\ngo"


def stop_in_background(kernel: Kernel, times: int) -> list[float]:
    """As `latencies`, for a click while no cell runs."""
    out = []
    for _ in range(times):
        opened = len(kernel.comms)
        kernel.run(BACKGROUND)
        kernel.until(lambda: len(kernel.comms) > opened)  # noqa: B023 - called at once
        kernel.settle(0.4)
        at = kernel.click({"k": "stop"})
        kernel.settle(0.3)
        end, reason, _ = kernel.run(CANCELLED).text.split()[-3:]
        if reason != "cancelled":
            raise AssertionError(f"the run ended {reason}")
        out.append(1000 * (float(end) - at))
    return out


def asked_by_text(kernel: Kernel) -> bool:
    """Whether a blocking cell without an attached front end asks for approval by text."""
    cell = kernel.send("pass\n%agent -m careful delete it\npass")
    question = kernel.answer("y")
    kernel.until(lambda: cell.done)
    return "delete(" in question and "deleted notes.txt" in cell.html()


def denied_when_headless(python: str) -> bool:
    """Whether a kernel without a reader denies at once and shows static output only."""
    with Kernel(python, stdin=False) as kernel:
        kernel.run(SETUP)
        cell = kernel.run("%%agent -m careful\ndelete it", 20)
        return "denied" in cell.html() and "As you said." in cell.html() and not kernel.comms


def check(python: str, times: int = 5) -> dict[str, Any]:
    """Everything, in one kernel: figures in milliseconds."""
    with Kernel(python) as kernel:
        kernel.run(SETUP)
        row: dict[str, Any] = {
            "ipykernel": kernel.version,
            "outputs": outputs(kernel),
            "asked_by_text": asked_by_text(kernel),
        }
        row["interrupt_ms"] = {
            "sync": latencies(kernel, SYNC, kernel.interrupt, times),
            "await": latencies(kernel, AWAIT, kernel.interrupt, times),
        }
        subshells = kernel.open_subshell()
        row["subshells"] = subshells
        row["stop_ms"] = {"background": stop_in_background(kernel, times)}
        if subshells:
            for name, cell in (("await", AWAIT), ("sync", SYNC)):
                row["stop_ms"][name] = latencies(kernel, cell, lambda: kernel.click({"k": "stop"}), times)
    row["denied_when_headless"] = denied_when_headless(python)
    return row


def main() -> None:
    """Check the kernels that the command line names, or all."""
    failed = False
    with tempfile.TemporaryDirectory(prefix="rein-nb-kernels-") as folder:
        for version in sys.argv[1:] or VERSIONS:
            python = PYTHON if version == "installed" else environment(Path(folder), version)
            row = check(python)
            for group in ("interrupt_ms", "stop_ms"):
                row[group] = {
                    k: {"p50": round(statistics.median(v)), "worst": round(max(v))} for k, v in row[group].items()
                }
            failed |= not all(row["outputs"].values()) or not row["asked_by_text"] or not row["denied_when_headless"]
            print(json.dumps(row), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
