"""Attention of packed rows: the one place that chooses how documents are kept apart.

- On CUDA, flex attention with a block mask (causal, same document), compiled, as torchtune runs it.
- Elsewhere, where flex attention has no backward, one call of scaled dot-product attention for each
  run of documents of equal length; a pack holds its documents by length, so equal ones are
  neighbours. No mask is stored and no product between two documents is computed.

Rows that are not packed take torchtune's way: causal, or the dense mask of generation. Padding of a
packed row attends to itself position by position, on both ways.
"""

import custom_components.compat  # noqa: F401

from collections.abc import Sequence
from itertools import groupby

import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask
from torchtune.modules import MultiHeadAttention, TransformerDecoder
from torchtune.modules.attention_utils import _sdpa_or_flex_attention
from torchtune.utils._import_guard import _SUPPORTS_FLEX_ATTENTION

_attend_as_torchtune = _sdpa_or_flex_attention()


class DocumentMask:
    """Where the documents of a packed batch are, for attention without flex.

    Args:
        documents: Lengths of the documents of each row, in order.
        width: Positions of a row; what documents leave of it is padding.
    """

    def __init__(self, documents: Sequence[Sequence[int]], width: int) -> None:
        lengths = [n for row in documents for n in [*row, *[1] * (width - sum(row))]]
        self.runs = [(length, len(list(run))) for length, run in groupby(lengths)]
        """(length, how many documents) over the rows laid end to end."""


def build_document_mask(
    input_pos: torch.Tensor, documents: Sequence[Sequence[int]]
) -> BlockMask | DocumentMask:
    """Return what ``attend`` takes as the mask of a packed batch, once for all layers.

    Args:
        input_pos: Position of every token in its document, 0 in padding, ``[b, s]``.
        documents: Lengths of the documents of each row, in order.
    """
    if input_pos.is_cuda and _SUPPORTS_FLEX_ATTENTION:
        return build_block_mask(input_pos)
    return DocumentMask(documents, input_pos.shape[1])


def build_block_mask(input_pos: torch.Tensor) -> BlockMask:
    """Return flex attention's mask: causal inside a document. Stores ``b * s * s`` bytes for it.

    Args:
        input_pos: See ``build_document_mask``. Where it is 0 a document begins.
    """
    num_rows, width = input_pos.shape
    document = (input_pos == 0).cumsum(dim=1)  # [b, s]

    def is_seen(
        b: torch.Tensor, h: torch.Tensor, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        return (query >= key) & (document[b, query] == document[b, key])

    mask: BlockMask = create_block_mask(
        is_seen, num_rows, None, width, width, device=input_pos.device
    )
    return mask


def attend(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    mask: BlockMask | DocumentMask | torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
) -> torch.Tensor:
    """Return the attention output, ``[b, h, s, d]``: torchtune's call, with documents added.

    Args:
        q: Queries, ``[b, h, s, d]``.
        k: Keys, of as many heads.
        v: Values.
        mask: Of a packed batch, of generation, or None.
        dropout_p: Dropout of the attention weights.
        is_causal: For None as mask.
    """
    output: torch.Tensor
    if isinstance(mask, DocumentMask):
        output = _attend_inside_documents(q, k, v, mask, dropout_p)
    else:
        output = _attend_as_torchtune(q, k, v, mask=mask, dropout_p=dropout_p, is_causal=is_causal)
    return output


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _attend_inside_documents(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: DocumentMask, dropout_p: float
) -> torch.Tensor:
    b, h, s, d = q.shape
    sizes = [length * number for length, number in mask.runs]
    # Split once: slices would each give backward a zero-filled gradient of the whole.
    parts = [torch.split(t.transpose(1, 2).reshape(b * s, h, d), sizes) for t in (q, k, v)]
    outputs = []
    for (length, number), *qkv in zip(mask.runs, *parts, strict=True):
        queries, keys, values = (t.view(number, length, h, d).transpose(1, 2) for t in qkv)
        output = F.scaled_dot_product_attention(
            queries, keys, values, dropout_p=dropout_p, is_causal=True
        )
        outputs.append(output.transpose(1, 2).reshape(length * number, h, d))
    return torch.cat(outputs).view(b, s, h, d).transpose(1, 2)


def install_document_attention(decoder: TransformerDecoder) -> None:
    """Let the decoder's attention take the masks of packed batches too. Repeating it is harmless.

    Args:
        decoder: torchtune's.
    """
    for module in decoder.modules():
        if isinstance(module, MultiHeadAttention):
            module._attention_call = attend
