"""A stream gives the same messages however it is cut, and they frame to what they were."""

from nxdns.dns.framing import EmptyFrame, Unframer, frame


def target(data: bytes) -> None:
    size = 1 + data[0] if data else 1
    stream = data[1:]
    whole = _messages(stream, max(1, len(stream)))
    assert _messages(stream, size) == whole
    messages, empty, left = whole
    framed = b"".join(map(frame, messages))
    assert stream.startswith(framed)
    rest = stream[len(framed) :]
    if empty:
        assert rest.startswith(b"\0\0")
    else:
        assert left == len(rest)


def _messages(stream: bytes, size: int) -> tuple[list[bytes], bool, int]:
    """Those of ``stream``, fed by ``size`` bytes; whether an empty one ended it; what is left."""
    unframer = Unframer()
    messages = []
    for start in range(0, len(stream), size):
        unframer.feed(stream[start : start + size])
        try:
            while (message := unframer.next_message()) is not None:
                messages.append(message)
        except EmptyFrame:
            return messages, True, 0
    return messages, False, unframer.received
