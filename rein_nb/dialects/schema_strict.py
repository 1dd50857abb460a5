"""Strict modes: schemas that OpenAI and Anthropic enforce while the model writes.

Sources: the providers' structured-output guides (supported keywords and formats); field case C043.
"""

from __future__ import annotations

from typing import Any

from rein_nb.dialects.schema import (
    ANNOTATIONS,
    Notes,
    NotExpressible,
    Schema,
    in_words,
    merge_all_of,
    nullable,
    recursive_refs,
    resolve,
    type_of,
    with_words,
)

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})
_STRUCTURAL = (
    "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "patternProperties", "propertyNames",
    "prefixItems", "contains", "unevaluatedProperties", "unevaluatedItems",
)  # fmt: skip
_OPENAI_WORDS = ("uniqueItems", "minProperties", "maxProperties", "minContains", "maxContains")
_ANTHROPIC_WORDS = (
    *_OPENAI_WORDS, "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "maxItems",
)  # fmt: skip


def openai_strict(root: Schema) -> Schema:
    """OpenAI's strict form of an object schema. Raises `NotExpressible`."""
    return _root(_Strict(root, _OPENAI_WORDS, _FORMATS, fill=True).node(root, at_root=True))


def anthropic_strict(root: Schema) -> Schema:
    """Anthropic's strict form of an object schema. Raises `NotExpressible`."""
    if recursive_refs(root):
        raise NotExpressible("a schema that contains itself")
    visitor = _Strict(root, _ANTHROPIC_WORDS, _FORMATS | {"uri"}, fill=False)
    return _root(visitor.node(root, at_root=True))


def _root(schema: Schema) -> Schema:
    if schema.get("type") != "object":
        raise NotExpressible("a root that is not an object")
    return schema


class _Strict:
    """Closes every object; `fill` also makes every property required, and optional ones nullable."""

    def __init__(self, root: Schema, words: tuple[str, ...], formats: frozenset[str], *, fill: bool) -> None:
        self.root = root
        self.words = words
        self.formats = formats
        self.fill = fill

    def node(self, schema: Any, *, at_root: bool = False) -> Schema:
        if not isinstance(schema, dict):
            raise NotExpressible("a boolean schema")
        out = {key: value for key, value in schema.items() if key not in ANNOTATIONS}
        ref = out.pop("$ref", None)
        if isinstance(ref, str):
            return self._reference(ref, out)
        if "allOf" in out:
            return self.node(merge_all_of(self.root, out), at_root=at_root)
        for key in _STRUCTURAL:
            if out.get(key):
                raise NotExpressible(key)
        if "oneOf" in out:
            out["anyOf"] = [*out.get("anyOf", []), *out.pop("oneOf")]
        out = self._typed(out)
        said = [in_words(key, out.pop(key)) for key in self.words if key in out]
        if out.get("format") is not None and out["format"] not in self.formats:
            said.append(in_words("format", out.pop("format")))
        if self.fill is False and out.get("minItems", 0) > 1:
            said.append(in_words("minItems", out.pop("minItems")))
        kinds = out.get("type")
        if kinds == "object" or (isinstance(kinds, list) and "object" in kinds):
            out = self._object(out, at_root)
        if kinds == "array" or (isinstance(kinds, list) and "array" in kinds):
            out["items"] = self.node(out.get("items", True))
        if "properties" in out and out.get("additionalProperties") is not False:
            raise NotExpressible("properties of something that is not an object")
        if "anyOf" in out:
            out["anyOf"] = [self.node(branch) for branch in out["anyOf"]]
        for key in ("$defs", "definitions"):
            if key in out:
                out[key] = {name: self.node(item) for name, item in out[key].items()}
        return with_words(out, said)

    def _reference(self, ref: str, beside: Schema) -> Schema:
        resolve(self.root, ref)
        if not beside:
            return {"$ref": ref}
        if beside.keys() <= {"description", "title"}:
            # A reference must stand alone, so that what stands beside it goes one level up.
            return {"anyOf": [{"$ref": ref}], **beside}
        return self.node({**resolve(self.root, ref), **beside})

    def _typed(self, schema: Schema) -> Schema:
        if "type" in schema or "anyOf" in schema:
            return schema
        if "properties" in schema:
            return {**schema, "type": "object"}
        if "items" in schema:
            return {**schema, "type": "array"}
        kind = type_of(schema["enum"] if "enum" in schema else [schema["const"]] if "const" in schema else [])
        if kind is None:
            raise NotExpressible("a value of any type")
        return {**schema, "type": kind}

    def _object(self, schema: Schema, at_root: bool) -> Schema:
        extra = schema.get("additionalProperties")
        if extra is True or isinstance(extra, dict):
            raise NotExpressible("a map with free keys")
        if "properties" not in schema and extra is not False and not at_root:
            raise NotExpressible("an object whose properties are not given")
        required = schema.get("required", [])
        properties: Schema = {}
        for name, item in schema.get("properties", {}).items():
            child = self.node(item)
            properties[name] = nullable(child) if self.fill and name not in required else child
        out = {**schema, "properties": properties, "additionalProperties": False}
        if self.fill:
            out["required"] = list(properties)
        return out


def anthropic_root(schema: Schema) -> tuple[Schema, Notes]:
    """A tool's schema without ``anyOf``, ``oneOf`` or ``allOf`` at its root, which Anthropic refuses there: branches become one object.

    A property that some branch lacks is optional in the whole.
    """
    if "allOf" in schema:
        try:
            schema = merge_all_of(schema, schema)
        except NotExpressible:
            schema = {**{k: v for k, v in schema.items() if k != "allOf"}, "anyOf": schema["allOf"]}
    keys = [key for key in ("anyOf", "oneOf") if key in schema]
    if not keys:
        return schema, []
    out = {key: value for key, value in schema.items() if key not in keys}
    properties = dict(out.get("properties", {}))
    for key in keys:
        branches = [_resolved(schema, branch) for branch in schema[key]]
        for branch in branches:
            for name, item in branch.get("properties", {}).items():
                known = properties.get(name)
                if known is None or known == item:
                    properties[name] = item
                else:
                    options = known["anyOf"] if set(known) == {"anyOf"} else [known]
                    properties[name] = {"anyOf": [*options, item]} if item not in options else known
        common = set.intersection(*(set(branch.get("required", [])) for branch in branches)) if branches else set()
        out["required"] = [*dict.fromkeys([*out.get("required", []), *sorted(common)])]
    out["properties"] = properties
    return out, [f"{' and '.join(keys)} at the root of a tool's schema became one object with all properties"]


def _resolved(root: Schema, schema: Any) -> Schema:
    while isinstance(schema, dict) and isinstance(schema.get("$ref"), str):
        schema = resolve(root, schema["$ref"])
    return schema if isinstance(schema, dict) else {}
