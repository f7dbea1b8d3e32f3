#!/usr/bin/env python3
"""A soak of `hadal supervise --elastic`: a run on four hosts of one machine (network namespaces, tests/support/host_lab.sh), disturbed at
random steps, must end with the bits of an undisturbed one.

    tests/bench/elastic_soak.py HADAL WORK [--steps 3000 --events 200 --seed 1] > tests/bench/results/elastic_soak.txt

An event is drawn from the seed: a host is killed (all its processes, its memory lost; it is away until an event `returned`), its ranks
are stopped and continued, its cable is pulled and plugged in again, the run's disk or a host's memory folder is full for a while. One
host always stays. At the end each step of metrics.jsonl is there once, with the loss, the tokens and the place in the data of the
undisturbed run, but for those that a warning there names (a host was lost while the disk was full); so are the weights.
Lost seconds of an event: to the first new step after it, less the median step's.
Needs root, iproute2, util-linux and Open MPI."""
import argparse
import collections
import contextlib
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).resolve().parent.parent / "support"
HOSTS = ["h1", "h2", "h3", "h4"]
CONFIG = """data {{ train: "{data}/train" }}
model {{ encoder_layers: 4 decoder_layers: 4 d_model: 32 d_ff: 64 heads: 2 max_positions: 128 dropout: 0.1 }}
batch {{ micro_batches: 8 sum_groups: 4 source_tokens: 128 target_tokens: 128 }}
pipeline {{ threads: 1 wait_timeout_seconds: 20 }}
learning_rate {{ peak: 1e-3 warmup_updates: 100 }}
checkpoint {{ every_steps: 50 keep_last: 2 memory_every_steps: 5 memory_folder: "{memory}" }}
stop {{ steps: {steps} }}
"""
SAME = ("loss", "nll", "target_tokens", "gradient_norm", "epoch", "update", "skipped")  # of a step, in any run


class Lab:
    """Hosts h1 … h4 and h5, where the supervisor runs; each has a memory of its own that outlives its processes."""

    def __init__(self, work: Path) -> None:
        self.work, self.mounts = work, list[Path]()
        script = f'. {SUPPORT}/host_lab.sh; missing=$(host_lab_missing); [ -z "$missing" ] || {{ echo "$missing" >&2; exit 1; }}\n'
        script += f"host_lab_up 5 {work}/lab >&2 && env -0"
        lines = subprocess.run(["bash", "-c", script], check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
        self.environment = dict(line.decode().split("=", 1) for line in lines if b"=" in line)
        self.name = self.environment["HOST_LAB_NAME"]
        self.disk, self.memory, self.enter = work / "disk", work / "memory", work / "enter"
        self.mount(self.disk, "64m")
        self.memory.mkdir()
        for host in HOSTS:
            self.mount(work / "lab" / host, "16m")
        # In place of ssh: a host that is away, or whose cable is pulled, refuses a new connection.
        self.enter.write_text(f"""#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift; done
host=$1; shift
[ ! -e {work}/lab/away-$host ] && ip -n {self.name}-$host link show lan 2> /dev/null | grep -q LOWER_UP || exit 255
exec {SUPPORT}/host_lab_agent $host "mount --bind {work}/lab/$host {self.memory} && $*"
""")
        self.enter.chmod(0o755)
        for agent in ("OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm_ssh_agent"):
            self.environment[agent] = str(self.enter)

    def mount(self, folder: Path, size: str) -> None:
        folder.mkdir(parents=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
        self.mounts.append(folder)

    def link(self, host: str, state: str) -> None:
        subprocess.run(["ip", "-n", f"{self.name}-{host}", "link", "set", "lan", state], check=True)

    def processes(self, host: str, word: bytes = b"") -> list[int]:
        """The processes on a host whose command line begins with `word`."""
        namespace, found = os.stat(f"/run/netns/{self.name}-{host}").st_ino, []
        for pid in (int(p) for p in os.listdir("/proc") if p.isdigit()):
            with contextlib.suppress(OSError):  # it may have ended
                if os.stat(f"/proc/{pid}/ns/net").st_ino == namespace and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(word):
                    found.append(pid)
        return found

    @staticmethod
    def signal(pids: list[int], number: int) -> None:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def close(self) -> None:
        for host in [*HOSTS, "h5"]:
            while pids := self.processes(host):
                self.signal(pids, signal.SIGKILL)
                time.sleep(0.1)
        for folder in self.mounts:
            subprocess.run(["umount", "-l", folder], check=False)
        for host in [*HOSTS, "h5", "switch"]:
            subprocess.run(["ip", "netns", "del", f"{self.name}-{host}"], check=False)


def fill(folder: Path) -> None:
    """Leaves no room on the file system of `folder`."""
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


class Disturber:
    def __init__(self, lab: Lab, hadal: str, draw: random.Random) -> None:
        self.lab, self.hadal, self.draw, self.away = lab, hadal.encode(), draw, set[str]()

    def event(self) -> tuple[str, str]:
        here = [host for host in HOSTS if host not in self.away]
        kinds = ["stopped", "cut", "disk full", "memory full"] if len(here) > 1 else ["stopped", "disk full", "memory full"]
        kinds += ["killed"] * (len(here) > 1) + ["returned"] * len(self.away)
        kind = self.draw.choice(kinds)
        return kind, self.draw.choice(sorted(self.away) if kind == "returned" else here)

    def disturb(self, kind: str, host: str) -> None:
        lab, seconds = self.lab, self.draw.uniform(0.5, 5)
        if kind == "killed":
            (lab.work / "lab" / f"away-{host}").touch()
            self.away.add(host)
            lab.signal(lab.processes(host), signal.SIGKILL)
            for entry in (lab.work / "lab" / host).iterdir():
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        elif kind == "returned":
            self.away.remove(host)
            (lab.work / "lab" / f"away-{host}").unlink()
        elif kind == "stopped":
            ranks = lab.processes(host, self.hadal)
            lab.signal(ranks, signal.SIGSTOP)
            time.sleep(seconds)
            lab.signal(ranks, signal.SIGCONT)
        elif kind == "cut":
            lab.link(host, "down")
            time.sleep(seconds * self.draw.choice([0.5, 5]))  # some are over before anybody notices
            lab.link(host, "up")
        else:
            folder = lab.disk if kind == "disk full" else lab.work / "lab" / host
            fill(folder)
            time.sleep(seconds)
            (folder / "filler").unlink()


def quietly(work: Path, command: str) -> None:
    subprocess.run(command.split(), check=True, cwd=work, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def lines_of(file: Path) -> list[dict[str, Any]]:
    with open(file, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines if line.endswith("\n")]


def newest_step(run: Path) -> int:
    try:
        with open(run / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 65536))
            lines = [line for line in file.read().split(b"\n")[:-1] if line.startswith(b'{"event":"step"')]
        return int(json.loads(lines[-1])["step"]) if lines else 0
    except OSError:
        return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("hadal", type=Path)
    parser.add_argument("work", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hadal, work = str(arguments.hadal.resolve()), arguments.work.resolve()
    work.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = Lab(work)
    try:
        return soak(lab, hadal, arguments)
    finally:
        lab.close()


def soak(lab: Lab, hadal: str, arguments: argparse.Namespace) -> int:
    work, run = lab.work, lab.disk / "run"
    quietly(work, f"{hadal} make-corpus --out text --pairs 2000 --valid 40 --test 20")
    texts = "--train text/train.en text/train.de --valid text/valid.en text/valid.de"
    quietly(work, f"{hadal} prepare {texts} --out data --vocab-size 300")
    config = work / "soak.textproto"
    config.write_text(CONFIG.format(data=work / "data", memory=lab.memory, steps=arguments.steps))
    quietly(work, f"{hadal} train {config} --set checkpoint.memory_every_steps=0 --run-dir undisturbed")
    (work / "hosts").write_text("".join(f"{host} slots=1\n" for host in HOSTS))
    command = f"{hadal} supervise --elastic {work}/hosts --probe '{lab.enter} {{host}} true' --grow-every 5s --"
    command += " mpirun -np {ranks} --hostfile {hostfile} --bind-to none"
    command += f" {hadal} train {config} --run-dir {run} {{layout}}"
    with open(work / "log", "wb") as log:
        job = subprocess.Popen([SUPPORT / "host_lab_agent", "h5", command], env=lab.environment, cwd=work, stdout=log, stderr=log)
    draw = random.Random(arguments.seed)
    disturber = Disturber(lab, hadal, draw)
    places = sorted(draw.randrange(arguments.steps - 10) for _ in range(arguments.events))
    events: list[tuple[str, float]] = []  # kind, lost seconds
    waiting: list[tuple[str, float]] = []  # kind, when; no new step since
    done = 0  # the most steps
    while job.poll() is None:
        newest = newest_step(run)
        if newest > done:
            done = newest
            events += [(kind, time.monotonic() - when) for kind, when in waiting]
            waiting = []
        if places and done >= places[0] and not waiting:
            places.pop(0)
            kind, host = disturber.event()
            waiting.append((kind, time.monotonic()))
            print(f"step {done}: {kind} {host}", file=sys.stderr, flush=True)
            disturber.disturb(kind, host)
        time.sleep(0.005)
    return verdict(lab, hadal, arguments, job.returncode, events)


def verdict(lab: Lab, hadal: str, arguments: argparse.Namespace, code: int, events: list[tuple[str, float]]) -> int:
    work, run = lab.work, lab.disk / "run"
    shutil.copytree(run, work / "run", symlinks=True)
    runs = (lines_of(work / name / "metrics.jsonl") for name in ("undisturbed", "run"))
    wanted, steps = ([line for line in lines if line["event"] == "step"] for lines in runs)
    faults = [] if code == 0 else [f"exit code {code}"]
    named = set[int]()  # steps whose lines could not be written before their attempt ended: a warning names them
    for line in lines_of(work / "run/metrics.jsonl"):
        if found := re.search(r"has no lines of the steps (\d+) to (\d+)", line.get("text", "")):
            named |= set(range(int(found[1]), int(found[2]) + 1))
    wanted = [step for step in wanted if step["step"] not in named]
    if [step["step"] for step in steps] != [step["step"] for step in wanted]:
        faults.append("a step is missing or there twice")
    differing = [a["step"] for a, b in zip(wanted, steps) if any(a.get(key) != b.get(key) for key in SAME)]
    if differing:
        faults.append(f"steps that are not the undisturbed run's: {len(differing)}, from {differing[0]} on")
    last = f"checkpoints/step_{arguments.steps:08d}"
    words = [hadal, "checkpoint", "diff", f"undisturbed/{last}", f"run/{last}"]
    if b"identical" not in subprocess.run(words, cwd=work, stdout=subprocess.PIPE, check=False).stdout:
        faults.append("the weights are not the undisturbed run's")
    step_seconds = statistics.median(step["step_seconds"] for step in steps) if steps else 0
    print(f"tests/bench/elastic_soak.py HADAL WORK --steps {arguments.steps} --events {arguments.events} --seed {arguments.seed}\n")
    by_kind = collections.defaultdict(list)
    for kind, seconds in events:
        by_kind[kind].append(max(0.0, seconds - step_seconds))
        by_kind["all"].append(by_kind[kind][-1])
    print("| event | times | lost seconds, mean | median | most |\n|---|---|---|---|---|")
    for kind, lost in sorted(by_kind.items(), key=lambda row: (row[0] == "all", row[0])):
        print(f"| {kind} | {len(lost)} | {statistics.mean(lost):.1f} | {statistics.median(lost):.1f} | {max(lost):.1f} |")
    starts = lines_of(work / "run/incarnations.jsonl")
    print(f"\n{len(named)} steps without a line in metrics.jsonl; median step {1000 * step_seconds:.0f} ms; {len(starts)} starts; of those")
    print("that lost something, in the mean:")
    for field in ("detection_seconds", "restart_seconds", "repeated_steps"):
        print(f"  {field} {statistics.mean([start[field] for start in starts if start.get(field, 0) > 0] or [0]):.1f}")
    print("\n".join(f"FAILED: {fault}" for fault in faults) or "the weights, the losses and the data are the undisturbed run's")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
