# CLUSTER between real nodes: they meet, get slots and replicas, are shown to clients, fail over, forget and reset.
# seconds: 6

set node {overrides {cluster-enabled yes cluster-node-timeout 2000 repl-diskless-sync-delay 0 save {}} tags {cluster}}

proc id {level} {r $level cluster myid}
# The line of a node in CLUSTER NODES, as a list of words.
proc line {level of} {
    foreach line [split [r $level cluster nodes] \n] {
        if {[lindex $line 0] eq $of} {return $line}
    }
}
proc flags {level of} {split [lindex [line $level $of] 2] ,}
proc cluster_field {level field} {dict get [info_dict [r $level cluster info]] $field}
proc known {level} {cluster_field $level cluster_known_nodes}
# The port for clients of the transport of this run.
proc told_port {level} {
    foreach option {rdma-port tls-port} {
        set port [lindex [r $level config get $option] 1]
        if {$port ne "" && $port != 0} {return $port}
    }
    srv $level port
}
proc is_ok {level} {expr {[cluster_field $level cluster_state] eq "ok"}}

start_server $node {
    test "slots are added and deleted, all or none" {
        assert_equal OK [r cluster addslots 1 3 5]
        assert_error "ERR Slot 3 is already busy" {r cluster addslots 2 3}
        assert_error "ERR Slot 2 specified multiple times" {r cluster addslotsrange 2 2 2 4}
        assert_match "*connected 1 3 5" [line 0 [id 0]]
        assert_equal OK [r cluster addslotsrange 2 2 6 10]
        assert_equal OK [r cluster delslots 1 5]
        assert_match "*connected 2-3 6-10" [line 0 [id 0]]
        assert_equal OK [r cluster delslotsrange 7 8]
        assert_equal {{2 3} {6 6} {9 10}} [lmap range [r cluster slots] {lrange $range 0 1}]
        assert_equal OK [r cluster flushslots]
        assert_equal {} [r cluster slots]
    }

    test "an address is an IP address" {
        assert_error "ERR Invalid node address specified: localhost:7000" {r cluster meet localhost 7000}
        assert_error "ERR Cluster bus port number is out of range" {r cluster meet 127.0.0.1 60000}
        assert_equal OK [r cluster meet 127.0.0.1 7000 17001]
        assert_match "*127.0.0.1:*@17001 handshake - * disconnected*" [r cluster nodes]
        wait_for_condition 10000 {[known 0] == 1}
        assert_not_match "*handshake*" [r cluster nodes]
    }

    test "CLUSTER SAVECONFIG writes the file" {
        file delete [file join [srv dir] nodes.conf]
        assert_equal OK [r cluster saveconfig]
        assert_match "[id 0] *myself,master*" [file_bytes [file join [srv dir] nodes.conf]]
    }

    test "FLUSHSLOT deletes the keys of a slot, with events only where somebody listens" {
        r cluster addslotsrange 0 16383
        wait_for_condition 10000 {[is_ok 0]}
        foreach listens {0 1} {
            r config set notify-keyspace-events [expr {$listens ? "Eg" : ""}]
            foreach key {{{a}1} {{a}2} {{a}3} b} {r set $key value}
            r sadd {{a}4} [string repeat x 1000] member
            assert_equal 4 [r cluster countkeysinslot 15495]
            assert_same_elements {{{a}1} {{a}2} {{a}3} {{a}4}} [r cluster getkeysinslot 15495 100]
            assert_equal 2 [llength [r cluster getkeysinslot 15495 2]]
            set subscriber [new_client]
            $subscriber psubscribe *
            assert_equal OK [r cluster flushslot 15495 [expr {$listens ? "sync" : "async"}]]
            for {set i 0; set events {}} {$i < 4 && $listens} {incr i} {lappend events [lrange [$subscriber -read] 2 3]}
            if {$listens} {
                set expected [lmap n {1 2 3 4} {list __keyevent@0__:del "{a}$n"}]
                assert_same_elements $expected $events
            }
            $subscriber -close
            assert_equal 0 [r cluster countkeysinslot 15495]
            assert_equal {} [r cluster getkeysinslot 15495 100]
            assert_equal 1 [r dbsize]
            assert_equal OK [r cluster flushslot 15495]
        }
        assert_error "ERR DB must be empty to perform CLUSTER FLUSHSLOTS." {r cluster flushslots}
        assert_error "ERR CLUSTER RESET can't be called with master nodes containing keys" {r cluster reset}
    }

    test "a tracked key is invalid after FLUSHSLOT" {
        set c [new_client -resp 3]
        $c client tracking on
        r set {{a}1} value
        $c get {{a}1}
        r cluster flushslot 15495
        assert_equal {invalidate {{{a}1}}} [$c -push]
    }

    test "a node that is reset hard is another node" {
        r flushall
        set id [id 0]
        set shard [r cluster myshardid]
        assert_match "BUMPED 1" [r cluster bumpepoch]
        assert_equal "STILL 1" [r cluster bumpepoch]
        assert_equal OK [r cluster reset]
        assert_equal $id [id 0]
        assert_not_equal $shard [r cluster myshardid]
        wait_for_log "Moving myself to a new shard [r cluster myshardid]."
        assert_equal OK [r cluster reset hard]
        assert_not_equal $id [id 0]
        assert_equal OK [r cluster set-config-epoch 5]
        assert_error "ERR Node config epoch is already non-zero" {r cluster set-config-epoch 6}
    }
}

start_server $node {
    start_server $node {
        start_server $node {
            test "nodes meet, and all know all" {
                r cluster meet 127.0.0.1 [srv -1 port]
                r cluster meet 127.0.0.1 [srv -2 port]
                foreach level {0 -1 -2} {
                    wait_for_condition 20000 {[known $level] == 3}
                    foreach of {0 -1 -2} {
                        wait_for_condition 20000 {[lindex [line $level [id $of]] 7] eq "connected"}
                    }
                }
                assert_equal [lsort [list [id 0] [id -1] [id -2]]] \
                    [lsort [lmap line [split [string trim [r cluster nodes]] \n] {lindex $line 0}]]
            }

            test "LINKS has a link in each direction to each node" {
                wait_for_condition 10000 {[llength [r cluster links]] == 4}
                set c [new_client -resp 3]
                foreach link [$c cluster links] {
                    assert_equal {direction node create-time events send-buffer-allocated send-buffer-used}\
                        [dict keys $link]
                    assert_in [dict get $link node] [list [id -1] [id -2]]
                    assert_in [dict get $link direction] {to from}
                    lappend seen [dict get $link direction] [dict get $link node]
                }
                assert_equal 4 [llength [lsort -unique [lmap {direction node} $seen {list $direction $node}]]]
            }

            test "slots and a replica are shown by all nodes" {
                r cluster addslotsrange 0 8000
                r -1 cluster addslotsrange 8001 16383
                r -2 cluster replicate [id 0]
                foreach level {0 -1 -2} {
                    wait_for_condition 20000 {[is_ok $level]}
                    wait_for_condition 20000 {[flags $level [id -2]] in {slave {myself slave}}}
                }
                r set {{06S}a} value ;# slot 0. A replica without an offset is not shown
                foreach level {0 -1 -2} {
                    wait_for_condition 20000 {[llength [lindex [r $level cluster slots] 0]] == 4}
                    set ranges [r $level cluster slots]
                    assert_equal {{0 8000} {8001 16383}} [lmap range $ranges {lrange $range 0 1}]
                    assert_equal [list [list 127.0.0.1 [told_port 0] [id 0] {}]\
                        [list 127.0.0.1 [told_port -2] [id -2] {}]] [lrange [lindex $ranges 0] 2 3]
                }
                assert_equal [list [join [line 0 [id -2]]]] [lmap line [r cluster replicas [id 0]] {join $line}]
                assert_error "ERR The specified node is not a master" {r cluster replicas [id -2]}
                assert_equal [r cluster myshardid] [r -2 cluster myshardid]
            }

            test "SHARDS shows roles, offsets as they are now, and health" {
                set c [new_client -resp 3]
                wait_for_condition 20000 {[string first loading [$c cluster shards]] < 0}
                set shards [$c cluster shards]
                assert_equal 2 [llength $shards]
                foreach shard $shards {
                    if {[dict get $shard id] ne [r cluster myshardid]} continue
                    assert_equal {0 8000} [dict get $shard slots]
                    assert_equal {master replica} [lmap node [dict get $shard nodes] {dict get $node role}]
                    set before [dict get [lindex [dict get $shard nodes] 0] replication-offset]
                }
                r set {{06S}a} value ;# slot 0
                foreach shard [$c cluster shards] {
                    if {[dict get $shard id] ne [r cluster myshardid]} continue
                    assert_morethan [dict get [lindex [dict get $shard nodes] 0] replication-offset] $before
                }
            }

            test "options that announce addresses take effect at once" {
                with_config {cluster-announce-hostname host.example cluster-preferred-endpoint-type hostname} {
                    assert_equal [list host.example [told_port 0] [id 0] {ip 127.0.0.1}] \
                        [lindex [r cluster slots] 0 2]
                    assert_match "*,host.example" [lindex [line 0 [id 0]] 1]
                }
                with_config {cluster-preferred-endpoint-type unknown-endpoint} {
                    assert_equal "" [lindex [r cluster slots] 0 2 0]
                }
                assert_equal 127.0.0.1 [lindex [r cluster slots] 0 2 0]
            }

            test "the announced port depends on the transport of the client that asks" {
                set told [expr {$::opt(rdma) ? 7003 : $::opt(tls) ? 7002 : 7001}]
                with_config {cluster-announce-client-port 7001 cluster-announce-client-tls-port 7002
                    cluster-announce-client-rdma-port 7003} {
                    assert_equal $told [lindex [r cluster slots] 0 2 1]
                    assert_match "*:$told@*" [lindex [line 0 [id 0]] 1]
                    wait_for_condition 10000 {[lindex [r -1 cluster slots] 0 2 1] == $told} ;# the others know it
                }
            }

            test "FLUSHSLOT reaches the replica" {
                r set {{06S}b} value
                wait_for_condition 10000 {[r -2 cluster countkeysinslot 0] == 2}
                assert_error_like "READONLY*" {r -2 cluster flushslot 0}
                r cluster flushslot 0 sync
                wait_for_condition 10000 {[r -2 cluster countkeysinslot 0] == 0}
            }

            test "SHARDS lists no slots of replicas" {
                r -2 multi
                foreach words {{delslots 8000} {addslots 8000} shards} {r -2 cluster {*}$words}
                foreach shard [lindex [r -2 exec] 2] {
                    if {[dict get $shard id] eq [r cluster myshardid]} {assert_equal {0 7999} [dict get $shard slots]}
                }
                r -2 cluster delslots 8000 ;# the next ping of the primary brings it back
                wait_for_condition 20000 {[lrange [lindex [r -2 cluster slots] 0] 0 1] eq {0 8000}}
            }

            test "FAILOVER exchanges the primary and its replica" {
                assert_error "ERR You should send CLUSTER FAILOVER to a replica" {r cluster failover}
                assert_error "ERR syntax error" \
                    {r -2 cluster failover force replicaid [id -2]}
                assert_equal OK [r -2 cluster failover]
                wait_for_condition 20000 {"master" in [flags -2 [id -2]] && "slave" in [flags 0 [id 0]]}
                assert_equal [id -2] [lindex [line 0 [id 0]] 3]
                wait_for_condition 20000 {[lindex [r -1 cluster slots] 0 2 2] eq [id -2]}
            }

            test "a replica does not forget its primary; another node is forgotten" {
                assert_error "ERR Can't forget my master!" {r cluster forget [id -2]}
                assert_error "ERR I tried hard but I can't forget myself..." {r cluster forget [id 0]}
                set gone [id -1]
                assert_equal OK [r cluster forget $gone]
                assert_equal OK [r cluster forget $gone]
                assert_equal "" [line 0 $gone]
                assert_error "ERR Unknown node $gone" {r cluster replicas $gone}
            }

            test "a replica that follows no one is an empty primary" {
                set from [log_size 0]
                assert_equal OK [r cluster replicate no one]
                assert_equal {myself master} [flags 0 [id 0]]
                wait_for_log "Stop replication and turning myself into empty primary (request from 'id=* addr=*\
                    laddr=*:* fd=* name=* user=* lib-name=* lib-ver=*')." $from
                wait_for_log "Moving myself to a new shard [r cluster myshardid]." $from
                assert_equal 0 [r dbsize]
                assert_equal OK [r cluster replicate no one]
            }
        }
    }
}
