"""Secrets never reach the saved config, and what is no secret stays readable."""

import pytest
from omegaconf import OmegaConf

from custom_components.redaction import REDACTED, redact

HEX_40 = "0123456789abcdef0123456789abcdef01234567"


def redacted(**values):
    return OmegaConf.to_container(redact(OmegaConf.create(values)), resolve=False)


@pytest.mark.parametrize(
    "key",
    "api_key apiKey key token hf_token HF_TOKEN wandb.password client_secret credentials "
    "aws_secret_access_key auth-header db_passwd".split(),
)
def test_values_of_secret_keys_are_replaced(key):
    assert redacted(**{key: "abc"}) == {key: REDACTED}
    assert redacted(nested=[{key: {"inner": 12345}}]) == {"nested": [{key: {"inner": REDACTED}}]}


@pytest.mark.parametrize(
    "key",
    "num_tokens pad_token eos_token_id max_new_tokens tokenizer num_chunk_tokens monkey keyboard "
    "lora_rank tokens num_key_value_heads stop_tokens".split(),
)
def test_keys_that_only_look_secret_stay_readable(key):
    assert redacted(**{key: "abc"}) == {key: "abc"}


def test_null_booleans_and_empty_text_stay_readable():
    assert redacted(token=None, key=True, secret="") == {"token": None, "key": True, "secret": ""}


@pytest.mark.parametrize(
    "token",
    [
        "hf_abcdefghijklmnopqrstuvwxyz",
        HEX_40,
        "wandb_v1_abcdefghijklmnopqrstuvwxyz",
        "sk-proj-abcdefghijklmnop_qrstuvwx",
        "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
        "AKIAABCDEFGHIJKLMNOP",
    ],
)
def test_known_token_shapes_are_replaced_wherever_they_stand(token):
    assert redacted(note=f"use {token} here") == {"note": f"use {REDACTED} here"}
    assert redacted(notes=[token]) == {"notes": [REDACTED]}


def test_a_revision_is_not_taken_for_a_token():
    assert redacted(dataset={"revision": HEX_40}) == {"dataset": {"revision": HEX_40}}


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://me:pass@host/a/b", f"https://{REDACTED}@host/a/b"),
        ("https://me:p@ss@host/a", f"https://{REDACTED}@host/a"),
        ("s3://bucket/a.csv?X-Sig=abc&y=1", f"s3://bucket/a.csv?{REDACTED}"),
        ("https://host/a/b#part", "https://host/a/b#part"),
        ("/local/path?x=1", "/local/path?x=1"),
    ],
)
def test_user_info_and_query_of_urls_are_replaced(url, expected):
    assert redacted(source=url) == {"source": expected}


def test_interpolations_stay_as_written(monkeypatch):
    monkeypatch.setenv("TUNEPACK_TEST_SECRET", "plain-text-secret")
    values = {
        "token": "${oc.env:TUNEPACK_TEST_SECRET}",
        "dir": "${oc.env:TUNEPACK_TEST_SECRET}/x",
        "other": "${dir}",
    }
    assert redacted(**values) == values


def test_a_secret_written_into_an_interpolation_is_replaced():
    values = {"token": "${oc.env:X,abc}", "note": "${oc.env:X,hf_abcdefghijklmnopqrstuvwxyz}"}
    assert redacted(**values) == {"token": REDACTED, "note": REDACTED}


def test_the_config_itself_is_left_alone():
    cfg = OmegaConf.create({"token": "abc"})
    redact(cfg)
    assert cfg.token == "abc"
