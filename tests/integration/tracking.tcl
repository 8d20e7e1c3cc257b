# Client-side caching: CLIENT TRACKING, CACHING, TRACKINGINFO, GETREDIR and the invalidation messages.
# seconds: 17

# The messages that a client received before the reply to its second PING, with types. The first PING makes the server's
# event loop run once, after which it sends the collected messages for prefixes.
proc sent_to {client} {
    set all {}
    foreach mark {first-mark second-mark} {
        $client -send ping $mark
        while 1 {
            set m [$client -readtyped]
            if {[string match *$mark* $m]} break
            lappend all $m
        }
    }
    return $all
}

# The invalidation messages that a client received: a list of keys for each, ALL for all keys. -replies: ignores
# replies.
proc invalidated {client {how ""}} {
    lmap m [sent_to $client] {
        if {$how eq "-replies" && [lindex $m 0] ne ">"} continue
        if {[lrange $m 0 1] eq {> {$invalidate}}} {
            set keys [lindex $m 2]
        } elseif {[lrange $m 0 2] eq {* {$message} {$__redis__:invalidate}}} {
            set keys [lindex $m 3]
        } else {
            fail "not an invalidation message: $m"
        }
        if {$keys in {_ nil$}} {
            set keys ALL
        } else {
            set keys [lmap key [lrange $keys 1 end] {string range $key 1 end}]
        }
    }
}

proc tracker {args} {
    set c [new_client -resp 3]
    assert_equal OK [$c client tracking on {*}$args]
    return $c
}
proc close_all {args} {
    foreach c $args {$c -close}
}
# Sends commands in one piece and reads `count` replies and messages, with types.
proc pipelined {client count commands} {
    $client -write [join [lmap command $commands {resp_command {*}$command}] ""]
    set got {}
    for {set i 0} {$i < $count} {incr i} {lappend got [$client -readtyped]}
    return $got
}
# Compares typed replies, ignoring the form of lists.
proc assert_all_typed {expected got} {
    assert_equal [lmap t $expected {typed_form $t}] [lmap t $got {typed_form $t}]
}
proc push_of {key} {list > {$invalidate} [list * "\$$key"]}
proc tracking_stat {field} {info_field stats tracking_total_$field}

proc default_mode_tests {} {
    test "the first change of a key that a client has read invalidates it, the next one does not" {
        r flushall
        set c [tracker]
        $c get k
        r set k 1
        r set k 2
        assert_equal {k} [invalidated $c]
        $c get k
        r append k 3
        r append k 4
        assert_equal {k} [invalidated $c]
        r set other 1
        assert_equal {} [invalidated $c]
    }

    test "a client without tracking gets no message, and reads nothing for others" {
        set c [tracker]
        set plain [new_client -resp 3]
        $plain get k
        r set k 1
        assert_equal {} [invalidated $c]
        assert_equal {} [invalidated $plain]
        close_all $c $plain
    }

    test "each key of a command has a message of its own, in the order of the changes" {
        set c [tracker]
        $c mget a b c d
        r mset c 1 a 2 d 3 x 4
        assert_equal {c a d} [invalidated $c]
        $c mget a b c d
        r del d b c a
        assert_equal {d c a} [invalidated $c]
        r set from 1
        $c mget from to
        r rename from to
        assert_equal {from to} [invalidated $c]
        r set copied 1
        $c mget copied copy
        r copy copied copy
        assert_equal copy [invalidated $c]
        $c get copied
        r move copied 1
        assert_equal copied [invalidated $c]
        r flushall
    }

    test "the message of a client's own change follows the reply of the command" {
        r del k
        set c [tracker]
        assert_all_typed [list _ +OK [push_of k] {$1}] [pipelined $c 4 {{get k} {set k 1} {get k}}]
        assert_all_typed [list +OK [push_of k] +PONG :1] [pipelined $c 4 {{set k 2} ping {del k}}]
        r set k 1
        assert_all_typed [list {$1} +OK +QUEUED +QUEUED +QUEUED {* +OK +OK $3} [push_of k] +PONG] \
            [pipelined $c 8 {{get k} multi {set k 2} {set k 3} {get k} exec ping}]
        # Read again after the change, within the transaction.
        r set k 4
        assert_equal k [invalidated $c]
        # A suppressed reply does not affect the order.
        assert_all_typed [list {$4} [push_of k] +PONG] [pipelined $c 3 {{get k} {client reply skip} {set k 5} ping}]
    }

    test "a transaction reads its keys when it runs" {
        r set k 1
        set c [tracker]
        $c multi
        $c get k
        r set k 2
        assert_all_typed {{* {$2}}} [pipelined $c 1 exec]
        assert_equal {} [invalidated $c]
        r set k 3
        assert_equal k [invalidated $c]
    }

    test "commands that only read are tracked with all their keys, others are not" {
        r flushall
        set c [tracker]
        foreach {key command change} {
            t1 {ttl t1} {set t1 1}
            t2 {exists other t2} {set t2 1}
            t3 {object encoding t3} {set t3 1}
            t4 {strlen t4} {set t4 1}
            t5 {zunion 2 other t5} {zadd t5 1 m}
            t6 {sort_ro t6} {rpush t6 1}
            t7 {xread streams t7 0} {xadd t7 * f v}
            t8 {bitfield_ro t8 get u8 0} {set t8 1}
            t9 {memory usage t9} {set t9 1}
            t10 {hgetall t10} {hset t10 f v}
        } {
            catch {$c {*}$command}
            r {*}$change
            assert_equal $key [invalidated $c] $command
        }
        foreach {command change} {
            {getex g1 ex 100} {set g1 1}
            {sort l1} {rpush l1 1}
            {scan 0} {set g2 1}
            {keys *} {set g2 2}
            {watch g2} {set g2 3}
            unwatch {set g2 4}
            {set g2 x} {set g2 5}
        } {
            $c {*}$command
            r {*}$change
            assert_equal {} [invalidated $c] $command
        }
    }

    test "a read that fails is tracked, a request that is refused is not" {
        r flushall
        r rpush list 1
        set c [tracker]
        assert_error_like WRONGTYPE* {$c get list}
        r rpush list 2
        assert_equal list [invalidated $c]
        assert_error_like "ERR wrong number*" {$c get}
        assert_error_like "ERR wrong number*" {$c get list list}
        r rpush list 2
        assert_equal {} [invalidated $c]
    }

    test "a change that changes nothing is no change" {
        r flushall
        r set k abc
        r hset h f v
        set c [tracker]
        $c get k
        $c hget h f
        r setrange k 0 ""
        r hdel h nosuch
        r del nosuch
        r getex k
        r setnx k new
        assert_equal {} [invalidated $c]
        r hdel h f
        assert_equal h [invalidated $c]
    }

    test "expiry: EXPIRE, PERSIST and the end of the key are changes" {
        r flushall
        set c [tracker]
        r set e 1
        foreach command {{expire e 1000} {expire e 2000 gt} {persist e} {pexpireat e 99999999999999} {expire e -1}} {
            $c get e
            r {*}$command
            assert_equal e [invalidated $c] $command
        }
        r set e 1 px 20
        $c get e
        wait_for_condition 10000 {[r exists e] == 0}
        assert_equal e [invalidated $c]
    }

    test "expiry of the fields of a hash" -needs {ours 1} {
        r flushall
        r hset h f 1 g 2
        r hpexpire h 300 fields 1 f
        set c [tracker]
        $c hgetall h
        wait_for_condition 10000 {[r hlen h] == 1}
        assert_equal h [lindex [invalidated $c] 0]
    }

    test "a key that its reader finds expired: the message follows the reply" {
        r flushall
        with_debug_active_expire_off {
            set c [tracker]
            r set e 1 px 30
            assert_equal 1 [$c get e]
            wait_for_condition 10000 {[r pttl e] == -2 || [r pttl e] == 0}
            wait_for_condition 10000 {[r exists e] == 0}
            assert_equal e [invalidated $c]
            $c -close
        }
    }

    test "eviction invalidates" {
        r flushall
        set c [tracker]
        r set e [string repeat x 1000]
        assert_equal 1000 [$c strlen e]
        with_config {maxmemory-policy allkeys-random maxmemory 1} {
            catch {r set other 1}
            wait_for_condition 10000 {[r dbsize] == 0}
        }
        assert_equal e [invalidated $c]
    }

    test "FLUSHALL and FLUSHDB invalidate all keys, even of an empty database" {
        set c [tracker]
        set bcast [tracker bcast prefix p]
        $c get k
        r flushall
        assert_equal ALL [invalidated $c]
        assert_equal ALL [invalidated $bcast]
        r set k 1
        assert_equal {} [invalidated $c]
        r flushdb
        r flushall async
        assert_equal {ALL ALL} [invalidated $c]
        assert_equal {ALL ALL} [invalidated $bcast]
        assert_all_typed {_ +OK {> {$invalidate} _} +PONG} [pipelined $c 4 {{get k} flushall ping}]
        assert_equal ALL [invalidated $bcast]
        assert_all_typed [list _ +OK +QUEUED +QUEUED +QUEUED {* +OK +OK +OK} [push_of k] {> {$invalidate} _}] \
            [pipelined $c 8 {{get k} multi {set k 1} flushall {set k 2} exec}]
        r eval {redis.call('flushall') return redis.call('set', 'k', 1)} 0
        assert_equal ALL [invalidated $c]
        close_all $c $bcast
    }

    test "FLUSHALL forgets all tracked keys, however many there are" {
        set c [tracker]
        foreach count {1 57 60 113 120 1000} {
            for {set i 0} {$i < $count} {incr i} {$c get key:$i}
            assert_equal $count [info_field stats tracking_total_keys]
            r flushall
            assert_equal ALL [invalidated $c]
            assert_equal 0 [info_field stats tracking_total_keys]
        }
    }

    test "a data set that is loaded invalidates all keys; SWAPDB does not" {
        set c [tracker]
        $c get k
        r set other 1
        r swapdb 0 1
        r swapdb 0 1
        assert_equal {} [invalidated $c]
        r debug reload
        assert_equal ALL [invalidated $c]
        r flushall
        assert_equal ALL [invalidated $c]
    }

    test "a key is a name: a change in another database also invalidates it" {
        r flushall
        set c [tracker]
        $c get k
        r select 1
        r set k 1
        r select 0
        assert_equal k [invalidated $c]
        r flushall
    }

    test "scripts: the keys that their commands read are tracked, not those that they declare" {
        r flushall
        set c [tracker]
        $c eval {redis.call('get', KEYS[1]) return redis.call('hlen', 'unnamed')} 2 read declared
        $c eval_ro {return redis.call('get', 'read2')} 1 declared
        r mset declared 1 read 2 read2 3
        r hset unnamed f v
        assert_equal {read read2 unnamed} [invalidated $c]
        # Changes of a script of the client itself and of another client.
        $c mget a b
        r eval {redis.call('set', 'b', 1) redis.call('set', 'a', 1) return redis.call('set', 'a', 2)} 0
        assert_equal {b a} [invalidated $c]
        assert_all_typed [list {$2} :1 [push_of a]] \
            [pipelined $c 3 {{get a} {eval {redis.call('set','a','x') redis.call('get','a') return 1} 0}}]
        r set a 1
        assert_equal a [invalidated $c]
    }

    test "blocking commands: what is read is tracked, and the message comes before the delayed reply" {
        r flushall
        set c [tracker]
        $c lrange l 0 -1
        $c -send blpop l 0
        wait_for_condition 10000 {[info_field clients blocked_clients] == 1}
        r rpush l a b
        assert_all_typed [list [push_of l] {* {$l} {$a}}] [list [$c -readtyped] [$c -readtyped]]
        $c -send xread block 0 streams s {$}
        wait_for_condition 10000 {[info_field clients blocked_clients] == 1}
        r xadd s 1-1 f v
        assert_all_typed [list [push_of s]] [list [$c -readtyped]]
        assert_all_typed {{% {$s} {* {* {$1-1} {* {$f} {$v}}}}}} [list [$c -readtyped]]
        r xadd s 1-2 f v
        assert_equal s [invalidated $c]
        r xadd s 1-3 f v
        assert_equal {} [invalidated $c]
    }

    test "NOLOOP: a client's own changes are not its messages, but it forgets that it has read the key" {
        r flushall
        set c [tracker noloop]
        $c get k
        $c set k 1
        r set k 2
        assert_equal {} [invalidated $c]
        $c get k
        r set k 3
        assert_equal k [invalidated $c]
        $c get k
        $c eval {return redis.call('set', 'k', 4)} 0
        $c multi
        $c get k
        $c set k 5
        $c exec
        assert_equal {} [invalidated $c]
        # It still gets the message for FLUSHALL.
        $c flushall
        assert_equal ALL [invalidated $c]
    }

    test "OPTIN: only the command after CLIENT CACHING YES is tracked" {
        r flushall
        set c [tracker optin]
        $c get k
        r set k 1
        assert_equal {} [invalidated $c]
        # CLIENT commands may be between the two; any other command, even a rejected one, counts as the next command.
        foreach {commands tracked} {
            {{get k} {get k2}} k
            {ping {get k}} {}
            {nosuch {get k}} {}
            {get {get k}} {}
            {{client nosuch} {get k}} {}
            {{watch watched} {get k}} {}
            {{client id} {get k}} k
            {{client caching no} {get k}} k
            {multi {get k} {get k2} exec {get k3}} {k k2}
            {multi discard {get k}} {}
            {{eval {redis.call('get','k') redis.call('get','k2') return 1} 0} {get k3}} {k k2}
        } {
            $c client caching yes
            foreach command $commands {catch {$c {*}$command}}
            r mset k 1 k2 2 k3 3
            assert_equal $tracked [invalidated $c] $commands
        }
        foreach command {multi {get k} {client caching yes} {get k2} {get k3} exec} {$c {*}$command}
        $c get k4
        r mset k 1 k2 2 k3 3 k4 4
        assert_equal {k2 k3} [invalidated $c]
    }

    test "OPTOUT: the command after CLIENT CACHING NO is not tracked" {
        set c [tracker optout]
        $c client caching no
        $c get k
        $c get k2
        r mset k 1 k2 2
        assert_equal k2 [invalidated $c]
        $c client caching no
        $c client tracking off
        $c client tracking on optout
        $c get k
        r set k 1
        assert_equal k [invalidated $c]
    }

    test "tracking that was off in between: keys read before are invalidated" {
        r set k 1
        set c [tracker]
        $c get k
        $c client tracking off
        $c client tracking on
        r set k 2
        assert_equal k [invalidated $c]
        $c get k
        $c client tracking off
        r set k 3
        $c client tracking on
        r set k 4
        assert_equal {} [invalidated $c]
        # RESET ends it.
        $c get k
        $c reset
        $c hello 3
        r set k 5
        assert_equal {} [invalidated $c]
    }

    test "a RESP2 client without redirection gets nothing, and its messages again after HELLO 3" {
        set c [new_client]
        $c client tracking on
        $c get k
        r set k 1
        assert_all_typed {} [sent_to $c]
        $c get k
        $c hello 3
        r set k 2
        assert_equal k [invalidated $c]
    }

    test "a client with CLIENT REPLY OFF gets its messages" {
        set c [tracker]
        $c -send client reply off
        $c -send get k
        wait_for_condition 10000 {[tracking_stat keys] == 1}
        r set k 1
        assert_all_typed [list [push_of k]] [list [$c -readtyped]]
    }

    test "thousands of readers of one key" {
        r flushall
        set count [scaled 300 20]
        set readers {}
        for {set i 0} {$i < $count} {incr i} {
            lappend readers [set c [tracker]]
            $c mget k k$i
            $c get k
        }
        assert_equal [expr {$count + 1}] [tracking_stat keys]
        assert_equal [expr {2 * $count}] [tracking_stat items]
        r set k 1
        foreach c $readers {assert_all_typed [list [push_of k]] [list [$c -readtyped]]}
        assert_equal $count [tracking_stat items]
        # Clients that disconnect are removed with their last key at the latest.
        foreach c $readers {$c get k}
        foreach c [lrange $readers 1 end] {$c -close}
        wait_for_condition 10000 {[info_field clients tracking_clients] == 1}
        r set k 1
        assert_all_typed [list [push_of k]] [list [[lindex $readers 0] -readtyped]]
        [lindex $readers 0] -close
    }
}

proc bcast_tests {} {
    test "BCAST: changes of all keys with a prefix, collected and sorted, a message for each prefix" {
        r flushall
        set c [tracker bcast prefix p: prefix q]
        r eval {for _, k in ipairs({'p:2', 'x', 'q', 'p:1', 'p:2'}) do redis.call('set', k, 1) end} 0
        assert_equal {{p:1 p:2} q} [invalidated $c]
        r del p:2 p:9
        r expire p:1 1000
        assert_equal {p:1 p:2} [lsort [concat {*}[invalidated $c]]]
        # Messages about its own changes follow its replies; its reads have no effect.
        $c get x
        assert_all_typed {+OK +QUEUED +QUEUED {* +OK +OK} {> {$invalidate} {* {$p:1} {$p:3}}}} \
            [pipelined $c 5 {multi {set p:3 1} {set p:1 1} exec}]
    }

    test "BCAST without a prefix: all keys" {
        set c [tracker bcast]
        r mset b 1 a 2
        assert_equal {{a b}} [invalidated $c]
        # Prefixes are added to those of the client.
        $c client tracking off
        $c client tracking on bcast prefix a
        $c client tracking on bcast
        r mset b 1 a 2
        assert_equal {{a b} a} [invalidated $c]
    }

    test "BCAST with NOLOOP leaves out what only the client itself has changed" {
        r flushall
        set c [tracker bcast noloop prefix p prefix q]
        set d [tracker bcast prefix p]
        $c mset p1 1 p2 2
        assert_equal {{p1 p2}} [invalidated $d]
        assert_equal {} [invalidated $c]
        r mset p1 1 p2 2
        assert_equal {{p1 p2}} [invalidated $c]
        assert_equal {{p1 p2}} [invalidated $d]
        close_all $c $d
    }

    test "BCAST with NOLOOP names a key that the client's command has found expired, unless the command sets it" {
        r flushall
        r debug set-active-expire 0
        set c [tracker bcast noloop prefix p]
        foreach {command sent} {{get p1} p1 {del p1} p1 {set p1 2} {}} {
            $c set p1 1 px 5
            set end [expr {[clock milliseconds] + 10}]
            wait_for_condition 2000 {[clock milliseconds] > $end}
            $c {*}$command
            assert_equal $sent [invalidated $c] $command
        }
        r debug set-active-expire 1
    }

    test "BCAST: turning tracking off drops what is collected" {
        set c [tracker bcast prefix p]
        assert_all_typed {+OK +QUEUED +QUEUED {* +OK +OK}} [pipelined $c 4 {multi {set p 1} {client tracking off} exec}]
        assert_equal {} [invalidated $c]
        # The server may not have noticed yet that the clients of earlier tests have disconnected.
        wait_for_condition 5000 {[tracking_stat prefixes] == 0}
    }

    test "BCAST: expiry, eviction and FLUSHALL" {
        set c [tracker bcast prefix e]
        r set e1 1 px 20
        wait_for_condition 10000 {[r exists e1] == 0}
        set got [concat {*}[invalidated $c]]
        assert {[llength $got] in {1 2} && [lsort -unique $got] eq "e1"} $got
        r flushall
        assert_equal ALL [invalidated $c]
    }

    test "ten thousand prefixes of a client cost it less than 300 kB, in whatever order they come" {
        proc tot_mem {c} {
            regexp {tot-mem=(\d+)} [$c client info] - bytes
            return $bytes
        }
        set names {}
        for {set i 0} {$i < 10240} {incr i} {lappend names prefix-$i-$i-$i-$i-$i-$i-$i}
        set shuffled [lsort -command {apply {{a b} {expr {int(rand() * 3) - 1}}}} $names]
        foreach order [list $names [lsort $names] [lsort -decreasing $names] $shuffled] {
            set c [new_client -resp 3]
            set before [tot_mem $c]
            assert_equal OK [$c client tracking on bcast {*}[concat {*}[lmap name $order {list prefix $name}]]]
            assert {[tot_mem $c] - $before < 300000}
            assert_equal [lsort $names] [dict get [$c client trackinginfo] prefixes]
            foreach name [list [lindex $order 0] [lindex $order 5000] [lindex $order end]] {
                foreach prefix [list ${name}x [string range $name 0 end-1]] {
                    assert_error "ERR Prefix '$prefix' overlaps with an existing prefix '$name'. Prefixes for a single\
                        client must not overlap." {$c client tracking on bcast prefix $prefix}
                }
                r set ${name}key 1
                assert_equal [list invalidate [list ${name}key]] [$c -push]
            }
            $c -close
        }
    }

    test "clients that share a prefix leave in any order, the others still get its messages" {
        set clients {}
        for {set i 0} {$i < 7} {incr i} {
            set c [new_client -resp 3]
            assert_equal OK [$c client tracking on bcast prefix shared: prefix own$i:]
            lappend clients $c
        }
        foreach leaves {0 3 5 -1} {
            r set shared:key 1
            foreach c $clients {assert_equal {invalidate shared:key} [$c -push]}
            if {$leaves < 0} break
            set c [lindex $clients $leaves]
            set clients [lreplace $clients $leaves $leaves]
            assert_equal OK [$c client tracking off]
            $c -close
            set c [new_client -resp 3]
            assert_equal OK [$c client tracking on bcast prefix shared:]
            lappend clients $c
        }
        foreach c $clients {$c -close}
        wait_for_condition 5000 {[info_field clients tracking_clients] == 0}
        assert_equal 0 [info_field stats tracking_total_prefixes]
    }

    test "thousands of prefixes of one client, and of many clients" {
        r flushall
        set count [scaled 5000 100]
        set prefixes {}
        for {set i 0} {$i < $count} {incr i} {lappend prefixes prefix p$i:}
        set c [tracker bcast {*}$prefixes]
        assert_equal $count [tracking_stat prefixes]
        assert_equal $count [llength [dict get [$c client trackinginfo] prefixes]]
        assert_error "ERR Prefix 'p7:x' overlaps with an existing prefix 'p7:'. Prefixes for a single client must\
            not overlap." \
            {$c client tracking on bcast prefix q prefix p7:x}
        assert_equal $count [tracking_stat prefixes]
        set others {}
        for {set i 0} {$i < 20} {incr i} {lappend others [tracker bcast prefix p$i: prefix o$i]}
        assert_equal [expr {$count + 20}] [tracking_stat prefixes]
        r mset p3:x 1 o3:x 2 p:x 3 [string repeat p 5000] 4
        assert_equal p3:x [invalidated $c]
        assert_equal {o3:x p3:x} [invalidated [lindex $others 3]]
        assert_equal {} [invalidated [lindex $others 4]]
        close_all {*}$others
        wait_for_condition 10000 {[tracking_stat prefixes] == $count}
        # The same number of prefixes, rejected because of the last two.
        assert_error "ERR Prefix 'z' overlaps with another provided prefix 'zz'. Prefixes for a single client must\
            not overlap." \
            {$c client tracking on bcast {*}[string map {{prefix p} {prefix a}} $prefixes] prefix z prefix zz}
        $c client tracking off
        assert_equal 0 [tracking_stat prefixes]
    }
}

proc redirect_tests {} {
    test "REDIRECT in RESP2: a subscriber of __redis__:invalidate gets the messages" {
        r flushall
        set receiver [new_client]
        set id [$receiver client id]
        $receiver subscribe __redis__:invalidate
        set c [new_client]
        $c client tracking on redirect $id
        $c mget a b
        r mset a 1 b 2
        assert_all_typed {{* {$message} {$__redis__:invalidate} {* {$a}}}\
            {* {$message} {$__redis__:invalidate} {* {$b}}}} \
            [sent_to $receiver]
        r flushall
        assert_all_typed {{* {$message} {$__redis__:invalidate} nil$}} [sent_to $receiver]
        assert_all_typed {} [sent_to $c]
        # One receiver for several clients; changes of the tracking client and of the receiver count like any other.
        set d [new_client]
        $d client tracking on bcast prefix b redirect $id
        $c get b
        $d mset b 1 b2 2
        assert_equal {b {b b2}} [lsort [invalidated $receiver]]
        close_all $c $d $receiver
    }

    test "REDIRECT in RESP2: a client that is not subscribed gets nothing, nor is it sent later" {
        set receiver [new_client]
        set c [new_client]
        $c client tracking on redirect [$receiver client id]
        $c get k
        r set k 1
        $receiver subscribe any
        assert_all_typed {} [sent_to $receiver]
        $c get k
        r set k 2
        assert_equal k [invalidated $receiver]
        close_all $c $receiver
    }

    test "REDIRECT in RESP3: the receiver needs no subscription" {
        set receiver [new_client -resp 3]
        set c [new_client]
        $c client tracking on redirect [$receiver client id]
        $c get k
        r set k 1
        assert_equal k [invalidated $receiver]
        r flushall
        assert_equal ALL [invalidated $receiver]
        # The message about the receiver's own change follows the reply.
        $c get k
        assert_all_typed [list +OK [push_of k] +PONG] [pipelined $receiver 3 {{set k 2} ping}]
        $c get k
        assert_all_typed [list +OK +QUEUED +QUEUED {* +OK +PONG} [push_of k]] \
            [pipelined $receiver 5 {multi {set k 3} ping exec}]
        close_all $c $receiver
    }

    # Genuine servers write the null in the protocol of the client that tracks.
    test "REDIRECT: the receiver gets the null of its own protocol" -needs {ours 1} {
        foreach {own other expected} {
            2 3 {> {$invalidate} _}
            3 2 {* {$message} {$__redis__:invalidate} nil$}
        } {
            set receiver [new_client -resp $other]
            set id [$receiver client id]
            if {$other == 2} {$receiver subscribe __redis__:invalidate}
            set c [new_client -resp $own]
            $c client tracking on redirect $id
            r flushall
            assert_all_typed [list $expected] [sent_to $receiver]
            close_all $c $receiver
        }
    }

    test "REDIRECT to itself" {
        set c [new_client -resp 3]
        $c client tracking on redirect [$c client id]
        $c get k
        r set k 1
        assert_equal k [invalidated $c]
        assert_equal [$c client id] [$c client getredir]
    }

    test "a receiver that is gone: tracking-redir-broken, until tracking is turned on anew" {
        set receiver [new_client -resp 3]
        set id [$receiver client id]
        set c [tracker redirect $id]
        $c get k
        $receiver -close
        wait_for_condition 10000 {[r client list id $id] eq ""}
        assert_all_typed {} [sent_to $c]
        assert_equal {flags on redirect} [lrange [string map {{on } {on }} [$c client trackinginfo]] 0 2]
        r set k 1
        assert_all_typed [list [list > {$tracking-redir-broken} :$id]] [sent_to $c]
        assert_equal [list flags {on broken_redirect} redirect $id prefixes {}] [$c client trackinginfo]
        assert_match "*flags=tR *redir=$id *" [r client list id [$c client id]]
        assert_all_typed [list _ +OK [list > {$tracking-redir-broken} :$id]] \
            [pipelined $c 3 {{get nosuch} {set nosuch 1}}]
        r flushall
        assert_all_typed [list [list > {$tracking-redir-broken} :$id]] [sent_to $c]
        assert_error "ERR The client ID you want redirect to does not exist" {$c client tracking on redirect $id}
        $c client tracking on
        assert_equal {flags on redirect 0 prefixes {}} [$c client trackinginfo]
        $c get k
        r set k 2
        assert_equal k [invalidated $c]
    }
}

proc state_tests {} {
    test "CLIENT TRACKINGINFO and GETREDIR show the state" {
        set c [new_client]
        assert_reply $c :-1 client getredir
        assert_equal {flags off redirect -1 prefixes {}} [$c client trackinginfo]
        $c hello 3
        assert_reply $c {% {$flags} {~ {$off}} {$redirect} :-1 {$prefixes} *} client trackinginfo
        foreach {options flags} {
            {} on optin {on optin} noloop {on noloop} {optin noloop} {on optin noloop} bcast {on bcast}
            {bcast noloop} {on bcast noloop} optout {on optout}
        } {
            $c client tracking on {*}$options
            set prefixes [expr {"bcast" in $options ? {{}} : {}}]
            assert_equal [list flags $flags redirect 0 prefixes $prefixes] [$c client trackinginfo]
            $c client tracking off
        }
        $c client tracking on bcast prefix b prefix c prefix a
        assert_equal {a b c} [dict get [$c client trackinginfo] prefixes]
        $c client tracking off
        $c client tracking on optin
        $c client caching yes
        assert_equal {on optin caching-yes} [dict get [$c client trackinginfo] flags]
        $c ping
        assert_equal {on optin} [dict get [$c client trackinginfo] flags]
        $c client tracking off
        $c client tracking on optout
        $c client caching no
        assert_equal {on optout caching-no} [dict get [$c client trackinginfo] flags]
        $c reset
        assert_equal {flags off redirect -1 prefixes {}} [$c client trackinginfo]
    }

    test "CLIENT LIST and INFO show the clients that track keys" {
        set c [tracker]
        set d [tracker bcast prefix a prefix b]
        assert_match "*flags=t *redir=0 *" [r client list id [$c client id]]
        assert_match "*flags=tB *redir=0 *" [r client list id [$d client id]]
        assert_match "*flags=N *redir=-1 *" [r client info]
        assert_equal 2 [info_field clients tracking_clients]
        assert_equal {0 0 2} [lmap field {keys items prefixes} {tracking_stat $field}]
        $c mget k l
        assert_equal {2 2 2} [lmap field {keys items prefixes} {tracking_stat $field}]
        r set k 1
        assert_equal {1 1 2} [lmap field {keys items prefixes} {tracking_stat $field}]
        close_all $c $d
        wait_for_condition 10000 {[info_field clients tracking_clients] == 0}
        r set l 1
        assert_equal {0 0 0} [lmap field {keys items prefixes} {tracking_stat $field}]
    }

    test "CLIENT LIST filters by the flags of tracking" -needs {version 9.0} {
        set c [tracker bcast]
        assert_match "id=[$c client id] *" [r client list flags tB]
    }

    test "errors of CLIENT TRACKING and CACHING" {
        set c [new_client]
        foreach {words error} {
            {tracking foo} "ERR syntax error"
            {tracking on foo} "ERR syntax error"
            {tracking off foo} "ERR syntax error"
            {tracking on redirect} "ERR syntax error"
            {tracking on prefix} "ERR syntax error"
            {tracking on redirect x} "ERR value is not an integer or out of range"
            {tracking on redirect 0} "ERR The client ID you want redirect to does not exist"
            {tracking on redirect -1} "ERR The client ID you want redirect to does not exist"
            {tracking on redirect 9223372036854775807} "ERR The client ID you want redirect to does not exist"
            {tracking off redirect 9999999} "ERR The client ID you want redirect to does not exist"
            {tracking on prefix a} "ERR PREFIX option requires BCAST mode to be enabled"
            {tracking on prefix a optin optout} "ERR PREFIX option requires BCAST mode to be enabled"
            {tracking on bcast optin} "ERR OPTIN and OPTOUT are not compatible with BCAST"
            {tracking on bcast optout} "ERR OPTIN and OPTOUT are not compatible with BCAST"
            {tracking on optin optout} "ERR You can't specify both OPTIN mode and OPTOUT mode"
            {caching yes} "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or\
                OPTOUT mode enabled"
            {caching foo} "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or\
                OPTOUT mode enabled"
        } {
            assert_error $error {$c client {*}$words}
        }
        set id [$c client id]
        assert_error "ERR A client can only redirect to a single other client" \
            {$c client tracking on redirect $id redirect $id}
        assert_equal off [dict get [$c client trackinginfo] flags]
        assert_equal OK [$c client tracking off]
        assert_equal OK [$c client tracking off bcast prefix x]
        $c client tracking on
        assert_error "ERR syntax error" {$c client caching foo}
        assert_error "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode." \
            {$c client caching yes}
        assert_error "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode." \
            {$c client caching no}
        set bcast "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then\
            re-enabling it with a different mode."
        set opt "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then\
            re-enabling it with a different mode."
        assert_error $bcast {$c client tracking on bcast}
        assert_equal OK [$c client tracking on optin]
        assert_error $opt {$c client tracking on optout}
        assert_equal OK [$c client tracking on]
        assert_equal OK [$c client tracking on optout]
        assert_error $opt {$c client tracking on optin}
        $c client tracking off
        $c client tracking on bcast
        assert_error $bcast {$c client tracking on}
        assert_equal {on bcast} [dict get [$c client trackinginfo] flags]
        $c -close
        foreach command {tracking caching {caching yes no} {trackinginfo x} {getredir x}} {
            assert_error_like "ERR wrong number of arguments for 'client|*' command" {r client {*}$command}
        }
    }

    test "prefixes of a client must not overlap" {
        set c [new_client]
        proc overlap {a kind b} {
            return "ERR Prefix '$a' overlaps with $kind prefix '$b'. Prefixes for a single client must not overlap."
        }
        foreach {prefixes first second} {
            {a ab} a ab {ab a} ab a {a a} a a {{} a} {} a {q ab c abc x} ab abc {a c cd ab} a ab\
                {x abc abd ab q a} abc ab
            {b ab a ac} ab a
        } {
            set words {}
            foreach prefix $prefixes {lappend words prefix $prefix}
            assert_error [overlap $first "another provided" $second] {$c client tracking on bcast {*}$words}
            assert_equal {flags off redirect -1 prefixes {}} [$c client trackinginfo]
        }
        $c client tracking on bcast prefix foo prefix fox
        foreach {prefix other} {foobar foo fo foo f foo foo foo fox fox fo: {} {} fo:} {
            if {$other eq ""  && $prefix ne ""} {
                assert_equal OK [$c client tracking on bcast prefix $prefix]
            } else {
                assert_error [overlap $prefix "an existing" $other] {$c client tracking on bcast prefix $prefix}
            }
        }
        # The error is that of the first invalid argument.
        assert_error [overlap x "another provided" xy] {$c client tracking on bcast prefix x prefix xy prefix foobar}
        assert_error [overlap foobar "an existing" foo] {$c client tracking on bcast prefix foobar prefix x prefix xy}
        assert_equal {fo: foo fox} [dict get [$c client trackinginfo] prefixes]
    }
}

proc bound_tests {} {
    test "tracking-table-max-keys bounds the table: the readers of evicted keys get messages" {
        r flushall
        with_config {tracking-table-max-keys 100} {
            set c [tracker]
            for {set i 0} {$i < 1000} {incr i} {$c -send get bound:$i}
            set forgotten [concat {*}[invalidated $c -replies]]
            wait_for_condition 10000 {[tracking_stat keys] == 100}
            assert_equal 100 [tracking_stat items]
            assert_equal 900 [llength [lsort -unique $forgotten]]
            # Keys without an invalidation are still tracked.
            for {set i 0} {$i < 1000} {incr i} {lappend all bound:$i}
            r mset {*}[join [lmap key $all {list $key 1}]]
            assert_equal [lsort $all] [lsort [concat $forgotten {*}[invalidated $c]]]
            assert_equal 0 [tracking_stat keys]
            # One command with more keys than the limit of the table.
            $c -send mget {*}$all
            set forgotten [llength [invalidated $c -replies]]
            wait_for_condition 10000 {[tracking_stat keys] == 100}
            assert_equal 900 [expr {$forgotten + [llength [invalidated $c]]}]
            r config set tracking-table-max-keys 10
            wait_for_condition 10000 {[tracking_stat keys] == 10}
            assert_equal 90 [llength [invalidated $c]]
            r config set tracking-table-max-keys 0
            $c mget {*}$all
            assert_equal 1000 [tracking_stat keys]
            $c -close
        }
    }

    test "a read that evicts a key from the full table sends the message, also to its own client, without delay" {
        r flushall
        with_config {tracking-table-max-keys 1} {
            set c [tracker]
            $c get a
            $c get b
            assert_match {invalidate [ab]} [$c -push]
            $c eval {redis.call('get', 'c')} 0
            assert_match {invalidate [abc]} [$c -push]
            $c multi
            $c get d
            $c exec
            assert_match {invalidate [abcd]} [$c -push]
            $c -close
        }
    }

    test "clients that read a key and leave do not fill the table" -needs {ours 1} {
        r flushall
        set c [tracker]
        $c get k
        for {set i 0} {$i < 100} {incr i} {
            set d [tracker]
            $d get k
            set id [$d client id]
            $d -close
            wait_for_condition 10000 {[r client list id $id] eq ""}
        }
        assert_lessthan [tracking_stat items] 5
        # The table is freed with the last client that tracks.
        $c mget a b c
        $c -close
        wait_for_condition 10000 {[info_field clients tracking_clients] == 0}
        assert_equal {0 0} [list [tracking_stat keys] [tracking_stat items]]
    }

    test "a client that does not read its messages is closed at the limit of its output" -tags {tcp} {
        with_config {client-output-buffer-limit "normal 200000 0 0"} {
            set c [tracker bcast]
            set id [$c client id]
            set value [string repeat k 20000]
            for {set i 0} {$i < 5000 && [r client list id $id] ne ""} {incr i} {r set $value$i 1}
            assert_equal "" [r client list id $id]
            assert_equal PONG [r ping]
            $c -close
        }
        r flushall
    }

    test "long keys and binary keys" {
        set c [tracker]
        foreach key [list [string repeat x 100000] "a\r\n\0b" ""] {
            $c get $key
            r set $key 1
            assert_all_typed [list [list > {$invalidate} [list * "\$$key"]]] [sent_to $c]
        }
        $c -close
        r flushall
    }

    test "a message about a write waits until the write is safe" -needs {ours 1} {
        r flushall
        set c [tracker]
        $c get k
        set control [new_client]
        $control debug reply-barrier hold
        set writer [new_client]
        $writer -send set k 1
        wait_for_condition 10000 {[dict get [$control debug reply-barrier status] clients] == 2}
        assert_equal "" [$c -available]
        assert_equal "" [$writer -available]
        $control debug reply-barrier off
        assert_equal OK [$writer -read]
        assert_all_typed [list [push_of k]] [list [$c -readtyped]]
        close_all $c $control $writer
    }
}

start_server {tags {tracking} overrides {enable-debug-command yes}} {
    default_mode_tests
    bcast_tests
    redirect_tests
    state_tests
    bound_tests
}

start_server {tags {tracking} overrides {enable-debug-command yes io-threads 3}} {
    default_mode_tests
    bcast_tests
    redirect_tests
    bound_tests
}

start_server {tags {tracking repl} overrides {enable-debug-command yes}} {
    test "changes that replication brings invalidate keys on the replica, a full synchronization all" {
        start_server {} {
            set c [new_client -resp 3]
            $c client tracking on
            $c get k
            r replicaof [srv -1 host] [srv -1 port]
            wait_for_condition 20000 {[info_field replication master_link_status] eq "up"}
            assert_equal ALL [lsort -unique [invalidated $c]]
            $c get k
            r -1 set k 1
            wait_for_condition 20000 {[r get k] eq "1"}
            assert_equal k [invalidated $c]
            $c -close
        }
    }
}
