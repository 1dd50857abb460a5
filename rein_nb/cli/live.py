"""A comparison in the terminal while it streams: one column a model, one row a prompt."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from rich.box import ROUNDED
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rein_nb.agent.events import AgentEnd, AgentEvent, MessageUpdate
from rein_nb.compare.comparison import Comparison
from rein_nb.compare.display import Stops
from rein_nb.ir import TextDelta
from rein_nb.notebook.sanitize import shown


def safe(text: str, style: str = "") -> Text:
    """What a model or a tool wrote, for a terminal: no markup, no escape sequence and no secret in it counts."""
    return Text(shown(text), style=style)


class LiveGrid:
    """The display of a comparison in a terminal; see `rein_nb.compare.display`.

    Parameters
    ----------
    console
        Where to.
    labels, prompts
        Columns and rows.
    """

    def __init__(
        self, console: Console, labels: Sequence[str], prompts: Sequence[str], stops: Stops | None = None
    ) -> None:
        self._labels = list(labels)
        self._prompts = list(prompts)
        self._texts = {(label, row): "" for label in labels for row in range(len(prompts))}
        self._ends: dict[tuple[str, int], str] = {}
        self._lock = threading.Lock()
        self._live = Live(console=console, get_renderable=self.table, refresh_per_second=12)
        self._live.start()

    def feed(self, label: str, prompt_index: int, repeat: int, event: AgentEvent) -> None:
        """Take one event in. The screen follows by itself."""
        key = (label, prompt_index)
        if isinstance(event, MessageUpdate) and isinstance(event.event, TextDelta):
            with self._lock:
                self._texts[key] += event.event.delta
        elif isinstance(event, AgentEnd):
            with self._lock:
                self._ends[key] = _facts(event.result)

    def finish(self, comparison: Comparison) -> None:
        """Draw the last state and let go of the screen."""
        self._live.stop()

    def table(self) -> Table:
        """The grid as it is now."""
        table = Table(box=ROUNDED, show_lines=True, expand=True)
        table.add_column("prompt", style="bold", ratio=2)
        for label in self._labels:
            table.add_column(shown(label), ratio=3)
        with self._lock:
            for row, prompt in enumerate(self._prompts):
                cells = []
                for label in self._labels:
                    cell = safe(self._texts[label, row].strip())
                    end = self._ends.get((label, row))
                    cell.append("\n" + end if end else " ...", style="dim")
                    cells.append(cell)
                table.add_row(safe(prompt), *cells)
        return table


def _facts(result: Any) -> str:
    if result.error is not None:
        return f"failed: {shown(result.error.message)}"
    usage, completion = result.usage, result.completion
    facts = [f"{usage.input_tokens} in, {usage.output_tokens} out"]
    if completion is not None and completion.timing.first_token_s is not None:
        facts.append(f"first token {completion.timing.first_token_s:.2f} s")
    return ", ".join(facts)
