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
from typing import NoReturn, Sequence

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


class _Parser(argparse.ArgumentParser):
    """Refuses bad usage in the form of the program's own commands."""

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
    parser = _Parser(prog=f"hadal {command}", description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False)
    module.add_arguments(parser)
    module.run(parser.parse_args(words))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
