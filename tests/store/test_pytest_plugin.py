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


# Where the package is installed, pytest loads its plugins by itself.
_INSTALLED = any(point.name == "rein_nb" for point in entry_points(group="pytest11"))
PLUGIN = () if _INSTALLED else ("-p", "rein_nb.pytest_plugin")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess(
        *PLUGIN,
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


SHARED = """
    import pytest
    from rein_nb.testing import ScriptedProvider

    pytestmark = pytest.mark.rein_nb_recording("shared.jsonl")

    def ask(question, *answers):
        llm = ScriptedProvider.llm(*answers)
        assert [llm.chat(question).text for _ in answers] == list(answers)

    def test_a():
        ask("first", "one")

    def test_b():
        ask("second", "two", "three")

    def test_c():
        ask("first", "one")
"""


def test_tests_that_share_a_file_keep_each_others_answers(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_it=SHARED)
    run(pytester, "--rein-nb=record").assert_outcomes(passed=3)
    run(pytester).assert_outcomes(passed=3)
    path.write_text(path.read_text().replace("two", "2"))
    run(pytester, "--rein-nb=record", "-k", "test_b").assert_outcomes(passed=1, deselected=2)
    run(pytester).assert_outcomes(passed=3)
    assert len((path.parent / "shared.jsonl").read_text().splitlines()) == 4
    assert sorted(p.name for p in path.parent.glob("*.*") if p.suffix != ".py") == ["shared.jsonl"]


def test_what_several_processes_record_into_one_file_is_all_there(pytester: pytest.Pytester) -> None:
    pytest.importorskip("xdist")
    tests = "".join(f"\n    def test_{n}():\n        ask('question {n}', 'answer {n}')\n" for n in range(12))
    path = pytester.makepyfile(test_it=SHARED + tests)
    # A process of its own: the workers start anew.
    pytester.runpytest_subprocess(
        *PLUGIN,
        "-n2",
        "-p",
        "no:cacheprovider",
        "--rein-nb=record",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
    ).assert_outcomes(passed=15)
    run(pytester, "-p", "no:xdist").assert_outcomes(passed=15)
    assert len((path.parent / "shared.jsonl").read_text().splitlines()) == 1 + 3 + 12


OFFLINE = """
    import pytest
    from rein_nb.llm import LLM

    def ask(text):
        llm = LLM.named("openai-compatible/m", base_url={url!r}, api_key="k", max_retries=0)
        return llm.chat(text).text

    @pytest.mark.rein_nb_recording
    def test_own():
        assert ask("hi") == "recorded"

    @pytest.mark.rein_nb_recording("shared.jsonl")
    def test_shared():
        assert ask("hi") == "recorded"
"""

NOWHERE = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("fault", ["no network", "a wrong key", "another question"])
def test_an_answer_is_never_replaced_by_a_fault(pytester: pytest.Pytester, fault: str) -> None:
    refused = {"status": 401, "json": {"error": {"message": "wrong key"}}}
    with serve_recording([chat("recorded")], repeat=True) as server, serve_recording([refused], repeat=True) as other:
        path = pytester.makepyfile(test_it=OFFLINE.format(url=server.base_url + "/v1"))
        good = path.read_text()
        run(pytester, "--rein-nb=record").assert_outcomes(passed=2)
        files = [path.parent / "recordings/test_it/test_own.jsonl", path.parent / "shared.jsonl"]
        before = [file.read_bytes() for file in files]
        bad = good.replace(server.base_url, other.base_url if fault == "a wrong key" else NOWHERE[: -len("/v1")])
        path.write_text(bad)
        if fault == "another question":
            path.write_text(path.read_text().replace('ask("hi")', 'ask("hello")', 1))
        result = run(pytester, "--rein-nb=record")
        result.assert_outcomes(failed=2, warnings=2)
    said = "authentication: wrong key" if fault == "a wrong key" else "connection_failed: *"
    result.stdout.fnmatch_lines(
        [f"*test_own.jsonl stays as it was: 1 of 1 requests got no answer now ({said}); to record *"]
    )
    result.stdout.fnmatch_lines(["*shared.jsonl stays as it was: 1 of 1 requests got no answer now*"])
    assert [file.read_bytes() for file in files] == before
    assert not [*path.parent.rglob("*.part"), *path.parent.rglob("*.lock")]
    path.write_text(good)
    run(pytester).assert_outcomes(passed=2)


def test_a_fault_that_is_meant_is_recorded(pytester: pytest.Pytester) -> None:
    text = OFFLINE.format(url=NOWHERE).replace('assert ask("hi") == "recorded"', "pytest.raises(Exception, ask, 'hi')")
    path = pytester.makepyfile(test_it=text)
    for _ in range(2):
        run(pytester, "--rein-nb=record").assert_outcomes(passed=2)
    run(pytester).assert_outcomes(passed=2)
    assert len((path.parent / "shared.jsonl").read_text().splitlines()) == 2


def test_what_no_server_answered_stays_missing_in_auto(pytester: pytest.Pytester) -> None:
    with serve_recording([chat("recorded")], repeat=True) as server:
        path = pytester.makepyfile(test_it=OFFLINE.format(url=NOWHERE))
        run(pytester, "--rein-nb=auto").assert_outcomes(failed=2)
        path.write_text(path.read_text().replace(NOWHERE, server.base_url + "/v1"))
        run(pytester, "--rein-nb=auto").assert_outcomes(passed=2)


LONG = """
    import pytest
    from rein_nb.testing import ScriptedProvider

    @pytest.mark.rein_nb_recording
    @pytest.mark.parametrize("text", ["\u6f22" * 150, "\u6f22" * 151, "a" * 300, "\u00fc b" * 60])
    def test_x(text):
        assert ScriptedProvider.llm("yes").chat(text).text == "yes"

    @pytest.mark.rein_nb_recording
    def test_{name}():
        assert ScriptedProvider.llm("yes").chat("hi").text == "yes"
"""


def test_long_names_and_names_of_wide_characters_fit_a_file_system(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\ndisable_test_id_escaping_and_forfeit_all_rights_to_community_support = true")
    path = pytester.makepyfile(test_it=LONG.format(name="\u6f22" * 100))
    run(pytester, "--rein-nb=record").assert_outcomes(passed=5)
    run(pytester).assert_outcomes(passed=5)
    names = [file.name for file in (path.parent / "recordings/test_it").iterdir()]
    assert len(names) == 5
    assert max(len(name.encode()) for name in names) <= 255 - len(".broken-1")


def test_a_file_of_something_else_is_not_recorded_over(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_it=SHARED)
    other = path.parent / "shared.jsonl"
    other.write_text('{"my": "data"}\n')
    run(pytester, "--rein-nb=record").assert_outcomes(errors=3)
    assert other.read_text() == '{"my": "data"}\n'


def test_a_run_that_is_killed_leaves_the_recording_as_it_was(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_it=SHARED)
    run(pytester, "--rein-nb=record").assert_outcomes(passed=3)
    before = (path.parent / "shared.jsonl").read_bytes()
    path.write_text(path.read_text().replace('ask("first", "one")', 'ask("first", "1"); import os; os._exit(9)'))
    pytester.runpytest_subprocess(*PLUGIN, "-p", "no:cacheprovider", "--rein-nb=record", "-p", "no:xdist")
    assert (path.parent / "shared.jsonl").read_bytes() == before


@pytest.mark.parametrize("given", ["", '("shared.jsonl")'])
def test_a_test_that_fails_halfway_loses_none_of_what_it_did_not_come_to(pytester: pytest.Pytester, given: str) -> None:
    three = """
        import pytest
        import rein_nb as rn

        LLM = rn.LLM.named("openai-compatible/m", base_url="{url}/v1", api_key="k", max_retries=0)

        @pytest.mark.rein_nb_recording{given}
        def test_three():
            for n, text in enumerate(["a", "b", "c"]):
                LLM.chat(text)
                {then}
    """
    with serve_recording([chat("recorded")], repeat=True) as server:
        path = pytester.makepyfile(test_it=three.format(url=server.base_url, given=given, then="pass"))
        run(pytester, "--rein-nb=record").assert_outcomes(passed=1)
        path.write_text(path.read_text().replace("pass", "assert n", 1))
        run(pytester, "--rein-nb=record").assert_outcomes(failed=1)
    (file,) = path.parent.rglob("*.jsonl")
    assert len(file.read_text().splitlines()) == 1 + 3
