"""speech_features.py: its values, what it refuses and counts, and that `hadal prepare` ($HADAL) reads what it writes.

The log-mel filters are compared with a computation written here from Kaldi's definition: windows of 25 ms without
padding, mean removed, pre-emphasis 0.97, the "povey" window (Hann to the power of 0.85), power spectrum of the next power of two, triangles on the
mel scale 1127 ln(1 + f/700) from 20 Hz to half the sampling rate, natural logarithm.
"""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import numpy
import soundfile

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = importlib.util.spec_from_file_location("speech_features", os.path.join(HERE, "../../../tools/python/speech_features.py"))
speech_features = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(speech_features)
from pyhadal import files  # noqa: E402


def log_mel(samples, rate, filters):
    """samples: 16-bit integers as floats; returns [frames, filters]."""
    length, shift = rate * 25 // 1000, rate // 100
    points = 1 << (length - 1).bit_length()
    mel = lambda hertz: 1127.0 * numpy.log1p(numpy.asarray(hertz) / 700.0)
    edges = numpy.linspace(mel(20.0), mel(rate / 2), filters + 2)
    bins = mel(numpy.arange(points // 2) * rate / points)
    weights = numpy.zeros((filters, points // 2))
    for m in range(filters):
        left, centre, right = edges[m:m + 3]
        weights[m] = numpy.clip(numpy.minimum((bins - left) / (centre - left), (right - bins) / (right - centre)), 0, None)
    window = (0.5 - 0.5 * numpy.cos(2 * numpy.pi * numpy.arange(length) / (length - 1))) ** 0.85
    rows = []
    for begin in range(0, len(samples) - length + 1, shift):
        frame = samples[begin:begin + length].astype(numpy.float64)
        frame = frame - frame.mean()
        frame = (frame - 0.97 * numpy.concatenate([frame[:1], frame[:-1]])) * window
        power = numpy.abs(numpy.fft.rfft(frame, points)[:points // 2]) ** 2
        rows.append(numpy.log(numpy.maximum(weights @ power, numpy.finfo(numpy.float32).eps)))
    return numpy.array(rows)


def read_shard(path):
    """Returns (header's fields, list of [frames, filters])."""
    data = pathlib.Path(path).read_bytes()
    header = struct.unpack("<8sIIIIq", data[:32])
    place, utterances = 32, []
    while place < len(data):
        frames, = struct.unpack_from("<I", data, place)
        count = frames * header[2]
        utterances.append(numpy.frombuffer(data, "<f4", count, place + 4).reshape(frames, header[2]))
        place += 4 + 4 * count
    return header, utterances


class SpeechFeatures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        random = numpy.random.default_rng(1)
        self.noise = (8000 * random.standard_normal(16000)).clip(-32768, 32767).astype(numpy.int16)

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, samples, rate=8000, **options):
        soundfile.write(self.path(name), samples, rate, **options)

    def run_on(self, lines, *options):
        """Returns (exit status, what was printed)."""
        with open(self.path("list.tsv"), "wb") as file:
            file.write(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines) + b"\n")
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            status = speech_features.main([self.path("list.tsv"), "--out", self.path("f"), "--overwrite", *options])
        return status, out.getvalue()

    def features(self):
        return read_shard(self.path("f.00000.features"))[1]

    def test_values_are_kaldis(self):
        for rate, filters, name in (8000, 40, "a.wav"), (16000, 80, "a.flac"):
            self.write(name, self.noise, rate)
            status, printed = self.run_on([f"{name}\tone"], "--cmvn", "none")
            self.assertEqual(status, 0, printed)
            expected = log_mel(self.noise, rate, filters)
            values, = self.features()
            self.assertEqual(values.shape, expected.shape)
            self.assertLess(abs(values - expected).max(), 2e-3)
            self.assertEqual(self.run_on([f"{name}\tone"])[0], 0)
            normalised, = self.features()
            self.assertLess(abs(normalised - (expected - expected.mean(0)) / expected.std(0)).max(), 5e-3)
        self.write("silence.wav", numpy.zeros(8000, numpy.int16))
        self.assertEqual(self.run_on(["silence.wav\tone"])[0], 0)
        self.assertLess(abs(self.features()[0]).max(), 1e-3)

    def test_speed_copies_are_shorter_and_higher(self):
        time = numpy.arange(16000) / 8000
        self.write("tone.wav", (10000 * numpy.sin(2 * numpy.pi * 1000 * time)).astype(numpy.int16))
        status, printed = self.run_on(["tone.wav\tone"], "--speeds", "0.9", "1", "1.1")
        self.assertEqual(status, 0, printed)
        self.assertEqual([len(frames) for frames in self.features()], [220, 198, 180])
        self.assertEqual(pathlib.Path(self.path("f.txt")).read_text(), "one\n" * 3)
        self.assertEqual([line.split("\t")[1:3] for line in pathlib.Path(self.path("f.tsv")).read_text().splitlines()],
                         [["0.9", "220"], ["1", "198"], ["1.1", "180"]])
        self.assertIn("598 frames (0.00 hours)", printed)
        status, printed = self.run_on(["tone.wav\tone"], "--speeds", "2", "--max-frames", "150")
        self.assertEqual(status, 0, printed)  # of two seconds, which the limit excludes at speed 1
        samples, _ = speech_features.read_audio(self.path("tone.wav"), None)
        for speed in 0.9, 1.1:
            fast = speech_features.at_speed(samples, speed)[200:-200]
            expected = 10000 * numpy.sin(2 * numpy.pi * 1000 * speed * (numpy.arange(len(fast)) + 200) / 8000)
            self.assertLess(abs(fast - expected).max(), 60)
        high = (10000 * numpy.sin(2 * numpy.pi * 3000 * time)).astype(numpy.float32)
        self.assertLess(abs(speech_features.at_speed(high, 2)[200:-200]).max(), 60, "a tone of 6000 Hz, above half the rate, 4000 Hz, is removed")

    def test_unusable_utterances_are_counted_and_named(self):
        self.write("good.wav", self.noise)
        self.write("stereo.wav", numpy.stack([self.noise, self.noise], 1))
        self.write("empty.wav", self.noise[:0])
        self.write("short.wav", self.noise[:300])
        self.write("nan.wav", numpy.full(8000, numpy.nan, numpy.float32), subtype="FLOAT")
        for name in "noise.wav", "noise.raw":
            pathlib.Path(self.path(name)).write_bytes(bytes(range(256)))
        pathlib.Path(self.path("cut.wav")).write_bytes(pathlib.Path(self.path("good.wav")).read_bytes()[:30])
        lines = ["good.wav\tone\tann", "stereo.wav\tone", "empty.wav\tone", "short.wav\tone", "nan.wav\tone", "noise.wav\tone", "noise.raw\tone", "cut.wav\tone",
                 "missing.wav\tone", ".\tone", "good.wav\t  ", "good.wav", "", b"good.wav\t\xff", "a\tb\tc\td", "good.wav\t\0"]
        status, printed = self.run_on(lines, "--max-skipped", "1")
        self.assertEqual(status, 0, printed)
        for line in ("skipped 1: not mono", "skipped 1: empty audio", "skipped 1: shorter than 8 frames", "skipped 6: unreadable audio",
                     "skipped 1: empty transcript", "skipped 3: list line without two or three columns", "skipped 1: list line not UTF-8",
                     "skipped 1: list line not text", "15 of 16 lines skipped", "list.tsv:2: "):
            self.assertIn(line, printed)
        self.assertEqual(printed.count("list.tsv:"), 14, "five of a reason")
        self.assertEqual(pathlib.Path(self.path("f.tsv")).read_text(), f"{self.path('good.wav')}\t1\t198\tann\n")
        self.assertEqual(len(self.features()), 1)
        self.assertEqual(self.run_on(["good.wav\tone"], "--max-frames", "100", "--max-skipped", "1")[0], 1, "nothing is left")
        self.assertEqual(len(self.features()), 1, "what was there before stays")
        status, printed = self.run_on(lines)
        self.assertEqual(status, 1)
        self.assertIn("more than --max-skipped 0.1 allows", printed)

    def test_the_list_is_not_written_over(self):
        self.write("good.wav", self.noise)
        lists = pathlib.Path(self.path("f.tsv"))
        lists.write_text("good.wav\tone\n")
        self.assertEqual(speech_features.main([str(lists), "--out", self.path("f"), "--overwrite"]), 1)
        self.assertEqual(lists.read_text(), "good.wav\tone\n")
        os.rename(self.path("f.tsv"), self.path("list.tsv"))
        os.rename(self.path("good.wav"), self.path("f.txt"))
        status, printed = self.run_on(["f.txt\tone"])
        self.assertEqual(status, 1)
        self.assertIn("f.txt, which is an input", printed)

    def test_existing_files_stay_and_a_second_process_is_refused(self):
        self.write("good.wav", self.noise)
        pathlib.Path(self.path("list.tsv")).write_text("good.wav\tone\n")
        for name in "f.txt", "f.tsv", "f.00000.features":
            pathlib.Path(self.path(name)).write_text("mine")
            status, printed = self.run_without_overwrite()
            self.assertEqual((status, pathlib.Path(self.path(name)).read_text()), (1, "mine"))
            self.assertIn(f"{name} already exists", printed)
            os.remove(self.path(name))
        os.symlink(self.path("mine"), self.path("f.txt"))
        self.assertIn("f.txt: it is a symbolic link", self.run_without_overwrite()[1])
        os.remove(self.path("f.txt"))
        with files.locked(self.path("f.partial")):
            self.assertIn("another process is writing", self.run_without_overwrite()[1])
        self.assertEqual(sorted(os.listdir(self.folder)), ["f.partial", "good.wav", "list.tsv"])

    def run_without_overwrite(self):
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            return speech_features.main([self.path("list.tsv"), "--out", self.path("f")]), out.getvalue()

    def test_audio_that_declares_more_than_is_read_is_left_out(self):
        self.write("good.wav", self.noise)
        self.write("huge.flac", self.noise)
        data = bytearray(pathlib.Path(self.path("huge.flac")).read_bytes())
        data[21] |= 0x0f  # the upper bits of STREAMINFO's number of samples: nearly 2^36
        pathlib.Path(self.path("huge.flac")).write_bytes(data)
        status, printed = self.run_on(["good.wav\tone", "huge.flac\ttwo"], "--max-skipped", "1")
        self.assertEqual(status, 0, printed)
        self.assertIn("skipped 1: too long for --max-frames", printed)

    def test_mixed_rates_and_strange_rates_are_refused(self):
        self.write("low.wav", self.noise, 8000)
        self.write("high.wav", self.noise, 16000)
        self.write("strange.wav", self.noise, 11025)
        status, printed = self.run_on(["\ufefflow.wav\tone", "high.wav\ttwo"])  # a byte order mark
        self.assertEqual(status, 1)
        self.assertIn("high.wav: a sampling rate of 16000 Hz, the audio before it has 8000", printed)
        self.assertFalse(os.path.exists(self.path("f.json")))
        status, printed = self.run_on(["strange.wav\tone"])
        self.assertEqual(status, 1)
        self.assertIn("for another rate give --filters", printed)
        status, printed = self.run_on(["low.wav\tone"], "--filters", "256")
        self.assertEqual(status, 1)
        self.assertIn("--filters 256 at 8000 Hz: ", printed)

    def test_channels_are_chosen_or_mixed(self):
        other = numpy.roll(self.noise, 500)
        self.write("stereo.wav", numpy.stack([self.noise, other], 1))
        for name, samples in ("left.wav", self.noise), ("right.wav", other), ("mean.wav", (self.noise.astype(float) + other) / 2):
            self.write(name, samples.astype(numpy.int16))
        for channel, name in ("1", "left.wav"), ("2", "right.wav"), ("mean", "mean.wav"):
            self.assertEqual(self.run_on([f"{name}\tone"])[0], 0)
            expected, = self.features()
            status, printed = self.run_on(["stereo.wav\tone"], "--channel", channel)
            self.assertEqual(status, 0, printed)
            self.assertLess(abs(self.features()[0] - expected).max(), 0.02 if channel == "mean" else 1e-6)  # the mean is rounded in the file
        status, printed = self.run_on(["stereo.wav\tone"])
        self.assertEqual(status, 1)
        self.assertIn("--channel mean takes the mean of the channels", printed)
        status, printed = self.run_on(["stereo.wav\tone"], "--channel", "3")
        self.assertIn("no channel 3", printed)
        self.assertEqual(self.run_on(["left.wav\tone"], "--channel", "2")[0], 0, "audio with one channel is taken as it is")
        self.assertEqual(self.run_on(["left.wav\tone", "gone.wav\tone"], "--max-skipped", "0.5")[0], 0, "as many as allowed")

    def test_a_rate_for_all(self):
        def tone(rate):
            return (8000 * numpy.sin(2 * numpy.pi * 700 * numpy.arange(2 * rate) / rate)).astype(numpy.int16)
        for name, rate in ("low", 8000), ("high", 16000), ("music", 44100):
            self.write(f"{name}.wav", tone(rate), rate)
        status, printed = self.run_on(["low.wav\tone", "high.wav\ttwo", "music.wav\tthree"], "--rate", "16000", "--cmvn", "none")
        self.assertEqual(status, 0, printed)
        self.assertIn("warning: 1 recordings have a lower rate than --rate 16000", printed)
        low, high, music = self.features()
        manifest = json.loads(pathlib.Path(self.path("f.json")).read_text())
        self.assertEqual((manifest["sample_rate"], manifest["cmvn"]), (16000, "none"))
        loud = high[10:-10].mean(0) > 10  # the tone's filters
        self.assertTrue(loud.any())
        for other in low, music:
            self.assertLessEqual(abs(len(other) - len(high)), 1)
            self.assertLess(abs(other[10:150].mean(0) - high[10:150].mean(0))[loud].max(), 0.05)
        status, printed = self.run_on(["low.wav\tone", "high.wav\ttwo"])
        self.assertIn("--rate 8000 resamples all to one rate", printed)

    def test_numbers_that_are_none_are_refused(self):
        for option in "--max-skipped", "--speeds", "--filters", "--min-frames", "--max-frames", "--rate", "--channel":
            for value in "nan", "inf", "-1", "1e999":
                with self.subTest(option=option, value=value), self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
                    speech_features.parse_arguments(["list.tsv", "--out", "f", f"{option}={value}"])

    def test_shards_end_at_their_size(self):
        self.write("a.wav", self.noise)
        speech_features.SHARD_BYTES, before = 70000, speech_features.SHARD_BYTES
        self.addCleanup(setattr, speech_features, "SHARD_BYTES", before)
        self.assertEqual(self.run_on(["a.wav\tone"] * 5)[0], 0)
        manifest = json.loads(pathlib.Path(self.path("f.json")).read_text())
        self.assertEqual([shard["utterances"] for shard in manifest["shards"]], [3, 2])
        self.assertEqual(manifest["frames"], 5 * 198)

    def test_hadal_prepares_them(self):
        for i in range(6):
            self.write(f"{i}.wav", self.noise[1000 * i:1000 * i + 6000])
        status, printed = self.run_on([f"{i}.wav\t{'one two three'.split()[i % 3]}" for i in range(6)], "--speeds", "0.9", "1")
        self.assertEqual(status, 0, printed)
        pathlib.Path(self.path("words.txt")).write_text("one 1\ntwo 1\nthree 1\n")
        done = subprocess.run([os.environ["HADAL"], "prepare", "--features", "--train", self.path("f"), "--vocab", self.path("words.txt"),
                               "--out", self.path("out")], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        command = done.args
        frames = sum(len(utterance) for utterance in self.features())
        self.assertIn(f"wrote train: 12 utterances; {frames} frames of 40 features", done.stdout)
        shard = pathlib.Path(self.path("out/train.00000.shard")).read_bytes()
        first = self.features()[0].tobytes()
        self.assertEqual(shard[32 + 12 * 32:][:len(first)], first)
        pathlib.Path(self.path("f.txt")).write_text("two\n" * 12)
        done = subprocess.run([*command, "--overwrite"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("f.txt: its content does not match its checksum", done.stderr)


if __name__ == "__main__":
    unittest.main()
