# Modules that are unloaded, or whose OnLoad fails: the server never calls a function of theirs again. The module is
# tests/modules/unloading.c. Valkey 9.1 crashes in most of these tests.

set unloading [file join $::root build modules unloading.so]
set failed "ERR Error loading the extension. Please check the server logs."

# What a module has left for a turn of the loop, or for a timer of 20 ms, would have been called by now.
proc let_loop_turn {} {
    for {set i 0} {$i < 5} {incr i} {
        r ping
        after 10
    }
}

start_server {overrides {enable-module-command yes enable-debug-command yes} tags {modules}} {
    test "descriptors that a module watches are removed with it" -needs {ours 1} {
        r module load $unloading
        r unloading.watch
        wait_for_condition 5000 {[r unloading.calls] > 3}
        assert_equal OK [r module unload unloading]
        let_loop_turn
        r module load $unloading
        assert_equal 0 [r unloading.calls]
        r module unload unloading
    }

    test "a function that OnUnload adds to the loop is not called" -needs {ours 1} {
        r module load $unloading
        r unloading.once
        assert_equal OK [r module unload unloading]
        let_loop_turn
    }

    test "a function of the loop cannot unload its module" -needs {ours 1} {
        r module load $unloading
        set from [log_size]
        r unloading.loop
        wait_for_log "it answers: ERR Error unloading module: the module runs: one of its calls unloads it" $from
        assert_equal 0 [r unloading.calls]
        assert_equal OK [r module unload unloading]
    }

    test "an OnLoad that fails leaves nothing behind" -needs {ours 1} {
        r set plain text
        r acl setuser left reset
        set watcher [new_client]
        $watcher watch one two plain
        for {set i 0} {$i < 3} {incr i} {
            set from [log_size]
            assert_error $failed {r module load $unloading fail}
            wait_for_log "OnLoad leaves everything" $from
            wait_for_log "Module $unloading initialization failed. Module not loaded." $from
            wait_for_log "leaves 3 values of its own types: they are deleted" $from
            let_loop_turn
        }
        assert_equal {} [r keys *]
        r select 9
        assert_equal {} [r keys *]
        r select 0
        $watcher multi
        assert_equal {} [$watcher exec]
        $watcher -close
        assert_equal {} [r config get unloading.*]
        assert_not_match *left* [r info everything]
        assert_equal {lua} [lmap module [r module list] {dict get $module name}]
        assert_error "ERR Unknown category 'unloading'" {r acl cat unloading}
        assert_error "WRONGPASS invalid username-password pair or user is disabled." {r auth left x}
        assert_equal 0 [info_field clients blocked_clients]
        r rpush list a
        assert_equal {a} [r lrange list 0 -1]
        r flushall
        r debug reload
        r module load $unloading
        assert_equal 0 [r unloading.calls]
        r acl deluser left
        r module unload unloading
    }

    test "an OnLoad may fail within a command of another module, in a script" -needs {ours 1} {
        r module load [file join $::root build modules watching.so]
        set from [log_size]
        set script {return server.pcall('watching.call', 'module', unpack(ARGV))}
        assert_error $failed {r eval $script 0 load $unloading fail}
        wait_for_log "OnLoad leaves everything" $from
        let_loop_turn
        assert_equal {} [r keys *]
    }

    test "a scripting engine neither comes nor goes while a script runs" -needs {ours 1} {
        set engine [file join $::root build modules engine.so]
        set script {return server.pcall('watching.call', 'module', unpack(ARGV))}
        assert_error $failed {r eval $script 0 load $engine}
        r module load $engine
        assert_error "ERR Error unloading module: its scripting engine cannot go while a script runs" {
            r eval $script 0 unload engine
        }
        r module unload engine
        r module unload watching
    }

    test "a library stays open while a background thread frees a value of it" -needs {ours 1} {
        set from [log_size]
        assert_error $failed {r module load $unloading background}
        wait_for_log "OnLoad leaves everything" $from
        wait_for_condition 5000 {[info_field memory lazyfree_pending_objects] == 0}
        assert_equal {} [r keys *]
        assert_error $failed {r module load $unloading fail}
        r acl deluser left
        r module load $unloading
        r module unload unloading
    }
}

start_server {overrides {enable-module-command yes repl-diskless-sync-delay 0} tags {modules}} {
    start_server {overrides {}} {
        test "replicas are told which keys of others an OnLoad that fails has lost" -needs {ours 1} {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 10000 {[info_field replication master_link_status] eq "up"}
            r -1 set plain text
            assert_error $failed {r -1 module load $unloading fail}
            r -1 set end 1
            wait_for_condition 5000 {[r get end] == 1}
            assert_equal {end end} [list [r -1 keys *] [r keys *]]
        }
    }
}
