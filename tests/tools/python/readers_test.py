"""readers_test.py RUN CORPUS EXPORT.safetensors LINES: hadal_torch's readers against each other and against what the run was told."""

import sys

import numpy as np
import pandas

from hadal_torch import read_plain
from hadal_torch.readers import read_checkpoint, read_corpus, read_metrics
from hadal_torch.tokenizer import parse_vocabulary

run, corpus, export, text = sys.argv[1:]
plain = read_plain(export)
weights = read_checkpoint(f"{run}/checkpoints/latest")
assert weights.keys() == plain.weights.keys()
assert all(np.array_equal(value, plain.weights[name]) for name, value in weights.items())
assert all(np.all(value >= 0) for value in read_checkpoint(f"{run}/checkpoints/latest", "adam_v").values())
steps = read_metrics(run)
assert isinstance(steps, pandas.DataFrame) and list(steps["step"]) == list(range(1, plain.step + 1)), steps
tokens = parse_vocabulary(*plain.vocabulary("source")).tokens
with open(text, encoding="utf-8") as file:
    lines = [" ".join(line.split()) for line in file]
found = ["".join(tokens[i] for i in source).replace("▁", " ").strip() for source, _ in read_corpus(corpus)]
assert found == lines, (len(found), len(lines), found[:2], lines[:2])
print(f"{len(weights)} weights, {len(steps)} steps, {len(found)} sentences")
