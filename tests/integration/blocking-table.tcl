# Properties of all commands that wait for keys; blocking.tcl tests properties of single commands. Each command is a
# row:
#
#   waits   the command: %t is replaced by its timeout; second: the timeout for one second
#   given   the data before it, with nothing to serve it
#   wakes   the command that serves it, and gives: its reply then; gives3 in RESP3 if that differs
#   none    the reply after the timeout, none3 in RESP3; at_once: the reply where nothing may wait, if that differs
#   gone    the reply when the key is deleted (if `given` created it), retyped: when it becomes a string; default: the
#           client continues to wait
# seconds: 4

set ::waiters {
    blpop {waits {blpop k %t} second 1 wakes {rpush k v} gives {* {$k} {$v}} none nil* none3 _}
    brpop {waits {brpop other k %t} second 1 wakes {rpush k v} gives {* {$k} {$v}} none nil* none3 _}
    blmove {waits {blmove k d left right %t} second 1 wakes {rpush k v} gives {$v} none nil* none3 _ at_once nil$}
    brpoplpush {waits {brpoplpush k d %t} second 1 wakes {rpush k v} gives {$v} none nil* none3 _ at_once nil$}
    blmpop {waits {blmpop %t 2 other k left} second 1 wakes {rpush k v} gives {* {$k} {* {$v}}} none nil* none3 _}
    bzpopmin {waits {bzpopmin k %t} second 1 wakes {zadd k 1 v} gives {* {$k} {$v} {$1}} gives3\
        {* {$k} {$v} ,1} none nil* none3 _}
    bzpopmax {waits {bzpopmax other k %t} second 1 wakes {zadd k 1 v} gives {* {$k} {$v} {$1}} gives3\
        {* {$k} {$v} ,1} none nil* none3 _}
    bzmpop {
        waits {bzmpop %t 1 k max} second 1 wakes {zadd k 1 v}
        gives {* {$k} {* {* {$v} {$1}}}} gives3 {* {$k} {* {* {$v} ,1}}} none nil* none3 _
    }
    xread {
        waits {xread block %t streams k $} second 1000 wakes {xadd k 1-1 f v}
        gives {* {* {$k} {* {* {$1-1} {* {$f} {$v}}}}}} gives3 {% {$k} {* {* {$1-1} {* {$f} {$v}}}}} none nil* none3 _
    }
    xreadgroup {
        given {xgroup create k g $ mkstream}
        waits {xreadgroup group g c block %t streams k >} second 1000 wakes {xadd k 1-1 f v}
        gives {* {* {$k} {* {* {$1-1} {* {$f} {$v}}}}}} gives3 {% {$k} {* {* {$1-1} {* {$f} {$v}}}}} none nil* none3 _
        gone "-NOGROUP No such key 'k' or consumer group 'g' in XREADGROUP with GROUP option"
        retyped "-WRONGTYPE Operation against a key holding the wrong kind of value"
    }
}

proc waiter_command {row seconds} {
    lmap word [dict get $row waits] \
        {expr {$word ne "%t" ? $word : [dict get $row second] == 1 ? $seconds : round($seconds *\
        [dict get $row second])}}
}
proc waiter_prepare {row} {
    r flushall
    if {[dict exists $row given]} {r {*}[dict get $row given]}
}
# Starts a client that waits with the row's command.
proc waiter_start {row {protocol 2}} {
    set c [new_client -resp $protocol]
    $c -send {*}[waiter_command $row 0]
    wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
    return $c
}
proc assert_waits {client} {
    assert_morethan [info_field clients blocked_clients] 0
    assert_equal "" [$client -available]
}
proc assert_served {row client {protocol 2}} {
    set want [dict get $row [expr {$protocol == 3 && [dict exists $row gives3] ? "gives3" : "gives"}]]
    assert_equal [typed_form $want] [$client -readtyped]
}
# The effect of a change that does not serve a waiting client: an error, or the client continues to wait and is served
# later.
proc assert_unserved {row client name undo} {
    if {[dict exists $row $name]} {
        assert_equal [dict get $row $name] [$client -readtyped]
    } else {
        assert_waits $client
        foreach command $undo {r {*}$command}
        r {*}[dict get $row wakes]
        assert_served $row $client
    }
}

start_server {tags {blocking}} {
    test "every command that waits for keys has a row" {
        set waiting {}
        foreach info [r command] {
            if {"blocking" in [lindex $info 2] && [lindex $info 8] ne ""} {lappend waiting [lindex $info 0]}
        }
        foreach name $waiting {assert {[dict exists $::waiters $name]} $name}
    }

    dict for {name row} $::waiters {
        foreach protocol {2 3} {
            test "[string toupper $name] in RESP$protocol: waits until it is served, or for a fraction of a second" \
                -needs [list command $name] {
                waiter_prepare $row
                set c [waiter_start $row $protocol]
                r {*}[dict get $row wakes]
                assert_served $row $c $protocol
                waiter_prepare $row
                set from [clock milliseconds]
                assert_reply $c [dict get $row [expr {$protocol == 3 ? "none3" : "none"}]] \
                    {*}[waiter_command $row 0.035]
                assert_range [expr {[clock milliseconds] - $from}] 34 30000
                assert_equal 0 [info_field clients blocked_clients]
            }
        }

        test "[string toupper $name]: within a transaction it does not wait" -needs [list command $name] {
            waiter_prepare $row
            foreach command [list multi [waiter_command $row 0] [dict get $row wakes] [waiter_command $row 0]] {
                r {*}$command
            }
            set at_once [dict get $row [expr {[dict exists $row at_once] ? "at_once" : "none"}]]
            set replies [r -typed exec]
            assert_equal $at_once [lindex $replies 1]
            # `$`, the end of the stream, is after the entries that were added within the transaction.
            if {$name ne "xread"} {assert_equal [typed_form [dict get $row gives]] [lindex $replies 3]}
        }

        test "[string toupper $name]: CLIENT UNBLOCK" -needs [list command $name] {
            waiter_prepare $row
            set c [waiter_start $row]
            set id [dict get [client_fields [lsearch -inline -glob [split [r client list] \n] "*cmd=$name *"]] id]
            assert_equal 1 [r client unblock $id]
            assert_equal [dict get $row none] [$c -readtyped]
            $c -send {*}[waiter_command $row 0]
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            assert_equal 1 [r client unblock $id error]
            assert_error "UNBLOCKED client unblocked via CLIENT UNBLOCK" {$c -read}
            assert_equal 0 [r client unblock $id]
            assert_equal PONG [$c ping]
            r {*}[dict get $row wakes]
            assert_equal 1 [r exists k]
        }

        test "[string toupper $name]: a client that is killed or goes takes nothing" -needs [list command $name] {
            foreach how {kill close} {
                waiter_prepare $row
                set c [waiter_start $row]
                if {$how eq "kill"} {
                    assert_equal 1 [r client kill id \
                        [dict get [client_fields [lsearch -inline -glob [split [r client list] \n] "*cmd=$name *"]] id]]
                    assert_closed $c
                }
                $c -close
                wait_for_condition 5000 {[info_field clients blocked_clients] == 0}
                r {*}[dict get $row wakes]
                assert_equal 1 [r exists k]
                assert_equal 0 [r exists d]
            }
        }

        test "[string toupper $name]: CLIENT PAUSE delays it and its wake-up" -needs [list command $name] {
            waiter_prepare $row
            set c [waiter_start $row]
            set pusher [new_client]
            r client pause 100000 write
            $pusher -send {*}[dict get $row wakes]
            assert_waits $c
            r client unpause
            assert_served $row $c
            $pusher -read
            waiter_prepare $row
            r client pause 100000 write
            $c -send {*}[waiter_command $row 0]
            # XREAD does not write, so it is not paused; for it only entries that are added after it has begun to wait
            # are new.
            if {$name eq "xread"} {wait_for_condition 5000 {[info_field clients blocked_clients] == 1}}
            $pusher -send {*}[dict get $row wakes]
            if {![dict exists $row given]} {assert_equal 0 [r exists k]}
            r client unpause
            assert_served $row $c
            $pusher -read
        }

        test "[string toupper $name]: time runs out while clients are paused" -needs [list command $name] {
            waiter_prepare $row
            set c [new_client]
            # If the machine is so slow that the client was not seen waiting, repeat with a longer wait.
            foreach seconds {0.2 1 5} {
                $c -send {*}[waiter_command $row $seconds]
                set seen 1
                wait_for_condition [expr {round($seconds * 800)}] {[info_field clients blocked_clients] == 1} \
                    {set seen 0}
                if {$seen} {r client pause 100000 write}
                assert_equal [dict get $row none] [$c -readtyped]
                if {$seen} break
            }
            assert {$seen}
            r client unpause
        }

        test "[string toupper $name]: a key that is deleted, or becomes another type" -needs [list command $name] {
            waiter_prepare $row
            set c [waiter_start $row]
            r del k
            assert_unserved $row $c gone {}
            $c -close
            waiter_prepare $row
            set c [waiter_start $row]
            r set k string
            assert_unserved $row $c retyped {{del k}}
            $c -close
            waiter_prepare $row
            set c [waiter_start $row]
            foreach command [list multi {del k} {set k string} {del k} exec] {r {*}$command}
            assert_unserved $row $c gone {}
        }

        test "[string toupper $name]: what came and went within a transaction was never there" \
            -needs [list command $name] {
            waiter_prepare $row
            set c [waiter_start $row]
            foreach command [list multi [dict get $row wakes] {del k} exec] {r {*}$command}
            assert_unserved $row $c gone {}
        }

        test "[string toupper $name]: a timeout that makes no sense" -needs [list command $name] {
            waiter_prepare $row
            foreach {timeout error} [expr {[dict get $row second] == 1 ?
                {x "-ERR timeout is not a float or out of range" nan "-ERR timeout is not a float or out of range"\
                    -0.5 "-ERR timeout is negative" 1e300 "-ERR timeout is out of range"} :
                {x "-ERR timeout is not an integer or out of range" 1.5\
                    "-ERR timeout is not an integer or out of range" -1 "-ERR timeout is negative"}}] {
                assert_typed $error {*}[lmap word [dict get $row waits] \
                    {if {$word eq "%t"} {set timeout} else {set word}}]
            }
        }
    }
}
