"""What is wrong with arguments, in words for the model."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError


def accepts_string(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if not schema.keys() - {"title", "description", "default"}:
        return True
    if "$ref" in schema:
        return accepts_string(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    types_ = schema.get("type")
    if types_ == "string" or (isinstance(types_, list) and "string" in types_):
        return True
    if any(isinstance(value, str) for value in [*schema.get("enum", ()), schema.get("const")]):
        return True
    return any(
        accepts_string(option, definitions) for key in ("anyOf", "oneOf", "allOf") for option in schema.get(key, ())
    )


def described_errors(exc: ValidationError, path: tuple[int | str, ...] = ()) -> list[str]:
    """One line for each of the first errors; `path` leads to the value that was validated."""
    errors = exc.errors(include_url=False, include_context=False)
    lines = []
    for error in errors[:8]:
        where = ".".join(str(step) for step in (*path, *error["loc"])) or "arguments"
        if error["type"] == "missing":
            lines.append(f"- {where}: missing, and required")
        else:
            lines.append(f"- {where}: {error['msg']}, got {_short(error['input'])}")
    if len(errors) > 8:
        lines.append(f"- and {len(errors) - 8} more")
    return lines


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as exc:
        text = f"<{type(value).__name__} whose repr failed: {type(exc).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def first_line(exc: BaseException) -> str:
    return str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
