# Synchronous replication in a cluster: a shard elects its primary before the cluster does. With --rdma, clients and
# links use RDMA. seconds: 26

set cluster_sync_options {sync-replication yes min-sync-replicas 1 repl-diskless-sync-delay 0 repl-timeout 5
    cluster-require-full-coverage no}

proc wait_sync_ready {i {replicas 1} {members 0}} {
    wait_for_condition 20000 {
        [repl_field $i sync_writable] eq 1 && [repl_field $i sync_in_sync_replicas] >= $replicas &&
        [repl_field $i sync_set_changes] eq 0 && [repl_field $i sync_members] >= $members
    } "shard of $i: [repl_field $i sync_replication] [repl_field $i sync_obstacle],\
        [repl_field $i sync_in_sync_replicas] in sync of [repl_field $i sync_members]"
}
# "closed": the reply had to wait, and is never given.
proc answer {i args} {
    if {![catch {n $i -typed {*}$args} reply]} {return $reply}
    assert_match "*connection closed*" $reply
    reconnect_of [node $i id]
    return closed
}
proc client_reading {i} {
    set c [new_client -level [node_level $i]]
    $c readonly
    return $c
}
proc slots_of_primary {i} {
    foreach row [n $i cluster slots] {
        if {[lindex $row 2 2] eq [node_id $i]} {return [lrange $row 0 1]}
    }
}
proc move_slot {slot from to} {
    assert_equal OK [n $from cluster migrateslots slotsrange $slot $slot node [node_id $to]]
    wait_for_condition 20000 {[slot_owner $slot $to] == $to && [slot_owner $slot $from] == $to}
}
# A write that goes on until it is acknowledged by whoever serves the slot.
proc write_acknowledged {key value} {
    set slot [n [lindex [nodes_running] 0] cluster keyslot $key]
    wait_for_condition 20000 {
        ![catch {n [slot_owner $slot] set $key $value} reply] && $reply eq "OK"
    }
}
proc read_acknowledged {key} {
    set slot [n [lindex [nodes_running] 0] cluster keyslot $key]
    wait_for_condition 20000 {![catch {n [slot_owner $slot] get $key} value]}
    return $value
}

start_cluster [list primaries 3 replicas 2 overrides $cluster_sync_options] {
    test "each shard is a group of its own, with its nodes as members" -needs {ours 1} {
        foreach i {0 1 2} {wait_sync_ready $i 2 3}
        set groups [lmap i [nodes] {repl_field $i sync_group}]
        assert_equal 3 [llength [lsort -unique $groups]]
        foreach i {3 4 5 6 7 8} {
            assert_equal [lindex $groups [primary_of $i]] [lindex $groups $i]
            wait_for_condition 10000 {[repl_field $i sync_eligible] eq 1}
        }
        for {set k 0} {$k < 30} {incr k} {write_acknowledged key:$k first}
    }

    test "a replica of a primary that died is elected by its shard, then by the cluster, and has every write" \
            -needs {ours 1} {
        node_kill 0
        wait_for_condition 20000 {[is_primary 3] || [is_primary 6]}
        set new [expr {[is_primary 3] ? 3 : 6}]
        wait_sync_ready $new
        assert [log_has "Synchronous replication: this server leads its group*" 0 [node_level $new]]
        for {set k 0} {$k < 30} {incr k} {
            assert_equal first [read_acknowledged key:$k]
            write_acknowledged key:$k second
        }
        node_start 0
        wait_for_condition 20000 {![is_primary 0]}
        wait_sync_ready $new 2 3
        for {set k 0} {$k < 30} {incr k} {assert_equal second [read_acknowledged key:$k]}
    }

    test "CLUSTER FAILOVER and FORCE: the shard elects the replica, and the old primary follows it" -needs {ours 1} {
        foreach {to kind} {4 {} 1 force 4 {}} {
            set from [expr {$to == 4 ? 1 : 4}]
            wait_sync_ready $from 2 3
            write_acknowledged {{acknowledged}} $to
            assert_equal OK [n $to cluster failover {*}$kind]
            wait_for_condition 20000 {[is_primary $to] && ![is_primary $from]}
            wait_sync_ready $to 2 3
            assert_equal following [repl_field $from sync_replication]
            assert_equal $to [read_acknowledged {{acknowledged}}]
        }
    }

    test "TAKEOVER gives the slots at once, and data when the shard has elected the server" -needs {ours 1} {
        wait_sync_ready 2 2 3
        set key [slot_tag 16000]
        write_acknowledged $key before
        assert_equal OK [n 5 cluster failover takeover]
        assert [is_primary 5]
        wait_sync_ready 5 1
        assert_equal before [read_acknowledged $key]
        wait_for_condition 20000 {![is_primary 2]}
        wait_sync_ready 5 2 3
    }

    test "a primary that loses its replicas refuses commands on data; one that was replaced answers no stale read" \
            -needs {ours 1} {
        set key [slot_tag 16000]
        write_acknowledged $key old
        node_pause 5
        wait_for_condition 20000 {[is_primary 2] || [is_primary 8]}
        set new [expr {[is_primary 2] ? 2 : 8}]
        wait_sync_ready $new 1
        wait_for_condition 20000 {[catch {n $new set $key new} reply] == 0 && $reply eq "OK"}
        node_resume 5
        set reply [answer 5 get $key]
        assert {$reply eq "closed" || [regexp {^-(MOVED|NOSYNCREPLICAS) } $reply]} $reply
        wait_for_condition 20000 {![is_primary 5]}
        wait_sync_ready $new 2 3
        assert_equal new [read_acknowledged $key]
        foreach i {2 5 8} {if {$i != $new} {node_pause $i}}
        wait_for_condition 20000 {[string match "-NOSYNCREPLICAS*" [answer $new set $key refused]]}
        wait_for_condition 20000 {[string match "-NOSYNCREPLICAS*" [answer $new get $key]]}
        foreach i {2 5 8} {if {$i != $new} {node_resume $i}}
        wait_sync_ready $new 2 3
        assert {[read_acknowledged $key] in {new refused}} ;# a write without a reply may have been executed
    }

    test "a primary that is reset leaves its group, in MULTI, too" -needs {ours 1} {
        foreach {i words} {0 {} 1 hard} {
            set from [slot_owner [lindex {0 6000} $i]]
            set group [repl_field $from sync_group]
            set id [repl_field $from sync_id]
            assert_equal OK [n $from flushall]
            if {$i} {
                n $from multi
                n $from cluster reset {*}$words
                n $from exec
            } else {
                assert_equal OK [n $from cluster reset {*}$words]
            }
            wait_for_condition 10000 {[repl_field $from sync_replication] eq "leading"}
            assert {[repl_field $from sync_group] ni [list $group ""]}
            assert {[repl_field $from sync_id] ne $id}
            assert_equal 1 [repl_field $from sync_members]
            assert_equal 0 [repl_field $from connected_slaves]
            foreach other [nodes] {
                if {$other != $from} {assert {[repl_field $other sync_group] ne [repl_field $from sync_group]}}
            }
        }
    }
}

start_cluster [list primaries 3 replicas 2 overrides $cluster_sync_options] {
    foreach i {0 1 2} {wait_sync_ready $i 2 3}

    test "a replica answers nothing about a slot that comes back before its stream" -needs {ours 1} {
        set slot [lindex [slots_of_primary 0] 0]
        set key [slot_tag $slot]
        write_acknowledged $key v
        set lagging [client_reading 3]
        wait_for_condition 20000 {![catch {$lagging get $key} got] && $got eq "v"}
        move_slot $slot 0 1
        wait_for_condition 20000 {[catch {$lagging get $key} got] && [string match "MOVED*" $got]}
        wait_sync_ready 0 2 3
        n 3 config set masteruser nobody masterauth wrong
        n 0 client kill type replica
        wait_for_condition 20000 {[repl_field 3 master_link_status] eq "down"}
        wait_sync_ready 0 1 3
        move_slot $slot 1 0
        wait_for_condition 20000 {[slot_owner $slot 3] == 0}
        set seen {}
        wait_for_condition 20000 {
            [lappend seen [catch {$lagging get $key} got] [lindex $got 0]] ne "" && [llength $seen] > 100
        }
        assert_equal {} [lsearch -all -inline -exact $seen 0]
        n 3 config set masteruser "" masterauth ""
        wait_for_condition 20000 {![catch {$lagging get $key} got] && $got eq "v"}
    }

    test "a server with slots that has not reached the group of its new shard founds none when it restarts" \
            -needs {ours 1} {
        write_acknowledged [slot_tag 100] kept
        set old [slot_owner 100]
        set shard {0 3 6}
        set moved {}
        foreach i {1 4 7} {if {![is_primary $i]} {lappend moved $i}}
        lassign $moved new other
        set id [node_id $old]
        foreach i $shard {node_pause $i}
        foreach i $moved {n $i cluster replicate $id}
        assert_equal OK [n $new cluster failover takeover]
        assert [is_primary $new]
        assert_equal fenced [repl_field $new sync_replication]
        wait_for_condition 20000 {[primary_of $other] == $new}
        node_restart $new
        wait_for_condition 20000 {[repl_field $new sync_replication] ne ""}
        assert_equal fenced [repl_field $new sync_replication]
        wait_for_condition 20000 {
            [string match "-NOSYNCREPLICAS *it belongs to no group yet*" [answer $new get [slot_tag 100]]]
        }
        foreach i $shard {node_resume $i}
        set heir [lindex [lsearch -all -inline -not $shard $old] 0]
        wait_for_condition 30000 {[primary_of $heir] == $new && [primary_of $old] == $new}
        assert_equal OK [n $heir cluster failover takeover]
        wait_for_condition 30000 {![catch {n $heir get [slot_tag 100]} got] && $got eq "kept"}
        wait_for_condition 30000 {
            [primary_of $new] == $heir && [repl_field $new sync_group] eq [repl_field $heir sync_group]
        }
    }
}
