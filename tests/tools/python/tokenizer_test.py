"""tokenizer.json that hadal_torch writes of SentencePiece models, against SentencePiece itself."""

import json
import random
import unicodedata
import unittest

import sentencepiece
import tokenizers

from hadal_torch import Refusal
from hadal_torch.tokenizer import SPECIAL, parse_vocabulary, tokenizer_json
from random_models import random_text, sentencepiece_model

ODD = ["", " ", "  two  spaces ", "tab\tand\u00a0no-break", "ﬁne ½ Å ①", "a🙂b 漢字", "ＷＩＤＥ", "x" * 40, "end.", "\u3000a", "a\t",
       "\u00a0a\u00a0", "ﾃﾞｰﾀ ﾊﾟ", unicodedata.normalize("NFD", "한국어 문장 Tiếng Việt")]
RESERVED = "<0x41> ＜/s＞ a ＿＿de＿＿"


class TokenizerTest(unittest.TestCase):
    def test_ids_and_text_are_those_of_sentencepiece(self):
        for settings in ({"model_type": "unigram"}, {"model_type": "bpe"}, {"model_type": "bpe", "normalization_rule_name": "identity"},
                         {"model_type": "unigram", "byte_fallback": True, "vocab_size": 420},
                         {"model_type": "unigram", "add_dummy_prefix": False}, {"model_type": "bpe", "remove_extra_whitespaces": False},
                         {"model_type": "unigram", "normalization_rule_name": "nfkc_cf", "vocab_size": 240, "text": [*ODD, *"<>/_sde0x4"],
                          "control_symbols": ["__de__"]},
                         {"model_type": "bpe", "vocab_size": 240, "text": [*ODD, *"<>/_sde0x4"]}):
            with self.subTest(**settings):
                contents = sentencepiece_model(**settings)
                reference = sentencepiece.SentencePieceProcessor(model_proto=contents)
                tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(parse_vocabulary("vocabulary.model", contents))))
                for line in random_text(200)[100:] + ODD + [RESERVED] * ("text" in settings):
                    ids = reference.encode(line)
                    self.assertEqual(tokenizer.encode(line).ids, [*ids, 2], repr(line))
                    if 3 not in ids:
                        self.assertEqual(tokenizer.decode([*ids, 2]), reference.decode(ids))

    def test_text_spells_reserved_tokens_whatever_characters_the_model_knows(self):
        source = random.Random(1)
        parts = [*SPECIAL, "<", "</", "s>", ">", "<<s>", "a</s>b", "<0x41>", *"word an".split()]
        lines = [source.choice([" ", ""]).join(source.choices(parts, k=source.randint(1, 6))) for _ in range(300)]
        for text in ("a", "a < b", "a > /"):
            for settings in ({}, {"byte_fallback": True, "vocab_size": 460}):
                contents = sentencepiece_model(model_type="unigram", text=[text], **settings)
                reference = sentencepiece.SentencePieceProcessor(model_proto=contents)
                tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(parse_vocabulary("vocabulary.model", contents))))
                tokenizer.encode_special_tokens = True  # split_special_tokens of transformers
                for line in lines:
                    self.assertEqual(tokenizer.encode(line).ids, [*reference.encode(line), 2], (text, settings, line))

    def test_special_ids_elsewhere_are_renumbered(self):
        vocabulary = parse_vocabulary("vocabulary.model", sentencepiece_model(model_type="bpe", unk_id=0, bos_id=1, eos_id=2, pad_id=-1))
        self.assertEqual(vocabulary.tokens[:4], ["<s>", "<pad>", "</s>", "<unk>"])
        reference = sentencepiece.SentencePieceProcessor(model_proto=sentencepiece_model(model_type="bpe", unk_id=0, bos_id=1, eos_id=2, pad_id=-1))
        self.assertEqual(vocabulary.tokens[4:], [reference.id_to_piece(i) for i in range(3, reference.vocab_size())])

    def test_special_tokens_are_those_that_the_library_finds(self):
        contents = sentencepiece_model(model_type="bpe", unk_id=0, bos_id=1, eos_id=2, pad_id=-1, control_symbols=["<pad>"])
        reference = sentencepiece.SentencePieceProcessor(model_proto=contents)
        special = {reference.bos_id(), reference.eos_id(), reference.unk_id(), reference.piece_to_id("<pad>")}
        others = [reference.id_to_piece(i) for i in range(reference.vocab_size()) if i not in special]
        self.assertEqual(parse_vocabulary("vocabulary.model", contents).tokens[4:], others)

    def test_what_would_be_cut_differently_is_refused(self):
        for settings in ({"user_defined_symbols": ["@@"]}, {"treat_whitespace_as_suffix": True}, {"split_by_whitespace": False},
                         {"allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False}, {"model_type": "char"}, {"model_type": "word"}):
            vocabulary = parse_vocabulary("vocabulary.model", sentencepiece_model(**{"model_type": "bpe", **settings}))
            with self.subTest(**settings), self.assertRaisesRegex(Refusal, "ctranslate2"):
                tokenizer_json(vocabulary)

    def test_a_language_tag_is_one_token_that_decoding_leaves_out(self):
        for name, contents in (("vocabulary.model", sentencepiece_model(model_type="bpe", control_symbols=["__de__"])),
                               ("vocabulary.txt", b"one 3\n__init__ 3\n__eq__ 3\ntwo 2\n______ 1\n__de__ 1\n<mask> 1\nmadeupword0000 1\n")):
            vocabulary = parse_vocabulary(name, contents)
            tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(vocabulary)))
            tag, text = tokenizer.token_to_id("__de__"), tokenizer.encode("one two").ids
            self.assertEqual(vocabulary.control, [tag] if name.endswith("model") else [tag, tokenizer.token_to_id("<mask>")])
            self.assertEqual(tokenizer.encode("__de__ one two").ids, [tag, *text])
            self.assertEqual(tokenizer.decode([tag, *text]), tokenizer.decode(text))

    def test_a_dictionary_has_a_token_a_line_and_lines_end_at_newlines_alone(self):
        contents = "\ufeffone\u2028two 5\nthree 4 #fairseq:overwrite\r\n".encode()
        self.assertEqual(parse_vocabulary("vocabulary.txt", contents).tokens[4:], ["one\u2028two", "three"])
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json(parse_vocabulary("vocabulary.txt", contents))))
        self.assertEqual(tokenizer.encode(" three\u2028three\u3000three \x1c\t four").ids, [5, 5, 5, 3, 2])

    def test_a_damaged_model_is_refused(self):
        contents = sentencepiece_model(model_type="bpe")
        for damaged in (contents[:-3], b"no model"):
            with self.assertRaisesRegex(Refusal, "no SentencePiece model"):
                parse_vocabulary("vocabulary.model", damaged)


if __name__ == "__main__":
    unittest.main()
