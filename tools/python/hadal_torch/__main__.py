"""The command line behind `hadal checkpoint export --format` and `hadal checkpoint import`.

    python3 -m hadal_torch export MODEL.safetensors --format huggingface --out FOLDER
    python3 -m hadal_torch import FOLDER|checkpoint.pt --out MODEL.safetensors [--dictionary dict.txt]…

Exit status: 0 done, 1 error, 2 what the user named is missing or cannot be converted.
"""

import argparse
import importlib
import os
import sys
import tempfile

import pyhadal.refusal
from hadal_torch.refusal import Refusal
from pyhadal.files import check_outputs, check_place

FORMATS = ["huggingface", "ctranslate2", "fairseq"]


def _load(module: str, function: str):
    try:
        return getattr(importlib.import_module(f"hadal_torch.{module}"), function)
    except ImportError as error:
        raise Refusal(f"the Python package {error.name} is missing for {sys.executable}; install it ({sys.executable} -m pip "
                      f"install {error.name}), or name another Python in HADAL_PYTHON") from None


def export(arguments) -> None:
    write, read_plain = _load(arguments.format, f"write_{arguments.format}"), _load("plain", "read_plain")
    if arguments.quantization and arguments.format != "ctranslate2":
        raise Refusal(f"{arguments.format} stores float32 only; --quantization is for --format ctranslate2")
    check_place(arguments.out)
    if os.path.lexists(arguments.out):
        raise Refusal(f"{arguments.out} already exists; remove it, or choose another --out")
    parent = os.path.dirname(os.path.abspath(arguments.out))
    os.makedirs(parent, exist_ok=True)
    # The folder appears whole or not at all.
    with tempfile.TemporaryDirectory(prefix=os.path.basename(arguments.out) + ".tmp.", dir=parent) as temporary:
        folder = os.path.join(temporary, "folder")
        os.mkdir(folder)
        options = {"quantization": arguments.quantization} if arguments.quantization else {}
        note = write(read_plain(arguments.model), folder, **options)
        os.rename(folder, arguments.out)
    print(f"wrote {arguments.out}: {note}")


def convert_import(arguments) -> None:
    write_plain = _load("plain", "write_plain")
    if os.path.isdir(arguments.source):
        if arguments.dictionary:
            raise Refusal("--dictionary is for fairseq's checkpoint.pt; a folder of transformers has its vocabulary")
        plain = _load("huggingface", "read_huggingface")(arguments.source)
    else:
        if len(arguments.dictionary) not in (1, 2):
            raise Refusal(f"{arguments.source} needs its dict.txt: --dictionary once for both languages, or for the source and "
                          "then for the target")
        plain = _load("fairseq", "read_fairseq")(arguments.source, arguments.dictionary)
    check_outputs([arguments.out, arguments.out.removesuffix(".safetensors") + ".json"])
    write_plain(arguments.out, plain)


def main() -> int:
    parser = argparse.ArgumentParser(prog="hadal_torch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    exporting = commands.add_parser("export", help="convert what `hadal checkpoint export` wrote")
    exporting.add_argument("model", metavar="MODEL.safetensors")
    exporting.add_argument("--format", choices=FORMATS, required=True)
    exporting.add_argument("--quantization", help="of ctranslate2's weights: int8, …")
    exporting.add_argument("--out", required=True, metavar="FOLDER")
    exporting.set_defaults(run=export)
    importing = commands.add_parser("import", help="write what `hadal checkpoint import` reads")
    importing.add_argument("source", metavar="SOURCE", help="a folder of transformers, or fairseq's checkpoint.pt")
    importing.add_argument("--dictionary", action="append", default=[], metavar="dict.txt")
    importing.add_argument("--out", required=True, metavar="MODEL.safetensors")
    importing.set_defaults(run=convert_import)
    arguments = parser.parse_args()
    try:
        arguments.run(arguments)
    except (Refusal, pyhadal.refusal.Refusal, OSError, ValueError) as error:
        print(f"hadal_torch: {error}", file=sys.stderr)
        return 2
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:  # files of another content than their readers expect
        print(f"hadal_torch: {getattr(arguments, 'source', None) or arguments.model} is not what it should be: "
              f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
