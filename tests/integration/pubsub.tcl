# SUBSCRIBE and its variants, PUBLISH, PUBSUB; keyspace notifications. seconds: 3

# The messages that a client has received: all messages before the reply to PING.
proc messages {client} {
    $client -send ping end-of-messages
    set all {}
    while 1 {
        set m [$client -readtyped]
        if {[string match *end-of-messages* $m]} {return $all}
        lappend all $m
    }
}

# Converts typed replies to the form in which they are read.
proc typed_forms {t} {
    if {[string index $t 0] in {* >}} {return [typed_form $t]}
    lmap e $t {typed_form $e}
}

start_server {tags {pubsub}} {
    test "a message reaches the subscribers of its channel and of the patterns that match, in this order" {
        set a [new_client]
        set b [new_client]
        assert_reply $a {* {$subscribe} {$news} :1} subscribe news
        assert_reply $b {* {$psubscribe} {$n?ws} :1} psubscribe n?ws
        assert_equal 2 [r publish news hello]
        assert_equal 1 [r publish nows there]
        assert_equal 0 [r publish other x]
        assert_equal [typed_forms {{* $message $news $hello}}] [messages $a]
        assert_equal [typed_forms {{* $pmessage $n?ws $news $hello} {* $pmessage $n?ws $nows $there}}] [messages $b]
    }

    test "SUBSCRIBE and UNSUBSCRIBE confirm each name with the count of subscriptions" {
        set c [new_client]
        $c -send subscribe a b a
        assert_equal {subscribe a 1} [$c -read]
        assert_equal {subscribe b 2} [$c -read]
        assert_equal {subscribe a 2} [$c -read]
        assert_equal {psubscribe p* 3} [$c psubscribe p*]
        assert_equal {ssubscribe s 1} [$c ssubscribe s]
        $c -send unsubscribe b nosuch
        assert_equal {unsubscribe b 2} [$c -read]
        assert_equal {unsubscribe nosuch 2} [$c -read]
        assert_equal {unsubscribe a 1} [$c unsubscribe]
        assert_reply $c {* {$unsubscribe} nil$ :1} unsubscribe
        assert_equal {punsubscribe p* 0} [$c punsubscribe]
        assert_equal {sunsubscribe s 0} [$c sunsubscribe]
        # Without a subscription they are confirmed as well.
        foreach command {unsubscribe punsubscribe sunsubscribe} {
            assert_reply $c [list * "\$$command" nil$ :0] $command
        }
        assert_equal {unsubscribe x 0} [$c unsubscribe x]
        $c multi
        assert_equal QUEUED [$c unsubscribe]
        assert_equal {{unsubscribe {} 0}} [$c exec]
        assert_equal PONG [$c ping]
        $c -close
        arity_errors {subscribe psubscribe ssubscribe publish {publish a} {publish a b c} spublish}
    }

    test "a RESP2 subscriber may do nothing but subscribe, PING, QUIT and RESET" {
        set c [new_client]
        $c subscribe a
        foreach {command name} {{get x} get {set x 1} set {multi} multi {publish a x} publish {client id} client|id\
            {hello 3} hello {config get x} config|get} {
            assert_error "ERR Can't execute '$name': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are\
                allowed in this context" \
                [list $c {*}$command]
        }
        assert_reply $c {* {$pong} {$}} ping
        assert_reply $c {* {$pong} {$hi}} ping hi
        assert_equal RESET [$c reset]
        assert_equal "" [$c get x]
        assert_equal 0 [r publish a x]
    }

    test "RESP3: messages are pushes, and the subscriber can send any command" {
        set c [new_client -resp 3]
        assert_reply $c {> {$subscribe} {$a} :1} subscribe a
        assert_reply $c {> {$psubscribe} {$a*} :2} psubscribe a*
        assert_reply $c _ get nosuch
        assert_equal 2 [r publish a m]
        assert_equal [typed_forms {> $message $a $m}] [$c -readtyped]
        assert_equal [typed_forms {> $pmessage $a* $a $m}] [$c -readtyped]
        assert_equal PONG [$c ping]
    }

    test "what a client publishes to itself follows the reply, also in a transaction" {
        set c [new_client -resp 3]
        $c -send subscribe a
        $c -push
        $c -send publish a self
        assert_equal :1 [$c -readtyped]
        assert_equal [typed_forms {> $message $a $self}] [$c -readtyped]
        foreach command {multi {publish a one} {publish a two} ping} {$c {*}$command}
        $c -send exec
        assert_equal [typed_forms {* :1 :1 +PONG}] [$c -readtyped]
        assert_equal [typed_forms {> $message $a $one}] [$c -readtyped]
        assert_equal [typed_forms {> $message $a $two}] [$c -readtyped]
    }

    test "subscribing within a transaction; shard channels cannot" {
        set c [new_client]
        foreach command {multi {subscribe own} {publish own m} {ssubscribe s} {psubscribe p*}} {$c {*}$command}
        $c -send exec
        assert_equal [typed_forms \
            {* {* $subscribe $own :1} :1 {-ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client}\
            {* $psubscribe $p* :2}}] [$c -readtyped]
        assert_equal [typed_forms {* $message $own $m}] [$c -readtyped]
    }

    test "CLIENT REPLY OFF silences replies, not messages" {
        set c [new_client]
        $c -send client reply off
        assert_reply $c {* {$subscribe} {$a} :1} subscribe a
        r publish a m
        assert_equal [typed_forms {* $message $a $m}] [$c -readtyped]
    }

    test "shard channels are a world of their own" {
        set c [new_client -resp 3]
        foreach command {subscribe ssubscribe} {
            $c -send $command x
            $c -push
        }
        assert_equal 1 [r publish x m]
        assert_equal [typed_forms {> $message $x $m}] [$c -readtyped]
        assert_equal 1 [r spublish x m]
        assert_equal [typed_forms {> $smessage $x $m}] [$c -readtyped]
    }

    test "PUBSUB shows channels, patterns and their subscribers" {
        set a [new_client]
        set b [new_client]
        foreach channel {news.a news.b other} {$a subscribe $channel}
        $b subscribe news.a
        $b psubscribe x*
        $a psubscribe x*
        $a psubscribe y*
        $a ssubscribe s1
        assert_same_elements {news.a news.b other} [r pubsub channels]
        assert_same_elements {news.a news.b} [r pubsub channels news.*]
        assert_equal {} [r pubsub channels zzz]
        replies {
            {pubsub numsub} *
            {pubsub numsub news.a other nosuch} {* {$news.a} :2 {$other} :1 {$nosuch} :0}
            {pubsub numpat} :2
            {pubsub shardchannels} {* {$s1}}
            {pubsub shardchannels z*} *
            {pubsub shardnumsub s1 s2} {* {$s1} :1 {$s2} :0}
            {pubsub nosuch} "-ERR unknown subcommand 'nosuch'. Try PUBSUB HELP."
            {pubsub channels a b} "-ERR unknown subcommand or wrong number of arguments for 'channels'. Try\
                PUBSUB HELP."
        }
        arity_errors {pubsub}
        assert_match {*CHANNELS*NUMSUB*} [r pubsub help]
        assert_equal 3 [info_field pubsub_channels]
        assert_equal 2 [info_field pubsub_patterns]
        assert_equal 1 [info_field pubsubshard_channels]
        assert_equal 2 [info_field pubsub_clients]
        $a -close
        $b -close
        wait_for_condition 5000 {[info_field pubsub_channels] + [info_field pubsub_patterns] +\
            [info_field pubsubshard_channels] == 0} {
            fail "channels without subscribers remain"
        }
    }

    test "large messages reach many subscribers whole" {
        set big [string repeat 0123456789abcdef 20000]
        set clients {}
        foreach resp {2 3 2 3 2} {
            set c [new_client -resp $resp]
            $c -send subscribe big
            assert_equal {subscribe big 1} [expr {$resp == 3 ? [$c -push] : [$c -read]}]
            lappend clients $c
        }
        assert_equal 5 [r publish big $big]
        foreach c $clients {
            assert_equal [list message big $big] [expr {[lsearch $clients $c] % 2 ? [$c -push] : [$c -read]}]
            $c -close
        }
    }

    test "a subscriber that does not read is closed at its limit, the others get everything" {
        r config set client-output-buffer-limit "pubsub 1mb 0 0"
        set lazy [new_client]
        $lazy subscribe flood
        $lazy psubscribe flo*
        set good [new_client]
        $good subscribe flood
        set text [string repeat x 10000]
        set sent 0
        while {[lindex [r pubsub numsub flood] 1] == 2 && $sent < 20000} {
            r publish flood $text
            incr sent
            assert_equal [list message flood $text] [$good -read]
        }
        assert_equal 1 [lindex [r pubsub numsub flood] 1]
        assert_equal 0 [r pubsub numpat]
        $lazy -close
        $good -close
        r config set client-output-buffer-limit "pubsub 32mb 8mb 60"
    }

    test "subscribers are not closed for being idle" -tags {slow} {
        set c [new_client]
        $c subscribe a
        set other [new_client]
        r config set timeout 1
        wait_for_condition 10000 {[r ping] eq "PONG" && [$other -eof 100]} {fail "the idle client stays"}
        r publish a still-here
        assert_equal {message a still-here} [$c -read]
        $c -close
        catch {$other -close}
        r config set timeout 0
    }
}

start_server {tags {pubsub notifications}} {
    proc events {client} {
        set all {}
        foreach m [messages $client] {
            lappend all [list [string range [lindex $m 3] 1 end] [string range [lindex $m 4] 1 end]]
        }
        return $all
    }

    test "keyspace notifications are off unless asked for" {
        set c [new_client]
        $c psubscribe *
        r set k v
        assert_equal [typed_forms {}] [messages $c]
        r config set notify-keyspace-events A
        r set k v
        assert_equal [typed_forms {}] [messages $c]
    }

    test "K publishes by key, E by event, both in this order" {
        set c [new_client]
        $c psubscribe __key*
        foreach {flags expected} {
            KA {{__keyspace@0__:k set}}
            EA {{__keyevent@0__:set k}}
            KEA {{__keyspace@0__:k set} {__keyevent@0__:set k}}
            Kg {}
            K$ {{__keyspace@0__:k set}}
        } {
            r config set notify-keyspace-events $flags
            r set k v
            assert_equal $expected [events $c]
        }
    }

    test "events name the database, and come for every change of a transaction" {
        r config set notify-keyspace-events EA
        r flushall
        set c [new_client]
        $c psubscribe __key*
        foreach command {multi {select 3} {set k 1} {incr k} {expire k 100} {rename k k2} {del k2} {select 0} exec} {
            r {*}$command
        }
        assert_equal {{__keyevent@3__:set k} {__keyevent@3__:incrby k} {__keyevent@3__:expire k}\
            {__keyevent@3__:rename_from k} {__keyevent@3__:rename_to k2} {__keyevent@3__:del k2}} [events $c]
    }

    test "expiry and eviction are reported" {
        r flushall
        r config set notify-keyspace-events Ex
        set c [new_client]
        $c psubscribe __key*
        r set k v px 1
        wait_for_condition 5000 {[r dbsize] == 0} {fail "k does not expire"}
        assert_equal {{__keyevent@0__:expired k}} [events $c]
        r config set notify-keyspace-events Ee
        r set k v
        r config set maxmemory-policy allkeys-random
        r config set maxmemory 1
        catch {r set k2 v}
        wait_for_condition 5000 {[r dbsize] == 0} {fail "nothing is evicted"}
        assert_equal {{__keyevent@0__:evicted k}} [events $c]
        r config set maxmemory 0
        r config set maxmemory-policy noeviction
    }

    test "new and missing keys are reported if the option asks for it" {
        r flushall
        r config set notify-keyspace-events Enm$
        set c [new_client]
        $c psubscribe __key*
        r set k v
        r set k v2
        r get nosuch
        assert_equal {{__keyevent@0__:new k} {__keyevent@0__:set k} {__keyevent@0__:set k}\
            {__keyevent@0__:keymiss nosuch}} [events $c]
        $c -close
        r config set notify-keyspace-events ""
    }

    # The filter for memory evicts a key; the event closes the only subscriber, whose own filter would be called next.
    test "an eviction whose event closes the last subscriber leaves the server serving" {
        r flushall
        r config set maxmemory-policy allkeys-random client-output-buffer-limit "pubsub 1000 0 0"
        r debug populate 3000 key 100
        set c [new_client]
        set patterns {}
        for {set i 1} {$i < 40} {incr i} {lappend patterns [string repeat * $i]}
        $c psubscribe {*}$patterns
        # The client does not read, so that output accumulates.
        r config set maxmemory [expr {[info_field memory used_memory] + 20000}]
        r config set notify-keyspace-events KEe
        set evicted [info_field stats evicted_keys]
        for {set i 0} {$i < 20000 && [r pubsub numpat] > 0} {incr i} {r set new:$i [string repeat x 100]}
        assert {[info_field stats evicted_keys] > $evicted}
        assert_equal 0 [r pubsub numpat]
        assert_equal PONG [r ping]
        r config set maxmemory 0
        r config set notify-keyspace-events "" maxmemory-policy noeviction client-output-buffer-limit \
            "pubsub 33554432 8388608 60"
        r flushall
    }

    test "an eviction whose event closes the client in the middle of its own request ends that request" {
        r flushall
        r config set maxmemory-policy allkeys-random client-output-buffer-limit "pubsub 1000 0 0"
        r debug populate 3000 key 100
        set c [new_client -resp 3]
        set patterns {}
        for {set i 1} {$i < 40} {incr i} {lappend patterns [string repeat * $i]}
        $c -send psubscribe {*}$patterns
        foreach pattern $patterns {$c -push}
        $c multi
        r config set notify-keyspace-events KEe
        r config set maxmemory-policy noeviction
        r config set maxmemory [expr {[info_field memory used_memory] - 20000}]
        r config set maxmemory-policy allkeys-random
        $c -write [resp_command set mine x]
        $c -flush
        wait_for_condition 5000 {[r pubsub numpat] == 0} {fail "the subscriber was not closed"}
        r config set maxmemory 0
        r config set notify-keyspace-events "" maxmemory-policy noeviction client-output-buffer-limit \
            "pubsub 33554432 8388608 60"
        assert_equal 0 [r exists mine]
        assert_equal PONG [r ping]
        r flushall
    }
}
