"""Where the records of a TLS stream end (RFC 8446 §5.1). Pure.

Whoever knows how many have come whole asks OpenSSL so often, and no more: to hear that there is
nothing to read costs as much as to read.
"""

from typing import Final

_HEAD: Final = 5  # octets: type, version and length
_LENGTH: Final = 3  # offset of the length in it
_APPLICATION_DATA: Final = 23
_MAJOR: Final = 3  # of the version, which is 3.3 for TLS 1.2, and for TLS 1.3 to those in between
_MINOR: Final = 3
_LONGEST: Final = 16384 + 256  # octets (RFC 8446 §5.2)


class TlsRecords:
    """Counts the records of one stream in one direction."""

    __slots__ = ("_begun", "_left")

    def __init__(self) -> None:
        #: Octets of the record under way that are still to come.
        self._left = 0
        #: The head of a record, as far as it has come.
        self._begun = b""

    def ended_in(self, ciphertext: bytes) -> int:
        """How many records end in ``ciphertext``, the next piece of the stream.

        One whose head is not that of data counts once more, as soon as the head has come: OpenSSL
        may know already that it is wrong.
        """
        if self._begun:
            ciphertext = self._begun + ciphertext
            self._begun = b""
        size = len(ciphertext)
        end = self._left
        if end > size:
            self._left = end - size
            return 0
        ended = 1 if end else 0
        while size - end >= _HEAD:
            length = ciphertext[end + _LENGTH] << 8 | ciphertext[end + _LENGTH + 1]
            if (
                ciphertext[end] != _APPLICATION_DATA
                or ciphertext[end + 1] != _MAJOR
                or ciphertext[end + 2] != _MINOR
                or length > _LONGEST
            ):
                ended += 1
            end += _HEAD + length
            if end > size:
                self._left = end - size
                return ended
            ended += 1
        self._left = 0
        self._begun = ciphertext[end:]
        return ended
