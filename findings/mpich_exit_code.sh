#!/usr/bin/env bash
# MPICH 5.0.2: mpirun returns the bitwise or of its ranks' exit codes, 6 for ranks that returned 2 and 4, and the bare number of the signal
# that ended a rank: 6 for SIGABRT, the same as an exit code of 6. Shells and Open MPI return 128 + signal, Open MPI one rank's code.
. "$(dirname "$0")/support.sh"
packages mpich==5.0.2
mpirun=$folder/python/bin/mpirun
"$mpirun" --version | grep Version
quiet "$mpirun" -n 2 true
codes=0 signal=0
"$mpirun" -n 1 bash -c 'exit 2' : -n 1 bash -c 'exit 4' > /dev/null 2>&1 || codes=$?
"$mpirun" -n 1 bash -c 'ulimit -c 0; kill -ABRT $$' > /dev/null 2>&1 || signal=$?
echo "ranks that return 2 and 4: expected 2 or 4, seen $codes"
echo "a rank ended by SIGABRT (6): expected 134, seen $signal"
check test $codes,$signal = 6,6
