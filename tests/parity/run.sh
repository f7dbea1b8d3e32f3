#!/bin/sh
# run.sh PROBE DIRECTORY [parity_probe's arguments] [-- compare.py's arguments]
# One parity test: runs the probe on 1 and on 3 ranks, whose results must be the same bytes, and compares them with PyTorch.
# Python: $HADAL_PARITY_PYTHON (an error if it cannot import torch), else the first of python3, /usr/bin/python3 that can.
# Exit status: 0 equal, 1 not, 77 skipped for want of PyTorch.
set -eu
here=$(dirname "$0")
probe=$1
directory=$2
shift 2

imports_torch() { "$1" -c 'import numpy, torch' 2>/dev/null; }

python=${HADAL_PARITY_PYTHON:-}
if [ -n "$python" ]; then
  imports_torch "$python" || { echo "HADAL_PARITY_PYTHON=$python cannot import numpy and torch" >&2; exit 1; }
else
  for candidate in python3 /usr/bin/python3; do
    if imports_torch "$candidate"; then python=$candidate; break; fi
  done
fi
if [ -z "$python" ]; then
  echo "SKIPPED: no python3 here can import numpy and torch (Debian: apt-get install python3-torch; or set HADAL_PARITY_PYTHON)"
  exit 77
fi

probe_arguments=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  probe_arguments="$probe_arguments $1"  # words without spaces
  shift
done
[ $# -eq 0 ] || shift

rm -rf "$directory"
for ranks in 1 3; do
  mkdir -p "$directory/$ranks"
  # shellcheck disable=SC2086
  "$probe" --directory "$directory/$ranks" --ranks $ranks $probe_arguments
done
for file in weights.safetensors gradients.safetensors case.json; do
  cmp "$directory/1/$file" "$directory/3/$file"
done
"$python" "$here/compare.py" "$directory/1" "$@"
rm -rf "$directory"
