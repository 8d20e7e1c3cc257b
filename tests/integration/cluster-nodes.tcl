# A node of a cluster: start, nodes.conf, locks, damaged files. seconds: 22

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

    test "a new node that gets all slots serves them at once, not as after a partition" {
        r cluster addslotsrange 0 16383
        wait_for_condition 4000 {[info_field cluster_info cluster_state] eq "ok"}
        r cluster flushslots
        wait_for_condition 4000 {[info_field cluster_info cluster_state] eq "fail"}
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
        "$id :1@2,ho\0st myself,master - 0 0 0 connected\n$end" {*Line 1: there is a byte 0*} \
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

test "a replica whose shard id differs from that of its primary gets the primary's" {
    set replica [string repeat a 40]
    set primary [string repeat b 40]
    set lines {}
    set number 0
    foreach {id port flags rest} [list \
        $replica 7001 myself,slave "$primary 0 0 1 connected" $primary 7002 master "- 0 0 1 connected 0-16383" \
    ] shard [list [string repeat 1 40] [string repeat 2 40]] {
        lappend lines "$id 127.0.0.1:$port@1$port,,tls-port=0,shard-id=$shard $flags $rest"
    }
    foreach text [list [join $lines \n] [join [lreverse $lines] \n]] of {"'s shard id" ""} {
        set dir [file join $::unit_dir shard[incr number]]
        file mkdir $dir
        write_file [file join $dir nodes.conf] "$text\nvars currentEpoch 1 lastVoteEpoch 0\n"
        start_server [list keep_dir $dir overrides {cluster-enabled yes}] {
            assert_equal [string repeat 2 40] [r cluster myshardid]
            assert [log_has "Node $replica has a different shard id ([string repeat 1 40]) than its primary$of $primary\
                ([string repeat 2 40]). Updating replica's shard id to match primary's shard id."]
        }
    }
}

test "nodes.conf that is a directory" {
    set dir [file join $::unit_dir directory]
    file mkdir [file join $dir nodes.conf]
    set got [run_server --port [free_port] --cluster-enabled yes --dir $dir]
    assert_equal 1 [dict get $got code]
    assert_match "*Can't open nodes.conf in order to acquire a lock: Is a directory*" [dict get $got out]
}

# Sends bytes to the bus of a node and waits until it closes the connection.
proc send_to_bus {i bytes} {
    set s [socket 127.0.0.1 [node_bus_port $i]]
    fconfigure $s -translation binary -blocking 0 -buffering none
    puts -nonewline $s $bytes
    set end [resp::deadline 10000]
    while {![eof $s]} {
        read $s
        if {[clock milliseconds] > $end} {
            close $s
            return open
        }
        after 5
    }
    close $s
    return closed
}

start_cluster {primaries 3 form 0} {
    test "nodes that meet know each other, and a third one by gossip" {
        assert_equal OK [n 0 cluster meet 127.0.0.1 [node_base_port 1]]
        assert_equal OK [n 1 cluster meet 127.0.0.1 [node_base_port 2] [node_bus_port 2]]
        foreach i [nodes] {
            set ids [lsort [lmap j [nodes] {node_id $j}]]
            wait_for_condition 20000 {[lsort [dict keys [cluster_view $i]]] eq $ids}
        }
        wait_for_cluster_agreement
        foreach i [nodes] {
            wait_for_condition 10000 {[info_field_of $i clients cluster_connections] == 4}
            assert {[info_field_of $i memory mem_cluster_links] > 0}
        }
        wait_for_condition 10000 {[llength [n 0 cluster links]] == 4}
        assert_error "ERR Cannot free cluster link(s) to myself" {n 0 debug clusterlink kill all [node_id 0]}
    }

    test "a forgotten node is forgotten by all, and comes back with MEET after cluster-blacklist-ttl" {
        foreach i [nodes] {n $i config set cluster-blacklist-ttl 2}
        assert_equal OK [n 0 cluster forget [node_id 2]]
        foreach i {0 1} {wait_for_condition 20000 {![dict exists [cluster_view $i] [node_id 2]]}}
        # Gossip does not bring it back, an explicit MEET does. A node that meets it first may forget it once more for
        # the other one, whose pings still name it as forgotten.
        proc meet_until_known {} {
            foreach i {0 1} {
                if {[llength [cluster_opinion $i]] < 3} {n $i cluster meet 127.0.0.1 [node_base_port 2]}
            }
            set opinions [lsort -unique [lmap i [nodes] {cluster_opinion $i}]]
            expr {[llength $opinions] == 1 && [llength [lindex $opinions 0]] == 3}
        }
        wait_for_condition 30000 {[meet_until_known]}
        foreach i [nodes] {n $i config set cluster-blacklist-ttl 60}
    }

    test "CLUSTER RESET leaves the cluster; HARD also gives a new id, which is on disk" {
        set id [node_id 2]
        assert_equal OK [n 2 cluster reset]
        wait_for_condition 10000 {[n 2 cluster myid] eq $id && [cluster_field 2 cluster_known_nodes] == 1}
        assert_equal OK [n 2 cluster reset hard]
        set new [n 2 cluster myid]
        assert_not_equal $id $new
        assert_equal 0 [cluster_field 2 cluster_current_epoch]
        n 2 cluster saveconfig
        node_restart 2 KILL
        assert_equal $new [n 2 cluster myid]
        foreach i {0 1} {n $i cluster forget $id}
        unset ::server([node 2 id],node_id)
    }

    test "a node with another id at a known address is not taken for the known one" {
        n 0 cluster meet 127.0.0.1 [node_base_port 2]
        foreach i [nodes] {wait_for_condition 20000 {[llength [dict keys [cluster_view $i]]] == 3}}
        wait_for_cluster_agreement
        set id [node_id 2]
        node_kill 2 KILL
        file delete [file join [node 2 dir] nodes.conf]
        node_start 2
        wait_for_condition 10000 {"noaddr" in [dict get [cluster_view 0] $id flags]}
        foreach i {0 1} {n $i cluster forget $id}
        unset ::server([node 2 id],node_id)
    }

    test "bytes that are no message end the connection, and lengths beyond all limits, too" -tags {tcp-only} {
        set from [node_log_size 0]
        assert_equal closed [send_to_bus 0 "GET / HTTP/1.1\r\nHost: x\r\n\r\n"]
        wait_for_node_log 0 "Bad message length or signature received on the Cluster bus from 127.0.0.1:" $from
        # A PUBLISH of 4 GiB, and a PING of 2 GiB.
        assert_equal closed [send_to_bus 0 [binary format a4IuSuSuSuSu RCmb 0xffffffff 1 0 4 0]]
        assert_equal closed [send_to_bus 0 [binary format a4IuSuSuSuSu RCmb 0x7fffffff 1 0 0 0]]
        assert_equal PONG [n 0 ping]
    }

    test "a light message as the first one on a link ends it" -tags {tcp-only} {
        set from [node_log_size 0]
        assert_equal closed [send_to_bus 0 [binary format a4IuSuSuSuSuIuIua* RCmb 26 1 0 0x8004 0 1 1 cm]]
        wait_for_node_log 0 "sent a lightweight message of type publish as its first message on the link" $from
    }

    test "connections that say nothing are closed after a while" -tags {tcp-only} {
        set s [socket 127.0.0.1 [node_bus_port 0]]
        fconfigure $s -blocking 0
        wait_for_condition 30000 {[read $s; eof $s]}
        close $s
    }
}

start_cluster {primaries 2 form 0 overrides {maxclients 8}} {
    test "connections of the bus count against maxclients, and the error says so" -tags {tcp-only} {
        set clients {}
        for {set i 0} {$i < 6} {incr i} {lappend clients [new_client -level [node_level 0]]}
        foreach c $clients {assert_equal PONG [$c ping]}
        n 0 cluster meet 127.0.0.1 [node_base_port 1]
        wait_for_condition 20000 {[cluster_field 0 cluster_known_nodes] == 2}
        set c [new_client -level [node_level 0]]
        assert_equal "-ERR max number of clients + cluster connections reached" [$c -readline]
    }
}

start_cluster {primaries 2 replicas 1} {
    # Nodes 0 and 1 are primaries, 2 and 3 their replicas.
    test "a full synchronization tells a replica which slots are open" {
        assert_equal OK [n 0 cluster setslot 5 migrating [node_id 1]]
        assert_equal OK [n 0 cluster setslot 16000 importing [node_id 1]]
        set from [node_log_size 2]
        # The replica has no position in the stream any more.
        node_kill 2 KILL
        node_start 2
        wait_for_node_log 2 "PRIMARY <-> REPLICA sync: Finished with success" $from
        wait_for_condition 10000 {[string match "*\\\[5->-[node_id 1]\\\]*" [n 2 cluster nodes]]}
        assert_match "*\\\[16000-<-[node_id 1]\\\]*" [n 2 cluster nodes]
        n 0 cluster setslot 5 stable
        n 0 cluster setslot 16000 stable
    }

    test "a node that runs a long script is not taken for failed, and answers in time" {
        n 0 config set busy-reply-threshold 20
        set c [new_client -level [node_level 0] -deferring 1]
        $c eval "while true do end" 0
        wait_for_condition 10000 {[n 0 -typed ping] eq "-BUSY Valkey is busy running a script. You can only call SCRIPT\
            KILL or SHUTDOWN NOSAVE."}
        set pongs [cluster_field 1 cluster_stats_messages_pong_received]
        wait_for_condition 20000 {[cluster_field 1 cluster_stats_messages_pong_received] > $pongs + 9}
        foreach i {1 2 3} {assert_equal {master} [node_flags $i 0]}
        n 0 script kill
        catch {$c -read}
        assert_equal PONG [n 0 ping]
        foreach i {1 2 3} {assert_equal {master} [node_flags $i 0]}
    }

    test "a node drops the keys of slots that others serve when it starts, and takes slots that nobody serves" {
        set tag [slot_tag 100]
        n 0 set $tag:k v
        n 0 save
        n 0 cluster delslots 100
        n 1 cluster delslots 100
        n 1 cluster addslots 100
        wait_for_condition 10000 {[slot_owner 100] == 1}
        set conf [file join [node 0 dir] nodes.conf]
        wait_for_condition 10000 {[regexp -line "^[node_id 1] .* 100( |$)" [file_bytes $conf]]}
        n 0 config set cluster-replica-no-failover yes
        n 2 config set cluster-replica-no-failover yes
        set from [node_log_size 0]
        node_restart 0 KILL
        wait_for_node_log 0 "I have keys for slot 100, but the slot is assigned to another node. Deleting keys in the\
            slot." $from
        wait_for_condition 10000 {[n 0 dbsize] == 0}
    }
}

start_server {overrides {cluster-enabled yes} tags {cluster}} {
    test "a node without nodes.conf takes the slots that its data set has keys of" {
        r cluster addslotsrange 0 16383
        wait_for_condition 10000 {[string match "*cluster_state:ok*" [r cluster info]]}
        set tag [slot_tag 7]
        r set $tag:k v
        r save
        set id [r cluster myid]
        kill_process KILL [srv pid]
        set ::server([srv id],expect_exit) 1
        server_reap [srv id]
        file delete [file join [srv dir] nodes.conf]
        set from [log_size]
        reconnect
        server_launch [srv id]
        assert [server_wait_up [srv id]]
        set ::server([srv id],expect_exit) 0
        wait_for_log "I have keys for unassigned slot 7. Taking responsibility for it." $from
        assert_not_equal $id [r cluster myid]
        assert_match "*connected 7\n" [r cluster nodes]
    }
}
