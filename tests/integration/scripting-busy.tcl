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
        $c -close
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
        $c -close
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
        assert_error $::busy {r script kill}
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
