"""Train the model in attnviz/bundled/: a two-layer Llama that shows induction heads.

    python scripts/train_bundled_model.py TEXTS --work DIR [--out attnviz/bundled]

TEXTS is any folder of .txt files in plain English, one paragraph a line. The work folder
holds a checkpoint: a run that was stopped goes on from it. Batches mix stories with
sequences that repeat, because copying is what makes a head look for "what came next the
last time?" (Olsson et al. 2022, "In-context learning and induction heads").
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from tqdm import tqdm
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

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
    Stage(steps=7000, context=64, batch=24, rate=3e-3),
    Stage(steps=4000, context=256, batch=8, rate=1.5e-3),
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


@torch.no_grad()
def measure(model: LlamaForCausalLM, held_out: Tensor, step: int, context: int) -> LogRow:
    """Losses and head scores at this step, on text and repeats that training never sees."""
    model.eval()
    length = 31
    tokens = repeats(length, seeds=4, first_seed=900_000)
    model.set_attn_implementation("eager")
    out = model(tokens, output_attentions=True)
    weights = torch.stack(out.attentions, 1)  # (batch, layer, head, query, key)
    second = slice(length + 1, 2 * length)
    logits, following = out.logits[:, second], tokens[:, length + 2 :]
    story = model(held_out, output_attentions=True, labels=held_out)
    story_weights = torch.stack(story.attentions, 1)
    model.set_attn_implementation("sdpa")
    model.train()

    def best(score: Tensor) -> float:
        return round(float(score.mean(0).max()), 4)

    return LogRow(
        step=step,
        context=context,
        story_loss=round(float(story.loss), 4),
        repeat_loss=round(
            float(torch.nn.functional.cross_entropy(logits.transpose(1, 2), following)), 4
        ),
        repeat_accuracy=round(float((logits.argmax(-1) == following).float().mean()), 4),
        previous_token=best(previous_token(weights)),
        induction=best(induction(weights, length)),
        first_token=best(first_token(story_weights)),
    )


def schedule() -> Iterator[tuple[int, Stage, float]]:
    """Every step with its stage and learning rate: a short warm-up, then a cosine to zero."""
    step = 0
    for stage in STAGES:
        for i in range(stage.steps):
            warm = min(1.0, (i + 1) / 100)
            yield step, stage, stage.rate * warm * (1 + math.cos(math.pi * i / stage.steps)) / 2
            step += 1


def train(model: LlamaForCausalLM, batches: Batches, held_out: Tensor, work: Path) -> None:
    """Run every stage, measuring and saving a checkpoint each hundred steps."""
    optimizer = torch.optim.AdamW(model.parameters(), betas=(0.9, 0.98), weight_decay=0.1)
    checkpoint, log = work / "checkpoint.pt", work / "training_log.csv"
    done = 0
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    else:
        with log.open("w", newline="") as file:
            csv.writer(file).writerow(f.name for f in fields(LogRow))

    total = sum(stage.steps for stage in STAGES)
    bar = tqdm(schedule(), total=total)
    for step, stage, rate in bar:
        if step < done:
            continue
        if step % 100 == 0 or (step < 1500 and step % 25 == 0):
            row = measure(model, held_out, step, stage.context)
            append(log, row)
            bar.set_postfix(story=row.story_loss, induction=row.induction)
        if step % 100 == 0:
            save(checkpoint, model, optimizer, step, log)
        optimizer.param_groups[0]["lr"] = rate
        rows, labels = batches.draw(step, stage)
        optimizer.zero_grad()
        model(rows, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    append(log, measure(model, held_out, total, STAGES[-1].context))
    save(checkpoint, model, optimizer, total, log)


def append(log: Path, row: LogRow) -> None:
    """Add one line to the log."""
    with log.open("a", newline="") as file:
        csv.writer(file).writerow(asdict(row).values())


def save(checkpoint: Path, model: LlamaForCausalLM, optimizer, step: int, log: Path) -> None:
    """Write the checkpoint in one move, so that a stop in between leaves the old one."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
    torch.save(state, checkpoint.with_suffix(".new"))
    checkpoint.with_suffix(".new").replace(checkpoint)


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
    stories = torch.tensor(ids)
    held = 16 * 255
    held_out = torch.cat(
        [torch.zeros(16, 1, dtype=torch.long), stories[-held:].reshape(16, 255)], dim=1
    )

    model = new_model()
    train(model, Batches(stories[:-held]), held_out, arguments.work)
    model.half().save_pretrained(arguments.out)
    tokenizer.save_pretrained(arguments.out)
    log = (arguments.work / "training_log.csv").read_text()
    (arguments.out / "training_log.csv").write_text(log)


if __name__ == "__main__":
    main()
