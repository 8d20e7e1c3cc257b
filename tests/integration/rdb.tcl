# Snapshots: SAVE, BGSAVE, LASTSAVE, save points, and the file after a failed save. seconds: 9

proc rdb_file {} {file join [srv dir] dump.rdb}
proc temp_files {} {glob -nocomplain -directory [srv dir] temp-*.rdb}
proc saving {} {info_field persistence rdb_bgsave_in_progress}
proc save_status {} {info_field persistence rdb_last_bgsave_status}
proc unsaved {} {info_field persistence rdb_changes_since_last_save}
proc wait_saved {} {wait_for_condition 20000 {[saving] eq "0"}}

# Runs the body while a background save runs that makes no progress.
proc with_slow_bgsave {body} {
    r set slow-key v
    with_config {rdb-key-save-delay 100000000} {
        set from [log_size]
        assert_equal "Background saving started" [r bgsave]
        wait_for_condition 5000 {[llength [temp_files]] == 1}
        wait_for_log "Background saving started by pid [srv pid]" $from
        uplevel 1 $body
    }
}
# A background save that fails: a directory has the name of the file that it writes.
proc failed_bgsave {} {
    set path [file join [srv dir] temp-forkless-[srv pid].rdb]
    file mkdir $path
    r bgsave
    wait_saved
    file delete $path
    assert_equal err [save_status]
}

start_server {} {
    test "SAVE writes the file, and a restarted server has the keys" {
        r set k v
        r rpush l a b c
        r set volatile v px 100000000
        r hset h f 1 g 2
        r zadd z 1.5 a
        r sadd s 1 2 3
        r xadd x 1-1 f v
        r select 9
        r set other v
        r select 0
        set digest [r debug digest]
        assert_equal OK [r save]
        assert {[file exists [rdb_file]]}
        assert_equal {} [temp_files]
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
        assert_range [r pttl volatile] 1 100000000
        assert_equal 8 [info_field persistence rdb_last_load_keys_loaded]
        assert_equal 0 [info_field persistence rdb_last_load_keys_expired]
        assert_equal 0 [unsaved]
    }

    test "SAVE says on the log that it saved" {
        set from [log_size]
        r save
        wait_for_log "DB saved on disk" $from
    }

    # A server of Valkey loads a score of -0 as 0.
    test "a sorted set keeps its scores over a reload, the sign of zero too" -needs {ours 1} {
        with_config {zset-max-listpack-entries 0} {
            r zadd signs -0 minus 0 plus 1.5 more
            r zadd plain 0 a 3 b
        }
        keeps_data {r debug reload}
        assert_equal {-0 skiplist listpack} \
            [list [r zscore signs minus] [r object encoding signs] [r object encoding plain]]
        r restore again 0 [r dump signs]
        assert_equal [r debug digest-value signs] [r debug digest-value again]
    }

    test "BGSAVE writes the file in the background, and a restarted server has the keys" {
        r flushall
        file delete [rdb_file]
        r set k in-background
        set from [log_size]
        set saves [info_field persistence rdb_saves]
        assert_equal "Background saving started" [r bgsave]
        wait_for_log "Background saving terminated with success" $from
        assert_regexp {Background saving started by pid \d+.*DB saved on disk} [log_text $from]
        assert_equal ok [save_status]
        assert_equal [expr {$saves + 1}] [info_field persistence rdb_saves]
        assert_equal -1 [info_field persistence rdb_current_bgsave_time_sec]
        assert_morethan [info_field persistence rdb_last_bgsave_time_sec] -1
        restart_server -signal KILL
        assert_equal in-background [r get k]
    }

    test "a snapshot is of the moment of BGSAVE: later changes are not in it, and are counted as unsaved" {
        r flushall
        for {set i 0} {$i < 100} {incr i} {r set key:$i before}
        with_config {rdb-key-save-delay 100000000} {
            r bgsave
            for {set i 0} {$i < 100} {incr i} {r set key:$i after}
            r set new v
            assert_equal 1 [saving]
        }
        wait_saved
        assert_equal 101 [unsaved]
        restart_server -signal KILL
        assert_equal 100 [r dbsize]
        for {set i 0} {$i < 100} {incr i} {assert_equal before [r get key:$i]}
    }

    test "clients are served while a snapshot is written" {
        with_slow_bgsave {
            assert_equal PONG [r ping]
            r set during v
            assert_equal v [r get during]
            assert_equal 1 [saving]
            r bgsave cancel
            wait_saved
        }
    }

    test "INFO shows the progress of a background save" {
        r flushall
        for {set i 0} {$i < 400} {incr i} {r set key:$i v}
        r config set rdb-key-save-delay 20000
        r bgsave
        wait_for_condition 20000 {[info_field persistence current_save_keys_processed] > 0}
        assert_equal 400 [info_field persistence current_save_keys_total]
        assert_range [info_field persistence current_fork_perc] 0.1 99.9
        assert_morethan [info_field persistence rdb_current_bgsave_time_sec] -1
        r config set rdb-key-save-delay 0
        r bgsave cancel
        wait_saved
        assert_equal 0 [info_field persistence current_save_keys_total]
        assert_equal 0.00 [info_field persistence current_fork_perc]
    }

    test "SAVE and BGSAVE are refused while a background save runs" {
        with_slow_bgsave {
            replies {
                {save} "-ERR Background save already in progress"
                {bgsave} "-ERR Background save already in progress"
                {bgsave schedule} "-ERR Background save already in progress"
                {bgsave foo} "-ERR syntax error"
                {bgsave schedule foo} "-ERR syntax error"
            }
            r bgsave cancel
            wait_saved
        }
    }

    test "a background save does not replace the newer file of DEBUG RELOAD" -needs {command debug} {
        r flushall
        r mset a 1 b 2 c 3
        r config set rdb-key-save-delay 300000
        r bgsave
        r multi
        r config set rdb-key-save-delay 0
        r set new 1
        r debug reload
        r exec
        wait_saved
        r debug reload nosave
        assert_equal 1 [r get new]
    }

    test "BGSAVE in a transaction is scheduled" {
        r multi
        r bgsave
        assert_equal {{Background saving scheduled}} [r exec]
        set saves [info_field persistence rdb_saves]
        wait_for_condition 10000 {[info_field persistence rdb_saves] > $saves || [saving] eq "1"}
        wait_saved
        assert_equal ok [save_status]
    }

    test "BGSAVE CANCEL ends the save and removes its file, and is no failure" -needs {version 8.1} {
        r save
        set before [file_bytes [rdb_file]]
        set from [log_size]
        with_slow_bgsave {
            assert_equal "Background saving cancelled" [r bgsave cancel]
            wait_saved
        }
        wait_for_condition 5000 {[temp_files] eq {}}
        assert_equal ok [save_status]
        assert_morethan [unsaved] 0
        assert_equal $before [file_bytes [rdb_file]]
        assert_regexp {Background saving will be aborted due to user request.*Background saving cancelled} \
            [log_text $from]
        assert_error "ERR Background saving is currently not in progress or scheduled" {r bgsave cancel}
    }

    test "LASTSAVE is the time of the last save that succeeded" {
        r save
        set saved [r lastsave]
        assert_range $saved [expr {[clock seconds] - 5}] [expr {[clock seconds] + 1}]
        assert_equal $saved [info_field persistence rdb_last_save_time]
        wait_for_condition 5000 {[clock seconds] > $saved}
        failed_bgsave
        assert_equal $saved [r lastsave]
        r bgsave
        wait_saved
        assert_morethan [r lastsave] $saved
        assert_arity lastsave a
    }

    test "a background save that fails leaves the file as it was, and no temporary one" {
        r set k saved
        r save
        set before [file_bytes [rdb_file]]
        r set k changed
        set from [log_size]
        failed_bgsave
        assert_equal {} [temp_files]
        assert_equal $before [file_bytes [rdb_file]]
        assert_match "*Failed opening the temp RDB file *Background saving error*" [log_text $from]
        r bgsave
        wait_saved
        assert_equal ok [save_status]
    }

    test "without save points a failed background save stops no writes" {
        failed_bgsave
        assert_equal OK [r set k v]
        r save
        assert_equal ok [save_status]
    }

    test "FLUSHALL ends a background save, and without save points leaves the file" {
        r set k v
        r save
        set before [file_bytes [rdb_file]]
        with_slow_bgsave {
            assert_equal OK [r flushall]
            wait_saved
        }
        assert_equal {} [temp_files]
        assert_equal $before [file_bytes [rdb_file]]
    }

    test "dbfilename names the file" {
        r set k v
        r config set dbfilename other.rdb
        r save
        assert {[file exists [srv dir]/other.rdb]}
        file delete [srv dir]/other.rdb
        r config set dbfilename dump.rdb
        assert_error "ERR CONFIG SET failed (possibly related to argument 'dbfilename') - dbfilename can't be a path,\
            just a filename" {
            r config set dbfilename a/b.rdb
        }
    }

    test "SAVE in a directory that is gone fails and says why" {
        set gone [srv dir]/gone
        file mkdir $gone
        r config set dir $gone
        file delete $gone
        set from [log_size]
        assert_error "ERR" {r save}
        wait_for_log "Failed opening the temp RDB file temp-" $from
        r bgsave
        wait_saved
        assert_equal err [save_status]
        wait_for_log "Background saving error" $from
        r config set dir [srv dir]
        assert_equal OK [r save]
    }
}

start_server {overrides {save "3600 1"}} {
    test "after a failed background save, commands that write are refused with MISCONF until one succeeds" {
        r set k v
        failed_bgsave
        set misconf "MISCONF Valkey is configured to save RDB snapshots, but it's currently unable to persist to disk.\
            Commands that may modify the data set are disabled, because this instance is configured to report errors\
            during writes if RDB snapshotting fails (stop-writes-on-bgsave-error option). Please check the Valkey logs\
            for details about the RDB error."
        assert_error $misconf {r set k w}
        assert_error $misconf {r del k}
        assert_error $misconf {r ping}
        assert_equal v [r get k]
        r multi
        catch {r set k w} e
        assert_equal $misconf $e
        assert_error_like "EXECABORT*" {r exec}
        r bgsave
        wait_saved
        assert_equal OK [r set k w]
        assert_equal PONG [r ping]
    }

    test "stop-writes-on-bgsave-error no, or no save points, let commands write after a failed save" {
        failed_bgsave
        assert_error_like "MISCONF *" {r set k w}
        r config set stop-writes-on-bgsave-error no
        assert_equal OK [r set k w]
        r config set stop-writes-on-bgsave-error yes
        assert_error_like "MISCONF *" {r set k w}
        r config set save ""
        assert_equal OK [r set k w]
        r config set save "3600 1"
        assert_error_like "MISCONF *" {r set k w}
        r save
        assert_equal OK [r set k w]
    }

    test "a background save that was cancelled is no failure" {
        with_slow_bgsave {
            r bgsave cancel
            wait_saved
        }
        assert_equal ok [save_status]
        assert_equal OK [r set k v]
    }

    test "FLUSHALL saves the empty data set where there are save points" {
        r set k v
        r save
        with_slow_bgsave {
            assert_equal OK [r flushall]
            wait_saved
        }
        assert_equal {} [temp_files]
        assert_equal 0 [unsaved]
        restart_server -signal KILL
        assert_equal 0 [r dbsize]
    }
}

start_server {overrides {save "1 3"}} {
    test "a save point starts a background save after its seconds and changes" {
        set from [log_size]
        r set a 1
        r set b 2
        assert_equal 2 [unsaved]
        r set c 3
        wait_for_log "3 changes in 1 seconds. Saving..." $from 20000
        wait_for_log "Background saving terminated with success" $from 20000
        assert_equal 0 [unsaved]
        assert_equal ok [save_status]
        restart_server -signal KILL
        assert_equal 3 [r dbsize]
    }

    test "CONFIG SET save changes the save points immediately" {
        set from [log_size]
        r config set save "1 1000000"
        for {set i 0} {$i < 10} {incr i} {r set k $i}
        r config set save "1000000 1 1 5"
        wait_for_log "5 changes in 1 seconds. Saving..." $from 20000
        wait_saved
    }
}

start_server {overrides {save "3600 1 300 100"}} {
    test "CONFIG REWRITE keeps save points, and that there are none" {
        r config set save "77 1 88 2"
        r config rewrite
        restart_server
        assert_equal "77 1 88 2" [config_get save]
        r config set save ""
        r config rewrite
        restart_server
        assert_equal "" [config_get save]
    }
}

test "save lines of the file add up, and the first replaces the default" {
    set dir [file join $::unit_dir lines]
    file mkdir $dir
    set port [free_port]
    write_file $dir/c.conf "port $port\nbind 127.0.0.1\ndir $dir\nsave 100 1\nsave 200 2 300 3\n"
    lassign [serve -port $port -- $dir/c.conf] handle
    set c [new_client -port $port]
    assert_equal "100 1 200 2 300 3" [lindex [$c config get save] 1]
    $c config set save ""
}

start_server {overrides {rdbchecksum no}} {
    test "a file without a checksum is loaded" {
        r set k v
        r save
        assert_equal "\0\0\0\0\0\0\0\0" [string range [file_bytes [srv dir]/dump.rdb] end-7 end]
        restart_server -signal KILL
        assert_equal v [r get k]
        assert_equal 0 [log_has "checksum disabled"]
        restart_server -signal KILL -overrides {rdbchecksum yes}
        assert_equal v [r get k]
        assert {[log_has "RDB file was saved with checksum disabled: no check performed."]}
    }
}

start_server {} {
    test "INFO persistence has the fields of Valkey in their order" {
        set fields {}
        foreach line [split [r info persistence] \n] {
            if {[regexp {^(\w+):} $line -> name]} {lappend fields $name}
        }
        assert_equal [list {*}{loading async_loading current_cow_peak current_cow_size current_cow_size_age\
            current_fork_perc
            current_save_keys_processed current_save_keys_total rdb_changes_since_last_save rdb_bgsave_in_progress
            rdb_last_save_time rdb_last_bgsave_status rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec rdb_saves
            rdb_last_cow_size rdb_last_load_keys_expired rdb_last_load_keys_loaded}] [lrange $fields 0 17]
        assert_equal -1 [info_field persistence rdb_last_bgsave_time_sec]
        assert_equal -1 [info_field persistence rdb_current_bgsave_time_sec]
        assert_equal 0 [info_field persistence rdb_saves]
    }

    test "DEBUG RELOAD NOSAVE loads the file that is there, and a damaged one costs nothing" -needs {ours 1} {
        r set k v
        r save
        r set k w
        assert_equal OK [r debug reload nosave]
        assert_equal v [r get k]
        write_file [rdb_file] "this is no RDB file"
        assert_error "ERR Error trying to load the RDB dump, check server logs." {r debug reload nosave}
        assert_equal v [r get k]
        r save
    }
}
