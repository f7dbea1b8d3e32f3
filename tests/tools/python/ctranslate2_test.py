"""hadal_torch's CTranslate2 folders against ctranslate2. Values to compare with are hadal_torch.Model's, on random weights."""

import json
import tempfile
import unittest
from pathlib import Path

import ctranslate2
import numpy as np
import torch

from hadal_torch import Refusal
from hadal_torch.ctranslate2 import write_ctranslate2
from hadal_torch.model import EOS, Model
from hadal_torch.tokenizer import parse_vocabulary
from random_models import GPT2, LLAMA, METHODS, WORDS, language_model, plain_model, sentences


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
            with self.assertRaisesRegex(Refusal, "--quantization int7: "):
                write_ctranslate2(plain_model(), folder, "int7")
        self.assertEqual(len(results[0].hypotheses[0]), 256)  # translate_batch's longest, if nothing else is asked for

    def test_vocabularies_are_of_their_sides(self):
        plain = plain_model(sharing="none", source_vocabulary=30)
        plain.vocabularies = {f"{side}.vocabulary.txt": "".join(f"{word} 1\n" for word in words).encode()
                              for side, words in (("source", WORDS[20:]), ("target", WORDS))}
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(plain, folder)
            sides = [json.loads(Path(folder, f"{side}_vocabulary.json").read_text("utf-8")) for side in ("source", "target")]
        self.assertEqual(sides, [["<s>", "<blank>", "</s>", "<unk>", *words] for words in (WORDS[20:], WORDS)])

    def test_a_tokenizer_json_keeps_its_ids(self):
        plain = language_model("pre_ln", block=LLAMA)
        ends = [{"id": i, "content": content} for i, content in ((47, "<begin>"), (49, "<end>"))]
        whole = {"added_tokens": ends, "model": {"vocab": {word: i for i, word in enumerate(WORDS)}}}
        plain.vocabularies = {"tokenizer.json": json.dumps(whole).encode()}
        plain.model.update(start_token=47, end_token=49, reserved_ids=False)
        with tempfile.TemporaryDirectory() as folder:
            write_ctranslate2(plain, folder)
            config, tokens = (json.loads(Path(folder, f"{name}.json").read_text("utf-8")) for name in ("config", "vocabulary"))
            self.assertEqual([config[f"{name}_token"] for name in ("bos", "eos", "unk")], ["<begin>", "<end>", ""])
            self.assertEqual(tokens, [*WORDS, "<unused46>", "<begin>", "<unused48>", "<end>"])
            found = ctranslate2.Generator(folder, intra_threads=1).score_batch([["<begin>", "word3", "word7", "<end>"]])[0].log_probs
        with torch.no_grad():
            wanted = -Model.of(plain, torch.float64).loss([((), [3, 7, 49])])[1].numpy()
        self.assertLess(np.abs(found - wanted).max(), 1e-5)


if __name__ == "__main__":
    unittest.main()
