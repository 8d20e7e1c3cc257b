"""agree_group.py: the servers of tests/crash/agree and their links.

A group is a primary, its replicas, and replicas of these: four servers of this project and, if one is available, in
most groups a genuine one. Each link has its own transport: TCP, TLS or RDMA; a link from or to the genuine server uses
TCP. A link over TCP or TLS may pass through harness/proxy.py. In some groups a server's RDMA device has faults
at times."""
import os
import shutil
import signal
import subprocess
import time

import servers
from proxy import Proxy
from resp import Error
from servers import ROOT, free_port, rdma_device, until, wait_for

NAMES = "abcd"
FILL = "for i = 1, ARGV[1] do redis.call('SET', 'fill:' .. i, i .. string.rep('x', ARGV[2])) end"
FILL_KEYS, FILL_SIZE = 1500, 3000

# Options that prevent synchronizations or writes: faults set them, and the end of a round resets them.
HARMLESS = {
    "client-output-buffer-limit": "replica 256mb 64mb 60", "repl-backlog-size": "16mb", "repl-timeout": "60",
    "maxmemory": "0", "maxmemory-policy": "noeviction", "rdb-key-save-delay": "0", "min-replicas-to-write": "0",
    "repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1", "maxmemory-clients": "0",
    "busy-reply-threshold": "100", "timeout": "0", "replica-serve-stale-data": "yes",
}

# Fault rules for the RDMA device of a server, active while a fault enables them.
DEVICE_FAULTS = ["send:error=RETRY_EXC_ERR,p=1", "send:delay=100-20000,p=5", "poll:delay=100-50000,p=5",
                 "write:scatter=5-200,p=50", "connect:reject,p=40", "request:drop,p=20", "reg_mr:fail=ENOMEM,p=10",
                 "create_qp:fail=ENOMEM,p=20", "complete:error=WR_FLUSH_ERR,p=1", "establish:drop,p=20"]
BY_PROXY = " by proxy"


def certificates():
    """The directory of the certificates, or None if openssl is missing."""
    if not hasattr(certificates, "made"):
        path = os.path.join(os.environ.get("TMPDIR", "/tmp"), "valkey-agree-certificates.%d" % os.getpid())
        os.mkdir(path)
        made = subprocess.run([os.path.join(ROOT, "tests/harness/make-certificates"), path], capture_output=True)
        certificates.made = path if made.returncode == 0 else None
    return certificates.made


def remove_certificates():
    if getattr(certificates, "made", None):
        shutil.rmtree(certificates.made, ignore_errors=True)


class Node(servers.Server):
    """A server. `parent` is the node that it follows; None for the primary. `transport` is the transport of the link
    to it: tcp, tls or rdma; tcp and tls may use a proxy. `held` is the reason why the server does not reply now: a
    freeze or a busy script."""

    def __init__(self, name, program, arguments, directory, *, genuine=False, rdma=False, tls=False,
                 device_faults=()):
        self.name, self.genuine = name, genuine
        self.parent, self.transport, self.follows_at_start, self.held, self.ended = None, "tcp", False, None, False
        self.behind = None, 0  # a primary, and the offset that this server reaches again after an end
        self.tls_port = free_port() if tls else None
        arguments = list(arguments)
        if tls:
            path = certificates()
            arguments += ["--tls-port", self.tls_port, "--tls-auth-clients", "no", "--tls-cert-file",
                          path + "/server.crt", "--tls-key-file", path + "/server.key", "--tls-ca-cert-file",
                          path + "/ca.crt"]
        os.makedirs(directory)
        self.device_faults, self.device_marker = device_faults, os.path.join(directory, "device-has-faults")
        environment = {"SOFTRDMA_FAULTS": "; ".join(f"{rule},while={self.device_marker}" for rule in device_faults),
                       "SOFTRDMA_CM_TIMEOUT_MS": "3000",
                       "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "detect_leaks=0:allocator_may_return_null=1"),
                       "UBSAN_OPTIONS": os.environ.get("UBSAN_OPTIONS", "print_stacktrace=1")}
        super().__init__(program, *arguments, rdma=rdma, directory=directory, environment=environment, start=False)
        self.arguments = arguments  # --appendonly changes during the run
        self.appends = arguments[arguments.index("--appendonly") + 1] == "yes"
        self.proxy = Proxy(lambda: self.parent and self.parent.link_port_of(self.transport))

    def command_line(self):
        line = super().command_line()
        if self.follows_at_start and self.parent:
            line += ["--replicaof", "127.0.0.1 %d" % self.port_of(self.parent)]
            for name, value in self.transport_options().items():
                line += ["--" + name, value]
        return line

    def launch(self):
        files = os.path.join(self.dir, "appendonlydir")
        if self.genuine and os.path.isdir(files):  # it rewrites them after it has loaded them, even with errors
            shutil.rmtree(self.dir + "/before-start", ignore_errors=True)
            shutil.copytree(files, self.dir + "/before-start")
        super().launch()
        self.held, self.ended = None, False

    def by_proxy(self):
        return self.transport.endswith(BY_PROXY)

    def link_port_of(self, transport):
        return self.tls_port if transport.startswith("tls") else self.port

    def port_of(self, parent):
        return self.proxy.port if self.by_proxy() else parent.link_port_of(self.transport)

    def link_port(self):
        """The port that its primary shows for it."""
        return self.link_port_of(self.transport)

    def append(self, value):
        """Sets appendonly, and keeps the value for a restart, like an operator who also writes it to the
        configuration file."""
        self.appends = False
        self.arguments[self.arguments.index("--appendonly") + 1] = value
        reply = self.call("CONFIG", "SET", "appendonly", value, timeout=60)
        if value == "yes" and reply == "OK":
            self.appends = bool(until(lambda: self.has_append_only_file(), 5))
        return reply

    def break_device(self, broken):
        if broken:
            open(self.device_marker, "w").close()
        elif os.path.exists(self.device_marker):
            os.unlink(self.device_marker)

    def transport_options(self):
        chosen = {}
        if self.tls_port:
            chosen["tls-replication"] = "yes" if self.transport.startswith("tls") else "no"
        if self.rdma:
            chosen["rdma-replication"] = "yes" if self.transport == "rdma" else "no"
        return chosen

    def set(self, options):
        """Sets the options that the server has; an error reply is a failure. Waits while the server loads data."""
        for name, value in options.items():
            reply = wait_for(f"{self.name}: CONFIG SET while it loads",
                             lambda: not self.alive() or self.try_set(name, value))
            if reply is True:
                raise OSError(f"{self.name} has ended")
            if isinstance(reply, Error) and not reply.startswith("ERR Unknown option"):
                raise AssertionError(f"{self.name}: CONFIG SET {name} {value}: {reply}")

    def try_set(self, name, value):
        """The reply, or None while the server loads data."""
        reply = self.call("CONFIG", "SET", name, value)
        return None if reply.startswith(("LOADING", "BUSY")) else reply

    def follow(self, parent, transport):
        before, self.parent, self.transport = self.parent, parent, transport
        if parent is not before:
            self.proxy.cut()  # its port is the same for all parents, so REPLICAOF alone would keep the old link
        self.set(self.transport_options())
        wait_for(f"{self.name}: REPLICAOF is accepted",
                 lambda: not isinstance(self.call("REPLICAOF", "127.0.0.1", self.port_of(parent)), Error))

    def lead(self):
        self.parent = None
        wait_for(f"{self.name}: REPLICAOF NO ONE is accepted",
                 lambda: not isinstance(self.call("REPLICAOF", "NO", "ONE"), Error))

    def replication(self):
        return self.info("replication")

    def is_up(self):
        return self.replication().get("master_link_status") == "up"

    def free(self):
        """True: the server is expected to reply."""
        return self.alive() and not self.held

    def freeze(self):
        self.held = "frozen"
        self.signal(signal.SIGSTOP)

    def thaw(self):
        if self.alive():
            self.signal(signal.SIGCONT)
        self.held = None

    def kill(self):
        self.ended = True
        super().kill()
        self.held = None

    def end(self, words=None):
        """Stops the server as an operator does: by SIGTERM, or by SHUTDOWN with these arguments."""
        self.ended = True
        try:
            if not words or isinstance(self.call("SHUTDOWN", *words, timeout=60), Error):
                self.signal(signal.SIGTERM)
        except OSError:
            pass
        until = time.monotonic() + (10 if self.genuine else servers.PATIENCE)
        while self.process.poll() is None:
            if time.monotonic() > until:
                if self.genuine:  # its exit is not tested here
                    self.kill()
                    return
                raise AssertionError(f"{self.name} does not end: {self.output()}")
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                self.signal(signal.SIGTERM)  # a server that writes its first append-only file refuses to end

    def wipe(self):
        """Removes its data."""
        for name in os.listdir(self.dir):
            path = os.path.join(self.dir, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif path not in (self.log, self.device_marker):
                os.unlink(path)

    def clients(self):
        return [node for node in self.group.nodes if node.parent is self]


class Group:
    """The choices for a whole era: the servers and their options."""

    def __init__(self, options, rng, directory, note):
        self.options, self.note, self.nodes = options, note, []
        tls = options.tls and rng.random() < 0.4 and bool(certificates())
        rdma = options.rdma and rng.random() < 0.7
        plain = ["tcp", "tcp" + BY_PROXY]
        self.transports = plain + ["tls", "tls", "tls" + BY_PROXY, "tls" + BY_PROXY] * tls + ["rdma"] * (6 * rdma)
        for name in NAMES:
            arguments = self.arguments(rng) + ["--io-threads", rng.choice(["1", "3"])]
            faults = rng.sample(DEVICE_FAULTS, rng.randint(1, 3)) if rdma and rng.random() < 0.5 else []
            self.add(Node(name, options.server, arguments, os.path.join(directory, name), rdma=rdma, tls=tls,
                          device_faults=faults))
        if options.genuine and rng.random() < 0.7:  # without it, the copies are compared more strictly
            # With a preamble, Valkey 9.1's append-only file lacks what the stream brought during a synchronization on
            # two channels.
            arguments = self.arguments(rng) + ["--aof-use-rdb-preamble", "no"]
            self.add(Node("g", options.genuine, arguments, os.path.join(directory, "g"), genuine=True))
        self.primary = self.nodes[0]

    def add(self, node):
        node.group = self
        self.nodes.append(node)
        self.note("%s: port %d %s %s" % (node.name, node.port, " ".join(map(str, node.arguments)),
                                         node.environment["SOFTRDMA_FAULTS"]))

    @staticmethod
    def arguments(rng):
        chosen = ["--repl-diskless-sync-delay", "0", "--repl-backlog-size", "16mb", "--repl-ping-replica-period", "1",
                  "--enable-debug-command", "yes", "--busy-reply-threshold", "100", "--repl-timeout", "60",
                  "--hide-user-data-from-log", "no", "--replica-ignore-disk-write-errors", "yes",
                  "--save", rng.choice(["3600 1", "3600 1", "1 1"]),
                  "--client-output-buffer-limit", "replica 256mb 64mb 60"]
        return chosen + ["--appendonly", rng.choice(["yes", "no"]), "--appendfsync", "always",
                         "--aof-use-rdb-preamble", rng.choice(["yes", "no"])]

    def start(self, rng):
        for node in self.nodes:
            node.start()
        # DEBUG POPULATE writes no append-only file.
        self.primary.call("EVAL", FILL, 0, FILL_KEYS, FILL_SIZE, timeout=60)
        self.arrange(rng)

    def replicas(self):
        return [node for node in self.nodes if node is not self.primary]

    def ours(self):
        return [node for node in self.nodes if not node.genuine]

    def transport(self, rng, node, parent):
        return rng.choice(self.transports[:2] if node.genuine or parent.genuine else self.transports)

    def arrange(self, rng):
        """Chooses the parent of each replica; at least one follows a replica."""
        order = self.replicas()
        rng.shuffle(order)
        for at, node in enumerate(order):
            candidates = [self.primary] * (2 if at < 2 else 1) + order[:at]
            parent = order[0] if at == len(order) - 1 else rng.choice(candidates)
            node.follow(parent, self.transport(rng, node, parent))
        self.note("the primary is %s; %s" % (self.primary.name, ", ".join(
            "%s follows %s (%s)" % (node.name, node.parent.name, node.transport) for node in order)))

    def promote(self, node, rng):
        """Makes a replica the primary. The replicas of the old primary follow it."""
        old, self.primary = self.primary, node
        node.lead()
        for other in self.nodes:
            if other is not node and other.alive() and other.parent in (old, None):
                other.follow(node, self.transport(rng, other, node))

    def mend(self):
        """Every server runs and follows its parent."""
        for node in self.nodes:
            if node.held == "frozen":
                node.thaw()
            node.proxy.restore()
            node.break_device(False)
        for node in self.nodes:
            if not node.alive():
                node.follows_at_start = node.parent is not None
                self.note(f"{node.name} starts")
                node.start()
        for node in self.nodes:
            node.set(HARMLESS)
            wait_for(f"{node.name}: DEBUG is accepted", lambda: node.call("DEBUG", "SET-ACTIVE-EXPIRE", 1) == "OK")
            if node.info("persistence").get("rdb_last_bgsave_status") == "err":  # rejects writes, and PING of replicas
                wait_for(f"{node.name}: SAVE", lambda: node.call("SAVE", timeout=60) == "OK")
            info = node.replication()
            if node.parent:  # follow() may have failed between its steps
                node.set(node.transport_options())
            if node.parent and (info.get("role") != "slave" or info["master_port"] != str(node.port_of(node.parent))):
                node.follow(node.parent, node.transport)

    def check_alive(self):
        """A server that ended by itself is a failure; a genuine one is restarted."""
        for node in self.nodes:
            if node.genuine and not node.alive() and not node.ended:
                self.note(f"{node.name}, the genuine server, ended by itself: {node.process.returncode}")
                node.ended = True
            if not node.alive() and not node.ended:
                raise AssertionError(f"{node.name} ended by itself: {node.process.returncode}")

    def stop(self):
        for node in self.nodes:
            if node.alive():
                node.thaw()
                node.kill()
            node.stop()
            node.proxy.close()
