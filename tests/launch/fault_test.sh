#!/usr/bin/env bash
# Faults, one after the other: each is injected into a run of its own, and what happened, and how soon, is printed as a table row.
# A run that survives its fault must end with the very bits of an unbroken one-rank run.
# Usage: fault_test.sh HADAL
set -u
hadal=${1:?usage: fault_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"
. "$(dirname "$0")/../support/disturbed_job.sh"
clean_up() { awk -v w="$work" '$2 ~ "^" w { print $2 }' /proc/mounts | tac | xargs -r -n 1 umount; }

failures_before=0
row() {  # FAULT WHAT HOW-SOON: what stands there only when it is so
  local what=$2; [ $failures -eq $failures_before ] || what="FAILED, see above"
  failures_before=$failures; printf '| %s | %s | %s |\n' "$1" "$what" "$3"
}
skip() { echo "[  SKIPPED ] $1 ($2)"; }  # tests/run counts these lines
# goes_on RUN: asks the job to save and end; started again, it goes on to the same bits.
goes_on() {
  end_soon "$1"; kill -USR1 "$(parent "$(rank "$1" 0)")"; finish 85
  expect 0 "${mpi[@]}" 2 "${train[@]}" --run-dir "$1"; identical "$1"
}
# job COMMAND…: starts it in the background, output to $work/out. finish CODE: waits for it; sets $seconds since `clock`.
job() { timeout "$patience" "$@" > out 2>&1 & job=$!; }
clock() { begin=$(date +%s.%N); }
finish() {
  local code; wait $job; code=$?
  seconds=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f s", b - a }')
  [ $code -eq "$1" ] || fail "exit code $code instead of $1"
}
# restarted: waits for the supervisor's next start; sets $restart since `clock`.
restarted() { until_ grep -q "starting it again" out; restart=$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { printf "%.1f s", b - a }'); }
# rank RUN R: pid of rank R of a run under mpirun. ranks RUN: all of its processes.
ranks() { grep -lz -- "^$1\$" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3 | while read -r p; do
  tr '\0' ' ' < "/proc/$p/cmdline" 2>/dev/null | grep -q "^$hadal train " && echo "$p"; done; }
rank() { for p in $(ranks "$1"); do grep -qzE "^(OMPI_COMM_WORLD|PMI)_RANK=$2\$" "/proc/$p/environ" && echo "$p"; done; }
nobody_left() { [ -z "$(ranks "$1")" ]; }
parent() {  # PID: MPICH's mpirun has a process between itself and the ranks
  local pid; pid=$(awk '{ print $4 }' "/proc/$1/stat")
  if grep -q '(hydra_pmi_proxy)' "/proc/$pid/stat"; then parent "$pid"; else echo "$pid"; fi
}
flip() { # FILE BYTE: flips a bit
  local byte; byte=$(od -An -tu1 -j "$2" -N1 "$1")
  printf "\\x$(printf %x $((byte ^ 4)))" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none
}

make_corpus 400 300
small_config 2 3 32 2 8
sed -i 's/micro_batches: 8/& sum_groups: 4/' small.textproto
stop_at 300
train=("$hadal" train small.textproto stop.textproto)
choose_launcher
mpi=(mpirun "${mpirun_options[@]}" -n)  # followed by the number of ranks
expect 0 "${train[@]}" --set checkpoint.keep_last=0 --run-dir unbroken
# Before MPI is up nobody can be asked who is missing, and MPI itself would wait for ever. It takes a minute, so the others run beside it.
timeout "$patience" "${mpi[@]}" 2 "${train[@]}" --set pipeline.wait_timeout_seconds=4 --run-dir unborn : -n 1 bash -c 'kill -STOP $$' > unborn.out 2>&1 & unborn=$!
echo "| fault | what happened | how soon |"
echo "|---|---|---|"

# ── A rank or the launcher is lost ──
endless
job "$hadal" supervise -- "${mpi[@]}" 2 "${train[@]}" --set pipeline.replicas=2 --run-dir killed
until_ steps_of killed 30; end_soon killed; clock; kill -KILL "$(rank killed 1)"
restarted
finish 0; identical killed
row "SIGKILL of a rank, supervised" "the job ends, is started again from the newest checkpoint, same bits" "$restart"

endless; job "${mpi[@]}" 2 "${train[@]}" --run-dir killed_bare
until_ steps_of killed_bare 30; clock; kill -KILL "$(rank killed_bare 1)"
finish $killed; until_ nobody_left killed_bare
row "SIGKILL of a rank, bare mpirun" "exit code $killed, no rank left" "$seconds"

job "$hadal" supervise -- "${mpi[@]}" 2 "${train[@]}" --run-dir launcher
until_ steps_of launcher 30; end_soon launcher; clock; kill -KILL "$(parent "$(rank launcher 0)")"
restarted
finish 0; until_ nobody_left launcher; identical launcher
row "SIGKILL of mpirun, supervised" "left-over ranks are ended, the job starts again, same bits" "$restart"

# A run without any checkpoint resumes from the copies in memory, which are gone when it has ended.
mkdir memory
copies=(--set checkpoint.every_steps=0 --set checkpoint.memory_every_steps=5 --set checkpoint.memory_folder="\"$work/memory\"")
endless; job "${mpi[@]}" 2 "${train[@]}" "${copies[@]}" --run-dir copied
until_ grep -q '"event":"copy"' copied/metrics.jsonl; end_soon copied; clock; kill -KILL $(ranks copied); wait $job
[ -e copied/checkpoints/latest ] && fail "there is a checkpoint"
expect 0 "${mpi[@]}" 2 "${train[@]}" "${copies[@]}" --run-dir copied; says "comes from copies in memory"; identical copied
[ -z "$(ls memory)" ] || fail "copies are left"
row "SIGKILL of all ranks, copies in memory" "started again, the run continues from the newest copy, same bits" "-"

# With --tries 1, only a step beyond what is saved allows a restart. Asked to go back to a checkpoint, the job does so once: what it has
# trained since is not thrown away with each restart, and counts from there, not from the steps that are set aside.
expect 0 "${train[@]}" --set stop.steps=80 --set checkpoint.keep_last=0 --run-dir back
endless; job "$hadal" supervise --tries 1 -- "${mpi[@]}" 2 "${train[@]}" --set checkpoint.keep_last=0 --resume back/checkpoints/step_00000040 --run-dir back
set_aside() { [ "$(find back/checkpoints -name '*.abandoned.*' | wc -l)" -eq 2 ]; }
until_ set_aside; until_ test -e back/checkpoints/step_00000080; end_soon back; clock; kill -KILL "$(rank back 1)"; restarted
finish 0; says "has done --resume back/checkpoints/step_00000040: continuing from the newest checkpoint"; identical back
set_aside || fail "a restart went back once more"
row "SIGKILL of a rank after --resume CHECKPOINT, supervised" "the restart continues from the newest checkpoint, same bits" "$restart"

# The run directory is seen, and signals arrive, also where only a script knows of them.
printf '%s ' "${mpi[@]}" 2 "${train[@]}" --run-dir script > script.sh; printf '\nexit $?\n' >> script.sh
endless; job "$hadal" supervise --tries 1 -- bash script.sh
until_ steps_of script 30; until_ grep -q '"event":"checkpoint"' script/metrics.jsonl; end_soon script; clock; kill -KILL "$(rank script 1)"; restarted
finish 0; identical script
row "SIGKILL of a rank of a job script, supervised" "as without a script" "$restart"

job "$hadal" supervise -- "${mpi[@]}" 2 "${train[@]}" --set checkpoint.every_steps=0 --set stop.steps=100000000 --run-dir termed
until_ steps_of termed 30; clock; kill -TERM "$(parent "$(rank termed 0)")"
finish 85; until_ nobody_left termed; expect 0 "$hadal" checkpoint verify termed
row "TERM to mpirun itself, supervised" "saved, exit code 85 (mpirun returns 1)" "$seconds"

job "${train[@]}" --set checkpoint.every_steps=0 --set stop.steps=100000000 --run-dir timed_out
until_ steps_of timed_out 30; clock; rank=$(ranks timed_out); for signal in TERM CONT TERM; do kill -$signal "$rank"; done
finish 85; expect 0 "$hadal" checkpoint verify timed_out
row "TERM, CONT, TERM at once, as at Slurm's time limit" "saved, exit code 85" "$seconds"

endless; job "$hadal" supervise --stopped-limit 2s -- "${train[@]}" --run-dir paused
until_ steps_of paused 30; end_soon paused; clock; kill -STOP "$(ranks paused)"
restarted
finish 0; says "(hadal) of the job is stopped"; identical paused
row "SIGSTOP of the only rank (--stopped-limit 2s), supervised" "it is killed, the job starts again, same bits" "$restart"

# ── A rank ends with an error of its own, while the others are at work: people read that one, and no other rank's "lost a peer" ──
# Its address space may not grow (prlimit), so that the thread that is to save cannot start. Repeated, since ranks end in any order.
if [[ $launcher = "Open MPI 5"* ]]; then
  skip "a rank that may have no more memory" "Open MPI 5 leaves the stack of a thread behind, in which the saving thread starts"
elif (ulimit -v 8000000; "$hadal" --version > /dev/null 2>&1); then
  for round in 1 2 3 4 5; do
    job "${mpi[@]}" 4 "${train[@]}" --set checkpoint.every_steps=0 --set stop.steps=100000000 --run-dir own$round
    until_ steps_of own$round 3; prlimit --pid "$(rank own$round 2)" --as=1:1
    clock; kill -USR1 "$(parent "$(rank own$round 2)")"
    finish 1; until_ nobody_left own$round
    grep '^hadal train' out > errors
    case $(head -n 1 errors) in "hadal train [rank 2]: "*) ;; *) fail "the first error is not rank 2's own" ;; esac
    [ "$(wc -l < errors)" -eq 1 ] || fail "more than the one error was told"
    grep -q "Z end: exit code 1: " own$round/logs/rank_00002.log || fail "rank 2's log lacks its error"
  done
  row "a rank that may have no more memory" "its own error is what people read, exit code 1, no rank left (5 of 5 times)" "$seconds"
else
  skip "a rank that may have no more memory" "this build does not run within an address space of 8 GB"
fi

# ── A terminal goes away: the kernel tells the job, and a shell tells it once more ──
# in_terminal COMMAND: types it to an interactive shell in a terminal of its own, whose process id is $terminal.
in_terminal() {
  rm -f typed; mkfifo typed
  env --default-signal=HUP script -qec "bash --norc -i" /dev/null < typed > terminal.log 2>&1 & terminal=$!
  disown  # this shell says nothing of its end
  exec 9> typed; echo "cd '$work'; $1" >&9
}
saved_once() { # RUN: nobody is left; it has one checkpoint, of the moment, and goes on to the same bits
  until_ nobody_left "$1"; until_ test ! -e /proc/$supervisor
  [ "$(ls -d "$1"/checkpoints/step_* 2> /dev/null | wc -l)" -eq 1 ] || fail "$1 was not saved"
  end_soon "$1"; expect 0 "${train[@]}" --run-dir "$1"; identical "$1"
}
if command -v script > /dev/null; then
  endless; in_terminal "'$hadal' supervise -- ${mpi[*]} 2 ${train[*]} --set checkpoint.every_steps=0 --run-dir hung_up"
  until_ steps_of hung_up 30; supervisor=$(parent "$(parent "$(parent "$(rank hung_up 0)")")"); kill -KILL $terminal; exec 9>&-
  saved_once hung_up
  row "the terminal goes away, supervised" "the ranks save and end, nothing is left; the run goes on with the same bits" "at the step's end"
  endless; in_terminal "${train[*]} --set checkpoint.every_steps=0 --run-dir hung_up_alone"
  until_ steps_of hung_up_alone 30; supervisor=$(ranks hung_up_alone); kill -KILL $terminal; exec 9>&-
  saved_once hung_up_alone
  row "the terminal of a run by itself goes away" "as supervised" "at the step's end"
else
  skip "the terminal goes away" "there is no script(1)"
fi

# ── A rank stops or is slow ──
endless; job "${mpi[@]}" 3 "${train[@]}" --set pipeline.wait_timeout_seconds=12 --run-dir stopped
until_ steps_of stopped 30; clock; kill -STOP "$(rank stopped 1)"
finish 5; until_ nobody_left stopped
for r in 0 2; do grep -q "watchdog \[rank $r\]: waiting for .* rank [01], .*; at step [0-9]*, instruction" out || fail "no report of rank $r"; done
for r in 0 2; do grep -q "Z watchdog \[rank $r\]: waiting for" stopped/logs/rank_0000$r.log || fail "no report in rank $r's log"; done
# Whose wait reaches the timeout first ends the job; the other may have no time for words.
grep -q "Z end: exit code 5: " stopped/logs/rank_0000[02].log || fail "no log has its rank's last words"
grep -q "watchdog.* rank 1, " out || fail "no rank waits for the stopped one"  # the others may wait for those that do
row "SIGSTOP of a rank (timeout 12 s)" "every other rank says what it waits for, from whom, since when, and its place; exit code 5" "$seconds"

job "${mpi[@]}" 2 "${train[@]}" --run-dir slow
until_ steps_of slow 30; slow=$(rank slow 1); clock; kill -STOP "$slow"; sleep 1.5; kill -CONT "$slow"
goes_on slow
row "a rank slower by 1.5 s" "the others wait, same bits" "–"

# ── Damaged checkpoints: the newest of a run is damaged, the run goes on from the one before and ends with the same bits ──
expect 0 "${mpi[@]}" 2 "${train[@]}" --set stop.steps=280 --run-dir good; stop_at 300
damaged=checkpoints/step_00000280
# damage NAME COMMAND: the command damages the checkpoint in the current directory.
damage() {
  rm -rf hurt; cp -r good hurt; (cd hurt/$damaged && eval "$2") || fail "cannot damage: $2"
  expect 0 "${train[@]}" --run-dir hurt; says "REFUSED.*step_00000280"
  clock; identical hurt
  row "$1" "refused by name, the run resumes from the checkpoint before, same bits" "at once"
}
shard=rank_00001.safetensors
damage "truncated shard" "truncate -s -100 $shard"
damage "bit flipped in a shard's header" "flip $shard 20"
damage "bit flipped in a shard's data" "flip $shard \$((\$(stat -c %s $shard) / 2))"
damage "bit flipped in the manifest" "flip manifest.json \$((\$(stat -c %s manifest.json) / 2))"
damage "bit flipped in the vocabulary" "flip vocabulary.model 50"
damage "missing shard" "rm $shard"
damage "missing manifest" "rm manifest.json"
damage "shard of another step" "cp ../step_00000260/$shard $shard"
damage "shard of another rank" "cp rank_00000.safetensors $shard"
damage "shard is a link out of the directory" "mv $shard ../elsewhere; ln -s ../elsewhere $shard"
rm -rf hurt; cp -r good hurt; ln -sfn ../../etc hurt/checkpoints/latest
expect 0 "${train[@]}" --run-dir hurt; identical hurt
row "latest points elsewhere" "not followed: the newest good checkpoint is found by name, same bits" "at once"
rm -rf hurt; cp -rL good hurt
expect 0 "${train[@]}" --run-dir hurt; identical hurt; [ -L hurt/checkpoints/latest ] || fail "latest is no link again"
row "latest is a directory (cp -rL)" "moved to latest.replaced.<attempt>, a link takes its place, same bits" "at once"
for step in 240 260 280; do flip "good/checkpoints/step_00000$step/manifest.json" 100; done
expect 3 "${mpi[@]}" 2 "${train[@]}" --run-dir good; says "no checkpoint in good/checkpoints can be used"
row "no good checkpoint left" "exit code 3, every refusal with its reason; never a silent new start" "at once"
shard=data/train.00000.shard
cp -r data spoiled; flip "spoiled/$(basename "$shard")" $(($(stat -c %s "$shard") / 2))
expect 3 "${train[@]}" --set data.train=spoiled/train --run-dir corpus
row "bit flipped in a corpus shard" "exit code 3, the shard is named" "at once"
cp -r data cut
job "${mpi[@]}" 2 "${train[@]}" --set data.train=cut/train --set stop.steps=100000000 --run-dir cut_corpus
until_ steps_of cut_corpus 3; truncate -s 4096 cut/train.00000.shard
finish 3; says "^hadal: cut/train.00000.shard: a part of the file is gone"; until_ nobody_left cut_corpus
row "a corpus shard is truncated while it is read" "exit code 3, the shard is named" "at the next read"
cp -r data changed
job "${mpi[@]}" 2 "${train[@]}" --set data.train=changed/train --set stop.steps=100000000 --run-dir changed_corpus
until_ steps_of changed_corpus 3; head -c 4096 /dev/zero | dd of=changed/train.00000.shard bs=1 seek=32 conv=notrunc status=none
finish 3; says "changed/train.00000.shard: it was changed while it was in use"; until_ nobody_left changed_corpus
row "a corpus shard is changed while it is read" "exit code 3, the shard is named" "at the next step"

# ── The run directory ──
if mkdir disk && mount -t tmpfs -o size=2m tmpfs disk 2> /dev/null; then
  expect 1 "${mpi[@]}" 2 "${train[@]}" --set pipeline.replicas=2 --set checkpoint.keep_last=0 --run-dir disk/run; says "o space"
  grep -q "NO CHECKPOINT" disk/run/metrics.jsonl || fail "no warning in metrics.jsonl"
  expect 0 "$hadal" checkpoint verify disk/run
  mount -o remount,size=100m disk
  expect 0 "${mpi[@]}" 2 "${train[@]}" --run-dir disk/run; cp -r disk/run full; identical full
  row "disk full (tmpfs)" "training goes on with warnings, exit code 1 at the end, the last good checkpoint untouched; with space again it resumes, same bits" "at the next save"
else
  skip "disk full" "a tmpfs cannot be mounted here"
fi
# A directory that refuses writes: root ignores permissions, so for root a read-only mount.
lock() {
  local try
  [ "$(id -u)" -eq 0 ] || { chmod a-w "$1"; return; }
  mount --bind "$1" "$1" || return
  for try in {1..200}; do mount -o remount,ro,bind "$1" 2> /dev/null && return; sleep 0.01; done  # busy while a save has a file open
  umount "$1"; return 1
}
unlock() { if [ "$(id -u)" -eq 0 ]; then umount "$1"; else chmod u+w "$1"; fi; }
mkdir -p try; if lock try 2> /dev/null; then
  expect 1 "${train[@]}" --run-dir try/run; says "try/run"; unlock try
  row "run directory read-only from the start" "exit code 1 before the first step" "at once"
  endless; job "${mpi[@]}" 2 "${train[@]}" --run-dir locked
  until_ steps_of locked 30; clock; lock locked/checkpoints || fail "locked/checkpoints cannot be made read-only"
  until_ grep -q "NO CHECKPOINT" locked/metrics.jsonl; unlock locked/checkpoints
  goes_on locked
  row "checkpoints read-only for a while" "a warning a save, training goes on, later saves succeed, same bits" "at the next save"
else
  skip "read-only directory" "nothing can be made read-only here"
fi
endless; job "${mpi[@]}" 2 "${train[@]}" --run-dir vanished
until_ steps_of vanished 30; clock; mv vanished/checkpoints vanished/gone
until_ grep -q "NO CHECKPOINT" vanished/metrics.jsonl; kill -USR1 "$(parent "$(rank vanished 0)")"
finish 1; says "attempt"
row "checkpoints directory vanishes" "a warning a save, training goes on, exit code 1 at the end" "at the next save"
# refused RUN PID MORE: a second job on RUN is refused with the first one's process and MORE.
refused() {
  "${train[@]}" --run-dir "$1" > second 2>&1
  [ $? -eq 1 ] || fail "the exit code of the second job is not 1"
  grep -q "^hadal train: $1 is in use by another attempt: attempt .*, process $2 on $(hostname), since .*$3.*--take-over" second ||
    { cat second; fail "the second job does not name the first"; }
}
job "${train[@]}" --set stop.steps=100000000 --run-dir removed
until_ steps_of removed 30; refused removed "$(ranks removed)" ""
clock; rm -rf removed; finish 1; says "^hadal train: removed was removed while"
[ "$(grep -c "^hadal train" out)" -eq 1 ] || fail "more than one error"
row "run directory removed" "one error, exit code 1" "$seconds"
# The first job saves only at its end.
endless; job "${train[@]}" --set checkpoint.every_steps=0 --run-dir twice
until_ steps_of twice 30; first=$(ranks twice); kill -STOP "$first"
find twice | sort > before; refused twice "$first" "(stopped by a signal)"
find twice | sort | cmp - before || fail "a refused job has left something"; stop_at 300
row "a second job on a run directory" "refused with the first one's host, process and start, exit code 1; also if that is stopped" "at once"
"${train[@]}" --set checkpoint.every_steps=0 --run-dir twice --take-over > second 2>&1 || fail "the second job failed"
clock; kill -CONT "$first"; finish 1; says "taken it over"; identical twice
[ "$(grep -c '"event":"step"' twice/metrics.jsonl)" -eq 300 ] || fail "the metrics of two jobs are mixed"
row "--take-over by a second job" "it owns the directory; the first, stopped meanwhile, ends with exit code 1 when it goes on; same bits" "$seconds"

# ── Limits ──
if (ulimit -v 1500000; "$hadal" --version > /dev/null 2>&1); then
  expect 1 bash -c 'ulimit -v 1500000; exec "$@"' limited "$hadal" prepare --train text/train.en text/train.de --out limited_data \
    --vocab data/vocabulary.model --threads 1000
  says "^hadal: .*ulimit -v"; [ ! -e limited_data/train.json ] || fail "half a corpus"
  row "hadal prepare may not start its threads" "exit code 1, with words, no half a corpus" "at once"
else
  skip "hadal prepare may not start its threads" "this build does not run within an address space of 1.5 GB"
fi
expect 85 "$hadal" supervise -- "${mpi[@]}" 2 "${train[@]}" --stop-after 2s --set stop.steps=100000000 --run-dir limited
ls -d limited/checkpoints/step_* > /dev/null 2>&1 || fail "nothing was saved at the time limit"
row "--stop-after 2s" "saved, exit code 85" "at the step's end"

wait $unborn; code=$?; cp unborn.out out
[ $code -eq 5 ] || fail "exit code $code instead of 5"
until_ nobody_left unborn
says "^hadal \[rank [01]\]: gave up after 1m.* waiting for all ranks to start"
[ ! -e unborn ] || fail "a run directory of a run that never began"
row "SIGSTOP of a rank before MPI is up" "the others say that not all ranks have started; exit code 5" \
  "$(sed -nE 's/.*gave up after ([^ ]+).*/\1/p' out | head -n 1)"

finished
