#!/usr/bin/env bash
# Strong scaling on this machine, each lost percent with its cause: 1 rank, 2 stages, 2 replicas, 4 ranks (more than two cores have), and
# 2 stages of which the second shares its core with three busy loops on purpose.
#
#   tests/bench/scaling.sh path/to/hadal > tests/bench/results/scaling.txt
# Prints the report of `hadal sweep`, and checks: a row's causes sum to what it lost; what no cause explains ("unexplained") is at most 2% of the
# run's time; 'compute slower than profiled' and 'waiting for a core' are among the causes; the slowed stage is the one named. Exit status 1 where one does not hold. Takes about four minutes on two idle cores.
set -euo pipefail
hadal=$(realpath "$1")
repository=$(cd "$(dirname "$0")" && git describe --always --dirty)
work=$(mktemp -d)
trap 'rm -rf "$work"; [ -z "${loops:-}" ] || kill $loops 2> /dev/null' EXIT
cd "$work"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
"$hadal" make-corpus --out text --pairs 4000 --valid 20 --test 20 --seed 3 > /dev/null
"$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 1000 > /dev/null
cat > model.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 18 decoder_layers: 18 d_model: 128 d_ff: 512 heads: 4 max_positions: 256 dropout: 0.1 }
batch { micro_batches: 8 source_tokens: 512 target_tokens: 512 }
learning_rate { warmup_updates: 4 }
pipeline { threads: 1 }
stop { steps: 25 }
instruments { enabled: false }
checkpoint { save_at_end: false }
END
cat > layouts.txt <<'END'
one_rank      1
two_stages    2
two_replicas  2  --set pipeline.replicas=2
four_stages   4
END
# Full speed: one rank of one thread, nothing beside it. What computing takes beyond that is a cause of its own.
"$hadal" bench profile model.textproto --threads 1 --rounds 3 --out profile > /dev/null
"$hadal" sweep layouts.txt model.textproto --out sweep --profile profile > sweep.log
for _ in 1 2 3; do taskset -c 1 sh -c 'while :; do :; done' & loops="${loops:-} $!"; done
train=("$hadal" train model.textproto --run-dir sweep/runs/slowed_stage)
mpirun -n 1 --bind-to none taskset -c 0 "${train[@]}" : -n 1 --bind-to none taskset -c 1 "${train[@]}" > slowed.log 2>&1
kill $loops; loops=''
runs=(sweep/runs/{one_rank,two_stages,two_replicas,four_stages,slowed_stage} --profile profile)
"$hadal" summary "${runs[@]}" --format json > scaling.json
echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $repository, load before $(cut -d' ' -f1 /proc/loadavg)"
"$hadal" summary "${runs[@]}"
python3 - <<'END'
import json, sys
report = json.load(open("scaling.json"))
names = [run["directory"].split("/")[-1] if "directory" in run else run["name"] for run in report["runs"]]
bad = 0
print("\nchecks")
for row in report["scaling"]["rows"]:
    name = row["run"].split("/")[-1]
    lost, causes = 1 - row["efficiency"], row["causes"]
    total = sum(causes.values())
    fits = abs(total - lost) <= 0.03 * max(abs(lost), 1e-9) or abs(total - lost) < 1e-9
    explained = abs(causes["unexplained"]) <= 0.02
    named = {"compute slower than profiled", "waiting for a core"} <= causes.keys()
    bad += not (fits and explained and named)
    print(f"  {name:14} lost {100 * lost:5.1f}%, causes sum to {100 * total:5.1f}%, unexplained {100 * causes['unexplained']:+.1f}%: {'holds' if fits and explained and named else 'DOES NOT HOLD'}")
slowed = report["runs"][names.index("slowed_stage")]
named = slowed["slowest_stage"] == 1
bad += not named
print(f"  slowed_stage   the slowed stage is 1, named is {slowed['slowest_stage']} (+{100 * slowed['slowest_excess']:.0f}%): {'holds' if named else 'DOES NOT HOLD'}")
sys.exit(bad > 0)
END
