# The primary's side of replication, with replicas that send raw bytes (harness/replica.tcl). seconds: 46

proc replica_errors {pairs} {
    foreach {command text} $pairs {
        set c [new_client]
        assert_error $text {$c {*}$command}
        $c -close
    }
}
proc stream_of {args} {
    set out ""
    foreach command $args {append out [resp_command {*}$command]}
    return $out
}
proc snapshots_started {} {regexp -all "Starting BGSAVE for SYNC" [log_text]}

start_server {overrides {repl-diskless-sync-delay 0} tags {replication}} {
    test "REPLCONF takes what a replica says about itself, and refuses what it does not know" -needs {version 9.0} {
        set c [new_client]
        foreach options {
            {} {listening-port 6380} {ip-address 192.0.2.9} {capa eof capa psync2} {capa of-the-future} {version 9.1.2}
            {rdb-only 1} {rdb-filter-only functions} {rdb-filter-only ""} {rdb-channel 0}\
                {listening-port 1 ip-address ""}
        } {assert_equal OK [$c replconf {*}$options]}
        replica_errors {
            {replconf capa} {ERR syntax error}
            {replconf no-such option} {ERR Unrecognized REPLCONF option: no-such}
            {replconf capa eof no-such option} {ERR Unrecognized REPLCONF option: no-such}
            {replconf listening-port x} {ERR value is not an integer or out of range}
            {replconf rdb-only 2} {ERR value is out of range, value must between 0 and 1}
            {replconf rdb-only x} {ERR value is not an integer or out of range}
            {replconf rdb-channel 2} {ERR value is out of range, value must between 0 and 1}
            {replconf rdb-filter-only data} {ERR Unsupported rdb-filter-only option: data}
            {replconf set-rdb-client-id 1234567} {ERR Unrecognized RDB client id 1234567}
            {replconf set-rdb-client-id x} {ERR value is not an integer or out of range}
            {replconf version 9} {ERR Unrecognized version format: 9}
            {replconf version 9.1.2.3} {ERR Unrecognized version format: 9.1.2.3}
        }
        set long [string repeat a 256]
        replica_errors [list [list replconf ip-address $long] \
            {ERR REPLCONF ip-address provided by replica instance is too long: 256 bytes}]
    }

    test "REPLCONF ACK and GETACK of a client that is no replica get no reply" {
        set c [new_client]
        $c -send replconf ack 1
        $c -send replconf ack x
        $c -send replconf getack *
        assert_equal PONG [$c ping]
    }

    test "PSYNC and SYNC are refused in a transaction, with a wrong offset, and FAILOVER to a primary" {
        replica_errors {
            {psync ? x} {ERR value is not an integer or out of range}
            {psync ? -1 failover} {ERR PSYNC FAILOVER can't be sent to a master.}
            {psync ?} {ERR wrong number of arguments for 'psync' command}
            {sync x} {ERR wrong number of arguments for 'sync' command}
        }
        assert {[log_has "asks for synchronization but with a wrong offset"]}
        foreach command {{psync ? -1} sync} {
            r multi
            assert_error_like "ERR Command '*' not allowed inside a transaction" {r {*}$command}
            r discard
        }
    }

    test "a full copy without a file: end mark, AUX fields, and the stream after the first acknowledgement" {
        r flushall
        r set before 1
        set full [info_field stats sync_full]
        set c [replica_connect capa eof capa psync2]
        assert_match {+FULLRESYNC *} [set line [replica_sync $c]]
        lassign [split $line] - id offset
        assert_equal $id [info_field replication master_replid]
        set payload [replica_payload $c]
        assert_regexp {^(REDIS|VALKEY)0} $payload
        foreach field {repl-stream-db repl-id repl-offset} {assert_match "*$field*" $payload}
        assert_match "*$id*before*" $payload
        assert_equal [expr {$full + 1}] [info_field stats sync_full]
        r set after 2
        r set after 3
        wait_for_condition 5000 {[dict get [lindex [replica_lines] 0] state] eq "online"}
        assert_equal 1 [info_field clients connected_clients] ;# replicas do not count
        assert_equal "" [string map {\n ""} [$c -available]]
        replica_ack $c $offset
        set expected [stream_of {SELECT 0} {set after 2} {set after 3}]
        assert_equal $expected [replica_stream $c [string length $expected]]
        assert_equal [expr {$offset + [string length $expected]}] [repl_offset]
        replica_leaves $c
    }

    test "a full copy from a file: its length, followed directly by the stream" -needs {ours 1} {
        with_config {repl-diskless-sync no} {
            set c [replica_connect capa eof capa psync2]
            lassign [split [replica_sync $c]] - id offset
            set bytes [replica_payload $c]
            assert_equal [file_bytes [file join [srv dir] dump.rdb]] $bytes
            r set after 4
            set expected [stream_of {SELECT 0} {set after 4}]
            assert_equal $expected [replica_stream $c [string length $expected]]
            $c -close
        }
        wait_replicas 0
    }

    test "SYNC without capabilities gets a file, and nothing before it" {
        set c [new_client]
        $c -send sync
        assert_regexp {^(REDIS|VALKEY)0} [replica_payload $c]
        r set after 5
        assert_equal {{SELECT 0} {set after 5}} [replica_commands $c]
        replica_leaves $c
    }

    test "the full copy has the format that the replica's version reads" -needs {ours 1} {
        foreach {version magic} {"" REDIS0010 8.0.1 REDIS0011 9.1.0 VALKEY080} {
            set options {capa eof capa psync2}
            if {$version ne ""} {lappend options version $version}
            lassign [replica_full_sync {*}$options] c - - payload
            assert_equal $magic [string range $payload 0 8] $version
            $c -close
        }
        wait_replicas 0
    }

    test "a replica whose version cannot load the data is refused with the reason" -needs {ours 1} {
        r hset fields f v
        r hexpire fields 10000 fields 1 f
        set started [snapshots_started]
        set mark [log_size]
        set port 7776
        foreach {diskless version number attempts} {yes "" 10 1 yes 8.0.1 11 2 no "" 10 1 no 8.0.1 11 1} {
            r config set repl-diskless-sync $diskless
            set options [list capa eof capa psync2 listening-port [incr port]]
            if {$version ne ""} {lappend options version $version}
            # Genuine replicas retry immediately: the error reply is delayed by a second, and the log has one line for
            # all attempts.
            for {set i 0} {$i < $attempts} {incr i} {
                set c [replica_connect {*}$options]
                set asked [clock milliseconds]
                assert_equal "-ERR The data contain hash fields with an expiry, which this replica's version\
                    cannot load" \
                    [replica_sync $c]
                assert_morethan [expr {[clock milliseconds] - $asked}] 500
                assert [$c -eof]
                $c -close
            }
            assert_equal 1 [regexp -all ":$port reads RDB version $number, which cannot hold hash fields" \
                [log_text $mark]]
        }
        foreach diskless {yes no} {
            r config set repl-diskless-sync $diskless
            set c [replica_connect capa eof version 8.0.1 rdb-filter-only functions]
            assert_match "+FULLRESYNC *" [replica_sync $c]
            $c -close
            lassign [replica_full_sync capa eof capa psync2 version 9.1.0] c
            replica_leaves $c
        }
        assert_equal 4 [expr {[snapshots_started] - $started}]
        r config set repl-diskless-sync yes
        r del fields
    }

    test "a client without any capability gets the format that the data need" {
        r hset fields f v
        r hexpire fields 10000 fields 1 f
        set c [new_client]
        $c -send sync
        assert_match "VALKEY080*fields*" [replica_payload $c]
        replica_leaves $c
        r del fields
    }

    test "a snapshot without data needs a replica that reads it from the stream" {
        set c [replica_connect listening-port 1 rdb-filter-only functions]
        assert_equal "-ERR Filtered replica requires EOF capability" [replica_sync $c]
    }

    test "the stream: SELECT where the database changes, MULTI and EXEC around groups, messages" {
        lassign [replica_full_sync] c
        r flushall
        r select 2
        r set a 1
        r multi; r set a 2; r exec
        r multi; r set a 3; r select 3; r set b 1; r publish ch msg; r exec
        r select 0
        r publish ch msg
        r getdel no-such-key
        r mset k 1 l 2
        set expected {
            {SELECT 0} flushall {SELECT 2} {set a 1} {set a 2} MULTI {set a 3} {SELECT 3} {set b 1} {publish ch msg}
            EXEC {SELECT 0} {publish ch msg} {mset k 1 l 2}
        }
        assert_equal [list {*}$expected] [replica_commands $c]
        replica_leaves $c
    }

    test "large values and large groups arrive unchanged" {
        lassign [replica_full_sync] c
        set value [randstring 200000 200000 alpha]
        r set large $value
        r multi
        r set first 1
        r set large $value
        for {set i 0} {$i < 500} {incr i} {r set k:$i [string repeat x 1000]}
        r exec
        set commands [replica_commands $c]
        assert_equal {SELECT 0} [lindex $commands 0]
        assert_equal [list set large $value] [lindex $commands 1]
        assert_equal {MULTI {set first 1}} [lrange $commands 2 3]
        assert_equal [list set large $value] [lindex $commands 4]
        assert_equal [list set k:499 [string repeat x 1000]] [lindex $commands end-1]
        assert_equal EXEC [lindex $commands end]
        assert_equal 506 [llength $commands]
        replica_leaves $c
    }

    test "a replica whose link broke continues where it was" {
        lassign [replica_full_sync] c id offset
        r set k 1
        r set k 2
        replica_commands $c
        set here [repl_offset]
        $c -close
        r set k 3
        set ok [info_field stats sync_partial_ok]
        foreach {from capa} [list [expr {$offset + 1}] psync2 [expr {$here + 1}] eof \
            [expr {[repl_offset] + 1}] psync2] {
            set c [replica_connect capa $capa]
            assert_equal [expr {$capa eq "psync2" ? "+CONTINUE $id" : "+CONTINUE"}] [replica_sync $c $id $from]
            set bytes [expr {[repl_offset] - $from + 1}]
            if {$bytes} {assert_match "*[resp_command set k 3]*" [replica_stream $c $bytes]}
            assert_equal online [dict get [lindex [replica_lines] 0] state]
            replica_leaves $c
        }
        assert_equal [expr {$ok + 3}] [info_field stats sync_partial_ok]
    }

    test "a partial synchronization is refused for another history, and beyond both ends of the backlog" {
        lassign [replica_full_sync] c id offset
        $c -close
        set refused [info_field stats sync_partial_err]
        set end [repl_offset]
        foreach {asked from} [list [string repeat a 40] [expr {$end + 1}] $id [expr {$end + 1000}] $id \
            -5 $id 0 short 1] {
            set c [replica_connect]
            assert_match "+FULLRESYNC $id *" [replica_sync $c $asked $from] "$asked $from"
            $c -close
        }
        assert_equal [expr {$refused + 5}] [info_field stats sync_partial_err]
        with_config {repl-backlog-size 16kb} {
            for {set i 0} {$i < 100} {incr i} {r set k [string repeat x 1000]}
            # The backlog is trimmed by whole blocks: an earlier one of 64 KiB may remain.
            assert_range [info_field replication repl_backlog_histlen] 16384 100000
            set c [replica_connect]
            assert_match "+FULLRESYNC $id *" [replica_sync $c $id [expr {$end + 1}]]
            $c -close
            set first [info_field replication repl_backlog_first_byte_offset]
            set c [replica_connect]
            assert_equal "+CONTINUE $id" [replica_sync $c $id $first]
            $c -close
        }
        wait_replicas 0
    }

    test "replicas that wait share one snapshot, which a number of replicas can begin early" {
        with_config {repl-diskless-sync-delay 1000 repl-diskless-sync-max-replicas 3} {
            set started [snapshots_started]
            set clients {}
            foreach i {1 2 3} {
                lappend clients [set c [replica_connect capa eof capa psync2 listening-port $i]]
                $c -send psync ? -1
                if {$i < 3} {wait_for_condition 5000 {[dict get [lindex [replica_lines] end] state] eq "wait_bgsave"}}
            }
            foreach c $clients {assert_match +FULLRESYNC* [replica_line $c]; replica_payload $c}
            assert_equal [expr {$started + 1}] [snapshots_started]
            foreach c $clients {$c -close}
        }
        wait_replicas 0
    }

    test "a replica that waits for the snapshot receives newlines" {
        with_config {repl-diskless-sync-delay 1000} {
            set c [replica_connect]
            $c -send psync ? -1
            assert_equal "\n\n" [$c -readraw 2]
            $c -close
        }
        wait_replicas 0
    }

    test "a replica that comes while the file is written joins, with all writes since its beginning" {
        r flushall
        r debug populate 100 key 10
        with_config {repl-diskless-sync no rdb-key-save-delay 10000} {
            set started [snapshots_started]
            set one [replica_connect]
            lassign [split [replica_sync $one]] - id offset
            r set during 1
            set other [replica_connect]
            assert_equal "+FULLRESYNC $id $offset" [replica_sync $other]
            r config set rdb-key-save-delay 0
            foreach c [list $one $other] {
                assert_not_match *during* [replica_payload $c]
                assert_equal {{SELECT 0} {set during 1}} [replica_commands $c]
            }
            assert_equal [expr {$started + 1}] [snapshots_started]
            $one -close
            $other -close
        }
        wait_replicas 0
    }

    test "a replica that comes during a transfer waits for the next one" {
        with_config {rdb-key-save-delay 10000} {
            set started [snapshots_started]
            set one [replica_connect]
            assert_match +FULLRESYNC* [replica_sync $one]
            set other [replica_connect]
            $other -send psync ? -1
            wait_for_log "Waiting for next BGSAVE for SYNC"
            r config set rdb-key-save-delay 0
            replica_payload $one
            assert_match +FULLRESYNC* [replica_line $other]
            replica_payload $other
            assert_equal [expr {$started + 2}] [snapshots_started]
            $one -close
            $other -close
        }
        wait_replicas 0
    }

    test "the save ends when the last replica of a transfer leaves" {
        with_config {rdb-key-save-delay 100000} {
            set mark [log_size]
            set c [replica_connect]
            assert_match +FULLRESYNC* [replica_sync $c]
            assert_equal 1 [info_field persistence rdb_bgsave_in_progress]
            $c -close
            wait_for_log "last replica dropped, ending the save without fork" $mark
            wait_for_log "Background RDB transfer cancelled" $mark
        }
        wait_replicas 0
    }

    test "the save to a file ends when the last replica that waits for it leaves, without save points" {
        with_config {rdb-key-save-delay 10000000 repl-diskless-sync no} {
            foreach {points runs} {"" 0 "3600 1" 1} {
                r config set save $points
                set one [replica_connect]
                assert_match +FULLRESYNC* [replica_sync $one]
                set two [replica_connect]
                assert_match +FULLRESYNC* [replica_sync $two]
                $one -close
                wait_replicas 1
                assert_equal 1 [info_field persistence rdb_bgsave_in_progress]
                replica_leaves $two
                if {$runs} {
                    assert_equal 1 [info_field persistence rdb_bgsave_in_progress]
                    r bgsave cancel
                }
                wait_for_condition 5000 {[info_field persistence rdb_bgsave_in_progress] == 0}
            }
            r config set save ""
        }
    }

    test "FLUSHALL ends the transfer of a full copy, also in a transaction" {
        foreach transaction {0 1} {
            r set k v
            r config set rdb-key-save-delay 10000000
            set mark [log_size]
            set c [replica_connect]
            assert_match +FULLRESYNC* [replica_sync $c]
            set next [replica_connect]
            $next -send psync ? -1
            wait_for_log "Waiting for next BGSAVE for SYNC" $mark
            r config set rdb-key-save-delay 0
            if {$transaction} {r multi}
            r set k w
            r flushall
            r set k x
            if {$transaction} {r exec}
            assert_equal 1 [$c -eof]
            assert_match +FULLRESYNC* [replica_line $next]
            replica_payload $next
            replica_leaves $next
        }
    }

    test "errors that a replica causes are logged, and end its connection" {
        foreach {command text name} {
            {get k} {Replica can't interact with the keyspace} get
            {set k v} {Replica can't interact with the keyspace} set
            {nosuch} {unknown command 'nosuch', with args beginning with: } <unknown>
        } {
            set mark [log_size]
            set c [replica_connect]
            assert_match +FULLRESYNC* [replica_sync $c]
            $c -send {*}$command
            wait_for_log "== CRITICAL == This primary is sending an error to its replica: '$text' after processing the\
                command '$name'" $mark
            wait_for_log "Replica generated a reply to command '$name', disconnecting it: " $mark
            replica_leaves $c
        }
    }

    test "a replica that reads nothing does not hold back another one's stream" {
        with_config {client-output-buffer-limit {replica 0 0 0}} {
            lassign [replica_full_sync listening-port 1 capa eof capa psync2] slow
            lassign [replica_full_sync listening-port 2 capa eof capa psync2] fast
            set value [string repeat x 100000]
            for {set i 0} {$i < 300} {incr i} {r set large $value}
            assert_equal 301 [llength [replica_commands $fast]]
            set omem [lmap line [split [string trim [r client list type replica]] \n] \
                {dict get [client_fields $line] omem}]
            assert_morethan [lindex $omem 0] 1000000
            assert_lessthan [lindex $omem 1] 1000000
            assert_equal 301 [llength [replica_commands $slow]]
            $slow -close
            $fast -close
        }
        wait_replicas 0
    }

    test "a replica that lags behind by more than its output limit is closed" {
        with_config {client-output-buffer-limit {replica 5mb 0 0}} {
            lassign [replica_full_sync] slow
            lassign [replica_full_sync] fast
            set mark [log_size]
            for {set i 0} {$i < 300 && ![log_has "overcoming of output buffer limits" $mark]} {incr i} {
                r set large [string repeat x 100000]
                replica_commands $fast
            }
            wait_replicas 1
            wait_for_log "overcoming of output buffer limits" $mark
            $slow -close
            $fast -close
        }
        wait_replicas 0
    }

    test "a replica does not stay at offset 0: a PING follows its first acknowledgement" {
        start_server {overrides {repl-diskless-sync-delay 0 repl-ping-replica-period 3600}} {
            start_server {} {
                r replicaof 127.0.0.1 [srv -1 port]
                wait_for_condition 10000 {[info_field replication master_link_status] eq "up" &&
                                          [info_field replication slave_repl_offset] == 14}
            }
        }
    }

    test "PING comes with the stream each repl-ping-replica-period" {
        with_config {repl-ping-replica-period 1} {
            lassign [replica_full_sync] c
            set got [$c -read]
            if {$got eq "SELECT 0"} {set got [$c -read]}
            assert_equal ping [string tolower $got]
            assert_equal ping [string tolower [$c -read]]
            $c -close
        }
        wait_replicas 0
    }

    test "a replica that acknowledges nothing for repl-timeout is closed" {
        with_config {repl-timeout 2} {
            set mark [log_size]
            lassign [replica_full_sync] c
            wait_for_log "Disconnecting timedout replica (streaming sync)" $mark 15000
            wait_replicas 0
            $c -close
        }
    }

    test "a replica that sends newlines while it loads is not closed" {
        set mark [log_size]
        lassign [replica_full_sync] loads
        lassign [replica_full_sync] silent
        $loads -write \n
        with_config {repl-timeout 2} {
            set until [expr {[clock milliseconds] + 20000}]
            while {![string match "*Disconnecting timedout replica (streaming sync)*" [log_text $mark]]} {
                assert_lessthan [clock milliseconds] $until
                $loads -write \n
                $loads -available
                after 20
            }
            assert [$silent -eof]
            wait_replicas 1
            r config set repl-timeout 60
        }
        $loads -close
        replica_leaves $silent
    }

    test "ROLE, INFO and CLIENT LIST show replicas and what they acknowledged" {
        lassign [replica_full_sync listening-port 7777 ip-address 192.0.2.7 capa eof capa psync2] c id offset
        r set k v
        replica_commands $c
        replica_ack $c [repl_offset]
        wait_for_condition 5000 {[dict get [lindex [replica_lines] 0] offset] == [repl_offset]}
        set line [lindex [replica_lines] 0]
        foreach {field value} {ip 192.0.2.7 port 7777 state online lag 0} {
            assert_equal $value [dict get $line $field]
        }
        assert_equal [list 192.0.2.7 7777 [repl_offset]] [lrange [lindex [r role] 2 0] 0 2]
        assert_equal [list master [repl_offset]] [lrange [r role] 0 1]
        assert_equal S [dict get [client_fields [r client list type replica]] flags]
        assert_equal 1 [info_field replication repl_backlog_active]
        assert_equal 1 [r client kill type replica]
        assert_equal 1 [$c -eof]
        assert_equal [list master [repl_offset] {}] [r role]
    }

    test "rdb-only: the copy, then the end; rdb-filter-only: what it asks for" {
        r set in-the-data 1
        set c [replica_connect capa eof rdb-only 1]
        $c -send sync
        assert_match *in-the-data* [replica_payload $c]
        assert_equal 1 [$c -eof]
        $c -close
        foreach filter {functions ""} {
            set c [replica_connect capa eof rdb-only 1 rdb-filter-only $filter]
            $c -send sync
            assert_not_match *in-the-data* [replica_payload $c]
            assert_equal 1 [$c -eof]
            $c -close
        }
        wait_replicas 0
    }

    test "DEBUG CHANGE-REPL-ID begins another history" {
        lassign [replica_full_sync] c id
        $c -close
        r debug change-repl-id
        assert_not_equal $id [info_field replication master_replid]
        set c [replica_connect]
        assert_not_match "*$id*" [replica_sync $c $id [expr {[repl_offset] + 1}]]
        replica_leaves $c
    }

    test "data of another time that DEBUG RELOAD NOSAVE loads begin another history and append-only file" \
        -needs {ours 1} {
        r rpush l v
        r save
        r del l
        lassign [replica_full_sync] c id
        aof_turn_on
        r set later v
        set offset [repl_offset]
        set waiting [new_client]
        $waiting -send blpop l 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        assert_equal OK [r debug reload nosave]
        assert_equal {l v} [$waiting -read]
        assert_closed $c
        set c [replica_connect]
        assert_match +FULLRESYNC* [replica_sync $c $id [expr {$offset + 1}]]
        replica_leaves $c
        aof_wait_rewritten
        keeps_data {r debug loadaof}
        r config set appendonly no
    }

    test "DEBUG LOADAOF begins another history if the files are not those of the last write" -needs {ours 1} {
        r set a 1
        aof_turn_on
        foreach {state same} {on 1 off 0 "in another directory" 0 gone 0} {
            aof_turn_on
            lassign [replica_full_sync] c id
            switch $state {
                off {r config set appendonly no}
                "in another directory" {
                    file mkdir [file join [srv dir] copy]
                    file copy [file join [srv dir] appendonlydir] [file join [srv dir] copy appendonlydir]
                    r set behind 1
                    r config set dir [file join [srv dir] copy]
                }
                gone {file delete -force [file join [srv dir] copy appendonlydir]}
            }
            set offset [repl_offset]
            if {$state eq "gone"} {
                assert_error "ERR Error trying to load the AOF files, check server logs." {r debug loadaof}
            } else {
                assert_equal OK [r debug loadaof]
                assert_equal {1 0} [list [r get a] [r exists behind]]
            }
            assert_equal $same [expr {[info_field replication master_replid] eq $id}] "appendonly: $state"
            if {!$same} {
                assert_closed $c
                set c [replica_connect]
                assert_match +FULLRESYNC* [replica_sync $c $id [expr {$offset + 1}]]
            }
            replica_leaves $c
        }
        # The next writes go to files that a restart finds.
        aof_wait_rewritten
        r set later 1
        r debug loadaof
        assert_equal 1 [r get later]
        r config set appendonly no dir [srv dir]
        r flushall
    }

    test "the backlog is freed some time after the last replica left, and its history ends" {
        lassign [replica_full_sync] c id
        replica_leaves $c
        assert_equal 1 [info_field replication repl_backlog_active]
        with_config {repl-backlog-ttl 1} {
            wait_for_condition 10000 {[info_field replication repl_backlog_active] == 0}
        }
        assert_not_equal $id [info_field replication master_replid]
        assert_equal 0 [info_field memory mem_replication_backlog]
        set offset [repl_offset]
        r set k v
        assert_equal $offset [repl_offset]
    }

    test "min-replicas-to-write: writes need replicas that acknowledge" {
        with_config {min-replicas-to-write 1 min-replicas-max-lag 2} {
            assert_error "NOREPLICAS Not enough good replicas to write." {r set k v}
            assert_equal 0 [info_field replication min_slaves_good_slaves]
            lassign [replica_full_sync] c
            wait_for_condition 5000 {[info_field replication min_slaves_good_slaves] == 1}
            assert_equal OK [r set k v]
            assert_equal v [r get k]
            wait_for_condition 15000 {[info_field replication min_slaves_good_slaves] == 0}
            assert_error "NOREPLICAS Not enough good replicas to write." {r set k w}
            replica_ack $c [repl_offset]
            wait_for_condition 5000 {[info_field replication min_slaves_good_slaves] == 1}
            assert_equal OK [r set k v]
            $c -close
        }
        wait_replicas 0
    }

    test "a replica continues after a restart of its primary from an RDB file" {
        lassign [replica_full_sync] c id
        r set k v
        set offset [repl_offset]
        replica_leaves $c
        wait_for_condition 5000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        r save
        restart_server
        assert_equal $offset [repl_offset]
        assert_equal $id [info_field replication master_replid2]
        set now [info_field replication master_replid]
        assert_equal [expr {$offset + 1}] [info_field replication second_repl_offset]
        r set k w
        set c [replica_connect]
        assert_equal "+CONTINUE $now" [replica_sync $c $id [expr {$offset + 1}]]
        assert_equal {{SELECT 0} {set k w}} [replica_commands $c]
        $c -close
        set c [replica_connect]
        assert_match "+FULLRESYNC $now *" [replica_sync $c $id [expr {$offset + 2}]]
        replica_leaves $c
    }

    test "a position in an RDB file that leaves a stream no room is not taken" -needs {ours 1} {
        set dir [file join $::unit_dir last-offset]
        file mkdir $dir
        set bytes "REDIS0011"
        foreach {name value} [list repl-stream-db 0 repl-id [string repeat a 40] repl-offset 9223372036854775807] {
            foreach text [list $name $value] {append bytes [expr {$text eq $name ? "\xfa" : ""}] \
                [format %c [string length $text]] $text}
        }
        write_file $dir/dump.rdb "$bytes\xff[string repeat \0 8]"
        start_server [list overrides [list dir $dir repl-diskless-sync-delay 0]] {
            assert_equal [string repeat 0 40] [info_field replication master_replid2]
            lassign [replica_full_sync] c id offset
            r set k v
            assert {$offset < [repl_offset] && [repl_offset] < 1000}
            $c -close
        }
    }
}

start_server {overrides {repl-diskless-sync-delay 0 appendonly yes appendfsync always} tags {replication}} {
    test "a replica continues after a restart from an append-only file only where nothing follows its base" \
        -needs {ours 1} {
        lassign [replica_full_sync] c id
        r set k v
        replica_leaves $c
        aof_rewrite
        set offset [repl_offset]
        restart_server
        assert_equal [list $id $offset] [list [info_field replication master_replid2] [repl_offset]]
        set c [replica_connect]
        assert_match +CONTINUE* [replica_sync $c $id [expr {$offset + 1}]]
        r set k w
        assert_equal {{SELECT 0} {set k w}} [replica_commands $c]
        $c -close
        restart_server
        assert_equal [string repeat 0 40] [info_field replication master_replid2]
    }
}

start_server {overrides {repl-diskless-sync-delay 0} tags {replication}} {
    test "keys that expired while the primary was down are deleted on its replicas" -needs {ours 1} {
        lassign [replica_full_sync] c id
        r set soon v px 200
        r set stays v
        replica_leaves $c
        set offset [repl_offset]
        r save
        r debug set-active-expire 0
        wait_for_condition 5000 {[r pttl soon] == -2}
        restart_server
        # They count in the load of the file, and the stream contains them before a replica reconnects.
        assert_equal {1 1} [list [r dbsize] [info_field persistence rdb_last_load_keys_expired]]
        assert_morethan [repl_offset] $offset
        set c [replica_connect]
        assert_match +CONTINUE* [replica_sync $c $id [expr {$offset + 1}]]
        assert_equal {{SELECT 0} {UNLINK soon}} [replica_commands $c]
        replica_leaves $c
    }

    test "SHUTDOWN waits until its replicas have acknowledged all writes" {
        lassign [replica_full_sync] c
        r set k v
        set d [new_client]
        $d -send shutdown nosave
        wait_for_log "Waiting for replicas before shutting down"
        replica_commands_until $c {REPLCONF GETACK *}
        set e [new_client]
        assert_equal PONG [$e ping]
        expect_server_exit
        replica_ack $c [repl_offset]
        assert_equal 1 [$d -eof]
        wait_for_log "1 of 1 replicas are in sync when shutting down"
        foreach client [list $c $d $e] {$client -close}
        restart_server
    }

    test "SHUTDOWN that is refused has logged how many replicas are in sync" {
        lassign [replica_full_sync] c
        set mark [log_size]
        r config set rdb-key-save-delay 10000000
        r set k v
        r config set appendonly yes
        replica_ack $c [repl_offset]
        set d [new_client]
        $d -send shutdown
        wait_for_condition 5000 {[replica_ack $c [repl_offset]; log_has "Writing initial AOF, can't exit." $mark]}
        assert [log_has "1 of 1 replicas are in sync when shutting down.*Writing initial AOF, can't exit." $mark]
        r config set appendonly no rdb-key-save-delay 0
    }

    test "SHUTDOWN logs which replicas lag, after shutdown-timeout" {
        r config set shutdown-timeout 1
        lassign [replica_full_sync listening-port 7777 capa eof capa psync2] c
        r set k v
        set mark [log_size]
        expect_server_exit
        set d [new_client]
        $d -send shutdown nosave
        assert_equal 1 [$d -eof]
        wait_for_log "Lagging replica 127.0.0.1:7777 reported offset" $mark
        wait_for_log "0 of 1 replicas are in sync when shutting down" $mark
        $c -close
        $d -close
        restart_server
    }
}

start_server {overrides {repl-diskless-sync-delay 0 dual-channel-replication-enabled yes} tags {replication}} {
    proc rdb_channel {} {
        set c [replica_connect capa eof rdb-only 1 rdb-channel 1 version 9.1.0]
        $c -send sync
        return $c
    }
    test "dual channel: the copy on a connection of its own, and the stream beside it" -needs {version 8.0} {
        r debug populate 200 key 10
        set main [replica_connect capa eof capa psync2 capa dual-channel listening-port 7777]
        assert_equal "+DUALCHANNELSYNC" [replica_sync $main]
        r config set rdb-key-save-delay 5000
        set rdb [rdb_channel]
        assert_regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} [set line [replica_line $rdb]]
        regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} $line -> offset id db client
        assert_equal 1 [info_field replication replicas_waiting_psync]
        r set during 1
        assert_equal OK [$main replconf set-rdb-client-id $client]
        assert_equal "+CONTINUE $id" [replica_sync $main $id [expr {$offset + 1}]]
        assert_equal 0 [info_field replication replicas_waiting_psync]
        assert_equal {{SELECT 0} {set during 1}} [replica_commands $main]
        assert_equal {main-channel rdb-channel} [lsort [lmap line [replica_lines] {dict get $line type}]]
        r config set rdb-key-save-delay 0
        assert_not_match *during* [replica_payload $rdb]
        assert_equal 1 [$rdb -eof]
        replica_ack $main [repl_offset]
        wait_for_condition 5000 {[dict get [lindex [replica_lines] 0] state] eq "online"}
        assert_equal 1 [llength [replica_lines]]
        $rdb -close
        replica_leaves $main
    }

    test "dual channel: the loss of the RDB channel is an error of the transfer" {
        with_config {rdb-key-save-delay 100000} {
            set mark [log_size]
            set main [replica_connect capa eof capa psync2 capa dual-channel listening-port 7777]
            assert_equal "+DUALCHANNELSYNC" [replica_sync $main]
            set rdb [rdb_channel]
            assert_match {$ENDOFF:*} [replica_line $rdb]
            wait_for_log "Background RDB transfer started" $mark
            $rdb -close
            wait_for_log "Background RDB transfer error" $mark
            $main -close
        }
        wait_for_condition 5000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        wait_replicas 0
    }

    test "dual channel: the main channel may come after the copy has been sent" -needs {ours 1} {
        set rdb [rdb_channel]
        regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} [replica_line $rdb] -> offset id db client
        r set between 1
        replica_payload $rdb
        assert_equal 1 [$rdb -eof]
        $rdb -close
        set main [replica_connect capa eof capa psync2 capa dual-channel set-rdb-client-id $client]
        assert_equal "+CONTINUE $id" [replica_sync $main $id [expr {$offset + 1}]]
        assert_equal {{SELECT 0} {set between 1}} [replica_commands $main]
        replica_leaves $main
    }

    test "DEBUG DELAY-RDB-CLIENT-FREE-SECONDS: how long the stream is kept for a main channel that does not come" \
        -needs {ours 1} {
        r debug delay-rdb-client-free-seconds 1
        set rdb [rdb_channel]
        regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} [replica_line $rdb] -> offset id db client
        replica_payload $rdb
        assert_equal 1 [$rdb -eof]
        $rdb -close
        wait_for_condition 10000 {[info_field replication replicas_waiting_psync] == 0}
        assert_error "ERR Unrecognized RDB client id $client" {r replconf set-rdb-client-id $client}
        r debug delay-rdb-client-free-second 60
    }
}

start_server {no_rdma 1 overrides {repl-diskless-sync-delay 0 dual-channel-replication-enabled yes save ""
        enable-debug-command yes} tags {replication}} {
    proc rdb_channel {} {
        set c [replica_connect capa eof rdb-only 1 rdb-channel 1 version 9.1.0]
        $c -send sync
        return $c
    }

    test "dual channel: the stream is kept for a replica that has its copy, and continues behind it" \
        -needs {version 8.0 command debug} {
        r debug populate 1000 key 100
        set rdb [rdb_channel]
        regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} [replica_line $rdb] -> offset id db client
        set payload [replica_payload $rdb]
        assert_equal 1 [$rdb -eof]
        $rdb -close
        wait_for_condition 5000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        assert_equal 1 [info_field replication replicas_waiting_psync]
        set main [replica_connect capa eof capa psync2 capa dual-channel set-rdb-client-id $client]
        assert_equal "+CONTINUE $id" [replica_sync $main $id [expr {$offset + 1}]]
        replica_leaves $main
        assert {[info_field stats total_net_repl_output_bytes] > [string length $payload]}
    }

    test "dual channel: the stream is kept for a replica that leaves the RDB channel as soon as it has its copy" \
        -needs {ours 1} {
        set rdb [rdb_channel]
        regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} [replica_line $rdb] -> offset id db client
        replica_payload $rdb
        $rdb -close
        wait_for_condition 5000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        wait_replicas 0
        assert_equal 1 [info_field replication replicas_waiting_psync]
        set main [replica_connect capa eof capa psync2 capa dual-channel set-rdb-client-id $client]
        assert_equal "+CONTINUE $id" [replica_sync $main $id [expr {$offset + 1}]]
        replica_leaves $main
    }

    test "dual channel: a replica that reads nothing for repl-timeout is dropped, the others continue" -needs {ours 1} {
        with_config {rdbcompression no repl-timeout 1 repl-diskless-sync-delay 100 repl-diskless-sync-max-replicas 2} {
            r debug populate 3000 large 10000
            set mark [log_size]
            set silent [rdb_channel]
            set rdb [rdb_channel]
            assert_match {$ENDOFF:*} [replica_line $rdb]
            assert_regexp {^\$EOF:.{40}$} [set head [replica_line $rdb]]
            for {set i 0} {$i < 30} {incr i} {$rdb -readraw 1000000}
            wait_for_log "Disconnecting timedout replica (full sync)" $mark
            set end ""
            while {[string range $end end-39 end] ne [string range $head 5 end]} {append end [$rdb -readraw 1]}
            assert_equal 1 [$rdb -eof]
            $rdb -close
            replica_leaves $silent
            wait_for_condition 5000 {[info_field replication replicas_waiting_psync] == 1}
        }
    }

    test "dual channel: CLIENT KILL of an RDB channel ends its copy only" -needs {ours 1} {
        with_config {rdb-key-save-delay 200 repl-diskless-sync-delay 100 repl-diskless-sync-max-replicas 2} {
            set killed [rdb_channel]
            set rdb [rdb_channel]
            foreach chan [list $killed $rdb] {
                regexp {^\$ENDOFF:(\d+) ([0-9a-f]{40}) (-?\d+) (\d+)$} [replica_line $chan] -> offset id db client
                if {$chan eq $killed} {assert_equal 1 [r client kill id $client]}
            }
            replica_payload $rdb
            assert_equal 1 [$rdb -eof]
            $rdb -close
            replica_leaves $killed
        }
        wait_for_condition 5000 {[info_field persistence rdb_bgsave_in_progress] == 0}
    }
}

start_server {overrides {repl-diskless-sync no enable-protected-configs yes save ""} tags {replication}} {
    test "a replica gets the file of its snapshot, whatever CONFIG SET makes of dbfilename and dir meanwhile" \
        -needs {ours 1} {
        file mkdir [file join [srv dir] other]
        r set key old
        r config set dbfilename other.rdb
        r save
        r set key new
        foreach {option value back} {dbfilename other.rdb dump.rdb dir other ..} {
            r config set dbfilename dump.rdb rdb-key-save-delay 300000
            set c [replica_connect]
            assert_match +FULLRESYNC* [replica_sync $c]
            r config set $option $value
            assert_equal 1 [info_field persistence rdb_bgsave_in_progress]
            assert_match *new* [replica_payload $c] $option
            r config set $option $back rdb-key-save-delay 0
            replica_leaves $c
        }
    }
}

set socket_options [file join $::unit_dir socket-options]
start_server [list no_rdma 1 overrides {repl-diskless-sync-delay 0} tags {replication} env [list \
    LD_PRELOAD=[tool preload/socket-options.so] SOCKET_OPTIONS=$socket_options \
    ASAN_OPTIONS=verify_asan_link_order=0]] {
    test "repl-disable-tcp-nodelay: TCP_NODELAY of a replica's connection is on with no, and off with yes" {
        foreach {value nodelay} {no 1 yes 0} {
            r config set repl-disable-tcp-nodelay $value
            set c [lindex [replica_full_sync] 0]
            regexp { fd=(\d+) } [r client list type replica] -> fd
            # Pairs of descriptor and value: the last one counts.
            assert_equal $nodelay [dict get [file_bytes $::socket_options] $fd] $value
            replica_leaves $c
        }
    }
}
