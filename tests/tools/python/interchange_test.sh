#!/usr/bin/env bash
# Trained models, exported by `hadal checkpoint export --format`, compute in transformers and CTranslate2 what they compute in hadal; and come
# back by `hadal checkpoint import` with the same scores, to be trained on, and deepened.
# Usage: interchange_test.sh HADAL [LAYERS STEPS]: with both, DeepNorm alone, so deep. Exit status 77: a Python package is missing.
set -u
hadal=${1:?usage: interchange_test.sh HADAL [LAYERS STEPS]}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/find_python.sh"
find_python torch transformers ctranslate2 tokenizers pandas
export HADAL_PYTHON=$python
. "$here/../../support/command_test.sh"
layers=${2:-2} steps=${3:-600} patience=600
[ $# -lt 3 ] || patience=7000

# Text that a small model learns in seconds, so that its translations and their BLEU depend on the source: words by a lexicon, every
# second one moved to the front.
mkdir text
awk -v english="the this that a one red old new house dog cat man woman child sees has knows seeks today never and with" \
  -v german="der die das ein eine rot alt neu Haus Hund Katze Mann Frau Kind sieht hat kennt sucht heute nie und mit" 'BEGIN {
  srand(3); n = split(english, e, " "); split(german, g, " ")
  for (i = 0; i < 3040; ++i) {
    source = target = ""
    for (j = int(rand() * 7) + 2; j > 0; --j) {
      w = 1 + int(rand() * n); source = e[w] " " source; target = j % 2 ? g[w] " " target : target g[w] " "
    }
    file = "text/" (i < 3000 ? "train" : "valid")
    sub(/ $/, ".", source); sub(/ $/, ".", target); print source > (file ".en"); print target > (file ".de")
  }
}'
expect 0 "$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 80
cat > small.textproto <<END
data { train: "data/train" }
model { encoder_layers: $layers decoder_layers: $layers d_model: 32 d_ff: 64 heads: 4 max_positions: 128 dropout: 0 }
batch { micro_batches: 1 source_tokens: 1024 target_tokens: 1024 }
learning_rate { peak: 0.006 warmup_updates: 100 }
pipeline { threads: 1 }
stop { steps: $steps }
END

# trains METHOD [--set …]: a run or its continuation, its scores and its translations.
trains() {
  local method=$1; shift
  expect 0 "$hadal" train small.textproto --set model.residual.method="$method" "$@" --run-dir "$method/run"
  expect 0 "$hadal" score "$method/run" -s text/valid.en -t text/valid.de -o "$method/scores" --overwrite --threads 1
  expect 0 "$hadal" translate "$method/run" -i text/valid.en --beam 1 --max-len-a 0 --max-len-b 50 -o "$method/greedy" --overwrite --threads 1
  expect 0 "$hadal" translate "$method/run" -i text/valid.en --beam 4 --max-len-a 0 --max-len-b 50 -o "$method/beam" --overwrite --threads 1
}
# computes_the_same METHOD FORMAT: an export, in its program, against hadal.
computes_the_same() {
  local method=$1 format=$2 ours theirs
  rm -rf "${method:?}/$format"
  expect 0 "$hadal" checkpoint export "$method/run" --format "$format" -o "$method/$format"
  expect 0 "$python" "$here/compare_translations.py" "$format" "$method/$format" text/valid.en text/valid.de "$method/scores" "$method/greedy" \
    "$method/beam" "$method/translations"
  sed "s/^/$method, /" out
  ours=$("$hadal" bleu -r text/valid.de -i "$method/beam" --score-only -w 3)
  theirs=$("$hadal" bleu -r text/valid.de -i "$method/translations" --score-only -w 3)
  echo "$method, $format: BLEU $theirs, hadal's $ours"
  awk -v a="$ours" -v b="$theirs" 'BEGIN { exit !(a - b < 0.2 && b - a < 0.2) }' || fail "BLEU differs by 0.2 or more"
  awk -v a="$ours" 'BEGIN { exit !(a > 10) }' || fail "a model that is not trained enough to compare its translations"
}
# comes_back METHOD SOURCE [OPTION…]: an import scores as the run that was exported.
comes_back() {
  local method=$1 source=$2; shift 2
  rm -rf back
  expect 0 "$hadal" checkpoint import "$source" -o back "$@"
  expect 0 "$hadal" score back -s text/valid.en -t text/valid.de -o back.scores --overwrite --threads 1
  paste "$method/scores" back.scores | awk -F'\t' '{ d = ($1 - $3) / $4 } $2 != $4 || !(d <= 1e-5 && d >= -1e-5) { exit 1 }' || fail "$source scores otherwise than $method/run"
}

trains deepnorm
computes_the_same deepnorm huggingface
computes_the_same deepnorm ctranslate2
comes_back deepnorm deepnorm/huggingface
[ $# -lt 3 ] || finished
expect 0 "$hadal" train small.textproto --set model.residual.method=post_ln --init-from back --set stop.steps=1 --run-dir tuned
trains post_ln
computes_the_same post_ln huggingface
computes_the_same post_ln ctranslate2
trains branchnorm --set model.residual.growth_updates=1200  # at step 600 in mid-growth
computes_the_same branchnorm huggingface
computes_the_same branchnorm ctranslate2
trains branchnorm --set model.residual.growth_updates=1200 --set stop.steps=1250  # grown
computes_the_same branchnorm huggingface
trains pre_ln
computes_the_same pre_ln huggingface
computes_the_same pre_ln ctranslate2
comes_back pre_ln pre_ln/huggingface
trains admin
computes_the_same admin ctranslate2
expect 2 "$hadal" checkpoint export admin/run --format huggingface -o admin/huggingface
says "encoder.layers.0.self_attn.omega"; says "ctranslate2 stores that table"
[ ! -e admin/huggingface ] || fail "a refused export left its folder"

# A language model: CompleteP on Llama's block, of whose losses 3.5 is one of a model that has learned.
expect 0 "$hadal" prepare --monolingual --train text/train.en --valid text/valid.en --out mono --vocab-size 80
language_model() {
  expect 0 "$hadal" train small.textproto "$here/../../../configs/block/llama.textproto" --set data.train=mono/train --set model.encoder_layers=0 \
    --set model.decoder_layers="$1" --set model.block.kv_heads=2 --set stop.steps="$2" --run-dir "$3" --set model.residual.method="${@:4}"
}
# begins_below LOSS: the first step's, as printed.
begins_below() { awk -v most="$1" '$1 == "step" && sub(/.* loss /, "") { below = $1 < most; exit } END { exit !below }' out || fail "step 1 has no loss below $1"; }
language_model 2 300 lm/run completep
expect 0 "$hadal" score lm/run -t text/valid.en -o lm/scores --threads 1
expect 0 "$hadal" checkpoint export lm/run --format huggingface -o lm/huggingface
says "LlamaForCausalLM"
expect 0 "$python" - lm/huggingface text/valid.en lm/scores <<'END'
import sys

import torch
import transformers

folder, text, scores = sys.argv[1:]
tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
for line, score in zip(open(text, encoding="utf-8"), open(scores, encoding="utf-8"), strict=True):
    ids = tokenizer(line.rstrip("\n"), return_tensors="pt")["input_ids"]
    with torch.no_grad():
        log_p = torch.log_softmax(model(ids).logits[0].double(), -1)
    targets = torch.tensor([*ids[0, 1:], tokenizer.eos_token_id])
    assert int(score.split()[1]) == len(targets), (line, score)
    assert abs(log_p[torch.arange(len(targets)), targets].sum() - float(score.split()[0])) < 1e-5 * len(targets), (line, score)
END
expect 0 "$hadal" checkpoint import lm/huggingface -o lm/back
expect 0 "$hadal" score lm/back -t text/valid.en -o back.scores --overwrite --threads 1
paste lm/scores back.scores | awk '{ d = ($1 - $3) / $4 } $2 != $4 || !(d <= 1e-5 && d >= -1e-5) { exit 1 }' || fail "the imported language model scores otherwise"
language_model 2 1 lm/tuned pre_ln --init-from lm/back
begins_below 3.5
language_model 4 1 lm/deeper pre_ln --init-from lm/back --deepen
begins_below 3.5

# fairseq's, and the plain files.
expect 0 "$hadal" checkpoint export deepnorm/run --format fairseq -o fairseq
expect 2 "$hadal" checkpoint import fairseq/checkpoint.pt -o back2
says "needs its dict.txt"
expect 0 "$hadal" checkpoint import fairseq/checkpoint.pt --dictionary fairseq/dict.source.txt -o back2
expect 0 "$hadal" checkpoint export branchnorm/run -o plain/branchnorm.safetensors
comes_back branchnorm plain/branchnorm.safetensors
expect 0 "$hadal" checkpoint diff branchnorm/run back --weights-only
expect 0 "$python" "$here/readers_test.py" branchnorm/run data/train plain/branchnorm.safetensors text/train.en
cat out
expect 0 "$hadal" checkpoint export deepnorm/run --format ctranslate2 --quantization int8 -o int8
[ "$(stat -c %s int8/model.bin)" -lt "$(stat -c %s deepnorm/ctranslate2/model.bin)" ] || fail "int8 is not smaller"
HADAL_PYTHON=no-such-python expect 2 "$hadal" checkpoint export deepnorm/run --format fairseq -o none
says "HADAL_PYTHON"

finished
