#!/usr/bin/env bash
# Ranks on CPUs of different kinds, or of different programs, or with other files: HADAL_MAX_CPU_ISA of one rank stands in for an older CPU.
# Usage: mixed_ranks_test.sh HADAL
set -u
hadal=${1:?usage: mixed_ranks_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 200 200
cat > small.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 2 decoder_layers: 2 d_model: 64 d_ff: 128 heads: 4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 2 source_tokens: 128 target_tokens: 128 }
stop { steps: 3 }
END
train=("$hadal" train small.textproto --set pipeline.threads=1 --device cpu)
mpi=(mpirun --bind-to none --oversubscribe)
narrow=(env HADAL_MAX_CPU_ISA=SSE4)
last=checkpoints/step_00000003

echo "a rank with a narrower instruction set: all take it, and the bits are those of one narrow rank"
expect 0 "${train[@]}" --run-dir wide
lacks "instruction set"
expect 0 "${narrow[@]}" "${train[@]}" --run-dir narrow
expect 0 "${mpi[@]}" -n 1 "${train[@]}" --run-dir mixed : -n 1 "${narrow[@]}" "${train[@]}" --run-dir mixed
says "all ranks compute with SSE4, the widest instruction set that each of them has (rank 1 "
expect 0 "$hadal" checkpoint diff narrow/$last mixed/$last
says identical
if "$hadal" --build-info | grep -q "AVX"; then
  expect 1 "$hadal" checkpoint diff wide/$last mixed/$last  # there was something to agree on
fi

if "$hadal" --build-info | grep -q "AVX3"; then
  echo "a rank with AVX2 beside wider ones: each takes its own, with the bits of all"
  expect 0 "${mpi[@]}" -n 1 "${train[@]}" --run-dir fused : -n 1 env HADAL_MAX_CPU_ISA=AVX2 "${train[@]}" --run-dir fused
  lacks "instruction set"
  expect 0 "$hadal" checkpoint diff wide/$last fused/$last
  says identical
fi

echo "translations too"
"${narrow[@]}" "$hadal" translate narrow --device cpu < text/test.en > narrow.out 2> /dev/null || fail "no narrow translation"
"${mpi[@]}" -n 1 "$hadal" translate narrow --device cpu : -n 1 "${narrow[@]}" "$hadal" translate narrow --device cpu \
  < text/test.en > mixed.out 2> mixed.err || fail "no mixed translation"
grep -q "all ranks compute with SSE4" mixed.err || fail "translate says nothing of the instruction set"
[ -s mixed.out ] && cmp narrow.out mixed.out || fail "mixed ranks translate otherwise"

echo "other settings on a rank"
expect 2 "${mpi[@]}" -n 1 "${train[@]}" --run-dir unlike : -n 1 "${train[@]}" --set learning_rate.peak=0.1 --set seed=7 --run-dir unlike
says "rank 1 (host .*): other settings than rank 0's on .* (rank 0's -> rank 1's):"
says "  learning_rate.peak: .* -> 0.1"
says "  seed: .* -> 7"
expect 2 "${mpi[@]}" -n 1 "${train[@]}" --run-dir unlike : -n 1 "${train[@]}" --run-dir elsewhere
says "rank 1 (host .*): another command line than rank 0's on .*: rank 1 was started with --run-dir elsewhere"
[ ! -e unlike ] && [ ! -e elsewhere ] || fail "a run directory was made"

echo "hosts with true copies of their own"
mkdir here there
cp -r data here; cp -r data there
"$hadal" make-corpus --out text2 --pairs 200 --valid 40 --test 20 --seed 4 > out 2>&1 || fail "no other text"
here=(sh -c 'cd here && exec "$@"' here "$hadal" train ../small.textproto --set pipeline.threads=1 --device cpu)
there=(sh -c 'cd there && exec "$@"' there "$hadal" train ../small.textproto --set pipeline.threads=1 --device cpu)
expect 0 "${mpi[@]}" -n 1 "${here[@]}" --run-dir "$work/copies" : -n 1 "${there[@]}" --run-dir "$work/copies"

echo "another checkpoint on a rank: half of each is no model"
expect 0 "${train[@]}" --run-dir here/run
expect 0 "${train[@]}" --set seed=7 --run-dir there/run
step=run/$last
for command in "translate run" "translate $step" "score run --source ../text/test.en --target ../text/test.de"; do
  # shellcheck disable=SC2086  # options are words
  expect 2 "${mpi[@]}" -n 1 "${here[@]:0:4}" "$hadal" $command : -n 1 "${there[@]:0:4}" "$hadal" $command < text/test.en
  says "$step: rank 1 (host .*) has another checkpoint there (step 3, .*) than rank 0 on .* (step 3, "
done
expect 2 "${mpi[@]}" -n 1 "${here[@]}" --init-from $step --run-dir "$work/begun" : -n 1 "${there[@]}" --init-from $step --run-dir "$work/begun"
says "rank 1 (host .*) has another checkpoint there"
expect 2 "${mpi[@]}" -n 1 "${here[@]}" --set stop.steps=4 --run-dir run : -n 1 "${there[@]}" --set stop.steps=4 --run-dir run
says "$step: rank 1 (host .*) has another checkpoint there"
rm -rf there/run; cp -r here/run there
expect 0 "${mpi[@]}" -n 1 "${here[@]:0:4}" "$hadal" translate run : -n 1 "${there[@]:0:4}" "$hadal" translate run < text/test.en

echo "another corpus on a rank"
"$hadal" prepare --train text2/train.en text2/train.de --vocab data/vocabulary.model --out there/data --overwrite > out 2>&1 || fail "no other corpus"
expect 2 "${mpi[@]}" -n 1 "${here[@]}" --run-dir "$work/unlike" : -n 1 "${there[@]}" --run-dir "$work/unlike"
says "data.train: rank 1 (host .*): another corpus than rank 0's on .*: rank 1 has train.00000.shard (.*), rank 0 has train.00000.shard ("
[ "$(grep -c 'another corpus' out)" -eq 1 ] || fail "said more than once"
[ ! -e unlike ] || fail "a run directory was made"

echo "another program on a rank"
cp "$hadal" other && echo >> other
expect 2 "${mpi[@]}" -n 1 "${train[@]}" --run-dir other_run : -n 1 ./other "${train[@]:1}" --run-dir other_run
says "rank 1 (host .*): another hadal than rank 0's on .*; start every rank with the same file"
[ "$(grep -c 'another hadal' out)" -eq 1 ] || fail "said more than once"

finished
