"""The same sweep on a Dask cluster of processes: equal rows, each paid once, also when a worker is killed."""

from __future__ import annotations

import importlib
import os
import pickle
import signal
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rein_nb import aio
from rein_nb.agent import Agent
from rein_nb.compare.sweep import Sweep, scorers, sweep
from rein_nb.compare.sweep.cluster import payload
from rein_nb.compare.sweep.plan import as_works
from rein_nb.llm import LLM, Config
from rein_nb.testing import ScriptedProvider
from tests.sweep.wire import wire

distributed: Any
try:
    distributed = importlib.import_module("distributed")
except ImportError:  # told by each test that needs it
    distributed = None

KEY = "not-a-key-" + "a" * 24
WORKERS_KEY = "not-a-key-" + "w" * 24


def llm(url: str) -> LLM:
    return LLM(Config(provider="openai-chat", model="gpt-4o-mini", api_key=KEY, base_url=url))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    if distributed is None:
        warnings.warn("distributed is not installed (extra: dask): sweeps on a cluster are not tested", stacklevel=1)
        pytest.skip("distributed is not installed (extra: dask)")
    monkeypatch.setenv("OPENAI_API_KEY", WORKERS_KEY)
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=2, processes=True, dashboard_address=None) as cluster,
        distributed.Client(cluster) as found,
    ):
        yield found


@pytest.mark.slow
def test_a_cluster_gives_equal_rows_and_a_killed_worker_repeats_only_what_it_was_asking(
    client: Any, tmp_path: Path
) -> None:
    rows = [{"q": f"p{n}", "expected": "fine"} for n in range(60)]
    given: dict[str, Any] = {"prompt": "{q}", "scorers": scorers.exact(), "progress": False}
    with wire(delay_s=0.05) as server:
        model = llm(server.url)
        here = sweep(rows, model, store=tmp_path / "here.sqlite3", **given).frame()
        server.asked.clear()
        server.authorizations.clear()
        victim = client.submit(os.getpid, pure=False).result()

        def kill() -> None:
            while sum(server.asked.values()) < 20:
                time.sleep(0.005)
            os.kill(victim, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        there = sweep(rows, model, store=tmp_path / "there.sqlite3", executor=client, concurrency=6, **given)
        killer.join(10)
        aio.run_sync(model.aclose())
    df = there.frame()
    same = ["key", "row", "model", "variant", "repeat", "state", "text", "tokens", "cost_usd", "score.exact", "data.q"]
    assert df[same].equals(here[same])
    assert there.stop_reason == "completed"
    attempts = dict(zip(df["data.q"], df["attempts"], strict=True))
    assert dict(server.asked) == {prompt: server.asked[prompt] for prompt in attempts}
    assert all(1 <= count <= attempts[prompt] <= 2 for prompt, count in server.asked.items())
    assert sum(attempts.values()) - 60 <= 6, "more was repeated than was under way"
    assert server.authorizations == {WORKERS_KEY}, "the workers' own key is the one that is used"
    assert Sweep.open(store=tmp_path / "there.sqlite3").counts == {"done": 60}


@pytest.mark.skipif(distributed is None, reason="distributed is not installed (extra: dask)")
def test_what_travels_holds_no_key_and_what_cannot_travel_is_refused() -> None:
    def work(model: Any, **settings: Any) -> Any:
        return as_works(model, settings, {"": {}}, False)[0][0]

    data = payload(work(llm("http://127.0.0.1:1/v1")))
    assert KEY.encode() not in data
    assert pickle.loads(data)["llm"]["config"].model == "gpt-4o-mini"
    with pytest.raises(ValueError, match="would travel"):
        payload(work(llm("http://127.0.0.1:1/v1"), system=f"The key is {KEY}"))
    with pytest.raises(TypeError, match="is an Agent, which cannot travel"):
        payload(work(Agent(ScriptedProvider.llm("x"))))
    with pytest.raises(TypeError, match="cannot travel to a worker"):
        payload(work(ScriptedProvider.llm("x"), deps=threading.Lock()))
