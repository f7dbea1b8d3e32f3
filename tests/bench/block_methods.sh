#!/usr/bin/env bash
# Blocks by methods: language models of 60 layers (120 sublayers), 100 steps on two ranks; the nll of the first and of the last ten steps.
#
#   [METHODS='…'] tests/bench/block_methods.sh HADAL TEXT > tests/bench/results/block_methods.txt
# TEXT: plain text, one passage a line. d_model 64, four heads, d_ff 128, 512 tokens a step, learning rate 1e-3, the same seed; what
# is refused or failed says so. Fails if the arena of a rank is not as large as `hadal plan` says. About ten minutes on two cores.
set -euo pipefail
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
hadal=$(realpath "$1") text=$(realpath "$2")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'NF && ++n <= 20000' "$text" > "$work/text"
"$hadal" prepare --monolingual --train "$work/text" --out "$work/data" --vocab-size 1000 > /dev/null
echo "# $(date +%F), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git describe --always --dirty)"
blocks=(vaswani gpt2 bert llama qwen3 modernbert)
echo "| method | $(printf '%s | ' "${blocks[@]}")"
echo "|---|$(printf -- '---|%.0s' "${blocks[@]}")"
for method in ${METHODS:-pre_ln post_ln deepnorm ln_scaling completep keel peri_ln mhc mhc_lite attn_res attn_res_delta}; do
  row="| $method |"
  for block in "${blocks[@]}"; do
    run=$work/$method-$block
    configs=(configs/language_model/base.textproto "configs/block/$block.textproto" "configs/method/$method.textproto"
      --set data.train="$work/data/train" --set 'data.validation=""' --set model.decoder_layers=60 --set model.d_model=64
      --set model.d_ff=128 --set model.heads=4 --set batch.micro_batches=2 --set batch.target_tokens=256 --set batch.source_tokens=2
      --set pipeline.threads=1 --set stop.steps=100 --set learning_rate.peak=1e-3 --set learning_rate.warmup_updates=20
      --set checkpoint.save_at_end=false --set validation.every_steps=0)
    if mpirun -n 2 --bind-to none --oversubscribe "$hadal" train "${configs[@]}" --run-dir "$run" > "$run.log" 2>&1; then
      "$hadal" plan "${configs[@]}" --ranks 2 --gflops 10 --json > "$run.plan"
      row+=" $(python3 - "$run/metrics.jsonl" "$run.plan" <<'PY'
import json, sys
steps = [event for event in map(json.loads, open(sys.argv[1])) if event["event"] == "step"]
nll = [step["nll"] for step in steps]
planned = [rank["arena_bytes"] for rank in json.load(open(sys.argv[2]))["memory"]]
measured = [rank["arena_bytes"] for rank in steps[-1]["stages"]]
assert planned == measured, (sys.argv[1], planned, measured)
print(f"{sum(nll[:10]) / 10:.2f} → {sum(nll[-10:]) / 10:.2f}")
PY
      ) |"
    else
      row+=" $(sed -nE 's/.*model: ([a-z_.]+).*/refused: \1/p; s/.*(diverged|not finite).*/\1/p' "$run.log" | head -1 | grep . || echo failed) |"
    fi
  done
  echo "$row"
done
