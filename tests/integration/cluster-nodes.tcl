# A node of a cluster: start, nodes.conf, locks, damaged files.

proc nodes_conf {} {file_bytes [file join [srv dir] nodes.conf]}
proc own_id {} {
    regexp -line {^(\S{40}) .*myself} [nodes_conf] -> id
    return $id
}

start_server {overrides {cluster-enabled yes} tags {cluster}} {
    test "a new node writes nodes.conf, and says in the log who it is" {
        wait_for_log "No cluster configuration found, I'm [own_id]"
        assert_match "[own_id] :[srv port]@*,,*tls-port=*,shard-id=* myself,master - 0 0 0 connected\nvars\
            currentEpoch 0 lastVoteEpoch 0\n" [nodes_conf]
    }

    test "a node shows that it is one" {
        assert_equal 1 [info_field cluster cluster_enabled]
        assert_equal cluster [info_field server server_mode]
        assert_equal cluster [dict get [r hello] mode]
        assert_match {*\[cluster\]} [string trim [exec ps -o args= -p [srv pid]]]
        assert_equal fail [info_field cluster_info cluster_state]
        assert_equal 1 [info_field cluster_info cluster_known_nodes]
    }

    test "the number of databases is that of cluster-databases" {
        assert_equal 1 [config_get cluster-databases]
        assert_error "ERR DB index is out of range" {r select 1}
    }

    test "a restarted node is the same node, also after SIGKILL" {
        foreach signal {TERM KILL} {
            set id [own_id]
            set from [log_size]
            restart_server -signal $signal
            wait_for_log "Node configuration loaded, I'm $id" $from
            assert_equal $id [own_id]
        }
        assert [log_has "Saving the cluster configuration file before exiting."]
    }

    test "a second server cannot use the same nodes.conf, also after it was written again" {
        set got [run_in_dir [srv dir] {run_server --port [free_port] --cluster-enabled yes}]
        assert_equal 1 [dict get $got code]
        assert_match "*Sorry, the cluster configuration file nodes.conf is already used by a different Cluster node.*" \
            [dict get $got out]
    }
}

test "the bus needs a port below 65536" {
    set dir [file join $::unit_dir high]
    file mkdir $dir
    set got [run_server --port 60000 --cluster-enabled yes --dir $dir]
    assert_equal 1 [dict get $got code]
    assert_match "*Your Valkey port number must be 55535 or less.*" [dict get $got out]
}

test "the bus needs an address" {
    set dir [file join $::unit_dir nowhere]
    file mkdir $dir
    set got [run_server --port [free_port] --cluster-enabled yes --dir $dir --bind ""]
    assert_equal 1 [dict get $got code]
    assert_match "*No bind address is configured, but it is required for the Cluster bus.*" [dict get $got out]
}

test "replicaof is refused, before and after cluster-enabled" {
    foreach lines {"cluster-enabled yes\nreplicaof 127.0.0.1 1\n" "replicaof 127.0.0.1 1\ncluster-enabled yes\n"} {
        set file [file join $::unit_dir replicaof.conf]
        write_file $file $lines
        refuses_to_start "replicaof directive not allowed in cluster mode" $file
    }
}

test "a node does not start with a damaged nodes.conf, and leaves it as it is" {
    set id [string repeat a 40]
    set other [string repeat b 40]
    set end "vars currentEpoch 0 lastVoteEpoch 0\n"
    foreach {text reason} [list \
        "garbage\n" {"garbage". Line 1: *} \
        "$id :1@2 master - 0 0 0 connected\n$end" {*} \
        "$id :1@2 myself,master - 0 0 0 connected\n$id :1@2 master - 0 0 0 connected\n$end" {*} \
        "$id :1@2 myself,slave $other 0 0 0 connected\n$end" {*a primary is not there*} \
        "$id :1@2 myself,master - 0 0 0 connected 16384\n$end" {*Line 1: *} \
    ] {
        set dir [file join $::unit_dir damaged]
        file mkdir $dir
        write_file [file join $dir nodes.conf] $text
        set got [run_server --port [free_port] --cluster-enabled yes --dir $dir]
        assert_equal 1 [dict get $got code] $text
        assert_match "*Unrecoverable error: corrupted cluster config file $reason" [dict get $got out]
        assert_equal $text [file_bytes [file join $dir nodes.conf]]
    }
}

test "nodes.conf that is a directory" {
    set dir [file join $::unit_dir directory]
    file mkdir [file join $dir nodes.conf]
    set got [run_server --port [free_port] --cluster-enabled yes --dir $dir]
    assert_equal 1 [dict get $got code]
    assert_match "*Can't open nodes.conf in order to acquire a lock: Is a directory*" [dict get $got out]
}
