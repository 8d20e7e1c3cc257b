# Faults of making and ending connections, and resources that run out: the server refuses new clients with a reason,
# connected ones notice nothing, and it serves new ones when resources are free again. On the software device only.
# seconds: 8

proc refused {} {info_field rdma rdma_refused_connections}
# Is a newcomer served? One connection that asks once.
proc newcomer {} {answers [srv port]}

start_server [with_faults {
    reject request:reject drop request:drop accept-fail accept:fail=EINVAL accept-drop accept:drop
    no-queue-pair create_qp:fail=ENOMEM no-memory reg_mr:fail=ENOMEM later\
        event:delay=150000,op=RDMA_CM_EVENT_ESTABLISHED
    late-request event:delay=150000,op=RDMA_CM_EVENT_CONNECT_REQUEST late-end\
        event:delay=150000,op=RDMA_CM_EVENT_DISCONNECTED
    no-modify modify_qp:fail=EIO,count=1
} env SOFTRDMA_CM_TIMEOUT_MS=400 overrides {rdma-connect-timeout-ms 400 loglevel verbose}] {
    foreach {what rule reason} {
        "the network rejects" reject ""
        "accepting fails" accept-fail "Invalid argument"
        "no queue pair can be made" no-queue-pair "cannot create a queue pair (softrdma0): Cannot allocate memory"
        "no memory can be registered" no-memory "cannot register memory (softrdma0): Cannot allocate memory"
    } {
        test "connections that come while $what are refused, later ones are served" -needs $::on_software_device {
            unharmed {
                set from [log_size]
                # Buffers that are ready need no registration.
                [new_client -tcp 1] debug rdma trim
                fault $rule
                assert_equal 0 [newcomer]
                fault_end $rule
                if {$reason ne ""} {
                    wait_for_log "RDMA: refused a connection from 127.0.0.1:" $from
                    wait_for_log $reason $from
                    wait_for_log "(softrdma0, GID ::ffff:127.0.0.1)" $from
                }
                assert_equal 1 [newcomer]
            }
        }
    }

    foreach {what rule} {
        "a request that is lost" drop
        "an answer that is lost" accept-drop
    } {
        test "$what ends in the client's timeout" -needs $::on_software_device {
            unharmed {
                fault $rule
                set got [run env SOFTRDMA_CM_TIMEOUT_MS=300 {*}$::opt(launcher) [tool valkey-cli] --rdma \
                    -h $::opt(rdma_host) -p [srv port] -t 1 ping]
                fault_end $rule
                assert_equal 1 [dict get $got code]
                assert_match "*Could not connect*" [dict get $got out][dict get $got err]
                assert_equal 1 [newcomer]
            }
        }
    }

    test "a client that gives up before the server has its request is not refused" -needs $::on_software_device {
        unharmed {
            set from [log_size]
            set refused [refused]
            set failed [info_field rdma rdma_failed_connections]
            fault late-request
            set got [run env SOFTRDMA_CM_TIMEOUT_MS=50 {*}$::opt(launcher) [tool valkey-cli] --rdma \
                -h $::opt(rdma_host) -p [srv port] -t 1 ping]
            fault_end late-request
            assert_equal 1 [dict get $got code]
            # A client that has not exited yet, as with a sanitizer, rejects the server's answer instead.
            wait_for_condition 5000 {[info_field rdma rdma_failed_connections] == $failed + 1}
            assert {[log_has "gave up while it was connecting" $from] ||
                [log_has "did not complete the connection: RDMA_CM_EVENT_REJECTED" $from]}
            assert_equal $refused [refused]
            assert {![log_has "refused a connection" $from]}
            assert_equal 1 [newcomer]
        }
    }

    foreach {what rule} {
        "the confirmation comes late, behind the first bytes" later
        "the request comes late" late-request
        "the end comes late" late-end
    } {
        test "a connection whose events are slow: $what" -needs $::on_software_device {
            unharmed {
                fault $rule
                assert_equal 1 [newcomer]
                set c [new_client]
                assert_equal first [$c echo first]
                $c -close
                fault_end $rule
            }
        }
    }
}

# Connections end, listeners begin anew.
proc pull_out {} {
    fault removed
    # The connection whose event sets it off is one of those that go.
    catch {[new_client] ping}
    fault_end removed
}
proc tcp_field {name} {dict get [info_dict [$::resources_client info rdma]] $name}
start_server [with_faults {
    removed event:remove,op=RDMA_CM_EVENT_ESTABLISHED,count=1
} overrides {loglevel verbose}] {
    test "the removal of the device ends its connections and is logged" -needs $::on_software_device {
        set t [new_client -tcp 1]
        set ::resources_client $t
        r ping
        set before [held]
        set from [log_size]
        set others [list [new_client] [new_client]]
        foreach c $others {$c ping}
        pull_out
        wait_for_log "RDMA: the device softrdma0, GID ::ffff:127.0.0.1 was removed" $from
        foreach c $others {assert_closed $c}
        assert_morethan [tcp_field rdma_errors_device] 0
        assert_equal PONG [$t ping]
        # The old context has gone with everything of it; the new one holds what the old one held.
        set c [new_client]
        $c ping
        wait_held [lsearch -all -inline -not -regexp [dict keys $before] {^(completion-queues|fds)$}] $before \
            $::held_descriptors
    }
}

start_server [with_faults {
    removed event:remove,op=RDMA_CM_EVENT_ESTABLISHED,count=1 away bind:fail=ENODEV
} overrides {loglevel verbose}] {
    test "a listener whose device was removed listens again at once where the address is still there" \
        -needs $::on_software_device {
        set ::resources_client [new_client -tcp 1]
        set from [log_size]
        pull_out
        wait_for_log "RDMA: listening on 127.0.0.1:[srv port] (softrdma0" $from
        assert_equal 1 [newcomer]
        assert_equal {1 0} [list [tcp_field rdma_listeners] [tcp_field rdma_listeners_waiting]]
    }
}
start_server [with_faults {
    removed event:remove,op=RDMA_CM_EVENT_ESTABLISHED,count=2 away bind:fail=ENODEV
} overrides {loglevel verbose}] {
    test "a listener whose device is away tries until it is back" -needs $::on_software_device {
        set ::resources_client [new_client -tcp 1]
        set from [log_size]
        fault away
        pull_out
        wait_for_log "RDMA: cannot listen on 127.0.0.1:[srv\
            port] (softrdma0): No such device (errno 19); trying again every second" $from
        assert_equal {1 1} [list [tcp_field rdma_listeners] [tcp_field rdma_listeners_waiting]]
        assert_equal 0 [newcomer]
        assert_equal PONG [$::resources_client ping]
        set from [log_size]
        fault_end away
        wait_for_log "RDMA: listening on 127.0.0.1:[srv port] (softrdma0" $from
        assert_equal 1 [newcomer]
        assert_equal {1 0} [list [tcp_field rdma_listeners] [tcp_field rdma_listeners_waiting]]
        assert_equal 1 [regexp -all {trying again every second} [log_text]]
    }

    test "while a listener waits its address can be changed" -needs $::on_software_device {
        set ::resources_client [new_client -tcp 1]
        fault away
        pull_out
        set port [free_port]
        $::resources_client config set rdma-bind ""
        assert_equal {0 0} [list [tcp_field rdma_listeners] [tcp_field rdma_listeners_waiting]]
        fault_end away
        $::resources_client config set rdma-port $port rdma-bind 127.0.0.1
        assert_equal 1 [answers $port]
    }
}

start_server [with_faults {absent bind:fail=ENODEV} no_rdma 1] {
    test "an address that may be missing is listened on when its device appears" -needs $::on_software_device {
        set port [free_port]
        set from [log_size]
        fault absent
        r config set rdma-port $port rdma-bind "-$::opt(rdma_host)"
        wait_for_log "No such device (errno 19); trying again every second" $from
        assert_equal 0 [answers $port]
        fault_end absent
        wait_for_log "RDMA: listening on $::opt(rdma_host):$port" $from
        assert_equal 1 [answers $port]
    }
}

foreach {what settings} {
    "queue pairs" SOFTRDMA_MAX_QP=6
    "lockable memory" SOFTRDMA_MEMLOCK=2800000
} {
    start_server [list env $settings overrides {rdma-rx-initial-size 131072 rdma-rx-size 131072}] {
        test "connections beyond the last of the $what are refused; when some go, others have them" \
            -needs $::without_threads {
            unharmed {
                set refused [refused]
                for {set round 0} {$round < 3} {incr round} {
                    set clients {}
                    set served 0
                    for {set i 0} {$i < 8} {incr i} {
                        lappend clients [set c [new_client]]
                        if {![catch {$c ping}]} {incr served}
                    }
                    assert_range $served 2 6
                    assert_equal PONG [r ping]
                    foreach c $clients {$c -close}
                    wait_for_condition 5000 {[info_field rdma rdma_connections] <= 2}
                }
                assert_morethan [refused] $refused
                assert_equal 1 [newcomer]
            }
        }
    }
}

# --- A server that does not get what it needs ------------------------------------

foreach {what rule} {
    "no event channel" create_event_channel:fail=EMFILE
    "no identifier" create_id:fail=ENOMEM
    "no address" bind:fail=EADDRINUSE
    "no listening" listen:fail=ENOSPC
} {
    test "a server that cannot listen says why and ends: $what" -needs $::on_software_device {
        set port [free_port]
        set got [run env SOFTRDMA_FAULTS=$rule {*}[server_command] --port $port --bind 127.0.0.1 --save "" \
            --dir $::unit_dir \
            --rdma-bind $::opt(rdma_host) --rdma-port $port]
        assert_equal 1 [dict get $got code]
        set text [dict get $got out][dict get $got err]
        regexp {fail=(\w+)} $rule -> errno
        set reason [dict get {EMFILE "Too many open files" ENOMEM "Cannot allocate memory" EADDRINUSE\
            "Address already in use" ENOSPC "No space left on device"} $errno]
        assert_equal 1 [regexp -all -- \
            "RDMA: cannot listen on $::opt(rdma_host):$port (\[^\\n\]*): (\[^\\n\]*)$reason" $text]
        assert_equal 1 [regexp -all -- "cannot listen" $text]
    }
}

start_server {} {
    test "the log says why an iWARP device is not used: it lacks WRITE with immediate" -needs $::on_software_device {
        set port [free_port]
        set got [run env SOFTRDMA_IWARP=1 {*}[server_command] --port $port --bind 127.0.0.1 --save "" \
            --dir $::unit_dir \
            --rdma-bind $::opt(rdma_host) --rdma-port $port]
        assert_equal 1 [dict get $got code]
        assert_match "*RDMA: cannot listen on $::opt(rdma_host):$port (softrdma0): softrdma0 is an iWARP device, which\
            has no RDMA WRITE with immediate data (errno 95)*" \
            [dict get $got out][dict get $got err]
        set got [run env SOFTRDMA_IWARP=1 {*}$::opt(launcher) [tool valkey-cli] --rdma -h $::opt(rdma_host) \
            -p [srv port] ping]
        assert_equal 1 [dict get $got code]
        assert_match "*softrdma0 is an iWARP device*" [dict get $got out][dict get $got err]
    }
}

foreach {what rule reason} {
    "no protection domain" alloc_pd:fail=ENOMEM
        "cannot allocate a protection domain (softrdma0): Cannot allocate memory"
    "no completion channel" create_channel:fail=EMFILE\
        "cannot create a completion channel (softrdma0): Too many open files"
    "no completion queue" create_cq:fail=ENOMEM "cannot create a completion queue (softrdma0): Cannot allocate memory"
} {
    start_server [with_faults [list fail $rule] no_rdma 0] {
        test "a device of which nothing can be had refuses, and is tried again: $what" -needs $::on_software_device {
            set t [new_client -tcp 1]
            set from [log_size]
            fault fail
            assert_equal 0 [answers [srv port]]
            fault_end fail
            wait_for_log $reason $from
            assert_equal PONG [$t ping]
            assert_equal 1 [answers [srv port]]
        }
    }
}

start_server {env {SOFTRDMA_FAULTS=create_srq:fail=ENOMEM}} {
    test "without a shared receive queue each connection has its own" -needs $::on_software_device {
        unharmed {
            set clients {}
            for {set i 0} {$i < 5} {incr i} {lappend clients [new_client]}
            foreach c $clients {$c -send echo [string repeat $c 1000]}
            foreach c $clients {assert_equal [string repeat $c 1000] [$c -read]}
        }
    }
}

start_server [with_faults {no-more-queues create_cq:fail=ENOMEM} env SOFTRDMA_MAX_CQE=4300] {
    test "when no further completion queue can be had, connections beyond the first one's capacity are refused" \
        -needs $::without_threads {
        unharmed {
            fault no-more-queues
            # A capacity of 4300, of which the shared receives take half; each connection commits its send queue of 64.
            lassign [open_beside {*}$::opt(launcher) [tool rdma-hostile] --host $::opt(rdma_host) --port [srv port] \
                --hold idle --cases 60] pid chan
            wait_for_condition 10000 {![process_alive $pid] || [refused] > 0}
            assert_morethan [refused] 0
            kill_process KILL $pid
            fault_end no-more-queues
            wait_for_condition 5000 {[info_field rdma rdma_connections] <= 2}
            assert_equal 1 [newcomer]
        }
    }
}
