"""A word tokenizer for tests: torchtune's Llama-3 layout, headers unmasked as there."""

from torchtune.data import Message

BOS, EOS, PAD, START, END, EOT = range(6)


class WordTokenizer:
    """One id a word, in the order in which words appear."""

    def __init__(self) -> None:
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
        tokens, mask = [BOS], [True]
        for i, message in enumerate(messages):
            ids = [START, *self.encode(message.role), END, *self.encode(message.text_content)]
            ids += [EOT] if add_end_tokens or i < len(messages) - 1 else []
            tokens += ids
            mask += [message.masked] * len(ids)
        return ([*tokens, EOS], [*mask, True]) if add_end_tokens else (tokens, mask)
