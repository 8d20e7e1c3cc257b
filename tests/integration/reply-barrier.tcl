# The reply barrier: replies that acknowledge writes wait until the writes are released; other replies do not.
# DEBUG REPLY-BARRIER releases them here, as an fsync would.
# seconds: 13

# The connection that sets and releases the barrier; it does not access keys.
proc barrier {args} {$::barrier_client debug reply-barrier {*}$args}
proc wait_replies_held {count} {
    wait_for_condition 5000 {[dict get [barrier status] clients] == $count} {
        fail "[barrier status], not $count clients that wait"
    }
}
proc unreleased {} {dict get [barrier status] unreleased}
# Releases until this number of writes were executed and no client waits. Each batch of requests waits, for any division
# into batches.
proc release_all {writes} {
    wait_for_condition 20000 {
        [barrier release] eq "OK" && [dict get [barrier status] writes] == $writes &&\
            [dict get [barrier status] clients] == 0
    } {fail "[barrier status] after $writes writes"}
}
# Runs a body with the barrier enabled, on new data.
proc held_back {body} {
    set ::barrier_client [new_client]
    $::barrier_client flushall
    barrier hold
    set code [catch {uplevel 1 $body} result options]
    barrier off
    return -options $options $result
}
proc held_test {name body} {
    uplevel 1 [list test $name -needs {ours 1} [list held_back $body]]
}
# The requests of the clients were executed, but no replies were sent.
proc assert_waits {clients} {
    foreach c $clients {assert_equal "" [$c -available]}
}
proc assert_closed_without_reply {c} {
    assert_equal 1 [$c -eof 5000]
    assert_equal "" [$c -available]
}

proc reply_barrier_tests {} {
    held_test "a write is acknowledged when it is released, and not before" {
        set c [new_client]
        $c -send set k v
        wait_replies_held 1
        assert_equal 1 [unreleased]
        assert_waits $c
        barrier release
        assert_equal OK [$c -read]
        assert_equal {writes 1 unreleased 0 clients 0} [barrier status]
    }

    held_test "writes are released in their order, also of several clients" {
        set clients {}
        for {set i 0} {$i < 6} {incr i} {
            lappend clients [set c [new_client]]
            $c -send incr n
            wait_replies_held [expr {$i + 1}]
        }
        barrier release 2
        assert_equal {1 2} [lmap c [lrange $clients 0 1] {$c -read}]
        wait_replies_held 4
        assert_waits [lrange $clients 2 end]
        barrier release 1
        wait_replies_held 4
        barrier release 5
        assert_equal {3 4 5} [lmap c [lrange $clients 2 4] {$c -read}]
        assert_waits [lindex $clients 5]
        barrier release
        assert_equal 6 [[lindex $clients 5] -read]
    }

    held_test "EXEC waits if it calls a function that was replaced by one that writes" {
        set c [new_client]
        set loader [new_client]
        foreach {body flags} {{return 'old'} 'no-writes' {return server.call('set', keys[1], 'v')} {}} {
            set function "function_name='f', callback=function(keys) $body end, flags={$flags}"
            set code "#!lua name=lib\nserver.register_function{$function}"
            $loader -send function load replace $code
            wait_replies_held 1
            barrier release
            assert_equal lib [$loader -read]
            if {$flags ne ""} {
                $c multi
                $c fcall f 1 k
            }
        }
        $c -send exec
        wait_replies_held 1
        assert_waits $c
        barrier release
        assert_equal OK [$c -read]
        $loader -send function flush
        wait_replies_held 1
        barrier release
        assert_equal OK [$loader -read]
    }

    held_test "a read waits only while a write is unreleased" {
        set writer [new_client]
        set reader [new_client]
        assert_equal "" [$reader get k]
        $writer -send set k v
        wait_replies_held 1
        $reader -send get k
        wait_replies_held 2
        assert_waits $reader
        barrier release
        assert_equal OK [$writer -read]
        assert_equal v [$reader -read]
        assert_equal v [$reader get k]
    }

    held_test "reads pass when writes cannot be released; writes continue to wait" {
        set writer [new_client]
        set reader [new_client]
        set both [new_client]
        $writer -send set k v
        wait_replies_held 1
        $reader -send get k
        $both -send set other v
        wait_replies_held 3
        barrier pass-reads
        assert_equal v [$reader -read]
        assert_equal {k} [$reader keys k]
        assert_waits [list $writer $both]
        barrier release
        assert_equal OK [$writer -read]
        assert_equal OK [$both -read]
    }

    held_test "what neither reads nor writes is answered whatever is unreleased" {
        set c [new_client]
        set other [new_client]
        $c -send set k v
        wait_replies_held 1
        assert_equal PONG [$other ping]
        assert_equal OK [$other select 3]
        assert_equal x [$other echo x]
        assert_error "ERR unknown command 'nosuch', with args beginning with: " {$other nosuch}
        barrier release
        assert_equal OK [$c -read]
    }

    held_test "a write without a change is answered immediately when no write is unreleased" {
        set c [new_client]
        assert_equal 0 [$c del nosuch]
        assert_equal "" [$c set k v xx]
        assert_error_like "*wrong number of arguments*" {$c set k}
        assert_error_like "ERR value is not an integer*" {$c incrby k x}
        assert_equal 0 [unreleased]
    }

    held_test "a pipeline waits once, and the replies before its first write go ahead" {
        set c [new_client]
        $c -write [resp_command get k][resp_command echo first][resp_command set k v][resp_command get\
            k][resp_command incr n]
        assert_equal "" [$c -read]
        assert_equal first [$c -read]
        wait_replies_held 1
        assert_equal 2 [unreleased]
        assert_waits $c
        barrier release 1
        wait_replies_held 1
        assert_waits $c
        barrier release 2
        assert_equal {OK v 1} [list [$c -read] [$c -read] [$c -read]]
    }

    held_test "a client that waits executes nothing more" {
        set c [new_client]
        $c -send set k 1
        wait_replies_held 1
        for {set i 0} {$i < 100} {incr i} {$c -send incr k}
        assert_equal PONG [[new_client] ping]
        assert_equal 1 [unreleased]
        barrier release 1
        assert_equal OK [$c -read]
        wait_replies_held 1
        release_all 101
        for {set i 2} {$i <= 101} {incr i} {assert_equal $i [$c -read]}
    }

    held_test "a transaction is acknowledged as one" {
        set c [new_client]
        assert_equal OK [$c multi]
        assert_equal QUEUED [$c set k v]
        assert_equal QUEUED [$c get k]
        $c -send exec
        wait_replies_held 1
        assert_waits $c
        barrier release
        assert_equal {OK v} [$c -read]
    }

    held_test "a client that waited for a key is answered when the write it depends on is released" {
        set popper [new_client]
        set pusher [new_client]
        $popper -send blpop list 0
        wait_for_condition 5000 {[llength [lsearch -all [$::barrier_client client list] flags=b]] == 1}
        assert_waits $popper
        $pusher -send rpush list x
        wait_replies_held 2
        assert_equal 2 [unreleased]
        barrier release 1
        wait_replies_held 2
        assert_waits [list $popper $pusher]
        barrier release 2
        assert_equal 1 [$pusher -read]
        assert_equal {list x} [$popper -read]
        $popper -send set k v
        wait_replies_held 1
        barrier release
        assert_equal OK [$popper -read]
    }

    held_test "messages and MONITOR lines about a write wait with it" {
        set subscriber [new_client]
        set monitor [new_client]
        $subscriber psubscribe __keyevent@*
        $::barrier_client config set notify-keyspace-events EA
        assert_equal OK [$monitor monitor]
        set c [new_client]
        $c -send set k v
        wait_replies_held 3
        assert_waits [list $subscriber $monitor $c]
        $c -send set k w
        barrier release 1
        assert_equal OK [$c -read]
        assert_equal {pmessage __keyevent@* __keyevent@*__:set k} \
            [lreplace [$subscriber -read] 2 2 __keyevent@*__:set]
        assert_match {*"set" "k" "v"} [$monitor -read]
        wait_replies_held 3
        assert_waits [list $subscriber $monitor $c]
        barrier release
        assert_equal OK [$c -read]
        assert_equal k [lindex [$subscriber -read] 3]
        assert_match {*"set" "k" "w"} [$monitor -read]
        $::barrier_client config set notify-keyspace-events ""
    }

    held_test "messages that never cease are delivered, and do not keep a client from its own requests" {
        set subscriber [new_client -resp 3]
        set c [new_client]
        $subscriber -send subscribe ch
        $subscriber -push
        $c -write [resp_command set k 0][resp_command publish ch 0]
        wait_replies_held 2
        set pings 0
        for {set i 1} {$i <= 20} {incr i} {
            set other [new_client]
            $other -write [resp_command set k $i][resp_command publish ch $i]
            wait_replies_held 3
            barrier release $i
            assert_equal OK [$c -read]
            assert_equal 1 [$c -read]
            $c -close
            set c $other
            if {$i % 4 == 3} {assert_equal PONG [$subscriber -read]}
            assert_equal [list message ch [expr {$i - 1}]] [$subscriber -push]
            wait_replies_held 2
            # Its reply follows the message that waits, and is sent with the next one.
            if {$i % 4 == 1} {
                incr pings
                $subscriber -send ping
                wait_for_condition 10000 {
                    [string match "* tot-cmds=[expr {$pings + 2}] *" [$::barrier_client client list type pubsub]]
                } "the server has not read the ping: [$::barrier_client client list type pubsub]"
            }
        }
    }

    held_test "large replies are also held, whole and in order" {
        set c [new_client]
        set large [string repeat 0123456789abcdef 20000]
        $c -send set k $large
        wait_replies_held 1
        barrier release
        assert_equal OK [$c -read]
        $c -write [resp_command incr n][resp_command get k][resp_command getrange k 0 4999][resp_command get\
            k][resp_command echo end]
        wait_replies_held 1
        assert_waits $c
        assert_morethan [dict get \
            [client_fields [lindex [regexp -all -inline {[^\n]*cmd=echo[^\n]*} [$::barrier_client client list]] \
            0]] tot-mem] 5000
        barrier release
        assert_equal 1 [$c -read]
        assert {[$c -read] eq $large}
        assert_equal [string range $large 0 4999] [$c -read]
        assert {[$c -read] eq $large}
        assert_equal end [$c -read]
    }

    held_test "CLIENT REPLY decides about held replies as about others" {
        set c [new_client]
        $c -write [resp_command client reply off][resp_command set k 1][resp_command client reply on]
        wait_replies_held 1
        barrier release
        assert_equal OK [$c -read]
        $c -write [resp_command client reply skip][resp_command set k 2][resp_command incr k]
        wait_replies_held 1
        barrier release
        assert_equal 3 [$c -read]
    }

    held_test "QUIT after a write closes the connection when the write is released" {
        set c [new_client]
        $c -write [resp_command set k v][resp_command quit]
        wait_replies_held 1
        assert_waits $c
        barrier release
        assert_equal OK [$c -read]
        assert_equal OK [$c -read]
        assert_closed $c
    }

    held_test "a client that is killed while it waits gets no acknowledgement" {
        set c [new_client]
        set id [$c client id]
        set reader [new_client]
        set reader_id [$reader client id]
        $c -send set k v
        wait_replies_held 1
        $reader -send get k
        wait_replies_held 2
        assert_equal 1 [$::barrier_client client kill id $id]
        assert_equal 1 [$::barrier_client client kill id $reader_id]
        assert_closed_without_reply $c
        assert_closed_without_reply $reader
        wait_replies_held 0
        barrier release
        assert_equal v [$::barrier_client get k]
    }

    held_test "clients that go while they wait leave nothing behind" {
        set clients {}
        for {set i 0} {$i < 20} {incr i} {
            lappend clients [set c [new_client]]
            $c -send incr n
        }
        wait_replies_held 20
        foreach c $clients {$c -close}
        wait_replies_held 0
        assert_equal 20 [unreleased]
    }

    held_test "what is held counts for client-output-buffer-limit" {
        set subscriber [new_client]
        set writer [new_client]
        $subscriber subscribe ch
        with_config {client-output-buffer-limit "pubsub 100kb 0 0"} {
            $writer -send set k v
            wait_replies_held 1
            $::barrier_client publish ch [string repeat x 60000]
            assert_equal 1 [lindex [$::barrier_client pubsub numsub ch] 1]
            $::barrier_client publish ch [string repeat x 60000]
            wait_for_condition 5000 {[lindex [$::barrier_client pubsub numsub ch] 1] == 0}
            assert_closed_without_reply $subscriber
        }
    }

    held_test "what waits is answered when the barrier is switched off" {
        set clients {}
        for {set i 0} {$i < 3} {incr i} {
            lappend clients [set c [new_client]]
            $c -send incr n
        }
        wait_replies_held 3
        barrier off
        assert_equal {1 2 3} [lsort [lmap c $clients {$c -read}]]
        assert_equal 4 [r incr n]
    }

    held_test "a pause and the barrier hold a client independently" {
        set c [new_client]
        $c -send incr n
        wait_replies_held 1
        $::barrier_client client pause 100000 write
        $c -send incr n
        barrier release
        assert_equal 1 [$c -read]
        $::barrier_client client unpause
        wait_replies_held 1
        barrier release
        assert_equal 2 [$c -read]
    }

    held_test "many clients write under a barrier that is released again and again" {
        set clients {}
        for {set i 0} {$i < 30} {incr i} {
            lappend clients [set c [new_client]]
            for {set j 0} {$j < 20} {incr j} {
                $c -send incr n:$i
                $c -send get n:$i
            }
        }
        release_all 600
        foreach c $clients {
            for {set j 1} {$j <= 20} {incr j} {assert_equal [list $j $j] [list [$c -read] [$c -read]]}
        }
    }
}

start_server {overrides {enable-debug-command yes} tags {reply-barrier}} {
    reply_barrier_tests
    test "immediate-reply decides when released replies leave, not whether" -needs {ours 1} {
        foreach when {yes no} {
            with_config [list immediate-reply $when] {
                held_back {
                    set c [new_client]
                    $c -send incr n
                    wait_replies_held 1
                    assert_waits $c
                    barrier release
                    assert_equal 1 [$c -read]
                }
            }
        }
    }
}
start_server {overrides {enable-debug-command yes io-threads 3} tags {reply-barrier io-threads}} {
    reply_barrier_tests
}
