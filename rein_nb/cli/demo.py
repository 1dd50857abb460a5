"""``rein-nb demo``: a real model on this machine, in the terminal, as frames, and in a notebook."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rein_nb.ir import ReinError

if TYPE_CHECKING:
    from rich.console import Console

    from rein_nb.agent import AgentResult
    from rein_nb.compare import Comparison

MODEL = "smollm2-135m"
PROVIDERS = ("local", "local-responses", "local-messages")
PROMPTS = (
    "What is the capital of France?",
    "Name three primary colors.",
    "Write one sentence about the sea.",
)
QUESTION = "What is 21 plus 21?"
NOTEBOOK = "01_first_light.ipynb"
FOLDER = Path("demo-output")
RECORD_COLUMNS = (
    "model", "prompt", "text", "finish_reason", "input_tokens", "output_tokens", "time_to_first_token_s", "cost_usd",
)  # fmt: skip


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def demo(*, open_lab: bool = True, as_json: bool = False, folder: Path | None = None) -> int:
    """Run the demo; returns the exit status.

    Parameters
    ----------
    open_lab
        Open JupyterLab on the notebook at the end.
    as_json
        Print the runs as JSON records and nothing else on stdout. No notebook then, unless `folder` is given.
    folder
        Where the notebook and its HTML go.
    """
    from rich.console import Console

    console = Console(stderr=as_json, soft_wrap=False)
    try:
        _start_model(console)
        _warm_up(console)
        comparison = _three_dialects(console)
        run = _agent(console)
    except ReinError as exc:
        console.print(str(exc), style="red", markup=False)
        return 1
    if as_json:
        sys.stdout.write(json.dumps(records(comparison, run), indent=2, ensure_ascii=False) + "\n")
        sys.stdout.flush()
    else:
        _usage(console, comparison, run)
    failed = [result for result in (*comparison.results, run) if result.error is not None]
    for result in failed:
        assert result.error is not None
        console.print(f"{result.provider}/{result.model} failed: {result.error.message}", style="red", markup=False)
    if failed:
        return 1
    if as_json and folder is None:
        return 0
    return _notebook(console, (folder or FOLDER).resolve(), open_lab=open_lab and not as_json)


def records(comparison: Comparison, run: AgentResult) -> list[dict[str, Any]]:
    """The runs as JSON records: one a run, with `RECORD_COLUMNS`; None where something was not reported."""
    from rein_nb.frames import frame

    rows = frame("runs", [comparison, run])
    rows["model"] = rows["provider"] + "/" + rows["model"]
    rows = rows[list(RECORD_COLUMNS)].astype(object)
    rows = rows.where(rows.notna(), None)
    return [{str(name): value for name, value in record.items()} for record in rows.to_dict("records")]


# -- the steps ----------------------------------------------------------------------------------------


def _start_model(console: Console) -> None:
    from rein_nb.providers import local

    started = time.perf_counter()
    endpoint = local.ensure(MODEL)
    console.print(
        f"{endpoint.model} answers at {endpoint.root_url}, ready after {time.perf_counter() - started:.1f} s",
        highlight=False,
    )


def _warm_up(console: Console) -> None:
    """Load both SDKs and open the first connections, so that no column's time to first token is an import's time."""
    from rein_nb.llm import LLM

    console.print("loading the OpenAI and Anthropic SDKs", style="dim")
    for provider in PROVIDERS:
        LLM.named(f"{provider}/{MODEL}").chat("Hi", temperature=0, max_tokens=1)


def _three_dialects(console: Console) -> Comparison:
    from rein_nb.cli.live import LiveGrid
    from rein_nb.compare import compare, set_factory

    console.print(
        "\nThe same weights through three dialects, greedy: Chat Completions, Responses, Messages", style="bold"
    )
    before = set_factory(lambda labels, prompts, stops: LiveGrid(console, labels, prompts, stops))
    try:
        comparison: Comparison = compare(
            list(PROMPTS),
            models=[f"{provider}/{MODEL}" for provider in PROVIDERS],
            options={"temperature": 0, "max_tokens": 40},
            concurrency=1,  # as many in flight as the server answers at once, so that no time to first token is time in a queue
        )
    finally:
        set_factory(before)
    table = comparison.table()
    same = int((table.nunique(axis=1, dropna=False) == 1).sum())
    console.print(f"{same} of {len(table)} prompts: equal text in all three columns", highlight=False)
    return comparison


def _agent(console: Console) -> AgentResult:
    from rein_nb.agent import Agent
    from rein_nb.cli.live import safe
    from rein_nb.tools import tool

    console.print("\nAn agent whose first turn must call a tool", style="bold")
    agent = Agent(f"local/{MODEL}", tools=[tool(add)], tool_choice="required", temperature=0, max_tokens=80)
    console.print(safe(f"user: {QUESTION}"))
    result: AgentResult = agent.run(QUESTION)
    for run in result.tool_runs:
        arguments = ", ".join(f"{name}={value!r}" for name, value in run.call.arguments.items())
        took = f" ({run.duration_s * 1000:.0f} ms)" if run.duration_s is not None else ""
        console.print(safe(f"tool: {run.call.name}({arguments}) -> {run.result.text}{took}", "cyan"))
    console.print(safe(f"model: {result.text}", "green"))
    return result


def _usage(console: Console, comparison: Comparison, run: AgentResult) -> None:
    from rich.table import Table

    from rein_nb.cli.live import safe
    from rein_nb.frames import frame

    console.print("\nThe usage frame", style="bold")
    usage = frame("usage", [comparison, run])
    columns = ("provider", "turn", "input_tokens", "cache_read_tokens", "output_tokens", "cost_usd")
    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="left" if name == "provider" else "right", no_wrap=True)
    for row in usage[list(columns)].astype(object).where(usage[list(columns)].notna(), "-").itertuples(index=False):
        table.add_row(*(safe(str(value)) for value in row))
    console.print(table)
    console.print("cost_usd is missing, not 0: nobody charges for this model, and no price is known.", style="dim")


def _notebook(console: Console, folder: Path, *, open_lab: bool) -> int:
    from rein_nb.cli import notebooks

    console.print(f"\nRunning {NOTEBOOK}", style="bold")
    missing = notebooks.missing_packages()
    if missing:
        console.print(
            f'To run the notebook, install {", ".join(missing)}: pip install "rein-nb[lab]" ipykernel',
            style="yellow",
            markup=False,
        )
        return 0
    try:
        path, page = notebooks.execute(NOTEBOOK, folder, tell=_teller(console))
    except (FileNotFoundError, notebooks.NotebookFailed) as exc:
        console.print(str(exc), style="red", markup=False)
        return 1
    console.print(f"notebook: {path}\nHTML:     {page}", highlight=False, markup=False)
    if open_lab:
        return notebooks.open_lab(path, console)
    return 0


def _teller(console: Console) -> Callable[[str], None]:
    return lambda line: console.print(line, style="dim", markup=False, highlight=False)
