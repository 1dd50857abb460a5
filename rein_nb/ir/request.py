"""What is asked of a model: messages, tools, options, output format."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, ValidationError, field_validator, model_validator

from rein_nb.ir.base import Data, Extra, merge_extra
from rein_nb.ir.errors import InvalidRequest
from rein_nb.ir.messages import Message

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def sanitize_tool_name(label: str) -> str:
    """A tool name that every provider accepts (``[A-Za-z_][A-Za-z0-9_-]{0,63}``) from any label.

    May return ``""``, which `ToolSpec` refuses: sanitizing is not validation. Two labels may give one name; whoever maps
    many labels keeps them apart.

    Examples
    --------
    >>> sanitize_tool_name("Get weather/now")
    'Get_weather_now'
    """
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", label.strip()).strip("-")
    if not name.strip("_"):
        return ""
    return (name if re.match(r"[A-Za-z_]", name) else f"_{name}")[:64]


class ToolSpec(Data):
    """A tool as a model sees it.

    Attributes
    ----------
    name
        ``[A-Za-z_][A-Za-z0-9_-]{0,63}``; see `sanitize_tool_name`.
    description
        What it does and when to use it.
    parameters
        JSON Schema of the arguments, an object schema.
    strict
        Ask the provider to enforce the schema, where it can. None leaves the provider's default.
    """

    name: str
    description: str = ""
    parameters: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool | None = None
    extra: Extra = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _valid_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            better = sanitize_tool_name(name)
            hint = f"; {better!r} would be" if better else ""
            raise ValueError(f"{name!r} is not a valid tool name (letters, digits, _ and -, at most 64){hint}")
        return name

    @field_validator("parameters")
    @classmethod
    def _object_schema(cls, schema: dict[str, Any]) -> dict[str, Any]:
        if schema.get("type", "object") != "object":
            raise ValueError(f"a tool's parameters must be an object schema, not {schema.get('type')!r}")
        return schema


class ToolChoice(Data):
    """Which tools the model may or must call, and whether several at once.

    Examples
    --------
    >>> ToolChoice.of("required").mode
    'required'
    >>> ToolChoice.of("get_weather").name
    'get_weather'
    """

    mode: Literal["auto", "none", "required", "named"] = "auto"
    name: str | None = None
    parallel: Literal["allow", "single"] | None = None

    @model_validator(mode="after")
    def _name_fits_mode(self) -> ToolChoice:
        if (self.mode == "named") != bool(self.name):
            raise ValueError("mode 'named' needs a name, and a name needs mode 'named'")
        return self

    @classmethod
    def of(cls, value: ToolChoice | str | dict[str, Any] | None) -> ToolChoice | None:
        """From a `ToolChoice`, a mode, a tool's name, a dict, or None."""
        if value is None or isinstance(value, ToolChoice):
            return value
        if isinstance(value, dict):
            return cls.model_validate(value)
        if value in ("auto", "none", "required"):
            return cls.model_validate({"mode": value})
        if value == "any":
            return cls(mode="required")
        return cls(mode="named", name=value)


class OutputFormat(Data):
    """The representation asked for.

    Attributes
    ----------
    type
        ``text``, ``json`` (any JSON) or ``json_schema``.
    name, description, json_schema, strict
        For ``json_schema`` only.
    """

    type: Literal["text", "json", "json_schema"] = "text"
    name: str | None = None
    description: str | None = None
    json_schema: dict[str, Any] | None = None
    strict: bool | None = None

    @model_validator(mode="after")
    def _schema_fits_type(self) -> OutputFormat:
        if (self.type == "json_schema") != (self.json_schema is not None):
            raise ValueError("type 'json_schema' needs a json_schema, and a json_schema needs that type")
        return self

    @classmethod
    def of(cls, value: Any) -> OutputFormat | None:
        """From a format, a Python type (pydantic model, dataclass, TypedDict...), a JSON Schema dict, or a type's word."""
        if value is None or isinstance(value, OutputFormat):
            return value
        if isinstance(value, str):
            return cls.model_validate({"type": value})
        if isinstance(value, dict):
            name = sanitize_tool_name(str(value.get("title") or "output")) or "output"
            return cls(type="json_schema", name=name, json_schema=value, description=value.get("description"))
        schema = TypeAdapter(value).json_schema()
        doc = value.__doc__ if isinstance(value, type) and issubclass(value, BaseModel) else None
        name = sanitize_tool_name(getattr(value, "__name__", "output")) or "output"
        return cls(type="json_schema", name=name, json_schema=schema, description=schema.get("description") or doc)


class Options(Data):
    """Per-call settings. None means the provider's default; nothing is ever dropped or clamped.

    Attributes
    ----------
    temperature
        0 or more (providers accept 0 to 1 or 0 to 2).
    top_p, top_k
        Nucleus probability in (0, 1]; number of candidates, 1 or more.
    max_output_tokens
        Tokens, 1 or more; ``max_tokens=`` is accepted.
    stop
        Stop sequences; one string is accepted.
    seed
        For reproducible sampling, where the provider has it.
    frequency_penalty, presence_penalty
        -2 to 2.
    reasoning_effort
        In the model's own words (``"low"``, ``"high"``, ``"none"``...).
    logprobs
        Number of alternatives to report beside each chosen token, 0 to 20; True is 0.
    extensions
        Provider-only settings, by provider or dialect namespace, merged into the wire request.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            model: str | None = None,
            temperature: float | None = None,
            top_p: float | None = None,
            top_k: int | None = None,
            max_output_tokens: int | None = None,
            max_tokens: int | None = None,
            stop: str | list[str] | None = None,
            seed: int | None = None,
            frequency_penalty: float | None = None,
            presence_penalty: float | None = None,
            reasoning_effort: str | None = None,
            logprobs: int | bool | None = None,
            extensions: Extra = ...,
        ) -> None: ...

    model: str | None = None
    temperature: float | None = Field(default=None, ge=0)
    top_p: float | None = Field(default=None, gt=0, le=1)
    top_k: int | None = Field(default=None, ge=1)
    max_output_tokens: int | None = Field(default=None, ge=1)
    stop: list[str] | None = None
    seed: int | None = None
    frequency_penalty: float | None = Field(default=None, ge=-2, le=2)
    presence_penalty: float | None = Field(default=None, ge=-2, le=2)
    reasoning_effort: str | None = None
    logprobs: int | None = Field(default=None, ge=0, le=20)
    extensions: Extra = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        if "max_tokens" in data:
            data.setdefault("max_output_tokens", data.pop("max_tokens"))
        if isinstance(data.get("stop"), str):
            data["stop"] = [data["stop"]]
        if isinstance(data.get("logprobs"), bool):
            data["logprobs"] = 0 if data["logprobs"] else None
        return data

    @model_validator(mode="after")
    def _sound(self) -> Options:
        for name in ("temperature", "top_p", "frequency_penalty", "presence_penalty"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise ValueError(f"{name} must be a finite number, got {value}")
        if self.stop is not None and not all(self.stop):
            raise ValueError("stop sequences must not be empty")
        effort = self.reasoning_effort
        if effort is not None and (not effort or effort != effort.strip()):
            raise ValueError(f"reasoning_effort must be a word of the model's, without spaces around it: {effort!r}")
        return self

    def resolve(self, override: Options | None) -> Options:
        """These options with every value that `override` sets laid over them. Neither is changed."""
        if override is None:
            return self
        # Each value was checked when its own options were made, and no check looks at two of them.
        values = {name: value for name, value in override if value is not None and name != "extensions"}
        if override.extensions:
            values["extensions"] = merge_extra(self.extensions, override.extensions)
        return self.model_copy(update=values)

    def given(self) -> dict[str, Any]:
        """The options that were set, without `model` and `extensions`."""
        return {name: value for name, value in self if value is not None and name not in ("model", "extensions")}


class Request(Data):
    """One complete question to a model.

    `check` is run before any I/O; what only a dialect or a model knows is checked by its encoder.
    """

    messages: list[Message]
    tools: list[ToolSpec] = Field(default_factory=list)
    tool_choice: ToolChoice | None = None
    options: Options = Field(default_factory=Options)
    output_format: OutputFormat | None = None

    @classmethod
    def make(cls, messages: Any, **fields: Any) -> Request:
        """A checked request.

        Raises
        ------
        InvalidRequest
            Saying what is wrong and what would be right.
        """
        try:
            if _is_checked(messages, Message):
                # Vocabulary is immutable and was checked when it was made; a long history is not checked at each turn again.
                if _are_checked(**fields):
                    request = cls.model_construct(messages=messages, **fields)
                else:
                    request = cls(messages=[], **fields).model_copy(update={"messages": messages})
            else:
                request = cls(messages=messages, **fields)
        except ValidationError as exc:
            problems = "; ".join(
                f"{'.'.join(map(str, e['loc']))}: {e['msg'].removeprefix('Value error, ')}" for e in exc.errors()[:5]
            )
            raise InvalidRequest(f"invalid request: {problems}") from exc
        request.check()
        return request

    def check(self) -> None:
        """Raise `InvalidRequest` for what is wrong in itself."""
        if not self.messages:
            raise InvalidRequest("a request needs at least one message")
        names = [tool.name for tool in self.tools]
        doubled = sorted({name for name in names if names.count(name) > 1})
        if doubled:
            raise InvalidRequest(f"tool names must be unique; given more than once: {', '.join(doubled)}")
        choice = self.tool_choice
        if choice is None:
            return
        if choice.mode in ("required", "named") and not self.tools:
            raise InvalidRequest(f"tool_choice {choice.mode!r} needs tools, and none were given")
        if choice.mode == "named" and choice.name not in names:
            raise InvalidRequest(f"tool_choice names {choice.name!r}, which is not among the tools: {', '.join(names)}")


def _is_checked(values: Any, kind: type[Data]) -> bool:
    return type(values) is list and all(type(value) is kind for value in values)


def _are_checked(
    *,
    tools: Any = (),
    tool_choice: Any = None,
    options: Any = None,
    output_format: Any = None,
    **others: Any,
) -> bool:
    """Whether a request's fields are vocabulary already."""
    return (
        not others
        and _is_checked(tools, ToolSpec)
        and type(options) is Options
        and (tool_choice is None or type(tool_choice) is ToolChoice)
        and (output_format is None or type(output_format) is OutputFormat)
    )
