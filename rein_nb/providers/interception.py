"""Stand-ins for providers: how something above (a recording) sees, or takes the place of, the providers of this process while it is open."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from rein_nb.providers.driver import Provider

StandIn: TypeAlias = Callable[[Provider], Provider]
"""Given a provider, what is asked in its place: itself, or something that wraps it."""


@dataclass(frozen=True, slots=True, eq=False)
class _Installed:
    stand_in: StandIn
    offline: bool


_installed: list[_Installed] = []
_lock = threading.Lock()


def install(stand_in: StandIn, *, offline: bool = False) -> Callable[[], None]:
    """Have `stand_in` stand before every provider of this process. Returns a function that takes it away.

    Parameters
    ----------
    offline
        No provider will be reached, so none needs a key.
    """
    entry = _Installed(stand_in, offline)
    with _lock:
        _installed.append(entry)

    def remove() -> None:
        with _lock:
            if entry in _installed:
                _installed.remove(entry)

    return remove


def intercepted(provider: Provider) -> Provider:
    """What is asked in `provider`'s place; itself, while nothing is installed. The last installed is the outermost."""
    for entry in tuple(_installed):
        provider = entry.stand_in(provider)
    return provider


def offline() -> bool:
    """Whether no provider will be reached."""
    return any(entry.offline for entry in _installed)
