"""Is a transcript one that a provider accepts? Checked against the providers' documented rules.

The rules are written from the API references, not from our encoders, so that they can judge them: which roles and blocks there are, that
every tool call is answered once and where its answer must stand, which ids and names are accepted, that nothing is empty, and that
signed or encrypted reasoning comes back in a form that its provider takes.

One table of rules a dialect: `rules_chat`, `rules_responses`, `rules_anthropic`, `rules_google`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rein_nb.dialects.base import Codec, Target
from rein_nb.ir import Message, Request, ToolSpec
from rein_nb.testing.rules_anthropic import check_anthropic
from rein_nb.testing.rules_chat import check_chat
from rein_nb.testing.rules_google import check_code_assist, check_google
from rein_nb.testing.rules_responses import check_responses
from rein_nb.testing.violations import Report, Violation

TARGETS: dict[str, str] = {
    "openai-chat": "openai-chat/gpt-4.1",
    "openai-responses": "openai/gpt-5",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "deepseek": "deepseek/deepseek-reasoner",
    "google": "google/gemini-3-flash-preview",
    "google-code-assist": "antigravity/gemini-2.5-pro",
}
"""The six targets that a hand-off is checked against, by the short names that `validate_transcript` takes: provider and model."""

_CHECKS = {
    "openai-chat": check_chat,
    "openai-responses": check_responses,
    "anthropic": check_anthropic,
    "google": check_google,
    "google-code-assist": check_code_assist,
}


def validate_transcript(
    transcript: Mapping[str, Any] | Sequence[Message],
    target: Target | str,
    *,
    tools: Sequence[ToolSpec] = (),
) -> list[Violation]:
    """What the target's API would refuse in a transcript; an empty list when it is sound.

    Parameters
    ----------
    transcript
        The body of a request as it goes over the wire, or neutral messages, which are then handed off and encoded first.
    target
        Who it is for: a `Target`, a name in `TARGETS`, or ``provider/model``.
    tools
        Tools to offer with neutral messages.

    Raises
    ------
    ValueError
        For an unknown target name or dialect.

    Examples
    --------
    >>> from rein_nb.ir import ToolCall
    >>> cut_off = [Message(role="user", content="go"), Message(role="assistant", content=[ToolCall(id="a|b", name="ls")])]
    >>> validate_transcript(cut_off, "anthropic")
    []
    >>> body = {"max_tokens": 9, "messages": [{"role": "user", "content": " "}]}
    >>> [violation.rule for violation in validate_transcript(body, "anthropic")]
    ['empty-text']
    """
    where = target_of(target) if isinstance(target, str) else target
    if where.dialect not in _CHECKS:
        raise ValueError(f"no rules for the dialect {where.dialect!r}; there are rules for {', '.join(_CHECKS)}")
    if isinstance(transcript, Mapping):
        body: Mapping[str, Any] = transcript
    else:
        request = Request.make(list(transcript), tools=list(tools))
        body = _codec(where.dialect).encode(request, where, stream=False).body
    report = Report()
    report.text(body)
    _CHECKS[where.dialect](dict(body), where, report)
    return report.violations


def target_of(name: str) -> Target:
    """The target that a short name in `TARGETS` or a ``provider/model`` stands for, with what is known of both.

    Raises
    ------
    ValueError
        For an unknown provider, or one whose dialect has no rules here.
    """
    from rein_nb.providers.capabilities import capabilities, quirks_for
    from rein_nb.providers.spec import find_spec

    provider, _, model = TARGETS.get(name, name).partition("/")
    spec = find_spec(provider) if model else None
    if spec is None:
        raise ValueError(f"unknown target {name!r}; 'provider/model' and these names are known: {', '.join(TARGETS)}")
    if spec.dialect not in _CHECKS:
        raise ValueError(f"no rules for the dialect {spec.dialect!r}; there are rules for {', '.join(_CHECKS)}")
    return Target(
        provider=provider,
        dialect=spec.dialect,
        model=model,
        quirks=quirks_for(spec.quirks, spec.dialect, model),
        capabilities=capabilities(model),
    )


def _codec(dialect: str) -> Codec:
    from rein_nb.providers.codecs import codec_for

    return codec_for(dialect)


__all__ = ["TARGETS", "Violation", "target_of", "validate_transcript"]
