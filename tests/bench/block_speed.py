#!/usr/bin/env python3
"""hadal's training step beside eager PyTorch's on the same decoder of Llama blocks, in turn, in one run.

    tests/bench/block_speed.py HADAL > tests/bench/results/block_speed.txt        run by a Python with torch ≥ 2.4
HADAL_MAX_CPU_ISA=AVX2 limits hadal, ATEN_CPU_CAPABILITY=avx2 PyTorch's own kernels (MKL takes its AVX2 kernels on AMD CPUs).

Both: Pre-LN, RMSNorm, rotary positions, SwiGLU of about 8/3 d, tied table, 7,904 words, blocks of 256 random words, four a step, clipped
at norm 1, AdamW, two threads, no dropout. A row: medians of step seconds after the first steps of a run; five pairs of runs in turn.
About ten minutes on two idle cores."""
import json
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

ROOT = Path(__file__).resolve().parents[2]
SHAPES = ((64, 4, 176, 200), (128, 4, 352, 100), (512, 8, 1376, 12))  # d_model, heads, d_ff, layers
ROWS, LENGTH, WORDS, PAIRS, THREADS = 4, 256, 7904, 5, 2
SKIPPED, STEPS = 2, 7


class Layer(nn.Module):
    def __init__(self, d, heads, d_ff):
        super().__init__()
        self.heads = heads
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * d_ff, bias=False), nn.Linear(d_ff, d, bias=False)

    def forward(self, x, cos, sin):
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

        def turn(y):
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat((-second, first), -1) * sin

        attended = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.feed_forward_norm(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Decoder(nn.Module):
    def __init__(self, d, heads, d_ff, layers):
        super().__init__()
        self.table = nn.Parameter(torch.randn(WORDS, d) / d**0.5)
        self.layers = nn.ModuleList(Layer(d, heads, d_ff) for _ in range(layers))
        self.norm = nn.RMSNorm(d, 1e-5)
        width = d // heads
        angles = torch.outer(torch.arange(LENGTH), 10000 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens):
        x = F.embedding(tokens[:, :-1], self.table)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin)
        return F.cross_entropy(F.linear(self.norm(x), self.table).flatten(0, 1), tokens[:, 1:].flatten())


def torch_seconds(d, heads, d_ff, layers):
    torch.manual_seed(1)
    model = Decoder(d, heads, d_ff, layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    seconds = []
    for _ in range(SKIPPED + STEPS):
        tokens = torch.randint(4, WORDS, (ROWS, LENGTH + 1))
        start = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[SKIPPED:]), sum(p.numel() for p in model.parameters())


def hadal_seconds(hadal, folder, d, heads, d_ff, layers):
    run = folder / "run"
    sets = {"data.train": folder / "data/train", "data.validation": '""', "model.decoder_layers": layers, "model.d_model": d,
            "model.d_ff": d_ff, "model.heads": heads, "model.dropout": 0, "batch.micro_batches": 1, "batch.target_tokens": ROWS * LENGTH,
            "stop.steps": SKIPPED + STEPS, "checkpoint.save_at_end": "false", "validation.every_steps": 0,
            "logging.every_steps": 1, "instruments.enabled": "false", "pipeline.threads": THREADS}
    subprocess.run(["rm", "-rf", run], check=True)
    subprocess.run([hadal, "train", "configs/language_model/base.textproto", "configs/block/llama.textproto", "configs/method/pre_ln.textproto",
                    "--run-dir", run, *(f"--set={name}={value}" for name, value in sets.items())],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert all(step["target_tokens"] == ROWS * LENGTH for step in steps), "a step is not whole"
    return statistics.median(step["step_seconds"] for step in steps[SKIPPED:]), events[0]["parameters"]


def main():
    hadal = Path(sys.argv[1]).resolve()
    torch.set_num_threads(THREADS)
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    print(f"# {time.strftime('%F')}, {platform.machine()}, {os.cpu_count()} CPUs, {cpu}, hadal {commit}, PyTorch {torch.__version__}, "
          f"HADAL_MAX_CPU_ISA={os.environ.get('HADAL_MAX_CPU_ISA', '')}, "
          f"ATEN_CPU_CAPABILITY={os.environ.get('ATEN_CPU_CAPABILITY', '')}, load {os.getloadavg()[0]:.1f}")
    print(f"# Llama block; step seconds of {ROWS * LENGTH} tokens: hadal's, PyTorch's, PyTorch's divided by hadal's (least to most)")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        draw = random.Random(1)
        texts = (" ".join(f"w{draw.randrange(7900)}" for _ in range(64)) for _ in range(3000))
        (folder / "text").write_text("\n\n".join(texts))
        subprocess.run([hadal, "prepare", "--monolingual", "--train", folder / "text", "--out", folder / "data", "--vocab-type", "word",
                        "--block", str(LENGTH)], check=True, capture_output=True)
        for d, heads, d_ff, layers in SHAPES:
            pairs = []
            for _ in range(PAIRS):
                (ours, parameters), (theirs, their_parameters) = (hadal_seconds(hadal, folder, d, heads, d_ff, layers),
                                                                  torch_seconds(d, heads, d_ff, layers))
                assert parameters == their_parameters, (parameters, their_parameters)
                pairs.append((ours, theirs))
            ratios = sorted(theirs / ours for ours, theirs in pairs)
            print(f"d={d:<3} {layers:>3} layers: {statistics.median(p[0] for p in pairs):.3f} {statistics.median(p[1] for p in pairs):.3f} "
                  f"  {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
