"""The parts of a message, in the order the model produced them. One wire block becomes one part."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

from pydantic import Field, field_validator, model_validator

from rein_nb.ir.base import JSON, Data, Extra, loads

ToolStatus: TypeAlias = Literal["ok", "error", "denied", "interrupted", "timed_out"]
"""How a tool call ended. `interrupted` means that it may have run, in whole or in part."""


class Citation(Data):
    """Evidence for a span of text.

    Attributes
    ----------
    source
        A URI, or a reference that only the provider resolves (a document index, a file id).
    title, quote
        Title of the source and the words cited from it.
    start, end
        The span of the part's text that is supported, in characters, end exclusive.
    extra
        The provider's native coordinates, verbatim, by provider namespace.
    """

    source: str = ""
    title: str | None = None
    quote: str | None = None
    start: int | None = None
    end: int | None = None
    extra: Extra = Field(default_factory=dict)


class TextPart(Data):
    """Visible text."""

    type: Literal["text"] = "text"
    text: str = ""
    citations: list[Citation] = Field(default_factory=list)
    extra: Extra = Field(default_factory=dict)


class ThinkingPart(Data):
    """Reasoning, as far as the provider shows it.

    Attributes
    ----------
    text
        The visible reasoning or its summary; may be empty.
    signature
        The provider's signature over `text`, to send back unchanged.
    opaque
        Encrypted or redacted reasoning, to send back unchanged to its origin.
    redacted
        True when the provider withheld the text.
    """

    type: Literal["thinking"] = "thinking"
    text: str = ""
    signature: str | None = None
    opaque: str | None = None
    redacted: bool = False
    extra: Extra = Field(default_factory=dict)


def _parse_arguments(text: str) -> tuple[dict[str, Any], str | None, str | None]:
    """(arguments, raw_arguments, error) for argument text as sent."""
    if not text.strip():
        return {}, None, None
    try:
        value = loads(text)
    except (ValueError, RecursionError) as exc:
        return {}, text, f"arguments are not complete JSON: {exc}"
    if not isinstance(value, dict):
        return {}, text, f"arguments are not a JSON object but {type(value).__name__}"
    return value, None, None


class ToolCall(Data):
    """One call of a tool that the model asks for.

    Accepts the flat form, ``args=`` for ``arguments=``, arguments as JSON text, and OpenAI's nested
    ``{"id", "type": "function", "function": {"name", "arguments"}}``. Arguments that are not one complete JSON
    object never raise: they are kept in `raw_arguments`, `arguments` is empty and `error` says why.

    Examples
    --------
    >>> ToolCall(id="1", name="add", arguments={"a": 1, "b": 2}).args
    {'a': 1, 'b': 2}
    >>> ToolCall(id="1", name="add", arguments='{"a": 1').error is not None
    True
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            id: str | None = "",
            name: str = "",
            arguments: object = None,
            args: object = None,
            raw_arguments: str | None = None,
            error: str | None = None,
            extra: Extra = ...,
            type: str = "tool_call",
            function: Mapping[str, Any] | None = None,
        ) -> None: ...

    type: Literal["tool_call"] = "tool_call"
    id: str = ""
    name: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    raw_arguments: str | None = None
    error: str | None = None
    extra: Extra = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_wire_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        function = data.pop("function", None)
        if isinstance(function, dict):
            data.pop("type", None)
            data.pop("index", None)
            data["name"] = function.get("name") or data.get("name") or ""
            data["arguments"] = function.get("arguments")
        if "args" in data:
            data.setdefault("arguments", data.pop("args"))
        arguments = data.get("arguments")
        if arguments is None:
            data["arguments"] = {}
        elif isinstance(arguments, str):
            data["arguments"], raw, error = _parse_arguments(arguments)
            if error is not None:
                data.setdefault("raw_arguments", raw)
                data.setdefault("error", error)
        elif not isinstance(arguments, dict):
            data["arguments"] = {}
            data.setdefault("raw_arguments", json.dumps(arguments, default=str))
            data.setdefault("error", f"arguments are not a JSON object but {type(arguments).__name__}")
        if data.get("id") is None:
            data["id"] = ""
        return data

    @property
    def args(self) -> dict[str, Any]:
        """Alias of `arguments`."""
        return self.arguments

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text: as sent when they were malformed."""
        if self.raw_arguments is not None:
            return self.raw_arguments
        return json.dumps(self.arguments, ensure_ascii=False)

    def to_wire_dict(self) -> dict[str, Any]:
        """The nested form that OpenAI-compatible interfaces use."""
        return {
            "id": self.id,
            "type": "function",
            "function": {"name": self.name, "arguments": self.arguments_text},
        }


class MediaPart(Data):
    """An image, sound, video or document: exactly one of `data`, `url` and `file_id` says where it is.

    `data` is bytes in Python and base64 in JSON; in the constructor a string is taken as base64.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            kind: Literal["image", "audio", "video", "document"],
            mime_type: str | None = None,
            data: bytes | str | None = None,
            url: str | None = None,
            file_id: str | None = None,
            name: str | None = None,
            extra: Extra = ...,
            type: str = "media",
        ) -> None: ...

    type: Literal["media"] = "media"
    kind: Literal["image", "audio", "video", "document"]
    mime_type: str | None = None
    data: bytes | None = Field(default=None, repr=False)
    url: str | None = None
    file_id: str | None = None
    name: str | None = None
    extra: Extra = Field(default_factory=dict)

    @field_validator("data", mode="before")
    @classmethod
    def _from_base64(cls, value: Any) -> Any:
        if isinstance(value, str):
            text = value.replace("-", "+").replace("_", "/")
            try:
                return base64.b64decode(text + "=" * (-len(text) % 4))
            except ValueError as exc:
                raise ValueError(f"media data is not base64: {exc}") from exc
        return value

    @model_validator(mode="after")
    def _one_place(self) -> MediaPart:
        given = [name for name in ("data", "url", "file_id") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"a media part needs exactly one of data, url and file_id, got {given or 'none'}")
        return self

    @property
    def base64(self) -> str:
        """`data` as standard base64 text; empty when the media is not inline."""
        return base64.b64encode(self.data).decode("ascii") if self.data is not None else ""


class RefusalPart(Data):
    """The model's own words for declining."""

    type: Literal["refusal"] = "refusal"
    text: str = ""
    extra: Extra = Field(default_factory=dict)


class ServerToolPart(Data):
    """A tool that the provider ran itself: the call, or its result, whichever the wire block holds.

    Attributes
    ----------
    id
        The provider's id of the call; a result carries the id of its call.
    name
        ``web_search``, ``code_execution``...
    input, output
        What the tool was given and what it returned, as far as the provider shows it.
    payload
        The wire block verbatim, for replay to its origin.
    """

    type: Literal["server_tool"] = "server_tool"
    id: str = ""
    name: str = ""
    input: JSON = None
    output: JSON = None
    payload: dict[str, Any] | None = None
    extra: Extra = Field(default_factory=dict)


class ToolResult(Data):
    """What a tool returned, for the model and for programs.

    Attributes
    ----------
    content
        Text and media for the model; a plain string is accepted.
    details
        JSON for programs; never sent to the model.
    status
        `ToolStatus`; every status but ``ok`` implies `is_error`.
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            tool_call_id: str,
            name: str | None = None,
            content: str | TextPart | MediaPart | Sequence[str | TextPart | MediaPart] | None = None,
            details: JSON = None,
            is_error: bool = False,
            status: ToolStatus = "ok",
            extra: Extra = ...,
            type: str = "tool_result",
        ) -> None: ...

    type: Literal["tool_result"] = "tool_result"
    tool_call_id: str
    name: str | None = None
    content: list[Annotated[TextPart | MediaPart, Field(discriminator="type")]] = Field(default_factory=list)
    details: JSON = None
    is_error: bool = False
    status: ToolStatus = "ok"
    extra: Extra = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        data = dict(data)
        content = data.get("content")
        if content is None:
            data["content"] = []
        elif isinstance(content, str):
            data["content"] = [TextPart(text=content)] if content else []
        elif isinstance(content, TextPart | MediaPart):
            data["content"] = [content]
        elif isinstance(content, list):
            data["content"] = [TextPart(text=item) if isinstance(item, str) else item for item in content]
        if data.get("status", "ok") != "ok":
            data["is_error"] = True
        elif data.get("is_error"):
            data["status"] = "error"
        return data

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.text for part in self.content if isinstance(part, TextPart))


Part: TypeAlias = Annotated[
    TextPart | ThinkingPart | ToolCall | ToolResult | MediaPart | RefusalPart | ServerToolPart,
    Field(discriminator="type"),
]
"""Any part of a message; `type` says which."""
