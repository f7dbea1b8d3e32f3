#!/usr/bin/env bash
# CTranslate2 4.8.5, Generator.generate_batch: include_prompt_in_result, which says what is returned, changes what is generated. With its
# default, true, the prompt's tokens count in max_length, and the score of the new tokens is divided by the length with the prompt.
. "$(dirname "$0")/support.sh"
packages ctranslate2==4.8.5
mkdir "$folder/model"
check "$python" - "$folder/model" <<'PYTHON'
import sys

import ctranslate2
import numpy as np
from ctranslate2.specs import Activation, TransformerDecoderModelSpec

draw, d = np.random.default_rng(4), 16
tokens = ["<unk>", "<s>", "</s>", *(f"word{i}" for i in range(9))]


def matrix(rows, columns=d):
    return (draw.standard_normal((rows, columns)) * 0.5).astype(np.float32)


model = TransformerDecoderModelSpec.from_config(1, 2, pre_norm=True, activation=Activation.SWISH, ffn_glu=True, rms_norm=True, rotary_dim=8,
                                                rotary_interleave=False)
decoder, layer = model.decoder, model.decoder.layer[0]
decoder.embeddings.weight, decoder.projection.weight, decoder.scale_embeddings = 2 * matrix(len(tokens)), matrix(len(tokens)), False
for norm in (decoder.layer_norm, layer.self_attention.layer_norm, layer.ffn.layer_norm):
    norm.gamma = np.ones(d, np.float32)
for part, shape in ((layer.self_attention.linear[0], (3 * d, d)), (layer.self_attention.linear[1], (d, d)), (layer.ffn.linear_0, (32, d)),
                    (layer.ffn.linear_0_noact, (32, d)), (layer.ffn.linear_1, (d, 32))):
    part.weight = matrix(*shape)
model.register_vocabulary(tokens)
model.config.bos_token, model.config.eos_token, model.config.unk_token = "<s>", "</s>", "<unk>"
model.validate()
model.save(sys.argv[1])
generator, prompt = ctranslate2.Generator(sys.argv[1]), ["<s>", "word1", "word2", "word1"]
print(f"CTranslate2 {ctranslate2.__version__}, a prompt of <s> and 3 tokens, max_length=6, greedy; expected: the same 6 new tokens and score in both")
seen = {}
for included in (True, False):
    found = generator.generate_batch([prompt], max_length=6, include_prompt_in_result=included, return_scores=True)[0]
    new = found.sequences[0][3 * included:]
    own = sum(generator.score_batch([prompt + new])[0].log_probs[3:])
    seen[included] = len(new), found.scores[0] * len(new) / own
    print(f"include_prompt_in_result={included}: {len(new)} new tokens, score {found.scores[0]:.4f}, "
          f"the mean of their log-probabilities {own / len(new):.4f}")
sys.exit(not (seen[True][0] == 3 and seen[False][0] == 6 and abs(seen[True][1] - 0.5) < 1e-4 and abs(seen[False][1] - 1) < 1e-4))
PYTHON
