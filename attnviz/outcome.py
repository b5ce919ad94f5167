"""What a model makes of its inputs, and what changing its attention does to that.

Loss per token, what comes next, or the output vectors where a model predicts nothing: before
and after some heads' scores were multiplied (`surgery`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attnviz.surgery import Scaling, scaled

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from attnviz.inputs import Inputs
    from attnviz.models import LoadedModel

GROUPS = 7  # each has about 15 % of the tokens, as BERT was trained (Devlin et al. 2019)
MASKING_SEED = 0
ROWS_AT_ONCE = 256  # of logits over a vocabulary, which may hold hundreds of thousands


@dataclass(frozen=True)
class Outcome:
    """What a model made of its inputs.

    `loss` is −log of the probability of each token in nats, NaN where none was predicted, and
    `predicted` says how: each token from those before it, each masked token from the others, or
    not at all. `next_token` are the probabilities of the token after the last one, None where
    none is written. `output` is what is compared where there is no loss, None where there is one.
    """

    predicted: Literal["from before", "masked", "not"]
    loss: Float[Tensor, " token"] | None
    next_token: Float[Tensor, " vocabulary"] | None
    output: Float[Tensor, ...] | None

    @property
    def mean_loss(self) -> float | None:
        """Mean over the tokens that were predicted, in nats; None where none was."""
        if self.loss is None or bool(self.loss.isnan().all()):
            return None
        return float(self.loss.nanmean())

    @property
    def entropy(self) -> float | None:
        """Entropy in nats of what comes next, None where nothing does."""
        p = self.next_token
        return None if p is None else float(torch.special.entr(p).sum())


def outcome(loaded: LoadedModel, inputs: Inputs, scalings: Sequence[Scaling] = ()) -> Outcome:
    """Run a model with some heads' scores multiplied, and measure.

    A model that writes text predicts each token from those before it, the first one not at all;
    an encoder–decoder those of its target. A masked language model is run a few times: a seeded
    drawing puts each token that is not special into one of seven groups, and each group is masked
    once (Devlin et al. 2019 mask 15 %). Of any other model the output itself is kept.
    Raises `UnreadableModel` as `scaled` does.
    """
    model, given = loaded.model, inputs.tensors
    if (mask := _mask(loaded)) is not None and inputs.source:
        special = torch.tensor(inputs.source.special)
        return Outcome("masked", _masked_loss(model, given, scalings, special, mask), None, None)
    output = scaled(model, given, scalings)
    ids = given.get("decoder_input_ids", given.get("input_ids"))
    if ids is None or not _predicts(model, output, ids):
        return Outcome("not", None, None, _last(output))
    logits: Tensor = output.logits[0]
    loss = torch.cat([torch.full((1,), torch.nan), _loss(logits[:-1], ids[0, 1:])])
    return Outcome("from before", loss, logits[-1].float().log_softmax(-1).exp().cpu(), None)


def runs(loaded: LoadedModel, inputs: Inputs) -> int:
    """How many runs of the model one outcome takes."""
    if _mask(loaded) is None or not inputs.source:
        return 1
    return min(GROUPS, inputs.source.special.count(False))


def _mask(loaded: LoadedModel) -> int | None:
    """The id of the mask of a masked language model, None for any other model."""
    masks = type(loaded.model).__name__.endswith("ForMaskedLM")
    return getattr(loaded.tokenizer, "mask_token_id", None) if masks else None


def _predicts(model: PreTrainedModel, output: Any, ids: Tensor) -> bool:
    """Whether there are logits over the vocabulary for what follows each token."""
    logits = getattr(output, "logits", None)
    known = isinstance(logits, Tensor) and logits.dim() == 3 and logits.shape[:2] == ids.shape
    return known and model.can_generate()


def likeliest(before: Outcome, after: Outcome, count: int = 10) -> tuple[int, ...]:
    """Ids of the tokens that are likeliest to come next before or after, the likeliest first.

    None where one of the two predicts nothing.
    """
    if before.next_token is None or after.next_token is None:
        return ()
    either = torch.maximum(before.next_token, after.next_token)
    return tuple(either.topk(min(count, len(either))).indices.tolist())


def relative_change(before: Outcome, after: Outcome) -> float | None:
    """‖after − before‖ / ‖before‖ of the outputs, None where they are not kept."""
    if before.output is None or after.output is None:
        return None
    return float((after.output - before.output).norm() / before.output.norm())


@dataclass(frozen=True)
class Effect:
    """What a change did to an outcome: so little of it that many can be kept.

    Pairs are before and after. `losses` are those of each token in nats (NaN where none was
    predicted), None where nothing is predicted; then `moved` is ‖after − before‖ / ‖before‖ of
    each vector of the output, and `change` that of all of it. `next_tokens` has ids and both
    probabilities of what is likeliest to come next, before or after.
    """

    predicted: Literal["from before", "masked", "not"]
    losses: tuple[Float[Tensor, " token"], Float[Tensor, " token"]] | None
    mean_losses: tuple[float, float] | None
    moved: Float[Tensor, " token"] | None
    change: float | None
    entropies: tuple[float, float] | None
    next_tokens: tuple[tuple[int, float, float], ...]

    @property
    def amount(self) -> float | None:
        """The one number that says most: mean loss after the change, else `change`."""
        return self.change if self.mean_losses is None else self.mean_losses[1]


def effect(before: Outcome, after: Outcome) -> Effect:
    """Compare two outcomes of one model on the same inputs."""
    mean_losses, entropies = _both(before.mean_loss, after.mean_loss), None
    ids = likeliest(before, after)
    next_tokens: tuple[tuple[int, float, float], ...] = ()
    if before.next_token is not None and after.next_token is not None:
        entropies = _both(before.entropy, after.entropy)
        chances = before.next_token[[*ids]].tolist(), after.next_token[[*ids]].tolist()
        next_tokens = tuple(zip(ids, *chances, strict=True))
    return Effect(
        predicted=before.predicted,
        losses=None if before.loss is None or after.loss is None else (before.loss, after.loss),
        mean_losses=mean_losses,
        moved=_moved(before, after),
        change=relative_change(before, after),
        entropies=entropies,
        next_tokens=next_tokens,
    )


def _both(before: float | None, after: float | None) -> tuple[float, float] | None:
    return None if before is None or after is None else (before, after)


def _moved(before: Outcome, after: Outcome) -> Float[Tensor, " token"] | None:
    """How far each vector went; None where the output of one text is no row of vectors."""
    if before.output is None or after.output is None or before.output.dim() != 3:
        return None
    was, is_now = before.output[0], after.output[0]
    return (is_now - was).norm(dim=-1) / was.norm(dim=-1)


def _loss(logits: Float[Tensor, "token vocabulary"], ids: Tensor) -> Float[Tensor, " token"]:
    """Cross-entropy of each row with the token that is there, a block at a time."""
    rows = zip(logits.split(ROWS_AT_ONCE), ids.split(ROWS_AT_ONCE), strict=True)
    losses = [nn.functional.cross_entropy(x.float(), i, reduction="none") for x, i in rows]
    return torch.cat(losses).cpu()


def _masked_loss(
    model: PreTrainedModel,
    given: Mapping[str, Tensor],
    scalings: Sequence[Scaling],
    special: Tensor,
    mask: int,
) -> Float[Tensor, " token"]:
    """The loss of each token that is not special, in the run in which it is masked."""
    ids = given["input_ids"]
    tokens = (~special).nonzero().flatten()
    dice = torch.Generator().manual_seed(MASKING_SEED)
    shuffled = tokens[torch.randperm(len(tokens), generator=dice)]
    loss = torch.full(special.shape, torch.nan)
    for group in filter(len, (shuffled[i::GROUPS] for i in range(GROUPS))):
        hidden = ids.clone()
        hidden[0, group] = mask
        logits = scaled(model, {**given, "input_ids": hidden}, scalings).logits
        loss[group] = _loss(logits[0, group], ids[0, group])
    return loss


def _last(output: Any) -> Tensor:
    """The vectors that leave the last layer, or else the first numbers that a model returns."""
    for name in ("last_hidden_state", "logits", "logits_per_text"):
        if isinstance(found := getattr(output, name, None), Tensor):
            return found.float().cpu()
    return next(x for x in output.values() if isinstance(x, Tensor)).float().cpu()
