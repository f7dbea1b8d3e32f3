#!/usr/bin/env bash
# datatrove 0.10.1: DocumentTokenizer stores token ids in 4 bytes if the vocabulary has more than 65,536 tokens. DocumentTokenizerMerger gets
# that size from the parts' .metadata, but it looks only if it is to write such a file itself. So with save_final_metadata=False ("whether to
# save the final metadata") it reads 2 bytes an id: the second half of each part is left out, and the documents are cut at other places, while
# the index has as many documents and tokens as before. Nothing is printed. With DocumentTokenizer's save_final_metadata=False likewise.
. "$(dirname "$0")/support.sh"
packages datatrove==0.10.1 tokenizers==0.23.3 numpy==2.4.6
HOME=$folder HF_HUB_OFFLINE=1 check "$python" - "$folder" <<'PYTHON'
import importlib.metadata
import pathlib
import sys

import numpy as np
import tokenizers
from datatrove.data import Document
from datatrove.pipeline.tokens import DocumentTokenizer, DocumentTokenizerMerger
from datatrove.utils.logging import logger

warnings = []
logger.remove()
logger.add(warnings.append, level="WARNING")
folder = pathlib.Path(sys.argv[1])
EOS, FIRST, DOCUMENTS, WORDS = 0, 66_000, 4, 5  # a document is WORDS words and </s>
tokens = ["</s>", "<unk>", *(f"word{i}" for i in range(2, 70_000))]
tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({token: i for i, token in enumerate(tokens)}, unk_token="<unk>"))
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
tokenizer.save(str(folder / "tokenizer.json"))


def ids(part, document):
    return [FIRST + 1000 * part + 10 * document + i for i in range(WORDS)]


def merged(of_parts, of_merger):
    """Returns the merged file's documents as datatrove's index has them, in ids of 4 bytes, and how many tokens the index and the file have."""
    parts, out = folder / f"parts-{of_parts}-{of_merger}", folder / f"merged-{of_parts}-{of_merger}"
    for part in range(2):
        documents = (Document(text=" ".join(f"word{i}" for i in ids(part, document)), id=str(document)) for document in range(DOCUMENTS))
        DocumentTokenizer(str(parts), str(folder / "tokenizer.json"), eos_token="</s>", shuffle_documents=False,
                          save_final_metadata=of_parts).run(documents, rank=part, world_size=2)
    DocumentTokenizerMerger(str(parts), str(out), "all", shuffle=False, save_final_metadata=of_merger, progress=False).run()
    file = out / "000_all.ds"
    ends = np.fromfile(f"{file}.index", np.uint64).astype(int).tolist()
    flat = np.fromfile(file, np.uint32).tolist()
    return [flat[begin:end] for begin, end in zip([0, *ends], ends)], ends[-1], len(flat)


expected = [[*ids(part, document), EOS] for part in range(2) for document in range(DOCUMENTS)]
total = 2 * DOCUMENTS * (WORDS + 1)
print(f"datatrove {importlib.metadata.version('datatrove')}: two parts of {DOCUMENTS} documents of {WORDS} words and </s>, vocabulary 70,000, merged in order")
seen = {}
for of_parts, of_merger in ((True, True), (True, False), (False, True), (False, False)):
    documents, in_index, in_file = merged(of_parts, of_merger)
    seen[of_parts, of_merger] = documents == expected, in_index, in_file
    kept = [document in documents for document in expected]
    print(f"save_final_metadata {of_parts} for the parts, {of_merger} for the merged file: expected {len(expected)} documents, {total} ids; seen "
          f"{sum(kept)} of the documents whole, {in_file} ids of 4 bytes (index: {len(documents)} documents, {in_index} ids)")
print(f"warnings: {len(warnings)}")
broken = False, total, total // 2
sys.exit(bool(warnings) or seen != {(True, True): (True, total, total), (True, False): broken, (False, True): broken, (False, False): broken})
PYTHON
