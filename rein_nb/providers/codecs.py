"""Codecs by dialect name, each loaded when first asked for."""

from __future__ import annotations

import functools
from importlib import import_module

from rein_nb.dialects.base import Codec
from rein_nb.providers.spec import DIALECTS


@functools.cache
def codec_for(dialect: str) -> Codec:
    """The codec of a dialect.

    Raises
    ------
    ValueError
        For an unknown dialect; the message names the known ones.
    """
    if dialect not in DIALECTS:
        raise ValueError(f"unknown dialect {dialect!r}; known: {', '.join(DIALECTS)}")
    module, name = DIALECTS[dialect]
    codec: Codec = getattr(import_module(module), name)()
    return codec
