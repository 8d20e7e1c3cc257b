# Disk failures while a snapshot is written (programs/preload/disk-faults.c): the old file remains, temporary files are
# removed, and the failure is logged.

proc temp_files {} {glob -nocomplain -directory [srv dir] temp-*.rdb}
proc wait_saved {} {wait_for_condition 20000 {[info_field persistence rdb_bgsave_in_progress] eq "0"}}

# Each failure and its log message.
set ::failures {
    "a full disk"                           "write */temp-*.rdb fail ENOSPC"           "*No space left on device*"
    "a disk that is full after 100000 bytes" "write */temp-*.rdb fail ENOSPC after=100000" "*No space left on device*"
    "a quota that is used up"               "write */temp-*.rdb fail EDQUOT after=1"   "*quota exceeded*"
    "an error when writing"                 "write */temp-*.rdb fail EIO after=5000"   "*Input/output error*"
    "an error when syncing"                 "sync */temp-*.rdb fail EIO"               "*Input/output error*"
    "an error when closing"                 "close */temp-*.rdb fail EIO"              "*Input/output error*"
    "a rename that fails"                   "rename *dump.rdb fail EACCES"             "*Error moving temp DB file\
        temp-*.rdb on the final destination dump.rdb (in server root dir *): Permission denied*"
    "a file that cannot be opened"          "open *temp-*.rdb fail EROFS"              "*Failed opening the temp RDB\
        file temp-*.rdb (in server root dir *) for saving: Read-only file system*"
}

start_faulty_server {} {
    r debug populate 20000 key 20
    r set k saved
    r save
    set ::before [file_bytes [srv dir]/dump.rdb]
    r set k changed

    foreach {what rule pattern} $::failures {
        test "SAVE on $what fails, and the old file stays" {
            faults $rule
            set from [log_size]
            assert_error "ERR" {r save}
            assert_match $pattern [log_text $from]
            assert_equal {} [temp_files]
            assert_equal 1 [expr {$::before eq [file_bytes [srv dir]/dump.rdb]}]
            assert_morethan [info_field persistence rdb_changes_since_last_save] 0
            faults
        }

        test "BGSAVE on $what fails, and the old file stays" {
            faults $rule
            set from [log_size]
            r bgsave
            wait_saved
            wait_for_log "Background saving error" $from
            assert_match $pattern [log_text $from]
            assert_equal err [info_field persistence rdb_last_bgsave_status]
            assert_equal {} [temp_files]
            assert_equal 1 [expr {$::before eq [file_bytes [srv dir]/dump.rdb]}]
            faults
        }
    }

    test "short and interrupted writes are continued" {
        faults "write */temp-*.rdb short 1000" "write */temp-*.rdb fail EINTR times=3"
        assert_equal OK [r save]
        faults "write */temp-*.rdb fail EINTR after=10 times=3"
        assert_equal OK [r save]
        faults
        keeps_data {restart_server -signal KILL}
    }

    test "clients are served while a slow disk takes a snapshot" {
        faults "write */temp-*.rdb slow 200" "sync */temp-*.rdb slow 500"
        r bgsave
        for {set i 0} {$i < 20} {incr i} {
            r set k $i
            assert_equal $i [r get k]
        }
        wait_saved
        assert_equal ok [info_field persistence rdb_last_bgsave_status]
        faults
    }

    test "a server that is killed in the middle of SAVE starts with the old file" {
        set digest [r debug digest]
        assert_equal OK [r save]
        r set k newer
        faults "write */temp-*.rdb powercut after=50000"
        catch {r save}
        server_reap [srv id]
        faults
        server_start_again
        assert_equal $digest [r debug digest]
    }
}

start_faulty_server {save "3600 1"} {
    test "a disk that was full and has space again: writes are refused, then allowed" {
        r set k v
        faults "write */temp-*.rdb fail ENOSPC"
        r bgsave
        wait_saved
        assert_error_like "MISCONF *" {r set k w}
        faults
        r bgsave
        wait_saved
        assert_equal OK [r set k w]
    }

    test "SHUTDOWN on a full disk is refused, and possible once there is space" {
        faults "write */temp-*.rdb fail ENOSPC"
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {r shutdown}
        faults
        expect_server_exit
        r -send shutdown
        assert_equal 1 [r -eof]
        assert_equal 0 [server_reap [srv id]]
    }
}
