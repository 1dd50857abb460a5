"""Running a comparison: every column at once, each alone with its faults."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rein_nb import aio
from rein_nb.agent.events import AgentEnd
from rein_nb.agent.result import AgentResult
from rein_nb.compare.columns import ModelColumn, as_columns, as_prompts, prompt_text
from rein_nb.compare.comparison import Cell, Comparison
from rein_nb.compare.display import Display, Stops, open_display
from rein_nb.ir import ErrorInfo, Message, clock
from rein_nb.stream import CancellationToken

DEFAULT_CONCURRENCY = 8
"""Cells of one column in flight at once, where the caller sets no number."""

_WIND_DOWN_S = 3.0
"""How long interrupted runs may take to close; below the caller's own patience."""

_last: Comparison | None = None


@dataclass(slots=True)
class _Job:
    """Everything one comparison needs while it runs."""

    columns: list[ModelColumn]
    prompts: list[list[Message]]
    comparison: Comparison
    concurrency: int
    stop: CancellationToken = field(default_factory=CancellationToken)
    stops: dict[str, CancellationToken] = field(default_factory=dict)
    display: Display | None = None
    display_error: Exception | None = None

    def feed(self, cell: Cell, event: Any) -> None:
        """Keep an event and show it. A display that fails is dropped; the runs go on, and the fault is told at the end."""
        cell.events.append(event)
        if self.display is not None and self.display_error is None:
            try:
                self.display.feed(cell.label, cell.prompt_index, cell.repeat, event)
            except Exception as exc:
                self.display_error = exc


def compare(
    prompts: Any,
    models: Any,
    tools: Sequence[Any] | None = None,
    system: str | None = None,
    repeats: int = 1,
    *,
    options: Mapping[str, Any] | None = None,
    output_type: Any = None,
    tool_choice: Any = None,
    limits: Any = None,
    concurrency: int | None = None,
    show: bool = True,
    **agent: Any,
) -> Comparison:
    """Give the same work to several models, all at once, and keep everything. For a cell or a script.

    One column's failure never stops another: a run that failed is a row with its error.

    Parameters
    ----------
    prompts
        A string, a `Message`, or a list of these; an item that is a list of messages is one prompt.
    models
        Names (``"provider/model"``), `LLM` or `Agent` objects in a list, or in a dict whose keys are the labels. An `Agent` is forked for
        each run and keeps its own tools, system prompt and settings.
    tools, system, output_type, tool_choice, limits
        As for `Agent`.
    repeats
        Runs of each prompt on each model.
    options
        `Options` fields for each model call, for example ``{"temperature": 0}``.
    concurrency
        Most runs of one column in flight at once; 8 by default.
    show
        Show the columns while they stream, where a notebook can.
    agent
        Further `Agent` arguments.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError, TypeError
        For what is wrong with the arguments, before anything is sent.
    KeyboardInterrupt
        When interrupted: all runs are stopped first; what there is by then is in ``rein_nb.compare.last()``.
    """
    job = _prepare(
        prompts,
        models,
        repeats,
        concurrency,
        show,
        _settings(tools, system, options, output_type, tool_choice, limits, agent),
    )
    try:
        aio.run_sync(_run(job))
    finally:
        _finish(job)
    return job.comparison


async def acompare(
    prompts: Any,
    models: Any,
    tools: Sequence[Any] | None = None,
    system: str | None = None,
    repeats: int = 1,
    *,
    options: Mapping[str, Any] | None = None,
    output_type: Any = None,
    tool_choice: Any = None,
    limits: Any = None,
    concurrency: int | None = None,
    show: bool = True,
    **agent: Any,
) -> Comparison:
    """`compare`, to be awaited. Cancelling the waiting task stops all runs.

    Parameters
    ----------
    prompts, models, tools, system, repeats, options, output_type, tool_choice, limits, concurrency, show, agent
        As for `compare`.

    Returns
    -------
    Comparison
        Every column, also those that failed.
    """
    job = _prepare(
        prompts,
        models,
        repeats,
        concurrency,
        show,
        _settings(tools, system, options, output_type, tool_choice, limits, agent),
    )
    try:
        if aio.in_background_loop():
            await _run(job)
        else:
            await aio.wait_in_slices(aio.submit(_run(job)))
    finally:
        _finish(job)
    return job.comparison


def last() -> Comparison | None:
    """The comparison that was started last in this process, as far as it got; also after an interrupt."""
    return _last


def _settings(
    tools: Any,
    system: Any,
    options: Mapping[str, Any] | None,
    output_type: Any,
    tool_choice: Any,
    limits: Any,
    agent: Mapping[str, Any],
) -> dict[str, Any]:
    if isinstance(tools, Iterator):
        tools = list(tools)  # each cell's agent reads them anew
    named = {"tools": tools, "system": system, "output_type": output_type, "tool_choice": tool_choice, "limits": limits}
    return {**{name: value for name, value in named.items() if value is not None}, **(options or {}), **agent}


def _prepare(
    prompts: Any, models: Any, repeats: int, concurrency: int | None, show: bool, settings: Mapping[str, Any]
) -> _Job:
    global _last
    if repeats < 1:
        raise ValueError(f"repeats must be 1 or more, not {repeats}")
    if concurrency is not None and concurrency < 1:
        raise ValueError(f"concurrency must be 1 or more, not {concurrency}")
    columns = as_columns(models, settings)
    rows = as_prompts(prompts)
    for column in columns:
        column.make()  # refuses wrong settings now, before any column has cost anything
    labels = [column.label for column in columns]
    comparison = Comparison(labels=labels, prompts=[prompt_text(row) for row in rows], repeats=repeats)
    job = _Job(columns, rows, comparison, concurrency or DEFAULT_CONCURRENCY)
    job.stops = {label: job.stop.child() for label in labels}
    if show:
        stops = Stops(
            lambda: job.stop.cancel("stopped"), {label: _stopper(token) for label, token in job.stops.items()}
        )
        job.display = open_display(labels, comparison.prompts, stops)
    _last = comparison
    return job


def _stopper(token: CancellationToken) -> Any:
    return lambda: token.cancel("stopped")


def _finish(job: _Job) -> None:
    for token in job.stops.values():
        token.close()
    if job.display is not None:
        job.display.finish(job.comparison)
    if job.display_error is not None:
        exc = job.display_error
        warnings.warn(
            f"the display failed and was switched off: {type(exc).__name__}: {exc}", RuntimeWarning, stacklevel=3
        )


async def _run(job: _Job) -> None:
    tasks = [asyncio.ensure_future(_column(job, column)) for column in job.columns]
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        # The tokens end each run in order, with its partial result kept; only then is the cancellation passed on.
        job.stop.cancel("interrupted")
        await asyncio.wait(tasks, timeout=_WIND_DOWN_S)
        raise
    finally:
        for task in tasks:
            task.cancel()
    for task in tasks:
        task.result()


async def _column(job: _Job, column: ModelColumn) -> None:
    gate = asyncio.Semaphore(job.concurrency)

    async def one(cell: Cell) -> None:
        async with gate:
            await _cell(job, column, cell)

    await asyncio.gather(*(one(cell) for cell in job.comparison.cells if cell.label == column.label))


async def _cell(job: _Job, column: ModelColumn, cell: Cell) -> None:
    started_at = clock.now()
    messages = job.prompts[cell.prompt_index]
    try:
        async for event in column.make().events(messages, signal=job.stops[column.label], interactive=False):
            job.feed(cell, event)
            if isinstance(event, AgentEnd):
                cell.result = event.result
        if cell.result is None:
            raise RuntimeError("the run ended without saying how")
    except Exception as exc:
        # A run that began has told its end; the exception then says the same once more.
        if cell.result is None:
            cell.result = _failed(column.label, messages, exc, started_at)


def _failed(label: str, messages: list[Message], exc: Exception, started_at: float) -> AgentResult:
    """The row of a run that could not be made at all."""
    return AgentResult(
        run_id=clock.new_id("failed", label, [message.text for message in messages]),
        label=label,
        messages=messages,
        stop_reason="error",
        error=ErrorInfo.of(exc),
        started_at=clock.measured(started_at),
        duration_s=clock.measured(clock.now() - started_at),
    )
