# Listening: addresses, ports, IPv6, Unix sockets, protected mode.

# An address of this machine that is not the loopback address, or the empty string.
proc have_ipv6 {} {expr {![catch {close [socket -server {} -myaddr ::1 0]}]}}
proc listens {host port} {
    if {[catch {new_client -host $host -port $port} c]} {return 0}
    # A server in protected mode replies and closes, but it listens.
    catch {$c ping}
    $c -close
    return 1
}
# valkey-cli, because Tcl does not support Unix sockets.
proc cli {args} {exec [tool valkey-cli] {*}$args}

start_server {overrides {bind "127.0.0.1 127.0.0.2"} tags {listen tcp-only}} {
    test "several addresses" {
        assert {[listens 127.0.0.1 [srv port]]}
        assert {[listens 127.0.0.2 [srv port]]}
        assert {![listens 127.0.0.3 [srv port]]}
        assert_equal "127.0.0.1 127.0.0.2" [config_get bind]
        assert_equal "name=tcp,bind=127.0.0.1,bind=127.0.0.2,port=[srv port]" [info_field server listener0]
    }

    test "CONFIG SET bind listens elsewhere, clients stay connected" {
        # A connection in the backlog of a listener is not accepted yet.
        set c [new_client]
        $c ping
        r config set bind "127.0.0.1 127.0.0.3"
        assert {[listens 127.0.0.3 [srv port]]}
        assert {![listens 127.0.0.2 [srv port]]}
        assert_equal PONG [$c ping]
        r config set bind 127.0.0.1
        assert {![listens 127.0.0.3 [srv port]]}
        assert {[listens 127.0.0.1 [srv port]]}
    }

    test "CONFIG SET bind to an address that is not ours is refused and changes nothing" {
        assert_error "ERR CONFIG SET failed (possibly related to argument 'bind') - Failed to bind to specified\
            addresses." {
            r config set bind "127.0.0.1 203.0.113.77"
        }
        assert_equal 127.0.0.1 [config_get bind]
        assert {[listens 127.0.0.1 [srv port]]}
    }

    test "an address with - in front may be missing" {
        r config set bind "127.0.0.1 -203.0.113.77"
        assert_equal "127.0.0.1 -203.0.113.77" [config_get bind]
        assert {[listens 127.0.0.1 [srv port]]}
        r config set bind 127.0.0.1
    }

    test "CONFIG SET port listens on another port" {
        set old [srv port]
        set new [free_port]
        set c [new_client]
        $c ping
        at_test_end [list r config set port $old]
        r config set port $new
        assert {[listens 127.0.0.1 $new]}
        assert {![listens 127.0.0.1 $old]}
        assert_equal PONG [$c ping]
        assert_equal $new [config_get port]
        assert_equal $new [info_field server tcp_port]
        r config set port $old
        assert {[listens 127.0.0.1 $old]}
        assert {![listens 127.0.0.1 $new]}
    }

    test "CONFIG SET port to a port in use is refused and changes nothing" {
        set blocker [socket -server {} -myaddr 127.0.0.1 0]
        set taken [lindex [fconfigure $blocker -sockname] 2]
        at_test_end [list close $blocker]
        assert_error "ERR CONFIG SET failed (possibly related to argument 'port') - Unable to listen on this port.\
            Check server logs." {
            r config set port $taken
        }
        assert_equal [srv port] [config_get port]
        assert {[listens 127.0.0.1 [srv port]]}
    }

    test "CONFIG SET port 0 stops listening on TCP, another port starts again" {
        set c [new_client]
        at_test_end [list $c config set port [srv port]]
        $c config set port 0
        assert {![listens 127.0.0.1 [srv port]]}
        assert_equal PONG [$c ping]
        $c config set port [srv port]
        assert {[listens 127.0.0.1 [srv port]]}
    }

    test "CONFIG SET bind and port together" {
        set old [srv port]
        set new [free_port]
        at_test_end [list r config set port $old bind 127.0.0.1]
        r config set port $new bind "127.0.0.1 127.0.0.4"
        assert {[listens 127.0.0.4 $new]}
        assert {![listens 127.0.0.1 $old]}
        r config set port $old bind 127.0.0.1
        assert {[listens 127.0.0.1 $old]}
    }
}

start_server {overrides {bind "127.0.0.1 ::1"} tags {listen tcp-only}} {
    test "IPv6" -needs {true {[have_ipv6]}} {
        set c [new_client -host ::1 -port [srv port]]
        assert_equal PONG [$c ping]
        set f [client_fields [$c client info]]
        assert_equal "\[::1]:[$c -localport]" [dict get $f addr]
        assert_equal "\[::1]:[srv port]" [dict get $f laddr]
        assert_equal "name=tcp,bind=127.0.0.1,bind=::1,port=[srv port]" [info_field server listener0]
        assert_equal OK [r client kill "\[::1]:[$c -localport]"]
        assert_closed $c
    }
}

test "bind with - in front on the command line" {
    lassign [serve -- --port PORT --bind 127.0.0.1 -::1 -203.0.113.77 --save "" --dir DIR] handle port
    assert {[listens 127.0.0.1 $port]}
    assert_equal "127.0.0.1 -::1 -203.0.113.77" [lindex [[new_client -port $port] config get bind] 1]
}

test "bind to an address that is not ours: one line says so, exit code 1" {
    set got [run_server --port [free_port] --bind 127.0.0.1 203.0.113.77 --save "" --dir $::unit_dir]
    assert_equal 1 [dict get $got code]
    assert_match "*Could not create server TCP listening socket 203.0.113.77:*: bind: Cannot assign requested\
        address*" [dict get $got out]
    assert_match "*Failed listening on port * (tcp), aborting.*" [dict get $got out]
}

test "bind * listens on all addresses" {
    lassign [serve -- --port PORT --bind * --save "" --dir DIR] handle port
    assert {[listens 127.0.0.1 $port]}
    assert {[listens 127.0.0.9 $port]}
}

# --- Protected mode ----------------------------------------------------------------------

start_server {overrides {bind *} tags {listen tcp-only}} {

    test "protected mode refuses connections from elsewhere with its text" -needs {true {[outer_address] ne ""}} {
        set before [info_field stats rejected_connections]
        set c [new_client -host [outer_address] -port [srv port]]
        assert_equal [protected_mode_refusal] [$c -readraw [string length [protected_mode_refusal]]]
        assert_closed $c
        assert_equal [expr {$before + 1}] [info_field stats rejected_connections]
        assert_equal PONG [r ping]
    }

    test "without protected mode or with a password others are let in" -needs {true {[outer_address] ne ""}} {
        r config set protected-mode no
        set c [new_client -host [outer_address] -port [srv port]]
        assert_equal PONG [$c ping]
        $c -close
        r config set protected-mode yes requirepass secret
        set c [new_client -host [outer_address] -port [srv port]]
        assert_error_like NOAUTH* {$c ping}
        assert_equal OK [$c auth secret]
        $c -close
        r config set requirepass ""
        set c [new_client -host [outer_address] -port [srv port]]
        assert_match "-DENIED*" [$c -readline]
    }
}

# --- Unix sockets --------------------------------------------------------------------------

start_server {overrides {unixsocket my.sock unixsocketperm 700} tags {listen tcp-only}} {
    test "a Unix socket serves beside TCP" -needs {tool valkey-cli} {
        set here [pwd]
        at_test_end [list cd $here]
        cd [srv dir]
        assert_equal PONG [cli -s my.sock ping]
        assert_equal PONG [r ping]
        file lstat my.sock st
        assert_equal socket $st(type)
        assert_equal 0700 [format %04o [expr {$st(mode) & 0777}]]
        wait_for_log "Ready to accept connections unix"
        assert_match "*addr=*my.sock:0 laddr=*my.sock:0 *flags=*U*" [cli -s my.sock client info]
        assert_equal "name=tcp,bind=127.0.0.1,port=[srv port]" [info_field server listener0]
        assert_match "name=unix,bind=*my.sock" [info_field server listener1]
    }

    test "a pipeline and a big value over the Unix socket" -needs {tool valkey-cli} {
        set here [pwd]
        at_test_end [list cd $here]
        cd [srv dir]
        set big [string repeat x 3000000]
        r set big $big
        assert {[cli -s my.sock get big] eq $big}
        set in ""
        for {set i 0} {$i < 2000} {incr i} {append in "set k$i v$i\n"}
        set got [run -in [srv dir] -stdin $in [tool valkey-cli] -s my.sock]
        assert_equal 0 [dict get $got code]
        assert_equal v1999 [r get k1999]
    }
}

test "the Unix socket is removed at the end, a stale one is replaced" -needs {tool valkey-cli} {
    set dir [file join $::unit_dir sock]
    file mkdir $dir
    set port [free_port]
    foreach round {1 2} {
        lassign [serve -port $port -dir $dir -- --port PORT --bind 127.0.0.1 --unixsocket u.sock --save "" --dir DIR] \
            handle
        assert_equal PONG [run_in_dir $dir {cli -s u.sock ping}]
        if {$round == 1} {
            # A killed server does not remove its socket; the next server must replace it.
            kill_process KILL [spawn_pid $handle]
            spawn_wait $handle
            assert {[file exists $dir/u.sock]}
        } else {
            kill_process TERM [spawn_pid $handle]
            spawn_wait $handle
            assert {![file exists $dir/u.sock]}
        }
    }
}

test "port 0 with a Unix socket is enough to serve" -needs {tool valkey-cli} {
    set dir [file join $::unit_dir sock0]
    file mkdir $dir
    lassign [serve -wait 0 -dir $dir -- --port 0 --unixsocket u.sock --save "" --dir DIR] handle
    wait_for_condition 5000 {[file exists $dir/u.sock]}
    wait_for_text [spawn_outfile $handle] "Ready to accept connections unix"
    assert_equal PONG [run_in_dir $dir {cli -s u.sock ping}]
}

test "a Unix socket that cannot be made is refused" {
    set got [run_server --port 0 --unixsocket /nosuch/dir/u.sock --save "" --dir $::unit_dir]
    assert_equal 1 [dict get $got code]
    assert_match "*Failed opening Unix socket: bind: No such file or directory*" [dict get $got out]
    if {[server_is_ours]} {assert_match "* (/nosuch/dir/u.sock)\n*" [dict get $got out]}
}

# --- Many clients at the listener -------------------------------------------------------------

start_server {overrides {tcp-backlog 128} tags {listen}} {
    test "a burst of 300 connections is accepted" {
        set clients {}
        for {set i 0} {$i < 300} {incr i} {lappend clients [new_client]}
        foreach c $clients {$c -send ping}
        foreach c $clients {assert_equal PONG [$c -read]}
    }
}
