# Background saves, and forked sessions of the script debugger, while clients speak RDMA: the file holds the data set of
# the moment of BGSAVE, and a session all values as they were at the fork, in registered memory or not.

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
# Values are overwritten in place, deleted and allocated anew, while a reader of the former ones waits.
proc replace_all {} {
    fill after
    for {set i 0} {$i < 64} {incr i 2} {r del large:$i}
    for {set i 1} {$i < 64} {incr i 2} {r append large:$i tail; r setrange large:$i 0 XXXX}
    fill again
    r del huge
    r flushdb async
    fill last
}

start_server {} {
    test "a snapshot holds values in registered memory as they were at its start, whatever clients do meanwhile" {
        fill before
        r rpush list a b c
        set digest [r debug digest]
        r config set rdb-key-save-delay 1000000000
        assert_equal "Background saving started" [r bgsave]
        replace_all
        assert_equal 1 [saving]
        r config set rdb-key-save-delay 0
        wait_for_condition 30000 {[saving] eq "0"}
        assert_equal ok [info_field persistence rdb_last_bgsave_status]
        assert_equal [value 100000 last-7] [r get large:7]
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
    }

    test "clients get their replies, and connections come and go, while a save runs" {
        fill x
        r config set rdb-key-save-delay 100000000
        r bgsave
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
        r config set rdb-key-save-delay 0
        assert_equal [value 100000 x-30] [r get large:30]
    }

    test "a debugging session reads values in registered memory as they were at its fork" {
        fill before
        set script "local sums = {}
            for i = 0, 63 do sums\[#sums + 1\] = redis.sha1hex(redis.call('get', 'large:' .. i)) end
            sums\[#sums + 1\] = redis.sha1hex(redis.call('get', 'huge'))
            return sums"
        set sums [r eval $script 0]
        set c [new_client]
        $c script debug yes
        assert_match "*Stopped at 1*" [$c eval $script 0]
        replace_all
        $c -send continue
        $c -read
        assert_equal $sums [$c -read]
        $c -close
        assert_equal [value 100000 last-7] [r get large:7]
    }

    test "many saves one after the other leave the device as it was" {
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
