"""What a sweep keeps on disk, in the store's database: one row a cell, one a score.

A cell is marked as begun in one transaction before its request goes out, and its result is written in one transaction after. A process that
dies between the two leaves a cell that is begun again at the next start, and whose ``attempts`` say so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

from rein_nb.agent.result import AgentResult
from rein_nb.ir import ErrorInfo
from rein_nb.store import Store, StoreError
from rein_nb.store.records import from_text, scrub, to_text

State: TypeAlias = Literal["pending", "running", "done", "error"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS sweeps (
    name TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    stop_reason TEXT,
    facts TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS sweep_cells (
    sweep TEXT NOT NULL,
    key TEXT NOT NULL,
    seq INTEGER,
    cell TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending',
    attempts INTEGER NOT NULL DEFAULT 0,
    cost_usd REAL,
    tokens INTEGER,
    result TEXT,
    PRIMARY KEY (sweep, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS sweep_cells_in_order ON sweep_cells (sweep, seq);
CREATE TABLE IF NOT EXISTS sweep_scores (
    sweep TEXT NOT NULL,
    key TEXT NOT NULL,
    scorer TEXT NOT NULL,
    made_by TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    value REAL,
    error TEXT,
    details TEXT NOT NULL DEFAULT '{}',
    cost_usd REAL,
    tokens INTEGER,
    done INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (sweep, key, scorer)
) WITHOUT ROWID
"""


@dataclass(frozen=True, slots=True)
class Score:
    """What a scorer said about one answer.

    Attributes
    ----------
    value
        A number; 0 or 1 for a yes or no. None when the scorer failed, or had nothing to say.
    error
        Why there is none.
    details
        What else it told, JSON: a judge's reason.
    cost_usd, tokens
        What it cost; None when it made no request, or the price is unknown.
    headers
        What the judge's provider told about its limits. Not stored.
    refused
        Why the judge's provider did not answer; None when it did. Not stored.
    """

    value: float | None
    error: str | None = None
    details: Any = None
    cost_usd: float | None = None
    tokens: int | None = None
    headers: Mapping[str, Any] | None = field(default=None, compare=False)
    refused: ErrorInfo | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Stored:
    """A cell as the journal has it; `cell` holds its place in the grid."""

    key: str
    seq: int
    cell: dict[str, Any]
    state: State
    attempts: int
    result_text: str | None

    @property
    def result(self) -> AgentResult | None:
        """The run, whole or failed; None while there is none."""
        return None if self.result_text is None else AgentResult.model_validate(from_text(self.result_text))


class Journal:
    """One sweep's rows in a store.

    Raises
    ------
    StoreError
        When the store cannot be opened or written.
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        self._database = store.database
        with self._database.write() as connection:
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)

    @property
    def lock_path(self) -> Path:
        """The file that says whether a process runs this sweep."""
        safe = "".join(ch if ch.isalnum() or ch in "-_." else "_" for ch in self.name)[:60]
        digest = format(hash_of(self.name), "08x")
        return self.store.path.with_name(f"{self.store.path.name}.{safe}-{digest}.lock")

    def exists(self) -> bool:
        """Whether the store has a sweep of this name."""
        return bool(self._database.read("SELECT 1 FROM sweeps WHERE name = ?", (self.name,)))

    def forget(self) -> None:
        """Remove every row of this sweep."""
        with self._database.write() as connection:
            for table, column in (("sweep_scores", "sweep"), ("sweep_cells", "sweep"), ("sweeps", "name")):
                connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (self.name,))

    def plan(self, cells: Iterable[tuple[str, dict[str, Any]]], facts: dict[str, Any]) -> None:
        """Make `cells` (key and place) the sweep's cells, in this order; what is known about a key is kept.

        A cell that an earlier call had and this one has not keeps its row, and is out of sight.
        """
        rows = [(self.name, key, n, to_text(scrub(cell))) for n, (key, cell) in enumerate(cells)]
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO sweeps VALUES (?, ?, NULL, ?) ON CONFLICT (name) DO UPDATE SET stop_reason = NULL, facts = excluded.facts",
                (self.name, time.time(), to_text(scrub(facts))),
            )
            connection.execute("UPDATE sweep_cells SET seq = NULL WHERE sweep = ? AND seq IS NOT NULL", (self.name,))
            connection.executemany(
                "INSERT INTO sweep_cells (sweep, key, seq, cell) VALUES (?, ?, ?, ?) "
                "ON CONFLICT (sweep, key) DO UPDATE SET seq = excluded.seq, cell = excluded.cell",
                rows,
            )

    def facts(self) -> dict[str, Any]:
        """What `plan` was told, with ``stop_reason``.

        Raises
        ------
        KeyError
            When there is no such sweep.
        """
        found = self._database.read("SELECT facts, stop_reason FROM sweeps WHERE name = ?", (self.name,))
        if not found:
            names = [row[0] for row in self._database.read("SELECT name FROM sweeps ORDER BY created_at")]
            raise KeyError(
                f"{self.store.path} has no sweep {self.name!r}; there are: {', '.join(map(repr, names)) or 'none'}"
            )
        return {**from_text(found[0][0]), "stop_reason": found[0][1]}

    def keys(self, *states: State) -> set[str]:
        """Keys of the cells in any of `states`."""
        marks = ", ".join("?" * len(states))
        rows = self._database.read(
            f"SELECT key FROM sweep_cells WHERE sweep = ? AND seq IS NOT NULL AND state IN ({marks})",
            (self.name, *states),
        )
        return {row[0] for row in rows}

    def begin(self, key: str) -> None:
        """A request for this cell is about to go out."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE sweep_cells SET state = 'running', attempts = attempts + 1 WHERE sweep = ? AND key = ?",
                (self.name, key),
            )

    def finish(self, key: str, text: str, *, ok: bool, cost_usd: float | None, tokens: int | None, more: int) -> None:
        """What became of it; `more` counts further attempts that a cluster made on its own. What earlier attempts cost is kept."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE sweep_cells SET state = ?, result = ?, attempts = attempts + ?, "
                "cost_usd = CASE WHEN ? IS NULL THEN cost_usd ELSE coalesce(cost_usd, 0) + ? END, "
                "tokens = CASE WHEN ? IS NULL THEN tokens ELSE coalesce(tokens, 0) + ? END WHERE sweep = ? AND key = ?",
                ("done" if ok else "error", text, more, cost_usd, cost_usd, tokens, tokens, self.name, key),
            )

    def stopped(self, reason: str) -> None:
        """Why the sweep ended."""
        with self._database.write() as connection:
            connection.execute("UPDATE sweeps SET stop_reason = ? WHERE name = ?", (reason, self.name))

    def spent(self) -> tuple[float, int]:
        """US dollars and tokens of everything this sweep ever paid for, judges included."""
        found = self._database.read(
            "SELECT total(cost_usd), coalesce(sum(tokens), 0) FROM (SELECT cost_usd, tokens FROM sweep_cells WHERE sweep = ? "
            "UNION ALL SELECT cost_usd, tokens FROM sweep_scores WHERE sweep = ?)",
            (self.name, self.name),
        )
        return float(found[0][0]), int(found[0][1])

    # -- scores -----------------------------------------------------------------------------------

    def scored(self, *, failed: bool) -> dict[tuple[str, str], str]:
        """By key and scorer: what finished scores were made by; those that failed too, if `failed`."""
        rows = self._database.read(
            "SELECT key, scorer, made_by FROM sweep_scores WHERE sweep = ? AND done = 1 AND (error IS NULL OR ?)",
            (self.name, failed),
        )
        return {(row[0], row[1]): row[2] for row in rows}

    def begin_score(self, key: str, scorer: str, made_by: str) -> None:
        """A scorer that costs is about to be asked."""
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO sweep_scores (sweep, key, scorer, made_by, attempts) VALUES (?, ?, ?, ?, 1) "
                "ON CONFLICT (sweep, key, scorer) DO UPDATE SET attempts = attempts + 1, made_by = excluded.made_by, done = 0",
                (self.name, key, scorer, made_by),
            )

    def finish_scores(self, key: str, scores: Sequence[tuple[str, str, Score]]) -> None:
        """Scores of one cell: name, what they were made by, and the score."""
        rows = [
            (
                self.name, key, name, made_by, score.value, score.error, to_text(scrub(score.details)), score.cost_usd,
                score.tokens,
            )
            for name, made_by, score in scores
        ]  # fmt: skip
        with self._database.write() as connection:
            connection.executemany(
                "INSERT INTO sweep_scores (sweep, key, scorer, made_by, value, error, details, cost_usd, tokens, done, attempts) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 1, 1) ON CONFLICT (sweep, key, scorer) DO UPDATE SET "
                "made_by = excluded.made_by, value = excluded.value, error = excluded.error, details = excluded.details, done = 1, "
                "cost_usd = CASE WHEN excluded.cost_usd IS NULL THEN cost_usd ELSE coalesce(cost_usd, 0) + excluded.cost_usd END, "
                "tokens = CASE WHEN excluded.tokens IS NULL THEN tokens ELSE coalesce(tokens, 0) + excluded.tokens END",
                rows,
            )

    def scores(self) -> dict[str, dict[str, Score]]:
        """Finished scores by key, then scorer."""
        found: dict[str, dict[str, Score]] = {}
        for key, scorer, value, error, details, cost, tokens in self._database.read(
            "SELECT key, scorer, value, error, details, cost_usd, tokens FROM sweep_scores WHERE sweep = ? AND done = 1",
            (self.name,),
        ):
            found.setdefault(key, {})[scorer] = Score(value, error, json.loads(details), cost, tokens)
        return found

    # -- reading ----------------------------------------------------------------------------------

    def cells(self) -> list[Stored]:
        """The sweep's cells, in order, as of now."""
        rows = self._database.read(
            "SELECT key, seq, cell, state, attempts, result FROM sweep_cells WHERE sweep = ? AND seq IS NOT NULL ORDER BY seq",
            (self.name,),
        )
        return [Stored(row[0], row[1], from_text(row[2]), row[3], row[4], row[5]) for row in rows]

    def cell(self, key: str) -> Stored:
        """One cell.

        Raises
        ------
        KeyError
            When there is no such cell.
        """
        rows = self._database.read(
            "SELECT key, seq, cell, state, attempts, result FROM sweep_cells WHERE sweep = ? AND key = ?",
            (self.name, key),
        )
        if not rows:
            raise KeyError(f"the sweep {self.name!r} has no cell {key!r}")
        row = rows[0]
        return Stored(row[0], row[1], from_text(row[2]), row[3], row[4], row[5])

    def counts(self) -> dict[str, int]:
        """How many cells are in each state."""
        return dict(
            self._database.read(
                "SELECT state, count(*) FROM sweep_cells WHERE sweep = ? AND seq IS NOT NULL GROUP BY state",
                (self.name,),
            )
        )


def hash_of(text: str) -> int:
    """A stable 32-bit number for a text."""
    import zlib

    return zlib.crc32(text.encode("utf-8", "replace"))


__all__ = ["Journal", "Score", "State", "StoreError", "Stored", "hash_of"]
