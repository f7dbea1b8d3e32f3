#!/usr/bin/env bash
# What a large vocabulary costs at d_model 512, 6L-6L, and which share of a step the output head takes. The head's time is
# the forward's beyond that with 8 tokens: the head computes its gradients there.
#
#   tests/bench/large_vocabulary.sh path/to/hadal… > tests/bench/results/large_vocabulary.txt
# Several programs run in turn, for a comparison. Takes about a minute for each; the machine should be idle.
set -euo pipefail
echo "# $(uname -m), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), hadal $(git -C "$(dirname "$0")" describe --always --dirty)"
echo "# step, median of 5; target tokens/s; forward; head; its share of the step; arena, equal to the plan or not; command"
options=(bench step --d-model 512 --encoder-layers 6 --decoder-layers 6 --threads 2 --no-limit --repeats 5)
declare -A base
for vocabulary in 8 64000 250000; do
  for hadal in "$@"; do
    output=$("$hadal" "${options[@]}" --vocabulary "$vocabulary" 2> /dev/null)
    forward=$(awk '/rank 0:  / { print $4 }' <<< "$output")
    [[ $vocabulary == 8 ]] && base[$hadal]=$forward
    awk -v base="${base[$hadal]}" -v command="$hadal ${options[*]} --vocabulary $vocabulary" '
      /^step:/ { step = $2; tokens = $10 }
      /rank 0:  / { forward = $4 }
      /^memory of rank 0/ { arena = $10 " GiB, plan " substr($15, 1, length($15) - 1) }
      END { printf "%7.1f ms  %5s tokens/s  forward %6.1f ms  head %6.1f ms  %4.1f%%  %s  %s\n", step, tokens, forward,
              forward - base, 100 * (forward - base) / step, arena, command }' <<< "$output"
  done
done
