#!/usr/bin/env python3
"""CPU seconds of Muon's Newton-Schulz iteration: hadal's, that of PyTorch in fp32 (written from the formula; torch.optim.Muon rounds
to bf16), and hadal's products of the iteration alone, as whole products.

    tests/bench/muon_speed.py HADAL > tests/bench/results/muon_speed.txt

Each row: the least of ROUNDS runs in turn, one thread. Needs PyTorch, whose BLAS the first line names."""
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import torch

ROUNDS, WIDTHS = 5, (64, 128, 512)
A, B, C = 3.4445, -4.775, 2.0315


def newton_schulz(update: torch.Tensor) -> torch.Tensor:
    wide = update.size(0) <= update.size(1)
    x = update if wide else update.T
    x = x / x.norm().clamp(min=1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)
    return x if wide else x.T


def torch_seconds(matrix: torch.Tensor) -> float:
    newton_schulz(matrix)
    start = time.process_time()
    newton_schulz(matrix)
    turns = max(1, int(0.1 / (time.process_time() - start)))
    start = time.process_time()
    for _ in range(turns):
        newton_schulz(matrix)
    return (time.process_time() - start) / turns


def hadal_seconds(hadal: str) -> "dict[tuple[str, str], float]":
    report = subprocess.run([hadal, "bench", "kernels", "--device", "cpu", "--only", "orthogonalize", "--threads", "1", "--json", "--repeats", "3",
                             "--large-mib", "1", "--widths", *map(str, WIDTHS)], check=True, capture_output=True, text=True).stdout
    return {(kernel["kernel"], kernel["shape"]): kernel["cpu_seconds"] for kernel in json.loads(report)["kernels"]}


def main() -> None:
    torch.set_num_threads(1)
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    version = next(line.split()[1] for line in subprocess.run([sys.argv[1], "--build-info"], capture_output=True, text=True).stdout.splitlines()
                   if line.startswith("commit"))
    blas = sorted({line.split("/")[-1].strip() for line in Path("/proc/self/maps").read_text().splitlines() if "blas" in line or "mkl" in line})
    print(f"# {platform.machine()}, {os.cpu_count()} CPUs, {cpu}; commit {version} beside PyTorch {torch.__version__} with {', '.join(blas)}, "
          f"OPENBLAS_CORETYPE={os.environ.get('OPENBLAS_CORETYPE', '')}; least of {ROUNDS} rounds, one thread")
    print("# matrix, CPU us of an update by hadal, by PyTorch, PyTorch's / hadal's; hadal's products alone, hadal's / these")
    shapes = [shape for d in WIDTHS for shape in ((d, d), (4 * d, d), (d, 4 * d))]
    matrices = {f"{rows} x {columns}": torch.randn(rows, columns) for rows, columns in shapes}
    ours, theirs, limits = ({name: float("inf") for name in matrices} for _ in range(3))
    for _ in range(ROUNDS):
        seconds = hadal_seconds(sys.argv[1])
        for name, matrix in matrices.items():
            ours[name] = min(ours[name], seconds["orthogonalize", name])
            limits[name] = min(limits[name], seconds["orthogonalize: products alone", name])
            theirs[name] = min(theirs[name], torch_seconds(matrix))
    for name in matrices:
        print(f"{name:11} {1e6 * ours[name]:9.1f} {1e6 * theirs[name]:9.1f}  {theirs[name] / ours[name]:5.2f}"
              f"   {1e6 * limits[name]:9.1f}  {ours[name] / limits[name]:5.2f}")


if __name__ == "__main__":
    main()
