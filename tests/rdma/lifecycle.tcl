# Listening, connecting, ending, failing: what is around the data path.
# seconds: 4

# Waits until the server has freed a client. The number of all clients does not tell: others may still be closing.
proc wait_gone {id} {wait_for_condition 20000 {[r client list id $id] eq ""}}

proc server_args {port args} {
    list --port $port --bind 127.0.0.1 --save "" --dir $::unit_dir --rdma-bind $::opt(rdma_host) \
        --rdma-port $port {*}$args
}

start_server {overrides {tcp-backlog 8}} {
    test "a burst of connections waits while the server is busy, beyond tcp-backlog, too" {
        set t [new_client -tcp 1]
        $t -send debug sleep 0.5
        set clients {}
        for {set i 0} {$i < [scaled 100 10]} {incr i} {
            lappend clients [set c [new_client]]
            $c -send ping
        }
        foreach c $clients {assert_equal PONG [$c -read]}
        assert_equal OK [$t -read]
    }
}

start_server {} {
    test "the log says that it listens" {
        wait_for_log "Ready to accept connections rdma"
        wait_for_log "Ready to accept connections tcp"
    }

    test "CONFIG SET rdma-port listens on another port, clients stay connected" {
        set c [new_client]
        # Connected to the proxy is not yet connected to the server.
        $c ping
        r ping
        set t [new_client -tcp 1]
        set new [free_port]
        at_test_end [list [new_client -tcp 1] config set rdma-port [srv port]]
        assert_equal OK [$t config set rdma-port $new]
        assert_equal 1 [answers $new]
        assert_equal 0 [answers [srv port]]
        assert_equal PONG [$c ping]
        assert_match "name=rdma*,*port=$new" [info_field server listener3]
        assert_equal OK [$t config set rdma-port [srv port]]
        assert_equal 1 [answers [srv port]]
        assert_equal 0 [answers $new]
        assert_equal PONG [$c ping]
    }

    test "CONFIG SET rdma-port 0 stops listening, a port starts again" {
        set t [new_client -tcp 1]
        r ping
        at_test_end [list [new_client -tcp 1] config set rdma-port [srv port]]
        $t config set rdma-port 0
        assert_equal 0 [answers [srv port]]
        assert_equal PONG [r ping]
        assert_not_match "*name=rdma*" [$t info server]
        $t config set rdma-port [srv port]
        assert_equal 1 [answers [srv port]]
    }

    test "CONFIG SET rdma-bind to an address without device is refused and changes nothing" {
        set t [new_client -tcp 1]
        at_test_end [list [new_client -tcp 1] config set rdma-bind $::opt(rdma_host)]
        assert_error_like "ERR CONFIG SET failed (possibly related to argument 'rdma-bind')*" \
            {$t config set rdma-bind 203.0.113.77}
        assert_equal $::opt(rdma_host) [lindex [$t config get rdma-bind] 1]
        assert_equal 1 [answers [srv port]]
    }

    test "the RDMA options have their limits" {
        foreach {name bad} {rdma-port 65536 rdma-port -1 rdma-rx-size 65535 rdma-rx-size 16777217\
            rdma-completion-vector -2} {
            assert_error_like "ERR CONFIG SET failed (possibly related to argument '$name') - argument must be between\
                * inclusive" {r config set $name $bad}
        }
        foreach {name good} {rdma-rx-size 131072 rdma-completion-vector 0 rdma-completion-vector auto\
            rdma-completion-vector -1 rdma-rx-size 1048576} {
            assert_equal OK [r config set $name $good]
        }
    }

    test "a client killed in the middle of a request harms nobody" {
        foreach signal {KILL TERM STOP} {
            lassign [own_proxy] pid port
            set c [new_client -host 127.0.0.1 -port $port]
            set id [$c client id]
            $c -write "*3\r\n\$3\r\nSET\r\n\$1\r\nk\r\n\$1000000\r\n[string repeat x 300000]"
            $c -flush
            r ping
            if {$signal eq "STOP"} {
                # It is alive and silent; the server goes on all the same.
                kill_process STOP $pid
                for {set i 0} {$i < 50} {incr i} {assert_equal PONG [r ping]}
                kill_process CONT $pid
                kill_process KILL $pid
            } else {
                kill_process $signal $pid
            }
            assert_equal PONG [r ping]
            assert_equal "" [r get k]
            wait_gone $id
            catch {$c -close}
        }
    }

    test "a client killed while replies are on their way harms nobody" {
        r set big [set big [numbered 5000000]]
        lassign [own_proxy] pid port
        set c [new_client -host 127.0.0.1 -port $port]
        set id [$c client id]
        for {set i 0} {$i < [scaled 20 3]} {incr i} {$c -send get big}
        assert_equal $big [$c -read]
        kill_process KILL $pid
        for {set i 0} {$i < 20} {incr i} {assert_equal PONG [r ping]}
        wait_gone $id
        r del big
    }

    test "CLIENT KILL ends an RDMA connection" {
        set c [new_client]
        set id [$c client id]
        assert_equal 1 [r client kill id $id]
        assert_closed $c
    }

    test "protected mode refuses RDMA connections that are not from the loopback interface, with its text" \
        -needs [list {*}$::on_software_device true {[outer_address] ne ""}] {
        start_server {overrides {protected-mode yes rdma-bind 127.0.0.1}} {
            lassign [own_proxy -host 127.0.0.1 -source [outer_address]] pid port
            set before [info_field stats rejected_connections]
            set c [new_client -host 127.0.0.1 -port $port]
            set refusal [protected_mode_refusal]
            assert_equal $refusal [$c -readraw [string length $refusal]]
            assert_closed $c
            assert_equal [expr {$before + 1}] [info_field stats rejected_connections]
            assert_equal PONG [r ping]
            # The server lets the same client in where it asks for a password.
            r config set requirepass secret
            set c [new_client -host 127.0.0.1 -port $port]
            assert_error_like NOAUTH* {$c ping}
            assert_equal OK [$c auth secret]
            assert_equal PONG [$c ping]
            $c -close
        }
    }

    test "protected mode, AUTH and ACL hold over RDMA as over TCP" {
        r config set requirepass secret
        set c [new_client]
        assert_error_like NOAUTH* {$c get a}
        $c -write "*11\r\n"
        assert_equal "-ERR Protocol error: unauthenticated multibulk length" [$c -readline]
        assert_closed $c
        set c [new_client]
        assert_equal OK [$c auth secret]
        assert_equal "" [$c get a]
        r config set requirepass ""
    }
}

start_server {overrides {maxclients 5}} {
    test "maxclients holds over RDMA" {
        r ping
        set clients {}
        for {set i 0} {$i < 4} {incr i} {lappend clients [new_client]; [lindex $clients end] ping}
        set c [new_client]
        assert_too_many_clients $c
        foreach x $clients {assert_equal PONG [$x ping]}
    }
}

start_server {overrides {timeout 1}} {
    test "timeout closes idle RDMA clients" {
        set c [new_client]
        catch {$c ping} ;# on a busy machine the time may be over before
        assert_closed $c 30000
        wait_for_condition 30000 {[reconnect; catch {r ping} reply] == 0 && $reply eq "PONG"}
    }
}

start_server {} {
    test "the server ends in order with connected RDMA clients" {
        expect_server_exit
        set clients {}
        for {set i 0} {$i < [scaled 50 10]} {incr i} {lappend clients [new_client]; [lindex $clients end] ping}
        set t [new_client -tcp 1]
        $t -send shutdown nosave
        assert_equal 0 [server_reap [srv id]]
        foreach c $clients {assert_closed $c}
    }
}

start_server {} {
    test "SIGKILL of the server is seen by its clients" {
        expect_server_exit
        set c [new_client]
        $c ping
        kill_process KILL [srv pid]
        server_reap [srv id]
        assert_closed $c 20000
    }
}

start_server {} {
    test "a restarted server listens on the same port at once" {
        r set a b
        foreach signal {TERM KILL} {
            restart_server -signal $signal
            assert_equal PONG [r ping]
            assert_equal 1 [answers [srv port]]
        }
    }
}

# --- Several addresses -------------------------------------------------------------

test "several addresses of rdma-bind" -needs $::on_software_device {
    set port [free_port]
    serve -port $port -- --port PORT --bind 127.0.0.1 --save "" --dir DIR --rdma-bind 127.0.0.1 127.0.0.2 \
        --rdma-port PORT
    assert_equal 1 [answers $port 127.0.0.1]
    assert_equal 1 [answers $port 127.0.0.2]
    set i [[new_client -host 127.0.0.1 -port $port] info server]
    assert_match "*name=rdma,bind=127.0.0.1,bind=127.0.0.2,port=$port*" $i
}

test "RDMA on another port than TCP" {
    set tcp [free_port]
    set rdma [free_port]
    serve -port $tcp -- {*}[server_args $tcp] --rdma-port $rdma
    assert_equal 1 [answers $rdma]
    assert_equal 0 [answers $tcp]
    assert_equal PONG [[new_client -host 127.0.0.1 -port $tcp] ping]
}

test "the line that loads the RDMA module of Valkey 8 sets address and port" {
    set port [free_port]
    set config [file join $::unit_dir module.conf]
    write_file $config "loadmodule /usr/lib/valkey/valkey-tls.so\nloadmodule src/valkey-rdma.so bind=$::opt(rdma_host)\
        port=$port\n"
    serve -port $port -- $config --port PORT --bind 127.0.0.1 --save "" --dir DIR
    assert_equal 1 [answers $port]
    set t [new_client -host 127.0.0.1 -port $port]
    assert_equal [list rdma-bind $::opt(rdma_host)] [$t config get rdma-bind]
    assert_equal [list rdma-port $port] [$t config get rdma-port]
    # A rewritten file has the options in place of the line.
    assert_equal OK [$t config rewrite]
    assert_match "*rdma-bind $::opt(rdma_host)\n*rdma-port $port\n*" [file_bytes $config]
    assert_equal 0 [string match *loadmodule* [file_bytes $config]]
}

test "RDMA alone, without TCP" {
    set port [free_port]
    lassign [serve -wait 0 -port $port -- --port 0 --save "" --dir DIR --rdma-bind $::opt(rdma_host) --rdma-port PORT] \
        handle
    wait_for_text [spawn_outfile $handle] "Ready to accept connections rdma"
    assert_equal 1 [answers $port]
}

# --- What fails must say why ---------------------------------------------------------

test "no device: one clear line and exit code 1" -needs $::on_software_device {
    set got [run env SOFTRDMA_DEVICES=0 {*}[server_command] {*}[server_args [free_port]]]
    assert_equal 1 [dict get $got code]
    set text [dict get $got out][dict get $got err]
    set lines [lsearch -all -inline -regexp [split $text \n] {(?i)rdma.*(device|listen|address)}]
    assert {[llength $lines] >= 1} $text
    assert_range [llength $lines] 1 2 $lines
}

test "an RDMA address that is not ours: one clear line and exit code 1" {
    set port [free_port]
    set got [run {*}[server_command] --port $port --bind 127.0.0.1 --save "" --dir $::unit_dir \
        --rdma-bind 203.0.113.77 --rdma-port $port]
    assert_equal 1 [dict get $got code]
    assert_match "*203.0.113.77*" [dict get $got out][dict get $got err]
}

start_server {} {
    test "an RDMA port in use: one clear line and exit code 1" {
        set got [run {*}[server_command] --port [free_port] --bind 127.0.0.1 --save "" --dir $::unit_dir \
            --rdma-bind $::opt(rdma_host) --rdma-port [srv port]]
        assert_equal 1 [dict get $got code]
        assert_match "*Failed listening on port [srv port] (rdma)*" [dict get $got out][dict get $got err]
    }
}

foreach memlock {4096 262144 3000000} {
    test "too little lockable memory ($memlock bytes): said clearly, TCP goes on" -needs $::on_software_device {
        set port [free_port]
        lassign [serve -wait 0 -port $port -- {*}[server_args $port]] handle
        kill_process KILL [spawn_pid $handle]
        spawn_wait $handle
        set handle [spawn env SOFTRDMA_MEMLOCK=$memlock {*}[server_command] {*}[server_args $port]]
        wait_for_condition 30000 \
            {![process_alive [spawn_pid $handle]] || [string match "*Ready to accept connections*" [spawn_out $handle]]}
        if {![process_alive [spawn_pid $handle]]} {
            # Refusing to start is as good, when it says why.
            assert_regexp {(?i)rdma.*(memory|lock)|(memory|lock).*rdma} [spawn_out $handle][spawn_err $handle]
        } else {
            # Some connections fit perhaps; those that do not are refused with a reason.
            set refused 0
            lassign [own_proxy -port $port] proxy pport
            set clients {}
            for {set i 0} {$i < 20} {incr i} {
                set c [new_client -host 127.0.0.1 -port $pport]
                if {[catch {$c ping}]} {incr refused}
                lappend clients $c
            }
            set t [new_client -host 127.0.0.1 -port $port]
            assert_equal PONG [$t ping]
            if {$refused} {assert_regexp {(?i)(lock|register|memory)} [spawn_out $handle]}
            if {$memlock == 4096} {assert_equal 20 $refused}
            assert_equal PONG [$t ping]
        }
    }
}

# The server reads nothing behind QUIT and waits until the replies before it have left, which they never do.
foreach threads {1 3} {
    start_server [list overrides [list io-threads $threads]] {
        test "a client that is killed behind QUIT leaves nothing, $threads threads" {
            set t [new_client -tcp 1]
            $t set big [numbered 5000000]
            foreach behind {1 3000000} {
                lassign [own_proxy] pid port
                set c [new_client -host 127.0.0.1 -port $port]
                set id [$c client id]
                for {set i 0} {$i < 20} {incr i} {$c -send get big}
                $c -send quit
                wait_for_condition 5000 {[regexp {flags=c} [$t client list id $id]]}
                $c -write [string repeat x $behind]
                $c -flush
                set before 0
                wait_for_condition 5000 {
                    $before == [set before [dict get [client_fields [$t client list id $id]] tot-net-in]]}
                kill_process KILL $pid
                wait_for_condition 5000 {[$t client list id $id] eq ""}
                catch {$c -close}
            }
        }
    }
}
