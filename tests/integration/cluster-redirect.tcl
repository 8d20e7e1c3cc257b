# Which commands a node of a cluster serves: keys in one slot, slots without an owner, a cluster that is down. The
# replies are those of Valkey 9.1. foo is in slot 12182, bar in 5061, y in 12222, a in 15495, e in 15363.

set cross_slot "-CROSSSLOT Keys in request don't hash to the same slot"
proc wait_for_state {state} {
    wait_for_condition 20000 {[string match "*cluster_state:$state*" [r cluster info]]}
}

start_server {overrides {cluster-enabled yes cluster-databases 4} tags {cluster}} {
    r cluster addslotsrange 0 16383
    wait_for_state ok

    test "keys of one command must be in one slot" {
        replies {
            {mset {{a}1} 1 {{a}2} 2} +OK
            {mget {{a}1} {{a}2}} {* {$1} {$2}}
        }
        foreach command {{mget foo bar} {mset foo 1 bar 1} {del foo bar} {copy foo bar} {watch foo bar}
            {zunionstore bar 2 foo bar} {xread streams foo a 0 0} {sort foo store bar} {ssubscribe foo bar}
            {sunsubscribe foo bar} {eval "return 1" 2 foo bar} {migrate 127.0.0.1 1 "" 0 1 keys foo bar}} {
            assert_equal $cross_slot [r -typed {*}$command]
        }
        assert_equal {-ERR syntax error} [r -typed zunionstore bar 200 foo b]
    }

    test "EXEC runs commands in one slot only, and its error is not wrapped" {
        replies [list {multi} +OK {set foo 1} +QUEUED {set bar 1} +QUEUED {exec} $cross_slot {multi} +OK\
            {mget foo bar} $cross_slot {set foo 1} +QUEUED\
            {exec} {-EXECABORT Transaction discarded because of previous errors.}\
            {multi} +OK {ping} +QUEUED {set foo 1} +QUEUED {publish x y} +QUEUED]
        assert_equal {PONG OK 0} [r exec]
    }

    test "EXEC of a transaction that fails anyway is not redirected" {
        replies [list {multi} +OK {get foo} +QUEUED {get bar} +QUEUED {get} {-ERR wrong number of arguments for 'get'\
            command} {exec} {-EXECABORT Transaction discarded because of previous errors.}\
            {watch foo} +OK {multi} +OK {get foo} +QUEUED {get bar} +QUEUED]
        set c [new_client]
        $c set foo changed
        $c -close
        assert_equal nil* [r -typed exec]
    }

    test "a refused command counts as rejected, and its error in the error statistics" {
        r config resetstat
        r -typed sinter foo bar
        r -typed multi
        r -typed get foo
        r -typed get bar
        r -typed exec
        assert_match "*cmdstat_sinter:calls=0,*rejected_calls=1,failed_calls=0*" [r info commandstats]
        assert_match "*cmdstat_exec:calls=0,*rejected_calls=1,failed_calls=0*" [r info commandstats]
        assert_match "*errorstat_CROSSSLOT:count=2*" [r info errorstats]
    }

    test "scripts with a shebang stay in one slot unless they declare otherwise" {
        set many "-ERR Script attempted to access keys that do not hash to the same slot script: on *"
        set body "return {redis.call('get','a'), redis.call('get','e')}"
        assert_typed {* nil$ nil$} eval $body 0
        assert_typed {* nil$ nil$} eval $body 1 a
        assert_match $many [r -typed eval "#!lua\n$body" 0]
        assert_match $many [r -typed eval "#!lua\nreturn redis.call('get','e')" 1 a]
        assert_typed {* nil$ nil$} eval "#!lua flags=allow-cross-slot-keys\n$body" 1 a
        assert_equal $cross_slot [r -typed eval "#!lua flags=allow-cross-slot-keys\nreturn 1" 2 a e]
        assert_equal "-ERR Can not run script on cluster, 'no-cluster' flag is set."\
            [r -typed eval "#!lua flags=no-cluster\nreturn 1" 0]
        # One command is in one slot in any case, and its failure has no effect on the next script.
        assert_match "-ERR Attempted to access a non local key in a cluster node script: on *"\
            [r -typed eval "return redis.call('mget','a','e')" 0]
        assert_typed {* nil$ nil$} eval $body 0
    }

    test "functions stay in one slot unless they declare otherwise" {
        r function load "#!lua name=one\nserver.register_function{function_name='strict', callback=function(k,a)\
            return {server.call('get','a'),server.call('get',a\[1\])} end}\nserver.register_function{function_name=\
            'wide', flags={'allow-cross-slot-keys'}, callback=function(k,a)\
            return {server.call('get','a'),server.call('get',a\[1\])} end}"
        assert_match "-ERR Script attempted to access keys that do not hash to the same slot script: on *"\
            [r -typed fcall strict 1 a e]
        assert_typed {* nil$ nil$} fcall strict 1 a a
        assert_typed {* nil$ nil$} fcall wide 1 a e
    }

    test "SORT uses keys of its own slot only" {
        set by "-ERR BY option of SORT denied in Cluster mode when keys formed by the pattern may be in different\
            slots."
        set get [string map {BY GET} $by]
        r rpush b 2 1
        r mset {{b}w1} 5 {{b}w2} 3
        assert_equal $by [r -typed sort b by x_*]
        assert_equal $by [r -typed sort b by x_* limit]
        assert_equal $by [r -typed sort b by *{b}]
        assert_equal $get [r -typed sort b get x_*]
        assert_equal $get [r -typed sort_ro b by nosort get abc]
        assert_equal {2 3 1 5} [r sort b by {{b}w*} get # get {{b}w*}]
        assert_equal {2 1} [r sort b by nosort]
    }

    test "databases are not swapped; MOVE and COPY reach other databases" {
        replies {
            {swapdb 0 1} {-ERR SWAPDB is not allowed in cluster mode}
            {set foo 1} +OK
            {move foo 1} :1
            {exists foo} :0
            {select 1} +OK
            {copy foo foo db 2} :1
            {select 2} +OK
            {get foo} {$1}
            {select 4} {-ERR DB index is out of range}
            {select 0} +OK
        }
    }

    test "ASKING and READONLY are accepted" {
        replies {{asking} +OK {readonly} +OK {readwrite} +OK {multi} +OK {asking} +QUEUED {exec} {* +OK}}
    }

    test "clients are served after they were redirected, and PUBLISH works" {
        set c [new_client]
        assert_equal {subscribe x 1} [$c subscribe x]
        assert_equal 1 [r publish x hello]
        assert_equal {message x hello} [$c -read]
    }

    test "a slot that leaves ends the waits of its clients and its shard channels" {
        set waits [new_client]
        set hears [new_client]
        set stays [new_client]
        $waits -send blpop x 0
        assert_equal {ssubscribe x 1} [$hears ssubscribe x]
        assert_equal {ssubscribe y 1} [$stays ssubscribe y]
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        r cluster delslots [r cluster keyslot x]
        assert_equal {-CLUSTERDOWN The cluster is down} [$waits -readline]
        assert_equal {sunsubscribe x 0} [$hears -read]
        assert_equal 1 [r spublish y 1]
        assert_equal {smessage y 1} [$stays -read]
        assert_match "*cmdstat_blpop:calls=1,*rejected_calls=1,failed_calls=0*" [r info commandstats]
    }

    test "SETSLOT NODE ends the shard channels of the slot, also if its owner stays" {
        set hears [new_client]
        assert_equal {ssubscribe y 1} [$hears ssubscribe y]
        assert_equal OK [r cluster setslot [r cluster keyslot y] node [r cluster myid]]
        assert_equal {sunsubscribe y 0} [$hears -read]
    }

    test "a cluster that is down" {
        wait_for_state fail
        set down {-CLUSTERDOWN The cluster is down}
        replies [list {get x} {-CLUSTERDOWN Hash slot not served} {get y} $down {spublish y 1} :0 {multi} +OK\
            {get y} $down\
            {exec} {-EXECABORT Transaction discarded because of previous errors.}\
            {multi} +OK {spublish y 1} +QUEUED {exec} {* :0}\
            {eval "return redis.call('dbsize')" 1 y} $down {ping} +PONG]
        assert_match "-ERR Can not execute a command 'set' while the cluster is down script: on *"\
            [r -typed eval "return redis.call('set','y',1)" 0]
        r config set cluster-allow-pubsubshard-when-down no
        replies [list {spublish y 1} $down {spublish x 1} {-CLUSTERDOWN Hash slot not served} {publish x 1} :0]
    }

    test "cluster-allow-reads-when-down lets reads pass while the cluster is down" {
        r config set cluster-allow-reads-when-down yes
        set reads {-CLUSTERDOWN The cluster is down and only accepts read commands}
        replies [list {get y} nil$ {set y 1} $reads {exists x} {-CLUSTERDOWN Hash slot not served} {multi} +OK\
            {get y} +QUEUED {exec} {* nil$} {eval "return redis.call('get','y')" 1 y} nil$\
            {eval "#!lua\nreturn redis.call('get','y')" 1 y} $reads\
            {eval "#!lua flags=no-writes\nreturn redis.call('get','y')" 1 y} nil$]
        assert_match "-ERR Can not execute a write command 'set' while the cluster is down and readonly script: on *"\
            [r -typed eval "return redis.call('set','y',1)" 1 y]
    }

    test "without full coverage only the missing slot is refused" {
        r config set cluster-allow-reads-when-down no cluster-require-full-coverage no
        wait_for_state ok
        replies {{set y 1} +OK {get x} {-CLUSTERDOWN Hash slot not served}}
        set waits [new_client]
        $waits -send blpop z 0
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        r cluster delslots [r cluster keyslot z]
        assert_equal {-CLUSTERDOWN Hash slot not served} [$waits -readline]
    }

    test "WATCH, tracked keys and XREADGROUP notice that the keys of a slot are gone" {
        set slot [r cluster keyslot y]
        set tracks [new_client -resp 3]
        set waits [new_client]
        set other [new_client]
        r set y 1
        $tracks client tracking on
        assert_equal 1 [$tracks get y]
        assert_equal "" [$tracks get {{y}missing}]
        assert_equal "" [$tracks get a]
        replies {{watch y} +OK {multi} +OK {ping} +QUEUED}
        $other cluster flushslot $slot
        assert_equal nil* [r -typed exec]
        assert_equal {invalidate y} [$tracks -push]
        $other set a 1 ;# nothing was sent about the key that did not exist
        assert_equal {invalidate a} [$tracks -push]
        r xgroup create y g $ mkstream
        $waits -send xreadgroup group g c block 0 streams y >
        wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
        $other cluster flushslot $slot
        assert_match "-NOGROUP *" [$waits -readline]
    }
}
