#!/usr/bin/env bash
# What the messages of Attention Residuals cost a pipeline: the idle share of 500 decoder layers on 8 stages by blocks and link, beside
# Pre-LN's, as `hadal plan` replays a step (forward the sums that a rank lacks, backward the gradients of all).
#
#   tests/bench/attn_res_links.sh HADAL > tests/bench/results/attn_res_links.txt
# Llama block, d_model 1,024, bf16 products, the H100s of configs/machines with a rank a node and links between nodes of 200 and of 50
# GB/s; 64 micro-batches of 4,096 tokens a step; one chunk a rank and four, interleaved. Seconds.
set -euo pipefail
export LC_ALL=C
hadal=$(realpath "$1")
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "# $(date +%F), hadal $(git describe --always --dirty); link, chunks a rank, blocks: idle share in percent, above Pre-LN's in points;"
echo "# of the border with the longest messages: MiB forward, backward"
for link in 200 50; do
  sed -e 's/devices_per_node: 8/devices_per_node: 1/' -e "s/inter_node { gb_per_second: 50 /inter_node { gb_per_second: $link /" \
    configs/machines/h100_80g_8.textproto > "$work/machine"
  for chunks in 1 4; do
    for blocks in 0 8 16 32 83; do
      method=$([ $blocks = 0 ] && echo pre_ln || echo attn_res)
      "$hadal" plan configs/language_model/base.textproto configs/block/llama.textproto "configs/method/$method.textproto" \
        --vocabulary 32000 --set model.decoder_layers=500 --set model.d_model=1024 --set model.d_ff=2816 --set model.heads=16 \
        --set model.residual.decoder.attention_residual_blocks=$blocks --set batch.micro_batches=64 --set batch.target_tokens=4096 \
        --set pipeline.stages=8 --set pipeline.chunks=$chunks --set pipeline.schedule=$([ $chunks = 1 ] || echo interleaved_)1f1b \
        --machine "$work/machine" --nodes 8 --json > "$work/$blocks"
    done
    python3 - "$work" "$link GB/s, $chunks chunks" <<'PY'
import json, sys
idle, most = {}, "none of these"
for blocks in (0, 8, 16, 32, 83):
    plan = json.load(open(f"{sys.argv[1]}/{blocks}"))
    idle[blocks] = 100 * plan["bubble"]
    above, border = idle[blocks] - idle[0], max(plan["stages"], key=lambda stage: stage["gradient_bytes"])
    most = f"{blocks} blocks" if blocks and above <= 1 else most
    print(f"{sys.argv[2]}, {blocks or 'Pre-LN':>6}: {idle[blocks]:5.2f} {above:6.2f}   "
          f"{max(stage['border_bytes'] for stage in plan['stages']) / 2**20:4.0f} {border['gradient_bytes'] / 2**20:5.0f}")
print(f"{sys.argv[2]}: the most within one point of Pre-LN: {most}")
PY
  done
done
