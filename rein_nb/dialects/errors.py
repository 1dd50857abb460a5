"""Error answers of all dialects, as `ErrorInfo`: what kind of fault, how long to wait, what the provider said.

Three kinds of evidence are read, the most telling first:

1. the provider's own words (codes, types, messages) that name one kind whatever the status says: a context overflow, a
   content filter, an account without money, a rejected key;
2. the HTTP status;
3. where there is no status (an error object inside a 200 answer), the code or type that the body names.

Vendors' words are rows of the tables below. A new vendor is a new row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from rein_nb.dialects.base import Target
from rein_nb.dialects.retry_after import amount, duration, wait_in_headers, wait_in_words
from rein_nb.ir import ErrorInfo
from rein_nb.ir.base import JSON, loads
from rein_nb.ir.errors import ErrorKind

STATUS_KINDS: dict[int, ErrorKind] = {
    400: "bad_request",
    401: "authentication",
    402: "permission_denied",
    403: "permission_denied",
    404: "not_found",
    405: "not_found",
    408: "timed_out",
    409: "server_error",
    410: "not_found",
    413: "bad_request",
    415: "bad_request",
    422: "bad_request",
    425: "overloaded",
    429: "rate_limited",
    498: "overloaded",  # Groq: flex tier at capacity
    499: "server_error",
    503: "overloaded",
    529: "overloaded",  # Anthropic, and others after it
}
"""Kind by HTTP status. Other 4xx are bad requests, other 5xx server errors."""

WORD_KINDS: dict[str, ErrorKind] = {
    "authenticationerror": "authentication",
    "invalidapikey": "authentication",
    "unauthenticated": "authentication",
    "unauthorized": "authentication",
    "permissionerror": "permission_denied",
    "permissiondenied": "permission_denied",
    "forbidden": "permission_denied",
    "billingerror": "permission_denied",
    "notfound": "not_found",
    "notfounderror": "not_found",
    "ratelimiterror": "rate_limited",
    "ratelimitexceeded": "rate_limited",
    "ratelimitreached": "rate_limited",
    "resourceexhausted": "rate_limited",
    "toomanyrequests": "rate_limited",
    "throttlingexception": "rate_limited",
    "overloadederror": "overloaded",
    "overloaded": "overloaded",
    "serviceunavailable": "overloaded",
    "serviceunavailableerror": "overloaded",
    "serviceunavailableexception": "overloaded",
    "engineoverloadederror": "overloaded",
    "serveroverloaded": "overloaded",
    "unavailable": "overloaded",
    "servererror": "server_error",
    "apierror": "server_error",
    "internal": "server_error",
    "internalerror": "server_error",
    "internalservererror": "server_error",
    "timeouterror": "server_error",
    "deadlineexceeded": "server_error",
    "invalidrequesterror": "bad_request",
    "invalidargument": "bad_request",
    "badrequest": "bad_request",
    "badrequesterror": "bad_request",
    "failedprecondition": "bad_request",
    "requesttoolarge": "bad_request",
    "validationexception": "bad_request",  # this one and those below: AWS
    "accessdeniedexception": "permission_denied",
    "unrecognizedclientexception": "authentication",
    "expiredtokenexception": "authentication",
    "resourcenotfoundexception": "not_found",
    "servicequotaexceededexception": "rate_limited",
    "modelnotreadyexception": "overloaded",
    "modeltimeoutexception": "server_error",
    "modelstreamerrorexception": "server_error",
    "modelerrorexception": "server_error",
    "internalserverexception": "server_error",
    "toolusefailed": "bad_request",
}
"""Kind by the provider's code or type, compared without case and punctuation; used where there is no HTTP status."""

DECISIVE_WORDS: dict[str, ErrorKind] = {
    "contextlengthexceeded": "context_overflow",  # OpenAI and its kin
    "modelmaxprompttokensexceeded": "context_overflow",  # Copilot
    "exceedcontextsizeerror": "context_overflow",  # llama.cpp
    "toomanyprompttokens": "context_overflow",  # Perplexity
    "modelcontextwindowexceeded": "context_overflow",
    "contentfilter": "content_filtered",  # Azure
    "contentpolicyviolation": "content_filtered",
    "responsibleaipolicyviolation": "content_filtered",  # Azure, innererror
    "moderationblocked": "content_filtered",
    "datainspectionfailed": "content_filtered",  # Alibaba
    "insufficientquota": "permission_denied",  # OpenAI sends it as 429; no waiting helps
    "insufficientbalance": "permission_denied",
    "billinghardlimitreached": "permission_denied",
    "apikeyinvalid": "authentication",  # Google sends it as 400
    "invalidapikey": "authentication",
    "modelnotfound": "not_found",  # OpenAI Responses sends it as 400
    "deploymentnotfound": "not_found",
    "engineoverloaded": "overloaded",
    "overloadederror": "overloaded",
}
"""Codes that name the kind whatever the HTTP status says."""

_OVERFLOW = re.compile(
    r"""(?ix)
      maximum\ (?:model\ )?(?:context|prompt|input)\ length      # OpenAI, Azure, DeepSeek, vLLM, OpenRouter, xAI, Fireworks
    | maximum\ context\ size | max(?:imum)?_?\ ?seq(?:uence)?_?\ ?len(?:gth)?\ .*exceed
    | exceed\w*\ (?:the\ )?(?:model'?s?\ )?(?:available\ |max\w*\ )?context[\ _-]?(?:size|length|window|limit)  # llama.cpp, OpenAI
    | context[\ _-]?(?:size|length|window|limit)\ (?:was\ |is\ |has\ been\ )?(?:exceed|overflow)     # MiniMax, LM Studio
    | larger\ than\ the\ (?:model'?s?\ )?(?:max\w*\ )?context | greater\ than\ the\ context\ length  # LM Studio
    | context\ (?:the\ )?overflows | context\ length\ of\ only
    | prompt\ (?:is\ )?too\ long | input\ is\ too\ long        # Anthropic, Ollama, Bedrock
    | input\ length\ and\ .?max_tokens.?\ exceed               # Anthropic
    | input\ token\ count.{0,40}exceeds                        # Google
    | exceeds?\ the\ maximum\ number\ of\ (?:input\ )?tokens   # Google, Bedrock
    | prompt\ token\ count\ of\ .{0,20}\ exceeds               # Copilot
    | too\ large\ for\ model\ with\ .{0,20}\ maximum\ context  # Mistral
    | total\ length\ of\ all\ messages\ is\ too\ long          # Perplexity
    | exceeded\ model\ token\ limit                            # Moonshot
    | too\ many\ (?:input\ |prompt\ )?tokens                   # Cohere, Bedrock, Mistral
    | tokens.{0,6}\ \+\ .{0,3}max_new_tokens.{0,3}\ must\ be   # Text Generation Inference, Together
    | range\ of\ input\ length\ should\ be                     # Alibaba
    | prompt\ exceeds\ max                                     # Zhipu
    | longer\ than\ the\ (?:maximum\ model|model'?s?\ (?:maximum\ )?context)\ length  # vLLM
    | reduce\ the\ length\ of\ (?:the\ |your\ )?(?:messages|prompt|input)   # OpenAI, Groq, Cerebras
    """
)
# vLLM: only max_tokens is too large, and the message names the context length beside it. A shorter input would not help.
_MAX_TOKENS_TOO_LARGE = re.compile(r"(?i)max_(?:completion_|output_|new_)?tokens\W.{0,60}\btoo (?:large|high|many)")

# Bedrock: too many tokens a minute, in the words that others have for too long an input.
_THROTTLED = re.compile(r"(?i)throttl|\bwait before trying|tokens per (?:minute|day|hour)\b")

_NOT_THE_REQUEST = frozenset({"rate_limited", "overloaded", "authentication", "permission_denied"})
"""Kinds that say nothing of what was asked: where a code names one, the message is not read for an input that is too long or unwelcome."""

_FILTERED = re.compile(
    r"""(?ix)
      content\ (?:management|filtering)\ policy | content\ filter | response\ was\ filtered   # Azure, Anthropic
    | content\ exists\ risk                                       # DeepSeek
    | (?:inappropriate|sensitive|unsafe)\ content                 # Alibaba, Zhipu
    | (?:violat\w+|against)\ (?:\w+\ ){0,3}(?:usage|content|safety)\ (?:polic|guideline)      # OpenAI, xAI
    | blocked\ by\ (?:\w+\ ){0,3}(?:safety|content|moderation)    # Anthropic, Google, gateways
    | rejected\ (?:\w+\ ){0,6}(?:safety\ system|high\ risk)       # OpenAI, Moonshot
    | input\ was\ flagged | requires\ moderation                  # OpenRouter
    """
)
_OVERLOADED = re.compile(
    r"(?i)\b(?:overloaded|over capacity|at capacity|capacity exceeded|too busy|temporarily unavailable|high demand)\b"
)
_RATE_LIMITED = re.compile(
    r"(?i)\brate[ -]?limit|\bthrottl|too many requests|quota exceeded|exceeded your current quota"
)
_NO_MONEY = re.compile(r"(?i)insufficient (?:balance|quota|credits?|funds)|credit balance is too low|out of credits")
_BAD_KEY = re.compile(r"(?i)(?:invalid|incorrect|not a valid) api[ _-]?key|api[ _-]?key (?:is )?(?:not valid|invalid)")
_NOT_FOUND = re.compile(r"(?i)\bmodel\b.{0,120}\b(?:not found|does not exist|not exist)")
# One request above a whole minute's budget: it never fits, however long one waits.
_NEVER_FITS = re.compile(r"(?i)request too large for")

_REQUEST_ID_HEADERS = (
    "x-request-id", "request-id", "apim-request-id", "x-ms-request-id", "x-amzn-requestid", "x-goog-request-id",
    "x-generation-id", "cf-ray",
)  # fmt: skip
_HTML = re.compile(r"(?is)^\s*(?:<!doctype html|<html|<head|<body|<\?xml)")
_HTML_TITLE = re.compile(r"(?is)<(title|h1)[^>]*>(.*?)</\1>")

_BROKEN_JSON = re.compile(r"\s*[{\[]")
_MESSAGE_FIELD = re.compile(r'"message"\s*:\s*"((?:[^"\\]|\\.)+)"')

_PHRASES = {
    400: "bad request", 401: "not authenticated", 402: "payment required", 403: "forbidden", 404: "not found",
    408: "request timeout", 413: "request too large", 422: "unprocessable request", 429: "too many requests",
    500: "internal server error", 502: "bad gateway", 503: "service unavailable", 504: "gateway timeout",
    529: "overloaded",
}  # fmt: skip


def error_info(
    status: int | None,
    headers: Mapping[str, str] | None,
    body: JSON,
    target: Target | None,
    *,
    now: float | None = None,
) -> ErrorInfo:
    """The fault that an error answer, or an error object inside a 200 answer, describes.

    Parameters
    ----------
    status
        HTTP status; None or below 400 for an error object inside a successful answer.
    headers
        Response headers, names in any case.
    body
        Parsed JSON, or text where it was none.
    target
        Who was asked; names provider and model.
    now
        Unix time in seconds, for waits given as a date; the server's own ``Date`` header, else the clock, by default.
    """
    low = {name.lower(): value for name, value in (headers or {}).items()}
    if isinstance(body, bytes | bytearray):
        body = bytes(body).decode("utf-8", "replace")
    if isinstance(body, str) and body.lstrip()[:1] in ("{", "["):
        try:
            body = loads(body)
        except (ValueError, RecursionError):
            pass  # text that only looks like JSON stays text, and is kept as the body
    error = _error_object(body)
    words = list(_words(body, error))
    message = _message(error, body)
    if status is None or status < 400:
        status = _status_in_body(body, error)
    kind = _kind(status, [_squeeze(word) for word in words], message)
    fields: dict[str, Any] = {}
    if low.get("x-should-retry") in ("true", "false"):  # OpenAI and Anthropic say it outright
        fields["retryable"] = low["x-should-retry"] == "true"
    elif kind == "rate_limited" and _NEVER_FITS.search(message):
        fields["retryable"] = False
    return ErrorInfo.make(
        kind,
        message or _bare_message(status, body),
        status=status,
        code=_code(error, words),
        retry_after_s=retry_after(low, now=now, body=body),
        body=body,
        request_id=_request_id(low, body, error),
        provider=target.provider if target else None,
        model=target.model if target else None,
        **fields,
    )


def is_error_body(body: JSON) -> bool:
    """Whether a JSON value that came with a 200 is an error object: it names an error."""
    return isinstance(body, dict) and bool(body.get("error"))


def is_context_overflow(message: str) -> bool:
    """Whether a provider's error message says that the input is longer than the context window."""
    return _OVERFLOW.search(message) is not None and not (
        _MAX_TOKENS_TOO_LARGE.search(message) or _THROTTLED.search(message)
    )


def is_content_filtered(message: str) -> bool:
    """Whether a provider's error message says that a content policy refused the request."""
    return _FILTERED.search(message) is not None


def retry_after(headers: Mapping[str, str], *, now: float | None = None, body: JSON = None) -> float | None:
    """Seconds that the server asked to wait; None when it did not, or in a way that cannot be honoured.

    Read, in this order: ``retry-after-ms`` and ``x-ms-retry-after-ms`` (milliseconds), ``retry-after`` (seconds, or an HTTP
    date), Google's ``RetryInfo.retryDelay``, and a duration in the error's message. A negative, infinite or broken value
    and a date in the past are None. A very long wait is given as it is: how long is too long is for the caller.

    Parameters
    ----------
    headers
        Response headers, names in any case.
    now
        Unix time in seconds that dates are compared with; the ``Date`` header, else the clock, by default.
    body
        The error body.

    Examples
    --------
    >>> retry_after({"Retry-After": "2"}), retry_after({"retry-after": "soon"})
    (2.0, None)
    """
    wait = wait_in_headers({name.lower(): value for name, value in headers.items()}, now)
    return wait if wait is not None else _wait_in_body(body)


def _wait_in_body(body: JSON) -> float | None:
    error = _error_object(body)
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("retryDelay"), str):
            return duration(detail["retryDelay"])
    seconds = amount(error.get("retry_after", error.get("retry_after_seconds")))
    return seconds if seconds is not None else wait_in_words(_message(error, body))


def _error_object(body: JSON) -> dict[str, Any]:
    """The object that describes the error, wherever a vendor puts it; empty when there is none."""
    if isinstance(body, list):  # Google streams send an array, Cloudflare a list of errors
        body = next((item for item in body if isinstance(item, dict)), None)
    if not isinstance(body, dict):
        return {}
    error = body.get("error")
    if isinstance(error, dict):
        inner = error.get("error")  # a gateway's wrapping of an upstream answer
        return inner if isinstance(inner, dict) and "message" not in error else error
    if isinstance(error, str) and error:  # Ollama, xAI
        return {**{k: v for k, v in body.items() if k != "error"}, "message": body.get("message") or error}
    response = body.get("response")
    if isinstance(response, dict) and isinstance(response.get("error"), dict):  # a failed Responses object
        return dict(response["error"])
    errors = body.get("errors")
    if isinstance(errors, list) and errors and isinstance(errors[0], dict):
        return errors[0]
    return body


def _message(error: dict[str, Any], body: JSON) -> str:
    message = error.get("message")
    if not isinstance(message, str) or not message:
        message = error.get("detail") or error.get("msg") or error.get("Message") or ""
    if isinstance(message, list):  # FastAPI: one entry for each field
        message = "; ".join(_field_problem(item) for item in message)
    elif isinstance(message, dict):
        message = str(message.get("message") or message)
    if not message and isinstance(body, str):
        message = _text_message(body)
    metadata = error.get("metadata")
    if isinstance(metadata, dict):  # OpenRouter: what the provider behind it said
        upstream = metadata.get("raw")
        if isinstance(upstream, str) and upstream and upstream not in message:
            who = metadata.get("provider_name")
            message = f"{message}: {f'{who}: ' if isinstance(who, str) and who else ''}{upstream}"
    return str(message)


def _field_problem(item: Any) -> str:
    if not isinstance(item, dict):
        return str(item)
    where = ".".join(map(str, item["loc"])) if isinstance(item.get("loc"), list) else ""
    return f"{where}: {item.get('msg', '')}" if where else str(item.get("msg", item))


def _text_message(text: str) -> str:
    if _HTML.match(text):
        found = _HTML_TITLE.search(text)
        title = " ".join(re.sub(r"<[^>]+>", " ", found[2]).split()) if found else ""
        return f"an HTML page instead of JSON: {title}" if title else "an HTML page instead of JSON"
    found = _BROKEN_JSON.match(text) and _MESSAGE_FIELD.search(text)
    if found:
        return re.sub(r"\\(.)", r"\1", found[1])
    return text.strip()[:2000]


def _bare_message(status: int | None, body: JSON) -> str:
    if status is None:
        return "the provider reported an error without a message" if body else "the provider reported an empty error"
    return f"HTTP {status}: {_PHRASES.get(status, 'no message')}"


def _words(body: JSON, error: dict[str, Any]) -> Iterator[str]:
    """All codes and types that the body names, the most specific first."""
    for name in ("code", "type", "status", "__type"):
        value = error.get(name)
        if isinstance(value, str) and value and value != "error":
            yield value
    inner = error.get("innererror")
    if isinstance(inner, dict) and isinstance(inner.get("code"), str):
        yield inner["code"]
    details = error.get("details")
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and isinstance(detail.get("reason"), str):
            yield detail["reason"]
    if isinstance(body, dict) and error is not body and isinstance(body.get("code"), str):
        yield body["code"]


def _squeeze(word: str) -> str:
    return re.sub(r"[^a-z0-9]", "", word.lower())


def _code(error: dict[str, Any], words: list[str]) -> str | None:
    if words:
        return words[0]
    code = error.get("code")
    return str(code) if isinstance(code, int) and not isinstance(code, bool) else None


def _status_in_body(body: JSON, error: dict[str, Any]) -> int | None:
    for source in (error, body if isinstance(body, dict) else {}):
        for name in ("status_code", "status", "code", "statusCode", "http_status"):
            value = source.get(name)
            if isinstance(value, str) and value.isdigit():
                value = int(value)
            if isinstance(value, int) and not isinstance(value, bool) and 400 <= value <= 599:
                return value
    return None


def _request_id(headers: Mapping[str, str], body: JSON, error: dict[str, Any]) -> str | None:
    for source in (body, error):
        value = source.get("request_id") if isinstance(source, dict) else None
        if isinstance(value, str) and value:
            return value
    return next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), None)


def _kind(status: int | None, words: list[str], message: str) -> ErrorKind:
    for word in words:
        if word in DECISIVE_WORDS:
            return DECISIVE_WORDS[word]
    if status not in (401, 402, 404, 429) and not any(WORD_KINDS.get(word) in _NOT_THE_REQUEST for word in words):
        if is_context_overflow(message):
            return "context_overflow"
        if is_content_filtered(message):
            return "content_filtered"
    if status in (None, 400, 403, 429, 500) and _NO_MONEY.search(message):
        return "permission_denied"
    if status in (None, 400, 500) and _BAD_KEY.search(message):
        return "authentication"
    if status is not None:
        if status >= 500 and _OVERLOADED.search(message):
            return "overloaded"
        return STATUS_KINDS.get(status, "server_error" if status >= 500 else "bad_request")
    return _kind_without_status(words, message)


def _kind_without_status(words: list[str], message: str) -> ErrorKind:
    if _OVERLOADED.search(message):
        return "overloaded"
    for word in words:
        if word in WORD_KINDS:
            return WORD_KINDS[word]
    if _RATE_LIMITED.search(message):
        return "rate_limited"
    if _NOT_FOUND.search(message):
        return "not_found"
    # It had accepted the request and then failed: that is the server's fault until it says otherwise.
    return "server_error"
