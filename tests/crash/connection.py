"""connection.py: a client of the failure tests. Error replies are returned, as Reply."""
import socket


class Reply(Exception):
    pass


class Connection:
    def __init__(self, port, timeout=20):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.file = self.socket.makefile("rb")

    def send(self, *commands):
        out = []
        for command in commands:
            out.append(b"*%d\r\n" % len(command))
            for arg in command:
                arg = arg if isinstance(arg, bytes) else str(arg).encode()
                out.append(b"$%d\r\n%s\r\n" % (len(arg), arg))
        self.socket.sendall(b"".join(out))

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            return Reply(rest.decode())
        if kind == b"$":
            if rest == b"-1":
                return None
            data = self.file.read(int(rest) + 2)
            if len(data) < int(rest) + 2:
                raise ConnectionError
            return data[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def call(self, *command):
        self.send(command)
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()
