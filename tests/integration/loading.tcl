# Loading at startup: clients are served meanwhile, INFO shows the progress, loading can be interrupted, and a file that
# cannot be read ends the server with the reason. seconds: 7

# Values that take long to load: the server sleeps after each key and serves its clients often.
proc start_loading {} {
    reconnect_of [srv id]
    proxy_stop [srv id]
    set id [srv id]
    kill_process KILL $::server($id,pid)
    server_reap $id
    set f [open $::server($id,conf) a]
    puts $f "key-load-delay 2000\nloading-process-events-interval-bytes 1024"
    close $f
    server_launch $id
    wait_for_condition 20000 {![catch {set c [new_client -port [srv port]]; set up [$c config get port]; $c -close}]}
}
# A client that does not wait until the server is ready.
proc tcp_client {} {new_client -port [srv port]}
proc loading_field {c field} {
    if {[regexp -line "^$field:(\[^\r\n\]*)" [$c info persistence] -> v]} {return $v}
    return ""
}

start_server {no_rdma 1} {
    test "while it loads, the server answers commands on data with LOADING, and others as usual" {
        r debug populate 20000 k 10
        r save
        start_loading
        set c [tcp_client]
        assert_equal 1 [loading_field $c loading]
        foreach command {{get k:1} {set a b} {ping} {dbsize} {save} {bgsave} {keys *} {flushall}} {
            assert_error "LOADING Valkey is loading the dataset in memory" {$c {*}$command}
        }
        assert_equal "loading-process-events-interval-bytes 1024" [$c config get loading-process-events-interval-bytes]
        assert_match "*cmd=client|list*" [$c client list]
        assert_range [$c lastsave] 1 [expr {[clock seconds] + 1}]
        assert_error "LOADING Valkey is loading the dataset in memory" {$c debug reload}
        assert_error_like "*LOADING*" {$c config set dir /tmp}
    }

    test "INFO shows the progress of loading" {
        set c [tcp_client]
        assert_equal 1 [loading_field $c loading]
        assert_range [loading_field $c loading_start_time] [expr {[clock seconds] - 60}] [expr {[clock seconds] + 1}]
        assert_equal [file size [srv dir]/dump.rdb] [loading_field $c loading_total_bytes]
        wait_for_condition 20000 {[loading_field $c loading_loaded_perc] > 0}
        assert_range [loading_field $c loading_loaded_perc] 0.01 99.99
        assert_range [loading_field $c loading_loaded_bytes] 1 [file size [srv dir]/dump.rdb]
        assert_match {[0-9]*} [loading_field $c loading_eta_seconds]
        set keys [loading_field $c rdb_last_load_keys_loaded]
        wait_for_condition 20000 {[loading_field $c rdb_last_load_keys_loaded] > $keys}
    }

    test "the log shows the progress of loading and the remaining time" -needs {ours 1} {
        set c [tcp_client]
        $c config set key-load-delay 20000
        wait_for_log "Loading DB in memory: *seconds left" 0 60000
        assert_regexp {in memory: \d+\.\d% \(\d+\.\d of \d+\.\d MB\), \d+ keys, about \d+ seconds left} [log_text]
        $c config set key-load-delay 2000
    }

    test "DEBUG replaces no data while the server loads" -needs {ours 1} {
        set c [tcp_client]
        foreach command {{reload} {loadaof} {populate 10}} {
            assert_error_like "LOADING *" {$c debug {*}$command}
        }
        assert_equal 1 [loading_field $c loading]
    }

    test "clients come and go while the server loads" {
        for {set i 0} {$i < 50} {incr i} {
            set c [tcp_client]
            assert_error_like "LOADING *" {$c get a}
            $c -close
        }
        set c [tcp_client]
        wait_for_condition 10000 {[regexp {connected_clients:1\r} [$c info clients]]}
    }

    test "a transaction with commands on data is refused while the server loads" {
        set c [tcp_client]
        assert_equal OK [$c multi]
        assert_error_like "LOADING *" {$c get a}
        assert_error_like "EXECABORT *" {$c exec}
    }

    test "SIGTERM ends the server while it loads, and leaves the file as it is" {
        set before [file_bytes [srv dir]/dump.rdb]
        kill_process TERM $::server([srv id],pid)
        assert_equal 0 [server_reap [srv id]]
        assert_equal $before [file_bytes [srv dir]/dump.rdb]
        server_launch [srv id]
    }

    test "SHUTDOWN ends the server while it loads, and leaves the file as it is" {
        set before [file_bytes [srv dir]/dump.rdb]
        wait_for_condition 20000 {![catch {set c [tcp_client]; $c config get port}]}
        assert_equal 1 [loading_field $c loading]
        $c -send shutdown save
        assert_equal 1 [$c -eof]
        assert_equal 0 [server_reap [srv id]]
        assert_equal $before [file_bytes [srv dir]/dump.rdb]
        server_launch [srv id]
        wait_for_condition 20000 {![catch {set c [tcp_client]; $c config get port}]}
    }

    test "commands on data are executed once loading is over" {
        set c [tcp_client]
        $c config set key-load-delay 0
        wait_for_condition 30000 {[loading_field $c loading] eq "0"}
        assert_equal 20000 [$c dbsize]
        assert_equal "" [loading_field $c loading_start_time]
        assert_match "*Done loading RDB, keys loaded: 20000, keys expired: 0, all fields expired hashes: 0.*DB loaded\
            from disk: *.* seconds*Ready to accept connections*" [log_text]
    }
}

start_server {} {
    test "keys that have expired are left out, and counted" {
        r config set save ""
        r debug set-active-expire 0
        r set stays v
        r set gone v px 1
        r debug sleep 0.01
        r save
        restart_server -signal KILL
        assert_equal 1 [r dbsize]
        assert_equal 1 [info_field persistence rdb_last_load_keys_loaded]
        assert_equal 1 [info_field persistence rdb_last_load_keys_expired]
    }

    test "a replica keeps keys that have expired: its primary deletes them" -needs {ours 1} {
        r flushall
        r debug set-active-expire 0
        r set gone v px 1
        r debug sleep 0.01
        r debug role replica 127.0.0.1 1
        assert_equal OK [r debug reload]
        assert_equal 1 [r dbsize]
        assert_equal 0 [info_field persistence rdb_last_load_keys_expired]
        r debug role primary
        assert_equal OK [r debug reload]
        assert_equal 0 [r dbsize]
        assert_equal 1 [info_field persistence rdb_last_load_keys_expired]
    }

    test "a server without a file starts empty" {
        file delete [srv dir]/dump.rdb
        restart_server -signal KILL
        assert_equal 0 [r dbsize]
        assert_equal 0 [info_field persistence rdb_last_load_keys_loaded]
    }
}

# Starts a server on a file of these bytes, which it cannot load.
proc refuses_file {bytes pattern} {
    set dir [file join $::unit_dir bad[incr ::server_next]]
    file mkdir $dir
    write_file $dir/dump.rdb $bytes
    set got [run_server --port [free_port] --bind 127.0.0.1 --dir $dir]
    assert_equal 1 [dict get $got code]
    assert_match $pattern [dict get $got out]
    assert_match "*Fatal error loading the DB, check server logs. Exiting.*" [dict get $got out]
    assert_equal $bytes [file_bytes $dir/dump.rdb]
}

start_server {no_rdma 1} {
    test "a file that is cut short ends the server, with the offset and the reason" {
        r debug populate 1000 k 10
        r save
        set bytes [file_bytes [srv dir]/dump.rdb]
        foreach at {9 100 5000} {
            refuses_file [string range $bytes 0 $at-1] "*Internal error in RDB reading offset * -> *Error in RDB file\
                dump.rdb at offset *: *Terminating server after rdb file reading failure.*"
        }
        refuses_file [string range $bytes 0 end-4] "*Error in RDB file dump.rdb at offset *: *"
    }

    test "keys without elements are dropped from a file, and named in the log" {
        set dir [file join $::unit_dir empty]
        file mkdir $dir
        write_file $dir/dump.rdb "REDIS0003\xfe\x00\x02\x03set\x00\x04\x04hash\x00\xff"
        start_server [list overrides [list dir $dir hide-user-data-from-log no]] {
            assert_equal 0 [r dbsize]
            foreach key {set hash} {assert [log_has "rdbLoadObject skipping empty key: $key"]}
            assert [log_has "keys loaded: 0, keys expired: 0, empty keys skipped: 2, all fields expired hashes: 0."]
        }
    }

    test "a file with a wrong checksum ends the server" {
        set bytes [file_bytes [srv dir]/dump.rdb]
        set at [expr {[string length $bytes] / 2}]
        refuses_file [string replace $bytes end end [expr {[string index $bytes end] eq "x" ? "y" : "x"}]] \
            "*Error in RDB file dump.rdb at offset *: *checksum*"
    }

    test "what is no RDB file ends the server, and stays as it is" {
        refuses_file "garbage file is here" "*Error in RDB file dump.rdb at offset *: *"
        refuses_file "" "*Error in RDB file dump.rdb at offset 0: *"
    }

    test "a directory instead of the file ends the server" {
        set dir [file join $::unit_dir asdir]
        file mkdir $dir/dump.rdb
        set got [run_server --port [free_port] --bind 127.0.0.1 --dir $dir]
        assert_equal 1 [dict get $got code]
        assert_match "*Fatal error loading the DB, check server logs. Exiting.*" [dict get $got out]
    }
}

test "a server that keeps nothing says so when it starts" {
    lassign [serve -- --port PORT --bind 127.0.0.1 --dir DIR --save ""] handle
    wait_for_text [spawn_outfile $handle] \
        "Persistence is off: neither save points nor the append-only file are configured."
    lassign [serve -- --port PORT --bind 127.0.0.1 --dir DIR --save 3600 1] handle port
    wait_for_text [spawn_outfile $handle] "Ready to accept connections"
    assert_not_match "*Persistence is off*" [spawn_out $handle]
}
