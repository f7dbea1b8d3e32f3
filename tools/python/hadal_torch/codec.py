"""Encodes and decodes text with a Hugging Face tokenizer.json, for tools/corpus/text_codec.

Standard input has messages, standard output their answers: a uint64 with the size, then that many bytes, little-endian.

    l  the file's contents                 -> nothing
    e  count, (size, UTF-8) of each text   -> count, (size, int32 ids) of each text; without special tokens
    s                                      -> the ids that the post-processor gives an empty text, as a list of one
    d  int32 ids                           -> their text, without special tokens

Truncation and padding in the file are ignored; a special token's name in a text is text.
"""

import array
import signal
import struct
import sys

from pyhadal.packages import require

from hadal_torch.refusal import Refusal


def _lists(encodings) -> bytes:
    parts = [struct.pack("<Q", len(encodings))]
    for encoding in encodings:
        parts += [struct.pack("<Q", len(encoding.ids)), array.array("i", encoding.ids).tobytes()]
    return b"".join(parts)


def _texts(message: bytes) -> list:
    texts, at = [], 8
    for _ in range(struct.unpack_from("<Q", message)[0]):
        size = struct.unpack_from("<Q", message, at)[0]
        texts.append(message[at + 8 : at + 8 + size].decode())
        at += 8 + size
    return texts


class Codec:
    def __init__(self):
        self.tokenizer = None

    def answer(self, kind: bytes, message: bytes) -> bytes:
        if kind == b"l":
            import tokenizers

            try:
                self.tokenizer = tokenizers.Tokenizer.from_str(message.decode())
            except Exception as error:  # the package raises no narrower class
                raise Refusal(f"tokenizers {tokenizers.__version__} cannot read the tokenizer.json: {error}") from None
            self.tokenizer.no_truncation()
            self.tokenizer.no_padding()
            self.tokenizer.encode_special_tokens = True
            return b""
        if kind == b"e":
            return _lists(self.tokenizer.encode_batch(_texts(message), add_special_tokens=False))
        if kind == b"s":
            return _lists([self.tokenizer.encode("")])
        return self.tokenizer.decode(list(array.array("i", message))).encode()


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
