"""edit: line ends of every style, and what it says when it cannot do what was asked. write: what no file can hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from rein_nb.tools import Toolset
from rein_nb.tools.builtin import toolset
from rein_nb.tools.builtin.editing import EditRefused, replaced
from tests.tools.support import use


@pytest.fixture
def tools(root: Path) -> Toolset:
    return toolset(root, include=("read", "write", "edit"), approve=False)


@pytest.mark.parametrize(
    ("text", "old", "new", "changed"),
    [
        ("a\nb\r\nc\nd\r\n", "a\nb\nc", "A\nB\nC", "A\nB\r\nC\nd\r\n"),  # each line keeps its own
        ("a\nb\r\nc\n", "b\nc", "b\nx\nc", "a\nb\r\nx\r\nc\n"),  # a line more has the last one
        ("a\r\nb\nc\r\n", "b", "b\nx", "a\r\nb\nx\nc\r\n"),  # no line end replaced: as the line itself
        ("a\nb\r\nc", "c", "c\nd", "a\nb\r\nc\r\nd"),  # the last line has none: as the one before
        ("a\nb\r\nc\n", "b\r\nc", "x", "a\nx\n"),  # as it stands
        ("a\r\nb\n", "a\nb\n", "x\ny\n", "x\r\ny\n"),
        ("a\nb\n", "a\r\nb", "x\r\ny", "x\ny\n"),  # in a style that the file has not
        ("a\r\nb\r\n", "a\r\nb", "x\ny", "x\ny\r\n"),  # exactly as it stands: exactly as it was given
        ("a\r\n\r\nb", "\n\n", "\n", "a\r\nb"),
        ("a\rb\rc", "a\nb", "x\ny", "x\ry\rc"),
        ("one", "one", "1\n2", "1\n2"),
        ("a\nb", "a", "a\r\n1", "a\r\n1\nb"),  # line ends that were asked for
    ],
)
def test_line_ends_match_in_any_style_and_stay(text: str, old: str, new: str, changed: str) -> None:
    assert replaced(text, old, new) == (changed, 1)


def test_a_windows_line_end_is_one_line_end() -> None:
    with pytest.raises(EditRefused, match="does not occur"):
        replaced("a\r\nb", "a\n\nb", "x")
    assert replaced("a\r\nb\n", "\n", "", everywhere=True) == ("ab", 2)
    assert replaced("a\r\nb\r\n", "\r\n", "\n", everywhere=True) == ("a\nb\n", 2)
    with pytest.raises(EditRefused, match=r"occurs 2 times \(lines 1, 3\)"):
        replaced("a\r\nb\r\na\nb\n", "a\nb", "x")
    with pytest.raises(EditRefused, match="same but for line ends"):
        replaced("a\nb", "a\r\nb", "a\nb")


def test_line_numbers_are_those_of_read() -> None:
    with pytest.raises(EditRefused, match="line 2: 'def f"):
        replaced("x\x0cy\u2028z\ndef f(a):\n", "def f(b):", "")
    with pytest.raises(EditRefused, match="white space from the text at line 2"):
        replaced("x\x0cy\u2028z\r\ndef  f(a):\r\nreturn\r\n", "def f(a):\nreturn", "")


async def test_an_edit_of_a_file_with_mixed_line_ends(tools: Toolset, root: Path) -> None:
    (root / "mixed.txt").write_bytes(b"one\r\ntwo\nthree\r\nfour\n")
    done = await use(tools, "edit", path="mixed.txt", old="two\nthree\nfour", new="2\n3\n4")
    assert done.text == "Edited mixed.txt: replaced once."
    assert (root / "mixed.txt").read_bytes() == b"one\r\n2\n3\r\n4\n"


async def test_half_a_character_is_refused_in_words(tools: Toolset, root: Path) -> None:
    (root / "f.txt").write_text("text")
    for name, arguments in (
        ("write", {"content": "ab\ud800c"}),
        ("edit", {"old": "text", "new": "ab\ud800c"}),
        ("edit", {"old": "ab\ud800c", "new": "x"}),
    ):
        refused = await use(tools, name, path="f.txt", **arguments)
        assert refused.is_error
        assert "half of a character, the unpaired surrogate U+D800, at position 2" in refused.text
        assert "codec" not in refused.text
    assert (root / "f.txt").read_text() == "text"
    for arguments in ({"content": "\ud83d\ude00"}, {"content": "😀"}):
        assert not (await use(tools, "write", path="f.txt", **arguments)).is_error
        assert (root / "f.txt").read_text() == "😀"
    assert not (await use(tools, "edit", path="f.txt", old="\ud83d\ude00", new="\ud83d\ude80")).is_error
    assert (root / "f.txt").read_text() == "🚀"
