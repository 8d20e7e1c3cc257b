# WAIT, WAITAOF and min-replicas-to-write, with a replica that follows.
# seconds: 9

proc wait_for_link {} {
    wait_for_condition 15000 {[string match "*master_link_status:up*" [r info replication]]} \
        "the replica does not follow"
    wait_for_condition 15000 {[string match "*state=online*" [r -1 info replication]]}
}
proc blocked {} {
    regexp {blocked_clients:(\d+)} [r -1 info clients] -> count
    return $count
}

start_server {overrides {repl-diskless-sync-delay 0 appendonly yes appendfsync always}} {
    set primary_host [srv host]
    set primary_port [srv port]
    start_server {overrides {appendonly yes appendfsync always}} {
        r replicaof $primary_host $primary_port
        wait_for_link

        test "WAIT counts the replicas that have acknowledged the client's writes" {
            for {set i 0} {$i < 50} {incr i} {
                r -1 set k $i
                assert_equal 1 [r -1 wait 1 10000]
                assert_equal $i [r get k]
            }
            # Replies immediately if enough replicas have acknowledged, also if fewer are requested.
            assert_equal 1 [r -1 wait 0 0]
            assert_equal 1 [r -1 wait 1 0]
        }

        test "WAIT does not wait for the regular acknowledgement" {
            # Without requests replicas acknowledge once per second, so a hundred waits would take more than a minute.
            set c [new_client -level -1]
            set began [clock seconds]
            for {set i 0} {$i < 100} {incr i} {
                $c incr n
                assert_equal 1 [$c wait 1 30000]
            }
            assert {[clock seconds] - $began < 60}
        }

        test "WAIT replies with fewer replicas after its timeout" {
            r -1 set k 1
            assert_equal 1 [r -1 wait 2 50]
            assert_equal 1 [r -1 wait 1000000 1]
        }

        test "a client that has not written does not wait for the writes of others" {
            exec kill -STOP [srv pid]
            r -1 set k 2
            set c [new_client -level -1]
            assert_equal 1 [$c wait 1 0]
            # The client that has written waits.
            assert_equal 0 [r -1 wait 1 50]
            $c set other 1
            $c -send wait 1 0
            wait_for_condition 5000 {[blocked] == 1}
            exec kill -CONT [srv pid]
            assert_equal 1 [$c -read]
        }

        test "WAIT in a transaction and after one" {
            set c [new_client -level -1]
            exec kill -STOP [srv pid]
            $c multi
            $c set k 3
            $c wait 1 0
            assert_equal {OK 1} [$c exec] ;# it refers to earlier writes of the client
            $c -send wait 1 0
            wait_for_condition 5000 {[blocked] == 1}
            exec kill -CONT [srv pid]
            assert_equal 1 [$c -read]
            assert_equal 3 [r get k]
        }

        test "many clients wait at the same time, and those that leave are forgotten" {
            exec kill -STOP [srv pid]
            set clients {}
            for {set i 0} {$i < 20} {incr i} {
                set c [new_client -level -1]
                $c set k:$i $i
                $c -send wait 1 0
                lappend clients $c
            }
            wait_for_condition 5000 {[blocked] == 20}
            foreach c [lrange $clients 0 9] {$c -close}
            wait_for_condition 5000 {[blocked] == 10}
            exec kill -CONT [srv pid]
            foreach c [lrange $clients 10 19] {
                assert_equal 1 [$c -read]
                $c -close
            }
            assert_equal 0 [blocked]
        }

        test "WAITAOF returns whether this server and replicas have the writes on disk" {
            for {set i 0} {$i < 20} {incr i} {
                r -1 set k $i
                assert_equal {1 1} [r -1 waitaof 1 1 10000]
            }
            assert_equal {1 1} [r -1 waitaof 0 0 0]
            assert_equal {1 1} [r -1 waitaof 1 2 50]
        }

        test "WAITAOF with everysec waits for the file to be brought to the disk" {
            r -1 config set appendfsync everysec
            r config set appendfsync everysec
            r -1 set k again
            assert_equal {1 1} [r -1 waitaof 1 1 20000]
            r -1 config set appendfsync always
            r config set appendfsync always
        }

        test "a replica acknowledges when a reply to the write could leave: its append-only file has it" \
            -needs {command debug} {
            foreach fsync {always everysec} {
                r config set appendfsync $fsync
                r debug aof-flush-sleep 300000
                set started [clock milliseconds]
                r -1 set slow $fsync
                assert_equal 1 [r -1 wait 1 10000]
                assert {[clock milliseconds] - $started >= 290}
                r debug aof-flush-sleep 0
            }
            r config set appendfsync always
        }

        test "a replica that returns acknowledges no more than its append-only file has" -needs {command debug} {
            r debug aof-flush-sleep 1500000
            set started [clock milliseconds]
            r -1 set slow 1
            assert_equal 0 [r -1 wait 1 50]
            r -1 client kill type replica
            wait_for_link
            assert_equal 1 [r -1 wait 1 10000]
            assert {[clock milliseconds] - $started >= 1490}
            r debug aof-flush-sleep 0
        }

        test "WAIT does not count a replica that has not acknowledged its copy" {
            foreach diskless {no yes} {
                r -1 config set repl-diskless-sync $diskless
                r -1 set k $diskless
                assert_equal 1 [r -1 wait 1 10000]
                set c [new_client -level -1]
                $c replconf capa eof capa psync2
                $c -send psync ? -1
                wait_for_condition 15000 {[string match "*slave1:*state=online*" [r -1 info replication]]}
                assert_equal 1 [r -1 wait 2 100]
                # A replica that continues does not count either: it reports only which bytes it needs.
                set p [new_client -level -1]
                $p replconf capa eof capa psync2
                set replication [r -1 info replication]
                regexp {master_replid:(\w+)} $replication -> id
                regexp {master_repl_offset:(\d+)} $replication -> offset
                $p -send psync $id [expr {$offset + 1}]
                wait_for_condition 5000 {[string match "*slave2:*state=online*" [r -1 info replication]]}
                assert_equal 1 [r -1 wait 3 100]
                $p -close
                $c -close
                wait_for_condition 5000 {[string match "*connected_slaves:1*" [r -1 info replication]]}
            }
        }

        test "WAITAOF counts no replica whose file is off" {
            r config set appendonly no
            r -1 set k off
            assert_equal 1 [r -1 wait 1 10000]
            assert_equal {1 0} [r -1 waitaof 1 1 100]
            r config set appendonly yes
            wait_for_condition 15000 {[info_field persistence aof_rewrite_in_progress] == 0}
            r -1 set k on
            assert_equal {1 1} [r -1 waitaof 1 1 20000]
        }

        test "errors of WAITAOF" {
            foreach {command error} {
                {waitaof a 0 10} "-ERR value is not an integer or out of range"
                {waitaof 2 0 10} "-ERR value is out of range, value must between 0 and 1"
                {waitaof -1 0 10} "-ERR value is out of range, value must between 0 and 1"
                {waitaof 1 -1 10} "-ERR value is out of range, must be positive"
                {waitaof 0 0 -1} "-ERR timeout is negative"
                {waitaof 0 0 x} "-ERR timeout is not an integer or out of range"
            } {
                assert_equal $error [r -1 -typed {*}$command]
            }
            r -1 config set appendonly no
            assert_equal "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled." \
                [r -1 -typed waitaof 1 0 0]
            assert_match "-ERR WAITAOF cannot be used with replica instances.*" [r -typed waitaof 0 0 0]
            assert_match "-ERR WAIT cannot be used with replica instances.*" [r -typed wait 0 0]
        }

        test "min-replicas-to-write counts the replicas that have acknowledged lately" {
            r -1 config set min-replicas-to-write 1 min-replicas-max-lag 1
            wait_for_condition 5000 {[r -1 -typed set k good] eq "+OK"}
            exec kill -STOP [srv pid]
            wait_for_condition 10000 {[r -1 -typed set k bad] eq "-NOREPLICAS Not enough good replicas to write."}
            assert_match "*min_slaves_good_slaves:0*" [r -1 info replication]
            exec kill -CONT [srv pid]
            wait_for_condition 10000 {[r -1 -typed set k good] eq "+OK"}
            assert_match "*min_slaves_good_slaves:1*" [r -1 info replication]
            r -1 config set min-replicas-to-write 0
        }

        test "a waiting client gets an error when the primary becomes a replica" {
            exec kill -STOP [srv pid]
            set c [new_client -level -1]
            $c set k 4
            $c -send wait 1 0
            wait_for_condition 5000 {[blocked] == 1}
            r -1 replicaof 127.0.0.1 1
            assert_error_like "UNBLOCKED force unblock from blocking operation*" {$c -read}
            assert_closed $c
            r -1 replicaof no one
            exec kill -CONT [srv pid]
        }
    }
}

start_server {overrides {appendonly no}} {
    test "WAITAOF ends when the first rewrite makes the append-only file complete" {
        r mset a 1 b 2 c 3 d 4
        r config set rdb-key-save-delay 500000
        r config set appendonly yes
        r config set rdb-key-save-delay 0
        set c [new_client]
        $c set k 1
        $c -send waitaof 1 0 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        wait_for_condition 20000 {[info_field persistence aof_rewrite_in_progress] == 0}
        assert_equal {1 0} [$c -read]
    }
}
