#!/usr/bin/env bash
# What the instruments of the depth cost: the same run with every step recorded and with none, in turns.
#
#   tests/bench/instruments_cost.sh path/to/hadal > tests/bench/results/instruments_cost.txt
# Two parts: the recorded step is longer (gradients are summed up, the update is measured), and beside it the probe runs ("seconds" of the
# depth records). A run of N steps records 100 + 20·log10(N/100) of them by default. Takes about ten minutes on two idle cores.
set -euo pipefail
hadal=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
repository=$(cd "$(dirname "$0")" && git describe --always --dirty)
cd "$work"
"$hadal" make-corpus --out text --pairs 4000 --valid 20 --test 20 --seed 3 > /dev/null
"$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 2000 > /dev/null

shape() {  # name, layers a side, d_model, steps
  cat > "$1.textproto" <<END
data { train: "data/train" }
model { encoder_layers: $2 decoder_layers: $2 d_model: $3 d_ff: $((4 * $3)) heads: 4 max_positions: 256 dropout: 0.1 }
batch { micro_batches: 4 source_tokens: 1024 target_tokens: 1024 }
learning_rate { warmup_updates: 4 }
pipeline { threads: 2 $5 }
stop { steps: $4 }
checkpoint { save_at_end: false }
END
  for turn in 1 2 3; do
    "$hadal" train "$1.textproto" --set instruments.enabled=false --run-dir "$1.off$turn" > /dev/null
    "$hadal" train "$1.textproto" --set instruments.dense_steps=1000 --run-dir "$1.on$turn" > /dev/null
  done
  python3 - "$1" <<'END'
import json, math, statistics, sys
name = sys.argv[1]
def read(kind, event, field):
    values = []
    for turn in (1, 2, 3):
        for line in open(f"{name}.{kind}{turn}/metrics.jsonl"):
            record = json.loads(line)
            if record["event"] == event and record["step"] > 1: values.append(record[field])
    return values
off, on = statistics.median(read("off", "step", "step_seconds")), statistics.median(read("on", "step", "step_seconds"))
beside = statistics.median(read("on", "depth", "seconds"))
recorded = (on - off + beside) / off
print(f"{name:24} step {1e3*off:8.1f} ms; recorded {1e3*on:8.1f} ms ({100*(on/off-1):+5.1f}%) and {1e3*beside:6.1f} ms beside it"
      f" ({100*beside/off:4.1f}%): {100*recorded:4.1f}% of a recorded step;", end="")
for steps in (1000, 10000):
    share = (100 + 20 * math.log10(steps / 100)) / steps
    print(f" {100*share*recorded:5.2f}% of {steps} steps" + (";" if steps == 1000 else ""), end="")
print()
END
}

echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $repository"
shape 6L-6L_d512 6 512 12 ""
shape 100L-100L_d64 100 64 12 ""
shape 100L-100L_d64_recompute 100 64 12 "recompute_every: 10"
