#!/usr/bin/env bash
# An encoder alone from the command line: plain text with a mask token, trained at different layouts, resumed, embedded; what does
# not go together is refused in words.
# Usage: encoder_alone_test.sh HADAL
set -u
hadal=${1:?usage: encoder_alone_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

expect 0 "$hadal" make-corpus --out text --pairs 600 --valid 40 --test 20 --seed 3
expect 0 "$hadal" prepare --monolingual --mask-token --train text/train.en --valid text/valid.en --out data --vocab-size 200
says "201 ids"
expect 0 "$hadal" prepare --monolingual --train text/train.en --out plain --vocab-size 200
expect 2 "$hadal" prepare --mask-token --train text/train.en text/train.de --out pairs; says "give --monolingual"
(echo "a <mask> word"; cat text/train.en) > masked.en
expect 2 "$hadal" prepare --monolingual --mask-token --vocab-type word --vocab-size 0 --train masked.en --out words; says "remove it from the text"
small_config "masking { share: 0.3 }" "encoder_layers: 6 decoder_layers: 0"
base=("$hadal" train small.textproto "$(dirname "$0")/../../configs/block/bert.textproto" --set pipeline.threads=1)

expect 0 "$hadal" plan small.textproto --ranks 2 --gflops 50; says "6L encoder-only"; says "12 sublayers"
expect 0 "${base[@]}" --run-dir unbroken; says "6L encoder-only"; says "accuracy"
learns_and_resumes "${base[@]}"
awk "BEGIN { exit !($(value tail accuracy) > 0 && $(value tail accuracy) < 1) }" || fail "accuracy $(value tail accuracy)"

# Pre-LN with ModernBERT's block; a validation needs a masked token.
modern=("$hadal" train small.textproto "$(dirname "$0")/../../configs/block/modernbert.textproto" --set pipeline.threads=1 \
  --set model.residual.method=pre_ln --set stop.steps=4 --set validation.every_steps=2 --run-dir modern)
expect 2 "${modern[@]}" --set data.masking.share=0.00001; says "no token of the validation sentences is masked; raise data.masking.share"
expect 0 "${modern[@]}"

# A vector for each line; it does not depend on the others.
head -n 3 text/valid.en > three; tail -n 1 three > third
expect 0 "$hadal" embed unbroken --input three --out three.npy
expect 0 "$hadal" embed unbroken --input third --out third.npy
[ "$(stat -c %s three.npy)" -eq $((128 + 3 * 64 * 4)) ] || fail "an array of $(stat -c %s three.npy) bytes"
head -c 128 three.npy | grep -q "'shape': (3, 64)" || fail "another shape"
cmp <(tail -c 256 three.npy) <(tail -c 256 third.npy) || fail "a vector depends on other lines"
sed 's/.*/{"body": "&"}/' three > three.jsonl
expect 0 "${mpi[@]}" 2 "$hadal" embed unbroken --input three.jsonl --text-field body --out documents.npy
[ "$(grep -c written: out)" -eq 1 ] || fail "embedding on two ranks: $(cat out)"
cmp three.npy documents.npy || fail "documents of JSON Lines have other vectors than their lines"
expect 0 "$hadal" embed unbroken --input three --out first.npy --pooling first
cmp -s three.npy first.npy && fail "both kinds of pooling give the same"
expect 2 "$hadal" embed unbroken --input three --out third.npy; says "already exists"
expect 0 "$hadal" embed unbroken --input three --out third.npy --overwrite; cmp three.npy third.npy || fail "not written over"
echo > blank  # </s> alone, which is both the mean and the first
for pooling in mean first; do expect 0 "$hadal" embed unbroken --input blank --pooling $pooling; mv out $pooling; done
cmp mean first && [ "$(tr -cd , < mean | wc -c)" -eq 63 ] || fail "not an array of 64 numbers: $(cat mean)"
for _ in {1..80}; do echo -n "the "; done > long
expect 2 "$hadal" embed unbroken --input long --out long.npy --batch-tokens 64; says "line 1 has"

# A language model of a vocabulary with a mask token, here without --mask-token, never writes it.
for _ in {1..50}; do echo a b; done > ab
expect 0 "$hadal" prepare --monolingual --mask-token --vocab-type word --vocab-size 0 --train ab --out with; says "7 ids"
expect 0 "$hadal" prepare --monolingual --vocab with/vocabulary.txt --train ab --out without
cmp with/train.00000.shard without/train.00000.shard || fail "the vocabulary's mask token is not the corpus's"
expect 0 "$hadal" train small.textproto --set 'data.train="without/train"' --set 'data.validation=""' --set validation.every_steps=0 \
  --set data.masking.share=0.15 --set model.encoder_layers=0 --set model.decoder_layers=1 --set stop.steps=1 --set pipeline.threads=1 --run-dir writer
expect 0 "$hadal" sample writer --nbest 4 --temperature 9 --max-len 60 --min-len 60 -o written
grep -q 'b b' written || fail "no text: $(cat written)"
grep -q mask written && fail "a mask in $(cat written)"

expect 2 "$hadal" translate unbroken --input text/valid.en; says "is an encoder alone"
expect 2 "$hadal" sample unbroken; says "hadal embed"
expect 2 "$hadal" score unbroken --target text/valid.en; says "is an encoder alone"
expect 0 "$hadal" prepare --train text/train.en text/train.de --vocab data/vocabulary.model --out both
HADAL_PYTHON=true expect 2 "$hadal" inspect similarity unbroken both/train; says "pairs of sentences, but the model is an encoder alone"
expect 2 "${base[@]}" --set 'data.train="plain/train"' --set validation.every_steps=0 --set 'data.validation=""' --run-dir bad
says "has no mask token"

finished
