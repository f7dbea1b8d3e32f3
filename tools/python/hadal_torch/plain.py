"""The plain form of a model: what `hadal checkpoint export` writes and `hadal checkpoint import` reads.

NAME.safetensors: every weight in float32 under fairseq's names, linear weights [out, in], a shared matrix once.
NAME.json: "model" (sizes, and each stack's method field by field), "vocabularies" (files beside it), "step", "update", "config".
tools/checkpoint/export.md says how to compute with them.
"""

from __future__ import annotations

import json
import math
import os
import re
from dataclasses import dataclass, field
from typing import Any, Iterable

import numpy as np

from hadal_torch.inputs import bare_name, parse_json, read_bytes
from hadal_torch.refusal import Refusal, damaged
from hadal_torch.tensors import read_safetensors, write_safetensors
from hadal_torch.tokenizer import check_rows


@dataclass
class PlainModel:
    model: dict[str, Any]  # ModelOptions under their C++ names (layers/model_options.h); "encoder" and "decoder" are objects
    weights: "dict[str, np.ndarray[Any, Any]]"
    vocabularies: "dict[str, bytes]"  # file name → contents: vocabulary.*, or source.vocabulary.* and target.vocabulary.*, or tokenizer.json
    step: int = 0
    update: int = 0
    config: str = ""  # the run's config, text of configs/run.proto
    facts: dict[str, Any] = field(default_factory=dict[str, Any])  # what else the JSON holds

    def stacks(self) -> "list[str]":
        return [stack for stack in ("encoder", "decoder") if self.model[f"{stack}_layers"] > 0]

    def vocabulary(self, side: str) -> "tuple[str, bytes]":
        """(file name, contents) of "source" or "target"."""
        for name, contents in self.vocabularies.items():
            if name.startswith((f"{side}.vocabulary.", "vocabulary.", "tokenizer.")):
                return name, contents
        raise Refusal(f"the export names no vocabulary for the {side}")

    def reserved_ids(self) -> bool:
        """Whether ids 0 to 3 are hadal's special tokens; else all ids are a tokenizer.json's."""
        return bool(self.model.get("reserved_ids", True))

    def text_ends(self) -> "tuple[int, int]":
        """The decoder's first input, and the token that ends a text."""
        return self.model.get("start_token", 2), self.model.get("end_token", 2)

    def table(self, which: str) -> np.ndarray[Any, Any]:
        """[vocabulary, d_model] of "source", "target" or "output", whichever name it is stored under."""
        if self.model.get("frame_width", 0) > 0:
            raise Refusal("the model reads speech, and only hadal_torch.Model computes its front end; other formats are for text")
        sharing = self.model["sharing"]
        first = "encoder.embed_tokens.weight"
        stacks = self.stacks()
        target = first if stacks == ["encoder"] or (sharing == "all" and "encoder" in stacks) else "decoder.embed_tokens.weight"
        own = "encoder.lm_head.weight" if stacks == ["encoder"] else "decoder.output_projection.weight"
        output = own if sharing == "none" else target
        return self.weights[{"source": first, "target": target, "output": output}[which]]

    def config_value(self, path: str, default: str = "") -> str:
        """The first value of a field of the config, by its path: "decode.beam"."""
        names: "list[str]" = []
        for line in self.config.splitlines():
            line = line.split("#")[0].strip()
            if line.endswith("{"):
                names.append(line.split()[0].rstrip(":"))
            elif line == "}":
                names.pop()
            elif ":" in line and ".".join([*names, line.split(":")[0]]) == path:
                return line.split(":", 1)[1].strip().strip('"')
        return default


def read_plain(path: "str | os.PathLike[str]") -> PlainModel:
    """Reads NAME.safetensors with NAME.json and the vocabularies beside it."""
    path = os.fspath(path)
    settings = path.removesuffix(".safetensors") + ".json"
    facts = parse_json(settings, read_bytes(settings))
    model, vocabularies = facts.pop("model"), {}
    for name in facts.pop("vocabularies"):
        beside = os.path.join(os.path.dirname(path), bare_name(settings, name))
        rows = model["source_vocabulary" if name.startswith("source.") else "target_vocabulary"]
        vocabularies[name] = check_rows(beside, read_bytes(beside), rows)
    plain = PlainModel(model, read_safetensors(path), vocabularies, facts.pop("step"), facts.pop("update"), facts.pop("config"), facts)
    check_layers(settings, {stack: plain.model[f"{stack}_layers"] for stack in ("encoder", "decoder")}, path, plain.weights)
    if plain.model["max_positions"] > MOST_POSITIONS:
        raise damaged(f"{settings}: max_positions is {plain.model['max_positions']}, hadal's limit {MOST_POSITIONS}")
    return plain


def write_plain(path: "str | os.PathLike[str]", plain: PlainModel) -> None:
    """Writes what read_plain reads."""
    path = os.fspath(path)
    write_safetensors(path, plain.weights)
    for name, contents in plain.vocabularies.items():
        with open(os.path.join(os.path.dirname(path), name), "wb") as file:
            file.write(contents)
    facts = {"model": plain.model, "vocabularies": list(plain.vocabularies), "step": plain.step, "update": plain.update,
             "config": plain.config, **plain.facts}
    with open(path.removesuffix(".safetensors") + ".json", "w", encoding="utf-8") as file:
        json.dump(facts, file, indent=2)


def branch_growth(model: dict[str, Any], update: int) -> float:
    """The factor of every branch at `update` (BranchNorm and its relatives; layers/model_options.h)."""
    kind, k = model["branch_growth"], float(model["branch_growth_steepness"])
    t = update / float(model["branch_growth_updates"])
    if kind == "linear":
        return min(1.0, t)
    if kind == "exponential":
        return min(1.0, (math.exp(k * min(1.0, t)) - 1) / (math.exp(k) - 1))
    return min(1.0, 2 / (1 + math.exp(-k * t)) - 1) if kind == "sigmoid" else 1.0


# The factor of layer l = 1 … n (layers/model_options.h, DepthInit); None: 1.
DEPTH_RULES = {"flat": None, "inverse_sqrt": lambda l, n: l**-0.5, "from_top": lambda l, n: 1 / (n - l + 1)}


def position_table(count: int, d: int) -> np.ndarray[Any, Any]:
    """[count, d] float64, positions 2, 3, …: sin(p·w) | cos(p·w), w_i = 10000^(−i / (d/2 − 1)); a zero column where d is odd."""
    half = d // 2
    w = np.exp(np.arange(half) * -(math.log(10000.0) / (half - 1)))
    angle = (np.arange(count) + 2)[:, None] * w[None, :]
    table = np.zeros((count, d))
    table[:, :half], table[:, half : 2 * half] = np.sin(angle), np.cos(angle)
    return table


# The block where "block" or one of its fields is not stored (layers/model_options.h, Block).
VASWANI = {"norm": "layer", "norm_epsilon": 1e-5, "norm_shift": True, "activation": "relu", "gated": False, "biases": "all",
           "positions": "sinusoidal", "rotary_theta": 10000.0, "rotary_share": 1.0, "kv_heads": 0, "head_width": 0, "scale_embedding": True,
           "query_key_norm": False, "attention_gate": False, "window": 0, "global_every": 0, "rotary_local_theta": 0.0,
           "rotary_scaling": 1.0, "rotary_scaling_positions": 8192, "first_norm": True, "embedding_norm": False,
           "initial_deviation": 0.0, "initial_depth_factor": False}


def block_of(model: dict[str, Any]) -> dict[str, Any]:
    """Every field of the block, with the numbers of key/value heads and of a head's columns."""
    block = {**VASWANI, **model.get("block", {})}
    return {**block, "kv_heads": block["kv_heads"] or model["heads"], "head_width": block["head_width"] or model["d_model"] // model["heads"]}


MOST_POSITIONS = 1 << 16  # of model.max_positions; sinusoids are made, so a model with more needs no other weights
_STACK = {
    "norm": "post", "residual_gain": 1.0, "omega": "none", "initial_omega": 1.0, "branch_gain": 1.0, "skip_gain": 0.0,
    "layer_gain": 1.0, "combine_layers": False, "learned_branch_gain": False, "attention_inner_norm": False,
    "attention_output_norm": False, "head_scale": False, "ffn_inner_norm": False, "fixup_scalars": False, "linear_bias": True,
    "query_key_gain": 0.5**0.5, "value_gain": 0.5**0.5, "output_gain": 1.0, "cross_value_gain": 0.5**0.5, "cross_output_gain": 1.0,
    "ffn_gain": 1.0, "ffn_output_factor": 1.0, "depth_init": "flat", "embedding_gain": 1.0, "projection_gain": 1.0,
    "branch_input_norm": False, "branch_output_norm": False, "norm_gain": "flat", "adam_epsilon_factor": 1.0,
    "post_norm_share": 0.0, "second_stream_gain": 0.0, "residual_streams": 1, "residual_mixing": "sinkhorn",
    "attention_residual_blocks": 0, "attention_residual_block_sublayers": 0, "attention_residual_delta": False,
}


def plain_settings(pre_norm: bool, **sizes: Any) -> dict[str, Any]:
    """The settings ("model") of a plain Post-LN or Pre-LN Transformer. `sizes`: the fields without a default here."""
    stack = {**_STACK, "norm": "pre" if pre_norm else "post"}
    return {"encoder_layers": 0, "decoder_layers": 0, "d_model": 0, "d_ff": 0, "heads": 0, "source_vocabulary": 0,
            "target_vocabulary": 0, "max_positions": 1024, "sharing": "all", "dropout": 0.1, "attention_dropout": 0.0,
            "activation_dropout": 0.0, "label_smoothing": 0.1, **sizes, "encoder": dict(stack), "decoder": dict(stack),
            "distribution": "xavier_uniform", "branch_growth": "constant", "branch_growth_updates": 4000.0,
            "branch_growth_steepness": 0.0}


def plain_shapes(model: dict[str, Any]) -> "dict[str, tuple[int, ...]]":
    """name → shape of every weight of a plain Transformer: an encoder-decoder, a language model, or an encoder alone; any block."""
    d, hidden, block = model["d_model"], model["d_ff"], block_of(model)
    queries, keys = model["heads"] * block["head_width"], block["kv_heads"] * block["head_width"]
    shapes: "dict[str, tuple[int, ...]]" = {}

    def linear(name: str, rows: int, columns: int) -> None:
        shapes[name + ".weight"] = (rows, columns)
        if block["biases"] == "all" or (block["biases"] == "qkv" and name.endswith(("q_proj", "k_proj", "v_proj"))):
            shapes[name + ".bias"] = (rows,)

    def norm(name: str, width: int = d) -> None:
        for kind in ("weight", "bias") if block["norm_shift"] else ("weight",):
            shapes[f"{name}.{kind}"] = (width,)

    stacks = [stack for stack in ("encoder", "decoder") if model[f"{stack}_layers"] > 0]
    for stack in stacks:
        attentions = ["self_attn", "encoder_attn"] if stack == "decoder" and len(stacks) == 2 else ["self_attn"]
        if stack == stacks[0] or model["sharing"] != "all":
            side = "source" if stack == "encoder" and len(stacks) == 2 else "target"
            shapes[f"{stack}.embed_tokens.weight"] = (model[f"{side}_vocabulary"], d)
        if block["positions"] == "learned":
            shapes[f"{stack}.embed_positions.weight"] = (model["max_positions"], d)
        if block["embedding_norm"]:
            norm(f"{stack}.layernorm_embedding")
        for layer in (f"{stack}.layers.{i}" for i in range(model[f"{stack}_layers"])):
            for attention in attentions:
                for product, rows, columns in (("q", queries, d), ("k", keys, d), ("v", keys, d), ("out", d, queries)):
                    linear(f"{layer}.{attention}.{product}_proj", rows, columns)
                for vector in ("q_norm", "k_norm") if block["query_key_norm"] else ():
                    norm(f"{layer}.{attention}.{vector}", block["head_width"])
                if block["first_norm"] or attention != "self_attn" or not layer.endswith(".0") or model[stack]["norm"] != "pre":
                    norm(f"{layer}.{attention}_layer_norm")
            for product in ("fc1", "fc3") if block["gated"] else ("fc1",):
                linear(f"{layer}.{product}", hidden, d)
            linear(f"{layer}.fc2", d, hidden)
            norm(f"{layer}.final_layer_norm")
        if model[stack]["norm"] == "pre":
            norm(f"{stack}.layer_norm")
    if stacks == ["encoder"]:
        linear("encoder.lm_head.dense", d, d)
        norm("encoder.lm_head.layer_norm")
        shapes["encoder.lm_head.bias"] = (model["target_vocabulary"],)
    if model["sharing"] == "none":
        shapes["encoder.lm_head.weight" if stacks == ["encoder"] else "decoder.output_projection.weight"] = (model["target_vocabulary"], d)
    return shapes


def layer_counts(origin: str, names: Iterable[str]) -> "dict[str, int]":
    """The numbers of layers of the encoder and the decoder whose weights have these names. Raises Refusal if one between is missing."""
    counts = {}
    for stack in ("encoder", "decoder"):
        matches = (re.match(rf"{stack}\.layers\.(\d{{1,9}})\.", name) for name in names)
        found = {int(match[1]) for match in matches if match}
        if found and max(found) >= len(found):
            raise Refusal(f"{origin} has weights of {len(found)} {stack} layers, but one is of layer {max(found)} (the first is 0)")
        counts[stack] = len(found)
    return counts


def check_layers(settings: str, wanted: "dict[str, int]", origin: str, names: Iterable[str]) -> None:
    """Raises Refusal if the `wanted` numbers of layers, which `settings` gives, are not those of the weights of `origin`. Before
    anything is made for each layer."""
    for stack, count in layer_counts(origin, names).items():
        if wanted[stack] != count:
            raise Refusal(f"{settings} says {wanted[stack]} {stack} layers, {origin} has weights of {count}")


def require_finite(origin: str, weights: "dict[str, np.ndarray[Any, Any]]") -> None:
    """Raises Refusal, naming the weight, for a NaN or an infinity."""
    for name, value in weights.items():
        finite = np.isfinite(value)
        if not finite.all():
            place = int(np.argmin(finite.ravel()))
            raise Refusal(f"{origin}: {name} has {value.ravel()[place]} at element {place}; a model with weights that are not finite "
                          "computes nothing of use; to study it, give --allow-nonfinite")


def check_weights(origin: str, model: dict[str, Any], weights: "dict[str, np.ndarray[Any, Any]]") -> None:
    """Raises Refusal, by name, for a weight that is missing, unknown or of another shape than the settings say."""
    shapes = plain_shapes(model)
    for name, shape in shapes.items():
        if name not in weights:
            raise Refusal(f"{origin} lacks {name} {list(shape)}")
        if weights[name].shape != shape:
            raise Refusal(f"{origin}: {name} has the shape {list(weights[name].shape)}, not {list(shape)}")
    unknown = sorted(weights.keys() - shapes.keys())
    if unknown:
        raise Refusal(f"{origin} has {len(unknown)} weights that a plain Transformer lacks, the first {unknown[0]}")


def deduplicate_tables(origin: str, weights: "dict[str, np.ndarray[Any, Any]]") -> str:
    """Removes embedding tables that are copies, and returns the sharing: "all", "decoder" or "none"."""
    source, target, output = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "decoder.output_projection.weight"
    if source not in weights:
        raise Refusal(f"{origin} lacks {source}")
    target_table = weights.get(target, weights[source])
    if output in weights and not np.array_equal(weights[output], target_table):
        weights.setdefault(target, target_table)
        return "none"
    weights.pop(output, None)
    if np.array_equal(target_table, weights[source]):
        weights.pop(target, None)
        return "all"
    return "decoder"
