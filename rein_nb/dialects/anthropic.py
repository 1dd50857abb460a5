"""The Anthropic Messages dialect (``POST /v1/messages``), also spoken by Vertex, Bedrock, gateways and local servers.

Reference: https://platform.claude.com/docs/en/api/messages and https://platform.claude.com/docs/en/build-with-claude/streaming.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rein_nb.dialects import anthropic_encode
from rein_nb.dialects.anthropic_decode import AnthropicDecoder
from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.errors import error_info
from rein_nb.ir import ErrorInfo, Request
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta


class AnthropicCodec:
    """Encodes requests for and decodes answers from the Messages interface."""

    name: ClassVar[str] = "anthropic"

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request.

        Raises
        ------
        UnsupportedOption, InvalidRequest
            For what this dialect or model cannot express; nothing is dropped.
        """
        return anthropic_encode.encode(request, target, stream=stream)

    def decoder(self, target: Target, call: WireCall | None = None) -> AnthropicDecoder:
        """A fresh decoder for one streamed response to `call`."""
        return AnthropicDecoder(target, call)

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[Delta]:
        """Deltas for a whole, non-streamed response."""
        return AnthropicDecoder(target, call).whole(response)

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes."""
        return error_info(status, headers, body, target)
