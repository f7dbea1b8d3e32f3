#!/usr/bin/env bash
# A run that reaches --stop-after saves and exits with 85; its watchdog reports what takes long.
# Usage: stop_after_test.sh HADAL
set -u
hadal=${1:?usage: stop_after_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 100 150
cat > small.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 6 decoder_layers: 6 d_model: 256 d_ff: 1024 heads: 4 max_positions: 128 }
batch { micro_batches: 1 source_tokens: 1024 target_tokens: 1024 }
pipeline { threads: 1 wait_timeout_seconds: 0.02 }
stop { steps: 100000000 }
checkpoint { every_steps: 0 }
END
expect 85 "$hadal" train small.textproto --stop-after 1s --run-dir run
says 'watchdog \[rank 0\]: busy for .*; at step '
[ -e run/checkpoints/latest ] || fail "nothing was saved"
expect 0 "$hadal" train small.textproto --set stop.steps=1 --run-dir run  # nothing left to do
finished
