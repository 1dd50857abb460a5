"""``%agent`` and ``%%agent``: what they do. How they are hooked into IPython is in `extension`."""

from __future__ import annotations

from typing import Any

from rein_nb.agent import Agent
from rein_nb.agent.events import AgentEnd
from rein_nb.ir import ReinError
from rein_nb.notebook.footer import Footer
from rein_nb.notebook.frontend import shell
from rein_nb.notebook.options import OptionError, help_text, parse
from rein_nb.notebook.room import Order, Room, find_model, find_tool
from rein_nb.notebook.running import DisplayedRun, Interrupted, open_live
from rein_nb.notebook.sanitize import shown

_room = Room()


def room() -> Room:
    """The magics' memory in this process."""
    return _room


def _names() -> dict[str, Any]:
    ip = shell()
    names: dict[str, Any] = ip.user_ns if ip is not None else {}
    return names


def _usage_error(message: str) -> Exception:
    """IPython shows this one without a traceback."""
    from IPython.core.error import UsageError

    error: Exception = UsageError(shown(message))
    return error


def _say(text: str) -> None:
    import sys

    sys.stdout.write(text + "\n")


# -- asking -------------------------------------------------------------------------------------------


def cell_order(line: str, cell: str) -> Order:
    """The order that a ``%%agent`` cell makes. Text after the options comes before the cell's, on a line of its own.

    Raises
    ------
    OptionError
        For an empty prompt, or anything wrong with the line.
    """
    names = _names()
    parsed = parse(line.rstrip("\n"), names, whole=True)
    prompt = f"{parsed.rest}\n{cell}" if parsed.rest.strip() else cell
    if not prompt.strip():
        raise OptionError("the prompt is empty: write it below the %%agent line")
    return _room.order(parsed, prompt, names)


async def run_cell(line: str, cell: str) -> None:
    """Run a ``%%agent`` cell to its end; the cell is rewritten to await this."""
    try:
        order = cell_order(line, _exact(cell))
        if len(order.models) > 1:
            return await _side_by_side(order)
        run = _start(order)
    except (OptionError, ReinError) as exc:
        raise _usage_error(str(exc)) from None
    if order.background:
        return _leave(run, order)
    try:
        await run.wait()
    finally:
        _keep(run, order)
    return None


async def run_line(line: str) -> None:
    """Run ``%agent PROMPT`` to its end; a cell that is only this line is rewritten to await it."""
    order = _line_order(line)
    if order is None:
        return
    try:
        if len(order.models) > 1:
            await _side_by_side(order)
            return
        run = _start(order)
    except (OptionError, ReinError) as exc:
        raise _usage_error(str(exc)) from None
    if order.background:
        _leave(run, order)
        return
    try:
        await run.wait()
    finally:
        _keep(run, order)


def line_magic(line: str) -> None:
    """``%agent`` where nothing can be awaited: in the midst of a cell, in a loop, in a script."""
    order = _line_order(line)
    if order is not None:
        _block(order)


def cell_magic(line: str, cell: str) -> None:
    """``%%agent`` where nothing can be awaited: below another cell magic, or called as a function."""
    try:
        order = cell_order(line, cell)
    except OptionError as exc:
        raise _usage_error(str(exc)) from None
    _block(order)


def _block(order: Order) -> None:
    try:
        if len(order.models) > 1:
            from rein_nb.compare import compare

            _put(order, compare(order.prompt, order.models, **_compare_settings(order)))
            return
        run = _start(order)
    except (OptionError, ReinError) as exc:
        raise _usage_error(str(exc)) from None
    if order.background:
        _leave(run, order)
        return
    try:
        run.block()
    finally:
        _keep(run, order)


def _start(order: Order) -> DisplayedRun:
    (model,) = order.models.values()
    agent = _room.agent(order.session, model)
    settings = dict(order.settings)
    if not settings["tools"] and agent is not model and len(agent.tools.names):
        del settings["tools"]
    settings["llm"] = model.llm if isinstance(model, Agent) else model
    # Started first: what is wrong with the settings is told before anything is displayed.
    handle = agent.start(order.prompt, **settings)
    return DisplayedRun(open_live(show_prompt=order.show_prompt, stream=not order.no_stream), handle)


def _put(order: Order, value: Any) -> None:
    names = _names()
    names["_agent"] = value
    if order.out:
        names[order.out] = value


def _keep(run: DisplayedRun, order: Order) -> None:
    if run.result is not None:
        _room.count(order.session, run.result)
        _put(order, run.result)


def _leave(run: DisplayedRun, order: Order) -> None:
    _put(order, run.handle)

    def count(event: Any) -> None:
        if isinstance(event, AgentEnd):
            _room.count(order.session, event.result)

    run.handle.subscribe(count)
    run.finish_in_background()


def _compare_settings(order: Order) -> dict[str, Any]:
    return {key: value for key, value in order.settings.items() if key != "tools" or value}


async def _side_by_side(order: Order) -> None:
    import asyncio

    from rein_nb.compare import acompare, last

    try:
        _put(order, await acompare(order.prompt, order.models, **_compare_settings(order)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        _put(order, last())
        raise Interrupted from None


def _exact(cell: str) -> str:
    """The cell without the line end that IPython adds to every cell."""
    from rein_nb.notebook.extension import raw_cell

    raw = raw_cell()
    return cell[:-1] if raw is not None and cell.endswith("\n") and not raw.endswith("\n") else cell


# -- settings -----------------------------------------------------------------------------------------


def _line_order(line: str) -> Order | None:
    """The order that ``%agent ...`` makes; None when the line was a setting, which is then done."""
    text = line.strip()
    if not text:
        _say(help_text())
        return None
    word, _, rest = text.partition(" ")
    try:
        done = _SETTINGS[word](rest.strip()) if word in _SETTINGS else False
        if done:
            return None
        names = _names()
        parsed = parse(line.lstrip(), names, whole=False)
        if not parsed.rest.strip():
            raise OptionError("there is no prompt after the options")
        return _room.order(parsed, parsed.rest.strip(), names)
    except (OptionError, ReinError) as exc:
        raise _usage_error(str(exc)) from None


def is_setting(line: str) -> bool:
    """Whether ``%agent LINE`` is help or a setting rather than a prompt: such a line needs no await."""
    word, _, rest = line.strip().partition(" ")
    return not word or (word in _SETTINGS and (not rest.strip() or word in ("model", "tools", "system", "session")))


def _set_model(rest: str) -> bool:
    if not rest:
        _say(f"model: {shown(str(_room.model)) if _room.model is not None else 'none chosen'}")
        return True
    if " " in rest:
        return False
    found = find_model(rest, _names())
    _room.model = found if not (hasattr(found, "config") and "/" in rest) else rest
    _say(f"model: {shown(rest)}")
    return True


def _set_tools(rest: str) -> bool:
    names = _names()
    words = rest.replace(",", " ").split()
    if words and words != ["none"]:
        if len(words) > 1 and not all(word.split(".")[0] in names for word in words):
            return False
        for word in words:
            find_tool(word, names)
    if words:
        _room.tools = [] if words == ["none"] else words
    _say(f"tools: {', '.join(_room.tools) or 'none'}")
    return True


def _set_system(rest: str) -> bool:
    if rest:
        _room.system = None if rest == "none" else rest
    _say(f"system: {shown(_room.system) if _room.system else 'none'}")
    return True


def _set_session(rest: str) -> bool:
    if " " in rest:
        return False
    if rest:
        _room.session = rest
    known = ", ".join(f"{name} ({len(agent.messages)} messages)" for name, agent in _room.sessions.items())
    _say(f"session: {shown(_room.session)}" + (shown(f"; known: {known}") if known else ""))
    return True


def _reset(rest: str) -> bool:
    if rest:
        return False
    _room.sessions.pop(_room.session, None)
    _say(f"session {shown(_room.session)} forgotten")
    return True


def _models(rest: str) -> bool:
    if rest:
        return False
    _say("\n".join(known_models(_names())) or "no models known; any provider/model may be given")
    return True


def _usage(rest: str) -> bool:
    if rest:
        return False
    lines = []
    for name, usage in _room.spent.items():
        lines.append(f"{shown(name)}: {' · '.join(Footer(usage=usage).facts())}")
    if len(_room.spent) > 1:
        first, *others = _room.spent.values()
        total = sum(others, first)
        lines.append(f"total: {' · '.join(Footer(usage=total).facts())}")
    _say("\n".join(lines) or "nothing spent yet")
    return True


def _help(rest: str) -> bool:
    if rest:
        return False
    _say(help_text())
    return True


_SETTINGS = {
    "model": _set_model, "tools": _set_tools, "system": _set_system, "session": _set_session, "reset": _reset, "models": _models,
    "usage": _usage, "help": _help,
}  # fmt: skip


def known_models(names: dict[str, Any]) -> list[str]:
    """Names that ``--model`` takes: variables that hold models or agents, every embedded model by each of its providers, and the names of
    all other providers."""
    from rein_nb.providers.local import MODELS
    from rein_nb.providers.spec import find_spec, provider_names

    held = [
        name
        for name, value in names.items()
        if not name.startswith("_") and (isinstance(value, Agent) or callable(getattr(value, "astream_events", None)))
    ]
    local, others = [], []
    for name in provider_names():
        spec = find_spec(name)
        if spec is not None and spec.endpoint == "local":
            local += [f"{name}/{model}" for model in MODELS]
        else:
            others.append(f"{name}/")
    return [*held, *local, *others]
