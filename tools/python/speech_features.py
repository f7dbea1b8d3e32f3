#!/usr/bin/env python3
"""Turns audio files and their transcripts into feature shards for `hadal prepare --features`.

    pip install numpy soundfile kaldi-native-fbank
    speech_features.py LIST.tsv --out PREFIX [--speeds 0.9 1.0 1.1]

LIST.tsv has one utterance per line, UTF-8: audio file, transcript and optionally the speaker, separated by tabs. Audio
is WAV or FLAC (whatever libsndfile reads); a relative path begins at the list's folder. Of several channels --channel
takes the mean or one.

Features are Kaldi's log-mel filters: 25 ms windows every 10 ms (povey window, whole windows only), pre-emphasis 0.97,
no dither, from samples scaled to 16-bit integers; 80 filters at 16 kHz, 40 at 8 kHz. With --cmvn utterance, the
default, each filter has mean 0 and variance 1 over the frames of its utterance. All audio of a list must have one
sampling rate, or is resampled to --rate. A copy at speed s is the audio resampled to 1/s of its samples and played at the same rate: tempo and
pitch change together, as sox's `speed` does.

Files (docs/speech.md has the format): PREFIX.00000.features, ... the frames; PREFIX.txt the transcripts, one per line;
PREFIX.tsv for people: audio file, speed, frames, speaker; PREFIX.json the manifest, written last.
Utterances that cannot be used are left out, counted by reason and named. Exit status: 0 done; 1 nothing usable, mixed
rates, or more than --max-skipped left out; 2 usage.
"""
import argparse
import fractions
import glob
import json
import math
import os
import struct
import sys
import zlib

import kaldi_native_fbank
import numpy
import soundfile

from pyhadal.files import Staged, check_outputs
from pyhadal.options import number
from pyhadal.refusal import Refusal

FILTERS = {16000: 80, 8000: 40}  # by sampling rate
SHARD_BYTES = 256 << 20
NAMED = 5  # utterances named per reason


class Skipped(Exception):
    """An utterance that cannot be used: (reason, detail)."""


def read_audio(path, channel, longest=math.inf):
    """Returns (float32 samples, scaled to 16-bit integers; sampling rate). `channel`: "mean", a number from 1, or None.

    `longest`: seconds; audio that declares more is not read.
    """
    try:
        with soundfile.SoundFile(path) as file:
            if file.frames > longest * file.samplerate:
                raise Skipped("too long for --max-frames", f"{path}: {file.frames / file.samplerate:.0f} seconds")
            samples, rate = file.read(dtype="float32", always_2d=True), file.samplerate
    except (OSError, RuntimeError, TypeError, ValueError, MemoryError) as error:  # soundfile's errors; a raw file is a TypeError
        raise Skipped("unreadable audio", str(error)) from None
    channels = samples.shape[1]
    if channels != 1 and channel is None:
        raise Skipped("not mono (--channel mean takes the mean of the channels, --channel 1 the first)", f"{path}: {channels} channels")
    if channel == "mean":
        samples = samples.mean(axis=1, keepdims=True)
    elif channels != 1:
        if channel > channels:
            raise Skipped(f"no channel {channel}", f"{path}: {channels} channels")
        samples = samples[:, channel - 1:channel]
    if not len(samples):
        raise Skipped("empty audio", "no samples")
    if not numpy.isfinite(samples).all():
        raise Skipped("unreadable audio", "samples that are not finite")
    return samples[:, 0] * numpy.float32(32768), rate


def at_speed(samples, speed, taps=16):
    """Band-limited resampling to len / speed samples: a Hann-windowed sinc of `taps` zero crossings a side."""
    if speed == 1:
        return samples
    ratio = fractions.Fraction(speed).limit_denominator(1000)  # output k is at k * ratio: its phase repeats
    cutoff = min(1.0, 1.0 / ratio)
    reach = int(numpy.ceil(taps / cutoff))
    out = numpy.zeros(int(len(samples) / ratio), numpy.float32)
    padded = numpy.pad(samples, (reach, reach + ratio.numerator))
    windows = numpy.lib.stride_tricks.sliding_window_view(padded, 2 * reach)
    for phase in range(ratio.denominator):
        first = int(phase * ratio) - reach + 1
        distance = numpy.arange(first, first + 2 * reach) - float(phase * ratio)
        filter_ = cutoff * numpy.sinc(cutoff * distance) * (0.5 + 0.5 * numpy.cos(numpy.pi * distance / reach))
        rows = windows[first + reach::ratio.numerator][:len(out[phase::ratio.denominator])]
        out[phase::ratio.denominator] = rows @ filter_.astype(numpy.float32)
    return out


def filterbank_options(rate, filters):
    options = kaldi_native_fbank.FbankOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.frame_length_ms = 25
    options.frame_opts.frame_shift_ms = 10
    options.frame_opts.dither = 0
    options.frame_opts.snip_edges = True
    options.mel_opts.num_bins = filters
    options.use_energy = False
    return options


def features_of(samples, rate, filters, cmvn):
    """Returns [frames, filters] float32."""
    try:
        bank = kaldi_native_fbank.OnlineFbank(filterbank_options(rate, filters))
    except ValueError as error:
        raise Refusal(f"--filters {filters} at {rate} Hz: {error}") from None
    bank.accept_waveform(rate, samples.tolist())
    bank.input_finished()
    if bank.num_frames_ready == 0:
        return numpy.zeros((0, filters), numpy.float32)
    frames = numpy.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)]).astype(numpy.float64)
    if cmvn == "utterance":
        frames -= frames.mean(axis=0)
        frames /= numpy.maximum(frames.std(axis=0), 1e-5)
    return frames.astype("<f4")


class ShardWriter:
    """PREFIX.00000.features, ...: a header, then the utterances. `files`: the Staged that has them."""

    MAGIC, VERSION, HEADER = b"hadalfea", 1, struct.Struct("<8sIIIIq")

    def __init__(self, files, prefix, rate, filters):
        self.files, self.prefix, self.rate, self.filters = files, prefix, rate, filters
        self.shards, self.file = [], None

    def add(self, frames):
        if self.file is None:
            self.path = f"{self.prefix}.{len(self.shards):05d}.features"
            self.file = self.files.open(self.path, "wb")
            self.file.write(bytes(self.HEADER.size))
            self.utterances, self.frames, self.crc, self.size = 0, 0, 0, self.HEADER.size
        data = struct.pack("<I", len(frames)) + numpy.ascontiguousarray(frames, "<f4").tobytes()
        self.file.write(data)
        self.utterances, self.frames, self.size = self.utterances + 1, self.frames + len(frames), self.size + len(data)
        self.crc = zlib.crc32(data, self.crc)
        if self.size >= SHARD_BYTES:
            self.finish()

    def finish(self):
        if self.file is None:
            return
        # the checksum covers the utterances; the header repeats what the manifest states
        self.file.seek(0)
        self.file.write(self.HEADER.pack(self.MAGIC, self.VERSION, self.filters, self.rate, self.utterances, self.frames))
        self.file.close()
        self.shards.append({"file": os.path.basename(self.path), "bytes": self.size, "utterances": self.utterances,
                            "frames": self.frames, "crc32": self.crc})
        self.file = None


def utterances_of(list_path):
    """Yields (line number, audio path, transcript, speaker), or (line number, None, reason, detail)."""
    folder = os.path.dirname(list_path)
    with open(list_path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                fields = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n").split("\t")
            except UnicodeDecodeError as error:
                yield number, None, "list line not UTF-8", str(error)
                continue
            if len(fields) not in (2, 3) or not fields[0]:
                yield number, None, "list line without two or three columns", f"{len(fields)} columns"
                continue
            transcript = " ".join(fields[1].split())
            if "\0" in fields[0] or "\0" in transcript:
                yield number, None, "list line not text", "a zero byte"
                continue
            yield number, os.path.join(folder, fields[0]), transcript, fields[2] if len(fields) == 3 else ""


class Conversion:
    def __init__(self, arguments):
        self.arguments = arguments
        self.rate = self.writer = self.files = None
        self.texts_bytes = self.texts_crc = 0
        self.skipped = {}  # reason -> [count, first ones named]
        self.lines = self.written = self.raised = 0

    def skip(self, number, reason, detail):
        count = self.skipped.setdefault(reason, [0, []])
        count[0] += 1
        if len(count[1]) < NAMED:
            count[1].append(f"{self.arguments.list}:{number}: {detail}")

    def check_rate(self, path, rate):
        if self.rate is None:
            filters = self.arguments.filters or FILTERS.get(rate)
            if not filters:
                raise Refusal(f"{path}: a sampling rate of {rate} Hz; 16000 and 8000 have a usual number of filters, "
                              "for another rate give --filters, or --rate 16000 to resample the audio")
            self.rate = rate
            self.writer = ShardWriter(self.files, self.arguments.out, rate, filters)
        if rate != self.rate:
            raise Refusal(f"{path}: a sampling rate of {rate} Hz, the audio before it has {self.rate}; "
                          f"--rate {min(rate, self.rate)} resamples all to one rate")

    def convert(self, path, transcript):
        """Returns the frames of every speed."""
        if not transcript:
            raise Skipped("empty transcript", path)
        seconds = max(self.arguments.speeds) * (self.arguments.max_frames + 3) / 100  # a frame: 10 ms, its window 25
        samples, rate = read_audio(path, self.arguments.channel, seconds)
        if self.arguments.rate and rate != self.arguments.rate:
            self.raised += rate < self.arguments.rate
            samples, rate = at_speed(samples, rate / self.arguments.rate), self.arguments.rate
        self.check_rate(path, rate)
        result = []
        for speed in self.arguments.speeds:
            frames = features_of(at_speed(samples, speed), rate, self.writer.filters, self.arguments.cmvn)
            if len(frames) < self.arguments.min_frames:
                raise Skipped(f"shorter than {self.arguments.min_frames} frames", f"{path}: {len(frames)}")
            if len(frames) > self.arguments.max_frames:
                raise Skipped(f"longer than {self.arguments.max_frames} frames", f"{path}: {len(frames)}")
            if not numpy.isfinite(frames).all():
                raise Skipped("features that are not finite", path)
            result.append(frames)
        return result

    def check_outputs(self, utterances):
        prefix, beginning = self.arguments.out, os.path.basename(self.arguments.out) + "."
        audio = [path for _, path, _, _ in utterances if path and os.path.basename(path).startswith(beginning)]
        paths = [prefix + ".json", prefix + ".txt", prefix + ".tsv", *glob.glob(glob.escape(prefix) + ".[0-9]*.features")]
        check_outputs(paths, [self.arguments.list, *audio], own=self.arguments.overwrite,
                      remedy="choose another --out, or replace it with --overwrite")

    def run(self):
        prefix = self.arguments.out
        with Staged(prefix) as self.files:
            utterances = list(utterances_of(self.arguments.list))
            self.check_outputs(utterances)
            texts, table = self.files.open(prefix + ".txt", "wb"), self.files.open(prefix + ".tsv")
            for number, path, transcript, speaker in utterances:
                self.lines += 1
                if path is None:
                    self.skip(number, transcript, speaker)
                    continue
                try:
                    copies = self.convert(path, transcript)
                except Skipped as skipped:
                    self.skip(number, *skipped.args)
                    continue
                for speed, frames in zip(self.arguments.speeds, copies):
                    self.writer.add(frames)
                    line = (transcript + "\n").encode()
                    texts.write(line)
                    self.texts_bytes, self.texts_crc = self.texts_bytes + len(line), zlib.crc32(line, self.texts_crc)
                    table.write(f"{path}\t{speed:g}\t{len(frames)}\t{speaker}\n")
                self.written += 1
            printed = self.finish(prefix)
        print(printed)

    def finish(self, prefix):
        """Writes the manifest. Returns what is to be printed."""
        for reason, (count, first) in self.skipped.items():
            print(f"skipped {count}: {reason}" + "".join(f"\n  {line}" for line in first), file=sys.stderr)
        if self.raised:
            print(f"warning: {self.raised} recordings have a lower rate than --rate {self.arguments.rate}: their upper filters "
                  "have nothing to measure", file=sys.stderr)
        left_out = self.lines - self.written
        if not self.written:
            raise Refusal(f"{self.arguments.list}: none of its {self.lines} utterances is usable")
        if left_out > self.arguments.max_skipped * self.lines:
            raise Refusal(f"{self.arguments.list}: {left_out} of {self.lines} utterances are unusable, more than "
                          f"--max-skipped {self.arguments.max_skipped:g} allows")
        self.writer.finish()
        shards = self.writer.shards
        manifest = {"format": "hadal features", "version": 1, "frame_width": self.writer.filters,
                    "sample_rate": self.rate, "cmvn": self.arguments.cmvn,
                    "utterances": sum(shard["utterances"] for shard in shards),
                    "frames": sum(shard["frames"] for shard in shards),
                    "transcripts": {"bytes": self.texts_bytes, "crc32": self.texts_crc}, "shards": shards}
        self.files.open(prefix + ".json").write(json.dumps(manifest, indent=2) + "\n")
        return (f"wrote {prefix}.json: {manifest['utterances']} utterances of {self.written} recordings, "
                f"{manifest['frames']} frames ({manifest['frames'] / 360000:.2f} hours), {self.writer.filters} filters "
                f"at {self.rate} Hz; {left_out} of {self.lines} lines skipped")


def parse_arguments(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("list", metavar="LIST.tsv", help="audio file, transcript, speaker (optional)")
    parser.add_argument("--out", required=True, metavar="PREFIX", help="beginning of the files that are written")
    parser.add_argument("--speeds", nargs="+", type=number(float, 0.5, 2), default=[1.0], metavar="S", help="copies of each utterance")
    parser.add_argument("--filters", type=number(int, 4, 1024), help="mel filters (default: 80 at 16 kHz, 40 at 8 kHz)")
    parser.add_argument("--channel", type=lambda text: text if text == "mean" else number(int, 1, 64)(text), metavar="mean|N",
                        help="of audio with several: their mean, or the N-th (default: such audio is left out)")
    parser.add_argument("--rate", type=number(int, 4000, 384_000), metavar="HZ", help="resample all audio to this rate (default: keep it)")
    parser.add_argument("--cmvn", choices=["utterance", "none"], default="utterance")
    parser.add_argument("--min-frames", type=number(int, 1, 10**6), default=8)
    parser.add_argument("--max-frames", type=number(int, 1, 10**6), default=3000, help="default: 3000, 30 seconds")
    parser.add_argument("--max-skipped", type=number(float, 0, 1), default=0.1, help="share of the lines (default: 0.1)")
    parser.add_argument("--overwrite", action="store_true")
    return parser.parse_args(argv)


def main(argv=None):
    arguments = parse_arguments(argv)
    try:
        Conversion(arguments).run()
    except (Refusal, OSError) as error:
        print(f"speech_features: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
