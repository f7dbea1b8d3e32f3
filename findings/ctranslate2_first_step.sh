#!/usr/bin/env bash
# CTranslate2 4.8.5: translate_batch's default min_decoding_length=1 takes </s> out of the softmax of the first step, so that its score is
# higher than the model's log-probability of the same tokens (score_batch). With min_decoding_length=0 the two agree.
. "$(dirname "$0")/support.sh"
packages ctranslate2==4.8.5
cat > "$folder/show.py" <<'PYTHON'
import sys

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec

draw, d, hidden = np.random.default_rng(1), 16, 32
tokens = ["<s>", "<blank>", "</s>", "<unk>", *(f"word{i}" for i in range(20))]


def linear(spec, rows, columns):
    spec.weight, spec.bias = (draw.standard_normal((rows, columns)) * 0.4).astype(np.float32), np.zeros(rows, np.float32)


def norm(spec):
    spec.gamma, spec.beta = np.ones(d, np.float32), np.zeros(d, np.float32)


def attention(spec, rows):
    for part, size in zip(spec.linear, rows):
        linear(part, size, d)
    norm(spec.layer_norm)


model = TransformerSpec.from_config((1, 1), 2, pre_norm=True)
for stack, embeddings in ((model.encoder, model.encoder.embeddings[0]), (model.decoder, model.decoder.embeddings)):
    embeddings.weight = (draw.standard_normal((len(tokens), d)) * 0.4).astype(np.float32)
    stack.scale_embeddings = 1.0
    stack.position_encodings.encodings = (draw.standard_normal((64, d)) * 0.1).astype(np.float32)
    norm(stack.layer_norm)
    layer = stack.layer[0]
    attention(layer.self_attention, (3 * d, d))
    linear(layer.ffn.linear_0, hidden, d)
    linear(layer.ffn.linear_1, d, hidden)
    norm(layer.ffn.layer_norm)
attention(model.decoder.layer[0].attention, (d, 2 * d, d))
linear(model.decoder.projection, len(tokens), d)
model.register_source_vocabulary(tokens)
model.register_target_vocabulary(tokens)
model.config.decoder_start_token = "</s>"
model.config.add_source_eos = True
model.validate()
model.save(sys.argv[1])
translator = ctranslate2.Translator(sys.argv[1])
source, differ = [["word3", "word5"]], []
for least in (1, 0):
    found = translator.translate_batch(source, beam_size=1, length_penalty=0, max_decoding_length=5, min_decoding_length=least, return_scores=True)[0]
    own = translator.score_batch(source, found.hypotheses, max_input_length=0)[0].log_probs
    expected = sum(own if len(found.hypotheses[0]) < 5 else own[:5])  # cut at 5 tokens: without </s>
    differ.append(abs(found.scores[0] - expected))
    print(f"min_decoding_length={least}: {found.hypotheses[0]}, translate_batch {found.scores[0]:.5f}, score_batch {expected:.5f}")
print(f"CTranslate2 {ctranslate2.__version__}; expected: equal scores; seen: they differ by {differ[0]:.5f} by default, {differ[1]:.1e} with 0")
sys.exit(not (differ[0] > 1e-4 and differ[1] < 1e-4))
PYTHON
mkdir "$folder/model"
check "$python" "$folder/show.py" "$folder/model"
