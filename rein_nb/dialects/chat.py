"""The dialect of ``POST /chat/completions``: OpenAI's, and that of the servers that speak like it.

How a server departs from OpenAI is data (`Quirks`). The parts: `chat_encode` and `chat_history` (requests), `chat_decode` (responses, streamed
and whole), `chat_message` and `chat_state` (one message of a response), `chat_calls` (tool-call fragments), `chat_usage`, `chat_media`,
`think_tags`, `errors`.

Sources: https://platform.openai.com/docs/api-reference/chat, https://api-docs.deepseek.com, https://docs.mistral.ai/api,
https://openrouter.ai/docs, https://console.groq.com/docs, and the field cases named in the code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from rein_nb.dialects.base import Target, WireCall
from rein_nb.dialects.chat_decode import ChatDecoder, whole_deltas
from rein_nb.dialects.chat_encode import encode_chat
from rein_nb.dialects.errors import error_info
from rein_nb.ir import ErrorInfo, Request
from rein_nb.ir.base import JSON
from rein_nb.ir.deltas import Delta


class ChatCodec:
    """The Chat Completions dialect.

    Examples
    --------
    >>> from rein_nb.ir import Message
    >>> target = Target(provider="openai", dialect="openai-chat", model="gpt-4o")
    >>> request = Request(messages=[Message(role="user", content="hi")])
    >>> ChatCodec().encode(request, target, stream=False).body
    {'model': 'gpt-4o', 'messages': [{'role': 'user', 'content': 'hi'}]}
    """

    name: ClassVar[str] = "openai-chat"

    def encode(self, request: Request, target: Target, *, stream: bool) -> WireCall:
        """The wire request.

        Raises
        ------
        UnsupportedOption
            For an option that the server or the model is not known to have.
        """
        return encode_chat(request, target, stream=stream)

    def decoder(self, target: Target, call: WireCall | None = None) -> ChatDecoder:
        """A fresh decoder for one streamed response to `call`."""
        return ChatDecoder(target, call)

    def deltas(self, response: JSON, target: Target, call: WireCall | None = None) -> Iterable[Delta]:
        """Deltas for a whole response."""
        return whole_deltas(response, target, call)

    def error(self, status: int | None, headers: Mapping[str, str], body: JSON, target: Target) -> ErrorInfo:
        """The fault that an error answer describes."""
        return error_info(status, headers, body, target)
