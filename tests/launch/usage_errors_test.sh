#!/usr/bin/env bash
# What cannot be done as it was asked for, or names what is missing or wrong, ends with exit code 2 in every command, soon, and with a short error.
# Usage: usage_errors_test.sh HADAL
set -u
hadal=${1:?usage: usage_errors_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 100 80
echo one > one.txt
printf 'one\ntwo\n' > two.txt
printf 'data { train: "data/train" } model { encoder_layers: 1 decoder_layers: 1 d_model: 8 d_ff: 16 heads: 2 max_positions: 64 }
batch { micro_batches: 1 source_tokens: 64 target_tokens: 64 } stop { steps: 1 }' > run.textproto
echo "one 1" > layouts.txt
expect 0 "$hadal" train run.textproto --run-dir run
printf '{"event":"step","step":0,"loss":1}\n' > metrics.jsonl
prepare=("$hadal" prepare --out prepared --train)

echo "bad usage"
expect 2 "${prepare[@]}" one.txt; says "has no partner"
expect 2 "${prepare[@]}" one.txt two.txt; says "line n of one must translate line n of the other"
expect 2 "${prepare[@]}" text/train.en text/train.de --vocab-size -5; says "Value -5 not in range 0 to"
expect 2 "${prepare[@]}" two.txt two.txt --vocab-size 8000; says "ids, 8000 were requested"
expect 2 "$hadal" prepare --out prepared; says "give --train"
expect 2 "$hadal" inspect batch data/train --step -1; says "Value -1 not in range 1 to"
expect 2 "$hadal" inspect batch data/train --target-tokens 1; says "Value 1 not in range 2 to"
expect 2 "${prepare[@]}" text/train.en text/train.de --vocab-pairs 0; says "Value 0 not in range 1 to"
for command in "plan run.textproto --gflops" "checkpoint average run --out mean --last" "checkpoint average run --out mean --best" "checkpoint diff run run --lines"; do
  expect 2 "$hadal" $command -1; says "not in range"; lacks "[0-9]\{30\}"
done
expect 2 "$hadal" curve metrics.jsonl --metric gradient; says "available: loss"
expect 2 "$hadal" bleu --reference two.txt --input one.txt; says "one line per sentence"
expect 2 "$hadal" schedule print --chunks 2; says "use the schedule interleaved_1f1b"
expect 2 "$hadal" simulate --slow-rank x; says "RANK=FACTOR"
expect 2 "$hadal" checkpoint average run --out mean; says "--last N"

echo "not there"
expect 2 "${prepare[@]}" gone.txt two.txt; says gone.txt
expect 2 "$hadal" inspect corpus gone; says gone.json
expect 2 "$hadal" curve gone; says "is gone a run directory"
expect 2 "$hadal" bleu --reference gone.txt --input one.txt; says gone.txt
expect 2 "$hadal" report gone; says gone/metrics.jsonl

# What every command that reads a file or directory makes of an INPUT (@) that is not what it should be: "COMMAND|its arguments".
readers=(
  "config show|@" "config diff|@ run.textproto" "config diff|run.textproto @" "plan|@" "plan|run.textproto --machine @"
  "plan|run.textproto --profile @" "train|@ --run-dir never" "train|run.textproto --init-from @ --run-dir never" "compare|@" "sweep|@ run.textproto"
  "sweep|layouts.txt @" "translate|@" "translate|run --input @" "translate|run --input one.txt --prefix @" "sample|@" "score|@ --target one.txt" "score|run --source @ --target one.txt"
  "bleu|--reference @ --input one.txt" "bleu|--reference one.txt --input @" "chrf|--reference one.txt --input @" "wer|--reference @ --input one.txt" "checkpoint ls|@" "checkpoint verify|@" "checkpoint diff|@ run"
  "checkpoint diff|run @" "checkpoint export|@ --out x.safetensors" "checkpoint average|@ --out mean --last 1" "inspect batch|@" "inspect corpus|@"
  "inspect similarity|@ data/valid" "inspect similarity|run @" "curve|@" "report|@" "report|run --machine @"
  "simulate|--plan @" "simulate|--run @" "prepare|--out z --monolingual --train @"
  "prepare|--out z --monolingual --train one.txt --vocab @" "bench profile|@")

# refused COMMAND|ARGUMENTS INPUT: within seconds of CPU time (SIGXCPU ends it else), with exit code 2 (3: a damaged corpus or checkpoint),
# "hadal COMMAND: " and less than 2 KB.
refused() {
  local command=${1%%|*} word arguments=() text
  for word in ${1#*|}; do arguments+=("${word/@/${2-}}"); done
  (ulimit -t 10; exec "$hadal" $command "${arguments[@]}" > out 2>&1); code=$?
  case $code in 2|3) ;; *) fail "exit code $code: hadal $command ${arguments[*]:0:3}" ;; esac
  local LC_ALL=C  # bytes
  text=$'\n'$(< out)  # no further processes: there are hundreds of calls
  [ ${#text} -lt 2000 ] || fail "${#text} bytes: hadal $command ${arguments[*]:0:3}"
  [[ $text == *$'\n'"hadal $command: "* ]] || fail "no \"hadal $command:\" before the error: hadal $command ${arguments[*]:0:3}"
  [[ $text != *$'\033'* ]] || fail "an escape in the output: hadal $command ${arguments[*]:0:3}"
}

echo "every command's error for what is missing"
for reader in "${readers[@]}"; do refused "$reader" gone; done
commands() { "$hadal" "$@" --help | awk '/^Subcommands:/ { on = 1; next } /^[^ ]/ { on = 0 } on && NF { print $1 }'; }
for command in $(commands); do
  parts=$(commands "$command")
  for part in ${parts:-""}; do refused "$command${part:+ $part}|--no-such-option"; done
done

echo "every reader of a file is bounded"
escape=$(printf 'esc\033[2Jape.txt'); printf 'a\033[2Jb%3000000s' x > "$escape"
printf 'model { encoder_layers: %03000000d }' 9 > long.textproto
seq -f 'word number %.0f' 100000 | tr '\n' ' ' > words
truncate -s 65M zeros  # more than a line of text may have
mkfifo endless
# Directories and prefixes whose files are of 65 MB without a line end, or devices.
mkdir -p hollow/checkpoints/step_00000001 devices/checkpoints/step_00000001
for file in metrics.jsonl config.resolved.textproto manifest.json checkpoints/step_00000001/manifest.json; do
  ln zeros hollow/$file; ln -s /dev/zero devices/$file
done
ln zeros hollow.json; ln -s /dev/zero devices.json
for reader in "${readers[@]}"; do
  inputs=(/dev/zero zeros hollow devices)
  # Text may come from a pipe, and hold long lines, and escapes.
  if [[ $reader =~ ^(bleu|chrf|wer|prepare.*train @|translate.*input|score.*source) ]]; then
    cat /dev/zero > endless 2> /dev/null & writer=$!
    refused "$reader" endless
    kill $writer 2> /dev/null; wait $writer 2> /dev/null
  else
    inputs+=("$escape" long.textproto words "${long_name:=$(printf '%03000d' 0)}")
  fi
  for input in "${inputs[@]}"; do refused "$reader" "$input"; done
done
yes | (ulimit -t 60; exec "$hadal" bleu --reference one.txt > out 2>&1); [ ${PIPESTATUS[1]} -eq 2 ] || fail "an endless text is scored"; says "score a smaller text"

echo "damaged"
cp -r data damaged
truncate -s -8 damaged/train.00000.shard
expect 3 "$hadal" inspect corpus damaged/train; says train.00000.shard
rm damaged/train.00000.shard
expect 3 "$hadal" inspect corpus damaged/train; says "damaged/train.json names this file"
truncate -s 100 damaged/vocabulary.model
expect 3 "$hadal" inspect batch damaged/valid; says vocabulary.model

if ! grep -q __asan_init "$hadal"; then  # AddressSanitizer must be loaded first
  echo "a clock below zero"
  cat > shifted.c << 'END'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec* now) {
  const int code = syscall(SYS_clock_gettime, clock, now);
  if (clock == CLOCK_MONOTONIC) now->tv_sec -= 1000000000;
  return code;
}
END
  cc -shared -fPIC -o shifted.so shifted.c || fail "no C compiler"
  expect 1 env LD_PRELOAD="$PWD/shifted.so" "$hadal" --version; says "the monotonic clock is below zero"
fi

finished
