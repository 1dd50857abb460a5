"""Judging answers by eye: two at a time, blind and shuffled, votes into a frame.

`Review` is the whole of it without a display: which pairs come in which order, what was voted, and what follows from the votes. In a notebook
it shows itself as a widget (`rein_nb.notebook.review`), with keys for every vote.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from rein_nb.compare import review_stats as stats
from rein_nb.compare.review_votes import VOTES, Vote, item_key, typed_frame, votes_frame, votes_of

if TYPE_CHECKING:
    import pandas as pd

    from rein_nb.agent.result import AgentResult
    from rein_nb.compare.comparison import Comparison


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers to one prompt.

    Attributes
    ----------
    prompt_index, repeat
        Whose answers.
    left, right
        The labels, as they stand on the page.
    """

    prompt_index: int
    repeat: int
    left: str
    right: str

    @property
    def key(self) -> tuple[int, int, frozenset[str]]:
        """The pair, whichever stands left."""
        return self.prompt_index, self.repeat, frozenset((self.left, self.right))


class Review:
    """A judging session of one voter; made by `Comparison.review`.

    Parameters
    ----------
    comparison
        Whose answers are judged.
    voter
        Who judges. Each voter sees an order of their own.
    labels
        The columns to judge; all by default.
    seed
        Fixes order and sides.
    votes
        Frames of votes to go on from: this voter's pairs are not shown again, other voters' count for `agreement` and `ratings`.

    Attributes
    ----------
    pairs
        What is judged, in order.
    left_out
        Cells that cannot be judged because the run failed or gave no answer: (label, prompt index, repeat).

    Examples
    --------
    >>> review = comparison.review(voter="me")         # doctest: +SKIP
    >>> review.vote("left")                            # doctest: +SKIP
    >>> review.ratings()                               # doctest: +SKIP
    """

    def __init__(
        self,
        comparison: Comparison,
        *,
        voter: str = "",
        labels: Sequence[str] | None = None,
        seed: int = 0,
        votes: Any = None,
    ) -> None:
        self.comparison = comparison
        self.voter = str(voter)
        self.labels = _chosen(comparison, labels)
        self.seed = seed
        self.left_out = [
            (cell.label, cell.prompt_index, cell.repeat)
            for cell in comparison.cells
            if cell.label in self.labels and not _judgeable(cell.result)
        ]
        self.pairs = _planned(comparison, self.labels, set(self.left_out), f"{seed}:{self.voter}")
        if not self.pairs:
            raise ValueError("there is no pair to judge: no prompt was answered by two of the columns")
        self._by_key = {pair.key: pair for pair in self.pairs}
        self._rows: dict[tuple[int, int, frozenset[str]], dict[str, Any]] = {}
        self._others: list[dict[str, Any]] = []
        self._shown_at: float | None = None
        self._view: Any = None
        if votes is not None:
            self.join(*(votes if isinstance(votes, list | tuple) else [votes]))

    def __repr__(self) -> str:
        who = f" by {self.voter}" if self.voter else ""
        return f"Review({len(self._rows)} of {len(self.pairs)} pairs judged{who}; {', '.join(self.labels)})"

    # -- judging ----------------------------------------------------------------------------------

    @property
    def current(self) -> Pair | None:
        """The pair to judge next; None when all are judged."""
        return next((pair for pair in self.pairs if pair.key not in self._rows), None)

    @property
    def done(self) -> bool:
        """Whether every pair was judged or skipped."""
        return len(self._rows) == len(self.pairs)

    @property
    def progress(self) -> tuple[int, int]:
        """(pairs judged, pairs in all)."""
        return len(self._rows), len(self.pairs)

    def answers(self, pair: Pair) -> tuple[AgentResult, AgentResult]:
        """The runs that stand left and right."""
        result = self.comparison.result
        return (
            result(pair.left, pair.prompt_index, pair.repeat),
            result(pair.right, pair.prompt_index, pair.repeat),
        )

    def show(self) -> None:
        """Start the clock of the current pair: `seconds` of the next vote count from here. A display calls it."""
        self._shown_at = time.perf_counter()

    def vote(self, vote: Vote, *, seconds: float | None = None) -> Pair | None:
        """Judge the current pair.

        Parameters
        ----------
        vote
            ``"left"``, ``"right"``, ``"tie"``, ``"both_bad"`` or ``"skip"``.
        seconds
            How long it took; by default since the pair was shown, where it was.

        Returns
        -------
        Pair or None
            The next pair; None when that was the last.

        Raises
        ------
        ValueError
            For another word.
        RuntimeError
            When all pairs are judged.
        """
        if vote not in VOTES:
            raise ValueError(f"a vote is one of {', '.join(VOTES)}, not {vote!r}")
        pair = self.current
        if pair is None:
            raise RuntimeError("every pair is judged; undo() takes the last vote back")
        if seconds is None and self._shown_at is not None:
            seconds = time.perf_counter() - self._shown_at
        self._rows[pair.key] = self._row(pair, vote, seconds)
        self._shown_at = None
        self._changed()
        return self.current

    def undo(self) -> Pair | None:
        """Take the last vote back; the pair that is to be judged again, or None when there was no vote."""
        if not self._rows:
            return None
        self._rows.popitem()
        self._shown_at = None
        self._changed()
        return self.current

    def _row(self, pair: Pair, vote: str, seconds: float | None) -> dict[str, Any]:
        return {
            "prompt_index": pair.prompt_index,
            "prompt": self.comparison.prompts[pair.prompt_index],
            "repeat": pair.repeat,
            "left": pair.left,
            "right": pair.right,
            "vote": vote,
            "winner": {"left": pair.left, "right": pair.right}.get(vote),
            "seconds": seconds,
            "voter": self.voter,
        }

    def _changed(self) -> None:
        if self._view is not None:
            self._view.refresh()

    # -- votes ------------------------------------------------------------------------------------

    @property
    def votes(self) -> pd.DataFrame:
        """Every vote, this voter's first, in the order in which they were given: one row a judged pair.

        Columns: prompt_index, prompt, repeat, left, right (labels as they stood), vote, winner (a label; NA without one), seconds (NA where
        not measured), voter.
        """
        return votes_frame([*self._rows.values(), *self._others])

    def to_frame(self) -> pd.DataFrame:
        """As `votes`."""
        return self.votes

    def join(self, *frames: Any) -> Review:
        """Take in frames of votes: this voter's are taken up, other voters' count for `agreement` and `ratings`. Returns itself.

        A pair that a voter judged twice counts as judged last.

        Raises
        ------
        ValueError
            When a frame lacks columns, or is about other prompts or labels.
        """
        for frame in frames:
            for row in votes_of(frame, self.comparison):
                pair = Pair(row["prompt_index"], row["repeat"], row["left"], row["right"])
                if row["voter"] == self.voter:
                    if pair.key in self._by_key:
                        self._rows.pop(pair.key, None)
                        self._rows[pair.key] = row
                    continue
                same = [o for o in self._others if o["voter"] == row["voter"] and item_key(o) == pair.key]
                for other in same:
                    self._others.remove(other)
                self._others.append(row)
        self._changed()
        return self

    # -- what follows -----------------------------------------------------------------------------

    def agreement(self, *, confidence: float = 0.95, samples: int = 1000, seed: int | None = None) -> stats.Agreement:
        """How far the voters agree beyond chance on who won, or that nobody did (``tie`` and ``both_bad`` are one judgement).

        Cohen's kappa for two voters, Krippendorff's alpha for more; pairs that only one voter judged, and skipped ones, count for nothing.
        The interval is a bootstrap over pairs, and is not given for fewer than five.

        Raises
        ------
        ValueError
            With fewer than two voters.
        """
        items: dict[Any, dict[str, Any]] = {}
        voters: dict[str, None] = {}
        for row in self._judged():
            voters[row["voter"]] = None
            items.setdefault(item_key(row), {})[row["voter"]] = row["winner"]
        return stats.agreement(
            items, list(voters), confidence=confidence, samples=samples, seed=self.seed if seed is None else seed
        )

    def ratings(
        self,
        method: Literal["bradley_terry", "elo"] = "bradley_terry",
        *,
        prior: float = 0.1,
        k: float = 32.0,
        confidence: float = 0.95,
        samples: int = 1000,
        seed: int | None = None,
    ) -> pd.DataFrame:
        """How strong each column is: one row a label, the strongest first.

        Columns: label, rating (mean 1000; 400 points more are odds of ten to one; NA without votes), low and high (bootstrap interval over
        prompts; NA with fewer than five), votes, wins, losses, ties, both_bad, skipped.

        Parameters
        ----------
        method
            ``"bradley_terry"``: maximum likelihood, ties after Davidson. ``"elo"``: a tie is half a win; the mean over 100 shuffled orders.
            Both count ``both_bad`` as a tie.
        prior
            For Bradley-Terry: wins added to each side of every compared pair, so that a column that never lost has a finite rating. 0 for
            the plain maximum.
        k
            For Elo: the most points one vote moves.
        confidence, samples, seed
            Of the bootstrap, which draws whole prompts: answers to one prompt are not independent. `seed` is the review's by default.

        Raises
        ------
        ValueError
            For an unknown method; when some columns were never compared with the others; with ``prior=0``, when no finite rating exists.
        """
        seed = self.seed if seed is None else seed
        rows = self.standing(method, prior=prior, k=k, confidence=confidence, samples=samples, seed=seed)
        dtypes = {"label": "string"} | dict.fromkeys(("rating", "low", "high"), "Float64")
        return typed_frame(rows, {name: dtypes.get(name, "Int64") for name in rows[0]})

    def standing(
        self, method: str, *, prior: float, k: float, confidence: float, samples: int, seed: int
    ) -> list[dict[str, Any]]:
        """The rows of `ratings`, with None for NA."""
        if method not in ("bradley_terry", "elo"):
            raise ValueError(f"method must be 'bradley_terry' or 'elo', not {method!r}")
        if prior < 0 or k <= 0:
            raise ValueError("prior must not be below 0, and k must be above 0")
        judged = list(self._judged())
        voted = [label for label in self.labels if any(label in (row["left"], row["right"]) for row in judged)]
        number = {label: n for n, label in enumerate(voted)}
        matches = [_match(row, number) for row in judged]
        groups = stats.connected(matches)
        if len(groups) > 1:
            apart = "; ".join(", ".join(voted[n] for n in sorted(group)) for group in groups)
            raise ValueError(f"these were never compared with each other, so no common scale exists: {apart}")
        rating: dict[str, float] = {}
        between: dict[str, tuple[float, float] | None] = {}
        if matches:
            if method == "elo":
                values = stats.elo(matches, len(voted), k=k, orders=100, seed=seed)
            else:
                theta, _ = stats.bradley_terry(matches, len(voted), prior=prior)
                values = [stats.BASE + stats.SCALE * value for value in theta]
            found = stats.intervals(
                matches, len(voted), method, prior=prior, k=k, confidence=confidence, samples=samples, seed=seed
            )
            rating, between = dict(zip(voted, values, strict=True)), dict(zip(voted, found, strict=True))
        rows: list[dict[str, Any]] = []
        for label in self.labels:
            low, high = between.get(label) or (None, None)
            rows.append({"label": label, "rating": rating.get(label), "low": low, "high": high, **self.counts(label)})
        return sorted(rows, key=lambda row: -math.inf if row["rating"] is None else row["rating"], reverse=True)

    def counts(self, label: str) -> dict[str, int]:
        """Votes on a label: votes, wins, losses, ties, both_bad, skipped."""
        seen = [row for row in self._all() if label in (row["left"], row["right"])]
        judged = [row for row in seen if row["vote"] != "skip"]
        return {
            "votes": len(judged),
            "wins": sum(row["winner"] == label for row in judged),
            "losses": sum(row["winner"] not in (None, label) for row in judged),
            "ties": sum(row["vote"] == "tie" for row in judged),
            "both_bad": sum(row["vote"] == "both_bad" for row in judged),
            "skipped": len(seen) - len(judged),
        }

    def _all(self) -> Iterator[dict[str, Any]]:
        yield from self._rows.values()
        yield from self._others

    @property
    def voters(self) -> list[str]:
        """Who judged anything, in order of appearance."""
        return list(dict.fromkeys(row["voter"] for row in self._judged()))

    def _judged(self) -> Iterator[dict[str, Any]]:
        return (row for row in self._all() if row["vote"] != "skip")

    # -- looking ----------------------------------------------------------------------------------

    def to_html(self) -> str:
        """The standing as a static table: no script, no widget."""
        from rein_nb.compare.review_html import standing

        return standing(self)

    def to_text(self) -> str:
        """The standing as plain text."""
        from rein_nb.compare.review_html import standing_text

        return standing_text(self)

    def finish(self) -> None:
        """Close the widget, where there is one, and leave the standing in its place; votes are kept, and showing it again goes on."""
        if self._view is not None:
            view, self._view = self._view, None
            view.close()

    def _ipython_display_(self) -> None:
        self.finish()
        # By name, since this room stands above the notebook's.
        self._view = import_module("rein_nb.notebook.review").open_review(self)


# -- inside ---------------------------------------------------------------------------------------


def _chosen(comparison: Comparison, labels: Sequence[str] | None) -> list[str]:
    if labels is None:
        chosen = list(comparison.labels)
    else:
        chosen = [labels] if isinstance(labels, str) else list(labels)
        unknown = [label for label in chosen if label not in comparison.labels]
        if unknown:
            raise ValueError(f"no column {unknown[0]!r}; there are: {', '.join(comparison.labels)}")
    if len(set(chosen)) < 2:
        raise ValueError(f"a review needs two columns or more, and there is {len(set(chosen))}")
    return chosen


def _judgeable(result: AgentResult | None) -> bool:
    return result is not None and result.error is None and bool(result.text or result.tool_runs)


def _planned(
    comparison: Comparison, labels: Sequence[str], left_out: set[tuple[str, int, int]], seed: str
) -> list[Pair]:
    """Every pair of answers to one prompt, shuffled; each two labels stand on either side equally often, give or take one."""
    rng = random.Random(seed)
    flips: dict[tuple[str, str], bool] = {}
    items = [
        (n, k, a, b)
        for n in range(len(comparison.prompts))
        for k in range(comparison.repeats)
        for a, b in combinations(labels, 2)
        if (a, n, k) not in left_out and (b, n, k) not in left_out
    ]
    rng.shuffle(items)
    pairs = []
    for n, k, a, b in items:
        flip = flips.get((a, b), rng.random() < 0.5)
        flips[a, b] = not flip
        pairs.append(Pair(n, k, b, a) if flip else Pair(n, k, a, b))
    return pairs


def _match(row: Mapping[str, Any], number: Mapping[str, int]) -> stats.Match:
    a, b = sorted((row["left"], row["right"]), key=number.__getitem__)
    score = 0.5 if row["winner"] is None else float(row["winner"] == a)
    return stats.Match(number[a], number[b], score, row["prompt_index"])
