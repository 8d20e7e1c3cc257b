# Background saves while clients speak RDMA: the child holds a copy of all memory, registered or not, touches no RDMA
# object, and its file holds the data set of the moment of the fork.

proc value {size {seed 0}} {
    string range [string repeat "$seed-0123456789abcdefghij" [expr {$size / 20 + 2}]] 0 [expr {$size - 1}]
}
proc saving {} {info_field persistence rdb_bgsave_in_progress}
proc fill {round} {
    for {set i 0} {$i < 64} {incr i} {
        r set large:$i [value 100000 $round-$i]
        r set small:$i $round-$i
    }
    r set huge [value 3000000 $round]
}

start_server {} {
    test "a snapshot holds values in registered memory as they were at the fork, whatever clients do meanwhile" {
        fill before
        r rpush list a b c
        set digest [r debug digest]
        r config set rdb-key-save-delay 5000
        assert_equal "Background saving started" [r bgsave]
        r config set rdb-key-save-delay 0
        # The child waits until everything has changed.
        regexp {Background saving started by pid (\d+)} [file_bytes [srv log]] -> child
        exec kill -STOP $child
        # Overwritten in place, deleted and allocated anew, while the child reads.
        fill after
        for {set i 0} {$i < 64} {incr i 2} {r del large:$i}
        for {set i 1} {$i < 64} {incr i 2} {r append large:$i tail; r setrange large:$i 0 XXXX}
        fill again
        r del huge
        r flushdb async
        fill last
        assert_equal 1 [saving]
        exec kill -CONT $child
        wait_for_condition 30000 {[saving] eq "0"}
        assert_equal ok [info_field persistence rdb_last_bgsave_status]
        assert_equal [value 100000 last-7] [r get large:7]
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
    }

    test "clients get their replies, and connections come and go, while a child lives" {
        fill x
        r config set rdb-key-save-delay 100000000
        r bgsave
        r config set rdb-key-save-delay 0
        for {set i 0} {$i < 20} {incr i} {
            set c [new_client]
            assert_equal [value 100000 x-$i] [$c get large:$i]
            $c set large:$i [value 200000 $i]
            assert_equal [value 200000 $i] [$c get large:$i]
            $c -close
        }
        set c [new_client]
        set id [$c client id]
        r client kill id $id
        assert_closed $c
        assert_equal 1 [saving]
        r bgsave cancel
        wait_for_condition 10000 {[saving] eq "0"}
        assert_equal [value 100000 x-30] [r get large:30]
    }

    test "many children one after the other leave the device as it was" {
        r ping
        for {set i 0} {$i < 10} {incr i} {
            r set k $i
            assert_equal "Background saving started" [r bgsave]
            assert_equal $i [r get k]
            wait_for_condition 30000 {[saving] eq "0"}
            assert_equal ok [info_field persistence rdb_last_bgsave_status]
        }
    }
}
