#!/usr/bin/env bash
# Thousands of torture rounds (torture.cc), with the machine and the commit they ran on; results.txt beside it is its output.
#
#   tests/torture/thousands.sh BUILD [ROUNDS [ROUNDS_UNDER_MPIRUN [SEED]]]      defaults: 2000, 100, 1
set -u
build=${1:?usage: thousands.sh BUILD [ROUNDS [ROUNDS_UNDER_MPIRUN [SEED]]]}
rounds=${2:-2000} mpi_rounds=${3:-100} seed=${4:-1}
echo "commit $(git -C "$(dirname "$0")" rev-parse --short HEAD), $(nproc) CPUs, $(grep -m 1 'model name' /proc/cpuinfo | sed 's/.*: //')"
failures=0
for ranks in 1 2; do
  start=$SECONDS
  "$build/tests/torture/torture" "$build/hadal" $((ranks == 1 ? rounds : mpi_rounds)) $ranks "$seed" || failures=1
  echo "took $((SECONDS - start)) s"
done
exit $failures
