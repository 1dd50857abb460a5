"""How magic lines are read."""

from __future__ import annotations

import pytest

from rein_nb.notebook.options import OptionError, Parsed, help_text, interpolate, parse


def line(text: str, **names: object) -> Parsed:
    return parse(text, names, whole=False)


@pytest.mark.parametrize(
    ("text", "values", "rest"),
    [
        ("don't panic", {}, "don't panic"),
        ('--model "my model" say "hi there"', {"models": ["my model"]}, 'say "hi there"'),
        ("--model=\"my model\" -- --not-an-option 'x'", {"models": ["my model"]}, "--not-an-option 'x'"),
        (r"C:\new\table", {}, r"C:\new\table"),
        (r"--system C:\new\table what?", {"system": r"C:\new\table"}, "what?"),
        ("   ", {}, ""),
        ("-5 + 3 is what?", {}, "-5 + 3 is what?"),
        ("- is this a list?", {}, "- is this a list?"),
        ("-m a/b -m c/d hi -m e", {"models": ["a/b", "c/d"]}, "hi -m e"),
        ("--max-tokens 1_000 --temperature=0.5 {x} $HOME %d", {"max_tokens": 1000, "temperature": 0.5}, "{x} $HOME %d"),
        ("--no-stream --background go", {"no_stream": True, "background": True}, "go"),
        ("--system='' hi", {"system": ""}, "hi"),
    ],
)
def test_C117_options_are_read_only_at_the_start(text: str, values: dict[str, object], rest: str) -> None:
    parsed = line(text)
    assert parsed.values == values
    assert parsed.rest == rest


def test_C117_a_misspelt_option_is_named_with_the_nearest() -> None:
    with pytest.raises(OptionError, match=r"--modle.*--model"):
        line("--modle gpt hi")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--model", "needs a value"),
        ("--model --tools f", "needs a value"),
        ("--max-tokens many", "takes a number"),
        ('--system "never ends', "never ends"),
        ("--approve maybe x", "auto, always, never"),
        ("--background=1 x", "takes no value"),
        ("--out 3x hi", "name of a variable"),
        ("--tools", "one or more names"),
    ],
)
def test_wrong_values_say_what_would_be_right(text: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        line(text, f=print)


def test_tool_names_end_where_the_prompt_begins() -> None:
    parsed = line("--tools add, mul what is 2 + 3?", add=1, mul=2)
    assert parsed.values == {"tools": ["add", "mul"]}
    assert parsed.rest == "what is 2 + 3?"


def test_in_a_cell_every_word_after_tools_is_a_name() -> None:
    with pytest.raises(OptionError, match=r"no variable 'ad'; did you mean 'add'"):
        parse("--tools ad", {"add": 1}, whole=True)
    parsed = parse("--tools add mod.fn -m x/y", {"add": 1, "mod": 2}, whole=True)
    assert parsed.values == {"tools": ["add", "mod.fn"], "models": ["x/y"]}


def test_C115_only_asked_for_names_are_put_in_and_nothing_is_expanded_twice() -> None:
    prompt = '{v: k for k, v in d.items()}\nprint(f"{name!r:>10} {{x}}")\n$name ${HOME} %d {} {0} {name\n{name} {other} {name}'
    out = interpolate(prompt, ["name"], {"name": "{other} $x", "other": "no"})
    assert out == prompt.replace("{name} {other} {name}", "{other} $x {other} {other} $x")


def test_attributes_are_put_in_but_no_private_ones() -> None:
    class Point:
        x = 3

    assert interpolate("{p.x} {p.__class__} {p.x()}", ["p"], {"p": Point()}) == "3 {p.__class__} {p.x()}"
    with pytest.raises(OptionError, match="no attribute 'y'"):
        interpolate("{p.y}", ["p"], {"p": Point()})


def test_a_frame_is_put_in_as_a_compact_table() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(300), "b": "x"})
    text = interpolate("{frame}", ["frame"], {"frame": frame})
    assert text.startswith("a,b\n0,x\n")
    assert text.endswith("... 100 more rows")


def test_help_names_every_option() -> None:
    text = help_text()
    for name in ("--model", "--tools", "--system", "--vars", "--image", "--schema", "--background"):
        assert name in text
