"""What the magics remember between cells: the settings, and one agent per conversation."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rein_nb.agent import Agent, AgentResult
from rein_nb.ir import InvalidRequest, MediaPart, TextPart, Usage
from rein_nb.llm import LLM
from rein_nb.notebook.images import image_part
from rein_nb.notebook.options import OptionError, Parsed, interpolate, unknown_name

DEFAULT_SESSION = "default"


@dataclass(slots=True)
class Order:
    """A magic, understood: what to ask whom, and how to show it."""

    prompt: Any
    models: dict[str, Any]
    settings: dict[str, Any] = field(default_factory=dict)
    session: str = DEFAULT_SESSION
    out: str = ""
    background: bool = False
    no_stream: bool = False
    show_prompt: bool = False


@dataclass(slots=True)
class Room:
    """The state behind ``%agent`` and ``%%agent`` in one kernel.

    Attributes
    ----------
    model
        A name, `LLM` or `Agent`; None until one is chosen.
    tools
        Names of the user's functions.
    sessions
        Conversations by name.
    origins
        The user's agents that conversations go on with, by session.
    spent
        Usage of every run so far, by session.
    """

    model: Any = None
    tools: list[str] = field(default_factory=list)
    system: str | None = None
    session: str = DEFAULT_SESSION
    sessions: dict[str, Agent] = field(default_factory=dict)
    origins: dict[str, Agent] = field(default_factory=dict)
    spent: dict[str, Usage] = field(default_factory=dict)

    def order(self, parsed: Parsed, prompt: str, names: Mapping[str, Any]) -> Order:
        """The order that a parsed line and a prompt make.

        Raises
        ------
        OptionError
            For what is missing or unknown.
        """
        given = parsed.values
        wanted = [(name, find_model(name, names)) for name in given.get("models", [])]
        if not wanted:
            if self.model is None:
                raise OptionError(
                    "no model is chosen: give one with -m provider/model, or for all cells with %agent model provider/model"
                )
            wanted = [(_label(self.model), self.model)]
        tools = given.get("tools", self.tools)
        settings: dict[str, Any] = {"tools": [find_tool(name, names) for name in tools]}
        if "system" in given or self.system is not None:
            settings["system"] = given.get("system", self.system) or None
        for name, key in (
            ("effort", "reasoning_effort"),
            ("max_tokens", "max_output_tokens"),
            ("temperature", "temperature"),
            ("approve", "approval"),
            ("tool_choice", "tool_choice"),
        ):
            if name in given:
                settings[key] = given[name]
        if "schema" in given:
            settings["output_type"] = find_value("--schema", given["schema"], names)
        text = interpolate(prompt, given["vars"], names) if "vars" in given else prompt
        images = [
            image_part(find_value("--image", name, names) if name.split(".")[0] in names else name)
            for name in given.get("images", [])
        ]
        return Order(
            prompt=with_images(text, images),
            models=_labelled(wanted),
            settings=settings,
            session=given.get("session", self.session),
            out=given.get("out", ""),
            background=bool(given.get("background")),
            no_stream=bool(given.get("no_stream")),
            show_prompt=text != prompt,
        )

    def agent(self, name: str, model: Any) -> Agent:
        """The agent of a conversation, on this model; a new one when the conversation is new, or when it goes on with another `Agent`, whose
        tools and settings then count."""
        agent = self.sessions.get(name)
        if agent is None:
            agent = model.fork(messages=None) if isinstance(model, Agent) else Agent(model)
        elif isinstance(model, Agent) and self.origins.get(name) is not model:
            agent = model.fork(messages=agent.messages)
        if isinstance(model, Agent):
            self.origins[name] = model
        self.sessions[name] = agent
        return agent

    def count(self, session: str, result: AgentResult) -> None:
        """Add a run to what was spent."""
        before = self.spent.get(session)
        self.spent[session] = result.usage if before is None else before + result.usage


def find_model(name: str, names: Mapping[str, Any]) -> Any:
    """A model by name: a variable that holds an `LLM` or `Agent`, or ``provider/model``.

    Raises
    ------
    OptionError
        When it is neither.
    """
    if name.isidentifier() and name in names:
        value = names[name]
        if isinstance(value, Agent | str) or callable(getattr(value, "astream_events", None)):
            return value if not isinstance(value, str) else find_model(value, {})
    try:
        return LLM.named(name)
    except (InvalidRequest, ValueError, TypeError) as exc:
        raise OptionError(f"--model {name}: {exc}") from None


def find_value(option: str, path: str, names: Mapping[str, Any]) -> Any:
    """A variable of the user's, or an attribute of one."""
    first, *rest = path.split(".")
    if first not in names:
        raise OptionError(unknown_name(option, first, names))
    value = names[first]
    for attribute in rest:
        if not hasattr(value, attribute):
            near = difflib.get_close_matches(attribute, dir(value), n=1)
            raise OptionError(
                f"{option}: {first} has no attribute {attribute!r}" + (f"; did you mean {near[0]!r}?" if near else "")
            )
        value = getattr(value, attribute)
    return value


def find_tool(path: str, names: Mapping[str, Any]) -> Any:
    """A tool by the name of a function, tool or agent of the user's."""
    value = find_value("--tools", path, names)
    if not callable(value) and not hasattr(value, "spec") and not isinstance(value, Agent):
        raise OptionError(f"--tools: {path} is a {type(value).__name__}, not a function or tool")
    return value


def with_images(text: str, images: list[MediaPart]) -> Any:
    """The prompt with its images in front."""
    return text if not images else [*images, TextPart(text=text)]


def _label(model: Any) -> str:
    if isinstance(model, str):
        return model
    if isinstance(model, Agent):
        return model.label
    return f"{model.provider}/{model.model}"


def _labelled(wanted: list[tuple[str, Any]]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for name, model in wanted:
        label, number = name, 2
        while label in out:
            label, number = f"{name} ({number})", number + 1
        out[label] = model
    return out
