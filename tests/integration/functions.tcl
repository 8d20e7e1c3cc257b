# FUNCTION and FCALL: libraries, their registration, calls, DUMP and RESTORE, and that libraries are part of the data
# set.

proc library {name code} {return "#!lua name=$name\n$code"}
proc simple {name {reply 1}} {library $name "redis.register_function('$name', function(keys, args) return $reply end)"}

start_server {overrides {enable-debug-command yes} tags {functions}} {
    test "a function gets its keys and arguments" {
        r function load [library lib {redis.register_function('f', function(keys, args) return {keys, args} end)}]
        assert_equal {{k1 k2} a1} [r fcall f 2 k1 k2 a1]
        assert_equal {{} {}} [r fcall F 0]
        replies {
            {fcall nosuch 0} "-ERR Function not found"
            {fcall f x} "-ERR Bad number of keys provided"
            {fcall f -1} "-ERR Number of keys can't be negative"
            {fcall f 1} "-ERR Number of keys can't be greater than number of args"
        }
        arity_errors {fcall {fcall f} fcall_ro}
    }

    test "FUNCTION LOAD checks the first line of a library" {
        replies {
            {function load "x"} "-ERR Missing library metadata"
            {function load "#!lua"} "-ERR Invalid library metadata"
            {function load "#!lua\n"} "-ERR Library name was not given"
            {function load "#!lua name=a b=c\n"} "-ERR Invalid metadata value given: b=c"
            {function load "#!lua name=a-b\n"}\
                "-ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one\
                character long"
            {function load "#!lua name=a name=b\n"}\
                "-ERR Invalid metadata value, name argument was given multiple times"
            {function load "#!perl name=a\n"} "-ERR Engine 'perl' not found"
            {function load nosuch "#!lua name=a\n"} "-ERR Unknown option given: nosuch"
            {function load "#!lua name=a\n"} "-ERR No functions registered"
        }
    }

    test "FUNCTION LOAD refuses what register_function does not understand" {
        foreach {code error} {
            {foo} "ERR Error compiling function: user_function:2: '=' expected near '<eof>'"
            {foo()} "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent\
                global variable 'foo'"
            {redis.call('ping')} "ERR Error registering functions: ERR user_function:2: Script attempted to access\
                nonexistent global variable 'call'"
            {x = 1} "ERR Error registering functions: ERR user_function:2: Attempt to modify a readonly table"
            {redis.register_function()}\
                "ERR Error registering functions: ERR wrong number of arguments to server.register_function"
            {redis.register_function('a', 1)}\
                "ERR Error registering functions: ERR second argument to server.register_function must be a function"
            {redis.register_function('a-b', function() end)}\
                "ERR Function names can only contain letters, numbers, or underscores(_) and must be at least one\
                character long"
            {redis.register_function{function_name = 'a'}}\
                "ERR Error registering functions: ERR server.register_function must get a callback argument"
            {redis.register_function{callback = function() end}}\
                "ERR Error registering functions: ERR server.register_function must get a function name argument"
            {redis.register_function{function_name = 'a', callback = function() end, foo = 1}}\
                "ERR Error registering functions: ERR unknown argument given to server.register_function"
            {redis.register_function{function_name = 'a', callback = function() end, flags = {'x'}}}\
                "ERR Error registering functions: ERR unknown flag given"
            {redis.register_function('a', function() end) redis.register_function('A', function() end)}\
                "ERR Function already exists in the library"
        } {
            assert_error $error {r function load [library bad $code]}
        }
        assert_error "ERR Error registering functions: ERR FUNCTION LOAD timeout" \
            {r function load [library bad {while true do end}]}
        assert_equal 0 [llength [r function list libraryname bad]]
    }

    test "names are unique, REPLACE replaces a library as a whole or not at all" {
        r function flush
        assert_equal a [r function load [simple a 'first']]
        assert_error "ERR Library 'a' already exists" {r function load [simple a]}
        assert_error "ERR Function a already exists" \
            {r function load [library b {redis.register_function('a', function() end)}]}
        assert_equal a [r function load replace \
            [library a {redis.register_function('a2', function() return 'second' end)}]]
        assert_error "ERR Function not found" {r fcall a 0}
        assert_equal second [r fcall a2 0]
        r function load [simple c]
        assert_error "ERR Function c already exists" \
            {r function load replace [library a {redis.register_function('c', function() end)}]}
        assert_equal second [r fcall a2 0]
        assert_typed +OK function delete a
        assert_error "ERR Library not found" {r function delete a}
        assert_error "ERR Function not found" {r fcall a2 0}
    }

    test "flags and descriptions of functions are kept and obeyed" {
        r function flush
        r function load [library lib {
            redis.register_function{function_name = 'reads', callback = function() return redis.call('get', 'k') end,\
                flags = {'no-writes'}, description = 'gets k'}
            redis.register_function('writes', function() return redis.call('set', 'k', 'v') end)
            redis.register_function{function_name = 'lies', callback = function() return redis.call('set', 'k', 'v')\
                end, flags = {'no-writes'}}}]
        assert_equal OK [r fcall writes 0]
        assert_equal v [r fcall reads 0]
        assert_equal v [r fcall_ro reads 0]
        assert_error "ERR Can not execute a script with write flag using *_ro command." {r fcall_ro writes 0}
        assert_error_like "ERR Write commands are not allowed from read-only scripts. script: on @user_function:*" \
            {r fcall lies 0}
        set list [lindex [r function list] 0]
        assert_equal {library_name engine functions} [dict keys $list]
        foreach function [dict get $list functions] {
            if {[dict get $function name] eq "reads"} {
                assert_equal {name reads description {gets k} flags no-writes} $function
            }
        }
        assert_equal 1 [dict exists [lindex [r function list libraryname L* withcode] 0] library_code]
        assert_equal {} [r function list libraryname x*]
        assert_equal {libraries_count 1 functions_count 3} [dict get [r function stats] engines LUA]
        assert_equal {1 3} [list [info_field memory number_of_libraries] [info_field memory number_of_functions]]
    }

    test "a library sees the whole API only when its functions run" {
        r function load replace [library lib {
            local n = 0
            redis.register_function('count', function() n = n + 1 return n end)
            redis.register_function('types', function()\
                return {type(redis.call), type(redis.register_function), type(cjson.encode), type(pairs)} end)
            redis.register_function('globals', function() y = 1 end)
            redis.register_function('keys', function() return KEYS end)}]
        assert_equal {1 2 3} [list [r fcall count 0] [r fcall count 0] [r fcall count 0]]
        assert_equal {function nil function function} [r fcall types 0]
        assert_error_like "ERR *Attempt to modify a readonly table*" {r fcall globals 0}
        assert_error_like "ERR *nonexistent global variable 'KEYS'*" {r fcall keys 0}
    }

    test "DUMP and RESTORE with their policies" {
        r function flush
        r function load [simple a 'a']
        r function load [simple b 'b']
        set payload [r function dump]
        assert_error "ERR Library a already exists" {r function restore $payload}
        r function flush
        r function load [simple c 'c']
        assert_typed +OK function restore $payload
        assert_equal {a b c} [list [r fcall a 0] [r fcall b 0] [r fcall c 0]]
        r function load replace [simple a 'new']
        assert_typed +OK function restore $payload replace
        assert_equal {a c} [list [r fcall a 0] [r fcall c 0]]
        assert_typed +OK function restore $payload flush
        assert_error "ERR Function not found" {r fcall c 0}
        assert_error "ERR DUMP payload version or checksum are wrong" {r function restore x}
        assert_error "ERR DUMP payload version or checksum are wrong" \
            {r function restore [string range $payload 0 end-1]x}
        assert_error_like "ERR Wrong restore policy given*" {r function restore $payload nosuch}
        # A failure changes nothing.
        r function flush
        r function load [library other {redis.register_function('b', function() return 'other' end)}]
        assert_error "ERR Function b already exists" {r function restore $payload}
        assert_error "ERR Function not found" {r fcall a 0}
        assert_equal other [r fcall b 0]
    }

    test "FUNCTION commands are propagated" {
        r function flush
        set f [new_follower]
        set code [simple p]
        r function load $code
        catch {r function load $code}
        r function delete p
        r function flush
        assert_equal [list [list function load $code] {function delete p} {function flush}] [heard $f]
        r function load [library p \
            {redis.register_function('p', function() redis.call('set', 'a', 1) redis.call('set', 'b', 2) end)}]
        heard $f
        r fcall p 0
        assert_equal {MULTI {set a 1} {set b 2} EXEC} [heard $f]
    }

    test "libraries survive a restart and DEBUG RELOAD" {
        r function flush
        r function load [simple kept 'kept']
        r debug reload
        assert_equal kept [r fcall kept 0]
        r save
        restart_server
        assert_equal kept [r fcall kept 0]
        r flushall
        assert_equal kept [r fcall kept 0]
        r function load [simple later 'later']
        r debug reload nosave
        assert_equal kept [r fcall kept 0]
        assert_equal 1 [llength [r function list]] "DEBUG RELOAD flushes the libraries, too"
    }
}

foreach preamble {yes no} {
    start_server [list overrides [list appendonly yes aof-use-rdb-preamble $preamble] tags {functions}] {
        test "libraries are in the append-only file, also after its rewrite (preamble: $preamble)" {
            r function load [simple first 'first']
            aof_rewrite
            r function load [simple second 'second']
            restart_server
            assert_equal {first second} [list [r fcall first 0] [r fcall second 0]]
            r function delete first
            restart_server
            assert_error "ERR Function not found" {r fcall first 0}
            assert_equal second [r fcall second 0]
        }
    }
}

start_server {overrides {repl-diskless-sync-delay 0 save ""} tags {functions} no_rdma 1} {
    start_server {overrides {save ""} tags {functions} no_rdma 1} {
        test "a replica has the libraries of its primary only, and gets what scripts write" -needs {ours 1} {
            r function load [simple own]
            r -1 function load [simple before 'before']
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 20000 {[info_field replication master_link_status] eq "up"} "the replica does not follow"
            assert_equal before [dict get [lindex [r function list] 0] library_name]
            assert_equal 1 [llength [r function list]]
            r -1 function load [library after \
                {redis.register_function('write', function(keys) redis.call('set', keys[1], 1) redis.call('incr',\
                keys[1]) end)}]
            r -1 fcall write 1 k
            r -1 eval {redis.set_repl(redis.REPL_AOF) redis.call('set', 'hidden', 1) redis.set_repl(redis.REPL_ALL)\
                redis.call('set', 'l', 1)} 0
            wait_for_condition 20000 {[r get l] eq "1"} "the replica misses the writes of scripts"
            assert_equal 2 [r get k]
            assert_equal "" [r get hidden]
            assert_equal 2 [llength [r function list]]
            assert_error_like "READONLY *" {r fcall write 1 k}
            assert_error_like "READONLY *" {r function flush}
            r -1 function flush
            wait_for_condition 20000 {[llength [r function list]] == 0} "the replica keeps its libraries"
            r replicaof no one
        }
    }
}
