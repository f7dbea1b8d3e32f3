"""`hadal config from-fairseq COMMAND`: the config of a `fairseq-train` command, as far as hadal has it.

    hadal config from-fairseq 'fairseq-train data-bin/iwslt14 --arch transformer_iwslt_de_en --lr 5e-4 …' > iwslt.textproto

The config begins with comments: what has to be done beside it, what is not carried over, and which options are unknown. Values
that the command leaves out are those of fairseq 0.12 (its architectures, and its defaults), not hadal's.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import textwrap
from typing import Any, Dict

from pyhadal.options import number
from pyhadal.refusal import Refusal

Values = Dict[str, Any]

# The registered architectures, each over another: fairseq/models/transformer/transformer_legacy.py, transformer_lm.py,
# speech_to_text/s2t_transformer.py. Keys are options without "--". configs/fairseq has them as files.
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "transformer": ("", {
        "encoder-embed-dim": 512, "encoder-ffn-embed-dim": 2048, "encoder-layers": 6, "encoder-attention-heads": 8,
        "decoder-layers": 6, "decoder-attention-heads": 8, "dropout": 0.1, "attention-dropout": 0.0, "activation-dropout": 0.0,
        "max-source-positions": 1024, "max-target-positions": 1024}),
    "transformer_tiny": ("transformer", {
        "encoder-embed-dim": 64, "encoder-ffn-embed-dim": 64, "encoder-layers": 2, "encoder-attention-heads": 2, "decoder-layers": 2,
        "decoder-attention-heads": 2}),
    "transformer_iwslt_de_en": ("transformer", {
        "encoder-ffn-embed-dim": 1024, "encoder-attention-heads": 4, "decoder-attention-heads": 4}),
    "transformer_wmt_en_de": ("transformer", {}),
    "transformer_vaswani_wmt_en_de_big": ("transformer", {
        "encoder-embed-dim": 1024, "encoder-ffn-embed-dim": 4096, "encoder-attention-heads": 16, "decoder-attention-heads": 16,
        "dropout": 0.3}),
    "transformer_vaswani_wmt_en_fr_big": ("transformer_vaswani_wmt_en_de_big", {"dropout": 0.1}),
    "transformer_wmt_en_de_big": ("transformer_vaswani_wmt_en_de_big", {"attention-dropout": 0.1}),
    "transformer_wmt_en_de_big_t2t": ("transformer_vaswani_wmt_en_de_big", {
        "encoder-normalize-before": True, "decoder-normalize-before": True, "attention-dropout": 0.1, "activation-dropout": 0.1}),
    "transformer_lm": ("", {
        "encoder-layers": 0, "decoder-embed-dim": 512, "decoder-ffn-embed-dim": 2048, "decoder-layers": 6,
        "decoder-attention-heads": 8, "decoder-normalize-before": True, "dropout": 0.1, "attention-dropout": 0.0,
        "activation-dropout": 0.0, "tokens-per-sample": 1024}),
    "transformer_lm_big": ("transformer_lm", {
        "decoder-layers": 12, "decoder-embed-dim": 1024, "decoder-ffn-embed-dim": 4096, "decoder-attention-heads": 16}),
    "transformer_lm_wiki103": ("transformer_lm_big", {
        "decoder-layers": 16, "decoder-attention-heads": 8, "dropout": 0.3, "adaptive-input": True, "tie-adaptive-weights": True,
        "adaptive-input-cutoff": "20000,60000", "adaptive-softmax-cutoff": "20000,60000", "adaptive-softmax-dropout": 0.2,
        "attention-dropout": 0.1, "activation-dropout": 0.1, "no-decoder-final-norm": True, "tie-adaptive-proj": True}),
    "s2t_transformer": ("", {
        "conv-channels": 1024, "encoder-embed-dim": 512, "encoder-ffn-embed-dim": 2048, "encoder-layers": 12,
        "encoder-attention-heads": 8, "encoder-normalize-before": True, "decoder-layers": 6, "decoder-attention-heads": 8,
        "decoder-normalize-before": True, "dropout": 0.1, "max-source-positions": 6000, "max-target-positions": 1024}),
    "s2t_transformer_s": ("s2t_transformer", {
        "encoder-embed-dim": 256, "encoder-attention-heads": 4, "decoder-attention-heads": 4}),
    "s2t_transformer_xs": ("s2t_transformer_s", {
        "encoder-layers": 6, "decoder-layers": 3, "encoder-ffn-embed-dim": 1024, "dropout": 0.3}),
    "s2t_transformer_sp": ("s2t_transformer_s", {"encoder-layers": 16}),
    "s2t_transformer_m": ("s2t_transformer", {"dropout": 0.15}),
    "s2t_transformer_mp": ("s2t_transformer_m", {"encoder-layers": 16}),
    "s2t_transformer_l": ("s2t_transformer", {
        "encoder-embed-dim": 1024, "encoder-ffn-embed-dim": 4096, "encoder-attention-heads": 16, "decoder-attention-heads": 16,
        "dropout": 0.2}),
    "s2t_transformer_lp": ("s2t_transformer_l", {"encoder-layers": 16}),
}
ALIASES = {"transformer_lm_baevski_wiki103": "transformer_lm_wiki103"}

# option → the field that takes its number unchanged. OPTIONS_OF_CODE are read by functions below.
FIELDS: dict[str, tuple[str, type]] = {
    "encoder-layers": ("model.encoder_layers", int), "decoder-layers": ("model.decoder_layers", int),
    "dropout": ("model.dropout", float), "attention-dropout": ("model.attention_dropout", float),
    "activation-dropout": ("model.activation_dropout", float), "conv-channels": ("model.front_end_channels", int),
    "adaptive-softmax-dropout": ("model.adaptive_dropout", float), "adaptive-softmax-factor": ("model.adaptive_factor", int),
    "adam-eps": ("optimizer.epsilon", float), "weight-decay": ("optimizer.weight_decay", float),
    "clip-norm": ("optimizer.clip_norm", float), "max-update": ("stop.steps", int), "max-epoch": ("stop.epochs", int),
    "patience": ("stop.patience", int), "save-interval-updates": ("checkpoint.every_steps", int),
    "keep-interval-updates": ("checkpoint.keep_last", int), "keep-best-checkpoints": ("checkpoint.keep_best", int),
    "validate-interval-updates": ("validation.every_steps", int),
    "seed": ("seed", int), "end-learning-rate": ("learning_rate.end_rate", float), "power": ("learning_rate.power", float),
}
ZERO_IS_OFF = ("max-update", "max-epoch", "keep-best-checkpoints", "save-interval-updates", "validate-interval-updates")
OPTIONS_OF_CODE = {
    "arch": "`configs/fairseq/NAME.textproto` has the model's values",
    "encoder-embed-dim": "`model.d_model`, of both sides", "decoder-embed-dim": "`model.d_model`, of both sides",
    "encoder-ffn-embed-dim": "`model.d_ff`, of both sides", "decoder-ffn-embed-dim": "`model.d_ff`, of both sides",
    "encoder-attention-heads": "`model.heads`, of both sides", "decoder-attention-heads": "`model.heads`, of both sides",
    "encoder-normalize-before": "both: `model.residual.method` \"pre_ln\", none: \"post_ln\", one: its `norm` too",
    "decoder-normalize-before": "both: `model.residual.method` \"pre_ln\", none: \"post_ln\", one: its `norm` too",
    "no-decoder-final-norm": "not there: a Pre-LN stack ends with a norm",
    "share-all-embeddings": "`model.sharing` \"all\"; neither: \"none\". Two dictionaries cannot share all",
    "share-decoder-input-output-embed": "`model.sharing` \"decoder\"; neither: \"none\"",
    "max-source-positions": "`model.max_positions`, the larger of both; of speech a quarter of the frames",
    "max-target-positions": "`model.max_positions`, the larger of both", "tokens-per-sample": "`model.max_positions`",
    "activation-fn": "`model.block.activation`: relu, gelu, gelu_accurate (\"gelu_tanh\"), swish (\"silu\")",
    "encoder-learned-pos": "`model.block.positions` \"learned\", of both sides", "decoder-learned-pos": "`model.block.positions` \"learned\", of both sides",
    "no-token-positional-embeddings": "`model.block.positions` \"none\"", "no-scale-embedding": "`model.block.scale_embedding` false",
    "layernorm-embedding": "`model.block.embedding_norm`, not of speech", "adaptive-softmax-cutoff": "`model.adaptive_cutoffs`",
    "adaptive-input": "`model.sharing` \"all\": input and softmax share bands and tables",
    "adaptive-input-cutoff": "`model.adaptive_cutoffs`, the softmax's", "adaptive-input-factor": "`model.adaptive_factor`, the softmax's",
    "tie-adaptive-weights": "always, with \"all\"", "tie-adaptive-proj": "always, with \"all\"",
    "conv-kernel-sizes": "5,5 alone", "optimizer": "Adam alone", "adam-betas": "`optimizer.beta1`, `beta2`; fairseq's default is 0.9, 0.999",
    "lr": "`learning_rate.peak`",
    "lr-scheduler": "`learning_rate.schedule`: inverse_sqrt, polynomial_decay, cosine, fixed (\"constant\")",
    "min-lr": "`learning_rate.end_rate`, of cosine", "lr-period-updates": "`stop.steps` less the warm-up: cosine has one period",
    "max-lr": "`learning_rate.peak` of cosine before fairseq 0.10, whose `--lr` is the `end_rate`", "t-mult": "cosine has one period", "lr-shrink": "cosine has one period",
    "warmup-updates": "`learning_rate.warmup_updates`",
    "warmup-init-lr": "`learning_rate.warmup_initial_rate`; fairseq's default is 0, of cosine --min-lr", "total-num-update": "`stop.steps`",
    "criterion": "label_smoothed_cross_entropy; cross_entropy and adaptive_loss set `model.label_smoothing` 0",
    "label-smoothing": "`model.label_smoothing`",
    "max-tokens": "`batch.source_tokens`, `target_tokens`: of one micro-batch, without padding; of speech a quarter of the frames",
    "update-freq": "`batch.micro_batches` = update-freq x GPUs: of the whole job, for any number of ranks",
    "distributed-world-size": "`batch.micro_batches` = update-freq x GPUs", "nproc-per-node": "`batch.micro_batches` = update-freq x GPUs",
    "nnodes": "`batch.micro_batches` = update-freq x GPUs", "stop-time-hours": "`stop.minutes`",
    "best-checkpoint-metric": "`validation.metric`: loss (\"nll\"), bleu", "maximize-best-checkpoint-metric": "as `validation.metric` needs it",
    "eval-bleu": "`validation.bleu_sentences`", "eval-bleu-args": "`decode.beam`, `max_length_a`, `max_length_b`, `length_penalty`, `no_repeat_ngram`",
}

# option → what its user does here.
NOTES = {
    "batch-size": "batches are counted in tokens here: choose batch.source_tokens and batch.target_tokens",
    "source-lang": "hadal prepare --train train.SOURCE train.TARGET", "target-lang": "hadal prepare --train train.SOURCE train.TARGET",
    "save-dir": "hadal train … --run-dir DIR", "restore-file": "hadal train … --resume PATH", "fp16": "bf16 on GPUs by default; no fp16",
    "finetune-from-model": "hadal checkpoint import, then hadal train … --init-from",
    "bf16": "bf16 on GPUs is the default (device.precision)", "memory-efficient-fp16": "bf16 on GPUs by default; no fp16",
    "tensorboard-logdir": "RUN_DIR/tb is always written", "log-file": "RUN_DIR/logs is always written",
    "wandb-project": "`python3 -m pyhadal follow RUN --to wandb`; RUN_DIR/metrics.jsonl has every number",
    "keep-last-epochs": "checkpoint.keep_last counts checkpoints, not epochs",
    "save-interval": "checkpoint.every_steps counts steps, not epochs", "validate-interval": "validation.every_steps counts steps, not epochs",
    "reset-optimizer": "hadal train … --init-from starts a new run with given weights",
    "reset-lr-scheduler": "hadal train … --init-from starts a new run with given weights",
    "reset-dataloader": "hadal train … --init-from starts a new run with given weights",
    "reset-meters": "hadal train … --init-from starts a new run with given weights",
    "sample-break-mode": "none: hadal prepare --block N; eos: without it, a line is a sample; no other",
    "lang-pairs": "hadal prepare --list, a text for each direction", "sampling-temperature": "data.sampling_temperature",
    "encoder-langtok": "hadal prepare --tags deepnet (tgt) or m2m100 (src)", "decoder-langtok": "hadal prepare --tags m2m100",
    "eval-bleu-detok": "BLEU is computed on detokenised text", "eval-bleu-remove-bpe": "pieces are joined by the vocabulary",
    "config-yaml": "data.spec_augment has SpecAugment; the vocabulary comes from hadal prepare",
    "checkpoint-activations": "pipeline.recompute_every", "pipeline-model-parallel": "pipeline.stages",
    "pipeline-chunks": "batch.micro_batches", "pipeline-balance": "pipeline.split",
    "tokenizer": "hadal prepare takes raw text", "bpe": "hadal prepare --vocab takes a SentencePiece model",
    "skip-invalid-size-inputs-valid-test": "over-long samples are always left out and counted (data.max_left_out)",
    "max-tokens-valid": "validation uses the capacity of a micro-batch", "batch-size-valid": "validation uses the capacity of a micro-batch",
    "sentence-avg": "the loss is the mean over target tokens", "user-dir": "code of your own cannot be loaded",
    "encoder-layerdrop": "no LayerDrop", "decoder-layerdrop": "no LayerDrop",
    "load-pretrained-encoder-from": "not there", "encoder-freezing-updates": "not there", "character-embeddings": "not there",
    "no-cross-attention": "not there", "cross-self-attention": "not there", "store-ema": "hadal checkpoint average RUN --last N",
    "ema-decay": "hadal checkpoint average RUN --last N", "stop-min-lr": "not there", "curriculum": "not there",
    "truncate-source": "over-long samples are left out", "add-bos-token": "not there", "quant-noise-pq": "not there",
    "train-subset": "data.train names the corpus", "valid-subset": "data.validation names the corpus",
}
# Nothing has to be done for them: how fairseq logs, starts processes and reads files, and what hadal does anyway.
NEEDLESS = frozenset(
    "task log-format log-interval no-progress-bar num-workers ddp-backend distributed-port distributed-init-method distributed-backend "
    "distributed-no-spawn distributed-rank distributed-num-procs device-id nprocs-per-node bucket-cap-mb find-unused-parameters "
    "fix-batches-to-gpus fast-stat-sync all-gather-list-size empty-cache-freq fp16-init-scale fp16-scale-window fp16-scale-tolerance "
    "min-loss-scale threshold-loss-scale fp16-no-flatten-grads fp16-adam-stats dataset-impl required-batch-size-multiple "
    "required-seq-len-multiple data-buffer-size left-pad-source left-pad-target no-epoch-checkpoints no-last-checkpoints "
    "eval-bleu-print-samples eval-bleu-detok-args eval-tokenized-bleu report-accuracy num-batch-buckets skip-remainder-batch "
    "upsample-primary use-old-adam cpu heartbeat-timeout scoring no-save-optimizer-state write-checkpoints-asynchronously "
    "zero-sharding update-epoch-batch-itr combine-valid-subsets ignore-unused-valid-subsets".split())
SHORT = {"a": "arch", "s": "source-lang", "t": "target-lang", "max-sentences": "batch-size", "relu-dropout": "activation-dropout",
         "total-num-updates": "total-num-update", "max-sentences-valid": "batch-size-valid"}
FLAGS = frozenset(
    "encoder-normalize-before decoder-normalize-before no-decoder-final-norm share-all-embeddings share-decoder-input-output-embed "
    "adaptive-input tie-adaptive-weights tie-adaptive-proj eval-bleu fp16 bf16 memory-efficient-fp16 "
    "maximize-best-checkpoint-metric reset-optimizer reset-lr-scheduler reset-dataloader reset-meters checkpoint-activations "
    "pipeline-model-parallel skip-invalid-size-inputs-valid-test sentence-avg layernorm-embedding encoder-learned-pos "
    "decoder-learned-pos no-token-positional-embeddings no-scale-embedding character-embeddings no-cross-attention "
    "cross-self-attention store-ema truncate-source add-bos-token no-progress-bar distributed-no-spawn find-unused-parameters "
    "fix-batches-to-gpus fast-stat-sync fp16-no-flatten-grads fp16-adam-stats no-epoch-checkpoints no-last-checkpoints "
    "eval-bleu-print-samples eval-tokenized-bleu report-accuracy skip-remainder-batch use-old-adam cpu no-save-optimizer-state "
    "write-checkpoints-asynchronously update-epoch-batch-itr combine-valid-subsets ignore-unused-valid-subsets decoder-langtok".split())


class Conversion:
    """The fields of a config, and what is said about it."""

    def __init__(self, options: Values, gpus: int) -> None:
        self.given = dict(options)
        self.options = {**_architecture(options.get("arch", "")), **options}
        self.gpus = gpus
        self.fields: dict[str, Any] = {}
        self.notes: list[str] = []
        self.missing: list[str] = []

    def get(self, name: str, default: Any = None) -> Any:
        return self.options.get(name, default)

    def number(self, name: str, kind: type, default: Any = None) -> Any:
        """The option's number. Errors: Refusal."""
        value = self.get(name, default)
        if value is None or not isinstance(value, str):
            return value
        try:
            return number(kind, -1e18, 1e18)(value.strip("[]").split(",")[0])
        except argparse.ArgumentTypeError as error:
            raise Refusal(f"--{name}: {error}") from None

    def convert(self) -> None:
        for name, (field, kind) in FIELDS.items():
            value = self.number(name, kind)
            if value is not None and (value > 0 or (value == 0 and name not in ZERO_IS_OFF)):
                self.fields[field] = value
        for part in (self.model, self.optimizer, self.rate, self.batch, self.rest):
            part()
        for name in self.given:
            if name in NOTES:
                self.notes.append(f"--{name}: {NOTES[name]}")

    def model(self) -> None:
        if not self.get("arch"):
            self.missing.append("no --arch is given: the model's shape is hadal's default")
        language_model = self.get("arch", "").startswith("transformer_lm")
        speech = self.get("arch", "").startswith("s2t_")
        for field, name in (("d_model", "embed-dim"), ("d_ff", "ffn-embed-dim"), ("heads", "attention-heads")):
            decoder = self.number(f"decoder-{name}", int)
            encoder = self.number(f"encoder-{name}", int, decoder)
            decoder = encoder if decoder is None else decoder
            if language_model:
                encoder = decoder
            if encoder is not None:
                self.fields[f"model.{field}"] = encoder
            if encoder != decoder:
                self.missing.append(f"--decoder-{name} {decoder}: both sides have the encoder's {encoder}")
        before = [side for side in ("encoder", "decoder") if self.get(f"{side}-normalize-before")]
        if language_model:
            before = ["encoder", "decoder"]
        self.fields["model.residual.method"] = "pre_ln" if len(before) == 2 else "post_ln"
        if len(before) == 1:
            self.fields[f"model.residual.{before[0]}.norm"] = "pre"
        if self.get("no-decoder-final-norm"):
            self.missing.append("--no-decoder-final-norm: a Pre-LN stack always ends with a norm")
        shared = "all" if self.get("share-all-embeddings") else "decoder" if self.get("share-decoder-input-output-embed") else "none"
        if self.get("adaptive-softmax-cutoff"):
            cutoffs = str(self.get("adaptive-softmax-cutoff"))
            self.fields["model.adaptive_cutoffs"] = [int(cutoff) for cutoff in re.findall(r"\d+", cutoffs)]
            shared = "all" if self.get("adaptive-input") else "none"
            if self.get("share-all-embeddings"):
                self.missing.append("--share-all-embeddings beside --adaptive-softmax-cutoff: source and target have a table each")
            tied = self.get("tie-adaptive-weights") and self.get("tie-adaptive-proj")
            if self.get("adaptive-input") and (self.get("adaptive-input-cutoff") != cutoffs or not tied):
                self.missing.append("--adaptive-input: input and softmax share their bands and tables here")
        self.fields["model.sharing"] = shared
        limits = [self.number(name, int) for name in (
            ("max-target-positions", "tokens-per-sample") if language_model else
            ("max-target-positions",) if speech else ("max-source-positions", "max-target-positions"))]
        if any(limits):
            self.fields["model.max_positions"] = max(limit for limit in limits if limit)
        if speech and self.get("max-source-positions"):
            rows = -(-self.number("max-source-positions", int) // 4)
            self.fields["model.max_positions"] = max(rows, self.fields.get("model.max_positions", 0))
            self.notes.append("model.max_positions counts encoder rows, of four frames each")
        if self.get("conv-kernel-sizes", "5,5") != "5,5":
            self.missing.append("--conv-kernel-sizes: the two convolutions have width 5")
        activation = self.get("activation-fn", "relu")
        activations = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "gelu_fast": "gelu_tanh", "swish": "silu"}
        if activation not in activations:
            self.missing.append(f"--activation-fn {activation}: {', '.join(activations)}")
        elif activation != "relu":
            self.fields["model.block.activation"] = activations[activation]
        if self.get("no-scale-embedding"):
            self.fields["model.block.scale_embedding"] = False
        if self.get("layernorm-embedding") and speech:
            self.missing.append("--layernorm-embedding: no norm behind the embedding of speech")
        elif self.get("layernorm-embedding"):
            self.fields["model.block.embedding_norm"] = True
        learned = [side for side in ("encoder", "decoder") if self.get(f"{side}-learned-pos")]
        sides = ["decoder"] if language_model else ["encoder", "decoder"]
        if self.get("no-token-positional-embeddings"):
            self.fields["model.block.positions"] = "none"
        elif learned and (speech or set(learned) != set(sides)):
            self.missing.append(f"--{learned[0]}-learned-pos: both sides learn their positions or none, of text alone")
        elif learned:
            self.fields["model.block.positions"] = "learned"
        if speech:  # fairseq's base: the dropout's
            for name in ("attention", "activation"):
                self.fields.setdefault(f"model.{name}_dropout", self.fields["model.dropout"])

    def optimizer(self) -> None:
        if self.get("optimizer", "adam") != "adam":
            self.missing.append(f"--optimizer {self.get('optimizer')}: only Adam")
        betas = [float(beta) for beta in re.findall(r"[\d.]+(?:e-?\d+)?", str(self.get("adam-betas", "(0.9, 0.999)")))]
        if len(betas) != 2:
            raise Refusal(f"--adam-betas {self.get('adam-betas')}: two numbers are expected, as '(0.9, 0.98)'")
        self.fields["optimizer.beta1"], self.fields["optimizer.beta2"] = betas
        smoothed = self.get("criterion", "cross_entropy").startswith("label_smoothed")
        self.fields["model.label_smoothing"] = self.number("label-smoothing", float, 0.0) if smoothed else 0.0
        if self.get("criterion", "cross_entropy") not in ("cross_entropy", "label_smoothed_cross_entropy", "adaptive_loss"):
            self.missing.append(f"--criterion {self.get('criterion')}: only (label-smoothed) cross-entropy")

    def rate(self) -> None:
        schedule = self.get("lr-scheduler", "fixed")
        names = {"inverse_sqrt": "inverse_sqrt", "polynomial_decay": "polynomial", "cosine": "cosine", "fixed": "constant"}
        peak = self.number("lr", float)
        if peak is not None:
            self.fields["learning_rate.peak"] = peak
        if "," in str(self.get("lr", "")):
            self.missing.append("--lr of each epoch: one peak for the run")
        warmup = self.number("warmup-updates", int, 4000 if schedule == "inverse_sqrt" else 0)
        self.fields["learning_rate.schedule"] = names.get(schedule, "constant")
        if schedule not in names:
            self.missing.append(f"--lr-scheduler {schedule}: {', '.join(names)}; the rate is constant here")
        self.fields["learning_rate.warmup_updates"] = warmup
        if schedule == "inverse_sqrt":
            start = self.number("warmup-init-lr", float, 0.0)
            self.fields["learning_rate.warmup_initial_rate"] = max(0.0, start)
        steps = self.number("total-num-update", int) if schedule == "polynomial_decay" else None
        if schedule == "cosine":
            lowest, start, period = (self.number(name, float, -1.0) for name in ("min-lr", "warmup-init-lr", "lr-period-updates"))
            if "max-lr" in self.given:  # before fairseq 0.10, where --min-lr ends training
                self.fields["learning_rate.peak"], lowest = self.number("max-lr", float), peak or 0.0
            self.fields["learning_rate.end_rate"] = max(0.0, lowest)
            if warmup:
                self.fields["learning_rate.warmup_initial_rate"] = max(0.0, lowest if start < 0 else start)
            steps = int(warmup + period) if period > 0 else None
        else:
            of_cosine = ("min-lr", "max-lr", "lr-period-updates", "t-mult", "lr-shrink")
            self.missing.extend(f"--{name}: of cosine alone" for name in of_cosine if name in self.given)
        if steps and steps != self.fields.setdefault("stop.steps", steps):
            self.missing.append(f"the rate falls until stop.steps, not for {steps} updates")

    def batch(self) -> None:
        tokens = self.number("max-tokens", int)
        if tokens:
            self.fields["batch.source_tokens"] = self.fields["batch.target_tokens"] = tokens
            if self.fields.get("model.encoder_layers") == 0:
                del self.fields["batch.source_tokens"]  # a language model has no source
            self.notes.append("--max-tokens counts padding in fairseq and does not here: a micro-batch holds more sentences")
        if self.get("arch", "").startswith("s2t_") and tokens:
            self.fields["batch.source_tokens"] = max(2, tokens // 4)
            self.notes.append("batch.source_tokens: --max-tokens counts frames, four to an encoder row; check batch.target_tokens")
        nodes = [str(self.get(name, 1)) for name in ("nproc-per-node", "nnodes")]  # torchrun's may also be "gpu" and "1:4"
        launched = math.prod(int(count) for count in nodes if count.isdecimal())
        gpus = self.gpus or self.number("distributed-world-size", int) or launched or 1
        self.fields["batch.micro_batches"] = max(1, gpus * self.number("update-freq", int, 1))
        self.notes.append(f"batch.micro_batches: --update-freq x {gpus} GPU{'s'[:gpus != 1]} (--gpus N says how many the job had)")
        if "," in str(self.get("update-freq", "")):
            self.missing.append("--update-freq of later epochs: batch.micro_batches has one value")

    def rest(self) -> None:
        hours = self.number("stop-time-hours", float)
        if hours:
            self.fields["stop.minutes"] = 60 * hours
        if "checkpoint.every_steps" in self.fields:
            self.fields.setdefault("checkpoint.keep_last", 0)  # --keep-interval-updates -1
        if self.get("eval-bleu"):
            self.fields.update({"decode.beam": 5, "decode.max_length_a": 0, "decode.max_length_b": 200, "decode.length_penalty": 1})
            self.fields["validation.bleu_sentences"] = 1000
            self.notes.append("--eval-bleu: validation.bleu_sentences says of how many sentences")
            if self.get("best-checkpoint-metric") == "bleu":
                self.fields["validation.metric"] = "bleu"
        if self.get("best-checkpoint-metric", "loss") not in ("loss", "nll_loss", "ppl", self.fields.get("validation.metric")):
            self.missing.append(f"--best-checkpoint-metric {self.get('best-checkpoint-metric')}: not measured; validation.metric has nll, bleu, chrf")
        try:
            search = json.loads(self.get("eval-bleu-args") or "{}")
        except ValueError:
            search = {}
            self.missing.append("--eval-bleu-args: not JSON")
        for name, field in (("beam", "decode.beam"), ("max_len_a", "decode.max_length_a"), ("max_len_b", "decode.max_length_b"),
                            ("lenpen", "decode.length_penalty"), ("no_repeat_ngram_size", "decode.no_repeat_ngram")):
            if name in search:
                self.fields[field] = search[name]
        if "validation.every_steps" not in self.fields and "checkpoint.every_steps" in self.fields:
            self.fields["validation.every_steps"] = self.fields["checkpoint.every_steps"]  # fairseq validates when it saves
        for field in ("validation.every_steps", "checkpoint.every_steps"):
            if field not in self.fields:
                self.notes.append(f"fairseq validates and saves at every epoch: set {field}")
        # hadal refuses fields without effect.
        if self.fields.get("learning_rate.schedule") != "polynomial":
            self.fields.pop("learning_rate.power", None)
        if "model.adaptive_cutoffs" not in self.fields:
            self.fields.pop("model.adaptive_dropout", None)
            self.fields.pop("model.adaptive_factor", None)
        if not any(f"stop.{limit}" in self.fields for limit in ("steps", "epochs", "minutes")):
            self.notes.append("no limit is given (--max-update, --max-epoch): set stop.steps")


def _architecture(name: str) -> Values:
    name = ALIASES.get(name, name)
    if not name:
        return {}
    if name not in ARCHITECTURES:
        raise Refusal(f"--arch {name} is not known here; known are {', '.join([*ARCHITECTURES, *ALIASES])}. Give the nearest, and its "
                      "differences as options (--encoder-layers …)")
    base, values = ARCHITECTURES[name]
    return {**_architecture(base), **values}


def parse(command: str) -> tuple[Values, list[str], list[str]]:
    """Returns options, positional words and unknown options. The GPUs of CUDA_VISIBLE_DEVICES are a node's processes."""
    try:
        words = shlex.split(command.replace("\\\n", " "))
    except ValueError as error:
        raise Refusal(f"the command is not whole ({error}); put it in single quotes") from None
    known = {*FIELDS, *OPTIONS_OF_CODE, *NOTES, *NEEDLESS}
    options: dict[str, Any] = {}
    rest: list[str] = []
    unknown: list[str] = []
    gpus, at = 0, 0
    while at < len(words):
        word = words[at]
        at += 1
        if word.startswith("CUDA_VISIBLE_DEVICES="):
            gpus = len([device for device in word.split("=", 1)[1].split(",") if device])
        if word in ("-m", "-u"):  # python's: what follows is a program
            continue
        if not re.match(r"--?[A-Za-z]", word):
            rest.append(word)
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        name = SHORT.get(name, name)
        if name not in known:
            longer = [other for other in known if other.startswith(name)]  # argparse's abbreviations
            if len(longer) == 1:
                name = longer[0]
            else:
                unknown.append(word.partition("=")[0])
        if not equals and name not in FLAGS and at < len(words) and not re.match(r"--?[A-Za-z]", words[at]):
            value, equals = words[at], "="
            at += 1
        options[name] = value if equals else True
    if gpus:
        options.setdefault("nproc-per-node", str(gpus))
    program = re.compile(r"(^|.*[/ ])(fairseq-train|train\.py|fairseq_cli\.train)[)`]*$")
    begin = next((i + 1 for i, word in enumerate(rest) if program.match(word)), 0)
    hydra = [word for word in rest if begin == 0 and re.match(r"\+*[a-z_.]+=|.*(hydra[-_]train(\.py)?|\.ya?ml)$", word)]
    if hydra:
        raise Refusal(f"{hydra[0]}: hydra's overrides and YAML files are not read; give them as options of fairseq-train "
                      "(optimization.max_update=9 is --max-update 9, model._name is --arch)")
    if begin == 0 and "arch" not in options:
        raise Refusal("neither fairseq-train nor --arch is in the command: commands of other programs are not read")
    return options, rest[begin:], unknown


def _text(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return json.dumps(value) if isinstance(value, (str, bool)) else f"{value:g}" if isinstance(value, float) else str(value)


def _print_group(fields: dict[str, Any], indent: str, lines: list[str]) -> None:
    for name, value in fields.items():
        if isinstance(value, dict):
            lines.append(f"{indent}{name} {{")
            _print_group(value, indent + "  ", lines)
            lines.append(f"{indent}}}")
        else:
            lines.append(f"{indent}{name}: {_text(value)}")


def _lines_of(fields: dict[str, Any]) -> list[str]:
    tree: dict[str, Any] = {}
    for path, value in fields.items():
        *groups, name = path.split(".")
        group = tree
        for part in groups:
            group = group.setdefault(part, {})
        group[name] = value
    lines: list[str] = []
    _print_group(tree, "", lines)
    return lines


def _comment(title: str, items: list[str]) -> list[str]:
    lines = [f"# {title}:"] if items else []
    for item in items:
        lines.extend(textwrap.wrap(item, 100, initial_indent="#   - ", subsequent_indent="#     ", break_long_words=False))
    return lines


def architecture_text(name: str) -> str:
    """Returns the file configs/fairseq/NAME.textproto: the model alone, to be laid over other files."""
    conversion = Conversion({"arch": name}, 0)
    conversion.convert()
    del conversion.fields["model.label_smoothing"]  # the criterion's
    fields = {path: value for path, value in conversion.fields.items() if path.startswith("model.")}
    lines = ["# proto-message: hadal.config.RunConfig", f"# fairseq 0.12's --arch {name}; `hadal config from-fairseq` writes whole configs."]
    return "\n".join([*lines, *_comment("not carried over", conversion.missing), *_lines_of(fields)]) + "\n"


def config_of(command: str, gpus: int = 0) -> str:
    """Returns the config as text, with comments. Errors: Refusal for values that are not numbers and architectures not known."""
    options, rest, unknown = parse(command)
    conversion = Conversion(options, gpus)
    conversion.convert()
    prepare = [f"{' '.join(rest[:1])} is binarised: prepare its text with hadal prepare (a dict.txt is taken by --source-vocab, --target-vocab)"]
    return "\n".join([
        "# proto-message: hadal.config.RunConfig", "# Written by `hadal config from-fairseq`.",
        *_comment("not carried over", conversion.missing), *_comment("unknown options", unknown),
        *_comment("to do or to know", [*prepare[:len(rest)], *dict.fromkeys(conversion.notes)]),
        *_lines_of({"data.train": "data/train", "data.validation": "data/valid", **conversion.fields})]) + "\n"


def option_table() -> str:
    """Returns the table of docs/fairseq.md: options with one meaning share a row."""
    rows: dict[str, list[str]] = {}
    meanings = {**{name: f"`{field}`" for name, (field, _) in FIELDS.items()}, **OPTIONS_OF_CODE, **NOTES}
    for name, meaning in meanings.items():
        rows.setdefault(meaning, []).append(f"`--{name}`")
    rows["nothing to do"] = [f"`--{name}`" for name in sorted(NEEDLESS)]
    return "\n".join(["| fairseq-train | here |", "|---|---|", *(f"| {', '.join(names)} | {meaning} |" for meaning, names in rows.items())]) + "\n"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="+", metavar="COMMAND", help="The command of fairseq-train, in single quotes")
    parser.add_argument("--gpus", type=number(int, 1, 65536), default=0,
                        help="GPUs of that job (default: as CUDA_VISIBLE_DEVICES in the command says, or 1)")


def run(arguments: argparse.Namespace) -> None:
    print(config_of(" ".join(arguments.command), arguments.gpus), end="")
