"""proxy.py: a link over TCP or TLS that stalls, is slow, or breaks in the middle of the stream.

A frozen server stalls all its links, and it finds what the kernel has received when it continues. Network faults
differ: one of several links stalls, only one direction works, sent data is lost with the connection."""
import socket
import threading
import time

CHUNK = 65536


class Proxy:
    """Forwards connections to the port that `target()` returns, or closes them if it returns None.

    open       an Event for each direction, "up" (of the replica) and "down"; bytes wait while it is cleared
    rate       bytes per second, 0: no limit
    break_at   so many bytes later all connections end, -1: never
    passes     a function that says whether bytes of connections from this address pass now, else they wait"""

    def __init__(self, target, passes=lambda source: True):
        self.target, self.rate, self.break_at, self.pairs, self.lock = target, 0, -1, [], threading.Lock()
        self.passes = passes
        self.open = {"up": threading.Event(), "down": threading.Event()}
        self.restore()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=50)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def restore(self):
        self.rate, self.break_at = 0, -1
        for event in self.open.values():
            event.set()

    def is_clear(self):
        """True: bytes pass immediately."""
        return not self.rate and all(event.is_set() for event in self.open.values())

    def accept(self):
        while True:
            try:
                near, address = self.listener.accept()
            except OSError:
                return
            with self.lock:  # so that no connection to an earlier target escapes cut()
                port = self.target()
                try:
                    far = port and socket.create_connection(("127.0.0.1", port), timeout=5)
                except OSError:
                    far = None
                if far:
                    self.pairs.append((near, far))
            if not far:
                near.close()
                continue
            far.settimeout(None)
            for source, sink, way in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self.pump, args=(source, sink, way, address[0]), daemon=True).start()

    def pump(self, source, sink, way, address):
        try:
            while data := source.recv(min(CHUNK, self.rate // 10 or 1) if self.rate else CHUNK):
                self.open[way].wait()
                while not self.passes(address):
                    time.sleep(0.05)
                    if source.fileno() < 0 or sink.fileno() < 0:
                        return
                if self.rate:
                    time.sleep(len(data) / self.rate)
                if self.break_at >= 0:
                    data, self.break_at = data[:self.break_at], max(self.break_at - len(data), 0)
                sink.sendall(data)
                if self.break_at == 0:
                    self.break_at = -1
                    self.cut()
        except OSError:
            pass
        self.shut((source, sink))

    @staticmethod
    def shut(sockets):
        for one in sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def cut(self):
        """Ends all connections, and returns their number. Data that waits in them is lost."""
        with self.lock:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            self.shut(pair)
        return len(pairs)

    def close(self):
        self.shut([self.listener])
        self.listener.close()
        self.restore()
        self.cut()
