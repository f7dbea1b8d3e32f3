"""readers_test.py RUN CORPUS EXPORT.safetensors LINES: hadal_torch's readers against each other and against what the run was told."""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas

from hadal_torch import read_plain
from hadal_torch.readers import read_checkpoint, read_corpus
from hadal_torch.tensors import write_safetensors
from hadal_torch.tokenizer import parse_vocabulary
from pyhadal import read_metrics

run, corpus, export, text = sys.argv[1:]
plain = read_plain(export)
weights = read_checkpoint(f"{run}/checkpoints/latest")
assert weights.keys() == plain.weights.keys()
assert all(np.array_equal(value, plain.weights[name]) for name, value in weights.items())
assert all(np.all(value >= 0) for value in read_checkpoint(f"{run}/checkpoints/latest", "adam_v").values())
with tempfile.TemporaryDirectory() as made:  # slices are joined in the order of their numbers
    write_safetensors(f"{made}/rank.safetensors", {f"weight/w/{i}": np.float32([i]) for i in range(12)})
    Path(f"{made}/manifest.json").write_text(json.dumps({"files": [{"name": "rank.safetensors"}], "parameters": [["w", 12]]}), "utf-8")
    assert list(read_checkpoint(made)["w"]) == list(range(12))
steps = read_metrics(run)
assert isinstance(steps, pandas.DataFrame) and list(steps["step"]) == list(range(1, plain.step + 1)), steps
tokens = parse_vocabulary(*plain.vocabulary("source")).tokens
with open(text, encoding="utf-8") as file:
    lines = [" ".join(line.split()) for line in file]
found = ["".join(tokens[i] for i in source).replace("▁", " ").strip() for source, _ in read_corpus(corpus)]
assert found == lines, (len(found), len(lines), found[:2], lines[:2])
with tempfile.TemporaryDirectory() as made:  # a source with a tag before it
    record = np.array([0, 1, 2, 1, 0], "<i4")  # first token; tokens of prefix, source and target; corpus
    parts = [np.zeros(8, "<i4"), np.zeros(2, "<i4"), record[1:], np.zeros(2, "<i4"), np.array([9, 4, 5, 6], "<i4")]
    np.concatenate(parts).tofile(f"{made}/c.shard")
    Path(f"{made}/c.json").write_text(json.dumps({"shards": [{"file": "c.shard", "samples": 1}]}), "utf-8")
    assert [(list(source), list(target)) for source, target in read_corpus(f"{made}/c")] == [([9, 4, 5], [6])]
print(f"{len(weights)} weights, {len(steps)} steps, {len(found)} sentences")
