"""Nothing that a model or a tool wrote runs, fetches, pretends or hides: every payload in every place, in every form of output."""

from __future__ import annotations

import json

import pytest

from rein_nb.ir import Message
from rein_nb.notebook.jsonl import transcript_jsonl
from rein_nb.notebook.markdown import render_block
from rein_nb.notebook.plain import markdown_transcript, plain_transcript, transcript_data
from rein_nb.notebook.render import static_html
from rein_nb.notebook.replay import state_of
from rein_nb.notebook.safe_markdown import safe_markdown
from rein_nb.notebook.sanitize import visible
from rein_nb.notebook.saved import grid_bundle, transcript_html, transcript_markdown
from rein_nb.notebook.tail import MarkdownTail, resolve
from rein_nb.notebook.view_model import ViewState, apply
from rein_nb.notebook.wire import Encoder
from tests.notebook.danger import HIDDEN, dangers, markdown_dangers, visible_text
from tests.notebook.hostile import OWN, hostile_run, result_of, shared_payloads
from tests.support import field_cases

PAYLOADS = OWN | shared_payloads()


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_static_output_is_harmless(payload: str) -> None:
    script = hostile_run(payload)
    for state in (state_of(script.events), state_of(result_of(script))):
        assert dangers(static_html(state)) == []
        assert markdown_dangers(markdown_transcript(state)) == []
        assert not HIDDEN.search(plain_transcript(state))
        json.dumps(transcript_data(state))
    bundle = grid_bundle([payload, "b"], [state, state])
    assert dangers(bundle["text/html"]) == []
    assert markdown_dangers(bundle["text/markdown"]) == []


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_what_goes_to_the_browser_is_harmless(payload: str) -> None:
    state = ViewState()
    encoder, chosen = Encoder(state), [""]
    tails: dict[str, str] = {}
    for number, event in enumerate(hostile_run(payload).events):
        encoder.take(apply(state, event))
        for op in encoder.flush(chosen):
            for markup in _markup_of(op, tails, chosen[0]):
                assert _live_dangers(markup) == []
        if number % 8 == 0:
            assert _live_dangers(encoder.snapshot()[0]) == []
    assert _live_dangers(encoder.snapshot()[0]) == []


def _live_dangers(markup: str) -> list[str]:
    # No typesetter goes over a widget, so a growing tail is plain text.
    return [found for found in dangers(_without_buttons(markup)) if not found.startswith("mathematics")]


def _without_buttons(markup: str) -> str:
    # Our own approval buttons; a foreign one would have other attributes and stay.
    import re

    return re.sub(
        r'<button type="button" class="rein-button rein-\w+" data-act="\w+" data-call="[^"<>]*">([\w ]+)</button>',
        r"\1",
        markup,
    )


def _markup_of(op: object, tails: dict[str, str], chosen: str) -> list[str]:
    if isinstance(op, str):
        tails[chosen] = tails.get(chosen, "") + op
        assert not HIDDEN.search(op)
        return []
    assert isinstance(op, list)
    if op[0] == "b":
        markup = resolve(op[1:], tails.get(chosen, ""))
        tails[chosen] = ""
        return [markup]
    if op[0] == "s":
        tails[chosen] = op[1]
        assert not HIDDEN.search(op[1])
    return [op[-1]] if op[0] in ("a", "r", "u", "f") else []


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_every_prefix_of_a_payload_is_harmless(payload: str) -> None:
    for end in range(1, len(payload), max(1, len(payload) // 15)):
        assert dangers(render_block(payload[:end], static=True)) == []
        assert markdown_dangers(safe_markdown(payload[:end])) == []


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_exports_are_harmless(payload: str) -> None:
    result = result_of(hostile_run(payload))
    page = transcript_html(result, title=payload)
    body = page[page.index("<body>") + 6 : page.index("</body>")]
    assert dangers(body) == []
    title = page[page.index("<title>") + 7 : page.index("</title>")]
    assert "<" not in title
    assert page.count("<style>") == 1
    assert "<script" not in page
    assert markdown_dangers(transcript_markdown(result)) == []
    for line in transcript_jsonl(result).splitlines():
        json.loads(line)


def test_the_judge_finds_what_is_dangerous() -> None:
    for markup in (
        "<script>",
        "<img src=x>",
        '<a href="javascript:1">',
        "<p onclick=x>",
        "<!-- x -->",
        "a\u202eb",
        "$a$",
        "<form>",
    ):
        assert dangers(markup), markup
    for text in ("<img src=x>", "![a](b)", "[a](javascript:x)", "$\\href{a}{b}$", "x\x1by", "[a]: b"):
        assert markdown_dangers(text), text


def test_C128_images_are_not_loaded_and_code_is_unchanged() -> None:
    case = field_cases().get("C128")
    text = "![x](https://evil.example/p.png)\n\n[click](javascript:alert(1))\n\n```\n![code](https://ok.example)\n```"
    if case is not None:
        text = case["minimal_input"]["messages"][0]["parts"][0]["text"]
    message = Message(role="assistant", content=text)
    state = state_of(message)
    markup = static_html(state)
    assert dangers(markup) == []
    assert "![code](https://ok.example)" in visible_text(markup)
    assert "![code](https://ok.example)" in markdown_transcript(state)
    assert message.text == text


def test_a_link_shows_its_whole_target() -> None:
    markup = render_block("[https://bank.example/login](https://evil.example/a?b=c)", static=True)
    assert "(https://evil.example/a?b=c)" in visible_text(markup)
    assert "<https://evil.example/a?b=c>" in safe_markdown("[https://bank.example/login](https://evil.example/a?b=c)")


def test_invisible_characters_become_visible() -> None:
    assert visible("a\x1b[2Kb\rc\u202ed\u200be\U000e0041") == "a␛[2Kb␍c⟨U+202E⟩d⟨U+200B⟩e⟨U+E0041⟩"
    assert (
        visible("tab\tline\nfamily \U0001f468\u200d\U0001f469 heart \u2764\ufe0f")
        == "tab\tline\nfamily \U0001f468\u200d\U0001f469 heart \u2764\ufe0f"
    )


SECRETS = {
    "openai": "sk-proj-abcdEFGH1234567890abcdEFGH1234567890",
    "anthropic": "sk-ant-api03-abcdEFGH1234567890abcdEFGH1234567890-AA",
    "google": "AIzaSyA1234567890abcdefghijklmnopqrstuv",
    "google-oauth": "ya29.a0AfH6SMBx1234567890abcdefghijkl",
    "google-refresh": "1//0gabcdefghijklmnopqrstuvwx",
    "groq": "gsk_abcdefghijklmnop1234567890ABCDEF",
    "xai": "xai-abcdefghijklmnop1234567890ABCDEF",
    "hugging-face": "hf_abcdefghijklmnopqrstuvwxyzABCDEF",
    "aws": "AKIAIOSFODNN7ABCDEFG",
    "github": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "github-fine": "github_pat_11ABCDEFG0abcdefghijklmnopqrstuvwxyz",
    "gitlab": "glpat-abcdefghijklmnopqrst",
    "slack": "xoxb-1234567890-abcdefghij",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.abcdefghijklmnop",
    "npm": "npm_abcdefghijklmnopqrstuvwxyz0123456789",
    "sendgrid": "SG.abcdefghijklmnop1234.abcdefghijklmnop1234567890",
    "bearer": "Authorization: Bearer abcdefghijklmnop1234567890",
    "assigned": "OPENAI_API_KEY=notaprefix1234567890",
    "password": 'password: "correct-horse-battery"',
    "url": "https://user:hunter2secret@host.example/path",
    "private-key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEabcdefghijklmnopqrstuvwxyz0123456789\nabcdefgh\n-----END RSA PRIVATE KEY-----",
}
_VALUE = {
    "bearer": "abcdefghijklmnop1234567890", "assigned": "notaprefix1234567890", "password": "correct-horse-battery", "url": "hunter2secret",
    "private-key": "MIIEabcdefghijklmnopqrstuvwxyz",
}  # fmt: skip


@pytest.mark.parametrize("kind", SECRETS)
def test_secrets_are_masked_in_every_output(kind: str) -> None:
    text, value = SECRETS[kind], _VALUE.get(kind, SECRETS[kind])
    script = hostile_run(f"the environment says {text} as you see")
    state = state_of(script.events)
    outputs = [
        static_html(state),
        markdown_transcript(state),
        plain_transcript(state),
        json.dumps(transcript_data(state)),
        transcript_html(result_of(script)),
        transcript_jsonl(result_of(script)),
    ]
    assert [name for name, out in enumerate(outputs) if value in out] == []


@pytest.mark.parametrize("kind", [kind for kind, text in SECRETS.items() if "\n" not in text])
def test_a_secret_in_one_endless_line_is_never_shown_in_part(kind: str) -> None:
    text, value = SECRETS[kind], _VALUE.get(kind, SECRETS[kind])
    # One every 250 characters or so, so that every cut is near one; in words of different lengths, so that cuts fall on all places.
    source = "".join(f"{'word ' * (41 + n % 7)}the key is {text} " for n in range(60))
    tail, screen = MarkdownTail(), ""
    for start in range(0, len(source), 97):
        tail.take(source[start : start + 97])
        for op in tail.flush():
            screen = screen + op if isinstance(op, str) else op[1] if op[0] == "s" else screen
        assert value[:12] not in screen
    assert screen.count("the key is") >= 58


@pytest.mark.parametrize("size", [1, 3, 7])
@pytest.mark.parametrize("kind", SECRETS)
def test_a_secret_that_streams_in_pieces_is_never_shown_in_part(kind: str, size: int) -> None:
    text, value = SECRETS[kind], _VALUE.get(kind, SECRETS[kind])
    source = f"The key is\n{text}\nand `{text}` too, so take care of it.\n\nNext."
    tail, screen, seen = MarkdownTail(), "", []
    for start in range(0, len(source), size):
        tail.take(source[start : start + size])
        for op in tail.flush():
            if isinstance(op, str):
                screen += op
            elif op[0] == "s":
                screen = op[1]
            elif op[0] == "b":
                seen.append(resolve(op[1:], screen))
                screen = ""
            seen.append(screen)
    shown = "\n".join(seen)
    assert value not in shown
    assert value[:12] not in shown
    assert "Next" in tail._splitter.tail
