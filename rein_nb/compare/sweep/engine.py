"""Running a sweep: lanes of workers by provider, each cell begun in the journal, asked, written down and scored."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from rein_nb.agent.result import AgentResult
from rein_nb.compare.sweep import scorers as scoring
from rein_nb.compare.sweep.budget import Budget, Purse, StopReason
from rein_nb.compare.sweep.dataset import Row
from rein_nb.compare.sweep.journal import Journal, Score
from rein_nb.compare.sweep.perform import perform
from rein_nb.compare.sweep.plan import CellPlan
from rein_nb.compare.sweep.progress import Progress
from rein_nb.compare.sweep.rates import Limiter, RateLimit
from rein_nb.compare.sweep.scorers import Scorer
from rein_nb.ir import ErrorInfo
from rein_nb.store.records import plain, scrub, to_text

T = TypeVar("T")

_BUSY = ("rate_limited", "overloaded")
_BUSY_TRIES = 5
"""How often a cell is asked in all when the provider is too busy to answer; each time the whole lane waits first."""
_BUSY_PAUSE_S = 5.0
"""How long a lane waits where the provider did not say; doubled each time."""

_WIND_DOWN_S = 3.0
"""How long broken-off requests may take to close; below the caller's own patience."""


class Performer(Protocol):
    """Where cells are performed."""

    async def perform(self, cell: CellPlan) -> tuple[AgentResult, int]:
        """The result, and how often the request was begun beyond the first."""
        ...

    def close(self) -> None:
        """No more cells come."""
        ...


class Local:
    """Performs cells in this process."""

    async def perform(self, cell: CellPlan) -> tuple[AgentResult, int]:
        """Ask from here."""
        return await perform(cell.work, cell.messages), 0

    def close(self) -> None:
        """Nothing to let go of."""


class _Stopped(Exception):
    """No more requests: the budget is used up."""


@dataclass(slots=True)
class _Lane:
    """What goes to one provider."""

    limiter: Limiter
    gate: asyncio.Semaphore
    concurrency: int
    queue: deque[CellPlan] = field(default_factory=deque)


@dataclass(slots=True)
class Job:
    """Everything one sweep needs while it runs."""

    journal: Journal
    cells: list[CellPlan]
    rows: list[Row]
    scorers: list[Scorer]
    budget: Budget
    limits: Callable[[str], RateLimit]
    concurrency: Callable[[str], int]
    performer: Performer
    retry_errors: bool
    progress: bool
    name: str
    stop_reason: StopReason | None = None
    unpriced: int = 0
    _purse: Purse = field(init=False)
    _progress: Progress = field(init=False)
    _disk: ThreadPoolExecutor = field(init=False)
    _lanes: dict[str, _Lane] = field(default_factory=dict)
    _stopping: asyncio.Event = field(init=False)
    _open: set[str] = field(default_factory=set)
    _scored: dict[tuple[str, str], str] = field(default_factory=dict)

    def _stop(self, reason: StopReason) -> None:
        self.stop_reason = self.stop_reason or reason
        self._stopping.set()

    async def run(self) -> None:
        """Ask what is open, score what is unscored, and say in the journal why it ended."""
        self._stopping = asyncio.Event()
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="rein_nb-journal")
        try:
            await self._prepare()
            await self._work()
            await self._on_disk(self.journal.stopped, self.stop_reason or "completed")
        except asyncio.CancelledError:
            self.stop_reason = "cancelled"
            self.journal.stopped("cancelled")
            raise
        finally:
            self._disk.shutdown(wait=True)
            self.performer.close()

    async def _on_disk(self, act: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """Off the loop's thread: another process may hold the file for a moment."""
        return await asyncio.get_running_loop().run_in_executor(self._disk, lambda: act(*arguments, **named))

    async def _prepare(self) -> None:
        self._purse = Purse(self.budget, *await self._on_disk(self.journal.spent))
        failed = await self._on_disk(self.journal.keys, "error")
        self._open = await self._on_disk(self.journal.keys, "pending", "running")
        if self.retry_errors:
            self._open |= failed
        self._scored = await self._on_disk(self.journal.scored, failed=not self.retry_errors)
        for cell in self.cells:
            if cell.key in self._open or (cell.key not in failed and self._missing(cell)):
                self._lane(cell.work.provider).queue.append(cell)
        waiting = sum(len(lane.queue) for lane in self._lanes.values())
        self._progress = Progress(self.name, len(self.cells), len(self.cells) - waiting, self.progress)

    def _missing(self, cell: CellPlan) -> list[Scorer]:
        return [scorer for scorer in self.scorers if self._scored.get((cell.key, scorer.name)) != scorer.made_by]

    def _lane(self, provider: str) -> _Lane:
        lane = self._lanes.get(provider)
        if lane is None:
            count = self.concurrency(provider)
            limiter = Limiter(self.limits(provider), sleep=self._pause)
            lane = self._lanes[provider] = _Lane(limiter, asyncio.Semaphore(count), count)
        return lane

    async def _pause(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return
        raise _Stopped

    async def _work(self) -> None:
        tasks = [
            asyncio.ensure_future(self._serve(lane))
            for lane in list(self._lanes.values())
            for _ in range(min(lane.concurrency, len(lane.queue)))
        ]
        try:
            if tasks:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=_WIND_DOWN_S)
            self.unpriced = self._purse.unpriced
            self._progress.close()

    async def _serve(self, lane: _Lane) -> None:
        while lane.queue and self.stop_reason is None:
            cell = lane.queue.popleft()
            result: AgentResult | None
            try:
                if cell.key in self._open:
                    async with lane.gate:
                        result = await self._ask(cell, lane)
                else:
                    stored = await self._on_disk(self.journal.cell, cell.key)
                    result = stored.result
                if result is not None and result.error is None:
                    await self._score(cell, result)
            except _Stopped:
                return
            self._progress.step(ok=result is not None and result.error is None, usd=self._purse.usd)

    async def _admitted(self, lane: _Lane) -> list[float]:
        """A place in the lane, within the budget."""
        if self.stop_reason is not None:
            raise _Stopped
        reason = await self._purse.admit()
        if reason is not None:
            self._stop(reason)
            raise _Stopped
        try:
            ticket = await lane.limiter.acquire()
        except BaseException:
            self._purse.settle(None, None)
            raise
        if self.stop_reason is not None:
            lane.limiter.release(ticket, tokens=None, headers=None)
            self._purse.settle(None, None)
            raise _Stopped
        return ticket

    async def _ask(self, cell: CellPlan, lane: _Lane) -> AgentResult:
        for n in range(_BUSY_TRIES):
            ticket = await self._admitted(lane)
            cost: float | None = None
            tokens: int | None = None
            headers: dict[str, Any] | None = None
            pause_s: float | None = None
            try:
                await self._on_disk(self.journal.begin, cell.key)
                result, more = await self.performer.perform(cell)
                cost, tokens = result.usage.cost_usd, result.usage.total_tokens
                headers, pause_s = _headers(result), _pause(result.error, n)
            finally:
                lane.limiter.release(ticket, tokens=tokens, headers=headers, pause_s=pause_s)
                self._purse.settle(cost, tokens)
            if pause_s is None or n == _BUSY_TRIES - 1:
                break
        await self._on_disk(self._write, cell.key, result, more)
        return result

    def _write(self, key: str, result: AgentResult, more: int) -> None:
        usage = result.usage
        self.journal.finish(
            key, to_text(scrub(plain(result))), ok=result.error is None, cost_usd=usage.cost_usd, tokens=usage.total_tokens, more=more,
        )  # fmt: skip

    async def _score(self, cell: CellPlan, result: AgentResult) -> None:
        row = self.rows[cell.row_index]
        missing = self._missing(cell) if cell.key not in self._open else self.scorers
        free = [(scorer, await scoring.apply(scorer, result, row)) for scorer in missing if not scorer.paid]
        if free:
            scores = [(scorer.name, scorer.made_by, score) for scorer, score in free]
            await self._on_disk(self.journal.finish_scores, cell.key, scores)
        for scorer in missing:
            if scorer.paid:
                await self._judge(cell, scorer, result, row)

    async def _judge(self, cell: CellPlan, scorer: Scorer, result: AgentResult, row: Row) -> None:
        lane = self._lane(scorer.llm.provider if scorer.llm is not None else cell.work.provider)
        async with lane.gate:
            for n in range(_BUSY_TRIES):
                ticket = await self._admitted(lane)
                score: Score | None = None
                pause_s: float | None = None
                try:
                    await self._on_disk(self.journal.begin_score, cell.key, scorer.name, scorer.made_by)
                    score = await scoring.apply(scorer, result, row)
                    pause_s = _pause(score.refused, n)
                finally:
                    tokens = score.tokens if score is not None else None
                    headers = score.headers if score is not None else None
                    lane.limiter.release(ticket, tokens=tokens, headers=headers, pause_s=pause_s)
                    self._purse.settle(score.cost_usd if score is not None else None, tokens)
                if pause_s is None:
                    break
        await self._on_disk(self.journal.finish_scores, cell.key, [(scorer.name, scorer.made_by, score)])


def _pause(error: ErrorInfo | None, n: int) -> float | None:
    """Seconds to leave a provider alone that had no time for request number `n`; None for anything else."""
    if error is None or error.kind not in _BUSY:
        return None
    return error.retry_after_s if error.retry_after_s is not None else _BUSY_PAUSE_S * 2.0**n


def _headers(result: AgentResult) -> dict[str, Any] | None:
    completion = result.completion
    return completion.extra.get("http") if completion is not None else None
