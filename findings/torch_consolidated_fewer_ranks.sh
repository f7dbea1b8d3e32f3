#!/usr/bin/env bash
# PyTorch 2.15.0: a checkpoint that is saved as safetensors into the folder of an earlier one of more ranks is a mixture of both. The
# writer leaves the shards of the ranks that are no longer there, and what consolidates them (and HuggingFaceStorageReader) takes every
# file of the folder, in the directory's order: old rows lie over new ones, without an error. So a job that saves into "latest", and goes on
# with fewer nodes, publishes and resumes from weights that no step had. FileSystemReader, of the default format, reads the right files. As
# the directory's order is chance, six folders are tried, with other names of files in each.
. "$(dirname "$0")/support.sh"
packages torch==2.15.0 safetensors==0.8.0 numpy==2.4.6
cat > "$folder/save.py" <<'PYTHON'
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

folder, step = sys.argv[1], int(sys.argv[2])
dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
state = {"weight": distribute_tensor(torch.full((8, 2), float(step)), mesh, [Shard(0)])}
for index in range(1, 7):
    writer = dcp.HuggingFaceStorageWriter(f"{folder}/{index}", {"weight": index}, save_distributed=True, enable_consolidation=True)
    dcp.save(state, storage_writer=writer)
dcp.save(state, storage_writer=dcp.FileSystemWriter(folder + "/own_format", overwrite=True))
dist.destroy_process_group()
PYTHON
cat > "$folder/show.py" <<'PYTHON'
import os
import sys

import torch
import torch.distributed.checkpoint as dcp
from safetensors.torch import load_file

folder = sys.argv[1]


def load(reader):
    state = {"weight": torch.zeros(8, 2)}
    dcp.load(state, storage_reader=reader, no_dist=True)
    return state["weight"]


def steps(weights):
    return [sorted(set(weight.flatten().int().tolist())) for weight in weights]


indices = range(1, 7)
seen = {"consolidated": steps(load_file(f"{folder}/{index}/model-0000{index}-of-0000{index}.safetensors")["weight"] for index in indices),
        "HuggingFaceStorageReader": steps(load(dcp.HuggingFaceStorageReader(f"{folder}/{index}/sharded")) for index in indices),
        "FileSystemReader": steps([load(dcp.FileSystemReader(folder + "/own_format"))])}
print(f"PyTorch {torch.__version__}: four ranks save a matrix of 100, then one rank, in the same folder, one of 200")
print(f"files of shards: expected 1, seen {len(os.listdir(folder + '/1/sharded'))}")
for name, values in seen.items():
    print(f"{name}: expected [200] of every folder, seen", *values)
sys.exit([100, 200] not in seen["consolidated"] or seen["FileSystemReader"] != [[200]])
PYTHON
export HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1
for ranks in "4 100" "1 200"; do
  quiet "$folder/python/bin/torchrun" --standalone --nproc-per-node="${ranks% *}" "$folder/save.py" "$folder" "${ranks#* }" 2>> "$folder/messages"
done
check "$python" "$folder/show.py" "$folder"
