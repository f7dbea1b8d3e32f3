"""Times a PyTorch training step of the model that `hadal bench step` times (bench_model.py), Adam over all parameters at once.

    bench_torch.py --width 512 --hidden 2048 --heads 8 --layers 6 --tokens 1024 --length 32 --threads 2
    bench_torch.py --device cuda --precision bf16 --compile layer --recompute-every 10 …

--precision bf16 is autocast: fp32 weights, gradients and moments, products and attention in bf16, weights rounded to bf16 anew each
step, LayerNorm's outputs and so the residual stream in fp32. hadal keeps rounded weights and a bf16 stream: it moves fewer bytes. --compile layer compiles a layer and reuses it for all (what scales with depth), --compile model the whole;
--graph records the step, optimizer included, as one CUDA graph. --micro-batches adds the gradients of several micro-batches before
one step of the optimizer, --clip-norm clips them, as hadal does. Attention takes the flash kernel where it has one for the type,
else the memory-efficient one, and says which. The first steps, compilation with them, are not timed, nor what --warmup-seconds
takes beyond them; compile_seconds is the first one's. Sentences are equally long, so padding costs nothing. Prints one line at the end, with --json as JSON:
    torch VERSION d=… steps=… median_seconds=… tokens_per_second=… tflops=… peak_bytes=…
What cannot run (memory, compilation) is said in the same line as failed="…"; exit status 3.
"""

import argparse
import contextlib
import json
import signal
import sys
import time

import torch
import torch.nn.functional as F

from bench_model import HAS_FUSED_ATTENTION, Translator, step_flops


def finish(device):
    """Waits for a GPU's kernels, so that the clock sees them."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def fastest_attention(args, device):
    """(name, context manager) of the first of PyTorch's kernels that runs this model's attention, forward and backward."""
    if not HAS_FUSED_ATTENTION:
        return "by products", contextlib.nullcontext()
    try:
        from torch.nn.attention import SDPBackend, sdpa_kernel  # PyTorch ≥ 2.3
    except ImportError:
        return "PyTorch's choice", contextlib.nullcontext()
    dtype = torch.bfloat16 if args.precision == "bf16" else torch.float32
    shape = (2, args.heads, args.length, args.width // args.heads)
    for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("efficient", SDPBackend.EFFICIENT_ATTENTION)):
        q, k, v = (torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3))
        try:
            with sdpa_kernel(backend):
                F.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
            return name, sdpa_kernel(backend)
        except RuntimeError:
            continue
    return "PyTorch's choice", contextlib.nullcontext()


class Step:
    """A training step on random tokens."""

    def __init__(self, args, device):
        self.args, self.device = args, device
        with torch.device(device) if hasattr(torch.device, "__enter__") else contextlib.nullcontext():
            self.model = Translator(args).to(device)
        fused = {"fused": True} if device.type == "cuda" else {"foreach": True}
        if args.graph:
            fused["capturable"] = True
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-8, **fused)
        self.shape = (args.tokens // args.length, args.length)
        self.batches = [tuple(torch.zeros(self.shape, dtype=torch.int64, device=device) for _ in range(3))
                        for _ in range(args.micro_batches)]
        self.graph = None
        self.loss = self.compile()

    def compile(self):
        """What makes the loss: the model, or the same compiled."""
        how = self.args.compile
        if how == "model":
            return torch.compile(self.model)
        if how == "layer":
            for part in (*self.model.encoder, *self.model.decoder, self.model.head):
                part.compile()
        return self.model

    def launch(self):
        self.optimizer.zero_grad(set_to_none=True)
        for batch in self.batches:
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.args.precision == "bf16"):
                loss = self.loss(*batch)
            (loss / len(self.batches)).backward()
        if self.args.clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.clip_norm)
        self.optimizer.step()

    def record(self):
        """The step as one graph, recorded on a stream of its own as CUDA wants it."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.launch()
        torch.cuda.current_stream().wait_stream(side)
        self.optimizer.zero_grad(set_to_none=True)  # a graph has memory of its own: beside it no gradient may live on
        torch.cuda.empty_cache()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.launch()

    def run(self):
        """Seconds."""
        for batch in self.batches:
            for tokens in batch:
                tokens.random_(4, self.args.vocabulary)
        finish(self.device)
        start = time.perf_counter()
        if self.graph is None:
            self.launch()
        else:
            self.graph.replay()
        finish(self.device)
        return time.perf_counter() - start


class TooLong(Exception):
    """Raised by time_limit; what it interrupts may raise something else because of it."""

    said = ""


@contextlib.contextmanager
def time_limit(seconds, what):
    """Raises TooLong in the body when its time is over; 0: no limit."""

    def over(signum, frame):
        TooLong.said = f"{what} took more than {seconds:g} s"
        raise TooLong(TooLong.said)

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure(args, device, result):
    """Adds to `result` as it goes, so that what failed shows how far it came."""
    result["attention"], kernel = fastest_attention(args, device)
    with kernel:
        step = Step(args, device)
        result["parameters"] = sum(p.numel() for p in step.model.parameters())
        with time_limit(args.start_limit, "the first step (compilation in it)"):
            result["compile_seconds"] = step.run()
        if args.graph:
            step.record()
        warm = time.perf_counter() + args.warmup_seconds
        for _ in range(args.warmup_steps - 1):
            step.run()
        while time.perf_counter() < warm:
            step.run()
        seconds = [step.run() for _ in range(args.steps)]
    median = sorted(seconds)[len(seconds) // 2]
    model_flops, executed_flops = (args.micro_batches * flops for flops in step_flops(args))
    result.update(steps=args.steps, median_seconds=median, best_seconds=min(seconds),
                  tokens_per_second=args.micro_batches * step.shape[0] * step.shape[1] / median, model_flops=model_flops,
                  tflops=1e-12 * model_flops / median, executed_tflops=1e-12 * executed_flops / median)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("width", 512), ("hidden", 2048), ("heads", 8), ("layers", 6), ("vocabulary", 8000),
                        ("tokens", 1024), ("length", 32), ("micro-batches", 1), ("threads", 2), ("steps", 7),
                        ("warmup-steps", 2)):
        parser.add_argument(f"--{name}", type=int, default=value)
    for name, value in (("dropout", 0.0), ("attention-dropout", 0.0), ("activation-dropout", 0.0), ("label-smoothing", 0.1),
                        ("clip-norm", 0.0)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--compile", choices=("no", "layer", "model"), default="no")
    parser.add_argument("--graph", action="store_true", help="the step as one CUDA graph")
    parser.add_argument("--recompute-every", type=int, default=0, help="sublayers, rounded down to whole layers; 0: off")
    parser.add_argument("--start-limit", type=float, default=0, help="seconds that the first step may take; 0: no limit")
    parser.add_argument("--warmup-seconds", type=float, default=0, help="that steps run at least, behind the first, before one is timed")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def reason_of(error):
    if TooLong.said:
        return TooLong.said
    if any(words in str(error) for words in ("out of memory", "can't allocate memory")) or isinstance(error, MemoryError):
        return "out of memory"
    return f"{type(error).__name__}: {error}".split("\n")[0][:200].replace('"', "'")


def text_of(value):
    if isinstance(value, float):
        return f"{value:.4f}" if value < 100 else f"{value:.1f}"
    return f'"{value}"' if " " in str(value) else str(value)


def main():
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = args.precision == "tf32"
    device = torch.device(args.device)
    result = dict(d=args.width, f=args.hidden, h=args.heads, layers=f"{args.layers}+{args.layers}", vocabulary=args.vocabulary,
                  tokens=args.tokens, threads=args.threads, precision=args.precision, compile=args.compile, graph=args.graph,
                  recompute_every=args.recompute_every)
    try:
        measure(args, device, result)
    except Exception as error:  # whatever PyTorch or its compiler raise: the row says so, and the next one runs
        result["failed"] = reason_of(error)
    if device.type == "cuda" and torch.cuda.is_available():
        result["peak_bytes"] = torch.cuda.max_memory_allocated()
    if args.json:
        print(json.dumps(dict(torch=torch.__version__, **result)))
    else:
        print(f"torch {torch.__version__} " + " ".join(f"{name}={text_of(value)}" for name, value in result.items()))
    sys.exit(3 if "failed" in result else 0)


if __name__ == "__main__":
    main()
