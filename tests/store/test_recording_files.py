"""The file of a recording, whatever happens to the disk, the folder and what stands in it."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from rein_nb.ir import ErrorInfo, ProviderError
from rein_nb.store import record, replay
from rein_nb.testing import ScriptedProvider

L = ScriptedProvider.llm


def answers(path: Path) -> list[str]:
    """What the file answers, in order."""
    with replay(path) as recording:
        return [
            L("not this").chat(exchange.request["body"]["request"]["messages"][0]["parts"][0]["text"]).text
            for exchange in recording.exchanges
        ]


def test_a_full_disk_costs_the_exchange_and_not_the_answer_nor_the_file(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    path, llm = tmp_path / "r.jsonl", L("A" * 3000, "B" * 20000, "C" * 3000, "D")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with record(path):
            llm.chat("1")
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 5000, before[1]))
            with pytest.warns(RuntimeWarning, match="could not be added to the recording .* too large"):
                assert llm.chat("2").text == "B" * 20000
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert llm.chat("3").text == "C" * 3000
            llm.chat("4")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [text[:1] for text in answers(path)] == ["A", "C", "D"]
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("begun", [b'{"format":"rein_nb.rec', b"{", b'{"format":"rein_nb.recording","ver'])
def test_half_a_header_is_set_aside_and_a_whole_one_written(tmp_path: Path, begun: bytes) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(begun)
    with record(path):
        L("a").chat("q")
    assert answers(path) == ["a"]
    assert (tmp_path / "r.jsonl.broken-1").read_bytes() == begun


@pytest.mark.parametrize(
    "text", [b"a note of mine", b"\x1f\x8b\x08 zipped", b"one\ntwo\n", b'{"format":"else"}\n', b"5\n"]
)
def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(text)
    for use in (record, replay):
        with pytest.raises(ValueError, match=r"notes\.txt"):
            use(path)
    assert path.read_bytes() == text
    assert sorted(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("5", "line 2: no recorded exchange: TypeError: an exchange is a JSON object"),
        ('{"request":"x","stream":true,"events":[]}', "line 2: no recorded exchange: TypeError"),
    ],
)
def test_a_line_that_is_no_exchange_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"format":"rein_nb.recording","version":1}\n' + line + "\n")
    with pytest.raises(ValueError, match=said):
        replay(path)


def test_a_version_that_is_no_number_is_named(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text('{"format":"rein_nb.recording","version":"1"}\n')
    with pytest.raises(ValueError, match="line 1: the version should be a number, not '1'"):
        replay(path)


def test_a_byte_order_mark_is_read_over(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with record(path):
        L("a").chat("q")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert answers(path) == ["a"]


def test_a_relative_path_is_the_folder_s_of_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    llm = L("a", "b")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with record("r.jsonl"):
        llm.chat("1")
        monkeypatch.chdir(tmp_path / "elsewhere")
        llm.chat("2")
    assert answers(tmp_path / "r.jsonl") == ["a", "b"]
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_home_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    with record("~/r.jsonl"):
        L("a").chat("1")
    assert answers(tmp_path / "r.jsonl") == ["a"]


def test_a_place_that_cannot_be_written_is_told_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    recording = record(tmp_path / "file" / "r.jsonl")
    with pytest.raises(OSError, match="cannot record into it, name a file in a folder that can be written to"):
        recording.start()


def test_a_providers_error_with_half_a_character_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    fault = ProviderError(ErrorInfo.make("bad_request", "bad \ud800"))
    with record(path), pytest.raises(ProviderError, match="bad"):
        L(fault).chat("x")
    with replay(path), pytest.raises(ProviderError, match="bad \ufffd"):
        L("no").chat("x")


@pytest.mark.parametrize("speed", ["x", 0, -1, True, float("nan")])
def test_a_speed_that_is_none_is_named(tmp_path: Path, speed: object) -> None:
    with pytest.raises(ValueError, match="speed must be a positive number"):
        replay(tmp_path / "r.jsonl", speed=speed)  # type: ignore[arg-type]
