"""Config: arguments, environment, .env; the registry; and the errors that say what to do."""

from __future__ import annotations

import os

import pytest
from pydantic import ValidationError

from rein_nb.dialects.base import Quirks
from rein_nb.ir.deltas import End, Finish, Text
from rein_nb.llm import LLM, Config
from rein_nb.providers import Timeouts, open_provider, provider_names, register_provider, spec
from rein_nb.providers.config import resolve_base_url
from rein_nb.providers.dotenv import parse_dotenv
from rein_nb.providers.presets import PRESETS
from rein_nb.providers.spec import DIALECTS, find_spec

KEY = "sk-test-000000000000"


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is gone after it."""
    provider_names()
    monkeypatch.setattr(spec, "_specs", dict(spec._specs))
    monkeypatch.setattr(spec, "_custom", dict(spec._custom))


# -- errors of the seed ------------------------------------------------------------------------------


def test_only_a_config_makes_an_llm():
    for wrong in ("openai/gpt-5", {"provider": "openai"}, None):
        with pytest.raises(TypeError, match=f"got {type(wrong).__name__}"):
            LLM(wrong)


def test_an_unknown_provider_names_the_known_ones():
    with pytest.raises(ValueError, match=r"'opnai'; did you mean 'openai'\?.*anthropic, .*openai-chat"):
        LLM(Config(provider="opnai", model="x", api_key=KEY))
    with pytest.raises(ValueError, match="Known providers"):
        Config.of("nobody/x")


def test_a_missing_key_says_where_was_looked():
    with pytest.raises(
        ValueError, match=r"'openai'.*REIN_NB_OPENAI_API_KEY or OPENAI_API_KEY.*environment and in \.env"
    ):
        LLM(Config(provider="openai", model="gpt-5"))
    with pytest.raises(ValueError, match="GEMINI_API_KEY or GOOGLE_API_KEY"):
        LLM(Config(provider="google", model="gemini-2.5-pro"))


def test_a_missing_address_says_what_to_set():
    with pytest.raises(ValueError, match=r"AZURE_OPENAI_ENDPOINT"):
        LLM(Config(provider="azure", model="gpt-5", api_key=KEY))
    with pytest.raises(ValueError, match=r"base_url=.*REIN_NB_BASE_URL"):
        LLM(Config(provider="openai-compatible", model="x"))


def test_the_unofficial_endpoint_is_off_unless_asked_for():
    with pytest.raises(ValueError, match=r"off unless asked for.*opt_in"):
        LLM(Config(provider="antigravity", model="gemini-2.5-pro", api_key=KEY))
    LLM(Config(provider="antigravity", model="gemini-2.5-pro", api_key=KEY, extra={"opt_in": True}))


@pytest.mark.parametrize("name", ["gpt-5", "/gpt-5", "openai/", ""])
def test_names_have_two_sides(name):
    with pytest.raises(ValueError, match="provider/model"):
        Config.of(name)


def test_a_models_name_may_have_slashes():
    config = Config.of("openrouter/anthropic/claude-sonnet-4.5", api_key=KEY)
    assert (config.provider, config.model, config.name) == (
        "openrouter", "anthropic/claude-sonnet-4.5", "openrouter/anthropic/claude-sonnet-4.5",
    )  # fmt: skip


# -- where values come from --------------------------------------------------------------------------


def test_the_key_comes_from_the_argument_else_ours_else_the_vendors_variable(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendor-0000000000")
    assert Config(provider="openai", model="m").api_key.get_secret_value() == "sk-vendor-0000000000"
    monkeypatch.setenv("REIN_NB_OPENAI_API_KEY", "sk-ours-000000000000")
    assert Config(provider="openai", model="m").api_key.get_secret_value() == "sk-ours-000000000000"
    assert Config(provider="openai", model="m", api_key=f" {KEY}\n").api_key.get_secret_value() == KEY
    assert Config(provider="anthropic", model="m").api_key is None


def test_one_vendors_key_never_goes_to_another(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-vendor-0000000000")
    for name in provider_names():
        config = Config(provider=name, model="m")
        if name not in ("openai", "openai-chat"):
            assert config.api_key is None, name


def test_dotenv_fills_in_and_never_overrides(monkeypatch, tmp_path):
    (tmp_path / ".env").write_text(
        "OPENAI_API_KEY='sk-file-00000000000'\nexport GROQ_API_KEY=gsk_file00000000000000 # mine\n"
    )
    assert Config(provider="openai", model="m").api_key.get_secret_value() == "sk-file-00000000000"
    assert Config(provider="groq", model="m").api_key.get_secret_value() == "gsk_file00000000000000"
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real-00000000000")
    assert Config(provider="openai", model="m").api_key.get_secret_value() == "sk-real-00000000000"
    assert "GROQ_API_KEY" not in os.environ
    (tmp_path / ".env").write_text("GROQ_API_KEY=gsk_changed0000000000000\n")
    assert Config(provider="groq", model="m").api_key.get_secret_value() == "gsk_changed0000000000000"


@pytest.mark.parametrize(
    ("line", "value"),
    [
        ("A=1", "1"), ("A = 1 ", "1"), ("export A=1", "1"), ("A='x # y'", "x # y"), ('A="a\\nb" # c', "a\nb"), ("A=x#y", "x#y"),
        ("A=x #y", "x"), ("A=", ""), ('A="unclosed', '"unclosed'), ("A=#x", ""), ("A=a=b", "a=b"), ("A=\u6d77", "\u6d77"),
    ],
)  # fmt: skip
def test_dotenv_lines(line, value):
    assert parse_dotenv(f"\ufeff# first\nno assignment here\n{line}\n") == {"A": value}


def test_provider_and_model_from_the_environment(monkeypatch):
    monkeypatch.setenv("REIN_NB_MODEL", "groq/llama-3.3-70b-versatile")
    monkeypatch.setenv("REIN_NB_MAX_RETRIES", "5")
    config = Config.from_env(api_key=KEY)
    assert (config.provider, config.model, config.max_retries) == ("groq", "llama-3.3-70b-versatile", 5)
    monkeypatch.setenv("REIN_NB_PROVIDER", "openrouter")
    assert Config.from_env().name == "openrouter/groq/llama-3.3-70b-versatile"


def test_base_urls(monkeypatch):
    def url(provider, **fields):
        return resolve_base_url(Config(provider=provider, model="m", **fields), find_spec(provider))

    assert url("openai") == "https://api.openai.com/v1"
    assert url("openai", base_url="http://127.0.0.1:1/v1/ ") == "http://127.0.0.1:1/v1"
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:2/v1")
    assert url("openai-chat") == "http://127.0.0.1:2/v1"
    monkeypatch.setenv("OLLAMA_HOST", "127.0.0.1:9999")
    assert url("ollama") == "http://127.0.0.1:9999"
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", "https://example.openai.azure.com/")
    assert url("azure") == "https://example.openai.azure.com/openai/v1"
    assert (
        url("cloudflare", extra={"cloudflare_account_id": "abc"})
        == "https://api.cloudflare.com/client/v4/accounts/abc/ai/v1"
    )
    with pytest.raises(ValidationError, match="not an http"):
        Config(provider="openai", model="m", base_url="ftp://x")


# -- the object --------------------------------------------------------------------------------------


def test_it_is_frozen_and_knows_its_fields():
    config = Config(provider="openai", model="m", api_key=KEY)
    with pytest.raises(ValidationError):
        config.model = "other"
    with pytest.raises(ValidationError, match="temprature"):
        Config(provider="openai", model="m", temprature=1)
    assert config.timeouts == Timeouts(connect_s=10, first_byte_s=120, idle_s=120, total_s=None)


def test_defaults_of_options():
    config = Config(
        provider="openai", model="m", temperature=0, max_tokens=9, stop="x", extensions={"openai": {"a": 1}}
    )
    assert config.options().given() == {"temperature": 0, "max_output_tokens": 9, "stop": ["x"]}
    assert config.options().extensions == {"openai": {"a": 1}}
    assert Config(provider="openai", model="m", max_output_tokens=3).max_tokens == 3
    with pytest.raises(ValidationError, match="top_p"):
        Config(provider="openai", model="m", top_p=7)


@pytest.mark.parametrize("key", ["sk two words", "sk-\u6d77", "**********"])
def test_keys_that_cannot_be_keys_are_refused_without_showing_them(key):
    with pytest.raises(ValidationError) as caught:
        Config(provider="openai", model="m", api_key=key)
    assert key not in str(caught.value)


def test_headers_that_http_does_not_allow_are_refused():
    for headers in ({"X A": "1"}, {"X-A": "1\r\nX-B: 2"}, {"": "1"}):
        with pytest.raises(ValidationError, match="header"):
            Config(provider="openai", model="m", headers=headers)


# -- the registry ------------------------------------------------------------------------------------


def test_presets_are_complete():
    names = [preset.name for preset in PRESETS]
    assert len(names) == len(set(names)) > 40
    for preset in PRESETS:
        assert preset.dialect in DIALECTS, preset.name
        assert preset.docs or preset.endpoint == "local", preset.name
        assert preset.key_env or not preset.needs_key, preset.name
        assert (preset.sdk is None) == (preset.dialect in ("google", "google-code-assist", "ollama")), preset.name
        if preset.base_url and "{" not in preset.base_url:
            assert preset.base_url.startswith(("https://", "http://localhost")), preset.name
            assert not preset.base_url.endswith("/"), preset.name


def test_registering_an_endpoint(registry):
    register_provider(
        "lab",
        dialect="openai-chat",
        base_url="http://127.0.0.1:8000/v1",
        quirks={"think_tags": True},
        key_env="LAB_KEY",
    )
    made = find_spec("lab")
    assert (made.sdk, made.quirks.think_tags, made.needs_key, made.variables()) == (
        "openai", True, True, ("REIN_NB_LAB_API_KEY", "LAB_KEY"),
    )  # fmt: skip
    with pytest.raises(ValueError, match="LAB_KEY"):
        LLM(Config(provider="lab", model="m"))
    assert LLM.named("lab/m", api_key=KEY).target().quirks.think_tags


def test_registering_one_like_another(registry):
    register_provider("groq-eu", like="groq", base_url="https://groq.example/v1", quirks={"stream_usage": False})
    made, groq = find_spec("groq-eu"), find_spec("groq")
    assert made.quirks == Quirks(**{**_fields(groq.quirks), "stream_usage": False})
    assert (made.base_url, made.key_env) == ("https://groq.example/v1", groq.key_env)


def _fields(quirks):
    return {name: getattr(quirks, name) for name in quirks.__dataclass_fields__}


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "a b", "dialect": "openai-chat"}, ValueError, "cannot be a provider's name"),
        ({"name": "x"}, ValueError, "give a dialect"),
        ({"name": "x", "dialect": "klingon"}, ValueError, "known: openai-chat"),
        ({"name": "x", "like": "nobody"}, ValueError, "unknown provider"),
        ({"name": "x", "provider": object()}, TypeError, "stream"),
        ({"name": "x", "provider": int}, TypeError, "stream"),
        ({"name": "x", "dialect": "openai-chat", "quirks": {"nonsense": 1}}, TypeError, "nonsense"),
        ({"name": "x", "provider": object(), "dialect": "openai-chat"}, ValueError, "not both"),
    ],
)
def test_registering_what_makes_no_sense(registry, arguments, error, message):
    with pytest.raises(error, match=message):
        register_provider(**arguments)


class Echo:
    def __init__(self, config=None):
        self.config = config

    async def stream(self, request):
        yield Text(request.messages[-1].text.upper())
        yield [Finish("stop"), End()]


@pytest.mark.parametrize("given", [Echo, Echo(), lambda config: Echo(config), lambda: Echo()])
async def test_a_class_of_ones_own(registry, given):
    register_provider("echo", given)
    llm = LLM(Config(provider="echo", model="m"))
    assert (await llm.achat("hi")).text == "HI"
    assert llm.backend.name == "echo"
    if given is Echo:
        assert llm.backend.config is llm.config
    with pytest.raises(TypeError, match="takes no client"):
        open_provider(llm.config, client=object())
