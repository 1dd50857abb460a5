"""Altair charts of a comparison. Data goes in as plain records, so that no pandas dtype has to be guessed by the plotting library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rein_nb.agent.result import AgentResult

if TYPE_CHECKING:
    from rein_nb.compare.comparison import Cell, Comparison


def _altair() -> Any:
    try:
        import altair
    except ImportError as exc:
        raise ImportError("plots need Altair: pip install 'rein-nb[plots]'") from exc
    return altair


def plot(comparison: Comparison, kind: str, *, quality: Callable[[AgentResult], float] | None = None) -> Any:
    """The chart of a kind; see `Comparison.plot`."""
    if kind not in _KINDS:
        raise ValueError(f"no plot is called {kind!r}; there are: {', '.join(_KINDS)}")
    if quality is not None and kind != "cost":
        raise ValueError(f"quality= belongs to the plot 'cost', not to {kind!r}")
    alt = _altair()
    if kind == "cost":
        return _cost(alt, comparison, quality)
    return _KINDS[kind](alt, comparison)


def _done(comparison: Comparison) -> Iterator[tuple[Cell, AgentResult]]:
    for cell in comparison.cells:
        if cell.result is not None:
            yield cell, cell.result


def _record(cell: Cell, result: AgentResult) -> dict[str, Any]:
    first = result.turns[0].completion.timing if result.turns else None
    return {
        "label": cell.label,
        "prompt": cell.prompt_index,
        "repeat": cell.repeat,
        "outcome": result.stop_reason,
        "cost_usd": result.usage.cost_usd,
        "duration_s": result.duration_s,
        "first_token_s": None if first is None else first.first_token_s,
        "input_tokens": result.usage.input_tokens,
        "output_tokens": result.usage.output_tokens,
        "reasoning_tokens": result.usage.reasoning_tokens,
    }


def _data(alt: Any, records: list[dict[str, Any]]) -> Any:
    return alt.Data(values=records)


def _color(alt: Any, comparison: Comparison) -> Any:
    return alt.Color("label:N", title=None, scale=alt.Scale(domain=comparison.labels), legend=None)


def _tooltip(*fields: str) -> list[str]:
    return ["label:N", "prompt:Q", "repeat:Q", "outcome:N", *fields]


def _cost(alt: Any, comparison: Comparison, quality: Callable[[AgentResult], float] | None) -> Any:
    records = [
        _record(cell, result) | ({"quality": float(quality(result))} if quality is not None else {})
        for cell, result in _done(comparison)
    ]
    y = "quality" if quality is not None else "duration_s"
    return (
        alt.Chart(_data(alt, records))
        .mark_circle(size=80, opacity=0.7)
        .encode(
            x=alt.X("cost_usd:Q", title="cost (USD)"),
            y=alt.Y(f"{y}:Q", title="quality" if quality is not None else "time to finish (s)"),
            color=alt.Color("label:N", title=None, scale=alt.Scale(domain=comparison.labels)),
            shape=alt.Shape("outcome:N", title=None),
            tooltip=_tooltip("cost_usd:Q", f"{y}:Q"),
        )
        .properties(title=f"Cost against {'quality' if quality is not None else 'latency'}")
    )


def _distribution(alt: Any, comparison: Comparison, field: str, title: str, axis: str) -> Any:
    data = _data(alt, [_record(cell, result) for cell, result in _done(comparison)])
    y = alt.Y("label:N", title=None, sort=comparison.labels)
    x = alt.X(f"{field}:Q", title=axis, scale=alt.Scale(zero=True))
    base = alt.Chart(data).transform_filter(f"isValid(datum.{field})")
    box = base.mark_boxplot(extent="min-max", opacity=0.35).encode(x=x, y=y, color=_color(alt, comparison))
    points = base.mark_tick(thickness=2).encode(x=x, y=y, color=_color(alt, comparison), tooltip=_tooltip(f"{field}:Q"))
    return (box + points).properties(title=title)


def _latency(alt: Any, comparison: Comparison) -> Any:
    return _distribution(alt, comparison, "duration_s", "Time to finish", "seconds")


def _first_token(alt: Any, comparison: Comparison) -> Any:
    return _distribution(alt, comparison, "first_token_s", "Time to first token", "seconds")


def _tokens(alt: Any, comparison: Comparison) -> Any:
    records = []
    for cell, result in _done(comparison):
        usage = result.usage
        visible = None if usage.output_tokens is None else usage.output_tokens - (usage.reasoning_tokens or 0)
        for part, count in (("input", usage.input_tokens), ("output", visible), ("reasoning", usage.reasoning_tokens)):
            if count is not None:
                records.append({"label": cell.label, "part": part, "tokens": count})
    return (
        alt.Chart(_data(alt, records))
        .mark_bar()
        .encode(
            x=alt.X("sum(tokens):Q", title="tokens, all runs"),
            y=alt.Y("label:N", title=None, sort=comparison.labels),
            color=alt.Color("part:N", title=None, scale=alt.Scale(domain=["input", "output", "reasoning"])),
            tooltip=["label:N", "part:N", "sum(tokens):Q"],
        )
        .properties(title="Tokens")
    )


def _spans(cell: Cell, result: AgentResult) -> Iterator[dict[str, Any]]:
    """What took time in a run, in seconds from its start: waiting for a first token, the model's writing, each tool."""
    if result.started_at is None:
        return
    row = cell.label if cell.prompt_index == cell.repeat == 0 else f"{cell.label} · {cell.prompt_index}.{cell.repeat}"
    for turn in result.turns:
        timing = turn.completion.timing
        start = timing.started_at or turn.started_at
        if start is not None and timing.total_s is not None:
            begin = start - result.started_at
            first = begin + (timing.first_token_s if timing.first_token_s is not None else timing.total_s)
            yield {
                "row": row,
                "what": "waiting",
                "name": f"turn {turn.number}",
                "start": begin,
                "end": first,
                "status": "ok",
            }
            yield {
                "row": row, "what": "model", "name": f"turn {turn.number}", "start": first, "end": begin + timing.total_s,
                "status": turn.completion.finish_reason,
            }  # fmt: skip
        for run in turn.tools:
            if run.started_at is not None and run.duration_s is not None:
                begin = run.started_at - result.started_at
                yield {
                    "row": row, "what": "tool", "name": run.call.name, "start": begin, "end": begin + run.duration_s,
                    "status": run.result.status,
                }  # fmt: skip


def _timeline(alt: Any, comparison: Comparison) -> Any:
    records = [span for cell, result in _done(comparison) for span in _spans(cell, result)]
    return (
        alt.Chart(_data(alt, records))
        .mark_bar(opacity=0.8)
        .encode(
            x=alt.X("start:Q", title="seconds from the run's start"),
            x2="end:Q",
            y=alt.Y("row:N", title=None, sort=None),
            yOffset=alt.YOffset("what:N", sort=["waiting", "model", "tool"]),
            color=alt.Color("what:N", title=None, scale=alt.Scale(domain=["waiting", "model", "tool"])),
            tooltip=["row:N", "what:N", "name:N", "start:Q", "end:Q", "status:N"],
        )
        .properties(title="Timeline")
    )


_KINDS: dict[str, Callable[..., Any]] = {
    "cost": _cost,
    "first_token": _first_token,
    "tokens": _tokens,
    "latency": _latency,
    "timeline": _timeline,
}
