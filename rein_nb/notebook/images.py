"""Images for a prompt: from a variable (bytes, PIL image, figure, media part) or a file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from rein_nb.ir import MediaPart
from rein_nb.notebook.options import OptionError

_MAGIC = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}


def image_part(value: Any) -> MediaPart:
    """A `MediaPart` from whatever holds an image.

    Raises
    ------
    OptionError
        When it is no image, or the file is not there.
    """
    if isinstance(value, MediaPart):
        return value
    if isinstance(value, bytes | bytearray):
        return _from_bytes(bytes(value), "image")
    if isinstance(value, str) and value.startswith(("http://", "https://")):
        return MediaPart(kind="image", url=value)
    if isinstance(value, str | Path):
        path = Path(value).expanduser()
        if not path.is_file():
            raise OptionError(f"--image: there is neither a variable nor a file {str(value)!r}")
        return _from_bytes(path.read_bytes(), path.name)
    buffer = io.BytesIO()
    if hasattr(value, "savefig"):
        value.savefig(buffer, format="png")
    elif hasattr(value, "save"):
        value.save(buffer, format="PNG")
    else:
        png = getattr(value, "_repr_png_", lambda: None)()
        if not isinstance(png, bytes):
            raise OptionError(
                f"--image: a {type(value).__name__} is no image: give bytes, a figure, a PIL image or a path"
            )
        buffer.write(png)
    return _from_bytes(buffer.getvalue(), "image")


def _from_bytes(data: bytes, name: str) -> MediaPart:
    mime = next((mime for magic, mime in _MAGIC.items() if data.startswith(magic)), None)
    if mime is None:
        raise OptionError(f"--image: {name} is not a PNG, JPEG, GIF or WebP image")
    return MediaPart(kind="image", mime_type=mime, data=data, name=name)
