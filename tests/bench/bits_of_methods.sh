#!/usr/bin/env bash
# The bits to which each method trains on the CPU: one line a method with a checksum of the weights and of Adam's moments after some steps.
# Two programs that print the same lines compute the same.
#
#   tests/bench/bits_of_methods.sh path/to/hadal
# Each method of configs/method is trained in four layouts, which must agree: 1 and 2 stages, without and with recomputation. A method whose
# layouts differ is printed with all four checksums, and the script fails. Takes about two minutes on two idle cores.
set -euo pipefail
hadal=$(realpath "$1")
methods=$(cd "$(dirname "$0")/../../configs/method" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
"$hadal" make-corpus --out text --pairs 400 --valid 10 --test 10 --seed 3 > /dev/null
"$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out data --vocab-size 300 > /dev/null 2>&1
cat > small.textproto <<'END'
data { train: "data/train" }
model {
  encoder_layers: 3 decoder_layers: 4 d_model: 32 d_ff: 48 heads: 4 max_positions: 64
  dropout: 0.1 attention_dropout: 0.1 activation_dropout: 0.1
}
batch { micro_batches: 3 source_tokens: 160 target_tokens: 160 }
learning_rate { peak: 1e-3 warmup_updates: 3 }
instruments { enabled: false }
stop { steps: 6 }
END

# Of all slices of weights and moments of a checkpoint's manifest, whichever files hold them.
checksum() {
  python3 - "$1/checkpoints/latest/manifest.json" <<'END'
import json, sys, zlib
slices = {}
for file in json.load(open(sys.argv[1]))["files"]:
    for parameter, index, *crcs in file["slices"]:
        for kind, crc in enumerate(crcs):
            if crc is not None: slices[parameter, index, kind] = crc
print(f"{zlib.crc32(repr(sorted(slices.items())).encode()):08x}")
END
}

status=0
for method in "$methods"/*.textproto; do
  sums=()
  for ranks in 1 2; do
    for every in 0 2; do
      launch=("$hadal")
      [ "$ranks" -eq 1 ] || launch=(mpirun --allow-run-as-root --oversubscribe -n "$ranks" "$hadal")
      "${launch[@]}" train small.textproto "$method" --set pipeline.recompute_every="$every" --run-dir run > log 2>&1 || { cat log >&2; exit 1; }
      sums+=("$(checksum run)")
      rm -r run
    done
  done
  agreed=$(printf '%s\n' "${sums[@]}" | sort -u)
  [ "$(wc -l <<< "$agreed")" -eq 1 ] || status=1
  echo "$(basename "$method" .textproto)" $agreed
done
exit $status
