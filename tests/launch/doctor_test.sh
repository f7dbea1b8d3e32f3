#!/usr/bin/env bash
# `hadal doctor` as people start it: the rank map under mpirun, and ranks made odd on purpose are named. Speeds are not judged here:
# on a busy machine they may be anything.
# Usage: doctor_test.sh HADAL
set -u
hadal=${1:?usage: doctor_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"
export OMPI_MCA_mpi_yield_when_idle=1
probe=(doctor --run-dir run --message-mib 0.25 --file-mib 0.25 --threads 1)
mpi=(mpirun --bind-to none --oversubscribe)

timeout 60 "$hadal" "${probe[@]}" > out 2>&1 || fail "alone"
says 'ready for a run'

timeout 60 "${mpi[@]}" -n 2 "$hadal" "${probe[@]}" > out 2>&1
says "$(hostname)"; says '^   1  '; says 'OMPI_COMM_WORLD_RANK=1'; says 'for a run'
[ -z "$(ls -A run)" ] || fail "the doctor left files: $(ls -A run)"

# As under the mpirun of MPICH: each process is alone. No command begins its work; the first process says why.
printf 'text\n' > text
for command in "${probe[*]}" "translate none -i text" "train none.textproto"; do
  for rank in 0 1; do expect 2 env PMI_RANK=$rank PMI_SIZE=2 MPI_LOCALNRANKS=2 "$hadal" $command; cp out out$rank; done
  [ "$(grep -c "mpirun started 2 tasks, but 1 rank found each other" out0)" -eq 1 ] && [ ! -s out1 ] || fail "$command: ranks that miss each other"
done

# A file with a byte more is another binary that runs all the same.
cp "$hadal" other && printf x >> other
timeout 60 "${mpi[@]}" -n 2 "$hadal" "${probe[@]}" : -n 1 ./other "${probe[@]}" > out 2>&1
[ $? -eq 1 ] || fail "two binaries in one job were not refused with code 1"
says 'BAD  *rank 2 (host .*its binary is'

timeout 60 "${mpi[@]}" -n 2 "$hadal" doctor --run-dir /proc/nowhere --message-mib 0.25 --file-mib 0.25 --threads 1 > out 2>&1
[ $? -eq 1 ] || fail "a directory nobody can write was not refused with code 1"
says 'rank 0 .*cannot write to the run directory'; says 'rank 1 .*cannot write to the run directory'

if [ "$(nproc)" -gt 1 ] && command -v taskset > /dev/null; then
  cpu=$(taskset -cp $$ | sed 's/.*: //; s/[,-].*//')  # a container may not have CPU 0
  timeout 60 "${mpi[@]}" -n 1 "$hadal" "${probe[@]}" : -n 1 taskset -c "$cpu" "$hadal" "${probe[@]/%1/2}" > out 2>&1
  says "warning  *rank 1 (host .*2 threads on 1 CPUs ($cpu)"
fi

finished
