#!/usr/bin/env bash
# `hadal train` as people start it: alone and under mpirun, interrupted and resumed, at different layouts, with bad input.
# Every run is compared with an unbroken one-rank run by `hadal checkpoint diff`, bit for bit.
# Usage: train_command_test.sh HADAL
set -u
hadal=${1:?usage: train_command_test.sh HADAL}
. "$(dirname "$0")/../support/command_test.sh"

make_corpus 600 300
cat > small.textproto <<'END'
data { train: "data/train" validation: "data/valid" }
model { encoder_layers: 5 decoder_layers: 7 d_model: 64 d_ff: 128 heads: 4 max_positions: 128 dropout: 0.1 }
batch { micro_batches: 4 source_tokens: 128 target_tokens: 128 }
learning_rate { peak: 1e-3 warmup_updates: 4 }
optimizer { clip_norm: 0.5 }
stop { steps: 10 }
checkpoint { every_steps: 5 }
END
# The command line as an array: functions do not survive `timeout`.
base=("$hadal" train small.textproto --set pipeline.threads=1)

echo "unbroken run, one rank"
expect 0 "${base[@]}" --run-dir unbroken
last=checkpoints/step_00000010
[ -d unbroken/$last ] || fail "no checkpoint at the end"
for file in config.resolved.textproto metrics.jsonl logs/rank_00000.log tb checkpoints/latest; do [ -e "unbroken/$file" ] || fail "no $file"; done
[ "$(grep -c '"event":"step"' unbroken/metrics.jsonl)" -eq 10 ] || fail "metrics.jsonl has not 10 steps"

echo "devices"
expect 0 "${base[@]}" --device cpu --set stop.steps=5 --run-dir on_cpu
expect 2 "${base[@]}" --device cpu --set 'device.precision="bf16"' --run-dir on_cpu_bf16
says 'device.precision = "bf16" needs a GPU, but --device is cpu'
expect 0 "$hadal" --build-info
if grep -q "GPU *none" out; then
  expect 2 "${base[@]}" --device cuda --run-dir on_gpu
  says "--device cuda: "
fi

echo "other layouts end with the same bits"
expect 0 "${base[@]}" --set pipeline.threads=2 --set pipeline.recompute_every=3 --run-dir threads
identical unbroken/$last threads/$last
expect 0 "${mpi[@]}" 2 "${base[@]}" --set validation.every_steps=2 --run-dir ranks2
identical unbroken/$last ranks2/$last
grep -q "start: hadal .*, rank 1 of 2 (stage 1 of 2, replica 0 of 1) on " ranks2/logs/rank_00001.log || fail "rank 1's log has no start"
grep -q "Z started in .* as: .*hadal train small.textproto" ranks2/logs/rank_00001.log || fail "rank 1's log has no command line"
grep -q "Z end: exit code 0" ranks2/logs/rank_00001.log || fail "rank 1's log has no end"
grep -q "Z step 10/10 .* loss " ranks2/logs/rank_00000.log || fail "rank 0's log has no steps"
expect 0 "${mpi[@]}" 3 "${base[@]}" --set 'pipeline.schedule="interleaved_1f1b"' --set pipeline.chunks=2 --run-dir ranks3
identical unbroken/$last ranks3/$last
OMPI_MCA_btl_vader_single_copy_mechanism=none expect 0 "${mpi[@]}" 2 "${base[@]}" --set 'pipeline.schedule="gpipe"' --run-dir copies
identical unbroken/$last copies/$last

echo "stopped at step 5, resumed at another layout"
expect 0 "${mpi[@]}" 2 "${base[@]}" --set stop.steps=5 --run-dir broken
expect 0 "${base[@]}" --run-dir broken
identical unbroken/$last broken/$last
steps=$(grep -o '"event":"step","step":[0-9]*' broken/metrics.jsonl | grep -o '[0-9]*$' | tr '\n' ' ')
[ "$steps" = "1 2 3 4 5 6 7 8 9 10 " ] || fail "metrics.jsonl of the resumed run has steps $steps"
expect 0 "${base[@]}" --run-dir broken; says "nothing to train.*raise stop.steps"
expect 1 "$hadal" checkpoint diff unbroken/$last unbroken/checkpoints/step_00000005  # the comparison can fail

echo "replicas: the same bits for every number of stages, sharded or not, and across a resume on another grid"
expect 0 "${mpi[@]}" 4 "${base[@]}" --set pipeline.replicas=2 --set validation.every_steps=5 --run-dir grid
says "4 ranks of 1 thread, 2 pipeline stages x 2 replicas"
expect 0 "${mpi[@]}" 2 "${base[@]}" --set pipeline.replicas=2 --set 'pipeline.optimizer_sharding="none"' --run-dir whole
identical grid/$last whole/$last
expect 0 "${mpi[@]}" 4 "${base[@]}" --set pipeline.replicas=2 --set stop.steps=5 --run-dir halfway
expect 0 "${mpi[@]}" 2 "${base[@]}" --set pipeline.replicas=2 --run-dir halfway
identical grid/$last halfway/$last
expect 0 "${mpi[@]}" 2 "${base[@]}" --set pipeline.replicas=2 --set stop.steps=5 --run-dir fewer
expect 0 "${base[@]}" --run-dir fewer  # one replica adds the two groups
identical grid/$last fewer/$last
expect 2 "${mpi[@]}" 3 "${base[@]}" --set pipeline.replicas=3 --set stop.steps=12 --run-dir fewer; says "batch.sum_groups: 2 -> 3"
expect 0 "${base[@]}" --set stop.steps=12 --run-dir halfway
expect 2 "${mpi[@]}" 3 "${base[@]}" --set pipeline.replicas=2 --run-dir bad; says "stages x replicas"

echo "lines that cannot be written change no exit code of a run that is saved"
mkdir -p unlogged/logs; ln -s /dev/full unlogged/logs/rank_00000.log
expect 0 "${base[@]}" --set stop.steps=2 --run-dir unlogged
says "warning: the run is saved, but not all that it wrote: .*rank_00000.log: No space left on device"
expect 0 "${mpi[@]}" 2 "${base[@]}" --set stop.steps=4 --run-dir unlogged; says "warning: the run is saved"
# The ranks' earliest limit counts, here rank 1's.
limited=("${base[@]}" --set stop.steps=100000000 --stop-after 1000h --run-dir unlogged)
expect 85 "${mpi[@]}" 1 "${limited[@]}" : -n 1 env HADAL_JOB_START=1 "${limited[@]}"; says "warning: the run is saved"
rm -rf unlogged/checkpoints
expect 1 "${base[@]}" --set stop.steps=2 --set checkpoint.every_steps=0 --set checkpoint.save_at_end=false --run-dir unlogged
says "rank_00000.log: No space left on device"

echo "changed settings are asked about; other layouts are not"
expect 2 "${base[@]}" --set learning_rate.peak=2e-3 --set stop.steps=12 --run-dir broken
says accept-changes; says learning_rate.peak
expect 0 "${base[@]}" --set learning_rate.peak=2e-3 --set stop.steps=11 --accept-changes --run-dir broken
cp -r data staged
expect 0 "${base[@]}" --set learning_rate.peak=2e-3 --set stop.steps=11 --set data.train=staged/train --set data.validation=staged/valid --run-dir broken
lacks "with changed settings"; lacks "are reset"
expect 2 "${base[@]}" --set learning_rate.peak=2e-3 --set stop.steps=11 --set data.validation= --run-dir broken; says "data.validation: "

echo "a checkpoint of another model is bad usage, whatever is accepted"
expect 2 "${base[@]}" --set model.d_ff=65 --set stop.steps=12 --run-dir broken
says "model.d_ff: .* -> 65"; says "It cannot: the checkpoint is of another model: its parameter"
lacks accept-changes
expect 2 "${base[@]}" --set model.d_ff=65 --set stop.steps=12 --accept-changes --run-dir broken
says "broken/checkpoints/step_00000011: the checkpoint is of another model: its parameter"
expect 2 "${mpi[@]}" 2 "${base[@]}" --set model.d_ff=65 --init-from broken --run-dir from_narrower
says "broken/checkpoints/step_00000011: the checkpoint is of another model: its parameter"

echo "the older one is asked about its own settings"
expect 0 "${base[@]}" --set stop.steps=5 --set learning_rate.peak=2e-3 --run-dir older
expect 0 "${base[@]}" --accept-changes --run-dir older
file=older/$last/rank_00000.safetensors
printf '\xff' | dd of="$file" bs=1 seek=$(($(stat -c %s "$file") / 2)) conv=notrunc status=none
for run in "${base[*]}" "${mpi[*]} 2 ${base[*]}"; do
  # shellcheck disable=SC2086  # options are words
  expect 2 $run --set stop.steps=15 --run-dir older
  says "REFUSED.*step_00000010"; says "resume from older/checkpoints/step_00000005 with other settings"; says "learning_rate.peak"
  [ "$(grep -c accept-changes out)" -eq 1 ] || fail "asked more than once"
done
[ -d older/$last ] && [ "$(readlink older/checkpoints/latest)" = step_00000010 ] || fail "a refused resume changed the run"
expect 0 "${base[@]}" --set stop.steps=15 --accept-changes --run-dir older
says "resuming older/checkpoints/step_00000005 with changed settings"
steps=$(grep -o '"event":"step","step":[0-9]*' older/metrics.jsonl | grep -o '[0-9]*$' | tr '\n' ' ')
[ "$steps" = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 " ] || fail "metrics.jsonl of the run that fell back has steps $steps"

echo "starting over sets the abandoned future aside"
cp -r unbroken again
expect 0 "${base[@]}" --set stop.steps=3 --resume never --run-dir again
ls -d again/checkpoints/*.abandoned.* > /dev/null 2>&1 || fail "later checkpoints were not set aside"
expect 0 "${base[@]}" --set stop.steps=4 --run-dir again

echo "a job that Slurm starts again goes on, and does not start over once more"
abandoned() { find again/checkpoints -name '*.abandoned.*' | wc -l; }
expect 0 env SLURM_JOB_ID=7 "${base[@]}" --set stop.steps=5 --resume never --run-dir again; before=$(abandoned)
expect 0 env SLURM_JOB_ID=7 SLURM_RESTART_COUNT=1 "${base[@]}" --resume never --run-dir again
says "an earlier attempt of this job has done --resume never: continuing from the newest checkpoint"
identical unbroken/$last again/$last
[ "$(abandoned)" -eq "$before" ] || fail "the later start set checkpoints aside"

echo "Muon: its momentum by its name; an iteration that diverges is refused"
muon=("${base[@]}" --set optimizer.kind=muon --set stop.steps=1)
expect 0 "${muon[@]}" --run-dir muon
expect 0 "${muon[@]}" --set seed=2 --run-dir other_muon
expect 1 "$hadal" checkpoint diff muon other_muon --lines 0; says "^muon_m/encoder.layers.0.fc1.weight: "; says "^adam_m/encoder.layers.0.fc1.bias: "
lacks "^adam_m/encoder.layers.0.fc1.weight"
expect 2 "${muon[@]}" --set 'optimizer.muon.coefficients=[100, 0, 0]' --run-dir diverging; says "diverge"

echo "a new run from a checkpoint's weights, or a run's newest"
expect 0 "${base[@]}" --set stop.steps=2 --init-from unbroken/$last --run-dir from_checkpoint
expect 0 "${mpi[@]}" 2 "${base[@]}" --set stop.steps=2 --init-from unbroken --run-dir from_run; says "weights from unbroken/$last"
identical from_checkpoint/checkpoints/step_00000002 from_run/checkpoints/step_00000002
expect 0 "${base[@]}" --set stop.steps=3 --init-from unbroken --run-dir from_run; says "resuming from_run: --init-from unbroken is for the beginning of a run"
otherwise=("${base[@]}" --set stop.steps=2 --set model.block.activation=gelu --set model.heads=8 --set model.residual.decoder.branch_gain=0.5 --set model.residual.encoder.residual_gain=9 --init-from unbroken --run-dir otherwise)
expect 2 "${otherwise[@]}"; says 'model.heads: 4 -> 8'; says 'model.block.activation: "relu" -> "gelu"'; says 'branch_gain: 1 -> 0.5'; says 'model.residual.encoder.residual_gain: .* -> 9'; says "or --accept-changes"
expect 0 "${otherwise[@]}" --accept-changes --set model.block.initial_deviation=0.02; says 'model.block.activation: "relu" -> "gelu"'; lacks initial_deviation
blocks=("${base[@]}" --set model.residual.method=attn_res --set stop.steps=1)
expect 0 "${blocks[@]}" --run-dir blocks
expect 2 "${blocks[@]}" --set model.residual.encoder.attention_residual_blocks=2 --init-from blocks --run-dir other_blocks
says 'attention_residual_blocks: .* -> 2'; says "or --accept-changes"
expect 0 "${base[@]}" --set stop.steps=2 --run-dir from_nothing
expect 1 "$hadal" checkpoint diff from_run/checkpoints/step_00000002 from_nothing/checkpoints/step_00000002
deeper=("${base[@]}" --set model.encoder_layers=11 --set model.decoder_layers=14 --set stop.steps=1)
expect 2 "${deeper[@]}" --init-from unbroken --run-dir deeper; says "its parameter .*; --deepen repeats its layers"
expect 0 "${deeper[@]}" --init-from unbroken --deepen --run-dir deeper
expect 0 "${mpi[@]}" 2 "${deeper[@]}" --init-from unbroken --deepen --run-dir deeper_by_two
identical deeper/checkpoints/step_00000001 deeper_by_two/checkpoints/step_00000001
expect 0 "${deeper[@]}" --init-from unbroken --deepen --deepen-rule zero --set learning_rate.warmup_updates=0 --run-dir deeper_by_zeros; says "without a warm-up"
expect 2 "${deeper[@]}" --init-from unbroken --deepen --deepen-rule zero --set model.residual.encoder.skip_gain=1 --run-dir skipping
says "would change the loss: encoder layer 0 .* skip_gain 1; .* --deepen-rule split allows it"
expect 2 "${base[@]}" --init-from deeper --deepen --run-dir shallower; says "decoder has 14 layers, more than the model's"
expect 2 "${base[@]}" --init-from nowhere --run-dir from_nowhere; says nowhere
expect 2 "${base[@]}" --resume never --init-from unbroken --run-dir unbroken; says "is in --run-dir itself"
[ -d unbroken/$last ] || fail "the run's checkpoint was set aside"
cp -r unbroken cut; truncate -s 9 cut/$last/manifest.json
expect 0 "${base[@]}" --set stop.steps=2 --init-from cut --run-dir from_cut; says "CHECKPOINT REFUSED: cut/$last"
cp -r unbroken averaged
expect 0 "$hadal" checkpoint average averaged --last 2 --out mean; rm -r averaged/$last; mv mean averaged/$last
expect 0 "${base[@]}" --set stop.steps=6 --run-dir averaged; says "weights only"; says "resuming after step 5"
cp -r unbroken/$last torn; truncate -s -8 torn/rank_00000.safetensors
for option in --init-from --resume; do
  expect 3 "${base[@]}" $option torn --run-dir from_torn; says "cut short"; says "hadal checkpoint verify RUN_DIR"
done

echo "a corpus that was prepared anew has another vocabulary, of the same size"
expect 0 "$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --out anew --vocab-size 300 --vocab-type unigram
anew=("${base[@]}" --set data.train=anew/train --set data.validation=anew/valid)
expect 2 "${anew[@]}" --set model.encoder_layers=6 --init-from unbroken --deepen --run-dir from_other; lacks "repeats its layers"
expect 2 "${anew[@]}" --init-from unbroken --run-dir from_other; says "trained with a different vocabulary than the corpus has"; says "It lacks [0-9]* of the 300 tokens of the checkpoint.s: "; says "unbroken/$last/vocabulary.model"
cp -r unbroken other_corpus
expect 2 "${mpi[@]}" 2 "${anew[@]}" --set stop.steps=11 --accept-changes --run-dir other_corpus; says "trained with a different vocabulary than the corpus has"
expect 2 "${anew[@]}" --set stop.steps=11 --accept-changes --resume unbroken/$last --run-dir from_step; says "trained with a different vocabulary than the corpus has"
expect 0 "${anew[@]}" --set stop.steps=1 --run-dir new_weights

echo "languages added to a trained model: rows go by token, at any layout"
printf 'text { direction: "en-de" both: true train: ["text/train.en", "text/train.de"] valid: ["text/valid.en", "text/valid.de"] }\n' > two.textproto
expect 0 "$hadal" prepare --list two.textproto --tags m2m100 --reserve-tags 1 --vocab data/vocabulary.model --out two
says "added to the given vocabulary: __de__ (id 300), __en__ (id 301), __reserved:1__ (id 302)"; says "train --init-from gives"
two=("${base[@]}" --set data.train=two/train --set data.validation=two/valid --set stop.steps=1)
expect 0 "${two[@]}" --init-from unbroken --run-dir two_languages; says "3 new tokens: __de__, __en__, __reserved:1__"
expect 0 "$hadal" prepare --train text/train.en text/train.de --vocab two/vocabulary.model --out untagged
expect 2 "${base[@]}" --set data.train=untagged/train --set data.validation= --init-from two_languages --run-dir from_tagged; says "was trained with language tags of the preset m2m100"
expect 0 "${mpi[@]}" 2 "${two[@]}" --set pipeline.replicas=2 --init-from unbroken --run-dir two_by_replicas
expect 0 "${mpi[@]}" 2 "${two[@]}" --init-from unbroken --run-dir two_by_stages
identical two_languages/checkpoints/step_00000001 two_by_stages/checkpoints/step_00000001
expect 0 "${two[@]}" --init-from unbroken --new-rows mean --run-dir two_mean
expect 1 "$hadal" checkpoint diff two_languages/checkpoints/step_00000001 two_mean/checkpoints/step_00000001
expect 2 "${two[@]}" --resume unbroken/$last --accept-changes --run-dir two_resumed; says "It has all tokens of the checkpoint's: --init-from"
sed 's/en-de/en-nl/' two.textproto > third.textproto
expect 0 "$hadal" prepare --list third.textproto --tags m2m100 --vocab two/vocabulary.model --out third
says "took reserved tags of the given vocabulary: __nl__ (id 302)"; lacks "added to"
expect 0 "${two[@]}" --set data.train=third/train --set data.validation=third/valid --init-from two_languages --run-dir three_languages; lacks "new token"

echo "parts that stay as they are; the best of another metric"
expect 2 "${base[@]}" --set "optimizer.frozen=encoder.layer.0.*" --run-dir frozen; says 'no parameter of the model matches "encoder.layer.0.*"; did you mean "encoder.layers.0.*"?'
best=("${base[@]}" --set 'optimizer.frozen=["encoder.*"]' --set validation.every_steps=1 --set checkpoint.keep_last=1 --set checkpoint.keep_best=3 --set learning_rate.warmup_updates=0 --run-dir best)
expect 0 "${best[@]}" --set stop.steps=6
[ "$(ls -d best/checkpoints/step_* | wc -l)" -eq 3 ] || fail "not the three best"
expect 0 "$hadal" checkpoint ls best; says "best 2"; says "best 3"
expect 0 "${best[@]}" --set stop.steps=7 --set 'validation.metric="chrf"' --set validation.bleu_sentences=4
says "the best checkpoint is chosen by chrf of 4 sentences.*, before by nll"; says "best and patience are reset"
expect 0 "$hadal" checkpoint ls best; says "best (chrf "
expect 0 "${best[@]}" --set stop.steps=8 --set 'validation.metric="chrf"' --set validation.bleu_sentences=4 --set decode.beam=2 \
  --set decode.length_penalty=1 --set decode.max_length_a=0.5 --set decode.max_length_b=7 --set decode.no_repeat_ngram=3
says "chosen by chrf of 4 sentences, beam 2, length penalty 1, at most 0.5x+7, n-grams 3.*, before by chrf of 4 sentences, beam 4"

echo "patience that is set at a resume counts from a best model that was saved"
late=("${base[@]}" --set validation.every_steps=2 --set checkpoint.every_steps=0 --set learning_rate.peak=1e-30 --set learning_rate.warmup_initial_rate=0 --run-dir late)
expect 0 "${late[@]}" --set stop.steps=6
[ ! -e late/checkpoints/best ] || fail "the best of a run without patience was saved"
expect 0 "${late[@]}" --set stop.steps=8 --set stop.patience=5
[ -e late/checkpoints/best ] || fail "no best model"
expect 0 "${late[@]}" --set stop.steps=20 --set stop.patience=1; says "^no improvement for stop.patience validations: 2 steps"
expect 0 "${late[@]}" --set stop.steps=20 --set stop.patience=1; says "where stop.patience ends the run"
expect 0 "${late[@]}" --set stop.steps=20 --set stop.minutes=1e-9; says "^time limit reached: "
expect 0 "${late[@]}" --set stop.steps=20 --set stop.epochs=0.01; says "where stop.epochs ends the run"; says "all epochs done: 0 steps"

echo "another text in the same place, with the same vocabulary: the place in the data means nothing there"
expect 0 "$hadal" prepare --train text/train.en text/train.de --valid text/valid.en text/valid.de --vocab data/vocabulary.model --out place
placed=("${base[@]}" --set data.train=place/train --set data.validation=place/valid --set validation.every_steps=2 --run-dir placed)
expect 0 "${placed[@]}" --set stop.steps=3
expect 0 "$hadal" prepare --train text/train.de text/train.en --valid text/valid.de text/valid.en --vocab data/vocabulary.model --out place --overwrite
expect 2 "${placed[@]}" --set stop.steps=5; says "was trained on another corpus (.*) than data.train = \"place/train\""; says "--reset data"
expect 0 "${placed[@]}" --set stop.steps=5 --reset data --reset best; says "the training data are read from their beginning"
says "the validation set is another one"; says "best and patience are reset"
expect 0 "${placed[@]}" --set stop.steps=6 --reset data; says "the training data are read from their beginning"
lacks "another corpus"
expect 0 "${placed[@]}" --set stop.steps=7; lacks "from their beginning"
expect 2 "${placed[@]}" --reset everything; says "everything"

echo "sentences longer than the model's positions are left out, and said"
expect 0 "${base[@]}" --set model.max_positions=8 --set stop.steps=2 --set data.max_left_out=1 \
  --set validation.every_steps=2 --set validation.bleu_sentences=20 --run-dir short; says "%) are left out"
says "BLEU at validations leaves out [0-9]* of 20 sentences: .* longer than 7 tokens"
expect 2 "${base[@]}" --set model.max_positions=8 --set stop.steps=2 --set data.max_left_out=0 --run-dir none; says "data.max_left_out"

echo "of Chinese BLEU says nothing, and that is said"
printf 'the black cat\nthe hot tea\n' > zh.en
printf '我们昨天在公园里看到了一只黑色的猫。\n他每天早上都在这里喝一杯热咖啡。\n' > zh.zh
expect 0 "$hadal" prepare --train zh.en zh.zh --valid zh.en zh.zh --out chinese --vocab-size 52
expect 0 "$hadal" train small.textproto --set pipeline.threads=1 --set data.train=chinese/train --set data.validation=chinese/valid --set stop.steps=1 \
  --set validation.every_steps=1 --set validation.bleu_sentences=2 --run-dir of_chinese; says "near 0 or meaningless"
expect 0 "$hadal" train small.textproto --set pipeline.threads=1 --set data.train=chinese/train --set data.validation=chinese/valid --set stop.steps=1 \
  --set validation.every_steps=1 --set validation.bleu_sentences=2 --set validation.bleu_tokenizer=zh --set data.sampling_temperature=5 \
  --run-dir of_characters; lacks "meaningless"
says "data.sampling_temperature has no effect: data.train is one text"

echo "an output that does not depend on the source is named once"
expect 0 "$hadal" train small.textproto --set pipeline.threads=1 --set stop.steps=3 --set data.validation=data/valid --set validation.every_steps=1 \
  --set validation.bleu_sentences=40 --set decode.max_length_a=0 --run-dir of_noise; says "validation sentences have the same translation: the output does not depend"
[ "$(grep -c '"event":"warning".*does not depend' of_noise/metrics.jsonl)" -eq 1 ] || fail "not warned once"

echo "the instruments of the depth change no bit, at default and off"
expect 0 "${base[@]}" --set instruments.enabled=false --run-dir unseen
identical unbroken/$last unseen/$last
[ "$(grep -c '"event":"depth"' unbroken/metrics.jsonl)" -eq 10 ] || fail "not every one of the first steps was recorded"
[ "$(grep -c '"event":"depth"' unseen/metrics.jsonl)" -eq 0 ] || fail "recorded although off"
HADAL_PYTHON=true expect 0 "$hadal" inspect similarity unbroken data/valid --out alike; says "encoder, 5 layers"  # the page has a test of its own
says "decoder, 7 layers"
[ -s alike.json ] || fail "no alike.json"
HADAL_PYTHON=true expect 2 "$hadal" inspect similarity unbroken nowhere; says nowhere
HADAL_PYTHON=true expect 2 "$hadal" inspect similarity unbroken anew/valid; says "trained with a different vocabulary than the corpus has"

echo "a reader that goes away"
"${base[@]}" --run-dir piped 2> piped.log | head -1 > /dev/null
identical unbroken/$last piped/$last

echo "bad input"
expect 2 "${base[@]}" --set model.heads=5 --run-dir bad; says "small.textproto:2:.*model.d_model = 64"; says "^  --set model.heads=5"
[ ! -e bad ] || fail "a config error made a run directory"
expect 1 bash -c 'ulimit -f 100; exec "$@"' limited "${base[@]}" --run-dir limited; says "ulimit -f"
expect 1 "${base[@]}" --set pipeline.memory_limit_bytes=1000000 --run-dir bad; says "Nearest"
grep -q "Z end: exit code 1: .*bytes" bad/logs/rank_00000.log || fail "an error before the run directory is open is not in its log"
expect 1 "${base[@]}" --set model.d_model=65536 --set model.d_ff=262144 --run-dir bad; says "what its host has free"
expect 2 "${base[@]}" --trace steps=8-11 --run-dir bad; says "goes beyond the run: its last step is 10"
expect 2 "${base[@]}" --resume . --run-dir bad; says "is not a checkpoint"
expect 2 "$hadal" trian; says 'did you mean "train"?'
expect 2 "$hadal"; says "Subcommands:"
expect 1 "$hadal" translate unbroken --input text/test.en --out /dev/full --max-len-b 5; says "is the disk full"
# A process raises its soft limit of open files.
many=$(($(env -u OMP_NUM_THREADS -u OMP_THREAD_LIMIT nproc) + 1))
expect 0 bash -c 'exec 3>&- 4>&- 5>&-; ulimit -Sn 6; exec "$@"' few "$hadal" score unbroken --source text/test.en --target text/test.de --threads $many
says "^warning: rank 0 has $many threads, but its share is"
expect 1 bash -c '"$1" checkpoint ls unbroken > /dev/full' full "$hadal"; says "is the disk full"
expect 2 "$hadal" bench kernels --device cpu --widths 65; says "65 is no multiple of 64"
expect 2 "$hadal" bench step --precision bf61; says 'not one of auto, fp32, tf32, bf16; did you mean "bf16"?'
expect 2 "${mpi[@]}" 2 "${base[@]}" --set model.dropout=1.5 --run-dir bad
[ "$(grep -c '0.99' out)" -eq 1 ] || fail "an error that all ranks share was not printed exactly once"
expect 2 "${mpi[@]}" 3 "$hadal" train small.textproto --rundir bad; says "hadal train: .*--rundir; did you mean --run-dir?"
[ "$(grep -c 'did you mean' out)" -eq 1 ] || fail "a usage error was not printed exactly once"
expect 1 "${mpi[@]}" 3 "${base[@]}" --set pipeline.memory_limit_bytes=1000000 --run-dir bad; says "all 3 ranks"
[ "$(grep -c 'Nearest' out)" -eq 1 ] || fail "an error that every rank finds was not printed exactly once"
[ ! -e bad/checkpoints ] || fail "a refused run left checkpoints"

finished
