"""`hadal bleu`, `chrf` and `wer` against sacreBLEU and jiwer on 1,000 nasty segments. The program is $HADAL.

What hadal prints must be sacreBLEU's bytes, nine decimals and signature included, but for "+hadal" after the version.
"""

import itertools
import json
import os
import random
import subprocess
import tempfile
import unittest

import jiwer
from sacrebleu.metrics import BLEU, CHRF

SEGMENTS, OF_ONE_FILE = 1000, 100
PIECES = [
    "the", "House", "é", "e\u0301", "a\u0308\u0323", "1,000.5", "3-4", ".5", "U.S.", "don't", "-", "(hi)", "!?", "...", "..,,", "<skipped>",
    "&quot;", "&amp;lt;", "&lt;b&gt;", "&", "\x00", "a\x00b", "\x1b[2J", "\ufeff", "\u200b", "\u200d", "\u00ad", "中文", "的", "\u9fbb", "\u9fbc",
    "\u3400", "\u4db5", "\u4db6", "\U00020000", "\U0002a6d6", "\U0002f800", "\U00030000", "\U0010ffff", "ひらがな", "ｶﾅ", "ＡＢＣ", "，", "。", "“引”", "〇",
    "한국어", "ไทย", "עברית", "हिन्दी", "👩\u200d👩\u200d👧", "🇩🇪", "☂", "→", "∑", "\u2a6d", "\u2a6e", "\u2000x\u2010", "\u2f81", "½", "١", "ß", "İ", "_", "@@", "▁",
]
PUNCTUATION = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
SPACES = [" ", " ", " ", " ", "", "", "  ", "\t", "\u00a0", "\u3000", "\u2009", "\u2028", "\u0085", "\x0b", "\x1c", "\r", " \t", "\u00a0\u00a0", "\ufeff"]


def segment(draw, longest=25):
    kind = draw.randrange(20)
    if kind == 0:
        return ""
    if kind == 1:
        return "".join(draw.choices(SPACES, k=5))
    if kind == 2:
        return "".join(draw.choices(PUNCTUATION, k=draw.randrange(1, 60)))
    if kind == 3:
        return "".join(chr(draw.choice([draw.randrange(0x20, 0x3000), draw.randrange(0x2e80, 0xd800), draw.randrange(0xe000, 0x110000)]))
                       for _ in range(draw.randrange(1, 40))).replace("\n", "")
    return "".join(draw.choice(PIECES) + draw.choice(SPACES) for _ in range(draw.randrange(1, longest)))


def changed(draw, text):
    """Like the text, so that the scores are not 0."""
    for _ in range(draw.randrange(4)):
        at, length = draw.randrange(len(text) + 1), draw.randrange(6)
        text = text[:at] + draw.choice([*PIECES, *SPACES, *PUNCTUATION, ""]) + text[at + length :]
    return text if draw.randrange(20) else segment(draw)


def nasty_files():
    """[files][hypotheses, references, more references] of [OF_ONE_FILE] segments."""
    draw = random.Random(23)
    for number in range(SEGMENTS // OF_ONE_FILE):
        references = [segment(draw) for _ in range(OF_ONE_FILE)]
        references[0] = "\ufeff" + references[0]  # a byte order mark
        references[1] = segment(draw, longest=2000 * (number + 1) if number < 2 else 25)
        yield [changed(draw, text) for text in references], references, [changed(draw, text) for text in references]


class MetricsTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def printed(self, command, hypotheses, *references, options=()):
        paths = [os.path.join(self.directory.name, str(i)) for i in range(1 + len(references))]
        for path, lines in zip(paths, [hypotheses, *references]):
            with open(path, "w", encoding="utf-8", newline="") as file:
                file.writelines(line + "\n" for line in lines)
        with_references = itertools.chain.from_iterable(("-r", path) for path in paths[1:])
        out = subprocess.run([os.environ["HADAL"], command, "-i", paths[0], *with_references, "-w", "9", *options],
                             check=True, capture_output=True)
        return out.stdout.decode()

    def test_bleu_and_chrf_print_sacrebleus_bytes(self):
        metrics = [(["bleu", "--tokenize", name], BLEU(tokenize=name)) for name in ("13a", "char", "zh")]
        metrics += [(["chrf", "--word-order", str(order)], CHRF(word_order=order)) for order in (0, 2)]
        scores = set()
        for number, (hypotheses, *references) in enumerate(nasty_files()):
            for (command, *options), metric in metrics:
                for count in (1, 2):
                    with self.subTest(command=command, options=options, file=number, references=count):
                        score = metric.corpus_score(hypotheses, references[:count])
                        signature = str(metric.get_signature())
                        wanted = score.format(width=9, signature=signature, is_json=True).replace("2.6.0", "2.6.0+hadal")
                        self.assertEqual(self.printed(command, hypotheses, *references[:count], options=options), wanted + "\n")
                        scores.add(score.score)
        self.assertGreater(len(scores), 90)  # of 100: the segments tell the metrics apart

    def test_word_and_character_error_rates(self):
        of_characters = (["--characters"], jiwer.process_characters, "cer")
        for options, process, rate in (([], jiwer.process_words, "wer"), of_characters):
            for number, (hypotheses, references, _) in enumerate(nasty_files()):
                with self.subTest(rate=rate, file=number):
                    printed = json.loads(self.printed("wer", hypotheses, references, options=options))
                    wanted = process(references, hypotheses)
                    errors = wanted.substitutions + wanted.deletions + wanted.insertions
                    self.assertEqual(printed["score"], float(f"{getattr(wanted, rate):.9f}"))
                    length = sum(map(len, wanted.references))
                    self.assertEqual(printed["verbose_score"], f"(errors = {errors} ref_len = {length})")


if __name__ == "__main__":
    unittest.main()
