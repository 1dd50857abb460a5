"""`Sweep`: what a sweep gave so far, read from its journal: while it runs, after it ended, and in another process."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rein_nb.agent.result import AgentResult
from rein_nb.compare.sweep import stats
from rein_nb.compare.sweep.dataset import Row
from rein_nb.compare.sweep.journal import Journal, Score, State, hash_of
from rein_nb.frames import RunSource
from rein_nb.frames import frame as make_frame
from rein_nb.frames.columns import to_array
from rein_nb.store import Store

if TYPE_CHECKING:
    import pandas as pd

STATES: tuple[str, ...] = ("pending", "running", "done", "error")


@dataclass(frozen=True, slots=True)
class CellResult:
    """One cell of the grid.

    Attributes
    ----------
    key
        The same for the same question, wherever and whenever it is asked.
    row_index, row
        Place in the dataset, from 0, and the row.
    model, variant, repeat
        Labels, and which repetition, from 0.
    prompt
        What was asked, as text.
    state
        ``pending``, ``running`` (or broken off while it was), ``done`` or ``error``.
    attempts
        How often it was begun: above 1 where a process or a worker died meanwhile, or the provider was busy.
    result
        The run; None while there is none. A failed one has an error.
    scores
        By scorer.
    """

    key: str
    row_index: int
    row: Row
    model: str
    variant: str
    repeat: int
    state: State
    attempts: int
    prompt: str
    result: AgentResult | None = field(default=None, repr=False)
    scores: dict[str, Score] = field(default_factory=dict)


class Sweep:
    """A sweep as its journal has it. `sweep` returns one; `Sweep.open` finds one again, also while another process runs it.

    Attributes
    ----------
    name
        Its name in the store.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.name = journal.name

    @classmethod
    def open(cls, name: str = "sweep", *, store: Store | str | os.PathLike[str] | None = None) -> Sweep:
        """A sweep of the store by its name, to look at.

        Raises
        ------
        KeyError
            Naming the sweeps there are.
        """
        found = cls(Journal(Store.of(store), name))
        found._journal.facts()
        return found

    def __repr__(self) -> str:
        counts = self.counts
        usd, tokens = self.spent
        facts = [f"{counts.get('done', 0)} of {sum(counts.values())} cells done"]
        facts += [
            f"{counts[state]} {word}"
            for state, word in (("error", "failed"), ("running", "running"))
            if counts.get(state)
        ]
        facts.append(f"{usd:.4f} USD, {tokens} tokens" if usd else f"{tokens} tokens")
        return f"Sweep({self.name!r}: {', '.join(facts)}; {self.stop_reason or 'not ended'})"

    @property
    def counts(self) -> dict[str, int]:
        """Cells by state."""
        return self._journal.counts()

    @property
    def stop_reason(self) -> str | None:
        """``completed``, ``budget_usd``, ``budget_tokens`` or ``cancelled``; None while it runs, and when its process died."""
        reason: str | None = self._journal.facts()["stop_reason"]
        return reason

    @property
    def spent(self) -> tuple[float, int]:
        """US dollars and tokens paid so far, over all calls of this name, judges included. Unknown prices count as nothing."""
        return self._journal.spent()

    @property
    def results(self) -> list[CellResult]:
        """Every cell, in order, as of now."""
        facts = self._journal.facts()
        scores = self._journal.scores()
        return [
            CellResult(
                key=stored.key,
                row_index=stored.cell["row"],
                row=facts["rows"][stored.cell["row"]],
                model=stored.cell["model"],
                variant=stored.cell["variant"],
                repeat=stored.cell["repeat"],
                state=stored.state,
                attempts=stored.attempts,
                prompt=stored.cell["prompt"],
                result=stored.result,
                scores=scores.get(stored.key, {}),
            )
            for stored in self._journal.cells()
        ]

    def frame_sources(self) -> Iterator[RunSource]:
        """What `rein_nb.frames` reads: each run with its place in the grid."""
        for cell in self.results:
            if cell.result is not None:
                label = f"{cell.model} [{cell.variant}]" if cell.variant else cell.model
                yield RunSource(cell.result, label=label, prompt_index=cell.row_index, repeat=cell.repeat)

    def to_frame(self, kind: str = "runs") -> pd.DataFrame:
        """One of the tidy frames: ``runs``, ``turns``, ``messages``, ``parts``, ``tool_calls`` or ``usage``."""
        return make_frame(kind, self)

    def frame(self) -> pd.DataFrame:
        """One row a cell, as of now: place, state, answer, error, tokens, cost (USD), times (seconds), the dataset's fields
        (``data.<name>``) and scores (``score.<name>`` with ``score_error.<name>``).
        """
        import pandas as pd

        cells = self.results
        columns: dict[str, Any] = {
            name: to_array(dtype, [read(cell) for cell in cells]) for name, dtype, read in _COLUMNS
        }
        facts = self._journal.facts()
        rows = facts["rows"]
        for name in dict.fromkeys(name for row in rows for name in row):
            by_row = pd.Series([row.get(name) for row in rows]).convert_dtypes()
            columns[f"data.{name}"] = by_row.take([cell.row_index for cell in cells]).array
        for name in dict.fromkeys([*facts["scorers"], *(name for cell in cells for name in cell.scores)]):
            found = [cell.scores.get(name) for cell in cells]
            columns[f"score.{name}"] = to_array("Float64", [score.value if score else None for score in found])
            columns[f"score_error.{name}"] = to_array("string", [score.error if score else None for score in found])
        return pd.DataFrame(columns)

    def summary(
        self,
        by: Sequence[str] = ("model", "variant"),
        *,
        confidence: float = 0.95,
        samples: int = 2000,
        seed: int = 0,
    ) -> pd.DataFrame:
        """Means with confidence intervals, one row a group and metric.

        Scores that are all 0 or 1, and the rate of errors, are proportions: Wilson's interval. Scores of other kinds, cost, time and tokens
        are means: a percentile bootstrap. The dataset's rows are the units: repeats of a row are drawn together, and a proportion counts as
        many trials as its repeats are worth. A cell without a score is left out of that score's mean, and counted in ``missing``: look at the
        error rate beside it.

        Parameters
        ----------
        by
            Columns of `frame` that make the groups.
        confidence
            Between 0 and 1.
        samples, seed
            Of the bootstrap; the same seed gives the same numbers.

        Returns
        -------
        DataFrame
            The columns of `by`, ``metric``, ``n``, ``missing``, ``mean``, ``low``, ``high``, ``method``.
        """
        import pandas as pd

        if not 0 < confidence < 1:
            raise ValueError(f"confidence must be between 0 and 1, for example 0.95, not {confidence}")
        df = self.frame()
        unknown = [name for name in by if name not in df.columns]
        if unknown:
            raise ValueError(f"no column {unknown[0]!r} to group by; there are: {', '.join(df.columns)}")
        ended = df[df["state"].isin(["done", "error"])]
        metrics = [name for name in df.columns if name.startswith("score.")] + ["error_rate", *_MEANS]
        groups = ended.groupby(list(by), sort=False, observed=True, dropna=False) if by else [((), ended)]
        rows = []
        for group, part in groups:
            place = dict(zip(by, group if isinstance(group, tuple) else (group,), strict=True))
            for metric in metrics:
                values = (
                    (part["state"] == "error").astype("Float64")
                    if metric == "error_rate"
                    else part[metric].astype("Float64")
                )
                proportion = metric == "error_rate" or (
                    metric.startswith("score.") and bool(df[metric].dropna().isin([0.0, 1.0]).all())
                )
                known = values.notna()
                numbers = [float(value) for value in values[known]]
                units = [int(index) for index in part["row"][known]]
                salt = [seed, hash_of(f"{list(place.values())} {metric}")]
                rows.append(
                    {
                        **place,
                        "metric": metric,
                        **_interval(numbers, units, proportion, confidence, samples, salt),
                        "missing": int((~known).sum()),
                    }
                )
        names = [*by, "metric", "n", "missing", "mean", "low", "high", "method"]
        made = pd.DataFrame(rows, columns=names)
        types = {
            "n": "Int64",
            "missing": "Int64",
            "mean": "Float64",
            "low": "Float64",
            "high": "Float64",
            "metric": "string",
            "method": "string",
        }
        return made.astype({**types, **{name: df[name].dtype for name in by}})


def _interval(
    numbers: list[float], units: list[int], proportion: bool, confidence: float, samples: int, seed: Sequence[int]
) -> dict[str, Any]:
    method = "wilson" if proportion else "bootstrap"
    if not numbers:
        return {"n": 0, "mean": None, "low": None, "high": None, "method": method}
    mean = sum(numbers) / len(numbers)
    if proportion:
        n = stats.effective_n(numbers, units)
        low, high = stats.wilson(mean * n, n, confidence)
    else:
        low, high = stats.bootstrap(numbers, units, confidence=confidence, samples=samples, seed=seed)
    known = not math.isnan(low)
    return {
        "n": len(numbers),
        "mean": mean,
        "low": low if known else None,
        "high": high if known else None,
        "method": method,
    }


_MEANS = ("cost_usd", "tokens", "duration_s")


def _usage(name: str) -> Any:
    return lambda cell: getattr(cell.result.usage, name) if cell.result is not None else None


def _result(name: str) -> Any:
    return lambda cell: getattr(cell.result, name) if cell.result is not None else None


def _error(name: str) -> Any:
    return lambda cell: (
        getattr(cell.result.error, name) if cell.result is not None and cell.result.error is not None else None
    )


def _timing(name: str) -> Any:
    def read(cell: CellResult) -> Any:
        completion = cell.result.completion if cell.result is not None else None
        return getattr(completion.timing, name) if completion is not None else None

    return read


_COLUMNS: tuple[tuple[str, Any, Any], ...] = (
    ("key", "string", lambda cell: cell.key),
    ("row", "Int64", lambda cell: cell.row_index),
    ("model", "string", lambda cell: cell.model),
    ("variant", "string", lambda cell: cell.variant),
    ("repeat", "Int64", lambda cell: cell.repeat),
    ("state", STATES, lambda cell: cell.state),
    ("attempts", "Int64", lambda cell: cell.attempts),
    ("prompt", "string", lambda cell: cell.prompt),
    ("text", "string", _result("text")),
    ("stop_reason", "string", _result("stop_reason")),
    ("error_kind", "string", _error("kind")),
    ("error_message", "string", _error("message")),
    ("input_tokens", "Int64", _usage("input_tokens")),
    ("output_tokens", "Int64", _usage("output_tokens")),
    ("reasoning_tokens", "Int64", _usage("reasoning_tokens")),
    ("tokens", "Int64", _usage("total_tokens")),
    ("cost_usd", "Float64", _usage("cost_usd")),
    ("started_at", "time", _result("started_at")),
    ("duration_s", "Float64", _result("duration_s")),
    ("first_token_s", "Float64", _timing("first_token_s")),
    ("retries", "Int64", _timing("retries")),
    ("run_id", "string", _result("run_id")),
)
