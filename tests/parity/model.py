"""An encoder-decoder Transformer, or a decoder-only language model, in plain PyTorch: the yardstick that hadal's gradients are held against.

Written from the formulas of the papers and fairseq's conventions, sharing no code with hadal. Plain on purpose: parameters are a
dict under fairseq's names, sentences are a padded rectangle with masks, every sublayer goes through one function. Any dtype.

    every sublayer   x' = post(r·x + b·F(pre(x)))      pre, post ∈ {identity, LayerNorm}; F may hold norms and scales of its own
    embedding        x0 = sqrt(d)·E[token] + PE[position], positions counted from 2
    loss             Σ over target tokens of (1 − eps − eps_v)·nll + eps_v·Σ_v(−log p_v), eps_v = eps / (V − 1)

To add a residual method: one entry in METHODS; if it has parameters of its own, use them in Model.sublayer.
"""

import json
import math
import struct
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

PAD, EOS = 1, 2
FIRST_POSITION = 2  # fairseq: padding index + 1
NORM_EPS = 1e-5


@dataclass(frozen=True)
class Residual:
    """How one stack joins a sublayer to the residual stream."""

    norm: str = "post"  # "post", "pre" (and one behind the stack) or "none"
    residual_gain: float = 1.0  # r
    branch_gain: float = 1.0  # b
    learned_gain: bool = False  # b has the factor "…layers.I.resweight"
    inner_norm: bool = False  # in front of out_proj (self-attention)
    hidden_norm: bool = False  # in front of fc2
    head_scale: bool = False  # self-attention's heads times "…self_attn.head_scale"
    skip_gain: float = 0.0  # a of the layer's last sum c·(r·x + b·F) + a·(the layer's input)
    layer_gain: float = 1.0  # c
    output_norm: bool = False  # behind self-attention's out_proj
    omega: bool = False  # r has the factor "….omega", a vector
    combines: bool = False  # a layer reads "….dlcl.weight"'s row of all outputs in front of it
    fixup: bool = False  # learned scalars: "….{shift,scale}", "…ffn.{shift1,shift2,shift3,scale}" and behind the stacks


def post_ln(settings):
    return Residual(), Residual()


def pre_ln(settings):
    return Residual(norm="pre"), Residual(norm="pre")


def deepnorm(settings):
    """DeepNet (arXiv 2203.00555), figure 2: encoder 0.81 (N^4 M)^(1/16), decoder (3M)^(1/4); decoder-only (2M)^(1/4)."""
    n, m = settings["model"]["encoder_layers"], settings["model"]["decoder_layers"]
    if n == 0:
        return None, Residual(residual_gain=(2 * m) ** 0.25)
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
}


def read_safetensors(path):
    """name → float32 array. Format: 8 bytes of header length, a JSON header, the tensors' bytes."""
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        assert entry["dtype"] == "F32", f"{path}: {name} has type {entry['dtype']}"
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], "<f4").reshape(entry["shape"])
    return tensors


def positions_table(count, d):
    """[count, d] float64: sin(pos·w) | cos(pos·w), w_i = 10000^(−i / (d/2 − 1)); a zero column where d is odd."""
    half = d // 2
    w = np.exp(np.arange(half) * -(math.log(10000.0) / (half - 1)))
    angle = (np.arange(count) + FIRST_POSITION)[:, None] * w[None, :]
    table = np.zeros((count, d))
    table[:, :half], table[:, half : 2 * half] = np.sin(angle), np.cos(angle)
    return table


def pad(sentences):
    """[sentences, longest] int64, PAD behind each sentence's end."""
    tokens = np.full((len(sentences), max(map(len, sentences))), PAD, np.int64)
    for row, sentence in zip(tokens, sentences):
        row[: len(sentence)] = sentence
    return torch.from_numpy(tokens)


class Model:
    """`settings`: {"method", "update", "model": {…}}; `weights`: name → array, shared matrices once, under their first name."""

    def __init__(self, settings, weights, dtype):
        self.settings = settings["model"]
        self.heads = self.settings["heads"]
        self.encoder_residual, self.decoder_residual = METHODS[settings["method"]](settings)
        self.dtype = dtype
        self.profile = None  # while profiling: name → omega
        self.parameters = {
            name: torch.tensor(value.astype(np.float64), dtype=dtype, requires_grad=True) for name, value in weights.items()
        }
        self.has_encoder = self.settings["encoder_layers"] > 0
        source = "encoder.embed_tokens.weight"
        target = source if self.has_encoder and self.settings["sharing"] == "all" else "decoder.embed_tokens.weight"
        output = "decoder.output_projection.weight" if self.settings["sharing"] == "none" else target
        self.source_table = self.parameters[source] if self.has_encoder else None
        self.target_table, self.output_table = self.parameters[target], self.parameters[output]

    def linear(self, x, name):
        return F.linear(x, self.parameters[name + ".weight"], self.parameters.get(name + ".bias"))

    def shifted(self, x, residual, name):
        return x - self.parameters[name] if residual.fixup else x

    def norm(self, x, name):
        return F.layer_norm(x, x.shape[-1:], self.parameters[name + ".weight"], self.parameters[name + ".bias"], NORM_EPS)

    def attention(self, x, keys, mask, name, context_map=lambda c: c):
        """softmax(q kᵀ / sqrt(d/h) + mask) v, heads apart; context_map [B, h, T, d/h] → the same, heads side by side, out_proj.
        x [B, T, d], keys [B, S, d], mask [B, 1, T or 1, S]."""

        def split(y):
            return y.view(*y.shape[:2], self.heads, -1).transpose(1, 2)  # [B, h, length, d/h]

        q = split(self.linear(x, name + ".q_proj"))
        k = split(self.linear(keys, name + ".k_proj"))
        v = split(self.linear(keys, name + ".v_proj"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        output = torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ v
        side_by_side = context_map(output).transpose(1, 2).reshape(x.shape)
        return self.linear(side_by_side, name + ".out_proj")

    def self_attention(self, x, mask, layer, residual):
        """With what some methods put around out_proj."""
        name = layer + ".self_attn"

        def context_map(output):
            if residual.head_scale:
                output = output * self.parameters[name + ".head_scale"][None, :, None, None]
            if residual.inner_norm:  # over all heads' columns together
                whole = output.transpose(1, 2)
                output = self.norm(whole.flatten(2), name + ".inner_attn_ln").view(whole.shape).transpose(1, 2)
            return output

        x = self.shifted(x, residual, name + ".shift")
        y = self.attention(x, x, mask, name, context_map)
        return self.norm(y, layer + ".attn_ln") if residual.output_norm else y

    def cross_attention(self, x, encoder_output, mask, layer, residual):
        name = layer + ".encoder_attn"
        return self.attention(self.shifted(x, residual, name + ".shift"), encoder_output, mask, name)

    def feed_forward(self, x, layer, residual):
        before_relu = self.linear(self.shifted(x, residual, layer + ".ffn.shift1"), layer + ".fc1")
        hidden = self.shifted(torch.relu(self.shifted(before_relu, residual, layer + ".ffn.shift2")), residual,
                              layer + ".ffn.shift3")
        if residual.hidden_norm:
            hidden = self.norm(hidden, layer + ".ffn_layernorm")
        return self.linear(hidden, layer + ".fc2")

    MODULES = {"self_attn_layer_norm": "self_attn", "encoder_attn_layer_norm": "encoder_attn", "final_layer_norm": "ffn"}

    def sublayer(self, x, residual, layer, norm, branch, layer_input=None):
        """x' = post(r·x + b·F(pre(x))): every method; with `layer_input` the last of a layer."""
        norm_name = f"{layer}.{norm}"
        y = branch(self.norm(x, norm_name) if residual.norm == "pre" else x)
        branch_gain = residual.branch_gain
        if residual.learned_gain:
            branch_gain = branch_gain * self.parameters[layer + ".resweight"]
        if residual.fixup:
            branch_gain = branch_gain * self.parameters[f"{layer}.{self.MODULES[norm]}.scale"]
        residual_gain = residual.residual_gain
        if residual.omega:
            residual_gain = residual_gain * self.omega_of(f"{layer}.{self.MODULES[norm]}.omega", x, y)
        total = residual_gain * x + branch_gain * y
        if layer_input is not None and residual.skip_gain:
            total = residual.layer_gain * total + residual.skip_gain * layer_input
        return self.norm(total, norm_name) if residual.norm == "post" else total

    def combination(self, outputs, residual, stack):
        """What the next layer reads, or what follows the stack, of the embedding and all layers' outputs so far."""
        if not residual.combines:
            return outputs[-1]
        row, name = len(outputs) - 1, f"{stack}.dlcl.layer_norms"
        terms = outputs
        if residual.norm == "pre":
            terms = outputs[:1] + [self.norm(y, f"{name}.{k}") for k, y in enumerate(outputs[1:], 1)]
        weights = self.parameters[f"{stack}.dlcl.weight"][row, : row + 1]
        total = (weights.view(-1, 1, 1, 1) * torch.stack(terms)).sum(0)
        return self.norm(total, f"{name}.{row}") if residual.norm == "post" and row > 0 else total

    def omega_of(self, name, x, y):
        """The vector; while profiling the next omega of the stack instead, from the variances over the tokens that are real."""
        if self.profile is None:
            return self.parameters[name]
        omega = self.next_omega
        self.profile[name] = omega
        carried, added = ((value[self.real]).var(unbiased=False).item() for value in (omega * x, y))
        self.next_omega = math.sqrt(carried + added)
        return omega

    def profiled(self, sentences):
        """name → omega, as Admin's code finds it in one forward pass: 1, then sqrt(Var(omega x) + Var(F(x))), per stack."""
        self.profile = {}
        with torch.no_grad():
            self.loss(sentences)
        profile, self.profile = self.profile, None
        return profile

    def embed(self, tokens, table):
        d = self.settings["d_model"]
        positions = torch.tensor(positions_table(tokens.shape[1], d), dtype=self.dtype)
        return math.sqrt(d) * F.embedding(tokens, table) + positions

    def encode(self, source, source_mask):
        x, residual = self.embed(source, self.source_table), self.encoder_residual
        self.real, self.next_omega = source != PAD, 1.0
        outputs = [x]
        for i in range(self.settings["encoder_layers"]):
            layer, layer_input = f"encoder.layers.{i}", self.combination(outputs, residual, "encoder")
            x = layer_input
            x = self.sublayer(x, residual, layer, "self_attn_layer_norm",
                              lambda u: self.self_attention(u, source_mask, layer, residual))
            x = self.sublayer(x, residual, layer, "final_layer_norm", lambda u: self.feed_forward(u, layer, residual),
                              layer_input)
            outputs.append(x)
        x = self.combination(outputs, residual, "encoder")
        if residual.fixup:
            return self.parameters["encoder.scale"] * (x - self.parameters["encoder.shift"])
        return self.norm(x, "encoder.layer_norm") if residual.norm == "pre" else x

    def decode(self, target_input, encoder_output, source_mask):
        x, residual = self.embed(target_input, self.target_table), self.decoder_residual
        self.real, self.next_omega = target_input != PAD, 1.0
        length = target_input.shape[1]
        future = torch.triu(torch.ones(length, length, dtype=torch.bool), 1)[None, None]
        outputs = [x]
        for i in range(self.settings["decoder_layers"]):
            layer, layer_input = f"decoder.layers.{i}", self.combination(outputs, residual, "decoder")
            x = layer_input
            x = self.sublayer(x, residual, layer, "self_attn_layer_norm",
                              lambda u: self.self_attention(u, future, layer, residual))
            if self.has_encoder:
                x = self.sublayer(x, residual, layer, "encoder_attn_layer_norm",
                                  lambda u: self.cross_attention(u, encoder_output, source_mask, layer, residual))
            x = self.sublayer(x, residual, layer, "final_layer_norm", lambda u: self.feed_forward(u, layer, residual),
                              layer_input)
            outputs.append(x)
        x = self.shifted(self.combination(outputs, residual, "decoder"), residual, "decoder.shift")
        return self.norm(x, "decoder.layer_norm") if residual.norm == "pre" else x

    def log_probabilities(self, source, target_input):
        """[B, T, V] of padded tokens [B, S] and [B, T]; `source` None: of the target alone."""
        # A target row never looks past itself, so that padding behind a target needs no mask.
        if source is None:
            return torch.log_softmax(self.decode(target_input, None, None) @ self.output_table.T, -1)
        source_mask = (source == PAD)[:, None, None, :]
        x = self.decode(target_input, self.encode(source, source_mask), source_mask)
        return torch.log_softmax(x @ self.output_table.T, -1)

    def loss(self, sentences):
        """Mean smoothed loss over the target tokens of [(source, target), …], both with </s>; each target row's nll."""
        source = pad([s for s, _ in sentences]) if self.has_encoder else None
        target = pad([t for _, t in sentences])
        target_input = pad([[EOS] + t[:-1] for _, t in sentences])
        log_p = self.log_probabilities(source, target_input)[target != PAD]  # [target tokens, V]
        nll = -log_p.gather(1, target[target != PAD][:, None])[:, 0]
        eps = self.settings["label_smoothing"]
        eps_v = eps / (log_p.shape[1] - 1)
        smoothed = (1 - eps - eps_v) * nll - eps_v * log_p.sum(1)
        return smoothed.sum() / len(nll), nll
