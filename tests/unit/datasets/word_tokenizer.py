"""A word tokenizer for tests: torchtune's Llama-3 layout."""

from torchtune.data import Message

BOS, EOS, PAD, START, END, EOT = range(6)


class WordTokenizer:
    """One id a word, in the order in which words appear.

    Args:
        masks_headers: False trains on the header of an answer too, as torchtune's tokenizers do.
    """

    def __init__(self, *, masks_headers: bool = True) -> None:
        self.masks_headers = masks_headers
        self.num_conversations = 0
        self.words: list[str] = ["<bos>", "<eos>", "<pad>", "<start>", "<end>", "<eot>"]
        self.max_seq_len: int | None = None
        self.pad_id, self.eos_id = PAD, EOS

    def encode(self, text: str) -> list[int]:
        for word in text.split():
            if word not in self.words:
                self.words.append(word)
        return [self.words.index(word) for word in text.split()]

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.words[i] for i in ids)

    def tokenize_messages(
        self, messages: list[Message], *, add_end_tokens: bool = True
    ) -> tuple[list[int], list[bool]]:
        self.num_conversations += 1
        tokens, mask = [BOS], [True]
        for i, message in enumerate(messages):
            header = [START, *self.encode(message.role), END]
            body = self.encode(message.text_content)
            body += [EOT] if add_end_tokens or i < len(messages) - 1 else []
            tokens += header + body
            mask += [message.masked or self.masks_headers] * len(header)
            mask += [message.masked] * len(body)
        return ([*tokens, EOS], [*mask, True]) if add_end_tokens else (tokens, mask)
