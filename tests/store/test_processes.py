"""Several processes on one store, and processes that are killed while they write.

``REIN_NB_KILLS`` sets how many random moments are tried (20 by default).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from rein_nb.agent.healing import heal
from rein_nb.store import Store
from tests.support import REPO

KILLS = int(os.environ.get("REIN_NB_KILLS", "20"))

ENV = os.environ | {"PYTHONPATH": str(REPO)}


def start(script: str, *arguments: object, stdin: int | None = None) -> subprocess.Popen[str]:
    """A child process that runs `script`."""
    command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
    return subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True, env=ENV)


WRITER = """
    import os
    import sys
    from rein_nb.agent.events import AgentStart, MessageEnd, ToolExecutionEnd, ToolExecutionStart, TurnEnd
    from rein_nb.ir import Completion, Message, ToolCall, ToolResult
    from rein_nb.store import Store

    def say(*words):
        os.write(1, (" ".join(map(str, words)) + "\\n").encode())

    def write(path, id, name):
        session = Store(path).open(id)
        listener = session.listener()
        round = 0
        while True:
            round += 1
            run = f"{name}-{round}"
            calls = [ToolCall(id=f"{run}-{n}", name="work", arguments={"pad": "x" * 2000}) for n in range(3)]
            answer = Message(role="assistant", tool_calls=calls)
            listener(AgentStart(run_id=run, time=1.0, messages=[Message(role="user", content=run)]))
            say("prompt", run)
            listener(MessageEnd(run_id=run, turn=1, time=1.0, message=answer))
            say("answer", run)
            for call in calls:
                listener(ToolExecutionStart(run_id=run, turn=1, time=1.0, call=call))
                result = ToolResult(tool_call_id=call.id, name="work", content="y" * 2000)
                listener(ToolExecutionEnd(run_id=run, turn=1, time=1.0, call=call, result=result, duration_s=0.0))
                say("result", call.id)
            for call in calls:
                listener(MessageEnd(run_id=run, turn=1, time=1.0, message=Message(role="tool", tool_call_id=call.id, content="y" * 2000)))
            listener(TurnEnd(run_id=run, turn=1, time=2.0, completion=Completion(message=answer)))

    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            write(*line.split())
        say("child", child)
        os.waitpid(child, 0)
        say("dead")
"""
"""Forks a writer for each line it reads, so that only the first has to import anything."""


def test_kill_at_any_moment_loses_nothing_that_was_acknowledged_and_every_call_has_a_result(tmp_path: Path) -> None:
    rng = random.Random(int(os.environ.get("REIN_NB_SEED", "7")))
    store = Store(tmp_path / "k.sqlite3")
    session = store.create("killed")
    acknowledged: list[list[str]] = []
    nursery = start(WRITER, stdin=subprocess.PIPE)
    assert nursery.stdout is not None
    assert nursery.stdin is not None
    for kill in range(KILLS):
        nursery.stdin.write(f"{store.path} {session.id} k{kill}\n")
        nursery.stdin.flush()
        said = [nursery.stdout.readline().split()]
        while said[-1][0] != "child":
            said.append(nursery.stdout.readline().split())
        pid = int(said[-1][1])
        if kill % 2:
            said.append(
                nursery.stdout.readline().split()
            )  # every other one is killed in the midst of writing for certain
        time.sleep(rng.random() * 0.1)
        os.kill(pid, signal.SIGKILL)
        while said[-1] != ["dead"]:
            said.append(nursery.stdout.readline().split())
        acknowledged += [fact for fact in said if fact[0] not in ("child", "dead")]
        fresh = Store(store.path)
        opened = fresh.open(session.id)
        assert fresh.database.read("PRAGMA integrity_check") == [("ok",)]
        messages = opened.messages
        assert heal(messages).repaired == []
        assert [c.id for m in messages for c in m.tool_calls] == [
            r.tool_call_id for m in messages for r in m.tool_results
        ]
        fresh.close()
    nursery.communicate(timeout=30)
    final = Store(store.path).open(session.id)
    entries = final.entries(None)
    prompts = {
        e.data["message"]["parts"][0]["text"]
        for e in entries
        if e.kind == "message" and e.data["message"]["role"] == "user"
    }
    answers = {e.data["run_id"] for e in entries if e.kind == "message" and e.data["message"]["role"] == "assistant"}
    results = {e.data["call"]["id"] for e in entries if e.kind == "tool_result"}
    have = {"prompt": prompts, "answer": answers, "result": results}
    assert [fact for fact in acknowledged if fact[1] not in have[fact[0]]] == []
    assert len(acknowledged) >= KILLS // 2


APPENDER = """
    import sys, warnings
    from rein_nb.store import Store
    warnings.simplefilter("ignore")
    session = Store(sys.argv[1]).last()
    print("open", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[3])):
        session.append(f"{sys.argv[2]} {n} " + "z" * 10_000)
        print(n, flush=True)
"""


def test_C103_two_processes_that_continue_one_session_keep_every_record_on_branches_of_their_own(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "s.sqlite3")
    session = store.create()
    session.append("root")
    a, b = (start(APPENDER, store.path, name, 100, stdin=subprocess.PIPE) for name in ("A", "B"))
    for child in (a, b):
        assert child.stdout is not None
        assert child.stdin is not None
        assert child.stdout.readline() == "open\n"
    for child in (a, b):
        child.stdin.write("go\n")
        child.stdin.flush()
    acknowledged_a: list[str] = []
    reader = Store(store.path)
    while len(acknowledged_a) < 50:
        acknowledged_a.append(a.stdout.readline())
        seen = reader.open(session.id)
        path = [m.text.split()[0] for m in seen.messages]
        assert path[0] == "root"
        assert len(set(path[1:])) <= 1
    os.kill(a.pid, signal.SIGKILL)
    acknowledged_a += a.stdout.readlines()
    said_b, _ = b.communicate(timeout=60)
    a.communicate(timeout=30)
    third = Store(store.path).open(session.id)
    stored = [
        e.message.text.split()[:2]
        for e in third.entries(None, kind="message")
        if e.message and e.message.text != "root"
    ]
    for name, said in (("A", [line for line in acknowledged_a if line.endswith("\n")]), ("B", said_b.splitlines())):
        numbers = [int(n) for who, n in stored if who == name]
        assert set(range(len(said))) <= set(numbers)
        assert sorted(numbers, reverse=True) == numbers
    assert len(third.leaves()) == 2
    for leaf in third.leaves():
        branch = [m.text.split()[0] for m in third.rewind(leaf).messages]
        assert len(set(branch[1:])) == 1


CREATOR = """
    import sys
    from rein_nb.store import Store
    store = Store(sys.argv[1])
    for n in range(60):
        store.create(f"{sys.argv[2]}{n}").append("x")
"""


def test_C108_processes_that_create_the_file_and_sessions_at_once_lose_none(tmp_path: Path) -> None:
    path = tmp_path / "new" / "s.sqlite3"
    children = [start(CREATOR, path, name) for name in "ab"]
    while any(child.poll() is None for child in children):
        if path.exists():
            listed = Store(path).sessions(limit=None)
            assert all(info.title[0] in "ab" for info in listed)
        time.sleep(0.05)
    assert [child.returncode for child in children] == [0, 0]
    for child in children:
        assert child.stdout is not None
        child.stdout.close()
    titles = {info.title for info in Store(path).sessions(limit=None)}
    assert titles == {f"{name}{n}" for name in "ab" for n in range(60)}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_writes_through_a_connection_of_its_own(tmp_path: Path) -> None:
    session = Store(tmp_path / "s.sqlite3").create()
    session.append("parent")
    script = """
        import os, sys
        from rein_nb.store import Store
        session = Store(sys.argv[1]).last()
        child = os.fork()
        if child == 0:
            session.append("child")
            os._exit(0)
        os.waitpid(child, 0)
        import warnings
        warnings.simplefilter("ignore")
        session.append("parent again")
    """
    done = start(script, session.store.path)
    done.communicate(timeout=30)
    assert done.returncode == 0
    texts = {e.message.text for e in session.entries(None, kind="message") if e.message}
    assert texts == {"parent", "child", "parent again"}
    assert session.store.database.read("PRAGMA integrity_check") == [("ok",)]
