#!/usr/bin/env bash
# torchdata 0.11.0: a worker that has come to the end of its part when StatefulDataLoader's state is taken begins its part again after a
# resume, so its samples are trained on twice. The state has the flag that the worker has ended, and the worker is asked for data all the
# same. A dataset that counts from 0 again at its end, as the iterable dataset in the documentation does, then gives all of its part.
# Workers of equal parts end together, so a short test does not show it; of shards of unequal lengths one ends long before the others.
. "$(dirname "$0")/support.sh"
packages torchdata==0.11.0 torch==2.15.0 numpy==2.4.6
cat > "$folder/load.py" <<'PYTHON'
import importlib.metadata
import sys

from torch.utils.data import IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader


class Shards(IterableDataset):
    """A shard for each worker: numbers from 100 * worker on. The state is the place in the worker's shard."""

    def __init__(self):
        self.place = 0

    def __iter__(self):
        worker = get_worker_info().id
        while self.place < (10, 30)[worker]:
            self.place += 1
            yield 100 * worker + self.place
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


def resume(batches):
    loader = StatefulDataLoader(Shards(), batch_size=4, num_workers=2)
    iterator = iter(loader)
    before = [next(iterator).tolist() for _ in range(batches)]
    state = loader.state_dict()
    resumed = StatefulDataLoader(Shards(), batch_size=4, num_workers=2)
    resumed.load_state_dict(state)
    after = [batch.tolist() for batch in resumed]
    samples = [sample for batch in before + after for sample in batch]
    ended = state["_snapshot"]["_worker_snapshots"]["worker_0"]["fetcher_state"]["fetcher_ended"]
    return len(samples) - len(set(samples)), len(set(samples)), ended


if __name__ == "__main__":
    print(f"torchdata {importlib.metadata.version('torchdata')}: 40 samples, two workers with 10 and 30 of them, batches of 4")
    seen = {}
    for batches in (4, 7):
        repeated, samples, ended = seen[batches] = resume(batches)
        print(f"saved after {batches} of 11 batches (worker 0 has ended: {ended}), resumed: expected 40 samples, none twice; "
              f"seen {samples}, {repeated} twice")
    sys.exit(seen != {4: (0, 40, False), 7: (10, 40, True)})
PYTHON
HOME=$folder OMP_NUM_THREADS=1 check "$python" "$folder/load.py"
