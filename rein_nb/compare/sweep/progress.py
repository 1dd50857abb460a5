"""The progress bar: tqdm's, where it is installed."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any


class Progress:
    """A bar over the cells; silent where there is no tqdm, or none is wanted."""

    def __init__(self, name: str, total: int, done: int, wanted: bool) -> None:
        self._bar: Any = None
        self._failed = 0
        if wanted and find_spec("tqdm") is not None:
            self._bar = import_module("tqdm.auto").tqdm(total=total, initial=done, desc=name, unit="cell")

    def step(self, *, ok: bool, usd: float) -> None:
        """One more cell has ended; `usd` is what the whole sweep has cost."""
        if self._bar is None:
            return
        self._failed += not ok
        self._bar.set_postfix({"failed": self._failed, "USD": f"{usd:.4f}"}, refresh=False)
        self._bar.update(1)

    def close(self) -> None:
        """The sweep ended."""
        if self._bar is not None:
            self._bar.close()
