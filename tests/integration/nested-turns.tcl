# A script that runs the event loop (server/nested_turn.h): replies that are sent meanwhile, and data that must not
# change. seconds: 8

# Lua code that runs for about the given milliseconds. It cannot be stopped, and its clock is frozen. The tests do not
# depend on its real duration.
proc spin {ms} {return "local t = 0 while t < [expr {$ms * 60000}] do t = t + 1 end "}
# Requests that clients send in the body are executed in one turn of the loop, usually in the order of the body.
proc in_one_turn {body} {
    set sleeper [new_client]
    $sleeper -send debug sleep 0.3
    uplevel 1 $body
    catch {$sleeper -read} ;# BUSY if the script was first
    $sleeper -close
}
proc is_busy {c} {expr {[catch {$c ping} why] && [string match BUSY* $why]}}

foreach policy {always everysec} {
    foreach threads {1 3} {
        set options [list appendonly yes appendfsync $policy io-threads $threads busy-reply-threshold 1]
        start_server [list overrides $options tags {scripting aof}] {
            test "appendfsync $policy, io-threads $threads: a push that waits leaves before a busy script's reply" {
                set a [new_client -resp 3]
                set other [new_client]
                $a -send subscribe ch
                assert_equal {subscribe ch 1} [$a -push]
                in_one_turn {
                    $other -send publish ch [string repeat m 2000]
                    $a -send eval "[spin 100] return redis.call('incr', 'n')" 0
                }
                assert_equal 1 [$a -read]
                if {[catch {$other -read} reply]} {
                    assert_match "BUSY *" $reply ;# the threads passed its request on later
                } else {
                    assert_equal message [lindex [$a -push] 0]
                }
                wait_for_condition 20000 {![is_busy r]}
                assert_equal 1 [r get n]
            }

            test "appendfsync $policy, io-threads $threads: a script that has written delays no earlier reply" {
                set writer [new_client]
                set script [new_client]
                set witness [new_client]
                set seen 0
                for {set attempt 1} {!$seen && $attempt <= 20} {incr attempt} {
                    in_one_turn {
                        for {set i 0} {$i < 5} {incr i} {$writer -send set k$i $i}
                        $script -send eval "redis.call('incr', 'n') [spin 800] return redis.call('incr', 'n')" 0
                    }
                    set written [expr {![catch {$writer -read}]}]
                    set seen [expr {$written && [is_busy $witness]}] ;# otherwise the script was first, or has ended
                    for {set i 1} {$i < 5} {incr i} {catch {$writer -read}}
                    set count [$script -read]
                }
                assert_equal 1 $seen
                set digest [r debug digest]
                r debug loadaof
                assert_equal $count [r get n]
                assert_equal $digest [r debug digest]
            }

            test "appendfsync $policy, io-threads $threads: a client that is pushed to, writes and runs busy scripts" {
                set clients {}
                foreach _ {1 2 3} {
                    set c [new_client -resp 3]
                    $c -send subscribe ch
                    $c -push
                    $c client tracking on bcast
                    lappend clients $c
                }
                for {set round 0} {$round < 15} {incr round} {
                    foreach c $clients {
                        $c -send set y $round
                        $c -send get x
                        $c -send eval "[spin 4] return ARGV\[1\]" 0 $c:$round
                        $c -send publish ch $round
                        $c -send echo $c:$round
                    }
                    catch {r set x $round}
                    foreach c $clients {
                        foreach expected [list OK * $c:$round * $c:$round] {
                            if {[catch {$c -read} reply]} {
                                assert_match "BUSY *" $reply
                            } else {
                                assert_match $expected $reply
                            }
                        }
                    }
                }
            }

            test "appendfsync $policy, io-threads $threads: the lines of a session come behind earlier replies" {
                wait_for_condition 20000 {![is_busy r]}
                for {set i 1} {$i <= 10} {incr i} {
                    set c [new_client]
                    $c -send script debug sync
                    $c -send set x $i
                    $c -send eval "local a = 1\nredis.call('incr', 'x')\nreturn redis.call('get', 'x')" 0
                    foreach command {s s c} {$c -send $command}
                    assert_equal OK [$c -read]
                    assert_equal OK [$c -read]
                    assert_match "*Stopped at 1*" [$c -read]
                    assert_match "*Stopped at 2*" [$c -read]
                    assert_match "*incr x*Stopped at 3*" [$c -read]
                    assert_match "*<endsession>*" [$c -read]
                    assert_equal [expr {$i + 1}] [$c -read]
                    assert_equal 1 [$c -eof 5000]
                    $c -close
                }
            }

            test "appendfsync $policy, io-threads $threads: a debugging session ends when its client goes" {
                foreach left {0 3 70 300} {
                    foreach before {{} {set x 1} {client tracking on}} {
                        set c [new_client]
                        $c -send script debug sync
                        if {[llength $before]} {$c -send {*}$before}
                        $c -send eval "local a = 1\nredis.call('incr', 'n')\nreturn 1" 0
                        for {set i 0} {$i < $left} {incr i} {$c -send v set q $i}
                        if {$left != 3} {catch {$c -read}} ;# the session may or may not have begun
                        $c -close
                        wait_for_condition 20000 {![catch {r ping} pong] && $pong eq "PONG"} {
                            fail "the session did not end: $pong"
                        }
                    }
                }
                # A request that was on its way may still begin a session.
                wait_for_condition 20000 {
                    ![catch {r client list} list] && [llength [split [string trim $list] \n]] == 1
                } {
                    fail "clients remain: $list"
                }
            }
        }
    }
}

start_server {overrides {busy-reply-threshold 1 io-threads 3} tags {scripting}} {
    test "a debugging session ends when its client goes, without an append-only file" {
        foreach left {0 3 70 300} {
            set c [new_client]
            $c -send script debug sync
            $c -send eval "local a = 1\nreturn 1" 0
            for {set i 0} {$i < $left} {incr i} {$c -send v set q $i}
            catch {$c -read}
            $c -close
            wait_for_condition 20000 {![catch {r ping} pong] && $pong eq "PONG"} {fail "the session did not end: $pong"}
        }
    }

    test "requests of other clients evict no key under a script" {
        r flushall
        r config set maxmemory-policy allkeys-lru
        r config set maxmemory [expr {[info_field memory used_memory] + 6000000}]
        set c [new_client]
        set other [new_client]
        $c -send eval "for i = 1, 300 do redis.call('set', 'k' .. i, string.rep('x', 100000)) end\
            local before = redis.call('dbsize') [spin 300] return {before, redis.call('dbsize')}" 0
        wait_for_condition 20000 {[is_busy $other]}
        while {[is_busy $other]} {
            catch {$other get nothing}
            catch {$other set k v}
        }
        assert_equal {300 300} [$c -read]
        r config set maxmemory 0
    }

    test "maxmemory-clients closes other clients under a script, and not its caller" {
        set c [new_client]
        set large [new_client]
        $large -write "*2\r\n\$3\r\nGET\r\n\$3000000\r\n[string repeat x 1000000]"
        r config set maxmemory-clients 2mb
        $c -send eval "[spin 1000] return #ARGV\[1\]" 0 [string repeat a 1500000]
        set other [new_client]
        wait_for_condition 20000 {[is_busy $other]}
        catch {$large -write [string repeat x 1900000]}
        assert_equal 1 [$large -eof 20000]
        assert_equal 1500000 [$c -read]
        r config set maxmemory-clients 0
    }
}
