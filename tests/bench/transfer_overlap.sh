#!/usr/bin/env bash
# How much communication is hidden behind computation: activations and gradients between two stages, and gradients between two replicas,
# on one host, with the kernel's single copy and without it: there MPI copies every message through shared memory in pieces, and only
# inside its own calls, so a transfer overlaps computation only because the stage calls MPI between sublayers. Each run is traced;
# transfer_overlap.py says how much was hidden.
#
#   tests/bench/transfer_overlap.sh path/to/hadal > tests/bench/results/transfer_overlap.txt
# About two minutes on two cores; the machine should be idle.
set -euo pipefail
. "$(dirname "$0")/workplace.sh" "$1"
cat > run.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 12 decoder_layers: 12 d_model: 512 d_ff: 1024 heads: 8 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 8 source_tokens: 512 target_tokens: 512 }
pipeline { threads: 1 }
stop { steps: 4 }
checkpoint { save_at_end: false }
END
for layout in "pipeline.stages=2" "pipeline.replicas=2"; do
  for mechanism in cma none; do
    echo "\$ mpirun -n 2 --mca btl_vader_single_copy_mechanism $mechanism hadal train … --set $layout --trace steps=2-3"
    mpirun -n 2 --bind-to none --mca btl_vader_single_copy_mechanism $mechanism \
      "$hadal" train run.textproto --run-dir "run_$layout$mechanism" --set $layout --trace steps=2-3 > log 2>&1 || { cat log; exit 1; }
    python3 "$here/transfer_overlap.py" "run_$layout$mechanism/trace/steps_2-3.json"
  done
done
