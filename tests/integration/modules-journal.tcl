# Modules: what a module learns of events, and what functions do in each place in which it may act. The module is
# tests/modules/journal.c. tests/interop/module_answers.py compares the same module in this server and in Valkey.

set journal [file join $::root build modules journal.so]
# The lines of the journal that begin with one of these names, without the flags of the context.
proc journal {args} {
    set lines {}
    foreach line [split [string trim [r journal.read]] \n] {
        if {[lindex [split [lindex $line 0] :] 0] in $args} {
            lappend lines [string trimright [regsub { flags .*} $line ""]]
        }
    }
    return $lines
}
proc listen {} {
    r journal.mute cron-loop eventloop client key keyspace
    r journal.read
}

start_server [list overrides [list loadmodule $journal enable-module-command yes enable-debug-command yes save ""] \
    tags {modules}] {
    test "SelectDb selects the database of the client, too" {
        assert_equal "0 3" [string trim [r journal.run select 3]]
        r set there 1
        assert_match "*current default db 3*" [r journal.run who]
        assert_equal "1 3" [string trim [r journal.run select 99]]
        r multi
        r journal.run select 4
        r incr there
        assert_equal 1 [lindex [r exec] 1]
        r select 3
        assert_equal 1 [r get there]
        r eval {return redis.call('journal.run', 'select', '5')} 0
        assert_equal 1 [r get there]
        r flushall
        r select 0
    }

    test "a thread that answers no client acts as the default user" {
        r journal.run thread {;} who {;} call C set x 1
        set heard ""
        wait_for_condition 5000 {[string match "*thread:*" [append heard [r journal.read]]]} "the thread does not run"
        assert_match "*thread:*current default*+OK*" $heard
        r journal.run timer 1 {;} call EC set x 1
        set heard ""
        wait_for_condition 5000 {[string match "*timer:*" [append heard [r journal.read]]]} "the timer does not fire"
        assert_match "*no user directly attached to context or context's client*" $heard
    }

    test "a command that blocks succeeds, and again when it is called for its key" {
        listen
        set c [new_client]
        $c -send blpop l 0
        wait_for_condition 5000 {[info_field blocked_clients] == 1} "the client does not wait"
        assert_equal {{success:0 1 blpop dirty 0 module 0 argc 3 NULL}} \
            [lsearch -all -inline [journal success] *blpop*]
        r rpush l x
        $c -read
        assert_equal [list {success:0 1 rpush dirty 1 module 0 argc 3 NULL} \
            {success:0 1 blpop dirty 1 module 0 argc 3 NULL}] [lrange [journal success] 1 end]
        $c blpop l 0.01
        assert_equal 1 [llength [lsearch -all [journal success] *blpop*]]
        $c -close
    }

    test "a script has not failed with the error of a command that it has called" {
        r set s 1
        listen
        catch {r eval {return redis.pcall('lpush', 's', '1')} 0}
        catch {r eval {return redis.error_reply('own')} 0}
        assert_equal [list {failure:0 1 lpush dirty 0 module 0 argc 3 NULL} \
            {success:0 1 eval dirty 0 module 0 argc 3 NULL} {failure:0 1 eval dirty 0 module 0 argc 3 NULL}] \
            [lrange [journal success failure] 1 end]
    }

    test "the context of an event within a transaction says so" {
        listen
        r multi
        r get s
        r exec
        assert_match "*success:0 1 get * flags 6 *success:0 1 exec * flags 4 *" [r journal.read]
    }

    test "DEBUG LOADAOF is a load, and following another primary a change of the role" {
        r config set appendonly yes
        wait_for_condition 10000 {[info_field aof_rewrite_in_progress] == 0} "the rewrite does not end"
        r journal.read
        r debug loadaof
        assert_equal {loading:1 loading:3} [journal loading]
        r config set appendonly no
        foreach port {1 2} {
            r replicaof 127.0.0.1 $port
            assert_match "role:1 1 0 127.0.0.1 *" [lindex [journal role] 0]
        }
        r replicaof no one
        assert_match "role:0 1 1 *" [lindex [journal role] 0]
    }

    test "a module does not learn of its own load, and is unloaded when the server ends" {
        r module load [file join $::root build modules sections.so]
        assert_equal {{module:0 1 sections 7}} [journal module]
        r module unload sections
        assert_equal {{module:1 1 sections 7}} [journal module]
        set from [log_size]
        restart_server
        wait_for_log "shutdown, flags" $from
        wait_for_log "the journal ends" $from
        wait_for_log "Module journal unloaded" $from
        assert_equal {} [lsearch -all -inline [journal module] *journal*]
    }

    test "a command may need rights to all databases" -needs {version 9.1} {
        r acl setuser u on nopass +@all ~* db=0
        assert_match "*no permissions to access database*" [r acl dryrun u journal.everywhere]
        assert_match "*no permissions to access database*" [r acl dryrun u flushall]
        r acl setuser u alldbs
        assert_equal OK [r acl dryrun u journal.everywhere]
    }
}

start_server [list overrides [list loadmodule $journal save "" active-defrag-ignore-bytes 1 \
    active-defrag-threshold-lower 0 active-defrag-cycle-min 99] tags {modules}] {
    set works [expr {![catch {r config set activedefrag yes}]}]
    test "active defragmentation asks modules again and again, also when a walk has moved nothing" -needs {
        true {$works}
    } {
        set asked [r journal.defragmented]
        foreach round {1 2 3} {
            wait_for_condition 60000 {[r journal.defragmented] > $asked} "no walk"
            set asked [r journal.defragmented]
        }
    }
}
