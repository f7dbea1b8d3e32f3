"""fairseq's checkpoints: writes checkpoint.pt with dict.txt, and reads what `fairseq-train` wrote, without executing anything in it.

checkpoint.pt is torch.save of {"args": Namespace or None, "cfg": dict or None, "model": name → tensor, …}. Names are those of the
plain form, with "decoder.output_projection.weight" written always and {encoder,decoder}.version [1] = 3.
Old files: "….self_attn.in_proj_weight" [3d, d] holds q, k and v; "encoder.layers.I.layer_norms.{0,1}" are the norms in order.
"""

from __future__ import annotations

import argparse
import os
import re
from collections import OrderedDict
from typing import Any

import numpy as np

from hadal_torch.fold import fold_translation, require_plain_input
from hadal_torch.inputs import read_bytes
from hadal_torch.plain import MOST_POSITIONS, PlainModel, check_weights, deduplicate_tables, layer_counts, plain_settings
from hadal_torch.refusal import Refusal
from hadal_torch.tokenizer import dictionary_of, fill, parse_vocabulary
from hadal_torch.torch_file import read_torch_file

FORMAT = "fairseq"
# Parameters that fairseq 0.12 adds to every encoder layer for inference: zeros after training, copies after loading.
_COPY = re.compile(r"encoder\.layers\.\d+\.(in_proj|out_proj|fc1|fc2)_(weight|bias)")


def write_fairseq(plain: PlainModel, folder: str) -> str:
    """Writes checkpoint.pt, dict.source.txt and dict.target.txt to the folder, which must exist, and returns a note for the user.
    Raises Refusal for what fairseq's transformer cannot express."""
    import torch  # here, because reading needs none

    folded = fold_translation(plain, FORMAT)
    require_plain_input(folded, FORMAT)
    model = plain.model
    weights = {"encoder.embed_tokens.weight": folded.source_table, "decoder.embed_tokens.weight": folded.target_table,
               "decoder.output_projection.weight": folded.output_table, **folded.weights}
    state = OrderedDict((name, torch.tensor(value)) for name, value in weights.items())
    for stack in ("encoder", "decoder"):
        state[f"{stack}.version"] = torch.tensor([3.0])  # without it fairseq drops the norms after Pre-LN stacks
    shared = {"embed_dim": model["d_model"], "ffn_embed_dim": model["d_ff"], "attention_heads": model["heads"],
              "normalize_before": folded.pre_norm, "learned_pos": False}
    args = argparse.Namespace(
        task="translation", arch="transformer", criterion="label_smoothed_cross_entropy", label_smoothing=model["label_smoothing"],
        source_lang="source", target_lang="target", activation_fn="relu", dropout=model["dropout"],
        attention_dropout=model["attention_dropout"], activation_dropout=model["activation_dropout"],
        encoder_layers=model["encoder_layers"], decoder_layers=model["decoder_layers"],
        share_all_embeddings=model["sharing"] == "all", share_decoder_input_output_embed=model["sharing"] != "none",
        max_source_positions=model["max_positions"], max_target_positions=model["max_positions"], no_scale_embedding=False,
        no_token_positional_embeddings=False, layernorm_embedding=False, adaptive_softmax_cutoff=None, adaptive_input=False,
        **{f"{stack}_{name}": value for stack in ("encoder", "decoder") for name, value in shared.items()})
    history = {"criterion_name": "LabelSmoothedCrossEntropyCriterion", "optimizer_name": "FairseqAdam",
               "lr_scheduler_state": {"best": None}, "num_updates": plain.update}
    torch.save({"args": args, "cfg": None, "model": state, "optimizer_history": [history], "last_optimizer_state": None,
                "extra_state": {"train_iterator": {"epoch": 1, "iterations_in_epoch": 0}}}, os.path.join(folder, "checkpoint.pt"))
    for side in ("source", "target"):
        tokens = parse_vocabulary(*plain.vocabulary(side)).tokens
        with open(os.path.join(folder, f"dict.{side}.txt"), "wb") as file:
            file.write(dictionary_of(tokens))
    for name, contents in plain.vocabularies.items():
        if name.endswith(".model"):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(contents)
    return "checkpoint.pt, for fairseq-generate --task translation -s source -t target"


def _arguments(path: str, state: dict[str, Any]) -> dict[str, Any]:
    """fairseq's model options of either kind of checkpoint. fairseq 0.12's TransformerConfig nests those of a stack: encoder.layers."""
    found = state.get("args") or (state.get("cfg") or {}).get("model")
    if found is None:
        raise Refusal(f"{path} has neither \"args\" nor \"cfg\", so the number of heads is not known")
    args = dict(found if isinstance(found, dict) else vars(found))
    for stack in ("encoder", "decoder"):
        nested = args.get(stack)
        nested = vars(nested) if isinstance(nested, argparse.Namespace) else nested
        for name, value in nested.items() if isinstance(nested, dict) else ():
            args.setdefault(f"{stack}_{name}", value)
    if args.get("encoder_attention_heads") is None:
        raise Refusal(f"{path} does not say encoder_attention_heads, so the number of heads is not known")
    return args


def _plain_names(state: dict[str, Any]) -> "dict[str, np.ndarray[Any, Any]]":
    """The model's tensors under today's names."""
    norms = {"encoder": ["self_attn_layer_norm", "final_layer_norm"],
             "decoder": ["self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"]}
    weights = {}
    for name, tensor in state.items():
        if re.search(r"(^|\.)version$|\.embed_positions\.(_float_tensor|weights)$", name) or _COPY.fullmatch(name):
            continue
        if not isinstance(tensor, np.ndarray):
            raise Refusal(f"{name} of the checkpoint is no tensor")
        value = tensor.astype(np.float32)
        old_norm = re.fullmatch(r"(encoder|decoder)(\.layers\.\d+)\.layer_norms\.(\d)\.(weight|bias)", name)
        if old_norm and int(old_norm[3]) < len(norms[old_norm[1]]):
            name = f"{old_norm[1]}{old_norm[2]}.{norms[old_norm[1]][int(old_norm[3])]}.{old_norm[4]}"
        fused = re.fullmatch(r"(.*)\.in_proj_(weight|bias)", name)
        if fused:
            for product, part in zip("qkv", np.split(value, 3)):
                weights[f"{fused[1]}.{product}_proj.{fused[2]}"] = part
        else:
            weights["decoder.output_projection.weight" if name == "decoder.embed_out" else name] = value
    return weights


def _refuse_others(path: str, args: dict[str, Any]) -> None:
    """For options that make another model of the same weights."""
    wanted = {"activation_fn": ("relu",), "encoder_learned_pos": (False,), "decoder_learned_pos": (False,),
              "no_token_positional_embeddings": (False,), "no_scale_embedding": (False,), "layernorm_embedding": (False,),
              "adaptive_input": (False,), "adaptive_softmax_cutoff": (None,), "cross_self_attention": (False,),
              "no_cross_attention": (False,), "encoder_normalize_before": (args.get("decoder_normalize_before", False),),
              "encoder_attention_heads": (args.get("decoder_attention_heads"),),
              "encoder_ffn_embed_dim": (args.get("decoder_ffn_embed_dim"),)}
    for name, values in wanted.items():
        value = args.get(name, values[0])
        if value not in values:
            raise Refusal(f"{path}: {name} is {value!r}; hadal has {values[0]!r} there")


def read_fairseq(path: str, dictionaries: "list[str]") -> PlainModel:
    """Of checkpoint.pt and its dict.txt, or those of source and target. Raises Refusal, by name, for what hadal is not."""
    state = read_torch_file(path)
    if not isinstance(state, dict) or not isinstance(state.get("model"), dict):
        raise Refusal(f"{path} is no fairseq checkpoint: it lacks \"model\"")
    args, weights = _arguments(path, state), _plain_names(state["model"])
    learned = [name for name in weights if "embed_positions" in name]
    if learned:
        raise Refusal(f"{path}: {learned[0]} holds learned positions; hadal has sinusoids")
    _refuse_others(path, args)
    sharing = deduplicate_tables(path, weights)
    layers = layer_counts(path, weights)
    source = weights["encoder.embed_tokens.weight"]
    target = weights.get("decoder.embed_tokens.weight", source)
    hidden = weights.get("decoder.layers.0.fc1.bias", np.empty(0)).shape[0]
    model = plain_settings(
        bool(args.get("encoder_normalize_before", False)), encoder_layers=layers["encoder"], decoder_layers=layers["decoder"],
        d_model=source.shape[1], d_ff=hidden, heads=int(args["encoder_attention_heads"]), source_vocabulary=source.shape[0],
        target_vocabulary=target.shape[0], sharing=sharing,
        max_positions=min(MOST_POSITIONS, max(int(args.get(f"max_{side}_positions", 1024)) for side in ("source", "target"))),
        dropout=float(args.get("dropout", 0.1)), attention_dropout=float(args.get("attention_dropout", 0)),
        activation_dropout=float(args.get("activation_dropout") or args.get("relu_dropout") or 0),  # fairseq's older name
        label_smoothing=float(args.get("label_smoothing", 0)))
    check_weights(path, model, weights)
    vocabularies = {}
    for name, file_name, rows in zip(("vocabulary",) if len(dictionaries) == 1 else ("source.vocabulary", "target.vocabulary"),
                                     dictionaries, (source.shape[0], target.shape[0])):
        tokens = parse_vocabulary(file_name, read_bytes(file_name)).tokens
        vocabularies[name + ".txt"] = dictionary_of(fill(tokens, rows, file_name))
    updates = int((state.get("optimizer_history") or [{}])[-1].get("num_updates", 0))
    return PlainModel(model, weights, vocabularies, updates, updates)
