#!/usr/bin/env bash
# hadal's training step beside PyTorch's of the same model (tests/parity/bench_torch.py), in turn, in one run.
#
#   tests/bench/torch_ratio.sh path/to/hadal > tests/bench/results/torch_ratio.txt      HADAL_PYTHON: a python with torch
# PyTorch runs with the OpenBLAS kernels and vector width of this CPU, which it does not find by itself everywhere. Debian's PyTorch takes
# whatever BLAS is installed, by default the reference one, which is a hundred times slower than either: install libopenblas0-openmp
# (the pthread one spins against PyTorch's own threads). PyTorch from PyPI brings its own (MKL); results/torch_ratio.txt is of that,
# results/torch_ratio_debian.txt of Debian's. About five minutes on two cores; the machine should be idle.
set -euo pipefail
hadal=$(realpath "$1") python=${HADAL_PYTHON:-python3}
export OPENBLAS_CORETYPE=${OPENBLAS_CORETYPE:-SkylakeX} ATEN_CPU_CAPABILITY=${ATEN_CPU_CAPABILITY:-avx512}
parity=$(cd "$(dirname "$0")/../parity" && pwd)
echo "# $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), OPENBLAS_CORETYPE=$OPENBLAS_CORETYPE ATEN_CPU_CAPABILITY=$ATEN_CPU_CAPABILITY, hadal $(git -C "$parity" describe --always --dirty)"
echo "# PyTorch $("$python" -c 'import torch; print(torch.__version__, torch.__config__.show().split("BLAS_INFO=")[-1].split(",")[0])'), libblas.so.3: $(realpath "$(ldconfig -p | sed -nE 's/.*libblas\.so\.3 .*=> //p' | head -1)")"

compare() {  # WIDTH HEADS LAYERS
  local d=$1 heads=$2 layers=$3
  for round in 1 2 3; do
    ours=$("$hadal" bench step --d-model "$d" --heads "$heads" --encoder-layers "$layers" --decoder-layers "$layers" \
      --threads 2 --no-limit --repeats 3 --json | sed -nE 's/.*"target_tokens_per_second": *([0-9.]+).*/\1/p' | head -1)
    theirs=$("$python" "$parity/bench_torch.py" --width "$d" --hidden $((4 * d)) --heads "$heads" --layers "$layers" \
      --threads 2 --steps 3 --warmup-steps 1 | sed -nE 's/.*tokens_per_second=([0-9.]+).*/\1/p')
    echo "d=$d ${layers}L-${layers}L round $round: hadal $ours, PyTorch $theirs target tokens/s, ratio $(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.2f", a / b }')"
  done
}
compare 512 8 6
compare 128 4 100
compare 64 4 500
