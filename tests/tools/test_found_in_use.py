"""Faults that were found by using tools in odd but real ways, each as a case."""

from __future__ import annotations

import functools
import json
import math
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from rein_nb.ir import ToolCall
from rein_nb.tools import Tool
from rein_nb.tools.builtin import toolset
from rein_nb.tools.render import sniff


async def called(fn: Any, **arguments: Any) -> Any:
    made = fn if isinstance(fn, Tool) else Tool(fn)
    return await made.call(ToolCall(id="c", name=made.name, arguments=arguments))


def fetch(url: str, token: str = "x", **more: Any) -> str:
    """Fetch."""
    return json.dumps({"url": url, "token": token, **more})


def loose(url: str, **more: Any) -> str:
    """Fetch."""
    return json.dumps({"url": url, **more})


@pytest.mark.parametrize("fn", [fetch, loose])
async def test_what_a_partial_has_bound_cannot_be_set_by_a_call(fn: Any) -> None:
    bound = functools.partial(fn, token="bound")
    refused = await called(bound, url="u", token="other")
    assert refused.is_error
    assert "token: no such parameter" in refused.text
    assert json.loads((await called(bound, url="u", more=1)).text) == {"url": "u", "token": "bound", "more": 1}


def test_a_default_that_json_does_not_have_is_left_out_of_the_schema() -> None:
    def near(x: float, most: float = math.inf, odd: float = math.nan, plain: float = 1.5) -> str:
        """Find."""
        return ""

    schema = Tool(near).spec().parameters
    json.dumps(schema, allow_nan=False)
    assert schema["required"] == ["x"]
    assert [name for name, value in schema["properties"].items() if "default" in value] == ["plain"]


@pytest.mark.parametrize(
    "text", [b"SEISMIC WAVE DATA\n1,2\n", b"#define WAVE_MAX 3\n", b"ID3,name\n1,x\n", b"        WEBP as text"]
)
def test_a_text_that_has_a_formats_mark_is_a_text(text: bytes) -> None:
    assert sniff(text) is None


def test_sounds_and_pictures_are_still_known() -> None:
    assert sniff(b"RIFF\x00\x00\x00\x00WAVEfmt ").mime_type == "audio/wav"  # type: ignore[union-attr]
    assert sniff(b"RIFF\x00\x00\x00\x00WEBPVP8 ").mime_type == "image/webp"  # type: ignore[union-attr]
    assert sniff(b"ID3\x04\x00\x00").mime_type == "audio/mpeg"  # type: ignore[union-attr]


async def test_code_runs_with_the_features_of_a_cell(tmp_path: Path) -> None:
    tools = toolset(tmp_path, include=["python"], approve=False, namespace={"__name__": "__main__"})
    result = await called(tools["python"], code="def f(x: int) -> str: ...\nf.__annotations__['x'] is int")
    assert "True" in result.text


async def test_a_series_within_a_result_keeps_its_labels() -> None:
    result = await called(Tool(lambda: {"counts": pd.Series([2, 1], index=["a", "b"])}, name="count"))
    assert '"a"' in result.text


async def test_a_number_too_long_to_be_written_is_no_error() -> None:
    result = await called(Tool(lambda: math.factorial(2000), name="count"))
    assert not result.is_error
    assert "cannot be written" in result.text
