"""One resolved signature: the model's JSON schema, the validation of its arguments, and the Python call, all from the same fields.

A function's parameters become the fields of one pydantic model. The schema sent to the model is that model's
own, so what the schema allows is what validation accepts.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import typing_extensions
from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaWarningKind
from pydantic_core import PydanticUndefined

from rein_nb.ir.base import loads
from rein_nb.tools.context import ToolContext
from rein_nb.tools.docstrings import parse_docstring

Kind = Literal["positional", "keyword", "var_positional", "var_keyword"]

_KINDS: dict[Any, Kind] = {
    inspect.Parameter.POSITIONAL_ONLY: "positional",
    inspect.Parameter.POSITIONAL_OR_KEYWORD: "keyword",
    inspect.Parameter.KEYWORD_ONLY: "keyword",
    inspect.Parameter.VAR_POSITIONAL: "var_positional",
    inspect.Parameter.VAR_KEYWORD: "var_keyword",
}


class ToolDefinitionError(TypeError):
    """A function cannot be made a tool; the message says which parameter stands in the way, and what would help."""


class InvalidArguments(ValueError):
    """Arguments that a tool's signature refuses. The message is written for the model."""


class _Schema(GenerateJsonSchema):
    """pydantic's own generator; a default that JSON cannot hold is left out in silence, since the function has it."""

    def emit_warning(self, kind: JsonSchemaWarningKind, detail: str) -> None:
        return None


@dataclass(slots=True)
class _Field:
    """One parameter as the model sees it: `name` in Python, `wire` in the schema, `attribute` on the pydantic model."""

    name: str
    wire: str
    attribute: str
    kind: Kind
    has_field_default: bool


@dataclass(slots=True)
class Arguments:
    """Validated arguments, ready for the call."""

    positional: list[Any]
    keywords: dict[str, Any]


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
        docs = parse_docstring(_docstring(fn))
        self.description = docs.description
        self.context_parameter: str | None = None
        self._fields: list[_Field] = []
        self._extra_into_keywords = False
        definitions: dict[str, Any] = {}
        extra: Literal["allow", "forbid"] = "forbid"
        extra_type: Any = Any
        names = Names(target, namespace)
        for parameter in _parameters(fn):
            annotation = names.resolve(parameter.annotation, parameter.name, self.name)
            if is_context(annotation):
                self.context_parameter = parameter.name
                continue
            kind = _KINDS[parameter.kind]
            default = parameter.default
            if kind == "var_keyword":
                unpacked = _unpacked_typed_dict(annotation)
                if unpacked is not None:
                    for key, hint, required in unpacked:
                        self._add(definitions, key, hint, ... if required else PydanticUndefined, "keyword", docs.parameters)
                    continue
                extra = "allow"
                extra_type = Any if annotation is inspect.Parameter.empty else annotation
                continue
            if annotation is inspect.Parameter.empty:
                annotation = Any
            if kind == "var_positional":
                annotation, default = list[annotation], Field(default_factory=list)  # type: ignore[valid-type]
            elif default is inspect.Parameter.empty:
                default = ...
            self._add(definitions, parameter.name, annotation, default, kind, docs.parameters)
        self._extra_into_keywords = extra == "allow"
        self.model = self._build(definitions, extra, extra_type)
        self.schema = self._json_schema()
        self._by_wire = {field.wire: field for field in self._fields}

    def _add(
        self, definitions: dict[str, Any], name: str, annotation: Any, default: Any, kind: Kind, docs: dict[str, str]
    ) -> None:
        info = _field_info(annotation, default)
        added: dict[str, Any] = {}
        wire = info.validation_alias or info.alias
        if not isinstance(wire, str):
            wire = name
            # Fields get neutral names: parameters may start with _ or be called `schema`, `copy`, `model_config`.
            added["alias"] = name
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
        self._fields.append(_Field(name, wire, attribute, kind, isinstance(default, FieldInfo) and not optional_without_default))

    def _build(self, definitions: dict[str, Any], extra: Literal["allow", "forbid"], extra_type: Any) -> type[BaseModel]:
        config = ConfigDict(
            extra=extra, arbitrary_types_allowed=False, protected_namespaces=(), populate_by_name=False, defer_build=False
        )
        base: type[BaseModel] | None = None
        if extra == "allow" and extra_type is not Any:
            base = type(
                "_Extra",
                (BaseModel,),
                {"__annotations__": {"__pydantic_extra__": dict[str, extra_type]}, "__module__": __name__, "model_config": config},
            )
        try:
            if base is not None:
                return create_model(self.name or "arguments", __base__=base, **definitions)
            return create_model(self.name or "arguments", __config__=config, **definitions)
        except (PydanticSchemaGenerationError, PydanticUserError) as exc:
            raise self._blame(definitions, exc) from exc

    def _blame(self, definitions: dict[str, Any], exc: Exception) -> ToolDefinitionError:
        for field in self._fields:
            try:
                create_model("probe", **{field.attribute: definitions[field.attribute]}).model_json_schema(mode="validation")
            except (PydanticSchemaGenerationError, PydanticUserError) as cause:
                return ToolDefinitionError(
                    f"tool {self.name!r}: parameter {field.name!r} has a type that JSON cannot carry "
                    f"({_first_line(cause)}); annotate it with a JSON-able type, or take it from ctx.deps of a ToolContext parameter"
                )
        return ToolDefinitionError(f"tool {self.name!r}: no schema can be made of its signature ({_first_line(exc)})")

    def _json_schema(self) -> dict[str, Any]:
        try:
            schema = self.model.model_json_schema(schema_generator=_Schema, mode="validation")
        except PydanticUserError as exc:
            definitions = {f.attribute: (self.model.model_fields[f.attribute].annotation, ...) for f in self._fields}
            raise self._blame(definitions, exc) from exc
        schema.pop("title", None)
        schema.pop("description", None)
        schema.setdefault("properties", {})
        return schema

    # -- validating a call ------------------------------------------------------------------------

    def validate(self, arguments: dict[str, Any]) -> Arguments:
        """Check a call's arguments and put them in the function's own order.

        A string given for a parameter that takes no string is read as JSON when that makes it valid: models often send
        lists and objects that way.

        Raises
        ------
        InvalidArguments
            With a message that tells the model what is wrong and what would be right.
        """
        try:
            values = self.model.model_validate(arguments)
        except ValidationError as exc:
            decoded = self._decode_strings(arguments, exc)
            if decoded is None:
                raise InvalidArguments(self._explain(exc)) from exc
            try:
                values = self.model.model_validate(decoded)
            except ValidationError:
                raise InvalidArguments(self._explain(exc)) from exc
        return self._arranged(values)

    def _arranged(self, values: BaseModel) -> Arguments:
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        given = values.model_fields_set
        # A positional-only parameter can be left to its default only when nothing stands behind it, and what is
        # given to *args needs every parameter before it by position.
        star = next((f for f in self._fields if f.kind == "var_positional" and getattr(values, f.attribute)), None)
        for field in self._fields:
            is_given = field.attribute in given or field.has_field_default
            value = getattr(values, field.attribute)
            if field.kind == "var_positional":
                positional.extend(value)
            elif star is not None and self._fields.index(field) < self._fields.index(star):
                positional.append(value)
            elif not is_given:
                if field.kind == "positional":
                    positional.append(value)
            elif field.kind == "positional":
                positional.append(value)
            else:
                keywords[field.name] = value
        if self._extra_into_keywords and values.model_extra:
            keywords.update(values.model_extra)
        return Arguments(positional, keywords)

    def _decode_strings(self, arguments: dict[str, Any], exc: ValidationError) -> dict[str, Any] | None:
        failed = {error["loc"][0] for error in exc.errors(include_url=False, include_input=False, include_context=False) if error["loc"]}
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
        return _accepts_string(self.schema["properties"].get(wire, {}), self.schema.get("$defs", {}))

    def _explain(self, exc: ValidationError) -> str:
        errors = exc.errors(include_url=False, include_context=False)
        lines = []
        for error in errors[:8]:
            where = ".".join(str(step) for step in error["loc"]) or "arguments"
            kind = error["type"]
            if kind == "missing":
                lines.append(f"- {where}: missing, and required")
            elif kind == "extra_forbidden":
                known = ", ".join(self._by_wire) or "none"
                lines.append(f"- {where}: no such parameter; the parameters are: {known}")
            else:
                lines.append(f"- {where}: {error['msg']}, got {_short(error['input'])}")
        if len(errors) > 8:
            lines.append(f"- and {len(errors) - 8} more")
        return f"Invalid arguments for {self.name}:\n" + "\n".join(lines) + "\nCorrect the arguments and call it again."


# -- reading callables -----------------------------------------------------------------------------


def unwrap(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that holds the annotations: behind partials, bound methods, decorators and ``__call__``."""
    while True:
        if isinstance(fn, functools.partial | functools.partialmethod):
            fn = fn.func
        elif inspect.ismethod(fn):
            fn = fn.__func__
        elif isinstance(fn, staticmethod | classmethod):
            fn = fn.__func__
        elif hasattr(fn, "__wrapped__"):
            fn = fn.__wrapped__
        elif inspect.isfunction(fn) or inspect.isbuiltin(fn) or inspect.isclass(fn):
            return fn
        elif inspect.ismethod(getattr(fn, "__call__", None)):  # noqa: B004 - the bound __call__ is wanted, not a test
            fn = fn.__call__.__func__  # type: ignore[operator]
        else:
            return fn


def callable_name(fn: Callable[..., Any]) -> str:
    """The name a callable goes by; the class's name for a callable object."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return str(getattr(fn, "__name__", None) or type(fn).__name__)


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine (also behind partials, decorated and callable objects)."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004


def is_unbound_method(fn: Callable[..., Any]) -> bool:
    """Whether this is a plain function from a class body that still waits for its instance."""
    if not inspect.isfunction(fn):
        return False
    scope = fn.__qualname__.split(".")
    if len(scope) < 2 or scope[-2] == "<locals>":
        return False
    first = next(iter(inspect.signature(fn).parameters.values()), None)
    return first is not None and first.name in ("self", "cls") and first.annotation is inspect.Parameter.empty


def _docstring(fn: Callable[..., Any]) -> str | None:
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.isroutine(fn) or inspect.isclass(fn):
        return fn.__doc__
    return getattr(type(fn).__call__, "__doc__", None) or type(fn).__doc__


def _parameters(fn: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    try:
        parameters = list(inspect.signature(fn).parameters.values())
    except (ValueError, TypeError) as exc:
        raise ToolDefinitionError(f"{callable_name(fn)!r} has no signature to read ({exc}); wrap it in a function with annotations") from exc
    bound: set[str] = set()
    while isinstance(fn, functools.partial):
        # What was bound by keyword is settled; its value may be a secret and must not show up as a default.
        bound |= set(fn.keywords)
        fn = fn.func
    return [parameter for parameter in parameters if parameter.name not in bound]


def is_context(annotation: Any) -> bool:
    """Whether an annotation asks for the `ToolContext`."""
    origin = get_origin(annotation)
    if origin is Annotated or origin in (typing.Union, types.UnionType):
        return any(is_context(arg) for arg in get_args(annotation)[: 1 if origin is Annotated else None])
    candidate = origin or annotation
    return isinstance(candidate, type) and issubclass(candidate, ToolContext)


class Names:
    """Resolves annotations: module globals, closure, the enclosing functions' locals, the class of a method."""

    def __init__(self, fn: Callable[..., Any], extra: Mapping[str, Any] | None = None) -> None:
        self._scope = getattr(fn, "__qualname__", "").rpartition(".")[0]
        self._module = getattr(fn, "__module__", None)
        self._globals = getattr(fn, "__globals__", None) or vars(sys.modules.get(self._module or "", types.ModuleType("")))
        names: dict[str, Any] = {}
        self._add_enclosing_frames(names)
        closure = getattr(fn, "__closure__", None)
        if closure:
            for name, cell in zip(fn.__code__.co_freevars, closure, strict=False):
                try:
                    names[name] = cell.cell_contents
                except ValueError:  # the cell is not filled yet: the name belongs to a later assignment
                    continue
        for type_parameter in getattr(fn, "__type_params__", ()):
            names[type_parameter.__name__] = type_parameter
        names.update(extra or {})
        self._locals = names

    def _add_enclosing_frames(self, names: dict[str, Any]) -> None:
        enclosing = [scope for scope in self._scope.split(".<locals>") if scope]
        wanted = {".<locals>".join(enclosing[: n + 1]) for n in range(len(enclosing))}
        frame = sys._getframe(1) if self._scope else None
        while frame is not None:
            if frame.f_globals is self._globals and frame.f_code.co_qualname in wanted:
                for name, value in frame.f_locals.items():
                    names.setdefault(name, value)
            frame = frame.f_back

    def resolve(self, annotation: Any, parameter: str, tool: str) -> Any:
        """The annotation with every string in it evaluated."""
        if annotation is inspect.Parameter.empty or isinstance(annotation, type) and not hasattr(annotation, "__args__"):
            return annotation
        holder = types.SimpleNamespace(__annotations__={parameter: annotation})
        names = self._locals
        while True:
            try:
                return typing_extensions.get_type_hints(holder, self._globals, names, include_extras=True)[parameter]
            except NameError as exc:
                missing = exc.name or str(exc).split("'")[1]
                found = self._live_class(missing) if missing not in names else None
                if found is None:
                    raise ToolDefinitionError(
                        f"tool {tool!r}: the annotation of parameter {parameter!r} names {missing!r}, which cannot be found from the "
                        f"function; define it at module level, or make the tool where the name is visible"
                    ) from exc
                names = self._locals = {**names, missing: found}
            except (TypeError, SyntaxError) as exc:
                raise ToolDefinitionError(f"tool {tool!r}: the annotation of parameter {parameter!r} is not a type: {exc}") from exc

    def _live_class(self, name: str) -> type | None:
        """The newest living class of that name made in the same function: its frame is gone, the class may not be."""
        if not self._scope:
            return None
        found: type | None = None
        seen: set[type] = set()
        queue: list[type] = [object]
        while queue:
            for cls in type.__subclasses__(queue.pop()):
                if cls in seen:
                    continue
                seen.add(cls)
                queue.append(cls)
                if cls.__name__ == name and cls.__module__ == self._module and cls.__qualname__ == f"{self._scope}.{name}":
                    found = cls
        return found


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


def _unpacked_typed_dict(annotation: Any) -> list[tuple[str, Any, bool]] | None:
    if get_origin(annotation) not in (typing.Unpack, typing_extensions.Unpack):
        return None
    typed_dict = get_args(annotation)[0]
    hints = typing_extensions.get_type_hints(typed_dict, include_extras=False)
    return [(key, hint, key in typed_dict.__required_keys__) for key, hint in hints.items()]


def _without_default(schema: dict[str, Any]) -> None:
    schema.pop("default", None)


def _accepts_string(schema: dict[str, Any], definitions: dict[str, Any]) -> bool:
    if not schema.keys() - {"title", "description", "default"}:
        return True
    if "$ref" in schema:
        return _accepts_string(definitions.get(schema["$ref"].rpartition("/")[2], {}), definitions)
    types_ = schema.get("type")
    if types_ == "string" or isinstance(types_, list) and "string" in types_:
        return True
    if any(isinstance(value, str) for value in [*schema.get("enum", ()), schema.get("const")]):
        return True
    return any(_accepts_string(option, definitions) for key in ("anyOf", "oneOf", "allOf") for option in schema.get(key, ()))


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as exc:
        text = f"<{type(value).__name__} whose repr failed: {type(exc).__name__}>"
    return text if len(text) <= 120 else text[:117] + "..."


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().splitlines()[0] if str(exc).strip() else type(exc).__name__
