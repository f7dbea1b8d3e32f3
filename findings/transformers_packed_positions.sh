#!/usr/bin/env bash
# transformers 5.24.0: two texts packed in one row, whose position_ids restart, are kept apart only if no cache is made. With use_cache=True, the
# default of every model's config, and with an attention mask of ones, the second text sees the first one. Nothing is printed. The loss
# of a packed row is then another one.
. "$(dirname "$0")/support.sh"
packages transformers==5.24.0 torch==2.15.0
check "$python" - <<'PYTHON'
import sys

import torch
import transformers

torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.3)).train()
first, second = torch.randint(3, 64, (1, 9)), torch.randint(3, 64, (1, 12))
packed = torch.cat([first, second], 1)
positions = torch.cat([torch.arange(9), torch.arange(12)])[None]
labels = packed.clone()
labels[0, [0, 9]] = -100  # no text predicts another one's first token
print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}: texts of 9 and 12 tokens in a row, position_ids 0 to 8, 0 to 11")
expected = "expected: the second text's logits as alone"
differ = {}
with torch.no_grad():
    alone = model(second).logits[0]
    loss = sum(model(text, labels=text).loss * (text.shape[1] - 1) for text in (first, second)) / 19
    print(f"each text alone: loss {loss:.4f}; {expected}")
    for implementation in ("sdpa", "eager"):
        model.set_attn_implementation(implementation)
        for name, arguments in (("default", {}), ("use_cache=False", {"use_cache": False}),
                                ("use_cache=False, a mask of ones", {"use_cache": False, "attention_mask": torch.ones_like(packed)})):
            found = model(packed, position_ids=positions, labels=labels, **arguments)
            differ[implementation, name] = (found.logits[0, 9:] - alone).abs().max().item()
            print(f"packed, {implementation}, {name}: loss {found.loss:.4f}, largest difference of a logit {differ[implementation, name]:.1e}")
sys.exit(not all((value < 1e-4) == (name == "use_cache=False") for (_, name), value in differ.items()))
PYTHON
