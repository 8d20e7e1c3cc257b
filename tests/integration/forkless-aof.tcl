# Rewrites of the append-only file: the base has the data of the start, and the new incremental file each change since
# then, once. seconds: 10

proc field {name} {info_field persistence $name}
proc temp_files {} {glob -nocomplain -directory [srv dir] temp-*}

# Runs the body during a rewrite that makes no progress, except for keys that change.
proc during_rewrite {body} {
    set from [log_size]
    r config set rdb-key-save-delay 1000000000
    try {
        r bgrewriteaof
        wait_for_condition 5000 {[field current_save_keys_processed] > 0 && [llength [temp_files]] == 1}
        assert_equal {1 none} [list [field aof_rewrite_in_progress] [field rdb_current_bgsave_type]]
        wait_for_log "Background append only file rewriting started by pid [srv pid], without fork" $from
        uplevel 1 $body
    } finally {
        if {[process_alive [srv pid]]} {r config set rdb-key-save-delay 0}
    }
    aof_wait_rewritten
}
proc succeeds {body} {
    set from [log_size]
    uplevel 1 [list during_rewrite $body]
    foreach line {"Successfully created the temporary AOF base file temp-rewriteaof-bg-[srv pid].aof"
            "Background AOF rewrite terminated with success" "Background AOF rewrite finished successfully"} {
        assert {[log_has [subst $line] $from]}
    }
    assert_equal {ok 0 {}} [list [field aof_last_bgrewrite_status] [field aof_last_cow_size] [temp_files]]
    assert_range [field aof_last_rewrite_time_sec] 0 100
    assert_equal 0 [info_field stats total_forks]
}
proc populate {} {
    r flushall
    r select 9
    r set elsewhere 1
    r select 0
    for {set i 0} {$i < 200} {incr i} {r mset number:$i $i text:$i v}
    for {set i 0} {$i < 150} {incr i} {
        r rpush list element:$i
        r sadd ints $i
        r sadd set member:$i
        r zadd zset [expr {$i / 7.0}] member:$i
        r hset hash field:$i $i
        r xadd stream $i-1 f v
    }
    r set large [string repeat 0123456789abcdef 20000]
    r rpush list [string repeat x 20000]
    r hsetex timed ex 100000 fields 2 f 1 g 2
    r xgroup create stream group 0
    r xreadgroup group group consumer count 10 streams stream >
}
# Commands that show whether they were executed twice, or not at all.
proc change_everything {} {
    for {set i 0} {$i < 200} {incr i} {
        r incr number:$i
        r append text:$i $i
        if {$i % 3 == 0} {r rename text:$i renamed:$i}
        if {$i % 5 == 0} {r move number:$i 3}
        if {$i % 7 == 0} {r copy number:[expr {$i + 1}] copy:$i}
        r incr new:$i
    }
    r lpop list
    r rpush list more
    r linsert list before element:5 other
    r zincrby zset 3 member:7
    r hincrby hash field:3 10
    r hincrby timed g 5
    r spop set 20
    r append large more
    r xadd stream * f other
    r xack stream group 0-1
    r xreadgroup group group other count 2 streams stream >
    r eval {redis.call('incr', 'number:1'); redis.call('rpush', 'list', 'by-script')} 0
    r multi
    r incr number:2
    r select 9
    r incr elsewhere
    r select 0
    r exec
    r swapdb 3 4
    r select 5
    r incr k
    r select 0
    r swapdb 5 9
    r select 9
    r incr k
    r select 0
}
proc groups {} {
    set state [r xinfo stream stream full]
    lmap group [dict get $state groups] {list [dict get $group name] [dict get $group pel-count]\
        [lmap consumer [dict get $group consumers] {dict get $consumer name}]}
}

start_server {overrides {appendonly yes hash-max-listpack-entries 16}} {
    foreach preamble {yes no} {
        test "the base has the data of the start, and the new file what follows (aof-use-rdb-preamble $preamble)" {
            r config set aof-use-rdb-preamble $preamble
            populate
            r function load replace "#!lua name=lib\nserver.register_function('f', function() return '$preamble' end)"
            succeeds {
                change_everything
                set code "server.register_function('g$preamble', function() return 1 end)"
                r function load "#!lua name=lib$preamble\n$code"
            }
            assert_match [expr {$preamble ? "*.base.rdb" : "*.base.aof"}] [aof_files b]
            assert_equal 1 [llength [aof_files i]]
            set digest [r debug digest]
            set groups [groups]
            r debug loadaof
            assert_equal $digest [r debug digest]
            restart_server -signal KILL
            assert_equal [list $digest $groups] [list [r debug digest] [groups]]
            assert_equal [list $preamble 1] [list [r fcall f 0] [r fcall g$preamble 0]]
        }

        test "flushed databases are in the base, and what flushes them in the new file ($preamble)" {
            populate
            succeeds {
                r select 9
                r flushdb
                r set k v
                r select 0
                r flushdb async
                r incr k
                r set large v
            }
            keeps_data {restart_server -signal KILL}
            assert_equal {2 1} [list [r dbsize] [r get k]]
        }

        test "FLUSHALL frees the data, and a rewrite begins again ($preamble)" {
            r flushall
            for {set i 0} {$i < 500} {incr i} {r set key:$i [string repeat x 10000]}
            set used [info_field memory used_memory]
            set from [log_size]
            during_rewrite {
                r flushall
                wait_for_condition 5000 {[info_field memory used_memory] < $used - 4000000}
                r incr k
            }
            assert {[log_has "Background AOF rewrite was stopped by the server" $from]}
            wait_for_log "Background AOF rewrite finished successfully" $from
            assert_equal {ok {}} [list [field aof_last_bgrewrite_status] [temp_files]]
            set digest [r debug digest]
            restart_server -signal KILL
            assert_equal [list $digest 1] [list [r debug digest] [r get k]]
        }
    }

    test "a genuine server reads both formats" -needs {true {[info exists ::env(GENUINE_VALKEY)]}} {
        set genuine $::env(GENUINE_VALKEY)
        foreach preamble {yes no} {
            r config set aof-use-rdb-preamble $preamble
            populate
            succeeds change_everything
            set digest [r debug digest]
            set dir [file join $::unit_dir genuine$preamble]
            file mkdir $dir
            file copy [aof_dir] $dir
            if {!$preamble} { # it does not know the magic of an RDB file with hashes whose fields expire
                set manifest [file join $dir appendonlydir appendonly.aof.manifest]
                set got [run [file join $genuine valkey-check-aof] $manifest]
                assert_equal 0 [dict get $got code] [dict get $got out]
            }
            set saved $::opt(server)
            set ::opt(server) [file join $genuine valkey-server]
            try {
                lassign [serve -dir $dir -- --port PORT --save "" --enable-debug-command yes --dir DIR\
                    --appendonly yes] handle port
                set c [new_client -port $port]
                wait_for_condition 5000 {![catch {$c ping}]}
                assert_equal $digest [$c debug digest]
                $c -close
            } finally {
                set ::opt(server) $saved
            }
        }
    }

    test "many clients that write meanwhile find all their writes again" {
        r flushall
        r debug populate 50000 key 20
        foreach preamble {yes no} {
            r config set aof-use-rdb-preamble $preamble
            set clients [lmap i {0 1 2} {new_client -deferring 1}]
            r bgrewriteaof
            for {set i 0} {$i < 3000} {incr i} {
                foreach c $clients {
                    set key key:[expr {int(rand() * 50000)}]
                    if {rand() < 0.5} {$c append $key x} else {$c rpush list:[expr {$i % 50}] $i}
                }
            }
            foreach c $clients {
                for {set i 0} {$i < 3000} {incr i} {$c -read}
                $c -close
            }
            aof_wait_rewritten
            assert_equal ok [field aof_last_bgrewrite_status]
            keeps_data {restart_server -signal KILL}
        }
    }

    test "one rewrite at a time, and BGSAVE waits for it" {
        during_rewrite {
            assert_error "ERR Background append only file rewriting already in progress" {r bgrewriteaof}
            assert_error_like "ERR Another child process is active (AOF?): can't BGSAVE right now.*" {r bgsave}
            assert_equal "Background saving scheduled" [r bgsave schedule]
        }
        wait_for_condition 10000 {[field rdb_last_bgsave_type] eq "forkless" && ![field rdb_bgsave_in_progress]}
    }

    test "CONFIG SET appendonly no ends it, and yes begins another" {
        during_rewrite {
            set from [log_size]
            r config set appendonly no
            assert_equal 0 [field aof_rewrite_in_progress]
            wait_for_log "Background AOF rewrite was stopped by the server" $from
            assert_equal {ok {}} [list [field aof_last_bgrewrite_status] [temp_files]]
            r config set rdb-key-save-delay 0
            r set while off
            r config set appendonly yes
            wait_for_log "Background AOF rewrite finished successfully" $from
        }
        set digest [r debug digest]
        restart_server -signal KILL
        assert_equal [list $digest off] [list [r debug digest] [r get while]]
    }

    test "changes during the first rewrite are in the first file" {
        r config set appendonly no
        populate
        r config set rdb-key-save-delay 1000000000
        set from [log_size]
        r config set appendonly yes
        wait_for_log "Background append only file rewriting started by pid" $from
        assert_equal 1 [llength [glob -nocomplain -directory [aof_dir] temp-*.incr]]
        change_everything
        r config set rdb-key-save-delay 0
        wait_for_log "Background AOF rewrite finished successfully" $from
        keeps_data {restart_server -signal KILL}
    }

    test "CONFIG SET appendonly yes during a rewrite without the append-only file begins another" {
        r config set appendonly no
        populate
        during_rewrite {
            r incr only-in-memory
            set from [log_size]
            r config set appendonly yes
            assert_equal {0 1} [list [field aof_rewrite_in_progress] [field aof_rewrite_scheduled]]
            wait_for_log "Background AOF rewrite was stopped by the server" $from
            r incr appended
            r config set rdb-key-save-delay 0
            wait_for_log "Background AOF rewrite finished successfully" $from
        }
        set digest [r debug digest]
        restart_server -signal KILL
        assert_equal [list $digest 1 1] [list [r debug digest] [r get only-in-memory] [r get appended]]
    }

    test "a server without the append-only file deletes what a killed process left of its first rewrite" {
        r set k v
        write_file [file join [aof_dir] temp-appendonly.aof.incr] "*2\r\n\$4\r\nINCR\r\n\$1\r\nk\r\n"
        restart_server -overrides {appendonly no}
        assert_equal {} [glob -nocomplain -directory [aof_dir] temp-*]
        restart_server -overrides {appendonly yes}
        assert_equal v [r get k]
    }
}

start_server [list overrides [list loadmodule [file join $::root build modules typed.so] appendonly yes] \
        tags {modules}] {
    test "values of modules are in the base as they were" {
        foreach preamble {yes no} {
            r config set aof-use-rdb-preamble $preamble
            r flushall
            for {set i 0} {$i < 50} {incr i} {r typed.set m$i $i -7 1.5 0.25 3.125 text bytes}
            r debug populate 500 key 10
            succeeds {for {set i 0} {$i < 50} {incr i 2} {r typed.set m$i 99 -8 2.5 0.5 1.125 other bytes}}
            set values [lmap i {0 1 2 7 49} {r typed.get m$i}]
            restart_server -signal KILL
            assert_equal $values [lmap i {0 1 2 7 49} {r typed.get m$i}]
        }
    }
}

start_server [list overrides [list loadmodule [file join $::root build modules watching.so] appendonly yes\
        enable-module-command yes] tags {modules}] {
    test "a module that empties the data set when it hears of the end gets an empty file" {
        for {set i 0} {$i < 1000} {incr i} {r set key:$i v}
        set from [log_size]
        r watching.reset
        r bgrewriteaof
        wait_for_condition 10000 {[r dbsize] == 0}
        r set after v
        wait_for_condition 10000 {
            [llength [regexp -all -inline "Background AOF rewrite finished successfully" [log_text $from]]] == 2
        }
        aof_wait_rewritten
        assert_equal {} [temp_files]
        assert_equal {1 1} [list [llength [aof_files b]] [llength [aof_files i]]]
        restart_server -signal KILL
        assert_equal {after} [r keys *]
    }
}

# A module changes values by pointers and keys that it holds since before the save. The incremental file is emptied: the
# base alone has the data of the start.
start_server [list overrides [list loadmodule [file join $::root build modules holding.so] appendonly yes\
        enable-module-command yes rdbcompression no] tags {modules}] {
    proc held_values {} {
        r set short short
        r set middle [string repeat m 500]
        r set large [string repeat l 100000]
        r rpush list a b c
        r hset hash f v
        r zadd zset 1 a 2 b
        r xadd stream 1-1 f v
        r sadd set a b
        r holding.set number
    }
    set names {short middle large list hash zset stream set number}
    foreach {what steps} {
        pointers {holding.write} keys {{holding.change changed}} both {{holding.change x} holding.write}
    } {
        foreach preamble {yes no} {
            test "what a module changes by $what that it has held is not in the base (preamble $preamble)" {
                r flushall
                aof_wait_rewritten
                r config set aof-use-rdb-preamble $preamble
                r debug populate 500 key 10
                held_values
                set digest [r debug digest]
                r holding.open {*}$names
                r holding.pointers
                during_rewrite {
                    foreach step $steps {r {*}$step}
                    if {$what ne "keys"} {wait_for_condition 5000 {[r getrange large 0 4] eq "wwwww"}}
                    assert {[r debug digest] ne $digest}
                }
                r holding.close
                assert_equal ok [field aof_last_bgrewrite_status]
                write_file [aof_file i] ""
                restart_server -signal KILL
                assert_equal $digest [r debug digest]
            }
        }
    }

    test "what a module tries to change while its value is saved changes and propagates nothing" {
        foreach {preamble command} {yes bgrewriteaof no bgrewriteaof yes {bgsave forkless}} {
            r flushall
            aof_wait_rewritten
            r config set aof-use-rdb-preamble $preamble
            r debug populate 500 key 10
            held_values
            r holding.open {*}$names
            set tries [r holding.tries]
            set digest [r debug digest]
            r {*}$command
            aof_wait_rewritten
            wait_for_condition 5000 {[field rdb_bgsave_in_progress] == 0}
            assert_equal {ok ok} [list [field aof_last_bgrewrite_status] [field rdb_last_bgsave_status]]
            assert_morethan [r holding.tries] $tries
            assert_equal {0 0} [list [r exists propagated] [regexp propagated [file_bytes [aof_file i]]]]
            assert_equal $digest [r debug digest]
            r holding.close
            if {$command ne "bgrewriteaof"} continue
            restart_server -signal KILL
            assert_equal $digest [r debug digest]
        }
    }
}

start_server {overrides {appendonly yes aof-use-rdb-preamble no cluster-enabled yes
        cluster-require-full-coverage no} tags {cluster}} {
    test "a node of a cluster rewrites its slots" {
        r cluster addslotsrange 0 16383
        foreach preamble {no yes} {
            wait_for_condition 10000 {[string match *cluster_state:ok* [r cluster info]]}
            r config set aof-use-rdb-preamble $preamble
            r debug populate 1000 key 30
            succeeds {
                for {set i 0} {$i < 1000} {incr i 3} {r append key:$i changed}
                for {set i 1} {$i < 1000} {incr i 3} {r del key:$i}
            }
            keeps_data {restart_server -signal KILL}
        }
    }
}

# --- The disk ---

start_faulty_server {appendonly yes} {
    r debug populate 20000 key 20
    aof_rewrite
    set n 0
    foreach {what rule pattern} {
        "a full disk" "write *temp-rewriteaof-bg-* fail ENOSPC" "*No space left on device*"
        "a disk that is full after 100000 bytes" "write *temp-rewriteaof-bg-* fail ENOSPC after=100000" "*No space*"
        "an error when syncing" "sync *temp-rewriteaof-bg-* fail EIO" "*Input/output error*"
        "an error when closing" "close *temp-rewriteaof-bg-* fail EIO" "*Input/output error*"
        "a file that cannot be opened" "open *temp-rewriteaof-bg-* fail EROFS" "*Read-only file system*"
        "a base that cannot be renamed" "rename *base.rdb fail EACCES" "*Permission denied*"
    } {
        test "a rewrite on $what fails, and the files stay complete" {
            faults $rule
            set from [log_size]
            set failures [field aof_rewrites_consecutive_failures]
            catch {r bgrewriteaof}
            incr n
            r incr counter
            aof_wait_rewritten
            assert_equal [list err [incr failures]]\
                [list [field aof_last_bgrewrite_status] [field aof_rewrites_consecutive_failures]]
            assert_match $pattern [log_text $from]
            assert_equal {} [temp_files]
            faults
            restart_server -signal KILL
            assert_equal [list $n 20001] [list [r get counter] [r dbsize]]
            aof_rewrite
            assert_equal {ok 0} [list [field aof_last_bgrewrite_status] [field aof_rewrites_consecutive_failures]]
        }
    }

    # The thread waits until the rule is gone. If a command waited for the thread, the test would end by its timeout.
    proc while_disk_waits {glob start body} {
        faults "sync $glob wait"
        r {*}$start
        wait_for_condition 10000 {[file exists $::rules.waiting]}
        assert_equal [field current_save_keys_total] [field current_save_keys_processed]
        assert_equal 1 [llength [temp_files]]
        uplevel 1 $body
        faults
        wait_for_condition 10000 {[temp_files] eq ""}
    }

    test "CONFIG SET appendonly no and yes do not wait for a disk that does not answer a rewrite" {
        r set before v
        set from [log_size]
        while_disk_waits *temp-rewriteaof-bg-* bgrewriteaof {
            r config set appendonly no
            assert_equal {0 0 -1 1} [list [field aof_enabled] [field aof_rewrite_in_progress]\
                [field aof_current_rewrite_time_sec] [llength [temp_files]]]
            r set while off
            r config set appendonly yes
            assert_equal {1 1} [list [field aof_enabled] [field aof_rewrite_scheduled]]
            assert_equal "Background append only file rewriting scheduled" [r bgrewriteaof]
            r set again on
            assert_equal 1 [llength [temp_files]]
        }
        wait_for_log "Background AOF rewrite finished successfully" $from
        assert [log_has "Background AOF rewrite was stopped by the server" $from]
        set digest [r debug digest]
        restart_server -signal KILL
        assert_equal [list $digest v off on] [list [r debug digest] [r get before] [r get while] [r get again]]
    }

    test "FLUSHALL does not wait for a disk that does not answer a background save" {
        r config set save ""
        set from [log_size]
        while_disk_waits *temp-forkless-* bgsave {
            assert_equal OK [r flushall]
            r set after v
            assert_equal 1 [llength [temp_files]]
        }
        wait_for_log "Background saving cancelled" $from
        assert {![file exists [file join [srv dir] dump.rdb]]}
        assert_equal v [r get after]
        r debug populate 20000 key 20
        r bgrewriteaof
        aof_wait_rewritten
    }

    test "DEBUG LOADAOF does not wait for a disk that does not answer a rewrite" {
        set digest [r debug digest]
        set from [log_size]
        while_disk_waits *temp-rewriteaof-bg-* bgrewriteaof {
            r debug loadaof
            assert_equal $digest [r debug digest]
            assert_equal 1 [llength [temp_files]]
        }
        wait_for_log "Background AOF rewrite finished successfully" $from
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
    }

    test "clients are served while a slow disk takes a rewrite, and writes wait when too much is not written" {
        r flushall
        for {set i 0} {$i < 200} {incr i} {r set large:$i [string repeat [expr {rand()}] 6000]}
        r config set forkless-buffer-limit 1mb rdbcompression no
        faults "write *temp-rewriteaof-bg-* slow 30"
        set pauses [field forkless_write_pauses]
        r bgrewriteaof
        for {set i 0} {$i < 200} {incr i} {
            r append large:$i changed
            assert_equal changed [r getrange large:$i -7 -1]
        }
        aof_wait_rewritten
        assert_morethan [field forkless_write_pauses] $pauses
        faults
        keeps_data {restart_server -signal KILL}
    }
}
