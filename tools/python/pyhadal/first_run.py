"""What launch/quickstart's two deep runs showed, in one sentence computed from their records.

    python3 -m pyhadal.first_run RUN RUN NAME NAME

Needs the standard library alone.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from pyhadal.refusal import Refusal
from pyhadal.run import read_events

LAST_STEPS = 10  # over which the final loss is averaged
VANISHED = 1e-4  # as in hadal's own diagnosis


@dataclass
class DeepRun:
    name: str
    steps: int
    first_loss: float  # nats a token
    last_loss: float  # mean of the last steps
    share: float  # gradient of the decoder's lowest sublayer at the last recorded step, as a share of the largest one's

    @property
    def vanished(self) -> bool:
        return self.share < VANISHED


def read_run(path: str, name: str) -> DeepRun:
    """Reads a run directory; values that are not finite are left out. Raises Refusal if no steps or gradients remain."""
    losses, gradients, encoder_sublayers = {}, [], 0
    for event in read_events(path):
        if event["event"] == "run":
            encoder_sublayers = event["encoder_sublayers"]
        elif event["event"] == "step" and event["nll"] is not None:
            losses[event["step"]] = event["nll"]
        elif event["event"] == "depth" and event.get("parameter_gradient"):
            recorded = event["parameter_gradient"][encoder_sublayers:]
            if all(isinstance(gradient, (int, float)) for gradient in recorded):
                gradients = recorded
    if not losses or not gradients:
        raise Refusal(f"{path}: no steps with finite gradients of each sublayer")
    values = [losses[step] for step in sorted(losses)]
    tail = values[-LAST_STEPS:]
    return DeepRun(name, max(losses), values[0], sum(tail) / len(tail), gradients[0] / max(gradients))


def sentence(good: DeepRun, bad: DeepRun) -> str:
    """Compares two runs of equal steps. Raises Refusal if the steps differ."""
    if good.steps != bad.steps:
        raise Refusal(f"{good.name} has {good.steps} steps and {bad.name} {bad.steps}: not comparable")
    losses = " and ".join(f"{run.name}'s loss went from {run.first_loss:.2f} to {run.last_loss:.2f}" for run in (good, bad))
    shares = " and ".join(f"{_share(run.share)} with {run.name}" for run in (good, bad))
    vanished = [run.name for run in (good, bad) if run.vanished]
    end = f": in {' and in '.join(vanished)} the lower layers get nothing to learn from" if vanished else ""
    return (f"After {good.steps} steps each, {losses} nats a token; of the largest gradient in the decoder, its lowest "
            f"sublayer gets {shares}{end}.")


def _share(value: float) -> str:
    return f"{100 * value:.0f}%" if value >= 0.01 else f"{value:.0e}" if value > 0 else "0"


def main(words: list[str]) -> int:
    try:
        good, bad, good_name, bad_name = words
        print(sentence(read_run(good, good_name), read_run(bad, bad_name)))
    except (Refusal, OSError) as error:
        print(f"first_run: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
