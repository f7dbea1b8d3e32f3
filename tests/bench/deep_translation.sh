#!/usr/bin/env bash
# A model of 2,500 sublayers that translates, and its twin of as many parameters and tokens: 500L-500L of width 64
# (configs/tatoeba/deep.textproto) and 18L-18L of width 336, one epoch of Tatoeba, English to German; and one of 500L-500L that was
# deepened: 2.4 epochs as 20L-20L, 6.5 as 100L-100L, 0.2 as 500L-500L.
#
#   tests/bench/deep_translation.sh HADAL DATA OUT [deep|wide|deepened]…     none: all
# DATA holds {train,valid,test}.{en,de}. OUT receives the corpus, runs, translations and scores; a run that was stopped goes on. Prints
# the validations, then the test file's BLEU at the end and where a validation first had 5, 10 or 20.
set -euo pipefail
usage="usage: deep_translation.sh HADAL DATA OUT [deep|wide|deepened]..."
hadal=$(realpath "${1:?$usage}") data=$(realpath "${2:?$usage}") out=${3:?$usage}
shift 3
[ $# -gt 0 ] || set -- deep wide deepened
config=$(realpath "$(dirname "$0")/../../configs/tatoeba/deep.textproto")
mkdir -p "$out" && cd "$out"
[ -e corpus/valid.json ] ||
  "$hadal" prepare --train "$data/train.en" "$data/train.de" --valid "$data/valid.en" "$data/valid.de" --out corpus --vocab-size 2000 --overwrite

# score RUN STEP: the test file by the checkpoint of this step.
score() {
  local name=$1.$2
  "$hadal" translate "$1/checkpoints/step_$(printf %08d "$2")" --beam 4 -i "$data/test.en" -o "$name.de"
  echo "$1, step $2: $("$hadal" bleu -r "$data/test.de" -i "$name.de" --text)"
  "$hadal" chrf -r "$data/test.de" -i "$name.de" --text
}

train() {  # RUN ARGUMENTS…
  mpirun -n 2 --bind-to core "$hadal" train "$config" --set data.train=corpus/train --set data.validation=corpus/valid --run-dir "$@"
}
# as_deep RUN LAYERS STEPS VALIDATION_STEPS WARM-UP PEAK END ARGUMENTS…
as_deep() {
  train "$1" --set model.encoder_layers="$2" --set model.decoder_layers="$2" --set stop.steps="$3" --set validation.every_steps="$4" \
    --set checkpoint.every_steps="$4" --set learning_rate.warmup_updates="$5" --set learning_rate.peak="$6" --set learning_rate.end_rate="$7" "${@:8}"
}
for run in "$@"; do
  case $run in
    deep) train deep ;;
    wide) train wide --set model.encoder_layers=18 --set model.decoder_layers=18 --set model.d_model=336 --set model.d_ff=1344 \
      --set model.heads=6 --set model.base_width=64 ;;
    deepened)
      as_deep deepened_20 20 6000 600 245 1.5e-2 5e-3
      as_deep deepened_100 100 5000 500 100 5e-3 1.5e-3 --set seed=2 --init-from deepened_20 --deepen
      as_deep deepened_100b 100 2000 250 50 2e-3 8e-4 --set seed=3 --init-from deepened_100
      as_deep deepened_100c 100 9000 1000 100 3.5e-3 2e-4 --set seed=5 --init-from deepened_100b
      as_deep deepened 500 400 100 20 4e-4 0 --set seed=6 --init-from deepened_100c --deepen ;;
    *) echo "$usage" >&2; exit 2 ;;
  esac
  grep '"event":"validation"' "$run/metrics.jsonl" |
    sed -E 's/.*"step":([0-9]+),"nll":([0-9.]+).*"bleu":([0-9.]+).*/\1 \2 \3/' > "$run.validations"
  sed "s/^/$run: step, nll, BLEU of 300 sentences (beam 1): /" "$run.validations"
  # Where a validation first had a BLEU of 5, 10, 20, and the end.
  for step in $(awk '{ for (b = 5; b <= 20; b *= 2) if ($3 >= b && !done[b]++) print $1 } END { print $1 }' "$run.validations" | uniq); do
    score "$run" "$step"
  done
done
sha256sum corpus/vocabulary.model ./*.de
