"""For users' tests as well as our own: a scripted provider, a loopback wire server, transcript validators.

May import: everything up to `agent`. May not know: notebooks, pandas.
"""

from rein_nb.testing.scripted import ScriptedProvider
from rein_nb.testing.server import RecordingServer, serve_recording
from rein_nb.testing.validate import Violation, validate_transcript

__all__ = ["RecordingServer", "ScriptedProvider", "Violation", "serve_recording", "validate_transcript"]
