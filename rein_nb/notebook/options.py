"""The options of the magics: read only at the start of the line; everything after them is the prompt, byte for byte.

Plain data and pure functions, so that parsing is the same on every system and needs no IPython.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


class OptionError(Exception):
    """A magic line that cannot be understood; the message says what would be right."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes
    ----------
    names
        Long name first.
    takes
        ``"flag"``, ``"one"`` value, ``"many"`` times one value, or ``"names"``: one or more names of the user's variables.
    field
        Where it goes in `Parsed.values`.
    help
        One line.
    value
        What stands for its value in the help.
    """

    names: tuple[str, ...]
    takes: str
    field: str
    help: str
    value: str = ""
    convert: Callable[[str], Any] = str


def _integer(text: str) -> int:
    return int(text.replace("_", ""))


OPTIONS: tuple[Option, ...] = (
    Option(
        ("--model", "-m"), "many", "models", "the model; given again, the models answer side by side", "provider/model"
    ),
    Option(("--tools", "-t"), "names", "tools", "functions of yours that the model may call", "f g"),
    Option(
        ("--tool-choice",), "one", "tool_choice", "auto, none, required, or the tool that must be called first", "when"
    ),
    Option(("--system", "-s"), "one", "system", "the system prompt", '"text"'),
    Option(("--session",), "one", "session", "the conversation to go on with", "name"),
    Option(("--effort",), "one", "effort", "how hard to think, in the model's own words", "low"),
    Option(("--max-tokens",), "one", "max_tokens", "most output tokens", "n", _integer),
    Option(("--temperature",), "one", "temperature", "sampling temperature", "t", float),
    Option(("--out", "-o"), "one", "out", "the variable that takes the result (`_agent` by default)", "name"),
    Option(("--approve",), "one", "approve", "which tool calls to ask about: auto, always or never", "when"),
    Option(("--schema",), "one", "schema", "the type that the answer must have", "Type"),
    Option(("--background",), "flag", "background", "return at once; the run goes on"),
    Option(("--no-stream",), "flag", "no_stream", "show the transcript only when it is whole"),
    Option(("--image",), "many", "images", "an image to send: a variable, or a file's path", "name"),
    Option(("--vars", "-i"), "names", "vars", "put these variables in where the prompt says {name}", "name other"),
)
_BY_NAME = {name: option for option in OPTIONS for name in option.names}

APPROVE = ("auto", "always", "never")
TOOL_CHOICE = ("auto", "none", "required")


@dataclass(slots=True)
class Parsed:
    """A magic line, read.

    Attributes
    ----------
    values
        Options by field.
    rest
        The line after its options, as it was typed.
    """

    values: dict[str, Any] = field(default_factory=dict)
    rest: str = ""


_SPACE = re.compile(r"[ \t]+")
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def _word(text: str, start: int, *, why: str) -> tuple[str, int]:
    """The word at `start` and the position after it. Quotes hold spaces together; backslashes mean themselves."""
    if text[start : start + 1] in ("'", '"'):
        quote = text[start]
        end = text.find(quote, start + 1)
        if end < 0:
            raise OptionError(f"the value of {why} begins with {quote} and never ends")
        return text[start + 1 : end], end + 1
    match = re.compile(r"\S+").match(text, start)
    return (match[0], match.end()) if match else ("", start)


def parse(line: str, names: Mapping[str, Any], *, whole: bool) -> Parsed:
    """Read a magic line.

    Parameters
    ----------
    line
        The text after ``%agent`` or ``%%agent``.
    names
        The user's variables, to tell where a list of names ends and the prompt begins.
    whole
        Whether the line holds options only (a cell magic), so that every further word of a list is meant as a name.

    Raises
    ------
    OptionError
        For an unknown option, a missing or wrong value, an unknown name.
    """
    out = Parsed()
    position = 0
    while True:
        space = _SPACE.match(line, position)
        position = space.end() if space else position
        if not line.startswith("-", position) or not re.match(r"--?\w|--(?=\s|$)", line[position:]):
            break
        word, after = re.compile(r"[^\s=]+").match(line, position)[0], 0  # type: ignore[index]
        after = position + len(word)
        if word == "--":
            position = after + (line[after : after + 1] in (" ", "\t"))
            break
        option = _BY_NAME.get(word)
        if option is None:
            if not word.startswith("--") and re.fullmatch(r"-\d.*", word):
                break
            raise OptionError(_unknown(word))
        position = _take(option, word, line, after, names, whole, out)
    out.rest = line[position:]
    return out


def _unknown(word: str) -> str:
    near = difflib.get_close_matches(word, list(_BY_NAME), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(o.names[0] for o in OPTIONS)}"
    return f"unknown option {word}: {hint} To begin a prompt with a dash, put -- before it."


def _take(option: Option, word: str, line: str, after: int, names: Mapping[str, Any], whole: bool, out: Parsed) -> int:
    attached = line.startswith("=", after)
    if option.takes == "flag":
        if attached:
            raise OptionError(f"{word} takes no value")
        out.values[option.field] = True
        return after
    if attached:
        after += 1
    else:
        space = _SPACE.match(line, after)
        after = space.end() if space else after
    if option.takes == "names":
        return _take_names(option, word, line, after, names, whole, out)
    if not attached and re.match(r"--?[a-zA-Z]", line[after:]) and _BY_NAME.get(re.split(r"[\s=]", line[after:])[0]):
        raise OptionError(f"{word} needs a value: {word} {option.value}")
    value, after = _word(line, after, why=word)
    if not value and not attached:
        raise OptionError(f"{word} needs a value: {word} {option.value}")
    try:
        converted = option.convert(value)
    except ValueError:
        raise OptionError(f"{word} takes a number, not {value!r}") from None
    if option.field == "approve" and converted not in APPROVE:
        raise OptionError(f"--approve is one of {', '.join(APPROVE)}, not {converted!r}")
    if option.field == "out" and not str(converted).isidentifier():
        raise OptionError(f"--out takes the name of a variable, not {converted!r}")
    if option.takes == "many":
        out.values.setdefault(option.field, []).append(converted)
    else:
        out.values[option.field] = converted
    return after


def _take_names(
    option: Option, word: str, line: str, after: int, names: Mapping[str, Any], whole: bool, out: Parsed
) -> int:
    found = out.values.setdefault(option.field, [])
    first = True
    while True:
        match = _NAME.match(line, after)
        stop = match is None or not re.match(r"[\s,]|$", line[match.end() :])
        if match is None or stop:
            break
        name = match[0]
        if name.split(".")[0] not in names:
            if whole or first:
                raise OptionError(unknown_name(word, name, names))
            break
        found.append(name)
        first = False
        gap = re.compile(r"[ \t]*,?[ \t]*").match(line, match.end())
        after = gap.end() if gap else match.end()
    if first:
        raise OptionError(f"{word} needs one or more names: {word} {option.value}")
    return after


def unknown_name(word: str, name: str, names: Mapping[str, Any]) -> str:
    """What to say about a name that the user's notebook does not define."""
    public = [known for known in names if not known.startswith("_")]
    near = difflib.get_close_matches(name, public, n=1)
    return f"{word}: there is no variable {name!r}" + (f"; did you mean {near[0]!r}?" if near else "")


_FIELD = re.compile(r"\{([^\W\d]\w*(?:\.[^\W\d]\w*)*)\}")


def interpolate(prompt: str, names: list[str], values: Mapping[str, Any]) -> str:
    """The prompt with ``{name}`` and ``{name.attribute}`` replaced, for the given names only; all other braces stay as they are.

    What is put in is not looked at again. A DataFrame becomes a compact table.
    """

    def put(match: re.Match[str]) -> str:
        path = match[1].split(".")
        if path[0] not in names:
            return match[0]
        value = values[path[0]]
        for attribute in path[1:]:
            if attribute.startswith("_"):
                return match[0]
            try:
                value = getattr(value, attribute)
            except AttributeError:
                raise OptionError(f"{{{match[1]}}}: {path[0]} has no attribute {attribute!r}") from None
        return as_text(value)

    return _FIELD.sub(put, prompt)


MAX_ROWS = 200
"""Rows of a table that go into a prompt."""


def as_text(value: Any) -> str:
    """A value as it reads best in a prompt."""
    if hasattr(value, "to_csv") and hasattr(value, "columns"):
        head = value.head(MAX_ROWS)
        text = str(head.to_csv(index=_index_says_something(value))).strip()
        more = len(value) - len(head)
        return text + (f"\n... {more} more rows" if more > 0 else "")
    return str(value)


def _index_says_something(frame: Any) -> bool:
    return getattr(frame.index, "name", None) is not None or type(frame.index).__name__ != "RangeIndex"


def help_text() -> str:
    """The help of both magics."""
    rows = []
    for option in OPTIONS:
        names = ", ".join(reversed(option.names))
        rows.append(f"  {names + ' ' + option.value:<32} {option.help}")
    return "\n".join(
        [
            "%agent PROMPT                     ask, in one line",
            "%%agent [options]                 ask, with the cell as the prompt: every character means itself",
            "",
            "Options (before the prompt; -- ends them):",
            *rows,
            "",
            "Settings, for all following cells:",
            "  %agent model provider/model      the model          %agent session NAME   switch conversation",
            "  %agent tools f g                 the tools          %agent reset          forget this conversation",
            "  %agent system TEXT               the system prompt  %agent usage          tokens and cost so far",
            "  %agent models                    known models       %agent help           this text",
            "",
            "The result is in _agent (.text, .messages, .usage, .to_frame()).",
        ]
    )
