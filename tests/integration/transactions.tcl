# MULTI, EXEC, DISCARD, WATCH, UNWATCH.

# A key that has expired but is not deleted, because the server does not search for expired keys.
proc set_expired {key} {
    r set $key v px 1
    set end [expr {[clock milliseconds] + 2}]
    wait_for_condition 1000 {[clock milliseconds] > $end}
}

start_server {tags {transactions}} {
    test "the commands of a transaction are queued and run by EXEC, errors among them" {
        r flushall
        replies {
            {multi} +OK
            {set a 1} +QUEUED
            {incr a} +QUEUED
            {get a b} "-ERR wrong number of arguments for 'get' command"
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {exists a} :0
            {multi} +OK
            {set a text} +QUEUED
            {incr a} +QUEUED
            {get a} +QUEUED
            {ping} +QUEUED
            {exec} {* +OK {-ERR value is not an integer or out of range} $text +PONG}
            {get a} $text
            {multi} +OK
            {exec} *
        }
    }

    test "a refused command makes EXEC discard its transaction, a failing one does not" {
        r flushall
        replies {
            {multi} +OK
            {set a 1} +QUEUED
            {nosuch x} "-ERR unknown command 'nosuch', with args beginning with: 'x' "
            {set a 2} +QUEUED
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {multi} +OK
            {get} "-ERR wrong number of arguments for 'get' command"
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {multi} +OK
            {object nosuch} "-ERR unknown subcommand 'nosuch'. Try OBJECT HELP."
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {multi} +OK
            {client nosuch} "-ERR unknown subcommand 'nosuch'. Try CLIENT HELP."
            {discard} +OK
            {multi} +OK
            {set a 3} +QUEUED
            {exec} {* +OK}
            {get a} {$3}
        }
    }

    test "MULTI, EXEC, DISCARD and WATCH in the wrong state" {
        replies {
            {exec} "-ERR EXEC without MULTI"
            {discard} "-ERR DISCARD without MULTI"
            {multi} +OK
            {multi} "-ERR Command 'multi' not allowed inside a transaction"
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {multi} +OK
            {watch x} "-ERR Command 'watch' not allowed inside a transaction"
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {exec x} "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
            {multi} +OK
            {exec x} "-EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
            {exec} "-ERR EXEC without MULTI"
        }
        arity_errors {{multi x} {discard x} watch {unwatch x}}
    }

    test "DISCARD forgets what was queued and watched" {
        r flushall
        set c [new_client]
        replies {
            {watch k} +OK
            {multi} +OK
            {set k 1} +QUEUED
            {discard} +OK
            {exists k} :0
        }
        $c set k other
        replies {{multi} +OK {get k} +QUEUED {exec} {* $other}}
    }

    test "EXEC runs nothing when a watched key was changed by any client, itself included" {
        r flushall
        set c [new_client]
        foreach {what changes} {
            set {set k 1} del {del k} incr {incr n} expire {expire e 100} rename {rename from k} append {append k x}
            flushdb {flushdb} flushall {flushall} copy {copy from k replace} setrange {setrange k 0 z}
        } {
            r mset k 1 n 1 e 1 from 1
            r watch nothing k n e from
            $c {*}$changes
            replies {{multi} +OK {ping} +QUEUED {exec} nil*}
        }
        r set k 1
        replies {{watch k} +OK {set k 2} +OK {multi} +OK {ping} +QUEUED {exec} nil*}
    }

    test "EXEC runs after commands that leave the watched value as it is" {
        r flushall
        r rpush l a b
        r hset h f 1
        foreach unchanged {{ltrim l 0 -1} {ltrim l 0 9} {hsetex h exat 1 fields 1 g v} {hsetex n exat 1 fields 1 g v}} {
            r watch l h n
            r {*}$unchanged
            replies {{multi} +OK {ping} +QUEUED {exec} {* +PONG}}
        }
        foreach changed {{ltrim l 0 0} {hsetex h exat 1 fields 1 f v}} {
            r watch l h n
            r {*}$changed
            replies {{multi} +OK {ping} +QUEUED {exec} nil*}
        }
        assert_equal {l} [r keys *]
    }

    test "EXEC runs when other keys were changed, or keys of the same name in another database" {
        r flushall
        set c [new_client -db 1]
        r set k 1
        r watch k
        $c set k 1
        $c flushdb
        r set other 1
        replies {{get k} {$1} {multi} +OK {ping} +QUEUED {exec} {* +PONG}}
    }

    test "flushing and swapping databases changes just the watched keys that are there" {
        r flushall
        set c [new_client]
        r watch missing
        $c set other 1
        $c flushall
        replies {{multi} +OK {ping} +QUEUED {exec} {* +PONG}}
        r watch missing
        $c swapdb 0 1
        replies {{multi} +OK {ping} +QUEUED {exec} {* +PONG}}
        $c select 1
        $c set there 1
        r watch there
        $c swapdb 0 1
        replies {{multi} +OK {ping} +QUEUED {exec} nil*}
    }

    test "UNWATCH, EXEC and RESET end watching" {
        r flushall
        set c [new_client]
        r watch k
        $c set k 1
        replies {{unwatch} +OK {multi} +OK {ping} +QUEUED {exec} {* +PONG}}
        r watch k
        replies {{multi} +OK {exec} *}
        $c set k 2
        replies {{multi} +OK {ping} +QUEUED {exec} {* +PONG}}
        r watch k
        $c set k 3
        replies {{reset} +RESET {multi} +OK {ping} +QUEUED {exec} {* +PONG}}
    }

    test "UNWATCH within a transaction comes too late" {
        r flushall
        set c [new_client]
        r watch k
        $c set k 1
        replies {{multi} +OK {unwatch} +QUEUED {exec} nil*}
    }

    test "a watched key that expires counts as changed, one that had expired before does not" {
        r flushall
        r debug set-active-expire 0
        r set k 1 px 30
        r watch k
        wait_for_condition 5000 {[r pttl k] < 0 || [r exists k] == 0} {fail "k does not expire"}
        replies {{multi} +OK {ping} +QUEUED {exec} nil*}
        r set k 1 px 1
        let_pass 1
        r watch k
        assert_equal 0 [r exists k]
        replies {{multi} +OK {ping} +QUEUED {exec} {* +PONG}}
        r debug set-active-expire 1
    }

    test "a transaction sees one time" {
        r flushall
        r multi
        r set k v px 100000
        r pexpiretime k
        r debug sleep 0.02
        r set k2 v px 100000
        r pexpiretime k2
        set times [r exec]
        assert_equal [lindex $times 1] [lindex $times 4]
    }

    test "SELECT within a transaction lasts" {
        r flushall
        replies {
            {multi} +OK {set k 0} +QUEUED {select 1} +QUEUED {set k 1} +QUEUED {exec} {* +OK +OK +OK}
            {get k} {$1} {select 0} +OK {get k} {$0}
        }
    }

    test "large arguments are queued whole" {
        r flushall
        set big [string repeat abcdefgh 30000]
        r multi
        r set big $big
        r append big x
        r set big2 $big
        r strlen big
        r get big2
        set got [r exec]
        assert_equal 240001 [lindex $got 3]
        assert_equal $big [lindex $got 4]
        assert_equal "${big}x" [r get big]
    }

    test "a transaction is shown by CLIENT LIST and INFO, and its memory is counted" {
        set c [new_client]
        $c watch a b
        $c multi
        $c set k [string repeat x 10000]
        $c ping
        set id [$c -localport]
        set line [lsearch -inline -glob [split [r client list] \n] *:${id}*multi=*]
        if {$line eq ""} {set line [lsearch -inline -glob [split [r client list] \n] "*multi=2 *"]}
        assert_match {*multi=2 *} $line
        assert_match {*watch=2 *} $line
        assert_match {*flags=x *} $line
        assert_morethan [dict get [client_fields $line] multi-mem] 10000
        assert_morethan [dict get [client_fields $line] tot-mem] [dict get [client_fields $line] multi-mem]
        assert_equal 1 [info_field watching_clients]
        assert_equal 2 [info_field total_watched_keys]
        $c discard
        assert_equal 0 [info_field total_watched_keys]
    }

    test "a client that goes leaves nothing watched" {
        set c [new_client]
        $c watch a b c
        $c multi
        $c set a 1
        $c -close
        wait_for_condition 5000 {[info_field total_watched_keys] == 0} {fail "keys stay watched"}
        replies {{set a 1} +OK {multi} +OK {exec} *}
    }

    test "out of memory refuses a queued command, and EXEC of one queued before" {
        r flushall
        r config set maxmemory 0
        replies {{multi} +OK {set a 1} +QUEUED}
        set c [new_client]
        $c config set maxmemory 1
        replies {
            {exec} "-EXECABORT Transaction discarded because of: OOM command not allowed when used memory >\
                'maxmemory'."
            {multi} +OK
            {set a 1} "-OOM command not allowed when used memory > 'maxmemory'."
            {get a} +QUEUED
            {exec} "-EXECABORT Transaction discarded because of previous errors."
            {multi} +OK
            {get a} +QUEUED
            {exec} {* nil$}
        }
        $c config set maxmemory 0
    }

    test "CLIENT PAUSE WRITE holds back EXEC of a writing transaction, not of a reading one" {
        r flushall
        set c [new_client]
        replies {{multi} +OK {get a} +QUEUED}
        $c client pause 100000 write
        replies {{exec} {* nil$}}
        $c client unpause
        replies {{multi} +OK {set a 1} +QUEUED}
        $c client pause 100000 write
        r -send exec
        wait_for_condition 5000 {[string match *blocked_clients:1* [$c info clients]] ||\
            [string match {*flags=*b*cmd=*} [$c client list]]} {fail "EXEC is not held back"}
        assert_equal "" [$c get a]
        $c client unpause
        assert_equal OK [r -read]
        assert_equal 1 [r get a]
    }

    test "a client that kills itself within a transaction has the rest executed" {
        r flushall
        set c [new_client]
        set id [$c client id]
        $c multi
        $c set a 1
        $c client kill id $id skipme no
        $c set b 2
        catch {$c exec}
        assert_closed $c
        $c -close
        assert_equal {1 2} [r mget a b]
    }

    test "MONITOR shows the commands of a transaction, EXEC last" {
        set m [new_client]
        $m monitor
        replies {{multi} +OK {set a 1} +QUEUED {get a} +QUEUED {exec} {* +OK {$1}}}
        set seen {}
        for {set i 0} {$i < 4} {incr i} {
            regexp {"(\w+)"} [$m -readline] -> name
            lappend seen $name
        }
        assert_equal {multi set get exec} $seen
    }

    test "MONITOR cannot be begun within a transaction" {
        replies {{multi} +OK {monitor} +QUEUED {exec} {* {-ERR MONITOR isn't allowed for DENY BLOCKING client}}}
    }

    test "RESP3: an aborted transaction answers null" {
        set c [new_client -resp 3]
        $c watch k
        r set k 1
        $c multi
        assert_equal _ [$c -typed exec]
    }

    test "random transactions on several clients: what EXEC runs is never interleaved" {
        r flushall
        set clients {}
        for {set i 0} {$i < 5} {incr i} {lappend clients [new_client]}
        for {set round 0} {$round < 100} {incr round} {
            foreach c $clients {
                $c -send multi
                foreach key {a b c} {$c -send incr $key}
                $c -send exec
            }
        }
        foreach c $clients {
            for {set round 0} {$round < 100} {incr round} {
                for {set i 0} {$i < 4} {incr i} {$c -read}
                lassign [$c -read] a b c3
                if {$a != $b || $b != $c3} {fail_assertion "interleaved: $a $b $c3"}
            }
            $c -close
        }
        assert_equal {500 500 500} [r mget a b c]
    }

    test "CLIENT REPLY cannot be queued, and a transaction that tried it is aborted" {
        assert_typed +OK multi
        assert_match "-ERR * not allowed inside a transaction" [r -typed client reply off]
        assert_typed "-EXECABORT Transaction discarded because of previous errors." exec
        assert_typed +PONG ping
    }

    test "a client that kills itself in a transaction gets no reply to what follows" {
        set c [new_client]
        set id [$c client id]
        $c -write [resp_command multi][resp_command ping][resp_command client kill id $id skipme no][resp_command\
            ping][resp_command exec]
        assert_equal {+OK +QUEUED +QUEUED +QUEUED *3 +PONG :1} [lmap i {1 2 3 4 5 6 7} {$c -readline}]
        assert_closed $c
    }

    test "a key that had expired when it was watched counts as missing in FLUSHDB and SWAPDB" {
        r debug set-active-expire 0
        foreach command {flushdb flushall {swapdb 0 1} {swapdb 1 0}} {
            r flushall
            set_expired stale
            r watch stale
            r {*}$command
            r multi
            r ping
            assert_equal PONG [r exec] $command
        }
        # The expired key replaces a missing one.
        r flushall
        r watch stale
        r select 1
        set_expired stale
        r select 0
        r swapdb 0 1
        r multi
        r ping
        assert_equal PONG [r exec]
        # An unexpired key counts, in both databases.
        foreach db {0 1} {
            r flushall
            r select $db
            r set live v
            r select 0
            r watch live
            r swapdb 0 1
            r multi
            r ping
            assert_match nil* [r -typed exec]
        }
        r debug set-active-expire 1
    }

    test "a command that removes a key which had expired when it was watched does not make EXEC fail" {
        r debug set-active-expire 0
        r flushall
        r set other v
        set dump [r dump other]
        set past [list restore stale 1 $dump replace absttl]
        foreach command [list {sort missing store stale} {sinterstore stale missing missing} $past {del stale}] {
            set_expired stale
            r watch stale
            r {*}$command
            assert_match "* watch=1 *" [r client info]
            r multi
            r ping
            assert_equal PONG [r exec] $command
        }
        # A new value is a change.
        foreach command {{set stale v} {copy other stale replace} {rpush stale v}} {
            set_expired stale
            r watch stale
            r {*}$command
            r multi
            r ping
            assert_match nil* [r -typed exec] $command
        }
        r debug set-active-expire 1
    }

    test "CLIENT INFO counts the watched keys until one of them has changed" {
        r del w x
        r watch w w x
        r watch w
        assert_match "* watch=2 *" [r client info]
        r set y 1
        r flushall
        assert_match "* flags=* watch=2 *" [r client info]
        r set w 1
        assert_match "* watch=0 *" [r client info]
        r unwatch
        assert_match "* watch=0 *" [r client info]
    }

    test "CLIENT INFO shows a transaction while EXEC runs it, and that there was one" {
        set c [new_client]
        assert_match "* multi=-1 *" [$c client info]
        $c multi
        $c client info
        set shown [lindex [$c exec] 0]
        assert_match "* flags=x *" $shown
        assert_match "* multi=1 *" $shown
        assert_match "* cmd=exec *" $shown
        assert_match "* multi=0 *" [$c client info]
    }

    test "EXEC is refused on a stale replica if a queued command is" {
        set c [new_client]
        set port [free_port]
        r config set replica-serve-stale-data no
        foreach command {{get x} ping} {
            $c multi
            $c {*}$command
            r replicaof 127.0.0.1 $port
            assert_match "-EXECABORT * MASTERDOWN *" [$c -typed exec]
            r replicaof no one
        }
        $c multi
        $c info server
        r replicaof 127.0.0.1 $port
        assert_match "*redis_version*" [$c exec]
        r replicaof no one
        r config set replica-serve-stale-data yes
    }

    test "EXEC of scripts is held by a pause of writes unless all of them only read" {
        set c [new_client]
        r client pause 100000 write
        $c multi
        $c eval "#!lua flags=no-writes\nreturn 1" 0
        $c eval "#!lua flags=no-writes\nreturn 2" 0
        assert_equal {1 2} [$c exec]
        foreach script {{return 3} "#!lua\nreturn 3"} {
            r client unpause
            $c multi
            $c eval $script 0
            r client pause 100000 write
            $c -send exec
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            r client unpause
            assert_equal 3 [$c -read]
        }
    }

    test "a pause that begins in a transaction also holds the eviction that CONFIG SET asked for" {
        r flushall
        r config resetstat
        r multi
        r set k v
        r config set maxmemory-policy allkeys-random
        r config set maxmemory 1
        r client pause 100000 write
        r exec
        assert_equal 0 [info_field stats evicted_keys]
        r client unpause
        wait_for_condition 5000 {[info_field stats evicted_keys] == 1}
        r config set maxmemory 0
        r config set maxmemory-policy noeviction
    }

    # Over RDMA the next request may be in memory before the turn that released the client ends. It does not overtake.
    test "a client that CLIENT UNPAUSE releases executes its request before the next one of others" {
        set c [new_client]
        set id [$c client id]
        r del list
        for {set i 0} {$i < 20} {incr i} {
            r client pause 100000 write
            $c -send blpop list 0
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            assert_equal 0 [r client unblock $id]
            r client unpause
            assert_equal 1 [r client unblock $id]
            assert_equal "" [$c -read]
        }
    }
}
