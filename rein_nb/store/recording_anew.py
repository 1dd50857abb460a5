"""A recording that is made anew: it takes the old one's place whole, and only where it is no worse."""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from rein_nb.store.jsonl import JsonLines
from rein_nb.store.recording_exchange import Exchange, Header, read_records, request_key
from rein_nb.store.records import new_id

_LONGEST_WAIT_S = 10.0
"""How long another process that puts a recording in place is waited for, seconds. One that takes longer has died."""


def put_in_place(new: Sequence[Exchange], created_at: float, path: Path, *, shared: bool) -> str | None:
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
        made, kept = _merged(old, new) if shared else _better(old, new)
        if made is not old:
            _replace(path, Header(begun if shared and old else created_at), made)
    if not kept:
        return None
    error = kept[0].error
    why = f"{error.kind}: {error.message}" if error is not None else ""
    return (
        f"the recording {path} stays as it was{' for what failed' if shared else ''}: {len(kept)} of {len(_by_key(new))} requests "
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


def _merged(old: Sequence[Exchange], new: Sequence[Exchange]) -> tuple[Sequence[Exchange], list[Exchange]]:
    """(old answers, with the new ones in the place of those to the same requests; new faults that are left out for old answers)."""
    known, asked = _by_key(old), _by_key(new)
    left_out = []
    for key, same in asked.items():
        before = known.get(key, [])
        if before and before[-1].error is None and same[-1].error is not None:
            left_out.append(same[-1])
        else:
            # Another test may ask the same, and more often.
            known[key] = [*same, *before[len(same) :]]
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
    """No other process puts something into this file meanwhile."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = path.with_name(f"{path.name}.lock")
    until = time.monotonic() + _LONGEST_WAIT_S
    while True:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            break
        except FileExistsError:
            if time.monotonic() > until:
                lock.unlink(missing_ok=True)
            time.sleep(0.02)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
