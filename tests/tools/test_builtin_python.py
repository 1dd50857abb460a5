"""The python tool: the user's namespace, what it prints, draws and shows, and how it is stopped."""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rein_nb.ir import MediaPart, ToolCall, ToolResult
from rein_nb.stream import CancellationToken
from rein_nb.tools import Tool, ToolContext
from rein_nb.tools.builtin import toolset

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


@pytest.fixture
def namespace() -> dict[str, Any]:
    return {}


@pytest.fixture
def python(namespace: dict[str, Any]) -> Tool:
    return toolset(include=("python",), approve=False, namespace=namespace)["python"]


async def run(tool: Tool, code: str, token: CancellationToken | None = None) -> ToolResult:
    call = ToolCall(id="1", name="python", arguments={"code": code})
    return await tool.call(call, ToolContext(call=call, token=token or CancellationToken()))


async def test_variables_stay_and_the_last_value_is_shown(python: Tool, namespace: dict[str, Any]) -> None:
    assert (await run(python, "x = 20\ny = 22")).text == "(no output)"
    result = await run(python, "print('sum:')\nx + y")
    assert result.text == "sum:\n42"
    assert result.details == {"output": "sum:\n", "value": "42"}
    assert namespace["x"] == 20
    assert (await run(python, "'text'")).text == "'text'"
    assert (await run(python, "None")).text == "(no output)"
    assert (await run(python, "def f():\n    return x\nf()")).text == "20"


async def test_stdout_and_stderr_come_in_order_and_nothing_reaches_the_screen(
    python: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    result = await run(python, "import sys\nprint('a')\nprint('b', file=sys.stderr)\nsys.stdout.write('c')\nprint('d')")
    assert result.text == "a\nb\ncd\n"
    assert capsys.readouterr() == ("", "")
    assert sys.stdout.__class__.__name__ != "_Router"


async def test_other_threads_go_on_printing_where_they_did(python: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    stop = threading.Event()

    def chatter() -> None:
        while not stop.is_set():
            print("from outside")
            time.sleep(0.005)

    thread = threading.Thread(target=chatter)
    thread.start()
    try:
        result = await run(python, "import time\nfor n in range(5):\n    print(n)\n    time.sleep(0.02)")
    finally:
        stop.set()
        thread.join()
    assert result.text == "0\n1\n2\n3\n4\n"
    printed = capsys.readouterr().out
    assert "from outside" in printed
    assert "0\n1" not in printed


async def test_exceptions_are_text_with_the_line_and_without_the_tool_itself(python: Tool) -> None:
    result = await run(python, "print('before')\ndef f(n):\n    return 1 / n\nf(0)")
    assert result.status == "error"
    assert result.text.startswith("before\nTraceback (most recent call last):\n")
    assert "return 1 / n" in result.text
    assert result.text.rstrip().endswith("ZeroDivisionError: division by zero")
    assert "builtin/python.py" not in result.text
    assert result.details["error"] == "ZeroDivisionError"
    broken = await run(python, "x = (")
    assert broken.status == "error"
    assert "SyntaxError" in broken.text
    left = await run(python, "raise SystemExit(3)")
    assert left.status == "error"
    assert "SystemExit: 3" in left.text
    bad_repr = await run(python, "class Bad:\n    def __repr__(self):\n        raise ValueError('no repr')\nBad()")
    assert "ValueError: no repr" in bad_repr.text


async def test_text_that_no_encoder_takes_can_be_stored(python: Tool) -> None:
    result = await run(python, "print('a\\ud800b')\n'c\\ud800'")
    assert result.text.startswith("a\ufffdb\n")
    assert ToolResult.model_validate_json(result.model_dump_json()) == result
    raised = await run(python, "raise ValueError('\\ud800')")
    assert "ValueError: \ufffd" in raised.text
    assert ToolResult.model_validate_json(raised.model_dump_json()) == raised


async def test_await_works_at_the_top(python: Tool) -> None:
    result = await run(
        python, "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 7\nprint(await f())\nawait f()"
    )
    assert result.text == "7\n7"


async def test_frames_are_shown_as_frames_and_long_reprs_are_cut(python: Tool) -> None:
    frame = await run(python, "import pandas as pd\npd.DataFrame({'a': [1, 2]})")
    assert "[2 rows x 1 columns]" in frame.text
    long = await run(python, "'x' * 100_000")
    assert "80,002 further characters of the repr" in long.text
    much = await run(python, "print('y' * 3_000_000)")
    assert "further characters of output were dropped" in much.details["output"]


class FakePyplot(types.ModuleType):
    """What the tool uses of matplotlib.pyplot."""

    def __init__(self) -> None:
        super().__init__("matplotlib.pyplot")
        self.figures: dict[int, Any] = {}
        self.current = 0

    def figure(self, number: int | None = None) -> Any:
        if number is None:
            number = max(self.figures, default=0) + 1
        if number not in self.figures:
            self.figures[number] = FakeFigure(number)
        self.current = number
        return self.figures[number]

    def get_all_fig_managers(self) -> list[Any]:
        return list(self.figures.values())

    def close(self, number: int) -> None:
        del self.figures[number]


class FakeFigure:
    def __init__(self, number: int) -> None:
        self.num = number
        self.canvas = types.SimpleNamespace(figure=self)

    def savefig(self, target: Any, format: str, bbox_inches: str) -> None:
        assert format == "png"
        target.write(PNG + bytes([self.num]))


@pytest.fixture
def pyplot(monkeypatch: pytest.MonkeyPatch) -> FakePyplot:
    module = FakePyplot()
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", module)
    helpers: Any = types.ModuleType("matplotlib._pylab_helpers")
    helpers.Gcf = module
    monkeypatch.setitem(sys.modules, "matplotlib._pylab_helpers", helpers)
    return module


async def test_new_figures_are_captured_and_closed(python: Tool, pyplot: FakePyplot, namespace: dict[str, Any]) -> None:
    old = pyplot.figure()
    namespace["plt"] = pyplot
    result = await run(python, "plt.figure(); print('drawn'); plt.figure()")
    assert result.text == "drawn\n"
    assert [part.data for part in result.content if isinstance(part, MediaPart)] == [PNG + b"\x02", PNG + b"\x03"]
    assert pyplot.figures == {1: old}
    failed = await run(python, "plt.figure()\n1 / 0")
    assert [part.data for part in failed.content if isinstance(part, MediaPart)] == [PNG + b"\x02"]
    assert pyplot.figures == {1: old}


async def test_a_figure_that_cannot_be_drawn_loses_nothing_else(
    python: Tool, pyplot: FakePyplot, namespace: dict[str, Any]
) -> None:
    namespace["plt"] = pyplot
    code = "def bad(*args, **more):\n    raise ValueError('bad mathtext')\nprint('printed')\nplt.figure().savefig = bad\nplt.figure()\n6 * 7"
    result = await run(python, code)
    assert result.status == "ok"
    assert result.text == "printed\n42\n[figure 1 could not be drawn: ValueError: bad mathtext]"
    assert [part.data for part in result.content if isinstance(part, MediaPart)] == [PNG + b"\x02"]
    assert pyplot.figures == {}
    failed = await run(python, "plt.figure().savefig = bad\n1 / 0")
    assert "ZeroDivisionError" in failed.text
    assert "could not be drawn" in failed.text


async def test_the_current_figure_stays_the_current_one(python: Tool, pyplot: FakePyplot) -> None:
    pyplot.figure()
    pyplot.figure()
    pyplot.figure(1)
    assert (await run(python, "1")).status == "ok"
    assert pyplot.current == 1


async def test_a_figure_in_the_place_of_a_closed_one_is_new(
    python: Tool, pyplot: FakePyplot, namespace: dict[str, Any]
) -> None:
    pyplot.figure()
    namespace["plt"] = pyplot
    result = await run(python, "plt.close(1)\nfor _ in range(3): plt.figure()")
    assert len([part for part in result.content if isinstance(part, MediaPart)]) == 3
    assert pyplot.figures == {}


async def test_captured_streams_are_streams(python: Tool, capsys: pytest.CaptureFixture[str]) -> None:
    code = """
import io, os, sys
print(sys.stdout.encoding, sys.stderr.encoding, sys.stdout.errors, sys.stdout.isatty(), sys.stdout.writable())
sys.stdout.buffer.write(b"by"); sys.stdout.buffer.write(memoryview(b"tes \\xc3")); sys.stdout.buffer.write(b"\\xa9\\n")
sys.stdout.buffer.flush(); sys.stdout.flush()
sys.stderr.buffer.write(b"wrong \\xff\\n")
sys.stdout.writelines(["a\\n", "b\\n"])
sys.stdout.reconfigure(line_buffering=True)
try:
    sys.stdout.fileno()
except OSError as exc:
    print(type(exc).__name__)
try:
    sys.stdout.write(1)
except TypeError as exc:
    print(exc)
sys.stdout.buffer.write(b"cut \\xc3")
"""
    result = await run(python, code.replace("\\\\", "\\") + "None")
    assert result.text == (
        "utf-8 utf-8 replace False True\nbytes é\nwrong \ufffd\na\nb\nUnsupportedOperation\n"
        "write() argument must be str, not int\ncut \ufffd"
    )
    assert capsys.readouterr() == ("", "")


async def test_other_threads_have_their_own_streams_attributes(python: Tool, namespace: dict[str, Any]) -> None:
    real = sys.stdout
    seen: list[Any] = []

    def look() -> None:
        thread = threading.Thread(
            target=lambda: seen.extend([sys.stdout.encoding, sys.stdout.buffer, sys.stdout.closed])
        )
        thread.start()
        thread.join()

    namespace["look"] = look
    assert (await run(python, "look()")).status == "ok"
    assert seen == [real.encoding, real.buffer, False]
    assert (await run(python, "import io, sys; isinstance(sys.stdout, io.TextIOBase)")).text == "True"


@pytest.mark.parametrize("how", ["sys.stdout.buffer", "sys.stdout.detach()"])
async def test_a_wrapper_around_the_captured_stream_ends_with_the_call(python: Tool, how: str) -> None:
    before = sys.stdout
    result = await run(
        python, f"import io, sys\nsys.stdout = io.TextIOWrapper({how}, encoding='utf-8')\nprint('wrapped')"
    )
    assert result.text == "wrapped\n"
    assert sys.stdout is before
    closed = await run(
        python, f"import io, sys\nsys.stdout = io.TextIOWrapper({how})\nprint('wrapped')\nsys.stdout.close()"
    )
    assert closed.text == "wrapped\n"
    assert sys.stdout is before
    assert (await run(python, "print('still')")).text == "still\n"


async def test_code_that_deletes_its_stream_loses_no_output(python: Tool) -> None:
    before = sys.stdout
    assert (await run(python, "import sys\nprint('kept')\ndel sys.stdout")).text == "kept\n"
    assert sys.stdout is before


async def test_without_a_stream_output_is_captured_all_the_same(
    python: Tool, namespace: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    failed: list[BaseException] = []

    def elsewhere() -> None:
        try:
            print("nowhere")
        except Exception as exc:
            failed.append(exc)

    namespace["thread"] = threading.Thread(target=elsewhere)
    result = await run(python, "print('kept')\nthread.start()\nthread.join()")
    assert (result.text, failed, sys.stdout) == ("kept\n", [], None)


async def test_what_keeps_a_captured_stream_is_captured_in_later_calls(
    python: Tool, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        await run(python, "import logging, sys\nhandler = logging.StreamHandler()\nkept = sys.stdout")
    ).status == "ok"
    again = await run(python, "handler.emit(logging.makeLogRecord({'msg': 'logged'}))\nprint('kept', file=kept)")
    assert again.text == "logged\nkept\n"
    assert capsys.readouterr() == ("", "")


async def test_half_a_character_in_code_is_refused_in_words(python: Tool) -> None:
    refused = await run(python, "x = '\ud800'")
    assert refused.is_error
    assert (
        refused.text
        == "ValueError: code has half of a character, the unpaired surrogate U+D800, at position 5; send the whole character, or none\n"
    )


async def in_time(work: asyncio.Future[ToolResult], seconds: float) -> ToolResult:
    return await asyncio.wait_for(work, seconds)


async def test_a_stopped_loop_gives_back_what_it_printed(python: Tool) -> None:
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.3, token.cancel, "stop button")
    result = await in_time(asyncio.ensure_future(run(python, "print('begun')\nwhile True:\n    pass", token)), 5)
    assert result.status == "interrupted"
    assert result.text == "begun\n[stopped while it was running; what it did before stays done]"
    assert (await run(python, "print('still works')")).text == "still works\n"


async def test_a_stopped_await_ends_at_once(python: Tool) -> None:
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.2, token.cancel)
    started = time.monotonic()
    result = await in_time(
        asyncio.ensure_future(run(python, "import asyncio\nprint('waits')\nawait asyncio.sleep(60)", token)), 5
    )
    assert time.monotonic() - started < 3
    assert result.status == "interrupted"
    assert result.text.startswith("waits\n")


async def test_a_timeout_gives_back_what_it_printed() -> None:
    tool = toolset(include=("python",), approve=False, namespace={}, timeout_s=0.3)["python"]
    result = await in_time(asyncio.ensure_future(run(tool, "print('begun')\nwhile True: pass")), 5)
    assert result.status == "timed_out"
    assert "begun" in result.text


async def test_code_that_swallows_the_interrupt_is_left_behind_after_a_moment(python: Tool) -> None:
    token = CancellationToken()
    asyncio.get_running_loop().call_later(0.2, token.cancel)
    code = "import time\nend = time.monotonic() + 1.5\nwhile time.monotonic() < end:\n    try:\n        time.sleep(0.01)\n    except BaseException:\n        pass"
    result = await in_time(asyncio.ensure_future(run(python, code, token)), 5)
    assert result.status == "interrupted"
    await asyncio.sleep(1.5)
    assert sys.stdout.__class__.__name__ != "_Router"


# -- IPython ---------------------------------------------------------------------------------------


class FakePublisher:
    """An IPython kernel's publisher: hooks by thread; what no hook keeps is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self._local = threading.local()

    @property
    def hooks(self) -> list[Callable[[Any], Any]]:
        if not hasattr(self._local, "hooks"):
            self._local.hooks = []
        found: list[Callable[[Any], Any]] = self._local.hooks
        return found

    def register_hook(self, hook: Callable[[Any], Any]) -> None:
        self.hooks.append(hook)

    def unregister_hook(self, hook: Callable[[Any], Any]) -> None:
        self.hooks.remove(hook)

    def publish(self, data: dict[str, Any]) -> None:
        message: Any = {"content": {"data": data}}
        for hook in self.hooks:
            message = hook(message)
            if message is None:
                return
        self.sent.append(message)


@pytest.fixture
def shell() -> Iterator[Any]:
    from IPython.core.interactiveshell import InteractiveShell

    made = InteractiveShell.instance()
    publisher = made.display_pub
    made.display_pub = FakePublisher()
    yield made
    made.display_pub = publisher
    InteractiveShell.clear_instance()


async def test_in_ipython_the_users_own_variables_are_used(shell: Any) -> None:
    tool = toolset(include=("python",), approve=False)["python"]
    shell.user_ns["mine"] = 5
    assert (await run(tool, "mine = mine * 2\nmine")).text == "10"
    assert shell.user_ns["mine"] == 10
    assert (await run(tool, "%who_ls int")).text == "['mine']"


async def test_in_ipython_what_is_displayed_is_captured(shell: Any) -> None:
    import base64

    tool = toolset(include=("python",), approve=False)["python"]
    shell.user_ns["publish"] = shell.display_pub.publish
    shell.user_ns["png"] = base64.b64encode(PNG).decode()
    result = await run(tool, "publish({'text/plain': 'shown'})\npublish({'image/png': png, 'text/plain': '<Figure>'})")
    assert result.text == "shown\n"
    assert [part.data for part in result.content if isinstance(part, MediaPart)] == [PNG]
    assert shell.display_pub.sent == []
    assert shell.display_pub.hooks == []
