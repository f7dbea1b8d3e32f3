#!/usr/bin/env bash
# Real text, end to end: prepare → train → average → translate → BLEU, as docs/results.md quotes it.
#
#   [PAIRS=20000] [VOCABULARY=4000] tests/bench/tatoeba.sh path/to/hadal DATA WORK [hadal train's arguments…]
# DATA holds {train,valid,test}.{en,de}. WORK receives corpus, run and translations; a second call resumes the training.
# With PAIRS, trains on as many pairs, drawn at random (the same ones in every call).
set -euo pipefail
hadal=$(realpath "$1") data=$(realpath "$2") work=$3
shift 3
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
mkdir -p "$work"
train=$data/train
if [ -n "${PAIRS:-}" ]; then
  train=$work/sample
  paste "$data/train.en" "$data/train.de" | shuf -n "$PAIRS" --random-source=<(yes) > "$train.tsv"
  cut -f1 "$train.tsv" > "$train.en"
  cut -f2 "$train.tsv" > "$train.de"
fi
[ -e "$work/corpus/test.json" ] ||
  "$hadal" prepare --train "$train.en" "$train.de" --valid "$data/valid.en" "$data/valid.de" \
    --test "$data/test.en" "$data/test.de" --out "$work/corpus" --vocab-size "${VOCABULARY:-4000}" --overwrite
"$hadal" train "$configs/tatoeba/base.textproto" --set data.train="$work/corpus/train" \
  --set data.validation="$work/corpus/valid" --run-dir "$work/run" "$@"
"$hadal" checkpoint average "$work/run" --last 5 --out "$work/average"
"$hadal" translate "$work/average" < "$data/test.en" > "$work/test.out"
"$hadal" bleu -r "$data/test.de" -i "$work/test.out"
