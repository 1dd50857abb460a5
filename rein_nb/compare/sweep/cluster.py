"""Cells on a Dask cluster: the requests go out from its workers; the journal, the limits and the scorers stay here.

What travels to a worker holds no key: a `Config` leaves its key behind, and the worker reads its own from the environment. A worker that
dies takes the cells it was asking with it; Dask gives them to another, and before each request the scheduler counts it, so that the journal can
say that there was more than one.
"""

from __future__ import annotations

import asyncio
import pickle
import time
import uuid
from collections.abc import Iterable, Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import lru_cache
from importlib import import_module
from typing import Any

from rein_nb import aio
from rein_nb.agent import Agent
from rein_nb.agent.result import AgentResult
from rein_nb.compare.sweep.perform import failed, perform
from rein_nb.compare.sweep.plan import CellPlan, Work
from rein_nb.ir import Message
from rein_nb.llm import LLM
from rein_nb.store.records import from_text, plain, scrub, to_text


class Cluster:
    """Performs cells on the workers of a Dask `Client`.

    Raises
    ------
    TypeError
        When the client is asynchronous, or something cannot travel: an agent, an SDK client, a function that pickle refuses.
    ValueError
        When a key would travel.
    """

    def __init__(self, client: Any, works: Iterable[Work], concurrency: int) -> None:
        if getattr(client, "asynchronous", False):
            raise TypeError("executor takes a synchronous distributed.Client; yours was made with asynchronous=True")
        self._client = client
        self._root = f"rein_nb-sweep-{uuid.uuid4().hex}"
        self._payloads = {id(work): payload(work) for work in works}
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="rein_nb-dask")

    async def perform(self, cell: CellPlan) -> tuple[AgentResult, int]:
        """Ask on some worker. Gives the result, and how often the request was begun beyond the first."""
        started_at = time.time()
        loop = asyncio.get_running_loop()
        futures: list[Any] = []
        try:
            text, more = await loop.run_in_executor(self._pool, self._ask, cell, futures)
        except asyncio.CancelledError:
            for future in futures:
                loop.run_in_executor(None, future.cancel)
            raise
        except Exception as exc:
            return failed(cell.work, cell.messages, exc, started_at), 0
        return AgentResult.model_validate(from_text(text)), more

    def _ask(self, cell: CellPlan, futures: list[Any]) -> tuple[str, int]:
        marker = [self._root, f"{cell.key}-{uuid.uuid4().hex}"]
        messages = [message.model_dump(mode="json", fallback=str) for message in cell.messages]
        key = "-".join(marker)
        future = self._client.submit(on_worker, self._payloads[id(cell.work)], messages, marker, pure=False, key=key)
        futures.append(future)
        try:
            answer: tuple[str, int] = future.result()
            return answer
        except CancelledError as exc:
            # Were it passed on as it is, it would look like a wish to stop the whole sweep.
            raise RuntimeError(f"the cluster dropped the cell: {exc}") from None

    def close(self) -> None:
        """Let go of the threads, and of the scheduler's counts."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if getattr(self._client, "status", None) == "running":
            self._client.set_metadata([self._root], None)


def payload(work: Work) -> bytes:
    """`work` as bytes for a worker, without any key.

    Raises
    ------
    TypeError, ValueError
        See `Cluster`.
    """
    if work.llm is None:
        raise TypeError(
            f"{work.model!r} is an Agent, which cannot travel: name its model, and give tools=, system= and options to sweep"
        )
    facts = {
        "model": work.model, "variant": work.variant, "provider": work.provider, "llm": _recipe(work.llm), "settings": work.settings,
        "system": work.system, "options": work.options, "stream": work.stream,
    }  # fmt: skip
    try:
        data: bytes = import_module("cloudpickle").dumps(facts)
    except Exception as exc:
        raise TypeError(f"what {work.model!r} is asked with cannot travel to a worker: {exc}") from exc
    key = work.llm.config.api_key
    if key is not None and key.get_secret_value().encode() in data:
        raise ValueError(
            f"the key of {work.model!r} would travel to the workers (it stands in a setting or a function); keys are read there from the environment"
        )
    return data


def _recipe(llm: LLM) -> dict[str, Any]:
    """What `LLM` is made of on a worker: its config where that is enough, else the provider object itself."""
    from rein_nb.providers.wire import WireProvider

    backend: Any = llm.backend
    if isinstance(backend, WireProvider):
        if getattr(backend, "_transport", None) is not None and getattr(backend._transport, "_own", None) is not None:
            raise TypeError(f"{llm!r} has an SDK client of its own, which cannot travel; configure it by name")
        backend = None
    return {
        "config": llm.config, "provider": backend, "middleware": llm._middleware,
        "fallback": [_recipe(other) for other in llm._fallback],
    }  # fmt: skip


def _llm(recipe: Mapping[str, Any]) -> LLM:
    fallback = [_llm(other) for other in recipe["fallback"]]
    return LLM(recipe["config"], provider=recipe["provider"], middleware=recipe["middleware"], fallback=fallback)


@lru_cache(maxsize=256)
def _work(data: bytes) -> Work:
    """The work of a payload, made once in a worker, so that its connections are used again."""
    facts = pickle.loads(data)
    llm = _llm(facts.pop("llm"))
    settings = facts["settings"]
    return Work(**facts, llm=llm, make=lambda: Agent(llm, label=facts["model"], **settings), fingerprint="")


def on_worker(data: bytes, messages: list[Any], marker: list[str]) -> tuple[str, int]:
    """One cell, in a worker's thread. Returns the result as JSON, and how often it was begun before."""
    # The scheduler has the count before the request goes out, so it outlives this process.
    client: Any = import_module("distributed").get_client()
    before = int(client.get_metadata(marker, 0))
    client.set_metadata(marker, before + 1)
    asked = [Message.model_validate(message) for message in messages]
    result = aio.run_sync(perform(_work(data), asked))
    return to_text(scrub(plain(result))), before
