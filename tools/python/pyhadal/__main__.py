"""The command line behind `hadal report`, `hadal curve --svg` and others; they start it with a Python of the user's.

    python3 -m pyhadal report RUN…
    python3 -m pyhadal curve RUN… --svg FILE
    python3 -m pyhadal compare DIR
    python3 -m pyhadal evaluate DIR

Exit status: 0 done, 1 error, 2 bad usage or what the user named is missing, 3 damaged.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from typing import Sequence

from pyhadal.packages import require
from pyhadal.refusal import Refusal

# command → the packages that it needs. Its module (similarity.py of "inspect similarity", make_corpus.py of make-corpus) has
# add_arguments(parser) and run(arguments).
COMMANDS = {
    "make-corpus": (),
    "report": ("pandas", "matplotlib", "jinja2"),
    "curve": ("pandas", "matplotlib"),
    "compare": ("pandas", "matplotlib", "jinja2", "sacrebleu"),
    "evaluate": ("matplotlib", "jinja2", "sacrebleu"),
    "simulate": ("pandas", "matplotlib", "jinja2"),
    "config from-fairseq": (),
    "inspect similarity": ("matplotlib", "jinja2"),
}


def main(words: Sequence[str]) -> int:
    if not words or words[0] not in COMMANDS:
        print(f"{__doc__}\nCommands: {', '.join(COMMANDS)}.", file=sys.stdout if words[:1] in (["-h"], ["--help"]) else sys.stderr)
        return 0 if words[:1] in (["-h"], ["--help"]) else 2
    command = words[0]
    try:
        require(*COMMANDS[command])
        module = importlib.import_module(f"pyhadal.{command.split()[-1].replace('-', '_')}")
        parser = argparse.ArgumentParser(prog=f"hadal {command}", description=module.__doc__,
                                         formatter_class=argparse.RawDescriptionHelpFormatter)
        module.add_arguments(parser)
        module.run(parser.parse_args(words[1:]))
    except Refusal as refusal:
        return _end(command, str(refusal), refusal.exit_code)
    except BrokenPipeError:
        return 1
    except KeyboardInterrupt:
        return 130
    except (OSError, MemoryError) as error:
        where = f"{error.filename}: " if getattr(error, "filename", None) else ""
        return _end(command, f"{where}{getattr(error, 'strerror', None) or error or 'out of memory'}", 1)
    return 0


def _end(command: str, message: str, code: int) -> int:
    print(f"hadal {command}: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
