"""What the instruments recorded of a run (docs/metrics.md, event depth), reduced to the few numbers that the papers use.

gradient_ratio_encoder, _decoder   ‖∂L/∂x‖ after the stack's first sublayer over that after its last, at the first record
norm_gradient_ratio                ‖∂L/∂s‖ before a LayerNorm over ‖∂L/∂n‖ after it, geometric mean, at the first record (B2T,
                                   arXiv 2206.00330, figure 4). The skip around the branch multiplies it by the residual gain.
early_model_update, model_update   ‖ΔF‖ at the last record of the first 10 updates, and at the last record (DeepNet,
                                   arXiv 2203.00555, figure 3)
similarity, active                 means over the sublayers at the last record (BranchNorm, arXiv 2305.02790, section 5)
"""

from __future__ import annotations

import numpy as np
from typing import Any

from pyhadal.run import Run

EARLY_UPDATES = 10
# Name → title of its column.
INSTRUMENTS = {
    "early_model_update": f"‖ΔF‖ after {EARLY_UPDATES} updates",
    "model_update": "‖ΔF‖ at the end",
    "gradient_ratio_encoder": "encoder gradient, bottom/top",
    "gradient_ratio_decoder": "decoder gradient, bottom/top",
    "norm_gradient_ratio": "gradient before/after a norm",
    "similarity": "similarity",
    "active": "active",
}


def norm_gradient_ratios(run: Run) -> np.ndarray[Any, Any]:
    """Of each sublayer at the first record; NaN or infinity where there is none. Empty if it was not recorded."""
    (_, before), (_, after) = run.depth("norm_input_gradient"), run.depth("norm_output_gradient")
    if not len(before) or not len(after) or before.shape[1] != after.shape[1]:
        return np.array([])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(before[0] / after[0])


def read_instruments(run: Run) -> "dict[str, float]":
    """The numbers by name. One that was not recorded, or is not finite, is absent."""
    found = {}
    _, gradient = run.depth("output_gradient")
    border = run.encoder_sublayers
    if len(gradient):
        first = gradient[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            if 0 < border <= len(first):
                found["gradient_ratio_encoder"] = first[0] / first[border - 1]
            if border < len(first):
                found["gradient_ratio_decoder"] = first[border] / first[-1]
    ratios = norm_gradient_ratios(run)
    ratios = ratios[np.isfinite(ratios) & (ratios > 0)]
    if len(ratios):
        found["norm_gradient_ratio"] = np.exp(np.log(ratios).mean())
    records = run.events("depth")
    if "model_update" in records:
        updates = records[np.isfinite(records["model_update"].astype(float))]
        early = updates[updates["update"] <= EARLY_UPDATES]
        for name, chosen in (("early_model_update", early), ("model_update", updates)):
            if len(chosen):
                found[name] = chosen["model_update"].iloc[-1]
    for name in ("similarity", "active"):
        _, values = run.depth(name)
        last = values[-1][np.isfinite(values[-1])] if len(values) else np.array([])
        if len(last):
            found[name] = last.mean()
    return {name: float(value) for name, value in found.items() if np.isfinite(value)}
