#!/usr/bin/env bash
# lm-eval 0.4.13: loglikelihood_rolling (wikitext's and other perplexities) puts the start token before a text, and the tokenizer that adds one
# by itself, as Llama's do, puts a second one behind it: the second counts as text, with its log-probability, and every token is read behind two.
# add_bos_token=False gives the log-probability of the text behind one start token.
. "$(dirname "$0")/support.sh"
packages lm-eval==0.4.13 transformers==5.24.0 torch==2.15.0 accelerate==1.15.0
check "$python" - "$folder/model" <<'PYTHON'
import importlib.metadata
import sys

import tokenizers
import torch
import transformers
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

tokens = ["<unk>", "<s>", "</s>", *(f"word{i}" for i in range(60))]
tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>").save_pretrained(sys.argv[1])
torch.manual_seed(0)
model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
    vocab_size=len(tokens), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, initializer_range=0.3,
    max_position_embeddings=64)).eval()
model.save_pretrained(sys.argv[1])
text = "word3 word14 word15 word9 word26 word5"
ids = tokenizer.encode(text, add_special_tokens=False).ids


def log_probability(before, scored):
    """Of the ids `scored`, read behind `before`."""
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([before + scored])).logits[0].double(), -1)[len(before) - 1 : -1]
    return rows[range(len(scored)), scored].sum().item()


wanted, second = log_probability([1], ids), log_probability([1], [1, *ids])
print(f"lm-eval {importlib.metadata.version('lm-eval')}, transformers {transformers.__version__}; expected by default: {wanted:.4f}, the "
      f"{len(ids)} tokens behind one <s>; with a second <s>, scored too: {second:.4f}")
seen = []
for arguments in ({}, {"add_bos_token": False}):
    scorer = HFLM(pretrained=sys.argv[1], device="cpu", batch_size=1, **arguments)
    seen.append(scorer.loglikelihood_rolling([Instance("loglikelihood_rolling", {}, (text,), 0)], disable_tqdm=True)[0])
    print(f"loglikelihood_rolling, {arguments or 'default'}: {seen[-1]:.4f}")
sys.exit(not (abs(seen[0] - second) < 1e-3 and abs(seen[1] - wanted) < 1e-3 and abs(wanted - second) > 0.1))
PYTHON
