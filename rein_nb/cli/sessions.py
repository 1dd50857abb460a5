"""``rein-nb sessions`` and ``rein-nb export``: what a store holds, and one conversation of it as a page, as Markdown or as data."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rein_nb.cli.output import CommandFailed, say, say_json

if TYPE_CHECKING:
    from rein_nb.store import Session, Store

SUFFIXES = {"html": ".html", "markdown": ".md", "jsonl": ".jsonl"}
"""The formats of an export, and what their files are called."""

_SHOWN = 8
"""Sessions that an error names."""


def list_sessions(path: Path | None, *, limit: int, as_json: bool) -> int:
    """Print the sessions of a store, those written to last first."""
    with _open(path) as store:
        found = store.sessions(limit=limit if limit >= 0 else None)
        if as_json:
            say_json([
                {"id": info.id, "title": info.title, "entries": info.entries, "created_at": info.created_at,
                 "updated_at": info.updated_at, "forked_from": info.forked_from}
                for info in found
            ])  # fmt: skip
            return 0
        for info in found:
            say(f"{info.id[:12]}  {_day(info.updated_at)}  {info.entries:>5} entries  {_shown(info.title)}".rstrip())
        if not found:
            say(f"no session in {store.path}")
    return 0


def export(name: str, path: Path | None, *, form: str, out: str | None, force: bool) -> int:
    """Write one session to a file, or to stdout.

    Parameters
    ----------
    name
        The session's id, its beginning, its title, or ``last``.
    path
        The store; the default one when None.
    form
        One of `SUFFIXES`.
    out
        The file; ``-`` for stdout; None for one in this folder that is called like the session.
    force
        Write over a file that is there.

    Raises
    ------
    CommandFailed
        When there is no such session, or the file is there already.
    """
    with _open(path) as store:
        session = find(store, name)
        messages = session.messages
        if not messages:
            raise CommandFailed(f"session {session.id[:12]} has no message yet")
        text = _writers()[form](messages, _shown(session.title) or session.id[:12])
        if out == "-":
            sys.stdout.write(text)
            return 0
        target = Path(out) if out is not None else Path(_file_name(session) + SUFFIXES[form])
        if target.exists() and not force:
            raise CommandFailed(f"{target} is there already: name another with -o, or write over it with --force")
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as exc:
            raise CommandFailed(f"cannot write {target}: {exc.strerror}") from exc
        say(str(target))
    return 0


def find(store: Store, name: str) -> Session:
    """A session by its id, the beginning of its id, its title, or ``last``.

    Raises
    ------
    CommandFailed
        When there is none, or several are so called; the message names those that there are.
    """
    if name == "last":
        last = store.last()
        if last is None:
            raise CommandFailed(f"the store {store.path} has no session yet")
        return last
    titled = [info for info in store.sessions(limit=None) if info.title == name]
    if len(titled) == 1:
        return store.open(titled[0].id)
    if titled:
        ids = ", ".join(info.id[:12] for info in titled[:_SHOWN])
        raise CommandFailed(f"{len(titled)} sessions have the title {name!r}: say which by its id ({ids})")
    try:
        return store.open(name)
    except KeyError as exc:
        recent = "; ".join(f"{info.id[:12]} {_shown(info.title)}".rstrip() for info in store.sessions(limit=_SHOWN))
        raise CommandFailed(f"{exc.args[0]}; it has: {recent or 'none'}") from exc


def _open(path: Path | None) -> Store:
    from rein_nb.store import Store, default_path
    from rein_nb.store.paths import as_file

    file = default_path() if path is None else as_file(path)
    if not file.exists():
        raise CommandFailed(
            f"there is no store at {file}: sessions are kept there once an agent has one, or name another with --store"
        )
    return Store(file)


def _writers() -> dict[str, Callable[[Any, str], str]]:
    from rein_nb.notebook import transcript_html, transcript_jsonl, transcript_markdown

    return {
        "html": lambda messages, title: transcript_html(messages, title=title),
        "markdown": lambda messages, title: transcript_markdown(messages),
        "jsonl": lambda messages, title: transcript_jsonl(messages),
    }


def _shown(text: str) -> str:
    from rein_nb.notebook.sanitize import shown

    return shown(text)


def _file_name(session: Session) -> str:
    words = re.sub(r"[^\w-]+", "-", session.title).strip("-")[:60]
    return f"{words or 'session'}-{session.id[:8]}"


def _day(time: float) -> str:
    return datetime.fromtimestamp(time).astimezone().strftime("%Y-%m-%d %H:%M")
