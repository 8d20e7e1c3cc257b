# Commands on keys of any type, and on databases.
# seconds: 6

# All keys that a complete SCAN returns, with these options.
proc scan_all {args} {
    set cursor 0
    set keys {}
    while {1} {
        lassign [r scan $cursor {*}$args] cursor page
        lappend keys {*}$page
        if {$cursor == 0} {return $keys}
    }
}

start_server {tags {keys}} {
    # --- DEL, UNLINK, EXISTS, TYPE, TOUCH ---------------------------------------

    test "DEL and UNLINK count the keys they remove" {
        foreach cmd {del unlink} {
            r flushall
            r mset a 1 b 2 c 3 d 4
            assert_typed :1 $cmd a
            assert_typed :0 $cmd a
            assert_typed :2 $cmd a b c none
            assert_typed :1 $cmd d d
            assert_typed :0 dbsize
        }
    }

    test "EXISTS counts a key as often as it is named" {
        r flushall
        r mset a 1 b 2
        replies {
            {exists a} :1
            {exists none} :0
            {exists a a b none} :3
        }
    }

    test "TYPE names the type" {
        r flushall
        r set s 1
        replies {{type s} +string {type none} +none}
        other_type l
        assert_typed +list type l
    }

    test "TOUCH counts the keys that are there" {
        r flushall
        r mset a 1 b 2
        replies {
            {touch a} :1
            {touch a a b none} :3
            {touch none} :0
        }
    }

    test "DEL, UNLINK, EXISTS and TOUCH do not count an expired key" {
        r debug set-active-expire 0
        foreach cmd {del unlink exists touch} {
            r set k v px 1
            let_pass 1
            assert_typed :0 $cmd k
        }
        r set k v px 1
        let_pass 1
        replies {{type k} +none {rename k x} "-ERR no such key" {copy k x} :0 {move k 1} :0 {object encoding k} nil$\
            {persist k} :0}
        r debug set-active-expire 1
    }

    # --- KEYS -------------------------------------------------------------------

    test "KEYS matches by the rules of globs" {
        r flushall
        foreach k {hello hallo hxllo hllo heeeello "h\\?" "a\[b" x-y ^ ""} {r set $k 1}
        foreach {pattern want} {
            h?llo {hallo hello hxllo}
            h*llo {hallo heeeello hello hllo hxllo}
            h**llo {hallo heeeello hello hllo hxllo}
            {h[ae]llo} {hallo hello}
            {h[^e]llo} {hallo hxllo}
            {h[a-b]llo} hallo
            {h[b-a]llo} hallo
            {h[!e]llo} hello
            {h\?llo} {}
            {h\\\?} {h\\?}
            {a\[b} {a\[b}
            {a[[]b} {a\[b}
            {[} {}
            {[]} {}
            {*[} {}
            {h[ae} {}
            {x[--.]y} x-y
            {x[\-]y} x-y
            {x[a-]y} {}
            {\^} ^
            {[^} ^
            {[^]} ^
            H* {}
            hello hello
            hell {}
            hello? {}
            hello* hello
            *o {hallo heeeello hello hllo hxllo}
            ????? {hallo hello hxllo}
        } {
            assert_equal [lsort $want] [lsort [r keys $pattern]] "pattern $pattern"
        }
        assert_typed {* $} keys ""
        assert_equal 10 [llength [r keys *]]
    }

    test "KEYS does not take forever on a hostile pattern" {
        r flushall
        r set [string repeat a 100] 1
        set began [clock milliseconds]
        assert_typed * keys [string repeat a* 50]b
        assert_lessthan [expr {[clock milliseconds] - $began}] 2000
    }

    test "KEYS matches binary names" {
        r flushall
        r set "\x00a\xff" 1
        assert_equal [list "\x00a\xff"] [r keys "\x00?\xff"]
        assert_equal [list "\x00a\xff"] [r keys "\[\x00-\x01]*"]
    }

    test "KEYS leaves expired keys out" {
        r flushall
        r debug set-active-expire 0
        r set dead 1 px 1
        r set alive 1
        let_pass 1
        assert_typed {* $alive} keys *
        assert_typed {* $0 {* $alive}} scan 0
        assert_typed {$alive} randomkey
        r debug set-active-expire 1
    }

    # --- SCAN ---------------------------------------------------------------------

    test "SCAN of an empty database" {
        r flushall
        assert_typed {* $0 *} scan 0
    }

    test "a full SCAN gives every key exactly once when nothing changes" {
        r flushall
        r debug populate 1000
        foreach count {1 10 97 5000} {
            set keys [scan_all count $count]
            assert_equal 1000 [llength [lsort -unique $keys]] "COUNT $count"
        }
        assert_equal 1000 [llength [lsort -unique [scan_all]]]
    }

    test "SCAN COUNT determines the size of a reply" {
        set small [llength [lindex [r scan 0 count 10] 1]]
        set large [llength [lindex [r scan 0 count 500] 1]]
        assert_range $small 1 60
        assert_range $large 300 1000
        assert_equal 0 [lindex [r scan 0 count 100000] 0]
    }

    test "SCAN MATCH filters" {
        assert_same_elements {key:1 key:10 key:11 key:12 key:13 key:14 key:15 key:16 key:17 key:18 key:19} \
            [lsort -unique [concat [scan_all match key:1?] [scan_all MATCH key:1]]]
        assert_equal {} [scan_all match nothing*]
        assert_equal key:77 [lsort -unique [scan_all match key:77]]
        assert_equal 1000 [llength [lsort -unique [scan_all match *]]]
        assert_equal key:5 [lsort -unique [scan_all match none match key:5]]
    }

    test "SCAN TYPE filters" {
        assert_equal 1000 [llength [lsort -unique [scan_all type string]]]
        assert_equal 1000 [llength [lsort -unique [scan_all TYPE STRING]]]
        assert_equal {} [scan_all type hash]
        assert_equal key:5 [lsort -unique [scan_all type string count 100 match key:5]]
        other_type l
        assert_equal l [lsort -unique [scan_all type list]]
        r del l
    }

    test "SCAN gives keys that were there all the time while the table grows" {
        r flushall
        r debug populate 500 stay
        set cursor 0
        set seen {}
        set n 0
        while {1} {
            lassign [r scan $cursor count 5] cursor page
            lappend seen {*}$page
            if {$n < 30000} {r debug populate [incr n 300] new}
            if {$cursor == 0} break
        }
        assert_equal 0 $cursor
        assert_equal 500 [llength [lsearch -all -inline -glob [lsort -unique $seen] stay:*]]
    }

    test "SCAN gives keys that were there all the time while the table shrinks" {
        r flushall
        r debug populate 500 stay
        r debug populate 20000 go
        set cursor 0
        set seen {}
        set n 0
        while {1} {
            lassign [r scan $cursor count 40] cursor page
            lappend seen {*}$page
            set victims {}
            for {set i 0} {$i < 300 && $n < 20000} {incr i} {lappend victims go:$n; incr n}
            if {$victims ne ""} {r del {*}$victims}
            if {$cursor == 0} break
        }
        assert_equal 500 [llength [lsearch -all -inline -glob [lsort -unique $seen] stay:*]]
    }

    test "SCAN gives keys that were there all the time while the table does both" {
        r flushall
        r debug populate 300 stay
        set cursor 0
        set seen {}
        set round 0
        while {1} {
            lassign [r scan $cursor count 7] cursor page
            lappend seen {*}$page
            incr round
            if {$round % 2} {r debug populate 3000 burst} else {
                set victims {}
                for {set i 0} {$i < 3000} {incr i} {lappend victims burst:$i}
                r unlink {*}$victims
            }
            if {$cursor == 0 || $round > 4000} break
        }
        assert_equal 0 $cursor
        assert_equal 300 [llength [lsearch -all -inline -glob [lsort -unique $seen] stay:*]]
    }

    test "SCAN accepts any cursor that is a number" {
        r flushall
        r set a 1
        foreach cursor {1 17 65535 4294967296 18446744073709551615} {
            assert_equal 2 [llength [r scan $cursor]]
        }
    }

    test "SCAN refuses bad cursors and options" {
        replies {
            {scan x} "-ERR invalid cursor"
            {scan -1} "-ERR invalid cursor"
            {scan 1.5} "-ERR invalid cursor"
            {scan ""} "-ERR invalid cursor"
            {scan 18446744073709551616} "-ERR invalid cursor"
            {scan 0 match} "-ERR syntax error"
            {scan 0 count} "-ERR syntax error"
            {scan 0 type} "-ERR syntax error"
            {scan 0 count 0} "-ERR syntax error"
            {scan 0 count -1} "-ERR syntax error"
            {scan 0 count x} "-ERR value is not an integer or out of range"
            {scan 0 type foo} "-ERR unknown type name 'foo'"
            {scan 0 foo bar} "-ERR syntax error"
            {scan 0 novalues} "-ERR NOVALUES option can only be used in HSCAN"
        }
    }

    # --- RANDOMKEY -------------------------------------------------------------------

    test "RANDOMKEY gives every key sooner or later, nil when there is none" {
        r flushall
        assert_typed nil$ randomkey
        r mset a 1 b 2 c 3 d 4
        set seen {}
        for {set i 0} {$i < 300} {incr i} {dict set seen [r randomkey] 1}
        assert_equal {a b c d} [lsort [dict keys $seen]]
        r flushall
        r set only 1
        assert_typed {$only} randomkey
        assert_reply [new_client -resp 3] {$only} randomkey
        r flushall
        assert_reply [new_client -resp 3] _ randomkey
    }

    # --- RENAME, RENAMENX, MOVE, COPY ---------------------------------------------------

    test "RENAME replaces the target and takes the expiry along" {
        r flushall
        r set a 1 ex 100
        r set b 2 ex 10000
        assert_typed +OK rename a b
        assert_typed :0 exists a
        assert_equal 1 [r get b]
        assert_range [r ttl b] 95 100
        r set c 1
        r rename c b
        assert_typed :-1 ttl b
        replies {
            {rename none x} "-ERR no such key"
            {rename none none} "-ERR no such key"
            {rename b b} +OK
            {get b} {$1}
            {dbsize} :1
        }
    }

    test "RENAMENX keeps an existing target" {
        r flushall
        r mset a 1 b 2
        replies {
            {renamenx a b} :0
            {mget a b} {* $1 $2}
            {renamenx a c} :1
            {exists a} :0
            {get c} {$1}
            {renamenx none x} "-ERR no such key"
            {renamenx c c} :0
        }
        r set e 1 ex 100
        r renamenx e f
        assert_range [r ttl f] 95 100
    }

    test "MOVE takes a key with its expiry to another database" {
        r flushall
        r set a 1 ex 100
        set c [new_client -db 5]
        assert_typed :1 move a 5
        assert_typed :0 exists a
        assert_equal 1 [$c get a]
        assert_range [$c ttl a] 95 100
        replies {
            {move a 5} :0
            {move none 5} :0
            {set a other} +OK
            {move a 5} :0
            {get a} {$other}
            {move a 0} "-ERR source and destination objects are the same"
            {move a 99} "-ERR DB index is out of range"
            {move a -1} "-ERR DB index is out of range"
            {move a x} "-ERR value is not an integer or out of range"
            {move a 16} "-ERR DB index is out of range"
        }
        assert_equal 1 [$c get a]
    }

    test "COPY copies value and expiry" {
        r flushall
        r set a 1 ex 100
        replies {
            {copy a b} :1
            {mget a b} {* $1 $1}
            {copy a b} :0
            {copy none c} :0
            {exists c} :0
        }
        assert_range [r ttl b] 95 100
        r append b x
        assert_equal 1 [r get a]
    }

    test "COPY REPLACE and DB" {
        r flushall
        r mset a 1 b 2
        set c [new_client -db 2]
        replies {
            {copy a b replace} :1
            {get b} {$1}
            {copy a a db 2} :1
            {copy a b db 2} :1
            {copy a b db 2} :0
            {copy a b DB 2 REPLACE} :1
            {copy a b replace db 2} :1
            {copy a b db 0} :0
            {copy a b db 0 replace} :1
        }
        assert_equal {1 1} [$c mget a b]
    }

    test "COPY refuses bad arguments" {
        replies {
            {copy a a} "-ERR source and destination objects are the same"
            {copy a a db 0} "-ERR source and destination objects are the same"
            {copy a a replace} "-ERR source and destination objects are the same"
            {copy a b db 99} "-ERR DB index is out of range"
            {copy a b db -1} "-ERR DB index is out of range"
            {copy a b db x} "-ERR value is not an integer or out of range"
            {copy a b foo} "-ERR syntax error"
            {copy a b db} "-ERR syntax error"
        }
    }

    # --- OBJECT ----------------------------------------------------------------------------

    test "OBJECT ENCODING, REFCOUNT, IDLETIME of existing and missing keys" {
        r flushall
        r set a hello
        replies {
            {object encoding a} {$embstr}
            {object refcount a} :1
            {object encoding none} nil$
            {object refcount none} nil$
            {object idletime none} nil$
            {object freq none} nil$
        }
        assert_range [r object idletime a] 0 1
        replies {{object encoding none} _ {object idletime none} _} [new_client -resp 3]
    }

    test "OBJECT IDLETIME counts the seconds since the last use; looking at a key is no use" {
        r mset a value b value c value d value
        wait_for_condition 4000 {[r object idletime a] >= 2}
        r get a
        assert_range [r object idletime a] 0 1
        r touch b
        assert_range [r object idletime b] 0 1
        r exists c
        r type c
        r ttl c
        r object encoding c
        assert_range [r object idletime c] 2 5
        r set d other
        assert_range [r object idletime d] 0 1
    }

    test "OBJECT FREQ needs an LFU policy, IDLETIME another one" {
        r set a 1
        assert_typed "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that\
            when switching between policies at runtime LRU and LFU data will take some time to adjust." object freq a
        with_config {maxmemory-policy allkeys-lfu} {
            r set fresh value
            assert_range [r object freq fresh] 1 255
            assert_typed "-ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when\
                switching between policies at runtime LRU and LFU data will take some time to adjust." object\
                idletime fresh
            assert_typed nil$ object freq none
        }
    }

    test "an LFU counter grows with use" {
        with_config {maxmemory-policy allkeys-lfu lfu-log-factor 0} {
            r set b 1
            for {set i 0} {$i < 50} {incr i} {r get b}
            assert_range [r object freq b] 40 255
        }
    }

    test "OBJECT HELP and unknown subcommands" {
        set help [r object help]
        assert_match "OBJECT <subcommand>*" [lindex $help 0]
        foreach word {ENCODING FREQ IDLETIME REFCOUNT HELP} {assert_match "*$word*" $help}
        replies {
            {object foo a} "-ERR unknown subcommand 'foo'. Try OBJECT HELP."
            {object} "-ERR wrong number of arguments for 'object' command"
            {object encoding} "-ERR wrong number of arguments for 'object|encoding' command"
            {object encoding a b} "-ERR wrong number of arguments for 'object|encoding' command"
            {object freq} "-ERR wrong number of arguments for 'object|freq' command"
            {object idletime} "-ERR wrong number of arguments for 'object|idletime' command"
            {object refcount} "-ERR wrong number of arguments for 'object|refcount' command"
            {object help x} "-ERR wrong number of arguments for 'object|help' command"
        }
    }

    # --- Databases ------------------------------------------------------------------------------

    test "databases are separate" {
        r flushall
        set c [new_client -db 9]
        r set a 0
        $c set a 9
        assert_equal 0 [r get a]
        assert_equal 9 [$c get a]
        assert_equal 1 [r dbsize]
        assert_equal 1 [$c dbsize]
        assert_match "*db0:keys=1,expires=0,avg_ttl=0*db9:keys=1,expires=0*" [r info keyspace]
    }

    test "FLUSHDB empties one database, FLUSHALL all" {
        foreach how {{} sync async ASYNC Sync} {
            set c [new_client -db 9]
            r set a 0
            $c set a 9
            assert_typed +OK flushdb {*}$how
            assert_typed :0 dbsize
            assert_equal 1 [$c dbsize]
            r set a 0
            assert_typed +OK flushall {*}$how
            assert_typed :0 dbsize
            assert_equal 0 [$c dbsize]
        }
        replies {
            {flushdb foo} "-ERR syntax error"
            {flushall foo} "-ERR syntax error"
            {flushdb sync async} "-ERR syntax error"
            {flushall sync x} "-ERR syntax error"
        }
    }

    test "FLUSHALL of many keys, synchronously and not" -timeout 90 {
        r flushall
        foreach how {sync async} {
            r flushall
            r debug populate 200000
            assert_equal 200000 [r dbsize]
            r flushall $how
            assert_equal 0 [r dbsize]
            r set a 1
            assert_equal a [r keys *]
        }
        r flushall
    }

    test "SWAPDB exchanges two databases for all clients" {
        r flushall
        set c [new_client -db 1]
        r set a zero
        $c set a one
        $c set b one ex 100
        assert_typed +OK swapdb 0 1
        assert_equal one [r get a]
        assert_equal zero [$c get a]
        assert_range [r ttl b] 95 100
        assert_typed +OK swapdb 1 0
        assert_equal zero [r get a]
        replies {
            {swapdb 0 0} +OK
            {swapdb 0 99} "-ERR DB index is out of range"
            {swapdb -1 0} "-ERR DB index is out of range"
            {swapdb x 1} "-ERR invalid first DB index"
            {swapdb 1 x} "-ERR invalid second DB index"
        }
    }

    test "DBSIZE counts keys" {
        r flushall
        r debug populate 123
        assert_typed :123 dbsize
        r del key:1
        assert_typed :122 dbsize
    }

    # --- Memory ------------------------------------------------------------------------------------

    test "big values are freed lazily by UNLINK and FLUSHALL ASYNC" {
        r flushall
        r config resetstat
        for {set i 0} {$i < 20} {incr i} {r set big:$i [string repeat x 1000000]}
        r unlink big:0 big:1
        r flushall async
        wait_for_condition 5000 {[info_field memory lazyfree_pending_objects] == 0}
    }

    test "used_memory returns after FLUSHALL" {
        r flushall sync
        wait_for_condition 5000 {[info_field memory lazyfree_pending_objects] == 0}
        set before [info_field memory used_memory]
        r debug populate 100000 k 100
        set full [info_field memory used_memory]
        assert_morethan $full [expr {$before + 10000000}]
        r flushall sync
        wait_for_condition 5000 {[info_field memory used_memory] < $before + 2000000}
    }

    test "used_memory returns after many SET and DEL" {
        r flushall sync
        set before [info_field memory used_memory]
        for {set round 0} {$round < 20} {incr round} {
            r debug populate 5000 k 200
            set victims {}
            for {set i 0} {$i < 5000} {incr i} {lappend victims k:$i}
            r del {*}$victims
        }
        assert_equal 0 [r dbsize]
        wait_for_condition 5000 {[info_field memory used_memory] < $before + 2000000}
    }

    test "keyspace_hits and keyspace_misses count lookups" {
        r flushall
        r config resetstat
        r set a 1
        r get a
        r get none
        r mget a none none2
        r exists a
        assert_equal 3 [info_field stats keyspace_hits]
        assert_equal 3 [info_field stats keyspace_misses]
    }
}

start_server {overrides {databases 3} tags {keys}} {
    test "the option databases limits SELECT, MOVE, COPY and SWAPDB" {
        replies {
            {select 2} +OK
            {select 3} "-ERR DB index is out of range"
            {select 0} +OK
            {set a 1} +OK
            {move a 3} "-ERR DB index is out of range"
            {copy a b db 3} "-ERR DB index is out of range"
            {swapdb 0 3} "-ERR DB index is out of range"
        }
        assert_equal 3 [config_get databases]
    }
}

# Apart from the data, the order of SCAN depends only on the seed. Nothing rehashes a table between two commands here.
set ::orders {}
foreach {name seed} [list a "seed" again "seed" other "tree" "one NUL" "s\0a" "another NUL" "s\0b"] {
    start_server [list overrides [list hash-seed $seed activerehashing no] tags {keys}] {
        test "hash-seed decides the order of SCAN ($name)" -needs {ours 1} {
            assert_equal [list hash-seed $seed] [r config get hash-seed]
            for {set i 0} {$i < 64} {incr i} {r set k$i x}
            if {[dict exists $::orders $seed]} {assert_equal [dict get $::orders $seed] [scan_all]}
            dict set ::orders $seed [scan_all]
        }
    }
}
test "different values of hash-seed give different orders" -needs {ours 1 true {!$::opt(slots)}} {
    assert_equal 4 [llength [lsort -unique [dict values $::orders]]]
}
