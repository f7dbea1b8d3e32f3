#!/usr/bin/env bash
# lhotse 1.33.0: a Kaldi directory that export_to_kaldi writes of cuts with another speed, tempo or volume has the times of the changed sound in
# segments, utt2dur and reco2dur, but wav.scp reads the sound unchanged: one command for all speeds. The utterances are cut out at wrong places, all
# copies of the augmentation are the same sound, and nothing is printed. The manifests themselves load the changed sound.
. "$(dirname "$0")/support.sh"
packages lhotse==1.33.0 torch==2.15.0 numpy==2.4.6 soundfile==0.14.0 urllib3==2.8.0
check "$python" - "$folder" <<'PYTHON'
import importlib.metadata
import pathlib
import sys

import numpy
import soundfile
from lhotse import CutSet, Recording, RecordingSet, SupervisionSegment, SupervisionSet
from lhotse.kaldi import export_to_kaldi

folder = pathlib.Path(sys.argv[1])
rate = 16000
soundfile.write(folder / "tone.wav", 0.5 * numpy.sin(2 * numpy.pi * 440 * numpy.arange(2 * rate) / rate), rate)
cuts = CutSet.from_manifests(
    recordings=RecordingSet.from_recordings([Recording.from_file(folder / "tone.wav", recording_id="tone")]),
    supervisions=SupervisionSet.from_segments([SupervisionSegment(
        id="words", recording_id="tone", start=0.5, duration=1.0, text="one two", speaker="speaker")]))
print(f"lhotse {importlib.metadata.version('lhotse')}: 2 s of sound, an utterance from 0.5 s to 1.5 s")
commands, times = set(), set()
for name, changed in (("speed 0.9", cuts.perturb_speed(0.9)), ("speed 1.1", cuts.perturb_speed(1.1)), ("volume 0.5", cuts.perturb_volume(0.5))):
    recordings, supervisions, _ = changed.decompose()
    export_to_kaldi(recordings, supervisions, folder / name)
    sound, segment, length = ((folder / name / file).read_text().strip().split(maxsplit=1)[1] for file in ("wav.scp", "segments", "reco2dur"))
    commands.add(sound)
    times.add(segment.split(maxsplit=1)[1])
    print(f"{name}: segments {segment}, reco2dur {length}; wav.scp {sound.replace(str(folder), '.')}")
print(f"expected: commands that change the sound, or an error; seen: {len(commands)} command for {len(times)} different segments")
sys.exit(not (len(commands) == 1 and len(times) == 3))
PYTHON
