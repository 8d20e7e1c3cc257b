# MIGRATE and RESTORE of large values: other clients are served meanwhile.
# seconds: 10

# Strings that differ: parts of one long string.
set noise ""
for {set i 0} {$i < 50000} {incr i} {append noise [format %08x [expr {int(rand() * 0xffffffff)}]]}
proc noise {bytes} {
    set at [expr {int(rand() * (400000 - $bytes))}]
    return [string range $::noise $at [expr {$at + $bytes - 1}]]
}

start_server {} {
    set host [srv host]
    set port [srv port]
    start_server {} {
        # Level -1 is the target.
        proc both {} {
            r flushall
            r -1 flushall
        }
        proc large {key {bytes 2000000}} {r set $key [string repeat [noise 1000] [expr {$bytes / 1000}]]}
        # SIGSTOP holds the target while the body runs.
        proc while_stopped {body} {
            exec kill -STOP [srv -1 pid]
            try {uplevel 1 $body} finally {exec kill -CONT [srv -1 pid]}
        }
        proc wait_blocked {count} {
            wait_for_condition 5000 {[info_field clients blocked_clients] == $count}
        }
        # A client that moves the keys and waits for it.
        proc mover {args} {
            set client [new_client -deferring 1]
            $client migrate {*}$args
            wait_blocked 1
            return $client
        }
        foreach level {0 -1} {r $level config set rdbcompression no}

        test "every large type arrives as it was, in one call and one by one" {
            foreach together {0 1} {
                both
                large string
                for {set i 0} {$i < 20} {incr i} {
                    set items [lmap _ [lrepeat 500 x] {noise 12}]
                    r rpush list {*}$items
                    r sadd set {*}$items
                    r hset hash {*}$items
                    r zadd zset {*}[concat {*}[lmap item $items {list [expr {rand()}] $item}]]
                    for {set n 0} {$n < 20} {incr n} {r xadd stream * f [noise 400]}
                }
                r xgroup create stream group 0
                r xreadgroup group group consumer count 3 streams stream >
                r hset timed f [noise 200000] g w
                r hpexpire timed 1000000 fields 1 f
                r pexpire set 1000000
                set names [lsort [r keys *]]
                set digests [lmap name $names {r debug digest-value $name}]
                if {$together} {
                    assert_typed +OK migrate $host $port "" 0 20000 keys {*}$names
                } else {
                    foreach name $names {assert_typed +OK migrate $host $port $name 0 20000}
                }
                assert_equal 0 [r dbsize]
                assert_equal $digests [lmap name $names {r -1 debug digest-value $name}]
                assert_range [r -1 pttl set] 1 1000000
            }
        }

        test "other clients are served while the target does not answer" -needs {ours 1} {
            both
            large k
            while_stopped {
                set client [mover $host $port k 0 20000]
                assert_equal PONG [r ping]
                assert_equal 2000000 [r strlen k]
                r set other 1
            }
            assert_equal OK [$client -read]
            assert_equal 0 [r exists k]
            assert_equal 2000000 [r -1 strlen k]
            assert_equal 0 [info_field clients blocked_clients]
        }

        test "commands that would change the key wait, and find it gone" -needs {ours 1} {
            both
            large k
            r set small 1
            while_stopped {
                set client [mover $host $port k 0 20000]
                set commands {
                    {append k x} {rename k k2} flushall {eval {return redis.call('del', KEYS[1])} 1 k}
                }
                set writers [lmap command $commands {
                    set writer [new_client -deferring 1]
                    $writer {*}$command
                    set writer
                }]
                set transaction [new_client -deferring 1]
                $transaction multi
                $transaction setrange k 0 y
                $transaction exec
                assert_equal {OK QUEUED} [list [$transaction -read] [$transaction -read]]
                assert_equal 2000000 [r strlen k]
                assert_equal 1 [r get small]
            }
            assert_equal OK [$client -read]
            assert_equal 2000000 [r -1 strlen k]
            foreach writer $writers {catch {$writer -read}}
            assert_equal 1 [llength [$transaction -read]]
        }

        test "a change that cannot wait ends the move, and the key stays" -needs {ours 1} {
            both
            large k
            while_stopped {
                set client [mover $host $port k 0 20000]
                r eval {redis.call('append', 'k', 'x')} 0
                assert_error_like "IOERR error or timeout * to target instance" {$client -read}
                assert_equal 2000001 [r strlen k]
            }
        }

        test "a replica that becomes read only on the way keeps the key" -needs {ours 1} {
            both
            large k
            r config set replica-read-only no
            r debug role replica 127.0.0.1 1
            while_stopped {
                set client [mover $host $port k 0 20000]
                r config set replica-read-only yes
            }
            assert_error_like "IOERR*" {$client -read}
            assert_equal 2000000 [r strlen k]
            r debug role primary
        }

        test "a key that expires on the way is not moved" -needs {ours 1} {
            both
            large k
            r pexpire k 300
            while_stopped {
                set client [mover $host $port k 0 20000]
                assert_error_like "IOERR*" {$client -read}
                assert_equal 0 [r exists k]
            }
        }

        test "the timeout, the end of the target, and of the client" {
            both
            large k
            while_stopped {
                assert_error_like "IOERR error or timeout * to target instance" {r migrate $host $port k 0 200}
                assert_equal 2000000 [r strlen k]
            }
            assert_error "IOERR error or timeout writing to target instance" {r migrate $host 1 k 0 1000}
            assert_error "IOERR error or timeout connecting to the client" {
                r migrate nosuchhost.invalid 1 k 0 1000
            }
            set client [new_client -deferring 1]
            $client migrate 127.0.0.1 [primary_listen] k 0 20000
            primary_accept
            primary_close
            assert_error_like "IOERR*" {$client -read}
            assert_equal 2000000 [r strlen k]
        }

        test "the move goes on when its client leaves" -needs {ours 1} {
            both
            large k
            while_stopped {
                [mover $host $port k 0 20000] -close
                wait_blocked 0
                assert_equal 1 [r exists k]
            }
            wait_for_condition 5000 {[r exists k] == 0} "the key is deleted"
            assert_equal 2000000 [r -1 strlen k]
        }

        test "CLIENT UNBLOCK ends the wait only" -needs {ours 1} {
            foreach how {timeout error} error {"IOERR*" "UNBLOCKED*"} {
                both
                large k
                while_stopped {
                    set client [new_client -deferring 1]
                    $client client id
                    set id [$client -read]
                    $client migrate $host $port k 0 20000
                    wait_blocked 1
                    assert_equal 1 [r client unblock $id $how]
                    assert_error_like $error {$client -read}
                }
                wait_for_condition 5000 {[r exists k] == 0} "the key is deleted"
                assert_equal 2000000 [r -1 strlen k]
                # The client can move another one.
                large k2
                $client migrate $host $port k2 0 20000
                assert_equal OK [$client -read]
            }
        }

        test "COPY keeps the key and lets it change, REPLACE overwrites it there, BUSYKEY" {
            both
            large k
            r -1 set k old
            assert_error "ERR Target instance replied with error: BUSYKEY Target key name already exists." {
                r migrate $host $port k 0 20000
            }
            assert_equal 2000000 [r strlen k]
            assert_equal OK [r migrate $host $port k 0 20000 copy replace]
            assert_equal [r get k] [r -1 get k]
            assert_equal OK [r migrate $host $port k 0 20000 replace]
            assert_equal 0 [r exists k]
        }

        test "a copy is of the time of the call" -needs {ours 1} {
            both
            large k
            while_stopped {
                set client [mover $host $port k 0 20000 copy]
                assert_equal 2000001 [r append k x]
            }
            assert_equal OK [$client -read]
            assert_equal 2000000 [r -1 strlen k]
            assert_equal 2000001 [r strlen k]
        }

        test "of several keys those that arrived are deleted here" {
            both
            foreach key {x y z} {large $key 300000}
            r -1 set y there
            assert_error "ERR Target instance replied with error: BUSYKEY Target key name already exists." {
                r migrate $host $port "" 0 20000 keys x y missing z x
            }
            assert_equal y [r keys *]
            assert_equal {x y z} [lsort [r -1 keys *]]
            foreach key {x z} {large $key 300000}
            assert_equal OK [r migrate $host $port "" 0 20000 replace keys x x z]
            assert_equal y [r keys *]
        }

        test "passwords, and errors before the keys" {
            both
            large k
            r -1 config set requirepass secret
            assert_error_like "ERR Target instance replied with error: WRONGPASS*" {
                r migrate $host $port k 0 20000 auth wrong
            }
            assert_error_like "ERR Target instance replied with error: ERR DB index is out of range" {
                r migrate $host $port k 99 20000 auth secret
            }
            assert_equal 1 [r exists k]
            r config set slowlog-log-slower-than 0
            assert_equal OK [r migrate $host $port k 0 20000 auth2 default secret]
            assert_not_match "*secret*" [r slowlog get 5]
            r config set slowlog-log-slower-than 10000
            r -1 config set requirepass ""
            assert_equal 0 [r exists k]
        }

        test "a pause of writes holds back the end" -needs {ours 1} {
            both
            large k
            while_stopped {
                set client [mover $host $port k 0 20000]
                r client pause 100000 write
            }
            wait_for_condition 5000 {[r -1 exists k]} "the target has the key"
            assert_equal 1 [r exists k]
            r client unpause
            assert_equal OK [$client -read]
            assert_equal 0 [r exists k]
        }

        test "in a transaction and in a script it blocks as before" {
            both
            foreach key {a b} {large $key}
            r multi
            r migrate $host $port a 0 20000
            assert_equal OK [r exec]
            assert_equal OK [r eval {return redis.call('migrate', ARGV[1], ARGV[2], KEYS[1], 0, 20000)} 1 b $host $port]
            assert_equal 0 [r dbsize]
            assert_equal {a b} [lsort [r -1 keys *]]
        }

        # Level 0 is another server in the body, and is killed there, with the value half way.
        proc with_server {body} {
            set id [server_start {}]
            lappend ::servers $id
            try {uplevel 1 $body} finally {
                set ::servers [lrange $::servers 0 end-1]
                proxy_stop $id
                server_reap $id
            }
        }
        test "a target that is killed in the middle leaves the key here" -needs {ours 1} {
            both
            large k 20000000
            with_server {
                set source [new_client -level -1 -deferring 1]
                exec kill -STOP [srv pid]
                $source migrate [srv host] [srv port] k 0 20000
                wait_for_condition 5000 {[dict get [info_dict [r -1 info clients]] blocked_clients] == 1}
                kill_process KILL [srv pid]
                assert_error_like "IOERR error or timeout * to target instance" {$source -read}
            }
            assert_equal 20000000 [r strlen k]
            assert_equal 20000001 [r append k x]
        }

        test "a source that is killed in the middle leaves nothing there" -needs {ours 1} {
            both
            with_server {
                # The target is at level -2 now. Each turn of the loop sends a piece.
                r config set rdbcompression no
                large k 20000000
                exec kill -STOP [srv -2 pid]
                set client [new_client -deferring 1]
                $client migrate $host $port k 0 20000
                wait_blocked 1
                for {set i 0} {$i < 20} {incr i} {r ping}
                kill_process KILL [srv pid]
                exec kill -CONT [srv -2 pid]
            }
            wait_for_condition 5000 {[dict get [info_dict [r -1 info clients]] connected_clients] <= 2}
            assert_equal 0 [r -1 dbsize]
        }

        test "what has moved is propagated as a deletion" {
            both
            r config set appendonly yes
            aof_wait_rewritten
            large k
            set appended [aof_appended {r migrate $host $port k 0 20000}]
            assert_equal {del k} [string tolower [lindex $appended end]]
            r config set appendonly no
        }
    }
}

start_server {} {
    # The payloads of large values, by type.
    proc payloads {} {
        r flushall
        for {set i 0} {$i < 60} {incr i} {
            set items [lmap n [lrepeat 500 x] {format %x%09d $i [incr count]}]
            r rpush list {*}$items [noise 2000]
            r sadd set {*}$items
            r hset hash {*}$items
            r zadd zset {*}[concat {*}[lmap item $items {list [expr {rand()}] $item}]]
            r xadd stream * f [noise 8000]
            r hset timed {*}[lrange $items 0 99] [noise 8000] v
        }
        r hpexpire timed 1000000 fields 1 0000000001
        r set string [noise 300000]
        set payloads {}
        foreach name [r keys *] {
            dict set payloads $name [r dump $name]
            if {[string length [dict get $payloads $name]] <= 262144} {error "$name is small"}
        }
        return $payloads
    }
    proc client_bytes {id} {dict get [client_fields [r client list id $id]] tot-net-in}
    # Another client sends the command right after the last byte of RESTORE. Returns the client that restores.
    # `other_reply` gets the reply of the other one, which may have been served first: `again` says so, and cleans up.
    proc restore_meanwhile {again args} {
        upvar 1 payloads payloads
        for {set tries 50} {$tries} {incr tries -1} {
            set client [restore_and $payloads {*}$args]
            if {![uplevel 1 $again]} {return $client}
            catch {$client -read}
            $client -close
            r flushall
        }
        fail_assertion "the other client was always served first"
    }
    proc restore_and {payloads args} {
        set bytes [resp_command restore set 0 [dict get $payloads set]]
        lassign [list [new_client -deferring 1] [new_client -deferring 1]] client other
        $client client id
        set id [$client -read]
        set received [client_bytes $id]
        $client -write [string range $bytes 0 end-1]
        $client -flush
        wait_for_condition 5000 {[client_bytes $id] == $received + [string length $bytes] - 1}
        exec kill -STOP [srv pid]
        $client -write [string index $bytes end]
        $client -flush
        $other {*}[string map [list ID $id] $args]
        exec kill -CONT [srv pid]
        set ::other_reply [$other -read]
        return $client
    }
    r config set rdbcompression no
    set payloads [payloads]
    set digests [dict map {name payload} $payloads {r debug digest-value $name}]

    test "RESTORE of every large type" {
        foreach {name payload} $payloads {
            assert_error "BUSYKEY Target key name already exists." {r restore $name 0 $payload}
            assert_equal OK [r restore $name 0 $payload replace]
            assert_equal [dict get $digests $name] [r debug digest-value $name] $name
            r del $name
            assert_equal OK [r restore $name 1000000 $payload idletime 1000]
            assert_range [r object idletime $name] 1000 1100
            assert_range [r pttl $name] 1 1000000
            r persist $name
            assert_equal [dict get $digests $name] [r debug digest-value $name] $name
            assert_equal OK [r restore $name 1 $payload replace absttl]
            assert_equal 0 [r exists $name]
        }
    }

    test "the append-only file gets the whole value" {
        r flushall
        r config set appendonly yes
        aof_wait_rewritten
        foreach {name payload} $payloads {r restore $name [expr {$name eq "set" ? 1000000 : 0}] $payload}
        r debug loadaof
        assert_range [r pttl set] 1 1000000
        r persist set
        foreach {name digest} $digests {assert_equal $digest [r debug digest-value $name] $name}
        r config set appendonly no
    }

    test "a payload that is wrong, in whole or in parts" {
        r flushall
        foreach {name payload} $payloads {
            set middle [expr {[string length $payload] / 2}]
            set wrong [string replace $payload $middle $middle+3 "\x00\xff\x00\xff"]
            assert_error "ERR DUMP payload version or checksum are wrong" {r restore k 0 $wrong}
            assert_error "ERR DUMP payload version or checksum are wrong" {
                r restore k 0 [string range $payload 0 end-1]
            }
            r debug set-skip-checksum-validation 1
            if {$name ne "string"} {
                assert_error "ERR Bad data format" {
                    r restore k 0 [string range $payload 0 $middle][string range $payload end-9 end]
                }
            }
            catch {r restore k 0 $wrong}
            r del k
            r debug set-skip-checksum-validation 0
        }
        assert_equal 0 [r dbsize]
    }

    test "a key that appears meanwhile is found at the end" {
        r flushall
        set client [restore_meanwhile {expr 0} set set there]
        assert_error "BUSYKEY Target key name already exists." {$client -read}
        assert_equal there [r get set]
    }

    test "a client that looks at the new value and waits on does not keep the reply" {
        r flushall
        set reader [new_client -deferring 1]
        $reader xread block 0 streams stream 99999999999999-0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        assert_equal OK [r restore stream 0 [dict get $payloads stream]]
        assert_equal 1 [info_field clients blocked_clients]
        assert_equal 1 [r exists stream]
        $reader -close
    }

    test "the value appears after a pause of writes" -needs {ours 1} {
        r flushall
        set client [restore_meanwhile {
            set early [expr {[info_field clients blocked_clients] != 1}]
            if {$early} {r client unpause}
            set early
        } client pause 100000 write]
        assert_equal 0 [r exists set]
        r client unpause
        assert_equal OK [$client -read]
        assert_equal [dict get $digests set] [r debug digest-value set]
    }

    test "RESTORE is refused at its end if the state of the server refuses it by then" -needs {ours 1} {
        foreach {option value refusal} {
            min-replicas-to-write 1 "NOREPLICAS Not enough good replicas to write."
            maxmemory 1 "OOM command not allowed when used memory > 'maxmemory'."
            replica-read-only yes "READONLY You can't write against a read only replica."
        } {
            r flushall
            r config set replica-read-only no
            if {$option eq "replica-read-only"} {r debug role replica 127.0.0.1 1}
            set default [lindex [r config get $option] 1]
            set client [restore_meanwhile {
                set early [expr {[info_field clients blocked_clients] != 1}]
                if {$early} {r client unpause}
                set early
            } client pause 100000 write]
            r config set $option $value
            r client unpause
            assert_error $refusal {$client -read}
            assert_equal 0 [r exists set]
            r config set $option $default
            $client -close
        }
        r debug role primary
        r config set replica-read-only yes
    }

    test "the end of a client, or of its wait, ends the load" -needs {ours 1} {
        r flushall
        assert_closed [restore_meanwhile {expr 0} client kill id ID]
        foreach how {timeout error} {
            set client [restore_meanwhile {expr {!$::other_reply}} client unblock ID $how]
            assert_error_like "UNBLOCKED*" {$client -read}
            assert_equal 0 [r dbsize]
            $client restore set 0 [dict get $payloads set]
            assert_equal OK [$client -read]
            r del set
        }
        assert_equal 0 [info_field clients blocked_clients]
    }

    test "in a transaction" {
        r flushall
        r multi
        foreach {name payload} $payloads {r restore $name 0 $payload}
        assert_equal [lrepeat [dict size $payloads] OK] [r exec]
        foreach {name digest} $digests {assert_equal $digest [r debug digest-value $name] $name}
    }
}
