"""glob and grep: what they find, what they say of what they did not look into, and that what they print can be read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rein_nb.ir import ToolCall, ToolResult
from rein_nb.stream import CancellationToken
from rein_nb.tools import Toolset
from rein_nb.tools.builtin import matcher, toolset


async def use(tools: Toolset, name: str, **arguments: Any) -> ToolResult:
    return await tools[name].call(ToolCall(id="1", name=name, arguments=arguments))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "ws"
    folder.mkdir()
    return folder


@pytest.fixture
def tools(root: Path) -> Toolset:
    return toolset(root, include=("read", "ls", "glob", "grep"), approve=False)


# -- matching --------------------------------------------------------------------------------------


def test_more_text_than_a_child_takes_at_once_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    # A child that is slow to begin: what it has not taken after the first look must reach it all the same.
    monkeypatch.setattr(matcher, "_CHILD", "import time; time.sleep(0.5)\n" + matcher._CHILD)
    monkeypatch.setattr(matcher, "TIMEOUT_S", 10.0)
    texts = [(f"{n}.txt", "x" * 100_000 + "\nneedle\n") for n in range(20)]
    found, more = matcher.grep(texts, "needle", ignore_case=False, limit=200, token=CancellationToken())
    assert found == [(f"{n}.txt", 2, "needle") for n in range(20)]
    assert not more
