"""Code of the user's own that calls ``asyncio.run`` inside a cell: made to work on request, never by default."""

from __future__ import annotations

from importlib import import_module

_MODULES = ("nest_asyncio2", "nest_asyncio")


def allow_nested_loops() -> str:
    """Let ``asyncio.run`` and ``loop.run_until_complete`` be called while a loop is running, as in a notebook cell.

    rein_nb itself never needs this: its synchronous calls run on a loop of their own. Applies whichever of nest_asyncio2 and nest_asyncio is
    installed, and returns its name. It patches the running loop for the whole process.

    Raises
    ------
    ImportError
        When neither is installed.
    """
    for name in _MODULES:
        try:
            module = import_module(name)
        except ImportError:
            continue
        module.apply()
        return name
    raise ImportError("nested event loops need nest-asyncio2: install it, or rein-nb[nested]")
