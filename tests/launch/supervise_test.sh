#!/usr/bin/env bash
# `hadal supervise`, alone and under launch/hosts/train, with made-up jobs that end, crash, hang and leave children behind, each in its own way.
# Usage: supervise_test.sh HADAL
set -u
hadal=${1:?usage: supervise_test.sh HADAL}
source=$(readlink -f "$(dirname "$0")/../..")
. "$source/tests/support/command_test.sh"

supervise=("$hadal" supervise --back-off 0)  # restarts at once
# job TEXT: a job that counts its starts in $work/starts and then does TEXT.
job() { rm -rf starts run; mkdir -p run/checkpoints; printf 'echo start >> starts\n%s\n' "$1" > job; }
starts() { [ "$(wc -l < starts)" -eq "$1" ] || fail "$(wc -l < starts) starts instead of $1"; }
# wait_for COMMAND…: until the command succeeds, a minute at most.
wait_for() {
  local tenths=600
  until "$@" 2> /dev/null; do [ $((tenths--)) -gt 0 ] || return 1; sleep 0.1; done
}
# Zombies whose parent does not look are gone as well.
gone() { [ ! -e "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status"; }

# Looked at below, since it takes ten seconds: the job ignores TERM, its supervisor is killed.
mkdir -p obstinate/tmp
printf '%s\n' 'trap "" TERM; (setsid bash -c "echo \$\$ > daemon; exec sleep 600" &)' 'echo $$ > self; while :; do sleep 0.05; done' > obstinate/job
(cd obstinate && TMPDIR=$PWD/tmp exec "$hadal" supervise -- bash job > out 2>&1) & obstinate=$!
wait_for test -s obstinate/self -a -s obstinate/daemon; kill -KILL $obstinate; wait $obstinate 2> /dev/null
# Looked at below, too: a job that is stopped three times, each time for a moment. A limit of 12 s is three looks, 5 s apart: this shell has 10 s to
# continue what is seen stopped, and the guardian 7 s more than a look takes to see it run.
mkdir paused suspended; printf '%s\n' 'echo $$ > self; while [ ! -e go ]; do sleep 0.05; done' | tee paused/job > suspended/job
(cd paused && exec "$hadal" supervise --tries 1 --stopped-limit 12s -- bash job > out 2>&1) & paused=$!
(cd paused && wait_for test -s self
  seen() { [ "$(grep -c "of the job is stopped" out)" -ge "$1" ]; }
  for times in 1 2 3; do [ $times -eq 1 ] || sleep 12; kill -STOP "$(cat self)"; wait_for seen $times; kill -CONT "$(cat self)"; done; touch go) & pauses=$!
# And one that is stopped and continued together with its guardian, as by a batch system, for longer than the limit: that is no hang.
(cd suspended && exec "$hadal" supervise --tries 1 --stopped-limit 12s -- bash job > out 2>&1) & suspended=$!
(cd suspended && wait_for test -s self; guardian=$(pgrep -P $suspended); kill -STOP "$guardian" "$(cat self)"; sleep 13
  kill -CONT "$guardian"; wait_for grep -q "of the job is stopped" out; kill -CONT "$(cat self)"; touch go) & suspends=$!

echo "codes that a restart would not change are passed on"
for code in 0 1 2 3 4 85; do job "exit $code"; expect $code "$hadal" supervise -- bash job; starts 1; done

mkdir own; job 'exit ${HADAL_JOB_START:+3}'; TMPDIR=$PWD/own expect 3 env -u HADAL_JOB_START "$hadal" supervise -- bash job
rmdir own || fail "a supervisor leaves $(ls own) in its temporary directory"

echo "crashes restart, a bounded number of times"
job 'exit 137'; expect 6 "${supervise[@]}" -- bash job; starts 3; says "exit code 137), 3 time(s) in a row without a newer checkpoint"
job 'exit 9'; expect 6 "${supervise[@]}" --tries 2 -- bash job; starts 2; grep -q "exit code 137" out || fail "MPICH's code is not translated"
job 'exit 205'; expect 6 "${supervise[@]}" --tries 2 -- bash job; starts 2
job 'kill -SEGV $$'; expect 6 "${supervise[@]}" --tries 2 -- bash job; starts 2
job 'exit 5'; expect 5 "${supervise[@]}" --tries 2 -- bash job; starts 2
job '[ $(wc -l < starts) -eq 2 ] || exit 6'; expect 0 "${supervise[@]}" -- bash job; starts 2
job 'n=$(wc -l < starts); mkdir -p run/checkpoints/step_0000000$((n / 2)); ln -sfn step_0000000$((n / 2)) run/checkpoints/latest; [ $n -eq 8 ] || exit 137'
expect 0 "${supervise[@]}" --tries 2 -- bash job; starts 8

echo "a saved step beyond all earlier ones is progress, and nothing else"
reports='n=$(wc -l < starts); report() { echo "$*" >> "$HADAL_SUPERVISOR_REPORT"; }; '
job "$reports"'report start 0 /a run; report saved $n; [ $n -eq 8 ] || exit 137; report end 0'
expect 0 "${supervise[@]}" --tries 2 -- bash job; starts 8; says "starting it again from step 7 of /a run"
job "$reports"'report start 40 /r; report saved $((60 - 20 * (n / 2 % 2))); exit 137'  # 60 40 40 60 …
expect 6 "${supervise[@]}" -- bash job; starts 4
job 'n=$(wc -l < starts); mkdir -p run/checkpoints/step_0000000$((n % 2)); ln -sfn step_0000000$((n % 2)) run/checkpoints/latest; exit 137'
expect 6 "${supervise[@]}" -- bash job --run-dir run; starts 4
# After --resume CHECKPOINT a copy in memory is progress only once a later checkpoint is saved, except in a job that Slurm has requeued.
job "$reports"'report start 40 /r; report copied $((40 + n)); [ $n -eq 4 ] || exit 137; report end 0'
expect 6 "${supervise[@]}" --tries 2 -- bash job --resume=step_40; starts 2; : > starts
SLURM_RESTART_COUNT=1 expect 0 "${supervise[@]}" --tries 2 -- bash job --resume=step_40; starts 4
# mpirun returns 1 when TERM is sent to it: the ranks have saved, or not.
job "$reports"'report start 0 /r; report saved 20; report end 85; echo boxes; exit 1'; expect 85 "${supervise[@]}" -- bash job; starts 1
[ "$(tail -n 1 out)" = "hadal supervise: the same command continues from step 20 of /r" ] || fail "the last line is not about what is saved"
job "$reports"'report start 0 /r; exit 1'; expect 6 "${supervise[@]}" -- bash job; starts 3
# A code alone is no end: Open MPI 5's mpirun returns 0 when it loses a host, and so does a script that ignores what its ranks return.
job "$reports"'report start 0 /r; [ $n -eq 2 ] && report end 0; exit 0'; expect 0 "${supervise[@]}" -- bash job; starts 2
says "ended before its ranks reported an end (exit code 0); starting it again from the beginning"
job "$reports"'report start 0 /r; report end 6; exit 0'; expect 6 "${supervise[@]}" --tries 2 -- bash job; starts 2
job "$reports"'report start 0 /r; report end 6; report end 4; exit 0'; expect 4 "${supervise[@]}" -- bash job; starts 1
job "$reports"'report start 0 /r; report end 1; exit 1'; expect 1 "${supervise[@]}" -- bash job; starts 1
job "$reports"'[ $n -eq 1 ] || exit 1; report start 0 /r; exit 137'; expect 1 "${supervise[@]}" -- bash job; starts 2
# Rank 0 on another host reports nothing; the record of the run directory's owner does.
owns='n=$(wc -l < starts); owner() { printf "%s\nh2\nboot\n1 1\nnow\n%s\n" $n "$1" > run/checkpoints/attempt; }; '
job "$owns"'[ $n -le 4 ] || exit 2; owner 7; exit $((n % 2))'; expect 2 "${supervise[@]}" --tries 9 -- bash job --run-dir run; starts 5
for code in 0 1; do job "$owns"'owner "ended     "; exit '$code; expect $code "${supervise[@]}" -- bash job --run-dir run; starts 1; done
job 'exit 1'; echo earlier > run/checkpoints/attempt; expect 1 "${supervise[@]}" -- bash job --run-dir run; starts 1

echo "the wait before a start doubles without progress; with progress starts are kept apart"
# waits LEAST…: the least tenths of a second between the starts, of the job's parent: the job's own first command may come late.
note_start='sed "s/.*) //" /proc/$PPID/stat | cut -d " " -f 20 >> start_times; '
waits() {
  awk -v least="$*" 'BEGIN { split(least, w) } NR > 1 && $1 - last < w[NR - 1] * 10 { exit 1 } { last = $1 } END { if (NR - 1 != length(w)) exit 1 }' start_times ||
    fail "starts at $(tr '\n' ' ' < start_times) hundredths of a second instead of $* tenths apart"; rm start_times
}
job "$note_start"'exit 137'; expect 6 "$hadal" supervise --back-off 200ms --tries 4 -- bash job; waits 2 4 8
job "$reports$note_start"'report start 0 /r; report saved $n; [ $n -eq 4 ] || exit 137; report end 0'
expect 0 "$hadal" supervise --back-off 200ms -- bash job; waits 1 1 1
for signal in INT HUP; do
  job 'exit 137'; : > out
  env --default-signal=HUP timeout 60 "$hadal" supervise --back-off 1h -- bash job > out 2>&1 & supervisor=$!
  wait_for grep -q "in 1h" out; kill -$signal "$(pgrep -P $supervisor)"; wait $supervisor; code=$?
  [ $code -eq 85 ] || fail "exit code $code instead of 85 after $signal during a wait"; starts 1
done

echo "the output's reader may end"
job 'echo first; sleep 0.3; seq 40000; [ "$(wc -l < starts)" -eq 2 ] || exit 137'
(timeout 60 "${supervise[@]}" -- bash job; echo $? > code) 2>&1 | head -n 1 > out
[ "$(cat code)" = 0 ] || fail "exit code $(cat code) instead of 0 after head"; starts 2
expect 0 bash -c "'$hadal' supervise -- bash -c 'seq 40000; echo last >&2' 2>&1 | tail -n 2"; says "^40000$"; says "^last$"

echo "a lost host is noticed after 5 + 3 x 2 seconds, unless the environment says otherwise"
keepalive() { env | grep -E '^(OMPI|PRTE)_MCA_oob_tcp_keepalive_' | sort | sed 's/MCA_.*keepalive_//' | tr '\n' ' '; }
job "$(declare -f keepalive); keepalive > keepalive"
expect 0 "$hadal" supervise -- bash job
[ "$(cat keepalive)" = "OMPI_intvl=2 OMPI_probes=3 OMPI_time=5 PRTE_intvl=2 PRTE_probes=3 PRTE_time=5 " ] || fail "the keepalive is $(cat keepalive)"
expect 0 env OMPI_MCA_oob_tcp_keepalive_time=60 "$hadal" supervise -- bash job
grep -q "OMPI_time=60 PRTE_intvl" keepalive || fail "the keepalive is $(cat keepalive), not the user's"

echo "the first signal asks, the second tells, the third kills"
for signal in INT TERM USR1 USR2 HUP; do
  job 'trap "exit 85" USR1; while :; do sleep 0.05; done'
  env --default-signal=HUP "$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
  wait_for test -s starts; sleep 0.2; kill -$signal $supervisor; wait $supervisor; code=$?
  [ $code -eq 85 ] || fail "exit code $code instead of 85 after $signal"
done
# Executed directly a script has its own name, and with a trap on EXIT bash has a handler that ends it: its child is asked.
cat > child.py <<'PYTHON'
import signal, sys
def save(*_):
    open("saved", "w").close()
    sys.exit(85)
signal.signal(signal.SIGUSR1, save)
open("up", "w").close()
while True:
    signal.pause()
PYTHON
printf '%s\n' '#!/bin/bash' 'trap "echo bye" EXIT' 'python3 child.py' 'exit $?' > direct; chmod +x direct; rm -f up saved
"$hadal" supervise -- ./direct > out 2>&1 & supervisor=$!
wait_for test -e up; kill -INT $supervisor; wait $supervisor; code=$?
[ $code -eq 85 ] && [ -e saved ] || fail "exit code $code; a script's child was not asked to save"
# A parent that ignores the end of its children.
expect 0 python3 -c 'import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])' "$hadal" supervise -- true
# A terminal that goes away is told of by its shell and by the kernel: that is one request, with time to save.
job 'trap "" TERM; trap "echo asked >> asked" USR1; touch up; while [ ! -e go ]; do sleep 0.05; done; exit 85'; rm -f go up asked
env --default-signal=HUP "$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -e up; kill -HUP $supervisor; wait_for test -s asked || fail "HUP did not ask the job"
for _ in 1 2 3; do kill -HUP $supervisor; sleep 0.3; done; touch go; wait $supervisor; code=$?
[ $code -eq 85 ] || fail "exit code $code instead of 85 after four times HUP"
# So does TERM: Slurm sends USR1, then TERM twice within a second.
for signal in USR1 HUP TERM; do
  job 'trap "exit 3" TERM; trap "echo asked >> asked" USR1; touch up; while [ ! -e go ]; do sleep 0.05; done; exit 85'; rm -f go up asked
  env --default-signal=HUP "$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
  wait_for test -e up; kill -$signal $supervisor; wait_for test -s asked || fail "$signal did not ask the job"
  kill -TERM $supervisor; kill -CONT $supervisor; sleep 0.2; kill -TERM $supervisor; sleep 0.5; touch go; wait $supervisor; code=$?
  [ $code -eq 85 ] || fail "exit code $code instead of 85 after $signal and TERM"
done
job 'trap "exit 85" USR1; touch up; while [ ! -e go ]; do sleep 0.05; done; exit 3'; rm -f go up
# UCX takes HUP over as it is loaded; one that does not go with this program's libraries is left out.
ucx=$(ldconfig -p | sed -n 's/.* => \(.*libucs\.so\.0\)$/\1/p' | head -n 1); LD_PRELOAD=$ucx "$hadal" --version > /dev/null 2>&1 || ucx=
(trap "" HUP; LD_PRELOAD=$ucx exec "$hadal" supervise -- env -u LD_PRELOAD bash job > out 2>&1) & supervisor=$!
wait_for test -e up; kill -HUP $supervisor; sleep 0.3; touch go; wait $supervisor; code=$?
[ $code -eq 3 ] || fail "exit code $code instead of the job's 3: under nohup a terminal may go away"
listens='trap "echo asked >> asked" USR1; touch up; while :; do sleep 0.05; done'; rm -f up asked
job 'trap "exit 3" TERM; '"$listens"
"$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -e up; kill -INT $supervisor; wait_for test -s asked; kill -INT $supervisor; wait $supervisor; code=$?
[ $code -eq 3 ] || fail "exit code $code instead of 3 after a second INT"
job 'trap "echo told >> told" TERM; '"$listens"; rm -f up asked told
"$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -e up; kill -INT $supervisor; wait_for test -s asked; kill -INT $supervisor; wait_for test -s told
kill -INT $supervisor; wait $supervisor; code=$?
[ $code -eq 6 ] || fail "exit code $code instead of 6 after a third INT"; starts 1

# A script does not listen, but what it runs does; what is stopped is continued.
job "$reports"'report start 0 /r; bash inner; exit $?'; printf '%s\n' 'trap "exit 85" USR1; touch up; kill -STOP $$; while :; do sleep 0.05; done' > inner; rm -f up
"$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -e up; sleep 0.2; kill -INT $supervisor; wait $supervisor; code=$?
[ $code -eq 85 ] || fail "exit code $code instead of 85 of a program that a script runs"

echo "a process that stays stopped is a hang"
job '[ "$(wc -l < starts)" -eq 2 ] || { echo $$ > self; kill -STOP $$; }'
expect 0 "${supervise[@]}" --stopped-limit 1s -- bash job; starts 2; says "process $(cat self) (bash) of the job is stopped"; says "exit code 5"

echo "a job that could not listen yet is reminded; one that the signal ended had nothing to save"
job 'trap "" USR1; sleep 1.5; trap "exit 85" USR1; while :; do sleep 0.05; done'
"$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -s starts; kill -INT $supervisor; wait $supervisor; code=$?
[ $code -eq 85 ] || fail "exit code $code instead of 85 after a late trap"
job 'while :; do sleep 0.05; done'
"$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -s starts; kill -INT $supervisor; wait $supervisor; code=$?
[ $code -eq 85 ] || fail "exit code $code instead of 85 for a job without a trap"; starts 1

echo "nothing is left behind"
job 'sleep 600 & echo $! > child; exit 0'
expect 0 "$hadal" supervise -- bash job
wait_for gone "$(cat child)" || fail "a child of the job lives on"
grep -q "left behind" out || fail "left-overs were not reported"
# A process that is killed holds its locks until its memory has been given back: the next start waits for that.
job 'exec 9> lock; if [ "$(wc -l < starts)" -gt 1 ]; then flock -n 9; exit; fi
flock 9; { head -c 400M /dev/zero; touch full; sleep 600; } | tail -c 500M > /dev/null &
while [ ! -e full ]; do sleep 0.05; done; sleep 0.2; kill -KILL $$'; rm -f full
expect 0 "$hadal" supervise -- bash job; starts 2
# Nor what has left the session, as a daemon does.
daemon='(setsid bash -c "echo \$\$ > daemon; exec sleep 600" &); while [ ! -s daemon ]; do sleep 0.05; done'
job "$daemon; exit 0"; rm -f daemon; expect 0 "$hadal" supervise -- bash job
gone "$(cat daemon)" || fail "a daemon of the job lives on"
job "[ \$(wc -l < starts) -eq 1 ] || exit 0; $daemon; echo \$\$ > self; sleep 600"; rm -f daemon self
"${supervise[@]}" -- bash job > out 2>&1 & supervisor=$!
wait_for test -s self; kill -KILL "$(pgrep -P $supervisor)"; wait $supervisor; code=$?
[ $code -eq 0 ] || fail "exit code $code instead of the second start's 0 after the guardian was killed"; starts 2
gone "$(cat self)" && gone "$(cat daemon)" || fail "the job outlives its killed guardian"
job 'echo $$ > self; while :; do sleep 0.05; done'; rm -f self
"$hadal" supervise -- bash job > out 2>&1 & supervisor=$!
wait_for test -s self; kill -KILL $supervisor; wait $supervisor 2> /dev/null
wait_for gone "$(cat self)" || fail "the job outlives its killed supervisor"
wait $pauses; wait $paused; code=$?
[ $code -eq 0 ] && [ "$(grep -c "is stopped" paused/out)" -eq 3 ] || fail "exit code $code: short stops were added up"
wait $suspends; wait $suspended; code=$?
[ $code -eq 0 ] && grep -q "is stopped" suspended/out || fail "exit code $code instead of 0 of a job that was suspended with its guardian"
wait_for gone "$(cat obstinate/self)" || fail "a job that ignores TERM outlives its killed supervisor"
gone "$(cat obstinate/daemon)" || fail "a daemon of the job outlives its killed supervisor"
wait_for rmdir obstinate/tmp || fail "the killed supervisor's temporary directory is left: $(ls obstinate/tmp)"

echo "launch/hosts/train: HUP, INT and TERM save and end, USR1 saves and starts again; nothing is left behind"
mkdir bin; printf '#!/bin/sh\necho "$*" > words\nexec bash "%s/job"\n' "$work" > bin/mpirun; chmod +x bin/mpirun; touch hosts
# As from a terminal: what this shell starts in the background ignores INT, and all that is under nohup ignores HUP.
hosts_train() {
  PATH=$work/bin:$PATH HADAL=$hadal env --default-signal=INT,HUP "$source/launch/hosts/train" hosts small.textproto > out 2>&1 &
  script=$!
}
patient='trap "" TERM; trap "echo asked >> asked" USR1; echo $$ > self; touch up; while [ ! -e go ]; do sleep 0.05; done; exit 85'
for signal in HUP INT TERM; do
  job "$patient"; rm -f up go asked; hosts_train
  wait_for test -e up; kill -$signal $script; wait_for test -s asked || fail "$signal did not ask the job"
  [ $signal != HUP ] || for _ in 1 2 3; do kill -HUP $script; sleep 0.3; done
  touch go; wait $script; code=$?
  [ $code -eq 85 ] || fail "launch/hosts/train: exit code $code instead of 85 after $signal"
  grep -q -- "--hostfile hosts --bind-to none -x HADAL_JOB_START .* train small.textproto$" words || { cat words; fail "mpirun got other words"; }
  starts 1; wait_for gone "$(cat self)" || fail "the job outlives launch/hosts/train after $signal"
done
job '[ "$(wc -l < starts)" -eq 1 ] || exit 0; trap "exit 85" USR1; touch up; while :; do sleep 0.05; done'; rm -f up; hosts_train
wait_for test -e up; kill -USR1 $script; wait $script; code=$?
[ $code -eq 0 ] || fail "launch/hosts/train: exit code $code instead of the second start's 0 after USR1"
starts 2
# A time limit's 85 ends it, also after a USR1, and the limit counts from the first start.
job '[ "$(wc -l < starts)" -lt 3 ] || exit 1; exit 85'; hosts_train; wait $script; code=$?
[ $code -eq 85 ] || fail "launch/hosts/train: exit code $code instead of 85 at a time limit"
starts 1
job 'echo $HADAL_JOB_START >> begun; [ "$(wc -l < starts)" -lt 3 ] || exit 1; [ "$(wc -l < starts)" -eq 1 ] || exit 85; sleep 1.1; trap "exit 85" USR1; touch up; while :; do sleep 0.05; done'
rm -f up begun; hosts_train
wait_for test -e up; kill -USR1 $script; wait $script; code=$?
[ $code -eq 85 ] || fail "launch/hosts/train: exit code $code instead of 85 at a time limit after USR1"
starts 2; [ "$(uniq begun | wc -l)" -eq 1 ] || fail "the second start is not of the first one's job"

echo "bad use"
expect 2 env HADAL="$hadal" "$source/launch/hosts/train" hosts; says "usage: "
expect 2 "$hadal" supervise
expect 2 "$hadal" supervise -- "$work/no-such-program"
expect 2 "$hadal" supervise -- bash job --resume never; says "leave it out"; says "move run/checkpoints away"
expect 2 "$hadal" supervise -- bash job --resume=never --run-dir "my run"; says "move my run/checkpoints away"
expect 2 "$hadal" supervise --tries 0 -- bash job
expect 2 "$hadal" supervise --back-off -1s -- bash job; says "is no duration"
expect 2 "$hadal" supervise --stopped-limit 0 -- bash job; says "is no duration"

finished
