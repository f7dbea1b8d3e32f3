#!/usr/bin/env bash
# A language model from the command line: plain text prepared, trained at different layouts, resumed, scored; what does not go
# together is refused in words.
# Usage: language_model_test.sh HADAL
set -u
hadal=${1:?usage: language_model_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

expect 0 "$hadal" make-corpus --out text --pairs 600 --valid 40 --test 20 --seed 3
expect 0 "$hadal" prepare --monolingual --train text/train.en --valid text/valid.en --out data --vocab-size 200
says "wrote train: 600 lines"
small_config "" "encoder_layers: 0 decoder_layers: 6"
base=("$hadal" train small.textproto --set pipeline.threads=1)

expect 0 "$hadal" plan small.textproto --ranks 2 --gflops 50; says "6L decoder-only"; says "12 sublayers"
expect 0 "$hadal" inspect batch data/train --source-tokens 0; says " 0 source rows"
expect 0 "$hadal" inspect corpus data/train
expect 0 "${base[@]}" --run-dir unbroken; says "6L decoder-only"
learns_and_resumes "${base[@]}"

# Scoring the validation text gives the validation's nll.
expect 0 "$hadal" score unbroken/$last --target text/valid.en -o scores
[ "$(wc -l < scores)" -eq 40 ] || fail "not a score a line"
says "per token; "; says " words: perplexity "
nll=$(awk '{ sum -= $1; tokens += $2 } END { print sum / tokens }' scores)
awk "BEGIN { d = $nll - $(value tail nll); exit !(d < 2e-3 && d > -2e-3) }" || fail "score says nll $nll, validation $(value tail nll)"

# Texts drawn: from prompts, the same on 1 and 3 ranks; from none; from standard input.
cut -d ' ' -f 1-2 text/valid.en > prompts
sample=("$hadal" sample unbroken/$last --seed 5 --max-len 40)
expect 0 "${sample[@]}" --prompts prompts --nbest 2 -o texts; says "continued 40 prompts"
expect 0 "${mpi[@]}" 3 "${sample[@]}" --prompts prompts --nbest 2 --batch 1 --threads 1 -o texts3
cmp texts texts3 || fail "other texts on 3 ranks"
[ "$(wc -l < texts)" -eq 80 ] || fail "not 2 texts a prompt"
while IFS=$'\t' read -r line text; do
  [[ $text == "$(sed -n "${line}p" prompts)"* ]] || fail "\"$text\" does not continue prompt $line"
done < texts
expect 0 "${sample[@]}" -o text0; [ "$(wc -l < text0)" -eq 1 ] || fail "not one text without a prompt"
expect 0 "${sample[@]}" --prompts - -o text1 < <(echo); cmp text0 text1 || fail "an empty prompt is another text"
for _ in {1..50}; do echo -n "the "; done > long
expect 2 "${sample[@]}" --prompts long; says "more than the longest output, 40; shorten it, or raise --max-len"
expect 2 "${base[@]}" --set model.encoder_layers=2 --run-dir bad; says "the corpus is plain text"

finished
