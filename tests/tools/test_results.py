"""What a tool returns, as the model and as a program sees it."""

from __future__ import annotations

import dataclasses
import enum
from collections import deque, namedtuple
from typing import Any

import pytest
from pydantic import BaseModel

from rein_nb.ir import MediaPart, TextPart, ToolCall, ToolResult
from rein_nb.tools import Tool
from rein_nb.tools.render import cut_text, sniff, to_result

CALL = ToolCall(id="c1", name="t")


def shown(value: Any, max_chars: int = 40_000) -> ToolResult:
    return to_result(CALL, value, max_chars)


class Report(BaseModel):
    title: str
    scores: list[float]


@dataclasses.dataclass
class Row:
    a: int
    b: str | None = None


class Shade(enum.Enum):
    DARK = "dark"


Pair = namedtuple("Pair", "x y")


@pytest.mark.parametrize(
    ("value", "text", "details"),
    [
        ("plain", "plain", None),
        (3, "3", 3),
        (True, "true", True),
        ([1, "é"], '[1, "é"]', [1, "é"]),
        ({"a": None}, '{"a": null}', {"a": None}),
        (Report(title="t", scores=[1.5]), '{"title": "t", "scores": [1.5]}', {"title": "t", "scores": [1.5]}),
        (Row(1), '{"a": 1, "b": null}', {"a": 1, "b": None}),
        ([Row(1, "x")], '[{"a": 1, "b": "x"}]', [{"a": 1, "b": "x"}]),
        (Shade.DARK, "dark", None),
        (Pair(1, 2), '{"x": 1, "y": 2}', {"x": 1, "y": 2}),
        (b"plain bytes", "plain bytes", None),
        (float("inf"), "Infinity", None),
        (range(3), "[0, 1, 2]", [0, 1, 2]),
    ],
)
def test_values_are_shown_as_text_and_kept_as_data(value: Any, text: str, details: Any) -> None:
    result = shown(value)
    assert (result.text, result.details, result.status, result.tool_call_id, result.name) == (
        text,
        details,
        "ok",
        "c1",
        "t",
    )
    assert ToolResult.model_validate_json(result.model_dump_json()) == result


def test_none_says_that_nothing_was_returned() -> None:
    assert "nothing" in shown(None).text


def test_an_exception_that_is_returned_is_an_error() -> None:
    result = shown(ValueError("no such file"))
    assert (result.status, result.is_error, result.text) == ("error", True, "ValueError: no such file")


def test_binary_data_is_described_and_kept() -> None:
    result = shown(b"\xff\xfe\x00\x01")
    assert "4 bytes of binary data" in result.text
    assert result.details["base64"] == "//4AAQ=="


@pytest.mark.parametrize(
    ("head", "kind", "mime"),
    [
        (b"\x89PNG\r\n\x1a\n", "image", "image/png"),
        (b"\xff\xd8\xff\xe0", "image", "image/jpeg"),
        (b"GIF89a", "image", "image/gif"),
        (b"RIFF\x00\x00\x00\x00WEBP", "image", "image/webp"),
        (b"%PDF-1.7", "document", "application/pdf"),
        (b"RIFF\x00\x00\x00\x00WAVE", "audio", "audio/wav"),
    ],
)
def test_media_bytes_are_recognised(head: bytes, kind: str, mime: str) -> None:
    part = sniff(head + b"rest")
    assert part is not None
    assert (part.kind, part.mime_type, part.data) == (kind, mime, head + b"rest")
    assert shown(head + b"rest").content == [part]


def test_text_and_media_may_be_mixed() -> None:
    image = MediaPart(kind="image", mime_type="image/png", data=b"\x89PNG\r\n\x1a\n")
    result = shown(["before", image, TextPart(text="after"), {"n": 1}])
    assert [type(part).__name__ for part in result.content] == ["TextPart", "MediaPart", "TextPart", "TextPart"]
    assert result.text == 'beforeafter{"n": 1}'


def test_figures_are_drawn_by_what_they_can_do() -> None:
    class Figure:
        def savefig(self, target: Any, format: str, bbox_inches: str) -> None:
            target.write(b"\x89PNG\r\n\x1a\n" + format.encode())

    class Axes:
        def get_figure(self) -> Figure:
            return Figure()

    class Picture:
        def _repr_png_(self) -> bytes:
            return b"\x89PNG\r\n\x1a\nrepr"

    for value in (Figure(), Axes(), Picture(), [Figure()]):
        (part,) = shown(value).content
        assert isinstance(part, MediaPart)
        assert part.mime_type == "image/png"


def test_frames_are_shown_as_a_table_and_kept_as_data() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"n": range(100), "when": pd.date_range("2024-01-01", periods=100, tz="UTC")})
    result = shown(frame)
    assert "[100 rows x 2 columns]" in result.text
    assert len(result.text.splitlines()) < 70
    assert result.details["columns"] == ["n", "when"]
    assert len(result.details["data"]) == 100
    assert result.details["data"][0] == [0, "2024-01-01T00:00:00+00:00"]
    assert shown(frame["n"]).details["data"] == list(range(100))
    assert shown({"frame": frame.head(1)}).details["frame"]["data"] == [[0, "2024-01-01T00:00:00+00:00"]]
    ToolResult.model_validate_json(result.model_dump_json())


def test_arrays_and_scalars_become_numbers() -> None:
    np = pytest.importorskip("numpy")
    assert shown(np.float64(1.5)).text == "1.5"
    assert shown({"a": np.arange(3), "b": np.int8(2), "c": np.bool_(True)}).details == {
        "a": [0, 1, 2],
        "b": 2,
        "c": True,
    }
    assert shown(np.array([[1.0, float("nan")]])).details == [[1.0, "NaN"]]


def test_a_result_made_by_the_tool_itself_is_taken_over() -> None:
    mine = ToolResult(tool_call_id="", content="half", status="error", details={"why": "because"})
    result = shown(mine)
    assert (result.tool_call_id, result.name, result.status, result.details) == ("c1", "t", "error", {"why": "because"})


def test_a_cut_states_the_full_size_and_keeps_head_and_tail() -> None:
    text = "".join(f"{i:05d}\n" for i in range(10_000))
    cut = cut_text(text, 1000)
    assert cut.startswith("00000\n")
    assert cut.endswith("09999\n")
    assert "60,000 characters" in cut
    assert cut_text("short", 1000) == "short"
    assert len(cut_text(text, 1)) < 400


def test_the_cap_counts_over_all_text_parts() -> None:
    result = shown(["a" * 600, MediaPart(kind="image", data=b"x"), "b" * 600, "c" * 600], max_chars=1000)
    assert len(result.text) < 1500
    assert [type(p).__name__ for p in result.content] == ["TextPart", "MediaPart", "TextPart"]
    assert result.details == "a" * 600 + "b" * 600 + "c" * 600


def test_lone_surrogates_never_break_the_record() -> None:
    result = shown({"k\udc00": "v\ud83d"})
    result.model_dump_json()
    assert "�" in result.text


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (lambda: map(str, [1, 2]), '["1", "2"]'),
        (lambda: zip([1], ["a"], strict=True), '[[1, "a"]]'),
        (lambda: filter(None, [0, 3]), "[3]"),
        (lambda: (n for n in range(2)), "[0, 1]"),
        (lambda: reversed([1, 2]), "[2, 1]"),
        (lambda: iter({"a": 1}), '["a"]'),
        (lambda: deque([1, 2]), "[1, 2]"),
    ],
)
async def test_what_is_lazy_is_read_where_the_tool_ran(made: Any, text: str) -> None:
    def in_thread() -> Any:
        return made()

    async def in_loop() -> Any:
        return made()

    for fn in (in_thread, in_loop):
        assert (await Tool(fn).call(ToolCall(id="1", name=fn.__name__))).text == text
