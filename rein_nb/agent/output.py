"""Structured output: a Python type in, a validated value out.

Where the model has native JSON-schema output, it is asked for; elsewhere the model answers by calling one more tool, whose parameters
are the type. What does not validate goes back to the model, a bounded number of times.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rein_nb.ir import InvalidRequest, OutputFormat, ToolCall, ToolSpec, sanitize_tool_name
from rein_nb.ir.base import loads
from rein_nb.ir.errors import said
from rein_nb.tools.execute import EndsRun

_WRAP = "result"
"""The property that holds a value whose own schema is no object (a list, a union, a number)."""

_FENCE = "```"


class OutputInvalid(ValueError):
    """The model's answer is not of the type asked for. The message is written for the model."""


class OutputSpec:
    """How one output type is asked for and read.

    Parameters
    ----------
    type
        A pydantic model, dataclass, TypedDict, list, union, or anything pydantic knows.
    native
        Ask through the provider's JSON-schema output.
    taken
        Tool names in use, so that the answer tool gets one of its own.

    Raises
    ------
    InvalidRequest
        When the type has no JSON schema.
    """

    def __init__(self, type: Any, *, native: bool, taken: list[str]) -> None:
        try:
            self._adapter: TypeAdapter[Any] = TypeAdapter(type)
            schema = self._adapter.json_schema()
        except Exception as exc:  # pydantic has several, one a stage
            raise InvalidRequest(f"output_type {type!r} has no JSON schema: {exc}") from exc
        self.native = native
        self._wrapped = schema.get("type") != "object" or "$ref" in schema
        if self._wrapped and "$ref" in schema:
            resolved = schema.get("$defs", {}).get(schema["$ref"].rpartition("/")[2], {})
            self._wrapped = resolved.get("type") != "object"
            if not self._wrapped:
                schema = {**resolved, "$defs": schema["$defs"]}
        self.schema = self._wrap(schema) if self._wrapped else schema
        self.tool_name = next(name for name in _names() if name not in taken)
        name = sanitize_tool_name(getattr(type, "__name__", "") or "output") or "output"
        self.format = (
            OutputFormat(type="json_schema", name=name, json_schema=self.schema, description=schema.get("description"))
            if native
            else None
        )
        self.tool = ToolSpec(
            name=self.tool_name,
            description="Give the final answer. Call this once, when you are done; its arguments are the answer."
            + (f" {schema['description']}" if schema.get("description") else ""),
            parameters=self.schema,
        )

    @staticmethod
    def _wrap(schema: dict[str, Any]) -> dict[str, Any]:
        definitions = schema.pop("$defs", None)
        wrapped: dict[str, Any] = {
            "type": "object", "properties": {_WRAP: schema}, "required": [_WRAP], "additionalProperties": False,
        }  # fmt: skip
        if definitions:
            wrapped["$defs"] = definitions
        return wrapped

    def from_call(self, call: ToolCall) -> Any:
        """The value from a call of the answer tool.

        Raises
        ------
        OutputInvalid
            Saying what is wrong.
        EndsRun
            With a KeyboardInterrupt that landed in a validator.
        """
        if call.error is not None:
            raise OutputInvalid(
                f"The answer's arguments are not complete JSON: {call.error}. Call {self.tool_name} again."
            )
        return self._validated(call.arguments)

    def from_text(self, text: str) -> Any:
        """The value from an answer's text: JSON, alone or in one code fence.

        Raises
        ------
        OutputInvalid
            Saying what is wrong.
        """
        try:
            data = loads(_unfenced(text))
        except (ValueError, RecursionError) as exc:
            how = (
                "Answer with the JSON alone."
                if self.native
                else f"Give the answer by calling the tool {self.tool_name}."
            )
            raise OutputInvalid(f"The answer is not JSON ({exc}). {how}") from exc
        return self._validated(data)

    def _validated(self, data: Any) -> Any:
        if self._wrapped and isinstance(data, dict) and set(data) == {_WRAP}:
            data = data[_WRAP]
        try:
            # Through JSON: what came as JSON is judged by JSON's rules (a date is a string, a tuple an array).
            return self._adapter.validate_json(json.dumps(data))
        except ValidationError as exc:
            lines = [
                f"- {'.'.join(map(str, error['loc'])) or 'the answer'}: {error['msg']}"
                for error in exc.errors(include_url=False, include_context=False)[:8]
            ]
            raise OutputInvalid(
                "The answer does not fit what was asked for:\n" + "\n".join(lines) + "\nCorrect it and answer again."
            ) from exc
        except KeyboardInterrupt as exc:
            raise EndsRun(exc) from exc
        except BaseException as exc:  # a validator of the user's own failed in its own way
            raise OutputInvalid(
                f"The answer could not be checked ({type(exc).__name__}: {said(exc)}). Correct it and answer again."
            ) from exc


def _names() -> Iterator[str]:
    yield from ("answer", "final_answer", "give_final_answer")
    yield from (f"final_answer_{number}" for number in itertools.count(2))


def has_native_output(llm: Any) -> bool:
    """Whether a model's provider takes a schema for the answer."""
    target = llm.target() if hasattr(llm, "target") else None
    return bool(target is not None and target.capabilities.structured_output)


def _unfenced(text: str) -> str:
    stripped = text.strip()
    if stripped.startswith(_FENCE) and stripped.endswith(_FENCE) and "\n" in stripped:
        return stripped[stripped.index("\n") + 1 : -len(_FENCE)]
    return stripped
