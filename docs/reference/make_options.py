"""Writes `options.md`: the provider tables and the option table, from the registry, from what the codecs really encode and from what was played.

``python docs/make.py`` writes the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rein_nb.dialects.base import Target, WireCall
from rein_nb.ir import Message, Options, OutputFormat, Request, ToolChoice, ToolSpec, UnsupportedOption
from rein_nb.providers.capabilities import FAMILIES
from rein_nb.providers.codecs import codec_for
from rein_nb.providers.presets import PRESETS
from rein_nb.providers.spec import DIALECTS, ProviderSpec, find_spec

PAGE = Path(__file__).with_name("options.md")
PLAYED = Path(__file__).with_name("conformance.json")
"""Written by ``python -m tests.conformance wire --save``."""

COLUMNS = {
    "openai-chat": "openai-chat",
    "openai-responses": "openai",
    "anthropic": "anthropic",
    "google": "google",
    "google-code-assist": "antigravity",
    "ollama": "ollama",
}
"""The provider whose data stands for each dialect."""

MODEL = "a-model-that-no-row-knows"
SCHEMA = {"title": "Out", "type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
TOOL = ToolSpec(name="look", description="Look.", parameters={"type": "object", "properties": {}})

OPTIONS: dict[str, Any] = {
    "temperature": 0.5,
    "top_p": 0.9,
    "top_k": 40,
    "max_output_tokens": 100,
    "stop": ["END"],
    "seed": 7,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "reasoning_effort": "high",
    "logprobs": 2,
}
CHOICES: dict[str, Any] = {
    '`tool_choice="auto"`': "auto",
    '`tool_choice="none"`': "none",
    '`tool_choice="required"`': "required",
    '`tool_choice="look"` (a tool\'s name)': "look",
    '`ToolChoice(parallel="single")`': ToolChoice(parallel="single"),
}
FORMATS: dict[str, Any] = {'`output_format="json"`': "json", "`output_format=` a JSON Schema or a type": SCHEMA}


def encode(spec: ProviderSpec, *, options: dict[str, Any] | None = None, **fields: Any) -> WireCall:
    """What a request becomes for a provider."""
    extensions = {"google-code-assist": {"project": "p"}} if spec.dialect == "google-code-assist" else {}
    request = Request.make(
        [Message(role="user", content="hi")],
        options=Options(model=MODEL, extensions=extensions, **(options or {})),
        **fields,
    )
    target = Target(provider=spec.name, dialect=spec.dialect, model=MODEL, quirks=spec.quirks)
    return codec_for(spec.dialect).encode(request, target, stream=False)


def leaves(value: Any, at: str = "") -> Iterator[tuple[str, str]]:
    """(path, JSON) of every leaf; list items share their list's path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(item, f"{at}.{key}" if at else str(key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for item in value:
            yield from leaves(item, f"{at}[]")
    else:
        yield at, json.dumps(value)


def changed(body: dict[str, Any], base: dict[str, Any]) -> list[str]:
    """Paths that `body` has and `base` has not, or with another value; then those it lacks."""
    have, had = dict(leaves(body)), dict(leaves(base))
    found = [path for path, value in have.items() if had.get(path) != value]
    gone = sorted({path.split(".")[0].split("[")[0] for path in had if path not in have})
    return found + [f"without {path}" for path in gone if not any(p.startswith(path) for p in have)]


def cell(spec: ProviderSpec, base: WireCall, **asked: Any) -> str:
    """What becomes of one option at one provider."""
    try:
        call = encode(spec, **asked)
    except UnsupportedOption:
        return "raises"
    paths = changed(call.body, base.body)
    if not paths:
        return "not sent, with a warning" if call.warnings else "the default"
    shortest = _common(paths)
    return f"sent without `{shortest.removeprefix('without ')}`" if shortest.startswith("without ") else f"`{shortest}`"


def _common(paths: list[str]) -> str:
    """One path that stands for all: their longest common beginning, else the first of them."""
    if len(paths) == 1:
        return paths[0]
    split = [path.split(".") for path in paths]
    same = []
    for steps in zip(*split, strict=False):
        if len(set(steps)) > 1:
            break
        same.append(steps[0])
    return ".".join(same) if same else ", ".join(dict.fromkeys(paths))


def option_rows() -> list[list[str]]:
    """One row an option, one cell a dialect."""
    specs = [find_spec(name) for name in COLUMNS.values()]
    found = [spec for spec in specs if spec is not None]

    def row(name: str, asked: Callable[[], dict[str, Any]], **basis: Any) -> list[str]:
        return [name, *(cell(spec, encode(spec, **basis), **asked()) for spec in found)]

    rows = [
        row(f"`{name}`", lambda name=name, value=value: {"options": {name: value}}) for name, value in OPTIONS.items()
    ]
    for name, choice in CHOICES.items():
        basis = (
            {"tools": [TOOL], "tool_choice": ToolChoice.of("auto")}
            if isinstance(choice, ToolChoice)
            else {"tools": [TOOL]}
        )
        rows.append(row(name, lambda choice=choice: {"tools": [TOOL], "tool_choice": ToolChoice.of(choice)}, **basis))
    for name, form in FORMATS.items():
        rows.append(row(name, lambda form=form: {"output_format": OutputFormat.of(form)}))
    return rows


def provider_rows() -> list[list[str]]:
    """One row a provider."""
    rows = []
    for spec in sorted(PRESETS, key=lambda spec: spec.name):
        where = (
            "the embedded server"
            if spec.endpoint == "local"
            else f"`{spec.base_url}`"
            if spec.base_url
            else "yours to say"
        )
        keys = ", ".join(f"`{name}`" for name in spec.key_env) or "none"
        name = f"[`{spec.name}`]({spec.docs})" if spec.docs else f"`{spec.name}`"
        need = 'yes, and `extra={"opt_in": True}`' if spec.opt_in else "yes" if spec.needs_key else "no"
        base = ", ".join(f"`{name}`" for name in spec.base_url_env) or "-"
        rows.append([name, f"`{spec.dialect}`", where, keys, need, base])
    return rows


def played_rows() -> list[list[str]]:
    """One row a vendor whose recorded answers were played, and one for all."""
    rows = json.loads(PLAYED.read_text(encoding="utf-8"))
    counts = ("streamed", "whole", "errors", "right")
    found = [
        [row["vendor"], ", ".join(f"`{name}`" for name in row["dialects"]), *(str(row[name]) for name in counts), ", ".join(row["holds"])]
        for row in rows
    ]  # fmt: skip
    return [*found, ["all", "", *(str(sum(row[name] for row in rows)) for name in counts), ""]]


def family_rows() -> list[list[str]]:
    """One row a model family; an empty cell where nothing is known."""

    def words(values: Any) -> str:
        return ", ".join(f"`{value}`" for value in (values if isinstance(values, tuple) else sorted(values)))

    def yes(value: bool | None) -> str:
        return "" if value is None else "yes" if value else "no"

    def known(value: Any) -> str:
        return "" if value is None else words(value) or "none"

    rows = []
    for family in FAMILIES:
        facts = family.capabilities
        window, output = facts.get("context_window"), facts.get("max_output_tokens")
        rows.append([
            f"`{family.pattern}`",
            "" if window is None else f"{window:,}",
            "" if output is None else f"{output:,}",
            known(facts.get("media_in")),
            yes(facts.get("tools")),
            yes(facts.get("structured_output")),
            words(facts.get("unsupported_options", ())),
            words(tuple(facts.get("reasoning_efforts") or ())),
        ])  # fmt: skip
    return rows


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def page() -> str:
    """The whole file."""
    assert list(COLUMNS) == list(DIALECTS), "a dialect without a column"
    options = table(["option", *(f"`{name}`" for name in COLUMNS)], option_rows())
    providers = table(
        ["provider", "dialect", "where", "key variables", "needs a key", "base URL variables"], provider_rows()
    )
    played = table(
        ["from", "dialects", "streamed", "in one piece", "errors", "came out right", "what they held"], played_rows()
    )
    families = table(
        ["model begins with", "window", "most output", "reads", "tools", "schema", "refuses", "reasoning efforts"], family_rows()
    )  # fmt: skip
    return f"""# Providers and options

This page is written by `python docs/make.py` from the registry of providers, from what each codec encodes, and from what the conformance run
played. A test fails when it is out of date.

## What becomes of each option

Each cell is the result of encoding one request with that option set, for a model of which nothing is known. A path is where the option stands in the
request's body. *raises* means `UnsupportedOption` before anything is sent. *the default* means that
the request is the same without it, and *not sent, with a warning* that `completion.warnings` says that it was left out.

{options}

What single models refuse on top of this (most reasoning models refuse `temperature`, for example) is data in `rein_nb/providers/capabilities.py`, and raises
as well. How a server departs from its dialect (`max_tokens` or `max_completion_tokens`, for example) is data in `rein_nb/providers/presets.py`; each column
above stands for {", ".join(f"`{name}`" for name in COLUMNS.values())}, in this order. What a provider has and no option names goes into
`extensions={{"provider": {{...}}}}`, which is merged into the body.

## What was played of each provider

Public recordings of real servers' answers, sent again by a loopback server, read through the SDK's client, the decoder and the accumulator, and compared with what
the raw JSON says (`python -m tests.conformance wire --save`). *Came out right* means one terminal event, no exception, and every part that was sent in the
completion, or the error as a typed one. What no recording held is missing in the last column, and was not tested against that server.

{played}

The other figures (options on the wire, cuts, hand-off between each two dialects) stand in [conformance](../conformance.md#measured-figures), with their commands.

## What is known of models

From `rein_nb/providers/capabilities.py`, where each row names the vendor's documentation. The first column is a regular expression for the beginning of a model's own name; the first row that fits counts. Tokens; an empty
cell means that nothing is known, and that nothing is then forbidden. A model that no row knows gets no limits.

{families}

## Providers

A name before the slash of `provider/model`. `REIN_NB_<PROVIDER>_API_KEY` and `REIN_NB_<PROVIDER>_BASE_URL` (the provider's name in capitals, `-` as `_`)
are looked at first for every provider, then the vendor's own variables in this order, then the same names in a `.env` file in the current folder.
`{{NAME}}` in an address is filled in from the environment variable of that name.

{providers}
"""


def files() -> dict[Path, str]:
    """The file and what should be in it."""
    return {PAGE: page()}
