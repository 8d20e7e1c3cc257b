# BGSAVE: saves by the server's own process. The file has the data of the start, whatever happens meanwhile.
# seconds: 8

proc rdb_file {} {file join [srv dir] dump.rdb}
proc temp_files {} {glob -nocomplain -directory [srv dir] temp-*.rdb}
proc field {name} {info_field persistence $name}
proc wait_saved {} {wait_for_condition 20000 {[field rdb_bgsave_in_progress] eq "0"}}

# Runs the body while a save is running that makes no progress, except for keys that change.
proc with_endless_save {body} {
    r config set rdb-key-save-delay 1000000000
    try {
        assert_equal "Background saving started" [r bgsave forkless]
        assert_equal {1 forkless} [list [field rdb_bgsave_in_progress] [field rdb_current_bgsave_type]]
        uplevel 1 $body
    } finally {
        if {[process_alive [srv pid]]} {r config set rdb-key-save-delay 0}
    }
}
# Runs the body during a save that then succeeds. Returns the digest of its start.
proc during_save {body} {
    set from [log_size]
    r config set rdb-key-save-delay 1000000000
    set digest [r debug digest]
    r bgsave forkless
    try {
        wait_for_condition 5000 {[field current_save_keys_processed] > 0}
        uplevel 1 $body
    } finally {
        r config set rdb-key-save-delay 0
    }
    wait_saved
    assert_equal {ok forkless} [list [field rdb_last_bgsave_status] [field rdb_last_bgsave_type]]
    foreach line {"DB saved on disk" "Background saving terminated with success"} {wait_for_log $line $from}
    assert_equal {} [temp_files]
    return $digest
}
proc loaded_digest {} {
    restart_server -signal KILL
    r debug digest
}
# Some keys of each type, small and large.
proc all_types {{prefix ""}} {
    r set ${prefix}s v
    r set ${prefix}int 12345
    r set ${prefix}long [string repeat "0123456789abcdef" 20000]
    r setrange ${prefix}random 5000 [string repeat [clock microseconds] 3]
    r pexpire ${prefix}s 100000000
    r rpush ${prefix}l a b c 1 2 3 [string repeat x 20000]
    for {set i 0} {$i < 20} {incr i} {r rpush ${prefix}long-list {*}[lrepeat 100 element-$i]}
    r sadd ${prefix}ints 1 2 3 100000
    r sadd ${prefix}set a b c
    r sadd ${prefix}large-set {*}[lmap i [lrepeat 600 x] {incr n}] text
    r zadd ${prefix}z 1.5 a -2 b inf c
    for {set i 0} {$i < 300} {incr i} {r zadd ${prefix}large-z $i.25 member-$i}
    r hset ${prefix}h f 1 g 2
    r hset ${prefix}large-h f [string repeat y 5000] g [string repeat z 70]
    r hsetex ${prefix}timed ex 100000 fields 2 f 1 g 2
    r pfadd ${prefix}hll a b c d e f
    for {set i 1} {$i < 300} {incr i} {r xadd ${prefix}x * f $i g text}
    catch {r xgroup create ${prefix}x group 0}
    r xreadgroup group group consumer count 10 streams ${prefix}x >
    r xack ${prefix}x group [lindex [r xrange ${prefix}x - + count 1] 0 0]
}

start_server {overrides {save ""} tags {forkless}} {
    test "BGSAVE FORKLESS writes all types, databases and libraries" {
        all_types
        r select 9
        all_types other:
        r select 0
        r function load "#!lua name=lib\nserver.register_function('f', function() return 1 end)"
        set groups [r xinfo stream x full]
        set ttl [r httl timed fields 1 f]
        set digest [during_save {}]
        set forks [info_field stats total_forks]
        assert_equal $digest [loaded_digest]
        assert_equal 0 $forks
        assert_equal 1 [r fcall f 0]
        assert_equal $groups [r xinfo stream x full]
        assert_range [r httl timed fields 1 f] 1 $ttl
        assert_range [r pttl s] 1 100000000
    }

    test "a genuine server and its check program read the file" -needs {true {[info exists ::env(GENUINE_VALKEY)]}} {
        set genuine $::env(GENUINE_VALKEY)
        assert_equal OK [r config set rdbcompression no]
        foreach compression {yes no} {
            r config set rdbcompression $compression
            set digest [during_save {r set s changed}]
            set got [run [file join $genuine valkey-check-rdb] [rdb_file]]
            assert_equal 0 [dict get $got code] [dict get $got out]
            set dir [file join $::unit_dir genuine$compression]
            file mkdir $dir
            file copy [rdb_file] $dir/dump.rdb
            set saved $::opt(server)
            set ::opt(server) [file join $genuine valkey-server]
            try {
                lassign [serve -dir $dir -- --port PORT --save "" --enable-debug-command yes --dir DIR] handle port
                set c [new_client -port $port]
                wait_for_condition 5000 {![catch {$c ping}]}
                assert_equal $digest [$c debug digest]
                assert_equal [r xinfo stream x full] [$c xinfo stream x full]
                assert_equal 1 [$c fcall f 0]
                $c -close
            } finally {
                set ::opt(server) $saved
            }
        }
    }

    test "a file has the same keys, header and size as that of SAVE" {
        r flushall
        r debug populate 1000 key 50
        set checks {}
        foreach how {save bgsave} {
            r $how
            wait_saved
            set got [run [file join $::root src valkey-check-rdb] [rdb_file]]
            assert_equal 0 [dict get $got code]
            lappend checks [regexp -all -inline -line {^\[info\].*} [dict get $got out]]
            lappend sizes [file size [rdb_file]]
        }
        assert_equal forkless [field rdb_last_bgsave_type]
        assert_range [expr {[lindex $sizes 0] - [lindex $sizes 1]}] -8 8
        assert_equal [lindex $checks 0] [lindex $checks 1]
    }
}

# --- Changes meanwhile ---

start_server {overrides {save "" hash-max-listpack-entries 16} tags {forkless}} {
    test "writes of all types during a save are not in the file" {
        r debug populate 1000 key 30
        all_types
        set digest [during_save {
            all_types
            for {set i 0} {$i < 1000} {incr i 7} {r append key:$i more}
            for {set i 1} {$i < 1000} {incr i 7} {r del key:$i}
            for {set i 2} {$i < 1000} {incr i 7} {r expire key:$i 1000}
            for {set i 3} {$i < 1000} {incr i 7} {r rename key:$i renamed:$i}
            for {set i 4} {$i < 1000} {incr i 7} {r copy key:$i copied:$i}
            for {set i 5} {$i < 1000} {incr i 7} {r move key:$i 3}
            for {set i 0} {$i < 300} {incr i} {r set new:$i v}
            r setrange long 100 changed
            r lset l 0 changed
            r ltrim long-list 100 200
            r hincrby h f 5
            r hdel timed f
            r xtrim x maxlen 5
            r xgroup destroy x group
            r pfcount hll
            r sort ints store sorted
            r spop set 2
        }]
        assert_equal $digest [loaded_digest]
    }

    test "a file has what was there before a script, a transaction, SWAPDB and FLUSHDB" {
        r debug populate 1000 key 30
        r select 1
        all_types
        r select 0
        set digest [during_save {
            r eval {for i = 0, 999 do redis.call('set', 'key:' .. i, 'script') end} 0
            r multi
            r del key:1 key:2
            r select 1
            r flushdb
            r select 0
            r exec
            r swapdb 0 2
            r set key:5 v
            r select 2
            r flushdb sync
            r select 0
            r set key:6 v
        }]
        assert_equal $digest [loaded_digest]
    }

    test "keys and fields that expire during a save are in the file" {
        r flushall
        r debug populate 1000 key 30
        for {set i 0} {$i < 200} {incr i} {r pexpire key:$i 1500}
        for {set i 0} {$i < 50} {incr i} {r hsetex h$i px 1500 fields 1 f v}
        during_save {
            wait_for_condition 10000 {[r dbsize] == 800}
        }
        assert_range [field rdb_last_load_keys_expired] 0 0
        restart_server -signal KILL
        assert_equal 800 [r dbsize]
        assert_range [field rdb_last_load_keys_expired] 1 200
    }

    test "keys that are evicted during a save are in the file" {
        r flushall
        r debug populate 1000 key 2000
        set digest [during_save {
            # Connections of some transports take more memory than the keys.
            set limit [expr {[info_field memory used_memory] - 700000}]
            r config set maxmemory-policy allkeys-random maxmemory $limit
            try {
                wait_for_condition 10000 {![catch {r set k v}]}
                wait_for_condition 10000 {[r dbsize] < 950}
            } finally {
                r config set maxmemory 0
            }
        }]
        assert_equal $digest [loaded_digest]
    }

    test "keys of FLUSHDB that a save has not read do not make the server evict others" {
        r flushall
        r select 1
        r set other v
        r select 0
        r debug populate 5000 key 2000
        set evicted [info_field stats evicted_keys]
        set digest [during_save {
            r config set maxmemory-policy allkeys-random maxmemory [expr {[info_field memory used_memory] + 4000000}]
            try {
                r flushdb
                assert_morethan [info_field memory mem_not_counted_for_evict] 6000000
                for {set i 0} {$i < 4000} {incr i} {r set new:$i [string repeat v 2000]}
                assert_equal {4000 0} [list [r dbsize] [expr {[info_field stats evicted_keys] - $evicted}]]
            } finally {
                r config set maxmemory 0
            }
        }]
        assert_lessthan [info_field memory mem_not_counted_for_evict] 6000000
        assert_equal $digest [loaded_digest]
    }

    test "large values are written as they were, while clients change them" {
        r flushall
        for {set i 0} {$i < 20} {incr i} {r set large:$i [string repeat "value $i " 20000]}
        r hset hash f [string repeat h 100000]
        r rpush list [string repeat l 100000]
        r debug populate 500 key 10
        set digest [during_save {
            for {set i 0} {$i < 20} {incr i} {
                r setrange large:$i 70000 changed
                r append large:$i more
                r getdel large:$i
            }
            r hset hash f other
            r lset list 0 other
        }]
        assert_equal $digest [loaded_digest]
    }

    test "several clients write during a save of many keys" {
        r flushall
        r debug populate 100000 key 100
        set digest [r debug digest]
        set clients [lmap i {0 1 2} {new_client -deferring 1}]
        r bgsave forkless
        for {set i 0} {$i < 3000} {incr i} {
            foreach c $clients {$c set key:[expr {int(rand() * 100000)}] changed}
        }
        foreach c $clients {for {set i 0} {$i < 3000} {incr i} {assert_equal OK [$c -read]}}
        wait_saved
        assert_equal $digest [loaded_digest]
    }
}

# --- Options, other commands, INFO ---

start_server {overrides {save ""} tags {forkless}} {
    r debug populate 100 key 10

    test "INFO shows the method, the progress and the remaining time" {
        assert_equal {none none -1} [list [field rdb_current_bgsave_type] [field rdb_last_bgsave_type]\
            [field forkless_estimated_seconds_remaining]]
        with_endless_save {
            wait_for_condition 5000 {[field current_save_keys_processed] > 0}
            assert_equal 100 [field current_save_keys_total]
            assert_range [field current_save_keys_processed] 1 99
            assert_range [field forkless_estimated_seconds_remaining] 0 1000000000
            assert_range [field rdb_current_bgsave_time_sec] 0 1000
            assert_equal 0 [info_field stats latest_fork_usec]
            r bgsave cancel
            wait_saved
            assert_equal {none -1 0} [list [field rdb_current_bgsave_type]\
                [field forkless_estimated_seconds_remaining] [field forkless_waiting_bytes]]
        }
    }

    test "while it runs no other save or rewrite starts" {
        with_endless_save {
            foreach how {{} forkless schedule} {
                assert_error "ERR Background save already in progress" {r bgsave {*}$how}
            }
            assert_error "ERR Background save already in progress" {r save}
            assert_equal "Background append only file rewriting scheduled" [r bgrewriteaof]
            assert_equal 0 [field aof_rewrite_in_progress]
        }
        wait_for_condition 10000 {[field aof_rewrite_scheduled] == 0 && [field aof_rewrite_in_progress] == 0}
    }

    test "BGSAVE, BGSAVE FORKLESS, SCHEDULE and save points save without fork" {
        foreach how {{} forkless schedule} {
            set from [log_size]
            assert_equal "Background saving started" [r bgsave {*}$how]
            wait_saved
            wait_for_log "Background saving started by pid [srv pid], without fork" $from
        }
        r set k v
        set from [log_size]
        r config set save "1 1"
        wait_for_log "Background saving terminated with success" $from 10000
        assert_equal 0 [field rdb_changes_since_last_save]
        r config set save ""
        assert_equal forkless [field rdb_last_bgsave_type]
        assert_equal {0 0} [list [info_field stats total_forks] [info_field stats latest_fork_usec]]
        foreach name {rdb_last_cow_size aof_last_cow_size module_fork_last_cow_size current_cow_size current_cow_peak} {
            assert_equal 0 [field $name] $name
        }
    }

    test "what asks for a fork is refused with the reason" {
        assert_error_like "ERR This server saves without fork*: use BGSAVE or BGSAVE FORKLESS" {r bgsave fork}
        assert_equal {bgsave-default-method forkless forkless-infrastructure-enabled yes} \
            [r config get bgsave-default-method forkless-infrastructure-enabled]
        foreach {option value reason} {
            bgsave-default-method fork "This server saves without fork*: use forkless, or leave the option out"
            bgsave-default-method thread "*must be one of the following: forkless"
            forkless-infrastructure-enabled no "*no other way to save than without fork: use yes, *"
        } {
            assert_error_like "ERR CONFIG SET failed (possibly related to argument '$option') - $reason" {
                r config set $option $value
            }
            set config [file join [srv dir] refused.conf]
            write_file $config "port 0\n$option $value\n"
            set got [run [file join $::root src valkey-server] $config]
            assert_not_equal 0 [dict get $got code]
            assert_match "*$reason*" [dict get $got out][dict get $got err]
        }
    }

    test "CONFIG SET dir and dbfilename do not move a file that is being written" {
        set other [file join [srv dir] other]
        file mkdir $other
        file delete [rdb_file]
        during_save {r config set dbfilename later.rdb dir $other}
        assert_equal {1 0} [list [file exists [rdb_file]] [file exists $other/later.rdb]]
        r config set dir [srv dir] dbfilename dump.rdb
    }

    test "a replica that attaches during a save gets its copy after it" {
        with_endless_save {
            start_server {overrides {save ""}} {
                r replicaof [srv -1 host] [srv -1 port]
                wait_for_log "Waiting for next BGSAVE for SYNC" 0 10000 -1
                r -1 set during save
                r -1 config set rdb-key-save-delay 0
                wait_for_condition 20000 {[info_field replication master_link_status] eq "up"}
                wait_for_condition 10000 {[r get during] eq "save"}
                assert_equal [r -1 debug digest] [r debug digest]
            }
        }
    }

    test "a replica saves while it applies the stream" {
        start_server {overrides {save ""}} {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 20000 {[info_field replication master_link_status] eq "up"}
            wait_for_condition 10000 {[r debug digest] eq [r -1 debug digest]}
            set digest [during_save {
                for {set i 0} {$i < 100} {incr i} {r -1 set key:$i changed}
                wait_for_condition 10000 {[r get key:99] eq "changed"}
            }]
            r replicaof no one
            r config rewrite
            assert_equal $digest [loaded_digest]
        }
    }
}

start_server [list overrides [list loadmodule [file join $::root build modules typed.so] save ""] tags {modules}] {
    test "values of modules are written by the main thread, as they were" {
        for {set i 0} {$i < 50} {incr i} {r typed.set m$i $i -7 1.5 0.25 3.125 text bytes}
        r debug populate 500 key 10
        set before [lmap i {0 7 49} {r typed.get m$i}]
        during_save {
            for {set i 0} {$i < 50} {incr i} {r typed.set m$i 99 -8 2.5 0.5 1.125 other bytes}
        }
        restart_server -signal KILL
        assert_equal $before [lmap i {0 7 49} {r typed.get m$i}]
    }
}

start_server {overrides {save "" cluster-enabled yes cluster-require-full-coverage no} tags {cluster}} {
    test "a node of a cluster saves its slots" {
        r cluster addslotsrange 0 16383
        wait_for_condition 10000 {[string match *cluster_state:ok* [r cluster info]]}
        r debug populate 1000 key 30
        set digest [during_save {
            for {set i 0} {$i < 1000} {incr i 3} {r set key:$i changed}
            for {set i 1} {$i < 1000} {incr i 3} {r del key:$i}
        }]
        assert_equal $digest [loaded_digest]
    }
}

# --- The disk ---

start_faulty_server {save ""} {
    r debug populate 20000 key 20
    r save
    set before [file_bytes [rdb_file]]
    r set k changed

    test "after a failure the next save succeeds" {
        faults "write */temp-*.rdb short 1000" "write */temp-*.rdb fail EINTR times=3"
        r bgsave forkless
        wait_saved
        assert_equal ok [field rdb_last_bgsave_status]
        faults
    }

    test "a file has what was there before commands changed entries that a thread was reading" {
        r flushall
        r config set forkless-buffer-limit 256mb rdbcompression no
        r debug populate 100000 key 100
        all_types
        set digest [r debug digest]
        # The reader waits for the disk, and has entries.
        faults "write */temp-*.rdb slow 20"
        r bgsave forkless
        set c [new_client -deferring 1]
        for {set i 0} {$i < 100000} {incr i 7} {
            $c set key:$i changed
            $c append key:[expr {$i + 1}] more
            $c del key:[expr {$i + 2}]
            $c pexpire key:[expr {$i + 3}] 100000
            $c rename key:[expr {$i + 4}] renamed:$i
        }
        for {set i 0} {$i < 100000} {incr i 7} {for {set j 0} {$j < 5} {incr j} {$c -read}}
        r eval {for i = 0, 99999 do redis.call('setrange', 'key:' .. i, 3, 'script') end} 0
        r hset small:hash f other
        r rpush small:list other
        faults
        wait_saved
        assert_equal {ok forkless} [list [field rdb_last_bgsave_status] [field rdb_last_bgsave_type]]
        assert_equal $digest [loaded_digest]
    }

    test "clients are served while a slow disk takes a save, and writes wait when too much is not written" {
        r flushall
        for {set i 0} {$i < 200} {incr i} {r set large:$i [string repeat [expr {rand()}] 6000]}
        set digest [r debug digest]
        r config set forkless-buffer-limit 1mb rdbcompression no
        faults "write */temp-*.rdb slow 30"
        set from [log_size]
        set pauses [field forkless_write_pauses]
        r bgsave forkless
        for {set i 0} {$i < 200} {incr i} {
            r set large:$i changed
            assert_equal changed [r get large:$i]
        }
        wait_saved
        assert_morethan [field forkless_write_pauses] $pauses
        assert {[log_has "Writes of clients wait for the background save" $from]}
        assert_equal {none ok} [list [info_field clients paused_reason] [field rdb_last_bgsave_status]]
        faults
        assert_equal $digest [loaded_digest]
    }

    test "a save that is cancelled lets the writes go on that wait for it" {
        r config set forkless-buffer-limit 1mb rdbcompression no
        faults "write */temp-*.rdb slow 300"
        r bgsave forkless
        set c [new_client -deferring 1]
        for {set i 0} {$i < 200} {incr i} {$c append large:$i x}
        wait_for_condition 10000 {[info_field clients paused_reason] eq "save_backlog"}
        assert_morethan [field forkless_waiting_bytes] 1000000
        assert_equal {write 0} [list [info_field clients paused_actions]\
            [info_field clients paused_timeout_milliseconds]]
        r bgsave cancel
        for {set i 0} {$i < 200} {incr i} {$c -read}
        wait_saved
        assert_equal none [info_field clients paused_reason]
        faults
    }

    test "at maxmemory a write that waits for a save evicts keys and succeeds, and messages do not wait" {
        r flushall
        for {set i 0} {$i < 200} {incr i} {r set large:$i [string repeat [expr {rand()}] 3000]}
        r config set maxmemory-policy allkeys-random
        faults "write */temp-*.rdb slow 100"
        r bgsave forkless
        set c [new_client -deferring 1]
        set d [new_client]
        for {set i 0} {$i < 150} {incr i} {$c append large:$i x}
        wait_for_condition 10000 {[info_field clients paused_reason] eq "save_backlog"}
        assert_equal 0 [$d publish channel text]
        r config set maxmemory [expr {[info_field memory used_memory] - 2000000}]
        for {set i 0} {$i < 150} {incr i} {assert_morethan [$c -read] 0}
        wait_saved
        assert_equal ok [field rdb_last_bgsave_status]
        r config set maxmemory 0
        faults
    }

    test "a client that waits for a large value goes on when forkless-buffer-limit is raised" {
        r flushall
        r eval {for i = 1, 40000 do redis.call('hset', 'hash', i, ARGV[1]) end} 0 [string repeat x 300]
        set digest [r debug digest]
        r config set forkless-buffer-limit 1mb
        faults "write */temp-*.rdb slow 1000"
        r bgsave forkless
        set c [new_client -deferring 1]
        # What is left of it is more than may wait.
        wait_for_condition 10000 {[field forkless_waiting_bytes] > 3000000}
        $c hset hash 1 changed
        wait_for_condition 10000 {[regexp { flags=b } [r client list]]}
        r config set forkless-buffer-limit 256mb
        assert_equal 0 [$c -read]
        assert_morethan [field forkless_waiting_bytes] 6000000
        faults
        r config set forkless-buffer-limit 1mb
        wait_saved
        assert_equal $digest [loaded_digest]
    }

    test "at maxmemory large values that wait for the disk do not make the server evict others" {
        r flushall
        r config set maxmemory 0 maxmemory-policy allkeys-random forkless-buffer-limit 64mb rdbcompression no
        for {set i 0} {$i < 2000} {incr i} {r set large:$i [string range [string repeat [expr {rand()}] 600] 0 10239]}
        faults "write */temp-*.rdb slow 100"
        set evicted [info_field stats evicted_keys]
        r bgsave forkless
        r config set maxmemory [expr {[info_field memory used_memory] - 100000}]
        for {set i 0} {$i < 20} {incr i} {r set small:$i v}
        after 300
        assert_equal 1 [field rdb_bgsave_in_progress]
        assert_range [expr {[info_field stats evicted_keys] - $evicted}] 0 100
        r config set maxmemory 0
        r bgsave cancel
        wait_saved
        faults
    }

    test "a replica applies the stream of its primary during a save whose buffer is full" {
        r flushall
        for {set i 0} {$i < 200} {incr i} {r set large:$i [string repeat [expr {rand()}] 3000]}
        start_server {overrides {save "" repl-diskless-sync-delay 0}} {
            r -1 replicaof [srv host] [srv port]
            r config set maxmemory 0
            for {set i 0} {$i < 200} {incr i} {r set large:$i [string repeat [expr {rand()}] 3000]}
            wait_for_condition 20000 {[r -1 strlen large:199] == [r strlen large:199]}
            wait_for_condition 20000 {[r -1 debug digest] eq [r debug digest]}
            faults "write */temp-*.rdb slow 1000"
            r -1 bgsave forkless
            for {set i 0} {$i < 200} {incr i} {r set large:$i changed}
            wait_for_condition 10000 {[r -1 get large:199] eq "changed"}
            assert_equal forkless [dict get [info_dict [r -1 info persistence]] rdb_current_bgsave_type]
            r -1 bgsave cancel
            r -1 replicaof no one
        }
        faults
        wait_saved
    }

    test "a server that is killed in the middle of a save starts with the old file" {
        r debug populate 20000 key 20
        r save
        set digest [r debug digest]
        r set k newer
        faults "write */temp-*.rdb powercut after=50000"
        expect_server_exit
        catch {r bgsave forkless}
        server_reap [srv id]
        faults
        server_start_again
        assert_equal $digest [r debug digest]
    }
}

start_faulty_server [list save "" loadmodule [file join $::root build modules typed.so]] {
    test "a module saves to another file meanwhile, and a server that is interrupted twice removes the unfinished one" {
        set other [file join [srv dir] other.rdb]
        faults "sync */temp-forkless-*.rdb wait"
        r set k v
        r bgsave forkless
        wait_for_condition 5000 {[llength [temp_files]] == 1}
        assert_equal OK [r typed.file SAVE $other]
        assert_equal {1 1 1} [list [file exists $other] [llength [temp_files]] [field rdb_bgsave_in_progress]]
        expect_server_exit
        r -send debug sleep 30
        exec kill -INT [srv pid]
        wait_for_log "Received SIGINT scheduling shutdown..."
        exec kill -INT [srv pid]
        assert_equal 1 [server_reap [srv id]]
        assert_equal {} [temp_files]
        wait_for_log "You insist... exiting now."
    }
}
