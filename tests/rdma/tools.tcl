# The command line tools over RDMA.
# seconds: 5

proc tool_of_ours {name} {return [file join $::root src $name]}
proc over_rdma {name args} {
    run -timeout 50 {*}$::opt(launcher) [tool_of_ours $name] --rdma {*}[tls_tool_options] -h $::opt(rdma_host) \
        -p [srv port] {*}$args
}
set cli [tool_of_ours valkey-cli]
set bench [tool_of_ours valkey-benchmark]

start_server {} {
    test "valkey-cli --rdma runs one command" -needs [list file $cli] {
        set got [over_rdma valkey-cli set k "over rdma"]
        assert_equal {0 OK} [list [dict get $got code] [string trim [dict get $got out]]]
        assert_equal "over rdma" [r get k]
        set got [over_rdma valkey-cli get k]
        assert_equal "over rdma" [string trim [dict get $got out]]
        set got [over_rdma valkey-cli -3 client info]
        assert_match "*resp=3*" [dict get $got out]
        assert_match "*rdma*" [dict get $got out]
    }

    test "valkey-cli --rdma takes commands from standard input" -needs [list file $cli] {
        set in ""
        for {set i 0} {$i < 500} {incr i} {append in "set in:$i $i\n"}
        set got [run -stdin $in {*}$::opt(launcher) $::cli --rdma {*}[tls_tool_options] -h $::opt(rdma_host) \
            -p [srv port]]
        assert_equal 0 [dict get $got code]
        assert_equal 499 [r get in:499]
    }

    test "valkey-cli --rdma fetches a value larger than its receive buffer" -needs [list file $cli] {
        r set big [set big [numbered 5000000]]
        set got [over_rdma valkey-cli get big]
        assert_equal $big [string trim [dict get $got out]]
        r del big
    }

    test "valkey-cli --rdma --rdb copies all data, diskless or not" -needs [list file $cli] {
        r flushall
        r set large [numbered 3000000]
        for {set i 0} {$i < 500} {incr i} {r hset hash field:$i $i}
        set digest [r debug digest]
        foreach diskless {yes no} {
            r config set repl-diskless-sync $diskless repl-diskless-sync-delay 0
            set dir [file join $::unit_dir rdb[incr ::server_next]]
            file mkdir $dir
            set got [over_rdma valkey-cli --rdb $dir/dump.rdb]
            assert_equal 0 [dict get $got code] [dict get $got err]
            assert_match "*\nTransfer finished with success*" [dict get $got err]
            lassign [serve -dir $dir -- --port PORT --dir DIR --enable-debug-command yes] handle port
            set client [new_client -port $port]
            assert_equal $digest [$client debug digest]
            $client -close
            kill_process TERM [spawn_pid $handle]
            spawn_wait $handle
        }
        r config set repl-diskless-sync yes
        r flushall
    }

    test "valkey-cli --rdma says when nobody listens" -needs [list file $cli] {
        set got [run {*}$::opt(launcher) $::cli --rdma -h $::opt(rdma_host) -p [free_port] ping]
        assert_equal 1 [dict get $got code]
        assert_match "*Could not connect*" [dict get $got out][dict get $got err]
    }

    test "valkey-benchmark --rdma runs its tests" -needs [list file $bench] {
        set got [over_rdma valkey-benchmark -n [scaled 20000 400] -c [scaled 20 4] -q -t ping,set,get]
        assert_equal 0 [dict get $got code] [dict get $got out][dict get $got err]
        foreach name {PING_INLINE PING_MBULK SET GET} {
            assert_regexp "$name: \[0-9.]+ requests per second" [dict get $got out]
        }
        assert_equal 0 [regexp -nocase {error} [dict get $got out][dict get $got err]]
        wait_for_condition 5000 {[info_field clients connected_clients] == 1}
    }

    test "valkey-benchmark --rdma with pipelines, big values and threads" -needs [list file $bench] {
        foreach args {{-P 32 -n 50000 -c 10 -t set,get} {--threads 2 -n 20000 -c 20 -t get}\
            {-d 100000 -n 2000 -c 5 -t set,get} {-d 2000000 -n 60 -c 3 -t set,get}} {
            dict set args -n [scaled [dict get $args -n] [expr {[dict exists $args -d] ? 4 : 1000}]]
            dict set args -c [scaled [dict get $args -c] 4]
            set got [over_rdma valkey-benchmark -q {*}$args]
            assert_equal 0 [dict get $got code] "$args: [dict get $got out][dict get $got err]"
            assert_regexp "requests per second" [dict get $got out]
        }
    }

    # The features of the tools' connections, as the server sees them once they have agreed: requests do not wait for
    # that.
    proc features_seen {args} {
        set got [over_rdma valkey-cli {*}$args -r 5 client info]
        set seen [regexp -all -inline {rdma-features=\S+} [dict get $got out]]
        if {[llength $seen] != 5} {fail [dict get $got out][dict get $got err]}
        return [string range [lindex $seen end] 14 end]
    }
    proc tools_work {args} {
        r set big [set big [numbered 300000]]
        set got [over_rdma valkey-cli {*}$args get big]
        assert_equal $big [string trim [dict get $got out]]
        foreach load {{-P 16 -n 4000 -c 5 -d 100 -t ping,set,get} {-n 300 -c 3 -d 200000 -t set,get}} {
            dict set load -n [scaled [dict get $load -n] 64]
            set got [over_rdma valkey-benchmark {*}$args -q {*}$load]
            assert_equal 0 [dict get $got code] "$args $load: [dict get $got out][dict get $got err]"
            assert_equal 0 [regexp -nocase {error} [dict get $got out][dict get $got err]]
        }
    }

    test "the tools and the server agree on all features, and credits flow" -needs [list file $cli] {
        assert_equal ring,polled [features_seen]
        set before [info_field rdma rdma_credits_out]
        tools_work
        assert_morethan [info_field rdma rdma_credits_out] $before
    }

    test "--rdma-base-protocol keeps the tools to the base protocol" -needs [list file $cli] {
        assert_equal none [features_seen --rdma-base-protocol]
        wait_for_condition 5000 {[info_field clients connected_clients] == 1}
        set before [info_field rdma rdma_credits_out]
        set rings [info_field rdma rdma_ring_connections]
        tools_work --rdma-base-protocol
        assert_equal $rings [info_field rdma rdma_ring_connections]
        assert_morethan [expr {$before + 20}] [info_field rdma rdma_credits_out]; # those of this connection
    }

    test "a server that offers nothing is used in the base protocol" -needs [list file $cli] {
        r config set rdma-features none
        assert_equal none [features_seen]
        tools_work
        assert_equal 0 [info_field rdma rdma_errors_protocol]
        r config set rdma-features "ring polled"
        assert_equal ring,polled [features_seen]
    }

    test "valkey-benchmark names its transport" -needs [list file $bench] {
        set got [over_rdma valkey-benchmark -n 100 -c 2 -t ping]
        assert_match "*rdma*" [string tolower [dict get $got out]]
    }

    test "two benchmarks and a client at the same time" -needs [list file $bench] {
        set a [spawn {*}$::opt(launcher) $::bench --rdma {*}[tls_tool_options] -h $::opt(rdma_host) -p [srv port] -q \
            -n [scaled 30000 600] -c [scaled 10 4] -P 4 -t set]
        set b [spawn $::bench -h 127.0.0.1 -p [srv port] -q -n [scaled 30000 600] -c [scaled 10 4] -P 4 -t get]
        for {set i 0} {$i < [scaled 200 50]} {incr i} {assert_equal PONG [r ping]}
        assert_equal 0 [dict get [spawn_wait $a 40000] code]
        assert_equal 0 [dict get [spawn_wait $b 40000] code]
    }

    test "valkey-benchmark killed in the middle harms nobody" -needs [list file $bench] {
        set a [spawn {*}$::opt(launcher) $::bench --rdma {*}[tls_tool_options] -h $::opt(rdma_host) -p [srv port] -q \
            -n 100000000 -c 30 -P 16 -d 1000 -t set,get]
        wait_for_condition 10000 {[info_field clients connected_clients] > 30}
        after 100
        kill_process KILL [spawn_pid $a]
        assert_equal PONG [r ping]
        wait_for_condition 20000 {[info_field clients connected_clients] == 1}
        assert_equal PONG [r ping]
    }
}
