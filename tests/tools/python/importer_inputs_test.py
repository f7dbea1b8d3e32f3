"""Every file that the importers and exporters read × what else may stand in its place: each is refused by name, at once, in little memory."""

import contextlib
import json
import os
import resource
import shutil
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
from hadal_torch.inputs import parse_json, read_bytes
from hadal_torch.plain import write_plain
from hadal_torch.tensors import read_safetensors, write_safetensors
from hadal_torch.tokenizer import SPECIAL
from random_models import GPT2, METHODS, WORDS, language_model, plain_model

HADAL = os.environ["HADAL"]
MOST_CPU_SECONDS = 20  # of a command; the slowest needs less than 2
MOST_MEMORY = 768 << 20  # bytes beyond the start's


IDS = {token: i for i, token in enumerate([*SPECIAL, *WORDS])}


def write_json(path, value):
    Path(path).write_text(json.dumps(value), "utf-8")


def huggingface(method="pre_ln", absent=(), vocabularies=(), sharded=False):
    def make(folder):
        write_huggingface(plain_model(**METHODS[method]), folder)
        for name in absent:
            os.remove(f"{folder}/{name}")
        for name in vocabularies:
            write_json(f"{folder}/{name}", IDS)
        if sharded:
            os.rename(f"{folder}/model.safetensors", f"{folder}/a.safetensors")
            shard_of = dict.fromkeys(read_safetensors(f"{folder}/a.safetensors"), "a.safetensors")
            write_json(f"{folder}/model.safetensors.index.json", {"weight_map": shard_of})
    return make


def fairseq(folder):
    write_fairseq(plain_model(), folder)


def plain(folder):
    write_plain(f"{folder}/m.safetensors", plain_model())


IMPORT = ["import", ".", "--out", "../out.safetensors"]
FAIRSEQ = ["import", "checkpoint.pt", "--dictionary", "dict.source.txt", "--dictionary", "dict.target.txt", "--out", "../out.safetensors"]
EXPORT = ["export", "m.safetensors", "--format", "huggingface", "--out", "../out"]
TOKENS = ("vocabulary.txt", "tokenizer.json")
# How the sound files are made, the command (a list of hadal_torch's, a string of hadal's), the files that it reads.
READERS = [
    (huggingface(), IMPORT, ["config.json", "model.safetensors", "generation_config.json", "vocabulary.txt", "vocabulary.model"]),
    (huggingface(absent=TOKENS[:1]), IMPORT, ["tokenizer.json"]),
    (huggingface(absent=TOKENS, vocabularies=["vocab.json"]), IMPORT,
     ["vocab.json", "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json"]),
    (huggingface("post_ln", TOKENS, ["vocab-src.json", "vocab-tgt.json"]), IMPORT, ["vocab-src.json", "vocab-tgt.json"]),
    (huggingface(sharded=True), IMPORT, ["model.safetensors.index.json", "a.safetensors"]),
    (fairseq, FAIRSEQ, ["checkpoint.pt", "dict.source.txt", "dict.target.txt"]),
    (plain, EXPORT, ["m.safetensors", "m.json", "vocabulary.txt"]),
    (plain, "checkpoint import m.safetensors -o ../out", ["m.safetensors", "m.json", "vocabulary.txt"]),
]


def declare(path, shape, end):
    """A safetensors file of one tensor, whose data are a hole."""
    header = json.dumps({"w": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}}).encode()
    Path(path).write_bytes(struct.pack("<Q", len(header)) + header)
    return 8 + len(header)


def sparse(path):
    """A tebibyte of which nothing is stored; of a safetensors file the header is sound."""
    start = declare(path, [1 << 38], 1 << 40) if path.endswith(".safetensors") else 0
    with open(path, "ab") as file:
        file.truncate(start + (1 << 40))


def bomb(path):
    """Small, and large for those who believe it."""
    if path.endswith(".pt"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02N." + bytes(32 << 20))
    elif path.endswith(".safetensors"):
        declare(path, [1 << 62, 1 << 62], 1 << 62)
    elif path.endswith(".model"):
        Path(path).write_bytes(b"\x0a\xff\xff\xff\xff\xff\xff\xff\x7f" + b"a" * 64)
    elif path.endswith(".txt"):
        Path(path).write_text("".join(f"token{i} 1\n" for i in range(100_000)), "ascii")
    else:
        Path(path).write_bytes(b'{"a":' + b"[" * 1_000_000)


def count(path):
    """Says that there are a thousand million layers, or tokens."""
    layer, name = "encoder.layers.999999999.fc1.weight", os.path.basename(path)
    if path.endswith(".pt"):
        state = torch.load(path, **({"weights_only": False} if torch.__version__ >= "2" else {}))
        state["model"][layer] = torch.zeros(24, 16)
        return torch.save(state, path)
    if path.endswith(".safetensors"):
        weights = read_safetensors(path)
        prefix = "model." if "model.decoder.layers.0.fc1.weight" in weights else ""
        return write_safetensors(path, {**weights, prefix + layer: np.zeros((24, 16), np.float32)})
    if path.endswith((".txt", ".model")):
        return bomb(path)
    value = json.loads(Path(path).read_text("utf-8")) if os.path.exists(path) else {}
    many = {"tokenizer.json": {"added_tokens": [{"id": 10**9, "content": "x"}]}, "added_tokens.json": {"x": 10**9},
            "tokenizer_config.json": {"added_tokens_decoder": {"1000000000": {"content": "x"}}},
            "special_tokens_map.json": {"additional_special_tokens": [f"x{i}" for i in range(1000)]}}
    value.update(many.get(name, {"x": 10**9} if name.startswith("vocab") else {}))
    for sizes in (value, value.get("model", {})):
        sizes.update({side: 10**9 for side in ("encoder_layers", "decoder_layers") if side in sizes})
    value.get("weight_map", {})[layer] = "a.safetensors"
    return write_json(path, value)


KINDS = {"device": lambda path: os.symlink("/dev/null", path), "endless": lambda path: os.symlink("/dev/zero", path), "pipe": os.mkfifo,
         "folder": os.mkdir, "sparse": sparse, "bomb": bomb, "count": count}
HARMLESS = {("generation_config.json", "count")}  # it has no counts


class ReadersTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.folder = os.path.join(directory.name, "files", "m")
        os.makedirs(self.folder)

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
        shutil.rmtree(os.path.dirname(self.folder))
        os.makedirs(self.folder)
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
                    with self.subTest(command=str(command), name=name, kind=kind):
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

    def test_other_formats_have_no_quantization(self):
        self.remake(plain)
        status, printed, _ = self.result([*EXPORT, "--quantization", "int8"])
        self.assertEqual(status, 2)
        self.assertEqual(printed, "hadal checkpoint export: huggingface stores float32 only; --quantization is for --format ctranslate2\n")

    def test_a_model_without_heads_is_one_line(self):
        self.remake(lambda folder: write_huggingface(language_model("pre_ln", block=GPT2), folder))
        write_json(f"{self.folder}/config.json", {**json.loads(Path(self.folder, "config.json").read_text("utf-8")), "n_head": 0})
        status, printed, _ = self.result(IMPORT)
        self.assertEqual((status, printed), (3, "hadal checkpoint import: . is not what it should be: ZeroDivisionError: division by zero\n"))


class InputsTest(unittest.TestCase):
    def test_what_no_reader_accepts(self):
        with self.assertRaisesRegex(Refusal, "more than 8 bytes"):
            read_bytes("/proc/self/status", 8)  # its size is said to be 0
        for text, reason in ((b"[]", "no JSON object"), (b'{"a": 1, "a": 1}', "a key occurs twice")):
            with self.assertRaisesRegex(Refusal, reason):
                parse_json("x", text)


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
