#!/usr/bin/env bash
# Speech from features to recognised text: a tiny model learns utterances made of ten patterns, with the same bits on 1 and 2 ranks and
# after a resume; translate and score read features. Usage: speech_test.sh HADAL
set -u
hadal=${1:?usage: speech_test.sh HADAL}
packages=$(realpath "$(dirname "$0")/../../tools/python")
command -v python3 > /dev/null || { echo "SKIPPED: no python3"; exit 77; }
. "$(dirname "$0")/../support/command_test.sh"

# Each digit is a pattern of 8 frames of 6 features; an utterance is one to three digits with noise.
cat > features.py <<'END'
import json, random, struct, sys, zlib
prefix, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
fixed, draw = random.Random(0), random.Random(seed)
patterns = [[fixed.gauss(0, 1) for _ in range(48)] for _ in range(10)]
body, texts, total = b"", [], 0
for _ in range(count):
    digits = [draw.randrange(10) for _ in range(draw.randint(1, 3))]
    values = [v + draw.gauss(0, 0.1) for d in digits for v in patterns[d]]
    body += struct.pack(f"<I{len(values)}f", len(values) // 6, *values)
    total += len(values) // 6
    texts.append(" ".join(map(str, digits)))
data = b"hadalfea" + struct.pack("<IIIIq", 1, 6, 8000, count, total) + body
open(prefix + ".00000.features", "wb").write(data)
open(prefix + ".txt", "w").write("\n".join(texts) + "\n")
shard = dict(file=prefix + ".00000.features", bytes=len(data), utterances=count, frames=total, crc32=zlib.crc32(body))
json.dump(dict(format="hadal features", version=1, frame_width=6, sample_rate=8000, cmvn="none", utterances=count, frames=total,
               shards=[shard]), open(prefix + ".json", "w"))
END
python3 features.py train 600 1 && python3 features.py test 60 2 || fail "no features"
printf '%s 1\n' 0 1 2 3 4 5 6 7 8 9 > digits.txt
expect 0 "$hadal" prepare --features --train train --valid test --vocab digits.txt --out data
if python3 -c 'import numpy' 2> /dev/null; then
  PYTHONPATH=$packages python3 - <<'END' || fail "hadal_torch reads other frames than were written"
import numpy
from hadal_torch.readers import read_corpus
source, target = next(read_corpus("data/train"))
assert source.dtype == numpy.float32 and source.shape[1] == 6 and abs(source).max() < 100, source
assert target.dtype == numpy.int32, target
END
fi
cat > speech.textproto <<'END'
data { train: "data/train" validation: "data/valid" spec_augment { frequency_masks: 1 frequency_width: 1 time_masks: 1 time_width: 2 } }
model { encoder_layers: 2 decoder_layers: 1 d_model: 32 d_ff: 64 heads: 2 max_positions: 32 dropout: 0 label_smoothing: 0
        front_end_channels: 32 }
batch { micro_batches: 2 source_tokens: 128 target_tokens: 128 }
learning_rate { schedule: "inverse_sqrt" peak: 4e-3 warmup_updates: 30 }
stop { steps: 300 }
validation { every_steps: 300 bleu_sentences: 60 }
checkpoint { every_steps: 20 keep_every: 20 }
END
train=("$hadal" train speech.textproto --set pipeline.threads=1 --device cpu)
mpi=(mpirun --bind-to none --oversubscribe -n 2)

echo "learns, the same on 2 ranks, and after a resume"
expect 0 "${train[@]}" --run-dir one; says "warning: data.spec_augment .* made with --cmvn none"
expect 0 "${mpi[@]}" "${train[@]}" --set stop.steps=20 --run-dir two
expect 0 "$hadal" checkpoint diff one/checkpoints/step_00000020 two/checkpoints/step_00000020
says identical
expect 0 "${train[@]}" --set stop.steps=40 --accept-changes --run-dir two
expect 0 "$hadal" checkpoint diff one/checkpoints/step_00000040 two/checkpoints/step_00000040
says identical

echo "recognises, the same on 2 ranks"
mkdir test  # beside the features, no text
"$hadal" translate one --input test --device cpu > one.out 2> one.err || fail "no text"
"${mpi[@]}" "$hadal" translate one --input test --device cpu > two.out 2> two.err || fail "no text on 2 ranks"
cmp one.out two.out || fail "2 ranks recognise something else"
rate=$("$hadal" wer -r test.txt -i one.out --score-only) || fail "no word error rate"
echo "word error rate $rate"
awk -v rate="$rate" 'BEGIN { exit !(rate < 0.2) }' || fail "the model has not learnt ten patterns"

"$hadal" translate one --input test --device cpu --on-long skip --longest-source 4 > some.out 2> some.err || fail "no text with skips"
grep -q . some.out && grep -qn '^$' some.out || fail "--on-long skip skips none or all"
paste -d'|' one.out some.out | awk -F'|' '$2 != "" && $2 != $1 { exit 1 }' || fail "a skipped utterance moves the text of others"

echo "scores, the same on 2 ranks"
"$hadal" score one --source test --target test.txt --device cpu > one.score 2> score.err || fail "no scores"
"${mpi[@]}" "$hadal" score one --source test --target test.txt --device cpu > two.score 2> score.err || fail "no scores on 2 ranks"
cmp one.score two.score || fail "2 ranks score otherwise"
[ "$(wc -l < one.score)" = 60 ] || fail "not one score per utterance"
"$hadal" score one --source test --target test.txt --device cpu --buffer 7 > few.score 2> score.err || fail "no scores of few at a time"
cmp one.score few.score || fail "7 utterances at a time score otherwise"

echo "what does not fit is refused by name"
head -59 test.txt > short.txt
expect 2 "$hadal" score one --source test --target short.txt --device cpu
says "test has 60 utterances, short.txt has 59 lines"
expect 2 "$hadal" translate one --input digits.txt --device cpu
says "the model recognises speech; give --input PREFIX"
for output in test.txt test.json test.00000.features; do
  expect 2 "$hadal" translate one --input test --device cpu -o $output
  says "writing $output would empty"
done
expect 2 "$hadal" score one --source test --target short.txt --device cpu -o test.00000.features
says "writing test.00000.features would empty"
for made in 's/"cmvn": "none"/"cmvn": "utterance"/' 's/"sample_rate": 8000/"sample_rate": 16000/'; do
  sed "$made" test.json > other.json
  cp test.txt other.txt
  expect 2 "$hadal" translate one --input other --device cpu
  says "other has 6 filters at .*, and the model reads 6 filters at 8000 Hz, cmvn none; make the features as those"
  expect 2 "$hadal" score one --source other --target test.txt --device cpu; says "and the model reads 6 filters at 8000 Hz"
done
sed 's/"cmvn": "none"/"cmvn": "utterance"/' train.json > other.json; cp train.txt other.txt
expect 0 "$hadal" prepare --features --train other --valid other --vocab digits.txt --out normalised
others=("${train[@]}" --set data.train=normalised/train --set data.validation=normalised/valid --set stop.steps=301)
for option in "--init-from one --run-dir three" "--run-dir one --accept-changes --reset data"; do
  # shellcheck disable=SC2086  # options are words
  expect 2 "${others[@]}" $option; says "has 6 filters at 8000 Hz, cmvn utterance, and the model reads"
done
truncate -s -4 test.00000.features
expect 3 "$hadal" translate one --input test --device cpu
says "test.00000.features: it has"

finished
