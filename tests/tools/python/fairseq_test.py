"""hadal_torch's reader and writer of fairseq's checkpoints."""

import argparse
import collections
import contextlib
import io
import os
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy as np
import torch

from hadal_torch import Refusal
from hadal_torch.fairseq import read_fairseq, write_fairseq
from hadal_torch.plain import layer_counts, read_plain, write_plain
from hadal_torch.tokenizer import SPECIAL, dictionary_of, fill, parse_vocabulary
from random_models import METHODS, WORDS, plain_model

UNSAFE = {"weights_only": False} if torch.__version__ >= "2" else {}  # for what these tests wrote themselves


class Malicious:
    def __reduce__(self):
        return os.mkdir, (os.path.join(tempfile.gettempdir(), f"executed{os.getpid()}"),)


class FairseqTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.path = os.path.join(self.directory.name, "checkpoint.pt")
        self.dictionary = os.path.join(self.directory.name, "dict.source.txt")

    def saved(self, change=lambda state: None, **settings):
        """The state of a model that was written, changed, and saved again."""
        plain = plain_model(**settings)
        write_fairseq(plain, self.directory.name)
        state = torch.load(self.path, **UNSAFE)
        change(state)
        torch.save(state, self.path)
        return plain

    def read(self):
        return read_fairseq(self.path, [self.dictionary])

    def assert_equal_weights(self, plain, found):
        self.assertEqual(plain.weights.keys(), found.weights.keys())
        for name, value in plain.weights.items():
            np.testing.assert_array_equal(value, found.weights[name], name)

    def test_what_is_written_is_read_with_the_same_bits(self):
        for settings in ({}, {"sharing": "decoder"}, {"sharing": "none"}, METHODS["pre_ln"], {"dropout": 0.5, "attention_dropout": 0.25, "activation_dropout": 0.125}):
            plain = self.saved(**settings)
            found = self.read()
            self.assert_equal_weights(plain, found)
            self.assertEqual({**plain.model, "label_smoothing": 0.1}, found.model)
            self.assertEqual(found.update, plain.update)
            self.assertEqual(found.vocabularies["vocabulary.txt"].decode().split()[::2], WORDS)
        plain, folder = plain_model(sharing="none", source_vocabulary=30), self.directory.name
        texts = {f"{side}.vocabulary.txt": "".join(f"{word} 1\n" for word in words).encode() for side, words in (("source", WORDS[20:]), ("target", WORDS))}
        plain.vocabularies, plain.facts = texts, {"inputs": {"tags": "m2m100"}}
        write_plain(os.path.join(folder, "m.safetensors"), plain)
        found = read_plain(os.path.join(folder, "m.safetensors"))
        self.assertEqual((found.vocabularies, found.facts), (texts, plain.facts))
        self.assert_equal_weights(plain, found)
        plain.model["max_positions"] = (1 << 16) + 1
        write_plain(os.path.join(folder, "m.safetensors"), plain)
        with self.assertRaisesRegex(Refusal, "max_positions is 65537, hadal's limit 65536"):
            read_plain(os.path.join(folder, "m.safetensors"))
        plain.vocabularies = {**texts, "pieces.model": b"pieces"}
        write_fairseq(plain, folder)
        self.assertEqual(Path(folder, "pieces.model").read_bytes(), b"pieces")
        self.assertEqual(read_fairseq(self.path, [os.path.join(folder, f"dict.{side}.txt") for side in ("source", "target")]).vocabularies, texts)

    def test_names_are_those_that_fairseq_loads_strictly(self):
        self.saved(**METHODS["pre_ln"], layers=(1, 1))
        state = torch.load(self.path, **UNSAFE)["model"]
        self.assertEqual([float(state[f"{stack}.version"]) for stack in ("encoder", "decoder")], [3, 3])  # below 2: without the last norms
        products = [f"{p}_proj" for p in "kvq"] + ["out_proj"]
        modules = {"encoder.layer_norm", "decoder.layer_norm"}
        for stack, attentions in (("encoder", ["self_attn"]), ("decoder", ["self_attn", "encoder_attn"])):
            layer = f"{stack}.layers.0"
            modules |= {f"{layer}.{attention}.{product}" for attention in attentions for product in products}
            modules |= {f"{layer}.{attention}_layer_norm" for attention in attentions}
            modules |= {f"{layer}.fc1", f"{layer}.fc2", f"{layer}.final_layer_norm"}
        wanted = {f"{module}.{kind}" for module in modules for kind in ("weight", "bias")}
        wanted |= {"encoder.version", "decoder.version", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight",
                   "decoder.output_projection.weight"}
        self.assertEqual(set(state), wanted)

    def test_old_layout(self):
        def age(state):
            old = collections.OrderedDict()
            for name, tensor in state["model"].items():
                for stack, norms in (("encoder", ["self_attn", "final"]), ("decoder", ["self_attn", "encoder_attn", "final"])):
                    for index, norm in enumerate(norms):
                        if name.startswith(stack):
                            name = name.replace(f"{norm}_layer_norm", f"layer_norms.{index}")
                old[name] = tensor
            for kind in ("weight", "bias"):
                for attention in {name.rsplit(".", 2)[0] for name in old if "q_proj" in name}:
                    old[f"{attention}.in_proj_{kind}"] = torch.cat([old.pop(f"{attention}.{p}_proj.{kind}") for p in "qkv"])
            old["encoder.embed_positions._float_tensor"] = torch.zeros(1)
            old["decoder.embed_out"] = old.pop("decoder.output_projection.weight")
            state["model"] = old
            state["cfg"], state["args"] = {"model": state["args"]}, None

        plain = self.saved(age)
        self.assert_equal_weights(plain, self.read())

    def test_what_fairseq_0_12_adds_to_encoder_layers_for_inference(self):
        def add(state):
            d, hidden = 16, 24
            shapes = {"in_proj_weight": (3 * d, d), "in_proj_bias": (3 * d,), "out_proj_weight": (d, d), "out_proj_bias": (d,),
                      "fc1_weight": (hidden, d), "fc1_bias": (hidden,), "fc2_weight": (d, hidden), "fc2_bias": (d,)}
            state["model"].update({f"encoder.layers.{i}.{name}": torch.zeros(shape) for i in range(2) for name, shape in shapes.items()})

        plain = self.saved(add)
        self.assert_equal_weights(plain, self.read())

    def test_rows_without_a_token(self):
        self.saved()
        Path(self.dictionary).write_text("".join(f"{word} 7\n" for word in WORDS[:40]), "utf-8")
        with contextlib.redirect_stderr(io.StringIO()) as printed:
            vocabulary = self.read().vocabularies["vocabulary.txt"]
        self.assertRegex(printed.getvalue(), r"dict.source.txt: 6 of the model's 50 rows .*append the tags to dict.txt")
        self.assertTrue(vocabulary.endswith(b"word39 1\n" + b"".join(b"madeupword%04d 1\n" % i for i in range(6))))

    def test_nested_options_and_those_of_old_names(self):
        def nest(state):
            stack = {"attention_heads": 2, "ffn_embed_dim": 24, "normalize_before": False, "learned_pos": False}
            state["cfg"], state["args"] = {"model": {"encoder": stack, "decoder": argparse.Namespace(**stack), "relu_dropout": 0.3,
                                                     "max_source_positions": 512, "max_target_positions": 10**6}}, None
            state["optimizer_history"].insert(0, {"num_updates": 99})
        self.saved(nest)
        found = self.read()
        self.assertEqual([found.model[name] for name in ("heads", "activation_dropout", "max_positions", "label_smoothing")], [2, 0.3, 65536, 0])
        self.assertEqual(found.update, 3)

    def test_tokens_that_repeat_say_so_and_fillers_do_not(self):
        repeated = dictionary_of([*SPECIAL, "a", "<unk>", "a"])
        self.assertEqual(repeated, b"a 1\n<unk> 1 #fairseq:overwrite\na 1 #fairseq:overwrite\n")
        self.assertEqual(parse_vocabulary("vocabulary.txt", repeated).tokens[4:], ["a", "<unk>", "a"])
        for token in ("a b", ""):
            with self.assertRaisesRegex(Refusal, "white space inside"):
                dictionary_of([*SPECIAL, token])
        self.assertEqual(fill(["a", "madeupword0000"], 4, "it"), ["a", "madeupword0000", "madeupword0001", "madeupword0002"])

    def test_half_precision_views_and_the_format_before_1_6(self):
        def change(state):
            self.halved = {name: tensor.half() for name, tensor in state["model"].items()}
            whole = torch.zeros(24, 32).half()
            whole[:, 1::2] = self.halved["decoder.layers.1.fc1.weight"]
            state["model"] = {**self.halved, "decoder.layers.1.fc1.weight": whole[:, 1::2]}
        plain = self.saved(change)
        for new in (True, False):
            torch.save(torch.load(self.path, **UNSAFE), self.path, _use_new_zipfile_serialization=new)
            found = self.read()
            for name in plain.weights:
                np.testing.assert_array_equal(self.halved[name].float().numpy(), found.weights[name], name)
        for dtype in (torch.bfloat16, torch.float64):
            self.saved(lambda state: state["model"].update({name: tensor.to(dtype) for name, tensor in state["model"].items()}))
            wanted = torch.load(self.path, **UNSAFE)["model"]
            for name, value in self.read().weights.items():
                np.testing.assert_array_equal(wanted[name].float().numpy(), value, name)

    def test_code_in_a_pickle_is_refused_and_not_executed(self):
        self.saved(lambda state: state.update(extra=Malicious()))
        with self.assertRaisesRegex(Refusal, "checkpoint.pt: its pickle names posix.mkdir"):
            self.read()
        self.assertFalse(os.path.exists(Malicious().__reduce__()[1][0]))

    def test_small_files_take_no_more_than_they_hold(self):
        shared = [1]
        for _ in range(60):  # 2^60 paths to one number
            shared = [shared, shared]
        endless = []
        endless.append(endless)
        plain = self.saved(lambda state: state.update(extra_state=shared))
        self.assert_equal_weights(plain, self.read())
        self.saved(lambda state: state.update(extra_state=endless))
        with self.assertRaisesRegex(Refusal, "no file of torch.save"):
            self.read()
        self.saved(lambda state: state["model"].update(extra=torch.zeros(1).expand(1 << 40)))
        with self.assertRaisesRegex(Refusal, "no file of torch.save"):
            self.read()

    def test_a_pickle_changes_no_class(self):
        with open(self.path, "wb") as file:
            file.write(b"\x80\x02cargparse\nNamespace\nN}X\x05\x00\x00\x00addedK\x01s\x86b.")
        with self.assertRaises(Refusal):
            self.read()
        self.assertFalse(hasattr(argparse.Namespace, "added"))

    def test_broken_files_are_refused_by_name(self):
        name = "decoder.layers.1.fc1.weight"
        cases = {
            "lacks decoder.layers.1.fc1.weight": lambda state: state["model"].pop(name),
            r"decoder.layers.1.fc1.weight has the shape \[3\]": lambda state: state["model"].update({name: torch.zeros(3)}),
            "the first extra": lambda state: state["model"].update(extra=torch.zeros(3)),
            "activation_fn is 'gelu'": lambda state: setattr(state["args"], "activation_fn", "gelu"),
            "learned positions": lambda state: state["model"].update({"encoder.embed_positions.weight": torch.zeros(3)}),
            "encoder_normalize_before is True": lambda state: setattr(state["args"], "encoder_normalize_before", True),
            "number of heads is not known": lambda state: state.update(args=None, cfg={"model": {"dropout": 0.1}}),
            "neither \"args\" nor \"cfg\"": lambda state: state.pop("args"),
            "lacks \"model\"": lambda state: state.pop("model"),
        }
        others = {"no_scale_embedding": True, "layernorm_embedding": True, "no_token_positional_embeddings": True, "decoder_learned_pos": True,
                  "encoder_learned_pos": True, "adaptive_input": True, "adaptive_softmax_cutoff": "9", "cross_self_attention": True, "no_cross_attention": True,
                  "encoder_attention_heads": 2, "encoder_ffn_embed_dim": 8}
        for option, value in others.items():
            cases[f"{option} is "] = lambda state, option=option, value=value: setattr(state["args"], option, value)
        for reason, change in cases.items():
            with self.subTest(reason):
                self.saved(change)
                with self.assertRaisesRegex(Refusal, reason):
                    self.read()
        for contents in (b"", b"text", b"PK\x03\x04 no archive"):
            with open(self.path, "wb") as file:
                file.write(contents)
            with self.assertRaisesRegex(Refusal, "no file of torch.save"):
                self.read()
        with zipfile.ZipFile(self.path, "w") as archive:
            archive.writestr("a/data.pkl", b"\x80\x02N.")
            archive.writestr("a/constants.pkl", b"")
        with self.assertRaisesRegex(Refusal, "TorchScript programs are not read"):
            self.read()
        with self.assertRaisesRegex(Refusal, "it has weights of 2 encoder layers, but one is of layer 2"):
            layer_counts("it", ["encoder.layers.0.fc1.bias", "encoder.layers.2.fc1.bias"])


if __name__ == "__main__":
    unittest.main(buffer=True)
