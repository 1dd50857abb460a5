"""The embedded models: real weights, served by llama.cpp in a child process on loopback. No key, no account, no model hub.

Lives here: which models there are (`catalog`), how their weights come and are checked (`weights`), the server (`server` in this process,
`serve` in the child), and how llama.cpp departs from the three dialects that it speaks (`quirks`).

May import: `ir`, `dialects.base`. May not know: the SDKs, the event loop. Everything here is synchronous; call it from a worker thread.
"""

from rein_nb.providers.local.catalog import MODELS, LocalModel, find_model
from rein_nb.providers.local.server import LocalEndpoint, ensure, shutdown
from rein_nb.providers.local.weights import LocalSetupError, Progress, fetch, models_folder, weights_file

__all__ = [
    "MODELS",
    "LocalEndpoint",
    "LocalModel",
    "LocalSetupError",
    "Progress",
    "ensure",
    "fetch",
    "find_model",
    "models_folder",
    "shutdown",
    "weights_file",
]
