"""What a trained model computes: translations, samples, scores, vectors, and itself as a torch module."""

from __future__ import annotations

import dataclasses
import json
import os
import tempfile
from typing import TYPE_CHECKING, Any, Sequence

from pyhadal import program
from pyhadal.group import plain
from pyhadal.packages import require
from pyhadal.refusal import Refusal
from pyhadal.service import Service

if TYPE_CHECKING:
    import numpy as np
    import pandas


def listed(texts: "Sequence[str]") -> "list[str]":
    """The texts as a list. Raises Refusal for one text alone, whose letters it would be, and for what is no text."""
    if isinstance(texts, str):
        raise Refusal(f"{texts[:40]!r} is one text; give a list of texts")
    found = list(texts)
    for number, text in enumerate(found):
        if not isinstance(text, str):
            raise Refusal(f"text {number} is no str: {text!r:.40}")
    return found


@dataclasses.dataclass(frozen=True)
class Hypothesis:
    """An output of the model. `log_probabilities`: natural, of each of `tokens`, </s> included. `score`: their sum, divided by their
    number to the power of the length penalty."""

    text: str
    tokens: "tuple[str, ...]"
    score: float
    log_probabilities: "tuple[float, ...]"


def flags(options: "dict[str, Any]") -> "list[str]":
    """Options of a command: {"vocab_size": 2000, "separate": True, "set": ["a=1", "b=2"]} → --vocab-size 2000 --separate --set a=1 --set b=2.
    None and False: not given."""
    words: "list[str]" = []
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        found = plain(value)
        for each in map(plain, found if isinstance(found, list) else [found]):
            if each is True:
                words.append(option)
            elif each is not None and each is not False:
                words += [option, str(each)]
    return words


class ModelCommands:
    """What the run's model computes: that of its best checkpoint, else its newest. Each kind of call with each set of options keeps a
    program alive, which holds the model; `close` ends all of them. Options are those of the command with `_` for `-`, as `beam=8,
    max_len_b=20, threads=2`: `hadal translate --help` lists them; not those that name files of texts."""

    path: str

    def __getstate__(self) -> "dict[str, Any]":
        """Without the programs: a copy, as another process's, starts its own."""
        return {name: value for name, value in self.__dict__.items() if name != "_services"}

    def hypotheses(self, sentences: "Sequence[str]", *, nbest: int = 1, **options: Any) -> "list[list[Hypothesis]]":
        """Translates sentences: for each, in order, at most `nbest` hypotheses, best first; none for an empty sentence.

        With `temperature`, `top_k` or `top_p` they are drawn: the draws continue from call to call, and restart after `close`.
        Raises Refusal, in the program's words: a sentence that is too long (`on_long="skip"` gives none for it), a model that
        does not translate, a bad option.
        """
        return self._outputs("translate", sentences, {**options, "nbest": nbest})

    def translate(self, sentences: "Sequence[str]", **options: Any) -> "list[str]":
        """Translates sentences: the best hypothesis of each, in order; "" for an empty sentence. Options and errors: `hypotheses`."""
        return [found[0].text if found else "" for found in self.hypotheses(sentences, **options)]

    def sample(self, prompts: "Sequence[str]" = ("",), *, count: int = 1, **options: Any) -> "list[list[str]]":
        """Draws `count` continuations of each prompt from a language model: for each, in order, the texts with their prompt, by score.
        Options: `temperature`, `top_k`, `top_p`, `seed`, `max_len`. The draws continue from call to call. Errors: as `hypotheses`."""
        outputs = self._outputs("sample", prompts, {**options, "nbest": count, "prompts": "-"})
        return [[hypothesis.text for hypothesis in found] for found in outputs]

    def score(self, targets: "Sequence[str]", sources: "Sequence[str] | None" = None, **options: Any) -> "pandas.DataFrame":
        """The log-probability of given translations of `sources`, or, with a language model, of texts: a row each, in order, with
        log_probability (natural, the sum over the tokens) and tokens (</s> included). Raises Refusal as `hypotheses`."""
        require("pandas")
        import pandas

        targets, sources = listed(targets), None if sources is None else listed(sources)
        if sources is not None and len(sources) != len(targets):
            raise Refusal(f"{len(sources)} sources and {len(targets)} targets; give as many")
        if sources is None:
            service = self._service("score", options, ["--target"])
            columns = [[json.dumps({"text": text}) for text in targets]]
        else:
            service = self._service("score", options, ["--source", "--target"])
            columns = [sources, targets]
        rows = [answer.split("\t") for answer in service.ask(*columns)]
        return pandas.DataFrame({"log_probability": [float(row[0]) for row in rows], "tokens": [int(row[1]) for row in rows]})

    def embed(self, texts: "Sequence[str]", **options: Any) -> "np.ndarray[Any, Any]":
        """A vector of each text from an encoder alone: float32 [texts, d_model], the mean over the text's tokens (`pooling="first"`:
        the first token's). Raises Refusal as `hypotheses`."""
        require("numpy")
        import numpy as np

        # One text more, so that the width is known without any.
        answers = self._service("embed", options, ["--input"]).ask([json.dumps({"text": text}) for text in [*listed(texts), ""]])
        vectors: "np.ndarray[Any, Any]" = np.array([json.loads(answer) for answer in answers], np.float32)
        return vectors[:-1]

    def model(self) -> Any:
        """The model as a torch.nn.Module (hadal_torch.Model) in float32: parameters have fairseq's names, linear weights are [out, in].
        Without dropout. Raises Refusal for a run without a checkpoint, and where torch is missing."""
        require("torch", "numpy")
        from hadal_torch import Model, read_plain

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            program.run(["checkpoint", "export", self.path, "--out", path])
            return Model.of(read_plain(path))

    def close(self) -> None:
        """Ends the programs of this object. The next call starts new ones, with the checkpoint that is best at that time."""
        services: "dict[Any, Service]" = self.__dict__.pop("_services", {})
        for service in services.values():
            service.close()

    def _outputs(self, command: str, texts: "Sequence[str]", options: "dict[str, Any]") -> "list[list[Hypothesis]]":
        answers = self._service(command, {**options, "json": True}).ask(listed(texts))
        return [[Hypothesis(each["text"], tuple(each["tokens"]), each["score"], tuple(each["log_probabilities"]))
                 for each in json.loads(answer)["hypotheses"]] for answer in answers]

    def _service(self, command: str, options: "dict[str, Any]", inputs: "Sequence[str]" = ()) -> Service:
        if files := sorted({"buffer", "input", "out", "prefix", "source", "target"} & {name.rstrip("_") for name in options}):
            raise Refusal(f"{files[0]} is of the command alone; here texts and answers are lists")
        services: "dict[Any, Service]" = self.__dict__.setdefault("_services", {})
        words = (*flags(options), self.path)
        key = (command, tuple(inputs), words)
        service = services.get(key)
        if service is None or not service.alive:
            service = services[key] = Service(command, words, inputs)
        return service
