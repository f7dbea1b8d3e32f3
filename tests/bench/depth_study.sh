#!/usr/bin/env bash
# Which methods train 2,500 sublayers? One config family (configs/depth_study), one run a method, and the verdict of each:
# a method trains when its validation nll gets at least 0.3 below that of a model that knows the target's token frequencies only, and
# fails when it is never 0.05 below it.
#
#   tests/bench/depth_study.sh run METHOD   path/to/hadal DATA WORK [hadal train's arguments…]   METHOD as in configs/method
#   tests/bench/depth_study.sh table        path/to/hadal WORK METHOD…                           curves and verdicts
# DATA holds {train,valid,test}.{en,de}. A run takes 10 minutes and more on one quiet core; a second call resumes it.
set -euo pipefail
configs=$(cd "$(dirname "$0")/../../configs" && pwd)

run() {
  local method=$1 hadal data=$3 work=$4
  hadal=$(realpath "$2")
  shift 4
  mkdir -p "$work"
  (
    flock 9
    [ -e "$work/corpus/test.json" ] ||
      "$hadal" prepare --train "$data/train.en" "$data/train.de" --valid "$data/valid.en" "$data/valid.de" \
        --test "$data/test.en" "$data/test.de" --out "$work/corpus" --vocab-size 600 --overwrite
  ) 9> "$work/corpus.lock"
  "$hadal" train "$configs/depth_study/base.textproto" "$configs/method/$method.textproto" \
    --set data.train="$work/corpus/train" --set data.validation="$work/corpus/valid" --run-dir "$work/$method" "$@"
}

# "step nll" of every validation of a run, without doubles after a resume.
validations() {
  grep '"event":"validation"' "$1/metrics.jsonl" |
    sed -E 's/.*"step":([0-9]+).*"nll":([0-9.eE+-]+).*/\1 \2/' | sort -n -u -k1,1
}

table() {
  local hadal work=$2 entropy
  hadal=$(realpath "$1")
  shift 2
  # The unigram level of the very sentences that are validated on (configs/depth_study: the first 500), not of the whole text.
  entropy=$("$hadal" inspect corpus "$work/corpus/train" --score "$work/corpus/valid" --max-sentences 500 |
    tee /dev/stderr | sed -nE 's/^score.* nll ([0-9.]+) nats.*/\1/p')
  printf '%-12s %8s %10s %10s %12s  %s\n' method steps first_nll best_nll below_unigram verdict
  for method in "$@"; do
    validations "$work/$method" | awk -v method="$method" -v entropy="$entropy" '
      NR == 1 { first = $2; best = $2 }
      { if ($2 < best) best = $2; steps = $1 }
      END {
        below = entropy - best
        verdict = below >= 0.3 ? "trains" : below < 0.05 ? "fails" : "between"
        printf "%-12s %8d %10.4f %10.4f %12.4f  %s\n", method, steps, first, best, below, verdict
      }'
  done
  echo
  for method in "$@"; do
    echo "$method: validation nll by step"
    validations "$work/$method" | awk '{ printf "  %s %.4f", $1, $2; if (NR % 8 == 0) print "" } END { if (NR % 8) print "" }'
  done
  echo
  "$hadal" curve --metric valid/nll "${@/#/$work/}" --label "$@"
}

case ${1:-} in
  run|table) "$@" ;;
  *) sed -n '2,9s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
