"""Every payload in every place, in a trusted notebook in a real browser: nothing runs, nothing is fetched."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.harness import CHROMIUM, REPO, Lab

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


@pytest.mark.parametrize("cell", [LIVE, STATIC, HELD], ids=["live", "saved", "widget"])
def test_nothing_runs_and_nothing_is_fetched(listener: Listener, cell: str) -> None:
    with Lab() as lab:
        page = lab.open(SETUP.format(repo=str(REPO), address=listener.address), cell)
        page.run(0)
        assert int(page.text(0)) > 30
        page.run(1, timeout_s=240)
        page.page.evaluate(CLICK)
        page.page.wait_for_timeout(500)
        assert page.page.evaluate("() => window.__pwned") == []
        assert listener.hits == []
        assert page.remote_requests() == []
        # JupyterLab gives every heading of Markdown output a link to itself.
        links = page.page.evaluate(
            "() => [...document.querySelectorAll('.jp-OutputArea-output a:not(.jp-InternalAnchorLink)')].map(a => a.getAttribute('href') || '')"
        )
        assert [link for link in links if not link.startswith(("http://", "https://", "mailto:"))] == []
        forbidden = "img:not([src^='data:image/']), svg, form, iframe, object, embed, style, script, base, meta, link, video, audio, input"
        found = page.page.evaluate(
            "s => [...document.querySelectorAll('.rein-root')].flatMap(r => [...r.querySelectorAll(s)].map(n => n.outerHTML.slice(0, 100)))",
            forbidden,
        )
        assert found == []
        page.close()


def test_the_exported_page_runs_and_fetches_nothing(listener: Listener, tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    from rein_nb.notebook.saved import transcript_html
    from tests.notebook import hostile

    texts = [
        text.replace(hostile.LISTENER, listener.address) for text in (hostile.OWN | hostile.shared_payloads()).values()
    ]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, headless=True, args=["--no-sandbox", "--disable-gpu"]
        )
        page = browser.new_page()
        page.add_init_script("window.__pwned = [];")
        for number, text in enumerate(texts):
            path = tmp_path / f"{number}.html"
            path.write_text(
                transcript_html(hostile.result_of(hostile.hostile_run(text)), title=text),
                encoding="utf-8",
                errors="replace",
            )
            page.goto(path.as_uri())
            assert page.evaluate("() => window.__pwned") == []
        browser.close()
    assert listener.hits == []
