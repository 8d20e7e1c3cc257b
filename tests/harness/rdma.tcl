# Helpers for suites of the RDMA transport: separate client processes, faults of the software device, counted resources,
# a client that works during a test.

proc software_device {} {string match *softrdma* $::opt(launcher)}
# For -needs.
set ::on_software_device {device software}
# For tests that need one device context for all connections, or the exact current state in CLIENT LIST.
set ::without_threads {true {[software_device] && $::opt(io_threads) <= 1}}

# Starts a program with a pipe to it: {process id, channel}. It is killed at the end of the test.
proc open_beside {args} {
    set chan [open [concat [list |] $args [list 2>> $::unit_dir/beside.err]] r+]
    fconfigure $chan -blocking 0 -buffering line
    set pid [lindex [pid $chan] end]
    at_test_end [list catch [list close $chan]]
    at_test_end [list kill_process KILL $pid]
    return [list $pid $chan]
}
proc line_of {chan what} {
    set end [resp::deadline 10000]
    while {[gets $chan line] < 0} {
        if {[eof $chan]} {error "$what ended: [file_bytes $::unit_dir/beside.err]"}
        resp::wait_channel $chan readable $end "$what was not ready"
    }
    return $line
}

# A separate proxy, as a client process that can be killed separately or whose device has faults (-env): {process id,
# port}.
proc own_proxy {args} {
    set o [dict merge [list -host $::opt(rdma_host) -port "" -env "" -source ""] $args]
    if {[dict get $o -port] eq ""} {dict set o -port [srv port]}
    set source [expr {[dict get $o -source] eq "" ? {} : [list --source [dict get $o -source]]}]
    lassign [open_beside env {*}[dict get $o -env] {*}$::opt(launcher) [tool rdma-proxy] --listen-port 0 --rdma-host \
        [dict get $o -host] \
        --rdma-port [dict get $o -port] {*}$source] pid chan
    regexp {ready (\d+)} [line_of $chan "the proxy"] -> port
    return [list $pid $port]
}

# Connections that rdma-hostile holds in a given state: {process id, channel}.
proc hold {posture count} {
    lassign [open_beside {*}$::opt(launcher) [tool rdma-hostile] --host $::opt(rdma_host) --port [srv port] \
        --hold $posture --cases $count] pid chan
    assert_equal "holding $count" [line_of $chan rdma-hostile]
    return [list $pid $chan]
}

# True: a server replies over RDMA on that port.
proc answers {port {host ""}} {
    if {$host eq ""} {set host $::opt(rdma_host)}
    set got [run -timeout 60 {*}$::opt(launcher) [tool rdma-hostile] --host $host --port $port --kind lawful_ping \
        --cases 1 --wait 20000]
    expr {[dict get $got code] eq 0}
}

# --- Faults --------------------------------------------------------------------

# Options of start_server for a server whose device has fault rules, each inactive until `fault NAME`: rules is {NAME
# RULE ...}.
proc with_faults {rules args} {
    set dir [file join $::unit_dir faults]
    file mkdir $dir
    set text {}
    foreach {name rule} $rules {lappend text "$rule,while=$dir/$name"}
    dict set args env [list SOFTRDMA_FAULTS=[join $text \;] \
        {*}[expr {[dict exists $args env] ? [dict get $args env] : ""}]]
    return $args
}
# Activates a rule until the end of the test; with the number of a queue pair only for that one.
proc fault {name {qp ""}} {
    set file [file join $::unit_dir faults $name]
    write_file $file.new $qp
    file rename -force $file.new $file
    at_test_end [list file delete $file]
}
proc fault_end {name} {file delete [file join $::unit_dir faults $name]}
# The server's queue pair of a client.
proc queue_pair_of {client} {dict get [client_fields [$client client info]] qp}

# --- Resources -----------------------------------------------------------------

# The resources that the server uses, without caches. Queried over TCP, so that the query does not count itself.
proc held {} {
    set t $::resources_client
    $t debug rdma trim
    set got [$t debug rdma resources]
    dict set got fds [llength [set ::held_descriptors [descriptors_of [srv pid]]]]
    regexp {connected_clients:(\d+)} [$t info clients] -> n
    dict set got clients $n
}

# Event descriptors are not counted: the software device receives those of a peer process when it first wakes that
# process.
proc descriptors_of {pid} {
    set out {}
    foreach link [glob -nocomplain -directory /proc/$pid/fd *] {
        if {![catch {file readlink $link} target] && ![string match "*eventfd*" $target]} {
            lappend out "[file tail $link] $target"
        }
    }
    return [lsort -dictionary $out]
}

# Runs the body while another client works, which must not be affected. After the body and its at_test_end scripts, all
# resources must have been released.
proc unharmed {body} {
    set ::resources_client [new_client -tcp 1]
    r ping
    # Each thread for clients has its own device context from its first client on.
    set first {}
    set others [dict get [held] connections]
    for {set i 1} {$i < 2 * $::opt(io_threads)} {incr i} {lappend first [new_client]; [lindex $first end] ping}
    foreach c $first {$c -close}
    if {$first ne ""} {wait_for_condition 5000 {[dict get [held] connections] <= $others}}
    # Replies may stay in send memory until the transport's next tick.
    wait_for_condition 5000 {[dict get [held] send-chunks-used] == 0}
    set before [held]
    set descriptors $::held_descriptors
    set steady [steady_start]
    set ends [llength $::at_end]
    set clients $::test_clients
    uplevel 1 $body
    foreach script [lreverse [lrange $::at_end $ends end]] {catch {uplevel #0 $script}}
    set ::at_end [lrange $::at_end 0 $ends-1]
    foreach c $::test_clients {if {$c ni $clients} {catch {$c -close}}}
    steady_stop $steady
    # Queues that were added for many connections are kept.
    set exact [lsearch -all -inline -not -exact [dict keys $before] completion-queues]
    wait_held $exact $before $descriptors
}
proc wait_held {names wanted descriptors} {
    set end [expr {[clock milliseconds] + 5000 * $::test_patience}]
    while {1} {
        set now [held]
        set differing {}
        foreach n $names {
            if {[dict get $now $n] != [dict get $wanted $n]} {
                lappend differing "$n: [dict get $wanted $n] before, [dict get $now $n] now"
            }
        }
        if {$differing eq ""} return
        if {[clock milliseconds] > $end} {
            foreach d $::held_descriptors {if {$d ni $descriptors} {lappend differing "descriptor $d is new"}}
            fail "not given back: [join $differing {; }]"
        }
        after 10
    }
}

# --- Snapshots that a replica fetches ---------------------------------------------

# Makes a replica fetch a snapshot, and stops the save that writes it after a chunk was fetched and before half of the
# `size` bytes were written. The save goes on when rdb-key-save-delay is 0. `primary` and `replica` are commands that
# query the two servers. `begin` makes the replica need a snapshot, in any state: it is repeated if the machine was too
# slow and the synchronization ended first.
proc hold_snapshot {primary replica size begin} {
    set ask {{client name} {
        if {[catch {{*}$client info replication} text]} {return ""}
        expr {[regexp "\n$name:(\[^\r\n\]*)" $text -> value] ? $value : ""}
    }}
    set read [list apply $ask $replica master_sync_rdma_read_bytes]
    regexp {[0-9]+} [{*}$primary config get rdb-key-save-delay] delay
    while {1} {
        {*}$primary config set rdb-key-save-delay $delay
        uplevel 1 $begin
        wait_for_condition 60000 \
            {[set got [{*}$read]] ne "" && $got > 0 || [apply $ask $replica master_link_status] eq "up"}
        {*}$primary config set rdb-key-save-delay 1000000000
        set written [apply $ask $primary rdma_sync_bytes]
        if {$written ne "" && $written < $size / 2 && [{*}$read] ne ""} return
        {*}$primary config set rdb-key-save-delay 0
        wait_for_condition 60000 {[apply $ask $replica master_link_status] eq "up"}
    }
}

# --- The steady client ----------------------------------------------------------

proc steady_start {args} {
    set o [dict merge [list -port [srv client_port]] $args]
    lassign [open_beside [info nameofexecutable] [file join $::root tests programs steady-client.tcl] \
        [dict get $o -port]] pid chan
    assert_equal "working" [line_of $chan "the steady client"]
    return $chan
}
# The longest time that it waited for a reply, in milliseconds.
proc steady_stop {chan} {
    catch {puts $chan end} ;# one that has ended has said why
    set line [line_of $chan "the steady client"]
    if {![regexp {^(\d+) replies, slowest (\d+) ms$} $line -> replies slowest]} {fail "the steady client: $line"}
    assert_morethan $replies 0
    return $slowest
}
