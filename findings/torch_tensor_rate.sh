#!/usr/bin/env bash
# PyTorch 2.15.0: if an optimizer's rate is a tensor, as torch.compile's recipe for schedulers requires, all parameter groups without a rate
# of their own share that one tensor. Schedulers write into it. So where a schedule differs between groups (LambdaLR takes a function for
# each, OneCycleLR and CyclicLR a maximum), every group has the last group's rate, and nothing is printed.
. "$(dirname "$0")/support.sh"
packages torch==2.15.0 numpy==2.4.6
HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 check "$python" - <<'PYTHON'
import sys
import warnings

import torch
from torch.optim.lr_scheduler import LambdaLR, OneCycleLR

SCHEDULES = {"LambdaLR, the body's rate times 1, the head's times 0": lambda optimizer: LambdaLR(optimizer, [lambda step: 1.0, lambda step: 0.0]),
             "OneCycleLR, max_lr=[0.1, 0.01]": lambda optimizer: OneCycleLR(optimizer, max_lr=[0.1, 0.01], total_steps=10)}


def train(rate, schedule):
    """Returns the rates of body and head after 4 steps, and how far their weights moved."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 1)]
    before = [layer.weight.detach().clone() for layer in layers]
    optimizer = torch.optim.AdamW([{"params": layer.parameters()} for layer in layers], lr=rate, fused=True)
    scheduler = schedule(optimizer)
    for _ in range(4):
        optimizer.zero_grad()
        layers[1](layers[0](torch.randn(8, 4))).square().mean().backward()
        optimizer.step()
        scheduler.step()
    rates = [round(float(group["lr"]), 3) for group in optimizer.param_groups]
    return rates, [round(float((layer.weight.detach() - weight).abs().max()), 3) for layer, weight in zip(layers, before)]


print(f"PyTorch {torch.__version__}: AdamW, two groups (body, head), 4 steps; expected is what lr=0.1 gives, seen what lr=torch.tensor(0.1) gives")
seen = []
with warnings.catch_warnings(record=True) as printed:
    warnings.simplefilter("always")
    for name, schedule in SCHEDULES.items():
        expected, tensor = train(0.1, schedule), train(torch.tensor(0.1), schedule)
        print(f"{name}: rates: expected {expected[0]}, seen {tensor[0]}; largest change of a weight: expected {expected[1]}, seen {tensor[1]}")
        seen.append(expected[0][0] > expected[0][1] and tensor[0] == [expected[0][1]] * 2 and tensor[1][0] < expected[1][0] / 5)
print(f"warnings: {len(printed)}")
sys.exit(not all(seen) or bool(printed))
PYTHON
