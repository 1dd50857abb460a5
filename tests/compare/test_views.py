"""The static grid and the plots."""

from __future__ import annotations

import builtins
import re
from pathlib import Path
from typing import Any

import pytest

from rein_nb.compare import Comparison, compare
from rein_nb.compare.safe import escape
from rein_nb.ir import ThinkingPart, ToolCall, Usage
from rein_nb.testing.scripted import ScriptedProvider

KINDS = ("cost", "first_token", "tokens", "latency", "timeline")


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture(scope="module")
def made() -> Comparison:
    call = ToolCall(id="c1", name="add", arguments={"a": 2, "b": 3})
    priced = Usage(input_tokens=10, output_tokens=3, cost_usd=0.5)
    models: dict[str, Any] = {
        "tools": ScriptedProvider.llm(
            [ThinkingPart(text="let me add"), call, priced], ["5", priced], repeat=True, delay_s=0.002
        ),
        "plain": ScriptedProvider.llm(["five"], repeat=True),
        "broken": ScriptedProvider.llm(["x"], fault="server_error"),
    }
    return compare(["2+3?", "again"], models, tools=[add], concurrency=1)


def test_the_grid_shows_text_thinking_calls_results_errors_and_cost(made: Comparison, tmp_path: Path) -> None:
    html = made.to_html(tmp_path / "grid.html")
    assert (tmp_path / "grid.html").read_text(encoding="utf-8") == html == made._repr_html_()
    for text in (
        "tools",
        "plain",
        "broken",
        "2+3?",
        "again",
        "let me add",
        "add",
        "five",
        "server_error",
        "$2.0000",
        "2 of 2 failed",
    ):
        assert text in html
    assert not re.search(r"<(script|img|link|iframe|a|svg|form)\b|https?:|url\(", html)
    assert html.count("<tr>") == html.count("</tr>") == 5  # the head, and for each prompt its text and its cells


def test_the_grid_runs_nothing_that_was_written() -> None:
    secret = "sk-" + "Zz9" * 10
    wicked = f"</pre><script>alert(1)</script><img src=x onerror=alert(2)> {secret} \u202e \x1b]0;x\x07"
    call = ToolCall(id="c", name="nosuch", arguments={"<b>": wicked})
    models = {wicked: ScriptedProvider.llm([ThinkingPart(text=wicked), wicked, call], [wicked])}
    html = compare(wicked, models).to_html()
    assert "<script" not in html
    assert "<img" not in html
    assert "<b>" not in html
    assert secret not in html
    assert not re.search("[\u202e\x1b\x07]", html)


def test_escape_shows_controls_and_keeps_ordinary_text() -> None:
    assert escape("a\tb\r\nc é 漢 \U0001f600") == "a\tb\nc é 漢 \U0001f600"
    assert escape("\x1b[1m\u2066\ud800") == "⟨U+001B⟩[1m⟨U+2066⟩\ufffd"
    assert escape("\"<&'>") == "&quot;&lt;&amp;&#x27;&gt;"


@pytest.mark.parametrize("kind", KINDS)
def test_every_plot_renders_to_svg(made: Comparison, kind: str) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    pytest.importorskip("altair")
    svg = vl_convert.vegalite_to_svg(made.plot(kind).to_json())
    assert svg.startswith("<svg")
    assert "plain" in svg


@pytest.mark.parametrize("kind", KINDS)
def test_plots_of_nothing_render_too(kind: str) -> None:
    vl_convert = pytest.importorskip("vl_convert")
    assert vl_convert.vegalite_to_svg(Comparison(["a"], ["p"]).plot(kind).to_json()).startswith("<svg")


def test_plot_data_are_the_runs_own_numbers(made: Comparison) -> None:
    cost = made.plot("cost", quality=lambda result: float(result.text == "five")).to_dict()["data"]["values"]
    assert [row["quality"] for row in cost] == [0.0, 1.0, 0.0] * 2
    assert [row["cost_usd"] for row in cost if row["label"] == "tools"] == [1.0, 1.0]
    assert [row["duration_s"] for row in cost] == made.runs["duration_s"].tolist()
    spans = made.plot("timeline").to_dict()["data"]["values"]
    tools = [span for span in spans if span["what"] == "tool"]
    assert [span["name"] for span in tools] == ["add", "add"]
    for span in spans:
        assert 0 <= span["start"] <= span["end"]
    assert (
        sum(row["tokens"] for row in made.plot("tokens").to_dict()["data"]["values"] if row["label"] == "tools") == 52
    )


def test_wrong_kind_and_missing_altair_are_named(made: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no plot is called 'pie'; there are: cost, first_token"):
        made.plot("pie")
    with pytest.raises(ValueError, match="quality= belongs to the plot 'cost'"):
        made.plot("tokens", quality=len)
    real = builtins.__import__

    def without(name: str, *args: Any, **kwargs: Any) -> Any:
        if name == "altair":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match=r"pip install 'rein-nb\[plots\]'"):
        made.plot("cost")
