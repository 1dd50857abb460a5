"""`Config`: who answers and how, frozen, from arguments, the environment or a ``.env`` file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from rein_nb.ir import Options
from rein_nb.ir.base import Extra
from rein_nb.ir.redaction import REDACTOR, SECRET_HEADERS, redact
from rein_nb.providers.dotenv import getenv
from rein_nb.providers.spec import ProviderSpec, env_name, find_spec, provider_names, require_known

_OPTION_FIELDS = (
    "temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty", "reasoning_effort",
)  # fmt: skip


class Timeouts(BaseModel):
    """Time limits in seconds, by phase; None for no limit.

    Attributes
    ----------
    connect_s
        To a connection.
    first_byte_s
        From sending the request to the first byte of the answer.
    idle_s
        Between two reads of the answer.
    total_s
        For one whole call, retries included.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    connect_s: float | None = Field(default=10.0, gt=0)
    first_byte_s: float | None = Field(default=120.0, gt=0)
    idle_s: float | None = Field(default=120.0, gt=0)
    total_s: float | None = Field(default=None, gt=0)


class Config(BaseModel):
    """Who answers and how. Immutable; its repr, its dumps and its pickles show no key.

    What is not given comes from the environment, else from a ``.env`` file in the current folder: the key and base URL from
    ``REIN_NB_<PROVIDER>_API_KEY`` and ``REIN_NB_<PROVIDER>_BASE_URL``, else from the vendor's own variables; provider and model from
    ``REIN_NB_PROVIDER`` and ``REIN_NB_MODEL`` (which may be ``provider/model``); ``REIN_NB_MAX_RETRIES``.

    Attributes
    ----------
    provider, model
        The two sides of the slash in ``provider/model``.
    api_key
        Read only when a request is built.
    base_url
        Where the API begins, when it is not the provider's own address.
    max_retries
        Requests beyond the first, for faults that can pass.
    timeouts
        Time limits in seconds.
    temperature, top_p, top_k, max_tokens, stop, seed, frequency_penalty, presence_penalty, reasoning_effort
        Defaults of the options of each call.
    extensions
        Defaults of provider-only settings, by provider or dialect.
    headers
        Sent with every request. Values are kept like keys.
    extra
        For the provider's own class: what it documents. ``{"opt_in": True}`` for the unofficial endpoints.

    Examples
    --------
    >>> config = Config(provider="openai", model="gpt-4o", api_key="sk-not-a-real-key-0000")
    >>> "sk-not" in repr(config)
    False
    >>> Config.of("openai/gpt-4o", temperature=0, api_key="sk-not-a-real-key-0000").options().temperature
    0.0
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, protected_namespaces=())

    provider: str
    model: str
    api_key: SecretStr | None = None
    base_url: str | None = None
    max_retries: int = Field(default=2, ge=0)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    stop: list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    reasoning_effort: str | None = None
    extensions: Extra = Field(default_factory=dict)
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    extra: dict[str, Any] = Field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, name: str, **fields: Any) -> Config:
        """A config from ``"provider/model"`` and further fields.

        Raises
        ------
        ValueError
            When `name` has no slash, or names an unknown provider.
        """
        provider, slash, model = name.partition("/")
        if not slash or not provider or not model:
            raise ValueError(
                f"a model is named 'provider/model', for example 'openai/gpt-5'; got {name!r}. "
                f"Known providers: {', '.join(provider_names())}"
            )
        require_known(provider)
        return cls(provider=provider, model=model, **fields)

    @classmethod
    def from_env(cls, **fields: Any) -> Config:
        """A config whose provider and model come from ``REIN_NB_PROVIDER`` and ``REIN_NB_MODEL``."""
        return cls(**fields)

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        data = {name: value for name, value in data.items() if value is not None}
        if "max_output_tokens" in data:
            data.setdefault("max_tokens", data.pop("max_output_tokens"))
        if isinstance(data.get("stop"), str):
            data["stop"] = [data["stop"]]
        _fill_name(data)
        if "max_retries" not in data and (found := getenv("REIN_NB_MAX_RETRIES")):
            data["max_retries"] = found[1]
        spec = find_spec(str(data.get("provider")))
        if spec is not None and "api_key" not in data and (found := getenv(*spec.variables())):
            data["api_key"] = found[1]
        return data

    @field_validator("api_key", mode="after")
    @classmethod
    def _usable_key(cls, key: SecretStr | None) -> SecretStr | None:
        if key is None:
            return None
        value = key.get_secret_value().strip()
        if not value:
            return None
        if set(value) == {"*"}:
            raise ValueError("the key is masked (a dumped config keeps no key); give the key again")
        if not value.isascii() or any(ch.isspace() for ch in value):
            raise ValueError("the key has a space or a character that no key has; was more than the key copied?")
        REDACTOR.register(value)
        return SecretStr(value)

    @field_validator("headers", mode="after")
    @classmethod
    def _known_secrets(cls, headers: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, secret in headers.items():
            value = secret.get_secret_value()
            if not re.fullmatch(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+", name) or "\n" in value or "\r" in value:
                raise ValueError(f"{name!r} is not a header that HTTP allows")
            if name.lower() in SECRET_HEADERS or redact({name: value}) != {name: value}:
                REDACTOR.register(value)
                REDACTOR.register(value.rpartition(" ")[2])
        return headers

    @field_validator("base_url", mode="after")
    @classmethod
    def _http_url(cls, url: str | None) -> str | None:
        return None if url is None else check_url(url)

    @model_validator(mode="after")
    def _options_in_range(self) -> Config:
        self.options()
        return self

    def options(self) -> Options:
        """The default options of each call."""
        given = {name: getattr(self, name) for name in _OPTION_FIELDS if getattr(self, name) is not None}
        return Options(**given, extensions=self.extensions)

    @property
    def name(self) -> str:
        """``provider/model``."""
        return f"{self.provider}/{self.model}"

    def __reduce__(self) -> tuple[Any, ...]:
        # A pickle travels: to a cluster's workers, into caches. Keys do not; they are read from the environment there.
        fields = {name: value for name, value in self if name not in ("api_key", "headers")}
        fields["headers"] = {
            name: value.get_secret_value()
            for name, value in self.headers.items()
            if name.lower() not in SECRET_HEADERS
            and redact({name: value.get_secret_value()}) == {name: value.get_secret_value()}
        }
        return _restore, (type(self), fields)


def _restore(cls: type[Config], fields: dict[str, Any]) -> Config:
    return cls(**fields)


def _fill_name(data: dict[str, Any]) -> None:
    if "model" not in data and (found := getenv("REIN_NB_MODEL")):
        data["model"] = found[1]
    if "provider" not in data and (found := getenv("REIN_NB_PROVIDER")):
        data["provider"] = found[1]
    model = data.get("model")
    if "provider" not in data and isinstance(model, str) and "/" in model:
        data["provider"], _, data["model"] = model.partition("/")


def check_url(url: str) -> str:
    """`url` without white space and trailing slash.

    Raises
    ------
    ValueError
        When it is not an http(s) URL.
    """
    url = url.strip().rstrip("/")
    if not re.match(r"https?://[^\s/]+", url):
        raise ValueError(f"{redact(url)!r} is not an http(s) URL")
    return url


def resolve_base_url(config: Config, spec: ProviderSpec) -> str:
    """Where the API begins: as configured, else as the environment says, else the provider's own address.

    Raises
    ------
    ValueError
        When it is not known; the message says what to set.
    """
    if config.base_url is not None:
        return config.base_url
    names = spec.base_url_variables()
    if found := getenv(*names):
        value = found[1]
        return check_url(value if "://" in value else f"http://{value}")
    if spec.base_url is None:
        raise ValueError(f"no base URL for provider {spec.name!r}: give base_url=..., or set {' or '.join(names)}")
    missing: list[str] = []

    def fill(match: re.Match[str]) -> str:
        name = match[1]
        value = config.extra.get(name.lower()) or config.extra.get(name)
        if not value and (found := getenv(name)):
            value = found[1]
        if not value:
            missing.append(name)
        return str(value).rstrip("/")

    url = re.sub(r"\{([A-Z_]+)\}", fill, spec.base_url)
    if missing:
        raise ValueError(
            f"no base URL for provider {spec.name!r}: give base_url=..., or set {' and '.join(missing)} ({spec.base_url})"
        )
    return check_url(url if "://" in url else f"https://{url}")


def require_key(config: Config, spec: ProviderSpec) -> None:
    """Raise `ValueError`, saying which variables were looked at, when a key is needed and there is none."""
    if spec.opt_in and not config.extra.get("opt_in"):
        raise ValueError(
            f"provider {spec.name!r} is off unless asked for: {spec.opt_in}. To use it, give extra={{'opt_in': True}}"
        )
    if spec.needs_key and config.api_key is None and not _has_auth_header(config):
        raise ValueError(
            f"no API key for provider {spec.name!r}: give api_key=..., or set {' or '.join(spec.variables())} "
            "(looked in the environment and in .env)"
        )


def _has_auth_header(config: Config) -> bool:
    return any(name.lower() in SECRET_HEADERS and name.lower() != "cookie" for name in config.headers)


__all__ = ["Config", "Timeouts", "check_url", "env_name", "require_key", "resolve_base_url"]
