"""Pieces of the output of tasks, as answers of the API."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from volery.live.node.output import blocks, piece_from, piece_in
from volery.live.status import LOG_OFFSET

MEDIA_TYPE = "application/octet-stream"


def output_answer(file: int, offset: int, wanted: str | None, headers: Mapping[str, str]) -> Response:
    """A piece of an output.

    Args:
        file: its descriptor, which is closed when the answer has been sent.
        offset: where the piece begins, at the earliest; what was dropped is passed over.
        wanted: the header Range, which goes before the offset.
        headers: further ones of the answer.
    """
    piece, status = piece_from(file, offset), 200
    if wanted is not None:
        # One that is no single range of bytes is as if it were not there (RFC 9110, 14.2).
        with suppress(ValueError):
            found = piece_in(file, wanted)
            if found is None:
                os.close(file)
                return Response(status_code=416, headers={**headers, "content-range": f"bytes */{piece.size}"})
            piece, status = found, 206
            headers = {**headers, "content-range": f"bytes {piece.start}-{piece.end - 1}/{piece.size}"}
    headers = {**headers, "accept-ranges": "bytes", LOG_OFFSET: str(piece.start)}
    return StreamingResponse(blocks(file, piece.start, piece.end), status, headers, media_type=MEDIA_TYPE)
