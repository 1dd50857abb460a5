"""What the READMEs show runs, what they name is there, and both say the same."""

from __future__ import annotations

import importlib.util
import re
from typing import Any

import pytest

from tests.support import REPO

TEXT = (REPO / "README.md").read_text(encoding="utf-8")
CHINESE = (REPO / "README.zh.md").read_text(encoding="utf-8")
FIGURES = (REPO / "docs" / "conformance.md").read_text(encoding="utf-8")


def commands(text: str) -> list[str]:
    """The commands of the table of figures."""
    return re.findall(r"(?m)^\|.*\| `([^`]+)` \|$", text)


def test_the_commands_of_the_figures_exist() -> None:
    found = [*commands(TEXT), *commands(FIGURES)]
    assert len(found) > 20
    for command in found:
        module = re.search(r"python -m (tests[\w.]+)", command)
        path = re.search(r"(?:pytest|python) ((?:tests|notebooks)[\w/.]*)", command)
        assert module or path, command
        assert module is None or importlib.util.find_spec(module[1]) is not None, command
        assert path is None or (REPO / path[1]).exists(), command


def test_the_sections_of_the_conformance_command_exist() -> None:
    from tests.conformance.__main__ import SECTIONS

    asked = {word for command in commands(TEXT) for word in re.findall(r"tests\.conformance (\w+)", command)}
    assert asked
    assert asked <= set(SECTIONS)


def test_a_figure_of_the_readme_is_a_figure_of_the_page_that_explains_it() -> None:
    def figures(text: str) -> dict[str, set[str]]:
        """By command: the numbers in its rows."""
        rows: dict[str, set[str]] = {}
        for row in re.findall(r"(?m)^\|.*\| `[^`]+` \|$", text):
            cells = [cell.strip() for cell in row.strip("|").split("|")]
            rows.setdefault(cells[-1], set()).update(re.findall(r"\d[\d.,]*", cells[1]))
        return rows

    known = figures(FIGURES)
    for command, numbers in figures(TEXT).items():
        assert numbers <= known.get(command, set()), command


def test_the_files_that_it_names_exist() -> None:
    assert all((REPO / name).exists() for name in re.findall(r"`(notebooks/[\w.]+)`", TEXT))


def test_both_languages_have_the_same_commands_code_figures_and_sections() -> None:
    assert commands(TEXT) == commands(CHINESE)
    assert TEXT.count("\n## ") == CHINESE.count("\n## ")

    def code(text: str) -> list[str]:
        blocks = re.findall(r"(?ms)^```\w*\n(.*?)^```", text)
        return [re.sub(r"\s+", "", re.sub(r"#.*", "", block)) for block in blocks]

    assert code(TEXT) == code(CHINESE)
    rows = [re.findall(r"(?m)^\| \*\*.*\| ([^|]+) \| `", text) for text in (TEXT, CHINESE)]
    assert [re.findall(r"[\d.,]*\d", cell) for cell in rows[0]] == [re.findall(r"[\d.,]*\d", cell) for cell in rows[1]]


@pytest.mark.local_model
@pytest.mark.slow
def test_its_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "%load_ext" not in block]
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert "42" in capsys.readouterr().out
    assert names["comparison"].table().shape == (2, 3)
