"""What a provider is, as data: an endpoint, how to authenticate, a dialect and its quirks; and the registry of all of them."""

from __future__ import annotations

import difflib
import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from rein_nb.dialects.base import Quirks

AuthStyle: TypeAlias = Literal["bearer", "x-api-key", "x-goog-api-key", "api-key", "none"]

DIALECTS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "openai-chat": ("rein_nb.dialects.chat", "ChatCodec"),
        "openai-responses": ("rein_nb.dialects.responses", "ResponsesCodec"),
        "anthropic": ("rein_nb.dialects.anthropic", "AnthropicCodec"),
        "google": ("rein_nb.dialects.google", "GoogleCodec"),
        "google-code-assist": ("rein_nb.dialects.google_code_assist", "CodeAssistCodec"),
        "ollama": ("rein_nb.dialects.ollama", "OllamaCodec"),
    }
)
"""Where each dialect's codec lives: module and class, loaded when first used."""

_SDK_OF_DIALECT: Mapping[str, Literal["openai", "anthropic"]] = MappingProxyType(
    {"openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic"}
)
_AUTH_OF_DIALECT: Mapping[str, AuthStyle] = MappingProxyType(
    {"google": "x-goog-api-key", "google-code-assist": "bearer", "anthropic": "x-api-key"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """A provider that speaks a known dialect.

    Attributes
    ----------
    name
        The part before the slash in ``provider/model``.
    dialect
        One of `DIALECTS`.
    base_url
        Where its API begins. ``{NAME}`` is filled in from the environment variable of that name; None when the user must say.
    key_env, base_url_env
        Environment variables that hold the key and another base URL, in order of preference.
    auth
        How the key is sent.
    sdk
        Which SDK's client carries the requests; None for a plain HTTP client.
    quirks
        How the server departs from its dialect.
    headers
        Sent with every request. No credentials.
    needs_key
        Whether a call without a key is refused before anything is sent.
    opt_in
        What the user must state to use it (``Config(extra={"opt_in": True})``), in words; None for all but unofficial endpoints.
    price_id
        The provider's id in the price list; None where it has none.
    endpoint
        ``"local"`` for the embedded server, whose address is only known once it runs.
    docs
        The vendor's documentation of the API.
    """

    name: str
    dialect: str
    base_url: str | None = None
    key_env: tuple[str, ...] = ()
    base_url_env: tuple[str, ...] = ()
    auth: AuthStyle = "bearer"
    sdk: Literal["openai", "anthropic"] | None = None
    quirks: Quirks = field(default_factory=Quirks)
    headers: Mapping[str, str] = field(default_factory=dict)
    needs_key: bool = True
    opt_in: str | None = None
    price_id: str | None = None
    endpoint: Literal["url", "local"] = "url"
    docs: str | None = None

    def variables(self) -> tuple[str, ...]:
        """The environment variables that are looked at for the key, in order."""
        return (f"REIN_NB_{env_name(self.name)}_API_KEY", *self.key_env)

    def base_url_variables(self) -> tuple[str, ...]:
        """The environment variables that are looked at for the base URL, in order."""
        return (f"REIN_NB_{env_name(self.name)}_BASE_URL", *self.base_url_env)


def env_name(name: str) -> str:
    """A provider's name as part of an environment variable's name.

    Examples
    --------
    >>> env_name("openai-chat")
    'OPENAI_CHAT'
    """
    return re.sub(r"[^A-Za-z0-9]+", "_", name).upper()


_lock = threading.Lock()
_specs: dict[str, ProviderSpec] = {}
_custom: dict[str, Any] = {}


def _load_presets() -> None:
    if not _specs:
        from rein_nb.providers.presets import PRESETS

        with _lock:
            for spec in PRESETS:
                _specs.setdefault(spec.name, spec)


def provider_names() -> list[str]:
    """The names of all known providers, sorted."""
    _load_presets()
    return sorted({*_specs, *_custom})


def find_spec(name: str) -> ProviderSpec | None:
    """The spec of a provider that speaks a known dialect; None for one that has its own class, or is unknown."""
    _load_presets()
    return None if name in _custom else _specs.get(name)


def find_custom(name: str) -> Any:
    """What `register_provider` was given as `provider` under this name; None when there is none."""
    return _custom.get(name)


def require_known(name: str) -> None:
    """Raise `ValueError`, naming the known providers, when `name` is not one of them."""
    _load_presets()
    if name in _specs or name in _custom:
        return
    near = difflib.get_close_matches(name, provider_names(), 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"unknown provider {name!r}{hint} Known providers: {', '.join(provider_names())}")


def register_provider(
    name: str,
    provider: Any = None,
    *,
    dialect: str | None = None,
    base_url: str | None = None,
    quirks: Quirks | Mapping[str, Any] | None = None,
    key_env: str | tuple[str, ...] = (),
    auth: AuthStyle | None = None,
    headers: Mapping[str, str] | None = None,
    needs_key: bool | None = None,
    like: str | None = None,
    docs: str | None = None,
) -> None:
    """Add a provider, usable as ``"name/model"`` from then on. The same name again replaces it.

    Parameters
    ----------
    name
        Letters, digits, ``-``, ``_`` and ``.``.
    provider
        For one that speaks no known dialect: an object with an async generator method ``stream(request)``, or a class or function that makes
        one from a `Config` (or from nothing).
    dialect, base_url, quirks
        For one that speaks a known dialect: which, where, and how it departs from it (a `Quirks` or its fields as a dict).
    key_env
        Environment variables to look for the key in.
    auth, headers, needs_key
        How the key is sent, what else is, and whether a missing key is an error (by default only when there is a `key_env`).
    like
        A known provider whose data is the starting point; what else is given replaces its.
    docs
        Where the API is described.

    Raises
    ------
    ValueError
        For a name that cannot be one, an unknown dialect, or neither a provider nor a dialect.
    TypeError
        For a provider without ``stream``, or unknown quirks.

    Examples
    --------
    >>> register_provider("lab", dialect="openai-chat", base_url="http://127.0.0.1:8000/v1", quirks={"think_tags": True})
    >>> find_spec("lab").quirks.think_tags
    True
    """
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise ValueError(f"{name!r} cannot be a provider's name: use letters, digits, '-', '_' and '.'")
    _load_presets()
    if provider is not None:
        if dialect is not None or base_url is not None or quirks is not None or like is not None:
            raise ValueError("give either a provider object, or a dialect with its endpoint, not both")
        if not callable(provider) and not callable(getattr(provider, "stream", None)):
            raise TypeError(
                f"a provider needs an async generator method stream(request); {type(provider).__name__} has none"
            )
        if isinstance(provider, type) and not callable(getattr(provider, "stream", None)):
            raise TypeError(f"a provider needs an async generator method stream(request); {provider.__name__} has none")
        with _lock:
            _custom[name] = provider
        return
    spec = _make_spec(name, like, dialect, quirks)
    changes: dict[str, Any] = {"base_url": base_url, "auth": auth, "docs": docs, "needs_key": needs_key}
    if key_env:
        changes["key_env"] = (key_env,) if isinstance(key_env, str) else tuple(key_env)
    if needs_key is None and like is None:
        changes["needs_key"] = bool(key_env)
    if headers is not None:
        changes["headers"] = dict(headers)
    spec = replace(spec, **{field_name: value for field_name, value in changes.items() if value is not None})
    with _lock:
        _custom.pop(name, None)
        _specs[name] = spec


def _make_spec(
    name: str, like: str | None, dialect: str | None, quirks: Quirks | Mapping[str, Any] | None
) -> ProviderSpec:
    if like is not None:
        require_known(like)
    base = _specs.get(like) if like is not None else None
    if like is not None and base is None:
        raise ValueError(f"{like!r} has a class of its own, so there is no data to start from")
    chosen = dialect or (base.dialect if base else None)
    if chosen is None:
        raise ValueError(f"give a dialect ({', '.join(DIALECTS)}) or a provider object")
    if chosen not in DIALECTS:
        raise ValueError(f"unknown dialect {chosen!r}; known: {', '.join(DIALECTS)}")
    if isinstance(quirks, Mapping):
        quirks = replace(base.quirks if base else Quirks(), **quirks)
    if base is not None and dialect is None:
        return replace(base, name=name, quirks=quirks or base.quirks)
    return ProviderSpec(
        name=name,
        dialect=chosen,
        sdk=_SDK_OF_DIALECT.get(chosen),
        auth=_AUTH_OF_DIALECT.get(chosen, "bearer"),
        quirks=quirks or Quirks(),
    )


def make_custom(name: str, config: Any) -> Any:
    """The provider object registered under `name`, made from `config` where it was registered as a class or function."""
    made = _custom[name]
    is_factory = isinstance(made, type) or not callable(getattr(made, "stream", None))
    provider = _call_factory(made, config) if is_factory else made
    if not callable(getattr(provider, "stream", None)):
        raise TypeError(f"the provider {name!r} has no async generator method stream(request)")
    return provider if getattr(provider, "name", None) else _Named(name, provider)


def _call_factory(factory: Callable[..., Any], config: Any) -> Any:
    import inspect

    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return factory(config)
    takes_config = any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD, p.VAR_POSITIONAL) for p in parameters)
    return factory(config) if takes_config else factory()


class _Named:
    """Gives a provider object that has no name the one it was registered under."""

    def __init__(self, name: str, provider: Any) -> None:
        self.name = name
        self._provider = provider

    def __getattr__(self, attribute: str) -> Any:
        if attribute == "_provider":
            raise AttributeError(attribute)
        return getattr(self._provider, attribute)
