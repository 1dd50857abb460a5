"""What is known of each model family, as data, by pattern. A model that no row knows gets no limits and no extras.

A row's facts come from the vendor's documentation named beside it. `context_window` asks the price list for windows that no row states.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from rein_nb.dialects.base import Capabilities, Quirks

_SAMPLING = frozenset({"temperature", "top_p", "top_k"})
_OPENAI_REASONING = frozenset(
    # https://platform.openai.com/docs/guides/reasoning#limitations
    {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs"}
)
_TEXT = frozenset[str]()
_IMAGE = frozenset({"image"})
_IMAGE_PDF = frozenset({"image", "document"})
_ALL_MEDIA = frozenset({"image", "audio", "video", "document"})


@dataclass(frozen=True, slots=True)
class Family:
    """One row: the models it is about, and what is known of them.

    Attributes
    ----------
    pattern
        Matched against the start of the model's own name: lower case, without vendor prefixes (``openai/``, ``us.anthropic.``).
    capabilities
        Fields of `Capabilities`.
    quirks
        Fields of `Quirks` that this model has in place of its provider's, on the dialects named by `dialects`.
    dialects
        The dialects whose quirks these are.
    """

    pattern: str
    capabilities: Mapping[str, Any]
    quirks: Mapping[str, Any] = field(default_factory=dict)
    dialects: tuple[str, ...] = ("openai-chat", "openai-responses")


def _family(pattern: str, *, quirks: Mapping[str, Any] | None = None, **capabilities: Any) -> Family:
    return Family(pattern, capabilities, quirks or {})


def _claude(pattern: str, *, adaptive: bool = False, **capabilities: Any) -> Family:
    """A Claude model: strict tools came with structured output, adaptive thinking with 4.6."""
    quirks: dict[str, Any] = {"adaptive_thinking": True} if adaptive else {}
    if capabilities.get("structured_output"):
        quirks["strict_tools"] = True
    return Family(pattern, capabilities, quirks, ("anthropic",))


_GPT5: dict[str, Any] = {"media_in": _IMAGE_PDF, "tools": True, "structured_output": True}
_GPT4: dict[str, Any] = {"media_in": _IMAGE_PDF, "tools": True, "structured_output": True}
_O_SERIES: dict[str, Any] = {
    "context_window": 200_000, "max_output_tokens": 100_000, "tools": True, "structured_output": True,
    "unsupported_options": _OPENAI_REASONING | {"top_k"}, "reasoning_efforts": ("low", "medium", "high"),
}  # fmt: skip
_CLAUDE: dict[str, Any] = {"media_in": _IMAGE_PDF, "tools": True}
_CLAUDE_ADAPTIVE: dict[str, Any] = {
    # https://platform.claude.com/docs/en/about-claude/models/migration-guide: from Opus 4.7 on, sampling is not the caller's.
    **_CLAUDE, "context_window": 1_000_000, "structured_output": True, "unsupported_options": _SAMPLING,
    "reasoning_efforts": ("low", "medium", "high", "xhigh", "max"),
}  # fmt: skip
_GEMINI: dict[str, Any] = {"media_in": _ALL_MEDIA, "tools": True, "structured_output": True}
_R1: dict[str, Any] = {
    "unsupported_options": frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs"})
}

FAMILIES: tuple[Family, ...] = (
    # -- OpenAI: https://platform.openai.com/docs/models ------------------------------------------
    _family(r"gpt-5(\.\d)?-chat|gpt-chat-latest", context_window=128_000, max_output_tokens=16_384, **_GPT5),
    _family(r"gpt-5-pro", context_window=400_000, max_output_tokens=272_000,
            unsupported_options=_OPENAI_REASONING, reasoning_efforts=("high",), **_GPT5),
    _family(r"gpt-5-codex", context_window=400_000, max_output_tokens=128_000,
            unsupported_options=_OPENAI_REASONING, reasoning_efforts=("low", "medium", "high"), **_GPT5),
    _family(r"gpt-5(-mini|-nano)?(-\d{4}|$)", context_window=400_000, max_output_tokens=128_000,
            unsupported_options=_OPENAI_REASONING, reasoning_efforts=("minimal", "low", "medium", "high"), **_GPT5),
    # From 5.1 on, sampling options are accepted when the effort is "none", so the model as such does not refuse them.
    _family(r"gpt-5\.1-codex-max", context_window=400_000, max_output_tokens=128_000,
            reasoning_efforts=("none", "low", "medium", "high", "xhigh"), **_GPT5),
    _family(r"gpt-5\.1-codex", context_window=400_000, max_output_tokens=128_000,
            reasoning_efforts=("low", "medium", "high"), **_GPT5),
    _family(r"gpt-5\.1(-\d{4}|$)", context_window=400_000, max_output_tokens=128_000,
            reasoning_efforts=("none", "low", "medium", "high"), **_GPT5),
    _family(r"gpt-5\.2(-\d{4}|$)", context_window=400_000, max_output_tokens=128_000,
            reasoning_efforts=("none", "low", "medium", "high", "xhigh"), **_GPT5),
    _family(r"gpt-[56]", **_GPT5),
    _family(r"o1-(mini|preview)", context_window=128_000, tools=False, structured_output=False, media_in=_TEXT,
            unsupported_options=_OPENAI_REASONING | {"stop"}, quirks={"developer_role": False, "parallel_tool_calls": False}),
    _family(r"o3-mini", media_in=_TEXT, **_O_SERIES),
    _family(r"(o3|o4-mini)", media_in=_IMAGE_PDF, **{**_O_SERIES, "unsupported_options": _OPENAI_REASONING | {"stop"}}),
    _family(r"o1", media_in=_IMAGE_PDF, quirks={"parallel_tool_calls": False}, **_O_SERIES),
    _family(r"gpt-4\.1", context_window=1_047_576, max_output_tokens=32_768, **_GPT4),
    _family(r"gpt-4o-(mini-)?audio|gpt-audio", context_window=128_000, max_output_tokens=16_384,
            media_in=frozenset({"audio"}), tools=True),
    _family(r"gpt-4o-(mini-)?search", context_window=128_000, max_output_tokens=16_384,
            unsupported_options=_OPENAI_REASONING | {"seed", "stop"}),
    _family(r"gpt-4o-2024-05-13", context_window=128_000, max_output_tokens=4_096, media_in=_IMAGE_PDF, tools=True,
            structured_output=False),
    _family(r"(chat)?gpt-4o", context_window=128_000, max_output_tokens=16_384, **_GPT4),
    _family(r"gpt-4-turbo|gpt-4-vision", context_window=128_000, max_output_tokens=4_096, media_in=_IMAGE, tools=True,
            structured_output=False),
    _family(r"gpt-4-32k", context_window=32_768, media_in=_TEXT, structured_output=False),
    _family(r"gpt-4(-\d{4}|$)", context_window=8_192, media_in=_TEXT, structured_output=False),
    _family(r"gpt-3\.5-turbo-instruct", context_window=4_096, media_in=_TEXT, tools=False, structured_output=False),
    _family(r"gpt-3\.5-turbo", context_window=16_385, max_output_tokens=4_096, media_in=_TEXT, structured_output=False),
    _family(r"gpt-oss", context_window=131_072, media_in=_TEXT, tools=True, reasoning_efforts=("low", "medium", "high")),
    # -- Anthropic: https://platform.claude.com/docs/en/about-claude/models/overview --------------
    _claude(r"claude-(opus-4-[78]|(opus|sonnet|haiku|fable|mythos)-([5-9]|\d\d))", adaptive=True, **_CLAUDE_ADAPTIVE),
    _claude(r"claude-(opus|sonnet)-4-6", adaptive=True, context_window=1_000_000, structured_output=True,
            reasoning_efforts=("low", "medium", "high", "max"), **_CLAUDE),
    _claude(r"claude-opus-4-5", context_window=200_000, max_output_tokens=64_000, structured_output=True,
            reasoning_efforts=("low", "medium", "high"), **_CLAUDE),
    _claude(r"claude-(sonnet|haiku)-4-5", context_window=200_000, max_output_tokens=64_000, structured_output=True, **_CLAUDE),
    _claude(r"claude-opus-4-1", context_window=200_000, max_output_tokens=32_000, structured_output=True, **_CLAUDE),
    _claude(r"claude-(opus-4|4-opus)", context_window=200_000, max_output_tokens=32_000, structured_output=False, **_CLAUDE),
    _claude(r"claude-(sonnet-4|4-sonnet)", context_window=200_000, max_output_tokens=64_000, structured_output=False, **_CLAUDE),
    _claude(r"claude-3-7-sonnet", context_window=200_000, max_output_tokens=64_000, structured_output=False, **_CLAUDE),
    _claude(r"claude-3-5", context_window=200_000, max_output_tokens=8_192, structured_output=False, **_CLAUDE),
    _claude(r"claude-3", context_window=200_000, max_output_tokens=4_096, media_in=_IMAGE, tools=True, structured_output=False),
    # -- Google: https://ai.google.dev/gemini-api/docs/models -------------------------------------
    _family(r"gemini-.*-(tts|image|live|native-audio)"),
    _family(r"gemini-3.*-flash", context_window=1_048_576, max_output_tokens=65_536,
            reasoning_efforts=("minimal", "low", "medium", "high"), **_GEMINI),
    _family(r"gemini-3(\.\d)?-pro", context_window=1_048_576, max_output_tokens=65_536,
            reasoning_efforts=("low", "high") , **_GEMINI),
    _family(r"gemini-2\.5-(pro|flash)", context_window=1_048_576, max_output_tokens=65_536, **_GEMINI),
    _family(r"gemini-2\.0", context_window=1_048_576, max_output_tokens=8_192, **_GEMINI),
    _family(r"gemini-1\.5-pro", context_window=2_097_152, max_output_tokens=8_192, **_GEMINI),
    _family(r"gemini-1\.5", context_window=1_048_576, max_output_tokens=8_192, **_GEMINI),
    _family(r"gemini", **_GEMINI),
    _family(r"gemma", media_in=None, tools=None),
    # -- DeepSeek: https://api-docs.deepseek.com/guides/thinking_mode -----------------------------
    # R1 refused reasoning_content in its input; from V3.2 on it must go back within a turn that called tools.
    _family(r"deepseek-r1", media_in=_TEXT, quirks={"reasoning_replay": "never"}, **_R1),
    _family(r"deepseek-reasoner", media_in=_TEXT, tools=True,
            quirks={"reasoning_replay": "tool_turns", "reasoning_field": "reasoning_content"}, **_R1),
    _family(r"deepseek-chat", media_in=_TEXT, tools=True),
    _family(r"deepseek-v4", context_window=1_000_000, media_in=_TEXT, tools=True,
            quirks={"reasoning_replay": "tool_turns", "reasoning_field": "reasoning_content"}),
    # -- others -----------------------------------------------------------------------------------
    _family(r"grok-3-mini", context_window=131_072, media_in=_TEXT, tools=True, structured_output=True,
            reasoning_efforts=("low", "high"), unsupported_options=frozenset({"presence_penalty", "frequency_penalty", "stop"})),
    _family(r"grok-(4|code)", media_in=_IMAGE, tools=True, structured_output=True,
            unsupported_options=frozenset({"presence_penalty", "frequency_penalty", "stop"})),
    _family(r"magistral|mistral-(small|medium|large)|ministral|pixtral", media_in=_IMAGE_PDF, tools=True, structured_output=True,
            unsupported_options=frozenset({"top_k", "logprobs"})),
    _family(r"kimi-k2-thinking|kimi-k2\.\d|kimi-k3", tools=True,
            quirks={"reasoning_field": "reasoning_content", "reasoning_replay": "always"}),
    _family(r"qwq|qwen3.*thinking", media_in=_TEXT, tools=True),
)  # fmt: skip

_COMPILED = tuple((re.compile(family.pattern), family) for family in FAMILIES)
_VENDOR = re.compile(r"^(?:[a-z]{2,6}\.)?(?:anthropic|openai|google|deepseek|mistral|meta|amazon|xai|qwen|zai)\.")


def family_name(model: str) -> str:
    """A model's own name: lower case, no gateway or vendor prefix, no ``models/``, ``@`` as ``-``, dots in Claude versions as ``-``.

    Examples
    --------
    >>> family_name("openrouter/anthropic/claude-opus-4.5"), family_name("us.anthropic.claude-sonnet-4-5-v1:0")
    ('claude-opus-4-5', 'claude-sonnet-4-5-v1:0')
    """
    name = _VENDOR.sub("", model.lower().rsplit("/", 1)[-1]).replace("@", "-")
    name = (
        name.removeprefix("databricks-").removeprefix("openai-")
        if name.startswith(("databricks-", "openai-"))
        else name
    )
    if name.startswith("claude"):
        name = re.sub(r"(?<=\d)\.(?=\d)", "-", name)
        # Some gateways write the version first: claude-4-5-sonnet.
        swapped = re.match(r"claude-(\d-\d|[4-9])-(opus|sonnet|haiku)(.*)", name)
        if swapped and not name.startswith(("claude-3-5", "claude-3-7")):
            name = f"claude-{swapped[2]}-{swapped[1]}{swapped[3]}"
    return name


@functools.lru_cache(maxsize=1024)
def find_family(model: str) -> Family | None:
    """The first row whose pattern the model's own name starts with; None for a model that no row knows."""
    name = family_name(model)
    for pattern, family in _COMPILED:
        if pattern.match(name):
            return family
    return None


def capabilities(model: str) -> Capabilities:
    """What is known of a model; nothing for one that no row knows.

    Examples
    --------
    >>> sorted(capabilities("gpt-5").unsupported_options)[:2]
    ['frequency_penalty', 'logprobs']
    >>> capabilities("somebody/new-model").context_window is None
    True
    """
    family = find_family(model)
    return Capabilities(**family.capabilities) if family is not None else Capabilities()


def quirks_for(quirks: Quirks, dialect: str, model: str) -> Quirks:
    """A provider's quirks with those of one model laid over them."""
    family = find_family(model)
    if family is None or not family.quirks or dialect not in family.dialects:
        return quirks
    return replace(quirks, **family.quirks)


def context_window(model: str, *, provider: str | None = None) -> int | None:
    """A model's context window in tokens: as a row states it, else as the price list does, else None."""
    known = capabilities(model).context_window
    if known is not None:
        return known
    from rein_nb.providers.prices import find_model

    found = find_model(model, provider=provider)
    return found.context_window if found is not None else None
