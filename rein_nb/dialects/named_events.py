"""What decoders of streams whose events have names (Anthropic Messages, OpenAI Responses) have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import is_error_body
from rein_nb.ir import ErrorInfo
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON

Deltas = Sequence[d.Delta]
NONE: Deltas = ()


class NamedEventsDecoder:
    """Gives each event to the handler of its name. Never raises on what a server sent."""

    handlers: ClassVar[Mapping[str, Callable[[Any, dict[str, Any]], Deltas]]] = {}
    """Method by event name; other events mean nothing, unless they are errors."""

    def __init__(self, target: Target, call: WireCall | None = None) -> None:
        self._target = target
        self._names = call.tool_names if call is not None else {}
        self._unread: str | None = None
        self._ended = False

    def _event(self, data: JSON, event: str | None) -> Deltas:
        if self._ended:
            return NONE
        if not isinstance(data, dict):
            if isinstance(data, str) and data.strip() not in ("", "[DONE]"):
                self._unread = data
            return NONE
        kind = data.get("type") or event
        handler = self.handlers.get(kind) if isinstance(kind, str) else None
        if handler is not None:
            return handler(self, data)
        return self._error(data) if is_error_body(data) else NONE

    def _error(self, data: JSON) -> Deltas:
        raise NotImplementedError

    def _malformed(self, message: str, body: JSON) -> d.Fault:
        target = self._target
        return d.Fault(
            ErrorInfo.make("malformed_response", message, body=body, provider=target.provider, model=target.model)
        )
