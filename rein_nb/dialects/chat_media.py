"""Inline media of the Chat dialects: data URLs, audio formats, generated images and sound."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable

from rein_nb.ir import MediaPart
from rein_nb.ir.base import JSON, Extra

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*?)(;base64)?,", re.I)

AUDIO_FORMATS: dict[str, str] = {
    "wav": "audio/wav",
    "mp3": "audio/mpeg",
    "flac": "audio/flac",
    "opus": "audio/opus",
    "aac": "audio/aac",
    "pcm16": "audio/pcm",
}
"""OpenAI's names for audio formats, with their mime types."""

_FORMAT_OF_MIME = {
    **{mime: name for name, mime in AUDIO_FORMATS.items()},
    "audio/mp3": "mp3",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/x-flac": "flac",
}


def audio_format(mime_type: str | None) -> str:
    """OpenAI's name for an audio mime type; the subtype where it has none, ``wav`` where nothing is known."""
    if not mime_type:
        return "wav"
    plain = mime_type.split(";")[0].strip().lower()
    return _FORMAT_OF_MIME.get(plain, plain.rsplit("/", 1)[-1])


def data_url(part: MediaPart, fallback: str) -> str:
    """Inline media as a data URL; `fallback` is the mime type where none is known."""
    return f"data:{part.mime_type or fallback};base64,{part.base64}"


def decode_base64(pieces: Iterable[str]) -> bytes | None:
    """Bytes of base64 text that came in pieces, each padded by itself or cut anywhere; None where it is not base64."""
    pieces = list(pieces)
    try:
        return b"".join(base64.b64decode(piece, validate=True) for piece in pieces)
    except (binascii.Error, ValueError):
        pass  # the pieces are cuts of one text, not texts of their own
    try:
        return base64.b64decode("".join(pieces), validate=True)
    except (binascii.Error, ValueError):
        return None


def image_from_url(url: JSON, extra: Extra | None = None) -> MediaPart | None:
    """An image from a URL or a data URL; None where it is neither."""
    if not isinstance(url, str) or not url:
        return None
    found = _DATA_URL.match(url)
    if found is None:
        return MediaPart(kind="image", url=url, extra=extra or {})
    data = decode_base64([url[found.end() :]]) if found[3] else None
    if data is None:
        return MediaPart(kind="image", mime_type=found[1] or None, url=url, extra=extra or {})
    return MediaPart(kind="image", mime_type=found[1] or None, data=data, extra=extra or {})
