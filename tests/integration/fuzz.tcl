# The server still works after random and corrupt requests. seconds: 7

# One stream of bytes: random bytes, corrupt requests, or requests in random pieces.
proc random_stream {} {
    switch [randint 6] {
        0 {return [randstring 1 200 binary]}
        1 {return [randstring 1 200 alpha]\r\n}
        2 {
            # Tokens of the protocol in random order.
            set out ""
            set n [expr {1 + [randint 30]}]
            for {set i 0} {$i < $n} {incr i} {
                append out [pick * \$ : + - \r \n \r\n \r\n 0 1 2 -1 10 100 1000 99999999999999999999 PING GET SET a \
                    " " \" ' \\x \x00 \xff *3\r\n \$3\r\nGET\r\n]
            }
            return $out
        }
        3 {
            # A valid pipeline with some bytes changed.
            set out ""
            set n [expr {1 + [randint 5]}]
            for {set i 0} {$i < $n} {incr i} {append out [random_request]}
            set n [expr {1 + [randint 4]}]
            for {set i 0} {$i < $n} {incr i} {
                set at [randint [string length $out]]
                switch [randint 3] {
                    0 {set out [string replace $out $at $at [format %c [randint 256]]]}
                    1 {set out [string replace $out $at $at]}
                    2 {set out [string range $out 0 $at][format %c [randint 256]][string range $out $at+1 end]}
                }
            }
            return $out
        }
        4 {
            # A valid pipeline, truncated.
            set out [random_request][random_request]
            return [string range $out 0 [randint [string length $out]]]
        }
        5 {
            # Requests with wrong lengths.
            return "*[pick 1 2 3 1000 1048576 2147483647]\r\n\$[pick 0 1 3 4 5 100 536870912]\r\n[pick GET SET\
                PING]\r\n[randstring 0 50 binary]"
        }
    }
}
proc random_request {} {
    resp_command {*}[switch [randint 8] {
        0 {list get [randstring 0 10 alpha]}
        1 {list set [randstring 0 10 alpha] [randstring 0 50 binary]}
        2 {list [randstring 1 10 alpha] [randstring 0 10 binary]}
        3 {list mget a b c [randstring 0 10 binary]}
        4 {list config get [randstring 0 10 alpha]}
        5 {list setrange k [randint 100] [randstring 0 20 binary]}
        6 {list scan [randint 100000] match [randstring 0 20 alpha] count [randint 100]}
        7 {list hello [randint 5]}
    }]
}

start_server {overrides {proto-max-bulk-len 1048576 client-query-buffer-limit 4194304} tags {fuzz}} {
    # Over RDMA every stream needs a connection through the proxy, so fewer are sent.
    set streams [expr {$::opt(rdma) ? 1500 : 10000}]

    test "$streams random byte streams leave the server serving" -timeout 180 {
        puts "seed $::opt(seed)"
        set open {}
        for {set i 0} {$i < $streams} {incr i} {
            set c [new_client]
            if {[catch {
                $c -write [random_stream]
                if {![randint 4]} {$c -write [random_stream]}
            }]} {}
            lappend open $c
            if {[llength $open] >= 40} {
                # Some connections are closed without reading the replies, some after reading, some immediately.
                r ping
                foreach x $open {
                    if {[randint 2]} {catch {$x -available}}
                    $x -close
                }
                set open {}
                assert_equal PONG [r ping]
            }
        }
        foreach x $open {$x -close}
        assert_equal PONG [r ping]
        wait_for_condition 10000 {[info_field clients connected_clients] <= 2}
        assert_equal OK [r set after fuzz]
        assert_equal fuzz [r get after]
    }

    test "random bytes behind a HELLO 3 leave the server serving" {
        for {set i 0} {$i < 300} {incr i} {
            set c [new_client]
            catch {
                $c hello 3
                $c -write [random_stream]
                $c -flush
                $c -available
            }
            $c -close
        }
        assert_equal PONG [r ping]
    }

    test "memory does not grow with refused requests" {
        r flushall
        set before [info_field memory used_memory]
        for {set i 0} {$i < 500} {incr i} {
            set c [new_client]
            $c -write "*1048576\r\n\$1048576\r\nabc"
            $c -close
        }
        wait_for_condition 10000 {[info_field memory used_memory] < $before + 3000000}
    }
}

start_server {overrides {requirepass x proto-max-bulk-len 1048576} auth x tags {fuzz}} {
    test "random byte streams without authentication leave the server serving" {
        for {set i 0} {$i < ($::opt(rdma) ? 200 : 1000)} {incr i} {
            set c [new_client]
            catch {$c -write [random_stream]; $c -flush}
            $c -close
        }
        assert_equal PONG [r ping]
        wait_for_condition 5000 {[info_field clients connected_clients] <= 2}
    }
}

start_server {tags {fuzz}} {
    test "random commands with random arguments leave the server serving" -timeout 120 {
        # Excluded: commands that would end, block or slow the server, close this connection, or reply several times.
        set names {}
        foreach info [r command] {
            lassign $info name arity flags
            if {$name in {shutdown debug quit reset monitor psync sync replconf replicaof slaveof subscribe\
                psubscribe ssubscribe
                unsubscribe punsubscribe sunsubscribe client
                config failover bgsave save bgrewriteaof flushall flushdb module acl script function pfselftest \
                    pfdebug auth hello select
                swapdb cluster wait waitaof latency memory lolwut xread xreadgroup restore restore-asking migrate eval \
                    eval_ro evalsha
                evalsha_ro fcall fcall_ro sort dump multi} || "blocking" in $flags} continue
            lappend names [list $name $arity]
        }
        set words {a b c key k1 k2 0 1 -1 2 10 100 3.5 abc EX PX NX XX GET MATCH COUNT WITHSCORES LIMIT inf -inf +\
            - * ( [ $ 5-1 LEFT RIGHT 9223372036854775807}
        for {set round 0} {$round < 100} {incr round} {
            set n 0
            for {set i 0} {$i < 100} {incr i} {
                lassign [lindex $names [randint [llength $names]]] name arity
                set args {}
                set k [expr {abs($arity) - 1 + ($arity < 0 ? [randint 5] : 0)}]
                for {set j 0} {$j < $k} {incr j} {
                    lappend args [expr {[randint 10] ? [lindex $words [randint [llength $words]]] :\
                        [randstring 0 30 binary]}]
                }
                r -send $name {*}$args
                incr n
            }
            while {$n} {r -readtyped; incr n -1}
        }
        assert_equal PONG [r ping]
    }
}
