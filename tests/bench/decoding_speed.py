#!/usr/bin/env python3
"""Translation speed of hadal beside CTranslate2 (fp32) and transformers: the same weights, sentences and beam, in turn, in one run.

    tests/bench/decoding_speed.py HADAL --text DIR [--out FILE] [--rows 3,6] [--programs LIST] [--threads N] [--rounds N] [--seconds S]

HADAL: the program. DIR: train.{en,de} and test.en. FILE: the table (default: results/decoding_speed.txt); rows that it has are not
measured again, so an interrupted run continues. --rows: numbers of layers. --programs hadal,ctranslate2: without transformers, which
takes most of the time on slow cores. A row takes some rounds x programs x S seconds.
Needs ctranslate2, transformers, torch and sentencepiece in HADAL_PYTHON (default: this Python).

Models: `hadal train` for two steps, DeepNorm, vocabulary 8,000, exported by `hadal checkpoint export --format`. Such a model hardly
ends a sentence, so every translation has exactly LENGTH tokens: all programs do the same steps. The programs take turns; a figure is the
median of the rounds; a program that takes longer than --seconds for its first 16 sentences, or 64, is measured by these alone. Loading
is not counted: hadal's time is that of N sentences less that of one, the others stay loaded. CPU seconds are those of all threads in
user mode. On a busy machine only CPU seconds mean something, and only with --threads 1: OpenMP's threads, which CTranslate2 and PyTorch
have, spin while they wait for one that has no core.
"""
import argparse
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time

LENGTH, BEAM, VOCABULARY = 25, 4, 8000
MODELS = {3: (256, 4), 6: (512, 8), 18: (256, 4), 100: (128, 4)}  # layers: width, heads
PROGRAMS = ("hadal", "ctranslate2", "transformers")
HERE = pathlib.Path(__file__).resolve().parent


def cpu_seconds(who=resource.RUSAGE_SELF):
    return resource.getrusage(who).ru_utime


def ctranslate2_translator(folder, batch, threads):
    import ctranslate2
    import sentencepiece
    pieces = sentencepiece.SentencePieceProcessor(f"{folder}/vocabulary.model")
    translator = ctranslate2.Translator(str(folder), intra_threads=threads, inter_threads=1, compute_type="float32")
    return lambda lines: translator.translate_batch(
        pieces.encode(lines, out_type=str), beam_size=BEAM, max_batch_size=batch, min_decoding_length=LENGTH,
        max_decoding_length=LENGTH)


def transformers_translator(folder, batch, threads):
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(threads)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()

    def translate(lines):
        lines = sorted(lines, key=len, reverse=True)  # as the other programs do
        for first in range(0, len(lines), batch):
            model.generate(**tokenizer(lines[first:first + batch], padding=True, return_tensors="pt"), num_beams=BEAM,
                           early_stopping=True, min_new_tokens=LENGTH, max_new_tokens=LENGTH)

    return translate


def work(program, folder, batch, threads):
    """The side of a Python program: reads lists of sentences, answers the seconds and CPU seconds of their translation."""
    make = {"ctranslate2": ctranslate2_translator, "transformers": transformers_translator}[program]
    translate = make(folder, batch, threads)
    for request in sys.stdin:
        lines = json.loads(request)
        began, cpu = time.monotonic(), cpu_seconds()
        translate(lines)
        print(json.dumps([time.monotonic() - began, cpu_seconds() - cpu]), flush=True)


class Worker:
    """A Python program that keeps its model loaded."""

    def __init__(self, python, program, folder, batch, threads):
        self.process = subprocess.Popen([python, __file__, "--work", program, str(folder), str(batch), str(threads)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.measure(["One sentence."])

    def measure(self, lines):
        self.process.stdin.write(json.dumps(lines) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"{' '.join(self.process.args)} ended; its error is above")
        return json.loads(answer)

    def close(self):
        self.process.stdin.close()
        self.process.wait()


class Hadal:
    """hadal translate, a process each time."""

    def __init__(self, program, run, batch, threads):
        self.command = [program, "translate", str(run), "--beam", str(BEAM), "--max-len-a", "0", "--max-len-b", str(LENGTH), "--min-len",
                        str(LENGTH), "--batch", str(batch), "--threads", str(threads), "-o", os.devnull]

    def run(self, lines):
        with tempfile.NamedTemporaryFile("w", suffix=".en") as source:
            source.write("".join(line + "\n" for line in lines))
            source.flush()
            began, cpu = time.monotonic(), cpu_seconds(resource.RUSAGE_CHILDREN)
            subprocess.run(self.command + ["-i", source.name], check=True, stderr=subprocess.DEVNULL)
            return time.monotonic() - began, cpu_seconds(resource.RUSAGE_CHILDREN) - cpu

    def measure(self, lines):
        one, many = self.run(lines[:1]), self.run(lines)
        return [(m - o) * len(lines) / (len(lines) - 1) for o, m in zip(one, many)]

    def close(self):
        pass


def make_model(hadal, python, text, folder, layers):
    """Trains and exports a model, unless it is there: folder/run, folder/ctranslate2, folder/transformers."""
    data, run = folder.parent / "data", folder / "run"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if not data.exists():
        train = [str(text / "train.en"), str(text / "train.de")]
        subprocess.run([hadal, "prepare", "--train", *train, "--out", str(data), "--vocab-size", str(VOCABULARY)], **quiet)
    if (folder / "made").exists():
        return
    width, heads = MODELS[layers]
    fields = {"data.train": data / "train", "data.validation": "", "model.encoder_layers": layers, "model.decoder_layers": layers,
              "model.d_model": width, "model.d_ff": 4 * width, "model.heads": heads, "stop.steps": 2, "batch.micro_batches": 1,
              "validation.every_steps": 0, "model.dropout": 0}
    options = [word for name, value in fields.items() for word in ("--set", f"{name}={value}")]
    subprocess.run([hadal, "train", str(HERE.parents[1] / "configs/base.textproto"), *options, "--run-dir", str(run)], **quiet)
    for program, name in (("ctranslate2", "ctranslate2"), ("transformers", "huggingface")):
        subprocess.run([hadal, "checkpoint", "export", str(run), "--format", name, "-o", str(folder / program)],
                       env={**os.environ, "HADAL_PYTHON": python}, **quiet)
    (folder / "made").touch()


def measure(programs, sentences, batch, rounds, seconds):
    """The medians of each program: sentences a second, CPU seconds a sentence."""
    def sample(program, count):
        wall, cpu = program.measure(sentences[:count])
        return count / wall, cpu / count

    counts, samples = {}, {}
    for name, program in programs.items():
        trial = max(batch, 16)
        samples[name] = [sample(program, trial)]
        rate = samples[name][0][0]
        if trial / rate > seconds:
            continue
        counts[name] = min(max(trial // batch, round(rate * seconds / batch)), len(sentences) // batch) * batch
        samples[name] = []
    for _ in range(rounds):
        for name, count in counts.items():
            samples[name].append(sample(programs[name], count))
    return {name: [statistics.median(column) for column in zip(*values)] for name, values in samples.items()}


def row(layers, batch, medians):
    not_run = [float("nan")] * 2
    rates, cpu = ([medians.get(name, not_run)[i] for name in PROGRAMS] for i in (0, 1))
    ratios = [rates[0] / other for other in rates[1:]]
    cells = [f"{layers}L-{layers}L d={MODELS[layers][0]}", str(batch), *(f"{r:.3g}" for r in rates), *(f"{r:.2f}" for r in ratios),
             *(f"{c:.3g}" for c in cpu)]
    return "| " + " | ".join(cell.replace("nan", "-") for cell in cells) + " |"


def header(hadal, python, threads):
    cpu = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "unknown CPU")
    modules = "ctranslate2", "transformers", "torch"
    show = "; ".join(f"import {m}; print('{m}', {m}.__version__)" for m in modules)
    versions = subprocess.run([python, "-c", show], check=True, text=True, capture_output=True).stdout.split("\n")
    version = subprocess.run([hadal, "--version"], check=True, text=True, capture_output=True).stdout.strip()
    commit = subprocess.run(["git", "-C", str(HERE), "describe", "--always", "--dirty"], text=True, capture_output=True).stdout.strip()
    return (f"# {platform.machine()}, {os.cpu_count()} CPUs, {cpu}; {version}, commit {commit}; {', '.join(v for v in versions if v)}\n"
            f"# beam {BEAM}, every translation of {LENGTH} tokens, {threads} threads, fp32; load {os.getloadavg()[0]:.1f} at the start\n"
            "| model | batch | hadal, sentences/s | CTranslate2 | transformers | hadal : CTranslate2 | hadal : transformers | "
            "hadal, CPU s a sentence | CTranslate2 | transformers |\n|" + "---|" * 10 + "\n")


def main():
    if sys.argv[1:2] == ["--work"]:
        return work(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("hadal", type=lambda path: str(pathlib.Path(path).resolve()))
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results/decoding_speed.txt")
    parser.add_argument("--models", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "hadal_decoding_speed")
    parser.add_argument("--rows", default=",".join(map(str, MODELS)))
    parser.add_argument("--programs", default=",".join(PROGRAMS))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=10)
    arguments = parser.parse_args()
    chosen = arguments.programs.split(",")
    if "hadal" not in chosen or not set(chosen) <= set(PROGRAMS):
        parser.error(f"--programs: hadal and some of {', '.join(PROGRAMS[1:])}")
    python = os.environ.get("HADAL_PYTHON", sys.executable)
    sentences = (arguments.text / "test.en").read_text().splitlines()
    if not arguments.out.exists():
        arguments.out.write_text(header(arguments.hadal, python, arguments.threads))
    for layers in map(int, arguments.rows.split(",")):
        folder = arguments.models / f"{layers}L"
        folder.mkdir(parents=True, exist_ok=True)
        make_model(arguments.hadal, python, arguments.text, folder, layers)
        for batch in (1, 64):
            if f"| {layers}L-{layers}L d={MODELS[layers][0]} | {batch} |" in arguments.out.read_text():
                continue
            programs = {"hadal": Hadal(arguments.hadal, folder / "run", batch, arguments.threads)}
            for name in filter(chosen.__contains__, PROGRAMS[1:]):
                programs[name] = Worker(python, name, folder / name, batch, arguments.threads)
            medians = measure(programs, sentences, batch, arguments.rounds, arguments.seconds)
            line = row(layers, batch, medians)
            for program in programs.values():
                program.close()
            with arguments.out.open("a") as out:
                out.write(line + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
