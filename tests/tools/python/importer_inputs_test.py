"""Every file that the importers and exporters read × what else may stand in its place: each is refused by name, at once, in little memory."""

import contextlib
import json
import os
import resource
import struct
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy as np
import torch

from hadal_torch import Refusal
from hadal_torch import __main__ as program
from hadal_torch.fairseq import write_fairseq
from hadal_torch.huggingface import write_huggingface
from hadal_torch.plain import write_plain
from hadal_torch.tensors import read_safetensors, write_safetensors
from hadal_torch.tokenizer import SPECIAL
from random_models import METHODS, WORDS, plain_model

HADAL = os.environ["HADAL"]
MOST_CPU_SECONDS = 20  # of a command; the slowest needs less than 2
MOST_MEMORY = 768 << 20  # bytes beyond the start's


def vocabulary_json(folder, name="vocab.json"):
    Path(folder, name).write_text(json.dumps({token: i for i, token in enumerate([*SPECIAL, *WORDS])}), "utf-8")


def huggingface(folder, method, *absent):
    write_huggingface(plain_model(**METHODS[method]), folder)
    for name in absent:
        os.remove(os.path.join(folder, name))


def sharded(folder):
    huggingface(folder, "pre_ln")
    os.rename(f"{folder}/model.safetensors", f"{folder}/a.safetensors")
    shard_of = dict.fromkeys(read_safetensors(f"{folder}/a.safetensors"), "a.safetensors")
    Path(folder, "model.safetensors.index.json").write_text(json.dumps({"weight_map": shard_of}), "utf-8")


def with_vocab_json(folder):
    huggingface(folder, "pre_ln", "vocabulary.txt", "tokenizer.json")
    vocabulary_json(folder)


def with_two_vocabularies(folder):
    huggingface(folder, "post_ln", "vocabulary.txt", "tokenizer.json")
    vocabulary_json(folder, "vocab-src.json")
    vocabulary_json(folder, "vocab-tgt.json")


def fairseq(folder):
    write_fairseq(plain_model(), folder)


def plain(folder):
    write_plain(f"{folder}/m.safetensors", plain_model())


IMPORT = ["import", ".", "--out", "../out.safetensors"]
FAIRSEQ = ["import", "checkpoint.pt", "--dictionary", "dict.source.txt", "--dictionary", "dict.target.txt", "--out", "../out.safetensors"]
EXPORT = ["export", "m.safetensors", "--format", "huggingface", "--out", "../out"]
# How the sound files are made, the command (a list of hadal_torch's, a string of hadal's), the files that it reads.
READERS = [
    (lambda folder: huggingface(folder, "pre_ln"), IMPORT,
     ["config.json", "model.safetensors", "generation_config.json", "vocabulary.txt", "vocabulary.model"]),
    (lambda folder: huggingface(folder, "pre_ln", "vocabulary.txt"), IMPORT, ["tokenizer.json"]),
    (with_vocab_json, IMPORT, ["vocab.json", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"]),
    (with_two_vocabularies, IMPORT, ["vocab-src.json", "vocab-tgt.json"]),
    (sharded, IMPORT, ["model.safetensors.index.json", "a.safetensors"]),
    (fairseq, FAIRSEQ, ["checkpoint.pt", "dict.source.txt", "dict.target.txt"]),
    (plain, EXPORT, ["m.safetensors", "m.json", "vocabulary.txt"]),
    (plain, "checkpoint import m.safetensors -o ../out", ["m.safetensors", "m.json", "vocabulary.txt"]),
]


def sparse(path):
    with open(path, "wb") as file:
        file.truncate(1 << 40)


def sparse_tensor(path):
    """A sound header, and a tensor of a tebibyte of which nothing is stored."""
    if not path.endswith(".safetensors"):
        return sparse(path)
    header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 38], "data_offsets": [0, 1 << 40]}}).encode()
    Path(path).write_bytes(struct.pack("<Q", len(header)) + header)
    os.truncate(path, 8 + len(header) + (1 << 40))


def bomb(path):
    """Small, and large for those who believe it."""
    if path.endswith(".pt"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02N." + bytes(32 << 20))
    elif path.endswith(".safetensors"):
        header = json.dumps({"w": {"dtype": "F32", "shape": [1 << 62, 1 << 62], "data_offsets": [0, 1 << 62]}}).encode()
        Path(path).write_bytes(struct.pack("<Q", len(header)) + header)
    elif path.endswith(".model"):
        Path(path).write_bytes(b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f" + b"a" * 64)
    elif path.endswith(".txt"):
        Path(path).write_text("".join(f"token{i} 1\n" for i in range(100_000)), "ascii")
    else:
        Path(path).write_bytes(b'{"a":' + b"[" * 1_000_000)


def count(path):
    """Says that there are a thousand million layers, or tokens."""
    if path.endswith(".pt"):
        state = torch.load(path, **({"weights_only": False} if torch.__version__ >= "2" else {}))
        state["model"]["encoder.layers.999999999.fc1.weight"] = torch.zeros(24, 16)
        torch.save(state, path)
    elif path.endswith(".safetensors"):
        weights = read_safetensors(path)
        prefix = "model." if "model.decoder.layers.0.fc1.weight" in weights else ""
        write_safetensors(path, {**weights, f"{prefix}encoder.layers.999999999.fc1.weight": np.zeros((24, 16), np.float32)})
    elif path.endswith((".txt", ".model")):
        bomb(path)
    else:
        value = json.loads(Path(path).read_text("utf-8")) if os.path.exists(path) else {}
        for sizes in (value, value.get("model", {})):
            sizes.update({name: 10**9 for name in ("encoder_layers", "decoder_layers") if name in sizes})
        for ids in (value.get("weight_map"), value if "word0" in value or not value else None):
            if ids is not None:
                ids["encoder.layers.999999999.fc1.weight"] = 10**9
        if "added_tokens_decoder" in value or os.path.basename(path) in ("tokenizer_config.json", "tokenizer.json"):
            value.update(added_tokens_decoder={"1000000000": {"content": "x"}}, added_tokens=[{"id": 10**9, "content": "x"}])
        if os.path.basename(path) == "special_tokens_map.json":
            value["additional_special_tokens"] = [f"x{i}" for i in range(1000)]
        Path(path).write_text(json.dumps(value), "utf-8")


KINDS = {"device": lambda path: os.symlink("/dev/null", path), "endless": lambda path: os.symlink("/dev/zero", path), "pipe": os.mkfifo,
         "folder": os.mkdir, "sparse": sparse, "sparse tensor": sparse_tensor, "bomb": bomb, "count": count}
HARMLESS = {("generation_config.json", "count")}  # it has no counts


class ReadersTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = os.path.join(directory.name, "m")
        os.mkdir(self.folder)

    def result(self, command):
        """(exit status, standard error, bytes of memory) of a command in the folder, in a process of its own with limited time."""
        with tempfile.TemporaryFile("w+") as printed:
            child = os.fork()
            if child == 0:
                status = 99
                with contextlib.suppress(BaseException):
                    resource.setrlimit(resource.RLIMIT_CPU, (MOST_CPU_SECONDS, MOST_CPU_SECONDS))
                    os.chdir(self.folder)
                    os.dup2(printed.fileno(), 2)
                    sys.stderr = os.fdopen(2, "w", buffering=1, encoding="utf-8", closefd=False)
                    if isinstance(command, str):
                        os.execv(HADAL, ["hadal", *command.split()])
                    sys.argv = ["hadal_torch", *command]
                    status = program.main()
                    sys.stderr.flush()
                os._exit(status)
            _, ended, usage = os.wait4(child, 0)
            printed.seek(0)
            return os.waitstatus_to_exitcode(ended), printed.read(), usage.ru_maxrss * 1024

    def remake(self, make):
        for root, folders, files in os.walk(os.path.dirname(self.folder), topdown=False):
            for name in files:
                os.remove(os.path.join(root, name))
            for name in folders:
                (os.remove if os.path.islink(os.path.join(root, name)) else os.rmdir)(os.path.join(root, name))
        os.mkdir(self.folder)
        make(self.folder)

    def test_each_reader_refuses_each_kind(self):
        for make, command, names in READERS:
            self.remake(make)
            status, printed, start = self.result(command)
            self.assertEqual(status, 0, (command, printed))
            for name in names:
                for kind, place in KINDS.items():
                    if (name, kind) in HARMLESS:
                        continue
                    with self.subTest(command=command[0] if isinstance(command, list) else command, name=name, kind=kind):
                        self.remake(make)
                        path = os.path.join(self.folder, name)
                        if kind != "count" and os.path.exists(path):
                            os.remove(path)
                        place(path)
                        status, printed, memory = self.result(command)
                        self.assertIn(status, (2, 3), printed)
                        self.assertRegex(printed, r"\Ahadal checkpoint (im|ex)port: [^\n]+\n\Z")
                        self.assertTrue(name in printed or kind == "count", printed)
                        self.assertEqual(os.listdir(os.path.dirname(self.folder)), ["m"])
                        self.assertLess(memory - start, MOST_MEMORY)


class SafetensorsTest(unittest.TestCase):
    def test_a_name_that_occurs_twice_and_holes(self):
        def entry(name, begin, elements=1):
            return f'"{name}":{{"dtype":"F32","shape":[{elements}],"data_offsets":[{begin},{begin + 4 * elements}]}}'

        cases = {"a key occurs twice": (entry("a", 0), entry("a", 4)), "b begins at byte 8": (entry("a", 0), entry("b", 8)),
                 "b begins at byte 4 .* ends at 8": (entry("a", 0, 2), entry("b", 4, 2)), "a begins at byte 4": (entry("a", 4, 2),),
                 "have 8 bytes, its data 12": (entry("a", 0, 2),)}
        with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:
            for reason, entries in cases.items():
                header = ("{" + ",".join(entries) + "}").encode()
                Path(file.name).write_bytes(struct.pack("<Q", len(header)) + header + bytes(12))
                with self.assertRaisesRegex(Refusal, reason) as caught:
                    read_safetensors(file.name)
                self.assertEqual(caught.exception.exit_code, 3)


if __name__ == "__main__":
    unittest.main(buffer=True)
