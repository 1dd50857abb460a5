"""The child process: started once, started again, ended with its parent, and clear when it cannot start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from rein_nb.ir import InvalidRequest, ServerError
from rein_nb.providers import local
from rein_nb.providers.local import server, weights
from rein_nb.providers.local.catalog import MODELS

pytestmark = pytest.mark.local_model

MODEL = MODELS["smollm2-135m"]


def status(endpoint: local.LocalEndpoint, key: str | None) -> int:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{endpoint.base_url}/chat/completions", b"{}", headers)
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return int(response.status)
    except urllib.error.HTTPError as exc:
        return exc.code


def gone(pid: int, within_s: float = 10.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        state = Path(f"/proc/{pid}/stat")
        if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_it_answers_on_loopback_and_only_with_its_key(endpoint: local.LocalEndpoint) -> None:
    assert endpoint.base_url.startswith("http://127.0.0.1:")
    assert status(endpoint, None) == 401
    assert status(endpoint, "wrong") == 401
    assert status(endpoint, endpoint.api_key) == 400  # an empty request: past the door, and wrong
    assert endpoint.api_key not in repr(endpoint)


def test_all_threads_share_one_server(endpoint: local.LocalEndpoint) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: local.ensure("local-messages/smollm2-135m"), range(16)))
    assert all(one is endpoint or one == local.ensure("smollm2-135m") for one in found)
    assert len({one.base_url for one in found}) == 1


def test_a_server_that_died_is_started_again(endpoint: local.LocalEndpoint) -> None:
    before = server.running("smollm2-135m")
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while before.alive and time.monotonic() < deadline:
        time.sleep(0.02)
    again = local.ensure("smollm2-135m")
    assert again.base_url != before.endpoint.base_url
    assert status(again, again.api_key) == 400


OWNER = """
import os, sys, time
from rein_nb.providers import local
from rein_nb.providers.local.server import running
local.ensure("smollm2-135m")
print(running("smollm2-135m").pid, flush=True)
{then}
"""


def owner(then: str) -> tuple[subprocess.Popen[str], int]:
    """A process of its own that has started a server, and the server's process id."""
    process = subprocess.Popen([sys.executable, "-c", OWNER.format(then=then)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


def test_it_ends_when_its_parent_is_killed(endpoint: local.LocalEndpoint) -> None:
    process, child = owner("time.sleep(60)")
    assert not gone(child, 0)
    process.kill()
    process.wait()
    assert gone(child)


def test_it_ends_with_its_parent_s_normal_end(endpoint: local.LocalEndpoint) -> None:
    process, child = owner("")
    assert process.wait(20) == 0
    assert gone(child)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_it_ends_with_its_parent_though_a_fork_holds_the_pipe(endpoint: local.LocalEndpoint) -> None:
    # The fork keeps the write end of the server's stdin open, so only the watch on the parent can end it.
    process, child = owner(
        "fork = os.fork()\nif fork == 0: time.sleep(15); os._exit(0)\nprint(fork, flush=True)\ntime.sleep(60)"
    )
    assert process.stdout is not None
    fork = int(process.stdout.readline())
    process.kill()
    process.wait()
    try:
        assert not gone(fork, 0)
        assert gone(child, 5)
    finally:
        os.kill(fork, signal.SIGKILL)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
def test_a_kernel_s_interrupt_of_the_whole_group_does_not_reach_it(endpoint: local.LocalEndpoint) -> None:
    then = """
try:
    print("waits", flush=True)
    time.sleep(60)
except KeyboardInterrupt:
    time.sleep(0.3)
    print(running("smollm2-135m") is not None, flush=True)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER.format(then=textwrap.dedent(then))],
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    child = int(process.stdout.readline())
    assert process.stdout.readline().strip() == "waits"
    os.killpg(process.pid, signal.SIGINT)
    assert process.stdout.readline().strip() == "True"
    process.wait(20)
    assert gone(child)


def test_weights_that_are_none_end_in_the_log_s_words(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"this is no model")
    with pytest.raises(ServerError, match=r"(?s)ended while it loaded.*end of its log") as caught:
        server.EmbeddedServer(MODEL, broken)
    assert not caught.value.info.retryable


def test_without_the_runtime_it_says_which_extra_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_servers", {})
    monkeypatch.setattr(server.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(weights.LocalSetupError, match=r"xllamacpp.*rein-nb\[local\]"):
        local.ensure("smollm2-135m")


def test_an_opt_in_model_that_is_not_here_says_how_to_fetch_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(weights.FOLDER_VARIABLE, str(tmp_path))
    monkeypatch.setattr(server, "_servers", {})
    with pytest.raises(weights.LocalSetupError, match=r"rein-nb models pull qwen2\.5-coder-0\.5b"):
        local.ensure("local/qwen2.5-coder-0.5b")


def test_a_bad_number_of_threads_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(server.THREADS_VARIABLE, "many")
    with pytest.raises(InvalidRequest, match="REIN_NB_LOCAL_THREADS must be a number of threads"):
        server.EmbeddedServer(replace(MODEL, name="x"), tmp_path / "none")


def test_the_child_script_imports_nothing_of_ours() -> None:
    script = Path(server.__file__).with_name("serve.py")
    code = f"import sys, json, runpy; sys.argv=['x']; runpy.run_path({str(script)!r}); print(json.dumps(sorted(sys.modules)))"
    modules = json.loads(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    assert not [name for name in modules if name.split(".")[0] in ("rein_nb", "pydantic", "openai")]
