# Buffers of clients in CLIENT LIST, and for client-output-buffer-limit. seconds: 30
#
# With I/O threads, a part of the input and output is owned by the client's thread, so exact numbers are checked only
# without I/O threads.

proc fields_of {id} {client_fields [r client list id $id]}
proc field_of {id name} {dict get [fields_of $id] $name}
proc closed_by_limit {} {info_field stats client_output_buffer_limit_disconnections}
# Sends a request whose reply exceeds the limit, and returns the bytes received before the connection was closed.
proc assert_limited {args} {
    set before [closed_by_limit]
    set c [new_client]
    $c -send {*}$args
    assert_closed $c
    assert_equal [expr {$before + 1}] [closed_by_limit]
    assert_equal PONG [r ping]
}

start_server {overrides {io-threads -} tags {limits}} {
    r config set min-string-size-avoid-copy-reply 0

    test "a reply above the hard limit is not sent, nor are the next requests executed" {
        for {set i 0} {$i < 2000} {incr i} {r rpush list [string repeat e 100]}
        r config set client-output-buffer-limit "normal 100000 0 0"
        assert_limited lrange list 0 -1
        set c [new_client]
        $c -write [resp_command set before 1][resp_command lrange list 0 -1][resp_command set behind 1]
        assert_closed $c
        assert_equal 1 [r get before]
        assert_equal 0 [r exists behind]
    }

    test "a transaction and a script are executed to the end after the limit" {
        set c [new_client]
        set requests [resp_command multi]
        for {set i 0} {$i < 3} {incr i} {append requests [resp_command lrange list 0 -1][resp_command incr done]}
        $c -write $requests[resp_command exec][resp_command incr done]
        assert_closed $c
        assert_equal 3 [r get done]
        set c [new_client]
        $c -send eval "redis.call('incr', 'run') redis.call('lrange', 'list', 0, -1) redis.call('incr', 'run')
            return redis.call('lrange', 'list', 0, -1)" 0
        assert_closed $c
        assert_equal 2 [r get run]
    }

    test "a reply of any number of elements ends at the limit" {
        r sadd set a b c
        r hset hash a 1 b 2 c 3
        r zadd zset 1 a 2 b 3 c
        assert_limited srandmember set -999999999
        assert_limited hrandfield hash -999999999
        assert_limited hrandfield hash -999999999 withvalues
        assert_limited zrandmember zset -999999999
        assert_limited zrandmember zset -999999999 withscores
    }

    test "the replies to requests that arrive together count together" {
        set c [new_client]
        $c -write [string repeat [resp_command lrange list 0 99] 50]
        assert_closed $c
    }

    test "the replies of a long pipeline that the peer reads exceed no limit" {
        set c [new_client]
        $c -write [string repeat "PING\r\n" 100000]
        for {set i 0} {$i < 100000} {incr i} {assert_equal +PONG [$c -readline]}
        r config set client-output-buffer-limit "normal 0 0 0"
    }

    test "a large string that the peer reads immediately passes the hard limit, unless copies are required" {
        r set big [string repeat x 200000]
        r config set client-output-buffer-limit "normal 50000 0 0"
        assert_limited get big
        r config set min-string-size-avoid-copy-reply 16384
        set c [new_client]
        assert_equal 200000 [string length [$c get big]]
        r config set client-output-buffer-limit "normal 0 0 0"
    }

    test "a subscriber is closed at the hard limit, and what is queued stays below it" -tags {tcp-only} {
        r config set client-output-buffer-limit "pubsub 100000 0 0"
        set c [new_client]
        set id [$c client id]
        $c subscribe channel
        set most 0
        for {set i 0} {$i < 20000} {incr i} {
            r publish channel [string repeat m 5000]
            if {![regexp {omem=(\d+)} [r client list id $id] -> omem]} break
            if {$omem > $most} {set most $omem}
        }
        assert_range $most 50000 100000
        wait_for_log "scheduled to be closed ASAP for overcoming of output buffer limits." 0
    }

    test "the cron closes a client above its soft limit that gets no new output" -tags {tcp-only} {
        r config set client-output-buffer-limit "pubsub 0 100000 1"
        set from [log_size]
        set c [new_client]
        set id [$c client id]
        $c subscribe channel
        for {set i 0} {$i < 20000} {incr i} {
            r publish channel [string repeat m 5000]
            if {[field_of $id omem] > 100000} break
        }
        wait_for_log "closed for overcoming of output buffer limits." $from
        wait_for_condition 5000 {[r client list id $id] eq ""}
        r config set client-output-buffer-limit "pubsub 33554432 8388608 60"
    }

    test "a subscriber above its soft limit is closed while large messages follow" -tags {tcp-only} {
        r config set client-output-buffer-limit "pubsub 0 100000 1" min-string-size-avoid-copy-reply 16384
        set c [new_client]
        set id [$c client id]
        $c subscribe channel
        set message [string repeat m 30000]
        for {set i 0} {$i < 5000} {incr i} {
            r publish channel $message
            if {[field_of $id omem] > 100000} break
        }
        wait_for_condition 20000 {[r publish channel $message] == 0}
        assert_equal "" [r client list id $id]
        r config set client-output-buffer-limit "pubsub 33554432 8388608 60" min-string-size-avoid-copy-reply 0
    }

    test "a message that the subscriber takes at once passes the hard limit" -tags {tcp-only} {
        r config set client-output-buffer-limit "pubsub 50000 0 0" min-string-size-avoid-copy-reply 16384
        set c [new_client]
        $c subscribe channel
        assert_equal 1 [r publish channel [string repeat m 200000]]
        assert_equal [list message channel [string repeat m 200000]] [$c -read]
        r config set client-output-buffer-limit "pubsub 33554432 8388608 60" min-string-size-avoid-copy-reply 0
    }

    test "bytes of a large argument count once against client-query-buffer-limit" {
        r config set client-query-buffer-limit 1mb
        set c [new_client]
        assert_equal OK [$c set large [string repeat x 1000000]]
        assert_equal PONG [$c ping]
        r config set client-query-buffer-limit 1gb
    }

    test "an argument counts against client-query-buffer-limit as far as it has arrived" {
        r config set client-query-buffer-limit 1mb
        foreach {len parts replies} {
            1048574 {1048574 crlf} OK
            1048575 {1048575 crlf} closed
            1048576 {1048576 crlf} closed
            3000000 {1000000 ping 100000} closed
            3000000 {1000000 ping} open
        } {
            set c [new_client]
            $c -write "*3\r\n\$3\r\nSET\r\n\$1\r\nk\r\n\$$len\r\n"
            foreach part $parts {
                switch $part {
                    crlf {$c -write "\r\n"}
                    ping {r ping}
                    default {catch {$c -write [string repeat x $part]}}
                }
                catch {$c -flush}
            }
            switch $replies {
                OK {assert_equal OK [$c -read]}
                closed {assert_closed $c}
                open {
                    $c -write [string repeat x 2000]
                    catch {$c -flush}
                    assert_equal PONG [r ping]
                }
            }
            $c -close
        }
        r config set client-query-buffer-limit 1gb
    }

    test "the complete arguments of a request may be longer than client-query-buffer-limit" {
        r config set client-query-buffer-limit 1mb
        set c [new_client]
        assert_equal OK [$c mset a [string repeat a 600000] b [string repeat b 600000]]
        assert_equal 1200 [$c rpush long-list {*}[lrepeat 1200 [string repeat e 1000]]]
        assert_equal 300 [$c rpush long-list2 {*}[lrepeat 300 [string repeat e 10000]]]
        r config set client-query-buffer-limit 1gb
    }

    test "multi-mem counts the bytes of arguments and 24 for each command" {
        set c [new_client]
        set id [$c client id]
        $c multi
        assert_equal 0 [field_of $id multi-mem]
        $c set k 1
        assert_equal 29 [field_of $id multi-mem]
        $c set k [string repeat x 40000]
        assert_equal [expr {29 + 40004 + 24}] [field_of $id multi-mem]
        $c exec
        assert_equal 0 [field_of $id multi-mem]
    }

    test "commands that a transaction has queued count against client-query-buffer-limit" {
        set before [info_field stats client_query_buffer_limit_disconnections]
        r config set client-query-buffer-limit 1mb
        set c [new_client]
        assert_equal OK [$c multi]
        assert_equal QUEUED [$c set a [string repeat x 600000]]
        $c -send set b [string repeat x 600000]
        wait_for_condition 5000 {[info_field stats client_query_buffer_limit_disconnections] == $before + 1}
        set c [new_client]
        $c multi
        assert_equal QUEUED [$c set a [string repeat x 600000]]
        assert_equal OK [$c exec]
        $c multi
        assert_equal QUEUED [$c set a [string repeat x 600000]]
        assert_equal OK [$c exec]
        r config set client-query-buffer-limit 1gb
    }

    test "client-output-buffer-limit may be given no class" {
        assert_equal OK [r config set client-output-buffer-limit ""]
    }

    test "the reply buffer shrinks while it is not used and grows while it is full" -tags {tcp-only} {
        r config set min-string-size-avoid-copy-reply 0
        r set value [string repeat x 32768]
        set c [new_client]
        set id [$c client id]
        assert_equal 16384 [field_of $id rbs]
        r config resetstat
        r debug replybuffer peak-reset-time 100
        wait_for_condition 5000 {[field_of $id rbs] < 2046}
        assert_morethan [info_field stats reply_buffer_shrinks] 0
        assert_range [field_of $id rbs] 1024 2045
        assert_equal OK [r debug replybuffer resizing 0]
        assert_equal OK [r debug replybuffer resizing 1]
        r debug replybuffer peak-reset-time never
        wait_for_condition 5000 {[string length [$c get value]] && [field_of $id rbs] == 16384}
        assert_morethan [info_field stats reply_buffer_expands] 2
        r debug replybuffer peak-reset-time reset
        assert_error "ERR value is not an integer or out of range" {r debug replybuffer peak-reset-time x}
    }

    test "the query buffer is allocated for a part of a request, and freed when it is idle" -tags {tcp-only} {
        set c [new_client]
        set id [$c client id]
        assert_equal {0 0} [list [field_of $id qbuf] [field_of $id qbuf-free]]
        $c -write "*3\r\n\$3\r\nset\r\n\$1\r\na\r\n\$10\r\n12345"
        wait_for_condition 5000 {[field_of $id qbuf] == 5}
        assert_equal 4 [field_of $id argv-mem]
        assert_range [field_of $id qbuf-free] 10000 32768
        wait_for_condition 10000 {[field_of $id qbuf-free] < 1024}
        assert_equal 5 [field_of $id qbuf]
        $c -write "67890\r\n"
        assert_equal OK [$c -read]
        assert_equal 1234567890 [r get a]
        wait_for_condition 10000 {[field_of $id qbuf-free] == 0}
    }

    test "a large request leaves a query buffer of its size until the cron finds it unused" -tags {tcp-only} {
        set c [new_client]
        set id [$c client id]
        r debug pause-cron 1
        foreach size {40000 100000} {
            $c set large [string repeat x $size]
            assert_range [field_of $id qbuf-free] $size [expr {2 * $size}]
            $c ping
            assert_range [field_of $id qbuf-free] $size [expr {2 * $size}]
        }
        r debug pause-cron 0
        wait_for_condition 10000 {[$c ping] eq {PONG} && [set free [field_of $id qbuf-free]] <= 32768}
        assert_morethan $free 0
        wait_for_condition 10000 {[field_of $id qbuf-free] < 1024}
        $c set large [string repeat x 10000000]
        assert_lessthan [field_of $id qbuf-free] 20000000
        wait_for_condition 10000 {[field_of $id qbuf-free] < 1024}
    }

    test "an announced argument that does not arrive takes no memory after a while" -tags {tcp-only} {
        set c [new_client]
        set id [$c client id]
        $c -write "*3\r\n\$3\r\nset\r\n\$1\r\na\r\n\$1000000\r\n12345"
        wait_for_condition 5000 {[field_of $id qbuf] == 5}
        assert_equal [expr {1000000 - 5 + 2}] [field_of $id qbuf-free]
        wait_for_condition 10000 {[field_of $id qbuf-free] < 1024}
        assert_equal 5 [field_of $id qbuf]
        assert_morethan [field_of $id idle] 1
        assert_lessthan [field_of $id tot-mem] 100000
        $c -write "67890"
        wait_for_condition 5000 {[field_of $id qbuf] == 10}
        assert_equal 0 [field_of $id idle]
        assert_morethan [field_of $id qbuf-free] 990000
        wait_for_condition 10000 {[field_of $id qbuf-free] < 1024}
        $c -write "[string repeat x 999990]\r\n"
        assert_equal OK [$c -read]
        assert_equal 1234567890[string repeat x 999990] [r get a]
    }

    test "a large argument is in the query buffer until its line end has come" -tags {tcp-only} {
        set c [new_client]
        set id [$c client id]
        $c -write "*2\r\n\$100000\r\n[string repeat v 100000]"
        wait_for_condition 5000 {[field_of $id qbuf] == 100000}
        assert_equal 0 [field_of $id argv-mem]
        $c -write "\r\n"
        wait_for_condition 5000 {[field_of $id argv-mem] == 100000}
        assert_equal 0 [field_of $id qbuf]
    }

    test "a blocked client shows the arguments of its command" {
        set c [new_client]
        set id [$c client id]
        $c -send blpop missing 0
        wait_for_condition 5000 {[field_of $id argv-mem] == 13}
        r rpush missing x
        assert_equal {missing x} [$c -read]
        assert_equal 0 [field_of $id argv-mem]
    }

    test "a list of ids may be empty after other filters, and then matches no client" {
        assert_equal 0 [r client kill id 999999 id]
        assert_equal "" [r client list type normal id]
        assert_error "ERR syntax error" {r client list id}
    }
}

start_server {overrides {io-threads -} tags {limits}} {
    test "CLIENT LIST shows no client above maxmemory-clients" -tags {tcp-only} {
        r setrange key 1000000 x
        r config set maxmemory-clients 3mb min-string-size-avoid-copy-reply 0
        set c [new_client]
        set id [$c client id]
        # Stopped meanwhile, the server finds both requests in the same turn.
        exec kill -STOP [srv pid]
        $c -write [string repeat [resp_command get key] 10]
        r -write [resp_command client list id $id]
        exec kill -CONT [srv pid]
        assert_equal "" [r -read]
        assert_closed $c
        r config set maxmemory-clients 0
        r del key
    }

    test "messages about evicted keys do not evict more keys" -tags {tcp-only} {
        r config set maxmemory-policy allkeys-lru maxmemory-eviction-tenacity 100 latency-tracking no
        set clients {}
        for {set i 0} {$i < 10} {incr i} {
            set c [new_client]
            lappend clients $c
            $c hello 3
            $c client tracking on
        }
        for {set i 0} {$i < 300} {incr i} {
            set key $i[string repeat k 1000]
            r set $key x
            foreach c $clients {$c get $key}
        }
        set used [info_field memory used_memory]
        r config set maxmemory [expr {$used - 40000}]
        r ping
        assert_range [r dbsize] 200 299
        r config set maxmemory 0
    }
}
