#!/usr/bin/env bash
# Masked-language modelling by depth: encoders alone of 6, 50 and 250 layers, BERT's block; validation's nll and accuracy of masked tokens.
#
#   tests/bench/masked_depth.sh HADAL DIR > tests/bench/results/masked_depth.txt
# DIR: train.en and valid.en, a sentence a line (results/README.md). d_model 64, four heads, d_ff 256, vocabulary 2,000, 15% masked, 300 steps
# of 1,024 tokens, learning rate 1e-3 for each (a search of rates could help any), the same seed. About ten minutes on two cores.
set -euo pipefail
export LC_ALL=C
hadal=$(realpath "$1") text=$(realpath "$2")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$hadal" prepare --monolingual --mask-token --train "$text/train.en" --valid "$text/valid.en" --out "$work/data" --vocab-size 2000 > /dev/null
echo "# $(date +%F), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git describe --always --dirty)"
echo "| layers | method | nll of the first ten steps | validation's nll | accuracy of masked tokens | seconds |"
echo "|---|---|---|---|---|---|"
for layers in 6 50 250; do
  for method in post_ln pre_ln deepnorm; do
    run=$work/$method-$layers began=$SECONDS
    "$hadal" train configs/masked_language_model/base.textproto configs/block/bert.textproto "configs/method/$method.textproto" \
      --run-dir "$run" --set data.train="$work/data/train" --set data.validation="$work/data/valid" --set model.encoder_layers="$layers" \
      --set model.d_model=64 --set model.d_ff=256 --set model.heads=4 --set model.dropout=0 --set batch.micro_batches=1 \
      --set batch.source_tokens=1024 --set batch.target_tokens=1024 --set stop.steps="${STEPS:-300}" --set learning_rate.peak=1e-3 \
      --set pipeline.threads=2 --set validation.every_steps="${STEPS:-300}" --set validation.max_sentences=1000 \
      --set checkpoint.save_at_end=false > "$run.log" 2>&1 || { tail -n 3 "$run.log"; continue; }
    python3 - "$run/metrics.jsonl" "$layers" "$method" $((SECONDS - began)) <<'PY'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
first = [line["nll"] for line in lines if line.get("event") == "step"][:10]
valid = [line for line in lines if line.get("event") == "validation"][-1]
print(f"| {sys.argv[2]} | {sys.argv[3]} | {sum(first) / len(first):.2f} | {valid['nll']:.3f} | {valid['accuracy']:.1%} | {sys.argv[4]} |")
PY
  done
done
