#!/usr/bin/env bash
# torchdata 0.11.0: a Loader of torchdata.nodes that resumes from the end of an epoch continues with the next epoch, as it should
# (restart_on_stop_iteration, the default). But its state_dict() then returns the state that was loaded, in this epoch and in all later ones.
# Every checkpoint of the resumed run so has the place where the run began, and the next resume repeats all samples since then, without a
# message. A run that is not resumed, or that is resumed from the middle of an epoch, saves its true place: a test of one resume, or of two in
# one epoch, does not show it.
. "$(dirname "$0")/support.sh"
packages torchdata==0.11.0 torch==2.15.0 numpy==2.4.6
cat > "$folder/load.py" <<'PYTHON'
import importlib.metadata
import pickle
import sys

from torch.utils.data import DistributedSampler
from torchdata.nodes import Batcher, Loader, SamplerWrapper

SAMPLES, BATCH, EPOCH = 24, 4, 6


def run(batches, state=None):
    """Reads so many batches with a new loader that resumes from the state; returns the samples and the state after the last batch."""
    sampler = DistributedSampler(range(SAMPLES), num_replicas=1, rank=0, seed=7)
    loader = Loader(Batcher(SamplerWrapper(sampler), batch_size=BATCH))
    if state is not None:
        loader.load_state_dict(pickle.loads(state))
    samples = []
    while len(samples) < batches:
        for batch in loader:
            samples.append(batch)
            if len(samples) == batches and batches % EPOCH:
                return samples, pickle.dumps(loader.state_dict())
    return samples, pickle.dumps(loader.state_dict())


undisturbed = run(10 * EPOCH)[0]
print(f"torchdata {importlib.metadata.version('torchdata')}: epochs of {EPOCH} batches, each in its own order; each run resumes the one before")
seen = {}
for first, second in ((4, 1), (EPOCH, 4), (EPOCH, 3 * EPOCH)):
    start, state = run(first)
    middle, again = run(second, state)
    assert start + middle == undisturbed[:first + second]
    next_batch = run(1, again)[0][0]
    place = undisturbed.index(next_batch)
    seen[first, second] = place
    print(f"runs of {first} and {second} batches: the third run expected to begin with batch {first + second}, seen batch {place}: "
          f"{first + second - place} batches are read again; second state is the first one: {pickle.loads(again) == pickle.loads(state)}")
sys.exit(seen != {(4, 1): 5, (EPOCH, 4): EPOCH, (EPOCH, 3 * EPOCH): EPOCH})
PYTHON
HOME=$folder OMP_NUM_THREADS=1 check "$python" "$folder/load.py"
