"""Taking what one thread prints, draws and displays, while every other thread goes on printing where it did.

`sys.stdout` belongs to the whole process. While a capture is active it is a router that looks at the writing thread.
"""

from __future__ import annotations

import codecs
import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from rein_nb.ir import MediaPart
from rein_nb.ir.base import clean_text
from rein_nb.tools.errors import describe_error

MAX_CAPTURED = 2**20
"""Characters kept of what one call prints; the rest is counted and dropped."""


@dataclass(slots=True)
class Captured:
    """What one piece of code put out. `text` holds stdout and stderr in the order of writing, `faults` says which pictures are missing."""

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    media: list[MediaPart] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def write(self, text: str) -> None:
        """Keep a piece, as long as there is room."""
        room = MAX_CAPTURED - self.size
        self.size += len(text)
        if room > 0:
            self.pieces.append(text[:room])

    @property
    def text(self) -> str:
        """What was printed."""
        dropped = self.size - MAX_CAPTURED
        return clean_text("".join(self.pieces)) + (
            f"\n[... {dropped:,} further characters of output were dropped ...]" if dropped > 0 else ""
        )


class _Bytes(io.RawIOBase):
    """The `buffer` of a captured stream: bytes are kept as the text they stand for."""

    def __init__(self, captured: Captured, name: str) -> None:
        self.name = f"<{name}>"
        self._captured = captured
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        raise io.UnsupportedOperation(
            "output is captured here, so it has no file descriptor; capture a command's output and print it"
        )

    def write(self, data: Any) -> int:
        whole = bytes(data)
        self._captured.write(self._decoder.decode(whole))
        return len(whole)

    def end(self) -> None:
        """Keep what was begun of a last character."""
        self._captured.write(self._decoder.decode(b"", True))


class _Stream(io.TextIOWrapper):
    """A captured stream. Text is kept as it is, also what UTF-8 does not have."""

    def __init__(self, captured: Captured, name: str) -> None:
        self.bytes = _Bytes(captured, name)
        super().__init__(self.bytes, encoding="utf-8", errors="replace", newline="\n", write_through=True)
        self._captured = captured

    def write(self, text: str) -> int:
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        self._captured.write(text)
        return len(text)


@io.TextIOBase.register
class _Router:
    """Stands in for a standard stream: it is the capture's stream for captured threads and the stream itself for all others."""

    def __init__(self, stream: TextIO | None) -> None:
        self.stream = stream
        self.captures: dict[int, _Stream] = {}
        # Where there is no stream, print does nothing.
        self._others = _Stream(Captured(), "nowhere") if stream is None else stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.captures.get(threading.get_ident(), self._others), name)

    # Python looks these up on the class.
    def __enter__(self) -> _Router:
        return self

    def __exit__(self, *_: object) -> None:
        self.flush()

    def __iter__(self) -> Iterator[str]:
        return iter(self.captures.get(threading.get_ident(), self._others))


_lock = threading.Lock()
_routers: dict[str, _Router] = {}
"""The newest router of each stream, used again: what the code has kept of one, a handler of `logging` say, is captured in later calls too."""


@contextmanager
def captured_output() -> Iterator[Captured]:
    """Capture what this thread prints, and what it displays through IPython, until the block ends."""
    captured = Captured()
    ident = threading.get_ident()
    streams = {name: _Stream(captured, name) for name in ("stdout", "stderr")}
    with _lock:
        routers = {name: _route(name) for name in streams}
        for name, router in routers.items():
            router.captures[ident] = streams[name]
    try:
        with _captured_displays(captured), _captured_figures(captured):
            yield captured
    finally:
        for name, router in routers.items():
            _unwrap(name, router, streams[name])
        with _lock:
            for name, router in routers.items():
                router.captures.pop(ident, None)
                if not router.captures and getattr(sys, name) is router:
                    setattr(sys, name, router.stream)


def _unwrap(name: str, router: _Router, stream: _Stream) -> None:
    """Take away what the code put around its captured stream, as in ``sys.stdout = io.TextIOWrapper(sys.stdout.buffer)``: others print too."""
    now = getattr(sys, name, stream)  # the code may have deleted it
    try:
        if now is stream or getattr(now, "buffer", None) is stream.bytes:
            setattr(sys, name, router)
            now.flush()
    except ValueError:  # closed or detached: nothing is held back there
        pass
    stream.bytes.end()


def _route(name: str) -> _Router:
    stream = getattr(sys, name, None)
    if isinstance(stream, _Router):
        return stream
    if name not in _routers or _routers[name].stream is not stream:
        _routers[name] = _Router(stream)
    setattr(sys, name, _routers[name])
    return _routers[name]


@contextmanager
def _captured_displays(captured: Captured) -> Iterator[None]:
    """IPython kernels let each thread have hooks on what it displays; one that returns None keeps the message."""
    shell = shell_of_user()
    publisher = getattr(shell, "display_pub", None)
    if publisher is None or not hasattr(publisher, "register_hook"):
        yield
        return

    def keep(message: dict[str, Any]) -> None:
        data = message.get("content", {}).get("data", {})
        picture = next((data[mime] for mime in ("image/png", "image/jpeg") if mime in data), None)
        if picture is not None:
            mime = "image/png" if "image/png" in data else "image/jpeg"
            try:
                captured.media.append(MediaPart(kind="image", mime_type=mime, data=picture))
            except ValueError as exc:
                captured.faults.append(f"[a picture could not be shown: {describe_error(exc)}]")
        elif "text/plain" in data:
            captured.write(f"{data['text/plain']}\n")

    publisher.register_hook(keep)
    try:
        yield
    finally:
        publisher.unregister_hook(keep)


@contextmanager
def _captured_figures(captured: Captured) -> Iterator[None]:
    """New matplotlib figures become pictures and are closed, as a cell of a notebook does it."""
    before = [figure for _, figure in _figures()]
    try:
        yield
    finally:
        for number, figure in _figures():
            if not any(figure is one for one in before):
                try:
                    captured.media.append(_png(figure))
                except Exception as exc:
                    captured.faults.append(f"[figure {number} could not be drawn: {describe_error(exc)}]")
                finally:
                    sys.modules["matplotlib.pyplot"].close(number)


def _figures() -> list[tuple[int, Any]]:
    """Number and figure of all that are open. They are not asked of pyplot, which would make each the current one."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return []
    return [(manager.num, manager.canvas.figure) for manager in helpers.Gcf.get_all_fig_managers()]


def _png(figure: Any) -> MediaPart:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return MediaPart(kind="image", mime_type="image/png", data=buffer.getvalue())


def shell_of_user() -> Any:
    """The running IPython shell; None outside IPython."""
    module = sys.modules.get("IPython")
    getter = getattr(module, "get_ipython", None)
    return getter() if getter is not None else None
