"""Compares an exported model in another program with what hadal printed. Exit status 0: equal within the rule.

    compare_translations.py huggingface|ctranslate2 FOLDER SOURCE TARGET SCORES GREEDY BEAM OUT [TAGGED]
SCORES: `hadal score` of SOURCE and TARGET; GREEDY, BEAM: `hadal translate --max-len-b 50`, `--beam 1` and `--beam 4`. OUT gets the program's own at beam 4.
TAGGED: SOURCE with language tags, for the translations of a model that has them (`hadal score` takes none).
Rule: log-probabilities within 1e-4 a token; greedy translations equal but for ties below 1e-5, which are counted; of the beam's that
end before the longest length at least 95 % equal (there hadal adds </s>, as fairseq does, and the others add nothing).
"""

import glob
import json
import os
import sys
from pathlib import Path

import tokenizers

from hadal_torch.tokenizer import parse_vocabulary, tokenizer_json

SCORE_BOUND, TIE, EQUAL_SHARE = 1e-4, 1e-5, 0.95
LONGEST = 50  # tokens: --max-len-a 0 --max-len-b 50


class HuggingFace:
    def __init__(self, folder, _):
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        self.torch = torch
        self.model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)

    def ids(self, line):
        return self.tokenizer(line)["input_ids"]

    def score(self, pairs):
        """[pairs][target tokens] log-probabilities."""
        scores = []
        for source, target in pairs:
            with self.torch.no_grad():
                logits = self.model(input_ids=self.torch.tensor([source]), use_cache=False,
                                    decoder_input_ids=self.torch.tensor([[2] + target[:-1]])).logits[0]
            rows = self.torch.log_softmax(logits.double(), -1)
            scores.append([row[token].item() for row, token in zip(rows, target)])
        return scores

    def translate(self, sources, beam):
        """[sources] ids, without </s>."""
        found = []
        for first in range(0, len(sources), 32):
            batch = sources[first : first + 32]
            longest = max(map(len, batch))
            tokens = self.torch.tensor([ids + [1] * (longest - len(ids)) for ids in batch])
            kept = {} if beam > 1 else {"early_stopping": False, "length_penalty": 1.0}
            out = self.model.generate(tokens, attention_mask=tokens.ne(1), num_beams=beam, max_length=LONGEST + 1, **kept)
            found += [[t for t in row[1:] if t not in (1, 2)] for row in out.tolist()]
        return found


class CTranslate2:
    def __init__(self, folder, vocabulary):
        import ctranslate2

        self.translator = ctranslate2.Translator(folder, compute_type="float32", intra_threads=1)
        self.tokens = vocabulary.tokens
        self.id = {token: i for i, token in enumerate(vocabulary.tokens)}

    def words(self, ids):
        return [self.tokens[i] for i in ids if i != 2]

    def score(self, pairs):
        scored = self.translator.score_batch([self.words(s) for s, _ in pairs], [self.words(t) for _, t in pairs])
        return [list(score.log_probs) for score in scored]

    def translate(self, sources, beam):
        # 0.6: hadal's default; </s> counts in the length there too.
        found = self.translator.translate_batch([self.words(s) for s in sources], beam_size=beam, length_penalty=0.6,
                                                max_decoding_length=LONGEST)
        return [[self.id[token] for token in result.hypotheses[0]] for result in found]


def read_lines(path):
    return Path(path).read_text("utf-8").split("\n")[:-1]


def main():
    program, folder, source, target, scores, greedy, beam, out, *tagged = sys.argv[1:]
    path = glob.glob(os.path.join(folder, "vocabulary.*"))
    path = [name for name in path if not name.endswith(".json")][0]
    with open(path, "rb") as file:
        vocabulary = parse_vocabulary(path, file.read())
    tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary)))
    model = {"huggingface": HuggingFace, "ctranslate2": CTranslate2}[program](folder, vocabulary)
    pairs = [(tokenizer.encode(s).ids, tokenizer.encode(t).ids) for s, t in zip(read_lines(source), read_lines(target), strict=True)]
    if program == "huggingface":
        assert [model.ids(line) for line in read_lines(source)] == [s for s, _ in pairs], "AutoTokenizer has other ids"

    worst = 0.0
    for line, (_, goal), log_p in zip(read_lines(scores), pairs, model.score(pairs), strict=True):
        value, count = line.split("\t")
        assert int(count) == len(goal) == len(log_p), f"{count} tokens, not {len(goal)}"
        error = abs(float(value) - sum(log_p)) / len(goal)
        assert error <= SCORE_BOUND, f"{value} and {sum(log_p)}, allowed {SCORE_BOUND:g} a token"  # NaN fails
        worst = max(worst, error)

    sources = [tokenizer.encode(line).ids for line in read_lines(tagged[0] if tagged else source)]
    ties = others = 0
    for ids, line, found in zip(sources, read_lines(greedy), model.translate(sources, 1), strict=True):
        if tokenizer.decode(found) == line:
            continue
        wanted = tokenizer.encode(line).ids
        at = next(i for i, (a, b) in enumerate(zip(found + [2], wanted)) if a != b)
        one, other = (scored[-1] for scored in model.score([(ids, (found + [2])[: at + 1]), (ids, wanted[: at + 1])]))
        ties, others = (ties + 1, others) if abs(one - other) < TIE else (ties, others + 1)

    translations = [tokenizer.decode(found) for found in model.translate(sources, 4)]
    Path(out).write_text("".join(line + "\n" for line in translations), "utf-8")
    ended = [(a, b) for a, b in zip(translations, read_lines(beam), strict=True) if len(tokenizer.encode(b).ids) <= LONGEST]
    equal = sum(a == b for a, b in ended)
    print(f"{program}: {len(pairs)} lines; log-probabilities within {worst:.1e} a token; greedy: {len(pairs) - ties - others} equal, "
          f"{ties} ties, {others} others; beam 4: {equal} of {len(ended)} equal")
    return 0 if ended and others == 0 and equal >= EQUAL_SHARE * len(ended) else 1


sys.exit(main())
