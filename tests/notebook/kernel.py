"""One kernel and a front end played by hand over its sockets: what comes out of which cell, clicks, interrupts, answers to questions."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support import REPO

PYTHON = sys.executable


def environment(folder: Path, version: str) -> str:
    """A Python with this ipykernel, that finds everything else where this one does; made with uv, which must be on the path.

    Raises
    ------
    RuntimeError
        When uv cannot make it.
    """
    import sysconfig

    place = folder / version
    for command in (
        ["uv", "venv", "-q", "--python", PYTHON, str(place)],
        ["uv", "pip", "install", "-q", "--no-deps", "--python", str(place / "bin" / "python"), f"ipykernel=={version}", "nest-asyncio", "psutil"],
    ):  # fmt: skip
        # In the folder, since uv reads the constraints of the project that it is called in.
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-500:])
    (site,) = (place / "lib").glob("python3.*/site-packages")
    (site / "rest.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return str(place / "bin" / "python")


class Cell:
    """A cell that was sent, and what came out under its name."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.done = False
        self.outputs: list[dict[str, Any]] = []
        self.text = ""
        self.error = ""

    def html(self) -> str:
        """The HTML of its outputs as they stand."""
        return "".join(output["data"].get("text/html", "") for output in self.outputs)


class Kernel:
    """A running kernel.

    Parameters
    ----------
    python
        The interpreter to run it with.
    stdin
        Whether cells may ask for input: a reader is there.
    """

    def __init__(self, python: str = PYTHON, *, stdin: bool = True) -> None:
        from jupyter_client.manager import KernelManager

        self.stdin = stdin
        self.manager = KernelManager(kernel_name="python3")
        self.manager.kernel_spec.argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        path = os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH", "")]))
        self.manager.start_kernel(env=os.environ | {"PYTHONPATH": path}, cwd=str(REPO))
        self.client = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)
        self.cells: dict[str, Cell] = {}
        self.comms: list[str] = []
        self.strays: list[str] = []
        self.displays: dict[str, dict[str, Any]] = {}
        self.subshell: str | None = None

    @property
    def version(self) -> str:
        """ipykernel's."""
        return self.run("import ipykernel; print(ipykernel.__version__)").text.strip()

    def send(self, code: str) -> Cell:
        """Send a cell and return at once."""
        id = self.client.execute(code, allow_stdin=self.stdin, stop_on_error=False)
        cell = self.cells[id] = Cell(id)
        return cell

    def run(self, code: str, timeout_s: float = 60) -> Cell:
        """Run a cell to its end."""
        cell = self.send(code)
        self.until(lambda: cell.done, timeout_s)
        return cell

    def until(self, condition: Callable[[], bool], timeout_s: float = 30) -> None:
        """Take in messages until the condition holds.

        Raises
        ------
        TimeoutError
            When it does not.
        """
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                raise TimeoutError(
                    f"{ {cell.id: (cell.done, cell.text[-300:], cell.error[-300:]) for cell in self.cells.values()} }"
                )
            try:
                self._take(self.client.get_iopub_msg(timeout=0.05))
            except queue.Empty:
                continue

    def settle(self, seconds: float) -> None:
        """Take in messages for a while."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, seconds + 5)

    def _take(self, message: dict[str, Any]) -> None:
        kind, content = message["msg_type"], message["content"]
        parent = message["parent_header"].get("msg_id", "")
        cell = self.cells.get(parent)
        if kind == "comm_open" and "labels" in str(content.get("data", {}).get("state", {}).keys()):
            self.comms.append(content["comm_id"])
        if kind in ("display_data", "execute_result", "update_display_data"):
            name = content.get("transient", {}).get("display_id")
            if kind == "update_display_data":
                # A front end finds the output by this name, whatever cell runs now.
                self.displays[name]["data"] = content["data"]
            elif cell is None:
                self.strays.append(json.dumps(content["data"])[:200])
            else:
                output = {"data": content["data"]}
                cell.outputs.append(output)
                if name:
                    self.displays[name] = output
        elif cell is None:
            return
        elif kind == "stream":
            cell.text += content["text"]
        elif kind == "error":
            cell.error = f"{content['ename']}: {content['evalue']}"
        elif kind == "status" and content["execution_state"] == "idle":
            cell.done = True

    def interrupt(self) -> float:
        """Interrupt the kernel; the time when it was sent."""
        at = time.time()
        self.manager.interrupt_kernel()
        return at

    def click(self, content: dict[str, Any]) -> float:
        """A message of the newest live transcript's front end, sent as JupyterLab does: through a subshell where the kernel has them."""
        data = {"method": "custom", "content": content}
        message = self.client.session.msg("comm_msg", {"comm_id": self.comms[-1], "data": data})
        if self.subshell:
            message["header"]["subshell_id"] = self.subshell
        at = time.time()
        self.client.shell_channel.send(message)
        return at

    def open_subshell(self) -> bool:
        """Make a subshell for clicks; False where the kernel has none."""
        if "kernel subshells" not in self.client.kernel_info(reply=True, timeout=10)["content"].get(
            "supported_features", []
        ):
            return False
        message = self.client.session.msg("create_subshell_request", {})
        message["header"]["msg_id"] = uuid.uuid4().hex
        self.client.control_channel.send(message)
        self.subshell = self.client.get_control_msg(timeout=10)["content"]["subshell_id"]
        return True

    def answer(self, text: str, timeout_s: float = 10) -> str:
        """Wait for a question, answer it; the question."""
        question: str = self.client.get_stdin_msg(timeout=timeout_s)["content"]["prompt"]
        self.client.input(text)
        return question

    def close(self) -> None:
        """End it."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)

    def __enter__(self) -> Kernel:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
