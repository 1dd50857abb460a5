"""The server's handle in this process: one child process for each model, shared by every loop and thread."""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import queue
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rein_nb.dialects.base import Capabilities, Quirks
from rein_nb.ir import ErrorInfo, InvalidRequest, clock
from rein_nb.providers.local.catalog import LocalModel, find_model
from rein_nb.providers.local.quirks import CAPABILITIES, HEADERS, QUIRKS
from rein_nb.providers.local.weights import LocalSetupError, ProgressSink, fetch, show_progress, weights_file

THREADS_VARIABLE = "REIN_NB_LOCAL_THREADS"
"""Environment variable with the number of compute threads; 1 by default."""

_READY_S = 120.0
"""How long loading may take; a cold disk and a busy machine included."""

SLOTS = 3
"""How many requests are answered at the same time, so that three columns stream side by side; further ones wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEndpoint:
    """Where an embedded model answers, and how.

    Attributes
    ----------
    base_url
        For OpenAI clients, with ``/v1`` at its end.
    root_url
        For Anthropic clients, which add ``/v1`` themselves.
    api_key
        Made for this server.
    model
        The name that the server knows the model by.
    quirks, capabilities
        How it departs from its dialects, and what it can do.
    headers
        To be sent with every request.
    """

    base_url: str
    root_url: str
    api_key: str = field(repr=False)
    model: str
    quirks: Quirks = QUIRKS
    capabilities: Capabilities = CAPABILITIES
    headers: Mapping[str, str] = field(default_factory=lambda: dict(HEADERS))


class EmbeddedServer:
    """A child process that serves one model. Use `ensure`, which shares them.

    Raises
    ------
    ProviderError
        When the child ends, or does not get ready, while it loads; the message has the end of its log.
    """

    def __init__(self, model: LocalModel, weights: Path) -> None:
        self.model = model
        self.owner = os.getpid()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the child
        api_key = secrets.token_urlsafe(24)
        script = Path(__file__).with_name("serve.py")
        # -P keeps the script's folder off the import path. A session of its own: Ctrl-C and a kernel interrupt are meant for us.
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(script)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True, encoding="utf-8",
            start_new_session=os.name == "posix", creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )  # fmt: skip
        settings = {
            "gguf": str(weights), "alias": model.name, "api_key": api_key, "parent": os.getpid(), "slots": SLOTS,
            "context_tokens": model.context_tokens, "threads": _threads(), "template": model.template_text(),
            "cached_prompts": not clock.steady(),
        }  # fmt: skip
        try:
            root = self._start(settings)
        except BaseException:
            self.close()
            raise
        self.endpoint = LocalEndpoint(base_url=f"{root}/v1", root_url=root, api_key=api_key, model=model.name)

    def _start(self, settings: dict[str, Any]) -> str:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(settings) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # the child is gone already; its log says why
        answer: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read_line, args=(answer,), daemon=True).start()
        deadline = time.monotonic() + _READY_S
        while time.monotonic() < deadline:
            try:
                line = answer.get(timeout=0.1)
            except queue.Empty:
                continue
            if not line:
                raise self._failed(f"ended while it loaded (exit code {self._process.wait()})")
            return str(json.loads(line)["url"]).rstrip("/")
        raise self._failed(f"was not ready after {_READY_S:.0f} s")

    def _read_line(self, answer: queue.Queue[str]) -> None:
        assert self._process.stdout is not None
        answer.put(self._process.stdout.readline())

    def _failed(self, what: str) -> Exception:
        tail = self.log_tail()
        message = f"the server of local/{self.model.name} {what}" + (f"; the end of its log:\n{tail}" if tail else "")
        info = ErrorInfo.make("server_error", message, retryable=False, provider="local", model=self.model.name)
        return info.to_exception()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether the child runs and belongs to this process (and not to the one that this was forked from)."""
        return self.owner == os.getpid() and self._process.poll() is None

    def log_tail(self, chars: int = 1500) -> str:
        """The end of the child's log."""
        size = self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, size - 4 * chars))
        return self._log.read().decode("utf-8", "replace").strip()[-chars:]

    def close(self) -> None:
        """End the child. Does nothing in a fork of the owner, and nothing the second time."""
        if self.owner != os.getpid():
            return
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass  # it was gone
        try:
            self._process.wait(3)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._log.close()


def _threads() -> int:
    # As many threads as cores collapses where the cores are shared: 74 tokens/s became 4.
    text = os.environ.get(THREADS_VARIABLE, "1")
    try:
        threads = int(text)
    except ValueError:
        threads = 0
    if threads < 1:
        raise InvalidRequest(f"{THREADS_VARIABLE} must be a number of threads, 1 or more, not {text!r}")
    return threads


_servers: dict[str, EmbeddedServer] = {}
_locks: dict[str, threading.Lock] = {}
_guard = threading.Lock()


def _after_fork() -> None:
    # The parent's servers are the parent's, and a lock held by one of its other threads would never open here.
    global _guard
    _guard = threading.Lock()
    _locks.clear()
    _servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def ensure(model: str, *, progress: ProgressSink | None = show_progress) -> LocalEndpoint:
    """A running server for an embedded model: fetched at first use, started once a process, started again when it has died.

    Blocks: for well under a second when it runs, for a second or so to start it, longer to fetch the weights. Safe from any thread.

    Parameters
    ----------
    model
        ``"smollm2-135m"``, with or without the provider before it.
    progress
        Told about a fetch.

    Raises
    ------
    InvalidRequest
        For an unknown model, naming those that there are.
    LocalSetupError
        When the runtime is not installed, or the weights of an opt-in model are not here; says what to do.
    ProviderError
        When the weights cannot be fetched or the server does not start.
    """
    card = find_model(model)
    with _guard:
        lock = _locks.setdefault(card.name, threading.Lock())
    with lock:
        server = _servers.get(card.name)
        if server is not None and server.alive:
            return server.endpoint
        if server is not None:
            server.close()
        if importlib.util.find_spec("xllamacpp") is None:
            raise LocalSetupError(
                'the embedded models need the runtime xllamacpp; install the extra "local": '
                'pip install "rein-nb[local]" (or: uv sync --extra local)'
            )
        weights = weights_file(card)
        if weights is None and not card.automatic:
            raise LocalSetupError(
                f"the weights of local/{card.name} ({card.download_mb} MB) are not on this machine; "
                f"fetch them with: rein-nb models pull {card.name}"
            )
        server = EmbeddedServer(card, weights if weights is not None else fetch(card, progress))
        _servers[card.name] = server
        return server.endpoint


def running(model: str) -> EmbeddedServer | None:
    """This process's server for a model; None when there is none."""
    server = _servers.get(find_model(model).name)
    return server if server is not None and server.alive else None


def shutdown() -> None:
    """End every server of this process. They end by themselves with the process; `ensure` starts them again."""
    while _servers:
        _servers.popitem()[1].close()


atexit.register(shutdown)
