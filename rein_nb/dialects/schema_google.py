"""Google's two schema forms.

`google_schema`: the OpenAPI-like ``Schema`` message of ``parameters`` and ``responseSchema``, which every Gemini version takes.
`google_json_schema`: the keywords documented for ``parametersJsonSchema`` and ``responseJsonSchema``. Source: the Gemini API reference
(``Schema``, ``FunctionDeclaration``, ``GenerationConfig``); field case C052.
"""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.schema import (
    ANNOTATIONS,
    Notes,
    NotExpressible,
    Schema,
    in_words,
    inline_refs,
    merge_all_of,
    resolved_root,
    type_of,
    with_words,
)
from rein_nb.ir import InvalidRequest

_DEPTH = 3
"""How often a recursive definition stands inside itself before it becomes a plain object."""

_PLAIN = (
    "title", "description", "minItems", "maxItems", "minLength", "maxLength", "pattern", "minimum", "maximum",
    "minProperties", "maxProperties", "required",
)  # fmt: skip
_FORMATS = {"string": ("date-time", "enum"), "number": ("float", "double"), "integer": ("int32", "int64")}
_ANY = [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]


def google_schema(schema: Schema) -> tuple[Schema, Notes]:
    """(schema, what is lost that the JSON Schema fields could say)."""
    visitor = _Lower()
    try:
        root = inline_refs(resolved_root(schema), cut=_DEPTH)
    except InvalidRequest as exc:
        if "nodes" not in str(exc):
            raise
        return {"type": "object"}, [str(exc)]
    return visitor.node(root), list(visitor.lost)


class _Lower:
    """One schema without references, node by node, in Google's own form."""

    def __init__(self) -> None:
        self.lost: dict[str, None] = {}

    def node(self, schema: Any) -> Schema:
        if not isinstance(schema, dict):
            schema = {}
        if "allOf" in schema:
            try:
                schema = merge_all_of(schema, schema)
            except NotExpressible as exc:
                self.lost[str(exc)] = None
                schema = _first_of_all(schema)
        branches = [*schema.get("anyOf", []), *schema.get("oneOf", [])]
        if branches:
            return self._union(schema, branches)
        kinds = schema.get("type")
        if isinstance(kinds, list):
            return self._union({k: v for k, v in schema.items() if k != "type"}, [{"type": kind} for kind in kinds])
        return self._plain(schema)

    def _union(self, schema: Schema, branches: list[Any]) -> Schema:
        """One branch takes everything beside the union into itself; of several, each does: nothing may stand beside ``anyOf``."""
        beside = {k: v for k, v in schema.items() if k not in ("anyOf", "oneOf", *ANNOTATIONS)}
        options: list[Schema] = []
        null = schema.get("nullable", False)
        beside.pop("nullable", None)
        for branch in branches:
            option = {**beside, **(branch if isinstance(branch, dict) else {})}
            if option.get("type") == "null" or option.get("enum") == [None] or option.get("const", 0) is None:
                null = True
                continue
            if isinstance(option.get("properties"), dict) and isinstance(beside.get("properties"), dict):
                option["properties"] = {**beside["properties"], **option["properties"]}
                option["required"] = [*dict.fromkeys([*beside.get("required", []), *option.get("required", [])])]
            kept = _fitting(option)
            lowered = self.node(kept)
            null = null or lowered.pop("nullable", False)
            for item in lowered.pop("anyOf", None) or [lowered]:
                null = item.pop("nullable", False) or null
                if item not in options:
                    options.append(item)
        if not options:
            return with_words({"type": "string", "nullable": True}, ["always null"])
        if null:
            options = [{**option, "nullable": True} for option in options]
        return options[0] if len(options) == 1 else {"anyOf": options}

    def _plain(self, schema: Schema) -> Schema:
        said: list[str] = []
        values = schema.get("enum", [schema["const"]] if "const" in schema else None)
        kind = schema.get("type") or _kind_of(schema, values)
        out: Schema = {}
        if kind is None:
            self.lost["a value of any type"] = None
            described = {k: schema[k] for k in ("description",) if k in schema}
            return {"anyOf": [{**item, **described} for item in _ANY]}
        if isinstance(kind, list):
            return self._union({k: v for k, v in schema.items() if k != "type"}, [{"type": item} for item in kind])
        out["type"] = kind
        if schema.get("nullable") or (values is not None and None in values and len(values) > 1):
            out["nullable"] = True
        if values is not None:
            values = [value for value in values if value is not None]
            if kind == "string" and all(isinstance(value, str) for value in values):
                out["enum"] = list(values)
            else:
                # The form's enum holds strings only.
                self.lost["an enum of values that are not strings"] = None
                said.append(in_words("one of", values))
        for key, value in schema.items():
            if key in _PLAIN:
                out[key] = value
            elif key == "properties":
                out[key] = {name: self.node(item) for name, item in value.items()}
            elif key == "format":
                if value in _FORMATS.get(kind, ()):
                    out[key] = value
                else:
                    said.append(in_words(key, value))
            elif key in ("items", "prefixItems") or key in ("type", "enum", "const", "nullable", *ANNOTATIONS):
                continue
            elif key == "additionalProperties":
                if isinstance(value, dict) and value:
                    self.lost["a map with typed values"] = None
                    said.append(in_words("any keys, each value", value))
            else:
                said.append(in_words(key, value))
        if kind == "array":
            out["items"] = self._items(schema)
        if "required" in out:
            out["required"] = [name for name in out["required"] if name in out.get("properties", {})]
            if not out["required"]:
                del out["required"]
        if kind == "object" and "properties" in out and not out["properties"]:
            del out["properties"]
        return with_words(out, said)

    def _items(self, schema: Schema) -> Schema:
        several = schema.get("prefixItems") or (schema["items"] if isinstance(schema.get("items"), list) else None)
        if several:
            self.lost["a tuple"] = None
            lowered = [self.node(item) for item in several]
            options = [item for n, item in enumerate(lowered) if item not in lowered[:n]]
            return options[0] if len(options) == 1 else {"anyOf": options}
        return self.node(schema.get("items", {}))


_OF_TYPE = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "object": ("properties", "required", "additionalProperties", "minProperties", "maxProperties", "patternProperties"),
}
_NUMERIC = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def _fitting(schema: Schema) -> Schema:
    """Without keywords that belong to another type than the schema's own."""
    kind = schema.get("type")
    if not isinstance(kind, str):
        return schema
    foreign = {key for other, keys in _OF_TYPE.items() if other != kind for key in keys}
    if kind in ("integer", "number"):
        foreign.discard("format")
    else:
        foreign.update(_NUMERIC)
    out = {key: value for key, value in schema.items() if key not in foreign}
    if "enum" in out and kind in ("string", "integer", "number", "boolean"):
        fits = [value for value in out["enum"] if value is None or _is(value, kind)]
        out["enum"] = fits or out["enum"]
    return out


def _is(value: Any, kind: str) -> bool:
    found = type_of([value])
    return found == kind or (found == "integer" and kind == "number")


def _kind_of(schema: Schema, values: list[Any] | None) -> str | list[str] | None:
    if "properties" in schema or "additionalProperties" in schema:
        return "object"
    if "items" in schema or "prefixItems" in schema:
        return "array"
    return type_of([value for value in values or [] if value is not None])


# -- JSON Schema fields -------------------------------------------------------------------------------

_JSON_KEYS = frozenset({
    "$defs", "$ref", "$anchor", "$id", "type", "format", "title", "description", "enum", "items", "prefixItems", "minItems", "maxItems",
    "minimum", "maximum", "anyOf", "oneOf", "properties", "additionalProperties", "required", "propertyOrdering",
})  # fmt: skip


def google_json_schema(schema: Schema) -> Schema:
    """References are kept only where they are recursive; ``const`` becomes an enum; other keywords become words."""
    try:
        root = inline_refs(resolved_root(schema))
    except InvalidRequest as exc:
        if "nodes" not in str(exc):
            raise
        root = resolved_root(schema)
    lowered: Schema = _json_node(root, root)
    return lowered


def _first_of_all(schema: Schema) -> Schema:
    """An ``allOf`` that cannot be folded: its first branch as schema, the others in words."""
    first, *others = schema["allOf"]
    whole = {**{key: value for key, value in schema.items() if key != "allOf"}, **first}
    return with_words(whole, [in_words("and also", branch) for branch in others])


def _json_node(schema: Any, root: Schema) -> Any:
    if not isinstance(schema, dict):
        return schema
    if "allOf" in schema:
        try:
            schema = merge_all_of(root, schema)
        except NotExpressible:
            schema = _first_of_all(schema)
    ref = schema.get("$ref")
    if isinstance(ref, str) and len(schema) > 1:
        beside = {k: v for k, v in schema.items() if k in ("description", "title")}
        return {"anyOf": [{"$ref": ref}], **beside} if beside else {"$ref": ref}
    said: list[str] = []
    out: Schema = {}
    for key, value in schema.items():
        if key == "const":
            out["enum"] = [value]
        elif key in ("properties", "$defs"):
            out[key] = {name: _json_node(item, root) for name, item in value.items()}
        elif key in ("anyOf", "oneOf", "prefixItems") or (key == "items" and isinstance(value, list)):
            out[key] = [_json_node(item, root) for item in value]
        elif key in ("items", "additionalProperties"):
            out[key] = _json_node(value, root)
        elif key == "format" and value not in ("date-time", "date", "time"):
            said.append(in_words(key, value))
        elif key in _JSON_KEYS:
            out[key] = value
        elif key not in ANNOTATIONS:
            said.append(in_words(key, value))
    return with_words(out, said)
