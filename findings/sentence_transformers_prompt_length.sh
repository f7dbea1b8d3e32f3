#!/usr/bin/env bash
# sentence-transformers 6.2.0: include_prompt=False leaves the prompt's tokens out of the mean over a text. They are counted in the prompt alone, and
# prompts end with a space ("query: "). With a byte-level BPE tokenizer (GPT-2's, ModernBERT's, Qwen's) that space is a token of the prompt alone, but
# part of the next word before a text. So the first token of each text is left out, too: texts of one token have none left, and all get the same
# vector. Nothing is printed. With WordPiece, or with the space in the text, the right tokens are left out.
. "$(dirname "$0")/support.sh"
packages sentence-transformers==6.2.0 transformers==5.24.0 torch==2.15.0
HOME=$folder CUDA_VISIBLE_DEVICES='' check "$python" -W ignore - "$folder/model" <<'PYTHON'
import importlib.metadata
import sys

import tokenizers
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import pre_tokenizers

transformers.logging.set_verbosity_error()
folder, words = sys.argv[1], "river stone apple winter letter garden".split()
texts = [*words, "river stone", "apple winter letter"]


def byte_level():
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.train_from_iterator(
        [f"query: {word} {word}" for word in words for _ in range(5)],
        tokenizers.trainers.BpeTrainer(vocab_size=400, special_tokens=["<pad>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                        show_progress=False))
    return tokenizer


def word_piece():
    tokens = {token: i for i, token in enumerate(["<pad>", "<unk>", "query", ":", *words])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(tokens, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


print(f"sentence-transformers {importlib.metadata.version('sentence-transformers')}, transformers {transformers.__version__}: mean over a text without "
      "its prompt; expected: over all tokens behind the prompt")
seen = {}
for name, tokenizer, prompt, space in (("byte-level BPE", byte_level(), "query: ", ""), ("byte-level BPE", byte_level(), "query:", " "),
                                       ("WordPiece", word_piece(), "query: ", "")):
    torch.manual_seed(0)
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", model_max_length=32).save_pretrained(folder)
    transformers.BertModel(transformers.BertConfig(
        vocab_size=400, hidden_size=32, intermediate_size=32, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=32,
        pad_token_id=0)).save_pretrained(folder)
    model = SentenceTransformer(modules=[Transformer(folder), Pooling(32, "mean", include_prompt=False)], device="cpu")
    found = model.encode([space + text for text in texts], prompt=prompt, convert_to_tensor=True)
    outputs = model.encode([prompt + space + text for text in texts], output_value="token_embeddings")
    wanted, shorter = [], []
    for text, output in zip(texts, outputs):
        offsets = tokenizer.encode(prompt + space + text).offsets
        first = next(i for i, (_, end) in enumerate(offsets) if end > len("query: "))
        wanted.append(output[first : len(offsets)].mean(0))
        shorter.append(output[first + 1 : len(offsets)].sum(0) / max(1, len(offsets) - first - 1))
    right, late = ((found - torch.stack(vectors)).abs().max().item() < 1e-4 for vectors in (wanted, shorter))
    spread = (found[: len(words)] - found[0]).abs().max().item()
    seen[name, prompt] = right, late, spread < 1e-4
    print(f"{name}, prompt {prompt!r}, text {space + words[0]!r}: tokens of the prompt alone {tokenizer.encode(prompt).tokens}, with the text "
          f"{tokenizer.encode(prompt + space + words[0]).tokens}")
    print(f"  the mean is over {'all tokens' if right else 'all tokens but the first' if late else 'others'} of the text; the vectors of "
          f"{len(words)} texts of one word differ by {spread:.2f}")
sys.exit(seen != {("byte-level BPE", "query: "): (False, True, True), ("byte-level BPE", "query:"): (True, False, False),
                  ("WordPiece", "query: "): (True, False, False)})
PYTHON
