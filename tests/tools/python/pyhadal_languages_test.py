"""The wrong-language shares that `hadal evaluate` asks for."""

import tempfile
import unittest
from pathlib import Path

from lingua import Language

from pyhadal.languages import _languages, wrong_languages
from pyhadal.refusal import Refusal


def write(folder, name, text):
    Path(folder, name).write_text(text, "utf-8")


class LanguagesTest(unittest.TestCase):
    def test_codes_of_macrolanguages_members_are_known(self):
        for code, language in {"de": "GERMAN", "zh_cn": "CHINESE", "deu_Latn": "GERMAN", "arb_Arab": "ARABIC", "ary": "ARABIC", "pes": "PERSIAN",
                               "swh": "SWAHILI", "zsm": "MALAY", "lvs": "LATVIAN", "als": "ALBANIAN", "azj": "AZERBAIJANI", "khk": "MONGOLIAN",
                               "ekk": "ESTONIAN", "cmn": "CHINESE", "fil": "TAGALOG", "iw": "HEBREW", "in": "INDONESIAN", "no": "BOKMAL"}.items():
            self.assertEqual(_languages(code), (getattr(Language, language),), code)
        self.assertEqual(_languages("tlh"), ())

    def test_serbian_may_be_in_latin_letters(self):
        with tempfile.TemporaryDirectory() as folder:
            for code in ("sh", "sr", "srp_Latn"):
                write(folder, f"en-{code}.hypothesis", "Ovo je kuća mog oca, a ovo je njegov stari automobil.\nНе знам где се налази железничка станица.\n")
                write(folder, f"en-{code}.reference", "This is the house of my father.\n")
                self.assertEqual(wrong_languages(folder, {f"en-{code}": ("en", code)}), {f"en-{code}": {"hypothesis": 0, "reference": 1}}, code)

    def test_shares_are_of_the_lines_that_are_not_blank(self):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "en-de.hypothesis", "Das ist ein Haus.\n\nThis is the house of my father.\n")
            write(folder, "en-de.reference", "Das ist gut.\n")
            self.assertEqual(wrong_languages(folder, {"en-de": ("en", "de")}), {"en-de": {"hypothesis": 0.5, "reference": 0}})
        with self.assertRaisesRegex(Refusal, "fewer than two"):
            wrong_languages(".", {"en-tlh": ("en", "tlh")})


if __name__ == "__main__":
    unittest.main()
