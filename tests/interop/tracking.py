"""Client-side caching: the same commands of several clients to our server and to a genuine one; each client must be
sent the same bytes.

After each step the server has answered two PINGs of another connection, so all that follows from the step has been
written. Then each client takes what has arrived. Numbers of clients, versions and lists of modules are left out.
differential-commands --family tracking does the same with random commands.
"""
import re
import select
import socket
import sys
import time

from common import Client, Report, Server, newest_server, ours

HELLO = re.compile(rb"(version\r\n\$\d+\r\n)[0-9.]+|(modules\r\n)(?:\*0\r\n|\*1\r\n.*?args\r\n\*0\r\n)", re.S)

# A line is "client: command | command …", sent in one piece; {b} is the id of client b. "close b", "sleep SECONDS".
SCENARIOS = {
    "default mode": r"""
        a: HELLO 3 | CLIENT TRACKING on
        a: GET k
        w: SET k 1
        w: SET k 2
        a: GET k | SET k 3 | GET k | PING
        a: SET k 4 | GET k
        a: MULTI | GET k | SET k 5 | SET k 6 | GET k | EXEC | PING
        w: SET k 7
        a: MGET a b c d
        w: MSET c 1 b 2 a 3 d 4
        a: MGET a b c d | MSET a 1 b 2 | PING
        w: DEL d c b a
        w: SET a 1 | SET b 2
        a: MGET a b
        w: RENAME a b
        a: MGET a b
        w: COPY b a
        a: MGET a b
        w: MOVE b 1
        a: GET zz
        w: SELECT 1 | SET zz 1 | SELECT 0
        a: GET k | MULTI | GET k
        w: SET k 8
        a: EXEC
        a: CLIENT REPLY skip | SET k 1 | PING
        a: CLIENT REPLY off | GET k
        w: SET k 2
        a: CLIENT REPLY on
        a: HELLO 2 | GET k
        w: SET k 3
        a: GET k | HELLO 3
        w: SET k 4
        """,
    "on, off and other modes": r"""
        a: HELLO 3 | CLIENT TRACKING on
        a: GET k | CLIENT TRACKING off | CLIENT TRACKING on
        w: SET k 8
        a: GET k | CLIENT TRACKING off
        w: SET k 9
        a: CLIENT TRACKING on
        w: SET k 10
        a: GET k | CLIENT TRACKING off | CLIENT TRACKING on BCAST PREFIX q
        w: SET k 11
        a: CLIENT TRACKING off | CLIENT TRACKING on
        w: SET k 12
        a: GET k | RESET | HELLO 3
        w: SET k 13
        a: CLIENT TRACKING on
        w: SET k 14
        """,
    "what is a read": r"""
        a: HELLO 3 | CLIENT TRACKING on
        a: TTL e | EXISTS e | TYPE e | OBJECT ENCODING e | STRLEN e
        w: SET e 5
        a: TOUCH e
        w: SET e 5
        a: GETEX e EX 100
        w: SET e 5
        a: SCAN 0 COUNT 100 | KEYS e
        w: SET e 5
        a: SORT_RO lst
        w: RPUSH lst 3 1 2
        a: SORT lst
        w: RPUSH lst 4
        a: SORT_RO lst BY w_* GET d_*
        w: SET w_1 1 | SET d_1 1 | RPUSH lst 5
        a: LCS e k
        w: SET k 1
        a: XREAD STREAMS s 0
        w: XADD s 1-1 a b
        a: GET lst | GET | WATCH lst | UNWATCH | SUBSCRIBE lst | UNSUBSCRIBE lst
        w: RPUSH lst 3
        a: ZUNION 2 z1 z2
        w: ZADD z2 1 a
        a: BITFIELD bf GET u8 0
        w: SETBIT bf 1 1
        a: BITFIELD_RO bf GET u8 0
        w: SETBIT bf 1 1
        w: SETBIT bf 1 0
        a: PFCOUNT hll
        w: PFADD hll a
        a: PFCOUNT hll
        w: PFADD hll a
        w: PFADD hll b
        a: MGET k k k | GET k
        w: SET k 1
        a: OBJECT FREQ k
        w: SET k 1
        """,
    "scripts": r"""
        a: HELLO 3 | CLIENT TRACKING on
        a: EVAL redis.call('get','s1') 1 declared
        w: SET s1 1 | SET declared 1
        a: EVAL_RO redis.call('get','s1') 1 declared
        w: SET s1 1 | SET declared 1
        a: EVAL redis.call('get','s1')redis.call('set','s1','x')redis.call('get','s1') 0
        w: SET s1 1
        a: GET s1 | GET s2
        w: EVAL redis.call('set','s2','x')redis.call('set','s1','x') 0
        a: GET s1 | EVAL redis.call('flushall')redis.call('set','s1','x') 0
        a: CLIENT TRACKING on NOLOOP
        a: GET s1 | EVAL redis.call('set','s1','x') 0
        w: SET s1 1
        """,
    "messages and changes of its own": r"""
        w: CONFIG SET notify-keyspace-events KEA
        a: HELLO 3 | CLIENT TRACKING on | SUBSCRIBE __keyevent@0__:set ch
        a: GET k | SET k 1 | PING
        a: GET k | GET j | MULTI | SET k 1 | PUBLISH ch x | SET j 1 | GET k | EXEC | PING
        a: GET k | EVAL redis.call('set','k',1);redis.call('publish','ch','y');redis.call('set','j',1) 0 | PING
        a: GET k | GET j | MSET k 1 j 2 | PING
        a: GET k | MULTI | FLUSHALL | SET k 1 | EXEC | PING
        a: GET k | MULTI | SET k 2 | CLIENT TRACKING off | EXEC | PING
        a: CLIENT TRACKING on | GET k | MULTI | SET k 2 | RESET
        a: HELLO 3 | CLIENT TRACKING on | SUBSCRIBE __keyevent@0__:set ch | GET k
        w: MULTI | SET k 2 | PUBLISH ch 2 | EXEC
        b: HELLO 3 | SUBSCRIBE __keyevent@0__:set ch
        c: CLIENT TRACKING on REDIRECT {b}
        c: GET k
        c: SET k 3 | PING
        c: GET k | GET j
        b: MULTI | SET k 3 | SET j 3 | PUBLISH ch 5 | EXEC | PING
        a: GET k | BLPOP list 0
        w: MULTI | RPUSH list a | SET k 1 | PUBLISH ch z | EXEC
        w: CONFIG SET notify-keyspace-events ""
        """,
    "all keys": r"""
        a: HELLO 3 | CLIENT TRACKING on
        b: HELLO 3 | CLIENT TRACKING on BCAST
        c: CLIENT TRACKING on
        a: GET k
        w: FLUSHALL
        w: FLUSHALL ASYNC
        w: FLUSHDB
        a: GET k | FLUSHALL | GET k
        a: GET k1 | GET k2 | MULTI | SET k1 1 | FLUSHALL | SET k2 1 | EXEC
        w: SET k2 1
        w: SET x 1 | SWAPDB 0 1
        a: GET k2
        w: SWAPDB 0 1
        w: SET k2 2
        a: GET k2 | DEBUG RELOAD | PING
        """,
    "expiry": r"""
        w: DEBUG SET-ACTIVE-EXPIRE 0
        a: HELLO 3 | CLIENT TRACKING on
        a: MULTI | SET e 1 PX 20 | GET e | EXEC
        sleep 0.05
        a: GET e | PING
        w: SET e 1
        a: MULTI | SET e 1 PX 20 | GET e | EXEC
        sleep 0.05
        w: GET e
        w: SET e 1
        a: MULTI | SET e 1 PX 20 | GET e | EXEC
        sleep 0.05
        w: DEL e
        a: MULTI | SET e 1 PX 20 | GET e | EXEC
        sleep 0.05
        a: MULTI | GET e | GET e | EXEC
        w: SET e 1
        a: CLIENT TRACKING on NOLOOP
        a: MULTI | SET e 1 PX 20 | GET e | EXEC
        sleep 0.05
        a: GET e
        w: SET e 1
        a: CLIENT TRACKING on | GET e
        w: EXPIRE e 100
        a: GET e
        w: EXPIRE e 200 XX
        a: GET e
        w: PERSIST e
        a: GET e
        w: EXPIRE e -1
        a: CLIENT TRACKING off | CLIENT TRACKING on BCAST NOLOOP
        a: SET e 1 PX 1
        sleep 0.05
        a: GET e | PING
        a: SET e 1 PX 1
        sleep 0.05
        a: DEL e | PING
        a: SET e 1 PX 1
        sleep 0.05
        a: SET e 2 | PING
        w: DEBUG SET-ACTIVE-EXPIRE 1
        """,
    "blocking": r"""
        a: HELLO 3 | CLIENT TRACKING on
        a: LRANGE l 0 -1 | BLPOP l 0
        w: RPUSH l a b
        w: RPUSH l c
        a: XREAD BLOCK 0 STREAMS st $
        w: XADD st 1-1 a b
        w: XADD st 1-2 a b
        w: XADD st 1-3 a b
        a: GET b1 | GET s1 | BLPOP b1 0
        w: MULTI | RPUSH b1 x | SET s1 1 | EXEC
        """,
    "OPTIN and OPTOUT": r"""
        a: HELLO 3 | CLIENT TRACKING on OPTIN
        a: GET o
        w: SET o 1
        a: CLIENT CACHING yes | GET o | GET o2
        w: MSET o 1 o2 2
        a: CLIENT CACHING yes | PING | GET o
        w: MSET o 1 o2 2
        a: CLIENT CACHING yes | CLIENT TRACKINGINFO | GET o | CLIENT TRACKINGINFO
        w: MSET o 1 o2 2
        a: CLIENT CACHING yes | NOSUCH | GET o
        a: CLIENT CACHING yes | GET | GET o
        a: CLIENT CACHING yes | CLIENT NOSUCH | GET o
        a: CLIENT CACHING yes | CLIENT | GET o
        a: CLIENT CACHING yes | WATCH x | GET o
        a: CLIENT CACHING yes | MULTI | DISCARD | GET o
        w: MSET o 1 o2 2
        a: CLIENT CACHING yes | CLIENT TRACKING on OPTIN | GET o
        w: MSET o 1 o2 2
        a: CLIENT CACHING yes | CLIENT CACHING no | GET o
        w: MSET o 1 o2 2
        a: UNWATCH
        a: CLIENT CACHING yes | MULTI | GET o | GET o2 | EXEC | GET o3
        w: MSET o 1 o2 2 o3 3
        a: MULTI | GET o | CLIENT CACHING yes | GET o2 | GET o3 | EXEC | GET o4
        w: MSET o 1 o2 2 o3 3 o4 4
        a: CLIENT CACHING yes | EVAL redis.call('get','o')redis.call('get','o2') 0 | GET o3
        w: MSET o 1 o2 2 o3 3 o4 4
        a: CLIENT CACHING yes | XREAD BLOCK 0 STREAMS ss $
        w: XADD ss 1-1 a b
        w: XADD ss 1-2 a b
        a: CLIENT TRACKING off | CLIENT TRACKING on OPTOUT
        a: GET o
        w: SET o 1
        a: CLIENT CACHING no | GET o | GET o2
        w: MSET o 1 o2 2
        a: CLIENT CACHING no | CLIENT TRACKING off | CLIENT TRACKING on OPTOUT | GET o
        w: MSET o 1 o2 2
        """,
    "NOLOOP": r"""
        a: HELLO 3 | CLIENT TRACKING on NOLOOP
        a: GET s1 | SET s1 1
        w: SET s1 1
        a: GET s1
        w: SET s1 2
        a: GET s1 | MULTI | SET s1 1 | EXEC
        w: SET s1 1
        a: GET s1 | FLUSHALL
        """,
    "BCAST": r"""
        a: HELLO 3 | CLIENT TRACKING on BCAST PREFIX p: PREFIX q
        w: MSET p:1 1 q 2 x 1 p:1 2 p:0 1
        w: FLUSHALL
        a: MULTI | SET p:1 1 | PING | GET p:1 | SET p:2 2 | SET q 3 | EXEC
        a: CLIENT TRACKING on BCAST NOLOOP
        a: SET p:1 1
        w: SET p:1 1
        b: HELLO 3 | CLIENT TRACKING on BCAST NOLOOP PREFIX p:1 PREFIX p:2
        b: MSET p:12 1 p:2 2 p:3 3
        w: MSET p:12 1 p:2 2 p:3 3
        w: MULTI | SET p:1 1 | FLUSHALL | SET p:2 1 | EXEC
        a: MULTI | SET p:1 1 | FLUSHALL | SET p:2 1 | EXEC
        w: EVAL redis.call('set','p:1','x')redis.call('del','p:1')redis.call('set','p:z',1) 0
        a: EVAL redis.call('set','p:1','x')redis.call('del','p:1')redis.call('set','p:z',1) 0
        a: MULTI | SET p:1 1 | CLIENT TRACKING off | EXEC | PING
        w: SET p:1 1
        """,
    "redirection": r"""
        r: PING
        b: CLIENT TRACKING on REDIRECT {r}
        b: GET q
        w: SET q 1
        r: SUBSCRIBE other
        b: GET q | GET q2
        w: SET q 1
        w: SET q2 1
        b: GET q | SET q 1 | PING
        w: FLUSHALL
        c: CLIENT TRACKING on BCAST PREFIX q REDIRECT {r}
        w: MSET q1 1 q2 2
        c: SET q1 1
        r: RESET | HELLO 3
        b: GET q
        w: SET q 1
        b: GET q
        r: SET q 1 | PING
        b: GET q
        r: MULTI | SET q 1 | PING | EXEC
        a: HELLO 3 | CLIENT TRACKING on REDIRECT {r}
        a: GET q | CLIENT TRACKINGINFO
        close r
        w: SET q 1
        b: CLIENT TRACKINGINFO
        a: CLIENT TRACKINGINFO
        a: GET q | SET q 2 | GET q
        w: SET q 3
        w: FLUSHALL
        a: CLIENT TRACKING on REDIRECT {a} | GET q | SET q 1
        a: CLIENT TRACKING on | CLIENT TRACKINGINFO | GET q | SET q 1
        b: CLIENT TRACKING off | SUBSCRIBE x
        """,
    "errors": r"""
        z: PING
        a: CLIENT TRACKING | CLIENT TRACKING foo | CLIENT TRACKING on foo | CLIENT TRACKING off foo | CLIENT CACHING
        a: CLIENT CACHING yes
        a: CLIENT TRACKING on PREFIX a | CLIENT TRACKING on BCAST OPTIN | CLIENT TRACKING on OPTIN OPTOUT
        a: CLIENT TRACKING on PREFIX
        a: CLIENT TRACKING on REDIRECT 99999999 | CLIENT TRACKING on REDIRECT abc | CLIENT TRACKING on REDIRECT -5
        a: CLIENT TRACKING on REDIRECT
        a: CLIENT TRACKING on REDIRECT {z} REDIRECT {z} | CLIENT TRACKING off REDIRECT {z} REDIRECT 2
        a: CLIENT TRACKING off REDIRECT 0
        a: CLIENT TRACKING on BCAST PREFIX a PREFIX ab | CLIENT TRACKING on BCAST PREFIX ab PREFIX a
        a: CLIENT TRACKING on BCAST PREFIX a PREFIX a
        a: CLIENT TRACKING on BCAST PREFIX x PREFIX abc PREFIX abd PREFIX ab PREFIX q PREFIX a
        a: CLIENT TRACKING on BCAST PREFIX foo | CLIENT TRACKING on BCAST PREFIX foobar
        a: CLIENT TRACKING on BCAST PREFIX fo | CLIENT TRACKING on BCAST PREFIX foo
        a: CLIENT TRACKING on BCAST PREFIX x PREFIX xy PREFIX foobar
        a: CLIENT TRACKING on BCAST PREFIX foobar PREFIX x PREFIX xy
        a: CLIENT TRACKING on BCAST PREFIX foa PREFIX fob PREFIX foc | CLIENT TRACKING on BCAST PREFIX f
        a: CLIENT TRACKING on BCAST | CLIENT TRACKINGINFO
        a: CLIENT TRACKING on BCAST PREFIX z | CLIENT TRACKING on | CLIENT TRACKING on BCAST NOLOOP
        a: CLIENT TRACKINGINFO | CLIENT TRACKING off BCAST
        a: CLIENT TRACKING on | CLIENT CACHING yes | CLIENT CACHING no | CLIENT CACHING foo | CLIENT TRACKING on BCAST
        a: CLIENT TRACKING on OPTIN | CLIENT TRACKING on OPTOUT | CLIENT CACHING no | CLIENT CACHING yes
        a: CLIENT TRACKINGINFO | CLIENT TRACKING on | CLIENT TRACKING on OPTOUT
        a: CLIENT CACHING yes | CLIENT CACHING no | CLIENT TRACKINGINFO | CLIENT TRACKING on NOLOOP OPTOUT NOLOOP
        a: CLIENT TRACKINGINFO | CLIENT GETREDIR x
        """,
}


class Conversation:
    """The clients of one server."""

    def __init__(self, server):
        self.server, self.clients, self.ids = server, {}, {}
        self.control = Client(server.port)
        self.control.call("FLUSHALL")

    def client(self, name):
        if name not in self.clients:
            probe = Client(self.server.port)
            self.ids[name] = probe.call("CLIENT", "ID")
            self.clients[name] = probe.socket
        return self.clients[name]

    def step(self, line):
        """What each client is sent for it."""
        if line.startswith("sleep "):
            time.sleep(float(line.split()[1]))
        elif line.startswith("close "):
            name = line.split()[1]
            self.clients.pop(name).close()
            end = time.time() + 20
            while self.control.call("CLIENT", "LIST", "ID", self.ids[name]) and time.time() < end:
                time.sleep(0.01)
        else:
            name, _, commands = line.partition(": ")
            self.client(name)
            words = [[re.sub(r"\{(\w)\}", lambda m: str(self.ids[m[1]]) if m[1] in self.ids else m[0],
                             word) for word in command.split()]
                     for command in commands.split(" | ")]
            self.clients[name].sendall(b"".join(Client.encode(*command) for command in words))
        return self.arrived()

    def arrived(self):
        for _ in range(3):
            self.control.call("PING")
        said = {}
        for name, connection in self.clients.items():
            data = b""
            while select.select([connection], [], [], 0)[0]:
                more = connection.recv(1 << 20)
                if not more:
                    data += b"<closed>"
                    break
                data += more
            for other, number in self.ids.items():
                data = re.sub(rb"(redirect\r\n:|broken\r\n:|\$2\r\nid\r\n:)%d\r" % number, rb"\1@%s\r" % other.encode(),
                              data)
            said[name] = HELLO.sub(lambda m: (m[1] or m[2]) + b"?", data)
        return said

    def close(self):
        for connection in [*self.clients.values(), self.control]:
            connection.close()


def same(mine, theirs):
    """But for the null of the receiver's protocol in place of the sender's."""
    plain = lambda data: re.sub(rb"(invalidate\r\n)(?:_|\$-1)\r\n", rb"\1null", data)
    return {name: plain(data) for name, data in mine.items()} == {name: plain(data) for name, data in theirs.items()}


def main():
    report = Report()
    genuine, reason = newest_server()
    if not genuine:
        report.missing("client-side caching", reason)
        report.finish()
    arguments = ["--enable-debug-command", "yes"]
    with Server(ours(), *arguments) as mine, Server(genuine, *arguments) as theirs:
        for title, text in SCENARIOS.items():
            sides = [Conversation(server) for server in (mine, theirs)]
            difference = ""
            for line in filter(None, map(str.strip, text.splitlines())):
                said = [side.step(line) for side in sides]
                if not same(*said):
                    difference = "%s\n  ours:    %r\n  genuine: %r" % (line, *said)
                    break
            report.check(title, not difference, difference)
            for side in sides:
                side.close()
    report.finish()


if __name__ == "__main__":
    try:
        main()
    except (OSError, socket.timeout, ValueError) as error:
        print("[failed] %r" % error)
        sys.exit("0 passed, 1 failed")
