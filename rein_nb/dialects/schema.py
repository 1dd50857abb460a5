"""JSON Schema as each dialect takes it: the four public transforms, and walking and inlining that they share.

Every transform returns a new schema and leaves the given one alone, gives the same answer each time, and never empties a
schema to make it fit: what a dialect cannot express becomes words in the description, or switches strict mode off with a note.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias
from urllib.parse import unquote

from rein_nb.ir import InvalidRequest

Schema: TypeAlias = dict[str, Any]
Notes: TypeAlias = list[str]

_NODES = 20_000
"""Most nodes that inlining may make; definitions that refer to each other in layers grow exponentially."""

_MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLES = (
    "items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames",
    "unevaluatedItems", "unevaluatedProperties", "additionalItems",
)  # fmt: skip


class NotExpressible(Exception):
    """A schema that the stricter form of a dialect cannot express; the message says why."""


# -- walking ----------------------------------------------------------------------------------------

ANNOTATIONS = (
    "default",
    "examples",
    "example",
    "$schema",
    "$id",
    "$comment",
    "discriminator",
    "deprecated",
    "readOnly",
    "writeOnly",
)
"""Keywords that say something about a schema but constrain nothing."""


def children(schema: Schema) -> Iterable[Schema]:
    """The direct subschemas that are objects, in document order."""
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            yield from (item for item in value.values() if isinstance(item, dict))
        elif isinstance(value, list) and (key in _LISTS or key == "items"):
            yield from (item for item in value if isinstance(item, dict))
        elif key in _SINGLES and isinstance(value, dict):
            yield value


def map_children(schema: Schema, change: Callable[[Any], Any]) -> Schema:
    """A copy with `change` applied to each direct subschema, boolean ones included."""
    out: Schema = {}
    for key, value in schema.items():
        if key in _MAPS and isinstance(value, dict):
            out[key] = {name: change(item) for name, item in value.items()}
        elif isinstance(value, list) and (key in _LISTS or key == "items"):
            out[key] = [change(item) for item in value]
        elif key in _SINGLES and isinstance(value, dict):
            out[key] = change(value)
        else:
            out[key] = value
    return out


def resolve(root: Schema, ref: str) -> Schema:
    """What a ``$ref`` inside `root` points at.

    Raises
    ------
    InvalidRequest
        When it points outside the schema, or at nothing.
    """
    if ref == "#":
        return root
    if not ref.startswith("#/"):
        raise InvalidRequest(f"the schema refers to {ref!r}, which is outside it; put the definition under '$defs'")
    node: Any = root
    for token in ref[2:].split("/"):
        key = unquote(token).replace("~1", "/").replace("~0", "~")
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise InvalidRequest(f"the schema refers to {ref!r}, and there is no such definition in it")
    return node


def recursive_refs(root: Schema) -> frozenset[str]:
    """The references in `root` whose target contains, at any depth, the same reference again."""
    direct: dict[str, set[str]] = {}

    def refs_in(node: Schema) -> set[str]:
        found: set[str] = set()
        waiting = [node]
        while waiting:
            item = waiting.pop()
            if isinstance(item.get("$ref"), str):
                found.add(item["$ref"])
            for child in children({k: v for k, v in item.items() if k not in ("$defs", "definitions")}):
                waiting.append(child)
        return found

    waiting = [*refs_in(root)]
    while waiting:
        ref = waiting.pop()
        if ref not in direct:
            direct[ref] = refs_in(resolve(root, ref))
            waiting.extend(direct[ref])

    def reaches_itself(ref: str) -> bool:
        seen: set[str] = set()
        ahead = [*direct[ref]]
        while ahead:
            item = ahead.pop()
            if item == ref:
                return True
            if item not in seen:
                seen.add(item)
                ahead.extend(direct[item])
        return False

    return frozenset(ref for ref in direct if reaches_itself(ref))


def inline_refs(schema: Schema, *, cut: int | None = None) -> Schema:
    """`schema` with every ``$ref`` replaced by what it points at; keys beside a reference are laid over its target.

    Parameters
    ----------
    cut
        None keeps recursive references, and the ``$defs`` that they need. A number expands a recursive definition that many
        times inside itself and then puts a plain object.

    Raises
    ------
    InvalidRequest
        For a reference to nothing, and for definitions that would expand to more than 20,000 nodes.

    Examples
    --------
    >>> inline_refs({"properties": {"a": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}})
    {'properties': {'a': {'type': 'string'}}}
    """
    return _Inliner(schema, cut).run()


class _Inliner:
    def __init__(self, root: Schema, cut: int | None) -> None:
        self.root = root
        self.cut = cut
        self.recursive = recursive_refs(root)
        self.kept: dict[str, Schema] = {}
        self.nodes = 0

    def run(self) -> Schema:
        out = self.expand(self.root, ())
        definitions: Schema = {}
        done: set[str] = set()
        while waiting := [ref for ref in self.kept if ref not in done and ref != "#"]:
            for ref in waiting:
                done.add(ref)
                definitions[self.name(ref)] = self.expand(resolve(self.root, ref), ())
        return {**out, "$defs": definitions} if definitions else out

    @staticmethod
    def name(ref: str) -> str:
        return ref[2:].removeprefix("$defs/").removeprefix("definitions/").replace("/", "_").replace("~", "_")

    def expand(self, node: Any, stack: tuple[str, ...]) -> Any:
        if not isinstance(node, dict):
            return node
        self.nodes += 1
        if self.nodes > _NODES:
            raise InvalidRequest(f"the schema expands to more than {_NODES} nodes when its $refs are put in place")
        ref = node.get("$ref")
        plain = {key: value for key, value in node.items() if key not in ("$defs", "definitions", "$ref")}
        if not isinstance(ref, str):
            return map_children(plain, lambda child: self.expand(child, stack))
        beside = map_children(plain, lambda child: self.expand(child, stack))
        if ref in self.recursive:
            if self.cut is None:
                self.kept[ref] = {}
                return {"$ref": ref if ref == "#" else f"#/$defs/{self.name(ref)}", **beside}
            if stack.count(ref) >= self.cut:
                described = resolve(self.root, ref).get("description")
                return {"type": "object", **({"description": described} if described else {}), **beside}
        return {**self.expand(resolve(self.root, ref), (*stack, ref)), **beside}


# -- shared pieces ----------------------------------------------------------------------------------


def resolved_root(schema: Schema) -> Schema:
    """A copy whose root is no ``$ref``."""
    out = dict(schema)
    while isinstance(ref := out.pop("$ref", None), str):
        out = {**resolve(schema, ref), **out}
    return out


def object_root(schema: Schema) -> Schema:
    """The schema with an object at its root, as tools need it: a root ``$ref`` put in place, ``properties`` present."""
    out = resolved_root(schema)
    out.setdefault("type", "object")
    if out["type"] == "object":
        out.setdefault("properties", {})
    return out


def with_words(schema: Schema, words: Iterable[str]) -> Schema:
    """The schema with `words` added to its description; unchanged where there are none."""
    said = ", ".join(words)
    if not said:
        return schema
    described = schema.get("description")
    return {**schema, "description": f"{described} ({said})" if described else f"({said})"}


def in_words(key: str, value: Any) -> str:
    """A keyword that the dialect lacks, for the description."""
    return f"{key}: {json.dumps(value, ensure_ascii=False, default=str)}"


def type_of(values: Iterable[Any]) -> str | list[str] | None:
    """The JSON Schema type or types of some values; None for no values."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    found = list(dict.fromkeys("null" if value is None else names.get(type(value), "string") for value in values))
    if not found:
        return None
    return found[0] if len(found) == 1 else found


def merge_all_of(root: Schema, schema: Schema) -> Schema:
    """``allOf`` folded into its schema: properties and required joined, other keys by the last that says something.

    Raises
    ------
    NotExpressible
        When two branches say different things about one key.
    """
    out = {key: value for key, value in schema.items() if key != "allOf"}
    for branch in schema["allOf"]:
        item = branch
        while isinstance(item, dict) and isinstance(item.get("$ref"), str):
            item = {**resolve(root, item["$ref"]), **{k: v for k, v in item.items() if k != "$ref"}}
        if not isinstance(item, dict):
            raise NotExpressible("allOf with a boolean branch")
        if "allOf" in item:
            item = merge_all_of(root, item)
        for key, value in item.items():
            if key == "properties":
                out[key] = {**value, **out.get(key, {})}
            elif key == "required":
                out[key] = list(dict.fromkeys([*out.get(key, []), *value]))
            elif key in ("title", "description", "default", "examples"):
                out.setdefault(key, value)
            elif out.setdefault(key, value) != value:
                raise NotExpressible(f"allOf whose branches differ about {key!r}")
    return out


def nullable(schema: Schema) -> Schema:
    """The schema, or null."""
    kind = schema.get("type")
    if "anyOf" in schema:
        if any(branch.get("type") == "null" for branch in schema["anyOf"]):
            return schema
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if kind is None:
        beside: Schema = {key: schema[key] for key in ("description", "title") if key in schema}
        return {"anyOf": [{k: v for k, v in schema.items() if k not in beside}, {"type": "null"}], **beside}
    kinds = [kind] if isinstance(kind, str) else list(kind)
    out = schema if "null" in kinds else {**schema, "type": [*kinds, "null"]}
    if "const" in out and out["const"] is not None:
        out = {**{k: v for k, v in out.items() if k != "const"}, "enum": [out["const"], None]}
    elif "enum" in out and None not in out["enum"]:
        out = {**out, "enum": [*out["enum"], None]}
    return out


def without_filled_nulls(arguments: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Arguments without the nulls that strict mode made the model write for optional properties that are not nullable.

    Examples
    --------
    >>> without_filled_nulls({"a": 1, "b": None}, {"properties": {"a": {}, "b": {"type": "integer"}}, "required": ["a"]})
    {'a': 1}
    """
    schema = object_root(schema) if "$ref" in schema else schema
    return _dropped(arguments, schema, schema)  # type: ignore[no-any-return]


def _dropped(value: Any, node: Any, root: Schema) -> Any:
    while isinstance(node, dict) and isinstance(node.get("$ref"), str):
        node = resolve(root, node["$ref"])
    if not isinstance(node, dict):
        return value
    if isinstance(value, list):
        return [_dropped(item, node.get("items"), root) for item in value]
    if not isinstance(value, dict):
        return value
    branches = [branch for key in ("anyOf", "oneOf") for branch in node.get(key, []) if isinstance(branch, dict)]
    if branches and "properties" not in node:
        objects = [branch for branch in branches if branch.get("type") != "null"]
        return _dropped(value, objects[0], root) if len(objects) == 1 else value
    properties = node.get("properties", {})
    required = node.get("required", [])
    out = {}
    for name, item in value.items():
        known = properties.get(name)
        if item is None and known is not None and name not in required and not _takes_null(known, root):
            continue
        out[name] = _dropped(item, known, root)
    return out


def _takes_null(node: Any, root: Schema) -> bool:
    while isinstance(node, dict) and isinstance(node.get("$ref"), str):
        node = resolve(root, node["$ref"])
    if not isinstance(node, dict):
        return True
    kinds = node.get("type", [])
    if "null" in ([kinds] if isinstance(kinds, str) else kinds) or None in node.get("enum", []):
        return True
    for key in ("anyOf", "oneOf"):
        if key in node:
            return any(_takes_null(branch, root) for branch in node[key])
    return "type" not in node and "enum" not in node and "const" not in node and "properties" not in node


# -- the dialects -------------------------------------------------------------------------------------


def for_openai(schema: Schema, strict: bool | None = None) -> tuple[Schema, bool | None, Notes]:
    """A tool's or an answer's schema for OpenAI Chat Completions and Responses.

    With ``strict=True`` every object is closed, all properties are required, optional ones are nullable, and defaults are gone; where
    strict mode cannot express the schema (free-form maps, any value, tuples) it comes back as it was, with False and a note.

    Returns
    -------
    tuple
        (schema, strict, notes)
    """
    from rein_nb.dialects.schema_strict import openai_strict

    root = object_root(schema)
    if not strict:
        return root, strict, []
    try:
        return openai_strict(root), True, []
    except NotExpressible as exc:
        return root, False, [f"strict mode is off: it cannot express {exc}"]


def for_anthropic(schema: Schema, strict: bool | None = None) -> tuple[Schema, bool | None, Notes]:
    """A tool's or an answer's schema for Anthropic Messages.

    Plain tools take JSON Schema as it is, but for ``anyOf``, ``oneOf`` and ``allOf`` at the root. With ``strict=True`` (strict tools,
    structured output) every object is closed, limits on numbers, lengths and patterns become words, and recursion or free-form maps
    switch it off with a note.

    Returns
    -------
    tuple
        (schema, strict, notes)
    """
    from rein_nb.dialects.schema_strict import anthropic_root, anthropic_strict

    root, notes = anthropic_root(object_root(schema))
    if not strict:
        return root, strict, notes
    try:
        return anthropic_strict(root), True, notes
    except NotExpressible as exc:
        return root, False, [*notes, f"strict mode is off: it cannot express {exc}"]


def for_google(schema: Schema) -> tuple[Schema, Notes]:
    """A schema in Google's own form (``parameters``, ``responseSchema``): references inlined, recursion cut, one-value enums for
    ``const``, ``nullable`` for null, nothing beside ``anyOf``.

    Returns
    -------
    tuple
        (schema, notes); a note names something that Google's form loses and that its JSON Schema fields
        (``parametersJsonSchema``, ``responseJsonSchema``; see `for_google_json`) can say.
    """
    from rein_nb.dialects.schema_google import google_schema

    return google_schema(schema)


def for_google_json(schema: Schema) -> Schema:
    """A schema for Google's JSON Schema fields: the keywords that they document; all others become words."""
    from rein_nb.dialects.schema_google import google_json_schema

    return google_json_schema(schema)
