#!/usr/bin/env python3
"""hadal's training step beside eager PyTorch's on the same decoder of Llama blocks, in turn, in one run.

    tests/bench/block_speed.py HADAL > tests/bench/results/block_speed.txt        run by a Python with torch ≥ 2.4
    tests/bench/block_speed.py HADAL attn_res > tests/bench/results/attn_res_speed.txt
HADAL_MAX_CPU_ISA=AVX2 limits hadal, ATEN_CPU_CAPABILITY=avx2 PyTorch's own kernels (MKL takes its AVX2 kernels on AMD CPUs).

Both: Pre-LN, RMSNorm, rotary positions, SwiGLU of about 8/3 d, tied table, 7,904 words, blocks of 256 random words, four a step, clipped
at norm 1, AdamW, two threads, no dropout. A row: medians of step seconds after the first steps of a run; five pairs of runs in turn.
About ten minutes on two idle cores. With attn_res: Attention Residuals of 16 blocks, in PyTorch as their paper's pseudocode has them;
100 layers, one thread, three pairs, user CPU seconds of a step, which other work on the machine changes little. In both cases the loss of hadal's
last checkpoint must be PyTorch's first, within 1e-4."""
import json
import os
import platform
import random
import resource
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
sys.path.insert(0, str(ROOT / "tools/python"))
from hadal_torch import read_plain  # noqa: E402

METHOD = sys.argv[2] if len(sys.argv) > 2 else "pre_ln"
SOURCES = METHOD == "attn_res"
SHAPES = ((64, 4, 176, 200), (128, 4, 352, 100), (512, 8, 1376, 12))[SOURCES : 2 if SOURCES else 3]  # d_model, heads, d_ff, layers
ROWS, LENGTH, WORDS, BLOCKS, SKIPPED = 4, 256, 7904, 16, 2
PAIRS, THREADS, STEPS = (3, 1, 4) if SOURCES else (5, 2, 7)


class Reader(nn.Module):
    """[B, T, d]: a softmax over sources, by a query and their RMS-normed values."""

    def __init__(self, d):
        super().__init__()
        self.norm, self.query = nn.RMSNorm(d, 1e-5), nn.Parameter(torch.zeros(d))

    def forward(self, sources):
        values = torch.stack(sources)
        weights = torch.einsum("d,nbtd->nbt", self.query, self.norm(values)).softmax(0)
        return torch.einsum("nbt,nbtd->btd", weights, values)


class Layer(nn.Module):
    def __init__(self, d, heads, d_ff, first):
        super().__init__()
        self.heads = heads
        if SOURCES:
            self.readers = nn.ModuleList([nn.Identity() if first else Reader(d), Reader(d)])
        self.attention_norm, self.feed_forward_norm = nn.RMSNorm(d, 1e-5), nn.RMSNorm(d, 1e-5)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate_up, self.down = nn.Linear(d, 2 * d_ff, bias=False), nn.Linear(d_ff, d, bias=False)

    def attend(self, x, cos, sin):
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)

        def turn(y):
            first, second = y.chunk(2, -1)
            return y * cos + torch.cat((-second, first), -1) * sin

        attended = F.scaled_dot_product_attention(turn(q), turn(k), v, is_causal=True)
        return self.out(attended.transpose(1, 2).flatten(2))

    def feed(self, x):
        gate, up = self.gate_up(self.feed_forward_norm(x)).chunk(2, -1)
        return self.down(F.silu(gate) * up)

    def load(self, weights, name):
        def of(*parts):
            return torch.cat([torch.from_numpy(weights[f"{name}.{part}.weight"]) for part in parts])

        for to, parts in ((self.attention_norm, ["self_attn_layer_norm"]), (self.feed_forward_norm, ["final_layer_norm"]),
                          (self.qkv, [f"self_attn.{x}_proj" for x in "qkv"]), (self.out, ["self_attn.out_proj"]),
                          (self.gate_up, ["fc1", "fc3"]), (self.down, ["fc2"])):
            to.weight.data = of(*parts)
        for reader, part in zip(self.readers if SOURCES else (), ("self_attn", "ffn")):
            if isinstance(reader, Reader):
                reader.norm.weight.data, reader.query.data = of(f"{part}_res_norm"), of(f"{part}_res_proj").flatten()


class Decoder(nn.Module):
    def __init__(self, d, heads, d_ff, layers):
        super().__init__()
        self.table = nn.Parameter(torch.randn(WORDS, d) / d**0.5)
        self.layers = nn.ModuleList(Layer(d, heads, d_ff, i == 0) for i in range(layers))
        self.norm = nn.RMSNorm(d, 1e-5)
        self.reader, self.block = Reader(d) if SOURCES else None, -(-2 * layers // BLOCKS)  # sublayers of a block
        width = d // heads
        angles = torch.outer(torch.arange(LENGTH), 10000 ** (-torch.arange(0, width, 2) / width)).repeat(1, 2)
        self.cos, self.sin = angles.cos(), angles.sin()

    def forward(self, tokens):
        x = F.embedding(tokens[:, :-1], self.table)
        places = slice(x.shape[1])
        finished, partial = [x], []  # attn_res: sums of blocks, and of the open one
        for s in range(2 * len(self.layers)):
            layer = self.layers[s // 2]
            if SOURCES and s > 0:
                x = layer.readers[s % 2](finished + partial)
            y = layer.feed(x) if s % 2 else layer.attend(x, self.cos[places], self.sin[places])
            if not SOURCES:
                x = x + y
                continue
            partial = [partial[0] + y] if partial else [y]
            if (s + 1) % self.block == 0 or s + 1 == 2 * len(self.layers):
                finished, partial = finished + partial, []
        x = self.reader(finished) if SOURCES else x
        return F.cross_entropy(F.linear(self.norm(x), self.table).flatten(0, 1), tokens[:, 1:].flatten())


    def load(self, weights):
        self.table.data = torch.from_numpy(weights["decoder.embed_tokens.weight"])
        self.norm.weight.data = torch.from_numpy(weights["decoder.layer_norm.weight"])
        if SOURCES:
            self.reader.norm.weight.data = torch.from_numpy(weights["decoder.output_attn_res_norm.weight"])
            self.reader.query.data = torch.from_numpy(weights["decoder.output_attn_res_proj.weight"]).flatten()
        for i, layer in enumerate(self.layers):
            layer.load(weights, f"decoder.layers.{i}")


def check_loss(hadal, folder, shape):
    """That both compute the same function: of the weights of hadal's run, on one text."""
    subprocess.run([hadal, "checkpoint", "export", folder / "run", "--out", folder / "export.safetensors"], check=True, capture_output=True)
    ids = [random.Random(2).randrange(4, WORDS) for _ in range(100)]
    (folder / "ids").write_text(" ".join(map(str, ids)))
    scored = subprocess.run([hadal, "score", folder / "run", "--ids", "--target", folder / "ids", "--threads", "1"],
                            check=True, capture_output=True, text=True).stdout.split("\t")
    model = Decoder(*shape)
    model.load(read_plain(str(folder / "export.safetensors")).weights)
    with torch.no_grad():
        ours, theirs = -float(scored[0]) / int(scored[1]), model(torch.tensor([[2, *ids, 2]])).item()
    print(f"# loss of a text by weights of hadal's run: {ours:.6f} by hadal, {theirs:.6f} by PyTorch")
    assert int(scored[1]) == len(ids) + 1 and abs(ours - theirs) < 1e-4, (scored, theirs)


def torch_seconds(d, heads, d_ff, layers):
    torch.manual_seed(1)
    model = Decoder(d, heads, d_ff, layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    seconds = []
    for _ in range(SKIPPED + STEPS):
        tokens = torch.randint(4, WORDS, (ROWS, LENGTH + 1))
        start = resource.getrusage(resource.RUSAGE_SELF).ru_utime if SOURCES else time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        model(tokens).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1)
        optimizer.step()
        seconds.append((resource.getrusage(resource.RUSAGE_SELF).ru_utime if SOURCES else time.perf_counter()) - start)
    return statistics.median(seconds[SKIPPED:]), sum(p.numel() for p in model.parameters())


def hadal_seconds(hadal, folder, d, heads, d_ff, layers, steps=SKIPPED + STEPS):
    run, start_and_end = folder / "run", 0  # the latter with the first steps
    if SOURCES and steps > SKIPPED:
        start_and_end = hadal_seconds(hadal, folder, d, heads, d_ff, layers, SKIPPED)[0]
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    sets = {"data.train": folder / "data/train", "data.validation": '""', "model.decoder_layers": layers, "model.d_model": d,
            "model.d_ff": d_ff, "model.heads": heads, "model.dropout": 0, "batch.micro_batches": 1, "batch.target_tokens": ROWS * LENGTH,
            "stop.steps": steps, "validation.every_steps": 0,
            "logging.every_steps": 1, "instruments.enabled": "false", "pipeline.threads": THREADS}
    subprocess.run(["rm", "-rf", run], check=True)
    subprocess.run([hadal, "train", "configs/language_model/base.textproto", "configs/block/llama.textproto", f"configs/method/{METHOD}.textproto",
                    "--run-dir", run, *(f"--set={name}={value}" for name, value in sets.items())],
                   cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    if steps > SKIPPED:
        used = (used - start_and_end) / STEPS
    events = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [event for event in events if event["event"] == "step"]
    assert all(step["target_tokens"] == ROWS * LENGTH for step in steps), "a step is not whole"
    return used if SOURCES else statistics.median(step["step_seconds"] for step in steps[SKIPPED:]), events[0]["parameters"]


def main():
    hadal = Path(sys.argv[1]).resolve()
    torch.set_num_threads(THREADS)
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    commit = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True).stdout.strip()
    print(f"# {time.strftime('%F')}, {platform.machine()}, {os.cpu_count()} CPUs, {cpu}, hadal {commit}, PyTorch {torch.__version__}, "
          f"HADAL_MAX_CPU_ISA={os.environ.get('HADAL_MAX_CPU_ISA', '')}, "
          f"ATEN_CPU_CAPABILITY={os.environ.get('ATEN_CPU_CAPABILITY', '')}, load {os.getloadavg()[0]:.1f}")
    kind = "user CPU seconds of a step" if SOURCES else "step seconds"
    print(f"# {METHOD}, Llama block, {THREADS} threads; {kind} of {ROWS * LENGTH} tokens: hadal's, PyTorch's, PyTorch's divided by hadal's (least to most)")
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
                if not pairs:
                    check_loss(hadal, folder, (d, heads, d_ff, layers))
                pairs.append((ours, theirs))
            ratios = sorted(theirs / ours for ours, theirs in pairs)
            print(f"d={d:<3} {layers:>3} layers: {statistics.median(p[0] for p in pairs):.3f} {statistics.median(p[1] for p in pairs):.3f} "
                  f"  {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})", flush=True)


if __name__ == "__main__":
    main()
