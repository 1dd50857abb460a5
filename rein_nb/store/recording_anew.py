"""A recording that is made anew: it takes the old one's place whole, and only where it is no worse."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from rein_nb.store.jsonl import JsonLines
from rein_nb.store.recording_exchange import Exchange, Header, read_records, request_key
from rein_nb.store.records import new_id

_LONGEST_WAIT_S = 10.0
"""How long another process that puts a recording in place is waited for, seconds."""


def put_in_place(
    new: Sequence[Exchange], created_at: float, path: Path, *, shared: bool, whole: bool = True
) -> str | None:
    """Put what was recorded anew into the file. Returns what to tell where the old answers stay instead, as they do when the new ones are faults.

    Parameters
    ----------
    new
        What was recorded. Nothing changes where it is nothing.
    created_at
        When: Unix time, seconds.
    path
        The recording.
    shared
        Whether others may have answers in the file: those to other requests stay.
    whole
        Whether this is all that is asked: a test that failed halfway may not have come to the rest, which stays then, too.

    Raises
    ------
    OSError
        When the file cannot be written; the old one is as it was then.
    ValueError
        When it is no recording.
    """
    if not new:
        return None
    with _alone(path):
        old, begun = _old(path)
        merge = shared or not whole
        made, kept = _merged(old, new, faults=whole or not old) if merge else _better(old, new)
        if made is not old:
            _replace(path, Header(begun if merge and old else created_at), made)
    if not kept:
        return None
    error = kept[0].error
    why = f"{error.kind}: {error.message}" if error is not None else ""
    return (
        f"the recording {path} stays as it was{'' if made is old else ' for what failed'}: {len(kept)} of {len(_by_key(new))} requests "
        f"got no answer now ({why}); to record that all the same, remove the file first"
    )


def _by_key(exchanges: Sequence[Exchange]) -> dict[str, list[Exchange]]:
    found: dict[str, list[Exchange]] = defaultdict(list)
    for exchange in exchanges:
        found[request_key(exchange.request)].append(exchange)
    return found


def _faults(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """The last answers to requests that ended in a fault: what was tried again and answered then is none."""
    return [same[-1] for same in _by_key(exchanges).values() if same[-1].error is not None]


def _better(old: Sequence[Exchange], new: Sequence[Exchange]) -> tuple[Sequence[Exchange], list[Exchange]]:
    """(whichever has fewer faults, the new one of two that are alike; the faults for which the old one is kept)."""
    faults = _faults(new)
    return (old, faults) if old and len(faults) > len(_faults(old)) else (new, [])


def _merged(
    old: Sequence[Exchange], new: Sequence[Exchange], *, faults: bool
) -> tuple[Sequence[Exchange], list[Exchange]]:
    """(old answers, with the new ones in the place of those to the same requests; new faults that are left out for them).

    `faults` is whether a fault is taken where there is no old answer; the old ones themselves come back where nothing is taken.
    """
    known, asked = _by_key(old), _by_key(new)
    left_out = []
    for key, same in asked.items():
        before = known.get(key, [])
        if same[-1].error is not None and (not faults or (before and before[-1].error is None)):
            left_out.append(same[-1])
        else:
            # Another test may ask the same, and more often.
            known[key] = [*same, *before[len(same) :]]
    if len(left_out) == len(asked):
        return old, left_out
    return [exchange for same in known.values() for exchange in same], left_out


def _old(path: Path) -> tuple[list[Exchange], float]:
    """What the file holds, and when it was begun."""
    lines = JsonLines(path)
    records = lines.numbered()
    header, exchanges = read_records(path, records, lines.tail.data if lines.tail is not None else b"")
    return exchanges, header.created_at


def _replace(path: Path, header: Header, exchanges: Sequence[Exchange]) -> None:
    half = path.with_name(f"{new_id()}.part")
    try:
        with JsonLines(half) as lines:
            lines.extend([header.to_json(), *(exchange.to_json() for exchange in exchanges)])
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process puts something into this file meanwhile. The lock ends with the process that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = Path(tempfile.gettempdir()) / f"rein_nb-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:24]}.lock"
    database = sqlite3.connect(lock, timeout=_LONGEST_WAIT_S, isolation_level=None)
    try:
        try:
            database.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as exc:
            raise OSError(f"{path} is being put in place by another process: {exc}") from exc
        yield
    finally:
        database.close()
