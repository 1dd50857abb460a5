"""Every payload in every place, in a trusted notebook in a real browser: nothing runs, nothing is fetched."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser.harness import CHROMIUM, REPO, Lab, Page, notebook
from tests.notebook import hostile

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine"),
]


class Listener:
    """A loopback server that notes what it is asked for."""

    def __init__(self) -> None:
        hits = self.hits = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                hits.append(self.path)
                self.send_response(200)
                self.send_header("Content-Length", "1")
                self.end_headers()
                self.wfile.write(b"x")

            do_POST = do_HEAD = do_OPTIONS = do_GET

            def log_message(self, *args: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def listener() -> Iterator[Listener]:
    found = Listener()
    yield found
    found.server.shutdown()


SETUP = """
import sys
sys.path.insert(0, {repo!r})
%load_ext rein_nb
import asyncio
from tests.notebook import hostile
hostile.LISTENER = {address!r}
from rein_nb.notebook import show, state_of
from rein_nb.notebook.plain import markdown_transcript
from IPython.display import display
PAYLOADS = {{**hostile.OWN, **hostile.shared_payloads()}}
PAYLOADS = {{key: text.replace("https://evil.example", {address!r} + "/evil") for key, text in PAYLOADS.items()}}
async def paced(events):
    for number, event in enumerate(events):
        yield event
        if number % 12 == 0:
            await asyncio.sleep(0.03)
print(len(PAYLOADS))
"""
LIVE = """
lives = []
for text in PAYLOADS.values():
    lives.append(show(paced(hostile.hostile_run(text).events)))
    while not lives[-1].finished:
        await asyncio.sleep(0.02)
"""
STATIC = """
for text in PAYLOADS.values():
    state = state_of(hostile.hostile_run(text).events)
    display({"text/markdown": markdown_transcript(state)}, raw=True)
    display({"text/html": __import__("rein_nb.notebook.saved", fromlist=["x"]).bundle_of(state)["text/html"]}, raw=True)
"""
HELD = """
from rein_nb.notebook.live import Live
held = []
for text in list(PAYLOADS.values()):
    live = Live([text, "b"], [text, "c"])
    for pane in range(2):
        for event in hostile.hostile_run(text).events[:-2]:
            live.feed(event, pane)
    held.append(live)
await asyncio.sleep(3)
"""

CLICK = """() => {
  for (const area of document.querySelectorAll('.jp-OutputArea-output'))
    for (const node of area.querySelectorAll('summary, button, p, span, div')) {
      node.dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
      if (!node.closest('a') && !(node.dataset && node.dataset.act === 'copy')) node.click();
    }
}"""


FORBIDDEN = "img:not([src^='data:image/']), svg, form, iframe, object, embed, style, script, base, meta, link, video, audio, input"


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab() as lab:
        yield lab


def check(page: Page, listener: Listener) -> None:
    """Click on everything; nothing ran, nothing was fetched, nothing is there that could pretend to be the page."""
    page.page.evaluate(CLICK)
    page.page.wait_for_timeout(500)
    assert page.page.evaluate("() => window.__pwned") == []
    assert listener.hits == []
    assert page.remote_requests() == []
    # JupyterLab gives every heading of Markdown output a link to itself, and makes links of addresses in plain text, ``data:`` among them,
    # which no browser follows.
    links = page.page.evaluate(
        "() => [...document.querySelectorAll('.jp-OutputArea-output a:not(.jp-InternalAnchorLink, .jp-RenderedText a)')].map(a => a.getAttribute('href') || '')"
    )
    assert [link for link in links if not link.startswith(("http://", "https://", "mailto:"))] == []
    found = page.page.evaluate(
        "s => [...document.querySelectorAll('.rein-root')].flatMap(r => [...r.querySelectorAll(s)].map(n => n.outerHTML.slice(0, 100)))",
        FORBIDDEN,
    )
    assert found == []


@pytest.mark.parametrize(("name", "cell"), [("live", LIVE), ("saved", STATIC), ("widget", HELD)])
def test_nothing_runs_and_nothing_is_fetched(lab: Lab, listener: Listener, name: str, cell: str) -> None:
    page = lab.open(SETUP.format(repo=str(REPO), address=listener.address), cell, name=f"{name}.ipynb")
    page.run(0)
    assert int(page.text(0)) > 30
    page.run(1, timeout_s=240)
    check(page, listener)
    page.close()


def payloads(listener: Listener) -> list[str]:
    """Every payload, with this listener's address in it."""
    every = (hostile.OWN | hostile.shared_payloads()).values()
    return [
        text.replace(hostile.LISTENER, listener.address).replace("https://evil.example", f"{listener.address}/evil")
        for text in every
    ]


def saved_notebook(listener: Listener) -> dict[str, Any]:
    """A notebook with the saved outputs of every payload, each in all its forms and once more in each form alone."""
    from rein_nb.notebook.saved import bundle_of

    book = notebook("")
    for text in payloads(listener):
        bundle = bundle_of(hostile.hostile_run(text).events)
        for data in (bundle, *({kind: bundle[kind]} for kind in ("text/markdown", "text/plain"))):
            book["cells"][0]["outputs"].append({"output_type": "display_data", "metadata": {}, "data": data})
    return book


def test_nothing_runs_in_a_notebook_that_is_not_trusted(lab: Lab, listener: Listener) -> None:
    (lab.root / "untrusted.ipynb").write_text(json.dumps(saved_notebook(listener)))
    page = Page(lab, "untrusted.ipynb", 1400)
    page.page.locator(".rein-root").first.wait_for(timeout=20_000)
    check(page, listener)
    page.close()


def test_nothing_runs_in_what_nbconvert_makes(lab: Lab, listener: Listener, tmp_path: Path) -> None:
    nbformat, nbconvert = pytest.importorskip("nbformat"), pytest.importorskip("nbconvert")
    body, _ = nbconvert.HTMLExporter(template_name="lab").from_notebook_node(
        nbformat.from_dict(saved_notebook(listener))
    )
    path = tmp_path / "book.html"
    path.write_text(body, encoding="utf-8", errors="replace")
    page = lab.browser.new_page()
    page.add_init_script("window.__pwned = [];")
    # The template itself asks for a typesetter from elsewhere: those requests end here.
    page.route(
        "**/*",
        lambda route: route.continue_() if route.request.url.startswith(("file:", listener.address)) else route.abort(),
    )
    page.goto(path.as_uri())
    assert page.locator(".rein-root").count() >= len(payloads(listener))
    page.evaluate(
        "() => document.querySelectorAll('.rein-root summary, .rein-root p, .rein-root span').forEach(n => n.click())"
    )
    page.wait_for_timeout(300)
    assert page.evaluate("() => window.__pwned") == []
    assert listener.hits == []
    found = page.evaluate(
        "s => [...document.querySelectorAll('.jp-OutputArea-output')].flatMap(r => [...r.querySelectorAll(s)].map(n => n.outerHTML.slice(0, 100)))",
        FORBIDDEN,
    )
    assert found == []
    page.close()


def test_the_exported_page_runs_and_fetches_nothing(lab: Lab, listener: Listener, tmp_path: Path) -> None:
    from rein_nb.notebook.saved import transcript_html

    page = lab.browser.new_page()
    page.add_init_script("window.__pwned = [];")
    for number, text in enumerate(payloads(listener)):
        path = tmp_path / f"{number}.html"
        result = hostile.result_of(hostile.hostile_run(text))
        path.write_text(transcript_html(result, title=text), encoding="utf-8", errors="replace")
        page.goto(path.as_uri())
        assert page.evaluate("() => window.__pwned") == []
    page.close()
    assert listener.hits == []
