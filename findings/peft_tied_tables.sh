#!/usr/bin/env bash
# PEFT 0.21.2: LoRA on the token table of a model whose output table is tied to it. ensure_weight_tying=True trains one adapter for both, and
# merge_and_unload then adds it to the one table twice. Tied tables are known by the names embed_tokens and lm_head: of GPT-2 (wte) and BERT
# (word_embeddings) the output keeps the old table until the merge, with ensure_weight_tying as without, and no merge warns. The merged
# model of each gives other logits than the model that was trained.
. "$(dirname "$0")/support.sh"
packages peft==0.21.2 transformers==5.24.0 torch==2.15.0
check "$python" - <<'PYTHON'
import sys
import warnings

import peft
import torch
import transformers

transformers.logging.set_verbosity_error()
common = {"vocab_size": 64, "initializer_range": 0.3, "tie_word_embeddings": True}
models = {
    "embed_tokens": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, **common)),
    "wte": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(n_embd=32, n_layer=1, n_head=4, n_positions=32, **common)),
    "word_embeddings": lambda: transformers.BertForMaskedLM(transformers.BertConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4, **common))}
print(f"PEFT {peft.__version__}, transformers {transformers.__version__}: LoRA of rank 4 on a tied token table; expected: merged, the same logits, "
      "or a warning")
seen, ids = {}, torch.arange(4, 14)[None]
for table, make in models.items():
    for tied in (False, True):
        torch.manual_seed(0)
        model = make().eval()
        before = model.get_input_embeddings().weight.detach().clone()
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            adapted = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=[table], ensure_weight_tying=tied)).eval()
            for parameter in adapted.parameters():
                if parameter.requires_grad:  # in place of training
                    torch.nn.init.normal_(parameter, std=0.2)
            change = adapted.get_input_embeddings().get_delta_weight("default").clone()
            trained = adapted(ids).logits
            start = len(caught)
            merged = adapted.merge_and_unload().eval()
            warned = any("tie_word_embeddings" in str(warning.message) for warning in caught[start:])
            differ = (merged(ids).logits - trained).abs().max().item()
            times = ((merged.get_input_embeddings().weight - before).norm() / change.norm()).item()
        seen[table, tied] = differ > 0.1, round(times, 3), warned
        print(f"{type(model).__name__}, {table}, ensure_weight_tying={tied}: merged, logits differ by {differ:.2f}; the adapter was added {times:.3f} "
              f"times; {'a warning that tied tables may lead to complications' if warned else 'no warning'}")
wanted = {(table, tied): (True, 2.0 if (table, tied) == ("embed_tokens", True) else 1.0, table == "embed_tokens")
          for table in models for tied in (False, True)}
sys.exit(seen != wanted)
PYTHON
