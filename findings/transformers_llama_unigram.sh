#!/usr/bin/env bash
# transformers 5.24.0, SentencePiece 0.2.3: a folder with a unigram tokenizer.model whose tokenizer_class is LlamaTokenizer is read as BPE: almost every
# line is cut into other pieces than SentencePiece's, and nothing is logged. transformers 4.57.6, LlamaTokenizer and LlamaTokenizerFast alike, gives
# SentencePiece's pieces for the same folder. The model was trained with the pieces of SentencePiece, so it reads text that it never saw like this.
. "$(dirname "$0")/support.sh"
cat > "$folder/unigram.py" <<'PYTHON'
import json
import os
import random
import sys

import sentencepiece

folder = os.path.join(sys.argv[1], "model")
os.makedirs(folder, exist_ok=True)
if not os.path.exists(f"{folder}/tokenizer.model"):
    chosen = random.Random(0)
    stems, endings = ["".join(chosen.choices("bdfgklmnprst", k=2)) + "ae"[i % 2] + chosen.choice("nrst") for i in range(60)], ["", "ing", "ed", "er", "ly"]
    with open(f"{folder}/text", "w", encoding="utf-8") as file:
        for _ in range(2000):
            print(*(chosen.choice(stems) + chosen.choice(endings) for _ in range(8)), file=file)
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder}/text", model_prefix=f"{folder}/tokenizer", vocab_size=200, model_type="unigram", byte_fallback=False,
        normalization_rule_name="identity", hard_vocab_limit=False, num_threads=1, minloglevel=2)
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
        json.dump({"tokenizer_class": "LlamaTokenizer"}, file)

import transformers  # noqa: E402

with open(f"{folder}/text", encoding="utf-8") as file:
    lines = file.read().splitlines()[:500]
pieces = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer.model")
wanted = [pieces.encode(line) for line in lines]
old = transformers.__version__.startswith("4.")
differ = []
for fast in (False, True) if old else (True,):
    loaded = transformers.AutoTokenizer.from_pretrained(folder, use_fast=fast)
    seen = [loaded.encode(line, add_special_tokens=False) for line in lines]
    differ.append(sum(a != b for a, b in zip(seen, wanted)))
    print(f"transformers {transformers.__version__}, {type(loaded).__name__}: {differ[-1]} of {len(lines)} lines differ from SentencePiece "
          f"{sentencepiece.__version__}'s ids, expected 0; {lines[0].split()[0]!r}: {loaded.tokenize(lines[0].split()[0])}, SentencePiece "
          f"{pieces.encode(lines[0].split()[0], out_type=str)}")
sys.exit(any(differ) if old else differ[0] < len(lines) // 2)
PYTHON
packages transformers==4.57.6 sentencepiece==0.2.3 protobuf==7.36.2
(check env HOME="$folder" "$python" "$folder/unigram.py" "$folder") || exit $?
packages transformers==5.24.0 sentencepiece==0.2.3 protobuf==7.36.2
check env HOME="$folder" "$python" "$folder/unigram.py" "$folder"
