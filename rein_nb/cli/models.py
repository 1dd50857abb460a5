"""``rein-nb models``: which embedded models there are, fetching one, and what a provider offers."""

from __future__ import annotations

from typing import Any

from rein_nb.cli.output import CommandFailed, say, say_json
from rein_nb.ir import ReinError


def list_models(*, as_json: bool = False) -> int:
    """Print the embedded models and whether their weights are on this machine."""
    from rein_nb.providers.local import MODELS, models_folder, weights_file

    places = {model.name: weights_file(model) for model in MODELS.values()}
    if as_json:
        say_json([
            {
                "model": f"local/{model.name}", "title": model.title, "license": model.license, "source": model.source,
                "download_mb": model.download_mb, "automatic": model.automatic,
                "here": None if places[model.name] is None else str(places[model.name]),
            }
            for model in MODELS.values()
        ])  # fmt: skip
        return 0
    for model in MODELS.values():
        path = places[model.name]
        how = "fetched at first use" if model.automatic else f"rein-nb models pull {model.name}"
        state = f"here: {path}" if path is not None else f"not here ({model.download_mb} MB; {how})"
        say(f"local/{model.name}\n    {model.title}, {model.license}\n    from {model.source}\n    {state}")
    say(f"folder: {models_folder()} (REIN_NB_MODELS moves it)")
    return 0


def pull(name: str, *, as_json: bool = False) -> int:
    """Fetch a model's weights, checked by hash.

    Raises
    ------
    CommandFailed
        With the reason, when they cannot be had.
    """
    from rein_nb.providers.local import fetch, find_model

    try:
        path = fetch(find_model(name))
    except ReinError as exc:
        raise CommandFailed(str(exc)) from exc
    say_json({"model": f"local/{name}", "here": str(path)}) if as_json else say(str(path))
    return 0


def offered(provider: str, *, base_url: str | None = None, as_json: bool = False) -> int:
    """Print the models that a provider's endpoint says it has. The key comes from where it always comes from.

    Raises
    ------
    CommandFailed
        For an unknown provider, a missing key, or an endpoint that does not answer.
    """
    from rein_nb.llm import LLM, Config

    settings: dict[str, Any] = {} if base_url is None else {"base_url": base_url}
    try:
        found = LLM(Config(provider=provider, model="any", max_retries=0, **settings)).models()
    except (ReinError, ValueError) as exc:
        raise CommandFailed(str(exc)) from exc
    names = sorted(str(row["id"]) for row in found)
    if as_json:
        say_json(found)
        return 0
    for name in names:
        say(f"{provider}/{name}")
    if not names:
        raise CommandFailed(f"{provider} answered with an empty list")
    return 0
