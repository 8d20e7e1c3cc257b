# The report of a crash is complete in any state of the process, and the process ends. seconds: 2

# A server that executes an endless script for a client whose connection belongs to an I/O thread: {process client}.
proc start_busy_server {} {
    set port [free_port]
    set process [spawn env LD_PRELOAD=[tool preload/held-locks.so] $::opt(server) --port $port --io-threads 2 \
        --busy-reply-threshold 1 --save "" --hide-user-data-from-log no --dir $::unit_dir]
    wait_for_condition 30000 {![catch {new_client -host 127.0.0.1 -port $port -tcp 1} client]}
    wait_for_condition 30000 {![catch {$client client setname victim}]}
    $client -send eval "while true do end" 0
    set other [new_client -host 127.0.0.1 -port $port -tcp 1]
    wait_for_condition 30000 {[catch {$other ping} error] && [string match BUSY* $error]}
    return [list $process $client]
}

start_server {overrides {io-threads 3 appendonly yes}} {
    test "no thread blocks the signals of its own faults" {
        assert_morethan [llength [glob /proc/[srv pid]/task/*]] 3
        foreach status [glob /proc/[srv pid]/task/*/status] {
            if {[string match jemalloc* [file_bytes [file dirname $status]/comm]]} continue ;# starts them itself
            regexp {SigBlk:\s+([0-9a-f]+)} [file_bytes $status] -> blocked
            # SIGILL, SIGABRT, SIGBUS, SIGFPE, SIGSEGV
            foreach number {4 6 7 8 11} {
                assert_equal 0 [expr {"0x$blocked" >> ($number - 1) & 1}] "signal $number in $status"
            }
        }
    }
}

start_server {overrides {enable-debug-command yes}} {
    test "SIGALRM logs the stack of the server, which continues" -needs {command debug} {
        set client [new_client]
        $client -send debug sleep 1
        wait_for_condition 5000 {[process_state [srv pid]] eq "S"}
        exec kill -ALRM [srv pid]
        wait_for_log "Received SIGALRM*STACK TRACE*STACK TRACE DONE*"
        assert_equal PONG [r ping]
    }

    test "watchdog-period logs the stack when the cron does not run for so long" -needs {command debug} {
        r config set watchdog-period 1
        assert_equal {watchdog-period 200} [r config get watchdog-period]
        r debug sleep 0.5
        wait_for_log "--- WATCHDOG TIMER EXPIRED ---*STACK TRACE DONE*"
        r config set watchdog-period 0
    }
}

start_server {overrides {loglevel verbose hide-user-data-from-log no}} {
    # Sends bytes and waits until the server closes the connection.
    proc refused {bytes} {
        set raw [socket [srv host] [srv port]]
        fconfigure $raw -translation binary
        puts -nonewline $raw $bytes
        flush $raw
        read $raw
        close $raw
    }

    test "a request that cannot be read is logged from where it went wrong" -tags tcp-only {
        refused "*3\r\n\$3\r\nSET\r\n\$1\r\nx\r\n\$wrong\r\n\x01foo"
        wait_for_log "Protocol error (invalid bulk length) from client: *. Query buffer: '\$wrong...foo'"
        refused "*1\r\n\$long\r\n[string repeat y 200]"
        wait_for_log "Query buffer: '\$long..[string repeat y 57]' (... more 79 bytes ...) '[string repeat y 64]'"
        r config set hide-user-data-from-log yes
        refused "*1\r\n\$secret\r\n"
        wait_for_log "Query buffer: \*redacted\*"
    }

    # An I/O thread passes on complete requests: what has arrived of one counts as qbuf until then.
    set whole {true {!$::opt(io_threads)}}
    test "qbuf counts the bytes of a large argument that have arrived" -tags tcp-only -needs $whole {
        set raw [socket [srv host] [srv port]]
        fconfigure $raw -translation binary
        puts -nonewline $raw "*1\r\n\$500000\r\n[string repeat v 400000]"
        flush $raw
        wait_for_condition 5000 {[string match "* qbuf=400000 *" [r client list]]}
        assert_match "* qbuf=400000 qbuf-free=\[1-9\]* argv-mem=0 *" [r client list]
        assert {[info_field clients client_recent_max_input_buffer] >= 500000}
        close $raw
    }

    test "the complete arguments of a partial request count as argv-mem, not as qbuf" -tags tcp-only -needs $whole {
        set raw [socket [srv host] [srv port]]
        fconfigure $raw -translation binary
        puts -nonewline $raw "*3\r\n\$3\r\nSET\r\n\$4\r\nname\r\n\$5\r\nab"
        flush $raw
        wait_for_condition 5000 {[string match "* qbuf=2 * argv-mem=7 *" [r client list]]}
        close $raw
    }
}

test "a crash report takes no lock, and the process ends by the signal" -needs {ours 1} {
    if {[has_sanitizer]} {skip_test "the sanitizer reports crashes"}
    foreach signal {SEGV ABRT} {
        lassign [start_busy_server] process client
        kill_process $signal [spawn_pid $process]
        set got [spawn_wait $process 60000]
        assert_equal SIG$signal [dict get $got code]
        set report [dict get $got out]
        foreach part [list "*=== VALKEY BUG REPORT START*" "*crashed by signal: *(SIG$signal)*" "*STACK TRACE*" \
            "*REGISTERS*" "*connected_clients:2*" "*command: eval*" "*name=victim *transport=tcp*" \
            "*=== VALKEY BUG REPORT END*"] {assert_match $part $report}
    }
}

test "a crash report of a node of a cluster shows the cluster" -needs {ours 1} {
    if {[has_sanitizer]} {skip_test "the sanitizer reports crashes"}
    lassign [serve -- --port PORT --cluster-enabled yes --set-proc-title no] process port
    kill_process SEGV [spawn_pid $process]
    set report [dict get [spawn_wait $process 60000] out]
    assert_match "*CLUSTER INFO OUTPUT ------\ncluster_state:fail*CLUSTER NODES OUTPUT\
        ------\n*:$port@* myself,master - 0 0 0 connected*=== VALKEY BUG REPORT END*" $report
}

test "a condition that does not hold ends the process with a report that names it and its values" -needs {ours 1} {
    if {[has_sanitizer]} {skip_test "the sanitizer reports crashes"}
    lassign [serve -- --port PORT --enable-debug-command yes] process port
    set client [new_client -host 127.0.0.1 -port $port -tcp 1]
    assert {[catch {$client debug assert}]}
    set got [spawn_wait $process 60000]
    assert_equal SIGABRT [dict get $got code]
    assert_match "*=== VALKEY BUG REPORT START*=== ASSERTION FAILED ===*==> *debug.c:* run_assert(): 'one == 2' is not\
        true: one is 1,*crashed by signal*" [dict get $got out]
}
