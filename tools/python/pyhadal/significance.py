"""Corpus scores by sacreBLEU, and whether two systems' scores differ by more than the choice of test sentences explains.

The test is the paired bootstrap (Koehn 2004), two-sided:

    Δ    the difference of the scores on the whole test set
    Δ_i  the same on resample i: as many sentences, drawn with replacement, the same ones for every system
    p    (1 + #{i : |Δ_i − mean Δ_i| ≥ |Δ|}) / (1 + n)

Ties count, so identical outputs have p = 1. sacreBLEU's own test counts `>` alone and gives them the least p.
A system may be several runs that differ in their seed: its score is their mean. p then speaks of the sentences, not of the seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sacrebleu.metrics.base import Metric

from pyhadal.refusal import Refusal

RESAMPLES = 1000
SEED = 12345  # of numpy's default generator
METHOD = f"paired bootstrap, two-sided, {RESAMPLES:,} resamples, seed {SEED}"


@dataclass(frozen=True)
class ScoredText:
    """One system's sentences, reduced to what a corpus score is made of."""

    counts: np.ndarray[Any, Any]  # [sentences, statistics]
    score: float


def read_lines(path: str) -> list[str]:
    """The lines of a text as sacreBLEU reads them: without white space at their ends.

    Raises Refusal if the file cannot be read or is not UTF-8.
    """
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            return [line.rstrip() for line in file]
    except (OSError, UnicodeDecodeError) as error:
        raise Refusal(f"{path}: {error}") from error


def score_text(metric: Metric, hypotheses: Sequence[str], references: Sequence[str]) -> ScoredText:
    """REQUIRES: as many hypotheses as references, at least one."""
    counts = np.array(metric._extract_corpus_statistics(hypotheses, [references]), dtype=np.float64)
    return ScoredText(counts, _score(metric)(counts.sum(axis=0)))


def p_values(metric: Metric, systems: Sequence[Sequence[ScoredText]], against: int, resamples: int = RESAMPLES,
             seed: int = SEED) -> list[float]:
    """p of the difference of each system's mean score to that of system `against`, whose own is 1.

    REQUIRES: all texts are of the same sentences.
    """
    texts = [text for system in systems for text in system]
    owner = np.repeat(np.arange(len(systems)), [len(system) for system in systems])
    drawn = _resampled(texts, _score(metric), resamples, seed)
    means = np.stack([drawn[owner == i].mean(axis=0) for i in range(len(systems))])
    real = np.array([np.mean([text.score for text in system]) for system in systems])
    found = []
    for mean, score in zip(means, real):
        differences = mean - means[against]
        as_far = np.abs(differences - differences.mean()) >= abs(score - real[against])
        found.append((1 + int(as_far.sum())) / (1 + resamples))
    return found


def _score(metric: Metric) -> Callable[[np.ndarray[Any, Any]], float]:
    return lambda sums: metric._compute_score_from_stats(sums.tolist()).score


def _resampled(texts: Sequence[ScoredText], score: Callable[[np.ndarray[Any, Any]], float], resamples: int, seed: int) -> np.ndarray[Any, Any]:
    """[texts, resamples]: the score of each text on each resample of its sentences."""
    sentences, width = texts[0].counts.shape
    together = np.concatenate([text.counts for text in texts], axis=1)
    draws = np.random.default_rng(seed)
    scores = np.empty((len(texts), resamples))
    for i in range(resamples):
        times = np.bincount(draws.integers(sentences, size=sentences), minlength=sentences)
        sums = times @ together
        scores[:, i] = [score(sums[k * width : (k + 1) * width]) for k in range(len(texts))]
    return scores
