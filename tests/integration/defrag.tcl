# activedefrag: values move to fewer pages, and their content does not change. seconds: 12

# Used memory, and the allocator's additional pages, as active defragmentation sees them.
proc fragmentation {} {
    set i [info_dict [r info memory]]
    return [list [dict get $i allocator_frag_bytes] [dict get $i used_memory]]
}
proc defrag_on {} {
    r config set active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-threshold-upper 1 \
        active-defrag-cycle-min 50 active-defrag-cycle-max 75
    return [r -typed config set activedefrag yes]
}
proc defrag_off {} {
    r config set activedefrag no
    assert_equal 0 [info_field memory active_defrag_running]
}
# Waits until the server has completed another pass over all keys and moved at least this number of blocks.
proc await_moves {count} {
    wait_for_condition 60000 {[info_field stats active_defrag_hits] >= $count}
}
proc defrag_is_supported {} {
    set reply [r -typed config set activedefrag yes]
    r config set activedefrag no
    return [expr {$reply eq "+OK"}]
}

start_server {overrides {save ""}} {
    test "activedefrag is rejected without support of the allocator" \
        -needs {ours 1 true {![defrag_is_supported]}} {
        assert_match "-ERR CONFIG SET failed (possibly related to argument 'activedefrag') - Active defragmentation\
            cannot be enabled*" \
            [r -typed config set activedefrag yes]
        assert_equal {activedefrag no} [r config get activedefrag]
    }

    test "the pages of deleted strings become free" -needs {ours 1 true {[defrag_is_supported]}} {
        r config resetstat
        r debug populate 200000 string 100
        # One of 20 neighbors remains.
        for {set from 0} {$from < 200000} {incr from 1000} {
            set gone {}
            for {set i $from} {$i < $from + 1000} {incr i} {if {$i % 20} {lappend gone string:$i}}
            r unlink {*}$gone
        }
        assert_equal 10000 [r dbsize]
        set digest [r debug digest]
        lassign [fragmentation] before used
        assert {$before > 5000000} "nothing is fragmented: $before"
        defrag_on
        await_moves 5000
        wait_for_condition 60000 {[lindex [fragmentation] 0] < $before / 3}
        defrag_off
        assert_equal $digest [r debug digest]
        set stats [info_dict [r info stats]]
        foreach field {active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses\
            total_active_defrag_time} {
            assert {[dict get $stats $field] > 0} "$field: $stats"
        }
        assert_equal 0 [dict get $stats current_active_defrag_time]
        r config resetstat
        foreach field {active_defrag_hits active_defrag_misses active_defrag_key_hits active_defrag_key_misses\
            total_active_defrag_time} {
            assert_equal 0 [info_field stats $field] $field
        }
        r flushall
    }

    test "the pages of deleted streams become free" -needs {ours 1 true {[defrag_is_supported]}} {
        r config resetstat
        for {set from 0} {$from < 60000} {incr from 500} {
            for {set i $from} {$i < $from + 500} {incr i} {r -send xadd stream:$i 1-1 field [string repeat x 100]}
            for {set i $from} {$i < $from + 500} {incr i} {r -read}
        }
        for {set from 0} {$from < 60000} {incr from 1000} {
            set gone {}
            for {set i $from} {$i < $from + 1000} {incr i} {if {$i % 20} {lappend gone stream:$i}}
            r unlink {*}$gone
        }
        set digest [r debug digest]
        lassign [fragmentation] before used
        assert {$before > 5000000} "nothing is fragmented: $before"
        defrag_on
        # The entry, the structure, its tree, the node of the tree and the listpack of each.
        await_moves 12000
        wait_for_condition 60000 {[lindex [fragmentation] 0] < $before / 3}
        defrag_off
        assert_equal $digest [r debug digest]
        r flushall
    }

    test "a change of the share of a CPU takes effect while a walk is going on" \
        -needs {ours 1 true {[defrag_is_supported]}} {
        r debug populate 200000 string 100
        for {set from 0} {$from < 200000} {incr from 1000} {
            set gone {}
            for {set i $from} {$i < $from + 1000} {incr i} {if {$i % 20} {lappend gone string:$i}}
            r unlink {*}$gone
        }
        r config set active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-threshold-upper 1 \
            active-defrag-cycle-min 1 active-defrag-cycle-max 1 active-defrag-cycle-us 1
        r config set activedefrag yes
        wait_for_condition 5000 {[info_field memory active_defrag_running] == 1}
        r config set active-defrag-cycle-max 3 active-defrag-cycle-min 3
        wait_for_condition 5000 {[info_field memory active_defrag_running] == 3}
        defrag_off
        r config set active-defrag-cycle-us 500
        r flushall
    }

    # Fills keys of every type and encoding, in turn with values that are then deleted.
    proc fill_types {count} {
        set commands {}
        for {set i 0} {$i < $count} {incr i} {
            foreach kind {keep gone} {
                foreach type {text blob list zset hash set numbers large-hash large-set large-zset large-list\
                    expiring stream} {
                    set key $kind:$type
                    switch -glob -- $type {
                        text {lappend commands [list set $key:$i value$i ex 100000]}
                        blob {lappend commands [list set $key:$i [string repeat x$i 500]]}
                        list {lappend commands [list rpush $key:$i a$i b$i c$i]}
                        zset {lappend commands [list zadd $key:$i $i a$i 2 b$i]}
                        hash {lappend commands [list hset $key:$i a$i $i b$i $i]}
                        set {lappend commands [list sadd $key:$i a$i b$i]}
                        numbers {lappend commands [list sadd $key:$i $i [expr {$i + 1}]]}
                        large-hash {lappend commands\
                            [list hset $key field:$i [string repeat v$i [expr {$i % 50 ? 5 : 500}]]]}
                        large-set {lappend commands [list sadd $key member:$i]}
                        large-zset {lappend commands [list zadd $key [expr {$i % 97}] member:$i]}
                        large-list {lappend commands [list rpush $key [string repeat element:$i 20]]}
                        expiring {
                            lappend commands [list hset $key field:$i $i]
                            if {$i % 2 && $::expiring_fields} {
                                lappend commands [list hexpire $key 100000 fields 1 field:$i]
                            }
                        }
                        stream {lappend commands [list xadd $key [expr {$i + 1}]-1 field [string repeat $i 100]]}
                    }
                }
            }
        }
        foreach {a b c d e f g h i j} $commands {
            set sent 0
            foreach command [list $a $b $c $d $e $f $g $h $i $j] {
                if {[llength $command]} {
                    r -send {*}$command
                    incr sent
                }
            }
            for {} {$sent} {incr sent -1} {r -read}
        }
    }

    test "values of every type and encoding stay the same while they move" \
        -needs {ours 1 true {[defrag_is_supported]}} -timeout 240 {
        set ::expiring_fields [expr {[lindex [r -typed command info hexpire] 0] ne ""}]
        r flushall
        r config set hash-max-listpack-entries 128 active-defrag-max-scan-fields 50
        fill_types 1500
        set keys {}
        foreach key [r keys gone:*] {
            lappend keys $key
            if {[llength $keys] == 500} {
                r unlink {*}$keys
                set keys {}
            }
        }
        if {[llength $keys]} {r unlink {*}$keys}
        # Most items of large values are deleted as well, so that the remaining items are alone in their slabs.
        for {set i 0} {$i < 1500} {incr i} {
            if {$i % 10 == 0} continue
            r hdel keep:large-hash field:$i
            r srem keep:large-set member:$i
            r zrem keep:large-zset member:$i
            if {$i % 10 != 1} {r hdel keep:expiring field:$i}
        }
        set digest [r debug digest]
        set hits [info_field stats active_defrag_hits]
        defrag_on
        await_moves [expr {$hits + 2000}]
        # Clients change the values meanwhile.
        for {set i 0} {$i < 1500} {incr i 10} {
            r zincrby keep:large-zset 5 member:$i
            r zincrby keep:large-zset -5 member:$i
            r hset keep:large-hash field:$i:new x
            r hdel keep:large-hash field:$i:new
            r lpush keep:large-list x
            r lpop keep:large-list
            r xadd keep:stream [expr {2000 + $i}]-1 a b
            r xdel keep:stream [expr {2000 + $i}]-1
            r rename keep:text:$i keep:text:$i:other
            r rename keep:text:$i:other keep:text:$i
        }
        defrag_off
        assert_equal $digest [r debug digest]
        # Orders and ends of values, which only other commands show.
        assert_equal 150 [llength [r zrange keep:large-zset 0 -1]]
        assert_equal [r zrange keep:large-zset 0 -1] [lreverse [r zrevrange keep:large-zset 0 -1]]
        foreach member [r zrange keep:large-zset 0 -1] {
            assert_equal $member [lindex \
                [r zrange keep:large-zset [r zrank keep:large-zset $member] [r zrank keep:large-zset $member]] 0]
        }
        assert_equal 1500 [llength [r lrange keep:large-list 0 -1]]
        assert_equal [r lindex keep:large-list -1] [lindex [r lrange keep:large-list 0 -1] end]
        assert_equal 1500 [llength [r xrange keep:stream - +]]
        if {$::expiring_fields} {
            foreach field [r hkeys keep:expiring] {
                set ttl [lindex [r hpttl keep:expiring fields 1 $field] 0]
                if {[string range $field 6 end] % 2} {assert_range $ttl 1 100000000} else {assert_equal -1 $ttl}
            }
            # The field that expires first is found, even after it has moved.
            set field [lindex [lsearch -all -inline -regexp [r hkeys keep:expiring] {[13579]$}] 0]
            r hpexpire keep:expiring 1 fields 1 $field
            wait_for_condition 20000 {[r hexists keep:expiring $field] == 0}
        }
        r pexpire keep:text:10 1
        wait_for_condition 20000 {[r exists keep:text:10] == 0}
        r debug reload
        r flushall
    }

    test "a large value moves in parts, and may go meanwhile" -needs {ours 1 true {[defrag_is_supported]}} {
        r flushall
        r config set active-defrag-max-scan-fields 1
        foreach round {1 2 3} {
            for {set i 0} {$i < 40} {incr i} {
                set members {}
                for {set k 0} {$k < 500} {incr k} {lappend members member:$i:$k:[string repeat y 20]}
                r sadd set:$i {*}$members
            }
            defrag_on
            for {set i 0} {$i < 40} {incr i} {r srem set:$i {*}[lrange [r smembers set:$i] 20 end]}
            for {set i 0} {$i < 40} {incr i 2} {r del set:$i}
            for {set i 1} {$i < 40} {incr i 4} {r set set:$i text}
            defrag_off
            assert_equal 20 [r dbsize]
            for {set i 3} {$i < 40} {incr i 4} {assert_equal 20 [llength [r smembers set:$i]]}
            r flushall
        }
    }

    test "nothing moves below the thresholds" -needs {ours 1 true {[defrag_is_supported]}} {
        r config resetstat
        r config set active-defrag-ignore-bytes 1gb activedefrag yes
        r debug populate 1000 key 50
        # The server measures the fragmentation once per second.
        set end [expr {[clock milliseconds] + 1500}]
        wait_for_condition 10000 {[clock milliseconds] > $end}
        assert_equal {0 0} [list [info_field stats active_defrag_hits] [info_field stats active_defrag_misses]]
        r config set active-defrag-ignore-bytes 1 active-defrag-threshold-lower 1000 active-defrag-threshold-upper 1000
        set end [expr {[clock milliseconds] + 1500}]
        wait_for_condition 10000 {[clock milliseconds] > $end}
        assert_equal {0 0} [list [info_field stats active_defrag_hits] [info_field stats active_defrag_misses]]
        r config set activedefrag no
    }
}
