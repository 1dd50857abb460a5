"""The magics in a real IPython shell: prompts are raw, results are variables, settings last, errors are short."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython")

from IPython.core.interactiveshell import InteractiveShell

from rein_nb.ir import Message, ThinkingPart, ToolCall
from rein_nb.notebook import magics
from rein_nb.notebook.complete import candidates
from rein_nb.notebook.extension import load_ipython_extension, rewrite, unload_ipython_extension
from rein_nb.notebook.room import Room
from rein_nb.testing import ScriptedProvider
from tests.support import field_cases


def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b


def echo() -> Any:
    return ScriptedProvider.llm(lambda request: request.messages[-1].text, repeat=True)


@pytest.fixture
def ip(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    shell = InteractiveShell.instance()
    monkeypatch.setattr(magics, "_room", Room())
    load_ipython_extension(shell)
    shell.user_ns.update(
        add=add,
        echo=echo(),
        bot=ScriptedProvider.llm(
            [ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})], "It is **3**.", repeat=True
        ),
    )
    yield shell
    unload_ipython_extension(shell)
    InteractiveShell.clear_instance()


def prompt(ip: Any) -> str:
    return next(m.text for m in reversed(ip.user_ns["_agent"].messages) if m.role == "user")


@pytest.mark.parametrize("end", ["", "\n"])
def test_C115_the_prompt_is_byte_for_byte_the_text_below_the_first_line(ip: Any, end: str) -> None:
    case = field_cases().get("C115")
    cell = (
        case["minimal_input"]["cell"]
        if case
        else '%%agent\nExplain:\n{v: k for k, v in d.items()}\nprint(f"{name!r:>10} {{x}}")\n$name ${HOME} %d {} {0} {name\n'
    )
    body = cell.split("\n", 1)[1].rstrip("\n") + end
    ip.user_ns.update(name="Ada", d={"k": 1})
    ip.run_cell("%%agent -m echo\n" + body).raise_error()
    assert prompt(ip) == body


def test_C115_names_are_put_in_when_asked_for(ip: Any) -> None:
    ip.user_ns.update(name="{other} $HOME", other="no")
    ip.run_cell("%%agent -m echo -i name\n{name} {other} {missing}").raise_error()
    assert prompt(ip) == "{other} $HOME {other} {missing}"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("%agent don't panic", "don't panic"),
        ('%agent --system "be brief" say "hi there"', 'say "hi there"'),
        ("%agent --system=\"be brief\" -- --not-an-option 'x'", "--not-an-option 'x'"),
        (r"%agent C:\new\table", r"C:\new\table"),
        ("%agent {add} $HOME", "{add} $HOME"),
        ("x = 1\n%agent in the midst of a cell's {code}\n", "in the midst of a cell's {code}"),
    ],
)
def test_C117_a_line_is_raw_after_its_options(ip: Any, line: str, text: str) -> None:
    ip.run_cell("%agent model echo")
    ip.run_cell(line).raise_error()
    assert prompt(ip) == text
    assert ip.user_ns["_agent"].system == ("be brief" if "--system" in line else None)


def test_C117_wrong_options_are_told_without_a_traceback(ip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for cell in ("%agent --modle gpt hi", "%%agent --modle gpt\nhi"):
        assert not ip.run_cell(cell).success
        err = capsys.readouterr()
        assert "--modle" in err.err
        assert "--model" in err.err
        assert "Traceback" not in err.err + err.out


def test_C117_an_empty_line_shows_help(ip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ip.run_cell("%agent   ").raise_error()
    assert "--tools" in capsys.readouterr().out


def test_a_cell_runs_tools_and_leaves_its_result(ip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ip.run_cell("%%agent -m bot --tools add --out answer\nWhat is 1 + 2?").raise_error()
    result = ip.user_ns["answer"]
    assert result is ip.user_ns["_agent"]
    assert result.text == "It is **3**."
    shown = capsys.readouterr().out
    assert "Tool add ✓ done" in shown
    assert "-> 3" in shown


def test_sessions_last_across_cells_and_are_apart(ip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ip.run_cell("%agent model echo")
    for cell in ("%agent one", "%agent two", "%%agent --session other\nthree"):
        ip.run_cell(cell).raise_error()
    assert [m.text for m in ip.user_ns["_agent"].messages if m.role == "user"] == ["three"]
    ip.run_cell("%agent four").raise_error()
    assert [m.text for m in ip.user_ns["_agent"].messages if m.role == "user"] == ["one", "two", "four"]
    ip.run_cell("%agent reset")
    ip.run_cell("%agent five").raise_error()
    assert [m.text for m in ip.user_ns["_agent"].messages if m.role == "user"] == ["five"]
    capsys.readouterr()
    ip.run_cell("%agent usage")
    assert "total:" in capsys.readouterr().out


def test_settings_hold_for_following_cells(ip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for line in ("%agent model bot", "%agent tools add", "%agent system Be brief."):
        ip.run_cell(line).raise_error()
    ip.run_cell("%%agent\nWhat is 1 + 2?").raise_error()
    assert ip.user_ns["_agent"].system == "Be brief."
    assert ip.user_ns["_agent"].tool_runs[0].result.text == "3"
    assert "model: bot" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("%%agent\nhi", "no model is chosen"),
        ("%%agent -m nosuchprovider/x\nhi", "nosuchprovider"),
        ("%%agent -m echo --tools ad\nhi", "did you mean 'add'"),
        ("%%agent -m echo\n  \n", "the prompt is empty"),
        ("%%agent -m echo --image nowhere.png\nhi", "neither a variable nor a file"),
        ("%%agent -m echo --schema Nothing\nhi", "no variable 'Nothing'"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    ip: Any, capsys: pytest.CaptureFixture[str], cell: str, message: str
) -> None:
    assert not ip.run_cell(cell).success
    err = capsys.readouterr()
    assert message in err.err
    assert "Traceback" not in err.err + err.out


def test_a_providers_fault_fails_the_cell_and_keeps_the_result(ip: Any, capsys: pytest.CaptureFixture[str]) -> None:
    ip.user_ns["broken"] = ScriptedProvider.llm("half of it, and the rest", fault="mid_stream")
    outcome = ip.run_cell("%%agent -m broken\nhi")
    assert type(outcome.error_in_exec).__name__ == "RunFailed"
    assert ip.user_ns["_agent"].stop_reason == "error"
    out = capsys.readouterr().out
    assert "run the cell again" in out
    assert "Traceback" not in out


def test_several_models_become_a_comparison(ip: Any) -> None:
    ip.user_ns["other"] = ScriptedProvider.llm("other answer")
    ip.run_cell("%%agent -m echo -m other\nhello").raise_error()
    comparison = ip.user_ns["_agent"]
    assert comparison.labels == ["echo", "other"]
    assert [cell.result.text for cell in comparison.cells] == ["hello", "other answer"]


def test_a_background_run_is_a_handle(ip: Any) -> None:
    ip.run_cell("%%agent -m echo --background --out run\nhello").raise_error()
    assert ip.user_ns["run"].result(10).text == "hello"


def test_images_go_with_the_prompt(ip: Any) -> None:
    ip.user_ns["pixel"] = bytes.fromhex("89504e470d0a1a0a0000000d49484452")
    ip.run_cell("%%agent -m echo --image pixel\nlook").raise_error()
    message = ip.user_ns["_agent"].messages[0]
    assert [part.type for part in message.parts] == ["media", "text"]


def test_results_show_themselves(ip: Any) -> None:
    ip.run_cell("%%agent -m bot --tools add\nWhat is 1 + 2?").raise_error()
    result = ip.user_ns["_agent"]
    for value in (
        result,
        result.completion,
        result.messages[-1],
        Message(role="assistant", parts=[ThinkingPart(text="It is 3")]),
    ):
        data, _ = ip.display_formatter.format(value)
        assert {"text/html", "text/markdown", "text/plain", "application/vnd.rein-nb.transcript+json"} <= set(data)
        assert "3" in data["text/html"]


def test_cells_are_rewritten_to_an_awaited_call() -> None:
    (line,) = rewrite(["%%agent -m x\n", "a 'quoted' \\ text\n", "{x}\n"])
    assert re.match(r"await .*\.run_cell\('-m x', ", line)
    compile(line, "cell", "exec", flags=0x2000)
    assert rewrite(["%%agents\n"]) == ["%%agents\n"]
    assert rewrite(["x = 1\n", "%agent hi\n"]) == ["x = 1\n", "%agent hi\n"]
    assert rewrite(["%agent model x\n"]) == ["%agent model x\n"]
    assert rewrite(['"""\n', "%%agent\n", '"""\n'])[1] == "%%agent\n"
    assert rewrite([]) == []


def test_loading_twice_is_harmless_and_unloading_complete() -> None:
    shell = InteractiveShell.instance()
    try:
        before = (
            list(shell.input_transformers_cleanup),
            dict(shell.display_formatter.mimebundle_formatter.type_printers),
            set(shell.magics_manager.magics["line"]),
            list(shell.events.callbacks["pre_run_cell"]),
        )
        load_ipython_extension(shell)
        load_ipython_extension(shell)
        assert shell.input_transformers_cleanup.count(rewrite) == 1
        assert shell.display_formatter.format(Message(role="user", content="x"))[0].keys() >= {"text/html"}
        unload_ipython_extension(shell)
        after = (
            list(shell.input_transformers_cleanup),
            dict(shell.display_formatter.mimebundle_formatter.type_printers),
            set(shell.magics_manager.magics["line"]),
            list(shell.events.callbacks["pre_run_cell"]),
        )
        assert before == after
        assert not shell.display_formatter.mimebundle_formatter.deferred_printers.keys() & {
            ("rein_nb.ir.messages", "Message")
        }
        assert not shell.strdispatchers["complete_command"].regexs
    finally:
        InteractiveShell.clear_instance()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("%%agent --mo", ["--model"]),
        ("%%agent -m op", ["openai/"]),
        ("%agent mod", ["model", "models"]),
        ("%agent model lo", ["local/"]),
        ("%%agent --tools a", ["add"]),
        ("%%agent --tools add a", ["add"]),
        ("%%agent --session m", ["mine"]),
        ("%%agent --approve a", ["auto", "always"]),
        ("%%agent --tool-choice a", ["auto", "add"]),
        ("%agent --system x wo", []),
    ],
)
def test_options_models_tools_and_sessions_are_completed(line: str, found: list[str]) -> None:
    assert candidates(line, {"add": add, "x": 1}, ["openai/", "local/"], ["mine"]) == found


def test_a_session_that_goes_on_with_an_agent_has_its_tools(ip: Any) -> None:
    from rein_nb import Agent

    llm = ScriptedProvider.llm([ToolCall(id="1", name="add", arguments={"a": 1, "b": 2})], "It is 3.", repeat=True)
    ip.user_ns["helper"] = Agent(llm, tools=[add], system="Be brief.")
    for cell in ("%%agent -m echo\nhello", "%%agent -m helper\nWhat is 1 + 2?", "%%agent -m helper\nAgain?"):
        ip.run_cell(cell).raise_error()
        result = ip.user_ns["_agent"]
    assert result.system == "Be brief."
    assert [run.result.text for run in result.tool_runs] == ["3"]
    assert [m.text for m in result.messages if m.role == "user"] == ["hello", "What is 1 + 2?", "Again?"]
    assert ip.user_ns["helper"].messages == []


def test_embedded_models_are_known_by_each_of_their_providers(ip: Any) -> None:
    known = magics.known_models(ip.user_ns)
    assert known[:2] == ["echo", "bot"]
    assert {f"{name}/smollm2-135m" for name in ("local", "local-responses", "local-messages")} < set(known)
    assert "openai/" in known
    assert "local/" not in known


def test_a_tool_can_be_made_to_be_called(ip: Any) -> None:
    seen = []
    ip.user_ns["spy"] = ScriptedProvider.llm(lambda request: seen.append(request.tool_choice) or "x", repeat=True)
    for cell in (
        "%%agent -m spy --tools add --tool-choice add\nhi",
        "%%agent -m spy --tools add --tool-choice required\nhi",
    ):
        ip.run_cell(cell).raise_error()
    assert "add" in str(seen[0])
    assert "required" in str(seen[1])
    assert not ip.run_cell("%%agent -m spy --tools add --tool-choice ad\nhi").success


def test_completion_is_hooked_in(ip: Any) -> None:
    _, matches = ip.complete("--mod", "%%agent --mod", 13)
    assert "--model" in matches


def last_value(cell: str) -> str:
    import ast

    from rein_nb.notebook.watch import Watch

    return ast.unparse(Watch().visit(ast.parse(cell)))


@pytest.mark.parametrize("cell", ["agent.run('x')", "y = 1\nagents[0].run('x', tools=[f])", "await agent.arun('x')"])
def test_the_last_call_of_run_is_watched(cell: str) -> None:
    assert last_value(cell).count(".watched(") == 1


@pytest.mark.parametrize(
    "cell",
    ["r = agent.run('x')", "agent.run('x')\nprint(1)", "run('x')", "agent.run('x').text", "[agent.run('x')]", "await agent.run('x')",
     "agent.arun('x')", "for p in q:\n    agent.run(p)", "def f():\n    agent.run('x')", "", "1"],
)  # fmt: skip
def test_runs_elsewhere_in_a_cell_stay_silent(cell: str) -> None:
    assert "watched" not in last_value(cell)


def test_only_an_agents_own_methods_are_watched(ip: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import subprocess

    from rein_nb import Agent
    from rein_nb.notebook import watch

    agent = Agent(echo())
    assert watch.watched(agent.run) == agent.run
    monkeypatch.setattr(watch, "place", lambda: "notebook")
    assert watch.watched(subprocess.run) is subprocess.run
    assert watch.watched(agent.astream) == agent.astream
    assert watch.watched(agent.run) != agent.run
    ip.user_ns["agent"] = agent
    monkeypatch.setattr(watch, "place", lambda: "headless")
    assert ip.run_cell("agent.run('hello')").result.text == "hello"
