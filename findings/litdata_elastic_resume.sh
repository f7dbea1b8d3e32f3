#!/usr/bin/env bash
# litdata 0.2.76: its documentation says that StreamingDataset resumes with other num_workers (and ranks) and repeats no sample. The first
# such resume is right. But the checkpoint after it has two places: sample_in_epoch, of the epoch, and num_samples_yielded, which counts from
# the resume only. A resume with the same num_workers as that checkpoint's goes by the second one: what was read since the change is read
# again and other samples are left out, without a message. A resume with yet another number goes by the first one, and is right.
. "$(dirname "$0")/support.sh"
packages litdata==0.2.76 torch==2.15.0 torchvision==0.29.2 numpy==2.4.6
cat > "$folder/stream.py" <<'PYTHON'
import importlib.metadata
import itertools
import sys

from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter

folder = sys.argv[1]


def run(workers):
    """Reads an epoch in parts of 4 batches and a last one, each by a new loader with the state of the loader before it."""
    samples, state, places = [], None, []
    for part, count in enumerate(workers):
        loader = StreamingDataLoader(StreamingDataset(folder, shuffle=True, seed=42), batch_size=7, num_workers=count)
        if state is not None:
            loader.load_state_dict(state)
        for batch in itertools.islice(loader, None if part + 1 == len(workers) else 4):
            samples += batch.tolist()
        state = loader.state_dict()
        places.append((state["dataset"]["sample_in_epoch"], state["dataset"]["num_samples_yielded"]))
    return len(samples) - len(set(samples)), 100 - len(set(samples)), places[1]


if __name__ == "__main__":
    writer = BinaryWriter(folder, chunk_size=8)
    for index in range(100):
        writer[index] = index
    writer.done()
    writer.merge()
    print(f"litdata {importlib.metadata.version('litdata')}: an epoch of 100 samples in three runs, of 28, 28 and the other 44 samples")
    seen = {}
    for workers in ((2, 2, 2), (2, 3, 2), (2, 3, 3)):
        repeated, left_out, places = run(workers)
        seen[workers] = repeated == left_out == 0
        print(f"num_workers {workers}: expected no sample twice, none left out; seen {repeated} twice, {left_out} left out; "
              f"second checkpoint: sample_in_epoch {places[0]}, num_samples_yielded {places[1]}")
    sys.exit(seen != {(2, 2, 2): True, (2, 3, 2): True, (2, 3, 3): False})
PYTHON
HOME=$folder OMP_NUM_THREADS=1 check "$python" -W ignore "$folder/stream.py" "$folder/data"
