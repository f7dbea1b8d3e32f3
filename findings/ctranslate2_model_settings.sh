#!/usr/bin/env bash
# CTranslate2 4.8.5: its converter takes models of transformers whose settings it, or the program, then ignores, without a message. Llama 3.1's
# scaling of positions has no effect: the log-probabilities are those of the model without it. hidden_act of Llama and Qwen3 is always silu.
# GPT-2's layer_norm_epsilon, scale_attn_weights and scale_attn_by_inverse_layer_idx are always the defaults.
. "$(dirname "$0")/support.sh"
packages ctranslate2==4.8.5 transformers==5.24.0 torch==2.15.0
check "$python" - "$folder" <<'PYTHON'
import sys

import ctranslate2
import numpy as np
import tokenizers
import torch
import transformers
from ctranslate2.converters import TransformersConverter

tokens = ["<unk>", "<s>", "</s>", *(f"word{i}" for i in range(60))]
text = [1, *np.random.default_rng(0).integers(3, len(tokens), 2000).tolist()]
llama = {"vocab_size": len(tokens), "hidden_size": 128, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 64,
         "num_key_value_heads": 1, "initializer_range": 0.2, "max_position_embeddings": 131072}
gpt2 = {"vocab_size": len(tokens), "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "initializer_range": 0.3}
plain = {"rope_type": "default", "rope_theta": 500000.0}
scaled = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}  # as in Llama 3.1
kinds = {"Llama": transformers.LlamaForCausalLM, "Qwen3": transformers.Qwen3ForCausalLM, "GPT-2": transformers.GPT2LMHeadModel}
cases = [  # model, settings, and others if the converted model is that of the others
    ("Llama", {"rope_parameters": plain, "attention_bias": True, "mlp_bias": True}, None),
    ("Llama", {"rope_parameters": scaled}, {"rope_parameters": plain}), ("Llama", {"hidden_act": "gelu"}, {"hidden_act": "silu"}),
    ("Qwen3", {"rope_parameters": plain}, None), ("Qwen3", {"hidden_act": "relu"}, {"hidden_act": "silu"}),
    ("GPT-2", {"activation_function": "relu"}, None), ("GPT-2", {"layer_norm_epsilon": 0.1}, {"layer_norm_epsilon": 1e-5}),
    ("GPT-2", {"scale_attn_weights": False}, {"scale_attn_weights": True}),
    ("GPT-2", {"scale_attn_by_inverse_layer_idx": True}, {"scale_attn_by_inverse_layer_idx": False})]


def make(name, settings):
    torch.manual_seed(0)
    return kinds[name](kinds[name].config_class(**{**(gpt2 if name == "GPT-2" else llama), **settings})).eval()


def log_probabilities(model, ids):
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), -1)
    return rows[range(len(ids) - 1), ids[1:]].numpy()


def converted(model, ids, folder):
    model.save_pretrained(f"{folder}/source")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>",
                                         eos_token="</s>").save_pretrained(f"{folder}/source")
    TransformersConverter(f"{folder}/source").convert(f"{folder}/converted")
    generator = ctranslate2.Generator(f"{folder}/converted")
    return np.array(generator.score_batch([[tokens[i] for i in ids]], max_input_length=0)[0].log_probs)


print(f"CTranslate2 {ctranslate2.__version__}, transformers {transformers.__version__}; expected: the same log-probabilities, or a refusal")
as_seen = True
for number, (name, settings, others) in enumerate(cases):
    ids = text[:60] if name == "GPT-2" else text
    wanted = log_probabilities(make(name, settings), ids)
    found = converted(make(name, settings), ids, f"{sys.argv[1]}/{number}")
    differ = np.abs(found - wanted).max()
    print(f"{name} {settings}: nll {-wanted.mean():.4f}, converted {-found.mean():.4f}, largest difference of a token {differ:.1e}", end="")
    if others is None:
        as_seen &= bool(differ < 1e-2)
        print()
        continue
    rest = np.abs(found - log_probabilities(make(name, others), ids)).max()
    as_seen &= bool(differ > 0.1 and rest < 1e-2)
    print(f"; from the model with {others} {rest:.1e}")
sys.exit(not as_seen)
PYTHON
