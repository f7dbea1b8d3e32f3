"""Every model that hadal trains, as a torch module: an encoder-decoder Transformer, a decoder-only language model, or an encoder alone.

tests/parity compares hadal's gradients with it. Written from the formulas of the papers and fairseq's conventions, sharing no code
with hadal. Plain on purpose: parameters have fairseq's names, sentences are a padded rectangle with masks, every sublayer goes
through one function. Any dtype. There is no dropout.

    every sublayer   x' = post(r·x + b·F(pre(x)))      pre, post ∈ {identity, norm}; F may hold norms and scales of its own
    block            norm, activation, gate, biases, positions and heads are settings["block"]'s; without it those of Vaswani et al. 2017
    embedding        x0 = sqrt(d)·E[token] + PE[position], or without that factor: fixed ones counted from 2, learned ones from 0, or none
    adaptive         E[token] = E_c[token − first_c]·P_cᵀ, c the token's band; softmax: log_softmax below
    embedding norm   x0 = norm(of that), with settings["block"]["embedding_norm"]
    encoder alone    logits = norm(act(x·Wᵀ + b))·Eᵀ + c of masked tokens ("encoder.lm_head")
    loss             Σ over target tokens of (1 − eps − eps_v)·nll + eps_v·Σ_v(−log p_v), eps_v = eps / (V − 1)

To add a residual method: one entry in METHODS of tests/parity/methods.py; if it has parameters of its own, use them in Model.sublayer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from hadal_torch.plain import DEPTH_RULES, PlainModel, block_of, branch_growth, position_table

Map = Callable[[Tensor], Tensor]
Pairs = Sequence["tuple[Any, list[int]]"]  # source (of speech frames [n, features]) and target
PAD, EOS = 1, 2
ACTIVATIONS = {"relu": torch.relu, "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu}


@dataclass(frozen=True)
class Residual:
    """How one stack joins a sublayer to the residual stream."""

    norm: str = "post"  # "post", "pre" (and one behind the stack) or "none"
    post_norm_share: float = 0.0  # with "pre": the lowest layers of the stack that are "post", rounded down
    residual_gain: float = 1.0  # r
    branch_gain: float = 1.0  # b
    learned_gain: bool = False  # b has the factor "…layers.I.resweight"
    inner_norm: bool = False  # in front of out_proj (self-attention)
    hidden_norm: bool = False  # in front of fc2
    head_scale: bool = False  # self-attention's heads times "…self_attn.head_scale"
    skip_gain: float = 0.0  # a of the layer's last sum c·(r·x + b·F) + a·(the layer's input)
    layer_gain: float = 1.0  # c
    second_gain: float = 0.0  # s of a second stream d, s·x at first, d + s·b·F(x) behind each sublayer; the stack ends with x + LN(d)
    blocks: int = 0  # of the stack, whose sublayers read a softmax over their sums ("…_res_proj", "…_res_norm"); 0: none
    block_sublayers: int = 0  # of a block, in place of that number
    delta: bool = False  # … beside the stream
    streams: int = 1  # n residual streams that sublayers read and write by maps, "….streams.{weight,gates,bias}"
    permutations: bool = False  # their map from streams to streams is a mean of permutations, else Sinkhorn's
    output_norm: bool = False  # behind self-attention's out_proj
    branch_norms: "tuple[bool, bool]" = (False, False)  # in front of every branch, and behind it
    norm_gain: "Callable[[int, int], float] | None" = None  # k of F(k·LN(x)), of a layer from 1 and the number of layers
    omega: bool = False  # r has the factor "….omega", a vector
    combines: bool = False  # a layer reads "….dlcl.weight"'s row of all outputs in front of it
    fixup: bool = False  # learned scalars: "….{shift,scale}", "…ffn.{shift1,shift2,shift3,scale}" and behind the stacks


def residual_of(stack: dict[str, Any], growth: float = 1.0) -> Residual:
    """The Residual of one stack of a plain model's settings; `growth`: branch_growth at the model's update. Settings of older
    checkpoints lack the fields that came later."""
    return Residual(
        norm=stack["norm"], post_norm_share=stack.get("post_norm_share", 0), residual_gain=stack["residual_gain"], branch_gain=stack["branch_gain"] * growth,
        learned_gain=stack["learned_branch_gain"], inner_norm=stack["attention_inner_norm"], hidden_norm=stack["ffn_inner_norm"],
        head_scale=stack["head_scale"], skip_gain=stack["skip_gain"], layer_gain=stack["layer_gain"],
        second_gain=stack.get("second_stream_gain", 0), streams=stack.get("residual_streams", 1),
        permutations=stack.get("residual_mixing") == "permutations", output_norm=stack["attention_output_norm"],
        omega=stack.get("omega", "none") != "none",
        blocks=stack.get("attention_residual_blocks", 0), block_sublayers=stack.get("attention_residual_block_sublayers", 0),
        delta=stack.get("attention_residual_delta", False), combines=stack.get("combine_layers", False), fixup=stack.get("fixup_scalars", False),
        branch_norms=(stack.get("branch_input_norm", False), stack.get("branch_output_norm", False)),
        norm_gain=DEPTH_RULES[stack.get("norm_gain", "flat")])


def pad(sentences: Sequence[Sequence[int]], padding: int = PAD) -> Tensor:
    """[sentences, longest] int64, `padding` (Model.padding) behind each sentence's end."""
    tokens = np.full((len(sentences), max(map(len, sentences))), padding, np.int64)
    for row, sentence in zip(tokens, sentences):
        row[: len(sentence)] = sentence
    return torch.from_numpy(tokens)


def rms_normed(x: Tensor, epsilon: float) -> Tensor:
    """x over the root of its mean square plus ε, in fp32 or wider: squares of float16 end at 65,504."""
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(x.dtype)


class Model(torch.nn.Module):  # type: ignore[misc]  # torch is not read (pyproject.toml)
    """`settings`: the sizes (model of NAME.json); `weights`: name → array, shared matrices once, under their first name;
    `residuals`: of the encoder and of the decoder, None without one. state_dict() has the names of `weights`."""

    def __init__(self, settings: dict[str, Any], weights: dict[str, np.ndarray[Any, Any]], residuals: Sequence[Residual | None],
                 dtype: torch.dtype = torch.float32):
        super().__init__()
        self.settings = settings
        self.heads = self.settings["heads"]
        self.block = block_of(settings)
        self.kv_heads = self.block["kv_heads"]
        self.encoder_residual, self.decoder_residual = (residual or Residual() for residual in residuals)
        # A dict that a user sets: name of a sublayer ("encoder.layers.0.self_attn", "….ffn") → x' [B, T, d].
        self.outputs: dict[str, Tensor] | None = None
        self.names = set(weights)
        self.second: Tensor = 0.0  # stream, with a second one
        for name, value in weights.items():
            *path, last = name.split(".")
            module: torch.nn.Module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, torch.nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(last, torch.nn.Parameter(torch.tensor(value.astype(np.float64), dtype=dtype)))
        self.padding = PAD if settings.get("reserved_ids", True) else -1  # each id of a tokenizer.json may be a word
        self.has_encoder, self.has_decoder = self.settings["encoder_layers"] > 0, self.settings["decoder_layers"] > 0
        self.source_name = "encoder.embed_tokens.weight"
        self.reads_speech = self.settings.get("frame_width", 0) > 0
        shares_source = self.has_encoder and not self.reads_speech and self.settings["sharing"] == "all"
        self.target_name = self.source_name if shares_source or not self.has_decoder else "decoder.embed_tokens.weight"
        own = "decoder.output_projection.weight" if self.has_decoder else "encoder.lm_head.weight"
        self.output_name = own if self.settings["sharing"] == "none" else self.target_name
        self.cutoffs = self.settings.get("adaptive_cutoffs", [])  # settings of older checkpoints lack them
        self.ties_bands = self.settings["sharing"] != "none"

    @classmethod
    def of(cls, plain: PlainModel, dtype: torch.dtype = torch.float32) -> Model:
        """The model that `hadal checkpoint export` wrote (read_plain), with its gains at that update."""
        growth = branch_growth(plain.model, plain.update)
        residuals = [residual_of(plain.model[s], growth) if s in plain.stacks() else None for s in ("encoder", "decoder")]
        return cls(plain.model, plain.weights, residuals, dtype)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def linear(self, x: Tensor, name: str) -> Tensor:
        bias = self.get_parameter(name + ".bias") if name + ".bias" in self.names else None
        return F.linear(x, self.get_parameter(name + ".weight"), bias)

    def shifted(self, x: Tensor, residual: Residual, name: str) -> Tensor:
        return x - self.get_parameter(name) if residual.fixup else x

    def norm(self, x: Tensor, name: str) -> Tensor:
        weight, epsilon = self.get_parameter(name + ".weight"), self.block["norm_epsilon"]
        bias = self.get_parameter(name + ".bias") if name + ".bias" in self.names else None
        if self.block["norm"] == "layer":
            return F.layer_norm(x, x.shape[-1:], weight, bias, epsilon)
        y = weight * rms_normed(x, epsilon)
        return y if bias is None else y + bias

    def attention(self, x: Tensor, keys: Tensor, mask: Tensor, name: str, context_map: Map = lambda c: c, turn: Map = lambda c: c) -> Tensor:
        """softmax(turn(q) turn(k)ᵀ / sqrt(D) + mask) v, heads apart; context_map [B, h, T, D] → the same, heads side by side, out_proj.
        x [B, T, d], keys [B, S, d], mask [B, 1, T or 1, S]. Groups of heads share keys and values."""

        def split(y: Tensor, heads: int) -> Tensor:
            return y.view(*y.shape[:2], heads, -1).transpose(1, 2)  # [B, h, length, D]

        def shared(y: Tensor) -> Tensor:
            return split(y, self.kv_heads).repeat_interleave(self.heads // self.kv_heads, 1, output_size=self.heads)

        def normed(y: Tensor, norm: str) -> Tensor:
            return self.norm(y, f"{name}.{norm}") if self.block["query_key_norm"] else y

        q = turn(normed(split(self.linear(x, name + ".q_proj"), self.heads), "q_norm"))
        k = turn(normed(shared(self.linear(keys, name + ".k_proj")), "k_norm"))
        v = shared(self.linear(keys, name + ".v_proj"))
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        output = torch.softmax(scores.masked_fill(mask, -math.inf), -1) @ v
        return self.linear(context_map(output).transpose(1, 2).flatten(2), name + ".out_proj")

    def is_local(self, layer: str) -> bool:
        """Whether the layer "decoder.layers.3" has the window."""
        index, every = int(layer.split(".")[2]), self.block["global_every"]
        return bool(self.block["window"] > 0 and (every == 0 or index % every > 0))

    def within(self, mask: Tensor, length: int, layer: str) -> Tensor:
        """`mask` and, in a local layer, what lies outside a query's window: window / 2 on each side in an encoder, else the last ones.
        Padding sees itself, so that no softmax is empty."""
        if not self.is_local(layer):
            return mask
        places = torch.arange(length, device=mask.device)
        behind, window = places[:, None] - places, self.block["window"]
        outside = behind.abs() > window // 2 if layer.startswith("encoder") else behind >= window
        return (mask | outside) & (behind != 0)

    def turned(self, x: Tensor, layer: str) -> Tensor:
        """[B, h, T, D] with rotary positions, half-split as Llama's: the first columns of a head turn in pairs (c, c + n/2)."""
        if self.block["positions"] != "rotary":
            return x
        n = int(self.block["rotary_share"] * x.shape[-1] + 1e-9)
        has_own = self.is_local(layer) and self.block["rotary_local_theta"] > 0
        theta = self.block["rotary_local_theta" if has_own else "rotary_theta"]
        frequencies = theta ** -(torch.arange(0, n, 2, dtype=torch.float64) / n)
        if not has_own:  # Llama 3.1's scaling
            turns = self.block["rotary_scaling_positions"] * frequencies / (2 * math.pi)
            share = ((turns - 1) / 3).clamp(0, 1)
            frequencies = frequencies * (share + (1 - share) / self.block["rotary_scaling"])
        angles = torch.outer(torch.arange(x.shape[2], dtype=torch.float64), frequencies)
        cos, sin = angles.cos().to(x), angles.sin().to(x)
        low, high, rest = x.split([n // 2, n // 2, x.shape[-1] - n], -1)
        return torch.cat([low * cos - high * sin, high * cos + low * sin, rest], -1)

    def self_attention(self, x: Tensor, mask: Tensor, layer: str, residual: Residual) -> Tensor:
        """With what some methods put around out_proj."""
        name = layer + ".self_attn"

        def context_map(output: Tensor) -> Tensor:
            if self.block["attention_gate"]:
                gate = torch.sigmoid(self.linear(x, name + ".gate_proj"))
                output = output * gate.view(*gate.shape[:2], self.heads, -1).transpose(1, 2)
            if residual.head_scale:
                output = output * self.get_parameter(name + ".head_scale")[None, :, None, None]
            if residual.inner_norm:  # over all heads' columns together
                whole = output.transpose(1, 2)
                output = self.norm(whole.flatten(2), name + ".inner_attn_ln").view(whole.shape).transpose(1, 2)
            return output

        x = self.shifted(x, residual, name + ".shift")
        y = self.attention(x, x, self.within(mask, x.shape[1], layer), name, context_map, lambda c: self.turned(c, layer))
        return self.norm(y, layer + ".attn_ln") if residual.output_norm and not residual.branch_norms[1] else y

    def cross_attention(self, x: Tensor, encoder_output: Tensor, mask: Tensor, layer: str, residual: Residual) -> Tensor:
        name = layer + ".encoder_attn"
        return self.attention(self.shifted(x, residual, name + ".shift"), encoder_output, mask, name)

    def feed_forward(self, x: Tensor, layer: str, residual: Residual) -> Tensor:
        x = self.shifted(x, residual, layer + ".ffn.shift1")
        activated = ACTIVATIONS[self.block["activation"]](
            self.shifted(self.linear(x, layer + ".fc1"), residual, layer + ".ffn.shift2"))
        if self.block["gated"]:
            activated = activated * self.linear(x, layer + ".fc3")
        hidden = self.shifted(activated, residual, layer + ".ffn.shift3")
        if residual.hidden_norm:
            hidden = self.norm(hidden, layer + ".ffn_layernorm")
        return self.linear(hidden, layer + ".fc2")

    MODULES = {"self_attn_layer_norm": "self_attn", "encoder_attn_layer_norm": "encoder_attn", "final_layer_norm": "ffn"}
    OUTPUT_NORMS = {"self_attn": "attn_ln", "encoder_attn": "encoder_attn_ln", "ffn": "ffn_ln"}

    def sublayer(self, x: Tensor, residual: Residual, layer: str, norm: str, branch: Map, layer_input: Tensor | None = None) -> Tensor:
        """x' = post(r·x + b·F(pre(x))): every method; with `layer_input` the last of a layer."""
        norm_name = f"{layer}.{norm}"
        module, (input_norm, output_norm) = self.MODULES[norm], residual.branch_norms
        stack, _, index = layer.split(".")
        layers = self.settings[f"{stack}_layers"]
        placement = "post" if int(index) < int(residual.post_norm_share * layers + 1e-9) else residual.norm
        if module == "self_attn" and index == "0" and not self.block["first_norm"]:
            placement = "none"
        if self.sources is not None:
            stream = x
            x = self.of_sources(x, residual, f"{layer}.{module}_res")
        if residual.streams > 1:
            streams = x
            read_map, write_map, residual_map = self.stream_maps(streams, f"{layer}.{module}.streams", residual.permutations)
            x = (read_map.unsqueeze(-1) * streams).sum(-2)
        read = self.norm(x, norm_name) if placement == "pre" else x
        if residual.norm_gain and placement == "pre":
            read = read * residual.norm_gain(int(index) + 1, layers)
        y = branch(self.norm(read, f"{layer}.{module}_input_ln") if input_norm else read)
        if output_norm:
            y = self.norm(y, f"{layer}.{self.OUTPUT_NORMS[module]}")
        branch_gain = residual.branch_gain
        if residual.learned_gain:
            branch_gain = branch_gain * self.get_parameter(layer + ".resweight")
        if residual.fixup:
            branch_gain = branch_gain * self.get_parameter(f"{layer}.{module}.scale")
        residual_gain = residual.residual_gain
        if residual.omega:
            residual_gain = residual_gain * self.get_parameter(f"{layer}.{module}.omega")
        total = residual_gain * x + branch_gain * y
        layer_gain = residual.layer_gain if layer_input is not None else 1.0
        if residual.second_gain:
            self.second = self.second + residual.second_gain * layer_gain * branch_gain * y
        total = layer_gain * total
        if layer_input is not None and residual.skip_gain:
            total = total + residual.skip_gain * layer_input
        output = self.norm(total, norm_name) if placement == "post" else total
        if residual.streams > 1:
            output = residual_map @ streams + write_map.unsqueeze(-1) * (branch_gain * y).unsqueeze(-2)
        if self.sources is not None:
            self.add_to_block(branch_gain * y)
            finished = self.open_sum is None
            output = stream + branch_gain * y if residual.delta else self.sources[-1] if finished else self.open_sum
        if self.outputs is not None:
            self.outputs[f"{layer}.{module}"] = output
        return output

    def of_sources(self, x: Tensor, residual: Residual, name: str) -> Tensor:
        """What a sublayer reads of the embedding, the finished blocks' sums and the open one's, or what is behind the stack, by the
        query `name`_proj (Attention Residuals, arXiv 2603.15031); in the delta form x plus a softmax over the finished ones."""
        if name + "_proj.weight" not in self.names:
            return x
        has_open = self.open_sum is not None and not residual.delta
        values = torch.stack((self.sources or []) + [self.open_sum] * has_open)
        keys = rms_normed(values, self.block["norm_epsilon"]) * self.get_parameter(name + "_norm.weight")
        weights = torch.softmax(keys @ self.get_parameter(name + "_proj.weight"), 0).unsqueeze(-1)
        read = (weights * values).sum(0)
        return x + read if residual.delta else read

    def begin_blocks(self, x: Tensor, residual: Residual, sublayers: int) -> None:
        self.sources = [x] if residual.blocks or residual.block_sublayers else None
        self.open_sum, self.open_sublayers, self.sublayers_left = None, 0, sublayers
        self.block_length = residual.block_sublayers or math.ceil(sublayers / max(residual.blocks, 1))

    def add_to_block(self, y: Tensor) -> None:
        self.open_sum = y if self.open_sum is None else self.open_sum + y
        self.open_sublayers, self.sublayers_left = self.open_sublayers + 1, self.sublayers_left - 1
        if self.sources is not None and (self.open_sublayers == self.block_length or self.sublayers_left == 0):
            self.sources.append(self.open_sum)
            self.open_sum, self.open_sublayers = None, 0

    def stream_maps(self, x: Tensor, name: str, permutations: bool) -> tuple[Tensor, Tensor, Tensor]:
        """H_pre [..., n], H_post [..., n] and H_res [..., n, n] of streams [..., n, d] (mHC, arXiv 2512.24880; mHC-lite, 2601.05732)."""
        n = x.shape[-2]
        flat = rms_normed(x.flatten(-2), 1e-6)
        bias = self.get_parameter(name + ".bias")
        gates = torch.cat([gate.expand(times) for gate, times in zip(self.get_parameter(name + ".gates"), (n, n, len(bias) - 2 * n))])
        logits = gates * (flat @ self.get_parameter(name + ".weight").T) + bias
        if permutations:
            matrices = torch.eye(n)[torch.tensor(list(itertools.permutations(range(n))))].to(x)
            weights = (logits[..., 2 * n :] + torch.tensor([8.0] + [0.0] * (len(matrices) - 1)).to(x)).softmax(-1)
            residual_map = (weights @ matrices.flatten(1)).unflatten(-1, (n, n))
        else:
            residual_map = logits[..., 2 * n :].unflatten(-1, (n, n)).exp()
            for _ in range(20):
                residual_map = residual_map / residual_map.sum(-2, keepdim=True)
                residual_map = residual_map / residual_map.sum(-1, keepdim=True)
        return logits[..., :n].sigmoid(), 2 * logits[..., n : 2 * n].sigmoid(), residual_map

    @staticmethod
    def opened(x: Tensor, residual: Residual) -> Tensor:
        """What the stack's first sublayer reads of [B, T, d]: [B, T, n, d] if there are n > 1 streams."""
        return x if residual.streams == 1 else x.unsqueeze(-2).expand(-1, -1, residual.streams, -1)

    def closed(self, x: Tensor, residual: Residual, stack: str) -> Tensor:
        """The stack's output of its last sublayer's."""
        name = f"{stack}.layer_norm"
        if self.sources is not None:
            x = self.of_sources(x, residual, f"{stack}.output_attn_res")
        if residual.streams > 1:
            x = x.mean(-2)
        if residual.second_gain:
            return x + self.norm(self.second, name)
        return self.norm(x, name) if name + ".weight" in self.names else x

    def combination(self, outputs: list[Tensor], residual: Residual, stack: str) -> Tensor:
        """What the next layer reads, or what follows the stack, of the embedding and all layers' outputs so far."""
        if not residual.combines:
            return outputs[-1]
        row, name = len(outputs) - 1, f"{stack}.dlcl.layer_norms"
        terms = outputs
        if residual.norm == "pre":
            terms = outputs[:1] + [self.norm(y, f"{name}.{k}") for k, y in enumerate(outputs[1:], 1)]
        weights = self.get_parameter(f"{stack}.dlcl.weight")[row, : row + 1]
        total = (weights.view(-1, 1, 1, 1) * torch.stack(terms)).sum(0)
        return self.norm(total, f"{name}.{row}") if residual.norm == "post" and row > 0 else total

    def lookup(self, tokens: Tensor, table: str) -> Tensor:
        """E[token]; `table` "….embed_tokens.weight" stands for "….embed_tokens.embeddings.*" where these are adaptive."""
        if table in self.names:
            return F.embedding(tokens.clamp(min=0), self.get_parameter(table))
        bands = table.removesuffix("weight") + "embeddings."
        vectors = torch.zeros(*tokens.shape, self.settings["d_model"], dtype=self.dtype, device=self.device)
        for band, first in enumerate([0, *self.cutoffs]):
            words = self.get_parameter(f"{bands}{band}.0.weight")
            here = (tokens >= first) & (tokens < first + len(words))
            vectors[here] = F.linear(words[tokens[here] - first], self.get_parameter(f"{bands}{band}.1.weight"))
        return vectors

    def embed(self, tokens: Tensor, table: str, stack: str) -> Tensor:
        return self.placed(self.lookup(tokens, table), stack)

    def logits(self, x: Tensor) -> Tensor:
        """[…, V] of x […, d], without an adaptive softmax."""
        if self.has_decoder:
            return x @ self.get_parameter(self.output_name).T
        name = "encoder.lm_head"
        x = self.norm(ACTIVATIONS[self.block["activation"]](self.linear(x, name + ".dense")), name + ".layer_norm")
        return F.linear(x, self.get_parameter(self.output_name), self.get_parameter(name + ".bias"))

    def log_softmax(self, x: Tensor) -> Tensor:
        """[…, V] of x […, d]. Adaptive: a head of the first band's words and a class for each other band, whose words share the
        class's probability (Grave et al. 2017); tied, E_c and P_c are the embedding's (Baevski and Auli 2019)."""
        if not self.cutoffs:
            return torch.log_softmax(self.logits(x), -1)
        if self.ties_bands:
            bands = self.target_name.removesuffix("weight") + "embeddings."
            classes = self.get_parameter("decoder.adaptive_softmax.head.class_proj.weight")
            head = torch.cat([self.get_parameter(bands + "0.0.weight"), classes])
            tails = [(self.get_parameter(f"{bands}{c}.1.weight").T, self.get_parameter(f"{bands}{c}.0.weight"))
                     for c in range(1, len(self.cutoffs) + 1)]
        else:
            tail = "decoder.adaptive_softmax.tail."
            head = self.get_parameter("decoder.adaptive_softmax.head.weight")
            tails = [(self.get_parameter(f"{tail}{c}.0.weight"), self.get_parameter(f"{tail}{c}.2.weight"))
                     for c in range(len(self.cutoffs))]
        of_head = torch.log_softmax(x @ head.T, -1)
        words = self.cutoffs[0]
        parts = [of_head[..., :words]]
        for c, (projection, table) in enumerate(tails):
            parts.append(of_head[..., words + c : words + c + 1] + torch.log_softmax(x @ projection.T @ table.T, -1))
        return torch.cat(parts, -1)

    def placed(self, x: Tensor, stack: str) -> Tensor:
        d, positions = self.settings["d_model"], self.block["positions"]
        if self.block["scale_embedding"]:
            x = math.sqrt(d) * x
        if positions == "learned":
            x = x + self.get_parameter(stack + ".embed_positions.weight")[: x.shape[1]]
        elif positions == "sinusoidal":
            x = x + torch.from_numpy(position_table(x.shape[1], d)).to(x)
        return self.norm(x, stack + ".layernorm_embedding") if self.block["embedding_norm"] else x

    def subsample(self, frames: Tensor) -> Tensor:
        """[rows, d] of an utterance's frames [n, features]: fairseq's Conv1dSubsampler."""
        x = frames.T[None]
        for i in range(2):
            name = f"encoder.subsample.conv_layers.{i}."
            x = F.conv1d(x, self.get_parameter(name + "weight"), self.get_parameter(name + "bias"), stride=2, padding=2)
            x = F.glu(x, dim=1)
        return x[0].T

    def subsampled(self, utterances: Sequence[Any]) -> tuple[Tensor, Tensor]:
        """[B, longest, d], zeros behind each utterance's end, and the tokens that mask these: EOS, then padding. Utterances go through
        the convolutions alone, so that none depends on another's padding."""
        rows = [self.subsample(torch.tensor(u, dtype=self.dtype, device=self.device)) for u in utterances]
        return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True), pad([[EOS] * len(r) for r in rows], self.padding).to(self.device)

    def encode(self, x: Tensor, source: Tensor, source_mask: Tensor) -> Tensor:
        """`x` [B, S, d]: the source with positions; `source` [B, S]: padding where it has ended."""
        residual = self.encoder_residual
        self.second = residual.second_gain * x
        self.begin_blocks(x, residual, 2 * self.settings["encoder_layers"])
        outputs = [self.opened(x, residual)]
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
            return self.get_parameter("encoder.scale") * (x - self.get_parameter("encoder.shift"))
        return self.closed(x, residual, "encoder")

    def decode(self, target_input: Tensor, encoder_output: Tensor | None, source_mask: Tensor | None) -> Tensor:
        x, residual = self.embed(target_input, self.target_name, "decoder"), self.decoder_residual
        self.second = residual.second_gain * x
        length = target_input.shape[1]
        future = torch.triu(torch.ones(length, length, dtype=torch.bool, device=x.device), 1)[None, None]
        self.begin_blocks(x, residual, (3 if self.has_encoder else 2) * self.settings["decoder_layers"])
        outputs = [self.opened(x, residual)]
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
        return self.closed(x, residual, "decoder")

    def outputs_of(self, source: Any, target_input: Tensor) -> Tensor:
        """The decoder's [B, T, d] of padded tokens [B, S] and [B, T]; `source` None: of the target alone; of speech a list of frames
        [n, features]. Of an encoder alone the encoder's [B, S, d]; it does not read `target_input`."""
        # A target row never looks past itself, so that padding behind a target needs no mask.
        output = source_mask = None
        if source is not None:
            if self.reads_speech:
                x, source = self.subsampled(source)
                x = self.placed(x, "encoder")
            else:
                x = self.embed(source, self.source_name, "encoder")
            source_mask = (source == self.padding)[:, None, None, :]
            output = self.encode(x, source, source_mask)
        if self.has_decoder:
            output = self.decode(target_input, output, source_mask)
        self.second, self.sources, self.open_sum = 0.0, None, None  # with parts of a graph the model could not be copied
        return output

    def log_probabilities(self, source: Any, target_input: Tensor) -> Tensor:
        """[B, T, V]; arguments of outputs_of."""
        return self.log_softmax(self.outputs_of(source, target_input))

    def loss(self, sentences: Pairs) -> tuple[Tensor, Tensor]:
        """Mean smoothed loss over the target tokens of [(source, target), …], both with </s>; each target row's nll. Of an encoder
        alone a target is as long as its source: the tokens that masks hide, padding elsewhere."""
        sources = [s for s, _ in sentences]
        source = None if not self.has_encoder else sources if self.reads_speech else pad(sources, self.padding).to(self.device)
        target = pad([t for _, t in sentences], self.padding).to(self.device)
        target_input = pad([[self.settings.get("start_token", EOS)] + t[:-1] for _, t in sentences], self.padding).to(self.device)
        x, targets = self.outputs_of(source, target_input)[target != self.padding], target[target != self.padding]
        log_p = self.log_softmax(x)  # [target tokens, V]
        nll = -log_p.gather(1, targets[:, None])[:, 0]
        eps = self.settings["label_smoothing"]
        eps_v = eps / (log_p.shape[1] - 1)
        smoothed = (1 - eps - eps_v) * nll - eps_v * log_p.sum(1)
        z_loss = self.settings.get("z_loss", 0.0)
        if z_loss:
            smoothed = smoothed + z_loss * torch.logsumexp(self.logits(x), 1) ** 2
        return smoothed.sum() / len(nll), nll
