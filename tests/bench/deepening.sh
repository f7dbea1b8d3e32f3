#!/usr/bin/env bash
# What --deepen does to the loss, for every method of configs/method: 2L-3L (mix_ln 4L-4L) of width 64 after 150 steps on 20,000 pairs of
# Tatoeba, then 5L-7L (8L-12L) from its weights by each rule, before any update. Then how some methods learn from there: 500 steps with
# 50 of warm-up, two seeds.
#
#   [METHODS="pre_ln deepnorm"] tests/bench/deepening.sh HADAL DATA OUT [losses|learning]…     none: both
# DATA holds {train,valid}.{en,de}. OUT receives corpus, runs and logs; what has run is not run again. Prints the validation's nll.
set -euo pipefail
usage="usage: deepening.sh HADAL DATA OUT [losses|learning]..."
hadal=$(realpath "${1:?$usage}") data=$(realpath "${2:?$usage}") out=${3:?$usage}
shift 3
[ $# -gt 0 ] || set -- losses learning
configs=$(realpath "$(dirname "$0")/../../configs")
methods=${METHODS:-$(cd "$configs/method" && printf '%s\n' *.textproto | sed 's/\.textproto$//')}
learners=${METHODS:-pre_ln deepnorm ln_scaling peri_ln}
mkdir -p "$out" && cd "$out"
for side in en de; do [ -e "train.$side" ] || head -n 20000 "$data/train.$side" > "train.$side"; done
[ -e corpus/valid.json ] ||
  "$hadal" prepare --train train.en train.de --valid "$data/valid.en" "$data/valid.de" --out corpus --vocab-size 1000 --overwrite > prepare.log

# nll RUN: the validations' nll, in one line; trains RUN METHOD ENCODER_LAYERS DECODER_LAYERS ARGUMENTS… if it has not been.
nll() {
  local run=$1 method=$2 encoder=$3 decoder=$4
  [ -e "$run/done" ] || {
    "$hadal" train "$configs/base.textproto" "$configs/size/64.textproto" "$configs/method/$method.textproto" \
      --set data.train=corpus/train --set data.validation=corpus/valid --set validation.max_sentences=1000 \
      --set model.encoder_layers="$encoder" --set model.decoder_layers="$decoder" --set batch.micro_batches=2 \
      --set batch.source_tokens=512 --set batch.target_tokens=512 --set model.max_positions=256 --set optimizer.clip_norm=1 \
      --set learning_rate.peak=2e-3 --set instruments.enabled=false --run-dir "$run" "${@:5}" > "$run.log" 2>&1 && touch "$run/done"
  } || { grep -m 1 -o 'would change the loss.*\|the checkpoint has no [^,]*' "$run.log" || tail -n 1 "$run.log"; return; }
  grep '"event":"validation"' "$run/metrics.jsonl" | sed -E 's/.*"nll":([0-9]+\.[0-9]{3}).*/\1/' | paste -s -d' '
}
shallow() {  # METHOD ENCODER_LAYERS DECODER_LAYERS
  nll "$1.shallow" "$@" --set stop.steps=150 --set learning_rate.warmup_updates=50 --set validation.every_steps=150
}
# The rate of the first update is 0.
first=(--set stop.steps=1 --set learning_rate.warmup_updates=10 --set learning_rate.warmup_initial_rate=0 --set validation.every_steps=1)

losses() {
  echo "nll after 150 steps, and deepened before any update"
  printf '%-18s %-9s %-9s %s\n' method shallow split zero
  for method in $methods; do
    local from="2 3" to="5 7"
    [ "$method" != mix_ln ] || { from="4 4" to="8 12"; }
    # shellcheck disable=SC2086  # two numbers
    printf '%-18s %-9s %-9s %s\n' "$method" "$(shallow "$method" $from)" \
      "$(nll "$method.split" "$method" $to "${first[@]}" --init-from "$method.shallow" --deepen)" \
      "$(nll "$method.zero" "$method" $to "${first[@]}" --init-from "$method.shallow" --deepen --deepen-rule zero)"
  done
}

learning() {
  echo "nll at steps 50, 100 … 500 behind it"
  for method in $learners; do
    shallow "$method" 2 3 > shallow.nll
    for rule in split zero; do
      for seed in 1 2; do
        printf '%-12s %-6s seed %d  %s\n' "$method" $rule $seed \
          "$(nll "$method.$rule.$seed" "$method" 5 7 --set seed=$seed --set stop.steps=500 --set learning_rate.warmup_updates=50 \
            --set validation.every_steps=50 --init-from "$method.shallow" --deepen --deepen-rule $rule)"
      done
    done
  done
}

for part in "$@"; do
  case $part in
    losses) losses ;;
    learning) learning ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
done
