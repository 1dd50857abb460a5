"""The pytest plugin, in pytest runs of its own."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest

from rein_nb.testing.server import serve_recording
from tests.store.test_recording import chat

pytest_plugins = ["pytester"]

MODULE = """
    import pytest
    from rein_nb.llm import LLM

    URL = {url!r}

    def ask():
        llm = LLM.named("openai-compatible/m", base_url=URL, api_key="k", max_retries=0)
        return "".join(chunk.text for chunk in llm.stream("hi"))

    @pytest.mark.rein_nb_recording
    @pytest.mark.parametrize("n", ["a/b"])
    def test_default(n):
        assert ask() == "recorded"

    @pytest.mark.rein_nb_recording("own/named.jsonl")
    def test_named(rein_nb_recording):
        assert ask() == "recorded"
        assert len(rein_nb_recording.exchanges) == 1

    def test_unmarked(rein_nb_recording):
        assert rein_nb_recording is None
"""

FILES = ("recordings/test_it/test_default_a_b-fa981925.jsonl", "own/named.jsonl")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    # Where the package is installed, pytest loads its plugins by itself.
    installed = any(point.name == "rein_nb" for point in entry_points(group="pytest11"))
    return pytester.runpytest_inprocess(
        *(() if installed else ("-p", "rein_nb.pytest_plugin")),
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        *arguments,
    )


def test_marked_tests_are_recorded_once_and_then_played_back_without_a_server(pytester: pytest.Pytester) -> None:
    with serve_recording([chat("recorded")], repeat=True) as server:
        path = pytester.makepyfile(test_it=MODULE.format(url=server.base_url + "/v1"))
        run(pytester, "--rein-nb=record").assert_outcomes(passed=3)
        assert len(server.requests) == 2
        run(pytester, "--rein-nb=auto").assert_outcomes(passed=3)
        assert len(server.requests) == 2
    for name in FILES:
        assert (path.parent / name).is_file()
    run(pytester).assert_outcomes(passed=3)


def test_recording_anew_replaces_the_file(pytester: pytest.Pytester) -> None:
    with serve_recording([chat("recorded")], repeat=True) as server:
        path = pytester.makepyfile(test_it=MODULE.format(url=server.base_url + "/v1"))
        for _ in range(2):
            run(pytester, "--rein-nb=record").assert_outcomes(passed=3)
        assert len((path.parent / FILES[0]).read_text().splitlines()) == 2


def test_a_missing_recording_says_how_to_make_it(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_it=MODULE.format(url="http://127.0.0.1:9/v1"))
    result = run(pytester)
    result.assert_outcomes(errors=2, passed=1)
    result.stdout.fnmatch_lines(["*FileNotFoundError: there is no recording *test_default_a_b-*.jsonl*"])
    assert not list(Path(pytester.path).rglob("*.jsonl"))


def test_a_wrong_mode_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("import pytest\n@pytest.mark.rein_nb_recording(mode='rewind')\ndef test_x(): ...")
    run(pytester).stdout.fnmatch_lines(["*takes mode= replay, record, auto, not 'rewind'*"])


ALIKE = """
    import pytest
    from rein_nb.testing import ScriptedProvider

    pytestmark = pytest.mark.rein_nb_recording

    def ask(text):
        assert ScriptedProvider.llm(text).chat(text).text == text

    class TestA:
        def test_x(self):
            ask("in A")

    class TestB:
        def test_x(self):
            ask("in B")

    def test_x():
        ask("outside")

    @pytest.mark.parametrize("q", ["a/b", "a_b", "a b"])
    def test_par(q):
        ask(q)
"""


def test_tests_of_alike_names_have_recordings_of_their_own(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_it=ALIKE)
    run(pytester, "--rein-nb=record").assert_outcomes(passed=6)
    run(pytester).assert_outcomes(passed=6)
    names = sorted(file.name for file in (path.parent / "recordings/test_it").iterdir())
    assert len(names) == 6
    assert "test_x.jsonl" in names, "a plain name is kept"


def test_a_test_that_fails_before_it_asks_keeps_the_recording_it_had(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_it=ALIKE)
    run(pytester, "--rein-nb=record").assert_outcomes(passed=6)
    path.write_text(path.read_text().replace('ask("outside")', "raise OSError"))
    run(pytester, "--rein-nb=record").assert_outcomes(passed=5, failed=1)
    path.write_text(path.read_text().replace("raise OSError", 'ask("outside")'))
    run(pytester).assert_outcomes(passed=6)
    assert not list(path.parent.rglob("*.before"))
