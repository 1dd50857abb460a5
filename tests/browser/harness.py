"""JupyterLab in headless Chromium, on loopback only: one server and one browser, a page per notebook."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
REPO = Path(__file__).resolve().parents[2]

# Off-screen cells must be in the page, nothing may be fetched from outside, and nothing saved but on command.
SETTINGS = {
    "@jupyterlab/apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension/plugin": {"autosave": False},
    "@jupyterlab/notebook-extension/tracker": {"windowingMode": "none"},
}

CURRENT = "window.jupyterapp.shell.currentWidget"


def free_port() -> int:
    """A port of this machine's loopback that nobody uses."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def notebook(*cells: str) -> dict[str, Any]:
    """A notebook with these code cells."""
    return {
        "nbformat": 4,
        "nbformat_minor": 5,
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        "cells": [
            {
                "cell_type": "code",
                "id": f"cell{n}",
                "metadata": {},
                "execution_count": None,
                "outputs": [],
                "source": source,
            }
            for n, source in enumerate(cells)
        ],
    }


def frame(payload: str | bytes) -> tuple[str, str, int]:
    """(channel, message type, size in bytes of the content) of one kernel websocket frame."""
    if isinstance(payload, str):
        message = json.loads(payload)
        return message.get("channel", ""), message["header"]["msg_type"], len(json.dumps(message["content"]))
    # v1.kernel.websocket.jupyter.org: a count and offsets as little-endian 64-bit integers, then the parts they point at
    count = struct.unpack_from("<Q", payload, 0)[0]
    at = struct.unpack_from(f"<{count}Q", payload, 8)
    parts = [payload[a:b] for a, b in pairwise(at)]
    return parts[0].decode(), json.loads(parts[1])["msg_type"], len(parts[4])


class Lab:
    """A Jupyter server with settings of its own, and a browser. `ui` is ``"lab"`` or ``"notebook"``."""

    def __init__(self, ui: str = "lab", *, theme: str | None = None) -> None:
        from playwright.sync_api import sync_playwright

        self.ui = ui
        self.folder = Path(tempfile.mkdtemp(prefix="rein-nb-browser-"))
        self.root = self.folder / "root"
        self.root.mkdir()
        self.port, self.token = free_port(), secrets.token_hex(16)
        settings = dict(SETTINGS)
        if theme is not None:
            settings["@jupyterlab/apputils-extension/themes"] = {"theme": theme}
        for name, values in settings.items():
            package, plugin = name.rsplit("/", 1)
            path = self.folder / "settings" / package / f"{plugin}.jupyterlab-settings"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(values))
        app = "LabApp" if ui == "lab" else "JupyterNotebookApp"
        places = {"CONFIG_DIR": "config", "DATA_DIR": "data", "RUNTIME_DIR": "runtime"}
        env = os.environ | {f"JUPYTER_{key}": str(self.folder / value) for key, value in places.items()}
        env |= {
            "JUPYTERLAB_SETTINGS_DIR": str(self.folder / "settings"),
            "JUPYTERLAB_WORKSPACES_DIR": str(self.folder / "workspaces"),
            "IPYTHONDIR": str(self.folder / "ipython"),
            "JUPYTER_PLATFORM_DIRS": "1",
            "PYTHONPATH": os.pathsep.join(filter(None, [str(REPO), os.environ.get("PYTHONPATH", "")])),
        }
        self.log = (self.folder / "server.log").open("w")
        self.server = subprocess.Popen(
            [
                sys.executable, "-m", "jupyterlab" if ui == "lab" else "notebook", "--no-browser", "--allow-root",
                "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={self.port}", "--ServerApp.port_retries=0",
                f"--IdentityProvider.token={self.token}", f"--ServerApp.root_dir={self.root}", f"--{app}.expose_app_in_browser=True",
            ],
            stdout=self.log, stderr=subprocess.STDOUT, env=env, cwd=self.root, start_new_session=True,
        )  # fmt: skip
        self.base = f"http://127.0.0.1:{self.port}"
        self._await_server()
        self._playwright = sync_playwright().start()
        self.browser = self._playwright.chromium.launch(executable_path=CHROMIUM, headless=True, args=FLAGS)

    def _await_server(self) -> None:
        for _ in range(300):
            if self.server.poll() is not None:
                raise RuntimeError((self.folder / "server.log").read_text()[-3000:])
            try:
                self.api("/api/status")
            except (urllib.error.URLError, ConnectionError):
                time.sleep(0.1)
            else:
                return
        raise RuntimeError("the Jupyter server did not start within 30 s")

    def api(self, path: str, method: str = "GET") -> Any:
        """One call of the server's REST interface."""
        request = urllib.request.Request(
            self.base + path, method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request, timeout=20) as answer:
            body = answer.read()
        return json.loads(body) if body else None

    def open(self, *cells: str, name: str = "test.ipynb", height: int = 1400) -> Page:
        """A page with a new notebook, its kernel ready."""
        (self.root / name).write_text(json.dumps(notebook(*cells)))
        return Page(self, name, height)

    def close(self) -> None:
        """End server, kernels and browser."""
        try:
            for session in self.api("/api/sessions"):
                self.api(f"/api/sessions/{session['id']}", "DELETE")
            self.browser.close()
            self._playwright.stop()
        finally:
            os.killpg(self.server.pid, signal.SIGTERM)
            try:
                self.server.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(self.server.pid, signal.SIGKILL)
            self.log.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Lab:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Page:
    """One notebook in one page."""

    def __init__(self, lab: Lab, name: str, height: int) -> None:
        self.lab, self.name = lab, name
        self.context = lab.browser.new_context(viewport={"width": 1100, "height": height})
        self.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=lab.base)
        self.page = self.context.new_page()
        self.page.add_init_script("window.__pwned = [];")
        self.requests: list[str] = []
        self.bytes: Counter[tuple[str, str]] = Counter()
        self.frames: Counter[tuple[str, str]] = Counter()
        self.wire_bytes = 0
        self.errors: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("dialog", lambda dialog: dialog.accept() if dialog.type == "beforeunload" else dialog.dismiss())
        self.page.on("websocket", self._listen)
        self.load()

    def load(self) -> None:
        """Open (or open again) the notebook and wait for its kernel."""
        path = f"/lab/tree/{self.name}?reset&" if self.lab.ui == "lab" else f"/notebooks/{self.name}?"
        self.page.goto(f"{self.lab.base}{path}token={self.lab.token}", wait_until="domcontentloaded")
        self.page.wait_for_function("() => !!window.jupyterapp", timeout=60_000)
        ready = f"() => {{ const w = {CURRENT}; return !!(w && w.context && w.context.isReady && w.content && w.content.widgets.length) }}"
        self.page.wait_for_function(ready, timeout=60_000)
        self.page.wait_for_function(f"() => ({self._STATUS})() === 'idle'", timeout=60_000)

    _STATUS = (
        f"() => {{ const s = {CURRENT}.context.sessionContext.session; return s && s.kernel ? s.kernel.status : null }}"
    )

    def _listen(self, socket: Any) -> None:
        if "/channels" not in socket.url:
            return

        def received(payload: str | bytes) -> None:
            channel, kind, size = frame(payload)
            self.wire_bytes += len(payload)
            self.bytes[channel, kind] += size
            self.frames[channel, kind] += 1

        socket.on("framereceived", received)

    def command(self, name: str, *, wait: bool = True) -> None:
        """Run a command of the application."""
        then = ".then(() => null)" if wait else "; return null"
        self.page.evaluate(
            f"name => {{ {'return ' if wait else ''}window.jupyterapp.commands.execute(name){then} }}", name
        )

    def run(self, cell: int, *, wait: bool = True, timeout_s: float = 60) -> None:
        """Run one cell; with `wait`, until the kernel is idle."""
        select = f"n => {{ const c = {CURRENT}.content; c.deselectAll(); c.activeCellIndex = n; c.deselectAll() }}"
        self.page.evaluate(select, cell)
        self.command("notebook:run-cell", wait=False)
        if wait:
            self.idle(timeout_s)

    def idle(self, timeout_s: float = 60) -> None:
        """Wait until no cell is running."""
        busy = f"() => [...{CURRENT}.node.querySelectorAll('.jp-InputPrompt')].some(e => e.textContent.includes('*'))"
        end, quiet = time.monotonic() + timeout_s, 0
        while quiet < 4:
            if time.monotonic() > end:
                raise TimeoutError(f"the notebook was still busy after {timeout_s} s")
            quiet = 0 if self.page.evaluate(busy) or self.page.evaluate(self._STATUS) != "idle" else quiet + 1
            self.page.wait_for_timeout(60)

    def output(self, cell: int) -> Any:
        """Locator of a cell's output area."""
        return self.page.locator(".jp-Notebook .jp-Cell").nth(cell).locator(".jp-Cell-outputArea")

    def text(self, cell: int) -> str:
        """The visible text of a cell's output."""
        return str(self.output(cell).inner_text())

    def interrupt(self) -> None:
        """Interrupt the kernel, as the stop button of the toolbar does."""
        self.page.evaluate(f"() => {{ {CURRENT}.context.sessionContext.session.kernel.interrupt() }}")

    def restart_kernel(self) -> None:
        """Restart the kernel and wait for it."""
        self.page.evaluate(f"() => {CURRENT}.context.sessionContext.session.kernel.restart().then(() => null)")
        self.idle()

    def save(self) -> dict[str, Any]:
        """Save; the notebook file's content."""
        self.command("docmanager:save")
        content: dict[str, Any] = json.loads((self.lab.root / self.name).read_text())
        return content

    def remote_requests(self) -> list[str]:
        """Requests that left the server's own address."""
        return [
            url
            for url in self.requests
            if not url.startswith((self.lab.base, f"ws://127.0.0.1:{self.lab.port}", "data:", "blob:"))
        ]

    def close(self) -> None:
        """Close the page."""
        self.context.close()
