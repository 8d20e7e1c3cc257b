# Waiting for keys: BLPOP, BRPOP, BLMOVE, BRPOPLPUSH, BLMPOP, CLIENT UNBLOCK.

start_server {tags {blocking}} {
    test "existing entries are returned immediately" {
        r flushall
        r rpush l a b c d
        replies {
            {blpop nosuch l 0} {* {$l} {$a}}
            {brpop l 0} {* {$l} {$d}}
            {blmpop 0 2 nosuch l left count 5} {* {$l} {* {$b} {$c}}}
            {exists l} :0
            {rpush l v} :1
            {blmove l m right left 0} {$v}
            {brpoplpush m n 0} {$v}
            {lrange n 0 -1} {* {$v}}
        }
    }

    test "a client waits until one of its keys has something" {
        r flushall
        foreach {command push expected} {
            {blpop l1 l2 0} {rpush l2 x} {l2 x}
            {brpop l1 l2 0} {rpush l1 x y} {l1 y}
            {blmove l1 d left right 0} {lpush l1 x} x
            {brpoplpush l1 d 0} {rpush l1 z} z
            {blmpop 0 2 l1 l2 right count 2} {rpush l2 1 2 3} {l2 {3 2}}
            {blpop l1 0} {linsert l1 before x y} ""
        } {
            r del l1 l2
            set c [blocked_by {*}$command]
            r {*}$push
            if {$expected eq ""} {r rpush l1 v; set expected {l1 v}}
            assert_equal $expected [$c -read]
            $c -close
        }
    }

    test "keys are served in the order in which they became ready" {
        foreach {others before expected} {
            {}               {{set x string} {del x}}   {1 2}
            {}               {{zadd x 1 a} {del x}}     {1 2}
            {bzpopmin z 0}   {{zadd x 1 a} {del x}}     {2 1}
            {}               {{rpush x 0} {del x}}      {2 1}
        } {
            r flushall
            set clients [lmap command \
                [list {blmove x d left right 0} {blmove y d left right 0} \
                {*}[expr {$others eq "" ? "" : [list $others]}]] {
                set c [new_client]
                $c -send {*}$command
                set c
            }]
            wait_blocked [llength $clients]
            foreach command [list multi {*}$before {rpush y 1} {rpush x 2} exec] {r {*}$command}
            assert_equal $expected [r lrange d 0 -1]
            foreach c $clients {$c -close}
            wait_blocked 0
        }
    }

    test "other commands that create a key: RENAME, COPY, MOVE, SWAPDB, EXEC" {
        r flushall
        foreach how {
            {{rpush s v} {rename s l}}
            {{rpush s v} {copy s l} {del s}}
            {{select 1} {rpush l v} {move l 0} {select 0}}
            {{select 1} {rpush l v} {select 0} {swapdb 0 1}}
            {multi {rpush l v} exec}
            {{set l x} {del l} {rpush l v}}
            {{rpush s v} {lmove s l left left}}
            {{rpush s 3 1 2} {del s} {rpush l v}}
        } {
            r flushall
            set c [blocked_by blpop l 0]
            foreach command $how {r {*}$command}
            assert_equal {l v} [$c -read]
            assert_equal 0 [r exists l]
            $c -close
        }
    }

    test "a key that has expired when its transaction ends is deleted, and serves no client" {
        r flushall
        r debug set-active-expire 0
        foreach {command add} {
            {brpop k 0} {rpush k v}
            {bzpopmin k 0} {zadd k 1 v}
            {blmove k l left left 0} {rpush k v}
        } {
            set f [new_follower]
            set c [blocked_by {*}$command]
            heard $f
            foreach step [list multi $add {pexpire k 1} {debug sleep 0.01} exec] {r {*}$step}
            assert_equal 0 [r dbsize]
            assert_equal {UNLINK k} [lindex [heard $f] end]
            wait_blocked 1
            r {*}$add
            assert_match *v* [$c -read]
            $c -close
            $f -close
            r del l
        }
        r debug set-active-expire 1
    }

    test "SWAPDB leaves a key that has expired to the next access" {
        r flushall
        r debug set-active-expire 0
        r select 1
        r rpush l v
        r pexpire l 1
        r select 0
        set f [new_follower]
        set c [blocked_by blpop l 0]
        r debug sleep 0.005
        heard $f
        r swapdb 0 1
        assert_equal 1 [r dbsize]
        r exists l
        assert_equal {{swapdb 0 1} {UNLINK l}} [heard $f]
        wait_blocked 1
        $c -close
        $f -close
        r debug set-active-expire 1
    }

    test "the client that has waited longest is served first, and each element is served once" {
        r flushall
        set clients {}
        for {set i 0} {$i < 5} {incr i} {
            set c [new_client]
            $c -send blpop l other$i 0
            wait_blocked [expr {$i + 1}]
            lappend clients $c
        }
        r rpush l 0 1 2
        foreach c [lrange $clients 0 2] n {0 1 2} {assert_equal [list l $n] [$c -read]}
        wait_blocked 2
        assert_equal 0 [r exists l]
        r rpush other4 x
        assert_equal {other4 x} [[lindex $clients 4] -read]
        r rpush l y
        assert_equal {l y} [[lindex $clients 3] -read]
    }

    test "clients are served before the pusher's next command of the same pipeline" {
        r flushall
        set c [blocked_by blpop l 0]
        r -send rpush l a
        r -send lpop l
        assert_equal 1 [r -read]
        assert_equal "" [r -read]
        assert_equal {l a} [$c -read]
    }

    test "a transaction is served as a whole: keys that it deletes again do not serve clients" {
        r flushall
        set c [blocked_by blpop l 0]
        foreach command {multi {rpush l a} {del l} exec} {r {*}$command}
        wait_blocked 1
        foreach command {multi {rpush l a} {lpush l b} exec} {r {*}$command}
        assert_equal {l b} [$c -read]
    }

    test "one served client may serve the next: a chain of BLMOVE" {
        r flushall
        set clients {}
        for {set i 0} {$i < 10} {incr i} {
            set c [new_client]
            $c -send blmove l$i l[expr {$i + 1}] left right 0
            lappend clients $c
        }
        wait_blocked 10
        r rpush l0 v
        foreach c $clients {
            assert_equal v [$c -read]
            $c -close
        }
        assert_equal v [r lrange l10 0 -1]
    }

    test "a wheel: BLMOVE to itself turns once" {
        r flushall
        set c [blocked_by blmove l l left right 0]
        r rpush l 1 2 3
        assert_equal 1 [$c -read]
        assert_equal {2 3 1} [r lrange l 0 -1]
    }

    test "another type does not wake the client, and is an error for a new command" {
        r flushall
        set c [blocked_by blpop l l2 0]
        r set l string
        r sadd s member
        wait_blocked 1
        assert_error "WRONGTYPE Operation against a key holding the wrong kind of value" {r blpop l 0}
        $c -close
        r del l
    }

    test "another expiration time does not wake a client that waits for a stream" {
        r del s text
        r xadd s 1-1 f v
        set c [new_client]
        $c -send xread block 0 streams text s \$ \$
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        r set text x
        set hits [info_field stats keyspace_hits]
        r expire s 1000
        r persist s
        r pexpireat s 99999999999999
        assert_equal 1 [info_field clients blocked_clients]
        assert_equal $hits [info_field stats keyspace_hits]
        r del text
        r xadd s 2-1 f v
        assert_equal {{s {{2-1 {f v}}}}} [$c -read]
    }

    test "BLMOVE to a key of another type fails and takes nothing" {
        r flushall
        r set str x
        set c [blocked_by blmove l str left left 0]
        r rpush l v
        assert_error "WRONGTYPE Operation against a key holding the wrong kind of value" {$c -read}
        assert_equal v [r lrange l 0 -1]
    }

    test "timeouts, in fractions of a second, and their answers" {
        r flushall
        foreach {command expected} {
            {blpop l 0.02} nil* {brpop l 0.001} nil* {blmove l m left left 0.01} nil* {brpoplpush l m 0.01} nil*\
                {blmpop 0.01 1 l left} nil*
        } {assert_typed $expected {*}$command}
        set c [new_client -resp 3]
        foreach command {{blpop l 0.01} {blmove l m left left 0.01} {blmpop 0.01 1 l left}} {
            assert_reply $c _ {*}$command
        }
        $c -close
        set from [clock milliseconds]
        r blpop l 0.2
        assert_range [expr {[clock milliseconds] - $from}] 190 5000
    }

    test "a fraction of a millisecond below 0 is a timeout of 0" {
        set c [new_client]
        set id [$c client id]
        foreach waits {
            {blpop l -0.001} {blmove l m left left -1e-9} {bzmpop -0.0009 1 z min} {brpoplpush l m -1e-400}
        } {
            r multi
            r {*}$waits
            assert_equal {{}} [r exec]
            $c -send {*}$waits
            wait_blocked 1
            r client unblock $id
            assert_equal "" [$c -read]
        }
    }

    test "arguments that make no sense" {
        replies {
            {blpop l a} "-ERR timeout is not a float or out of range"
            {blpop l -1} "-ERR timeout is negative"
            {blpop l -0.0011} "-ERR timeout is negative"
            {blpop l 1e308} "-ERR timeout is out of range"
            {brpop l nan} "-ERR timeout is not a float or out of range"
            {blmove l m left foo 0} "-ERR syntax error"
            {blmove l m left left x} "-ERR timeout is not a float or out of range"
            {brpoplpush l m -1} "-ERR timeout is negative"
            {blmpop 0 0 l left} "-ERR numkeys should be greater than 0"
            {blmpop 0 a l left} "-ERR numkeys should be greater than 0"
            {blmpop 0 3 l left} "-ERR syntax error"
            {blmpop 0 1 l up} "-ERR syntax error"
            {blmpop 0 1 l left count 0} "-ERR count should be greater than 0"
            {blmpop 0 1 l left count} "-ERR syntax error"
            {blmpop x 1 l left} "-ERR timeout is not a float or out of range"
        }
        arity_errors {{blpop l} brpop {blmove l m left left} {brpoplpush l m} {blmpop 0 1 l}}
    }

    test "within a transaction nothing waits" {
        r flushall
        foreach command {multi {blpop l 0} {brpop l 0} {blmove l m left left 0} {brpoplpush l m 0}\
            {blmpop 0 1 l left}} {
            r {*}$command
        }
        assert_typed {* nil* nil* nil$ nil$ nil*} exec
    }

    test "CLIENT UNBLOCK ends waiting as a timeout or with an error" {
        r flushall
        set c [new_client]
        set id [$c client id]
        replies "{client unblock $id} :0 {client unblock 99999} :0"
        $c -send blpop l 0
        wait_blocked 1
        assert_equal 1 [r client unblock $id]
        assert_equal nil* [$c -readtyped]
        $c -send blpop l 0
        wait_blocked 1
        assert_equal 1 [r client unblock $id error]
        assert_error "UNBLOCKED client unblocked via CLIENT UNBLOCK" {$c -read}
        assert_equal PONG [$c ping]
        replies {
            {client unblock x} "-ERR value is not an integer or out of range"
            {client unblock 1 foo} "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR"
        }
    }

    test "a client that is killed or goes while it waits takes nothing" {
        r flushall
        set c [new_client]
        set id [$c client id]
        $c -send blpop l 0
        wait_blocked 1
        assert_equal 1 [r client kill id $id]
        wait_blocked 0
        $c -close
        set c [blocked_by blpop l 0]
        $c -close
        wait_blocked 0
        r rpush l v
        assert_equal v [r lpop l]
        assert_equal 0 [info_field total_blocking_keys]
    }

    test "paused clients are served when the pause is over" {
        r flushall
        set c [blocked_by blpop l 0]
        set other [new_client]
        $other multi
        $other rpush l v
        r client pause 100000 write
        r client unpause
        $other exec
        assert_equal {l v} [$c -read]
    }

    test "a command that waited is refused if the state of the server refuses it now" {
        foreach {command option value refusal} {
            {blpop l 0} min-replicas-to-write 1 "NOREPLICAS Not enough good replicas to write."
            {blmove l d left right 0} maxmemory 1 "OOM command not allowed when used memory > 'maxmemory'."
        } {
            r flushall
            r config resetstat
            set default [lindex [r config get $option] 1]
            set c [blocked_by {*}$command]
            r multi
            r rpush l x
            r config set $option $value
            r exec
            assert_error $refusal {$c -read}
            assert_equal x [r lrange l 0 -1]
            assert_match "calls=0,*,rejected_calls=1,*" [info_field cmdstat_[lindex $command 0]]
            r config set $option $default
            $c -close
        }
    }

    test "requests behind one that waits are executed after it, in order" {
        r flushall
        set c [new_client]
        $c -send blpop l 0
        $c -send set k after
        $c -send get k
        wait_blocked 1
        assert_equal 0 [r exists k]
        r rpush l v
        assert_equal {l v} [$c -read]
        assert_equal OK [$c -read]
        assert_equal after [$c -read]
    }

    test "waiting clients are shown: flag b, INFO's keys" {
        r flushall
        set c [blocked_by blpop a b c 0]
        assert_match {*flags=b * cmd=blpop *} [lsearch -inline -glob [split [r client list] \n] "*cmd=blpop*"]
        assert_equal 3 [info_field total_blocking_keys]
        r rpush b v
        assert_equal {b v} [$c -read]
        assert_equal 0 [info_field total_blocking_keys]
    }

    test "a command that waited is counted and monitored once" {
        r flushall
        r config resetstat
        set m [new_client]
        $m monitor
        set c [blocked_by blpop l 0]
        r rpush l v
        $c -read
        r echo end
        set seen 0
        while {![string match *end* [set line [$m -readline]]]} {incr seen [string match {*"blpop"*} $line]}
        assert_equal 1 $seen
        assert_match {*cmdstat_blpop:calls=1,*failed_calls=0*} [r info commandstats]
    }

    test "keyspace events of what was served come after those of the push" {
        r flushall
        set c [blocked_by blpop l 0]
        set e [new_client]
        $e psubscribe __keyevent*
        r config set notify-keyspace-events EA
        r rpush l v
        r config set notify-keyspace-events ""
        foreach event {rpush lpop del} {assert_equal __keyevent@0__:$event [lindex [$e -read] 2]}
    }

    test "sorted sets that are waited for: BZPOPMIN, BZPOPMAX, BZMPOP" {
        r flushall
        r zadd z 1 a 2 b 3 c
        replies {
            {bzpopmin nosuch z 0} {* {$z} {$a} {$1}}
            {bzpopmax z 0} {* {$z} {$c} {$3}}
            {bzmpop 0 2 nosuch z max count 5} {* {$z} {* {* {$b} {$2}}}}
            {exists z} :0
            {bzpopmin z 0.01} nil*
            {bzmpop 0.01 1 z min} nil*
            {bzpopmin z x} "-ERR timeout is not a float or out of range"
            {bzmpop 0 0 z min} "-ERR numkeys should be greater than 0"
            {bzmpop 0 2 z min} "-ERR syntax error"
            {bzmpop 0 1 z low} "-ERR syntax error"
            {bzmpop 0 1 z min count 0} "-ERR count should be greater than 0"
        }
        arity_errors {{bzpopmin z} bzpopmax {bzmpop 0 1 z}}
        foreach {command expected} {
            {bzpopmin z1 z2 0} {* {$z2} {$low} {$1}} {bzpopmax z2 0} {* {$z2} {$high} {$2.5}}\
                {bzmpop 0 1 z2 max count 2} {* {$z2} {* {* {$high} {$2.5}} {* {$low} {$1}}}}
        } {
            r del z2
            set c [blocked_by {*}$command]
            r rpush z1 no sorted set
            r del z1
            r zadd z2 1 low 2.5 high
            assert_equal [typed_form $expected] [$c -readtyped]
            $c -close
        }
        set c [new_client -resp 3]
        r zadd z 1.5 a
        assert_reply $c {* {$z} {$a} ,1.5} bzpopmin z 0
        $c -close
        foreach command {multi {bzpopmin z 0} {bzmpop 0 1 z min} exec} {set got [r {*}$command]}
        assert_equal {{} {}} $got
        set c [blocked_by bzpopmin z 0]
        r zadd other 1 m
        r zunionstore z 1 other
        assert_equal {z m 1} [$c -read]
    }

    test "many clients, many keys, random pushes: nothing is lost, nothing doubled" {
        r flushall
        set clients {}
        set count [scaled 40 10]
        for {set i 0} {$i < $count} {incr i} {
            set c [new_client]
            $c -send [pick blpop brpop] {*}[lsort -unique [list k[randint 5] k[randint 5] k[randint 5]]] 0
            lappend clients $c
        }
        wait_blocked $count
        for {set i 0} {$i < $count * 3} {incr i} {r [pick lpush rpush] k[expr {$i % 5}] $i}
        set got {}
        foreach c $clients {
            lappend got [lindex [$c -read] 1]
            $c -close
        }
        for {set i 0} {$i < 5} {incr i} {lappend got {*}[r lrange k$i 0 -1]}
        assert_equal [expr {$count * 3}] [llength [lsort -unique $got]]
        assert_equal [expr {$count * 3}] [llength $got]
    }

    test "a command that waited is logged when it ends" -needs {version 9.0} {
        r flushall
        set thresholds {commandlog-execution-slower-than commandlog-request-larger-than commandlog-reply-larger-than}
        set before [lmap name $thresholds {config_get $name}]
        set c [new_client]
        set id [$c client id]
        foreach name $thresholds value {0 1 1} {r config set $name $value}
        foreach {command end reply} {
            {blpop l 0.01} {} {}
            {blpop l 0} {rpush l v} {l v}
            {blpop l 0} {client unblock $id} {}
            {blpop l 0} {client unblock $id error} {UNBLOCKED *}
        } {
            $c -send {*}$command
            if {$end ne ""} {
                wait_blocked 1
                r {*}[subst $end]
            }
            catch {$c -read} got
            assert_match $reply $got
            foreach kind {slow large-request large-reply} {
                set logged [lsearch -all -inline -index 3 [r commandlog get -1 $kind] $command]
                assert_equal 1 [llength $logged] "$kind after $end: $logged"
                r commandlog reset $kind
            }
        }
        foreach name $thresholds value $before {r config set $name $value}
    }

    test "a client that its own served command closes: a message of it exceeds the limit" {
        set to [string repeat d 100000]
        r config set notify-keyspace-events EA
        r config set client-output-buffer-limit "pubsub 50000 0 0"
        set c [new_client]
        $c hello 3
        $c -send subscribe __keyevent@0__:lpush
        $c -push
        $c -send blmove l $to right left 0
        wait_blocked 1
        r rpush l a
        assert_closed $c
        assert_equal PONG [r ping]
        assert_equal {0 1} [list [info_field clients blocked_clients] [r exists l $to]]
        r del $to
        r config set notify-keyspace-events ""
        r config set client-output-buffer-limit "pubsub 33554432 8388608 60"
    }

    test "a wait that times out counts in INFO latencystats" {
        r del l
        r config resetstat
        assert_equal {} [r blpop l 0.01]
        assert_match {*cmdstat_blpop:calls=1,*} [r info commandstats]
        assert_match {*latency_percentiles_usec_blpop:*} [r info latencystats]
    }

    test "CLIENT UNBLOCK with ERROR counts the call as rejected" {
        r del l
        set c [new_client]
        set id [$c client id]
        $c -send blpop l 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        r config resetstat
        r client unblock $id error
        assert_error "UNBLOCKED client unblocked via CLIENT UNBLOCK" {$c -read}
        assert_match {*cmdstat_blpop:calls=1,*rejected_calls=1,failed_calls=0*} [r info commandstats]
    }
}

start_server {tags {blocking replication} overrides {save "" repl-diskless-sync-delay 0}} {
    set replica [lindex [replica_full_sync] 0]
    set pushes {
        {{rpush k a}}
        {{rpush from a} {rename from k}}
        {{rpush from a} {copy from k}}
        {{rpush from 1} {sort from store k}}
        {{rpush from a} {lmove from k left left}}
        {{select 1} {rpush k a} {move k 0} {select 0}}
        {{select 1} {rpush k a} {swapdb 0 1} {select 0}}
        {{rpush k a} {del k} {rpush k b}}
    }

    test "what a client takes is propagated behind the transaction or script that pushed it" {
        foreach push $pushes {
            set script [join [lmap words $push {format "redis.call('%s')" [join $words "','"]}] "; "]
            foreach requests [list $push [list [list eval $script 0]] \
                [list [list eval "$script; redis.call('set', 's', 1)" 0]] [list [list eval "$script error('x')" 0]]] {
                r flushall
                set c [blocked_by blmpop 0 2 none k right]
                replica_commands $replica
                r -write [join [lmap words [list multi {incr first} {*}$requests {incr last} exec] {
                    resp_command {*}$words
                }] ""]
                for {set i [expr {[llength $requests] + 3}]} {$i >= 0} {incr i -1} {r -read}
                assert_match "k *" [$c -read]
                set names [lmap words [replica_commands $replica] {string tolower [lindex $words 0]}]
                set names [lsearch -all -inline -not $names select]
                assert_equal {multi incr} [lrange $names 0 1] $names
                assert_equal {incr exec rpop} [lrange $names end-2 end] $names
                $c -close
            }
        }
    }
}
