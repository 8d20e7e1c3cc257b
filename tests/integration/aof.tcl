# The append-only file of a running server: its content, the time of writes, and turning it on and off. seconds: 4

start_server {overrides {appendonly yes}} {
    test "a server without data begins with an empty base and an empty incremental file" -needs {ours 1} {
        assert_equal "file appendonly.aof.1.base.rdb seq 1 type b\nfile appendonly.aof.1.incr.aof seq 1 type i\n" \
            [aof_manifest]
        assert_equal 0 [file size [aof_file i]]
        assert_equal REDIS [string range [file_bytes [aof_file b]] 0 4]
        foreach {field value} {
            aof_enabled 1 aof_rewrite_in_progress 0 aof_rewrite_scheduled 0 aof_last_rewrite_time_sec \
                -1 aof_current_rewrite_time_sec -1
            aof_last_bgrewrite_status ok aof_rewrites 0 aof_rewrites_consecutive_failures 0 aof_last_write_status ok \
                aof_pending_rewrite 0
            aof_buffer_length 0 aof_delayed_fsync 0
        } {assert_equal $value [info_field persistence $field] $field}
        assert_equal [file size [aof_file b]] [info_field persistence aof_base_size]
    }

    test "a command is written as a client sends it, after the SELECT of its database" {
        assert_equal "*2\r\n\$6\r\nSELECT\r\n\$1\r\n0\r\n*3\r\n\$3\r\nset\r\n\$1\r\nk\r\n\$1\r\nv\r\n" \
            [r set k v; file_bytes [aof_file i]]
        assert_equal {{set k w}} [aof_appended {r set k w}]
        assert_equal {{SELECT 9} {set k v} {SELECT 0} {set k v}} \
            [aof_appended {r select 9; r set k v; r select 0; r set k v}]
        assert_equal [expr {[file size [aof_file b]] + [file size [aof_file i]]}] \
            [info_field persistence aof_current_size]
    }

    test "what changes nothing is not written" {
        assert_equal {} [aof_appended {
            r get k
            r del nosuch
            r set nosuch v xx
            catch {r incr k}
            r multi
            r get k
            r exec
            r publish ch message
            r spop nosuch
        }]
    }

    test "times are written as absolute ones" {
        set commands [aof_appended {
            r set a v ex 100
            r setex b 100 v
            r set c v
            r expire c 100
            r getex c persist
            r hset h f 1
            r hexpire h 100 fields 1 f
        }]
        assert_match {{SET a v PXAT [0-9]*} {SET b v PXAT [0-9]*} {set c v} {PEXPIREAT c [0-9]*} {PERSIST c}\
            {hset h f 1} {HPEXPIREAT h [0-9]* *}} $commands
        assert_range [lindex $commands 0 4] [expr {[clock milliseconds] + 1000}] [expr {[clock milliseconds] + 100000}]
    }

    test "commands whose result is not in their arguments are written as that result" {
        r sadd s a b
        r set f 1
        r xadd x 1-1 f v
        r xgroup create x g 0
        set popped {}
        set commands [aof_appended {
            set popped [r spop s]
            r incrbyfloat f 0.5
            r xadd x 2-* f w
            r xreadgroup group g c count 1 streams x >
        }]
        assert_equal [list SREM s $popped] [lindex $commands 0]
        assert_match {[Ss][Ee][Tt] f 1.5 KEEPTTL} [lindex $commands 1]
        assert_equal {xadd x 2-0 f w} [lindex $commands 2]
        assert_match {*XCLAIM x g c 0 1-1 TIME [0-9]* RETRYCOUNT 1 FORCE JUSTID LASTID 1-1*} [lrange $commands 3 end]
    }

    test "a key that expired or was evicted is also deleted in the file" {
        r flushall
        assert_match {{SET k v PXAT [0-9]*} {UNLINK k}} [aof_appended {
            r set k v px 1
            wait_for_condition 10000 {[r dbsize] == 0}
        }]
        assert_match {*{UNLINK big*}*} [aof_appended {
            for {set i 0} {$i < 50} {incr i} {r set big$i [string repeat x 10000]}
            with_config {maxmemory-policy allkeys-random} {
                r config set maxmemory [expr {[info_field memory used_memory] - 100000}]
                r set k v
                r config set maxmemory 0
            }
        }]
        r debug loadaof
        assert_lessthan [r dbsize] 51
    }

    test "MULTI and EXEC enclose commands that belong together, and only two or more" {
        r flushall
        assert_equal {MULTI {set a 1} {set b 2} EXEC} [aof_appended {
            r multi
            r set a 1
            r get a
            r set b 2
            r exec
        }]
        assert_equal {{set a 1}} [aof_appended {r multi; r set a 1; r get a; r exec}]
        assert_equal {MULTI {SELECT 3} {set a 1} {SELECT 0} {set b 2} EXEC} [aof_appended {
            r multi
            r select 3
            r set a 1
            r select 0
            r set b 2
            r exec
        }]
        set c [new_client]
        $c -send blpop list 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        assert_equal {{rpush list x} {lpop list}} [string map {LPOP lpop} [aof_appended {r rpush list x; $c -read}]]
    }

    test "a transaction that changes appendfsync or the file stays readable" {
        r flushall
        r multi
        r set a 1
        r config set appendfsync always
        r set b [string repeat x 100000]
        r set c 3
        r exec
        r config set appendfsync everysec
        r multi
        r set d 4
        r debug loadaof
        r set e 5
        r set f 6
        r exec
        set digest [r debug digest]
        r debug loadaof
        assert_equal $digest [r debug digest]
        assert_equal 6 [r dbsize]
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
    }

    test "large values are written whole, alone and in transactions" {
        r flushall
        foreach len {16383 16384 100000 3000000} {r set k$len [string repeat 0123456789 [expr {$len / 10}]]}
        r multi
        r set a [string repeat a 200000]
        r set b [string repeat b 200000]
        r append a tail
        r exec
        r append k100000 more
        r hset h f [string repeat v 300000]
        set digest [r debug digest]
        r debug loadaof
        assert_equal $digest [r debug digest]
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
        assert_equal more [r getrange k100000 -4 -1]
    }

    foreach {policy thread} {everysec auto always main always background} {
        test "pipelines of many clients are in the file when they were answered: $policy, $thread thread" {
            r config set appendfsync $policy
            aof_sync_thread $thread
            r flushall
            set clients {}
            for {set i 0} {$i < 20} {incr i} {
                set c [new_client]
                lappend clients $c
                set bytes ""
                for {set j 0} {$j < 100} {incr j} {
                    append bytes [resp_command set k:$i:$j [string repeat $j 20]] [resp_command incr n]
                }
                $c -write $bytes
            }
            foreach c $clients {for {set j 0} {$j < 200} {incr j} {$c -read}}
            keeps_data {restart_server -signal KILL}
            assert_equal 2000 [r get n]
        }
    }

    test "with aof-timestamp-enabled the time precedes the commands executed then" {
        with_config {aof-timestamp-enabled yes} {
            set commands [aof_appended {r set k v; r multi; r set a 1; r set b 2; r exec}]
        }
        assert_regexp {^#TS:\d+$} [lindex $commands 0]
        assert_range [string range [lindex $commands 0] 4 end] [expr {[clock seconds] - 60}] \
            [expr {[clock seconds] + 1}]
        assert_equal {{set k v} MULTI {set a 1} {set b 2} EXEC} \
            [lmap c $commands {if {[string match #* $c] || $c eq "SELECT 0"} continue; set c}]
    }

    test "with aof-timestamp-enabled a base file of commands begins with the time" {
        with_config {aof-timestamp-enabled yes aof-use-rdb-preamble no} {
            r set k v
            aof_rewrite
            assert_regexp {^#TS:\d+\r\n\*2\r\n} [file_bytes [aof_file b]]
        }
    }

    foreach policy {always no everysec always} {
        test "appendfsync $policy, switched to at run time: what was acknowledged is in the file" {
            r config set appendfsync $policy
            for {set i 0} {$i < 50} {incr i} {r set k$i $policy}
            keeps_data {restart_server -signal KILL}
            r config set appendfsync $policy
        }
    }

    test "appendfsync is switched while clients write" {
        set clients {}
        for {set i 0} {$i < 5} {incr i} {lappend clients [new_client]}
        foreach {policy thread} {
            always main everysec auto no auto always background no auto always main everysec auto
        } {
            aof_sync_thread $thread
            foreach c $clients {$c -write [string repeat [resp_command incr n] 50]}
            r config set appendfsync $policy
            foreach c $clients {for {set i 0} {$i < 50} {incr i} {$c -read}}
        }
        set n [r get n]
        restart_server -signal KILL
        assert_equal $n [r get n]
    }

    test "clients that wait for the disk disconnect, without effects on others" {
        r config set appendfsync always
        set clients [info_field clients connected_clients]
        set accepted [info_field stats total_connections_received]
        for {set i 0} {$i < 50} {incr i} {
            set c [new_client]
            $c -write [string repeat [resp_command incr gone] 20]
            $c -close
        }
        # Their requests may be executed after they have disconnected.
        wait_for_condition 20000 {
            [info_field stats total_connections_received] >= $accepted + 50
            && [info_field clients connected_clients] == $clients
        }
        assert_equal OK [r set k v]
        set n [r get gone]
        r config set appendfsync everysec
        r debug loadaof
        assert_equal $n [r get gone]
    }

    test "SHUTDOWN leaves everything in the file" {
        r set last word
        restart_server
        assert_equal word [r get last]
    }
}

start_server {} {
    test "CONFIG SET appendonly yes makes the data of that moment the base" {
        r set before 1
        assert_equal 0 [info_field persistence aof_enabled]
        assert_equal 0 [info_has persistence aof_current_size]
        set from [log_size]
        assert_equal OK [r config set appendonly yes]
        r set after 1
        wait_for_log "Background AOF rewrite finished successfully" $from
        foreach line {
            "Creating AOF incr file temp-appendonly.aof.incr on background rewrite"
            "Background append only file rewriting started by pid"
            "Successfully created the temporary AOF base file temp-rewriteaof-bg-"
            "Background AOF rewrite terminated with success"
            "into appendonly.aof.1.base.rdb"
            "Successfully renamed the temporary AOF incr file temp-appendonly.aof.incr into appendonly.aof.1.incr.aof"
        } {assert {[log_has $line $from]} $line}
        restart_server -signal KILL -overrides {appendonly yes}
        assert_equal {1 1} [list [r get before] [r get after]]
    }

    test "CONFIG SET appendonly no ends it; turned on again the old files are replaced" {
        r config set appendonly no
        assert_equal 0 [info_field persistence aof_enabled]
        set size [file size [aof_file i]]
        r set unseen v
        assert_equal $size [file size [aof_file i]]
        set old [concat [aof_files b] [aof_files i]]
        aof_turn_on
        foreach name $old {wait_for_condition 5000 {![file exists [aof_dir]/$name]}}
        r set seen v
        restart_server -signal KILL
        assert_equal {v v} [list [r get unseen] [r get seen]]
    }

    test "a server that starts without its append-only file does not use the names in it again" {
        set old [concat [aof_files b] [aof_files i]]
        restart_server -overrides {appendonly no}
        r set k other-data
        aof_turn_on
        foreach name [concat [aof_files b] [aof_files i]] {assert {$name ni $old} $name}
        foreach name $old {wait_for_condition 5000 {![file exists [aof_dir]/$name]}}
    }

    test "turned on while a BGSAVE runs it begins when that has ended" {
        r config set appendonly no
        r config set rdb-key-save-delay 100000000
        r bgsave
        r config set rdb-key-save-delay 0
        set from [log_size]
        r config set appendonly yes
        assert {[log_has "AOF was enabled but there is already another background operation. An AOF background was\
            scheduled to start when possible." $from]}
        assert_equal 1 [info_field persistence aof_rewrite_scheduled]
        r set meanwhile v
        r bgsave cancel
        wait_for_log "Background AOF rewrite finished successfully" $from
        restart_server -signal KILL -overrides {appendonly yes}
        assert_equal v [r get meanwhile]
    }

    test "turned on in a transaction it begins behind it" {
        r config set appendonly no
        set from [log_size]
        r multi
        r set a 1
        r config set appendonly yes
        r set b 2
        assert_equal {OK OK OK} [r exec]
        assert {[log_has "AOF was enabled during a transaction. An AOF background was scheduled to start when\
            possible." $from]}
        wait_for_log "Background AOF rewrite finished successfully" $from
        keeps_data {restart_server -signal KILL}
    }

    test "turned off while its first rewrite runs it leaves nothing behind" {
        r config set appendonly no
        r config set rdb-key-save-delay 100000000
        r config set appendonly yes
        r config set rdb-key-save-delay 0
        assert_equal 1 [info_field persistence aof_rewrite_in_progress]
        assert {[file exists [aof_dir]/temp-appendonly.aof.incr]}
        r config set appendonly no
        assert_equal 0 [info_field persistence aof_rewrite_in_progress]
        foreach dir [list [aof_dir] [srv dir]] {
            wait_for_condition 5000 {[glob -nocomplain -directory $dir temp-*] eq ""}
        }
    }

    test "SHUTDOWN waits for nothing when the first rewrite runs: it is refused" {
        r config set rdb-key-save-delay 100000000
        r config set appendonly yes
        r config set rdb-key-save-delay 0
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {r shutdown}
        assert {[log_has "Writing initial AOF, can't exit."]}
        r config set appendonly no
    }

    test "the directory cannot be created: CONFIG SET fails, and nothing has changed" {
        file delete -force [aof_dir]
        write_file [aof_dir] "in the way"
        assert_error_like "ERR CONFIG SET failed (possibly related to argument 'appendonly') - Unable to turn on AOF.\
            Check server logs." {r config set appendonly yes}
        assert_equal {appendonly no} [r config get appendonly]
        assert_equal 0 [info_field persistence aof_enabled]
        r set k v
        file delete [aof_dir]
        aof_turn_on
        restart_server -signal KILL
        assert_equal v [r get k]
    }

    test "DEBUG RELOAD and FLUSHALL keep the file complete" {
        r set a 1
        r debug reload
        r set b 2
        aof_wait_rewritten
        restart_server -signal KILL
        assert_equal 1 [r get a]
        assert_equal 2 [r get b]
        r flushall
        r set c 3
        restart_server -signal KILL
        assert_equal 1 [r dbsize]
    }
}
