# sync-replication: a reply leaves when replicas have the write; who may become the primary. seconds: 56

set sync_options {sync-replication yes min-sync-replicas 1 repl-diskless-sync-delay 0 repl-timeout 5}

proc sync_field {level name} {field $level $name default}
proc wait_writable {level {least 1}} {
    wait_for_condition 15000 {[sync_field $level sync_in_sync_replicas] >= $least && [sync_field $level sync_writable]}
}
proc join_group {level of} {
    r $level replicaof [srv $of host] [srv $of port]
    wait_for_condition 15000 {
        [sync_field $level sync_replication] eq "following" && [sync_field $level sync_eligible] eq 1
    }
}
proc held {c {ms 250}} { # no reply for this time
    after $ms
    fconfigure $resp::S([string range $c 8 end],fd) -blocking 0
    return [expr {[read $resp::S([string range $c 8 end],fd) 1] eq ""}]
}

test "what sync-replication cannot be combined with is refused at start" -needs {ours 1} {
    refuses_to_start "needs appendonly yes" --port [free_port] --sync-replication yes --sync-replication-fsync yes \
        --dir $::unit_dir
    refuses_to_start "must be between 1 and 15" --port [free_port] --min-sync-replicas 0 --dir $::unit_dir
}

test "a damaged file of promises stops the start" -needs {ours 1} {
    set dir [file join $::unit_dir damaged]
    file mkdir $dir
    write_file [file join $dir sync-replication.promises] "group x\n"
    set got [run_server --port [free_port] --sync-replication yes --dir $dir]
    assert_equal 1 [dict get $got code]
    assert_match "*cannot be read (the file is damaged)*" [dict get $got out]
}

start_server [list overrides [concat $sync_options {min-replicas-to-write 1}]] {
    test "the error of synchronous replication comes before the one of min-replicas-to-write" -needs {ours 1} {
        assert_match "-NOSYNCREPLICAS *" [r -typed set k v]
    }
}

start_server [list overrides $sync_options] {
    test "a primary without replicas refuses commands on data before it executes them" -needs {ours 1} {
        set refused "-NOSYNCREPLICAS Not enough in-sync replicas: 0 of at least 1 (min-sync-replicas) are connected."
        foreach command {{set k v} {get k} {eval "return redis.call('set', 'k', 'v')" 0} {lpush l a} {flushall}} {
            assert_equal $refused [r -typed {*}$command] $command
        }
        r multi
        assert_equal $refused [r -typed set k v]
        assert_match "-EXECABORT*" [r -typed exec]
        assert_equal PONG [r ping]
        assert_equal leading [sync_field 0 sync_replication]
        foreach {option value} {min-sync-replicas 2 sync-eligible no sync-replication-fsync yes sync-replication-file x
            sync-replication no} {
            set old [config_get $option]
            assert_match "-ERR CONFIG SET failed*'$option') - *can be changed only in the configuration file*" \
                [r -typed config set $option $value]
            assert_equal $old [config_get $option]
            assert_equal OK [r config set $option $old]
        }
    }

    start_server [list overrides $sync_options] {
        join_group 0 -1
        wait_writable -1

        test "a write is acknowledged, and replicas know what is committed" -needs {ours 1} {
            assert_equal OK [r -1 set k v]
            assert_equal v [r -1 get k]
            wait_for_condition 5000 {[r get k] eq "v"}
            set at [sync_field -1 sync_prepared_offset]
            wait_for_condition 5000 {[sync_field 0 sync_committed_offset] >= $at}
            assert {[sync_field -1 sync_committed_offset] <= [sync_field -1 sync_prepared_offset]}
            assert_equal 2 [sync_field -1 sync_members]
        }

        test "replies to writes, to reads after them and pushes wait for the replica" -needs {ours 1} {
            set writer [new_client -level -1 -deferring 1]
            set reader [new_client -level -1 -deferring 1]
            set script [new_client -level -1 -deferring 1]
            set tx [new_client -level -1 -deferring 1]
            set subscriber [new_client -level -1]
            set blocked [new_client -level -1 -deferring 1]
            $subscriber subscribe ch
            $blocked -send blpop list 0
            wait_for_condition 5000 {[sync_field -1 blocked_clients] == 1}
            exec kill -STOP [srv pid]
            $writer -send set k held
            $script -send eval {return redis.call('set', KEYS[1], 'x')} 1 other
            $tx -send multi
            $tx -send set third x
            $tx -send exec
            set silent [new_client -level -1 -deferring 1]
            $silent -send client reply off
            $silent -send rpush list element
            wait_for_condition 5000 {[sync_field -1 sync_prepared_offset] > [sync_field -1 sync_committed_offset]}
            $reader -send get untouched
            set other [new_client -level -1]
            $other publish ch message
            foreach c [list $writer $reader $script $blocked $subscriber] {assert [held $c 50] $c}
            exec kill -CONT [srv pid]
            assert_equal OK [$writer -read]
            assert_equal {} [$reader -read]
            assert_equal OK [$script -read]
            assert_equal {list element} [$blocked -read]
        }

        test "a reply that waits when the replica is gone is never given" -needs {ours 1} {
            set writer [new_client -level -1 -deferring 1]
            exec kill -STOP [srv pid]
            $writer -send set k lost
            set began [clock milliseconds]
            assert_closed $writer 12000
            assert {[clock milliseconds] - $began < 10000}
            exec kill -CONT [srv pid]
            # The replica's link may break once more when it notices the pause.
            wait_for_condition 20000 {
                ![catch {
                    set c [new_client -level -1]
                    $c set k again
                } reply] && [$c -close] eq "" && $reply eq "OK"
            } "no write is accepted again"
            wait_writable -1
        }

        test "a frozen primary answers no read before it has asked its replica" -needs {ours 1} {
            exec kill -STOP [srv -1 pid]
            set reader [new_client -level -1 -deferring 1]
            $reader -send get k
            after 1200
            exec kill -STOP [srv pid]
            exec kill -CONT [srv -1 pid]
            assert [held $reader 300]
            exec kill -CONT [srv pid]
            assert_equal again [$reader -read]
            wait_writable -1
        }

        start_server [list overrides $sync_options] {
            join_group 0 -2
            wait_writable -2 2

            test "a third server joins the set" -needs {ours 1} {
                wait_for_condition 10000 {[sync_field -2 sync_members] == 3 && [sync_field -2 sync_set_changes] == 0}
                wait_for_condition 10000 {[sync_field 0 sync_members] == 3}
            }

            test "FAILOVER hands over without losing a write" -needs {ours 1} {
                r -1 config set replica-serve-stale-data no ;# it takes over although its link is down
                r -2 set before failover
                assert_equal OK [r -2 failover to [srv -1 host] [srv -1 port]]
                wait_for_condition 15000 {[sync_field -1 sync_replication] eq "leading"}
                wait_for_condition 15000 {[string match "*master_link_status:up*" [r -2 info replication]]}
                wait_writable -1
                assert_equal failover [r -1 get before]
                assert_equal OK [r -1 set after failover]
                assert_equal "no-failover" [sync_field -2 master_failover_state]
                r -1 config set replica-serve-stale-data yes
                join_group 0 -1
                wait_writable -1 2
            }

            test "a replica that is promoted blindly has all writes, the old primary is fenced" -needs {ours 1} {
                r -1 set before promotion
                set blocked [new_client -level -1 -deferring 1]
                $blocked -send blpop nothing 0
                wait_for_condition 5000 {[sync_field -1 blocked_clients] == 1}
                r replicaof no one
                wait_for_condition 15000 {[sync_field 0 sync_replication] eq "leading"}
                wait_for_condition 5000 {[sync_field -1 sync_replication] eq "fenced"}
                assert_match "-NOSYNCREPLICAS This server does not lead its group: another server was asked to lead*" \
                    [r -1 -typed get before]
                assert_match "-NOSYNCREPLICAS*" [r -1 -typed set before x]
                catch {$blocked -read} ended
                assert_match "UNBLOCKED*" $ended
                assert_match "-NOSYNCREPLICAS*" [r -1 -typed wait 1 100]
                assert_match "-NOSYNCREPLICAS Not enough*" [r -typed get before]
                join_group -1 0
                join_group -2 0
                wait_writable 0 2
                assert_equal promotion [r get before]
            }

            test "a primary that restarts without its data gets them from its replicas" -needs {ours 1} {
                r set before restart
                restart_server -signal KILL
                wait_for_condition 20000 {[sync_field 0 sync_replication] eq "leading"}
                wait_writable 0 2
                assert_equal restart [r get before]
                assert_equal OK [r set after restart]
            }

            test "a primary gets its data back also where synchronizations use two channels" -needs {ours 1} {
                foreach level {-1 -2} {r $level config set dual-channel-replication-enabled yes}
                r set before "two channels"
                restart_server -signal KILL -overrides {dual-channel-replication-enabled yes}
                wait_for_condition 20000 {[sync_field 0 sync_replication] eq "leading"}
                wait_writable 0 2
                assert_equal "two channels" [r get before]
            }

            test "a replica that was promoted in vain follows again by itself" -needs {ours 1} {
                wait_for_condition 10000 {[sync_field 0 sync_set_changes] eq 0 && [sync_field 0 sync_members] == 3}
                set term [sync_field -1 sync_promised_term]
                foreach level {0 -2} { # -1 does not know the password, so nobody votes for it
                    r $level config set primaryauth secret
                    r $level config set requirepass secret
                }
                r -1 replicaof no one
                wait_for_condition 5000 {[sync_field -1 sync_promised_term] > $term}
                assert_equal standing [sync_field -1 sync_replication]
                assert_equal leading [sync_field 0 sync_replication]
                r -1 config set primaryauth secret
                r -1 replicaof [srv host] [srv port]
                wait_for_condition 15000 {[string match "*master_link_status:up*" [r -1 info replication]]}
                wait_writable 0 2
                assert_equal "two channels" [r get before]
                foreach level {0 -1 -2} {
                    r $level config set primaryauth ""
                    r $level config set requirepass ""
                }
            }

            # The script has written, so the primary has more than the others, and gives no copy before its end.
            test "a replica that is promoted while the primary runs a script leads before its end" -needs {ours 1} {
                r set before script
                wait_for_condition 10000 {[sync_field 0 sync_set_changes] eq 0 && [sync_field 0 sync_members] == 3}
                r config set busy-reply-threshold 20
                set script [new_client -deferring 1]
                set end [expr {[clock seconds] + 8}]
                $script -send eval "redis.call('set', 'uncommitted', 'x')
                    repeat local now = tonumber(redis.call('time')\[1\]) until now >= $end" 0
                wait_for_condition 5000 {[string match "-BUSY*" [r -typed ping]]}
                r -1 replicaof no one
                wait_for_condition 6000 {[sync_field -1 sync_replication] eq "leading"}
                assert_match "-BUSY*" [r -typed ping]
                join_group -2 -1
                wait_writable -1
                assert_equal script [r -1 get before]
                assert_equal OK [r -1 set after script]
                wait_for_condition 15000 {[r -typed ping] eq "+PONG"}
                assert_equal fenced [sync_field 0 sync_replication]
                join_group 0 -1
                wait_writable -1 2
                assert_equal OK [r -1 failover to [srv host] [srv port]]
                wait_for_condition 15000 {[sync_field 0 sync_replication] eq "leading"}
                join_group -2 0
                wait_writable 0 2
                assert_typed {nil$} get uncommitted
                assert_equal script [r get after]
            }

            test "a server alone does not lead until an operator accepts the loss" -needs {ours 1} {
                r set before loss
                wait_for_condition 5000 {[r -1 get before] eq "loss"}
                exec kill -STOP [srv pid]
                exec kill -STOP [srv -2 pid]
                r -1 replicaof no one
                after 1500
                assert_equal standing [sync_field -1 sync_replication]
                assert_equal 0 [sync_field -1 sync_writable]
                assert_match "*SYNC-FORCE ACCEPT-LOSS*" [r -1 -typed get before]
                r -1 replicaof no one
                after 300
                assert_equal standing [sync_field -1 sync_replication]
                assert_match "-ERR SYNC-FORCE makes*" [r -1 -typed replconf sync-force yes]
                assert_equal OK [r -1 replconf sync-force accept-loss]
                assert_equal leading [sync_field -1 sync_replication]
                exec kill -CONT [srv pid]
                exec kill -CONT [srv -2 pid]
                join_group -2 -1
                wait_writable -1
                assert_equal loss [r -1 get before]
            }
        }
    }
}

set sync_to_disk [dict merge $sync_options {appendonly yes sync-replication-fsync yes appendfsync always}]
start_server [list overrides $sync_to_disk] {
    start_server [list overrides $sync_to_disk] {
        test "with sync-replication-fsync a reply waits for the disk of the replica" -needs {ours 1} {
            join_group 0 -1
            wait_writable -1
            assert_equal OK [r -1 set k v]
        }
    }
}

start_server [list overrides [dict merge $sync_options {io-threads 4}]] {
    start_server [list overrides [dict merge $sync_options {io-threads 4}]] {
        test "with I/O threads replies wait, and pipelines are answered in order" -needs {ours 1} {
            join_group 0 -1
            wait_writable -1
            set c [new_client -level -1 -deferring 1]
            for {set i 0} {$i < 500} {incr i} {$c -send incr n}
            for {set i 1} {$i <= 500} {incr i} {assert_equal $i [$c -read]}
        }
    }
}

start_server {} {
    start_server [list overrides $sync_options] {
        test "a member of a group does not follow a primary without sync-replication" -needs {ours 1} {
            set at [log_size]
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_log "does not follow the primary: ERR sync-replication is off" $at 5000
            assert_equal "-ERR sync-replication is off" [r -1 -typed replconf sync-force accept-loss]
        }
    }
}

# Its vote in an election would otherwise offer data of another history as those of the primary.
start_server [list overrides [dict replace $sync_options repl-diskless-sync-delay 60]] {
    start_server [list overrides $sync_options] {
        test "a replica with a higher offset has the data of its primary only after they are copied" -needs {ours 1} {
            r publish channel [string repeat x 20000]
            assert {[sync_field 0 master_repl_offset] > [sync_field -1 master_repl_offset]}
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 15000 {[string match "*state=wait_bgsave*" [r -1 info replication]]}
            assert_equal 0 [sync_field 0 sync_data_is_current]
            r -1 config set repl-diskless-sync-delay 0
            wait_for_condition 15000 {[sync_field 0 sync_data_is_current] eq 1}
            wait_writable -1
        }
    }
}

set patient_options [dict replace $sync_options repl-timeout 60]
start_server [list overrides $patient_options] {
    start_server [list overrides $patient_options] {
        test "a link of a replica that has not noticed its end does not disturb the next one" -needs {ours 1} {
            set old [new_client -level -1]
            set hello [list [sync_field -1 sync_group] [sync_field 0 sync_id] [sync_field -1 sync_term] \
                [sync_field -1 sync_id] 1]
            assert_match "SYNC leads*" [$old replconf sync-hello $hello]
            $old -send psync ? -1
            wait_for_condition 10000 {[string match "*state=online*" [r -1 info replication]]}
            $old -send replconf ack 0
            join_group 0 -1
            wait_writable -1
            for {set i 0} {$i < 1000} {incr i} {assert_equal OK [r -1 set k $i]}
            assert_match "*connected_slaves:2*" [r -1 info replication]
            $old close
        }
    }
}

start_sentinels [list overrides $sync_options config {"sentinel down-after-milliseconds group 1500"}] {
    test "Sentinel promotes a replica, which the group elects and which has all writes" -needs {ours 1} {
        wait_for_condition 15000 {[regexp {sync_members:3.*} [g 0 info replication]]}
        assert_equal OK [g 0 set before failover]
        kill_group_server 0
        set port [wait_for_switch [group_port [lindex $::sentinel_group 0]]]
        set new [server_of_port $port]
        wait_for_condition 15000 {![catch {g $new get before} got] && $got eq "failover"}
        start_group_server 0
        wait_for_followers $port
        wait_for_condition 15000 {[regexp {sync_in_sync_replicas:2} [g $new info replication]]}
        assert_equal failover [g $new get before]
    }
}

start_sentinels [list servers 2 sentinels 1 quorum 1 overrides [dict merge $sync_options {sync-eligible no}] \
    config {"sentinel down-after-milliseconds group 1500"}] {
    test "Sentinel promotes no server that may lack acknowledged writes, and logs why" -needs {ours 1} {
        assert_match "*sync_eligible:0*" [g 1 info replication]
        set log [s_srv 0 log]
        kill_group_server 0
        set wanted "*cannot be promoted: it lacks acknowledged writes (sync_eligible:0)*-failover-abort-no-good-slave*"
        wait_for_condition 20000 {[string match $wanted [file_bytes $log]]}
        assert_match "*role:slave*" [g 1 info replication]
    }
}
