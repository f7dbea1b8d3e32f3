#!/usr/bin/env bash
# Real text, end to end: prepare → train → average → translate → BLEU, as docs/results.md quotes it.
#
#   tests/bench/tatoeba.sh path/to/hadal DATA WORK [hadal train's arguments…]
# DATA holds {train,valid,test}.{en,de}. WORK receives corpus, run and translations; a second call resumes the training.
set -euo pipefail
hadal=$(realpath "$1") data=$(realpath "$2") work=$3
shift 3
configs=$(cd "$(dirname "$0")/../../configs" && pwd)
mkdir -p "$work"
[ -e "$work/corpus/test.json" ] ||
  "$hadal" prepare --train "$data/train.en" "$data/train.de" --valid "$data/valid.en" "$data/valid.de" \
    --test "$data/test.en" "$data/test.de" --out "$work/corpus" --vocab-size 4000 --overwrite
"$hadal" train "$configs/tatoeba/base.textproto" --set data.train="$work/corpus/train" \
  --set data.validation="$work/corpus/valid" --run-dir "$work/run" "$@"
"$hadal" checkpoint average "$work/run" --last 5 --out "$work/average"
"$hadal" translate "$work/average" < "$data/test.en" > "$work/test.out"
"$hadal" bleu -r "$data/test.de" -i "$work/test.out"
