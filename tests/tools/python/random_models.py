"""Plain models with random weights and vocabularies of random text, for tests without training."""

import io
import random

import numpy as np

from hadal_torch.plain import PlainModel, plain_settings, plain_shapes

WORDS = [f"word{i}" for i in range(46)]


def plain_model(encoder=None, decoder=None, layers=(2, 3), d=16, hidden=24, heads=4, sharing="all", update=3, spread=0.3,
                **settings) -> PlainModel:
    """`encoder`, `decoder`: fields of the stacks that differ from Post-LN's. No encoder layers: a language model. Weights are large enough for peaked
    distributions."""
    draw = np.random.default_rng(7)
    model = plain_settings(False, encoder_layers=layers[0], decoder_layers=layers[1], d_model=d, d_ff=hidden, heads=heads,
                           source_vocabulary=50 if layers[0] else 0, target_vocabulary=50, max_positions=64, sharing=sharing)
    model.update(settings)
    model["encoder"].update(encoder or {})
    model["decoder"].update(decoder or {})
    weights = {}
    for name, shape in plain_shapes(model).items():
        weights[name] = spread * draw.standard_normal(shape) + (1 if name.endswith("norm.weight") else 0)
        omega = name.replace("_layer_norm.weight", ".omega").replace("final.omega", "ffn.omega")
        if name.endswith("_layer_norm.weight") and model[name.split(".")[0]]["omega"] != "none":
            weights[omega] = 1.5 + 0.2 * draw.standard_normal(shape)
    weights = {name: value.astype(np.float32) for name, value in weights.items()}
    vocabulary = "".join(f"{word} 1\n" for word in WORDS).encode()
    return PlainModel(model, weights, {"vocabulary.txt": vocabulary}, 3, update, 'model {\n  residual {\n    method: "test"\n  }\n}\n')


LLAMA = {"norm": "rms", "norm_epsilon": 1e-6, "norm_shift": False, "activation": "silu", "gated": True, "biases": "none", "positions": "rotary",
         "rotary_theta": 500.0, "scale_embedding": False}
GPT2 = {"activation": "gelu_tanh", "positions": "learned", "scale_embedding": False}

METHODS = {
    "post_ln": {},
    "deepnorm": {"encoder": {"residual_gain": 1.9}, "decoder": {"residual_gain": 2.7}},
    "branchnorm": {"branch_growth": "linear", "branch_growth_updates": 7.0},
    "pre_ln": {"encoder": {"norm": "pre"}, "decoder": {"norm": "pre"}},
    "ln_scaling": {stack: {"norm": "pre", "norm_gain": "inverse_sqrt"} for stack in ("encoder", "decoder")},
    "completep": {stack: {"norm": "pre", "branch_gain": 0.4, "adam_epsilon_factor": 0.4} for stack in ("encoder", "decoder")},
    "admin": {"encoder": {"omega": "profiled"}, "decoder": {"omega": "profiled"}},
}


def language_model(method, **settings) -> PlainModel:
    """3 decoder layers of a method; `settings` of plain_model."""
    return plain_model(**{**METHODS[method], "layers": (0, 3), "spread": 0.2, **settings})


def sentences(count=12, longest=9):
    """[(source ids, target ids)], each with </s>."""
    draw = np.random.default_rng(3)
    return [tuple([*draw.integers(3, 50, draw.integers(1, longest)).tolist(), 2] for _ in range(2)) for _ in range(count)]


LETTERS = "abcdefgiklmnorstuwäöüéß"


def random_text(lines):
    source = random.Random(4)
    words = ["".join(source.choices(LETTERS, k=source.randint(1, 7))) for _ in range(300)]
    return [" ".join(source.choices(words, k=source.randint(1, 12))).capitalize() + source.choice([".", "?", " !"]) for _ in range(lines)]


def sentencepiece_model(text=(), **settings) -> bytes:
    """`text`: learned from as well, with all of its characters."""
    import sentencepiece  # here, because most tests need none

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter([*random_text(400), *text]), model_writer=model, minloglevel=2, **{
        "vocab_size": 160, "bos_id": 0, "pad_id": 1, "eos_id": 2, "unk_id": 3, "hard_vocab_limit": False, "character_coverage": 1.0, **settings})
    return model.getvalue()
