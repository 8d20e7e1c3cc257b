"""scripted_server.py: a peer of a Sentinel that answers as a test says: a server or another Sentinel.

    primary = ScriptedServer()
    primary.ping = b"-BUSY a script\\r\\n"       # None: no answer
    primary.info["role"] = "slave"             # the fields of INFO
    primary.answers["script"] = b"+OK\\r\\n"     # of any other command, by its name in lower case; may be a function

It keeps what it was asked in `calls`: lists of words, those of one connection in order. It does not replicate, but it
does what SLAVEOF and FAILOVER say: its INFO then tells the role."""
import socket
import threading

from common import request

CHANNEL = "__sentinel__:hello"
SILENT = object()  # an answer: none, and nothing after it on this connection


def bulk(text):
    text = text if isinstance(text, bytes) else text.encode()
    return b"$%d\r\n%s\r\n" % (len(text), text)


class ScriptedServer:
    def __init__(self, run_id="a" * 40, primary=None, obeys=True):
        self.lock = threading.Lock()
        self.primary = primary  # (host, port); None: it is a primary
        self.run_id, self.obeys, self.replicas = run_id, obeys, []
        self.ping, self.info, self.answers = b"+PONG\r\n", {}, {}
        self.info_answer = None  # instead of the text that `info` gives
        self.calls, self.subscribers, self.sockets, self.refuses = [], [], [], False
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    # --- What it tells ---

    def info_text(self):
        fields = {"run_id": self.run_id, "role": "slave" if self.primary else "master"}
        if self.primary:
            fields.update(master_host=self.primary[0], master_port=self.primary[1], master_link_status="up",
                          slave_repl_offset=100, slave_priority=100, replica_announced=1)
        else:
            fields["connected_slaves"] = len(self.replicas)
            for i, replica in enumerate(self.replicas):
                port = replica if isinstance(replica, int) else replica.port
                fields["slave%d" % i] = "ip=127.0.0.1,port=%d,state=online,offset=100,lag=0" % port
        fields["master_failover_state"] = "no-failover"
        fields.update(self.info)
        return "# Replication\r\n" + "".join("%s:%s\r\n" % item for item in fields.items() if item[1] is not None)

    def execute(self, words, state):
        name = words[0].lower()
        answer = self.answers.get(name)
        if answer is not None:
            answer = answer(words) if callable(answer) else answer
            if answer is not None:
                return answer
        if name == "ping":
            return self.ping if self.ping is not None else SILENT
        if name == "multi":
            state["queue"] = []
            return b"+OK\r\n"
        if name == "exec":
            queue = state.pop("queue", None) or []
            return b"*%d\r\n" % len(queue) + b"".join(self.execute(one, {}) for one in queue)
        if "queue" in state:
            state["queue"].append(words)
            return b"+QUEUED\r\n"
        if name == "info":
            return self.info_answer if self.info_answer is not None else bulk(self.info_text())
        if name in ("slaveof", "replicaof") and self.obeys:
            self.primary = None if words[1].lower() == "no" else (words[1], int(words[2]))
        if name == "failover" and self.obeys and words[1].lower() == "to":
            self.primary = (words[2], int(words[3]))
            for replica in self.replicas:
                if not isinstance(replica, int) and replica.port == self.primary[1]:
                    replica.primary = None
        if name == "publish":
            self.publish(words[2])
            return b":%d\r\n" % len(self.subscribers)
        if name == "subscribe":
            self.subscribers.append(state["socket"])
            return b"*3\r\n" + bulk("subscribe") + bulk(words[1]) + b":1\r\n"
        return b"+OK\r\n"

    def publish(self, text):
        for subscriber in list(self.subscribers):
            try:
                subscriber.sendall(request("message", CHANNEL, text))
            except OSError:
                pass

    # --- Connections ---

    def accept(self):
        while True:
            try:
                one, _ = self.listener.accept()
            except OSError:
                return
            if self.refuses:
                one.close()
                continue
            with self.lock:
                self.sockets.append(one)
            threading.Thread(target=self.serve, args=(one,), daemon=True).start()

    def serve(self, one):
        calls, state = [], {"socket": one}
        with self.lock:
            self.calls.append(calls)
        try:
            with one.makefile("rb") as stream:
                silent = False
                while line := stream.readline():
                    words = []
                    for _ in range(int(line[1:])):
                        size = int(stream.readline()[1:])
                        words.append(stream.read(size + 2)[:-2].decode("latin-1"))
                    calls.append(words)
                    if silent:
                        continue
                    answer = self.execute(words, state)
                    silent = answer is SILENT and words[0].lower() == "ping"
                    if answer is not SILENT:
                        one.sendall(answer)
        except (OSError, ValueError):
            pass
        with self.lock:
            if one in self.subscribers:
                self.subscribers.remove(one)

    def cut(self):
        """Ends its connections."""
        with self.lock:
            sockets, self.sockets = self.sockets, []
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def refuse(self):
        """Ends its connections and accepts none: the port answers, and closes at once."""
        self.refuses = True
        self.cut()

    def restore(self):
        self.refuses = False

    def close(self):
        try:
            self.listener.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.listener.close()
        self.cut()

    def named(self, *names):
        """The calls of these commands, in the order of the connections."""
        with self.lock:
            return [words for calls in self.calls for words in calls if words[0].lower() in names]
