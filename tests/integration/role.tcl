# Behavior that depends on the server's role. DEBUG ROLE sets the role without a primary.

proc role_to {args} {r debug role {*}$args}
# Runs the body while the server is a replica; it is a primary again afterwards.
proc as_replica {body} {
    role_to replica 192.0.2.1 7000
    set code [catch {uplevel 1 $body} result options]
    role_to primary
    return -options $options $result
}
# A connection whose commands are executed as those of the primary.
proc primary_stream {} {
    set c [new_client]
    $c debug role as-primary
    return $c
}

start_server {overrides {enable-debug-command yes} tags {role}} {
    test "a primary says so" {
        assert_equal master [lindex [r role] 0]
        assert_equal {} [lindex [r role] 2]
        assert_equal master [info_field replication role]
        assert_equal master [dict get [r hello 2] role]
    }

    test "a replica reports its primary and the state of its link" -needs {ours 1} {
        as_replica {
            assert_equal {slave 192.0.2.1 7000 connect -1} [r role]
            assert_equal replica [dict get [r hello 2] role]
            foreach {field value} {
                role slave master_host 192.0.2.1 master_port 7000 master_link_status down master_sync_in_progress 0
                master_link_down_since_seconds -1 slave_read_only 1 slave_priority 100 replica_announced 1
            } {assert_equal $value [info_field replication $field] $field}
            foreach state {connecting handshake sync} {
                role_to link $state
                assert_equal $state [lindex [r role] 3]
                assert_equal down [info_field replication master_link_status]
                assert_equal [expr {$state eq "sync"}] [info_field replication master_sync_in_progress]
            }
            role_to link connected
            assert_equal {connected 0} [lrange [r role] 3 4]
            assert_equal up [info_field replication master_link_status]
            assert_equal 0 [info_has replication master_link_down_since_seconds]
            role_to link connect
            assert_morethan [info_field replication master_link_down_since_seconds] -1
            role_to replica 192.0.2.2 7001
            assert_equal {slave 192.0.2.2 7001 connect -1} [r role]
        }
        assert_equal master [lindex [r role] 0]
        assert_equal 0 [info_has replication master_host]
    }

    test "a replica refuses its clients' writes, but not those of its primary" -needs {ours 1} {
        r flushall
        as_replica {
            assert_error "READONLY You can't write against a read only replica." {r set k v}
            assert_equal "" [r get k]
            set p [primary_stream]
            assert_equal OK [$p set k v]
            assert_equal v [r get k]
            r multi
            assert_error_like "READONLY*" {r set k w}
            assert_error_like "EXECABORT*" {r exec}
            with_config {replica-read-only no} {
                assert_equal OK [r set k w]
                assert_equal 0 [info_field replication slave_read_only]
            }
            assert_error_like "READONLY*" {r del k}
            assert_equal 0 [r publish ch x]
        }
        assert_equal 1 [r del k]
    }

    test "a replica refuses a script that declares that it writes, in MULTI when it is queued" -needs {ours 1} {
        set refused "READONLY You can't write against a read only replica."
        r flushall
        r function load replace "#!lua name=role
            redis.register_function('writes', function(keys) return redis.call('set', keys\[1\], 'v') end)
            redis.register_function{function_name = 'reads', flags = {'no-writes'}, \
                callback = function(keys) return redis.call('get', keys\[1\]) end}"
        set writes "#!lua\nreturn redis.call('set', KEYS\[1\], 'v')"
        set reads "#!lua flags=no-writes\nreturn redis.call('get', KEYS\[1\])"
        set undeclared "return redis.call('set', KEYS\[1\], 'v')"
        set writers [list [list eval $writes 1 k] [list evalsha [r script load $writes] 1 k] {fcall writes 1 k}]
        set others [list [list eval $reads 1 k] [list evalsha [r script load $reads] 1 k] {fcall reads 1 k} \
            [list eval_ro $reads 1 k] {fcall_ro reads 1 k} {fcall unknown 0} [list eval $undeclared 1 k] \
            [list evalsha [string repeat 0 40] 0]]
        as_replica {
            foreach command $writers {
                assert_error $refused {r {*}$command}
                r multi
                assert_error $refused {r {*}$command}
                assert_error "EXECABORT Transaction discarded because of previous errors." {r exec}
                assert_equal OK [[primary_stream] {*}$command]
            }
            r multi
            foreach command $others {assert_equal QUEUED [r {*}$command]}
            set replies [r -typed exec]
            assert_match "*$refused*" $replies
            assert_equal v [r get k]
            with_config {replica-read-only no} {foreach command $writers {assert_equal OK [r {*}$command]}}
        }
        r function flush
    }

    test "a replica without its primary answers from its data only where replica-serve-stale-data allows it" \
        -needs {ours 1} {
        r set k v
        as_replica {
            assert_equal v [r get k]
            with_config {replica-serve-stale-data no} {
                assert_error "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'." \
                    {r get k}
                assert_error_like "READONLY*" {r set k w}
                assert_equal slave [lindex [r role] 0]
                role_to link connected
                assert_equal v [r get k]
                role_to link sync
                assert_error_like "MASTERDOWN*" {r get k}
                assert_equal v [[primary_stream] get k]
            }
            assert_equal v [r get k]
        }
        with_config {replica-serve-stale-data no} {assert_equal v [r get k]}
    }

    test "a replica deletes nothing that has expired: it looks missing until the primary deletes it" -needs {ours 1} {
        r flushall
        r set plain v
        as_replica {
            set f [new_follower]
            set p [primary_stream]
            $p set k v px 1
            wait_for_condition 5000 {[r exists k] == 0}
            assert_equal "" [r get k]
            assert_equal -2 [r ttl k]
            assert_equal none [r type k]
            assert_equal {} [r keys k]
            for {set i 0} {$i < 50} {incr i} {assert_equal plain [r randomkey]}
            assert_equal 2 [r dbsize]
            assert_equal v [$p get k]
            assert_equal 2 [r dbsize]
            assert_equal 3 [$p append k 22]
            $p del k
            assert_equal 1 [r dbsize]
            # Only the commands of the primary.
            assert_equal {set append del} [lmap command [heard $f] {string tolower [lindex $command 0]}]
            $f -close
        }
    }

    test "a replica that becomes a primary deletes what has expired" -needs {ours 1} {
        r flushall
        as_replica {
            [primary_stream] set k v px 1
            wait_for_condition 5000 {[r exists k] == 0}
            assert_equal 1 [r dbsize]
        }
        wait_for_condition 5000 {[r dbsize] == 0}
    }

    test "a replica evicts only with replica-ignore-maxmemory off" -needs {ours 1} {
        r flushall
        for {set i 0} {$i < 50} {incr i} {r set key:$i [string repeat x 1000]}
        as_replica {
            set p [primary_stream]
            with_config {maxmemory-policy allkeys-random maxmemory 1} {
                assert_equal OK [$p set more v]
                assert_equal 51 [r dbsize]
                r config set replica-ignore-maxmemory no
                r ping
                wait_for_condition 5000 {[r dbsize] < 51}
                r config set replica-ignore-maxmemory yes
            }
        }
        r flushall
    }

    test "the log shows the role" -needs {ours 1} {
        set from [log_size]
        as_replica {r debug log "from a replica"}
        r debug log "from a primary"
        assert_regexp {:S [^\n]* from a replica} [log_text $from]
        assert_regexp {:M [^\n]* from a primary} [log_text $from]
    }
}
