# Faults while replicas fetch a snapshot by RDMA READ: reads that fail, are refused or stall, links that break between
# chunks, devices that are removed, memory that cannot be registered, a frozen replica, and replicas that acknowledge
# what they were not offered. After each fault the replica recovers and has the data of its primary. Software device
# only. seconds: 25

if {![software_device]} {
    test "faults while replicas fetch a snapshot" -needs $::on_software_device {}
    return
}

set rdma {rdma-replication yes repl-diskless-sync-delay 0 repl-timeout 60}
set patience 60000

# The connections that the device's removal must not close. The replica is at level 0, the primary at level -1.
proc use_tcp {} {
    set ::on_primary [new_client -level -1 -tcp 1]
    set ::on_replica [new_client -tcp 1]
}
proc primary {args} {$::on_primary {*}$args}
proc replica {args} {$::on_replica {*}$args}
proc field_of {client name {section replication}} {
    if {[catch {$client info $section} text]} {return ""}
    if {![regexp "\n$name:(\[^\r\n\]*)" $text -> value]} {return ""}
    return $value
}
proc wait_until {condition what} {uplevel 1 [list wait_for_condition $::patience $condition $what]}
proc fill {count size} {
    for {set i 0} {$i < $count} {incr i} {
        lappend batch value:$i [string repeat "[format %09d $i]." [expr {$size / 10}]]
    }
    r -1 mset {*}$batch
}
# The replica gets data of its own, so that it needs a full copy; the snapshot takes a while.
proc begin_pull {} {
    replica replicaof no one
    replica flushall
    replica set own data
    primary config set rdb-key-save-delay 300
    replica replicaof $::opt(rdma_host) [srv -1 port]
}
proc fetching {} {
    set bytes [field_of $::on_replica master_sync_rdma_read_bytes]
    expr {$bytes ne "" && $bytes > 0}
}
# The same, and the save that writes the snapshot of `size` bytes is stopped between two chunks.
proc begin_held_pull {{size 10000000}} {
    hold_snapshot primary replica $size begin_pull
}
# The fault is over: the replica must recover, and nothing may be held.
proc recovers {} {
    primary config set rdb-key-save-delay 0
    wait_until {[field_of $::on_replica master_link_status] eq "up"} "the link is down"
    wait_until {[primary debug digest] eq [replica debug digest]} "the data differ"
    assert_equal 0 [replica exists own]
    wait_until {[field_of $::on_primary rdma_sync_memory] in {0 ""}} "the snapshot's memory is still held"
    wait_until {[field_of $::on_primary rdma_read_windows rdma] eq "0"} "a window of the primary is open"
    wait_until {[field_of $::on_replica rdma_read_windows rdma] eq "0"} "a window of the replica is open"
}
proc snapshots {} {
    set count [field_of $::on_primary rdma_sync_snapshots]
    expr {$count eq "" ? 0 : $count}
}

set at_primary {
    primary-removed event:remove,op=RDMA_CM_EVENT_ESTABLISHED,count=1 primary-unregistered reg_mr:fail=ENOMEM
    primary-rejects request:reject primary-rejects-second request:reject,from=2
}
set at_replica {
    replica-removed event:remove,op=RDMA_CM_EVENT_ESTABLISHED,count=1 replica-unregistered reg_mr:fail=ENOMEM
}
# A rule counts on where it was put to sleep: each test has its own.
foreach mode {disabled flush-before-load} {
    lappend at_replica refused-$mode send:error=REM_ACCESS_ERR,op=read,nth=3 \
        failed-$mode send:error=GENERAL_ERR,op=read,nth=2 lost-$mode send:drop,op=read,nth=2 \
        stalls-$mode complete:delay=150000,op=read,count=6 late-$mode send:delay=150000,op=read,count=4
}

start_server [with_faults $at_primary overrides $rdma] {
    start_server [with_faults $at_replica overrides $rdma] {
        fill 2000 5000

        foreach {mode where} {disabled "a file" flush-before-load "memory"} {
            foreach {name what} {
                refused "is refused" failed "completes with an error" lost "is never answered"
            } {
                test "a READ that $what ends the synchronization into $where with a reason, and the next one succeeds" \
                    -needs $::on_software_device {
                    use_tcp
                    replica config set repl-diskless-load $mode
                    set before [snapshots]
                    set from [log_size]
                    fault $name-$mode
                    begin_pull
                    wait_for_log "reading chunk * failed: " $from $patience
                    fault_end $name-$mode
                    recovers
                    assert_morethan [snapshots] [expr {$before + 1}]
                }
            }

            foreach {name what} {stalls "complete late" late "start late"} {
                test "READs that $what delay the synchronization into $where and do not end it" \
                    -needs $::on_software_device {
                    use_tcp
                    replica config set repl-diskless-load $mode
                    set before [snapshots]
                    fault $name-$mode
                    begin_pull
                    recovers
                    assert_equal [expr {$before + 1}] [snapshots]
                }
            }
        }

        foreach {side level} {primary -1 replica 0} {
            test "the $side's device is removed while a snapshot is fetched" -needs $::on_software_device {
                use_tcp
                set from [log_size $level]
                begin_held_pull
                fault $side-removed
                # The connection whose event removes the device may fail with it.
                catch {[new_client -level $level] ping}
                wait_for_log "was removed" $from $patience $level
                fault_end $side-removed
                recovers
            }

            test "the $side cannot register memory" -needs $::on_software_device {
                use_tcp
                set from [log_size]
                set from_primary [log_size -1]
                fault $side-unregistered
                begin_pull
                recovers
                # It depends on what is registered already which way is left.
                assert_regexp {Using TCP|The copy cannot be fetched|cannot fetch the snapshot by RDMA READ} \
                    [log_text $from][log_text $from_primary -1]
            }
        }

        test "the primary closes the link between two chunks" -needs $::on_software_device {
            use_tcp
            begin_held_pull
            set before [snapshots]
            assert_equal 1 [primary client kill type replica]
            recovers
            assert_morethan [snapshots] $before
        }

        test "the save that writes the snapshot is ended between two chunks" -needs $::on_software_device {
            use_tcp
            begin_held_pull
            set from [log_size -1]
            # DEBUG RELOAD saves, too: at once, and before the other save goes on.
            primary multi
            primary config set rdb-key-save-delay 0
            primary debug reload
            primary exec
            wait_for_log "The snapshot for replicas was cancelled" $from $patience -1
            recovers
        }

        test "dual channel: the second connection uses TCP like the first where RDMA is rejected" \
            -needs $::on_software_device {
            use_tcp
            foreach client [list $::on_primary $::on_replica] {
                $client config set dual-channel-replication-enabled yes
                at_test_end [list $client config set dual-channel-replication-enabled no]
            }
            fault primary-rejects
            begin_pull
            recovers
            assert_equal tcp [field_of $::on_replica master_link_transport]
            assert_not_equal "" [field_of $::on_replica master_link_rdma_error]
        }
    }

    # A device that cannot read from peers: the replica gets an ordinary copy.
    start_server [with_faults {} env SOFTRDMA_MAX_RD_ATOMIC=0 overrides $rdma] {
        test "dual channel: the second connection uses TCP where RDMA is rejected for it alone" \
            -needs $::on_software_device {
            use_tcp
            foreach client [list $::on_primary $::on_replica] {
                $client config set dual-channel-replication-enabled yes
                at_test_end [list $client config set dual-channel-replication-enabled no]
            }
            begin_pull
            recovers
            assert_equal rdma [field_of $::on_replica master_link_transport]
            assert {![log_has "No RDMA connection for the RDB channel"]}
            set from [log_size]
            fault primary-rejects-second
            begin_pull
            wait_for_log "No RDMA connection for the RDB channel" $from $patience
            recovers
            assert_equal rdma [field_of $::on_replica master_link_transport]
        }
    }
}

start_server [list overrides $rdma] {
    start_server [list overrides $rdma] {
        fill 2000 5000
        test "replicas that acknowledge what they were not offered are closed, and others go on fetching" \
            -needs [list {*}$::on_software_device clear "the replica of this test fetches in clear text"] {
            use_tcp
            begin_held_pull
            set before [snapshots]
            set from [log_size -1]
            set forged {0 -1 1000000 9223372036854775807 -9223372036854775808}
            foreach number $forged {
                set c [replica_pull -1]
                $c replconf pulled $number
                assert_closed $c $patience
                $c -close
                assert [fetching] "the other replica fetches no more"
            }
            assert_equal [llength $forged] \
                [regexp -all {acknowledged a chunk that it was not offered} [log_text $from -1]]
            recovers
            assert_equal $before [snapshots]
        }

        test "acknowledgements from clients that fetch nothing count for nothing" -needs $::on_software_device {
            use_tcp
            begin_held_pull
            set before [snapshots]
            set c [new_client -level -1]
            foreach number {1 -1 1000000} {$c -send replconf pulled $number}
            assert_equal PONG [$c ping]
            recovers
            assert_equal $before [snapshots]
            # And from a replica after the end.
            r replicaof no one
            assert_equal PONG [$c ping]
        }
    }
}

start_server [list overrides [list {*}$rdma rdma-replication-snapshot-memory 4mb]] {
    start_server [list overrides $rdma] {
        fill 3000 10000
        test "a replica that stops fetching costs the primary its snapshot memory, and at its limit not even that" \
            -needs $::on_software_device {
            use_tcp
            primary config set client-output-buffer-limit "replica 4mb 0 0" repl-backlog-size 1mb
            set used [field_of $::on_primary used_memory memory]
            begin_held_pull 30000000
            exec kill -STOP [srv pid]
            at_test_end [list exec kill -CONT [srv pid]]
            primary config set rdb-key-save-delay 0
            # The save fills the chunks that are free, and waits.
            wait_until {[field_of $::on_primary rdma_sync_bytes] >= 4 * 1048576} "the save does not fill all chunks"
            assert_equal [expr {4 * 1048576}] [field_of $::on_primary rdma_sync_memory]
            # What is written meanwhile is kept for the replica up to the limit.
            for {set i 0} {$i < 60} {incr i} {primary set written [string repeat $i 50000]}
            wait_until {[field_of $::on_primary connected_slaves] eq "0"} "the replica is still connected"
            wait_until {[field_of $::on_primary rdma_sync_memory] eq "0"} "the snapshot's memory is still held"
            wait_until {[field_of $::on_primary used_memory memory] < $used + 8 * 1048576} \
                "memory of the replica is held"
            exec kill -CONT [srv pid]
            recovers
        }
    }
}
