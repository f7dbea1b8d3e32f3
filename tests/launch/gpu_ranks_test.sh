#!/usr/bin/env bash
# Ranks with and without GPUs, under mpirun, by a program whose GPUs are emulated: what the doctor says of them, that one rank without a
# GPU ends a job instead of leaving the others' idle, and that a GPU that hangs ends it. Speeds are not judged.
# Usage: gpu_ranks_test.sh HADAL_ON_EMULATED_GPU
set -u
hadal=${1:?usage: gpu_ranks_test.sh HADAL_ON_EMULATED_GPU}
. "$(dirname "$0")/../support/command_test.sh"
export OMPI_MCA_mpi_yield_when_idle=1
probe=(doctor --run-dir run --message-mib 0.01 --file-mib 0.01 --threads 1)
mpi=(mpirun --bind-to none --oversubscribe)
# doctor CODES COMMAND…: as expect, with one of several codes: a busy machine may make a rank slow. What ranks print as errors stands
# behind the other output in `out`, because mpirun may put it into the middle of a line.
doctor() {
  local codes=$1 code; shift
  timeout "$patience" "$@" > out 2> errors; code=$?
  cat errors >> out
  case " $codes " in *" $code "*) ;; *) fail "exit code $code instead of $codes: $*" ;; esac
}

doctor 0 "$hadal" "${probe[@]}"
says '^   0  Emulated GPU  *sm_90  *0000:10:00.0  *16\.0  *16\.0  '; says 'ready for a run'
doctor 0 "$hadal" "${probe[@]}" --device cpu; lacks GPU
doctor 0 env HADAL_EMULATED_GPUS=0 "$hadal" "${probe[@]}"
says '^warning  rank 0 (host .*cannot be used.*no GPU is visible'
[ "$(grep -c GPU out)" -eq 1 ] || fail "a machine without a GPU is told so more than once"
doctor 1 env HADAL_EMULATED_GPUS=0 "$hadal" "${probe[@]}" --device cuda; says '^BAD      rank 0 .*--device cuda requires one'
doctor 0 env HADAL_EMULATED_DRIVER=11040 "$hadal" "${probe[@]}"; says '^warning  .*cannot be used.*CUDA 11.4'

doctor "0 1" env HADAL_EMULATED_GPUS=2 NCCL_IB_DISABLE=1 "${mpi[@]}" -n 2 "$hadal" "${probe[@]}"
says '^   0 .*0000:10:00.0'; says '^   1 .*0000:11:00.0'; lacks 'share one GPU'
says '^note     ranks 0, 1 .*NCCL variables are set: NCCL_IB_DISABLE=1'
doctor "0 1" "${mpi[@]}" -n 2 "$hadal" "${probe[@]}"; says '^warning  ranks 0, 1 .*share one GPU'
doctor 1 env HADAL_EMULATED_GPUS=2 "${mpi[@]}" -n 3 "$hadal" "${probe[@]}"; says '^BAD      ranks 0, 2 .*share one GPU'
doctor 1 env HADAL_EMULATED_GPUS=2 HADAL_EMULATED_QUEUES=8 "${mpi[@]}" -n 2 "$hadal" "${probe[@]}"
says '^BAD      ranks 0, 1 .*runs over NCCL are refused: behind one of 24 streams up to 4 others wait'
printf 'NCCL_MIN_CTAS=16\n' > nccl.conf
doctor 1 env HADAL_EMULATED_GPUS=2 NCCL_CONF_FILE="$PWD/nccl.conf" "${mpi[@]}" -n 2 "$hadal" "${probe[@]}"
says '^BAD      ranks 0, 1 .*runs over NCCL are refused: NCCL_MIN_CTAS=16 in .*nccl.conf'
lame=("${mpi[@]}" -n 1 "$hadal")
doctor 1 "${lame[@]}" "${probe[@]}" : -n 1 env HADAL_EMULATED_GPUS=0 "$hadal" "${probe[@]}"
says '^   1  none: no GPU is visible'; says '^BAD      rank 1 .*no GPU, although other ranks have one'

make_corpus 60 100
cat > tiny.textproto <<'END_OF_CONFIG'
data { train: "data/train" }
model { encoder_layers: 1 decoder_layers: 1 d_model: 16 d_ff: 16 heads: 2 max_positions: 128 }
batch { micro_batches: 2 source_tokens: 128 target_tokens: 128 }
pipeline { threads: 1 }
stop { steps: 1 }
END_OF_CONFIG
train=(train tiny.textproto --run-dir lame)
expect 1 "${lame[@]}" "${train[@]}" : -n 1 env HADAL_EMULATED_GPUS=0 "$hadal" "${train[@]}"
says "rank 1 (host $(hostname)): no GPU is visible.*other ranks can use a GPU"
[ ! -e lame/checkpoints ] || fail "it trained all the same"
train+=(--device cpu)
expect 0 "${lame[@]}" "${train[@]}" : -n 1 env HADAL_EMULATED_GPUS=0 "$hadal" "${train[@]}"

# Few hardware queues, as scripts for Megatron-LM set them. Where no NCCL library is found, that is why it is refused.
expect 2 env HADAL_EMULATED_GPUS=2 CUDA_DEVICE_MAX_CONNECTIONS=1 "${mpi[@]}" -n 2 \
  "$hadal" train tiny.textproto --run-dir queues --set 'pipeline.transport="nccl"'
says 'rank 0: CUDA_DEVICE_MAX_CONNECTIONS is 1, and NCCL needs 32\|rank 0 has no NCCL: '
[ ! -e queues/checkpoints ] || fail "it trained all the same"

# 5,000 operations: beyond those that count hardware queues at the start.
# A GPU that hangs ends its rank, and thereby the job, without MPI_Finalize; whether rank 1 or rank 0, which waits for it, is first, is open.
train=(train tiny.textproto --run-dir hung --set stop.steps=1000 --set pipeline.wait_timeout_seconds=2)
expect 5 env HADAL_EMULATED_HANG=1000 "$hadal" "${train[@]}"
says 'hadal train \[rank 0\]: the device has not finished within 2s: .*; at step [0-9]*, instruction'
grep -q 'end: exit code 5: the device has not finished' hung/logs/rank_00000.log || fail "the log lacks the end"
expect 5 "${lame[@]}" "${train[@]}" : -n 1 env HADAL_EMULATED_HANG=5000 "$hadal" "${train[@]}"
says 'hadal train \[rank [01]\]: .*\(the device has not finished within 2s\|gave up after 2.* rank 1\)'

finished
