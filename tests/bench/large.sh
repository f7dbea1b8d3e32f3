#!/usr/bin/env bash
# What size costs: corpora of millions of pairs, runs of 100,000 steps, hundreds of ranks, thousands of sublayers. Time, memory and bytes of
# each command.
#
#   tests/bench/large.sh path/to/hadal DATA WORK [PART…] >> tests/bench/results/large.txt
# DATA holds train.{en,de}, real text, whose pairs are joined at random to PAIRS (5,000,000) lines of WMT's length. WORK (12 GB) is kept: parts
# use what earlier ones left. Parts: corpus start epochs run ranks deep translate score; all of them take about an hour of two idle cores.
# Wall time is that of a machine as busy as it was; CPU time says what the command itself took. Peak: of its largest process.
set -euo pipefail
hadal=$(realpath "$1") data=$(realpath "$2")
mkdir -p "$3"; work=$(realpath "$3")
shift 3
parts=${*:-corpus start epochs run ranks deep translate score}
pairs=${PAIRS:-5000000}
here=$(cd "$(dirname "$0")" && pwd)
configs=$(cd "$here/../../configs" && pwd)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$work"
echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git -C "$here" describe --always --dirty), parts: $parts"

# Runs a command, its output in WORK/log, and says what it took.  cost NAME COMMAND…
cost() {
  local name=$1; shift
  local code=0
  /usr/bin/time -o "$work/time" -f "%e s, CPU %U + %S s, peak %M KiB" "$@" > "$work/log" 2>&1 || code=$?
  [ $code -eq 0 ] || { echo "$name: exit code $code"; tail -3 "$work/log"; }
  printf '%-64s %s\n' "$name" "$(tail -1 "$work/time")"
}
size() { printf '%-64s %s\n' "$1" "$(du -cb "${@:2}" | tail -1 | cut -f1 | sed ':a;s/\B[0-9]\{3\}\>/,&/;ta') bytes"; }

lines() {  # PAIRS OUT: lines of 1 to 5 pairs each, without repetition but by chance
  python3 - "$data/train.en" "$data/train.de" "$1" "$2" <<'END'
import random, sys
english, german = (open(path, encoding="utf-8").read().split("\n")[:-1] for path in sys.argv[1:3])
random.seed(1)
with open(sys.argv[4] + ".en", "w", encoding="utf-8") as a, open(sys.argv[4] + ".de", "w", encoding="utf-8") as b:
    for begin in range(0, int(sys.argv[3]), 50000):
        chosen = [[int(len(english) * random.random()) for _ in range(1 + int(5 * random.random()))]
                  for _ in range(min(50000, int(sys.argv[3]) - begin))]
        a.write("\n".join(" ".join(english[i] for i in line) for line in chosen) + "\n")
        b.write("\n".join(" ".join(german[i] for i in line) for line in chosen) + "\n")
END
}

corpus() {
  [ -e text.en ] || lines "$pairs" text
  [ -e few.en ] || for side in en de; do head -n $((pairs / 5)) text.$side > few.$side; done
  size "text, $pairs pairs" text.en text.de
  cost "prepare, a vocabulary of 32,000 and $pairs pairs" \
    "$hadal" prepare --train text.en text.de --out big --vocab-size 32000 --overwrite
  cat log; size "shards" big/*.shard; ls big/*.shard | wc -l | sed 's/$/ shards/'
  cost "prepare, a fifth of them, the same vocabulary" \
    "$hadal" prepare --train few.en few.de --out few --vocab big/vocabulary.model --overwrite
  cost "the same, one thread" \
    "$hadal" prepare --train few.en few.de --out few --vocab big/vocabulary.model --overwrite --threads 1
  cp few/train.00000.shard one_thread.shard
  "$hadal" prepare --train few.en few.de --out few --vocab big/vocabulary.model --overwrite --threads 2 > /dev/null
  cmp few/train.00000.shard one_thread.shard && echo "one thread, two threads: the same bytes"
}

tiny() {  # NAME CORPUS STEPS MICRO_BATCHES TOKENS: as small a model as there is
  cat > "$1.textproto" <<END
data { train: "$2" }
model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 16 heads: 1 max_positions: 256 dropout: 0.1 }
batch { micro_batches: $4 source_tokens: $5 target_tokens: $5 }
learning_rate { warmup_updates: 100 }
pipeline { threads: 1 }
stop { steps: $3 }
checkpoint { every_steps: 20000 keep_last: 3 }
END
}

small() {
  [ ! -e small/data/valid.json ] || return 0
  "$hadal" make-corpus --out small --pairs 2000 --valid 50 --test 10 --overwrite > /dev/null
  "$hadal" prepare --train small/train.en small/train.de --valid small/valid.en small/valid.de --out small/data --vocab-size 500 --overwrite > /dev/null
}

start() {
  tiny few few/train 1 1 256; tiny big big/train 1 1 256
  for name in few big; do
    cost "train, one step, $name" "$hadal" train $name.textproto --run-dir start_$name --resume never
    cost "the same, 4 ranks" mpirun -n 4 --oversubscribe --bind-to none "$hadal" train $name.textproto \
      --set model.encoder_layers=2 --set model.decoder_layers=2 --run-dir start_$name.4 --resume never
  done
}

# What finding a place in the stream costs: the first epoch, then the ninth without being told where it begins. A resumed run is told.
epochs() {
  for step in 1 $((pairs / 25)); do
    cost "inspect batch, step $step of 4,096 tokens each" "$hadal" inspect batch big/train --step $step --micro-batches 1 \
      --source-tokens 4096 --target-tokens 4096 --max-sentences 1 --ids-only
    sed -n 's/^.*; \([0-9.]* epochs after it\)$/\1/p' log
  done
}

run() {
  small
  tiny long small/data/train 100000 1 64
  cat >> long.textproto <<END
validation { every_steps: 1000 }
END
  sed -i 's|train: "small/data/train"|train: "small/data/train" validation: "small/data/valid"|' long.textproto
  cost "train, 100,000 steps" "$hadal" train long.textproto --run-dir long
  size "metrics.jsonl" long/metrics.jsonl; size "TensorBoard's events" long/tb/*
  ls long/checkpoints | grep -c '^step_' | sed 's/$/ checkpoints kept/'
  cost "train again, nothing left to do" "$hadal" train long.textproto --run-dir long
  cost "report" "$hadal" report long
  size "report.html" long/report.html
  cost "curve" "$hadal" curve long
  # The same of 64 stages, by repetition of each step's stage, and of 2,500 sublayers' norms where they are written.
  mkdir -p wide; cp long/config.resolved.textproto wide
  python3 - <<'END'
import json
with open("wide/metrics.jsonl", "w") as out:
    for line in open("long/metrics.jsonl"):
        record = json.loads(line)
        if record["event"] == "step":
            stages = record.pop("stages", [])
            surveyed = record["step"] <= 100 or record["step"] % 8 == 0
            if surveyed and stages: record["stages"] = stages * 64
            if "depth_gradient_norms" in record: record["depth_gradient_norms"] = record["depth_gradient_norms"][:1] * 2500
        out.write(json.dumps(record, separators=(",", ":")) + "\n")
END
  size "metrics.jsonl of 64 stages" wide/metrics.jsonl
  cost "report of 64 stages" "$hadal" report wide
  size "its report.html" wide/report.html
}

ranks() {
  cost "schedule print, 64 stages, 500 micro-batches" "$hadal" schedule print --stages 64 --micro-batches 500
  cost "schedule check, 64 stages, 500 micro-batches" "$hadal" schedule check --stages 64 --micro-batches 500
  cost "schedule check, 64 stages x 8 chunks, 512 micro-batches" \
    "$hadal" schedule check --kind interleaved_1f1b --stages 64 --chunks 8 --micro-batches 512
  cost "simulate, 512 stages, 512 micro-batches" "$hadal" simulate --stages 512 --micro-batches 512
  local paper=("$configs/papers/paper/branchnorm.textproto" "$configs/depth/500.textproto" "$configs/method/branchnorm.textproto")
  for nodes in 4 64; do
    cost "plan --machine, 2,500 sublayers, $nodes nodes" "$hadal" plan "${paper[@]}" --vocabulary 32000 \
      --machine "$configs/machines/a100_80g_8.textproto" --nodes $nodes
  done
  small
  tiny traced small/data/train 2 500 64
  sed -i 's/encoder_layers: 1 decoder_layers: 1/encoder_layers: 16 decoder_layers: 16/' traced.textproto
  cost "train, 64 ranks, 500 micro-batches, 2 steps, traced" mpirun -n 64 --oversubscribe --bind-to none "$hadal" train \
    traced.textproto --run-dir traced --resume never --trace steps=1
  size "the trace" traced/trace/*.json
  cost "report with the trace" "$hadal" report traced
  size "its report.html" traced/report.html
  cost "simulate --run" "$hadal" simulate --run traced
}

deep() {
  small
  tiny deep small/data/train 1 1 256
  sed -i 's/encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 16/encoder_layers: 500 decoder_layers: 500 d_model: 64 d_ff: 256/' deep.textproto
  for run in deep deeper; do cost "train, 2,500 sublayers, one step, saved" "$hadal" train deep.textproto --run-dir $run --resume never; done
  local saved=deep/checkpoints/step_00000001
  size "checkpoint" $saved; size "its manifest" $saved/manifest.json
  cost "checkpoint ls" "$hadal" checkpoint ls deep
  cost "checkpoint verify" "$hadal" checkpoint verify $saved
  cost "checkpoint diff" "$hadal" checkpoint diff $saved deeper/checkpoints/step_00000001
}

translate() {
  for count in 2000 20000; do
    head -n $count text.en > in.en
    cost "translate, $count sentences" "$hadal" translate long --input in.en --out out.de --beam 2 --max-len-b 20 \
      --longest-source 256 --on-long skip
    wc -l < out.de
  done
  { head -n 3 in.en; head -n 20000 in.en | tr '\n' ' '; echo; head -n 3 in.en; } > long_line.en
  wc -w < long_line.en | sed 's/$/ words in 7 lines/'
  cost "translate, one line of them very long" "$hadal" translate long --input long_line.en --out out.de --on-long skip
  wc -l < out.de
}

score() {
  for count in 10000 1000000; do
    for side in en de; do head -n $count text.$side > in.$side; done
    cost "score, $count pairs" "$hadal" score long --source in.en --target in.de --out scores --on-long skip
    wc -l < scores
  done
}

for part in $parts; do echo; echo "## $part"; $part; done
