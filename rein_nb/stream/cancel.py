"""Cooperative cancellation that works from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Cancelled(Exception):
    """Raised by `CancellationToken.raise_if_cancelled`."""


class CancellationToken:
    """Tells everybody who holds it that the work is no longer wanted.

    `cancel` may be called from any thread, any number of times; only the first counts. Callbacks run once, in the cancelling
    thread (at once, when the token is already cancelled); they must be quick and thread-safe.

    Attributes
    ----------
    reason
        What the first call of it gave.

    Examples
    --------
    >>> token = CancellationToken()
    >>> token.cancel("stop button")
    >>> token.is_cancelled, token.reason
    (True, 'stop button')
    """

    def __init__(self, parent: CancellationToken | None = None) -> None:
        self._lock = threading.Lock()
        self._event: threading.Event | None = None  # made for the first who waits
        self._callbacks: list[Callable[[], None]] = []
        self._cancelled = False
        self.reason: str | None = None
        self._detach: Callable[[], None] = lambda: None
        if parent is not None:
            self.follow(parent)

    @property
    def is_cancelled(self) -> bool:
        """Whether `cancel` was called."""
        return self._cancelled

    def cancel(self, reason: str | None = None) -> None:
        """Cancel, with an optional reason for the record.

        Raises
        ------
        Exception
            What a callback raised, after all the others were told.
        """
        with self._lock:
            if self._cancelled:
                return
            self.reason = reason
            self._cancelled = True
            if self._event is not None:
                self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        failure: Exception | None = None
        for callback in callbacks:
            try:
                callback()
            except Exception as exc:
                failure = failure or exc
        if failure is not None:
            raise failure

    def on_cancel(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Have `callback` run on cancellation. Returns a function that takes it back."""
        with self._lock:
            if not self._cancelled:
                self._callbacks.append(callback)
                return lambda: self._remove(callback)
        callback()
        return lambda: None

    def _remove(self, callback: Callable[[], None]) -> None:
        with self._lock:
            if callback in self._callbacks:
                self._callbacks.remove(callback)

    def child(self) -> CancellationToken:
        """A token that is cancelled with this one, and can be cancelled alone. `close` it when its work ends."""
        return CancellationToken(self)

    def follow(self, parent: CancellationToken) -> None:
        """Be cancelled with `parent` from now on, until `close`."""
        self._detach = parent.on_cancel(lambda: self.cancel(parent.reason))

    def close(self) -> None:
        """Let go of the parent token."""
        self._detach()

    def wait(self, timeout: float | None = None) -> bool:
        """Block the calling thread until cancelled or `timeout` seconds passed; True when cancelled."""
        with self._lock:
            if self._cancelled:
                return True
            if self._event is None:
                self._event = threading.Event()
        return self._event.wait(timeout)

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` when cancelled; for long-running tools."""
        if self._cancelled:
            raise Cancelled(self.reason or "cancelled")
