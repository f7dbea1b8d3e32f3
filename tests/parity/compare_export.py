"""Compares hadal_torch.Model, given nothing but what `hadal checkpoint export` wrote, with what `hadal score` printed. Exit status 0: equal.

    compare_export.py EXPORT.safetensors SOURCE TARGET SCORES      sentences of words that the export's vocabulary, a dict.txt, lists
"""

import sys

import torch

from hadal_torch import read_plain
from hadal_torch.model import EOS, Model, pad
from hadal_torch.tokenizer import UNKNOWN, parse_vocabulary

ALLOWED = 1e-5  # relative: scores are sums in fp32


def read_lines(path):
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()


def main():
    export, source, target, scores = sys.argv[1:]
    plain = read_plain(export)
    ids = {word: i for i, word in enumerate(parse_vocabulary(*plain.vocabulary("target")).tokens)}

    def tokens(line):
        return [ids.get(word, UNKNOWN) for word in line.split()] + [EOS]

    model = Model.of(plain, torch.float64)
    worst = 0.0
    lines = list(zip(read_lines(source), read_lines(target), read_lines(scores), strict=True))
    for said, heard, score in lines:
        goal = tokens(heard)
        with torch.no_grad():
            log_p = model.log_probabilities(pad([tokens(said)]), pad([[EOS] + goal[:-1]]))[0]
        expected = log_p[torch.arange(len(goal)), torch.tensor(goal)].sum().item()
        value, count = score.split("\t")
        assert int(count) == len(goal), f"{heard}: {count} tokens"
        error = abs(float(value) - expected) / abs(expected)
        assert error <= ALLOWED, f"{heard}: {value} and {expected}, allowed {ALLOWED:g}"  # NaN fails
        worst = max(worst, error)
    print(f"{export}: {len(lines)} lines, worst relative difference {worst:.2g}, allowed {ALLOWED:g}")
    return 0 if lines else 1


sys.exit(main())
