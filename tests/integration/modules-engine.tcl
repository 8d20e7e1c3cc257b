# Scripts and libraries of a module's scripting engine. The module is tests/modules/engine.c.

set engine [file join $::root build modules engine.so]
set library "#!words name=lib\nhello say hi\nput set x\nlook set reads"
start_server [list overrides {enable-module-command yes save ""} tags {modules}] {
    r module load $engine

    test "EVAL runs a script of the engine that its first line names" {
        assert_equal hi [r eval "#!words\nsay hi" 0]
        assert_equal OK [r eval "#!WORDS\nset x" 1 key value]
        assert_equal value [r get key]
        set digest [r script load "#!words\nsay loaded"]
        assert_equal loaded [r evalsha $digest 0]
        assert_equal {3 0} [r engine.counts]
        r script flush
        assert_equal {0 1} [r engine.counts]
        assert_error "NOSCRIPT No matching script." {r evalsha $digest 0}
        assert_error "ERR Could not find scripting engine 'nosuch'" {r eval "#!nosuch\nsay hi" 0}
    }

    test "a library of the engine is loaded, listed, called, saved and deleted" {
        assert_equal lib [r function load $library]
        assert_equal hi [r fcall hello 0]
        assert_equal OK [r fcall put 1 key second]
        assert_equal second [r get key]
        set listed [lindex [r function list] 0]
        assert_equal {lib WORDS 3} [list [dict get $listed library_name] [dict get $listed engine] \
            [llength [dict get $listed functions]]]
        assert_equal {libraries_count 1 functions_count 3} [dict get [dict get [r function stats] engines] WORDS]
        assert_error "ERR Library 'lib' already exists" {r function load $library}
        assert_error "ERR no such action: 'shout'" {r function load replace "#!words name=lib\nhello shout hi"}
        assert_error "ERR Engine 'nosuch' not found" {r function load "#!nosuch name=lib\n"}
        assert_error "ERR No functions registered" {r function load "#!words name=none\n"}
        assert_equal hi [r fcall hello 0]
        set dump [r function dump]
        r function flush
        assert_equal 0 [lindex [r engine.counts] 0]
        assert_error "ERR Function not found" {r fcall hello 0}
        assert_equal OK [r function restore $dump]
        assert_equal hi [r fcall hello 0]
        assert_equal OK [r function delete lib]
        assert_equal 0 [lindex [r engine.counts] 0]
    }

    test "a function of an engine that says that it does not write may not" {
        r function load $library
        r del key
        set refused "ERR Write commands are not allowed from read-only scripts."
        assert_error $refused {r fcall look 1 key value}
        assert_error $refused {r eval "#!words\nset reads" 1 key value}
        assert_equal 0 [r exists key]
        r function flush
        r script flush
    }

    test "what an engine's script writes is replicated" {
        start_server [list overrides [list loadmodule $engine save ""]] {
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 10000 {[info_field master_link_status] eq "up"} "the replica is not connected"
            r -1 eval "#!words\nset x" 1 replicated yes
            wait_for_condition 5000 {[r get replicated] eq "yes"} "the write is not replicated"
            r -1 function load $library
            wait_for_condition 5000 {[llength [r function list]] == 1} "the library is not replicated"
            r -1 function flush
            wait_for_condition 5000 {[llength [r function list]] == 0} "its end is not replicated"
        }
    }

    test "a script of an engine that runs for long can be killed" {
        r config set busy-reply-threshold 10
        set c [new_client]
        $c -send eval "#!words\nspin" 0
        wait_for_condition 5000 {[catch {r ping} error]} "the server is not busy"
        assert_match "BUSY *" $error
        assert_equal OK [r script kill]
        assert_error "ERR killed" {$c -read}
        assert_equal PONG [r ping]
        r config set busy-reply-threshold 5000
    }

    test "INFO describes the engines" {
        assert_match "*engines_count:2*name=WORDS,module=engine,abi_version=3,used_memory=*,memory_overhead=0*" \
            [r info scriptingengines]
        assert_error "ERR The scripting engine 'WORDS' does not support interactive script debugging" \
            {r script debug yes words}
    }

    test "a module stays while a background thread runs its code" -needs {ours 1} {
        r engine.slow
        r script flush async
        assert_error "ERR Error unloading module: the module's code runs in the background. Please try again" {
            r module unload engine
        }
        assert_equal OK [r engine.go]
        wait_for_condition 5000 {![catch {r module unload engine}]} "the reset does not end"
        r module load $engine
    }

    test "what an engine has compiled goes with its module" {
        r function load $library
        r script load "#!words\nsay hi"
        assert_equal OK [r module unload engine]
        assert_equal {} [r function list]
        assert_error "ERR Could not find scripting engine 'words'" {r eval "#!words\nsay hi" 0}
        r module load $engine 2
        assert_equal hi [r eval "#!words\nsay hi" 0]
        assert_equal {1 0} [r engine.counts]
    }
}
