#!/usr/bin/env bash
# Each diagnosis (pipeline/instruments/run_diagnosis.h) has a run that provokes it, and a healthy run has none; where a run that
# explodes fails, in the same words for 1 and 3 stages.
# Usage: diagnosis_test.sh HADAL
set -u
hadal=${1:?usage: diagnosis_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 2000 300
cat > small.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 3 decoder_layers: 3 d_model: 32 d_ff: 64 heads: 2 max_positions: 128 dropout: 0 residual { method: "deepnorm" } }
batch { micro_batches: 2 source_tokens: 256 target_tokens: 256 }
learning_rate { schedule: "inverse_sqrt" peak: 5e-3 warmup_updates: 40 }
optimizer { clip_norm: 1 }
stop { steps: 150 }
validation { every_steps: 0 }
checkpoint { every_steps: 0 save_at_end: false }
instruments { enabled: false }
END
base=("$hadal" train small.textproto --set pipeline.threads=1)
events() { grep '"event":"diagnosis"' "$1/metrics.jsonl"; }

echo "a healthy run has none"
expect 0 "${base[@]}" --run-dir healthy; lacks "diagnosis:"

echo "no gradient in the encoder"
expect 0 "${base[@]}" --set model.residual.decoder.cross_value_gain=0 --set model.residual.decoder.cross_output_gain=0 \
  --set stop.steps=60 --run-dir cut_off
says "diagnosis: the encoder's gradient has been 0 of the decoder's since step 1: the output hardly depends on the source"
[ "$(events cut_off | wc -l)" -eq 1 ] || fail "not said once"
for format in text json; do expect 0 "$hadal" summary cut_off --format $format; says "gradient has been 0 of the decoder"; done
grep -q "gradient has been 0 of the decoder" cut_off/report.txt || fail "report.txt lacks it"

echo "vanishing gradients"
expect 0 "${base[@]}" --set model.encoder_layers=40 --set model.decoder_layers=40 --set model.d_model=16 --set model.d_ff=32 \
  --set model.residual.method=post_ln --set learning_rate.warmup_updates=0 --set learning_rate.peak=1e-3 --set stop.steps=40 --run-dir vanishing
says "diagnosis: gradients vanish from decoder layer [0-9]* down since step"

echo "a loss that is that of token frequencies"
expect 0 "${base[@]}" --set learning_rate.peak=0.1 --run-dir frequencies
says "diagnosis: the loss stays at that of token frequencies alone since step"

echo "a jump of the loss, and where numbers cease to be finite"
expect 4 "${base[@]}" --set learning_rate.peak=10 --run-dir explodes
says "diagnosis: the loss jumped at step [0-9]*, from nll .*, in warm-up, at update [0-9]* of 40"
grep -q "^  failed: .*step [0-9]* failed; first number that is not finite" explodes/report.txt || fail "report.txt does not say why it failed"
says "no checkpoint to go back to. step [0-9]* failed; first number that is not finite: .*; last finite tensor: .*; try a lower"
expect 4 "${base[@]}" --set optimizer.kind=muon --set learning_rate.peak=10 --run-dir muon_explodes; says "; try a lower"
expect 4 mpirun --bind-to none --oversubscribe -n 3 "${base[@]}" --set learning_rate.peak=10 --run-dir explodes3
diff <(events explodes) <(events explodes3) > out || fail "3 stages say other words"
finished
