# What the tests share that disturb a job which trains; sourced after command_test.sh. $hadal: the program.
# A job has small.textproto and stop.textproto. One that is to be disturbed has no end, however fast the machine; started again after
# `end_soon RUN`, it ends soon after the steps that RUN has done.

# choose_launcher: what a test must know of the mpirun that is first in PATH: $mpirun_options; $killed and $lost, its exit codes for a rank that
# is killed and for a host that is cut off. Another MPI than the system's: PATH=ITS/bin:$PATH TEST.sh HADAL, with a hadal built for it (one of
# Open MPI 4.1 runs with the libraries of 5, too: LD_LIBRARY_PATH=ITS/lib).
choose_launcher() {
  launcher=$(mpirun --version 2> /dev/null | sed -nE 's/^mpirun \(Open MPI\) /Open MPI /p; s/^HYDRA.*/MPICH/p')
  mpirun_options=(--bind-to none --oversubscribe) killed=137 lost=205
  case $launcher in
    "Open MPI 5"*) lost=0; export OMPI_MCA_mpi_yield_when_idle=1 ;;  # 4 sets it for more ranks than cores
    MPICH) mpirun_options=(-bind-to none) killed=9 ;;
  esac
  echo "launcher: $launcher"
}

# small_config ENCODER_LAYERS DECODER_LAYERS D_MODEL HEADS MICRO_BATCHES [MORE]: writes small.textproto, for the corpus of make_corpus.
small_config() {
  cat > small.textproto <<END_OF_CONFIG
data { train: "data/train" }
model { encoder_layers: $1 decoder_layers: $2 d_model: $3 d_ff: $(($3 * 2)) heads: $4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: $5 source_tokens: 128 target_tokens: 128 }
pipeline { threads: 1 wait_timeout_seconds: 60 }
learning_rate { peak: 1e-3 warmup_updates: 4 }
checkpoint { every_steps: 20 ${6:-} }
END_OF_CONFIG
}
stop_at() { echo "stop { steps: $1 }" > stop.textproto; }
endless() { stop_at 100000000; }
end_soon() { stop_at $(($(grep -c '"event":"step"' "$1/metrics.jsonl") / 20 * 20 + 60)); }
steps_of() { grep -q "\"event\":\"step\",\"step\":$2," "$1/metrics.jsonl"; }  # RUN STEP: whether it has done that step
trains_again() { [ "$(grep -c '"event":"run"' "$1/metrics.jsonl")" -ge "$2" ]; }  # RUN N: whether N of its starts have trained
# until_ COMMAND…: waits for it to succeed, at most half of $patience.
until_() { local n=$((patience * 10)); until "$@" > /dev/null 2>&1; do [ $((n--)) -gt 0 ] || { fail "waited in vain: $*"; return 1; }; sleep 0.05; done; }
# identical RUN: its last checkpoint has the bits of one process's unbroken run of as many steps.
identical() {
  local step; step=$(readlink "$1/checkpoints/latest")
  [ -d "unbroken/checkpoints/$step" ] || expect 0 env -u OMPI_MCA_btl "$hadal" train small.textproto \
    --set stop.steps=$((10#${step#step_})) --set checkpoint.keep_last=0 --run-dir unbroken
  expect 0 "$hadal" checkpoint diff "unbroken/checkpoints/$step" "$1/checkpoints/$step"; says identical
}
