"""`show`: anything that a run is or left behind, on display in the current cell."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from rein_nb import aio
from rein_nb.agent.handle import AgentRun
from rein_nb.notebook.frontend import Output, place
from rein_nb.notebook.live import Live
from rein_nb.notebook.plain import plain_transcript
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.running import DisplayedRun
from rein_nb.notebook.saved import bundle_of


def show(source: Any, *, label: str = "", show_prompt: bool = True) -> Any:
    """Display a run in the current cell.

    Parameters
    ----------
    source
        A running run (what `Agent.start` returns) or an async iterator of agent events: shown live while it lasts, static afterwards.
        An `AgentResult`, `Completion`, `Message`, a list of messages or of events: shown static.
    label
        Heading of a live display.
    show_prompt
        Whether the prompt is part of the transcript.

    Returns
    -------
    Live or None
        The live display of something that still runs.
    """
    if isinstance(source, AgentRun):
        live = Live([label], show_prompt=show_prompt)
        DisplayedRun(live, source).finish_in_background()
        return live
    if isinstance(source, AsyncIterator) or hasattr(source, "__aiter__"):
        live = Live([label], show_prompt=show_prompt)
        attach(live, source)
        return live
    if place() in ("none", "terminal"):
        import sys

        sys.stdout.write(plain_transcript(state_of(source)) + "\n")
    else:
        Output().put(bundle_of(source))
    return None


def attach(live: Live, source: Any, pane: int = 0) -> None:
    """Feed `live` from an async iterator of events, on rein_nb's own loop; the display finishes when the events end."""

    async def pump() -> None:
        try:
            async for event in source:
                live.feed(event, pane)
        finally:
            live.finish()

    aio.submit(pump())
