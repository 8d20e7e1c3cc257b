# EVAL, EVALSHA and SCRIPT: conversion of values, errors, the cache, propagation, rejected commands.

start_server {overrides {enable-debug-command yes} tags {scripting}} {
    test "the least integer is a reply of a command in a script" {
        r set least -9223372036854775807
        assert_equal -9223372036854775808 [r eval {return redis.call('decr', KEYS[1])} 1 least]
        r del least
    }

    test "a script gets its keys and arguments, and replies with what it returns" {
        replies {
            {eval "return 1" 0} :1
            {eval "return 1.9" 0} :1
            {eval "return -1.9" 0} :-1
            {eval "return 'text'" 0} {$text}
            {eval "return true" 0} :1
            {eval "return false" 0} nil$
            {eval "return nil" 0} nil$
            {eval "return {1, {2, 'x'}, true, false, 3, nil, 4}" 0} {* :1 {* :2 $x} :1 nil$ :3}
            {eval "return {ok = 'fine'}" 0} +fine
            {eval "return {err = 'CODE what'}" 0} "-CODE what"
            {eval "return redis.status_reply('S')" 0} +S
            {eval "return redis.error_reply('what')" 0} "-ERR what"
            {eval "return redis.error_reply('-CODE what')" 0} "-CODE what"
            {eval "return {KEYS\[1\], KEYS\[2\], ARGV\[1\], #KEYS, #ARGV}" 2 k1 k2 a1} {* $k1 $k2 $a1 :2 :1}
        }
    }

    test "EVAL checks the number of keys" {
        replies {
            {eval "return 1" x} "-ERR value is not an integer or out of range"
            {eval "return 1" -1} "-ERR Number of keys can't be negative"
            {eval "return 1" 2 a} "-ERR Number of keys can't be greater than number of args"
        }
        arity_errors {eval {eval x} evalsha {evalsha x} eval_ro evalsha_ro}
    }

    test "replies of commands become Lua values" {
        r del h; r hset h f v
        replies {
            {eval "return redis.call('set', KEYS\[1\], ARGV\[1\])" 1 k v} +OK
            {eval "return redis.call('get', KEYS\[1\])" 1 k} {$v}
            {eval "return type(redis.call('get', 'missing'))" 0} {$boolean}
            {eval "redis.setresp(3) return type(redis.call('get', 'missing'))" 0} {$nil}
            {eval "return redis.call('hgetall', 'h')" 0} {* $f $v}
            {eval "redis.setresp(3) return redis.call('hgetall', 'h').map.f" 0} {$v}
            {eval "return redis.call('echo', 12.0)" 0} {$12}
            {eval "return redis.call('echo', 0.1)" 0} {$0.1}
            {eval "return redis.call('echo', 2^53)" 0} {$9007199254740992}
        }
        r hello 3
        assert_equal {f v} [r eval {redis.setresp(3) return redis.call('hgetall', 'h')} 0]
        assert_typed ,1.5 eval {return {double = 1.5}} 0
        assert_typed "#t" eval {redis.setresp(3) return true} 0
        assert_typed "_" eval {return nil} 0
        r hello 2
    }

    test "errors have Valkey's words and the position" {
        replies {
            {eval "return foo" 0} "-ERR user_script:1: Script attempted to access nonexistent global variable 'foo'\
                script: on @user_script:1."
            {eval "\n\nerror('x')" 0} "-ERR user_script:3: x script: on @user_script:3."
            {eval "return redis.call('nosuch')" 0} "-ERR Unknown command called from script script: on @user_script:1."
            {eval "return redis.call('get')" 0}\
                "-ERR Wrong number of args calling command from script script: on @user_script:1."
            {eval "return redis.call('get', {})" 0}\
                "-ERR Command arguments must be strings or integers script: on @user_script:1."
            {eval "return redis.call()" 0}\
                "-ERR Please specify at least one argument for this call script: on @user_script:1."
            {eval "return redis.pcall('nosuch')" 0} "-ERR Unknown command called from script"
            {eval "local ok, e = pcall(redis.call, 'nosuch') return e" 0} {$ERR Unknown command called from script}
            {eval "error({err = 'CODE what'})" 0} "-CODE what script: on @user_script:1."
            {eval "error(setmetatable({7}, {__index = {err = 'CODE base'}}))" 0} "-CODE base script: on @user_script:1."
            {eval "error(setmetatable({}, {__index = function() return 5 end}))" 0} "-5 script: on @user_script:1."
            {eval "error(setmetatable({}, {__index = function() error('x') end}))" 0}\
                "-ERR user_script:1: x script: on @user_script:1."
            {eval "return (" 0} "-ERR Error compiling script (new function): user_script:1: unexpected symbol\
                near '<eof>'"
        }
        r set k text
        assert_error "ERR value is not an integer or out of range script: on @user_script:1." {
            r eval {return redis.call('incr', KEYS[1])} 1 k
        }
    }

    test "pcall() returns the field err of an error table: instead of the table if it is a string, otherwise after it" {
        foreach {script results} {
            {pcall(error, {err = 'text'})} {2 string nil}
            {pcall(error, {err = 5})} {2 number nil}
            {pcall(error, {err = {}})} {3 table table}
            {pcall(error, {err = true})} {3 table boolean}
            {pcall(error, {7})} {3 table nil}
            {pcall(error, setmetatable({}, {__index = {err = 'base'}}))} {2 string nil}
            {pcall(error, setmetatable({}, {__index = function() return false end}))} {3 table boolean}
            {pcall(error, 'x')} {2 string nil}
            {pcall(error)} {2 nil nil}
            {pcall(redis.call, 'nosuch')} {2 string nil}
        } {
            set code "local function results(...) return {select('#', ...), type((select(2, ...))), type((select(3,\
                ...)))} end return results($script)"
            assert_equal $results [r eval $code 0] $script
        }
        assert_error "ERR user_script:1: x script: on @user_script:1." {
            r eval {return pcall(error, setmetatable({}, {__index = function() error('x') end}))} 0
        }
    }

    test "an error of a command is counted once" {
        r config resetstat
        r set k text
        catch {r eval {return redis.call('incr', KEYS[1])} 1 k}
        assert_match "*errorstat_ERR:count=1\r*" [r info errorstats]
        assert_match "*cmdstat_incr:calls=1,*failed_calls=1*" [r info commandstats]
        assert_match "*cmdstat_eval:calls=1,*failed_calls=1*" [r info commandstats]
    }

    test "a script fails once for each error of a command in its reply, and once for all its own" {
        r set k text
        foreach {script failed} {
            {return {redis.pcall('incr', 'k'), redis.pcall('incr', 'k')}} 2
            {local e = redis.pcall('incr', 'k') return {e, {e}, 1, e}} 3
            {return {redis.pcall('get'), redis.pcall('subscribe', 'c')}} 2
            {return {{err = 'E x'}, {err = 'E y'}}} 1
            {return {{err = 'E x'}, redis.pcall('incr', 'k'), {err = 'E y'}, redis.pcall('nosuch')}} 3
            {return {redis.pcall('incr', 'k'), redis.error_reply('own')}} 2
            {redis.setresp(3) return {map = {a = redis.pcall('incr', 'k'), b = redis.pcall('incr', 'k')}}} 2
            {redis.pcall('incr', 'k') return 1} 0
        } {
            r config resetstat
            r eval $script 0
            assert_match "*cmdstat_eval:calls=1,*,failed_calls=$failed\r*" [r info commandstats] $script
        }
    }

    test "commands that change the connection are refused, blocking ones do not block" {
        foreach command {{'eval','return 1',0} {'subscribe','c'} {'multi'} {'auth','x'} {'config','get','maxmemory'}\
            {'script','flush'}
            {'client','id'} {'hello'} {'watch','k'}} {
            assert_error "ERR This Valkey command is not allowed from script script: on @user_script:1." {
                r eval "return redis.call($command)" 0
            }
        }
        r del empty
        assert_typed "nil\$" eval {return redis.call('blpop', 'empty', 0)} 0
        assert_typed "nil\$" eval {return redis.call('xread', 'block', 0, 'streams', 'empty', '0')} 0
    }

    test "a script may select another database, and the client stays in its own" {
        r select 9; r flushdb
        r eval {redis.call('select', 10) redis.call('set', 'k', 'in10')} 0
        assert_equal "" [r get k]
        r select 10
        assert_equal in10 [r get k]
        r flushdb; r select 9
    }

    test "the time is the same throughout a script" {
        assert_typed :1 eval {
            local t = redis.call('time')
            for i = 1, 100000 do local x = i * i end
            local u = redis.call('time')
            return t[1] == u[1] and t[2] == u[2]
        } 0
    }

    test "scripts are found by their digest, in either case, until SCRIPT FLUSH" {
        r script flush
        set sha [r script load "return 'loaded'"]
        assert_equal loaded [r evalsha $sha 0]
        assert_equal loaded [r evalsha [string toupper $sha] 0]
        assert_equal {1 0} [r script exists $sha nosuch]
        assert_equal "return 'loaded'" [r script show $sha]
        assert_equal 1 [info_field memory number_of_cached_scripts]
        assert_morethan [info_field memory used_memory_vm_eval] 1000
        r script flush async
        assert_error "NOSCRIPT No matching script." {r evalsha $sha 0}
        assert_error "NOSCRIPT No matching script." {r script show $sha}
        assert_error "ERR SCRIPT FLUSH only support SYNC|ASYNC option" {r script flush now}
        r eval "return 'loaded'" 0
        assert_equal loaded [r evalsha $sha 0]
    }

    test "SCRIPT FLUSH forgets all scripts, however many there are" {
        foreach count {1 57 60 113 120 1000} {
            for {set i 0} {$i < $count} {incr i} {r -send script load "return $i"}
            set digests [lmap i [lrepeat $count x] {r -read}]
            assert_equal [lrepeat $count 1] [r script exists {*}$digests]
            r script flush
            assert_equal [lrepeat $count 0] [r script exists {*}$digests]
        }
    }

    test "more than 500 scripts of EVAL evict the least recently executed, SCRIPT LOAD keeps its own" {
        r script flush
        r config resetstat
        set kept [r script load "return 'kept'"]
        r eval "return 'first'" 0
        for {set i 0} {$i < 499} {incr i} {r eval "return $i" 0}
        assert_equal 501 [info_field memory number_of_cached_scripts]
        r eval "return 'first'" 0
        r eval "return 'one more'" 0
        assert_equal 501 [info_field memory number_of_cached_scripts]
        assert_equal 1 [info_field stats evicted_scripts]
        assert_equal {1 1} [r script exists $kept [r eval {return redis.sha1hex("return 'first'")} 0]]
        assert_equal 0 [r script exists [r eval {return redis.sha1hex("return 0")} 0]]
        r script flush
    }

    test "the effects of a script are propagated as one transaction, the script is not" {
        r flushall
        set f [new_follower]
        r eval {redis.call('set', 'a', 1) redis.call('get', 'a') redis.call('incr', 'a') return 1} 0
        assert_equal {MULTI {set a 1} {incr a} EXEC} [heard $f]
        r eval {return redis.call('set', 'b', 1)} 0
        assert_equal {{set b 1}} [heard $f]
        r eval {return redis.call('get', 'b')} 0
        assert_equal {} [heard $f]
        catch {r eval {redis.call('set', 'c', 1) redis.call('set', 'd', 2) error('x')} 0}
        assert_equal {MULTI {set c 1} {set d 2} EXEC} [heard $f]
        r eval {redis.call('set', 'e', 1) redis.set_repl(redis.REPL_NONE) redis.call('set', 'f', 1)} 0
        assert_equal {{set e 1}} [heard $f]
        r multi
        r set g 1
        r eval {redis.call('set', 'h', 1)} 0
        r exec
        assert_equal {MULTI {set g 1} {set h 1} EXEC} [heard $f]
    }

    test "the deletion of an expired key is propagated also while a script turns its effects away" {
        r flushall
        r debug set-active-expire 0
        set f [new_follower]
        r set expired 1 px 1
        heard $f
        set end [expr {[lindex [r time] 0] * 1000 + [lindex [r time] 1] / 1000 + 10}]
        wait_for_condition 5000 {[lindex [r time] 0] * 1000 + [lindex [r time] 1] / 1000 > $end}
        r eval {redis.set_repl(redis.REPL_NONE) return redis.call('set', 'expired', 2)} 0
        assert_equal {{unlink expired}} [string tolower [heard $f]]
        r debug set-active-expire 1
    }

    test "read-only scripts do not write" {
        set refused "ERR Write commands are not allowed from read-only scripts. script: on @user_script"
        assert_error "$refused:1." {r eval_ro {return redis.call('set', 'k', 1)} 0}
        assert_error "$refused:2." {r eval "#!lua flags=no-writes\nreturn redis.call('set', 'k', 1)" 0}
        foreach call {{'publish', 'c', 'm'} {'spublish', 'c', 'm'} {'pfcount', 'k'}} {
            assert_error "$refused:1." {r eval_ro "return redis.call($call)" 0}
            assert_error "$refused:2." {r eval "#!lua flags=no-writes\nreturn redis.call($call)" 0}
        }
        assert_equal 1 [r eval_ro {return 1} 0]
        assert_equal 1 [r evalsha_ro [r script load {return 1}] 0]
        assert_error "ERR Can not execute a script with write flag using *_ro command." {r eval_ro "#!lua\nreturn 1" 0}
    }

    test "the shebang line is checked" {
        replies {
            {eval "#!lua\nreturn 1" 0} :1
            {eval "#!lua flags=no-writes,allow-stale,allow-oom,no-cluster,allow-cross-slot-keys\nreturn 1" 0} :1
            {eval "#!lua flags=\nreturn 1" 0} :1
            {eval "#!lua flags=nosuch\nreturn 1" 0} "-ERR Unexpected flag in script shebang: nosuch"
            {eval "#!lua name=x\nreturn 1" 0} "-ERR Unknown lua shebang option: name=x"
            {eval "#!perl\nreturn 1" 0} "-ERR Could not find scripting engine 'perl'"
            {eval "#!lua" 0} "-ERR Invalid script shebang"
            {eval "#!lua\n\nreturn foo" 0}\
                "-ERR user_script:3: Script attempted to access nonexistent global variable 'foo' script: on\
                @user_script:3."
        }
    }

    test "out of memory refuses a script's first write, but not those after one that was executed" {
        r set k v
        r config set maxmemory 1
        set oom "OOM command not allowed when used memory > 'maxmemory'."
        assert_error "$oom script: on @user_script:1." {r eval {return redis.call('set', 'x', 1)} 0}
        foreach command {eval eval_ro} {
            assert_error $oom {r $command "#!lua\nreturn 1" 0}
            replies [list {multi} +OK [list $command "#!lua\nreturn 1" 0] -$oom\
                {exec} {-EXECABORT Transaction discarded because of previous errors.}]
        }
        assert_equal v [r eval {return redis.call('get', 'k')} 0]
        assert_equal v [r eval "#!lua flags=no-writes\nreturn redis.call('get', 'k')" 0]
        assert_equal OK [r eval "#!lua flags=allow-oom\nreturn redis.call('set', 'x', 1)" 0]
        assert_equal OK [r eval {redis.call('del', 'k') return redis.call('set', 'x', 1)} 0]
        r config set maxmemory 0
    }

    test "a read-only replica refuses the writes of scripts" -needs {ours 1} {
        r debug role replica 192.0.2.1 7000
        set refused "READONLY You can't write against a read only replica."
        assert_error "$refused script: on @user_script:1." {r eval {return redis.call('set', 'x', 1)} 0}
        foreach command {eval eval_ro} {assert_error $refused {r $command "#!lua\nreturn 1" 0}}
        assert_equal 1 [r eval {return 1} 0]
        r config set replica-serve-stale-data no
        replies {{multi} +OK {eval "#!lua flags=no-writes\nreturn 1" 0}\
            {-MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.} {discard} +OK}
        assert_error_like "MASTERDOWN*" {r eval {return 1} 0}
        assert_equal 1 [r eval "#!lua flags=no-writes,allow-stale\nreturn 1" 0]
        assert_error "ERR Can not execute the command on a stale replica script: on @user_script:2." {
            r eval "#!lua flags=no-writes,allow-stale\nreturn redis.call('get', 'x')" 0
        }
        r config set replica-serve-stale-data yes
        r debug role primary
    }

    test "COMMAND GETKEYS finds the keys of scripts" {
        assert_equal {a b} [r command getkeys eval "return 1" 2 a b c]
        assert_equal {a} [r command getkeys evalsha_ro x 1 a c]
        assert_equal {a} [r command getkeys fcall f 1 a c]
    }

    test "MONITOR shows a script, and then its commands" {
        set m [new_client]
        $m monitor
        r eval {return redis.call('set', KEYS[1], 1)} 1 k
        assert_match "*\"eval\"*" [$m -read]
        assert_match {*\[? lua\] "set" "k" "1"} [$m -read]
    }

    test "CLIENT PAUSE WRITE holds scripts that may write, and lets the others pass" {
        r function load replace "#!lua name=reads\nredis.register_function{function_name = 'reads', callback =\
            function() return 1 end, flags = {'no-writes'}}"
        set c [new_client]
        r client pause 100000 write
        assert_equal 1 [$c eval_ro {return 1} 0]
        assert_equal 1 [$c eval "#!lua flags=no-writes\nreturn 1" 0]
        assert_equal 1 [$c fcall reads 0]
        $c -send eval {return 'held'} 0
        assert_equal 1 [r eval_ro {return 1} 0]
        assert_equal "" [$c -available]
        r client unpause
        assert_equal held [$c -read]
    }

    test "quotes in the first line of a script and of a library" {
        foreach {line expected} {
            {#!"lua"} 1  {#!lua flags='no-writes'} 1  {#!lua "flags=no-writes"} 1  {#!lua flags="no-"writes} 1
            {#! lua} {ERR Unknown lua shebang option: lua}
            {#!lua flags=no-writes,} {ERR Unexpected flag in script shebang: }
            {#!lua flags=no-writes, allow-oom} {ERR Unexpected flag in script shebang: }
            {#!lua "flags=no-writes} {ERR Invalid engine in script shebang}
            {#!none} {ERR Could not find scripting engine 'none'}
        } {
            catch {r eval "$line\nreturn 1" 0} got
            assert_equal $expected $got $line
        }
        foreach {line expected} {
            {#!lua name="quoted"} quoted  {#!"lua" 'name=quoted'} quoted  {#!lua name="quo"ted} quoted
            {#! lua name=quoted} {ERR Invalid metadata value given: lua}
            {#! name=quoted} {ERR Engine '' not found}
            {#!lua name="quoted} {ERR Invalid library metadata}
        } {
            catch {r function load replace "$line\nredis.register_function('quoted', function() return 1 end)"} got
            assert_equal $expected $got $line
        }
        r function flush
    }

    test "DEBUG SET-DISABLE-DENY-SCRIPTS lets scripts call what they are denied, but no command of a connection" {
        set denied "*This Valkey command is not allowed from script*"
        assert_error_like $denied {r eval {return redis.call('debug', 'sleep', '0')} 0}
        r debug set-disable-deny-scripts 1
        assert_equal OK [r eval {return redis.call('debug', 'sleep', '0')} 0]
        assert_match "*cmd=eval*" [r eval {return redis.call('client', 'list')} 0]
        foreach command {
            multi {watch k} {subscribe c} {auth x} hello reset quit {eval {return 1} 0} {fcall f 0} discard
        } {
            assert_error_like $denied {r eval {return redis.call(unpack(ARGV))} 0 {*}$command}
        }
        r debug set-disable-deny-scripts 0
        assert_error_like $denied {r eval {return redis.call('client', 'list')} 0}
    }

    test "no command harms the server when a script may call it" {
        r debug set-disable-deny-scripts 1
        foreach command {
            monitor {psync ? -1} {replconf ack 1} {client setname x} {client no-evict on} {client no-touch on}
            {client tracking on} {client tracking on bcast} {client trackinginfo} {client getredir} {client caching yes}
            {client unblock 1} {client kill id 1} {client pause 0} {client unpause} {client capa redirect}
            {client reply on} {client import-source on} {client setinfo lib-name x} {client info} {client list}
            {client id} {role}
            {script kill} {script flush} {script debug no} {function flush} {function kill} {function list}
            {function stats} {acl whoami} {acl log} {acl setuser tmp on} {acl deluser tmp} {config resetstat}
            {config rewrite} {latency doctor}
            {module list} {unwatch} {discard} {exec} {failover} {debug reload} {slaveof no one} {blpop missing 0}
        } {
            catch {r eval {return redis.pcall(unpack(ARGV))} 0 {*}$command}
            reconnect
            assert_equal PONG [r ping] $command
        }
        r debug set-disable-deny-scripts 0
    }

    test "a command called with as many arguments as the stack holds gets its reply" {
        r del list
        assert_equal 7999 [r eval {
            local values = {}
            for i = 1, 7999 do values[i] = i end
            return redis.call('rpush', KEYS[1], unpack(values))
        } 1 list]
        assert_equal 7999 [r eval {
            local values = {}
            for i = 1, 7999 do values[i] = 'missing' end
            return #redis.call('mget', unpack(values))
        } 0]
        r del list
    }

    test "SORT of a set in a script is ordered even by a constant" {
        r del set
        r sadd set b a e c d aa
        assert_equal {a aa b c d e} [r eval {return redis.call('sort', KEYS[1], 'by', 'x')} 1 set]
        assert_equal {e d c} [r eval {return redis.call('sort_ro', KEYS[1], 'by', 'x', 'desc', 'limit', 0, 3)} 1 set]
    }

    test "the lua module is listed by HELLO, MODULE LIST and INFO" {
        set module {name lua ver 1 path lua args {}}
        assert_equal [list $module] [r module list]
        assert_equal [list $module] [dict get [r hello] modules]
        assert_match "name=lua,ver=1,*" [info_field modules module]
    }
}
