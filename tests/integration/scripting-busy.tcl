# Scripts that run longer than busy-reply-threshold: replies to other clients, and the end of the script. seconds: 5

# Starts a script on a new connection and waits until it is busy.
proc busy {script {command eval}} {
    set c [new_client]
    $c -send $command $script 0
    set other [new_client]
    wait_for_condition 20000 {[catch {$other ping} why] && [string match BUSY* $why]} "the script is not busy"
    $other -close
    return $c
}
set ::busy "BUSY Valkey is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."

start_server {overrides {busy-reply-threshold 10} tags {scripting}} {
    test "extended-redis-compatibility: the name of Redis in BUSY, HELLO, INFO and LOLWUT" {
        foreach {value name Name mode} \
            {yes redis Redis redis_mode no valkey Valkey server_mode yes redis Redis redis_mode no valkey Valkey\
            server_mode} {
            r config set extended-redis-compatibility $value
            set hello [r hello 2]
            assert_equal $name [dict get $hello server]
            set info [info_dict [r info server]]
            assert_equal [dict get $info [expr {$value ? "redis_version" : "valkey_version"}]] [dict get $hello version]
            assert_equal standalone [dict get $info $mode]
            assert_match "*$Name ver. [dict get $hello version]\n*" [r lolwut version 5 1 1 1]
            set c [busy {while true do end}]
            assert_error "BUSY $Name is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE." \
                {r get k}
            r script kill
            catch {$c -read}
            $c -close
        }
    }

    test "a busy script lets other clients in, refuses their commands, and SCRIPT KILL ends it" {
        set c [busy {while true do end}]
        foreach command {ping {get k} {info server} {config get maxmemory} {eval "return 1" 0} {function kill}\
            {shutdown save}} {
            assert_error $::busy {r {*}$command}
        }
        assert_typed +OK script kill
        assert_error "ERR Script killed by user with SCRIPT KILL. script: on @user_script:1." {$c -read}
        assert_equal PONG [r ping]
        assert_equal PONG [$c ping]
        assert_error "NOTBUSY No scripts in execution right now." {r script kill}
    }

    test "a busy function is named as one, and only FUNCTION KILL ends it" {
        set text [string map {SCRIPT FUNCTION} $::busy]
        r function load replace "#!lua name=endless\nserver.register_function{function_name='endless',\
            callback=function() while true do end end, flags={'no-writes'}}"
        foreach command {fcall fcall_ro} {
            set c [busy endless $command]
            assert_error $text {r ping}
            assert_error $text {r script kill}
            assert_typed +OK function kill
            assert_error_like "ERR Script killed by user with FUNCTION KILL.*" {$c -read}
            $c -close
        }
    }

    test "TIME is constant in a script and advances once it is busy, but no key expires in it" {
        assert_equal 1 [r eval {local a = redis.call('time') for i = 1, 10000 do end local b = redis.call('time')
            return a[1] == b[1] and a[2] == b[2]} 0]
        r set k v px 200
        set waits {
            local function ms() local t = redis.call('time') return t[1] * 1000 + math.floor(t[2] / 1000) end
            local begin, left = ms(), redis.call('pttl', 'k')
            while ms() - begin < 500 do end
            redis.call('set', 'written', 1)
            while ms() - begin < 700 do end
            return {redis.call('get', 'k'), redis.call('pttl', 'k') == left and 1 or 0}}
        assert_equal {v 1} [r eval $waits 0]
        assert_equal "" [r get k]
    }

    test "COMMANDLOG has the large replies to commands of scripts" -needs {version 8.1} {
        r config set commandlog-reply-larger-than 1000
        r commandlog reset large-reply
        r set big [string repeat x 2000]
        r eval {redis.call('get', 'big') redis.call('set', 'big', 'y') return redis.call('get', 'big')} 0
        assert_equal {{get big}} [lmap entry [r commandlog get 10 large-reply] {lindex $entry 3}]
        r config set commandlog-reply-larger-than 1048576
    }

    test "a script's command is refused for want of memory, then for the rights, then as a write of EVAL_RO" {
        set readonly "ERR Write commands are not allowed from read-only scripts.*"
        set script {return redis.call('set', 'a', 'b')}
        r config set maxmemory 1
        assert_error_like "OOM *" {r eval_ro $script 0}
        assert_error_like $readonly {r eval_ro {return redis.call('del', 'a')} 0}
        r config set maxmemory 0
        r acl setuser default -set
        assert_error_like "ERR ACL failure*" {r eval_ro $script 0}
        r acl setuser default +set
        assert_error_like $readonly {r eval_ro $script 0}
    }

    test "pcall does not keep a killed script alive" {
        set c [busy {while true do pcall(function() while true do end end) end}]
        r script kill
        assert_error_like "ERR Script killed by user*" {$c -read}
        set c [busy {local f = coroutine.wrap(function() while true do end end) f()}]
        r script kill
        assert_error_like "ERR *Script killed by user*" {$c -read}
        assert_equal 1 [r eval {return 1} 0]
    }

    test "a script that has written is not killed" {
        set c [busy {redis.call('set', 'written', 1)
            while redis.call('exists', 'never') == 0 do if redis.call('incr', 'turns') == 3000000 then \
                return 'end' end end}]
        assert_error_like "UNKILLABLE *" {r script kill}
        assert_error_like "UNKILLABLE *" {r function kill}
        assert_equal "end" [$c -read]
        assert_equal 3000000 [r get turns]
    }

    test "requests that a client sends while its own script is busy are executed afterwards, in order" {
        set c [busy {while true do end}]
        $c -send set after 1
        $c -send get after
        r script kill
        assert_error_like "ERR Script killed*" {$c -read}
        assert_equal OK [$c -read]
        assert_equal 1 [$c -read]
    }

    test "a client may leave while its script is busy" {
        set c [busy {while true do end}]
        $c -close
        r script kill
        wait_for_condition 5000 {![catch {r ping}]} "the server stays busy"
    }

    test "keys do not expire while a script runs" {
        r set k v px 1
        set c [busy {redis.call('get', 'k') local n = 0 while true do n = n + 1 end}]
        r script kill
        catch {$c -read}
        wait_for_condition 5000 {[r get k] eq ""} "the key stays"
    }

    test "a transaction may be opened and discarded while a script is busy" {
        set c [busy {while true do end}]
        assert_typed +OK multi
        assert_error $::busy {r get k}
        assert_error "EXECABORT Transaction discarded because of: $::busy" {r exec}
        r script kill
        catch {$c -read}
    }

    test "FUNCTION KILL ends a function, and FUNCTION STATS shows it" {
        r function load replace "#!lua name=slow\nredis.register_function('spin', function() while true do end end)"
        set c [busy spin fcall]
        set stats [r function stats]
        assert_equal spin [dict get $stats running_script name]
        assert_equal {fcall spin 0} [dict get $stats running_script command]
        assert_morethan [dict get $stats running_script duration_ms] 9
        assert_error [string map {SCRIPT FUNCTION} $::busy] {r script kill}
        assert_typed +OK function kill
        assert_error_like "ERR Script killed by user with FUNCTION KILL.*" {$c -read}
        assert_equal "" [dict get [r function stats] running_script]
    }

    test "busy-reply-threshold 0: a script is never busy" {
        r config set busy-reply-threshold 0
        assert_equal 1 [r eval {for i = 1, 20000000 do end return 1} 0]
        r config set lua-time-limit 10
        assert_equal {busy-reply-threshold 10} [r config get busy-reply-threshold]
    }
}

start_server {overrides {busy-reply-threshold 10} tags {scripting}} {
    test "SHUTDOWN NOSAVE ends the server while a script that has written is busy" {
        set c [busy {redis.call('set', 'x', 1) while true do end}]
        expect_server_exit
        catch {r shutdown nosave}
        assert_closed $c 10000
    }
}

start_server {overrides {busy-reply-threshold 10} tags {scripting}} {
    test "SIGTERM waits for a busy script, and SCRIPT KILL lets the server end" {
        set pid [srv pid]
        set c [busy {while true do end}]
        expect_server_exit
        kill_process TERM $pid
        assert_error $::busy {r ping}
        assert [process_alive $pid]
        assert_typed +OK script kill
        wait_for_condition 20000 {![process_alive $pid]}
    }
}

start_server {tags {scripting}} {
    test "the garbage of scripts and functions evicts no key and refuses no write" {
        r function load "#!lua name=large\nserver.register_function('large', function()\
            local s = string.rep('x', 20000000) return #s end)"
        r debug populate 20000 key 20
        set used [info_field memory used_memory]
        foreach {policy} {allkeys-lru noeviction} {
            r config set maxmemory-policy $policy maxmemory [expr {$used + 4000000}]
            foreach call {{eval {local s = string.rep('x', 20000000) return #s} 0} {fcall large 0}
                {eval {local t = {} for i = 1, 200000 do t[i] = i .. 'x' end return #t} 0}} {
                r {*}$call
                for {set i 0} {$i < 10} {incr i} {r set written $i}
                assert_equal 20001 [r dbsize]
            }
        }
        assert_equal 0 [info_field stats evicted_keys]
        r config set maxmemory 0
    }

    test "the garbage of scripts is collected when no script runs" -needs {ours 1} {
        wait_for_condition 40000 {[info_field memory used_memory_vm_total] < 10000000}
    }
}

start_faulty_server {save "3600 1"} {
    test "a failed save refuses PING of clients, and not that of scripts" {
        r set k v
        faults "write */temp-*.rdb fail ENOSPC"
        r bgsave
        wait_for_condition 20000 {[info_field persistence rdb_last_bgsave_status] eq "err"}
        assert_error_like "MISCONF *" {r ping}
        assert_equal PONG [r eval {return redis.call('ping')} 0]
        assert_error_like "MISCONF *" {r eval {return redis.call('set', 'k', 'w')} 0}
        faults
    }
}
