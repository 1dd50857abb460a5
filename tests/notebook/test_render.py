"""Rendering: golden forms of one full run, and the pieces of Markdown."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rein_nb.notebook.blocks import BlockSplitter, split_blocks
from rein_nb.notebook.markdown import render, render_block
from rein_nb.notebook.mathml import mathml
from rein_nb.notebook.plain import markdown_transcript, plain_transcript
from rein_nb.notebook.render import static_html
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.safe_markdown import safe_markdown
from rein_nb.notebook.saved import transcript_html
from tests.notebook.script import ANSWER, weather

GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("form", ["html", "md", "txt"])
def test_a_full_run_looks_as_it_should(form: str) -> None:
    state = state_of(weather().events)
    drawn = {"html": static_html, "md": markdown_transcript, "txt": plain_transcript}[form](state)
    path = GOLDEN / f"weather.{form}"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
        pytest.fail(f"wrote {path.name}; look at it and run again")
    assert drawn == path.read_text(encoding="utf-8")


SPLITS = [
    ("a\nb\n\nc", ["a\nb", "c"]),
    ("# h\ntext", ["# h", "text"]),
    ("text\n# h\n", ["text", "# h"]),
    ("- a\n- b\n\n  more\n\nc", ["- a\n- b\n\n  more", "c"]),
    ("```py\nx\n\ny\n```\nz", ["```py\nx\n\ny\n```", "z"]),
    ("text\n```\nx\n```", ["text", "```\nx\n```"]),
    ("````\n```\n````\nz", ["````\n```\n````", "z"]),
    ("- a\n  ```\n  x\n\n  y\n  ```\n- b", ["- a\n  ```\n  x\n\n  y\n  ```\n- b"]),
    ("$$\na\nb\n$$\nc", ["$$\na\nb\n$$", "c"]),
    ("| a |\n|---|\n| 1 |\n\nx", ["| a |\n|---|\n| 1 |", "x"]),
    ("> q\n> r\n\nx", ["> q\n> r", "x"]),
    ("", []),
    ("\n\n\n", []),
    ("```\nnever closed", ["```\nnever closed"]),
]


@pytest.mark.parametrize(("text", "blocks"), SPLITS)
def test_text_is_cut_into_blocks(text: str, blocks: list[str]) -> None:
    assert split_blocks(text) == blocks


@pytest.mark.parametrize("size", [1, 2, 5, 50])
@pytest.mark.parametrize("text", [ANSWER, *(text for text, _ in SPLITS)])
def test_the_cut_does_not_depend_on_how_text_arrives(text: str, size: int) -> None:
    splitter, found = BlockSplitter(), []
    for start in range(0, len(text), size):
        found += splitter.feed(text[start : start + size])
    assert found + splitter.end() == split_blocks(text)


def test_links_are_inert_but_for_three_schemes() -> None:
    markup = render(
        "[a](https://a.example/) [b](ftp://b.example) [c](/api/x) [d](#x) <mailto:e@e.example> [f](JAVASCRIPT:1)",
        static=True,
    )
    assert re.findall(r'href="([^"]*)"', markup) == ["https://a.example/", "mailto:e@e.example"]
    assert markup.count('rel="noopener nofollow noreferrer"') == 2


def test_references_defined_before_work_across_blocks() -> None:
    assert 'href="https://a.example/"' in render("[r]: https://a.example/\n\nSee [this][r].", static=True)


@pytest.mark.parametrize("text", ["costs $5 and $6", "$HOME and ${x}", "a $ b $ c", "x$1$2"])
def test_prices_and_shell_variables_are_not_mathematics(text: str) -> None:
    assert "<math" not in render_block(text, static=True)


def test_mathematics_is_typeset_offline() -> None:
    markup = render("$a^2$ and \\(b\\)\n\n\\[\\frac{1}{2}\\]\n\n$$\nx_1\n$$", static=True)
    assert markup.count("<math") == 4
    assert "<mfrac>" in markup


def test_what_cannot_be_typeset_is_shown_as_code() -> None:
    assert mathml("\\href{javascript:1}{x}", block=False) is None
    assert mathml("\\begin{nothing}", block=False) is None
    assert mathml("x" * 6000, block=False) is None
    assert '<code class="rein-tex"' in render_block("$\\href{x}{y}$", static=False)


def test_the_converter_cannot_bring_in_markup() -> None:
    for tex in ("\\text{<script>}", "<img>", '\\mathrm{a"b<c>}', "\\color{red;}x", "\\text{</mtext></math><script>}"):
        found = mathml(tex, block=False) or ""
        assert not re.search(r"<(?!/?m)", found), found


def test_code_is_highlighted_within_one_set_of_classes() -> None:
    markup = render_block("```python\ndef f(): return 'x'  # c\n```", static=False)
    assert set(re.findall(r'class="([^"]*)"', markup)) == {
        "rein-code",
        "rein-hk",
        "rein-hf",
        "rein-hs",
        "rein-hc",
    }
    assert "style=" not in markup
    assert render_block("```nosuchlanguage\n<b>\n```", static=False).endswith("&lt;b&gt;</pre>")


SAFE = [
    ("a *b* **c** ~~d~~ `e`", "a *b* **c** ~~d~~ `e`"),
    ("snake_case_name _em_ 2*3*4", "snake_case_name *em* 2*3*4"),
    ("a < b & c > d", "a &lt; b & c > d"),
    ("`a<b`", "<code>a&lt;b</code>"),
    ("1. a\n2. b\n   - c\n\nd", "1. a\n2. b\n   - c\n\nd"),
    ("> a\n> b", "> a\n> b"),
    ("C:\\dir $x$ $5", "C:&#92;dir $x$ &#36;5"),
    ("```py\na\n```", "```py\na\n```"),
    ("~~~\n```\n~~~", "````\n```\n````"),
]


@pytest.mark.parametrize(("source", "safe"), SAFE)
def test_markdown_is_written_anew(source: str, safe: str) -> None:
    assert safe_markdown(source) == safe


def test_safe_markdown_says_the_same_when_it_is_rendered_again() -> None:
    again = safe_markdown(safe_markdown(ANSWER.replace("See the [forecast](https://weather.example/paris?day=1).", "")))
    assert again == safe_markdown(ANSWER.replace("See the [forecast](https://weather.example/paris?day=1).", ""))


def test_an_exported_page_stands_alone() -> None:
    page = transcript_html(weather().events[-1].result, title="Weather")
    assert page.startswith("<!DOCTYPE html>")
    assert "default-src 'none'" in page
    assert "<script" not in page
    assert not re.search(r'(?:src|href)="(?!https://weather\.example|data:)', page)
    assert "Missenard" in page
