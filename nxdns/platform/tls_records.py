"""Where the records of a TLS stream end (RFC 8446 §5.1). Pure.

Whoever knows how many have come whole asks OpenSSL so often, and no more: to hear that there is
nothing to read costs as much as to read.
"""

from typing import Final

_HEAD: Final = 5  # octets: type, version and length
_VERSION: Final = 1  # offset of the version's first octet in it, which is 3 from SSL 3.0 to TLS 1.3
_LENGTH: Final = 3  # offset of the length in it
_FIRST_TYPE: Final = 20  # change_cipher_spec
_LAST_TYPE: Final = 24  # heartbeat (RFC 6520)
_LONGEST: Final = 16384 + 2048  # octets (RFC 5246 §6.2.3; TLS 1.3 allows less)


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

        What begins as no record can is one that has ended: OpenSSL has to say what it is.
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
                not _FIRST_TYPE <= ciphertext[end] <= _LAST_TYPE
                or ciphertext[end + _VERSION] != 3
                or length > _LONGEST
            ):
                return ended + 1
            end += _HEAD + length
            if end > size:
                self._left = end - size
                return ended
            ended += 1
        self._left = 0
        self._begun = ciphertext[end:]
        return ended
