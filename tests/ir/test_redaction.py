"""One redaction function, by registered value, by credential shape and by field name."""

from __future__ import annotations

import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rein_nb.ir.redaction import MASK, Redactor

TAIL = "A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8"

SHAPES = {
    "openai": "sk-proj-" + TAIL,
    "anthropic": "sk-ant-api03-" + TAIL,
    "openrouter": "sk-or-v1-" + TAIL,
    "groq": "gsk_" + TAIL,
    "xai": "xai-" + TAIL,
    "huggingface": "hf_" + TAIL,
    "google": "AIza" + TAIL,
    "google oauth": "ya29." + TAIL,
    "google refresh": "1//0" + TAIL,
    "aws id": "AKIA" + "ABCDEFGH12345678",
    "github": "ghp_" + TAIL,
    "github fine": "github_pat_" + TAIL,
    "gitlab": "glpat-" + TAIL,
    "slack": "xoxb-" + TAIL,
    "perplexity": "pplx-" + TAIL,
    "nvidia": "nvapi-" + TAIL,
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0." + TAIL,
    "npm": "npm_" + TAIL,
    "replicate": "r8_" + TAIL,
    "private key": "-----BEGIN RSA PRIVATE KEY-----\n" + TAIL + "\n-----END RSA PRIVATE KEY-----",
    "fireworks": "fw_" + TAIL,
    "langsmith": "lsv2_pt-" + TAIL,
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "around", ["{}", "key={}", "Authorization: Bearer {}", '{{"api_key": "{}"}}', "see {}, then go"]
)
def test_credential_shapes_are_masked_wherever_they_stand(name: str, around: str) -> None:
    masked = Redactor().text(around.format(SHAPES[name]))
    assert TAIL not in masked
    assert SHAPES[name] not in masked
    assert MASK in masked


def test_registered_values_are_masked_whatever_their_shape() -> None:
    redactor = Redactor(["hdr-SECRET-9"])
    assert redactor.text("got hdr-SECRET-9!") == f"got {MASK}!"
    redactor.register("ab")
    assert redactor.text("cab") == "cab"


@pytest.mark.parametrize(
    "text",
    [
        "a task-oriented sketch",
        "sk-learn is short",
        "the password is long",
        "api key: see docs",
        "https://example.org/a?b=c",
        "basic idea of it all",
    ],
)
def test_prose_is_left_alone(text: str) -> None:
    assert Redactor().text(text) == text


def test_url_credentials_and_key_parameters() -> None:
    masked = Redactor().text("https://user:hunter2hunter2@example.org/v1?key=0123456789abcdef&x=1")
    assert masked == f"https://user:{MASK}@example.org/v1?key={MASK}&x=1"


def test_field_names_in_json_and_headers() -> None:
    redactor = Redactor()
    assert redactor.json({"api_key": "short1", "n": [{"X-Api-Key": "v"}], "tokens": "12"}) == {
        "api_key": MASK, "n": [{"X-Api-Key": MASK}], "tokens": "12",
    }  # fmt: skip
    assert redactor.headers([("Authorization", "x"), ("accept", "y")]) == {"Authorization": MASK, "accept": "y"}


def test_masking_twice_changes_nothing() -> None:
    redactor = Redactor()
    for secret in SHAPES.values():
        once = redactor.text(f"api_key={secret} and {secret}")
        assert redactor.text(once) == once


_PIECES = st.one_of(
    st.sampled_from(
        [
            "secret", "password", "api_key", "x-api-key", "access_token", "authorization", "bearer", "basic", "token", "sig", "redacted",
            "=", ":", ": ", "&", "?", "?key=", "&sig=", '"', "'", "\\", " ", "\n", ",", ";", "]", "[", ")", "<", "/", "@", "-", "_",
            MASK, "http://", "https://", "a://u:", "://", "user", "host.org", "hunter2hunter2", "abcdefgh", "x", "hdr-SECRET-9",
            "sk-" + TAIL, "AKIA" + "ABCDEFGH12345678", "ABSK" + "a" * 40, "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----",
            "\u017f", "\u212a", "\u0130",
        ]
    ),
    st.text(max_size=9),
)  # fmt: skip


@given(st.lists(_PIECES, max_size=30).map("".join))
@settings(max_examples=500, deadline=None)
@example("secret: \\password\\")
@example("secret: \\[redacted]")
@example("password=abc[redacted]")
@example("http://u?key=aaa/bbbbbb&x:yyy@")
@example('&key=a://u:"' * 20 + "x" + "&@" * 20)
def test_text_that_was_masked_stays_as_it_is(text: str) -> None:
    redactor = Redactor(["hdr-SECRET-9", "redacted"])
    once = redactor.text(text)
    assert redactor.text(once) == once
    assert redactor.json({"a": [text]}) == {"a": [once]}


def test_an_escaped_mask_is_left_whole_and_a_mask_within_a_value_is_part_of_it() -> None:
    redactor = Redactor()
    assert redactor.text("secret: \\password\\") == f"secret: \\{MASK}"
    assert redactor.text(f"password=abc{MASK}def, next") == f"password={MASK}, next"


@pytest.mark.parametrize(
    "text", ["secret: \\", "password=a[redacted]", "http://u?key=a:", '&key=a://u:"', "secret: a\\ "]
)
def test_masking_takes_time_in_proportion_to_the_text(text: str) -> None:
    def seconds(count: int) -> float:
        took = []
        for _ in range(3):
            start = time.process_time()
            Redactor().text(text * count + "x" + "&@" * count)
            took.append(time.process_time() - start)
        return min(took)

    assert seconds(32_000) < 40 * seconds(2_000) + 0.1
