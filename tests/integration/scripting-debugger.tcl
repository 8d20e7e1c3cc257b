# Debugging sessions: SCRIPT DEBUG, the debugger's commands and their lines, sessions in a forked process and in the
# server, and how sessions end.
# seconds: 3

# Starts a session; returns its client, and in `first` the lines with which the script stopped.
proc session {mode script args} {
    upvar first first
    set c [new_client]
    $c script debug $mode
    if {$args eq ""} {set args 0}
    set first [$c eval $script {*}$args]
    return $c
}
# Sends a command of the debugger; returns its lines.
proc debug {c args} {$c {*}$args}
# The lines of a command that ends the session, and then the reply to EVAL; the connection is closed.
proc ends {c args} {
    $c -send {*}$args
    set lines [$c -read]
    set reply [$c -readtyped]
    assert_closed $c
    $c -close
    return [list $lines $reply]
}
proc sessions {} {
    set count 0
    foreach line [split [string trim [r client list]] \n] {incr count [string match "* cmd=eval *" $line]}
    return $count
}

set program {local total = 0
for i = 1, 2 do
  total = total + i
end
local function double(x)
  local y = x * 2
  return y
end
total = double(total)
redis.call('set', KEYS[1], total)
redis.breakpoint()
redis.debug('total', total, {1, 'two', {k = false}})
return {total, ARGV[1]}}

start_server {overrides {busy-reply-threshold 5000} tags {scripting}} {
    test "a session stops at the first line and steps through the script" {
        set c [session yes $program 1 k a]
        assert_equal {{* Stopped at 1, stop reason = step over} {-> 1   local total = 0}} $first
        assert_equal {{* Stopped at 2, stop reason = step over} {-> 2   for i = 1, 2 do}} [debug $c step]
        assert_equal {{* Stopped at 3, stop reason = step over} {-> 3     total = total + i}} [debug $c s]
        assert_equal {{<value> total = 0} {<value> (for index) = 1} {<value> (for limit) = 2} {<value> (for step) = 1}\
            {<value> i = 1}} \
            [debug $c print]
        assert_equal {{* Stopped at 2, stop reason = step over} {-> 2   for i = 1, 2 do}} [debug $c next]
        assert_equal {{* Stopped at 3, stop reason = step over} {-> 3     total = total + i}} [debug $c n]
        assert_equal {{<value> 1}} [debug $c p total]
        assert_equal {{<value> {k; }}} [debug $c p KEYS]
        assert_equal {{<value> {a; }}} [debug $c print ARGV]
        assert_equal {{No such variable.}} [debug $c p nosuch]
    }

    test "breakpoints" {
        set c [session yes $program 1 k]
        assert_equal {{No breakpoints set. Use 'b <line>' to add one.}} [debug $c break]
        assert_equal {{   5   local function double(x)} {  #6     local y = x * 2} {   7     return y}} \
            [debug $c break 6]
        assert_equal {{-> 1   local total = 0} {  #2   for i = 1, 2 do} {   3     total = total + i}} [debug $c b 2]
        assert_equal {{2 breakpoints set:} {  #6     local y = x * 2} {  #2   for i = 1, 2 do}} [debug $c b]
        foreach wrong {2 14 1000000000000} {assert_equal {{Wrong line number.}} [debug $c b $wrong]}
        assert_equal {{Invalid argument:'x'}} [debug $c b x]
        foreach line {-3 -9223372036854775808} {
            assert_equal {{No breakpoint in the specified line.}} [debug $c b $line]
        }
        assert_equal {{* Stopped at 2, stop reason = break point} {->#2   for i = 1, 2 do}} [debug $c continue]
        assert_equal {{Breakpoint removed.}} [debug $c b -2]
        assert_equal {{* Stopped at 6, stop reason = break point} {->#6     local y = x * 2}} [debug $c c]
        assert_equal {{<value> x = 3}} [debug $c p]
        assert_equal {{<value> 3}} [debug $c p total]
        assert_equal {{In double:} {->#6     local y = x * 2} {From top level:} {   9   total = double(total)}} \
            [debug $c trace]
        assert_equal {{All breakpoints removed.}} [debug $c b 0]
        assert_equal {{* Stopped at 12, stop reason = server.breakpoint() called}\
            {-> 12  redis.debug('total', total, {1, 'two', {k = false}})}} \
            [debug $c c]
        $c -close
        set c [session yes [string repeat "local _ = 1\n" 70]]
        for {set i 1} {$i <= 64} {incr i} {assert_match *#$i* [debug $c b $i]}
        assert_equal {{Too many breakpoints set.}} [debug $c b 65]
    }

    test "the source" {
        set c [session yes "[string repeat "local _ = 1\n" 14]return 1\n\n\n"]
        for {set i 1} {$i <= 7} {incr i} {debug $c s}
        proc numbers {lines} {lmap line $lines {regexp -inline {\d+} $line}}
        assert_equal {3 4 5 6 7 8 9 10 11 12 13} [numbers [debug $c list]]
        assert_equal "-> 8   local _ = 1" [lindex [debug $c l] 5]
        assert_equal {1 2 3 4 5 6 7} [numbers [debug $c l 2]]
        assert_equal {3 4 5} [numbers [debug $c l 4 1]]
        assert_equal 4 [numbers [debug $c l 4 0]]
        assert_equal {} [debug $c l 100]
        assert_equal {3 4 5 6 7 8 9 10 11 12 13} [numbers [debug $c l -9]]
        assert_equal {1 2 3 4 5 6 7 8 9 10 11 12 13 14 15} [numbers [debug $c whole]]
        assert_equal 15 [llength [debug $c list 1 9223372036854775807]]
    }

    test "what the script calls is shown while it is stepped" {
        set c [session yes "redis.call('set', 'k', 'x y')\nredis.pcall('incr', 'k')\nredis.pcall('nosuch',\
            1)\nredis.pcall({})\nredis.call('get', 'k')\nreturn 1"]
        assert_equal {{<command> set k x y} {<reply> "+OK"}} [lrange [debug $c s] 0 1]
        assert_equal {{<command> incr k} {<reply> "-ERR value is not an integer or out of range"}\
            {<error> -ERR value is not an integer or out of range}} \
            [lrange [debug $c s] 0 2]
        assert_equal {{<command> nosuch 1} {<reply> "-ERR Unknown command called from script"}\
            {<error> Unknown command called from script}} \
            [lrange [debug $c s] 0 2]
        assert_equal {{<error> Command arguments must be strings or integers}} [lrange [debug $c s] 0 0]
        assert_equal {<endsession> :1} [ends $c continue]
    }

    test "commands and code within a session" {
        r del k l h
        set c [session yes "redis.setresp(3)\nreturn 1"]
        assert_equal {{<command> rpush l a b "c} {<reply> 3}} [debug $c redis rpush l a b "\"c"]
        assert_equal {{<command> lrange l 0 -1} {<reply> ["a","b","\"c"]}} [debug $c r lrange l 0 -1]
        assert_equal {{<command> set k a  b} {<reply> "+OK"}} [debug $c valkey set k "a\r\nb"]
        assert_equal {{<command> get k} {<reply> "a\r\nb"}} [debug $c v get k]
        assert_equal {{<command> get none} {<reply> NULL}} [debug $c server get none]
        assert_equal {{<command> auth x} {<reply> "-ERR This Valkey command is not allowed from script"}\
            {<error> This Valkey command is not allowed from script}} \
            [debug $c r auth x]
        debug $c s
        debug $c r hset h f v g w
        debug $c r zadd z 1.5 a
        debug $c r sadd s one
        assert_equal {<reply> {"f" => "v","g" => "w"}} [lindex [debug $c r hgetall h] 1]
        assert_equal {<reply> (double) 1.5} [lindex [debug $c r zscore z a] 1]
        assert_equal {<reply> ~("one")} [lindex [debug $c r smembers s] 1]
        assert_equal {<reply> (null)} [lindex [debug $c r get none] 1]
        assert_equal {{<retval> 2}} [debug $c eval 1 + 1]
        assert_equal {{<retval> {1; x; {[k]=true; }; }}} [debug $c e "local t = {1, 'x', {k = true}} return t"]
        assert_equal {{<retval> nil}} [debug $c e "local t = 1"]
        assert_equal {{<retval> v}} [debug $c e "redis.call('hget', 'h', 'f')"]
        assert_equal {{<error> ldb_eval:1: Script attempted to access nonexistent global variable 'a'}} [debug $c e a]
        assert_equal {{Error compiling code: ldb_eval:1: '=' expected near 'y'}} [debug $c e x y]
        assert_equal {{<error> ldb_eval:1: Attempt to modify a readonly table}} [debug $c e "redis.call = nil"]
        assert_equal {{<error> Unknown command called from script}} [debug $c e "redis.call('nosuch')"]
        foreach wrong {{step 1} eval server foo {p a b} m {l 1 2 3} {abort now} ""} {
            assert_equal {{<error> Unknown debugger command or wrong number of arguments.}} \
                [$c {*}[expr {$wrong eq "" ? [list ""] : $wrong}]]
        }
        assert_morethan [llength [debug $c help]] 15
    }

    test "values" {
        set c [session yes {local n, yes, no, half, big, huge = nil, true, false, 1.5, 1234567, 1e300
local list, holes, mixed, empty, nested = {1, 'b', {}}, {nil, 2}, {[1.5] = true}, {}, {a = {b = 1}}
local cycle = {}
cycle.me = cycle
local bytes = 'a\0b\r\nc\\"'
local long, f, shadow, shadow = ('x'):rep(300), function() end, 'outer', 'inner'
return 1}]
        for {set i 0} {$i < 6} {incr i} {debug $c s}
        foreach {name value} {n nil yes true no false half 1.5 big 1.23457e+06 huge 1e+300 list {{1; b; {}; }} holes\
            {{[2]=2; }} mixed {{[1.5]=true; }} empty {{}}
            nested {{[a]={[b]=1; }; }} bytes {a b  c\"} shadow inner} {
            assert_equal [list "<value> $value"] [debug $c p $name]
        }
        assert_equal "<value> [string repeat "{\[me\]="\
            9]{\[<max recursion level reached! Nested table?>\]=<max recursion level reached! Nested table?>; }[string\
            repeat "; }" 9]" \
            [lindex [debug $c p cycle] 0]
        assert_match {<value>  "function@0x*"} [lindex [debug $c p f] 0]
        assert_match "<retval> \{*=*; *" [lindex [debug $c e redis] 0] ;# the table behind the read-only one
    }

    test "maxlen" {
        set c [session yes "local long = ('x'):rep(300)\nreturn 1"]
        debug $c s
        assert_equal {{Current maxlen is 256}} [debug $c maxlen]
        assert_equal [list "<value> [string repeat x 248] ..." \
            "<hint> The above reply was trimmed. Use 'maxlen 0' to disable trimming."] [debug $c p long]
        assert_equal [list "<value> [string repeat x 248] ..."] [debug $c p long]
        assert_equal {{<value> replies are truncated at 60 bytes.}} [debug $c maxlen 10]
        debug $c r set k [string repeat y 100]
        assert_equal "<reply> \"[string repeat y 51] ..." [lindex [debug $c r get k] 1]
        assert_equal {{<value> replies are not truncated.}} [debug $c max 0]
        assert_equal [list "<value> [string repeat x 300]"] [debug $c p long]
        foreach wrong {-1 x 99999999999} {assert_equal {{<error> Invalid maxlen value.}} [debug $c maxlen $wrong]}
    }

    test "coroutines, callbacks and other chunks" {
        set c [session yes {local f = coroutine.wrap(function(a)
  local inside = a
  coroutine.yield(inside)
end)
f(7)
table.sort({2, 1}, function(x, y)
  return x < y end)
loadstring('local hidden = 1\nreturn hidden')()
return 1}]
        foreach line {3 7} {debug $c b $line}
        assert_match "* Stopped at 3,*" [lindex [debug $c c] 0]
        assert_equal {{<value> a = 7} {<value> inside = 7}} [debug $c p]
        assert_equal {{In top level:} {->#3     coroutine.yield(inside)} {From top level:} {   5   f(7)}} [debug $c t]
        assert_match "* Stopped at 7,*" [lindex [debug $c c] 0] ;# the line that creates the function
        assert_match "* Stopped at 7,*" [lindex [debug $c c] 0]
        assert_equal {{<value> x = 1} {<value> y = 2}} [debug $c p]
        debug $c b 0
        debug $c b 8
        assert_match "* Stopped at 8,*" [lindex [debug $c c] 0]
        debug $c b 0
        assert_match "* Stopped at 9,*" [lindex [debug $c s] 0]
    }

    test "redis.debug() shows its arguments, and the session ends with the reply" {
        set c [session yes $program 1 k a]
        debug $c c
        assert_equal [list {{<debug> line 12: total, 6, {1; two; {[k]=false; }; }} <endsession>} [list * :6 {$a}]] \
            [ends $c c]
        foreach {script reply} {{return redis.status_reply('FINE')} +FINE {return redis.error_reply('MY own')}\
            {-MY own} {error('boom')} {-ERR user_script:1: boom script: on @user_script:1.}
            {local t = {} t.x.y = 1}\
                {-ERR user_script:1: attempt to index field 'x' (a nil value) script: on @user_script:1.}} {
            set c [session yes $script]
            assert_equal [list <endsession> $reply] [ends $c c]
        }
    }

    test "a session in a forked process changes nothing, and the server continues meanwhile" {
        r flushall
        r set k before
        set listener [new_client]
        $listener subscribe ch
        set c [session yes "redis.call('set', 'k', 'changed')\nredis.call('flushall')\nredis.call('publish', 'ch',\
            'm')\nreturn redis.call('dbsize')"]
        assert_equal 1 [sessions]
        debug $c s
        assert_equal before [r get k]
        r set k2 v
        assert_equal {{<command> get k} {<reply> "changed"}} [debug $c r get k]
        assert_equal {{<command> exists k2} {<reply> 0}} [debug $c r exists k2]
        debug $c s
        assert_equal {<reply> 0} [lindex [debug $c r dbsize] 1]
        debug $c s
        assert_equal {<endsession> :0} [ends $c c]
        assert_equal {before v} [r mget k k2]
        r publish ch after
        assert_equal {message ch after} [$listener -read]
        wait_for_condition 20000 {[sessions] == 0} "the session is still there"
    }

    test "sessions run beside each other and beside a snapshot" {
        foreach n {1 2} {
            r set k $n
            set s$n [session yes "local x = 1\nreturn redis.call('get', 'k')"]
        }
        r set k 3
        assert_equal 2 [sessions]
        assert_equal "Background saving started" [r bgsave]
        wait_for_condition 20000 {[info_field persistence rdb_bgsave_in_progress] == 0} "the snapshot does not end"
        assert_equal ok [info_field persistence rdb_last_bgsave_status]
        assert_equal {<endsession> {$1}} [ends $s1 c]
        assert_equal {<endsession> {$2}} [ends $s2 c]
    }

    test "requests that arrive together" {
        foreach mode {yes sync} {
            set c [new_client]
            $c script debug $mode
            $c -write [resp_command eval "local a = 1\nreturn 5" 0][resp_command p a][resp_command s][resp_command p\
                a][resp_command s]
            assert_equal "* Stopped at 1, stop reason = step over" [lindex [$c -read] 0]
            assert_equal {{No such variable.}} [$c -read]
            assert_equal "* Stopped at 2, stop reason = step over" [lindex [$c -read] 0]
            assert_equal {{<value> 1}} [$c -read]
            assert_equal {<endsession>} [$c -read]
            assert_equal 5 [$c -read]
            assert_closed $c
        }
    }

    test "abort ends the script, whatever it catches" {
        foreach mode {yes sync} {
            foreach script {"return 1" "pcall(function()\nlocal a = 1 end)\nreturn 1"\
                "local f = coroutine.wrap(function()\nlocal a = 1 end)\npcall(f)\nreturn 1"} {
                set c [session $mode $script]
                if {[string match pcall* $script] || [string match *wrap* $script]} {
                    debug $c b 2
                    debug $c c
                }
                lassign [ends $c abort] lines reply
                assert_equal <endsession> $lines
                assert_match "-ERR *script aborted for user request script: on @user_script:*" $reply
            }
        }
        assert_equal 1 [r eval {return 1} 0]
    }

    test "errors before the script runs end the session" {
        foreach mode {yes sync} {
            foreach {arguments reply} \
                {{"x = = 1" 0} {-ERR Error compiling script (new function): user_script:1: unexpected symbol near '='}
                {"return 1" x} {-ERR value is not an integer or out of range} {"return 1" 2 a}\
                    {-ERR Number of keys can't be greater than number of args}} {
                set c [new_client]
                $c script debug $mode
                $c -send eval {*}$arguments
                assert_equal <endsession> [$c -read]
                assert_equal $reply [$c -readtyped]
                assert_closed $c
            }
        }
    }

    test "EVAL_RO may be debugged, EVALSHA, functions and transactions not" {
        set c [new_client]
        $c script debug yes
        assert_error "ERR Please use EVAL instead of EVALSHA for debugging" {$c evalsha [string repeat 0 40] 0}
        $c multi
        $c eval {return 1} 0
        assert_match "*A script cannot be debugged in a transaction*" [$c exec]
        $c multi
        $c script debug no
        assert_match "*SCRIPT DEBUG must be called outside a pipeline*" [$c exec]
        r function load replace "#!lua name=lib\nredis.register_function('f', function() return redis.breakpoint and\
            1 or 2 end)"
        assert_equal 2 [$c fcall f 0]
        $c eval_ro "redis.call('set', 'k', 'v')\nreturn 1" 0
        lassign [ends $c c] lines reply
        assert_match "-ERR Write commands are not allowed from read-only scripts.*" $reply
        r function flush
    }

    test "SCRIPT DEBUG NO and RESET end the mode" {
        foreach {mode answer} {no OK yes OK sync OK} {assert_equal $answer [r script debug $mode]}
        assert_error "ERR Use SCRIPT DEBUG YES/SYNC/NO" {r script debug maybe}
        assert_error "ERR No scripting engine found with name 'js' to enable debug" {r script debug yes js}
        r script debug no
        assert_typed nil\$ eval {return redis.breakpoint()} 0
        assert_typed nil\$ eval {return redis.debug(1)} 0
        r script debug yes LUA
        r reset
        assert_equal 1 [r eval {return 1} 0]
    }

    test "a session in the server keeps its changes, and other clients wait meanwhile" {
        r set k before
        set listener [new_client]
        $listener subscribe ch
        set reader [new_client]
        set late [new_client]
        set c [session sync "redis.call('set', 'k', 'changed')\nredis.call('publish', 'ch', 'm')\nreturn\
            redis.call('get', 'k')"]
        $reader -write [resp_command get k][resp_command set k later]
        debug $c s
        debug $c s
        $late -send multi
        assert_error_like "UNKILLABLE *" {r script kill}
        assert_equal {<endsession> {$changed}} [ends $c c]
        assert_equal {changed OK} [list [$reader -read] [$reader -read]]
        assert_equal OK [$late -read]
        assert_equal later [r get k]
        assert_equal {message ch m} [$listener -read]
    }

    test "SCRIPT KILL ends a session in the server" {
        foreach script {"local a = 1\nreturn a" "pcall(function()\nlocal a = 1 end)\nreturn 1"} {
            set c [session sync $script]
            assert_typed +OK script kill
            assert_equal <endsession> [$c -read]
            assert_error_like "ERR Script killed by user with SCRIPT KILL.*" {$c -read}
            assert_closed $c
        }
    }

    test "a client that goes away: the forked process ends, the script in the server runs on" {
        set c [session yes "local a = 1\nreturn 1"]
        $c -close
        wait_for_condition 20000 {[sessions] == 0} "the session is still there"
        r set k before
        set c [session sync "local a = 1\nredis.call('set', 'k', 'changed')"]
        debug $c s
        $c -close
        wait_for_condition 20000 {![catch {r get k} value] && $value eq "changed"} "the script does not end"
    }

    test "CLIENT KILL ends a session" {
        set c [new_client]
        $c script debug yes
        set id [$c client id]
        $c eval "local a = 1\nreturn 1" 0
        set from [log_size]
        assert_equal 1 [r client kill id $id]
        assert_closed $c
        wait_for_log "Killing running debugging child" $from 20000
    }

    test "a session whose process is killed ends with an error" {
        set from [log_size]
        set c [session yes "local a = 1\nreturn 1"]
        regexp {(\d+):C [^\n]*forked for debugging} [log_text $from] -> pid
        exec kill -9 $pid
        assert_equal <endsession> [$c -read]
        assert_error "ERR The process of the debugging session has failed" {$c -read}
        assert_closed $c
        assert_equal PONG [r ping]
    }

    test "evaluated code that stops in coroutines nests only so deep" {
        set script "for i = 1, 1000 do ARGV\[i\] = coroutine.wrap(function()\nlocal x = 1\nreturn x end) end\nlocal\
            ready = 1\nreturn 5"
        foreach mode {yes sync} {
            set c [session $mode $script]
            debug $c break 4
            debug $c continue
            debug $c break 2
            for {set depth 1} {$depth <= 1000} {incr depth} {
                set lines [debug $c eval "ARGV\[$depth\]()"]
                if {[lindex $lines 0] ne "* Stopped at 2, stop reason = break point"} break
            }
            assert_range $depth 10 200
            assert_match {*too many syntax levels*} $lines
            $c -close
            wait_for_condition 10000 {![catch {r ping}]}
        }
    }

    test "an endless loop stops after busy-reply-threshold" {
        r config set busy-reply-threshold 50
        foreach mode {yes sync} {
            set c [session $mode "local n = 0\nwhile true do\n  n = n + 1 end"]
            assert_match "* Stopped at ?, stop reason = running for longer than busy-reply-threshold" \
                [lindex [debug $c c] 0]
            assert_match "<value> *" [lindex [debug $c p n] 0]
            foreach code {{while true do end} {while true do pcall(function() while true do end end) end}} {
                assert_equal {{<error> the code ran for longer than busy-reply-threshold}} [debug $c eval $code]
            }
            lassign [ends $c abort] lines reply
            assert_match "-ERR script aborted*" $reply
        }
        r config set busy-reply-threshold 5000
    }

    test "large replies, many lines and large requests" {
        foreach mode {yes sync} {
            set c [session $mode "for i = 1, 10000 do redis.debug(('x'):rep(2000)) end\nreturn ('y'):rep(3000000)"]
            debug $c b 2
            set lines [debug $c c]
            assert_match "<hint> * more lines were dropped." [lindex $lines end]
            assert_range [llength $lines] 1000 9000
            assert_equal {{<retval> 300000}} [debug $c e "#'[string repeat z 300000]'"]
            assert_equal {{<error> Unknown debugger command or wrong number of arguments.}} \
                [debug $c [string repeat q 2000000]]
            lassign [ends $c c] lines reply
            assert_equal 3000001 [string length $reply]
        }
    }

    test "what a session holds is memory of the client" {
        set c [new_client]
        set id [$c client id]
        $c script debug yes
        regexp {tot-mem=(\d+)} [r client list id $id] -> before
        $c eval {return #ARGV[1]} 0 [string repeat x 3000000]
        regexp {tot-mem=(\d+)} [r client list id $id] -> with
        assert_morethan [expr {$with - $before}] 3000000
        lassign [ends $c continue] lines reply
        assert_equal :3000000 $reply
    }

    test "an idle session ends after the timeout of clients" {
        r config set timeout 1
        set c [session yes "local a = 1\nreturn 1"]
        assert_closed $c 60000
        reconnect
        r config set timeout 0
        wait_for_condition 20000 {[sessions] == 0} "the session is still there"
    }
}

start_server {overrides {appendonly yes appendfsync always} tags {scripting}} {
    test "the changes of a session in the server are propagated as one transaction, those of a forked one not" {
        set script "redis.call('set', 'a', KEYS\[1])\nredis.call('set', 'b', KEYS\[1])\nreturn 1"
        assert_equal {} [aof_appended {
            set c [session yes $script 1 v]
            for {set i 0} {$i < 2} {incr i} {debug $c s}
            assert_equal {<endsession> :1} [ends $c c]
        }]
        assert_equal {MULTI {SELECT 0} {set a v} {set b v} EXEC} [aof_appended {
            set c [session sync $script 1 v]
            assert_equal {<endsession> :1} [ends $c c]
        }]
    }
}
