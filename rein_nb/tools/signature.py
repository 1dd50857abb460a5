"""One resolved signature: the model's JSON schema, the validation of its arguments, and the Python call, all from the same fields.

A function's parameters become the fields of one pydantic model. The schema sent to the model is that model's
own, so what the schema allows is what validation accepts.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_origin

import typing_extensions
from pydantic import (
    AliasChoices,
    AliasPath,
    BaseModel,
    ConfigDict,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    create_model,
)
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticSerializationError, PydanticUndefined

from rein_nb.ir.base import loads
from rein_nb.tools import lazy
from rein_nb.tools.annotations import eager
from rein_nb.tools.arguments import KINDS, Arguments, Kind, Slot, arranged
from rein_nb.tools.callables import callable_name, docstring, is_context, owner_of, unwrap, visible_parameters
from rein_nb.tools.context import ToolContext
from rein_nb.tools.docstrings import parse_docstring
from rein_nb.tools.names import Names, ToolDefinitionError
from rein_nb.tools.refusals import accepts_string, described_errors, first_line


class InvalidArguments(ValueError):
    """Arguments that a tool's signature refuses. The message is written for the model."""


class _Schema(GenerateJsonSchema):
    """pydantic's own generator; a default that JSON cannot hold is left out in silence, since the function has it."""

    def encode_default(self, dft: Any) -> Any:
        encoded = super().encode_default(dft)
        try:
            json.dumps(encoded, allow_nan=False)
        except ValueError as exc:  # infinity, not a number
            raise PydanticSerializationError(str(exc)) from exc
        return encoded

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        return None


def _taken_names(fn: Callable[..., Any]) -> set[str]:
    """Names that no further keyword of a call may have: the function's own parameters, and what a partial has bound."""
    taken: set[str] = set()
    inner: Any = fn
    while isinstance(inner, functools.partial):
        taken.update(inner.keywords)
        inner = inner.func
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (TypeError, ValueError):
        return taken
    return taken | {one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)}


class Signature:
    """The resolved signature of a callable.

    Parameters
    ----------
    fn
        Any callable: function, bound method, partial, object with ``__call__``.
    namespace
        Further names for annotations that are strings.

    Raises
    ------
    ToolDefinitionError
        Naming the parameter that cannot be resolved or has no JSON schema.
    """

    def __init__(self, fn: Callable[..., Any], namespace: Mapping[str, Any] | None = None) -> None:
        self.name = callable_name(fn)
        target = unwrap(fn)
        docs = parse_docstring(docstring(fn))
        self.description = docs.description
        self.takes_context = False
        self._slots: list[Slot] = []
        self._fields: list[Slot] = []
        self._by_wire: dict[str, Slot] = {}
        self._extra: TypeAdapter[dict[str, Any]] | None = None
        self._taken = _taken_names(fn)
        definitions: dict[str, Any] = {}
        names = Names(target, namespace)
        owner = owner_of(fn)
        for parameter in visible_parameters(fn):
            annotation = names.resolve(parameter.annotation, parameter.name, self.name)
            if is_context(annotation):
                self.takes_context = True
                self._slots.append(Slot(parameter.name, kind=KINDS[parameter.kind]))
                continue
            try:
                annotation = eager(annotation, owner)
            except TypeError as exc:
                raise ToolDefinitionError(
                    f"tool {self.name!r}: the annotation of parameter {parameter.name!r} is not a type: {exc}"
                ) from exc
            kind = KINDS[parameter.kind]
            default = parameter.default
            if kind == "var_keyword":
                unpacked = _unpacked_typed_dict(annotation)
                if unpacked is not None:
                    for key, hint, required in unpacked:
                        self._add(
                            definitions, key, hint, ... if required else PydanticUndefined, "keyword", docs.parameters
                        )
                    continue
                self._extra = self._extra_adapter(parameter.name, annotation)
                continue
            if annotation is inspect.Parameter.empty:
                annotation = Any
            if kind == "var_positional":
                annotation, default = list[annotation], Field(default_factory=list)  # type: ignore[valid-type]
            elif default is inspect.Parameter.empty:
                default = ...
            self._add(definitions, parameter.name, annotation, default, kind, docs.parameters)
        self.model = self._build(definitions)
        self.schema = self._json_schema()
        self._lazy = lazy.is_lazy([self.model.__pydantic_core_schema__, self._extra and self._extra.core_schema])

    def _add(
        self, definitions: dict[str, Any], name: str, annotation: Any, default: Any, kind: Kind, docs: dict[str, str]
    ) -> None:
        info = _field_info(annotation, default)
        added: dict[str, Any] = {}
        if default is ... and not info.is_required():  # the default stands within Annotated
            factory = info.default_factory
            default = Field(default=info.default) if factory is None else Field(default_factory=factory)
        wires = self._wire_names(name, info)
        # Fields get neutral names: parameters may start with _ or be called `schema`, `copy`, `model_config`.
        added["validation_alias"] = AliasChoices(*wires) if len(wires) > 1 else wires[0]
        if info.description is None:
            text = _described(annotation) or docs.get(name)
            if text:
                added["description"] = text
        if added:
            annotation = Annotated[annotation, Field(**added)]
        attribute = f"p{len(self._fields)}"
        optional_without_default = default is PydanticUndefined
        if optional_without_default:
            default = Field(default=None)
            annotation = Annotated[annotation, Field(json_schema_extra=_without_default)]
        definitions[attribute] = (annotation, default)
        has_default = isinstance(default, FieldInfo) and not optional_without_default
        field = Slot(name, kind, attribute, wires[0], has_default)
        self._slots.append(field)
        self._fields.append(field)
        for wire in wires:
            other = self._by_wire.setdefault(wire, field)
            if other is not field:
                raise ToolDefinitionError(
                    f"tool {self.name!r}: the parameters {other.name!r} and {name!r} would both be called {wire!r}; change an alias"
                )

    def _wire_names(self, name: str, info: FieldInfo) -> list[str]:
        """The names that a model may use for a parameter, its own first: the aliases, or its name in Python."""
        alias = info.validation_alias or info.alias
        if alias is None:
            return [name]
        choices = alias.choices if isinstance(alias, AliasChoices) else [alias]
        paths = [choice.path if isinstance(choice, AliasPath) else [choice] for choice in choices]
        wires = [str(path[0]) for path in paths if len(path) == 1]
        if not wires:
            raise ToolDefinitionError(
                f"tool {self.name!r}: the alias of parameter {name!r} is a path into another argument; give it a plain name"
            )
        return wires

    def _build(self, definitions: dict[str, Any]) -> type[BaseModel]:
        # No `extra` setting here: dataclasses and TypedDicts among the parameters would inherit it. See `validate`.
        config = ConfigDict(protected_namespaces=())
        try:
            return create_model(self.name or "arguments", __config__=config, **definitions)
        except (PydanticSchemaGenerationError, PydanticUserError) as exc:
            raise self._blame(definitions, exc) from exc

    def _extra_adapter(self, name: str, annotation: Any) -> TypeAdapter[dict[str, Any]]:
        """Checks the values of ``**kwargs``."""
        value_type = Any if annotation is inspect.Parameter.empty else annotation
        try:
            return TypeAdapter(dict[str, value_type])  # type: ignore[valid-type]
        except (PydanticSchemaGenerationError, PydanticUserError) as exc:
            raise ToolDefinitionError(
                f"tool {self.name!r}: parameter {name!r} has a type that JSON cannot carry ({first_line(exc)})"
            ) from exc

    def _blame(self, definitions: dict[str, Any], exc: Exception) -> ToolDefinitionError:
        for field in self._fields:
            try:
                create_model("probe", **{field.attribute: definitions[field.attribute]}).model_json_schema(
                    mode="validation"
                )
            except (PydanticSchemaGenerationError, PydanticUserError) as cause:
                return ToolDefinitionError(
                    f"tool {self.name!r}: parameter {field.name!r} has a type that JSON cannot carry "
                    f"({first_line(cause)}); annotate it with a JSON-able type, or take it from ctx.deps of a ToolContext parameter"
                )
        return ToolDefinitionError(f"tool {self.name!r}: no schema can be made of its signature ({first_line(exc)})")

    def _json_schema(self) -> dict[str, Any]:
        try:
            schema = self.model.model_json_schema(schema_generator=_Schema, mode="validation")
        except PydanticUserError as exc:
            definitions = {f.attribute: (self.model.model_fields[f.attribute].annotation, ...) for f in self._fields}
            raise self._blame(definitions, exc) from exc
        schema.pop("title", None)
        schema.pop("description", None)
        schema.setdefault("properties", {})
        schema["additionalProperties"] = False
        if self._extra is not None:
            extra = self._extra.json_schema(schema_generator=_Schema)
            schema["additionalProperties"] = extra.get("additionalProperties", True)
            if "$defs" in extra:
                schema["$defs"] = {**extra["$defs"], **schema.get("$defs", {})}
        return schema

    # -- validating a call ------------------------------------------------------------------------

    def validate(self, arguments: dict[str, Any], context: ToolContext[Any] | None = None) -> Arguments:
        """Check a call's arguments and put them in the function's own order, with the context where the function takes it.

        A string given for a parameter that takes no string is read as JSON when that makes it valid: models often send
        lists and objects that way.

        Raises
        ------
        InvalidArguments
            With a message that tells the model what is wrong and what would be right.
        """
        unknown = {name: value for name, value in arguments.items() if name not in self._by_wire}
        # Settled by the programmer, or another name of a parameter: no call may set it past its check.
        problems = [
            f"- {name}: no such parameter" for name in unknown if self._extra is not None and name in self._taken
        ]
        given: dict[str, str] = {}
        for wire in arguments:
            if wire not in self._by_wire:
                continue
            first = given.setdefault(self._by_wire[wire].name, wire)
            if first != wire:
                problems.append(f"- {wire}: another name of {first}, which is given as well")
        more: dict[str, Any] = {}
        if unknown and self._extra is None:
            known = ", ".join(field.wire for field in self._fields) or "none"
            problems += [f"- {name}: no such parameter; the parameters are: {known}" for name in unknown]
        elif unknown and self._extra is not None:
            try:
                more = self._extra.validate_python(unknown)
            except ValidationError as exc:
                problems += described_errors(exc)
        try:
            values = self.model.model_validate(arguments)
        except ValidationError as exc:
            decoded = self._decode_strings(arguments, exc)
            try:
                if decoded is None:
                    raise
                values = self.model.model_validate(decoded)
            except ValidationError:
                raise InvalidArguments(self._refusal(described_errors(exc) + problems)) from exc
        if self._lazy and not problems:
            try:
                for field in self._fields:
                    vars(values)[field.attribute] = lazy.read(getattr(values, field.attribute), (field.wire,))
                lazy.read(more)
            except lazy.WrongItem as exc:
                problems += described_errors(exc.cause, exc.path)
        if problems:
            raise InvalidArguments(self._refusal(problems))
        return arranged(self._slots, values, more, context)

    def _decode_strings(self, arguments: dict[str, Any], exc: ValidationError) -> dict[str, Any] | None:
        failed = {
            error["loc"][0]
            for error in exc.errors(include_url=False, include_input=False, include_context=False)
            if error["loc"]
        }
        decoded = dict(arguments)
        changed = False
        for wire in failed:
            value = arguments.get(wire)  # type: ignore[arg-type]
            if not isinstance(value, str) or wire not in self._by_wire or self._takes_string(str(wire)):
                continue
            try:
                decoded[str(wire)] = loads(value)
            except (ValueError, RecursionError):
                continue
            changed = True
        return decoded if changed else None

    def _takes_string(self, wire: str) -> bool:
        return accepts_string(self.schema["properties"].get(self._by_wire[wire].wire, {}), self.schema.get("$defs", {}))

    def _refusal(self, problems: list[str]) -> str:
        return (
            f"Invalid arguments for {self.name}:\n" + "\n".join(problems) + "\nCorrect the arguments and call it again."
        )


def _field_info(annotation: Any, default: Any) -> FieldInfo:
    if default is ... or default is PydanticUndefined:
        return FieldInfo.from_annotation(annotation)
    return FieldInfo.from_annotated_attribute(annotation, default)


def _described(annotation: Any) -> str | None:
    """The first plain string (or PEP 727 ``Doc``) in an ``Annotated``."""
    if get_origin(annotation) is not Annotated:
        return None
    for item in get_args(annotation)[1:]:
        if isinstance(item, str):
            return item
        if isinstance(item, typing_extensions.Doc):
            return item.documentation
    return None


_REQUIRED: dict[Any, bool] = {
    typing.Required: True, typing_extensions.Required: True, typing.NotRequired: False, typing_extensions.NotRequired: False,
}  # fmt: skip


def _unpacked_typed_dict(annotation: Any) -> list[tuple[str, Any, bool]] | None:
    if get_origin(annotation) not in (typing.Unpack, typing_extensions.Unpack):
        return None
    typed_dict = get_args(annotation)[0]
    out = []
    for key, hint in typing_extensions.get_type_hints(typed_dict, include_extras=True).items():
        # Postponed annotations hide Required and NotRequired from the class itself; the hint tells.
        required = _REQUIRED.get(get_origin(hint), typed_dict.__total__)
        while get_origin(hint) in _REQUIRED:
            hint = get_args(hint)[0]
        out.append((key, hint, required))
    return out


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)
