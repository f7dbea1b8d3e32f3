#!/usr/bin/env bash
# scripts_test.sh HADAL: what step_bench prints and how it keeps to its budget, paper_depth from text to verdicts, and how first_minutes counts
# parts and what one that fails leaves of the others, on the CPU.
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
expect '^\(d\) 64 tokens, hadal: [0-9,]+ target tokens/s, [0-9.]+ model TFLOP/s, [0-9]+% of the GEMM limit, ' "$work/out.txt"
expect '^\| d \| 64 \| [0-9,]+ \|.*[0-9]+% \|' "$work/out.txt"
expect '^\| a \| 128 \| [0-9,]+¹ \|' "$work/out.txt"
expect '^goal: \(d\) at least 60% of the GEMM limit: (NOT )?reached \(64, [0-9.]+ model TFLOP/s: [0-9]+%, 128¹, ' "$work/out.txt"
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
expect '^goal: \(d\) at least 60% of the GEMM limit: (NOT reached|reached where measured), 1 of 2 \(64, ' "$work/out.txt"
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

env -u HADAL_PYTHON "$hadal" make-corpus --out "$work/text" --pairs 600 --valid 30 --test 1 --seed 3 > "$work/out.txt"
depth() {  # HADAL OUT OPTION…
  env -u HADAL_PYTHON "$here/paper_depth" "$1" --train "$work/text/train.en" "$work/text/train.de" --valid "$work/text/valid.en" "$work/text/valid.de" --out "$work/$2" \
    --layers 2 --width 64 --tokens 128 --vocabulary 300 --minutes 2 --set stop.steps=20 --set pipeline.threads=1 --set validation.every_steps=2 \
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

# first_minutes, of programs that are made up: of the kernels one fails and one hangs, a library of gpu_nccl_test is missing.
mkdir "$work/bin" "$work/tools"
cat > "$work/bin/gpu_kernels_test" << 'END'
#!/bin/sh
case $* in *CudaMuon*) echo "adam_test.cc:7: Failure"; exit 1 ;; *CudaConvert*) exec sleep 999 ;; *CudaGlu*) echo "[  PASSED  ] 0 tests."; exit 0 ;; esac
echo "[  PASSED  ] 3 tests."
END
passes='#!/bin/sh\necho "fact: made up\n[  PASSED  ] 1 test."\n'
printf "$passes" > "$work/bin/gpu_runs_test"
cp "$work/bin/gpu_runs_test" "$work/bin/gpu_nccl_test"
cat > "$work/bin/hadal" << 'END'
#!/bin/sh
case $* in
  --build-info) echo "GPU            none: made up" ;;
  doctor*) printf 'rank  GPU        memory\n   0  made-up    8.0\n' ;;
  "bench kernels"*) printf 'made-up GPU\ncopy: 9.0 GB/s, read and written\na kernel\ngoal, 85%% of the copy: reached\n' ;;
  *--json*) printf '  "step_seconds_median": 0.002,\n  "model_tflops_per_second": 31.5,\n' ;;
  *) echo "hadal bench: made up" >&2; exit 1 ;;
esac
END
cat > "$work/tools/ldd" << 'END'
#!/bin/sh
case $1 in *gpu_nccl_test) echo "	libmissing.so.1 => not found" ;; esac
END
# Two steps; a launch has a row for each metric.
cat > "$work/tools/ncu" << 'END'
#!/bin/sh
echo '==PROF== Connected to process 1 (hadal)'
echo '"ID","Process ID","Kernel Name","Metric Name","Metric Unit","Metric Value"'
id=0
for kernel in 'Attention<1>' AdamKernel 'Attention<2>' 'Attention<2>' AdamKernel; do
  echo "\"$id\",\"1\",\"void hadal::cuda::(anonymous namespace)::$kernel(hadal::cuda::Args)\",\"dram__bytes.sum\",\"byte\",\"3,000,000\""
  echo "\"$id\",\"1\",\"void hadal::cuda::(anonymous namespace)::$kernel(hadal::cuda::Args)\",\"gpu__time_duration.sum\",\"nsecond\",\"2,000\""
  id=$((id + 1))
done
END
cat > "$work/tools/nvidia-smi" << 'END'
#!/bin/sh
case $* in
  dmon*) printf '# gpu   pwr gtemp    sm   mclk   pclk\n# Idx     W     C     %%    MHz    MHz\n    0   600    50    99   2619   1980\n    0    90    40     0    300    345\n'; exec sleep 999 ;;
  *name*) echo "made-up GPU, 1.2, 8192 MiB" ;;
  *) echo 8192 ;;
esac
END
printf '#!/bin/sh\necho "========= Error: Device not supported"\nexit 1\n' > "$work/tools/compute-sanitizer"
chmod +x "$work"/bin/* "$work"/tools/*
minutes() {  # CODE OPTION…
  local wanted=$1 code=0; shift
  PATH=$work/tools:$PATH "$here/first_minutes" --bin "$work/bin" --results "$work/results" "$@" > "$work/out.txt" 2>&1 || code=$?
  [ $code -eq "$wanted" ] || { cat "$work/out.txt"; fail "first_minutes ends with $code instead of $wanted: $*"; }
}
minutes 1 --part-seconds 10
for line in 'FAILED  libraries  ' 'FAILED  gpu_adam_test  ' 'FAILED \(hangs\)  gpu_convert_test  ' 'passed  gpu_weighted_sum_test  ' 'FAILED  gpu_unfold_test: \[  PASSED  \] 0 tests' \
            'passed  gpu_device_test  ' 'fact: made up' 'passed  bench_kernels  ' 'goal, 85% of the copy: reached' 'FAILED  step_bench  ' \
            'fact: weight gradients, fork_batch: a step takes 2\.00 ms, 31\.5 model' 'kernels of a step: 3 launches, 6 us' ' +2 +4\.0 +67% +1,500  Attention<2>' \
            'clocks of 1 busy seconds: SM MHz 1980 \(1980 to 1980\), memory MHz 2619 .*, W 600 ' \
            'FAILED  gpu_adam_test: adam_test.cc:7: Failure' 'FAILED  libraries: gpu_nccl_test: libmissing.so.1 => not found' \
            'skipped: train_beside_cpu: GPU            none: made up'; do
  expect "^$line" "$work/results/results.txt"
done
diff <(sed -n '/== summary/,$p' "$work/out.txt") <(sed -n '/== summary/,$p' "$work/results/results.txt") || fail "the last screen is not the results' end"
expect '--only gpu_adam_test,gpu_unfold_test,gpu_convert_test,cublaslt_choices,step_bench$' "$work/out.txt"
expect '^passed [0-9]+, failed 6, skipped 2$' <(tail -n 1 "$work/out.txt")
if grep -q '^a kernel' "$work/out.txt"; then fail "the whole table of kernels is printed"; fi
expect '^a kernel' "$work/results/kernels.txt"
expect 'Failure' "$work/results/logs/gpu_adam_test.log"
# A device that does not work, or one that the doctor cannot open: what does not rest on it follows, and time is left.
printf '#!/bin/sh\necho "device_test.cc:7: Failure"\nexit 1\n' > "$work/bin/gpu_runs_test"
minutes 1 --part-seconds 10 --only gpu_weighted_sum_test
expect '^FAILED  gpu_device_test: device_test.cc:7: Failure' "$work/out.txt"
expect '^passed  gpu_weighted_sum_test' "$work/out.txt"
printf "$passes" > "$work/bin/gpu_kernels_test"
minutes 1
expect '^passed  gpu_adam_test' "$work/out.txt"
expect '^skipped: gpu_linear_on_device_test, .*step_bench: the gate failed$' "$work/out.txt"
expect '^passed [0-9]+, failed 2, skipped ' <(tail -n 1 "$work/out.txt")
# Plan b: parts whose program does not load, and a device that compute-sanitizer does not know.
printf "$passes" > "$work/bin/gpu_runs_test"
minutes 1 --plan b
expect '^skipped: gpu_nccl_communicator_test, .*: gpu_nccl_test does not load: libmissing.so.1' "$work/out.txt"
expect '^skipped: memcheck.gpu_kernels_test: Device not supported' "$work/out.txt"
# Without time nothing runs, and what is no part is refused.
minutes 1 --seconds 0
expect '^skipped: gpu_device_test, doctor, train_beside_cpu, .*: the time is over$' "$work/out.txt"
minutes 2 --only gpu_adam_test,nonsense
expect 'no part nonsense' "$work/out.txt"
# No device, or one that the programs cannot use.
printf '#!/bin/sh\necho "SKIPPED: no CUDA device (made up)"\nexit 77\n' > "$work/bin/gpu_runs_test"
minutes 1
expect '^FAILED  devices: there is a GPU, and the programs cannot use it: SKIPPED: no CUDA device' "$work/out.txt"
rm "$work/tools/nvidia-smi" "$work/tools/ldd"
if [ ! -e /dev/nvidia0 ]; then
  minutes 77
  expect '^clocks: not recorded, no nvidia-smi' "$work/out.txt"
fi

# mpirun where there is no remote shell.
if command -v mpirun > /dev/null; then
  mkdir "$work/few"
  ln -s "$(command -v mpirun)" "$(command -v orted)" "$work/few"
  PATH=$work/few "$(python3 -c 'import sys; print(sys.executable)')" "$here/machine.py" mpirun --oversubscribe -np 2 /bin/true > "$work/out.txt" 2>&1 ||
    { cat "$work/out.txt"; fail "mpirun without ssh"; }
fi
echo "first_minutes, step_bench and paper_depth hold"
