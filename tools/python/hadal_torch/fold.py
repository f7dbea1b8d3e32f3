"""Folds a residual method into the weights of a plain Post-LN or Pre-LN Transformer, which other programs know.

    DeepNorm, BranchNorm      LN_ε(r·x + b·F(x)) = LN_{ε/r²}(x + (b/r)·F(x)): out_proj and fc2 times b/r. Formats keep ε: at
                              1e-5 this moves a result by less than 5e-6 over 1,000 sublayers; a large ε is refused.
    Admin                     LN(ω⊙x + F(x)), x a norm's output: ω into that norm's scale and shift, 1/ω into the columns of
                              what reads it (q, k, v, fc1). The stack's first sublayer reads an embedding: ω goes into the
                              norm behind it, else into the embedding and position tables, which only some formats store.
    LayerNorm Scaling         F(k·LN(x)): k into the norm's scale and shift.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Iterator

import numpy as np

from hadal_torch.plain import DEPTH_RULES, PlainModel, block_of, branch_growth
from hadal_torch.refusal import Refusal

# Settings of a stack that must have this value, and what a user calls them.
_PLAIN = {
    "learned_branch_gain": (False, "a learned gain on every branch (ReZero)"),
    "skip_gain": (0, "a skip around a layer (B2T)"),
    "layer_gain": (1, "a gain of every layer (B2T without norms)"),
    "combine_layers": (False, "layers that read all layers before them (DLCL)"),
    "attention_inner_norm": (False, "a norm before out_proj (Sub-LN)"),
    "attention_output_norm": (False, "a norm after out_proj (NormFormer)"),
    "branch_input_norm": (False, "a norm in front of each branch beside that of the stream (Keel)"),
    "branch_output_norm": (False, "a norm behind each branch (Peri-LN)"),
    "head_scale": (False, "a scale for each head (NormFormer)"),
    "ffn_inner_norm": (False, "a norm before fc2 (Sub-LN, NormFormer)"),
    "second_stream_gain": (0, "a second residual stream (ResiDual)"),
    "residual_streams": (1, "several residual streams (mHC)"),
    "attention_residual_blocks": (0, "branches that read sums of blocks (Attention Residuals)"),
    "attention_residual_block_sublayers": (0, "branches that read sums of blocks (Attention Residuals)"),
    "post_norm_share": (0, "Post-LN layers below Pre-LN layers (Mix-LN)"),
    "fixup_scalars": (False, "R-Fixup's scalars"),
    "linear_bias": (True, "products without biases"),
}


@dataclass
class Folded:
    """A plain Transformer. `weights` has no embedding; tables are [vocabulary, d_model]."""

    pre_norm: bool
    weights: "dict[str, np.ndarray[Any, Any]]"
    source_table: "np.ndarray[Any, Any] | None"  # None but for an encoder-decoder
    target_table: np.ndarray[Any, Any]
    output_table: np.ndarray[Any, Any]
    # By stack: a vector [d_model] that multiplies the sum of embedding and position, or None.
    input_scale: "dict[str, np.ndarray[Any, Any] | None]"


def _sublayers(stack: str, layers: int, weights: "dict[str, np.ndarray[Any, Any]]") -> "Iterator[tuple[int, list[str], str, str, str]]":
    """(layer from 1, inputs that read the stream, output product, norm, omega) of each sublayer whose `weights` are there, in order."""
    for i in range(layers):
        layer = f"{stack}.layers.{i}"
        sublayers = [([f"{layer}.self_attn.{p}_proj" for p in "qkv"], f"{layer}.self_attn.out_proj", f"{layer}.self_attn_layer_norm",
                      f"{layer}.self_attn.omega"),
                     ([f"{layer}.encoder_attn.q_proj"], f"{layer}.encoder_attn.out_proj", f"{layer}.encoder_attn_layer_norm",
                      f"{layer}.encoder_attn.omega"),
                     ([name for name in (f"{layer}.fc1", f"{layer}.fc3") if name + ".weight" in weights], f"{layer}.fc2",
                      f"{layer}.final_layer_norm", f"{layer}.ffn.omega")]
        for sublayer in sublayers:
            if sublayer[1] + ".weight" in weights:
                yield i + 1, *sublayer


def _scale(weights: "dict[str, np.ndarray[Any, Any]]", name: str, factor: Any) -> None:
    """Multiplies the output of a norm or a product."""
    for kind in (".weight", ".bias"):
        if name + kind in weights:
            weights[name + kind] *= factor


def _check(plain: PlainModel, format_name: str) -> None:
    for stack in plain.stacks():
        settings = plain.model[stack]
        for name, (value, meaning) in _PLAIN.items():
            if settings.get(name, value) != value:
                raise Refusal(f"{format_name} has no place for {meaning}: {stack}.{name} is {settings[name]}. "
                              "Only `hadal checkpoint export` without --format and hadal_torch.Model hold this method")
        last = plain.stacks()[-1]
        if settings["norm"] not in ("post", "pre") or settings["norm"] != plain.model[last]["norm"]:
            raise Refusal(f"{format_name} has one norm placement, post or pre, for the model; {stack}.norm is "
                          f"\"{settings['norm']}\", {last}.norm \"{plain.model[last]['norm']}\". "
                          "Only `hadal checkpoint export` without --format and hadal_torch.Model hold this model")
        if settings["norm"] == "pre" and (settings["residual_gain"] != 1 or settings.get("omega", "none") != "none"):
            raise Refusal(f"{format_name} has no gain on a Pre-LN residual; {stack}.residual_gain is "
                          f"{settings['residual_gain']}, omega \"{settings.get('omega', 'none')}\"")


def fold_translation(plain: PlainModel, format_name: str) -> Folded:
    """`fold` for formats that take an encoder and a decoder of the block of 2017. Raises Refusal likewise."""
    if plain.stacks() != ["encoder", "decoder"]:
        raise Refusal(f"{format_name} takes an encoder and a decoder; this model has {plain.stacks()[0]} layers alone. "
                      "--format huggingface takes it, and ctranslate2 a language model")
    if "block" in plain.model:
        raise Refusal(f"{format_name} takes encoder-decoders with the block of Vaswani et al. 2017; model.block is {plain.model['block']}. "
                      "Only `hadal checkpoint export` without --format and hadal_torch.Model hold this model")
    return fold(plain, format_name)


def fold(plain: PlainModel, format_name: str, epsilon: "float | None" = None) -> Folded:
    """Raises Refusal where the method is no plain Transformer in disguise. Vectors ω of the first sublayers go to
    `input_scale`, unless all their elements are equal: then they are a gain like DeepNorm's. `epsilon`: of the format's norms, if not the model's."""
    for name, meaning in (("adaptive_cutoffs", "an adaptive softmax"), ("frame_width", "a front end for speech")):
        if plain.model.get(name):
            raise Refusal(f"{format_name} has no place for {meaning}: model.{name} is {plain.model[name]}. "
                          "Only `hadal checkpoint export` without --format and hadal_torch.Model hold this model")
    _check(plain, format_name)
    weights = {name: value.astype(np.float64) for name, value in plain.weights.items()
               if not name.endswith((".omega", "embed_tokens.weight", "output_projection.weight", "lm_head.weight"))}
    input_scale: "dict[str, np.ndarray[Any, Any] | None]" = {}
    growth = branch_growth(plain.model, plain.update)
    for stack in plain.stacks():
        settings, previous_norm = plain.model[stack], f"{stack}.layernorm_embedding" if f"{stack}.layernorm_embedding.weight" in weights else None
        input_scale[stack] = None
        layers, norm_gain = plain.model[f"{stack}_layers"], DEPTH_RULES[settings.get("norm_gain", "flat")]
        for layer, inputs, output, norm, omega_name in _sublayers(stack, layers, weights):
            if norm_gain:
                _scale(weights, norm, norm_gain(layer, layers))
            residual_gain, own_epsilon = settings["residual_gain"], block_of(plain.model)["norm_epsilon"]
            omega = plain.weights.get(omega_name)
            if omega is not None and np.all(omega == omega[0]) and omega[0] > 0:
                residual_gain *= float(omega[0])
            elif omega is not None:
                omega = omega.astype(np.float64)
                if np.any(omega == 0):
                    raise Refusal(f"{omega_name} has an element 0, which cannot be divided out of the products")
                if previous_norm is None:
                    input_scale[stack] = omega
                else:
                    _scale(weights, previous_norm, omega)
                for name in inputs:
                    weights[name + ".weight"] /= omega[None, :]
            kept = epsilon or own_epsilon
            if abs(own_epsilon / residual_gain**2 - kept) > 1e-4:
                raise Refusal(f"{format_name} has one ε of norms, {kept:g}; with the residual gain {residual_gain:g} {norm} would "
                              f"need {own_epsilon / residual_gain**2:g}: model.block.norm_epsilon {own_epsilon:g} is too large to fold")
            _scale(weights, output, settings["branch_gain"] * growth / residual_gain)
            previous_norm = norm
    return Folded(plain.model[plain.stacks()[-1]]["norm"] == "pre", {n: w.astype(np.float32) for n, w in weights.items()},
                  plain.table("source") if len(plain.stacks()) == 2 else None, plain.table("target"), plain.table("output"), input_scale)


def require_plain_input(folded: Folded, format_name: str) -> None:
    """For formats that make the position table themselves."""
    for stack, scale in folded.input_scale.items():
        if scale is not None:
            raise Refusal(f"{format_name} makes the position table itself, so the vector {stack}.layers.0.self_attn.omega "
                          f"(Admin; {scale.min():.6g} to {scale.max():.6g}) cannot be folded into it; "
                          "--format ctranslate2 stores that table")
