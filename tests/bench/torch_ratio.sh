#!/usr/bin/env bash
# hadal's training step beside PyTorch's of the same model (tests/parity/bench_torch.py), in turn, in one run; medians of five pairs.
#
#   tests/bench/torch_ratio.sh path/to/hadal >> tests/bench/results/torch_ratio.txt      HADAL_PYTHON: a python with torch
# HADAL_MAX_CPU_ISA=AVX2 limits hadal, ATEN_CPU_CAPABILITY=avx2 PyTorch's own kernels. PyTorch from PyPI brings MKL, which takes its AVX2
# kernels on AMD CPUs. Debian's PyTorch takes whatever BLAS is installed, by default the reference one, which is a hundred times slower:
# install libopenblas0-openmp and set OPENBLAS_CORETYPE. Also prints the share of the cores' peak that hadal's step has.
# About ten minutes on two cores; nothing else may run.
set -euo pipefail
hadal=$(realpath "$1") python=${HADAL_PYTHON:-python3} rounds=5
parity=$(cd "$(dirname "$0")/../parity" && pwd)
echo "# $(date +%F), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git -C "$parity" describe --always --dirty)" \
  "HADAL_MAX_CPU_ISA=${HADAL_MAX_CPU_ISA:-}, ATEN_CPU_CAPABILITY=${ATEN_CPU_CAPABILITY:-}, load $(cut -d' ' -f1 /proc/loadavg)"
echo "# PyTorch $("$python" -c 'import torch; print(torch.__version__, torch.__config__.show().split("BLAS_INFO=")[-1].split(",")[0])')"
echo "# hadal and PyTorch: target tokens a second; limit: those of the products alone at the cores' peak"

median() { sort -n | awk '{ v[NR] = $1 } END { print v[(NR + 1) / 2] }'; }
compare() {  # WIDTH HEADS LAYERS
  local d=$1 heads=$2 layers=$3 pairs=""
  for ((round = 0; round < rounds; ++round)); do
    report=$("$hadal" bench step --d-model "$d" --heads "$heads" --encoder-layers "$layers" --decoder-layers "$layers" --threads 2 --repeats 3)
    ours=$(sed -nE 's/.*ms\), ([0-9]+) target tokens.*/\1/p' <<<"$report")
    limit=$(awk '/^step:/ { s = $2 } /^GEMM limit:/ { l = $3 } END { print s / l }' <<<"$report")
    theirs=$("$python" "$parity/bench_torch.py" --width "$d" --hidden $((4 * d)) --heads "$heads" --layers "$layers" \
      --threads 2 --steps 3 --warmup-steps 1 | sed -nE 's/.*tokens_per_second=([0-9.]+).*/\1/p')
    pairs+="$ours $theirs $(awk -v a="$ours" -v b="$theirs" -v l="$limit" 'BEGIN { printf "%.2f %.0f", a / b, a * l }')"$'\n'
  done
  column() { printf %s "$pairs" | cut -d' ' -f"$1"; }
  echo "d=$d ${layers}L-${layers}L: hadal $(column 1 | median), PyTorch $(column 2 | median), ratio $(column 3 | median)" \
    "($(column 3 | sort -n | head -1) to $(column 3 | sort -n | tail -1)), limit $(column 4 | median)"
}
compare 512 8 6
compare 128 4 100
compare 64 4 500
