"""Who is at the other end: endpoints, credentials, capabilities, quirks as data, and the one transport that moves bytes.

Lives here: the registry of providers, `Config`, the transport over the SDKs' clients, prices, the driver that retries, times out and
cancels, and the embedded local models.

May import: `ir`, `stream`, `dialects`. May not know: tools, agents, notebooks. SDKs are imported inside the functions that need them.
"""

from __future__ import annotations

from typing import Any

from pydantic import SecretStr

from rein_nb.providers import interception
from rein_nb.providers.config import Config, Timeouts
from rein_nb.providers.driver import Provider, RetryPolicy, drive
from rein_nb.providers.spec import (
    ProviderSpec,
    find_custom,
    make_custom,
    provider_names,
    register_provider,
    require_known,
)

__all__ = [
    "Config",
    "Provider",
    "ProviderSpec",
    "RetryPolicy",
    "Timeouts",
    "drive",
    "open_provider",
    "provider_names",
    "register_provider",
]


def open_provider(config: Config, client: Any = None) -> Provider:
    """The object that answers requests for `config`.

    Raises
    ------
    ValueError
        For an unknown provider (naming the known ones), or a missing key or base URL (saying where was looked).
    TypeError
        For a client of the wrong kind.
    """
    require_known(config.provider)
    if find_custom(config.provider) is not None:
        if client is not None:
            raise TypeError(f"provider {config.provider!r} has a class of its own, so it takes no client")
        made: Provider = make_custom(config.provider, config)
        return made
    from rein_nb.providers.wire import WireProvider

    if interception.offline() and config.api_key is None:
        config = config.model_copy(update={"api_key": SecretStr("not-needed-offline")})
    return WireProvider(config, client=client)
