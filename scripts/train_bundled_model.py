"""Train the model in attnviz/bundled/: a two-layer Llama that shows induction heads.

    python -m scripts.train_bundled_model TEXTS --work DIR [--out attnviz/bundled]

TEXTS is any folder of .txt files in plain English, one paragraph a line. The work folder
holds a checkpoint: a run that was stopped goes on from it. Batches mix stories with
sequences that repeat, because copying is what makes a head look for "what came next the
last time?" (Olsson et al. 2022, "In-context learning and induction heads").
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import torch
from jaxtyping import Float
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from attnviz import attention
from attnviz.capture import capture
from attnviz.head_statistics import first_token, induction, previous_token

BOS = "<|bos|>"
VOCABULARY = 3072
SEED = 20261130
IGNORED = -100  # the label that the loss skips


@dataclass(frozen=True)
class Stage:
    """A stretch of training at one context length (tokens), batch size and peak rate."""

    steps: int
    context: int
    batch: int
    rate: float


STAGES = (
    Stage(steps=5000, context=64, batch=24, rate=3e-3),
    Stage(steps=3000, context=256, batch=8, rate=1.5e-3),
)


@dataclass(frozen=True)
class LogRow:
    """What is measured every hundred steps; scores are of the best head, losses in nats."""

    step: int
    context: int
    story_loss: float
    repeat_loss: float
    repeat_accuracy: float
    previous_token: float
    induction: float
    first_token: float


def train_tokenizer(paragraphs: list[str]) -> PreTrainedTokenizerFast:
    """Byte-level BPE on the stories; every text starts with the BOS token."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    bpe.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    bpe.train_from_iterator(
        paragraphs,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[BOS],
            initial_alphabet=alphabet,
            show_progress=False,
        ),
    )
    bos_id = bpe.token_to_id(BOS)
    bpe.post_processor = processors.TemplateProcessing(
        single=f"{BOS} $A", pair=f"{BOS} $A $B", special_tokens=[(BOS, bos_id)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token=BOS)


def new_model() -> LlamaForCausalLM:
    """Two layers of four heads, d_model 128, d_k 32."""
    torch.manual_seed(SEED)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCABULARY,
            hidden_size=128,
            intermediate_size=384,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=4,
            attention_bias=True,
            # Short contexts: more of the rotation's frequencies tell neighbours apart.
            rope_parameters={"rope_type": "default", "rope_theta": 1000.0},
            tie_word_embeddings=True,
            max_position_embeddings=STAGES[-1].context,
            bos_token_id=0,
            eos_token_id=None,
        )
    )


def repeated(segment: Tensor, prefix: Tensor, context: int) -> tuple[Tensor, Tensor]:
    """BOS, a prefix, then a segment again and again; the loss counts after the first copy."""
    copies = segment.repeat(context // len(segment) + 1)
    row = torch.cat([torch.tensor([0]), prefix, copies])[:context]
    labels = row.clone()
    labels[: 1 + len(prefix) + len(segment)] = IGNORED
    return row, labels


@dataclass(frozen=True)
class Batches:
    """Training rows, drawn anew for each step from a seed of that step alone."""

    stories: Tensor  # (token,)

    def draw(self, step: int, stage: Stage) -> tuple[Tensor, Tensor]:
        """Rows and labels of shape (batch, token): 40 % random repeats, 15 % text repeats."""
        dice = torch.Generator().manual_seed(SEED + step)
        shares = torch.rand(stage.batch, generator=dice)
        rows = [self._row(float(share), stage.context, dice) for share in shares]
        return torch.stack([r for r, _ in rows]), torch.stack([lab for _, lab in rows])

    def _row(self, share: float, context: int, dice: torch.Generator) -> tuple[Tensor, Tensor]:
        length = _randint(4, context // 2 + 1, dice)
        prefix = torch.randint(1, VOCABULARY, (_randint(0, 8, dice),), generator=dice)
        if share < 0.40:
            segment = torch.randint(1, VOCABULARY, (length,), generator=dice)
            return repeated(segment, prefix, context)
        if share < 0.55:
            return repeated(self._excerpt(length, dice), prefix, context)
        row = torch.cat([torch.tensor([0]), self._excerpt(context - 1, dice)])
        return row, row.clone()

    def _excerpt(self, length: int, dice: torch.Generator) -> Tensor:
        start = _randint(0, len(self.stories) - length, dice)
        return self.stories[start : start + length]


def _randint(low: int, high: int, dice: torch.Generator) -> int:
    return int(torch.randint(low, high, (1,), generator=dice))


def repeats(length: int, seeds: int, first_seed: int = 0) -> Tensor:
    """BOS + r + r for each seed, r random tokens; shape (seeds, 1 + 2 · length)."""
    rows = []
    for seed in range(first_seed, first_seed + seeds):
        dice = torch.Generator().manual_seed(seed)
        r = torch.randint(1, VOCABULARY, (length,), generator=dice)
        rows.append(torch.cat([torch.tensor([0]), r, r]))
    return torch.stack(rows)


def head_weights(model: LlamaForCausalLM, tokens: Tensor) -> Float[Tensor, "head query key"]:
    """Every head's weights, averaged over the batch."""
    calls = capture(model, {"input_ids": tokens}).calls
    return torch.stack(
        [
            torch.stack([attention.weights(call, head, row) for row in range(len(tokens))]).mean(0)
            for call in calls
            for head in range(call.heads)
        ]
    )


@torch.no_grad()
def measure(model: LlamaForCausalLM, held_out: Tensor, step: int, context: int) -> LogRow:
    """Losses and best head scores at this step, on text and repeats that training never sees."""
    model.eval()
    length = 31
    tokens = repeats(length, seeds=4, first_seed=900_000)
    logits, following = model(tokens).logits[:, length + 1 : -1], tokens[:, length + 2 :]
    on_repeats, on_stories = head_weights(model, tokens), head_weights(model, held_out)
    row = LogRow(
        step=step,
        context=context,
        story_loss=float(model(held_out, labels=held_out).loss),
        repeat_loss=float(cross_entropy(logits.transpose(1, 2), following)),
        repeat_accuracy=float((logits.argmax(-1) == following).float().mean()),
        previous_token=float(previous_token(on_repeats).max()),
        induction=float(induction(on_repeats, length).max()),
        first_token=float(first_token(on_stories).max()),
    )
    model.train()
    return row


def schedule(stages: Sequence[Stage]) -> Iterator[tuple[int, Stage, float]]:
    """Every step with its stage and learning rate: a short warm-up, then a cosine to zero."""
    step = 0
    for stage in stages:
        for i in range(stage.steps):
            warm = min(1.0, (i + 1) / 100)
            yield step, stage, stage.rate * warm * (1 + math.cos(math.pi * i / stage.steps)) / 2
            step += 1


@dataclass
class Run:
    """A training run that can be stopped and goes on from its last checkpoint."""

    model: LlamaForCausalLM
    batches: Batches
    held_out: Tensor
    work: Path
    stages: Sequence[Stage] = STAGES
    save_every: int = 100
    log: list[LogRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), betas=(0.9, 0.98), weight_decay=0.01
        )
        self.checkpoint = self.work / "checkpoint.pt"

    def train(self) -> None:
        """Run every stage from the last checkpoint on."""
        done = self.load()
        total = sum(stage.steps for stage in self.stages)
        bar = tqdm(schedule(self.stages), total=total)
        for step, stage, rate in bar:
            if step < done:
                continue
            if step % self.save_every == 0:
                self.save(step)
            # The phase change takes place in the first steps: look closely there.
            if step % 100 == 0 or (step < 1500 and step % 25 == 0):
                self.log.append(measure(self.model, self.held_out, step, stage.context))
                bar.set_postfix(story=self.log[-1].story_loss, induction=self.log[-1].induction)
            self.step(step, stage, rate)
        self.log.append(measure(self.model, self.held_out, total, self.stages[-1].context))

    def step(self, step: int, stage: Stage, rate: float) -> None:
        """One step of AdamW on a batch of its own seed."""
        self.optimizer.param_groups[0]["lr"] = rate
        rows, labels = self.batches.draw(step, stage)
        self.optimizer.zero_grad()
        self.model(rows, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def save(self, step: int) -> None:
        """Write the checkpoint in one move, so that a stop in between leaves the old one."""
        state = {
            "step": step,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "log": [asdict(row) for row in self.log],
        }
        unfinished = self.checkpoint.with_suffix(".new")
        torch.save(state, unfinished)
        unfinished.replace(self.checkpoint)

    def load(self) -> int:
        """Take up the checkpoint if there is one; the number of steps done."""
        if not self.checkpoint.exists():
            return 0
        state = torch.load(self.checkpoint, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.log = [LogRow(**row) for row in state["log"]]
        return state["step"]


def write_log(rows: Sequence[LogRow], path: Path) -> None:
    """The log as a table, numbers to four decimals."""
    with path.open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(field.name for field in fields(LogRow))
        for row in rows:
            table.writerow(round(value, 4) for value in asdict(row).values())


def read_paragraphs(folder: Path) -> list[str]:
    """All non-empty lines of the folder's text files, in the order of their names."""
    texts = [path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt"))]
    return [line for text in texts for line in text.splitlines() if line.strip()]


def main() -> None:
    """Train, then write the float16 weights, the tokenizer and the log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("texts", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("attnviz/bundled"))
    arguments = parser.parse_args()
    arguments.work.mkdir(parents=True, exist_ok=True)

    paragraphs = read_paragraphs(arguments.texts)
    tokenizer = train_tokenizer(paragraphs)
    ids = [i for p in paragraphs for i in tokenizer(p, add_special_tokens=False).input_ids]
    rows, width = 16, STAGES[-1].context - 1
    stories, last = torch.tensor(ids).split([len(ids) - rows * width, rows * width])
    held_out = torch.cat([torch.zeros(rows, 1).long(), last.reshape(rows, width)], dim=1)

    run = Run(new_model(), Batches(stories), held_out, arguments.work)
    run.train()
    run.model.half().save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    write_log(run.log, arguments.out / "training_log.csv")


if __name__ == "__main__":
    main()
