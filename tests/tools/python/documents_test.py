"""`hadal prepare --tokenizer` against `tokenizers`: the same ids; Megatron-LM's files; a model of a tokenizer scores and writes text."""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

HADAL = os.environ["HADAL"]
CONTINUES = 1 << 30  # of a token in a corpus for encoders alone: it continues a word (runtime/data/packed_batch.h)
TEXTS = ["ab ba", "a", "straße 日本 \U0001f642", "<s> a </s> b", "  two  spaces\nand a line\t", "abab" * 30, "b"]


def bytes_to_letters() -> list:
    return sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level() -> Tokenizer:
    """As GPT-2's: ids 0 to 3 are letters, one token is both start and end; BPE's dropout stands in the file by accident."""
    letters = bytes_to_letters()
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*letters, "ab", "abab"])}, merges=[("a", "b"), ("ab", "ab")], dropout=0.9))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def byte_fallback() -> Tokenizer:
    """As Llama 2's: <unk> 0, <s> 1, </s> 2, then bytes; <s> before a text."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "ab"]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=[("▁", "a"), ("a", "b")], unk_token="<unk>",
                                     byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram() -> Tokenizer:
    """As T5's: </s> behind a text; truncation and padding stand in the file by accident."""
    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("a", -2.5), ("b", -2.6), ("▁a", -3.0), ("ab", -3.1)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(["<pad>", "</s>", "<unk>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=9)
    return tokenizer


def wordpiece() -> Tokenizer:
    """As BERT's: [CLS] and [SEP] around a text."""
    tokenizer = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "b": 3, "##a": 4, "and": 5}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["[CLS]", AddedToken("[SEP]"), "[MASK]", "[PAD]"])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 7), ("[CLS]", 6))
    return tokenizer


def modern() -> Tokenizer:
    """As ModernBERT's: byte-level, the same tokens around a text."""
    tokenizer = byte_level()
    tokenizer.model.dropout = None
    tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[PAD]", "[UNK]", AddedToken("[MASK]", lstrip=True)])
    first, last = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", first), ("[SEP]", last)])
    return tokenizer


KINDS = {"<|endoftext|>": byte_level, "</s>": byte_fallback, "</s> ": unigram, "[SEP]": wordpiece}  # by their end tokens


def expected_stream(tokenizer: Tokenizer, end: str, texts: list) -> list:
    """Of documents, by the tokenizer itself."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    if isinstance(tokenizer.model, models.BPE):
        tokenizer.model.dropout = None
    last, stream = tokenizer.token_to_id(end), []
    for text in texts:
        ids = tokenizer.encode(text).ids
        stream += ids if ids and ids[-1] == last else [*ids, last]
    return stream if stream[:1] == tokenizer.encode("").ids[:1] else [last, *stream]  # the first document begins as the others


def samples_of(prefix: Path) -> list:
    """The tokens of each sample of a corpus of one shard (runtime/data/corpus_shard.h)."""
    shard = Path(f"{prefix}.00000.shard").read_bytes()
    samples, tokens = struct.unpack_from("<qq", shard, 16)
    ids = struct.unpack_from(f"<{tokens}i", shard, 32 + 32 * samples)
    records = [struct.unpack_from("<qiii", shard, 32 + 32 * i) for i in range(samples)]
    return [list(ids[first : first + count]) for first, _, _, count in records]


def write_megatron(prefix: Path, documents: list) -> None:
    """One sequence a document, as Megatron-LM's tools write it: uint16, code 8."""
    lengths = [len(document) for document in documents]
    prefix.with_suffix(".bin").write_bytes(b"".join(struct.pack(f"<{len(d)}H", *d) for d in documents))
    prefix.with_suffix(".idx").write_bytes(
        b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1) + struct.pack(f"<{len(lengths)}i", *lengths) +
        struct.pack(f"<{len(lengths)}q", *(2 * sum(lengths[:i]) for i in range(len(lengths)))) + struct.pack(f"<{len(lengths) + 1}q", *range(len(lengths) + 1)))


class Documents(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = Path(folder.name)
        (self.folder / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))

    def save(self, tokenizer: Tokenizer, end: str) -> Path:
        tokenizer.save(str(self.folder / "tokenizer.json"))
        config = self.folder / "tokenizer_config.json"
        config.unlink(missing_ok=True)
        if end:
            config.write_text(json.dumps({"eos_token": {"content": end, "special": True}}))
        return self.folder / "tokenizer.json"

    def hadal(self, *words, code: int = 0, python: str = sys.executable) -> str:
        done = subprocess.run([HADAL, *map(str, words)], env={**os.environ, "HADAL_PYTHON": python}, text=True, capture_output=True)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def prepare(self, *words, train: str = "text.jsonl", code: int = 0) -> str:
        return self.hadal("prepare", "--monolingual", "--train", self.folder / train, "--tokenizer", self.folder / "tokenizer.json",
                          "--out", self.folder / "corpus", "--overwrite", *words, code=code)

    def stream(self) -> list:
        blocks = samples_of(self.folder / "corpus/train")
        for before, block in zip(blocks, blocks[1:]):
            self.assertEqual(block[0], before[-1])
        return [*blocks[0], *(token for block in blocks[1:] for token in block[1:])]

    def test_ids_are_the_tokenizers(self):
        for end, make in KINDS.items():
            end, tokenizer = end.strip(), make()
            with self.subTest(make.__name__):
                self.save(tokenizer, end)
                self.prepare("--block", 8)
                self.assertEqual(self.stream(), expected_stream(tokenizer, end, TEXTS))
                unknown = {"unigram": 2, "wordpiece": 0, "byte_fallback": 0}.get(make.__name__)
                statistics = json.loads((self.folder / "corpus/train.json").read_text())["statistics"]
                self.assertEqual(statistics["target_unknown"], sum(block.count(unknown) for block in samples_of(self.folder / "corpus/train")))
                self.assertEqual((self.folder / "corpus/tokenizer.json").read_bytes(), (self.folder / "tokenizer.json").read_bytes())

    def test_megatrons_files_are_the_same_stream_with_and_without_ends(self):
        tokenizer = byte_fallback()
        self.save(tokenizer, "</s>")
        expected = expected_stream(tokenizer, "</s>", TEXTS)
        documents = [[token for token in tokenizer.encode(text).ids if token != 1] for text in TEXTS]
        for end in ([], [2]):
            write_megatron(self.folder / "m", [[*document, *end] for document in documents])
            self.prepare("--block", 8, train="m.bin")
            self.assertEqual(self.stream(), expected)
        write_megatron(self.folder / "m", [[5], [60000]])
        self.assertIn('m.idx:2: "60000" is no token id', self.prepare("--block", 8, train="m.idx", code=2))
        self.assertIn("encoders alone (--mask-token) read text", self.prepare("--mask-token", "</s>", train="m.idx", code=2))

    def test_tokenizers_that_do_not_say_how_a_document_ends_are_refused(self):
        self.save(byte_level(), "")
        self.assertIn("do not say which token ends a document", self.prepare("--block", 8, code=2))
        self.assertIn('has no "</s>"', self.prepare("--block", 8, "--end-token", "</s>", code=2))
        self.prepare("--block", 8, "--end-token", "<|endoftext|>")
        self.save(wordpiece(), "a")
        self.assertIn("adds 2 tokens", self.prepare("--block", 8, code=2))

    def test_a_text_that_the_tokenizer_cannot_encode_is_named(self):
        tokenizer = wordpiece()  # its added tokens stand behind six others
        tokenizer.model = models.WordPiece({token: i for i, token in enumerate(["a", "ab", "ba", "b", "##a", "##b"])}, unk_token="[UNK]")
        self.save(tokenizer, "[SEP]")
        error = self.prepare("--block", 8, code=2)
        self.assertRegex(error, r"text\.jsonl:3: the tokenizer cannot encode the text: .*\[UNK\]")
        self.assertNotIn("Traceback", error)

    def test_an_encoder_reads_the_tokenizers_ids_and_words(self):
        for make in (wordpiece, modern):
            with self.subTest(make.__name__):
                tokenizer = make()
                path = self.save(tokenizer, "")
                self.assertIn("do not say which token is the mask", self.prepare("--mask-token", code=2))
                self.assertIn('has no "[NONE]", which is the mask', self.prepare("--mask-token", "[NONE]", code=2))
                (self.folder / "tokenizer_config.json").write_text(json.dumps({"sep_token": "[SEP]", "mask_token": {"content": "[MASK]"}}))
                self.assertIn("is also the token that starts or ends a document", self.prepare("--mask-token", "[SEP]", code=2))
                self.prepare("--mask-token")
                tokenizer.encode_special_tokens = True
                encodings = [tokenizer.encode(text) for text in TEXTS]
                expected = []
                for encoding in encodings:
                    words = encoding.word_ids
                    continues = [i > 0 and word is not None and word == words[i - 1] for i, word in enumerate(words)]
                    expected.append([token | CONTINUES if more else token for token, more in zip(encoding.ids[:-1], continues)])
                self.assertEqual(samples_of(self.folder / "corpus/train"), expected)
                manifest = json.loads((self.folder / "corpus/train.json").read_text())
                self.assertEqual(manifest["mask_token"], tokenizer.token_to_id("[MASK]"))
                special = {token for token in tokenizer.get_vocab() if token[0] == "[" and token[-1] == "]" or token == "<|endoftext|>"} - {"[]"}
                self.assertEqual(manifest["special_tokens"], sorted(map(tokenizer.token_to_id, special)))
        self.assertIn("names a token of a --tokenizer", self.hadal("prepare", "--monolingual", "--mask-token", "[MASK]", "--train", path,
                                                                      "--out", self.folder / "none", code=2))

    def test_an_encoder_of_a_tokenizer_goes_on_elsewhere_and_here(self):
        tokenizer = wordpiece()
        self.save(tokenizer, "")
        self.prepare("--mask-token", "[MASK]", "--valid", self.folder / "text.jsonl")
        config = self.folder / "model.textproto"  # post_ln: the export folds nothing, so the embeddings have the same bits
        config.write_text(f'''data {{ train: "{self.folder}/corpus/train" validation: "{self.folder}/corpus/valid" masking {{ share: 0.5 whole_words: true }} }}
            model {{ encoder_layers: 2 decoder_layers: 0 d_model: 16 d_ff: 16 heads: 2 max_positions: 200 label_smoothing: 0
                     residual {{ method: "post_ln" }}
                     block {{ activation: "gelu" positions: "learned" scale_embedding: false embedding_norm: true }} }}
            batch {{ micro_batches: 1 target_tokens: 200 }} validation {{ every_steps: 2 }} stop {{ steps: 4 }}''')
        run, exported, back = (self.folder / name for name in ("run", "exported", "back"))
        self.hadal("train", config, "--run-dir", run)
        lines = [text.replace("\n", " ") for text in TEXTS]
        (self.folder / "lines").write_text("\n".join(lines) + "\n")
        for name in ("text.jsonl", "lines"):
            self.hadal("embed", run, "--input", self.folder / name, "--out", self.folder / f"{name}.npy")
        self.assertEqual((self.folder / "text.jsonl.npy").read_bytes(), (self.folder / "lines.npy").read_bytes())
        self.hadal("checkpoint", "export", run, "--format", "huggingface", "-o", exported)
        declared = json.loads((exported / "tokenizer_config.json").read_text())
        self.assertEqual([declared[f"{role}_token"] for role in ("cls", "sep", "pad", "mask")], ["[CLS]", "[SEP]", "[PAD]", "[MASK]"])
        self.hadal("checkpoint", "import", exported, "-o", back)
        self.hadal("embed", back, "--input", self.folder / "lines", "--out", self.folder / "back.npy")
        self.assertEqual((self.folder / "back.npy").read_bytes(), (self.folder / "lines.npy").read_bytes())
        self.hadal("train", config, "--init-from", back, "--run-dir", self.folder / "on")
        self.prepare("--mask-token", "[PAD]", "--valid", self.folder / "text.jsonl")
        self.assertIn("masked by [MASK], and data.train has", self.hadal("train", config, "--init-from", back, "--run-dir", self.folder / "off", code=2))

    def test_a_mask_that_moves_with_a_grown_vocabulary_is_no_change(self):
        config = self.folder / "model.textproto"
        config.write_text("model { encoder_layers: 1 decoder_layers: 0 d_model: 8 d_ff: 8 heads: 2 max_positions: 16 }\n"
                          "batch { micro_batches: 1 target_tokens: 32 } stop { steps: 1 }\n")
        (self.folder / "lines").write_text("a b a b\n" * 20)
        begin: list = []
        for name, words in (("one", "ab"), ("two", "cdab")):
            (self.folder / f"{name}.txt").write_text("".join(f"{word} 1\n" for word in words))
            self.hadal("prepare", "--monolingual", "--mask-token", "--vocab", self.folder / f"{name}.txt", "--train", self.folder / "lines",
                       "--out", self.folder / name)
            self.hadal("train", config, "--set", f'data.train="{self.folder / name}/train"', "--run-dir", self.folder / f"run-{name}", *begin)
            begin = ["--init-from", self.folder / "run-one"]
        self.assertIn("2 new tokens: c, d", (self.folder / "run-two/logs/rank_00000.log").read_text())

    def test_a_model_scores_and_writes_text_and_ids(self):
        tokenizer = byte_fallback()
        self.save(tokenizer, "</s>")
        self.prepare("--block", 8, "--document-mask")
        config = self.folder / "model.textproto"
        config.write_text('model { encoder_layers: 0 decoder_layers: 2 d_model: 16 d_ff: 16 heads: 2 max_positions: 64 sharing: "decoder" }\n'
                          "batch { micro_batches: 1 target_tokens: 16 } stop { steps: 3 }\n")
        run = self.folder / "run"
        self.hadal("train", config, "--set", f'data.train="{self.folder}/corpus/train"', "--run-dir", run)
        self.assertTrue((run / "checkpoints/latest/tokenizer.json").exists())
        masked = (self.folder / "corpus").rename(self.folder / "masked")
        self.prepare("--block", 8)
        found = self.hadal("train", config, "--set", f'data.train="{masked}/train"', "--set", f'data.validation="{self.folder}/corpus/train"',
                           "--run-dir", self.folder / "mixed", code=2)
        self.assertIn("different vocabularies, document masks", found)
        self.prepare("--block", 8, "--end-token", "<s>")
        other = ("train", config, "--set", f'data.train="{self.folder}/corpus/train"', "--init-from", run, "--run-dir", self.folder / "other")
        self.assertIn("was trained with <s> before a text, </s> after it, and data.train has <s> before a text, <s> after it", self.hadal(*other, code=2))
        self.hadal(*other, "--accept-changes")
        self.assertIn("was trained with <s> before", (self.folder / "other/logs/rank_00000.log").read_text())
        none = "/nonexistent"
        ids = self.folder / "ids"
        tokenizer.encode_special_tokens = True
        contents = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
        ids.write_text("".join(" ".join(map(str, content)) + "\n" for content in contents))
        for options in ([], ["--block", 12, "--context", 4]):
            by_text = self.hadal("score", run, "--target", self.folder / "text.jsonl", *options)
            self.assertEqual(self.hadal("score", run, "--target", ids, "--ids", *options, python=none), by_text)
        scored = sum(int(line.split("\t")[1]) for line in by_text.splitlines())
        self.assertEqual(scored, sum(len(content) + 1 for content in contents) + len(TEXTS) - 1)  # <s> and </s> between documents
        prompts = self.folder / "prompts"
        prompts.write_text("ab a\n")
        text = self.hadal("sample", run, "--prompts", prompts, "--max-len", 12)
        prompts.write_text(" ".join(map(str, tokenizer.encode("ab a", add_special_tokens=False).ids)) + "\n")
        written = self.hadal("sample", run, "--prompts", prompts, "--max-len", 12, "--ids", python=none)
        self.assertEqual(tokenizer.decode(list(map(int, written.split()))).replace("\n", " ").replace("\r", " "), text[:-1])
        self.assertIn("cannot start /nonexistent", self.hadal("sample", run, code=2, python=none))
        bare = self.folder / "bare"  # without packages
        bare.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
        bare.chmod(0o755)
        for words in (["sample", run], ["score", run, "--target", self.folder / "text.jsonl"]):
            self.assertRegex(self.hadal(*words, code=2, python=str(bare)), r"\A[^\n]*tokenizers; install with[^\n]*\n\Z")


if __name__ == "__main__":
    unittest.main()
