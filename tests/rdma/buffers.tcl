# Registered memory: receive buffers that begin small, grow with use and shrink; its limits; which clients are refused,
# and why. seconds: 12

proc rx_of {client} {dict get [client_fields [$client client info]] rx}
proc rdma_field {name} {info_field rdma rdma_$name}
# Requests of `bytes` in total, in portions whose replies are read.
proc send_pings {client bytes} {
    for {set sent 0} {$sent < $bytes} {incr sent 6000} {
        $client -write [string repeat "PING\r\n" 1000]
        for {set i 0} {$i < 1000} {incr i} {$client -readline}
    }
}
# Very many clients in one process: {process id, channel}; its "ready" line is in ::crowd_ready.
proc crowd {count} {
    lassign [open_beside {*}$::opt(launcher) [tool transport-bench] crowd rdma $::opt(rdma_host) [srv port] $count] \
        pid chan
    set ::crowd_ready [line_of $chan "the crowd"]
    return [list $pid $chan]
}

# Why the kernel makes no huge pages of memory that asks for them in a process with `disable-thp yes`; "": it does.
proc no_huge_pages {} {
    if {[catch {file_bytes /sys/kernel/mm/transparent_hugepage/enabled} modes]} {return "this kernel has no huge pages"}
    if {[string match {*\[never\]*} $modes]} {return "transparent huge pages are off on this machine"}
    regexp {^(\d+)\.(\d+)} $::tcl_platform(osVersion) -> major minor
    if {[string match {*\[always\]*} $modes] && $major * 1000 + $minor < 6018} {
        return "before Linux 6.18 disable-thp turns off all huge pages where the system always makes them"
    }
    return ""
}

start_server {} {
    test "disable-thp yes leaves huge pages to registered memory" -needs {ours 1} {
        set why [no_huge_pages]
        if {$why ne ""} {skip_test $why}
        assert_equal yes [config_get disable-thp]
        [new_client] ping
        set pid [info_field server process_id]
        assert_match "*\nTHP_enabled:\t1\n*" [file_bytes /proc/$pid/status]
        # Regions with the flag of MADV_HUGEPAGE.
        assert {[regexp -line {^VmFlags:.* hg( |$)} [file_bytes /proc/$pid/smaps]]}
    }

    test "a connection begins small, grows for large values and shrinks when it has become slow" \
        -needs $::without_threads {
        set c [new_client]
        assert_equal 32768 [rx_of $c]
        $c set big [string repeat x 3000000]
        assert_equal 1048576 [rx_of $c]
        assert_equal 3000000 [$c strlen big]
        # Longer than half a second to fill it is too long.
        for {set round 0} {$round < 40 && [rx_of $c] == 1048576} {incr round} {
            after 150
            $c echo [string repeat y 60000]
        }
        assert_lessthan [rx_of $c] 1048576
        assert_morethan [rdma_field receive_buffers_shrunk] 0
        $c del big
    }

    test "what a quiet connection has registered is its first buffer" {
        set t [new_client -tcp 1]
        r ping
        set before [rdma_field registered_receive_bytes]
        set connections [rdma_field connections]
        set n [scaled 300 30]
        lassign [crowd $n] pid chan
        assert_equal "ready $n refused 0" $::crowd_ready
        assert_morethan [rdma_field connections] [expr {$n - 1}]
        assert_lessthan [expr {([rdma_field registered_receive_bytes] - $before) / $n}] 49152
        foreach round {1 2} {
            puts $chan ask
            assert_equal "answered $n wrong 0 lost 0" [line_of $chan "the crowd"]
        }
        close $chan
        wait_for_condition 20000 {[rdma_field connections] <= $connections}
        # A MiB of ready buffers is kept, by each thread.
        wait_for_condition 20000 \
            {[rdma_field registered_receive_bytes] <= $before + 1048576 * max(1, $::opt(io_threads))}
        $t debug rdma trim
        assert_lessthan [rdma_field registered_receive_bytes] [expr {$before + 1}]
    }
}

start_server {} {
    # What rdma-base-load prints: requests a second, CPU, milliseconds of the start, changes of the size, waits a batch.
    proc base_load {args} {
        set got [run -timeout 60 {*}$::opt(launcher) [tool rdma-base-load] $::opt(rdma_host) [srv port] {*}$args]
        if {[dict get $got code] != 0} {fail $got}
        return [dict get $got out]
    }
    foreach {about arguments changes waits} {
        "one value of 1 MiB"            {set 3 1 1048576 0.2} 2 0
        "a batch of 256 KiB"            {set 3 16 16384 0.2}  3 0
        "a batch of 1 MiB"              {set 3 16 65536 0.2}  3 0
        "a batch of 4 MiB, in 4 parts"  {set 3 16 262144 0.2} 3 3
    } {
        test "a stock client's buffers end with its writes after two of them: $about" {
            lassign [base_load {*}$arguments] rate cpu start changed waited
            assert_morethan $rate 0
            assert_lessthan $changed [expr {$changes + 0.01}]
            assert_lessthan $waited [expr {$waits + 0.1}]
        }
    }
    test "a stock client gets large values" {
        assert_morethan [lindex [base_load get 3 16 262144 0.2] 0] 0
    }
}

start_server {overrides {requirepass secret} auth secret} {
    test "without the password a client gets no more than its first buffer, however much it sends" \
        -needs $::without_threads {
        set c [new_client]
        set watcher [new_client -auth secret]
        send_pings $c [scaled 600000 200000]
        assert_equal 0 [rdma_field receive_buffers_grown]
        assert_equal 32768 [rdma_field unauthenticated_receive_bytes]
        set lines [lsearch -all -inline -regexp [split [$watcher client list] \n] {cmd=(ping|NULL) }]
        assert_equal 1 [llength $lines]
        assert_match "* rx=32768*" [lindex $lines 0]
        assert_equal OK [$c auth secret]
        assert_equal 0 [rdma_field unauthenticated_receive_bytes]
        $c set big [string repeat x 3000000]
        # The records of a value are sent one by one.
        if {!$::opt(tls)} {assert_equal 1048576 [rx_of $c]}
        $c reset
        assert_error_like NOAUTH* {$c get big}
    }

    test "clients without the password share a bound, and others are refused with its name on the log" {
        r config set rdma-max-unauthenticated-memory 100000
        set from [log_size]
        lassign [crowd 5] pid chan
        assert_match "ready 3 refused 2*" $::crowd_ready
        assert_equal 2 [rdma_field refused_unauthenticated_memory]
        wait_for_log "rdma-max-unauthenticated-memory" $from
        r config set rdma-max-unauthenticated-memory 0
        assert_equal PONG [[new_client -auth secret] ping]
    }
}

start_server {overrides {requirepass secret rdma-max-unauthenticated-memory 100000 rdma-authentication-timeout-ms\
    1000} auth secret} {
    test "silent clients without the password do not keep others out for longer than their time" {
        r ping
        set from [log_size]
        hold idle 3
        assert_equal 98304 [rdma_field unauthenticated_receive_bytes]
        assert_equal 0 [rdma_field unauthenticated_closed]
        wait_for_condition 10000 {![catch {[new_client -auth secret] ping}]}
        assert_morethan [rdma_field unauthenticated_closed] 0
        wait_for_log "which has not authenticated in 1000 ms, for another client" $from
        assert_range [rdma_field unauthenticated_receive_bytes] 32768 65536
    }
}

start_server {overrides {rdma-max-registered-memory 8388608}} {
    test "at the bound buffers stay small and further clients are refused, and those there are served" {
        r ping
        set from [log_size]
        lassign [crowd 250] pid chan
        regexp {ready (\d+) refused (\d+)} $::crowd_ready -> opened refused
        assert_equal 250 [expr {$opened + $refused}]
        assert_morethan $opened 100
        assert_morethan $refused 20
        assert_equal $refused [rdma_field refused_registered_memory]
        assert_lessthan [rdma_field registered_bytes] 8388609
        wait_for_log "rdma-max-registered-memory" $from
        puts $chan ask
        assert_equal "answered $opened wrong 0 lost 0" [line_of $chan "the crowd"]
        set grown [rdma_field receive_buffers_grown]
        set big [numbered 2000000]
        r set big $big
        assert_equal $big [r get big]
        assert_equal $grown [rdma_field receive_buffers_grown]
        r config set rdma-max-registered-memory 0
        assert_equal PONG [[new_client] ping]
        r set big [string repeat x 2000000]
        assert_morethan [rdma_field receive_buffers_grown] $grown
    }

    test "a bound that is too small for the transport is refused" {
        assert_error_like "*argument must be 0 or at least 8388608*" {r config set rdma-max-registered-memory 1mb}
    }
}

start_server {overrides {maxclients 20}} {
    test "a flood beyond maxclients is mostly refused before anything is spent on it" \
        -needs {clear "peers that have not begun TLS are no clients yet"} {
        r ping
        set stay {}
        for {set i 0} {$i < 19} {incr i} {lappend stay [new_client]; [lindex $stay end] ping}
        set before [rdma_field registered_receive_bytes]
        set began [clock milliseconds]
        lassign [crowd 400] pid chan
        set most [expr {100 * (([clock milliseconds] - $began) / 1000 + 2)}]
        # Some were accepted to send them the reason, at most a hundred a second; how many of the 400 depends on the
        # machine's speed.
        wait_for_condition 5000 {[info_field stats rejected_connections] + [rdma_field refused_full] == 400}
        assert_morethan [info_field stats rejected_connections] 10
        assert_lessthan [info_field stats rejected_connections] [expr {$most + 1}]
        wait_for_condition 20000 {[rdma_field connections] == 20}
        foreach c $stay {assert_equal PONG [$c ping]}
        close $chan
        [lindex $stay 0] -close
        wait_for_condition 5000 {[info_field clients connected_clients] == 19}
        assert_equal PONG [[new_client] ping]
    }
}
