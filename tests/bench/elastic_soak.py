#!/usr/bin/env python3
"""A soak of `hadal supervise --elastic`: a run on four hosts of one machine (network namespaces, tests/support/host_lab.sh), disturbed at
random steps, must end with the bits of an undisturbed one.

    tests/bench/elastic_soak.py HADAL WORK [--steps 3000 --events 200 --seed 1] > tests/bench/results/elastic_soak.txt

An event is drawn from the seed: a host is killed (all its processes, its memory lost; it is away until an event `returned`), its ranks
are stopped and continued, its cable is pulled and plugged in again, the run's disk or a host's memory folder is full for a while. One
host always stays. At the end each step of metrics.jsonl is there once, with the loss, the tokens and the place in the data of the
undisturbed run, but for those that a warning there names (a host was lost while the disk was full); so are the weights.
Lost seconds of an event: to the third new step after it, less the median time of the new steps.
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
from typing import Any, Callable, Iterator, NamedTuple, Optional, TypeVar

SUPPORT = Path(__file__).resolve().parent.parent / "support"
CONFIG = """data {{ train: "{data}/train" }}
model {{ encoder_layers: 4 decoder_layers: 4 d_model: 32 d_ff: 64 heads: 2 max_positions: 128 dropout: 0.1 }}
batch {{ micro_batches: 8 sum_groups: 4 source_tokens: 128 target_tokens: 128 }}
pipeline {{ threads: 1 wait_timeout_seconds: 20 }}
learning_rate {{ peak: 1e-3 warmup_updates: 100 }}
checkpoint {{ every_steps: 50 keep_last: 2 memory_every_steps: 5 memory_folder: "{memory}" }}
"""
SAME = ("loss", "nll", "target_tokens", "gradient_norm", "epoch", "update", "skipped")  # of a step, in any run


def sourced(name: str, arguments: str, environment: dict[str, str]) -> dict[str, str]:
    """Starts a lab of tests/support; returns the environment for its users."""
    script = f'. {SUPPORT}/{name}.sh; missing=$({name}_missing); [ -z "$missing" ] || {{ echo "$missing" >&2; exit 1; }}\n'
    script += f"{name}_up {arguments} >&2 && env -0"
    lines = subprocess.run(["bash", "-c", script], env=environment, check=True, stdout=subprocess.PIPE).stdout.split(b"\0")
    return dict(line.decode().split("=", 1) for line in lines if b"=" in line)


class Lab:
    """Hosts h1 … hN, each with a memory of its own that outlives its processes, and one more, `other`."""

    def __init__(self, work: Path, hosts: int) -> None:
        self.work, self.mounts = work, list[Path]()
        self.hosts, self.other = [f"h{host}" for host in range(1, hosts + 1)], f"h{hosts + 1}"
        self.environment = sourced("host_lab", f"{hosts + 1} {work}/lab", dict(os.environ))
        self.name = self.environment["HOST_LAB_NAME"]
        self.disk, self.memory, self.enter = work / "disk", work / "memory", work / "enter"
        self.mount(self.disk, "64m")
        self.memory.mkdir()
        for host in [*self.hosts, self.other]:
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
        """The processes on a host whose command line, its words ended by 0, begins with `word`."""
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

    def kill(self, host: str) -> None:
        """Ends all processes of a host; its memory is lost."""
        while pids := self.processes(host):
            self.signal(pids, signal.SIGKILL)
            time.sleep(0.1)
        for entry in (self.work / "lab" / host).iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def close(self) -> None:
        for host in [*self.hosts, self.other]:
            self.kill(host)
        for folder in self.mounts:
            subprocess.run(["umount", "-l", folder], check=False)
        for host in [*self.hosts, self.other, "switch"]:
            subprocess.run(["ip", "netns", "del", f"{self.name}-{host}"], check=False)


def fill(folder: Path) -> None:
    """Leaves no room on the file system of `folder`."""
    with open(folder / "filler", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while file.write(bytes(4096)):
            pass


LabKind = TypeVar("LabKind", bound=Lab)


class Disturber:
    longer_cuts = [0.5, 5.0]  # times 0.5 to 5 seconds; some are over before anybody notices

    def __init__(self, lab: Lab, hadal: str, draw: random.Random) -> None:
        self.lab, self.draw, self.away = lab, draw, set[str]()
        self.ranks = hadal.encode() + b"\0train\0"

    def event(self) -> tuple[str, str]:
        here = [host for host in self.lab.hosts if host not in self.away]
        kinds = ["stopped", "cut", "disk full", "memory full"] if len(here) > 1 else ["stopped", "disk full", "memory full"]
        kinds += ["killed"] * (len(here) > 1) + ["returned"] * len(self.away)
        kind = self.draw.choice(kinds)
        return kind, self.draw.choice(sorted(self.away) if kind == "returned" else here)

    def disturb(self, kind: str, host: str) -> None:
        lab, seconds = self.lab, self.draw.uniform(0.5, 5)
        if kind == "killed":
            (lab.work / "lab" / f"away-{host}").touch()
            self.away.add(host)
            lab.kill(host)
        elif kind == "returned":
            self.away.remove(host)
            (lab.work / "lab" / f"away-{host}").unlink()
        elif kind == "stopped":
            ranks = lab.processes(host, self.ranks)
            lab.signal(ranks, signal.SIGSTOP)
            time.sleep(seconds)
            lab.signal(ranks, signal.SIGCONT)
        elif kind == "cut":
            lab.link(host, "down")
            time.sleep(seconds * self.draw.choice(self.longer_cuts))
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


def on_lab(kind: Callable[[Path, int], LabKind], hosts: int, events: int, soak: Callable[[LabKind, str, argparse.Namespace], int],
           parser: argparse.ArgumentParser) -> int:
    """Runs a soak of so many events, if none are given, on a lab of so many hosts, which it makes and removes; returns the exit code."""
    parser.add_argument("hadal", type=Path)
    parser.add_argument("work", type=Path, help="a folder that does not exist yet")
    parser.add_argument("--events", type=int, default=events)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    hadal, work = str(arguments.hadal.resolve()), arguments.work.resolve()
    work.mkdir(parents=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    lab = kind(work, hosts)
    try:
        return soak(lab, hadal, arguments)
    finally:
        lab.close()


def first_line(*command: str) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split("\n", maxsplit=1)[0].strip()


def print_header(hadal: str, arguments: argparse.Namespace, others: str = "") -> None:
    options = " ".join(f"--{name} {value}" for name, value in vars(arguments).items() if isinstance(value, int))
    print(f"tests/bench/{Path(sys.argv[0]).name} HADAL WORK {options}")
    commit = first_line("sh", "-c", f"'{hadal}' --build-info | grep ^commit")
    cpu, load = first_line("sed", "-n", "s/^model name.*: //p", "/proc/cpuinfo"), os.getloadavg()[1]
    print(f"{' '.join(commit.split())}; {first_line('mpirun', '--version')}{others}; {os.cpu_count()} CPUs, {cpu}; load {load:.1f}\n", flush=True)


def prepare(lab: Lab, hadal: str) -> Path:
    """Makes the corpus; returns the config, which lacks stop.steps."""
    quietly(lab.work, f"{hadal} make-corpus --out text --pairs 2000 --valid 40 --test 20")
    texts = "--train text/train.en text/train.de --valid text/valid.en text/valid.de"
    quietly(lab.work, f"{hadal} prepare {texts} --out data --vocab-size 300")
    config = lab.work / "soak.textproto"
    config.write_text(CONFIG.format(data=lab.work / "data", memory=lab.memory))
    return config


class Event(NamedTuple):
    kind: str
    seconds: float  # to the third new step after it
    steps: int  # new ones of that time


def disturb(poll: Callable[[], Optional[int]], run: Path, disturber: Disturber, places: Iterator[int]) -> tuple[int, list[Event]]:
    """Disturbs a job until `poll` returns its exit code, at the steps of `places`, but never before it has got over the last event."""
    events, kind, after, began, begun, done = list[Event](), "", 0, 0.0, 0, 0
    place = next(places, None)
    while (code := poll()) is None:
        done = max(done, newest_step(run))  # a restart takes steps back
        if kind and done >= after:
            events.append(Event(kind, time.monotonic() - began, done - begun))
            kind, place = "", next(places, None)
        if place is not None and not kind and done >= place:
            kind, host = disturber.event()
            began, begun = time.monotonic(), done
            print(f"step {done}: {kind} {host}", file=sys.stderr, flush=True)
            disturber.disturb(kind, host)
            after = max(done, newest_step(run)) + 3  # the first may have been under way
        time.sleep(0.005)
    return code, events


def soak(lab: Lab, hadal: str, arguments: argparse.Namespace) -> int:
    print_header(hadal, arguments)
    work, run = lab.work, lab.disk / "run"
    config = prepare(lab, hadal)
    (work / "hosts").write_text("".join(f"{host} slots=1\n" for host in lab.hosts))
    command = f"{hadal} supervise --elastic {work}/hosts --probe '{lab.enter} {{host}} true' --grow-every 5s --"
    command += " mpirun -np {ranks} --hostfile {hostfile} --bind-to none"
    command += f" {hadal} train {config} --set stop.steps={arguments.steps} --run-dir {run} {{layout}}"
    with open(work / "log", "wb") as log:
        job = subprocess.Popen([SUPPORT / "host_lab_agent", lab.other, command], env=lab.environment, cwd=work, stdout=log, stderr=log)
    draw = random.Random(arguments.seed)
    places = sorted(draw.randrange(arguments.steps - arguments.steps // 20) for _ in range(arguments.events))
    code, events = disturb(job.poll, run, Disturber(lab, hadal, draw), iter(places))
    return verdict(lab, hadal, [] if code == 0 and newest_step(run) == arguments.steps else [f"exit code {code}"], events, arguments.events)


def verdict(lab: Lab, hadal: str, faults: list[str], events: list[Event], wanted_events: int) -> int:
    """Compares the job's run with an undisturbed one of as many steps, and prints what the events cost."""
    work = lab.work
    shutil.copytree(lab.disk / "run", work / "run", symlinks=True)
    last = (work / "run/checkpoints/latest").resolve().name
    quietly(work, f"{hadal} train soak.textproto --set stop.steps={int(last[5:])} --set checkpoint.memory_every_steps=0 --run-dir undisturbed")
    runs = (lines_of(work / name / "metrics.jsonl") for name in ("undisturbed", "run"))
    wanted, steps = ([line for line in lines if line["event"] == "step"] for lines in runs)
    named = set[int]()  # steps whose lines could not be written before their attempt ended: a warning names them
    for line in lines_of(work / "run/metrics.jsonl"):
        if found := re.search(r"has no lines of the steps (\d+) to (\d+)", line.get("text", "")):
            named |= set(range(int(found[1]), int(found[2]) + 1))
    if named and "disk full" not in {event.kind for event in events}:
        faults.append("steps without a line, and the disk was never full")
    wanted = [step for step in wanted if step["step"] not in named]
    if len(events) < wanted_events:
        faults.append(f"{len(events)} events of {wanted_events}")
    if [step["step"] for step in steps] != [step["step"] for step in wanted]:
        faults.append("a step is missing or there twice")
    differing = [a["step"] for a, b in zip(wanted, steps) if any(a.get(key) != b.get(key) for key in SAME)]
    if differing:
        faults.append(f"steps that are not the undisturbed run's: {len(differing)}, from {differing[0]} on")
    words = [hadal, "checkpoint", "diff", f"undisturbed/checkpoints/{last}", f"run/checkpoints/{last}"]
    if b"identical" not in subprocess.run(words, cwd=work, stdout=subprocess.PIPE, check=False).stdout:
        faults.append("the weights are not the undisturbed run's")
    step_seconds = statistics.median(step["step_seconds"] for step in steps)
    by_kind = collections.defaultdict(list)
    for event in events:
        by_kind[event.kind].append(max(0.0, event.seconds - event.steps * step_seconds))
        by_kind["all"].append(by_kind[event.kind][-1])
    print("| event | times | lost seconds, mean | median | most |\n|---|---|---|---|---|")
    for kind, lost in sorted(by_kind.items(), key=lambda row: (row[0] == "all", row[0])):
        print(f"| {kind} | {len(lost)} | {statistics.mean(lost):.1f} | {statistics.median(lost):.1f} | {max(lost):.1f} |")
    starts = lines_of(work / "run/incarnations.jsonl")
    print(f"\n{len(steps)} steps, median {1000 * step_seconds:.0f} ms; {len(named)} steps without a line in metrics.jsonl")
    print(f"{len(starts)} starts; of those that lost something, in the mean:")
    for field in ("detection_seconds", "restart_seconds", "repeated_steps"):
        print(f"  {field} {statistics.mean([start[field] for start in starts if start.get(field, 0) > 0] or [0]):.1f}")
    print("\n".join(f"FAILED: {fault}" for fault in faults) or "the weights, the losses and the data are the undisturbed run's")
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n\n", maxsplit=1)[0])
    parser.add_argument("--steps", type=int, default=3000)
    return on_lab(Lab, 4, 200, soak, parser)


if __name__ == "__main__":
    sys.exit(main())
