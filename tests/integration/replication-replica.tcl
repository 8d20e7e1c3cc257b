# The replica's side of replication, with a primary in Tcl (tests/harness/primary.tcl): the handshake with its errors,
# the full copy in all its forms, also corrupt, the stream with its acknowledgements, and reconnecting. seconds: 78

# Executes the commands and returns the data as an RDB file; the server is empty afterwards.
proc rdb_of {commands} {
    r flushall
    foreach command $commands {r {*}$command}
    r save
    set bytes [file_bytes [file join [srv dir] dump.rdb]]
    r flushall
    return $bytes
}
set id [string repeat a 40]
set other [string repeat b 40]
set mark [string repeat 0123456789 4]

proc follow {port} {r replicaof 127.0.0.1 $port}
# Follows a primary that replies to PSYNC with these bytes. Returns the connection.
proc follow_with {bytes} {
    follow [primary_listen]
    primary_handshake chan
    primary_send $chan $bytes
    return $chan
}
proc link {} {info_field replication master_link_status}
proc link_is {state} {wait_for_condition 10000 {[link] eq $state} {the link is [link]}}
# Connects both channels of a dual-channel synchronization, up to the SYNC on the second one.
proc dual_channels {main_name rdb_name} {
    upvar $main_name main $rdb_name rdb
    set main [follow_with "+DUALCHANNELSYNC\r\n"]
    set rdb [primary_accept]
    primary_command $rdb
    primary_send $rdb "+OK\r\n"
    assert_equal SYNC [primary_command $rdb]
}
# A full synchronization with a copy in one piece. Returns the connection.
proc synchronize {copy {offset 0}} {
    set chan [follow_with "+FULLRESYNC $::id $offset\r\n\$[string length $copy]\r\n$copy"]
    primary_await $chan REPLCONF ACK $offset
    link_is up
    return $chan
}
proc resp_length {args} {string length [resp_command {*}$args]}

start_server {no_rdma 1 overrides {enable-debug-command yes save "" repl-timeout 5 appendonly no} tags {replication}} {
    set copy [rdb_of {{set a 1} {select 3} {rpush l x y} {select 0}}]

    test "the handshake names port, capabilities and version, and asks to continue the server's own history" \
        -needs {ours 1} {
        follow [primary_listen]
        set chan [primary_accept]
        wait_for_condition 10000 {[lindex [r role] 3] eq "handshake"}
        assert_equal PING [primary_command $chan]
        primary_send $chan "+PONG\r\n"
        assert_equal "REPLCONF listening-port [srv port]" [primary_command $chan]
        assert_equal "REPLCONF capa eof capa psync2" [primary_command $chan]
        assert_match "REPLCONF version *.*.*" [primary_command $chan]
        primary_send $chan "+OK\r\n+OK\r\n+OK\r\n"
        assert_equal "PSYNC [info_field replication\
            master_replid] [expr {[info_field replication master_repl_offset] + 1}]" \
            [primary_command $chan]
        assert_equal down [link]
        lead
    }

    test "an announced address, and user and password, are sent" -needs {ours 1} {
        r config set replica-announce-ip 192.0.2.7 replica-announce-port 4242 primaryuser ann primaryauth secret
        follow [primary_listen]
        set chan [primary_accept]
        assert_equal PING [primary_command $chan]
        primary_send $chan "-NOAUTH Authentication required.\r\n"
        assert_equal "AUTH ann secret" [primary_command $chan]
        assert_equal "REPLCONF listening-port 4242" [primary_command $chan]
        assert_equal "REPLCONF ip-address 192.0.2.7" [primary_command $chan]
        r config set replica-announce-ip "" replica-announce-port 0 primaryuser "" primaryauth ""
        primary_send $chan "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
        primary_await_close $chan
        wait_for_log "*Unable to AUTH to PRIMARY: -WRONGPASS*"
        lead
    }

    test "bind-source-addr: the replica connects from this address, if it is of this machine" -needs {ours 1} {
        # 203.0.113.0/24 is reserved for documentation.
        foreach {source from} {127.0.0.9 127.0.0.9 203.0.113.9 127.0.0.1 ::1 127.0.0.1 "" 127.0.0.1} {
            r config set bind-source-addr $source
            follow [primary_listen]
            assert_equal $from [lindex [fconfigure [primary_accept] -peername] 0] $source
            lead
        }
    }

    test "a primary that knows neither REPLCONF nor PSYNC is asked with SYNC" -needs {ours 1} {
        follow [primary_listen]
        set chan [primary_accept]
        primary_await $chan PING
        primary_send $chan "-ERR operation not permitted\r\n"
        for {set i 0} {$i < 3} {incr i} {
            assert_equal REPLCONF [lindex [primary_command $chan] 0]
            primary_send $chan "-ERR unknown command\r\n"
        }
        assert_equal PSYNC [lindex [primary_command $chan] 0]
        primary_send $chan "-ERR unknown command 'PSYNC'\r\n"
        assert_equal SYNC [primary_command $chan]
        primary_send $chan "\n\n\$[string length $copy]\r\n$copy"
        link_is up
        assert_equal 1 [r get a]
        lead
    }

    # It also rejects PING until a snapshot is saved. The next snapshot may be the one for this replica.
    test "a primary whose last snapshot failed is asked to synchronize" -needs {ours 1} {
        follow [primary_listen]
        set chan [primary_accept]
        primary_await $chan PING
        primary_send $chan "-MISCONF Valkey is configured to save RDB snapshots, but it's unable to persist\r\n"
        assert_match "REPLCONF listening-port *" [primary_command $chan]
        lead
    }

    test "a primary that cannot serve yet is asked again" -needs {ours 1} {
        set port [primary_listen]
        follow $port
        foreach answer {"-NOMASTERLINK Can't SYNC while not connected with my master" "-LOADING Valkey is loading"} {
            primary_handshake chan
            primary_send $chan "$answer\r\n"
            primary_await_close $chan
        }
        lead
    }

    test "what is no answer ends the link, and the data stay" -needs {ours 1} {
        r set mine 1
        follow [primary_listen]
        foreach {stage answers} [list \
            PING {"-ERR no" "+PONG[string repeat x 2000]"} \
            PSYNC [list "+FULLRESYNC" "+FULLRESYNC $id" "+FULLRESYNC short 0" "+FULLRESYNC $id -1" "+FULLRESYNC $id x" \
                        "+CONTINUE short" [string repeat y 5000]] \
            COPY [list "\$-5" "\$0" "\$x" "\$EOF:short" "\$EOF:[string repeat z 41]" ":1" "-ERR no copy" "garbage"]] {
            foreach answer $answers {
                set chan [primary_accept]
                assert_equal PING [primary_command $chan]
                if {$stage eq "PING"} {
                    primary_send $chan "[subst $answer]\r\n"
                } else {
                    primary_send $chan "+PONG\r\n"
                    while {[lindex [primary_command $chan] 0] eq "REPLCONF"} {primary_send $chan "+OK\r\n"}
                    if {$stage eq "COPY"} {set answer "+FULLRESYNC $id 0\r\n$answer"}
                    primary_send $chan "$answer\r\n"
                }
                primary_await_close $chan
                assert_equal down [link] $answer
                r debug role link connect
            }
        }
        lead
        assert_equal 1 [r get mine]
    }

    foreach {mode setting} {"through a file" disabled "into memory" flush-before-load "beside the old data" swapdb} {
        test "a full copy of a size arrives $mode, in pieces" -needs {ours 1} {
            r config set repl-diskless-load $setting
            r flushall
            r set old 1
            set chan [follow_with "+FULLRESYNC $id 1000\r\n\n\n\$[string length $copy]\r\n"]
            wait_for_condition 5000 {[lindex [r role] 3] eq "sync"}
            foreach byte [split $copy ""] {primary_send $chan $byte}
            primary_await $chan REPLCONF ACK 1000
            assert_equal {1 1 {}} [list [r get a] [r dbsize] [r get old]]
            r select 3
            assert_equal {x y} [r lrange l 0 -1]
            r select 0
            assert_equal "$id 1000" "[info_field replication master_replid] [info_field replication master_repl_offset]"
            lead
        }

        test "a full copy with a mark arrives $mode, the mark in pieces" -needs {ours 1} {
            # The data also contains the beginning of the mark.
            set marked [rdb_of [list {set a 1} [list set b [string range $mark 0 38]x]]]
            r config set repl-diskless-load $setting rdbcompression no
            set chan [follow_with "+FULLRESYNC $id 7\r\n\$EOF:$mark\r\n[string range $marked 0 99]"]
            primary_send $chan [string range $marked 100 end]
            foreach byte [split $mark ""] {primary_send $chan $byte}
            primary_await $chan REPLCONF ACK 7
            assert_equal [string range $mark 0 38]x [r get b]
            link_is up
            lead
        }

        test "a copy that does not begin as one costs no data ($mode)" -needs {ours 1} {
            r config set repl-diskless-load $setting
            r flushall
            r set mine 1
            set chan [follow_with "+FULLRESYNC $id 0\r\n\$20\r\n[string repeat x 20]"]
            primary_await_close $chan
            link_is down
            wait_for_condition 5000 {![catch {r get mine} value]}
            assert_equal 1 [r get mine]
            lead
        }

        test "a damaged copy leaves no half of it ($mode)" -needs {ours 1} {
            r config set repl-diskless-load $setting
            r flushall
            r set mine 1
            set damaged [string range $copy 0 end-12][string repeat \xff 12]
            set chan [follow_with "+FULLRESYNC $id 0\r\n\$[string length $damaged]\r\n$damaged"]
            primary_await_close $chan
            link_is down
            wait_for_condition 5000 {![catch {r dbsize}]}
            assert_equal [expr {$setting eq "swapdb" ? "1 {} 1" : "0 {} {}"}] [list [r dbsize] [r get a] [r get mine]]
            wait_for_log "*Internal error in RDB reading offset *"
            lead
        }

        test "a connection that ends within the copy ($mode)" -needs {ours 1} {
            r config set repl-diskless-load $setting
            r flushall
            r set mine 1
            set chan [follow_with "+FULLRESYNC $id 0\r\n\$[string length $copy]\r\n[string range $copy 0 end-30]"]
            primary_drop $chan
            link_is down
            wait_for_condition 5000 {![catch {r dbsize}]}
            assert_equal [expr {$setting eq "flush-before-load" ? 0 : 1}] [r dbsize]
            primary_handshake chan
            lead
        }
    }
    r config set repl-diskless-load disabled

    test "memory follows the bytes that have arrived, not those that are announced" -needs {ours 1} {
        foreach setting {disabled flush-before-load swapdb} {
            r config set repl-diskless-load $setting
            set before [info_field memory used_memory]
            set chan [follow_with "+FULLRESYNC $id 0\r\n\$8000000000000000000\r\n[string range $copy 0 end-9]"]
            wait_for_condition 5000 {[info_field replication master_sync_read_bytes] >= [string length $copy] - 9}
            assert_lessthan [expr {[info_field memory used_memory] - $before}] 8000000
            assert_equal 8000000000000000000 [info_field replication master_sync_total_bytes]
            primary_drop $chan
            link_is down
            wait_for_condition 5000 {[info_field persistence loading] == 0}
            lead
        }
        r config set repl-diskless-load disabled
    }

    test "newlines are keepalives for the primary while the replica loads the copy from its file" -needs {ours 1} {
        set keys [rdb_of [lmap i [split [string repeat x 300] ""] {list set key:[incr number] $i}]]
        set interval [config_get loading-process-events-interval-bytes]
        r config set repl-diskless-load disabled key-load-delay 100000 loading-process-events-interval-bytes 1024
        set chan [follow_with "+FULLRESYNC $id 7\r\n\$[string length $keys]\r\n$keys"]
        wait_for_condition 5000 {[info_field persistence loading] == 1}
        primary::await "newlines" {[primary::fill $chan; string length $primary::S($chan)] >= 2}
        assert_equal "\n\n" [string range $primary::S($chan) 0 1]
        assert_equal 1 [info_field persistence loading]
        r config set key-load-delay 0 loading-process-events-interval-bytes $interval
        primary_await $chan REPLCONF ACK 7
        assert_equal 300 [r dbsize]
        lead
    }

    test "clients use the old data while a later state of the same history is loaded beside it" -needs {ours 1} {
        r config set repl-diskless-load swapdb
        set chan [synchronize $copy]
        primary_drop $chan
        primary_handshake chan
        primary_send $chan "+FULLRESYNC $id 500\r\n\$[string length $copy]\r\n[string range $copy 0 end-20]"
        wait_for_condition 5000 {[info_field persistence async_loading] == 1}
        assert_equal {0 1} [list [info_field persistence loading] [r get a]]
        assert_equal "1 [string length $copy]" \
            "[info_field replication master_sync_in_progress] [info_field replication master_sync_total_bytes]"
        set w [new_client -tcp 1]
        $w watch a
        $w multi
        $w get a
        assert_error "LOADING Valkey is loading the dataset in memory" {r replicaof no one}
        primary_send $chan [string range $copy end-19 end]
        primary_await $chan REPLCONF ACK 500
        assert_equal {} [$w exec]
        assert_equal 0 [info_field persistence async_loading]
        lead
        r config set repl-diskless-load disabled
    }

    test "data of another history are not served while they are replaced" -needs {ours 1} {
        r config set repl-diskless-load swapdb
        set chan [follow_with "+FULLRESYNC $other 0\r\n\$[string length $copy]\r\n[string range $copy 0 end-20]"]
        wait_for_condition 5000 {[info_field persistence loading] == 1}
        assert_error "LOADING Valkey is loading the dataset in memory" {r get a}
        primary_send $chan [string range $copy end-19 end]
        link_is up
        lead
        r config set repl-diskless-load disabled
    }

    test "the stream is executed, and acknowledged up to what was executed" -needs {ours 1} {
        set chan [synchronize $copy 100]
        set stream "[resp_command SELECT 0][resp_command SET k v][resp_command INCR n]"
        primary_send $chan $stream
        set offset [expr {100 + [string length $stream]}]
        primary_send $chan [resp_command REPLCONF GETACK *]
        primary_await $chan REPLCONF ACK $offset
        incr offset [resp_length REPLCONF GETACK *]
        assert_equal {v 1} [list [r get k] [r get n]]
        # The offset includes a transaction only when it is complete.
        set half "[resp_command MULTI][resp_command INCR n]"
        primary_send $chan $half
        wait_for_condition 5000 {[info_field replication slave_read_repl_offset] == $offset + [string length $half]}
        assert_equal $offset [info_field replication slave_repl_offset]
        primary_await $chan REPLCONF ACK $offset
        primary_send $chan [resp_command EXEC]
        incr offset [expr {[string length $half] + [resp_length EXEC]}]
        wait_for_condition 5000 {[info_field replication slave_repl_offset] == $offset}
        assert_equal 2 [r get n]
        # Large arguments, in pieces.
        set big [string repeat 0123456789abcdef 20000]
        set bytes [resp_command MSET b1 $big b2 small b3 [string reverse $big]]
        for {set at 0} {$at < [string length $bytes]} {incr at 50000} {
            primary_send $chan [string range $bytes $at [expr {$at + 49999}]]
        }
        incr offset [string length $bytes]
        wait_for_condition 5000 {[info_field replication slave_repl_offset] == $offset}
        assert_equal [list $big small [string reverse $big]] [r mget b1 b2 b3]
        assert_match "*flags=M*user=(superuser)*" [r client list type primary]
        lead
    }

    test "a broken link resumes where the last complete transaction ended, in the database of the stream" \
        -needs {ours 1} {
        set chan [synchronize $copy 10]
        set stream "[resp_command SELECT 9][resp_command SET k v]"
        primary_send $chan "$stream[resp_command MULTI][resp_command SET k half]"
        set offset [expr {10 + [string length $stream]}]
        wait_for_condition 5000 {[info_field replication slave_repl_offset] == $offset}
        primary_drop $chan
        assert_equal "PSYNC $id [expr {$offset + 1}]" [primary_handshake chan]
        primary_send $chan "+CONTINUE $other\r\n[resp_command APPEND k 2]"
        link_is up
        r select 9
        wait_for_condition 5000 {[r get k] eq "v2"}
        r select 0
        assert_equal "$other $id [expr {$offset + 1}]" \
            "[info_field replication master_replid] [info_field replication master_replid2] [info_field replication\
            second_repl_offset]"
        lead
        assert_equal $other [info_field replication master_replid2]
    }

    test "a client that kills the primary's connection causes a partial synchronization" -needs {ours 1} {
        set chan [synchronize $copy 10]
        r client kill type primary
        primary_await_close $chan
        assert_equal "PSYNC $id 11" [primary_handshake chan]
        lead
    }

    test "DEBUG FORCE-FREE-PRIMARY-ASYNC: a primary that closes the connection is asked to continue" -needs {ours 1} {
        r debug force-free-primary-async 1
        foreach way {drop kill} {
            set chan [synchronize $copy 10]
            primary_send $chan [resp_command SET a $way]
            wait_for_condition 5000 {[r get a] eq $way}
            if {$way eq "drop"} {primary_drop $chan} else {r client kill type primary}
            assert_equal "PSYNC $id [expr {11 + [resp_length SET a $way]}]" [primary_handshake chan]
            lead
        }
        r debug force-free-primary-async 0
    }

    test "a command of the stream that fails is logged, and the stream continues" -needs {ours 1} {
        set chan [synchronize $copy]
        set from [log_size]
        primary_send $chan "[resp_command LPUSH a x][resp_command SET after 1]"
        wait_for_condition 5000 {[r get after] eq "1"}
        wait_for_log "*== CRITICAL == This replica is sending an error to its primary: '-WRONGTYPE *' after processing\
            the command 'lpush'*" $from
        assert_equal 1 [info_field stats unexpected_error_replies]
        primary_send $chan "*1\r\n\$x\r\n"
        primary_await_close $chan
        wait_for_log "*Protocol error from the primary*" $from
        lead
    }

    test "a silent primary is given up after repl-timeout" -needs {ours 1} {
        set chan [synchronize $copy]
        r config set repl-timeout 1
        primary_await_close $chan
        wait_for_log "*PRIMARY timeout: no data nor PING received*"
        set chan [primary_accept]
        assert_equal PING [primary_command $chan]
        primary_await_close $chan
        wait_for_log "*Timeout connecting to the PRIMARY*"
        foreach setting {disabled swapdb} {
            r config set repl-diskless-load $setting
            primary_handshake chan
            primary_send $chan "+FULLRESYNC $id 0\r\n\$[string length $copy]\r\n[string range $copy 0 20]"
            primary_await_close $chan
            wait_for_log "*Timeout receiving bulk data from PRIMARY*"
        }
        wait_for_condition 5000 {[info_field persistence loading] == 0}
        r config set repl-timeout 5 repl-diskless-load disabled
        lead
    }

    test "reading on a replica deletes no expired key: only the primary does" -needs {ours 1} {
        set chan [synchronize $copy]
        set before [info_field stats total_net_repl_input_bytes]
        set stream ""
        foreach command {{SET s v PXAT 1} {RPUSH l a} {PEXPIREAT l 1} {HSET h f v g w} {HPEXPIREAT h 1 FIELDS 1 f}} {
            append stream [resp_command {*}$command]
        }
        primary_send $chan "[resp_command SELECT 0]$stream"
        wait_for_condition 5000 {[info_field stats total_net_repl_input_bytes] > $before && [r dbsize] == 4}
        foreach command {
            {scan 0 count 100} {scan 0 match s} {scan 0 type list} {keys *} randomkey {get s} {exists s l} {touch s}
            {type l} {ttl s} {dump l} {lrange l 0 -1} {sort_ro l} {memory usage s} {object encoding l}
            {hgetall h} {hget h f} {hlen h} {hscan h 0} {hrandfield h 5} {httl h fields 1 f} {strlen s}
            {eval_ro {redis.call('scan', 0, 'count', 100) return redis.call('get', 's')} 0}
        } {
            catch {r {*}$command}
            assert_equal 4 [r dbsize] $command
        }
        # The primary's clock is behind: for it the keys have not expired.
        set rest "[resp_command PERSIST s][resp_command PERSIST l][resp_command HPERSIST h FIELDS 1 f]"
        primary_send $chan $rest
        wait_for_condition 5000 {[r get s] eq "v"} "the key was deleted"
        wait_for_condition 5000 {[r hget h f] eq "v"} "the field was deleted"
        assert_equal a [r lrange l 0 -1]
        lead
    }

    test "a writable replica expires the keys of its clients, and no key of its primary" -needs {ours 1} {
        set chan [synchronize $copy]
        set before [info_field stats total_net_repl_input_bytes]
        primary_send $chan "[resp_command SELECT 0][resp_command SET theirs 1 PXAT 1]"
        wait_for_condition 5000 {[info_field stats total_net_repl_input_bytes] > $before && [r dbsize] == 2}
        r config set replica-read-only no
        r set mine 1 px 1
        r set later 1 ex 1000
        assert_morethan [info_field stats slave_expires_tracked_keys] 0
        wait_for_condition 5000 {[info_field stats slave_expires_tracked_keys] == 1}
        assert_equal {3 {} {}} [list [r dbsize] [r get theirs] [r get mine]]
        r persist later
        wait_for_condition 5000 {[info_field stats slave_expires_tracked_keys] == 0}
        r config set replica-read-only yes
        lead
    }

    test "a writable replica that has many expired keys deletes more of them at a time" -needs {ours 1} {
        synchronize $copy
        r config set replica-read-only no
        r eval {for i = 1, 20000 do redis.call('set', 'short:' .. i, 'x', 'px', 1) end} 0
        wait_for_condition 15000 {[info_field stats slave_expires_tracked_keys] == 0}
        r config set replica-read-only yes
        lead
    }

    test "a writable replica expires the keys of its clients in the database that SWAPDB gives them" -needs {ours 1} {
        foreach by {client primary} {
            set chan [synchronize $copy]
            r config set replica-read-only no
            r flushall
            foreach {db keys} {0 {both zero} 4 {both} 5 {other}} {
                r select $db
                foreach key $keys {r set $key v px 1000}
            }
            r select 0
            if {$by eq "client"} {
                r swapdb 0 4
            } else {
                primary_send $chan "[resp_command SELECT 0][resp_command SWAPDB 0 4][resp_command SET done 1]"
                wait_for_condition 5000 {[r get done] eq "1"}
                r del done
            }
            wait_for_condition 5000 {[info_field stats slave_expires_tracked_keys] == 0}
            assert_not_match *db?:* [r info keyspace]
            r config set replica-read-only yes
            lead
            r flushall
        }
    }

    test "a client that waits takes nothing once the replica is read only" {
        set chan [synchronize $copy]
        r config set replica-read-only no
        set c [new_client]
        $c -send blpop l 0
        wait_for_condition 5000 {[info_field blocked_clients] == 1}
        r config set replica-read-only yes
        primary_send $chan "[resp_command SELECT 0][resp_command RPUSH l a]"
        assert_error "READONLY You can't write against a read only replica." {$c -read}
        assert_equal a [r lrange l 0 -1]
        $c -close
        lead
        r flushall
    }

    test "a replica that becomes a primary counts tracked keys until it expires keys itself" {
        set chan [synchronize $copy]
        r debug set-active-expire 0
        r config set replica-read-only no
        r set mine 1 ex 1000
        r set other 1 px 1
        assert_equal 2 [info_field stats slave_expires_tracked_keys]
        lead
        assert_equal 2 [info_field stats slave_expires_tracked_keys]
        r debug set-active-expire 1
        wait_for_condition 5000 {[info_field stats slave_expires_tracked_keys] == 0}
        assert_equal {1 {}} [list [r get mine] [r get other]]
        r config set replica-read-only yes
        r flushall
    }

    test "other servers follow a primary that changed data as a replica only after a full copy" -needs {ours 1} {
        foreach {options change} {
            {replica-read-only yes} {}
            {replica-read-only no} {}
            {replica-read-only no} {set local 1}
            {replica-read-only no} {eval "redis.call('set', 'local', 1)" 0}
            {replica-ignore-maxmemory no maxmemory-policy allkeys-random} {config set maxmemory 1}
        } {
            synchronize $copy 5
            r config set {*}$options
            if {$change ne ""} {r {*}$change}
            if {[lindex $change 0] eq "config"} {
                wait_for_condition 5000 {[info_field stats evicted_keys] > 0}
                r config set maxmemory 0
            }
            r save
            set in_file [string match *repl-local-changes* [file_bytes [srv dir]/dump.rdb]]
            lead
            set second [string repeat 0 40]
            if {$change eq ""} {set second $id}
            assert_equal $second [info_field replication master_replid2] "$options $change"
            assert_equal [expr {$change ne ""}] $in_file "$options $change"
            r config set replica-read-only yes replica-ignore-maxmemory yes maxmemory-policy noeviction
            r config resetstat
        }
        # Copies contain these changes, and so do files.
        set changed [string map [list "\xfe\x00" "\xfa\x12repl-local-changes\x011\xfe\x00"] [rdb_of {{set a 1}}]]
        set changed [string range $changed 0 end-8][string repeat \0 8]
        synchronize $changed 5
        lead
        assert_equal [string repeat 0 40] [info_field replication master_replid2]
        synchronize $copy 5
        lead
        assert_equal $id [info_field replication master_replid2] "another copy replaces them"
    }

    test "a transaction that makes the server a replica ends in the stream, and what it writes then is not kept" \
        -needs {ours 1} {
        lassign [replica_full_sync] c before
        set offset [repl_offset]
        r multi
        r set x 1
        r incr y
        r replicaof 127.0.0.1 [primary_listen]
        r get x
        assert_equal {OK 1 OK 1} [r exec]
        assert_equal "PSYNC $before [expr {[repl_offset] + 1}]" [primary_handshake chan]
        lead
        set again [replica_connect]
        assert_match +CONTINUE* [replica_sync $again $before [expr {$offset + 1}]]
        r set z 1
        assert_equal {MULTI {SELECT 0} {set x 1} {incr y} EXEC {SELECT 0} {set z 1}} [replica_commands $again]
        foreach client [list $c $again] {$client -close}
        wait_replicas 0
        r multi
        r replicaof 127.0.0.1 [primary_listen]
        r set x 2
        assert_equal {OK OK} [r exec]
        assert_equal "PSYNC ? -1" [primary_handshake chan]
        lead
        assert_equal [string repeat 0 40] [info_field replication master_replid2] "other servers lack the write"
    }

    test "what a transaction writes after it has changed the role twice is not kept" -needs {ours 1} {
        r config set replica-read-only no
        r replicaof 127.0.0.1 [primary_listen]
        r multi
        r replicaof no one
        r replicaof 127.0.0.1 [primary_listen]
        r set x 2
        assert_equal {OK OK OK} [r exec]
        assert_equal "PSYNC ? -1" [primary_handshake chan]
        r config set replica-read-only yes
        lead
        assert_equal [string repeat 0 40] [info_field replication master_replid2] "other servers lack the write"
    }

    test "REPLICAOF answers as genuine servers do" -needs {ours 1} {
        assert_equal OK [r replicaof no one]
        assert_equal OK [r slaveof no one]
        assert_error "ERR Invalid master port" {r replicaof localhost x}
        assert_error "ERR Invalid master port" {r replicaof localhost 65536}
        set port [primary_listen]
        assert_equal OK [follow $port]
        assert_equal "OK Already connected to specified master" [follow $port]
        assert_equal "replicaof {127.0.0.1 $port}" [r config get replicaof]
        r config rewrite
        assert_match "*\nreplicaof 127.0.0.1 $port\n*" [file_bytes [srv conf]]
        lead
        r config rewrite
        assert_not_match "*\nreplicaof *" [file_bytes [srv conf]]
    }

    test "a client that waits for a key is disconnected when the server becomes a replica" -needs {ours 1} {
        set c [new_client -tcp 1 -deferring 1]
        $c blpop none 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        follow [primary_listen]
        assert_error_like "UNBLOCKED *" {$c -read}
        assert_closed $c
        lead
    }

    test "a replica asks for the full copy on a second channel, and follows the first" -needs {ours 1} {
        foreach setting {disabled swapdb} {
            r config set dual-channel-replication-enabled yes repl-diskless-load $setting bind-source-addr 127.0.0.9
            set main [follow_with "+DUALCHANNELSYNC\r\n"]
            set rdb [primary_accept]
            foreach chan [list $main $rdb] {assert_equal 127.0.0.9 [lindex [fconfigure $chan -peername] 0]}
            r config set bind-source-addr ""
            assert_equal "REPLCONF capa eof rdb-only 1 rdb-channel 1 listening-port [srv port] version *" \
                [lreplace [primary_command $rdb] end end *]
            primary_send $rdb "+OK\r\n"
            assert_equal SYNC [primary_command $rdb]
            primary_send $rdb "\n\$ENDOFF:70 $id 0 42\r\n"
            assert_equal {REPLCONF set-rdb-client-id 42} [primary_command $main]
            primary_send $main "+OK\r\n"
            assert_equal "PSYNC $id 71" [primary_command $main]
            primary_send $main "+CONTINUE $id\r\n[resp_command SET a 2]"
            primary_send $rdb "\$EOF:$mark\r\n[string range $copy 0 end-5]"
            wait_for_condition 5000 {[info_field replication replicas_repl_buffer_size] == [resp_length SET a 2]}
            primary_send $rdb "[string range $copy end-4 end]$mark"
            primary_await $main REPLCONF ACK [expr {70 + [resp_length SET a 2]}]
            assert_equal 2 [r get a]
            primary_await_close $rdb
            assert_equal 0 [info_field replication replicas_repl_buffer_size]
            lead
            # Either channel may break, at any stage.
            foreach stage {offset copy main} {
                set main [follow_with "+DUALCHANNELSYNC\r\n"]
                set rdb [primary_accept]
                primary_await $rdb REPLCONF
                primary_send $rdb "+OK\r\n"
                assert_equal SYNC [primary_command $rdb]
                if {$stage ne "offset"} {
                    primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n"
                    primary_await $main REPLCONF set-rdb-client-id
                    primary_send $main "+OK\r\n"
                    primary_await $main PSYNC
                    primary_send $main "+CONTINUE\r\n"
                    primary_send $rdb "\$EOF:$mark\r\n[string range $copy 0 end-5]"
                }
                if {$stage eq "main"} {primary_drop $main} else {primary_drop $rdb}
                primary_await_close [expr {$stage eq "main" ? $rdb : $main}]
                primary_handshake main
                wait_for_condition 5000 {[info_field persistence loading] == 0}
                lead
            }
        }
        r config set dual-channel-replication-enabled no repl-diskless-load disabled
    }

    test "the stream after a copy on a second channel begins in the database that the file names" -needs {ours 1} {
        # $ENDOFF of a replica of Valkey may name one of another time. No checksum: eight zeros.
        set aux "\xfa\x0erepl-stream-db\xc0\x03"
        set file "[string range $copy 0 8]$aux[string range $copy 9 end-8][string repeat \0 8]"
        foreach setting {disabled swapdb} {
            r config set dual-channel-replication-enabled yes repl-diskless-load $setting
            set main [follow_with "+DUALCHANNELSYNC\r\n"]
            set rdb [primary_accept]
            primary_await $rdb REPLCONF
            primary_send $rdb "+OK\r\n"
            assert_equal SYNC [primary_command $rdb]
            primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n"
            primary_await $main REPLCONF set-rdb-client-id
            primary_send $main "+OK\r\n"
            primary_await $main PSYNC
            primary_send $main "+CONTINUE\r\n[resp_command SET moved 2]"
            primary_send $rdb "\$EOF:$mark\r\n$file$mark"
            primary_await $main REPLCONF ACK [expr {70 + [resp_length SET moved 2]}]
            assert_equal {} [r get moved]
            r select 3
            assert_equal 2 [r get moved]
            r select 0
            lead
        }
        r config set dual-channel-replication-enabled no repl-diskless-load disabled
    }

    test "after the data was replaced the old history is not continued, even before the main channel is connected" \
        -needs {ours 1} {
        foreach setting {disabled swapdb} {
            r config set dual-channel-replication-enabled yes repl-diskless-load $setting
            primary_drop [synchronize $copy 100]
            primary_handshake main
            primary_send $main "+DUALCHANNELSYNC\r\n"
            set rdb [primary_accept]
            primary_await $rdb REPLCONF
            primary_send $rdb "+OK\r\n"
            assert_equal SYNC [primary_command $rdb]
            primary_send $rdb "\$ENDOFF:700 $id 0 42\r\n\$EOF:$mark\r\n$copy$mark"
            primary_await_close $rdb ;# the copy is loaded
            assert_not_equal $id [info_field replication master_replid]
            r replicaof no one
            primary_close
            assert_not_equal $id [info_field replication master_replid2]
            set replica [replica_connect]
            assert_match "+FULLRESYNC *" [replica_sync $replica $id 101]
            $replica -close
        }
        r config set dual-channel-replication-enabled no repl-diskless-load disabled
    }

    test "a full copy sets the offset although the main channel of a replica of this server is still to come" \
        -needs {ours 1} {
        synchronize $copy 100
        r config set dual-channel-replication-enabled yes repl-diskless-sync-delay 0
        set rdb [replica_connect capa eof rdb-only 1 rdb-channel 1 version 9.1.0]
        $rdb -send sync
        assert_match {$ENDOFF:100 *} [replica_line $rdb]
        replica_payload $rdb
        assert_equal 1 [$rdb -eof]
        $rdb -close
        assert_equal 1 [info_field replication replicas_waiting_psync]
        lead
        set chan [synchronize $copy 5000]
        assert_equal 0 [info_field replication replicas_waiting_psync]
        primary_send $chan [resp_command SET a 2]
        primary_await $chan REPLCONF ACK [expr {5000 + [resp_length SET a 2]}]
        lead
        r config set dual-channel-replication-enabled no
    }

    test "dual channel: DEBUG PAUSE-AFTER-FORK stops a replica when its primary has forked" -needs {ours 1} {
        r config set dual-channel-replication-enabled yes
        r debug pause-after-fork 1
        dual_channels main rdb
        primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n"
        wait_for_condition 5000 {[process_state [srv pid]] eq "T"}
        kill_process CONT [srv pid]
        assert_equal {REPLCONF set-rdb-client-id 42} [primary_command $main]
        r debug pause-after-fork 0
        lead
        r config set dual-channel-replication-enabled no
    }

    test "watchdog-period: the log shows the stack while a full copy is loaded" -needs {ours 1} {
        with_config {repl-diskless-load flush-before-load watchdog-period 200} {
            set mark [log_size]
            follow [primary_listen]
            primary_handshake chan
            set part [string range $copy 0 end-10]
            primary_send $chan "+FULLRESYNC $id 100\r\n\$[string length $copy]\r\n$part"
            wait_for_log "WATCHDOG TIMER EXPIRED" $mark
            assert_equal 1 [info_field persistence loading]
            close $chan
            wait_for_condition 5000 {[info_field persistence loading] == 0}
            lead
        }
    }

    # Starts the main channel of a replica that waits for the copy on its RDB channel, or has lost that channel.
    proc dual_main {answer {lost no}} {
        global id
        dual_channels main rdb
        primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n"
        assert_equal {REPLCONF set-rdb-client-id 42} [primary_command $main]
        if {$lost} {
            primary_send $rdb "\$EOF:[string repeat m 40]\r\n"
            set mark [log_size]
            close $rdb
            wait_for_log "lost" $mark
        }
        primary_send $main $answer
        assert_equal "PSYNC $id 71" [primary_command $main]
        return $main
    }

    test "dual channel: a replica asks for the stream although the primary has forgotten the client id" \
        -needs {ours 1} {
        r config set dual-channel-replication-enabled yes
        foreach lost {no yes} {
            set main [dual_main "-ERR Unrecognized RDB client id 42\r\n" $lost]
            set mark [log_size]
            primary_send $main "+DUALCHANNELSYNC\r\n"
            wait_for_log "Aborting dual channel sync" $mark
            lead
        }
        r config set dual-channel-replication-enabled no
    }

    test "dual channel: the history is the one that the primary names when it continues" -needs {ours 1} {
        r config set dual-channel-replication-enabled yes
        foreach {answer known} [list "+CONTINUE $other" $other +CONTINUE $id] {
            dual_channels main rdb
            primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n"
            primary_await $main REPLCONF set-rdb-client-id
            primary_send $main "+OK\r\n"
            assert_equal "PSYNC $id 71" [primary_command $main]
            primary_send $rdb "\$EOF:[string repeat m 40]\r\n$copy[string repeat m 40]"
            primary_send $main "$answer\r\n"
            primary_await $main REPLCONF ACK 70
            assert_equal $known [info_field replication master_replid]
            lead
        }
        r config set dual-channel-replication-enabled no
    }

    test "a copy to a file becomes dbfilename of the directory that CONFIG SET names in the meantime" -needs {ours 1} {
        set other [file join [srv dir] other]
        file mkdir $other
        foreach cut {no yes} {
            file delete {*}[glob -nocomplain -directory [srv dir] *.rdb]
            set chan [follow_with "+FULLRESYNC $id 10\r\n\$[string length $copy]\r\n[string range $copy 0 20]"]
            wait_for_condition 5000 {[llength [glob -nocomplain -directory [srv dir] temp-*.rdb]] == 1}
            r config set dir $other dbfilename moved.rdb
            if {$cut} {
                r replicaof no one
            } else {
                primary_send $chan [string range $copy 21 end]
                primary_await $chan REPLCONF ACK 10
                assert_equal 1 [r get a]
                assert_equal $copy [file_bytes [file join $other moved.rdb]]
            }
            r config set dir [srv dir] dbfilename dump.rdb
            assert_equal {} [glob -nocomplain -directory [srv dir] *.rdb]
            lead
        }
    }

    test "dual channel: a client's write between the copy and the stream is a change of this server's own" \
        -needs {ours 1} {
        r config set dual-channel-replication-enabled yes replica-read-only no
        foreach {write known} [list no $id yes [string repeat 0 40]] {
            dual_channels main rdb
            set mark [log_size]
            primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n\$EOF:[string repeat m 40]\r\n$copy[string repeat m 40]"
            wait_for_log "Done loading RDB" $mark
            if {$write} {r set own 1}
            primary_await $main REPLCONF set-rdb-client-id
            primary_send $main "+OK\r\n+CONTINUE\r\n"
            primary_await $main REPLCONF ACK 70
            assert_equal $write [string map {0 no 1 yes} [r exists own]]
            lead
            assert_equal $known [info_field replication master_replid2]
        }
        r config set dual-channel-replication-enabled no replica-read-only yes
    }

    test "dual channel: data that are replaced between the copy and the stream are copied again" -needs {ours 1} {
        r config set dual-channel-replication-enabled yes appendonly yes
        aof_wait_rewritten
        r config set appendonly no
        foreach command {{debug reload nosave} {debug loadaof}} {
            r set old 1
            r save
            r del old
            dual_channels main rdb
            set mark [log_size]
            primary_send $rdb "\$ENDOFF:70 $id 0 42\r\n\$EOF:[string repeat m 40]\r\n$copy[string repeat m 40]"
            wait_for_log "Done loading RDB" $mark
            assert_equal OK [r {*}$command]
            primary_await $main REPLCONF set-rdb-client-id
            primary_send $main "+OK\r\n+CONTINUE\r\n"
            assert_equal "PSYNC ? -1" [primary_handshake chan]
            assert_equal down [link]
            lead
        }
        r config set dual-channel-replication-enabled no
    }

    test "the keys of DEBUG POPULATE are a change of this server's own" -needs {ours 1} {
        set chan [synchronize $copy 100]
        r debug populate 1
        lead
        assert_equal [string repeat 0 40] [info_field replication master_replid2]
    }

    test "dual channel: the stream is kept up to the limit of the output buffer, and freed in the background" \
        -needs {ours 1} {
        with_config {dual-channel-replication-enabled yes client-output-buffer-limit "replica 100000 100000 0"} {
            set mark [log_size]
            set freed [info_field memory lazyfreed_objects]
            set main [dual_main "+OK\r\n"]
            primary_send $main "+CONTINUE $id\r\n[resp_command SET large [string repeat x 200000]]"
            wait_for_log "Replication buffer limit reached (100000 bytes), stopping buffering" $mark
            assert_equal 100000 [info_field replication replicas_repl_buffer_size]
            lead
            wait_for_condition 5000 {[info_field memory lazyfreed_objects] > $freed}
        }
    }

    test "dual channel: a replica sends its replicas the selected database of its stream" -needs {ours 1} {
        set chan [synchronize $copy 100]
        r config set dual-channel-replication-enabled yes
        set stream [resp_command SELECT 9][resp_command SET a 2]
        primary_send $chan $stream
        primary_await $chan REPLCONF ACK [set offset [expr {100 + [string length $stream]}]]
        set rdb [replica_connect capa eof rdb-only 1 rdb-channel 1 version 9.1.0]
        $rdb -send sync
        assert_match "\$ENDOFF:$offset $id 9 *" [replica_line $rdb]
        $rdb -close
        lead
        r config set dual-channel-replication-enabled no
    }
}

start_server {no_rdma 1 overrides {save "" repl-diskless-load disabled} tags {replication}} {
    r set a 1
    r save
    set copy [file_bytes [file join [srv dir] dump.rdb]]

    test "rdb-del-sync-files: the file of the copy goes where nothing else is kept on disk" -needs {ours 1} {
        foreach {delete save left} {yes "" 0 no "" 1 yes "3600 1" 1} {
            file delete [file join [srv dir] dump.rdb]
            r config set rdb-del-sync-files $delete save $save
            primary_drop [synchronize $copy]
            assert_equal $left [file exists [file join [srv dir] dump.rdb]] "rdb-del-sync-files $delete, save $save"
            assert_equal {} [glob -nocomplain -directory [srv dir] temp-*.rdb]
            lead
        }
    }

    test "propagation-error-behavior panic: a replica whose clients may write continues" {
        r config set propagation-error-behavior panic replica-read-only no
        set chan [synchronize $copy]
        set from [log_size]
        primary_send $chan [resp_command LPUSH a x][resp_command SET b 2]
        wait_for_condition 5000 {[r get b] == 2}
        assert_match "*This replica is sending an error to its primary: '-WRONGTYPE *' after processing the command\
            'lpush'*" [log_text $from]
        r config set propagation-error-behavior ignore replica-read-only yes
        lead
    }

    test "the log of a promotion has the letter of a primary, also about the position that is forgotten" {
        synchronize $copy
        set from [log_size]
        r replicaof no one
        primary_close
        assert_match "*:M *Discarding previously cached primary state.*" [log_text $from]
        assert_not_match "*:S *Discarding previously cached primary state.*" [log_text $from]
    }

    test "a client that asks while a small copy is loaded gets its reply from the copy" {
        follow [primary_listen]
        primary_handshake chan
        set c [new_client]
        exec kill -STOP [srv pid]
        primary_send $chan "+FULLRESYNC $id 0\r\n\$[string length $copy]\r\n$copy"
        $c -send get a
        exec kill -CONT [srv pid]
        assert_equal 1 [$c -read]
        $c -close
        lead
    }

    test "CLIENT PAUSE also pauses the stream, from the first affected command on" {
        set chan [synchronize $copy 100]
        set ping [resp_command PING]
        set write [resp_command SET a paused]
        r client pause 100000 write
        primary_send $chan $ping$write
        wait_for_condition 5000 {
            [info_field replication slave_read_repl_offset] == 100 + [string length $ping$write]
        }
        primary_send $chan $ping
        wait_for_condition 5000 {
            [info_field replication slave_read_repl_offset] == 100 + [string length $ping$write$ping]
        }
        assert_equal [expr {100 + [string length $ping]}] [info_field replication slave_repl_offset]
        assert_equal 1 [r get a]
        r client unpause
        wait_for_condition 5000 {
            [info_field replication slave_repl_offset] == 100 + [string length $ping$write$ping]
        }
        assert_equal paused [r get a]
        lead
    }

    # During a sleep of the server the end of the pause and the bytes arrive, so that both are handled in one turn of
    # the loop, in this order.
    proc unpause_before {bytes} {
        set sleeper [new_client]
        set other [new_client]
        $sleeper -send debug sleep 0.3
        after 50
        $other -send client unpause
        after 50
        primary_send $::chan $bytes
        $sleeper -read
        $other -read
        $sleeper -close
        $other -close
    }

    test "bytes that come with the end of a pause leave the request alone that was held back" -needs {ours 1} {
        set ::chan [synchronize $copy 100]
        set errors [info_field stats unexpected_error_replies]
        set large [string repeat x 100000]
        foreach {held cut} [list {SET a 1} 0 [list SET b $large] 50000 {SET c 3} 0] {
            set offset [info_field replication slave_repl_offset]
            set sent [resp_command {*}$held]
            r client pause 100000 write
            primary_send $::chan [string range $sent 0 $cut]
            after 20
            primary_send $::chan [string range $sent $cut+1 end]
            wait_for_condition 5000 {
                [info_field replication slave_read_repl_offset] == $offset + [string length $sent]
            }
            set next [resp_command INCR n]
            unpause_before $next
            wait_for_condition 5000 {
                [info_field replication slave_repl_offset] == $offset + [string length $sent$next]
            }
        }
        assert_equal [list 1 $large 3 3] [r mget a b c n]
        assert_equal $errors [info_field stats unexpected_error_replies]
        lead
    }

    test "propagation-error-behavior panic: a command of the stream that fails ends the replica" -needs {ours 1} {
        r config set propagation-error-behavior panic save "" crash-log-enabled no
        set chan [synchronize $copy]
        set from [log_size]
        set pid [srv pid]
        expect_server_exit
        primary_send $chan [resp_command LPUSH a x]
        wait_for_condition 10000 {![process_alive $pid]} {the replica goes on}
        assert_match "*This replica panicked sending an error to its primary*" [log_text $from]
        primary_close
    }
}

start_faulty_server {appendonly yes appendfsync everysec save "" repl-diskless-load flush-before-load} {
    faults
    r set a 1
    r save
    set copy [file_bytes [file join [srv dir] dump.rdb]]

    test "replica-ignore-disk-write-errors: a replica that cannot write continues, or otherwise ends" -needs {ours 1} {
        r config set replica-ignore-disk-write-errors yes
        set chan [synchronize $copy]
        set from [log_size]
        set pid [srv pid]
        wait_for_condition 10000 {[info_field persistence aof_rewrite_in_progress] == 0} {}
        faults "write */appendonlydir/*.incr.aof fail ENOSPC"
        primary_send $chan [resp_command SET a 2]
        wait_for_condition 10000 {[info_field persistence aof_last_write_status] eq "err"} {}
        primary_send $chan [resp_command SET a 3]
        wait_for_log "*Replica is applying a command it is unable to write to disk.*" $from
        expect_server_exit
        catch {r config set replica-ignore-disk-write-errors no} ;# the server may end before it replies
        catch {primary_send $chan [resp_command SET a 4]}
        wait_for_condition 10000 {![process_alive $pid]} {the replica goes on}
        assert_match "*Replica was unable to write command to disk.*" [log_text $from]
    }
}

start_server {no_rdma 1 overrides {appendonly yes save "" repl-diskless-load disabled} tags {replication}} {
    test "a copy in a file becomes the base of the append-only file, and survives a crash" {
        set chan [synchronize $copy]
        wait_for_log "*Reused RDB file from primary sync as AOF base file: appendonly.aof.2.base.rdb*"
        assert_equal $copy [file_bytes [aof_file b]]
        assert_equal {appendonly.aof.2.incr.aof 0} [list [aof_files i] [info_field persistence aof_rewrites]]
        assert {![file exists [file join [srv dir] dump.rdb]]}
        primary_send $chan [resp_command SELECT 0][resp_command SET later 2]
        wait_for_condition 5000 {[file size [aof_file i]] > 20}
        primary_close
        restart_server -signal KILL
        assert_equal {1 2} [r mget a later]
    }

    test "a copy whose base would be commands is followed by a rewrite" {
        r config set aof-use-rdb-preamble no
        set from [log_size]
        set chan [synchronize $copy]
        aof_wait_rewritten
        assert_match *.base.aof [aof_file b]
        assert_not_match "*Reused RDB file*" [log_text $from]
        assert {[file exists [file join [srv dir] dump.rdb]]}
        lead
        r config set aof-use-rdb-preamble yes
    }

    test "a copy that cannot be moved is followed by a rewrite" -needs {ours 1} {
        set n [lindex [split [aof_file b] .] end-2]
        file mkdir [file join [aof_dir] appendonly.aof.[expr {$n + 1}].base.rdb]
        set chan [synchronize $copy]
        wait_for_log "*The RDB file from the primary cannot become the base of the append-only file: Is a directory*"
        file delete [file join [aof_dir] appendonly.aof.[expr {$n + 1}].base.rdb]
        wait_for_condition 10000 {[string match *.base.rdb [aof_file b]]}
        aof_wait_rewritten
        lead
        restart_server -signal KILL
        assert_equal 1 [r get a]
    }
}

# The number of Multipath TCP sockets of this machine; "" if its kernel has none.
proc mptcp_sockets {} {
    set sockets ""
    regexp -line {^MPTCP +\d+ +(\d+)} [file_bytes /proc/net/protocols] -> sockets
    return $sockets
}
proc mptcp_works {} {
    expr {[file exists /proc/sys/net/mptcp/enabled] && [string trim [file_bytes /proc/sys/net/mptcp/enabled]] == 1}
}
start_server {no_rdma 1 overrides {repl-mptcp yes} tags {replication}} {
    test "repl-mptcp: the replica connects by Multipath TCP, or the log says why it cannot" -needs {ours 1} {
        if {[mptcp_works]} {
            synchronize $copy
            assert_morethan [mptcp_sockets] 0
            assert_equal 1 [r get a]
        } else {
            follow [primary_listen]
            wait_for_log "*Protocol not available*"
        }
        lead
    }
}
primary_close
