"""Taking what one thread prints, draws and displays, while every other thread goes on printing where it did.

`sys.stdout` belongs to the whole process. While a capture is active it is a router that looks at the writing thread.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TextIO

from rein_nb.ir import MediaPart
from rein_nb.ir.base import clean_text

MAX_CAPTURED = 2**20
"""Characters kept of what one call prints; the rest is counted and dropped."""


@dataclass(slots=True)
class Captured:
    """What one piece of code put out. `text` holds stdout and stderr in the order of writing."""

    pieces: list[str] = field(default_factory=list)
    size: int = 0
    media: list[MediaPart] = field(default_factory=list)

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


class _Router(io.TextIOBase):
    """Stands in for a standard stream: captured threads write to their capture, all others to the stream itself."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.captures: dict[int, Captured] = {}

    def write(self, text: str) -> int:
        captured = self.captures.get(threading.get_ident())
        if captured is None:
            return self.stream.write(text)
        captured.write(str(text))
        return len(text)

    def flush(self) -> None:
        if threading.get_ident() not in self.captures:
            self.stream.flush()

    def isatty(self) -> bool:
        return threading.get_ident() not in self.captures and self.stream.isatty()

    def writable(self) -> bool:
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


_lock = threading.Lock()


@contextmanager
def captured_output() -> Iterator[Captured]:
    """Capture what this thread prints, and what it displays through IPython, until the block ends."""
    captured = Captured()
    ident = threading.get_ident()
    with _lock:
        routers = [_route("stdout"), _route("stderr")]
        for router in routers:
            router.captures[ident] = captured
    try:
        with _captured_displays(captured), _captured_figures(captured):
            yield captured
    finally:
        with _lock:
            for name, router in zip(("stdout", "stderr"), routers, strict=True):
                router.captures.pop(ident, None)
                if not router.captures and getattr(sys, name) is router:
                    setattr(sys, name, router.stream)


def _route(name: str) -> _Router:
    stream = getattr(sys, name)
    if isinstance(stream, _Router):
        return stream
    router = _Router(stream)
    setattr(sys, name, router)
    return router


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
            captured.media.append(MediaPart(kind="image", mime_type=mime, data=picture))
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
    before = {id(figure) for _, figure in _figures()}
    try:
        yield
    finally:
        for number, figure in _figures():
            if id(figure) not in before:
                captured.media.append(_png(figure))
                sys.modules["matplotlib.pyplot"].close(number)


def _figures() -> list[tuple[int, Any]]:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    return [(number, pyplot.figure(number)) for number in pyplot.get_fignums()]


def _png(figure: Any) -> MediaPart:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", bbox_inches="tight")
    return MediaPart(kind="image", mime_type="image/png", data=buffer.getvalue())


def shell_of_user() -> Any:
    """The running IPython shell; None outside IPython."""
    module = sys.modules.get("IPython")
    getter = getattr(module, "get_ipython", None)
    return getter() if getter is not None else None
