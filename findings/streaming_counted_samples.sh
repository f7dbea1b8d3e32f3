#!/usr/bin/env bash
# mosaicml-streaming 0.13.0: StreamingDataLoader counts the samples that it has given by the length of the batch's first member: of a dict
# the first value, of a list the first entry. So collate_fn decides where a resume begins. A list of samples counts the columns of its first
# sample, packed tokens of shape [1, tokens] count 1 a batch, and packed tokens of shape [tokens] count tokens: after a resume samples come
# twice, or are left out, without a message. The documentation promises that it works like a normal DataLoader.
. "$(dirname "$0")/support.sh"
packages mosaicml-streaming==0.13.0 torch==2.15.0 torchvision==0.29.2 numpy==2.1.3
cat > "$folder/resume.py" <<'PYTHON'
import importlib.metadata
import itertools
import sys

import numpy
import torch
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

folder, SAMPLES, BATCH, BATCHES = sys.argv[1], 96, 8, 2


def ids(samples):
    return torch.tensor([sample["id"] for sample in samples])


def tokens(samples):
    return torch.cat([torch.from_numpy(sample["tokens"].copy()) for sample in samples])


COLLATE = {
    "dict, ids first": lambda samples: {"ids": ids(samples), "tokens": tokens(samples)},
    "list of samples": lambda samples: samples,
    "dict, tokens [1, n] first": lambda samples: {"tokens": tokens(samples)[None], "ids": ids(samples)},
    "dict, tokens [n] first": lambda samples: {"tokens": tokens(samples), "ids": ids(samples)},
}


def read(collate, batches, state=None):
    """Reads so many batches with a new loader that resumes from the state; returns the ids of the samples and the state behind them."""
    dataset = StreamingDataset(local=folder, batch_size=BATCH, shuffle=True, shuffle_seed=7, num_canonical_nodes=1)
    loader = StreamingDataLoader(dataset, batch_size=BATCH, collate_fn=collate)
    if state is not None:
        loader.load_state_dict(state)
    given = []
    for batch in itertools.islice(loader, batches):
        given += batch["ids"].tolist() if isinstance(batch, dict) else [sample["id"] for sample in batch]
    return given, loader.state_dict()


with MDSWriter(out=folder, columns={"id": "int", "tokens": "ndarray:int32"}, size_limit=600) as writer:
    for index in range(SAMPLES):
        writer.write({"id": index, "tokens": numpy.full(4, index, numpy.int32)})
print(f"mosaicml-streaming {importlib.metadata.version('mosaicml-streaming')}: an epoch of {SAMPLES} samples, resumed after {BATCH * BATCHES}")
seen = {}
for name, collate in COLLATE.items():
    first, state = read(collate, BATCHES)
    rest, _ = read(collate, None, state)
    different = len(set(first + rest))
    seen[name] = len(first + rest) - different, SAMPLES - different
    print(f"{name}: expected place {BATCH * BATCHES}, no sample twice, none left out; seen place {state['sample_in_epoch']}, "
          f"{seen[name][0]} twice, {seen[name][1]} left out", flush=True)
sys.exit(seen != {"dict, ids first": (0, 0), "list of samples": (12, 0), "dict, tokens [1, n] first": (14, 0),
                  "dict, tokens [n] first": (0, 48)})
PYTHON
HOME=$folder OMP_NUM_THREADS=1 check "$python" -W ignore "$folder/resume.py" "$folder/data"
