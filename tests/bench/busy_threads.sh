#!/usr/bin/env bash
# How much two threads gain or lose on two cores that other programs use: steps of 2L-2L, d_model 32, one and two threads
# in turn, beside 0, 2 and 4 endless loops.
#
#   tests/bench/busy_threads.sh path/to/hadal > tests/bench/results/busy_threads.txt
# Takes about two minutes; nothing else should run.
set -euo pipefail
hadal=$(realpath "$1")
rounds=15

rate() {  # THREADS: target tokens a second
  "$hadal" bench step --d-model 32 --heads 4 --encoder-layers 2 --decoder-layers 2 --vocabulary 2000 --no-limit \
    --repeats 80 --threads "$1" 2> /dev/null | awk '/^step:/ { print $10 }'
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git -C "$(dirname "$0")" describe --always --dirty)"
echo "# loops beside it; median of $rounds rates with two threads by the rate with one, and all of them"
for loops in 0 2 4; do
  pids=()
  for ((i = 0; i < loops; ++i)); do
    while :; do :; done &
    pids+=($!)
  done
  ratios=()
  for ((i = 0; i < rounds; ++i)); do
    one=$(rate 1)
    ratios+=("$(awk -v one="$one" -v two="$(rate 2)" 'BEGIN { printf "%.2f", two / one }')")
  done
  [ "$loops" = 0 ] || kill "${pids[@]}"
  echo "$loops  $(printf '%s\n' "${ratios[@]}" | median)  ${ratios[*]}"
done
