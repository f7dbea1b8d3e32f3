#!/usr/bin/env bash
# The replay beside reality: runs of two stages are traced, `hadal simulate --run` replays the mean costs of a traced step, and says how
# far its makespan is from the traced one.
#
#   tests/bench/simulator_accuracy.sh path/to/hadal > tests/bench/results/simulator_accuracy.txt
# About a minute on two cores; the machine should be idle: the replay knows means, not jitter.
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
for schedule in "1f1b" "gpipe" "interleaved_1f1b --set pipeline.chunks=2" "1f1b --set pipeline.recompute_every=5"; do
  for round in 1 2 3; do
    # shellcheck disable=SC2086  # a schedule is several arguments
    mpirun -n 2 --bind-to none --oversubscribe "$hadal" train run.textproto --set pipeline.schedule=$schedule \
      --run-dir run --resume never --trace steps=2-4 > log 2>&1 || { cat log; exit 1; }
    "$hadal" simulate --run run --json | python3 -c '
import json, sys
s = json.load(sys.stdin)
makespan, traced = s["makespan_seconds"], s["traced_seconds"]
print(f"{sys.argv[1]:<44} replay {1e3 * makespan:7.1f} ms, traced {1e3 * traced:7.1f} ms: {100 * (makespan / traced - 1):+5.1f}%")
' "$schedule, run $round"
    rm -r run
  done
done
