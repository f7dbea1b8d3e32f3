#!/usr/bin/env bash
# How long a checkpoint holds training up, against a plain write + fsync of the same bytes to the same file system, in turn.
#
#   tests/bench/save_stall.sh path/to/hadal [DIRECTORY] > tests/bench/results/save_stall.txt     DIRECTORY: on the disk to measure
# The headline depth at d_model 64 (2,500 sublayers, 0.68 GB of weights and moments) trains on two threads and saves every 2nd step,
# with the buffer at its default and with none. The stall is the run's own figure (metrics.jsonl): before updates, in votes; what the
# writing costs the steps beside it shows in their times. After each run dd copies the newest checkpoint's file. About four minutes.
set -euo pipefail
hadal=$(realpath "$1")
work=$(mktemp -d -p "${2:-.}")
trap 'rm -rf "$work"' EXIT
echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(df --output=fstype "$work" | tail -1), hadal $(git -C "$(dirname "$0")" describe --always --dirty)"
cd "$work"
"$hadal" make-corpus --out text --pairs 4000 --valid 40 --test 20 --seed 3 > /dev/null
"$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 1000 > /dev/null
cat > run.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 500 decoder_layers: 500 d_model: 64 d_ff: 256 heads: 4 max_positions: 128 }
batch { micro_batches: 1 source_tokens: 1024 target_tokens: 1024 }
pipeline { threads: 2 }
stop { steps: 15 }
checkpoint { every_steps: 2 keep_last: 2 save_at_end: false }
END

# Medians over what stdin holds, one number a line.
median() { sort -g | awk '{ v[NR] = $1 } END { print (NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2) }'; }
field() { sed -nE "s/.*\"event\":\"$1\".*\"$2\":([0-9.e+-]+).*/\1/p" "$3"; }

"$hadal" train run.textproto --run-dir quiet --set checkpoint.every_steps=0 > log 2>&1 || { cat log; exit 1; }
echo "without checkpoints: step $(field step step_seconds quiet/metrics.jsonl | tail -n +3 | median) s (median)"
for buffer in 256 0; do
  for round in 1 2; do
    rm -rf run
    "$hadal" train run.textproto --run-dir run --set checkpoint.buffer_mebibytes=$buffer > log 2>&1 || { cat log; exit 1; }
    file=$(ls -d run/checkpoints/step_*/rank_00000.safetensors | tail -1)
    for _ in 1 2 3; do
      sync
      /usr/bin/env bash -c "TIMEFORMAT=%R; time dd if=$file of=plain bs=4M conv=fsync status=none" 2>&1
      rm plain
    done > plain.seconds
    plain=$(median < plain.seconds)
    stall=$(field checkpoint stall_seconds run/metrics.jsonl | median)
    echo "buffer $buffer MiB, round $round: $(field checkpoint seconds run/metrics.jsonl | wc -l) checkpoints of $(stat -c %s "$file") bytes:" \
      "plain write + fsync $plain s, saved in $(field checkpoint seconds run/metrics.jsonl | median) s, training waited $stall s =" \
      "$(awk -v a="$stall" -v b="$plain" 'BEGIN { printf "%.1f%%", 100 * a / b }') of the plain write;" \
      "step $(field step step_seconds run/metrics.jsonl | tail -n +3 | median) s (medians)"
  done
done
