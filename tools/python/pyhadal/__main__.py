"""The command line behind `hadal report`, `hadal curve` and others; they start it with a Python of the user's.

    python3 -m pyhadal report RUN…
    python3 -m pyhadal curve RUN… [--svg FILE]
    python3 -m pyhadal compare GRID [--out DIR]
    python3 -m pyhadal sweep LAYOUTS CONFIG… [--out DIR]
    python3 -m pyhadal evaluate DIR
    python3 -m pyhadal follow RUN --to mlflow|wandb
    python3 -m pyhadal packages COMMAND    whether this Python has what a command needs

Exit status: 0 done, 1 error, 2 bad usage or what the user named is missing, 3 damaged.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import re
import sys
from typing import NoReturn, Optional, Sequence

from pyhadal.command import run as run_command
from pyhadal.packages import require

# command → the packages that it needs. Its module (similarity.py of "inspect similarity", make_corpus.py of make-corpus, compare_grid.py of
# compare) has add_arguments(parser) and run(arguments).
COMMANDS = {
    "make-corpus": (),
    "report": ("pandas", "matplotlib", "jinja2"),
    "curve": (),
    "compare": (),  # for its page more
    "sweep": (),
    "evaluate": ("matplotlib", "jinja2", "sacrebleu"),
    "simulate": ("pandas", "matplotlib", "jinja2"),
    "config from-fairseq": (),
    "inspect similarity": ("matplotlib", "jinja2"),
    "follow": (),
}


def main(words: Sequence[str]) -> int:
    named = words[1:2] if words[:1] == ["packages"] else words[:1]
    if not named or named[0] not in COMMANDS:
        print(f"{__doc__}\nCommands: {', '.join(COMMANDS)}.", file=sys.stdout if words[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    if words[0] == "packages":
        return run_command(words[1], lambda: require(*COMMANDS[words[1]]))
    return run_command(words[0], lambda: _work(words[0], words[1:]))


class _Help(argparse.RawDescriptionHelpFormatter):
    """Help in the columns of the program's own commands."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=30, width=1000)  # unwrapped, as the program's
        self._action_max_length = 30

    def start_section(self, heading: Optional[str]) -> None:
        super().start_section({"positional arguments": "Positionals"}.get(heading or "", (heading or "").capitalize()))


class _Parser(argparse.ArgumentParser):
    """Help and refusals in the form of the program's own commands. The first line of the description is the first line of the help."""

    def __init__(self, prog: str, description: str) -> None:
        self.title, _, rest = description.partition("\n")
        super().__init__(prog=prog, description=rest.strip("\n"), formatter_class=_Help, add_help=False, allow_abbrev=False)
        self.add_argument("-h", "--help", action="help", help="Print this help message and exit")

    def format_help(self) -> str:
        return f"{self.title.rstrip('.')}\n{super().format_help().replace('usage:', 'Usage:', 1)}"

    def error(self, message: str) -> NoReturn:
        unknown = re.search(r"unrecognized arguments: (--[\w-]+)", message)
        nearest = difflib.get_close_matches(unknown[1], self._option_string_actions, 1) if unknown else []
        print(f"{self.prog}: {message}{''.join(f'; did you mean {name}?' for name in nearest)}\n`{self.prog} --help` lists what it accepts.",
              file=sys.stderr)
        raise SystemExit(2)


def _work(command: str, words: Sequence[str]) -> None:
    require(*COMMANDS[command])
    name = "compare_grid" if command == "compare" else command.split()[-1].replace("-", "_")
    module = importlib.import_module(f"pyhadal.{name}")
    parser = _Parser(f"hadal {command}", module.__doc__ or "")
    module.add_arguments(parser)
    module.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
