# Direct placement by libvalkeyrdma (regions and the placement client) and by its Python package: the checks of
# tests/programs/rdma-placement and of python/tests, against rdma-blob-standin, a server of the BLOB commands that
# misbehaves when a key says so. PLACEMENT_ROUNDS: how often the server is killed under load.
# seconds: 25

set rounds [expr {[info exists env(PLACEMENT_ROUNDS)] ? $env(PLACEMENT_ROUNDS) : 3}]
set client [file join $root build programs rdma-placement]
set standin [file join $root build programs rdma-blob-standin]

proc placement_run {args} {
    run -timeout 100 {*}$::opt(launcher) $::client {*}$args
}

# {spawn handle, port}
proc start_standin {} {
    set port [free_port]
    set id [spawn {*}$::opt(launcher) $::standin $::opt(rdma_host) $port]
    at_test_end [list catch [list kill_process KILL [spawn_pid $id]]]
    wait_for_condition 10000 {[string match "ready*" [spawn_out $id]]} "no stand-in: [spawn_err $id]"
    return [list $id $port]
}

proc assert_check {check args} {
    set got [placement_run $check $::opt(rdma_host) {*}$args]
    assert_equal "0 {ok $check}" [list [dict get $got code] [string trim [dict get $got out]]] [dict get $got err]
}

foreach {check what} {
    values "values go to the server and come back, and missing ones are told"
    lengths "values of any length and place; one that is too large leaves the memory untouched"
    conditions "NX, XX, KEEPTTL and a time to live"
    arguments "wrong arguments are refused before anything is sent; read-only memory can be set from"
    dmabuf "a DMA buffer that the program has not mapped"
    descriptor "batches of two clients complete by one descriptor"
    threads "threads share a client"
    served "a thread that waits is woken by what another one handles"
    window "more requests than may be under way wait in the client"
    cancel "what is cancelled or freed gives its memory back"
    key "a program's own BLOB commands name a region"
    fork "a forked child leaves regions and clients alone"
    connecting "a client connects when told, and says why it cannot"
    replies "errors, redirections and senseless replies have their results"
    deadlines "an item that is late ends its connection, and nothing is written after that"
    freeing "a region that is freed under way is written no more"
} {
    test "placement: $what" -needs [list file $client {*}$::on_software_device] {
        lassign [start_standin] id port
        assert_check $check $port
    }
}

test "placement: a region that the device does not deregister is written no more, and ends with the device context" \
    -needs [list file $client {*}$::on_software_device] {
    lassign [start_standin] id port
    set stats [file join $::unit_dir kept.stats]
    set got [run -timeout 100 env SOFTRDMA_STATS=$stats {*}$::opt(launcher) $client kept $::opt(rdma_host) $port]
    assert_equal "0 {ok kept}" [list [dict get $got code] [string trim [dict get $got out]]] [dict get $got err]
    foreach counter {mrs pds qps} {assert_match "*\n$counter:0\n*" "\n[file_bytes $stats]"}
}

test "placement: a server that was frozen beyond the deadline neither writes nor reads the memory" \
    -needs [list file $client {*}$::on_software_device] {
    lassign [start_standin] id port
    assert_check frozen $port [spawn_pid $id]
}

test "placement: a server that is killed under load leaves right values and untouched memory" \
    -needs [list file $client {*}$::on_software_device] -timeout 300 {
    for {set round 0} {$round < $rounds} {incr round} {
        lassign [start_standin] id port
        set load [spawn {*}$::opt(launcher) $::client load $::opt(rdma_host) $port 60]
        wait_for_condition 10000 {[string match "running*" [spawn_out $load]]} "no load: [spawn_err $load]"
        after [expr {10 + $round * 7 % 40}]
        kill_process KILL [spawn_pid $id]
        set got [spawn_wait $load 20000]
        assert_equal 0 [dict get $got code] [dict get $got err]
        assert_match "*lost 4 wrong 0: ?*" [dict get $got out]
    }
}

# --- Python ---

set needs_python [list true {[auto_execok python3] ne "" && [file exists $::root/build/lib/libvalkeyrdma.so.1] &&
    ![has_sanitizer]} {*}$::on_software_device]

foreach {name what} {
    test_client "the package for Python, blocking and with asyncio"
    test_lmcache "the connector for LMCache, by a stand-in with its interface"
} {
    test "placement: $what" -needs $needs_python {
        lassign [start_standin] id port
        set got [run -timeout 100 {*}$::opt(launcher) python3 -B [file join $root python tests $name.py] \
            $::opt(rdma_host) $port]
        assert_equal 0 [dict get $got code] [dict get $got err]
    }
}
