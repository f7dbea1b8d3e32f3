"""A language tag that is forced on an imported M2M100 by `hadal translate --prefix` is transformers' forced_bos_token_id.

The environment variable HADAL names the program.
"""

import io
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import sentencepiece
import torch
import transformers

from hadal_torch.model import EOS, pad
from hadal_torch.plain import write_plain
from random_models import plain_model
from transformers_test import Folder, add_vocabulary, foreign_models

SOURCES = ["__en__ word3 word7 word11", "__en__ word1", "__en__ word20 word20 word4 word9 word2"]
LENGTH = 8


class ForcedTagTest(Folder):
    def hadal(self, *arguments):
        environment = {**os.environ, "HADAL_PYTHON": sys.executable}
        done = subprocess.run([os.environ["HADAL"], *arguments], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def translate(self, folder, tag, *options):
        """What hadal says of SOURCES, each with this forced beginning."""
        texts = self.folder()
        paths = [os.path.join(texts, name) for name in ("source", "prefix", "out")]
        for path, lines in zip(paths, (SOURCES, [tag] * len(SOURCES))):
            Path(path).write_text("".join(line + "\n" for line in lines), "utf-8")
        self.hadal("translate", folder, "-i", paths[0], "--prefix", paths[1], "-o", paths[2], "--json", "--threads", "1",
                   "--max-len-a", "0", "--max-len-b", str(LENGTH), *options)
        with open(paths[2], encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    def test_a_forced_tag_and_no_repeated_bigram_are_those_of_transformers(self):
        kind, model = list(foreign_models())[-1]
        foreign, imported, exported = self.folder(), os.path.join(self.folder(), "imported"), os.path.join(self.folder(), "exported")
        model.save_pretrained(foreign)
        add_vocabulary(foreign, kind)
        self.hadal("checkpoint", "import", foreign, "-o", imported)
        self.hadal("checkpoint", "export", imported, "--format", "huggingface", "-o", exported)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
        tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
        first = {}
        for tag, ngram in (("__de__", 0), ("__en__", 0), ("__en__", 2)):
            ids = tokenizer(SOURCES, return_tensors="pt", padding=True)
            forced = tokenizer.convert_tokens_to_ids(tag)
            # As many tokens behind the start as hadal's longest output and its </s>.
            greedy = model.generate(**ids, num_beams=1, early_stopping=False, length_penalty=1.0, forced_bos_token_id=forced, max_length=LENGTH + 2, forced_eos_token_id=EOS,
                                    min_length=2, no_repeat_ngram_size=ngram)
            found = self.translate(imported, tag, "--beam", "1", "--no-repeat-ngram", str(ngram))
            first[tag, ngram] = []
            for number, (line, theirs) in enumerate(zip(found, greedy.tolist())):
                self.assertEqual((line["line"], line["source"]), (number + 1, SOURCES[number]))
                hypothesis = line["hypotheses"][0]
                ours = tokenizer.convert_tokens_to_ids(hypothesis["tokens"])
                self.assertEqual(hypothesis["tokens"][0], tag)
                self.assertEqual(ours, theirs[1: 1 + len(ours)])
                with torch.no_grad():
                    row = model(input_ids=ids["input_ids"][number: number + 1], attention_mask=ids["attention_mask"][number: number + 1],
                                decoder_input_ids=pad([[EOS, *ours[:-1]]]), use_cache=False).logits[0].log_softmax(-1)
                self.assertEqual(len(hypothesis["log_probabilities"]), len(ours))
                for position, (token, found_here) in enumerate(zip(ours, hypothesis["log_probabilities"])):
                    self.assertAlmostEqual(float(row[position, token]), found_here, delta=1e-4)
                first[tag, ngram].append(hypothesis["text"])
        self.assertNotEqual(first["__de__", 0], first["__en__", 0])
        self.assertNotEqual(first["__en__", 0], first["__en__", 2])

    def test_a_tag_of_a_sentencepiece_model_comes_first(self):
        vocabulary = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(SOURCES), model_writer=vocabulary, minloglevel=2, model_type="bpe", vocab_size=40, hard_vocab_limit=False,
            bos_id=0, pad_id=1, eos_id=2, unk_id=3, user_defined_symbols=["__en__", "__de__"])
        size = sentencepiece.SentencePieceProcessor(model_proto=vocabulary.getvalue()).get_piece_size()
        plain, folder = plain_model(source_vocabulary=size, target_vocabulary=size), self.folder()
        plain.vocabularies = {"vocabulary.model": vocabulary.getvalue()}
        plain.config = ""
        write_plain(os.path.join(folder, "plain.safetensors"), plain)
        imported = os.path.join(folder, "imported")
        self.hadal("checkpoint", "import", os.path.join(folder, "plain.safetensors"), "-o", imported)
        for line in self.translate(imported, "__de__ word7"):
            self.assertEqual(line["hypotheses"][0]["tokens"][0], "__de__")
            self.assertTrue(line["hypotheses"][0]["tokens"][1].startswith("▁"))


if __name__ == "__main__":
    unittest.main()
