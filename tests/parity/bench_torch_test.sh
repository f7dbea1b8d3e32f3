#!/bin/sh
# bench_torch_test.sh HADAL: bench_torch.py times the model that `hadal bench step` times, with as many parameters and operations,
# with and without recomputation; and says what it cannot run.
# Exit status: 0 so it is, 1 not, 77 skipped for want of PyTorch (run.sh says which Python).
set -eu
here=$(dirname "$0")
. "$here/../support/python_modules.sh"
hadal=$1
python=${HADAL_PARITY_PYTHON:-}
for candidate in python3 /usr/bin/python3; do
  if [ -z "$python" ] && has_modules "$candidate" numpy torch; then python=$candidate; fi
done
[ -n "$python" ] || { echo "SKIPPED: no python3 here can import numpy and torch"; exit 77; }
export PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

torch() {
  "$python" "$here/bench_torch.py" --width 32 --hidden 96 --heads 2 --layers 3 --tokens 64 --length 16 --vocabulary 100 \
    --threads 1 --steps 2 --json "$@"
}
for every in 0 6; do
  micro_batches=$((every == 0 ? 1 : 3))
  "$hadal" bench step --device cpu --d-model 32 --d-ff 96 --heads 2 --encoder-layers 3 --decoder-layers 3 --tokens 64 --length 16 \
    --vocabulary 100 --threads 1 --repeats 2 --no-limit --recompute-every $every --micro-batches $micro_batches --json > "$work/hadal.json"
  torch --recompute-every $every --micro-batches $micro_batches --clip-norm 1 > "$work/torch.json"
  "$python" - "$work/hadal.json" "$work/torch.json" << 'END'
import json, sys
ours, theirs = (json.load(open(path)) for path in sys.argv[1:])
assert "failed" not in theirs, theirs
for name in ("parameters", "model_flops"):
    assert ours[name] == theirs[name], (name, ours[name], theirs[name])
executed = theirs["executed_tflops"] * theirs["median_seconds"] * 1e12
assert abs(executed / ours["executed_flops"] - 1) < 1e-9, (executed, ours["executed_flops"])
assert theirs["tokens_per_second"] > 0
END
done
if torch --start-limit 1e-3 > "$work/late.json"; then echo "a limit of 1 ms was kept"; exit 1; fi
grep -q '"failed": "the first step' "$work/late.json"
if torch --graph > "$work/graph.json" 2> /dev/null; then echo "a CPU recorded a CUDA graph"; exit 1; fi
grep -q '"failed"' "$work/graph.json"
echo "the same model"
