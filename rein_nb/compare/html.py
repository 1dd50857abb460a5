"""The grid as a static page: no script, no link, no remote load; whatever was written is text."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

from rein_nb.agent.result import AgentResult, Turn
from rein_nb.compare.safe import escape
from rein_nb.frames.tables import output_tokens_per_s
from rein_nb.ir import RefusalPart, TextPart, ThinkingPart, ToolCall, ToolResult, Usage

if TYPE_CHECKING:
    from rein_nb.compare.comparison import Comparison

_TEXT = "white-space:pre-wrap;overflow-wrap:anywhere;margin:0 0 .5em;font:inherit"
_CELL = "vertical-align:top;text-align:left;padding:.5em;border:1px solid #8884;min-width:16em"
_HEAD = f"{_CELL};position:sticky;top:0;background:Canvas;color:CanvasText"
_NOTE = "opacity:.75;font-size:.85em"
_ERROR = "border-left:3px solid #f85149;padding-left:.5em;overflow-wrap:anywhere"


def page(comparison: Comparison) -> str:
    """The whole grid as an HTML fragment that also stands alone in a file."""
    head = "".join(f'<th style="{_HEAD}">{_heading(comparison, label)}</th>' for label in comparison.labels)
    rows = "".join(_row(comparison, n) for n in range(len(comparison.prompts)))
    return (
        '<meta charset="utf-8"><div style="overflow-x:auto;max-width:100%"><table style="border-collapse:collapse;width:100%">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def _heading(comparison: Comparison, label: str) -> str:
    results = [cell.result for cell in comparison.cells if cell.label == label and cell.result is not None]
    facts = usage_facts(sum((r.usage for r in results[1:]), results[0].usage)) if results else ["no result"]
    failed = sum(result.error is not None for result in results)
    if failed:
        facts.append(f"{failed} of {len(results)} failed")
    return f'{escape(label)}<div style="{_NOTE}">{html.escape(" · ".join(facts))}</div>'


def _row(comparison: Comparison, prompt_index: int) -> str:
    prompt = (
        f'<tr><td colspan="{len(comparison.labels)}" style="{_CELL};background:#8881"><pre style="{_TEXT}">'
        f"{escape(comparison.prompts[prompt_index])}</pre></td></tr>"
    )
    cells = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_CELL}">{_cell(comparison.cell(label, prompt_index, k).result)}</td>'
            for label in comparison.labels
        )
        + "</tr>"
        for k in range(comparison.repeats)
    )
    return prompt + cells


def _cell(result: AgentResult | None) -> str:
    if result is None:
        return f'<div style="{_ERROR}">no result</div>'
    body = "".join(_turn(turn) for turn in result.turns)
    if result.error is not None:
        body += f'<div style="{_ERROR}">{escape(f"{result.error.kind}: {result.error.message}")}</div>'
    elif result.stop_reason != "completed":
        body += f'<div style="{_ERROR}">{escape(result.stop_reason)}</div>'
    return f'{body}<div style="{_NOTE}">{html.escape(" · ".join(run_facts(result)))}</div>'


def _turn(turn: Turn) -> str:
    results = {run.call.id: run for run in turn.tools}
    out = []
    for part in turn.completion.message.parts:
        if isinstance(part, TextPart | RefusalPart) and part.text:
            out.append(f'<pre style="{_TEXT}">{escape(part.text)}</pre>')
        elif isinstance(part, ThinkingPart) and part.text:
            out.append(_folded("thinking", part.text))
        elif isinstance(part, ToolCall):
            run = results.get(part.id)
            took = "" if run is None or run.duration_s is None else f" · {run.duration_s:.2f} s"
            out.append(
                _folded(
                    f"{part.name}{took}{_status(run.result if run else None)}",
                    _call_body(part, run.result if run else None),
                )
            )
    return "".join(out)


def _status(result: ToolResult | None) -> str:
    if result is None:
        return " · no result"
    return "" if result.status == "ok" else f" · {result.status}"


def _call_body(call: ToolCall, result: ToolResult | None) -> str:
    arguments = call.raw_arguments or json.dumps(call.arguments, indent=2, ensure_ascii=False, default=str)
    return arguments if result is None else f"{arguments}\n\n{result.text}"


def _folded(title: str, body: str) -> str:
    return (
        f'<details style="margin:0 0 .5em"><summary style="{_NOTE}">{escape(title)}</summary>'
        f'<pre style="{_TEXT}">{escape(body)}</pre></details>'
    )


def usage_facts(usage: Usage) -> list[str]:
    """Tokens and cost in words; what was not reported is left out."""
    facts = []
    if usage.input_tokens is not None:
        facts.append(f"{usage.input_tokens:,} in")
    if usage.output_tokens is not None:
        facts.append(f"{usage.output_tokens:,} out")
    if usage.cost_usd is not None:
        facts.append(f"${usage.cost_usd:.4f}")
    if facts and not usage.complete:
        facts.append("at least")
    return facts or ["no usage reported"]


def run_facts(result: AgentResult) -> list[str]:
    """Tokens, cost, time to first token, speed and duration of a run, in words."""
    facts = usage_facts(result.usage)
    if result.turns:
        first = result.turns[0].completion
        if first.timing.first_token_s is not None:
            facts.append(f"first token {first.timing.first_token_s:.2f} s")
        speed = output_tokens_per_s(result.turns[-1].completion)
        if speed is not None:
            facts.append(f"{speed:.0f} tokens/s")
    if result.duration_s is not None:
        facts.append(f"{result.duration_s:.2f} s")
    return facts
