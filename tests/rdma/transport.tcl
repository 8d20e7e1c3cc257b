# The RDMA transport with lawful peers: sizes, boundaries, pipelines, many connections.
# Clients of these suites speak RDMA through the proxy; -tcp 1 makes one that does not.
# seconds: 24

# A request of ECHO that is exactly that many bytes on the wire. Not every length can be had that way; empty lines
# in front, which mean nothing, fill the gap.
proc echo_request {bytes payload} {
    upvar 1 $payload sent
    set n [expr {$bytes - 50}]
    while {1} {
        set sent [numbered $n $bytes]
        set request [resp_command echo $sent]
        set d [expr {$bytes - [string length $request]}]
        if {$d >= 0 && $d < 30} {return [string repeat \n $d]$request}
        incr n [expr {$d > 0 ? $d : -1}]
        if {$n < 0} {error "no request of $bytes bytes"}
    }
}

# Sends the requests at once, and compares the replies.
proc check_echoes {client sizes} {
    set out ""
    set payloads [lmap size $sizes {append out [echo_request $size payload]; set payload}]
    $client -write $out
    foreach payload $payloads {assert_equal $payload [$client -read]}
}

start_server {} {
    test "connect and ping over RDMA, TCP on the same port number beside it" {
        assert_equal PONG [r ping]
        set t [new_client -tcp 1]
        assert_equal PONG [$t ping]
        $t set from tcp
        assert_equal tcp [r get from]
        r set from rdma
        assert_equal rdma [$t get from]
    }

    test "CLIENT LIST and INFO show the transport" {
        set t [new_client -tcp 1]
        assert_match "*rdma*" [r client info]
        assert_not_match "*rdma*" [$t client info]
        assert_match "*rdma*" [r client list]
        assert_match "name=rdma*,bind=*,port=[srv port]" [info_field server listener3]
        assert_match "name=tcp,*port=[srv port]" [info_field server listener0]
    }

    test "INFO rdma counts" {
        set before [info_dict [r info rdma]]
        assert {[dict size $before] > 5}
        for {set i 0} {$i < 100} {incr i} {r ping}
        set after [info_dict [r info rdma]]
        set grown 0
        dict for {k v} $after {
            if {[string is wideinteger -strict $v] && [dict exists $before $k] && $v > [dict get $before $k]} {
                incr grown
            }
        }
        assert_morethan $grown 3
    }

    test "RESP3 over RDMA" {
        set c [new_client -resp 3]
        assert_reply $c _ get none
        assert_reply $c {% $maxclients $10000} config get maxclients
    }

    test "values of every size around powers of two" {
        foreach base {1 64 220 256 1024 4096 16384 65536 131072 262144 1048576} {
            foreach d {-2 -1 0 1 2} {
                set n [expr {$base + $d}]
                if {$n < 0} continue
                set v [string repeat [format %c [expr {97 + $n % 26}]] $n]
                r set v $v
                if {[r get v] ne $v} {fail "a value of $n bytes did not come back"}
            }
        }
    }

    test "replies larger than the peer's receive buffer" -timeout 90 {
        foreach size [scaled_sizes {1048575 1048576 1048577 2097152 5000000 20000000}] {
            set v [string repeat 0123456789 [expr {$size / 10 + 1}]]
            set v [string range $v 0 $size-1]
            r set v $v
            if {[r get v] ne $v} {fail "a value of $size bytes did not come back"}
        }
        set c [new_client]
        set n [scaled 5 2]
        for {set i 0} {$i < $n} {incr i} {$c -send get v}
        $c -send ping
        for {set i 0} {$i < $n} {incr i} {assert_equal $v [$c -read]}
        assert_equal PONG [$c -read]
        r del v
    }

    test "pipelines of many small commands" {
        foreach n [list 10 [scaled 1000 200] [scaled 50000 1000]] {
            set c [new_client]
            set out ""
            for {set i 0} {$i < $n} {incr i} {append out "*2\r\n\$4\r\nECHO\r\n\$6\r\n[format %06d $i]\r\n"}
            $c -write $out
            for {set i 0} {$i < $n} {incr i} {
                if {[set got [$c -read]] ne [format %06d $i]} {fail "expected $i, got $got"}
            }
        }
    }

    test "a pipeline of big and small commands in both directions" {
        set c [new_client]
        set sizes {}
        for {set i 0} {$i < [scaled 300 40]} {incr i} {lappend sizes [expr {50 + [randint [pick 100 1000 100000]]}]}
        check_echoes $c $sizes
    }

    test "a client that reads late gets everything" {
        r set big [set big [numbered 3000000]]
        set c [new_client]
        set n [scaled 10 2]
        for {set i 0} {$i < $n} {incr i} {$c -send get big}
        for {set i 0} {$i < 50} {incr i} {r ping}
        for {set i 0} {$i < $n} {incr i} {assert_equal $big [$c -read]}
        r del big
    }

    test "100,000 random keys and values are read back" -timeout 180 {
        r flushall
        set c [new_client]
        set count [scaled 100000 4000]
        expr {srand(4711)}
        set batch 2000
        for {set i 0} {$i < $count} {incr i $batch} {
            set out ""
            for {set j $i} {$j < $i + $batch} {incr j} {
                set v [string repeat [format %06d [expr {int(rand() * 1000000)}]] [expr {1 + int(rand() * 20)}]]
                set want($j) $v
                append out "*3\r\n\$3\r\nSET\r\n\$[string length key:$j]\r\nkey:$j\r\n\$[string length $v]\r\n$v\r\n"
            }
            $c -write $out
            for {set j 0} {$j < $batch} {incr j} {$c -read}
        }
        assert_equal $count [r dbsize]
        for {set i 0} {$i < $count} {incr i $batch} {
            set out ""
            for {set j $i} {$j < $i + $batch} {incr j} {
                append out "*2\r\n\$3\r\nGET\r\n\$[string length key:$j]\r\nkey:$j\r\n"
            }
            $c -write $out
            for {set j $i} {$j < $i + $batch} {incr j} {
                if {[$c -read] ne $want($j)} {fail "key:$j has another value"}
            }
        }
        expr {srand($::opt(seed))}
        r flushall
    }

    test "500 connections" -timeout 120 {
        set clients {}
        set n [scaled 500 20]
        for {set i 0} {$i < $n} {incr i} {lappend clients [new_client]}
        foreach round {1 2 3} {
            foreach c $clients {$c -send echo $c}
            foreach c $clients {assert_equal $c [$c -read]}
        }
        assert_morethan [info_field clients connected_clients] $n
        foreach c $clients {$c -close}
        wait_for_condition 15000 {[info_field clients connected_clients] == 1}
    }

    test "500 connections come and go one after the other" -timeout 120 {
        for {set i 0} {$i < [scaled 500 20]} {incr i} {
            set c [new_client]
            assert_equal $i [$c echo $i]
            $c -close
        }
        wait_for_condition 15000 {[info_field clients connected_clients] == 1}
    }

    test "what connections hold is given back" {
        set clients {}
        set n [scaled 50 10]
        for {set i 0} {$i < $n} {incr i} {lappend clients [new_client]; [lindex $clients end] ping}
        foreach c $clients {$c -close}
        wait_for_condition 15000 {[info_field clients connected_clients] == 1}
        set before [process_memory [srv pid]]
        for {set round 0} {$round < [scaled 4 2]} {incr round} {
            set clients {}
            for {set i 0} {$i < $n} {incr i} {
                lappend clients [new_client]
                [lindex $clients end] echo [string repeat x 100000]
            }
            foreach c $clients {$c -close}
            wait_for_condition 15000 {[info_field clients connected_clients] == 1}
        }
        # KiB. What is kept for the next ones becomes less with time.
        wait_for_condition 20000 {[process_memory [srv pid]] - $before < 40000}
    }
}

start_server {overrides {rdma-rx-size 65536 rdma-rx-initial-size 65536}} {
    test "requests larger than rdma-rx-size" {
        foreach size [scaled_sizes {65537 100000 131072 200000 1000000 10000000}] {
            set v [string repeat y $size]
            if {[r echo $v] ne $v} {fail "an ECHO of $size bytes did not come back"}
            r set v $v
            if {[r get v] ne $v} {fail "a value of $size bytes did not come back"}
        }
    }

    test "requests that exactly fill the receive buffer" {
        foreach times {1 2 3} {
            set c [new_client]
            check_echoes $c [lrepeat $times 65536]
            assert_equal PONG [$c ping]
            $c -close
        }
    }

    test "every size of a request around the end of the receive buffer" -timeout 120 {
        for {set d -40} {$d <= 40} {incr d [expr {$::test_scale > 1 ? 8 : 1}]} {
            set c [new_client]
            check_echoes $c [list [expr {65536 + $d}] 50 [expr {65536 - $d - 50}] 60]
            assert_equal PONG [$c ping]
            $c -close
        }
    }

    test "a small request at every offset before the end of the receive buffer" -timeout 120 {
        for {set d 0} {$d <= 60} {incr d [expr {$::test_scale > 1 ? 7 : 1}]} {
            set c [new_client]
            check_echoes $c [list [expr {65536 - $d}] 50 50]
            $c -close
        }
    }

    test "the buffer wraps many times under a pipeline" {
        set c [new_client]
        for {set round 0} {$round < [scaled 20 3]} {incr round} {
            set sizes {}
            for {set i 0} {$i < 40} {incr i} {lappend sizes [expr {45 + [randint 20000]}]}
            check_echoes $c $sizes
        }
    }

    test "many clients with small buffers at the same time" {
        set clients {}
        for {set i 0} {$i < [scaled 40 8]} {incr i} {lappend clients [new_client]}
        for {set round 0} {$round < [scaled 5 2]} {incr round} {
            foreach c $clients {
                set sent($c) [numbered [expr {100 + [randint 150000]}] [randint 9973]]
                $c -send echo $sent($c)
            }
            foreach c $clients {assert_equal $sent($c) [$c -read]}
        }
    }
}

if {[tool tls-proxy] ne "" && [tool openssl] ne ""} {
    set crt [certificates]
    start_server [list overrides \
        [list tls-port [free_port] tls-cert-file $crt/server.crt tls-key-file $crt/server.key tls-ca-cert-file \
        $crt/ca.crt]] {
        test "a server with TLS and RDMA says that RDMA is not encrypted" \
            -needs {clear "with --tls RDMA is encrypted"} {
            assert_equal PONG [r ping]
            assert_match "*# WARNING: TLS is on, but RDMA connections are not encrypted: *rdma-port [config_get\
                rdma-port]*" [log_text]
        }
    }
}

foreach rx [scaled_sizes {131072 1048576 16777216}] {
    start_server [list overrides [list rdma-rx-size $rx rdma-rx-initial-size $rx]] {
        test "rdma-rx-size $rx serves values of all sizes" {
            foreach size [list 10 65536 [expr {$rx - 1}] $rx [expr {$rx + 1}] [expr {2 * $rx + 7}]] {
                set v [string repeat q $size]
                if {[r echo $v] ne $v} {fail "an ECHO of $size bytes did not come back"}
            }
            assert_equal $rx [config_get rdma-rx-size]
        }
    }
}

foreach {what settings} {
    "without inline sends" SOFTRDMA_MAX_INLINE=0
    "with one scatter element a request" SOFTRDMA_MAX_SGE=1
    "without shared receive queues" SOFTRDMA_MAX_SRQ=0
} {
    start_server [list env $settings] {
        test "on a device $what everything arrives whole and in order" -needs {device software} {
            set sizes {1 60 219 221 4000 16384 65537 300000 2000000}
            foreach size $sizes {
                r set k$size [numbered $size $size]
                assert_equal [numbered $size $size] [r get k$size]
            }
            # A pipeline that is larger than the buffers, with replies of every size between one another.
            set out ""
            set replies {}
            for {set i 0} {$i < 2000} {incr i} {
                set size [lindex $sizes [expr {$i % 5}]]
                append out [resp_command get k$size] [resp_command echo $i]
                lappend replies [numbered $size $size] $i
            }
            set c [new_client]
            $c -write $out
            foreach value $replies {assert_equal $value [$c -read]}
        }
    }
}
