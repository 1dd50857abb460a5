"""The dialect of Google's Gemini API and Vertex AI: ``generateContent`` and ``streamGenerateContent``.

Reference: https://ai.google.dev/api/generate-content. Requests are made in `google_encode`, answers read in `google_decode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import error_info
from rein_nb.dialects.google_decode import GoogleDecoder
from rein_nb.dialects.google_encode import encode
from rein_nb.ir import ErrorInfo, Request
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta


class GoogleCodec:
    """``generateContent`` and ``streamGenerateContent``."""

    name: ClassVar[str] = "google"

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request; options, tools and formats that Gemini cannot express raise."""
        return encode(request, target, stream=stream)

    def decoder(self, target: Target, call: WireCall | None = None) -> GoogleDecoder:
        """A fresh decoder for one streamed answer."""
        return GoogleDecoder(target, call.tool_names if call else None)

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[Delta]:
        """Deltas for a whole answer."""
        decoder = GoogleDecoder(target, call.tool_names if call else None, whole=True)
        return [*decoder.feed(response), *decoder.close()]

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes."""
        return error_info(status, headers, body, target)
