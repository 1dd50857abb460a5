"""glob and grep: what they find, what they say of what they did not look into, and that what they print can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rein_nb.stream import CancellationToken
from rein_nb.tools import Toolset
from rein_nb.tools.builtin import matcher, toolset
from tests.tools.support import use


@pytest.fixture
def tools(root: Path) -> Toolset:
    return toolset(root, include=("read", "ls", "glob", "grep"), approve=False)


# -- matching --------------------------------------------------------------------------------------


def test_more_text_than_a_child_takes_at_once_is_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    # A child that is slow to begin: what it has not taken after the first look must reach it all the same.
    monkeypatch.setattr(matcher, "_CHILD", "import time; time.sleep(0.5)\n" + matcher._CHILD)
    monkeypatch.setattr(matcher, "TIMEOUT_S", 10.0)
    texts = [(f"{n}.txt", "x" * 100_000 + "\nneedle\n") for n in range(20)]
    found, more = matcher.grep(texts, "needle", ignore_case=False, limit=200, token=CancellationToken())
    assert found == [(f"{n}.txt", 2, "needle") for n in range(20)]
    assert not more


async def test_line_ends_and_byte_order_marks_are_no_part_of_a_line(tools: Toolset, root: Path) -> None:
    (root / "dos.txt").write_bytes(b"first\r\nlast\r\n")
    (root / "mark.txt").write_text("first\nlast\n", encoding="utf-8-sig")
    (root / "u16.txt").write_bytes("first\r\nlast\r\n".encode("utf-16"))
    (root / "u32.txt").write_text("first\nlast\n", encoding="utf-32")
    names = ["dos.txt", "mark.txt", "u16.txt", "u32.txt"]
    for pattern, line in (("^first$", 1), ("^last$", 2)):
        result = await use(tools, "grep", pattern=pattern)
        assert result.details["matches"] == [[name, line, pattern[1:-1]] for name in names]
        assert result.details["complete"]
    # Who looks for the line ends themselves finds them.
    assert (await use(tools, "grep", pattern=r"\r$")).details["matches"] == [
        [name, line, text] for name in ("dos.txt", "u16.txt") for line, text in ((1, "first"), (2, "last"))
    ]
    assert (await use(tools, "read", path="u32.txt")).text == "first\nlast\n"


async def test_read_and_grep_count_lines_alike(tools: Toolset, root: Path) -> None:
    text = "a\rb\x0cc\u2028d\nneedle\n"
    for encoding in ("utf-8", "utf-16"):
        (root / "odd.txt").write_bytes(text.encode(encoding))
        assert (await use(tools, "grep", pattern="needle")).details["matches"] == [["odd.txt", 2, "needle"]]
        assert (await use(tools, "read", path="odd.txt", start=2)).text.startswith("needle\n")
    (root / "last.txt").write_text("x" * 36_000)
    assert "was cut" not in (await use(tools, "read", path="last.txt")).text
    (root / "last.txt").write_text("x" * 36_000 + "\n")
    assert "was cut" not in (await use(tools, "read", path="last.txt")).text


async def test_there_is_no_line_after_the_last_one(tools: Toolset, root: Path) -> None:
    (root / "a.txt").write_text("one\n\n")
    (root / "b.txt").write_text("one")
    (root / "c.txt").write_text("")
    assert (await use(tools, "grep", pattern="^")).text == "a.txt:1:one\na.txt:2:\nb.txt:1:one"
    assert "no pattern reaches across a line end" in (await use(tools, "grep", pattern=r"one\n$")).text


async def test_of_a_long_line_the_match_is_shown_and_what_is_cut(tools: Toolset, root: Path) -> None:
    (root / "a.txt").write_text(
        "x" * 1000 + "needle" + "y" * 1000 + "\n" + "needle" + "z" * 494 + "\nneedle" + "z" * 495
    )
    assert [line for _, _, line in (await use(tools, "grep", pattern="needle")).details["matches"]] == [
        "[...]" + "x" * 250 + "needle" + "y" * 244 + "[...]",
        "needle" + "z" * 494,
        "needle" + "z" * 494 + "[...]",
    ]


async def test_a_large_utf_16_file_is_read_to_its_end(
    tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rein_nb.tools.builtin.reading.MAX_MEDIA", 1000)
    (root / "u16.txt").write_text("line\n" * 500 + "the end\n", encoding="utf-16")
    assert (await use(tools, "read", path="u16.txt", start=501)).text.startswith("the end\n")


# -- what was not searched -------------------------------------------------------------------------


async def test_grep_says_what_it_did_not_search(tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rein_nb.tools.builtin.files.MAX_EDIT", 10_000)
    monkeypatch.setattr("rein_nb.tools.builtin.files._GREP_TOTAL", 12_000)
    (root / "binary.bin").write_bytes(b"needle\0")
    only_binary = await use(tools, "grep", pattern="needle")
    assert only_binary.text == "[no match in 0 text files]\n[not searched, binary: binary.bin]"
    assert only_binary.details["complete"], "what is binary is no text"
    (root / "large.txt").write_text("x" * 10_001 + "needle")
    for name in "cdefghij":
        (root / f"{name}.txt").write_text("x" * 9_000)
    result = await use(tools, "grep", pattern="needle")
    assert result.text.splitlines() == [
        "[no match in 2 text files]",
        "[not searched, binary: binary.bin]",
        "[not searched, after the first 12,000 bytes of text: e.txt, f.txt, g.txt, h.txt, i.txt and 2 more]",
    ]
    assert result.details["complete"] is False
    named = await use(tools, "grep", pattern="needle", files="large.txt")
    assert named.text == "[no match in 0 text files]\n[not searched, larger than 10,000 bytes: large.txt]"
    assert (await use(tools, "grep", pattern="needle", path="large.txt")).text == named.text
    assert not named.details["complete"]
    assert (await use(tools, "grep", pattern="needle", path="binary.bin")).text == only_binary.text


async def test_searches_say_where_they_gave_up(tools: Toolset, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = root / "a" / "b" / "c"
    deep.mkdir(parents=True)
    (deep / "x.txt").write_text("needle\n")
    (root / "z.txt").write_text("needle\n")
    monkeypatch.setattr("rein_nb.tools.builtin.listing.MAX_DEPTH", 1)
    cut = await use(tools, "glob", pattern="*.txt")
    assert cut.text == "z.txt\n[not searched, more than 1 folders deep: a/b/]"
    assert not cut.details["complete"]
    assert "[not searched, more than 1 folders deep: a/b/]" in (await use(tools, "glob", pattern="*", path="a")).text
    monkeypatch.setattr("rein_nb.tools.builtin.listing.MAX_DEPTH", 100)
    monkeypatch.setattr("rein_nb.tools.builtin.listing.MAX_VISITED", 4)
    short = await use(tools, "grep", pattern="needle")
    assert (
        short.text == "a/b/c/x.txt:1:needle\n[not searched, after the first 4 names: z.txt and whatever comes after it]"
    )
    assert not short.details["complete"]


async def test_patterns_with_braces_and_patterns_that_can_fit_nothing(tools: Toolset, root: Path) -> None:
    for name in ("a.py", "b.md", "c.txt", "{d}.txt"):
        (root / name).write_text("needle\n")
    assert (await use(tools, "glob", pattern="*.{py,md}")).text == "a.py\nb.md"
    assert (await use(tools, "glob", pattern="{d}.txt")).text == "{d}.txt"
    assert (await use(tools, "grep", pattern="needle", files="{a,c}.{py,txt}")).details["files"] == 2
    for pattern in (f"{root}/*.py", "../*.py", "~/*.py"):
        refused = await use(tools, "glob", pattern=pattern)
        assert refused.is_error
        assert "must be relative" in refused.text
    assert "more than 100 alternatives" in (await use(tools, "glob", pattern="{a,b}" * 50)).text


# -- paths -----------------------------------------------------------------------------------------


async def test_every_path_that_a_search_prints_can_be_read(tools: Toolset, root: Path) -> None:
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "link").symlink_to("sub")
    (root / "~home").mkdir()
    for name in ("sub/a.txt", "sub/deep/b.txt", "~home/c.txt", "~d.txt", "C:e.txt", "C:/f.txt", " "):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("needle\n")
    for path in (
        ".",
        "sub",
        "sub/",
        "./sub/../sub",
        "sub/deep",
        str(root),
        f"{root}/sub",
        "link",
        "link/deep",
        "./~home",
        "sub/a.txt",
    ):
        found = (await use(tools, "grep", pattern="needle", path=path)).details["matches"]
        names = [where for where, _, _ in found]
        if path != "sub/a.txt":
            listed = await use(tools, "glob", pattern="**", path=path)
            assert [name for name in listed.details["files"] if name != "link"] == names
        assert names
        for name in names:
            assert (await use(tools, "read", path=name)).text == "needle\n", (path, name)
    assert (await use(tools, "glob", pattern="deep/*.txt", path="sub")).text == "sub/deep/b.txt"


async def test_names_that_no_path_can_hold_are_said_to_be_such(tools: Toolset, root: Path) -> None:
    (root / "a\\b.txt").write_text("needle\n")
    note = "[no tool takes these paths, which hold a backslash or bytes that are no text: a\\b.txt]"
    assert (await use(tools, "glob", pattern="*")).text == f"a\\b.txt\n{note}"
    assert (await use(tools, "grep", pattern="needle")).text == f"a\\b.txt:1:needle\n{note}"
