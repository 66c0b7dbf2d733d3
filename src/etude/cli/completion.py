"""`etude completion bash|zsh|fish`."""

from __future__ import annotations

import argparse
import sys

EXAMPLES = (
    'eval "$(etude completion bash)"   # in ~/.bashrc',
    'eval "$(etude completion zsh)"    # in ~/.zshrc, after compinit',
    "etude completion fish > ~/.config/fish/completions/etude.fish",
)
FILES = ("source", "file", "output", "folder", "db_conn")
"""Arguments that are completed with names of files."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    import shtab

    from etude.cli.main import COMMANDS, add_main_command

    root = argparse.ArgumentParser(prog="etude")
    commands = root.add_subparsers()
    for name, text in COMMANDS.items():
        add_main_command(commands.add_parser(name, help=text), name)
    _complete_files(root)
    script = shtab.complete(root, options.shell)
    # Evaluated, a script for zsh must register itself; as a file in `fpath`, its first line does that.
    register = (
        "\ncompdef _shtab_etude etude\n" if options.shell == "zsh" and "compdef _shtab_etude" not in script else ""
    )
    sys.stdout.write(f"{script.rstrip()}\n{register}")


def _complete_files(parser: argparse.ArgumentParser) -> None:
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                _complete_files(each)
        elif action.dest in FILES:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
