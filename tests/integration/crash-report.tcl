# The report of a crash is complete whatever the process was doing, and the process ends. seconds: 2

# Sanitizers write reports of their own instead.
proc has_sanitizer {} {expr {![catch {exec ldd $::opt(server)} libraries] && [regexp {lib[at]san} $libraries]}}

# A server that executes a script without end for a client whose connection belongs to an I/O thread: {process client}.
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
