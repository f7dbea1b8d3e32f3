"""Vocabularies for other programs: a SentencePiece model or a fairseq dict.txt as a list of tokens, and as tokenizer.json; and a
language model's tokenizer.json, which stays as it is.

Ids are hadal's: <s> 0, <pad> 1, </s> 2, <unk> 3, then the model's other pieces, or the dictionary's lines, in their order; those of a
tokenizer.json are its own.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import re
import struct
import sys
import unicodedata
from dataclasses import dataclass, field
from typing import Any, Iterator

from hadal_torch.inputs import parse_json
from hadal_torch.refusal import Refusal, damaged

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]
UNKNOWN = 3
_NAMES = {46: b"<s>", 47: b"</s>", 48: b"<pad>"}  # of special pieces, in TrainerSpec: field, default
_KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6  # types of a piece
_RESERVED_SCORE = -1e5


def _fields(message: bytes) -> "Iterator[tuple[int, Any]]":
    """(number, value) of each field of a serialised Protobuf message: int, or bytes."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        number, kind = key >> 3, key & 7
        if kind == 0:
            yield number, varint()
            continue
        if kind not in (1, 2, 5):
            raise IndexError(f"wire type {kind}")
        length = {1: 8, 5: 4}[kind] if kind != 2 else varint()
        if at + length > len(message):
            raise IndexError("truncated")
        yield number, message[at : at + length]
        at += length


@dataclass
class Vocabulary:
    tokens: "list[str]"  # by id
    scores: "list[float]" = field(default_factory=list)  # of a SentencePiece model
    kind: str = "dictionary"  # or "unigram", "bpe", "word", "char", "tokenizer" (a tokenizer.json; "" is an id without a token)
    user_defined: "list[int]" = field(default_factory=list)
    control: "list[int]" = field(default_factory=list)  # such as language tags and <mask>; the special tokens are not in it
    charsmap: bytes = b""  # of the normalisation
    normalization: str = ""  # its name
    dummy_prefix: bool = True
    remove_extra_whitespaces: bool = True
    byte_fallback: bool = False
    words_apart: bool = True  # no piece goes over a space, and a space begins a piece


def parse_vocabulary(name: str, contents: bytes) -> Vocabulary:
    """Of a file's contents; `name` ends in .model (SentencePiece), .txt (dict.txt) or .json (tokenizer.json). Raises Refusal if it is damaged."""
    parse, kind = {".txt": (_parse_dictionary, "dictionary in UTF-8"), ".json": (_parse_tokenizer, "tokenizer.json")}.get(
        os.path.splitext(name)[1], (_parse_sentencepiece, "SentencePiece model"))
    try:
        return parse(contents)
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, struct.error) as error:
        raise damaged(f"{name} is no {kind}, or a damaged one ({error})") from None


def check_rows(name: str, contents: bytes, rows: int) -> bytes:
    """The contents of a vocabulary. Raises Refusal if it has not as many ids as the model has `rows`."""
    size = len(parse_vocabulary(name, contents).tokens)
    if size != rows:
        raise Refusal(f"{name} has {size} ids, the model {rows}")
    return contents


def _parse_dictionary(contents: bytes) -> Vocabulary:
    # A line ends only at "\n". It may end in "#fairseq:overwrite": then its token may repeat an earlier one.
    lines = [line.rstrip(" \t\r\f\v") for line in contents.decode("utf-8-sig").split("\n")]
    tokens = SPECIAL + [line.replace(" #fairseq:overwrite", "").rsplit(" ", 1)[0] for line in lines if line]
    # Language tags are appended to the words; among the words __init__ is one.
    appended = len(list(itertools.takewhile(re.compile(r"__[^_].*__|<.+>|madeupword\d+").fullmatch, reversed(tokens))))
    return Vocabulary(tokens, control=[i for i, token in enumerate(tokens) if token == "<mask>" or
                                       (i >= len(tokens) - appended and re.fullmatch("__[^_].*__", token))])


def _parse_tokenizer(contents: bytes) -> Vocabulary:
    whole = parse_json("tokenizer.json", contents)
    listed = whole["model"]["vocab"]
    ids = dict(listed) if isinstance(listed, dict) else {token: i for i, (token, _) in enumerate(listed)}
    ids.update({token["content"]: token["id"] for token in whole.get("added_tokens", [])})
    if not all(type(i) is int and 0 <= i < 1 << 24 for i in ids.values()):
        raise ValueError("an id that is none")
    by_id = {i: token for token, i in ids.items()}
    return Vocabulary([by_id.get(i, "") for i in range(max(by_id) + 1)], kind="tokenizer")


def added_tokens(name: str, contents: bytes) -> "list[int]":
    """The ids that the post-processor of a tokenizer.json adds to a text, in their order."""
    post = parse_json(name, contents).get("post_processor") or {}
    added: "list[int]" = []
    for processor in post.get("processors", [post]):
        if processor.get("type") == "TemplateProcessing":
            specials = [piece["SpecialToken"]["id"] for piece in processor["single"] if "SpecialToken" in piece]
            added += [i for special in specials for i in processor["special_tokens"][special]["ids"]]
        added += [processor[part][1] for part in ("cls", "sep") if part in processor]
    return added


def first_token(name: str, contents: bytes, end: int) -> int:
    """The id that the post-processor of a tokenizer.json puts before a text, or `end`. Raises Refusal for several."""
    added = added_tokens(name, contents)
    if added[-1:] == [end]:
        del added[-1]
    if len(added) > 1:
        raise Refusal(f"{name}: its post-processor adds {len(added)} tokens to a text beside the one that ends it; hadal reads one before the text")
    return added[0] if added else end


def with_first_token(name: str, contents: bytes, first: int) -> bytes:
    """The tokenizer.json whose post-processor also puts the token `first` before a text."""
    whole, token = parse_json(name, contents), parse_vocabulary(name, contents).tokens[first]
    begin, (a, b) = {"SpecialToken": {"id": token, "type_id": 0}}, [{"Sequence": {"id": i, "type_id": 0}} for i in "AB"]
    template = {"type": "TemplateProcessing", "single": [begin, a], "pair": [begin, a, begin, b],
                "special_tokens": {token: {"id": token, "ids": [first], "tokens": [token]}}}
    post = whole.get("post_processor") or {"processors": []}
    whole["post_processor"] = {"type": "Sequence", "processors": [*post.get("processors", [post]), template]}
    return json.dumps(whole, ensure_ascii=False).encode()


def fill_tokenizer(name: str, contents: bytes, rows: int) -> bytes:
    """The tokenizer.json with added tokens for the rows of the table that stand for no token."""
    tokens = parse_vocabulary(name, contents).tokens
    if len(tokens) == rows:
        return contents
    added = fill(tokens, rows, name, "")[len(tokens) :]
    whole = parse_json(name, contents)
    whole["added_tokens"] = [*whole.get("added_tokens", []), *(_added_token(len(tokens) + i, token) for i, token in enumerate(added))]
    return json.dumps(whole, ensure_ascii=False).encode()


def dictionary_of(tokens: "list[str]") -> bytes:
    """fairseq's dict.txt of all tokens but the special ones. Counts are not known: 1."""
    lines, seen = [], set(SPECIAL)
    for token in tokens[len(SPECIAL) :]:
        if not token or re.search("[ \t\r\n\f\v]", token):
            raise Refusal(f"the token {token!r} is empty or has white space inside; hadal's dictionary has a token a line")
        lines.append(f"{token} 1 #fairseq:overwrite\n" if token in seen else f"{token} 1\n")
        seen.add(token)
    return "".join(lines).encode()


_TAGS = ("; if language tags are among them, append the tags to dict.txt in the order of fairseq's task, or list them with their ids in "
         "added_tokens.json")


def fill(tokens: "list[str]", rows: int, origin: str, advice: str = _TAGS) -> "list[str]":
    """`tokens` with names for the rows of the table that stand for no token: fairseq's tasks add such rows. Prints their number."""
    if len(tokens) > rows:
        raise Refusal(f"{origin} has {len(tokens)} ids, {len(SPECIAL)} special ones included; the model has {rows}")
    known = set(tokens)
    unused = (name for name in map("madeupword{:04}".format, itertools.count()) if name not in known)
    added = list(itertools.islice(unused, rows - len(tokens)))
    if added:
        print(f"{origin}: {len(added)} of the model's {rows} rows have no token and are named {added[0]} to {added[-1]}{advice}", file=sys.stderr)
    return tokens + added


def _parse_sentencepiece(contents: bytes) -> Vocabulary:
    """ModelProto: 1 pieces {1 piece, 2 score, 3 type}, 2 TrainerSpec {3 type, 22 split_by_whitespace,
    24 treat_whitespace_as_suffix, 26 allow_whitespace_only_pieces, 35 byte_fallback, 46–48 names}, 3 NormalizerSpec
    {1 name, 2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces}."""
    pieces = []
    trainer: "dict[int, Any]" = {}
    normalizer: "dict[int, Any]" = {}
    for number, value in _fields(contents):
        if number == 1:
            piece = dict(_fields(value))
            pieces.append((piece[1].decode(), struct.unpack("<f", piece.get(2, b"\0\0\0\0"))[0], piece.get(3, 1)))
        elif number in (2, 3):
            (trainer if number == 2 else normalizer).update(_fields(value))
    special = {trainer.get(*name).decode() for name in _NAMES.items()}
    kind = _KINDS.get(trainer.get(3, 1), "unknown")
    vocabulary = Vocabulary(list(SPECIAL), [0.0] * len(SPECIAL), kind,
                            charsmap=normalizer.get(2, b""), normalization=normalizer.get(1, b"").decode(), dummy_prefix=bool(normalizer.get(3, 1)),
                            remove_extra_whitespaces=bool(normalizer.get(4, 1)), byte_fallback=bool(trainer.get(35, 0)),
                            words_apart=bool(trainer.get(22, 1)) and not trainer.get(24, 0) and not trainer.get(26, 0))
    # Text spells no reserved piece, but tokenizers' Unigram has them among its others. So they cost more than any text of known
    # characters; _unknown_in_reserved is about unknown ones.
    if kind == "unigram":
        vocabulary.scores = [_RESERVED_SCORE] * len(SPECIAL)
    for piece, score, piece_type in pieces:
        if piece_type == _UNKNOWN or (piece_type == _CONTROL and piece in special):  # as the library finds them
            continue
        if piece_type == _USER_DEFINED:
            vocabulary.user_defined.append(len(vocabulary.tokens))
        if piece_type == _CONTROL:
            vocabulary.control.append(len(vocabulary.tokens))
        vocabulary.tokens.append(piece)
        vocabulary.scores.append(_RESERVED_SCORE if kind == "unigram" and piece_type in (_CONTROL, _BYTE) else score)
    return vocabulary


def _merges(vocabulary: Vocabulary) -> "list[str]":
    """The pairs that a BPE model merges, the best score first, as SentencePiece does."""
    ids = {token: i for i, token in enumerate(vocabulary.tokens)}
    merges = []
    for i, token in enumerate(vocabulary.tokens[len(SPECIAL) :], len(SPECIAL)):
        pairs = [(token[:k], token[k:]) for k in range(1, len(token)) if token[:k] in ids and token[k:] in ids]
        merges += [(-vocabulary.scores[i], ids[left], ids[right], left, right) for left, right in pairs]
    return [f"{left} {right}" for _, _, _, left, right in sorted(merges)]


def _unknown_in_reserved(vocabulary: Vocabulary) -> str:
    """The characters of reserved and byte pieces that no other piece of a unigram model has. Text that has them would be such a piece,
    because that costs less than an unknown character."""
    if vocabulary.kind != "unigram":
        return ""
    tokens = [token for i, token in enumerate(vocabulary.tokens) if i >= len(SPECIAL) and i not in vocabulary.control]
    known = "".join(token for token in tokens if not re.fullmatch("<0x[0-9A-F]{2}>", token))
    return "".join(sorted(set("".join(SPECIAL)) - set(known)))


def _added_token(i: int, content: str) -> dict[str, Any]:
    return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}


def _added(vocabulary: Vocabulary) -> "list[dict[str, Any]]":
    return [_added_token(i, vocabulary.tokens[i]) for i in [*range(len(SPECIAL)), *vocabulary.control]]


def tokenizer_json(vocabulary: Vocabulary, ends: bool = True) -> dict[str, Any]:
    """The vocabulary for Hugging Face's tokenizers: the same ids as hadal's, with </s> at the end, or in front (a language model's prompt). A language tag that
    stands in the text becomes the tag's id, as in M2M100's and NLLB's tokenizers. (In hadal only options set tags, never text.)"""
    kinds = ("dictionary", "unigram", "bpe")
    odd = [what for what, found in (("user-defined symbols", vocabulary.user_defined), (f"the type {vocabulary.kind}", vocabulary.kind not in kinds),
                                    ("pieces with a space inside or at the end", not vocabulary.words_apart)) if found]
    if odd:
        raise Refusal(f"the SentencePiece model has {' and '.join(odd)}, and a tokenizer.json would cut the text differently; "
                      "--format ctranslate2 and fairseq take the SentencePiece model itself")
    end: "dict[str, Any]" = {"SpecialToken": {"id": "</s>", "type_id": 0}}
    first, second = ([sequence, end] if ends else [end, sequence] for sequence in ({"Sequence": {"id": name, "type_id": 0}} for name in "AB"))
    tokenizer: "dict[str, Any]" = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": _added(vocabulary),
        "post_processor": {
            "type": "TemplateProcessing", "single": first, "pair": [*first, *second],
            "special_tokens": {"</s>": {"id": "</s>", "ids": [2], "tokens": ["</s>"]}}},
    }
    if vocabulary.kind == "dictionary":  # white space is Unicode's, and the separators U+001C to U+001F, as in Python
        words: "dict[str, Any]" = {"type": "Split", "pattern": {"Regex": "[\\s\\x1c-\\x1f]+"}, "behavior": "Removed", "invert": False}
        model: "dict[str, Any]" = {"type": "WordLevel", "vocab": {token: i for i, token in enumerate(vocabulary.tokens)}, "unk_token": "<unk>"}
        reserved = {"type": "Replace", "pattern": {"Regex": "(?<!\\S)<(/?s|pad)>(?!\\S)"}, "content": "<unk>"}  # as hadal reads them
        return {**tokenizer, "normalizer": reserved, "pre_tokenizer": words, "decoder": None, "model": model}
    normalizers: "list[dict[str, Any]]" = []
    if vocabulary.normalization.removeprefix("nmt_").removesuffix("_cf") == "nfkc":
        # SentencePiece composes what tokenizers' Precompiled misses: sequences of six bytes or more, half-width kana with a mark.
        normalizers.append({"type": "NFC"})
        for pair in (chr(kana) + mark for kana in range(0xFF66, 0xFF9E) for mark in "\uff9e\uff9f"):
            if len(whole := unicodedata.normalize("NFKC", pair)) == 1:
                normalizers.append({"type": "Replace", "pattern": {"String": pair}, "content": whole})
    if vocabulary.charsmap:
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": base64.b64encode(vocabulary.charsmap).decode()})
    if vocabulary.remove_extra_whitespaces:
        normalizers += [{"type": "Replace", "pattern": {"Regex": "\\A +| +\\z"}, "content": ""},
                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}]
    space: "dict[str, Any]" = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always" if vocabulary.dummy_prefix else "never",
             "split": True}
    words = space
    if vocabulary.dummy_prefix and not vocabulary.remove_extra_whitespaces:  # Metaspace adds none in front of a space
        normalizers += [{"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
        words = {**space, "prepend_scheme": "never"}
    if unknown := _unknown_in_reserved(vocabulary):
        if vocabulary.byte_fallback:
            words = {"type": "Sequence", "pretokenizers": [words, {"type": "Split", "pattern": {"Regex": f"[{unknown}]"},
                                                                   "behavior": "Isolated", "invert": False}]}
        else:  # unknown characters side by side are one <unk>, so the text is not cut there
            other = next(c for c in map(chr, range(0xE000, 0xF900)) if not any(c in token for token in vocabulary.tokens))
            normalizers.append({"type": "Replace", "pattern": {"Regex": f"[{unknown}]"}, "content": other})
    if vocabulary.kind == "unigram":
        model = {"type": "Unigram", "unk_id": UNKNOWN, "vocab": [list(pair) for pair in zip(vocabulary.tokens, vocabulary.scores)],
                 "byte_fallback": vocabulary.byte_fallback}
    else:
        model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                 "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": vocabulary.byte_fallback,
                 "vocab": {token: i for i, token in enumerate(vocabulary.tokens)}, "merges": _merges(vocabulary)}
    decoder = space
    if vocabulary.byte_fallback:
        decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, space]}
    return {**tokenizer, "normalizer": {"type": "Sequence", "normalizers": normalizers}, "pre_tokenizer": words,
            "decoder": decoder, "model": model}
