#!/usr/bin/env bash
# preset_bits.sh HADAL: prints a checksum of the weights, moments and translations of every method after six steps of 4L-4L, d_model 64.
# Two programs, compilers or machines have the same bits if they print the same lines.
set -euo pipefail
export LC_ALL=C OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
hadal=$(realpath "${1:?usage: preset_bits.sh HADAL}")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Sentences of six words: their numbers are a congruential sequence, so that every machine makes the same text.
sentences() {  # SEED LINES
  awk -v x="$1" -v lines="$2" 'BEGIN {
    for (i = 0; i < lines; i++) for (j = 0; j < 6; j++) { x = (x * 75 + 74) % 65537; printf "w%d%s", x % 200, j < 5 ? " " : "\n" }
  }'
}
sentences 1 600 > "$work/train.a"
sentences 2 600 > "$work/train.b"
sentences 3 20 > "$work/valid.a"
sentences 4 20 > "$work/valid.b"
"$hadal" prepare --train "$work/train.a" "$work/train.b" --valid "$work/valid.a" "$work/valid.b" --out "$work/data" --vocab-size 210 > /dev/null
for preset in configs/method/*.textproto; do
  name=$(basename "$preset" .textproto)
  "$hadal" train configs/base.textproto configs/size/64.textproto "$preset" --run-dir "$work/$name" \
    --set model.encoder_layers=4 --set model.decoder_layers=4 --set model.max_positions=64 --set data.train="$work/data/train" \
    --set data.validation="$work/data/valid" --set batch.micro_batches=2 --set batch.source_tokens=256 --set batch.target_tokens=256 \
    --set pipeline.threads=1 --set stop.steps=6 --set validation.every_steps=0 --set checkpoint.every_steps=6 > "$work/$name.log" 2>&1 ||
    { tail -n 5 "$work/$name.log"; exit 1; }
  "$hadal" translate "$work/$name" --max-len-a 0 --max-len-b 8 -i "$work/valid.a" > "$work/$name.out" 2> /dev/null
  echo "$name $(cat "$work/$name"/checkpoints/step_00000006/*.safetensors | sha256sum | cut -c 1-16) $(sha256sum < "$work/$name.out" | cut -c 1-16)"
done
