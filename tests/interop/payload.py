"""What a DUMP payload holds, apart from how its texts are compressed."""


class Payload:
    """Reads the parts of a payload one after the other."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        if self.at + size > len(self.data):
            raise ValueError("the payload ends within a value")
        self.at += size
        return self.data[self.at - size:self.at]

    def length(self):
        """(a number, False), or (the number of a special encoding, True)."""
        first = self.take(1)[0]
        kind = first >> 6
        if kind == 0:
            return first & 63, False
        if kind == 1:
            return (first & 63) << 8 | self.take(1)[0], False
        if kind == 3:
            return first & 63, True
        if first not in (0x80, 0x81):
            raise ValueError("a length begins with byte %d" % first)
        return int.from_bytes(self.take(8 if first == 0x81 else 4), "big"), False

    def number(self):
        value, special = self.length()
        if special:
            raise ValueError("a text where a number is expected")
        return value

    def text(self):
        size, special = self.length()
        if not special:
            return self.take(size)
        if size < 3:  # an integer of 1, 2 or 4 bytes
            return b"%d" % int.from_bytes(self.take(1 << size), "little", signed=True)
        if size != 3:
            raise ValueError("an unknown encoding of a text")
        packed, size = self.number(), self.number()
        text = lzf_expand(self.take(packed))
        if len(text) != size:
            raise ValueError("a compressed text has another size than it says")
        return text


def lzf_expand(packed):
    out, at = bytearray(), 0
    while at < len(packed):
        control = packed[at]
        at += 1
        if control < 32:
            out += packed[at:at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += packed[at]
            at += 1
        back = ((control & 31) << 8 | packed[at]) + 1
        at += 1
        for _ in range(length + 2):
            out.append(out[-back])
    return bytes(out)


def stream_content(payload):
    """Everything in the payload of a stream, in the order of the format, without the version and checksum at its
    end."""
    p = Payload(payload[:-10])
    content = [p.take(1)]
    for _ in range(p.number()):
        content.append((p.text(), p.text()))
    content.append([p.number() for _ in range(8)])
    for _ in range(p.number()):
        group = [p.text(), p.number(), p.number(), p.number()]
        group.append([(p.take(16), p.take(8), p.number()) for _ in range(p.number())])
        for _ in range(p.number()):
            group.append((p.text(), p.take(16), [p.take(16) for _ in range(p.number())]))
        content.append(group)
    if p.at != len(p.data):
        raise ValueError("%d bytes behind the value" % (len(p.data) - p.at))
    return content
