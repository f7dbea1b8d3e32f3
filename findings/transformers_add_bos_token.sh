#!/usr/bin/env bash
# transformers 5.24.0: a folder whose tokenizer_class is LlamaTokenizerFast, whose tokenizer.json is byte-level and whose tokenizer_config.json has
# `add_bos_token: true` (the form of DeepSeek's models) encodes texts without the first token; the flag reads as false, and save_pretrained leaves it
# out. What is logged is about the class alone. transformers 4.57.6 puts the token before each text of the same folder, as the model was trained.
. "$(dirname "$0")/support.sh"
cat > "$folder/first_token.py" <<'PYTHON'
import json
import os
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

folder = os.path.join(sys.argv[1], "model")
os.makedirs(folder, exist_ok=True)
special = ["<unk>", "<begin>", "<end>"]
tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate([*special, *sorted(pre_tokenizers.ByteLevel.alphabet())])}, []))
tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
tokenizer.add_special_tokens(special)
tokenizer.save(f"{folder}/tokenizer.json")
with open(f"{folder}/tokenizer_config.json", "w", encoding="utf-8") as file:
    json.dump({"tokenizer_class": "LlamaTokenizerFast", "add_bos_token": True, "add_eos_token": False, "bos_token": "<begin>",
               "eos_token": "<end>", "unk_token": "<unk>"}, file)

import transformers  # noqa: E402

loaded = transformers.AutoTokenizer.from_pretrained(folder)
tokens = loaded.convert_ids_to_tokens(loaded("river")["input_ids"])
loaded.save_pretrained(f"{folder}/saved")
with open(f"{folder}/saved/tokenizer_config.json", encoding="utf-8") as file:
    saved = json.load(file).get("add_bos_token")
print(f"transformers {transformers.__version__}: {tokens}, add_bos_token {loaded.add_bos_token}, saved as {saved}; expected: <begin> first, True")
begins = tokens[0] == "<begin>"
sys.exit(begins != transformers.__version__.startswith("4.") or (begins, saved) not in ((True, True), (False, None)))
PYTHON
packages transformers==4.57.6
(check env HOME="$folder" "$python" "$folder/first_token.py" "$folder") || exit $?
packages transformers==5.24.0
check env HOME="$folder" "$python" "$folder/first_token.py" "$folder"
