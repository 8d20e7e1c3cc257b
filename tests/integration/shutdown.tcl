# SHUTDOWN, SIGTERM and SIGINT of a server that saves its data.

proc shuts_down {args} {
    expect_server_exit
    r -send shutdown {*}$args
    assert_equal 1 [r -eof]
    assert_equal 0 [server_reap [srv id]]
}
proc has_file {} {file exists [srv dir]/dump.rdb}

foreach {points options saves} {
    "3600 1" {}             1
    "3600 1" nosave         0
    "3600 1" {nosave now}   0
    "3600 1" {nosave force} 0
    "3600 1" save           1
    ""       {}             0
    ""       save           1
    ""       {save now}     1
    ""       nosave         0
} {
    start_server [list overrides [list save $points]] {
        test "SHUTDOWN $options with save points \"$points\" [expr {$saves ? "saves" : "does not save"}]" {
            r set k v
            shuts_down {*}$options
            assert_equal $saves [has_file]
            assert_equal $saves [log_has "Saving the final RDB snapshot before exiting."]
        }
    }
}

foreach {signal points option value saves} {
    TERM "3600 1" shutdown-on-sigterm default      1
    TERM ""       shutdown-on-sigterm default      0
    TERM "3600 1" shutdown-on-sigterm nosave       0
    TERM ""       shutdown-on-sigterm "save now"   1
    INT  "3600 1" shutdown-on-sigint  default      1
    INT  "3600 1" shutdown-on-sigint  "nosave now" 0
    INT  ""       shutdown-on-sigint  save         1
} {
    start_server [list overrides [list save $points]] {
        test "SIG$signal with $option $value and save points \"$points\" [expr {$saves ? "saves" : "does not save"}]" {
            r config set $option $value
            r set k v
            expect_server_exit
            kill_process $signal [srv pid]
            assert_equal 0 [server_reap [srv id]]
            assert_equal $saves [has_file]
        }
    }
}

start_server {overrides {save "3600 1"}} {
    test "after a failed save SHUTDOWN and SIGTERM do not end the server" {
        set gone [srv dir]/gone
        file mkdir $gone
        r config set dir $gone
        file delete $gone
        r set k v
        set from [log_size]
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {r shutdown}
        assert_match "*Error trying to save the DB, can't exit.*" [log_text $from]
        set from [log_size]
        kill_process TERM [srv pid]
        wait_for_log "Errors trying to shut down the server. Check the logs for more information." $from
        assert_equal v [r get k]
    }

    test "SHUTDOWN FORCE ends the server though the save fails" {
        shuts_down force
        assert_match "*Error trying to save the DB. Exit anyway.*" [log_text]
    }
}

start_server {overrides {save "3600 1"}} {
    test "SHUTDOWN ends a background save, removes its file and saves itself" {
        r set k v
        r config set rdb-key-save-delay 100000
        r bgsave
        wait_for_condition 5000 {[llength [glob -nocomplain -directory [srv dir] temp-*.rdb]] == 1}
        shuts_down
        assert_equal {} [glob -nocomplain -directory [srv dir] temp-*.rdb]
        assert_equal 1 [has_file]
        assert_match "*There is a child saving an .rdb. Killing it!*" [log_text]
    }
}

start_server {overrides {save "3600 1" enable-debug-command yes}} {
    test "SHUTDOWN ABORT voids a signal that was not heeded yet" {
        set from [log_size]
        r debug pause-cron 1
        kill_process TERM [srv pid]
        wait_for_log "Received SIGTERM scheduling shutdown..." $from
        assert_equal OK [r shutdown abort]
        r debug pause-cron 0
        assert_match "*Shutdown manually aborted*" [log_text $from]
        assert_error "ERR No shutdown in progress." {r shutdown abort}
    }

    test "a second SIGINT ends the server immediately, and the file of the save is removed" {
        for {set i 0} {$i < 100} {incr i} {r set $i $i}
        r config set rdb-key-save-delay 1000000
        expect_server_exit
        kill_process INT [srv pid]
        wait_for_condition 5000 {[llength [glob -nocomplain -directory [srv dir] temp-*.rdb]] == 1}
        kill_process INT [srv pid]
        assert_equal 1 [server_reap [srv id]]
        assert_equal {} [glob -nocomplain -directory [srv dir] temp-*.rdb]
        assert_equal 0 [has_file]
    }
}

# A replica that does not acknowledge writes: SHUTDOWN waits for it and pauses writes meanwhile.
proc pause_reason {} {info_field clients paused_reason}
proc wait_for_shutdown {} {wait_for_condition 15000 {[pause_reason] eq "shutdown_in_progress"}}

start_server {overrides {repl-diskless-sync-delay 0 repl-timeout 3600 shutdown-timeout 3600}} {
    lassign [replica_full_sync] replica
    r set k 1

    test "SHUTDOWN ABORT answers every client that waits for SHUTDOWN" -needs {ours 1} {
        set clients [list [new_client] [new_client]]
        foreach c $clients {$c -send shutdown}
        wait_for_condition 15000 {[regexp -all {User requested shutdown... \(user request} [log_text]] == 2}
        assert_equal shutdown_in_progress [pause_reason]
        assert_range [info_field server shutdown_in_milliseconds] 3000000 3600000
        assert_equal OK [r shutdown abort]
        assert_equal "" [info_field server shutdown_in_milliseconds]
        foreach c $clients {
            assert_error "ERR Errors trying to SHUTDOWN. Check logs." {$c -read}
            assert_equal PONG [$c ping]
            $c -close
        }
        assert_equal none [pause_reason]
        assert_equal OK [r set k 2]
    }

    test "SHUTDOWN ABORT ends the shutdown that a signal has started" -needs {ours 1} {
        foreach signal {TERM INT} {
            kill_process $signal [srv pid]
            wait_for_shutdown
            assert_equal OK [r shutdown abort]
            assert_equal none [pause_reason]
            assert_error "ERR No shutdown in progress." {r shutdown abort}
            assert_equal OK [r set k 3]
        }
    }

    test "CLIENT UNPAUSE and the end of CLIENT PAUSE let no writes in while the server shuts down" -needs {ours 1} {
        lassign [list [new_client] [new_client]] c writer
        $c -send shutdown
        wait_for_shutdown
        r client pause 100000 write
        r client unpause
        r client pause 1 all
        wait_for_condition 15000 {[info_field clients paused_actions] eq "write"}
        $writer -send set k 4
        assert_equal 3 [r get k]
        assert_equal shutdown_in_progress [pause_reason]
        assert_equal OK [r shutdown abort]
        assert_equal OK [$writer -read]
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {$c -read}
    }

    test "a pause by CLIENT PAUSE continues after an aborted shutdown" -needs {ours 1} {
        lassign [list [new_client] [new_client]] c writer
        r client pause 1000000 write
        $c -send shutdown
        wait_for_shutdown
        $writer -send set k 5
        assert_equal OK [r shutdown abort]
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {$c -read}
        assert_equal client_pause [pause_reason]
        assert_equal 4 [r get k]
        r client unpause
        assert_equal OK [$writer -read]
    }

    test "SHUTDOWN NOW that fails leaves the shutdown that waits as it was" -needs {ours 1} {
        set gone [srv dir]/gone
        file mkdir $gone
        r config set dir $gone
        file delete $gone
        set c [new_client]
        $c -send shutdown nosave
        wait_for_shutdown
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {r shutdown now save}
        assert_equal shutdown_in_progress [pause_reason]
        assert_equal OK [r shutdown abort]
        assert_error "ERR Errors trying to SHUTDOWN. Check logs." {$c -read}
        assert_equal OK [r set k 6]
    }

    $replica -close
}
