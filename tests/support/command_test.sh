# What the tests of the command line share; sourced, not run:
#
#   . "$(dirname "$0")/../support/command_test.sh"
#
# Makes $work, a temporary directory that is gone at the end, and goes there. A test calls `expect` and `says`, or `fail`, and ends with `finished`.
work=$(mktemp -d) || exit 1
clean_up() { :; }  # a test may define its own, called before $work goes
trap 'clean_up; rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failures=0
: > out

# fail WHAT: counts a failure, and prints the end of the last command's output.
fail() { echo "FAILED: $1"; failures=$((failures + 1)); tail -n 20 out; }
# expect CODE COMMAND…: runs it, at most $patience seconds (PATIENCE on a busier machine), output to $work/out, and compares the exit code.
patience=${PATIENCE:-300}
expect() {
  local wanted=$1 code; shift
  timeout "$patience" "$@" > out 2>&1; code=$?
  [ $code -eq "$wanted" ] || fail "exit code $code instead of $wanted: $*"
}
# says PATTERN, lacks PATTERN: about the last command's output.
says() { grep -q -- "$1" out || fail "the output lacks \"$1\""; }
lacks() { ! grep -q -- "$1" out || fail "the output has \"$1\""; }
# make_corpus PAIRS VOCABULARY: number words in text/, prepared into data/; the test ends where that fails. Not by a test's own HADAL_PYTHON.
make_corpus() {
  env -u HADAL_PYTHON "$hadal" make-corpus --out text --pairs "$1" --valid 40 --test 20 --seed 3 > out 2>&1 &&
    "$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size "$2" >> out 2>&1 ||
    { fail "no corpus"; exit 1; }
}
identical() { expect 0 "$hadal" checkpoint diff "$1" "$2"; says identical; }
mpi=(mpirun --bind-to none --oversubscribe -n)  # followed by the number of ranks
# small_config DATA MODEL: small.textproto with these fields of data and model, 40 steps, a validation and a checkpoint each 20.
small_config() {
  cat > small.textproto <<END
data { train: "data/train" validation: "data/valid" $1 }
model { $2 d_model: 64 d_ff: 128 heads: 4 max_positions: 128 dropout: 0.1 label_smoothing: 0 }
batch { micro_batches: 4 target_tokens: 256 }
learning_rate { peak: 2e-3 warmup_updates: 4 }
optimizer { clip_norm: 0.5 }
stop { steps: 40 }
validation { every_steps: 20 }
checkpoint { every_steps: 20 }
END
}
# learns_and_resumes COMMAND…: of a run of it in unbroken/, the nll fell; stopped at step 20 of 2 ranks, resumed on 1, it has the same bits.
learns_and_resumes() {
  last=checkpoints/step_00000040
  expect 0 "${mpi[@]}" 2 "$@" --set stop.steps=20 --run-dir broken
  expect 0 "$@" --run-dir broken
  identical unbroken/$last broken/$last
  awk "BEGIN { exit !($(value tail nll) < $(value head nll) - 0.2) }" || fail "validation nll went from $(value head nll) to $(value tail nll)"
}
# value head|tail NAME: of unbroken/'s first or last validation.
value() { grep '"event":"validation"' unbroken/metrics.jsonl | "$1" -n 1 | grep -o "\"$2\":[0-9.]*" | cut -d: -f2; }
# The last line of a test.
finished() { [ $failures -eq 0 ] && echo "all checks passed" || echo "$failures failure(s)"; exit $((failures > 0)); }
