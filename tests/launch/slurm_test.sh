#!/usr/bin/env bash
# launch/slurm/train.sbatch on a real Slurm: signalled in the middle of a run it saves, leaves with 85, is requeued, resumes, and ends
# with the weights of an undisturbed run, under mpirun and under srun; so does one that loses a rank where HADAL_REQUEUE_ON says so, a bounded
# number of times; ranks get the CPUs and the environment of the submission. Skipped (code 77) where no Slurm can be started.
# Usage: slurm_test.sh HADAL SOURCE_DIR
set -u
hadal=${1:?usage: slurm_test.sh HADAL SOURCE_DIR}
source=${2:?usage: slurm_test.sh HADAL SOURCE_DIR}
. "$source/tests/support/slurm_lab.sh"
. "$(dirname "$0")/../support/command_test.sh"
. "$(dirname "$0")/../support/disturbed_job.sh"

echo "what the scripts refuse, before any Slurm is asked"
for limit in ten -1 1.5 "1 2" 12345678901234567890; do
  expect 2 env HADAL=false HADAL_REQUEUE_LIMIT="$limit" bash "$source/launch/slurm/train.sbatch" x
  says "HADAL_REQUEUE_LIMIT=$limit: expected a number"
done
expect 2 env HADAL=false bash "$source/launch/slurm/train.sbatch"; says "usage: "
expect 1 env -u HADAL bash "$source/launch/slurm/train.sbatch" x; says "HADAL: is not set"
expect 2 env HADAL=false HADAL_LAUNCHER=ssh SLURM_JOB_ID=1 SLURM_NTASKS=1 SLURM_JOB_NODELIST=n bash "$source/launch/slurm/train.sbatch" x
says "HADAL_LAUNCHER=ssh: expected srun, mpirun or elastic"
echo "asked to leave before the ranks listen, or before there are any, a job goes back into the queue"
# A Slurm that requeues a job by ending its script.
mkdir bin
printf '#!/bin/sh\necho "$*" >> requeued\nkill -TERM $PPID\n' > bin/scontrol
printf '#!/bin/bash\neval "$LAUNCHED"\n' > bin/srun
chmod +x bin/*
# stubbed CODE LAUNCHED: runs the script, with a launcher that does LAUNCHED.
stubbed() {
  rm -f requeued
  expect "$1" env PATH="$work/bin:$PATH" HADAL="$work/bin/srun" SLURM_JOB_ID=7 SLURM_NTASKS=1 SLURM_JOB_NODELIST=n LAUNCHED="$2" \
    bash "$source/launch/slurm/train.sbatch" x
}
requeued() { [ "$(cat requeued 2> /dev/null)" = "requeue 7" ] || fail "the job was not put back into the queue once"; }
listen='trap "exit 85" USR1; while :; do sleep 0.05; done'
echo 'kill -USR1 $$' > site.env
stubbed 143 'sleep 60'; says "asked to save"; says "ended with code 138"; requeued
stubbed 143 "$listen"; requeued
HADAL_LEAST_TASKS=4 stubbed 143 "$listen"; requeued
SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=3 stubbed 143 "$listen"
[ "$(cat requeued)" = "requeue 7_3" ] || fail "a task of an array puts all tasks back into the queue"
HADAL_LAUNCHER=elastic HADAL_LEAST_TASKS=4 stubbed 85 "$listen"
[ "$(paste -sd ' ' requeued)" = "requeue 7 update JobId=7 NumTasks=4" ] || fail "a requeued job does not ask for HADAL_LEAST_TASKS"
echo > site.env
stubbed 143 "kill -USR1 \$PPID; $listen"; requeued
stubbed 143 "trap '' USR1; kill -USR1 \$PPID; sleep 1; $listen"; says "ended with code 85"; requeued
SLURM_RESTART_COUNT=10 stubbed 85 "kill -USR1 \$PPID; $listen"; says "not requeued: start 11"; [ ! -e requeued ] || fail "a job whose limit leaves no time is requeued"
SLURM_RESTART_COUNT=9 stubbed 143 "kill -USR1 \$PPID; $listen"; requeued
stubbed 1 'trap "" USR1; kill -USR1 $PPID; sleep 0.5; exit 1'; [ ! -e requeued ] || fail "ranks have failed, and the job was requeued"
stubbed 138 'kill -USR1 $$'; [ ! -e requeued ] || fail "nobody asked, and the job was requeued"
echo "a code of 0 is an end only if a rank says so: Open MPI 5's mpirun returns it when it loses a node"
reports='report() { echo "$*" >> "$HADAL_SUPERVISOR_REPORT"; }; report start 0 /r; '
stubbed 205 "$reports"; says "ended with code 205"; [ ! -e requeued ] || fail "a lost node is requeued, unasked"
HADAL_REQUEUE_ON=205 stubbed 143 "$reports"; requeued
stubbed 143 "${reports}report end 85"; requeued
stubbed 6 "${reports}report end 85; report end 6"
stubbed 0 "${reports}report end 0"
grep -q '^#SBATCH --signal=B:USR1@300$' "$source/launch/slurm/train.sbatch" || fail "no signal before the time limit"
cp bin/srun bin/mpirun
HADAL_SRUN_OPTIONS=--mpi=pmix stubbed 0 'echo "with $*"'; says "^with --kill-on-bad-exit=0 --wait=30 --mpi=pmix $work/bin/srun train x$"
HADAL_LAUNCHER=mpirun HADAL_MPIRUN_OPTIONS="--bind-to none" stubbed 0 'echo "with $*"'; says "^with --bind-to none $work/bin/srun train x$"
HADAL_LAUNCHER=elastic HADAL_SUPERVISE_OPTIONS="--tries 2" HADAL_MPIRUN_OPTIONS="--bind-to none" stubbed 0 'echo "with $*"'
says "^with supervise --tries 2 --elastic slurm -- mpirun -np {ranks} --hostfile {hostfile} --bind-to none $work/bin/srun train x {layout}$"
expect 0 env -u HADAL_LAUNCHER -u HADAL_SRUN_OPTIONS bash -c '. "$1/launch/slurm/site.env" && env' - "$source"
for set in SITE_ENV="$(readlink -f "$source/launch/slurm/site.env")" LAUNCHER=srun SRUN_OPTIONS=--mpi=pmix REQUEUE_LIMIT=10; do says "^HADAL_$set$"; done
rm site.env
# One line of the layouts after the other, with a launcher that only says how it was called.
printf 'one 1\r\ntwo 2 --set a=b' > layouts.txt
task() { expect "$1" env -u SRUN_CPUS_PER_TASK HADAL=program HADAL_LAUNCHER="$2" SLURM_ARRAY_TASK_ID="$3" bash "$source/launch/slurm/sweep.sbatch" layouts.txt x; }
mpirun() { echo "mpirun $*"; echo "CPUs: $(printenv SRUN_CPUS_PER_TASK)"; }
export -f mpirun
SLURM_CPUS_PER_TASK=2 task 0 mpirun 1; says "^mpirun -n 1 program train x --run-dir sweep/runs/one$"; says "^CPUs: $"
task 0 mpirun 2; says "^mpirun -n 2 program train x --run-dir sweep/runs/two --set a=b$"  # the line lacks its end
task 2 mpirun 3; says "layouts.txt has no line 3"
task 2 ssh 1; says "HADAL_LAUNCHER=ssh: expected srun or mpirun"
unset -f mpirun
srun() { echo "srun $*"; echo "CPUs: $(printenv SRUN_CPUS_PER_TASK)"; }
export -f srun
SLURM_NTASKS=16 SLURM_JOB_NUM_NODES=4 task 0 srun 2; says "^srun -N 1 -n 2 .* program train x --run-dir sweep/runs/two --set a=b$"
SLURM_NTASKS=3 SLURM_JOB_NUM_NODES=3 task 0 srun 2; says "^srun -N 2 -n 2 "
SLURM_NTASKS=3 SLURM_JOB_NUM_NODES=2 task 0 srun 2; says "^srun -N 1 -n 2 "
SLURM_CPUS_PER_TASK=2 task 0 srun 1; says "^srun -n 1 "; says "^CPUs: 2$"
unset -f srun
[ $failures -eq 0 ] || finished
missing=$(slurm_lab_missing)
[ -z "$missing" ] || { echo "SKIPPED: $missing"; exit 77; }
clean_up() { slurm_lab_down; }
chmod 755 "$work"

make_corpus 400 300
small_config 4 4 64 4 4 "keep_last: 0"
slurm_lab_up "$work/lab" || { echo "FAILED: Slurm does not start"; exit 1; }

# Tasks that do not find each other say so once, and do not train.
srun --nodes 2 --ntasks 2 --mpi=none "$hadal" train small.textproto --set stop.steps=20 --run-dir run-alone > alone.log 2>&1
code=$?
[ $code -eq 2 ] || fail "srun without MPI ended with $code"
[ "$(grep -c 'srun --mpi=pmix' alone.log)" -eq 1 ] || { fail "srun without MPI was not explained once"; cat alone.log; }
[ ! -e run-alone/checkpoints ] || fail "srun without MPI trained"

export HADAL=$hadal
state_of() { scontrol show job "$1" | grep -o 'JobState=[A-Z]*' | cut -d= -f2; }
# until_ended JOB: waits, three minutes at most, and prints how it ended.
until_ended() {
  local state
  for _ in $(seq 1800); do
    state=$(state_of "$1")
    case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) break ;; esac
    sleep 0.1
  done
  echo "$state"
}
# stand_in TEXT: makes a program that says what it was started with, and then does TEXT, the program of jobs to come.
stand_in() {
  printf '#!/usr/bin/env bash\necho "rank $SLURM_PROCID on $(nproc) CPUs, mark ${MARK:-none}"\n%s\n' "$1" > stand-in
  chmod +x stand-in
  export HADAL=$work/stand-in HADAL_LAUNCHER=srun HADAL_SRUN_OPTIONS=
}
submit() { sbatch --parsable --nodes 2 --ntasks-per-node 1 "$@"; }

for launcher in mpirun srun; do
  echo "$launcher"
  export HADAL_LAUNCHER=$launcher HADAL_SRUN_OPTIONS=--mpi=pmix HADAL_MPIRUN_OPTIONS="--bind-to none"
  endless
  job=$(sbatch --parsable --nodes 2 --ntasks 2 --output job-$launcher.log "$source/launch/slurm/train.sbatch" small.textproto stop.textproto \
    --run-dir run-$launcher)
  until_ steps_of run-$launcher 5
  end_soon run-$launcher; scancel --batch --signal=USR1 "$job"
  state=$(until_ended "$job")
  [ "$state" = COMPLETED ] || fail "job $job ended as $state"
  scontrol show job "$job" | grep -q 'Restarts=1' || fail "the job was not requeued exactly once"
  grep -q 'ended with code 85' job-$launcher.log || fail "the first start did not end with 85"
  grep -q 'ended with code 0' job-$launcher.log || fail "the second start did not finish"
  identical run-$launcher
  [ $failures -eq 0 ] || { tail -n 20 job-$launcher.log; break; }
done

echo "a rank is killed, HADAL_REQUEUE_ON has its code"
export HADAL_LAUNCHER=mpirun
endless
job=$(HADAL_REQUEUE_ON="5 6 137 205" submit --output job-crash.log "$source/launch/slurm/train.sbatch" small.textproto stop.textproto --run-dir run-crash)
until_ test -e run-crash/checkpoints/latest
end_soon run-crash; kill -KILL "$(pgrep -f -- "^$hadal train .*--run-dir run-crash\$" | head -n 1)"
state=$(until_ended "$job")
[ "$state" = COMPLETED ] || fail "the job with the killed rank ended as $state"
grep -q 'ended with code 137' job-crash.log || fail "a killed rank's code is not 137"
grep -q 'start 2: 2 ranks' job-crash.log || fail "the job was not started again"
identical run-crash
[ $failures -eq 0 ] || tail -n 20 job-crash.log

echo "requeued so often and no more, and only after the codes that are named"
stand_in 'exit 6'
again=$(HADAL_REQUEUE_ON="5 6" HADAL_REQUEUE_LIMIT=1 submit --output again.log "$source/launch/slurm/train.sbatch" x)
other=$(HADAL_REQUEUE_ON="5 16 60" submit --output other.log "$source/launch/slurm/train.sbatch" x)
none=$(submit --output none.log "$source/launch/slurm/train.sbatch" x)
for job in "$again" "$other" "$none"; do
  state=$(until_ended "$job")
  [ "$state" = FAILED ] || fail "a job whose ranks end with code 6 ended as $state"
done
[ "$(grep -c 'ended with code 6' again.log)" -eq 2 ] && grep -q 'not requeued: started again 1 times' again.log ||
  { fail "HADAL_REQUEUE_LIMIT=1 is not one more start"; cat again.log; }
for name in other none; do
  [ "$(grep -c 'ended with code 6' $name.log)" -eq 1 ] || { fail "$name: requeued unasked"; cat $name.log; }
done

echo "a rank has the CPUs and the site's environment, where sbatch exports none as well"
slurm_lab_down
if [ "$(nproc)" -ge 2 ]; then
  slurm_lab_up "$work/bound" task/affinity || { echo "FAILED: Slurm does not start"; exit 1; }
  stand_in 'exit 0'
  printf 'export HADAL=%s HADAL_SRUN_OPTIONS=--cpu-bind=cores MARK=site\n' "$work/stand-in" > site.env
  state=$(until_ended "$(submit --cpus-per-task 2 --export=NONE --output cpus.log "$source/launch/slurm/train.sbatch" x)")
  [ "$state" = COMPLETED ] && [ "$(grep -c '^rank [01] on 2 CPUs, mark site$' cpus.log)" -eq 2 ] ||
    { fail "train.sbatch: ranks have not what was asked for ($state)"; cat cpus.log; }
  printf 'one 2\n' > layouts.txt
  state=$(until_ended "$(submit --cpus-per-task 2 --array=1 --output cpus.log "$source/launch/slurm/sweep.sbatch" layouts.txt x)")
  [ "$state" = COMPLETED ] && [ "$(grep -c '^rank [01] on 2 CPUs, mark site$' cpus.log)" -eq 2 ] ||
    { fail "sweep.sbatch: ranks have not what was asked for ($state)"; cat cpus.log; }
fi

finished
