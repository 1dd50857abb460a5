"""The review in JupyterLab in a real browser: keys and buttons vote, nothing tells who is who, and what is saved is a table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.browser.harness import CHROMIUM, REPO, Lab
from tests.browser.test_hostile import CLICK, Listener, listener

__all__ = ["listener"]

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]

SETUP = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
import rein_nb as rn
from rein_nb import ThinkingPart, ToolCall, Usage
from rein_nb.testing import ScriptedProvider
def look(city: str) -> str:
    "Weather."
    return f"18 degrees in {{city}}"
def one(text, **kw):
    return ScriptedProvider.llm(
        [ThinkingPart(text="hm"), ToolCall(id="1", name="look", arguments={{"city": "Paris"}})],
        [text, Usage(input_tokens=1234567, cost_usd=7.654)], repeat=True, model="secret-model-of-" + text.split()[0], **kw)
grid = rn.compare(["Weather?", "And **tomorrow**?"], {{"column-one": one("Sunny and **mild**.\\n\\n| a | b |\\n|---|---|\\n| 1 | 2 |"),
    "column-two": one("Rain, `18` degrees."), "column-three": one("Nobody knows:\\n\\n- a\\n- b")}}, tools=[look], show=False)
review = grid.review(voter="me")
"""

BLIND = re.compile(r"column-(one|two|three)|secret-model|1,?234,?567|7\.65")


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as found:
        yield found


def said(page: Any, number: int) -> None:
    page.page.wait_for_function(
        f"() => document.querySelector('.rein-reviewsaid')?.textContent === 'Pair {number} of 6'", timeout=15_000
    )


def test_keys_and_buttons_vote_blind_and_the_saved_output_is_a_table(lab: Lab) -> None:
    page = lab.open(
        SETUP, "review", "review.votes[['vote', 'voter']].to_dict('list'), bool(review.votes['seconds'].notna().all())"
    )
    page.run(0)
    page.run(1)
    said(page, 1)
    keys = page.page.keyboard
    widget = page.page.locator(".rein-review")
    assert "18 degrees in Paris" in widget.inner_text()
    assert BLIND.search(widget.inner_html()) is None, "nothing tells who is who"
    widget.focus()
    keys.press("ArrowLeft")
    said(page, 2)
    assert BLIND.search(widget.inner_html()) is None
    keys.press("ArrowUp")
    said(page, 3)
    keys.press("u")
    said(page, 2)
    widget.get_by_role("button", name="Both are bad").click()
    said(page, 3)
    keys.press("2")
    said(page, 4)
    keys.press("s")
    said(page, 5)
    assert page.page.evaluate("() => window.jupyterapp.shell.currentWidget.content.activeCellIndex") == 1
    # Pressed twice before the next pair is there, a key judges one pair.
    page.page.evaluate(
        """() => { const root = document.querySelector('.rein-review');
        for (let n = 0; n < 2; n++) root.dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowLeft', bubbles: true})); }"""
    )
    said(page, 6)
    page.run(2)
    assert "['left', 'both_bad', 'right', 'skip', 'left']" in page.text(2)
    assert "True)" in page.text(2), "every vote has its seconds"
    # Shown again it goes on where it was; the last vote ends it.
    page.run(1)
    said(page, 6)
    page.page.locator(".rein-review").focus()
    keys.press("ArrowRight")
    page.page.wait_for_function("() => !document.querySelector('.rein-review')", timeout=15_000)
    for text in ("column-one", "column-two", "column-three", "6 of 6 pairs judged by me"):
        assert text in page.text(1)
    saved = page.save()
    assert "widgets" not in saved["metadata"]
    (output,) = saved["cells"][1]["outputs"]
    assert set(output["data"]) == {"text/html", "text/plain"}
    assert page.remote_requests() == []
    page.close()


HOSTILE = f"""
import sys
sys.path.insert(0, {str(REPO)!r})
import asyncio
import rein_nb as rn
from rein_nb import ThinkingPart, ToolCall
from rein_nb.testing import ScriptedProvider
from tests.notebook import hostile
PAYLOADS = [text.replace("https://evil.example", "ADDRESS/evil").replace(hostile.LISTENER, "ADDRESS")
            for text in (hostile.OWN | hostile.shared_payloads()).values()]
def look(city: str) -> str:
    "Look."
    return city
def answer(request):
    text = request.messages[-1].text
    if request.messages[-1].role == "tool":
        return text
    return [ThinkingPart(text=text), ToolCall(id="1", name="look", arguments={{"city": text}}), text]
grid = rn.compare(PAYLOADS, {{"<img src=x onerror=alert(1)>": ScriptedProvider.llm(*[answer] * 200),
                             "b": ScriptedProvider.llm(*[answer] * 200)}}, tools=[look], show=False)
review = grid.review(voter="<script>alert(1)</script>")
print(len(review.pairs))
"""


def test_nothing_a_model_wrote_runs_or_is_fetched(lab: Lab, listener: Listener) -> None:
    step = "for _ in range(len(review.pairs) - 1):\n    await asyncio.sleep(0.03)\n    review.vote('tie')"
    page = lab.open(HOSTILE.replace("ADDRESS", listener.address), "review", step, "review.vote('left')", height=900)
    page.run(0)
    total = int(page.text(0).split()[-1])
    assert total > 30
    page.run(1)
    page.page.wait_for_selector(".rein-review")
    page.run(2, timeout_s=120)
    page.page.wait_for_function(
        f"() => document.querySelector('.rein-reviewsaid').textContent === 'Pair {total} of {total}'", timeout=30_000
    )
    forbidden = "img:not([src^='data:image/']), svg, form, iframe, object, embed, style, script, base, meta, link, video, audio, input"
    assert (
        page.page.evaluate(
            "s => [...document.querySelectorAll('.rein-sidebody')].flatMap(r => [...r.querySelectorAll(s)].map(n => n.outerHTML))",
            forbidden,
        )
        == []
    )
    page.page.evaluate(CLICK.replace("node.click()", "node.closest('.rein-acts') || node.click()"))
    page.run(3)
    page.page.wait_for_timeout(300)
    assert page.page.evaluate("() => window.__pwned") == []
    assert listener.hits == []
    assert page.remote_requests() == []
    page.close()
