"""Writes a folder that ctranslate2.Translator loads, or ctranslate2.Generator if the model is a language model: model.bin,
config.json, vocabularies, and the text's vocabulary as it is.

CTranslate2 stores position tables and each of the three embedding tables, so Admin and every sharing fit. Its <pad> is <blank>.
"""

from __future__ import annotations

import math
import os
from typing import Any, Callable

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerDecoderModelSpec, TransformerSpec
from ctranslate2.specs.common_spec import Activation, LinearSpec
from ctranslate2.converters.utils import fuse_linear

from hadal_torch.fold import Folded, fold, fold_translation
from hadal_torch.plain import VASWANI, PlainModel, block_of, position_table
from hadal_torch.refusal import Refusal
from hadal_torch.tokenizer import SPECIAL, parse_vocabulary

FORMAT = "ctranslate2"
_FEWEST_ROWS = 512  # of a position table: translate_batch decodes up to 256 tokens by default, and an error there ends the whole batch
# Fields of a language model's block that have a place.
_BLOCK = {"norm", "norm_epsilon", "norm_shift", "activation", "gated", "biases", "positions", "rotary_theta", "rotary_share", "kv_heads", "head_width",
          "query_key_norm", "scale_embedding", "initial_deviation", "initial_depth_factor"}
_ACTIVATIONS = {"relu": Activation.RELU, "gelu": Activation.GELU, "gelu_tanh": Activation.GELUTanh, "silu": Activation.SWISH}


def _linear(spec: LinearSpec, folded: Folded, name: str) -> LinearSpec:
    spec.weight = folded.weights[name + ".weight"]
    if name + ".bias" in folded.weights:
        spec.bias = folded.weights[name + ".bias"]
    return spec


def _norm(spec: Any, folded: Folded, name: str) -> None:
    spec.gamma = folded.weights[name + ".weight"]
    if hasattr(spec, "beta"):  # LayerNorm
        spec.beta = folded.weights.get(name + ".bias", np.zeros_like(spec.gamma))


def _attention(spec: Any, folded: Folded, name: str, fused: "list[str]") -> None:
    """`fused`: how q, k and v are stacked to matrices, "qkv" or "q", "kv"."""
    for part, products in zip(spec.linear, fused):
        fuse_linear(part, [_linear(LinearSpec(), folded, f"{name}.{p}_proj") for p in products])
    for norm in (norm for norm in ("q_norm", "k_norm") if f"{name}.{norm}.weight" in folded.weights):
        _norm(getattr(spec, norm), folded, f"{name}.{norm}")
    _linear(spec.linear[-1], folded, name + ".out_proj")
    _norm(spec.layer_norm, folded, name + "_layer_norm")


def _positions(folded: Folded, plain: PlainModel, stack: str) -> "np.ndarray[Any, Any] | None":
    """The table that is added to the embeddings, or None with rotary positions."""
    kind, rows, d = block_of(plain.model)["positions"], max(plain.model["max_positions"], _FEWEST_ROWS), plain.model["d_model"]
    tables: "dict[str, Callable[[], np.ndarray[Any, Any] | None]]" = {
        "learned": lambda: folded.weights[f"{stack}.embed_positions.weight"], "sinusoidal": lambda: position_table(rows, d),
        "none": lambda: np.zeros((rows, d)), "rotary": lambda: None}
    return tables[kind]()


def _stack(spec: Any, embeddings: Any, table: np.ndarray[Any, Any], folded: Folded, plain: PlainModel, stack: str) -> None:
    d, block = plain.model["d_model"], block_of(plain.model)
    scale = folded.input_scale[stack]
    scale = np.ones(d) if scale is None else scale
    embeddings.weight = (table * scale).astype(np.float32)
    spec.scale_embeddings = math.sqrt(d) if block["scale_embedding"] else False
    positions = _positions(folded, plain, stack)
    if positions is not None:
        spec.position_encodings.encodings = (positions * scale).astype(np.float32)
    for i, layer_spec in enumerate(spec.layer):
        layer = f"{stack}.layers.{i}"
        _attention(layer_spec.self_attention, folded, f"{layer}.self_attn", ["qkv"])
        if f"{layer}.encoder_attn.q_proj.weight" in folded.weights:
            _attention(layer_spec.attention, folded, f"{layer}.encoder_attn", ["q", "kv"])
        _linear(layer_spec.ffn.linear_0, folded, f"{layer}.fc1")
        if block["gated"]:
            _linear(layer_spec.ffn.linear_0_noact, folded, f"{layer}.fc3")
        _linear(layer_spec.ffn.linear_1, folded, f"{layer}.fc2")
        _norm(layer_spec.ffn.layer_norm, folded, f"{layer}.final_layer_norm")
    if folded.pre_norm:
        _norm(spec.layer_norm, folded, f"{stack}.layer_norm")


def _tokens(plain: PlainModel, side: str) -> "list[str]":
    vocabulary = parse_vocabulary(*plain.vocabulary(side))
    if vocabulary.kind == "tokenizer":
        return [token or f"<unused{i}>" for i, token in enumerate(vocabulary.tokens)]
    return [SPECIAL[0], "<blank>", *vocabulary.tokens[2:]]


def _translator(plain: PlainModel) -> TransformerSpec:
    folded, model = fold_translation(plain, FORMAT), plain.model
    spec = TransformerSpec.from_config((model["encoder_layers"], model["decoder_layers"]), model["heads"], pre_norm=folded.pre_norm)
    assert folded.source_table is not None  # of an encoder-decoder
    _stack(spec.encoder, spec.encoder.embeddings[0], folded.source_table, folded, plain, "encoder")
    _stack(spec.decoder, spec.decoder.embeddings, folded.target_table, folded, plain, "decoder")
    spec.decoder.projection.weight = folded.output_table
    spec.register_source_vocabulary(_tokens(plain, "source"))
    spec.register_target_vocabulary(_tokens(plain, "target"))
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    return spec


def _generator(plain: PlainModel) -> TransformerDecoderModelSpec:
    model, block = plain.model, block_of(plain.model)
    gain = model["decoder"]["residual_gain"]  # all norms have the same ε: RMSNorm_ε(q) = RMSNorm_{ε/r²}(q/r)
    epsilon = block["norm_epsilon"] / gain**2  # fold.py's
    folded = fold(plain, FORMAT, epsilon)
    unknown = [name for name in block.keys() - _BLOCK if block[name] != VASWANI.get(name)]
    if unknown:
        raise Refusal(f"{FORMAT} has no place for model.block.{unknown[0]}, which is {block[unknown[0]]!r}")
    if block["norm"] == "rms" and block["norm_shift"]:
        raise Refusal(f"{FORMAT} has no shift of an RMSNorm; model.block.norm_shift is true")
    if block["query_key_norm"] and block["norm"] != "rms":
        raise Refusal(f"{FORMAT} norms queries and keys by RMSNorm; model.block.norm is {block['norm']!r}")
    for name in [name for name in folded.weights if block["query_key_norm"] and name.split(".")[-2] in ("q_proj", "k_proj")]:
        folded.weights[name] /= gain
    rotary = {"rotary_dim": int(block["rotary_share"] * block["head_width"] + 1e-9), "rotary_base": block["rotary_theta"], "rotary_interleave": False}
    spec = TransformerDecoderModelSpec.from_config(
        model["decoder_layers"], model["heads"], pre_norm=folded.pre_norm, activation=_ACTIVATIONS[block["activation"]],
        ffn_glu=block["gated"], rms_norm=block["norm"] == "rms", num_heads_kv=block["kv_heads"], head_dim=block["head_width"],
        qk_norm=block["query_key_norm"], **(rotary if block["positions"] == "rotary" else {}))
    _stack(spec.decoder, spec.decoder.embeddings, folded.target_table, folded, plain, "decoder")
    spec.decoder.projection.weight = folded.output_table
    tokens = _tokens(plain, "target")
    spec.register_vocabulary(tokens)
    spec.config.bos_token, spec.config.eos_token = (tokens[i] for i in plain.text_ends())
    if not plain.reserved_ids():
        spec.config.unk_token = ""
    spec.config.layer_norm_epsilon = epsilon
    return spec


def write_ctranslate2(plain: PlainModel, folder: str, quantization: "str | None" = None) -> str:
    """Writes the folder, which must exist, and returns a note for the user. `quantization`: int8, int8_float16, …, as
    CTranslate2's compute types; None: float32. Raises Refusal for what the format cannot express."""
    translates = plain.stacks() != ["decoder"]
    spec = _translator(plain) if translates else _generator(plain)
    spec.validate()
    try:
        spec.optimize(quantization=quantization)
    except ValueError as error:
        raise Refusal(f"--quantization {quantization}: {error}") from None
    spec.save(folder)
    for name, contents in plain.vocabularies.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(contents)
    return f"for ctranslate2.{'Translator' if translates else 'Generator'}, {quantization or 'float32'}, written with version {ctranslate2.__version__}"
