"""``rein-nb models``: which embedded models there are, and fetching one."""

from __future__ import annotations

import sys

from rein_nb.ir import ReinError
from rein_nb.providers.local import MODELS, fetch, find_model, models_folder, weights_file


def list_models() -> int:
    """Print the embedded models and whether their weights are on this machine."""
    for model in MODELS.values():
        path = weights_file(model)
        how = "fetched at first use" if model.automatic else f"rein-nb models pull {model.name}"
        state = f"here: {path}" if path is not None else f"not here ({model.download_mb} MB; {how})"
        sys.stdout.write(
            f"local/{model.name}\n    {model.title}, {model.license}\n    from {model.source}\n    {state}\n"
        )
    sys.stdout.write(f"folder: {models_folder()} (REIN_NB_MODELS moves it)\n")
    return 0


def pull(name: str) -> int:
    """Fetch a model's weights, checked by hash. Returns 1, with the reason on stderr, when they cannot be had."""
    try:
        path = fetch(find_model(name))
    except ReinError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    sys.stdout.write(f"{path}\n")
    return 0
