"""What the pages show runs, what they link to is there, and the generated page is up to date.

A Python block is run unless the line before it is ``<!-- not run -->``; a block of text right behind it is what it prints. The blocks of a page share their names, in order; each page has a
folder and a store of its own. The models of the embedded server are stood in for by a script, so that nothing is fetched.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import importlib.util
import inspect
import io
import re
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from rein_nb.ir import ToolCall
from rein_nb.providers import spec
from rein_nb.testing import ScriptedProvider
from tests.support import REPO

PAGES = [
    *sorted((REPO / "docs").rglob("*.md")),
    *(REPO / name for name in ("README.md", "README.zh.md", "CONTRIBUTING.md")),
]
BLOCK = re.compile(r"(?ms)^(<!-- not run -->\n)?```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?")
FENCED = re.compile(r"(?ms)^```.*?^```$")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


def page_id(path: Path) -> str:
    return path.relative_to(REPO).as_posix()


def blocks(text: str) -> list[tuple[int, str, str | None]]:
    """(line number, code, what it prints) of the blocks that are run, magics left out."""
    found = []
    for match in BLOCK.finditer(text):
        code = "\n".join("" if line.startswith(("%", "!")) else line for line in match[2].split("\n"))
        if match[1] is None and code.strip():
            found.append((text[: match.start(2)].count("\n"), code, match[3]))
    return found


def embedded(request: Any) -> Any:
    """What stands in for the embedded model: it calls the first tool once, then answers."""
    if request.tools and request.messages[-1].role != "tool":
        spec_ = request.tools[0]
        return [ToolCall(id="call_1", name=spec_.name, arguments=dict.fromkeys(spec_.parameters["properties"], 21))]
    return "The answer is 42."


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No key, an empty folder, a store of its own, and no embedded server."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "DEEPSEEK_API_KEY", "GEMINI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REIN_NB_STORE", str(tmp_path / "store"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(spec, "_custom", dict(spec._custom))
    monkeypatch.setattr(spec, "_specs", dict(spec._specs))
    spec._load_presets()
    for name in ("local", "local-responses", "local-messages"):
        spec._custom[name] = lambda: ScriptedProvider(embedded, repeat=True)
    return tmp_path


def run(code: str, line: int, path: Path, names: dict[str, Any]) -> None:
    """Run a block as a cell would: top-level ``await`` works."""
    tree = compile("\n" * line + code, str(path), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if tree.co_flags & inspect.CO_COROUTINE:
        asyncio.run(eval(tree, names))  # noqa: S307 - our own pages
    else:
        exec(tree, names)


@pytest.mark.parametrize("path", [path for path in PAGES if blocks(path.read_text(encoding="utf-8"))], ids=page_id)
def test_the_python_of_a_page_runs(path: Path, offline: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    for line, code, printed in blocks(path.read_text(encoding="utf-8")):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            run(code, line, path, names)
        if printed is not None:
            assert out.getvalue() == printed, f"{page_id(path)}, block at line {line + 1}"


def test_most_blocks_are_run() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PAGES]
    ran = sum(len(blocks(text)) for text in texts)
    skipped = sum(text.count("<!-- not run -->\n```python") for text in texts)
    assert ran > 30
    assert skipped < ran / 5


def anchors(path: Path) -> set[str]:
    """The ids that GitHub gives a page's headings."""
    headings = re.findall(r"(?m)^#{1,6} (.+)$", FENCED.sub("", path.read_text(encoding="utf-8")))
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    return {
        "".join(c for c in text.lower() if c in " -_" or unicodedata.category(c)[0] in "LN").replace(" ", "-")
        for text in plain
    }


@pytest.mark.parametrize("path", [*PAGES, REPO / "CHANGELOG.md"], ids=page_id)
def test_internal_links_lead_somewhere(path: Path) -> None:
    dead = []
    for link in LINK.findall(FENCED.sub("", path.read_text(encoding="utf-8"))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_every_page_is_reachable_from_the_index() -> None:
    text = (REPO / "docs" / "index.md").read_text(encoding="utf-8")
    linked = {(REPO / "docs" / link.partition("#")[0]).resolve() for link in LINK.findall(text)}
    pages = {path.resolve() for path in (REPO / "docs").rglob("*.md")} - {(REPO / "docs" / "index.md").resolve()}
    assert not pages - linked


def test_files_and_names_that_the_pages_speak_of_exist() -> None:
    gone = []
    for path in PAGES:
        for name in re.findall(r"`((?:rein_nb|tests|docs|notebooks)/[\w./-]+?)`", path.read_text(encoding="utf-8")):
            if not (REPO / name).exists():
                gone.append(f"{page_id(path)}: {name}")
    assert not gone


def make() -> Any:
    """The script that writes what the documentation has from the code."""
    found = importlib.util.spec_from_file_location("make", REPO / "docs/make.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_what_the_documentation_has_from_the_code_is_up_to_date() -> None:
    files = make().files()
    assert len(files) == 6
    for file, text in files.items():
        assert file.read_text(encoding="utf-8") == text, f"{file.name}: run python docs/make.py"


def test_the_picture_of_the_house_shows_a_triangle() -> None:
    module = make().script("diagrams/make_diagrams.py")
    rooms = module.layers()
    pairs = module.imports(rooms)
    assert ("agent", "ir") in pairs
    assert all(rooms.index(target) < rooms.index(room) for room, target in pairs)


def test_every_command_has_an_example() -> None:
    module = make().script("reference/make_cli.py")
    assert list(module.EXAMPLES) == list(module.commands(module.build_parser()))


def test_the_version_is_the_same_everywhere() -> None:
    from rein_nb import __version__

    assert f"## {__version__}" in (REPO / "CHANGELOG.md").read_text(encoding="utf-8")
    assert f"version: {__version__}" in (REPO / "CITATION.cff").read_text(encoding="utf-8")
