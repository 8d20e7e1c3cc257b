# Slots that were granted to another shard when a server dies, with synchronous replication: no node serves them until
# the target's shard has said whether it took them, and no acknowledged write is lost. seconds: 80

set sync_migration_options {sync-replication yes min-sync-replicas 1 repl-diskless-sync-delay 0 repl-timeout 5
    cluster-require-full-coverage no appendonly yes appendfsync everysec}
set moving_slot 100
set moving_keys 50

proc leader_of_shard {nodes} {
    foreach i $nodes {
        if {![catch {is_primary $i} primary] && $primary && [repl_field $i sync_writable] eq 1} {return $i}
    }
    return -1
}
proc wait_shard_ready {nodes} {
    wait_for_condition 30000 {
        [set leader [leader_of_shard $nodes]] >= 0 &&
        [repl_field $leader sync_in_sync_replicas] == [llength $nodes] - 1 &&
        [repl_field $leader sync_set_changes] eq 0
    }
    return $leader
}
proc moving_key {k} {return [slot_tag $::moving_slot]:$k}
# Writes all keys where the slot is; returns the owner.
proc write_moving {value} {
    for {set k 0} {$k < $::moving_keys} {incr k} {
        wait_for_condition 20000 {
            ![catch {n [slot_owner $::moving_slot] set [moving_key $k] $value:$k} reply] && $reply eq "OK"
        }
    }
}
# One shard alone serves the slot, and has all that was acknowledged.
proc check_moving {value shards} {
    wait_for_condition 30000 {
        [llength [set owners [lmap i [nodes_running] {
            if {[catch {n $i get [moving_key 0]} got] || $got ne "$value:0"} {continue}
            set i
        }]]] == 1
    }
    for {set k 0} {$k < $::moving_keys} {incr k} {
        wait_for_condition 20000 {![catch {n $owners get [moving_key $k]} got]} ;# on a busy machine it may be fenced
        assert_equal $value:$k $got
    }
    return $owners
}
# From the shard of `from` to that of `to`, up to the grant, which the target does not use.
proc grant_moving {from to} {
    n $to debug slotmigration prevent-failover 1
    set from_here [node_log_size $from]
    assert_equal OK [n $from cluster migrateslots slotsrange $::moving_slot $::moving_slot node [node_id $to]]
    wait_for_node_log $from "failover-paused -> failover-granted" $from_here
}
# The incremental append-only files of a node.
proc append_only_bytes {i} {
    join [lmap name [lsort [glob [node $i dir]/appendonlydir/*.incr.aof]] {file_bytes $name}] ""
}
# To node `to`, a PING of `target` from the time when it had the slot. Its fields are those of
# src/cluster/protocol/bus_wire.h.
proc send_old_claim {target to} {
    binary scan [string repeat "\0" 2048] c* slots
    lset slots [expr {$::moving_slot / 8}] [expr {1 << $::moving_slot % 8}]
    set old [binary format a4IuSuSuSuSuWWWa40c2048a40a46Su RCmb 2256 1 [node_base_port $target] 0 0 1 1 0 \
        [node_id $target] $slots "" "" 0]
    append old [binary format a2SuIux22SuSuSuc4 VR 1 15 0 [node_bus_port $target] 2 {0 0 0 0}]
    set bus [socket 127.0.0.1 [node_bus_port $to]]
    fconfigure $bus -translation binary -buffering none
    puts -nonewline $bus $old
    return $bus
}

# The same from the owner, which has `value`, to the leader of the other shard. Returns both nodes.
proc grant_to_other_shard {value shards} {
    foreach shard $shards {wait_shard_ready $shard}
    set source [check_moving $value $shards]
    set target [leader_of_shard [expr {$source in {0 3 6} ? {1 4 7} : {0 3 6}}]]
    grant_moving $source $target
    return [list $source $target]
}
# The owner has `value`, and stays the owner with the next value.
proc check_settled {value next shards} {
    set owner [check_moving $value $shards]
    foreach shard $shards {wait_shard_ready $shard}
    write_moving $next
    assert_equal $owner [check_moving $next $shards]
}

start_cluster [list primaries 3 replicas 2 overrides $sync_migration_options] {
    set shards {{0 3 6} {1 4 7} {2 5 8}}
    foreach shard $shards {wait_shard_ready $shard}

    test "the source dies after the grant: its successor does not serve the slot before the target's shard answers" \
            -needs {ours 1} {
        write_moving first
        n 1 config set commandlog-execution-slower-than 0 commandlog-slow-execution-max-len 10000
        grant_moving 0 1
        node_pause 4
        node_pause 7
        node_kill 0
        wait_for_condition 30000 {[set new [leader_of_shard {3 6}]] >= 0}
        assert [log_has "was granted. Its outcome is not known" 0 [node_level $new]]
        wait_for_log "the target's shard has not decided" 0 20000 [node_level $new]
        set question "SYNCSLOTS OUTCOME SOURCE [node_id $new] NAME * EPOCH [cluster_field $new cluster_current_epoch]"
        assert_match "*$question SLOTSRANGE *" [n 1 commandlog get -1 slow]
        n 1 config set commandlog-execution-slower-than 10000
        assert_match "*CLUSTERDOWN*" [n $new -typed get [moving_key 0]]
        assert {![catch {n $new set [slot_tag 101] served} reply] && $reply eq "OK"}
        set other [expr {9 - $new}]
        wait_for_condition 10000 {[slot_owner 101 $other] == $new}
        n $other debug drop-cluster-packet-filter -2
        node_resume 4
        node_resume 7
        set owner [check_moving first $shards]
        assert_equal $new $owner ;# the target ended the job with its link
        wait_for_condition 10000 {[slot_owner $moving_slot $other] == $new} ;# by the stream
        n $other debug drop-cluster-packet-filter -1
        node_start 0
        assert_equal $new [wait_shard_ready {0 3 6}]
        n 1 debug slotmigration prevent-failover 0
        write_moving second
        check_moving second $shards
    }

    test "the target dies after the grant: its successor refuses the slot, and the source serves it again" \
            -needs {ours 1} {
        set source [wait_shard_ready {0 3 6}]
        wait_shard_ready {1 4 7}
        grant_moving $source 1
        node_kill 1
        wait_for_condition 30000 {[leader_of_shard {4 7}] >= 0}
        assert_equal $source [check_moving second $shards]
        set job [lindex [n $source cluster getslotmigrations] 0]
        assert_equal "The target did not take the slots" [dict get $job message]
        node_start 1
        wait_shard_ready {1 4 7}
        write_moving third
        check_moving third $shards
    }

    test "the target claims the slot when its shard has committed that it takes it" -needs {ours 1} {
        set target [wait_shard_ready {1 4 7}]
        set source [wait_shard_ready {0 3 6}]
        set others [lsearch -all -inline -not {1 4 7} $target]
        grant_moving $source $target
        set from [node_log_size $target]
        foreach i [nodes_running] {n $i config set cluster-slot-migration-log-max-len 0} ;# jobs that end are freed
        foreach i $others {node_pause $i}
        n $target debug slotmigration prevent-failover 0
        after 300
        set taken [log_has "This node is now the owner of the slots" $from [node_level $target]]
        foreach i $others {node_resume $i}
        assert {!$taken}
        wait_for_node_log $target "This node is now the owner of the slots" $from
        assert_equal $target [check_moving third $shards]
        wait_for_condition 10000 {[n $target cluster getslotmigrations] eq ""}
        foreach i [nodes_running] {n $i config set cluster-slot-migration-log-max-len 1000}
    }

    test "the target dies before its shard has committed that it takes the slot: one shard has it, with all keys" \
            -needs {ours 1} {
        set source [wait_shard_ready {1 4 7}]
        set target [wait_shard_ready {0 3 6}]
        set others [lsearch -all -inline -not {0 3 6} $target]
        grant_moving $source $target
        foreach i $others {node_pause $i}
        n $target debug slotmigration prevent-failover 0
        n $target ping
        node_kill $target
        foreach i $others {node_resume $i}
        wait_for_condition 30000 {[leader_of_shard $others] >= 0}
        set owner [check_moving third $shards]
        node_start $target
        wait_shard_ready {0 3 6}
        write_moving fourth
        assert_equal $owner [check_moving fourth $shards]
    }

    test "the source restarts after the grant: it does not serve the slot before the target's shard answers" \
            -needs {ours 1} {
        lassign [grant_to_other_shard fourth $shards] source target
        node_restart $source KILL
        n $target debug slotmigration prevent-failover 0
        check_settled fourth fifth $shards
    }

    test "source and target restart after the grant: one of them has the slot, with all keys" -needs {ours 1} {
        set from [check_moving fifth $shards]
        set to [expr {$from in {0 3 6} ? [wait_shard_ready {1 4 7}] : [wait_shard_ready {0 3 6}]}]
        grant_moving $from $to
        node_kill $from
        node_kill $to
        node_start $from
        node_start $to
        check_settled fifth sixth $shards
    }

    test "the source restarts after the grant, with an append-only file of commands: it knows the grant" \
            -needs {ours 1} {
        lassign [grant_to_other_shard sixth $shards] source target
        n $source config set aof-use-rdb-preamble no
        n $source bgrewriteaof
        wait_for_condition 20000 {[string match "*aof_rewrite_in_progress:0*" [n $source info persistence]]}
        set from [node_log_size $source]
        node_restart $source KILL
        wait_for_node_log $source "was granted. Its outcome is not known" $from
        n $target debug slotmigration prevent-failover 0
        check_settled sixth seventh $shards
    }

    test "a replica that is copied after a claim knows the owners of the slots, although the bus does not reach it" \
            -needs {ours 1} {
        foreach shard $shards {wait_shard_ready $shard}
        set source [check_moving seventh $shards]
        set joins [expr {$source in {0 3 6} ? {1 4 7} : {0 3 6}}]
        set target [leader_of_shard $joins]
        set cut [lindex [lsearch -all -inline -not $joins $target] 0]
        n $cut debug drop-cluster-packet-filter -2
        node_pause $cut
        n $target client kill type replica
        wait_for_condition 20000 {[repl_field $target sync_in_sync_replicas] == 1}
        n $source cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id $target]
        wait_for_condition 20000 {![catch {n $target get [moving_key 0]} got] && $got eq "seventh:0"}
        wait_for_condition 20000 {[dict get [lindex [n $target cluster getslotmigrations] 0] state] eq "success"}
        n $target debug change-repl-id
        node_resume $cut
        wait_for_condition 20000 {[repl_field $target sync_in_sync_replicas] == 2}
        assert_equal $target [slot_owner $moving_slot $cut]
        n $cut debug drop-cluster-packet-filter -1
        foreach shard $shards {wait_shard_ready $shard}
    }

    test "CANCELSLOTMIGRATIONS when the target's shard is frozen: the source serves its other slots" -needs {ours 1} {
        foreach shard $shards {wait_shard_ready $shard}
        set source [check_moving seventh $shards]
        set frozen [expr {$source in {0 3 6} ? {1 4 7} : {0 3 6}}]
        set target [wait_shard_ready $frozen]
        set other [expr {$source in {0 3 6} ? 101 : 6000}]
        grant_moving $source $target
        foreach i $frozen {node_pause $i}
        assert_equal OK [n $source cluster cancelslotmigrations]
        wait_for_condition 20000 {
            ![catch {n $source set [slot_tag $other] served} reply] && $reply eq "OK"
        }
        assert_match "*CLUSTERDOWN*" [n $source -typed get [moving_key 0]]
        assert_equal cancelled [dict get [lindex [n $source cluster getslotmigrations] 0] state]
        foreach i $frozen {node_resume $i}
        assert_equal $source [check_moving seventh $shards]
        wait_shard_ready $frozen
    }

    test "a slot whose granted migration was cancelled migrates elsewhere when the first target has answered" \
            -needs {ours 1} {
        foreach shard $shards {wait_shard_ready $shard}
        set source [check_moving seventh $shards]
        set frozen [expr {$source in {0 3 6} ? {1 4 7} : {0 3 6}}]
        set other [wait_shard_ready {2 5 8}]
        set target [wait_shard_ready $frozen]
        set from [node_log_size $source]
        grant_moving $source $target
        foreach i $frozen {node_pause $i}
        assert_equal OK [n $source cluster cancelslotmigrations]
        assert_equal OK [n $source cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id $other]]
        wait_for_node_log $source "the slots are not served until its outcome is known" $from
        assert_equal {connecting cancelled} \
            [lmap job [lrange [n $source cluster getslotmigrations] 0 1] {dict get $job state}]
        foreach i $frozen {node_resume $i}
        wait_for_condition 30000 {[slot_owner $moving_slot $source] == $other}
        assert_equal $other [check_moving seventh $shards]
        # Back, for the next test.
        foreach shard $shards {wait_shard_ready $shard}
        assert_equal OK [n $other cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id $source]]
        wait_for_condition 20000 {[lsort -unique [lmap i [nodes_running] {slot_owner $moving_slot $i}]] eq $source}
        assert_equal $source [check_moving seventh $shards]
    }

    test "the operator forgets a target that died: the slot belongs to its shard, which may have taken it" \
            -needs {ours 1} {
        foreach shard $shards {wait_shard_ready $shard}
        write_moving seventh
        set source [check_moving seventh $shards]
        set target [wait_shard_ready {2 5 8}]
        set others [lsearch -all -inline -not {2 5 8} $target]
        n $source config set cluster-manual-failover-timeout 500 ;# the source serves its other slots afterwards
        grant_moving $source $target
        set from [node_log_size $source]
        foreach i $others {node_pause $i}
        n $target debug slotmigration prevent-failover 0
        n $target ping ;# its replicas will find that it takes the slot
        set id [node_id $target]
        node_kill $target
        foreach i {0 3 6 1 4 7} {n $i cluster forget $id}
        wait_for_condition 20000 {
            [log_has "the slots are not served until its outcome is known" $from [node_level $source]] ||
            [log_has "The target did not take the slots" $from [node_level $source]]
        }
        set value seventh
        if {![catch {n $source set [moving_key 0] eighth:0} reply] && $reply eq "OK"} {set value eighth}
        node_restart $source KILL ;# and knows the shard of the target from its files
        set source [wait_shard_ready [expr {$source in {0 3 6} ? {0 3 6} : {1 4 7}}]]
        assert_match "*CLUSTERDOWN*" [n $source -typed get [moving_key 0]]
        foreach i $others {node_resume $i}
        wait_for_condition 30000 {
            [catch {n [lindex $others 0] cluster failover takeover}] || [leader_of_shard $others] >= 0
        }
        wait_for_condition 30000 {[leader_of_shard $others] >= 0}
        wait_for_condition 30000 {![catch {n [slot_owner $moving_slot $source] get [moving_key 0]} got]}
        assert_equal $value:0 $got
        write_moving seventh
        assert {[check_moving seventh $shards] in $others}
    }

    test "the operator forgets a target whose shard is dead: the source has the slot again" -needs {ours 1} {
        set source [check_moving seventh $shards]
        set dead [expr {$source in {0 3 6} ? {1 4 7} : {0 3 6}}]
        set target [wait_shard_ready $dead]
        grant_moving $source $target
        set ids [lmap i $dead {node_id $i}]
        foreach i $dead {node_kill $i}
        foreach i [nodes_running] {
            foreach id $ids {n $i cluster forget $id}
        }
        assert_equal $source [check_moving seventh $shards]
    }
}

start_cluster [list primaries 3 replicas 1 overrides $sync_migration_options] {
    foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}

    test "a write that waited for a grant which was not given follows the end of the migration in the stream" \
            -needs {ours 1} {
        n 0 config set cluster-manual-failover-timeout 500
        set client [new_client -level [node_level 0] -deferring 1]
        # A busy machine may let the lease end before the grant is recorded.
        for {set round 0} {$round < 10} {incr round} {
            wait_shard_ready {0 3}
            n 0 debug slotmigration prevent-pause 1
            assert_equal OK [n 0 cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id 1]]
            wait_for_condition 10000 {
                [dict get [lindex [n 0 cluster getslotmigrations] 0] state] eq "waiting-to-pause"
            }
            set from [node_log_size 0]
            node_pause 3
            n 0 debug slotmigration prevent-pause 0
            wait_for_node_log 0 "Pausing writes" $from
            $client set [slot_tag 101] after:$round
            wait_for_node_log 0 "Unpaused before failover completed" $from
            wait_for_condition 10000 {[regexp "after:$round" [set file [append_only_bytes 0]]]}
            node_resume 3
            assert_equal OK [$client -read]
            set name [dict get [lindex [n 0 cluster getslotmigrations] 0] name]
            if {[regexp -indices "GRANT\r\n.{0,20}NAME\r\n.{0,10}$name" $file]} {break}
        }
        assert {$round < 10}
        assert {[regexp -indices "FINISH\r\n.{0,60}$name" $file finish]}
        assert {[lindex $finish 0] < [string first after:$round $file]}
        n 0 config set cluster-manual-failover-timeout 5000
        n 0 del [slot_tag 101] ;# CLUSTER RESET below needs an empty node
    }

    test "slots that a target has refused are taken back when other targets have claimed theirs" -needs {ours 1} {
        foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}
        n 0 config set cluster-manual-failover-timeout 60000
        foreach i {1 2} {n $i debug slotmigration prevent-failover 1}
        set from [node_log_size 0]
        assert_equal OK [n 0 cluster migrateslots slotsrange 100 100 node [node_id 1]\
            slotsrange 101 101 node [node_id 2]]
        wait_for_condition 20000 {
            [lsort -unique [lmap job [lrange [n 0 cluster getslotmigrations] 0 1] {dict get $job state}]] eq
            "failover-granted"
        }
        foreach i {2 5} {node_pause $i}
        wait_for_node_log 0 "taken back when other targets" $from ;# node 1 has lost the link
        assert_equal {failover-granted failover-granted} \
            [lmap job [lrange [n 0 cluster getslotmigrations] 0 1] {dict get $job state}]
        assert {![log_has "New configEpoch set" $from [node_level 0]]}
        foreach i {2 5} {node_resume $i}
        wait_for_condition 20000 {
            [lsort -unique [lmap job [lrange [n 0 cluster getslotmigrations] 0 1] {dict get $job message}]] eq
            {{The target did not take the slots}}
        }
        foreach slot {100 101} {assert_equal 0 [slot_owner $slot 0]}
        n 0 config set cluster-manual-failover-timeout 5000
        foreach i {1 2} {n $i debug slotmigration prevent-failover 0}
        foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}
    }

    test "CLUSTER BUMPEPOCH leaves the epoch while the target of a grant has not claimed the slots" -needs {ours 1} {
        # That of node 0 is not the largest. A collision of epochs may still be resolved meanwhile.
        wait_for_condition 10000 {
            [n 1 cluster bumpepoch] ne "" &&
            [cluster_field 0 cluster_current_epoch] >= [cluster_field 1 cluster_my_epoch] &&
            [cluster_field 1 cluster_my_epoch] > [cluster_field 0 cluster_my_epoch]
        }
        write_moving first
        grant_moving 0 1
        assert_equal "STILL [cluster_field 0 cluster_my_epoch]" [n 0 cluster bumpepoch]
        n 1 debug slotmigration prevent-failover 0
        assert_equal 1 [check_moving first {{0 3} {1 4} {2 5}}]
        wait_for_condition 10000 {[dict get [lindex [n 0 cluster getslotmigrations] 0] state] eq "success"}
        assert_match "BUMPED *" [n 0 cluster bumpepoch]
        n 1 cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id 0]
        wait_for_condition 20000 {[slot_owner $moving_slot 1] == 0}
        foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}
    }

    test "an older claim of the target that comes after the grant does not move the slot" -needs {ours 1} {
        write_moving first
        grant_moving 0 1
        set from [node_log_size 0]
        set bus [send_old_claim 1 0]
        wait_for_node_log 0 "Mismatch in topology information for sender node [node_id 1]" $from
        close $bus
        assert_equal failover-granted [dict get [lindex [n 0 cluster getslotmigrations] 0] state]
        n 1 debug slotmigration prevent-failover 0
        assert_equal 1 [check_moving first {{0 3} {1 4} {2 5}}]
        # Back, with no keys: CLUSTER RESET needs an empty node.
        n 1 flushall
        foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}
        assert_equal OK [n 1 cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id 0]]
        wait_for_condition 20000 {[slot_owner $moving_slot 1] == 0} ;# the next test moves it to node 1
        foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}
    }

    test "CLUSTER RESET after the grant: neither the target nor the source takes the slot in its new cluster" \
            -needs {ours 1} {
        grant_moving 0 1
        node_pause 4
        n 1 debug slotmigration prevent-failover 0 ;# it decides to take the slot, and cannot commit that
        n 1 ping
        assert_equal OK [n 1 cluster reset]
        node_resume 4
        assert_equal OK [n 0 cluster reset]
        foreach i {0 1} {
            wait_for_condition 10000 {
                [set job [lindex [n $i cluster getslotmigrations] 0]] eq "" || [dict get $job state] eq "failed"
            }
            assert_match "*cluster_slots_assigned:0*" [n $i cluster info]
        }
    }
}

start_cluster [list primaries 3 replicas 1 overrides $sync_migration_options] {
    foreach shard {{0 3} {1 4} {2 5}} {wait_shard_ready $shard}

    test "an older claim of the target does not end a grant that a successor of the source tracks" -needs {ours 1} {
        write_moving first
        grant_moving 0 1
        node_kill 0
        wait_for_condition 30000 {
            [is_primary 3] && [dict get [lindex [n 3 cluster getslotmigrations] 0] state] eq "failover-granted" &&
            [string match "*[node_id 1]*" [n 3 cluster nodes]]
        }
        set bus [send_old_claim 1 3]
        wait_for_condition 10000 {
            [catch {n 3 get [moving_key 0]} got] && $got eq "MOVED $moving_slot 127.0.0.1:[node_shown_port 1]"
        }
        assert_equal failover-granted [dict get [lindex [n 3 cluster getslotmigrations] 0] state]
        close $bus
        n 1 debug slotmigration prevent-failover 0
        node_start 0
        check_moving first {{0 3} {1 4} {2 5}}
    }
}

start_cluster [list primaries 3 replicas 2 overrides [concat $sync_migration_options cluster-node-timeout 30000]] {
    set shards {{0 3 6} {1 4 7} {2 5 8}}
    foreach shard $shards {wait_shard_ready $shard}

    test "a replica that the bus does not reach learns from the stream where slots have gone" -needs {ours 1} {
        n 3 debug drop-cluster-packet-filter -2
        foreach {from slot to} {0 101 1 1 6000 0} { ;# the second claim has the larger epoch
            assert_equal OK [n $from cluster migrateslots slotsrange $slot $slot node [node_id $to]]
            wait_for_condition 20000 {[dict get [lindex [n $from cluster getslotmigrations] 0] state] eq "success"}
        }
        wait_for_condition 20000 {[slot_owner 6000 3] == 0}
        assert_equal 1 [slot_owner 101 3]
        n 3 debug drop-cluster-packet-filter -1
    }

    test "a source that has copied a successor's writes to lead again has ended its migration" -needs {ours 1} {
        write_moving first
        n 0 debug slotmigration prevent-pause 1
        assert_equal OK [n 0 cluster migrateslots slotsrange $moving_slot $moving_slot node [node_id 1]]
        wait_for_condition 20000 {
            [dict get [lindex [n 0 cluster getslotmigrations] 0] state] eq "waiting-to-pause"
        }
        foreach i {0 1} {n $i debug drop-cluster-packet-filter -2} ;# they hear of no new owner
        n 3 cluster failover takeover
        wait_for_condition 20000 {[repl_field 3 sync_writable] eq 1}
        for {set k 0} {$k < $moving_keys} {incr k} {
            wait_for_condition 20000 {![catch {n 3 set [moving_key $k] second:$k} reply] && $reply eq "OK"}
        }
        node_kill 3
        wait_for_condition 30000 {[repl_field 0 sync_replication] eq "leading" && [repl_field 0 sync_term] >= 3}
        assert [log_has "Successful partial resynchronization" 0 [node_level 0]]
        wait_for_condition 5000 {[dict get [lindex [n 0 cluster getslotmigrations] 0] state] eq "failed"}
        n 0 debug slotmigration prevent-pause 0
        foreach i {0 1} {n $i debug drop-cluster-packet-filter -1}
        node_start 3
        check_moving second $shards
    }
}
