# Slots that move as a whole: CLUSTER MIGRATESLOTS, and what clients, replicas and files see of it. seconds: 49

source [file join $::root tests harness slot_migration.tcl]

# A connection to node i that announces itself as a replica of another kind.
proc replica_of_node {i args} {
    set c [new_client -level [node_level $i]]
    assert_equal OK [$c replconf capa eof capa psync2 version 9.1.2 {*}$args]
    return $c
}
# A fragment: the records and their CRC-32C.
proc with_checksum {bytes} {
    set crc 0xffffffff
    foreach byte [split $bytes {}] {
        set crc [expr {$crc ^ [scan $byte %c]}]
        for {set i 0} {$i < 8} {incr i} {set crc [expr {$crc & 1 ? ($crc >> 1) ^ 0x82f63b78 : $crc >> 1}]}
    }
    return $bytes[binary format i [expr {$crc ^ 0xffffffff}]]
}

start_cluster [list primaries 2 replicas 1 overrides {appendonly yes cluster-node-timeout 10000}] {
    wait_for_cluster_replicas

    test "MIGRATESLOTS refuses what it cannot do" {
        set other [node_id 1]
        foreach {error arguments} [list\
            "No end slot for final slot range" {slotsrange 0}\
            "syntax error" {slotsrange 0 1}\
            "syntax error" {slotsrange 0 1 node}\
            "No slot ranges specified" "slotsrange node $other"\
            "Invalid or out of range slot" "slotsrange 0 16384 node $other"\
            "Start slot number 5 is greater than end slot number 3." "slotsrange 5 3 node $other"\
            "Slot range 5-12 overlaps with previous range 0-10." "slotsrange 0 10 5 12 node $other"\
            "Slot ranges in migrations overlap" "slotsrange 0 10 node $other slotsrange 5 12 node $other"\
            "Requested slots span multiple shards" "slotsrange 0 16383 node $other"\
            "Requested slots span multiple shards" "slotsrange 0 0 16383 16383 5 3 node $other"\
            "Requested slots span multiple shards" "slotsrange 5 5 5 16383"\
            "Start slot number 5 is greater than end slot number 3." "slotsrange 0 0 5 3 16383 16383 node $other"\
            "Slots are not served by this node." "slotsrange 16383 16383 node $other"\
            "Invalid node name: abc" {slotsrange 0 1 node abc}\
            "Invalid node name: [string repeat a 200]" "slotsrange 0 1 node [string repeat a 200]"\
            "Unknown node name: [string repeat a 40]" "slotsrange 0 1 node [string repeat a 40]"\
            "Unknown node name: [string repeat A 40]" "slotsrange 0 1 node [string repeat A 40]"\
            "Slots are not served by this node." "slotsrange 16383 16383 node [node_id 0]"\
            "Slots are not served by this node." {slotsrange 16383 16383}\
            "Target node can not be this node." "slotsrange 0 1 node [node_id 0]"] {
            assert_error "ERR $error" {n 0 cluster migrateslots {*}$arguments}
        }
        assert_error "ERR Slot migration can only be used on primary nodes." {migrate 2 1 0 1}
        assert_error "ERR No migrations ongoing" {n 0 cluster cancelslotmigrations}
        n 0 cluster setslot 7 migrating $other
        foreach slots {{7 7} {8 8} 8} {assert_error "ERR Slots are being manually migrated" {migrate 0 1 {*}$slots}}
        n 0 cluster setslot 7 stable
        n 1 cluster setslot 7 importing [node_id 0]
        assert_error "ERR Slots are being manually imported" {n 1 cluster syncslots establish}
        n 1 cluster setslot 7 stable
        assert_equal {} [n 0 cluster getslotmigrations]
    }

    test "SYNCSLOTS is for nodes" {
        foreach word {ACK SNAPSHOT-EOF REQUEST-PAUSE PAUSED REQUEST-FAILOVER FAILOVER-GRANTED} {
            assert_error "ERR CLUSTER SYNCSLOTS $word should only be used by slot migration clients"\
                {n 1 cluster syncslots $word}
        }
        set job [string repeat j 40]
        assert_error "ERR Target node does not know the source node"\
            {n 1 cluster syncslots establish source [string repeat f 40] name $job slotsrange 0 1}
        assert_error "ERR Target node does not know the source node"\
            {n 1 cluster syncslots establish source [string repeat f 40]}
        assert_error "ERR Source node is target node itself" {n 1 cluster syncslots establish source [node_id 1]}
        assert_error "ERR Target node does not agree about current slot ownership"\
            {n 1 cluster syncslots establish source [node_id 0] name $job slotsrange 16000 16001}
        assert_error "ERR No such slot migration job" {n 1 cluster syncslots finish state success name $job}
        assert_error "ERR syntax error" {n 1 cluster syncslots establish source [node_id 0] name short slotsrange 0 1}
        set whole [list source [node_id 0] name $job slotsrange 0 1]
        foreach again [list [list source [node_id 0]] [list name $job] {slotsrange 2 3}] {
            assert_error "ERR syntax error" {n 1 cluster syncslots establish {*}$whole {*}$again}
        }
    }

    test "the keys of a slot move; until the end the target hides them, and both ends follow changes" {
        fill_slot 0 5
        fill_slot 0 6
        migrate_and_wait 5 6 9 9
        assert_equal "5-6 9-9" [dict get [migration 0] slot_ranges]
        assert_equal occurring-on-primary [dict get [migration 3] state]
        assert_match "*flags=E *" [n 0 client list]
        assert_match "*flags=i *" [n 1 client list]
        foreach {i type flag} {0 replica E 1 normal i} {
            assert {![string match "*flags=$flag *" [n $i client list type $type]]}
        }
        assert_equal [info_field_of 0 clients connected_clients] [llength [split [string trim [n 0 client list \
            not-type replica]] \n]]
        foreach slot {5 7 99999} { ;# whatever the slot is
            foreach words [list stable "importing [node_id 1]" "node [node_id 1]"] {
                assert_error "ERR Slot export in progress." {n 0 cluster setslot $slot {*}$words}
            }
            foreach words [list stable "migrating [node_id 0]"] {
                assert_error "ERR Slot import in progress." {n 1 cluster setslot $slot {*}$words}
            }
        }
        assert_error "ERR I am already migrating slot 6." {migrate 0 1 6 6}
        n 0 append [key_in 5 string] " world"
        n 0 multi
        n 0 incr [key_in 5 number]
        n 0 append [key_in 5 large] y
        n 0 exec
        n 0 del [key_in 6 large]
        n 0 set [key_in 9 new] 1
        n 0 set [key_in 10 stays] 1
        set before [concat [digests 0 5] [digests 0 6]]
        wait_for_condition 5000 {[n 1 cluster countkeysinslot 9] == 1}
        wait_for_cluster_offset 3 1
        foreach i {1 3} {
            assert_equal 0 [n $i dbsize]
            assert_equal {} [n $i keys *]
            assert_equal {} [n $i keys [slot_tag 5]*]
            assert_equal {0 {}} [n $i scan 0 match [slot_tag 5]*]
            assert_equal {} [n $i randomkey]
            assert_equal 10 [n $i cluster countkeysinslot 5]
        }
        assert_equal [string repeat 0 40] [n 1 debug digest]
        assert_equal "-MOVED 5 127.0.0.1:[node_shown_port 0]" [n 1 -typed get [key_in 5 string]]
        migration_ends success
        migration_is 1 success
        migration_is 3 success
        assert_equal "hello world" [n 1 get [key_in 5 string]]
        assert_equal $before [concat [digests 1 5] [digests 1 6]]
        assert_equal "-MOVED 5 127.0.0.1:[node_shown_port 1]" [n 0 -typed get [key_in 5 string]]
        foreach i {0 2} {
            wait_for_condition 5000 {[n $i cluster countkeysinslot 5] == 0}
            assert_equal 1 [n $i dbsize]
        }
        wait_for_cluster_offset 3 1
        assert_equal [n 1 debug digest] [n 3 debug digest]
        assert_equal 20 [n 1 dbsize]
    }

    test "the append-only files of both ends have what was moved" {
        set digest(0) [n 0 debug digest]
        set digest(1) [n 1 debug digest]
        foreach i {0 1} {
            n $i debug loadaof
            assert_equal $digest($i) [n $i debug digest]
        }
    }

    # Slots 100 to 399 have small keys. Each command appends to a key of one of them; the clients wait for nothing.
    proc append_while_moving {slots {large {}}} {
        array unset ::said
        foreach slot $slots {
            set tag [slot_tag $slot]
            for {set i 0} {$i < 10} {incr i} {n 0 set $tag$i [string repeat $i 100]}
            set ::said($tag) ""
        }
        foreach slot $large {n 0 set [slot_tag $slot]large [string repeat x 1000000]}
        set c [new_client -level [node_level 0]]
        set from [node_log_size 0]
        migrate 0 1 [lindex $slots 0] [lindex $slots end]
        for {set i 0; set moved 0} {!$moved} {incr i} {
            foreach slot $slots {$c -send append [slot_tag $slot]5 ,$i}
            foreach slot $slots {
                if {[catch {$c -read} got]} {
                    assert_match "MOVED *" $got
                    set moved 1
                } else {
                    append ::said([slot_tag $slot]) ,$i
                }
            }
        }
        $c -close
        migration_is 1 success
        wait_for_cluster_offset 3 1
        assert_equal [n 1 debug digest] [n 3 debug digest]
        foreach {tag text} [array get ::said] {
            assert_equal [string repeat 5 100]$text [n 1 get ${tag}5]
        }
        foreach slot $large {assert_equal 1000000 [n 1 strlen [slot_tag $slot]large]}
        set log [log_text $from [node_level 0]]
        migrate 1 0 [lindex $slots 0] [lindex $slots end]
        migration_is 1 success
        migration_is 0 success
        return $log
    }
    proc slots {first last} {
        for {set slot $first} {$slot <= $last} {incr slot} {lappend all $slot}
        return $all
    }

    test "slots of small keys are sent between commands, and no change meanwhile is lost" {
        set log [append_while_moving [slots 100 399]]
        assert_match "*: 3000 keys were sent between commands*" $log
    }

    test "slow commands at the source do not hold up what is sent between them" {
        for {set i 0} {$i < 40} {incr i} {lappend names $i}
        foreach slot [slots 1000 4999] {
            set tag [slot_tag $slot]
            n 0 mset {*}[concat {*}[lmap name $names {list $tag$name value}]]
        }
        migrate 0 1 1000 4999
        for {set commands 0} {[dict get [migration 0] state] ne "success"} {incr commands} {
            assert {$commands < 150}
            n 0 debug sleep 0.05
        }
        migration_is 1 success
        foreach slot {1000 4999} {assert_equal 40 [n 1 cluster countkeysinslot $slot]}
        migrate 1 0 1000 4999
        migration_is 1 success
        migration_is 0 success
        foreach slot [slots 1000 4999] {n 0 cluster flushslot $slot}
    }

    test "slots of one moment follow, from the first one on that has a large value" {
        set log [append_while_moving [slots 100 399] {250 300}]
        assert_match "*: 1500 keys were sent slot by slot. The others follow as they are now*" $log
    }

    test "slots of one moment follow from one with a list that has a large element behind small ones" {
        set small [lrepeat 20 [string repeat s 500]]
        foreach slot {100 101 102} {
            for {set i 0} {$i < 10} {incr i} {n 0 rpush [key_in $slot list] {*}$small}
        }
        n 0 rpush [key_in 101 list] [string repeat x 2000000]
        set from [node_log_size 0]
        migrate 0 1 100 102
        migration_is 1 success
        migration_is 0 success
        assert_match "*keys were sent slot by slot. The others follow as they are now*"\
            [log_text $from [node_level 0]]
        assert_equal {200 201 200} [lmap slot {100 101 102} {n 1 llen [key_in $slot list]}]
        foreach slot {100 101 102} {n 1 del [key_in $slot list]}
        migrate 1 0 100 102
        migration_is 1 success
        migration_is 0 success
    }

    test "slots of one moment follow from one whose keys have long names" {
        set long [string repeat n 20000]
        foreach slot {500 501 502} {n 0 set [key_in $slot short] v}
        for {set i 0} {$i < 100} {incr i} {n 0 set [key_in 501 $long]$i $i}
        set from [node_log_size 0]
        migrate 0 1 500 502
        migration_is 1 success
        migration_is 0 success
        assert_match "*: 1 keys were sent slot by slot. The others follow as they are now*"\
            [log_text $from [node_level 0]]
        assert_equal {1 101 1} [lmap slot {500 501 502} {n 1 cluster countkeysinslot $slot}]
        migrate 1 0 500 502
        migration_is 1 success
        migration_is 0 success
        foreach slot {500 501 502} {n 0 cluster flushslot $slot}
    }

    test "slots migrate while the source saves" {
        n 0 config set rdb-key-save-delay 100000
        n 0 bgsave
        wait_for_condition 5000 {[dict get [node_info 0 persistence] rdb_bgsave_in_progress]}
        at_test_end {catch {n 0 bgsave cancel}}
        n 0 set [slot_tag 120]large [string repeat x 1000000]
        n 0 set [slot_tag 100]small 1
        migrate 0 1 100 120
        migration_is 0 success
        n 0 bgsave cancel
        n 0 config set rdb-key-save-delay 0
        assert_equal {1 1000000} [list [n 1 get [slot_tag 100]small] [n 1 strlen [slot_tag 120]large]]
        migrate 1 0 100 120
        migration_is 1 success
        migration_is 0 success
    }

    test "several jobs, one of them the way back" {
        fill_slot 0 20
        fill_slot 0 21
        foreach i {0 1} {set ended($i) [regexp -all success [n $i cluster getslotmigrations]]}
        set other [node_id 1]
        assert_equal OK [n 0 cluster migrateslots slotsrange 20 20 node $other slotsrange 21 21 node $other]
        set shown [lmap job [lrange [n 0 cluster getslotmigrations] 0 1] {dict get $job slot_ranges}]
        assert_equal {20-20 21-21} $shown
        migrate 1 0 5 6
        foreach i {0 1} {
            wait_for_condition 20000 {[regexp -all success [n $i cluster getslotmigrations]] >= $ended($i) + 3}
        }
        assert_equal 10 [n 0 cluster countkeysinslot 5]
        assert_equal 10 [n 1 cluster countkeysinslot 20]
        wait_for_cluster_offset 3 1
        wait_for_cluster_offset 2 0
        assert_equal [n 0 debug digest] [n 2 debug digest]
        assert_equal [n 1 debug digest] [n 3 debug digest]
    }

    test "between our nodes the keys travel in chunks, and large keys as commands" {
        assert_match "*sends its snapshot in chunks, between commands*" [log_text 0 [node_level 0]]
        set keys [lmap name {list hash huge} {key_in 40 $name}]
        lappend keys [key_in 41 v7]
        n 0 debug populate 20000 [key_in 40 p] 60
        n 0 rpush [lindex $keys 0] {*}[lrepeat 5000 element]
        for {set i 0} {$i < 5000} {incr i} {lappend fields $i $i}
        n 0 hset [lindex $keys 1] {*}$fields
        n 0 set [lindex $keys 2] [string repeat 0123456789abcdef 100000]
        for {set i 0} {$i < 40} {incr i} {n 0 set [key_in 41 v$i] [string repeat $i 16000] px 1000000}
        set before [n 0 debug digest-value {*}$keys]
        set ttl [n 0 pexpiretime [key_in 41 v7]]
        migrate_and_wait 40 41
        wait_for_cluster_offset 3 1
        foreach i {1 3} {
            assert_equal 20003 [n $i cluster countkeysinslot 40]
            assert_equal 40 [n $i cluster countkeysinslot 41]
        }
        migration_ends success
        migration_is 1 success
        assert_equal $before [n 1 debug digest-value {*}$keys]
        assert_equal $ttl [n 1 pexpiretime [key_in 41 v7]]
        wait_for_cluster_offset 3 1
        set whole [n 1 debug digest]
        assert_equal $whole [n 3 debug digest]
        foreach i {1 3} {
            n $i debug loadaof
            foreach file [glob [node $i dir]/appendonlydir/*.incr.aof] {
                assert {[string first SYNCSLOTS\r\n\$5\r\nCHUNK [file_bytes $file]] < 0}
            }
        }
        foreach i {1 3} {assert_equal $whole [n $i debug digest]}
        wait_for_cluster_replicas
        migrate 1 0 40 41
        migration_is 1 success
    }

    test "a replica that does not know chunks gets no part of the stream that has them" {
        set c [replica_of_node 1]
        assert_match "+FULLRESYNC *" [replica_sync $c]
        $c -close
        n 1 set [key_in 16000 a] 1
        set at [expr {[dict get [node_info 1 replication] master_repl_offset] + 1}]
        set id [dict get [node_info 1 replication] master_replid]
        migrate 0 1 40 40
        migration_is 0 success
        migration_is 1 success
        set c [replica_of_node 1]
        assert_match "+FULLRESYNC *" [replica_sync $c $id $at]
        $c -close
        set c [replica_of_node 1 capa slot-chunks]
        assert_match "+CONTINUE*" [replica_sync $c $id $at]
        $c -close
        set at [expr {[dict get [node_info 1 replication] master_repl_offset] + 1}]
        n 1 set [key_in 16000 a] 2
        set c [replica_of_node 1]
        assert_match "+CONTINUE*" [replica_sync $c $id $at]
        $c -close
        migrate 1 0 40 40
        migration_is 1 success
    }

    test "a target refuses a second job with the name of one that is in progress" -needs {ours 1} {
        set job [string repeat c 40]
        set c [new_client -level [node_level 1] -deferring 1]
        $c cluster syncslots establish source [node_id 0] name $job slotsrange 40 40
        assert_equal OK [$c -read]
        assert_error "ERR A slot migration with this name is in progress" {
            n 1 cluster syncslots establish source [node_id 0] name $job slotsrange 41 41
        }
        $c -close
        migration_is 1 failed
        set c [new_client -level [node_level 1] -deferring 1]
        $c cluster syncslots establish source [node_id 0] name $job slotsrange 41 41
        assert_equal OK [$c -read]
        $c -close
        migration_is 1 failed
    }

    test "a target refuses chunks that are damaged, or of other slots" {
        foreach {reason bytes} [list "a fragment of 3 bytes" abc\
            "a fragment with a wrong checksum" abcdefgh\
            "record 250 does not belong in a fragment" [with_checksum [binary format H* fafe00ff]]\
            "a key that does not belong here" [with_checksum [binary format H* fe0000036162630176ff]]\
            "bytes after the end of a fragment" [with_checksum [binary format H* fe00ffff]]\
            "Unexpected EOF reading RDB file" [with_checksum [binary format H* fe0000]]\
            "wrong number of arguments" {}] {
            set job [string repeat [expr {[incr number] % 10}] 40]
            set from [node_log_size 1]
            set c [new_client -level [node_level 1] -deferring 1]
            $c cluster syncslots establish source [node_id 0] name $job slotsrange 40 41
            assert_equal OK [$c -read]
            $c -write [resp_command cluster syncslots ack]
            $c -write [resp_command cluster syncslots chunk $job {*}[expr {$bytes eq "" ? {} : [list $bytes]}]]
            wait_for_node_log 1 "*$reason*" $from
            migration_is 1 failed
            $c -close
        }
        foreach i {1 3} {assert_equal 0 [n $i cluster countkeysinslot 40]}
        assert_error "ERR syntax error" {n 1 cluster syncslots chunk [string repeat 1 40] abc}
    }

    test "what does not fit the state of a job ends it, in the words of Valkey" {
        set waits "Unexpected state machine transition"
        set job [string repeat 7 40]
        foreach {message log commands} [list \
            $waits "SNAPSHOT-EOF from slot migration {*}, but not currently loading an AOF snapshot. *" \
                {{cluster syncslots snapshot-eof}} \
            $waits "Received unexpected CLUSTER SYNCSLOTS PAUSED from slot migration {*}, . Failing*" \
                {{cluster syncslots ack} {cluster syncslots paused}} \
            $waits "FAILOVER-GRANTED from slot migration {*}, but we never sent a failover request. *" \
                {{cluster syncslots ack} {cluster syncslots failover-granted}} \
            $waits "REQUEST-PAUSE for slot migration {*}, but the client was not streaming incremental updates. *" \
                {{cluster syncslots ack} {cluster syncslots request-pause}} \
            "Unknown SYNCSLOTS subcommand used" "Received unknown SYNCSLOTS subcommand from slot migration {*}. *" \
                {{cluster syncslots ack} {cluster syncslots foo}} \
            "Failed to process command during slot migration. Check logs for more information" \
                "This slot-import-target is sending an error to its slot-import-source: 'DB index is out of range' *" \
                {{cluster syncslots ack} {select 99}}] {
            set from [node_log_size 1]
            set c [new_client -level [node_level 1] -deferring 1]
            $c cluster syncslots establish source [node_id 0] name $job slotsrange 40 41
            assert_equal OK [$c -read]
            foreach command $commands {$c -write [resp_command {*}$command]}
            wait_for_node_log 1 "*$log*" $from
            migration_is 1 failed
            assert_equal $message [dict get [migration 1] message]
            $c -close
        }
    }

    test "a target requests the pause when it has executed the changes since the snapshot" {
        set capability {cluster syncslots capa slot-chunks}
        set c [new_client -level [node_level 1] -deferring 1]
        $c cluster syncslots establish source [node_id 0] name [string repeat 8 40] slotsrange 40 41
        assert_equal OK [$c -read]
        foreach command [list {cluster syncslots ack} $capability {cluster syncslots snapshot-eof} \
            [list set [key_in 40 changed] value] $capability {cluster syncslots ack}] {
            $c -write [resp_command {*}$command]
        }
        set answers {}
        while {[set got [string tolower [$c -read]]] ne "cluster syncslots request-pause"} {lappend answers $got}
        assert_equal [lrepeat 2 $capability] [lsearch -all -inline -not $answers "cluster syncslots ack"]
        assert_equal 1 [n 1 cluster countkeysinslot 40]
        $c -close
        migration_is 1 failed
        assert_equal 0 [n 1 cluster countkeysinslot 40]
    }

    test "a replica that joins in the middle, a link that is cut, a cancelled job: no node diverges" {
        n 0 debug populate 2000 [key_in 43 p] 60
        n 0 config set rdb-key-save-delay 200
        foreach how {join cut cancel} {
            migrate 0 1 43 43
            migration_is 0 snapshotting
            wait_for_condition 10000 {[n 1 cluster countkeysinslot 43] > 200}
            switch $how {
                join {
                    n 3 debug change-repl-id
                    n 1 client kill type replica
                    wait_for_condition 10000 {[dict get [node_info 3 replication] master_link_status] eq "up"}
                    n 0 config set rdb-key-save-delay 0
                    migration_is 0 success
                    migration_is 1 success
                }
                cut {
                    regexp {id=(\d+) [^\n]* flags=i } [n 1 client list] -> id
                    n 1 client kill id $id
                    migration_is 0 failed
                    migration_is 1 failed
                }
                cancel {
                    n 0 cluster cancelslotmigrations
                    migration_is 0 cancelled
                    migration_is 1 failed
                }
            }
            wait_for_cluster_replicas
            wait_for_cluster_offset 3 1
            assert_equal [n 1 debug digest] [n 3 debug digest]
            set left [expr {$how eq "join" ? 2000 : 0}]
            foreach i {1 3} {assert_equal $left [n $i cluster countkeysinslot 43]}
            if {$how ne "join"} continue
            migrate 1 0 43 43
            migration_is 1 success
            n 0 config set rdb-key-save-delay 200
        }
        n 0 config set rdb-key-save-delay 0
        assert_equal 2000 [n 0 cluster countkeysinslot 43]
    }

    test "a cancelled migration leaves no keys at the target" {
        migrate_and_wait 5 6
        assert_equal OK [n 0 cluster cancelslotmigrations]
        assert_equal cancelled [dict get [migration 0] state]
        migration_is 1 failed
        assert_match "Connection lost to source.*" [dict get [migration 1] message]
        migration_is 3 failed
        foreach i {1 3} {assert_equal 0 [n $i cluster countkeysinslot 5]}
        assert_equal 10 [n 0 cluster countkeysinslot 5]
        n 0 debug slotmigration prevent-pause 0
    }

    test "the output limit of a migration is at least repl-backlog-size" {
        fill_slot 0 61
        set limit [lindex [n 0 config get client-output-buffer-limit] 1]
        n 0 config set client-output-buffer-limit "replica 100kb 0 0" rdb-key-save-delay 100000
        foreach {size state} {10mb waiting-to-pause 16kb failed} {
            n 0 config set repl-backlog-size $size
            n 0 debug slotmigration prevent-pause 1
            migrate 0 1 61 61
            migration_is 0 snapshotting
            foreach i {1 2 3} {n 0 set [key_in 61 changed$i] [string repeat x 50000]}
            migration_is 0 $state
            if {$state ne "failed"} {n 0 cluster cancelslotmigrations}
            n 0 debug slotmigration prevent-pause 0
            migration_is 1 failed
        }
        n 0 config set client-output-buffer-limit $limit rdb-key-save-delay 0 repl-backlog-size 10mb
    }

    test "the commands of a source are those that its user may execute" {
        fill_slot 0 60
        n 0 config set primaryuser mover primaryauth secret
        n 1 acl setuser mover on >secret +cluster|syncslots
        migrate 0 1 60 60
        wait_for_condition 20000 {[dict get [migration 1] slot_ranges] eq "60-60"}
        migration_is 1 failed
        assert_equal "Failed to process command during slot migration. Check logs for more information" \
            [dict get [migration 1] message]
        assert_equal mover [dict get [lindex [n 1 acl log] 0] username]
        assert_equal 0 [n 1 cluster countkeysinslot 60]
        n 1 acl setuser mover allcommands allkeys resetchannels
        set from [node_log_size 0]
        migrate 0 1 60 60
        migration_is 0 success
        assert_equal 10 [n 1 cluster countkeysinslot 60]
        assert {![log_has "sends its snapshot in chunks" $from [node_level 0]]}
        n 0 config set primaryuser "" primaryauth ""
        n 1 acl deluser mover
    }

    test "a migration that is granted can be cancelled, and its writes go on when the target has refused" {
        n 1 debug slotmigration prevent-failover 1
        migrate 0 1 5 6
        migration_is 0 failover-granted
        assert_equal slot_migration_in_progress [dict get [node_info 0 clients] paused_reason]
        assert_equal OK [n 0 cluster cancelslotmigrations]
        assert_equal {cancelled {}} [list [dict get [migration 0] state] [dict get [migration 0] message]]
        assert_error "ERR No migrations ongoing" {n 0 cluster cancelslotmigrations}
        n 0 set [key_in 5 string] written
        assert_equal none [dict get [node_info 0 clients] paused_reason]
        assert_equal cancelled [dict get [migration 0] state]
        migration_is 1 failed
        assert_equal written [n 0 get [key_in 5 string]]
        n 0 set [key_in 5 string] hello
    }

    test "after a migration that was granted is cancelled, the source asks the target whether writes may go on" {
        n 0 debug drop-cluster-packet-filter -2 ;# the bus does not tell it
        n 0 config set cluster-manual-failover-timeout 30000
        migrate 0 1 5 6
        migration_is 0 failover-granted
        assert_equal OK [n 0 cluster cancelslotmigrations]
        wait_for_condition 1500 {[dict get [node_info 0 clients] paused_reason] eq "none"}
        n 0 debug drop-cluster-packet-filter -1
        n 0 config set cluster-manual-failover-timeout 5000
        migration_is 1 failed
        n 1 debug slotmigration prevent-failover 0
    }

    test "GETSLOTMIGRATIONS keeps no more than cluster-slot-migration-log-max-len, also once it is lowered" {
        set limit [lindex [n 0 config get cluster-slot-migration-log-max-len] 1]
        assert {[llength [n 0 cluster getslotmigrations]] > 1}
        foreach max {1 0} {
            n 0 config set cluster-slot-migration-log-max-len $max
            assert_equal $max [llength [n 0 cluster getslotmigrations]]
        }
        n 0 config set cluster-slot-migration-log-max-len $limit
    }

    test "what waits for the target of a migration does not count towards maxmemory" {
        migrate_and_wait 5 6
        exec kill -STOP [srv [node_level 1] pid]
        at_test_end {catch {exec kill -CONT [srv [node_level 1] pid]}}
        set excluded [dict get [node_info 0 memory] mem_not_counted_for_evict]
        set value [string repeat x 1000000]
        for {set i 0} {$i < 20} {incr i} {n 0 set [key_in 5 waits] $value}
        wait_for_condition 5000 {
            [dict get [node_info 0 memory] mem_not_counted_for_evict] - $excluded > 5000000
        }
        exec kill -CONT [srv [node_level 1] pid]
        n 0 del [key_in 5 waits]
        n 0 cluster cancelslotmigrations
        migration_is 1 failed
        n 0 debug slotmigration prevent-pause 0
    }

    test "writes wait for the outcome of a granted migration also if the source loads its data again" {
        n 1 debug slotmigration prevent-failover 1
        migrate 0 1 5 6
        migration_is 0 failover-granted
        exec kill -STOP [srv [node_level 1] pid] ;# or the source hears at once that the target has refused
        at_test_end {catch {exec kill -CONT [srv [node_level 1] pid]}}
        assert_equal OK [n 0 debug reload]
        assert_equal slot_migration_in_progress [dict get [node_info 0 clients] paused_reason]
        exec kill -CONT [srv [node_level 1] pid]
        n 0 set [key_in 5 string] written
        migration_is 1 failed
        n 1 debug slotmigration prevent-failover 0
        assert_equal written [n 0 get [key_in 5 string]]
        n 0 set [key_in 5 string] hello
    }

    test "the log names the nodes of a migration as their operators do" {
        n 0 config set cluster-announce-human-nodename from-here
        n 1 config set cluster-announce-human-nodename to-there
        wait_for_condition 10000 {
            [string match "*nodename=to-there,*" [file_bytes [file join [node 0 dir] nodes.conf]]] &&
            [string match "*nodename=from-here,*" [file_bytes [file join [node 1 dir] nodes.conf]]]
        }
        set from0 [log_size [node_level 0]]
        set from1 [log_size [node_level 1]]
        migrate_and_wait 63 63
        assert [log_has "node_id: [node_id 1], target_node_human_name: to-there, slots: 63-63" $from0 [node_level 0]]
        assert [log_has "node_id: [node_id 0], source_node_human_name: from-here, slots: 63-63" $from1 [node_level 1]]
        n 0 cluster cancelslotmigrations
        migration_is 1 failed
        n 0 debug slotmigration prevent-pause 0
        foreach i {0 1} {n $i config set cluster-announce-human-nodename ""}
    }

    test "a migration that is granted goes on when the target may take the slots again" {
        n 1 debug slotmigration prevent-failover 1
        migrate 0 1 62 62
        migration_is 0 failover-granted
        migration_is 1 failover-granted
        n 1 debug slotmigration prevent-failover 0
        migration_is 0 success
        migration_is 1 success
    }

    test "a slot that is deleted and added again goes on to migrate" {
        migrate_and_wait 5 6
        assert_match "*flags=E*cmd=cluster|syncslots*" [n 0 client list]
        n 0 cluster delslots 5
        assert_equal waiting-to-pause [dict get [migration 0] state]
        n 0 cluster addslots 5
        assert_error "ERR I am already migrating slot 5." {migrate 0 1 5 6}
        assert_error "ERR I am already migrating slot 6." {n 0 cluster migrateslots slotsrange 6 7}
        assert_equal waiting-to-pause [dict get [migration 0] state]
        n 0 cluster cancelslotmigrations
        migration_is 1 failed
        n 0 debug slotmigration prevent-pause 0
        wait_for_cluster_state ok
    }

    test "clients with BCAST at the target hear of the keys that arrive in chunks" {
        n 0 set [key_in 77 a] 1
        n 0 set [key_in 77 b] 2
        set c [new_client -level [node_level 1] -resp 3]
        assert_equal OK [$c client tracking on bcast prefix [key_in 77 ""]]
        migrate 0 1 77 77
        migration_is 0 success
        set names {}
        while {[llength $names] < 2} {lappend names {*}[lindex [$c -push] 1]}
        assert_equal [list [key_in 77 a] [key_in 77 b]] [lsort $names]
        $c -close
        migrate 1 0 77 77
        migration_is 1 success
    }

    test "a target whose keyspace events are wanted gets commands, not chunks" {
        set offset [log_size [node_level 0]]
        n 1 config set notify-keyspace-events KEA
        set events [new_client -level [node_level 1]]
        $events psubscribe __keyevent@0__:*
        migrate_and_wait 5 6
        set got {}
        while {[llength [lsort -unique $got]] < 14} {
            set event [$events read]
            lappend got [list [string range [lindex $event 3] [string length [slot_tag 5]] end] \
                [lindex [split [lindex $event 2] :] 1]]
        }
        set expected {
            {expiring hexpire} {expiring hset} {hash hset} {ints sadd} {large set} {list rpush} {number expire}
            {number set} {set sadd} {stream xadd} {stream xgroup-create} {stream xsetid} {string set} {zset zadd}
        }
        assert_equal [lsort $expected] [lsort -unique $got]
        $events close
        n 1 config set notify-keyspace-events ""
        assert_not_match "*snapshot in chunks*" [log_text $offset [node_level 0]]
        n 0 cluster cancelslotmigrations
        migration_is 1 failed
        n 0 debug slotmigration prevent-pause 0
    }

    test "a target without memory fails the migration, evicts only what is its own, and loses no key" {
        n 0 debug populate 12000 [key_in 44 p] 1000
        for {set i 0} {$i < 500} {incr i} {n 1 set [key_in 16001 own$i] [string repeat x 1000]}
        set before [n 0 debug digest]
        n 1 config set maxmemory-eviction-tenacity 100 ;# no command runs before the eviction is done
        wait_for_condition 10000 {[dict get [node_info 1 memory] lazyfree_pending_objects] == 0}
        set memory [node_info 1 memory]
        set limit [expr {[dict get $memory used_memory] - [dict get $memory mem_not_counted_for_evict] + 1500000}]
        foreach policy {noeviction volatile-lru allkeys-lru} {
            n 1 config set maxmemory-policy $policy
            n 1 config set maxmemory $limit
            migrate 0 1 44 44
            migration_is 0 failed
            migration_is 1 failed
            assert_equal "Ran out of memory (OOM) during slot import" [dict get [migration 1] message]
            assert_match "*Slot migration * failed due to OOM*" [log_text 0 [node_level 1]]
            n 1 config set maxmemory 0
            assert_equal $before [n 0 debug digest]
            wait_for_cluster_offset 3 1
            foreach i {1 3} {
                assert_equal 0 [n $i cluster countkeysinslot 44]
                assert_equal [expr {$policy eq "allkeys-lru" ? 0 : 500}] [n $i cluster countkeysinslot 16001]
            }
        }
        n 1 config set maxmemory-policy noeviction maxmemory-eviction-tenacity 10
        n 0 cluster flushslot 44
    }

    test "commands of the source wait while a script is busy at the target" {
        migrate_and_wait 71 71
        n 1 config set busy-reply-threshold 20
        set c [new_client -level [node_level 1] -deferring 1]
        $c eval "while true do end" 0
        wait_for_condition 10000 {[string match "-BUSY*" [n 1 -typed ping]]}
        n 0 set [key_in 71 meanwhile] 1
        wait_for_condition 10000 {[dict get [migration 0] remaining_repl_size] == 0}
        for {set i 0} {$i < 50} {incr i} {assert_match "-BUSY*" [n 1 -typed ping]} ;# each is a turn of the loop
        n 1 script kill
        catch {$c -read}
        $c -close
        n 1 config set busy-reply-threshold 5000
        migration_ends success
        assert_equal 1 [n 1 get [key_in 71 meanwhile]]
    }

    test "FLUSHALL at the source in the middle ends the migration" {
        n 0 debug populate 2000 [key_in 45 p] 60
        n 0 config set rdb-key-save-delay 500
        migrate 0 1 45 45
        wait_for_condition 10000 {[n 1 cluster countkeysinslot 45] > 100}
        n 0 cluster flushslot 5
        n 0 flushall
        migration_is 0 failed
        assert_equal "Data was flushed" [dict get [migration 0] message]
        migration_is 1 failed
        n 0 config set rdb-key-save-delay 0
        foreach i {1 3} {assert_equal 0 [n $i cluster countkeysinslot 45]}
        fill_slot 0 5
    }

    test "FLUSHALL at the target ends the migration" {
        n 1 flushall
        migrate_and_wait 5 6
        n 1 flushall
        migration_is 1 failed
        assert_equal "Data was flushed" [dict get [migration 1] message]
        migration_is 0 failed
        assert_equal 0 [n 1 cluster countkeysinslot 5]
        assert_equal 10 [n 0 cluster countkeysinslot 5]
        n 0 debug slotmigration prevent-pause 0
    }

    test "FLUSHSLOT at the target ends the migration" {
        migrate_and_wait 5 6
        wait_for_condition 5000 {[n 1 cluster countkeysinslot 5] == 10}
        assert_equal OK [n 1 cluster flushslot 7]
        assert_equal waiting-for-paused [dict get [migration 1] state]
        assert_equal OK [n 1 cluster flushslot 5]
        migration_ends failed
        migration_is 1 failed
        assert_equal "Data was flushed" [dict get [migration 1] message]
        assert_equal 10 [n 0 cluster countkeysinslot 5]
    }

    test "FLUSHSLOT at the source reaches the target of a migration" {
        foreach slot {63 64} {n 0 set [key_in $slot a] 1}
        migrate_and_wait 63 64
        n 0 cluster flushslot 63
        migration_ends success
        assert_equal {0 1} [list [n 1 cluster countkeysinslot 63] [n 1 cluster countkeysinslot 64]]
    }

    test "a target that restarts drops what it had" {
        migrate_and_wait 5 6
        wait_for_condition 5000 {[n 1 cluster countkeysinslot 5] == 10}
        node_restart 1 KILL
        wait_for_condition 20000 {[dict get [migration 1] message] eq "Process restarted"}
        assert_equal 0 [n 1 cluster countkeysinslot 5]
        migration_is 0 failed
        n 0 debug slotmigration prevent-pause 0
        wait_for_cluster_state ok
        wait_for_cluster_replicas
    }

    test "a target that fails over ends the migration" {
        migrate_and_wait 5 6
        wait_for_cluster_offset 3 1
        n 3 cluster failover
        wait_for_condition 20000 {[is_primary 3]}
        wait_for_condition 20000 {[dict get [migration 3] state] eq "failed"}
        assert_equal "A failover occurred during slot import" [dict get [migration 3] message]
        migration_is 1 failed
        assert_equal "A failover occurred during slot import" [dict get [migration 1] message]
        assert {![dict exists [migration 1] source_node]}
        set text "*source_node_id: [node_id 0], *state transition: waiting-for-paused -> occurring-on-primary*"
        assert_match $text [log_text 0 [node_level 1]]
        migration_is 0 failed
        n 0 debug slotmigration prevent-pause 0
        wait_for_cluster_agreement
        wait_for_cluster_replicas
        foreach i {1 3} {wait_for_condition 10000 {[n $i cluster countkeysinslot 5] == 0}}
        assert_equal 10 [n 0 cluster countkeysinslot 5]
        assert_equal OK [migrate 0 3 5 6]
        migration_is 0 success
        assert_equal 10 [n 3 cluster countkeysinslot 5]
        wait_for_cluster_offset 1 3
        assert_equal [n 3 debug digest] [n 1 debug digest]
    }

    test "finished migrations are kept up to a number" {
        n 0 config set cluster-slot-migration-log-max-len 2
        migrate 0 3 30 30
        migration_is 0 success
        assert_equal 2 [llength [n 0 cluster getslotmigrations]]
    }

    test "valkey-cli asks the target about a migration that its source has forgotten" {
        n 0 config set cluster-slot-migration-log-max-len 0
        set out [exec [file join $::root src valkey-cli] {*}[tls_tool_options] --cluster reshard\
            127.0.0.1:[node_base_port 0]\
            --cluster-from [node_id 0] --cluster-to [node_id 3] --cluster-slots 1 --cluster-yes\
            --cluster-use-atomic-slot-migration]
        assert_match "*via atomic slot migration*" $out
        assert_equal {} [n 0 cluster getslotmigrations]
    }
}

start_cluster [list primaries 3 overrides {cluster-node-timeout 10000}] {
    test "snapshots for different targets run side by side, and a second one for a target waits" {
        foreach slot {5 6 7} {n 0 debug populate 1000 [key_in $slot p] 60}
        n 0 config set rdb-key-save-delay 2000
        n 0 cluster migrateslots slotsrange 5 5 node [node_id 1] slotsrange 6 6 node [node_id 2]\
            slotsrange 7 7 node [node_id 1]
        wait_for_condition 20000 {
            [lsort [lmap job [n 0 cluster getslotmigrations] {dict get $job state}]] eq\
                {snapshotting snapshotting waiting-to-snapshot}
        } "the jobs are [n 0 cluster getslotmigrations]"
        set pid [srv [node_level 0] pid]
        assert_equal {} [string trim [file_bytes /proc/$pid/task/$pid/children]]
        foreach i {1 2} {wait_for_condition 10000 {[n $i cluster countkeysinslot [expr {$i + 4}]] > 100}}
        n 0 config set rdb-key-save-delay 0
        wait_for_condition 20000 {
            [lsort -unique [lmap job [n 0 cluster getslotmigrations] {dict get $job state}]] eq "success"
        } "the jobs are [n 0 cluster getslotmigrations]"
        foreach {i slots} {0 {} 1 {5 7} 2 6} {
            foreach slot {5 6 7} {
                assert_equal [expr {$slot in $slots ? 1000 : 0}] [n $i cluster countkeysinslot $slot]
            }
        }
        assert_equal 0 [dict get [node_info 0 persistence] slot_migration_fork_in_progress]
        n 0 bgsave
    }

    test "a target that the bus does not reach claims slots with an epoch above those of its source" -needs {ours 1} {
        n 1 debug drop-cluster-packet-filter -2
        foreach {i other} {0 2 2 0 0 2 2 0} {
            n $i cluster bumpepoch
            wait_for_condition 10000 {
                [cluster_field $other cluster_current_epoch] >= [cluster_field $i cluster_my_epoch]
            }
        }
        n 0 cluster bumpepoch
        wait_for_condition 10000 {[cluster_field 2 cluster_current_epoch] >= [cluster_field 0 cluster_my_epoch]}
        n 2 cluster bumpepoch ;# as another shard's election
        set epoch [cluster_field 2 cluster_my_epoch]
        wait_for_condition 10000 {[cluster_field 0 cluster_current_epoch] >= $epoch}
        migrate 0 1 200 200
        migration_is 0 success
        assert {[cluster_field 1 cluster_my_epoch] > $epoch}
        n 1 debug drop-cluster-packet-filter -1
    }

    test "a target that is asked for the outcome claims the slots with an epoch above its source's" -needs {ours 1} {
        n 1 debug slotmigration prevent-failover 1
        migrate 0 1 201 201
        migration_is 1 failover-granted
        set name [dict get [migration 1] name]
        set epoch [expr {[cluster_field 1 cluster_current_epoch] + 100}]
        set question [list cluster syncslots outcome source [node_id 0] name $name shard]
        set shard [n 1 cluster myshardid]
        foreach wrong {x -1} {
            assert_error "ERR syntax error" {n 1 {*}$question $shard epoch $wrong slotsrange 201 201}
        }
        assert_error "ERR This node is in another shard" {
            n 1 {*}$question [n 0 cluster myshardid] epoch $epoch slotsrange 201 201
        }
        lappend question $shard epoch $epoch slotsrange 201 201
        assert_error "TRYAGAIN The outcome of this slot migration is not decided" {n 1 {*}$question}
        assert {[cluster_field 1 cluster_current_epoch] < $epoch} ;# no claim
        n 1 multi
        n 1 debug slotmigration prevent-failover 0
        n 1 {*}$question
        assert_equal {OK TAKEN} [n 1 exec]
        assert {[cluster_field 1 cluster_my_epoch] > $epoch}
        migration_is 0 success
    }

    test "a node that was granted slots pauses for another target when it has taken them, or has failed" {
        n 0 debug slotmigration prevent-pause 1
        migrate 0 2 100 100
        migration_is 0 waiting-to-pause
        set from [node_log_size 0]
        n 0 debug slotmigration prevent-failover 1
        migrate 1 0 6000 6000
        migration_is 0 failover-granted
        n 0 debug slotmigration prevent-pause 0
        n 0 ping
        n 0 debug slotmigration prevent-failover 0
        wait_for_condition 20000 {[slot_owner 100] == 2}
        set text [log_text $from [node_level 0]]
        set ends [regexp -inline -indices {failover-granted -> (success|cleaning-up)} $text]
        set pauses [string first "waiting-to-pause -> failover-paused" $text]
        assert {[lindex $ends 0 0] >= 0 && $pauses > [lindex $ends 0 0]} "pause at $pauses, end at $ends"
    }

    test "a granted migration that is about to fail ends when the source loads its data again" -needs {ours 1} {
        n 1 debug slotmigration prevent-failover 1
        migrate 0 1 300 300
        migration_is 1 failover-granted
        n 0 multi
        n 0 flushall
        n 0 debug reload
        assert_equal {OK OK} [n 0 exec] ;# when the source waits no more
        migration_is 1 failed
        n 1 debug slotmigration prevent-failover 0
        assert_equal 1 [n 0 incr [key_in 300 number]]
    }
}

start_cluster [list primaries 2 replicas 1 overrides {
    appendonly yes aof-use-rdb-preamble no cluster-node-timeout 10000 cluster-databases 3}] {
    test "an append-only file that is rewritten as commands during an import has the keys that have arrived" {
        wait_for_cluster_replicas
        fill_slot 0 5
        n 0 select 2
        fill_slot 0 6
        n 0 select 0
        migrate_and_wait 5 6
        wait_for_cluster_offset 3 1
        foreach i {1 3} {
            n $i bgrewriteaof
            wait_for_condition 10000 {[dict get [node_info $i persistence] aof_rewrite_in_progress] == 0}
            assert_equal ok [dict get [node_info $i persistence] aof_last_bgrewrite_status]
        }
        set before [digests 0 5]
        migration_ends success
        migration_is 1 success
        migration_is 3 success
        wait_for_cluster_offset 3 1
        assert_equal $before [digests 1 5]
        set whole [n 1 debug digest]
        foreach i {1 3} {
            n $i debug loadaof
            assert_equal $whole [n $i debug digest]
        }
    }
}

start_cluster {primaries 2 overrides {cluster-node-timeout 10000 rename-command {unlink ""}}} {
    test "a target hears of deletions although the command is renamed away at the source" {
        n 0 set [key_in 5 number] 42
        migrate_and_wait 5 5
        n 0 pexpire [key_in 5 number] 1
        wait_for_condition 5000 {[n 0 exists [key_in 5 number]] == 0}
        assert_equal 1 [n 0 incr [key_in 5 number]]
        migration_ends success
        migration_is 1 success
        assert_equal {1 -1} [list [n 1 get [key_in 5 number]] [n 1 ttl [key_in 5 number]]]
    }
}

start_cluster [list primaries 2 replicas 1 overrides {appendonly yes cluster-node-timeout 20000
    cluster-replica-no-failover yes}] {
    test "a replica that leaves its shard takes no slots that were granted to it" {
        wait_for_cluster_replicas
        n 0 set [key_in 5 a] 1
        wait_for_cluster_offset 2 0
        node_kill 2 TERM
        set files [lsort [glob [node 2 dir]/appendonlydir/*.incr.aof]]
        set job [string repeat j 40]
        set f [open [lindex $files end] ab]
        puts -nonewline $f [resp_command SELECT 0][resp_command CLUSTER SYNCSLOTS ESTABLISH NAME $job \
            SLOTSRANGE 16000 16000]
        puts -nonewline $f [resp_command SET [key_in 16000 b] 1][resp_command CLUSTER SYNCSLOTS TAKE NAME $job]
        close $f
        node_pause 0
        node_start 2
        migration_is 2 occurring-on-primary
        assert_equal OK [n 2 cluster replicate no one]
        migration_is 2 failed
        assert_equal {} [dict get [cluster_view 2] [node_id 2] slots]
        assert_equal {0 0} [list [n 2 dbsize] [n 2 cluster countkeysinslot 16000]]
        n 2 debug loadaof
        assert_equal failed [dict get [migration 2] state]
        assert_equal {} [dict get [cluster_view 2] [node_id 2] slots]
        assert_equal {0 0} [list [n 2 dbsize] [n 2 cluster countkeysinslot 16000]]
        node_resume 0
    }
}
