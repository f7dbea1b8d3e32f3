#!/usr/bin/env python3
"""A soak of `hadal supervise --elastic slurm`: a job of launch/slurm/train.sbatch on up to two nodes of a Slurm of its own (slurmd in network
namespaces of one machine, tests/support/slurm_lab.sh), disturbed by 20 events, must end with the bits of an undisturbed run.

    tests/bench/elastic_slurm.py HADAL WORK [--events 20 --seed 1] >> tests/bench/results/elastic_slurm.txt

Another MPI than the system's: PATH=ITS/bin:$PATH LD_LIBRARY_PATH=ITS/lib before the command. An event is drawn from the seed:
    killed      a node is lost with all its processes and its memory; in half of the events the next one waits until Slurm has set it DOWN
    returned    its slurmd starts, as after a boot
    cut         its cable is pulled, for up to 75 seconds, and plugged in again; Slurm notices after 30
    stopped     its ranks are stopped and continued
    set down    scontrol update state=down; some seconds later state=resume
    requeued    scontrol requeue
    saved       USR1 to the job's script: the job saves and requeues itself
    disk full   the run's disk, for a while
One node always stays. If Slurm ends the job, the same line is submitted again; if it lets it run without its script, it is requeued. What is
compared, and lost seconds: elastic_soak.py. Needs root, iproute2, util-linux, munge, Slurm and Open MPI."""
import argparse
import contextlib
import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Iterator, Optional

from elastic_soak import Disturber, Lab, SUPPORT, disturb, first_line, newest_step, on_lab, prepare, print_header, sourced, verdict

SCRIPT = SUPPORT.parent.parent / "launch/slurm/train.sbatch"
MOST_SUBMISSIONS = 50  # without a new step


class SlurmLab(Lab):
    """Nodes h1 and h2; the controller and the user are on h3."""

    def __init__(self, work: Path, hosts: int) -> None:
        super().__init__(work, hosts)
        self.run, self.stop, self.job = self.disk / "run", work / "stop.textproto", ""
        self.submissions, self.orphans, self.since_step, self.step, self.asked = 0, 0, 0, 0, 0.0

    def start(self, hadal: str) -> None:
        for name in ("OMPI_MCA_plm", "OMPI_MCA_plm_rsh_agent", "PRTE_MCA_plm", "PRTE_MCA_plm_ssh_agent"):
            del self.environment[name]
        libraries = self.environment.pop("LD_LIBRARY_PATH", "")  # an MPI's, not of Slurm's programs
        self.environment["SLURM_LAB_ENTER"] = str(self.enter)
        self.environment = sourced("slurm_lab", f"{self.work}/slurm", self.environment)
        (self.work / "tmp").mkdir()
        self.environment.update(HADAL=hadal, HADAL_LAUNCHER="elastic", HADAL_MPIRUN_OPTIONS="--bind-to none", TMPDIR=f"{self.work}/tmp",
                                HADAL_SUPERVISE_OPTIONS="--grow-every 5s", HADAL_LEAST_TASKS="2", LD_LIBRARY_PATH=libraries)

    def slurm(self, command: str) -> str:
        words = [str(self.enter), self.other, command]
        return str(subprocess.run(words, env=self.environment, cwd=self.work, stdout=subprocess.PIPE, check=False, text=True).stdout).strip()

    def submit(self) -> None:
        self.submissions, self.since_step = self.submissions + 1, self.since_step + 1
        options = "--parsable --no-kill --nodes 1-2 --ntasks-per-node 2 --output job.log"
        self.job = self.slurm(f"sbatch {options} {SCRIPT} soak.textproto stop.textproto --run-dir {self.run}")

    def poll(self) -> Optional[int]:
        """Does what a user would for the job; returns its exit code, 0, once it has ended with success."""
        if time.monotonic() < self.asked + 1:
            return None
        self.asked = time.monotonic()
        if (newest := newest_step(self.run)) > self.step:
            self.step, self.since_step = newest, 0
        job = dict(re.findall(r"(JobState|NumTasks|BatchHost|NodeList)=(\S+)", self.slurm(f"scontrol show job {self.job}")))
        state = job.get("JobState", "")
        if state == "RUNNING" and job.get("NodeList") not in ("h[1-2]", job.get("BatchHost")):
            print("the job runs without its script: requeueing it", file=sys.stderr, flush=True)
            self.orphans += 1
            self.slurm(f"scontrol requeue {self.job}")
        if state == "PENDING" and job.get("NumTasks") != self.environment["HADAL_LEAST_TASKS"]:  # Slurm or an event has requeued it
            self.slurm(f"scontrol update JobId={self.job} NumTasks={self.environment['HADAL_LEAST_TASKS']}")
        if state not in ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT"):
            return None
        if state == "COMPLETED" or self.since_step > MOST_SUBMISSIONS:
            return int(state != "COMPLETED")
        print(f"the job is {state}: submitting it again", file=sys.stderr, flush=True)
        self.submit()
        return None

    def wait_for(self, host: str, state: str) -> None:
        """Waits until Slurm's state of a node matches `state`."""
        while not re.fullmatch(state, self.slurm(f"sinfo -h -n {host} -o %t")):
            if self.poll() is not None:
                return
            time.sleep(0.5)

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.work / "slurm/run/munged.pid").read_text()), signal.SIGTERM)


class SlurmDisturber(Disturber):
    lab: SlurmLab
    longer_cuts = [0.5, 5.0, 15.0]

    def event(self) -> tuple[str, str]:
        here = [host for host in self.lab.hosts if host not in self.away]
        kinds = ["stopped", "disk full", "requeued", "saved", *(["killed", "cut", "set down"] if len(here) > 1 else ["returned"] * 2)]
        kind = self.draw.choice(kinds)
        return kind, self.draw.choice(sorted(self.away) if kind == "returned" else here)

    def disturb(self, kind: str, host: str) -> None:
        lab = self.lab
        if kind == "requeued":
            lab.slurm(f"scontrol requeue {lab.job}")
        elif kind == "saved":
            lab.slurm(f"scancel --batch --signal=USR1 {lab.job}")
        elif kind == "set down":
            lab.slurm(f"scontrol update nodename={host} state=down reason=soak")
            time.sleep(self.draw.uniform(0.5, 5))
            lab.slurm(f"scontrol update nodename={host} state=resume")
        else:
            super().disturb(kind, host)
        if kind == "returned":
            subprocess.run([lab.enter, host, f"slurmd -b -N {host}"], env=lab.environment, check=True)
        if kind == "killed" and self.draw.random() < 0.5:
            lab.wait_for(host, r"down.*")
        if kind in ("returned", "cut", "set down"):
            lab.wait_for(host, "idle|mix|alloc|comp")


def soak(lab: SlurmLab, hadal: str, arguments: argparse.Namespace) -> int:
    print_header(hadal, arguments, "; " + first_line("slurmd", "-V"))
    prepare(lab, hadal)
    lab.stop.write_text("stop { steps: 100000000 }")
    lab.start(hadal)
    lab.submit()
    draw = random.Random(arguments.seed)

    def places() -> Iterator[int]:
        for _ in range(arguments.events):
            yield lab.step + draw.randrange(1, 15)
        lab.stop.write_text(f"stop {{ steps: {newest_step(lab.run) + 40} }}")
        lab.slurm(f"scancel --batch --signal=USR1 {lab.job}")

    code, events = disturb(lab.poll, lab.run, SlurmDisturber(lab, hadal, draw), places())
    log = (lab.work / "job.log").read_text(errors="replace")
    result = verdict(lab, hadal, [] if code == 0 else [f"{MOST_SUBMISSIONS} jobs without a new step"], events, arguments.events)
    starts = len(re.findall(", start [0-9]+: ", log))
    print(f"{lab.submissions} submissions, {starts} starts by Slurm; jobs that ran without a script: {lab.orphans}\n")
    return result


if __name__ == "__main__":
    sys.exit(on_lab(SlurmLab, 2, 20, soak, argparse.ArgumentParser(description=str(__doc__).split("\n\n", maxsplit=1)[0])))
