#!/usr/bin/env bash
# DeepSpeed 0.19.8, ZeRO-1: a universal checkpoint has every tensor of the model, and a resume from it takes the trained parameters alone.
# Buffers (a BatchNorm's running mean and variance) and frozen parameters stay as the new model was made, on the same number of ranks too, and
# no message says so; the checkpoint that it was converted from restores them. And load_module_only=True and load_optimizer_states=False have
# no effect on it: moments, step count and the old learning rate are loaded, in place of the rate that was asked for.
. "$(dirname "$0")/support.sh"
packages deepspeed==0.19.8 torch==2.15.0 numpy==2.4.6
cat > "$folder/train.py" <<'PYTHON'
import logging
import os
import socket
import subprocess
import sys

with socket.create_server(("127.0.0.1", 0)) as server:
    port = server.getsockname()[1]
os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))

import deepspeed
import torch

deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # needs a compiler, and is for several ranks
deepspeed.utils.logger.setLevel(logging.ERROR)
deepspeed.init_distributed("gloo", auto_mpi_discovery=False, verbose=False)
folder = sys.argv[1]


def make(seed, rate, universal):
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 4))
    model[0].requires_grad_(False)
    return deepspeed.initialize(model=model, optimizer=torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=rate), config={
        "train_micro_batch_size_per_gpu": 16, "zero_optimization": {"stage": 1}, "checkpoint": {"load_universal": universal}})[0]


engine = make(seed=0, rate=0.01, universal=False)
for step in range(5):
    torch.manual_seed(step)
    batch = torch.randn(16, 8) + 3
    engine.backward((engine(batch) - batch[:, :4]).square().mean())
    engine.step()
engine.save_checkpoint(folder, tag="ordinary")
saved = {name: value.clone() for name, value in engine.module.state_dict().items()}
subprocess.run([sys.executable, "-m", "deepspeed.checkpoint.ds_to_universal", "--inject_missing_state", "--input_folder", f"{folder}/ordinary",
                "--output_folder", f"{folder}/universal"], check=True, stdout=subprocess.DEVNULL)
held = sorted(name for name in saved if os.path.exists(f"{folder}/universal/zero/{name}/fp32.pt"))

print(f"DeepSpeed {deepspeed.__version__}, PyTorch {torch.__version__}: 5 steps with the rate 0.01, resumed by a new model with the rate 0.001")
print(f"tensors of the model that the universal checkpoint has: {len(held)} of {len(saved)}")
seen = {}
for tag, choice in (("ordinary", {}), ("universal", {}), ("ordinary", {"load_module_only": True}), ("universal", {"load_module_only": True}),
                    ("universal", {"load_optimizer_states": False})):
    engine = make(seed=1, rate=0.001, universal=tag == "universal")
    engine.load_checkpoint(folder, tag=tag, **choice)
    lost = [name for name, value in engine.module.state_dict().items() if not torch.equal(value, saved[name])]
    adam = engine.optimizer.optimizer
    group = adam.param_groups[0]
    steps = int(adam.state[group["params"][0]].get("step", 0))
    seen[tag, *choice] = lost, steps, group["lr"]
    print(f"{tag}, {choice or 'default'}: Adam's steps {steps}, rate {group['lr']}; tensors that differ, expected none: {', '.join(lost) or 'none'}",
          flush=True)
lost = ["0.weight", "0.bias", "1.running_mean", "1.running_var", "1.num_batches_tracked"]
wanted = {("ordinary",): ([], 5, 0.01), ("universal",): (lost, 5, 0.01), ("ordinary", "load_module_only"): ([], 0, 0.001),
          ("universal", "load_module_only"): (lost, 5, 0.01), ("universal", "load_optimizer_states"): (lost, 5, 0.01)}
sys.exit(seen != wanted or held != sorted(saved))
PYTHON
HOME=$folder CUDA_VISIBLE_DEVICES='' DS_ACCELERATOR=cpu OMP_NUM_THREADS=1 check "$python" -W ignore "$folder/train.py" "$folder"
