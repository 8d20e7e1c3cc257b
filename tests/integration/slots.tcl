# A keyspace with a table for each hash slot (the option keyspace-per-slot): its effects on clients and files.

proc scan_everything {args} {
    set cursor 0
    set keys {}
    set calls 0
    while {1} {
        lassign [r scan $cursor {*}$args] cursor page
        lappend keys {*}$page
        incr calls
        if {$cursor == 0} {return [list $calls $keys]}
        assert {$cursor > 0 && $cursor < 2 ** 63}
    }
}

# Keys of all types in two databases, with and without an expiry.
proc fill_databases {} {
    foreach id {0 3} {
        r select $id
        for {set i 0} {$i < 500} {incr i} {
            r set "{tag}string:$i" $i
            r set string:$i [string repeat $i 30] ex [expr {1000 + $i}]
            r hset hash:$i f $i g v
            r rpush "list{tag}$i" a b $i
            r zadd zset:$i $i a 2 b
            r sadd set:$i 1 2 $i
        }
        for {set i 0} {$i < 50} {incr i} {r hexpire hash:$i 10000 fields 1 f}
    }
    r select 0
}

start_server {tags {keys}} {
    test "the option is hidden and cannot be changed" -needs {ours 1} {
        assert {"keyspace-per-slot" ni [dict keys [r config get *]]}
        assert_equal {keyspace-per-slot} [dict keys [r config get keyspace-per-slot]]
        assert_error "ERR CONFIG SET failed (possibly related to argument 'keyspace-per-slot')\
            - can't set immutable config" \
            {r config set keyspace-per-slot yes}
    }

    test "a server with a table for each slot says so" -needs {ours 1} {
        start_server {overrides {keyspace-per-slot yes}} {assert_equal yes [config_get keyspace-per-slot]}
    }
}

start_server {overrides {keyspace-per-slot yes} tags {keys}} {
    test "SCAN visits every slot, a slot of a pattern in one call" -needs {ours 1} {
        for {set i 0} {$i < 3000} {incr i} {r set key:$i v}
        for {set i 0} {$i < 20} {incr i} {r set "x{tag}$i" v}
        lassign [scan_everything count 100] calls keys
        assert_equal 3020 [llength [lsort -unique $keys]]
        assert_range $calls 20 100
        lassign [scan_everything count 100 match {x{tag}*}] calls keys
        assert_equal {1 20} [list $calls [llength $keys]]
        lassign [scan_everything count 100 match {*{tag}*}] calls keys
        assert_morethan $calls 20
        assert_equal 20 [llength $keys]
        assert_equal {1 key:7} [scan_everything count 100 match key:7]
    }

    test "KEYS finds the keys of a tag, and of any other pattern" -needs {ours 1} {
        assert_equal 20 [llength [r keys {x{tag}*}]]
        assert_equal 20 [llength [r keys {*{tag}*}]]
        assert_equal key:7 [r keys key:7]
        assert_equal {} [r keys {{other}*}]
        assert_equal 3020 [llength [r keys *]]
        assert_equal 10 [llength [r keys key:12?]]
    }

    test "a cursor of another slot than the pattern's starts there or ends the scan" -needs {ours 1} {
        set slot [r cluster keyslot tag]
        set key [lindex [lindex [r scan [expr {$slot - 1}] match {x{tag}*} count 1000] 1] 0]
        assert_match {x{tag}*} $key
        assert_equal {0 {}} [r scan [expr {$slot + 1}] match {x{tag}*} count 1000]
    }

    test "RANDOMKEY returns keys of many slots" -needs {ours 1} {
        for {set i 0} {$i < 300} {incr i} {lappend drawn [r cluster keyslot [r randomkey]]}
        assert_morethan [llength [lsort -unique $drawn]] 200
    }

    test "DEBUG HTSTATS adds up the tables" -needs {ours 1} {
        assert_match "*number of entries: 3020\n*" [r debug htstats 0]
        r expire key:1 1000
        assert_match "*Expires HT*number of entries: 1\n*" [r debug htstats 0 full]
    }

    test "MEMORY STATS and INFO count the tables" -needs {ours 1} {
        set db [dict get [r memory stats] db.0]
        assert_range [dict get $db overhead.hashtable.main] 500000 1000000
        assert_range [dict get $db overhead.hashtable.expires] 100000 450000
        r flushall sync
        assert {![dict exists [r memory stats] db.0]}
    }

    test "keys expire in every slot" -needs {ours 1} {
        for {set i 0} {$i < 2000} {incr i} {r set key:$i v px 1}
        r set stays v
        wait_for_condition 20000 {[r dbsize] == 1}
        assert_equal stays [r randomkey]
    }

    test "FLUSHALL, SWAPDB, MOVE and COPY" -needs {ours 1} {
        fill_databases
        set sizes [list [r dbsize] [r select 3] [r dbsize]]
        r select 0
        set digest [r debug digest]
        r swapdb 0 3
        r swapdb 3 0
        assert_equal $digest [r debug digest]
        assert_equal {1 0} [list [r move string:1 5] [r exists string:1]]
        assert_equal 1 [r copy string:2 string:copy db 5]
        r select 5
        assert_equal {string:1 string:copy} [lsort [r keys *]]
        r flushdb async
        r select 0
        assert_equal [expr {[lindex $sizes 0] - 1}] [r dbsize]
        r flushall async
        foreach id {0 3 5} {assert_not_match "*db$id:*" [r info keyspace]}
    }

    test "eviction finds keys in sparse slots" -needs {ours 1} {
        r flushall sync
        r config set maxmemory-policy allkeys-lru
        for {set i 0} {$i < 2000} {incr i} {r set key:$i [string repeat x 1000]}
        r config set maxmemory [expr {[info_field memory used_memory] - 500000}]
        wait_for_condition 10000 {[info_field stats evicted_keys] > 300}
        r config set maxmemory 0 maxmemory-policy noeviction
        assert_range [r dbsize] 1000 1700
    }
}

# The same commands on both kinds of server: each loads the files of the other.
start_server {overrides {keyspace-per-slot no} tags {keys}} {
    test "files of both kinds are loaded by both" -needs {ours 1} {
        fill_databases
        set digest [r debug digest]
        foreach per_slot {yes no yes} {
            r save
            set has_slots [regexp {slot-info} [file_bytes [file join [srv dir] dump.rdb]]]
            assert_equal [config_get keyspace-per-slot] [expr {$has_slots ? "yes" : "no"}]
            restart_server -overrides [list keyspace-per-slot $per_slot]
            assert_equal $per_slot [config_get keyspace-per-slot]
            assert_equal $digest [r debug digest]
            assert_equal 3000 [r dbsize]
        }
    }

    test "DEBUG RELOAD and an append-only file keep all keys" -needs {ours 1} {
        set digest [r debug digest]
        r debug reload
        assert_equal $digest [r debug digest]
        foreach preamble {yes no} {
            r config set aof-use-rdb-preamble $preamble appendonly yes
            wait_for_condition 20000 {[info_field persistence aof_rewrite_in_progress] == 0 &&
                [info_field persistence aof_rewrite_scheduled] == 0 && [info_field persistence aof_enabled] == 1}
            r debug loadaof
            assert_equal $digest [r debug digest]
            r config set appendonly no
        }
    }
}
