#!/usr/bin/env bash
# launch/slurm/train.sbatch on a real Slurm: signalled in the middle of a run it saves, leaves with 85, is requeued, resumes, and ends
# with the weights of an undisturbed run, under mpirun and under srun. Skipped (code 77) where no Slurm can be started.
# Usage: slurm_test.sh HADAL SOURCE_DIR
set -u
hadal=${1:?usage: slurm_test.sh HADAL SOURCE_DIR}
source=${2:?usage: slurm_test.sh HADAL SOURCE_DIR}
. "$source/tests/support/slurm_lab.sh"
missing=$(slurm_lab_missing)
[ -z "$missing" ] || { echo "SKIPPED: $missing"; exit 77; }

. "$(dirname "$0")/../support/command_test.sh"
clean_up() { slurm_lab_down; }
chmod 755 "$work"

make_corpus 400 300
cat > small.textproto <<'END'
data { train: "data/train" }
model { encoder_layers: 4 decoder_layers: 4 d_model: 64 d_ff: 128 heads: 4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 4 source_tokens: 128 target_tokens: 128 }
pipeline { threads: 1 }
stop { steps: 150 }
END
OMPI_MCA_btl= "$hadal" train small.textproto --run-dir unbroken > unbroken.log 2>&1 || { tail unbroken.log; exit 1; }
slurm_lab_up "$work/lab" || { echo "FAILED: Slurm does not start"; exit 1; }

# Tasks that do not find each other say so once, and do not train.
srun --nodes 2 --ntasks 2 --mpi=none "$hadal" train small.textproto --run-dir run-alone > alone.log 2>&1
code=$?
[ $code -eq 2 ] || fail "srun without MPI ended with $code"
[ "$(grep -c 'srun --mpi=pmix' alone.log)" -eq 1 ] || { fail "srun without MPI was not explained once"; cat alone.log; }
[ ! -e run-alone/checkpoints ] || fail "srun without MPI trained"

export HADAL=$hadal
steps_of() { grep -c '"event":"step"' "$1/metrics.jsonl" 2> /dev/null || true; }
state_of() { scontrol show job "$1" | grep -o 'JobState=[A-Z]*' | cut -d= -f2; }

for launcher in mpirun srun; do
  echo "$launcher"
  export HADAL_LAUNCHER=$launcher HADAL_SRUN_OPTIONS=--mpi=pmix HADAL_MPIRUN_OPTIONS="--bind-to none"
  job=$(sbatch --parsable --nodes 2 --ntasks 2 --output job-$launcher.log "$source/launch/slurm/train.sbatch" small.textproto --run-dir run-$launcher)
  for _ in $(seq 600); do
    steps=$(steps_of run-$launcher)
    [ "${steps:-0}" -ge 5 ] && break
    sleep 0.05
  done
  scancel --batch --signal=USR1 "$job"
  for _ in $(seq 900); do
    case $(state_of "$job") in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) break ;; esac
    sleep 0.1
  done
  [ "$(state_of "$job")" = COMPLETED ] || fail "job $job ended as $(state_of "$job")"
  scontrol show job "$job" | grep -q 'Restarts=1' || fail "the job was not requeued exactly once"
  grep -q 'ended with code 85' job-$launcher.log || fail "the first start did not end with 85"
  grep -q 'ended with code 0' job-$launcher.log || fail "the second start did not finish"
  "$hadal" checkpoint diff unbroken/checkpoints/step_00000150 run-$launcher/checkpoints/step_00000150 > diff.log 2>&1 ||
    { fail "the weights differ from an undisturbed run's"; tail -n 3 diff.log; }
  [ $failures -eq 0 ] || { tail -n 20 job-$launcher.log; break; }
done

finished
