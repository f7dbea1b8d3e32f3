#!/usr/bin/env bash
# scripts_test.sh HADAL: what step_bench prints and how it keeps to its budget, paper_depth from text to verdicts, and how run counts parts and
# shares its seconds out, on the CPU.
set -euo pipefail
hadal=$1 here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export HADAL_COMMIT='the one under test' PYTHONDONTWRITEBYTECODE=1
export HADAL_PYTHON=/bin/false  # PyTorch's rows are tried where there is one, by hand: a step of it may take many seconds here

fail() { echo "FAILED: $*"; exit 1; }
expect() { grep -qE -- "$1" "$2" || { cat "$2"; fail "no line like: $1"; }; }

bench() { "$here/step_bench" "$hadal" --device cpu --rows tiny --results "$work/results.txt" "$@" > "$work/out.txt"; }
bench --shapes a,d
expect '^\(d\) 64 tokens, hadal: [0-9,]+ target tokens/s' "$work/out.txt"
expect '^\| d \| 64 \| [0-9,]+ \|.*[0-9]+% \|' "$work/out.txt"
expect '^\| a \| 128 \| [0-9,]+¹ \|' "$work/out.txt"
expect '^goal: \(d\) at least 60% of the GEMM limit: (NOT )?reached \(64: [0-9]+%, 128¹: ' "$work/out.txt"
expect '^goal: \(c\) at least 75% of the GEMM limit: not measured' "$work/out.txt"
expect '^goal: ahead of PyTorch everywhere: not measured' "$work/out.txt"
expect '^\{"shape": "a", "micro_batch_tokens": 128, "who": "hadal".*"share_of_gemm_limit"' "$work/results.txt"
expect '^# .*step_bench .*--shapes a,d' "$work/results.txt"
expect '^# .*no PyTorch \(/bin/false: exit status 1\): hadal alone' "$work/results.txt"
expect '^# .*, commit the one under test, ' "$work/results.txt"
# What is no program, and text that is none, are refused in words.
refuses() { local wanted=$1; shift; if "$@" > "$work/out.txt" 2>&1; then fail "$* was accepted"; fi; expect "$wanted" "$work/out.txt"; }
: > "$work/empty"
refuses 'nowhere is no program' "$here/step_bench" "$work/nowhere" --device cpu --rows tiny
refuses 'the valid text (.*) is empty' "$here/paper_depth" "$hadal" --out "$work/refused" --minutes 1 \
  --train "$work/empty" "$work/empty" --valid "$work/empty" "$work/empty"
! grep -q Traceback "$work/out.txt" || fail "paper_depth ends in a traceback"
# Without time every row says why it is not there.
bench --seconds 0
[ "$(grep -c 'hadal: skipped: needs about 2 s, 0 s are left' "$work/out.txt")" -eq 6 ] || { cat "$work/out.txt"; fail "rows without time"; }
# A row that fails is said, with what hadal says, and counted.
printf '#!/bin/sh\necho "hadal bench: no memory for that" >&2\nexit 1\n' > "$work/broken"
chmod +x "$work/broken"
if "$here/step_bench" "$work/broken" --device cpu --rows tiny --shapes a --results "$work/results.txt" > "$work/out.txt"; then
  fail "a failed row was not counted"
fi
expect '^\(a\) 64 tokens, hadal: failed: hadal bench: no memory for that' "$work/out.txt"
# So is one that prints something else than its figures. What was measured before it is in the results by then, and a goal says of how much
# it speaks.
cat > "$work/flaky" << END
#!/bin/sh
case "\$*" in *"--tokens 64"*) exec "$hadal" "\$@" ;; esac
grep -q '"micro_batch_tokens": 64, "who": "hadal".*target_tokens_per_second' "$work/results.txt" || touch "$work/late"
echo '{"step_seconds": ['
END
chmod +x "$work/flaky"
rm "$work/results.txt"
if "$here/step_bench" "$work/flaky" --device cpu --rows tiny --shapes d --results "$work/results.txt" > "$work/out.txt" 2>&1; then
  fail "a row without figures was not counted"
fi
expect '^\(d\) 128 tokens, hadal: failed: prints no JSON: \{"step_seconds": \[' "$work/out.txt"
expect '^goal: \(d\) at least 60% of the GEMM limit: (NOT reached|reached where measured), 1 of 2 \(64: ' "$work/out.txt"
[ ! -e "$work/late" ] || fail "the results are not written row by row"
# As on a GPU, with one that is made up: its memory decides on recomputation, and whether a model is tried at all.
mkdir "$work/gpu"
cat > "$work/gpu/nvidia-smi" << 'END'
#!/bin/sh
case $* in *name*) echo "made-up GPU, 1.2, $MEBIBYTES MiB" ;; *) echo "$MEBIBYTES" ;; esac
END
cat > "$work/gpu/hadal" << END
#!/bin/sh
[ "\$1" = plan ] && exec "$hadal" "\$@"
exec "$hadal" \$(echo "\$@" | sed 's/--device cuda/--device cpu --threads 1/; s/bf16/fp32/')
END
chmod +x "$work"/gpu/*
on_gpu() {
  PATH=$work/gpu:$PATH MEBIBYTES=$1 "$here/step_bench" "$work/gpu/hadal" --rows tiny --shapes d --results "$work/results.txt" > "$work/out.txt"
}
on_gpu 8192
expect '^# made-up GPU, 1.2, 8192 MiB' "$work/out.txt"
expect '^\| d \| 128 \| [0-9,]+ \|' "$work/out.txt"
on_gpu 4144  # 48 MiB beside what is spared: between what the larger size takes without recomputation and with it
expect '^\| d \| 64 \| [0-9,]+ \|' "$work/out.txt"
expect '^\| d \| 128 \| [0-9,]+¹ \|' "$work/out.txt"
on_gpu 4100
expect '^\(d\) 64 tokens, hadal: skipped: does not fit the device.s 4 GiB' "$work/out.txt"

# A GPU that cannot be used is no missing GPU.
code=0
PATH=$work/gpu:$PATH MEBIBYTES=8192 "$here/step_bench" "$work/broken" --rows tiny --results "$work/results.txt" > "$work/out.txt" || code=$?
[ $code -eq 1 ] || fail "a GPU without its libraries ends step_bench with $code instead of 1"
expect '^hadal bench: no memory for that' "$work/out.txt"

text=$here/../support/real_text/sentences
for side in en de; do
  head -n 400 "$text.$side" > "$work/train.$side"
  tail -n 50 "$text.$side" > "$work/valid.$side"
done
depth() {  # HADAL OUT OPTION…
  "$here/paper_depth" "$1" --train "$work/train.en" "$work/train.de" --valid "$work/valid.en" "$work/valid.de" --out "$work/$2" \
    --layers 2 --width 64 --tokens 128 --vocabulary 300 --minutes 0.05 --set pipeline.threads=1 --set validation.every_steps=2 \
    "${@:3}" > "$work/out.txt" 2>&1
}
cat > "$work/watched" << END
#!/bin/sh
case "\$*" in *"--run 3"*) grep -q '^deepnorm: .* after [0-9]* steps: ' "$work/depth/paper_depth.txt" || touch "$work/late" ;; esac
exec "$hadal" "\$@"
END
chmod +x "$work/watched"
depth "$work/watched" depth --methods deepnorm,post_ln
[ ! -e "$work/late" ] || fail "the first method's results are not there when the second begins"
for method in deepnorm post_ln; do
  expect "^$method: (trains|between|fails|too short) after [0-9]+ steps: best validation nll [0-9.]+, -?[0-9.]+ below the unigram level [0-9.]+" "$work/out.txt"
done
expect '^validation nll: step deepnorm post_ln' "$work/depth/paper_depth.txt"
expect '^2 [0-9.]+ [0-9.]+$' "$work/depth/paper_depth.txt"
expect '^# .*paper_depth .*--methods deepnorm,post_ln' "$work/depth/paper_depth.txt"
expect '^# deepnorm: trained on the CPU' "$work/depth/paper_depth.txt"
[ -z "$(find "$work/depth" -name '*.safetensors')" ] || fail "a checkpoint was saved"
# Under a GPU's name nothing trains on the CPU.
if PATH=$work/gpu:$PATH MEBIBYTES=8192 depth "$hadal" refused --methods deepnorm; then fail "a CPU trained under a GPU's name"; fi
expect '^# deepnorm: .*"bf16" needs a GPU' "$work/refused/paper_depth.txt"

# run, of programs that are made up: gpu_nccl_test fails, gpu_runs_test waits for ever.
mkdir "$work/bin"
printf '#!/bin/sh\nexit 0\n' > "$work/bin/gpu_kernels_test"
printf '#!/bin/sh\ncase $* in *ApiCalls*) exit 0 ;; esac\nexec sleep 99\n' > "$work/bin/gpu_runs_test"
printf '#!/bin/sh\necho "a Failure"\nexit 1\n' > "$work/bin/gpu_nccl_test"
cat > "$work/bin/hadal" << 'END'
#!/bin/sh
case $* in
  --build-info) echo "GPU            none: made up" ;;
  doctor*) echo "rank  GPU  made up" ;;
  "bench kernels"*) printf 'made-up GPU\ncopy: 9.0 GB/s, read and written\na kernel\ngoal, 85%% of the copy: reached\n' ;;
  *) echo "hadal bench: made up" >&2; exit 1 ;;
esac
END
printf '#!/bin/sh\necho "========= Error: Device not supported"\nexit 1\n' > "$work/bin/compute-sanitizer"
chmod +x "$work"/bin/*
code=0
PATH=$work/bin:$work/gpu:$PATH MEBIBYTES=8192 \
  "$here/run" --bin "$work/bin" --bench --seconds 20 --results "$work/run.txt" > "$work/out.txt" 2>&1 || code=$?
[ $code -eq 1 ] || { cat "$work/out.txt"; fail "run ends with $code where a part failed"; }
expect '^passed  gpu_adam_test  ' "$work/run.txt"
expect '^skipped  gpu_device_test  \(not done, the time was over after [0-9]+ s\)' "$work/run.txt"
expect '^skipped  gpu_nccl_communicator_test  \(the time is over\)' "$work/run.txt"  # the benches' seconds are theirs
expect '^passed  bench_kernels  ' "$work/run.txt"
expect '^goal, 85% of the copy: reached' "$work/run.txt"
if grep -q '^a kernel' "$work/out.txt"; then fail "run prints the whole table of kernels"; fi
expect '^a kernel' "$work/run.txt.kernels.txt"
expect '^FAILED  step_bench  ' "$work/run.txt"
[ "$(tail -n 2 "$work/out.txt" | head -n 1)" = 'FAILED  step_bench' ] || { cat "$work/out.txt"; fail "run's end does not name what failed"; }
tar -tzf "$work/run.txt.logs.tar.gz" > "$work/logs.txt"
expect 'step_bench.log' "$work/logs.txt"
printf '#!/bin/sh\necho "fact: made up"\n' > "$work/bin/gpu_runs_test"
code=0
PATH=$work/bin:$PATH "$here/run" --bin "$work/bin" --results "$work/run.txt" > "$work/out.txt" 2>&1 || code=$?
[ $code -eq 1 ] || { cat "$work/out.txt"; fail "run ends with $code where parts failed"; }
expect '^FAILED  gpu_nccl_communicator_test  ' "$work/run.txt"
expect '^fact: made up' "$work/run.txt"
expect '^skipped  racecheck.gpu_kernels_test  \(compute-sanitizer does not know this device\)' "$work/run.txt"
tail -n 1 "$work/run.txt" > "$work/last.txt"
expect '^passed 28, failed [25], skipped [58]$' "$work/last.txt"  # 2 and 8 where there is no mpirun
echo "run, step_bench and paper_depth hold"
