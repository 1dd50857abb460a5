"""What the README shows runs, and what it names is there."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.support import REPO

TEXT = (REPO / "README.md").read_text(encoding="utf-8")


def test_the_tests_that_it_names_exist() -> None:
    names = re.findall(r"`(test_\w+)`", TEXT)
    sources = "".join(path.read_text(encoding="utf-8") for path in (REPO / "tests").rglob("test_*.py"))
    assert names
    assert not [name for name in names if f"def {name}(" not in sources]


def test_the_files_that_it_names_exist() -> None:
    assert all((REPO / name).exists() for name in re.findall(r"`(notebooks/[\w.]+)`", TEXT))


@pytest.mark.local_model
@pytest.mark.slow
def test_its_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = [block for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL) if "%load_ext" not in block]
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    assert "42" in capsys.readouterr().out
    assert names["comparison"].table().shape == (2, 3)
