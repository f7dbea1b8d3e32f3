#!/usr/bin/env bash
# The replay beside reality: runs of two stages are traced, `hadal simulate --run` replays the mean costs of a traced step, and says how
# far its makespan is from the traced one.
#
#   tests/bench/simulator_accuracy.sh path/to/hadal > tests/bench/results/simulator_accuracy.txt
# Some five minutes on two cores; the machine should be idle: the replay knows means, not jitter.
set -euo pipefail
echo "# load before: $(cut -d' ' -f1-3 /proc/loadavg)"
. "$(dirname "$0")/workplace.sh" "$1"
cat > run.textproto <<'END_OF_CONFIG'
data { train: "data/train" }
model { encoder_layers: 12 decoder_layers: 12 d_model: 128 d_ff: 512 heads: 4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 8 source_tokens: 256 target_tokens: 256 }
pipeline { threads: 1 stages: 2 }
learning_rate { warmup_updates: 1 }
stop { steps: 6 }
instruments { enabled: false }
checkpoint { save_at_end: false }
END_OF_CONFIG
measure() {  # MICRO_BATCHES SCHEDULE…: three runs
  local micro_batches=$1 name="${*:2}"
  for _ in 1 2 3; do
    # shellcheck disable=SC2086  # a schedule is several arguments
    mpirun -n 2 --bind-to none --oversubscribe "$hadal" train run.textproto --set batch.micro_batches="$micro_batches" \
      --set pipeline.schedule=${*:2} --run-dir run --resume never --trace steps=2-5 > log 2>&1 || { cat log; exit 1; }
    "$hadal" simulate --run run --json
    rm -r run
  done | python3 -c '
import json, statistics, sys
text, runs, decoder = sys.stdin.read(), [], json.JSONDecoder()
while text.strip():
    run, end = decoder.raw_decode(text.lstrip())
    runs.append(run)
    text = text.lstrip()[end:]
traced = [1e3 * run["traced_seconds"] for run in runs]
errors = [100 * (run["makespan_seconds"] / run["traced_seconds"] - 1) for run in runs]
print(f"{sys.argv[1]:>3}  {sys.argv[2]:<42} {statistics.median(traced):8.1f} {min(traced):8.1f}   ",
      "  ".join(f"{error:+5.1f}%" for error in errors))
' "$micro_batches" "${name/--set pipeline./}"
}
echo "# micro-batches, schedule, traced ms: median and least of 3 runs, and how far the replay is from each"
for micro_batches in 2 4 8 16; do
  for schedule in "1f1b" "1f1b_split" "zb_h1" "interleaved_1f1b --set pipeline.chunks=4" \
    "interleaved_split --set pipeline.chunks=4" "interleaved_zb --set pipeline.chunks=4"; do
    measure $micro_batches "$schedule"
  done
done
measure 8 "gpipe"
measure 8 "1f1b --set pipeline.recompute_every=5"
