import custom_components.compat  # noqa: F401

import pytest
from torchtune.data import Message

from custom_components.errors import UserError
from custom_components.models.byte_tokenizer import byte_tokenizer

BOS, EOS, PAD, START, END, EOT = range(256, 262)


def test_conversation_has_llama3_layout_and_trains_on_unmasked_text_only():
    messages = [Message("user", " Hi ", masked=True), Message("assistant", "é")]
    tokens, mask = byte_tokenizer().tokenize_messages(messages)
    prompt = [BOS, START, *b"user", END, *b"\n\n", *b"Hi", EOT, START, *b"assistant", END, *b"\n\n"]
    assert tokens == [*prompt, 0xC3, 0xA9, EOT, EOS]
    assert mask == [True] * len(prompt) + [False] * 3 + [True]


@pytest.mark.parametrize("answer", ["x", "", "  two words\n", "<|eot_id|>"])
def test_generation_prompt_is_a_prefix_of_the_training_ids(answer):
    tokenizer = byte_tokenizer()
    prompt = [Message("system", "s", masked=True), Message("user", "u", masked=True)]
    start, start_mask = tokenizer.tokenize_messages(
        [*prompt, Message("assistant", "")], add_end_tokens=False
    )
    full, _ = tokenizer.tokenize_messages([*prompt, Message("assistant", answer)])
    assert full[: len(start)] == start and len(full) > len(start)
    assert len(start_mask) == len(start)


def test_typed_special_tokens_stay_text():
    tokens = byte_tokenizer().encode("<|eot_id|>", add_bos=False, add_eos=False)
    assert tokens == list(b"<|eot_id|>")


def test_text_survives_a_round_trip_and_ids_fit_the_tiny_models():
    tokenizer = byte_tokenizer()
    text = "naïve 👩‍👩‍👧 \x00\n ½"
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    assert ids[0] == BOS and ids[-1] == EOS
    assert tokenizer.vocab_size == 262 and PAD == tokenizer.pad_id
    assert set(tokenizer.stop_tokens) == {EOS, EOT}


def test_an_untrained_models_ids_can_be_decoded():
    tokenizer = byte_tokenizer()
    assert tokenizer.decode([97, 511, 0xFF, 98, EOS, 99]) == "a\ufffd\ufffdb"
    assert tokenizer.decode([97, EOS, 99], False, False) == "a<|end_of_text|>c"


def test_settings_that_cannot_be_honoured_are_refused():
    with pytest.raises(UserError, match=r"override tokenizer\.path=null") as error:
        byte_tokenizer("/some/tokenizer.model", max_seq_len=512)
    assert len(error.value.problems) == 2 and "max_seq_len" in str(error.value)


def test_images_are_refused():
    message = Message("user", [{"type": "image", "content": None}])
    with pytest.raises(UserError, match="text only"):
        byte_tokenizer().tokenize_messages([message])
