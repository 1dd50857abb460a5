"""Writes `command-line.md` from the parser of ``rein-nb``.

``python docs/make.py`` writes the file.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from rein_nb.cli.parser import build_parser

PAGE = Path(__file__).with_name("command-line.md")

EXAMPLES = {
    "demo": "rein-nb demo --no-open",
    "models": "rein-nb models offered ollama --json | head",
    "doctor": "rein-nb doctor --json > where-i-am.json",
    "sessions": "rein-nb sessions --limit 5",
    "export": "rein-nb export last --markdown -o - | less",
    "replay": "rein-nb replay calls.jsonl --speed 1",
}
"""One for each command; a test holds the two lists together."""


def commands(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """The commands below a parser, with the line that its help has for each."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            lines = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (sub, lines[name]) for name, sub in action.choices.items()}
    return {}


def arguments(parser: argparse.ArgumentParser) -> Iterator[tuple[str, str]]:
    """(how it is written, what it does) of each argument of one parser."""
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction | argparse._SubParsersAction):
            continue
        value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
        if action.option_strings:
            written = ", ".join(f"`{name}{value}`" for name in action.option_strings)
        else:
            written = f"`{action.metavar or action.dest.upper()}`"
        yield written, (action.help or "").replace("|", "\\|")


def section(name: str, parser: argparse.ArgumentParser, line: str, level: int = 2) -> Iterator[str]:
    """A command's part of the page."""
    yield f"{'#' * level} rein-nb {name}\n"
    text = parser.description or f"{line[0].upper()}{line[1:]}."
    yield f"{text}\n"
    if name in EXAMPLES:
        yield f"```bash\n{EXAMPLES[name]}\n```\n"
    rows = list(arguments(parser))
    if rows:
        yield "| argument | |\n| --- | --- |\n" + "\n".join(f"| {written} | {what} |" for written, what in rows) + "\n"
    for sub, (below, what) in commands(parser).items():
        yield from section(f"{name} {sub}", below, what, level + 1)


def page() -> str:
    """The whole file."""
    parts = [
        "# Command line\n",
        "This page is written by `python docs/make.py` from the parser; a test fails when it is out of date.\n",
        "`rein-nb` is installed with the package; `python -m rein_nb` is the same. What was asked for goes to stdout, everything else to stderr, so that pipes work; "
        "`--json` prints data and nothing else.\n",
        "| exit status | |\n| --- | --- |\n| 0 | done |\n| 1 | could not be done; one line on stderr says why |\n| 2 | the command line means nothing |\n| 130 | interrupted |\n",
    ]
    for name, (parser, line) in commands(build_parser()).items():
        parts.extend(section(name, parser, line))
    return "\n".join(parts)


def files() -> dict[Path, str]:
    """The file and what should be in it."""
    return {PAGE: page()}
