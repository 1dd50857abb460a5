"""For users' tests as well as our own: a scripted provider, a loopback wire server, transcript validators.

May import: everything up to `agent`. May not know: notebooks, pandas.
"""

from rein_nb.testing.scripted import ScriptedProvider

__all__ = ["ScriptedProvider"]
