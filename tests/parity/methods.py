"""The forward pass of every residual method, written from the papers: what compare.py holds hadal's settings and gradients against.

To add a method: one entry in METHODS; if it has parameters of its own, use them in Model.sublayer (tools/python/hadal_torch/model.py).
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F

from hadal_torch.model import Model, Residual
from hadal_torch.plain import position_table


class Checked(Model):
    """With Admin's profile, and PyTorch's own adaptive softmax, which has no tied weights."""

    profile = None  # while profiling: name → omega

    def profiled(self, sentences):
        """name → omega, as Admin's code finds it in one forward pass: 1, then sqrt(Var(omega x) + Var(F(x))), per stack."""
        self.profile = {}
        with torch.no_grad():
            self.loss(sentences)
        return self.profile

    def encode(self, x, source, source_mask):
        self.real, self.next_omega = source != self.padding, 1.0
        return super().encode(x, source, source_mask)

    def decode(self, target_input, encoder_output, source_mask):
        self.real, self.next_omega = target_input != self.padding, 1.0
        return super().decode(target_input, encoder_output, source_mask)

    def sublayer(self, x, residual, layer, norm, branch, layer_input=None):
        if self.profile is None:
            return super().sublayer(x, residual, layer, norm, branch, layer_input)
        omega, y = self.next_omega, branch(x)
        self.profile[f"{layer}.{self.MODULES[norm]}.omega"] = omega
        carried, added = (value[self.real].var(unbiased=False).item() for value in (omega * x, y))
        self.next_omega = math.sqrt(carried + added)
        return self.norm(omega * x + y, f"{layer}.{norm}")

    def log_softmax(self, x):
        if not self.cutoffs or self.ties_bands:
            return super().log_softmax(x)
        softmax = torch.nn.AdaptiveLogSoftmaxWithLoss(
            x.shape[1], self.settings["target_vocabulary"], self.cutoffs, div_value=self.settings["adaptive_factor"])
        softmax.head.weight = self.get_parameter("decoder.adaptive_softmax.head.weight")
        for c in range(len(self.cutoffs)):
            for ours, theirs in ((0, 0), (2, 1)):
                softmax.tail[c][theirs].weight = self.get_parameter(f"decoder.adaptive_softmax.tail.{c}.{ours}.weight")
        return softmax.log_prob(x)


class SourceWidth(Model):
    """A model m = d / base times wider than its base in the parameters of CompleteP's code (EleutherAI/nanoGPT-mup, branch completep):
    tables T whose deviation does not depend on m, embedded with a constant factor; logits (last norm of x) Tᵀ / m. hadal's
    parameters are T = sqrt(m)·E and a last norm whose scale and shift are the code's divided by sqrt(m)."""

    def table(self, name):
        return math.sqrt(self.settings["d_model"] / self.settings["base_width"]) * self.get_parameter(name)

    def embed(self, tokens, table, stack):
        positions = torch.tensor(position_table(tokens.shape[1], self.settings["d_model"]), dtype=self.dtype)
        return math.sqrt(self.settings["base_width"]) * F.embedding(tokens, self.table(table)) + positions

    def log_softmax(self, x):
        m = self.settings["d_model"] / self.settings["base_width"]
        return torch.log_softmax(math.sqrt(m) * x @ self.table(self.output_name).T / m, -1)


def post_ln(settings):
    return Residual(), Residual()


def pre_ln(settings):
    return Residual(norm="pre"), Residual(norm="pre")


def deepnorm(settings):
    """DeepNet (arXiv 2203.00555), figure 2: encoder 0.81 (N^4 M)^(1/16), decoder (3M)^(1/4); either alone (2M)^(1/4)."""
    n, m = settings["model"]["encoder_layers"], settings["model"]["decoder_layers"]
    if n == 0:
        return None, Residual(residual_gain=(2 * m) ** 0.25)
    if m == 0:
        return Residual(residual_gain=(2 * n) ** 0.25), None
    return Residual(residual_gain=0.81 * (n**4 * m) ** (1 / 16)), Residual(residual_gain=(3 * m) ** 0.25)


def branchnorm(settings):
    """BranchNorm (arXiv 2305.02790), equations 7 and 8: alpha_t = min(1, t / T); hadal's own exponential and sigmoid."""
    time, k = settings["update"] / settings["model"]["branch_growth_updates"], settings["model"]["branch_growth_steepness"]
    growth = {
        "linear": lambda: time,
        "exponential": lambda: (math.exp(k * time) - 1) / (math.exp(k) - 1),
        "sigmoid": lambda: 2 / (1 + math.exp(-k * time)) - 1,
    }[settings["model"]["branch_growth"]]
    alpha = min(1.0, growth())
    return Residual(branch_gain=alpha), Residual(branch_gain=alpha)


def admin(settings):
    """Liu et al. 2020: LN(omega x + F(x)), omega learned, one vector a sublayer."""
    return (Residual(omega=True),) * 2


def rezero(settings):
    """Bachlechner et al. 2020: x + a F(x), one a a layer, no norms."""
    return (Residual(norm="none", learned_gain=True),) * 2


def r_fixup(settings):
    """Fixup's rule for Transformers (Zhang, Dauphin and Ma 2019): no norms, no biases, shifts and gains that are learned scalars."""
    return (Residual(norm="none", fixup=True),) * 2


def t_fixup(settings):
    """Huang et al. 2020: x + F(x), no norms; the rest is initialisation."""
    return (Residual(norm="none"),) * 2


def dlcl_pre(settings):
    """Wang et al. 2019, Pre-LN: layer l + 1 reads the sum over k <= l of W[l, k] LN_k(y_k), y_0 the embedding without a norm."""
    return (Residual(norm="pre", combines=True),) * 2


def dlcl_post(settings):
    """Wang et al. 2019, Post-LN: layer l + 1 reads LN_l(sum over k <= l of W[l, k] y_k), the first one without a norm."""
    return (Residual(combines=True),) * 2


def normformer(settings):
    """Shleifer et al. 2021: Pre-LN, head scale before out_proj, norms behind it and before fc2; cross-attention plain."""
    return (Residual(norm="pre", head_scale=True, output_norm=True, hidden_norm=True),) * 2


def sub_ln(settings):
    """Magneto (arXiv 2210.06423): Pre-LN, norms before out_proj and fc2; cross-attention plain."""
    return (Residual(norm="pre", inner_norm=True, hidden_norm=True),) * 2


def b2t(settings):
    """B2T (arXiv 2206.00330), equation 5."""
    return (Residual(skip_gain=1.0),) * 2


def b2t_no_ln(settings):
    """B2T without layer normalisation, equations 6 to 8."""
    model = settings["model"]
    return tuple(
        Residual(norm="none", skip_gain=min(n / 12, n**-0.15), layer_gain=model["d_model"] ** -0.2) if n else None
        for n in (model["encoder_layers"], model["decoder_layers"])
    )


def keel(settings):
    """Keel (arXiv 2601.19895): LN(alpha x + F(LN(x))), alpha the number of sublayers of the stack (a choice of ours)."""
    n, m = settings["model"]["encoder_layers"], settings["model"]["decoder_layers"]
    encoder, decoder = (Residual(residual_gain=float(a), branch_norms=(True, False)) for a in (2 * n, (3 if n else 2) * m))
    return encoder if n else None, decoder


def peri_ln(settings):
    """Peri-LN (arXiv 2502.02732): x + LN(F(LN(x)))."""
    return (Residual(norm="pre", branch_norms=(False, True)),) * 2


def ln_scaling(settings):
    """LayerNorm Scaling (arXiv 2502.05795): x + F(LN(x) / sqrt(l)), l the layer of the stack from 1."""
    return (Residual(norm="pre", norm_gain=lambda layer, layers: 1 / math.sqrt(layer)),) * 2


def mix_ln(settings):
    """Mix-LN (arXiv 2412.13795): Post-LN in the first floor(L / 4) layers, Pre-LN above."""
    return (Residual(norm="pre", post_norm_share=0.25),) * 2


def completep(settings):
    """CompleteP (arXiv 2505.01618): x + F(LN(x)) / m, m = L / 2 for the L layers of the stack."""
    model = settings["model"]
    return tuple(Residual(norm="pre", branch_gain=2 / model[f"{stack}_layers"]) if model[f"{stack}_layers"] else None
                 for stack in ("encoder", "decoder"))


def residual_dual(settings):
    """ResiDual (arXiv 2304.14802): x' = LN(x + F(x)), d' = d + s F(x), the stack ends with x + LN(d); s of its code's opus.yaml."""
    return (Residual(second_gain=0.05),) * 2


def mhc(settings):
    """Manifold-constrained hyper-connections (arXiv 2512.24880): four streams, X' = H_res X + H_post^T F(LN(H_pre X))."""
    return (Residual(norm="pre", streams=4),) * 2


def mhc_lite(settings):
    """mHC-lite (arXiv 2601.05732): mhc with H_res a weighted mean of the 24 permutations."""
    return (Residual(norm="pre", streams=4, permutations=True),) * 2


def attn_res(settings):
    """Attention Residuals (arXiv 2603.15031): a softmax over the embedding and the sums of 16 blocks in place of the stream."""
    return tuple(Residual(norm="pre", blocks=16, block_sublayers=settings["model"][stack]["attention_residual_block_sublayers"])
                 for stack in ("encoder", "decoder"))


def attn_res_delta(settings):
    """Delta Attention Residuals (arXiv 2605.18855): the stream plus such a softmax."""
    return tuple(replace(residual, delta=True) for residual in attn_res(settings))


# The forward pass of each; what only the initial weights know of (post_ln_init, ds_init) is post_ln here.
METHODS = {
    "post_ln": post_ln,
    "pre_ln": pre_ln,
    "deepnorm": deepnorm,
    "branchnorm": branchnorm,
    "post_ln_init": post_ln,
    "ds_init": post_ln,
    "admin": admin,
    "admin_closed": admin,
    "rezero": rezero,
    "r_fixup": r_fixup,
    "t_fixup": t_fixup,
    "dlcl_pre": dlcl_pre,
    "dlcl_post": dlcl_post,
    "normformer": normformer,
    "sub_ln": sub_ln,
    "b2t": b2t,
    "b2t_rescaled": b2t,
    "b2t_no_ln": b2t_no_ln,
    "keel": keel,
    "peri_ln": peri_ln,
    "ln_scaling": ln_scaling,
    "mix_ln": mix_ln,
    "completep": completep,
    "residual_dual": residual_dual,
    "mhc": mhc,
    "mhc_lite": mhc_lite,
    "attn_res": attn_res,
    "attn_res_delta": attn_res_delta,
}
