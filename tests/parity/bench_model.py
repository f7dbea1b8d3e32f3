"""The model that bench_torch.py times, written as a good PyTorch engineer would: q, k and v as one product, PyTorch's fused
attention where it has one, vocabulary loss in one pass; a layer is a module of its own, so that it can be compiled alone, and
layers are checkpointed in groups.
"""

import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "tools/python"))
from hadal_torch.plain import position_table  # noqa: E402

HAS_FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")  # PyTorch ≥ 2.0


def attend(q, k, v, heads, dropout, causal):
    """q, k, v [B, length, d] → [B, length of q, d]."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if HAS_FUSED_ATTENTION:
        output = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    else:
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
        if causal:
            scores = scores + torch.full(scores.shape[-2:], -math.inf, device=q.device).triu_(1)
        output = F.dropout(torch.softmax(scores, -1), dropout) @ v
    return output.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    def __init__(self, args, causal):
        super().__init__()
        self.heads, self.dropout, self.causal = args.heads, args.attention_dropout, causal
        self.qkv = nn.Linear(args.width, 3 * args.width)
        self.out = nn.Linear(args.width, args.width)

    def forward(self, x, encoder_output):
        return self.out(attend(*self.qkv(x).chunk(3, -1), self.heads, self.dropout, self.causal))


class CrossAttention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.heads, self.dropout = args.heads, args.attention_dropout
        self.q = nn.Linear(args.width, args.width)
        self.kv = nn.Linear(args.width, 2 * args.width)
        self.out = nn.Linear(args.width, args.width)

    def forward(self, x, encoder_output):
        k, v = self.kv(encoder_output).chunk(2, -1)
        return self.out(attend(self.q(x), k, v, self.heads, self.dropout, False))


class FeedForward(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.dropout = args.activation_dropout
        self.fc1 = nn.Linear(args.width, args.hidden)
        self.fc2 = nn.Linear(args.hidden, args.width)

    def forward(self, x, encoder_output):
        return self.fc2(F.dropout(F.relu(self.fc1(x), inplace=True), self.dropout))


class Sublayer(nn.Module):
    """LN(gain·x + dropout(F(x)))."""

    def __init__(self, args, gain, branch):
        super().__init__()
        self.gain, self.dropout, self.branch, self.norm = gain, args.dropout, branch, nn.LayerNorm(args.width)

    def forward(self, x, encoder_output):
        return self.norm(torch.add(F.dropout(self.branch(x, encoder_output), self.dropout), x, alpha=self.gain))


class Layer(nn.Module):
    """The sublayers of one layer: what is compiled as one region."""

    def __init__(self, args, gain, branches):
        super().__init__()
        self.sublayers = nn.ModuleList(Sublayer(args, gain, branch) for branch in branches)

    def forward(self, x, encoder_output):
        for sublayer in self.sublayers:
            x = sublayer(x, encoder_output)
        return x


def run_layers(layers, x, encoder_output):
    for layer in layers:
        x = layer(x, encoder_output)
    return x


class Head(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.label_smoothing = args.label_smoothing

    def forward(self, x, table, target):
        return F.cross_entropy(F.linear(x, table).flatten(0, 1), target.flatten(), label_smoothing=self.label_smoothing)


class Translator(nn.Module):
    def __init__(self, args):
        super().__init__()
        n = args.layers
        self.args = args
        self.table = nn.Parameter(torch.randn(args.vocabulary, args.width) / math.sqrt(args.width))
        self.register_buffer("positions", torch.tensor(position_table(args.length, args.width), dtype=torch.float32))
        encoder_gain, decoder_gain = 0.81 * (n**5) ** (1 / 16), (3 * n) ** 0.25  # DeepNorm
        self.encoder = nn.ModuleList(
            Layer(args, encoder_gain, (SelfAttention(args, False), FeedForward(args))) for _ in range(n))
        self.decoder = nn.ModuleList(
            Layer(args, decoder_gain, (SelfAttention(args, True), CrossAttention(args), FeedForward(args))) for _ in range(n))
        self.head = Head(args)

    def embed(self, tokens):
        x = math.sqrt(self.args.width) * F.embedding(tokens, self.table) + self.positions
        return F.dropout(x, self.args.dropout)

    def run_stack(self, layers, sublayers_each, x, encoder_output):
        """All layers, kept or, in groups of about recompute_every sublayers, run again in backward."""
        if self.args.recompute_every == 0:
            return run_layers(layers, x, encoder_output)
        group = max(1, self.args.recompute_every // sublayers_each)
        for first in range(0, len(layers), group):
            x = checkpoint(run_layers, layers[first:first + group], x, encoder_output, use_reentrant=False,
                           preserve_rng_state=self.args.dropout > 0)
        return x

    def forward(self, source, target_input, target):
        encoder_output = self.run_stack(self.encoder, 2, self.embed(source), None)
        x = self.run_stack(self.decoder, 3, self.embed(target_input), encoder_output)
        return self.head(x, self.table, target)


def step_flops(args):
    """(the model's, executed) floating-point operations of a micro-batch: the count of tools/bench/bench_step_report.h."""
    d, batch, length = args.width, args.tokens // args.length, args.length
    rows = batch * length
    self_attention, feed_forward = 4 * d * d, 2 * d * args.hidden
    encoder = args.layers * rows * (self_attention + feed_forward)
    decoder = args.layers * rows * (2 * self_attention + feed_forward)
    head = rows * d * args.vocabulary
    pairs = args.layers * batch * (2 * length * length + length * (length + 1) / 2)
    model = 6 * (encoder + decoder + head) + 12 * d * pairs
    again = args.recompute_every > 0
    return model, model + (2 * (encoder + decoder) if again else 0) + (6 if again else 2) * d * pairs
