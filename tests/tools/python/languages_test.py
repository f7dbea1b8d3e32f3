"""The wrong-language shares that `hadal evaluate` asks for."""

import json
import os
import tempfile
import unittest

from lingua import Language

from hadal_torch.languages import _languages, write_languages


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
                with open(os.path.join(folder, f"en-{code}.hypothesis"), "w", encoding="utf-8") as file:
                    file.write("Ovo je kuća mog oca, a ovo je njegov stari automobil.\nНе знам где се налази железничка станица.\n")
                with open(os.path.join(folder, f"en-{code}.reference"), "w", encoding="utf-8") as file:
                    file.write("This is the house of my father.\n")
                with open(write_languages(folder, [f"en-{code}"]), encoding="utf-8") as file:
                    self.assertEqual(json.load(file)[f"en-{code}"], {"hypothesis": 0, "reference": 1}, code)

    def test_shares_are_of_the_given_test_sets(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {"en-de.hypothesis": "Das ist ein Haus.\nThis is the house of my father.\n", "en-de.reference": "Das ist gut.\n",
                               "en-ja.hypothesis": "これは家です。\n"}.items():  # an earlier evaluation's
                with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                    file.write(text)
            with open(write_languages(folder, ["en-de"]), encoding="utf-8") as file:
                shares = json.load(file)
        self.assertEqual(shares.keys(), {"classifier", "en-de"})
        self.assertEqual(shares["en-de"], {"hypothesis": 0.5, "reference": 0})


if __name__ == "__main__":
    unittest.main()
