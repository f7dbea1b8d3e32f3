"""Models of transformers that are one stack of layers, each a table of names and settings: LlamaForCausalLM, Qwen3ForCausalLM,
GPT2LMHeadModel, and the encoders alone BertForMaskedLM and ModernBertForMaskedLM.

    to_transformers      a plain model → (config.json, tensors)
    from_transformers    config.json and tensors → a plain model without its vocabulary

Beside fold.py's folds, GPT-2's and BERT's learned positions hold sinusoids, and a factor of the embeddings goes into a table of their own, the
output's apart. A bias or shift that the architecture has and the model has not is written as zeros.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any, Iterator

import numpy as np

from hadal_torch.fold import fold, require_plain_input
from hadal_torch.plain import MOST_POSITIONS, VASWANI, PlainModel, block_of, check_layers, check_weights, plain_settings, plain_shapes, position_table
from hadal_torch.refusal import Refusal

FORMAT = "huggingface"


@dataclass(frozen=True)
class Architecture:
    name: str
    model_type: str
    prefix: str  # of every tensor's name but those of `head`; files of the model without its head lack it
    layers: str  # the list of layers
    modules: "dict[str, str]"  # outside the layers: theirs → hadal's
    layer_modules: "dict[str, str | tuple[str, ...]]"  # in a layer: theirs → hadal's, or those whose rows it has one below the other
    transposed: bool  # products are [in, out]
    sizes: "dict[str, str]"  # of config.json → model settings; "block.…" are the block's
    block: "dict[str, object]"  # fields of the block with one value
    activation: "tuple[str, ...]"  # settings that name it
    # A setting that gives biases → the products that have them, by the beginning of hadal's name. Empty: all have biases, and all norms a shift.
    biases: "dict[str, str]" = field(default_factory=dict)
    fixed: "dict[str, object]" = field(default_factory=dict)  # others that change the model, with the one value that is written and read
    defaults: "dict[str, object]" = field(default_factory=dict)  # of transformers, where config.json has none; that of `fixed` is its value
    ignored: str = "$^"  # pattern of tensors that old files have and no model needs
    renamed: "dict[str, str]" = field(default_factory=dict)  # parts of names in old files
    stack: str = "decoder"
    norm: str = "pre"
    table: str = "lm_head.weight"  # the output's
    head: "dict[str, str]" = field(default_factory=dict)  # modules without the prefix: theirs → hadal's
    head_bias: str = ""  # tensor of the logits' bias, hadal's "….lm_head.bias"
    token_types: str = ""  # table of which hadal has row 0 in its positions

    def biased(self, name: str, config: dict[str, Any]) -> bool:
        """Whether one of its modules, of hadal's name in a layer or outside, has a bias or a shift."""
        if name.endswith(("embed_tokens", "embed_positions")) or not self.biases:
            return not name.endswith(("embed_tokens", "embed_positions"))
        return not name.endswith("norm") and any(config[setting] for setting, begin in self.biases.items() if name.startswith(begin))


# Fields of the block that every architecture can have in some way, if its table does not name them.
_FREE = {"norm_epsilon", "norm_shift", "activation", "biases", "rotary_theta", "rotary_share", "rotary_scaling", "rotary_scaling_positions",
         "scale_embedding", "initial_deviation", "initial_depth_factor"}
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "swish": "silu", "silu": "silu"}

LLAMA = Architecture(
    "LlamaForCausalLM", "llama", "model.", "layers",
    {"embed_tokens": "decoder.embed_tokens", "norm": "decoder.layer_norm"},
    {"self_attn.q_proj": "self_attn.q_proj", "self_attn.k_proj": "self_attn.k_proj", "self_attn.v_proj": "self_attn.v_proj",
     "self_attn.o_proj": "self_attn.out_proj", "input_layernorm": "self_attn_layer_norm", "mlp.gate_proj": "fc1", "mlp.up_proj": "fc3",
     "mlp.down_proj": "fc2", "post_attention_layernorm": "final_layer_norm"},
    transposed=False,
    sizes={"vocab_size": "target_vocabulary", "hidden_size": "d_model", "intermediate_size": "d_ff", "num_hidden_layers": "decoder_layers",
           "num_attention_heads": "heads", "num_key_value_heads": "block.kv_heads", "head_dim": "block.head_width",
           "max_position_embeddings": "max_positions", "rms_norm_eps": "block.norm_epsilon", "attention_dropout": "attention_dropout"},
    block={"norm": "rms", "norm_shift": False, "gated": True, "positions": "rotary", "rotary_share": 1.0},
    activation=("hidden_act",), biases={"attention_bias": "self_attn.", "mlp_bias": "fc"},
    defaults={"num_key_value_heads": 0, "head_dim": 0, "max_position_embeddings": 2048, "rms_norm_eps": 1e-6, "attention_dropout": 0.0,
              "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False},
    ignored=r"layers\.\d+\.self_attn\.rotary_emb\.inv_freq")

QWEN3 = replace(
    LLAMA, name="Qwen3ForCausalLM", model_type="qwen3", block={**LLAMA.block, "query_key_norm": True}, biases={"attention_bias": "self_attn."},
    layer_modules={**LLAMA.layer_modules, "self_attn.q_norm": "self_attn.q_norm", "self_attn.k_norm": "self_attn.k_norm"},
    fixed={"use_sliding_window": False}, defaults={**LLAMA.defaults, "head_dim": 128, "max_position_embeddings": 32768})

GPT2 = Architecture(
    "GPT2LMHeadModel", "gpt2", "transformer.", "h",
    {"wte": "decoder.embed_tokens", "wpe": "decoder.embed_positions", "ln_f": "decoder.layer_norm"},
    {"ln_1": "self_attn_layer_norm", "attn.c_attn": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
     "attn.c_proj": "self_attn.out_proj", "ln_2": "final_layer_norm", "mlp.c_fc": "fc1", "mlp.c_proj": "fc2"},
    transposed=True,
    sizes={"vocab_size": "target_vocabulary", "n_embd": "d_model", "n_inner": "d_ff", "n_layer": "decoder_layers", "n_head": "heads",
           "n_positions": "max_positions", "layer_norm_epsilon": "block.norm_epsilon", "embd_pdrop": "dropout", "resid_pdrop": "dropout",
           "attn_pdrop": "attention_dropout"},
    block={"norm": "layer", "gated": False, "positions": "learned"}, activation=("activation_function",),
    fixed={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    defaults={"n_inner": 0, "layer_norm_epsilon": 1e-5, "embd_pdrop": 0.1, "resid_pdrop": 0.1, "attn_pdrop": 0.1, "activation_function": "gelu_new",
              "tie_word_embeddings": True},
    ignored=r"h\.\d+\.attn\.(masked_)?bias")

BERT = Architecture(
    "BertForMaskedLM", "bert", "bert.", "encoder.layer",
    {"embeddings.word_embeddings": "encoder.embed_tokens", "embeddings.position_embeddings": "encoder.embed_positions",
     "embeddings.LayerNorm": "encoder.layernorm_embedding"},
    {"attention.self.query": "self_attn.q_proj", "attention.self.key": "self_attn.k_proj", "attention.self.value": "self_attn.v_proj",
     "attention.output.dense": "self_attn.out_proj", "attention.output.LayerNorm": "self_attn_layer_norm", "intermediate.dense": "fc1",
     "output.dense": "fc2", "output.LayerNorm": "final_layer_norm"},
    transposed=False,
    sizes={"vocab_size": "target_vocabulary", "hidden_size": "d_model", "intermediate_size": "d_ff", "num_hidden_layers": "encoder_layers",
           "num_attention_heads": "heads", "max_position_embeddings": "max_positions", "layer_norm_eps": "block.norm_epsilon",
           "hidden_dropout_prob": "dropout", "attention_probs_dropout_prob": "attention_dropout"},
    block={"norm": "layer", "gated": False, "positions": "learned", "embedding_norm": True}, activation=("hidden_act",),
    fixed={"is_decoder": False, "position_embedding_type": "absolute"},
    defaults={"layer_norm_eps": 1e-12, "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1, "hidden_act": "gelu",
              "tie_word_embeddings": True},
    ignored=r"pooler\..*|cls\.seq_relationship\..*|embeddings\.position_ids",
    renamed={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}, stack="encoder", norm="post",
    table="cls.predictions.decoder.weight", head_bias="cls.predictions.bias", token_types="bert.embeddings.token_type_embeddings.weight",
    head={"cls.predictions.transform.dense": "encoder.lm_head.dense", "cls.predictions.transform.LayerNorm": "encoder.lm_head.layer_norm"})

MODERNBERT = Architecture(
    "ModernBertForMaskedLM", "modernbert", "model.", "layers",
    {"embeddings.tok_embeddings": "encoder.embed_tokens", "embeddings.norm": "encoder.layernorm_embedding", "final_norm": "encoder.layer_norm"},
    {"attn_norm": "self_attn_layer_norm", "attn.Wqkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
     "attn.Wo": "self_attn.out_proj", "mlp_norm": "final_layer_norm", "mlp.Wi": ("fc1", "fc3"), "mlp.Wo": "fc2"},
    transposed=False,
    sizes={"vocab_size": "target_vocabulary", "hidden_size": "d_model", "intermediate_size": "d_ff", "num_hidden_layers": "encoder_layers",
           "num_attention_heads": "heads", "max_position_embeddings": "max_positions", "norm_eps": "block.norm_epsilon",
           "local_attention": "block.window", "global_attn_every_n_layers": "block.global_every", "global_rope_theta": "block.rotary_theta",
           "local_rope_theta": "block.rotary_local_theta", "embedding_dropout": "dropout", "mlp_dropout": "activation_dropout",
           "attention_dropout": "attention_dropout"},
    block={"norm": "layer", "norm_shift": False, "gated": True, "positions": "rotary", "rotary_share": 1.0, "rotary_scaling": 1.0,
           "embedding_norm": True, "first_norm": False},
    activation=("hidden_activation", "classifier_activation"), biases={"attention_bias": "self_attn.", "mlp_bias": "fc"},
    fixed={"norm_bias": False, "classifier_bias": False, "decoder_bias": True},
    defaults={"norm_eps": 1e-5, "local_attention": 128, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 10000.0,
              "embedding_dropout": 0.0, "mlp_dropout": 0.0, "attention_dropout": 0.0, "hidden_activation": "gelu", "classifier_activation": "gelu", "attention_bias": False,
              "mlp_bias": False, "tie_word_embeddings": True},
    stack="encoder", table="decoder.weight", head_bias="decoder.bias",
    head={"head.dense": "encoder.lm_head.dense", "head.norm": "encoder.lm_head.layer_norm"})

ARCHITECTURES = {architecture.model_type: architecture for architecture in (LLAMA, QWEN3, GPT2, BERT, MODERNBERT)}


def _modules(architecture: Architecture, layers: int) -> "Iterator[tuple[str, list[str], str]]":
    """(theirs, hadal's, hadal's without the layer) of every module."""
    for theirs, ours in architecture.modules.items():
        yield architecture.prefix + theirs, [ours], ours
    for theirs, ours in architecture.head.items():
        yield theirs, [ours], ours
    for i in range(layers):
        for theirs, names in architecture.layer_modules.items():
            if i == 0 and names == "self_attn_layer_norm" and not architecture.block.get("first_norm", True):
                continue
            parts = [names] if isinstance(names, str) else list(names)
            yield f"{architecture.prefix}{architecture.layers}.{i}.{theirs}", [f"{architecture.stack}.layers.{i}.{part}" for part in parts], parts[0]


def _is_product(name: str) -> bool:
    return "embed" not in name and not name.endswith("norm")  # layernorm_embedding is none, too


def _tables(architecture: Architecture) -> "tuple[str, str]":
    """hadal's names of the embedding and of an output table of its own."""
    stack = architecture.stack
    return f"{stack}.embed_tokens.weight", "encoder.lm_head.weight" if stack == "encoder" else "decoder.output_projection.weight"


def _second_bias(architecture: Architecture) -> str:
    """The name of the logits' bias beside the output's table."""
    return architecture.table.removesuffix("weight") + "bias"


def _misfit(architecture: Architecture, model: dict[str, Any], block: dict[str, Any]) -> str:
    """The first field of the block that the architecture has not, or ""."""
    if model[f"{architecture.stack}_layers"] == 0 or model[architecture.stack]["norm"] != architecture.norm:
        return f"{architecture.name} has {architecture.stack} layers whose norm is \"{architecture.norm}\""
    wanted = {**{name: value for name, value in VASWANI.items() if name not in _FREE}, **architecture.block}
    wanted.update(kv_heads=model["heads"], head_width=model["d_model"] / model["heads"])
    for ours in architecture.sizes.values():
        wanted.pop(ours.removeprefix("block."), None)
    if "block.window" in architecture.sizes.values() and not (block["window"] and block["global_every"]):
        return f"{architecture.name} has a window and every n-th layer without it, this model {block['window']} and {block['global_every']}"
    for name, value in block.items():
        if value != wanted.get(name, value if name in _FREE or f"block.{name}" in architecture.sizes.values() else None):
            return f"{architecture.name} has model.block.{name} {wanted.get(name)!r}, this model {value!r}"
    return ""


def _config(architecture: Architecture, model: dict[str, Any], block: dict[str, Any], weights: "dict[str, np.ndarray[Any, Any]]",
            tied: bool) -> dict[str, Any]:
    config: dict[str, Any] = {"model_type": architecture.model_type, "architectures": [architecture.name], "dtype": "float32"}
    for theirs, ours in architecture.sizes.items():
        config[theirs] = block[ours.removeprefix("block.")] if ours.startswith("block.") else model[ours]
    config.update(architecture.fixed)
    if "n_positions" in config:
        config["n_ctx"] = config["n_positions"]  # llama.cpp's converter reads it
    for setting in architecture.activation:
        config[setting] = [theirs for theirs, ours in _ACTIVATIONS.items() if ours == block["activation"]][-1]
    if architecture.token_types:
        config["type_vocab_size"] = 2
    for setting, begin in architecture.biases.items():
        config[setting] = any(name.startswith(f"{architecture.stack}.layers.0.{begin}") and name.endswith(".bias") for name in weights)
    if block["positions"] == "rotary":  # transformers 4 reads the first two, 5 the last
        rope: dict[str, Any] = {"rope_type": "default"}
        if block["rotary_scaling"] != 1:
            rope = {"rope_type": "llama3", "factor": block["rotary_scaling"], "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                    "original_max_position_embeddings": block["rotary_scaling_positions"]}
        if "local_rope_theta" in architecture.sizes:  # 5: by the kind of layer
            kinds = {"full_attention": "rotary_theta", "sliding_attention": "rotary_local_theta"}
            every = block["global_every"]
            types = ["sliding_attention" if every == 0 or i % every else "full_attention" for i in range(model["encoder_layers"])]
            return {**config, "layer_types": types, "rope_parameters": {kind: {**rope, "rope_theta": block[name]} for kind, name in kinds.items()},
                    "tie_word_embeddings": tied}
        theta = {"rope_theta": block["rotary_theta"]}
        config.update(**theta, rope_scaling=None if len(rope) == 1 else rope, rope_parameters={**rope, **theta})
    return {**config, "tie_word_embeddings": tied}


def to_transformers(plain: PlainModel) -> "tuple[dict[str, Any], dict[str, np.ndarray[Any, Any]]]":
    """Raises Refusal, with the reason, for what no architecture can hold."""
    folded, model, block = fold(plain, FORMAT), plain.model, block_of(plain.model)
    require_plain_input(folded, FORMAT)
    block["rotary_local_theta"] = block["rotary_local_theta"] or (block["rotary_theta"] if block["window"] else 0.0)
    if block["positions"] == "sinusoidal":
        block["positions"] = "learned"
        folded.weights[f"{plain.stacks()[0]}.embed_positions.weight"] = position_table(model["max_positions"], model["d_model"]).astype(np.float32)
    misfits = [_misfit(architecture, model, block) for architecture in ARCHITECTURES.values()]
    if all(misfits):
        raise Refusal(f"{FORMAT} has no architecture for this model: {'; '.join(misfits)}. "
                      "Only `hadal checkpoint export` without --format and hadal_torch.Model hold it, and --format ctranslate2 many language models")
    architecture = list(ARCHITECTURES.values())[misfits.index("")]
    table, tied = folded.target_table, model["sharing"] != "none" and not block["scale_embedding"]
    if block["scale_embedding"]:
        table = (table * math.sqrt(model["d_model"])).astype(np.float32)
    weights = {**folded.weights, _tables(architecture)[0]: table}
    config = _config(architecture, model, block, weights, tied)
    tensors = {} if tied else {architecture.table: folded.output_table}
    if architecture.head_bias:
        tensors[architecture.head_bias] = bias = weights.pop(f"{architecture.stack}.lm_head.bias")
        if not tied and architecture.norm == "post":  # BERT: transformers 5 then reads the second name; tied, 4 and 5 the first
            tensors[_second_bias(architecture)] = bias
    if architecture.token_types:
        tensors[architecture.token_types] = np.zeros((2, model["d_model"]), np.float32)
    for theirs, ours, short in _modules(architecture, model[f"{architecture.stack}_layers"]):
        matrices = [weights.pop(f"{name}.weight") for name in ours]
        whole = np.concatenate(matrices)
        tensors[f"{theirs}.weight"] = whole.T if architecture.transposed and _is_product(short) else whole
        if architecture.biased(short, config):
            tensors[f"{theirs}.bias"] = np.concatenate([weights.pop(f"{name}.bias", np.zeros(len(matrix), np.float32))
                                                        for name, matrix in zip(ours, matrices)])
    if weights:
        raise Refusal(f"{FORMAT}: {architecture.name} has no place for {next(iter(weights))}")
    return config, tensors


def _setting(origin: str, architecture: Architecture, config: dict[str, Any], name: str) -> Any:
    value = config.get(name)
    if value is None:
        value = architecture.defaults.get(name)
    if value is None:
        raise Refusal(f"{origin} lacks {name}")
    return value


def _rotary(origin: str, config: dict[str, Any]) -> dict[str, Any]:
    """The block's theta and Llama 3.1's scaling; of ModernBERT what transformers 5 saved under other names than 4."""
    if "layer_types" in config and config["model_type"] == "modernbert":
        return _by_layer_type(origin, config)
    of_4, of_5 = config.get("rope_scaling") or {}, config.get("rope_parameters") or {}
    thetas = {float(rope["rope_theta"]) for rope in (config, of_5) if rope.get("rope_theta") is not None}
    if len(thetas) > 1:
        raise Refusal(f"{origin}: rope_theta and rope_parameters differ; transformers 4 reads the one, 5 the other")
    block = {"rotary_theta": thetas.pop()} if thetas else {}
    rope = of_5 or of_4
    if of_4 and of_5 and any(of_5.get(name) != value for name, value in of_4.items()):
        raise Refusal(f"{origin}: rope_scaling and rope_parameters differ; transformers 4 reads the one, 5 the other")
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "llama3":
        if (rope["low_freq_factor"], rope["high_freq_factor"]) != (1, 4):
            raise Refusal(f"{origin}: low_freq_factor and high_freq_factor are {rope['low_freq_factor']} and {rope['high_freq_factor']}; hadal has 1 and 4")
        return {**block, "rotary_scaling": rope["factor"], "rotary_scaling_positions": rope["original_max_position_embeddings"]}
    if kind != "default":
        raise Refusal(f"{origin}: rope_type is {kind!r}; hadal has 'default' and 'llama3'")
    return block


def _by_layer_type(origin: str, config: dict[str, Any]) -> dict[str, Any]:
    globals_, ropes = [i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"], config["rope_parameters"]
    every = next((i for i in globals_ if i > 0), len(config["layer_types"])) if globals_ else 0
    if globals_ != (list(range(0, len(config["layer_types"]), every)) if every else []):
        raise Refusal(f"{origin}: layer_types has full attention in the layers {globals_}; hadal has it in every n-th, from the first on")
    kinds = {rope.get("rope_type", "default") for rope in ropes.values()} - {"default"}
    if kinds:
        raise Refusal(f"{origin}: rope_type is {kinds.pop()!r}; hadal scales no positions of windows")
    return {"rotary_theta": ropes["full_attention"]["rope_theta"], "rotary_local_theta": ropes["sliding_attention"]["rope_theta"],
            "global_every": every}


def _settings(origin: str, architecture: Architecture, config: dict[str, Any]) -> dict[str, Any]:
    """The model's settings. Where some settings give biases and others none, these are "qkv"."""
    for name, value in architecture.fixed.items():
        if config.get(name, value) != value:
            raise Refusal(f"{origin}: {name} is {config[name]!r}; hadal has {value!r} there")
    if config.get("local_rope_theta", 0) is None:  # ModernBERT's mark for the other theta
        config = {**config, "local_rope_theta": 0.0}
    values = {theirs: _setting(origin, architecture, config, theirs) for theirs in architecture.sizes}
    activations = {setting: _setting(origin, architecture, config, setting) for setting in architecture.activation}
    for setting, activation in activations.items():
        if activation not in _ACTIVATIONS or activation != activations[architecture.activation[0]]:
            raise Refusal(f"{origin}: {setting} is {activation!r}; hadal has one of {', '.join(_ACTIVATIONS)} in every place")
    biases = [_setting(origin, architecture, config, setting) for setting in architecture.biases]
    of_all = all(biases) and (not biases or "fc" in architecture.biases.values())
    block: dict[str, Any] = {**architecture.block, "activation": _ACTIVATIONS[activations[architecture.activation[0]]], "scale_embedding": False,
             "biases": "all" if of_all else "qkv" if any(biases) else "none"}
    model: dict[str, Any] = {"sharing": "all" if _setting(origin, architecture, config, "tie_word_embeddings") else "none"}
    for theirs, ours in architecture.sizes.items():
        (block if ours.startswith("block.") else model)[ours.removeprefix("block.")] = values[theirs]
    if block["positions"] == "rotary":
        block.update(_rotary(origin, config))
    model["d_ff"] = model["d_ff"] or 4 * model["d_model"]  # GPT-2's n_inner null
    model["max_positions"] = min(MOST_POSITIONS, model["max_positions"])
    # As hadal's presets have them: 0 for the rest's.
    for name, usual in (("kv_heads", model["heads"]), ("head_width", model["d_model"] / model["heads"])):
        block[name] = 0 if block.get(name) == usual else block.get(name, 0)
    return plain_settings(architecture.norm == "pre", **model, block={name: value for name, value in block.items() if value != VASWANI[name]})


def from_transformers(origin: str, config: dict[str, Any], path: str, tensors: "dict[str, np.ndarray[Any, Any]]") -> PlainModel:
    """Of the folder `origin`, whose weights are in `path`. Raises Refusal, by name, for what hadal is not."""
    architecture = ARCHITECTURES[config["model_type"]]
    model = _settings(origin, architecture, config)
    prefix = architecture.prefix
    for old, new in architecture.renamed.items():
        tensors = {name.replace(old, new): value for name, value in tensors.items()}
    apart = (architecture.table, _second_bias(architecture), architecture.head_bias or architecture.table,
             *(f"{name}." for name in architecture.head))
    tensors = {name if name.startswith(apart) else prefix + name.removeprefix(prefix): value for name, value in tensors.items()
               if not re.fullmatch(architecture.ignored, name.removeprefix(prefix))}
    stack, (table, own) = architecture.stack, _tables(architecture)
    check_layers(f"{origin}/config.json", {"encoder": 0, "decoder": 0, stack: model[f"{stack}_layers"]}, path,
                 [name.replace(f"{prefix}{architecture.layers}.", f"{stack}.layers.", 1) for name in tensors])
    head = tensors.pop(architecture.table, None)
    shapes, weights = plain_shapes(model), {}
    if model["sharing"] == "none" and head is None:
        raise Refusal(f"{path} lacks {architecture.table}, and tie_word_embeddings is false: transformers would draw it at random")
    if architecture.head_bias:
        bias, second = tensors.pop(architecture.head_bias, None), _second_bias(architecture)
        if bias is None:
            raise Refusal(f"{path} lacks {architecture.head_bias}: this is a model without its head, or one that transformers 4 cannot run")
        if not np.array_equal(tensors.pop(second, bias), bias):
            raise Refusal(f"{path}: {architecture.head_bias} and {second} differ: transformers 4 takes the one, 5 the other")
        weights[f"{stack}.lm_head.bias"] = bias
    if architecture.token_types in tensors:
        positions = f"{prefix}embeddings.position_embeddings.weight"
        tensors[positions] = tensors[positions] + tensors.pop(architecture.token_types)[0]
    for theirs, ours, short in _modules(architecture, model[f"{stack}_layers"]):
        for kind in ("weight", "bias") if architecture.biased(short, {**architecture.defaults, **config}) else ("weight",):
            whole = tensors.pop(f"{theirs}.{kind}", None)
            if whole is None:
                raise Refusal(f"{path} lacks {theirs}.{kind}")
            if kind == "weight" and architecture.transposed and _is_product(short):
                whole = whole.T
            rows = [shapes[f"{name}.weight"][0] for name in ours]
            if whole.ndim == 0 or len(whole) != sum(rows):
                raise Refusal(f"{path}: {theirs}.{kind} has the shape {list(whole.shape)}, and {sum(rows)} rows or columns are expected")
            parts = zip(ours, np.split(whole, np.cumsum(rows)[:-1]))
            weights.update({f"{name}.{kind}": np.ascontiguousarray(part) for name, part in parts})
    if tensors:
        raise Refusal(f"{path} has {len(tensors)} weights that {architecture.name} lacks, the first {min(tensors)}")
    if head is not None and model["sharing"] == "none":
        weights[own] = head
    elif head is not None and not np.array_equal(head, weights[table]):
        raise Refusal(f"{path}: tie_word_embeddings is true, and {architecture.table} differs from the embedding: transformers 4 takes the "
                      "embedding, 5 the head")
    for name in sorted(weights.keys() - shapes.keys()):  # a bias of a product that has none in hadal
        if np.any(weights.pop(name)):
            raise Refusal(f"{path}: hadal has biases for every product, for queries, keys and values alone, or for none; here {name} is there, "
                          "and others are not")
    check_weights(path, model, weights)
    return PlainModel(model, weights, {})
