#!/usr/bin/env bash
# The speed of a training step, as docs/performance.md quotes it: every line is one `hadal bench step`.
#
#   tests/bench/step_speed.sh path/to/hadal > tests/bench/results/step_speed.txt
# Takes about twelve minutes on two cores; the machine should be idle. Ranks of an mpirun take one thread each.
set -euo pipefail
hadal=$(realpath "$1")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
shapes=(
  "--d-model 512 --encoder-layers 6 --decoder-layers 6"
  "--d-model 128 --encoder-layers 100 --decoder-layers 100 --heads 4"
  "--d-model 64 --encoder-layers 500 --decoder-layers 500 --heads 4"
)

bench() {  # COMMAND…: one line of what it prints
  "$@" 2> /dev/null | awk -v command="$*" '
    /^step:/ { step = sprintf("%7s ms  %5s tokens/s", $2, $10) }
    /^GEMM limit:/ { limit = sprintf("  limit %6s ms", $3) }
    /^share:/ { share = sprintf("  %5s (%s to %s", $2, $11, $13) }
    /^memory of rank/ { memory = memory "  " $7 " GiB" }
    END { print step limit share memory "  " command }'
}

echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git -C "$(dirname "$0")" describe --always --dirty)"
echo "# step, median of 7; target tokens/s; GEMM limit; share of it, median (least to most of 7 pairs); peak RSS of each rank; command"
cd "$(dirname "$hadal")"
for shape in "${shapes[@]}"; do
  # shellcheck disable=SC2086  # a shape is several arguments
  bench ./hadal bench step $shape --threads 2
  bench ./hadal bench step $shape --threads 2 --mixed-length --dropout 0.1
  bench ./hadal bench step $shape --threads 2 --recompute-every 10
done

echo "# Two ranks of one thread beside one rank of two threads, the same 8 micro-batches, three times in turn; medians of 3"
for shape in "${shapes[@]}"; do
  for _ in 1 2 3; do
    bench ./hadal bench step $shape --tokens 256 --micro-batches 8 --threads 2 --no-limit --repeats 3
    bench mpirun -n 2 --bind-to none --oversubscribe ./hadal bench step $shape --tokens 256 --micro-batches 8 --threads 1 --no-limit --repeats 3
  done
done
