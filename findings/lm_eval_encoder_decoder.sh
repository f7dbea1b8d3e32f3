#!/usr/bin/env bash
# lm-eval 0.4.13, generate_until (translation, summaries) with an encoder-decoder model: sources are padded on the left, which moves the
# positions of BART's and Marian's encoders, so a text that is answered in one batch with a longer one gets another answer than alone. And
# max_gen_toks is added to the padded length of the source, as if the source stood before the answer: alone a source of n tokens has an
# answer of up to n + max_gen_toks - 1 tokens, in a batch that of the longest source. T5 has the second fault alone. Nothing is printed.
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

transformers.logging.set_verbosity_error()
tokens = ["<pad>", "</s>", "<unk>", *(f"word{i}" for i in range(97))]
tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
LIMIT = 6
short, long = (" ".join(f"word{i * i % 89}" for i in range(count)) for count in (7, 30))
ids = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0, "bos_token_id": None, "forced_eos_token_id": None}
common = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
          "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_position_embeddings": 64, "init_std": 0.3, "vocab_size": 100, **ids}
models = {
    "BART": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**common)),
    "Marian": lambda: transformers.MarianMTModel(transformers.MarianConfig(**common)),
    "T5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(
        vocab_size=100, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, initializer_factor=3.0, **ids))}


def of_lm_eval(texts, batch_size):
    """The answers' words."""
    scorer = HFLM(pretrained=sys.argv[1], device="cpu", batch_size=batch_size)
    requests = [Instance("generate_until", {}, (text, {"until": ["\n"], "max_gen_toks": LIMIT}), i) for i, text in enumerate(texts)]
    return [answer.split() for answer in scorer.generate_until(requests, disable_tqdm=True)]


def of_transformers(model, texts):
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    rows = model.generate(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], max_new_tokens=LIMIT, do_sample=False)
    return [answer.split() for answer in tokenizer.batch_decode(rows, skip_special_tokens=True)]


print(f"lm-eval {importlib.metadata.version('lm-eval')}, transformers {transformers.__version__}: a source of 8 tokens, alone and in a batch with "
      f"one of 31; max_gen_toks {LIMIT}; expected: the same answer, of at most {LIMIT} words")
seen = {}
for name, make in models.items():
    torch.manual_seed(0)
    model = make().eval()
    model.generation_config.suppress_tokens = [0, 1, 2]  # all answers reach the limit
    model.save_pretrained(sys.argv[1])
    tokenizer.save_pretrained(sys.argv[1])
    right = of_transformers(model, [short])[0]
    same = of_transformers(model, [short, long])[0] == right
    alone, batched = of_lm_eval([short, long], 1)[0], of_lm_eval([short, long], 2)[0]
    seen[name] = same, alone[:LIMIT] == right, batched[:LIMIT] == right, len(alone), len(batched)
    print(f"{name}: transformers alone and padded on the right {'equal' if same else 'differ'}; lm-eval alone {len(alone)} words, which begin "
          f"{'with' if alone[:LIMIT] == right else 'other than'} transformers' {LIMIT}; in the batch {len(batched)} words, which begin "
          f"{'with' if batched[:LIMIT] == right else 'other than'} transformers' {LIMIT}: {' '.join(batched[:3])} … for {' '.join(right[:3])} …")
sys.exit(seen != {"BART": (True, True, False, 13, 36), "Marian": (True, True, False, 13, 36), "T5": (True, True, True, 13, 36)})
PYTHON
