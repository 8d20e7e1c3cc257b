# libvalkeyrdma: the checks of build/programs/rdma-client, what the library needs and exports, and what its users see
# when servers and devices fail. CLIENT_ROUNDS: how often each failure is tried.
# seconds: 20

set rounds [expr {[info exists env(CLIENT_ROUNDS)] ? $env(CLIENT_ROUNDS) : 4}]
set client [file join $root build programs rdma-client]
set library [file join $root build lib libvalkeyrdma.so]

proc client_run {args} {
    run -timeout 100 {*}$::opt(launcher) $::client {*}$args
}

start_server {} {
    foreach {check what} {
        blocking "requests, timeouts and addresses of a connection that blocks"
        end "the end of connections, with what was sent before it"
        errors "connections that cannot be made say why"
        large "8 MiB, in vectors, in place and by copy"
        limits "a full send queue takes part of the bytes"
        descriptor "20 connections are served by one descriptor"
        threads "threads with contexts of their own and a common one, a reader and a writer"
        signals "signals and wake-ups end a wait"
        fork "a forked child leaves the connections alone and opens its own"
    } {
        # soft-RoCE: the queue never becomes full.
        test "libvalkeyrdma: $what" \
            -needs [list file $client {*}[expr {$check eq "limits" ? $::on_software_device : {}}]] {
            unharmed {
                set got [client_run $check $::opt(rdma_host) [srv port]]
                assert_equal "0 {ok $check}" [list [dict get $got code] [string trim [dict get $got out]]] \
                    [dict get $got err]
            }
        }
    }

    test "libvalkeyrdma speaks the base protocol to a server that offers no features" -needs [list file $client] {
        r config set rdma-features none
        at_test_end [list r config set rdma-features all]
        foreach check [expr {[software_device] ? {blocking large limits} : {blocking large}}] {
            set got [client_run $check $::opt(rdma_host) [srv port]]
            assert_equal 0 [dict get $got code] "$check: [dict get $got err]"
        }
    }
}

# --- What it is linked with ---

test "libvalkeyrdma.so exports the functions of its header and nothing else" -needs [list file $library] {
    set header [file_bytes [file join $root src client valkeyrdma.h]]
    regsub -all {/\*.*?\*/} $header "" header
    set declared [lsort -unique [lmap {all name} [regexp -all -inline {(valkeyrdma_\w+)\(} $header] {set name}]]
    set exported {}
    foreach line [split [string trim [exec nm -D --defined-only $library]] \n] {
        lassign [lreverse $line] name kind
        if {$kind ne "A"} {lappend exported [regsub {@@.*} $name ""]}
        if {$kind eq "A"} continue
        set version [expr {[regexp {^valkeyrdma_(region|placement|batch|checksum)} $name] ? "1.1" : "1.0"}]
        assert_match "*@@VALKEYRDMA_$version" $name
    }
    assert_equal $declared [lsort $exported]
    assert_morethan [llength $declared] 30
}

test "libvalkeyrdma.a defines the functions of the shared library and no other global symbol" \
    -needs [list file $library] {
    set symbols {}
    foreach line [split [string trim [exec nm -g --defined-only [file rootname $library].a 2>/dev/null]] \n] {
        if {[llength $line] == 3} {lappend symbols [lindex $line 2]}
    }
    assert_equal {} [lsearch -all -inline -not $symbols valkeyrdma_*]
    assert_morethan [llength $symbols] 30
}

test "a program linked with libvalkeyrdma starts without rdma-core and learns what is missing" \
    -needs [list file $client] {
    assert_not_match *libibverbs* [exec ldd $client]
    assert_not_match *librdmacm* [exec ldd $client]
    set empty [file join $unit_dir empty]
    file mkdir $empty
    foreach name {libibverbs.so.1 librdmacm.so.1} {
        write_file [file join $empty $name] "not a library"
        set got [run env LD_LIBRARY_PATH=$empty $client available]
        assert_match "0 {-38 *rdma-core is not installed*$name*}*" \
            [list [dict get $got code] [string trim [dict get $got out]]]
        file delete [file join $empty $name]
    }
}

test "libvalkeyrdma says that there is no device" -needs [list file $client {*}$::on_software_device] {
    set got [run env SOFTRDMA_DEVICES=0 {*}$::opt(launcher) $client available]
    assert_match "-19 no RDMA device was found*" [dict get $got out]
}

start_server {} {
    test "libvalkeyrdma.so can be loaded by a running program, as bindings of other languages do" \
        -needs {true {[auto_execok python3] ne "" && [file exists $::library] && ![has_sanitizer]}} {
        set program [file join $unit_dir binding.py]
        write_file $program {import ctypes, sys
library = ctypes.CDLL(sys.argv[1])
library.valkeyrdma_connect.restype = ctypes.c_void_p
error = ctypes.create_string_buffer(512)
c = library.valkeyrdma_connect(None, sys.argv[2].encode(), int(sys.argv[3]), None, 5000, error, 512)
assert c, error.value
c, reply = ctypes.c_void_p(c), ctypes.create_string_buffer(64)
assert library.valkeyrdma_send(c, b'PING\r\n', ctypes.c_size_t(6), 5000) == 6
assert library.valkeyrdma_recv(c, reply, ctypes.c_size_t(64), 5000) == 7
print(reply.value.decode().strip())
library.valkeyrdma_close(c)
}
        set got [run {*}$::opt(launcher) python3 $program $library $::opt(rdma_host) [srv port]]
        assert_equal "0 +PONG" [list [dict get $got code] [string trim [dict get $got out]]] [dict get $got err]
    }
}

test "the header of libvalkeyrdma compiles alone, as C11 and as C++" {
    set source [file join $unit_dir header.c]
    write_file $source "#include \"client/valkeyrdma.h\"\nint main(void) {return valkeyrdma_available(0, 0);}\n"
    exec cc -std=c11 -Wall -Wextra -Werror -I [file join $root src] -fsyntax-only $source
    if {[auto_execok c++] ne ""} {
        exec c++ -x c++ -Wall -Wextra -Werror -I [file join $root src] -fsyntax-only $source
    }
}

# --- Failures ---

# A server of its own: {spawn handle, port}.
proc own_server {args} {
    set port [free_port]
    set dir [file join $::unit_dir own.$port]
    file mkdir $dir
    set id [spawn -in $dir env {*}$args {*}$::opt(launcher) [file join $::root src valkey-server] --port $port \
        --rdma-bind $::opt(rdma_host) --rdma-port $port --save "" --loglevel warning]
    at_test_end [list catch [list kill_process KILL [spawn_pid $id]]]
    wait_for_condition 10000 {[answers $port]} "the server does not answer"
    return [list $id $port]
}

# Starts requests from 3 threads that block and 5 connections that are polled; returns when they run.
proc start_load {port seconds patience_ms args} {
    set id [spawn env {*}$args {*}$::opt(launcher) $::client load $::opt(rdma_host) $port 3 5 $seconds $patience_ms]
    wait_for_condition 10000 {[string match "running*" [spawn_out $id]]} "no load: [spawn_err $id]"
    return $id
}
proc ends_of {got} {lsearch -all -inline [split [dict get $got out] \n] ended*}

test "every connection gets an error when the server is killed" -needs $::on_software_device -timeout 300 {
    for {set round 0} {$round < $::rounds} {incr round} {
        lassign [own_server] process port
        set load [start_load $port 60 30000]
        after [expr {$round % 20}]
        kill_process KILL [spawn_pid $process]
        catch {spawn_wait $process}
        set began [clock milliseconds]
        set got [spawn_wait $load 20000]
        assert_equal "0 8" [list [dict get $got code] [llength [ends_of $got]]] [dict get $got err]
        foreach end [ends_of $got] {assert_regexp {^ended \d+ \S} $end}
        assert_lessthan [expr {[clock milliseconds] - $began}] 10000
    }
}

foreach {what rule} {
    "the device of the client fails" send:error=REM_ACCESS_ERR,from=%
    "messages of the client are lost" send:drop,from=%
    "the client's device takes no requests" post_send:fail=EIO,from=%
    "the client's device is removed" event:remove,op=RDMA_CM_EVENT_CONNECT_RESPONSE,nth=9
} {
    test "connections get an error when $what" -needs $::on_software_device -timeout 300 {
        lassign [own_server] process port
        for {set round 0} {$round < $::rounds} {incr round} {
            set faults [string map [list % [expr {600 + 37 * $round}]] $rule]
            set id [spawn env SOFTRDMA_FAULTS=$faults {*}$::opt(launcher) $::client load $::opt(rdma_host) $port 3 5 \
                30 15000]
            set got [spawn_wait $id 30000]
            assert_equal "0 8" [list [dict get $got code] [llength [ends_of $got]]] [dict get $got err]
            assert_not_match {*ended 0 *} [dict get $got out]
        }
        assert_equal 1 [answers $port]
    }
}

test "waits end at their timeout while the server is frozen, and continue after it" -needs $::on_software_device \
    -timeout 300 {
    lassign [own_server] process port
    for {set round 0} {$round < $::rounds} {incr round} {
        set load [start_load $port 1 200]
        kill_process STOP [spawn_pid $process]
        set got [spawn_wait $load 20000]
        kill_process CONT [spawn_pid $process]
        assert_equal "0 3" [list [dict get $got code] [llength [ends_of $got]]] [dict get $got out]
        foreach end [ends_of $got] {assert_match "ended 110*" $end}
    }
    assert_equal 1 [answers $port]
}

test "the removal of the client's device is said by its connections; new ones can be made" \
    -needs $::on_software_device {
    lassign [own_server] process port
    for {set round 0} {$round < $::rounds} {incr round} {
        set got [run -timeout 60 env SOFTRDMA_FAULTS=event:remove,op=RDMA_CM_EVENT_CONNECT_RESPONSE,nth=3 \
            {*}$::opt(launcher) $::client removal $::opt(rdma_host) $port]
        assert_equal "0 {the RDMA device was removed}" [list [dict get $got code] [string trim [dict get $got out]]] \
            [dict get $got err]
    }
    assert_equal 1 [answers $port]
}
