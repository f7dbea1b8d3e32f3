#!/usr/bin/env python3
"""What sums in groups (batch.sum_groups) cost: steps of this build beside those of a build before them, and G = 8 beside G = 1.

    tests/bench/sum_groups_cost.py HADAL OLDER_HADAL > tests/bench/results/sum_groups_cost.txt

Each row: runs of `hadal train` in turn, eight micro-batches a step, one thread a rank, on a CPU each. On one rank a run's time is the user CPU
seconds between the second and the last of its steps, that is of a run of STEPS steps less those of a run of one; on two replicas, whose ranks wait
for each other, it is the median step_seconds of its metrics.jsonl. Takes about ten minutes of an otherwise idle machine."""
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from step_cpu import in_turn, setting

ROOT = Path(__file__).resolve().parents[2]
PAIRS, STEPS = 5, 5
MODELS = {"d=512, 1L-1L": (512, 1), "d=128, 10L-10L": (128, 10), "d=64, 50L-50L": (64, 50)}


def train(hadal: str, work: Path, width: int, layers: int, replicas: int, groups: int, steps: int) -> Path:
    run = Path(tempfile.mkdtemp(dir=work))
    launch = [] if replicas == 1 else ["mpirun", "--bind-to", "core", "-np", str(replicas)]
    fields = {"model.encoder_layers": layers, "model.decoder_layers": layers, "model.d_model": width, "model.d_ff": 4 * width, "model.heads": 4,
              "data.train": f"{work}/data/train", "data.validation": f"{work}/data/valid", "batch.micro_batches": 8, "batch.source_tokens": 1024, "batch.target_tokens": 1024,
              "pipeline.threads": 1, "pipeline.replicas": replicas, "stop.steps": steps, "validation.every_steps": 0,
              "checkpoint.save_at_end": "false", "instruments.enabled": "false"} | ({"batch.sum_groups": groups} if groups else {})
    subprocess.run([*launch, hadal, "train", "configs/base.textproto", "--run-dir", run, *(f"--set={name}={value}" for name, value in fields.items())],
                   cwd=ROOT, check=True, capture_output=True)
    return run


def seconds_of(hadal: str, work: Path, width: int, layers: int, replicas: int, groups: int) -> float:
    """Seconds of a step of hadal."""
    if replicas > 1:
        events = map(json.loads, (train(hadal, work, width, layers, replicas, groups, STEPS) / "metrics.jsonl").read_text().splitlines())
        return statistics.median([event["step_seconds"] for event in events if event.get("step_seconds")][1:])
    used = []
    for steps in (1, STEPS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        train(hadal, work, width, layers, replicas, groups, steps)
        used.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before)
    return (used[1] - used[0]) / (STEPS - 1)


def main() -> None:
    ours, older = sys.argv[1:]
    print(f"{setting(ours, older)}; medians of {PAIRS} pairs")
    print("# model, replicas, what beside what: seconds of a step of each; the medians' ratio, the least's; load")
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        subprocess.run([ours, "make-corpus", "--out", work / "text", "--pairs", "20000"], check=True, capture_output=True)
        text = {part: sorted((work / "text").glob(f"{part}.*")) for part in ("train", "valid")}
        subprocess.run([ours, "prepare", "--train", *text["train"], "--valid", *text["valid"], "--out", work / "data", "--vocab-size", "1000"],
                       check=True, capture_output=True)
        cpus = os.sched_getaffinity(0)
        for name, (width, layers) in MODELS.items():
            for replicas, pair in ((1, "G = 1 beside the older build"), (2, "G = 2 beside the older build"), (1, "G = 8 beside G = 1")):
                sides = ((ours, 8), (ours, 1)) if pair.startswith("G = 8") else ((ours, replicas), (older, 0))
                os.sched_setaffinity(0, {max(cpus)} if replicas == 1 else cpus)
                times = in_turn(PAIRS, lambda side: seconds_of(sides[side][0], work, width, layers, replicas, sides[side][1]))
                ours_median, other_median = map(statistics.median, times)
                print(f"{name:15} {replicas}  {pair:29} {ours_median:7.3f} {other_median:7.3f}   {ours_median / other_median:.3f} "
                      f"{min(times[0]) / min(times[1]):.3f}   {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
