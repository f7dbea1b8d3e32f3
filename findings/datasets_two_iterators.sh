#!/usr/bin/env bash
# datasets 5.2.0: two iterators of one concatenated IterableDataset share their place. So its columns, read side by side, are not those of
# the same rows, and rows are missing, without an error: of three corpora the second's sources stand beside the third's targets. The columns
# of a concatenated Dataset, and of other streams, belong together. (interleave_datasets mixes streams up likewise, but not at every run.)
. "$(dirname "$0")/support.sh"
packages datasets==5.2.0 pyarrow==26.0.1
HF_HOME=$folder HF_HUB_OFFLINE=1 check "$python" - <<'PYTHON'
import sys

import datasets

corpora = [datasets.Dataset.from_dict({side: [f"{name}{row}" for row in range(30)] for side in ("source", "target")}) for name in "abc"]
print(f"datasets {datasets.__version__}: three corpora of 30 rows, in which the target is the source")
print("zip(joined['source'], joined['target']) of concatenate_datasets(corpora); expected: 90 pairs, all equal")
seen = []
for parts in (corpora, [corpus.to_iterable_dataset() for corpus in corpora]):
    joined = datasets.concatenate_datasets(parts)
    pairs = list(zip(joined["source"], joined["target"]))
    others = [pair for pair in pairs if pair[0] != pair[1]]
    seen.append((len(pairs), len(pairs) - len(others)))
    print(f"seen of {type(joined).__name__}: {len(pairs)} pairs, {len(pairs) - len(others)} equal", *others[:1])
sys.exit(seen != [(90, 90), (60, 30)])
PYTHON
