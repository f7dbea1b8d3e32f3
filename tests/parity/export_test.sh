#!/usr/bin/env bash
# What `hadal checkpoint export` writes is enough to compute what `hadal score` prints: a few steps of training, an export, and hadal_torch with that
# alone (tools/checkpoint/export.md). With other weights it must not agree.
# Usage: export_test.sh HADAL. Python as in run.sh; exit status 77: none can import torch.
set -u
hadal=${1:?usage: export_test.sh HADAL}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../support/python_modules.sh"
python=${HADAL_PARITY_PYTHON:-}
for candidate in ${python:-python3 /usr/bin/python3}; do
  if has_modules "$candidate" numpy torch; then python=$candidate; break; fi
done
[ -n "$python" ] || { echo "SKIPPED: no python3 here can import numpy and torch"; exit 77; }
. "$here/../support/command_test.sh"
export PYTHONPATH=$here/../../tools/python

expect 0 "$hadal" make-corpus --out text --pairs 200 --valid 10 --test 1 --seed 3
cat text/train.en text/train.de | tr ' ' '\n' | sort -u | grep . | head -n 60 | sed 's/$/ 1/' > dict.txt  # the rest is <unk>
expect 0 "$hadal" prepare --train text/train.en text/train.de --vocab dict.txt --out data
cat > small.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 1 decoder_layers: 2 d_model: 18 d_ff: 20 heads: 3 max_positions: 64 }
batch { micro_batches: 2 source_tokens: 128 target_tokens: 128 }
learning_rate { peak: 0.03 warmup_updates: 0 }
pipeline { threads: 1 }
stop { steps: 3 }
END

# exports METHOD [--set …]: trains, exports, scores, compares.
exports() {
  local method=$1; shift
  expect 0 "$hadal" train small.textproto --set "model.residual.method=$method" "$@" --run-dir "$method/run"
  expect 0 "$hadal" checkpoint export "$method/run" --out "$method/model.safetensors"
  expect 0 "$hadal" score "$method/run" --source text/valid.en --target text/valid.de --out "$method/scores" --threads 1
  expect 0 "$python" "$here/compare_export.py" "$method/model.safetensors" text/valid.en text/valid.de "$method/scores"
  says "10 lines"; cat out
}
exports branchnorm --set model.residual.growth_updates=7 --set model.sharing=all
exports normformer --set model.sharing=decoder
exports dlcl_post --set model.sharing=none
expect 1 "$python" "$here/compare_export.py" branchnorm/model.safetensors text/valid.en text/valid.de normformer/scores

finished
