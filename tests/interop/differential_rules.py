"""What must be the same in the answers of two servers: nearly always all of it. Where an answer is in the order of a
hash table, or of chance, the rest."""
from differential_servers import parse_all

# In groups of this many elements; "SCAN": behind a cursor.
UNORDERED = {"SMEMBERS": 1, "SINTER": 1, "SUNION": 1, "SDIFF": 1, "SPOP": 1, "SRANDMEMBER": 1, "HKEYS": 1, "HVALS": 1,
             "HGETALL": 2, "HRANDFIELD": 1,
             "ZRANDMEMBER": 1, "SSCAN": 1, "HSCAN": 2, "ZSCAN": 2, "SCAN": 1, "KEYS": 1, "PUBSUB": 1}


CORRUPT = b"INVALIDOBJ Corrupted HLL object detected"


class Undefined(Exception):
    """What happens from here on is each server's own; see README.md."""


def text(word):
    return word.decode("latin-1") if isinstance(word, bytes) else str(word)


def plain_zero(reply):
    if isinstance(reply, (list, tuple)):
        return type(reply)(map(plain_zero, reply))
    return b"0" if reply == b"-0" else reply


def unordered(name, words, reply):
    if not isinstance(reply, list):
        return reply
    group = UNORDERED[name]
    if name.endswith("SCAN") and len(reply) == 2:
        reply = reply[1][1]
        group = 1 if any(text(word).upper() in ("NOVALUES", "NOSCORES") for word in words) else group
    elif name.endswith(("FIELD", "MEMBER")) and any(text(word).upper().startswith("WITH")
                                                    for word in words) and not (reply
                                                                                and isinstance(reply[0][1], list)):
        group = 2
    return sorted(repr(reply[i:i + group]) for i in range(0, len(reply), group))


def same_reply(words, ours, genuine):
    if ours == genuine:
        return True
    if not isinstance(words, list):
        return False
    name = text(words[0]).upper()
    argument = text(words[1]).upper() if len(words) > 1 else ""
    # these keys nobody damages
    if name.startswith("PF") and CORRUPT in (ours[1], genuine[1]) and not argument.startswith("HLL"):
        raise Undefined
    if ours[0] != genuine[0]:
        return False
    if name == "OBJECT" and argument == "ENCODING" and text(words[2]).startswith("s"):  # see SORT in README.md
        return {ours[1], genuine[1]} == {b"listpack", b"skiplist"}
    if name == "OBJECT" and argument == "ENCODING" and {ours[1], genuine[1]} == {b"embstr", b"raw"}:  # see README.md
        return True
    if name.startswith("Z"):  # a listpack has no minus zero; when one becomes a table differs on the way
        ours, genuine = plain_zero(ours), plain_zero(genuine)
        if ours == genuine:
            return True
    if name in UNORDERED and ours[1] is not None and (name != "PUBSUB" or argument.endswith("CHANNELS")):
        return unordered(name, words, ours[1]) == unordered(name, words, genuine[1])
    if name == "HELLO":  # but for the version, the connection's number and the modules
        return [item for i, item in enumerate(ours[1]) if i not in (3, 7,
                                                                    13)] == [item for i, item in enumerate(genuine[1])
                                                                             if i not in (3, 7, 13)]
    if name == "RANDOMKEY":
        return (ours[1] is None) == (genuine[1] is None)
    if name == "MEMORY" and argument == "USAGE":
        return True  # but for the kind
    if name == "OBJECT" and argument == "REFCOUNT":
        return True  # small numbers are shared by some versions
    return False


def same_transaction(queued, ours, genuine):
    """What EXEC answers, command by command."""
    if ours[0] != genuine[0] or not isinstance(ours[1], list) or not isinstance(genuine[1], list):
        return ours == genuine
    return len(ours[1]) == len(genuine[1]) and all(same_reply(words, a, b) for words, a,
                                                   b in zip(queued, ours[1], genuine[1]))


def named(steps, *names):
    return any(isinstance(words, list) and text(words[0]).upper() in names for _, words in steps)


def settled(items, moves):
    """Items with those in a row that may stand in any order in one order."""
    out, row = [], []
    for item in items:
        if moves(item):
            row.append(item)
            continue
        out += sorted(row) + [item]
        row = []
    return out + sorted(row)


def without_copied_fields(commands):
    """Commands without the HDEL of expired fields that COPY leaves out, and without MULTI and EXEC if only COPY is left
    between them: the genuine server sends COPY alone, and its replicas copy these fields."""
    out, begun, copy, deleted = [], None, None, False
    for words in commands:
        if words[0] == b"HDEL" and copy and words[1] == copy[2]:
            deleted = True
            continue
        if words[0] != b"SELECT":
            copy = words if words[0] == b"COPY" else None
        if words[0] == b"MULTI":
            begun, deleted = len(out), False
        if words[0] == b"EXEC" and begun is not None and deleted:
            inside = out[begun + 1:]
            if [command[0] for command in inside if command[0] != b"SELECT"] == [b"COPY"]:
                out[begun:] = inside
                continue
        out.append(words)
    return out


READS_GROUPS = ("XREADGROUP", "XCLAIM", "XAUTOCLAIM")
STORES = {b"SORT": b"RPUSH", b"GEOSEARCHSTORE": b"ZADD", b"GEORADIUS": b"ZADD", b"GEORADIUSBYMEMBER": b"ZADD"}


def is_added(words):
    """Only our server propagates deliveries of pending entries, consumers without entries, and what PFADD changed
    before it failed."""
    return words[0] == b"XCLAIM" or words[:2] == [b"XGROUP", b"CREATECONSUMER"] or \
        words[:1] + words[3:] == [b"SET", b"KEEPTTL"]


def same_with_additions(ours, genuine):
    """The commands without MULTI, EXEC and SELECT. Ours may have is_added(), or the stored result of SORT or GEO."""
    ours, genuine = ([words for words in commands if words[0] not in (b"MULTI", b"EXEC", b"SELECT")]
                     for commands in (ours, genuine))
    while ours or genuine:
        if ours and genuine and ours[0] == genuine[0]:
            del ours[0], genuine[0]
        elif genuine and genuine[0][0] in STORES and ours and ours[0][0] == b"DEL" and ours[0][1] in genuine[0]:
            added = [STORES[genuine[0][0]], ours[0][1]]
            del ours[0], genuine[0]
            while ours and ours[0][:2] == added:
                del ours[0]
        elif ours and is_added(ours[0]):
            del ours[0]
        else:
            return False
    return True


SHORTENED = (b"HDEL", b"HPERSIST", b"HPEXPIREAT", b"HGETDEL", b"MSETEX")


def same_but_shorter(ours, genuine):
    """Ours may name fewer fields: the genuine server repeats those that had expired too, and its replicas revive them.
    Of MSETEX ours may leave out an option that a later one replaces."""
    if len(ours) != len(genuine):
        return False
    for a, b in zip(ours, genuine):
        if a == b:
            continue
        at = a.index(b"FIELDS") + 1 if b"FIELDS" in a else 2
        if a[0] not in SHORTENED or a[:at] != b[:at]:
            return False
        at += b"FIELDS" in a  # their number
        rest = iter(b[at:])
        if not all(word in rest for word in a[at:]):
            return False
    return True


def same_stream(steps, ours, genuine):
    """Words of the protocol may differ in their case. What SCAN finds expired goes in the order of a hash table."""
    scans, copies = named(steps, "SCAN"), named(steps, "COPY")
    def plain(commands):
        plain = [[word.upper() for _, word in words] for kind, words in commands]
        if copies:
            plain = without_copied_fields(plain)
        return settled(plain, lambda words: words[0] == b"UNLINK") if scans else plain
    if plain(ours) == plain(genuine) or same_but_shorter(plain(ours), plain(genuine)):
        return True
    return named(steps, *READS_GROUPS, "PFADD", *(name.decode() for name in STORES)) and \
        same_with_additions(plain(ours), plain(genuine))


def same_events(steps, ours, genuine):
    """SCAN deletes expired keys in the order of a hash table. SORT looks up keys for the members of a set in such an
    order, and missing keys cause events."""
    if not named(steps, "SCAN", "SORT", "SORT_RO"):
        return ours == genuine
    def split(events):
        events = [(event[1][-2][1], event[1][-1][1]) for event in events]
        missed = [event for event in events if event[0].endswith(b":keymiss") or event[1] == b"keymiss"]
        return sorted(missed), settled([event for event in events if event not in missed],
                                       lambda event: event[0].endswith(b":expired") or event[1] == b"expired")
    return split(ours) == split(genuine)


def opened(replies):
    """Arrays of arrays as their elements behind their number: the first channel that a client leaves in a transaction
    is in the array of EXEC, the others are behind it."""
    for kind, value in replies:
        if kind == "*" and value and any(inner in "*>" for inner, _ in value):
            yield ("*", [("#", len(value))])
            yield from opened(value)
        else:
            yield (kind, value)


def same_said(ours, genuine):
    """A message to several patterns of a client comes in the order of a hash table, and so leaves a client all its
    channels. That all keys are invalid is told another client with the null of its own protocol; see README.md."""
    if b"<closed>" in ours + genuine:
        return False
    def plain(said):
        items, leaving = [], (b"unsubscribe", b"punsubscribe", b"sunsubscribe")
        for item in opened(parse_all(said)):
            ends_with_null = item[0] in "*>" and len(item[1] or ()) > 1 and item[1][-1] in (("_", b""), ("$", None))
            if ends_with_null and item[1][-2][1] in (b"invalidate", b"__redis__:invalidate"):
                item = (item[0], item[1][:-1] + ["null"])
                items.append((b"", repr(item)))
                continue
            words = [word for _, word in item[1]] if item[0] in "*>" and item[1] else [None]
            items.append((words[0], words[1] or b"") if words[0] in leaving else (words[0], repr(item)))
        return settled(items, lambda item: item[0] == b"pmessage" or item[0] in leaving)
    return plain(ours) == plain(genuine)
