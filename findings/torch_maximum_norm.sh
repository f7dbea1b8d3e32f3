#!/usr/bin/env bash
# PyTorch 2.15.0: clip_grad_norm_ with the maximum norm does not see NaN in the gradients of a sharded model. With fully_shard and gloo the
# ranks' maxima are combined by a maximum that loses a NaN, and numbers of other ranks with it: error_if_nonfinite raises nothing, and all
# gradients are scaled by a norm that is too small, or by none. The 2-norm raises on every rank, and the unsharded model in both norms.
. "$(dirname "$0")/support.sh"
packages torch==2.15.0 numpy==2.4.6
cat > "$folder/clip.py" <<'PYTHON'
import math
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.utils import clip_grad_norm_

dist.init_process_group("gloo")
ranks = dist.get_world_size()
mesh = init_device_mesh("cpu", (ranks,))


def norm_of(row_with_nan, kind, sharded):
    """What clip_grad_norm_ returns for gradients 1, 2, 3, 4 of the rows, one of them NaN."""
    model = torch.nn.Linear(1, ranks, bias=False)
    if sharded:
        fully_shard(model, mesh=mesh)
    factors = torch.arange(1.0, ranks + 1)
    factors[row_with_nan] = math.nan
    (model(torch.ones(1, 1)) * factors).sum().backward()
    try:
        norm = clip_grad_norm_(model.parameters(), 1.0, norm_type=kind, error_if_nonfinite=True)
    except RuntimeError:
        return "raised"
    return (norm.full_tensor() if sharded else norm).item()


seen = {(kind, sharded): [norm_of(row, kind, sharded) for row in range(ranks)] for kind in (2.0, math.inf) for sharded in (False, True)}
if dist.get_rank() == 0:
    print(f"PyTorch {torch.__version__}, {ranks} ranks: gradients 1, 2, 3, 4, of which the first, the second, … is NaN; error_if_nonfinite=True")
    for (kind, sharded), norms in seen.items():
        print(f"norm {kind}, {'fully_shard' if sharded else 'unsharded'}: expected {['raised'] * ranks}, seen {norms}")
    silent = seen.pop((math.inf, True))
    with open(sys.argv[1], "w") as file:  # torchrun has one exit code for all failures
        print(silent.count("raised") == ranks or any(set(norms) != {"raised"} for norms in seen.values()), file=file)
dist.destroy_process_group()
PYTHON
HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 "$folder/python/bin/torchrun" --standalone --nproc-per-node=4 "$folder/clip.py" "$folder/changed"
check grep -qx False "$folder/changed"
