#!/usr/bin/env bash
# accelerate 1.15.0: gather_for_metrics removes the samples that fill up the last batch. How many are left, it takes from the length of the
# dataset, also when the loader has a sampler of another length (PyTorch's SubsetRandomSampler, the usual split of one dataset; RandomSampler or
# WeightedRandomSampler with num_samples). Then the last batch is cut in the wrong place: with one process, where nothing is filled up, samples
# that were read are lost to the metric, and with two some are lost or some count twice, without a message. Subset is right.
. "$(dirname "$0")/support.sh"
packages accelerate==1.15.0 torch==2.15.0 numpy==2.4.6
cat > "$folder/gather.py" <<'PYTHON'
import multiprocessing
import os
import sys

import accelerate
from torch.utils.data import DataLoader, Subset, SubsetRandomSampler

CASES = [(100, 48), (96, 50)]
KINDS = ["Subset", "SubsetRandomSampler"]


def gather(process, processes, port, results):
    """Puts the pairs (samples that are missing, samples that are there twice) of each case into results."""
    if processes > 1:
        os.environ.update(RANK=str(process), LOCAL_RANK=str(process), WORLD_SIZE=str(processes), MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    accelerator = accelerate.Accelerator(cpu=True)
    assert accelerator.num_processes == processes
    seen = []
    for samples, read in CASES:
        for kind in KINDS:
            dataset, part = range(samples), range(read)
            if kind == "Subset":
                loader = DataLoader(Subset(dataset, part), batch_size=16 // processes)
            else:
                loader = DataLoader(dataset, sampler=SubsetRandomSampler(part), batch_size=16 // processes)
            loader = accelerator.prepare(loader)
            gathered = [sample for batch in loader for sample in accelerator.gather_for_metrics(batch).tolist()]
            seen.append((len(set(part) - set(gathered)), len(gathered) - len(set(gathered))))
    accelerator.end_training()
    if process == 0:
        results.put(seen)


if __name__ == "__main__":
    print(f"accelerate {accelerate.__version__}: batches of 16 over all processes; gather_for_metrics of all batches")
    fork, right = multiprocessing.get_context("fork"), []
    for processes, expected in ((1, [(0, 0), (12, 0), (0, 0), (0, 0)]), (2, [(0, 0), (12, 0), (0, 0), (0, 14)])):
        results = fork.Queue()
        ranks = [fork.Process(target=gather, args=(process, processes, sys.argv[1], results)) for process in range(processes)]
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.join()
            if rank.exitcode:
                sys.exit(2)
        seen = results.get()
        names = [f"{kind}, {read} of {samples}" for samples, read in CASES for kind in KINDS]
        for name, (missing, twice) in zip(names, seen):
            print(f"{processes} process{'es' * (processes > 1)}, {name} samples: expected each sample once, seen {missing} missing, {twice} twice")
        right.append(seen == expected)
    sys.exit(not all(right))
PYTHON
port=$(python3 -c "import socket; place = socket.socket(); place.bind(('127.0.0.1', 0)); print(place.getsockname()[1])")
HOME=$folder CUDA_VISIBLE_DEVICES='' OMP_NUM_THREADS=1 GLOO_SOCKET_IFNAME=lo check "$python" -W ignore "$folder/gather.py" "$port"
