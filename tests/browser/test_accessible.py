"""What axe-core finds wrong for readers who do not see, or not well: nothing serious, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.browser.harness import CHROMIUM, Lab
from tests.notebook.hostile import hostile_run, result_of
from tests.notebook.script import weather

axe = pytest.importorskip("axe_playwright_python.sync_playwright")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

SETUP = """
%load_ext rein_nb
import asyncio
from rein_nb.notebook import show
from rein_nb.notebook.live import Live
from rein_nb.agent import events as ev
from tests.notebook.hostile import hostile_run
from tests.notebook.script import weather
ODD = hostile_run("an error, a retry, a refusal").events
SCRIPT = weather()
ASKING = [event for event in SCRIPT.events if not isinstance(event, (ev.AgentEnd, ev.ToolExecutionEnd))]
ASKING.insert(-1, ev.ApprovalRequested(call=SCRIPT.turns[0].completion.tool_calls[0], reason="it sends a message"))
live = Live()
for event in ASKING:
    live.feed(event)
grid = Live(["first", "second"], ["What is the weather?", "And tomorrow?"])
for pane in range(4):
    for event in [SCRIPT.events[:-1], ODD[:-1]][pane % 2]:
        grid.feed(event, pane)
await asyncio.sleep(1)
"""
SAVED = """
show(SCRIPT.events)
show(ODD)
from rein_nb.notebook import show_grid
show_grid({"first": SCRIPT.events, "second": ODD})
"""
PARTS = ".rein-root"


def serious(page: Any, context: str | None = None) -> list[str]:
    """Serious violations, each with the first element that has it."""
    found = axe.Axe().run(page, context=context, options={"resultTypes": ["violations"]}).response["violations"]
    return [
        f"{rule['id']} ({len(rule['nodes'])}): {rule['nodes'][0]['html'][:160]} | {rule['nodes'][0].get('failureSummary', '')[:300]}"
        for rule in found
        if rule["impact"] in ("serious", "critical")
    ]


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    with Lab() as lab:
        page = lab.open(SETUP, SAVED)
        page.run(0)
        page.run(1)
        yield page
        page.close()


@pytest.mark.parametrize("theme", ["JupyterLab Light", "JupyterLab Dark"])
def test_nothing_serious_in_live_and_saved_output(page: Any, theme: str) -> None:
    page.page.evaluate(
        "theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme}).then(() => null)", theme
    )
    page.page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme, timeout=10_000)
    assert page.page.locator(".rein-live").count() == 2
    assert page.page.locator(PARTS).count() == 5
    # Buttons that are shown when their code is pointed at must be readable then.
    page.page.add_style_tag(content=".rein-codeframe > .rein-button { opacity: 1 !important }")
    assert serious(page.page, PARTS) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_nothing_serious_in_exported_pages(page: Any, tmp_path: Path, scheme: Any) -> None:
    from rein_nb.notebook import transcript_html

    plain, odd = weather().events[-1].result, result_of(hostile_run("an error, a retry, a refusal"))
    fresh = page.lab.browser.new_page(color_scheme=scheme)
    for number, source in enumerate((plain, odd, {"first": plain, "second": odd})):
        path = tmp_path / f"{number}.html"
        path.write_text(transcript_html(source, title="A run"), encoding="utf-8")
        fresh.goto(path.as_uri())
        assert serious(fresh) == []
    fresh.close()
