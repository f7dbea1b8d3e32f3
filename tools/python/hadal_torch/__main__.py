"""The command line behind `hadal checkpoint export --format` and `hadal checkpoint import`.

    python3 -m hadal_torch export MODEL.safetensors --format huggingface --out FOLDER
    python3 -m hadal_torch import FOLDER|checkpoint.pt --out MODEL.safetensors [--dictionary dict.txt]…

    python3 -m hadal_torch tokenize             encodes and decodes text for hadal
    python3 -m hadal_torch packages FORMAT      whether this Python has what an export needs

Exit status: 0 done, 1 error, 2 what the user named is missing, there already, or cannot be converted, 3 damaged.
"""

from __future__ import annotations

import argparse
import importlib
import os
import resource
import sys
import tempfile

from pyhadal.command import run as run_command
from pyhadal.files import check_outputs, check_place
from pyhadal.packages import require

from hadal_torch.refusal import Refusal, damaged

PACKAGES = {"huggingface": ("numpy",), "ctranslate2": ("numpy", "ctranslate2"), "fairseq": ("numpy", "torch")}  # of exports
_READ = (".safetensors", ".json", ".model", ".txt")  # endings of the files of a folder


def packages(arguments: argparse.Namespace) -> None:
    require(*PACKAGES[arguments.format])


def export(arguments: argparse.Namespace) -> None:
    packages(arguments)
    from hadal_torch.inputs import limit_memory
    from hadal_torch.plain import read_plain, require_finite

    write = getattr(importlib.import_module(f"hadal_torch.{arguments.format}"), f"write_{arguments.format}")
    if arguments.quantization and arguments.format != "ctranslate2":
        raise Refusal(f"{arguments.format} stores float32 only; --quantization is for --format ctranslate2")
    check_place(arguments.out)
    occupied = Refusal(f"{arguments.out} already exists; remove it or choose another --out")
    if os.path.lexists(arguments.out):
        raise occupied
    parent = os.path.dirname(os.path.abspath(arguments.out))
    os.makedirs(parent, exist_ok=True)
    limit_memory([arguments.model])
    plain = read_plain(arguments.model)
    if not arguments.allow_nonfinite:
        require_finite(arguments.model, plain.weights)
    # The folder appears whole or not at all.
    with tempfile.TemporaryDirectory(prefix=os.path.basename(arguments.out) + ".tmp.", dir=parent) as temporary:
        folder = os.path.join(temporary, "folder")
        os.mkdir(folder)
        options = {"quantization": arguments.quantization} if arguments.quantization else {}
        note = write(plain, folder, **options)
        try:
            os.rename(folder, arguments.out)
        except OSError as error:
            raise (occupied if os.path.lexists(arguments.out) else error) from None
    print(f"wrote {arguments.out}: {note}")


def convert_import(arguments: argparse.Namespace) -> None:
    require("numpy")
    from hadal_torch.fairseq import read_fairseq
    from hadal_torch.huggingface import read_huggingface
    from hadal_torch.inputs import limit_memory
    from hadal_torch.plain import require_finite, write_plain

    source = arguments.source
    if os.path.isdir(source):
        if arguments.dictionary:
            raise Refusal("--dictionary is for fairseq's checkpoint.pt; a folder of transformers has its vocabulary")
        files = [os.path.join(source, name) for name in os.listdir(source) if name.endswith(_READ)]
        limit_memory([path for path in files if os.path.isfile(path)])
        plain = read_huggingface(source)
    else:
        if len(arguments.dictionary) not in (1, 2):
            raise Refusal(f"{source} needs its dict.txt: --dictionary once for both languages, or for the source and then for the target")
        limit_memory([source, *arguments.dictionary])
        plain = read_fairseq(source, arguments.dictionary)
    check_outputs([arguments.out, arguments.out.removesuffix(".safetensors") + ".json"])
    if not arguments.allow_nonfinite:
        require_finite(source, plain.weights)
    write_plain(arguments.out, plain)


def convert(arguments: argparse.Namespace) -> None:
    """Runs the command; what is in a file of another kind than its reader expects is an error of the file."""
    source = getattr(arguments, "source", None) or getattr(arguments, "model", None)
    try:
        arguments.run(arguments)
    except MemoryError:
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        raise MemoryError(f"{source} needs more than the {limit:,} bytes of address space that a conversion of its size has; it may be "
                          "made to fill the memory") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, ArithmeticError, RecursionError) as error:
        raise damaged(f"{source} is not what it should be: {type(error).__name__}: {error}") from None


def main() -> int:
    parser = argparse.ArgumentParser(prog="hadal_torch", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    exporting = commands.add_parser("export", help="convert what `hadal checkpoint export` wrote")
    exporting.add_argument("model", metavar="MODEL.safetensors")
    exporting.add_argument("--format", choices=PACKAGES, required=True)
    exporting.add_argument("--quantization", help="of ctranslate2's weights: int8, …")
    exporting.add_argument("--out", required=True, metavar="FOLDER")
    exporting.set_defaults(run=export)
    importing = commands.add_parser("import", help="write what `hadal checkpoint import` reads")
    importing.add_argument("source", metavar="SOURCE", help="a folder of transformers, or fairseq's checkpoint.pt")
    importing.add_argument("--dictionary", action="append", default=[], metavar="dict.txt")
    importing.add_argument("--out", required=True, metavar="MODEL.safetensors")
    importing.set_defaults(run=convert_import)
    for command in (exporting, importing):
        command.add_argument("--allow-nonfinite", action="store_true", help="also weights that are NaN or infinite")
    checking = commands.add_parser("packages", help="whether the packages for a format are installed")
    checking.add_argument("format", choices=PACKAGES)
    checking.set_defaults(run=packages)
    commands.add_parser("tokenize", help="encode and decode text for hadal (codec.py)")
    arguments = parser.parse_args()
    if arguments.command == "tokenize":
        from hadal_torch.codec import serve

        return run_command("tokenizer", serve)
    name = "import" if arguments.command == "import" else "export"
    return run_command(f"checkpoint {name}", lambda: convert(arguments))


if __name__ == "__main__":
    sys.exit(main())
