"""Tests of `make install`: what it puts where, and that man pages, completion and service files are in order.

Everything is installed from the programs in src/, below temporary directories. run, beside this file, calls tests().
"""
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

SECONDS = 60


def tests(root):
    installer = root + "/utils/packaging/install"
    sys.path.insert(0, root + "/utils")
    sys.dont_write_bytecode = True
    import documents

    def run(*command, environment=None, code=0):
        variables = {name: value for name, value in os.environ.items()
                     if name not in ("DESTDIR", "PREFIX", "MAKEFLAGS")}
        got = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False, cwd=root,
                             env={**variables, **(environment or {})})
        assert got.returncode == code, f"{command}: exit code {got.returncode}: {got.stdout}{got.stderr}"
        return got.stdout + got.stderr

    def install(**variables):
        return run(installer, environment=variables)

    def files(directory):
        return sorted(os.path.relpath(os.path.join(base, name), directory)
                      for base, directories, names in os.walk(directory)
                      for name in names + [link for link in directories if os.path.islink(os.path.join(base, link))])

    def read(*path):
        with open(os.path.join(*path), encoding="utf-8") as file:
            return file.read()

    def install_and_make_uninstall_leave_nothing():
        with tempfile.TemporaryDirectory() as place:
            install(DESTDIR=place, PREFIX="/usr")
            found = files(place)
            for name in ("usr/bin/valkey-server", "usr/bin/valkey-cli", "usr/bin/valkey-benchmark",
                         "usr/bin/valkey-sentinel", "etc/valkey/valkey-sentinel.conf",
                         "usr/lib/systemd/system/valkey-sentinel.service", "usr/share/man/man1/valkey-sentinel.1",
                         "usr/bin/valkey-check-rdb", "usr/bin/valkey-check-aof", "usr/bin/valkey-pin-rdma",
                         "etc/valkey/valkey.conf", "etc/logrotate.d/valkey-server", "usr/lib/sysusers.d/valkey.conf",
                         "usr/lib/tmpfiles.d/valkey.conf", "usr/lib/systemd/system/valkey-server.service",
                         "usr/lib/systemd/system/valkey-server@.service", "usr/share/man/man1/valkey-server.1",
                         "usr/share/man/man5/valkey.conf.5", "usr/share/man/man7/valkey-commands.7",
                         "usr/share/bash-completion/completions/valkey-cli", "usr/share/zsh/site-functions/_valkey"):
                assert name in found, name
            run("make", "uninstall", "DESTDIR=" + place, "PREFIX=/usr")
            assert os.listdir(place) == [], files(place)

    def the_python_package_finds_the_library_of_its_prefix():
        if not os.path.exists(root + "/build/lib/libvalkeyrdma.so.1"):
            return
        with tempfile.TemporaryDirectory() as place:
            install(PREFIX=place + "/opt")
            found, = [name for name in files(place) if name.endswith("valkeyrdma/__init__.py")]
            modules = os.path.dirname(os.path.dirname(os.path.join(place, found)))
            said = run(sys.executable, "-B", "-c", "import valkeyrdma; print(hex(valkeyrdma.checksum(b'123456789')))",
                       environment={"PYTHONPATH": modules, "VALKEYRDMA_LIBRARY": ""})
            assert said == "0xe3069283\n", said
            run(installer, "--remove", environment={"PREFIX": place + "/opt"})
            assert not [name for name in files(place) if "valkeyrdma" in name], files(place)

    def install_names_the_service_only_where_systemd_finds_its_unit():
        with tempfile.TemporaryDirectory() as place:
            said = install(PREFIX=place + "/opt")
            assert "systemctl" not in said and f"The programs are in {place}/opt/bin." in said, said

    def softrdma_refuses_an_unknown_option():
        said = run(root + "/utils/softrdma/softrdma", "--bogus", code=125)
        assert said == "softrdma: unknown option --bogus; softrdma --help shows the usage\n", said

    def install_refers_to_no_destdir():
        with tempfile.TemporaryDirectory() as place:
            install(DESTDIR=place, PREFIX="/usr", UNITDIR="/lib/systemd/system")
            for name in files(place):
                path = os.path.join(place, name)
                if os.path.islink(path):
                    assert place not in os.readlink(path), name
                elif not name.startswith(("usr/bin/", "usr/lib/valkey/", "usr/lib/libvalkeyrdma.")):
                    text = read(path)
                    assert place not in text, name
                    if "share" not in name:
                        assert not re.search(r"@[A-Z_]+@", text), f"{name} has a variable without a value"
            unit = read(place, "lib/systemd/system/valkey-server.service")
            assert "ExecStart=/usr/bin/valkey-server /etc/valkey/valkey.conf " in unit, unit
            assert "Type=notify" in unit and "LimitMEMLOCK=infinity" in unit, unit
            assert " /etc/valkey/%i.conf " in read(place, "lib/systemd/system/valkey-server@.service")

    def redis_names_are_installed_on_request_only():
        with tempfile.TemporaryDirectory() as place:
            install(DESTDIR=place)
            headers = ("valkeyrdma_hiredis.h", "redismodule.h")
            assert not [name for name in files(place) if "redis" in name and not name.endswith(headers)]
            install(DESTDIR=place, USE_REDIS_SYMLINKS="yes")
            assert os.readlink(place + "/usr/local/bin/redis-cli") == "valkey-cli"
            run("make", "uninstall", "DESTDIR=" + place, "USE_REDIS_SYMLINKS=yes")
            assert os.listdir(place) == [], files(place)

    def changed_configurations_are_kept():
        with tempfile.TemporaryDirectory() as place:
            install(DESTDIR=place)
            path = place + "/etc/valkey/valkey.conf"
            with open(path, "a", encoding="utf-8") as file:
                file.write("maxclients 77\n")
            assert "is there already, and kept" in install(DESTDIR=place)
            assert "was changed, and is kept" in run(installer, "--remove", environment={"DESTDIR": place})
            assert files(place) == ["etc/valkey/valkey.conf"], files(place)
            assert read(path).endswith("maxclients 77\n")

    def wrong_usage_of_install_is_refused():
        assert "not an absolute path" in run(installer, environment={"PREFIX": "here"}, code=2)
        assert "PREFIX" in run(installer, "--sideways", code=2)
        assert "PREFIX" in run(installer, "--help")

    # As its unit starts it; the notification is read where systemd would read it.
    def the_installed_server_tells_systemd_that_it_is_ready():
        with tempfile.TemporaryDirectory() as place:
            prefix = place + "/opt"
            install(PREFIX=prefix)
            assert not [name for name in os.listdir(place) if name != "opt"]
            for directory in "lib", "log":
                os.makedirs(f"{prefix}/var/{directory}/valkey")
            unit = read(prefix, "lib/systemd/system/valkey-server.service")
            command = re.search(r"^ExecStart=(.*)$", unit, re.M).group(1).split()
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            listener.bind(place + "/notify")
            listener.settimeout(SECONDS)
            server = subprocess.Popen(command + ["--port", "0", "--unixsocket", place + "/socket"], cwd=place,
                                      env={**os.environ, "NOTIFY_SOCKET": place + "/notify"})
            try:
                if "libsystemd" in run("ldd", root + "/src/valkey-server"):
                    said = ""
                    while "READY=1" not in said:
                        said = listener.recv(4096).decode()
                until = time.monotonic() + SECONDS
                while not os.path.exists(place + "/socket"):
                    assert server.poll() is None and time.monotonic() < until, read(prefix,
                                                                                    "var/log/valkey/valkey-server.log")
                    time.sleep(0.02)
                cli = prefix + "/bin/valkey-cli"
                assert run(cli, "-s", place + "/socket", "set", "key", "value") == "OK\n"
                dir_ = run(cli, "-s", place + "/socket", "config", "get", "dir")
                assert os.path.realpath(prefix + "/var/lib/valkey") in dir_, dir_
            finally:
                server.terminate()
                status = server.wait()
                listener.close()
            assert status == 0, status
            assert files(prefix + "/var") == ["lib/valkey/dump.rdb",
                                              "log/valkey/valkey-server.log"], files(prefix + "/var")

    def the_units_are_verified_by_systemd():
        if not shutil.which("systemd-analyze"):
            return
        with tempfile.TemporaryDirectory() as place:
            install(PREFIX=place + "/opt")
            units = place + "/opt/lib/systemd/system/"
            os.symlink("valkey-server@.service", units + "valkey-server@7000.service")
            for name in "valkey-server.service", "valkey-server@7000.service":
                said = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", units + name)
                assert "valkey" not in said, said

    def logrotate_reads_its_file():
        logrotate = shutil.which("logrotate", path=os.environ["PATH"] + ":/usr/sbin")
        if not logrotate:
            return
        with tempfile.TemporaryDirectory() as place:
            install(PREFIX=place + "/opt")
            said = run(logrotate, "--debug", "--state", place + "/state", place + "/opt/etc/logrotate.d/valkey-server")
            assert "rotating pattern: " in said, said

    def man_pages_are_complete_and_without_warnings():
        with tempfile.TemporaryDirectory() as place:
            run(root + "/utils/make-man", place, environment={"SOURCE_DATE_EPOCH": "86400"})
            pages = sorted(os.listdir(place))
            assert pages == sorted(
                [f"valkey-{name}.1" for name in ("server", "sentinel", "cli", "benchmark", "check-rdb", "check-aof",
                                                 "pin-rdma", "softrdma", "rdma-proxy", "rdma-run")] +
                ["valkeyrdma.3", "valkey.conf.5", "valkey-commands.7"]), pages
            for page in pages:
                text = read(place, page)
                title = f'.TH {page.rsplit(".", 1)[0]} {page[-1]} 1970-01-02 "valkey {documents.version()}"'
                assert title in text, page
                if shutil.which("man"):
                    said = subprocess.run(["man", "--warnings", "-l", os.path.join(place, page)], capture_output=True,
                                          env={**os.environ, "LC_ALL": "C.UTF-8", "PAGER": "cat"}, check=True)
                    assert said.stderr == b"" and len(said.stdout) > 500, (page, said.stderr)
            for program in "valkey-cli", "valkey-benchmark":
                text = read(place, program + ".1")
                for names, _, _ in documents.help_options(documents.program_help(program)):
                    assert "\\fB" + ", ".join(names).replace("-", "\\-") + "\\fR" in text, (program, names)
            text = read(place, "valkey.conf.5")
            for _, body in documents.sections():
                for _, options in body:
                    for name, _ in options:
                        assert f"\\fB{name}\\fR ".replace("-", "\\-") in text, name
            text = read(place, "valkey-commands.7")
            with documents.Server(root + "/src/valkey-server") as server:
                for name in server.call("COMMAND", "LIST"):
                    assert "\\fB" + name.upper().replace("|", " ").replace("-", "\\-") in text, name

    def completion_offers_options_commands_and_values():
        with tempfile.TemporaryDirectory() as place:
            run(root + "/utils/make-completion", place)

            def complete(*words):
                script = ('source "$1/bash"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))\n'
                          'name=$(complete -p "$1"); name=${name#*-F }; "${name%% *}" "$1" "${!#}"\n'
                          'printf "%s\\n" "${COMPREPLY[@]}"')
                return run("bash", "-c", script, "bash", place, *words).split()

            assert complete("valkey-server", "--rdma-b") == ["--rdma-bind", "--rdma-busy-poll-us"]
            assert complete("valkey-server", "--appendfsync", "") == ["everysec", "always", "no"]
            assert complete("valkey-server", "--daemonize", "y") == ["yes"]
            assert root + "/src" in complete("valkey-server", "--dir", root + "/s")
            assert complete("valkey-server", root + "/valkey.c") == [root + "/valkey.conf"]
            assert complete("valkey-cli", "--rdm") == ["--rdma", "--rdma-base-protocol"]
            assert complete("valkey-cli", "--cert", root + "/valkey.c") == [root + "/valkey.conf"]
            assert complete("valkey-cli", "-h", "ge") == []
            assert complete("valkey-cli", "-h", "host", "getr") == ["getrange"]
            assert complete("valkey-cli", "GETR") == ["GETRANGE"]
            assert complete("valkey-cli", "--rdma", "-p", "7", "config", "re") == ["resetstat", "rewrite"]
            assert complete("valkey-cli", "config", "set", "maxmemory-po") == ["maxmemory-policy"]
            assert complete("valkey-benchmark", "-t", "lrange_") == ["lrange_100", "lrange_300", "lrange_500",
                                                                     "lrange_600"]
            assert "--threads" in complete("valkey-benchmark", "--thr")
            assert complete("valkey-check-rdb", "--format", "c") == ["csv"]
            assert complete("/usr/bin/valkey-check-rdb"[-16:], "--st") == ["--stats"]
            assert complete("valkey-pin-rdma", "own") == ["own-cpu"]
            if shutil.which("zsh"):
                run("zsh", "-n", place + "/zsh")

    def the_version_stands_in_one_place():
        version = documents.version()
        for program in "server", "cli", "benchmark", "check-rdb", "check-aof":
            assert version in run(f"{root}/src/valkey-{program}", "--version"), program
        assert read(root, "debian/changelog").startswith(f"valkey-rdma ({version}) "), "debian/changelog"

    return [function for name, function in locals().items()
            if callable(function) and name not in ("run", "install", "files", "read")]
