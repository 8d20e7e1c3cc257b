# Values that are sent from where they lie, while they are changed, deleted, evicted: a reply is what the value was when
# it was asked for. seconds: 3

proc value {size {seed 0}} {
    set s [string range [string repeat "[string repeat $seed 7]0123456789abcdefghijklmnopqrstuvw" \
        [expr {$size / 40 + 2}]] 0 [expr {$size - 1}]]
}

start_server {} {
    test "values of all sizes around the thresholds come back" {
        foreach around {1024 2048 4096 16384 32768 65536 131072 262144 1048576} {
            foreach by {-41 -25 -24 -1 0 1 2 40} {
                set v [value [expr {$around + $by}] $by]
                r set k $v
                assert {[r get k] eq $v}
                r append k tail
                assert {[r get k] eq "${v}tail"}
            }
        }
    }

    test "large values are not copied, small ones are" -needs {clear "TLS encrypts values, which copies them"} {
        r set k [value 200000]
        set before [info_field rdma rdma_zero_copy_bytes]
        r get k
        assert_equal [expr {$before + 200000}] [info_field rdma rdma_zero_copy_bytes]
        r set k [value 1000]
        r get k
        assert_equal [expr {$before + 200000}] [info_field rdma rdma_zero_copy_bytes]
        assert_morethan [info_field rdma rdma_registered_value_bytes] 0
    }

    # The value is larger than the peer's buffer, so its reply is under way while the next command runs.
    foreach {name commands} {
        append {{append k more}}
        setrange {{setrange k 1500000 XXXX}}
        setbit {{setbit k 7 1}}
        overwriting {{set k short}}
        del {{del k}}
        unlink {{unlink k}}
        getdel {{getdel k}}
        flushall {{flushall}}
        "flushall async" {{flushall async}}
        expiry {{pexpire k 0}}
        rename {{set other x} {rename other k}}
        copy {{copy k other} {setrange other 0 YY}}
    } {
        test "$name while a reply with the value is under way" {
            set v [value 2000000 $name]
            r set k $v
            set out ""
            foreach command [concat {{get k} {getrange k 0 1999999}} $commands {{set fill FILL}}] {
                if {[lindex $command 2] eq "FILL"} {lset command 2 [string repeat z 2000000]}
                append out [resp_command {*}$command]
            }
            r -write $out
            assert {[r -read] eq $v}
            assert {[r -read] eq $v}
            foreach command $commands {r -read}
            assert_equal OK [r -read]
        }
    }

    test "eviction while replies are under way" {
        r flushall
        r config set maxmemory-policy allkeys-lru
        for {set i 0} {$i < 20} {incr i} {r set k:$i [value 500000 $i]}
        set out ""
        for {set i 0} {$i < 20} {incr i} {append out [resp_command get k:$i]}
        append out [resp_command config set maxmemory 3mb] [resp_command set last [value 400000]]
        r -write $out
        for {set i 0} {$i < 20} {incr i} {assert {[r -read] eq [value 500000 $i]}}
        r -read
        catch {r -read} ;# values on their way still count, so the limit may be reached
        wait_for_condition 5000 {[info_field stats evicted_keys] > 10}
        r config set maxmemory 0
    }

    test "used_memory counts large values, and forgets them with the keys" {
        r flushall
        # The space of the large requests before is kept for a moment.
        wait_for_condition 5000 {
            [info_field memory mem_clients_normal] < 2000000 && [info_field memory used_memory] < 4000000
        }
        set before [info_field memory used_memory]
        for {set i 0} {$i < 50} {incr i} {r set k:$i [value 100000 $i]}
        set used [expr {[info_field memory used_memory] - $before}]
        assert_morethan $used 4000000 ;# some of what was there before may go only now
        assert_lessthan $used 6500000
        assert_morethan [r memory usage k:1] 100000
        r flushall
        wait_for_condition 5000 {[info_field memory used_memory] - $before < 500000}
    }

    test "rdma-zero-copy-min may be changed at any time" -needs {clear "TLS encrypts values, which copies them"} {
        foreach {min grows} {0 0 8kb 1 1mb 0 4kb 1} {
            r config set rdma-zero-copy-min $min
            r set k [value 100000 $min]
            set before [info_field rdma rdma_zero_copy_bytes]
            assert {[r get k] eq [value 100000 $min]}
            assert_equal $grows [expr {[info_field rdma rdma_zero_copy_bytes] > $before}]
        }
    }
}

start_server {overrides {rdma-zero-copy-min 2kb save ""}} {
    set supported [expr {[r -typed config set activedefrag yes] eq "+OK"}]
    r config set activedefrag no

    # Large values are sent from where they lie, small ones move; together they are more than the peer's buffer takes.
    proc some_value {i} {value [expr {($i / 4 % 2 ? 3000 : 1000) + $i % 50}] $i}
    test "values that are under way stay in place while others are defragmented" \
        -needs {ours 1 true $supported clear "TLS encrypts values, which copies them"} {
        set other [new_client]
        set count 3000
        for {set i 0} {$i < $count} {incr i} {r -send set k:$i [some_value $i]}
        for {set i 0} {$i < $count} {incr i} {r -read}
        $other config set active-defrag-ignore-bytes 1 active-defrag-threshold-lower 0 active-defrag-threshold-upper 1 \
            active-defrag-cycle-min 50 active-defrag-cycle-max 75
        set before [info_field rdma rdma_zero_copy_bytes]
        for {set round 0} {$round < 5} {incr round} {
            # Three of four neighbours go; the replies with the others wait for this client.
            set asked {}
            set out ""
            for {set i 0} {$i < $count} {incr i} {
                if {$i % 4 == $round % 4} {
                    lappend asked $i
                    append out [resp_command get k:$i]
                }
            }
            for {set i 0} {$i < $count} {incr i 50} {
                set gone {}
                for {set k $i} {$k < $i + 50} {incr k} {if {$k % 4 != $round % 4} {lappend gone k:$k}}
                $other del {*}$gone
            }
            r -write $out
            set hits [dict get [info_dict [$other info stats]] active_defrag_hits]
            $other config set activedefrag yes
            wait_for_condition 60000 {[dict get [info_dict [$other info stats]] active_defrag_hits] > $hits}
            foreach i $asked {assert {[r -read] eq [some_value $i]} "value $i in round $round"}
            $other config set activedefrag no
            for {set i 0} {$i < $count} {incr i} {r -send set k:$i [some_value $i]}
            for {set i 0} {$i < $count} {incr i} {r -read}
        }
        assert_morethan [info_field rdma rdma_zero_copy_bytes] $before
    }
}

start_server {overrides {rdma-max-registered-memory 24mb}} {
    test "beyond the bound on registered memory values are copied" {
        for {set i 0} {$i < 30} {incr i} {r set k:$i [value 1000000 $i]}
        for {set i 0} {$i < 30} {incr i} {assert {[r get k:$i] eq [value 1000000 $i]}}
        assert_lessthan [info_field rdma rdma_registered_value_bytes] [expr {12 * 1024 * 1024 + 1}]
    }
}

# Each thread registers the memory of the values that it sends; the bytes are pinned once.
start_server {overrides {io-threads 4}} {
    test "memory of values counts once, however many threads send them" \
        -needs {clear "TLS encrypts values, which copies them"} {
        r set k [value 3000000]
        wait_for_condition 5000 {[string length [r get k]] && [info_field rdma rdma_zero_copy_sends] > 0}
        set values [info_field rdma rdma_registered_value_bytes]
        assert_morethan $values 3000000
        set clients [lmap i {1 2 3 4 5 6 7 8} {new_client -deferring 1}]
        wait_for_condition 5000 {
            [set before [info_field rdma rdma_zero_copy_bytes]] >= 0 &&
            [llength [foreach c $clients {$c get k}]] == 0 &&
            [llength [lmap c $clients {string length [$c -read]}]] == 8 &&
            [info_field rdma rdma_zero_copy_bytes] - $before == 8 * 3000000
        }
        assert_equal $values [info_field rdma rdma_registered_value_bytes]
        set sum 0
        foreach use {receive send control value window other} {incr sum [info_field rdma rdma_registered_${use}_bytes]}
        assert_equal $sum [info_field rdma rdma_registered_bytes]
    }
}
