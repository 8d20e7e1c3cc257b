"""documents.py: what make-docs, make-man and make-completion read. They are views of the same tables: the options with
their explanations in valkey.conf, the commands of the server (COMMAND DOCS), and the --help of the programs.

How valkey.conf is read: "# --- title ---" begins a section. Lines with '#' and a space explain the options that follow
them, "#name value" or "name value", up to the next empty line."""
import os
import re
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CONFIGURATION = os.path.join(ROOT, 'valkey.conf')
OPTION = re.compile(r'#?([a-z][a-z0-9-]*) (\S.*)$')
TITLE = re.compile(r'# --- (.*) ---$', re.M)
HELP_OPTION = re.compile(r' {1,2}(--?[\w-]+(?:, --?[\w-]+)*(?: <[^>]+>| \.\.\.)?)(?: +(\S.*))?$')


class Failure(Exception):
    pass


def blocks(text):
    """Yields (explanation lines, option lines) of each block of lines between empty ones."""
    for block in re.split(r'\n\s*\n', text):
        lines = block.split('\n')
        explanation = [line[1:] for line in lines if re.match(r'#( |$)', line)]
        options = [OPTION.match(line) for line in lines if OPTION.match(line)]
        other = len(lines) - len(explanation) - len(options) - sum(not line for line in lines)
        if other:
            raise Failure('valkey.conf: a line that is neither an explanation nor an option: ' + block[:80])
        yield explanation, [match.groups() for match in options]


def sections():
    """Yields (title, [(explanation lines, option lines)]) of the sections of valkey.conf."""
    with open(CONFIGURATION, encoding='utf-8') as file:
        parts = TITLE.split(file.read())
    for title, body in zip(parts[1::2], parts[2::2]):
        yield title, list(blocks(body.strip('\n')))


def version():
    """The version of the project, from its one place."""
    with open(os.path.join(ROOT, 'src', 'lib', 'system', 'version.h'), encoding='utf-8') as file:
        return re.search(r'#define PROJECT_VERSION "([^"]+)"', file.read()).group(1)


def program_help(name):
    """The lines that a program in src/ prints for --help."""
    path = os.path.join(ROOT, 'src', name)
    try:
        got = subprocess.run([path, '--help'], capture_output=True, text=True, stdin=subprocess.DEVNULL, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise Failure('%s --help: %s' % (path, error)) from None
    return (got.stdout + got.stderr).replace(path, name).splitlines()


def help_options(lines):
    """Yields (options, their argument or None, explanation) of the lines of --help."""
    entry = None
    for line in lines:
        match = HELP_OPTION.match(line)
        if match or not line.startswith('        '):
            if entry:
                yield entry[0], entry[1], ' '.join(entry[2])
            entry = None
        if match:
            names, _, argument = match.group(1).partition(' ')
            while names.endswith(','):
                more, _, argument = argument.partition(' ')
                names += ' ' + more
            entry = names.split(', '), argument or None, [match.group(2)] if match.group(2) else []
        elif entry:
            entry[2].append(line.strip())
    if entry:
        yield entry[0], entry[1], ' '.join(entry[2])


class Server:
    """A server, or a Sentinel, on a Unix socket."""

    def __init__(self, program, sentinel=False):
        self.program, self.sentinel = program, sentinel

    def __enter__(self):
        self.directory = tempfile.TemporaryDirectory()
        path = os.path.join(self.directory.name, 'socket')
        self.log = open(os.path.join(self.directory.name, 'log'), 'w+')
        command = [self.program, '--port', '0', '--unixsocket', path, '--dir', self.directory.name]
        if self.sentinel:
            file = os.path.join(self.directory.name, 'sentinel.conf')
            open(file, 'w').close()
            command[1:1] = [file, '--sentinel']
        else:
            command += ['--save', '']
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log)
        while True:
            self.socket = socket.socket(socket.AF_UNIX)
            try:
                self.socket.connect(path)
                break
            except OSError:
                self.socket.close()
                if self.process.poll() is not None:
                    raise Failure('%s did not start' % self.program)
                time.sleep(0.02)
        self.replies = self.socket.makefile('rb')
        return self

    def __exit__(self, *_):
        self.replies.close()
        self.socket.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()
        self.directory.cleanup()

    def reply(self):
        line = self.replies.readline().rstrip(b'\r\n')
        kind, rest = line[:1], line[1:].decode()
        if kind == b'$':
            return self.replies.read(int(rest) + 2)[:-2].decode()
        if kind == b'*':
            return [self.reply() for _ in range(int(rest))]
        return rest

    def call(self, *words):
        encoded = [word.encode() for word in words]
        self.socket.sendall(b'*%d\r\n' % len(encoded) + b''.join(b'$%d\r\n%s\r\n' % (len(w), w) for w in encoded))
        return self.reply()

    def commands(self):
        """COMMAND DOCS: {name: {field: value}}; subcommands likewise, below 'subcommands'."""
        def pairs(flat):
            return dict(zip(flat[::2], flat[1::2]))

        def command(flat):
            docs = pairs(flat)
            docs['subcommands'] = {name: command(entry) for name, entry in pairs(docs.get('subcommands', [])).items()}
            return docs
        return {name: command(entry) for name, entry in pairs(self.call('COMMAND', 'DOCS')).items()}
