"""The file of a recording, whatever happens to the disk, the folder and what stands in it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rein_nb.ir import ErrorInfo, Message, ProviderError, ToolCall, ToolResult
from rein_nb.store import JsonLines, record, replay
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


@pytest.mark.parametrize("text", ["\n", "\r\n \n", "\ufeff\n"])
def test_a_file_of_empty_lines_gets_a_header(tmp_path: Path, text: str) -> None:
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    for answer in ("a", "b"):
        with record(path):
            L(answer).chat(answer)
    assert answers(path) == ["a", "b"]
    assert path.read_text().count("rein_nb.recording") == 1


def test_two_that_begin_one_file_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    header = '{"format":"rein_nb.recording","version":1,"created_at":5.0}\n'
    with record(path):
        L("a").chat("1")
    path.write_text(header + path.read_text())
    assert answers(path) == ["a"]


@pytest.mark.parametrize(
    "wrong", [RuntimeError("no"), ValueError("line 3: not a JSON record"), TypeError("x"), MemoryError(), OSError("io")]
)
def test_no_fault_of_writing_reaches_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: Exception) -> None:
    path = tmp_path / "r.jsonl"
    real = JsonLines.extend

    def fail(self: JsonLines, records: object) -> None:
        raise wrong

    with record(path):
        monkeypatch.setattr(JsonLines, "extend", fail)
        with pytest.warns(RuntimeWarning, match="an answer could not be added to the recording"):
            assert L("a").chat("1").text == "a"
        assert L("b").chat("2").text == "b", "told once"
        monkeypatch.setattr(JsonLines, "extend", real)
        assert L("c").chat("3").text == "c"
    assert answers(path) == ["c"]


def test_a_file_that_is_damaged_while_it_is_recorded_costs_the_exchange_alone(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with record(path):
        L("a").chat("1")
    recording = record(path)
    path.write_bytes(b"damaged\n" * 3)
    with recording, pytest.warns(RuntimeWarning, match=r"could not be added .*line 1: not a JSON record"):
        assert L("b").chat("2").text == "b"


def test_values_of_any_kind_are_asked_about_while_it_is_recorded(tmp_path: Path) -> None:
    class Mute:
        def __str__(self) -> str:
            raise ValueError("no text")

    deep: object = "bottom"
    for _ in range(400):
        deep = [deep]
    call = ToolCall(id="c", name="look", arguments={"at": deep, "n": 10**5000})
    result = ToolResult(tool_call_id="c", content="ok", details={"x": Mute(), "n": 10**5000})
    asked = ["go", Message(role="assistant", tool_calls=[call]), Message(role="tool", parts=[result])]
    for _ in range(2):
        with record(tmp_path / "r.jsonl", mode="auto"):
            assert L("a").chat(asked).text == "a"
    assert len(replay(tmp_path / "r.jsonl").exchanges) == 1


def test_a_time_that_is_none_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with record(path):
        L("a").chat("1")
    lines = path.read_text().splitlines()
    for time in ("NaN", "-1", "1e300", '"x"'):
        path.write_text(f'{{"format":"rein_nb.recording","version":1,"created_at":{time}}}\n{lines[1]}\n')
        assert replay(path).created_at == 946684800.0


@pytest.mark.skipif(os.name == "nt", reason="an open file cannot be removed there")
def test_a_recording_that_is_removed_meanwhile_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with record(path):
        L("a").chat("1")
        path.unlink()
        L("b").chat("2")
        path.write_text(path.read_text())
        L("c").chat("3")
        path.rename(tmp_path / "moved.jsonl")
        L("d").chat("4")
    assert answers(tmp_path / "moved.jsonl") == ["b", "c", "d"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda x: x["request"].pop("dialect"), "KeyError: 'dialect'"),
        (lambda x: x["request"].update(provider=5), "provider and dialect are texts"),
        (lambda x: x["request"].update(body=[]), "body is a JSON object"),
        (lambda x: x.update(lane=["5"]), "its lane a text"),
        (lambda x: x.update(seconds=None), "a number of seconds from 0 on, not None"),
        (lambda x: x.update(seconds=float("nan")), "a number of seconds from 0 on, not nan"),
        (lambda x: x["events"][0].__setitem__(0, 10**400), "a number of seconds from 0 on, not 1000"),
        (lambda x: x["events"][0].__setitem__(1, 5), "an event's name is a text, not 5"),
        (lambda x: x["events"][0].__setitem__(2, 5), "TypeError"),
        (lambda x: x["events"][0].__setitem__(2, ["x"]), "unknown delta 'x'"),
        (lambda x: x["events"].append([0.1]), "ValueError"),
        (lambda x: x.update(error={"kind": "none"}), "ValidationError"),
    ],
)
def test_an_exchange_that_was_damaged_is_named_when_the_file_is_opened(
    tmp_path: Path, change: Callable[[Any], object], said: str
) -> None:
    path = tmp_path / "r.jsonl"
    with record(path):
        L("a").chat("1")
    header, line = path.read_text().splitlines()
    exchange = json.loads(line)
    change(exchange)
    path.write_text(f"{header}\n{json.dumps(exchange)}\n")
    with pytest.raises(ValueError, match=f"line 2: no recorded exchange: .*{said}"):
        replay(path)


def test_a_recording_is_put_in_place_by_one_at_a_time_and_a_killed_process_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rein_nb.store import recording_anew

    path = tmp_path / "r.jsonl"
    code = (
        "import os, sys, pathlib; from rein_nb.store import recording_anew as r\n"
        "with r._alone(pathlib.Path(sys.argv[1])): print('in', flush=True); sys.stdin.read(1); os._exit(9)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"in\n"
        monkeypatch.setattr(recording_anew, "_LONGEST_WAIT_S", 0.05)
        with pytest.raises(OSError, match="another process"), recording_anew._alone(path):
            raise AssertionError("two at once")
        other.kill()
        other.wait(10)
    with recording_anew._alone(path):
        pass
