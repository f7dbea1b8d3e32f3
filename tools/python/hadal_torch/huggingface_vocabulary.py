"""The vocabulary of a folder of transformers: hadal's own file if it has one, else what its tokenizer stores."""

from __future__ import annotations

import os
from typing import Any

from hadal_torch.inputs import parse_json, read_bytes
from hadal_torch.plain import PlainModel
from hadal_torch.refusal import Refusal
from hadal_torch.tokenizer import SPECIAL, added_tokens, check_rows, dictionary_of, fill, fill_tokenizer, first_token, parse_vocabulary, with_first_token


def read_json(folder: str, name: str) -> "dict[str, Any] | None":
    path = os.path.join(folder, name)
    return parse_json(path, read_bytes(path)) if os.path.exists(path) else None


def _own_vocabulary(folder: str, size: int) -> "dict[str, bytes]":
    """The folder's vocabulary of hadal, if it has one."""
    for name in ("vocabulary.model", "vocabulary.txt"):
        if os.path.exists(os.path.join(folder, name)):
            path = os.path.join(folder, name)
            return {name: check_rows(path, read_bytes(path), size)}
    return {}


def vocabulary_of(folder: str, size: int) -> "dict[str, bytes]":
    """Of an encoder-decoder: else a dictionary of the folder's tokens, for their ids differ from the SentencePiece model's."""
    return _own_vocabulary(folder, size) or {"vocabulary.txt": dictionary_of(fill(_tokens_of(folder), size, folder))}


def set_vocabulary(folder: str, config: dict[str, Any], plain: PlainModel) -> None:
    """Of a language model or an encoder alone: else the folder's tokenizer.json, which keeps its ids."""
    model, path = plain.model, os.path.join(folder, "tokenizer.json")
    plain.vocabularies = _own_vocabulary(folder, model["target_vocabulary"])
    if plain.vocabularies:
        return
    if not os.path.exists(path):
        raise Refusal(f"{folder} has no tokenizer.json, so its vocabulary is not known; AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) "
                      "writes one; compare its ids with those of tokenizer.model (docs/interchange.md)")
    contents = fill_tokenizer(path, read_bytes(path), model["target_vocabulary"])
    tokens, declared = parse_vocabulary(path, contents).tokens, read_json(folder, "tokenizer_config.json") or {}

    def named(*names: str) -> "int | None":
        """The first of these tokens of tokenizer_config.json that is one."""
        values = [value.get("content") if isinstance(value, dict) else value for value in map(declared.get, names)]
        return next((tokens.index(value) for value in values if value in tokens), None)

    added, start = added_tokens(path, contents), named("bos_token")
    llama = str(declared.get("tokenizer_class")).startswith("LlamaTokenizer")  # transformers 4 then makes the post-processor anew (DeepSeek's)
    if llama and declared.get("add_bos_token", True) is True and start is not None and not added:
        contents, added = with_first_token(path, contents, start), [start]
    ends = [named("eos_token", "sep_token"), config.get("eos_token_id"), config.get("sep_token_id"), added[-1] if len(added) > 1 else None]
    end = next((i for i in ends if i is not None), None)
    if not (type(end) is int and 0 <= end < len(tokens)):
        raise Refusal(f"{folder}: neither eos_token of tokenizer_config.json nor eos_token_id of config.json ({end!r}) is one token of "
                      "tokenizer.json; hadal's texts end with it")
    first, mask = first_token(path, contents, end), named("mask_token")
    if plain.stacks() == ["encoder"]:  # reads the first token as one of the text
        first, mask = end, next((tokens.index(token) for token in ("[MASK]", "<mask>") if token in tokens), None) if mask is None else mask
        if mask is None:
            raise Refusal(f"{folder}: tokenizer_config.json has no mask_token, and tokenizer.json neither [MASK] nor <mask>")
    model.update(start_token=first, end_token=end, reserved_ids=False, **({} if mask is None else {"mask_token": mask}))
    plain.vocabularies = {"tokenizer.json": contents}


def _tokens_of(folder: str) -> "list[str]":
    """Tokens by id: of tokenizer.json, or of vocab.json and the language tags, which follow it (M2M100): with their ids in
    added_tokens.json or tokenizer_config.json, or in order in special_tokens_map.json."""
    path = os.path.join(folder, "tokenizer.json")
    if os.path.exists(path):
        ids = {token: i for i, token in enumerate(parse_vocabulary(path, read_bytes(path)).tokens) if token}
    else:
        found = read_json(folder, "vocab.json")
        if found is None:
            raise Refusal(f"{folder} has neither tokenizer.json nor vocab.json, so its vocabulary is not known")
        ids = found
        ids.update(read_json(folder, "added_tokens.json") or {})  # transformers' own ids, where tokens were added or saved anew
        decoder = (read_json(folder, "tokenizer_config.json") or {}).get("added_tokens_decoder", {})
        ids.update({token["content"]: int(i) for i, token in decoder.items()})
        special = read_json(folder, "special_tokens_map.json") or {}
        for tag in special.get("additional_special_tokens", []):
            ids.setdefault(tag if isinstance(tag, str) else tag["content"], len(ids))
    return _by_id(folder, ids)


def _by_id(origin: str, ids: "dict[str, int]") -> "list[str]":
    tokens = [token for token, _ in sorted(ids.items(), key=lambda pair: pair[1])]
    if sorted(ids.values()) != list(range(len(ids))) or tokens[:4] != SPECIAL:
        raise Refusal(f"{origin}: the ids of its vocabulary are not 0 to {len(ids) - 1}, {' '.join(SPECIAL)} first")
    return tokens


def _bpe_tokens(folder: str, name: str) -> "list[str]":
    """FSMT's vocab-src.json in fairseq's form: "word</w>" ends a word, fairseq marks what does not: "wor@@"."""
    ids = read_json(folder, name)
    if ids is None:
        raise Refusal(f"{folder} has no {name}")
    tokens = _by_id(folder, ids)
    return tokens[:4] + [token[:-4] if token.endswith("</w>") else token + "@@" for token in tokens[4:]]


def fsmt_vocabularies(folder: str, config: dict[str, Any]) -> "dict[str, bytes]":
    if not os.path.exists(os.path.join(folder, "vocab-src.json")):
        return vocabulary_of(folder, config["tgt_vocab_size"])
    source = dictionary_of(fill(_bpe_tokens(folder, "vocab-src.json"), config["src_vocab_size"], folder))
    target = dictionary_of(fill(_bpe_tokens(folder, "vocab-tgt.json"), config["tgt_vocab_size"], folder))
    return {"vocabulary.txt": source} if source == target else {"source.vocabulary.txt": source, "target.vocabulary.txt": target}
