"""Makes the screenshots of this folder: a full run, live and saved, and a comparison, in JupyterLab, light and dark.

    python docs/screenshots/make.py           # scripted runs: no model, no network
    python docs/screenshots/make.py real      # the embedded model, one answer through two APIs

Needs Chromium and JupyterLab.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
REPO = FOLDER.parents[1]
sys.path.insert(0, str(REPO))

from tests.browser.harness import Lab, Page  # noqa: E402

SETUP = """
%load_ext rein_nb
import time
from rein_nb import ThinkingPart, ToolCall, Usage, tool
from rein_nb.testing import ScriptedProvider
from tests.notebook.script import ANSWER, pieces

def get_weather(city: str, unit: str = "celsius") -> dict:
    "The weather in a city."
    time.sleep(0.6)
    return {"temperature": 18, "sky": "cloudy", "humidity": 0.62}

@tool(requires_approval=True)
def send_mail(to: str, subject: str) -> str:
    "Send a message."
    return "sent"

THOUGHT = "The reader asks for the weather in Paris and how warm it feels. I need the temperature and the humidity: the tool gives both."
CALL = ToolCall(id="1", name="get_weather", arguments={"city": "Paris", "unit": "celsius"})
first = ScriptedProvider.llm([ThinkingPart(text=THOUGHT), CALL], [*pieces(ANSWER, 6)], delay_s=0.03, model="first-model")
second = ScriptedProvider.llm([CALL], ["It is **18 °C** and cloudy in Paris; it feels like 16.8 °C. ", "Take an umbrella: rain is expected by 18:00."],
                              delay_s=0.06, model="second-model")
careful = ScriptedProvider.llm(["I will tell the others.", ToolCall(id="m", name="send_mail", arguments={"to": "team@lab.example", "subject": "Rain at 18:00"})],
                               "The message is sent.", delay_s=0.02, model="first-model")
"""
CELLS = (
    "%%agent -m first --tools get_weather\nWhat is the weather in Paris, and how warm does it feel?",
    "%%agent -m careful --tools send_mail\nTell the team about the rain.",
    "%%agent -m first -m second --tools get_weather --session compare\nWhat is the weather in Paris, and how warm does it feel?",
)

REAL_SETUP = """
%load_ext rein_nb
from rein_nb import LLM, tool

@tool
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

LLM.named("local/smollm2-135m").chat("Hello", max_tokens=1)
"""
REAL_CELL = """%%agent -m local/smollm2-135m -m local-messages/smollm2-135m --tools add --tool-choice required --temperature 0 --max-tokens 60
What is 21 plus 21?"""


def shoot(page: Page, cell: int, name: str) -> None:
    node: Any = page.page.locator(".jp-Notebook .jp-Cell").nth(cell)
    node.screenshot(path=str(FOLDER / f"{name}.png"))


def main() -> None:
    """Make them all."""
    for theme, short in (("JupyterLab Light", "light"), ("JupyterLab Dark", "dark")):
        with Lab(theme=theme) as lab:
            page = lab.open(SETUP, *CELLS, height=2200)
            page.command("application:toggle-left-area")
            page.run(0)
            page.run(1, wait=False)
            page.output(1).locator(".rein-live td").first.wait_for(timeout=30_000)
            page.page.wait_for_timeout(400)
            shoot(page, 1, f"live-{short}")
            page.idle()
            shoot(page, 1, f"saved-{short}")
            page.run(2, wait=False)
            page.output(2).get_by_role("button", name="Approve").wait_for(timeout=30_000)
            shoot(page, 2, f"approval-{short}")
            page.output(2).get_by_role("button", name="Approve").click()
            page.idle()
            page.run(0)
            page.run(3, wait=False)
            page.output(3).locator(".rein-live td").first.wait_for(timeout=30_000)
            shoot(page, 3, f"compare-live-{short}")
            page.idle()
            shoot(page, 3, f"compare-{short}")
            page.close()


def real() -> None:
    """Make those of a real model."""
    for theme, short in (("JupyterLab Light", "light"), ("JupyterLab Dark", "dark")):
        with Lab(theme=theme) as lab:
            page = lab.open(REAL_SETUP, REAL_CELL, height=1200)
            page.command("application:toggle-left-area")
            page.run(0)
            page.run(1)
            shoot(page, 1, f"real-{short}")
            page.close()


if __name__ == "__main__":
    real() if sys.argv[1:] == ["real"] else main()
