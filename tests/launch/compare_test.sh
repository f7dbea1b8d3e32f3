#!/usr/bin/env bash
# `hadal compare` as people start it: a grid run to its end, interrupted and resumed, cut by a budget, with cells that fail, diverge or
# have changed. A stand-in writes the pages, but once: their packages take seconds to load. Usage: compare_test.sh HADAL
set -u
hadal=${1:?usage: compare_test.sh HADAL}
here=$(cd "$(dirname "$0")" && pwd)
. "$here/../support/command_test.sh"
ended() { grep -q "\"end\": \"$2\"" "$1/cell.json" || { fail "$1 is not $2"; cat "$1/cell.json"; }; }
steps() { [ "$(grep -c '"event":"step"' "$1/metrics.jsonl")" -eq "$2" ] || fail "$1 has not $2 steps"; }

make_corpus 300 300
mkdir stand_in; touch stand_in/{pandas,matplotlib,jinja2,sacrebleu}.py
cat > stand_in/sitecustomize.py <<'END'
import os, sys, types
page = sys.modules["pyhadal.comparison"] = types.ModuleType("pyhadal.comparison")
page.write = lambda out, reference: print(out, reference, file=open(os.environ["WORDS"], "w"))
END
export PYTHONPATH=$work/stand_in WORDS=$work/words
printf '#!/bin/sh\nexec python3 -S "$@"\n' > bare; chmod +x bare  # without packages
mkdir grids
cat > grids/base.textproto <<'END'
data { train: "data/train" validation: "data/valid" }
model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 32 heads: 2 max_positions: 128 dropout: 0 }
batch { micro_batches: 1 source_tokens: 96 target_tokens: 96 }
learning_rate { peak: 1e-3 warmup_updates: 2 }
pipeline { threads: 1 }
stop { steps: 6 }
validation { every_steps: 3 }
END
cat > grids/small.textproto <<'END'
title: "A small grid"
base: "base.textproto"
axes {
  name: "method"
  values { label: "deepnorm" set: "model.residual.method=deepnorm" }
  values { label: "post_ln" set: "model.residual.method=post_ln" }
}
axes {
  name: "depth"
  values { label: "3" set: "model.encoder_layers=3" }
  values { label: "1" }
}
END

echo "a grid to its end, the cheap runs first"
expect 0 "$hadal" compare grids/small.textproto --out whole
says '4 of 4 runs finished'
[ "$(grep -o '] [^:]*: starts' out | tr '\n' ' ')" = "] method=deepnorm,depth=1: starts ] method=post_ln,depth=1: starts \
] method=deepnorm,depth=3: starts ] method=post_ln,depth=3: starts " ] || fail "another order: $(cat out)"
for cell in whole/runs/*; do ended "$cell" done; steps "$cell" 6; done
grep -q cpu_seconds whole/runs/method=post_ln,depth=1/cell.json || fail "no CPU time"

echo "finished runs are not run again; a moved limit lets them go on; another config is left alone"
expect 0 "$hadal" compare grids/small.textproto --out whole
says 'done before'; lacks starts
expect 0 "$hadal" compare grids/small.textproto --out whole --set stop.steps=8 --run 2
says 'method=post_ln,depth=1: continues'; steps whole/runs/method=post_ln,depth=1 8; steps whole/runs/method=deepnorm,depth=1 6
expect 1 "$hadal" compare grids/small.textproto --out whole --set learning_rate.peak=2e-3 --run 1
says 'learning_rate.peak: 0.001 -> 0.002'; says 'left alone'
expect 0 "$hadal" compare grids/small.textproto --out whole --set learning_rate.peak=2e-3 --set stop.steps=9 --run 1 --accept-changes
steps whole/runs/method=deepnorm,depth=1 9
HADAL_PYTHON= expect 0 "$hadal" compare grids/small.textproto --out whole --list  # as if it were not set
says '4  method=post_ln,depth=3 .* done'

echo "every finished run translates a test set; the pages are made of the grid and the reference"
expect 0 "$hadal" compare grids/small.textproto --out whole --run 2 3 --test-source text/test.en --test-reference text/test.de
says 'method=post_ln,depth=1: translated'
[ "$(cat words)" = "whole text/test.de" ] || fail "the pages were asked for as $(cat words)"
[ "$(wc -l < whole/runs/method=post_ln,depth=1/test.translation)" -eq 20 ] || fail "not 20 lines translated"
head -n 20 text/train.en > other.en
expect 0 "$hadal" compare grids/small.textproto --out whole --run 2 --test-source other.en --test-reference text/test.de
says 'method=post_ln,depth=1: translated'  # another test set, or its file has changed
[ ! -e whole/runs/method=deepnorm,depth=3/test.translation ] || fail "run 3 keeps a translation of another test set"
cp text/test.en other.en; translated=("$hadal" compare grids/small.textproto --out whole --run 2 --test-source other.en --test-reference text/test.de)
expect 0 "${translated[@]}"; says 'method=post_ln,depth=1: translated'; expect 0 "${translated[@]}"; lacks 'depth=1: translated'
real=$(. "$here/../tools/python/find_python.sh"; find_python pandas matplotlib jinja2 sacrebleu > /dev/null; echo "$python")
if [ -n "$real" ]; then
  PYTHONPATH='' HADAL_PYTHON=$real expect 0 "$hadal" compare grids/small.textproto --out whole --report-only --test-reference text/test.de; lacks starts
  says 'report: whole/comparison.html'
  grep -q '^| method .* | 3 | 1 |$' whole/comparison.md || fail "no table of methods and depths"
  grep -q '"bleu"' whole/comparison.json || fail "no BLEU"
  grep -q '<svg' whole/comparison.html || fail "no pictures"
else
  echo "no Python with pandas, matplotlib, jinja2 and sacrebleu: the pages are not tried"
fi
WORDS=gone/words expect 1 "$hadal" compare grids/small.textproto --out whole --report-only; says 'hadal summary whole/runs'
expect 0 "$hadal" compare grids/small.textproto --out whole --set stop.steps=10 --accept-changes --run 2
[ ! -e whole/runs/method=post_ln,depth=1/test.translation ] || fail "a translation by weights that are no longer the run's is kept"

PYTHONPATH='' HADAL_PYTHON=$work/bare expect 2 "$hadal" compare grids/small.textproto --out bare_runs --run 1
says 'sacrebleu; install with'; says 'The runs take place'; says 'hadal summary bare_runs/runs'; ended bare_runs/runs/method=deepnorm,depth=1 done

echo "a signal: the running child saves, and the same command continues"
# start OUT [OPTION…]: a grid in the background, its pid in $grid, until its first run has made steps.
start() {
  first=$1/runs/method=deepnorm,depth=1
  "$hadal" compare grids/small.textproto --out "$@" --set stop.steps=100000 --set validation.every_steps=0 > out 2>&1 & grid=$!
  until [ "$(grep -cs '"event":"step"' $first/metrics.jsonl)" -ge 3 ] 2> /dev/null; do  # without a limit: a busy machine takes long
    kill -0 $grid 2> /dev/null || { fail "the grid ended before its third step"; return; }
    sleep 0.05
  done
}
for signal in INT USR1; do
  start stopped-$signal
  timeout 60 "$hadal" compare grids/small.textproto --out stopped-$signal > second 2>&1
  code=$?; { [ $code -eq 1 ] && grep -q 'another process is writing stopped-' second; } || { fail "code $code of a second compare beside the first"; cat second; }
  kill -$signal $grid; wait $grid; code=$?
  [ $code -eq 85 ] || { fail "exit code $code instead of 85 after $signal"; cat out; }
  says 'left: start the same command again'; ended $first interrupted
  [ ! -e stopped-$signal/runs/method=post_ln,depth=1 ] || fail "another run was started after $signal"
done
saved=$(grep -c '"event":"step"' $first/metrics.jsonl)
expect 0 "$hadal" compare grids/small.textproto --out stopped-USR1 --set stop.steps=$((saved + 2)) --set validation.every_steps=0 --run 1
says 'method=deepnorm,depth=1: continues (was interrupted)'; steps $first $((saved + 2))
[ "$(grep -c '"event":"run"' $first/metrics.jsonl)" -eq 2 ] || fail "the run did not go on"

echo "the same with two ranks"
start ranks-stopped --ranks 2
kill -INT $grid; wait $grid; code=$?
[ $code -eq 85 ] || { fail "exit code $code instead of 85 with two ranks"; cat out; }
ended $first interrupted; [ -e $first/checkpoints/latest ] || fail "two ranks have not saved"
grep -q '"ranks":2' $first/metrics.jsonl || fail "not two ranks"
sed 's/^title.*/ranks: 2/' grids/small.textproto > grids/two.textproto
expect 0 "$hadal" compare grids/two.textproto --out two --run 1
grep -q '"ranks":2' two/runs/method=deepnorm,depth=1/metrics.jsonl || fail "not the ranks of the grid"

echo "killed without warning: its child saves and ends, and the same command continues"
start killed
kill -KILL $grid; wait $grid 2> /dev/null
until grep -q '"event":"finish"' $first/metrics.jsonl; do sleep 0.05; done  # as long as the test may take
ended $first running; [ -e $first/checkpoints/latest ] || fail "the child has not saved"
saved=$(grep -c '"event":"step"' $first/metrics.jsonl)
expect 0 "$hadal" compare grids/small.textproto --out killed --set stop.steps=$((saved + 2)) --set validation.every_steps=0 --run 1
says 'continues (was running)'; ended $first done; steps $first $((saved + 2))

echo "budgets: a run's cap cuts it, the grid's total stops before the dear runs"
sed 's/^title.*/run_minutes: 0.01/' grids/small.textproto > grids/cap.textproto
expect 0 "$hadal" compare grids/cap.textproto --out cap --set stop.steps=100000 --run 1
ended cap/runs/method=deepnorm,depth=1 cut; says 'starts, at most 0.6s'
expect 0 "$hadal" compare grids/cap.textproto --out cap --set stop.steps=100000 --run 1; says 'cut before'
sed 's/^title.*/total_minutes: 0.01/' grids/small.textproto > grids/total.textproto
expect 0 "$hadal" compare grids/total.textproto --out total --set stop.steps=100000
says 'budget of 0.01 minutes is used up'; ended total/runs/method=deepnorm,depth=1 interrupted
[ ! -e total/runs/method=post_ln,depth=3 ] || fail "a run was started behind the budget"
expect 0 "$hadal" compare grids/total.textproto --out total --set stop.steps=100000
says 'budget of 0.01 minutes is used up'; lacks starts; lacks 'continues (was'

echo "a failing run does not keep the others from running; a diverging one is a result"
bad=failing/runs/method=deepnorm,depth=1
mkdir -p $bad/checkpoints/step_00000003 && echo '{' > $bad/checkpoints/step_00000003/manifest.json
expect 1 "$hadal" compare grids/small.textproto --out failing
ended $bad failed; says '3 of 4 runs finished, 1 failed'; says 'exit code 3; its output is in failing/logs/'
rm -r $bad
expect 0 "$hadal" compare grids/small.textproto --out failing; says '4 of 4'; ended $bad done
expect 0 "$hadal" compare grids/small.textproto --out diverging --set learning_rate.peak=10 --set learning_rate.warmup_updates=0 \
  --set model.residual.encoder.residual_gain=1e6 --set model.residual.encoder.norm=none --set model.residual.decoder.norm=none \
  --set model.residual.encoder.ffn_gain=1000 --set health.skipped_steps=1 --set stop.steps=20 --run 3
ended diverging/runs/method=deepnorm,depth=3 diverged
says ': diverged'

echo "a run that fails has its own diagnosis; seeds are one more axis"
expect 0 "$hadal" compare grids/small.textproto --out vanishing --set model.encoder_layers=18 --set model.decoder_layers=18 \
  --set learning_rate.peak=2e-2 --set stop.steps=60 --set validation.every_steps=60 --run 4
says 'diagnosis at step [0-9]*: gradients vanish'
expect 0 "$hadal" compare grids/small.textproto --out none --seeds 5 6 --list; says '8  method=post_ln,depth=3,seed=6 .* not yet run'

echo "mistakes are refused before anything runs"
expect 2 "$hadal" compare grids/small.textproto --out none --run 5; says 'numbered from 1 to 4'
expect 2 "$hadal" compare grids/small.textproto --out none --set model.heads=3; says 'method=deepnorm,depth=3: '
expect 2 "$hadal" compare grids/small.textproto --out none --set data.train=gone; says 'gone'
expect 2 "$hadal" compare grids/small.textproto --out none --test-source gone.en --test-reference text/test.de; says 'gone.en'
expect 2 "$hadal" compare grids/small.textproto --out none --test-source text/test.en; says 'give both or neither'
expect 2 "$hadal" compare grids/small.textproto --out none --test-source text/test.en --test-reference gone.de; says 'gone.de'
expect 2 "$hadal" compare grids/small.textproto --out none --test-source text/test.en --test-reference text/valid.de; says 'line n of one must translate'
printf 'a\xff\n' > bad.en; echo a > one.de
expect 2 "$hadal" compare grids/small.textproto --out none --test-source bad.en --test-reference one.de; says 'bad.en:1: not UTF-8'
expect 2 "$hadal" compare grids/gone.textproto
[ ! -e none/runs ] || fail "something ran"

finished
