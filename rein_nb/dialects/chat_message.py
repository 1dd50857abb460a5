"""One message of a Chat answer, or a piece of one: its fields to deltas, in the order in which they are shown."""

from __future__ import annotations

from typing import Any, cast

from rein_nb.dialects.chat_media import image_from_url
from rein_nb.dialects.chat_state import ChoiceState, citation
from rein_nb.ir import deltas as d
from rein_nb.ir.base import JSON, loads

REASONING_FIELDS = ("reasoning_content", "reasoning", "reasoning_text", "thinking")
"""Where servers put reasoning text: DeepSeek and its kin, vLLM and OpenRouter, Copilot, Ollama behind gateways."""

PADDING = ("obfuscation", "p", "padding")
"""Random filling against guessing content from packet sizes (OpenAI, Mistral, Copilot). The only thing that is dropped."""

_MESSAGE_FIELDS = frozenset(
    {
        "role", "content", "refusal", "tool_calls", "function_call", "annotations", "audio", "images", "executed_tools",
        "reasoning_details", "reasoning_opaque", *REASONING_FIELDS, *PADDING,
    }
)  # fmt: skip


class MessageReader:
    """Reads the messages, or pieces of messages, of one response.

    Parameters
    ----------
    namespace
        Of the provider, for what is kept in `extra`.
    whole
        Messages come whole, not in pieces.
    """

    def __init__(self, namespace: str, *, whole: bool) -> None:
        self._namespace = namespace
        self._whole = whole
        self._further: dict[str, dict[str, JSON]] = {}

    def facts(self, state: ChoiceState, facts: dict[str, JSON], out: list[d.Delta]) -> None:
        """Keep facts about a choice: the first one's with the response's own, the others' under ``choices``."""
        if state.index == 0:
            out.append(d.Meta(extra={self._namespace: facts}))
            return
        self._further.setdefault(str(state.index), {}).update(facts)
        further = {n: dict(values) for n, values in self._further.items()}
        out.append(d.Meta(extra={self._namespace: {"choices": further}}))

    def message(self, state: ChoiceState, message: dict[str, Any], out: list[d.Delta]) -> None:
        """Append the deltas for a message or delta object."""
        self._reasoning(state, message, out)
        content = message.get("content")
        if isinstance(content, str):
            if content:
                self.text(state, content, out)
        elif content is not None:
            self._content(state, content if isinstance(content, list) else [content], out)
        refusal = message.get("refusal")
        if isinstance(refusal, str) and refusal:
            self._refusal(state, refusal, out)
        if isinstance(message.get("audio"), dict):
            self._audio(state, message["audio"], out)
        for image in _objects(message.get("images")):
            self._image(state, image, out)
        for position, tool in enumerate(_objects(message.get("executed_tools"))):
            self._executed(state, tool, position, out)
        if message.get("tool_calls"):
            out.extend(state.calls.feed(message["tool_calls"], whole=self._whole))
        if isinstance(message.get("function_call"), dict):
            out.extend(state.calls.legacy(message["function_call"], whole=self._whole))
        for annotation in _objects(message.get("annotations")):
            self._cite(state, annotation, out)
        self.unknown(state, message, out)

    def text(self, state: ChoiceState, text: str, out: list[d.Delta]) -> None:
        """Append the deltas for text, which may hold think tags."""
        if state.tags is None or state.tags.settled:
            out.append(d.Text(text, state.key("text")))
            return
        for kind, piece in state.tags.feed(text):
            self.piece(state, kind, piece, out)

    def piece(self, state: ChoiceState, kind: str, piece: str, out: list[d.Delta]) -> None:
        """Append the delta for a piece that is known to be text or thinking."""
        if kind == "text":
            out.append(d.Text(piece, state.key("text")))
        else:
            self._think(state, piece, "think_tags", out)

    def _think(self, state: ChoiceState, text: str, field: str | None, out: list[d.Delta]) -> None:
        key = state.key("thinking")
        out.append(d.Thinking(text, key))
        if field is not None and state.field is None:
            # The name is remembered for replay (C021): with the message, since the part itself is plain text that other models may read.
            state.field = field
            self.message_facts(state, {"reasoning_field": field}, out)

    def _reasoning(self, state: ChoiceState, message: dict[str, Any], out: list[d.Delta]) -> None:
        taken: list[str] = []
        for name in REASONING_FIELDS:
            text = message.get(name)
            if isinstance(text, str) and text and text not in taken:
                taken.append(text)
                self._think(state, text, name, out)
        state.reasoned = state.reasoned or bool(taken)
        opaque = message.get("reasoning_opaque")  # Copilot
        if isinstance(opaque, str) and opaque:
            out.append(d.Signature(opaque=opaque, part=state.key("thinking")))
        for detail in _objects(message.get("reasoning_details")):
            self._detail(state, detail, out)

    def _detail(self, state: ChoiceState, detail: dict[str, Any], out: list[d.Delta]) -> None:
        state.add_detail(detail)
        text = detail.get("text") or detail.get("summary")
        if isinstance(text, str) and text and not state.reasoned:
            self._think(state, text, None, out)
        signature, data = detail.get("signature"), detail.get("data")
        if isinstance(signature, str) and signature:
            out.append(d.Signature(signature=signature, part=state.key("thinking")))
        if isinstance(data, str) and data:
            out.append(d.Signature(opaque=data, part=state.key("thinking")))

    def _refusal(self, state: ChoiceState, text: str, out: list[d.Delta]) -> None:
        state.refused = True
        out.append(d.Refusal(text, state.named("refusal")))

    def _content(self, state: ChoiceState, parts: list[JSON], out: list[d.Delta]) -> None:
        """Content as a list of typed parts: Mistral, Databricks, gateways."""
        state.lists = True
        for part in parts:
            if isinstance(part, str):
                self.text(state, part, out)
                continue
            if not isinstance(part, dict):
                continue
            kind = part.get("type")
            text = part.get("text")
            if kind in ("text", "output_text") and isinstance(text, str):
                if text:
                    self.text(state, text, out)
                for annotation in _objects(part.get("annotations")):
                    self._cite(state, annotation, out)
            elif kind in ("thinking", "reasoning"):
                self._thinking_part(state, part, out)
            elif kind == "refusal" and isinstance(part.get("refusal"), str):
                self._refusal(state, part["refusal"], out)
            elif kind == "image_url":
                self._image(state, part, out)
            elif kind in ("reference", "citation"):
                self._cite(state, part, out)
            else:
                state.parts.append(part)

    def _thinking_part(self, state: ChoiceState, part: dict[str, Any], out: list[d.Delta]) -> None:
        inner = next((part[n] for n in ("thinking", "summary", "content", "text") if part.get(n)), None)
        for piece in inner if isinstance(inner, list) else [inner]:
            text = piece.get("text") if isinstance(piece, dict) else piece
            if isinstance(text, str) and text:
                self._think(state, text, "content", out)
            signature = piece.get("signature") if isinstance(piece, dict) else None
            if isinstance(signature, str) and signature:  # Databricks
                out.append(d.Signature(signature=signature, part=state.key("thinking")))
            if isinstance(piece, dict) and piece.get("type") in ("reference", "tool_reference"):
                state.parts.append(piece)

    def _audio(self, state: ChoiceState, audio: dict[str, Any], out: list[d.Delta]) -> None:
        transcript = state.add_audio(audio)
        if not transcript:
            return
        key = state.named("transcript")
        out.append(d.Text(transcript, key))
        if "transcript" not in state.runs:
            state.runs["transcript"] = 0
            out.append(d.PartExtra({self._namespace: {"audio": "transcript"}}, key))

    def _image(self, state: ChoiceState, image: dict[str, Any], out: list[d.Delta]) -> None:
        inner = image.get("image_url")
        media = image_from_url(inner.get("url") if isinstance(inner, dict) else inner)
        if media is None:
            state.parts.append(image)
            return
        out.append(d.Media(media, (state.index, "image", state.media)))
        state.media += 1

    def _executed(self, state: ChoiceState, tool: dict[str, Any], position: int, out: list[d.Delta]) -> None:
        """A tool that the provider ran (Groq compound systems): first its call, later the same with its output."""
        n = tool["index"] if type(tool.get("index")) is int else position
        given = tool.get("arguments")
        if isinstance(given, str):
            try:
                given = loads(given)
            except (ValueError, RecursionError):
                pass  # shown as the text it is
        output = tool.get("output")
        if output is None:
            output = tool.get("code_results") or tool.get("search_results")
        name = tool.get("type") or tool.get("name")
        out.append(
            d.ServerTool(
                (state.index, "executed", n),
                id=str(tool.get("id") or n),
                name=name if isinstance(name, str) else None,
                input=given,
                output=output,
                payload=tool,
            )
        )

    def _cite(self, state: ChoiceState, annotation: dict[str, Any], out: list[d.Delta]) -> None:
        if annotation in state.annotations:
            return
        state.annotations.append(annotation)
        run = state.runs.setdefault("text", 0)
        out.append(d.Cite(citation(annotation, self._namespace), state.named("text", run)))

    def unknown(self, state: ChoiceState, message: dict[str, Any], out: list[d.Delta]) -> None:
        """Fields beyond the interface: the first value at once, the others as a list when the stream ends."""
        for name, value in message.items():
            if name in _MESSAGE_FIELDS or value is None or value == "":
                continue
            values = state.unknown.get(name)
            if values is None:
                state.unknown[name] = [value]
                self.message_facts(state, {name: value}, out)
            elif values[-1] != value:
                values.append(value)

    def message_facts(self, state: ChoiceState, facts: dict[str, JSON], out: list[d.Delta]) -> None:
        """Keep facts about a message: the first choice's with its message, the others' with the response."""
        if state.index == 0:
            out.append(d.Meta(message_extra={self._namespace: facts}))
        else:
            self.facts(state, facts, out)

    def sources(self, state: ChoiceState, found: JSON, out: list[d.Delta]) -> None:
        """Append citations of the sources that stand beside the choices and are not cited yet."""
        # A list, since a server's value may be one that no set takes.
        cited = [a.get("url") for a in state.annotations]
        cited += [inner.get("url") for a in state.annotations if isinstance(inner := a.get("url_citation"), dict)]
        for source in found if isinstance(found, list) else ():
            item = {"url": source} if isinstance(source, str) else source
            if isinstance(item, dict) and item.get("url") not in cited:
                self._cite(state, cast(dict[str, Any], item), out)


def _objects(value: JSON) -> list[dict[str, Any]]:
    if isinstance(value, dict):
        return [value]
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
