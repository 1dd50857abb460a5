"""The public names, in one list: what `rein_nb` exports, and what each room names in its ``__all__``.

``python -m tests.public_api`` writes them with their signatures to `tests/public_api.txt`. Do it when a change of the public surface is meant, and say it in
`CHANGELOG.md`.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import pkgutil
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import pydantic

LISTING = Path(__file__).with_name("public_api.txt")

ROOMS = (
    "rein_nb",
    "rein_nb.ir",
    "rein_nb.ir.deltas",
    "rein_nb.stream",
    "rein_nb.providers",
    "rein_nb.providers.local",
    "rein_nb.llm",
    "rein_nb.tools",
    "rein_nb.tools.builtin",
    "rein_nb.tools.mcp",
    "rein_nb.agent",
    "rein_nb.agent.events",
    "rein_nb.store",
    "rein_nb.frames",
    "rein_nb.compare",
    "rein_nb.compare.sweep",
    "rein_nb.compare.sweep.scorers",
    "rein_nb.notebook",
    "rein_nb.testing",
)


@dataclasses.dataclass(frozen=True)
class Name:
    """One public name.

    Attributes
    ----------
    path
        Where it is imported from, the shortest way.
    rooms
        The rooms that have it.
    value
        What it stands for.
    """

    path: str
    rooms: tuple[str, ...]
    value: Any

    @property
    def short(self) -> str:
        """The name itself."""
        return self.path.rpartition(".")[2]


def exported(room: str) -> list[str]:
    """What a room offers: its ``__all__``."""
    return list(importlib.import_module(room).__all__)


def names() -> list[Name]:
    """Every public name once, by where it is imported from."""
    found: dict[str, tuple[str, list[str], Any]] = {}
    for room in ROOMS:
        for name in exported(room):
            value = room_value(room, name)
            key = f"{name}:{_identity(value)}"
            if key in found:
                found[key][1].append(room)
            else:
                found[key] = (f"{room}.{name}", [room], value)
    return sorted(
        (Name(path, tuple(rooms), value) for path, rooms, value in found.values()), key=lambda name: name.path
    )


def room_value(room: str, name: str) -> Any:
    """What a name of a room stands for. `compare` and `sweep` are rooms that can be called; the function stands for them."""
    value = getattr(importlib.import_module(room), name)
    return getattr(value, name) if isinstance(value, ModuleType) and callable(value) else value


def written(name: Name) -> str:
    """Where a name is documented: its path, or for a room that can be called the function in it."""
    room, _, short = name.path.rpartition(".")
    held = getattr(importlib.import_module(room), short)
    called = isinstance(held, ModuleType) and not isinstance(name.value, ModuleType)
    return f"{held.__name__}.{short}" if called else name.path


def _identity(value: Any) -> str:
    return str(id(value)) if hasattr(value, "__module__") or isinstance(value, ModuleType) else repr(value)


def doc(name: Name) -> str:
    """A name's docstring; for data, the string that stands under the assignment in the room where it is defined."""
    value = name.value
    ours = getattr(value, "__module__", "").startswith("rein_nb")
    if isinstance(value, ModuleType) or (ours and (inspect.isclass(value) or inspect.isroutine(value))):
        return inspect.getdoc(value) or ""
    for room in name.rooms:
        for module in (room, *(found.name for found in _submodules(room))):
            text = _assigned_doc(module, name.short)
            if text:
                return text
    return ""


def _submodules(room: str) -> Iterator[Any]:
    path = getattr(importlib.import_module(room), "__path__", None)
    return pkgutil.iter_modules(path, f"{room}.") if path is not None and room != "rein_nb" else iter(())


def _assigned_doc(module: str, name: str) -> str:
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    body = ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body
    for statement, following in pairwise(body):
        targets = (
            statement.targets
            if isinstance(statement, ast.Assign)
            else [statement.target]
            if isinstance(statement, ast.AnnAssign)
            else []
        )
        named = any(isinstance(target, ast.Name) and target.id == name for target in targets)
        if named and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            return inspect.cleandoc(str(following.value.value))
    return ""


# -- the listing --------------------------------------------------------------------------------------


def listing() -> str:
    """The saved text: one line a name, and one for each of its public members."""
    found = names()
    public = {name.value for name in found if inspect.isclass(name.value)}
    return "\n".join(line for name in found for line in _lines(name, public)) + "\n"


def _lines(name: Name, public: set[type]) -> Iterator[str]:
    value = name.value
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name.path}({bases})"
        yield from (f"    {line}" for line in _members(value, public - {value}))
    elif inspect.isroutine(value):
        yield f"def {name.path}{signature(value)}"
    elif isinstance(value, ModuleType):
        yield f"module {name.path}"
    elif isinstance(value, str):
        yield f"{name.path}: str"
    else:
        yield f"{name.path} = {clean(repr(value)) if not isinstance(value, dict) else sorted(value)}"


def _members(cls: type, public: set[type]) -> Iterator[str]:
    if issubclass(cls, enum.Enum):
        yield from (f"{member.name} = {member.value!r}" for member in cls)
        return
    fields = _fields(cls)
    yield from (f"{field}" for field in fields)
    if (
        not issubclass(cls, pydantic.BaseModel)
        and not dataclasses.is_dataclass(cls)
        and "__init__" in _dict(cls, public)
    ):
        yield f"__init__{signature(cls.__init__)}"
    for member, value in sorted(_dict(cls, public).items()):
        if member.startswith("_") or member in {field.partition(":")[0] for field in fields}:
            continue
        if isinstance(value, property):
            yield f"{member} [property]{_returns(value.fget)}"
        elif isinstance(value, (staticmethod, classmethod)):
            kind = type(value).__name__
            yield f"{member}{signature(value.__func__)} [{kind}]"
        elif inspect.isfunction(value):
            yield f"{member}{signature(value)}"


def _dict(cls: type, public: set[type]) -> dict[str, Any]:
    """Members of a class and of those bases of ours that are not listed themselves."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("rein_nb") and base not in public:
            found |= vars(base)
    return {name: value for name, value in found.items() if name not in ("model_config", "model_post_init")}


def _fields(cls: type) -> list[str]:
    if issubclass(cls, pydantic.BaseModel):
        return [
            f"{name}: {clean(str(field.annotation) if not inspect.isclass(field.annotation) else field.annotation.__name__)}"
            + ("" if field.is_required() else " = ...")
            for name, field in cls.model_fields.items()
        ]
    if dataclasses.is_dataclass(cls):
        return [
            f"{field.name}: {clean(field.type if isinstance(field.type, str) else str(field.type))}"
            + ("" if field.default is field.default_factory is dataclasses.MISSING else " = ...")
            for field in dataclasses.fields(cls)
            if not field.name.startswith("_")
        ]
    return []


def signature(function: Any) -> str:
    """A signature as it is written, on every Python."""
    try:
        return clean(str(inspect.signature(function)))
    except (TypeError, ValueError):
        return "(...)"


def _returns(function: Any) -> str:
    annotation = inspect.signature(function).return_annotation
    return "" if annotation is inspect.Signature.empty else f" -> {clean(str(annotation))}"


def clean(text: str) -> str:
    """Without addresses, module names and quotes of annotations, which differ between versions of Python."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    text = re.sub(r"(?:[A-Za-z_]\w*\.)+(?=[A-Za-z_])", "", text)
    text = re.sub(r"<class '(\w+)'>", r"\1", text)
    text = re.sub(r"Optional\[(\w+)\]", r"\1 | None", text)
    return re.sub(r"'([\w\[\], |.\"*]+)'", r"\1", text)


if __name__ == "__main__":
    LISTING.write_text(listing(), encoding="utf-8")
    print("saved", LISTING.name)
