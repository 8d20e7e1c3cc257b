# Full synchronizations from a file, as a stream and on two channels: they have the data of one moment whatever clients
# and replicas do meanwhile. seconds: 50

set forkless {repl-diskless-sync-delay 0 save "" enable-debug-command yes rdbcompression no repl-timeout 60}
set modes {
    file {repl-diskless-sync no dual-channel-replication-enabled no}
    stream {repl-diskless-sync yes dual-channel-replication-enabled no}
    dual {repl-diskless-sync yes dual-channel-replication-enabled yes}
}

source [file join $::root tests harness full_copy.tcl]
proc follow {level primary} {r $level replicaof 127.0.0.1 [srv $primary port]}
proc use_mode {mode args} {
    foreach level $args {
        foreach {option value} [dict get $::modes $mode] {r $level config set $option $value}
    }
}

start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
    foreach mode [dict keys $modes] {
        test "the copy by $mode is that of its moment, while clients write, and no process is forked" {
            use_mode $mode -1 0
            fill -1
            set forks [field -1 total_forks stats]
            set mark [log_size -1]
            r -1 config set rdb-key-save-delay 100
            leave 0
            follow 0 -1
            for {set round 0} {$round < 200 && ![link_up 0]} {incr round} {change -1 $round}
            r -1 config set rdb-key-save-delay 0
            wait_up 0
            wait_same -1 0
            assert_equal 0 [r exists own]
            assert_equal $forks [field -1 total_forks stats]
            assert_morethan $round 1
            wait_for_log [expr {$mode eq "file" ? "Background saving started by pid [srv -1 pid], without fork"
                : "Background RDB transfer started by pid [srv -1 pid] to *, without fork"}] $mark 5000 -1
            wait_for_condition 5000 {[saving -1] == 0}
        }

        test "a replica that is killed during the copy by $mode ends the save, and gets another one" {
            use_mode $mode -1 0
            r -1 config set rdb-key-save-delay 1000000
            leave 0
            set mark [log_size -1]
            follow 0 -1
            wait_for_condition 10000 {[saving -1] == 1}
            restart_server -signal KILL
            wait_for_log "last replica dropped, ending the save without fork" $mark 10000 -1
            wait_for_condition 10000 {[saving -1] == 0}
            r -1 config set rdb-key-save-delay 0
            use_mode $mode 0
            follow 0 -1
            wait_up 0
            wait_same -1 0
        }

        test "a flushed, reloaded or demoted primary ends the copy by $mode or completes it" {
            use_mode $mode -1 0
            foreach command {flushall {debug reload} {swapdb 0 3} flushdb} {
                fill -1
                r -1 config set rdb-key-save-delay 1000000
                leave 0
                follow 0 -1
                wait_for_condition 10000 {[saving -1] == 1}
                # DEBUG RELOAD saves, too: at once, and before the other save goes on.
                r -1 multi
                r -1 config set rdb-key-save-delay 0
                r -1 {*}$command
                r -1 set after $command
                r -1 exec
                wait_up 0
                wait_same -1 0
            }
            fill -1
            r -1 config set rdb-key-save-delay 1000000
            leave 0
            follow 0 -1
            wait_for_condition 10000 {[saving -1] == 1}
            r -1 replicaof 127.0.0.1 1
            wait_for_condition 10000 {[saving -1] == 0}
            r -1 replicaof no one
            r -1 config set rdb-key-save-delay 0
            wait_up 0
            wait_same -1 0
        }
    }
}
}

# The replica's own saves. The primary gives its copy slowly, so that one can look at the memory while it is loaded.
start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
    foreach {mode load} {file disabled stream disabled stream flush-before-load stream swapdb dual disabled} {
        foreach {command running appendonly} {
            bgsave rdb_bgsave_in_progress no bgrewriteaof aof_rewrite_in_progress yes
            bgrewriteaof aof_rewrite_in_progress no
        } {
            test "a copy by $mode ($load) ends $command of the replica, and its data (appendonly $appendonly)" {
                use_mode $mode -1 0
                leave 0
                r config set appendonly $appendonly repl-diskless-load $load key-load-delay 0
                wait_for_condition 10000 {[field 0 aof_rewrite_in_progress persistence] == 0 &&
                    [field 0 aof_rewrite_scheduled persistence] == 0}
                r -1 flushall
                r -1 debug populate 20000 new 20
                r debug populate 2000 old 20000
                set old [field 0 used_memory memory]
                set mark [log_size]
                r config set rdb-key-save-delay 1000000000 key-load-delay 1000
                r $command
                wait_for_condition 5000 {[field 0 current_save_keys_processed persistence] > 0}
                assert_equal 1 [field 0 $running persistence]
                follow 0 -1
                wait_for_condition 20000 {[field 0 loading persistence] == 1 ||
                    [field 0 async_loading persistence] == 1}
                wait_for_condition 5000 {[field 0 $running persistence] == 0}
                assert_match [expr {$command eq "bgsave" ? "*Background saving cancelled*" :
                    "*Background AOF rewrite was stopped by the server*"}] [log_text $mark]
                if {$load ne "swapdb"} {
                    wait_for_condition 5000 {[field 0 used_memory memory] < $old / 2}
                }
                assert [field 0 loading persistence]
                r config set rdb-key-save-delay 0 key-load-delay 0
                wait_up 0
                wait_same -1 0
                assert_morethan $old [field 0 used_memory memory]
                if {$appendonly} {
                    wait_for_condition 10000 {[field 0 aof_rewrite_in_progress persistence] == 0 &&
                        [field 0 aof_rewrite_scheduled persistence] == 0}
                    assert_equal ok [field 0 aof_last_bgrewrite_status persistence]
                    set digest [r debug digest]
                    restart_server -signal KILL -overrides {appendonly yes}
                    assert_equal $digest [r debug digest]
                }
            }
        }
    }
}
}

# A large collection is read by a thread, in place, which waits while the replica does not read.
start_server [list no_rdma 1 overrides [concat $forkless {repl-timeout 60 forkless-buffer-limit 16mb}]] {
start_server [list no_rdma 1 overrides $forkless] {
    # Runs the body while the hash is lent; afterwards the replica must have what the primary has.
    proc while_lent {body} {
        r -1 flushall
        r -1 eval {for i = 1, 150000 do redis.call('hset', 'h', i, string.rep('v', 200)) end} 0
        r -1 debug populate 2000 small 50
        leave 0
        r -1 config set rdb-key-save-delay 100000
        follow 0 -1
        wait_for_condition 10000 {[field -1 current_save_keys_processed persistence] > 0}
        set stopped [srv 0 pid]
        exec kill -STOP $stopped
        try {
            r -1 config set rdb-key-save-delay 0
            wait_for_condition 20000 {[field -1 current_save_keys_processed persistence] == 2001}
            uplevel 1 $body
        } finally {
            exec kill -CONT $stopped
        }
        wait_up 0
        wait_same -1 0
        wait_for_condition 5000 {[saving -1] == 0}
    }
    proc held_clients {} {regexp -all { flags=b } [r -1 client list]}

    foreach mode {stream dual} {
        use_mode $mode -1 0

        test "a client that changes a lent hash waits, and others do not, by $mode" {
            while_lent {
                set writers [lmap i {1 2} {new_client -level -1 -deferring 1}]
                [lindex $writers 0] hincrby h n 1
                [lindex $writers 1] hset h 1 new 2 newer
                wait_for_condition 5000 {[held_clients] == 2}
                assert_equal {200 0 150000} [list [r -1 hstrlen h 1] [r -1 hexists h n] [r -1 hlen h]]
                assert_equal 100 [llength [r -1 hrandfield h 100]]
                assert_equal 150000 [llength [r -1 hkeys h]]
                r -1 set other key
                r -1 hset hash field value
                assert_equal 1 [saving -1]
                assert_equal {200 0} [list [r -1 hstrlen h 1] [r -1 hexists h n]]
            }
            assert_equal {1 0} [lmap c $writers {$c -read}]
            assert_equal {1 new newer} [r -1 hmget h n 1 2]
        }

        test "a lent hash is changed at once by a transaction, a script and its removal, by $mode" {
            foreach change {
                {r -1 multi; r -1 hincrby h n 1; assert_equal 1 [r -1 exec]}
                {assert_equal 1 [r -1 eval {return redis.call('hincrby', KEYS[1], 'n', 1)} 1 h]}
                {assert_equal 1 [r -1 del h]; r -1 hset h f v}
                {assert_equal 1 [r -1 unlink h]}
                {assert_equal OK [r -1 set h text]}
                {assert_equal OK [r -1 rename h other]}
                {assert_equal 1 [r -1 expire h 1000]}
                {assert_equal OK [r -1 flushdb sync]}
                {
                    r -1 select 1; r -1 set k v; r -1 flushdb; r -1 select 0
                    assert_equal 1 [r -1 move h 1]
                    r -1 select 1; r -1 flushdb sync; r -1 select 0
                }
            } {
                while_lent {
                    uplevel #0 $change
                    assert_equal 1 [saving -1]
                }
            }
        }
    }
}
}

# What the kernel says: a thread is a clone with CLONE_THREAD.
set strace [tool strace]
start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
    foreach mode [dict keys $modes] {
        test "strace sees the primary start a thread, and no process, for the copy by $mode" {
            if {$::strace eq ""} {skip_test "strace is not installed"}
            use_mode $mode -1 0
            fill -1
            leave 0
            set trace [file join [srv -1 dir] trace.$mode]
            set out [open "|$::strace -f -e trace=fork,vfork,clone,clone3 -o $trace -p [srv -1 pid] 2>@1" r]
            at_test_end [list catch [list close $out]]
            if {![string match *attached* [gets $out]]} {skip_test "strace may not attach to processes"}
            follow 0 -1
            wait_up 0
            wait_same -1 0
            exec kill -INT [pid $out]
            catch {close $out}
            set calls [lsearch -all -inline -regexp [split [file_bytes $trace] \n] {(fork|clone3?)\(}]
            assert_morethan [llength $calls] 0
            foreach call $calls {assert_match *CLONE_THREAD* $call}
        }
    }
}
}

# The primary is the inner server.
start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
    foreach mode [dict keys $modes] {
        test "SHUTDOWN during the copy by $mode does not wait for the replica" {
            use_mode $mode -1 0
            fill 0
            leave -1
            r config set rdb-key-save-delay 1000000
            follow -1 0
            wait_for_condition 10000 {[saving 0] == 1}
            exec kill -STOP [srv -1 pid]
            at_test_end [list exec kill -CONT [srv -1 pid]]
            set began [clock milliseconds]
            restart_server
            assert {[clock milliseconds] - $began < 10000}
            exec kill -CONT [srv -1 pid]
            use_mode $mode 0
            wait_up -1
            wait_same -1 0
        }
    }

    # The replica reads all the time, so that repl-timeout does not end it, but less than clients write.
    foreach {mode options first} {
        stream {capa eof capa psync2 listening-port 7777} +FULLRESYNC*
        dual {capa eof rdb-only 1 rdb-channel 1 version 9.1.0 listening-port 7777} {$ENDOFF:*}
    } {
        test "a slow replica by $mode keeps writes waiting for repl-timeout at most, and then gets a file" {
            use_mode $mode 0
            fill 0
            r debug populate 3000 slow 10000
            set mark [log_size]
            set dropped [field 0 full_sync_dropped_slow]
            r config set repl-timeout 2 forkless-buffer-limit 1mb
            set slow [replica_connect {*}$options]
            $slow -send {*}[expr {$mode eq "dual" ? "sync" : {psync ? -1}}]
            assert_match $first [replica_line $slow]
            set c [new_client -deferring 1]
            for {set i 0} {$i < 3000} {incr i} {$c -send append slow:$i x}
            set began [clock milliseconds]
            while {![log_has "kept writes of clients waiting for * ms in a full synchronization" $mark]} {
                assert {[clock milliseconds] - $began < 30000}
                if {[catch {$slow -readraw 5000}]} break
                after 20
            }
            wait_for_log "Replica 127.0.0.1:7777 kept writes of clients waiting for 2* ms" $mark
            assert [log_has "Writes of clients wait for the background save" $mark]
            assert_equal [expr {$dropped + 1}] [field 0 full_sync_dropped_slow]
            for {set i 0} {$i < 3000} {incr i} {$c -read}
            $c -close
            $slow -close
            wait_for_condition 10000 {[saving 0] == 0}

            set again [replica_connect capa eof capa psync2 capa dual-channel version 9.1.0 listening-port 7777]
            assert_match +FULLRESYNC* [replica_sync $again]
            wait_for_log "with target: disk" $mark
            assert_match {$[1-9]*} [replica_line $again]
            $again -close
            set other [replica_connect capa eof capa psync2 version 9.1.0 listening-port 7778]
            assert_match +FULLRESYNC* [replica_sync $other]
            assert_match {$EOF:*} [replica_line $other]
            $other -close
            restart_server
        }
    }
}
}

start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
start_server [list no_rdma 1 overrides $forkless] {
    foreach mode [dict keys $modes] {
        test "three replicas share a save by $mode, and the others continue when one is killed" {
            use_mode $mode -3 -2 -1 0
            fill -3
            foreach level {-2 -1 0} {leave $level}
            r -3 config set rdb-key-save-delay 1000 repl-diskless-sync-delay 100 repl-diskless-sync-max-replicas 3
            set forks [field -3 total_forks stats]
            foreach level {-2 -1 0} {follow $level -3}
            wait_for_condition 20000 {[saving -3] == 1}
            for {set round 0} {$round < 5} {incr round} {change -3 $round}
            restart_server -signal KILL
            # These must not get the numbers of the sockets to which the save writes.
            set clients [lmap i {1 2 3 4 5 6 7 8} {new_client -level -3}]
            for {} {$round < 20} {incr round} {change -3 $round}
            foreach c $clients {assert_equal PONG [$c ping]}
            r -3 config set rdb-key-save-delay 0 repl-diskless-sync-delay 0 repl-diskless-sync-max-replicas 0
            foreach level {-2 -1} {
                wait_up $level
                wait_same -3 $level
            }
            foreach c $clients {
                assert_equal PONG [$c ping]
                $c -close
            }
            use_mode $mode 0
            follow 0 -3
            wait_up 0
            wait_same -3 0
            assert_equal $forks [field -3 total_forks stats]
        }
    }
}
}
}
}
