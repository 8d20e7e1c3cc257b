# Full synchronizations that replicas fetch by RDMA READ: the copy is that of its moment, and a server with registered
# memory never forks. seconds: 25

set forkless {rdma-replication yes repl-diskless-sync-delay 0 repl-timeout 60 save ""}

source [file join $::root tests harness full_copy.tcl]
proc wait_over {level} {
    wait_for_condition 30000 {[field $level rdma_sync_memory] in {0 ""}} "the snapshot's memory is still held"
    wait_for_condition 30000 {[saving $level] == 0} "the save has not ended"
}
proc follow {level primary} {r $level replicaof $::opt(rdma_host) [srv $primary port]}

start_server [list overrides $forkless] {
start_server [list overrides $forkless] {
start_server [list overrides $forkless] {
    test "replicas fetch the copy of one moment, while clients write, and no process is forked" {
        fill -2
        set forks [field -2 total_forks stats]
        set mark [log_size -2]
        r -2 config set rdb-key-save-delay 200
        follow 0 -2
        follow -1 -2
        for {set round 0} {$round < 30} {incr round} {change -2 $round}
        r -2 config set rdb-key-save-delay 0
        foreach level {0 -1} {
            wait_up $level
            wait_same -2 $level
        }
        wait_over -2
        wait_for_log "replicas fetch the *snapshot by RDMA READ, without fork" $mark 5000 -2
        assert_morethan [field -2 rdma_sync_delivered] 1
        assert_equal $forks [field -2 total_forks stats]
    }

    test "a replica that is killed while it fetches ends nothing for the other one" {
        foreach level {0 -1} {leave $level}
        r -2 config set rdb-key-save-delay 500
        foreach level {0 -1} {follow $level -2}
        wait_for_condition 10000 {[saving -2] == 1 && [field -2 connected_slaves] == 2}
        change -2 1
        restart_server -signal KILL
        change -2 2
        r -2 config set rdb-key-save-delay 0
        wait_up -1
        wait_same -2 -1
        follow 0 -2
        wait_up 0
        wait_same -2 0
        wait_over -2
    }

    test "the save ends when the last replica is killed, and when the data set is flushed or the role changes" {
        r -1 replicaof no one
        foreach {command after} {
            {} {}
            flushall {set after flushall}
            {replicaof 127.0.0.1 1} {replicaof no one}
        } {
            fill -2
            leave 0
            r -2 config set rdb-key-save-delay 1000000
            follow 0 -2
            wait_for_condition 10000 {[saving -2] == 1}
            if {$command eq ""} {restart_server -signal KILL} else {r -2 {*}$command}
            wait_for_condition 10000 {[saving -2] == 0 || [lindex $command 0] eq "flushall"}
            r -2 config set rdb-key-save-delay 0
            if {$after ne ""} {r -2 {*}$after}
            follow 0 -2
            wait_up 0
            wait_same -2 0
            wait_over -2
        }
    }

    test "a replica that keeps writes waiting is dropped after rdma-replication-max-wait, and then gets a file" {
        fill -2
        r -2 debug populate 3000 slow 10000
        leave 0
        set mark [log_size -2]
        r -2 config set rdma-replication-max-wait 1500 forkless-buffer-limit 1mb rdma-replication-snapshot-memory 4mb
        follow 0 -2
        wait_for_condition 10000 {[saving -2] == 1}
        exec kill -STOP [srv pid]
        at_test_end [list exec kill -CONT [srv pid]]
        set c [new_client -level -2 -deferring 1]
        for {set i 0} {$i < 3000} {incr i} {$c append slow:$i x}
        for {set i 0} {$i < 3000} {incr i} {$c -read}
        $c -close
        wait_for_log "Replica *:[srv port] kept writes of clients waiting for 1* ms" $mark 20000 -2
        assert_equal 1 [field -2 full_sync_dropped_slow]
        exec kill -CONT [srv pid]
        wait_up 0
        wait_same -2 0
        wait_for_log "with target: disk" $mark 5000 -2
        wait_over -2
    }
}
}
}

# The primary is the inner server.
start_server [list overrides $forkless] {
start_server [list overrides $forkless] {
    test "SHUTDOWN while a replica fetches does not wait for it" {
        fill 0
        r config set rdb-key-save-delay 1000000
        follow -1 0
        wait_for_condition 10000 {[saving 0] == 1}
        exec kill -STOP [srv -1 pid]
        at_test_end [list exec kill -CONT [srv -1 pid]]
        set began [clock milliseconds]
        restart_server
        assert {[clock milliseconds] - $began < 10000}
        exec kill -CONT [srv -1 pid]
        wait_up -1
        wait_same -1 0
    }
}
}
