"""``%load_ext rein_nb``: magics, the cell rewriting, completion and displays, hooked into IPython; and all of it taken out again."""

from __future__ import annotations

import re
from typing import Any

from rein_nb.notebook import magics
from rein_nb.notebook.complete import candidates
from rein_nb.notebook.formatters import add_formatters, remove_formatters
from rein_nb.notebook.watch import Watch

_COMMAND = re.compile(r"%%?agent\b")
_CELL = re.compile(r"%%agent(?=\s|$)([^\n]*)")
_LINE = re.compile(r"%agent(?=\s|$)([^\n]*)")

_raw: str | None = None
_factory_before: list[Any] = []
"""What showed comparisons before the extension was loaded; empty while it is not."""


def raw_cell() -> str | None:
    """The running cell as it was typed; None when unknown."""
    return _raw


def rewrite(lines: list[str]) -> list[str]:
    """Make an awaited call of a cell that is one magic, so that clicks are handled while it runs. Other cells stay as they are."""
    match = _CELL.match(lines[0]) if lines else None
    if match is not None:
        call = f"run_cell({match[1].strip()!r}, {''.join(lines[1:])!r})"
        return [f"await __import__('importlib').import_module('rein_nb.notebook.magics').{call}\n"]
    match = _LINE.match(lines[0]) if lines and not any(line.strip() for line in lines[1:]) else None
    if match is not None and not magics.is_setting(match[1]):
        call = f"run_line({match[1].strip()!r})"
        return [f"await __import__('importlib').import_module('rein_nb.notebook.magics').{call}\n"]
    return lines


def _remember(info: Any) -> None:
    global _raw
    _raw = info.raw_cell


def _complete(ip: Any, event: Any) -> list[str]:
    room = magics.room()
    names = ip.user_ns
    return candidates(event.text_until_cursor, names, magics.known_models(names), list(room.sessions))


def load_ipython_extension(ip: Any) -> None:
    """Hook everything in. Loading twice is harmless."""
    unload_ipython_extension(ip)
    from IPython.core.magic import no_var_expand

    from rein_nb.compare.display import set_factory
    from rein_nb.notebook.grid import live_grid

    ip.register_magic_function(no_var_expand(magics.line_magic), "line", "agent")
    ip.register_magic_function(no_var_expand(magics.cell_magic), "cell", "agent")
    ip.input_transformers_cleanup.append(rewrite)
    ip.ast_transformers.append(Watch())
    ip.events.register("pre_run_cell", _remember)
    ip.set_hook("complete_command", _complete, re_key=_COMMAND)
    _factory_before.append(set_factory(live_grid))
    add_formatters(ip)


def unload_ipython_extension(ip: Any) -> None:
    """Take everything out again, and forget settings and conversations' names."""
    global _raw
    from rein_nb.compare.display import set_factory

    if _factory_before:
        set_factory(_factory_before.pop())
    for kind in ("line", "cell"):
        ip.magics_manager.magics[kind].pop("agent", None)
    while rewrite in ip.input_transformers_cleanup:
        ip.input_transformers_cleanup.remove(rewrite)
    ip.ast_transformers[:] = [found for found in ip.ast_transformers if not isinstance(found, Watch)]
    try:
        ip.events.unregister("pre_run_cell", _remember)
    except ValueError:
        pass  # was not registered
    dispatcher = ip.strdispatchers.get("complete_command")
    if dispatcher is not None:
        for key in [key for key in dispatcher.regexs if getattr(key, "pattern", key) == _COMMAND.pattern]:
            del dispatcher.regexs[key]
    remove_formatters(ip)
    _raw = None
