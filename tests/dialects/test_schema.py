"""Schemas as each dialect takes them."""

from __future__ import annotations

import copy
import json
from enum import Enum
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, RootModel

from rein_nb.dialects.schema import (
    children,
    for_anthropic,
    for_google,
    for_google_json,
    for_openai,
    inline_refs,
    without_filled_nulls,
)
from rein_nb.ir import InvalidRequest


def nodes(schema: Any) -> list[dict[str, Any]]:
    found = [schema]
    for child in children(schema):
        found.extend(nodes(child))
    return found


def depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth, value.values()), default=0)
    if isinstance(value, list):
        return max(map(depth, value), default=0)
    return 0


C043: dict[str, Any] = {
    "type": "object",
    "properties": {
        "who": {"$ref": "#/$defs/P"},
        "opt": {"type": ["object", "null"], "properties": {"a": {"type": "integer", "default": 3}}},
        "bag": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["who"],
    "$defs": {"P": {"properties": {"name": {"type": "string"}}}},
}


def test_C043_strict_closes_every_object_and_makes_optional_properties_nullable() -> None:
    given_schema = copy.deepcopy(C043)
    del given_schema["properties"]["bag"]
    before = copy.deepcopy(given_schema)
    schema, strict, notes = for_openai(given_schema, True)
    assert (strict, notes) == (True, [])
    assert given_schema == before
    objects = [node for node in nodes(schema) if "properties" in node]
    assert len(objects) == 3
    for node in objects:
        assert node["additionalProperties"] is False
        assert node["required"] == list(node["properties"])
        assert "default" not in node
    assert schema["$defs"]["P"]["type"] == "object"
    assert schema["$defs"]["P"]["properties"]["name"]["type"] == ["string", "null"]
    assert schema["properties"]["opt"]["type"] == ["object", "null"]
    assert schema["properties"]["opt"]["properties"]["a"] == {"type": ["integer", "null"]}
    assert schema["properties"]["who"] == {"$ref": "#/$defs/P"}


def test_C043_a_free_form_map_switches_strict_off_and_says_so() -> None:
    before = copy.deepcopy(C043)
    schema, strict, notes = for_openai(C043, True)
    assert strict is False
    assert "free keys" in notes[0]
    assert schema == before == C043


@pytest.mark.parametrize(
    ("part", "why"),
    [
        ({"type": "object"}, "not given"),
        ({}, "any type"),
        ({"type": "array"}, "boolean"),
        ({"type": "array", "prefixItems": [{"type": "string"}]}, "prefixItems"),
        ({"not": {"type": "string"}}, "not"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, "free keys"),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "allOf"),
    ],
)
def test_strict_mode_is_off_for_what_it_cannot_express(part: dict[str, Any], why: str) -> None:
    given_schema = {"type": "object", "properties": {"x": part}, "required": ["x"]}
    schema, strict, notes = for_openai(given_schema, True)
    assert strict is False
    assert schema == given_schema
    assert why in notes[0]


def test_strict_keeps_recursion_and_moves_what_stands_beside_a_reference() -> None:
    schema, strict, _ = for_openai(
        {
            "type": "object",
            "properties": {"tree": {"$ref": "#/$defs/T", "description": "the tree", "default": None}},
            "$defs": {"T": {"properties": {"left": {"$ref": "#/$defs/T"}}}},
        },
        True,
    )
    assert strict is True
    assert schema["properties"]["tree"] == {
        "anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}],
        "description": "the tree",
    }
    assert schema["$defs"]["T"]["properties"]["left"] == {"anyOf": [{"$ref": "#/$defs/T"}, {"type": "null"}]}


def test_strict_says_in_words_what_it_has_no_keyword_for() -> None:
    given_schema = {
        "type": "object",
        "properties": {
            "u": {"type": "string", "format": "uri"},
            "s": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        },
        "required": ["u", "s"],
    }
    schema, strict, _ = for_openai(given_schema, True)
    assert strict is True
    assert schema["properties"]["u"] == {"type": "string", "description": '(format: "uri")'}
    assert schema["properties"]["s"]["description"] == "(uniqueItems: true)"


def test_a_root_reference_and_a_tool_without_parameters_become_objects() -> None:
    class Node(BaseModel):
        value: int
        next: Node | None = None

    schema = Node.model_json_schema()
    assert "$ref" in schema
    for strict in (True, None):
        out, _, _ = for_openai(schema, strict)
        assert out["type"] == "object"
        assert set(out["properties"]) == {"value", "next"}
    assert for_openai({}, True)[0] == {
        "type": "object",
        "properties": {},
        "additionalProperties": False,
        "required": [],
    }
    assert for_openai({"type": "object"}, None) == ({"type": "object", "properties": {}}, None, [])


def test_nulls_that_strict_mode_made_are_taken_out_again() -> None:
    class Inner(BaseModel):
        k: int = 1

    class Args(BaseModel):
        a: int
        b: int = 3
        c: int | None = None
        inner: Inner = Inner()
        many: list[Inner] = []

    given_args = {"a": 1, "b": None, "c": None, "inner": {"k": None}, "many": [{"k": None}, {"k": 2}], "unknown": None}
    cleaned = without_filled_nulls(given_args, Args.model_json_schema())
    assert cleaned == {"a": 1, "c": None, "inner": {}, "many": [{}, {"k": 2}], "unknown": None}
    Args.model_validate(cleaned)


C052: dict[str, Any] = {
    "type": "object",
    "properties": {
        "who": {"$ref": "#/$defs/P"},
        "kind": {"const": "insert"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None, "title": "Note"},
        "n": {"anyOf": [{"type": "integer"}, {"type": "number"}], "description": "a count"},
    },
    "required": ["who"],
    "$defs": {
        "P": {"type": "object", "properties": {"name": {"type": "string"}, "boss": {"$ref": "#/$defs/P"}}},
    },
}

GOOGLE_KEYS = {
    "type", "format", "title", "description", "nullable", "enum", "items", "minItems", "maxItems", "properties", "required",
    "minProperties", "maxProperties", "minimum", "maximum", "minLength", "maxLength", "pattern", "anyOf",
}  # fmt: skip


def assert_google_form(schema: dict[str, Any]) -> None:
    for node in nodes(schema):
        assert node.keys() <= GOOGLE_KEYS, node
        if "anyOf" in node:
            assert set(node) == {"anyOf"}
        else:
            assert node["type"] in ("string", "number", "integer", "boolean", "array", "object")
        if "enum" in node:
            assert node["type"] == "string"
            assert all(isinstance(value, str) for value in node["enum"])
        if node.get("type") == "array":
            assert node["items"]


def test_C052_pydantic_schemas_are_lowered_to_googles_form() -> None:
    before = copy.deepcopy(C052)
    schema, notes = for_google(C052)
    assert before == C052
    assert for_google(C052) == (schema, notes) == (schema, [])
    assert_google_form(schema)
    assert schema["required"] == ["who"]
    assert schema["properties"]["kind"] == {"type": "string", "enum": ["insert"]}
    assert schema["properties"]["note"] == {"type": "string", "nullable": True, "title": "Note"}
    assert schema["properties"]["n"] == {
        "anyOf": [{"type": "integer", "description": "a count"}, {"type": "number", "description": "a count"}]
    }
    boss = schema["properties"]["who"]["properties"]["boss"]
    assert boss["properties"]["name"] == {"type": "string"}
    assert depth(schema) < 20
    assert json.dumps(schema).count('"boss"') == 3
    innermost = boss["properties"]["boss"]["properties"]["boss"]
    assert innermost == {"type": "object"}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """A point."""

    x: float = Field(gt=0, description="metres")
    label: str | None = None


class Everything(BaseModel):
    colour: Colour
    point: Point = Field(description="where")
    maybe: Point | None = None
    many: list[Point] = []
    names: dict[str, int] = {}
    mode: Literal["a", "b"] = "a"
    level: Literal[1, 2] = 1
    pair: tuple[int, str] = (1, "x")
    either: int | str | list[str] = 1
    anything: Any = None


def test_everything_that_pydantic_writes_has_a_google_form_and_a_note_of_what_it_loses() -> None:
    schema, notes = for_google(Everything.model_json_schema())
    assert_google_form(schema)
    assert set(schema["properties"]) == set(Everything.model_fields)
    assert notes == [
        "a map with typed values",
        "an enum of values that are not strings",
        "a tuple",
        "a value of any type",
    ]
    assert "metres" in schema["properties"]["point"]["properties"]["x"]["description"]
    assert "exclusiveMinimum: 0" in schema["properties"]["point"]["properties"]["x"]["description"]
    assert schema["properties"]["maybe"]["nullable"] is True
    assert schema["properties"]["maybe"]["properties"]["label"]["nullable"] is True
    assert schema["properties"]["point"]["description"] == "where"


def test_googles_json_schema_fields_say_what_its_own_form_loses() -> None:
    schema = for_google_json(Everything.model_json_schema())
    assert schema["properties"]["names"]["additionalProperties"] == {"type": "integer"}
    assert schema["properties"]["level"]["enum"] == [1, 2]
    assert [item["type"] for item in schema["properties"]["pair"]["prefixItems"]] == ["integer", "string"]
    recursive = for_google_json(C052)
    assert recursive["$defs"]["P"]["properties"]["boss"] == {"$ref": "#/$defs/P"}
    assert recursive["properties"]["kind"] == {"enum": ["insert"]}


def test_anthropic_takes_json_schema_but_no_union_at_the_root() -> None:
    plain = Everything.model_json_schema()
    assert for_anthropic(plain) == (plain, None, [])
    union = {
        "type": "object",
        "oneOf": [
            {"properties": {"a": {"type": "string"}, "k": {"const": 1}}, "required": ["a", "k"]},
            {"$ref": "#/$defs/B"},
        ],
        "$defs": {"B": {"properties": {"b": {"type": "string"}, "k": {"const": 2}}, "required": ["b", "k"]}},
    }
    schema, _, notes = for_anthropic(union)
    assert not {"oneOf", "anyOf", "allOf"} & schema.keys()
    assert schema["properties"]["k"] == {"anyOf": [{"const": 1}, {"const": 2}]}
    assert schema["required"] == ["k"]
    assert notes


def test_anthropic_strict_says_limits_in_words_and_refuses_recursion() -> None:
    schema, strict, _ = for_anthropic(
        {"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "description": "count"}}}, True
    )
    assert strict is True
    assert schema["properties"]["n"] == {"type": "integer", "description": "count (minimum: 1)"}
    assert schema["additionalProperties"] is False
    assert for_anthropic(C052, True)[1] is False


def test_inlining_keeps_recursion_and_its_definitions() -> None:
    out = inline_refs(C052)
    assert out["properties"]["who"] == {"$ref": "#/$defs/P"}
    assert out["$defs"]["P"]["properties"]["boss"] == {"$ref": "#/$defs/P"}

    class Tree(RootModel[dict[str, "Tree | int"]]):
        pass

    assert inline_refs(Tree.model_json_schema())["$defs"]
    mutual = {
        "properties": {"a": {"$ref": "#/definitions/A"}, "s": {"$ref": "#/$defs/S"}},
        "definitions": {
            "A": {"properties": {"b": {"$ref": "#/definitions/B"}}},
            "B": {"properties": {"a": {"$ref": "#/definitions/A"}}},
        },
        "$defs": {"S": {"type": "string"}},
    }
    kept = inline_refs(mutual)
    assert kept["properties"]["s"] == {"type": "string"}
    assert set(kept["$defs"]) == {"A", "B"}
    assert "definitions" not in kept


def test_a_property_may_be_called_like_a_keyword() -> None:
    odd = {
        "type": "object",
        "properties": {"$ref": {"type": "string"}, "const": {"type": "integer"}, "anyOf": {"type": "boolean"}},
    }
    assert inline_refs(odd) == odd
    assert for_google(odd) == (odd, [])
    assert set(for_openai(odd, True)[0]["properties"]) == {"$ref", "const", "anyOf"}


def test_a_reference_to_nothing_is_a_clear_error() -> None:
    for ref in ("#/$defs/Missing", "https://example.org/schema.json"):
        with pytest.raises(InvalidRequest, match="refers to"):
            inline_refs({"properties": {"a": {"$ref": ref}}})


def test_definitions_in_layers_do_not_explode() -> None:
    layers: dict[str, Any] = {"L0": {"type": "string"}}
    for n in range(1, 30):
        layers[f"L{n}"] = {"type": "object", "properties": {k: {"$ref": f"#/$defs/L{n - 1}"} for k in "abc"}}
    schema = {"type": "object", "properties": {"top": {"$ref": "#/$defs/L29"}}, "$defs": layers}
    lowered, notes = for_google(schema)
    assert notes
    assert_google_form(lowered)
    assert for_google_json(schema)["$defs"]
    assert for_openai(schema, True)[1] is True


_scalars = st.sampled_from(
    [{"type": "string"}, {"type": "integer", "minimum": 1}, {"const": "x"}, {"enum": ["a", 1, None]}, {"type": ["string", "null"]}, {}, True,
     {"$ref": "#/$defs/D"}, {"$ref": "#/$defs/R", "description": "r"}, {"type": "string", "format": "uri"}]
)  # fmt: skip
_schemas = st.recursive(
    _scalars,
    lambda inner: st.one_of(
        st.builds(
            lambda p: {"type": "object", "properties": p}, st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        ),
        st.builds(
            lambda p: {"properties": p, "required": list(p)}, st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
        ),
        st.builds(lambda i: {"type": "array", "items": i}, inner),
        st.builds(lambda i: {"type": "object", "additionalProperties": i}, inner),
        st.builds(lambda b: {"anyOf": b, "description": "d"}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda b: {"oneOf": b}, st.lists(inner, min_size=1, max_size=3)),
        st.builds(
            lambda b: {"allOf": b}, st.lists(inner.filter(lambda i: isinstance(i, dict)), min_size=1, max_size=2)
        ),
        st.builds(lambda i: {"type": "array", "prefixItems": i}, st.lists(inner, min_size=1, max_size=2)),
    ),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(st.sampled_from("xyz"), _schemas, max_size=3))
def test_any_schema_is_transformed_without_being_changed_or_emptied(properties: dict[str, Any]) -> None:
    schema = {
        "type": "object",
        "properties": properties,
        "$defs": {
            "D": {"type": "object", "properties": {"d": {"type": "string"}}},
            "R": {"properties": {"r": {"$ref": "#/$defs/R"}}},
        },
    }
    before = copy.deepcopy(schema)
    google, _ = for_google(schema)
    assert_google_form(google)
    assert set(google.get("properties", {})) == set(properties)
    for strict_form in (for_openai, for_anthropic):
        out, strict, notes = strict_form(schema, True)
        assert set(out["properties"]) == set(properties)
        assert bool(notes) is (strict is False)
        if strict:
            for node in nodes(out):
                if "properties" in node:
                    assert node["additionalProperties"] is False
                if strict_form is for_openai:
                    assert "oneOf" not in node
                    assert "allOf" not in node
                    assert node.get("required", []) == list(node.get("properties", {}))
    for_google_json(schema)
    inline_refs(schema)
    assert schema == before
