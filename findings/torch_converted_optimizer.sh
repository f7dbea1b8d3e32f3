#!/usr/bin/env bash
# PyTorch 2.15.0: the converters of torch.distributed.checkpoint drop an optimizer's moments. Keys that are numbers become strings in a
# distributed checkpoint, an optimizer's state has a number for each parameter, and load_state_dict takes what has another key for state of
# no parameter. So Adam starts again at its first step, with the learning rate of the resumed one, and nothing is printed.
. "$(dirname "$0")/support.sh"
packages torch==2.15.0 numpy==2.4.6
export HOME=$folder CUDA_VISIBLE_DEVICES=''
cat > "$folder/train.py" <<'PYTHON'
import sys
import warnings

import torch


def make():
    model = torch.nn.Linear(4, 4, bias=False)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model, optimizer, steps):
    for step in steps:
        torch.manual_seed(step)
        optimizer.zero_grad()
        (model(torch.randn(8, 4)) - torch.randn(8, 4)).square().mean().backward()
        optimizer.step()


folder, what = sys.argv[1:]
if what == "save":
    torch.manual_seed(0)
    model, optimizer = make()
    train(model, optimizer, range(1, 101))
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder + "/saved.pt")
    sys.exit()
seen, weights = {}, {}
with warnings.catch_warnings(record=True) as printed:
    warnings.simplefilter("always")
    for name in ("saved", "back"):
        checkpoint = torch.load(f"{folder}/{name}.pt")
        model, optimizer = make()
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        train(model, optimizer, range(101, 103))
        seen[name] = int(optimizer.state[model.weight]["step"])
        weights[name] = model.weight.detach()
print(f"PyTorch {torch.__version__}: AdamW of 100 steps, torch_to_dcp, dcp_to_torch, load_state_dict, two steps more")
print(f"warnings: {len(printed)}; keys of the optimizer's state: {list(checkpoint['optimizer']['state'])}")
print(f"steps that AdamW counts: expected 102, seen {seen['back']} (without the conversion {seen['saved']})")
print(f"largest difference of a weight after the two steps, of which each moves it by at most 0.1: {(weights['back'] - weights['saved']).abs().max():.3f}")
sys.exit(bool(printed) or seen != {"saved": 102, "back": 2})
PYTHON
convert() { quiet "$python" -m torch.distributed.checkpoint.format_utils "$@"; }
"$python" "$folder/train.py" "$folder" save
convert torch_to_dcp "$folder/saved.pt" "$folder/distributed"
convert dcp_to_torch "$folder/distributed" "$folder/back.pt"
check "$python" "$folder/train.py" "$folder" show
