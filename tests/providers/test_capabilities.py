"""What is known of models: rows for families, nothing for strangers."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from rein_nb.dialects.base import Capabilities, Quirks
from rein_nb.ir import Options, UnsupportedOption
from rein_nb.llm import LLM, Config
from rein_nb.providers.capabilities import FAMILIES, capabilities, context_window, family_name, find_family, quirks_for
from tests.support import load_recording, recordings

KEY = "sk-test-000000000000"


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "gpt-4o"), ("openai/gpt-5", "gpt-5"), ("openrouter/anthropic/claude-opus-4.5", "claude-opus-4-5"),
        ("us.anthropic.claude-sonnet-4-5-v1:0", "claude-sonnet-4-5-v1:0"), ("claude-3-7-sonnet@20250219", "claude-3-7-sonnet-20250219"),
        ("databricks-claude-3-7-sonnet", "claude-3-7-sonnet"), ("openai-gpt-4.1", "gpt-4.1"), ("models/gemini-2.5-pro", "gemini-2.5-pro"),
        ("anthropic/claude-4.7-opus", "claude-opus-4-7"), ("claude-3.5-haiku", "claude-3-5-haiku"), ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
    ],
)  # fmt: skip
def test_family_names(model, name):
    assert family_name(model) == name


@pytest.mark.parametrize(
    ("model", "window", "refused"),
    [
        ("gpt-4o-2024-08-06", 128_000, set()),
        (
            "gpt-5-mini-2025-08-07",
            400_000,
            {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs"},
        ),
        ("gpt-5.4", 1_050_000, set()),
        ("gpt-5-chat-latest", 128_000, set()),
        ("o3", 200_000, {"temperature", "top_p", "presence_penalty", "frequency_penalty", "logprobs", "stop"}),
        ("claude-sonnet-4-5-20250929", 200_000, set()),
        ("claude-opus-4-7", 1_000_000, {"temperature", "top_p", "top_k"}),
        ("claude-sonnet-5", 1_000_000, {"temperature", "top_p", "top_k"}),
        ("claude-opus-4-6", 1_000_000, set()),
        ("gemini-3-pro-preview", 1_048_576, set()),
        ("mistral-large-latest", None, {"top_k", "logprobs"}),
    ],
)
def test_rows(model, window, refused):
    assert context_window(model, provider="openai") == window
    assert capabilities(model).unsupported_options == refused


@pytest.mark.parametrize("model", ["somebody/new-model", "gpt", "claude", "llama-3.3-70b-versatile", ""])
def test_strangers_have_no_limits_and_no_extras(model):
    assert capabilities(model) == Capabilities()
    assert quirks_for(Quirks(), "openai-chat", model) == Quirks()
    assert context_window(model) is None


def test_every_row_can_be_reached_and_names_real_options():
    for family in FAMILIES:
        re.compile(family.pattern)
        made = Capabilities(**family.capabilities)
        assert made.unsupported_options <= set(Options.model_fields)
        quirks_for(Quirks(), "openai-chat", "x")
        Quirks(**family.quirks)
    assert find_family("o1-mini").pattern == r"o1-(mini|preview)"


def test_a_models_quirks_lie_over_its_providers():
    quirks = Quirks(developer_role=True, reasoning_field="reasoning_content", reasoning_replay="tool_turns")
    assert not quirks_for(quirks, "openai-chat", "o1-mini").developer_role
    assert quirks_for(quirks, "openai-chat", "deepseek-r1").reasoning_replay == "never"
    assert quirks_for(quirks, "anthropic", "deepseek-r1") == quirks


@pytest.mark.parametrize(
    ("name", "option"),
    [
        ("openai-chat/gpt-5", {"temperature": 0.5}), ("openai/o3", {"top_p": 0.5}), ("anthropic/claude-opus-4-7", {"temperature": 1.0}),
        ("deepseek/deepseek-reasoner", {"temperature": 0.5}), ("xai/grok-4", {"stop": ["x"]}),
    ],
)  # fmt: skip
def test_an_option_that_a_model_refuses_raises_before_any_io(name, option):
    with pytest.raises(UnsupportedOption, match=next(iter(option))):
        LLM(Config.of(name, api_key=KEY)).astream_events("hi", **option)


_WIRE_NAMES = {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop", "stop_sequences": "stop",
               "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty", "logprobs": "logprobs"}  # fmt: skip


def test_no_row_forbids_what_a_vendor_was_seen_to_accept(shared):
    refused = defaultdict(set)
    seen = 0
    for path in recordings("openai-chat", "openai-responses", "anthropic", "deepseek", "google", "openai-compatible"):
        recording = load_recording(path)
        if recording["provenance"] != "recorded":
            continue
        for exchange in recording["exchanges"]:
            body = exchange["request"]["json"]
            if not isinstance(body, dict) or exchange["response"]["status"] != 200:
                continue
            model = body.get("model") or recording["model"] or ""
            sent = {option for field, option in _WIRE_NAMES.items() if body.get(field) is not None}
            # Adaptive models take a temperature of exactly 1, which is what they use anyway.
            if body.get("temperature") == 1:
                sent.discard("temperature")
            seen += len(sent)
            if wrong := sent & capabilities(model).unsupported_options:
                refused[model] |= wrong
    assert seen > 20
    assert not refused
