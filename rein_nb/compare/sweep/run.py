"""`sweep` and `asweep`: the arguments, checked before anything is sent, and the run."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from rein_nb import aio
from rein_nb.compare.sweep.budget import Budget
from rein_nb.compare.sweep.dataset import PromptOf, as_rows
from rein_nb.compare.sweep.engine import Job, Local, Performer
from rein_nb.compare.sweep.journal import Journal
from rein_nb.compare.sweep.lock import only_one
from rein_nb.compare.sweep.plan import Work, as_variants, as_works, plan_cells
from rein_nb.compare.sweep.rates import RateLimit
from rein_nb.compare.sweep.result import Sweep
from rein_nb.compare.sweep.scorers import as_scorers
from rein_nb.store import Store

DEFAULT_CONCURRENCY = 16
"""Requests to one provider at once, where the caller sets no number."""

_OTHERS = "*"


def sweep(
    dataset: Any,
    models: Any,
    repeats: int = 1,
    *,
    variants: Any = None,
    prompt: PromptOf = "prompt",
    scorers: Any = (),
    tools: Sequence[Any] | None = None,
    system: str | None = None,
    options: Mapping[str, Any] | None = None,
    output_type: Any = None,
    store: Store | str | os.PathLike[str] | None = None,
    name: str = "sweep",
    concurrency: int | Mapping[str, int] = DEFAULT_CONCURRENCY,
    limits: RateLimit | Mapping[str, Any] | None = None,
    budget: Budget | Mapping[str, float] | float | None = None,
    resume: bool = True,
    retry_errors: bool = False,
    stream: bool = False,
    progress: bool = True,
    executor: Any = "local",
    **agent: Any,
) -> Sweep:
    """Ask every row of a dataset of every model, in every variant, so many times; journaled, so that nothing is paid for twice.

    A cell is marked as begun before its request goes out, and written down whole when it is answered. Calling again with the same arguments,
    after whatever ended the first call, asks only what is still open: what was under way when a process was killed is asked once more, and its
    ``attempts`` say so. Cells that ended in an error are rows with that error. Changed prompts, models or settings are other cells; a
    scorer that is added later scores the answers that are there.

    Parameters
    ----------
    dataset
        A list of dicts or texts, a DataFrame, or a file: ``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``.
    models
        Names, `LLM` or `Agent` objects in a list, or a dict by label.
    repeats
        How often each question is asked.
    variants
        A dict from labels to settings, or a list of settings: ``{"terse": {"system": "Be brief."}, "hot": {"temperature": 1}}``. A variant
        may have a ``prompt`` of its own.
    prompt
        A column's name, a text with ``{column}`` in it (plain names only), or a function of the row that gives a prompt.
    scorers
        One, a list, or a dict by name: made by `rein_nb.compare.sweep.scorers`, or functions ``(answer, row)``.
    tools, system, output_type
        As for `Agent`.
    options
        `Options` fields for each model call.
    store
        A `Store` or its path; the default store otherwise.
    name
        Under which the journal is found again.
    concurrency
        Requests at once to one provider; a dict by provider, with ``"*"`` for the others. On a cluster: cells given to it at once.
    limits
        `RateLimit` (or a dict of its fields) for every provider, or a dict of these by provider, with ``"*"`` for the others. What a provider
        says in its headers about its limits is followed in any case.
    budget
        US dollars, a dict with ``usd`` and ``tokens``, or a `Budget`; it counts what earlier calls of this name paid.
    resume
        False forgets what the store has under this name, and asks everything.
    retry_errors
        Ask cells again that ended in an error, and scorers that failed.
    stream
        Stream the answers, so that there are times to the first token; costs some throughput. Runs with tools always stream.
    progress
        Show tqdm's bar, where it is installed.
    executor
        ``"local"``, or a `distributed.Client`: its workers make the requests, with keys from their own environment.
    agent
        Further `Agent` arguments.

    Returns
    -------
    Sweep
        Its ``stop_reason`` says why it ended: ``completed``, ``budget_usd`` or ``budget_tokens``.

    Raises
    ------
    ValueError, TypeError
        For what is wrong with the arguments, before anything is sent.
    StoreError
        When the journal cannot be written, or the sweep is being run already.
    KeyboardInterrupt
        When interrupted; the journal has what was answered, and `Sweep.open` finds it.

    Notes
    -----
    A run with tools is one cell: broken off, it is asked again from its start.
    """
    given = locals()
    job, stack = _prepare(given)
    with stack:
        aio.run_sync(job.run())
    return _ended(job)


async def asweep(dataset: Any, models: Any, repeats: int = 1, **arguments: Any) -> Sweep:
    """`sweep`, to be awaited. Cancelling the waiting task breaks the sweep off; it can be resumed.

    Parameters
    ----------
    dataset, models, repeats, arguments
        As for `sweep`.

    Returns
    -------
    Sweep
        As of its end.
    """
    unknown = set(arguments) - set(_DEFAULTS)
    given = {**_DEFAULTS, **arguments, "dataset": dataset, "models": models, "repeats": repeats}
    given["agent"] = {name: arguments[name] for name in unknown}
    job, stack = _prepare(given)
    with stack:
        if aio.in_background_loop():
            await job.run()
        else:
            await aio.wait_in_slices(aio.submit(job.run()))
    return _ended(job)


_DEFAULTS: dict[str, Any] = dict(sweep.__kwdefaults__ or {})


def _prepare(given: Mapping[str, Any]) -> tuple[Job, ExitStack]:
    repeats = given["repeats"]
    if not isinstance(repeats, int) or repeats < 1:
        raise ValueError(f"repeats must be a whole number of 1 or more, not {repeats!r}")
    if not given["name"]:
        raise ValueError("a sweep needs a name to be found again by")
    rows = as_rows(given["dataset"])
    works = as_works(given["models"], _settings(given), as_variants(given["variants"]), given["stream"])
    cells = plan_cells(rows, works, given["prompt"], repeats)
    scorers = as_scorers(given["scorers"])
    budget = Budget.of(given["budget"])
    limits = _limits(given["limits"])
    concurrency = _concurrency(given["concurrency"])
    providers = {work.provider for work, _ in works}
    performer = _performer(
        given["executor"], [work for work, _ in works], sum(concurrency(provider) for provider in providers)
    )
    with ExitStack() as stack:
        stack.callback(performer.close)
        journal = Journal(Store.of(given["store"]), given["name"])
        stack.enter_context(only_one(journal.lock_path, given["name"]))
        if not given["resume"]:
            journal.forget()
        places = [(cell.key, cell.place()) for cell in cells]
        journal.plan(places, {"rows": rows, "scorers": [scorer.name for scorer in scorers], "repeats": repeats})
        job = Job(
            journal, cells, rows, scorers, budget, limits, concurrency, performer, given["retry_errors"], given["progress"],
            given["name"],
        )  # fmt: skip
        return job, stack.pop_all()
    raise AssertionError("unreachable")


def _settings(given: Mapping[str, Any]) -> dict[str, Any]:
    tools = given["tools"]
    if isinstance(tools, Iterator):
        tools = list(tools)  # each cell's agent reads them anew
    named = {"tools": tools, "system": given["system"], "output_type": given["output_type"]}
    kept = {name: value for name, value in named.items() if value is not None}
    return {**kept, **(given["options"] or {}), **given["agent"]}


def _limits(limits: Any) -> Callable[[str], RateLimit]:
    if limits is None or isinstance(limits, RateLimit):
        return lambda provider: RateLimit.of(limits)
    if all(not isinstance(value, Mapping | RateLimit) for value in limits.values()):
        every = RateLimit.of(limits)
        return lambda provider: every
    by = {name: RateLimit.of(value) for name, value in limits.items()}
    return lambda provider: by.get(provider, by.get(_OTHERS, RateLimit()))


def _concurrency(concurrency: int | Mapping[str, int]) -> Callable[[str], int]:
    by = dict(concurrency) if isinstance(concurrency, Mapping) else {_OTHERS: concurrency}
    for provider, count in by.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"concurrency must be 1 or more, not {count!r} ({provider})")
    return lambda provider: by.get(provider, by.get(_OTHERS, DEFAULT_CONCURRENCY))


def _performer(executor: Any, works: list[Work], concurrency: int) -> Performer:
    if executor == "local" or executor is None:
        return Local()
    if hasattr(executor, "submit") and hasattr(executor, "scheduler_info"):
        from rein_nb.compare.sweep.cluster import Cluster

        return Cluster(executor, works, concurrency)
    raise TypeError(f"executor is 'local' or a distributed.Client, not {type(executor).__name__}")


def _ended(job: Job) -> Sweep:
    if job.unpriced and job.budget.usd is not None:
        warnings.warn(
            f"{job.unpriced} answers have no known price and counted as 0 USD against the budget; a budget in tokens holds them",
            RuntimeWarning,
            stacklevel=3,
        )
    return Sweep(job.journal)


__all__ = ["asweep", "sweep"]
