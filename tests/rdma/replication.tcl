# Replication over RDMA: the link and its fallback to TCP, the full synchronization that replicas fetch by RDMA READ,
# and what ends it early. The first tests run on every device; the others need faults, or the time of the software
# device. seconds: 50

set rdma {rdma-replication yes repl-diskless-sync-delay 0 repl-timeout 60}

proc follow {level} {r replicaof $::opt(rdma_host) [srv $level port]}
proc link_up {{level 0}} {expr {[field $level master_link_status] eq "up"}}
proc wait_up {{level 0}} {wait_for_condition 30000 {[link_up $level]}}
proc wait_replicas_of {level count} {
    wait_for_condition 30000 {[field $level connected_slaves] eq $count}
}
proc wait_same {a b} {
    wait_for_condition 30000 {[r $a debug digest] eq [r $b debug digest]} "the data differ"
}
proc wait_over {level} {
    wait_for_condition 30000 {[field $level rdma_sync_memory] eq "0"} "the snapshot's memory is still held"
}
proc fill {count size} {
    for {set i 0} {$i < $count} {incr i} {
        lappend batch value:$i [string repeat "[format %09d $i]." [expr {$size / 10}]]
    }
    r mset {*}$batch
}
proc fill_types {} {
    r set string [string repeat x 100000]
    r set number 42 ex 10000
    r rpush list {*}[lrepeat 300 element]
    r sadd set a b c 1 2 3
    r zadd zset 1 a 2.5 b
    r hset hash f v g [string repeat y 5000]
    r xadd stream 1-1 field value
    r select 3
    r set other database
    r select 0
}
# The replica at that level leaves its history, so that it needs a full copy.
proc start_anew {level} {
    r $level replicaof no one
    r $level flushall
    r $level set own history
}

start_server [list overrides $rdma] {
    fill_types
    start_server [list overrides $rdma] {
        test "a replica connects by RDMA, and both sides say so" {
            follow -1
            wait_up
            assert_equal rdma [field 0 master_link_transport]
            assert_match "*,transport=rdma,rdma_port=[srv port]" [field -1 slave0]
            assert_equal 5 [llength [r role]]
            assert_equal 3 [llength [lindex [r -1 role] 2 0]]
        }

        test "the replica has fetched the full copy by RDMA READ" {
            assert_equal 1 [field -1 rdma_sync_snapshots]
            assert_equal 1 [field -1 rdma_sync_delivered]
            wait_over -1
            wait_same -1 0
            assert_equal 0 [field 0 rdma_read_windows rdma]
        }

        test "the stream and the acknowledgements take the same link" {
            for {set i 0} {$i < 200} {incr i} {r -1 incr counter}
            r -1 set large [string repeat z 300000]
            wait_same -1 0
            assert_equal 200 [r get counter]
            r -1 set waited 1
            assert_equal 1 [r -1 wait 1 5000]
            assert_equal 1 [r get waited]
        }

        test "a broken link resumes by a partial synchronization, over RDMA again" {
            set partial [field -1 sync_partial_ok stats]
            r -1 client kill type replica
            r -1 set while broken
            wait_for_condition 30000 {[field -1 sync_partial_ok stats] > $partial}
            wait_up
            wait_same -1 0
            assert_equal rdma [field 0 master_link_transport]
            assert_equal 1 [field -1 rdma_sync_snapshots]
        }

        start_server [list overrides $rdma] {
            test "a replica of a replica fetches the full copy from it" {
                follow -1
                wait_up
                wait_same -2 0
                assert_equal rdma [field 0 master_link_transport]
                assert_equal 1 [field -1 rdma_sync_delivered]
                r -2 set chained yes
                wait_same -2 0
            }
        }
    }
}

if {![software_device]} {
    test "replication over RDMA: memory, progress, and what ends a synchronization" -needs $::on_software_device {}
    return
}

start_server [list overrides $rdma] {
    fill_types
    start_server [list overrides $rdma] {
        test "bind-source-addr: the link by RDMA comes from this address, if it is of this machine" \
            -needs $::on_software_device {
            # 203.0.113.0/24 is reserved for documentation.
            foreach {source from} {127.0.0.9 127.0.0.9 203.0.113.9 127.0.0.1 "" 127.0.0.1} {
                r replicaof no one
                r config set bind-source-addr $source
                follow -1
                wait_up
                assert_match "ip=$from,*,transport=rdma,*" [field -1 slave0] $source
            }
        }
    }
}

start_server [list overrides [list {*}$rdma rdma-replication-snapshot-memory 4mb]] {
    fill 3000 10000
    start_server [list overrides $rdma] {start_server [list overrides $rdma] {start_server [list overrides $rdma] {
        test "one snapshot, several times as large as its memory, serves three replicas at once" \
            -needs $::on_software_device {
            r -3 config set repl-diskless-sync-delay 60 repl-diskless-sync-max-replicas 3
            foreach level {0 -1 -2} {r $level replicaof $::opt(rdma_host) [srv -3 port]}
            foreach level {0 -1 -2} {wait_up $level}
            assert_equal 1 [field -3 rdma_sync_snapshots]
            assert_equal 3 [field -3 rdma_sync_delivered]
            foreach level {0 -1 -2} {wait_same -3 $level}
            wait_over -3
        }
    }}}
}

start_server [list overrides $rdma] {
    fill 2000 5000
    start_server [list overrides $rdma] {start_server [list overrides $rdma] {
        test "a replica that comes while the first chunks are held takes part in the same snapshot" \
            -needs $::on_software_device {
            r -2 config set rdb-key-save-delay 300
            hold_snapshot {r -2} {r -1} 10000000 {
                start_anew -1
                r -1 replicaof $::opt(rdma_host) [srv -2 port]
            }
            set snapshots [field -2 rdma_sync_snapshots]
            r -2 set during 1
            follow -2
            wait_for_condition 30000 {[field -2 rdma_sync_replicas] eq 2}
            # Each write during the synchronization arrives once.
            for {set i 0} {$i < 100} {incr i} {r -2 incr counter; r -2 append text $i,}
            r -2 config set rdb-key-save-delay 0
            wait_up -1
            wait_up 0
            assert_equal $snapshots [field -2 rdma_sync_snapshots]
            wait_same -2 -1
            wait_same -2 0
            assert_equal 100 [r get counter]
        }

        test "progress is shown on both sides while a snapshot is fetched" -needs $::on_software_device {
            r -2 config set rdb-key-save-delay 300
            set marks [list [log_size] [log_size -2]]
            hold_snapshot {r -2} r 10000000 {start_anew 0; follow -2}
            assert_range [field 0 master_sync_rdma_read_percent] 1 60
            assert_range [field -2 rdma_sync_percent] 1 60
            foreach {level name} {0 master_sync_rdma_read -2 rdma_sync} {
                assert_morethan [field $level ${name}_bytes] 1000000
                assert_morethan [field $level ${name}_mb_per_second] 0
                assert_range [field $level ${name}_seconds_left] 0 1000000
            }
            assert_morethan [field -2 rdma_sync_memory] 1000000
            # Every five seconds.
            wait_for_log "fetched * of the keys, * MB, * MB/s, * seconds left" [lindex $marks 0] 30000
            wait_for_log "Pulled synchronization: 1 replicas, the slowest has * of the keys, * MB/s, * seconds left" \
                [lindex $marks 1] 30000 -2
            r -2 config set rdb-key-save-delay 0
            wait_up
            wait_same -2 0
        }
    }}
}

# I/O threads own the connections of replicas. They register the snapshot's memory and revoke the keys.
start_server [list overrides [list {*}$rdma io-threads 3 rdma-replication-snapshot-memory 4mb]] {
    fill 3000 10000
    start_server [list overrides $rdma] {start_server [list overrides [list {*}$rdma io-threads 2]] {
        test "replicas on I/O threads of the primary fetch a snapshot, too" -needs $::on_software_device {
            r -2 config set repl-diskless-sync-delay 60 repl-diskless-sync-max-replicas 2
            foreach level {0 -1} {r $level replicaof $::opt(rdma_host) [srv -2 port]}
            foreach level {0 -1} {wait_up $level}
            assert_equal {1 2} [list [field -2 rdma_sync_snapshots] [field -2 rdma_sync_delivered]]
            for {set i 0} {$i < 100} {incr i} {r -2 incr counter}
            foreach level {0 -1} {wait_same -2 $level}
            wait_over -2
            assert_equal 0 [field -2 rdma_read_windows rdma]
        }

        foreach how {link-cut replica-killed} {
            test "an I/O thread revokes the key of a replica that ends early: $how" -needs $::on_software_device {
                r -2 config set repl-diskless-sync-delay 0 rdb-key-save-delay 300
                hold_snapshot {r -2} r 30000000 {start_anew 0; follow -2}
                set snapshots [field -2 rdma_sync_snapshots]
                if {$how eq "link-cut"} {
                    r -2 client kill type replica
                } else {
                    exec kill -KILL [srv pid]
                }
                r -2 config set rdb-key-save-delay 0
                if {$how eq "replica-killed"} {
                    restart_server
                    follow -2
                }
                foreach level {0 -1} {
                    wait_up $level
                    wait_same -2 $level
                }
                wait_over -2
                assert_equal 0 [field -2 rdma_read_windows rdma]
                assert_morethan [field -2 rdma_sync_snapshots] $snapshots
            }
        }
    }}
}

# Runs the body while a snapshot of 10 MB is fetched and its save is stopped. Level -1 is the primary.
proc while_fetching {body} {
    r -1 config set rdb-key-save-delay 500
    hold_snapshot {r -1} r 10000000 {start_anew 0; follow -1}
    catch {uplevel 1 $body} result options
    catch {r -1 config set rdb-key-save-delay 0}
    return -options $options $result
}

# repl-diskless-load says where the copy goes, and what clients of the replica find meanwhile and after a failure.
foreach {setting old meanwhile kept} {
    disabled          {mine 1} 1         1
    on-empty-db       {mine 1} 1         1
    on-empty-db       {}       LOADING*  0
    flush-before-load {mine 1} LOADING*  0
    swapdb            {mine 1} LOADING*  1
} {
    start_server [list overrides $rdma] {
        fill 2000 5000
        start_server [list overrides [list {*}$rdma repl-diskless-load $setting]] {
            test "a fetched copy obeys repl-diskless-load $setting, over [llength [dict keys $old]] keys" \
                -needs $::on_software_device {
                r -1 config set rdb-key-save-delay 500
                hold_snapshot {r -1} r 10000000 {
                    r replicaof no one
                    r flushall
                    if {[llength $old]} {r set {*}$old}
                    follow -1
                }
                set delivered [field -1 rdma_sync_delivered]
                catch {r get mine} found
                assert_match $meanwhile $found
                assert_equal [string match LOADING* $found] [field 0 loading persistence]
                assert_equal [expr {$found eq "1"}] [llength [glob -nocomplain -directory [srv dir] temp-*.rdb]]
                r -1 config set repl-diskless-sync-delay 60 ;# the next copy has to wait
                r -1 client kill type replica
                wait_for_condition 20000 {[field -1 rdma_sync_memory] eq "0" && [field 0 loading persistence] eq "0"}
                assert_equal $kept [r dbsize]
                if {$kept} {assert_equal 1 [r get mine]}
                wait_for_condition 20000 {[glob -nocomplain -directory [srv dir] temp-*.rdb] eq ""}
                r -1 config set rdb-key-save-delay 0 repl-diskless-sync-delay 0
                wait_up
                wait_same -1 0
                assert_equal [expr {$delivered + 1}] [field -1 rdma_sync_delivered]
                assert_equal {} [glob -nocomplain -directory [srv dir] temp-*.rdb]
            }
        }
    }
}

start_server [list overrides [list {*}$rdma repl-backlog-size 16kb]] {
    fill 2000 5000
    start_server [list overrides [list {*}$rdma repl-diskless-load swapdb]] {
        test "clients read the old data while a later state of the same history is fetched" \
            -needs $::on_software_device {
            follow -1
            wait_up
            r -1 config set rdb-key-save-delay 500
            set large 0
            hold_snapshot {r -1} r 10000000 {
                # Without its primary the replica loses the stream.
                r replicaof $::opt(rdma_host) [free_port]
                wait_replicas_of -1 0
                for {set i 0} {$i < 4} {incr i} {r -1 set large:[incr large] [string repeat x 20000]}
                follow -1
            }
            set delivered [field -1 rdma_sync_delivered]
            assert_equal {0 1} [list [field 0 loading persistence] [field 0 async_loading persistence]]
            assert_equal {5000 0} [list [r strlen value:7] [r exists large:$large]]
            r -1 config set rdb-key-save-delay 0
            wait_up
            wait_same -1 0
            assert_equal [list [expr {$delivered + 1}] 20000] [list [field -1 rdma_sync_delivered] \
                [r strlen large:$large]]
        }
    }
}

foreach how {replica-killed flushed link-cut replica-leaves} {
    start_server [list overrides $rdma] {
        fill 2000 5000
        start_server [list overrides $rdma] {
            test "a synchronization that ends early gives everything back, and the next one succeeds: $how" \
                -needs $::on_software_device {
                while_fetching {
                    switch $how {
                        replica-killed {
                            r -1 config set rdb-key-save-delay 0
                            restart_server -signal KILL
                            follow -1
                        }
                        flushed {r -1 flushall}
                        link-cut {r -1 client kill type replica}
                        replica-leaves {
                            catch {r shutdown nosave}
                            restart_server
                        }
                    }
                }
                if {$how eq "replica-leaves"} {follow -1}
                wait_up
                wait_same -1 0
                wait_over -1
                assert_equal 0 [field -1 rdma_read_windows rdma]
                assert_morethan [field -1 rdma_sync_snapshots] 1
            }
        }
    }
}

start_server [list overrides $rdma] {
    start_server [list overrides $rdma] {
        test "a primary that is killed while its snapshot is fetched leaves no half of a data set" \
            -needs $::on_software_device {
            fill 2000 5000
            r config set rdb-key-save-delay 500
            hold_snapshot r {r -1} 10000000 {
                start_anew -1
                r -1 replicaof $::opt(rdma_host) [srv port]
            }
            restart_server -signal KILL
            r set key value
            wait_up -1
            wait_same -1 0
            assert_equal 1 [r -1 dbsize]
        }
    }
}

start_server [list overrides [list {*}$rdma rdma-replication-snapshot-memory 4mb rdma-replication-max-wait 300]] {
    fill 3000 10000
    start_server [list overrides $rdma] {start_server [list overrides $rdma] {
        test "a replica that stops fetching is dropped when others wait for it" -needs $::on_software_device {
            r -2 config set repl-diskless-sync-delay 60 rdb-key-save-delay 200
            hold_snapshot {r -2} r 30000000 {
                r -2 config set repl-diskless-sync-max-replicas 2
                foreach level {0 -1} {start_anew $level}
                foreach level {0 -1} {r $level replicaof $::opt(rdma_host) [srv -2 port]}
                wait_for_condition 30000 {[field -2 connected_slaves] eq 2}
                # One that was dropped need not wait for another one.
                r -2 config set repl-diskless-sync-max-replicas 1
            }
            set dropped [field -2 rdma_sync_dropped_slow]
            exec kill -STOP [srv pid]
            at_test_end [list exec kill -CONT [srv pid]]
            r -2 config set rdb-key-save-delay 0
            wait_up -1
            wait_same -2 -1
            assert_morethan [field -2 rdma_sync_dropped_slow] $dropped
            exec kill -CONT [srv pid]
            wait_up 0
            wait_same -2 0
        }
    }}
}

start_server [list overrides [list {*}$rdma rdma-replication-snapshot-memory 64mb rdma-max-registered-memory 48mb]] {
    fill 500 1000
    start_server [list overrides $rdma] {
        test "without memory for the snapshot the full copy comes through the RDMA connection" \
            -needs $::on_software_device {
            follow -1
            wait_up
            wait_same -1 0
            assert_equal rdma [field 0 master_link_transport]
            assert_equal 0 [field -1 rdma_sync_delivered]
            assert [log_has "cannot fetch the snapshot by RDMA READ: rdma-max-registered-memory" 0 -1]
        }
    }
}

start_server [list overrides $rdma] {
    fill 500 1000
    start_server [list overrides [list {*}$rdma rdma-max-registered-memory 12mb]] {
        test "a replica without memory for its buffers asks for an ordinary copy" -needs $::on_software_device {
            follow -1
            wait_up
            wait_same -1 0
            assert_equal rdma [field 0 master_link_transport]
            assert_equal 0 [field -1 rdma_sync_delivered]
        }
    }
}

start_server [list no_rdma 1 overrides {repl-diskless-sync-delay 0}] {
    r set key value
    start_server [list overrides $rdma] {
        test "a primary without an RDMA listener is followed over TCP, and by RDMA once it has one" \
            -needs $::on_software_device {
            follow -1
            wait_up
            assert_equal tcp [field 0 master_link_transport]
            assert_not_equal "" [field 0 master_link_rdma_error]
            assert [log_has "Using TCP"]
            wait_same -1 0
            # On another port than TCP: the primary reports it in the next handshake.
            r -1 config set rdma-port [free_port] rdma-bind $::opt(rdma_host)
            r -1 client kill type replica
            wait_for_condition 30000 {[link_up] && [field 0 master_link_transport] eq "rdma"}
            assert [log_has "The primary listens for RDMA on port"]
            assert_equal "" [field 0 master_link_rdma_error]
            r -1 set key again
            wait_same -1 0
        }
    }
}

start_server [list overrides $rdma] {
    fill 100 1000
    foreach {what number} {"was not offered" 1000000 "is negative" -1 "is none" 0} {
        test "a replica that acknowledges a chunk which $what is disconnected" \
            -needs [list {*}$::on_software_device clear "the replica of this test fetches in clear text"] {
            set c [replica_pull]
            $c replconf pulled $number
            assert_closed $c
            wait_over 0
            assert_equal 0 [field 0 rdma_read_windows rdma]
        }
    }

    foreach end {acknowledges "is given up"} {
        test "behind +END nothing but the stream follows, until a slow replica $end" \
            -needs [list {*}$::on_software_device clear "the replica of this test fetches in clear text"] {
            if {$end ne "acknowledges"} {r config set repl-timeout 2}
            set c [replica_pull]
            while {![regexp {^\+END (\d+) } [replica_line $c] -> chunks]} {}
            if {$end eq "acknowledges"} {
                set since [field 0 uptime_in_seconds server]
                wait_for_condition 10000 {[field 0 uptime_in_seconds server] >= $since + 3}
                r set key value
                $c -send replconf pulled $chunks
                $c -send replconf ack 0
                assert_equal * [$c -readraw 1]
            } else {
                assert [catch {$c -readraw 1} byte] "the primary sends '$byte'"
                r config set repl-timeout 60
            }
            $c -close
            wait_over 0
        }
    }

    test "a client that is no replica acknowledges nothing" -needs $::on_software_device {
        set c [new_client]
        $c -send replconf pulled 1
        assert_equal PONG [$c ping]
    }
}
