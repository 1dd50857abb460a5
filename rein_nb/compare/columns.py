"""The columns of a comparison: what each label stands for, and a fresh agent for each of its cells."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rein_nb.agent import Agent
from rein_nb.agent.arguments import Prompt, as_prompt
from rein_nb.ir import InvalidRequest, Message
from rein_nb.llm import LLM

PromptLike: TypeAlias = Prompt
"""One prompt: text, a message, or a list of texts and media (one message) or of messages."""


@dataclass(frozen=True, slots=True)
class ModelColumn:
    """One column: its label, and what makes a fresh agent for a cell."""

    label: str
    make: Callable[[], Agent]


def as_columns(models: Any, settings: Mapping[str, Any]) -> list[ModelColumn]:
    """Columns from names, LLMs and agents.

    Parameters
    ----------
    models
        A list of names, `LLM` or `Agent`, or a dict from labels to these. Equal labels of a list are numbered.
    settings
        `Agent` arguments for names and LLMs. An `Agent` keeps its own, and is forked for each cell.

    Raises
    ------
    ValueError, TypeError
        When there are no models, or one is none of these; also whatever `Agent` refuses, before anything is sent.
    """
    if isinstance(models, str | LLM | Agent):
        models = [models]
    pairs = list(models.items()) if isinstance(models, Mapping) else [(_label(model), model) for model in models]
    if not pairs:
        raise ValueError(
            "compare needs at least one model, for example models=['openai/gpt-5', 'anthropic/claude-sonnet-4-5']"
        )
    seen: dict[str, int] = {}
    columns = []
    for label, model in pairs:
        label = str(label)
        seen[label] = seen.get(label, 0) + 1
        unique = label if seen[label] == 1 else f"{label} ({seen[label]})"
        columns.append(ModelColumn(unique, _maker(unique, model, settings)))
    return columns


def _label(model: Any) -> str:
    if isinstance(model, str):
        return model
    if isinstance(model, LLM):
        return f"{model.provider}/{model.model}"
    if isinstance(model, Agent):
        return model.label
    raise TypeError(f"a model is a 'provider/model' name, an LLM or an Agent, not {type(model).__name__}")


def _maker(label: str, model: Any, settings: Mapping[str, Any]) -> Callable[[], Agent]:
    if isinstance(model, Agent):
        agent = model
        return lambda: agent.fork(label=label)
    if isinstance(model, str):
        model = LLM.named(model)
    if not isinstance(model, LLM):
        _label(model)
    llm: LLM = model
    return lambda: Agent(llm, label=label, **settings)


def as_prompts(prompts: Any) -> list[list[Message]]:
    """Each prompt as the messages that start its runs.

    Raises
    ------
    ValueError
        When there is none, or one is neither text nor messages.
    """
    items = (
        [prompts] if isinstance(prompts, str | Message) else list(prompts) if isinstance(prompts, Iterable) else None
    )
    if not items:
        raise ValueError("compare needs at least one prompt: a string, a Message, or a list of these")
    made = []
    for n, item in enumerate(items):
        try:
            made.append(as_prompt(item))
        except InvalidRequest as exc:
            raise ValueError(f"prompt {n}: {exc}") from exc
    return made


def prompt_text(messages: Sequence[Message]) -> str:
    """A prompt as one text, for tables and headings."""
    return "\n\n".join(message.text for message in messages)
