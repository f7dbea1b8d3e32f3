"""hadal_torch's Hugging Face folders against transformers. Values to compare with are hadal_torch.Model's, on random weights."""

import contextlib
import copy
import dataclasses
import io
import json
import os
import tempfile
import unittest
from pathlib import Path

import numpy as np
import tokenizers
import torch
import transformers
from safetensors.torch import load_file, save_file

from hadal_torch import Model, Refusal
from hadal_torch.architectures import ARCHITECTURES, to_transformers
from hadal_torch.huggingface import read_huggingface, write_huggingface
from hadal_torch.model import EOS, pad, rms_normed
from hadal_torch.plain import DEPTH_RULES, block_of
from hadal_torch.tensors import read_safetensors, write_safetensors
from hadal_torch.tokenizer import first_token, parse_vocabulary
from pyhadal import schema
from random_models import GPT2, LLAMA, METHODS, WORDS, language_model, plain_model, sentences

transformers.logging.set_verbosity_error()


def log_probabilities(model, pairs):
    """[target tokens] of all pairs, one sentence at a time."""
    values = []
    for source, target in pairs:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([[EOS] + target[:-1]]),
                           use_cache=False).logits
        values.append(torch.log_softmax(logits[0].double(), -1)[torch.arange(len(target)), torch.tensor(target)])
    return torch.cat(values).numpy()


def expected(plain, pairs):
    with torch.no_grad():
        return -Model.of(plain, torch.float64).loss(pairs)[1].numpy()


def foreign_models():
    """Randomly initialised models that transformers makes, small."""
    sizes = {"d_model": 16, "encoder_layers": 2, "decoder_layers": 3, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24,
             "encoder_attention_heads": 4, "decoder_attention_heads": 4, "init_std": 0.3, "max_position_embeddings": 64}
    torch.manual_seed(5)
    fsmt = {"langs": ["en", "de"], "src_vocab_size": 50, "tgt_vocab_size": 50}
    untied = transformers.FSMTForConditionalGeneration(transformers.FSMTConfig(**fsmt, **sizes, tie_word_embeddings=False))
    untied.model.decoder.output_projection.weight = untied.model.decoder.embed_tokens.weight  # as in all that are published
    yield "fsmt", untied
    yield "fsmt tied", transformers.FSMTForConditionalGeneration(transformers.FSMTConfig(**fsmt, **sizes, tie_word_embeddings=True))
    yield "m2m_100", transformers.M2M100ForConditionalGeneration(transformers.M2M100Config(vocab_size=50, **sizes))


def add_vocabulary(folder, kind):
    """What the tokenizer of such a model stores: FSMT's tokens end words by </w>; M2M100's language tags follow its vocabulary."""
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    def write(name, value):
        Path(folder, name).write_text(json.dumps(value), "utf-8")
    if kind.startswith("fsmt"):
        ids = {token: i for i, token in enumerate(special + ["wor", *(word + "</w>" for word in WORDS[1:])])}
        write("vocab-src.json", ids)
        write("vocab-tgt.json", ids)
    else:
        write("vocab.json", {token: i for i, token in enumerate(special + WORDS[:30])})
        write("special_tokens_map.json", {"additional_special_tokens": ["__de__", "__en__"]})


def add_buffer(folder, name, value):
    path = os.path.join(folder, "model.safetensors")
    save_file({**load_file(path), name: value}, path, {"format": "pt"})


class Folder(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.count = 0

    def folder(self):
        self.count += 1
        path = os.path.join(self.directory.name, str(self.count))
        os.mkdir(path)
        return path

    def assert_a_module(self, plain, source):
        """hadal_torch.Model can be copied after a forward pass, and has any dtype and device."""
        ours, target = Model.of(plain), torch.tensor([[EOS, 5]])
        ours.log_probabilities(source, target)
        found = copy.deepcopy(ours).to("meta", torch.bfloat16).log_probabilities(None if source is None else source.to("meta"), target.to("meta"))
        self.assertEqual((found.dtype, found.device.type), (torch.bfloat16, "meta"))

    def assert_equal_gradients(self, plain, ours, model):
        """Those of a plain method, after two backward passes: only names and layouts change."""
        gradients = {name: value.grad.numpy() for name, value in ours.named_parameters()}
        wanted = to_transformers(dataclasses.replace(plain, weights=gradients))[1]
        found = {name: value.grad.numpy() for name, value in model.named_parameters()}
        norm = np.sqrt(sum(np.sum(np.square(g)) for g in wanted.values()))
        for name, gradient in wanted.items():
            if gradient.any():  # not those that hadal has not: biases of o_proj with "qkv", token types
                self.assertLessEqual(np.linalg.norm(found[name] - gradient), 1e-4 * np.linalg.norm(gradient) + 1e-7 * norm, name)


class ExportTest(Folder):
    def test_squares_of_float16_do_not_overflow(self):
        x = torch.full((2, 8), 300.0, dtype=torch.half)
        torch.testing.assert_close(rms_normed(x, 1e-5), torch.ones_like(x))

    def test_gains_fall_from_the_top_or_from_the_bottom(self):
        for rule, gains in (("from_top", [1 / 3, 1 / 2, 1]), ("inverse_sqrt", [1, 2**-0.5, 3**-0.5])):
            np.testing.assert_allclose([DEPTH_RULES[rule](layer, 3) for layer in (1, 2, 3)], gains, err_msg=rule)

    def test_log_probabilities(self):
        for method, settings in METHODS.items():
            for sharing in ("all", "decoder"):
                if method == "admin" or (method in ("pre_ln", "ln_scaling", "completep") and sharing != "all"):
                    continue
                with self.subTest(method=method, sharing=sharing):
                    plain, folder, pairs = plain_model(**settings, sharing=sharing), self.folder(), sentences()
                    self.assert_a_module(plain, torch.tensor([[5, EOS]]))
                    write_huggingface(plain, folder)
                    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
                    model.eval()
                    self.assertFalse(info["missing_keys"] or info["unexpected_keys"] or info["mismatched_keys"], info)
                    self.assertLess(np.abs(log_probabilities(model, pairs) - expected(plain, pairs)).max(), 1e-4)

    def test_greedy_and_beam_search_through_the_tokenizer(self):
        plain, folder = plain_model(**METHODS["deepnorm"]), self.folder()
        note = write_huggingface(plain, folder)
        self.assertEqual(note, "FSMTForConditionalGeneration; to score a given translation with it, pass use_cache=False")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.assertEqual((tokenizer.model_max_length, tokenizer.clean_up_tokenization_spaces), (64, False))
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        ids = tokenizer(["word3  word7 strange", "word1"], return_tensors="pt", padding=True)
        self.assertEqual(ids["input_ids"].tolist(), [[7, 11, 3, 2], [5, 2, 1, 1]])
        self.assertEqual(tokenizer("</s> word1 <s>word1</s>")["input_ids"], [3, 5, 3, 2])  # spelled, as in hadal
        for part in ("encode the text", "pipeline_tag: translation\n", "# A 2L-3L translation model", "folded into a plain Post-LN"):
            self.assertIn(part, Path(folder, "README.md").read_text("utf-8"))
        greedy = model.generate(**ids, num_beams=1, max_length=9)
        reference, sequence = Model.of(plain), [EOS]
        for _ in range(8):
            with torch.no_grad():
                row = reference.log_probabilities(pad([[7, 11, 3, 2]]), pad([sequence]))[0, -1]
            row[[0, 1] + ([2] if len(sequence) == 1 else [])] = -np.inf
            sequence.append(int(row.argmax()))
            if sequence[-1] == EOS:
                break
        self.assertEqual(greedy[0].tolist()[: len(sequence)], sequence)
        if int(transformers.__version__.split(".")[0]) < 5:  # later ones have no such pipeline
            beam = model.generate(**ids, max_length=9)
            found = transformers.pipeline("translation", model=folder)(["word3  word7 strange", "word1"], batch_size=2, max_length=9)
            self.assertEqual([one["translation_text"] for one in found], tokenizer.batch_decode(beam, skip_special_tokens=True))
        generation, decode = model.generation_config, schema.messages()["Decode"][1]
        self.assertEqual((generation.num_beams, generation.length_penalty), (decode["beam"].default, decode["length_penalty"].default))
        self.assertEqual((generation.suppress_tokens, generation.min_new_tokens, generation.max_length), ([0, 1], 1, 64))
        self.assertTrue(generation.early_stopping)

    def test_an_export_for_one_beam_is_saved_again(self):
        plain, folder = plain_model(**METHODS["deepnorm"]), self.folder()
        plain.config += "decode {\n  beam: 1  # greedy\n  length_penalty: 0.6\n  no_repeat_ngram: 1\n}\n"
        write_huggingface(plain, folder)
        self.assertEqual(json.loads(Path(folder, "generation_config.json").read_text("utf-8"))["no_repeat_ngram_size"], 0)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        model.save_pretrained(self.folder())
        self.assertEqual(model.generation_config.num_beams, 1)
        self.assertFalse(model.generation_config.early_stopping)  # None in transformers 5

    def test_what_the_format_cannot_express_is_refused_by_name(self):
        two = plain_model()
        two.vocabularies = {"source.vocabulary.txt": b"a 1\n", "target.vocabulary.txt": b"b 1\n"}
        cases = {
            "encoder.layers.0.self_attn.omega": plain_model(**METHODS["admin"]),
            'model.sharing is "none"': plain_model(sharing="none"),
            'model.sharing is "decoder"': plain_model(**METHODS["pre_ln"], sharing="decoder"),
            "decoder.skip_gain": plain_model(decoder={"skip_gain": 1.0}),
            "encoder.combine_layers": plain_model(encoder={"combine_layers": True}),
            "encoder.second_stream_gain": plain_model(encoder={"second_stream_gain": 0.05}),
            "encoder.residual_streams": plain_model(encoder={"residual_streams": 4}),
            "encoder.branch_output_norm": plain_model(encoder={"branch_output_norm": True}),
            "model.adaptive_cutoffs": plain_model(adaptive_cutoffs=[5]),
            "model.frame_width": plain_model(frame_width=8),
            "encoder.head_scale": plain_model(encoder={"head_scale": True}),
            'encoder.norm is "pre"': plain_model(encoder={"norm": "pre"}),
            "source.vocabulary.txt": two,
            "a Pre-LN residual; encoder.residual_gain is 2.0": plain_model(encoder={"norm": "pre", "residual_gain": 2.0}, decoder={"norm": "pre"}),
            'omega "profiled"': plain_model(encoder={"norm": "pre", "omega": "profiled"}, decoder={"norm": "pre"}),
            'encoder.norm is "none"': plain_model(encoder={"norm": "none"}, decoder={"norm": "none"}),
            **{f"encoder.{name} is": plain_model(encoder={name: value}) for name, value in {
                "learned_branch_gain": True, "layer_gain": 0.5, "attention_inner_norm": True, "attention_output_norm": True, "ffn_inner_norm": True,
                "branch_input_norm": True, "attention_residual_blocks": 2, "attention_residual_block_sublayers": 2, "post_norm_share": 0.5,
                "fixup_scalars": True, "linear_bias": False}.items()},
        }
        for reason, elements, omega in (("(Admin; -1.25 to -1.25)", slice(None), -1.25), ("omega has an element 0", 3, 0)):
            cases[reason] = plain_model(**METHODS["admin"])
            for stack in ("encoder", "decoder"):
                cases[reason].weights[f"{stack}.layers.0.self_attn.omega"][elements] = omega
        for reason, plain in cases.items():
            with self.subTest(reason), self.assertRaises(Refusal) as caught:
                write_huggingface(plain, self.folder())
            self.assertIn(reason, str(caught.exception))

    def test_an_omega_of_equal_elements_folds(self):
        plain, folder, pairs = plain_model(**METHODS["admin"]), self.folder(), sentences()
        for stack in ("encoder", "decoder"):
            plain.weights[f"{stack}.layers.0.self_attn.omega"][:] = 1.25
        write_huggingface(plain, folder)
        model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
        self.assertLess(np.abs(log_probabilities(model, pairs) - expected(plain, pairs)).max(), 1e-4)


class ImportTest(Folder):
    def test_models_come_in_and_go_out_with_the_same_bits(self):
        for kind, model in foreign_models():
            with self.subTest(kind):
                folder, back, pairs = self.folder(), self.folder(), sentences()
                model.eval().save_pretrained(folder)
                add_vocabulary(folder, kind)
                plain = read_huggingface(folder)
                self.assertLess(np.abs(log_probabilities(model, pairs) - expected(plain, pairs)).max(), 1e-5)
                plain.facts["inputs"] = {"tags": "deepnet"} if kind == "fsmt" else {}
                write_huggingface(plain, back)
                self.assertEqual(read_huggingface(back).facts.get("inputs", {}), plain.facts["inputs"])
                if kind == "m2m_100":
                    tokenizer = transformers.AutoTokenizer.from_pretrained(back)
                    self.assertEqual(tokenizer("__de__word1")["input_ids"], [34, 5, 2])
                    self.assertEqual(tokenizer.decode([34, 5, 2], skip_special_tokens=True), "word1")
                self.assertEqual(read_huggingface(back).config_value("decode.beam"), "5" if kind.startswith("fsmt") else "4")
                self.assertEqual(read_huggingface(back).model, plain.model)
                for name in ("dropout", "attention_dropout", "activation_dropout"):
                    self.assertEqual(plain.model[name], getattr(model.config, name), name)
                plain.config, decodes = "decode {\n  beam: 3\n  length_penalty: 1.5\n  no_repeat_ngram: 2\n}\n", self.folder()
                write_huggingface(plain, decodes)
                self.assertEqual(read_huggingface(decodes).config, plain.config)
                again = transformers.AutoModelForSeq2SeqLM.from_pretrained(back).state_dict()
                for name, tensor in model.state_dict().items():
                    if "embed_positions" not in name:  # made anew
                        self.assertTrue(torch.equal(tensor, again[name]), name)

    def test_decoding_settings_are_numbers_that_a_config_allows(self):
        kind, model = next(iter(foreign_models()))
        folder = self.folder()
        model.save_pretrained(folder)
        add_vocabulary(folder, kind)
        for settings in ({"num_beams": None, "length_penalty": "1"}, {"num_beams": "4\n}\ndata {", "length_penalty": float("nan")},
                         {"num_beams": 1000, "no_repeat_ngram_size": 0}, {"length_penalty": -1.0}, {"length_penalty": 11}):
            Path(folder, "generation_config.json").write_text(json.dumps(settings), "utf-8")
            self.assertEqual(read_huggingface(folder).config, "decode {\n}\n", settings)

    def test_sharded_models_come_in_with_the_same_bits(self):
        for kind, model in foreign_models():
            with self.subTest(kind):
                whole, sharded = self.folder(), self.folder()
                for folder, size in ((whole, "1GB"), (sharded, "4KB")):
                    model.save_pretrained(folder, max_shard_size=size)
                    add_vocabulary(folder, kind)
                shards = [name for name in os.listdir(sharded) if name.endswith(".safetensors")]
                self.assertGreater(len(shards), 2)
                wanted, found = read_huggingface(whole), read_huggingface(sharded)
                self.assertEqual(wanted.model, found.model)
                self.assertEqual(wanted.weights.keys(), found.weights.keys())
                for name, value in wanted.weights.items():
                    np.testing.assert_array_equal(value, found.weights[name], name)

    def test_broken_shards_are_refused_by_name(self):
        folder = self.folder()
        kind, model = next(foreign_models())
        model.save_pretrained(folder, max_shard_size="4KB")
        add_vocabulary(folder, kind)
        path = os.path.join(folder, "model.safetensors.index.json")
        index = json.loads(Path(path).read_text("utf-8"))
        shard = index["weight_map"]["model.decoder.layers.1.fc1.bias"]

        def refusal(weight_map):
            Path(path).write_text(json.dumps({"weight_map": weight_map}), "utf-8")
            with self.assertRaises((Refusal, OSError)) as caught:
                read_huggingface(folder)
            return str(caught.exception)

        self.assertIn('no "weight_map"', refusal({"model.other": 1}))
        self.assertIn("the first model.lacking", refusal({**index["weight_map"], "model.lacking": shard}))
        self.assertIn("'../x.safetensors', which is no file", refusal({**index["weight_map"], "model.other": "../x.safetensors"}))
        other = os.path.join(folder, next(name for name in index["weight_map"].values() if name != shard))
        alone = read_safetensors(other)
        write_safetensors(other, {**alone, "model.decoder.layers.1.fc1.bias": np.zeros(24, np.float32)})
        self.assertIn("has weights of another shard, too, such as model.decoder.layers.1.fc1.bias", refusal(index["weight_map"]))
        write_safetensors(other, alone)
        os.remove(os.path.join(folder, shard))
        self.assertIn(shard, refusal(index["weight_map"]))

    def test_a_tied_table_has_any_of_its_names(self):
        kind, model = list(foreign_models())[-1]
        folder = self.folder()
        model.save_pretrained(folder)
        add_vocabulary(folder, kind)
        path = os.path.join(folder, "model.safetensors")
        weights = read_safetensors(path)
        table = weights.pop("model.shared.weight")
        for name in ("model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight", "lm_head.weight"):
            write_safetensors(path, {**weights, name: table})
            np.testing.assert_array_equal(read_huggingface(folder).weights["encoder.embed_tokens.weight"], table, name)

    def test_vocabularies(self):
        for kind, model in foreign_models():
            folder = self.folder()
            model.save_pretrained(folder)
            add_vocabulary(folder, kind)
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                lines = read_huggingface(folder).vocabularies["vocabulary.txt"].decode().splitlines()
            self.assertEqual(len(lines), 46)
            self.assertEqual(lines[:2], ["wor@@ 1", "word1 1"] if kind.startswith("fsmt") else ["word0 1", "word1 1"])
            if kind.startswith("fsmt"):
                path = Path(folder, "vocab-tgt.json")
                path.write_text(path.read_text("utf-8").replace("word1</w>", "mot</w>"), "utf-8")
                texts = read_huggingface(folder).vocabularies
                self.assertEqual([texts[f"{side}.vocabulary.txt"].split()[2] for side in ("source", "target")], [b"word1", b"mot"])
            if kind == "m2m_100":
                self.assertEqual(lines[30:33], ["__de__ 1", "__en__ 1", "madeupword0000 1"])
                self.assertIn("14 of the model's 50 rows have no token and are named madeupword0000 to madeupword0013", printed.getvalue())
                os.remove(os.path.join(folder, "special_tokens_map.json"))
                with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as file:
                    json.dump({"added_tokens_decoder": {"35": {"content": "__en__"}, "34": {"content": "__de__"}, "2": {"content": "</s>"}}}, file)
                self.assertIn(b"__de__ 1\n__en__ 1\nmadeupword0000 1\n", read_huggingface(folder).vocabularies["vocabulary.txt"])
                for name, value in {"added_tokens.json": {"__de__": 34, "__en__": 35, "<foo>": 36},  # as saved after add_special_tokens
                                    "special_tokens_map.json": {"additional_special_tokens": ["<foo>"]}}.items():
                    Path(folder, name).write_text(json.dumps(value), "utf-8")
                lines = read_huggingface(folder).vocabularies["vocabulary.txt"].decode().splitlines()
                self.assertEqual(lines[30:33], ["__de__ 1", "__en__ 1", "<foo> 1"])

    def refusal(self, change_config=lambda config: None, change_weights=lambda weights: None):
        folder = self.folder()
        kind, model = next(foreign_models())
        model.save_pretrained(folder)
        add_vocabulary(folder, kind)
        config = json.loads(Path(folder, "config.json").read_text("utf-8"))
        change_config(config)
        Path(folder, "config.json").write_text(json.dumps(config), "utf-8")
        path = os.path.join(folder, "model.safetensors")
        weights = read_safetensors(path)
        change_weights(weights)
        write_safetensors(path, weights)
        with self.assertRaises(Refusal) as caught:
            read_huggingface(folder)
        return str(caught.exception)

    def test_broken_imports_are_refused_by_name(self):
        name = "model.decoder.layers.1.fc1.weight"
        self.assertIn("lacks decoder.layers.1.fc1.weight [24, 16]", self.refusal(change_weights=lambda w: w.pop(name)))
        self.assertIn("has the shape [3]", self.refusal(change_weights=lambda w: w.update({name: np.zeros(3, np.float32)})))
        self.assertIn("the first extra", self.refusal(change_weights=lambda w: w.update(extra=np.zeros(3, np.float32))))
        self.assertIn("activation_function is 'swish'", self.refusal(lambda c: c.update(activation_function="swish")))
        self.assertIn("scale_embedding is False", self.refusal(lambda c: c.update(scale_embedding=False)))
        self.assertIn("model_type is 'marian'", self.refusal(lambda c: c.update(model_type="marian")))
        self.assertIn("encoder.embed_tokens.weight has the shape [50, 16], not [49, 16]", self.refusal(lambda c: c.update(src_vocab_size=49)))
        with self.assertRaisesRegex(Refusal, "lacks config.json"):
            read_huggingface(self.folder())


# transformers 4.44 has no width of a head in Llama.
WIDE = {"head_width": 6} if hasattr(transformers, "Qwen3Config") and hasattr(transformers, "ModernBertConfig") else {}
LANGUAGE_MODELS = {
    "llama": {"block": LLAMA},
    "llama, shared keys, biases": {"block": {**LLAMA, **WIDE, "kv_heads": 2, "biases": "qkv", "activation": "gelu"}, "sharing": "none"},
    "llama, scaled": {"block": {**LLAMA, "rotary_scaling": 8.0, "rotary_scaling_positions": 16}},
    "llama, all biases": {"block": {**LLAMA, "biases": "all"}},
    **({"qwen3": {"block": {**LLAMA, **WIDE, "kv_heads": 2, "query_key_norm": True}}} if WIDE else {}),
    "gpt2": {"block": GPT2},
    "gpt2, untied": {"block": {**GPT2, "activation": "gelu"}, "sharing": "none"},
}


def language_log_probabilities(model, targets):
    rows = []
    for target in targets:
        logits = model(input_ids=torch.tensor([[EOS] + target[:-1]]), use_cache=False).logits[0].double()
        rows.append(torch.log_softmax(logits, -1))
    return torch.cat(rows)


class LanguageModelTest(Folder):
    TARGETS = [target for _, target in sentences()]

    def exported(self, plain):
        folder = self.folder()
        write_huggingface(plain, folder)
        model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
        self.assertFalse(any(info.values()), info)
        return folder, model.eval()

    def expected(self, plain):
        with torch.no_grad():
            return torch.cat([Model.of(plain, torch.float64).log_probabilities(None, pad([[EOS] + target[:-1]]))[0] for target in self.TARGETS])

    def assert_equal_models(self, wanted, found):
        self.assertEqual(wanted.weights.keys(), found.weights.keys())
        for name, value in wanted.weights.items():
            np.testing.assert_array_equal(value, found.weights[name], name)

    def test_log_probabilities_there_and_back(self):
        cases = {**LANGUAGE_MODELS, "vaswani": {}, "no biases or shifts": {"block": {**GPT2, "biases": "none", "norm_shift": False}}}
        for kind, settings in cases.items():
            for method in ("pre_ln", "ln_scaling", "completep"):
                with self.subTest(kind, method=method):
                    plain = language_model(method, **settings)
                    folder, model = self.exported(plain)
                    with torch.no_grad():
                        found = language_log_probabilities(model, self.TARGETS)
                    wanted = self.expected(plain)
                    self.assertLess((found - wanted).abs().max(), 1e-5)
                    back = read_huggingface(folder)
                    self.assertLess((self.expected(back) - wanted).abs().max(), 1e-6)
                    self.assert_a_module(plain, None)
                    if method == "pre_ln" and kind in LANGUAGE_MODELS:
                        self.assert_equal_models(plain, back)
                        self.assertEqual(block_of(plain.model), block_of(back.model))

    def test_gradients(self):
        for kind, settings in LANGUAGE_MODELS.items():
            with self.subTest(kind):
                plain = language_model("pre_ln", **settings, label_smoothing=0.0)
                _, model = self.exported(plain)
                targets = torch.tensor([token for target in self.TARGETS for token in target])
                nll = -language_log_probabilities(model, self.TARGETS)[torch.arange(len(targets)), targets]
                nll.mean().backward()
                ours = Model.of(plain, torch.float64)
                ours.loss([((), target) for target in self.TARGETS])[0].backward()
                self.assert_equal_gradients(plain, ours, model)

    def test_models_of_transformers_come_in_and_go_out_with_the_same_bits(self):
        sizes = {"vocab_size": 50, "initializer_range": 0.2, "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2}
        llama = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, **sizes}
        gpt2 = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 64, **sizes}
        torch.manual_seed(5)
        qwen3 = [transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**llama, num_key_value_heads=2, head_dim=6))] if WIDE else []
        for model in (*qwen3, transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama, num_key_value_heads=2)),
                      transformers.LlamaForCausalLM(transformers.LlamaConfig(**llama, tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
                      transformers.GPT2LMHeadModel(transformers.GPT2Config(**gpt2))):
            for dtype in (torch.float32, torch.bfloat16):  # what is stored in bf16 goes out in fp32
                folder, back = self.folder(), self.folder()
                model.eval().to(dtype).save_pretrained(folder)
                Path(folder, "vocabulary.txt").write_text("".join(f"{word} 1\n" for word in WORDS), "utf-8")
                plain = read_huggingface(folder)
                if dtype == torch.float32:
                    with torch.no_grad():
                        self.assertLess((language_log_probabilities(model, self.TARGETS) - self.expected(plain)).abs().max(), 1e-5)
                write_huggingface(plain, back)
                wanted, found = (read_safetensors(os.path.join(place, "model.safetensors")) for place in (folder, back))
                if isinstance(model, transformers.GPT2LMHeadModel):  # as in old files
                    add_buffer(folder, "transformer.h.0.attn.bias", torch.ones(1, 1, 64, 64).tril().bool())
                    self.assertEqual(read_huggingface(folder).weights.keys(), plain.weights.keys())
                self.assertEqual(wanted.keys(), found.keys())
                for name, value in wanted.items():
                    np.testing.assert_array_equal(value, found[name], name)
                self.assertEqual(json.loads(Path(back, "config.json").read_text()).get("n_ctx"), 64 if "GPT2" in type(model).__name__ else None)

    def test_greedy_text_through_the_tokenizer(self):
        plain = language_model("pre_ln", block=LLAMA, max_positions=20)
        plain.facts["validation_nll"] = 2.5
        folder, model = self.exported(plain)
        for part in ("3 decoder layers, 6 sublayers", "| validation nll | 2.5000 a token |", "pipeline_tag: text-generation\n",
                     "folded into a plain Pre-LN"):
            self.assertIn(part, Path(folder, "README.md").read_text("utf-8"))
        self.assertEqual(json.loads(Path(folder, "generation_config.json").read_text("utf-8"))["max_length"], 19, "20 is transformers' mark")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        ids = tokenizer("word3  word7 </s>", return_tensors="pt")["input_ids"]
        self.assertEqual(ids.tolist(), [[EOS, 7, 11, 3]])
        found, sequence = model.generate(ids, do_sample=False, max_length=9)[0].tolist(), ids[0].tolist()
        while len(sequence) < len(found):
            with torch.no_grad():
                row = Model.of(plain).log_probabilities(None, torch.tensor([sequence]))[0, -1]
            row[[0, 1] + ([EOS] if len(sequence) == len(ids[0]) else [])] = -np.inf
            sequence.append(int(row.argmax()))
        self.assertEqual(found, sequence)

    def test_a_tokenizer_json_goes_with_its_ids(self):
        def special(i, content):
            return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}

        begin = {"id": "<begin>", "ids": [47], "tokens": ["<begin>"]}
        begins = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<begin>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                  "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<begin>": begin}}
        whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [special(46, "<end>"), special(47, "<begin>")], "normalizer": None,
                 "pre_tokenizer": {"type": "Whitespace"}, "post_processor": begins, "decoder": None,
                 "model": {"type": "WordLevel", "vocab": {word: i for i, word in enumerate(WORDS)}, "unk_token": "word0"}}
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        adds = {"bos_token": "<begin>", "add_bos_token": True}
        llama = {**adds, "tokenizer_class": "LlamaTokenizerFast"}
        by_default = {"bos_token": "<begin>", "tokenizer_class": "LlamaTokenizer"}
        for post_processor, declared, start in ((begins, {"mask_token": "word5"}, 47), (None, llama, 47), (None, by_default, 47), (byte_level, llama, 47),
                                                (None, adds, 46), (None, {}, 46)):
            folder, back = self.changed("llama"), self.folder()
            os.remove(os.path.join(folder, "vocabulary.txt"))
            Path(folder, "tokenizer.json").write_text(json.dumps({**whole, "post_processor": post_processor}), "utf-8")
            Path(folder, "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<end>"}, **declared}), "utf-8")
            with contextlib.redirect_stderr(io.StringIO()) as printed:
                plain = read_huggingface(folder)
            self.assertIn("2 of the model's 50 rows have no token", printed.getvalue())
            self.assertEqual([plain.model[name] for name in ("start_token", "end_token", "reserved_ids")], [start, 46, False])
            write_huggingface(plain, back)
            self.assertEqual(Path(back, "tokenizer.json").read_bytes(), plain.vocabularies["tokenizer.json"])
            tokenizer = transformers.AutoTokenizer.from_pretrained(back)
            self.assertEqual(tokenizer("word3 word7<end>")["input_ids"], [47, 3, 7, 46] if start == 47 else [3, 7, 46])
            self.assertEqual((len(tokenizer), tokenizer.eos_token_id, tokenizer.bos_token_id), (50, 46, start))
            config = transformers.AutoConfig.from_pretrained(back)
            self.assertEqual((config.bos_token_id, config.eos_token_id, config.pad_token_id), (start, 46, 46))
            generation = json.loads(Path(back, "generation_config.json").read_text("utf-8"))
            self.assertEqual(generation.get("suppress_tokens", []), [47] * (start == 47) + [5] * ("mask_token" in declared))
            self.assertEqual((generation["do_sample"], generation["top_k"]), (True, 0))  # as `hadal sample` draws
            ours, target = Model.of(plain), [3, 7, 46]
            wanted = -ours.log_probabilities(None, torch.tensor([[start, *target[:-1]]]))[0, range(3), target]
            torch.testing.assert_close(ours.loss([((), target)])[1], wanted)
            self.assert_equal_models(plain, read_huggingface(back))
        ends = {"SpecialToken": {"id": "<end>", "type_id": 0}}
        both = {**begins, "single": [*begins["single"], ends], "special_tokens": {"<begin>": begin, "<end>": {"id": "<end>", "ids": [46], "tokens": ["<end>"]}}}
        self.assertEqual(first_token("it", json.dumps({"post_processor": both}).encode(), 46), 47)
        with self.assertRaisesRegex(Refusal, "adds 2 tokens to a text beside the one that ends it"):
            first_token("it", json.dumps({"post_processor": both}).encode(), 3)
        Path(folder, "tokenizer_config.json").write_text("{}", "utf-8")
        Path(folder, "config.json").write_text(json.dumps({**json.loads(Path(folder, "config.json").read_text("utf-8")), "eos_token_id": None}), "utf-8")
        with self.assertRaisesRegex(Refusal, "hadal's texts end with it"):
            read_huggingface(folder)

    def changed(self, kind, change_config=lambda config: None, change_weights=lambda weights: None):
        """A folder whose files were changed after the export."""
        folder = self.folder()
        write_huggingface(language_model("pre_ln", **LANGUAGE_MODELS[kind]), folder)
        for name, change, read, write in (
                ("config.json", change_config, lambda path: json.loads(Path(path).read_text("utf-8")),
                 lambda path, config: Path(path).write_text(json.dumps(config), "utf-8")),
                ("model.safetensors", change_weights, read_safetensors, write_safetensors)):
            value = read(os.path.join(folder, name))
            change(value)
            write(os.path.join(folder, name), value)
        return folder

    def test_other_files_of_the_same_model(self):
        def old_llama(config):  # transformers 4
            for name in ("rope_parameters", "head_dim", "attention_bias", "mlp_bias"):
                del config[name]

        def of_the_body(weights):  # without the head's class; with buffers
            for name in [name for name in weights if name.startswith("transformer.")]:
                weights[name.removeprefix("transformer.")] = weights.pop(name)
            weights.update({"h.0.attn.bias": np.ones((1, 1, 64, 64), np.float32), "lm_head.weight": weights["wte.weight"]})

        new_llama = lambda config: [config.pop(name) for name in ("rope_theta", "rope_scaling")]
        for kind, change in (("llama", {"change_config": old_llama}), ("llama", {"change_config": new_llama}), ("gpt2", {"change_weights": of_the_body}),
                             ("gpt2", {"change_config": lambda config: config.update(activation_function="gelu_pytorch_tanh")})):
            wanted, found = read_huggingface(self.changed(kind)), read_huggingface(self.changed(kind, **change))
            self.assertEqual(wanted.model, found.model)
            self.assert_equal_models(wanted, found)
        longer = self.changed("llama", lambda config: config.update(max_position_embeddings=1 << 17))
        self.assertEqual(read_huggingface(longer).model["max_positions"], 1 << 16)

    def test_defaults_are_those_of_transformers(self):
        """Of config.json without them, as transformers saves those of its defaults in some versions. 0 stands for what it derives."""
        for kind in ARCHITECTURES.keys() & transformers.models.auto.configuration_auto.CONFIG_MAPPING.keys():
            config, architecture = transformers.AutoConfig.for_model(kind), ARCHITECTURES[kind]
            for name, value in {**architecture.defaults, **architecture.fixed}.items():
                if type(value) is not int or value > 0:
                    self.assertEqual(getattr(config, name, value), value, f"{kind}.{name}")

    def test_qwen3_with_biases_of_queries_keys_and_values(self):
        plain = language_model("pre_ln", block={**LLAMA, "kv_heads": 2, "query_key_norm": True, "biases": "qkv"})
        folder = self.folder()
        write_huggingface(plain, folder)
        back = read_huggingface(folder)
        self.assert_equal_models(plain, back)
        self.assertEqual(block_of(plain.model), block_of(back.model))

    def test_what_hadal_is_not_is_refused_by_name(self):
        cases = {
            "rope_type is 'yarn'": ("llama", {"change_config": lambda c: c["rope_parameters"].update(rope_type="yarn")}),
            "rope_type is 'linear'": ("llama", {"change_config": lambda c: [c.pop("rope_parameters"), c.update(rope_scaling={"type": "linear", "factor": 2.0})]}),
            "rope_scaling and rope_parameters differ": ("llama", {"change_config": lambda c: c.update(rope_scaling={"rope_type": "llama3"})}),
            "are 1.0 and 8.0; hadal has 1 and 4": ("llama, scaled", {"change_config": lambda c: [c[name].update(high_freq_factor=8.0) for name in (
                "rope_scaling", "rope_parameters")]}),
            "rope_theta and rope_parameters differ": ("llama", {"change_config": lambda c: c.update(rope_theta=7.0)}),
            "scale_attn_by_inverse_layer_idx is True": ("gpt2", {"change_config": lambda c: c.update(scale_attn_by_inverse_layer_idx=True)}),
            "activation_function is 'tanh'": ("gpt2", {"change_config": lambda c: c.update(activation_function="tanh")}),
            "lacks hidden_size": ("llama", {"change_config": lambda c: c.pop("hidden_size")}),
            "says 4 decoder layers": ("gpt2", {"change_config": lambda c: c.update(n_layer=4)}),
            "attn.c_attn.weight has the shape": ("gpt2", {"change_weights": lambda w: w.update({"transformer.h.1.attn.c_attn.weight": np.zeros((16, 7), np.float32)})}),
            "lacks transformer.h.1.ln_1.bias": ("gpt2", {"change_weights": lambda w: w.pop("transformer.h.1.ln_1.bias")}),
            "lacks lm_head.weight, and": ("gpt2, untied", {"change_weights": lambda w: w.pop("lm_head.weight")}),
            "lm_head.weight differs from the embedding": ("gpt2", {"change_weights": lambda w: w.update({"lm_head.weight": np.zeros((50, 16), np.float32)})}),
            "weights that LlamaForCausalLM lacks, the first model.extra": ("llama", {"change_weights": lambda w: w.update(extra=np.zeros(3, np.float32))}),
            "for none; here decoder.layers.0.self_attn.out_proj.bias": (
                "llama, shared keys, biases", {"change_weights": lambda w: w.update({"model.layers.0.self_attn.o_proj.bias": np.ones(16, np.float32)})}),
        }
        for reason, (kind, changes) in cases.items():
            with self.subTest(reason), self.assertRaisesRegex(Refusal, reason):
                read_huggingface(self.changed(kind, **changes))

    def test_what_transformers_has_not_is_refused_by_name(self):
        cases = {
            'GPT2LMHeadModel has decoder layers whose norm is "pre"': language_model("deepnorm", block=GPT2),
            "GPT2LMHeadModel has model.block.positions 'learned', this model 'none'": language_model("pre_ln", block={**GPT2, "positions": "none"}),
            "LlamaForCausalLM has model.block.rotary_share 1.0, this model 0.5": language_model("pre_ln", block={**LLAMA, "rotary_share": 0.5}),
            "GPT2LMHeadModel has model.block.kv_heads 4, this model 2": language_model("pre_ln", block={**GPT2, "kv_heads": 2}),
            "LlamaForCausalLM has model.block.later None, this model 3": language_model("pre_ln", block={**LLAMA, "later": 3}),
            "decoder.ffn_inner_norm": language_model("pre_ln", block=GPT2, decoder={"norm": "pre", "ffn_inner_norm": True}),
            "takes encoder-decoders with the block of Vaswani": plain_model(block=GPT2),
        }
        for reason, plain in cases.items():
            with self.subTest(reason), self.assertRaisesRegex(Refusal, reason):
                write_huggingface(plain, self.folder())


class EncoderAloneTest(Folder):
    BERT = {"activation": "gelu", "positions": "learned", "scale_embedding": False, "embedding_norm": True, "norm_epsilon": 1e-12}
    MODERNBERT = {"norm_shift": False, "activation": "gelu", "gated": True, "biases": "none", "positions": "rotary", "scale_embedding": False,
                  "rotary_theta": 500.0, "rotary_local_theta": 50.0, "window": 4, "global_every": 2, "first_norm": False, "embedding_norm": True}
    SOURCES = [source for source, _ in sentences()]

    def expected(self, plain):
        with torch.no_grad():
            return torch.cat([Model.of(plain, torch.float64).log_probabilities(pad([source]), None)[0] for source in self.SOURCES])

    def found(self, model):
        rows = [model(input_ids=torch.tensor([source])).logits[0].double() for source in self.SOURCES]
        return torch.log_softmax(torch.cat(rows), -1)

    def encoder(self, method, **settings):
        return plain_model(**{**METHODS[method], "layers": (3, 0), "spread": 0.2, "block": self.BERT, **settings})

    def test_there_and_back_of_every_method(self):
        cases = [("post_ln", {}), ("post_ln", {"sharing": "none"}), ("deepnorm", {}), ("branchnorm", {}), ("admin", {}),
                 ("post_ln", {"block": {"embedding_norm": True}}), ("deepnorm", {"block": {**self.BERT, "biases": "none", "norm_shift": False}})]
        for method, settings in cases:
            with self.subTest(method, **settings):
                plain, folder = self.encoder(method, **settings), self.folder()
                write_huggingface(plain, folder)
                model, info = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
                self.assertFalse(info["missing_keys"] or info["mismatched_keys"] or info["unexpected_keys"], info)
                with torch.no_grad():
                    found = self.found(model.eval())
                wanted, back = self.expected(plain), read_huggingface(folder)
                self.assertLess((found - wanted).abs().max(), 1e-5)
                self.assertLess((self.expected(back) - wanted).abs().max(), 1e-6)
                if method == "post_ln" and settings.get("block") is None:
                    self.assertEqual(plain.weights.keys(), back.weights.keys())
                    for name, value in plain.weights.items():
                        np.testing.assert_array_equal(value, back.weights[name], name)

    def test_an_epsilon_too_large_to_fold_is_refused(self):
        for method, epsilon in (("post_ln", 1e-3), ("deepnorm", 1.3e-4)):
            write_huggingface(self.encoder(method, block={**self.BERT, "norm_epsilon": epsilon}), self.folder())
        with self.assertRaisesRegex(Refusal, "norm_epsilon 0.001 is too large to fold"):
            write_huggingface(self.encoder("deepnorm", block={**self.BERT, "norm_epsilon": 1e-3}), self.folder())

    def test_gradients(self):
        for method, block in [("post_ln", self.BERT), *([("pre_ln", self.MODERNBERT)] if WIDE else [])]:
            with self.subTest(method):
                plain, folder = self.encoder(method, block=block, label_smoothing=0.0), self.folder()
                write_huggingface(plain, folder)
                model = transformers.AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="eager").eval()
                targets = [source[::-1] for source in self.SOURCES]
                labels = torch.tensor([token for target in targets for token in target])
                (-self.found(model)[torch.arange(len(labels)), labels]).mean().backward()
                ours = Model.of(plain, torch.float64)
                ours.loss(list(zip(self.SOURCES, targets)))[0].backward()
                self.assert_equal_gradients(plain, ours, model)

    @unittest.skipUnless(WIDE, "transformers 4.44 has no ModernBERT")
    def test_modernbert_there_and_back(self):
        for method in ("pre_ln", "ln_scaling", "completep"):
            with self.subTest(method):
                plain, folder = self.encoder(method, block=self.MODERNBERT), self.folder()
                write_huggingface(plain, folder)
                model, info = transformers.AutoModelForMaskedLM.from_pretrained(folder, output_loading_info=True, attn_implementation="eager")
                self.assertFalse(info["missing_keys"] or info["mismatched_keys"] or info["unexpected_keys"], info)
                with torch.no_grad():
                    found = self.found(model.eval())
                wanted, back = self.expected(plain), read_huggingface(folder)
                self.assertLess((found - wanted).abs().max(), 1e-5)
                self.assertLess((self.expected(back) - wanted).abs().max(), 1e-6)
                self.assertEqual(block_of(plain.model), block_of(back.model))
                again = self.folder()
                model.save_pretrained(again)
                Path(again, "vocabulary.txt").write_bytes(plain.vocabularies["vocabulary.txt"])
                for name, value in read_huggingface(again).weights.items():
                    np.testing.assert_array_equal(value, back.weights[name], name)

    def test_a_modernbert_of_transformers_4_has_the_same_block(self):
        plain, folder = self.encoder("pre_ln", block=self.MODERNBERT), self.folder()
        write_huggingface(plain, folder)
        for name, value in read_huggingface(folder).weights.items():
            np.testing.assert_array_equal(value, plain.weights[name], name)
        path = Path(folder, "config.json")
        config = json.loads(path.read_text("utf-8"))
        def read(**changes):
            path.write_text(json.dumps({**config, **changes}), "utf-8")
            return block_of(read_huggingface(folder).model)

        full, sliding = "full_attention", "sliding_attention"
        self.assertEqual(read(layer_types=[full, sliding, sliding])["global_every"], 3)
        linear = {**config["rope_parameters"], full: {**config["rope_parameters"][full], "rope_type": "linear"}}
        for changes, reason in (({"layer_types": [sliding, full, sliding]}, r"full attention in the layers \[1\]"), ({"rope_parameters": linear}, "is 'linear'"),
                                ({"classifier_activation": "silu"}, "classifier_activation is 'silu'")):
            with self.assertRaisesRegex(Refusal, reason):
                read(**changes)
        del config["layer_types"], config["rope_parameters"]
        self.assertEqual(block_of(plain.model), read())
        self.assertEqual(read(local_rope_theta=None)["rotary_local_theta"], 0, "the other theta")
        other = self.folder()
        write_huggingface(self.encoder("pre_ln", block={**self.MODERNBERT, "rotary_local_theta": 0.0}), other)
        self.assertEqual(json.loads(Path(other, "config.json").read_text("utf-8"))["local_rope_theta"], 500)
        with self.assertRaisesRegex(Refusal, "has a window and every n-th layer without it, this model 0 and 2"):
            write_huggingface(self.encoder("pre_ln", block={**self.MODERNBERT, "window": 0}), self.folder())

    def test_models_of_transformers(self):
        torch.manual_seed(5)
        model = transformers.BertForMaskedLM(transformers.BertConfig(
            vocab_size=50, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4, max_position_embeddings=64,
            initializer_range=0.2, pad_token_id=1)).eval()
        for dtype in (torch.bfloat16, torch.float32):
            folder = self.folder()
            model.to(dtype).save_pretrained(folder)
            Path(folder, "vocabulary.txt").write_text("".join(f"{word} 1\n" for word in WORDS), "utf-8")
            wanted = read_huggingface(folder)
            with torch.no_grad():
                self.assertLess((self.found(model.float()) - self.expected(wanted)).abs().max(), 1e-5)
        add_buffer(folder, "bert.embeddings.position_ids", torch.arange(64)[None])
        self.assertEqual(read_huggingface(folder).weights.keys(), wanted.weights.keys())
        path = os.path.join(folder, "model.safetensors")
        weights = read_safetensors(path)
        del weights["bert.embeddings.position_ids"]
        weights["cls.predictions.decoder.bias"] = weights["cls.predictions.bias"]
        old = {name.removeprefix("bert.").replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): value
               for name, value in weights.items()}
        write_safetensors(path, {**old, "pooler.dense.weight": np.zeros((16, 16), np.float32)})
        for name, value in read_huggingface(folder).weights.items():
            np.testing.assert_array_equal(value, wanted.weights[name], name)
        weights["cls.predictions.decoder.bias"] = np.ones(50, np.float32)
        write_safetensors(path, weights)
        with self.assertRaisesRegex(Refusal, "cls.predictions.bias and cls.predictions.decoder.bias differ"):
            read_huggingface(folder)
        del weights["cls.predictions.bias"]
        write_safetensors(path, weights)
        with self.assertRaisesRegex(Refusal, "lacks cls.predictions.bias: this is a model without its head"):
            read_huggingface(folder)

    def test_the_tokenizer_knows_the_mask(self):
        plain, folder = self.encoder("deepnorm"), self.folder()
        plain.vocabularies = {"vocabulary.txt": "".join(f"{word} 1\n" for word in [*WORDS[:45], "<mask>"]).encode()}
        write_huggingface(plain, folder)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        self.assertEqual(tokenizer(f"word3 {tokenizer.mask_token} word7")["input_ids"], [7, 49, 11, EOS])
        filled = transformers.pipeline("fill-mask", model=folder)("word3 <mask> word7", top_k=1)[0]
        with torch.no_grad():
            row = Model.of(plain).log_probabilities(pad([[7, 49, 11, EOS]]), None)[0, 1]
        self.assertEqual(filled["token"], int(row.argmax()))

    def test_a_tokenizer_json_fills_the_same_word_and_comes_back(self):
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        words = [*special, *WORDS[:45]]
        pieces = [*special, *"word\u01200123456789", "wo", "wor", "word", "\u0120word"]
        bert = tokenizers.Tokenizer(tokenizers.models.WordPiece({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
        bert.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        modern = tokenizers.Tokenizer(tokenizers.models.BPE({piece: i for i, piece in enumerate(pieces)},
                                                               [("w", "o"), ("wo", "r"), ("wor", "d"), ("\u0120", "word")]))
        modern.pre_tokenizer, modern.decoder = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False), tokenizers.decoders.ByteLevel()
        cases = [("post_ln", self.BERT, bert, ["[CLS]", "word3", "[MASK]", "word7", "[SEP]"]),
                 ("pre_ln", self.MODERNBERT, modern, ["[CLS]", "word", "3", "[MASK]", "\u0120word", "7", "[SEP]"])]
        for method, block, tokenizer, tokens in cases if WIDE else cases[:1]:
            with self.subTest(method):
                mask = tokenizers.AddedToken("[MASK]", lstrip=tokenizer is modern)
                tokenizer.add_special_tokens([*special[:4], mask])
                tokenizer.post_processor = tokenizers.processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
                plain, folder, again = self.encoder(method, block=block, target_vocabulary=tokenizer.get_vocab_size()), self.folder(), self.folder()
                plain.vocabularies = {"tokenizer.json": tokenizer.to_str().encode()}
                plain.model.update(start_token=3, end_token=3, reserved_ids=False, mask_token=4)
                write_huggingface(plain, folder)
                ids = transformers.AutoTokenizer.from_pretrained(folder)("word3 [MASK] word7")["input_ids"]
                self.assertEqual(ids, [tokenizer.token_to_id(token) for token in tokens])
                filler = transformers.pipeline("fill-mask", model=folder)
                with torch.no_grad():
                    row = Model.of(plain).log_probabilities(torch.tensor([ids]), None)[0, tokens.index("[MASK]")]
                self.assertEqual(filler("word3 [MASK] word7", top_k=1)[0]["token"], int(row.argmax()))
                pairs = [([2, 1, 7, 3], [7, 1, 9, 3]), ([2, 1, 3], [1, 8, 3])]  # id 1 is a token like others
                with torch.no_grad():
                    found = [torch.log_softmax(filler.model(torch.tensor([s])).logits[0].double(), -1)[range(len(s)), t] for s, t in pairs]
                self.assertLess(np.abs(torch.cat(found).numpy() - expected(plain, pairs)).max(), 1e-4)
                filler.save_pretrained(again)  # as transformers writes it
                for origin in (folder, again):
                    back = read_huggingface(origin)
                    self.assertEqual({name: back.model[name] for name in ("start_token", "end_token", "reserved_ids", "mask_token")},
                                     {"start_token": 3, "end_token": 3, "reserved_ids": False, "mask_token": 4})
                    self.assertEqual(parse_vocabulary("tokenizer.json", back.vocabularies["tokenizer.json"]).tokens,
                                     parse_vocabulary("tokenizer.json", plain.vocabularies["tokenizer.json"]).tokens)
                os.remove(os.path.join(folder, "tokenizer_config.json"))  # its names are then the usual ones, and the post-processor tells the ends
                config = json.loads(Path(folder, "config.json").read_text("utf-8"))
                Path(folder, "config.json").write_text(json.dumps({name: config[name] for name in config if name not in ("eos_token_id", "sep_token_id")}))
                whole = {**json.loads(tokenizer.to_str()), "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}}
                Path(folder, "tokenizer.json").write_text(json.dumps(whole).replace("[MASK]", "<mask>"), "utf-8")
                back = read_huggingface(folder)
                self.assertEqual((back.model["end_token"], back.model["mask_token"]), (3, 4))


if __name__ == "__main__":
    if not WIDE:
        print(f"[  SKIPPED ] Llama's width of a head, Qwen3, ModernBERT (transformers {transformers.__version__})", flush=True)
    unittest.main(buffer=True)
