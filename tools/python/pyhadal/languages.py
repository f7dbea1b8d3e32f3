"""Which language a text is in: the shares of wrong ones in the folder that `hadal evaluate` writes.

The classifier is lingua (Apache 2.0), whose models are a part of its package. It chooses among the languages of the folder, the ones
that the translating model knows; a line counts as wrong if it is taken for another one than the direction's target, and not if lingua
cannot tell.
"""

from __future__ import annotations

import importlib.metadata
import os
from collections.abc import Mapping
from typing import Any

from lingua import IsoCode639_1, IsoCode639_3, Language, LanguageDetectorBuilder

from pyhadal.refusal import Refusal

# Codes of languages, and of members of macrolanguages (FLORES, NLLB), that lingua has under another code.
_SAME = {"NO": "NB", "SRP": "SR", "PES": "FAS", "PRS": "FAS", "SWH": "SWA", "ZSM": "MSA", "LVS": "LAV", "ALS": "SQI", "AZJ": "AZE",
         "KHK": "MON", "EKK": "EST", "CMN": "ZHO", "YUE": "ZHO", "FIL": "TGL", "IW": "HE", "IN": "ID",
         **dict.fromkeys("ARB ACM ACQ AEB AJP APC ARS ARY ARZ".split(), "ARA")}


def _languages(code: str) -> tuple[Any, ...]:
    """lingua's languages of a code as en, zh_cn, deu or arb_Arab; empty: it knows none."""
    base = code.split("_")[0].upper()
    base = _SAME.get(base, base)
    if base in ("SH", "SR"):  # lingua's Serbian is Cyrillic; in Latin letters it is told from its neighbours by chance
        return Language.SERBIAN, Language.CROATIAN, Language.BOSNIAN
    if hasattr(IsoCode639_1, base):
        return (Language.from_iso_code_639_1(getattr(IsoCode639_1, base)),)
    if hasattr(IsoCode639_3, base):
        return (Language.from_iso_code_639_3(getattr(IsoCode639_3, base)),)
    return ()


def _wrong_share(detector: Any, path: str, wanted: "tuple[Any, ...]") -> "float | None":
    with open(path, encoding="utf-8", newline="\n") as file:
        lines = [line.strip() for line in file if line.strip()]
    if not lines:
        return None
    return sum(found not in (None, *wanted) for found in detector.detect_languages_in_parallel_of(lines)) / len(lines)


def wrong_languages(folder: str, directions: "Mapping[str, tuple[str, str]]") -> "dict[str, dict[str, float | None]]":
    """stem → the wrong shares of its .hypothesis and .reference; None where lingua lacks the target or all lines are blank.

    `directions`: stem → languages of source and target. Raises Refusal if lingua knows fewer than two of the languages.
    """
    targets = {stem: (_languages(source), _languages(target)) for stem, (source, target) in directions.items()}
    known = {language for pair in targets.values() for languages in pair for language in languages}
    if len(known) < 2:
        raise Refusal("lingua knows fewer than two of the languages")
    detector = LanguageDetectorBuilder.from_languages(*known).build()
    return {stem: {side: _wrong_share(detector, os.path.join(folder, f"{stem}.{side}"), target) if target else None
                   for side in ("hypothesis", "reference")} for stem, (_, target) in targets.items()}


def classifier() -> str:
    """The classifier's name and version."""
    return f"lingua {importlib.metadata.version('lingua-language-detector')}"
