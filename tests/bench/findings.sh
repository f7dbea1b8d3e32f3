#!/usr/bin/env bash
# The papers' findings at this machine's scale: the grids of configs/papers/laptop on real text, one after the other, and their reports.
#
#   tests/bench/findings.sh path/to/hadal DATA WORK [GRID…]     GRID: a name in configs/papers/laptop; none: all that are reported
# DATA holds {train,valid}.{en,de}. WORK receives the corpus, and for each grid its runs and report. A second call goes on. Everything
# takes about four hours on one core; the runs of 250 layers a side and those of 2,000 steps come last.
set -euo pipefail
hadal=$(realpath "$1") data=$(realpath "$2") work=$3
shift 3
grids=$(cd "$(dirname "$0")/../../configs/papers/laptop" && pwd)
mkdir -p "$work"
work=$(realpath "$work")
[ -e "$work/corpus/valid.json" ] ||
  "$hadal" prepare --train "$data/train.en" "$data/train.de" --valid "$data/valid.en" "$data/valid.de" --out "$work/corpus" \
    --vocab-size 600 --overwrite

# compare GRID [--run N…]
compare() {
  local grid=$1
  shift
  "$hadal" compare "$grids/$grid.textproto" --set data.train="$work/corpus/train" --set data.validation="$work/corpus/valid" \
    --out "$work/$grid" "$@"
}

if [ $# -gt 0 ]; then
  for grid in "$@"; do compare "$grid"; done
  exit
fi
compare deepnet_table1 --run {1..72} # 6, 18, 50 and 100 layers a side
for grid in branchnorm_sweep branchnorm_growth b2t_table1 branchnorm_seeds branchnorm_full_gain b2t_no_ln_gain table1_rates table1_seeds; do
  compare "$grid"
done
compare deepnet_table1 # and 250
compare table1_long
