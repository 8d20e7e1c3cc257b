# valkey-rdma-run: unmodified programs over RDMA. AddressSanitizer wants its runtime to be loaded first and ends a
# program with a preloaded library; the order does no harm here.
# seconds: 7

set cases [file join $root build programs socket-cases]
set client [file join $root src valkey-cli]
set runner [file join $root src valkey-rdma-run]
set needs [list file $runner]
set anyhow [list env ASAN_OPTIONS=verify_asan_link_order=0]
proc closed_port {} {
    set s [socket -server {} 0]
    set port [lindex [fconfigure $s -sockname] 2]
    close $s
    return $port
}
# The device may have another address than the one that programs connect to.
proc map {port} {list --map 127.0.0.1:$port=$::opt(rdma_host):$port}
proc mapped {args} {
    run -timeout 100 {*}$::opt(launcher) $::runner {*}[map [srv port]] {*}$args
}

start_server {} {
    test "the cases of sockets pass over TCP" -needs [list file $cases] {
        set got [run -timeout 100 $::cases [srv port] [closed_port]]
        assert_match "*passed, 0 failed*" [dict get $got out]
    }

    # One of them needs a device that can be slower than the program: soft-RoCE never is.
    test "the cases of sockets pass under valkey-rdma-run" -needs [list {*}$needs {*}$::on_software_device] {
        set closed [closed_port]
        set got [mapped {*}[map $closed] $::cases [srv port] $closed]
        assert_match "*passed, 0 failed*" [dict get $got out]
    }

    test "a program sees ECONNRESET when the device is removed, and connects anew" \
        -needs [list {*}$needs {*}$::on_software_device] {
        set got [run -timeout 60 env SOFTRDMA_FAULTS=event:remove,op=RDMA_CM_EVENT_CONNECT_RESPONSE,nth=3 \
            {*}$::opt(launcher) $::runner --require {*}[map [srv port]] $::cases [srv port] 1 device_removed]
        assert_equal "1 passed, 0 failed" [string trim [dict get $got out]] [dict get $got err]
        assert_equal 1 [answers [srv port]]
    }

    test "children that close a connection leave it to the parent" -needs $needs {
        set got [mapped --require $::cases [srv port] 1 fork_child_closes]
        assert_equal "1 passed, 0 failed" [string trim [dict get $got out]] [dict get $got err]
    }

    # The first case is over TCP. In the second the thread serves a child whose parent only waits.
    test "a thread that could not be started is started for the next connection" -needs $needs {
        set got [run -timeout 100 {*}$::anyhow LD_PRELOAD=[tool preload/no-thread.so] NO_THREAD=rdma-run.so \
            {*}$::opt(launcher) $::runner {*}[map [srv port]] $::cases [srv port] 1 fork_child_uses \
            fork_child_reads_first]
        assert_equal "2 passed, 0 failed" [string trim [dict get $got out]] [dict get $got err]
        assert_match "*TCP, not RDMA: Resource temporarily unavailable*: RDMA*" [dict get $got err]
    }

    # Forks wait for the decision.
    test "connections without an RDMA listener are TCP, also while a child is forked" -needs $needs {
        set got [run -timeout 60 {*}$::opt(launcher) $::runner \
            --map 127.0.0.1:[srv port]=$::opt(rdma_host):[closed_port] \
            $::cases [srv port] [closed_port] refused fork_while_connecting fork_while_thread_connects]
        assert_equal "3 passed, 0 failed" [string trim [dict get $got out]] [dict get $got err]
        assert_equal 1 [answers [srv port]]
    }

    test "a connection that --require has refused can be tried again with the same socket" -needs $needs {
        set closed [closed_port]
        set got [mapped --require {*}[map $closed] $::cases [srv port] $closed refused]
        assert_equal "1 passed, 0 failed" [string trim [dict get $got out]] [dict get $got err]
    }

    test "a program's connection is RDMA, and the status file says so" -needs $needs {
        set file [file join [srv dir] status]
        set got [mapped --status $file $::client -p [srv port] client info]
        assert_match "*rdma*" [dict get $got out]
        assert_match "*127.0.0.1:[srv port]: RDMA*" [file_bytes $file]
    }

    test "without its library the launcher says so and starts the program, or does not with --require" -needs $needs {
        set alone [file join [srv dir] launcher]
        file copy [file normalize [file join [file dirname $::runner] [file readlink $::runner]]] $alone
        set message "valkey-rdma-run: libvalkey-rdma-run.so is missing beside this program"
        assert_equal [list code 0 out started\n err "$message: connections stay TCP\n"] [run $alone /bin/echo started]
        assert_equal [list code 127 out "" err $message\n] [run $alone --require /bin/echo started]
    }

    test "wrong usage is refused by name" -needs $needs {
        set text [file join [srv dir] text]
        write_file $text "no program"
        foreach {code message args} [list \
            2 "unknown option --bogus; --help shows all" {--bogus} \
            2 "--map needs an argument" {--map} \
            2 "--map x is not HOST:PORT*" {--map x true} \
            2 "the command is missing\n*" {--quiet} \
            127 "nosuch-program was not found" {nosuch-program} \
            127 "./nosuch was not found" {--quiet ./nosuch} \
            126 "$text is not executable" [list --quiet $text] \
        ] {
            set got [run $::runner {*}$args]
            assert_equal $code [dict get $got code] $args
            assert_match "valkey-rdma-run: $message\n" [dict get $got err]
        }
        foreach option {--version -v} {assert_match "valkey-rdma-run 9*" [dict get [run $::runner $option] out]}
    }

    test "without a device it is TCP, which is said once" -needs $needs {
        set got [run -timeout 50 {*}$::anyhow $::runner --map 127.0.0.1:[srv port] $::client \
            -p [srv port] -r 3 ping]
        assert_equal 0 [dict get $got code]
        assert_match "PONG*PONG*PONG*" [dict get $got out]
        assert_equal 1 [regexp -all "TCP, not RDMA" [dict get $got err]]
    }

    test "--require turns that into an error" -needs [list {*}$needs {*}$::on_software_device] {
        set got [run -timeout 50 {*}$::anyhow $::runner --require --map 127.0.0.1:[srv port] $::client \
            -p [srv port] ping]
        assert_match "*Connection refused*" [dict get $got err][dict get $got out]
        assert_match "*--require refuses TCP*" [dict get $got err]
    }
}
