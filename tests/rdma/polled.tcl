# Messages of busy clients are detected by polling memory, as long as both ends are awake.
# seconds: 10

set bench [file join $::root src valkey-benchmark]
set cli [file join $::root src valkey-cli]

# Both ends spin for so long that they seldom sleep, however loaded the machine is.
proc busy_load {args} {
    set got [run -timeout 60 {*}$::opt(launcher) $::bench --rdma -h $::opt(rdma_host) -p [srv port] \
        --rdma-busy-poll-us 50000 -q {*}$args]
    assert_equal 0 [dict get $got code] [dict get $got out][dict get $got err]
    assert_equal 0 [regexp -nocase {error} [dict get $got out][dict get $got err]]
}
proc polled_during {script} {
    set in [info_field rdma rdma_polled_messages_in]
    set out [info_field rdma rdma_polled_messages_out]
    uplevel 1 $script
    list [expr {[info_field rdma rdma_polled_messages_in] - $in}] \
        [expr {[info_field rdma rdma_polled_messages_out] - $out}]
}

# Repeats the load until both numbers of polled messages are large enough: ends that are not scheduled for long do not
# poll.
proc until_polled {in_least out_least script} {
    for {set i 0} {$i < 20} {incr i} {
        lassign [uplevel 1 [list polled_during $script]] in out
        if {$in >= $in_least && $out >= $out_least} {return [list $in $out]}
    }
    fail "$in messages from clients were polled and $out to them, not $in_least and $out_least"
}

start_server {overrides {rdma-busy-poll-us 50000}} {
    test "most messages of busy clients, and to them, are polled" -needs [list file $bench] {
        set least [scaled 20000 1000]
        until_polled $least $least {busy_load -n [scaled 60000 6000] -c [scaled 4 1] -t get}
    }

    test "pipelines and values of every size pass while it is polled" -needs [list file $bench] {
        foreach load {{-P 16 -n 60000 -c 4 -d 100} {-n 2000 -c 4 -d 20000} {-n 300 -c 2 -d 200000}} {
            dict set load -n [scaled [dict get $load -n] 200]
            busy_load {*}$load -t set,get
        }
        assert_equal 0 [info_field rdma rdma_errors_protocol]
    }

    test "large messages go by immediates while small ones are polled" -needs [list file $bench] {
        busy_load -n 100 -c 1 -d 5000 -t set
        lassign [until_polled [scaled 7000 500] 0 {busy_load -n [scaled 20000 3000] -c 2 -t get}] in out
        assert_lessthan $out [expr {$in / 2}]
        r flushall
    }

    test "a quiet peer is no longer polled, and its next request is answered" -needs [list file $bench] {
        busy_load -n [scaled 20000 2000] -c 2 -t get
        set watcher [new_client -tcp 1]
        wait_for_condition 10000 {[regexp {rdma_polled_connections:0\r} [$watcher info rdma]]}
        for {set i 0} {$i < 3} {incr i} {assert_equal $i [r echo $i]}
    }

    test "requests after sleeps of any length are answered" {
        r config set rdma-busy-poll-us 100
        set c [new_client]
        for {set i 0} {$i < [scaled 150]} {incr i} {
            for {set k 0} {$k < 80} {incr k} {$c -send echo $k}
            for {set k 0} {$k < 80} {incr k} {assert_equal $k [$c -read]}
            after [expr {$i % 4}]
        }
        r config set rdma-busy-poll-us 50000
    }

    test "polled alone works without the ring" -needs [list file $bench] {
        r flushall
        r config set rdma-features polled
        set least [scaled 10000 500]
        until_polled $least $least {
            busy_load -n [scaled 30000 4000] -c [scaled 4 1] -t get
            busy_load -n [scaled 300 100] -c 2 -d 100000 -t set,get
        }
        r config set rdma-features "ring polled"
    }
}

start_server {overrides {rdma-busy-poll-us 50000 rdma-features ring}} {
    test "rdma-features without polled leaves it out" -needs [list file $bench file $cli] {
        set got [run -timeout 50 {*}$::opt(launcher) $::cli --rdma -h $::opt(rdma_host) -p [srv port] -r 5 client info]
        assert_match "*rdma-features=ring\n*" [dict get $got out]
        assert_equal {0 0} [polled_during {busy_load -n [scaled 10000 1000] -c 2 -t get}]
    }
}

# Memory may show the writes of one connection in another order than that in which they were posted. The device
# withholds cache lines of every second write, for the server's replies and for the requests of a client that compares
# each reply with what it stored.
set out_of_order {SOFTRDMA_FAULTS=write:scatter=1-200,p=50,seed=4}
start_server [list overrides {rdma-busy-poll-us 50000} env $out_of_order] {
    test "requests and replies whose bytes show after their word are read right" -needs $::on_software_device \
        -timeout 120 {
        lassign [own_proxy -env $out_of_order] pid port
        set c [new_client -host 127.0.0.1 -port $port]
        set reread [info_field rdma rdma_polled_words_reread]
        for {set i 0} {$i < [scaled 60 10]} {incr i} {
            set values {}
            for {set k 0} {$k < 100} {incr k} {
                set value [randstring 0 [expr {$k % 10 ? 700 : 5000}] binary]
                lappend values $value
                $c -send set key:$k $value
                $c -send get key:$k
            }
            foreach value $values {
                assert_equal OK [$c -read]
                assert_equal $value [$c -read]
            }
        }
        assert_morethan [info_field rdma rdma_polled_words_reread] $reread
        assert_equal 0 [info_field rdma rdma_errors_protocol]
        kill_process KILL $pid
    }

    test "a busy load passes while memory shows writes out of order" -needs $::on_software_device -timeout 120 {
        foreach load {{-n 20000 -c 4 -d 64} {-n 20000 -c 4 -d 64 -P 16} {-n 1000 -c 4 -d 20000}} {
            dict set load -n [scaled [dict get $load -n] 200]
            set got [run -timeout 110 env {*}$::out_of_order {*}$::opt(launcher) $::bench --rdma -h $::opt(rdma_host) \
                -p [srv port] \
                --rdma-busy-poll-us 50000 -q {*}$load -t set,get]
            assert_equal 0 [dict get $got code] [dict get $got out][dict get $got err]
            assert_equal 0 [regexp -nocase {error} [dict get $got out][dict get $got err]]
        }
        assert_equal 0 [info_field rdma rdma_errors_protocol]
    }
}
