"""Column objects, and how a list of Python values becomes a pandas array of a stable dtype."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from rein_nb.ir.base import Data, clean_json, clean_text

if TYPE_CHECKING:
    import pandas as pd

Kind: TypeAlias = Literal["string", "Int64", "Float64", "boolean", "time", "json"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a frame.

    Attributes
    ----------
    name
        The column's name.
    dtype
        ``"string"``, ``"Int64"``, ``"Float64"``, ``"boolean"``, ``"time"`` (a ``datetime64[us, UTC]``), ``"json"`` (JSON text in a ``string`` column),
        or a tuple of words: a categorical with exactly these categories.
    read
        From a row of the table to the value; None is missing.
    unit
        What the numbers are counted in, or what the column tells; for readers.
    """

    name: str
    dtype: Kind | tuple[str, ...]
    read: Callable[[Any], Any]
    unit: str = ""

    def array(self, rows: Sequence[Any]) -> Any:
        """The column's pandas array for `rows`."""
        read = self.read
        return to_array(self.dtype, [read(row) for row in rows])


def require_pandas() -> Any:
    """The pandas module.

    Raises
    ------
    ImportError
        Saying what to install.
    """
    try:
        import pandas
    except ImportError as exc:
        raise ImportError("frames need pandas 2.2 or newer: pip install 'pandas>=2.2'") from exc
    return pandas


def to_array(dtype: Kind | tuple[str, ...], values: list[Any]) -> Any:
    """A pandas array of the named dtype; None becomes the missing value."""
    pd = require_pandas()
    if dtype == "time":
        return timestamps(values).array
    if isinstance(dtype, tuple):
        return pd.Categorical(values, dtype=_categories(dtype))
    name, clean = ("string", _TO_TEXT[dtype]) if dtype in _TO_TEXT else (dtype, None)
    given = [n for n, value in enumerate(values) if value is not None]
    # Most columns of most events are missing: filling in the few that are not is several times faster.
    few = len(given) < len(values) // 8
    found = [values[n] for n in given] if few else values
    if clean is not None:
        found = [None if value is None else clean(value) for value in found]
    array = pd.array(found, dtype=name)
    if not few:
        return array
    whole = pd.Series(pd.NA, index=range(len(values)), dtype=name).array
    whole[given] = array
    return whole


@cache
def _categories(words: tuple[str, ...]) -> Any:
    pd = require_pandas()
    return pd.CategoricalDtype(pd.Index(words, dtype="string"))


def json_text(value: Any) -> str:
    """A value as JSON text that ``json.loads`` reads back; unpaired surrogates become U+FFFD so that every file format takes it."""
    plain = value.model_dump(mode="json", fallback=str) if isinstance(value, Data) else value
    return json.dumps(clean_json(plain), ensure_ascii=False, default=_as_json)


def _as_json(value: Any) -> Any:
    if isinstance(value, Data):
        return value.model_dump(mode="json", fallback=str)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", fallback=str)
    if isinstance(value, set | frozenset):
        return sorted(value, key=str)
    return str(value)


_TO_TEXT: dict[Any, Callable[[Any], str]] = {"string": clean_text, "json": json_text}


def parse_json(column: pd.Series[Any]) -> pd.Series[Any]:
    """The values of a JSON column: dicts, lists, strings and numbers in an ``object`` column; missing stays None."""
    pandas = require_pandas()
    values = [None if pandas.isna(text) else json.loads(text) for text in column]
    parsed: pd.Series[Any] = pandas.Series(values, index=column.index, name=column.name, dtype=object)
    return parsed


def _micros(value: Any) -> int | None:
    """Microseconds since the epoch, UTC; None for a missing value."""
    if value is None or value != value:
        return None
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        aware = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        delta = aware - datetime(1970, 1, 1, tzinfo=UTC)
        return (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    micros: int = round(value * 1_000_000)
    return micros


def timestamps(values: Iterable[float | str | datetime | None]) -> pd.Series[Any]:
    """Instants as a ``datetime64[us, UTC]`` column, whatever their form.

    Parameters
    ----------
    values
        Unix times in seconds, ISO 8601 texts with any offset, datetimes, or None, mixed. What names no offset is taken as UTC.
    """
    pandas = require_pandas()
    import numpy as np

    missing = np.iinfo(np.int64).min
    micros = np.array([missing if (m := _micros(v)) is None else m for v in values], dtype="int64")
    column: pd.Series[Any] = pandas.Series(micros.view("datetime64[us]")).dt.tz_localize("UTC")
    return column
