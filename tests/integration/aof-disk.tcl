# Disk failures under the append-only file (programs/preload/disk-faults.c): replies wait, writes are rejected, and
# acknowledged writes are not lost. seconds: 10

# After the disk is repaired, the server starts again, and `k` has this value.
proc restarts_with {value} {
    faults
    server_start_again
    assert_equal $value [r get k]
}

start_faulty_server {appendonly yes} {
    test "a full disk: the reply waits, further writes are refused, and both are over when there is space" {
        r set k before
        faults "write */appendonlydir/*.incr.aof fail ENOSPC"
        set c [new_client]
        $c -send set k held
        wait_for_condition 5000 {[info_field persistence aof_last_write_status] eq "err"}
        assert_error "MISCONF Errors writing to the AOF file: No space left on device" {r set other v}
        assert_error_like "MISCONF *" {r ping}
        assert_equal "" [$c -available]
        assert {[log_has "Error writing to the AOF file: No space left on device"]}
        faults
        assert_equal OK [$c -read]
        assert_equal OK [r set other v]
        assert_equal ok [info_field persistence aof_last_write_status]
        assert {[log_has "AOF write error looks solved. The server can write again."]}
        restart_server -signal KILL
        assert_equal {held v} [r mget k other]
    }

    test "a server that is killed while its disk is full has what it acknowledged, and a readable file" {
        r set acknowledged v
        faults "write */appendonlydir/*.incr.aof fail ENOSPC after=10"
        set c [new_client]
        $c -send set never-acknowledged [string repeat x 100]
        wait_for_condition 5000 {[info_field persistence aof_last_write_status] eq "err"}
        assert_equal "" [$c -available]
        faults
        set from [log_size]
        kill_process STOP [srv pid]
        restart_server -signal KILL
        assert_equal v [r get acknowledged]
        assert_not_match "*short read*" [log_text $from]
    }

    test "while the file cannot be written one SIGTERM is refused, with everysec, and a second one ends the server" {
        r config set appendfsync everysec
        r set acknowledged v2
        wait_for_condition 5000 {[info_field persistence aof_pending_bio_fsync] == 0}
        faults "write */appendonlydir/*.incr.aof fail ENOSPC"
        set c [new_client]
        $c -send set lost v
        wait_for_condition 5000 {[info_field persistence aof_last_write_status] eq "err"}
        set from [log_size]
        exec kill -TERM [srv pid]
        wait_for_log "The append-only file cannot be written (No space left on device)*A second signal*" $from
        assert_equal v2 [r get acknowledged]
        expect_server_exit
        exec kill -TERM [srv pid]
        assert_equal 0 [server_reap [srv id]]
        faults
        server_start_again
        assert_equal {v2 {}} [r mget acknowledged lost]
    }

    test "DEBUG AOF-FLUSH-SLEEP delays each write to the file, and the reply with it" {
        foreach policy {always everysec} {
            r config set appendfsync $policy
            assert_equal OK [r debug aof-flush-sleep 200000]
            set began [clock milliseconds]
            r set slow $policy
            assert {[clock milliseconds] - $began >= 199}
            assert_equal OK [r debug aof-flush-sleep 0]
        }
        assert_error_like "*unknown subcommand or wrong number*" {r debug aof-flush-sleep}
    }

    test "DEBUG AOF-SYNC-THREAD selects the thread that syncs with always" -needs {ours 1} {
        foreach thread {main background} {
            assert_equal OK [r debug aof-sync-thread $thread]
            assert_equal $thread [r debug aof-sync-thread]
        }
        assert_equal OK [r debug aof-sync-thread auto]
        assert_equal background [r debug aof-sync-thread]
        assert_error "ERR syntax error" {r debug aof-sync-thread other}
        assert_error "ERR value is not an integer or out of range" {r debug aof-sync-thread auto -1}
    }

    # A sync is fast if it takes less than $fast microseconds, with any disk.
    set fast 100000000

    test "with always the main thread syncs after 8 fast syncs" -needs {ours 1} {
        r config set appendfsync always
        r debug aof-sync-thread auto $fast
        for {set i 1} {$i <= 8} {incr i} {
            assert_equal background [r debug aof-sync-thread]
            r set k $i
        }
        assert_equal main [r debug aof-sync-thread]
        r set k 9
        assert_equal main [r debug aof-sync-thread]
        r debug aof-sync-thread auto
        faults "sync */appendonlydir/*.incr.aof slow 1"
        for {set i 1} {$i <= 9} {incr i} {r set k $i}
        assert_equal background [r debug aof-sync-thread]
        faults
    }

    test "with always a slow sync on the main thread is its last one" -needs {ours 1} {
        r config set appendfsync always
        r debug aof-sync-thread auto 500000
        wait_for_condition 60000 {[r set k v] eq "OK" && [r debug aof-sync-thread] eq "main"}
        faults "sync */appendonlydir/*.incr.aof slow 500"
        r set k slow
        assert_equal background [r debug aof-sync-thread]
        faults "sync */appendonlydir/*.incr.aof wait"
        set c [new_client]
        $c -send set k waits
        wait_for_condition 20000 {[info_field persistence aof_buffer_length] > 0}
        assert_equal "" [$c -available]
        faults
        assert_equal OK [$c -read]
        r debug aof-sync-thread auto
    }

    set many "[resp_command multi][string repeat [resp_command incr n] 200][resp_command exec]"
    foreach {what bytes replies} [list "a large value" [resp_command set large [string repeat x 1000000]] 1\
        "many commands" $many 202] {
        test "with always a group of $what is synced by a background thread although the disk is fast" -needs {ours 1} {
            r config set appendfsync always
            r debug aof-sync-thread auto $fast
            for {set i 0} {$i < 8} {incr i} {r set k $i}
            assert_equal main [r debug aof-sync-thread]
            faults "sync */appendonlydir/*.incr.aof wait"
            set c [new_client]
            $c -write $bytes
            wait_for_condition 20000 {[info_field persistence aof_buffer_length] > 0}
            faults
            for {set i 0} {$i < $replies} {incr i} {$c -read}
            r debug aof-sync-thread auto
        }
    }

    test "a slow fdatasync() with always on a background thread delays only replies to writes" -needs {ours 1} {
        r config set appendfsync always
        aof_sync_thread background
        faults "sync */appendonlydir/*.incr.aof wait"
        set c [new_client]
        $c -send set k v
        wait_for_condition 20000 {[info_field persistence aof_buffer_length] > 0}
        assert_equal PONG [r ping]
        assert_equal "" [$c -available]
        faults
        assert_equal OK [$c -read]
        aof_sync_thread auto
    }

    test "short and interrupted writes are continued" {
        foreach {policy thread} {always main always background everysec auto} {
            r config set appendfsync $policy
            aof_sync_thread $thread
            faults "write */appendonlydir/*.incr.aof short 3"
            for {set i 0} {$i < 20} {incr i} {r set k$i [string repeat $i 100]}
            faults "write */appendonlydir/*.incr.aof fail EINTR times=3"
            r set interrupted $thread
            faults
        }
        keeps_data {restart_server -signal KILL}
    }

    test "a slow fdatasync() with everysec stops neither reads nor writes, and SIGKILL loses no acknowledged write" {
        r config set appendfsync everysec
        faults "sync */appendonlydir/*.incr.aof slow 3000"
        r set k 0
        wait_for_condition 10000 {[info_field persistence aof_pending_bio_fsync] > 0}
        set n 0
        while {[info_field persistence aof_pending_bio_fsync] > 0 && $n < 200} {r set k [incr n]}
        assert_morethan $n 0
        restart_server -signal KILL
        assert_equal $n [r get k]
        faults
    }

    test "a failed fdatasync() with everysec refuses writes until one succeeds; then the files are rewritten" {
        faults "sync */appendonlydir/*.incr.aof fail EIO"
        wait_for_condition 10000 {[catch {r set k v}]}
        assert_error_like "MISCONF Errors writing to the AOF file: Input/output error" {r set k v}
        assert {[log_has "Fail to fsync the AOF file: Input/output error"]}
        set from [log_size]
        faults
        wait_for_log "Background AOF rewrite finished successfully" $from 10000
        assert_equal OK [r set k recovered]
        restart_server -signal KILL
        assert_equal recovered [r get k]
    }

    # The first sync of the directory is before the rename of the manifest, the second one after it.
    set directory_fails "sync */appendonlydir fail EIO after=1"

    test "a directory that cannot be synced with everysec: writes are refused and no file is deleted until it can" {
        r config set appendfsync everysec
        r set k before
        set manifest [file_bytes [srv dir]/appendonlydir/appendonly.aof.manifest]
        faults $directory_fails
        r bgrewriteaof
        assert_error_like "MISCONF Errors writing to the AOF file: Input/output error" {r set k lost}
        assert {[log_has "Fail to fsync the AOF directory appendonlydir: Input/output error"]}
        wait_for_condition 10000 {[info_field persistence aof_rewrite_in_progress] == 0}
        assert_error_like "MISCONF *" {r set k lost}
        foreach name [regexp -all -inline {appendonly\.aof\.\d+\.\w+\.\w+} $manifest] {
            assert_equal 1 [file exists [srv dir]/appendonlydir/$name]
        }
        set from [log_size]
        faults
        wait_for_log "Background AOF rewrite finished successfully" $from 10000
        assert_equal OK [r set k after]
        restart_server -signal KILL
        assert_equal after [r get k]
    }

    foreach thread {background main} {
        test "a directory that cannot be synced with always ends the server before a reply leaves: $thread thread" {
            r config set appendfsync always
            aof_sync_thread $thread
            r set k acknowledged
            faults $directory_fails
            set from [log_size]
            set c [new_client]
            $c -send bgrewriteaof
            $c -send set k lost
            wait_for_condition 10000 {![process_alive [srv pid]]}
            assert_equal 1 [server_reap [srv id]]
            assert {[log_has "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting..." \
                $from]}
            restarts_with acknowledged
        }
    }

    test "a directory that cannot be synced at start ends the server" {
        expect_server_exit
        r -send shutdown nosave
        server_reap [srv id]
        faults "sync */appendonlydir fail EIO"
        server_launch [srv id]
        assert_equal 1 [server_reap [srv id]]
        assert {[log_has "Fail to fsync the AOF file or its directory: Input/output error"]}
        restarts_with acknowledged
    }

    foreach {what rule thread} {
        "write" "write */appendonlydir/*.incr.aof fail ENOSPC" background
        "write" "write */appendonlydir/*.incr.aof fail ENOSPC" main
        "fdatasync()" "sync */appendonlydir/*.incr.aof fail EIO" background
        "fdatasync()" "sync */appendonlydir/*.incr.aof fail EIO" main
    } {
        test "a failed $what with always ends the server before the reply leaves: $thread thread" {
            r config set appendfsync always
            aof_sync_thread $thread
            r set k acknowledged
            set from [log_size]
            faults $rule
            set c [new_client]
            $c -send set k lost
            assert_equal 1 [$c -eof]
            assert_equal 1 [server_reap [srv id]]
            assert {[log_has "Can't recover from AOF write error when the AOF fsync policy is 'always'. Exiting..." \
                $from]}
            faults
            server_start_again
            # The bytes may be in the file, but they must not have been acknowledged.
            assert_in [r get k] {acknowledged lost}
        }
    }

    foreach {what rule} {
        "a full disk" "write *temp-rewriteaof-bg-* fail ENOSPC"
        "a manifest that cannot be renamed" "rename *manifest fail EACCES"
        "a base that cannot be renamed" "rename *base.rdb fail EACCES"
        "a manifest that cannot be written" "write *temp-*manifest fail ENOSPC"
    } {
        test "a rewrite on $what fails, and the files stay complete" {
            r set k "before $what"
            faults $rule
            catch {r bgrewriteaof}
            wait_for_condition 10000 {[info_field persistence aof_rewrite_in_progress] == 0}
            assert_equal err [info_field persistence aof_last_bgrewrite_status]
            r set k2 "during $what"
            faults
            restart_server -signal KILL
            assert_equal [list "before $what" "during $what"] [r mget k k2]
            aof_rewrite
            assert_equal ok [info_field persistence aof_last_bgrewrite_status]
            restart_server -signal KILL
            assert_equal [list "before $what" "during $what"] [r mget k k2]
        }
    }
}
