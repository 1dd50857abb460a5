"""The outcome of a comparison: runs in a grid, and every way to look at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rein_nb.agent.events import AgentEvent
from rein_nb.agent.result import AgentResult
from rein_nb.frames import KINDS, RunSource, frame
from rein_nb.ir import Usage, redact

if TYPE_CHECKING:
    import pandas as pd

    from rein_nb.compare.diff import Diff
    from rein_nb.compare.review import Review


@dataclass(slots=True)
class Cell:
    """One run in the grid.

    Attributes
    ----------
    label, prompt_index, repeat
        Its column, its row, and which repetition, from 0.
    result
        The outcome; None while it runs, and when it was torn down before it could tell.
    events
        Everything the run told, in order.
    """

    label: str
    prompt_index: int
    repeat: int
    result: AgentResult | None = None
    events: list[AgentEvent] = field(default_factory=list, repr=False)


class Comparison:
    """The same prompts on several models: frames, a table, differences, plots.

    Attributes
    ----------
    labels
        The columns, in order.
    prompts
        The rows' prompts as text.
    repeats
        Runs a cell of the grid holds.
    cells
        Every run, by prompt, then repeat, then label.
    """

    def __init__(self, labels: list[str], prompts: list[str], repeats: int = 1) -> None:
        self.labels = labels
        self.prompts = prompts
        self.repeats = repeats
        self.cells = [
            Cell(label, n, k) for n in range(len(prompts)) for k in range(repeats) for label in labels
        ]  # fmt: skip
        self._index = {(cell.label, cell.prompt_index, cell.repeat): cell for cell in self.cells}

    def __repr__(self) -> str:
        failed = [cell for cell in self.cells if cell.result is not None and cell.result.error is not None]
        done = sum(cell.result is not None for cell in self.cells)
        usage = self.usage_total
        facts = [
            f"{len(self.prompts)} prompts x {len(self.labels)} models x {self.repeats} repeats",
            f"{done} of {len(self.cells)} runs",
        ]
        if failed:
            facts.append(f"{len(failed)} failed")
        if usage.cost_usd is not None:
            facts.append(f"{usage.cost_usd:.4f} USD" + ("" if usage.complete else " at least"))
        return f"Comparison({', '.join(facts)}; {', '.join(self.labels)})"

    def _repr_html_(self) -> str:
        return self.to_html()

    # -- runs -------------------------------------------------------------------------------------

    def cell(self, label: str, prompt_index: int = 0, repeat: int = 0) -> Cell:
        """One cell of the grid.

        Raises
        ------
        KeyError
            Naming the labels there are, or the size of the grid.
        """
        try:
            return self._index[label, prompt_index, repeat]
        except KeyError:
            if label not in self.labels:
                raise KeyError(f"no column {label!r}; there are: {', '.join(self.labels)}") from None
            raise KeyError(
                f"no prompt {prompt_index}, repeat {repeat}: there are {len(self.prompts)} prompts and {self.repeats} repeats, from 0"
            ) from None

    def result(self, label: str, prompt_index: int = 0, repeat: int = 0) -> AgentResult:
        """The result of one cell.

        Raises
        ------
        KeyError
            When there is no such cell.
        ValueError
            When the run has no result: it is not done, or was torn down.
        """
        found = self.cell(label, prompt_index, repeat).result
        if found is None:
            raise ValueError(f"the run of {label!r} on prompt {prompt_index} has no result")
        return found

    @property
    def results(self) -> list[AgentResult]:
        """Every result there is, by prompt, then repeat, then label."""
        return [cell.result for cell in self.cells if cell.result is not None]

    @property
    def usage_total(self) -> Usage:
        """Tokens and cost of all runs together; `complete` is False when something was not reported."""
        results = self.results
        return sum((result.usage for result in results[1:]), results[0].usage) if results else Usage()

    # -- frames -----------------------------------------------------------------------------------

    def frame_sources(self) -> Iterator[Any]:
        """What frames are made of: the runs with their place in the grid, and all events."""
        for cell in self.cells:
            if cell.result is not None:
                yield RunSource(cell.result, label=cell.label, prompt_index=cell.prompt_index, repeat=cell.repeat)
            yield from cell.events

    def to_frame(self, kind: str = "runs") -> pd.DataFrame:
        """One of the tidy frames; see `rein_nb.frames.frame`."""
        return frame(kind, self)

    @property
    def runs(self) -> pd.DataFrame:
        """One row a run."""
        return self.to_frame("runs")

    @property
    def turns(self) -> pd.DataFrame:
        """One row a model call."""
        return self.to_frame("turns")

    @property
    def messages(self) -> pd.DataFrame:
        """One row a message."""
        return self.to_frame("messages")

    @property
    def parts(self) -> pd.DataFrame:
        """One row a part of a message."""
        return self.to_frame("parts")

    @property
    def tool_calls(self) -> pd.DataFrame:
        """One row a tool call."""
        return self.to_frame("tool_calls")

    @property
    def usage(self) -> pd.DataFrame:
        """One row a model call: tokens and cost, beside what the provider reported."""
        return self.to_frame("usage")

    @property
    def events(self) -> pd.DataFrame:
        """One row an event."""
        return self.to_frame("events")

    def table(self) -> pd.DataFrame:
        """Answers as text: a row a prompt (and repeat), a column a label. A failed run shows its error in brackets."""
        import pandas as pd

        rows = [(n, k) for n in range(len(self.prompts)) for k in range(self.repeats)]
        prompts = [self.prompts[n] for n, _ in rows]
        index = (
            pd.Index(prompts, name="prompt", dtype="string")
            if self.repeats == 1
            else pd.MultiIndex.from_arrays([prompts, [k for _, k in rows]], names=["prompt", "repeat"])
        )
        columns = {
            label: pd.array([_answer(self.cell(label, n, k).result) for n, k in rows], dtype="string")
            for label in self.labels
        }
        return pd.DataFrame(columns, index=index)

    # -- looking ----------------------------------------------------------------------------------

    def diff(self, a: str | None = None, b: str | None = None, prompt_index: int = 0, repeat: int = 0) -> Diff:
        """What differs between two columns' answers, word by word, and between their tool calls.

        Parameters
        ----------
        a, b
            Labels; the first two columns by default.
        """
        from rein_nb.compare.diff import Diff

        if a is None or b is None:
            others = [label for label in self.labels if label not in (a, b)]
            a = a if a is not None else others.pop(0)
            if b is None:
                if not others:
                    raise ValueError("a difference needs two columns, and there is one")
                b = others[0]
        return Diff.of(self.result(a, prompt_index, repeat), self.result(b, prompt_index, repeat), a, b)

    def plot(self, kind: str = "latency", *, quality: Any = None) -> Any:
        """An Altair chart.

        Parameters
        ----------
        kind
            ``cost`` (cost against `quality`, or against seconds where none is given), ``first_token``, ``tokens``, ``latency`` (distribution
            of seconds a run took), ``timeline`` (model calls and tool calls on a clock).
        quality
            For ``cost``: a function from `AgentResult` to a number.

        Raises
        ------
        ImportError
            Naming the extra to install, when Altair is not there.
        ValueError
            For an unknown kind.
        """
        from rein_nb.compare.plots import plot

        return plot(self, kind, quality=quality)

    def review(
        self, *, voter: str = "", labels: Sequence[str] | None = None, seed: int = 0, votes: Any = None
    ) -> Review:
        """Judge the answers by eye: two at a time, blind and shuffled. As the last value of a cell it is a widget with keys.

        Parameters
        ----------
        voter
            Who judges; each voter sees an order of their own.
        labels
            The columns to judge; all by default.
        seed
            Fixes order and sides.
        votes
            A frame of votes, or several, to go on from; other voters' count for agreement and ratings.

        Raises
        ------
        ValueError
            When there is nothing to judge, or `votes` are about something else.
        """
        from rein_nb.compare.review import Review

        return Review(self, voter=voter, labels=labels, seed=seed, votes=votes)

    def to_html(self, path: str | Path | None = None) -> str:
        """The grid as one static, self-contained page without scripts; also written to `path`, where one is given."""
        from rein_nb.compare.html import page

        html = page(self)
        if path is not None:
            Path(path).write_text(html, encoding="utf-8")
        return html

    def to_parquet(self, folder: str | Path) -> Path:
        """Write every frame as ``<kind>.parquet`` into `folder`, made where it is missing. Secrets are masked. Returns the folder."""
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for kind in KINDS:
            df = self.to_frame(kind)
            for name in df.columns:
                if df[name].dtype == "string":
                    df[name] = df[name].map(redact, na_action="ignore").astype("string")
            df.to_parquet(folder / f"{kind}.parquet", index=False)
        return folder


def _answer(result: AgentResult | None) -> str | None:
    if result is None:
        return None
    if result.error is None:
        return result.text
    return f"{result.text}\n[{result.error.kind}: {result.error.message}]".lstrip("\n")
