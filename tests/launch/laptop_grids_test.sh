#!/usr/bin/env bash
# Every grid of configs/papers/laptop runs: a few steps of a tiny model, for each label of each axis at least one cell.
# Usage: laptop_grids_test.sh HADAL CONFIGS
set -u
hadal=${1:?usage: laptop_grids_test.sh HADAL CONFIGS} configs=${2:?}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

"$hadal" make-corpus --out text --pairs 300 --valid 10 --test 10 --seed 3 > /dev/null || exit 1
"$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 300 > /dev/null || exit 1
printf '#!/bin/sh\nexec python3 -S "$@"\n' > bare; chmod +x bare
export HADAL_PYTHON=$work/bare  # without packages: the pages have tests of their own
tiny=(--set data.train=data/train --set data.validation=data/valid --set model.encoder_layers=2 --set model.decoder_layers=2
  --set model.d_model=16 --set model.d_ff=32 --set model.heads=2 --set model.max_positions=128 --set batch.source_tokens=96
  --set batch.target_tokens=96 --set stop.steps=3 --set validation.every_steps=3)

failures=0 grids=0
for grid in "$configs"/papers/laptop/*.textproto; do
  grep -q '^# proto-message: hadal.config.Comparison' "$grid" || continue
  name=$(basename "$grid" .textproto)
  "$hadal" compare "$grid" "${tiny[@]}" --list > list || { echo "FAILED: $name cannot be listed"; failures=$((failures + 1)); continue; }
  # The first cell of each label.
  mapfile -t runs < <(awk 'NR > 1 { n = split($2, labels, ","); new = 0
      for (i = 1; i <= n; ++i) if (!seen[labels[i]]++) new = 1
      if (new) print $1 }' list)
  [ ${#runs[@]} -gt 1 ] || { echo "FAILED: $name has ${#runs[@]} cells"; failures=$((failures + 1)); continue; }
  timeout 120 "$hadal" compare "$grid" "${tiny[@]}" --out "out/$name" --run "${runs[@]}" > log 2>&1
  code=$?
  [ $code -eq 2 ] || { echo "FAILED: exit code $code of $name"; tail -n 20 log; cat "out/$name"/logs/* | tail -n 5; failures=$((failures + 1)); }
  [ "$(grep -c ': done in .* 3 steps' log)" -eq ${#runs[@]} ] || { echo "FAILED: $name"; cat log; failures=$((failures + 1)); }
  [ -s "out/$name/grid.json" ] || { echo "FAILED: $name has no grid.json"; failures=$((failures + 1)); }
  echo "$name: ${#runs[@]} cells"
  grids=$((grids + 1))
done
[ $grids -ge 7 ] || { echo "FAILED: only $grids grids"; failures=$((failures + 1)); }
[ $failures -eq 0 ] && echo "all passed" || { echo "$failures failure(s)"; exit 1; }
