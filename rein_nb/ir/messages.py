"""Messages: a role and parts in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from pydantic import Field, model_validator

from rein_nb.ir.base import JSON, Data, Extra
from rein_nb.ir.parts import Part, RefusalPart, TextPart, ThinkingPart, ToolCall, ToolResult, ToolStatus
from rein_nb.ir.transcript import HasTranscript

Role: TypeAlias = Literal["system", "developer", "user", "assistant", "tool"]


class Origin(Data):
    """Who produced an assistant message. Opaque reasoning goes back only to the same origin.

    Attributes
    ----------
    provider, dialect, model
        The provider's name, the wire dialect and the model that answered, as the provider named it.
    response_id
        The provider's id of the response.
    requested_model
        The model as it was asked for, where `model` may be what an alias stood for.
    """

    provider: str | None = None
    dialect: str | None = None
    model: str | None = None
    response_id: str | None = None
    requested_model: str | None = None


class Message(Data, HasTranscript):
    """One entry of a conversation.

    ``content=`` accepts a string or a list of parts and strings; ``tool_calls=`` appends calls; for role ``tool``,
    ``tool_call_id=`` (with ``is_error=``, ``status=``, ``name=``) makes a `ToolResult` of the content. ``metadata=`` accepts the
    keys tool_calls, tool_call_id, is_error and reasoning_content, and keeps all others in `extra`.

    Examples
    --------
    >>> Message(role="user", content="hi").text
    'hi'
    >>> Message(role="tool", tool_call_id="1", content="3").parts[0].tool_call_id
    '1'
    """

    if TYPE_CHECKING:

        def __init__(
            self,
            *,
            role: Role,
            content: str | Sequence[Any] | None = None,
            parts: Sequence[Any] = (),
            tool_calls: Sequence[Any] | None = None,
            tool_call_id: str | None = None,
            name: str | None = None,
            is_error: bool = False,
            status: ToolStatus = "ok",
            details: JSON = None,
            reasoning_content: str | None = None,
            metadata: Mapping[str, Any] | None = None,
            origin: Origin | None = None,
            extra: Extra = ...,
        ) -> None: ...

    role: Role
    parts: list[Part] = Field(default_factory=list)
    origin: Origin | None = None
    extra: Extra = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _accept_plain_forms(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        if data.keys() <= {"role", "parts", "origin", "extra"}:
            return data
        data = dict(data)
        metadata = data.pop("metadata", None)
        if metadata:
            data = _spread_metadata(data, dict(metadata))
        content = data.pop("content", None)
        calls = data.pop("tool_calls", None)
        call_id = data.pop("tool_call_id", None)
        parts = list(data.pop("parts", None) or [])
        reasoning = data.pop("reasoning_content", None)
        if reasoning:
            parts.append(ThinkingPart(text=reasoning))
        if call_id is not None:
            result = {"tool_call_id": call_id, "content": content}
            result.update({key: data.pop(key) for key in ("name", "is_error", "status", "details") if key in data})
            parts.append(ToolResult.model_validate(result))
        else:
            parts.extend(_as_parts(content))
        parts.extend(call if isinstance(call, ToolCall) else ToolCall.model_validate(call) for call in calls or [])
        data["parts"] = parts
        return data

    @model_validator(mode="after")
    def _role_fits_parts(self) -> Message:
        for part in self.parts:
            if isinstance(part, ToolCall) and self.role != "assistant":
                raise ValueError(f"a tool call belongs to an assistant message, not to role {self.role!r}")
            if isinstance(part, ToolResult) and self.role not in ("tool", "user"):
                raise ValueError(f"a tool result belongs to a tool message, not to role {self.role!r}")
        return self

    @property
    def text(self) -> str:
        """All visible text, joined; for a tool message the results' text."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart | ToolResult))

    @property
    def content(self) -> str:
        """Alias of `text`."""
        return self.text

    @property
    def thinking(self) -> str:
        """All visible reasoning, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, ThinkingPart))

    @property
    def refusal(self) -> str:
        """The refusal's text; empty when there is none."""
        return "".join(part.text for part in self.parts if isinstance(part, RefusalPart))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The tool calls, in order; an empty list when there are none."""
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def tool_results(self) -> list[ToolResult]:
        """The tool results, in order."""
        return [part for part in self.parts if isinstance(part, ToolResult)]

    @property
    def tool_call_id(self) -> str | None:
        """The id of the first tool result's call; None when there is no result."""
        for part in self.parts:
            if isinstance(part, ToolResult):
                return part.tool_call_id
        return None

    @property
    def metadata(self) -> dict[str, Any]:
        """A flat view: tool_calls, tool_call_id, is_error, reasoning_content, and what ``metadata=`` brought."""
        view: dict[str, Any] = dict(self.extra.get("metadata", {}))
        if self.tool_calls:
            view["tool_calls"] = self.tool_calls
        if self.thinking:
            view["reasoning_content"] = self.thinking
        for result in self.tool_results[:1]:
            view["tool_call_id"] = result.tool_call_id
            view["is_error"] = result.is_error
        return view


def _as_parts(content: Any) -> list[Any]:
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [TextPart(text=content)]
    if isinstance(content, Iterable) and not isinstance(content, dict | bytes):
        return [TextPart(text=item) if isinstance(item, str) else item for item in content]
    if isinstance(content, Data):
        return [content]
    raise ValueError(f"content must be a string or a list of parts, not {type(content).__name__}")


def _spread_metadata(data: dict[str, Any], metadata: dict[str, Any]) -> dict[str, Any]:
    for key in ("tool_calls", "tool_call_id", "is_error", "reasoning_content"):
        value = metadata.pop(key, None)
        if value is not None and (key != "is_error" or "tool_call_id" in data or value):
            data.setdefault(key, value)
    if metadata:
        extra = dict(data.get("extra") or {})
        extra["metadata"] = {**extra.get("metadata", {}), **metadata}
        data["extra"] = extra
    return data
