#!/usr/bin/env bash
# What cannot be done as it was asked for ends with exit code 2, what is not on disk with 1, in every command that starts no ranks alike.
# Usage: usage_errors_test.sh HADAL
set -u
hadal=${1:?usage: usage_errors_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 100 80
echo one > one.txt
printf 'one\ntwo\n' > two.txt
mkdir -p run/checkpoints
printf '{"event":"step","step":0,"loss":1}\n' > metrics.jsonl
prepare=("$hadal" prepare --out prepared --train)

echo "bad usage"
expect 2 "${prepare[@]}" one.txt; says "has no partner"
expect 2 "${prepare[@]}" one.txt two.txt; says "line n of one must translate line n of the other"
expect 2 "${prepare[@]}" text/train.en text/train.de --vocab-size -5; says "use at least a few hundred"
expect 2 "${prepare[@]}" two.txt two.txt --vocab-size 8000; says "ids, 8000 were requested"
expect 2 "$hadal" prepare --out prepared; says "give --train"
expect 2 "$hadal" inspect batch --data data/train --step -1; says "steps count from 0"
expect 2 "$hadal" inspect batch --data data/train --target-tokens 1; says "raise the capacities"
expect 2 "${prepare[@]}" text/train.en text/train.de --vocab-pairs 0; says "at least 1"
for command in "plan run.textproto --gflops" "checkpoint average run --out mean --last" "checkpoint average run --out mean --best" "checkpoint diff run run --lines"; do
  expect 2 "$hadal" $command -1; says "not in range"; lacks "[0-9]\{30\}"
done
expect 2 "$hadal" curve metrics.jsonl --metric gradient; says "available: loss"
expect 2 "$hadal" bleu --reference two.txt --input one.txt; says "one line per sentence"
expect 2 "$hadal" schedule print --chunks 2; says "use the schedule interleaved_1f1b"
expect 2 "$hadal" simulate --slow-rank x; says "RANK=FACTOR"
expect 2 "$hadal" checkpoint average run --out mean; says "--last N"

echo "a device or a pipe is not replaced"
mkfifo pipe
expect 1 "$hadal" simulate --svg pipe; says "cannot replace pipe"; [ -p pipe ] || fail "the pipe is gone"

echo "not there"
expect 2 "${prepare[@]}" gone.txt two.txt; says gone.txt
expect 2 "$hadal" inspect corpus --data gone; says gone.json
expect 2 "$hadal" curve gone; says "is gone a run directory"
expect 2 "$hadal" bleu --reference gone.txt --input one.txt; says gone.txt
expect 2 "$hadal" schedule check --program gone.txt; says gone.txt
expect 2 "$hadal" report gone; says gone/metrics.jsonl

echo "hostile"
head -c 3000000 /dev/zero | tr '\0' x > long.txt
printf 'model { encoder_layers: %s }' "$(head -c 3000000 /dev/zero | tr '\0' 9)" > long.textproto
mkdir hollow
printf 'a\033[2Jb' > "$(printf 'esc\033[2Jape.txt')"
for command in "config show" "config explain" plan compare "schedule check --program" "simulate --plan" "plan run.textproto --machine" "curve" "report" "bleu --reference" \
  "checkpoint ls" "checkpoint verify" "inspect corpus --data" "prepare --out z --monolingual --train" "sweep" "translate --checkpoint"; do
  for input in long.txt long.textproto "$(head -c 3000 long.txt)" esc*ape.txt /dev/zero hollow; do
    case "$command $input" in "prepare"*"long.t"*|"prepare"*ape.txt) continue ;; esac  # text
    timeout 20 "$hadal" $command "$input" > out 2>&1; code=$?
    case $code in 1|2|3) ;; *) fail "exit code $code: hadal $command ${input:0:40}" ;; esac
    [ "$(wc -c < out)" -lt 3500 ] || fail "quotes all of its input: hadal $command ${input:0:40}"
    lacks "$(printf '\033')"
    says "^hadal "
  done
done

echo "damaged"
cp -r data damaged
truncate -s -8 damaged/train.00000.shard
expect 3 "$hadal" inspect corpus --data damaged/train; says train.00000.shard
rm damaged/train.00000.shard
expect 3 "$hadal" inspect corpus --data damaged/train; says "damaged/train.json names this file"
truncate -s 100 damaged/vocabulary.model
expect 3 "$hadal" inspect batch --data damaged/valid; says vocabulary.model

finished
