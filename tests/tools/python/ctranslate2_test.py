"""hadal_torch's CTranslate2 folders against ctranslate2. Each test compares with hadal_torch.Model on random weights."""

import tempfile
import unittest

import ctranslate2
import numpy as np
import torch

from hadal_torch import Refusal
from hadal_torch.ctranslate2 import write_ctranslate2
from hadal_torch.model import EOS, Model
from hadal_torch.tokenizer import parse_vocabulary
from random_models import GPT2, LLAMA, METHODS, language_model, plain_model, sentences


class CTranslate2Test(unittest.TestCase):
    def test_log_probabilities_of_every_method_and_sharing(self):
        for method, settings in METHODS.items():
            for sharing in ("all", "decoder", "none"):
                with self.subTest(method=method, sharing=sharing), tempfile.TemporaryDirectory() as folder:
                    plain = plain_model(**settings, sharing=sharing)
                    write_ctranslate2(plain, folder)
                    tokens = parse_vocabulary(*plain.vocabulary("source")).tokens
                    pairs = sentences()
                    words = [[[tokens[i] for i in side[:-1]] for side in pair] for pair in pairs]
                    translator = ctranslate2.Translator(folder, compute_type="float32", intra_threads=1)
                    scored = translator.score_batch([source for source, _ in words], [target for _, target in words])
                    found = np.concatenate([score.log_probs for score in scored])
                    with torch.no_grad():
                        wanted = -Model.of(plain, torch.float64).loss(pairs)[1].numpy()
                    self.assertLess(np.abs(found - wanted).max(), 1e-4)

    def test_language_models_of_every_method_and_block(self):
        blocks = {"vaswani": {}, "gpt2": GPT2, "gpt2 without biases, shifts and positions": {**GPT2, "biases": "none", "norm_shift": False, "positions": "none"},
                  "llama": {**LLAMA, "kv_heads": 2, "head_width": 6, "biases": "qkv", "rotary_share": 0.45},
                  "qwen3": {**LLAMA, "kv_heads": 2, "head_width": 6, "query_key_norm": True}}
        targets = [target for _, target in sentences()]
        for name, block in blocks.items():
            for method in METHODS:
                with self.subTest(name, method=method), tempfile.TemporaryDirectory() as folder:
                    plain = language_model(method, sharing="none", **({"block": block} if block else {}))
                    write_ctranslate2(plain, folder)
                    tokens = parse_vocabulary(*plain.vocabulary("target")).tokens
                    generator = ctranslate2.Generator(folder, compute_type="float32", intra_threads=1)
                    scored = generator.score_batch([[tokens[i] for i in [EOS, *target]] for target in targets])
                    found = np.concatenate([score.log_probs for score in scored])
                    with torch.no_grad():
                        wanted = -Model.of(plain, torch.float64).loss([((), target) for target in targets])[1].numpy()
                    self.assertLess(np.abs(found - wanted).max(), 1e-5)

    def test_a_field_of_the_block_without_a_place_is_refused_by_name(self):
        for reason, block in {"model.block.later, which is True": {**GPT2, "later": True}, "norm_shift is true": {**LLAMA, "norm_shift": True},
                              "model.block.rotary_scaling, which is 8.0": {**LLAMA, "rotary_scaling": 8.0},
                              "model.block.norm is 'layer'": {**GPT2, "query_key_norm": True}}.items():
            with self.assertRaisesRegex(Refusal, reason):
                write_ctranslate2(language_model("pre_ln", block=block), "")

    def test_a_hypothesis_longer_than_the_model_s_positions(self):
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(plain_model(), folder)
            results = ctranslate2.Translator(folder, intra_threads=1).translate_batch([["word1"]], min_decoding_length=256)
        self.assertEqual(len(results[0].hypotheses[0]), 256)  # translate_batch's longest, if nothing else is asked for


if __name__ == "__main__":
    unittest.main()
