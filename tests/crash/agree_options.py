#!/usr/bin/env python3
"""agree_options.py PORT: values for every option that CONFIG SET may change, for tests/crash/agree.

VALUES has the options that must not affect the data. LEFT_OUT has the others, by reason. As a program it prints the
options of the server on PORT that are in neither; so the quick suite `documents` finds them."""
import os
import sys
from fnmatch import fnmatchcase

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "harness"))

from resp import Client, Error

YES_NO = ["yes", "no"]
SMALL = ["0", "4", "64", "512"]
VALUES = {
    **{name: YES_NO for name in """
        activedefrag activerehashing aof-load-truncated aof-rewrite-incremental-fsync
        aof-timestamp-enabled aof-use-rdb-preamble crash-log-enabled crash-memcheck-enabled
        dual-channel-replication-enabled extended-redis-compatibility
        latency-tracking lazyfree-lazy-eviction lazyfree-lazy-expire lazyfree-lazy-server-del lazyfree-lazy-user-del
        lazyfree-lazy-user-flush no-appendfsync-on-rewrite rdb-save-incremental-fsync
        rdbcompression replica-lazy-flush repl-disable-tcp-nodelay repl-diskless-sync
        jemalloc-bg-thread
        tls-prefer-server-ciphers tls-session-caching rdb-del-sync-files
        stop-writes-on-bgsave-error""".split()},
    # With "no" a replica whose child is killed ends by itself, as Valkey's does.
    "replica-ignore-disk-write-errors": ["yes"],
    "active-expire-effort": ["1", "5", "10"], "hz": ["1", "10", "100", "500"],
    "io-threads": ["1", "2", "3", "4"], "immediate-reply": ["auto", "yes", "no"],
    "list-max-listpack-size": ["-1", "-2", "-5", "4", "128"], "list-compress-depth": ["0", "1", "3"],
    **{name: SMALL for name in """hash-max-listpack-entries hash-max-listpack-value set-max-intset-entries
        set-max-listpack-entries set-max-listpack-value zset-max-listpack-entries zset-max-listpack-value
        stream-node-max-entries""".split()},
    "stream-node-max-bytes": ["4096", "10000", "0"],
    "maxmemory-samples": ["1", "5", "64"], "maxmemory-eviction-tenacity": ["0", "10", "100"],
    "maxmemory-policy": ["noeviction", "volatile-lru", "volatile-lfu", "volatile-random", "volatile-ttl"],
    "lfu-log-factor": ["0", "10", "100"], "lfu-decay-time": ["0", "1", "10"],
    "notify-keyspace-events": ["", "KEA", "AKEmn", "Kghx"],
    "commandlog-execution-slower-than": ["-1", "0", "10000"], "commandlog-request-larger-than": ["-1", "0", "1048576"],
    "commandlog-reply-larger-than": ["-1", "0", "1048576"], "commandlog-slow-execution-max-len": ["0", "128"],
    "commandlog-large-request-max-len": ["0", "128"], "commandlog-large-reply-max-len": ["0", "128"],
    "acllog-max-len": ["0", "128"], "latency-monitor-threshold": ["0", "1"],
    "latency-tracking-info-percentiles": ["50 99", ""], "tracking-table-max-keys": ["1", "1000000"],
    "prefetch-batch-max-size": ["0", "16", "64"], "tcp-keepalive": ["0", "1", "300"],
    "max-new-connections-per-cycle": ["1", "10"], "max-new-tls-connections-per-cycle": ["1", "10"],
    "loglevel": ["debug", "verbose", "notice"], "log-format": ["legacy", "logfmt"],
    "log-timestamp-format": ["legacy", "iso8601", "milliseconds"],
    "repl-diskless-load": ["disabled", "on-empty-db", "swapdb", "flush-before-load"],
    "repl-diskless-sync-delay": ["0", "1"], "repl-diskless-sync-max-replicas": ["0", "1", "2"],
    "repl-ping-replica-period": ["1", "3"], "repl-backlog-ttl": ["0", "1", "3600"],
    "repl-backlog-size": ["16kb", "1mb", "16mb"], "repl-timeout": ["2", "10", "60"],
    "bgsave-default-method": ["forkless"], "forkless-buffer-limit": ["1mb", "64mb"],
    "rdb-key-save-delay": ["0", "30"], "rdb-version-check": ["strict", "relaxed"],
    "busy-reply-threshold": ["50", "100", "5000"], "maxmemory-clients": ["0", "1mb", "5%"],
    "client-output-buffer-limit": ["normal 100kb 0 0", "normal 0 0 0", "replica 1mb 50kb 1", "pubsub 30000 0 0",
                                   "replica 256mb 64mb 60"],
    "client-query-buffer-limit": ["1048576", "1073741824"], "proto-max-bulk-len": ["536870912", "1048576"],
    "maxmemory": ["0", "1gb"], "timeout": ["0", "1"], "maxclients": ["100", "10000"],
    "auto-aof-rewrite-percentage": ["0", "1", "100"], "auto-aof-rewrite-min-size": ["10000", "64mb"],
    "save": ["", "3600 1", "1 1"], "shutdown-timeout": ["0", "10"], "replica-serve-stale-data": YES_NO,
    "min-replicas-max-lag": ["1", "10"], "min-replicas-to-write": ["0", "0", "1"], "replica-priority": ["0", "100"],
    "import-mode": ["no"], "oom-score-adj": ["no"],
    "active-defrag-threshold-lower": ["1", "10"], "active-defrag-ignore-bytes": ["1", "100mb"],
    "active-defrag-cycle-max": ["25", "75"], "active-defrag-cycle-min": ["1", "25"],
    "active-defrag-cycle-us": ["100", "500", "10000"], "active-defrag-max-scan-fields": ["1", "1000"],
    "active-defrag-threshold-upper": ["100"], "cluster-slot-migration-log-max-len": ["0", "1000"],
    "rdma-busy-poll-us": ["0", "20"], "rdma-keepalive-ms": ["500", "3000"], "rdma-ack-timeout-ms": ["250", "1000"],
    "rdma-replication-max-wait": ["0", "100", "5000"], "rdma-replication-snapshot-memory": ["1mb", "4mb", "64mb"],
    "rdma-max-registered-memory": ["16mb", "1gb"], "rdma-send-memory": ["1mb", "256mb"],
    "rdma-zero-copy-min": ["0", "2048", "100000"], "rdma-rx-size": ["65536", "1048576"],
    "rdma-rx-initial-size": ["16384", "32768"],
    "blob-max-client-transfers": ["1", "128"], "blob-max-transfers": ["1", "4096"],
    "blob-max-transfer-memory": ["1", "1gb"], "blob-max-object-size": ["1mb", "512mb"],
    "blob-transfer-timeout": ["0", "10000"],
    "tls-session-cache-size": ["1", "20480"], "tls-session-cache-timeout": ["1", "300"],
    "tls-handshake-timeout-ms": ["10000"],
    "proc-title-template": ["{title} {listen-addr}"],
}
LEFT_OUT = {
    "addresses, users and files that the test itself sets": """bind port tls-port unixsocket requirepass masterauth
        masteruser primaryauth primaryuser dir dbfilename appendfilename appenddirname aclfile replicaof slaveof
        replica-announce-ip replica-announce-port replica-announce-rdma-port replica-announced bind-source-addr
        rdma-bind rdma-port rdma-replication tls-rdma tls-replication tls-auth-clients tls-auth-clients-user
        tls-ca-cert-dir tls-ca-cert-file tls-cert-file tls-key-file tls-key-file-pass tls-client-cert-file
        tls-client-key-file tls-client-key-file-pass tls-ciphers tls-ciphersuites tls-dh-params-file
        tls-protocols tls-cluster
        tls-auto-reload-interval protected-mode availability-zone acl-pubsub-default
        hide-user-data-from-log""",
    "what makes copies differ on purpose, or weakens what is promised": """replica-read-only appendfsync appendonly
        hll-sparse-max-bytes
        replica-ignore-maxmemory
        rdma-authentication-timeout-ms rdma-connect-timeout-ms rdma-max-clients rdma-max-unauthenticated-memory
        rdma-features rdma-traffic-class rdma-completion-vector propagation-error-behavior ignore-warnings
        oom-score-adj-values shutdown-on-sigint shutdown-on-sigterm locale-collate lua-time-limit""",
    "cluster mode": "cluster-* slot-migration-*",
    "synchronous replication, which acknowledged tests": "sync-* min-sync-replicas",
    "other names of an option that is there": "slave-* *slave* slowlog-* *ziplist*",
}


def random_option(rng):
    name = rng.choice(sorted(VALUES))
    return name, rng.choice(VALUES[name])


def unknown(node):
    """Options of the server that can be changed and are missing here."""
    out = [pattern for text in LEFT_OUT.values() for pattern in text.split()]
    flat = node.call("CONFIG", "GET", "*")
    found = []
    for name, value in zip(flat[::2], flat[1::2]):
        name = name.decode()
        if name in VALUES or any(fnmatchcase(name, pattern) for pattern in out):
            continue
        reply = node.call("CONFIG", "SET", name, value)
        if not (isinstance(reply, Error) and "immutable" in reply or "protected" in reply):
            found.append(name)
    return found


if __name__ == "__main__":
    print(*unknown(Client(int(sys.argv[1]))))
