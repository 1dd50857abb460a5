"""What is public is what was meant to be, and each name of it is explained and shown."""

from __future__ import annotations

import difflib
import inspect
import json
import re
from collections.abc import Iterator
from functools import cache
from types import ModuleType
from typing import Any

import pytest

from tests import public_api
from tests.support import REPO

NAMES = public_api.names()


def test_the_public_surface_changes_only_when_it_is_meant_to() -> None:
    saved, now = public_api.LISTING.read_text(encoding="utf-8"), public_api.listing()
    changes = [line for line in difflib.unified_diff(saved.splitlines(), now.splitlines(), "saved", "now", n=0, lineterm="") if line]  # fmt: skip
    assert saved == now, (
        "the public surface changed:\n"
        + "\n".join(changes[:60])
        + "\nIf it is meant: python -m tests.public_api, and a line in CHANGELOG.md"
    )


def test_the_listing_has_signatures_and_fields() -> None:
    listing = public_api.LISTING.read_text(encoding="utf-8")
    assert "def rein_nb.register_provider(name: str" in listing
    assert re.search(r"(?m)^    input_tokens: int \| None = \.\.\.$", listing)
    assert "0x" not in listing


def test_the_rooms_and_the_package_offer_the_same_thing_under_one_name() -> None:
    import rein_nb

    for name in rein_nb.__all__:
        homes = [room for room in public_api.ROOMS[1:] if name in public_api.exported(room)]
        for home in homes:
            assert public_api.room_value(home, name) is public_api.room_value("rein_nb", name), f"{home}.{name}"


# -- docstrings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.path)
def test_a_public_name_has_a_docstring_of_its_own(name: public_api.Name) -> None:
    if name.short == "__version__":
        return
    text = public_api.doc(name)
    assert text, f"{name.path} has no docstring"
    if inspect.isclass(name.value):
        inherited = [base.__doc__ for base in name.value.__mro__[1:]]
        assert name.value.__doc__ not in inherited, f"{name.path} has the docstring of its base"


def functions() -> Iterator[tuple[str, Any, str]]:
    """(path, function, docstring that explains its parameters) of public functions and of the constructors of public classes."""
    for name in NAMES:
        if inspect.isfunction(name.value):
            yield name.path, name.value, inspect.getdoc(name.value) or ""
        elif inspect.isclass(name.value) and inspect.isfunction(vars(name.value).get("__init__")):
            yield name.path, name.value.__init__, f"{bases_too(name.value)}\n{name.value.__init__.__doc__ or ''}"


def bases_too(cls: type) -> str:
    """A class' docstring, and those of its bases of ours, which explain what it inherits."""
    return "\n".join(base.__doc__ or "" for base in cls.__mro__ if base.__module__.startswith("rein_nb"))


def explained(function: Any, text: str) -> list[str]:
    """Parameters that a docstring does not speak of: neither in a section, nor by name in its sentences."""
    words = set(re.findall(r"\w+", text))
    return [
        parameter.name
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name not in ("self", "cls") and not parameter.name.startswith("_") and parameter.name not in words
    ]


MADE_BY_US = re.compile(r"StreamStart|StreamRetry|\w+Delta|ToolCall\w+|PartDone|StreamDone|StreamError|Redactor")
"""Events are made by the accumulator and never by users: their fields are told in words."""


@pytest.mark.parametrize(("path", "function", "text"), list(functions()), ids=lambda value: value if isinstance(value, str) and value.startswith("rein_nb") else "")  # fmt: skip
def test_a_docstring_speaks_of_every_parameter(path: str, function: Any, text: str) -> None:
    if MADE_BY_US.fullmatch(path.rpartition(".")[2]):
        return
    # One or two parameters need no section when the sentence names what they are by their annotation.
    missing = explained(function, text)
    parameters = [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    if len(parameters) <= 2 and "Parameters\n" not in text:
        return
    assert not missing, f"{path}: {', '.join(missing)}"


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(name.value)], ids=lambda name: name.path)
def test_public_members_have_docstrings(name: public_api.Name) -> None:
    bare = [
        member
        for member, value in vars(name.value).items()
        if not member.startswith("_")
        and isinstance(value, property | staticmethod | classmethod) | inspect.isfunction(value)
        and not inspect.getdoc(getattr(name.value, member))
    ]
    assert not bare


# -- shown --------------------------------------------------------------------------------------------


@cache
def shown() -> str:
    """All code that a reader sees: tutorials, code and tables of the pages, examples in docstrings."""
    texts = []
    for path in (REPO / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        texts += ["".join(cell["source"]) for cell in cells]
    for path in [*(REPO / "docs").rglob("*.md"), REPO / "README.md"]:
        text = path.read_text(encoding="utf-8")
        texts += re.findall(r"(?ms)^```\w*\n(.*?)^```", text)
        # In running text and tables, but not in the pages that scripts write.
        texts += (
            re.findall(r"`([^`\n]+)`", re.sub(r"(?ms)^```.*?^```", "", text))
            if "is written by `python" not in text
            else []
        )
    for path in (REPO / "rein_nb").rglob("*.py"):
        texts += re.findall(r"(?m)^\s*(?:>>>|\.\.\.) (.*)$", path.read_text(encoding="utf-8"))
    return "\n".join(texts)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: name.path)
def test_a_public_name_is_shown_in_an_example_or_on_a_page(name: public_api.Name) -> None:
    if isinstance(name.value, ModuleType):
        assert re.search(rf"\b{name.short}\b", shown())
        return
    assert re.search(rf"(?<![\w]){re.escape(name.short)}\b", shown()), (
        f"{name.path} has no example, and no tutorial or page speaks of it"
    )
