"""The line under a transcript: model, tokens, cost, time to first token, speed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rein_nb.ir import Completion, Usage

if TYPE_CHECKING:
    from rein_nb.agent.result import AgentResult


@dataclass(slots=True)
class Footer:
    """Figures of a run so far.

    Attributes
    ----------
    usage
        Sum over the calls so far; None fields were not reported.
    turns, calls
        How many turns, and how many model calls in them: attempts that were asked again and summaries too.
    first_token_s
        Seconds to the first content of the first turn.
    writing_s, written_tokens
        Seconds from first token to end and output tokens, summed over the turns that tell both: the base of the speed.
    duration_s
        Seconds, the whole run.
    """

    model: str = ""
    provider: str = ""
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    calls: int = 0
    first_token_s: float | None = None
    writing_s: float = 0.0
    written_tokens: int = 0
    duration_s: float | None = None

    def add(self, completion: Completion, others: Sequence[Completion] = ()) -> None:
        """Take in one turn's model call, and what the turn asked besides."""
        for call in (*others, completion):
            self.usage = call.usage if self.calls == 0 else self.usage + call.usage
            self.calls += 1
        self.turns += 1
        timing = completion.timing
        if self.first_token_s is None:
            self.first_token_s = timing.first_token_s
        tokens = completion.usage.output_tokens
        if (
            tokens
            and timing.first_token_s is not None
            and timing.total_s is not None
            and timing.total_s > timing.first_token_s
        ):
            self.writing_s += timing.total_s - timing.first_token_s
            self.written_tokens += tokens
        self.model = completion.model or self.model
        self.provider = completion.provider or self.provider

    def settle(self, result: AgentResult) -> None:
        """Take the finished run's own figures."""
        self.usage = result.usage
        self.duration_s = result.duration_s
        self.model = self.model or result.model
        self.provider = self.provider or result.provider

    def facts(self) -> list[str]:
        """The figures in words, in reading order; what is unknown is left out."""
        usage, out = self.usage, []
        name = f"{self.provider}/{self.model}" if self.provider and "/" not in self.model else self.model
        if name:
            out.append(name)
        if usage.input_tokens is not None or usage.output_tokens is not None:
            more = [
                f"{n:,} {word}"
                for n, word in ((usage.reasoning_tokens, "thinking"), (usage.cache_read_tokens, "cached"))
                if n
            ]
            lower = {"input_tokens", "output_tokens"} & set(usage.lower_bounds)
            bound = " or more" if lower or not (usage.complete or usage.lower_bounds) else ""
            out.append(
                f"{_count(usage.input_tokens)} → {_count(usage.output_tokens)} tokens{bound}"
                + (f" ({', '.join(more)})" if more else "")
            )
        if usage.cost_usd is not None:
            out.append(f"${usage.cost_usd:.4f}" if usage.cost_usd < 1 else f"${usage.cost_usd:.2f}")
        if self.turns > 1:
            out.append(f"{self.turns} turns")
        if self.first_token_s is not None:
            out.append(f"first token {seconds(self.first_token_s)}")
        # Below a twentieth of a second a speed says nothing of the model.
        if self.writing_s > 0.05 and self.written_tokens:
            out.append(f"{self.written_tokens / self.writing_s:.0f} tokens/s")
        if self.duration_s is not None:
            out.append(seconds(self.duration_s))
        return out


def _count(tokens: int | None) -> str:
    return "?" if tokens is None else f"{tokens:,}"


def seconds(value: float) -> str:
    """A duration for reading.

    Examples
    --------
    >>> seconds(0.0421), seconds(3.14159), seconds(75)
    ('42 ms', '3.1 s', '1 min 15 s')
    """
    if value < 0.9995:
        return f"{value * 1000:.0f} ms"
    if value < 59.95:
        return f"{value:.1f} s"
    return f"{int(value + 0.5) // 60} min {int(value + 0.5) % 60} s"
