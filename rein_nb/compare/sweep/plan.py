"""The grid: rows x models x variants x repeats, each cell with a key that says what it asks."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rein_nb.agent import Agent
from rein_nb.compare.columns import ModelColumn, as_columns
from rein_nb.compare.sweep.dataset import PromptOf, Row, messages_of
from rein_nb.ir import Message
from rein_nb.llm import LLM
from rein_nb.tools import Toolset

_PLAIN = frozenset({"system"})
"""Agent arguments that a bare model call can express too; options come on top."""


@dataclass(slots=True)
class Work:
    """One model in one variant: what is asked, apart from the prompt.

    Attributes
    ----------
    model, variant
        Labels; the variant's is empty where there are none.
    provider
        Whose limits count.
    make
        A fresh agent for a cell.
    llm, settings
        What `make` is made of, where it was a name or an LLM; None for an agent of the user's own.
    system, options
        For a bare model call; options is None where the work needs an agent (tools, output types...).
    fingerprint
        What the answer depends on, apart from the prompt.
    """

    model: str
    variant: str
    provider: str
    make: Any
    llm: LLM | None
    settings: dict[str, Any]
    system: str | None
    options: dict[str, Any] | None
    fingerprint: str
    stream: bool = False


@dataclass(frozen=True, slots=True)
class CellPlan:
    """One cell: its key, its place, and what is asked."""

    key: str
    row_index: int
    repeat: int
    work: Work
    messages: list[Message] = field(repr=False)

    def place(self) -> dict[str, Any]:
        """What the journal keeps of its place in the grid."""
        return {
            "row": self.row_index,
            "model": self.work.model,
            "variant": self.work.variant,
            "repeat": self.repeat,
            "prompt": "\n\n".join(message.text for message in self.messages),
        }


def as_variants(variants: Any) -> dict[str, dict[str, Any]]:
    """Variants by label, from None, a dict of dicts, or a list of dicts (labelled by what they set).

    Raises
    ------
    TypeError, ValueError
        When a variant is no dict, or there are none.
    """
    if variants is None:
        return {"": {}}
    pairs = list(variants.items()) if isinstance(variants, Mapping) else [(None, item) for item in variants]
    if not pairs:
        raise ValueError("variants is empty; leave it out to ask everything in one way")
    found: dict[str, dict[str, Any]] = {}
    for label, settings in pairs:
        if not isinstance(settings, Mapping):
            raise TypeError(
                f"a variant is a dict of settings, for example {{'temperature': 0}}, not {type(settings).__name__}"
            )
        label = str(label) if label is not None else ", ".join(f"{name}={value}" for name, value in settings.items())
        if label in found:
            raise ValueError(f"two variants are called {label!r}; give them labels: variants={{'a': ..., 'b': ...}}")
        found[label] = dict(settings)
    return found


def as_works(
    models: Any, settings: Mapping[str, Any], variants: Mapping[str, Mapping[str, Any]], stream: bool
) -> list[tuple[Work, PromptOf | None]]:
    """Every model in every variant, each with the variant's own prompt where it has one.

    Raises
    ------
    ValueError, TypeError
        For what `Agent` refuses, before anything is sent.
    """
    works: list[tuple[Work, PromptOf | None]] = []
    for label, given in variants.items():
        changes = dict(given)
        prompt = changes.pop("prompt", None)
        options = changes.pop("options", None) or {}
        merged = {**settings, **options, **changes}
        for column, model in zip(as_columns(models, merged), _models(models), strict=True):
            works.append((_work(column, model, label, merged, {**options, **changes}, stream), prompt))
    return works


def _models(models: Any) -> list[Any]:
    if isinstance(models, str | LLM | Agent):
        return [models]
    return list(models.values()) if isinstance(models, Mapping) else list(models)


def _work(
    column: ModelColumn, model: Any, variant: str, settings: dict[str, Any], changes: dict[str, Any], stream: bool
) -> Work:
    make: Any = column.make
    if isinstance(model, Agent) and changes:
        make = lambda: column.make().fork(**changes)  # noqa: E731
    agent = make()  # refuses wrong settings now
    own = isinstance(model, Agent)
    named = {name: value for name, value in settings.items() if value is not None}
    options = {name: value for name, value in named.items() if name not in _PLAIN}
    bare = not own and not agent.tools.names and not set(options) - _option_names()
    llm = agent.llm
    return Work(
        model=column.label,
        variant=variant,
        provider=llm.provider,
        make=make,
        llm=None if own else llm,
        settings={} if own else settings,
        system=agent.system,
        options=options if bare else None,
        fingerprint=_fingerprint(agent, changes if own else named),
        stream=stream,
    )


def _option_names() -> set[str]:
    from rein_nb.ir import Options

    return {*Options.model_fields, "max_tokens"}


def _fingerprint(agent: Agent, settings: Mapping[str, Any]) -> str:
    """What an answer depends on, as text that is the same in every process."""
    facts = {
        "model": f"{agent.llm.provider}/{agent.llm.model}",
        "config": agent.llm.config.options().model_dump(mode="json", exclude_none=True, fallback=str),
        "system": agent.system,
        "history": [message.model_dump(mode="json", fallback=str) for message in agent.messages],
        "tools": [spec.model_dump(mode="json", fallback=str) for spec in agent.tools.specs()],
        "settings": {name: _stable(value) for name, value in settings.items() if name not in ("tools", "system")},
    }
    return json.dumps(facts, sort_keys=True, ensure_ascii=False, default=str)


def _stable(value: Any) -> Any:
    """`value` without what differs between processes (addresses of objects)."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(name): _stable(item) for name, item in value.items()}
    if isinstance(value, Toolset):
        return value.names
    if isinstance(value, Sequence):
        return [_stable(item) for item in value]
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", fallback=str)
    return getattr(value, "__qualname__", type(value).__qualname__)


def plan_cells(
    rows: list[Row], works: list[tuple[Work, PromptOf | None]], prompt: PromptOf, repeats: int
) -> list[CellPlan]:
    """All cells: by row, then repeat, then model and variant.

    A key is a hash of what is asked and of the row, so it is the same in every process and wherever the row stands; a row that occurs twice
    is told apart by its count.

    Raises
    ------
    ValueError
        When no prompt can be made of a row.
    """
    seen: dict[str, int] = {}
    cells = []
    for n, row in enumerate(rows):
        text = json.dumps(row, sort_keys=True, ensure_ascii=False, default=str)
        count = seen[text] = seen.get(text, -1) + 1
        asked: list[tuple[Work, list[Message], Any]] = []
        for work, own in works:
            messages = messages_of(own if own is not None else prompt, row, n)
            said = [message.model_dump(mode="json", fallback=str) for message in messages]
            base = hashlib.sha256(
                json.dumps(
                    [text, count, said, work.model, work.variant, work.fingerprint], ensure_ascii=True, default=str
                ).encode()
            )
            asked.append((work, messages, base))
        for repeat in range(repeats):
            for work, messages, base in asked:
                digest = base.copy()
                digest.update(b"|%d" % repeat)
                cells.append(CellPlan(digest.hexdigest()[:32], n, repeat, work, messages))
    return cells
