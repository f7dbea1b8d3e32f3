#!/usr/bin/env python3
"""CPU seconds of a training step: two builds of hadal side by side, on a machine that need not be idle.

    tests/bench/step_cpu.py HADAL OTHER_HADAL > tests/bench/results/step_cpu.txt

Each row: medians over pairs of runs of `hadal bench step` in turn, one thread. A run's time is the user CPU seconds of some steps more,
divided by their number; a busy machine changes it by what its caches lose, for both builds alike. Takes about ten minutes."""
import os
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path

PAIRS, STEPS = 5, 4
MODELS = {"d=512, 1L-1L": "--d-model 512 --encoder-layers 1 --decoder-layers 1",
          "d=128, 10L-10L": "--d-model 128 --encoder-layers 10 --decoder-layers 10 --heads 4",
          "d=64, 50L-50L": "--d-model 64 --encoder-layers 50 --decoder-layers 50 --heads 4"}


def seconds_of(hadal: str, model: str, limit: str, repeats: int) -> float:
    """User CPU seconds of `repeats` steps and what comes before them, with at most the instruction set `limit`."""
    environment = os.environ | ({"HADAL_MAX_CPU_ISA": limit, "ONEDNN_MAX_CPU_ISA": limit} if limit else {})
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([hadal, "bench", "step", *model.split(), "--dropout", "0.1", "--threads", "1", "--no-limit", "--repeats", str(repeats)],
                   env=environment, check=True, capture_output=True)
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before


def step_of(hadal: str, model: str, limit: str) -> float:
    return (seconds_of(hadal, model, limit, 1 + STEPS) - seconds_of(hadal, model, limit, 1)) / STEPS


def main() -> None:
    ours, other = sys.argv[1:]
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    versions = [next(line for line in subprocess.run([hadal, "--build-info"], capture_output=True, text=True).stdout.splitlines()
                     if line.startswith("commit")).split()[1] for hadal in (ours, other)]
    print(f"# {platform.machine()}, {os.cpu_count()} CPUs, {cpu}; commit {versions[0]} beside {versions[1]}; medians of {PAIRS} pairs")
    print("# instruction set at most, model, user CPU seconds of a step, of the other build, the other's divided by ours (least to most), load")
    for limit in ("AVX2", ""):
        for name, model in MODELS.items():
            pairs = [(step_of(ours, model, limit), step_of(other, model, limit)) for _ in range(PAIRS)]
            ratios = sorted(pair[1] / pair[0] for pair in pairs)
            print(f"{limit or 'any':5} {name:15} {statistics.median(p[0] for p in pairs):7.3f} {statistics.median(p[1] for p in pairs):7.3f}"
                  f"   {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})   {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
