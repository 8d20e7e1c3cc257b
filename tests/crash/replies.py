"""replies.py: checks that each request gets its reply, in order and in time, in any situation of the server.

    tests/crash/replies [ROUNDS] [--seed N] [--verbose]     random rounds
    tests/crash/replies --pairs [--row N]                   each pair of the values in FACTORS at least once

A round starts a server with the options, the transport and the replica of its factors. Clients send pipelines of
mixed commands on their own keys, so each client knows every reply. Meanwhile the round creates its situation:
scripts become busy, debugging sessions run and lose their clients, the server loads a file or synchronizes. A random
round combines several situations, kills clients, and changes options at run time.

Conditions: a reply is the expected one, or an error that the situation explains (BUSY, LOADING …), and arrives within
WAIT seconds; a connection is closed only if the round closes connections; apart from pushes, no unrequested reply
arrives; each client gets replies, at the latest when the round has ended its situation. At the end the clients finish
their last pipelines, no client remains in CLIENT LIST, a replica has the same DEBUG DIGEST, and so has the server
after a restart from its append-only file; it exits with status 0, and no sanitizer reports an error.

A seed determines the commands; their interleaving in the server depends on the machine. The last line is "N passed,
N failed" (rounds)."""
import argparse, itertools, os, random, socket, subprocess, sys, tempfile, threading, time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))
import servers  # noqa: E402
from resp import Client, Closed, Error, Map, Push, request  # noqa: E402
from servers import ROOT, Server, ours, rdma_device, until, wait_for  # noqa: E402

CLIENTS, WAIT, PAIR_SECONDS, ROUND_SECONDS = 4, 40, 0.7, 2.5
FACTORS = {
    "situation": ["busy", "busy-writes", "session-sync", "session-forked", "load-rdb", "load-aof", "reload",
                  "full-sync", "full-sync-swapdb"],
    "file": ["no", "always", "everysec"],
    "threads": ["1", "3"],
    "pushes": ["none", "tracking", "messages", "monitor"],
    "replica": ["no", "yes"],
    "clients": ["pipelines", "large", "leaving"],
    "limit": ["none", "output", "clients", "eviction"],
    "transport": ["tcp", "unix", "tls", "rdma"],
}
EXPLAINED = ("BUSY", "LOADING", "OOM", "MISCONF", "READONLY", "MASTERDOWN", "EXECABORT", "NOREPLICAS",
             "UNKILLABLE", "NOTBUSY", "ERR DISCARD without MULTI", "ERR EXEC without MULTI")
FILL = "for i = 1, 400 do server.call('set', 'filler' .. i, string.rep('x', 500)) end"
SPIN = "local t = 0 while t < tonumber(ARGV[1]) do t = t + 1 end "  # 100,000 iterations take about a millisecond


class Wrong(AssertionError):
    pass


class Peer(Client):
    """A client over any transport. Other transports than Unix sockets use a proxy on a TCP port."""

    def __init__(self, address, timeout=WAIT):
        family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.settimeout(timeout)
        self.socket.connect(address if isinstance(address, str) else ("127.0.0.1", address))
        self.file = self.socket.makefile("rb")

    def reply(self):
        """The next reply that is not a push."""
        while True:
            got = self.read()
            if not isinstance(got, Push):
                return got

    def ask(self, *words):
        self.send_raw(request(*words))
        return self.reply()


# --- Clients that check


class Checker(threading.Thread):
    """One client. `values` has the expected values of its keys, None for a missing key; other keys are unknown."""

    def __init__(self, run, index):
        super().__init__(daemon=True)
        self.run_, self.index, self.rng = run, index, random.Random(f"{run.seed}.{index}")
        self.values, self.epoch, self.replies, self.connections, self.problem = {}, 0, 0, 0, None
        self.last = ""

    def key(self):
        return f"c{self.index}:{self.epoch}:{self.rng.randrange(6)}"

    def value(self):
        sizes = [1, 10, 100, 3000] + ([70000, 400000, 1500000] if self.run_.factors["clients"] == "large" else [])
        return self.rng.choice("abcdefgh").encode() * self.rng.choice(sizes)

    def expect(self, what, reply, wanted):
        if reply == wanted and type(reply) is type(wanted) or (isinstance(reply, str) and reply == wanted):
            return
        if self.run_.loses_keys and not isinstance(wanted, str):
            if reply is None or type(reply) is type(wanted) or wanted is None:
                return  # the key was evicted, or the data set was replaced
        raise Wrong(f"client {self.index}: {what}: {short(reply)} instead of {short(wanted)}")

    # Each function returns requests and a function that checks their replies.

    def echo(self):
        token = b"%d.%d" % (self.index, self.rng.randrange(1 << 40))
        return [("ECHO", token)], lambda got: self.expect("ECHO", got[0], token)

    def set(self):
        key, value = self.key(), self.value()

        def check(got):
            self.expect("SET", got[0], "OK")
            self.values[key] = value
        return [("SET", key, value)], check

    def get(self):
        key = self.key()

        def check(got):
            if key in self.values:
                self.expect(f"GET {key}", got[0], self.values[key])
        return [("GET", key)], check

    def strlen(self):
        key = self.key()

        def check(got):
            if key in self.values:
                self.expect("STRLEN", got[0], len(self.values[key] or b""))
        return [("STRLEN", key)], check

    def delete(self):
        key = self.key()

        def check(got):
            if key in self.values:
                self.expect("DEL", got[0], int(self.values[key] is not None))
            self.values[key] = None
        return [("DEL", key)], check

    def count(self):
        key = f"n{self.index}:{self.epoch}"
        script = self.rng.random() < 0.3

        def check(got):
            if key in self.values:
                self.expect("INCR", got[0], self.values[key] + 1)
            self.values[key] = got[0]
        return [("EVAL", "return server.call('incr', KEYS[1])", "1", key) if script else ("INCR", key)], check

    def transaction(self):
        key, value = self.key(), self.value()

        def check(got):
            if isinstance(got[3], Error):
                self.values.pop(key, None)
                return
            self.expect("EXEC", got[3][0], "OK")
            self.expect("EXEC", got[3][1], len(value))
            self.values[key] = value
        return [("MULTI",), ("SET", key, value), ("STRLEN", key), ("EXEC",), ("DISCARD",)], check

    def publish(self):
        return [("PUBLISH", "ch", self.value()[:3000])], lambda got: None

    def pipeline(self, length):
        kinds = [self.echo, self.set, self.get, self.strlen, self.delete, self.count, self.transaction, self.publish]
        return [self.rng.choices(kinds, [4, 4, 5, 2, 1, 3, 1, 1])[0]() for _ in range(length)]

    # Exchanges

    def exchange(self, peer, pipeline):
        """Sends a pipeline and checks its replies. A separate thread sends, because neither side reads everything
        before it writes."""
        data = b"".join(request(*words) for requests, _ in pipeline for words in requests)
        sender = None
        if len(data) > 50000:
            sender = threading.Thread(target=quietly, args=(peer.send_raw, data), daemon=True)
            sender.start()
        else:
            peer.send_raw(data)
        for requests, check in pipeline:
            got = []
            for words in requests:
                self.last = f"{words[0]} {short(words[1:])}"
                got.append(peer.reply())
                self.replies += 1
            errors = [reply for reply in got if isinstance(reply, Error)]
            for error in errors:
                if not error.startswith(EXPLAINED):
                    raise Wrong(f"client {self.index}: {requests[0][0]}: {error}")
            if len(requests) > 1 or not errors:
                check(got)
        if sender:
            sender.join()

    def forget(self):
        self.values, self.epoch = {}, self.epoch + 1

    def session(self):
        """One connection."""
        peer = self.connect_subscribed()
        if not peer:
            return
        try:
            while self.run_.going:
                self.exchange(peer, self.pipeline(self.rng.choice([1, 3, 20, 80])))
                if self.run_.factors["clients"] == "leaving" and self.rng.random() < 0.3:
                    data = b"".join(request(*w) for requests, _ in self.pipeline(40) for w in requests)
                    peer.socket.setblocking(False)
                    quietly(peer.socket.send, data[:self.rng.randrange(1, len(data))])
                    self.forget()
                    return
            self.exchange(peer, self.pipeline(10))
            for _ in range(1000):  # it is the last reply, and it must arrive
                token = b"end %d" % self.rng.randrange(1 << 30)
                got = peer.ask("ECHO", token)
                if got == token:
                    break
                if not isinstance(got, Error) or not got.startswith(EXPLAINED):
                    raise Wrong(f"client {self.index}: {short(got)} instead of its last reply")
                time.sleep(0.02)
        finally:
            peer.close()

    def goes_on(self):
        """At the end, too, a client that has not got a reply is to get one."""
        return self.run_.going or not (self.replies or self.run_.over)

    def connect_subscribed(self):
        """A connection whose set-up was not rejected by a busy or loading server, or None at the end."""
        while self.goes_on():
            peer = Peer(self.run_.address())
            self.connections += 1
            try:
                if self.prepare(peer):
                    return peer
            except BaseException:
                peer.close()
                raise
            peer.close()
            time.sleep(0.01)
        return None

    def prepare(self, peer):
        pushes = self.run_.factors["pushes"]
        if pushes not in ("tracking", "messages"):
            return True
        if isinstance(peer.ask("HELLO", "3"), Error):
            return False
        if pushes == "tracking":
            return not isinstance(peer.ask("CLIENT", "TRACKING", "ON", "BCAST"), Error)
        peer.send(("SUBSCRIBE", "ch"))
        return not isinstance(peer.read(), Error)

    def run(self):
        while self.goes_on() and not self.problem:
            try:
                self.session()
            except socket.timeout:
                self.problem = f"client {self.index}: no reply within {WAIT} s to {self.last}"
            except OSError as error:
                self.forget()
                if not self.run_.closes:
                    self.problem = f"client {self.index}: {error!r} at {self.last}"
                time.sleep(0.01)
            except (Wrong, ValueError, IndexError, TypeError) as error:
                self.problem = f"{error} (after {self.last})"


def short(value):
    text = repr(value)
    return text if len(text) < 100 else f"{text[:60]}… ({len(text)})"


def quietly(function, *arguments):
    try:
        return function(*arguments)
    except (OSError, ValueError):
        return None


# --- What happens meanwhile


class Round:
    def __init__(self, factors, seed, seconds, mixed):
        self.factors, self.seed, self.seconds, self.mixed = factors, seed, seconds, mixed
        self.rng, self.going, self.server, self.primary, self.replica = random.Random(f"{seed}"), True, None, None, None
        self.over = False  # nothing answers the clients any longer
        self.followed, self.proxy, self.dir, self.counts = False, None, tempfile.mkdtemp(prefix="valkey-replies-"), {}
        situation = factors["situation"]
        self.subject_follows = situation.startswith("full-sync")
        self.loses_keys = factors["limit"] == "eviction" or self.subject_follows or mixed
        self.closes = mixed or factors["limit"] != "none" or situation.startswith(("load", "full-sync"))
        self.rdma = factors["transport"] == "rdma" and rdma_device() is not None

    def options(self):
        f = self.factors
        options = ["--enable-debug-command", "yes", "--busy-reply-threshold", "1", "--io-threads", f["threads"],
                   "--repl-diskless-sync-delay", "0", "--repl-timeout", "60", "--proto-max-bulk-len", "64mb"]
        if f["file"] != "no":
            options += ["--appendonly", "yes", "--appendfsync", f["file"], "--auto-aof-rewrite-percentage", "0"]
        if f["limit"] == "output":
            options += ["--client-output-buffer-limit", "normal 3mb 1mb 1 pubsub 300kb 100kb 1"]
        elif f["limit"] == "clients":
            options += ["--maxmemory-clients", "3mb"]
        elif f["limit"] == "eviction":
            options += ["--maxmemory", "12mb", "--maxmemory-policy", "allkeys-random"]
        if f["transport"] == "unix":
            options += ["--unixsocket", os.path.join(self.dir, "socket")]
        if f["transport"] == "tls":
            subprocess.run([os.path.join(ROOT, "tests/harness/make-certificates"), self.dir], check=True)
            self.tls_port = servers.free_port()
            options += ["--tls-port", str(self.tls_port), "--tls-auth-clients", "no", "--tls-cert-file",
                        self.dir + "/server.crt", "--tls-key-file", self.dir + "/server.key", "--tls-ca-cert-file",
                        self.dir + "/ca.crt"]
        if f["situation"] == "full-sync-swapdb":
            options += ["--repl-diskless-load", "swapdb"]
        return options

    def address(self):
        return self.where

    def start_proxy(self):
        transport = self.factors["transport"]
        self.where = self.server.port
        if transport == "unix":
            self.where = os.path.join(self.dir, "socket")
        if transport == "tls":
            command = [os.path.join(ROOT, "tests/programs/tls-proxy"), "--listen-port", "0", "--host", "127.0.0.1",
                       "--port", str(self.tls_port), "--cacert", self.dir + "/ca.crt"]
        elif self.rdma:
            command = [*rdma_device(), os.path.join(ROOT, "tests/programs/rdma-proxy"), "--listen-port", "0",
                       "--rdma-host", "127.0.0.1", "--rdma-port", str(self.server.port)]
        else:
            return
        self.proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.where = int(self.proxy.stdout.readline().split()[1])

    def control(self):
        """A connection that is not closed by limits on clients."""
        peer = Peer(self.server.port)
        quietly(peer.ask, "CLIENT", "NO-EVICT", "ON")
        return peer

    def counted(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    # Situations: each is repeated. None changes the state of the server for long.

    def busy(self, writes=False):
        peer = self.control()
        spin = str(self.rng.choice([200000, 800000, 4000000]))
        code = ("server.call('incr', 'script') " + SPIN + "server.call('set', 'script:text', ARGV[1])" if writes
                else SPIN + "return t")
        peer.send(("EVAL", code, "0", spin))
        if self.rng.random() < 0.3:
            quietly(self.control().ask, *self.rng.choice([("SCRIPT", "KILL"), ("FUNCTION", "STATS"), ("PING",)]))
        if self.rng.random() < 0.2:
            peer.close()  # the caller disconnects
            return
        got = peer.reply()
        if isinstance(got, Error) and not got.startswith(EXPLAINED + ("ERR Script killed by user", "WRONGTYPE")):
            raise Wrong(f"a busy script: {got}")
        self.counted("scripts")

    def session(self, mode):
        peer = self.control()
        pieces = [("SCRIPT", "DEBUG", mode)]
        if self.rng.random() < 0.5:
            pieces.append(("SET", "session", "1"))
        code = "local a = 1\nserver.call('incr', 'session:n')\n" + SPIN + "\nreturn 'done'"
        pieces.append(("EVAL", code, "0", "50000"))
        before = len(pieces)
        pieces += self.rng.choice([[("s",)] * 2, [("p",)] * 90, [("a",)], [("v", "SET", "q", "1")]])
        pieces += [("c",)] * 9  # a script stops again when it has run for busy-reply-threshold
        leaves = self.rng.random() < 0.5
        peer.send(*pieces[:len(pieces) - 9 * leaves])
        if leaves:
            if self.rng.random() < 0.5:
                quietly(peer.socket.recv, 100)
            peer.close()
        else:
            got = [peer.reply() for _ in range(before - 1)]
            if all(reply == "OK" for reply in got):
                while not (isinstance(got[-1], list) and got[-1] and got[-1][-1] == "<endsession>"):
                    got.append(peer.reply())
                    if isinstance(got[-1], Error):
                        break
                quietly(peer.reply)
            elif not any(isinstance(r, Error) and r.startswith(EXPLAINED) for r in got):
                raise Wrong(f"a debugging session began with {short(got)}")
        self.counted("sessions")
        # The session ends without SCRIPT KILL, whichever client disconnected.
        self.must_answer("after a debugging session")

    def must_answer(self, when):
        def answers():
            with self.control() as peer:
                got = peer.ask("PING")
                return got == "PONG"
        if not until(answers, WAIT):
            raise Wrong(f"the server does not execute PING {when}")

    def reload(self):
        with self.control() as peer:
            other = "LOADAOF" if self.factors["file"] != "no" and not self.mixed else "RELOAD"
            got = peer.ask("DEBUG", self.rng.choice(["RELOAD", other]))
            if got != "OK" and not got.startswith(EXPLAINED):
                raise Wrong(f"DEBUG RELOAD: {got}")
        self.counted("reloads")

    def insist(self, peer, *words):
        """Sends a request until it is not rejected because of the situation."""
        def accepted():
            got = peer.ask(*words)
            return not isinstance(got, Error)
        if not until(accepted, WAIT):
            raise Wrong(f"{short(words)} is refused: {peer.ask(*words)}")

    def load(self):
        with self.control() as peer:
            self.insist(peer, "EVAL", FILL, "0")
            if self.factors["file"] == "no":
                self.insist(peer, "SAVE")
        self.server.stop_process()
        self.server.arguments = (*self.server.arguments, "--key-load-delay", "300")
        self.server.start()
        self.server.arguments = self.server.arguments[:-2]
        with self.control() as peer:
            self.insist(peer, "CONFIG", "SET", "key-load-delay", "0")
        self.counted("loads")

    def synchronize(self):
        with self.control() as peer, Peer(self.primary.port) as primary:
            self.insist(peer, "CONFIG", "SET", "key-load-delay", "300")
            if self.factors["situation"] == "full-sync-swapdb" and self.followed:
                primary.ask("CLIENT", "KILL", "TYPE", "replica")
                primary.ask("EVAL", FILL.replace("500", "20000"), "0")  # more than the backlog
            else:
                self.insist(peer, "REPLICAOF", "NO", "ONE")
                primary.ask("INCR", "synchronized")
                self.insist(peer, "REPLICAOF", "127.0.0.1", str(self.primary.port))
        self.wait_link(self.server, "the subject")
        with self.control() as peer:
            self.insist(peer, "CONFIG", "SET", "key-load-delay", "0")
        self.followed = True
        self.counted("synchronizations")

    def wait_link(self, server, name):
        def up():
            return server.info("replication").get("master_link_status") == "up"
        if not until(up, WAIT):
            raise Wrong(f"{name} does not follow")

    def situation(self, name):
        if name in ("busy", "busy-writes"):
            self.busy(name == "busy-writes" and not self.subject_follows)
        elif name.startswith("session"):
            self.session("SYNC" if name == "session-sync" else "YES")
        elif name.startswith("load"):
            self.load()
        elif name == "reload":
            self.reload()
        else:
            self.synchronize()

    def disturb(self):
        """For random rounds: options that change, and clients that are killed."""
        with self.control() as peer:
            rng = self.rng
            peer.ask(*rng.choice([
                lambda: ("CONFIG", "SET", "io-threads", rng.choice("1234")),
                lambda: ("CONFIG", "SET", "appendonly", rng.choice(["yes", "yes", "no"])),
                lambda: ("CONFIG", "SET", "appendfsync", rng.choice(["always", "everysec", "no"])),
                lambda: ("CONFIG", "SET", "maxmemory", rng.choice(["0", "0", "15mb"])),
                lambda: ("CONFIG", "SET", "maxmemory-policy", rng.choice(["noeviction", "allkeys-lru"])),
                lambda: ("CONFIG", "SET", "maxmemory-clients", rng.choice(["0", "0", "3mb"])),
                lambda: ("CONFIG", "SET", "busy-reply-threshold", rng.choice(["1", "1", "20", "5000"])),
                lambda: ("CONFIG", "SET", "client-output-buffer-limit",
                         rng.choice(["normal 0 0 0 pubsub 32mb 8mb 60", "normal 2mb 0 0 pubsub 200kb 0 0"])),
                lambda: ("CONFIG", "SET", "immediate-reply", rng.choice(["yes", "no"])),
                lambda: ("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"),
                lambda: ("CLIENT", "PAUSE", "50", rng.choice(["ALL", "WRITE"])),
                lambda: ("BGREWRITEAOF",),
                lambda: ("BGSAVE",),
                lambda: ("SCRIPT", "KILL"),
            ])())
        self.counted("disturbances")

    # A round

    def prepare(self):
        self.server = Subject(ours(), *self.options(), rdma=self.rdma)
        self.start_proxy()
        if self.subject_follows:
            self.primary = Server(ours(), "--repl-diskless-sync-delay", "0", "--repl-backlog-size", "16kb",
                                  "--enable-debug-command", "yes")
            self.primary.call("EVAL", FILL, "0")
            self.synchronize()
            self.counts.clear()
        if self.factors["replica"] == "yes":
            self.replica = Server(ours(), "--enable-debug-command", "yes", "--replicaof",
                                  f"127.0.0.1 {self.server.port}", start=False)
            self.replica.launch()
            self.wait_link(self.replica, "the replica")

    def watch(self):
        """MONITOR: only whole lines arrive."""
        while self.going:
            try:
                with Peer(self.server.port) as peer:
                    if isinstance(peer.ask("MONITOR"), Error):
                        continue
                    peer.socket.settimeout(1)
                    while self.going:
                        got = peer.read()
                        if isinstance(got, Error) or not str(got)[:1].isdigit():
                            self.problem = f"MONITOR: {short(got)}"
                            return
            except OSError:
                time.sleep(0.01)

    def act(self):
        end, names = time.monotonic() + self.seconds, [self.factors["situation"]]
        if self.mixed:
            names += ["busy", "busy", "busy-writes", "session-sync", "session-forked", "reload"]
        while time.monotonic() < end or not self.counts:
            if not self.server.alive():
                raise Wrong("the server has ended")
            try:
                self.situation(self.rng.choice(names))
                if self.mixed:
                    self.disturb()
            except socket.timeout:
                raise Wrong(f"no reply within {WAIT} s in the situation {names[0]}")
            except OSError as error:
                if not self.closes or not self.server.alive():
                    raise Wrong(f"{error!r} in the situation {names[0]}")
            time.sleep(0.005)

    def settle(self):
        """Removes limits and stops busy scripts, so that the clients can finish."""
        with self.control() as peer:
            for name, value in (("maxmemory", "0"), ("maxmemory-clients", "0"), ("busy-reply-threshold", "5000"),
                                ("client-output-buffer-limit", "normal 0 0 0 pubsub 0 0 0")):
                self.insist(peer, "CONFIG", "SET", name, value)

    def digest(self, server):
        with Peer(server.port) as peer:
            return peer.ask("DEBUG", "DIGEST")

    def check_copies(self):
        if self.primary:
            self.wait_link(self.server, "the subject")
            if not until(lambda: self.digest(self.primary) == self.digest(self.server), WAIT):
                raise Wrong("the subject has other data than its primary")
        if self.replica:
            self.wait_link(self.replica, "the replica")
            if not until(lambda: self.digest(self.replica) == self.digest(self.server), WAIT):
                raise Wrong("the replica has other data")
        with self.control() as peer:
            file = peer.ask("CONFIG", "GET", "appendonly")[1] == b"yes"
            wait_for("no rewrite", lambda: b"aof_rewrite_in_progress:0" in peer.ask("INFO", "persistence"))
            left = until(lambda: len(peer.ask("CLIENT", "LIST", "TYPE", "normal").splitlines()) == 1, WAIT)
            if not left:
                raise Wrong(f"clients remain: {peer.ask('CLIENT', 'LIST', 'TYPE', 'normal').decode()[:2000]}")
        if not file:
            return
        before = self.digest(self.server)
        self.server.stop_process()
        self.server.arguments = (*self.server.arguments, "--appendonly", "yes", "--maxmemory", "0")
        self.server.start()
        if self.digest(self.server) != before:
            raise Wrong("after a start from the append-only file the data are others")

    def run(self):
        self.problem = None
        threads = []
        try:
            self.prepare()
            checkers = [Checker(self, i) for i in range(CLIENTS)]
            threads = list(checkers)
            if self.factors["pushes"] == "monitor":
                threads.append(threading.Thread(target=self.watch, daemon=True))
            for thread in threads:
                thread.start()
            self.act()
            self.settle()
            self.going = False
            for thread in threads:
                thread.join(2 * WAIT)
                if thread.is_alive():
                    raise Wrong(f"a client does not end: {getattr(thread, 'last', 'MONITOR')}")
            problems = [c.problem for c in checkers if c.problem] + [p for p in (self.problem,) if p]
            if problems:
                raise Wrong("; ".join(problems))
            self.counts["replies"] = sum(c.replies for c in checkers)
            self.counts["connections"] = sum(c.connections for c in checkers)
            if self.proxy:
                self.proxy.stdin.close()
                self.proxy.wait(WAIT)
            self.check_copies()
            self.server.stop_process()
        except (AssertionError, OSError, RuntimeError) as error:
            self.going = False
            alive = self.server and self.server.alive()
            found = [c.problem for c in threads if getattr(c, "problem", None)]
            return f"{error or repr(error)}; clients: {found}; the server {'runs' if alive else 'has ended'}\n" + (
                self.server.output() if self.server else "")
        finally:
            self.going, self.over = False, True
            self.end()
        return None

    def end(self):
        if self.proxy and self.proxy.poll() is None:
            self.proxy.kill()
            self.proxy.wait()
        if self.proxy:
            self.proxy.stdout.close()
        for server in (self.replica, self.server, self.primary):
            if server:
                server.stop()
        subprocess.run(["rm", "-rf", self.dir], check=False)


class Subject(Server):
    def stop_process(self):
        """Stops the server with SIGTERM; its files remain."""
        end, status = time.monotonic() + WAIT, None
        while status is None:
            self.process.terminate()  # the server does not exit while it writes its first append-only file
            try:
                status = self.process.wait(1)
            except subprocess.TimeoutExpired:
                if time.monotonic() > end:
                    raise Wrong("the server does not end after SIGTERM")
        text = self.output(None)
        reports = [line for line in text.splitlines() if "Sanitizer" in line or "runtime error" in line]
        if status or reports:
            raise Wrong(f"the server ends with status {status}: {reports[:3]}")


# --- Rounds


def pairs_of(row):
    return set(itertools.combinations(sorted(row.items()), 2))


def possible(row):
    return not (row["situation"] == "load-aof" and row["file"] == "no") and \
        not (row["situation"] == "load-rdb" and row["file"] != "no")


def covering():
    """Rows of FACTORS in which every possible pair of values occurs at least once. The rows are always the same."""
    rng, names, rows = random.Random(1), list(FACTORS), []
    random_row = lambda: {name: rng.choice(FACTORS[name]) for name in names}  # noqa: E731
    wanted = set()
    for a, b in itertools.combinations(sorted(names), 2):
        for x, y in itertools.product(FACTORS[a], FACTORS[b]):
            if {(a, x), (b, y)} not in ({("situation", "load-aof"), ("file", "no")},
                                        *({("situation", "load-rdb"), ("file", f)} for f in ("always", "everysec"))):
                wanted.add(((a, x), (b, y)))
    while wanted:
        seed = rng.choice(sorted(wanted))
        best, most = None, 0
        for _ in range(150):
            row = dict(random_row(), **dict(seed))
            gain = len(pairs_of(row) & wanted) if possible(row) else 0
            if gain > most:
                best, most = row, gain
        if best:
            rows.append(best)
            wanted -= pairs_of(best)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("rounds", nargs="?", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--pairs", action="store_true")
    parser.add_argument("--row", type=int, help="only this row of --pairs")
    parser.add_argument("--seconds", type=float, help="that a round lasts")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    if options.pairs:
        plan = [(row, number, options.seconds or PAIR_SECONDS, False) for number, row in enumerate(covering())]
        if options.row is not None:
            plan = [plan[options.row]]
    else:
        print(f"seed {options.seed}", flush=True)
        plan = []
        for number in range(options.seed, options.seed + options.rounds):
            rng = random.Random(number)
            while not possible(row := {name: rng.choice(values) for name, values in FACTORS.items()}):
                pass
            plan.append((row, number, options.seconds or ROUND_SECONDS, True))
    passed, failed, totals, began = 0, 0, {}, time.monotonic()
    for row, number, seconds, mixed in plan:
        run = Round(row, number, seconds, mixed)
        at = time.monotonic()
        problem = run.run()
        for what, count in run.counts.items():
            totals[what] = totals.get(what, 0) + count
        passed, failed = passed + (not problem), failed + bool(problem)
        if problem or options.verbose:
            print(f"{'FAILED' if problem else 'passed'} {'row' if options.pairs else 'seed'} {number}: "
                  f"{', '.join(row.values())} ({time.monotonic() - at:.1f} s) {run.counts}\n{problem or ''}".rstrip(),
                  flush=True)
    print(f"{time.monotonic() - began:.0f} s: " + ", ".join(f"{count} {what}" for what, count in totals.items()))
    print(f"{passed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
