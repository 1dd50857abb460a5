"""JSON Lines that survive a crash: a record is one write of one line, and a broken tail is set aside, never glued to what follows."""

from __future__ import annotations

import codecs
import contextlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any

from rein_nb.ir.base import clean_text, loads
from rein_nb.store.arguments import as_path


@dataclass(frozen=True, slots=True)
class BrokenTail:
    """Half a record at the end of a file, left by a process that died while writing it.

    Attributes
    ----------
    data
        The bytes.
    aside
        The file they were moved to; None while the file is only read.
    """

    data: bytes
    aside: Path | None = None


class JsonLines:
    """A file of JSON records, one a line, that is appended to.

    Opening to read changes nothing. The first append repairs the file: a half record at the end moves to a file beside it, and a whole last
    record without a newline gets one.

    Attributes
    ----------
    path
        The file; it need not exist.
    tail
        The half record that was found at the end, if there was one.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(as_path(path, "a file of JSON Lines"))
        self.tail: BrokenTail | None = None
        self._file: FileIO | None = None
        self._blank = True

    def __enter__(self) -> JsonLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read(self) -> list[Any]:
        """Every whole record. Blank lines and a byte order mark are passed over.

        Raises
        ------
        ValueError
            When a line that is not the last is no JSON; the text names the line.
        """
        return [record for _, record in self.numbered()]

    def numbered(self) -> list[tuple[int, Any]]:
        """As `read`, each with the number of its line, from 1."""
        data = self.path.read_bytes() if self.path.exists() else b""
        records, end = _parse(self.path, data)
        if end < len(data):
            self.tail = BrokenTail(data[end:], self.tail.aside if self.tail else None)
        return records

    def append(self, record: Any) -> None:
        """Add one record: one write, with the system before this returns."""
        self.extend([record])

    def extend(self, records: Iterable[Any]) -> None:
        """Add records, each on a line of its own; all of them, or none.

        Raises
        ------
        OSError
            When they cannot be written.
        """
        lines = "".join(json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n" for record in records)
        data = clean_text(lines).encode("utf-8")
        self.open()
        assert self._file is not None
        before, written = os.fstat(self._file.fileno()).st_size, 0
        try:
            while written < len(data):
                written += self._file.write(data[written:])
            self._blank = self._blank and not data
        except BaseException:
            # Half a line must not stay. Where another process wrote behind it, the next append sets it aside.
            with contextlib.suppress(OSError):
                if os.fstat(self._file.fileno()).st_size == before + written:
                    self._file.truncate(before)
            self.close()
            raise

    def open(self) -> bool:
        """Open the file and repair its end, if it is not open; whether it holds no record.

        Raises
        ------
        OSError
            When it cannot be written.
        """
        if self._file is not None and os.fstat(self._file.fileno()).st_nlink == 0:
            self.close()  # the file was removed, and what is written to it would be lost
        if self._file is None:
            self._file = self._open()
        return self._blank

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> FileIO:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = self.path.open("ab+", buffering=0)
        try:
            file.seek(0)
            data = file.read()
            records, end = _parse(self.path, data)
            self._blank = not records
            if end < len(data):
                aside = _set_aside(self.path, data[end:])
                file.truncate(end)
                self.tail = BrokenTail(data[end:], aside)
            elif data and not data.endswith(b"\n"):
                file.write(b"\n")
        except BaseException:
            file.close()
            raise
        return file


def _parse(path: Path, data: bytes) -> tuple[list[tuple[int, Any]], int]:
    """(whole records with the numbers of their lines, where the half record at the end begins)."""
    records: list[tuple[int, Any]] = []
    at = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    number = 0
    while at < len(data):
        number += 1
        newline = data.find(b"\n", at)
        stop = len(data) if newline < 0 else newline
        line = data[at:stop].strip()
        if line:
            try:
                records.append((number, loads(line.decode("utf-8"))))
            except (ValueError, RecursionError) as exc:
                if newline < 0 or not data[newline:].strip():
                    return records, at
                raise ValueError(f"{path}, line {number}: not a JSON record: {exc}") from exc
        at = stop + 1
    return records, len(data)


def _set_aside(path: Path, tail: bytes) -> Path:
    n = 0
    while True:
        n += 1
        aside = path.with_name(f"{path.name}.broken-{n}")
        try:
            with aside.open("xb") as file:
                file.write(tail)
            return aside
        except FileExistsError:
            continue
