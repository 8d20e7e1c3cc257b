# Failover: replicas take over from primaries that have failed, on request, or because a primary shuts down. seconds: 15

proc fill {} {
    for {set slot 0} {$slot < 16384} {incr slot 1024} {
        set tag [slot_tag $slot]
        set i [slot_owner $slot]
        n $i set $tag:text $slot
        n $i rpush $tag:list a $slot
        n $i hset $tag:hash field $slot
    }
}
# All keys are served, by whichever node, with their values.
proc check_filled {} {
    for {set slot 0} {$slot < 16384} {incr slot 1024} {
        set tag [slot_tag $slot]
        set i [slot_owner $slot]
        assert_equal $slot [n $i get $tag:text]
        assert_equal [list a $slot] [n $i lrange $tag:list 0 -1]
        assert_equal $slot [n $i hget $tag:hash field]
    }
}
# The copies of a shard are equal.
proc check_copies {} {
    foreach i [nodes_running] {
        if {[is_primary $i]} continue
        set primary [primary_of $i]
        wait_for_cluster_offset $i $primary
        assert_equal [n $primary debug digest] [n $i debug digest] "node $i, a replica of $primary"
    }
}
proc settled {} {
    wait_for_cluster_agreement
    wait_for_cluster_state ok
    wait_for_cluster_replicas
}

start_cluster {primaries 3 replicas 1} {
    test "a cluster forms" {
        foreach i [nodes] {
            assert_equal ok [cluster_field $i cluster_state]
            assert_equal 6 [cluster_field $i cluster_known_nodes]
            assert_equal 3 [cluster_field $i cluster_size]
            assert_equal 16384 [cluster_field $i cluster_slots_ok]
        }
        foreach i {3 4 5} {assert_equal [expr {$i - 3}] [primary_of $i]}
        fill
        check_filled
        check_copies
    }

    test "a replica reports offset 0 until it has the data of its primary" {
        proc own_offset {i} {
            foreach node [concat {*}[lmap shard [n $i cluster shards] {dict get $shard nodes}]] {
                if {[dict get $node id] eq [node_id $i]} {return [dict get $node replication-offset]}
            }
        }
        assert {[own_offset 3] > 0}
        n 1 config set rdb-key-save-delay 10000000
        assert_equal OK [n 3 cluster replicate [node_id 1]]
        assert_equal 0 [own_offset 3]
        n 1 config set rdb-key-save-delay 0
        assert_equal OK [n 3 cluster replicate [node_id 0]]
        settled
        assert {[own_offset 3] > 0}
    }

    test "a replica takes over from a primary that was killed, which comes back as its replica" {
        set from [node_log_size 3]
        node_kill 0
        wait_for_node_log 3 "Failover election won: I'm the new primary." $from
        assert [log_has "configEpoch set to * after successful failover" $from [node_level 3]]
        wait_for_cluster_state ok
        check_filled
        node_start 0
        wait_for_condition 20000 {![is_primary 0]}
        settled
        assert_equal 3 [primary_of 0]
        check_copies
    }

    test "CLUSTER FAILOVER exchanges the roles, and nothing is lost" {
        set from [node_log_size 4]
        set primary_from [node_log_size 1]
        set channel [slot_tag [expr {16384 / 3 + 1}]]
        set subscribers [lmap i {1 4} {new_client -port [node $i port]}]
        foreach c $subscribers {assert_equal [list ssubscribe $channel 1] [$c ssubscribe $channel]}
        assert_equal OK [n 4 cluster failover]
        wait_for_node_log 4 "All primary replication stream processed, manual failover can start." $from
        wait_for_node_log 4 "Failover election won: I'm the new primary." $from
        wait_for_node_log 1 "Manual failover requested by replica [node_id 4]" $primary_from
        wait_for_condition 20000 {![is_primary 1]}
        settled
        assert_equal 4 [primary_of 1]
        assert_equal none [info_field_of 1 clients paused_reason]
        # The slots have another owner: their shard channels end, at both nodes.
        foreach c $subscribers {
            assert_equal [list sunsubscribe $channel 0] [$c -read]
            $c -close
        }
        check_filled
        check_copies
    }

    test "a replica that waits for its first copy does not take over" {
        set primary [primary_of 1]
        n $primary config set repl-diskless-sync-delay 3600
        n 1 cluster reset
        wait_for_condition 20000 {![catch {n 1 cluster meet 127.0.0.1 [node_base_port $primary]}]}
        wait_for_condition 20000 {![catch {n 1 cluster replicate [node_id $primary]}]}
        wait_for_condition 20000 {[info_field_of $primary replication connected_slaves] == 1}
        foreach i [list 1 $primary] {n $i config set cluster-manual-failover-timeout 500}
        set from [node_log_size 1]
        assert_equal OK [n 1 cluster failover]
        wait_for_node_log 1 "Manual failover timed out." $from
        assert_equal 1 [is_primary $primary]
        foreach i [list 1 $primary] {n $i config set cluster-manual-failover-timeout 5000}
        n $primary config set repl-diskless-sync-delay 0
        settled
        check_filled
        check_copies
    }

    test "writes wait during a manual failover, and are then redirected" {
        set tag [slot_tag 6000]
        set slot_owner 4
        n 4 debug drop-cluster-packet-filter 5 ;# it hears no request for a vote; others do
        set c [new_client -level [node_level 4] -deferring 1]
        assert_equal OK [n 1 cluster failover]
        wait_for_condition 5000 {[info_field_of 4 clients paused_reason] in {failover_in_progress none}}
        $c set $tag:text later
        assert_match {-MOVED 6000 *} [$c -readline]
        settled
        assert_equal 1 [primary_of 4]
        n 4 debug drop-cluster-packet-filter -1
        check_copies
    }

    test "WAIT and WAITAOF end when their node is a primary no more" -needs {ours 1} {
        set waiting [lmap command {{wait 9 0} {waitaof 0 9 0}} {
            set c [new_client -level [node_level 1]]
            $c -send {*}$command
            set c
        }]
        wait_for_condition 5000 {[info_field_of 1 clients blocked_clients] == 2}
        foreach {to from} {4 1 1 4} {
            assert_equal OK [n $to cluster failover]
            wait_for_condition 20000 {[is_primary $to] && ![is_primary $from]}
            foreach c $waiting {
                assert_error_like "ERR WAIT* cannot be used with replica instances.*" {$c -read}
                $c -close
            }
            set waiting {}
            settled
        }
    }

    test "CLUSTER FAILOVER FORCE does not ask the primary" {
        node_pause 1
        set from [node_log_size 4]
        assert_equal OK [n 4 cluster failover force]
        wait_for_node_log 4 "Failover election won: I'm the new primary." $from
        node_resume 1
        wait_for_condition 20000 {![is_primary 1]}
        settled
        assert_equal 4 [primary_of 1]
        check_copies
    }

    test "CLUSTER FAILOVER TAKEOVER needs no majority" {
        foreach i {2 3} {node_pause $i}
        set epoch [cluster_field 1 cluster_current_epoch]
        assert_equal OK [n 1 cluster failover takeover]
        wait_for_condition 10000 {[is_primary 1]}
        assert {[cluster_field 1 cluster_my_epoch] > $epoch}
        foreach i {2 3} {node_resume $i}
        wait_for_condition 20000 {![is_primary 4]}
        settled
        assert_equal 1 [primary_of 4]
        check_copies
    }

    test "a primary that shuts down with FAILOVER hands its role to a replica" {
        set from [node_log_size 5]
        set primary_from [node_log_size 2]
        set id [node 2 id]
        set ::server($id,expect_exit) 1
        catch {n 2 shutdown nosave failover}
        server_reap $id
        assert [log_has "Perform auto failover to replica [node_id 5] on shutdown." $primary_from [node_level 2]]
        assert [log_has "1 of 1 replicas are in sync when shutting down." $primary_from [node_level 2]]
        assert {![log_has "Lagging replica" $primary_from [node_level 2]]}
        wait_for_node_log 5 "Failover election won: I'm the new primary." $from
        reconnect_of $id
        node_start 2
        settled
        assert_equal 5 [primary_of 2]
        check_filled
        check_copies
    }

    test "a voting primary does not shut down with SAFE, but with FORCE" {
        set from [node_log_size 5]
        assert_equal "-ERR Errors trying to SHUTDOWN. Check logs." [n 5 -typed shutdown nosave safe]
        assert [log_has "This is a voting primary. Shutting down may cause the cluster to go down. Can't exit." $from \
            [node_level 5]]
        assert_equal PONG [n 5 ping]
        set id [node 5 id]
        set ::server($id,expect_exit) 1
        catch {n 5 shutdown nosave safe force}
        server_reap $id
        reconnect_of $id
        wait_for_condition 20000 {[is_primary 2]}
        node_start 5
        settled
        check_copies
    }

    test "REPLICAOF and FAILOVER are refused, and a replica's address is not in the rewritten file" {
        assert_error "ERR REPLICAOF not allowed in cluster mode." {n 0 replicaof 127.0.0.1 1}
        assert_error "ERR REPLICAOF not allowed in cluster mode." {n 0 replicaof no one}
        assert_error "ERR FAILOVER not allowed in cluster mode. Use CLUSTER FAILOVER command instead." {n 0 failover}
        foreach i [nodes] {
            n $i config rewrite
            assert {![regexp -line {^replicaof} [file_bytes [node $i conf]]]}
        }
    }

    test "after a restart of all nodes the cluster is what it was" {
        set before [cluster_opinion 0]
        foreach i [nodes] {node_kill $i TERM}
        foreach i [nodes] {node_start $i}
        settled
        assert_equal $before [cluster_opinion 0]
    }
}

start_cluster {primaries 2 replicas 1} {
    test "a slot that a shard loses and gets back during a script of its old primary keeps its keys there" {
        wait_for_cluster_replicas
        n 0 set [slot_tag 100]:k v
        wait_for_cluster_offset 2 0
        n 0 config set busy-reply-threshold 20
        set c [new_client -level [node_level 0] -deferring 1]
        $c eval "while true do end" 0
        wait_for_condition 10000 {[string match "-BUSY*" [n 0 -typed ping]]}
        set from [node_log_size 0]
        assert_equal OK [n 1 cluster setslot 100 node [node_id 1]]
        n 1 cluster bumpepoch
        wait_for_node_log 0 "Deleting keys in dirty slot 100" $from
        wait_for_condition 10000 {[slot_owner 100 2] == 1}
        set from [node_log_size 0]
        assert_equal OK [n 2 cluster failover takeover]
        assert_equal OK [n 2 cluster setslot 100 node [node_id 2]]
        wait_for_node_log 0 "Reconfiguring myself as a replica of node [node_id 2]" $from
        wait_for_condition 10000 {[slot_owner 100 1] == 2}
        n 0 script kill
        catch {$c -read}
        $c -close
        wait_for_node_log 0 "Successful partial resynchronization" $from
        wait_for_cluster_offset 0 2
        assert_equal {1 1} [list [n 0 cluster countkeysinslot 100] [n 2 cluster countkeysinslot 100]]
    }
}
