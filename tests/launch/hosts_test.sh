#!/usr/bin/env bash
# Training over several hosts by mpirun and TCP (tests/support/host_lab.sh: network namespaces): on 2 and on 4 hosts the weights are those
# of one process; a host that is cut off in the middle of a run ends the job in time and by name, and the supervisor starts it again.
# Skipped (code 77) where no such hosts can be made.  Usage: hosts_test.sh HADAL SOURCE_DIR
set -u
hadal=${1:?usage: hosts_test.sh HADAL SOURCE_DIR}
source=${2:?usage: hosts_test.sh HADAL SOURCE_DIR}
. "$source/tests/support/host_lab.sh"
missing=$(host_lab_missing)
[ -z "$missing" ] || { echo "SKIPPED: $missing"; exit 77; }

. "$(dirname "$0")/../support/command_test.sh"
. "$(dirname "$0")/../support/disturbed_job.sh"
clean_up() { host_lab_down; }
nobody_left() { ! pgrep -f -- "^$hadal train .*--run-dir $1\$"; }

make_corpus 400 300
small_config 3 3 32 2 4 "keep_last: 0"
stop_at 100

choose_launcher
[ "$launcher" != MPICH ] || { echo "SKIPPED: launch/hosts/train has options of Open MPI's mpirun"; exit 77; }
host_lab_up 4 "$work/lab" || { echo "FAILED: no hosts"; exit 1; }
export HADAL=$hadal
hostfile() { printf 'h%s slots=1\n' "$@" > hosts; }
# train RUN [OPTION…]: launch/hosts/train, started on h1, in the background; output to `out`.
train() {
  local run=$1; shift
  host_lab_on h1 timeout "$patience" "$source/launch/hosts/train" "$work/hosts" "$work/small.textproto" "$work/stop.textproto" "$@" --run-dir "$work/$run" > out 2>&1 &
  job=$!
}

hostfile 1 2
train two; wait $job || fail "two hosts: exit code $?"
identical two
hostfile 1 2 3 4
train four; wait $job || fail "four hosts: exit code $?"
identical four
train grid --set pipeline.replicas=2 --set 'pipeline.placement=\"stages_together\"' --set stop.steps=5; wait $job || fail "2 x 2: exit code $?"
grep -q "h3 *rank 2 *stage 0: replica 1" out || fail "no map of the grid on the hosts"
host_lab_on h1 mpirun --hostfile "$work/hosts" --bind-to none "$hadal" doctor > out 2>&1  # on a busy machine it may find a link slow
for host in h1 h2 h3 h4; do grep -q " $host " out || fail "doctor does not name $host"; done
echo "2 and 4 hosts: the weights of one process"

# Bare mpirun with the supervisor's keepalive and a host that never comes back: the job ends, and within the keepalive's time.
hostfile 1 2
keepalive=({OMPI,PRTE}_MCA_oob_tcp_keepalive_{time=5,intvl=2,probes=3})
host_lab_on h1 timeout "$patience" env "${keepalive[@]}" mpirun --hostfile "$work/hosts" --bind-to none "$hadal" train "$work/small.textproto" \
  --set stop.steps=100000000 --run-dir "$work/cut" > out 2>&1 &
job=$!
until_ steps_of cut 30; begin=$SECONDS; host_lab_cut h2
wait $job; code=$?; took=$((SECONDS - begin))
[ $code -eq $lost ] || fail "a host cut off: exit code $code instead of $lost"
[ $took -le 60 ] || fail "a host cut off: noticed after $took s"
grep -qi "lost communication" out && grep -q h2 out || fail "the lost host is not named"
until_ nobody_left "$work/cut"
host_lab_mend h2
echo "a host cut off, bare mpirun: exit code $code after $took s, no rank left"

# Supervised: it starts again when the host is there again, and ends with the same bits.
endless; train supervised
until_ steps_of supervised 30; end_soon supervised; begin=$SECONDS; host_lab_cut h2
until_ grep -q "starting it again" out; took=$((SECONDS - begin)); host_lab_mend h2
wait $job; code=$?
[ $code -eq 0 ] || fail "a host cut off, supervised: exit code $code"
identical supervised
echo "a host cut off, supervised: started again after $took s, same bits"

# Elastic: the job continues without the host, and with it when it answers again. It answers if it refuses a connection.
sed -i 's/micro_batches: 4/micro_batches: 4 sum_groups: 2/' small.textproto; rm -rf unbroken
printf '#!/bin/sh\nLC_ALL=C timeout 2 bash -c "</dev/tcp/$1/9" 2>&1 | grep -q refused\n' > answers; chmod +x answers
hostfile 1 2 3; endless
host_lab_on h1 timeout "$patience" "$hadal" supervise --elastic "$work/hosts" --grow-every 1s --probe "'$work/answers {host}'" -- \
  mpirun --hostfile {hostfile} -np {ranks} --bind-to none "$hadal" train "$work/small.textproto" "$work/stop.textproto" {layout} \
  --run-dir "$work/elastic" > out 2>&1 &
job=$!
until_ steps_of elastic 30; begin=$SECONDS; host_lab_cut h3
until_ grep -q "starting on 2 host(s) (h1 h2)" out; took=$((SECONDS - begin))
until_ trains_again elastic 2; end_soon elastic; host_lab_mend h3
wait $job; code=$?
[ $code -eq 0 ] || fail "elastic: exit code $code"
says "continuing on 3 host(s) (h1 h2 h3)"
identical elastic
echo "a host cut off, elastic: continued on two after $took s, then with three, same bits"

finished
