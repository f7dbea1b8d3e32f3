#!/usr/bin/env bash
# The time of recomputation that `pipeline.recompute_auto` saves, and how long its choice takes.
#
#   tests/bench/recompute_saving.sh path/to/hadal path/to/earlier/hadal [ROUNDS] > tests/bench/results/recompute_saving.txt
# Some five minutes on two idle cores. Two ranks, whose limit lies at 25, 50 and 75% between the bytes with all sublayers recomputed (every
# 10) and with none. Times are of recomputation over those of forward in the same steps, summed over the ranks, so that other work on the
# machine counts on both sides; ROUNDS (5) runs of each in turn, medians. Then, by plan of both programs, steps on devices that are not here.
set -euo pipefail
before=$(realpath "$2")
rounds=${3:-5}
. "$(dirname "$0")/workplace.sh" "$1"
configs=$here/../../configs
write_run() {  # LAYERS WIDTH HEADS TOKENS MICRO_BATCHES
  cat > run.textproto <<END_OF_CONFIG
data { train: "data/train" }
model { encoder_layers: $1 decoder_layers: $1 d_model: $2 d_ff: $((4 * $2)) heads: $3 max_positions: 128 dropout: 0.1 }
batch { micro_batches: $5 source_tokens: $4 target_tokens: $4 }
pipeline { threads: 1 }
learning_rate { warmup_updates: 1 }
stop { steps: 2 }
instruments { enabled: false }
checkpoint { save_at_end: false }
END_OF_CONFIG
}
fullest() { "$hadal" plan run.textproto --vocabulary 500 "$@" --json | python3 -c 'import json, sys; print(max(r["arena_bytes"] for r in json.load(sys.stdin)["memory"]))'; }
share() {  # ARGUMENTS: recomputation over forward
  mpirun -n 2 --bind-to none --oversubscribe "$hadal" train run.textproto "$@" --run-dir run --resume never > log 2>&1 || { cat log; exit 1; }
  python3 - <<'END_OF_SCRIPT'
import json
steps = [json.loads(line) for line in open("run/metrics.jsonl")]
steps = [step for step in steps if step.get("event") == "step"][1:]
total = lambda name: sum(stage[name] for step in steps for stage in step["stages"])
print(total("recompute") / total("forward"))
END_OF_SCRIPT
  rm -r run
}
measure() {  # NAME LAYERS WIDTH
  write_run "$2" "$3" 4 128 4
  none=$(fullest --set pipeline.stages=2 --set pipeline.recompute_every=0)
  full=$(fullest --set pipeline.stages=2 --set pipeline.recompute_every=10)
  automatic() { echo "--set pipeline.recompute_auto=true --set pipeline.memory_limit_bytes=$((full + (none - full) * $1 / 100))"; }
  for percent in 25 50 75; do
    # shellcheck disable=SC2046  # several arguments
    "$hadal" plan run.textproto --set pipeline.stages=2 $(automatic $percent) | sed -n "s/^schedule.*target tokens, /# $1, $percent%: /p"
  done
  for _ in $(seq "$rounds"); do
    share --set pipeline.recompute_every=10
    # shellcheck disable=SC2046
    for percent in 25 50 75; do share $(automatic $percent); done
  done | python3 -c '
import statistics, sys
shares = [float(line) for line in sys.stdin]
full = shares[0::4]
for i, percent in enumerate((25, 50, 75), 1):
    saved = [100 * (1 - a / f) for a, f in zip(shares[i::4], full)]
    print(f"{sys.argv[1]:<24} {percent:3}% {statistics.median(full):9.3f} {statistics.median(shares[i::4]):9.3f} {statistics.median(saved):6.1f}%   ", " ".join(f"{s:.1f}" for s in sorted(saved)))
' "$1"
}
echo "# $rounds rounds; model, limit, recomputation over forward: of all, automatic; saved, and of each pair"
measure "100L-100L d_model 128" 100 128
measure "500L-500L d_model 64" 500 64

echo "# user CPU seconds of hadal plan, 500L-500L d_model 512 on 64 stages at 50%, each schedule"
write_run 500 512 8 4096 128
for schedule in gpipe 1f1b 1f1b_split "interleaved_1f1b --set pipeline.chunks=2" "interleaved_split --set pipeline.chunks=2"; do
  set=(--set pipeline.stages=64 --device cuda --set pipeline.schedule=)
  # shellcheck disable=SC2206  # several arguments
  set=(${set[*]}$schedule)
  none=$(fullest "${set[@]}" --set pipeline.recompute_every=0)
  full=$(fullest "${set[@]}" --set pipeline.recompute_every=10)
  TIMEFORMAT="$schedule %U s"
  time "$hadal" plan run.textproto --vocabulary 500 "${set[@]}" --set pipeline.recompute_auto=true --set pipeline.memory_limit_bytes=$(((none + full) / 2)) > /dev/null
done 2>&1
write_run 500 512 8 8192 16
echo "# by plan, 500L-500L d_model 512, the fastest layout of the search"
by_plan() {  # NAME MACHINE NODES ARGUMENTS
  for program in "$before" "$hadal"; do
    "$program" plan --machine "$2" --nodes "$3" --vocabulary 32000 --top 1 --json "${@:4}" 2> /dev/null | python3 -c '
import json, sys
best = json.load(sys.stdin)["search"]["layouts"][0]
print(sys.argv[1], "step", round(1e3 * best["step_seconds"], 1), "ms, MFU", round(100 * best["utilisation"], 1), "%,", best["schedule"])
' "$1"
  done
}
sed 's/^devices_per_node: 8/devices_per_node: 1/' "$configs/machines/h200_8.textproto" > h200_1.textproto
a100=$configs/machines/a100_80g_8.textproto
paper=("$configs/papers/paper/branchnorm.textproto" "$configs/depth/500.textproto" "$configs/method/branchnorm.textproto")
by_plan "8 A100, 16 micro-batches of 8,192 tokens, 8 stages:" "$a100" 1 run.textproto --set pipeline.stages=8 --set batch.target_tokens=8192
by_plan "one H200, 16 micro-batches of 8,192 tokens:" h200_1.textproto 1 run.textproto --set batch.target_tokens=8192
by_plan "64 nodes of 8 A100, 524,288 tokens:" "$a100" 64 "${paper[@]}"
for program in "$before" "$hadal"; do
  low=100 high=2000  # fits, does not
  while [ $((high - low)) -gt 5 ]; do
    middle=$(((low + high) / 2))
    write_run $middle 512 8 4096 4
    if "$program" plan run.textproto --vocabulary 32000 --device cuda --set pipeline.recompute_auto=true --set pipeline.memory_limit_bytes=81600000000 > /dev/null 2>&1; then low=$middle; else high=$middle; fi
  done
  echo "largest depth, d_model 512, 4,096 tokens, one GPU with 76 GiB for buffers: ${low}L-${low}L"
done
