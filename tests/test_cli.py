"""The command line: what it prints, and that it says nothing that it must not."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

import rein_nb as rn
from rein_nb import Agent, compare
from rein_nb.cli import demo, doctor, live, notebooks
from rein_nb.cli.parser import main
from rein_nb.compare import set_factory
from rein_nb.ir import ToolCall
from rein_nb.providers.local import weights
from rein_nb.testing import serve_recording
from rein_nb.testing.scripted import ScriptedProvider

NOTEBOOKS = ("01_first_light.ipynb", "02_compare.ipynb")


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rein_nb", *arguments],
        capture_output=True, text=True, timeout=300, check=False, env=os.environ | environment,
    )  # fmt: skip


def test_no_command_is_an_error_that_names_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "COMMAND" in capsys.readouterr().err


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    text = capsys.readouterr().out
    assert all(command in text for command in ("demo", "models", "doctor", "sessions", "export", "replay"))


def test_models_says_what_is_here(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(weights.FOLDER_VARIABLE, str(tmp_path))
    assert main(["models"]) == 0
    text = capsys.readouterr().out
    assert "local/smollm2-135m" in text
    assert "not here (98 MB; fetched at first use)" in text
    assert "rein-nb models pull qwen2.5-coder-0.5b" in text
    assert not list(tmp_path.iterdir())


def test_pulling_an_unknown_model_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "pull", "gpt-2"]) == 1
    assert "smollm2-135m, qwen2.5-coder-0.5b" in capsys.readouterr().err


def test_doctor_names_keys_and_never_shows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-thisIsNoRealKey0123456789")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    text = doctor.report()
    assert "OPENAI_API_KEY" in text
    assert "thisIsNoRealKey" not in text
    assert "ANTHROPIC_API_KEY" not in text


def test_doctor_says_why_a_feature_does_not_work(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    gone = {"xllamacpp", "altair"}
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in gone else real(name))
    lines = doctor.report().splitlines()
    model = next(line for line in lines if "embedded model" in line)
    assert model.split()[0] == "no"
    assert "rein-nb[local]" in model
    plots = [line for line in lines if "plots" in line]
    assert all(line.split()[0] == "no" and "rein-nb[plots]" in line for line in plots)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with two sessions; a key was told in one of them."""
    path = tmp_path / "study.sqlite"
    with rn.Store(path) as made:
        for title, answer in (
            ("capitals", "**Paris**, and sk-proj-thisIsNoRealKey0123456789"),
            ("rivers", "The Seine."),
        ):
            agent = Agent(ScriptedProvider.llm(answer))
            made.create(title).attach(agent)
            agent.run("And in France?")
    return path


def test_the_real_command_exports_a_session_in_each_form(store: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    done = run("export", "capitals", "--html", "-o", str(page), "--store", str(store))
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{page}\n", "")
    html = page.read_text(encoding="utf-8")
    assert "<strong>Paris</strong>" in html
    assert "<script" not in html
    markdown = run("export", "last", "--markdown", "-o", "-", "--store", str(store))
    assert "The Seine." in markdown.stdout
    lines = run("export", "capitals", "--jsonl", "-o", "-", "--store", str(store)).stdout.splitlines()
    assert json.loads(lines[0])["type"] == "transcript"
    assert all("thisIsNoRealKey" not in text for text in (html, *lines))


def test_an_export_writes_over_nothing_unless_it_is_told_to(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["export", "rivers", "--store", str(store)]) == 0
    name = capsys.readouterr().out.strip()
    assert re.fullmatch(r"rivers-[0-9a-f]{8}\.html", name)
    Path(name).write_text("mine", encoding="utf-8")
    assert main(["export", "rivers", "--store", str(store)]) == 1
    assert "--force" in capsys.readouterr().err
    assert Path(name).read_text(encoding="utf-8") == "mine"
    assert main(["export", "rivers", "--store", str(store), "--force"]) == 0
    assert "Seine" in Path(name).read_text(encoding="utf-8")


def test_a_session_that_is_not_there_is_told_in_one_line_with_those_that_are(store: Path, tmp_path: Path) -> None:
    done = run("export", "mountains", "--store", str(store))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert all(word in done.stderr for word in ("mountains", "capitals", "rivers"))
    gone = run("sessions", "--store", str(tmp_path / "nothing.sqlite"))
    assert gone.returncode == 1
    assert "there is no store at" in gone.stderr
    assert not (tmp_path / "nothing.sqlite").exists()


def test_sessions_are_listed_newest_first(store: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sessions", "--store", str(store), "--json"]) == 0
    assert [row["title"] for row in json.loads(capsys.readouterr().out)] == ["rivers", "capitals"]
    assert main(["sessions", "--store", str(store), "--limit", "1"]) == 0
    text = capsys.readouterr().out
    assert "rivers" in text
    assert "capitals" not in text


SAMPLE = [
    {"choices": [{"index": 0, "delta": {"content": "Hello "}, "finish_reason": None}]},
    {"choices": [{"index": 0, "delta": {"content": "\x1b[31myou"}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
]  # fmt: skip


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """One answer of a loopback server, one of a provider without a wire that calls a tool, and one that fails."""
    path = tmp_path / "calls.jsonl"
    body = "".join(f"data: {json.dumps({'id': 'r', 'model': 'sample'} | event)}\n\n" for event in SAMPLE)
    answer = {"status": 200, "headers": {"content-type": "text/event-stream"}, "body": body + "data: [DONE]\n\n"}
    with serve_recording([answer]) as server, rn.record(path):
        llm = rn.LLM.named("openai-compatible/sample", base_url=f"{server.base_url}/v1", api_key="not-a-real-key-0000")
        assert list(llm.stream("hi"))
        called = ScriptedProvider.llm([ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})])
        assert list(called.stream("add"))
    return path


def test_the_real_command_plays_a_recording(recording: Path) -> None:
    done = run("replay", str(recording))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 of 2  openai-compatible/sample" in done.stdout
    assert "Hello ␛[31myou" in done.stdout  # shown, not obeyed
    assert 'calls add {"a": 1, "b": 2}' in done.stdout
    assert "3 tokens in, 2 out" in done.stdout


def test_a_played_recording_as_json_is_what_each_call_gave(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", str(recording), "--json"]) == 0
    first, second = (rn.Completion.model_validate_json(line) for line in capsys.readouterr().out.splitlines())
    assert first.text.startswith("Hello ")
    assert first.usage.input_tokens == 3
    assert second.tool_calls[0].arguments == {"a": 1, "b": 2}


def test_a_failed_call_in_a_recording_is_told_by_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "failed.jsonl"
    with rn.record(path):
        assert list(ScriptedProvider.llm("x", fault="overloaded").stream("hi"))
    assert main(["replay", str(path)]) == 1
    assert "failed: scripted fault: overloaded" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["replay", "no-such-file.jsonl"], 1, "there is no file no-such-file.jsonl"),
        (["replay", "pyproject.toml"], 1, "pyproject.toml"),
        (["models", "offered", "nobody"], 1, "unknown provider 'nobody'"),
        (["models", "pull", "gpt-2"], 1, "smollm2-135m"),
    ],
)
def test_what_cannot_be_done_is_told_without_a_traceback(
    arguments: list[str], status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == status
    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


@pytest.mark.parametrize("speed", ["0", "-1", "fast", "inf", "nan"])
def test_a_speed_is_a_positive_number(speed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["replay", "x.jsonl", f"--speed={speed}"])
    assert caught.value.code == 2
    assert "positive number" in capsys.readouterr().err


def test_models_offered_asks_the_endpoint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REIN_NB_API_KEY", "not-a-real-key-0000")
    answer = {
        "status": 200,
        "headers": {"content-type": "application/json"},
        "body": '{"data": [{"id": "b"}, {"id": "a"}]}',
    }
    with serve_recording([answer, answer]) as server:
        command = ["models", "offered", "openai-compatible", "--base-url", f"{server.base_url}/v1"]
        assert main(command) == 0
        assert capsys.readouterr().out == "openai-compatible/a\nopenai-compatible/b\n"
        assert main([*command, "--json"]) == 0
        assert [row["id"] for row in json.loads(capsys.readouterr().out)] == ["b", "a"]


def test_doctor_and_models_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-thisIsNoRealKey0123456789")
    assert main(["doctor", "--json"]) == 0
    text = capsys.readouterr().out
    assert "thisIsNoRealKey" not in text
    found = json.loads(text)
    assert found["keys"]["openai"] == ["OPENAI_API_KEY"]
    assert all(feature["works"] == (feature["why_not"] is None) for feature in found["features"])
    for command in (["models", "--json"], ["models", "list", "--json"], ["models", "--json", "list"]):
        assert main(command) == 0
        assert json.loads(capsys.readouterr().out)[0]["model"] == "local/smollm2-135m"


def test_a_reader_that_wants_no_more_is_no_fault() -> None:
    command = f"{sys.executable} -m rein_nb doctor --json | head -c 1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "{"
    assert done.stderr == ""


def test_the_live_grid_shows_every_column_and_obeys_nothing_that_a_model_wrote() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=False)
    before = set_factory(lambda labels, prompts, stops: live.LiveGrid(console, labels, prompts, stops))
    try:
        compare(
            ["one", "two"],
            models={
                "plain": Agent(ScriptedProvider.llm("first", "second")),
                "nasty": Agent(ScriptedProvider.llm("[bold red]x[/] \x1b[31mred", "\x1b]0;title\x07")),
            },
            concurrency=1,
        )
    finally:
        set_factory(before)
    console_file = console.file
    assert isinstance(console_file, io.StringIO)
    text = console_file.getvalue()
    assert all(word in text for word in ("plain", "nasty", "one", "two", "first", "second"))
    assert "[bold red]x[/]" in text
    assert "\x1b" not in text
    assert "\x07" not in text


def test_a_column_that_failed_says_why() -> None:
    console = Console(file=io.StringIO(), width=100)
    before = set_factory(lambda labels, prompts, stops: live.LiveGrid(console, labels, prompts, stops))
    try:
        compare("one", models={"broken": Agent(ScriptedProvider.llm("x", fault="server_error"))})
    finally:
        set_factory(before)
    assert isinstance(console.file, io.StringIO)
    assert "failed:" in console.file.getvalue()


def test_records_have_exactly_the_promised_columns_and_null_for_what_is_unknown() -> None:
    comparison = compare("one", models={"a": Agent(ScriptedProvider.llm("first"))}, show=False)
    agent = Agent(
        ScriptedProvider.llm(ToolCall(id="1", name="add", arguments={"a": 1, "b": 2}), "three"), tools=[demo.add]
    )
    records = demo.records(comparison, agent.run("add"))
    assert len(records) == 2
    assert all(tuple(record) == demo.RECORD_COLUMNS for record in records)
    assert records[1]["text"] == "three"
    assert records[0]["cost_usd"] is None
    assert json.loads(json.dumps(records)) == records


def test_the_notebooks_are_found() -> None:
    for name in NOTEBOOKS:
        assert notebooks.find(name).is_file()
    with pytest.raises(FileNotFoundError, match="neither in"):
        notebooks.find("99_nothing.ipynb")


def test_a_failing_notebook_says_which_cell_and_keeps_what_was_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat

    cells = [nbformat.v4.new_code_cell("print('before')"), nbformat.v4.new_code_cell("1 / 0  # the culprit")]
    source = tmp_path / "bad.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source)
    monkeypatch.setattr(notebooks, "find", lambda name: source)
    said: list[str] = []
    with pytest.raises(notebooks.NotebookFailed, match=r"(?s)the culprit.*ZeroDivisionError"):
        notebooks.execute("bad.ipynb", tmp_path / "out", said.append)
    assert "before" in (tmp_path / "out" / "bad.ipynb").read_text()
    assert said == ["  cell 1 of 2: print('before')", "  cell 2 of 2: 1 / 0  # the culprit"]


def test_the_page_of_a_notebook_has_no_script_and_fetches_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import nbformat

    source = tmp_path / "good.ipynb"
    words = "import time\nfor word in ('all', 'in', 'one', 'line'):\n    print(word, end=' ', flush=True)\n    time.sleep(0.02)"
    cells = [
        nbformat.v4.new_markdown_cell("# Title"),
        nbformat.v4.new_code_cell("print('<script>alert(1)</script>')"),
        nbformat.v4.new_code_cell(words),
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), source)
    monkeypatch.setattr(notebooks, "find", lambda name: source)
    _, page = notebooks.execute("good.ipynb", tmp_path / "out", lambda line: None)
    html = page.read_text(encoding="utf-8")
    assert "alert(1)" in html
    assert "all in one line" in html, "what was printed word by word"
    assert "<script" not in html
    assert not re.search(r"""(src|href)=["']?https?:""", html)


def test_without_jupyterlab_it_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notebooks.importlib.util, "find_spec", lambda name: None)
    console = Console(file=io.StringIO(), width=200)
    assert notebooks.open_lab(tmp_path / "x.ipynb", console) == 0
    assert isinstance(console.file, io.StringIO)
    assert 'pip install "rein-nb[lab]"' in console.file.getvalue()


def test_the_first_line_comes_before_anything_slow() -> None:
    started = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "rein_nb", "demo", "--no-open"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert "no key" in process.stdout.readline()
        assert time.monotonic() - started < 5  # a second, on a machine that does nothing else
    finally:
        process.kill()
        process.wait()


@pytest.mark.local_model
@pytest.mark.slow
def test_demo_json_prints_records_and_nothing_else() -> None:
    done = run("demo", "--json")
    assert done.returncode == 0, done.stderr
    records = json.loads(done.stdout)
    by_prompt: dict[str, set[str]] = {}
    tokens: dict[str, set[int]] = {}
    for record in records[:9]:
        by_prompt.setdefault(record["prompt"], set()).add(record["text"])
        tokens.setdefault(record["prompt"], set()).add(record["input_tokens"])
    assert sorted(by_prompt) == sorted(demo.PROMPTS)
    assert all(len(texts) == 1 for texts in by_prompt.values()), by_prompt
    assert all(len(counts) == 1 for counts in tokens.values()), tokens
    assert {record["model"] for record in records[:9]} == {f"{provider}/{demo.MODEL}" for provider in demo.PROVIDERS}
    assert "42" in records[9]["text"]
