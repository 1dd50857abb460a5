"""The Code Assist envelope around Google's dialect, as ``antigravity`` uses it (``/v1internal:...``).

A request is ``{model, project, request: {...}}`` and an answer ``{response: {...}, traceId}``. What belongs to the envelope (``project``,
``user_prompt_id``...) comes from the provider's default body or from extensions under ``google-code-assist`` or the provider's name;
extensions under ``google`` belong to the request inside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import error_info
from rein_nb.dialects.google_decode import NAMESPACE, GoogleDecoder
from rein_nb.dialects.google_encode import encode_body, extensions, merged, method
from rein_nb.ir import ErrorInfo, Request
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta, Meta


class CodeAssistDecoder:
    """Takes the envelope off each chunk; what it holds beside the answer goes into the completion's `extra`."""

    def __init__(self, target: Target, tool_names: dict[str, str] | None = None, *, whole: bool = False) -> None:
        self._inner = GoogleDecoder(target, tool_names, whole=whole)
        self._beside: dict[str, Any] = {}

    def feed(self, data: JSON, event: str | None = None) -> Sequence[Delta]:
        """Deltas for one chunk."""
        if isinstance(data, list):
            return [delta for item in data for delta in self.feed(item)]
        if not isinstance(data, dict) or not isinstance(data.get("response"), dict):
            return self._inner.feed(data)
        beside = {key: value for key, value in data.items() if key != "response"}
        if beside == self._beside:
            return self._inner.feed(data["response"])
        self._beside = beside
        return [Meta(extra={CodeAssistCodec.name: beside}), *self._inner.feed(data["response"])]

    def close(self) -> Sequence[Delta]:
        """Deltas for the end of the bytes."""
        return self._inner.close()


class CodeAssistCodec:
    """``generateContent`` and ``streamGenerateContent`` in the Code Assist envelope."""

    name: ClassVar[str] = "google-code-assist"

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request; what Gemini cannot express raises."""
        body, warnings, tool_names = encode_body(request, target)
        body = merged(body, *extensions(request, target, NAMESPACE))
        envelope = merged(target.quirks.default_body, {"model": target.model, "request": body})
        return WireCall(
            path=f"{target.quirks.path or '/v1internal'}:{method(stream)}",
            body=merged(envelope, *extensions(request, target, target.provider, self.name)),
            query={"alt": "sse"} if stream else {},
            warnings=warnings,
            tool_names=tool_names,
        )

    def decoder(self, target: Target, call: WireCall | None = None) -> CodeAssistDecoder:
        """A fresh decoder for one streamed answer."""
        return CodeAssistDecoder(target, call.tool_names if call else None)

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[Delta]:
        """Deltas for a whole answer."""
        decoder = CodeAssistDecoder(target, call.tool_names if call else None, whole=True)
        return [*decoder.feed(response), *decoder.close()]

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes."""
        return error_info(status, headers, body, target)
