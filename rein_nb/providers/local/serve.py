"""The child process: llama.cpp's HTTP server on a loopback port.

Run as a script, never imported by rein_nb, so that it starts without loading anything but the runtime. One JSON line of settings comes on
stdin, one JSON line with the address goes out on stdout when the model is loaded. The process ends when stdin closes, which the system
does for a parent however it died, or when it has been given to another parent.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from typing import Any


def _settings(xllamacpp: Any, config: dict[str, Any]) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = config["gguf"]
    params.n_parallel = config["slots"]
    params.n_ctx = config["context_tokens"] * config["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = config["threads"]
    # One token at a time through the weights. A matrix product over several rows rounds differently from one over a single row, so with larger
    # steps the same greedy prompt gives another text when part of it was cached or another request was under way. It costs half of the
    # speed at which prompts are read.
    params.n_ubatch = 1
    params.use_jinja = True
    params.port = 0
    # The server answers any origin, so without a key every web page that is open on this machine could use it.
    params.api_keys = [config["api_key"]]
    params.model_alias = config["alias"] if isinstance(params.model_alias, str) else {config["alias"]}
    if config["template"] is not None:
        params.chat_template = config["template"]
    optional = {
        "cache_prompt": config["cached_prompts"],
        "verbosity": 1,
        "cache_ram_mib": 256,
        "endpoint_slots": False,
        "webui": False,
        "ui": False,
    }
    for name, value in optional.items():
        # Names differ from release to release of the runtime; none of these decides whether it works.
        if hasattr(params, name):
            setattr(params, name, value)
    return params


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(0)


def main() -> None:
    """Serve until the parent is gone."""
    ready = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what native code prints can then never be taken for the ready line
    config = json.loads(sys.stdin.readline())
    xllamacpp: Any = importlib.import_module("xllamacpp")
    if os.name == "posix":
        # A process forked from the parent holds our stdin open too, so the end of stdin alone is not enough.
        threading.Thread(target=_end_with_parent, args=(config["parent"],), daemon=True).start()
    server = xllamacpp.Server(_settings(xllamacpp, config))
    ready.write(json.dumps({"url": server.listening_address}) + "\n")
    ready.flush()
    sys.stdin.read()
    os._exit(0)  # the server's destructor can hang when no request was made yet


if __name__ == "__main__":
    main()
