import pytest

from custom_components.datasets.rows import Conversation, Unusable
from custom_components.datasets.sft import check_tokenizer, tokenize_row
from custom_components.errors import UserError
from tests.unit.datasets.word_tokenizer import END, EOT, START, WordTokenizer


def chat(*contents, roles=("user", "assistant", "user", "assistant")):
    turns = [
        {"role": role, "content": content} for role, content in zip(roles, contents, strict=False)
    ]
    return Conversation("f:1", turns)


def tokenize(row, *, tokenizer=None, max_seq_len=100, truncation="error"):
    tokenizer = tokenizer or WordTokenizer()
    return tokenize_row(row, tokenizer, max_seq_len=max_seq_len, truncation=truncation)


def trained_text(row, tokenizer):
    pairs = zip(row.tokens, row.supervised, strict=True)
    return tokenizer.decode([token for token, is_trained in pairs if is_trained])


def test_labels_hold_the_answer_and_its_end_token_alone():
    """torchtune's Llama-3 tokenizer also trains on the header of the answer."""
    row = tokenize(chat("a b", "c d"))
    # 0 bos, 3 start, 6 user, 4 end, 7 a, 8 b, 5 eot, 3 start, 9 assistant, 4 end, 10 c, 11 d, 5 eot
    assert row.tokens == [0, 3, 6, 4, 7, 8, 5, 3, 9, 4, 10, 11, 5]
    assert row.supervised == [False] * 10 + [True] * 3


def test_every_answer_of_a_conversation_is_trained_on():
    tokenizer = WordTokenizer()
    row = tokenize(chat("a", "b", "c", "d"), tokenizer=tokenizer)
    assert trained_text(row, tokenizer) == "b <eot> d <eot>"


def test_empty_answer_in_the_middle_keeps_its_place_and_is_not_trained_on():
    tokenizer = WordTokenizer()
    row = tokenize(chat("secret", None, "go on", "fine"), tokenizer=tokenizer)
    text = tokenizer.decode(row.tokens)
    assert text.count("secret") == 1
    assert "None" not in text
    assert "<start> assistant <end> <eot>" in text
    assert trained_text(row, tokenizer) == "fine <eot>"


def test_trailing_user_turn_is_not_in_the_sample():
    """pytorch/torchtune#2405."""
    tokenizer = WordTokenizer()
    row = tokenize(chat("a", "b", "later"), tokenizer=tokenizer)
    assert tokenizer.decode(row.tokens).endswith("b <eot>")
    assert row.num_trimmed == 1


def test_example_holds_the_prompt_the_last_question_and_the_last_answer():
    example = tokenize(chat("a", "b", "c d", "e")).example
    assert [message.text_content for message in example.messages] == ["a", "b", "c d"]
    assert (example.id, example.input, example.references) == ("f:1", "c d", ["e"])


def test_row_says_itself_what_it_is_scored_against():
    turns = chat("Correct: a b", "c").turns
    row = Conversation("f:1", turns, input="a b", references=["c", "d"])
    assert tokenize(row).example.input == "a b"
    assert tokenize(row).example.references == ["c", "d"]


def test_tokenizer_that_fails_on_a_row_makes_it_unusable_by_number():
    """openai/tiktoken#82: a lone surrogate has no bytes."""

    class Strict(WordTokenizer):
        def encode(self, text):
            text.encode("utf-8")
            return super().encode(text)

    row = tokenize(chat("a \ud800", "b"), tokenizer=Strict())
    assert isinstance(row, Unusable)
    assert "cannot be tokenised" in row.detail


def test_template_that_refuses_a_role_makes_the_row_unusable_by_number():
    """torchtune's Mistral template raises ValueError at a system message."""

    class NoSystem(WordTokenizer):
        def tokenize_messages(self, messages, *, add_end_tokens=True):
            if messages[0].role == "system":
                raise ValueError("system prompts are not supported")
            return super().tokenize_messages(messages, add_end_tokens=add_end_tokens)

    row = tokenize(chat("s", "u", "a", roles=("system", "user", "assistant")), tokenizer=NoSystem())
    assert row.detail == "cannot be tokenised: ValueError: system prompts are not supported"


# --- Truncation: "p" * 6 gives a prompt of 14 tokens, the answer and its end 5 more ---

LONG = ("p1 p2 p3 p4 p5 p6", "a1 a2 a3 a4")


def test_row_at_the_limit_is_kept_whole():
    row = tokenize(chat(*LONG), max_seq_len=19)  # the masked end of the sequence is cut anyway
    assert len(row.tokens) == 19
    assert not row.was_truncated


@pytest.mark.parametrize("truncation", ["drop", "error"])
def test_long_row_is_named_with_its_length(truncation):
    row = tokenize(chat(*LONG), max_seq_len=18, truncation=truncation)
    assert row == Unusable("f:1", "too long", "has 19 tokens, max_seq_len is 18")


def test_right_truncation_forces_no_end_token():
    tokenizer = WordTokenizer()
    row = tokenize(chat(*LONG), tokenizer=tokenizer, max_seq_len=16, truncation="right")
    assert trained_text(row, tokenizer) == "a1 a2"
    assert len(row.tokens) == 16
    assert row.was_truncated


def test_left_truncation_keeps_the_answer():
    tokenizer = WordTokenizer()
    row = tokenize(chat(*LONG), tokenizer=tokenizer, max_seq_len=8, truncation="left")
    assert trained_text(row, tokenizer) == "a1 a2 a3 a4 <eot>"
    assert tokenizer.decode(row.tokens) == "<start> assistant <end> a1 a2 a3 a4 <eot>"


def test_right_truncation_behind_an_answer_leaves_no_unsupervised_tail():
    """The prompt of the second turn is cut in the middle: nothing of it is left to compute."""
    tokenizer = WordTokenizer()
    row = tokenize(chat("q", "a", *LONG), tokenizer=tokenizer, max_seq_len=15, truncation="right")
    assert tokenizer.decode(row.tokens).endswith("a <eot>")
    assert trained_text(row, tokenizer) == "a <eot>"


@pytest.mark.parametrize("max_seq_len", [11, 14])
def test_prompt_that_fills_the_sample_never_gives_a_sample_without_labels(max_seq_len):
    """torchtune cuts such a row to its masked prompt and forces an end token."""
    row = tokenize(chat(*LONG), max_seq_len=max_seq_len, truncation="right")
    detail = f"of 19 tokens has none to train on in the {max_seq_len} that are kept"
    assert row == Unusable("f:1", "nothing to train on", detail)


def test_label_of_a_first_token_is_nothing_to_train_on():
    """With left truncation to one token the only label could never be a target."""
    row = tokenize(chat("a", "b"), max_seq_len=1, truncation="left")
    assert "has none to train on" in row.detail


# --- Tokenizers ---


def test_tokenizer_that_truncates_is_refused():
    tokenizer = WordTokenizer()
    tokenizer.max_seq_len = 64
    with pytest.raises(UserError, match=r"tokenizer.max_seq_len: 64.*set dataset.max_seq_len"):
        check_tokenizer(tokenizer)


def test_tokenizer_with_another_generation_prompt_is_refused():
    class Other(WordTokenizer):
        def tokenize_messages(self, messages, *, add_end_tokens=True):
            tokens, mask = super().tokenize_messages(messages, add_end_tokens=add_end_tokens)
            return ([START, END, EOT], [True] * 3) if not add_end_tokens else (tokens, mask)

    with pytest.raises(UserError, match="Other writes a prompt differently"):
        check_tokenizer(Other())


def test_tokenizer_that_trains_on_headers_is_refused_naming_the_one_to_take():
    check_tokenizer(WordTokenizer())
    with pytest.raises(UserError, match=r"models\.llama3_tokenizer\.llama3_tokenizer"):
        check_tokenizer(WordTokenizer(masks_headers=False))


def test_tokenizer_that_never_trains_on_the_end_of_an_answer_is_refused():
    class Endless(WordTokenizer):
        def tokenize_messages(self, messages, *, add_end_tokens=True):
            tokens, mask = super().tokenize_messages(messages, add_end_tokens=add_end_tokens)
            return tokens, [m or t == EOT for t, m in zip(tokens, mask, strict=True)]

    with pytest.raises(UserError, match="would not learn to stop"):
        check_tokenizer(Endless())
