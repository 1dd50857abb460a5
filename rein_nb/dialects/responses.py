"""The OpenAI Responses dialect (``POST /responses``), also spoken by Azure, xAI, OpenRouter, DeepSeek, vLLM and others.

Reference: https://developers.openai.com/api/reference/resources/responses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rein_nb.dialects import responses_encode
from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import error_info
from rein_nb.dialects.responses_decode import ResponsesDecoder
from rein_nb.ir import ErrorInfo, Request
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta


class ResponsesCodec:
    """Encodes requests for and decodes answers from the Responses interface."""

    name: ClassVar[str] = "openai-responses"

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request.

        Raises
        ------
        UnsupportedOption, InvalidRequest
            For what this dialect or model cannot express; nothing is dropped.
        """
        return responses_encode.encode(request, target, stream=stream)

    def decoder(self, target: Target, call: WireCall | None = None) -> ResponsesDecoder:
        """A fresh decoder for one streamed response to `call`."""
        return ResponsesDecoder(target, call)

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[Delta]:
        """Deltas for a whole, non-streamed response."""
        return ResponsesDecoder(target, call).whole(response)

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes."""
        return error_info(status, headers, body, target)
