# Large collections in slots that move: a thread of the source reads them, while commands, faults and other snapshots go
# on. seconds: 70

source [file join $::root tests harness slot_migration.tcl]

proc field_of {i section name} {dict get [node_info $i $section] $name}
# The target gets commands, as one of Valkey does: its user may not use chunks.
proc as_commands {yes} {
    n 1 acl setuser mover on >secret -@all +@write +@connection +cluster|syncslots +select ~*
    n 0 config set primaryuser [expr {$yes ? "mover" : ""}] primaryauth [expr {$yes ? "secret" : ""}]
}
proc big_hash {i key fields {size 60}} {
    n $i eval {local v = string.rep('v', tonumber(ARGV[2]))
        for i = 1, ARGV[1] do redis.call('hset', KEYS[1], 'f'..i, v..i) end} 1 $key $fields $size
}
proc start_over {slot} {
    catch {n 0 cluster cancelslotmigrations}
    foreach i {0 1} {n $i debug slotmigration prevent-pause 0}
    n 0 config set rdb-key-save-delay 0
    as_commands 0
    n 0 cluster flushslot $slot
    n 0 eval {for i = 1, 700 do redis.call('set', KEYS[1]..i, i) end} 1 [key_in $slot small]
}
# A migration of one moment that has sent some small keys, and none of the others; the target is frozen. If a step of
# the view has reached one of them it begins again.
proc freeze_before {slot others} {
    n 0 config set rdb-key-save-delay 100000
    while 1 {
        migrate 0 1 $slot $slot
        wait_for_condition 10000 {[n 1 cluster countkeysinslot $slot] > 0}
        set there [n 1 cluster getkeysinslot $slot 1000]
        if {[llength [lsearch -all -inline $there [key_in $slot small]*]] == [llength $there]} break
        n 0 cluster cancelslotmigrations
        migration_is 0 cancelled
        migration_is 1 failed
    }
    node_pause 1
    at_test_end {catch {node_resume 1}}
}
proc go_on {} {
    node_resume 1
    n 0 config set rdb-key-save-delay 0
}
proc digest_of {i keys} {lmap key $keys {n $i debug digest-value $key}}
proc moves_and_returns {slot keys} {
    set before [digest_of 0 $keys]
    foreach i {0 1} {n $i debug slotmigration prevent-pause 0}
    migration_is 0 success
    migration_is 1 success
    assert_equal $before [digest_of 1 $keys]
    wait_for_cluster_offset 3 1
    assert_equal $before [digest_of 3 $keys]
    migrate 1 0 $slot $slot
    migration_is 1 success
    migration_is 0 success
}

start_cluster [list primaries 2 replicas 1 overrides {cluster-node-timeout 20000 latency-monitor-threshold 1}] {
    wait_for_cluster_replicas

    test "a hash of a million fields holds the source for a few milliseconds at a time" {
        start_over 7
        big_hash 0 [key_in 7 h] 1000000 20
        foreach commands {0 1} {
            as_commands $commands
            n 0 latency reset
            migrate 0 1 7 7
            moves_and_returns 7 [list [key_in 7 h]]
            foreach event [n 0 latency latest] {
                lassign $event name - - longest
                # Writing it takes 200 ms at least. On a busy machine the process waits for a CPU meanwhile, too.
                if {$name eq "forkless-slice"} {assert_lessthan $longest 100}
            }
        }
        n 0 del [key_in 7 h]
    }

    foreach form {chunks commands} {
        test "large values of all types are of one moment, sent as $form, whatever changes them" {
            start_over 7
            as_commands [expr {$form eq "commands"}]
            big_hash 0 [key_in 7 hash] 30000
            n 0 eval {
                for i = 1, 30000 do
                    redis.call('sadd', KEYS[1], 'member'..i)
                    redis.call('zadd', KEYS[2], i / 4, 'member'..i)
                    redis.call('rpush', KEYS[3], string.rep('e', i % 200)..i)
                    redis.call('xadd', KEYS[4], i..'-1', 'f', i)
                    redis.call('hset', KEYS[5], 'f'..i, i)
                end
                redis.call('hpexpire', KEYS[5], 1000000, 'fields', 2, 'f1', 'f2')
                redis.call('xgroup', 'create', KEYS[4], 'g', 0)
                redis.call('xreadgroup', 'group', 'g', 'c', 'count', 500, 'streams', KEYS[4], '>')
                redis.call('xdel', KEYS[4], '7-1', '29999-1')
            } 5 {*}[lmap name {set zset list stream fields} {key_in 7 $name}]
            set names {hash set zset list stream fields moved copied gone new}
            set keys [lmap name $names {key_in 7 $name}]
            freeze_before 7 [lrange $keys 0 5]
            n 0 debug slotmigration prevent-pause 1
            set clients {}
            foreach command {
                {hincrby fields f5 1} {srem set member3} {zincrby zset 2 member9} {lset list 5 changed}
                {xreadgroup group g d count 10 streams stream >} {hset hash new field} {rpush list last}
            } {
                set c [new_client -level [node_level 0] -deferring 1]
                $c -send {*}[lmap word $command {expr {$word in $names ? [key_in 7 $word] : $word}}]
                lappend clients $c
            }
            go_on
            n 0 multi
            n 0 hdel [key_in 7 hash] f17
            n 0 spop [key_in 7 set] 3
            n 0 exec
            n 0 eval {redis.call('zremrangebyrank', KEYS[1], 0, 10) redis.call('ltrim', KEYS[2], 3, -4)} 2\
                [key_in 7 zset] [key_in 7 list]
            n 0 xadd [key_in 7 stream] * f new
            n 0 hpexpire [key_in 7 fields] 1 fields 1 f1
            n 0 copy [key_in 7 zset] [key_in 7 copied]
            n 0 rename [key_in 7 set] [key_in 7 moved]
            n 0 pexpire [key_in 7 hash] 1000000
            n 0 sadd [key_in 7 new] a b
            foreach c $clients {
                $c -read
                $c -close
            }
            wait_for_condition 5000 {[n 0 hexists [key_in 7 fields] f1] == 0}
            migration_is 0 waiting-to-pause
            moves_and_returns 7 $keys
        }
    }

    # 30 MB of commands, which no socket takes.
    set h [key_in 7 h]

    test "a client that changes a large value waits for it, and others do not" {
        start_over 7
        n 0 config set forkless-buffer-limit 1mb
        at_test_end {n 0 config set forkless-buffer-limit 64mb}
        big_hash 0 $h 300000
        freeze_before 7 $h
        set c [new_client -level [node_level 0] -deferring 1]
        $c -send hset $h f1 changed
        wait_for_condition 5000 {[field_of 0 memory mem_cluster_slot_export] > 1000000}
        assert_equal PONG [n 0 ping]
        assert_equal v [string index [n 0 hget $h f1] 0]
        go_on
        assert_equal 0 [$c -read]
        $c -close
        migration_is 0 success
        migration_is 1 success
        assert_equal {changed 300000} [list [n 1 hget $h f1] [n 1 hlen $h]]
        migrate 1 0 7 7
        migration_is 1 success
        migration_is 0 success
    }

    test "a frozen target ends the migration after two seconds while a client waits for a large value" {
        start_over 7
        n 0 config set forkless-buffer-limit 1mb
        at_test_end {n 0 config set forkless-buffer-limit 64mb}
        big_hash 0 $h 300000
        freeze_before 7 $h
        set from [node_log_size 0]
        n 0 hset $h f1 changed
        migration_is 0 failed
        assert_equal "The target kept writes waiting during the snapshot" [dict get [migration 0] message]
        assert [log_has "taken nothing for 2" $from [node_level 0]]
        go_on
        migration_is 1 failed
        assert_equal changed [n 0 hget $h f1]
    }

    test "a script or a transaction takes a large value back from a thread that waits for the target" {
        foreach how {script transaction} {
            start_over 7
            n 0 config set forkless-buffer-limit 1mb
            at_test_end {n 0 config set forkless-buffer-limit 64mb}
            big_hash 0 $h 100000
            n 0 debug slotmigration prevent-pause 1
            freeze_before 7 $h
            if {$how eq "script"} {
                n 0 eval {redis.call('hset', KEYS[1], 'f1', 'changed')} 1 $h
            } else {
                n 0 multi
                n 0 hset $h f1 changed
                n 0 exec
            }
            go_on
            migration_is 0 waiting-to-pause
            moves_and_returns 7 [list $h]
            assert_equal changed [n 0 hget $h f1]
        }
    }

    test "a large value is deleted, replaced, renamed, restored or expires while the target is frozen" {
        foreach how {del set rename restore expire persist copy} {
            start_over 7
            big_hash 0 $h 200000
            n 0 hset [key_in 7 other] f v
            n 0 debug slotmigration prevent-pause 1
            freeze_before 7 $h
            n 0 config set rdb-key-save-delay 0
            wait_for_condition 5000 {[field_of 0 memory mem_cluster_slot_export] > 2000000}
            switch $how {
                del {n 0 del $h}
                set {n 0 set $h string}
                rename {n 0 rename $h [key_in 7 renamed]}
                restore {n 0 restore $h 0 [n 0 dump [key_in 7 other]] replace}
                expire {n 0 pexpire $h 1}
                persist {
                    n 0 pexpire $h 1000000
                    n 0 persist $h
                }
                copy {n 0 copy [key_in 7 other] $h replace}
            }
            if {$how eq "expire"} {wait_for_condition 5000 {[n 0 exists $h] == 0}}
            go_on
            migration_is 0 waiting-to-pause
            moves_and_returns 7 [list $h [key_in 7 renamed] [key_in 7 other]]
        }
    }

    test "a slot is flushed or evicted, or all data are, or replaced, or the link ends, while a large value is read" {
        foreach {how state} {
            flushslot success flushall failed flushdb failed cancel cancelled cut failed reload none evict success
        } {
            start_over 7
            big_hash 0 $h 200000
            freeze_before 7 $h
            n 0 config set rdb-key-save-delay 0
            wait_for_condition 5000 {[field_of 0 memory mem_cluster_slot_export] > 2000000}
            switch $how {
                flushslot {n 0 cluster flushslot 7}
                flushall {n 0 flushall async}
                flushdb {n 0 flushdb sync}
                cancel {n 0 cluster cancelslotmigrations}
                cut {
                    regexp {id=(\d+) [^\n]* flags=E} [n 0 client list] -> id
                    n 0 client kill id $id
                }
                reload {n 0 debug reload}
                evict {
                    n 0 config set maxmemory-policy allkeys-random maxmemory 1
                    catch {n 0 set [key_in 8 x] x}
                    wait_for_condition 10000 {[n 0 dbsize] == 0}
                    n 0 config set maxmemory 0 maxmemory-policy noeviction
                }
            }
            node_resume 1
            if {$state ne "none"} {migration_is 0 $state}
            if {$state ne "success"} {migration_is 1 failed} else {migration_is 1 success}
            assert_equal [expr {$how in {cancel cut reload} ? 200000 : 0}] [
                n 0 {*}[expr {$state eq "success" ? "dbsize" : [list hlen $h]}]]
            if {$state eq "success"} {
                assert_equal 0 [n 1 cluster countkeysinslot 7]
                migrate 1 0 7 7
                migration_is 1 success
                migration_is 0 success
            }
            assert_equal none [field_of 0 clients paused_reason]
        }
    }

    test "a save reads the same large value" {
        start_over 7
        big_hash 0 $h 300000
        n 0 debug slotmigration prevent-pause 1
        n 0 config set bgsave-default-method forkless
        at_test_end {n 0 config set bgsave-default-method fork}
        freeze_before 7 $h
        set before [n 0 debug digest-value $h]
        n 0 bgsave
        n 0 config set rdb-key-save-delay 0
        set c [new_client -level [node_level 0] -deferring 1]
        $c -send hset $h f1 changed
        assert_equal PONG [n 0 ping]
        wait_for_condition 20000 {[field_of 0 persistence rdb_bgsave_in_progress] == 0}
        assert_equal ok [field_of 0 persistence rdb_last_bgsave_status]
        node_resume 1
        assert_equal 0 [$c -read]
        $c -close
        migration_is 0 waiting-to-pause
        moves_and_returns 7 [list $h]
        assert_equal changed [n 0 hget $h f1]
    }

    test "a source that becomes a replica ends the migration, and serves what a client waits for" {
        start_over 7
        big_hash 0 $h 300000
        wait_for_cluster_offset 2 0
        freeze_before 7 $h
        set c [new_client -level [node_level 0] -deferring 1]
        n 0 config set rdb-key-save-delay 0
        n 2 cluster failover takeover
        wait_for_condition 20000 {[repl_field 0 role] eq "slave"}
        $c -send hset $h f1 changed
        assert_error_like "MOVED *" {$c -read}
        $c -close
        go_on
        migration_is 1 failed
        wait_for_condition 10000 {[n 1 cluster countkeysinslot 7] == 0}
        wait_for_cluster_replicas
        n 0 cluster failover
        wait_for_condition 20000 {[repl_field 0 role] eq "master" && [repl_field 2 role] eq "slave"}
        wait_for_cluster_replicas
    }

    test "a source shuts down while its thread waits for a frozen target" {
        start_over 7
        big_hash 0 $h 300000
        freeze_before 7 $h
        n 0 config set rdb-key-save-delay 0
        wait_for_condition 5000 {[field_of 0 memory mem_cluster_slot_export] > 2000000}
        set begun [clock milliseconds]
        n 0 config set shutdown-timeout 0
        node_kill 0 TERM
        assert_lessthan [expr {[clock milliseconds] - $begun}] 10000
        node_resume 1
        migration_is 1 failed
        node_start 0
    }
}

start_cluster [list primaries 3 overrides {cluster-node-timeout 20000}] {
    test "one source sends large values to two targets; one of them freezes, and the other gets all" {
        foreach slot {5 6} {
            big_hash 0 [key_in $slot h] 300000
            n 0 set [key_in $slot number] 0
        }
        n 0 config set forkless-buffer-limit 1mb
        at_test_end {catch {node_resume 2}}
        n 0 config set rdb-key-save-delay 100000
        n 0 cluster migrateslots slotsrange 5 5 node [node_id 1] slotsrange 6 6 node [node_id 2]
        wait_for_condition 10000 {
            [lsort [lmap job [n 0 cluster getslotmigrations] {dict get $job state}]] eq {snapshotting snapshotting}
        }
        node_pause 2
        set clients {}
        foreach slot {5 6} {
            set c [new_client -level [node_level 0] -deferring 1]
            $c -send hset [key_in $slot h] f1 changed
            lappend clients $c
        }
        n 0 config set rdb-key-save-delay 0
        foreach c $clients {
            assert_equal 0 [$c -read]
            $c -close
        }
        proc state_of {slot} {
            foreach job [n 0 cluster getslotmigrations] {
                if {[dict get $job slot_ranges] eq "$slot-$slot"} {return [dict get $job state]}
            }
        }
        wait_for_condition 20000 {[state_of 5] eq "success" && [state_of 6] eq "failed"} {
            fail_assertion [n 0 cluster getslotmigrations]
        }
        node_resume 2
        assert_equal {changed 300000} [list [n 1 hget [key_in 5 h] f1] [n 1 hlen [key_in 5 h]]]
        assert_equal {changed 300000} [list [n 0 hget [key_in 6 h] f1] [n 0 hlen [key_in 6 h]]]
        wait_for_condition 20000 {![catch {migrate 0 2 6 6}]}
        wait_for_condition 20000 {[state_of 6] eq "success"}
        assert_equal {changed 300000} [list [n 2 hget [key_in 6 h] f1] [n 2 hlen [key_in 6 h]]]
    }
}

start_cluster [list primaries 2 overrides [list cluster-node-timeout 20000 enable-module-command yes\
        loadmodule [file join $::root build modules holding.so]]] {
    # Of the last two jobs.
    proc states {i} {lsort [lmap job [lrange [n $i cluster getslotmigrations] 0 1] {dict get $job state}]}

    test "what a module changes by pointers that it held at the moment of the snapshot is not in it" {
        set names [lmap name {large middle} {key_in 7 $name}]
        foreach commands {0 1} {
            n 0 set [lindex $names 0] [string repeat l 60000000]
            n 0 set [lindex $names 1] [string repeat m 50000]
            n 0 debug populate 700 [key_in 8 p] 10
            n 0 holding.open {*}$names
            n 0 holding.pointers
            as_commands $commands
            n 0 config set rdb-key-save-delay 100000
            n 0 debug slotmigration prevent-pause 1
            n 0 cluster migrateslots slotsrange 7 7 node [node_id 1] slotsrange 8 8 node [node_id 1] ;# 8 goes first
            wait_for_condition 10000 {[states 0] eq {snapshotting waiting-to-snapshot}}
            node_pause 1
            at_test_end {catch {node_resume 1}}
            n 0 config set rdb-key-save-delay 0
            wait_for_condition 10000 {[states 0] eq {replicating snapshotting}} {
                fail_assertion [n 0 cluster getslotmigrations]
            }
            n 0 holding.write
            wait_for_condition 5000 {[n 0 getrange [lindex $names 0] 0 4] eq "wwwww"}
            go_on
            wait_for_condition 20000 {[states 0] eq {waiting-to-pause waiting-to-pause}}
            n 0 holding.close
            n 0 debug slotmigration prevent-pause 0
            foreach i {0 1} {wait_for_condition 20000 {[states $i] eq {success success}}}
            assert_equal {60000000 50000} [lmap name $names {n 1 strlen $name}]
            foreach name $names letter {l m} {
                assert_equal -1 [string first w [n 1 get $name]]
                assert_equal $letter [n 1 getrange $name 0 0]
            }
            migrate 1 0 7 8
            migration_is 1 success
            migration_is 0 success
            n 0 cluster flushslot 8
        }
    }
}
