#!/usr/bin/env python3
"""Makes two small speech corpora: WAV files and lists for tools/python/speech_features.py (docs/speech.md).

    speech_corpora.py digits RECORDINGS --out DIR [--strings 3000] [--unseen SPEAKER]
    speech_corpora.py spoken SENTENCES.txt --out DIR [--sentences 16000]

digits joins recordings of the Free Spoken Digit Dataset (DIGIT_SPEAKER_INDEX.wav) of one speaker to strings of 3 to 7
digits with silences of 0.05 to 0.25 s. Indices 0 to 4, the official test split, make DIR/test.tsv; 5 to 9
DIR/valid.tsv; the others DIR/train.tsv. With --unseen, train and valid leave the speaker's recordings out, and test.tsv
is made of that speaker's test recordings alone.

spoken lets espeak-ng speak sentences of at most 8 words in three voices, each sentence in one of them; transcripts are
lower case without punctuation. Sentences are drawn and split as texts: none is in two of train, valid and test.
Everything is a function of --seed.
"""
import argparse
import os
import random
import re
import subprocess
import sys

import numpy
import soundfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools/python"))
import speech_features  # noqa: E402  (its resampling)
from pyhadal.files import LOCK, locked  # noqa: E402
from pyhadal.options import number  # noqa: E402
from pyhadal.refusal import Refusal  # noqa: E402

VOICES = ["en-us", "en-gb", "en-gb-scotland"]
RATE = 16000  # of spoken sentences


def digit_splits(folder, unseen):
    """Returns {split: {speaker: [(digit, path)]}}."""
    splits = {"train": {}, "valid": {}, "test": {}}
    for name in sorted(os.listdir(folder)):
        match = re.fullmatch(r"(\d)_(\w+)_(\d+)\.wav", name)
        if not match:
            continue
        digit, speaker, index = match[1], match[2], int(match[3])
        split = "test" if index < 5 else "valid" if index < 10 else "train"
        if unseen and (speaker == unseen) != (split == "test"):
            continue
        splits[split].setdefault(speaker, []).append((digit, os.path.join(folder, name)))
    return splits


def digit_string(recordings, draw):
    """Returns (samples, digits) of 3 to 7 recordings of one speaker."""
    parts, digits = [], []
    for digit, path in draw.choices(recordings, k=draw.randint(3, 7)):
        samples, rate = soundfile.read(path, dtype="int16")
        parts += [numpy.zeros(int(draw.uniform(0.05, 0.25) * rate), numpy.int16), samples]
        digits.append(digit)
    return numpy.concatenate(parts), digits, rate


def make_digits(arguments):
    draw = random.Random(arguments.seed)
    counts = {"train": arguments.strings, "valid": 200, "test": 500}
    for split, speakers in digit_splits(arguments.recordings, arguments.unseen).items():
        if not speakers:
            sys.exit(f"speech_corpora: no recordings for {split} in {arguments.recordings}; is --unseen a speaker?")
        os.makedirs(os.path.join(arguments.out, split), exist_ok=True)
        with open(os.path.join(arguments.out, f"{split}.tsv"), "w", encoding="utf-8") as lines:
            for i in range(counts[split]):
                speaker = draw.choice(sorted(speakers))
                samples, digits, rate = digit_string(speakers[speaker], draw)
                path = f"{split}/{i:05d}.wav"
                soundfile.write(os.path.join(arguments.out, path), samples, rate)
                lines.write(f"{path}\t{' '.join(digits)}\t{speaker}\n")
    with open(os.path.join(arguments.out, "digits.txt"), "w", encoding="utf-8") as vocabulary:
        vocabulary.write("".join(f"{digit} 1\n" for digit in range(10)))


def plain(sentence):
    return " ".join(re.sub(r"[^a-z' ]", " ", sentence.lower().replace("’", "'")).split())


def speak(text, voice, path):
    """Writes 16 kHz WAV; espeak-ng writes 22,050 Hz."""
    spoken = path + ".22050.wav"
    done = subprocess.run(["espeak-ng", "-v", voice, "-w", spoken, "--", text], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"speech_corpora: espeak-ng -v {voice}: {done.stderr.strip()}")
    samples, rate = soundfile.read(spoken, dtype="float32")
    os.remove(spoken)
    resampled = speech_features.at_speed(samples, rate / RATE)
    soundfile.write(path, (resampled * 32767).clip(-32768, 32767).astype(numpy.int16), RATE)


def make_spoken(arguments):
    draw = random.Random(arguments.seed)
    with open(arguments.sentences_file, encoding="utf-8") as lines:
        texts = sorted({plain(line) for line in lines if not re.search(r"\d", line)})
    texts = [text for text in texts if 1 <= len(text.split()) <= 8]
    draw.shuffle(texts)
    texts = texts[:arguments.sentences]
    held_out = min(500, len(texts) // 10)
    splits = {"test": texts[:held_out], "valid": texts[held_out:2 * held_out], "train": texts[2 * held_out:]}
    for split, sentences in splits.items():
        os.makedirs(os.path.join(arguments.out, split), exist_ok=True)
        with open(os.path.join(arguments.out, f"{split}.tsv"), "w", encoding="utf-8") as lines:
            for i, text in enumerate(sentences):
                voice, path = VOICES[i % len(VOICES)], f"{split}/{i:05d}.wav"
                speak(text, voice, os.path.join(arguments.out, path))
                lines.write(f"{path}\t{text}\t{voice}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=number(int, 0, 2**64 - 1), default=1)
    commands = parser.add_subparsers(required=True)
    digits = commands.add_parser("digits")
    digits.add_argument("recordings", metavar="RECORDINGS")
    digits.add_argument("--strings", type=number(int, 1, 10**7), default=3000, help="of the training list (default: 3000)")
    digits.add_argument("--unseen", metavar="SPEAKER")
    digits.set_defaults(make=make_digits)
    spoken = commands.add_parser("spoken")
    spoken.add_argument("sentences_file", metavar="SENTENCES.txt")
    spoken.add_argument("--sentences", type=number(int, 30, 10**7), default=16000, help="of all three lists (default: 16000)")
    spoken.set_defaults(make=make_spoken)
    for command in digits, spoken:
        command.add_argument("--out", required=True, metavar="DIR")
    arguments = parser.parse_args()
    try:
        with locked(arguments.out):
            if os.listdir(arguments.out) != [LOCK]:
                raise Refusal(f"{arguments.out} is not empty; remove it, or choose another --out")
            arguments.make(arguments)
    except (Refusal, OSError) as error:
        sys.exit(f"speech_corpora: {error}")


if __name__ == "__main__":
    main()
