"""Differences between two answers: exact, readable, harmless."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rein_nb.compare import compare
from rein_nb.compare.diff import Diff, diff_calls, diff_text
from rein_nb.ir import ToolCall
from rein_nb.testing.scripted import ScriptedProvider


@given(st.text(alphabet="ab \n.é漢", max_size=60), st.text(alphabet="ab \n.é漢", max_size=60))
def test_the_changes_put_together_give_both_texts(a: str, b: str) -> None:
    changes = diff_text(a, b)
    assert "".join(change.a for change in changes) == a
    assert "".join(change.b for change in changes) == b
    assert all((change.a == change.b) == (change.op == "equal") for change in changes)
    assert all(change.op == "insert" for change in changes if not change.a)


def test_words_are_compared_not_letters_or_lines() -> None:
    changes = diff_text("The quick brown fox jumps.", "The quick red fox jumps!")
    assert [(c.op, c.a, c.b) for c in changes] == [
        ("equal", "The quick ", "The quick "),
        ("replace", "brown", "red"),
        ("equal", " fox jumps", " fox jumps"),
        ("replace", ".", "!"),
    ]


def test_neighbouring_changed_words_are_one_change() -> None:
    changes = diff_text("say one two now", "say three four now")
    assert [(c.op, c.a, c.b) for c in changes if c.op != "equal"] == [("replace", "one two", "three four")]


def test_long_texts_are_compared_in_reasonable_time() -> None:
    rng = random.Random(5)
    lines = [" ".join(rng.choices(["alpha", "beta", "gamma", "delta"], k=12)) for _ in range(2000)]
    changed = [line.replace("alpha", "omega", 1) if n % 50 == 0 else line for n, line in enumerate(lines)]
    a, b = "\n".join(lines), "\n".join(changed)
    start = time.process_time()
    changes = diff_text(a, b)
    assert time.process_time() - start < 5
    assert {(c.a, c.b) for c in changes if c.op != "equal"} == {("alpha", "omega")}


def test_tool_calls_are_aligned_by_name_and_arguments() -> None:
    def call(name: str, n: int) -> ToolCall:
        return ToolCall(id=f"{name}{n}", name=name, arguments={"n": n, "m": 0})

    same_other_order = ToolCall(id="z", name="f", arguments={"m": 0, "n": 1})
    changes = diff_calls([call("f", 1), call("g", 1), call("h", 1)], [same_other_order, call("g", 2), call("k", 1)])
    assert [(c.op, c.a and c.a.name, c.b and c.b.name) for c in changes] == [
        ("equal", "f", "f"), ("replace", "g", "g"), ("delete", "h", None), ("insert", None, "k"),
    ]  # fmt: skip


def test_a_comparison_names_both_columns_and_shows_what_differs() -> None:
    models = {
        "a": ScriptedProvider.llm(["same old"]),
        "b": ScriptedProvider.llm(["same new"]),
        "c": ScriptedProvider.llm(["same old"]),
    }
    made = compare("go", models)
    diff = made.diff()
    assert (diff.a, diff.b, diff.same) == ("a", "b", False)
    assert repr(diff) == "--- a\n+++ b\nsame [-old-]{+new+}"
    assert 0 < diff.similarity < 1
    assert made.diff("a", "c").same
    assert made.diff("a", "c").similarity == 1.0
    assert made.diff("c").b == "a"
    with pytest.raises(KeyError, match="no column 'x'"):
        made.diff("a", "x")
    with pytest.raises(ValueError, match="needs two columns"):
        compare("go", {"a": ScriptedProvider.llm(["x"])}).diff()


def test_html_of_a_difference_runs_nothing_the_model_wrote() -> None:
    wicked = "<img src=x onerror=alert(1)> \u202edcba \x1b[31m"
    models = {"<b>a</b>": ScriptedProvider.llm([wicked]), "b": ScriptedProvider.llm(["tame"])}
    html = compare("go", models).diff()._repr_html_()
    assert "<img" not in html
    assert "<b>" not in html
    assert "\u202e" not in html
    assert "\x1b" not in html
    assert "U+202E" in html


def test_an_empty_difference() -> None:
    assert Diff("a", "b", [], []).same
    assert Diff("a", "b", [], []).similarity == 1.0
    assert diff_text("", "") == []
