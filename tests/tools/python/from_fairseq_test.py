"""`hadal config from-fairseq`: fairseq's own commands become configs that hadal ($HADAL) accepts; nothing is dropped silently."""

import os
import subprocess
import tempfile
import unittest
from pathlib import Path

from pyhadal import from_fairseq
from pyhadal.from_fairseq import ARCHITECTURES, architecture_text, config_of
from pyhadal.refusal import Refusal

CONFIGS = Path(__file__).resolve().parents[3] / "configs/fairseq"
# Of fairseq's examples/translation, language_model, speech_to_text and scaling_nmt READMEs.
IWSLT = r"""CUDA_VISIBLE_DEVICES=0 fairseq-train \
    data-bin/iwslt14.tokenized.de-en \
    --arch transformer_iwslt_de_en --share-decoder-input-output-embed \
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 \
    --lr 5e-4 --lr-scheduler inverse_sqrt --warmup-updates 4000 \
    --dropout 0.3 --weight-decay 0.0001 \
    --criterion label_smoothed_cross_entropy --label-smoothing 0.1 \
    --max-tokens 4096 \
    --eval-bleu \
    --eval-bleu-args '{"beam": 5, "max_len_a": 1.2, "max_len_b": 10}' \
    --eval-bleu-detok moses \
    --eval-bleu-remove-bpe \
    --eval-bleu-print-samples \
    --best-checkpoint-metric bleu --maximize-best-checkpoint-metric"""
WMT = """fairseq-train data-bin/wmt16_en_de_bpe32k --arch transformer_vaswani_wmt_en_de_big --share-all-embeddings
    --optimizer adam --adam-betas '(0.9, 0.98)' --clip-norm 0.0 --lr 0.0005 --lr-scheduler inverse_sqrt --warmup-updates 4000
    --warmup-init-lr 1e-07 --dropout 0.3 --weight-decay 0.0 --criterion label_smoothed_cross_entropy --label-smoothing 0.1
    --max-tokens 3584 --fp16 --update-freq 16 --max-update 300000"""
LANGUAGE_MODEL = """fairseq-train --task language_modeling data-bin/wikitext-103 --save-dir checkpoints/transformer_wiki103
    --arch transformer_lm_wiki103 --max-update 286000 --lr 1.0 --lr-scheduler cosine --warmup-updates 16000 --warmup-init-lr 1e-07
    --stop-min-lr 1e-09 --optimizer nag --min-lr 0.0001 --clip-norm 0.1 --criterion adaptive_loss --max-tokens 3072 --update-freq 3
    --tokens-per-sample 3072 --seed 1 --sample-break-mode none --skip-invalid-size-inputs-valid-test --ddp-backend=legacy_ddp"""
SPEECH = """fairseq-train ${LS_ROOT} --save-dir ${SAVE_DIR} --config-yaml config.yaml --train-subset train-clean-100 --valid-subset dev-clean
    --num-workers 4 --max-tokens 40000 --max-update 300000 --task speech_to_text --criterion label_smoothed_cross_entropy
    --label-smoothing 0.1 --report-accuracy --arch s2t_transformer_s --share-decoder-input-output-embed --optimizer adam --lr 2e-3
    --lr-scheduler inverse_sqrt --warmup-updates 10000 --clip-norm 10.0 --seed 1 --update-freq 8"""


def fields(command: str, gpus: int = 0) -> dict:
    options, _, _ = from_fairseq.parse(command)
    conversion = from_fairseq.Conversion(options, gpus)
    conversion.convert()
    return conversion.fields


class Conversions(unittest.TestCase):
    def test_the_configs_of_the_architectures_are_those_of_the_table(self):
        self.assertEqual({path.stem for path in CONFIGS.glob("*.textproto")}, set(ARCHITECTURES))
        for name in ARCHITECTURES:
            self.assertEqual((CONFIGS / f"{name}.textproto").read_text(encoding="utf-8"), architecture_text(name))

    def test_the_table_of_the_documentation_is_that_of_the_program(self):
        page = (CONFIGS / "../../docs/fairseq.md").read_text(encoding="utf-8")
        self.assertTrue(page.endswith(from_fairseq.option_table()))

    def test_values_of_the_command_and_of_the_architecture(self):
        found = fields(IWSLT)
        for field, value in {"model.d_ff": 1024, "model.heads": 4, "model.dropout": 0.3, "model.sharing": "decoder",
                             "model.residual.method": "post_ln", "model.label_smoothing": 0.1, "optimizer.beta2": 0.98,
                             "learning_rate.peak": 5e-4, "learning_rate.warmup_initial_rate": 0, "batch.target_tokens": 4096,
                             "batch.micro_batches": 1, "decode.beam": 5, "decode.max_length_a": 1.2, "decode.max_length_b": 10, "decode.length_penalty": 1,
                             "validation.metric": "bleu"}.items():
            self.assertEqual(found[field], value, field)
        found = fields(WMT, gpus=8)
        for field, value in {"model.d_model": 1024, "model.sharing": "all", "batch.micro_batches": 128, "stop.steps": 300000,
                             "learning_rate.warmup_initial_rate": 1e-7, "optimizer.weight_decay": 0}.items():
            self.assertEqual(found[field], value, field)
        self.assertEqual(fields("CUDA_VISIBLE_DEVICES=0,1,2 fairseq-train d -a transformer --update-freq=2")["batch.micro_batches"], 6)
        launched = fields("python -m torch.distributed.launch --nproc_per_node 8 --nnodes=2 $(which fairseq-train) d -a transformer --update-freq [2]")
        self.assertEqual(launched["batch.micro_batches"], 32)
        for command, count in (("http_proxy=x torchrun --nproc_per_node=gpu --nnodes=1:4 -m fairseq_cli.train d", 1), ("torchrun --nnodes=4 train.py d", 4),
                               ("CUDA_VISIBLE_DEVICES=0,1 torchrun --nnodes=2 train.py d=1", 4)):
            self.assertEqual(fields(f"{command} -a transformer")["batch.micro_batches"], count, command)
        self.assertEqual(fields("fairseq-train d --arch transformer --encoder-normalize-before")["model.residual.encoder.norm"], "pre")
        self.assertEqual(fields("fairseq-train d --arch transformer --activation-fn gelu_fast")["model.block.activation"], "gelu_tanh")
        for options, positions in (("--encoder-learned-pos --decoder-learned-pos", "learned"), ("--no-token-positional-embeddings", "none"),
                                   ("--decoder-learned-pos", None)):
            self.assertEqual(fields("fairseq-train d --arch transformer " + options).get("model.block.positions"), positions, options)
        text = config_of("fairseq-train d --arch transformer --no-scale-embedding --layernorm-embedding")
        self.assertIn("scale_embedding: false", text)
        self.assertIn("embedding_norm: true", text)
        self.assertEqual(fields("fairseq-train d --arch transformer")["optimizer.beta2"], 0.999, "fairseq's default, not hadal's")
        found = fields("fairseq-train d --arch transformer --stop-time-hours 2 --save-interval-updates 500 --lr-scheduler inverse_sqrt")
        for field, value in {"stop.minutes": 120, "checkpoint.keep_last": 0, "validation.every_steps": 500, "learning_rate.warmup_updates": 4000}.items():
            self.assertEqual(found[field], value, field)
        found = fields("fairseq-train d --arch transformer --save-interval-updates 0 --validate-interval-updates 0")
        self.assertFalse({"checkpoint.every_steps", "validation.every_steps"} & found.keys(), "0: by epochs")
        for options, rate in (("", (286000, 1e-4, 1e-7)), (" --lr-period-updates 270000 --t-mult 2 --lr-shrink 0.75 --warmup-init-lr -1", (286000, 1e-4, 1e-4)),
                              (" --max-update 0 --lr-period-updates 1000 --min-lr 0", (17000, 0, 1e-7)),
                              (" --max-lr 1.5 --lr 1e-4 --min-lr 1e-9", (286000, 1e-4, 1e-7))):
            found = fields(LANGUAGE_MODEL + options)
            self.assertEqual(found["learning_rate.peak"], 1.5 if "max-lr" in options else 1, "of fairseq before 0.10")
            self.assertEqual(found["learning_rate.schedule"], "cosine")
            self.assertEqual(tuple(found[field] for field in ("stop.steps", "learning_rate.end_rate", "learning_rate.warmup_initial_rate")), rate, options)
            self.assertNotIn("the rate falls", config_of(LANGUAGE_MODEL + options))
        self.assertIn("the rate falls until stop.steps, not for 26000 updates", config_of(LANGUAGE_MODEL + " --lr-period-updates 1e4"))
        self.assertEqual([fields(SPEECH)[f"batch.{side}_tokens"] for side in ("source", "target")], [10000, 40000])
        for command, wanted in (
                ("transformer --adaptive-softmax-cutoff 9,99 --max-source-positions 2000 --label-smoothing 0.1 --relu-dropout 0.2 --power 2 --patience -1",
                 {"model.sharing": "none", "model.max_positions": 2000, "model.label_smoothing": 0, "model.activation_dropout": 0.2,
                  "learning_rate.warmup_updates": 0, "learning_rate.power": None, "stop.patience": None}),
                ("transformer_lm --decoder-learned-pos", {"model.block.positions": "learned"}),
                ("s2t_transformer_s --encoder-learned-pos --decoder-learned-pos --max-target-positions 2000",
                 {"model.block.positions": None, "model.max_positions": 2000}),
                ("transformer --lr-scheduler polynomial_decay --total-num-updates 50", {"stop.steps": 50}),
                ("transformer --lr-scheduler inverse_sqrt --total-num-update 50 --warmup-init-lr -1",
                 {"stop.steps": None, "learning_rate.warmup_initial_rate": 0}),
                ("transformer --distributed-world-size 16 --eval-bleu", {"batch.micro_batches": 16, "decode.max_length_a": 0, "decode.max_length_b": 200}),
                ("""transformer --eval-bleu --eval-bleu-args '{"lenpen": 0.6, "no_repeat_ngram_size": 3}'""",
                 {"decode.length_penalty": 0.6, "decode.no_repeat_ngram": 3})):
            found = fields(f"fairseq-train d --arch {command}")
            self.assertEqual({field: found.get(field) for field in wanted}, wanted, command)

    def test_nothing_is_dropped_silently(self):
        text = config_of(LANGUAGE_MODEL)
        for part in ("# not carried over:", "--optimizer nag: only Adam", "--no-decoder-final-norm", "--sample-break-mode", "hadal train … --run-dir DIR", "--stop-min-lr: not there"):
            self.assertIn(part, text)
        self.assertNotIn("--ddp-backend", text)
        text = config_of("fairseq-train d --arch transformer --adaptive-softmax-cutoff 9,99 --share-all-embeddings --adaptive-input "
                         "--adaptive-input-cutoff 9,99 --tie-adaptive-weights")
        for part in ("--share-all-embeddings beside", "--adaptive-input: input and softmax share"):
            self.assertIn(part, text)
        text = config_of("fairseq-train data --arch transformer --activation-fn tanh --decoder-embed-dim 256 --new-flag --lr 0.1,0.2 "
                         "--lr-scheduler tri_stage")
        for part in ("--activation-fn tanh", "--decoder-embed-dim 256", "# unknown options:\n#   - --new-flag", "--lr of each epoch",
                     "--lr-scheduler tri_stage: inverse_sqrt, polynomial_decay, cosine, fixed; the rate is constant"):
            self.assertIn(part, text)
        for command, part in (("transformer --criterion composite_loss", "--criterion composite_loss: only"), ("transformer", "no limit is given"),
                              ("s2t_transformer_s --conv-kernel-sizes 3,3", "--conv-kernel-sizes: the two"),
                              ("s2t_transformer_s --layernorm-embedding", "--layernorm-embedding: no norm"),
                              ("transformer --lr-scheduler inverse_sqrt --min-lr 1e-9", "--min-lr: of cosine alone"),
                              ("transformer --update-freq 2,1", "--update-freq of later epochs"), ("transformer --eval-bleu-args x", "not JSON"),
                              ("transformer --best-checkpoint-metric wer", "wer: not measured"),
                              ("transformer --lr-scheduler polynomial_decay --max-update 40 --total-num-update 50", "not for 50 updates"),
                              ("transformer_lm_wiki103 --adaptive-input-cutoff 9,99", "--adaptive-input: input and softmax share")):
            self.assertIn(part, config_of(f"fairseq-train d --arch {command}"), command)

    def test_mistakes_are_refused(self):
        for command, said in (("fairseq-train d --arch conv_seq", "conv_seq is not known here"), ("fairseq-train d --lr nan", "--lr: nan"),
                              ("fairseq-train 'd", "put it in single quotes"), ("fairseq-train d --dropout x", "--dropout: x"),
                              ("fairseq-train d --adam-betas 0.9", "two numbers are expected"),
                              ("fairseq-hydra-train task=x optimization.max_update=5", "hydra's overrides"),
                              ("sockeye-train --num-layers 6:6", "neither fairseq-train")):
            with self.subTest(command), self.assertRaisesRegex(Refusal, said):
                config_of(command)

    def test_hadal_accepts_them(self):
        with tempfile.TemporaryDirectory() as folder:
            for command in (IWSLT, WMT, LANGUAGE_MODEL, SPEECH, "fairseq-train d --arch transformer_tiny --lr 1e-3 --max-epoch 3 --layernorm-embedding"):
                done = subprocess.run([os.environ["HADAL"], "config", "from-fairseq", "--gpus", "2", command], capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                path = os.path.join(folder, "run.textproto")
                Path(path).write_text(done.stdout, encoding="utf-8")
                # Of one beyond hadal's range the user decides.
                override = ["--set", "learning_rate.schedule=inverse_sqrt"]
                shown = subprocess.run([os.environ["HADAL"], "config", "show", path, "--set", "stop.steps=1000", *override],
                                       capture_output=True, text=True)
                self.assertEqual(shown.returncode, 0, shown.stderr)


if __name__ == "__main__":
    unittest.main()
