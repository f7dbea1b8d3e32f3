#!/usr/bin/env python3
"""Decoders of Llama blocks by depth: which methods train, at their best rates, on 2M tokens of text, each read once.

    tests/bench/decoder_ladder.py prepare HADAL FOLDER                        text of Debian's linux-doc-6.1 (GPL-2) → FOLDER/data
    tests/bench/decoder_ladder.py cost HADAL FOLDER                           hours of each part, from a few steps at each depth
    tests/bench/decoder_ladder.py run HADAL FOLDER RUNS.jsonl --hours H       trains what RUNS.jsonl lacks, one run a core, and adds a line for each
    tests/bench/decoder_ladder.py table RUNS.jsonl > tests/bench/results/decoder_ladder.txt
    tests/bench/decoder_ladder.py figure RUNS.jsonl docs/pictures/decoder_ladder.svg    (with matplotlib)

Rates are a factor 2 apart; a method's search at a depth begins at the best rate of the depth before and continues until its best rate has a
neighbour on both sides. The best rate has three seeds; a seed's order of data is the same for all methods. Scores are nll of 128 held-out
blocks of 256 tokens, after the last step. A method is better than Pre-LN if the mean of the paired differences is beyond twice their
standard deviation. An interrupted run continues from its checkpoint. Each row has its text's checksum: Debian's text changes with its version, and only
runs on the same text are paired (6.1.192 has 2652571630; the first 102 rows have none, and another text)."""
import argparse
import concurrent.futures
import gzip
import json
import math
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXT = pathlib.Path("/usr/share/doc/linux-doc-6.1/Documentation")
STEPS = 1000  # of 2,048 tokens
START = {"adam": (1, 2, 3), "muon": (2, 3, 4)}  # exponents of a search's first rates, 1e-3 · 2^exponent, at a method's least depth
LOWEST = -3  # while all rates fail, lower ones are tried, down to one below this
SEEDS = (1, 2, 3)
LADDER = ("pre_ln", "ln_scaling", "completep", "deepnorm", "keel", "attn_res")
OTHERS = ("peri_ln", "mix_ln", "mhc", "residual_dual", "attn_res_delta")
MUON = ("pre_ln", "completep", "attn_res", "deepnorm")
# A part: name, methods, layers, width, optimizer, seeds of the best rate. Parts are done in this order.
PARTS = (("12 layers", LADDER, 12, 64, "adam", SEEDS), ("64 layers", LADDER, 64, 64, "adam", SEEDS),
         ("64 layers, more methods", OTHERS, 64, 64, "adam", SEEDS), ("64 layers, Muon", MUON, 64, 64, "muon", SEEDS),
         ("12 layers of equal parameters", ("pre_ln",), 12, 296, "adam", SEEDS), ("256 layers", LADDER, 256, 64, "adam", SEEDS))
FAILS = 6.9  # an nll from which on a run has failed: a model of token frequencies has 6.984
DEEPEST = (512, 1024)  # Pre-LN, Post-LN and the best three of 256 layers, one seed, at 256 layers' rates


def settings(folder, method, layers, width, optimizer, exponent, seed):
    return ["configs/block/llama.textproto", f"configs/method/{method}.textproto",
            *(f"--set={field}" for field in (
                f"data.train={folder}/data/train", f"data.validation={folder}/data/valid", "model.encoder_layers=0",
                f"model.decoder_layers={layers}", f"model.d_model={width}", f"model.d_ff={16 * round(width / 6)}",
                "model.heads=4", "model.max_positions=256", "model.dropout=0", "model.label_smoothing=0", "batch.micro_batches=2",
                "batch.target_tokens=1024",
                "learning_rate.schedule=wsd", f"learning_rate.peak={1e-3 * 2**exponent}", "learning_rate.warmup_fraction=0.05",
                "learning_rate.decay_fraction=0.2", "learning_rate.decay_shape=one_minus_sqrt", f"optimizer.kind={optimizer}",
                "optimizer.clip_norm=1", "optimizer.beta2=0.95", "optimizer.weight_decay=0.1", "optimizer.decay_of=matrices",
                "pipeline.threads=1", f"stop.steps={STEPS}", f"validation.every_steps={STEPS}", "validation.max_sentences=128",
                "checkpoint.every_minutes=5", "checkpoint.keep_last=1", "checkpoint.save_at_end=false", "instruments.enabled=false",
                f"seed={seed}"))]


def events_of(run):
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


class Ladder:
    """The runs that are done, and what trains the others."""

    def __init__(self, hadal, folder, path, deadline):
        self.hadal, self.folder, self.path, self.deadline = hadal, folder, path, deadline
        self.lock, self.cores = threading.Lock(), threading.Semaphore(os.cpu_count())
        self.done = {tuple(row["key"]): row for row in map(json.loads, path.read_text().splitlines())} if path.exists() else {}

    def nll(self, *key):
        """Held-out nll of the run (method, layers, width, optimizer, exponent, seed); infinity if it failed; None past the deadline."""
        if key not in self.done:
            with self.cores:
                row = self.train(key) if time.time() < self.deadline else None
            if row is None:
                return None
            with self.lock, self.path.open("a") as file:
                self.done[key] = row
                file.write(json.dumps(row) + "\n")
        return self.found()[key]

    def all_done(self, keys):
        """Whether these runs are done after the call, which trains as many at once as there are cores."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            return None not in list(pool.map(lambda key: self.nll(*key), keys))

    def train(self, key):
        run = self.folder / "runs" / "-".join(map(str, key))
        code = subprocess.run([self.hadal, "train", "configs/language_model/base.textproto", *settings(self.folder, *key), "--run-dir", run,
                               "--stop-after", f"{max(60, self.deadline - time.time()):.0f}s"], cwd=ROOT, stdout=subprocess.DEVNULL).returncode
        if code == 85:
            return None
        if code not in (0, 4):
            sys.exit(f"{run}: exit code {code}")
        events = events_of(run)  # of all sessions
        nll = [event["nll"] for event in events if event["event"] == "validation"][-1] if code == 0 else None
        shards = json.loads((self.folder / "data/train.json").read_text())["shards"]
        row = dict(key=key, nll=nll, data=shards[0]["crc32c"], seconds=round(sum(event["step_seconds"] for event in events if event["event"] == "step")),
                   commit=re.search(r"^commit +(\S+)", subprocess.run([self.hadal, "--build-info"], capture_output=True, text=True).stdout, re.M)[1])
        shutil.rmtree(run)
        return row

    def found(self):
        with self.lock:
            return nlls(self.done.values())

    def first_rates(self, method, layers, width, optimizer):
        """The exponents with which a search begins: the best one of the next shallower depth and its neighbours."""
        found = self.found()
        depths = [key[1] for key in found if key[0] == method and key[2:4] == (width, optimizer) and key[1] < layers]
        if not depths:
            return START[optimizer]
        best = of_best(found, (method, max(depths), width, optimizer))[1]
        return best - 1, best, best + 1

    def search(self, method, layers, width, optimizer, seeds):
        """The best rate's exponent, once its neighbours and its other seeds are done; else None."""
        group = (method, layers, width, optimizer)
        todo, best = self.first_rates(*group), None
        while True:
            tried = {key[4]: nll for key, nll in self.found().items() if key[:4] == group and key[5] == seeds[0]}
            if tried:
                best = min(tried, key=tried.get)
                fails = math.isinf(tried[best])
                if min(tried) < LOWEST if fails else {best - 1, best + 1} <= tried.keys():
                    break
            if tried.keys() >= set(todo):
                todo = (min(tried) - 1,) if fails else (best - 1, best + 1)
            if not self.all_done([(*group, exponent, seeds[0]) for exponent in todo]):
                return None
        if not fails and not self.all_done([(*group, best, seed) for seed in seeds[1:]]):
            return None
        return best


def prepare(hadal, folder):
    folder.mkdir(parents=True, exist_ok=True)
    files = sorted(path for path in TEXT.rglob("*")
                   if path.name.endswith((".rst.gz", ".txt.gz", ".rst", ".txt")) and "translations" not in path.parts)
    if not files:
        sys.exit(f"{TEXT} has no text: apt-get install linux-doc-6.1")
    with (folder / "train.jsonl").open("w") as train, (folder / "valid.jsonl").open("w") as valid:
        for number, path in enumerate(files):
            contents = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            (train if number % 50 else valid).write(json.dumps({"text": contents.decode(errors="replace")}) + "\n")
    subprocess.run([hadal, "prepare", "--monolingual", "--train", folder / "train.jsonl", "--valid", folder / "valid.jsonl",
                    "--out", folder / "data", "--vocab-size", "4000", "--block", "256"], check=True)


def cost(hadal, folder):
    total = 0
    for name, methods, layers, width, optimizer, seeds in PARTS:
        run = folder / "cost"
        shutil.rmtree(run, ignore_errors=True)
        subprocess.run([hadal, "train", "configs/language_model/base.textproto", *settings(folder, methods[0], layers, width, optimizer, 1, 1),
                        "--run-dir", run, "--set=stop.steps=5", "--set=validation.every_steps=0"], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        step = statistics.median(event["step_seconds"] for event in events_of(run) if event["event"] == "step")
        runs = len(methods) * (len(START[optimizer]) + 1 + len(seeds) - 1)
        hours = runs * STEPS * step / 3600 / os.cpu_count()
        total += hours
        print(f"{name:32} about {runs:2} runs of {STEPS * step:6.0f} s on a core: {hours:5.1f} hours of this machine", flush=True)
        last = step
    hours = sum(5 * STEPS * last * depth / 256 for depth in DEEPEST) / 3600 / os.cpu_count()
    print(f"{'512 and 1,024 layers':32} 10 runs: {hours:5.1f} hours\nall: {total + hours:.0f} hours of {os.cpu_count()} CPUs")


def run(ladder):
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, methods, *shape in PARTS:
            best = dict(zip(methods, pool.map(lambda method: ladder.search(method, *shape), methods)))
            if None in best.values():
                return print(f"{name}: not done; run again to continue")
            print(f"{name}: done")
        layers, width, optimizer, seeds = 256, 64, "adam", SEEDS
        order = sorted(LADDER, key=lambda method: ladder.nll(method, layers, width, optimizer, best[method], seeds[0]))
        chosen = dict.fromkeys(("pre_ln", "post_ln", *order[:3]))
        keys = [(method, depth, width, optimizer, best.get(method, best["pre_ln"]), seeds[0]) for depth in DEEPEST for method in chosen]
        if not ladder.all_done(keys):
            print("512 and 1,024 layers: not done; run again to continue")


def in_words(nll):
    return f"{nll:.3f}" if math.isfinite(nll) else "fails"


def nlls(rows):
    return {tuple(row["key"]): math.inf if row["nll"] is None or row["nll"] >= FAILS else row["nll"] for row in rows}


def of_best(found, group):
    """Of a group (method, layers, width, optimizer): nll of each rate with seed 1, the best rate's exponent, its nll of each seed."""
    rates = {key[4]: nll for key, nll in found.items() if key[:4] == group and key[5] == 1}
    best = min(rates, key=rates.get)
    return rates, best, {key[5]: nll for key, nll in found.items() if key[:5] == (*group, best)}


def table(rows):
    print(f"# commits {', '.join(sorted({row['commit'] for row in rows}))}; {sum(row['seconds'] for row in rows) / 3600:.1f} hours of steps, waiting for a core included\n"
          "# nll of held-out text; ±: standard deviation over seeds; better, worse: than Pre-LN, beyond twice the paired deviation\n"
          "| layers | d_model | optimizer | method | best rate | nll | seeds | beside Pre-LN | all rates of seed 1 |\n" + "|---" * 9 + "|")
    found, texts = nlls(rows), {tuple(row["key"]): row.get("data") for row in rows}
    for group in sorted(dict.fromkeys(key[:4] for key in found), key=lambda group: (group[3], group[2], group[1])):
        rates, best, seeds = of_best(found, group)
        verdict, base = "", ("pre_ln", *group[1:])
        if group != base and any(key[:4] == base for key in found) and len(seeds) > 1:
            _, rate, plain = of_best(found, base)
            differences = [seeds[seed] - plain[seed] for seed in seeds
                           if seed in plain and texts[(*group, best, seed)] == texts[(*base, rate, seed)]]
            if len(differences) > 1 and all(map(math.isfinite, differences)):
                mean, spread = statistics.mean(differences), statistics.stdev(differences)
                verdict = f"{mean:+.3f} ± {spread:.3f}: " + ("no difference" if abs(mean) <= 2 * spread else "better" if mean < 0 else "worse")
        score = ", ".join(map(in_words, seeds.values()))
        if len(seeds) > 1 and all(map(math.isfinite, seeds.values())):
            score = f"{statistics.mean(seeds.values()):.3f} ± {statistics.stdev(seeds.values()):.3f}"
        method, layers, width, optimizer = group
        print(f"| {layers} | {width} | {optimizer} | {method} | {1e-3 * 2**best:g} | {score} | {len(seeds)} "
              f"| {verdict} | {', '.join(f'{1e-3 * 2**e:g}: {in_words(nll)}' for e, nll in sorted(rates.items()))} |")


def figure(rows, path):
    """Held-out nll over the depth, with Adam, of the methods with three seeds; bars: standard deviation over seeds."""
    import matplotlib.pyplot as plt
    grey = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")  # on light and dark pages
    plt.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "ladder", **dict.fromkeys(grey, "#808080")})
    drawing, axes = plt.subplots(figsize=(7, 4))
    found = nlls(rows)
    axes.set_xscale("log", base=2)
    for method in LADDER:
        points = []
        for group in sorted({key[:4] for key in found if key[0] == method and key[2:4] == (64, "adam")}):
            seeds = of_best(found, group)[2].values()
            if len(seeds) == len(SEEDS) and all(map(math.isfinite, seeds)):
                points.append((group[1], statistics.mean(seeds), statistics.stdev(seeds)))
        if points:
            axes.errorbar(*zip(*points), marker="o", markersize=4, capsize=3, label=method)
    depths = sorted({key[1] for key in found if key[2:4] == (64, "adam")})
    axes.set_xticks(depths, depths)
    axes.set_xlabel("layers")
    axes.set_ylabel("nll of held-out text")
    axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1, 1))
    drawing.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("prepare", "cost", "run", "table", "figure"):
        command = commands.add_parser(name)
        if name not in ("table", "figure"):
            command.add_argument("hadal", type=lambda path: pathlib.Path(path).resolve())
            command.add_argument("folder", type=lambda path: pathlib.Path(path).resolve())
        if name in ("run", "table", "figure"):
            command.add_argument("runs", type=pathlib.Path)
        if name == "run":
            command.add_argument("--hours", type=float, required=True)
        if name == "figure":
            command.add_argument("picture", type=pathlib.Path)
    arguments = parser.parse_args()
    if arguments.command in ("table", "figure"):
        rows = [json.loads(line) for line in arguments.runs.read_text().splitlines()]
        table(rows) if arguments.command == "table" else figure(rows, arguments.picture)
    elif arguments.command == "run":
        run(Ladder(arguments.hadal, arguments.folder, arguments.runs, time.time() + 3600 * arguments.hours))
    else:
        {"prepare": prepare, "cost": cost}[arguments.command](arguments.hadal, arguments.folder)


if __name__ == "__main__":
    main()
