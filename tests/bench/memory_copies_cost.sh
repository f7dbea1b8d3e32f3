#!/usr/bin/env bash
# What copies in memory cost a step: two ranks on two hosts of one machine (network namespaces), with and without
# checkpoint.memory_every_steps, in alternating pairs. A copy goes to the rank's own host and over TCP to the other.
#   tests/bench/memory_copies_cost.sh HADAL DATA WORK [PAIRS [EVERY]] > tests/bench/results/memory_copies_cost.txt
# DATA: a prepared corpus (DATA/train, DATA/valid). WORK: a folder that does not exist yet. Needs root, iproute2, util-linux and Open MPI.
set -euo pipefail
hadal=$(realpath "$1") data=$(realpath "$2") work=$(realpath -m "$3") pairs=${4:-5} every=${5:-10}
steps=$((4 * every + 2))
. "$(dirname "${BASH_SOURCE[0]}")/../support/host_lab.sh"
missing=$(host_lab_missing)
[ -z "$missing" ] || { echo "$missing" >&2; exit 1; }
mkdir "$work"
trap host_lab_down EXIT
host_lab_up 2 "$work/lab"
printf 'h1 slots=1\nh2 slots=1\n' > "$work/hosts"

measure() { # NAME LAYERS WIDTH EVERY
  host_lab_on h1 "mpirun -np 2 --hostfile $work/hosts --bind-to none $hadal train configs/base.textproto --run-dir $work/$1 \
    --set model.encoder_layers=$2 --set model.decoder_layers=$2 --set model.d_model=$3 --set model.d_ff=$((4 * $3)) --set model.heads=4 \
    --set data.train=$data/train --set data.validation=$data/valid --set batch.micro_batches=4 --set batch.source_tokens=1024 --set batch.target_tokens=1024 \
    --set pipeline.threads=1 --set stop.steps=$steps --set validation.every_steps=0 --set checkpoint.every_steps=0 \
    --set checkpoint.save_at_end=false --set instruments.enabled=false --set checkpoint.memory_every_steps=$4" > "$work/$1.log" 2>&1 ||
    { tail "$work/$1.log" >&2; exit 1; }
}

cd "$(dirname "${BASH_SOURCE[0]}")/../.."
for shape in "10 128" "4 256"; do
  for pair in $(seq "$pairs"); do
    order="0 $every"; [ $((pair % 2)) -eq 1 ] || order="$every 0"
    for copies in $order; do measure "${shape/ /-}-$pair-$copies" $shape "$copies"; done
  done
done
python3 - "$work" "$pairs" "$every" <<'PYTHON'
import json, pathlib, statistics, sys

# A step's place between two copies decides what it pays; so the median is taken at each place, over all periods and runs.
work, pairs, every = pathlib.Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
print(f"| layers, d_model | step without | with copies every {every}, beside without | what {every} steps pay, by place, ms | a copy, begin to end | training waits for it, median, most |")
print("|---|---|---|---|---|---|")
for shape in ("10-128", "4-256"):
    waits, seconds, medians = [], [], {}
    for copies in (0, every):
        at = [[] for _ in range(every)]
        for pair in range(1, pairs + 1):
            for line in (work / f"{shape}-{pair}-{copies}/metrics.jsonl").read_text().splitlines():
                event = json.loads(line)
                if event["event"] == "step" and event["step"] > 2:
                    at[(event["step"] - 1) % every].append(1000 * event["step_seconds"])
                elif event["event"] == "copy":
                    waits.append(1000 * event["stall_seconds"])
                    seconds.append(event["seconds"])
        medians[copies] = [statistics.median(steps) for steps in at]
    assert len(seconds) >= 3 * pairs, "copies are missing"
    more = " ".join(f"{a - b:+.0f}" for a, b in zip(medians[every], medians[0]))
    print(f"| {shape.replace('-', ', ')} | {statistics.median(medians[0]):.0f} ms | {sum(medians[every]) / sum(medians[0]):.3f} | {more} "
          f"| {statistics.median(seconds):.2f} s | {statistics.median(waits):.1f}, {max(waits):.1f} ms |")
PYTHON
