#!/usr/bin/env bash
# `hadal plan --machine` as people use it: its last line is pasted, as the shell reads it, behind the configs of the next command.
# Usage: plan_command_test.sh HADAL SOURCE_DIR
set -u
hadal=${1:?usage: plan_command_test.sh HADAL SOURCE_DIR}
source=${2:?usage: plan_command_test.sh HADAL SOURCE_DIR}
. "$(dirname "$0")/../support/command_test.sh"
configs=$source/configs

# pastes MACHINE NODES CONFIG…: what the search says of so many nodes is a run of all their GPUs.
pastes() {
  local machine=$1 nodes=$2; shift 2
  expect 0 "$hadal" plan "$@" --vocabulary 32000 --machine "$machine" --nodes "$nodes"
  line=$(tail -n 1 out)
  case $line in '--set pipeline.stages='*) ;; *) fail "the last line is no list of options: $line"; return ;; esac
  # shellcheck disable=SC2086  # pasted
  expect 0 "$hadal" config show "$@" $line
  says "^ *stages: $(sed 's/.*stages=\([0-9]*\).*/\1/' <<< "$line")$"
  # shellcheck disable=SC2086
  expect 0 "$hadal" plan "$@" --vocabulary 32000 --device cuda $line --json
  python3 - "$nodes" <<'PYTHON' || fail "the pasted plan is of other ranks"
import json, sys
assert json.load(open("out"))["ranks"] == 8 * int(sys.argv[1])
PYTHON
}
# GPUs of so little memory that 18 layers are cut into stages and recomputed, as 500 are on whole ones (whose search takes a minute; of it
# layout_search_test).
sed 's/^memory_gib: .*/memory_gib: 5/' "$configs/machines/a100_80g_8.textproto" > small.textproto
for nodes in 1 8; do
  pastes small.textproto $nodes "$configs/papers/paper/branchnorm.textproto" "$configs/depth/18.textproto"
  [[ $line != *stages=1\ * && $line = *memory_limit_bytes=* ]] || fail "18 layers are not cut and recomputed: $line"
done
pastes "$configs/machines/a100_80g_8.textproto" 1 "$configs/language_model/base.textproto"

echo "what cannot be planned, and what a plan leaves out"
expect 2 "$hadal" plan "$configs/tatoeba/shallow.textproto"; says "data.train is not set.*--vocabulary N"
expect 2 "$hadal" plan "$configs/base.textproto" --vocabulary 1000 --set device.precision=bf16; says "device.precision needs a GPU"
expect 2 "$hadal" plan "$configs/base.textproto" --vocabulary 1000 --set pipeline.stages=65536 --set pipeline.replicas=65536 --set batch.micro_batches=65536
says "= 4294967296 ranks"
sed '/_node *{/d' "$configs/machines/a100_80g_8.textproto" > linkless.textproto
expect 0 "$hadal" plan "$configs/base.textproto" --vocabulary 1000 --machine linkless.textproto --nodes 2
says "no intra_node.gb_per_second: transfers within a node take no time"; says "no inter_node.gb_per_second"
# A billion elements a product, which measuring the CPU's speed need not have.
(ulimit -v 8000000; "$hadal" plan "$configs/base.textproto" --vocabulary 1000 --gflops 50 --set batch.target_tokens=262144 --set model.d_ff=8192 > out 2>&1) ||
  fail "a large micro-batch is not planned: $(tail -n 1 out)"

finished
