"""Tidy pandas frames of what was recorded: runs, turns, messages, parts, tool calls, usage, events.

Lives here: the lists of columns (one object a column: name, dtype, how to read it), the sources that frames are read from, and the
way back from a frame to messages.

May import: everything above it in the house, and pandas inside functions. May not know: how anything is displayed, plotted or stored.

Frames join on ``run_id``, ``turn``, ``message_index``, ``part_index`` and ``call_id``. A frame has the same columns and dtypes whether it has no
row, one, or rows of failed runs. What is JSON by nature (arguments, details, raw usage) stands as JSON text; `parse_json` gives the values.
"""

from rein_nb.frames.columns import Column, parse_json, timestamps
from rein_nb.frames.inverse import messages_from_frame
from rein_nb.frames.sources import RunSource
from rein_nb.frames.tables import KINDS, columns, frame, to_frame

__all__ = [
    "KINDS",
    "Column",
    "RunSource",
    "columns",
    "frame",
    "messages_from_frame",
    "parse_json",
    "timestamps",
    "to_frame",
]
