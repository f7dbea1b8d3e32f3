"""Writes and reads folders of Hugging Face transformers. Of encoder-decoders: FSMT for Post-LN models, M2M100 (NLLB's dense models
too) for Pre-LN models; of language models and encoders alone: architectures.py.

config.json, generation_config.json, model.safetensors, tokenizer.json and tokenizer_config.json, README.md (the model card), and the
vocabulary as it is. FSMT and M2M100 share fairseq's names under "model."; FSMT makes no final norms, M2M100 has them.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np

from hadal_torch.architectures import ARCHITECTURES, from_transformers, to_transformers
from hadal_torch.fold import Folded, fold_translation, require_plain_input
from hadal_torch.huggingface_vocabulary import fsmt_vocabularies, read_json, set_vocabulary, vocabulary_of
from hadal_torch.inputs import bare_name
from hadal_torch.plain import MOST_POSITIONS, PlainModel, check_layers, check_weights, deduplicate_tables, plain_settings, position_table
from hadal_torch.refusal import Refusal, damaged
from hadal_torch.tensors import read_safetensors, write_safetensors
from hadal_torch.tokenizer import first_token, parse_vocabulary, tokenizer_json

FORMAT = "huggingface"


def _architecture(plain: PlainModel, folded: Folded) -> dict[str, Any]:
    model = plain.model
    config = {
        "is_encoder_decoder": True, "d_model": model["d_model"], "activation_function": "relu", "scale_embedding": True,
        "encoder_layers": model["encoder_layers"], "decoder_layers": model["decoder_layers"],
        "encoder_ffn_dim": model["d_ff"], "decoder_ffn_dim": model["d_ff"],
        "encoder_attention_heads": model["heads"], "decoder_attention_heads": model["heads"],
        "encoder_layerdrop": 0.0, "decoder_layerdrop": 0.0, "max_position_embeddings": model["max_positions"],
        "dropout": model["dropout"], "attention_dropout": model["attention_dropout"],
        "activation_dropout": model["activation_dropout"],
        **_IDS, "decoder_start_token_id": 2,
        "tie_word_embeddings": model["sharing"] == "all", "torch_dtype": "float32",
        **({"hadal_tags": plain.facts["inputs"]["tags"]} if "tags" in plain.facts.get("inputs", {}) else {}),
    }
    if folded.pre_norm:
        return {"model_type": "m2m_100", "architectures": ["M2M100ForConditionalGeneration"],
                "vocab_size": model["target_vocabulary"], **config}
    return {"model_type": "fsmt", "architectures": ["FSMTForConditionalGeneration"], "langs": ["source", "target"],
            "src_vocab_size": model["source_vocabulary"], "tgt_vocab_size": model["target_vocabulary"], **config}


def _tensors(plain: PlainModel, folded: Folded) -> "dict[str, np.ndarray[Any, Any]]":
    tensors = {f"model.{name}": value for name, value in folded.weights.items()}
    assert folded.source_table is not None  # of an encoder-decoder
    if folded.pre_norm:
        return {"model.shared.weight": folded.source_table, **tensors}
    # FSMT makes its sinusoids, but transformers warns of weights that are not stored. Row = position; row 1 is <pad>'s.
    positions = np.zeros((plain.model["max_positions"] + 2, plain.model["d_model"]), np.float32)
    positions[2:] = position_table(plain.model["max_positions"], plain.model["d_model"])
    # The target table has both its names, because versions of transformers tie FSMT's tables in different ways.
    return {"model.encoder.embed_tokens.weight": folded.source_table, "model.decoder.embed_tokens.weight": folded.target_table,
            "model.decoder.output_projection.weight": folded.target_table, "model.encoder.embed_positions.weight": positions,
            "model.decoder.embed_positions.weight": positions, **tensors}


_IDS = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}


def _generation(plain: PlainModel) -> dict[str, Any]:
    """hadal's beam search: as many hypotheses as beams end it; <s> and <pad> are never generated."""
    no_repeat = int(plain.config_value("decode.no_repeat_ngram", "0"))
    beam = int(plain.config_value("decode.beam", "4"))
    # transformers refuses to save settings of beam search beside one beam.
    search = {"early_stopping": True, "length_penalty": float(plain.config_value("decode.length_penalty", "0.6"))} if beam > 1 else {}
    return {**_IDS, "decoder_start_token_id": 2, "num_beams": beam, **search, "min_new_tokens": 1,
            "suppress_tokens": [0, 1], "max_length": plain.model["max_positions"],
            # 1 would exclude </s>, with which the decoder begins, so that nothing ends; hadal never excludes it.
            "no_repeat_ngram_size": 0 if no_repeat == 1 else no_repeat}


def model_card(plain: PlainModel) -> str:
    model, stacks = plain.model, plain.stacks()
    task, title = {2: ("translation", "translation model"), 1: ("text-generation", "language model")}[len(stacks)]
    if stacks == ["encoder"]:
        task, title = "fill-mask", "masked language model"
    encoder, decoder = model["encoder_layers"], model["decoder_layers"]
    method = plain.config_value("model.residual.method", "post_ln")
    parameters = sum(value.size for value in plain.weights.values())
    lines = [
        "---", "library_name: transformers", f"pipeline_tag: {task}", "tags: [hadal]", "---", "",
        f"# A {'-'.join(f'{layers}L' for layers in (encoder, decoder) if layers)} {title}", "",
        "Trained with hadal and exported by `hadal checkpoint export --format huggingface`.", "",
        "| | |", "|---|---|",
        f"| residual method | {method}, folded into a plain {'Pre' if model[stacks[-1]]['norm'] == 'pre' else 'Post'}-LN Transformer |",
        f"| depth | {' and '.join(f'{layers} {stack}' for stack, layers in (('encoder', encoder), ('decoder', decoder)) if layers)} layers, "
        f"{2 * encoder + (1 + len(stacks)) * decoder} sublayers |",
        f"| sizes | d_model {model['d_model']}, d_ff {model['d_ff']}, {model['heads']} heads, {parameters:,} parameters |",
        f"| training | step {plain.step}, {plain.update} updates |",
        f"| data | {plain.config_value('data.train', 'not recorded')} |",
    ]
    if "validation_nll" in plain.facts:
        lines.append(f"| validation nll | {plain.facts['validation_nll']:.4f} a token |")
    if plain.vocabulary("target")[0].endswith(".txt"):
        lines += ["", "Its tokenizer splits text at white space. If the model learned from BPE or SentencePiece pieces, encode the text "
                  "with the same codes first, and join the pieces of the output."]
    return "\n".join(lines) + "\n"


def _translation(plain: PlainModel) -> "tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]":
    """(config.json, tensors) of an encoder-decoder."""
    folded = fold_translation(plain, FORMAT)
    require_plain_input(folded, FORMAT)
    if plain.vocabulary("source")[1] != plain.vocabulary("target")[1]:
        raise Refusal(f"{FORMAT} has one tokenizer for both languages, and this model has {' and '.join(plain.vocabularies)}; "
                      "--format ctranslate2 and --format fairseq store two")
    if folded.pre_norm and plain.model["sharing"] != "all":
        raise Refusal(f"{FORMAT}: M2M100, the Pre-LN model, has one table for source, target and output; model.sharing is "
                      f"\"{plain.model['sharing']}\"; --format ctranslate2 stores three")
    if plain.model["sharing"] == "none":
        raise Refusal(f"{FORMAT}: FSMT has one table for target and output (transformers 4 ties them whatever the file says); "
                      "model.sharing is \"none\"; --format ctranslate2 and --format fairseq store three")
    return _architecture(plain, folded), _tensors(plain, folded)


def _one_stack(plain: PlainModel) -> "tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]], dict[str, Any] | None]":
    """(config.json, tensors, generation_config.json); the last is `hadal sample`'s draws, or None of an encoder alone."""
    config, tensors = to_transformers(plain)
    if plain.stacks() == ["encoder"]:
        ids = _IDS if plain.reserved_ids() else {f"{role}_id": i for role, i in _roles(plain).items() if role != "mask_token"}
        return {**config, **ids}, tensors, None
    start, end = plain.text_ends()
    ids = {"bos_token_id": start, "eos_token_id": end, "pad_token_id": _IDS["pad_token_id"] if plain.reserved_ids() else end}
    never = [0, 1] if plain.reserved_ids() else [start] if start != end else []
    never += [plain.model["mask_token"]] if "mask_token" in plain.model else []
    # max_length 20 is transformers' mark for "not set".
    longest = plain.model["max_positions"] - (plain.model["max_positions"] == 20)
    generation = {**ids, "do_sample": True, "top_k": 0, "min_new_tokens": 1, "max_length": longest}
    return {**config, **ids}, tensors, {**generation, **({"suppress_tokens": never} if never else {})}


def _roles(plain: PlainModel) -> "dict[str, int]":
    """The special tokens of a tokenizer.json by their names in tokenizer_config.json."""
    start, end = plain.text_ends()
    roles = {"bos_token": start, "eos_token": end}
    if "encoder" in plain.stacks():
        name, contents = plain.vocabulary("target")
        first, tokens = first_token(name, contents, end), parse_vocabulary(name, contents).tokens
        pad = next((tokens.index(token) for token in ("[PAD]", "<pad>") if token in tokens), end)
        roles = {"bos_token": first, "eos_token": end, "cls_token": first, "sep_token": end, "pad_token": pad}
    return {**roles, **({"mask_token": plain.model["mask_token"]} if "mask_token" in plain.model else {})}


def _tokenizer(plain: PlainModel) -> "dict[str, dict[str, Any] | bytes]":
    """The tokenizer's files. That of a tokenizer.json is its own."""
    ends = "encoder" in plain.stacks()  # whether </s> follows a text, instead of coming first
    name, contents = plain.vocabulary("target")
    vocabulary = parse_vocabulary(name, contents)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": plain.model["max_positions"], "clean_up_tokenization_spaces": False,
              "model_input_names": ["input_ids", "attention_mask"]}
    if vocabulary.kind == "tokenizer":
        roles = {role: vocabulary.tokens[i] for role, i in _roles(plain).items()}
        return {name: contents, "tokenizer_config.json": {**config, **roles}}
    # Tags are written in the text, and transformers finds all special tokens there or none: without tags none, as hadal.
    names = {"bos_token": "<s>" if ends else "</s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
             **({"mask_token": "<mask>"} if "<mask>" in vocabulary.tokens else {}), "split_special_tokens": not vocabulary.control}
    return {name: contents, "tokenizer.json": tokenizer_json(vocabulary, ends), "tokenizer_config.json": {**config, **names}}


def write_huggingface(plain: PlainModel, folder: str) -> str:
    """Writes the folder, which must exist, and returns a note for the user. Raises Refusal for what the format cannot express."""
    config, tensors, generation = (*_translation(plain), _generation(plain)) if len(plain.stacks()) == 2 else _one_stack(plain)
    files = {"config.json": config, "README.md": model_card(plain).encode(), **_tokenizer(plain),
             **({"generation_config.json": generation} if generation else {})}
    for name, value in files.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(value if isinstance(value, bytes) else json.dumps(value, indent=2, ensure_ascii=False).encode())
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    note = "; to score a given translation with it, pass use_cache=False" if config["model_type"] == "fsmt" else ""
    return f"{config['architectures'][0]}{note}"


def _refuse_others(folder: str, config: dict[str, Any]) -> None:
    """For settings that make another model of the same weights."""
    if config.get("model_type") not in ("fsmt", "m2m_100"):
        raise Refusal(f"{folder}: model_type is {config.get('model_type')!r}; importable are 'fsmt', 'm2m_100', "
                      f"{', '.join(map(repr, ARCHITECTURES))}")
    wanted = {"activation_function": "relu", "scale_embedding": True, "pad_token_id": 1, "eos_token_id": 2,
              "decoder_start_token_id": 2, "encoder_attention_heads": config["decoder_attention_heads"],
              "encoder_ffn_dim": config["decoder_ffn_dim"]}
    for name, value in wanted.items():
        if config.get(name, value) != value:
            raise Refusal(f"{folder}: {name} is {config[name]!r}; hadal has {value!r} there")


def _read_tensors(folder: str) -> "tuple[str, dict[str, np.ndarray[Any, Any]]]":
    """The file, or the index of its shards, and name → tensor. A shard holds what the index says, and nothing else."""
    path = os.path.join(folder, "model.safetensors")
    if os.path.exists(path):
        return path, read_safetensors(path)
    path += ".index.json"
    index = read_json(folder, os.path.basename(path))
    if index is None:
        raise Refusal(f"{folder} lacks model.safetensors and its index; pickled weights are not read: load them with transformers, "
                      "and save_pretrained(FOLDER)")
    shard_of = index.get("weight_map")
    if not isinstance(shard_of, dict) or not all(isinstance(shard, str) for shard in shard_of.values()):
        raise Refusal(f"{path} has no \"weight_map\" from weights to shards")
    tensors: "dict[str, np.ndarray[Any, Any]]" = {}
    for shard in sorted({bare_name(path, shard) for shard in shard_of.values()}):
        found = read_safetensors(os.path.join(folder, shard))
        if tensors.keys() & found.keys():
            raise damaged(f"{path}: {shard} has weights of another shard, too, such as {sorted(tensors.keys() & found.keys())[0]}")
        tensors.update(found)
    different = sorted(tensors.keys() ^ shard_of.keys())
    if different:
        raise Refusal(f"{path} and its shards differ in {len(different)} weights, the first {different[0]}")
    return path, tensors


def read_huggingface(folder: str) -> PlainModel:
    """Of a folder with config.json, model.safetensors or its shards, and a vocabulary. Raises Refusal, by name, for what hadal is not."""
    config = read_json(folder, "config.json")
    if config is None:
        raise Refusal(f"{folder} lacks config.json")
    if config.get("model_type") in ARCHITECTURES:
        plain = from_transformers(folder, config, *_read_tensors(folder))
        set_vocabulary(folder, config, plain)
        return plain
    _refuse_others(folder, config)
    path, tensors = _read_tensors(folder)
    weights = {name.removeprefix("model."): value for name, value in tensors.items()}
    for name in [name for name in weights if name.endswith((".version", ".embed_positions.weight", ".embed_positions.weights"))]:
        del weights[name]  # sinusoids, which are made
    check_layers(os.path.join(folder, "config.json"), {stack: config[f"{stack}_layers"] for stack in ("encoder", "decoder")}, path, weights)
    pre_norm = config["model_type"] == "m2m_100"
    rename = {"shared.weight": "encoder.embed_tokens.weight", "lm_head.weight": "decoder.output_projection.weight"}
    weights = {rename.get(name, name): value for name, value in weights.items()}
    if not pre_norm:  # transformers 4 ties FSMT's target and output tables always, and stores one of their names
        if "decoder.embed_tokens.weight" not in weights and "decoder.output_projection.weight" in weights:
            weights["decoder.embed_tokens.weight"] = weights.pop("decoder.output_projection.weight")
    for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
        if config.get("tie_word_embeddings", pre_norm) and name in weights:  # one table, stored under any of its names
            weights.setdefault("encoder.embed_tokens.weight", weights[name])
    sharing = deduplicate_tables(path, weights)
    model = plain_settings(
        pre_norm, encoder_layers=config["encoder_layers"], decoder_layers=config["decoder_layers"], d_model=config["d_model"],
        d_ff=config["encoder_ffn_dim"], heads=config["encoder_attention_heads"],
        source_vocabulary=config["vocab_size" if pre_norm else "src_vocab_size"],
        target_vocabulary=config["vocab_size" if pre_norm else "tgt_vocab_size"],
        max_positions=min(MOST_POSITIONS, config.get("max_position_embeddings", 1024)), sharing=sharing, dropout=config.get("dropout", 0.1),
        attention_dropout=config.get("attention_dropout", 0.0), activation_dropout=config.get("activation_dropout", 0.0))
    check_weights(path, model, weights)
    vocabularies = vocabulary_of(folder, config["vocab_size"]) if pre_norm else fsmt_vocabularies(folder, config)
    generation = read_json(folder, "generation_config.json") or {}
    decode = []
    beam, penalty = generation.get("num_beams"), generation.get("length_penalty")
    if isinstance(beam, int) and 1 <= beam <= 64:  # what hadal's config allows; of other values its default holds
        decode.append(f"  beam: {int(beam)}\n")
    if isinstance(penalty, (int, float)) and 0 <= penalty <= 10:
        decode.append(f"  length_penalty: {float(penalty)}\n")
    ngram = generation.get("no_repeat_ngram_size")
    if isinstance(ngram, int) and 1 <= ngram <= 1024:
        decode.append(f"  no_repeat_ngram: {int(ngram)}\n")
    facts = {"inputs": {"tags": config["hadal_tags"]}} if config.get("hadal_tags") in ("none", "deepnet", "m2m100") else {}
    return PlainModel(model, weights, vocabularies, config="".join(["decode {\n", *decode, "}\n"]), facts=facts)
