#!/usr/bin/env bash
# `hadal supervise --elastic` on hosts that are made up: a host answers while up/HOST exists; all ranks run here. A job that loses a host
# restarts at once on fewer, grows when it is back, and has the bits of an undisturbed run.
# Usage: elastic_test.sh HADAL
set -u
hadal=${1:?usage: elastic_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"
. "$(dirname "$0")/../support/disturbed_job.sh"

make_corpus 400 300
small_config 3 3 32 2 8 "keep_last: 0"
mkdir up
hostfile() { printf 'h%s slots=1\n' "$@" > hosts; }
up() { rm -f up/*; for host in "$@"; do touch "up/h$host"; done; }
supervise=("$hadal" supervise --elastic hosts --probe 'test -e up/{host}' --grow-every 100ms)
nodes_in() { grep -q "starting on $1 host" out; }

echo "a job loses a host, restarts on fewer, and grows"
sed -i 's/micro_batches: 8/micro_batches: 8 sum_groups: 4/' small.textproto
choose_launcher
hostfile 1 2 3 4; up 2 3 4; endless
"${supervise[@]}" -- mpirun "${mpirun_options[@]}" -n {ranks} bash -c 'exec "$@"' {hosts} "$hadal" train small.textproto stop.textproto \
  {layout} --run-dir "$work/run" > out 2>&1 & job=$!
until_ steps_of run 30; until_ grep -q '"event":"checkpoint"' run/metrics.jsonl
grep -q "starting on 3 host(s) (h2 h3 h4), stages x replicas x chunks" out || fail "not started on the hosts that answer"
up 2 3; pkill -KILL -o -f -- "^$hadal train .*--run-dir $work/run\$"
until_ nodes_in 2
says "starting it again from step"
# One host at a time: each host has a probe of its own, and they may look before and after two are back.
until_ trains_again run 2; touch up/h4; until_ trains_again run 3; end_soon run; touch up/h1
wait $job; code=$?
[ $code -eq 0 ] || fail "exit code $code"
for hosts in 3 4; do says "more hosts answer; saving, then continuing on $hosts host(s)"; done
grep -q "starting on 4 host(s) (h1 h2 h3 h4)" out || fail "not started on all hosts in their order"
identical run
python3 - <<'PYTHON' || fail "incarnations.jsonl"
import json
lines = first, second, third, last = [json.loads(line) for line in open("run/incarnations.jsonl")]
assert [len(line["hosts"]) for line in lines] == [3, 2, 3, 4], lines
assert first["first_step"] == 1 and first["end"].startswith("crashed") and "detection_seconds" in first, first
assert second["first_step"] == first["saved_step"] + 1 and "detection_seconds" not in second, second
assert second["repeated_steps"] == first["last_step"] - first["saved_step"] and second["restart_seconds"] >= 0, second
for before, after in ((second, third), (third, last)):
    assert before["end"] == "saved" and after["first_step"] == before["last_step"] + 1, (before, after)
assert last["repeated_steps"] == 0 and last["end"] == "exit code 0", last
PYTHON

echo "the sums keep their groups, a power of two of all hosts"
up 1
sed -i 's/ sum_groups: 4//' small.textproto
expect 0 "${supervise[@]}" -- bash -c 'shift; "$@"' job {ranks}{hostfile} "$hadal" train small.textproto {layout} --set stop.steps=3 --run-dir alone
grep -q 'sum_groups: [24]$' alone/config.resolved.textproto || fail "$(grep sum_groups alone/config.resolved.textproto)"

hostfile 1 2 3
# job TEXT: a job that counts its starts, with its hosts, in `starts`, and then does TEXT.
job() { printf 'echo "$1" >> starts\n%s\n' "$1" > job; : > starts; }
begins='echo start 0 run >> "$HADAL_SUPERVISOR_REPORT"; '
fails='echo end 2 >> "$HADAL_SUPERVISOR_REPORT"; exit 2'
ends="$begins"'echo end 0 >> "$HADAL_SUPERVISOR_REPORT"; exit 0'
made_up=(-- bash job {hosts} {ranks} train small.textproto {layout})
job 'exit 2'; up 1; expect 2 "${supervise[@]}" "${made_up[@]}" --run-dir alone
! tail -n 1 alone/incarnations.jsonl | grep first_step || fail "a start that trained nothing has the steps of the one before"
job 'mkdir -p timed; printf "{\"event\":\"%s}\n" "run\",\"first_step\":1" "step\",\"step\":5,\"elapsed_seconds\":1e6" > timed/metrics.jsonl; [ $(wc -l < starts) -gt 1 ] || exit 137; '"$ends"
expect 0 "${supervise[@]}" --back-off 0 "${made_up[@]}" --run-dir timed
tail -n 1 timed/incarnations.jsonl | grep -q '"restart_seconds":0.0,' || fail "the first step began 1e6 seconds before the last: $(cat timed/incarnations.jsonl)"
echo "crashes on the same hosts use up the tries, on others they do not"
job 'exit 137'; up 1 2 3; expect 6 "${supervise[@]}" --back-off 0 "${made_up[@]}"
[ "$(sort starts | uniq -c | tr -s ' \n' ' ')" = " 3 h1,h2,h3 " ] || fail "$(cat starts)"
job 'case $(wc -l < starts) in 1) rm up/h3; exit 0 ;; 2) '"$begins"'rm up/h2 ;; 3) touch up/h2; exit 2 ;; 4) '"$ends"' ;; esac; exit 137'; up 1 2 3
expect 0 "${supervise[@]}" --tries 1 --back-off 1h "${made_up[@]}"
[ "$(tr '\n' ' ' < starts)" = "h1,h2,h3 h1,h2 h1 h1,h2 " ] || fail "$(cat starts)"
job 'rm up/h3 2> /dev/null || touch up/h3; exit 137'; up 1 2 3; expect 6 "${supervise[@]}" --tries 1 --back-off 0 "${made_up[@]}"
[ "$(wc -l < starts)" -eq 6 ] || fail "hosts that come and go: $(cat starts)"
job 'n=$(wc -l < starts); printf "start 0 /none\nsaved $n\n" >> "$HADAL_SUPERVISOR_REPORT"; [ $n -lt 9 ] || { '"$fails"'; }; rm up/h3 2> /dev/null || touch up/h3; exit 137'
up 1 2 3; expect 2 "${supervise[@]}" --tries 1 --back-off 1h "${made_up[@]}"

echo "too few hosts are waited for"
job 'n=$(wc -l < starts); [ $n -gt 1 ] || rm up/h2; [ $n -gt 2 ] || exit 137; '"$ends"; up 1 2 3; : > out
"${supervise[@]}" --back-off 0 -- bash job {hosts} {ranks} train small.textproto --set batch.sum_groups=6 {layout} > out 2>&1 & job=$!
until_ grep -q "probing the hosts again in 1s" out
says "too few hosts answer (h1 h3): "; says "batch.sum_groups"; says "to see why not h2: test -e up/h2"; says "the job crashed (exit code 137)"
up 1 2 3; wait $job; code=$?
[ $code -eq 0 ] && [ "$(uniq starts)" = "h1,h2,h3" ] || fail "exit code $code, starts on $(cat starts)"
says "starting it again from"  # the second crash, on the same hosts

echo "more hosts that make no step faster are left out"
echo 'memory_gib: 8 memory_gb_per_second: 20 fp32 { peak_tflops: 0.1 } inter_node { gb_per_second: 1 latency_microseconds: 1e6 }' > far
job "$begins"'touch up/h2; until [ "$(wc -l < answered)" -ge 2 ]; do sleep 0.05; done; '"$fails"; up 1; : > answered
expect 2 "$hadal" supervise --elastic hosts --probe 'test -e up/{host} && { [ {host} = h1 ] || echo >> answered; }' --grow-every 100ms "${made_up[@]}" --machine far
[ "$(cat starts)" = h1 ] || fail "it has grown: $(cat starts)"

echo "the ranks of a host share its memory"
echo h1 slots=1000000 > hosts; expect 1 "${supervise[@]}" "${made_up[@]}" --set model.d_model=512; says "fits 1000000 device(s) of 0.00 GiB"

echo "a host has as many ranks as slots"
printf '#h3 slots=1\nh%s slots=2 # cores\n' 1 2 > hosts; up 1 2; job 'echo "$2 ranks on $3 hosts: $(paste -sd , "$4")"; '"$ends"
expect 0 "${supervise[@]}" -- bash job {hosts} {ranks} {nodes} {hostfile} train small.textproto {layout}; says "^4 ranks on 2 hosts: h1 slots=2,h2 slots=2$"

echo "this host needs no probe"
printf '%s slots=1\n' localhost "$(hostname | cut -d. -f1).example" > hosts; job "$ends"
expect 0 "$hadal" supervise --elastic hosts "${made_up[@]}"; says "starting on 2 host(s) (localhost "

echo "bad use"
expect 2 "${supervise[@]}" -- bash job {ranks} {hosts} train small.textproto; says "{layout}"
expect 2 "${supervise[@]}" -- bash job {ranks} {layout} train small.textproto; says "{hostfile} or {hosts}"
expect 2 "${supervise[@]}" -- bash job {ranks} {hosts} {layout}; says "no .hadal train"
expect 2 "${supervise[@]}" "${made_up[@]}" --device cuda; says "give .hadal train. --machine FILE"
echo h1 > hosts; expect 2 "${supervise[@]}" "${made_up[@]}"; says "each host is named once, with slots=N"
printf '\xef\xbb\xbfh1 slots=1\n' > hosts; expect 2 "${supervise[@]}" "${made_up[@]}"; says "its name is printable ASCII"
: > hosts; expect 2 "${supervise[@]}" "${made_up[@]}"; says "names no host"
printf '#!/bin/sh\n[ $# -lt 3 ] || echo "$3"\n' > scontrol; chmod +x scontrol
slurm=(env PATH="$PWD:$PATH" "$hadal" supervise --elastic slurm "${made_up[@]}")
SLURM_JOB_NODELIST= expect 2 "${slurm[@]}"; says "this is no Slurm job"
SLURM_JOB_NODELIST=n SLURM_TASKS_PER_NODE='2(x3),1' expect 2 "${slurm[@]}"; says "slots=2(x3),1.*as --ntasks-per-node gives it"
job 'echo "overlap $SLURM_OVERLAP"; '"$ends"; SLURM_JOB_NODELIST=$(hostname) SLURM_TASKS_PER_NODE=1 expect 0 "${slurm[@]}"; says "^overlap 1$"
for same in h1 H1 user@h1 h1.example; do
  printf '%s slots=1\n' h1 h2 $same > hosts; expect 2 "${supervise[@]}" "${made_up[@]}"; says "$same slots=1.: each host is named once"
done

finished
