#!/usr/bin/env bash
# `hadal sweep` as people start it: layouts of 1, 2 and 2 × 2 ranks and their scaling report, called again, a layout that fails, bad lists,
# and the job array it would submit, whose script runs one line.  Usage: sweep_test.sh HADAL SOURCE_DIR
set -u
hadal=${1:?usage: sweep_test.sh HADAL SOURCE_DIR}
source=${2:?usage: sweep_test.sh HADAL SOURCE_DIR}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 300 300
printf '#!/bin/sh\nexec python3 -S "$@"\n' > bare; chmod +x bare
export HADAL_PYTHON=$work/bare  # without packages: the page has tests of its own
cat > small.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 2 decoder_layers: 2 d_model: 16 d_ff: 32 heads: 2 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 4 source_tokens: 96 target_tokens: 96 }
learning_rate { peak: 1e-3 warmup_updates: 2 }
pipeline { threads: 1 }
stop { steps: 12 }
END
cat > layouts.txt <<'END'
# name ranks settings
one  1
two  2  --set pipeline.schedule="gpipe"
grid 4  --set pipeline.replicas=2
END

expect 0 "$hadal" sweep layouts.txt small.textproto --out s
says "1/3.*one: starts"; says "s/scaling.txt"; says "hadal report: Python packages are missing"; says "one: done in .*, 12 steps, .* target tokens/s"; lacks fails
for run in one two grid; do
  [ "$(grep -c '"event":"step"' s/runs/$run/metrics.jsonl)" -eq 12 ] || fail "$run has not 12 steps"
done
"$hadal" summary --format json s/runs/one s/runs/two s/runs/grid > scaling.json || fail "no summary of the runs"
python3 - <<'END' || fail "the scaling is not what it should be"
import json
rows = json.load(open("scaling.json"))["scaling"]["rows"]
assert [row["cores"] for row in rows] == [1, 2, 4], rows
assert abs(rows[0]["efficiency"] - 1) < 1e-9 and all(row["efficiency"] > 0 for row in rows)
END
# The layouts of one replica have the same bits.
expect 0 "$hadal" checkpoint diff s/runs/one/checkpoints/step_00000012 s/runs/two/checkpoints/step_00000012
expect 0 "$hadal" sweep layouts.txt small.textproto --out s --set pipeline.wait_timeout_seconds=700; says "two: done before"
# Under a layout's name there are no numbers of another one, here or on a cluster.
sed 's/^two  2/two  3/; s/gpipe/1f1b/' layouts.txt > edited.txt
for more in "" "--accept-changes" "--report-only" "--submit=sbatch"; do
  expect 1 "$hadal" sweep edited.txt small.textproto --out s $more; says "s/runs/two holds a run of another layout:"
  says 'pipeline.schedule: "gpipe" -> "1f1b"'; says "ranks: 2 -> 3"; lacks "runs/one holds"
done
cp -r s old; echo 'of_old: 1' >> old/runs/two/config.resolved.textproto
expect 0 "$hadal" sweep layouts.txt small.textproto --out old --report-only; says "old/scaling.txt"
# A layout alone, beside what a machine's description predicts for it.
printf 'one 1\n' > alone.txt
echo 'memory_gib: 8 memory_gb_per_second: 20 fp32 { peak_tflops: 0.1 }' > machine.textproto
expect 0 "$hadal" sweep alone.txt small.textproto --out s --report-only --machine machine.textproto
grep -q "^Predicted and measured" s/scaling.txt || fail "no prediction in the report"
# With other settings it goes on only if that is wanted.
longer=("$hadal" sweep alone.txt small.textproto --out s --set stop.steps=13 --set learning_rate.peak=2e-3)
expect 1 "${longer[@]}"; says "one: not run; s/runs/one holds a run of another config"
expect 0 "${longer[@]}" --accept-changes; says "one: done in .*, 13 steps"

# Interrupted, it asks to be queued again.
"$hadal" sweep alone.txt small.textproto --out i --set stop.steps=100000 > out 2>&1 & sweep=$!
for _ in $(seq 400); do grep -q '"event":"step"' i/runs/one/metrics.jsonl 2> /dev/null && break; sleep 0.05; done
kill -USR1 $sweep; wait $sweep; code=$?
[ $code -eq 85 ] || fail "exit code $code instead of 85 of a sweep that was interrupted"
expect 0 "$hadal" sweep alone.txt small.textproto --out i --set stop.steps=100000 --report-only; says "1 of 1 layouts have not finished: one"

# One layout cannot be: the others run, and have their report.
printf 'good 1\nbad 2 --set pipeline.stages=3\n' > partly.txt
expect 1 "$hadal" sweep partly.txt small.textproto --out p; says "bad: failed in .*, no steps$"; says "p/scaling.txt"
expect 2 "$hadal" sweep layouts.txt small.textproto --out s2 --set model.widht=3; says "layout \"one\".*widht"
printf 'a 1\na 2\n' > twice.txt
expect 2 "$hadal" sweep twice.txt small.textproto; says "twice.txt:2: the layout"

# Submitted: a stand-in for sbatch keeps its words and runs the script for each line of the array.
mkdir bin
cat > bin/sbatch <<'END'
#!/usr/bin/env bash
echo "$@" > sbatch.words
array=${1#--array=}; shift
[ "$1" = --nodes ] && shift 2
for SLURM_ARRAY_TASK_ID in ${array//,/ }; do export SLURM_ARRAY_TASK_ID; bash "$@" || exit 1; done
echo "Submitted batch job 7"
END
chmod +x bin/sbatch
export HADAL=$hadal HADAL_LAUNCHER=mpirun HADAL_MPIRUN_OPTIONS="--bind-to none --oversubscribe" PATH=$work/bin:$PATH
expect 0 "$hadal" sweep layouts.txt small.textproto --out q --set seed=3 --submit "sbatch --nodes 1 $source/launch/slurm/sweep.sbatch"
says "Submitted batch job 7"
grep -q -- "^--array=2,3,4 --nodes 1 .*/sweep.sbatch layouts.txt small.textproto --set seed=3$" sbatch.words || { cat sbatch.words; fail "sbatch got other words"; }
expect 0 "$hadal" sweep layouts.txt small.textproto --out q --set seed=3 --submit "sbatch sweep.sbatch"; says "every layout has run"
expect 0 "$hadal" sweep layouts.txt small.textproto --out q --set seed=3 --set stop.steps=20 --report-only; says "3 of 3 layouts have not finished"
expect 0 "$hadal" sweep layouts.txt small.textproto --out q --set seed=3; says "q/scaling.txt"; lacks "have not finished"
expect 1 "$hadal" sweep layouts.txt small.textproto --out r --submit "false sweep.sbatch"; says "submission ended with code 1"
[ ! -e r/submitted ] || fail "a submission that failed counts as one"

# While an array waits, nothing trains beside it and no second array is submitted; a stand-in for squeue says whether it waits.
printf '#!/bin/sh\necho "Submitted batch job 8"\n' > bin/sbatch
printf '#!/bin/sh\ncat queue\n[ ! -s error ] || { cat error; exit 1; }\n' > bin/squeue; chmod +x bin/squeue
rm -r q/runs/grid; : > error; : > queue
again=("$hadal" sweep layouts.txt small.textproto --out q --set seed=3)
expect 0 "${again[@]}" --accept-changes --submit "sbatch sweep.sbatch"; says "Submitted batch job 8"; says "seed=3 --accept-changes$"
echo "8_4 PENDING" > queue
expect 0 "${again[@]}"; lacks starts; says "q/scaling.txt"; says "1 of 3 layouts have not finished: grid"
[ ! -e q/runs/grid ] || fail "trained beside a pending array"
expect 1 "${again[@]}" --submit "sbatch sweep.sbatch"; says "job 8 of the last submission has not ended"
echo "slurm_load_jobs error: Unable to contact slurm controller" > error; : > queue
expect 1 "${again[@]}" --submit "sbatch sweep.sbatch"; says "squeue does not say"
echo "slurm_load_jobs error: Invalid job id specified" > error
expect 0 "${again[@]}" --submit "sbatch sweep.sbatch"; says "Submitted batch job 8"
rm q/submitted
expect 0 "${again[@]}"; says "grid: starts"

# --report-only trains nothing, submitted or not.
rm -r q/runs/grid
expect 0 "${again[@]}" --report-only; lacks starts; says "q/scaling.txt"; says "have not finished: grid"
expect 2 "$hadal" sweep layouts.txt small.textproto --out nothing --report-only; says "no layout has a step"
expect 2 "${again[@]}" --report-only --submit x

finished
