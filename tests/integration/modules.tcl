# Modules: loading, their commands, replies, calls and propagation. The modules are in tests/modules.

# The command fails with an error that matches the pattern.

start_server {overrides {enable-module-command yes} tags {modules}} {
    test "MODULE LOAD, LIST and UNLOAD" -needs {ours 1} {
        set module [test_module simple]
        assert_equal OK [r module load $module one two]
        assert_equal [list name simple ver 3 path $module args {one two}] [lindex [r module list] 0]
        assert_match "*module:name=simple,ver=3,api=1,filters=0,usedby=\\\[\\\],using=\\\[\\\],options=\\\[\\\]*" \
            [r info modules]
        assert_equal hello [r simple.echo hello]
        assert_equal OK [r simple.arguments three]
        assert_equal three [dict get [lindex [r module list] 0] args]
        assert_equal OK [r module unload simple]
        assert_error_like "ERR unknown command 'simple.echo'*" {r simple.echo hello}
        assert_equal {lua} [lmap module [r module list] {dict get $module name}]
    }

    test "a module gives back memory that functions of the C library allocate" {
        r module load [test_module simple]
        assert_equal OK [r simple.memory]
        r module unload simple
    }

    test "what cannot be loaded is an error, and the log says why" -needs {ours 1} {
        set failed "ERR Error loading the extension. Please check the server logs."
        set module [test_module simple]
        set plain [file normalize [dict get [r config get dir] dir]/plain.so]
        write_file $plain ""
        foreach {arguments reason} [list \
            [list load /nowhere.so] "Module /nowhere.so failed to load: /nowhere.so: cannot open shared object file" \
            [list load $plain] "Module $plain failed to load: It does not have execute permissions." \
            [list load $module refuse] "Module $module initialization failed. Module not loaded." \
            [list load [test_module nameless]] "Its OnLoad function has not called Init." \
            [list load /x/valkey-rdma.so port=1] "is a part of this server, with the options rdma-port and rdma-*." \
            [list loadex valkey-tls.so] "Module valkey-tls.so is a part of this server, with the options tls-port" \
            [list loadex $module config a.b] "CONFIG specified without name value pair" \
            [list loadex $module nosuch] "Syntax Error from arguments to loadex around nosuch."] {
            set from [log_size]
            assert_error $failed [list r module {*}$arguments]
            wait_for_log $reason $from
        }
        assert_error "ERR Error unloading module: no such module with that name" {r module unload nosuch}
        r module load $module
        set from [log_size]
        assert_error $failed {r module load $module}
        wait_for_log "initialization failed. Module name is busy." $from
        r module unload simple
    }

    test "commands of a module are described like others" -needs {ours 1} {
        r module load [test_module simple]
        assert_equal {simple.set -1 {write denyoom module} 1 1 1} [lrange [lindex [r command info simple.set] 0] 0 5]
        set child {simple.parent|child {group module module simple}}
        assert_equal [list simple.parent [list group module module simple subcommands $child]] \
            [r command docs simple.parent]
        set names {arguments attribute call echo keys memory numbers parent parent|child set types}
        assert_equal [lmap name $names {string cat simple. $name}] [lsort [r command list filterby module simple]]
        assert_equal {a c} [r command getkeys simple.keys a b c]
        assert_equal 3 [r simple.parent child x]
        assert_error "ERR wrong number of arguments for 'simple.echo' command" {r simple.echo}
        assert_error "ERR wrong number of arguments for 'simple.parent' command" {r simple.parent}
        r acl setuser limited on nopass +@all -simple.echo ~*
        set c [new_client]
        $c auth limited x
        assert_error_like "NOPERM *" {$c simple.echo x}
    }

    test "replies of a module have the types of the client's protocol" -needs {ours 1} {
        assert_equal {-7 1.5 text {} {key 1}} [r simple.types]
        assert_typed {* :1} simple.attribute
        set c [new_client -resp 3]
        assert_equal 1 [$c simple.attribute]
    }

    test "a call has any number of arguments" -needs {ours 1} {
        assert_equal 40 [r simple.numbers numbers]
        assert_equal {10 49} [list [r lindex numbers 0] [r lindex numbers -1]]
    }

    test "a module calls commands, and gets errors as replies" -needs {ours 1} {
        assert_equal OK [r simple.call set k v]
        assert_equal v [r simple.call get k]
        assert_error_like "WRONGTYPE *" {r simple.call lpush k x}
        assert_error_like "ERR unknown command 'nosuch'*" {r simple.call nosuch}
        assert_error "ERR wrong number of arguments for 'get' command" {r simple.call get}
    }

    test "a command leaves nothing at the client that calls it for a module" -needs {ours 1} {
        foreach i {1 2} {
            assert_equal OK [r simple.call multi]
            assert_equal OK [r simple.call watch k]
            assert_error "ERR EXEC without MULTI" {r simple.call exec}
            assert_equal OK [r simple.call quit]
            assert_error "ERR can only reset normal client connections" {r simple.call reset}
            assert_error "ERR no reply" {r simple.call client reply off}
            assert_equal OK [r simple.call client reply on]
            assert_error "ERR no reply" {r simple.call sync}
            assert_error_like "*MONITOR isn't allowed for DENY BLOCKING client" {r simple.call monitor}
            assert_equal OK [r simple.call client setname mine]
            assert_equal {} [r simple.call client getname]
            assert_equal v [r simple.call get k]
        }
    }

    test "a module runs scripts, but none within a script" -needs {ours 1} {
        assert_equal 5 [r simple.call eval {return 5} 0]
        foreach command {eval eval_ro} {
            assert_error_like "ERR command '$command' is not allowed while a script runs*" {
                r eval "return server.call('simple.call', '$command', 'return 5', '0')" 0
            }
        }
        assert_equal 5 [r simple.call eval {return 5} 0]
    }

    test "what a module replicates reaches a replica" -needs {ours 1} {
        set module [test_module simple]
        start_server [list overrides [list enable-module-command yes loadmodule $module]] {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 10000 {[info_field master_link_status] eq "up"} "the replica is not connected"
            r -1 simple.set a 1
            r -1 simple.call incr n
            wait_for_condition 5000 {[r get n] eq 1} "the call is not replicated"
            assert_equal 1 [r get a]
        }
    }

    test "a module whose commands run is unloaded, also while a client has queued one" -needs {ours 1} {
        r acl setuser a +simple.echo
        assert_error_like "ERR Error unloading module: one or more ACL users reference commands from this module.*" {
            r module unload simple
        }
        foreach user [r acl users] {if {$user ne "default"} {r acl deluser $user}}
        r multi
        r simple.echo x
        set c [new_client]
        assert_equal OK [$c module unload simple]
        $c -close
        assert_match "*unknown command*" [r exec]
    }
}

start_server {overrides {enable-module-command yes} tags {modules}} {
    test "a module whose source has the names of redismodule.h" {
        r module load [test_module legacy]
        assert_equal MASTER [r legacy.get k]
        r set k v
        assert_equal v [r legacy.get k]
        r module unload legacy
    }

    test "the module of examples/c, which docs/modules.md shows" {
        set shown [file_bytes [file join $::root docs modules.md]]
        assert {[string first [file_bytes [file join $::root examples c limit.c]] $shown] >= 0}
        r module load [test_module limit]
        assert_equal {2 1 0} [list [r limit.take calls 3 100] [r limit.take calls 3 100] [r limit.take calls 3 100]]
        assert_error "LIMIT too many calls, try again later" {r limit.take calls 3 100}
        assert_range [r ttl calls] 90 100
        assert_equal 3 [r get calls]
        assert_error "ERR most and seconds must be positive numbers" {r limit.take calls 3 0}
        assert_error "ERR wrong number of arguments for 'limit.take' command" {r limit.take calls}
        r lpush list x
        catch {r limit.take list 3 1} error
        assert_match "WRONGTYPE *" $error
        r module unload limit
    }
}

start_server [list overrides [list loadmodule "[test_module simple] x y"] tags {modules}] {
    test "loadmodule loads at start, with arguments, and CONFIG REWRITE keeps it" -needs {ours 1} {
        assert_equal {x y} [dict get [lindex [r module list] 0] args]
        r config rewrite
        restart_server
        assert_equal {x y} [dict get [lindex [r module list] 0] args]
    }

    test "MODULE LOAD is refused unless enable-module-command permits it" -needs {ours 1} {
        assert_error_like "ERR MODULE command not allowed. If the enable-module-command option is set to \"local\"*" {
            r module load [test_module simple]
        }
        assert_error_like "ERR MODULE command not allowed*" {r module unload simple}
        assert_match "*simple*" [r module list]
    }
}

test "a server does not start without a module that its configuration names" -needs {ours 1} {
    set got [run_server --port [free_port] --loadmodule /nowhere.so]
    assert_equal 1 [dict get $got code]
    assert_match "*Can't load module from /nowhere.so: server aborting*" [dict get $got out]
}

start_server [list overrides [list loadmodule [test_module waiting] enable-module-command yes] tags {modules}] {
    test "a module's client waits for a thread, for the lock, or until its time is up" -needs {ours 1} {
        assert_equal 42 [r waiting.number]
        assert_equal 5 [r waiting.change]
        assert_equal 10 [r waiting.change]
        assert_equal 10 [r get counter]
        assert_equal TIMEOUT [r waiting.timeout 10]
        assert_error_like "ERR Error unloading module: the module has blocked clients*" {r module unload waiting}
        wait_for_condition 5000 {[lindex [r waiting.counts] 1] == 1} "the timer does not fire"
    }

    test "within a transaction and a script a module cannot block" -needs {ours 1} {
        r multi
        r waiting.number
        assert_error_like "*Blocking module command called from transaction*" {error [r exec]}
        assert_error_like "*Blocking module command called from Lua script*" {
            r eval {return server.call('waiting.number')} 0
        }
        assert_equal PONG [r ping]
    }

    test "many clients wait for threads, and one that disconnects harms none" -needs {ours 1} {
        set clients {}
        for {set i 0} {$i < 20} {incr i} {lappend clients [new_client]}
        foreach c $clients {$c -send waiting.number}
        [lindex $clients 0] -close
        foreach c [lrange $clients 1 end] {
            assert_equal 42 [$c -read]
            $c -close
        }
    }

    test "a listener to keyspace events writes, in one group with the command" {
        set before [lindex [r waiting.counts] 0]
        set follower [new_follower]
        r set write:a 1
        assert_equal {1 x} [r mget written set]
        r multi
        r set write:b 2
        r exec
        r eval {return server.call('set', KEYS[1], 1)} 1 write:c
        assert_equal 3 [r get written]
        assert_equal [expr {$before + 3}] [lindex [r waiting.counts] 0]
        r del written set write:a write:b write:c
        set effects {{INCR written} {set set x}}
        set heard [heard $follower]
        set expected {}
        foreach write {{set write:a 1} {set write:b 2}} {lappend expected MULTI {*}$effects $write EXEC}
        lappend expected MULTI {INCR written} {set write:c 1} EXEC ;# a script may not run another one
        lappend expected {del written set write:a write:b write:c}
        assert_equal $expected $heard
    }

    test "a listener does not find keys that expire, and harms no deletion" -needs {ours 1} {
        r debug set-active-expire 0
        for {set i 0} {$i < 20} {incr i} {r set e:$i x px 1}
        after 10
        assert_equal {} [r get e:0]
        assert_equal 0 [r del e:1]
        assert_equal OK [r set e:2 x px 1]
        r debug set-active-expire 1
        wait_for_condition 5000 {[info_field expired_keys] == 21} "not all keys expire once"
        assert_equal {21 3} [r waiting.expired] ;# e:2 has a new value when its event is delivered
        assert_equal 21 [info_field expired_keys]
        assert_equal 0 [r exists e:0 e:1 e:2 e:3 e:4 written]
        assert_equal {} [r keys e:*]
    }

    test "a thread serves a client that waits for a key, and sets timers" -needs {ours 1} {
        set before [lindex [r waiting.counts] 1]
        set c [new_client]
        $c -send blpop pushed 0
        wait_for_condition 5000 {[info_field blocked_clients] == 1} "the client does not wait"
        assert_equal OK [r waiting.push]
        assert_equal {pushed 1} [$c -read]
        assert_equal 0 [r exists pushed]
        wait_for_condition 5000 {[lindex [r waiting.counts] 1] == $before + 1} "the timer does not fire"
    }

    test "a thread that takes the lock again and again lets others act" -needs {ours 1} {
        set c [new_client]
        set began [clock milliseconds]
        $c -send waiting.hog
        for {set i 0} {$i < 20} {incr i} {r ping}
        assert {[clock milliseconds] - $began < 1500}
        assert_equal OK [$c -read]
    }

    test "what contexts of any kind change is propagated at once, and complete" -needs {ours 1} {
        start_server [list overrides [list enable-module-command yes loadmodule [test_module waiting]]] {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 10000 {[info_field master_link_status] eq "up"} "the replica is not connected"
            foreach i {2 4} {
                r -1 waiting.detached
                wait_for_condition 5000 {[r -1 get detached] == $i} "the timer does not fire"
                wait_for_condition 5000 {[r get detached] == $i && [r get replicated] == $i} "not replicated"
            }
            r -1 waiting.push
            wait_for_condition 5000 {[r get pushes] eq [r -1 get pushes]} "the changes of a thread are not replicated"
            r -1 set after x
            assert_equal 1 [r -1 wait 1 5000]
            assert_equal x [r get after]
        }
    }

    test "a module changes keys of several types" -needs {ours 1} {
        assert_equal {element 1.5 element k 2} [r waiting.key k]
        assert_equal {element 1.5} [r zrange k:z 0 -1 withscores]
        assert_equal {field element} [r hgetall k:h]
        assert_equal {k element} [r lrange k:l 0 -1]
        assert {[r pttl k:l] > 0}
    }
}

start_server [list overrides [list loadmodule "[test_module waiting] ticks" save ""] tags {modules}] {
    test "timers of a module wait for the end of a load" -needs {ours 1} {
        r debug populate 20000 filler 10
        wait_for_condition 10000 {[r exists tick:99] == 1} "the timer does not fire"
        r save
        set before [r get tick:0]
        restart_server -signal KILL -overrides {key-load-delay 50 loading-process-events-interval-bytes 1024}
        wait_for_condition 20000 {[info_field loading] == 0} "the load does not end"
        assert {[r get tick:0] >= $before}
        assert_equal 20100 [r dbsize]
        r config set key-load-delay 0
    }
}
