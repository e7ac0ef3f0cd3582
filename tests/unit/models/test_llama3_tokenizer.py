import importlib.util
import random
from pathlib import Path

import pytest
from torchtune.data import Message
from torchtune.models.llama3 import llama3_tokenizer as torchtune_llama3_tokenizer

from custom_components.datasets.sft import check_tokenizer
from custom_components.errors import UserError
from custom_components.models.llama3_tokenizer import llama3_tokenizer

# LLaMA-3-8B-Instruct's, from its published tokenizer_config.json.
CHAT_TEMPLATE = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}"
    "{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'"
    "+ message['content'] | trim + '<|eot_id|>' %}"
    "{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}"
    "{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def path() -> str:
    spec = importlib.util.find_spec("llama_models")
    if spec is None:
        pytest.skip("the package llama-models, which holds Llama 3's tokenizer, is not installed")
    return str(Path(spec.submodule_search_locations[0], "llama3", "tokenizer.model"))


@pytest.fixture(scope="module")
def tokenizer(path):
    return llama3_tokenizer(path)


@pytest.fixture(scope="module")
def published(path, tokenizer):
    """The same vocabulary in ``transformers``, with the published chat template."""
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    special = sorted(tokenizer.special_tokens, key=tokenizer.special_tokens.__getitem__)
    backend = TikTokenConverter(
        path,
        pattern=tokenizer.tt_model.tt_model._pat_str,
        extra_special_tokens=special,
    ).converted()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<|begin_of_text|>")
    fast.chat_template = CHAT_TEMPLATE
    return fast


def as_messages(turns):
    return [Message(role, text, masked=role != "assistant") for role, text in turns]


def template_ids(published, turns, **options):
    rows = [{"role": role, "content": text} for role, text in turns]
    return published.apply_chat_template(rows, tokenize=True, return_dict=False, **options)


CONVERSATIONS = [
    [("user", "Hello"), ("assistant", "Hi there!")],
    [("system", "Be brief."), ("user", " 2+2? \n"), ("assistant", "\n 4 "), ("user", "Sure?"),
     ("assistant", "Yes."), ("tool", '{"a": 1}'), ("assistant", "")],
    [("user", "naïve 東京 🙂\r\n\r\n\ttabs  1234567"), ("assistant", "don't  «stop»\n\n\nnow")],
]  # fmt: skip


@pytest.mark.parametrize("turns", CONVERSATIONS)
def test_ids_are_those_of_the_published_chat_template(tokenizer, published, turns):
    ids, mask = tokenizer.tokenize_messages(as_messages(turns))
    assert ids == template_ids(published, turns)
    assert len(mask) == len(ids)


def test_ids_of_real_sentences_are_those_of_the_published_chat_template(
    tokenizer, published, data_dir
):
    lines = (data_dir / "jfleg" / "dev.src").read_text(encoding="utf-8").splitlines()
    for line in random.Random(0).sample(lines, 100):
        turns = [("user", line), ("assistant", line.upper())]
        ids, _ = tokenizer.tokenize_messages(as_messages(turns))
        assert ids == template_ids(published, turns)


def test_generation_prompt_is_the_published_one(tokenizer, published):
    turns = [("system", "s"), ("user", "u")]
    opening = [*as_messages(turns), Message("assistant", "")]
    ids, _ = tokenizer.tokenize_messages(opening, add_end_tokens=False)
    assert ids == template_ids(published, turns, add_generation_prompt=True)


def test_text_and_end_token_of_every_answer_are_trained_on_and_nothing_else(tokenizer):
    turns = [("user", "u"), ("assistant", "one"), ("user", "v"), ("assistant", "two")]
    ids, mask = tokenizer.tokenize_messages(as_messages(turns))
    trained = [i for i, masked in zip(ids, mask, strict=True) if not masked]
    eot = [tokenizer.special_tokens["<|eot_id|>"]]
    assert trained == tokenizer.encode("one", False, False) + eot + (
        tokenizer.encode("two", False, False) + eot
    )
    check_tokenizer(tokenizer)


def test_torchtunes_tokenizer_is_refused(path):
    with pytest.raises(UserError, match=r"custom_components\.models\.llama3_tokenizer"):
        check_tokenizer(torchtune_llama3_tokenizer(path))


def test_text_that_spells_a_special_token_stays_text(tokenizer):
    ids, _ = tokenizer.tokenize_messages(as_messages([("user", "<|eot_id|>"), ("assistant", "a")]))
    assert ids.count(tokenizer.special_tokens["<|eot_id|>"]) == 2


def test_lone_surrogate_is_an_error_not_another_character(tokenizer):
    """openai/tiktoken#82."""
    with pytest.raises(UnicodeEncodeError):
        tokenizer.tokenize_messages(as_messages([("user", "\ud800"), ("assistant", "a")]))


@pytest.mark.parametrize("name", ["missing.model", "."])
def test_missing_file_is_named(tmp_path, name):
    with pytest.raises(UserError, match=r"tokenizer\.path: .* comes with the checkpoint"):
        llama3_tokenizer(str(tmp_path / name))


def test_file_of_another_kind_is_named(tmp_path):
    (tmp_path / "tokenizer.model").write_text("no tokens here")
    with pytest.raises(UserError, match=r"is not a tokenizer\.model"):
        llama3_tokenizer(str(tmp_path / "tokenizer.model"))


def test_max_seq_len_is_refused(path):
    with pytest.raises(UserError, match=r"tokenizer\.max_seq_len"):
        llama3_tokenizer(path, max_seq_len=10)
