# Peers that violate the replication protocol: replicas that send invalid data, and primaries whose handshake, copy or
# stream is wrong. The server must continue, keep its data if possible, and not trust the peer. seconds: 10

set id [string repeat a 40]
proc link_is {state} {
    wait_for_condition 10000 {[info_field replication master_link_status] eq $state} "the link is not $state"
}
# The replica connects to a primary in Tcl and has sent PSYNC.
proc followed {} {
    r replicaof 127.0.0.1 [primary_listen]
    primary_handshake chan
    return $chan
}

start_server {overrides {repl-diskless-sync-delay 0 repl-ping-replica-period 3600 enable-debug-command yes} tags\
    {replication}} {
    test "a replica that causes a reply is disconnected, and the reply does not get into the stream" {
        foreach command {
            {get k} {set k v} {ping} {client id} {client list} {replconf listening-port 1} {multi}\
                {subscribe c} {no-such}
            {wait 0 0} {hello 3} {info} {replconf ack} {client reply on}
        } {
            lassign [replica_full_sync] c
            $c -send {*}$command
            assert_equal {1 {}} [list [$c -eof] [r get k]] $command
            replica_leaves $c
        }
    }

    test "a replica's SYNC, PSYNC and MONITOR are ignored, and so are those of a monitor" {
        lassign [replica_full_sync] c id offset
        foreach command [list sync {psync ? -1} [list psync $id $offset] monitor] {$c -send {*}$command}
        r set k v
        assert_equal {{set k v}} [lsearch -all -inline -not [replica_commands $c] {SELECT *}]
        $c -close
        set c [new_client]
        assert_equal OK [$c monitor]
        $c -send psync ? -1
        r set k w
        assert_match {*"set" "k" "w"} [$c -read]
        wait_replicas 0
    }

    test "a long refusal of the primary's protected mode is logged, as far as Valkey logs it" {
        set text "-DENIED Running in protected mode [string repeat x 1100]"
        r replicaof 127.0.0.1 [primary_listen]
        primary_send [primary_accept] "$text\r\n"
        wait_for_log "Error reply to PING from primary: '[string range $text 0 254]'"
        lead
    }

    test "messages do not get into the stream of a client that subscribed before it became a replica" -needs {ours 1} {
        set c [new_client]
        $c hello 3
        $c -send subscribe channel
        assert_equal {subscribe channel 1} [$c -push]
        assert_match +FULLRESYNC* [replica_sync $c]
        replica_payload $c
        wait_for_condition 10000 {"wait_bgsave" ni [lmap line [replica_lines] {dict get $line state}]} {}
        replica_ack $c [repl_offset]
        r publish channel message
        r set k v
        assert_equal {{publish channel message} {set k v}} \
            [lsearch -all -inline -not [replica_commands $c] {SELECT *}]
    }

    test "an acknowledgement of bytes that the stream does not have counts for nothing" -needs {ours 1} {
        lassign [replica_full_sync] c id offset
        foreach {acked fsynced} {9223372036854775807 "" 1000000000 "" 0 9223372036854775807 -9223372036854775808 ""} {
            replica_ack $c $acked $fsynced
        }
        r set k v
        assert_equal 0 [r wait 1 50]
        assert_equal $offset [dict get [lindex [replica_lines] 0] offset]
        replica_ack $c [repl_offset]
        assert_equal 1 [r wait 1 10000]
    }

    test "PSYNC at a position that no stream has gets a full copy" {
        wait_replicas 0
        foreach offset {0 -1 -2 -9223372036854775808 9223372036854775807} {
            set c [replica_connect]
            assert_match +FULLRESYNC* [replica_sync $c [info_field replication master_replid] $offset]
            $c -close
        }
        wait_replicas 0
    }

    test "a replica that reads nothing during the full copy is closed at its output limit" -needs {ours 1} {
        # Output up to the size of the backlog is always allowed.
        set backlog [config_get repl-backlog-size]
        r config set client-output-buffer-limit "replica 4mb 0 0" rdb-key-save-delay 100000 repl-backlog-size 1mb
        r debug populate 500 key
        set c [replica_connect]
        assert_match +FULLRESYNC* [replica_sync $c]
        for {set i 0} {$i < 60} {incr i} {r set large:$i [string repeat x 100000]}
        wait_replicas 0
        r config set client-output-buffer-limit "replica 256mb 64mb 60" rdb-key-save-delay 0 repl-backlog-size $backlog
        $c -close
        r flushall
    }
}

start_server {no_rdma 1 overrides {enable-debug-command yes save "" repl-timeout 5 appendonly no} tags {replication}} {
    r set a 1
    r save
    set copy [file_bytes [file join [srv dir] dump.rdb]]

    test "answers of the handshake that are none end the link, and the data stay" -needs {ours 1} {
        foreach answer [list "+FULLRESYNC" "+FULLRESYNC $id" "+FULLRESYNC $id -1" \
            "+FULLRESYNC $id 99999999999999999999" \
                            "+FULLRESYNC [string repeat z 40] 1" "+CONTINUE short" "+CONTINUE [string repeat z 40]" \
                            [string repeat x 5000]] {
            set chan [followed]
            primary_send $chan "$answer\r\n"
            primary_await_close $chan
            assert_equal 1 [r get a] $answer
            lead
        }
    }

    test "a header of the copy that is none ends the link, and the data stay" -needs {ours 1} {
        foreach header [list "\$" "\$x" "\$-1" "\$0" "\$99999999999999999999" "\$EOF:short" \
            "\$EOF:[string repeat m 41]" \
                            "\$PULL:" "\$PULL:4096 1" "\$PULL:0 0" "\$PULL:99999999999999999999 1" "*1" "-ERR no" \
                            "\$ENDOFF:1 $id 0 1"] {
            set chan [followed]
            primary_send $chan "+FULLRESYNC $id 0\r\n$header\r\n"
            primary_await_close $chan
            assert_equal 1 [r get a] $header
            lead
        }
    }

    test "a copy that is announced as longer than any disk costs what has arrived" -needs {ours 1} {
        foreach mode {disabled swapdb flush-before-load} {
            r config set repl-diskless-load $mode
            set chan [followed]
            primary_send $chan "+FULLRESYNC $id 0\r\n\$9223372036854775807\r\n$copy"
            wait_for_condition 10000 {[info_field memory used_memory] < 200000000} {}
            primary_drop $chan
            wait_for_condition 10000 {[info_field persistence loading] == 0} {the load goes on}
            lead
        }
        r config set repl-diskless-load disabled
        r set a 1
    }

    # Commands that a primary does not send: they must have no effect except counting as errors.
    test "a stream of commands that no primary propagates is followed" -needs {ours 1} {
        set chan [followed]
        primary_send $chan "+FULLRESYNC $id 0\r\n\$[string length $copy]\r\n$copy"
        primary_await $chan REPLCONF ACK 0
        link_is up
        set stream ""
        foreach command {
            {PSYNC ? -1} {SYNC} {MONITOR} {RESET} {HELLO 3} {WAIT 1 0} {MULTI}
            {DISCARD} {WATCH a} {EXEC} {DISCARD}
            {CLIENT PAUSE x} {REPLCONF ACK 5} {REPLCONF PULLED 1} {REPLCONF rdb-only 1} {FAILOVER} {AUTH x y}
            {EVAL "return redis.call('subscribe','x')" 0} {CLIENT TRACKING on} {SELECT 0} {INCR a}
        } {append stream [resp_command {*}$command]}
        primary_send $chan $stream
        primary_await $chan REPLCONF ACK [string length $stream]
        assert_equal {2 up} [list [r get a] [info_field replication master_link_status]]
        assert_equal 0 [info_field replication connected_slaves]
        lead
    }

    test "a command of the stream that cannot be executed ends the link, and the copy is made again" -needs {ours 1} {
        set first 1
        foreach request [list [resp_command NOSUCH x] [resp_command SET a] "SET a 5\r\n" "*1\r\n\$x\r\n" \
                             "[resp_command MULTI][resp_command NOSUCH x]" "[resp_command MULTI][resp_command MULTI]" \
                             "[resp_command SELECT 16][resp_command SET a 5]" \
                             "[resp_command MULTI][resp_command SWAPDB 0 16][resp_command EXEC][resp_command SET a 5]"\
                             "[resp_command COPY a a DB 16][resp_command SET a 5]"\
                             "[resp_command MOVE a 16][resp_command SET a 5]"] {
            set chan [followed]
            primary_send $chan "+FULLRESYNC $id 7\r\n\$[string length $copy]\r\n$copy"
            primary_await $chan REPLCONF ACK 7
            set from [log_size]
            primary_send $chan $request
            primary_await_close $chan
            assert [log_has "discarding the cached primary" $from] $request
            assert_equal {1 1} [list [r get a] [info_field replication slave_repl_offset]] $request
            if {$first} {assert_equal {PSYNC ? -1} [primary_handshake chan]} ;# later ones wait
            set first 0
            lead
        }
    }

    test "a request of the stream that is malformed or larger than memory ends the link only" -needs {ours 1} {
        foreach request [list "*-x\r\n" "*2147483647\r\n" "*99999999999999999999\r\n" "*2\r\n\$3\r\nGET\r\n\$-5\r\n" \
                             "*2\r\n\$3\r\nGET\r\n\$2305843009213693951\r\n" "*2\r\n\$3\r\nGET\r\n:1\r\n"] {
            set chan [followed]
            primary_send $chan "+FULLRESYNC $id 0\r\n\$[string length $copy]\r\n$copy"
            primary_await $chan REPLCONF ACK 0
            primary_send $chan $request
            primary_await_close $chan
            assert_equal 1 [r get a] $request
            lead
        }
    }
}
