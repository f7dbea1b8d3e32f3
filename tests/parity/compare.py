"""Compares what parity_probe wrote (DIRECTORY) with hadal_torch.Model; README.md has the rule. Exit status 0: equal within it.

    compare.py DIRECTORY…                       compare
    compare.py --negative-controls DIRECTORY…   also damage hadal's results in many ways: each must be noticed
"""

import argparse
import copy
import json
import math
import re
import sys
from dataclasses import dataclass, replace

import numpy as np
import torch

from hadal_torch.model import PAD, residual_of
from hadal_torch.plain import branch_growth
from hadal_torch.tensors import read_safetensors
from methods import METHODS, Checked, SourceWidth

FLOOR = 1e-5  # relative error that is always allowed
MULTIPLE = 4  # … and as a multiple of PyTorch's own in float32
SINGLES = 3  # float32 evaluations whose largest error is PyTorch's own: one alone is luck, and another with another BLAS
MATRIX = re.compile(r"\.layers\..*\.([qkv]|out|gate)_proj\.weight$|\.fc[123]\.weight$")  # Muon's
LAYER_FLOOR = 1e-3  # a gradient counts as at least this share of the largest in its layer


@dataclass
class Outcome:
    """What a forward and a backward pass give, as float64."""

    loss: float  # mean over target tokens
    nll: np.ndarray  # [target rows]
    gradients: dict


@dataclass
class Row:
    """One compared quantity: passes when error ≤ allowed, both relative."""

    name: str
    size: float
    error: float
    torch_error: float

    @property
    def allowed(self):
        return max(FLOOR, MULTIPLE * self.torch_error)

    @property
    def share(self):  # of what is allowed; not finite counts as infinitely much
        return self.error / self.allowed if np.isfinite(self.error) else np.inf


def read_case(directory):
    with open(f"{directory}/case.json") as file:
        case = json.load(file)
    weights = read_safetensors(f"{directory}/weights.safetensors")
    gradients = read_safetensors(f"{directory}/gradients.safetensors")
    tokens = sum(token != PAD for _, target in case["sentences"] for token in target)
    assert case["tokens"] == tokens == len(case["row_nll"]), "the batch's target tokens"
    nll = np.array(case["row_nll"])
    hadal = Outcome(case["loss_sum"] / tokens, nll, {n: g.astype(np.float64) for n, g in gradients.items()})
    return case, weights, hadal


def residuals_of(case):
    """The method's, with what the case sets over it."""
    fields = {"layer_gain": case["layer_gain"]} if case["layer_gain"] != 1 else {}
    if case["norm_gain"]:
        fields["norm_gain"] = lambda layer, layers: 1 / math.sqrt(layer)
    return tuple(residual and replace(residual, **fields) for residual in METHODS[case["method"]](case))


def model_of(case, weights, dtype):
    kind = SourceWidth if case["model"]["base_width"] else Checked
    return kind(case["model"], weights, residuals_of(case), dtype)


def run_updates(case, weights, dtype):
    """The outcome behind the case's updates from `weights`, with the parameters' changes in place of gradients. AdamW and, for the
    matrices of attention and feed-forward, Muon (Jordan et al. 2024) as torch.optim.Muon has it, in `dtype` instead of bfloat16."""
    model, of = model_of(case, weights, dtype), case["updates"]
    matrices = {p: torch.zeros_like(p) for name, p in model.named_parameters() if of["muon"] and MATRIX.search(name)}
    adam = torch.optim.AdamW([p for p in model.parameters() if p not in matrices], of["rate"], of["betas"], weight_decay=of["decay"])
    for update in range(1, of["number"] + 1):
        model.zero_grad()
        model.loss(case["sentences"])[0].backward()
        adam.param_groups[0]["eps"] = of["epsilon"] / math.sqrt(1 - of["betas"][1] ** update)  # fairseq's lies in front of that root
        adam.step()
        for p, momentum in matrices.items():
            momentum.lerp_(p.grad, 1 - of["momentum"])
            x = p.grad.lerp(momentum, of["momentum"])
            x = (x if x.shape[0] <= x.shape[1] else x.T) / x.norm().clamp(min=1e-7)
            for _ in range(5):
                gram = x @ x.T
                x = 3.4445 * x + (-4.775 * gram + 2.0315 * gram @ gram) @ x
            rate = of["rate"] * 0.2 * math.sqrt(max(p.shape))
            p.data = (1 - of["rate"] * of["decay"]) * p.data - rate * (x if x.shape == p.shape else x.T)
    loss, nll = model.loss(case["sentences"])
    changes = {name: p.detach().numpy().astype(np.float64) - weights[name] for name, p in model.named_parameters()}
    return Outcome(loss.item(), nll.detach().numpy().astype(np.float64), changes)


def run_model(case, weights, dtype):
    model = model_of(case, weights, dtype)
    loss, nll = model.loss(case["sentences"])
    loss.backward()
    gradients = {}
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, f"{name} takes no part in the model"
        gradients[name] = parameter.grad.numpy().astype(np.float64)
    return Outcome(loss.item(), nll.detach().numpy().astype(np.float64), gradients)


def hidden_axis(name):
    """The axis of a parameter that counts the feed-forward's hidden units; None where it has none."""
    if re.search(r"\.(fc[13]\.(weight|bias)|ffn_layernorm\.(weight|bias))$", name):
        return 0
    return 1 if name.endswith(".fc2.weight") else None


def run_singles(case, weights, run=run_model):
    """float32 outcomes of the same function with the hidden units in other orders, which sums them in other orders."""
    outcomes = [run(case, weights, torch.float32)]
    for seed in range(1, SINGLES):
        orders = {}

        def take(name, array, inverse):
            axis = hidden_axis(name)
            if axis is None:
                return array
            layer = layer_of(name)
            if layer not in orders:
                orders[layer] = np.random.default_rng([seed, len(orders)]).permutation(array.shape[axis])
            order = np.argsort(orders[layer]) if inverse else orders[layer]
            return np.ascontiguousarray(np.take(array, order, axis))

        outcome = run(case, {name: take(name, array, False) for name, array in weights.items()}, torch.float32)
        outcome.gradients = {name: take(name, array, True) for name, array in outcome.gradients.items()}
        outcomes.append(outcome)
    return outcomes


def layer_of(name):
    match = re.match(r"(encoder|decoder)\.layers\.\d+\.", name)
    return match.group(0) if match else name


def compare(hadal, exact, singles):
    """Rows of hadal against `exact` (float64), with `singles` (float32) as the measure of what rounding does."""
    assert hadal.gradients.keys() == exact.gradients.keys(), hadal.gradients.keys() ^ exact.gradients.keys()
    largest = {}
    for name, gradient in exact.gradients.items():
        layer = layer_of(name)
        largest[layer] = max(largest.get(layer, 0.0), np.linalg.norm(gradient))
    rows = [Row("loss", abs(exact.loss), abs(hadal.loss - exact.loss) / abs(exact.loss),
                max(abs(single.loss - exact.loss) for single in singles) / abs(exact.loss))]
    # The worst row counts, so that one wrong sentence among many does not hide.
    scale = np.abs(exact.nll).max()
    rows.append(Row("log-probabilities", scale, np.abs(hadal.nll - exact.nll).max() / scale,
                    max(np.abs(single.nll - exact.nll).max() for single in singles) / scale))
    for name, gradient in exact.gradients.items():
        assert hadal.gradients[name].shape == gradient.shape, name
        scale = max(np.linalg.norm(gradient), LAYER_FLOOR * largest[layer_of(name)])
        assert scale > 0, f"{name}: its whole layer has gradient zero"
        rows.append(Row(name, np.linalg.norm(gradient), np.linalg.norm(hadal.gradients[name] - gradient) / scale,
                        max(np.linalg.norm(single.gradients[name] - gradient) for single in singles) / scale))
    return rows


def passes(rows):
    return all(row.share <= 1 for row in rows)


def print_table(rows, worst=8):
    print(f"{'':44} {'norm':>9} {'error':>9} {'torch f32':>9} {'allowed':>9} {'share':>6}")
    for row in rows[:2] + sorted(rows[2:], key=lambda r: -r.share)[:worst]:
        print(f"{row.name:44} {row.size:9.2e} {row.error:9.2e} {row.torch_error:9.2e} {row.allowed:9.2e} {row.share:6.2f}"
              f"{'' if row.share <= 1 else '  FAILED'}")
    print(f"{len(rows)} quantities, {sum(row.share > 1 for row in rows)} outside the rule")


def check_constants(case):
    """The gains hadal states are the papers'."""
    for stack, residual in zip(("encoder", "decoder"), residuals_of(case)):
        if case["model"][f"{stack}_layers"] == 0:
            continue
        found = residual_of(case["model"][stack], branch_growth(case["model"], case["update"]))  # of an export (hadal_torch.Model.of)
        for name, wanted in vars(residual).items():
            value, wanted = (each(2, 5) if callable(each) else each for each in (getattr(found, name), wanted))
            assert value == wanted or np.isclose(value, wanted).all(), f"{stack}: {name} is {value}, not {wanted}"
        stated = case["model"][stack]["residual_gain"]
        assert abs(stated - residual.residual_gain) < 1e-9, f"{stack}: residual gain {stated}, not {residual.residual_gain}"
        stated = (case["model"][stack]["skip_gain"], case["model"][stack]["layer_gain"])
        wanted = (residual.skip_gain, residual.layer_gain)
        assert np.allclose(stated, wanted, rtol=0, atol=1e-9), f"{stack}: skip and layer gain {stated}, not {wanted}"


def check_profile(case, weights):
    """Admin's vectors are the profile of the sentences that hadal was given for it."""
    if "profiled_sentences" not in case:
        return
    profile = model_of(case, weights, torch.float64).profiled(case["sentences"][: case["profiled_sentences"]])
    assert profile.keys() == {name for name in weights if name.endswith(".omega")}
    for name, omega in profile.items():
        assert np.allclose(weights[name], omega, rtol=1e-5, atol=0), f"{name}: {weights[name][0]}, not {omega}"
    print(f"profile of {len(profile)} sublayers, omega up to {max(profile.values()):.3f}")


def damaged_outcomes(hadal, exact):
    """(what, outcome): each must be noticed. Every parameter whose gradient counts has its turn."""
    for name, gradient in hadal.gradients.items():
        layer_largest = max(np.linalg.norm(g) for n, g in exact.gradients.items() if layer_of(n) == layer_of(name))
        damaged = copy.copy(hadal)
        change = gradient * 1e-3
        if np.linalg.norm(gradient) < LAYER_FLOOR * layer_largest:  # a key bias: zero but for rounding
            change = np.full_like(gradient, LAYER_FLOOR * layer_largest * 1e-2)
        damaged.gradients = {**hadal.gradients, name: gradient + change}
        yield f"gradient of {name} off by 1e-3", damaged
    for row in range(0, len(hadal.nll), 7):
        damaged = copy.copy(hadal)
        damaged.nll = hadal.nll.copy()
        damaged.nll[row] += 1e-3 * np.abs(hadal.nll).max()
        yield f"log-probability of row {row} off by 1e-3", damaged
    yield "loss off by 1e-3", Outcome(hadal.loss * 1.001, hadal.nll, hadal.gradients)
    yield "loss not a number", Outcome(np.nan, hadal.nll, hadal.gradients)


def altered_cases(case, weights):
    """(what, case, weights): models a little different from hadal's; their results must not pass for it."""
    def with_model(**fields):
        return {**case, "model": {**case["model"], **fields}}

    same_parameters = ("post_ln", "deepnorm", "branchnorm", "b2t")
    for method in same_parameters:
        if case["method"] in same_parameters and METHODS[method] != METHODS[case["method"]]:
            yield f"method {method}", {**with_model(branch_growth="linear"), "method": method}, weights
    cutoffs = case["model"]["adaptive_cutoffs"]
    if cutoffs:
        names = [name for name in weights if ".embeddings." in name or ".adaptive_softmax." in name]
        assert len(names) == 2 * (len(cutoffs) + 1) + 1, names
        for name in names:
            damaged = {**weights, name: weights[name].copy()}
            damaged[name].flat[-1] += 0.05
            yield f"one element of {name} off by 0.05", case, damaged
    else:
        for field, other in (("activation", "gelu"), ("norm_epsilon", 1e-3), ("norm", "layer"), ("positions", "none"),
                             ("rotary_theta", 9000.0), ("rotary_share", 0.5), ("scale_embedding", False),
                             ("window", 4), ("window", 6), ("global_every", 0), ("rotary_scaling", 7.0)):
            if "block" in case["model"]:
                yield f"block.{field} {other}", with_model(block={**case["model"]["block"], field: other}), weights
        yield "label smoothing 0.11", with_model(label_smoothing=0.11), weights
        yield "z-loss 0.002 more", with_model(z_loss=case["model"].get("z_loss", 0) + 0.002), weights
    if not any(name.endswith("head_scale") for name in weights):  # whose size is the number of heads
        block = dict(case["model"].get("block", {}))
        if block.get("kv_heads"):
            block["kv_heads"] //= 2
        yield "half the heads", with_model(heads=case["model"]["heads"] // 2, block=block), weights
    shifted = [(s, t[1:] + t[:1]) for s, t in case["sentences"]]
    yield "targets shifted", {**case, "sentences": shifted}, weights
    for name in ("encoder.layers.0.self_attn.q_proj.weight", "decoder.layers.1.encoder_attn.v_proj.bias",
                 "decoder.layers.1.final_layer_norm.weight", "encoder.layers.1.fc1.bias",
                 "encoder.layers.0.self_attn.head_scale", "decoder.layers.1.attn_ln.weight",
                 "encoder.layers.1.ffn_layernorm.bias", "encoder.layers.1.fc3.weight", "decoder.layers.1.encoder_attn.omega", "encoder.layers.0.ffn.omega",
                 "decoder.layers.1.encoder_attn.shift", "encoder.layers.0.ffn.shift2", "decoder.layers.0.ffn.shift3",
                 "encoder.layers.1.self_attn.scale", "encoder.scale", "decoder.shift", "encoder.dlcl.weight",
                 "decoder.dlcl.layer_norms.1.weight"):
        if name not in weights:
            continue
        changed = {**weights, name: weights[name].copy()}
        changed[name].flat[0] += 0.05
        yield f"one element of {name} off by 0.05", case, changed


def negative_controls(case, weights, hadal, exact, singles):
    missed = checked = 0
    for what, damaged in damaged_outcomes(hadal, exact):
        checked += 1
        if passes(compare(damaged, exact, singles)):
            missed += 1
            print(f"NOT NOTICED: {what}")
    for what, other_case, other_weights in altered_cases(case, weights):
        checked += 1
        other = run_model(other_case, other_weights, torch.float64)
        if passes(compare(hadal, other, run_singles(other_case, other_weights))):
            missed += 1
            print(f"NOT NOTICED: {what}")
    print(f"negative controls: {checked - missed} of {checked} noticed")
    return missed == 0 and checked > 0


def check(directory, with_controls):
    """Whether what lies in `directory` passes; prints what was compared."""
    case, weights, hadal = read_case(directory)
    print(f"{case['method']}, {case['model']['encoder_layers']} + {case['model']['decoder_layers']} layers, width "
          f"{case['model']['d_model']}")
    check_constants(case)
    check_profile(case, weights)
    exact, singles = run_model(case, weights, torch.float64), run_singles(case, weights)
    rows = compare(hadal, exact, singles)
    print_table(rows)
    if "updates" in case:
        initial = read_safetensors(f"{directory}/initial.safetensors")
        hadal.gradients = {name: weights[name].astype(np.float64) - initial[name] for name in weights}
        updated = compare(hadal, run_updates(case, initial, torch.float64), run_singles(case, initial, run_updates))
        print(f"changes by {case['updates']['number']} updates of {'Muon' if case['updates']['muon'] else 'AdamW'}")
        print_table(updated)
        rows += updated
    return passes(rows) and (not with_controls or negative_controls(case, weights, hadal, exact, singles))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", nargs="+", metavar="DIRECTORY")
    parser.add_argument("--negative-controls", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    failed = [directory for directory in arguments.directories if not check(directory, arguments.negative_controls)]
    print(f"{len(arguments.directories) - len(failed)} of {len(arguments.directories)} cases pass", *failed)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
