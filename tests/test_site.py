"""The site builds without a warning, its links lead somewhere, and a page of it fetches nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cached_property
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests import public_api
from tests.support import REPO

pytest.importorskip("sphinx", reason="the group `docs` is not installed: uv sync --group docs")
pytestmark = pytest.mark.slow

FETCHING = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src", "embed": "src", "object": "data"}  # fmt: skip
"""Elements whose attribute a browser loads by itself. Of ``link`` it depends on the relation."""

LOADED_RELATIONS = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload", "manifest"}  # fmt: skip


@dataclass
class Page(HTMLParser):
    """What of a page matters here: ids, links, and what it loads."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)
        self.feed(self.text)

    @cached_property
    def text(self) -> str:
        """The file."""
        return self.path.read_text(encoding="utf-8")

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        """Take one element in."""
        values = {name: value or "" for name, value in attributes}
        self.ids.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        loaded = values.get(FETCHING.get(tag, ""), "")
        if tag == "link" and LOADED_RELATIONS & set(values.get("rel", "").split()):
            loaded = values.get("href", "")
        if loaded:
            self.loads.append(loaded)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site; warnings are errors."""
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-d", out / "trees", "-c", "docs", ".", out / "html"],
        cwd=REPO, capture_output=True, text=True, timeout=600, check=False, env=os.environ | {"NO_COLOR": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return out / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    """Every page of the site."""
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def test_the_site_has_the_pages_that_were_written(pages: dict[Path, Page], site: Path) -> None:
    names = {path.relative_to(site).with_suffix("").as_posix() for path in pages}
    written = [*(REPO / "docs").rglob("*.md"), *(REPO / "notebooks").glob("*.ipynb"), REPO / "README.md"]
    assert not {path.relative_to(REPO).with_suffix("").as_posix() for path in written} - names


def test_no_internal_link_is_dead(pages: dict[Path, Page]) -> None:
    dead, count = [], 0
    for path, page in pages.items():
        for link in page.links:
            target = urlsplit(link)
            if target.scheme or target.netloc:
                continue
            count += 1
            file = (path.parent / unquote(target.path)).resolve() if target.path else path
            anchor = unquote(target.fragment)
            # "#" alone is the top of the page.
            if not file.is_file() or (anchor and file in pages and anchor not in pages[file].ids):
                dead.append(f"{path.name}: {link}")
    assert not dead
    assert count > 2000


def test_a_page_loads_nothing_from_elsewhere(pages: dict[Path, Page]) -> None:
    foreign = [
        f"{path.name}: {url}" for path, page in pages.items() for url in page.loads if re.match(r"([a-z]+:)?//", url)
    ]
    assert not foreign


def test_its_style_sheets_load_nothing_from_elsewhere(site: Path) -> None:
    sheets = list(site.rglob("*.css"))
    assert sheets
    foreign = [
        path.name
        for path in sheets
        if re.search(r"""(url\(\s*["']?|@import\s+["'])(https?:)?//""", path.read_text(encoding="utf-8"))
    ]
    assert not foreign


def test_every_public_name_is_in_the_reference(pages: dict[Path, Page]) -> None:
    documented = set().union(*(page.ids for path, page in pages.items() if path.parent.name == "api"))
    missing = [
        name.path for name in public_api.names() if public_api.written(name) not in documented | {"rein_nb.__version__"}
    ]
    assert not missing


def test_names_in_running_text_lead_to_the_reference(pages: dict[Path, Page], site: Path) -> None:
    assert any("api/agents.html#rein_nb.Agent" in link for link in pages[site / "docs" / "howto" / "tools.html"].links)


@pytest.mark.browser
def test_a_browser_asks_for_nothing_but_files(site: Path) -> None:
    api = pytest.importorskip("playwright.sync_api")
    from tests.browser.harness import CHROMIUM, FLAGS

    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    asked: list[str] = []
    with api.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        page = browser.new_page(viewport={"width": 390, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        for name in ("docs/index", "docs/design", "notebooks/01_first_light", "docs/reference/api/agents"):
            page.goto((site / f"{name}.html").as_uri(), wait_until="load")
            # A phone shows the page without scrolling sideways.
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, name
        browser.close()
    assert len(asked) > 10
    assert all(url.startswith(("file:", "data:", "blob:")) for url in asked)
