"""The trained module: a torchtune decoder whose head runs on supervised positions only.

torchtune's decoder projects every position to the vocabulary. In fine-tuning most positions are
prompt or padding and never reach the loss: for four 96-token grammar rows about a third of them
do. ``CausalLM`` runs the decoder's own layers and hands the hidden states to ``SupervisedHead``,
which picks the supervised positions before the projection.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint
from torchtune.modules import TransformerDecoder

from custom_components.datasets.collate import Batch
from custom_components.models.attention import build_document_mask, install_document_attention
from custom_components.options import ActivationCheckpointing


class SupervisedHead(nn.Module):
    """Output projection and summed cross-entropy over the supervised positions.

    It is called once a micro-step and loops over chunks inside, so that under sharding every rank
    gathers its weight the same number of times whatever the lengths on it (torchtune's chunked
    loss cuts by length instead: pytorch/torchtune#2560).

    Args:
        decoder: Owner of the projection, which may be tied to the embeddings.
        num_chunk_tokens: Supervised positions projected at a time. With more than one chunk the
            logits are recomputed in backward, so at most one chunk of them is alive.
    """

    def __init__(self, decoder: TransformerDecoder, *, num_chunk_tokens: int) -> None:
        super().__init__()
        self.output = decoder.output
        self.num_chunk_tokens = num_chunk_tokens

    def _sum_loss(self, hidden: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = self.output(hidden)  # [n, v]
        return F.cross_entropy(logits.float(), targets, reduction="sum")

    def forward(
        self,
        hidden: torch.Tensor,
        positions: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss summed over supervised tokens, a fp32 scalar.

        Without positions and targets it returns logits, ``[b, s, v]``. Both go through this one
        call, because that is where sharding gathers the weight.

        Args:
            hidden: Normed hidden states, ``[b, s, d]``.
            positions: Flat indices into ``b * s`` of the supervised positions, ``[n]``; n may be
                0, which gives a zero loss that still has a gradient.
            targets: The token each of them should predict, ``[n]``.
        """
        if positions is None or targets is None:
            logits: torch.Tensor = self.output(hidden)
            return logits
        picked = hidden.flatten(0, 1).index_select(0, positions)  # [n, d]
        if len(positions) <= self.num_chunk_tokens:
            return self._sum_loss(picked, targets)
        total = picked.new_zeros((), dtype=torch.float32)
        chunks = zip(
            torch.split(picked, self.num_chunk_tokens),
            torch.split(targets, self.num_chunk_tokens),
            strict=True,
        )
        for chunk, chunk_targets in chunks:
            total = total + checkpoint(self._sum_loss, chunk, chunk_targets, use_reentrant=False)
        return total


class CausalLM(nn.Module):
    """A decoder with its supervised head: what the loop trains.

    Args:
        decoder: torchtune decoder, weights loaded.
        num_chunk_tokens: See ``SupervisedHead``.
    """

    def __init__(self, decoder: TransformerDecoder, *, num_chunk_tokens: int = 1024) -> None:
        super().__init__()
        install_document_attention(decoder)
        self.decoder = decoder
        self.head = SupervisedHead(decoder, num_chunk_tokens=num_chunk_tokens)
        self.activation_checkpointing: ActivationCheckpointing = "none"
        self.embeddings_need_grad = False

    def forward(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        targets: torch.Tensor,
        *,
        input_pos: torch.Tensor | None = None,
        documents: Sequence[Sequence[int]] | None = None,
    ) -> torch.Tensor:
        """Return the loss summed over supervised tokens.

        Rows are padded on the right and attention is causal, so padding needs no mask: no
        supervised position can see it. In packed rows no document sees another.

        Args:
            tokens: Input ids, ``[b, s]``.
            positions: Flat indices of supervised positions, ``[n]``.
            targets: Their target ids, ``[n]``.
            input_pos: Packed rows: position of every token in its document, ``[b, s]``.
            documents: Packed rows: lengths of the documents of each, in order.
        """
        mask = None
        if input_pos is not None and documents is not None:
            mask = build_document_mask(input_pos, documents)
        hidden = self.decoder.tok_embeddings(tokens)  # [b, s, d]
        if self.embeddings_need_grad:
            hidden.requires_grad_()
        for layer in self.decoder.layers:
            if self.activation_checkpointing == "full":
                hidden = checkpoint(
                    layer, hidden, mask=mask, input_pos=input_pos, use_reentrant=False
                )
            else:
                hidden = layer(hidden, mask=mask, input_pos=input_pos)
        loss: torch.Tensor = self.head(self.decoder.norm(hidden), positions, targets)
        return loss

    def next_logits(
        self, tokens: torch.Tensor, *, mask: torch.Tensor, input_pos: torch.Tensor
    ) -> torch.Tensor:
        """Return the logits after the last column, ``[b, vocab]`` in fp32.

        The head sees the last column only: over all columns it would cost more than the layers of
        a small model. A sharded model must have this method registered (see ``parallel.py``).

        Args:
            tokens: Input ids, ``[b, s]``; key/value caches, where set up, take them in.
            mask: True where a query may attend to a key, ``[b, s, cache length]``.
            input_pos: Position of each token in its row, ``[b, s]``.
        """
        hidden = self.decoder.tok_embeddings(tokens)  # [b, s, d]
        for layer in self.decoder.layers:
            hidden = layer(hidden, mask=mask, input_pos=input_pos)
        logits: torch.Tensor = self.head(self.decoder.norm(hidden[:, -1:]))  # [b, 1, vocab]
        return logits[:, 0].float()


def summed_loss(model: nn.Module, batch: Batch) -> torch.Tensor:
    """Return the loss of a batch summed over its supervised tokens, a fp32 scalar.

    Args:
        model: A ``CausalLM``, wrapped or not.
        batch: On the model's device.
    """
    loss: torch.Tensor = model(
        batch.tokens,
        batch.positions,
        batch.targets,
        input_pos=batch.input_pos,
        documents=batch.documents,
    )
    return loss
