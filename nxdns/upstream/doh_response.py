"""http.client's response, less forgiving: what is not HTTP/1.1 is refused as soon as it shows.

The library passes over malformed fields, lengths that are none and heads that end too soon, and
then waits for a body that it cannot measure. A browser must live with such servers. A resolver
loses an attempt on each, and its owner reads "Timeout" where the server is at fault.
"""

import http.client
from typing import Any

# A head, and a message in chunks of a few bytes, fit several times over. It ends what comes
# without end (interim responses, chunk extensions, trailers) as fast as we read it, so that no
# timer would ever get its turn.
MAX_RESPONSE_BYTES = 512 * 1024


_INTERIM = 1
_SWITCHING_PROTOCOLS = 101


class MalformedResponse(http.client.HTTPException):
    """What came is no HTTP/1.1 response."""


class StrictResponse(http.client.HTTPResponse):
    """Used in the place of http.client's own."""

    fp: Any

    def begin(self) -> None:
        """Read status line and fields. Raises MalformedResponse, or what the library raises."""
        file = self.fp
        self.fp = _Head(file)
        try:
            super().begin()
            while self.status // 100 == _INTERIM and self.status != _SWITCHING_PROTOCOLS:
                # The library passes over 100 alone; RFC 9110 §15.2 has others, such as 103.
                self.headers = self.msg = None  # type: ignore[assignment]
                super().begin()
        finally:
            if isinstance(self.fp, _Head):
                self.fp = file
        if self.msg.defects or self.msg.get_payload():
            raise MalformedResponse("a line among the fields is none")
        lengths = set(self.msg.get_all("Content-Length", []))
        if len(lengths) > 1 or not all(each.isascii() and each.isdigit() for each in lengths):
            raise MalformedResponse("Content-Length is not one number")

    def _read_next_chunk_size(self) -> int:
        try:
            size: int = super()._read_next_chunk_size()  # type: ignore[misc]  # private, untyped
        except ValueError as exc:
            raise MalformedResponse("a chunk's size is no number") from exc
        # int() takes a sign, and the library then reads to the end of the stream.
        if not 0 <= size <= MAX_RESPONSE_BYTES:
            raise MalformedResponse("a chunk's size is below zero or beyond reason")
        return size


class _Head:
    """The lines of a head; unlike a file, it tells an early end from an empty line."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._lines = 0

    def readline(self, limit: int) -> bytes:
        line: bytes = self._file.readline(limit)
        if not line.endswith(b"\n") and len(line) < limit and (line or self._lines):
            raise MalformedResponse("the head ends too soon")
        self._lines += 1
        return line

    def close(self) -> None:
        self._file.close()
