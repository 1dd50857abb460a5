"""For users' tests as well as our own: a scripted provider, a loopback wire server, transcript validators.

May import: everything up to `agent`. May not know: notebooks, pandas.
"""

from rein_nb.testing.scripted import ScriptedProvider
from rein_nb.testing.validate import Violation, validate_transcript

__all__ = ["ScriptedProvider", "Violation", "validate_transcript"]
