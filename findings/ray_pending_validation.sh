#!/usr/bin/env bash
# Ray 2.60.0: Ray Train deletes the best checkpoint when a lower score is better (checkpoint_score_order="min") and checkpoints are validated
# while training goes on (report(…, validation=True), the guide "Validating checkpoints asynchronously"). A checkpoint whose validation is
# pending counts in num_to_keep, and without the score yet it ranks as the best: a missing value is -inf, which "min" negates. So each
# report deletes what was validated before, and the last checkpoint stays. With "max" and the negative loss the best one stays. Where the
# training loop reports a loss of its own under the same key, which the guide allows, pending checkpoints rank by that one.
. "$(dirname "$0")/support.sh"
packages ray==2.60.0 numpy==2.4.6 pandas==3.1.1 pyarrow==26.0.1 pydantic==2.14.4 fsspec==2026.9.0 requests==2.34.2 tensorboardX==2.6.5
export HOME=$folder RAY_TRAIN_V2_ENABLED=1 RAY_USAGE_STATS_ENABLED=0 RAY_agent_register_timeout_ms=600000 RAY_worker_niceness=0
export PATH=$folder/python/bin:$PATH CUDA_VISIBLE_DEVICES='' RAY_TMPDIR=$folder
cat > "$folder/runs.py" <<'PYTHON'
import os
import socket
import sys
import tempfile

import ray
import ray.train
from ray.cluster_utils import Cluster
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

VALID, TRAIN = [2.0, 1.0, 1.5, 3.0], [1.9, 0.9, 0.5, 0.2]  # losses after each epoch; a validation finds the former
folder = sys.argv[1]


def epoch_of(checkpoint):
    with checkpoint.as_directory() as place, open(place + "/epoch") as file:
        return int(file.read())


def validate(checkpoint):
    loss = VALID[epoch_of(checkpoint)]
    return {"loss": loss, "valid_loss": loss, "valid_score": -loss}


def train(config):
    for epoch in range(len(VALID)):
        with tempfile.TemporaryDirectory() as place:
            with open(place + "/epoch", "w") as file:
                file.write(str(epoch))
            checkpoint = ray.train.Checkpoint.from_directory(place)
            ray.train.report({config["reported"]: TRAIN[epoch]}, checkpoint=checkpoint, validation=True)
        ray.train.get_all_reported_checkpoints()  # waits for the validation


def run(reported, score, order):
    """Returns the epochs and validation losses of the checkpoints on disk after training."""
    name = f"{reported}-{score}"
    keep = ray.train.CheckpointConfig(num_to_keep=1, checkpoint_score_attribute=score, checkpoint_score_order=order)
    DataParallelTrainer(train, train_loop_config={"reported": reported}, validation_config=ray.train.ValidationConfig(validate),
                        scaling_config=ray.train.ScalingConfig(num_workers=1),
                        run_config=ray.train.RunConfig(name=name, storage_path=folder + "/runs", checkpoint_config=keep)).fit()
    places = [entry.path for entry in os.scandir(f"{folder}/runs/{name}") if entry.name.startswith("checkpoint_") and entry.is_dir()]
    return {epoch + 1: VALID[epoch] for epoch in sorted(epoch_of(ray.train.Checkpoint.from_directory(place)) for place in places)}


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


# With ports of their own the node's agents need not be up within 15 s.
AGENTS = ("metrics_agent_port", "metrics_export_port", "dashboard_agent_listen_port", "runtime_env_agent_port")
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 3, "include_dashboard": False, **dict(zip(AGENTS, free_ports(4)))})
ray.init(address=cluster.address, log_to_driver=False)
print(f"Ray {ray.__version__}: validation losses of 4 epochs {VALID}, num_to_keep=1; checkpoints on disk after training {{epoch: validation loss}}")
print("expected: the best, epoch 2, and at most the latest one, which is never deleted at once")
seen = []
for reported, score, order in (("train_loss", "valid_score", "max"), ("train_loss", "valid_loss", "min"), ("loss", "loss", "min")):
    seen.append(run(reported, score, order))
    print(f"reported {reported}, then validated; kept by {order} {score}: {seen[-1]}", flush=True)
ray.shutdown()
cluster.shutdown()
sys.exit(seen != [{2: 1.0, 4: 3.0}, {4: 3.0}, {4: 3.0}])
PYTHON
check "$python" "$folder/runs.py" "$folder"
