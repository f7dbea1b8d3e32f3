#!/usr/bin/env bash
# datatrove 0.10.1 and transformers 5.24.0: a call of a transformers tokenizer with truncation or padding (to prepare fine-tuning, say) stays in
# the tokenizer, and save_pretrained (also Trainer's checkpoints) writes it into tokenizer.json. transformers goes by each call and ignores it,
# so the folder seems to be as before. datatrove's DocumentTokenizer gives the same tokenizer.json to the library tokenizers, which obeys it:
# every document of the corpus is cut to that call's length, and filled up with padding behind its end-of-text token to the longest of its
# batch (10,000 documents); the index counts the padding as the documents' own tokens. Nothing is printed.
. "$(dirname "$0")/support.sh"
packages datatrove==0.10.1 transformers==5.24.0 tokenizers==0.23.3 numpy==2.4.6
HOME=$folder HF_HUB_OFFLINE=1 check "$python" - "$folder" <<'PYTHON'
import importlib.metadata
import pathlib
import sys

import numpy as np
import tokenizers
import transformers
from datatrove.data import Document
from datatrove.pipeline.tokens import DocumentTokenizer
from datatrove.utils.logging import logger

transformers.logging.set_verbosity_error()
warnings = []
logger.remove()
logger.add(warnings.append, level="WARNING")
folder = pathlib.Path(sys.argv[1])
words = ["<pad>", "</s>", "<unk>", *(f"word{i}" for i in range(97))]
texts = [" ".join(f"word{i * i % 97}" for i in range(count)) for count in (40, 3, 25)]
CALLS = {"no call": None, "truncation": {"truncation": True, "max_length": 16}, "padding": {"padding": True},
         "both": {"truncation": True, "max_length": 16, "padding": True}}


def saved(name, call):
    """Saves a tokenizer after the call, and returns the folder."""
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
    if call is not None:
        tokenizer(["word1 word2", "word3 " * 50], **call)
    tokenizer.save_pretrained(folder / name)
    return folder / name


def corpus(path):
    """Returns the lengths of the documents that datatrove writes, and how many of their tokens are padding."""
    DocumentTokenizer(str(path / "corpus"), str(path / "tokenizer.json"), eos_token="</s>", shuffle_documents=False).run(
        Document(text=text, id=str(i)) for i, text in enumerate(texts))
    file = next((path / "corpus").glob("*.ds"))
    ends = np.fromfile(f"{file}.index", np.uint64).astype(int)
    return np.diff(ends, prepend=0).tolist(), int((np.fromfile(file, np.uint16) == 0).sum())


print(f"datatrove {importlib.metadata.version('datatrove')}, transformers {transformers.__version__}, tokenizers {tokenizers.__version__}: documents of "
      f"40, 3 and 25 words; the tokenizer was saved after a call with truncation to 16 tokens, or padding; expected: [41, 4, 26] tokens with </s>")
seen = {}
for name, call in CALLS.items():
    path = saved(name.replace(" ", "_"), call)
    own = [len(ids) for ids in transformers.AutoTokenizer.from_pretrained(path)(texts)["input_ids"]]
    lengths, padding = corpus(path)
    seen[name] = own, lengths, padding
    print(f"{name}: transformers' lengths, without </s>, {own}; datatrove's {lengths}, {padding} of them padding")
print(f"warnings of datatrove: {len(warnings)}")
own = [40, 3, 25]
sys.exit(bool(warnings) or seen != {"no call": (own, [41, 4, 26], 0), "truncation": (own, [16, 4, 16], 0), "padding": (own, [41, 41, 41], 52),
                                    "both": (own, [16, 16, 16], 12)})
PYTHON
