"""The dataset: rows of plain JSON from whatever was given, and the prompt that each row becomes."""

from __future__ import annotations

import csv
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from rein_nb.agent.arguments import Prompt, as_prompt
from rein_nb.ir import InvalidRequest, Message
from rein_nb.ir.base import clean_json

Row: TypeAlias = dict[str, Any]
"""One row: names to JSON values."""

PromptOf: TypeAlias = str | Callable[[Row], Prompt]
"""A column's name, a text with ``{name}`` in it, or a function of the row."""

_NAME = re.compile(r"\{\{(?P<literal>[A-Za-z_]\w*)\}\}|\{(?P<name>[A-Za-z_]\w*)\}")


def as_rows(dataset: Any) -> list[Row]:
    """Rows from a list of dicts or texts, a DataFrame, or a file (``.jsonl``, ``.json``, ``.csv``, ``.tsv``, ``.parquet``).

    A text becomes ``{"prompt": text}``. A missing value of a DataFrame becomes None; fields of a CSV file stay text.

    Raises
    ------
    ValueError, TypeError
        When there are no rows, or one is neither a dict nor a text.
    FileNotFoundError
        When there is no such file.
    """
    if isinstance(dataset, str | os.PathLike):
        rows = _read(Path(dataset))
    elif hasattr(dataset, "to_dict") and hasattr(dataset, "columns"):
        rows = dataset.to_dict("records")
    elif isinstance(dataset, Iterable) and not isinstance(dataset, Mapping | bytes):
        rows = list(dataset)
    else:
        raise TypeError(
            f"a dataset is a list of dicts or texts, a DataFrame or a file's path, not {type(dataset).__name__}"
        )
    if not rows:
        raise ValueError("the dataset has no rows")
    return [_row(n, row) for n, row in enumerate(rows)]


def _row(n: int, row: Any) -> Row:
    if isinstance(row, str):
        row = {"prompt": row}
    if not isinstance(row, Mapping):
        raise TypeError(f"row {n} must be a dict or a text, not {type(row).__name__}")
    plain: Row = clean_json({str(name): as_json(value) for name, value in row.items()})
    return plain


def as_json(value: Any) -> Any:
    """`value` as JSON: numbers of numpy as numbers, what is missing as None, what JSON does not have as its text."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None if math.isnan(value) else str(value)
    if isinstance(value, Mapping):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, Message):
        return value.model_dump(mode="json", fallback=str)
    if hasattr(value, "tolist"):  # numpy's scalars and arrays
        return as_json(value.tolist())
    text = str(value)
    return None if text in ("<NA>", "NaT") else text


def _read(path: Path) -> list[Any]:
    if not path.exists():
        raise FileNotFoundError(f"no such dataset: {path}")
    kind = path.suffix.lower()
    if kind in (".jsonl", ".ndjson"):
        return _json_lines(path)
    if kind == ".json":
        data = json.loads(path.read_text(encoding="utf-8-sig"))
        if not isinstance(data, list):
            raise ValueError(f"{path} must hold a JSON list of rows")
        return data
    if kind in (".csv", ".tsv"):
        with path.open(encoding="utf-8-sig", newline="") as file:
            return list(csv.DictReader(file, delimiter="\t" if kind == ".tsv" else ","))
    if kind in (".parquet", ".pq"):
        import pandas as pd

        return list(pd.read_parquet(path).to_dict("records"))
    raise ValueError(f"{path}: a dataset is a .jsonl, .json, .csv, .tsv or .parquet file")


def _json_lines(path: Path) -> list[Any]:
    rows = []
    for n, line in enumerate(path.read_text(encoding="utf-8-sig").split("\n"), 1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as exc:
                raise ValueError(f"{path}, line {n} is no JSON: {exc}") from exc
    return rows


def fill(template: str, row: Row) -> str:
    """`template` with each ``{name}`` replaced by the row's value; ``{{name}}`` stays as ``{name}``, other braces as they are.

    Only plain names are looked up: a template reaches no attribute and no function.

    Raises
    ------
    KeyError
        When the row has no such name; the message tells which it has.

    Examples
    --------
    >>> fill('Translate {word}. Answer as {"to": ...}', {"word": "cat"})
    'Translate cat. Answer as {"to": ...}'
    """

    def one(match: re.Match[str]) -> str:
        name = match["name"]
        if name is None:
            return match[0][1:-1]
        if name not in row:
            raise KeyError(f"the prompt names {{{name}}}, and the row has: {', '.join(row)}")
        value = row[name]
        return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)

    return _NAME.sub(one, template)


def messages_of(prompt: PromptOf, row: Row, n: int) -> list[Message]:
    """The messages that row `n` starts with.

    Raises
    ------
    ValueError
        When no prompt can be made of the row; the message tells which row, and why.
    """
    try:
        if callable(prompt):
            return as_prompt(prompt(dict(row)))
        return as_prompt(row[prompt] if prompt in row else fill(_template(prompt, row), row))
    except (InvalidRequest, KeyError) as exc:
        raise ValueError(f"row {n}: {exc.args[0] if exc.args else exc}") from exc


def _template(prompt: str, row: Row) -> str:
    if any(match["name"] for match in _NAME.finditer(prompt)):
        return prompt
    raise KeyError(
        f"the prompt {prompt[:60]!r} is no column of the row ({', '.join(row)}) and has no {{name}} in it: "
        "every row would be asked the same"
    )
