# Every option: its default, whether it can be set at run time, and its limits.

# name, default (* depends on the machine), settable at run time, kind, limits, version it came with
set options {
    acl-pubsub-default                        resetchannels        yes enum      -                          8.0
    aclfile                                   {}                   no  -         -                          8.0
    acllog-max-len                            128                  yes integer   0..9223372036854775807     8.0
    active-defrag-cycle-max                   25                   yes integer   1..99                      8.0
    active-defrag-cycle-min                   1                    yes integer   1..99                      8.0
    active-defrag-cycle-us                    500                  -   -         -                          9.0
    active-defrag-ignore-bytes                104857600            yes memory    1..9223372036854775807     8.0
    active-defrag-max-scan-fields             1000                 yes integer   1..9223372036854775807     8.0
    active-defrag-threshold-lower             10                   yes integer   0..1000                    8.0
    active-defrag-threshold-upper             100                  yes integer   0..1000                    8.0
    active-expire-effort                      1                    yes integer   1..10                      8.0
    activedefrag                              no                   yes bool      -                          8.0
    activerehashing                           yes                  yes bool      -                          8.0
    always-show-logo                          no                   no  -         -                          8.0
    aof-disable-auto-gc                       no                   yes bool      -                          hidden
    aof-load-truncated                        yes                  yes bool      -                          8.0
    aof-rewrite-cpulist                       {}                   no  -         -                          8.0
    aof-rewrite-incremental-fsync             yes                  yes bool      -                          8.0
    aof-timestamp-enabled                     no                   yes bool      -                          8.0
    aof-use-rdb-preamble                      yes                  yes bool      -                          8.0
    aof_rewrite_cpulist                       {}                   no  -         -                          8.0
    appenddirname                             appendonlydir        no  -         -                          8.0
    appendfilename                            appendonly.aof       no  -         -                          8.0
    appendfsync                               everysec             yes enum      -                          8.0
    appendonly                                no                   yes bool      -                          8.0
    auto-aof-rewrite-min-size                 67108864             yes memory    0..9223372036854775807     8.0
    auto-aof-rewrite-percentage               100                  yes integer   0..2147483647              8.0
    availability-zone                         {}                   yes string    -                          8.0
    bgsave-cpulist                            {}                   no  -         -                          8.0
    bgsave_cpulist                            {}                   no  -         -                          8.0
    bind                                      {* -::*}             yes string    -                          8.0
    bind-source-addr                          {}                   yes string    -                          8.0
    bio-cpulist                               {}                   no  -         -                          8.0
    bio_cpulist                               {}                   no  -         -                          8.0
    busy-reply-threshold                      5000                 yes integer   0..9223372036854775807     8.0
    client-default-resp                       2                    -   -         -                          gone
    client-output-buffer-limit {normal 0 0 0 slave 268435456 67108864 60 pubsub 33554432 8388608 60}
        yes string - 8.0
    client-query-buffer-limit                 1073741824           yes memory    1048576..9223372036854775807 8.0
    cluster-allow-pubsubshard-when-down       yes                  yes bool      -                          8.0
    cluster-allow-reads-when-down             no                   yes bool      -                          8.0
    cluster-allow-replica-migration           yes                  yes bool      -                          8.0
    cluster-announce-bus-port                 0                    yes integer   0..65535                   8.0
    cluster-announce-client-ipv4              {}                   yes string    -                          8.0
    cluster-announce-client-ipv6              {}                   yes string    -                          8.0
    cluster-announce-hostname                 {}                   yes string    -                          8.0
    cluster-announce-human-nodename           {}                   yes string    -                          8.0
    cluster-announce-ip                       {}                   yes string    -                          8.0
    cluster-announce-port                     0                    yes integer   0..65535                   8.0
    cluster-announce-tls-port                 0                    yes integer   0..65535                   8.0
    cluster-blacklist-ttl                     60                   yes integer   -                          8.0
    cluster-config-file                       nodes.conf           no  -         -                          8.0
    cluster-databases                         1                    -   -         -                          9.0
    cluster-enabled                           no                   no  -         -                          8.0
    cluster-link-sendbuf-limit                0                    yes memory    -                          8.0
    cluster-manual-failover-timeout           5000                 -   -         -                          9.0
    cluster-message-gossip-perc               10                   yes integer   1..100                     hidden
    cluster-migration-barrier                 1                    yes integer   0..2147483647              8.0
    cluster-node-timeout                      15000                yes integer   0..9223372036854775807     8.0
    cluster-ping-interval                     0                    yes integer   0..9223372036854775807     hidden
    cluster-port                              0                    no  -         -                          8.0
    cluster-preferred-endpoint-type           ip                   yes enum      -                          8.0
    cluster-replica-no-failover               no                   yes bool      -                          8.0
    cluster-replica-validity-factor           10                   yes integer   0..2147483647              8.0
    cluster-require-full-coverage             yes                  yes bool      -                          8.0
    cluster-slave-no-failover                 no                   yes bool      -                          8.0
    cluster-slave-validity-factor             10                   yes integer   0..2147483647              8.0
    cluster-slot-migration-log-max-len        1000                 -   -         -                          9.0
    cluster-slot-stats-enabled                no                   yes bool      -                          8.0
    commandlog-execution-slower-than          10000                -   -         -                          9.0
    commandlog-large-reply-max-len            128                  -   -         -                          9.0
    commandlog-large-request-max-len          128                  -   -         -                          9.0
    commandlog-reply-larger-than              1048576              -   -         -                          9.0
    commandlog-request-larger-than            1048576              -   -         -                          9.0
    commandlog-slow-execution-max-len         128                  -   -         -                          9.0
    crash-log-enabled                         yes                  yes bool      -                          8.0
    crash-memcheck-enabled                    yes                  yes bool      -                          8.0
    daemonize                                 no                   no  -         -                          8.0
    databases                                 16                   no  -         -                          8.0
    dbfilename                                dump.rdb             protected string    -                          8.0
    dir                                       *                    protected string    -                          8.0
    disable-thp                               yes                  no  -         -                          8.0
    dual-channel-replication-enabled          no                   yes bool      -                          8.0
    enable-debug-assert                       no                   no  -         -                          hidden
    enable-debug-command                      no                   no  -         -                          8.0
    enable-module-command                     no                   no  -         -                          8.0
    enable-protected-configs                  no                   no  -         -                          8.0
    extended-redis-compatibility              no                   yes bool      -                          8.0
    hash-max-listpack-entries                 512                  yes integer   0..9223372036854775807     8.0
    hash-max-listpack-value                   64                   yes memory    0..9223372036854775807     8.0
    hash-max-ziplist-entries                  512                  yes integer   0..9223372036854775807     8.0
    hash-max-ziplist-value                    64                   yes memory    0..9223372036854775807     8.0
    hide-user-data-from-log                   yes                  yes bool      -                          8.0
    hll-sparse-max-bytes                      3000                 yes memory    0..9223372036854775807     8.0
    hz                                        10                   yes integer   0..2147483647              8.0
    ignore-warnings                           {}                   yes string    -                          8.0
    import-mode                               no                   yes bool      -                          9.0
    io-threads                                1                    -   -         -                          8.0
    jemalloc-bg-thread                        yes                  yes bool      -                          8.0
    key-load-delay                            0                    yes integer   -2147483648..2147483647    hidden
    latency-monitor-threshold                 0                    yes integer   0..9223372036854775807     8.0
    latency-tracking                          yes                  yes bool      -                          8.0
    latency-tracking-info-percentiles         {50 99 99.9}         yes string    -                          8.0
    lazyfree-lazy-eviction                    yes                  yes bool      -                          8.0
    lazyfree-lazy-expire                      yes                  yes bool      -                          8.0
    lazyfree-lazy-server-del                  yes                  yes bool      -                          8.0
    lazyfree-lazy-user-del                    yes                  yes bool      -                          8.0
    lazyfree-lazy-user-flush                  yes                  yes bool      -                          8.0
    lfu-decay-time                            1                    yes integer   0..2147483647              8.0
    lfu-log-factor                            10                   yes integer   0..2147483647              8.0
    list-compress-depth                       0                    yes integer   0..2147483647              8.0
    list-max-listpack-size                    -2                   yes integer   -2147483648..2147483647    8.0
    list-max-ziplist-size                     -2                   yes integer   -2147483648..2147483647    8.0
    loading-process-events-interval-bytes     2097152              yes integer   1024..2147483647           hidden
    locale-collate                            {}                   yes string    -                          8.0
    log-format                                legacy               yes enum      -                          8.1
    log-timestamp-format                      legacy               yes enum      -                          8.1
    logfile                                   {}                   no  -         -                          8.0
    loglevel                                  notice               yes enum      -                          8.0
    lua-enable-insecure-api                   no                   -   -         -                          9.0
    lua-time-limit                            5000                 yes integer   0..9223372036854775807     8.0
    masterauth                                {}                   yes string    -                          8.0
    masteruser                                {}                   yes string    -                          8.0
    max-new-connections-per-cycle             10                   yes integer   1..1000                    8.0
    max-new-tls-connections-per-cycle         1                    yes integer   1..1000                    8.0
    maxclients                                10000                yes integer   1..4294967295              8.0
    maxmemory                                 0                    yes memory    -                          8.0
    maxmemory-clients                         0                    yes memory-or-percent -                          8.0
    maxmemory-eviction-tenacity               10                   yes integer   0..100                     8.0
    maxmemory-policy                          noeviction           yes enum      -                          8.0
    maxmemory-samples                         5                    yes integer   1..64                      8.0
    min-replicas-max-lag                      10                   yes integer   0..2147483647              8.0
    min-replicas-to-write                     0                    yes integer   0..2147483647              8.0
    min-slaves-max-lag                        10                   yes integer   0..2147483647              8.0
    min-slaves-to-write                       0                    yes integer   0..2147483647              8.0
    mptcp                                     no                   -   -         -                          9.0
    no-appendfsync-on-rewrite                 no                   yes bool      -                          8.0
    notify-keyspace-events                    {}                   yes string    -                          8.0
    oom-score-adj                             no                   yes enum      -                          8.0
    oom-score-adj-values                      {0 200 800}          yes string    -                          8.0
    pidfile                                   *                    no  -         -                          8.0
    port                                      6379                 yes integer   0..65535                   8.0
    prefetch-batch-max-size                   16                   yes integer   0..128                     8.0
    primaryauth                               {}                   yes string    -                          8.0
    primaryuser                               {}                   yes string    -                          8.0
    proc-title-template {{title} {listen-addr} {server-mode}}
        yes string - 8.0
    propagation-error-behavior                ignore               yes enum      -                          8.0
    protected-mode                            yes                  yes bool      -                          8.0
    proto-max-bulk-len                        536870912            yes memory    1048576..9223372036854775807 8.0
    rdb-del-sync-files                        no                   yes bool      -                          8.0
    rdb-key-save-delay                        0                    yes integer   -2147483648..2147483647    hidden
    rdb-save-incremental-fsync                yes                  yes bool      -                          8.0
    rdb-version-check                         strict               -   -         -                          9.0
    rdbchecksum                               yes                  no  -         -                          8.0
    rdbcompression                            yes                  yes bool      -                          8.0
    rdma-bind                                 {}                   -   -         -                          9.0
    rdma-completion-vector                    -1                   -   -         -                          9.0
    rdma-port                                 0                    -   -         -                          9.0
    rdma-rx-size                              1048576              -   -         -                          9.0
    repl-backlog-size                         10485760             yes memory    1..9223372036854775807     8.0
    repl-backlog-ttl                          3600                 yes integer   0..9223372036854775807     8.0
    repl-disable-tcp-nodelay                  no                   yes bool      -                          8.0
    repl-diskless-load                        disabled             yes enum      -                          8.0
    repl-diskless-sync                        yes                  yes bool      -                          8.0
    repl-diskless-sync-delay                  5                    yes integer   0..2147483647              8.0
    repl-diskless-sync-max-replicas           0                    yes integer   0..2147483647              8.0
    repl-mptcp                                no                   -   -         -                          9.0
    repl-ping-replica-period                  10                   yes integer   1..2147483647              8.0
    repl-ping-slave-period                    10                   yes integer   1..2147483647              8.0
    repl-timeout                              60                   yes integer   1..2147483647              8.0
    replica-announce-ip                       {}                   yes string    -                          8.0
    replica-announce-port                     0                    yes integer   0..65535                   8.0
    replica-announced                         yes                  yes bool      -                          8.0
    replica-ignore-disk-write-errors          no                   yes bool      -                          8.0
    replica-ignore-maxmemory                  yes                  yes bool      -                          8.0
    replica-lazy-flush                        yes                  yes bool      -                          8.0
    replica-priority                          100                  yes integer   0..2147483647              8.0
    replica-read-only                         yes                  yes bool      -                          8.0
    replica-serve-stale-data                  yes                  yes bool      -                          8.0
    replicaof                                 {}                   no  -         -                          8.0
    requirepass                               {}                   yes string    -                          8.0
    sanitize-dump-payload                     no                   yes enum      -                          gone
    save                                      {3600 1 300 100 60 10000} yes string    -                          8.0
    server-cpulist                            {}                   no  -         -                          8.0
    server_cpulist                            {}                   no  -         -                          8.0
    set-max-intset-entries                    512                  yes integer   0..9223372036854775807     8.0
    set-max-listpack-entries                  128                  yes integer   0..9223372036854775807     8.0
    set-max-listpack-value                    64                   yes integer   0..9223372036854775807     8.0
    set-proc-title                            yes                  no  -         -                          8.0
    shutdown-on-sigint                        default              yes enum      -                          8.0
    shutdown-on-sigterm                       default              yes enum      -                          8.0
    shutdown-timeout                          10                   yes integer   0..2147483647              8.0
    slave-announce-ip                         {}                   yes string    -                          8.0
    slave-announce-port                       0                    yes integer   0..65535                   8.0
    slave-ignore-maxmemory                    yes                  yes bool      -                          8.0
    slave-lazy-flush                          yes                  yes bool      -                          8.0
    slave-priority                            100                  yes integer   0..2147483647              8.0
    slave-read-only                           yes                  yes bool      -                          8.0
    slave-serve-stale-data                    yes                  yes bool      -                          8.0
    slaveof                                   {}                   no  -         -                          8.0
    slot-migration-max-failover-repl-bytes    0                    -   -         -                          9.0
    slowlog-log-slower-than                   10000                yes integer   -1..9223372036854775807    8.0
    slowlog-max-len                           128                  yes integer   0..9223372036854775807     8.0
    socket-mark-id                            0                    no  -         -                          8.0
    stop-writes-on-bgsave-error               yes                  yes bool      -                          8.0
    stream-node-max-bytes                     4096                 yes memory    0..9223372036854775807     8.0
    stream-node-max-entries                   100                  yes integer   0..9223372036854775807     8.0
    supervised                                no                   no  -         -                          8.0
    syslog-enabled                            no                   no  -         -                          8.0
    syslog-facility                           local0               no  -         -                          8.0
    syslog-ident                              valkey               no  -         -                          8.0
    tcp-backlog                               511                  no  -         -                          8.0
    tcp-keepalive                             300                  yes integer   0..2147483647              8.0
    timeout                                   0                    yes integer   0..2147483647              8.0
    tls-auth-clients                          yes                  yes enum      -                          tls
    tls-auth-clients-user                     off                  -   -         -                          tls
    tls-auto-reload-interval                  0                    -   -         -                          tls
    tls-ca-cert-dir                           {}                   yes string    -                          tls
    tls-ca-cert-file                          {}                   yes string    -                          tls
    tls-cert-file                             {}                   yes string    -                          tls
    tls-ciphers                               {}                   yes string    -                          tls
    tls-ciphersuites                          {}                   yes string    -                          tls
    tls-client-cert-file                      {}                   yes string    -                          tls
    tls-client-key-file                       {}                   yes string    -                          tls
    tls-client-key-file-pass                  {}                   yes string    -                          tls
    tls-cluster                               no                   yes bool      -                          tls
    tls-dh-params-file                        {}                   yes string    -                          tls
    tls-key-file                              {}                   yes string    -                          tls
    tls-key-file-pass                         {}                   yes string    -                          tls
    tls-port                                  0                    yes integer   0..65535                   tls
    tls-prefer-server-ciphers                 no                   yes bool      -                          tls
    tls-protocols                             {}                   yes string    -                          tls
    tls-replication                           no                   yes bool      -                          tls
    tls-session-cache-size                    20480                yes integer   0..2147483647              tls
    tls-session-cache-timeout                 300                  yes integer   0..2147483647              tls
    tls-session-caching                       yes                  yes bool      -                          tls
    tracking-table-max-keys                   1000000              yes integer   0..9223372036854775807     8.0
    unixsocket                                {}                   no  -         -                          8.0
    unixsocketgroup                           {}                   no  -         -                          8.0
    unixsocketperm                            0                    no  -         -                          8.0
    use-exit-on-panic                         no                   yes bool      -                          hidden
    watchdog-period                           0                    yes integer   0..2147483647              hidden
    zset-max-listpack-entries                 128                  yes integer   0..9223372036854775807     8.0
    zset-max-listpack-value                   64                   yes memory    0..9223372036854775807     8.0
    zset-max-ziplist-entries                  128                  yes integer   0..9223372036854775807     8.0
    zset-max-ziplist-value                    64                   yes memory    0..9223372036854775807     8.0
}

proc each_option {names script} {
    foreach {name default runtime kind limits since} $::options {
        if {$since eq "tls"} {
            # Only in builds with TLS.
            if {[r config get $name] eq ""} continue
        } elseif {$since ni {hidden gone}} {
            lassign [split $since -] version since
            if {![server_at_least $version]} continue
        }
        uplevel 1 [list lassign [list $name $default $runtime $kind $limits $since] {*}$names]
        uplevel 1 $script
    }
}

# Reports the errors of all options together.
proc complain {list} {if {$list ne ""} {fail "[llength $list] options: [join $list {; }]"}}

start_server {overrides {io-threads - bind - save - daemonize - enable-debug-command - enable-protected-configs \
    - set-proc-title - rdma-bind - rdma-port -} no_rdma 1 tags {options}} {
    test "CONFIG GET knows every option" {
        set wrong {}
        each_option {name} {if {[r config get $name] eq ""} {lappend wrong $name}}
        complain $wrong
    }

    test "every option has its default" {
        set wrong {}
        each_option {name default} {
            if {$default eq "*" || $name eq "port"} continue
            set got [r config get $name]
            if {$got ne "" && [lindex $got 1] ne $default} {
                lappend wrong "$name is '[lindex $got 1]' and not '$default'"
            }
        }
        complain $wrong
    }

    test "CONFIG GET * lists every option but the hidden ones" {
        set all [r config get *]
        set wrong {}
        each_option {name default runtime kind limits since} {
            # Options that 9.1 no longer has are accepted but not listed.
            if {$name eq "lua-enable-insecure-api" || $since eq "gone"} continue
            if {[dict exists $all $name] == ($since eq "hidden")} {lappend wrong $name}
        }
        complain $wrong
    }

    test "options that can be set at run time accept their current value" {
        set wrong {}
        each_option {name default runtime} {
            # Active defragmentation depends on the allocator; ports and addresses have their own tests.
            if {$runtime ne "yes" || $name in {port bind tls-port activedefrag} || [string match tls-* $name]} continue
            if {[r config get $name] eq ""} continue
            set got [r -typed config set $name [lindex [r config get $name] 1]]
            if {$got ne "+OK"} {lappend wrong "$name: $got"}
        }
        complain $wrong
    }

    test "what cannot be set at run time says so" {
        set wrong {}
        each_option {name default runtime} {
            if {$runtime ni {no protected} || [r config get $name] eq ""} continue
            if {$name eq "io-threads" && [server_at_least 9.0]} continue
            set got [r -typed config set $name [lindex [r config get $name] 1]]
            set why [expr {$runtime eq "no" ? "immutable" : "protected"}]
            # Setting the current value is rejected as well.
            if {$got ne "-ERR CONFIG SET failed (possibly related to argument '$name') - can't set $why config"} {
                lappend wrong "$name: $got"
            }
        }
        complain $wrong
    }

    test "limits of numbers" {
        set wrong {}
        each_option {name default runtime kind limits} {
            if {$runtime ne "yes" || $limits eq "-" || $kind ni {integer memory} || [string match tls-* $name] || \
                $name eq "hz"} continue
            if {[r config get $name] eq ""} continue
            regexp {^(-?\d+)\.\.(-?\d+)$} $limits -> low high
            set text "-ERR CONFIG SET failed (possibly related to argument '$name') - argument must be between $low\
                and $high inclusive"
            set tries {}
            if {$low > -2147483648 && ($kind eq "integer" || $low > 0)} {lappend tries [expr {$low - 1}]}
            if {$high < 9223372036854775807} {lappend tries [expr {$high + 1}]}
            foreach bad $tries {
                set got [r -typed config set $name $bad]
                if {$got ne $text} {lappend wrong "$name $bad: $got"}
            }
        }
        complain $wrong
    }

    test "booleans reject other values" {
        set wrong {}
        each_option {name default runtime kind} {
            if {$runtime ne "yes" || $kind ne "bool" || [r config get $name] eq ""} continue
            set got [r -typed config set $name maybe]
            if {$got ne "-ERR CONFIG SET failed (possibly related to argument '$name')\
                - argument must be 'yes' or 'no'"} {
                lappend wrong "$name: $got"
            }
        }
        complain $wrong
    }

    test "CONFIG GET finds both names of an option" {
        foreach {old new} {
            slaveof replicaof  slave-priority replica-priority  bio_cpulist bio-cpulist  server_cpulist server-cpulist
            aof_rewrite_cpulist aof-rewrite-cpulist  bgsave_cpulist bgsave-cpulist  masteruser primaryuser
            min-slaves-to-write min-replicas-to-write  list-max-ziplist-size list-max-listpack-size
        } {
            assert_equal [config_get $old] [config_get $new] $old
            assert {[r config get $old] ne ""}
        }
    }
}
