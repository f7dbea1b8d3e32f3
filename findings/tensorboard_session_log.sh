#!/usr/bin/env bash
# TensorBoard 2.21.0, data server 0.7: a run that restarts says so by an event SessionLog START with its first step; what earlier files
# have of that step and later ones is void. EventAccumulator (and --load_fast=false) drops these points, the default loader shows them.
. "$(dirname "$0")/support.sh"
packages tensorboard==2.21.0
cat > "$folder/show.py" <<'PYTHON'
import json, re, subprocess, sys, time, urllib.error, urllib.request
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter
from tensorboard.version import VERSION

runs = Path(sys.argv[1])


def write(name, start, steps):
    first, restart = Event(file_version="brain.Event:2"), Event(step=start)
    restart.session_log.status = 1  # START
    values = [Event(step=step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=step)])) for step in steps]
    with open(runs / name, "wb") as file:
        for event in (first, restart, *values):
            RecordWriter(file).write(event.SerializeToString())


write("events.out.tfevents.1700000001.host.1.0", 1, [10, 20, 40])
write("events.out.tfevents.1700000002.host.2.0", 15, [50])  # went back to 14; 20 and 40 are void
loaded = EventAccumulator(str(runs)).Reload()
accumulator = [point.step for point in loaded.Scalars("loss")]
server = subprocess.Popen([sys.executable, "-m", "tensorboard.main", "--logdir", runs, "--host", "127.0.0.1", "--port", "0"], stderr=subprocess.PIPE, text=True)
url = next(found.group() for line in server.stderr if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
served = []
for _ in range(300):
    try:
        with urllib.request.urlopen(url + "data/plugin/scalars/scalars?run=.&tag=loss") as answer:
            served = [step for _, step, _ in json.load(answer)]
    except urllib.error.HTTPError:
        pass
    if 50 in served:
        break
    time.sleep(0.2)
server.kill()
print(f"TensorBoard {VERSION}: steps 10 20 40, then SessionLog START at 15, then 50")
print(f"expected: [10, 50] from every loader\nEventAccumulator: {accumulator}\ndefault loader over HTTP: {served}")
sys.exit((accumulator, served) != ([10, 50], [10, 20, 40, 50]))
PYTHON
mkdir "$folder/runs"
check "$python" "$folder/show.py" "$folder/runs"
