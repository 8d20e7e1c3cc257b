# Faults of the data path: what is under way is lost, late, refused, or never taken. Each hits one connection; the
# others work on, and everything is given back. On the software device alone: nothing else can be made to fail like
# this. seconds: 17

# The victim's reply is one that the server sends while the rule is awake.
proc hit {name client} {fault $name [queue_pair_of $client]}
proc errors_of {kind} {info_field rdma rdma_errors_$kind}

set statuses {
    RETRY_EXC_ERR timeout RNR_RETRY_EXC_ERR rnr REM_ACCESS_ERR access REM_INV_REQ_ERR access
    LOC_PROT_ERR other GENERAL_ERR other
}
set rules {}
foreach {status kind} $statuses {lappend rules $status "send:error=$status"}

start_server [with_faults $rules overrides {loglevel verbose}] {
    foreach {status kind} $statuses {
        test "an error completion ends the connection it came for: $status" -needs $::on_software_device {
            set errors [errors_of $kind]
            unharmed {
                set c [new_client]
                set from [log_size]
                hit $status $c
                $c -send ping
                assert_closed $c
                fault_end $status
                wait_for_log "(softrdma0, GID ::ffff:127.0.0.1) failed: " $from
            }
            assert_equal [expr {$errors + 1}] [errors_of $kind]
        }
    }
}

start_server [with_faults {
    late send:delay=200000 mixed send:delay=100-3000,p=30,seed=5 lost send:drop slow complete:delay=5000
    rnr send:rnr=40 rnr-for-ever send:rnr poll poll:delay=3000,p=1,seed=3 post post_send:fail=EIO
} overrides {rdma-rx-size 65536}] {
    test "a delayed message holds up its own connection only" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            set d [new_client]
            set key [randstring 100 100 alpha]
            $d set between ""
            hit late $c
            $c -send echo $key
            # What others ask meanwhile is answered first.
            for {set i 0} {$i < 5} {incr i} {assert_equal PONG [$d ping]}
            assert_equal "" [$c -available]
            fault_end late
            assert_equal $key [$c -read]
        }
    }

    test "replies keep their order on each connection when messages are delayed at random" \
        -needs $::on_software_device {
        unharmed {
            set clients {}
            for {set i 0} {$i < 8} {incr i} {lappend clients [new_client]}
            fault mixed
            for {set n 0} {$n < 25} {incr n} {
                foreach c $clients {$c -send echo $c:$n}
            }
            foreach c $clients {
                for {set n 0} {$n < 25} {incr n} {assert_equal $c:$n [$c -read]}
            }
            fault_end mixed
        }
    }

    test "a lost message ends its connection when the retries are used up" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            set errors [errors_of timeout]
            hit lost $c
            $c -send ping
            assert_closed $c 10000
            fault_end lost
            assert_equal [expr {$errors + 1}] [errors_of timeout]
        }
    }

    test "late completions: a send queue that stays full sends on, whole and in order" -needs $::on_software_device {
        r set big [string repeat 0123456789 30000]
        unharmed {
            set c [new_client]
            hit slow $c
            for {set i 0} {$i < 6} {incr i} {$c -send get big; $c -send ping $i}
            for {set i 0} {$i < 6} {incr i} {
                assert {[$c -read] eq [string repeat 0123456789 30000]}
                assert_equal $i [$c -read]
            }
            fault_end slow
        }
    }

    test "a receiver that is not ready is waited for, and then served" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            hit rnr $c
            $c -send echo first
            $c -send echo second
            fault_end rnr
            assert_equal first [$c -read]
            assert_equal second [$c -read]
        }
    }

    test "a receiver that is never ready is killed like any client" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            set id [$c client id]
            hit rnr-for-ever $c
            for {set i 0} {$i < 100} {incr i} {$c -send echo [string repeat x 1000]}
            wait_for_condition 5000 {[info_field clients connected_clients] >= 3}
            assert_equal 1 [r client kill id $id]
            fault_end rnr-for-ever
            assert_closed $c
        }
    }

    test "completions that are found late are all found" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            fault poll
            for {set i 0} {$i < 40} {incr i} {assert_equal $i [$c echo $i]}
            fault_end poll
        }
    }

    test "a send queue that takes nothing ends its connection" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            hit post $c
            $c -send ping
            assert_closed $c
            fault_end post
        }
    }
}

start_server [with_faults {post-receives post_recv:fail=ENOMEM,count=6 sleep req_notify:fail=EINVAL,count=50}] {
    test "receives that could not be posted are posted later" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            fault post-receives
            for {set i 0} {$i < 50} {incr i} {assert_equal $i [$c echo $i]}
            fault_end post-receives
        }
    }

    test "a completion queue that cannot be armed is polled instead" -needs $::on_software_device {
        unharmed {
            set c [new_client]
            fault sleep
            for {set i 0} {$i < 20} {incr i} {assert_equal $i [$c echo $i]; after 1}
            fault_end sleep
        }
    }
}

# --- Peers ----------------------------------------------------------------------

start_server {overrides {rdma-connect-timeout-ms 300 loglevel verbose}} {
    foreach {what rule} {
        "in the middle of a message" payload:kill,nth=3
        "before a message" send:kill,nth=3
        "between a message and its completion" complete:kill,nth=3
        "in the middle of its connect" connect:kill
        "when it is accepted" establish:kill
        "in the middle of disconnecting" disconnect:kill
    } {
        test "a client that dies $what harms nobody" -needs $::on_software_device {
            unharmed {
                lassign [own_proxy -env SOFTRDMA_FAULTS=$rule] pid port
                set c [new_client -host 127.0.0.1 -port $port]
                if {[string match disconnect* $rule]} {
                    assert_equal PONG [$c ping]
                    $c -close
                } else {
                    for {set i 0} {$i < 60} {incr i} {catch {$c -send set victim:$i [string repeat v 3000]}}
                }
                wait_for_condition 5000 {![process_alive $pid]}
            }
        }
    }

    test "keepalives detect a client that disappeared without a message" -needs $::on_software_device {
        unharmed {
            # Its disconnect is lost, and so is everything that it should have said.
            lassign [own_proxy -env SOFTRDMA_FAULTS=disconnect:drop] pid port
            set c [new_client -host 127.0.0.1 -port $port]
            assert_equal PONG [$c ping]
            set n [info_field clients connected_clients]
            r config set rdma-keepalive-ms 100
            $c -close
            wait_for_condition 10000 {[info_field clients connected_clients] < $n}
            r config set rdma-keepalive-ms 3000
        }
    }

    test "send memory of quiet connections is released, however often they send keepalives" \
        -needs $::on_software_device {
        set ::resources_client [new_client -tcp 1]
        r config set rdma-keepalive-ms 50
        r ping
        # Without a signalled request its completion would take 16 keepalives, one each quarter of a second.
        wait_for_condition 2500 {[dict get [held] send-chunks-used] == 0}
        r config set rdma-keepalive-ms 3000
    }

    foreach posture {silent idle half unread dialling} {
        test "peers that vanish are let go: $posture" -needs $::on_software_device {
            r set unread [string repeat u 500000]
            unharmed {
                lassign [hold $posture 20] pid chan
                assert_equal PONG [r ping]
                kill_process KILL $pid
            }
        }
    }

    test "peers that never announce a buffer are closed when their time is over" -needs $::on_software_device {
        set from [log_size]
        unharmed {
            lassign [hold silent 5] pid chan
            assert_equal "all ended" [line_of $chan rdma-hostile]
        }
        wait_for_log "protocol violation: no RegisterXferMemory within 600 ms" $from
    }

    test "peers that do not confirm their connection are given up" -needs $::on_software_device {
        set from [log_size]
        unharmed {
            set n [info_field rdma rdma_connections]
            lassign [hold dialling 5] pid chan
            wait_for_log "did not complete the connection in time" $from
            wait_for_condition 5000 {[info_field rdma rdma_connections] <= $n}
        }
    }

    test "peers that never give their buffer back hold what they asked for, until they are killed" \
        -needs $::without_threads {
        r set unread [string repeat u 500000]
        unharmed {
            set stalls [info_field rdma rdma_stalls_on_full_peer_buffer]
            lassign [hold unread 8] pid chan
            wait_for_condition 5000 {[info_field rdma rdma_stalls_on_full_peer_buffer] == $stalls + 8}
            assert_equal PONG [r ping]
            set ids [regexp -all -inline -line {^id=(\d+) .* tx=65536 tx-free=0 queued=9\d{5}} [r client list]]
            assert_equal 16 [llength $ids]
            foreach {- id} $ids {r client kill id $id}
            assert_equal "all ended" [line_of $chan rdma-hostile]
        }
    }

    test "a flood of connections that come and vanish" -needs $::on_software_device -timeout 60 {
        set memory [process_memory [srv pid]]
        unharmed {
            set held {}
            for {set i 0} {$i < 3} {incr i} {lappend held [hold [lindex {idle half silent} $i] 60]}
            foreach h $held {kill_process KILL [lindex $h 0]}
        }
        assert_lessthan [expr {[process_memory [srv pid]] - $memory}] 16000
    }
}
