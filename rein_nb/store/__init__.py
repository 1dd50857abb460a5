"""What is kept on disk: sessions (append-only trees of messages and runs) in one SQLite file, and JSON Lines to carry them.

Lives here: `Store`, `Session`, the listener that saves a run while it goes on, JSONL export and import; recordings of what providers answered.

May import: everything above it in the house, `platformdirs` and the standard library. May not know: pandas, the notebook.

A record is one transaction. A process that dies, at any moment, loses at most the record it was writing; the file never opens broken.
Several processes may use one file, forked ones too: readers never wait, writers take turns. Write-ahead logging needs a local disk: on a network file system
SQLite's locks are only as good as that system's, so keep the file on a local one (``REIN_NB_STORE``).
"""

from rein_nb.store.database import StoreError
from rein_nb.store.jsonl import BrokenTail, JsonLines
from rein_nb.store.paths import default_path
from rein_nb.store.recording import Recording, RecordingMiss, record, replay
from rein_nb.store.records import Entry
from rein_nb.store.session import Session
from rein_nb.store.store import SearchHit, SessionInfo, Store

__all__ = [
    "BrokenTail",
    "Entry",
    "JsonLines",
    "Recording",
    "RecordingMiss",
    "SearchHit",
    "Session",
    "SessionInfo",
    "Store",
    "StoreError",
    "default_path",
    "record",
    "replay",
]
