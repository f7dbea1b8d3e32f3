#!/bin/sh
# run.sh PROBE DIRECTORY GROUP
# Runs the probe on 1 and on 3 ranks (the group "adaptive" also on 2) for every case of a group of cases.txt. All must give the same bytes. Compares them with PyTorch; the group
# "controls" with damaged results too.
# Python: $HADAL_PARITY_PYTHON (an error if it cannot import torch), else the first of python3, /usr/bin/python3 that can.
# Exit status: 0 equal, 1 not, 77 skipped for want of PyTorch.
set -eu
here=$(dirname "$0")
. "$here/../support/python_modules.sh"
export PYTHONPATH="$here/../../tools/python"
probe=$1
directory=$2
group=$3

python=${HADAL_PARITY_PYTHON:-}
if [ -n "$python" ]; then
  has_modules "$python" numpy torch || { echo "HADAL_PARITY_PYTHON=$python has not both numpy and torch" >&2; exit 1; }
else
  for candidate in python3 /usr/bin/python3; do
    if has_modules "$candidate" numpy torch; then python=$candidate; break; fi
  done
fi
if [ -z "$python" ]; then
  echo "SKIPPED: no python3 here can import numpy and torch (Debian: apt-get install python3-torch; or set HADAL_PARITY_PYTHON)"
  exit 77
fi

grep -q "^$group " "$here/cases.txt" || { echo "cases.txt has no group $group" >&2; exit 1; }
rm -rf "$directory"
case=0 directories= counts="1 3"
[ "$group" != adaptive ] || counts="1 2 3"
while read -r of arguments; do
  [ "$of" = "$group" ] || continue
  case=$((case + 1))
  for ranks in $counts; do
    mkdir -p "$directory/$case/$ranks"
    # shellcheck disable=SC2086
    "$probe" --directory "$directory/$case/$ranks" --ranks $ranks $arguments
  done
  for ranks in $counts; do
    for file in weights.safetensors gradients.safetensors case.json; do
      cmp "$directory/$case/1/$file" "$directory/$case/$ranks/$file"
    done
  done
  directories="$directories $directory/$case/1"
done < "$here/cases.txt"
options=
[ "$group" != controls ] || options=--negative-controls
# shellcheck disable=SC2086
"$python" "$here/compare.py" $options $directories
rm -rf "$directory"
