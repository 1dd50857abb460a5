"""Error answers of every vendor: kind, wait, words."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rein_nb.dialects.base import Target
from rein_nb.dialects.errors import STATUS_KINDS, error_info, is_content_filtered, is_context_overflow, retry_after
from tests.support import load_recording, recordings

TARGET = Target(provider="acme", dialect="openai-chat", model="m1")
NOW = 1767225600.0  # 2026-01-01T00:00:00Z


# -- Retry-After ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after-ms": "1500"}, 1.5),
        ({"x-ms-retry-after-ms": "250"}, 0.25),
        ({"Retry-After": "2"}, 2.0),
        ({"retry-after": "0"}, 0.0),
        ({"retry-after": "1.25"}, 1.25),
        ({"retry-after": "Thu, 01 Jan 2026 00:00:03 GMT"}, 3.0),
        ({"retry-after": "Wed, 31 Dec 2025 23:00:00 GMT"}, None),
        ({"retry-after": "86400"}, 86400.0),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Thu, 01 Jan 99999 00:00:00 GMT"}, None),
        ({"retry-after": "Thu, 32 Foo 2026 00:00:00 GMT"}, None),
        ({"retry-after-ms": "x", "retry-after": "7"}, 7.0),
        ({"retry-after-ms": "900", "retry-after": "7"}, 0.9),
        ({}, None),
    ],
)
def test_C090_every_form_of_retry_after(headers: dict[str, str], wait: float | None) -> None:
    assert retry_after(headers, now=NOW) == wait
    assert error_info(429, headers, {"error": {"message": "slow down"}}, TARGET, now=NOW).retry_after_s == wait


def test_C090_a_date_is_read_against_the_servers_own_clock() -> None:
    headers = {"date": "Thu, 01 Jan 2026 00:00:00 GMT", "retry-after": "Thu, 01 Jan 2026 00:00:05 GMT"}
    assert retry_after(headers) == 5.0


@pytest.mark.parametrize(
    ("body", "wait"),
    [
        ({"error": {"message": "Rate limit reached. Please try again in 18.642s. Visit the docs."}}, 18.642),
        ({"error": {"message": "Please try again in 9m48.384s."}}, 588.384),
        ({"error": {"message": "Please try again in 120ms."}}, 0.12),
        ({"error": {"message": "Please retry after 20 seconds"}}, 20.0),
        ({"error": {"message": "Your quota will reset after 19h14m47s."}}, 69287.0),
        ({"error": {"message": "Please try again later."}}, None),
        ({"error": {"message": "x", "details": [{"@type": "RetryInfo", "retryDelay": "34.4s"}]}}, 34.4),
        ([{"error": {"message": "x", "details": [{"retryDelay": "0.5s"}]}}], 0.5),
        ({"error": {"message": "x", "details": [{"retryDelay": "?"}]}}, None),
        ({"error": {"message": "x", "retry_after": 3}}, 3.0),
        ({"error": {"message": "x", "retry_after": True}}, None),
    ],
)
def test_a_wait_named_in_the_body_is_read(body: Any, wait: float | None) -> None:
    assert error_info(429, {}, body, TARGET).retry_after_s == (pytest.approx(wait) if wait is not None else None)


def test_the_header_goes_before_the_body() -> None:
    body = {"error": {"message": "Please try again in 9s"}}
    assert error_info(429, {"retry-after": "4"}, body, TARGET).retry_after_s == 4.0


# -- kinds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "kind"), [*STATUS_KINDS.items(), (418, "bad_request"), (500, "server_error"), (599, "server_error")]
)
def test_the_status_names_the_kind_where_nothing_else_does(status: int, kind: str) -> None:
    for body in (None, "", {}, {"error": {"message": "no"}}, "<html><title>x</title></html>"):
        info = error_info(status, {}, body, TARGET)
        assert (info.kind, info.status) == (kind, status)
        assert info.message
        assert (info.provider, info.model) == ("acme", "m1")


OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 200000 tokens.",
    "Please reduce the length of the messages or completion.",
    "This endpoint's maximum context length is 32768 tokens.",
    "the request exceeds the available context size. try increasing the context size",
    "The number of tokens to keep from the initial prompt is greater than the context length",
    "prompt token count of 130000 exceeds the limit of 128000",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "The total length of all messages is too long.",
    "Your request exceeded model token limit: 8192",
    "Input is too long for requested model.",
    "too many tokens: total number of tokens in the prompt cannot exceed 4081",
    "`inputs` tokens + `max_new_tokens` must be <= 4096",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "Prompt exceeds max length",
    "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
    "invalid params, context window exceeds limit",
    "prompt too long; exceeded max context length by 3 tokens",
    "The prompt is too long: 140000, model maximum context length: 131072",
]


@pytest.mark.parametrize("message", OVERFLOWS)
def test_every_vendors_words_for_a_full_context_are_known(message: str) -> None:
    assert is_context_overflow(message)
    info = error_info(400, {}, {"error": {"message": message, "type": "invalid_request_error"}}, TARGET)
    assert (info.kind, info.retryable) == ("context_overflow", False)


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (
            400,
            "max_tokens is too large: 9000. This model's maximum context length is 4096 tokens and your request has 20.",
        ),
        (400, "Invalid value for 'messages': too many images"),
        (404, "The model `context-length-tester` does not exist"),
        (429, "Rate limit reached: too many tokens per minute"),
        (400, "The context of the tool call is invalid"),
    ],
)
def test_other_faults_are_not_taken_for_a_full_context(status: int, message: str) -> None:
    assert error_info(status, {}, {"error": {"message": message}}, TARGET).kind != "context_overflow"


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, {"code": "content_filter", "message": "no", "innererror": {"code": "ResponsibleAIPolicyViolation"}}),
        (
            400,
            {
                "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy."
            },
        ),
        (400, {"message": "Content Exists Risk", "type": "invalid_request_error"}),
        (400, {"code": "data_inspection_failed", "message": "Input data may contain inappropriate content."}),
        (400, {"message": "Your request was rejected as a result of our safety system."}),
        (400, {"message": "Output blocked by content filtering policy"}),
        (403, {"message": 'openai/gpt-4o requires moderation. Your input was flagged for "violence".'}),
        (400, {"message": "Invalid prompt: your prompt was flagged as potentially violating our usage policy."}),
        (400, {"message": "The request was rejected because it was considered high risk"}),
    ],
)
def test_a_refusal_by_policy_is_content_filtered(status: int, error: dict[str, Any]) -> None:
    info = error_info(status, {}, {"error": error}, TARGET)
    assert (info.kind, info.retryable) == ("content_filtered", False)


def test_ordinary_words_are_no_content_filter() -> None:
    assert not is_content_filtered("messages.0.content: field required")
    assert not is_content_filtered("the file's content type is not supported")


@pytest.mark.parametrize(
    ("status", "body", "kind", "retryable"),
    [
        (429, {"error": {"code": "insufficient_quota", "message": "You exceeded your current quota"}}, "permission_denied", False),
        (429, {"error": {"message": "Request too large for m1 on tokens per min (TPM): Limit 30000"}}, "rate_limited", False),
        (429, {"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "quota"}}, "rate_limited", True),
        (400, {"error": {"status": "INVALID_ARGUMENT", "message": "API key not valid.", "details": [{"reason": "API_KEY_INVALID"}]}},
         "authentication", False),
        (400, {"error": {"message": "does not exist", "code": "model_not_found"}}, "not_found", False),
        (400, {"type": "error", "error": {"type": "invalid_request_error", "message": "Your credit balance is too low"}},
         "permission_denied", False),
        (500, {"error": {"message": "The engine is currently overloaded"}}, "overloaded", True),
        (529, {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", True),
        (503, {"error": {"message": "The model is overloaded", "status": "UNAVAILABLE"}}, "overloaded", True),
        (401, {"error": {"message": "bad key", "type": "authentication_error", "code": "invalid_request_error"}}, "authentication", False),
    ],
)  # fmt: skip
def test_the_providers_words_outweigh_a_status_that_misleads(
    status: int, body: Any, kind: str, retryable: bool
) -> None:
    info = error_info(status, {}, body, TARGET)
    assert (info.kind, info.retryable) == (kind, retryable)


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        ({"error": {"type": "overloaded_error", "message": "Overloaded"}}, "overloaded", None),
        ({"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}, "server_error", None),
        ({"error": {"code": 502, "message": "Bad gateway"}}, "server_error", 502),
        ({"error": {"code": "429", "message": "slow"}}, "rate_limited", 429),
        ({"error": {"message": "x", "type": "invalid_request_error", "status_code": 400}}, "bad_request", 400),
        ({"error": {"type": "rate_limit_error", "message": "slow"}}, "rate_limited", None),
        ({"error": "model 'x' not found"}, "not_found", None),
        ({"error": "rate limit hit"}, "rate_limited", None),
        ({"error": {"message": "prompt is too long: 5 > 4"}}, "context_overflow", None),
        ({"error": {"message": "something else"}}, "server_error", None),
        ({"response": {"error": {"code": "rate_limit_exceeded", "message": "slow"}}}, "rate_limited", None),
        ("plain words", "server_error", None),
        (None, "server_error", None),
    ],
)
def test_C091_an_error_inside_a_200_gets_the_kind_that_its_words_name(body: Any, kind: str, status: int | None) -> None:
    for outer in (None, 200):
        info = error_info(outer, {}, body, TARGET)
        assert (info.kind, info.status) == (kind, status)


def test_the_server_may_say_outright_whether_to_retry() -> None:
    body = {"error": {"message": "x"}}
    assert error_info(400, {"x-should-retry": "true"}, body, TARGET).retryable is True
    assert error_info(500, {"x-should-retry": "false"}, body, TARGET).retryable is False


# -- words ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "m", "type": "t", "code": "c"}}, "m", "c"),
        ({"error": {"message": "m", "type": "t", "code": None}}, "m", "t"),
        ({"error": {"message": "m", "code": 404}}, "m", "404"),
        ({"error": "just words"}, "just words", None),
        ({"code": "c", "error": "just words"}, "just words", "c"),
        ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400}, "m", "BadRequestError"),
        ({"detail": [{"loc": ["body", "messages"], "msg": "field required"}]}, "body.messages: field required", None),
        ({"detail": "Not Found"}, "Not Found", None),
        ({"errors": [{"message": "m", "code": 7009}]}, "m", "7009"),
        ([{"error": {"message": "m", "status": "UNAVAILABLE", "code": 503}}], "m", "UNAVAILABLE"),
        ('{"error": {"message": "m"}}', "m", None),
        (b'{"error": {"message": "m"}}', "m", None),
        ('[{"error": {"message": "a \\"b\\" c", , "code": 1}}', 'a "b" c', None),
        ("<html><body><h1>504 Gateway <b>Time-out</b></h1></body></html>", "an HTML page instead of JSON: 504 Gateway Time-out", None),
        ({"error": {"message": "Provider returned error", "code": 429, "metadata": {"provider_name": "Up", "raw": "busy"}}},
         "Provider returned error: Up: busy", "429"),
    ],
)  # fmt: skip
def test_message_and_code_are_found_wherever_a_vendor_puts_them(body: Any, message: str, code: str | None) -> None:
    info = error_info(500, {}, body, TARGET)
    assert (info.message, info.code) == (message, code)


def test_the_body_is_kept_and_secrets_are_masked() -> None:
    key = "sk-" + "a1" * 12
    info = error_info(401, {}, {"error": {"message": f"Incorrect API key provided: {key}", "extra": {"n": 1}}}, TARGET)
    assert info.body["error"]["extra"] == {"n": 1}
    assert key not in info.model_dump_json()


def test_the_request_id_is_kept() -> None:
    assert error_info(500, {"X-Request-Id": "r1"}, {}, TARGET).request_id == "r1"
    assert (
        error_info(500, {"request-id": "r2"}, {"request_id": "r3", "error": {"message": "x"}}, TARGET).request_id
        == "r3"
    )


@pytest.mark.parametrize(
    "body",
    [
        5, True, [], [1], {"error": []}, {"error": {"message": {"a": 1}}}, {"error": {"message": None, "details": "x"}},
        {"error": {"details": [1, {"reason": 3}]}}, "{broken", "[" * 5000, {"error": {"error": {"message": "inner"}}},
        {"detail": [1, {"loc": 3}]}, {"error": {"metadata": {"raw": {"x": 1}}}}, {"error": {"code": True}},
    ],
)  # fmt: skip
def test_no_body_makes_it_raise(body: Any) -> None:
    for status in (None, 200, 400, 429, 500):
        info = error_info(status, {}, body, TARGET)
        assert info.message
        json.loads(info.model_dump_json())


# -- recordings -----------------------------------------------------------------------------------------

_EXPECTED = {
    401: "authentication",
    402: "permission_denied",
    403: "permission_denied",
    404: "not_found",
    429: "rate_limited",
    529: "overloaded",
}


def test_recorded_error_answers_of_all_dialects(shared: object) -> None:
    seen = 0
    for path in recordings(
        "anthropic", "deepseek", "google", "google-code-assist", "openai-chat", "openai-responses", "openai-compatible"
    ):
        for exchange in load_recording(path)["exchanges"]:
            response = exchange["response"]
            if response["status"] < 400:
                continue
            seen += 1
            info = error_info(response["status"], response["headers"], response["body"], TARGET)
            assert info.kind == _EXPECTED.get(response["status"], info.kind), path.name
            assert info.kind != "other"
            assert info.status == response["status"]
            if "retry-after-ms" in response["headers"]:
                assert info.retry_after_s == pytest.approx(int(response["headers"]["retry-after-ms"]) / 1000)
            elif "retry-after" in response["headers"]:
                assert info.retry_after_s == float(response["headers"]["retry-after"])
    assert seen > 40


@pytest.mark.parametrize(
    ("status", "body", "kind"),
    [
        (None, {"error": {"type": "throttlingException", "message": "Too many tokens, please wait"}}, "rate_limited"),
        (None, {"error": {"message": "ThrottlingException: Too many tokens, please wait before trying again."}}, "rate_limited"),
        (400, {"error": {"code": "rate_limit_exceeded", "message": "too many tokens"}}, "bad_request"),
        (None, {"error": {"type": "overloaded_error", "message": "too many input tokens queued"}}, "overloaded"),
        (None, {"error": {"type": "modelTimeoutException", "message": "Model has timed out"}}, "server_error"),
        (None, {"error": {"type": "internalServerException", "message": ""}}, "server_error"),
        (None, {"error": {"type": "validationException", "message": "Input is too long for requested model."}}, "context_overflow"),
    ],
)  # fmt: skip
def test_a_code_that_is_not_about_the_request_outweighs_words_that_could_be(
    status: int | None, body: Any, kind: str
) -> None:
    assert error_info(status, {}, body, None).kind == kind
