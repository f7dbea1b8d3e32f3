#!/usr/bin/env bash
# Does depth help one model of ten directions? English to and from German, French (two domains), Spanish, Portuguese and Chinese: DeepNorm
# of width 64. 6 layers a side are trained on 5.9 million target tokens (configs/languages/ten_directions.textproto); from there models of
# 6, 18 and 100 layers a side go on for 2.0 million each, the deeper ones by --deepen. Every direction of the test files is scored, also
# seven pairs without English that no model has seen.
#
#   tests/bench/many_languages.sh HADAL DATA OUT [LAYERS…]
# DATA: tatoeba-en-{de,fr}/ and python-docs/en-{es,fr,pt,zh}/, each with {train,valid,test}.{en,xx}. OUT: corpus, runs and tables. A run that was
# stopped goes on. Minutes on two cores: tests/bench/results/many_languages.txt.
set -euo pipefail
usage="usage: many_languages.sh HADAL DATA OUT [LAYERS...]"
hadal=$(realpath "${1:?$usage}") data=$(realpath "${2:?$usage}") out=${3:?$usage}
shift 3
configs=$(realpath "$(dirname "$0")/../../configs")
mkdir -p "$out" && cd "$out"

texts=(tatoeba-en-de:de tatoeba-en-fr:fr python-docs/en-es:es python-docs/en-fr:fr python-docs/en-pt:pt python-docs/en-zh:zh)
# zero_shot TEXT TEXT: a file of the sentences of both test files that have the same English side.
zero_shot() {
  local one=$data/${1%:*}/test two=$data/${2%:*}/test from=${1#*:} to=${2#*:}
  awk -F'\t' 'NR == FNR { if (!($1 in other)) other[$1] = $2; next } $1 in other && !seen[$1]++ { print other[$1] "\t" $2 }' \
    <(paste "$one.en" "$one.$from") <(paste "$two.en" "$two.$to") > "zero-$from-$to.tsv"
  echo "text { direction: \"$from-$to\" both: true test: \"$PWD/zero-$from-$to.tsv\" }"
}
if [ ! -e data/train.json ]; then
  for text in "${texts[@]}"; do
    folder=$data/${text%:*} language=${text#*:} splits=
    for split in train valid test; do splits+=" $split: [\"$folder/$split.en\", \"$folder/$split.$language\"]"; done
    domain=${text%%-*}
    echo "text { direction: \"en-$language\" both: true domain: \"$domain\"$splits }"
  done > corpora.textproto
  "$hadal" prepare --list corpora.textproto --tags deepnet --vocab-temperature 5 --vocab-size 12000 --out data
  { cat corpora.textproto
    zero_shot "${texts[0]}" "${texts[1]}"
    for pair in "2 5" "4 5" "2 4" "2 3" "3 5" "3 4"; do
      read -r one two <<< "$pair"; zero_shot "${texts[one]}" "${texts[two]}"
    done
  } > evaluation.textproto
fi
[ $# -gt 0 ] || set -- 6 18 100
# train RUN ARGUMENTS…, after the words in `launch`
train() {
  $launch "$hadal" train "$configs/languages/ten_directions.textproto" --set data.train=data/train --set data.validation=data/valid --run-dir "$@"
}
launch='' train trunk
declare -A peak=([6]=1.3e-3 [18]=1.2e-3 [100]=7e-4)
for layers in "$@"; do
  launch='mpirun -n 2 --bind-to core' train "$layers" --set model.encoder_layers="$layers" --set model.decoder_layers="$layers" --init-from trunk --deepen \
    --set seed=2 --set pipeline.replicas=2 --set batch.micro_batches=2 --set batch.source_tokens=768 --set batch.target_tokens=768 \
    --set stop.steps=1400 --set validation.every_steps=700 --set checkpoint.every_steps=700 \
    --set learning_rate.peak="${peak[$layers]}" --set learning_rate.end_rate=0 --set learning_rate.warmup_updates=40
  "$hadal" evaluate "$layers" --list evaluation.textproto --train-corpus data/train --tags deepnet --out "$layers/evaluation"
done
