"""What a server's process writes to its standard error: the end of it, for messages."""

from __future__ import annotations

import os
import tempfile
from types import TracebackType

_SHOWN_CHARS = 2_000
_KEPT_BYTES = 1_000_000


class ErrorLog:
    """A file for a process's standard error that does not grow without end. In a notebook `sys.stderr` is no file that a process could write to."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed by __exit__)
        self._before = b""
        self._appends = _append(self._file.fileno())

    def fileno(self) -> int:
        """The file's descriptor."""
        return self._file.fileno()

    def __enter__(self) -> ErrorLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def trim(self) -> None:
        """Throw away what is too much. Where a process does not append, a file cannot be cut under it: there it grows."""
        if self._appends and os.fstat(self._file.fileno()).st_size > _KEPT_BYTES:
            self._before = self._read()
            os.ftruncate(self._file.fileno(), 0)

    def tail(self) -> str:
        """The end of what was written."""
        return (self._before + self._read()).decode("utf-8", "replace")[-_SHOWN_CHARS:].strip()

    def _read(self) -> bytes:
        size = os.fstat(self._file.fileno()).st_size
        self._file.seek(max(0, size - 4 * _SHOWN_CHARS))
        return self._file.read(4 * _SHOWN_CHARS)


def _append(descriptor: int) -> bool:
    """Have whoever writes append, whatever the file's length is then."""
    try:
        import fcntl
    except ImportError:
        return False
    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_APPEND)
    return True
