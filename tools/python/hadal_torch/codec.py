"""Encodes and decodes text with a Hugging Face tokenizer.json, for tools/corpus/text_codec.

Standard input has messages, standard output their answers: a uint64 with the size, then that many bytes, little-endian.

    l  the file's contents                 -> nothing
    e  count, (size, UTF-8) of each text   -> count, (size, int32 ids) of each text; without special tokens
    a  the same                            -> the same with special tokens; bit 30 is set in a token that continues the word (word_ids) of the one before
    s                                      -> three lists: the ids that the post-processor gives an empty text, those of all special tokens, that of the unknown token
    d  int32 ids                           -> their text, without special tokens

Where the tokenizer cannot encode a text, the answer is a count of 2^64 - 1, and then a message. Truncation, padding and BPE's dropout in the file are ignored; a special token's name in a text is text.
"""

from __future__ import annotations

import array
import json
import signal
import struct
import sys
from typing import Any

from pyhadal.packages import require

from hadal_torch.refusal import Refusal

_CONTINUES = 1 << 30


def _lists(lists: "list[list[int]]") -> bytes:
    parts = [struct.pack("<Q", len(lists))]
    for ids in lists:
        parts += [struct.pack("<Q", len(ids)), array.array("i", ids).tobytes()]
    return b"".join(parts)


def _marked(encoding: Any) -> "list[int]":
    ids, words = encoding.ids, encoding.word_ids
    return [token | _CONTINUES if i and word is not None and word == words[i - 1] else token for i, (token, word) in enumerate(zip(ids, words))]


def _texts(message: bytes) -> "list[str]":
    texts, at = [], 8
    for _ in range(struct.unpack_from("<Q", message)[0]):
        size = struct.unpack_from("<Q", message, at)[0]
        texts.append(message[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return texts


class Codec:
    def __init__(self) -> None:
        self.tokenizer: Any = None
        self.contents = b""  # of the file

    def answer(self, kind: bytes, message: bytes) -> bytes:
        if kind == b"l":
            import tokenizers

            try:
                self.contents, self.tokenizer = message, tokenizers.Tokenizer.from_str(message.decode())
            except Exception as error:  # the package raises no narrower class
                raise Refusal(f"tokenizers {tokenizers.__version__} cannot read the tokenizer.json: {error}") from None
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            if getattr(self.tokenizer.model, "dropout", None):  # of BPE: it draws each encoding anew
                self.tokenizer.model.dropout = None
            self.tokenizer.encode_special_tokens = True
            return b""
        if kind in (b"e", b"a"):
            try:
                encodings = self.tokenizer.encode_batch(_texts(message), add_special_tokens=kind == b"a")
            except Exception as error:
                return struct.pack("<Q", (1 << 64) - 1) + str(error).encode()
            return _lists([encoding.ids if kind == b"e" else _marked(encoding) for encoding in encodings])
        if kind == b"s":
            special = {i for i, token in self.tokenizer.get_added_tokens_decoder().items() if token.special}
            model = json.loads(self.contents)["model"]  # Unigram's object has no unk_id
            unknown = {model.get("unk_id"), self.tokenizer.token_to_id(model.get("unk_token") or "")} - {None}
            return _lists([self.tokenizer.encode("").ids, sorted(special | unknown), sorted(unknown)])
        return str(self.tokenizer.decode(list(array.array("i", message)))).encode()


def serve() -> None:
    require("tokenizers")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # ends without a trace
    read, codec = sys.stdin.buffer, Codec()
    with open(sys.stdout.fileno(), "wb", closefd=False) as write:
        sys.stdout = sys.stderr  # what else is printed is no answer
        while len(header := read.read(8)) == 8:
            message = read.read(struct.unpack("<Q", header)[0])
            answer = codec.answer(message[:1], message[1:])
            write.write(struct.pack("<Q", len(answer)) + answer)
            write.flush()
