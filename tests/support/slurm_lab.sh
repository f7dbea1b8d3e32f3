# A private Slurm on this machine for tests: two nodes that are two slurmd of one host, on the loopback interface. Sourced.
#   slurm_lab_missing         prints why it cannot be had here; nothing when it can
#   slurm_lab_up DIRECTORY [TASK_PLUGIN]   starts it; everything it writes is there; sets SLURM_CONF and what Open MPI needs.
#                             task/none (default): ranks run on any CPU; task/affinity: where srun --cpu-bind says, on both nodes' the same CPUs
#                             With SLURM_LAB_ENTER, a program that runs `ENTER HOST COMMAND…`, the nodes are hosts h1 and h2 of
#                             host_lab.sh, and the controller runs on h3
#   slurm_lab_down            stops the processes whose ids are in its pid files
# cred_expire is also how long a requeued job waits before it may start again; below 5 s Slurm was seen to wait two minutes.
# No cgroups, no accounting. Nodes of one host share /dev/shm, so MPI's shared memory is switched off between them.

slurm_lab_missing() {
  local program
  for program in munged slurmctld slurmd sbatch srun scontrol mpirun; do
    command -v $program > /dev/null || { echo "$program is not installed (Debian: slurm-wlm, munge)"; return; }
  done
  [ "$(id -u)" -eq 0 ] || echo "a Slurm of one's own needs root"
}

slurm_lab_here() { "${@:2}"; }
slurm_lab_up() {
  lab=$1
  local enter=${SLURM_LAB_ENTER:-slurm_lab_here} node nodes=(n1 n2)
  local base=$((20000 + RANDOM % 12000))  # ports below the ephemeral ones: one for the controller, one a node
  local controller="$(hostname -s)(127.0.0.1)" timeout=300
  local definition="NodeName=n[1-2] NodeHostname=$(hostname -s) NodeAddr=127.0.0.1 Port=[$((base + 1))-$((base + 2))]"
  if [ -n "${SLURM_LAB_ENTER:-}" ]; then
    nodes=(h1 h2) controller='h3(10.77.0.3)' timeout=30
    definition="NodeName=h[1-2] NodeAddr=10.77.0.[1-2] Port=$((base + 1))"
  else
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
    export OMPI_MCA_btl=self,tcp OMPI_MCA_btl_tcp_if_include=lo OMPI_MCA_oob_tcp_if_include=lo
  fi
  mkdir -p "$lab"/{munge,state,log,run} "${nodes[@]/#/$lab/spool/}" "${nodes[@]/#/$lab/tmp/}"
  chmod 755 "$lab" "$lab/run"; chmod 700 "$lab/munge"
  head -c 128 /dev/urandom > "$lab/munge/key"; chmod 400 "$lab/munge/key"
  cat > "$lab/slurm.conf" <<END
ClusterName=lab
SlurmctldHost=$controller
SlurmctldPort=$base
SlurmUser=root
SlurmdUser=root
SlurmdParameters=config_overrides
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$lab/run/munge.socket,cred_expire=5
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$lab/state
SlurmdSpoolDir=$lab/spool/%n
TmpFS=$lab/tmp/%n
SlurmctldPidFile=$lab/run/slurmctld.pid
SlurmdPidFile=$lab/run/slurmd-%n.pid
SlurmctldLogFile=$lab/log/slurmctld.log
SlurmdLogFile=$lab/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=${2:-task/none}
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerParameters=sched_interval=2,bf_interval=2
MpiDefault=none
ReturnToService=2
JobRequeue=1
KillWait=5
SlurmdTimeout=$timeout
$definition CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
  export SLURM_CONF=$lab/slurm.conf
  munged --force --key-file="$lab/munge/key" --socket="$lab/run/munge.socket" --pid-file="$lab/run/munged.pid" \
    --log-file="$lab/log/munged.log" --seed-file="$lab/munge/seed" --num-threads=2 || return 1
  $enter h3 slurmctld -i || return 1
  for node in "${nodes[@]}"; do $enter $node slurmd -N $node || return 1; done
  for _ in $(seq 1200); do
    [ "$($enter h3 sinfo -h -t idle -o %D 2> /dev/null)" = 2 ] && return 0
    sleep 0.1
  done
  $enter h3 sinfo; tail -n 5 "$lab"/log/*; return 1
}

slurm_lab_down() {
  local file
  for file in "$lab"/run/slurmd-*.pid "$lab"/run/slurmctld.pid "$lab"/run/munged.pid; do
    [ -s "$file" ] && kill "$(cat "$file")" 2> /dev/null
  done
}
