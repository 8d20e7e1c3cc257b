# The wall clock is set while something waits (programs/preload/wall-clock.c). Everything that waits does so by a
# monotonic clock: nothing ends at once because the clock was set forwards, and nothing waits for an hour because it was
# set backwards. seconds: 15

set ::ahead [file join $::unit_dir ahead]
proc set_clock {seconds} {write_file $::ahead $seconds}
set ::clock_env [list LD_PRELOAD=[tool preload/wall-clock.so] WALL_CLOCK=$::ahead ASAN_OPTIONS=verify_asan_link_order=0]
proc info_field_at {level section name} {dict get [info_dict [r $level info $section]] $name}
proc now_ms {} {clock milliseconds}
# The milliseconds until the client has its reply, which must be `reply`, 10 seconds at the most.
proc reply_after {c reply from} {
    assert_equal $reply [$c -read]
    expr {[now_ms] - $from}
}

set_clock 0
start_server [list env $::clock_env no_rdma 1 overrides {repl-diskless-sync-delay 0 repl-ping-replica-period 1}] {
    set primary [srv id]
    start_server [list env {} no_rdma 1 overrides {repl-diskless-sync-delay 0}] {
        r replicaof [srv -1 host] [srv -1 port]
        wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]}
        wait_for_condition 15000 {[string match "*state=online*" [r -1 info replication]]}

        foreach {direction seconds} {backwards -3600 forwards 3600} {
            test "TIME shows that the clock was set $direction" {
                set_clock $seconds
                wait_for_condition 5000 {
                    abs([lindex [r -1 time] 0] - [clock seconds] - $seconds) <= 2
                } "TIME does not follow the clock"
                set_clock 0
            }

            test "CLIENT PAUSE lasts as long as it says when the clock is set $direction" {
                set c [new_client -level -1]
                set from [now_ms]
                r -1 client pause 600 write
                $c -send set k v
                set_clock $seconds
                assert_range [reply_after $c OK $from] 590 5000
                set_clock 0
            }

            test "WAIT, BLPOP and FAILOVER time out when they say when the clock is set $direction" {
                exec kill -STOP [srv pid]
                set c [new_client -level -1]
                set d [new_client -level -1]
                $d set k v
                set from [now_ms]
                assert_equal OK [r -1 failover timeout 800]
                $c -send blpop nosuch 0.6
                $d -send wait 1 600
                set_clock $seconds
                assert_range [reply_after $c {} $from] 590 5000
                assert_range [reply_after $d 0 $from] 590 5000
                wait_for_condition 5000 {[string match *master_failover_state:no-failover* [r -1 info replication]]}
                assert_range [expr {[now_ms] - $from}] 790 5000
                set_clock 0
                exec kill -CONT [srv pid]
                wait_for_condition 15000 {[string match {*,lag=[01]*} [r -1 info replication]]}
            }

            test "an idle client and a replica stay when the clock is set $direction" {
                set c [new_client -level -1]
                assert_equal PONG [$c ping]
                r -1 config set timeout 100 min-replicas-to-write 1
                set from [log_size -1]
                set_clock $seconds
                r -1 set k v
                # Two rounds of the cron, which looks for clients and replicas that are silent.
                set pings [info_field_at -1 stats total_reads_processed]
                wait_for_condition 5000 {[info_field_at -1 stats total_reads_processed] > $pings + 20}
                assert_equal OK [r -1 set k v]
                assert_equal PONG [$c ping]
                assert_match {*age=?* idle=[0-5] *} [r -1 client list id [$c client id]]
                assert_equal 1 [info_field_at -1 replication connected_slaves]
                assert_not_match "*Disconnecting timedout replica*" [log_text $from -1]
                assert_lessthan [info_field_at -1 server uptime_in_seconds] 600
                r -1 config set timeout 0 min-replicas-to-write 0
                set_clock 0
            }
        }

        test "idle clients and silent replicas end although the clock was set backwards" {
            set c [new_client -level -1]
            assert_equal PONG [$c ping]
            r -1 config set timeout 1 repl-timeout 2
            exec kill -STOP [srv pid]
            set_clock -3600
            assert_closed $c 10000
            reconnect -1 ;# its client was idle, too
            wait_for_condition 10000 {[info_field_at -1 replication connected_slaves] == 0}
            exec kill -CONT [srv pid]
            reconnect -1
            r -1 config set timeout 0 repl-timeout 60
            set_clock 0
        }

        test "a replica notices a silent primary although its clock was set backwards" {
            # The server with the clock is the replica now.
            r replicaof no one
            r -1 replicaof [srv host] [srv port]
            wait_for_condition 15000 {[string match "*master_link_status:up*" [r -1 info replication]]}
            r -1 config set repl-timeout 2
            exec kill -STOP [srv pid]
            set_clock -3600
            wait_for_condition 10000 {[string match "*master_link_status:down*" [r -1 info replication]]}
            exec kill -CONT [srv pid]
            r -1 replicaof no one
            set_clock 0
        }

        test "SHUTDOWN waits for replicas as long as it says when the clock is set backwards" {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]}
            wait_for_condition 15000 {[string match "*state=online*" [r -1 info replication]]}
            exec kill -STOP [srv pid]
            r -1 set k v
            r -1 config set shutdown-timeout 1
            set pid [srv -1 pid]
            set ::server($primary,expect_exit) 1
            [new_client -level -1] -send shutdown
            wait_for_log "*Waiting for replicas before shutting down*" 0 5000 -1
            set_clock -3600
            wait_for_condition 10000 {![process_alive $pid]}
            exec kill -CONT [srv pid]
        }
    }
}
