"""Writes a folder that ctranslate2.Translator loads: model.bin, config.json, vocabularies, and the text's vocabulary as it is.

CTranslate2 stores position tables and each of the three embedding tables, so Admin and every sharing fit. Its <pad> is <blank>.
"""

import math
import os

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import LinearSpec
from ctranslate2.converters.utils import fuse_linear

from hadal_torch.fold import Folded, fold
from hadal_torch.plain import PlainModel, position_table
from hadal_torch.refusal import Refusal
from hadal_torch.tokenizer import SPECIAL, parse_vocabulary

FORMAT = "ctranslate2"
_FEWEST_ROWS = 512  # of a position table: translate_batch decodes up to 256 tokens by default, and an error there ends the whole batch


def _linear(spec: LinearSpec, folded: Folded, name: str) -> LinearSpec:
    spec.weight, spec.bias = folded.weights[name + ".weight"], folded.weights[name + ".bias"]
    return spec


def _norm(spec, folded: Folded, name: str) -> None:
    spec.gamma, spec.beta = folded.weights[name + ".weight"], folded.weights[name + ".bias"]


def _attention(spec, folded: Folded, name: str, fused: "list[str]") -> None:
    """`fused`: how q, k and v are stacked to matrices, "qkv" or "q", "kv"."""
    for part, products in zip(spec.linear, fused):
        fuse_linear(part, [_linear(LinearSpec(), folded, f"{name}.{p}_proj") for p in products])
    _linear(spec.linear[-1], folded, name + ".out_proj")
    _norm(spec.layer_norm, folded, name + "_layer_norm")


def _stack(spec, embeddings, table: np.ndarray, folded: Folded, plain: PlainModel, stack: str) -> None:
    d = plain.model["d_model"]
    scale = folded.input_scale[stack]
    scale = np.ones(d) if scale is None else scale
    embeddings.weight = (table * scale).astype(np.float32)
    spec.scale_embeddings = math.sqrt(d)
    spec.position_encodings.encodings = (position_table(max(plain.model["max_positions"], _FEWEST_ROWS), d) * scale).astype(np.float32)
    for i, layer_spec in enumerate(spec.layer):
        layer = f"{stack}.layers.{i}"
        _attention(layer_spec.self_attention, folded, f"{layer}.self_attn", ["qkv"])
        if stack == "decoder":
            _attention(layer_spec.attention, folded, f"{layer}.encoder_attn", ["q", "kv"])
        _linear(layer_spec.ffn.linear_0, folded, f"{layer}.fc1")
        _linear(layer_spec.ffn.linear_1, folded, f"{layer}.fc2")
        _norm(layer_spec.ffn.layer_norm, folded, f"{layer}.final_layer_norm")
    if folded.pre_norm:
        _norm(spec.layer_norm, folded, f"{stack}.layer_norm")


def write_ctranslate2(plain: PlainModel, folder: str, quantization: "str | None" = None) -> str:
    """Writes the folder, which must exist, and returns a note for the user. `quantization`: int8, int8_float16, …, as
    ctranslate2.Translator's compute types; None: float32. Raises Refusal for what the format cannot express."""
    folded = fold(plain, FORMAT)
    model = plain.model
    spec = TransformerSpec.from_config((model["encoder_layers"], model["decoder_layers"]), model["heads"], pre_norm=folded.pre_norm)
    _stack(spec.encoder, spec.encoder.embeddings[0], folded.source_table, folded, plain, "encoder")
    _stack(spec.decoder, spec.decoder.embeddings, folded.target_table, folded, plain, "decoder")
    spec.decoder.projection.weight = folded.output_table
    for side, register in (("source", spec.register_source_vocabulary), ("target", spec.register_target_vocabulary)):
        tokens = parse_vocabulary(*plain.vocabulary(side)).tokens
        register([SPECIAL[0], "<blank>", *tokens[2:]])
    spec.config.decoder_start_token = spec.config.eos_token
    spec.config.add_source_eos = True
    spec.validate()
    try:
        spec.optimize(quantization=quantization)
    except ValueError as error:
        raise Refusal(f"--quantization {quantization}: {error}") from None
    spec.save(folder)
    for name, contents in plain.vocabularies.items():
        with open(os.path.join(folder, name), "wb") as file:
            file.write(contents)
    return f"for ctranslate2.Translator, {quantization or 'float32'}, written with version {ctranslate2.__version__}"
