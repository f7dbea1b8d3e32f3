#!/usr/bin/env bash
# webdataset 1.0.2: WebDataset(shardshuffle=…) draws one seed when it is made and shuffles the shards by it anew for each epoch, so every
# epoch has the same order of shards. With with_epoch(n) of fewer samples than there are, every epoch begins with the same shards and ends
# before the others: their samples are never trained on, without a message. With detshuffle=True the order is another one in each epoch.
. "$(dirname "$0")/support.sh"
packages webdataset==1.0.2 numpy==2.4.6
HOME=$folder check "$python" -W ignore - "$folder" <<'PYTHON'
import os
import sys

import webdataset

folder = sys.argv[1]
with webdataset.ShardWriter(folder + "/%02d.tar", maxcount=10, verbose=0) as writer:
    for index in range(200):
        writer.write({"__key__": f"{index:03}", "cls": index})
shards = sorted(os.path.join(folder, name) for name in os.listdir(folder) if name.endswith(".tar"))
print(f"webdataset {webdataset.__version__}: {len(shards)} shards of 10 samples, 40 epochs of 50 samples, shardshuffle=20, shuffle(20)")
seen = {}
for options in ({}, {"detshuffle": True}):
    dataset = webdataset.WebDataset(shards, shardshuffle=20, **options).shuffle(20).decode().with_epoch(50)
    epochs = [{sample["cls"] for sample in dataset} for _ in range(40)]
    read = {index // 10 for epoch in epochs for index in epoch}
    seen[bool(options)] = len(read)
    print(f"{options or 'defaults'}: expected samples of all 20 shards; seen of {len(read)}: {sorted(read)}; "
          f"samples never read: {200 - len(set.union(*epochs))}")
sys.exit(not (seen[False] < 10 and seen[True] == 20))
PYTHON
