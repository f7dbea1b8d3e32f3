#!/usr/bin/env python3
"""CPU seconds of a training step: two builds of hadal side by side, on a machine that need not be idle.

    tests/bench/step_cpu.py HADAL OTHER_HADAL > tests/bench/results/step_cpu.txt

Each row: runs of `hadal bench step` in turn, one thread, bound to one CPU. A run's time is the user CPU seconds of its steps and what
comes before them, divided by their number; of these the medians, the ratio of the medians and that of the least. Takes about ten minutes."""
import os
import platform
import resource
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Callable

PAIRS, STEPS = 7, 10
MODELS = {"d=512, 1L-1L": "--d-model 512 --encoder-layers 1 --decoder-layers 1",
          "d=128, 10L-10L": "--d-model 128 --encoder-layers 10 --decoder-layers 10 --heads 4",
          "d=64, 50L-50L": "--d-model 64 --encoder-layers 50 --decoder-layers 50 --heads 4"}


def step_of(hadal: str, model: str, limit: str) -> float:
    """User CPU seconds of a step with at most the instruction set `limit`."""
    environment = os.environ | ({"HADAL_MAX_CPU_ISA": limit, "ONEDNN_MAX_CPU_ISA": limit} if limit else {})
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    subprocess.run([hadal, "bench", "step", *model.split(), "--dropout", "0.1", "--threads", "1", "--no-limit", "--repeats", str(STEPS)],
                   env=environment, check=True, capture_output=True)
    return (resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before) / STEPS


def setting(*programs: str) -> str:
    """The machine and the programs' commits."""
    cpu = next(line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name"))
    commits = [next(line for line in subprocess.run([hadal, "--build-info"], capture_output=True, text=True).stdout.splitlines()
                    if line.startswith("commit")).split()[1] for hadal in programs]
    return f"# {platform.machine()}, {os.cpu_count()} CPUs, {cpu}; commit {' beside '.join(commits)}"


def in_turn(pairs: int, seconds_of: Callable[[int], float]) -> tuple[list[float], list[float]]:
    """What seconds_of(side) returns for the sides 0 and 1, called in turn."""
    times: tuple[list[float], list[float]] = [], []
    for pair in range(pairs):
        for side in (0, 1) if pair % 2 else (1, 0):
            times[side].append(seconds_of(side))
    return times


def main() -> None:
    ours, other = sys.argv[1:]
    print(f"{setting(ours, other)}; medians of {PAIRS} pairs")
    print("# instruction set at most, model, user CPU seconds of a step, of the other build, the other's divided by ours: medians, least; load")
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for limit in ("AVX2", ""):
        for name, model in MODELS.items():
            times = in_turn(PAIRS, lambda side: step_of((ours, other)[side], model, limit))
            our_median, other_median = map(statistics.median, times)
            print(f"{limit or 'any':5} {name:15} {our_median:7.3f} {other_median:7.3f}"
                  f"   {other_median / our_median:.3f} {min(times[1]) / min(times[0]):.3f}   {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
