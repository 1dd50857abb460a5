"""Parameter docs out of docstrings, in three styles."""

from __future__ import annotations

import pytest

from rein_nb.tools.docstrings import parse_docstring

GOOGLE = """Search the corpus.

Looks at titles first.

Args:
    query (str): What to look for.
        Quotes keep words together.
    limit (int, optional): At most so many: 1 to 50.
    *tags: Any of these.

Returns:
    list: The hits.

Raises:
    ValueError: When empty.
"""

NUMPY = """Search the corpus.

Looks at titles first.

Parameters
----------
query : str
    What to look for.
    Quotes keep words together.
limit : int, optional
    At most so many: 1 to 50.
*tags
    Any of these.

Returns
-------
list
    The hits.

Raises
------
ValueError
    When empty.
"""

SPHINX = """Search the corpus.

Looks at titles first.

:param str query: What to look for.
    Quotes keep words together.
:param limit: At most so many: 1 to 50.
:type limit: int
:keyword tags: Any of these.
:returns: The hits.
:raises ValueError: When empty.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_every_style_gives_the_same_docs(text: str) -> None:
    docs = parse_docstring(text)
    assert docs.description == "Search the corpus.\n\nLooks at titles first."
    assert docs.parameters == {
        "query": "What to look for. Quotes keep words together.",
        "limit": "At most so many: 1 to 50.",
        "tags": "Any of these.",
    }


def test_numpy_names_may_share_a_line() -> None:
    docs = parse_docstring("Add.\n\nParameters\n----------\na, b : int\n    Summands.\n")
    assert docs.parameters == {"a": "Summands.", "b": "Summands."}


def test_prose_is_left_alone() -> None:
    text = "Say it.\n\nNote: this is prose.\nArgs are read from the file: all of them."
    assert parse_docstring(text).description == text
    assert parse_docstring(None).description == ""
    assert parse_docstring("").parameters == {}


def test_notes_stay_and_returns_go() -> None:
    docs = parse_docstring("Do.\n\nReturns:\n    int: n\n\nNote:\n    Only on Sundays.\n")
    assert docs.description == "Do.\n\nNote:\n    Only on Sundays."
