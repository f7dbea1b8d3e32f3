#!/usr/bin/env bash
# PyTorch 2.15.0: a checkpoint of torch.distributed.checkpoint that is written as safetensors and consolidated has 0 in place of every
# parameter without dimensions (a gain of ReZero, a temperature, CLIP's logit_scale), without an error or a warning. Names, shapes and sizes
# are right, and so are the shards beside it. Such a model loads and computes something else: with a gain of 0 its layers are identities.
. "$(dirname "$0")/support.sh"
packages torch==2.15.0 safetensors==0.8.0 numpy==2.4.6
HOME=$folder CUDA_VISIBLE_DEVICES='' check "$python" - "$folder" <<'PYTHON'
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

model = torch.nn.Module()
model.weight = torch.nn.Parameter(torch.full((2, 2), 0.5))
model.gain = torch.nn.Parameter(torch.tensor(0.5))
model.gain_of_one = torch.nn.Parameter(torch.tensor([0.5]))
path = sys.argv[1] + "/saved"
writer = dcp.HuggingFaceStorageWriter(path, save_distributed=True, enable_consolidation=True)
dcp.save(model.state_dict(), storage_writer=writer)
saved = load_file(path + "/model-00001-of-00001.safetensors")
shard = load_file(path + "/sharded/shard-00001-model-00001-of-00001.safetensors")
print(f"PyTorch {torch.__version__}: HuggingFaceStorageWriter, consolidated; every parameter was 0.5")
seen = {name: (list(saved[name].shape), saved[name].unique().tolist(), shard[name].unique().tolist()) for name in model.state_dict()}
for name, (shape, values, in_shard) in seen.items():
    print(f"{name} of shape {shape}: expected [0.5], seen {values}, in the shard {in_shard}")
sys.exit(seen != {"weight": ([2, 2], [0.5], [0.5]), "gain": ([], [0.0], [0.5]), "gain_of_one": ([1], [0.5], [0.5])})
PYTHON
