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

MASKED_SHARE = 0.15  # of the tokens at a time, as BERT was trained (Devlin et al. 2019)
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
    mask = getattr(loaded.tokenizer, "mask_token_id", None)
    if type(model).__name__.endswith("ForMaskedLM") and inputs.source and mask is not None:
        special = torch.tensor(inputs.source.special)
        return Outcome("masked", _masked_loss(model, given, scalings, special, mask), None, None)
    output = scaled(model, given, scalings)
    ids = given.get("decoder_input_ids", given.get("input_ids"))
    if ids is None or not _predicts(model, output, ids):
        return Outcome("not", None, None, _last(output))
    logits: Tensor = output.logits[0]
    loss = torch.cat([torch.full((1,), torch.nan), _loss(logits[:-1], ids[0, 1:])])
    return Outcome("from before", loss, logits[-1].float().log_softmax(-1).exp().cpu(), None)


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
    ids, groups = given["input_ids"], round(1 / MASKED_SHARE)
    tokens = (~special).nonzero().flatten()
    dice = torch.Generator().manual_seed(MASKING_SEED)
    shuffled = tokens[torch.randperm(len(tokens), generator=dice)]
    loss = torch.full(special.shape, torch.nan)
    for group in filter(len, (shuffled[i::groups] for i in range(groups))):
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
