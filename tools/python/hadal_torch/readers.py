"""Reads checkpoints and what `hadal prepare` wrote. pyhadal reads the other records of runs; depth_probe.safetensors is read by
tensors.read_safetensors.

Checksums are not verified: `hadal checkpoint verify` and `hadal train` do that.
"""

from __future__ import annotations

import json
import os
from typing import Any, Iterator

import numpy as np

from hadal_torch.tensors import read_safetensors


def read_checkpoint(directory: str, kind: str = "weight") -> "dict[str, np.ndarray[Any, Any]]":
    """name → float32 array of a checkpoint; `kind`: "weight", or Adam's "adam_m" or "adam_v". Where Muon updates a matrix, its
    "adam_m" is the momentum (a mean, as torch.optim.Muon's momentum_buffer), and it has no "adam_v".

    Keys of its files are KIND/NAME/SLICE, slices of at most 2^20 elements, row-major (pipeline/checkpoint/checkpoint_manifest.h).
    """
    with open(os.path.join(directory, "manifest.json"), encoding="utf-8") as file:
        manifest = json.load(file)
    slices: dict[str, Any] = {}
    for part in manifest["files"]:
        for key, value in read_safetensors(os.path.join(directory, part["name"])).items():
            found_kind, name, index = key.split("/")
            if found_kind == kind:
                slices.setdefault(name, {})[int(index)] = value.ravel()
    return {name: np.concatenate([slices[name][i] for i in sorted(slices[name])]).reshape(shape)
            for name, *shape in manifest["parameters"] if name in slices}


_RECORD = np.dtype([("first_token", "<i8"), ("prefix_tokens", "<i4"), ("source_tokens", "<i4"), ("target_tokens", "<i4"),
                    ("corpus_id", "<i4"), ("weight", "<f4"), ("reserved", "<u4")])


def read_corpus(prefix: str) -> "Iterator[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]":
    """Yields (source, target) of every sample of PREFIX.json, int32 ids without </s>; a prefix of tags belongs to the source.
    Of speech the source is float32 [frames, filters].

    A shard: a header of 32 bytes (magic, version, samples, tokens), 32 bytes a sample, the tokens (runtime/data/corpus_shard.h).
    """
    with open(prefix + ".json", encoding="utf-8") as file:
        manifest = json.load(file)
    for shard in manifest["shards"]:
        data = np.fromfile(os.path.join(os.path.dirname(prefix), shard["file"]), np.uint8)
        records = data[32 : 32 + 32 * shard["samples"]].view(_RECORD)
        tokens = data[32 + 32 * shard["samples"] :].view("<i4")
        width = manifest.get("frame_width", 0)
        for record in records:
            middle = record["first_token"] + record["prefix_tokens"] + record["source_tokens"]
            source = tokens[record["first_token"] : middle]
            target = tokens[middle : middle + record["target_tokens"]]
            # With a mask token bit 30 says whether the token continues a word.
            yield source.view("<f4").reshape(-1, width) if width else source, target & ~(1 << 30) if "special_tokens" in manifest else target
