"""What a reader sees and can do, in JupyterLab in a real browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.harness import CHROMIUM, Lab, Page

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

SETUP = """
%load_ext rein_nb
import time
from rein_nb import Agent, ThinkingPart, ToolCall, tool
from rein_nb.testing import ScriptedProvider

def get_weather(city: str) -> str:
    "Weather of a city."
    time.sleep(3)
    return f"18 degrees and cloudy in {city}"

@tool(requires_approval=True)
def delete(path: str) -> str:
    "Delete a file."
    return f"deleted {path}"

WORDS = [f"word{n} " for n in range(400)]
weather = ScriptedProvider.llm(
    [ThinkingPart(text="I need the tool."), ToolCall(id="1", name="get_weather", arguments={"city": "Paris"})],
    ["In Paris it is ", "**18 degrees**", " and cloudy.\\n\\n", "| a | b |\\n|---|---|\\n| 1 | 2 |\\n"],
    delay_s=0.05,
)
long = ScriptedProvider.llm(
    ["First the tool.", ToolCall(id="1", name="get_weather", arguments={"city": "Paris"})], WORDS, delay_s=0.05)
slow = ScriptedProvider.llm(WORDS, WORDS, WORDS, delay_s=0.05)

def asking():
    inner = ScriptedProvider.llm(WIPE, "Inner end.")
    outer = ScriptedProvider.llm(ToolCall(id="o", name="janitor", arguments={"prompt": "Clean up"}), "All done.")
    return Agent(outer, tools=[Agent(inner, tools=[delete]).as_tool("janitor")])

WIPE = ToolCall(id="i", name="delete", arguments={"path": "<b>notes.txt</b> " * 900})
cautious = ScriptedProvider.llm([ToolCall(id="1", name="delete", arguments={"path": "notes.txt"})], "Done as you said.")
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        yield lab


@pytest.fixture
def open_page(lab: Lab) -> Iterator[object]:
    pages: list[Page] = []

    def opener(*cells: str, name: str = "test.ipynb") -> Page:
        page = lab.open(SETUP, *cells, name=name)
        pages.append(page)
        page.run(0)
        return page

    yield opener
    for page in pages:
        page.close()


def test_streamed_text_and_tool_card_are_seen_and_the_transcript_is_kept(open_page, tmp_path: Path) -> None:
    page: Page = open_page(
        "%%agent -m weather --tools get_weather\nWhat is the weather in Paris?",
        "print('next', _agent.text)",
        name="kept.ipynb",
    )
    page.run(1, wait=False)
    card = page.output(1).locator(".rein-live .rein-card")
    card.wait_for(timeout=10_000)
    page.output(1).locator(".rein-state", has_text="running").wait_for(timeout=10_000)
    page.output(1).locator("strong", has_text="18 degrees").wait_for(timeout=10_000)
    page.idle()
    page.run(2)
    assert "next In Paris" in page.text(2)

    saved = page.save()
    (data,) = [output["data"] for output in saved["cells"][1]["outputs"]]
    assert set(data) == {"text/html", "text/markdown", "text/plain", "application/vnd.rein-nb.transcript+json"}
    assert "widgets" not in saved["metadata"]
    for text in ("get_weather", "18 degrees and cloudy in Paris", "I need the tool."):
        for kind in ("text/html", "text/markdown", "text/plain"):
            assert text in "".join(data[kind]), (text, kind)

    page.restart_kernel()
    page.load()
    assert "18 degrees and cloudy in Paris" in page.text(1)
    assert page.output(1).locator("table td").count() == 2
    assert page.remote_requests() == []
    assert not [error for error in page.errors if "rein" in error.lower()]


def test_C120_stop_button_keeps_what_was_received(open_page) -> None:
    page: Page = open_page(
        "%%agent -m slow\ngo on", "print(_agent.stop_reason, len(_agent.text.split()))", name="stop.ipynb"
    )
    page.run(1, wait=False)
    page.output(1).get_by_text("word9").wait_for(timeout=10_000)
    started = time.monotonic()
    page.output(1).get_by_role("button", name="Stop").click()
    page.idle(10)
    assert time.monotonic() - started < 3
    assert "word9" in page.text(1)
    assert "Stopped" in page.text(1)
    page.run(2)
    reason, count = page.text(2).split()
    assert reason == "cancelled"
    assert 5 < int(count) < 200


def test_kernel_interrupt_stops_the_run_and_keeps_the_text(open_page) -> None:
    page: Page = open_page(
        "%%agent -m slow\ngo on",
        "print(_agent.stop_reason)\nimport asyncio, rein_nb.aio as aio\nprint(len(asyncio.all_tasks(aio.background_loop())))",
        name="interrupt.ipynb",
    )
    page.run(1, wait=False)
    page.output(1).get_by_text("word5").wait_for(timeout=10_000)
    page.interrupt()
    page.idle(10)
    assert "word5" in page.text(1)
    page.run(2)
    assert page.text(2).split() == ["cancelled", "0"]


def test_what_is_so_far_is_in_the_file_when_the_kernel_dies(open_page) -> None:
    page: Page = open_page(
        "import rein_nb.notebook.live\nrein_nb.notebook.live.CHECKPOINT_S = 0.5",
        "%%agent -m long --tools get_weather\nWhat is the weather in Paris?",
        name="dies.ipynb",
    )
    page.run(1)
    page.run(2, wait=False)
    page.output(2).get_by_text("word40").wait_for(timeout=20_000)
    # The update of the output did not draw the live view anew: what the reader did to it stays.
    assert page.output(2).locator(".rein-live").count() == 1
    page.restart_kernel()
    (data,) = [output["data"] for output in page.save()["cells"][2]["outputs"]]
    for kind in ("text/html", "text/markdown", "text/plain"):
        assert "18 degrees and cloudy in Paris" in "".join(data[kind])
    assert "application/vnd.rein-nb.transcript+json" in data


def test_a_run_as_the_last_line_of_a_cell_is_seen_while_it_runs(open_page) -> None:
    page: Page = open_page(
        "agent = Agent(ScriptedProvider.llm(WORDS, delay_s=0.02, repeat=True))",
        "agent.run('go on')",
        "await agent.arun('go on')",
        "print(Out[3].stop_reason, _.text[:5])",
        name="run.ipynb",
    )
    page.run(1)
    for cell in (2, 3):
        page.run(cell, wait=False)
        page.output(cell).locator(".rein-live", has_text="word9").wait_for(timeout=10_000)
        page.output(cell).get_by_role("button", name="Stop").click()
        page.idle(10)
        assert page.output(cell).locator(".rein-live").count() == 0
        assert page.text(cell).count("word9 ") == 1
        assert "Stopped" in page.text(cell)
    page.run(4)
    assert page.text(4).startswith("cancelled word")


@pytest.mark.parametrize(
    ("button", "words"), [("Approve", "deleted notes.txt"), ("Always allow", "deleted notes.txt"), ("Deny", "denied")]
)
def test_a_call_waits_for_the_readers_decision(open_page, button: str, words: str) -> None:
    page: Page = open_page("%%agent -m cautious --tools delete\nDelete it", name=f"approve-{button}.ipynb")
    page.run(1, wait=False)
    page.output(1).get_by_role("button", name=button, exact=True).click(timeout=10_000)
    page.idle(10)
    assert words in page.text(1)
    assert "Done as you said." in page.text(1)


def test_a_sub_agents_question_is_answered_on_the_card_of_its_call(open_page) -> None:
    page: Page = open_page(
        "await asking().arun('go')",
        "from rein_nb import compare\ngrid = compare('go', {'one': asking(), 'two': asking()})",
        name="inner.ipynb",
    )
    page.run(1, wait=False)
    question = page.output(1).locator(".rein-ask")
    question.get_by_text("janitor asks to run delete").wait_for(timeout=10_000)
    assert "<b>notes.txt</b>" in question.inner_text()
    assert question.bounding_box()["height"] < 500
    question.get_by_role("button", name="Deny", exact=True).click()
    page.idle(10)
    assert page.output(1).locator(".rein-ask").count() == 0
    assert "): denied" in page.text(1)
    assert "Inner end." in page.text(1)
    (data,) = [output["data"] for output in page.save()["cells"][1]["outputs"] if "text/html" in output["data"]]
    assert all("Asked to run delete" in "".join(data[kind]) for kind in ("text/html", "text/markdown", "text/plain"))

    # A comparison asks nobody: its runs are told so at once.
    page.run(2)
    cells = page.output(2).locator(".rein-root td").all_inner_texts()
    assert ["): denied" in cell and "Inner end." in cell for cell in cells] == [True, True]


def test_C111_a_background_run_stays_in_its_own_cell(open_page) -> None:
    page: Page = open_page(
        "%%agent -m weather --tools get_weather --background\nWhat is the weather in Paris?",
        "import time\nprint('second cell')\ntime.sleep(5)",
        "print(type(_agent).__name__, _agent.result(20).text)",
        name="background.ipynb",
    )
    page.run(1)
    page.run(2)
    page.run(3)
    page.page.wait_for_timeout(300)
    assert page.text(2).strip() == "second cell"
    assert "18 degrees and cloudy in Paris" in page.text(1)
    assert "AgentRun In Paris" in page.text(3)


def test_a_late_second_view_shows_the_same_run(open_page) -> None:
    page: Page = open_page("%%agent -m slow\ngo on", name="late.ipynb")
    page.run(1, wait=False)
    page.output(1).get_by_text("word9").wait_for(timeout=10_000)
    page.command("notebook:create-output-view")
    views = page.page.locator(".rein-live")
    page.page.wait_for_function("() => document.querySelectorAll('.rein-live').length == 2", timeout=10_000)
    page.page.wait_for_timeout(700)
    one, two = (views.nth(n).locator(".rein-blocks").inner_text() for n in (0, 1))
    assert "word9" in two
    assert two.startswith(one[:60])
    views.nth(0).get_by_role("button", name="Stop").click()
    page.idle(10)


BOTTOM = """() => [document.querySelector('.rein-live').getBoundingClientRect().bottom,
document.querySelector('.jp-WindowedPanel-outer').getBoundingClientRect().bottom,
document.querySelector('.rein-live .rein-stop').getBoundingClientRect().top]"""


def test_the_bottom_is_followed_until_the_reader_scrolls_away(open_page) -> None:
    page: Page = open_page(
        "tall = ScriptedProvider.llm([f'Paragraph {n}.\\n\\n' for n in range(400)], delay_s=0.02)",
        "%%agent -m tall\ngo on",
        name="follow.ipynb",
    )
    page.page.set_viewport_size({"width": 1100, "height": 700})
    page.run(1)
    page.run(2, wait=False)
    page.output(2).get_by_text("Paragraph 60.").wait_for(timeout=15_000)
    page.page.wait_for_timeout(200)
    end, edge, stop = page.page.evaluate(BOTTOM)
    assert abs(end - edge) < 80
    # The buttons stay in sight.
    assert 0 < stop < edge
    page.output(2).get_by_role("button", name="Copy as Markdown").click()
    page.output(2).get_by_text("Copied").wait_for(timeout=5_000)
    copied = page.page.evaluate("() => navigator.clipboard.readText()")
    assert copied.startswith("Paragraph 0.\n\nParagraph 1.\n\n")
    assert "Paragraph 60." in copied
    scrolled = "() => document.querySelector('.jp-WindowedPanel-outer').scrollTop"
    page.page.evaluate("() => { document.querySelector('.jp-WindowedPanel-outer').scrollTop = 100 }")
    page.output(2).get_by_text("Paragraph 100.").wait_for(timeout=15_000, state="attached")
    assert page.page.evaluate(scrolled) == 100
    page.output(2).get_by_role("button", name="Stop").click()
    page.idle(10)


def test_two_models_answer_side_by_side(open_page) -> None:
    page: Page = open_page("%%agent -m weather -m slow --tools get_weather\nWeather?", name="grid.ipynb")
    page.run(1, wait=False)
    page.page.wait_for_function("() => document.querySelectorAll('.rein-pane').length == 2", timeout=10_000)
    page.output(1).locator("strong", has_text="18 degrees").wait_for(timeout=10_000)
    assert "word3" in page.text(1)
    page.output(1).get_by_role("button", name="Stop", exact=True).first.click()
    page.idle(15)
    assert page.output(1).locator("th").filter(has_text="slow").count() == 1
    assert "18 degrees and cloudy in Paris" in page.text(1)
