"""Times a PyTorch training step of the model that `hadal bench step` times, written as a good engineer would: q, k and v as one
product, PyTorch's fused attention where it has one, vocabulary loss in one pass, Adam over all parameters at once.

    bench_torch.py --width 512 --hidden 2048 --heads 8 --layers 6 --tokens 1024 --length 32 --threads 2

Sentences are equally long, so padding costs nothing. Prints each step's tokens/s on request and one line at the end:
    torch VERSION d=… steps=… median_seconds=… tokens_per_second=…
"""

import argparse
import math
import time

import torch
import torch.nn.functional as F
from torch import nn

from model import positions_table

HAS_FUSED_ATTENTION = hasattr(F, "scaled_dot_product_attention")  # PyTorch ≥ 2.0


def attend(q, k, v, heads, dropout, causal):
    """q, k, v [B, length, d] → [B, length of q, d]."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k, v))
    if HAS_FUSED_ATTENTION:
        context = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=causal)
    else:
        scores = (q * (1 / math.sqrt(q.shape[-1]))) @ k.transpose(-1, -2)
        if causal:
            scores = scores + torch.full(scores.shape[-2:], -math.inf).triu_(1)
        context = F.dropout(torch.softmax(scores, -1), dropout) @ v
    return context.transpose(1, 2).flatten(2)


class SelfAttention(nn.Module):
    def __init__(self, args, causal):
        super().__init__()
        self.args, self.causal = args, causal
        self.qkv = nn.Linear(args.width, 3 * args.width)
        self.out = nn.Linear(args.width, args.width)

    def forward(self, x, memory):
        return self.out(attend(*self.qkv(x).chunk(3, -1), self.args.heads, self.args.attention_dropout, self.causal))


class CrossAttention(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.q = nn.Linear(args.width, args.width)
        self.kv = nn.Linear(args.width, 2 * args.width)
        self.out = nn.Linear(args.width, args.width)

    def forward(self, x, memory):
        k, v = self.kv(memory).chunk(2, -1)
        return self.out(attend(self.q(x), k, v, self.args.heads, self.args.attention_dropout, False))


class FeedForward(nn.Module):
    def __init__(self, args):
        super().__init__()
        self.args = args
        self.fc1 = nn.Linear(args.width, args.hidden)
        self.fc2 = nn.Linear(args.hidden, args.width)

    def forward(self, x, memory):
        return self.fc2(F.dropout(F.relu(self.fc1(x), inplace=True), self.args.activation_dropout))


class Sublayer(nn.Module):
    """LN(gain·x + dropout(F(x)))."""

    def __init__(self, args, gain, branch):
        super().__init__()
        self.gain, self.dropout, self.branch, self.norm = gain, args.dropout, branch, nn.LayerNorm(args.width)

    def forward(self, x, memory=None):
        return self.norm(torch.add(F.dropout(self.branch(x, memory), self.dropout), x, alpha=self.gain))


class Translator(nn.Module):
    def __init__(self, args):
        super().__init__()
        n = args.layers
        self.args = args
        self.table = nn.Parameter(torch.randn(args.vocabulary, args.width) / math.sqrt(args.width))
        self.register_buffer("positions", torch.tensor(positions_table(args.length, args.width), dtype=torch.float32))
        encoder_gain, decoder_gain = 0.81 * (n**5) ** (1 / 16), (3 * n) ** 0.25  # DeepNorm
        self.encoder = nn.ModuleList(
            Sublayer(args, encoder_gain, branch)
            for _ in range(n) for branch in (SelfAttention(args, False), FeedForward(args)))
        self.decoder = nn.ModuleList(
            Sublayer(args, decoder_gain, branch)
            for _ in range(n) for branch in (SelfAttention(args, True), CrossAttention(args), FeedForward(args)))

    def embed(self, tokens):
        x = math.sqrt(self.args.width) * F.embedding(tokens, self.table) + self.positions
        return F.dropout(x, self.args.dropout)

    def forward(self, source, target_input, target):
        memory = self.embed(source)
        for sublayer in self.encoder:
            memory = sublayer(memory)
        x = self.embed(target_input)
        for sublayer in self.decoder:
            x = sublayer(x, memory)
        logits = F.linear(x, self.table).flatten(0, 1)
        return F.cross_entropy(logits, target.flatten(), label_smoothing=self.args.label_smoothing)


def finish(device):
    """Waits for a GPU's kernels, so that the clock sees them."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def train_step(model, optimizer, vocabulary, shape):
    device = next(model.parameters()).device
    source, target_input, target = (torch.randint(4, vocabulary, shape, device=device) for _ in range(3))
    finish(device)
    start = time.perf_counter()
    optimizer.zero_grad(set_to_none=True)
    model(source, target_input, target).backward()
    optimizer.step()
    finish(device)
    return time.perf_counter() - start


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("width", 512), ("hidden", 2048), ("heads", 8), ("layers", 6), ("vocabulary", 8000),
                        ("tokens", 1024), ("length", 32), ("threads", 2), ("steps", 7), ("warmup-steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("dropout", 0.0), ("attention-dropout", 0.0), ("activation-dropout", 0.0), ("label-smoothing", 0.1)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--tf32", action="store_true", help="products in tf32 on a GPU")
    parser.add_argument("--print-steps", action="store_true")
    return parser.parse_args()


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    model = Translator(args).to(args.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-8)
    shape = (args.tokens // args.length, args.length)
    seconds = []
    for step in range(args.warmup_steps + args.steps):
        elapsed = train_step(model, optimizer, args.vocabulary, shape)
        if step >= args.warmup_steps:
            seconds.append(elapsed)
        if args.print_steps:
            print(f"step {step} seconds={elapsed:.4f}", flush=True)
    median = sorted(seconds)[len(seconds) // 2]
    print(f"torch {torch.__version__} d={args.width} f={args.hidden} h={args.heads} layers={args.layers}+{args.layers} "
          f"vocabulary={args.vocabulary} threads={args.threads} steps={args.steps} median_seconds={median:.4f} "
          f"best_seconds={min(seconds):.4f} tokens_per_second={shape[0] * shape[1] / median:.1f}")


if __name__ == "__main__":
    main()
